"""Scripts that run in processes of their own: other environments, forks, ends of processes, failing allocations."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap


def run_quietly(script: str, *options: str, **environment: str) -> str:
    """Run a script; assert that it ends well and writes no errors, and return what it prints."""
    run = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", *options, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, ""), f"exit code {run.returncode}\n{run.stdout}{run.stderr}"
    return run.stdout
