"""What goes over the link: copies, and calls on large arrays of NumPy, beside pinned memory, CuPy and torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy
import numpy as np
import torch
from harness import Comparison, compare
from host import cupy_round_trip

import cukern

GIB = 1 << 30
COUNT = 1 << 28


def pinned_by_torch(count: int) -> torch.Tensor:
    """Return pinned memory whose pages are there."""
    return torch.ones(count, dtype=torch.float32).pin_memory()


def waited(call: Callable[[], Any]) -> Callable[[], Any]:
    """Return a call that waits for the device."""

    def both() -> None:
        call()
        torch.cuda.synchronize()

    return both


def on_device(call: Callable[[], Any]) -> Callable[[], Any]:
    """Return a call that is placed on the device."""

    def placed() -> None:
        with cukern.placement("device"):
            call()

    return placed


def rate_of(name: str, contestants: dict[str, Callable[[], Any]], bounds: dict[str, float], n: int) -> Comparison:
    """Compare copies of so many bytes."""
    return compare(name, contestants, kind="host", work=float(n), unit="GB/s", repeat=1, bounds=bounds)


def copies() -> list[Comparison]:
    """Compare copies of 1 GiB with those of pinned memory."""
    host = np.random.default_rng(0).random(GIB // 4, np.float32)
    out = np.empty_like(host)
    pinned, there = pinned_by_torch(GIB // 4), torch.from_numpy(host).cuda()
    array, of_cupy, of_torch = cukern.asarray(host), cupy.asarray(host), torch.from_numpy(out)
    assert np.array_equal(cukern.asnumpy(array), host)
    up = {
        "cukern.asarray": waited(lambda: cukern.asarray(host)),
        "pinned": waited(lambda: there.copy_(pinned, non_blocking=True)),
        "cupy.asarray": waited(lambda: cupy.asarray(host)),
        "torch": waited(lambda: torch.from_numpy(host).cuda()),
    }
    down: dict[str, Callable[[], Any]] = {
        "cukern.asnumpy": lambda: cukern.asnumpy(array, out=out),
        "pinned": waited(lambda: pinned.copy_(there, non_blocking=True)),
        "cupy.asnumpy": lambda: cupy.asnumpy(of_cupy, out=out),
        "torch": lambda: of_torch.copy_(there),
    }
    fresh: dict[str, Callable[[], Any]] = {
        "cukern.asnumpy": lambda: cukern.asnumpy(array),
        "pinned": down["pinned"],
        "cupy.asnumpy": lambda: cupy.asnumpy(of_cupy),
        "torch": lambda: there.cpu(),
    }
    return [
        rate_of("asarray, 1 GiB", up, {"pinned": 0.85}, GIB),
        rate_of("asnumpy with out=, 1 GiB", down, {"pinned": 0.85}, GIB),
        rate_of("asnumpy, fresh, 1 GiB", fresh, {"pinned": 0.85}, GIB),
    ]


def adds() -> list[Comparison]:
    """Compare adds of 2^28 elements: of ordinary arrays, of pinned ones, and what the link alone takes."""
    a, b = (np.random.default_rng(seed).random(COUNT, np.float32) for seed in range(2))
    out = np.empty_like(a)
    pinned = [pinned_by_torch(COUNT) for _ in range(3)]
    p, q, r = (tensor.numpy() for tensor in pinned)
    p[:], q[:] = a, b
    there = [torch.empty(COUNT, device="cuda") for _ in range(3)]
    streams = [torch.cuda.Stream() for _ in range(2)]

    def link() -> None:
        with torch.cuda.stream(streams[0]):
            there[0].copy_(pinned[0], non_blocking=True)
            there[1].copy_(pinned[1], non_blocking=True)
        with torch.cuda.stream(streams[1]):
            pinned[2].copy_(there[2], non_blocking=True)
        torch.cuda.synchronize()

    work = 12 * COUNT
    of_pinned = on_device(lambda: cukern.add(p, q, out=r))
    device = rate_of(
        "add on the device, 2^28 float32",
        {"cukern": on_device(lambda: cukern.add(a, b, out=out)), "all pinned": of_pinned},
        {"all pinned": 0.8},
        work,
    )
    assert np.array_equal(out, a + b)
    limit = rate_of(
        "add on the device, 2^28 float32, all pinned",
        {"cukern": of_pinned, "two uploads beside a download": link},
        {"two uploads beside a download": 0.9},
        work,
    )
    there.clear()
    host = rate_of(
        "add, 2^28 float32",
        {
            "cukern": lambda: cukern.add(a, b, out=out),
            "numpy": lambda: np.add(a, b, out=out),
            "CuPy round trip": lambda: cupy.asnumpy(cupy.asarray(a) + cupy.asarray(b), out=out),
        },
        {"numpy": 8.0, "CuPy round trip": 10.0},
        work,
    )
    return [device, limit, host]


def products() -> list[Comparison]:
    """Compare products of matrices of the host."""
    results = []
    for n, bound in ((16, None), (2048, 1.0), (4096, 3.2), (8192, 4.5)):
        rng = np.random.default_rng(0)
        a, b = (rng.random((n, n), np.float32) for _ in range(2))
        contestants: dict[str, Callable[[], Any]] = {"cukern.matmul": lambda a=a, b=b: cukern.matmul(a, b)}
        if bound is None:
            contestants["numpy.matmul"] = lambda a=a, b=b: np.matmul(a, b)
        else:
            contestants["CuPy round trip"] = cupy_round_trip(cupy.matmul, a, b)
        results.append(
            compare(
                f"matmul, {n} float32",
                contestants,
                kind="host",
                work=2.0 * n**3,
                unit="us",
                repeat=1 if n > 16 else 1000,
                bounds={"numpy.matmul": 1.0} if bound is None else {"CuPy round trip": bound},
            )
        )
    return results


def run() -> list[Comparison]:
    """Run all comparisons of this file."""
    return [*copies(), *adds(), *products()]
