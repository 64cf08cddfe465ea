"""torch's own operations beside those of torch.ops.cukern, and tensors of random layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cukern import _cukern

ROWS: list[dict[str, Any]] = list(_cukern._table)
ALL = [row for row in ROWS if row["kind"] != "scalar"]
ELEMENTWISE = [row for row in ROWS if row["kind"] in ("unary", "binary", "choice")]
REDUCTIONS = [row for row in ROWS if row["kind"] == "reduction"]

# Where torch's function has another name.
_NAMES = {
    "equal": "eq",
    "not_equal": "ne",
    "less": "lt",
    "less_equal": "le",
    "greater": "gt",
    "greater_equal": "ge",
    "bitwise_invert": "bitwise_not",
    "conj": "conj_physical",
    "max": "amax",
    "min": "amin",
}

TYPES = {
    "any": ["float32", "float64", "float16", "bfloat16", "complex64", "int8", "int32", "int64", "uint8", "bool"],
    "real": ["float32", "float64", "float16", "bfloat16", "int8", "int32", "int64", "uint8"],
    "numeric": ["float32", "float64", "bfloat16", "complex64", "int8", "int16", "int64", "uint8"],
    "inexact": ["float32", "float64", "float16", "bfloat16", "complex128", "int8", "int64", "bool"],
    "floating": ["float32", "float64", "float16", "bfloat16"],
    "bits": ["int8", "int32", "int64", "uint8", "bool"],
    "integers": ["int8", "int16", "int32", "int64", "uint8"],
    "boolean": ["float32", "float16", "complex64", "int8", "int64", "uint8", "bool"],
}


def torch_function(torch: Any, name: str) -> Callable[..., Any]:
    """Return torch's own function of a row."""
    function: Callable[..., Any] = getattr(torch, _NAMES.get(name, name))
    return function


def operation(torch: Any, name: str) -> Any:
    """Return the overload of tensors alone."""
    return getattr(getattr(torch.ops.cukern, name), "Tensor" if name == "axpy" else "default")


def values(torch: Any, rng: np.random.Generator, shape: tuple[int, ...], dtype: Any, device: str, least: float) -> Any:
    """Return random elements: integers from 1 to 9, others from `least` on to 0.8 more."""
    if not dtype.is_floating_point and not dtype.is_complex:
        whole = torch.from_numpy(rng.integers(1, 9, shape))
        return (whole > 4 if dtype == torch.bool else whole).to(dtype).to(device)
    real = torch.from_numpy(np.asarray(rng.random(shape) * 0.8 + least))
    return (torch.complex(real, real * 0.5 + 0.1) if dtype.is_complex else real).to(dtype).to(device)


def in_random_layout(torch: Any, rng: np.random.Generator, x: Any) -> Any:
    """Return the elements of x in memory of another order, with gaps, or repeated along a dimension."""
    kind = rng.integers(5)
    if kind == 1 and x.ndim == 4:
        return x.contiguous(memory_format=torch.channels_last)
    if kind == 2 and x.ndim > 0:  # another order of the dimensions
        order = [int(d) for d in rng.permutation(x.ndim)]
        back = [order.index(d) for d in range(x.ndim)]
        return x.permute(order).contiguous().permute(back)
    if kind == 3 and x.ndim > 0:  # every other element of more memory
        wide = torch.zeros([2 * n for n in x.shape], dtype=x.dtype, device=x.device)
        view = wide[tuple(slice(None, None, 2) for _ in x.shape)]
        return view.copy_(x)
    if kind == 4 and x.ndim > 0:
        return x[:1].expand(x.shape)
    return x


SHAPES = [(3, 4), (2, 3, 4), (2, 3, 4, 5), (1, 3, 1, 5), (7,), (), (2, 1, 3), (0, 3), (1, 1, 1, 1)]


def random_shapes(rng: np.random.Generator, count: int) -> list[tuple[int, ...]]:
    """Return shapes that broadcast: one, and it with some dimensions left out or of length 1."""
    shape = SHAPES[rng.integers(len(SHAPES))]
    found = []
    for _ in range(count):
        kept = shape[int(rng.integers(len(shape) + 1)) :] if rng.random() < 0.3 else shape
        found.append(tuple(1 if rng.random() < 0.2 else n for n in kept) if rng.random() < 0.5 else kept)
    return found


def has_gradient(row: dict[str, Any]) -> bool:
    from cukern.torch import _gradients

    return row["name"] in _gradients.ELEMENTWISE or row["name"] in _gradients.REDUCTIONS or row["kind"] == "axpy"


def operands(torch: Any, rng: np.random.Generator, row: dict[str, Any], dtype: Any, device: str, grad: bool) -> Any:
    """Return operands that broadcast; those that may have gradients require them."""
    name, kind = row["name"], row["kind"]
    count = {"binary": 2, "choice": 2, "axpy": 2}.get(kind, 1)
    found = [values(torch, rng, (3, 4), dtype, device, 1.1 if name == "acosh" else 0.1) for _ in range(count)]
    if count == 2:
        found[1] = found[1][0]
    if dtype.is_floating_point or dtype.is_complex:
        found = [x.requires_grad_(grad) for x in found]
    if kind == "choice":
        found.insert(0, torch.tensor([True, False, True, True], device=device))
    if kind == "axpy":
        found.insert(0, torch.scalar_tensor(2.0))
    return tuple(found)


def usual_type(torch: Any, row: dict[str, Any]) -> Any:
    if row["types"] in ("bits", "integers"):
        return torch.int32
    return torch.bool if row["types"] == "boolean" and row["kind"] != "reduction" else torch.float32
