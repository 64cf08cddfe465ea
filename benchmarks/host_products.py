"""Products of host memory beside torch's round trip: upload, multiply, download."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import torch
from harness import Comparison, compare

import cukern

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
CASES = [
    ("bfloat16, 4096 x 4096", BFLOAT16, (4096, 4096)),
    ("bfloat16, 8192 x 8192", BFLOAT16, (8192, 8192)),
    ("complex64, 4096 x 4096", np.dtype(np.complex64), (4096, 4096)),
    ("complex64, 8192 x 8192", np.dtype(np.complex64), (8192, 8192)),
    ("float32, 1000 x 512 x 512", np.dtype(np.float32), (1000, 512, 512)),
    ("bfloat16, 1000 x 512 x 512", BFLOAT16, (1000, 512, 512)),
]


def random_array(shape: tuple[int, ...], dtype: np.dtype[Any], seed: int) -> np.ndarray:
    """Return normal values."""
    generator = np.random.default_rng(seed)
    values = generator.standard_normal(shape, np.float32)
    if dtype.kind == "c":
        return values + 1j * generator.standard_normal(shape, np.float32)
    return values.astype(dtype)


def as_torch(array: np.ndarray) -> torch.Tensor:
    """Return the same memory as a tensor; torch does not take bfloat16 from NumPy."""
    if array.dtype == BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def round_trip(a: torch.Tensor, b: torch.Tensor) -> Callable[[], Any]:
    """Return a call that uploads, multiplies and downloads with torch."""
    return lambda: torch.matmul(a.cuda(), b.cuda()).cpu()


def check(out: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """Compare a few rows with a wider type, by the relative Frobenius error."""
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    first = (0,) * (a.ndim - 2)
    wanted = a[first][:4].astype(wide) @ b[first].astype(wide)
    error = float(np.linalg.norm(out[first][:4].astype(wide) - wanted) / np.linalg.norm(wanted))
    assert error < 100 * float(ml_dtypes.finfo(a.dtype).eps), f"relative error {error}"


def run() -> list[Comparison]:
    """Run all comparisons of this file."""
    assert cukern.backend() == "cuda"
    torch.backends.cuda.matmul.allow_tf32 = False
    results = []
    for name, dtype, shape in CASES:
        a, b = (random_array(shape, dtype, seed) for seed in range(2))
        check(np.asarray(cukern.matmul(a, b)), a, b)
        results.append(
            compare(
                name,
                {
                    "cukern.matmul": lambda a=a, b=b: cukern.matmul(a, b),
                    "torch round trip": round_trip(as_torch(a), as_torch(b)),
                },
                kind="host",
                work=(8.0 if dtype.kind == "c" else 2.0) * float(np.prod(shape)) * shape[-1],
                unit="TFLOP/s",
                repeat=1,
                bounds={"torch round trip": 1.5},
            )
        )
    return results
