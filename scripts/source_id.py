#!/usr/bin/env python3
"""Prints a hash of the sources: what a GPU run was made of.

It is of the contents and the paths of every file under cuda/, ext/, python/, tests/, scripts/, benchmarks/
(without results/) and build_backend/, and of setup.py and pyproject.toml. Build outputs and caches don't
count. It needs no git, so that a bare copy of the tree gives the same.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ["cuda", "ext", "python", "tests", "scripts", "benchmarks", "build_backend"]
FILES = ["setup.py", "pyproject.toml"]
LEFT_OUT_SUFFIXES = {".so", ".o", ".d", ".a", ".pyc", ".pyi", ".egg-info"}
LEFT_OUT_FOLDERS = {"__pycache__", ".hypothesis", ".pytest_cache", ".mypy_cache", ".ruff_cache"}


def _counts(path: Path) -> bool:
    relative = path.relative_to(ROOT)
    if path.suffix in LEFT_OUT_SUFFIXES or relative.parts[:2] == ("benchmarks", "results"):
        return False
    return not any(part in LEFT_OUT_FOLDERS or part.endswith(".egg-info") for part in relative.parts)


def source_id(root: Path = ROOT) -> str:
    """Return the hash as hexadecimal digits."""
    paths = [root / name for name in FILES]
    for folder in FOLDERS:
        paths += [path for path in (root / folder).rglob("*") if path.is_file() and _counts(path)]
    digest = hashlib.sha256()
    for path in sorted(paths, key=lambda path: path.relative_to(root).as_posix()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


if __name__ == "__main__":
    print(source_id())
