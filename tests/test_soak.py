"""Random calls, as scripts/soak.py runs them: the same from one seed, and what goes wrong in them is found."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.build  # it is of the source tree


def soak(folder: Path, last: int = 120, plant: str = "") -> tuple[int, str]:
    """Run some cases of one seed, with a defect that each process plants in itself; return status and output."""
    (folder / "sitecustomize.py").write_text(textwrap.dedent(plant))
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, str(ROOT / "scripts/soak.py"), "--processes", "1", "--backend", "host"]
    command += ["--log", str(folder / "log"), "--seed", "11:0", "--to", str(last)]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False, timeout=300
    )
    return done.returncode, done.stdout + done.stderr


def table(output: str) -> list[str]:
    return re.findall(r"^\w+ +\d+ +\d+ +\d+$", output, re.MULTILINE)


def test_a_seed_gives_the_same_cases_again(tmp_path: Path) -> None:
    status, first = soak(tmp_path)
    assert status == 0, first
    assert len(table(first)) > 5
    assert re.search(r"^all +1\d\d +\d+ +0$", first, re.MULTILINE), first
    assert table(soak(tmp_path)[1]) == table(first)


DEFECTS = {
    "a wrong value": ("cukern.add = lambda a, b, **options: cukern.subtract(a, b, **options)", "Mismatched elements"),
    "a signal": ("import os; cukern.add = lambda *a, **k: os.abort()", "the process ended with SIGABRT"),
    "an end in silence": ("import os; cukern.add = lambda *a, **k: os._exit(0)", "with exit status 0"),
    "a leak": (
        "kept = []; empty = cukern.copy; cukern.copy = lambda *a, **k: kept.append(empty(*a, **k)) or kept[-1]",
        "bytes that are still in use",
    ),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_what_goes_wrong_is_found(tmp_path: Path, defect: str) -> None:
    change, told = DEFECTS[defect]
    status, output = soak(tmp_path, 50, plant=f"import cukern\n{change}\n")
    assert status == 1, output
    assert told in output.split("failures by signature:")[0], output
    assert "python scripts/soak.py --seed 11:0 --case" in output  # how to see it again
    assert "the last calls:" in output
