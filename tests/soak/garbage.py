"""Arguments that make no sense: objects whose hooks raise, return nonsense or call back, and plain wrong ones."""

from __future__ import annotations

import array
import datetime
import decimal
import fractions
import types
from collections.abc import Callable
from typing import Any

import numpy as np

import cukern

from .core import Case
from .draw import BFLOAT16, MEMORIES, array_of, dtype_of, shape_of, values_of

# Sizes are small, or so large that they are refused before memory is taken; no other number is a valid handle.
INTEGERS = [0, 1, -1, 2, -2, 3, 4, 2**61, 2**62, -(2**62), 2**63 - 1, -(2**63), 2**63, 2**64, -(2**64), 2**70, 10**400]
FLOATS = [0.0, -0.0, 1.0, 0.5, -3.0, 1e300, -1e300, float("inf"), -float("inf"), float("nan"), 5e-324]
TEXTS = ["", "device", "managed", "pinned", "float32", "int8", "bfloat16", "U3", "O", "\ud800", "x" * 3000, "é", "V8"]
NAMES = ["out", "stream", "axis", "dtype", "keepdims", "memory", "device", "copy", "blocking", "shape", "a", "", "\0"]
HOOKS = [
    *(
        "__index__",
        "__bool__",
        "__array__",
        "__len__",
        "__getitem__",
        "__iter__",
        "__float__",
        "__int__",
        "__complex__",
    ),
    *("__complex__", "__dlpack__", "__dlpack_device__", "__cuda_array_interface__", "__cuda_stream__"),
    *("__array_interface__", "__array_struct__", "__hash__", "__eq__", "__str__", "__repr__", "__array_ufunc__"),
    *("__array_function__", "__array_priority__", "__buffer__", "__class__", "__radd__", "__array_namespace__"),
    *("__contains__", "__dlpack_c_exchange_api__", "__getattr__", "__array_wrap__", "__array_finalize__"),
    *("dtype", "name", "__name__", "shape"),
]
PROPERTIES = (
    "__cuda_array_interface__",
    "__array_interface__",
    "__array_struct__",
    "__array_priority__",
    "dtype",
    "name",
)


ERRORS = [ValueError, TypeError, AttributeError, MemoryError, StopIteration, KeyError, IndexError, RuntimeError]


class Interrupt(KeyboardInterrupt):
    """What a hook raises that nobody may swallow."""


class Tracker:
    """What the hooks of one call did."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.raised: list[BaseException] = []
        self.depth = 0

    def act(self, hook: str, looked_up: bool = False) -> Any:
        """Raise, return nonsense, or call cukern."""
        case = self.case
        if self.depth > 3:
            return None
        match case.random.randrange(10):
            case 0 | 1:
                error = case.pick(
                    [ValueError, TypeError, AttributeError, MemoryError, StopIteration, KeyError, IndexError]
                )
                raise error(f"of {hook}")
            case 2:
                interrupt = Interrupt(f"the look-up of {hook}" if looked_up else hook)
                self.raised.append(interrupt)
                raise interrupt
            # NumPy keeps what `dtype` gives, if it is no dtype; CPython leaks what __hash__ gives, if it is no int.
            case 3 | 4 if hook not in ("dtype", "__hash__"):
                return reenter(case, self)
            case 5:
                return fitting(case, hook)
            case _:  # what is no handle of a stream must not be taken for one
                return fitting(case, hook) if hook == "__cuda_stream__" else plain(case)


def reenter(case: Case, tracker: Tracker) -> Any:
    """Call cukern from within a call."""
    tracker.depth += 1
    try:
        match case.random.randrange(6):
            case 0:
                return cukern.add(np.ones(3), 1)
            case 1:
                return cukern.zeros((2, 3)).sum()
            case 2:
                cukern.empty_cache()
                return 1
            case 3:
                cukern.synchronize()
                return cukern.asarray([1.0, 2.0])
            case 4:
                with cukern.Stream():
                    return cukern.ones(2, "int8")
            case _:
                return cukern.from_dlpack(np.ones(2)).__dlpack__()
    finally:
        tracker.depth -= 1


def fitting(case: Case, hook: str) -> Any:
    """Return what a hook should, or nearly."""
    values = np.ones(3, np.float32)
    interface = {"shape": (3,), "typestr": "<f4", "data": (case.pick([0, 1, 2**64, -1]), False), "version": 3}
    choices = {
        "__index__": lambda: case.pick([0, 1, -1, True]),
        "__bool__": lambda: case.chance(0.5),
        "__len__": lambda: case.pick([0, 1, 2, -1]),
        "__float__": lambda: 1.5,
        "__complex__": lambda: 1j,
        "__array__": lambda: values,
        "__dlpack__": values.__dlpack__,
        "__dlpack_device__": lambda: case.pick([(1, 0), (2, 0), (1, 0, 0), (1,), (1.0, 0), (2**40, 0), (1, -1)]),
        "__cuda_array_interface__": lambda: interface,
        "__array_interface__": lambda: values.__array_interface__,
        "__cuda_stream__": lambda: case.pick([(0, 1), (0, 2), (0,), (0, -1), (1, 1), (0, 2**64), [0, 1], None]),
        "__iter__": lambda: iter([1, 2]),
        "__str__": lambda: case.pick(["", "float32"]),
        "__repr__": lambda: "garbage",
        "__hash__": lambda: 3,
        "dtype": lambda: case.pick([np.dtype("float32"), "float32", 3]),
        "shape": lambda: (3,),
    }
    return choices.get(hook, lambda: plain(case))()


def hooked(case: Case, tracker: Tracker) -> Any:
    """Return an object with one to three hooks, of some base class."""
    hooks = case.random.sample(HOOKS, case.random.randint(1, 3))
    base = case.pick([object, object, object, int, float, tuple, list, dict, str, np.ndarray, complex, bytearray])
    body: dict[str, Any] = {}
    for hook in hooks:
        # NumPy 2.4's ufuncs end in a segmentation fault where looking up __array_wrap__ on an ndarray raises.
        # CPython's iter() of a dict without __iter__ is a SystemError where the class has __getitem__.
        may_raise = (hook, base) not in [("__array_wrap__", np.ndarray), ("__iter__", dict)]
        if hook in PROPERTIES:
            body[hook] = property(method(tracker, hook))
        elif may_raise and case.chance(0.1):
            body[hook] = property(method(tracker, hook, looked_up=True))
        else:
            body[hook] = method(tracker, hook)
    try:
        kind = type("Hooked", (base,), body)
        if base is np.ndarray:
            return np.ones(case.pick([0, 1, 3])).view(kind)
        return kind(*{int: (1,), float: (1.5,), tuple: ((1, 2),), list: ([1, 2],), str: ("x",)}.get(base, ()))
    except Exception:
        tracker.raised.clear()
        return None
    except KeyboardInterrupt:
        tracker.raised.clear()
        return None


def method(tracker: Tracker, hook: str, looked_up: bool = False) -> Callable[..., Any]:
    def act(*arguments: Any, **options: Any) -> Any:
        if hook == "__getattr__":
            raise AttributeError(arguments[-1])
        return tracker.act(hook, looked_up)

    return act


def plain(case: Case) -> Any:
    """Return something that is no sensible argument, of no hooks."""
    match case.random.randrange(16):
        case 0:
            return None
        case 1 | 2:
            return case.pick(INTEGERS)
        case 3:
            return case.pick(FLOATS)
        case 4:
            return case.pick(TEXTS)
        case 5:
            return case.pick([(), (1,), (1, 2), (2, 3, 4), (0, 2**62), (-1,), (1,) * 65, (None,), ("x",), (1.5,)])
        case 6:
            return case.pick([[], [1], [1, 2], [[1], [2]], [[1], [1, 2]], [None], ["x"], [[]] * 3, [[[[]]]]])
        case 7:
            return case.pick(
                [{}, {"out": 1}, {1: 2}, set(), frozenset([1]), range(3), range(2**62), iter([1]), slice(1, 2)]
            )
        case 8:
            return case.pick([int, float, object, np.float32, np.ndarray, cukern.Array, type, cukern.Stream, Exception])
        case 9:
            return case.pick([b"", b"abc", bytearray(8), memoryview(b"12345678").cast("d"), array.array("f", [1, 2])])
        case 10:
            return case.pick([Ellipsis, NotImplemented, True, False, 1j, complex("nan"), len, print, types])
        case 11:
            return case.pick([decimal.Decimal(1), fractions.Fraction(1, 3), datetime.date(2024, 1, 1)])
        case 12:
            return case.pick(strange_arrays())
        case 13:
            return (value for value in [1, 2, 3])
        case 14:
            return np.dtype(case.pick(["f4", "i8", ">f4", "U3", "O", "V3", "m8[s]", [("a", "f4")], "c16", "?"]))
        case _:
            return case.pick(
                [np.float32(1), np.int8(-1), np.uint64(2**64 - 1), np.datetime64(1, "s"), np.str_("x"), np.bool_(True)]
            )


def strange_arrays() -> list[Any]:
    """Return ndarrays that are refused, or nearly."""
    return [
        np.array(["a", "b"]),
        np.array([None, 1]),
        np.zeros(3, ">f4"),
        np.zeros(3, [("x", "f4")]),
        np.zeros(2, "m8[s]"),
        np.zeros((0, 3)),
        np.zeros((1,) * 64, np.int8),
        np.lib.stride_tricks.as_strided(np.zeros(7), (4, 4), (8, 8)),
        np.lib.stride_tricks.as_strided(np.zeros(4), (4,), (0,)),
        np.ma.masked_array([1.0, 2.0], [True, False]),
        np.matrix([[1.0, 2.0]]),
        np.zeros(3).view(np.recarray),
        np.zeros(3, np.longdouble),
        np.zeros(3, np.clongdouble),
    ]


def own_objects(case: Case) -> Any:
    """Return an object of cukern's."""
    match case.random.randrange(9):
        case 0:
            return cukern.Stream()
        case 1:
            return cukern.Event()
        case 2:
            return cukern.Device()
        case 3:
            return cukern.Stream().record()
        case 4:
            return cukern.ones((2, 3)).__dlpack__(max_version=(1, 0))
        case _:
            return good_array(case)


def good_array(case: Case) -> Any:
    """Return an Array or ndarray that is all right."""
    dtype = dtype_of(case)
    shape = case.pick([(), (3,), (2, 3), (3, 3), (0,), (1, 3)]) if case.chance(0.8) else shape_of(case, 4, 200)
    values = values_of(case, shape, dtype)
    if case.chance(0.3):
        return np.asarray(values)
    return array_of(case, np.asarray(values), case.pick(MEMORIES))


def anything(case: Case, tracker: Tracker) -> Any:
    """Return any argument."""
    match case.random.randrange(10):
        case 0 | 1 | 2:
            return hooked(case, tracker)
        case 3 | 4:
            return own_objects(case)
        case 5:
            return [anything(case, tracker) for _ in range(case.random.randint(0, 3))] if case.chance(0.6) else BFLOAT16
        case 6:
            return tuple(plain(case) for _ in range(case.random.randint(0, 3)))
        case _:
            return plain(case)
