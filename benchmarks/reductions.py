"""Device time of reductions of 1 GiB arrays over all and over each dimension, against the better of torch and CuPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import cupy
import torch
from harness import Comparison, compare, device_seconds

import cukern

SHAPES = [(16384, 16384), (1 << 24, 16), (16, 1 << 24), (512, 1024, 512), (1001, 511, 517)]
TYPES = ["float32", "bfloat16", "float64", "int32"]


def torch_call(name: str, x: torch.Tensor, axis: int | None) -> Callable[[], Any]:
    """Return torch's reduction."""
    options = {} if axis is None else {"dim": axis}
    if name == "max":
        return (lambda: x.max()) if axis is None else (lambda: torch.amax(x, axis))
    return lambda: getattr(torch, name)(x, **options)


def reduction(name: str, x: torch.Tensor, other: cupy.ndarray | None, axis: int | None) -> Comparison:
    """Compare with the better of torch and CuPy, which alone is timed in rounds."""
    peers = {"torch": torch_call(name, x, axis)}
    if other is not None:
        peers["CuPy"] = lambda: getattr(other, name)(axis=axis)
    times = {peer: min(device_seconds(call, 1) for _ in range(3)) for peer, call in peers.items()}
    best = min(times, key=lambda peer: times[peer])
    where = "all" if axis is None else f"axis {axis}"
    return compare(
        f"{name} over {where}, {str(x.dtype)[6:]} {tuple(x.shape)}",
        {"cukern": lambda: getattr(cukern, name)(x, axis=axis), best: peers[best]},
        kind="device",
        work=float(x.nbytes),
        unit="GB/s",
        repeat=3,
        bounds={best: 1.0},
    )


def reductions() -> Iterator[Comparison]:
    """Compare sum, max and argmax."""
    for dtype in TYPES:
        for shape in SHAPES:
            x = (torch.randn(shape, device="cuda") * 100).to(getattr(torch, dtype))
            other = None if dtype == "bfloat16" else cupy.from_dlpack(x)
            for name in ("sum", "max", "argmax"):
                for axis in (None, *range(len(shape))):
                    yield reduction(name, x, other, axis)
            del x, other
            torch.cuda.empty_cache()
            cupy.get_default_memory_pool().free_all_blocks()


def bytes_sum() -> Comparison:
    """Compare the sum of int8."""
    x = torch.randint(-100, 100, (1 << 30,), device="cuda", dtype=torch.int8)
    assert int(cukern.sum(x)) == int(torch.sum(x))
    contestants = {"cukern": lambda: cukern.sum(x), "torch": lambda: torch.sum(x)}
    return compare(
        "sum over all, int8, 2^30",
        contestants,
        kind="device",
        work=float(x.numel()),
        unit="GB/s",
        repeat=2,
        bounds={"torch": 10.0},
    )


def run() -> list[Comparison]:
    """Run all comparisons of this file."""
    assert cukern.backend() == "cuda"
    return [*reductions(), bytes_sum()]
