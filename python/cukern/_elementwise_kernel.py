"""`ElementwiseKernel`: a formula in C++ as an operation on arrays, with CuPy's signatures and meaning."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import _cukern
from ._formula_source import (
    SIZES,
    Formula,
    Loop,
    Operand,
    Parameter,
    broadcast_strides,
    elementwise_source,
    merge_dimensions,
    parse_parameters,
)

BLOCK = 256
MOST_BLOCKS = 1 << 16  # of a grid; threads go on until all elements are done
VECTOR_BYTES = 16  # that a thread loads at once of the widest operand
MOST_PLANS = 256  # of a kernel
MOST_INT = 2**31 - 2**24  # elements for which 32 bits are enough, with what a step goes beyond


class Argument:
    """An argument of a call: a number, or an array with its element type, shape and strides in elements."""

    __slots__ = ("device", "element", "is_array", "owner", "pointee", "shape", "strides", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.owner = value  # whose kind a result is of
        self.is_array = False
        self.element: str | None = None  # None: a number of Python, which adopts the parameter's
        self.shape: tuple[int, ...] = ()
        self.strides: tuple[int, ...] = ()
        self.pointee = value  # what the kernel is given
        self.device: Any = None
        if isinstance(value, bool | int | float | complex) and not isinstance(value, np.generic):
            return
        if isinstance(value, np.generic):
            self.element = _name_of(value.dtype)
            self.pointee = value.item()  # which takes the type that is decided on
            return
        self.is_array = True
        array = value
        if isinstance(value, np.ndarray):
            array = self.pointee = _cukern.asarray(value)
        elif not isinstance(value, _cukern.Array):
            array = _cukern.from_dlpack(value) if hasattr(value, "__dlpack__") else _cukern.asarray(value)
        self.element = _name_of(array.dtype)
        self.device = array.device
        self.shape = array.shape
        self.strides = tuple(stride // array.itemsize for stride in array.strides)

    def is_packed(self) -> bool:
        """Whether elements lie side by side in C order."""
        expected = 1
        for n, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if n != 1 and stride != expected:
                return False
            expected *= n
        return True


def _name_of(dtype: Any) -> str:
    return str(getattr(dtype, "name", dtype))


def bind_types(name: str, parameters: Sequence[Parameter], arguments: Sequence[Argument | None]) -> dict[str, str]:
    """Return the element types that generic types stand for, from arrays and NumPy's scalars."""
    types: dict[str, str] = {}
    numbers: dict[str, Any] = {}
    for parameter, argument in zip(parameters, arguments, strict=True):
        if argument is None:
            continue
        if not parameter.is_generic:
            if argument.is_array and argument.element != parameter.type:
                raise TypeError(f"{name}: {parameter.name} has element type {argument.element}, not {parameter.type}")
            continue
        if argument.element is None:
            numbers.setdefault(parameter.type, argument.value)
            continue
        known = types.setdefault(parameter.type, argument.element)
        if known != argument.element:
            raise TypeError(
                f"{name}: {parameter.name} has element type {argument.element}, and {parameter.type} is {known} by "
                "another argument"
            )
    for letter, number in numbers.items():
        types.setdefault(letter, np.dtype(type(number)).name)
    return types


@dataclass
class Plan:
    """What calls of one kind of arguments have in common."""

    shape: tuple[int, ...]  # of the outputs
    made: list[str]  # element types of the outputs that are made
    device: Any
    like: type | None  # whose arrays the results are; None: Arrays
    kernel: Any = None  # None: there are no elements
    grid: int = 1
    block: int = BLOCK
    constants: list[Any] = field(default_factory=list)  # what the kernel is given behind its operands


class ElementwiseKernel:
    """A formula in C++, computed for each element of arrays that broadcast: ``kernel(*inputs, *outputs)``.

    Parameters
    ----------
    in_params, out_params : str
        Parameters, separated by commas: an element type, or a letter that stands for any, and a name. ``raw`` before it
        leaves the array to the formula, which indexes it in C order: ``x[i]``.
    operation : str
        Statements that assign the outputs. ``i`` is the element's index, ``n`` and ``_ind.size()`` are their number.
    name : str
        Of the CUDA kernel.
    reduce_dims : bool
        For calls that are written for CuPy: dimensions are always merged where they can be.
    preamble : str
        C++ before the kernel: functions, includes.
    no_return : bool
        Whether a call returns None.
    return_tuple : bool
        Whether a call returns a tuple also of one output.
    loop_prep, after_loop : str
        Statements of each thread before and after its loop.
    options : tuple of str
        NVRTC's.

    Notes
    -----
    A call takes arrays and numbers: as many as there are inputs, or inputs and outputs. Outputs that are not given are
    new arrays of the first input's kind, of the shape that the inputs broadcast to; ``size=`` gives the number of
    elements where all of them are raw. ``block_size=`` and ``stream=`` are the launch's.

    Raises TypeError for element types that don't fit, ValueError for shapes, CompileError where the formula does not
    compile, RuntimeError without a GPU: the formula is C++.

    Examples
    --------
    >>> import cukern
    >>> squared_diff = cukern.ElementwiseKernel('T x, T y', 'T z', 'z = (x - y) * (x - y)', 'squared_diff')
    >>> if cukern.backend() == 'cuda':
    ...     z = squared_diff(cukern.arange(3.0), 1.0)
    """

    def __init__(
        self,
        in_params: str,
        out_params: str,
        operation: str,
        name: str = "kernel",
        reduce_dims: bool = True,
        preamble: str = "",
        no_return: bool = False,
        return_tuple: bool = False,
        *,
        loop_prep: str = "",
        after_loop: str = "",
        options: Sequence[str] = (),
    ) -> None:
        self.in_params = parse_parameters(in_params)
        self.out_params = parse_parameters(out_params)
        self.params = self.in_params + self.out_params
        if len({parameter.name for parameter in self.params}) < len(self.params):
            raise ValueError(f"{name}: an input and an output have the same name")
        if not name.isidentifier():
            raise ValueError(f"{name!r} is no name of a kernel")
        self.name = name
        self.operation = operation
        self.reduce_dims = reduce_dims
        self.no_return = no_return
        self.return_tuple = return_tuple
        self._formula = Formula(name, operation, preamble, loop_prep, after_loop)
        self._options = tuple(options)
        self._kernels: dict[Any, Any] = {}
        self._plans: dict[bytes | None, Plan] = {}

    def __repr__(self) -> str:
        return f"<cukern.ElementwiseKernel {self.name}>"

    def __call__(self, *args: Any, size: int | None = None, block_size: int | None = None, stream: Any = None) -> Any:
        key = _cukern._argument_key(args) if size is None and block_size is None else None
        plan = self._plans.get(key)
        arguments: list[Argument | None] = []
        if plan is None:
            _need_gpu(self.name)
            arguments = self._read(args)
            plan = self._plan(arguments, size, block_size or BLOCK)
            if key is not None:
                if len(self._plans) >= MOST_PLANS:
                    self._plans.clear()
                self._plans[key] = plan
        made = [_cukern.empty(plan.shape, element, device=plan.device, stream=stream) for element in plan.made]
        given = args if not arguments else [argument.pointee for argument in arguments if argument is not None]
        if plan.kernel is not None:
            plan.kernel(plan.grid, plan.block, (*given, *made, *plan.constants), stream=stream)
        if self.no_return:
            results: tuple[Any, ...] = ()
        elif made:
            results = tuple(made) if plan.like is None else tuple(_like(_first_array(args), array) for array in made)
        else:
            results = args[len(self.in_params) :]
        for original, pointee in zip(args[len(self.in_params) :], given[len(self.in_params) :], strict=True):
            if isinstance(original, np.ndarray):
                _cukern.asnumpy(pointee, out=original)
        if self.no_return:
            return None
        return results if self.return_tuple or len(results) != 1 else results[0]

    def _read(self, args: Sequence[Any]) -> list[Argument | None]:
        """Return the arguments, with None for outputs that are to be made."""
        if len(args) not in (len(self.in_params), len(self.params)):
            raise TypeError(
                f"{self.name}: expected {len(self.in_params)} inputs, or {len(self.params)} with the outputs, "
                f"got {len(args)} arguments"
            )
        arguments: list[Argument | None] = [Argument(value) for value in args]
        if len({isinstance(a.value, np.ndarray) for a in arguments if a is not None and a.is_array}) > 1:
            raise TypeError(
                f"{self.name}: some arrays are NumPy's, in host memory, and some are not; copy them there first, as by "
                "cukern.asarray()"
            )
        return arguments + [None] * (len(self.params) - len(args))

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

    def _shape(self, arguments: Sequence[Argument | None], size: int | None) -> tuple[int, ...]:
        """Return the shape that all arrays but raw ones broadcast to."""
        shapes = [
            argument.shape
            for parameter, argument in zip(self.params, arguments, strict=True)
            if argument is not None and argument.is_array and not parameter.is_raw
        ]
        if not shapes:
            if size is None and all(parameter.is_raw for parameter in self.params):
                raise ValueError(f"{self.name}: all arrays are raw; pass size=, the number of elements")
            return () if size is None else (size,)
        if size is not None:
            raise ValueError(f"{self.name}: size= is for calls whose arrays are all raw")
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
            if not argument.is_array:
                raise TypeError(
                    f"{self.name}: {parameter.name} is an output: expected an array, got {argument.value!r}"
                )
            if not parameter.is_raw and argument.shape != shape:
                raise ValueError(f"{self.name}: {parameter.name} has shape {argument.shape}; the result has {shape}")
            if any(n > 1 and stride == 0 for n, stride in zip(argument.shape, argument.strides, strict=True)):
                raise ValueError(f"{self.name}: elements of {parameter.name} overlap each other (strides of 0)")

    def _plan(self, arguments: list[Argument | None], size: int | None, block: int) -> Plan:
        """Return what a call of these types and layouts comes to."""
        types = self._types(arguments)
        shape = self._shape(arguments, size)
        self._check_outputs(arguments, shape)
        elements = [types.get(parameter.type, parameter.type) for parameter in self.params]
        made = [element for element, argument in zip(elements, arguments, strict=True) if argument is None]
        first = next((argument for argument in arguments if argument is not None and argument.is_array), None)
        like = first.value if first is not None and not isinstance(first.value, _cukern.Array) else None
        plan = Plan(shape, made, None if first is None else first.device, None if like is None else type(like))
        count = math.prod(shape)
        if count == 0:
            return plan
        looped = []  # operands that the loop steps through
        for i, (parameter, argument) in enumerate(zip(self.params, arguments, strict=True)):
            if not parameter.is_raw and (argument is None or argument.is_array):
                looped.append(i)
        packed = tuple(math.prod(shape[d + 1 :]) for d in range(len(shape)))  # of outputs that are made
        strides = [
            packed if argument is None else broadcast_strides(shape, argument.shape, argument.strides)
            for argument in [arguments[i] for i in looped]
        ]
        strides = [tuple(0 if n == 1 else s for n, s in zip(shape, own, strict=True)) for own in strides]
        order = list(range(len(shape)))
        if looped and looped[-1] >= len(self.in_params) and not self._formula.uses_index:
            order.sort(key=lambda d: -abs(strides[-1][d]))  # along an output's memory
        lengths, merged = merge_dimensions([shape[d] for d in order], [[own[d] for d in order] for own in strides])
        places = [arguments[i] for i in looped]
        addresses = [0 if argument is None else _cukern._address(argument.pointee) for argument in places]
        layouts, loop = self._choose_loop(lengths, merged, [elements[i] for i in looped], addresses, count)
        by_place = dict(zip(looped, layouts, strict=True))
        operands = []
        raw_layouts = []
        for i, (parameter, argument) in enumerate(zip(self.params, arguments, strict=True)):
            if parameter.is_raw and argument is not None and argument.is_array:
                raw_shape, raw_strides = argument.shape or (1,), argument.strides or (1,)
                operands.append(Operand(parameter, elements[i], "raw", len(raw_shape), argument.is_packed()))
                raw_layouts.append(_structure("q", [math.prod(raw_shape), *raw_shape, *raw_strides]))
            else:
                operands.append(Operand(parameter, elements[i], by_place.get(i, "number")))
        plan.constants = [*raw_layouts, count]
        if loop.ndim > 0:
            moving = [own for own, layout in zip(merged, layouts, strict=True) if layout != "one"]
            steps = [[*own[:-1], own[-1] * loop.vector] for own in moving]
            numbers = [*lengths[:-1], lengths[-1] // loop.vector, *(step for own in steps for step in own)]
            plan.constants.append(_structure("i" if loop.index == "int" else "q", numbers))
        text_key = (tuple(operands), tuple(sorted(types.items())), loop)
        plan.kernel = self._kernels.get(text_key)
        if plan.kernel is None:
            inputs = len(self.in_params)
            source = elementwise_source(self._formula, operands[:inputs], operands[inputs:], types, loop)
            plan.kernel = self._kernels[text_key] = _cukern.RawKernel(source, self.name, self._options)
        plan.block = block
        plan.grid = max(1, min(-(-count // (loop.vector * block)), MOST_BLOCKS))
        return plan

    def _choose_loop(
        self,
        lengths: Sequence[int],
        strides: Sequence[Sequence[int]],
        elements: Sequence[str],
        addresses: Sequence[int],
        count: int,
    ) -> tuple[list[str], Loop]:
        """Return how the operands lie, and how the kernel goes over them."""
        if not strides:
            return [], Loop()
        sizes = [SIZES[element] for element, own in zip(elements, strides, strict=True) if own and own[-1] == 1]
        vector = max(1, VECTOR_BYTES // max(sizes)) if sizes and not self._formula.may_jump else 1
        outputs = len(self.out_params)
        in_rows = all(own[-1] in (0, 1) for own in strides if own)
        in_rows = in_rows and all(own[-1] == 1 for own in strides[len(strides) - outputs :] if own)
        if len(lengths) <= 1 and in_rows:
            layouts = ["packed" if own and own[-1] == 1 else "one" for own in strides]
            while vector > 1 and not _are_aligned(vector, layouts, elements, addresses):
                vector //= 2
            return layouts, Loop(0, vector)
        reach = max(sum((n - 1) * abs(s) for n, s in zip(lengths, own, strict=True)) for own in strides)
        index = "int" if max(reach, count) < MOST_INT else "long long"
        layouts = [_layout_in_rows(own) for own in strides]
        while vector > 1 and not (
            in_rows
            and lengths[-1] % vector == 0
            and all(
                s % vector == 0
                for own, layout in zip(strides, layouts, strict=True)
                if layout == "packed"
                for s in own[:-1]
            )
            and _are_aligned(vector, layouts, elements, addresses)
        ):
            vector //= 2
        if vector == 1:
            layouts = ["one" if layout == "one" else "strided" for layout in layouts]
        return layouts, Loop(len(lengths), vector, index)


def _are_aligned(vector: int, layouts: Sequence[str], elements: Sequence[str], addresses: Sequence[int]) -> bool:
    return all(
        address % (vector * SIZES[element]) == 0
        for layout, element, address in zip(layouts, elements, addresses, strict=True)
        if layout == "packed"
    )


def _layout_in_rows(strides: Sequence[int]) -> str:
    if all(stride == 0 for stride in strides):
        return "one"
    return "packed" if strides[-1] == 1 else "same"


def _structure(code: str, numbers: Sequence[int]) -> Any:
    """Return integers as one structure that is passed by value."""
    data = struct.pack(f"<{len(numbers)}{code}", *numbers)
    return np.frombuffer(data, np.dtype([("numbers", f"<i{struct.calcsize(code)}", (len(numbers),))]))[0]


def _first_array(args: Sequence[Any]) -> Any:
    return next(value for value in args if not isinstance(value, bool | int | float | complex | np.generic))


def _like(like: Any, array: Any) -> Any:
    """Return an Array as one of the library whose array `like` is."""
    return _cukern.asnumpy(array) if isinstance(like, np.ndarray) else _cukern._convert_like(like, array)


def _need_gpu(name: str) -> None:
    if _cukern.backend() != "cuda":
        raise RuntimeError(
            f"{name}: formulas in C++ need a GPU, and the host back-end is in use; python -m cukern tells why"
        )
