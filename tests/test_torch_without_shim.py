"""The same tests of torch.ops.cukern without torch's C shim, by kernels in Python."""

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


def test_without_the_shim(torch: Any) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(TESTS / name)],
            env={**os.environ, "CUKERN_TORCH_SHIM": "0"},
            cwd=TESTS.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name in FILES
    ]
    for name, process in zip(FILES, processes, strict=True):
        printed = process.communicate()[0]
        assert process.returncode == 0, (name, printed[-4000:])
        assert " passed" in printed
