"""What the array API standard's namespace has beside functions of arrays: constants and inquiries."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy

from . import _cukern

e = math.e
inf = math.inf
nan = math.nan
pi = math.pi
newaxis = None

_KINDS = {
    "bool": "b",
    "signed integer": "i",
    "unsigned integer": "u",
    "integral": "iu",
    "real floating": "f",
    "complex floating": "c",
    "numeric": "iufc",
}
_INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
_STANDARD = ["bool", *_INTEGERS, "float32", "float64", "complex64", "complex128"]


class FloatInfo(NamedTuple):
    """What `finfo` tells of a floating element type."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: Any


class IntegerInfo(NamedTuple):
    """What `iinfo` tells of an integer element type."""

    bits: int
    max: int
    min: int
    dtype: Any


def _dtype_of(type: Any) -> Any:
    if isinstance(type, (int, float, complex)) and not isinstance(type, numpy.generic):
        raise TypeError(f"{type!r} is no element type or array")
    return _cukern.result_type(type)


def _kind_of(dtype: Any) -> str:
    return "f" if dtype == "bfloat16" else numpy.dtype(dtype).kind


def finfo(type: Any, /) -> FloatInfo:
    """Return the limits of a floating element type; of a complex one those of its parts.

    Parameters
    ----------
    type : dtype or array

    Returns
    -------
    FloatInfo
        With ``bits``, ``eps``, ``max``, ``min``, ``smallest_normal`` and ``dtype``.

    Raises
    ------
    TypeError
        The element type is not floating or complex.

    Examples
    --------
    >>> import cukern
    >>> cukern.finfo(cukern.float32).bits
    32
    """
    dtype = _dtype_of(type)
    if _kind_of(dtype) not in "fc":
        raise TypeError(f"finfo: {dtype} is no floating or complex element type; iinfo() is for integers")
    if dtype == "bfloat16":  # 8 bits of exponent as float32, 7 of fraction
        largest = (2 - 2**-7) * 2.0**127
        return FloatInfo(16, 2.0**-7, largest, -largest, 2.0**-126, _cukern.bfloat16)
    found = numpy.finfo(dtype)
    largest = float(found.max)
    return FloatInfo(found.bits, float(found.eps), largest, -largest, float(found.smallest_normal), found.dtype)


def iinfo(type: Any, /) -> IntegerInfo:
    """Return the limits of an integer element type.

    Parameters
    ----------
    type : dtype or array

    Returns
    -------
    IntegerInfo
        With ``bits``, ``max``, ``min`` and ``dtype``.

    Raises
    ------
    TypeError
        The element type is not an integer's.

    Examples
    --------
    >>> import cukern
    >>> cukern.iinfo(cukern.int8).max
    127
    """
    dtype = _dtype_of(type)
    if _kind_of(dtype) not in "iu":
        raise TypeError(f"iinfo: {dtype} is no integer element type; finfo() is for floating ones")
    found = numpy.iinfo(dtype)
    return IntegerInfo(found.bits, int(found.max), int(found.min), dtype)


def isdtype(dtype: Any, kind: Any) -> bool:
    """Return whether an element type is of a kind.

    Parameters
    ----------
    dtype : dtype
    kind : str, dtype, or tuple of them
        ``'bool'``, ``'signed integer'``, ``'unsigned integer'``, ``'integral'``, ``'real floating'``,
        ``'complex floating'`` or ``'numeric'``; of a tuple one has to hold.

    Returns
    -------
    bool

    Raises
    ------
    ValueError
        There is no such kind.
    TypeError
        An argument is no element type.

    Examples
    --------
    >>> import cukern
    >>> cukern.isdtype(cukern.int8, ("bool", "integral"))
    True
    """
    own = _dtype_of(dtype)
    if isinstance(kind, tuple):
        return any(isdtype(own, each) for each in kind)
    if not isinstance(kind, str) or kind == "bfloat16":
        return bool(own == _dtype_of(kind))
    if kind not in _KINDS:
        raise ValueError(f"isdtype: kind is {kind!r}; expected a dtype, or one of {', '.join(map(repr, _KINDS))}")
    return _kind_of(own) in _KINDS[kind]


class NamespaceInfo:
    """What the array API standard's ``__array_namespace_info__`` tells."""

    def capabilities(self) -> dict[str, bool | int | None]:
        """Return what the standard leaves open: there is no indexing by arrays of bool."""
        return {"boolean indexing": False, "data-dependent shapes": False, "max dimensions": 64}

    def default_device(self) -> Any:
        """Return the current device."""
        return _cukern.Device()

    def devices(self) -> list[Any]:
        """Return all devices."""
        return [_cukern.Device(i) for i in range(_cukern.device_count())]

    def default_dtypes(self, *, device: Any = None) -> dict[str, Any]:
        """Return the element types that new arrays have where none is named."""
        names = {"real floating": "float64", "complex floating": "complex128", "integral": "int64", "indexing": "int64"}
        return {use: getattr(_cukern, name) for use, name in names.items()}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, Any]:
        """Return the standard's element types by name, all or those of a kind; float16 and bfloat16 are none."""
        found = {name: getattr(_cukern, name) for name in _STANDARD}
        return {name: dtype for name, dtype in found.items() if kind is None or isdtype(dtype, kind)}


def __array_namespace_info__() -> NamespaceInfo:
    """Return an object that tells the standard's capabilities, devices and element types.

    Returns
    -------
    NamespaceInfo

    Examples
    --------
    >>> import cukern
    >>> sorted(cukern.__array_namespace_info__().dtypes(kind="complex floating"))
    ['complex128', 'complex64']
    """
    return NamespaceInfo()
