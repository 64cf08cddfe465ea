"""The host back-end's speed beside NumPy's.

    python benchmarks/host_rows.py [--count N] [--threads N] [--survey] [--large]

Each row of the table and each reduction, for seven element types, on packed random data with ``out=``, running sums
and products, and ``copyto`` between element types and layouts: the median of seven alternated rounds. What is below 0.9
of NumPy's speed is measured again by 21. It needs no GPU.
Writes results/host_rows.json, and prints geometric means and the slowest.

--survey: for 1 to 10^7 elements, with ``out=`` and fresh, on all threads: whether a call takes at most 1.1 of NumPy's
time, and below 1000 elements at most 0.3 us more. The first look at long calls takes fewer rounds. What does not is
measured again by seven, and then may take 1.25. Writes results/host_survey.json.

--large: operands of 64 MB on all threads, of some of the rows, drawn by the sources' hash; what stops early (``any``,
``all``, extremes of bool) is left out. Writes results/host_large.json.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import random
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
SLOW = 0.9  # of NumPy's speed, below which a row of one thread is measured again
LARGE = 64 << 20  # bytes of an operand
STOPPING = ("max", "min", "argmax", "argmin")  # of bool
DRAWN = 1 << 20  # elements at most, which are repeated: drawing them would take longer than the calls
Case = tuple[str, str, Callable[[], Any], Callable[[], Any]]


def cases(
    count: int, fresh: bool = False, types: list[str] = TYPES, is_drawn: Callable[[], bool] = lambda: True
) -> Iterator[Case]:
    """Yield what is called, the element type, our call and NumPy's; both give one element type and shape. They write
    into the same array, since time depends on how addresses lie to each other.
    """
    import numpy as np
    from survey_peers import OLD_NAMES

    import cukern
    from cukern import _cukern

    rng = np.random.default_rng(0)
    made: dict[tuple[str, bool], list[Any]] = {}
    for row in _cukern._table:
        name, kind = row["name"], row["kind"]
        own, theirs = getattr(cukern, name), getattr(np, OLD_NAMES.get(name, name), None)
        if kind not in ("unary", "binary", "reduction") or name in ("real", "imag"):  # which are views in NumPy
            continue
        for dtype in types:
            if not is_drawn():
                continue
            key = (dtype, name in ("asin", "acos", "atanh"))  # which take numbers below 1
            if key not in made:
                scale = 8 if dtype.startswith(("float", "complex")) else 1
                few = min(count, DRAWN)
                numbers = rng.integers(1, 20, few) / (30 * scale if key[1] else scale)
                parts = (numbers, rng.integers(1, 6, few))
                made[key] = [np.resize(np.asarray(part).astype(dtype), count) for part in parts]
            x, y = made[key]
            shapes: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [("", (x, y)[: 1 + (kind == "binary")], {})]
            if kind == "reduction":
                side = math.isqrt(count)
                table = x[: side * side].reshape(side, side)
                if name == "any":
                    table = np.zeros_like(table)
                if name == "prod":  # which neither overflows nor vanishes: both take longer, and begin anywhere
                    table = np.where(table > np.mean(table), 1, -1).astype(dtype)
                shapes = [(f", axis {axis}", (table,), {"axis": axis}) for axis in (None, 0, 1)]
            for text, args, options in shapes:
                try:
                    a, b = np.asarray(own(*args, **options)), theirs(*(each[:2] for each in args), **options)
                except (TypeError, ValueError):
                    continue
                if a.dtype != np.asarray(b).dtype:
                    continue
                yield (
                    name + text,
                    dtype,
                    lambda own=own, args=args, options=options, a=a: own(*args, out=a, **options),
                    lambda theirs=theirs, args=args, options=options, a=a: theirs(*args, out=a, **options),
                )
                if fresh:
                    yield (
                        name + text + ", fresh",
                        dtype,
                        lambda own=own, args=args, options=options: own(*args, **options),
                        lambda theirs=theirs, args=args, options=options: theirs(*args, **options),
                    )


def copies(count: int) -> Iterator[Case]:
    """Yield ``copyto`` from each element type that NumPy's rule allows, and of layouts, and running results."""
    import numpy as np

    import cukern

    rng = np.random.default_rng(0)
    side = math.isqrt(count)
    numbers = rng.integers(1, 100, (side, side))
    half = side // 2
    for dtype in TYPES:
        x = numbers.astype(dtype)
        y = np.empty_like(x)
        copied = [
            (f"copyto from {other}", y, numbers.astype(other))
            for other in TYPES
            if np.can_cast(other, dtype, "same_kind")
        ]
        copied += [
            ("copyto, transposed", y, x.T),
            ("copyto, rows of a window", y[:, :half], x[:, half:][:, :half]),
            ("copyto, every second", y[:, :half], x[:, : 2 * half : 2]),
            ("copyto, to every second", y[:, : 2 * half : 2], x[:, :half]),
            ("copyto, reversed", y, x[::-1, ::-1]),
            ("copyto, of a row", y, x[:1]),
            ("copyto, of a column", y, x[:, :1]),
        ]
        for name, to, source in copied:
            yield (
                name,
                dtype,
                lambda to=to, source=source: cukern.copyto(to, source),
                lambda to=to, source=source: np.copyto(to, source, casting="same_kind"),
            )
        if dtype == "bool":
            continue
        signs = np.where(numbers > 50, 1, -1).astype(dtype)  # whose products neither overflow nor vanish
        for own, theirs, values in ((cukern.cumulative_sum, np.cumsum, x), (cukern.cumulative_prod, np.cumprod, signs)):
            for axis in (None, 0, 1):
                given = values.ravel() if axis is None else values
                out = theirs(given, axis=axis)
                yield (
                    f"{own.__name__}, axis {axis}",
                    dtype,
                    lambda own=own, given=given, axis=axis, out=out: own(given, axis=axis, out=out),
                    lambda theirs=theirs, given=given, axis=axis, out=out: theirs(given, axis=axis, out=out),
                )


def seconds_of(call: Callable[[], Any], repeat: int) -> float:
    """Return the time of one call."""
    begin = time.perf_counter()
    for _ in range(repeat):
        call()
    return (time.perf_counter() - begin) / repeat


def is_fast(count: int, ours: float, numpys: float, factor: float = 1.1) -> bool:
    """Whether a call takes no longer than it may."""
    return ours <= numpys * factor or (count < 1000 and ours <= numpys + 0.3e-6)


def times_of(own: Callable[[], Any], theirs: Callable[[], Any], rounds: int = 0) -> tuple[float, float]:
    """Return the median times of a call of ours and of NumPy's, by alternated rounds: so many, or for a first look
    three of calls that take 2 ms, and one of such that take 20.
    """
    once = seconds_of(theirs, 1)
    if once < 1e-3:
        once = max(seconds_of(theirs, 2), 1e-7)
    repeat = max(1, int(SECONDS / once))
    rounds = rounds or (ROUNDS if once < 2e-3 else 3 if once < 0.02 else 1)
    pairs = [(seconds_of(own, repeat), seconds_of(theirs, repeat)) for _ in range(rounds)]
    return statistics.median(ours for ours, _ in pairs), statistics.median(numpys for _, numpys in pairs)


def survey(counts: list[int]) -> None:
    """Measure the rows at many sizes."""
    import numpy as np
    from source_id import source_id

    results = []
    sizes = {}
    for count in counts:
        with np.errstate(all="ignore"):
            for name, dtype, own, theirs in itertools.chain(cases(count, fresh=True), copies(count)):
                ours, numpys = times_of(own, theirs)
                holds = is_fast(count, ours, numpys)
                again = None if holds else times_of(own, theirs, ROUNDS)
                results.append(
                    {
                        "count": count,
                        "name": name,
                        "type": dtype,
                        "ours": ours,
                        "numpy": numpys,
                        "holds": holds,
                        "again": again,
                        "holds_again": again is None or is_fast(count, *again, factor=1.25),
                    }
                )
        own_results = [each for each in results if each["count"] == count]
        slow = [each for each in own_results if not each["holds"]]
        worst = sorted((each for each in slow if not each["holds_again"]), key=lambda e: e["numpy"] / e["ours"])
        mean = mean_of([each["numpy"] / each["ours"] for each in own_results])
        print(f"{count}: {len(own_results)} cases, NumPy's time over ours {mean:.2f} in the mean", flush=True)
        print(f"  {len(slow)} above the bound, {len(worst)} again:", flush=True)
        sizes[count] = {"cases": len(own_results), "mean": mean, "slow": len(slow), "slow_again": len(worst)}
        for each in worst[:25]:
            text = f"{each['name']} of {each['type']}, {each['ours'] * 1e6:.2f} us, NumPy {each['numpy'] * 1e6:.2f}"
            print(f"    {text}", flush=True)
    head = {"sources": source_id(), "numpy": np.__version__, "cores": len(os.sched_getaffinity(0))}
    path = HERE / "results/host_survey.json"
    slow = [each for each in results if not each["holds"]]
    path.write_text(json.dumps({**head, "sizes": sizes, "above the bound": slow}, indent=1) + "\n")


def large() -> None:
    """Measure operands of 64 MB, of rows that are drawn."""
    import numpy as np
    from source_id import source_id

    rng = random.Random(source_id())
    results = []
    with np.errstate(all="ignore"):
        for dtype in TYPES:
            count = LARGE // np.dtype(dtype).itemsize
            for name, _, own, theirs in cases(count, types=[dtype], is_drawn=lambda: rng.random() < 0.1):
                own_name = name.split(",")[0]
                stops_early = own_name in ("any", "all") or (dtype == "bool" and own_name in STOPPING)
                if not stops_early:
                    ours, numpys = times_of(own, theirs, ROUNDS)
                    results.append({"name": name, "type": dtype, "ours": ours, "numpy": numpys})
    ratios = sorted(((each["numpy"] / each["ours"], each) for each in results), key=lambda pair: pair[0])
    mean = mean_of([ratio for ratio, _ in ratios])
    print(f"64 MB: {len(results)} cases, NumPy's time over ours {mean:.2f} in the mean, ", end="")
    print(f"least {ratios[0][0]:.2f}, below 4: {sum(ratio < 4 for ratio, _ in ratios)}")
    for ratio, each in ratios[:25]:
        print(f"  {ratio:.2f} {each['name']} of {each['type']}, {each['ours'] * 1e3:.2f} ms")
    head = {"sources": source_id(), "numpy": np.__version__, "cores": len(os.sched_getaffinity(0))}
    path = HERE / "results/host_large.json"
    path.write_text(json.dumps({**head, "mean": mean, "results": results}, indent=1) + "\n")


def mean_of(ratios: list[float]) -> float:
    """Return the geometric mean."""
    return math.exp(statistics.fmean(map(math.log, ratios)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--survey", action="store_true")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--counts", type=int, nargs="*", default=[1, 10, 1000, 100_000, 10_000_000])
    options = parser.parse_args()
    if options.survey:
        survey(options.counts)
        return
    if options.large:
        large()
        return
    os.environ |= {"CUKERN_NUM_THREADS": str(options.threads), "CUKERN_BACKEND": "host"}
    import numpy as np
    from source_id import source_id

    results = []
    with np.errstate(all="ignore"):
        for name, dtype, own, theirs in itertools.chain(cases(options.count), copies(options.count)):
            repeat = max(1, int(SECONDS / max(seconds_of(theirs, 2), 1e-7)))
            pairs = [(seconds_of(theirs, repeat), seconds_of(own, repeat)) for _ in range(ROUNDS)]
            ratio = statistics.median(numpys / ours for numpys, ours in pairs)
            entry = {"name": name, "type": dtype, "ratio": ratio, "seconds": min(ours for _, ours in pairs)}
            if ratio < SLOW:  # by three times as many rounds: what else the machine does changes ratios by a tenth
                pairs = [(seconds_of(theirs, repeat), seconds_of(own, repeat)) for _ in range(3 * ROUNDS)]
                entry["again"] = statistics.median(numpys / ours for numpys, ours in pairs)
            results.append(entry)
    path = HERE / "results/host_rows.json"
    head = {"sources": source_id(), "numpy": np.__version__, "cores": len(os.sched_getaffinity(0))}
    path.write_text(
        json.dumps({**head, "count": options.count, "threads": options.threads, "results": results}, indent=1) + "\n"
    )
    print(f"NumPy's time over ours, {options.count} elements, {options.threads} thread(s)")
    for text, chosen in [
        ("copies", [each for each in results if each["name"].startswith("copyto")]),
        ("running results", [each for each in results if each["name"].startswith("cumulative")]),
        ("reductions", [each for each in results if ", axis" in each["name"] and "cumulative" not in each["name"]]),
        ("elementwise", [each for each in results if ", axis" not in each["name"] and "copyto" not in each["name"]]),
    ]:
        ratios = [each["ratio"] for each in chosen]
        below = [each for each in chosen if each["ratio"] < SLOW]
        again = sum(each["again"] < SLOW for each in below)
        print(f"{text}: {len(ratios)}, geometric mean {mean_of(ratios):.3f}, below {SLOW}: {len(below)}, again {again}")
        for each in sorted(chosen, key=lambda each: each["ratio"])[:12]:
            second = f" (again {each['again']:.2f})" if "again" in each else ""
            print(f"  {each['ratio']:.2f}{second} {each['name']} of {each['type']}, {each['seconds'] * 1e6:.1f} us")


if __name__ == "__main__":
    main()
