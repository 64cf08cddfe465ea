"""Types of 8 and 16 bits in any layout: computed in wider types, as if in their own."""

from __future__ import annotations

import numpy as np
import pytest
from arrays import special_values

import cukern

ml_dtypes = pytest.importorskip("ml_dtypes")
pytestmark = pytest.mark.usefixtures("backend")

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
SHORT = [np.dtype(name) for name in ("int8", "uint8", "int16", "uint16", "float16")] + [BFLOAT16]


def steps(a: np.ndarray) -> cukern.Array:
    """Return an Array of the same elements, with others between them."""
    memory = np.zeros(2 * a.size, a.dtype)
    memory[::2] = a.reshape(-1)
    return cukern.asarray(memory)[::2].reshape(a.shape)


def pairs(rng: np.random.Generator, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Return elements of all kinds, each beside several others."""
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        values = rng.integers(info.min, info.max, 3000, dtype, endpoint=True)
        values[:4] = info.min, info.max, 0, 1
    else:
        values = rng.integers(0, 1 << 16, 3000, np.uint16).view(dtype)
        special = special_values(np.dtype(np.float16)).astype(dtype)
        values[: special.size] = special
    return values, rng.permutation(values)


def bits(a: cukern.Array | np.ndarray, signs: bool = False) -> np.ndarray:
    """Return elements by their bits; of NaN, which operations make as they like, at most the sign."""
    host = np.asarray(cukern.asnumpy(a)).reshape(-1)
    if host.dtype.kind in "iub":
        return host
    with np.errstate(invalid="ignore"):  # ml_dtypes: of a signaling NaN
        nan = np.isnan(host)
    integers = host.view(f"uint{8 * host.itemsize}").copy()
    top = 8 * host.itemsize - 1
    integers[nan] = (integers[nan] >> top << top if signs else 0) | (1 << top) - 1
    return integers


@pytest.mark.parametrize("dtype", SHORT, ids=str)
@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "floor_divide", "remainder", "pow", "maximum", "less"])
def test_as_packed(name: str, dtype: np.dtype, rng: np.random.Generator) -> None:
    """Overflow, division by zero, NaN: what packed operands give. A power of floats may be the one beside it."""
    a, b = pairs(rng, dtype)
    function = getattr(cukern, name)
    most = 1 if name == "pow" and dtype.kind not in "iu" else 0
    packed = function(cukern.asarray(a), cukern.asarray(b))
    wanted = bits(packed)
    assert np.abs(bits(function(steps(a), steps(b))).astype(int) - wanted.astype(int)).max() <= most
    out = steps(cukern.asnumpy(packed))
    function(steps(a), cukern.asarray(b), out=out)
    assert np.abs(bits(out.copy()).astype(int) - wanted.astype(int)).max() <= most


@pytest.mark.parametrize("name", ["floor_divide", "remainder"])
@pytest.mark.parametrize("dtype", [dtype for dtype in SHORT if dtype.kind in "iu"], ids=str)
def test_quotients_of_all_values(dtype: np.dtype, name: str) -> None:
    """Which are made of a quotient of floats: every dividend, by all divisors of 8 bits, and by some of 16."""
    info = np.iinfo(dtype)
    every = np.arange(info.min, info.max + 1).astype(dtype)
    some = [*range(-40, 41), info.min, info.min + 1, info.max - 1, info.max, 181, 255, 256, 257, 9973, 32749]
    divisors = every if dtype.itemsize == 1 else np.array([b for b in some if info.min <= b <= info.max], dtype)
    with np.errstate(all="ignore"):
        wanted = getattr(np, name)(every, divisors[:, None])
    a, b = cukern.asarray(every), cukern.asarray(divisors)
    own = getattr(cukern, name)(a, b.reshape(-1, 1))
    np.testing.assert_array_equal(cukern.asnumpy(own), wanted)
    for divisor, quotients in zip(divisors, wanted, strict=True):
        packed = getattr(cukern, name)(a, cukern.full(every.size, divisor, dtype=dtype))
        np.testing.assert_array_equal(cukern.asnumpy(packed), quotients)


WHOLE = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool"]


@pytest.mark.parametrize(
    ("dtype", "wide"),
    [(a, b) for a in WHOLE for b in ("int64", "uint64", "float64") if np.result_type(a, b) == np.dtype(b)],
)
def test_integers_beside_types_of_64_bits(dtype: str, wide: str, rng: np.random.Generator) -> None:
    """Loaded as bits, of which those of the sign are repeated."""
    info = np.iinfo("uint8" if dtype == "bool" else dtype)
    a = rng.integers(info.min, info.max, 3001, info.dtype, endpoint=True)
    a[:3] = info.min, info.max, 0
    a = (a > 99) if dtype == "bool" else a
    b = rng.integers(0, 9, 3001).astype(wide)
    for own in (cukern.asarray(a), steps(a)):
        np.testing.assert_array_equal(cukern.asnumpy(cukern.add(own, cukern.asarray(b))), a + b)
        np.testing.assert_array_equal(cukern.asnumpy(cukern.less(steps(b), own)), b < a)
        if wide == "float64" and dtype != "bool":
            np.testing.assert_array_equal(cukern.asnumpy(cukern.divide(own, 4)), a / 4)


@pytest.mark.parametrize("dtype", SHORT, ids=str)
def test_out_of_a_wider_type_holds_what_the_operation_returns(dtype: np.dtype, rng: np.random.Generator) -> None:
    """Sums are rounded, or wrap, before they are widened."""
    a, b = pairs(rng, dtype)
    wide = "int64" if dtype.kind in "iu" else "float64"
    for function in (cukern.add, cukern.multiply):
        out = cukern.empty(a.size, dtype=wide)
        function(steps(a), steps(b), out=out)
        wanted = cukern.asnumpy(function(cukern.asarray(a), cukern.asarray(b))).astype(wide)
        np.testing.assert_array_equal(cukern.asnumpy(out), wanted)


@pytest.mark.parametrize("dtype", ["float16", BFLOAT16], ids=str)
def test_signs_and_neighbours(dtype: np.dtype, rng: np.random.Generator) -> None:
    """By bits: the sign of a NaN counts, and neighbours are those of the type."""
    a, b = pairs(rng, np.dtype(dtype))
    x, y = steps(a), steps(b)
    wanted = a.view(np.uint16) & 0x7FFF | b.view(np.uint16) & 0x8000
    copied = cukern.asnumpy(cukern.copysign(x, y))
    np.testing.assert_array_equal(bits(copied, signs=True), bits(wanted.view(dtype), signs=True))
    np.testing.assert_array_equal(cukern.asnumpy(cukern.signbit(x)), a.view(np.uint16) >> 15 == 1)
    near = cukern.asnumpy(cukern.nextafter(x, y))
    with np.errstate(invalid="ignore"):
        real = ~(np.isnan(a) | np.isnan(b))
    np.testing.assert_array_equal(near[real], np.nextafter(a[real], b[real]))


@pytest.mark.parametrize("other", ["int32", "int64", "uint64"])
def test_bfloat16_beside_integers(other: str, rng: np.random.Generator) -> None:
    """Integers are rounded to bfloat16 before the sum is."""
    a = rng.integers(0, 1 << 30, 500).astype(other)
    b = pairs(rng, BFLOAT16)[0][:500]
    wanted = (a.astype("float32").astype(BFLOAT16).astype("float32") + b.astype("float32")).astype(BFLOAT16)
    np.testing.assert_array_equal(bits(cukern.add(steps(a), steps(b))), bits(wanted))


@pytest.mark.parametrize("other", ["int8", "int32", "int64", "uint32", "uint64"])
def test_bfloat16_beside_integers_and_a_complex_number(other: str, rng: np.random.Generator) -> None:
    """All three make complex64, which holds few of the integers."""
    a = rng.integers(0, 100, 300).astype(other)
    b = rng.integers(-100, 100, 300).astype(BFLOAT16)
    x, y = a.astype(np.complex64), b.astype(np.float32).astype(np.complex64)
    for left, right, wanted in (
        (steps(a), steps(b), 2j * x + y),
        (cukern.asarray(b), cukern.asarray(a), 2j * y + x),
    ):
        result = cukern.asnumpy(cukern.axpy(2j, left, right))
        assert result.dtype == np.complex64
        np.testing.assert_array_equal(result, wanted)
    clipped = cukern.asnumpy(cukern.clip(steps(b), steps(a), 150 + 1j))
    np.testing.assert_array_equal(clipped, np.minimum(np.maximum(y, x), np.complex64(150 + 1j)))


def test_bool() -> None:
    a = np.array([True, False, True, True, False])
    b = np.array([True, True, False, True, False])
    x, y = steps(a), steps(b)
    np.testing.assert_array_equal(cukern.asnumpy(~x), ~a)
    out = cukern.empty(5, dtype="int32")
    cukern.add(x, y, out=out)
    np.testing.assert_array_equal(cukern.asnumpy(out), a | b)
    cukern.bitwise_invert(x, out=out)
    np.testing.assert_array_equal(cukern.asnumpy(out), ~a)


@pytest.mark.parametrize("dtype", ["int8", "int16", "uint64", "float16", BFLOAT16, "float32", "float64"], ids=str)
def test_logic_of_one_type(dtype: np.dtype, rng: np.random.Generator) -> None:
    """What is not zero is true: NaN, the smallest, but not -0."""
    a, b = (rng.integers(-1, 2, 1003).astype(dtype) for _ in range(2))
    if np.dtype(dtype).kind not in "iu":
        a[:5] = np.array([-0.0, np.nan, np.inf, 0.0, 1e-7]).astype(dtype)
        if np.dtype(dtype).itemsize == 2:
            a.view(np.uint16)[5:8] = 1, 0x8001, 0x8000  # subnormal, and -0
    for view in (cukern.asarray, steps):
        x, y = view(a), view(b)
        s, t = a != 0, b != 0
        for function, wanted in (
            (cukern.logical_and, s & t),
            (cukern.logical_or, s | t),
            (cukern.logical_xor, s ^ t),
        ):
            np.testing.assert_array_equal(cukern.asnumpy(function(x, y)), wanted)
            np.testing.assert_array_equal(cukern.asnumpy(function(x, 3)), function(s, True))
        np.testing.assert_array_equal(cukern.asnumpy(cukern.logical_not(x)), ~s)


COMPARISONS = ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"]
OF_BYTES = [*COMPARISONS, "maximum", "minimum", "logical_and", "logical_or", "logical_xor"]
OF_TRUTHS = [*OF_BYTES, "add", "multiply", "bitwise_and", "bitwise_or", "bitwise_xor"]


def pairs_of_bytes() -> tuple[np.ndarray, np.ndarray]:
    """Return each byte beside each other one."""
    first, second = np.meshgrid(np.arange(256, dtype=np.uint8), np.arange(256, dtype=np.uint8))
    return first.reshape(-1), second.reshape(-1)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "bool"])
def test_all_pairs_of_bytes(dtype: str) -> None:
    """Which a GPU takes by words of four: beside each other, and where the second begins within a word."""
    first, second = pairs_of_bytes()
    a, b = (x.view(dtype) if dtype != "bool" else x % 3 == 0 for x in (first, second))
    x, y = cukern.asarray(a), cukern.asarray(b)
    for name in OF_TRUTHS if dtype == "bool" else OF_BYTES:
        function, numpys = getattr(cukern, name), getattr(np, name)
        np.testing.assert_array_equal(cukern.asnumpy(function(x, y)), numpys(a, b), name)
        np.testing.assert_array_equal(cukern.asnumpy(function(x[:-1], y[1:])), numpys(a[:-1], b[1:]), name)
        np.testing.assert_array_equal(cukern.asnumpy(function(x, y[300])), numpys(a, b[300]), name)
    np.testing.assert_array_equal(cukern.asnumpy(cukern.logical_not(x)), ~(a != 0))


@pytest.mark.gpu
def test_bytes_that_are_true() -> None:
    """On a GPU any byte but 0 is true, for every operation on bool."""
    first, second = pairs_of_bytes()
    a, b = first != 0, second != 0
    x, y = (cukern.asarray(bytes_.view(np.bool_), copy=True) for bytes_ in (first, second))
    for name in OF_TRUTHS:
        wanted = getattr(np, name)(a, b)
        np.testing.assert_array_equal(cukern.asnumpy(getattr(cukern, name)(x, y)).view(np.uint8), wanted, name)
        apart = getattr(cukern, name)(x[::2], y[::2])
        np.testing.assert_array_equal(cukern.asnumpy(apart).view(np.uint8), wanted[::2], name)
    np.testing.assert_array_equal(cukern.asnumpy(cukern.logical_not(x)).view(np.uint8), ~a)


@pytest.mark.gpu
def test_elements_further_apart_than_32_bits_count() -> None:
    """Launched in parts: indices are of 32 bits."""
    memory = cukern.zeros((1 << 31) + 4096, dtype="int8")
    far = memory[:: 1 << 30]
    assert far.strides == (1 << 30,)
    far[...] = cukern.asarray(np.array([1, 2, 3], np.int8))
    np.testing.assert_array_equal(cukern.asnumpy(cukern.negative(far)), np.array([-1, -2, -3], np.int8))
    assert cukern.asnumpy(cukern.sum(far)).item() == 6
