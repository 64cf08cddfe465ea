"""Reductions in all layouts: axes, rows and columns of any number and place, few results and many."""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np
import pytest
from arrays import layouts, random_array
from cases import each
from conftest import SMALL, takes_few
from oracles import ELEMENT_TYPES, assert_reduced
from reduction_tools import INDICES, REDUCTIONS, axes_of, values

import cukern

pytestmark = pytest.mark.usefixtures("backend")


def wait_for_memory(needed: int) -> None:
    """Wait until the GPU has as much: tests of other files run beside this one."""
    give_up = time.monotonic() + 120
    while cukern.memory_info()["free"] < needed:
        if time.monotonic() > give_up:
            pytest.skip(f"other processes leave less than {needed >> 30} GiB of the GPU's memory")
        time.sleep(0.2)


def at_a_part(base: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """Return an Array of complex numbers over those parts, from the second one on."""
    if cukern.backend() == "host":
        return cukern.from_dlpack(np.asarray(cukern.asnumpy(base))[1:].view(dtype).reshape(shape))
    cupy = pytest.importorskip("cupy")
    return cukern.from_dlpack(cupy.asarray(base)[1:].view(dtype).reshape(shape))


@pytest.mark.parametrize("name", REDUCTIONS)
@each("dtype", ELEMENT_TYPES)
def test_axes(name: str, dtype: np.dtype, rng: np.random.Generator) -> None:
    for shape in ((), (1,), (7,), (3, 1), (4, 33), (5, 6, 7), (2, 3, 4, 5)):
        a = values(rng, name, shape, dtype)
        for axis, keepdims in itertools.product(axes_of(name, len(shape)), (False, True)):
            assert_reduced(
                getattr(cukern, name)(a, axis=axis, keepdims=keepdims), name, a, axis=axis, keepdims=keepdims
            )


@pytest.mark.parametrize(
    "dtype", [t for t in ELEMENT_TYPES if t.name in ("int8", "float16", "float32", "float64")], ids=str
)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_rows(name: str, dtype: np.dtype, rng: np.random.Generator) -> None:
    """Rows of every length that a group of threads may take, from every place in a vector."""
    for length in (1, 2, 3, 5, 8, 13, 16, 31, 100, 257, 511, 517, 1000, 1025) if not takes_few() else (5, 16, 100, 517):
        base = values(rng, name, (70, length + 17), dtype)
        own = cukern.asarray(base)
        for first in (0, 1, 3, 16):
            a = base[:, first : first + length]
            result = getattr(cukern, name)(own[:, first : first + length], axis=1)
            assert_reduced(cukern.asnumpy(result), name, a, axis=1)
        a = np.ascontiguousarray(base[:, :length])  # neighbours, of which each begins elsewhere in a vector
        assert_reduced(cukern.asnumpy(getattr(cukern, name)(cukern.asarray(a), axis=1)), name, a, axis=1)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float32", "float64", "complex64"])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_many_short_rows(name: str, dtype: str, rng: np.random.Generator) -> None:
    """The host takes each row by one call of NumPy's loop, and threads share the rows."""
    a = values(rng, name, (9001, 9), np.dtype(dtype))
    for part in (a, a[:, ::-1], a[::2]):
        assert_reduced(cukern.asnumpy(getattr(cukern, name)(part, axis=1)), name, part, axis=1)


@pytest.mark.parametrize("dtype", ["int64", "uint64", "float32", "float64"])
def test_sums_of_rows(dtype: str, rng: np.random.Generator) -> None:
    """The host takes four rows at a time, in groups of 32."""
    for rows in (*range(1, 10), *range(31, 38), 64, 65, 67, 300):
        for columns in (4, 5, 63, 64, 129):
            if dtype.endswith("int64"):  # which wraps
                a = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (rows, columns), dtype)
            else:
                a = (rng.integers(-(2**12), 2**12, (rows, columns)) / 8).astype(dtype)  # whose sums are exact
            np.testing.assert_array_equal(cukern.asnumpy(cukern.sum(a, axis=0)), a.sum(axis=0))
    zeros = np.full((9, 70), -0.0, np.float64)
    assert np.all(cukern.asnumpy(cukern.sum(zeros, axis=0)) == 0)


@pytest.mark.parametrize("name", ["sum", "max", "argmax", "var", "any", "prod"])
def test_many_partial_results(name: str, rng: np.random.Generator) -> None:
    """One result, or a few, of so many blocks that more than a warp joins them; blocks that take single segments."""
    shapes: list[tuple[int, ...]] = [(2**19,), (3, 2**18), (7, 40, 1100), (40, 1000)]
    if not takes_few():
        shapes += [(2**21,), (5, 2**19), (12, 69, 3218)]
    for shape in shapes:
        a = values(rng, name, (*shape[:-1], 2 * shape[-1]), np.dtype("float32"))
        own = cukern.asarray(a)
        axis = len(shape) - 1 if len(shape) == 2 else None
        for part in (slice(None, shape[-1]), slice(None, None, 2)):  # windows, and steps
            result = getattr(cukern, name)(own[..., part], axis=axis)
            assert_reduced(cukern.asnumpy(result), name, a[..., part], axis=axis)


@pytest.mark.parametrize("backend", [pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True)
@pytest.mark.parametrize(
    "dtype",
    [t for t in ELEMENT_TYPES if not SMALL or t.name in ("int8", "float16", "float32", "complex128")],
    ids=str,
)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_work_for_all_multiprocessors(name: str, dtype: np.dtype, rng: np.random.Generator) -> None:
    """Less is spread over more threads: single columns in the place of vectors, and fewer short rows at once."""
    vector = 16 // dtype.itemsize
    short = {1: 20, 2: 36, 4: 36, 8: 40, 16: 48}[vector]  # elements of rows too long to be columns
    shapes = [((33_000, 16), 0), ((34_000, short), 1)]  # columns that blocks share, and short rows
    if not takes_few():
        shapes += [((34_000, vector + 1), 1), ((3, 66 * 256 * vector), 0), ((20, 50_000), 0), ((700, 800), 0)]
    for shape, axis in shapes:
        a = values(rng, name, shape, dtype)
        own = cukern.asarray(a)
        assert_reduced(cukern.asnumpy(getattr(cukern, name)(own, axis=axis)), name, a, axis=axis)


@pytest.mark.parametrize(
    "dtype", [t for t in ELEMENT_TYPES if t.name in ("bool", "int8", "float32", "complex128")], ids=str
)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_windows_of_few_long_rows(name: str, dtype: np.dtype, rng: np.random.Generator) -> None:
    """Results of several long rows that do not merge, each of which blocks share."""
    base = values(rng, name, (2, 3, 45_013), dtype)
    a, x = base[..., 5:45_006], cukern.asarray(base)[..., 5:45_006]
    for axes in [None] if name in INDICES else [None, (0, 2), (1, 2)]:
        for turned in (slice(None), slice(None, None, -1)):
            result = getattr(cukern, name)(x[turned], axis=axes)
            assert_reduced(cukern.asnumpy(result), name, a[turned], axis=axes)


@pytest.mark.parametrize("dtype", [np.dtype(t) for t in ("bool", "int8", "float16", "int64", "complex128")], ids=str)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_dimensions_between_others(name: str, dtype: np.dtype, rng: np.random.Generator) -> None:
    """Several kept and reduced dimensions that do not merge, the least steps in each of them, and narrow columns."""
    shapes = [(5, 3, 40, 67)] if takes_few() else [(5, 3, 40, 67), (7, 90, 4, 3), (2, 33, 5, 128), (300, 64, 8)]
    for shape in shapes:
        base = cukern.asarray(values(rng, name, (*shape[:-1], shape[-1] + 5), dtype))
        window = base[..., 3 : 3 + shape[-1]]
        some = [*itertools.combinations(range(len(shape)), 2), (0, len(shape) - 1), (1,), (len(shape) - 1,)]
        for x in (window, window[..., ::2], window[:, ::-1], window.T):
            a = cukern.asnumpy(x)
            for axes in [(None), *range(len(shape))] if name in INDICES else some:
                assert_reduced(cukern.asnumpy(getattr(cukern, name)(x, axis=axes)), name, a, axis=axes)


@pytest.mark.parametrize(
    "dtype", [np.dtype(t) for t in ("bool", "int8", "uint16", "float16", "int64", "float32", "complex128")], ids=str
)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_columns_of_few_elements(name: str, dtype: np.dtype, rng: np.random.Generator) -> None:
    """A thread takes a column of up to 16 elements, in one or two dimensions; equal ones are among them."""
    for n in (2, 4, 5, 16, 17):
        for shape, axes in (((n, 331), 0), ((37, n, 3), 1), ((65, n), 1), ((2, 33, n // 2, 5), (0, 2)), ((n,), 0)):
            if name in INDICES and isinstance(axes, tuple):
                continue
            base = values(rng, name, (*shape[:-1], shape[-1] + 3), dtype)
            if name in INDICES:
                base = np.abs(base) % 3 if dtype.kind in "iu" else base.round()
            a, x = base[..., 1:-2], cukern.asarray(base)[..., 1:-2]
            for turned in (slice(None), slice(None, None, -1)):
                result = getattr(cukern, name)(x[turned], axis=axes)
                assert_reduced(cukern.asnumpy(result), name, a[turned], axis=axes)


@pytest.mark.parametrize("backend", [pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True)
@pytest.mark.parametrize(
    "dtype", [np.dtype(t) for t in ("int8", "float16", "int32", "float64", "complex64", "complex128")], ids=str
)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_rows_that_are_taken_as_columns(name: str, dtype: np.dtype, rng: np.random.Generator) -> None:
    """Short rows of half a million elements and more; how short depends on whether they are aligned to vectors, on the
    type and on the reduction.
    """
    for n in (12, 13, 32) if SMALL else (12, 13, 32, 33, 64, 65):
        rows = (1 << 19) // n + 5
        for shape in ((rows, n), (5, rows // 4, n)):
            base = values(rng, name, (*shape[:-1], shape[-1] + 3), dtype)
            window = base[..., 1:-2]
            for part, x in (
                (window, cukern.asarray(base)[..., 1:-2]),
                (window, cukern.asarray(np.ascontiguousarray(window))),
            ):
                assert_reduced(cukern.asnumpy(getattr(cukern, name)(x, axis=-1)), name, part, axis=-1)


@pytest.mark.parametrize("dtype", [np.dtype(t) for t in ("bool", "int8", "float16", "float64", "complex64")], ids=str)
@pytest.mark.parametrize("name", INDICES)
def test_indices_of_few_elements_in_several_dimensions(name: str, dtype: np.dtype, rng: np.random.Generator) -> None:
    """A thread takes all of them, in the order of their indices: the first of equal ones, or the first NaN."""
    least = False if dtype.kind == "b" else np.iinfo(dtype).min if dtype.kind == "i" else -np.inf
    for shape in ((3, 7), (2, 2, 5), (2, 3, 5)):
        base = random_array(rng, shape, dtype)
        if dtype.kind == "i":
            base &= 1  # so that many are equal
        cases = [base, np.full(shape, least, dtype), np.full(shape, 1, dtype)]
        if dtype.kind in "fc":
            cases.append(np.where(rng.random(shape) < 0.3, np.nan, base).astype(dtype))
        for a in cases:
            x = cukern.asarray(a)
            for part in (np.s_[..., 1:-2], np.s_[::-1, ..., 1:-2], np.s_[..., -3:0:-1]):
                assert_reduced(cukern.asnumpy(getattr(cukern, name)(x[part])), name, a[part])


@pytest.mark.parametrize("dtype", [np.dtype(t) for t in ("bool", "int16", "float32", "complex64")], ids=str)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_short_rows_of_windows(name: str, dtype: np.dtype, rng: np.random.Generator) -> None:
    """Rows that do not merge and are too short for threads to lie along them: they lie along the next dimension."""
    for n in (2, 3, 7):
        base = values(rng, name, (6, 5, 90, n + 3), dtype)
        a, x = base[..., 1:-2], cukern.asarray(base)[..., 1:-2]
        for axes in [None] if name in INDICES else [None, (0, 2, 3), (1, 2, 3), (2, 3)]:
            assert_reduced(cukern.asnumpy(getattr(cukern, name)(x, axis=axes)), name, a, axis=axes)


@pytest.mark.parametrize("backend", [pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True)
@pytest.mark.parametrize("dtype", [np.dtype(name) for name in ("float16", "float32", "float64", "int32")], ids=str)
@pytest.mark.parametrize("name", ["sum", "max", "argmax"])
def test_few_long_rows(name: str, dtype: np.dtype, rng: np.random.Generator) -> None:
    """Columns by the million: a thread takes all rows of some."""
    for rows in (16,) if SMALL else (2, 16, 32):
        columns = 1056 * 256 * 16 // dtype.itemsize + 16
        a = random_array(rng, (columns,), dtype)[None] + np.arange(rows, dtype=dtype)[:, None] % 5
        a[rows // 2, ::3] = 7
        assert_reduced(cukern.asnumpy(getattr(cukern, name)(cukern.asarray(a), axis=0)), name, a, axis=0)


@pytest.mark.parametrize("name", REDUCTIONS)
@each("dtype", ELEMENT_TYPES)
def test_layouts(name: str, dtype: np.dtype, rng: np.random.Generator) -> None:
    for shape in ((7,), (5, 6), (3, 4, 5)):
        for a in layouts(rng, shape, dtype).values():
            if name == "prod" and a.flags.writeable:
                a[...] = values(rng, name, shape, dtype)
            for axis in (None, *range(len(shape))):
                assert_reduced(getattr(cukern, name)(a, axis=axis), name, a, axis=axis)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_many_dimensions(name: str, rng: np.random.Generator) -> None:
    a = values(rng, name, (2,) * 14, np.dtype(np.float32))
    for axis in (None, 0, 13) if name in INDICES else (None, tuple(range(0, 14, 2)), (1, 5, 9)):
        for x in (a, a.transpose(rng.permutation(14)), a[::-1, :, ::-1]):
            assert_reduced(getattr(cukern, name)(x, axis=axis), name, x, axis=axis)
    wide = values(rng, name, (2, 2) * 11, np.dtype(np.int8))[(slice(None), slice(0, 1)) * 9]
    if name not in INDICES:
        axes = tuple(range(0, 22, 2))
        assert_reduced(getattr(cukern, name)(wide, axis=axes), name, wide, axis=axes)


@pytest.mark.parametrize("shape", [(4, 1500), (1500, 4), (90, 6, 33), (3, 70, 40, 5)], ids=str)
@pytest.mark.parametrize("name", INDICES)
def test_the_first_of_equals_in_any_order_of_memory(
    name: str, shape: tuple[int, ...], rng: np.random.Generator
) -> None:
    """Indices count elements in C order, which is not the order in which threads read them."""
    shape = shape if takes_few() else (*shape[:-1], 50 * shape[-1])
    for dtype in (np.dtype("int8"), np.dtype("float64")):
        a = np.zeros(shape, dtype)
        for order in itertools.permutations(range(len(shape))):
            for count in (0, 2, 20):
                a.reshape(-1)[rng.integers(0, a.size, count)] = -1 if name == "argmin" else 1
                x = cukern.asarray(a.transpose(order), copy=True).transpose(np.argsort(order).tolist())
                assert x.shape == shape
                assert_reduced(cukern.asnumpy(getattr(cukern, name)(x)), name, a)


@pytest.mark.parametrize("name", REDUCTIONS)
@each("dtype", ELEMENT_TYPES)
def test_axes_of_length_one(name: str, dtype: np.dtype, rng: np.random.Generator) -> None:
    a = values(rng, name, (3, 1, 50, 1), dtype)
    x = cukern.asarray(a)
    for own, want in ((x, a), (x[::-1, :, ::3], a[::-1, :, ::3])):
        for axis in (1, -1) if name in INDICES else (1, -1, (1, 3), ()):
            assert_reduced(cukern.asnumpy(getattr(cukern, name)(own, axis=axis)), name, want, axis=axis)
    wanted = cukern.asnumpy(getattr(cukern, name)(x, axis=1).astype("complex128"))
    out = cukern.zeros((3, 50, 1), "complex128")
    getattr(cukern, name)(x, axis=1, out=out)
    np.testing.assert_array_equal(cukern.asnumpy(out), wanted)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", ["sum", "prod", "mean", "any", "all"])
def test_complex_numbers_that_begin_at_a_part(name: str, dtype: str, rng: np.random.Generator) -> None:
    part = {"complex64": np.float32, "complex128": np.float64}[dtype]
    for shape in ((1000,), (7, 300), (300, 7), (5, 40, 6)):
        count = int(np.prod(shape))
        base = cukern.asarray(rng.standard_normal(2 * count + 1).astype(part) / 8 + 0.7)
        for axis in (None, 0, len(shape) - 1):
            a = at_a_part(base, shape, dtype)
            wanted = getattr(np, name)(cukern.asnumpy(base)[1:].view(dtype).reshape(shape), axis=axis)
            result = cukern.asnumpy(getattr(cukern, name)(a, axis=axis))
            np.testing.assert_allclose(result, wanted, rtol=1e-3 if dtype == "complex64" else 1e-11)
        running = cukern.asnumpy(cukern.cumulative_sum(at_a_part(base, shape, dtype), axis=0))
        wanted = np.cumsum(cukern.asnumpy(base)[1:].view(dtype).reshape(shape), axis=0)
        np.testing.assert_allclose(running, wanted, rtol=1e-3 if dtype == "complex64" else 1e-11)


@pytest.mark.gpu
@pytest.mark.unsanitized  # kernels over gigabytes crawl under a sanitizer
@pytest.mark.parametrize("backend", ["cuda"], indirect=True)
@pytest.mark.parametrize(
    ("name", "outer"),
    [
        *((name, outer) for name in ("max", "any") for outer in (1 << 31, (1 << 32) + 1)),
        *(("argmax", outer) for outer in (1 << 31, 3 << 30)),  # whose results fit in 80 GB
    ],
)
def test_more_results_than_a_grid_has_blocks(backend: str, name: str, outer: int) -> None:
    needed = outer * 2 * (3 + (8 if name == "argmax" else 1)) + (2 << 30)
    if cukern.memory_info()["total"] < needed:
        pytest.skip(f"needs {needed >> 30} GiB of the GPU's memory")
    wait_for_memory(needed)
    a = cukern.zeros((outer, 3, 2), "int8")
    a[:, 1, 1] = 1
    a[outer - 1, 2, 0] = 1
    out = cukern.empty((outer, 2), "int64" if name == "argmax" else "int8" if name == "max" else "bool")
    out.fill(7 if name != "any" else 1)
    getattr(cukern, name)(a, axis=1, out=out)
    wanted = 1  # of the second column; of the first zero, but for the last
    assert cukern.asnumpy(out[outer - 1]).tolist() == ([2, 1] if name == "argmax" else [1, 1])
    assert cukern.asnumpy(cukern.min(out[:, 1])) == wanted
    assert cukern.asnumpy(cukern.max(out[:-1, 0])) == 0
    del a, out
    cukern.empty_cache()


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("name", ["sum", "max", "argmin", "any", "mean"])
@pytest.mark.parametrize(("shape", "axis"), [((2, 70_000, 8), 1), ((70_001, 5), 0), ((2, 3, 70_001, 4), 2)])
def test_long_sums_of_few_results_beside_each_other(name: str, shape: tuple[int, ...], axis: int) -> None:
    x = np.random.default_rng(7).integers(-9, 10, shape).astype(np.float32)  # whose sums are exact
    if name == "any":
        x *= np.arange(shape[-1]) % 2
    for part in (x, x[..., ::-1]):
        given = getattr(cukern, name)(part, axis=axis)
        wanted = getattr(np, name)(part.astype(np.float64) if name == "mean" else part, axis=axis)
        np.testing.assert_array_equal(given, wanted.astype(given.dtype))


@pytest.mark.parametrize("backend", [pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True)
@pytest.mark.parametrize("dtype", [np.dtype(t) for t in ("int16", "float32", "float64")], ids=str)
@pytest.mark.parametrize("name", ["sum", "max", "argmax", "any"])
def test_rows_of_narrow_columns(name: str, dtype: np.dtype, rng: np.random.Generator) -> None:
    """Of 65,536 results and more one thread takes up to 64 rows, where few columns lie beside each other."""
    for outer, rows, beside in ((13_110, 24, 5), (13_110, 64, 5), (13_110, 65, 5), (13_000, 24, 5), (2050, 40, 32)):
        base = values(rng, name, (outer * rows * beside + 1,), dtype)
        a, x = (b[1:].reshape(outer, rows, beside) for b in (base, cukern.asarray(base)))
        assert_reduced(cukern.asnumpy(getattr(cukern, name)(x, axis=1)), name, a, axis=1)
