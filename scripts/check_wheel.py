#!/usr/bin/env python3
"""Checks a repaired wheel: tag, size, exported symbols, needed libraries, contents."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

MOST_BYTES = 12_000_000
NEWEST_GLIBC = (2, 35)
EXPECTED = [
    "__init__.py",
    "__main__.py",
    "py.typed",
    "_cukern.pyi",
    "_cukern.abi3.so",
    "include/cukern/cukern.h",
]


def run(*command: str | Path) -> list[str]:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def check(wheel: Path) -> list[str]:
    """Return what is wrong with a wheel."""
    wrong = []
    tags = re.findall(r"manylinux_(\d+)_(\d+)_x86_64", wheel.name)
    if "-cp311-abi3-" not in wheel.name:
        wrong.append(f"{wheel.name} is no cp311-abi3 wheel")
    if not tags or min((int(major), int(minor)) for major, minor in tags) > NEWEST_GLIBC:
        wrong.append(f"{wheel.name} has no tag up to manylinux_{NEWEST_GLIBC[0]}_{NEWEST_GLIBC[1]}")
    if wheel.stat().st_size > MOST_BYTES:
        wrong.append(f"{wheel.name} has {wheel.stat().st_size} bytes, more than {MOST_BYTES}")
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        wrong += [f"cukern/{name} is missing" for name in EXPECTED if f"cukern/{name}" not in names]
        wrong += [f"{name} should not be there" for name in names if not name.startswith(("cukern/", "cukern-"))]
        library = archive.extract("cukern/_cukern.abi3.so", folder)
        symbols = {line.split()[-1] for line in run("nm", "-D", "--defined-only", library)}
        exported = sorted(name for name in symbols if not name.startswith("cukern_") and name != "PyInit__cukern")
        wrong += [f"it exports {name}" for name in exported]
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", "\n".join(run("readelf", "-d", library)))
        foreign = ("libcu", "libnv", "libpython", "libtorch", "libc10")
        wrong += [f"it needs {name}" for name in needed if name.startswith(foreign)]
    return wrong


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        problems = check(Path(argument))
        print(f"{argument}: {Path(argument).stat().st_size / 2**20:.2f} MiB", *problems, sep="\n  ")
        if problems:
            sys.exit(1)
