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
    if not isinstance(value, _cukern.Array | np.ndarray) and not hasattr(value, "__dlpack__"):
        value = np.asarray(value)  # what has a buffer
    return value[(..., piece, *(slice(None),) * (-place - 1))]


def choose_cut(arguments: Sequence[Argument | None], inputs: int, made: Sequence[str], space: Space) -> Cut | None:
    """Return how a call is cut; None where it is not. `made`: element types of the outputs that are to be made."""
    arrays = [argument for argument in arguments if argument is not None and argument.is_array]
    if not space.places or not any(argument.host is not None for argument in arrays):
        return None
    sizes = [SIZES[str(argument.element)] * math.prod(argument.shape) for argument in arrays]
    total = sum(sizes) + sum(SIZES[element] for element in made) * math.prod(space.out_shape)
    if total < LEAST_BYTES:
        return None
    info = _cukern.memory_info()
    room = info["free"] + info["cached"]
    if info["limit"]:
        room = min(room, info["limit"] - info["in_use"])
    piece = min(PIECE_BYTES, max(1, room // 4))
    if total <= piece or _writes_what_it_reads(arguments, inputs):
        return None
    # The first dimension that gives as many pieces: its parts lie in one stretch of memory.
    wanted = -(-total // piece)
    axis = next((d for d in space.places if space.shape[d] >= wanted), max(space.places, key=lambda d: space.shape[d]))
    length = max(1, space.shape[axis] // wanted)
    return None if length >= space.shape[axis] else Cut(space, axis, length)


def _writes_what_it_reads(arguments: Sequence[Argument | None], inputs: int) -> bool:
    """Whether an output overlaps an input in part: a piece would change what later ones read."""
    arrays = [None if argument is None or not argument.is_array else argument for argument in arguments]
    return any(
        _cukern._overlap(output.value, other.value)
        for output in arrays[inputs:]
        if output is not None
        for other in arrays[:inputs]
        if other is not None
    )


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
