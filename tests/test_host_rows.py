"""The host back-end along whatever dimension it goes: short rows, several rows in a block, columns with steps."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import SMALL, use
from oracles import FUNCTIONS, ORACLES

import cukern

SHAPES = [(700, 3), (3, 700), (600, 17), (2, 2, 513), (5, 4, 40), (1030, 2, 3), (7, 64, 5), (40, 33), (3, 5, 2, 31)]
SHAPES.append((2, 9001))  # several blocks of each element type
LAYOUTS = ["C", "F", "window", "step", "reversed", "row", "column"]
BINARY = ["add", "multiply", "divide", "maximum", "less", "not_equal", "logical_and", "pow", "floor_divide", "hypot"]
BINARY += ["bitwise_xor", "bitwise_left_shift"]
UNARY = ["negative", "square", "sqrt", "exp", "floor", "isnan", "signbit", "logical_not", "sign", "abs"]
TYPES = ["float32", "float64", "float16", "int32", "int64", "uint64", "int8", "bool", "complex64"]


@pytest.fixture(autouse=True)
def host() -> None:
    use("host")


def array_of(rng: np.random.Generator, dtype: str, shape: tuple[int, ...], layout: str) -> np.ndarray:
    """Return small numbers, zeros among them, in a layout."""

    def made(*lengths: int) -> np.ndarray:
        return (rng.integers(0, 9, lengths) / (4 if np.dtype(dtype).kind in "fc" else 1)).astype(dtype)

    *outer, n = shape
    match layout:
        case "F":
            return made(*reversed(shape)).transpose()
        case "window":
            return made(*outer, n + 5)[..., 2 : 2 + n]
        case "step":
            return made(*outer, 2 * n)[..., ::2]
        case "reversed":
            return made(*shape)[..., ::-1]
        case "row":
            return made(n)
        case "column":
            return made(*outer, 1)
    return made(*shape)


def out_like(wanted: np.ndarray, layout: str) -> np.ndarray:
    """Return memory for a result, filled with what no result is."""
    if layout == "F":
        return np.full(wanted.shape[::-1], 77).astype(wanted.dtype).transpose()
    if layout == "step":
        *outer, n = wanted.shape
        return np.full((*outer, 2 * n), 77).astype(wanted.dtype)[..., ::2]
    return np.full(wanted.shape, 77).astype(wanted.dtype)


def test_steps_that_numpys_loops_are_wrong_for(rng: np.random.Generator) -> None:
    """NumPy's negative takes steps of a vector's length for packed where its results are not (2.4.6)."""
    for dtype, step, to in itertools.product(["float32", "float64", "int32", "int64"], [3, 4, 8, 16], [1, 2, 3]):
        a = rng.integers(0, 9, (600, step)).astype(dtype)[:, 1]
        out = np.zeros((600, to), dtype)[:, 0]
        cukern.negative(a, out=out)
        np.testing.assert_array_equal(out, 0 - a)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_products_do_not_depend_on_where_they_lie(dtype: str, rng: np.random.Generator) -> None:
    """A compiler that fuses them in loops of vectors gives the rest of a loop other bits."""
    part = np.dtype(dtype).type(0).real.dtype
    for n in (1, 9, 33, 1000):
        a, b = ((rng.standard_normal(n) + 1j * rng.standard_normal(n)).astype(dtype) for _ in range(2))
        rounded = np.empty(n, dtype)  # each product first, by operations that are not complex
        rounded.real = np.subtract(a.real * b.real, a.imag * b.imag, dtype=part)
        rounded.imag = np.add(a.real * b.imag, a.imag * b.real, dtype=part)
        apart = np.zeros(3 * n, dtype)
        apart[::3] = a
        assert cukern.multiply(a, b).tobytes() == rounded.tobytes()
        assert cukern.multiply(apart[::3], b).tobytes() == rounded.tobytes()
        assert cukern.square(a).tobytes() == cukern.square(apart[::3]).tobytes()
        rows = np.stack([a, b])
        whole = cukern.prod(rows, axis=0)
        assert b"".join(cukern.prod(rows[:, i : i + 1], axis=0).tobytes() for i in range(n)) == whole.tobytes()


def check(name: str, own: Callable[..., Any], theirs: Callable[..., Any], out_layout: str, *operands: Any) -> None:
    """Compare a call with NumPy's, fresh and into memory of a layout."""
    with np.errstate(all="ignore"):
        try:
            wanted = np.asarray(theirs(*operands))
            fresh = own(*operands)
        except TypeError:
            return
    if fresh.dtype != wanted.dtype:
        return  # where the array API standard's result is another one
    out = out_like(wanted, out_layout)
    assert own(*operands, out=out) is out
    for got in (fresh, out):
        if name in FUNCTIONS and got.dtype.kind in "fc":
            real = got.dtype.kind == "f"
            np.testing.assert_array_max_ulp(got if real else got.real, wanted if real else wanted.real, 8)
        elif got.dtype.kind == "c":
            np.testing.assert_allclose(got, wanted, rtol=4 * np.finfo(got.dtype).eps)
        else:
            np.testing.assert_array_equal(got, wanted)
    if out_layout == "step":  # what lies between is as it was
        base = out.base
        assert base is not None
        assert np.all(base[..., 1::2] == np.full(1, 77).astype(out.dtype))


@pytest.mark.parametrize("name", BINARY)
def test_binary_operations(name: str, rng: np.random.Generator) -> None:
    own, theirs = getattr(cukern, name), np.power if name == "pow" else ORACLES[name]
    for shape in SHAPES[: 3 if SMALL else None]:
        for _ in range(12):
            types = [str(rng.choice(TYPES)) for _ in range(2)]
            if rng.random() < 0.4:
                types[1] = types[0]
            a, b = (array_of(rng, dtype, shape, str(rng.choice(LAYOUTS))) for dtype in types)
            if np.broadcast_shapes(a.shape, b.shape) != shape:
                a = array_of(rng, types[0], shape, "window")
            if name == "pow" and (a.dtype.kind in "iu" or b.dtype.kind in "iu"):
                b = np.abs(b)
            check(name, own, theirs, str(rng.choice(["C", "F", "step"])), a, b)
            check(name, own, theirs, str(rng.choice(["C", "F", "step"])), a, 2)


@pytest.mark.parametrize("name", UNARY)
def test_unary_operations(name: str, rng: np.random.Generator) -> None:
    own, theirs = getattr(cukern, name), ORACLES[name]
    for shape, dtype in itertools.product(SHAPES[: 3 if SMALL else None], TYPES):
        layout = str(rng.choice(LAYOUTS[:5]))
        check(name, own, theirs, str(rng.choice(["C", "F", "step"])), array_of(rng, dtype, shape, layout))


@pytest.mark.parametrize("dtype", TYPES)
def test_where(dtype: str, rng: np.random.Generator) -> None:
    for shape in SHAPES[: 3 if SMALL else None]:
        for other in (dtype, "float64"):
            a = array_of(rng, dtype, shape, str(rng.choice(LAYOUTS[:5])))
            b = array_of(rng, other, shape, str(rng.choice(LAYOUTS)))
            for condition in (
                array_of(rng, "bool", shape, str(rng.choice(LAYOUTS))),
                array_of(rng, "float32", shape, str(rng.choice(LAYOUTS))),
            ):
                for c, x, y in ((condition, a, b), (True, a, b), (condition, a, 1)):
                    wanted = np.where(c, x, y)
                    got = cukern.where(c, x, y)
                    assert got.dtype == wanted.dtype
                    np.testing.assert_array_equal(got, wanted)


def test_integers_of_64_bits_are_compared_exactly(rng: np.random.Generator) -> None:
    """No type holds both kinds: their halves are compared."""
    edges = np.array([0, 1, 2**53, 2**53 + 1, 2**63 - 1], np.int64)
    for shape in SHAPES:
        a = rng.choice(np.concatenate([edges, -edges]), shape)
        b = rng.choice(np.concatenate([edges.astype(np.uint64), [np.uint64(2**63), np.uint64(2**64 - 1)]]), shape)
        for x, y in ((a, b), (a[..., ::-1], b), (np.asfortranarray(a), b), (a[..., :1], b)):
            exact = np.array([int(p) < int(q) for p, q in zip(np.broadcast_to(x, shape).flat, y.flat, strict=True)])
            out = np.zeros(shape[::-1], bool).transpose()
            np.testing.assert_array_equal(cukern.less(x, y, out=out), exact.reshape(shape))
            np.testing.assert_array_equal(cukern.less(x, y), exact.reshape(shape))


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "any", "all", "argmax", "argmin", "mean", "var"])
def test_reductions(name: str, rng: np.random.Generator) -> None:
    own, theirs = getattr(cukern, name), getattr(np, name)
    for shape in [*SHAPES, (1, 900), (2, 5000), (9, 6, 7), (4000, 5), (40, 1, 200)][: 4 if SMALL else None]:
        for dtype, layout in itertools.product(TYPES, LAYOUTS[:5]):
            a = array_of(rng, dtype, shape, layout)
            if name == "prod":  # whose result every type holds
                a[a != 0] = 1
                if rng.random() < 0.7:
                    a[...] = 1
            if name in ("any", "all") and rng.random() < 0.7:
                a[...] = name == "all"
            axes: list[Any] = [None, *range(a.ndim)]
            if name not in ("argmax", "argmin") and a.ndim > 2:
                axes.append((0, a.ndim - 1))
            for axis in axes:
                got = np.asarray(own(a, axis=axis))
                if got.dtype.kind in "fc" and name not in ("max", "min"):  # NumPy's are less accurate
                    wide = a.astype(np.clongdouble if a.dtype.kind == "c" else np.longdouble)
                    eps = np.finfo(got.dtype).eps
                    # Of positive numbers a sum in pairs is off by one unit a level; a variance by twice as many.
                    np.testing.assert_allclose(got, theirs(wide, axis=axis).astype(got.dtype), rtol=32 * eps)
                else:
                    np.testing.assert_array_equal(got, theirs(a, axis=axis))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_places_among_rows_that_are_packed(name: str, dtype: str, rng: np.random.Generator) -> None:
    own, theirs = getattr(cukern, name), getattr(np, name)
    shapes = [(3000, 3), (700, 40), (30, 600), (5, 9001)]
    for shape, layout in itertools.product(shapes, ["window", "step", "reversed"]):
        a = array_of(rng, dtype, shape, layout)
        a[a == (8 if name == "argmax" else 0)] = 1
        assert own(a) == theirs(a)
        for place in rng.integers(0, a.size, 3):  # alone, then the first or a later one of several
            a.flat[place] = np.nan if a.dtype.kind == "f" else 0 if name == "argmin" else 8
            assert own(a) == theirs(a)


@pytest.mark.parametrize("name", ["max", "sum", "any", "all", "var"])
def test_short_rows_are_reduced_by_columns(name: str, rng: np.random.Generator) -> None:
    """Beginning within a row, with rests of rows and of blocks, and where two dimensions do not join."""
    own, theirs = getattr(cukern, name), getattr(np, name)
    for shape in ((90_001, 3), (70, 301, 5), (3, 15_000, 2), (5000, 15), (2, 3, 9001, 4)):
        for dtype in ("float32", "int32", "int8", "float64"):
            a = array_of(rng, dtype, shape, "window")
            a[...] = name == "all"
            for place in rng.integers(0, a.size, 3):
                a.flat[place] = 0 if name == "all" else 3
                got = np.asarray(own(a))
                if name == "var":  # in pairs: two units a level
                    np.testing.assert_allclose(got, theirs(a, dtype="f8"), rtol=32 * np.finfo(got.dtype).eps)
                else:
                    assert got == theirs(a)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint64", "int8", "complex64", "complex128"])
def test_rows_are_joined_by_fours(dtype: str, rng: np.random.Generator) -> None:
    """Products in NumPy's order, so that their bits are its; extremes with NaNs wherever they are."""
    for rows in (*range(1, 10), 31, 32, 33, 70):
        for columns in (4, 63, 64, 129):
            a = array_of(rng, dtype, (rows, columns + 3), "C")[:, 1:-2] - np.asarray(3, dtype)
            if a.dtype.kind in "fc":
                a += np.asarray(0.1, dtype)
            with np.errstate(over="ignore", invalid="ignore"):
                want = np.prod(a, axis=0)
            got = cukern.prod(a, axis=0)
            if a.dtype.kind == "c":  # whose parts are each of two products, which NumPy may fuse
                np.testing.assert_allclose(got, want, rtol=rows * 4 * np.finfo(a.dtype).eps)
            else:
                np.testing.assert_array_equal(got, want)
            if a.dtype.kind == "f":
                a[rng.integers(rows), 2] = np.nan
            for name in ("max", "min"):
                np.testing.assert_array_equal(getattr(cukern, name)(a, axis=0), getattr(np, name)(a, axis=0))
            if a.dtype.kind in "fc":
                bound = rows * np.finfo(a.dtype).eps * np.abs(a).sum(axis=0)
                assert np.all(~(np.abs(cukern.sum(a, axis=0) - a.sum(axis=0, dtype="c16")) > bound))


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_sums_of_complex_runs(dtype: str, rng: np.random.Generator) -> None:
    """Packed ones in eight running results of each block, others by NumPy's loop."""
    eps = np.finfo(dtype).eps
    for n in (1, 2, 7, 15, 16, 17, 127, 128, 129, 511, 513, 70_000):
        a = (rng.standard_normal((2, n, 2)) + 1j * rng.standard_normal((2, n, 2))).astype(dtype)
        for x in (a[..., 0], np.ascontiguousarray(a[..., 1]), a[..., 0][:, ::-1]):
            for axis in (None, 1):
                want = x.sum(axis=axis, dtype="c16")
                bound = (8 + 2 * np.log2(2 * n)) * eps * np.abs(x).sum(axis=axis)
                assert np.all(np.abs(cukern.sum(x, axis=axis) - want) <= bound)


@pytest.mark.parametrize("name", ["argmax", "argmin", "any", "all", "max", "min"])
def test_truths_are_found_in_whichever_piece(name: str) -> None:
    wanted = name in ("argmax", "any", "max")
    for count in (4095, 65_536, 300_001):
        a = np.full(count, not wanted)
        assert getattr(cukern, name)(a) == getattr(np, name)(a)
        for place in (count - 1, count // 2, 65_536, 65_535, 4096, 4095, 128, 127, 0):
            if place < count:
                a[place] = wanted
                assert getattr(cukern, name)(a) == getattr(np, name)(a)


def test_one_value_for_all_of_a_row_is_converted_once_and_rightly(rng: np.random.Generator) -> None:
    for n in (2, 100, 511, 512, 513, 2000):
        a = rng.integers(-9, 9, (5, n)).astype(np.int32)
        column = rng.integers(1, 9, (5, 1)).astype(np.int8)
        np.testing.assert_array_equal(cukern.add(a, column), a + column)
        np.testing.assert_array_equal(cukern.multiply(column, a[:, ::-1]), column * a[:, ::-1])
        np.testing.assert_allclose(cukern.pow(a.astype(np.float32), column), a.astype(np.float32) ** column, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_lines_side_by_side_are_those_by_themselves(dtype: str, rng: np.random.Generator) -> None:
    """To the bit: with numbers of very different size, zeros of both signs, infinities and NaNs."""
    for shape in ((40, 3), (9, 70), (5, 600), (3, 7, 513)):
        a = (rng.standard_normal(shape) * 10.0 ** rng.integers(-9, 9, shape)).astype(dtype)
        if a.dtype.kind == "c":
            a += 1j * a[::-1]
        a[:, 0] = -0.0
        a[2, 1:3] = np.inf
        a[-1, 2:] = -np.inf
        for axis in range(len(shape) - 1):
            with np.errstate(invalid="ignore"):
                beside = cukern.asnumpy(cukern.cumulative_sum(cukern.asarray(a), axis=axis))
                alone = np.ascontiguousarray(np.moveaxis(a, axis, -1))
                alone = cukern.asnumpy(cukern.cumulative_sum(cukern.asarray(alone), axis=-1))
            same = beside == np.moveaxis(alone, -1, axis)
            nan = np.isnan(beside)
            np.testing.assert_array_equal(nan, np.isnan(np.moveaxis(alone, -1, axis)))
            assert np.all(same | nan)
            if axis == 0:  # sums of -0.0 alone
                assert np.all(np.signbit(beside[:, 0].real))


@pytest.mark.parametrize("shape", [(317, 40_000), (100_000, 140), (4, 5, 700_000)])
def test_rows_that_end_early_beside_others(shape: tuple[int, ...], rng: np.random.Generator) -> None:
    """How many threads share such rows is chosen by what some of them hold."""
    x = np.zeros(shape, bool)
    x[..., 0] = True
    for is_late in (rng.random(shape[:-1]) < 0.1, np.ones(shape[:-1], bool)):
        x[is_late, 0] = False
        x[is_late, -1] = rng.random(np.count_nonzero(is_late)) < 0.5
        for name in ("any", "argmax", "max"):
            assert np.array_equal(getattr(cukern, name)(x, axis=-1), getattr(np, name)(x, axis=-1)), name
        inverse = ~x
        for name in ("all", "argmin", "min"):
            assert np.array_equal(getattr(cukern, name)(inverse, axis=-1), getattr(np, name)(inverse, axis=-1)), name
