"""Derivatives of the operations of torch.ops.cukern, as torch's own define them: of complex results by conjugates.

A formula returns the gradient of one operand in the result's shape; `backward_of` brings it to the operand's shape and
type. Formulas are of operations that have derivatives themselves, so that higher ones follow.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Formula = Callable[..., Any]


class Gradient:
    """A formula for each operand (None: it has no gradient), whose names are letters.

    A formula's parameters say what it reads and is saved for it: the gradient of the result comes first, then any of
    the operands by their names, and `r`, the result.
    """

    def __init__(self, operands: str, *formulas: Formula | None) -> None:
        self.places = {name: place for place, name in enumerate(operands)}
        self.formulas = formulas
        self.reads = [() if f is None else tuple(inspect.signature(f).parameters)[1:] for f in formulas]
        self._saved: dict[tuple[bool, ...], list[str]] = {}

    def saved_for(self, needed: tuple[bool, ...]) -> list[str]:
        """Return the names of what the formulas of the operands that need a gradient read."""
        if needed not in self._saved:
            names = {name for reads, is_needed in zip(self.reads, needed, strict=True) if is_needed for name in reads}
            self._saved[needed] = sorted(names)
        return self._saved[needed]


def _pow_base(g: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return torch.where(b == 0, 0, g * (b * a.pow(b - 1)).conj())


def _pow_exponent(g: Tensor, a: Tensor, b: Tensor, r: Tensor) -> Tensor:
    # 0 ** b is 0 around any b whose real part is positive.
    flat = (a == 0) & ((b.real if b.is_complex() else b) >= 0)
    return g * torch.where(flat, 0, r * torch.log(torch.where(flat, 1, a))).conj()


def _remainder_divisor(g: Tensor, a: Tensor, b: Tensor) -> Tensor:
    if a.device != b.device:  # a number; torch's own decomposition takes none in the place of the dividend
        a = a + torch.zeros_like(b)
    return -g * torch.div(a, b, rounding_mode="floor")


def _share(g: Tensor, is_equal: Tensor, is_other: Tensor) -> Tensor:
    """Return the gradient of one of two operands of which the result is one; both of them where they are equal."""
    return torch.where(is_equal, g / 2, torch.where(is_other, 0, g))


def _sign(g: Tensor, a: Tensor, r: Tensor) -> Tensor:
    if not a.is_complex():
        return torch.zeros_like(g)
    return torch.where(a == 0, 0, g / a.abs() - (g / a).real * r)


def _imag(g: Tensor, a: Tensor) -> Tensor:
    return g * 1j if a.is_complex() else torch.zeros_like(g)


def _inverse_root(x: Tensor) -> Tensor:
    return x.sqrt().reciprocal()


def _acosh(g: Tensor, a: Tensor) -> Tensor:
    # The root of the product has another branch for complex numbers.
    of_complex = a.is_complex()
    inverse = _inverse_root(a - 1) * _inverse_root(a + 1) if of_complex else _inverse_root(a * a - 1)
    return g * inverse.conj()


def _over_square(g: Tensor, x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Return g * x / (a^2 + b^2), and 0 where that is 0."""
    square = a * a + b * b
    return torch.where(square == 0, 0, g * x / square)


ELEMENTWISE: dict[str, Gradient] = {
    "add": Gradient("ab", lambda g: g, lambda g: g),
    "subtract": Gradient("ab", lambda g: g, lambda g: -g),
    "multiply": Gradient("ab", lambda g, b: g * b.conj(), lambda g, a: g * a.conj()),
    "divide": Gradient("ab", lambda g, b: g / b.conj(), lambda g, a, b: -g * (a / b / b).conj()),
    "axpy.Tensor": Gradient("axy", lambda g, x: g * x.conj(), lambda g, a: g * a.conj(), lambda g: g),
    "where": Gradient("cab", None, lambda g, c: torch.where(c != 0, g, 0), lambda g, c: torch.where(c != 0, 0, g)),
    "remainder": Gradient("ab", lambda g: g, _remainder_divisor),
    "pow": Gradient("ab", _pow_base, _pow_exponent),
    "maximum": Gradient("ab", lambda g, a, b: _share(g, a == b, a < b), lambda g, a, b: _share(g, a == b, b < a)),
    "minimum": Gradient("ab", lambda g, a, b: _share(g, a == b, a > b), lambda g, a, b: _share(g, a == b, b > a)),
    "hypot": Gradient("ab", lambda g, a, r: g * (a / r), lambda g, b, r: g * (b / r)),
    "atan2": Gradient("ab", lambda g, a, b: _over_square(g, b, a, b), lambda g, a, b: _over_square(g, -a, a, b)),
    "copysign": Gradient("ab", lambda g, a, r: torch.where(a == 0, 0, g * (r / a)), lambda g: torch.zeros_like(g)),
    "logaddexp": Gradient("ab", lambda g, a, b: g * torch.sigmoid(a - b), lambda g, a, b: g * torch.sigmoid(b - a)),
    "negative": Gradient("a", lambda g: -g),
    "positive": Gradient("a", lambda g: g),
    "abs": Gradient("a", lambda g, a: g * a.sgn()),
    "sign": Gradient("a", _sign),
    "square": Gradient("a", lambda g, a: g * (2 * a).conj()),
    "reciprocal": Gradient("a", lambda g, r: -g * (r * r).conj()),
    "sqrt": Gradient("a", lambda g, r: g / (2 * r).conj()),
    "exp": Gradient("a", lambda g, r: g * r.conj()),
    "expm1": Gradient("a", lambda g, r: g * (r + 1).conj()),
    "log": Gradient("a", lambda g, a: g / a.conj()),
    "log1p": Gradient("a", lambda g, a: g / (a + 1).conj()),
    "log2": Gradient("a", lambda g, a: g / (a.conj() * math.log(2))),
    "log10": Gradient("a", lambda g, a: g / (a.conj() * math.log(10))),
    "sin": Gradient("a", lambda g, a: g * a.cos().conj()),
    "cos": Gradient("a", lambda g, a: -g * a.sin().conj()),
    "tan": Gradient("a", lambda g, r: g * (1 + r * r).conj()),
    "asin": Gradient("a", lambda g, a: g * _inverse_root(1 - a * a).conj()),
    "acos": Gradient("a", lambda g, a: -g * _inverse_root(1 - a * a).conj()),
    "atan": Gradient("a", lambda g, a: g / (1 + a * a).conj()),
    "sinh": Gradient("a", lambda g, a: g * a.cosh().conj()),
    "cosh": Gradient("a", lambda g, a: g * a.sinh().conj()),
    "tanh": Gradient("a", lambda g, r: g * (1 - r * r).conj()),
    "asinh": Gradient("a", lambda g, a: g * _inverse_root(a * a + 1).conj()),
    "acosh": Gradient("a", _acosh),
    "atanh": Gradient("a", lambda g, a: g / (1 - a * a).conj()),
    "real": Gradient("a", lambda g: g),
    "imag": Gradient("a", _imag),
    "conj": Gradient("a", lambda g: g.conj()),
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
    places = gradient.places

    def save(ctx: Any, needed: tuple[bool, ...], inputs: Sequence[Tensor], output: Tensor) -> None:
        ctx.operands = [(x.shape, x.dtype) for x in inputs]
        ctx.save_for_backward(*[output if name == "r" else inputs[places[name]] for name in gradient.saved_for(needed)])

    return save


def backward_of(gradient: Gradient) -> Callable[..., Sequence[Tensor | None]]:
    """Return the function that gives the operands' gradients."""

    def backward(ctx: Any, needed: tuple[bool, ...], grad: Tensor) -> Sequence[Tensor | None]:
        saved = dict(zip(gradient.saved_for(needed), ctx.saved_tensors, strict=True))
        found: list[Tensor | None] = []
        for formula, reads, operand, is_needed in zip(
            gradient.formulas, gradient.reads, ctx.operands, needed, strict=True
        ):
            if formula is None or not is_needed:
                found.append(None)
            else:
                found.append(_to_operand(formula(grad, *[saved[name] for name in reads]), *operand))
        return found

    return backward


# --- products ---


def save_product(ctx: Any, needed: tuple[bool, ...], inputs: Sequence[Tensor], output: Tensor) -> None:
    """Save for each operand that needs a gradient the other, with which the result's is multiplied."""
    a, b = inputs
    ctx.operands = [(x.shape, x.dtype) for x in inputs]
    ctx.save_for_backward(a if needed[1] else None, b if needed[0] else None)


def product_backward(ctx: Any, needed: tuple[bool, ...], grad: Tensor) -> Sequence[Tensor | None]:
    """Return the gradients of `a` and b: products of the result's with the other operand."""
    a, b = ctx.saved_tensors
    (shape_a, type_a), (shape_b, type_b) = ctx.operands
    matmul = torch.ops.cukern.matmul.default
    # Vectors as matrices: a row on the left, a column on the right.
    rows = (1, *shape_a) if len(shape_a) == 1 else shape_a
    columns = (*shape_b, 1) if len(shape_b) == 1 else shape_b
    if len(shape_b) == 1:
        grad = grad.unsqueeze(-1)
    if len(shape_a) == 1:
        grad = grad.unsqueeze(-2)
    of_a = of_b = None
    if needed[0]:
        of_a = _to_operand(matmul(grad, b.reshape(columns).transpose(-1, -2).conj()), rows, type_a).reshape(shape_a)
    if needed[1]:
        of_b = _to_operand(matmul(a.reshape(rows).transpose(-1, -2).conj(), grad), columns, type_b).reshape(shape_b)
    return of_a, of_b


# --- reductions ---


@dataclass(frozen=True)
class Reduced:
    """A reduction that was made; the result and its gradient have the reduced dimensions with length 1.

    `a` and `result` are there for formulas that read them.
    """

    a: Any
    shape: Sequence[Any]
    dims: tuple[int, ...]
    count: Any
    correction: float
    result: Any
    grad: Tensor


@dataclass(frozen=True)
class ReductionGradient:
    """The gradient of a reduction's operand, and what the formula reads."""

    formula: Callable[[Reduced], Tensor]
    reads_operand: bool = True
    reads_result: bool = False


def _prod(call: Reduced) -> Tensor:
    """Multiply each element's neighbours on both sides, so that zeros need no exception."""
    if not call.dims:
        return call.grad
    kept = [d for d in range(call.a.ndim) if d not in call.dims]
    lines = call.a.permute((*kept, *call.dims))
    flat = lines.flatten(len(kept))
    one = torch.ones_like(flat[..., :1])
    before = torch.cat([one, flat[..., :-1]], -1).cumprod(-1)
    after = torch.cat([flat[..., 1:], one], -1).flip(-1).cumprod(-1).flip(-1)
    others = (before[..., : flat.shape[-1]] * after[..., : flat.shape[-1]]).reshape(lines.shape)
    back = sorted(range(call.a.ndim), key=[*kept, *call.dims].__getitem__)
    return call.grad * others.permute(back).conj()


def _spread(call: Reduced) -> Tensor:
    """Return the distances from the mean over what the variance is divided by; NaN where that is 0."""
    # As a number: in float16 it may be infinite.
    return (call.a - call.a.mean(call.dims, keepdim=True)) / (call.count - call.correction)


def _std(call: Reduced) -> Tensor:
    return torch.where(call.result == 0, 0, call.grad / call.result) * _spread(call)


def _extremum(call: Reduced) -> Tensor:
    """Share the gradient among equal elements, as torch.amax."""
    found = call.a == call.result
    return found * call.grad / found.sum(call.dims, keepdim=True)


def _expanded(call: Reduced) -> Tensor:
    return call.grad.expand(call.shape)


REDUCTIONS: dict[str, ReductionGradient] = {
    "sum": ReductionGradient(_expanded, reads_operand=False),
    "mean": ReductionGradient(lambda call: _expanded(call) / call.count, reads_operand=False),
    "prod": ReductionGradient(_prod),
    "var": ReductionGradient(lambda call: 2 * call.grad * _spread(call)),
    "std": ReductionGradient(_std, reads_result=True),
    "max": ReductionGradient(_extremum, reads_result=True),
    "min": ReductionGradient(_extremum, reads_result=True),
}
