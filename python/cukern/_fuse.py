"""`fuse`: a function of arrays as one kernel.

The function is called once for each combination of element types, with values that record what is done with them
(`Trace`). What it has recorded is written as a formula of the same C++ templates that the operations are made of, and
becomes a kernel of formulas. Element types are those of the operations: each is called with arrays of no elements.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import _cukern
from ._elementwise_kernel import ElementwiseKernel
from ._formula_kernel import Argument
from ._formula_source import Parameter
from ._reduction_kernel import ReductionKernel
from ._reduction_source import ReductionFormula

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

PREAMBLE = """#include "formulas/reducers.cuh"
#include "formulas/evaluate.cuh"
namespace cukern {
// One operation of a fused function.
template <Op op, typename T, typename... Others> CUKERN_HD auto fused(T a, Others... others) {
    if constexpr (op < Op::copy && is_identity(op, ElementTypeOf<T>::value))
        return a;
    else
        return evaluate<op>(a, others...);
}
}
"""


class CannotFuseError(TypeError):
    """A function does what a kernel cannot be made of."""


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

    def __init__(self, trace: Trace, name: str, element: str, follows: bool = False) -> None:
        self._trace = trace
        self._name = name  # in the kernel's text
        self._element = element
        self._follows = follows  # whether it follows a reduction

    @property
    def dtype(self) -> Any:
        """The element type."""
        return self._sample.dtype

    @property
    def _sample(self) -> Any:
        return self._trace.sample(self._element)

    def astype(self, dtype: Any, *, copy: bool = True) -> Any:
        """Return the elements as another type."""
        return self._record("astype", (self, dtype), {})

    def _assign(self, value: Traced) -> Traced:
        """Become another value, as an array does that is changed in place: all names of it see that."""
        if self._name.startswith("x"):
            raise CannotFuseError(
                "fuse: a function that is fused cannot change its arguments in place; return the value"
            )
        self._name = value._name
        return self

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Record a call of a function of NumPy."""
        name = {"true_divide": "divide", "power": "pow", "absolute": "abs"}.get(ufunc.__name__, ufunc.__name__)
        name = {"conjugate": "conj", "invert": "bitwise_invert", "mod": "remainder"}.get(name, name)
        name = name.replace("arc", "a") if name.startswith("arc") else name
        if method != "__call__" or KINDS.get(name) not in ("unary", "binary"):
            raise CannotFuseError(f"fuse: numpy.{ufunc.__name__} is no operation of cukern that is fused")
        return self._record(name, inputs, options)

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


def _number_operator(name: str, function: Callable[..., Any], swapped: bool = False) -> Callable[..., Any]:
    def apply(self: TracedNumber, *others: Any) -> Any:
        if not all(isinstance(other, NUMBERS | TracedNumber) for other in others):
            return NotImplemented
        operands = [self, *others]
        if swapped:
            operands.reverse()

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
        setattr(TracedNumber, f"__{name}__", _number_operator(name, python))
        if name in BINARY:
            setattr(Traced, f"__r{name}__", _array_operator(function, swapped=True))
            setattr(Traced, f"__i{name}__", _in_place_operator(name, function))
            setattr(TracedNumber, f"__r{name}__", _number_operator(name, python, swapped=True))
    for name in _LOOKS:
        setattr(Traced, name, _refuse(_BRANCH))
        setattr(TracedNumber, name, _refuse(_BRANCH))
    for name in (f"__{each}__" for each in COMPARISONS):
        setattr(TracedNumber, name, lambda self, other, name=name: _compare_numbers(self, other, name))
    for name in _PARTS:
        setattr(Traced, name, _refuse(_SHAPE))
    for name in ("__dlpack__", "__dlpack_device__"):  # what all other functions of cukern ask for
        setattr(Traced, name, _refuse("elementwise functions, astype and one reduction are fused, and no others"))
    TracedNumber.__hash__ = None  # type: ignore[assignment]


def _compare_numbers(number: TracedNumber, other: Any, name: str) -> Any:
    if isinstance(other, Traced):
        return NotImplemented
    return _refuse(_BRANCH)()


class Trace:
    """What a function has done with its arguments, as lines of a kernel."""

    def __init__(self) -> None:
        self.parameters: list[Parameter] = []
        self.sources: list[Callable[[Sequence[Any]], Any]] = []  # of the arguments, what each parameter takes
        self.lines: list[str] = []  # for each element
        self.lines_after: list[str] = []  # for each result of the reduction
        self.reduction: tuple[str, str, str, dict[str, Any]] | None = None  # operation, element, value, options
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
            return self._line(f"cukern::convert<{CPP[element]}>({_read_number(name, element)})", element, False)
        return Traced(self, self._parameter(kind, CPP[kind], lambda args: args[index]), kind)

    def _parameter(self, element: str, cpp: str, source: Callable[[Sequence[Any]], Any]) -> str:
        name = f"x{len(self.parameters)}"
        self.parameters.append(Parameter(name, element, cpp=cpp))
        self.sources.append(source)
        return name

    def _line(self, expression: str, element: str, follows: bool) -> Traced:
        name = f"_t{self._count}"
        self._count += 1
        lines = self.lines_after if follows else self.lines
        lines.append(f"[[maybe_unused]] const auto {name} = {expression};")
        return Traced(self, name, element, follows)

    def record(self, function: str, args: Sequence[Any], options: dict[str, Any]) -> Traced:
        """Record a call of a function of cukern."""
        for name in ("out", "stream", "device"):
            if options.get(name) is not None:
                raise CannotFuseError(f"fuse: {function}: {name}= has no meaning in a function that is fused")
        options = {name: value for name, value in options.items() if name not in ("out", "stream", "device")}
        if function == "astype":
            return self._cast(*args)
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
        return self._line(f"cukern::fused<cukern::Op::{_cpp_name(function)}>({', '.join(values)})", element, follows)

    def _clip(self, a: Any, min: Any = None, max: Any = None) -> Traced:
        a = self.known(a)
        limits = _limits(str(_sample_of(a).dtype) if isinstance(a, Traced) else "")
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
        return self._line(self._operand(a, element), element, self._stage("astype", [a]))

    def _reduce(self, function: str, a: Any, axis: Any = None, **options: Any) -> Traced:
        if self.reduction is not None:
            raise CannotFuseError(f"fuse: {function} is the second reduction; a function that is fused has at most one")
        if not isinstance(a, Traced):
            raise CannotFuseError(f"fuse: {function} of a number")
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
        finish = f"cukern::finish_of(cukern::Op::{function}, _counts.length, {_double(correction)})"
        self.lines_after.append(f"const auto {name} = _Reducer::result<{CPP[element]}>(a, {finish});")
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
            found = Traced(self, self._parameter(element, CPP[element], lambda _: value), element)
            self._captured[id(value)] = found
        return found

    def _stage(self, function: str, args: Sequence[Any]) -> bool:
        """Return whether an operation is on what a reduction has given, or on elements; it cannot be on both."""
        stages = {arg._follows for arg in args if isinstance(arg, Traced)}
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
        element = "bool" if isinstance(value._value, bool) else compute
        if key not in self._numbers:
            self._numbers[key] = self._parameter(element, _number_type(element), value._compute)
            self._captured[id(value)] = value  # type: ignore[assignment]  # so that its id stays its own
        return f"cukern::convert<{CPP[compute]}>({_read_number(self._numbers[key], element)})"


_COMPARED = set(COMPARISONS.values())
INDICES = ("argmax", "argmin")


def _cpp_name(function: str) -> str:
    return f"{function}_" if function in ("and", "or", "not") else function


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
            return _double(math.copysign(math.inf, value))
    return f"static_cast<{CPP[compute]}>({value % 2**64}ULL)"


def _sample_of(value: Any) -> Any:
    return value._sample if isinstance(value, Traced) else value._value if isinstance(value, TracedNumber) else value


def _is_complex(value: Any) -> bool:
    return isinstance(value, complex) or "complex" in str(getattr(value, "dtype", ""))


def _limits(element: str) -> tuple[int, int] | None:
    return (int(np.iinfo(element).min), int(np.iinfo(element).max)) if "int" in element else None


class _FusedElementwise(ElementwiseKernel):
    """The kernel of a function without a reduction."""

    def __init__(self, trace: Trace, outputs: Sequence[Traced], name: str) -> None:
        results = [f"y{i} = {each._name};" for i, each in enumerate(outputs)]
        super().__init__(
            tuple(trace.parameters),  # type: ignore[arg-type]
            _outputs_of(outputs),  # type: ignore[arg-type]
            "\n".join([*trace.lines, *results]),
            name,
            preamble=PREAMBLE,
            options=options(),
        )


class _FusedReduction(ReductionKernel):
    """The kernel of a function that ends in a reduction."""

    def __init__(self, trace: Trace, outputs: Sequence[Traced], name: str) -> None:
        assert trace.reduction is not None
        function, compute, value, self._axes = trace.reduction
        super().__init__(
            tuple(trace.parameters),  # type: ignore[arg-type]
            _outputs_of(outputs),  # type: ignore[arg-type]
            *("", "", "", ""),
            name=name,
            options=options(),
        )
        lines = [*trace.lines_after, *(f"y{i} = {each._name};" for i, each in enumerate(outputs))]
        self._fused = ReductionFormula(
            name=name,
            map=f"_Reducer::of({value}, {'_J' if function in INDICES else '0'})",
            reducer=f"struct _Reducer : cukern::Reducer<cukern::Op::{function}, {CPP[compute]}> {{}};\n",
            post_map="\n".join(lines),
            has_identity=function not in ("max", "min", "argmax", "argmin"),
            preamble=PREAMBLE,
            map_statements="\n".join(trace.lines),
        )

    def _formula(self, types: dict[str, str], elements: Sequence[str]) -> ReductionFormula:
        return self._fused

    def __call__(self, *args: Any, **given: Any) -> Any:
        return super().__call__(*args, **self._axes, **given)


def _outputs_of(outputs: Sequence[Traced]) -> tuple[Parameter, ...]:
    return tuple(Parameter(f"y{i}", each._element, cpp=CPP[each._element]) for i, each in enumerate(outputs))


def options() -> tuple[str, ...]:
    """Return what NVRTC needs for the headers of our formulas."""
    package = Path(__file__).parent
    installed = package / "device"
    tree = package.parent.parent / "cuda"  # of an editable install
    folders = [installed, package / "include", installed / "rtc"]
    if not installed.is_dir():
        folders = [tree / "src", tree / "include", tree / "rtc"]
    return ("-std=c++17", "-default-device", *(f"-I{folder}" for folder in folders))


class Fused:
    """A function that runs as one kernel: what `fuse` returns."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._name = name
        self._by_key: dict[bytes | None, Any] = {}  # by what is known of the arguments
        self._by_types: dict[tuple[Any, ...], Any] = {}

    def __repr__(self) -> str:
        return f"<cukern.fuse of {self._name}>"

    def __call__(self, *args: Any) -> Any:
        if _cukern.backend() != "cuda" or (_tracing and any(isinstance(arg, Recorded) for arg in args)):
            return self._function(*args)
        key = _cukern._argument_key(args)
        found = self._by_key.get(key)
        if found is None:
            kinds = tuple(_kind_of(arg) for arg in args)
            if not any(isinstance(kind, str) for kind in kinds):
                return self._function(*args)
            found = self._by_types.get(kinds)
            if found is None:
                found = self._by_types[kinds] = self._make(args, kinds)
            if key is not None:
                if len(self._by_key) >= MOST_KEYS:
                    self._by_key.clear()
                self._by_key[key] = found
        kernel, sources, is_tuple = found
        result = kernel(*(source(args) for source in sources))
        return (result,) if is_tuple and not isinstance(result, tuple) else result

    def _make(self, args: Sequence[Any], kinds: Sequence[Any]) -> tuple[Any, list[Any], bool]:
        """Return the kernel for arguments of some kinds, what its parameters take, and whether a tuple is returned."""
        trace = Trace()
        _tracing.append(trace)
        try:
            returned = self._function(
                *(trace.argument(i, kind, arg) for i, (kind, arg) in enumerate(zip(kinds, args, strict=True)))
            )
        finally:
            _tracing.pop()
        is_tuple = isinstance(returned, tuple)
        outputs = returned if is_tuple else (returned,)
        if not outputs or not all(isinstance(each, Traced) for each in outputs):
            raise CannotFuseError(f"fuse: {self._name} has to return what it has computed of arrays, got {returned!r}")
        if trace.reduction is None:
            return _FusedElementwise(trace, outputs, self._name), trace.sources, is_tuple
        if not all(each._follows for each in outputs):
            raise CannotFuseError(f"fuse: {self._name} returns a reduction and what is none; make two functions")
        return _FusedReduction(trace, outputs, self._name), trace.sources, is_tuple


MOST_KEYS = 256  # of a function
_tracing: list[Trace] = []  # functions that are traced at this moment, each by the one before it


def _kind_of(value: Any) -> Any:
    """Return an argument's kind: the type of a number of Python, or an element type's name."""
    if isinstance(value, NUMBERS) and not isinstance(value, np.generic):
        return bool if isinstance(value, bool) else next(t for t in (int, float, complex) if isinstance(value, t))
    element = str(value.dtype) if isinstance(value, _cukern.Array | np.ndarray | np.generic) else None
    element = element or Argument(value).element
    if element not in CPP:
        raise TypeError(f"fuse: an array of {element} is not taken")
    return (element, "scalar") if isinstance(value, np.generic) else element


def fuse(function: Callable[..., Any] | None = None, *, kernel_name: str | None = None) -> Any:
    """Make a function of arrays run as one kernel that goes over memory once.

    Parameters
    ----------
    function : callable
        Takes arrays and numbers by position, and returns an array or a tuple of them. It may use the operators of
        Array, cukern's elementwise functions, `astype`, NumPy's functions of the same names, and one reduction, after
        which come only operations on its result and numbers.
    kernel_name : str, optional
        Of the CUDA kernel; by default the function's.

    Returns
    -------
    Fused
        The function, also as a decorator: ``@cukern.fuse`` or ``@cukern.fuse()``.

    Notes
    -----
    The function is traced once for each combination of element types, without its values and shapes: what looks at
    them is an error, raised in the first call. Element types are those of the operations one after the other; products
    and sums may be contracted (fma). Arrays from outside of the function are taken as they are at that time. On the
    host back-end the operations run one after the other.

    Raises TypeError for functions that can't be traced, and what the operations raise.

    Examples
    --------
    >>> import cukern
    >>> @cukern.fuse
    ... def squared_diff(x, y):
    ...     return (x - y) * (x - y)
    >>> squared_diff(cukern.arange(3.0), 1.0)
    Array([1., 0., 1.])
    """
    if function is None:
        return functools.partial(fuse, kernel_name=kernel_name)
    name = f"fused_{kernel_name or getattr(function, '__name__', 'function')}"
    return Fused(function, name if name.isidentifier() and name.isascii() else "fused_function")


_add_operators()
_cukern._set_traced_type(Recorded)
