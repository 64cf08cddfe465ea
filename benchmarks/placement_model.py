"""The constants by which cukern chooses where calls on arrays of the host run.

    python benchmarks/placement_model.py --measure     on a machine with a GPU: adds to results/placement_model.json
    python benchmarks/placement_model.py --write       writes machines.inc, model.inc, costs.inc in cuda/src from that

Each constant is measured by itself, as the median of seven: an element of each row of the table on one thread, what
threads read and write, what a call through the device takes, what goes over the link, and products; and what is the
same for all machines: conversions, steps, columns, how far arithmetic and memory overlap, how many bytes over the link
are worth a thread. `--measure beside link` measures these parts alone.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
MODEL = HERE / "results/placement_model.json"
PLACEMENT = HERE.parent / "cuda/src/placement"
ROUNDS = 7
PRODUCTS = ("float32", "float64", "int64")
THREADS = (1, 4, 16)
COUNT = 50_000  # elements of a row: operands of one thread, in its cache
LARGE = 1 << 26
PARTS = ("all", "rows", "beside", "link")
# In model.inc, with what they are.
SHARED = {
    "conversion": "nanoseconds an element of an operand of another type",
    "steps": "of one that is not packed: it is gathered, here or to be sent",
    "column_byte": "of a reduction whose loop is over results",
    "lesser_part": "of arithmetic and memory's time, that does not overlap the greater",
    "bytes_of_worker": "over the link that are worth a thread",
}
# In the order of `Machine` in cuda/src/placement/machines.h.
FIELDS = [
    *("multiprocessors", "thread_memory", "most_memory", "host_call", "host_threads"),
    *("small_call", "large_call", "thread_copies", "most_copies", "device_work", "host_rows"),
    *("host_products", "device_products"),
]


def nanoseconds_of(call: Callable[[], Any], least: float = 2e-3) -> float:
    """Return the median of seven times of a call."""
    call()
    begin = time.perf_counter()
    call()
    repeat = max(1, int(least / max(time.perf_counter() - begin, 1e-7)))

    def once() -> float:
        start = time.perf_counter()
        for _ in range(repeat):
            call()
        return (time.perf_counter() - start) / repeat * 1e9

    return statistics.median(once() for _ in range(ROUNDS))


def rows() -> dict[str, dict[str, float]]:
    """Return the nanoseconds that one thread takes for an element of each row in each type that it computes in."""
    import numpy as np

    import cukern
    from cukern import _cukern

    rng = np.random.default_rng(0)
    found: dict[str, dict[str, float]] = {}
    types = [str(dtype) for dtype in (*cukern.__array_namespace_info__().dtypes(), "float16", "bfloat16")]
    for row in _cukern._table:
        name, kind = row["name"], row["kind"]
        function = getattr(cukern, name)
        for dtype in types:
            scale = 30 if name in ("asin", "acos", "atanh") else 1
            numbers = (
                1 + 19 * rng.random((2, COUNT))
                if dtype.startswith(("float", "bf", "c"))
                else rng.integers(1, 20, (2, COUNT))
            )
            x, y = (cukern.asarray(each / scale).astype(dtype) for each in numbers)
            if name == "any":
                x = cukern.zeros(COUNT, dtype)
            args = {"unary": (x,), "reduction": (x,), "scalar": (x, 3), "axpy": (3, x, y)}.get(kind, (x, y))
            args = (cukern.zeros(COUNT, "bool"), x, y) if kind == "choice" else args
            try:
                if (
                    kind != "reduction"
                    and _cukern._compute_type(name, *args[-2 if kind == "axpy" else 0 :][:2]) != dtype
                ):
                    continue
            except (TypeError, ValueError, OverflowError):
                pass
            try:
                out = function(*args)
            except (TypeError, OverflowError):
                continue
            time_of = nanoseconds_of(lambda f=function, a=args, o=out: f(*a, out=o), 2e-4)
            found.setdefault(name, {})[dtype] = time_of / COUNT
    return found


def products(make: Callable[..., Any], side: int) -> dict[str, float]:
    """Return multiply-adds a nanosecond by element type, of arrays that are made so."""
    import cukern

    found = {}
    for dtype in PRODUCTS:
        n = side if dtype != "int64" else side // 4
        a = make((n, n), dtype)
        out = make((n, n), dtype)

        def multiply(a: Any = a, out: Any = out) -> None:
            cukern.matmul(a, a, out=out)
            cukern.synchronize()

        found[dtype] = n**3 / nanoseconds_of(multiply)
    return found


def beside() -> dict[str, Any]:
    """Return what one thread takes beside its row: conversions, steps, columns, and memory that is in no cache."""
    import numpy as np

    import cukern

    rng = np.random.default_rng(0)
    x, y, out = rng.random(COUNT), rng.random(COUNT), np.empty(COUNT)

    def an_element(operand: Any) -> float:
        return nanoseconds_of(lambda: cukern.add(x, operand, out=out)) / COUNT

    packed = an_element(y)
    wide = rng.random(3 * COUNT)
    large = 1 + rng.random(LARGE // 8)
    result: dict[str, Any] = {
        "conversion": [an_element(y.astype(dtype)) - packed for dtype in ("float32", "int32", "int64")],
        "steps": [an_element(wide[: step * COUNT : step]) - packed for step in (2, 3)],
        "column_byte": [],
        "large": {},
    }
    for dtype in ("float32", "float64", "int64"):
        columns = (100 * y).astype(dtype).reshape(-1, 200)
        sums = columns.sum(axis=0)
        time_of = nanoseconds_of(partial(cukern.sum, columns, axis=0, out=sums))
        result["column_byte"].append(time_of / columns.nbytes)
    for name in ("sqrt", "exp", "tanh", "log"):
        for dtype in ("float32", "float64"):
            a = large.astype(dtype)
            time_of = nanoseconds_of(partial(getattr(cukern, name), a, out=np.empty_like(a)))
            result["large"][f"{name} {dtype}"] = time_of / a.size
    return result


def link() -> dict[str, float]:
    """Return the nanoseconds of calls through the device by the bytes that go over the link."""
    import numpy as np

    import cukern

    found = {}
    for n in (1 << 19, 3 << 18, 1 << 20, 3 << 19, 1 << 21):
        x, y = (np.random.default_rng(i).random(n, np.float32) for i in range(2))
        with cukern.placement("device"):
            found[str(12 * n)] = nanoseconds_of(partial(cukern.add, x, y, out=np.empty_like(x)))
    return found


def measure_part(part: str) -> dict[str, Any]:
    """Return what is measured with the threads that the process has."""
    import numpy as np

    import cukern

    if part == "rows":
        return {"rows": rows()}
    if part == "beside":
        return {"beside": beside()}
    if part == "link":
        return {"link": link()}
    x, y = (np.random.default_rng(i).random(LARGE, np.float32) for i in range(2))
    out = np.empty_like(x)
    small, few, some = x[:8], x[: 1 << 15], x[: 1 << 16]
    result: dict[str, Any] = {}
    with cukern.placement("host"):
        result["memory"] = 12 * LARGE / nanoseconds_of(lambda: cukern.add(x, y, out=out))
        result["host_call"] = nanoseconds_of(lambda: cukern.add(small, small, out=out[:8]))
        result["host_some"] = nanoseconds_of(lambda: cukern.add(some, some, out=out[: 1 << 16]))
        result["host_few"] = nanoseconds_of(lambda: cukern.add(few, few, out=out[: 1 << 15]))
        result["host_products"] = products(np.ones, 2048)
    with cukern.placement("device"):
        result["small_call"] = nanoseconds_of(lambda: cukern.add(small, small, out=out[:8]))
        result["large_call"] = nanoseconds_of(lambda: cukern.add(some[: 1 << 15], some[: 1 << 15], out=out[: 1 << 15]))
        result["copies"] = 12 * LARGE / nanoseconds_of(lambda: cukern.add(x, y, out=out))
    if cukern.backend() == "cuda":
        result["device_products"] = products(cukern.ones, 4096)
    return result


def in_process(script: str, argument: str, threads: int) -> Any:
    """Run a script in a process with so many threads; return what it prints."""
    environment = os.environ | {"CUKERN_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
    if argument in ("--part=rows", "--part=beside"):
        environment["CUKERN_BACKEND"] = "host"
    command = [sys.executable, script, argument]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure(parts: list[str]) -> None:
    """Write what this machine's constants are made of; of what is not among the parts, what was measured before."""
    import numpy as np

    import cukern
    from cukern import _cukern

    most = len(os.sched_getaffinity(0))
    devices = _cukern._information()["devices"]
    machines = json.loads(MODEL.read_text())["machines"] if MODEL.exists() else []
    before = next((machine for machine in machines if machine["device"] == devices[0]["name"]), {})
    parts = parts if before else list(PARTS)
    result = before | {"device": devices[0]["name"], "cores": most}
    result |= {"numpy": np.__version__, "cukern": cukern.__version__, "multiprocessors": devices[0]["multiprocessors"]}
    if "all" in parts:
        result["parts"] = {str(n): in_process(__file__, "--part=all", n) for n in THREADS if n <= most}
    if "rows" in parts:
        result |= in_process(__file__, "--part=rows", 1)
        lessen(result["rows"], before.get("rows", {}))
    if "beside" in parts:
        result |= in_process(__file__, "--part=beside", 1)
    if "link" in parts:
        result |= in_process(__file__, "--part=link", most)
    others = [machine for machine in machines if machine["device"] != result["device"]]
    MODEL.write_text(json.dumps({"machines": [*others, result]}, indent=1) + "\n")
    print(json.dumps({name: found for name, found in result.items() if name != "rows"}, indent=1))


def lessen(rows: dict[str, dict[str, float]], before: dict[str, dict[str, float]]) -> None:
    """Keep the lesser of what was measured now and before: other work on a machine only adds."""
    for name, costs in rows.items():
        for dtype, cost in costs.items():
            costs[dtype] = min(cost, before.get(name, {}).get(dtype, cost))


def factor(found: dict[str, dict[str, float]], rows: dict[str, dict[str, float]]) -> float:
    """Return how many times as long as in `rows` the rows of a machine take, in the median."""
    both = [(name, dtype) for name, costs in found.items() for dtype in costs if dtype in rows.get(name, {})]
    return statistics.median(found[name][dtype] / rows[name][dtype] for name, dtype in both)


def least_of_all(machines: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the rows of the machine that was measured last, or what those of another say if that is less.

    Single figures are off by up to 15 times, since other work runs on these machines too.
    """
    rows = {name: dict(costs) for name, costs in machines[-1]["rows"].items()}
    for machine in machines[:-1]:
        speed = factor(machine["rows"], machines[-1]["rows"])
        lessen(
            rows,
            {name: {each: cost / speed for each, cost in costs.items()} for name, costs in machine["rows"].items()},
        )
    return rows


def constants(model: dict[str, Any], rows: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Return the fields of a Machine; `rows`: what the table of costs has."""
    parts = model["parts"]
    one, most = parts["1"], parts[max(parts, key=int)]
    threaded = [part for threads, part in parts.items() if threads != "1"]
    bytes_of_call = 12 * (1 << 15)
    return {
        "multiprocessors": model["multiprocessors"],
        "thread_memory": one["memory"],
        "most_memory": most["memory"],
        "host_call": one["host_call"],
        # Least of what is measured: the machine is not always free to run them at once.
        "host_threads": max(1000.0, min(part["host_some"] - part["host_few"] for part in threaded)),
        # Most of what is measured: a call after others, whose memory is in the caches, is the best that there is.
        "small_call": max(part["small_call"] for part in parts.values()),
        "large_call": max(part["large_call"] - bytes_of_call / part["copies"] for part in parts.values()),
        "thread_copies": one["copies"],
        "most_copies": max(part["copies"] for part in parts.values()),
        "device_work": 1000.0,
        "host_rows": factor(model["rows"], rows),
        "host_products": [one["host_products"][each] for each in PRODUCTS],
        "device_products": [most["device_products"][each] for each in PRODUCTS],
    }


def shared_constants(model: dict[str, Any], rows: dict[str, dict[str, float]]) -> dict[str, float]:
    """Return the constants that are the same for all machines, from one of them."""
    found, own = model["beside"], constants(model, rows)
    lesser = []
    for text, time_of in found["large"].items():
        name, dtype = text.split()
        arithmetic, memory = rows[name][dtype] * own["host_rows"], 2 * int(dtype[-2:]) / 8 / own["thread_memory"]
        lesser.append((time_of - max(arithmetic, memory)) / min(arithmetic, memory))
    workers = []  # as many as make the rate that is seen
    for size, time_of in model["link"].items():
        rate = int(size) / (time_of - own["large_call"])
        workers.append(int(size) * own["thread_copies"] / rate)
    return {
        **{name: max(0.0, statistics.median(found[name])) for name in ("conversion", "steps", "column_byte")},
        "lesser_part": min(1.0, max(0.0, statistics.median(lesser))),
        "bytes_of_worker": statistics.median(workers),
    }


def written(value: Any) -> str:
    """Return a constant as C++."""
    return f"{{{', '.join(map(written, value))}}}" if isinstance(value, list) else f"{value:.4g}"


def write() -> None:
    """Write the constants as C++: of all machines, and the costs of rows."""
    machines = json.loads(MODEL.read_text())["machines"]
    rows = least_of_all(machines)
    text = "// Made by benchmarks/placement_model.py.\n"
    for model in machines:
        found = constants(model, rows)
        line = ", ".join([f'"{model["device"]}"', *(written(found[name]) for name in FIELDS)])
        text += f"{{{line}}},\n"
    (PLACEMENT / "machines.inc").write_text(text)
    shared = shared_constants(next(model for model in reversed(machines) if {"beside", "link"} <= model.keys()), rows)
    lines = [
        f"constexpr double k{name.title().replace('_', '')} = {shared[name]:.4g};  // {what}"
        for name, what in SHARED.items()
    ]
    head = "// Made by benchmarks/placement_model.py.\n"
    (PLACEMENT / "model.inc").write_text(head + "\n".join(lines) + "\n")
    lines = [
        f"CUKERN_HOST_COST({name}, {dtype if dtype != 'bool' else 'bool_'}, {max(1, round(cost * 1000))})"
        for name, costs in rows.items()
        for dtype, cost in costs.items()
    ]
    head = "// Picoseconds that one thread takes for an element. Made by benchmarks/placement_model.py.\n"
    (PLACEMENT.parent / "host/costs.inc").write_text(head + "\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--measure", nargs="*", choices=PARTS)
    parser.add_argument("--part", choices=PARTS)
    options = parser.parse_args()
    if options.part:
        print(json.dumps(measure_part(options.part)))
    if options.measure is not None:
        measure(options.measure or list(PARTS))
    if options.write:
        write()


if __name__ == "__main__":
    main()
