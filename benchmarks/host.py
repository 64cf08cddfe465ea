"""Time of whole calls on NumPy arrays, against round trips by CuPy and torch, and NumPy itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

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


HOST_ADD = """
import dataclasses, json, sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from harness import compare
import cukern

n = 1 << 26
a, b = (np.random.default_rng(0).random(n, np.float32) for _ in range(2))
out = np.empty_like(a)
assert np.array_equal(cukern.add(a, b, out=out), a + b)
result = compare(
    sys.argv[2],
    {"cukern.add": lambda: cukern.add(a, b, out=out), "numpy.add": lambda: np.add(a, b, out=out)},
    kind="host", work=12.0 * n, unit="GB/s", repeat=3, bounds={"numpy.add": float(sys.argv[3])},
)
print(json.dumps(dataclasses.asdict(result)))
"""


def host_backend(threads: int, bound: float) -> Comparison:
    """Compare the host back-end's add with NumPy's, in a process of its own."""
    name = f"host back-end add, 2^26 float32, {threads} threads"
    environment = {**os.environ, "CUKERN_BACKEND": "host", "CUKERN_NUM_THREADS": str(threads)}
    command = [sys.executable, "-c", HOST_ADD, str(Path(__file__).parent), name, str(bound)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    return Comparison(**json.loads(done.stdout))


def run() -> list[Comparison]:
    """Run all comparisons of this file."""
    cores = len(os.sched_getaffinity(0))
    return [*adds(), *products(), host_backend(1, 0.95), host_backend(cores, 5.0 if cores >= 16 else 0.95)]
