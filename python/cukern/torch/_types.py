"""torch's rules for results, for shapes and element types alone: what fake kernels and the way without the shim need.

`ext/torch/tensors.cpp` has the same rules for kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .. import _cukern


@dataclass(frozen=True)
class Row:
    """A row of the table of operations: see cuda/include/cukern/ops.def."""

    name: str
    kind: str
    types: str
    rule: str
    doc: str

    @property
    def returns_bool(self) -> bool:
        return self.rule in ("boolean", "test", "logical", "sign")


ROWS = [Row(**row) for row in _cukern._table]

REAL_OF = {torch.complex64: torch.float32, torch.complex128: torch.float64, torch.complex32: torch.float16}
_COMPLEX_OF = {torch.float64: torch.complex128}


# Of the sets of types that operations compute in (TypeSet in cuda/include/cukern/ops.h); logic is computed in bool.
_CATEGORIES = {
    "any": {0, 1, 2, 3},
    "real": {0, 1, 2},
    "numeric": {1, 2, 3},
    "inexact": {2, 3},
    "floating": {2},
    "bits": {0, 1},
    "integers": {1},
    "boolean": {0, 1, 2, 3},
}


def category(dtype: torch.dtype) -> int:
    """Return 0 of bool, 1 of integers, 2 of floats, 3 of complex types."""
    if dtype.is_complex:
        return 3
    if dtype.is_floating_point:
        return 2
    return 0 if dtype == torch.bool else 1


def _promote(a: torch.dtype, b: torch.dtype) -> torch.dtype:
    """Return torch.promote_types, also of wide unsigned integers beside bool and beside floats."""
    of_a, of_b = category(a), category(b)
    if of_b == 0 or (of_b == 1 < of_a):
        return a
    return b if of_a == 0 or (of_a == 1 < of_b) else torch.promote_types(a, b)


def result_type(tensors: Sequence[torch.Tensor]) -> torch.dtype:
    """Return torch.result_type of any number of tensors: those of no dimensions count less than the others."""
    if len(tensors) == 1:
        return tensors[0].dtype
    groups: dict[bool, torch.dtype] = {}
    for tensor in tensors:
        is_array = tensor.ndim > 0
        groups[is_array] = _promote(groups.get(is_array, torch.bool), tensor.dtype)
    if len(groups) == 1:
        return next(iter(groups.values()))
    arrays, scalars = groups[True], groups[False]
    if category(arrays) >= category(scalars) and arrays != torch.bool:
        return arrays
    if category(arrays) == 2:
        return _COMPLEX_OF.get(arrays, torch.complex64)
    return _promote(arrays, scalars)


def types(row: Row, promoted: torch.dtype) -> tuple[torch.dtype, torch.dtype]:
    """Return what an operation computes in, and what it returns, for operands of a promoted type."""
    computed = promoted
    # Of integers torch's reciprocal is a float, and the table's, as NumPy's, an integer.
    becomes_float = row.rule in ("floating", "sized", "sign") or row.name == "reciprocal"
    if becomes_float and category(promoted) < 2:
        computed = torch.get_default_dtype()
    elif promoted == torch.bool and row.rule in ("arithmetic", "rounded"):
        computed = torch.int8 if row.rule == "arithmetic" else torch.float16
    if category(computed) not in _CATEGORIES[row.types]:
        raise RuntimeError(f"cukern::{row.name}: not defined for element type {promoted}; convert before")
    if row.returns_bool:
        return computed, torch.bool
    return computed, REAL_OF.get(computed, computed) if row.rule == "component" else computed


def valued(row: Row, tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """Return the operands that the result's type follows from: not a condition."""
    return tensors[1:] if row.kind == "choice" else tensors


def like_result(tensors: Sequence[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    """Return an empty tensor as torch's own operations would make it: shape, memory layout and device.

    Operands of several types are taken for such of one: torch converts some of them before it looks at their strides.
    """
    if len({x.dtype for x in tensors}) > 1 or len(tensors) > 2:
        kinds = [torch.bool] * (len(tensors) == 3) + [torch.float32] * len(tensors)
        tensors = [
            torch.empty_strided(x.shape, x.stride(), dtype=kind, device=x.device)
            for x, kind in zip(tensors, kinds, strict=False)
        ]
    if len(tensors) == 3:
        model = torch.where(*tensors)
    else:
        model = torch.add(*tensors) if len(tensors) == 2 else torch.logical_not(tensors[0])
    return torch.empty_strided(model.shape, model.stride(), dtype=dtype, device=model.device)


def product_shape(a: torch.Tensor, b: torch.Tensor) -> list[Any]:
    """Return the shape of matmul's result; RuntimeError where there is none."""
    if a.ndim == 0 or b.ndim == 0:
        raise RuntimeError("cukern::matmul: an operand has no dimensions; it needs one at least")
    if a.shape[-1] != b.shape[-2 if b.ndim > 1 else -1]:
        raise RuntimeError(f"cukern::matmul: inner dimensions must match: a is {(*a.shape,)}, b is {(*b.shape,)}")
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return [*batch, *a.shape[-2:-1], *(b.shape[-1:] if b.ndim > 1 else ())]
