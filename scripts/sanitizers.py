#!/usr/bin/env python3
"""Runs the tests on the host back-end under the compilers' sanitizers.

    python scripts/sanitizers.py [address] [thread] [kernels] [--soak SECONDS] [-- pytest's arguments]

address  AddressSanitizer and UndefinedBehaviorSanitizer, over the suite
thread   ThreadSanitizer, over the tests of threads, streams, memory and of what the pool of threads computes
kernels  AddressSanitizer and checks of alignment, over the GPU's kernels, which run on the processor (tests/emulation)

Without a name all run, side by side. The extension is built apart for each, in build/sanitizers; the plain Python
runs it with the sanitizer's library preloaded. First planted defects must be found, so that a clean run means
something. Leaks are looked for in reports whose stack passes through the extension: Python itself leaves
memory behind at exit. Every other report counts, wherever its stack lies, but for tsan_suppressions.txt. After the
tests random calls are run (scripts/soak.py): the first cases of the seed that the sources' hash gives, or, with --soak,
so many seconds of a new seed, which is printed; --soak 0 leaves them out.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build/sanitizers"
LIMIT_S = 1500  # for one run of the tests
NO_TESTS = 5  # pytest's exit code
LAST_WORDS = 8000  # characters of what a process that failed has written
# Not run under any: what looks at the installed package, or at how long something takes.
LEFT_OUT = "not test_package and not test_import_is_quick"


@dataclass(frozen=True)
class Sanitizer:
    """How one build is made, run and read."""

    flags: str  # of the compiler and of the linker
    more_flags: str  # of the compiler only
    libraries: tuple[str, ...]  # that must come first in the process
    environment: dict[str, str]  # LOG is where the reports go
    defects: dict[str, str]  # planted, and what the report of each says
    errors: str  # a pattern of what begins a report
    files: tuple[str, ...]  # of the tests; none for all
    left_out: str = LEFT_OUT
    build: dict[str, str] = field(default_factory=dict)  # more of the build's environment
    cases: int = 8000  # of random calls, some minutes
    parts: int = 1  # of the tests, in processes side by side


ADDRESS_OPTIONS = (
    # Leaks at exit keep the exit status (the two share exitcode), so an error ends the process by a signal.
    "log_path=LOG:print_suppressions=0:detect_leaks=1:abort_on_error=1:handle_abort=0:allocator_may_return_null=1"
)
ADDRESS = Sanitizer(
    flags="-fsanitize=address,undefined",
    more_flags="-fno-sanitize-recover=undefined",
    libraries=("libasan.so", "libubsan.so", "libstdc++.so"),
    environment={
        "ASAN_OPTIONS": ADDRESS_OPTIONS,
        "LSAN_OPTIONS": "log_path=LOG:print_suppressions=0:exitcode=0:max_leaks=0",
        "UBSAN_OPTIONS": "log_path=LOG:print_suppressions=0:print_stacktrace=1:halt_on_error=1:abort_on_error=1",
    },
    defects={
        "overrun": "heap-buffer-overflow",
        "leak": "detected memory leaks",
        "overflow": "signed integer overflow",
    },
    errors="ERROR: AddressSanitizer|runtime error:|CHECK failed|LeakSanitizer has encountered a fatal error",
    files=(),
    parts=2,
)
SANITIZERS = {
    "address": ADDRESS,
    "thread": Sanitizer(
        flags="-fsanitize=thread",
        more_flags="",
        libraries=("libtsan.so", "libstdc++.so"),
        environment={
            # A child of fork starts threads of its own; an allocation of exabytes is to fail, not to end the process.
            "TSAN_OPTIONS": "log_path=LOG:halt_on_error=0:exitcode=66:second_deadlock_stack=1"
            f":die_after_fork=0:allocator_may_return_null=1:suppressions={ROOT / 'scripts/tsan_suppressions.txt'}"
            ":print_suppressions=0",
        },
        defects={"race": "data race"},
        errors="(WARNING|ERROR): ThreadSanitizer",
        # What is not here has one thread, and its kernels and copies are those of the files that are.
        files=(
            *(
                "test_threads.py",
                "test_transfer_engine.py",
                "test_host_memory.py",
                "test_array_threads.py",
                "test_streams.py",
                "test_memory.py",
                "test_memory_limits.py",
            ),
            *("test_array_faults.py", "test_faults.py", "test_elementwise.py", "test_matmul.py", "test_dlpack.py"),
            *("test_dlpack_import.py", "test_dlpack_exchange.py", "test_devices.py", "test_c_abi.py", "test_out.py"),
            "test_operands.py",
        ),
    ),
    # Everything but the .cu files is compiled as for address, so that its objects are shared. The .cu files are checked
    # for addresses and alignment alone: the arithmetic of their formulas is that of the host's loops.
    "kernels": replace(
        ADDRESS,
        environment=ADDRESS.environment | {"ASAN_OPTIONS": ADDRESS_OPTIONS.replace("detect_leaks=1", "detect_leaks=0")},
        defects={defect: message for defect, message in ADDRESS.defects.items() if defect != "leak"},
        files=("test_layouts.py", "test_reductions.py", "test_reduction_layouts.py", "test_cumulative.py"),
        parts=1,
        left_out=LEFT_OUT + " and not staged",
        build={
            "CUKERN_EMULATE_KERNELS": "1",
            "CUKERN_EMULATION_CXXFLAGS": "-fno-sanitize=undefined -fsanitize=alignment -fno-sanitize-recover=alignment",
        },
        cases=6000,
    ),
}


class Runner:
    """Builds the package with one sanitizer and runs Python on it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sanitizer = SANITIZERS[name]
        self.folder = FOLDER / name
        self.package = self.folder / "site"
        self.pids: set[str] = set()  # of the last runs

    def build(self) -> None:
        shutil.rmtree(self.package, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        flags = ["-g1 -O1 -fno-omit-frame-pointer", self.sanitizer.flags, self.sanitizer.more_flags]
        environment = {
            **os.environ,
            "CUKERN_HOST_ONLY": "1",
            "CUKERN_STUBS": "0",
            "CUKERN_STRIP": "0",
            "CUKERN_CXXFLAGS": " ".join([*flags, "-DCUKERN_PLANTED_DEFECTS"]),
            "CUKERN_LDFLAGS": self.sanitizer.flags,
            **self.sanitizer.build,
        }
        command = [sys.executable, "setup.py", "-q", "build", "--build-base", self.folder, "--build-lib", self.package]
        subprocess.run(command, check=True, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)

    def preload(self) -> str:
        """Return the libraries that must come first in the process."""
        compiler = os.environ.get("CXX", "g++")
        run = [
            subprocess.run([compiler, f"-print-file-name={name}"], check=True, capture_output=True, text=True)
            for name in self.sanitizer.libraries
        ]
        return ":".join(os.path.realpath(done.stdout.strip()) for done in run)

    def clear(self) -> None:
        """Forget what earlier runs reported."""
        for old in self.folder.glob("report*"):
            old.unlink()
        self.pids.clear()

    def run(self, *arguments: str | Path, part: int = 0) -> int:
        """Run Python on the sanitized package; reports go to files of its part. Return the exit code."""
        log = self.folder / f"report-{part}"
        environment = {
            **os.environ,
            "LD_PRELOAD": self.preload(),
            "PYTHONMALLOC": "malloc",
            "PYTHONPATH": str(self.package),
            **{name: value.replace("LOG", str(log)) for name, value in self.sanitizer.environment.items()},
            "CUKERN_BACKEND": "host",
            "CUKERN_NUM_THREADS": "4",
            "CUKERN_TEST_SMALL": "1",
            "CUKERN_TEST_SANITIZED": "1",
            "OPENBLAS_NUM_THREADS": "1",  # its threads and locks are unknown to ThreadSanitizer
        }
        # UndefinedBehaviorSanitizer reports to stderr.
        with log.with_name(f"{log.name}.stderr").open("w") as stderr, self.output(part).open("w") as stdout:
            command = [sys.executable, *arguments]
            process = subprocess.Popen(command, env=environment, cwd=self.folder, stdout=stdout, stderr=stderr)
            self.pids.add(str(process.pid))
            try:
                return process.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                print(f"{self.name}: not done after {LIMIT_S} s", file=sys.stderr)
                return process.poll() or 124
            finally:
                process.kill()
                process.wait()

    def output(self, part: int) -> Path:
        return self.folder / f"output-{part}"

    def logs(self) -> list[tuple[str, str]]:
        """Return the reports' texts, each with what tells its process: the number, or stderr."""
        paths = sorted(self.folder.glob("report-*"))
        return [(path.suffix[1:], path.read_text(errors="replace")) for path in paths]

    def reports(self) -> list[str]:
        """Return the reports of a run: all errors, and the leaks that concern the extension.

        Of the processes that the tests start only errors count: a child of fork leaves what it has inherited, and
        a process that ends leaves what is alive, both on purpose.
        """
        found = []
        ours = ["_cukern", f"{ROOT / 'ext'}/", f"{ROOT / 'cuda'}/"]
        for process, text in self.logs():
            # ThreadSanitizer's reports have blank lines in them and lie between lines of equals signs.
            for block in re.split(r"^={18}$", text, flags=re.M) if self.name == "thread" else text.split("\n\n"):
                is_error = re.search(self.sanitizer.errors, block) is not None
                is_leak = "leak of" in block and any(place in block for place in ours) and process in self.pids
                if is_error or is_leak:
                    found.append(block.strip("\n"))
        return found

    def show(self, problems: list[str], failed: bool) -> None:
        """Print the problems; where a run failed without any, print what it and the sanitizer wrote, too."""
        print(*problems, sep="\n\n", file=sys.stderr)
        if problems or not failed:
            return
        for process, text in self.logs():
            if process in {"stderr", *self.pids}:
                print(f"{self.name}: {process}:", text[-LAST_WORDS:], sep="\n", file=sys.stderr)

    def find_planted(self) -> bool:
        """Whether each planted defect is found."""
        for defect, message in self.sanitizer.defects.items():
            self.clear()
            self.run("-c", f"from cukern import _cukern; _cukern._plant_defect({defect!r})")
            if not any(message in text for _, text in self.logs()) or not self.reports():
                print(f"{self.name}: the planted {defect} was not found", file=sys.stderr)
                return False
            print(f"{self.name}: planted {defect}: found", flush=True)
        return True

    def test(self, arguments: list[str]) -> bool:
        """Run the tests; whether they passed and no problem was reported."""
        begin = time.monotonic()
        files = self.sanitizer.files or sorted(path.name for path in (ROOT / "tests").glob("test_*.py"))
        options = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not build", "-k", self.sanitizer.left_out]

        def run_part(part: int) -> int:
            own = [ROOT / "tests" / name for name in files[part :: self.sanitizer.parts]]
            return self.run(*options, *arguments, *own, part=part)

        self.clear()
        parts = range(self.sanitizer.parts)
        with ThreadPoolExecutor(len(parts)) as pool:
            codes = list(pool.map(run_part, parts))
        problems = self.reports()
        for part, code in zip(parts, codes, strict=True):
            output = self.output(part).read_text(errors="replace")
            shown = [line for line in output.splitlines() if not line.startswith("SKIPPED ")]
            print(*(shown if code else shown[-1:]), sep="\n")
        passed = 0 in codes and not set(codes) - {0, NO_TESTS}
        self.show(problems, not passed)
        print(
            f"{self.name}: pytest ended with {', '.join(map(str, codes))} in {time.monotonic() - begin:.0f} s; "
            f"the sanitizer reported {len(problems)} problems",
            flush=True,
        )
        return not problems and passed

    def soak(self, seconds: float | None) -> bool:
        """Run random calls; whether they passed and no problem was reported."""
        folder = self.folder / "soak"
        options = ["--backend", "host", "--processes", "1", "--log", folder]
        options += (
            ["--seed", "sources", "--to", str(self.sanitizer.cases)] if seconds is None else ["--seconds", str(seconds)]
        )
        self.clear()
        code = self.run(ROOT / "scripts/soak.py", *options)
        problems = self.reports()
        print(self.output(0).read_text(errors="replace")[-6000:])
        self.show(problems, code != 0)
        print(f"{self.name}: soak ended with {code}; the sanitizer reported {len(problems)} problems", flush=True)
        return not problems and code == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="name", help="address, thread or kernels; all by default")
    parser.add_argument("--soak", type=float, metavar="SECONDS", help="of random calls of a new seed, after the tests")
    arguments = sys.argv[1:]
    at = arguments.index("--") if "--" in arguments else len(arguments)
    own, others = arguments[:at], arguments[at + 1 :]
    options = parser.parse_args(own)
    names = options.names or list(SANITIZERS)
    if unknown := set(names) - set(SANITIZERS):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(SANITIZERS)}")
    runners = [Runner(name) for name in names]
    for runner in runners:
        runner.build()
        if not runner.find_planted():
            return 1
    with ThreadPoolExecutor(len(runners)) as pool:
        passed = list(pool.map(lambda runner: runner.test(others), runners))
        if options.soak != 0:
            passed += pool.map(lambda runner: runner.soak(options.soak), runners)
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
