"""The same tests of torch.ops.cukern where functions of torch's C shim are missing, by kernels in Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from interchange_tools import QUIET

TESTS = Path(__file__).resolve().parent
FILES = ["test_torch_operations.py", "test_torch_library.py", "test_torch_gradients.py", "test_torch_register.py"]
pytestmark = [*QUIET, pytest.mark.unsanitized, pytest.mark.slow]


def run_tests(names: list[str], variables: dict[str, str], *options: str) -> None:
    """Run files of tests in processes of their own, side by side."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(TESTS / name), *options],
            env={**os.environ, **variables},
            cwd=TESTS.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name in names
    ]
    for name, process in zip(names, processes, strict=True):
        printed = process.communicate()[0]
        assert process.returncode == 0, (name, printed[-4000:])
        assert " passed" in printed


def test_without_the_shim(torch: Any) -> None:
    """As where torch has no function to register a kernel with."""
    run_tests(FILES, {"CUKERN_TORCH_HIDE": "aoti_torch_library_impl"})


def test_without_lists(torch: Any) -> None:
    """As before torch 2.10: reductions in Python, everything else in C."""
    chosen = ("-k", "reduc or shim or sum")
    run_tests(["test_torch_operations.py", "test_torch_library.py"], {"CUKERN_TORCH_HIDE": "torch_list_size"}, *chosen)


def test_switched_off(torch: Any) -> None:
    run_tests(["test_torch_library.py"], {"CUKERN_TORCH_SHIM": "0"}, "-k", "shim or rows")
