"""The reductions of torch.ops.cukern, with torch's parameters and result types."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .. import _cukern
from . import _gradients, _types
from ._fallback import are_plain, raise_runtime_error
from ._types import ROWS, Row


def _parameters(row: Row) -> str:
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


def _kernel(row: Row) -> Callable[..., Tensor]:
    function = getattr(_cukern, row.name)
    # torch leaves out keyword arguments that have their defaults.
    defaults = {"correction": 1.0} if row.rule == "variance" else {}

    def run(a: Tensor, dim: Any = None, keepdim: bool = False, **options: Any) -> Tensor:
        if not defaults and dim is None and not keepdim and are_plain(a):
            return function(a)  # type: ignore[no-any-return]
        dtype = result_dtype(row, a)
        dims = _dims(a, dim)
        given = a.detach() if a.requires_grad else a
        if row.rule == "summed" and _types.category(a.dtype) < 2:
            options["dtype"] = "int64"  # torch's, also of unsigned integers
        out = torch.empty(_shape(a, dims, keepdim), dtype=dtype, device=a.device)
        axis: Any = dims if row.rule != "index" else dims[0] if dim is not None and dims else None
        try:
            function(given, axis=axis, keepdims=keepdim, out=out, **{**defaults, **options})
        except (TypeError, ValueError) as error:
            raise_runtime_error(row.name, error)
        return out

    return run


def _fake(row: Row) -> Callable[..., Tensor]:
    def run(a: Tensor, dim: Any = None, keepdim: bool = False, **options: Any) -> Tensor:
        return torch.empty(_shape(a, _dims(a, dim), keepdim), dtype=result_dtype(row, a), device=a.device)

    return run


def _setup_context(row: Row) -> Callable[..., None]:
    formula = _gradients.REDUCTIONS[row.name]

    def setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor, keyword_only_inputs: Any = None) -> None:
        a, dim, ctx.keepdim = inputs
        ctx.dims = _dims(a, dim)
        ctx.shape, ctx.dtype = a.shape, a.dtype
        ctx.correction = (keyword_only_inputs or {}).get("correction", 1)
        ctx.save_for_backward(a if formula.reads_operand else None, output if formula.reads_result else None)

    return setup


def _backward(row: Row) -> Callable[..., tuple[Tensor | None, ...]]:
    formula = _gradients.REDUCTIONS[row.name].formula

    def run(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        a, result = ctx.saved_tensors
        for d in sorted(ctx.dims) if not ctx.keepdim else ():
            grad = grad.unsqueeze(d)
            result = None if result is None else result.unsqueeze(d)
        count = math.prod(ctx.shape[d] for d in ctx.dims)
        call = _gradients.Reduced(a, ctx.shape, ctx.dims, count, ctx.correction, result, grad)
        return formula(call).to(ctx.dtype), None, None

    return run


def define_all(define: Callable[[str], None], implement: Callable[..., None], library: Any) -> None:
    """Define and implement every reduction of the table."""
    for row in ROWS:
        if row.kind != "reduction":
            continue
        define(f"{row.name}({_parameters(row)}) -> Tensor")
        implement(row.name, _kernel(row), "CPU", "CUDA")
        torch.library.register_fake(f"cukern::{row.name}", _fake(row), lib=library)
        if row.name not in _gradients.REDUCTIONS:
            implement(row.name, torch.library.fallthrough_kernel, "Autograd")
            continue
        torch.library.register_autograd(
            f"cukern::{row.name}", _backward(row), setup_context=_setup_context(row), lib=library
        )
