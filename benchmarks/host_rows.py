"""The host back-end's speed beside NumPy's: ``python benchmarks/host_rows.py [--count N] [--threads N]``.

Each row of the table and each reduction, for seven element types, on packed random data with ``out=``: the median of
seven alternated rounds. It needs no GPU. Writes results/host_rows.json, and prints geometric means and the slowest.
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

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "scripts")]
TYPES = ["float32", "float64", "int64", "int32", "int8", "bool", "complex64"]
ROUNDS = 7
SECONDS = 1e-3  # of NumPy, a round


def cases(count: int) -> Iterator[tuple[str, str, Callable[[], Any], Callable[[], Any]]]:
    """Yield what is called, the element type, our call and NumPy's; both give one element type and shape."""
    import numpy as np
    from survey_peers import OLD_NAMES

    import cukern
    from cukern import _cukern

    rng = np.random.default_rng(0)
    for row in _cukern._table:
        name, kind = row["name"], row["kind"]
        own, theirs = getattr(cukern, name), getattr(np, OLD_NAMES.get(name, name), None)
        if kind not in ("unary", "binary", "reduction") or name in ("real", "imag"):  # which are views in NumPy
            continue
        for dtype in TYPES:
            scale = 8 if dtype.startswith(("float", "complex")) else 1
            numbers = rng.integers(1, 20, count) / (30 * scale if name in ("asin", "acos", "atanh") else scale)
            x, y = (np.asarray(part).astype(dtype) for part in (numbers, rng.integers(1, 6, count)))
            shapes: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [("", (x, y)[: 1 + (kind == "binary")], {})]
            if kind == "reduction":
                side = math.isqrt(count)
                table = x[: side * side].reshape(side, side)
                if name == "any":
                    table = np.zeros_like(table)
                shapes = [(f", axis {axis}", (table,), {"axis": axis}) for axis in (None, 0, 1)]
            for text, args, options in shapes:
                try:
                    a, b = np.asarray(own(*args, **options)), np.asarray(theirs(*args, **options))
                except (TypeError, ValueError):
                    continue
                if a.dtype != b.dtype:
                    continue
                yield (
                    name + text,
                    dtype,
                    lambda own=own, args=args, options=options, a=a: own(*args, out=a, **options),
                    lambda theirs=theirs, args=args, options=options, b=b: theirs(*args, out=b, **options),
                )


def seconds_of(call: Callable[[], Any], repeat: int) -> float:
    """Return the time of one call."""
    begin = time.perf_counter()
    for _ in range(repeat):
        call()
    return (time.perf_counter() - begin) / repeat


def mean_of(ratios: list[float]) -> float:
    """Return the geometric mean."""
    return math.exp(statistics.fmean(map(math.log, ratios)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    os.environ |= {"CUKERN_NUM_THREADS": str(options.threads), "CUKERN_BACKEND": "host"}
    import numpy as np
    from source_id import source_id

    results = []
    with np.errstate(all="ignore"):
        for name, dtype, own, theirs in cases(options.count):
            repeat = max(1, int(SECONDS / max(seconds_of(theirs, 2), 1e-7)))
            pairs = [(seconds_of(theirs, repeat), seconds_of(own, repeat)) for _ in range(ROUNDS)]
            ratio = statistics.median(numpys / ours for numpys, ours in pairs)
            results.append({"name": name, "type": dtype, "ratio": ratio, "seconds": min(ours for _, ours in pairs)})
    path = HERE / "results/host_rows.json"
    head = {"sources": source_id(), "numpy": np.__version__, "cores": len(os.sched_getaffinity(0))}
    path.write_text(json.dumps({**head, **vars(options), "results": results}, indent=1) + "\n")
    print(f"NumPy's time over ours, {options.count} elements, {options.threads} thread(s)")
    for text, chosen in [
        ("elementwise", [each for each in results if ", axis" not in each["name"]]),
        ("reductions", [each for each in results if ", axis" in each["name"]]),
    ]:
        ratios = [each["ratio"] for each in chosen]
        print(f"{text}: {len(ratios)}, geometric mean {mean_of(ratios):.3f}, below 0.9: {sum(r < 0.9 for r in ratios)}")
        for each in sorted(chosen, key=lambda each: each["ratio"])[:12]:
            print(f"  {each['ratio']:.2f} {each['name']} of {each['type']}, {each['seconds'] * 1e6:.1f} us")


if __name__ == "__main__":
    main()
