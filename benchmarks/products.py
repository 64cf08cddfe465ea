"""Products of every type, form and batch beside torch's, and cukern's own kernel beside cuBLAS."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import torch
from harness import Comparison, compare
from source_id import source_id

import cukern

TYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "complex64": torch.complex64,
    "complex128": torch.complex128,
}
SIDES = [1024, 2048, 4096, 8192, 16384]
BATCHES = [(16, 1024), (4, 4096)]
# (M, N, K)
SHAPES = [
    *((n, n, n) for n in (1024, 1536, 2048, 3072, 4096, 6144, 8192, 1000, 1023, 2049, 3000, 4095)),
    (128, 8192, 8192),
    (8192, 128, 8192),
    (8192, 8192, 128),
    (64, 4096, 4096),
    (16384, 256, 1024),
    (256, 16384, 1024),
    (512, 512, 65536),
    (5000, 3000, 777),
]
DRAWN = 30  # shapes, from 1 to 8192 a side


def flops(m: int, n: int, k: int, dtype: torch.dtype) -> float:
    """Return the operations of a product: a complex one has four times those of a real one."""
    return (8.0 if dtype.is_complex else 2.0) * m * n * k


def repeats(operations: float, dtype: torch.dtype) -> int:
    """Return how many calls take some 20 ms, at 20 TFLOP/s, or 400 of 16-bit types; small ones fewer."""
    rate, most = (400e12, 250) if dtype in (torch.float16, torch.bfloat16) else (20e12, 50)
    return max(1, min(most, int(0.02 * rate / operations)))


def random_tensor(shape: tuple[int, ...], dtype: torch.dtype, transposed: bool = False) -> torch.Tensor:
    """Return normal values, in memory of the transposed shape where that is asked for."""
    if not transposed:
        return torch.randn(shape, device="cuda", dtype=dtype)
    return torch.randn((*shape[:-2], shape[-1], shape[-2]), device="cuda", dtype=dtype).mT


def check(out: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
    """Compare a few rows with a wider type, by the relative Frobenius error."""
    wide = torch.complex128 if a.dtype.is_complex else torch.float64
    wanted = a[..., :4, :].to(wide) @ b.to(wide)
    error = float(torch.linalg.vector_norm(out[..., :4, :].to(wide) - wanted) / torch.linalg.vector_norm(wanted))
    real = torch.finfo(a.dtype).eps
    assert error < 100 * real, f"relative error {error}"


def beside_torch() -> Iterator[Comparison]:
    """Compare products by cuBLAS with torch's, over sides, types, transposed forms and batches."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    for name, dtype in TYPES.items():
        forms = [((n, n), form) for n in SIDES for form in ("NN", "TN", "NT", "TT")]
        for shape, form in [*forms, *(((batch, n, n), "NN") for batch, n in BATCHES)]:
            a, b = (random_tensor(shape, dtype, letter == "T") for letter in form)
            out = torch.empty(shape, device="cuda", dtype=dtype)
            cukern.matmul(a, b, out=out)
            check(out, a, b)
            peer = torch.bmm if len(shape) == 3 else torch.mm
            operations = math.prod(shape[:-2]) * flops(shape[-1], shape[-1], shape[-1], dtype)
            yield compare(
                f"{name}, {' x '.join(map(str, shape))}, {form}",
                {
                    "cukern.matmul": lambda a=a, b=b, out=out: cukern.matmul(a, b, out=out),
                    f"torch.{peer.__name__}": lambda a=a, b=b, out=out, peer=peer: peer(a, b, out=out),
                },
                kind="device",
                work=operations,
                unit="TFLOP/s",
                repeat=repeats(operations, dtype),
                bounds={f"torch.{peer.__name__}": 1.0},
            )
            del a, b, out


def small_batches() -> Iterator[Comparison]:
    """Compare 1000 products of 64 x 64."""
    for name in ("float32", "float64", "bfloat16"):
        a, b, out = (random_tensor((1000, 64, 64), TYPES[name]) for _ in range(3))
        cukern.matmul(a, b, out=out)
        check(out, a, b)
        yield compare(
            f"{name}, 1000 x 64 x 64",
            {
                "cukern.matmul": lambda a=a, b=b, out=out: cukern.matmul(a, b, out=out),
                "torch.bmm": lambda a=a, b=b, out=out: torch.bmm(a, b, out=out),
            },
            kind="device",
            work=1000 * 2.0 * 64**3,
            unit="TFLOP/s",
            repeat=50,
            bounds={"torch.bmm": 1.0},
        )


def beside_cublas(shapes: list[tuple[int, int, int]], dtype: torch.dtype, bound: Callable[..., float | None]) -> Any:
    """Compare cukern's own kernel with cuBLAS over shapes."""
    for m, n, k in shapes:
        a, b = random_tensor((m, k), dtype), random_tensor((k, n), dtype)
        out = torch.empty((m, n), device="cuda", dtype=dtype)
        cukern.matmul_tiled(a, b, out=out)
        check(out, a, b)
        least = bound(m, n, k)
        yield compare(
            f"matmul_tiled {str(dtype)[6:]}, {m} x {n} x {k}",
            {
                "cukern.matmul_tiled": lambda a=a, b=b, out=out: cukern.matmul_tiled(a, b, out=out),
                "cukern.matmul_cublas": lambda a=a, b=b, out=out: cukern.matmul_cublas(a, b, out=out),
            },
            kind="device",
            work=flops(m, n, k, dtype),
            unit="TFLOP/s",
            repeat=repeats(flops(m, n, k, dtype), dtype),
            bounds={} if least is None else {"cukern.matmul_cublas": least},
        )


def drawn_shapes() -> list[tuple[int, int, int]]:
    """Return shapes by the sources' hash, small ones as often as large ones, vectors among them."""
    choose = random.Random(f"products {source_id()}")
    return [tuple(1 if choose.random() < 0.1 else int(8192 ** choose.random()) for _ in range(3)) for _ in range(DRAWN)]  # type: ignore[misc]


def run() -> list[Comparison]:
    """Run all comparisons of this file."""
    assert cukern.backend() == "cuda"
    tiled = list(beside_cublas(SHAPES, torch.float32, lambda m, n, k: 0.95 if m == n == k in (4096, 8192) else None))
    mean = statistics.geometric_mean(result.ratio("cukern.matmul_cublas") for result in tiled)
    print(
        f"matmul_tiled over {len(tiled)} shapes: {mean:.3f} of cuBLAS in the geometric mean (0.85 aimed at)", flush=True
    )
    drawn = list(beside_cublas(drawn_shapes(), torch.float32, lambda m, n, k: 0.5))
    return [*beside_torch(), *small_batches(), *tiled, *drawn]
