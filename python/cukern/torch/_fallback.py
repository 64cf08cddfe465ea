"""Kernels in Python for a torch without its C shim: they call the module's functions.

torch's rules give the result's type and layout, so the result is made here and the functions fill it in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .. import _cukern
from . import _types

_ERRORS = (TypeError, ValueError, OverflowError)
_FLOATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
_are_plain = _cukern._are_plain


def _detached(tensor: Tensor) -> Tensor:
    # Below autograd tensors still say that they require gradients, and are then not exported.
    return tensor.detach() if tensor.requires_grad else tensor


def raise_runtime_error(name: str, error: Exception) -> Any:
    """Raise torch's kind of error with the message of an operation's own."""
    raise RuntimeError(f"cukern::{name}: {str(error).removeprefix(f'{name}: ')}") from error


def begin_writing(name: str, tensors: Sequence[Tensor], out: Tensor) -> None:
    """Do before `out` is written to what torch does for its own: see `begin_writing` in ext/torch/kernels.cpp."""
    if torch.is_grad_enabled() and (out.requires_grad or any(x.requires_grad for x in tensors)):
        raise RuntimeError(
            f"{name}: writing to a tensor records no gradient, and a tensor requires one; call it in torch.no_grad()"
        )
    _count_version(name, out)


def _count_version(name: str, out: Tensor) -> None:
    if out.is_inference() and not torch.is_inference_mode_enabled():
        raise RuntimeError(f"{name}: a tensor of inference mode is written to outside it")
    _increment_versions((out,))


def _find_increment() -> Callable[[Sequence[Tensor]], Any]:
    """Return torch's counter of versions, of several tensors: below its public function a call takes less."""
    own: Callable[[Sequence[Tensor]], Any] = torch._C._increment_version
    try:
        own(())
    except (TypeError, RuntimeError):  # of earlier versions, which take one
        return lambda tensors: [torch.autograd.graph.increment_version(x) for x in tensors]
    return own


_increment_versions = _find_increment()


def _look_plain(first: Tensor, *others: Tensor) -> bool:
    """Return the same as `_are_plain`: for a torch without an exchange API, or types of tensors that are new to it.

    Of these operands, packed floats of one shape and type that require no gradient, torch's rules for results and
    NumPy's are the same.
    """
    return (
        first.dtype in _FLOATS
        and first.ndim > 0
        and all(x.dtype is first.dtype and x.shape == first.shape and x.device == first.device for x in others)
        and not any(x.requires_grad or not x.is_contiguous() for x in (first, *others))
    )


def _empty_result(tensors: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    first = tensors[0]
    if all(x.shape == first.shape and x.device == first.device and x.is_contiguous() for x in tensors):
        return torch.empty(first.shape, dtype=dtype, device=first.device)
    device = next((x.device for x in tensors if x.is_cuda), first.device)
    model = _types.like_result([_on_meta(x) for x in tensors], dtype)
    return torch.empty_strided(model.shape, model.stride(), dtype=dtype, device=device)


def _on_meta(tensor: Tensor) -> Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def check_out(out: Tensor, shape: Sequence[int], dtype: torch.dtype) -> None:
    """Raise ValueError for what cannot take a result."""
    if out.shape != tuple(shape):
        raise ValueError(f"out has shape {tuple(out.shape)}; expected {tuple(shape)}")
    if not torch.can_cast(dtype, out.dtype):
        raise ValueError(f"out has element type {out.dtype}, which cannot take a result of type {dtype}")


def elementwise(row: _types.Row) -> tuple[Callable[..., Tensor], Callable[..., None]]:
    """Return the kernels of a row: one that returns its result, and one with `out`."""
    function = getattr(_cukern, row.name)
    name = f"cukern::{row.name}"

    def convert(x: Tensor, computed: torch.dtype, on_gpu: bool) -> Any:
        if on_gpu and not x.is_cuda and x.ndim == 0:  # a value: the functions take no host memory beside a GPU's
            return x.to(computed).item()
        # What is looked at as it is stored (logic, comparisons of one type) needs no conversion.
        return x if x.dtype == computed or row.rule in ("logical", "test") else x.to(computed)

    def compute(tensors: tuple[Tensor, ...], out: Tensor | None) -> Tensor:
        try:
            valued = _types.valued(row, tensors)
            computed, result = _types.types(row, _types.result_type(valued))
            if out is None:
                out = _empty_result(tensors, result)
            else:
                check_out(out, torch.broadcast_shapes(*(x.shape for x in tensors)), result)
            keep = len(tensors) - len(valued)
            on_gpu = any(x.is_cuda for x in tensors)
            detached = [_detached(x) for x in tensors]
            converted = [
                *(x.to(out.device) for x in detached[:keep]),
                *(convert(x, computed, on_gpu) for x in detached[keep:]),
            ]
            same = out.dtype == result
            own = out if same else _empty_result(tensors, result)  # the functions refuse some types that torch takes
            function(*converted, out=own)
            if not same:
                out.copy_(own)
        except _ERRORS as error:
            return raise_runtime_error(row.name, error)
        return out

    def run(*tensors: Tensor) -> Tensor:
        return compute(tensors, None)

    def run_out(*tensors: Tensor, out: Tensor) -> None:
        begin_writing(name, tensors, out)
        compute(tensors, _detached(out))

    # A function for each number of operands: a loop over them takes longer than all the rest. The functions could
    # make the result, too, but of memory that torch does not know as its own (`resize_`, `record_stream`).
    changed: dict[str, Any] = {"memory_format": torch.contiguous_format}
    if row.returns_bool:
        changed["dtype"] = torch.bool

    def of_one(a: Tensor) -> Tensor:
        if not (_are_plain(a) or _look_plain(a)):
            return compute((a,), None)
        out = torch.empty_like(a, **changed)
        try:
            function(a, out=out)
        except _ERRORS as error:
            raise_runtime_error(row.name, error)
        return out

    def of_two(a: Tensor, b: Tensor) -> Tensor:
        if not (_are_plain(a, b) or _look_plain(a, b)):
            return compute((a, b), None)
        out = torch.empty_like(a, **changed)
        try:
            function(a, b, out=out)
        except _ERRORS as error:
            raise_runtime_error(row.name, error)
        return out

    def two_out(a: Tensor, b: Tensor, *, out: Tensor) -> None:
        if not (_are_plain(a, b, out) or _look_plain(a, b, out)):
            return run_out(a, b, out=out)
        if out.is_inference():
            _count_version(name, out)
        else:
            _increment_versions((out,))
        try:
            function(a, b, out=out)
        except _ERRORS as error:
            raise_runtime_error(row.name, error)

    if row.types in ("bits", "integers") or row.kind not in ("unary", "binary"):
        return run, run_out
    if row.kind == "unary":
        return of_one, run_out
    return of_two, run_out if row.returns_bool else two_out


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Compute the product of two tensors in torch's result type."""
    out = torch.empty(
        _types.product_shape(a, b), dtype=_types.result_type((a, b)), device=b.device if b.is_cuda else a.device
    )
    _multiply(a, b, out)
    return out


def matmul_out(a: Tensor, b: Tensor, *, out: Tensor) -> None:
    """Compute the same into `out`, which has the product's type."""
    begin_writing("cukern::matmul", (a, b), out)
    _multiply(a, b, _detached(out))


def _multiply(a: Tensor, b: Tensor, out: Tensor) -> None:
    dtype = _types.result_type((a, b))
    if out.dtype != dtype:
        raise RuntimeError(f"cukern::matmul: out has element type {out.dtype}; expected {dtype}")
    try:
        _cukern.matmul(_detached(a).to(dtype), _detached(b).to(dtype), out=out)
    except (TypeError, ValueError) as error:
        raise_runtime_error("matmul", error)
