"""What a function does with its arguments, recorded as the text of a kernel: see _fuse.py.

Element types are those of the operations, which are called with arrays of no elements. What stands for arrays and
numbers meanwhile is in _traced.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import _cukern
from ._formula_argument import Argument
from ._formula_source import Parameter
from ._number_text import CPP, double_text, limits_of, literal, number_kind, number_type, read_number
from ._traced import COMPARISONS, KINDS, NUMBERS, CannotFuseError, RunAsItIs, Traced, TracedNumber, sample_of


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
            name = self._parameter(element, number_type(element), lambda args: args[index])
            return Traced(self, f"cukern::convert<{CPP[element]}>({read_number(name, element)})", element, None)
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
        samples = [sample_of(arg) for arg in args]
        element = str(getattr(_cukern, function)(*samples).dtype)
        if function in _COMPARED:
            args = _within_integers(args)
            samples = [sample_of(arg) for arg in args]
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
        limits = limits_of(str(sample_of(a).dtype) if isinstance(a, Traced) else "")
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
        return self._cast(a, sample_of(a).dtype)

    def _cast(self, a: Any, dtype: Any, copy: bool = True) -> Traced:
        a = self.known(a)
        element = str(_cukern.astype(sample_of(a), dtype).dtype)
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
        finish = f"cukern::fused_finish(cukern::Op::{function}, _counts.length, {double_text(correction)})"
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
            return f"cukern::convert<{cpp}>(cukern::convert<{CPP[own]}>({literal(value.item(), own)}))"
        return f"cukern::convert<{cpp}>({literal(value, compute)})"

    def _number(self, value: TracedNumber, compute: str) -> str:
        """Return a number as a parameter of the type that an operation computes in."""
        key = (id(value), compute)
        kind = number_kind(value._value)
        element = "bool" if kind is bool else compute
        if key not in self._numbers:
            limits = limits_of(element)

            def takes(number: Any) -> bool:
                return number_kind(number) is kind and (limits is None or limits[0] <= number <= limits[1])

            def truth(args: Sequence[Any]) -> bool:
                return bool(value._compute(args))

            if element != "bool":
                self._numbers[key] = self._parameter(element, number_type(element), value._compute, takes)
            else:  # of what computes in bool, any number's truth
                self._numbers[key] = self._parameter(element, "bool", truth)
            self._captured[id(value)] = value  # type: ignore[assignment]  # so that its id stays its own
        return f"cukern::convert<{CPP[compute]}>({read_number(self._numbers[key], element)})"


_COMPARED = set(COMPARISONS.values())
INDICES = ("argmax", "argmin")


def _within_integers(args: Sequence[Any]) -> list[Any]:
    """Of a comparison with integers: a number beyond all of them stands for infinity."""
    arrays = [sample_of(arg) for arg in args if not isinstance(arg, NUMBERS | TracedNumber)]
    limits = limits_of(str(_cukern.result_type(*arrays))) if arrays else None
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


def _is_complex(value: Any) -> bool:
    return isinstance(value, complex) or "complex" in str(getattr(value, "dtype", ""))
