"""Calls that repeat the layouts of an earlier one's arrays: what is kept of a call must fit the next one."""

from __future__ import annotations

import gc
import itertools
from typing import Any

import numpy as np
import pytest

import cukern

SHAPES = [(), (1,), (7,), (8,), (0,), (3, 5), (5, 3), (1, 5), (3, 1), (2, 0, 3), (2, 3, 4), (2, 1, 1, 1, 2, 3, 1)]
DTYPES = ["float32", "int32", "float64", "bool", "complex64"]


def views(x: Any) -> list[Any]:
    """Return arrays of several layouts over the elements of one."""
    return [x, x[::-1] if x.ndim else x, x.T, x[..., ::2] if x.ndim else x]


def test_calls_of_all_layouts_in_turn(rng: np.random.Generator) -> None:
    values = [rng.integers(0, 9, shape).astype(dtype) for shape in SHAPES for dtype in DTYPES]
    cases = [view for x in values for view in views(x)]
    arrays = [view for x in values for view in views(cukern.asarray(x))]
    order = rng.permutation(np.tile(np.arange(len(cases)), 3))
    for k in order:
        np.testing.assert_array_equal(cukern.asnumpy(arrays[k] * arrays[k]), cases[k] * cases[k])
        assert (arrays[k] * arrays[k]).strides == cukern.multiply(arrays[k], arrays[k]).strides


def test_arrays_of_layouts_that_other_calls_have_seen(rng: np.random.Generator) -> None:
    # All of one shape and type, so that their calls take each other's place; results are operands of later calls.
    def made() -> list[tuple[np.ndarray, Any]]:
        x = rng.integers(0, 99, (6, 12)).astype("f4")
        array = cukern.asarray(x)
        return [
            (v(x), v(array))
            for v in (lambda a: a[:, :6], lambda a: a[:, ::2], lambda a: a[:, 6:], lambda a: a[:, 5::-1])
        ]

    pairs = [pair for _ in range(3) for pair in made()]
    pairs += [(x.T, array.T) for x, array in pairs]
    for _ in range(1500):
        (x, a), (y, b), (_, like) = (pairs[k] for k in rng.integers(0, len(pairs), 3))
        function = ("add", "subtract")[rng.integers(0, 2)]
        given = (None, cukern.zeros((12, 6), "f4")[::2], cukern.zeros_like(like))[rng.integers(0, 3)]
        for first, second, expected in ((a, b, getattr(np, function)(x, y)), (b, a, getattr(np, function)(y, x))):
            for _ in range(2):
                result = getattr(cukern, function)(first, second, out=given)
                assert given is None or result is given
                np.testing.assert_array_equal(cukern.asnumpy(result), expected)
        pairs[rng.integers(0, len(pairs))] = (expected, result)


def test_addresses_are_those_of_the_call() -> None:
    made = [cukern.full(6, i, "f4") for i in range(20)]
    outs = [cukern.zeros(6, "f4") for _ in range(20)]
    for a, b, out in itertools.product(made[:6], made[6:12], outs[:3]):
        assert cukern.add(a, b, out=out) is out
        assert out.tolist() == [a[0].item() + b[0].item()] * 6
    part = cukern.arange(20, dtype="f4")
    assert [(part[i : i + 6] + part[i : i + 6]).tolist() for i in range(3)] == [
        [2.0 * (i + k) for k in range(6)] for i in range(3)
    ]


def placed(values: np.ndarray, begin: int) -> Any:
    """Return an Array of these elements that begins so many elements after a whole block of memory."""
    memory = cukern.zeros(values.size + 32, values.dtype)
    memory[begin : begin + values.size] = values.reshape(-1)
    return memory[begin : begin + values.size].reshape(values.shape)


LAYOUTS: dict[str, Any] = {
    "packed": lambda x: x,
    "transposed": lambda x: x.reshape(80, 70).T,
    "interleaved": lambda x: x.reshape(700, 8).T,
    "steps": lambda x: x.reshape(70, 80)[:, ::2],
    "window": lambda x: x.reshape(70, 80)[:, 3:76],
    "row": lambda x: x.reshape(70, 80)[:1],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "complex64"])
def test_memory_that_begins_anywhere(layout: str, dtype: str, rng: np.random.Generator) -> None:
    """A launch that is kept is made again only for addresses that are aligned alike."""
    view = LAYOUTS[layout]
    for begin in (0, 0, 0, 16, 0, 1, 1, 1, 3, 16, 1, 0, 0):
        a, b = (rng.integers(0, 9, 5600).astype(dtype) for _ in range(2))
        x, y = view(placed(a, begin)), view(placed(b, 2 * begin % 32))
        want = view(a) + view(b)
        np.testing.assert_array_equal(cukern.asnumpy(cukern.add(x, y)), want)
        out = cukern.zeros(want.shape, dtype)
        np.testing.assert_array_equal(cukern.asnumpy(cukern.add(x, y, out=out)), want)
        if layout != "row":
            np.testing.assert_array_equal(cukern.asnumpy(cukern.add(x, y, out=x)), want)


def test_in_place_and_broadcast() -> None:
    x, row = cukern.ones((4, 3)), cukern.asarray([1.0, 2.0, 3.0])
    for _ in range(5):
        x += row
        row += row
    assert x.tolist() == [[32.0, 63.0, 94.0]] * 4
    assert row.tolist() == [32.0, 64.0, 96.0]


def test_checks_of_out_are_made_each_time() -> None:
    memory = cukern.zeros(12)
    a, out = cukern.ones(6), cukern.zeros(6)
    for _ in range(3):
        cukern.add(a, a, out=out)
        cukern.add(memory[:6], memory[:6], out=memory[6:])
    with pytest.raises(ValueError, match="overlaps a"):
        cukern.add(memory[:6], a, out=memory[3:9])
    with pytest.raises(ValueError, match="out has shape"):
        cukern.add(a, a, out=cukern.zeros(5))
    with pytest.raises(TypeError, match="cannot take"):
        cukern.add(a, a, out=cukern.zeros(6, "i4"))
    frozen = np.zeros(6)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        cukern.add(a, a, out=cukern.from_dlpack(frozen) if cukern.backend() == "host" else frozen)
    with pytest.raises(TypeError, match="not defined for"):
        cukern.bitwise_and(a, a)


def test_a_buffer_of_out_sees_the_result() -> None:
    a, out = cukern.ones(6, memory="pinned"), cukern.zeros(6, memory="pinned")
    for _ in range(3):
        cukern.add(a, a, out=out)
    with memoryview(out) as seen:
        cukern.add(out, a, out=out)
        assert seen.tolist() == [3.0] * 6


def test_results_are_in_the_memory_of_the_operands() -> None:
    for _ in range(3):
        for memory in ("device", "managed", "pinned"):
            x = cukern.ones(5, memory=memory)
            assert (x + x).memory == memory
        mixed = cukern.ones(5) + cukern.ones(5, memory="pinned")
        assert mixed.memory == "device"


def test_calls_on_an_active_stream() -> None:
    a = cukern.ones(1000)
    for _ in range(4):
        with cukern.Stream():
            b = a + a
            c = b + a
        assert (c + b).tolist() == [5.0] * 1000


def test_nothing_leaks() -> None:
    a = cukern.ones(7)
    for k in range(3):
        cukern.negative(a)
        gc.collect()
        before = cukern.memory_info()["in_use"]
        for n in range(1, 200):
            cukern.negative(cukern.ones(n % 50))
        gc.collect()
        if k:
            assert cukern.memory_info()["in_use"] == before
