"""`ReductionKernel`: a reduction by formulas in C++, with CuPy's signatures and meaning."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

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
    structure,
)
from ._formula_source import CPP, SIZES, Parameter, merge_dimensions
from ._host_pieces import Space
from ._reduction_source import IN_FLIGHT, Division, ReductionFormula, number_text, reducer_of, reduction_source

ENOUGH_BLOCKS = 1024  # of a grid, below which lines are divided into slices
MOST_SLICED_BLOCKS = 2048
MOST_SLICES = 1024
MANY_OUTPUTS = 256  # from which on threads that join slices lie along the outputs, too
SHORT_LINE = 8  # threads along a line where those beside each other are at different outputs


@dataclass(frozen=True)
class Lines:
    """The elements of a call: dimensions that are kept and that are reduced, merged, with each operand's strides."""

    outputs: int
    length: int  # elements that are reduced to an output
    kept: tuple[int, ...]
    kept_strides: list[tuple[int, ...]]
    reduced: tuple[int, ...]
    reduced_strides: list[tuple[int, ...]]


class ReductionKernel(FormulaKernel):
    """A reduction of what a formula makes of each element: ``kernel(*inputs, *outputs, axis=None)``.

    Parameters
    ----------
    in_params, out_params : str
        Parameters, separated by commas: an element type, or a letter that stands for any, and a name. ``raw`` before it
        leaves the array to the formula, which indexes it in C order: ``x[_J]``.
    map_expr : str
        An expression of the inputs. ``_J`` is the element's index among those that are reduced, ``_i`` that of the
        output.
    reduce_expr : str
        An expression of ``a`` and ``b``, in any order and grouping.
    post_map_expr : str
        Statements that assign the outputs from ``a``.
    identity : str or None
        What the reduction begins with, and the result of no elements; None or "" where there is none.
    name : str
        Of the CUDA kernel.
    reduce_type : str, optional
        The C++ type in which elements are joined; by default that of the first output.
    reduce_dims : bool
        For calls that are written for CuPy: dimensions are always merged where they can be.
    preamble : str
        C++ before the kernel: functions, structures, includes.
    options : tuple of str
        NVRTC's.

    Notes
    -----
    A call takes arrays and numbers: as many as there are inputs, or inputs and outputs; ``out=`` is a single output.
    Inputs broadcast; ``axis=`` (an int or a tuple of ints, by default all) is reduced, and with ``keepdims=True`` kept
    with length 1. Outputs that are not given are new arrays of the first input's kind. ``stream=`` is the launch's.
    Results are the same from run to run, of arrays of the host that go in pieces with the same room on the device.

    Raises TypeError for element types that don't fit, ValueError for shapes and for no elements without an identity,
    AxisError for axes, CompileError where a formula does not compile, RuntimeError without a GPU: formulas are C++.

    Examples
    --------
    >>> import cukern
    >>> l2norm = cukern.ReductionKernel('T x', 'T y', 'x * x', 'a + b', 'y = sqrt(a)', '0', 'l2norm')
    >>> if cukern.backend() == 'cuda':
    ...     y = l2norm(cukern.ones((2, 4)), axis=1)
    """

    def __init__(
        self,
        in_params: str | tuple[Parameter, ...],
        out_params: str | tuple[Parameter, ...],
        map_expr: str,
        reduce_expr: str,
        post_map_expr: str,
        identity: Any,
        name: str = "reduce_kernel",
        reduce_type: str | None = None,
        reduce_dims: bool = True,
        preamble: str = "",
        options: Sequence[str] = (),
    ) -> None:
        super().__init__(in_params, out_params, name, options)
        if not self.in_params or not self.out_params:
            raise ValueError(f"{name}: a reduction has inputs and outputs")
        if any(parameter.name == "a" for parameter in self.out_params):
            raise ValueError(f"{name}: an output has the name a, which is that of the joined value")
        self.map_expr = map_expr
        self.reduce_expr = reduce_expr
        self.post_map_expr = post_map_expr
        self.identity = "" if identity is None else identity if isinstance(identity, str) else number_text(identity)
        self.reduce_type = reduce_type
        self.reduce_dims = reduce_dims
        self.preamble = preamble

    def __call__(
        self, *args: Any, out: Any = None, axis: Any = None, keepdims: bool = False, stream: Any = None
    ) -> Any:
        if out is not None:
            if len(self.out_params) != 1 or len(args) != len(self.in_params):
                raise ValueError(f"{self.name}: out= is for one output that is not among the other arguments")
            args = (*args, out)
        is_plain = axis is None or all(type(each) is int for each in (axis if type(axis) is tuple else (axis,)))
        options = (axis, bool(keepdims)) if is_plain else None
        results = self._repeat(args, options) if stream is None else None
        if results is None:
            results = self._call(
                args,
                options,
                lambda arguments: self._plan(arguments, axis, bool(keepdims)),
                lambda arguments: self._space(arguments, axis, bool(keepdims)),
                stream,
            )
        return results if len(results) != 1 else results[0]

    def _formula(self, types: dict[str, str], elements: Sequence[str]) -> ReductionFormula:
        accumulator = self.reduce_type or CPP[elements[len(self.in_params)]]
        accumulator = CPP.get(accumulator, accumulator)
        reducer = reducer_of(accumulator, self.reduce_expr, self.identity or None)
        return ReductionFormula(
            self.name, self.map_expr, reducer, self.post_map_expr, bool(self.identity), self.preamble
        )

    def _shapes(
        self, arguments: Sequence[Argument | None], axis: Any, keepdims: bool
    ) -> tuple[tuple[int, ...], list[int], list[int], tuple[int, ...]]:
        """Return the shape of the inputs, the axes that are reduced and kept, and the shape of the outputs."""
        shape = self._broadcast(self.in_params, arguments)
        if shape is None:
            raise ValueError(f"{self.name}: all inputs are numbers or raw; one has to be an array")
        reduced = _axes(self.name, axis, len(shape))
        kept = [d for d in range(len(shape)) if d not in reduced]
        if keepdims:
            return shape, reduced, kept, tuple(1 if d in reduced else n for d, n in enumerate(shape))
        return shape, reduced, kept, tuple(shape[d] for d in kept)

    def _space(self, arguments: Sequence[Argument | None], axis: Any, keepdims: bool) -> Space | None:
        """Return what a call may be cut into: outputs, unless a formula asks for indices or counts."""
        shape, _, kept, out_shape = self._shapes(arguments, axis, keepdims)
        types = self._types(arguments)
        formula = self._formula(types, [types.get(parameter.type, parameter.type) for parameter in self.params])
        if formula.needs_whole:
            return None
        return Space(shape, {d: d if keepdims else place for place, d in enumerate(kept)}, out_shape)

    def _plan(self, arguments: list[Argument | None], axis: Any, keepdims: bool) -> Plan:
        """Return what a call of these types, layouts and axes comes to."""
        inputs = len(self.in_params)
        shape, reduced, kept, plan_shape = self._shapes(arguments, axis, keepdims)
        kept_shape = tuple(shape[d] for d in kept)
        plan, types, elements = self._begin_plan(arguments, plan_shape)
        formula = self._formula(types, elements)
        outputs, length = math.prod(kept_shape), math.prod(shape[d] for d in reduced)
        if length == 0 and not formula.has_identity:
            raise ValueError(f"{self.name}: no elements are reduced, and there is no identity")
        if outputs == 0:
            return plan
        looped = []  # operands that are read or written element by element
        for i, (parameter, argument) in enumerate(zip(self.params, arguments, strict=True)):
            if not parameter.is_raw and (argument is None or argument.is_array):
                looped.append(i)
        strides = []
        for i in looped:
            if i < inputs:
                strides.append(strides_along(shape, arguments[i]))
                continue
            own = iter(strides_along(plan_shape, arguments[i]))
            own_all = [0 if d in reduced and not keepdims else next(own) for d in range(len(shape))]
            strides.append(tuple(own_all))
        in_order = formula.uses_index or any(parameter.is_raw for parameter in self.params)
        space = _merged(shape, kept, reduced, strides, in_order)
        places = [arguments[i] for i in looped]
        addresses = [0 if argument is None else _cukern._address(argument.pointee) for argument in places]
        reads = sum(1 for i in looped if i < inputs)
        layouts, division = choose_division(space, [elements[i] for i in looped], addresses, reads)
        operands, raw_layouts = self._operands(arguments, elements, dict(zip(looped, layouts, strict=True)))
        moving = [j for j, layout in enumerate(layouts) if layout != "one"]
        if not moving:  # each operand is one element throughout
            division = replace(division, kept=0, reduced=0)
        slots = length // division.vector
        blocks = -(-outputs // division.across)
        slices = _slices(blocks, slots, division) if division.slices else 1
        slice_slots = -(-slots // slices)
        slices = max(1, -(-slots // slice_slots)) if slice_slots else 1
        plan.constants = [*raw_layouts, structure("q", [outputs, length, slots, slice_slots, blocks, slices])]
        if division.kept > 0:
            steps = [space.kept_strides[j] for j in moving]
            plan.constants.append(layout_structure(division.index, space.kept, steps))
        if division.reduced > 0:
            lengths = [*space.reduced[:-1], space.reduced[-1] // division.vector]
            steps = [(*own[:-1], own[-1] * division.vector) for own in (space.reduced_strides[j] for j in moving)]
            plan.constants.append(layout_structure(division.index, lengths, steps))
        text_key = (tuple(operands), tuple(sorted(types.items())), division, formula)
        found = self._kernels.get(text_key)
        if found is None:
            source = reduction_source(formula, operands[:inputs], operands[inputs:], types, division)
            found = self._kernels[text_key] = _load(source, self.name, self._options, division.slices)
            for kernel in found[:2]:
                if kernel is not None:
                    kernel._follows = self._may_follow(formula)
        plan.block = division.threads
        plan.launches = [(found[0], blocks * slices)]
        if division.slices:
            plan.launches.append((found[1], -(-outputs // division.join_across)))
            plan.scratch = outputs * slices * found[2]
        return plan


def _load(source: str, name: str, options: Sequence[str], slices: bool) -> tuple[Any, Any, int]:
    """Return the kernel; of one with slices also the one that joins them, and the size of a partial result."""
    names = [name, f"{name}_join"] if slices else [name]
    module = _cukern.RawModule(code=source, options=options, name_expressions=names)
    if not slices:
        return module.get_function(name), None, 0
    size = module.get_global("_size_of_sum", "uint8").nbytes
    return module.get_function(names[0]), module.get_function(names[1]), size


def _axes(name: str, axis: Any, ndim: int) -> list[int]:
    """Return the axes that are reduced, in order."""
    if axis is None:
        return list(range(ndim))
    axes = []
    for each in axis if isinstance(axis, tuple | list) else (axis,):
        place = each.__index__() if hasattr(each, "__index__") else None
        if place is None:
            raise TypeError(f"{name}: axis is {axis!r}; expected None, an int or a tuple of ints")
        if not -ndim <= place < ndim:
            raise np.exceptions.AxisError(f"{name}: axis {place} is out of bounds for {ndim} dimensions")
        axes.append(place % ndim)
    if len(set(axes)) < len(axes):
        raise ValueError(f"{name}: axis {axis!r} names a dimension twice")
    return sorted(axes)


def _merged(
    shape: Sequence[int], kept: list[int], reduced: list[int], strides: Sequence[Sequence[int]], in_order: bool
) -> Lines:
    """Return the dimensions along memory, unless their order matters, merged where every operand allows it."""
    orders = [list(kept), list(reduced)]
    if not in_order:
        for order in orders:
            order.sort(key=lambda d: [-abs(own[d]) for own in strides])
    merged = [
        merge_dimensions([shape[d] for d in order], [[own[d] for d in order] for own in strides]) for order in orders
    ]
    (kept_lengths, kept_strides), (lengths, reduced_strides) = merged
    outputs, length = (math.prod(shape[d] for d in order) for order in (kept, reduced))
    return Lines(outputs, length, kept_lengths, kept_strides, lengths, reduced_strides)


def choose_division(
    space: Lines, elements: Sequence[str], addresses: Sequence[int], reads: int
) -> tuple[list[str], Division]:
    """Return how each operand lies, of which the first `reads` are read, and how threads divide the work."""
    kept, reduced = space.kept_strides, space.reduced_strides
    one = [not any((*a, *b)) for a, b in zip(kept, reduced, strict=True)]
    in_rows = sum(1 for own in reduced[:reads] if own and own[-1] == 1)
    in_columns = sum(1 for own in kept[:reads] if own and own[-1] == 1)
    reach = max(
        (farthest(space.kept, a) + farthest(space.reduced, b) for a, b in zip(kept, reduced, strict=True)),
        default=0,
    )
    index = "int" if max(reach, space.length, space.outputs) < MOST_INT else "long long"
    layouts = ["one" if is_one else "strided" for is_one in one]
    if in_columns > in_rows:
        along = min(SHORT_LINE, _power_of_two(space.length))
        across = BLOCK // along
        division = Division(across, along, False, len(space.kept), len(space.reduced), index=index)
        return layouts, _divided(space, division)
    vector, has_tail = 1, False
    sizes = [SIZES[element] for element, own in zip(elements, reduced[:reads], strict=False) if own and own[-1] == 1]
    if sizes and all(own[-1] in (0, 1) for own in reduced[:reads]):
        rows = ["one" if is_one else layout_in_rows(own) for is_one, own in zip(one, reduced, strict=True)][:reads]
        rows = ["same" if layout == "one" and not is_one else layout for layout, is_one in zip(rows, one, strict=False)]
        vector = max(1, VECTOR_BYTES // max(sizes))
        while vector > 1 and not (
            _are_whole(vector, space, rows) and are_aligned(vector, rows, elements[:reads], addresses[:reads])
        ):
            vector //= 2
        if vector > 1:
            layouts[:reads] = rows
            has_tail = space.length % vector != 0
    along = min(BLOCK, _power_of_two(-(-space.length // vector)))
    kept_ndim, reduced_ndim = len(space.kept), len(space.reduced)
    division = Division(BLOCK // along, along, True, kept_ndim, reduced_ndim, vector, has_tail, index=index)
    return layouts, _divided(space, division)


def _are_whole(vector: int, space: Lines, rows: Sequence[str]) -> bool:
    """Whether vectors begin at multiples of their size from each operand's first element, and lines are whole ones.

    A line of one dimension may have elements behind its last vector.
    """
    if len(space.reduced) > 1 and space.reduced[-1] % vector != 0:
        return False
    return all(
        stride % vector == 0
        for layout, kept, reduced in zip(rows, space.kept_strides, space.reduced_strides, strict=False)
        if layout == "packed"
        for stride in (*kept, *reduced[:-1])
    )


def _divided(space: Lines, division: Division) -> Division:
    """Return a division with slices, if that makes better use of the device."""
    blocks = -(-space.outputs // division.across)
    if blocks >= ENOUGH_BLOCKS or _slices(blocks, space.length // division.vector, division) < 2:
        return division
    return replace(division, slices=True, join_across=SHORT_LINE if space.outputs >= MANY_OUTPUTS else 1)


def _slices(blocks: int, slots: int, division: Division) -> int:
    """Return into how many slices lines are divided: each keeps the threads busy for a while."""
    return max(1, min(MOST_SLICED_BLOCKS // blocks, MOST_SLICES, slots // (division.along * IN_FLIGHT * 2)))


def _power_of_two(number: int) -> int:
    """Return the least power of two that is not smaller."""
    return 1 << max(0, number - 1).bit_length()
