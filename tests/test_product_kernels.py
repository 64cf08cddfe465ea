"""The kernels of products: every form, alignment and remainder, tiles that blocks share, what lies around a result.

Values are small integers, so that every sum is exact in every element type, in whatever order it is made.
"""

from __future__ import annotations

import numpy as np
import pytest
from conftest import SMALL, on_processor
from oracles import product_bound

import cukern

TYPES = ["float32", "float64", "int32", "int64", "complex64", "complex128"]
# The shapes (m, n, k) that benchmarks/products.py times, cut so that what they leave of a tile stays.
TIMED = [
    *((n, n, n) for n in (1024, 1536, 2048, 3072, 4096, 6144, 8192, 1000, 1023, 2049, 3000, 4095)),
    *((128, 8192, 8192), (8192, 128, 8192), (8192, 8192, 128), (64, 4096, 4096), (16384, 256, 1024)),
    *((256, 16384, 1024), (512, 512, 65536), (5000, 3000, 777)),
]
CUT = sorted({tuple(side if side <= 256 else side % 128 + 128 for side in shape) for shape in TIMED})
ODD = [
    (1, 1, 1),
    (1, 300, 17),
    (257, 1, 40),
    (33, 31, 129),
    (5, 7, 3000),
    (130, 262, 15),
    (260, 300, 1),
    (129, 513, 33),
]
FORMS = ["NN", "NT", "TN", "TT"]
pytestmark = pytest.mark.usefixtures("backend")


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return integers from -3 to 3; complex ones have both parts."""
    found = rng.integers(-3, 4, shape).astype(dtype)
    return found + 1j * rng.integers(-3, 4, shape).astype(dtype) if np.dtype(dtype).kind == "c" else found


def wanted_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    wide = np.complex128 if a.dtype.kind == "c" else np.float64  # of integers, too: by BLAS, and exact
    return (a.astype(wide) @ b.astype(wide)).astype(a.dtype)


def as_form(x: np.ndarray, letter: str) -> np.ndarray:
    """Return the same matrix, in rows or in columns."""
    return np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2) if letter == "T" else x


def inside(rng: np.random.Generator, x: np.ndarray, before: int, after: int) -> np.ndarray:
    """Return a copy of a matrix that lies within a larger one."""
    rows, columns = x.shape[-2:]
    shape = (*x.shape[:-2], rows + 2, columns + before + after)
    larger = values(rng, shape, str(x.dtype))
    view = larger[..., 1:-1, before : before + columns]
    view[...] = x
    return view


def placed_inside(rng: np.random.Generator, x: np.ndarray, letter: str) -> cukern.Array:
    """Return an Array of a matrix that lies within a larger one, in rows or in columns."""
    if letter == "N":
        return cukern.asarray(inside(rng, x, 2, 1))
    return cukern.asarray(inside(rng, x.swapaxes(-1, -2), 2, 1)).mT


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", TYPES)
def test_shapes(dtype: str, form: str, rng: np.random.Generator) -> None:
    for m, n, k in [*CUT, *ODD][:: 5 if (SMALL or on_processor()) and dtype != "float32" else 1]:
        a, b = values(rng, (m, k), dtype), values(rng, (k, n), dtype)
        out = np.full((m, n), 77, dtype)
        assert cukern.matmul_tiled(as_form(a, form[0]), as_form(b, form[1]), out=out) is out
        np.testing.assert_array_equal(out, wanted_product(a, b), err_msg=f"{m} x {n} x {k}")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_small_matrices_amid_nan(dtype: str, form: str, rng: np.random.Generator) -> None:
    sides = [1, 7, 8, 15, 16, 17, 31, 40, 65, 100, 128, 190, 255]
    for _ in range(40 if SMALL or on_processor() else 120):
        m, n, k = (int(side) for side in rng.choice(sides, 3))
        count = int(rng.integers(1, 4))
        a, b = values(rng, (count, m, k), dtype), values(rng, (count, k, n), dtype)
        placed = []
        for x, letter in ((a, form[0]), (b, form[1]), (np.zeros((count, m, n), dtype), "NT"[rng.integers(0, 2)])):
            rows, columns = x.shape[1:] if letter == "N" else x.shape[:0:-1]
            larger = cukern.full((count, rows + 2, columns + 3), np.nan, dtype)
            view = larger[:, 1:-1, 2:-1]
            view = view if letter == "N" else view.mT
            view[...] = x
            placed.append((view, larger))
        (x, _), (y, _), (out, around) = placed
        cukern.matmul_tiled(x, y, out=out)
        np.testing.assert_array_equal(cukern.asnumpy(out), wanted_product(a, b), err_msg=f"{count} of {m} x {n} x {k}")
        out[...] = np.nan
        assert cukern.all(cukern.isnan(around)), "what lies around the result stays as it was"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", TYPES)
def test_vectors_amid_nan(dtype: str, form: str, rng: np.random.Generator) -> None:
    """Rows and columns of all lengths, whose threads lie in other ways, steps apart, in batches."""
    lengths = [1, 2, 3, 5, 31, 33, 130, 700, 2050, 5003]
    for _ in range(4 if on_processor() else 8 if SMALL else 60):
        long, k = (int(side) for side in rng.choice(lengths, 2))
        long = long if long * k < 2e6 else 100
        m, n = ((1, long), (long, 1))[rng.integers(0, 2)]
        count = int(rng.integers(1, 4))
        a, b = values(rng, (count, m, k), dtype), values(rng, (count, k, n), dtype)
        x, y = (placed_inside(rng, z, letter) for z, letter in zip((a, b), form, strict=True))
        larger = cukern.full((count, m + 2, 2 * n + 3), 55, dtype)
        out = larger[:, 1:-1, 2 : 2 + 2 * n : 2]
        cukern.matmul_tiled(x, y, out=out)
        np.testing.assert_array_equal(cukern.asnumpy(out), wanted_product(a, b), err_msg=f"{count} of {m} x {n} x {k}")
        packed = cukern.matmul_tiled(cukern.asarray(as_form(a, form[0])), cukern.asarray(as_form(b, form[1])))
        np.testing.assert_array_equal(cukern.asnumpy(packed), wanted_product(a, b), err_msg=f"{m} x {n} x {k}, packed")
        out[...] = 55
        assert cukern.all(larger == 55), "what lies around the result stays as it was"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_short_sums_amid_nan(dtype: str, form: str, rng: np.random.Generator) -> None:
    sides = [70, 129, 400, 701, 1203]
    for _ in range(4 if SMALL or on_processor() else 25):
        (m, n), k = (int(side) for side in rng.choice(sides, 2)), int(rng.choice([1, 2, 7, 15, 16, 17, 33, 50]))
        count = int(rng.integers(1, 3))
        a, b = values(rng, (count, m, k), dtype), values(rng, (count, k, n), dtype)
        larger = cukern.full((count, m + 2, n + 3) if form != "TN" else (count, n + 2, m + 3), np.nan, dtype)
        out = larger[:, 1:-1, 2:-1] if form != "TN" else larger[:, 1:-1, 2:-1].mT
        cukern.matmul_tiled(placed_inside(rng, a, form[0]), cukern.asarray(as_form(b, form[1])), out=out)
        np.testing.assert_array_equal(cukern.asnumpy(out), wanted_product(a, b), err_msg=f"{count} of {m} x {n} x {k}")
        out[...] = np.nan
        assert cukern.all(cukern.isnan(larger)), "what lies around the result stays as it was"


@pytest.mark.parametrize("dtype", TYPES)
def test_sums_that_blocks_share(dtype: str, rng: np.random.Generator) -> None:
    for m, n, k in [(64, 64, 4000), (300, 500, 2100), (3, 2, 9001), (129, 257, 1531)][
        :: 4 if on_processor() else 3 if SMALL else 1
    ]:
        a, b = values(rng, (m, k), dtype), values(rng, (k, n), dtype)
        np.testing.assert_array_equal(cukern.matmul_tiled(a, b), wanted_product(a, b), err_msg=f"{m} x {n} x {k}")
        got = cukern.matmul_tiled(as_form(a, "T"), as_form(b, "T"))
        np.testing.assert_array_equal(got, wanted_product(a, b), err_msg=f"{m} x {n} x {k}, transposed")


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("before", [0, 1, 2, 4])
def test_matrices_within_larger_ones(dtype: str, before: int, rng: np.random.Generator) -> None:
    for m, n, k in [(40, 36, 20), (200, 264, 136), (131, 129, 70)]:
        a, b = values(rng, (m, k), dtype), values(rng, (k, n), dtype)
        larger = np.full((m + 2, n + before + 4), 55, dtype)
        out = larger[1:-1, before : before + n]
        cukern.matmul_tiled(inside(rng, a, before, 4), inside(rng, b, before, 4), out=out)
        np.testing.assert_array_equal(out, wanted_product(a, b), err_msg=f"{m} x {n} x {k}")
        out[...] = 55
        assert (larger == 55).all(), "what lies around the result stays as it was"


@pytest.mark.parametrize("dtype", TYPES)
def test_results_in_columns(dtype: str, rng: np.random.Generator) -> None:
    for m, n, k in [(40, 70, 9), (300, 130, 65), (600, 40, 500)]:
        a, b = values(rng, (m, k), dtype), values(rng, (k, n), dtype)
        out = np.full((n, m), 55, dtype).T
        cukern.matmul_tiled(a, b, out=out)
        np.testing.assert_array_equal(out, wanted_product(a, b), err_msg=f"{m} x {n} x {k}")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", TYPES)
def test_batches(dtype: str, form: str, rng: np.random.Generator) -> None:
    for count, m, n, k in [(7, 20, 30, 40), (300, 5, 4, 3), (3, 130, 260, 50), (2, 70, 33, 1500)][
        : 2 if on_processor() else 4
    ]:
        a, b = values(rng, (count, m, k), dtype), values(rng, (count, k, n), dtype)
        got = cukern.matmul_tiled(as_form(a, form[0]), as_form(b, form[1]))
        np.testing.assert_array_equal(got, wanted_product(a, b), err_msg=f"{count} of {m} x {n} x {k}")
        got = cukern.matmul_tiled(as_form(a, form[0]), as_form(b[0], form[1]))
        np.testing.assert_array_equal(got, wanted_product(a, b[:1]), err_msg=f"{count} of {m} x {n} x {k}, one b")


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_the_choice_gives_the_same_numbers(dtype: str, rng: np.random.Generator) -> None:
    """Whichever way `auto` takes."""
    for m, n, k in [(8, 8, 8), (64, 64, 64), (200, 30, 90), (256, 256, 256), (300, 300, 300), (1, 700, 300)]:
        a, b = values(rng, (m, k), dtype), values(rng, (k, n), dtype)
        np.testing.assert_array_equal(cukern.matmul(a, b), wanted_product(a, b))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_same_bits_each_time(dtype: str, rng: np.random.Generator) -> None:
    k = 1000 if SMALL or on_processor() else 3000
    a, b = (rng.standard_normal(shape).astype(dtype) for shape in ((300, k), (k, 300)))
    first = cukern.matmul_tiled(a, b)
    for _ in range(3):
        np.testing.assert_array_equal(cukern.matmul_tiled(a, b), first)


def test_nothing_outside_of_a_sum_counts() -> None:
    """Zeros stand for what lies outside of the matrices, and infinities are not multiplied by them."""
    for m, n, k in [(3, 4, 5), (130, 260, 17)]:
        a, b = np.full((m, k), np.inf, np.float32), np.ones((k, n), np.float32)
        assert np.isposinf(cukern.matmul_tiled(a, b)).all()
        assert np.isposinf(cukern.matmul_tiled(b.T, a.T)).all()


@pytest.mark.pooled
@pytest.mark.parametrize("backend", [pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True)
def test_tiles_are_not_shared_where_memory_is_short(backend: str, rng: np.random.Generator) -> None:
    """Cut, the sums of these shapes take some 120 MB of scratch memory; tiles that aren't shared take none."""
    a, b = rng.random((3000, 2048), np.float32), rng.random((2048, 2000), np.float32)
    x, y, out = cukern.asarray(a), cukern.asarray(b), cukern.empty((3000, 2000), dtype="float32")
    exact = a.astype(np.float64) @ b.astype(np.float64)
    for room in (None, 40 << 20, 1 << 12):
        cukern.empty_cache()
        cukern.set_memory_limit(None if room is None else cukern.memory_info()["in_use"] + room)
        try:
            cukern.matmul_tiled(x, y, out=out)
        finally:
            cukern.set_memory_limit(None)
        assert (abs(cukern.asnumpy(out) - exact) <= product_bound(a, b, np.dtype("float32"))).all()
