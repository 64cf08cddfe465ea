"""Small products beside torch's and cuBLAS's, and products with a bias, an addend and an activation beside torch's."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from elementwise import graph_seconds
from harness import Comparison, compare, host_seconds
from products import TYPES, check, flops, random_tensor, repeats

import cukern

SMALL = [16, 17, 32, 64, 100, 128, 255, 256]


def small_products() -> Iterator[Comparison]:
    """Compare the host's time of small products with torch's, and the device's, in a replayed graph, with cuBLAS's."""
    for name in ("float32", "float64"):
        for n in SMALL:
            a, b, out = (random_tensor((n, n), TYPES[name]) for _ in range(3))
            ours = {"cukern.matmul": lambda a=a, b=b, out=out: cukern.matmul(a, b, out=out)}
            peers = {
                "call": {"torch.mm": lambda a=a, b=b, out=out: torch.mm(a, b, out=out)},
                "graph": {"cukern.matmul_cublas": lambda a=a, b=b, out=out: cukern.matmul_cublas(a, b, out=out)},
            }
            for kind, measure, bound in (("call", host_seconds, 2.0), ("graph", graph_seconds, 1.0)):
                yield compare(
                    f"{name}, {n}, {kind}",
                    {**ours, **peers[kind]},
                    kind=kind,
                    work=flops(n, n, n, TYPES[name]),
                    unit="us",
                    repeat=200,
                    bounds=dict.fromkeys(peers[kind], bound),
                    measure=measure,
                )
                torch.cuda.synchronize()


def epilogues() -> Iterator[Comparison]:
    """Compare products with what they end with: torch's are one call each, too, by cuBLASLt or cuBLAS."""
    torch.backends.cuda.matmul.allow_tf32 = False
    for name in ("float32", "bfloat16", "float16"):
        dtype = TYPES[name]
        for m, n, k in ((256, 256, 256), (1024, 1024, 1024), (4096, 4096, 4096), (8192, 1024, 4096)):
            a, b, c = random_tensor((m, k), dtype), random_tensor((k, n), dtype), random_tensor((m, n), dtype)
            bias, out = random_tensor((1, n), dtype)[0], torch.empty((m, n), device="cuda", dtype=dtype)
            cukern.matmul(a, b, out=out, alpha=1, bias=bias)
            check(out - bias if name == "float32" else cukern.matmul(a, b), a, b)
            cases = {
                "bias": (
                    lambda a=a, b=b, bias=bias, out=out: cukern.matmul(a, b, bias=bias, out=out),
                    lambda a=a, b=b, bias=bias, out=out: torch.addmm(bias, a, b, out=out),
                ),
                "bias and gelu": (
                    lambda a=a, b=b, bias=bias, out=out: cukern.matmul(a, b, bias=bias, activation="gelu", out=out),
                    lambda a=a, b=b, bias=bias, out=out: torch._addmm_activation(bias, a, b, use_gelu=True, out=out),
                ),
                "bias and relu": (
                    lambda a=a, b=b, bias=bias, out=out: cukern.matmul(a, b, bias=bias, activation="relu", out=out),
                    lambda a=a, b=b, bias=bias, out=out: torch._addmm_activation(bias, a, b, out=out),
                ),
                "2 * a @ b + c / 2": (
                    lambda a=a, b=b, c=c, out=out: cukern.matmul(a, b, alpha=2, c=c, beta=0.5, out=out),
                    lambda a=a, b=b, c=c, out=out: torch.addmm(c, a, b, alpha=2, beta=0.5, out=out),
                ),
            }
            for what, (own, theirs) in cases.items():
                yield compare(
                    f"{name}, {m} x {n} x {k}, {what}",
                    {"cukern.matmul": own, "torch": theirs},
                    kind="device",
                    work=flops(m, n, k, dtype),
                    unit="TFLOP/s",
                    repeat=repeats(flops(m, n, k, dtype), dtype),
                    bounds={} if what == "bias and relu" else {"torch": 1.0},
                )


def run() -> list[Comparison]:
    """Run all comparisons of this file."""
    assert cukern.backend() == "cuda"
    return [*small_products(), *epilogues()]
