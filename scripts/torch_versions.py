"""Runs the tests of cukern.torch with several versions of torch, each in an environment of its own.

    python scripts/torch_versions.py                    the newest release of each of the last three minor versions
    python scripts/torch_versions.py --newest 1         of the last one
    python scripts/torch_versions.py 2.9.1 2.4.1        those
    python scripts/torch_versions.py --wheel wheelhouse/cukern-*.whl

The extension is that of the source tree, built for the Python that runs this, or the wheel's. Environments are in
build/torch, and are removed once their tests have run, since each takes gigabytes; ``--keep`` leaves them. A version
that cannot be installed is skipped with the installer's last words. Exit status 1 where a test failed, or no version
was to be had.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build/torch"
TESTS = [f"tests/test_torch_{part}.py" for part in ("operations", "library", "gradients", "register", "without_shim")]
EXAMPLES = ["tests/test_docs.py", "-k", "torch"]
PACKAGES = ["numpy", "pytest", "pytest-timeout", "hypothesis", "ml_dtypes", "setuptools"]


def newest(count: int) -> list[str]:
    """Return the newest release of each of the last minor versions that the package index has."""
    command = [sys.executable, "-m", "pip", "index", "versions", "torch", "--disable-pip-version-check"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    versions = re.search(r"Available versions: (.*)", listed)
    found: dict[str, str] = {}
    for version in versions.group(1).split(", ") if versions else []:
        found.setdefault(version.rpartition(".")[0], version)
    return list(found.values())[:count]


def install(version: str, folder: Path, wheel: Path | None) -> str | None:
    """Make an environment with a version of torch, and cukern from the wheel; return why it cannot be."""
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    done = subprocess.run(
        [
            *[folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"],
            *[f"torch=={version}", *PACKAGES, *([str(wheel)] if wheel is not None else [])],
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    return None if done.returncode == 0 else done.stderr.strip().rpartition("\n")[2]


def test(folder: Path, wheel: Path | None) -> bool:
    """Run the tests in an environment; whether they passed."""
    environment = {**os.environ, "PYTHONPATH": "" if wheel is not None else str(ROOT / "python")}
    environment["CUKERN_BACKEND"] = "host"
    where = [folder / "bin/python", "-c", "import cukern; print(cukern.__file__)"]
    found = subprocess.run(where, env=environment, check=False, stdout=subprocess.PIPE, text=True).stdout
    if not Path(found).is_relative_to(folder if wheel is not None else ROOT / "python"):
        print(f"cukern is taken from {found or 'nowhere'}")
        return False
    command = [folder / "bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    runs = [subprocess.run([*command, *what], cwd=ROOT, env=environment, check=False) for what in (TESTS, EXAMPLES)]
    return all(run.returncode == 0 for run in runs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*")
    parser.add_argument(
        "--newest", type=int, default=3, metavar="N", help="so many minor versions, where none is named"
    )
    parser.add_argument("--wheel", type=Path, help="a wheel of cukern, for what is built in the source tree")
    parser.add_argument("--keep", action="store_true", help="leave the environments in build/torch")
    options = parser.parse_args()
    results: dict[str, str] = {}
    for version in options.versions or newest(options.newest):
        folder = FOLDER / version
        reason = install(version, folder, options.wheel)
        if reason is not None:
            results[version] = f"skipped: {reason}"
        else:
            results[version] = "passed" if test(folder, options.wheel) else "FAILED"
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    for version, result in results.items():
        print(f"torch {version}: {result}", flush=True)
    failed = [version for version, result in results.items() if result == "FAILED"]
    return 1 if failed or "passed" not in results.values() else 0


if __name__ == "__main__":
    sys.exit(main())
