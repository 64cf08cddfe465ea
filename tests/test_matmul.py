"""Matrix products: values, NumPy's rules, transposed and strided operands, errors."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from arrays import assert_same, layouts, random_array
from conftest import SMALL, STAGED
from oracles import ELEMENT_TYPES, PRODUCT_TYPES, product_bound, wider

import cukern
from cukern import _cukern

FLOATS = [dtype for dtype in PRODUCT_TYPES if dtype.kind == "f"]
FUNCTIONS = ["matmul", "matmul_tiled", "matmul_cublas"]
pytestmark = pytest.mark.usefixtures("backend")


def check(actual: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """Compare with the product in a wider type; integers and bool exactly."""
    dtype = np.result_type(a, b)
    assert isinstance(actual, np.ndarray)
    assert actual.dtype == dtype
    wide = wider(dtype)
    wanted = np.asarray(a.astype(wide) @ b.astype(wide))
    assert actual.shape == wanted.shape
    if dtype.kind in "biu":
        np.testing.assert_array_equal(actual, wanted)
    else:
        assert (abs(actual.astype(wide) - wanted) <= product_bound(a.astype(dtype), b.astype(dtype), dtype)).all()


def operand(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if dtype.kind == "i" and dtype.itemsize >= 4:
        return rng.integers(-1000, 1000, shape).astype(dtype)
    if dtype == np.float16:
        return rng.standard_normal(shape).astype(dtype)
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
        ((2, 3, 4), (3, 5), r"inner dimensions must match: a is \(2, 3, 4\), b is \(3, 5\)"),
        ((2, 3, 4), (3, 4, 5), r"dimensions before the last two do not broadcast: a is \(2, 3, 4\), b is \(3, 4, 5\)"),
        ((3, 4), (), "b has no dimensions; it needs one at least"),
        ((), (3,), "a has no dimensions; it needs one at least"),
    ],
)
def test_shapes_that_do_not_fit(function: str, a, b, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{function}: {message}"):
        getattr(cukern, function)(np.ones(a), np.ones(b))


def test_cublas_refuses_integers() -> None:
    with pytest.raises(TypeError, match="int32 is not supported by cuBLAS; supported are floats"):
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


# --- all element types, and batches ---

BATCHES = [
    ((2, 3, 4), (2, 4, 5)),
    ((2, 3, 4), (4, 5)),  # one matrix with more rows
    ((3, 4), (2, 4, 5)),
    ((6, 1, 3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (1, 5, 4, 2)),
    ((4,), (2, 4, 5)),
    ((2, 3, 4), (4,)),
    ((2, 1, 3, 4), (4,)),
    ((7, 1, 4), (7, 4, 1)),
    ((2, 3, 2, 33, 17), (3, 1, 17, 35)),
    ((0, 3, 4), (4, 5)),
    ((2, 3, 0), (0, 5)),
    ((2, 0, 4), (2, 4, 5)),
]


@pytest.mark.parametrize("function", ["matmul", "matmul_tiled"])
@pytest.mark.parametrize("dtype", ELEMENT_TYPES, ids=str)
def test_every_element_type(function: str, dtype: np.dtype, rng: np.random.Generator) -> None:
    f = getattr(cukern, function)
    for shapes in [((3, 4), (4, 5)), ((33, 40), (40, 37)), *BATCHES]:
        a, b = (operand(rng, shape, dtype) for shape in shapes)
        with np.errstate(all="ignore"):
            check(f(a, b), a, b)
            out = np.empty(f(a, b).shape, dtype)
            assert f(a, b, out=out) is out
            check(out, a, b)


@pytest.mark.parametrize("dtype", [dtype for dtype in ELEMENT_TYPES if dtype.kind in "fc"], ids=str)
def test_batches_by_cublas(dtype: np.dtype, rng: np.random.Generator) -> None:
    for shapes in BATCHES:
        a, b = (operand(rng, shape, dtype) for shape in shapes)
        check(cukern.matmul_cublas(a, b), a, b)


def views_of(x: np.ndarray) -> list[np.ndarray]:
    """Return the same values in other layouts."""
    wide = np.repeat(np.repeat(x, 2, axis=-1), 2, axis=0)
    turned = np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)
    back = np.ascontiguousarray(x[..., ::-1, :])[..., ::-1, :]
    fortran = np.asfortranarray(x)
    padded = np.zeros((*x.shape[:-1], x.shape[-1] + 3), x.dtype)
    padded[..., 1:-2] = x
    return [x, wide[::2, ..., ::2], turned, back, fortran, padded[..., 1:-2]]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "complex64", "float16"])
def test_layouts_of_batches(function: str, dtype: str, rng: np.random.Generator) -> None:
    f = getattr(cukern, function)
    a, b = operand(rng, (3, 2, 9, 8), np.dtype(dtype)), operand(rng, (2, 8, 7), np.dtype(dtype))
    for x in [*views_of(a), np.broadcast_to(a[:1], a.shape), a.transpose(1, 0, 2, 3).copy().transpose(1, 0, 2, 3)]:
        for y in [*views_of(b), np.broadcast_to(b[0], b.shape)]:
            check(f(x, y), x, y)
    for x, y in ((a[::-1], b), (a[:, ::-1], b[::-1]), (a[::-1, ::-1], b[0])):
        check(f(x, y), x, y)
        out = np.zeros((3, 2, 9, 7), dtype)[::-1]
        assert f(x, y, out=out) is out
        check(np.array(out), x, y)
    for out in views_of(np.zeros((3, 2, 9, 7), dtype)):
        assert f(a, b, out=out) is out
        check(np.array(out), a, b)


@pytest.mark.parametrize("function", ["matmul", "matmul_tiled"])
def test_mixed_types_of_batches(function: str, rng: np.random.Generator) -> None:
    for x in ELEMENT_TYPES:
        y = ELEMENT_TYPES[int(rng.integers(len(ELEMENT_TYPES)))]
        a, b = operand(rng, (2, 5, 6), x), operand(rng, (6, 4), y)
        check(getattr(cukern, function)(a, b), a, b)


@pytest.mark.parametrize("function", ["matmul", "matmul_tiled"])
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "float16"])
def test_out_takes_the_promoted_type(function: str, dtype: str) -> None:
    a = np.full((2, 5), 1 if dtype == "bool" else 100, dtype)
    wanted = cukern.matmul(a, a.T)
    assert wanted.dtype == dtype
    for wider_type in ("int32", "float32", "float64") if dtype != "float16" else ("float32", "float64"):
        out = np.empty((2, 2), wider_type)
        assert getattr(cukern, function)(a, a.T, out=out) is out
        np.testing.assert_array_equal(out, wanted.astype(wider_type))
    array = cukern.empty((2, 2), "float64")
    assert getattr(cukern, function)(cukern.asarray(a), cukern.asarray(a).T, out=array) is array
    np.testing.assert_array_equal(cukern.asnumpy(array), wanted.astype("float64"))


def test_bool_counts_nothing() -> None:
    a = np.ones((2, 300), bool)
    assert cukern.matmul(a, a.T).all()  # 300 is 44 in eight bits, and 256 would be none
    assert cukern.matmul(np.ones((2, 256), bool), np.ones((256, 2), bool)).all()


def test_float16_is_summed_in_float32() -> None:
    a = np.ones((2, 4096), np.float16)  # from 2048 on a float16 does not count further
    assert (cukern.matmul(a, a.T) == 4096).all()
    batch = cukern.matmul(np.stack([a, a]), a.T)
    assert (batch == 4096).all()


@pytest.mark.parametrize("backend", STAGED, indirect=True)
def test_batches_are_few_launches(rng: np.random.Generator) -> None:
    def launches(x: np.ndarray, y: np.ndarray, **options) -> int:
        before = _cukern._fault_calls("launch")
        check(cukern.matmul_tiled(x, y, **options), x, y)
        return _cukern._fault_calls("launch") - before

    a, b = operand(rng, (6, 5, 4), np.dtype(np.float32)), operand(rng, (6, 4, 3), np.dtype(np.float32))
    assert launches(a, b) == 1
    assert launches(a, b[0]) == 1
    assert launches(a[0], b) == 1
    assert launches(a.swapaxes(1, 2).copy().swapaxes(1, 2), b) == 1
    assert launches(a.reshape(2, 3, 5, 4), b.reshape(2, 3, 4, 3)) == 1
    assert launches(a.reshape(2, 3, 5, 4), b[:3]) == 2  # one for each repetition
    assert launches(a[..., ::-1], b) == 2
    many = operand(rng, (50, 1, 5, 4), np.dtype(np.float32))
    assert launches(many, b[:2]) == 2  # the longest dimension is that of a launch


@pytest.mark.parametrize("backend", STAGED, indirect=True)
def test_batches_beyond_the_memory_limit(rng: np.random.Generator) -> None:
    cukern.empty_cache()
    cukern.set_memory_limit(cukern.memory_info()["in_use"] + (1 << 20))  # an eighth of operands of float32
    try:
        for dtype in ("float32", "float16", "int8", "bool", "complex64"):
            a, b = (operand(rng, (40, 64, 64), np.dtype(dtype)) for _ in range(2))
            for f in (cukern.matmul, cukern.matmul_tiled):
                with cukern.placement("device"), np.errstate(all="ignore"):
                    check(f(a, b), a, b)
                    check(f(a.reshape(2, 20, 64, 64), b[0]), a.reshape(2, 20, 64, 64), b[0])
                    check(f(a.reshape(320, 512), b.reshape(512, 320)), a.reshape(320, 512), b.reshape(512, 320))
    finally:
        cukern.set_memory_limit(None)
