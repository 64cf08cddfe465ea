"""NumPy's functions on cukern's Arrays: ``np.sum(x)``, ``np.concatenate([x, y])`` and the like (NEP 18).

A function that cukern has is cukern's own. Any other gets managed and pinned Arrays as ndarrays that share their
memory, and returns NumPy's result; an Array in device memory is refused, since NumPy does not see it.

Imported when the first such function is called.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from . import _cukern
from ._contractions import einsum, tensordot
from ._cukern import Array


class _Unsupported(Exception):
    """cukern's own function does not take these arguments or options."""


def _check_operands(*operands: Any) -> None:
    """Lists, text, and arrays of element types that cukern does not have are NumPy's alone to read."""
    for operand in operands:
        is_foreign = isinstance(operand, np.ndarray | np.generic) and operand.dtype.kind not in "biufcV"
        if is_foreign or isinstance(operand, list | tuple | str | bytes):
            raise _Unsupported(type(operand))


def _without(options: dict[str, Any], **defaults: Any) -> None:
    """Take options out that cukern does not have; they must have their default values."""
    for name, default in defaults.items():
        value = options.pop(name, default)
        if value is not default and value is not np._NoValue:
            raise _Unsupported(name)


def _known(options: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return the options that cukern has; the others must not be given."""
    given = {name: value for name, value in options.items() if value is not np._NoValue and value is not None}
    if set(given) - set(names):
        raise _Unsupported(*given)
    return given


def _reduction(name: str) -> Callable[..., Any]:
    own = getattr(_cukern, name)

    def reduce(a: Any, axis: Any = None, **options: Any) -> Any:
        _without(options, initial=np._NoValue, where=np._NoValue, mean=np._NoValue)
        if "ddof" in options:
            ddof = options.pop("ddof")
            if ddof != 0 and "correction" in options:
                raise ValueError("ddof and correction can't be provided simultaneously.")
            options.setdefault("correction", ddof)
        known = ["dtype"] if name in ("sum", "prod", "mean") else ["correction"] if name in ("var", "std") else []
        return own(a, axis, **_known(options, "out", "keepdims", *known))

    # NumPy takes these by position too: dtype and out, or out alone.
    positional = ("axis", "dtype", "out") if name in ("sum", "prod", "mean", "var", "std") else ("axis", "out")

    def by_position(a: Any, *args: Any, **options: Any) -> Any:
        if len(args) > len(positional):
            raise _Unsupported(name)
        return reduce(a, **dict(zip(positional, args, strict=False)), **options)

    return by_position


def _running(name: str) -> Callable[..., Any]:
    own = getattr(_cukern, name)

    def running(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        _check_operands(a)
        if type(a) is not Array or a.ndim == 0:
            raise _Unsupported("an array without dimensions")
        return own(_cukern.ravel(a) if axis is None else a, axis=0 if axis is None else axis, dtype=dtype, out=out)

    return running


def _like(name: str) -> Callable[..., Any]:
    own = getattr(_cukern, name)

    names = (*(["fill_value"] if name == "full_like" else []), "dtype", "order", "subok", "shape")

    def like(a: Any, *args: Any, **options: Any) -> Any:
        if len(args) > len(names) or set(names[: len(args)]) & set(options):
            raise _Unsupported(name)
        options |= dict(zip(names, args, strict=False))
        _without(options, order="K", subok=True, shape=None, device=None)
        value = [options.pop("fill_value")] if "fill_value" in options else []
        _check_operands(*value)
        dtype = options.pop("dtype", None)
        if options:
            raise _Unsupported(*options)
        try:
            return own(a, *value, dtype=dtype)
        except TypeError:  # such as an element type that only NumPy has
            raise _Unsupported(name) from None

    return like


def _concatenate(arrays: Any, axis: Any = 0, **options: Any) -> Any:
    return _joined(_cukern.concat, arrays, axis, options)


def _stack(arrays: Any, axis: Any = 0, **options: Any) -> Any:
    return _joined(_cukern.stack, arrays, axis, options)


def _joined(join: Callable[..., Any], arrays: Any, axis: Any, options: dict[str, Any]) -> Any:
    _without(options, out=None, dtype=None, casting="same_kind")
    parts = list(arrays)
    if options or not all(type(part) is Array for part in parts):
        raise _Unsupported("arrays of several kinds")
    return join(parts, axis)


def _where(condition: Any, x: Any = None, y: Any = None) -> Any:
    if x is None or y is None:
        raise _Unsupported("one argument")
    _check_operands(condition, x, y)
    return _cukern.where(condition, x, y)


def _clip(a: Any, a_min: Any = np._NoValue, a_max: Any = np._NoValue, out: Any = None, **options: Any) -> Any:
    given = a_min is not np._NoValue or a_max is not np._NoValue
    if given and options.keys() & {"min", "max"}:
        raise ValueError("Passing `min` or `max` keyword argument when `a_min` and `a_max` are provided is forbidden.")
    least = options.pop("min", a_min)
    most = options.pop("max", a_max)
    _check_operands(a, *(bound for bound in (least, most) if bound is not np._NoValue))
    if options:
        raise _Unsupported(*options)
    bounds = [None if bound is np._NoValue else bound for bound in (least, most)]
    return _cukern.clip(a, *bounds, out=None if out is np._NoValue else out)


def _reshape(a: Any, /, shape: Any = None, order: str = "C", *, newshape: Any = None, copy: Any = None) -> Any:
    if order != "C":
        raise _Unsupported("order")
    return _cukern.reshape(a, newshape if shape is None else shape, copy=copy)


def _ravel(a: Any, order: str = "C") -> Any:
    if order != "C":
        raise _Unsupported("order")
    return _cukern.ravel(a)


def _broadcast_to(array: Any, shape: Any, subok: bool = False) -> Any:
    return _cukern.broadcast_to(array, shape)


def _copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    if casting != "same_kind" or where is not True:
        raise _Unsupported("casting", "where")
    _cukern.copyto(dst, src)


def _copy(a: Any, order: str = "K", subok: bool = False) -> Any:
    return _cukern.copy(a, order)


def _dot(a: Any, b: Any, out: Any = None) -> Any:
    _check_operands(a, b)
    return _cukern.dot(a, b, out=out)


def _tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    _check_operands(a, b)
    return tensordot(a, b, axes=axes)


def _einsum(subscripts: Any, *operands: Any, out: Any = None, **options: Any) -> Any:
    _check_operands(*operands)
    repeats = isinstance(subscripts, str) and any(
        len(set(x) - {"."}) != len(x.replace(".", ""))
        for x in subscripts.replace(" ", "").partition("->")[0].split(",")
    )
    if not isinstance(subscripts, str) or len(operands) != 2 or options or repeats:
        raise _Unsupported("einsum")
    return einsum(subscripts, *operands, out=out)


def _round(a: Any, decimals: int = 0, out: Any = None) -> Any:
    if decimals != 0:
        raise _Unsupported("decimals")
    return _cukern.round(a, out=out)


def _array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> bool:
    """Whether shapes and elements are the same; two arrays that cannot be compared raise, instead of being unequal."""
    _check_operands(a1, a2)
    if np.shape(a1) != np.shape(a2):
        return False
    same = _cukern.equal(a1, a2)
    if equal_nan:
        nan = _cukern.logical_and(_cukern.not_equal(a1, a1), _cukern.not_equal(a2, a2))
        same = _cukern.logical_or(same, nan)
    return bool(_cukern.all(same))


def _expand_dims(a: Any, axis: Any) -> Any:
    return _cukern.expand_dims(a, tuple(axis) if isinstance(axis, list) else axis)


def _size(a: Any, axis: Any = None) -> int:
    axes = range(a.ndim) if axis is None else normalize_axis_tuple(axis, a.ndim)
    return math.prod(a.shape[each] for each in axes)


def _astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    if device is not None:  # there are other names for one here
        raise _Unsupported("device")
    try:
        return _cukern.astype(x, dtype, copy=copy)
    except TypeError:  # an element type that only NumPy has
        raise _Unsupported("dtype") from None


def _result_type(*operands: Any) -> Any:
    try:
        return _cukern.result_type(*operands)
    except TypeError:  # an element type that only NumPy has
        raise _Unsupported("an element type") from None


_FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    **{
        getattr(np, name): _reduction(name)
        for name in ("sum", "prod", "mean", "max", "min", "any", "all", "var", "std")
    },
    **{getattr(np, name): _reduction(name) for name in ("argmax", "argmin")},
    np.amax: _reduction("max"),
    np.amin: _reduction("min"),
    np.cumsum: _running("cumulative_sum"),
    np.cumprod: _running("cumulative_prod"),
    **{getattr(np, f"{name}_like"): _like(f"{name}_like") for name in ("empty", "zeros", "ones", "full")},
    np.concatenate: _concatenate,
    np.stack: _stack,
    np.where: _where,
    np.clip: _clip,
    np.reshape: _reshape,
    np.ravel: _ravel,
    np.transpose: lambda a, axes=None: _cukern.transpose(a, axes),
    np.squeeze: lambda a, axis=None: _cukern.squeeze(a, axis),
    np.expand_dims: _expand_dims,
    np.broadcast_to: _broadcast_to,
    np.copyto: _copyto,
    np.copy: _copy,
    np.dot: _dot,
    np.tensordot: _tensordot,
    np.einsum: _einsum,
    np.round: _round,
    np.around: _round,
    np.array_equal: _array_equal,
    np.real: lambda val: _cukern.real(val),
    np.imag: lambda val: _cukern.imag(val),
    np.result_type: _result_type,
    np.can_cast: lambda from_, to, casting="safe": _can_cast(from_, to, casting),
    np.shape: lambda a: a.shape,
    np.ndim: lambda a: a.ndim,
    np.size: _size,
}
_NEWER: dict[str, Callable[..., Any]] = {  # of NumPy 2.1
    "cumulative_sum": _cukern.cumulative_sum,
    "cumulative_prod": _cukern.cumulative_prod,
    "astype": _astype,
}
_FUNCTIONS |= {getattr(np, name): function for name, function in _NEWER.items() if hasattr(np, name)}


def _can_cast(from_: Any, to: Any, casting: str) -> bool:
    if casting != "safe":
        raise _Unsupported("casting")
    return _cukern.can_cast(from_, to)


def dispatch(function: Callable[..., Any], types: Iterable[type], args: Any, options: Any) -> Any:
    """Return what a function of NumPy gives for arguments of which some are Arrays (NEP 18)."""
    if not all(issubclass(kind, Array | np.ndarray) for kind in types):
        return NotImplemented
    own = _FUNCTIONS.get(function)
    if own is not None:
        try:
            return own(*args, **options)
        except _Unsupported:
            pass
    return _through_numpy(function, args, options)


def _through_numpy(function: Callable[..., Any], args: Any, options: Any) -> Any:
    """Call NumPy's own function on the Arrays' memory."""
    views: list[tuple[Any, np.ndarray[Any, Any]]] = []

    def viewed(value: Any) -> Any:
        if type(value) is Array:
            if value.memory == "device":
                raise TypeError(
                    f"numpy.{function.__name__}: an argument is a cukern.Array in device memory, which NumPy does not "
                    "see, and cukern has no such function with these options; pass cukern.asnumpy(a)"
                )
            views.append((value, np.asarray(value)))
            return views[-1][1]
        if isinstance(value, tuple):
            return tuple(viewed(item) for item in value)
        if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview | range):
            return [viewed(item) for item in value]
        if isinstance(value, dict):
            return {key: viewed(item) for key, item in value.items()}
        return value

    positional, named = viewed(tuple(args)), viewed(dict(options))
    # Where none was found, the public function would come back here.
    call = function if views else getattr(function, "_implementation", function)
    result = call(*positional, **named)
    return next((array for array, view in views if view is result), result)  # an `out` that was given
