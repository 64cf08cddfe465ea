#!/usr/bin/env python3
"""Builds cuda/ as a plain C library, libcukern.so, for programs without Python.

``python scripts/build_library.py [FOLDER]`` writes FOLDER/lib/libcukern.so and FOLDER/include (default
build/library).
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "build_backend"))

from compile import Compilation, compile_sources, cuda_sources, link_flags  # noqa: E402


def main(folder: Path) -> None:
    build = Compilation.from_environment(shlex.split(os.environ.get("CXX", "g++")))
    objects = compile_sources(build, cuda_sources(build.toolkit is not None), [])
    target = folder / "lib/libcukern.so"
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [*build.cxx, "-shared", "-Wl,-soname,libcukern.so", *map(str, objects), "-o", str(target)]
    flags = [flag for flag in link_flags(build) if flag != "-Wl,--no-undefined-version"]  # PyInit is not there
    subprocess.run([*command, *flags], check=True)
    headers = folder / "include/cukern"
    shutil.rmtree(headers, ignore_errors=True)
    headers.mkdir(parents=True)
    for name in ("cukern.h", "ops.def"):  # what a C program includes
        shutil.copy(ROOT / "cuda/include/cukern" / name, headers)
    print(f"cukern: {target}\n        compile with -I{folder / 'include'}, link with -L{target.parent} -lcukern")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/library").resolve())
