#!/usr/bin/env python3
"""Random calls from a seed, in several processes, for a given time; exit status 1 if anything was wrong.

    python scripts/soak.py                           a minute on each processor, of a seed from the clock
    python scripts/soak.py --seconds 420 --log build/soak --resume      again and again: the log sums the time up
    python scripts/soak.py --seed sources --to 9000  the first cases of the seed that the sources' hash gives
    python scripts/soak.py --seed 17:3 --case 4711   that case of that seed alone
    python scripts/soak.py --seed 17:3 --from 4000 --to 4711     where a failure depends on the cases before it

Each process has a seed of its own, main seed:index, and each case random numbers from this seed and its number
alone. A process that dies, or is silent for two minutes, is reported with faulthandler's stacks and the last
calls, and started anew behind the case that it was in. tests/soak has the cases.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "scripts")]  # in this order: this file has the name of a package

from soak.core import read_ring  # noqa: E402
from soak.worker import KINDS  # noqa: E402
from source_id import source_id  # noqa: E402

# The extension as it was built in the tree, for every Python; else cukern as each has it installed.
PACKAGE = str(ROOT / "python") if list((ROOT / "python/cukern").glob("_cukern*.so")) else ""
SILENCE = 130.0  # seconds without a call, after which a process is taken to hang
SHOWN = 3  # failures of one signature that are shown in full
RESTARTS = 60  # of one process
BACKENDS = ["host", "host-staged", "cuda"]


@dataclass
class Process:
    """One worker, and what it has told."""

    seed: str
    python: str
    backend: str
    folder: Path
    options: argparse.Namespace
    first: int = 0
    child: subprocess.Popen[bytes] | None = None
    runs: int = 0
    counts: dict[str, list[int]] = field(default_factory=dict)  # of runs that have ended
    seconds: float = 0
    last: tuple[int, int] = (0, 0)  # case and call
    heard: float = 0
    began: float = 0  # of the run under way
    failures: list[dict[str, Any]] = field(default_factory=list)

    def path(self, suffix: str) -> Path:
        return self.folder / f"{self.seed.replace(':', '-')}.{suffix}"

    def environment(self) -> dict[str, str]:
        """Return the worker's variables; what the seed decides is the same when a case is run again."""
        choice = random.Random(f"{self.seed}:environment")
        own = {
            "PYTHONPATH": os.pathsep.join(
                part for part in (os.environ.get("PYTHONPATH"), str(ROOT / "tests"), PACKAGE) if part
            ),
            "CUKERN_NUM_THREADS": choice.choice(["1", "2", "4"]),
            "OPENBLAS_NUM_THREADS": "1",
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
            "CUKERN_PLACEMENT": "device",  # so that arrays of the host reach the kernels
        }
        if self.backend != "cuda":
            own["CUKERN_BACKEND"] = "host"
            own["CUKERN_HOST_DEVICES"] = choice.choice(["1", "1", "2"])
        if choice.random() < 0.2:
            own["CUKERN_POOL"] = "0"
        return {**os.environ, **own}

    def start(self, seconds: float) -> None:
        options = self.options
        command = [self.python, "-X", "faulthandler", "-m", "soak.worker", "--seed", self.seed]
        command += ["--backend", self.backend, "--seconds", str(seconds), "--first", str(self.first)]
        command += ["--ring", str(self.path("ring")), "--report", str(self.path("report"))]
        command += ["--kinds", options.kinds] if options.kinds else []
        command += ["--last", str(options.to)] if options.to is not None else []
        for name in ("ring", "report"):
            self.path(name).unlink(missing_ok=True)
        with self.path("output").open("wb") as output:
            self.child = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, env=self.environment(), cwd=self.folder
            )
        self.runs += 1
        self.last, self.heard, self.began = (0, 0), time.monotonic(), time.monotonic()

    def again(self, case: int) -> str:
        """Return the command that runs a case again."""
        command = f"python scripts/soak.py --seed {self.seed} --case {case} --backend {self.backend}"
        return command + (f" --python {self.python}" if self.python != sys.executable else "")

    def look(self, end: float) -> bool:
        """Whether the process is still running; ends and restarts it where that is needed."""
        assert self.child is not None
        code = self.child.poll()
        if code is None:
            if self.path("ring").exists():
                case, calls, _, _ = read_ring(self.path("ring"), 0)
                if (case, calls) != self.last:
                    self.last, self.heard = (case, calls), time.monotonic()
            if time.monotonic() - self.heard < SILENCE:
                return True
            self.child.send_signal(signal.SIGABRT)  # faulthandler writes the stacks
            try:
                self.child.wait(10)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()
            self.take(f"no call for {SILENCE:.0f} s: a hang")
        elif self.take("" if code == 0 else f"the process ended with {name_of(code)}"):
            return False
        left = end - time.monotonic()
        over = self.options.to is not None and self.first > self.options.to
        if left < 2 or over or self.runs > RESTARTS:
            return False
        self.start(left)
        return True

    def take(self, ended: str) -> bool:
        """Add what a run has told. A run that did not come to its end is a failure of the case that it was in, whatever
        its exit status; return whether it did.
        """
        counts: dict[str, list[int]] = {}
        done = False
        report = self.path("report")
        for line in report.read_text().splitlines() if report.exists() else []:
            try:
                record = json.loads(line)
            except json.JSONDecodeError:  # the process died in the midst of it
                continue
            counts = record.get("counts", counts)
            done |= "done" in record
            if "failure" in record:
                self.failures.append(record["failure"])
        if ended or not done:
            ended = ended or "the process ended before its last case, with exit status 0"
            case, _, kind, lines = read_ring(self.path("ring")) if self.path("ring").exists() else (-1, 0, "start", [])
            text = self.path("output").read_text(errors="replace")[-6000:]
            self.failures.append({"kind": kind, "case": case, "message": ended, "text": text, "calls": lines})
            entry = counts.setdefault(kind, [1, 0, 0])
            entry[2] += 1
            self.first = case + 1
        self.seconds += time.monotonic() - self.began
        for kind, numbers in counts.items():
            own = self.counts.setdefault(kind, [0, 0, 0])
            own[:] = [x + y for x, y in zip(own, numbers, strict=True)]
        return done and not ended


def name_of(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit status {code}"


def signature(failure: dict[str, Any]) -> str:
    """Return what failures of one cause have in common."""
    words = re.sub(r"-?\d[\d.e+-]*|0x[0-9a-f]+", "#", " ".join(failure["message"].split()))[:90]
    last = failure["calls"][-1] if failure["calls"] else ""
    name = re.sub(r"^\d+: ", "", last).split("(")[0]
    return f"{failure['kind']} {name}: {words}"


def show(processes: list[Process]) -> int:
    """Print the failures, the first of each signature in full; return their number."""
    seen: dict[str, int] = {}
    for process in processes:
        for failure in process.failures:
            key = signature(failure)
            seen[key] = seen.get(key, 0) + 1
            if seen[key] > SHOWN:
                continue
            print(f"\n==== {failure['kind']}: case {failure['case']} of seed {process.seed}, {process.python}")
            print(f"     {process.again(failure['case'])}")
            print(failure["message"].strip()[:1500])
            if seen[key] == 1:
                print(failure["text"].strip()[-5000:])
                print("the last calls:", *failure["calls"], sep="\n    ")
    if seen:
        print("\nfailures by signature:")
    for key, times in sorted(seen.items(), key=lambda item: -item[1]):
        print(f"{times:8} {key}")
    return sum(seen.values())


def table(counts: dict[str, list[int]]) -> str:
    lines = [f"{'kind':12} {'cases':>10} {'refusals':>10} {'failures':>10}"]
    total = [sum(column) for column in zip(*counts.values(), strict=True)] or [0, 0, 0]
    for kind, numbers in [*sorted(counts.items()), ("all", total)]:
        lines.append(f"{kind:12} " + " ".join(f"{number:10}" for number in numbers))
    return "\n".join(lines)


def added(all_counts: list[dict[str, list[int]]]) -> dict[str, list[int]]:
    result: dict[str, list[int]] = {}
    for counts in all_counts:
        for kind, numbers in counts.items():
            result[kind] = [x + y for x, y in zip(result.get(kind, [0, 0, 0]), numbers, strict=True)]
    return result


def sum_up(log: Path, source: str) -> None:
    """Print what the log has of these sources."""
    records = [json.loads(line) for line in log.read_text().splitlines()]
    same = [record for record in records if record["source"] == source]
    print(f"\n{log}: {len(same)} runs of these sources, {len(records)} in all")
    if same:
        print(table(added([record["counts"] for record in same])))
        print(f"{sum(record['process_minutes'] for record in same):.1f} process-minutes")


def has_gpu(python: str) -> bool:
    script = "from cukern import _cukern; _cukern._use_backend('cuda')"
    path = os.pathsep.join(part for part in (os.environ.get("PYTHONPATH"), PACKAGE) if part)
    done = subprocess.run(
        [python, "-c", script], capture_output=True, check=False, env={**os.environ, "PYTHONPATH": path}
    )
    return done.returncode == 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", default="", help="a number, number:index for one process of it, or sources")
    parser.add_argument("--case", type=int, help="run one case")
    parser.add_argument("--from", type=int, default=0, dest="first", help="run from this case on")
    parser.add_argument("--to", type=int, help="run up to this case, however long it takes")
    parser.add_argument("--backend", choices=BACKENDS, help="default: cuda if usable, else both forms of host")
    parser.add_argument("--python", nargs="+", action="extend", help="Pythons to spread the processes over")
    parser.add_argument("--kinds", default="", help="of " + ",".join(KINDS))
    parser.add_argument("--log", type=Path, help="a folder: soak.jsonl in it gets a line")
    parser.add_argument("--resume", action="store_true", help="sum up the log's runs of the same sources")
    options = parser.parse_args()
    if unknown := set(filter(None, options.kinds.split(","))) - set(KINDS):
        parser.error(f"there is no kind {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    if options.case is not None:
        options.first = options.to = options.case
    if options.seed == "sources":  # what passed once passes again: CI repeats what was seen before it
        options.seed = str(int(source_id()[:8], 16))
    options.seed = options.seed or str(int(time.time()))
    if ":" in options.seed:
        options.processes = 1
    return options


def main() -> int:
    options = parse()
    pythons = [str(Path(python).absolute()) for python in options.python or [sys.executable]]
    folder = (options.log or ROOT / "build/soak") / f"work-{os.getpid()}"
    folder.mkdir(parents=True, exist_ok=True)
    source = source_id()
    backends = [options.backend] if options.backend else ["cuda"] if has_gpu(pythons[0]) else BACKENDS[:2]
    main_seed, _, index = options.seed.partition(":")
    processes = [
        Process(
            seed=f"{main_seed}:{i}",
            python=pythons[(i // len(backends) + zlib.crc32(main_seed.encode())) % len(pythons)],
            backend=backends[i % len(backends)],
            folder=folder.resolve(),
            options=options,
            first=options.first,
        )
        for i in ([int(index)] if index else range(options.processes))
    ]
    print(f"seed {options.seed}, {len(processes)} processes, {'/'.join(backends)}, sources {source[:12]}", flush=True)
    end = time.monotonic() + options.seconds
    for process in processes:
        process.start(options.seconds)
    running = list(processes)
    try:
        while running:
            running = [process for process in running if process.look(end)]
            time.sleep(0.2)
    finally:
        for process in processes:
            if process.child is not None and process.child.poll() is None:
                process.child.kill()
    failures = show(processes)
    if not any(process.counts for process in processes):
        print("no case was run")
        failures += 1
    counts = added([process.counts for process in processes])
    minutes = sum(process.seconds for process in processes) / 60
    print("\n" + table(counts))
    if not failures:
        shutil.rmtree(folder)
    print(f"{minutes:.1f} process-minutes; seeds {', '.join(process.seed for process in processes)}")
    if options.log:
        record = {
            "time": time.strftime("%Y-%m-%d %H:%M:%S"),
            "source": source,
            "seed": options.seed,
            "backends": backends,
            "pythons": pythons,
            "process_minutes": round(minutes, 2),
            "counts": counts,
            "failures": failures,
        }
        with (options.log / "soak.jsonl").open("a") as log:
            log.write(json.dumps(record) + "\n")
        if options.resume:
            sum_up(options.log / "soak.jsonl", source)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
