"""What kernels of formulas share: their arguments, the types that these bind, checks, and the results of a call."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import _cukern
from ._formula_argument import Argument, element_name
from ._formula_source import SIZES, Operand, Parameter, broadcast_strides, divisor_numbers, parse_parameters
from ._formula_types import bind_types
from ._host_pieces import Cut, Space, choose_cut, run_pieces

BLOCK = 256
MOST_PLANS = 256  # of a kernel
VECTOR_BYTES = 16  # that a thread loads at once of the widest operand
MOST_INT = 2**31 - 2**24  # elements for which 32 bits are enough, with what a step goes beyond


@dataclass
class Plan:
    """What calls of one kind of arguments have in common."""

    shape: tuple[int, ...]  # of the outputs
    made: list[str]  # element types of the outputs that are made
    device: Any
    like: type | None  # whose arrays the results are; None: Arrays
    launches: list[tuple[Any, int]] = field(default_factory=list)  # kernels and their grids; none without elements
    block: int = BLOCK
    constants: list[Any] = field(default_factory=list)  # what the kernels are given behind their operands
    scratch: int = 0  # bytes of memory that they are given last

    def repeated(self) -> tuple[Any, ...] | None:
        """Return what _repeat_call takes, None where a call is more than outputs of ours and one kernel."""
        if len(self.launches) != 1 or self.scratch or (self.made and self.like is not None):
            return None
        kernel, grid = self.launches[0]
        launcher = kernel[grid, self.block]
        return launcher, tuple(self.constants), self.shape, tuple(self.made), self.device


class FormulaKernel:
    """What `ElementwiseKernel` and `ReductionKernel` have in common."""

    _has_own_text = True  # which a user wrote

    def __init__(
        self,
        in_params: str | tuple[Parameter, ...],
        out_params: str | tuple[Parameter, ...],
        name: str,
        options: Sequence[str],
    ) -> None:
        self.in_params = parse_parameters(in_params) if isinstance(in_params, str) else in_params
        self.out_params = parse_parameters(out_params) if isinstance(out_params, str) else out_params
        self.params = self.in_params + self.out_params
        if len({parameter.name for parameter in self.params}) < len(self.params):
            raise ValueError(f"{name}: an input and an output have the same name")
        if not name.isidentifier():
            raise ValueError(f"{name!r} is no name of a kernel")
        self.name = name
        self._options = tuple(options)
        self._kernels: dict[Any, Any] = {}  # by what their text depends on
        self._plans: dict[Any, Plan] = {}  # by what is known of the arguments
        # Of calls that are repeated without Python: for options of the call, plans by _argument_key.
        self._repeated: dict[Any, dict[bytes, tuple[Any, ...]]] = {}
        self._inputs = len(self.in_params)

    def __repr__(self) -> str:
        return f"<cukern.{type(self).__name__} {self.name}>"

    def _may_follow(self, formula: Any) -> bool:
        """Whether kernels of a formula, which wait for the kernel before, may be launched while that still runs."""
        return not self._has_own_text or not (self._options or formula.may_load_early)

    def _repeat(self, args: tuple[Any, ...], options: Any) -> tuple[Any, ...] | None:
        """Return the outputs of a call that repeats an earlier one; None where it does not."""
        repeated = self._repeated.get(options)
        return None if repeated is None else _cukern._repeat_call(repeated, args, self._inputs)

    def _call(
        self,
        args: tuple[Any, ...],
        options: Any,
        make_plan: Callable[[list[Argument | None]], Plan],
        space_of: Callable[[list[Argument | None]], Space | None],
        stream: Any,
    ) -> tuple[Any, ...]:
        """Run the kernels, and return the outputs. `make_plan` makes the plan where no call was such before.

        `options` is what plans depend on but for arguments; None: no plan is kept. `space_of` tells how a call may be
        cut into pieces.
        """
        known = None if options is None else _cukern._argument_key(args, self._inputs)
        key = None if known is None else (known, options)
        plan = self._plans.get(key)
        if plan is not None:
            return self._results(args, (), self._launch(plan, args, stream), plan.like)
        need_gpu(self.name)
        arguments = self._read(args)
        if (cut := self._choose_cut(arguments, space_of)) is not None:
            return self._call_in_pieces(args, arguments, cut, make_plan, stream)
        self._upload(arguments, {})
        plan = make_plan(arguments)
        if key is not None:
            if len(self._plans) >= MOST_PLANS:
                self._plans.clear()
                self._repeated.clear()
            self._plans[key] = plan
            if (repeated := plan.repeated()) is not None:
                self._repeated.setdefault(options, {})[key[0]] = repeated
        given = [argument.pointee for argument in arguments if argument is not None]
        return self._results(args, arguments, self._launch(plan, given, stream), plan.like)

    def _launch(self, plan: Plan, given: Sequence[Any], stream: Any) -> list[Any]:
        """Run the kernels on arguments that the device reaches; return the outputs that are made."""
        made = [_cukern.empty(plan.shape, element, device=plan.device, stream=stream) for element in plan.made]
        scratch = []
        if plan.scratch:
            scratch.append(_cukern.empty(plan.scratch, "uint8", device=plan.device, stream=stream))
        for kernel, grid in plan.launches:
            kernel(grid, plan.block, (*given, *made, *plan.constants, *scratch), stream=stream)
        return made

    def _results(
        self, args: tuple[Any, ...], arguments: Sequence[Argument | None], made: list[Any], like: type | None
    ) -> tuple[Any, ...]:
        """Return the outputs as the caller gets them; copies of arrays on the host go back there."""
        self._download(arguments)
        if not made:
            return tuple(args[self._inputs :])
        if any(argument is not None and argument.host is not None for argument in arguments):
            return tuple(_like_on_host(_first_array(args), array, arguments) for array in made)
        if like is None:
            return tuple(made)
        return tuple(_cukern._convert_like(_first_array(args), array) for array in made)

    def _upload(self, arguments: Sequence[Argument | None], copies: dict[Any, Any]) -> None:
        for argument in arguments:
            if argument is not None:
                argument.upload(copies)

    def _download(self, arguments: Sequence[Argument | None]) -> None:
        for output in arguments[self._inputs :]:
            if output is not None and output.host is not None:
                _cukern.asnumpy(output.pointee, out=output.value)

    def _choose_cut(
        self, arguments: list[Argument | None], space_of: Callable[[list[Argument | None]], Space | None]
    ) -> Cut | None:
        """Return how a call on arrays of the host is cut into pieces, None where it is not."""
        if not any(argument is not None and argument.host is not None for argument in arguments):
            return None
        space = space_of(arguments)
        if space is None or any(parameter.is_raw for parameter in self.params):
            return None
        types = self._types(arguments)
        made = []
        for parameter, output in list(zip(self.params, arguments, strict=True))[self._inputs :]:
            if output is None:
                made.append(types.get(parameter.type, parameter.type))
            else:
                self._check_output(parameter, output, space.out_shape)
                if output.host is None:
                    self._check_steps(parameter, output.shape, output.strides)
        return choose_cut(arguments, self._inputs, made, space)

    def _call_in_pieces(
        self,
        args: tuple[Any, ...],
        arguments: Sequence[Argument | None],
        cut: Cut,
        make_plan: Callable[[list[Argument | None]], Plan],
        stream: Any,
    ) -> tuple[Any, ...]:
        def run(values: list[Any], copies: dict[Any, Any]) -> list[Any]:
            own = self._read(values)
            self._upload(own, copies)
            made = self._launch(make_plan(own), [argument.pointee for argument in own if argument is not None], stream)
            self._download(own)
            return made

        first = _first_array(args)
        results = run_pieces(
            cut, arguments, self._inputs, run, lambda array, shape: _empty_on_host(first, array, shape, arguments)
        )
        if not results:
            return tuple(args[self._inputs :])
        return tuple(_as_on_host(first, result) for result in results)

    def _read(self, args: Sequence[Any]) -> list[Argument | None]:
        """Return the arguments, with None for outputs that are to be made."""
        if len(args) not in (len(self.in_params), len(self.params)):
            raise TypeError(
                f"{self.name}: expected {len(self.in_params)} inputs, or {len(self.params)} with the outputs, "
                f"got {len(args)} arguments"
            )
        given = [
            Argument(value, self.name, parameter.name) for value, parameter in zip(args, self.params, strict=False)
        ]
        if any(argument.host for argument in given) and not all(argument.goes_with_host() for argument in given):
            raise TypeError(
                f"{self.name}: some arrays are in host memory and some in device memory; copy those of the host to the "
                "device first, as by cukern.asarray()"
            )
        self._check_host_outputs(given[self._inputs :])
        return [*given, *[None] * (len(self.params) - len(args))]

    def _check_host_outputs(self, outputs: Sequence[Argument]) -> None:
        """Check what copies on the device would not show."""
        for parameter, output in zip(self.out_params, outputs, strict=False):
            if output.host is None:
                continue
            _, shape, strides, _, is_writable = output.host
            if not is_writable:
                raise ValueError(f"{self.name}: {parameter.name} is an output, and it is read-only")
            self._check_steps(parameter, shape, strides)
            for other_parameter, other in zip(self.out_params, outputs, strict=False):
                if other is output:
                    break
                if other.host is not None and _cukern._overlap(output.value, other.value):
                    raise ValueError(f"{self.name}: the outputs {other_parameter.name} and {parameter.name} overlap")

    def _check_steps(self, parameter: Parameter, shape: Sequence[int], strides: Sequence[int]) -> None:
        if any(n > 1 and stride == 0 for n, stride in zip(shape, strides, strict=True)):
            raise ValueError(f"{self.name}: elements of {parameter.name} overlap each other (strides of 0)")

    def _types(self, arguments: Sequence[Argument | None]) -> dict[str, str]:
        """Return what generic types stand for: outputs decide first, then inputs."""
        inputs = len(self.in_params)
        order = [*range(inputs, len(self.params)), *range(inputs)]
        types = bind_types(self.name, [self.params[i] for i in order], [arguments[i] for i in order])
        for parameter in self.params:
            if parameter.is_generic and parameter.type not in types:
                raise TypeError(
                    f"{self.name}: no argument tells the type {parameter.type} of {parameter.name}; pass it"
                )
        return types

    def _broadcast(self, parameters: Sequence[Parameter], arguments: Sequence[Argument | None]) -> Any:
        """Return the shape that all arrays but raw ones broadcast to, None without one."""
        shapes = [
            argument.shape
            for parameter, argument in zip(parameters, arguments, strict=False)
            if argument is not None and argument.is_array and not parameter.is_raw
        ]
        if not shapes:
            return None
        try:
            return np.broadcast_shapes(*shapes)
        except ValueError:
            raise ValueError(f"{self.name}: shapes do not broadcast: {', '.join(map(str, shapes))}") from None

    def _check_outputs(self, arguments: Sequence[Argument | None], shape: tuple[int, ...]) -> None:
        for parameter, argument in list(zip(self.params, arguments, strict=True))[len(self.in_params) :]:
            if argument is None:
                if parameter.is_raw:
                    raise ValueError(f"{self.name}: {parameter.name} is raw: pass it")
                continue
            self._check_output(parameter, argument, shape)
            self._check_steps(parameter, argument.shape, argument.strides)
            self._check_overlap(parameter, argument, arguments)

    def _check_output(self, parameter: Parameter, argument: Argument, shape: tuple[int, ...]) -> None:
        if not argument.is_array:
            raise TypeError(f"{self.name}: {parameter.name} is an output: expected an array, got {argument.value!r}")
        if not parameter.is_raw and argument.shape != shape:
            raise ValueError(f"{self.name}: {parameter.name} has shape {argument.shape}; the result has {shape}")

    def _check_overlap(self, parameter: Parameter, output: Argument, arguments: Sequence[Argument | None]) -> None:
        """An output may be an input itself; what is raw is the formula's affair."""
        for other_parameter, other in zip(self.params, arguments, strict=True):
            if other is None or other is output or not other.is_array or other_parameter.is_raw or parameter.is_raw:
                continue
            if _cukern._overlap(output.pointee, other.pointee):
                raise ValueError(
                    f"{self.name}: {parameter.name} overlaps {other_parameter.name} in part; pass exactly that "
                    "array, or one that does not overlap it"
                )

    def _begin_plan(
        self, arguments: Sequence[Argument | None], shape: tuple[int, ...]
    ) -> tuple[Plan, dict[str, str], list[str]]:
        """Return a plan without launches, what generic types stand for, and each parameter's element type."""
        types = self._types(arguments)
        self._check_outputs(arguments, shape)
        elements = [types.get(parameter.type, parameter.type) for parameter in self.params]
        made = [element for element, argument in zip(elements, arguments, strict=True) if argument is None]
        first = next((argument for argument in arguments if argument is not None and argument.is_array), None)
        like = first.value if first is not None and not isinstance(first.value, _cukern.Array) else None
        plan = Plan(shape, made, None if first is None else first.device, None if like is None else type(like))
        return plan, types, elements

    def _operands(
        self, arguments: Sequence[Argument | None], elements: Sequence[str], layouts: dict[int, str]
    ) -> tuple[list[Operand], list[Any]]:
        """Return the operands, of which `layouts` has those that the loop takes, and the layouts of raw ones."""
        operands, raw_layouts = [], []
        for i, (parameter, argument) in enumerate(zip(self.params, arguments, strict=True)):
            if parameter.is_raw and argument is not None and argument.is_array:
                raw_shape, raw_strides = argument.shape or (1,), argument.strides or (1,)
                operands.append(Operand(parameter, elements[i], "raw", len(raw_shape), argument.is_packed()))
                size = SIZES[elements[i]]
                steps = [stride * size for stride in raw_strides]  # in bytes, as CuPy's
                raw_layouts.append(structure("q", [math.prod(raw_shape), *raw_shape, *steps]))
            else:
                operands.append(Operand(parameter, elements[i], layouts.get(i, "number")))
        return operands, raw_layouts


def packed_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides in elements of a new array in C order."""
    return tuple(math.prod(shape[d + 1 :]) for d in range(len(shape)))


def strides_along(shape: Sequence[int], argument: Argument | None) -> tuple[int, ...]:
    """Return an operand's strides in elements along a shape that it broadcasts to; None: an array that is made."""
    own = packed_strides(shape) if argument is None else broadcast_strides(shape, argument.shape, argument.strides)
    return tuple(0 if n == 1 else stride for n, stride in zip(shape, own, strict=True))


def farthest(lengths: Sequence[int], strides: Sequence[int]) -> int:
    """Return how many elements the last one is away from the first."""
    return sum((n - 1) * abs(stride) for n, stride in zip(lengths, strides, strict=True))


def structure(code: str, numbers: Sequence[int]) -> Any:
    """Return integers as one structure that is passed by value."""
    data = struct.pack(f"<{len(numbers)}{code}", *numbers)
    return np.frombuffer(data, np.dtype([("numbers", f"<i{struct.calcsize(code)}", (len(numbers),))]))[0]


def layout_structure(index: str, lengths: Sequence[int], strides: Sequence[Sequence[int]]) -> Any:
    """Return the `_Layout` of a kernel's text: lengths, and each operand's strides, in numbers of the type `index`."""
    steps = [step for own in strides for step in own]
    if index != "int":
        return structure("q", [*lengths, *steps])
    return structure("i", [*(number for length in lengths for number in divisor_numbers(max(1, length))), *steps])


def are_aligned(vector: int, layouts: Sequence[str], elements: Sequence[str], addresses: Sequence[int]) -> bool:
    """Whether all packed operands begin at a multiple of a vector's size."""
    return all(
        address % (vector * SIZES[element]) == 0
        for layout, element, address in zip(layouts, elements, addresses, strict=True)
        if layout == "packed"
    )


def layout_in_rows(strides: Sequence[int]) -> str:
    """Return how an operand lies whose last stride is 0 or 1."""
    if all(stride == 0 for stride in strides):
        return "one"
    return "packed" if strides[-1] == 1 else "same"


def need_gpu(name: str) -> None:
    """Raise RuntimeError without a GPU."""
    if _cukern.backend() != "cuda":
        raise RuntimeError(
            f"{name}: formulas in C++ need a GPU, and the host back-end is in use; python -m cukern tells why"
        )


def _first_array(args: Sequence[Any]) -> Any:
    return next(value for value in args if not isinstance(value, bool | int | float | complex | np.generic))


def _like_on_host(like: Any, array: Any, arguments: Sequence[Argument | None]) -> Any:
    """Return an Array as operations make results of arguments on the host, of which `like` is the first array."""
    result = _empty_on_host(like, array, array.shape, arguments)
    if isinstance(result, _cukern.Array):
        result[...] = array
    else:
        _cukern.asnumpy(array, out=result)
    return _as_on_host(like, result)


def _empty_on_host(like: Any, array: Any, shape: tuple[int, ...], arguments: Sequence[Argument | None]) -> Any:
    """Return memory of a shape for elements of `array`, of the kind that _like_on_host returns, or NumPy's."""
    if isinstance(like, _cukern.Array):
        is_managed = any(argument is not None and argument.memory == "managed" for argument in arguments)
        return _cukern.empty(shape, array.dtype, memory="managed" if is_managed else "pinned")
    own = None
    if not isinstance(like, np.ndarray) and hasattr(like, "__dlpack__"):
        own = _cukern._allocate_like(like, element_name(array.dtype), shape)
    return own if own is not None else np.empty(shape, _cukern.asnumpy(_cukern.empty(0, array.dtype)).dtype)


def _as_on_host(like: Any, result: Any) -> Any:
    """Return what _empty_on_host has made as an array of the library of `like`."""
    if isinstance(result, np.ndarray) and not isinstance(like, np.ndarray) and hasattr(like, "__dlpack__"):
        return _cukern._convert_like(like, result)
    return result
