"""Calls of kernels of formulas on arrays of the host that the device does not hold at once: piece after piece."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _cukern
from ._formula_argument import Argument
from ._formula_source import SIZES

PIECE_BYTES = 1 << 30  # of the arrays of a piece, where the device has room for four of them
LEAST_PIECE = 1 << 16
LEAST_BYTES = 1 << 20  # of all arrays, below which nobody asks how much room there is


@dataclass(frozen=True)
class Space:
    """The elements of a call: their shape, which dimensions may be cut, and where these are in the outputs' shape."""

    shape: tuple[int, ...]
    places: dict[int, int]  # dimension of `shape`: that of the outputs
    out_shape: tuple[int, ...]


@dataclass(frozen=True)
class Cut:
    """Pieces of a dimension."""

    space: Space
    axis: int
    length: int

    def pieces(self) -> Iterator[slice]:
        whole = self.space.shape[self.axis]
        for begin in range(0, whole, self.length):
            yield slice(begin, min(begin + self.length, whole))

    def is_cut(self, shape: Sequence[int]) -> bool:
        """Whether an input of this shape has the dimension; else all pieces broadcast it."""
        place = self.axis - len(self.space.shape)
        return len(shape) >= -place and shape[place] != 1

    def part(self, value: Any, piece: slice) -> Any:
        """Return a part of an input."""
        return _sliced(value, self.axis - len(self.space.shape), piece)

    def out_part(self, value: Any, piece: slice) -> Any:
        """Return a part of an output."""
        return _sliced(value, self.space.places[self.axis] - len(self.space.out_shape), piece)


def _sliced(value: Any, place: int, piece: slice) -> Any:
    return _with_slices(value)[(..., piece, *(slice(None),) * (-place - 1))]


def _with_slices(value: Any) -> Any:
    """Return an array of the host, or a view of it, that can be indexed as NumPy's; None where there is none."""
    if isinstance(value, _cukern.Array | np.ndarray):
        return value
    if not hasattr(value, "__dlpack__"):
        return np.asarray(memoryview(value))
    if _cukern._allocate_like(value, "int8", (0,)) is not None:  # torch's tensors
        return value
    try:
        return np.from_dlpack(value)
    except (TypeError, BufferError, RuntimeError):
        return None


def choose_cut(arguments: Sequence[Argument | None], inputs: int, made: Sequence[str], space: Space) -> Cut | None:
    """Return how a call is cut; None where it is not. `made`: element types of the outputs that are to be made."""
    arrays = [argument for argument in arguments if argument is not None and argument.is_array]
    if not space.places or not any(argument.host is not None for argument in arrays):
        return None
    made_bytes = sum(SIZES[element] for element in made) * math.prod(space.out_shape)
    total = made_bytes + sum(map(_bytes_of, arrays))
    if total < LEAST_BYTES:
        return None
    info = _cukern.memory_info()
    room = info["free"] + info["cached"]
    if info["limit"]:
        room = min(room, info["limit"] - info["in_use"])
    most = min(PIECE_BYTES, max(LEAST_PIECE, room // 4))
    if total <= most or _has_partial_overlap(arguments, inputs):
        return None
    outputs = made_bytes + sum(_bytes_of(each) for each in arguments[inputs:] if each is not None)
    cuts = [_cut_along(axis, arguments[:inputs], outputs, most, space) for axis in space.places]
    # The first dimension whose pieces are small enough: in C order its parts lie in one stretch of memory.
    _, cut = next((pair for pair in cuts if pair[0] <= most), min(cuts, key=lambda pair: pair[0]))
    can_be_cut = (
        cut.length < space.shape[cut.axis]
        and all(_with_slices(argument.value) is not None for argument in arrays)
        and not _is_read_again(arguments, inputs, cut)
    )
    return cut if can_be_cut else None


def _bytes_of(argument: Argument) -> int:
    return SIZES[str(argument.element)] * math.prod(argument.shape) if argument.is_array else 0


def _cut_along(axis: int, given: Sequence[Argument | None], outputs: int, most: int, space: Space) -> tuple[int, Cut]:
    """Return how many bytes a piece along a dimension has on the device, and the cut."""
    whole = max(1, space.shape[axis])
    cut = Cut(space, axis, whole)
    shared, parts = 0, outputs
    for argument in given:
        if argument is not None and argument.is_array and cut.is_cut(argument.shape):
            parts += _bytes_of(argument)
        elif argument is not None:
            shared += _bytes_of(argument)
    length = max(1, min(whole, (most - shared) * whole // parts)) if parts else whole
    return shared + -(-parts * length // whole), Cut(space, axis, length)


def _has_partial_overlap(arguments: Sequence[Argument | None], inputs: int) -> bool:
    """Whether an output overlaps another array in part: a piece would change what later ones read or have written."""
    arrays = [argument for argument in arguments if argument is not None and argument.is_array]
    return any(
        _cukern._overlap(output.value, other.value)
        for output in arguments[inputs:]
        if output is not None
        for other in arrays
        if other is not output
    )


def _is_read_again(arguments: Sequence[Argument | None], inputs: int, cut: Cut) -> bool:
    """Whether an output is an input that all pieces read."""
    written = {_address_of(argument) for argument in arguments[inputs:] if argument is not None}
    return any(
        argument is not None
        and argument.is_array
        and not cut.is_cut(argument.shape)
        and _address_of(argument) in written
        for argument in arguments[:inputs]
    )


def _address_of(argument: Argument) -> int:
    return int(argument.host[3]) if argument.host is not None else int(_cukern._address(argument.value))


def run_pieces(
    cut: Cut,
    arguments: Sequence[Argument | None],
    inputs: int,
    run: Callable[[list[Any], dict[Any, Any]], Sequence[Any]],
    make: Callable[[Any, tuple[int, ...]], Any],
) -> list[Any]:
    """Run the pieces; return the outputs that were not given.

    `run` takes values of a piece and the copies on the device that all pieces share, and returns outputs on the device;
    `make` returns memory of the host for one of them, of a shape.
    """
    results: list[Any] = []
    copies: dict[Any, Any] = {}
    for argument in arguments[:inputs]:
        if argument is not None and argument.host is not None and not cut.is_cut(argument.shape):
            copies[argument.host] = _cukern.asarray(argument.value)
    for piece in cut.pieces():
        values = []
        for i, argument in enumerate(arguments):
            if argument is None:
                continue
            value = argument.value
            if i >= inputs:
                value = cut.out_part(value, piece)
            elif argument.is_array and cut.is_cut(argument.shape):
                value = cut.part(value, piece)
            values.append(value)
        made = run(values, dict(copies))
        results = results or [make(array, cut.space.out_shape) for array in made]
        for result, array in zip(results, made, strict=True):
            to = cut.out_part(result, piece)
            if isinstance(to, _cukern.Array):
                to[...] = array
            else:
                _cukern.asnumpy(array, out=to)
    return results
