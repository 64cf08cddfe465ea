"""`fuse`: a function of arrays as one kernel.

The function is called once for each combination of element types, with values that record what is done with them
(`_trace.py`). What it has recorded is written as a formula of the same C++ templates that the operations are made of,
and becomes a kernel of formulas. Where shapes or numbers of a call are not what the kernel is made for, the function is
called as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MethodType
from typing import Any

import numpy as np

from . import _cukern
from ._elementwise_kernel import ElementwiseKernel
from ._formula_argument import Argument
from ._formula_source import Parameter
from ._number_text import CPP, number_kind
from ._reduction_kernel import ReductionKernel
from ._reduction_source import ReductionFormula
from ._trace import INDICES, Trace
from ._traced import NUMBERS, CannotFuseError, Recorded, RunAsItIs, Traced

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
// The mean of no elements is NaN, not their sum.
CUKERN_HD Finish fused_finish(Op op, long long elements, double correction) {
    Finish finish = finish_of(op, elements, correction);
    if (op == Op::mean && elements == 0) finish.divisor = bit_cast<double>(0x7FF8000000000000ULL);
    return finish;
}
}
"""


class _FusedElementwise(ElementwiseKernel):
    """The kernel of a function without a reduction."""

    _has_own_text = False

    def __init__(self, trace: Trace, parameters: tuple[Parameter, ...], outputs: Sequence[Traced], name: str) -> None:
        live = trace.live_names([each._name for each in outputs])
        lines = _lines_of(trace.lines, live) + [f"y{i} = {each._name};" for i, each in enumerate(outputs)]
        operation = "\n".join(lines)
        super().__init__(
            parameters, _outputs_of(outputs), operation, name, preamble=PREAMBLE, options=compiler_options()
        )


class _FusedReduction(ReductionKernel):
    """The kernel of a function that ends in a reduction."""

    _has_own_text = False

    def __init__(self, trace: Trace, parameters: tuple[Parameter, ...], outputs: Sequence[Traced], name: str) -> None:
        assert trace.reduction is not None
        function, compute, value, self._axes = trace.reduction
        super().__init__(parameters, _outputs_of(outputs), *("", "", "", ""), name=name, options=compiler_options())
        live = trace.live_names([value, *(each._name for each in outputs)])
        after = _lines_of(trace.lines_after, live) + [f"y{i} = {each._name};" for i, each in enumerate(outputs)]
        reducer = f"cukern::Reducer<cukern::Op::{function}, {CPP[compute]}>"
        self._fused = ReductionFormula(
            name=name,
            map=f"{reducer}::of({value}, {'_J' if function in INDICES else '0'})",
            reducer=f"struct _Reducer {{\n    typedef {reducer}::A _A;\n"
            f"    static __device__ _A _identity() {{ return {reducer}::identity(); }}\n"
            f"    static __device__ _A _join(_A a, _A b) {{ return {reducer}::join(a, b); }}\n}};\n",
            post_map="\n".join(after),
            has_identity=function not in ("max", "min", "argmax", "argmin"),
            preamble=PREAMBLE,
            map_statements="\n".join(_lines_of(trace.lines, live)),
        )

    def _formula(self, types: dict[str, str], elements: Sequence[str]) -> ReductionFormula:
        return self._fused

    def __call__(self, *args: Any, **given: Any) -> Any:
        return super().__call__(*args, **self._axes, **given)


def _lines_of(lines: dict[str, str], live: set[str]) -> list[str]:
    return [f"const auto {name} = {expression};" for name, expression in lines.items() if name in live]


def _outputs_of(outputs: Sequence[Traced]) -> tuple[Parameter, ...]:
    return tuple(Parameter(f"y{i}", each._element, cpp=CPP[each._element]) for i, each in enumerate(outputs))


def compiler_options() -> tuple[str, ...]:
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

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: Any) -> Any:
        if _cukern.backend() != "cuda" or (_tracing and any(isinstance(arg, Recorded) for arg in args)):
            return self._function(*args)
        key = _cukern._argument_key(args)
        made = self._by_key.get(key)
        if made is None:
            made = self._made_for(args)
            if key is not None and made is not None:
                if len(self._by_key) >= MOST_KEYS:
                    self._by_key.clear()
                self._by_key[key] = made
        if made is None or made.kernel is None:
            return self._function(*args)
        values = []
        for source, takes in made.sources:
            value = source(args)
            if takes is not None and not takes(value):
                return self._function(*args)
            values.append(value)
        result = made.kernel(*values)
        return (result,) if made.is_tuple and not isinstance(result, tuple) else result

    def _made_for(self, args: Sequence[Any]) -> _Made | None:
        """Return the kernel for arguments, or one without a kernel; None where only this call has none."""
        kinds = tuple(_kind_of(arg) for arg in args)
        if not any(isinstance(kind, str) for kind in kinds):
            return _Made()
        made = self._by_types.get(kinds)
        if made is None:
            try:
                made = self._by_types[kinds] = self._make(args, kinds)
            except RunAsItIs:
                return None
        shapes = {name: _shape_of(source(args)) for name, source in made.arrays.items()}
        is_right = all(_broadcast(shapes, few) == _broadcast(shapes, all_) for few, all_ in made.same_shapes)
        return made if is_right else _Made()

    def _make(self, args: Sequence[Any], kinds: Sequence[Any]) -> _Made:
        """Return the kernel for arguments of some kinds."""
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
        follow = {bool(each._follows) for each in outputs}
        if len(follow) > 1:
            raise CannotFuseError(f"fuse: {self._name} returns a reduction and what is none; make two functions")
        texts = [each._name for each in outputs]
        if follow == {True}:
            assert trace.reduction is not None
            texts.append(trace.reduction[2])
        live = trace.live_names(texts)
        parameters = tuple(each for each in trace.parameters if each.name in live)
        arrays = {
            parameter.name: source
            for parameter, (source, _) in zip(trace.parameters, trace.sources, strict=True)
            if parameter.name in trace.array_names
        }
        same_shapes = list(trace.same_shapes)
        if follow == {False}:
            every = frozenset().union(*(each._arrays for each in outputs))
            same_shapes += [(each._arrays, every) for each in outputs]
        kernel = (_FusedReduction if follow == {True} else _FusedElementwise)(trace, parameters, outputs, self._name)
        sources = [
            source for parameter, source in zip(trace.parameters, trace.sources, strict=True) if parameter.name in live
        ]
        return _Made(kernel, sources, is_tuple, arrays, same_shapes)


@dataclass
class _Made:
    """What is made of a function for arguments of some kinds; without a kernel the function is called."""

    kernel: Any = None
    sources: list[tuple[Callable[[Sequence[Any]], Any], Callable[[Any], bool] | None]] = field(default_factory=list)
    is_tuple: bool = False
    arrays: dict[str, Callable[[Sequence[Any]], Any]] = field(default_factory=dict)
    # Parameters that have to broadcast to the same shape as others.
    same_shapes: list[tuple[frozenset[str], frozenset[str]]] = field(default_factory=list)


def _shape_of(value: Any) -> tuple[int, ...]:
    return value.shape if isinstance(value, _cukern.Array | np.ndarray) else Argument(value).shape


def _broadcast(shapes: dict[str, tuple[int, ...]], names: frozenset[str]) -> tuple[int, ...] | None:
    """Return the shape that arrays broadcast to; None where they do not, and the operations will say so."""
    try:
        return np.broadcast_shapes(*(shapes[name] for name in names))
    except ValueError:
        return None


MOST_KEYS = 256  # of a function
_tracing: list[Trace] = []  # functions that are traced at this moment, each by the one before it


def _kind_of(value: Any) -> Any:
    """Return an argument's kind: the type of a number of Python, or an element type's name."""
    if isinstance(value, NUMBERS) and not isinstance(value, np.generic):
        return number_kind(value)
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
        Array, cukern's elementwise functions, `astype`, NumPy's ufuncs of the same names, and one reduction, after
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
    host back-end, and where results have different shapes, the operations run one after the other.

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
