"""Element types of Arrays: conversions between all of them, fills, strided copies, bfloat16."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cases import each

import cukern

pytestmark = pytest.mark.usefixtures("backend")
MEMORY = ["device", "managed", "pinned"]
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
TYPES = {
    name: np.dtype(name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    )
} | {"bfloat16": BFLOAT16}
FLOATS = ["float16", "bfloat16", "float32", "float64"]
COMPLEX = ["complex64", "complex128"]
INTEGERS = [name for name, dtype in TYPES.items() if dtype.kind in "iu"]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """NumPy warns of what it does; the oracle may."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def parts(values: np.ndarray) -> np.ndarray:
    """Return complex numbers as pairs of floats."""
    return values.view(values.real.dtype) if values.dtype.kind == "c" else values


def bits(values: np.ndarray) -> np.ndarray:
    """Return the bytes of elements, in C order."""
    return np.frombuffer(np.ascontiguousarray(values).tobytes(), np.uint8)


def assert_bits(actual: Any, wanted: np.ndarray, exactly: bool = False) -> None:
    """Assert that an Array's elements are right to the bit; a NaN is any NaN unless `exactly`."""
    assert type(actual) is cukern.Array
    assert actual.dtype == wanted.dtype
    assert actual.shape == wanted.shape
    values = cukern.asnumpy(actual)
    assert values.dtype == wanted.dtype
    mine, theirs = (parts(np.ascontiguousarray(x).reshape(-1)) for x in (values, wanted))
    unsigned = np.dtype(f"u{mine.itemsize}")
    same = mine.view(unsigned) == theirs.view(unsigned)
    if not exactly and mine.dtype.kind in "fV":
        same |= np.isnan(mine) & np.isnan(theirs)
    assert same.all(), f"{mine[~same][:5]} != {theirs[~same][:5]}, at {np.flatnonzero(~same)[:5]}"


def limits(name: str) -> tuple[int, int]:
    """Return the integers between which a type's are exact enough to be converted without overflow."""
    dtype = TYPES[name]
    if dtype.kind == "b":
        return 0, 1
    if dtype.kind in "iu":
        return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    return (-65504, 65504) if name == "float16" else (-(2**100), 2**100)


def common_values(source: str, target: str) -> np.ndarray:
    """Return values of a type that another one can hold: every kind of rounding and truncation, the extremes."""
    if target == "bool":
        numbers: list[Any] = [0, 1, 2, 100]
        low, high = limits(source)
    else:
        low, high = (
            f(pair) for f, pair in zip((max, min), zip(limits(source), limits(target), strict=True), strict=True)
        )
        numbers = [0, 1]
    numbers += [n for k in range(1, 64) for n in (2**k, 2**k - 1, 2**k + 1, -(2**k), 1 - 2**k, 3 * 2**k)]
    numbers += [low, low + 1, high, high - 1, 77, 33333, 123456789, 16777217, 9007199254740993]
    numbers = [n for n in numbers if low <= n <= high]
    dtype = TYPES[source]
    if dtype.kind in "biu":
        return np.array(numbers, object).astype(dtype)
    # A float may round up, out of the other's range.
    values = np.array([float(n) for n in numbers]).astype(dtype if dtype.kind != "c" else np.float64)
    if TYPES[target].kind in "iu":
        inside = [low <= int(x) <= high for x in values.astype(np.float64)]
        values = np.concatenate([values[inside], np.array([0.5, 0.99, 1.5, 2.5, 100.75]).astype(values.dtype)])
        if low < 0:
            values = np.concatenate([values, -values[values.astype(np.float64) < -float(low)]])
    else:
        values = np.concatenate([values, np.array([0.1, -0.1, 1 / 3, -2.5, 1e-3]).astype(values.dtype)])
    if dtype.kind != "c":
        return values
    return np.concatenate([values + 3j, values - 0j, [0, 5j]]).astype(dtype)


def special_values(name: str) -> np.ndarray:
    """Return a float type's numbers at which conversions go wrong."""
    numbers = [0.0, np.inf, np.nan, 1.0, 0.1, 1e-8, 5.96e-8, 2.98e-8, 2.9802322387695312e-08, 2.9802325e-08, 6.1e-5]
    numbers += [65504, 65519.99, 65520, 65536, 3.4e38, 3.4028235677973366e38, 3.39e38, 1e39, 1e308, 1.4e-45, 7e-46]
    numbers += [7.1e-46, 1e-310, 5e-324, 9.2e-41, 4.6e-41, 1 + 2**-8, 1 + 3 * 2**-9, 1 + 2**-11, 1 + 3 * 2**-12]
    numbers += [1 + 2**-24, 1 + 3 * 2**-25, 1 + 2**-24 + 2**-50]
    values = np.array(numbers + [-number for number in numbers])
    if TYPES[name].kind != "c":
        return values.astype(TYPES[name])
    return np.array([complex(x, y) for x, y in zip(values, values[::-1], strict=True)]).astype(TYPES[name])


@pytest.mark.parametrize("target", TYPES)
@each("source", TYPES)
def test_astype(source: str, target: str) -> None:
    values = common_values(source, target)
    assert len(values) > 1
    wanted = values.astype(TYPES[target])
    for memory in MEMORY:
        a = cukern.asarray(values, memory=memory)
        assert_bits(a, values)
        cast = a.astype(target)
        assert_bits(cast, wanted)
        assert cast.memory == memory
    assert_bits(a[::-2].astype(TYPES[target]), wanted[::-2])
    assert_bits(cukern.asarray(values, target), wanted)  # from the host
    into = cukern.zeros((3, len(values)), target)
    into[...] = a
    assert_bits(into, np.broadcast_to(wanted, (3, len(values))))


@pytest.mark.parametrize("source", [*FLOATS, *COMPLEX])
@pytest.mark.parametrize("target", ["bool", *FLOATS, *COMPLEX])
def test_astype_of_special_values(source: str, target: str) -> None:
    values = special_values(source)
    if TYPES[source].kind == "c" and TYPES[target].kind != "c" and target != "bool":
        wanted = values.real.astype(TYPES[target])
    else:
        wanted = values.astype(TYPES[target])
    assert_bits(cukern.asarray(values).astype(target), wanted)


PATTERNS = np.arange(65536, dtype=np.uint16)


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
@pytest.mark.parametrize("target", TYPES)
def test_every_pattern_of_a_half_to_other_types(half: str, target: str) -> None:
    values = PATTERNS.view(TYPES[half])
    if TYPES[target].kind in "iu":
        low, high = limits(target)
        wide = values.astype(np.float64)
        values = values[np.isfinite(wide) & (wide > max(low - 1, -(2.0**63) - 1)) & (wide < high)]
    assert_bits(cukern.asarray(values).astype(target), values.astype(TYPES[target]))


def around(values: np.ndarray) -> np.ndarray:
    """Return numbers and those next to them."""
    top = values.dtype.type(np.inf)
    return np.concatenate([values, np.nextafter(values, top), np.nextafter(values, -top)])


@pytest.mark.parametrize("wide", ["float32", "float64"])
def test_rounding_to_every_float16(wide: str) -> None:
    dtype = TYPES[wide]
    own = np.sort(PATTERNS.view(np.float16)[np.isfinite(PATTERNS.view(np.float16))]).astype(dtype)
    middle = (own[1:] + own[:-1]) / 2
    values = np.concatenate([own, around(middle), around(np.array([65520, -65520, 2**-25, -(2**-25)], dtype))])
    assert_bits(cukern.asarray(values).astype("float16"), values.astype(np.float16))


@pytest.mark.parametrize("wide", ["float32", "float64"])
def test_rounding_to_every_bfloat16(wide: str) -> None:
    upper = PATTERNS.astype(np.uint32) << 16
    values = np.concatenate([(upper | low).view(np.float32) for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)])
    values = values.astype(TYPES[wide])
    assert_bits(cukern.asarray(values).astype("bfloat16"), values.astype(BFLOAT16))


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
@pytest.mark.parametrize("wide", ["float32", "float64", "complex64", "complex128"])
def test_there_and_back_is_the_same_pattern(half: str, wide: str) -> None:
    values = PATTERNS.view(TYPES[half])
    assert_bits(cukern.asarray(values).astype(wide).astype(half), values)


def random_bits(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return any elements, NaNs with payloads among them."""
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    return np.frombuffer(rng.bytes(int(np.prod(shape)) * dtype.itemsize), dtype).reshape(shape)


VIEWS: dict[str, Callable[[Any], Any]] = {
    "whole": lambda x: x,
    "every second": lambda x: x[:, ::2],
    "every third, reversed": lambda x: x[::-3, ::-1],
    "transposed": lambda x: x.T,
    "inner": lambda x: x[1:-1, 1:-1],
    "one column": lambda x: x[:, 5],
    "one row": lambda x: x[3],
    "one element": lambda x: x[3, 4],
    "new axes": lambda x: x[None, ::2, None, 1:],
    "none": lambda x: x[:0],
}


@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("name", TYPES)
def test_fills(rng: np.random.Generator, name: str, memory: str) -> None:
    dtype = TYPES[name]
    value: Any = 1 if dtype.kind == "b" else 77 if dtype.kind in "iu" else 1.7 if dtype.kind != "c" else 1.7 - 0.3j
    for shape in ((37, 41), (1, 7), (1000, 6)):
        for view in VIEWS.values():
            wanted = random_bits(rng, shape, dtype).copy()
            if shape == (1, 7) and view is not VIEWS["whole"]:
                continue
            a, b = (cukern.asarray(wanted, memory=memory) for _ in range(2))
            view(a).fill(value)
            view(b)[...] = value
            if view(wanted).ndim:
                view(wanted)[...] = value
            else:
                wanted[3, 4] = value
            assert_bits(a, wanted, exactly=True)
            assert_bits(b, wanted, exactly=True)
    assert_bits(cukern.full((3, 5), value, name, memory=memory), np.full((3, 5), value, dtype))
    assert_bits(cukern.full_like(a, value), np.full(a.shape, value, dtype))
    assert_bits(cukern.zeros((3, 5), name, memory=memory), np.zeros((3, 5), dtype))
    assert_bits(cukern.ones(7, dtype, memory=memory), np.ones(7, dtype))


@pytest.mark.parametrize("name", TYPES)
def test_fills_of_the_extremes(name: str) -> None:
    dtype = TYPES[name]
    if dtype.kind in "iu":
        values: list[Any] = [np.iinfo(dtype).min, np.iinfo(dtype).max]
    elif dtype.kind == "b":
        values = [False, True]
    else:
        values = [float("inf"), float("-inf"), float("nan"), -0.0, 1e-7, 65504.0, 1 / 3]
    for value in values:
        assert_bits(cukern.full(100, value, name), np.full(100, value, dtype))
        a = cukern.zeros(100, name)
        a[::3] = value
        wanted = np.zeros(100, dtype)
        wanted[::3] = value
        assert_bits(a, wanted)


@pytest.mark.parametrize("source_memory", MEMORY)
@pytest.mark.parametrize("name", TYPES)
def test_strided_copies(rng: np.random.Generator, name: str, source_memory: str) -> None:
    dtype = TYPES[name]
    values = random_bits(rng, (36, 36), dtype)
    a = cukern.asarray(values, memory=source_memory)
    assert_bits(a, values, exactly=True)
    for view in VIEWS.values():
        assert_bits(view(a).copy(), view(values), exactly=True)
        assert_bits(cukern.asarray(view(values)), view(values), exactly=True)
        np.testing.assert_array_equal(bits(cukern.asnumpy(view(a))), bits(view(values)))
        assert_bits(view(a).ravel(), view(values).ravel(), exactly=True)
    for view, memory in itertools.product(list(VIEWS.values())[:5], MEMORY):
        wanted = random_bits(rng, (36, 36), dtype).copy()
        b = cukern.asarray(wanted, memory=memory)
        view(b)[...] = view(a)[::-1]
        view(wanted)[...] = view(values)[::-1]
        assert_bits(b, wanted, exactly=True)
        b[...] = a.T
        assert_bits(b, values.T, exactly=True)


@pytest.mark.parametrize("name", TYPES)
def test_copies_of_many_dimensions(rng: np.random.Generator, name: str) -> None:
    values = random_bits(rng, (3, 2, 4, 3, 2, 5), TYPES[name])
    a = cukern.asarray(values)
    for axes in ((5, 4, 3, 2, 1, 0), (2, 0, 5, 1, 4, 3), (1, 0, 3, 2, 5, 4)):
        key = np.s_[::-1, ..., ::2]
        assert_bits(a.transpose(axes)[key].copy(), values.transpose(axes)[key], exactly=True)


def promoted(x: str, y: str) -> np.dtype:
    """Return the element type of both together."""
    if "bfloat16" not in (x, y):
        return np.result_type(TYPES[x], TYPES[y])
    other = y if x == "bfloat16" else x
    if other == "float16":
        return np.dtype(np.float32)
    return TYPES[other] if other in ("float32", "float64", *COMPLEX) else BFLOAT16


@pytest.mark.parametrize("y", TYPES)
@each("x", TYPES)
def test_promotion_where_arrays_are_joined(x: str, y: str) -> None:
    first, second = np.array([0, 1]).astype(TYPES[x]), np.array([1, 1, 0]).astype(TYPES[y])
    dtype = promoted(x, y)
    joined = cukern.concat([cukern.asarray(first), cukern.asarray(second)])
    assert_bits(joined, np.concatenate([first.astype(dtype), second.astype(dtype)]))
    assert_bits(cukern.stack([joined, joined]), np.stack([cukern.asnumpy(joined)] * 2))


def test_promotion_of_three_is_of_all() -> None:
    joined = cukern.concat([cukern.zeros(1, name) for name in ("bool", "int16", "uint16", "float16")])
    assert joined.dtype == np.float32 or joined.dtype == np.result_type("i4", "f2")
    assert cukern.concat([cukern.zeros(1, name) for name in ("int8", "uint8", "bool")]).dtype == np.int16


# --- bfloat16 ---


@pytest.mark.parametrize("memory", MEMORY)
def test_bfloat16_with_ml_dtypes(memory: str) -> None:
    a = cukern.asarray([[1.0, 2.5], [-3.0, 1e10]], "bfloat16", memory=memory)
    wanted = np.array([[1.0, 2.5], [-3.0, 1e10]]).astype(BFLOAT16)
    assert a.dtype == BFLOAT16
    assert (a.itemsize, a.nbytes, a.strides) == (2, 8, (4, 2))
    for dtype in (BFLOAT16, ml_dtypes.bfloat16, cukern.bfloat16, "bfloat16"):
        assert_bits(cukern.zeros(3, dtype, memory=memory), np.zeros(3, BFLOAT16))
    assert_bits(a, wanted)
    assert_bits(cukern.asarray(wanted, memory=memory), wanted)
    assert a.tolist() == wanted.astype(np.float32).tolist()
    assert a[0, 1].item() == float(a[0, 1]) == 2.5
    assert type(a[0, 1].item()) is float
    assert repr(a) == repr(wanted.astype(np.float32)).replace("array", "Array").replace("float32", "bfloat16")
    out = np.empty((2, 2), BFLOAT16)
    assert cukern.asnumpy(a, out=out) is out
    np.testing.assert_array_equal(out, wanted)
    if memory != "device":
        view = np.asarray(a)
        assert view.dtype == BFLOAT16
        np.testing.assert_array_equal(view, wanted)
        a[0] = 7
        assert view[0, 0] == 7
        with pytest.raises(BufferError, match="bfloat16"):
            memoryview(a)


WITHOUT = """
    import pickle
    import sys
    import numpy as np
    import cukern
    from cukern import _cukern

    def refused(call, error, *words):
        try:
            call()
        except error as raised:
            assert type(raised) is error, raised
            assert all(word in str(raised) for word in words), raised
        else:
            raise AssertionError("it was not refused")

    assert cukern.bfloat16 == "bfloat16"
    assert (cukern.bfloat16.itemsize, cukern.bfloat16.name) == (2, "bfloat16")
    assert repr(cukern.bfloat16) == "cukern.bfloat16"
    assert pickle.loads(pickle.dumps(cukern.bfloat16)) is cukern.bfloat16
    for memory in ("device", "managed", "pinned"):
        a = cukern.asarray([1.0, 2.5, 1 / 3], "bfloat16", memory=memory)
        assert a.dtype is cukern.bfloat16
        assert a.dtype == "bfloat16"
        assert (a.itemsize, a.nbytes, a.strides) == (2, 6, (2,))
        assert a.tolist() == [1.0, 2.5, 0.333984375]
        assert a[1].item() == float(a[1]) == 2.5
        assert int(a[1]) == 2
        assert bool(a[1])
        assert repr(a) == "Array([1.        , 2.5       , 0.33398438], dtype=bfloat16)", repr(a)
        refused(lambda: cukern.asnumpy(a), TypeError, "ml_dtypes", "asnumpy")
        refused(lambda: a.get(), TypeError, "ml_dtypes")
        refused(lambda: np.asarray(a), TypeError, "ml_dtypes" if memory != "device" else "asnumpy")
        refused(lambda: memoryview(a), BufferError)
        assert cukern.asnumpy(a.astype("float32")).tolist() == a.tolist()
        assert cukern.asnumpy(a, out=np.zeros(3, "f4")).tolist() == a.tolist()
        again = pickle.loads(pickle.dumps(a, 5))
        assert (again.dtype, again.tolist(), again.memory) == (cukern.bfloat16, a.tolist(), memory)
        a[1:] = 7
        a[0] = np.float64(0.5)
        assert a[::-1].copy().tolist() == [7.0, 7.0, 0.5]
        assert cukern.concat([a, cukern.ones(1, "int32")]).dtype == "bfloat16"
        assert cukern.zeros_like(a).dtype == "bfloat16"
        if memory != "device":
            bits = memoryview(bytearray(6))
            cukern.copyto(np.frombuffer(bits, "f2"), a.astype("float16"))
            raw = np.zeros(6, "u1")
    assert cukern.arange(3, dtype="bfloat16").tolist() == [0.0, 1.0, 2.0]
    assert cukern.eye(2, dtype=cukern.bfloat16).tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert (cukern.ones((2, 3), "bfloat16") @ cukern.ones(3, "bfloat16")).tolist() == [3, 3]
    assert "ml_dtypes" not in sys.modules
    import ml_dtypes  # from here on NumPy knows the type
    assert a.dtype == np.dtype(ml_dtypes.bfloat16)
    assert cukern.asnumpy(a).dtype == ml_dtypes.bfloat16
    assert cukern.bfloat16 == "bfloat16"
    print("done")
"""


@pytest.mark.parametrize("backend", ["host"], indirect=True)
def test_bfloat16_without_ml_dtypes(backend: str) -> None:
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(WITHOUT)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ.copy(), timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"
