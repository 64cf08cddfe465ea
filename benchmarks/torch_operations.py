"""Host time of operations of torch.ops.cukern beside torch's own, on small tensors; compiled ones beside torch's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from calls import REPEAT, N, Work, compare_calls, loop
from harness import Comparison, compare, device_seconds

import cukern
import cukern.torch

LARGE = 1 << 28  # elements, of which a kernel takes longer than a compiled call's host time
SOURCE = r"""
extern "C" __global__ void floor_of(const float *x, float *out, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = floorf(x[i]);
}"""

# Of a process without the shim: the ratios of torch's time to ours, one a round.
WITHOUT = """
import json, sys
sys.path[:0] = sys.argv[1:]
import torch_operations
print(json.dumps(torch_operations.ratios_of_fallback()))
"""


def registered() -> Any:
    """Return a RawKernel that rounds down as an operation of torch."""
    kernel = cukern.RawKernel(SOURCE, "floor_of")
    return cukern.torch.register(kernel, "cukern_benchmarks::floor_of(Tensor x) -> Tensor", size_argument=True)


def small() -> tuple[Any, Any, Any]:
    """Return three small tensors on the GPU."""
    a, b, out = (torch.rand(N, device="cuda") for _ in range(3))
    return a, b, out


def calls() -> list[Work]:
    """Return the comparisons of calls."""
    ops = torch.ops.cukern
    a, b, out = small()
    requires = a.clone().requires_grad_()
    torch_sum = loop("a + b", a=a, b=b)
    return [
        (
            "floor",
            {
                "cukern": loop("floor(a)", floor=ops.floor.default, a=a),
                "torch": loop("floor(a)", floor=torch.floor, a=a),
            },
            {"torch": 1 / 1.1},
            {},
        ),
        (
            "add, out=",
            {
                "cukern": loop("add(a, b, out=out)", add=ops.add.out, a=a, b=b, out=out),
                "torch": loop("add(a, b, out=out)", add=torch.add, a=a, b=b, out=out),
            },
            {"torch": 1 / 1.1},
            {},
        ),
        (
            "add, nothing requires a gradient",
            {"cukern": loop("add(a, b)", add=ops.add.default, a=a, b=b), "torch": torch_sum},
            {"torch": 1 / 1.8},
            {},
        ),
        (
            "add, with a gradient",
            {
                "cukern": loop("add(a, b)", add=ops.add.default, a=requires, b=b),
                "torch": loop("a + b", a=requires, b=b),
            },
            {"torch": 1 / 3.0},
            {},
        ),
    ]


def of_registered() -> Work:
    """Return the comparison of a registered kernel with torch's own operation."""
    a, _, _ = small()
    call = registered()
    assert torch.equal(call(a), torch.floor(a))
    return (
        "a registered RawKernel, as floor",
        {"cukern": loop("call(a)", call=call, a=a), "torch": loop("floor(a)", floor=torch.floor, a=a)},
        {"torch": 1 / 1.1},
        {},
    )


def ratios_of_fallback() -> dict[str, dict[str, Any]]:
    """Return times and ratios of floor and add with out, taken in a process without the shim."""
    assert cukern.torch.shim_missing is not None
    floor, with_out = compare_calls(calls()[:2], REPEAT // 4)
    return {x.name: {"times": x.times, "ratios": x.ratios} for x in (floor, with_out)}


def without_the_shim() -> list[Comparison]:
    """Compare operations by define and impl with torch's, in a process of their own."""
    here = Path(__file__).resolve().parent
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(here), str(here.parent / "scripts")],
        env={**os.environ, "CUKERN_TORCH_SHIM": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    bounds = {"torch": 1 / 1.4}
    return [
        Comparison(f"{name}, without the shim", "call", "cukern", 12.0 * N, "us", bounds=bounds, **figures)
        for name, figures in found.items()
    ]


def compiled() -> list[Comparison]:
    """Compare compiled operations, each alone, with torch's own, compiled: large tensors, device time."""
    results = []
    a, b = (torch.rand(LARGE, device="cuda") for _ in range(2))
    pairs: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = {
        "add": (torch.ops.cukern.add, torch.add, (a, b)),
        "tanh": (torch.ops.cukern.tanh, torch.tanh, (a,)),
        "hypot": (torch.ops.cukern.hypot, torch.hypot, (a, b)),
        "sum": (torch.ops.cukern.sum, torch.sum, (a,)),
    }
    for name, (own, theirs, operands) in pairs.items():
        contestants = {}
        for who, function in (("cukern", own), ("torch", theirs)):
            call = torch.compile(lambda *tensors, f=function: f(*tensors), fullgraph=True)
            contestants[who] = lambda call=call, operands=operands: call(*operands)
        results.append(
            compare(
                f"{name} compiled, 2^28",
                contestants,
                kind="device",
                work=4.0 * LARGE * (len(operands) + (name != "sum")),
                unit="GB/s",
                repeat=20,
                bounds={"torch": 1.0},
                measure=device_seconds,
            )
        )
    return results


def run() -> list[Comparison]:
    """Run all comparisons of this file."""
    assert cukern.backend() == "cuda"
    assert cukern.torch.shim_missing is None, cukern.torch.shim_missing
    results = compare_calls([*calls(), of_registered()], REPEAT)
    results += without_the_shim()
    return results + compiled()
