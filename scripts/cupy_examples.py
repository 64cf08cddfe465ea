#!/usr/bin/env python3
"""Runs the examples of CuPy's guide to user-defined kernels with cukern in CuPy's place; exit status 1 if one fails.

    CUPY_CHECKOUT=~/cupy python scripts/cupy_examples.py

They are read from a checkout, docs/source/user_guide/kernel.rst, and none is kept here. Only the import is another one:
`cupy` and `cp` are cukern. What they print is not compared; what they assert counts. Left out are textures, CuPy's
compiler of Python (cupyx.jit), and CuPy's header for complex numbers (cupy/complex.cuh).
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GUIDE = "docs/source/user_guide/kernel.rst"
LEFT_OUT = {
    "cupyx": "CuPy's compiler of Python",
    "jit.": "CuPy's compiler of Python",
    "elementwise_copy": "CuPy's compiler of Python",
    "cupy/complex.cuh": "CuPy's header",
    "complex_kernel": "CuPy's header",
    "texture": "textures",
}


@dataclass
class Block:
    """One block of examples, and the heading that it is under."""

    heading: str
    line: int
    statements: list[str]

    @property
    def reason(self) -> str:
        """Why it is left out; empty if it is not."""
        text = "".join(self.statements)
        return next((reason for word, reason in LEFT_OUT.items() if word in text), "")


def blocks_of(text: str) -> Iterator[Block]:
    """Yield the blocks of a guide in reStructuredText."""
    parser = doctest.DocTestParser()
    lines = text.splitlines(keepends=True)
    heading = title = ""
    begin = None
    for i, line in enumerate([*lines, "end\n"]):
        if re.fullmatch(r"([-=^~])\1{3,}\s*", line) and i > 0 and lines[i - 1].strip():
            heading = lines[i - 1].strip()
        if not line.strip() or line.startswith(" "):
            continue
        if begin is not None:
            examples = parser.get_examples("".join(lines[begin + 1 : i]))
            yield Block(title, begin + 1, [example.source for example in examples])
        begin, title = (i, heading) if line.startswith(".. doctest::") else (None, heading)


def run_blocks(blocks: list[Block], names: dict[str, Any]) -> list[tuple[Block, str, str]]:
    """Run blocks one after the other, which share their names; return each with "ran", "left out" or "failed"."""
    results = []
    for block in blocks:
        if block.reason:
            results.append((block, "left out", block.reason))
            continue
        try:
            for statement in block.statements:
                exec(compile(statement, f"{GUIDE}:{block.line}", "single"), names)
        except Exception:
            results.append((block, "failed", traceback.format_exc(limit=-2)))
        else:
            results.append((block, "ran", ""))
    return results


def main() -> int:
    """Run the guide of the checkout, and print what became of each block."""
    import numpy as np

    import cukern

    checkout = os.environ.get("CUPY_CHECKOUT")
    if not checkout or not Path(checkout, GUIDE).is_file():
        print(f"CUPY_CHECKOUT has to be a checkout of CuPy with {GUIDE}", file=sys.stderr)
        return 2
    if cukern.backend() != "cuda":
        print("the examples are kernels in CUDA C++: a GPU is needed", file=sys.stderr)
        return 2
    commit = subprocess.run(["git", "-C", checkout, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    print(f"{GUIDE} of CuPy {commit.stdout.strip() or '(not a repository)'}")
    sys.displayhook = lambda value: None
    names = {"cp": cukern, "cupy": cukern, "np": np, "numpy": np, "__name__": "examples"}
    results = run_blocks(list(blocks_of(Path(checkout, GUIDE).read_text())), names)
    for block, status, told in results:
        print(f"{status:9} line {block.line:4} {block.heading}{': ' + told if told else ''}")
    count = {word: sum(1 for _, status, _ in results if status == word) for word in ("ran", "left out", "failed")}
    print(", ".join(f"{number} {word}" for word, number in count.items()))
    return 1 if count["failed"] or not count["ran"] else 0


if __name__ == "__main__":
    sys.exit(main())
