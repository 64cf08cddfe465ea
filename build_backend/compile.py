"""Compiles the sources of cukern: .cu with nvcc, .cpp with the C++ compiler, in parallel, only what changed.

Objects lie in build/obj-<key>, where the key is of everything that is not a file of ours: compilers, flags,
the versions of Python and NumPy. An object is fresh while it is newer than its source and every header of
ours that the compiler's depfile names.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from toolchain import Toolkit, host_only, required_toolkit

ROOT = Path(__file__).resolve().parent.parent
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion"]
# nvcc's own all-major without 110, which no x86-64 machine has.
MAJOR_TARGETS = ["75", "80", "90", "100", "120"]
LINK_LIBRARIES = ["-lpthread", "-ldl", "-lrt"]

ELEMENT_TYPES = re.findall(
    r"^CUKERN_ELEMENT_TYPE\((\w+),", (ROOT / "cuda/include/cukern/element_types.def").read_text(), re.MULTILINE
)
assert len(ELEMENT_TYPES) == 15, "a row of element_types.def begins otherwise"
# Kernels of these types are alike, so that together they are compressed to three quarters of what they take apart;
# in larger groups a first call would load more than 2 MB of code.
ALIKE = [
    ["float16", "bfloat16", "int16", "uint16"],
    ["bool_", "int8", "uint8"],
    ["float32", "int32", "uint32"],
    ["complex64", "complex128"],
    ["float64", "int64", "uint64"],
]
assert sorted(name for group in ALIKE for name in group) == sorted(ELEMENT_TYPES)
# Compiled once for each of these groups, side by side; CUKERN_EACH_TYPE(X) is X of each type in it.
BY_TYPE = {
    ROOT / "cuda/src/device/elementwise/elementwise.cu": ALIKE,
    ROOT / "cuda/src/device/reduce/reduce.cu": ALIKE,
    ROOT / "cuda/src/host/formula_loops.cpp": [[name] for name in ELEMENT_TYPES],
}


# With CUKERN_EMULATE_KERNELS=1, of a host-only build: the kernels of these folders, compiled for the processor, take
# the place of the host back-end's own. CUKERN_EMULATION_CXXFLAGS are more flags for their .cu files.
EMULATION = ROOT / "tests/emulation"
DEVICE = ROOT / "cuda/src/device"
# Folders whose host code is loops, or what every small call goes through; of the rest -O2 makes less.
FAST = (
    "cuda/src/host",
    "cuda/src/plan",
    "cuda/src/runtime",
    "ext/base",
    "ext/call",
    "ext/view",
)
# What runs once, or is slow by nature: its size counts.
SMALL = (
    "cuda/src/context",
    "cuda/src/placement",
    "cuda/src/transfer",
    "cuda/src/user_kernels",
    "ext/create",
    "ext/graphs",
    "ext/module",
    "ext/types",
)
LOOP_NAMES = ("casts", "formula_loops", "integer_sums", "nontemporal", "reduce", "truths")
LOOPS = [ROOT / f"cuda/src/host/{name}.cpp" for name in LOOP_NAMES]
EMULATED = ["elementwise", "reduce", "scan"]
REPLACED = ["elementwise.cpp", "formula_loops.cpp", "reduce.cpp", "scan.cpp"]


def emulates_kernels() -> bool:
    return os.environ.get("CUKERN_EMULATE_KERNELS") == "1"


@dataclass
class Compilation:
    """What a build is made with: the compilers and whether CUDA takes part."""

    cxx: list[str]
    toolkit: Toolkit | None

    @classmethod
    def from_environment(cls, cxx: list[str]) -> Compilation:
        return cls(cxx, None if host_only() else required_toolkit())


def cuda_sources(with_cuda: bool) -> list[Path]:
    """Return the sources under cuda/; those in cuda/src/device/ are left out of a host-only build."""
    source = ROOT / "cuda/src"
    paths = [path for path in source.rglob("*.cpp") if not path.is_relative_to(DEVICE)]
    if with_cuda:
        paths = [path for path in paths if path.name != "no_cuda.cpp"]
        paths += [*DEVICE.rglob("*.cpp"), *DEVICE.rglob("*.cu")]
    elif emulates_kernels():
        paths = [path for path in paths if path.parent != source / "host" or path.name not in REPLACED]
        paths += [path for folder in EMULATED for path in (DEVICE / folder).iterdir() if path.suffix in (".cpp", ".cu")]
        paths += [DEVICE / "launch_by_type.cpp", *EMULATION.glob("*.cpp")]
    # The slowest to compile go first, so that no core waits for one of them at the end.
    return sorted(paths, key=lambda path: (path.suffix != ".cu", "matmul" not in path.parts, str(path)))


def target_flags(source: Path | None = None) -> list[str]:
    """Return nvcc's flags for CUKERN_CUDA_ARCHS: ``90``, ``80;90`` or ``all-major`` (the default).

    A source whose name ends in ``_sm90a.cu`` or the like is compiled for that target alone, as code for tensor cores
    is; its launcher is called on such devices only.
    """
    if source is not None and (own := re.search(r"_sm(\d{2,3}[af]?)\.cu$", source.name)):
        return [f"-gencode=arch=compute_{own[1]},code=sm_{own[1]}"]
    targets = os.environ.get("CUKERN_CUDA_ARCHS", "all-major")
    if targets in ("all", "native"):
        return [f"-arch={targets}"]
    numbers = MAJOR_TARGETS if targets == "all-major" else targets.split(";")
    if not all(re.fullmatch(r"\d{2,3}[af]?", number) for number in numbers):
        raise SystemExit(f"cukern: CUKERN_CUDA_ARCHS is {targets!r}; expected 90, 80;90 or all-major")
    flags = [f"-gencode=arch=compute_{number},code=sm_{number}" for number in numbers]
    # The newest as PTX too, for devices that come later.
    newest = max(numbers, key=lambda number: int(re.sub(r"\D", "", number)))
    return [*flags, f"-gencode=arch=compute_{newest},code=compute_{newest}"]


def _command(build: Compilation, source: Path, extra: list[str]) -> list[str]:
    own = ROOT / ("ext" if source.is_relative_to(ROOT / "ext") else "cuda/src")
    includes = [f"-I{ROOT / 'cuda/include'}", f"{'-I' if source.suffix == '.cu' else '-iquote'}{own}"]
    werror = os.environ.get("CUKERN_WERROR") == "1"
    if source.suffix == ".cu" and build.toolkit is None:
        command = [*build.cxx, "-std=c++17", "-O1", "-fPIC", "-fvisibility=hidden", "-xc++"]
        command += ["-Wno-unknown-pragmas", "-Wno-psabi"]
        command += [f"-I{EMULATION / 'include'}", *includes, "-include", str(EMULATION / "emulation.h")]
        flags = [os.environ.get(name, "") for name in ("CUKERN_CXXFLAGS", "CUKERN_EMULATION_CXXFLAGS")]
        return command + " ".join(flags).split()
    if source.suffix == ".cu":
        assert build.toolkit is not None
        host = ["-fPIC", "-fvisibility=hidden", "-fno-plt", "-Wall", "-Wextra", "-Wshadow"]
        # Launchers throw nothing; what would unwind them is half of all such tables, 50 KB of the wheel.
        host += ["-fno-exceptions", "-fno-asynchronous-unwind-tables", "-Os"]
        # Launchers choose and launch, without loops: by -Os they are half of what -O2 makes. An -O for nvcc itself
        # would come after it; device code is always optimised.
        command = [str(build.toolkit.nvcc), "-std=c++17", *target_flags(source), "--compress-mode=size"]
        command += ["-ccbin", build.cxx[-1]] if "CXX" in os.environ else []
        command += ["-lineinfo"] if os.environ.get("CUKERN_LINEINFO") == "1" else []
        command += ["-Werror=all-warnings"] if werror else []
        return [*command, "-Xcompiler=" + ",".join(host), *includes]
    # Python's functions are called without the procedure linkage table: a tenth of a call's time.
    level = "-O2"
    for folders, other in ((FAST, "-O3"), (SMALL, "-Os")):
        level = other if any(source.is_relative_to(ROOT / folder) for folder in folders) else level
    loops = ["-O2", "-ftree-vectorize", "-fvect-cost-model=dynamic", "-fno-ipa-cp"]
    # Products are rounded before they are added, as in NumPy and on every processor.
    loops += ["-fno-math-errno", "-ffp-contract=off"]
    # Steps known when the program runs: -O3 has it, and with it a third more code that is no faster.
    loops += ["-fversion-loops-for-strides"] if source in BY_TYPE else []
    levels = loops if source in LOOPS else [level]
    command = [*build.cxx, "-std=c++17", *levels, "-fPIC", "-fvisibility=hidden", "-fno-plt", *WARNINGS, *includes]
    command += ["-Werror"] if werror else []
    command += ["-isystem", str(build.toolkit.include)] if build.toolkit else []
    # Only the emulation's own sources get its headers, so that all other objects are shared with builds without it.
    if build.toolkit is None and any(source.is_relative_to(folder) for folder in (DEVICE, EMULATION)):
        command.append(f"-I{EMULATION / 'include'}")
    # Nothing is thrown through these loops, and there is one of them for each operation and element type, or pair of
    # types.
    command += ["-fno-exceptions", "-fno-asynchronous-unwind-tables"] if source in BY_TYPE or source in LOOPS else []
    command += extra if source.is_relative_to(ROOT / "ext") else []
    return command + os.environ.get("CUKERN_CXXFLAGS", "").split()


def prerequisites(depfile: str) -> list[Path]:
    """Return the files that a depfile names: blanks in names are escaped, lines continued."""
    _, _, names = depfile.replace("\\\n", " ").partition(": ")
    return [Path(name.replace("\\ ", " ")) for name in re.split(r"(?<!\\)\s+", names.strip())]


@dataclass
class _Job:
    source: Path
    command: list[str]
    object: Path
    element_types: list[str]

    @property
    def depfile(self) -> Path:
        return self.object.with_suffix(".d")

    def is_fresh(self) -> bool:
        if not (self.object.exists() and self.depfile.exists()):
            return False
        built = self.object.stat().st_mtime_ns
        # Headers from outside the tree are in the key by their version; under build isolation they move.
        ours = [path for path in prerequisites(self.depfile.read_text()) if path.is_relative_to(ROOT)]
        if self.source not in ours:  # a depfile that is not whole
            return False
        return all(path.exists() and path.stat().st_mtime_ns < built for path in ours)

    def run(self) -> None:
        self.object.parent.mkdir(parents=True, exist_ok=True)
        made, noted = self.object.with_suffix(".tmp.o"), self.object.with_suffix(".tmp.d")
        command = [*self.command]
        if self.element_types:
            command.append(f"-DCUKERN_EACH_TYPE(X)={' '.join(f'X({name})' for name in self.element_types)}")
        command += ["-MD", "-MF", str(noted), "-c", str(self.source), "-o", str(made)]
        print(shlex.join(command), flush=True)
        begin = time.time_ns()
        subprocess.run(command, check=True)
        os.utime(made, ns=(begin, begin))  # what is edited meanwhile is newer
        noted.replace(self.depfile)
        made.replace(self.object)  # an interrupted compiler leaves nothing that looks whole


def _key(build: Compilation, source: Path, command: list[str], volatile: list[str]) -> str:
    """Return the object folder's key. Flags that name throw-away folders don't count; versions do."""
    if not source.is_relative_to(ROOT / "ext"):
        version = build.toolkit.version() if build.toolkit else ""
    else:
        import numpy

        version = sys.version + numpy.__version__
    folders = {folder for flag, folder in pairwise(volatile) if flag == "-isystem"}
    stable = [flag for flag in command if flag not in folders]
    compiler = subprocess.run([*build.cxx, "--version"], check=True, capture_output=True, text=True).stdout
    return hashlib.sha256("\0".join([version, compiler, *stable]).encode()).hexdigest()[:12]


def compile_sources(build: Compilation, sources: list[Path], extra: list[str], force: bool = False) -> list[Path]:
    """Compile what is not fresh and return all objects. `extra` are flags for sources outside cuda/."""
    jobs = []
    keys: dict[tuple[str, ...], str] = {}
    for source in sources:
        command = _command(build, source, extra)
        kind = (*command, str(source.is_relative_to(ROOT / "ext")), source.suffix)
        if kind not in keys:
            keys[kind] = _key(build, source, command, extra)
        name = str(source.relative_to(ROOT)).replace("/", ".")
        folder = ROOT / f"build/obj-{keys[kind]}"
        for types in BY_TYPE.get(source, [[]]):
            jobs.append(_Job(source, command, folder / ".".join([name, *types, "o"]), types))
    stale = [job for job in jobs if force or not job.is_fresh()]
    workers = int(os.environ.get("MAX_JOBS") or os.cpu_count() or 1)
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(_Job.run, stale))
    return [job.object for job in jobs]


def link_flags(build: Compilation) -> list[str]:
    """Return what a shared object of ours is linked with: the CUDA runtime, static and not exported."""
    flags = [
        f"-Wl,--version-script={ROOT / 'ext/exports.map'}",
        "-Wl,--exclude-libs,ALL",
        "-Wl,-z,nodelete",  # threads of the pool run on when a program closes the library
        "-Wl,--no-undefined-version",
    ]
    if os.environ.get("CUKERN_STRIP", "1") == "1":
        flags.append("-Wl,-s")
    if build.toolkit is not None:
        flags.append(str(build.toolkit.library / "libcudart_static.a"))
    return [*flags, *LINK_LIBRARIES]
