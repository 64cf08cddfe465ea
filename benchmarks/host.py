"""Time of whole calls on NumPy arrays, against round trips by CuPy and torch, and NumPy itself."""

from __future__ import annotations

import cupy
import numpy as np
import torch
from harness import Comparison, compare

import cukern


def cupy_round_trip(function, *arrays: np.ndarray):
    """Return a call that uploads, computes and downloads with CuPy."""
    return lambda: cupy.asnumpy(function(*(cupy.asarray(array) for array in arrays)))


def torch_round_trip(function, *arrays: np.ndarray):
    """Return a call that uploads, computes and downloads with torch."""
    return lambda: function(*(torch.from_numpy(array).cuda() for array in arrays)).cpu()


def adds() -> list[Comparison]:
    """Compare adds of small and large arrays."""
    results = []
    for n, repeat in ((1024, 200), (16384, 200), (65536, 100), (1 << 20, 20), (1 << 24, 3)):
        a, b = (np.random.default_rng(0).random(n, np.float32) for _ in range(2))
        assert np.array_equal(cukern.add(a, b), a + b)
        results.append(
            compare(
                f"host add, {n} float32",
                {
                    "cukern.add": lambda a=a, b=b: cukern.add(a, b),
                    "CuPy round trip": cupy_round_trip(cupy.add, a, b),
                    "torch round trip": torch_round_trip(torch.add, a, b),
                    "numpy.add": lambda a=a, b=b: np.add(a, b),
                },
                kind="host",
                work=12.0 * n,
                unit="us",
                repeat=repeat,
                bounds={"CuPy round trip": 2.0} if n == 1024 else {},
            )
        )
    return results


def products() -> list[Comparison]:
    """Compare products of host matrices."""
    results = []
    for n in (64, 256, 2048):
        rng = np.random.default_rng(0)
        a, b = (rng.random((n, n), np.float32) for _ in range(2))
        results.append(
            compare(
                f"host matmul, {n} float32",
                {
                    "cukern.matmul": lambda a=a, b=b: cukern.matmul(a, b),
                    "CuPy round trip": cupy_round_trip(cupy.matmul, a, b),
                    "torch round trip": torch_round_trip(torch.matmul, a, b),
                    "numpy.matmul": lambda a=a, b=b: np.matmul(a, b),
                },
                kind="host",
                work=2.0 * n**3,
                unit="us",
                repeat=max(3, 5000 // n),
            )
        )
    return results


def run() -> list[Comparison]:
    """Run all comparisons of this file."""
    return [*adds(), *products()]
