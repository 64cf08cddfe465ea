"""Trains a small model with cukern's operations inside torch, and the same model with torch's own.

    python examples/torch_training.py

The layers' products, the activation (Mish) and the loss are operations of torch.ops.cukern. From one seed both models
come to the same loss after 200 steps: eager, compiled by torch.compile and, on a GPU, captured in a graph. Exit status
1 where they don't.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import Tensor

import cukern.torch  # noqa: F401  (makes torch.ops.cukern)

STEPS = 200
RATE = 0.05
MOST = 1e-3  # relative difference of the losses

ops = torch.ops.cukern


def cukern_loss(parameters: list[Tensor], x: Tensor, wanted: Tensor) -> Tensor:
    """Return the mean squared error of a model with one hidden layer."""
    first, bias, second = parameters
    hidden = ops.add(ops.matmul(x, first), bias)
    active = ops.multiply(hidden, ops.tanh(ops.log1p(ops.exp(hidden))))
    return ops.mean(ops.square(ops.subtract(ops.matmul(active, second), wanted)))


def torch_loss(parameters: list[Tensor], x: Tensor, wanted: Tensor) -> Tensor:
    """Return the same by torch's own operations."""
    first, bias, second = parameters
    hidden = x @ first + bias
    active = hidden * torch.tanh(torch.log1p(torch.exp(hidden)))
    return torch.mean(torch.square(active @ second - wanted))


def make_parameters(device: str) -> list[Tensor]:
    """Return the parameters that a seed gives."""
    generator = torch.Generator().manual_seed(1)
    shapes = [(16, 64), (64,), (64, 1)]
    return [(0.2 * torch.randn(s, generator=generator)).to(device).requires_grad_() for s in shapes]


def step(loss: Callable[..., Tensor], parameters: list[Tensor], x: Tensor, wanted: Tensor) -> Tensor:
    """Make a step of gradient descent; return the loss before it."""
    now = loss(parameters, x, wanted)
    gradients = torch.autograd.grad(now, parameters)
    with torch.no_grad():
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.sub_(RATE * gradient)
    return now.detach()


def train(loss: Callable[..., Tensor], device: str, captured: bool = False) -> float:
    """Return the loss after STEPS steps."""
    generator = torch.Generator().manual_seed(2)
    x = torch.randn((256, 16), generator=generator).to(device)
    wanted = torch.sin(x.sum(1, keepdim=True))
    parameters = make_parameters(device)
    if not captured:
        for _ in range(STEPS):
            step(loss, parameters, x, wanted)
    else:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # what is made on the first call is not captured
            for _ in range(3):
                step(loss, parameters, x, wanted)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step(loss, parameters, x, wanted)
        for _ in range(STEPS - 3):
            graph.replay()
    with torch.no_grad():
        return float(loss(parameters, x, wanted))


def main() -> int:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    expected = train(torch_loss, device)
    print(f"torch's operations on {device}: loss {expected:.6f} after {STEPS} steps")
    losses = {
        "eager": train(cukern_loss, device),
        "compiled": train(torch.compile(cukern_loss, fullgraph=True), device),
    }
    if device == "cuda":
        losses["captured in a graph"] = train(cukern_loss, device, captured=True)
    failed = False
    for how, loss in losses.items():
        difference = abs(loss - expected) / expected
        failed = failed or not difference <= MOST
        print(f"cukern's operations, {how}: loss {loss:.6f}, relative difference {difference:.1e}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
