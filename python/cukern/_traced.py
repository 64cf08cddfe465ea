"""What stands for the arguments of a function that is fused, and for what it makes of them: see _trace.py.

Arrays, and what is made of them, are `Traced`; numbers that are arguments are `TracedNumber`, and what Python computes
of them is computed anew in each call.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _cukern

if TYPE_CHECKING:
    from ._trace import Trace

KINDS = {row["name"]: row["kind"] for row in _cukern._table} | {"clip": "choice"}
NUMBERS = bool | int | float | complex


class CannotFuseError(TypeError):
    """A function does what a kernel cannot be made of."""


class RunAsItIs(Exception):
    """A call is to be made without a kernel: its numbers are of other types than a kernel would be made for."""


def _refuse(what: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise CannotFuseError(f"fuse: {what}")

    return refuse


_BRANCH = "a function that is fused cannot look at values, as `if`, `while`, `and`, `float()` do; take cukern.where"
_SHAPE = "a function that is fused sees no shapes, indices or elements; do this outside of it"
_LOOKS = ("__bool__", "__float__", "__int__", "__index__", "__complex__")
_PARTS = ("__len__", "__iter__", "__getitem__", "__setitem__", "__array__", "__contains__")

# Operators by the operations that they are.
BINARY = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "pow",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift",
}
COMPARISONS = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}
UNARY = {"neg": "negative", "pos": "positive", "abs": "abs", "invert": "bitwise_invert"}
METHODS = [name for name in KINDS if KINDS[name] == "reduction"]


class Recorded:
    """What stands for an argument, or for what is made of arguments, in a function that is traced."""

    _trace: Trace

    def _record(self, function: str, args: Sequence[Any], options: dict[str, Any]) -> Traced:
        """Record a call of a function of cukern, which calls this where an argument is such a value."""
        return self._trace.record(function, args, options)


class Traced(Recorded):
    """An array, or what has been made of arrays."""

    def __init__(
        self, trace: Trace, name: str, element: str, follows: bool | None = False, arrays: frozenset[str] = frozenset()
    ) -> None:
        self._trace = trace
        self._name = name  # in the kernel's text
        self._element = element
        self._follows = follows  # whether it follows a reduction; None: a scalar of NumPy, which may be anywhere
        self._arrays = arrays  # parameters whose shapes its own is made of

    @property
    def dtype(self) -> Any:
        """The element type."""
        return self._sample.dtype

    @property
    def _sample(self) -> Any:
        return self._trace.sample(self._element)

    def astype(self, dtype: Any, *, copy: bool = True) -> Any:
        """Return the elements as another type."""
        return self._record("astype", (self, dtype), {"copy": copy})

    def _assign(self, value: Traced) -> Traced:
        """Become another value, as an array does that is changed in place: all names of it see that."""
        if self._name.startswith("x"):
            raise CannotFuseError(
                "fuse: a function that is fused cannot change its arguments in place; return the value"
            )
        self._trace.same_shapes.append((self._arrays, self._arrays | value._arrays))
        self._name = value._name
        return self

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Record a call of a function of NumPy."""
        return self._record(_name_of_ufunc(ufunc, method), inputs, options)

    def __getattr__(self, name: str) -> Any:
        if name in METHODS:
            return lambda *args, **options: self._record(name, (self, *args), options)
        if name.startswith("__"):
            raise AttributeError(name)
        raise CannotFuseError(f"fuse: .{name} of an array: {_SHAPE}")

    __hash__ = None  # type: ignore[assignment]


class TracedNumber(Recorded):
    """A number of Python that is an argument: what is computed of it in Python is computed in each call."""

    def __init__(self, trace: Trace, value: Any, compute: Callable[[Sequence[Any]], Any]) -> None:
        self._trace = trace
        self._value = value  # in the call that is traced: its type counts
        self._compute = compute

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Record a call of a function of NumPy that has arrays among its operands."""
        if not any(isinstance(each, np.ndarray | Traced | _cukern.Array) for each in inputs):
            raise CannotFuseError(
                "fuse: functions and scalars of NumPy make no number of Python from one that is an argument; "
                "compute with Python's numbers"
            )
        return self._record(_name_of_ufunc(ufunc, method), inputs, options)


_UFUNCS = {
    "true_divide": "divide",
    "power": "pow",
    "absolute": "abs",
    "conjugate": "conj",
    "invert": "bitwise_invert",
    "mod": "remainder",
    "left_shift": "bitwise_left_shift",
    "right_shift": "bitwise_right_shift",
    "rint": "round",
}


def _name_of_ufunc(ufunc: Any, method: str) -> str:
    name: str = _UFUNCS.get(ufunc.__name__, ufunc.__name__)
    name = name.replace("arc", "a") if name.startswith("arc") else name
    if method != "__call__" or KINDS.get(name) not in ("unary", "binary"):
        raise CannotFuseError(f"fuse: numpy.{ufunc.__name__} is no operation of cukern that is fused")
    return name


def _number_operator(table: str, function: Callable[..., Any], swapped: bool = False) -> Callable[..., Any]:
    def apply(self: TracedNumber, *others: Any) -> Any:
        operands = [self, *others]
        if swapped:
            operands.reverse()
        if any(isinstance(other, _cukern.Array) for other in others):
            return self._record(table, operands, {})
        if not all(isinstance(other, NUMBERS | TracedNumber) for other in others):
            return NotImplemented

        def compute(args: Sequence[Any]) -> Any:
            return function(*(each._compute(args) if isinstance(each, TracedNumber) else each for each in operands))

        value = function(*(each._value if isinstance(each, TracedNumber) else each for each in operands))
        return TracedNumber(self._trace, value, compute)

    return apply


def _array_operator(function: str, swapped: bool = False) -> Callable[..., Any]:
    def apply(self: Traced, *others: Any) -> Any:
        return self._record(function, (*others, self) if swapped else (self, *others), {})

    return apply


def _in_place_operator(name: str, function: str) -> Callable[..., Any]:
    change = getattr(operator, f"i{name}")

    def apply(self: Traced, other: Any) -> Any:
        if self._follows is None:  # a scalar of NumPy, which does not change
            return self._record(function, (self, other), {})
        change(self._sample, sample_of(self._trace.known(other)))  # raises where an array cannot take the result
        result = self._record(function, (self, other), {})
        return self._assign(self._trace.record("astype", (result, self._element), {}))

    return apply


def _add_operators() -> None:
    for name, function in {**BINARY, **COMPARISONS, **UNARY}.items():
        setattr(Traced, f"__{name}__", _array_operator(function))
        python = getattr(operator, f"{name}_" if name in ("and", "or") else name)
        if name in COMPARISONS:  # which a branch would follow
            continue
        setattr(TracedNumber, f"__{name}__", _number_operator(function, python))
        if name in BINARY:
            setattr(Traced, f"__r{name}__", _array_operator(function, swapped=True))
            setattr(Traced, f"__i{name}__", _in_place_operator(name, function))
            setattr(TracedNumber, f"__r{name}__", _number_operator(function, python, swapped=True))
    for name in _LOOKS:
        setattr(Traced, name, _refuse(_BRANCH))
        setattr(TracedNumber, name, _refuse(_BRANCH))
    for name, function in COMPARISONS.items():
        setattr(TracedNumber, f"__{name}__", lambda self, other, name=function: _compare_number(self, other, name))
    for name in _PARTS:
        setattr(Traced, name, _refuse(_SHAPE))
    # What all other functions of cukern ask for, and what Arrays have beside operators of elements.
    for name in ("__dlpack__", "__dlpack_device__", "__matmul__", "__rmatmul__", "__imatmul__", "__round__"):
        setattr(Traced, name, _refuse("elementwise functions, astype and one reduction are fused, and no others"))
    TracedNumber.__hash__ = None  # type: ignore[assignment]


def _compare_number(number: TracedNumber, other: Any, function: str) -> Any:
    if isinstance(other, Traced):
        return NotImplemented
    if isinstance(other, _cukern.Array):
        return number._record(function, (number, other), {})
    return _refuse(_BRANCH)()


def sample_of(value: Any) -> Any:
    """Return what an operand's types are found by: an array without elements, or a number."""
    return value._sample if isinstance(value, Traced) else value._value if isinstance(value, TracedNumber) else value


_add_operators()
_cukern._set_traced_type(Recorded)
