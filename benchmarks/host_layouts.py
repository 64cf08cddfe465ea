"""The host back-end's speed beside NumPy's in layouts that nobody has chosen: ``python benchmarks/host_layouts.py``.

Random calls of the table: one or two operands, transposed, windows, every second element, reversed, rows and columns
that are repeated, numbers; results in C order, transposed or in every second place, by ``out=``; reductions over any
axis. 10^3 to 3*10^6 elements, one thread. The seed comes from the sources' hash, so that nobody can tune to it.
Each case is the median ratio of five alternated rounds. It needs no GPU. Writes
results/host_layouts.json, and prints the distribution and the slowest.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "scripts")]
TYPES = ["float32", "float64", "int32", "int64", "int8", "uint8", "int16", "complex64", "float16", "bool"]
LAYOUTS = ["C", "transposed", "window", "step", "reversed"]
REPEATED = ["row", "column", "number"]
ROUNDS = 5
SECONDS = 2e-4  # of NumPy, a round

Case = tuple[str, Callable[[], Any], Callable[[], Any]]


def operand(rng: Any, dtype: str, shape: tuple[int, int], layout: str) -> Any:
    """Return small numbers in a layout."""
    m, n = shape

    def made(*lengths: int) -> Any:
        return (rng.integers(1, 50, lengths) / (8 if dtype.startswith(("float", "complex")) else 1)).astype(dtype)

    match layout:
        case "transposed":
            return made(n, m).T
        case "window":
            return made(m, n + 7)[:, 3 : 3 + n]
        case "step":
            return made(m, 2 * n)[:, ::2]
        case "reversed":
            return made(m, n)[:, ::-1]
        case "row":
            return made(1, n)
        case "column":
            return made(m, 1)
        case "number":
            return 2.5 if dtype.startswith(("float", "complex")) else 3
    return made(m, n)


def result_like(wanted: Any, layout: str) -> Any:
    """Return memory for a result."""
    import numpy as np

    m, n = wanted.shape
    if layout == "transposed":
        return np.empty((n, m), wanted.dtype).T
    return np.empty((m, 2 * n), wanted.dtype)[:, ::2] if layout == "step" else np.empty((m, n), wanted.dtype)


def draw(choose: random.Random, rng: Any) -> Case | None:
    """Draw a call: its name, ours and NumPy's. None where one refuses it, or the results' types differ."""
    import numpy as np
    from survey_peers import OLD_NAMES

    import cukern
    from cukern import _cukern

    size = 10 ** choose.uniform(3, 6.5)
    m = max(1, int(size ** choose.uniform(0.05, 0.95)))
    shape = (m, max(1, int(size / m)))
    kind = choose.choices(["unary", "binary", "reduction"], [3, 4, 3])[0]
    rows = [row["name"] for row in _cukern._table if row["kind"] == kind and row["name"] not in ("real", "imag")]
    name = choose.choice(rows)
    own, theirs = getattr(cukern, name), getattr(np, OLD_NAMES.get(name, name))
    types = [choose.choice(TYPES)]
    layouts = [choose.choice(LAYOUTS)]
    options: dict[str, Any] = {}
    if kind == "binary":
        types.append(types[0] if choose.random() < 0.6 else choose.choice(TYPES))
        layouts.append(choose.choice(LAYOUTS + REPEATED))
    if kind == "reduction":
        options["axis"] = choose.choice([None, 0, 1])
    operands = [operand(rng, dtype, shape, layout) for dtype, layout in zip(types, layouts, strict=True)]
    try:
        wanted = np.asarray(theirs(*operands, **options))
        if np.asarray(own(*operands, **options)).dtype != wanted.dtype:
            return None
    except (TypeError, ValueError):
        return None
    text = f"{name} of {', '.join(types)}, {shape[0]} x {shape[1]}, {', '.join(layouts)}"
    if kind == "reduction":
        text += f", axis {options['axis']}"
    else:
        layout = choose.choices(["C", "transposed", "step"], [8, 1, 1])[0]
        options["out"] = result_like(wanted, layout)
        text += f", out {layout}"
    return text, lambda: own(*operands, **options), lambda: theirs(*operands, **options)


def measure(case: Case) -> dict[str, Any]:
    """Return the ratio and both times."""
    from host_rows import seconds_of

    name, own, theirs = case
    repeat = max(1, int(SECONDS / max(seconds_of(theirs, 1), seconds_of(theirs, 1), 1e-7)))
    pairs = [(seconds_of(own, repeat), seconds_of(theirs, repeat)) for _ in range(ROUNDS)]
    ratio = statistics.median(numpys / ours for ours, numpys in pairs)
    return {"name": name, "ratio": ratio, "ours": min(a for a, _ in pairs), "numpy": min(b for _, b in pairs)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1500)
    parser.add_argument("--seed", type=int, help="another than the sources' own; the results are not written")
    options = parser.parse_args()
    os.environ |= {"CUKERN_NUM_THREADS": "1", "CUKERN_BACKEND": "host"}
    import numpy as np
    from host_rows import mean_of
    from source_id import source_id

    seed = int(source_id()[:8], 16) if options.seed is None else options.seed
    choose, rng = random.Random(seed), np.random.default_rng(seed)
    warnings.simplefilter("ignore")
    with np.errstate(all="ignore"):
        drawn = (draw(choose, rng) for _ in range(options.cases))
        results = sorted((measure(case) for case in drawn if case is not None), key=lambda each: each["ratio"])
    ratios = [each["ratio"] for each in results]
    summary = {
        "cases": len(ratios),
        "mean": mean_of(ratios),
        "5th percentile": ratios[len(ratios) // 20],
        "median": statistics.median(ratios),
        "below 0.9": sum(ratio < 0.9 for ratio in ratios),
        "below 0.5": sum(ratio < 0.5 for ratio in ratios),
    }
    print(f"NumPy's time over ours, seed {seed}: {summary}")
    for each in results[:25]:
        print(f"  {each['ratio']:.2f} {each['ours'] * 1e6:9.1f} us {each['numpy'] * 1e6:9.1f} {each['name']}")
    if options.seed is None:
        head = {"sources": source_id(), "numpy": np.__version__, "seed": seed, **summary}
        text = json.dumps({**head, "worst": results[:40]}, indent=1) + "\n"
        (HERE / "results/host_layouts.json").write_text(text)


if __name__ == "__main__":
    main()
