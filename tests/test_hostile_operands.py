"""Operands whose own code runs while a call reads them: it raises, changes other operands, calls cukern again.

Also what Python code can do to the classes that cukern offers: patch their methods, take their capsules.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from dlpack_tools import EXCHANGE
from processes import run_quietly

import cukern

pytestmark = pytest.mark.usefixtures("backend")
PROTOCOLS = ["__dlpack__", "__dlpack_device__", "__cuda_array_interface__", EXCHANGE]


class Interrupt(type):
    """A metaclass whose look-up of one attribute is interrupted."""

    name = ""

    def __getattribute__(cls, name: str) -> Any:
        if name == Interrupt.name:
            raise KeyboardInterrupt(name)
        return super().__getattribute__(name)


@pytest.fixture(params=[*PROTOCOLS[::2], EXCHANGE, "__array_ufunc__", "__module__"])
def interrupted(request: pytest.FixtureRequest) -> Iterator[str]:
    Interrupt.name = request.param
    yield request.param
    Interrupt.name = ""


# --- attributes that appear, vanish or are interrupted ---


def test_an_interrupt_of_a_look_up_reaches_the_caller(interrupted: str) -> None:
    class Unlucky(metaclass=Interrupt):
        pass

    calls: list[Callable[[], object]] = [lambda: cukern.zeros(2) + Unlucky()]
    if interrupted != "__array_ufunc__":
        calls += [lambda: cukern.add(Unlucky(), 1), lambda: cukern.from_dlpack(Unlucky())]
    for call in calls:
        with pytest.raises(KeyboardInterrupt):
            call()


def test_an_interrupt_in_an_argument_reaches_the_caller() -> None:
    class Length:
        def __index__(self) -> int:
            raise KeyboardInterrupt

    class Lengths:
        def __len__(self) -> int:
            return 2

        def __getitem__(self, i: int) -> int:
            raise KeyboardInterrupt

    x = cukern.zeros((2, 3))
    calls: dict[str, Callable[[], object]] = {
        "a length": lambda: cukern.empty(Length()),
        "lengths": lambda: cukern.zeros(Lengths()),
        "a device": lambda: cukern.zeros(2, device=Length()),
        "an index": lambda: x[Length()],
        "an axis": lambda: x.sum(axis=Length()),
        "DLPack's device": lambda: x.__dlpack__(dl_device=(1, Length())),
        "reshape": lambda: x.reshape(Length(), -1),
    }
    for call in calls.values():
        with pytest.raises(KeyboardInterrupt):
            call()


def test_a_type_may_gain_a_protocol_later() -> None:
    class Late:
        pass

    late = Late()
    with pytest.raises(TypeError, match="expected an array"):
        cukern.add(late, 1)
    values = np.arange(3.0)
    Late.__dlpack__ = lambda self, **options: values.__dlpack__(**options)
    Late.__dlpack_device__ = lambda self: values.__dlpack_device__()
    np.testing.assert_array_equal(np.asarray(cukern.asnumpy(cukern.asarray(late))), values)
    assert cukern.sum(late) == 3


def test_types_that_were_operands_do_not_live_on() -> None:
    def use() -> weakref.ref[type]:
        class Short:
            def __dlpack__(self, **options: Any) -> Any:
                return np.ones(2).__dlpack__(**options)

            def __dlpack_device__(self) -> tuple[int, int]:
                return (1, 0)

        cukern.sum(Short())
        with pytest.raises(TypeError):
            cukern.add(type("Nothing", (), {})(), 1)
        return weakref.ref(Short)

    types = [use() for _ in range(20)]
    gc.collect()
    assert [kind() for kind in types] == [None] * 20


# --- numbers ---


class RaisingBool(int):
    def __bool__(self) -> bool:
        raise ZeroDivisionError("own")


@pytest.mark.parametrize(
    "call",
    [
        lambda number: cukern.logical_and(number, np.ones(2, bool)),
        lambda number: cukern.where(number, np.ones(2), np.zeros(2)),
        lambda number: cukern.logical_not(number),
        lambda number: cukern.zeros(2, bool).fill(number),
    ],
)
def test_a_number_whose_truth_raises(call: Callable[[Any], object]) -> None:
    with pytest.raises(ZeroDivisionError, match="own"):
        call(RaisingBool(3))


# --- code that changes other operands ---


def resizing(array: np.ndarray, values: np.ndarray) -> Any:
    """Return an operand whose __dlpack__ moves the memory of another one."""

    class Resizing:
        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

        def __dlpack__(self, **options: Any) -> Any:
            array.resize(1 << 22, refcheck=False)
            return values.__dlpack__(**options)

    return Resizing()


CHANGING: dict[str, Callable[[Any, Any], object]] = {
    "add": lambda a, b: cukern.add(a, b),
    "where": lambda a, b: cukern.where(a, b, 1.0),
    "matmul": lambda a, b: cukern.matmul(a, b),
    "out": lambda a, b: cukern.add(a, 1, out=b),
    "copyto": lambda a, b: cukern.copyto(a, b),
}


@pytest.mark.parametrize("name", CHANGING)
def test_an_operand_that_moves_the_memory_of_another(name: str) -> None:
    a = np.ones(1 << 12)
    with pytest.raises((RuntimeError, ValueError), match=r"given other memory|read-only"):
        CHANGING[name](a, resizing(a, np.ones(1 << 12)))


class Moving:
    """Moves the memory of an array, whatever is asked of it."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def move(self) -> None:
        self.array.resize(1 << 22, refcheck=False)

    def __index__(self) -> int:
        self.move()
        return 0

    def __cuda_stream__(self) -> tuple[int, int]:
        self.move()
        return (0, 0)

    @property
    def dtype(self) -> np.dtype:
        self.move()
        return np.dtype("f8")

    def number(self) -> int:
        moving = self

        class Number(int):
            def __bool__(self) -> bool:
                moving.move()
                return True

            def __float__(self) -> float:
                moving.move()
                return 1.0

        return Number(1)

    def out(self) -> Any:
        return resizing(self.array, np.zeros(1 << 12))


ARGUMENTS: dict[str, Callable[[np.ndarray, Moving], object]] = {
    "a number's truth": lambda a, m: cukern.logical_and(a, m.number()),
    "a number's value": lambda a, m: cukern.add(a, m.number()),
    "a condition": lambda a, m: cukern.where(m.number(), a, 2.0),
    "a factor": lambda a, m: cukern.axpy(m.number(), a, a),
    "an axis": lambda a, m: cukern.sum(a, axis=m),
    "axes": lambda a, m: cukern.max(a, axis=(m,)),
    "the axis of a running sum": lambda a, m: cukern.cumulative_sum(a, axis=m),
    "a device": lambda a, m: cukern.asarray(a, device=m),
    "a stream": lambda a, m: cukern.asarray(a, stream=m),
    "an element type": lambda a, m: cukern.asarray(a, dtype=m),
    "a copy's device": lambda a, m: cukern.copy(a, device=m),
    "the source of copyto": lambda a, m: cukern.copyto(cukern.zeros(1 << 12), a, stream=m),
    "the destination of copyto": lambda a, m: cukern.copyto(a, cukern.zeros(1 << 12), stream=m),
    "the output of asnumpy": lambda a, m: cukern.asnumpy(a, out=m.out()),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_argument_that_moves_the_memory_of_an_operand(name: str) -> None:
    a = np.ones(1 << 12)
    with pytest.raises((RuntimeError, ValueError), match=r"given other memory|read-only"):
        ARGUMENTS[name](a, Moving(a))


@pytest.mark.pooled
@pytest.mark.parametrize("name", ["add", "asarray"])
def test_a_finalizer_that_moves_the_memory_of_an_operand(name: str) -> None:
    a, b = np.ones(1 << 12), cukern.ones(1 << 12, memory="pinned")

    class Garbage:
        def __del__(self) -> None:
            a.resize(1 << 22, refcheck=False)

    thresholds = gc.get_threshold()
    gc.set_threshold(0)  # no collection but the one that the call asks for, after it has read `a`
    garbage: Any = Garbage()
    garbage.itself, garbage.memory = garbage, cukern.ones(1 << 12, memory="pinned")
    del garbage
    cukern.empty_cache()
    cukern.set_memory_limit(cukern.memory_info("pinned")["in_use"] + 100, "pinned")
    try:  # so that the result's memory takes a collection
        with pytest.raises(RuntimeError, match="given other memory"):
            cukern.add(b, a) if name == "add" else cukern.asarray(a, memory="pinned")
    finally:
        cukern.set_memory_limit(None, "pinned")
        gc.set_threshold(*thresholds)


def test_the_stream_that_an_output_drops_lives_on() -> None:
    stream: Any = cukern.Stream()
    gone, values = weakref.ref(stream), np.zeros(100)

    class Out:
        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

        def __dlpack__(self, **options: Any) -> Any:
            nonlocal stream
            stream.__exit__(None, None, None)
            stream = None
            gc.collect()
            return values.__dlpack__(**options)

    x = cukern.ones(100)
    stream.__enter__()
    cukern.asnumpy(x, out=Out())
    assert gone() is None
    assert values.tolist() == [1] * 100
    assert (x + 1).tolist() == [2] * 100


def test_an_axis_of_a_million_tuples() -> None:
    axis: Any = 0
    for _ in range(10**6):
        axis = (axis,)
    with pytest.raises(TypeError):
        cukern.sum(np.ones(3), axis=axis)
    while isinstance(axis, tuple):  # taken apart from outside: Python's own way down is deep, too
        axis = axis[0]


def test_an_operand_that_is_read_first_is_not_affected() -> None:
    a = np.ones(1 << 12)
    result = cukern.add(resizing(a, np.ones(1 << 22)), a)  # its code runs before `a` is looked at
    assert result.shape == (1 << 22,)


# --- operands that call cukern on themselves ---

RECURSIVE = """
    import sys
    import numpy as np, cukern
    class Recursive:
        depth = 0
        def __dlpack_device__(self):
            return (1, 0)
        def __dlpack__(self, **options):
            Recursive.depth += 1
            OPERATION
            return np.ones(3).__dlpack__(**options)
    sys.setrecursionlimit(LIMIT)
    operand = Recursive()
    try:
        operand.__dlpack__()
    except RecursionError:
        print(Recursive.depth > 10)
"""


@pytest.mark.parametrize("limit", [1000, 100_000])
@pytest.mark.parametrize(
    "operation", ["cukern.add(self, self)", "cukern.sum(self)", "cukern.zeros(3)[...] = self", "cukern.asarray(self)"]
)
def test_an_operand_that_calls_an_operation_on_itself(operation: str, limit: int) -> None:
    script = RECURSIVE.replace("OPERATION", operation).replace("LIMIT", str(limit))
    assert run_quietly(script, CUKERN_BACKEND="host").strip() == "True"


# --- chains of arrays ---


def test_an_array_that_comes_back_by_dlpack_is_its_own_memory() -> None:
    first = cukern.arange(6.0).reshape(2, 3)
    x = first
    for _ in range(200_000):
        x = cukern.from_dlpack(x)
    assert x.base is first.base or x.base is first
    x += 1
    np.testing.assert_array_equal(cukern.asnumpy(first), np.arange(1.0, 7.0).reshape(2, 3))
    del x, first


def test_a_long_chain_of_owners_is_freed() -> None:
    x = cukern.ones(3, memory="pinned")
    for _ in range(20_000):
        x = cukern.from_dlpack(np.from_dlpack(x)) if cukern.backend() == "host" else cukern.from_dlpack(x)
    assert x.tolist() == [1, 1, 1]
    del x
    gc.collect()


# --- the classes themselves ---

PATCHED = """
    import cukern, numpy as np
    x = cukern.ones((2, 3), "bfloat16")
    for name in ("item", "astype", "ravel", "__getitem__", "__add__", "__mul__"):
        setattr(cukern.Array, name, lambda self, *args: 7)
    import cukern._cukern as module
    module.expand_dims = module.asarray = lambda *args: 7
    assert x.tolist() == [[1.0] * 3] * 2
    assert cukern.full(2, cukern.asarray(3), "i4").tolist() == [3, 3]
    assert float(cukern.ones(1)) == 1.0
    assert cukern.stack([x, x]).shape == (2, 2, 3)
    assert cukern.concat([x, x], axis=None).shape == (12,)
    assert cukern.asnumpy(cukern.ones(2)).tolist() == [1, 1]
    assert "Array" in repr(x)
    assert x + x == 7 and (2 - cukern.ones(2)).tolist() == [1, 1]
    try:
        3 * cukern.ones(2) == 7
        np.dtype("int8") * cukern.ones(2)
    except TypeError:
        pass
"""


def test_patched_methods_are_not_trusted() -> None:
    assert run_quietly(PATCHED, CUKERN_BACKEND="host") == ""


def test_the_exchange_api_on_another_class() -> None:
    class Impostor:
        pass

    setattr(Impostor, EXCHANGE, getattr(cukern.Array, EXCHANGE))
    for call in (lambda: cukern.add(Impostor(), 1), lambda: cukern.add(cukern.ones(2), 1, out=Impostor())):
        with pytest.raises(TypeError, match=r"expected a cukern\.Array"):
            call()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="__buffer__ is of Python 3.12")
def test_buffers_without_a_shape_through_python() -> None:
    for x in (cukern.ones((2, 3), memory="pinned"), cukern.ones((), memory="pinned")):
        view = x.__buffer__(0)
        assert view.nbytes == x.nbytes
        view.release()


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["cuda"], indirect=True)
def test_an_interface_that_changes_while_it_is_read(backend: str) -> None:
    own = cukern.arange(6.0).reshape(2, 3)

    class Clearing(int):
        def __index__(self) -> int:
            Interface.items.clear()
            gc.collect()
            return 3

    class Interface:
        items: dict[str, Any]

        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            found = own.__cuda_array_interface__
            Interface.items = {**found, "shape": (2, Length()), "strides": (24, 8), "data": (found["data"][0], False)}
            return Interface.items

    class Length:
        def __index__(self) -> int:
            return Clearing(3).__index__()

    assert cukern.sum(Interface()) == 15
