"""Where the CUDA compiler is. Imports nothing but the standard library, since build isolation has no more."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

# NVIDIA's compiler as wheels, all of one minor version: they fit each other only so.
COMPILER_WHEELS = [f"nvidia-{name}==13.0.*" for name in ("cuda-nvcc", "cuda-crt", "nvvm", "cuda-runtime", "cuda-cccl")]


OLDEST = (12, 8)  # the first release whose nvcc knows --compress-mode


@dataclass
class Toolkit:
    """An nvcc, the root of its toolkit, and where it was found."""

    nvcc: Path
    root: Path
    found_by: str

    @property
    def include(self) -> Path:
        """The folder of cuda_runtime_api.h."""
        return _first_with(self.root, ["include", "targets/x86_64-linux/include"], "cuda_runtime_api.h")

    @property
    def library(self) -> Path:
        """The folder of libcudart_static.a."""
        return _first_with(self.root, ["lib64", "lib", "targets/x86_64-linux/lib"], "libcudart_static.a")

    def version(self) -> str:
        """Return what nvcc says of itself, so that an upgraded compiler rebuilds everything."""
        return subprocess.run([self.nvcc, "--version"], check=True, capture_output=True, text=True).stdout


@dataclass
class Search:
    """The outcome of a search: a toolkit, or None and what was looked at."""

    toolkit: Toolkit | None
    tried: list[str] = field(default_factory=list)


def _first_with(root: Path, folders: list[str], name: str) -> Path:
    for folder in folders:
        if (root / folder / name).is_file():
            return root / folder
    looked = ", ".join(str(root / folder) for folder in folders)
    raise SystemExit(f"cukern: the CUDA toolkit at {root} has no {name}; looked in {looked}")


def _candidates() -> Iterator[tuple[str, Path]]:
    if value := os.environ.get("CUKERN_NVCC"):
        yield "CUKERN_NVCC", Path(value)
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if value := os.environ.get(name):
            yield name, Path(value, "bin/nvcc")
    on_path = shutil.which("nvcc")
    yield "PATH", Path(on_path or "nvcc")
    # The build's own environment first, then the venv that build isolation hides.
    roots = [*sys.path, sysconfig.get_path("purelib")]
    if value := os.environ.get("VIRTUAL_ENV"):
        roots += [str(path) for path in Path(value).glob("lib/python3*/site-packages")]
    for root in dict.fromkeys(roots):
        for path in sorted(Path(root).glob("nvidia/cu1*/bin/nvcc"), reverse=True):
            yield "NVIDIA's compiler wheels", path
    yield "the usual place", Path("/usr/local/cuda/bin/nvcc")


def _real_root(nvcc: Path) -> Path:
    """Return the toolkit's root. nvcc may be a wrapper elsewhere; its dry run prints the root as TOP."""
    run = subprocess.run(
        [nvcc, "-dryrun", "-x", "cu", "-c", "/dev/null", "-o", "/dev/null"],
        capture_output=True,
        text=True,
        check=False,
    )
    match = re.search(r"^#\$ TOP=(.*)$", run.stderr, re.MULTILINE)
    if match is None:
        return nvcc.resolve().parent.parent
    return Path(match.group(1).strip()).resolve()


def find_toolkit() -> Search:
    """Look for an nvcc that is recent enough where the README says."""
    search = Search(None)
    for found_by, nvcc in _candidates():
        if not (nvcc.is_file() and os.access(nvcc, os.X_OK)):
            search.tried.append(f"{found_by}: {nvcc}")
            continue
        toolkit = Toolkit(nvcc, _real_root(nvcc), found_by)
        release = re.search(r"release (\d+)\.(\d+)", toolkit.version())
        if release is None or (int(release[1]), int(release[2])) >= OLDEST:
            search.toolkit = toolkit
            return search
        needed = ".".join(map(str, OLDEST))
        search.tried.append(f"{found_by}: {nvcc} (release {release[1]}.{release[2]}, older than {needed})")
    return search


def host_only() -> bool:
    """Whether CUKERN_HOST_ONLY=1 asks for a build without CUDA."""
    return os.environ.get("CUKERN_HOST_ONLY") == "1"


def required_toolkit() -> Toolkit:
    """Return the toolkit, or end with a list of where it was looked for."""
    search = find_toolkit()
    if search.toolkit is None:
        looked = "\n  ".join(search.tried)
        raise SystemExit(
            f"cukern: no nvcc was found. It was looked for in\n  {looked}\n"
            "Set CUKERN_NVCC or CUDA_HOME, install NVIDIA's compiler wheels with\n"
            f"  pip install {' '.join(COMPILER_WHEELS)}\n"
            "or set CUKERN_HOST_ONLY=1 to build without CUDA."
        )
    return search.toolkit


def compiler_requirements() -> list[str]:
    """Return the wheels that a build needs: none where a toolkit is found or no CUDA is wanted."""
    if host_only() or find_toolkit().toolkit is not None:
        return []
    return COMPILER_WHEELS
