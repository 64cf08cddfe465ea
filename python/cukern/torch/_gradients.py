"""Derivatives of the operations of torch.ops.cukern, as torch's own define them: of complex results by conjugates.

A formula gets the gradient of the result and what was saved of the call, and returns the gradient of one operand in the
result's shape; `backward_of` brings it to the operand's shape and type. Formulas are of operations that have
derivatives themselves, so that higher ones follow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Formula = Callable[..., Any]


@dataclass(frozen=True)
class Gradient:
    """A formula for each operand (None: it has no gradient), and what of the call they read, in this order."""

    formulas: tuple[Formula | None, ...]
    operands: tuple[int, ...]
    reads_result: bool = False


def _linear(*formulas: Formula | None) -> Gradient:
    return Gradient(formulas, ())


def _of_operands(*formulas: Formula | None) -> Gradient:
    return Gradient(formulas, tuple(range(len(formulas))))


def _of_result(*formulas: Formula | None) -> Gradient:
    return Gradient(formulas, (), reads_result=True)


def _of_both(*formulas: Formula | None) -> Gradient:
    return Gradient(formulas, tuple(range(len(formulas))), reads_result=True)


def _pow_base(g: Tensor, a: Tensor, b: Tensor, r: Tensor) -> Tensor:
    return torch.where(b == 0, 0, g * (b * a.pow(b - 1)).conj())


def _pow_exponent(g: Tensor, a: Tensor, b: Tensor, r: Tensor) -> Tensor:
    # 0 ** b is 0 around any b whose real part is positive.
    flat = (a == 0) & ((b.real if b.is_complex() else b) >= 0)
    return g * torch.where(flat, 0, r * torch.log(torch.where(a == 0, 1, a))).conj()


def _larger(g: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return torch.where(a == b, g / 2, torch.where(a > b, g, 0))


def _sign(g: Tensor, a: Tensor, r: Tensor) -> Tensor:
    if not a.is_complex():
        return torch.zeros_like(g)
    return torch.where(a == 0, 0, g / a.abs() - (g / a).real * r)


def _imag(g: Tensor, a: Tensor) -> Tensor:
    return g * 1j if a.is_complex() else torch.zeros_like(g)


def _inverse_hypotenuse(x: Tensor) -> Tensor:
    return x.sqrt().reciprocal()


ELEMENTWISE: dict[str, Gradient] = {
    "add": _linear(lambda g: g, lambda g: g),
    "subtract": _linear(lambda g: g, lambda g: -g),
    "multiply": _of_operands(lambda g, a, b: g * b.conj(), lambda g, a, b: g * a.conj()),
    "divide": _of_operands(lambda g, a, b: g / b.conj(), lambda g, a, b: -g * (a / b / b).conj()),
    "axpy.Tensor": Gradient((lambda g, a, x: g * x.conj(), lambda g, a, x: g * a.conj(), lambda g, a, x: g), (0, 1)),
    "where": Gradient((None, lambda g, c: torch.where(c != 0, g, 0), lambda g, c: torch.where(c != 0, 0, g)), (0,)),
    "remainder": _of_operands(lambda g, a, b: g, lambda g, a, b: -g * torch.floor(a / b)),
    "pow": _of_both(_pow_base, _pow_exponent),
    "maximum": _of_operands(_larger, lambda g, a, b: _larger(g, b, a)),
    "minimum": _of_operands(lambda g, a, b: _larger(g, b, a), _larger),
    "hypot": _of_both(lambda g, a, b, r: g * (a / r), lambda g, a, b, r: g * (b / r)),
    "atan2": _of_operands(
        lambda g, a, b: g * (b / (a * a + b * b)),
        lambda g, a, b: -g * (a / (a * a + b * b)),
    ),
    "copysign": _of_both(
        lambda g, a, b, r: torch.where(a == 0, 0, g * (r / a)), lambda g, a, b, r: torch.zeros_like(g)
    ),
    "logaddexp": _of_operands(
        lambda g, a, b: g * torch.sigmoid(a - b),
        lambda g, a, b: g * torch.sigmoid(b - a),
    ),
    "negative": _linear(lambda g: -g),
    "positive": _linear(lambda g: g),
    "abs": _of_operands(lambda g, a: g * a.sgn()),
    "sign": _of_both(_sign),
    "square": _of_operands(lambda g, a: g * (2 * a).conj()),
    "reciprocal": _of_result(lambda g, r: -g * (r * r).conj()),
    "sqrt": _of_result(lambda g, r: g / (2 * r).conj()),
    "exp": _of_result(lambda g, r: g * r.conj()),
    "expm1": _of_result(lambda g, r: g * (r + 1).conj()),
    "log": _of_operands(lambda g, a: g / a.conj()),
    "log1p": _of_operands(lambda g, a: g / (a + 1).conj()),
    "log2": _of_operands(lambda g, a: g / (a.conj() * math.log(2))),
    "log10": _of_operands(lambda g, a: g / (a.conj() * math.log(10))),
    "sin": _of_operands(lambda g, a: g * a.cos().conj()),
    "cos": _of_operands(lambda g, a: -g * a.sin().conj()),
    "tan": _of_result(lambda g, r: g * (1 + r * r).conj()),
    "asin": _of_operands(lambda g, a: g * _inverse_hypotenuse(1 - a * a).conj()),
    "acos": _of_operands(lambda g, a: -g * _inverse_hypotenuse(1 - a * a).conj()),
    "atan": _of_operands(lambda g, a: g / (1 + a * a).conj()),
    "sinh": _of_operands(lambda g, a: g * a.cosh().conj()),
    "cosh": _of_operands(lambda g, a: g * a.sinh().conj()),
    "tanh": _of_result(lambda g, r: g * (1 - r * r).conj()),
    "asinh": _of_operands(lambda g, a: g * _inverse_hypotenuse(a * a + 1).conj()),
    "acosh": _of_operands(lambda g, a: g * (_inverse_hypotenuse(a - 1) * _inverse_hypotenuse(a + 1)).conj()),
    "atanh": _of_operands(lambda g, a: g / (1 - a * a).conj()),
    "real": _linear(lambda g: g),
    "imag": _of_operands(_imag),
    "conj": _linear(lambda g: g.conj()),
}


def _to_operand(gradient: Tensor, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Sum over dimensions along which an operand was repeated; take its type."""
    if gradient.shape != shape:
        gradient = gradient.sum_to_size(shape)
    if gradient.is_complex() and not dtype.is_complex:
        gradient = gradient.real
    return gradient.to(dtype)


def save_of(gradient: Gradient) -> Callable[..., None]:
    """Return the function that saves what `backward_of` needs."""

    def save(ctx: Any, inputs: Sequence[Tensor], output: Tensor) -> None:
        ctx.operands = [(x.shape, x.dtype) for x in inputs]
        saved = [inputs[i] for i in gradient.operands]
        ctx.save_for_backward(*saved, *((output,) if gradient.reads_result else ()))

    return save


def backward_of(gradient: Gradient) -> Callable[..., Sequence[Tensor | None]]:
    """Return the function that gives the operands' gradients."""

    def backward(ctx: Any, needed: Sequence[bool], grad: Tensor) -> Sequence[Tensor | None]:
        return [
            _to_operand(formula(grad, *ctx.saved_tensors), *operand) if formula is not None and is_needed else None
            for formula, operand, is_needed in zip(gradient.formulas, ctx.operands, needed, strict=True)
        ]

    return backward


# --- products ---


def save_product(ctx: Any, inputs: Sequence[Tensor], output: Tensor) -> None:
    """Save both operands: each one's gradient is a product with the other."""
    ctx.save_for_backward(*inputs)


def product_backward(ctx: Any, needed: Sequence[bool], grad: Tensor) -> Sequence[Tensor | None]:
    """Return the gradients of `a` and b: products of the result's with the other operand."""
    a, b = ctx.saved_tensors
    matmul = torch.ops.cukern.matmul.default
    rows = a.unsqueeze(0) if a.ndim == 1 else a
    columns = b.unsqueeze(1) if b.ndim == 1 else b
    if b.ndim == 1:
        grad = grad.unsqueeze(-1)
    if a.ndim == 1:
        grad = grad.unsqueeze(-2)
    of_a = of_b = None
    if needed[0]:
        of_a = _to_operand(matmul(grad, columns.transpose(-1, -2).conj()), rows.shape, a.dtype).reshape(a.shape)
    if needed[1]:
        of_b = _to_operand(matmul(rows.transpose(-1, -2).conj(), grad), columns.shape, b.dtype).reshape(b.shape)
    return of_a, of_b


# --- reductions ---


@dataclass(frozen=True)
class Reduced:
    """A reduction that was made: the operand, the result and its gradient with the reduced dimensions kept."""

    a: Tensor
    dims: tuple[int, ...]
    count: int | torch.SymInt
    correction: float
    result: Tensor
    grad: Tensor

    def expand(self, x: Tensor) -> Tensor:
        return x.expand(self.a.shape)


def _prod(call: Reduced) -> Tensor:
    """Multiply each element's neighbours on both sides, so that zeros need no exception."""
    kept = [d for d in range(call.a.ndim) if d not in call.dims]
    lines = call.a.permute(*kept, *call.dims)
    flat = lines.reshape(*lines.shape[: len(kept)], -1)
    one = torch.ones_like(flat[..., :1])
    before = torch.cat([one, flat[..., :-1]], -1).cumprod(-1)
    after = torch.cat([flat[..., 1:], one], -1).flip(-1).cumprod(-1).flip(-1)
    others = (before * after).reshape(lines.shape)
    back = sorted(range(call.a.ndim), key=[*kept, *call.dims].__getitem__)
    return call.grad * others.permute(*back).conj()


def _var(call: Reduced) -> Tensor:
    return call.grad * (2 / (call.count - call.correction)) * (call.a - call.a.mean(call.dims, keepdim=True))


def _std(call: Reduced) -> Tensor:
    spread = (call.a - call.a.mean(call.dims, keepdim=True)) / (call.count - call.correction)
    return torch.where(call.result == 0, 0, call.grad / call.result) * spread


def _extremum(call: Reduced) -> Tensor:
    """Share the gradient among equal elements, as torch.amax."""
    found = call.a == call.result
    return torch.where(found, call.grad / found.sum(call.dims, keepdim=True), 0)


REDUCTIONS: dict[str, Callable[[Reduced], Tensor]] = {
    "sum": lambda call: call.expand(call.grad),
    "prod": _prod,
    "mean": lambda call: call.expand(call.grad / call.count),
    "var": _var,
    "std": _std,
    "max": _extremum,
    "min": _extremum,
}
