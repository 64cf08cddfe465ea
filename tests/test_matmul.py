"""Matrix products: values, NumPy's rules, transposed and strided operands, errors."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from arrays import assert_same, layouts, random_array
from conftest import SMALL, STAGED
from oracles import PRODUCT_TYPES, product_bound, wider

import cukern
from cukern import _cukern

FLOATS = [dtype for dtype in PRODUCT_TYPES if dtype.kind == "f"]
FUNCTIONS = ["matmul", "matmul_tiled", "matmul_cublas"]
pytestmark = pytest.mark.usefixtures("backend")


def check(actual: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """Compare with the product in a wider type; integers exactly."""
    dtype = np.result_type(a, b)
    assert isinstance(actual, np.ndarray)
    assert actual.dtype == dtype
    wide = wider(dtype)
    wanted = np.asarray(a.astype(wide) @ b.astype(wide))
    assert actual.shape == wanted.shape
    if dtype.kind == "i":
        np.testing.assert_array_equal(actual, wanted)
    else:
        assert (abs(actual.astype(wide) - wanted) <= product_bound(a, b, dtype)).all()


def operand(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if dtype.kind == "i":
        return rng.integers(-1000, 1000, shape).astype(dtype)
    return random_array(rng, shape, dtype)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    "sizes",
    [
        (1, 1, 1),
        (2, 3, 4),
        (16, 16, 16),
        (17, 33, 65),
        (128, 128, 128),
        (129, 130, 131),
        (5, 300, 2),
        (200, 1, 130),
        (1, 257, 140),
        (140, 257, 1),
        (3, 16, 600),
    ],
    ids=str,
)
def test_sizes(function: str, dtype: np.dtype, sizes: tuple[int, int, int], rng: np.random.Generator) -> None:
    m, k, n = sizes
    a, b = operand(rng, (m, k), dtype), operand(rng, (k, n), dtype)
    check(getattr(cukern, function)(a, b), a, b)


@pytest.mark.parametrize("function", ["matmul", "matmul_tiled"])
@pytest.mark.parametrize("dtype", [dtype for dtype in PRODUCT_TYPES if dtype.kind == "i"], ids=str)
def test_integers_are_exact_and_wrap(function: str, dtype: np.dtype, rng: np.random.Generator) -> None:
    for m, k, n in [(3, 4, 5), (130, 140, 129)]:
        a, b = random_array(rng, (m, k), dtype), random_array(rng, (k, n), dtype)
        with np.errstate(all="ignore"):
            assert_same(getattr(cukern, function)(a, b), a @ b)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_layouts(function: str, dtype: np.dtype, rng: np.random.Generator) -> None:
    for (x, a), (y, b) in zip(
        [item for item in layouts(rng, (34, 21), dtype).items() for _ in range(10)],
        list(layouts(rng, (21, 37), dtype).items()) * 10,
        strict=True,
    ):
        try:
            check(getattr(cukern, function)(a, b), a, b)
        except AssertionError as error:
            raise AssertionError(f"{x} with {y}") from error


@pytest.mark.parametrize("function", FUNCTIONS)
def test_vectors(function: str, rng: np.random.Generator) -> None:
    f = getattr(cukern, function)
    for dtype in FLOATS:
        matrix, left, right = (operand(rng, shape, dtype) for shape in ((12, 9), (12,), (9,)))
        for a, b in [
            (left, matrix),
            (matrix, right),
            (left, left),
            (right[::-1], right),
            (left[::2], matrix[::2]),
        ]:
            check(f(a, b), a, b)
        assert f(left, left).shape == ()


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("shapes", [((0, 3), (3, 4)), ((3, 0), (0, 4)), ((3, 4), (4, 0)), ((0,), (0,)), ((0, 0), (0,))])
def test_zero_sizes(function: str, shapes, rng: np.random.Generator) -> None:
    for dtype in FLOATS:
        a, b = (operand(rng, shape, dtype) for shape in shapes)
        check(getattr(cukern, function)(a, b), a, b)
        out = np.full((a @ b).shape, 9, dtype)
        getattr(cukern, function)(a, b, out=out)
        assert_same(out, np.asarray(a @ b))


@pytest.mark.parametrize("function", ["matmul", "matmul_tiled"])
def test_mixed_element_types(function: str, rng: np.random.Generator) -> None:
    for x in PRODUCT_TYPES:
        for y in PRODUCT_TYPES:
            a, b = operand(rng, (20, 30), x), operand(rng, (30, 10), y)
            check(getattr(cukern, function)(a, b), a, b)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_out(function: str, rng: np.random.Generator) -> None:
    f = getattr(cukern, function)
    a, b = operand(rng, (30, 20), np.dtype(np.float32)), operand(rng, (20, 25), np.dtype(np.float32))
    for kind, out in layouts(rng, (30, 25), np.dtype(np.float32)).items():
        if kind in ("broadcast", "one element"):
            continue
        assert f(a, b, out=out) is out
        check(np.array(out), a, b)
    wide = np.zeros((30, 25), np.float64)
    f(a, b, out=wide)
    check(wide.astype(np.float32), a, b)
    scalar = np.zeros((), np.float32)
    f(a[0], a[1], out=scalar)
    check(scalar, a[0], a[1])


@pytest.mark.parametrize("function", FUNCTIONS)
def test_float32_is_computed_in_full_precision(function: str, rng: np.random.Generator) -> None:
    # Values of 24 significant bits: TF32 keeps 11, and would be off by some 2**-11 of each product.
    n = 256
    a = (1 + rng.random((n, n))).astype(np.float32)
    b = np.eye(n, dtype=np.float32)
    assert_same(getattr(cukern, function)(a, b), a)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_special_values(function: str, dtype: np.dtype) -> None:
    a = np.array([[1, np.inf, 0], [np.nan, 1, 2], [-np.inf, 1, 1], [1, 2, 3]], dtype)
    b = np.array([[1, 0], [1, 1], [np.inf, 1]], dtype)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(getattr(cukern, function)(a, b), a @ b)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_no_warnings_and_numpys_settings_stay(function: str) -> None:
    # Where NumPy computes it, its settings must not decide, and stay what they are: in any thread at once.
    large = np.full((3, 3), 3e38, np.float32)

    def product(_: int) -> bool:
        with np.errstate(all="raise"):
            before = np.geterr()
            infinite = np.isinf(getattr(cukern, function)(large, large)).all()
            return bool(infinite) and np.geterr() == before

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(product, range(50)))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_large_transposed(function: str, rng: np.random.Generator) -> None:
    n = 96 if SMALL else 700
    a, b = operand(rng, (n + 3, n), np.dtype(np.float32)), operand(rng, (n + 5, n), np.dtype(np.float32))
    check(getattr(cukern, function)(a, b.T), a, b.T)
    check(getattr(cukern, function)(a.T, a), a.T, a)
    part, reversed_columns = a.T[:, 1:], b[3:, ::-1]  # a leading dimension, and a view that needs packing
    check(getattr(cukern, function)(part, reversed_columns), part, reversed_columns)


@pytest.mark.parametrize("backend", STAGED, indirect=True)
def test_transposed_operands_are_not_packed(rng: np.random.Generator) -> None:
    a, b = operand(rng, (40, 30), np.dtype(np.float32)), operand(rng, (30, 50), np.dtype(np.float32))

    def launches(x: np.ndarray, y: np.ndarray, **options) -> int:
        before = _cukern._fault_calls("launch")
        check(cukern.matmul_tiled(x, y, **options).astype(np.float32), x, y)
        return _cukern._fault_calls("launch") - before

    assert launches(a, b) == 1
    assert launches(b.T, a.T) == 1
    assert launches(a, np.asfortranarray(b)) == 1
    assert launches(a[0], b[:, 0]) == 1
    assert launches(a, b, out=np.empty((50, 40), np.float32).T) == 1
    assert launches(a[::-1], b) == 2
    assert launches(a[:, ::-1], b[:, ::-1], out=np.empty((40, 50), np.float64)) == 4


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ((3, 4), (5, 6), r"inner dimensions must match: a is \(3, 4\), b is \(5, 6\)"),
        ((3,), (4,), r"inner dimensions must match: a is \(3,\), b is \(4,\)"),
        ((2, 3, 4), (4, 5), "a has 3 dimensions; 1 and 2 are supported"),
        ((3, 4), (), "b has 0 dimensions; 1 and 2 are supported"),
    ],
)
def test_shapes_that_do_not_fit(function: str, a, b, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{function}: {message}"):
        getattr(cukern, function)(np.ones(a), np.ones(b))


def test_cublas_refuses_integers() -> None:
    with pytest.raises(TypeError, match="matmul_cublas: element type int32 is not supported; supported are float32"):
        cukern.matmul_cublas(np.ones((2, 2), np.int32), np.ones((2, 2), np.int32))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_out_may_not_overlap(function: str) -> None:
    a = np.ones((4, 4))
    for out in (a, a[::-1], a.T):
        with pytest.raises(ValueError, match=f"{function}: out overlaps a; it must share no memory with it"):
            getattr(cukern, function)(a, np.eye(4), out=out)
    with pytest.raises(ValueError, match=f"{function}: out overlaps b"):
        getattr(cukern, function)(np.eye(4), a, out=a)
    np.testing.assert_array_equal(a, np.ones((4, 4)))
