"""How near `auto` comes to the better side: a grid of calls placed on either side and by `auto`, and by NumPy.

    python benchmarks/placement_check.py     on a machine with a GPU: writes results/placement.json

Each number of threads is a process of its own. Times are medians of seven alternated rounds. What takes more than
`NEAR` times as long as the better side is measured again by three times as many, and the first ratio is kept beside
that: most of it is the very call of the side that was chosen, beside other work on the machine.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from placement_model import ROUNDS, THREADS, in_process

HERE = Path(__file__).resolve().parent
CHECK = HERE / "results/placement.json"
TYPES = ("float32", "float64")
NEAR = 1.15
BLAS_AWAKE = 0.05  # seconds that threads of a BLAS stay awake after a product, at the cost of whoever comes next


def grid() -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    """Yield what is checked: a name, a function, its arrays."""
    import numpy as np

    import cukern

    rng = np.random.default_rng(1)
    for count in (1000, 30_000, 10**6, 10**7):
        for dtype in TYPES:
            x, y = (rng.random(count).astype(dtype) for _ in range(2))
            for name in ("add", "tanh", "pow", "sqrt"):
                args = (x,) if name in ("tanh", "sqrt") else (x, y)
                yield f"{name} {dtype} {count}", getattr(cukern, name), args
            for name in ("sum", "max", "std"):
                yield f"{name} {dtype} {count}", getattr(cukern, name), (x,)
    squares = [(side, rng.random((side, side)).astype(dtype)) for side in (100, 1000, 4000) for dtype in TYPES]
    for side, a in squares:
        yield f"transposed add {a.dtype} {side}", cukern.add, (a, a.T)
    for side, a in squares:
        yield f"matmul {a.dtype} {side}", cukern.matmul, (a, a)


def times_of(name: str, function: Callable[..., Any], args: tuple[Any, ...], rounds: int) -> dict[str, float]:
    """Return the median times of a call by NumPy, on either side, and by `auto`, in alternated rounds."""
    import numpy as np

    import cukern

    out = function(*args)
    own_name = name.removeprefix("transposed ").split()[0]
    numpys = getattr(np, {"pow": "power"}.get(own_name, own_name))
    times: dict[str, list[float]] = {"numpy": [], "host": [], "device": [], "auto": []}
    repeat, worst = 1, 0.0
    for turn in range(rounds + 1):
        # By turns in the other order: what ran before has left other memory in the caches.
        for where, seen in list(times.items())[:: 1 if turn % 2 == 0 else -1]:
            if own_name == "matmul":
                time.sleep(BLAS_AWAKE)
            call = numpys if where == "numpy" else function
            with cukern.placement("auto" if where == "numpy" else where):
                for _ in range(2 if worst < 5e-3 else 0):
                    call(*args, out=out)
                begin = time.perf_counter()
                for _ in range(repeat):
                    call(*args, out=out)
                seen.append((time.perf_counter() - begin) / repeat)
        if turn == 0:  # warms up
            worst = max(seen[0] for seen in times.values())
            repeat = max(1, int(5e-4 / worst))
            times = {where: [] for where in times}
    return {where: statistics.median(seen) for where, seen in times.items()}


def over_better(times: dict[str, float]) -> float:
    """Return how many times as long as the better side `auto` takes."""
    return times["auto"] / min(times["host"], times["device"])


def check_part() -> list[dict[str, Any]]:
    """Return the times of the grid, of what is not near the better side those of a second look."""
    import cukern

    found = []
    for name, function, args in grid():
        times = times_of(name, function, args, ROUNDS)
        first = over_better(times)
        if first > NEAR:
            times = times_of(name, function, args, 3 * ROUNDS)
        told = cukern.explain_placement(function, *args)
        entry = {"name": name, "placed": told["placement"], "told": [told["host"], told["device"]], "first": first}
        found.append(entry | times)
    return found


def check() -> None:
    """Write how much slower `auto` is than the better side."""
    sys.path.append(str(HERE.parent / "scripts"))
    from source_id import source_id

    most = len(os.sched_getaffinity(0))
    result = {str(n): in_process(__file__, "--part", n) for n in THREADS if n <= most}
    worst = []
    for threads, cases in result.items():
        ratios = [over_better(case) for case in cases]
        again = sum(case["first"] > NEAR for case in cases)
        slower = [case["auto"] / case["numpy"] for case in cases]
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        print(f"{threads} threads: auto over the better side: mean {mean:.3f}, most {max(ratios):.2f}; ", end="")
        print(f"{again} measured again; ", end="")
        print(f"over NumPy: most {max(slower):.2f} ({cases[slower.index(max(slower))]['name']})")
        for ratio, case in sorted(zip(ratios, cases, strict=True), key=lambda pair: -pair[0])[:8]:
            host, device = case["told"]
            print(
                f"  {ratio:.2f} {case['name']}: {case['placed']}; host {case['host'] * 1e6:.1f} us (told "
                f"{host * 1e6:.1f}), device {case['device'] * 1e6:.1f} (told {device * 1e6:.1f})"
            )
        worst.append(max(ratios))
    CHECK.write_text(json.dumps({"sources": source_id(), "worst": max(worst), "threads": result}, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="store_true", help="print the times of one number of threads")
    if parser.parse_args().part:
        print(json.dumps(check_part()))
    else:
        check()


if __name__ == "__main__":
    main()
