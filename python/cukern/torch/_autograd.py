"""The kernels of the key Autograd: they record a call where an operand requires a gradient.

`torch.library.register_autograd` does the same, and takes 2.5 us more for a call that records nothing, and 5 us more
for one that does: most of it is the step below autograd. Here plain tensors go on to an operation of the same kernels
that has no gradient (`_add` of `add`). All other calls (fake tensors, subclasses, modes that look at what is called) go
on as `register_autograd` lets them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

_below_autograd = torch._C._AutoDispatchBelowAutograd
_keys_below = torch._C._after_autograd_keyset
_modes = torch._C._len_torch_dispatch_stack
_is_recording = torch.is_grad_enabled
_PLAIN = frozenset({Tensor, torch.nn.Parameter})

# Both get which operands need a gradient.
Save = Callable[[Any, tuple[bool, ...], Sequence[Tensor], Tensor], None]
Backward = Callable[[Any, tuple[bool, ...], Tensor], Sequence[Tensor | None]]
# Of reductions; gets the context, the operand, dim, keepdim, the other options, and the result.
SaveReduced = Callable[[Any, Tensor, Any, bool, dict[str, Any], Tensor], None]


def _refuse_tangents(name: str, tensors: Sequence[Tensor]) -> None:
    if any(forward_ad.unpack_dual(x).tangent is not None for x in tensors):
        raise NotImplementedError(f"cukern::{name} has no gradient in forward mode")


def _function(name: str, forward: Callable[..., Any], backward: Callable[..., Any]) -> Any:
    """Return a new function of autograd."""
    functions = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type(f"cukern_{name.replace('.', '_')}", (torch.autograd.Function,), functions)


def kernel_of(name: str, call: Any, forward: Any, save: Save, backward: Backward) -> Callable[..., Tensor]:
    """Return the kernel of an operation, to be registered with its keyset.

    `forward` is the operation without a gradient that goes with `call`. `save` and `backward` are as `_gradients` has
    them.
    """
    compute = forward._op

    def go_on(keyset: Any, tensors: Sequence[Tensor]) -> Any:
        with _below_autograd():
            return call.redispatch(keyset & _keys_below, *tensors)

    def record_forward(ctx: Any, keyset: Any, *tensors: Tensor) -> Any:
        is_plain = all(type(x) in _PLAIN for x in tensors) and _modes() == 0
        result = compute(*tensors) if is_plain else go_on(keyset, tensors)
        save(ctx, ctx.needs_input_grad[1:], tensors, result)
        return result

    def record_backward(ctx: Any, grad: Tensor) -> Any:
        return None, *backward(ctx, ctx.needs_input_grad[1:], grad)

    record = _function(name, record_forward, record_backward).apply

    # One function for each number of operands: a loop over them takes 0.7 us more.
    def of_one(keyset: Any, a: Tensor) -> Any:
        if a.requires_grad and _is_recording():
            return record(keyset, a)
        if forward_ad._current_level >= 0:
            _refuse_tangents(name, (a,))
        return compute(a) if type(a) in _PLAIN and _modes() == 0 else go_on(keyset, (a,))

    def of_two(keyset: Any, a: Tensor, b: Tensor) -> Any:
        if (a.requires_grad or b.requires_grad) and _is_recording():
            return record(keyset, a, b)
        if forward_ad._current_level >= 0:
            _refuse_tangents(name, (a, b))
        return compute(a, b) if type(a) in _PLAIN and type(b) in _PLAIN and _modes() == 0 else go_on(keyset, (a, b))

    def of_more(keyset: Any, *tensors: Tensor) -> Any:
        if any(x.requires_grad for x in tensors) and _is_recording():
            return record(keyset, *tensors)
        if forward_ad._current_level >= 0:
            _refuse_tangents(name, tensors)
        return (
            compute(*tensors) if all(type(x) in _PLAIN for x in tensors) and _modes() == 0 else go_on(keyset, tensors)
        )

    kernels: dict[int, Callable[..., Tensor]] = {1: of_one, 2: of_two}
    return kernels.get(len(call._schema.arguments), of_more)


def kernel_of_reduction(
    name: str, call: Any, forward: Any, save: SaveReduced, backward: Callable[[Any, Tensor], Tensor]
) -> Callable[..., Tensor]:
    """Return the same of a reduction."""
    compute = forward._op

    def run(keyset: Any, a: Tensor, dim: Any, keepdim: bool, options: dict[str, Any]) -> Any:
        if type(a) in _PLAIN and _modes() == 0:
            return compute(a, dim, keepdim, **options)
        with _below_autograd():
            return call.redispatch(keyset & _keys_below, a, dim, keepdim, **options)

    def record_forward(ctx: Any, keyset: Any, a: Tensor, dim: Any, keepdim: bool, options: dict[str, Any]) -> Any:
        result = run(keyset, a, dim, keepdim, options)
        save(ctx, a, dim, keepdim, options, result)
        return result

    def record_backward(ctx: Any, grad: Tensor) -> Any:
        return None, backward(ctx, grad), None, None, None

    record = _function(name, record_forward, record_backward).apply

    def kernel(keyset: Any, a: Tensor, dim: Any = None, keepdim: bool = False, **options: Any) -> Any:
        if a.requires_grad and _is_recording():
            return record(keyset, a, dim, keepdim, options)
        if forward_ad._current_level >= 0:
            _refuse_tangents(name, (a,))
        return run(keyset, a, dim, keepdim, options)

    return kernel
