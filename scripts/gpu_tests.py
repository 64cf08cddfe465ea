"""Runs files of tests on a GPU: side by side, each in a process of its own, and from where it was cut off."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from source_id import source_id

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks/results"
LIMIT = 480  # seconds a part
TIMED_OUT = 124
# pytest's statuses for a file of which no test is chosen, and for those whose tests have ended.
NOTHING = 5
ENDED = (0, 1, NOTHING)
# What is printed for each object that a library can't free after an error of the GPU.
AFTER_THE_END = "Error in sys.excepthook:\n\nOriginal exception was:\n"
ALONE = {  # files that look at all of the GPU's memory
    "test_c_abi",
    "test_leaks",
    "test_leaks_many",
    "test_memory",
    "test_memory_limits",
    "test_package",
    "test_report",
    "test_workspaces",
}


def environment(**extra: str) -> dict[str, str]:
    """Return the environment of a part."""
    return {**os.environ, "CUKERN_REQUIRE_GPU": "1", "PYTHONUNBUFFERED": "1", **extra}


def pytest(*arguments: str) -> list[str]:
    """Return a command that runs the tests."""
    return [sys.executable, "-m", "pytest", "-q", "-ra", "-p", "no:cacheprovider", *arguments]


def run(command: list[str], env: dict[str, str], limit: float = LIMIT) -> tuple[int, str]:
    """Run a command; return its exit status and what it printed, which is shown too."""
    print("$", " ".join(command), flush=True)
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        output = error.stdout or b""
        text = output.decode(errors="replace") if isinstance(output, bytes) else output
        print(text[-3000:], flush=True)
        return TIMED_OUT, text
    print(done.stdout.replace(AFTER_THE_END, "")[-3000:], flush=True)
    return done.returncode, done.stdout


def counts(text: str) -> dict[str, int]:
    """Return the numbers of pytest's last lines, added up over its runs."""
    found = dict.fromkeys(("passed", "failed", "skipped", "error", "deselected"), 0)
    for line in text.splitlines():
        if re.search(r"\d+ (passed|failed|errors?|skipped|deselected)\b.* in [\d.]+s", line):
            for number, kind in re.findall(r"(\d+) (passed|failed|error|skipped|deselected)", line):
                found[kind] += int(number)
    return found


def failures(text: str) -> list[str]:
    """Return the names of the tests that failed."""
    return re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", text, re.MULTILINE)


def gpus() -> list[str]:
    """Return the names and drivers of the GPUs, without a context on them."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return []


def machine() -> dict[str, Any]:
    """Return what a part ran on."""
    from cukern import _cukern

    information = _cukern._information()
    found = gpus()
    versions = {"python": platform.python_version(), "cukern": _cukern.__version__}
    for name in ("numpy", "torch", "cupy", "numba", "jax", "ml_dtypes"):
        try:
            versions[name] = __import__(name).__version__
        except ImportError:
            versions[name] = "not installed"
    return {
        "gpu": ", ".join(device["name"] for device in information["devices"]),
        "driver": found[0].split(", ")[-1] if found else "unknown",
        "cuda_driver_api": information["driver"],
        "cuda_runtime": information["runtime"],
        "cublas": information["cublas"]["version"],
        "backend": information["backend"],
        **versions,
    }


def shards() -> tuple[list[str], list[str]]:
    """Return the files of tests that run side by side, and those that look at all of the GPU's memory."""
    files = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").glob("test_*.py"))
    alone = [file for file in files if Path(file).stem in ALONE]
    return [file for file in files if file not in alone], alone


def partial_path(part: str) -> Path:
    """Return where the results of files are kept while their part is not done."""
    return RESULTS / f"{part}.partial.json"


def unfinished(part: str) -> dict[str, Any]:
    """Return what is kept of a part that was cut off on this machine and these sources, or nothing."""
    path = partial_path(part)
    content: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    same = content and content["sources"] == source_id() and content["gpus"] == gpus()
    return content if same else {}


def run_files(part: str, command: Callable[[str], dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Run a command for each file of tests: first new ones, then those that took longest last time.

    Return what the command returned for each file, and its seconds. Each file's result is stored as the file ends, so
    that a part that was cut off runs only the files that are left.
    """
    path = RESULTS / f"{part}.json"
    last = json.loads(path.read_text())["result"].get("seconds", {}) if path.is_file() else {}
    kept = unfinished(part)
    results: dict[str, dict[str, Any]] = kept.get("results", {})
    begun = time.monotonic() - kept.get("seconds", 0)
    ran_on = {"sources": source_id(), "gpus": gpus()}
    lock = threading.Lock()

    def run_one(file: str) -> None:
        if file in results:
            return
        begin = time.monotonic()
        result = command(file)
        result["seconds"] = round(time.monotonic() - begin, 1)
        with lock:
            results[file] = result
            ended = {name: each for name, each in results.items() if each["status"] in ENDED}
            content = ran_on | {"seconds": round(time.monotonic() - begun, 1), "results": ended}
            new = partial_path(part).with_suffix(".tmp")
            new.write_text(json.dumps(content))
            new.replace(partial_path(part))

    together, alone = shards()
    with ThreadPoolExecutor(max_workers=min(12, os.cpu_count() or 1)) as pool:
        list(pool.map(run_one, sorted(together, key=lambda file: -last.get(file, LIMIT))))
    for file in alone:
        run_one(file)
    return results


def worst_status(results: dict[str, dict[str, Any]]) -> int:
    """Return the worst exit status of the files of tests."""
    # A process that a signal has ended has a status below zero.
    found = [abs(each["status"]) for each in results.values() if each["status"] != NOTHING]
    return TIMED_OUT if TIMED_OUT in found else max(found, default=0)


def of_all_files(results: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the worst status, the numbers of tests, what failed, and how many seconds each file took."""
    text = "\n".join(each["text"] for each in results.values())
    return {
        "status": worst_status(results),
        "counts": counts(text),
        "failures": failures(text),
        "skips": re.findall(r"^SKIPPED (\[\d+\] .*)$", text, re.MULTILINE),
        "seconds": {file: each["seconds"] for file, each in results.items()},
    }
