"""What a function does with its arguments, recorded as the text of a kernel: see _fuse.py.

Arrays, and what is made of them, are `Traced`; numbers that are arguments are `TracedNumber`, and what Python computes
of them is computed anew in each call. Element types are those of the operations, which are called with arrays of no
elements.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import _cukern
from ._formula_kernel import Argument
from ._formula_source import Parameter

# The C++ types of elements in our headers (cuda/include/cukern/element_types.def).
CPP = {
    "bool": "cukern::Bool",
    "float16": "cukern::Float16",
    "bfloat16": "cukern::BFloat16",
    "float32": "float",
    "float64": "double",
    "complex64": "cukern::Complex64",
    "complex128": "cukern::Complex128",
}
CPP |= {f"{kind}{bits}": f"std::{kind}{bits}_t" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
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
        change(self._sample, _sample_of(self._trace.known(other)))  # raises where an array cannot take the result
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
    for name in ("__dlpack__", "__dlpack_device__"):  # what all other functions of cukern ask for
        setattr(Traced, name, _refuse("elementwise functions, astype and one reduction are fused, and no others"))
    TracedNumber.__hash__ = None  # type: ignore[assignment]


def _compare_number(number: TracedNumber, other: Any, function: str) -> Any:
    if isinstance(other, Traced):
        return NotImplemented
    if isinstance(other, _cukern.Array):
        return number._record(function, (number, other), {})
    return _refuse(_BRANCH)()


class Trace:
    """What a function has done with its arguments, as lines of a kernel."""

    def __init__(self) -> None:
        self.parameters: list[Parameter] = []
        # Of a call's arguments, what each parameter takes, and whether the kernel is made for that; None: it is.
        self.sources: list[tuple[Callable[[Sequence[Any]], Any], Callable[[Any], bool] | None]] = []
        self.lines: dict[str, str] = {}  # for each element: names and what they are
        self.lines_after: dict[str, str] = {}  # for each result of the reduction
        # Parameters whose arrays must broadcast to one shape, without and with others of them.
        self.same_shapes: list[tuple[frozenset[str], frozenset[str]]] = []
        self.reduction: tuple[str, str, str, dict[str, Any]] | None = None  # operation, element, value, options
        self.array_names: set[str] = set()
        self._numbers: dict[tuple[Any, str], str] = {}
        self._captured: dict[int, Traced] = {}
        self._count = 0

    @staticmethod
    def sample(element: str) -> Any:
        """Return an array of an element type, without elements."""
        return _cukern.empty((0, 1), element)

    def argument(self, index: int, kind: Any, value: Any) -> Any:
        """Return what stands for an argument: an array's element type tells the kind, or a number's Python type."""
        if isinstance(kind, type):
            return TracedNumber(self, value, lambda args: args[index])
        if isinstance(kind, tuple):  # a scalar of NumPy
            element = kind[0]
            name = self._parameter(element, _number_type(element), lambda args: args[index])
            return Traced(self, f"cukern::convert<{CPP[element]}>({_read_number(name, element)})", element, None)
        return self._array(kind, lambda args: args[index])

    def _array(self, element: str, source: Callable[[Sequence[Any]], Any]) -> Traced:
        name = self._parameter(element, CPP[element], source)
        self.array_names.add(name)
        return Traced(self, name, element, False, frozenset([name]))

    def _parameter(
        self,
        element: str,
        cpp: str,
        source: Callable[[Sequence[Any]], Any],
        takes: Callable[[Any], bool] | None = None,
    ) -> str:
        name = f"x{len(self.parameters)}"
        self.parameters.append(Parameter(name, element, cpp=cpp))
        self.sources.append((source, takes))
        return name

    def _line(self, expression: str, element: str, args: Sequence[Any], follows: bool) -> Traced:
        name = f"_t{self._count}"
        self._count += 1
        (self.lines_after if follows else self.lines)[name] = expression
        arrays = frozenset().union(*(arg._arrays for arg in args if isinstance(arg, Traced)))
        return Traced(self, name, element, follows, arrays)

    def live_names(self, texts: Sequence[str]) -> set[str]:
        """Return the names of lines and parameters that texts use, and what these use."""
        live: set[str] = set()
        waiting = list(texts)
        while waiting:
            for name in re.findall(r"\b(?:_t|x)\d+\b", waiting.pop()):
                if name not in live:
                    live.add(name)
                    waiting.append(self.lines.get(name) or self.lines_after.get(name) or "")
        return live

    def record(self, function: str, args: Sequence[Any], options: dict[str, Any]) -> Traced:
        """Record a call of a function of cukern."""
        for name in ("out", "stream", "device"):
            if options.get(name) is not None:
                raise CannotFuseError(f"fuse: {function}: {name}= has no meaning in a function that is fused")
        options = {name: value for name, value in options.items() if name not in ("out", "stream", "device")}
        if function == "astype":
            return self._cast(*args, **options)
        if function not in KINDS:
            raise CannotFuseError(f"fuse: {function} is not fused")
        if function == "clip":
            return self._clip(*args, **options)
        if KINDS[function] == "reduction":
            return self._reduce(function, *args, **options)
        if options:
            raise CannotFuseError(f"fuse: {function}: {', '.join(options)} has no meaning in a function that is fused")
        return self._operate(function, args)

    def _operate(self, function: str, args: Sequence[Any]) -> Traced:
        args = [self.known(arg) for arg in args]
        samples = [_sample_of(arg) for arg in args]
        element = str(getattr(_cukern, function)(*samples).dtype)
        if function in _COMPARED:
            args = _within_integers(args)
            samples = [_sample_of(arg) for arg in args]
        if KINDS[function] in ("unary", "binary", "scalar"):
            compute = _cukern._compute_type(function, *samples)
        else:
            compute = element
        follows = self._stage(function, args)
        values = [self._operand(arg, compute) for arg in args]
        if compute == "complex128" and function in _COMPARED and not any(_is_complex(sample) for sample in samples):
            # Of int64 and uint64, which no type holds: see cuda/src/formulas/evaluate.cuh.
            wide = ["uint64" if str(sample.dtype).startswith("u") else "int64" for sample in samples]
            values = [f"cukern::halves({self._operand(arg, own)})" for arg, own in zip(args, wide, strict=True)]
        if function == "where":
            values[0] = f"cukern::convert<{CPP[compute]}>({self._operand(args[0], 'bool')})"
        return self._line(f"cukern::fused<cukern::Op::{function}>({', '.join(values)})", element, args, follows)

    def _clip(self, a: Any, min: Any = None, max: Any = None) -> Traced:
        a = self.known(a)
        limits = _limits(str(_sample_of(a).dtype) if isinstance(a, Traced) else "")
        if limits is not None and any(
            isinstance(each, TracedNumber) and type(each._value) is int and not limits[0] <= each._value <= limits[1]
            for each in (min, max)
        ):
            raise RunAsItIs
        least = None if type(min) is int and limits is not None and min <= limits[0] else min
        most = None if type(max) is int and limits is not None and max >= limits[1] else max
        if least is not None and most is not None:
            return self._operate("clip", [a, least, most])
        if least is not None or most is not None:
            return self._operate("minimum" if least is None else "maximum", [a, most if least is None else least])
        return self._cast(a, _sample_of(a).dtype)

    def _cast(self, a: Any, dtype: Any, copy: bool = True) -> Traced:
        a = self.known(a)
        element = str(_cukern.astype(_sample_of(a), dtype).dtype)
        if not copy and isinstance(a, Traced) and a._element == element:
            return a
        return self._line(self._operand(a, element), element, [a], self._stage("astype", [a]))

    def _reduce(self, function: str, a: Any, axis: Any = None, **options: Any) -> Traced:
        if self.reduction is not None:
            raise CannotFuseError(f"fuse: {function} is the second reduction; a function that is fused has at most one")
        if not isinstance(a, Traced):
            raise CannotFuseError(f"fuse: {function} of a number")
        if isinstance(axis, list):
            raise TypeError(f"{function}: axis is {axis!r}; expected an int or a tuple of ints")
        keepdims = bool(options.pop("keepdims", False))
        correction = float(options.get("correction", 0.0))
        if function in INDICES and axis is not None and not hasattr(axis, "__index__"):
            raise TypeError(f"{function}: axis is {axis!r}; expected one int or None")
        element = str(getattr(_cukern, function)(a._sample, axis=1, **options).dtype)
        dtype = options.get("dtype")
        compute = _cukern._compute_type(function, a._sample)
        if dtype is not None:
            compute = str(_cukern.result_type(dtype))
        if compute == "bool":
            function = {"max": "any", "min": "all", "sum": "any", "prod": "all"}.get(function, function)
        value = self._operand(a, compute)
        self.reduction = (function, compute, value, {"axis": axis, "keepdims": keepdims})
        name = f"_t{self._count}"
        self._count += 1
        reducer = f"cukern::Reducer<cukern::Op::{function}, {CPP[compute]}>"
        finish = f"cukern::fused_finish(cukern::Op::{function}, _counts.length, {_double(correction)})"
        self.lines_after[name] = f"{reducer}::template result<{CPP[element]}>(a, {finish})"
        return Traced(self, name, element, True)

    def known(self, value: Any) -> Any:
        """Return an operand as it is recorded: an array from outside of the function becomes a parameter."""
        if isinstance(value, Traced | TracedNumber | NUMBERS | np.generic):
            return value
        if isinstance(value, list | tuple | str) or value is None:
            raise TypeError(f"fuse: {value!r} is no array and no number")
        found = self._captured.get(id(value))
        if found is None:
            element = Argument(value).element
            if element not in CPP:
                raise TypeError(f"fuse: an array of {element} is not taken")
            found = self._array(element, lambda _: value)
            self._captured[id(value)] = found
        return found

    def _stage(self, function: str, args: Sequence[Any]) -> bool:
        """Return whether an operation is on what a reduction has given, or on elements; it cannot be on both."""
        stages = {arg._follows for arg in args if isinstance(arg, Traced)} - {None}
        if len(stages) > 1:
            raise CannotFuseError(
                f"fuse: {function} takes what a reduction gives and what it reduces; a fused function goes over memory "
                "once, and what follows the reduction has its results and numbers"
            )
        return stages == {True}

    def _operand(self, value: Any, compute: str) -> str:
        """Return the text of an operand in the type that an operation computes in."""
        cpp = CPP[compute]
        if isinstance(value, Traced):
            return f"cukern::convert<{cpp}>({value._name})"
        if isinstance(value, TracedNumber):
            return self._number(value, compute)
        if isinstance(value, np.generic):
            own = str(value.dtype)
            return f"cukern::convert<{cpp}>(cukern::convert<{CPP[own]}>({_literal(value.item(), own)}))"
        return f"cukern::convert<{cpp}>({_literal(value, compute)})"

    def _number(self, value: TracedNumber, compute: str) -> str:
        """Return a number as a parameter of the type that an operation computes in."""
        key = (id(value), compute)
        kind = number_kind(value._value)
        element = "bool" if kind is bool else compute
        if key not in self._numbers:
            limits = _limits(element)

            def takes(number: Any) -> bool:
                return number_kind(number) is kind and (limits is None or limits[0] <= number <= limits[1])

            def truth(args: Sequence[Any]) -> bool:
                return bool(value._compute(args))

            if element != "bool":
                self._numbers[key] = self._parameter(element, _number_type(element), value._compute, takes)
            else:  # of what computes in bool, any number's truth
                self._numbers[key] = self._parameter(element, "bool", truth)
            self._captured[id(value)] = value  # type: ignore[assignment]  # so that its id stays its own
        return f"cukern::convert<{CPP[compute]}>({_read_number(self._numbers[key], element)})"


_COMPARED = set(COMPARISONS.values())
INDICES = ("argmax", "argmin")


def number_kind(value: Any) -> type | None:
    """Return which of Python's types a number has."""
    return next((kind for kind in (bool, int, float, complex) if isinstance(value, kind)), None)


def _within_integers(args: Sequence[Any]) -> list[Any]:
    """Of a comparison with integers: a number beyond all of them stands for infinity."""
    arrays = [_sample_of(arg) for arg in args if not isinstance(arg, NUMBERS | TracedNumber)]
    limits = _limits(str(_cukern.result_type(*arrays))) if arrays else None
    found = []
    for arg in args:
        number = arg._value if isinstance(arg, TracedNumber) else arg
        is_integer = isinstance(number, int) and not isinstance(number, bool | np.generic)
        if limits is None or not is_integer or limits[0] <= number <= limits[1]:
            found.append(arg)
        elif isinstance(arg, TracedNumber):
            raise RunAsItIs
        else:
            found.append(math.inf if number > 0 else -math.inf)
    return found


def _number_type(element: str) -> str:
    """Return the type of a parameter that takes a number for operations in an element type."""
    if "complex" in element:
        return "double2"
    return "double" if "float" in element else "bool" if element == "bool" else CPP[element]


def _read_number(name: str, element: str) -> str:
    return f"cukern::Complex128{{{name}.x, {name}.y}}" if "complex" in element else name


def _double(value: float) -> str:
    if math.isnan(value):
        return "cukern::bit_cast<double>(0x7FF8000000000000ULL)"
    if math.isinf(value):
        return f"cukern::bit_cast<double>({'0xFFF' if value < 0 else '0x7FF'}0000000000000ULL)"
    return value.hex()


def _literal(value: Any, compute: str) -> str:
    """Return a number of Python as C++: an integer, a double, or a complex number."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, complex):
        return f"cukern::Complex128{{{_double(value.real)}, {_double(value.imag)}}}"
    if isinstance(value, float) or "int" not in compute:
        try:
            return _double(float(value))
        except OverflowError:
            return _double(math.inf if value > 0 else -math.inf)
    return f"static_cast<{CPP[compute]}>({value % 2**64}ULL)"


def _sample_of(value: Any) -> Any:
    return value._sample if isinstance(value, Traced) else value._value if isinstance(value, TracedNumber) else value


def _is_complex(value: Any) -> bool:
    return isinstance(value, complex) or "complex" in str(getattr(value, "dtype", ""))


def _limits(element: str) -> tuple[int, int] | None:
    return (int(np.iinfo(element).min), int(np.iinfo(element).max)) if "int" in element else None


_add_operators()
_cukern._set_traced_type(Recorded)
