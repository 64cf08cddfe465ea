"""Elementwise operations: values, layouts, broadcasting, element types, scalars."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from arrays import assert_same, layouts, random_array, special_values
from cases import each
from conftest import SMALL, STAGED
from oracles import ELEMENT_TYPES, assert_result, check, expected, refusal

import cukern
from cukern import _cukern

BINARY = [row["name"] for row in _cukern._table if row["kind"] == "binary"]
SCALAR = [row["name"] for row in _cukern._table if row["kind"] == "scalar"]
# Of each way in which results are typed and stored, for what does not depend on the formula.
SOME = ["add", "divide", "less", "logical_xor", "hypot"]
pytestmark = pytest.mark.usefixtures("backend")


def call(name: str, a, b, **options) -> np.ndarray:
    return getattr(cukern, name)(a, b, **options)


@pytest.mark.parametrize("name", BINARY)
@each("dtype", ELEMENT_TYPES)
def test_contiguous(name: str, dtype: np.dtype, rng: np.random.Generator) -> None:
    for n in (1, 2, 3, 5, 255, 256, 257, 1023, 100_003 if name in SOME else 5003):
        check(name, random_array(rng, (n,), dtype), random_array(rng, (n,), dtype))


@pytest.mark.parametrize("name", BINARY)
@each("dtype", ELEMENT_TYPES)
def test_element_types_and_special_values(name: str, dtype: np.dtype) -> None:
    for other in ELEMENT_TYPES:
        try:
            check(name, *np.meshgrid(special_values(dtype), special_values(other)))
        except AssertionError as error:
            raise AssertionError(f"{dtype} with {other}: {error}") from error


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("shape", [(7,), (5, 6), (3, 4, 5)], ids=str)
def test_layouts(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> None:
    for dtype in ELEMENT_TYPES:
        arrays = layouts(rng, shape, dtype)
        for (x, a), (y, b) in itertools.product(arrays.items(), repeat=2):
            try:
                check(name, a, b)
            except AssertionError as error:
                raise AssertionError(f"{dtype}: {x} with {y}") from error


@pytest.mark.parametrize("shape", [(7,), (5, 6), (3, 4, 5)], ids=str)
def test_layouts_of_out(shape: tuple[int, ...], rng: np.random.Generator) -> None:
    for dtype in ELEMENT_TYPES:
        a = random_array(rng, shape, dtype)
        for kind, out in layouts(rng, shape, dtype).items():
            if kind in ("broadcast", "one element"):
                continue
            result = cukern.add(a, a, out=out)
            assert result is out, kind
            assert_same(np.array(out), expected("add", a, a))


@pytest.mark.parametrize(
    "shapes",
    [
        ((3, 4), (4,)),
        ((3, 4), (3, 1)),
        ((3, 1), (1, 4)),
        ((2, 3, 4), (3, 1)),
        ((1,), (5, 1, 6)),
        ((), (3, 4)),
        ((3, 4), ()),
        ((), ()),
        ((1, 1), (1,)),
        ((2, 1, 3, 1), (4, 1, 5)),
        ((0,), (1,)),
        ((0, 3), (3,)),
        ((3, 0), (1, 1)),
        ((0,), ()),
        ((2, 0, 4), (2, 1, 1)),
    ],
    ids=str,
)
def test_broadcasting_and_zero_sizes(shapes, rng: np.random.Generator) -> None:
    for name in BINARY:
        dtype = np.int32 if refusal(name, np.float32(1), np.float32(1)) else np.float32
        a, b = (random_array(rng, shape, np.dtype(dtype)) for shape in shapes)
        result = call(name, a, b)
        assert_result(result, name, a, b)
        out = np.full(np.broadcast_shapes(*shapes), 7, np.float64)
        assert call(name, a, b, out=out) is out
        assert_same(out, result.astype(np.float64))


@pytest.mark.parametrize("ndim", [0, 1, 5, 9, 20, 33])
def test_many_dimensions(ndim: int, rng: np.random.Generator) -> None:
    lengths = [2 if i % 3 == 0 and i < 33 else 1 for i in range(ndim)]
    a = random_array(rng, tuple(lengths), np.dtype(np.float32))
    order = rng.permutation(ndim)
    b = random_array(rng, tuple(np.array(lengths)[np.argsort(order)]), a.dtype).transpose(order)
    b = np.broadcast_to(b.reshape(a.shape), a.shape)
    assert_result(cukern.add(a, b), "add", a, b)


def test_sixty_four_dimensions(rng: np.random.Generator) -> None:
    shape = tuple(2 if i % 6 == 0 else 1 for i in range(64))
    a = random_array(rng, shape, np.dtype(np.int32))
    assert_same(cukern.multiply(a.T, a), expected("multiply", a.T, a))


def test_dimensions_that_do_not_merge(rng: np.random.Generator) -> None:
    a = random_array(rng, (4,) * 8, np.dtype(np.float32))[::2, ::2, ::2, ::2, ::2, ::2, ::2, ::2]
    b = np.broadcast_to(random_array(rng, (2, 1) * 4, np.dtype(np.int64)), a.shape)
    assert_result(cukern.subtract(a, b), "subtract", a, b)
    assert_same(cukern.subtract(a.T, b), expected("subtract", a.T, b))


@pytest.mark.parametrize("dtype", ELEMENT_TYPES, ids=str)
@each("scalar", [0, 1, -3, 300, True, 2.5, -0.0, float("inf"), float("nan"), 1e300, 2 - 3j])
def test_python_scalars(dtype: np.dtype, scalar, rng: np.random.Generator) -> None:
    a = random_array(rng, (5, 3), dtype)
    for name in BINARY:
        check(name, a, scalar)
        check(name, scalar, a)
    for name in SCALAR:
        check(name, a, scalar)


@pytest.mark.parametrize(
    "scalar",
    [
        np.float32(1.5),
        np.float64(1.5),
        np.int32(-7),
        np.int64(2**40),
        np.float16(0.1),
        np.uint8(9),
        np.bool_(True),
        np.complex64(1 - 2j),
    ],
    ids=repr,
)
def test_numpy_scalars(scalar, rng: np.random.Generator) -> None:
    for dtype in ELEMENT_TYPES:
        a = random_array(rng, (4, 3), dtype)
        for name in BINARY:
            check(name, a, scalar)
            check(name, scalar, a)


@pytest.mark.parametrize(
    "pair",
    [(1, 2), (1, 2.5), (2.5, 1.0), (True, 3), (False, 0.5), (7, 0), (True, False), (True, 2j), (3, 1 - 2j)],
    ids=str,
)
def test_scalars_alone_give_arrays(pair) -> None:
    for name in BINARY:
        check(name, *pair)


def test_bools_are_not_subtracted() -> None:
    bools = np.array([True, False])
    for a, b in ((bools, bools), (bools, True), (True, False), (np.bool_(True), bools)):
        with pytest.raises(TypeError, match=r"subtract: not defined for element type bool; .*x\.astype"):
            cukern.subtract(a, b)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("int32", 2**31),
        ("int32", -(2**31) - 1),
        ("int64", 2**63),
        ("int8", -129),
        ("uint8", 256),
        ("uint8", -1),
        ("uint16", 1 << 16),
        ("uint64", 1 << 64),
        ("uint64", -1),
    ],
)
def test_python_integer_out_of_bounds(dtype: str, value: int) -> None:
    a = np.ones(3, dtype)
    with pytest.raises(OverflowError, match=f"Python integer {value} out of bounds for {dtype}"):
        cukern.add(a, value)
    assert_same(cukern.divide(a, value), np.divide(a, float(value)))  # computed in float64


def test_huge_python_integer_overflows_a_float() -> None:
    with pytest.raises(OverflowError, match="too large"):
        cukern.add(np.ones(3, np.float32), 10**400)


@pytest.mark.parametrize("dtype", ELEMENT_TYPES, ids=str)
def test_scale_in_place(dtype: np.dtype, rng: np.random.Generator) -> None:
    a = random_array(rng, (6, 5), dtype)
    factor = True if dtype.kind == "b" else 3
    wanted = expected("scale", a, dtype.type(factor))
    assert cukern.scale(a, factor, out=a) is a
    assert_same(a, wanted)


def test_scale_of_integers_by_a_float() -> None:
    a = np.arange(6, dtype=np.int32)
    assert_same(cukern.scale(a, 0.5), np.multiply(a, 0.5))
    with pytest.raises(TypeError, match=r"scale: the result is of element type float64, which out's int32"):
        cukern.scale(a, 0.5, out=a)
    assert_same(a, np.arange(6, dtype=np.int32))


def test_scale_takes_one_number() -> None:
    with pytest.raises(TypeError, match="scale: factor is an array; the factor is one number"):
        cukern.scale(np.ones(3), np.ones(3))
    assert_same(cukern.scale(np.ones(3), np.array(2.0)), np.full(3, 2.0))


def test_result_keeps_memory_order(rng: np.random.Generator) -> None:
    for shape in [(3, 4), (2, 3, 4), (2, 3, 4, 5)]:
        for _ in range(10):
            p, q = rng.permutation(len(shape)), rng.permutation(len(shape))
            a = random_array(rng, tuple(np.array(shape)[np.argsort(p)]), np.dtype(np.float32)).transpose(p)
            b = random_array(rng, tuple(np.array(shape)[np.argsort(q)]), np.dtype(np.float32)).transpose(q)
            assert cukern.add(a, b).strides == np.add(a, b).strides
            assert cukern.add(a, b[..., :1]).strides == np.add(a, b[..., :1]).strides
            assert cukern.add(a, 1).strides == np.add(a, 1).strides


def test_the_main_job(rng: np.random.Generator) -> None:
    n = 96 if SMALL else 2048
    a, b = rng.random((n, n)).astype(np.float32), rng.random((n, n)).astype(np.float32)
    assert_same(cukern.add(a, b), a + b)
    wanted = a + b
    assert cukern.add(a, b, out=a) is a
    assert_same(a, wanted)
    assert cukern.scale(a, 2.0, out=a) is a
    assert_same(a, wanted * np.float32(2))


@pytest.mark.parametrize("backend", STAGED, indirect=True)
@pytest.mark.parametrize("slot_bytes", [64, 100, 1 << 20])
@pytest.mark.parametrize("small_bytes", [0, 300, -1])
def test_staging_at_every_chunk_edge(slot_bytes: int, small_bytes: int, rng: np.random.Generator) -> None:
    _cukern._set_staging(True, slot_bytes, small_bytes)
    for n in (1, 7, 8, 9, 15, 16, 17, 63, 64, 65, 1000):
        for dtype in ELEMENT_TYPES:
            a = random_array(rng, (n,), dtype)
            b = random_array(rng, (2 * n,), np.dtype(np.int32))[::-2]
            assert_result(cukern.add(a, b), "add", a, b)
            wide = np.complex128 if dtype.kind == "c" else np.float64
            out = np.zeros((3, n), wide).T[:, 1]
            cukern.add(a, b, out=out)
            assert_same(np.array(out), np.add(a, b).astype(wide))


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_division_of_the_smallest_numbers(dtype: type, rng: np.random.Generator) -> None:
    a, b = (rng.standard_normal((2, 2000, 2)) * [[[np.finfo(dtype).tiny]], [[0.1]]]).astype(dtype(0).real.dtype)
    a, b = (np.ascontiguousarray(x).view(dtype) for x in (a, b))
    assert_result(cukern.divide(a, b), "divide", a, b)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_whole_powers_of_complex_numbers(dtype: type, rng: np.random.Generator) -> None:
    # Near 1 the logarithm is small, and what is rounded comes of the products alone.
    near = np.exp(0.001 * (rng.normal(size=1000) + 1j * rng.normal(size=1000))).astype(dtype)
    exponents = np.arange(-99, 100)[:, None]
    check("pow", near, exponents.astype(np.int8))
    check("pow", near * near.dtype.type(1j), exponents.astype(dtype))


def test_logaddexp_of_nothing() -> None:
    """Beside what vanishes an operand is left as it is, however small."""
    x = np.array([0.0, 1e-38, -1e-38, 1e-45, 5.0, -5.0], np.float32)
    for nothing in (-np.inf, -1000.0):
        np.testing.assert_array_equal(cukern.asnumpy(cukern.logaddexp(x, np.full_like(x, nothing))), x)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_signs_of_numbers_on_the_axes(dtype: str) -> None:
    """Are exact."""
    x = np.arange(1, 1000).astype(dtype)
    for turn in (1, -1, 1j, -1j):
        np.testing.assert_array_equal(cukern.asnumpy(cukern.sign(x * turn)), np.full_like(x, turn))


# About where functions of complex numbers have another way: exponentials overflow, tanh is 1, few digits no longer
# reduce an angle, squares vanish or overflow.
EDGES = [0.0, 1e-30, 1e-19, 0.5, 1.0, 9.99, 10.01, 21.9, 22.1, 87.9, 88.1, 89.0, 200.0, 708.9, 709.1, 65535.9, 65536.0]
EDGES += [1e9, 1e19]


@pytest.mark.parametrize(("dtype", "most"), [(np.float32, 150), (np.float64, 1100)])
def test_powers_at_the_ends_of_the_range(dtype: type, most: float, rng: np.random.Generator) -> None:
    """Packed powers that are hardly normal numbers, or are none, have the bits that they have in steps."""
    close = 1 + np.outer([1, -1], 2.0 ** np.arange(-np.finfo(dtype).nmant - 1, 0)).ravel()
    a = np.repeat(np.concatenate([close, 2.0 ** rng.uniform(-99, 99, 200)]).astype(dtype), 300)
    with np.errstate(all="ignore"):
        b = (rng.uniform(0.75, 1, a.size) * rng.choice([-most, most], a.size) / np.log2(a, dtype=float)).astype(dtype)
    operands = [cukern.asarray(x) for x in (a, b)]
    packed = cukern.asnumpy(cukern.pow(*operands))
    assert_same(cukern.asnumpy(cukern.pow(*(x[::3] for x in operands))), packed[::3])
    assert_result(packed, "pow", a, b)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("name", ["exp", "expm1", "log", "sin", "cos", "tan", "sinh", "cosh", "tanh", "sign"])
def test_complex_functions_beyond_their_short_way(name: str, dtype: type) -> None:
    parts = np.array([*EDGES, *(-x for x in EDGES)], dtype(0).real.dtype)
    edges = np.empty((len(parts), len(parts)), dtype)
    edges.real, edges.imag = parts, parts[:, None]
    edges[(edges.imag == 0) & (abs(edges.real) > 1e4)] = 1  # where NumPy's expm1 gives NaN
    check(name, edges)
    check(name, edges.T)
    # An ordinary number beside any other gives what it gives alone, and in any layout, with the signs of zeros.
    ordinary = np.full_like(edges, 0.3 - 0.7j)
    ordinary[:, ::2] = edges[:, ::2]
    function = getattr(cukern, name)
    results = cukern.asnumpy(function(cukern.asarray(ordinary)))
    np.testing.assert_array_equal(results[:, 1::2], results[0, 1])
    for x in (ordinary, edges):
        packed = cukern.asarray(x)
        assert_same(cukern.asnumpy(function(packed[:, ::3])), cukern.asnumpy(function(packed))[:, ::3])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "name", ["tan", "asinh", "acosh", "atanh", "asin", "acos", "sinh", "log1p", "hypot", "atan2", "logaddexp", "pow"]
)
def test_float_functions_beside_special_values(name: str, dtype: type) -> None:
    """A number gives the same bits beside any other, and in any layout."""
    edges = special_values(np.dtype(dtype))
    beside = np.full((2, 4 * edges.size), 0.7, dtype)
    beside[0, ::4] = edges
    beside[1, 1::4] = edges
    operands = [cukern.asarray(x) for x in (beside if name in BINARY else beside[:1])]
    function = getattr(cukern, name)
    results = cukern.asnumpy(function(*operands))
    np.testing.assert_array_equal(results[3::4], results[3])
    assert_same(cukern.asnumpy(function(*(x[::3] for x in operands))), results[::3])


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("name", ["exp", "expm1", "log", "sin", "cos", "tan", "sinh", "cosh", "tanh", "sqrt"])
def test_signs_of_zeros_of_complex_functions(name: str, dtype: type) -> None:
    """On the axes: of both signs of zero, of conjugates, and as NumPy's."""
    parts = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -0.5], dtype(0).real.dtype)
    x = np.empty((len(parts), len(parts)), dtype)
    x.real, x.imag = parts, parts[:, None]
    x = x[(x.real == 0) | (x.imag == 0)]
    if name == "log":
        x = x[x != 0]
    wanted = getattr(np, name)(x)
    for results in (getattr(cukern, name)(x), cukern.asnumpy(getattr(cukern, name)(cukern.asarray(x)))):
        for part in ("real", "imag"):
            own, numpys = getattr(results, part), getattr(wanted, part)
            np.testing.assert_array_equal(np.signbit(own)[numpys == 0], np.signbit(numpys)[numpys == 0])


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_expm1_keeps_the_sign_of_zero(dtype: type) -> None:
    zeros = np.array([complex(x, y) for x in (0.0, -0.0) for y in (0.0, -0.0)], dtype)
    results = cukern.asnumpy(cukern.expm1(zeros))
    np.testing.assert_array_equal(results, zeros)
    for part in ("real", "imag"):
        np.testing.assert_array_equal(np.signbit(getattr(results, part)), np.signbit(getattr(zeros, part)))
