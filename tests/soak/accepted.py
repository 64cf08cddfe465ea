"""Known differences from NumPy that are no failures, each with its reason."""

from __future__ import annotations

from typing import Any

import numpy as np

LOGICAL = ("logical_and", "logical_or", "logical_xor")
COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")


def is_accepted(name: str, models: list[Any]) -> bool:
    """Whether an operation on these operands is known to differ from NumPy."""
    return any(rule(name, models) for rule in RULES)


def _huge(models: list[Any]) -> list[int]:
    return [model for model in models if type(model) is int and not -(2**63) <= model < 2**64]


def objects(name: str, models: list[Any]) -> bool:
    """Integers that no element type holds, without an array beside them: of them NumPy makes objects."""
    beyond = any(type(model) is int and not -(2**63) <= model < 2**63 for model in models)
    return beyond and not any(isinstance(model, np.ndarray | np.generic) for model in models)


def where_of_objects(name: str, models: list[Any]) -> bool:
    """The same of where, whose condition does not count."""
    return name == "where" and objects(name, models[1:])


def logic_of_huge(name: str, models: list[Any]) -> bool:
    """Of an integer only whether it is zero counts to logical operations; NumPy raises, since it converts it."""
    return name in LOGICAL and any(type(model) is int for model in models)


def comparison_with_huge(name: str, models: list[Any]) -> bool:
    """An integer beyond all floats is compared as infinity; NumPy raises, since it converts it."""
    if name not in COMPARISONS:
        return False
    if any(
        getattr(getattr(model, "dtype", None), "kind", "") == "b" for model in models
    ):  # which NumPy compares as int64
        return any(type(model) is int and not -(2**63) <= model < 2**63 for model in models)
    return any(abs(model) > 10**300 for model in _huge(models))


def where_of_integers(name: str, models: list[Any]) -> bool:
    """An integer that does not fit the element type is an OverflowError, as elsewhere; NumPy's where wraps it."""
    if name != "where":
        return False
    dtypes = [model.dtype for model in models[1:] if isinstance(model, np.ndarray | np.generic)]
    dtypes = [np.dtype(np.int64) if dtype.kind == "b" else dtype for dtype in dtypes]
    if not dtypes or any(dtype.kind not in "iu" for dtype in dtypes):
        return False
    dtype = np.result_type(*dtypes)
    if dtype.kind == "f":  # of int64 and uint64
        return False
    info = np.iinfo(dtype)
    return any(type(model) is int and not info.min <= model <= info.max for model in models[1:])


def axpy_of_huge(name: str, models: list[Any]) -> bool:
    """An integer that no element type holds beside NumPy's numbers: axpy takes its type from the arrays alone."""
    return name == "axpy" and bool(_huge(models))


def logarithm_of_huge(name: str, models: list[Any]) -> bool:
    """An integer beyond 64 bits with a sign: NumPy computes in another type than that of smaller ones."""
    return name == "logaddexp" and any(type(model) is int and not -(2**63) <= model < 2**63 for model in models)


RULES: list[Any] = [
    objects,
    where_of_objects,
    logic_of_huge,
    comparison_with_huge,
    where_of_integers,
    axpy_of_huge,
    logarithm_of_huge,
]
