#!/usr/bin/env python3
"""Prints the largest error of each float32 function, in units in the last place, against float64.

    python scripts/float32_errors.py                       all 2**32 arguments, or as many pairs, through cukern
    python scripts/float32_errors.py --formulas            those of float_math.cuh alone, compiled for the host
    python scripts/float32_errors.py --every 1000 tan pow  some arguments; these functions

On a GPU it takes some minutes, and on the host some hours.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from float_tools import compile_float_math, errors, exact_result, pairs  # noqa: E402

UNARY = ["sqrt", "exp", "expm1", "log", "log1p", "log2", "log10", "sin", "cos", "tan", "asin", "acos", "atan"]
UNARY += ["sinh", "cosh", "tanh", "asinh", "acosh", "atanh"]
BINARY = ["hypot", "atan2", "pow", "logaddexp"]
FORMULAS = ["tan", "sinh", "asinh", "acosh", "atanh", *BINARY]
CHUNK = 1 << 22


@functools.cache
def formulas() -> Callable[..., np.ndarray]:
    """Compile the formulas once a process."""
    with tempfile.TemporaryDirectory() as folder:
        return compile_float_math(Path(folder))


def worst_of(name: str, first: int, step: int, on_host: bool) -> tuple[float, list[float]]:
    """Return the largest error of a chunk of arguments, and where it is. `first`: bits, or of pairs a seed."""
    if name in BINARY:
        operands = pairs(np.random.default_rng(first), CHUNK)
    else:
        operands = ((first + step * np.arange(CHUNK, dtype=np.uint64)).astype(np.uint32).view(np.float32),)
    if on_host:
        xp: Any = np
        arrays: tuple[Any, ...] = operands
        got = formulas()(name, *operands)
    else:
        import cukern

        xp = cukern
        arrays = tuple(map(cukern.asarray, operands))
        got = getattr(cukern, name)(*arrays)
    with np.errstate(all="ignore"):
        error = errors(xp, name, got, exact_result(xp, name, *arrays), *arrays)
    worst = int(xp.argmax(error))
    return float(error[worst]), [float(x[worst]) for x in operands]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="FUNCTION")
    parser.add_argument("--every", type=int, default=1, help="take one argument of so many")
    parser.add_argument("--formulas", action="store_true")
    options = parser.parse_args()
    names = options.names or (FORMULAS if options.formulas else UNARY + BINARY)

    def chunks(name: str) -> Iterator[tuple[str, int, int, bool]]:
        for first in range(0, 2**32, CHUNK * options.every):
            yield name, first, options.every, options.formulas

    workers = len(os.sched_getaffinity(0)) if options.formulas else 4
    with ProcessPoolExecutor(workers) as pool:
        print("| function | largest error | at |\n|---|---|---|")
        for name in names:
            results = pool.map(worst_of, *zip(*chunks(name), strict=True))
            error, where = max(results, key=lambda result: result[0])
            print(f"| `{name}` | {error:.3f} | {', '.join(f'{x:.9g}' for x in where)} |", flush=True)


if __name__ == "__main__":
    main()
