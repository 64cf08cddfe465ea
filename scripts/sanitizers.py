#!/usr/bin/env python3
"""Runs the tests on the host back-end under AddressSanitizer and UndefinedBehaviorSanitizer.

The extension is built apart, in build/sanitizers; the plain Python runs it with the sanitizer's library
preloaded. First a planted overrun, leak and integer overflow must be found, so that a clean run means
something. Leaks are looked for in reports whose stack passes through the extension: Python itself leaves
memory behind at exit.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build/sanitizers"
FLAGS = "-g -O1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined"
DEFECTS = {
    "overrun": "heap-buffer-overflow",
    "leak": "detected memory leaks",
    "overflow": "signed integer overflow",
}


def preload() -> str:
    """Return the libraries that must come first in the process."""
    names = ["libasan.so", "libubsan.so", "libstdc++.so"]
    compiler = os.environ.get("CXX", "g++")
    run = [
        subprocess.run([compiler, f"-print-file-name={name}"], check=True, capture_output=True, text=True)
        for name in names
    ]
    return ":".join(os.path.realpath(done.stdout.strip()) for done in run)


def build() -> Path:
    """Build the package with sanitizers; return the folder to import it from."""
    package = FOLDER / "site"
    shutil.rmtree(package, ignore_errors=True)
    environment = {
        **os.environ,
        "CUKERN_HOST_ONLY": "1",
        "CUKERN_STUBS": "0",
        "CUKERN_STRIP": "0",
        "CUKERN_CXXFLAGS": f"{FLAGS} -DCUKERN_PLANTED_DEFECTS",
        "CUKERN_LDFLAGS": "-fsanitize=address,undefined",
    }
    command = [sys.executable, "setup.py", "-q", "build", "--build-base", FOLDER, "--build-lib", package]
    subprocess.run(command, check=True, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
    return package


def run(package: Path, *arguments: str | Path, log: Path) -> subprocess.CompletedProcess[str]:
    """Run Python on the sanitized package; reports go to files that start with `log`."""
    for old in log.parent.glob(log.name + ".*"):
        old.unlink()
    options = f"log_path={log}:print_suppressions=0"
    environment = {
        **os.environ,
        "LD_PRELOAD": preload(),
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(package),
        "ASAN_OPTIONS": f"{options}:detect_leaks=1:exitcode=86:allocator_may_return_null=1",
        "LSAN_OPTIONS": f"{options}:exitcode=0:max_leaks=0",
        "UBSAN_OPTIONS": f"{options}:print_stacktrace=1:halt_on_error=1",
        "CUKERN_BACKEND": "host",
        "CUKERN_NUM_THREADS": "4",
        "CUKERN_TEST_SMALL": "1",
        "CUKERN_TEST_SANITIZED": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    with log.with_name(log.name + ".stderr").open("w") as stderr:  # where UndefinedBehaviorSanitizer reports
        return subprocess.run(
            [sys.executable, *arguments], env=environment, cwd=FOLDER, text=True, check=False, stderr=stderr
        )


def reports(log: Path) -> list[str]:
    """Return the reports of a run that concern the extension."""
    found = []
    ours = ["_cukern", f"{ROOT / 'ext'}/", f"{ROOT / 'cuda'}/"]
    for path in sorted(log.parent.glob(log.name + ".*")):
        for block in path.read_text(errors="replace").split("\n\n"):
            is_error = "ERROR: AddressSanitizer" in block or "runtime error:" in block
            is_leak = "leak of" in block and any(place in block for place in ours)
            if is_error or is_leak:
                found.append(block)
    return found


def main() -> int:
    package = build()
    log = FOLDER / "report"
    for defect, message in DEFECTS.items():
        run(package, "-c", f"from cukern import _cukern; _cukern._plant_defect({defect!r})", log=log)
        text = "".join(path.read_text(errors="replace") for path in log.parent.glob(log.name + ".*"))
        if message not in text or not reports(log):
            print(f"the planted {defect} was not found", file=sys.stderr)
            return 1
        print(f"planted {defect}: found")
    tests = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not build", str(ROOT / "tests")]
    left_out = "not test_package and not test_import_is_quick"
    done = run(package, *tests, "-k", left_out, *sys.argv[1:], log=log)
    problems = reports(log)
    print(*problems, sep="\n\n", file=sys.stderr)
    print(f"pytest ended with {done.returncode}; the sanitizers reported {len(problems)} problems")
    return 1 if problems or done.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
