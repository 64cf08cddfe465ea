"""Which products `matmul` takes to kernels of its own: makes cuda/src/operations/own_products.inc, on a GPU.

    python benchmarks/product_table.py [--output FILE] [--check]

For an element type and each pair of sides, powers of two from 1 to 16384, the longest sum is looked for whose product
takes no longer by `matmul_tiled` than by cuBLAS: calls in a row, so that it is the host's time where that is longer.
The longer the sum is, the less a call costs beside it; the search begins with what the next smaller sides have.
`--check` measures shapes between those of the table, and prints how much longer the slower choice would have taken.
"""

from __future__ import annotations

import argparse
import random
import statistics
from pathlib import Path

import torch
from harness import device_seconds

import cukern

TARGET = Path(__file__).resolve().parent.parent / "cuda/src/operations/own_products.inc"
TYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "complex64": torch.complex64,
    "complex128": torch.complex128,
}
SIDES = 15
DEPTHS = 14
CALLS = 40
ROUND = 1e-3  # seconds that a round takes, where CALLS would take longer
MOST = 1 << 33  # multiplications of a product that is measured: beyond it cuBLAS is taken


def times(m: int, n: int, k: int, dtype: torch.dtype, kernels: tuple[str, ...]) -> list[float]:
    """Return the seconds of a call by each of the kernels, medians of five alternated rounds."""
    a, b = torch.randn((m, k), device="cuda", dtype=dtype), torch.randn((k, n), device="cuda", dtype=dtype)
    out = torch.empty((m, n), device="cuda", dtype=dtype)

    def seconds(kernel: str, calls: int) -> float:
        return device_seconds(lambda: cukern.matmul(a, b, out=out, kernel=kernel), calls)  # type: ignore[arg-type]

    for kernel in kernels:
        seconds(kernel, 3)  # with what is made once
    first = max(seconds(kernel, 3) for kernel in kernels)
    calls = max(3, min(CALLS, int(ROUND / first)))
    rounds = [[seconds(kernel, calls) for kernel in kernels] for _ in range(5)]
    return [statistics.median(column) for column in zip(*rounds, strict=True)]


def ratio(m: int, n: int, k: int, dtype: torch.dtype) -> float:
    """Return how many times as long cuBLAS takes as kernels of our own."""
    own, library = times(m, n, k, dtype, ("tiled", "cublas"))
    return library / own


def longest(m: int, n: int, dtype: torch.dtype, guess: int) -> int:
    """Return the logarithm of the longest sum that kernels of our own take, or -1."""
    known = {-1: True, DEPTHS: False}

    def takes(k: int) -> bool:
        if k not in known:
            known[k] = m * n << k <= MOST and ratio(m, n, 1 << k, dtype) >= 1
        return known[k]

    while takes(guess) and takes(guess + 1):
        guess += 1
    while not takes(guess):
        guess -= 1
    return guess


def make() -> str:
    """Return the table."""
    lines = ["// Made by benchmarks/product_table.py on an " + torch.cuda.get_device_name() + "."]
    for name, dtype in TYPES.items():
        rows: list[list[int]] = []
        for m in range(SIDES):
            rows.append([])
            for n in range(SIDES):
                guess = rows[m][n - 1] if n > 0 else rows[m - 1][0] if m > 0 else DEPTHS - 1
                rows[m].append(longest(1 << m, 1 << n, dtype, guess))
        print(name, *rows, sep="\n", flush=True)
        body = ",\n  ".join("{" + ", ".join(f"{k:2}" for k in row) + "}" for row in rows)
        lines.append(f"{{ElementType::{name},\n {{{body}}}}},")
    return "\n".join(lines) + "\n"


def check(cases: int = 60) -> None:
    """Print how much longer a product takes as `auto` than by the better of the two."""
    choose = random.Random(cases)
    for name, dtype in TYPES.items():
        worst = []
        for _ in range(cases):
            m, n, k = (int(2 ** choose.uniform(0, top)) for top in (13, 13, 12))
            auto, own, library = times(m, n, k, dtype, ("auto", "tiled", "cublas"))
            worst.append((auto / min(own, library), (m, n, k)))
        worst.sort(reverse=True)
        mean = statistics.geometric_mean(loss for loss, _ in worst)
        print(f"{name}: auto takes {mean:.3f} of the better one's time; most: {worst[:4]}")


def main() -> None:
    """Make the table, or check the one that is built in."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--output", type=Path, default=TARGET)
    arguments = parser.parse_args()
    assert cukern.backend() == "cuda"
    if arguments.check:
        check()
    else:
        arguments.output.write_text(make())


if __name__ == "__main__":
    main()
