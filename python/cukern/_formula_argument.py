"""An argument of a kernel of formulas: what it is, where it lies, and its copy on the device."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _cukern


class Argument:
    """An argument of a call: a number, or an array with its element type, shape and strides in elements.

    An array in host memory has the strides of its copy on the device once that is made.
    """

    __slots__ = ("device", "element", "host", "is_array", "memory", "pointee", "shape", "strides", "value")

    def __init__(self, value: Any, function: str = "fuse", name: str = "an argument") -> None:
        self.value = value
        self.is_array = False
        self.host: tuple[Any, ...] | None = None  # of an array in host memory: _cukern._host_layout
        self.memory: str | None = None  # of others
        self.element: str | None = None  # None: a number of Python, which adopts the parameter's
        self.shape: tuple[int, ...] = ()
        self.strides: tuple[int, ...] = ()
        self.pointee = value  # what the kernel is given
        self.device: Any = None
        if isinstance(value, bool | int | float | complex) and not isinstance(value, np.generic):
            return
        if isinstance(value, np.generic):
            self.element = element_name(value.dtype)
            self.pointee = value.item()  # which takes the type that is decided on
            return
        self.is_array = True
        if not isinstance(value, _cukern.Array):
            self.host = _cukern._host_layout(value, function, name)
        if self.host is not None:
            self.element, self.shape = self.host[:2]
            return
        array = value
        if not isinstance(value, _cukern.Array):
            array = _cukern.from_dlpack(value) if hasattr(value, "__dlpack__") else _cukern.asarray(value)
        self.memory = array.memory
        self.element = element_name(array.dtype)
        self.shape = array.shape
        self._lies_as(array)

    def _lies_as(self, array: Any) -> None:
        self.device = array.device
        self.strides = tuple(stride // array.itemsize for stride in array.strides)

    def upload(self, copies: dict[Any, Any]) -> None:
        """Give the kernel a copy of an array of the host, the same one for the same memory."""
        if self.host is None:
            return
        if self.host not in copies:
            copies[self.host] = _cukern.asarray(self.value)
        self.pointee = copies[self.host]
        self._lies_as(self.pointee)

    def goes_with_host(self) -> bool:
        """Whether it may stand beside arrays on the host: numbers, those themselves, managed and pinned Arrays."""
        return self.memory is None or (self.memory != "device" and isinstance(self.value, _cukern.Array))

    def is_packed(self) -> bool:
        """Whether elements lie side by side in C order."""
        expected = 1
        for n, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if n != 1 and stride != expected:
                return False
            expected *= n
        return True


def element_name(dtype: Any) -> str:
    return str(getattr(dtype, "name", dtype))
