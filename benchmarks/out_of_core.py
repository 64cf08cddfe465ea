"""A product of matrices that the GPU does not hold: ``python benchmarks/out_of_core.py [--side N]``.

A, B and the result have 32 GiB each by default; cukern may take 16 GiB of the device and 4 GiB of pinned memory. The
rate is set beside that of one product of cuBLAS whose matrices are on the device, of 32,768 rows. A thousand random
entries are compared with float64: their error, beside the sum of |a| |b|, may be 1.5 times the largest of as many
entries of the product in core. Writes results/out_of_core.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "scripts")]
ENTRIES = 1000


def random_matrix(side: int, seed: int) -> np.ndarray:
    """Return a square matrix of numbers between 0 and 1, made by all threads."""
    matrix = np.empty((side, side), np.float32)
    step = 1024

    def fill(row: int) -> None:
        part = matrix[row : row + step]
        np.random.default_rng((seed, row)).random(dtype=np.float32, out=part)

    with ThreadPoolExecutor() as pool:
        list(pool.map(fill, range(0, side, step)))
    matrix -= np.float32(0.5)
    return matrix


def largest_error(a: np.ndarray, b: np.ndarray, product: np.ndarray) -> float:
    """Return the largest error of random entries, relative to the sum of |a| |b|."""
    rows, columns = np.random.default_rng(7).integers(0, len(a), (2, ENTRIES))

    def error(place: tuple[int, int]) -> float:
        row, column = a[place[0]].astype(float), b[:, place[1]].astype(float)
        return abs(float(product[place]) - float(row @ column)) / float(np.abs(row) @ np.abs(column))

    with ThreadPoolExecutor() as pool:
        return max(pool.map(error, zip(rows, columns, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=92_681)
    options = parser.parse_args()
    from source_id import source_id

    import cukern
    from cukern import _cukern

    figures: dict[str, Any] = {"side": options.side, "gpu": _cukern._information()["devices"][0]["name"]}
    side = min(32_768, options.side)
    a, b = (random_matrix(side, seed) for seed in (1, 2))
    there = [cukern.asarray(matrix) for matrix in (a, b)]
    out = cukern.empty((side, side), "float32")
    times = []
    for _ in range(3):
        cukern.synchronize()
        begin = time.perf_counter()
        cukern.matmul(*there, out=out)
        cukern.synchronize()
        times.append(time.perf_counter() - begin)
    figures["in_core_tflops"] = 2e-12 * side**3 / sorted(times)[1]
    figures["in_core_error"] = largest_error(a, b, cukern.asnumpy(out))
    del a, b, there, out
    cukern.empty_cache()
    print(figures, flush=True)

    cukern.set_memory_limit(16 << 30)
    cukern.set_pinned_limit(4 << 30)
    a, b = (random_matrix(options.side, seed) for seed in (3, 4))
    product = np.empty((options.side, options.side), np.float32)
    with cukern.placement("device"):
        begin = time.perf_counter()
        cukern.matmul(a, b, out=product)
        figures["seconds"] = time.perf_counter() - begin
    figures["tflops"] = 2e-12 * options.side**3 / figures["seconds"]
    figures["ratio"] = figures["tflops"] / figures["in_core_tflops"]
    figures["error"] = largest_error(a, b, product)
    figures["cached_and_in_use"] = cukern.memory_info()["cached"] + cukern.memory_info()["in_use"]
    figures["holds"] = figures["ratio"] >= 0.85 and figures["error"] <= 1.5 * figures["in_core_error"]
    print(figures, flush=True)
    path = HERE / "results/out_of_core.json"
    path.write_text(json.dumps({"sources": source_id(), **figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
