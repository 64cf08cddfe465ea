"""Numbers as the text of a kernel: the C++ types of elements and parameters, and literals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

# The C++ types of elements in our headers (cuda/include/cukern/element_types.def).
CPP = {
    "bool": "cukern::Bool",
    "float16": "cukern::Float16",
    "bfloat16": "cukern::BFloat16",
    "float32": "float",
    "float64": "double",
    "complex64": "cukern::Complex64",
    "complex128": "cukern::Complex128",
}
CPP |= {f"{kind}{bits}": f"std::{kind}{bits}_t" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}


def number_kind(value: Any) -> type | None:
    """Return which of Python's types a number has."""
    return next((kind for kind in (bool, int, float, complex) if isinstance(value, kind)), None)


def limits_of(element: str) -> tuple[int, int] | None:
    """Return the least and the largest integer of an element type."""
    return (int(np.iinfo(element).min), int(np.iinfo(element).max)) if "int" in element else None


def number_type(element: str) -> str:
    """Return the type of a parameter that takes a number for operations in an element type."""
    if "complex" in element:
        return "double2"
    return "double" if "float" in element else "bool" if element == "bool" else CPP[element]


def read_number(name: str, element: str) -> str:
    """Return the text that makes a parameter of that type a number."""
    return f"cukern::Complex128{{{name}.x, {name}.y}}" if "complex" in element else name


def double_text(value: float) -> str:
    """Return a double as C++, to the bit."""
    if math.isnan(value):
        return "cukern::bit_cast<double>(0x7FF8000000000000ULL)"
    if math.isinf(value):
        return f"cukern::bit_cast<double>({'0xFFF' if value < 0 else '0x7FF'}0000000000000ULL)"
    return value.hex()


def literal(value: Any, compute: str) -> str:
    """Return a number of Python as C++: an integer, a double, or a complex number."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, complex):
        return f"cukern::Complex128{{{double_text(value.real)}, {double_text(value.imag)}}}"
    if isinstance(value, float) or "int" not in compute:
        try:
            return double_text(float(value))
        except OverflowError:
            return double_text(math.inf if value > 0 else -math.inf)
    return f"static_cast<{CPP[compute]}>({value % 2**64}ULL)"
