"""The reductions of torch.ops.cukern, with torch's parameters and result types."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .. import _cukern
from . import _autograd, _gradients, _types
from ._fallback import begin_writing, check_out, raise_runtime_error
from ._types import Row


def parameters(row: Row) -> str:
    """Return the parameters of a schema."""
    if row.rule == "index":
        return "Tensor a, int? dim=None, bool keepdim=False"
    correction = ", *, float correction=1" if row.rule == "variance" else ""
    return f"Tensor a, int[]? dim=None, bool keepdim=False{correction}"


def _dims(a: Tensor, dim: Sequence[int] | int | None) -> tuple[int, ...]:
    """Return the dimensions to reduce, none negative; None and (), as in torch, are all."""
    if dim is None or (not isinstance(dim, int) and len(dim) == 0):
        return tuple(range(a.ndim))
    dims = [dim] if isinstance(dim, int) else list(dim)
    for d in dims:
        if not -max(a.ndim, 1) <= d < max(a.ndim, 1):
            raise IndexError(f"dimension {d} is out of range for a tensor of {a.ndim} dimensions")
    found = tuple(d % max(a.ndim, 1) for d in dims)
    if len(set(found)) != len(found):
        raise RuntimeError(f"a dimension is named twice in {dims}")
    return found if a.ndim > 0 else ()


def _shape(a: Tensor, dims: tuple[int, ...], keepdim: bool) -> list[Any]:
    if keepdim:
        return [1 if d in dims else length for d, length in enumerate(a.shape)]
    return [length for d, length in enumerate(a.shape) if d not in dims]


def result_dtype(row: Row, a: Tensor) -> torch.dtype:
    """Return torch's type of a reduction's result; RuntimeError where torch has none."""
    if row.rule == "index":
        return torch.int64
    if row.rule == "logical":
        return torch.bool
    if row.rule == "summed":
        return torch.int64 if _types.category(a.dtype) < 2 else a.dtype
    if row.rule in ("floating", "variance"):
        if _types.category(a.dtype) < 2:
            raise RuntimeError(f"cukern::{row.name}: not defined for element type {a.dtype}; convert before")
        return _types.REAL_OF.get(a.dtype, a.dtype) if row.rule == "variance" else a.dtype
    return a.dtype


def kernels(row: Row) -> tuple[Callable[..., Tensor], Callable[..., None]]:
    """Return the kernels of a row in Python: one that returns its result, and one with `out`."""
    function = getattr(_cukern, row.name)
    # torch leaves out keyword arguments that have their defaults.
    defaults = {"correction": 1.0} if row.rule == "variance" else {}

    def compute(a: Tensor, dim: Any, keepdim: bool, out: Tensor | None, options: dict[str, Any]) -> Tensor:
        dtype = result_dtype(row, a)
        dims = _dims(a, dim)
        shape = _shape(a, dims, keepdim)
        given = a.detach() if a.requires_grad else a
        if row.rule == "summed" and _types.category(a.dtype) < 2:
            options["dtype"] = "int64"  # torch's, also of unsigned integers
        if out is not None:
            check_out(out, shape, dtype)
        same = out is not None and out.dtype == dtype
        own = out if same else torch.empty(shape, dtype=dtype, device=a.device)
        axis: Any = dims if row.rule != "index" else dims[0] if dim is not None and dims else None
        function(given, axis=axis, keepdims=keepdim, out=own, **{**defaults, **options})
        if out is not None and not same:
            out.copy_(own)
        return own

    def run(a: Tensor, dim: Any = None, keepdim: bool = False, **options: Any) -> Tensor:
        try:
            return compute(a, dim, keepdim, None, options)
        except (TypeError, ValueError) as error:
            return raise_runtime_error(row.name, error)

    def run_out(a: Tensor, dim: Any = None, keepdim: bool = False, *, out: Tensor, **options: Any) -> None:
        begin_writing(f"cukern::{row.name}", (a,), out)
        try:
            compute(a, dim, keepdim, out.detach() if out.requires_grad else out, options)
        except (TypeError, ValueError) as error:
            raise_runtime_error(row.name, error)

    return run, run_out


def _fake(row: Row) -> Callable[..., Tensor]:
    def run(a: Tensor, dim: Any = None, keepdim: bool = False, **options: Any) -> Tensor:
        return torch.empty(_shape(a, _dims(a, dim), keepdim), dtype=result_dtype(row, a), device=a.device)

    return run


def _save(row: Row) -> _autograd.SaveReduced:
    formula = _gradients.REDUCTIONS[row.name]

    def save(ctx: Any, a: Tensor, dim: Any, keepdim: bool, options: dict[str, Any], result: Tensor) -> None:
        ctx.keepdim = keepdim
        ctx.dims = _dims(a, dim)
        ctx.shape, ctx.dtype = a.shape, a.dtype
        ctx.correction = options.get("correction", 1)
        ctx.save_for_backward(a if formula.reads_operand else None, result if formula.reads_result else None)

    return save


def _backward(row: Row) -> Callable[[Any, Tensor], Tensor]:
    formula = _gradients.REDUCTIONS[row.name].formula

    def run(ctx: Any, grad: Tensor) -> Tensor:
        a, result = ctx.saved_tensors
        for d in sorted(ctx.dims) if not ctx.keepdim else ():
            grad = grad.unsqueeze(d)
            result = None if result is None else result.unsqueeze(d)
        count = math.prod(ctx.shape[d] for d in ctx.dims)
        call = _gradients.Reduced(a, ctx.shape, ctx.dims, count, ctx.correction, result, grad)
        return formula(call).to(ctx.dtype)

    return run


def define(row: Row, name: str, define_schema: Callable[[str], None], library: Any) -> None:
    """Define the reduction of a row under a name."""
    define_schema(f"{name}({parameters(row)}) -> Tensor")
    torch.library.register_fake(f"cukern::{name}", _fake(row), lib=library)


def autograd_kernel(row: Row, call: Any, forward: Any) -> Callable[..., Tensor]:
    """Return the kernel that records a reduction: see `_autograd.kernel_of_reduction`."""
    return _autograd.kernel_of_reduction(row.name, call, forward, _save(row), _backward(row))
