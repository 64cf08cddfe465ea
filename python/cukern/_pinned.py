"""Pinned memory in arrays of NumPy: `pinned_allocator`, `empty_pinned`, `zeros_pinned`."""

from __future__ import annotations

import operator
import warnings
from types import TracebackType
from typing import Any

import numpy as np

from . import _cukern

MOST_DIMENSIONS = 64  # that NumPy has


class pinned_allocator:
    """Let NumPy allocate its arrays in pinned memory of cukern's pool, for a block of code.

    Pinned memory goes over the link without a copy in between. An array owns its memory as any other, and the pool
    has it again when the array is gone: not while a copy by another library, which does not wait, still reads it. On
    the host back-end the memory is ordinary. It is by NumPy's own interface for allocators (NEP 49), so that the block
    is of this thread, and of tasks that it starts.

    See `set_pinned_limit` for how much there is; beyond that, and where the system refuses pinned memory, arrays lie
    in ordinary memory.

    Examples
    --------
    >>> import cukern, numpy
    >>> with cukern.pinned_allocator():
    ...     a = numpy.zeros((1000, 1000))
    >>> cukern.asarray(a).shape
    (1000, 1000)
    """

    def __init__(self) -> None:
        self._before: list[Any] = []

    def __enter__(self) -> pinned_allocator:
        self._before.append(_cukern._set_numpy_allocator(None))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _cukern._set_numpy_allocator(self._before.pop())


def empty_pinned(shape: int | tuple[int, ...], dtype: Any = float, order: Any = "C") -> np.ndarray[Any, Any]:
    """Return an array of NumPy in pinned memory, whose elements are not set.

    Parameters
    ----------
    shape : int or tuple of int
    dtype : optional
        As `numpy.empty` takes it; float64 by default.
    order : {'C', 'F'}

    Returns
    -------
    ndarray
        In ordinary memory, with a RuntimeWarning, where there is no pinned memory left. On the host back-end all
        memory is ordinary.

    Examples
    --------
    >>> import cukern
    >>> cukern.empty_pinned((2, 3), "float32").shape
    (2, 3)
    """
    return _warned("empty_pinned", np.empty, shape, dtype, order)


def zeros_pinned(shape: int | tuple[int, ...], dtype: Any = float, order: Any = "C") -> np.ndarray[Any, Any]:
    """Return an array of zeros of NumPy in pinned memory: `empty_pinned`, with its elements set.

    Examples
    --------
    >>> import cukern
    >>> cukern.zeros_pinned(2)
    array([0., 0.])
    """
    return _warned("zeros_pinned", np.zeros, shape, dtype, order)


def _lengths(name: str, shape: Any) -> Any:
    """Return a shape as ints. NumPy would swallow what an object's own code raises, an interrupt too."""
    try:
        return operator.index(shape)
    except TypeError:  # which an ndarray of several lengths raises, too
        pass
    try:
        return tuple(operator.index(shape[i]) for i in range(min(len(shape), MOST_DIMENSIONS + 1)))
    except TypeError:
        message = f"{name}: shape must be an int or a sequence of ints, got {type(shape).__name__}"
        raise TypeError(message) from None


def _warned(name: str, make: Any, shape: Any, *arguments: Any) -> np.ndarray[Any, Any]:
    lengths = _lengths(name, shape)
    with pinned_allocator():
        array: np.ndarray[Any, Any] = make(lengths, *arguments)
    if not _cukern._is_from_pool(array):
        warnings.warn(
            f"{name}: no pinned memory is left, or its limit is reached (see set_pinned_limit): "
            "the array lies in ordinary memory",
            RuntimeWarning,
            stacklevel=3,
        )
    return array
