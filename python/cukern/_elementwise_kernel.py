"""`ElementwiseKernel`: a formula in C++ as an operation on arrays, with CuPy's signatures and meaning."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from . import _cukern
from ._formula_argument import Argument
from ._formula_kernel import (
    BLOCK,
    MOST_INT,
    VECTOR_BYTES,
    FormulaKernel,
    Plan,
    are_aligned,
    farthest,
    layout_in_rows,
    layout_structure,
    strides_along,
)
from ._formula_source import SIZES, Formula, Loop, Parameter, elementwise_source, merge_dimensions
from ._host_pieces import Space

MOST_BLOCKS = 1 << 16  # of a grid; threads go on until all elements are done


class ElementwiseKernel(FormulaKernel):
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
        in_params: str | tuple[Parameter, ...],
        out_params: str | tuple[Parameter, ...],
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
        super().__init__(in_params, out_params, name, options)
        self.operation = operation
        self.reduce_dims = reduce_dims
        self.no_return = no_return
        self.return_tuple = return_tuple
        self._formula = Formula(name, operation, preamble, loop_prep, after_loop)

    def __call__(self, *args: Any, size: int | None = None, block_size: int | None = None, stream: Any = None) -> Any:
        results = self._repeat(args, ()) if size is block_size is stream is None else None
        if results is None:
            options = () if size is block_size is None else None
            block = block_size or BLOCK
            results = self._call(
                args, options, lambda arguments: self._plan(arguments, size, block), self._space, stream
            )
        if self.no_return:
            return None
        return results if self.return_tuple or len(results) != 1 else results[0]

    def _shape(self, arguments: Sequence[Argument | None], size: int | None) -> tuple[int, ...]:
        """Return the shape of the elements."""
        shape: tuple[int, ...] | None = self._broadcast(self.params, arguments)
        if shape is None:
            if size is None and all(parameter.is_raw for parameter in self.params):
                raise ValueError(f"{self.name}: all arrays are raw; pass size=, the number of elements")
            return () if size is None else (size,)
        if size is not None:
            raise ValueError(f"{self.name}: size= is for calls whose arrays are all raw")
        return shape

    def _space(self, arguments: Sequence[Argument | None]) -> Space | None:
        """Return what a call may be cut into: nothing where the formula asks for indices or counts."""
        shape = self._broadcast(self.params, arguments)
        if shape is None or self._formula.needs_whole:
            return None
        return Space(shape, {d: d for d in range(len(shape))}, shape)

    def _plan(self, arguments: list[Argument | None], size: int | None, block: int) -> Plan:
        """Return what a call of these types and layouts comes to."""
        shape = self._shape(arguments, size)
        plan, types, elements = self._begin_plan(arguments, shape)
        count = math.prod(shape)
        if count == 0:
            return plan
        looped = []  # operands that the loop steps through
        for i, (parameter, argument) in enumerate(zip(self.params, arguments, strict=True)):
            if not parameter.is_raw and (argument is None or argument.is_array):
                looped.append(i)
        strides = [strides_along(shape, arguments[i]) for i in looped]
        order = list(range(len(shape)))
        if looped and looped[-1] >= len(self.in_params) and not self._formula.uses_index:
            order.sort(key=lambda d: -abs(strides[-1][d]))  # along an output's memory
        lengths, merged = merge_dimensions([shape[d] for d in order], [[own[d] for d in order] for own in strides])
        places = [arguments[i] for i in looped]
        addresses = [0 if argument is None else _cukern._address(argument.pointee) for argument in places]
        layouts, loop = self._choose_loop(lengths, merged, [elements[i] for i in looped], addresses, count)
        operands, raw_layouts = self._operands(arguments, elements, dict(zip(looped, layouts, strict=True)))
        plan.constants = [*raw_layouts, count]
        if loop.ndim > 0:
            moving = [own for own, layout in zip(merged, layouts, strict=True) if layout != "one"]
            steps = [[*own[:-1], own[-1] * loop.vector] for own in moving]
            plan.constants.append(layout_structure(loop.index, [*lengths[:-1], lengths[-1] // loop.vector], steps))
        text_key = (tuple(operands), tuple(sorted(types.items())), loop)
        kernel = self._kernels.get(text_key)
        if kernel is None:
            inputs = len(self.in_params)
            source = elementwise_source(self._formula, operands[:inputs], operands[inputs:], types, loop)
            kernel = self._kernels[text_key] = _cukern.RawKernel(source, self.name, self._options)
            kernel._follows = self._may_follow(self._formula)
        plan.block = block
        plan.launches = [(kernel, max(1, min(-(-count // (loop.vector * block)), MOST_BLOCKS)))]
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
            while vector > 1 and not are_aligned(vector, layouts, elements, addresses):
                vector //= 2
            return layouts, Loop(0, vector)
        reach = max(farthest(lengths, own) for own in strides)
        index = "int" if max(reach, count) < MOST_INT else "long long"
        layouts = [layout_in_rows(own) for own in strides]
        while vector > 1 and not (
            in_rows
            and lengths[-1] % vector == 0
            and all(
                s % vector == 0
                for own, layout in zip(strides, layouts, strict=True)
                if layout == "packed"
                for s in own[:-1]
            )
            and are_aligned(vector, layouts, elements, addresses)
        ):
            vector //= 2
        if vector == 1:
            layouts = ["one" if layout == "one" else "strided" for layout in layouts]
        return layouts, Loop(len(lengths), vector, index)
