"""Gradients of torch.ops.cukern."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from interchange_tools import QUIET
from torch_tools import ALL, has_gradient, operands, operation, usual_type, values

BACKENDS = ["host", pytest.param("cuda", marks=pytest.mark.gpu)]
on_backends = pytest.mark.parametrize("backend", BACKENDS, indirect=True)
pytestmark = [*QUIET, pytest.mark.unsanitized]  # torch's own memory would be reported


def may_be_complex(row: dict[str, Any]) -> bool:
    """Return whether a row takes complex numbers that have an order in torch, too."""
    return row["types"] in ("any", "numeric", "inexact") and row["name"] not in ("maximum", "minimum", "max", "min")


@on_backends
@pytest.mark.parametrize(
    ("row", "dtype"),
    [
        pytest.param(row, dtype, id=f"{row['name']}-{dtype}")
        for row in ALL
        for dtype in (["float64", "complex128"] if may_be_complex(row) else ["float64"])
    ],
)
def test_gradients(torch: Any, rng: np.random.Generator, row: dict[str, Any], dtype: str, device: str) -> None:
    call = operation(torch, row["name"])
    if not has_gradient(row):
        xs = operands(torch, rng, row, usual_type(torch, row), device, True)
        assert not call(*xs).requires_grad
        return
    xs = operands(torch, rng, row, getattr(torch, dtype), device, True)
    torch.autograd.gradcheck(call, xs)
    torch.autograd.gradgradcheck(call, xs)


@on_backends
@pytest.mark.parametrize(
    "shapes", [((3, 4), (4, 2)), ((4,), (4, 2)), ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 4), (4, 2))]
)
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_gradients_of_matmul(torch: Any, rng: np.random.Generator, shapes: Any, dtype: str, device: str) -> None:
    xs = tuple(values(torch, rng, s, getattr(torch, dtype), device, 0.1).requires_grad_() for s in shapes)
    torch.autograd.gradcheck(torch.ops.cukern.matmul, xs)
    torch.autograd.gradgradcheck(torch.ops.cukern.matmul, xs)


@on_backends
@pytest.mark.parametrize("name", ["prod", "var", "std", "max"])
def test_gradients_of_reductions(torch: Any, rng: np.random.Generator, name: str, device: str) -> None:
    own = getattr(torch.ops.cukern, name)
    x = values(torch, rng, (2, 3, 4), torch.float64, device, 0.1).requires_grad_()
    options = {"correction": 0.0} if name in ("var", "std") else {}
    for dim, keepdim in (([0, 2], False), ([1], True), (None, False)):
        torch.autograd.gradcheck(lambda a, d=dim, k=keepdim: own(a, d, k, **options), (x,))


@on_backends
def test_gradients_where_formulas_divide_by_zero(torch: Any, device: str) -> None:
    o = torch.ops.cukern
    cases = [
        (lambda a: o.prod(a), torch.prod, [0.0, 2.0, 3.0]),
        (lambda a: o.prod(a), torch.prod, [0.0, 0.0, 3.0]),
        (lambda a: o.pow(a, 2.0), lambda a: torch.pow(a, 2.0), [0.0, -1.0]),
        (lambda a: o.pow(a, 0.0), lambda a: torch.pow(a, 0.0), [0.0, 2.0]),
        (lambda a: o.pow.Scalar_Tensor(0.0, a), lambda a: torch.pow(0.0, a), [1.0, 2.0]),
        (lambda a: o.abs(a), torch.abs, [0.0, -1.0]),
        (lambda a: o.max(a), torch.amax, [1.0, 1.0, 0.0]),
        (lambda a: o.std(a), torch.std, [1.0, 1.0]),
        (lambda a: o.maximum(a, a.detach()), lambda a: torch.maximum(a, a.detach()), [1.0, 2.0]),
        (lambda a: o.maximum(a, 1.0), lambda a: torch.maximum(a, torch.ones_like(a)), [math.nan, 2.0]),
        (lambda a: o.minimum(a, 1.0), lambda a: torch.minimum(a, torch.ones_like(a)), [math.nan, 2.0, 0.5]),
        (lambda a: o.min(a), torch.amin, [math.nan, 1.0]),
        (lambda a: o.atan2(a, 0.0), lambda a: 0 * a, [0.0, 1.0]),  # NaN at 0 of earlier versions of torch
        (o.acosh, torch.acosh, [-1.0, -2.0, 1.0, 3.0]),
        (lambda a: o.pow.Scalar_Tensor(0.0, a), lambda a: torch.pow(torch.zeros_like(a), a), [-1.0, 2.0]),
        (
            lambda a: o.remainder.Scalar_Tensor(1.0, a),
            lambda a: torch.remainder(torch.ones_like(a), a),
            [0.1, -0.1, math.inf, -math.inf],
        ),
        (lambda a: o.var(a), torch.var, [3.0]),
        (lambda a: o.prod(a, [0], True), lambda a: torch.prod(a, 0, True), [3.0]),
    ]
    for own, theirs, numbers in cases:
        gradients = []
        for function in (own, theirs):
            x = torch.tensor(numbers, device=device, dtype=torch.float64, requires_grad=True)
            function(x).sum().backward()
            gradients.append(x.grad)
        torch.testing.assert_close(*gradients, equal_nan=True)


@on_backends
def test_gradients_of_products_of_nothing(torch: Any, device: str) -> None:
    o = torch.ops.cukern
    for shape, dims in (((), None), ((), [0]), ((0, 3), [1]), ((0, 3), [0]), ((2, 3), [0, 1])):
        x = torch.rand(shape, device=device, dtype=torch.float64, requires_grad=True)
        o.prod(x, dims).sum().backward()
        assert x.grad.shape == x.shape
    x = torch.tensor(3.0, device=device, requires_grad=True)
    o.prod(x).backward()
    assert x.grad == 1


@on_backends
def test_what_is_saved(torch: Any, device: str) -> None:
    """What no gradient needs is not kept: it may be large, or changed afterwards."""
    o = torch.ops.cukern
    x = torch.ones(4, 4, device=device, requires_grad=True)
    y = torch.full((4, 4), 2.0, device=device)
    cases = [
        (lambda: o.add(x, y), 0),
        (lambda: o.sum(x), 0),
        (lambda: o.mean(x), 0),
        (lambda: o.multiply(x, y), 16),
        (lambda: o.divide(x, y), 16),
        (lambda: o.remainder(x, y), 0),
        (lambda: o.matmul(x, y), 16),
        (lambda: o.tanh(x), 16),
        (lambda: o.where(y > 0, x, y), 16),
    ]
    for call, wanted in cases:
        saved: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, s=saved: (s.append(t.numel()), t)[1], lambda t: t):
            call()
        assert sum(saved) == wanted
    total = o.sum(x)
    total += 1
    total.backward()
    assert torch.equal(x.grad, torch.ones_like(x))


@on_backends
def test_gradients_of_mixed_types(torch: Any, device: str) -> None:
    x = torch.ones(2, 3, dtype=torch.float16, device=device, requires_grad=True)
    y = torch.ones(3, dtype=torch.float64, device=device, requires_grad=True)
    torch.ops.cukern.multiply(x, y).sum().backward()
    assert (x.grad.dtype, x.grad.shape, y.grad.dtype, y.grad.tolist()) == (
        torch.float16,
        (2, 3),
        torch.float64,
        [2.0] * 3,
    )


@on_backends
@pytest.mark.parametrize("name", ["var", "std"])
def test_gradients_of_many_halves(torch: Any, name: str, device: str) -> None:
    """The number of elements is beyond float16."""
    gradients = []
    for function in (getattr(torch.ops.cukern, name), getattr(torch, name)):
        x = torch.linspace(-1, 1, 70000, device=device).half().requires_grad_()
        function(x).backward()
        gradients.append(x.grad)
    torch.testing.assert_close(*gradients)
    assert gradients[0].abs().max() > 0


def test_a_number_beside_a_tensor_of_a_device(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch.compile makes of the formula divides on one device alone, also without a GPU."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    from cukern.torch import _gradients

    monkeypatch.setattr(torch, "div", torch._refs.div)
    with FakeTensorMode():
        number, tensor = torch.empty(()), torch.empty(3, device="cuda")
        with pytest.raises(RuntimeError, match="device"):
            torch.div(number, tensor, rounding_mode="floor")
        formula = _gradients.ELEMENTWISE["remainder"].formulas[1]
        assert formula(tensor, number, tensor).device.type == "cuda"
