"""Calls on short, packed ndarrays, which are not planned: the same results and errors as the long way's."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from conftest import use
from numpy_loops import use_numpy_loops

import cukern
from cukern import _cukern

ROWS = [row for row in _cukern._table if row["kind"] in ("unary", "binary") and row["name"] not in ("real", "imag")]
DTYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"]


@pytest.fixture(autouse=True)
def host() -> None:
    use("host")


def the_long_way(function: object, *operands: object) -> np.ndarray:
    """Return what a call gives whose arrays are not packed."""
    shape = next(x.shape for x in operands if isinstance(x, np.ndarray))
    own = []
    for x in operands:
        if isinstance(x, np.ndarray):
            wide = np.empty((*shape, 2), x.dtype)
            wide[..., 0] = x
            own.append(wide[..., 0])
        else:
            own.append(x)
    return np.ascontiguousarray(function(*own))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_results_are_those_of_planned_calls(row: dict, rng: np.random.Generator) -> None:
    function = getattr(cukern, row["name"])
    called = 0
    for dtype in DTYPES:
        count = 2 if row["kind"] == "binary" else 1
        operands = [(rng.integers(0, 9, (3, 5)) / (4 if dtype[0] in "fc" else 1)).astype(dtype) for _ in range(count)]
        if dtype[0] == "c":
            operands = [x * (2 - 0.75j) for x in operands]
        forms = [tuple(operands)]
        if count == 2:
            forms += [(operands[0], number) for number in (3, 2.5)] + [(number, operands[0]) for number in (2, 0.5)]
            forms += [(operands[0], operands[0])]
        for form in forms:
            try:
                given = function(*form)
            except (TypeError, OverflowError) as error:
                with pytest.raises(type(error)):
                    the_long_way(function, *form)
                continue
            wanted = the_long_way(function, *form)
            assert given.dtype == wanted.dtype and given.shape == (3, 5) and given.flags.c_contiguous
            np.testing.assert_array_equal(given, wanted)
            out = np.empty_like(given)
            assert function(*form, out=out) is out
            np.testing.assert_array_equal(out, wanted)
            called += 1
    assert called > 0


@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_products_of_complex_numbers_round_each_step(dtype: str, rng: np.random.Generator) -> None:
    """Of any number of elements, with vectors and what is left of one, and wherever they begin."""
    for count in [*range(1, 20), 100, 1000, 30000]:
        memory = rng.normal(size=(2, 4 * count + 8)).astype(dtype[0].replace("c", "f") + str(int(dtype[1:]) // 2))
        memory[:, rng.integers(0, memory.shape[1], 2)] = np.nan, np.inf
        begin = int(rng.integers(0, 4))
        x, y = (row[begin : begin + 2 * count].view(dtype) for row in memory)
        with np.errstate(all="ignore"):
            product = x.real * y.real - x.imag * y.imag, x.real * y.imag + x.imag * y.real
            square = (x.real - x.imag) * (x.real + x.imag), 2 * (x.real * x.imag)
            value = x.real * y[0].real - x.imag * y[0].imag, x.real * y[0].imag + x.imag * y[0].real
        for given, (real, imag) in [
            (cukern.multiply(x, y), product),
            (cukern.square(x), square),
            (cukern.multiply(x, y[0]), value),
            (cukern.multiply(y[0], x), value),
            (cukern.multiply(x, np.broadcast_to(y[0], count)), value),
            (cukern.square(x[::-1])[::-1], square),
        ]:
            np.testing.assert_array_equal(given.real, real)
            np.testing.assert_array_equal(given.imag, imag)


@pytest.mark.parametrize(
    "number", [127, 128, -129, 2**31, 2**63, -(2**63), 2**64, 2**53 + 1, 1e308, -1e39, np.nan, True]
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_of_python(number: float, dtype: str) -> None:
    x = np.ones(4, dtype)
    for function in (cukern.add, cukern.less):
        try:
            given = function(x, number)
        except (TypeError, OverflowError) as error:
            with pytest.raises(type(error)):
                the_long_way(function, x, number)
            continue
        wanted = the_long_way(function, x, number)
        assert given.dtype == wanted.dtype
        np.testing.assert_array_equal(given, wanted)


def test_out() -> None:
    x = np.arange(12.0)
    assert cukern.add(x, x, out=x) is x  # exactly that array
    np.testing.assert_array_equal(x, 2 * np.arange(12.0))
    y = np.arange(12.0)
    with pytest.raises(ValueError, match="out overlaps a"):
        cukern.negative(y[:-1], out=y[1:])
    with pytest.raises(ValueError, match="out has shape"):
        cukern.negative(y, out=np.empty(11))
    with pytest.raises(TypeError, match="same_kind"):
        cukern.negative(y, out=np.empty(12, "i4"))
    fixed = np.empty(12)
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        cukern.negative(y, out=fixed)
    single = np.empty(12, "f4")
    cukern.negative(y, out=single)
    np.testing.assert_array_equal(single, -y)
    np.testing.assert_array_equal(y, np.arange(12.0))
    longs = np.arange(8)  # begins at the same place, but has elements of another size
    with pytest.raises(ValueError, match="out overlaps a"):
        cukern.less(longs, 3, out=longs.view("?")[:8])


def test_other_arrays_go_the_long_way() -> None:
    x = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(cukern.add(x, x[0]), x + x[0])
    np.testing.assert_array_equal(cukern.add(x.T, x.T), x.T + x.T)
    np.testing.assert_array_equal(cukern.add(x, x.astype("f4")), 2 * x)
    np.testing.assert_array_equal(cukern.add(x, np.float64(2)), x + 2)
    assert cukern.negative(x[:0]).shape == (0, 3)
    assert cukern.negative(np.array(3.0)) == -3
    with pytest.raises(TypeError, match="byte order"):
        cukern.negative(x.astype(">f8"))
    with pytest.raises(ValueError, match="do not broadcast"):
        cukern.add(x, x[:, :2].copy())
    unaligned = np.frombuffer(b"\0" + x.tobytes(), "f8", offset=1)
    np.testing.assert_array_equal(cukern.negative(unaligned), -x.ravel())


def test_they_are_counted_as_calls_on_the_host() -> None:
    x = np.ones(100, "f4")
    before = cukern.counters()["calls_on_host"]
    cukern.add(x, x)
    cukern.add(x, 1.0, out=x)
    assert cukern.counters()["calls_on_host"] == before + 2


def test_nothing_is_kept() -> None:
    x, out = np.ones(100, "f4"), np.empty(100, "f4")
    cukern.add(x, x, out=out)
    counts = sys.getrefcount(x), sys.getrefcount(out)
    for _ in range(100):
        cukern.add(x, x, out=out)
        cukern.add(x, 2, out=out)
        cukern.negative(x)
    assert (sys.getrefcount(x), sys.getrefcount(out)) == counts


def test_placement_is_still_explained() -> None:
    x = np.ones(100, "f4")
    assert cukern.explain_placement(cukern.add, x, x)["placement"] == "host"


@pytest.mark.gpu
def test_a_placement_that_is_asked_for_holds() -> None:
    use("cuda")
    use_numpy_loops(True)
    x = np.ones(100, "f4")
    before = cukern.counters()
    with cukern.placement("device"):
        cukern.add(x, x)
    with cukern.placement("auto"):
        cukern.add(x, x)
    after = cukern.counters()
    assert after["calls_on_device"] == before["calls_on_device"] + 1
    assert after["calls_on_host"] == before["calls_on_host"] + 1
