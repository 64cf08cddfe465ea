#!/usr/bin/env python3
"""How many instructions a small call on the host takes, beside NumPy's; it needs Valgrind and no quiet machine.

    python benchmarks/instructions.py [--calls 500] [--only zeros] [--functions]

Callgrind counts what the process executes between two calls of getpgid(); what an empty loop takes is left out. A
call is `add(a, b)` of 4 elements or the like, warm, in the processor's own memory throughout: what differs is the way
from Python to the loop and back. --functions lists where the instructions of each of our calls are.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from itertools import repeat
from pathlib import Path
from typing import Any

WARM = 50


def cases() -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """Return the calls: ours and NumPy's."""
    import numpy as np

    import cukern

    a, b, out = np.arange(4.0), np.arange(4.0), np.empty(4)
    x, y = cukern.asarray(a, memory="pinned"), cukern.asarray(b, memory="pinned")
    add, empty, zeros = cukern.add, cukern.empty, cukern.zeros
    np_add, np_empty, np_zeros = np.add, np.empty, np.zeros
    copyto, np_copyto = cukern.copyto, np.copyto
    m, matmul, np_matmul = a.reshape(2, 2), cukern.matmul, np.matmul
    return {
        "add(a, b)": (lambda: add(a, b), lambda: np_add(a, b)),
        "add(a, b, out=o)": (lambda: add(a, b, out=out), lambda: np_add(a, b, out=out)),
        "x + y": (lambda: x + y, lambda: a + b),
        "x.sum()": (lambda: x.sum(), lambda: a.sum()),
        "empty(n)": (lambda: empty(4), lambda: np_empty(4)),
        "empty(4), empty(999)": (lambda: (empty(4), empty(999)), lambda: (np_empty(4), np_empty(999))),
        "zeros(n)": (lambda: zeros(4), lambda: np_zeros(4)),
        "x[1:]": (lambda: x[1:], lambda: a[1:]),
        "copyto(o, a)": (lambda: copyto(out, a), lambda: np_copyto(out, a)),
        "matmul(m, m)": (lambda: matmul(m, m), lambda: np_matmul(m, m)),
    }


def count(calls: int, only: str) -> None:
    """Make the calls, each lot of them between two marks."""
    chosen = {name: pair for name, pair in cases().items() if only in name}
    for call in [lambda: None, *(call for pair in chosen.values() for call in pair)]:
        for _ in repeat(None, WARM):
            call()
        os.getpgid(0)
        for _ in repeat(None, calls):
            call()
        os.getpgid(0)


def lots_of(folder: Path) -> list[Path]:
    """Return Callgrind's files of what lay between the marks of a lot, in order."""
    dumps = sorted(folder.glob("out.*.*"), key=lambda path: int(path.suffix[1:]))
    return dumps[1::2]  # the others are of what the process does before and between lots


def total(dump: Path) -> int:
    return int(re.search(r"^summary: (\d+)", dump.read_text(), re.MULTILINE)[1])


def by_function(dump: Path) -> Counter[str]:
    """Return the instructions of each function itself."""
    names: dict[str, str] = {}
    found: Counter[str] = Counter()
    name, of_a_callee = "", False
    for line in dump.read_text().splitlines():
        if match := re.match(r"c?fn=(\(\d+\))(?: (.*))?$", line):
            names.setdefault(match[1], match[2])
            if line.startswith("fn="):
                name = names[match[1]]
        elif line.startswith("calls="):
            of_a_callee = True  # the next line has what the call took
        elif match := re.match(r"[+*\d-]\S* (\d+)$", line):
            found[name] += 0 if of_a_callee else int(match[1])
            of_a_callee = False
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--only", default="", help="the calls whose name contains this")
    parser.add_argument("--functions", action="store_true", help="list the functions that take most")
    parser.add_argument("--count", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.count:
        count(options.calls, options.only)
        return 0
    if shutil.which("valgrind") is None:
        parser.error("there is no valgrind; Debian's package is called so")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out.%p", "--dump-before=getpgid"]
        command += [sys.executable, __file__, "--count", "--calls", str(options.calls), "--only", options.only]
        environment = {**os.environ, "CUKERN_BACKEND": "host", "CUKERN_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
        environment["OPENBLAS_NUM_THREADS"] = "1"
        done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            print(done.stderr, file=sys.stderr)
            return done.returncode
        empty, *lots = lots_of(folder)
        print(f"{'instructions of a call':24} {'cukern':>8} {'NumPy':>8} {'ratio':>6}")
        for i, case in enumerate(case for case in cases() if options.only in case):
            ours, numpys = ((total(lot) - total(empty)) / options.calls for lot in lots[2 * i : 2 * i + 2])
            print(f"{case:24} {ours:8.0f} {numpys:8.0f} {ours / numpys:6.2f}")
            if options.functions:
                for function, number in by_function(lots[2 * i]).most_common(40):
                    print(f"    {number / options.calls:7.0f}  {function[:120]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
