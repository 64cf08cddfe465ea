"""Calls with arguments that make no sense: an exception is right, all else is not."""

from __future__ import annotations

import copy
import operator
import pickle
from collections.abc import Callable
from typing import Any

import cukern
from cukern import _cukern

from .core import Case, describe
from .garbage import NAMES, Interrupt, Tracker, anything, good_array

PUBLIC = [name for name in cukern.__all__ if callable(getattr(cukern, name))]
# What would change the process for all later cases.
LEFT_OUT = {"set_memory_limit", "get_include", "library_path"}
FUNCTIONS: dict[str, Callable[..., Any]] = {name: getattr(cukern, name) for name in PUBLIC if name not in LEFT_OUT}
FUNCTIONS["_restore"] = _cukern._restore
# Their numbers can be taken for handles of streams, which none is; see SAFE.
WITH_HANDLES = {"from_handle", "copyto", "record", "__dlpack__", "wait_event", "get"}
SAFE = (0, 1, 2, -1, 2**64, -(2**64), 2**70)
OPERATORS: list[Callable[..., Any]] = [
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow),
    *(operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift, operator.matmul, operator.eq),
    *(operator.ne, operator.lt, operator.le, operator.gt, operator.ge, operator.iadd, operator.isub, operator.imul),
    *(operator.itruediv, operator.ifloordiv, operator.imod, operator.ipow, operator.iand, operator.ior),
    *(operator.ixor, operator.ilshift, operator.irshift, operator.imatmul, operator.getitem, operator.contains),
    *(operator.delitem, divmod, pow, getattr, format, isinstance),
]
UNARY: list[Callable[..., Any]] = [
    *(operator.neg, operator.pos, operator.abs, operator.invert, operator.index, operator.not_, len, int, float, bool),
    *(complex, str, repr, iter, list, hash, round, memoryview, bytes, dir, copy.copy, copy.deepcopy, vars, next),
    *(operator.length_hint, pickle.dumps, reversed, sorted, sum, any, bytearray, ascii, set),
]
TYPES = [cukern.Array, cukern.Stream, cukern.Event, cukern.Device]
# Of what their look-up on the type raises, Python makes an object that lacks them.
PYTHONS = [f"the look-up of {hook}" for hook in ("__repr__", "__hash__", "__iter__", "__eq__")]
MADE_BY_NUMPY = ("arange", "linspace")
# Slots that a type must not be asked to run twice on an object that is alive, and what leaves the process changed.
METHODS_LEFT_OUT = {"__class__", "__init_subclass__", "__subclasshook__", "__getattribute__", "__del__", "__enter__"}


def methods_of(kind: type) -> list[str]:
    return [name for name in dir(kind) if name not in METHODS_LEFT_OUT]


METHODS = {kind: methods_of(kind) for kind in TYPES}


def guard_handle(case: Case, name: str, value: Any) -> Any:
    """Return a value that is no stray handle: of numbers only those that are known."""
    kind = type(value)
    if (name in WITH_HANDLES or name == "stream") and kind is not bool:
        if kind is int:
            return value if value in SAFE else case.pick(SAFE)
        if issubclass(kind, int) or kind.__module__ == "numpy" or hasattr(kind, "__index__"):
            return None
    return value


def options_of(case: Case, tracker: Tracker, name: str) -> dict[str, Any]:
    """Return random keywords."""
    options: dict[str, Any] = {}
    while case.chance(0.35):
        key = case.pick(NAMES)
        value = good_array(case) if key == "out" and case.chance(0.5) else anything(case, tracker)
        options[key] = guard_handle(case, "stream" if key == "stream" else name, value)
    return options


def arguments_of(case: Case, tracker: Tracker, name: str) -> list[Any]:
    """Return random arguments, of which some are sensible, so that the call gets further."""
    count = case.pick([0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 4, 7])
    found = []
    for i in range(count):
        sensible = case.chance(0.6 if i == 0 else 0.3)
        value = good_array(case) if sensible else anything(case, tracker)
        found.append(guard_handle(case, name, value))
    return found


def subject_of(case: Case) -> tuple[type, Any]:
    kind = case.pick([cukern.Array] * 5 + TYPES[1:])
    if kind is cukern.Array:
        while type(subject := good_array(case)) is not cukern.Array:
            pass
        return kind, subject
    return kind, kind()


def draw_call(case: Case, tracker: Tracker) -> tuple[str, Callable[..., Any], list[Any], dict[str, Any]]:
    """Return a function, its arguments and keywords."""
    match case.random.randrange(10):
        case 0 | 1 | 2 | 3 | 4:
            name = case.pick(list(FUNCTIONS))
            return name, FUNCTIONS[name], arguments_of(case, tracker, name), options_of(case, tracker, name)
        case 5:
            kind, subject = subject_of(case)
            function = case.pick(OPERATORS)
            other = guard_handle(case, "", anything(case, tracker))
            # Python looks for what is no integer in a range by comparing it with each number: range(2**62) has many.
            pair = [subject, other] if case.chance(0.7) or type(other) is range else [other, subject]
            return function.__name__, function, pair, {}
        case 6:
            _, subject = subject_of(case)
            function = case.pick(UNARY)
            return function.__name__, function, [subject], {}
        case 7:
            _, subject = subject_of(case)
            return "setitem", operator.setitem, [subject, anything(case, tracker), anything(case, tracker)], {}
        case _:
            kind, subject = subject_of(case)
            name = case.pick(METHODS[kind])
            unbound = case.chance(0.15)
            holder = kind if unbound else subject
            arguments = arguments_of(case, tracker, name)
            if unbound and case.chance(0.7):
                arguments.insert(0, subject)
            return (
                name,
                lambda *a, **k: use_attribute(case, holder, name, a, k),
                arguments,
                options_of(case, tracker, name),
            )


def use_attribute(holder: Any, name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Call a method; read, set or delete what is none."""
    value = getattr(holder, name)
    if callable(value):
        return value(*arguments, **options)
    if not isinstance(holder, type) and arguments:
        setattr(holder, name, arguments[0])
    return value


def swallowed(tracker: Tracker, error: BaseException | None) -> BaseException | None:
    """Return an interrupt that a hook has raised and that has not come back."""
    seen: list[BaseException] = []
    chain: BaseException | None = error
    while chain is not None and chain not in seen:
        seen.append(chain)
        chain = chain.__cause__ or chain.__context__
    pythons = list(PYTHONS)
    if isinstance(error, AttributeError):
        pythons.append("__hash__")  # of an attribute's name
    if "int() argument must be" in str(error):
        pythons.append("__buffer__")
    lost = [raised for raised in tracker.raised if str(raised) not in pythons]
    return next((raised for raised in lost if not any(raised is each for each in seen)), None)


def is_numpys(tracker: Tracker, name: str, arguments: list[Any]) -> bool:
    """Whether NumPy swallows what these hooks raise.

    It does in the elements of a sequence, of the priority of an operand, and of a bound's buffer.
    """
    hooks = ("__array_priority__", "__buffer__") if name in MADE_BY_NUMPY else ("__array_priority__",)
    return any(str(raised).endswith(hooks) for raised in tracker.raised) or any(
        issubclass(type(each), list | tuple | dict) for each in arguments
    )


def run(case: Case) -> None:
    """Run one case."""
    tracker = Tracker(case)
    name, function, arguments, options = draw_call(case, tracker)
    case.note_call(name, *arguments, **options)
    tracker.raised.clear()
    error: BaseException | None = None
    try:
        use(case, function(*arguments, **options))
    except (SystemError, AssertionError):
        raise
    except Exception as problem:
        error = problem
        case.refused += 1
    except Interrupt as problem:
        error = problem
    try:
        if isinstance(error, TypeError | ValueError) and type(error).__module__ == "builtins":
            case.check(str(error), f"{name}: {type(error).__name__} without a message")
        lost = swallowed(tracker, error)
        if lost is not None and not is_numpys(tracker, name, [*arguments, *options.values()]):
            told = f"{type(error).__name__}: {error}" if error else "a result"
            case.fail(f"{name}: a KeyboardInterrupt of {lost} was swallowed; {told}")
    finally:  # a type that cukern remembers leads here
        tracker.raised.clear()
        error = None


def use(case: Case, result: Any) -> None:
    """Look at a result: it has to be whole."""
    if type(result) is cukern.Array and result.size < 10_000 and case.chance(0.5):
        describe(result)
        cukern.asnumpy(result)
        repr(result)
