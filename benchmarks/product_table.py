"""Which products `matmul` takes to kernels of its own: makes cuda/src/operations/own_products.inc, on a GPU.

    python benchmarks/product_table.py [--check]

For an element type and each pair of sides, powers of two from 1 to 1024, the longest sum is looked for whose product
takes no longer by `matmul_tiled` than by cuBLAS: calls in a row, so that it is the host's time where that is longer. It
is found by halving, since the longer the sum is, the less a call costs beside it. `--check` measures shapes between
those of the table, and prints how much longer the slower choice would have taken.
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
SIDES = 11
DEPTHS = 14
CALLS = 40


def times(m: int, n: int, k: int, dtype: torch.dtype, kernels: tuple[str, ...]) -> list[float]:
    """Return the seconds of a call by each of the kernels, medians of five alternated rounds."""
    a, b = torch.randn((m, k), device="cuda", dtype=dtype), torch.randn((k, n), device="cuda", dtype=dtype)
    out = torch.empty((m, n), device="cuda", dtype=dtype)
    rounds = [
        [device_seconds(lambda kernel=kernel: cukern.matmul(a, b, out=out, kernel=kernel), CALLS) for kernel in kernels]  # type: ignore[misc]
        for _ in range(6)
    ]
    return [statistics.median(column) for column in zip(*rounds[1:], strict=True)]


def ratio(m: int, n: int, k: int, dtype: torch.dtype) -> float:
    """Return how many times as long cuBLAS takes as kernels of our own."""
    own, library = times(m, n, k, dtype, ("tiled", "cublas"))
    return library / own


def longest(m: int, n: int, dtype: torch.dtype) -> int:
    """Return the logarithm of the longest sum that kernels of our own take, or -1."""
    low, high = -1, DEPTHS  # what they take, and what they don't
    while high - low > 1:
        middle = (low + high) // 2
        if ratio(m, n, 1 << middle, dtype) >= 1:
            low = middle
        else:
            high = middle
    return low


def make() -> str:
    """Return the table."""
    lines = ["// Made by benchmarks/product_table.py on an " + torch.cuda.get_device_name() + "."]
    for name, dtype in TYPES.items():
        rows = [[longest(1 << m, 1 << n, dtype) for n in range(SIDES)] for m in range(SIDES)]
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
            m, n, k = (int(2 ** choose.uniform(0, top)) for top in (10, 10, 12))
            auto, own, library = times(m, n, k, dtype, ("auto", "tiled", "cublas"))
            worst.append((auto / min(own, library), (m, n, k)))
        worst.sort(reverse=True)
        mean = statistics.geometric_mean(loss for loss, _ in worst)
        print(f"{name}: auto takes {mean:.3f} of the better one's time; most: {worst[:4]}")


def main() -> None:
    """Make the table, or check the one that is built in."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    assert cukern.backend() == "cuda"
    if parser.parse_args().check:
        check()
    else:
        TARGET.write_text(make())


if __name__ == "__main__":
    main()
