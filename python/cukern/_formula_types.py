"""The element types that a call of a kernel of formulas binds its generic types to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ._formula_argument import Argument
from ._formula_source import SIZES, Parameter


def bind_types(name: str, parameters: Sequence[Parameter], arguments: Sequence[Argument | None]) -> dict[str, str]:
    """Return the element types that generic types stand for: by arrays, else by NumPy's scalars, else by numbers."""
    types: dict[str, str] = {}
    given = [pair for pair in zip(parameters, arguments, strict=True) if pair[1] is not None]
    for parameter, argument in given:
        if argument is None or not argument.is_array or argument.element is None:
            continue
        if not parameter.is_generic:
            if argument.element != parameter.type:
                raise TypeError(f"{name}: {parameter.name} has element type {argument.element}, not {parameter.type}")
            continue
        known = types.setdefault(parameter.type, argument.element)
        if known != argument.element:
            raise TypeError(
                f"{name}: {parameter.name} has element type {argument.element}, and {parameter.type} is {known} by "
                "another argument"
            )
    scalars = [pair for pair in given if pair[1] is not None and not pair[1].is_array]
    for is_numpys in (True, False):
        for parameter, argument in scalars:
            if argument is not None and parameter.is_generic and (argument.element is not None) == is_numpys:
                types.setdefault(parameter.type, argument.element or np.dtype(type(argument.value)).name)
    for parameter, argument in scalars:
        if argument is not None:
            _check_number(name, parameter, argument, types.get(parameter.type, parameter.type))
    return types


def _check_number(name: str, parameter: Parameter, argument: Argument, element: str) -> None:
    """Raise TypeError for a number of another kind than the element type that it becomes: 2.5 for an integer."""
    kinds = "biufc"
    own = np.dtype(argument.element or type(argument.value)).kind if argument.element != "bfloat16" else "f"
    wanted = "f" if element == "bfloat16" else np.dtype(element).kind if element in SIZES else "c"
    if kinds.index(own) > kinds.index("i" if wanted == "u" else wanted) and not (own in "iu" and wanted in "iu"):
        of = f"{parameter.type} is {element}" if parameter.is_generic else f"its type is {element}"
        raise TypeError(f"{name}: {parameter.name} is {argument.value!r}, and {of}; pass a number of that kind")
