"""The operations of torch.ops.cukern: schemas, kernels, fake kernels, gradients, autocast.

Every operation is defined and described by torch.library. Kernels of elementwise operations and of `matmul` are
registered through torch's C shim where this torch has it (`ext/torch`), so that a call of one never enters Python;
else, or with CUKERN_TORCH_SHIM=0, they are in Python (`_fallback.py`). Reductions are in Python. Operations with a
Python number are decomposed into those of tensors.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .. import _cukern
from . import _fallback, _gradients, _reductions, _types
from ._types import ROWS, Row

Number = int | float | complex

library = torch.library.Library("cukern", "DEF")  # kept: what it defines goes with it

_OPERANDS = {"unary": ("a",), "binary": ("a", "b"), "choice": ("condition", "a", "b"), "axpy": ("a", "x", "y")}
_KERNEL_KEYS = ("CPU", "CUDA")


def _define(schema: str) -> None:
    library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))


def _implement(name: str, function: Callable[..., Any], *keys: str) -> None:
    for key in keys:
        library.impl(name, function, key)


def _overload(name: str, overload: str) -> str:
    return f"{name}.{overload}" if overload else name


# --- numbers as operands ---


def _as_tensor(number: Number, beside: Sequence[Tensor]) -> Tensor:
    """Return a number as a tensor of no dimensions that adopts the tensors' type as the number would.

    Beside a tensor with dimensions and of no smaller category it is as precise as there is: it gives its value alone.
    """
    of_tensors = _types.result_type(beside)
    kind = 3 if isinstance(number, complex) else 2 if isinstance(number, float) else int(not isinstance(number, bool))
    if any(x.ndim > 0 for x in beside) and 0 < kind <= _types.category(of_tensors):
        return torch.scalar_tensor(number, dtype=(None, torch.int64, torch.float64, torch.complex128)[kind])
    example = torch.empty((1,) if any(x.ndim > 0 for x in beside) else (), dtype=of_tensors, device="meta")
    return torch.scalar_tensor(number, dtype=torch.result_type(example, number))


def _decomposed(name: str, overload: str, positions: Sequence[int]) -> Callable[..., Any]:
    """Return what calls an overload of tensors with those at `positions` made of numbers."""
    call = getattr(getattr(torch.ops.cukern, name), overload)

    def run(*operands: Any, **out: Tensor) -> Any:
        tensors = [x for i, x in enumerate(operands) if i not in positions]
        if name == "where":
            tensors = [x for i, x in enumerate(operands) if i not in positions and i > 0]
        return call(
            *(_as_tensor(x, tensors) if i in positions else x for i, x in enumerate(operands)),
            **out,
        )

    return run


def _define_with_numbers(name: str, overload: str, names: Sequence[str], positions: Sequence[int], target: str) -> None:
    """Define an overload with numbers at `positions`, and the same with `out`."""
    parameters = ", ".join(f"{'Scalar' if i in positions else 'Tensor'} {x}" for i, x in enumerate(names))
    outs = _overload(name, f"{overload}_out" if overload else "out")
    _define(f"{_overload(name, overload)}({parameters}) -> Tensor")
    _define(f"{outs}({parameters}, *, Tensor(a!) out) -> ()")
    composite = "CompositeImplicitAutograd"
    target_name, _, target_overload = target.partition(".")
    _implement(_overload(name, overload), _decomposed(target_name, target_overload or "default", positions), composite)
    _implement(
        outs, _decomposed(target_name, f"{target_overload}_out" if target_overload else "out", positions), composite
    )


# --- elementwise ---


def _define_elementwise(row: Row, name: str) -> None:
    """Define an operation of tensors alone, and the same with `out`; `name` has its overload."""
    operands = _OPERANDS[row.kind]
    parameters = ", ".join(f"Tensor {x}" for x in operands)
    outs = f"{name}_out" if "." in name else f"{name}.out"
    _define(f"{name}({parameters}) -> Tensor")
    _define(f"{outs}({parameters}, *, Tensor(a!) out) -> ()")

    def fake(*tensors: Tensor) -> Tensor:
        _, result = _types.types(row, _types.result_type(_types.valued(row, tensors)))
        return _types.like_result(tensors[1:] if row.kind == "axpy" else tensors, result)

    def fake_out(*tensors: Tensor, out: Tensor) -> None:
        return None

    torch.library.register_fake(f"cukern::{name}", fake, lib=library)
    torch.library.register_fake(f"cukern::{outs}", fake_out, lib=library)
    gradient = _gradients.ELEMENTWISE.get(name)
    if gradient is None:
        _implement(name, torch.library.fallthrough_kernel, "Autograd")
        return
    torch.library.register_autograd(
        f"cukern::{name}",
        _gradients.backward_of(gradient),
        setup_context=_gradients.context_of(gradient),
        lib=library,
    )


def _define_rows() -> None:
    for row in ROWS:
        if row.kind in ("unary", "binary", "choice"):
            _define_elementwise(row, row.name)
        if row.kind == "binary":
            _define_with_numbers(row.name, "Scalar", ("a", "b"), (1,), row.name)
            _define_with_numbers(row.name, "Scalar_Tensor", ("a", "b"), (0,), row.name)
        elif row.kind == "choice":
            names = _OPERANDS[row.kind]
            _define_with_numbers(row.name, "ScalarOther", names, (2,), row.name)
            _define_with_numbers(row.name, "ScalarSelf", names, (1,), row.name)
        elif row.kind == "scalar":
            _define_with_numbers(row.name, "", ("a", "factor"), (1,), "multiply")
        elif row.kind == "axpy":
            _define_elementwise(row, f"{row.name}.Tensor")
            _define_with_numbers(row.name, "", _OPERANDS[row.kind], (0,), f"{row.name}.Tensor")


# --- matmul ---


def _product_shape(a: Tensor, b: Tensor) -> list[Any]:
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return [*batch, *a.shape[-2:-1], *(b.shape[-1:] if b.ndim > 1 else ())]


def _autocast(device: str) -> Callable[[Tensor, Tensor], Tensor]:
    """Return matmul in autocast's type, for the types that torch's own takes to it."""

    def run(a: Tensor, b: Tensor) -> Tensor:
        dtype = torch.get_autocast_dtype(device)

        def cast(x: Tensor) -> Tensor:
            eligible = x.is_floating_point() and x.dtype != torch.float64 and x.device.type == device
            return x.to(dtype) if eligible else x

        with torch.autocast(device, enabled=False):
            return torch.ops.cukern.matmul.default(cast(a), cast(b))

    return run


def _define_matmul() -> None:
    _define("matmul(Tensor a, Tensor b) -> Tensor")
    _define("matmul.out(Tensor a, Tensor b, *, Tensor(a!) out) -> ()")

    def fake(a: Tensor, b: Tensor) -> Tensor:
        torch._check(a.ndim > 0 and b.ndim > 0, lambda: "cukern::matmul: operands have no dimensions")
        device = b.device if b.is_cuda else a.device
        return torch.empty(_product_shape(a, b), dtype=_types.result_type((a, b)), device=device)

    def fake_out(a: Tensor, b: Tensor, *, out: Tensor) -> None:
        return None

    torch.library.register_fake("cukern::matmul", fake, lib=library)
    torch.library.register_fake("cukern::matmul.out", fake_out, lib=library)
    torch.library.register_autograd(
        "cukern::matmul", _gradients.product_backward, setup_context=_gradients.product_context, lib=library
    )
    _implement("matmul", _autocast("cuda"), "AutocastCUDA")
    _implement("matmul", _autocast("cpu"), "AutocastCPU")


# --- kernels ---


def _implement_in_python() -> None:
    for row in ROWS:
        if row.kind not in _OPERANDS:
            continue
        run, run_out = _fallback.elementwise(row)
        is_axpy = row.kind == "axpy"
        _implement(f"{row.name}.Tensor" if is_axpy else row.name, run, *_KERNEL_KEYS)
        _implement(f"{row.name}.Tensor_out" if is_axpy else f"{row.name}.out", run_out, *_KERNEL_KEYS)
    _implement("matmul", _fallback.matmul, *_KERNEL_KEYS)
    _implement("matmul.out", _fallback.matmul_out, *_KERNEL_KEYS)


def register_all() -> str | None:
    """Define and implement all operations; return why the shim is not used, or None where it is."""
    _define_rows()
    _define_matmul()
    _reductions.define_all(_define, _implement, library)
    if os.environ.get("CUKERN_TORCH_SHIM") == "0":
        reason = "CUKERN_TORCH_SHIM is 0"
    else:
        missing = _cukern._register_torch_kernels()
        if missing is None:
            return None
        reason = f"torch {torch.__version__} has no {missing}"
    _implement_in_python()
    return reason
