"""The operations of torch.ops.cukern: schemas, kernels, fake kernels, gradients, autocast.

Every operation is defined and described by torch.library. Kernels of elementwise operations and of `matmul` are
registered through torch's C shim where this torch has it (`ext/torch`), so that a call of one never enters Python;
else, or with CUKERN_TORCH_SHIM=0, they are in Python (`_fallback.py`). So are reductions (`_reductions.py`), whose
lists the shim takes from torch 2.10 on. Operations with a Python number are decomposed into those of tensors.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .. import _cukern
from . import _autograd, _fallback, _gradients, _reductions, _types
from ._types import ROWS, Row

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


def _out_of(name: str) -> str:
    """Return the name of the overload with `out`."""
    return f"{name}_out" if "." in name else f"{name}.out"


def _call_of(name: str) -> Any:
    """Return an operation by its name, with its overload."""
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.cukern, packet), overload or "default")


def _tensors_of(row: Row) -> str:
    """Return the name of a row's overload of tensors alone."""
    return f"{row.name}.Tensor" if row.kind == "axpy" else row.name


# --- conjugate and negative bits ---


def _define_out(name: str, parameters: str) -> None:
    """Define the overload with `out` of an operation.

    torch resolves bits for all other operations, but takes what is written to for a result that is returned.
    """
    outs = _out_of(name)
    keyword = "" if "*" in parameters else "*, "
    _define(f"{outs}({parameters}, {keyword}Tensor(a!) out) -> ()")
    call = _call_of(outs)

    def resolve(*operands: Any, out: Tensor, **options: Any) -> None:
        resolved = [x.resolve_conj().resolve_neg() if isinstance(x, Tensor) else x for x in operands]
        if not out.is_conj() and not out.is_neg():
            return call(*resolved, out=out, **options)  # type: ignore[no-any-return]
        result = torch.empty(out.shape, dtype=out.dtype, device=out.device)
        call(*resolved, out=result, **options)
        out.copy_(result)
        return None

    _implement(outs, resolve, "Conjugate", "Negative")
    torch.library.register_fake(f"cukern::{outs}", lambda *operands, out, **options: None, lib=library)


# --- numbers as operands ---


_WIDEST = (torch.bool, torch.int64, torch.float64, torch.complex128)  # by category
_EXAMPLES = (True, 1, 1.0, 1j)


def _category(number: Any) -> int:
    """Return that of the number's type; torch.compile traces symbols."""
    if isinstance(number, bool | torch.SymBool):
        return 0
    return 3 if isinstance(number, complex) else 2 if isinstance(number, float | torch.SymFloat) else 1


def _as_tensor(number: Any, beside: torch.dtype) -> Tensor:
    """Return a number as a tensor of no dimensions that adopts the type of the tensors with dimensions beside it.

    Where its category is no larger than theirs it gives its value alone, as precisely as there is.
    """
    kind = _category(number)
    if kind == 1 and _types.category(beside) > 1 and isinstance(number, int):
        number, kind = float(number), 2  # which may be beyond int64
    widest = torch.scalar_tensor(number, dtype=_WIDEST[kind], device="cpu")
    if 0 < kind <= _types.category(beside):
        return widest
    example = torch.empty((1,), dtype=beside, device="meta")
    return widest.to(torch.result_type(example, _EXAMPLES[kind]))


def _decomposed(target: str, positions: Sequence[int]) -> Callable[..., Any]:
    """Return what calls an overload of tensors with those at `positions` made of numbers."""
    call = _call_of(target)
    valued = 1 if target.startswith("where") else 0  # the first operand that the result's type follows from

    def run(*operands: Any, out: Tensor | None = None) -> Any:
        values = [x for i, x in enumerate(operands) if i >= valued and i not in positions]
        beside = _types.result_type(values)
        # Tensors of no dimensions adopt the number's type as it does theirs: they get a dimension.
        is_flat = all(x.ndim == 0 for x in values)
        given = [
            _as_tensor(x, beside) if i in positions else x.unsqueeze(0) if is_flat and i >= valued else x
            for i, x in enumerate(operands)
        ]
        is_scalar = is_flat and (valued == 0 or operands[0].ndim == 0)
        if out is not None:
            return call(*given, out=out.unsqueeze(0) if is_scalar and out.ndim == 0 else out)
        result = call(*given)
        return result.squeeze(0) if is_scalar else result

    return run


def _define_with_numbers(name: str, overload: str, names: Sequence[str], positions: Sequence[int], target: str) -> None:
    """Define an overload with numbers at `positions`, and the same with `out`."""
    parameters = ", ".join(f"{'Scalar' if i in positions else 'Tensor'} {x}" for i, x in enumerate(names))
    own = _overload(name, overload)
    _define(f"{own}({parameters}) -> Tensor")
    _define(f"{_out_of(own)}({parameters}, *, Tensor(a!) out) -> ()")
    for name_of_both in (lambda x: x, _out_of):
        _implement(name_of_both(own), _decomposed(name_of_both(target), positions), "CompositeImplicitAutograd")


# --- gradients ---


def _forward_of(name: str) -> str:
    """Return the name of the operation that computes the same and records no gradient.

    It is no overload: torch does not tell two of the same parameters apart when it ends.
    """
    return f"_{name.partition('.')[0]}"


def _differentiate(
    name: str, parameters: str, fake: Callable[..., Tensor], save: _autograd.Save, backward: _autograd.Backward
) -> None:
    """Define the operation without a gradient that goes with one, and give that one a gradient."""
    forward = _forward_of(name)
    _define(f"{forward}({parameters}) -> Tensor")
    torch.library.register_fake(f"cukern::{forward}", fake, lib=library)
    _implement(forward, torch.library.fallthrough_kernel, "Autograd")
    kernel = _autograd.kernel_of(name, _call_of(name), _call_of(forward), save, backward)
    library.impl(name, kernel, "Autograd", with_keyset=True)


# --- elementwise ---


def _define_elementwise(row: Row, name: str) -> None:
    """Define an operation of tensors alone, and the same with `out`; `name` has its overload."""
    operands = _OPERANDS[row.kind]
    parameters = ", ".join(f"Tensor {x}" for x in operands)
    _define(f"{name}({parameters}) -> Tensor")
    _define_out(name, parameters)

    def fake(*tensors: Tensor) -> Tensor:
        _, result = _types.types(row, _types.result_type(_types.valued(row, tensors)))
        return _types.like_result(tensors[1:] if row.kind == "axpy" else tensors, result)

    torch.library.register_fake(f"cukern::{name}", fake, lib=library)
    gradient = _gradients.ELEMENTWISE.get(name)
    if gradient is None:
        _implement(name, torch.library.fallthrough_kernel, "Autograd")
    else:
        _differentiate(name, parameters, fake, _gradients.save_of(gradient), _gradients.backward_of(gradient))


def _define_rows() -> None:
    for row in ROWS:
        if row.kind in _OPERANDS:
            _define_elementwise(row, _tensors_of(row))
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
            _define_with_numbers(row.name, "", _OPERANDS[row.kind], (0,), _tensors_of(row))


# --- matmul ---


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
    _define_out("matmul", "Tensor a, Tensor b")

    def fake(a: Tensor, b: Tensor) -> Tensor:
        device = b.device if b.is_cuda else a.device
        return torch.empty(_types.product_shape(a, b), dtype=_types.result_type((a, b)), device=device)

    torch.library.register_fake("cukern::matmul", fake, lib=library)
    _differentiate("matmul", "Tensor a, Tensor b", fake, _gradients.save_product, _gradients.product_backward)
    _implement("matmul", _autocast("cuda"), "AutocastCUDA")
    _implement("matmul", _autocast("cpu"), "AutocastCPU")


# --- reductions ---


def _define_reductions() -> None:
    for row in ROWS:
        if row.kind != "reduction":
            continue
        _reductions.define(row, row.name, _define, library)
        _define_out(row.name, _reductions.parameters(row))
        if row.name not in _gradients.REDUCTIONS:
            _implement(row.name, torch.library.fallthrough_kernel, "Autograd")
            continue
        forward = _forward_of(row.name)
        _reductions.define(row, forward, _define, library)
        _implement(forward, torch.library.fallthrough_kernel, "Autograd")
        kernel = _reductions.autograd_kernel(row, _call_of(row.name), _call_of(forward))
        library.impl(row.name, kernel, "Autograd", with_keyset=True)


# --- kernels ---


def _kernel_names() -> dict[str, str]:
    """Return the operations of tensors alone by their names, with overloads, and the names of their kernels."""
    names = {"matmul": "matmul", "matmul.out": "matmul.out", _forward_of("matmul"): "matmul"}
    for row in ROWS:
        if row.kind not in _OPERANDS:
            continue
        name = _tensors_of(row)
        names |= {name: name, _out_of(name): _out_of(name)}
        if name in _gradients.ELEMENTWISE:
            names[_forward_of(name)] = name
    return names


def _reduction_names() -> dict[str, str]:
    """Return the same of reductions."""
    names: dict[str, str] = {}
    for name in (row.name for row in ROWS if row.kind == "reduction"):
        names |= {name: name, _out_of(name): _out_of(name)}
        if name in _gradients.REDUCTIONS:
            names[_forward_of(name)] = name
    return names


def _python_kernels() -> dict[str, Callable[..., Any]]:
    """Return the kernels by the same names."""
    kernels: dict[str, Callable[..., Any]] = {"matmul": _fallback.matmul, "matmul.out": _fallback.matmul_out}
    for row in ROWS:
        if row.kind in _OPERANDS:
            run, run_out = _fallback.elementwise(row)
            name = _tensors_of(row)
            kernels |= {name: run, _out_of(name): run_out}
        elif row.kind == "reduction":
            kernels[row.name], kernels[_out_of(row.name)] = _reductions.kernels(row)
    return kernels


def register_all() -> str | None:
    """Define and implement all operations; return why the shim is not used, or None where it is."""
    _define_rows()
    _define_matmul()
    _define_reductions()
    reason = None
    kernels = _python_kernels()
    # Before 2.10 torch's shim has no lists, which reductions take.
    for names, have_lists in ((_kernel_names(), False), (_reduction_names(), True)):
        missing = None
        if os.environ.get("CUKERN_TORCH_SHIM") == "0":
            missing = "CUKERN_TORCH_SHIM is 0"
        elif function := _cukern._register_torch_kernels(names, have_lists):
            missing = f"torch {torch.__version__} has no {function}"
        if missing is None:
            continue
        for name, kernel in names.items():
            _implement(name, kernels[kernel], *_KERNEL_KEYS)
        if not have_lists:
            reason = missing
    return reason
