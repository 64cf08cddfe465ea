"""A process that runs one case after the other: python -m soak.worker, started by scripts/soak.py."""

from __future__ import annotations

import argparse
import faulthandler
import gc
import importlib
import json
import os
import random
import resource
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cukern
from cukern import _cukern

from .core import LIMIT, SANITIZED, Case, Failure, Ring, read_ring

CaseFunction = Callable[[Case], None]
# Module, share of the cases, and whether a GPU is needed.
KINDS: dict[str, tuple[str, int, bool]] = {
    "elementwise": ("elementwise", 26, False),
    "reductions": ("reductions", 16, False),
    "arrays": ("views", 14, False),
    "nonsense": ("nonsense", 20, False),
    "protocols": ("protocols", 12, False),
    "libraries": ("libraries", 4, False),
    "threads": ("threads", 2, False),
    "streams": ("streams", 3, False),
    "captures": ("captures", 2, True),
    "memory": ("memory", 3, False),
}
MEMORIES = ["device", "managed", "pinned"]
ADDRESSES = 12 << 30  # of the process, on the host: an allocation beyond is a MemoryError
LOOK_EVERY = int(os.environ.get("SOAK_LOOK_EVERY", "100"))  # cases, at what is still in use
HANG = 100  # seconds without a case's end, until all stacks are written


def kind_of(seed: str, number: int) -> str:
    """Return the kind of a case, whichever kinds are run."""
    choice = random.Random(f"{seed}:{number}:kind")
    return choice.choices(list(KINDS), [weight for _, weight, _ in KINDS.values()])[0]


def in_use() -> dict[str, int]:
    """Return the bytes that Arrays hold, of each memory and device."""
    return {
        f"{memory} {device}": cukern.memory_info(memory, device)["in_use"]
        for memory in MEMORIES
        for device in range(cukern.device_count())
    }


def collect() -> None:
    """Let go of everything that nothing refers to."""
    gc.collect()
    for device in range(cukern.device_count()):
        cukern.synchronize(device)
    cukern.empty_cache()


def held() -> tuple[int, ...]:
    """Return how many blocks, streams and events are held of the back-end, without what is kept for reuse."""
    collect()
    _cukern._release_caches()
    return tuple(_cukern._held())


class Worker:
    """Runs the cases of one seed."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.ring = Ring(options.ring)
        self.report = options.report.open("a", buffering=1)
        self.counts: dict[str, list[int]] = {}  # by kind: cases, refusals, failures
        self.functions: dict[str, CaseFunction] = {}
        self.began = time.monotonic()
        self.told = self.began
        self.looked_from = options.first
        self.unraisable: list[str] = []

    def write(self, **record: Any) -> None:
        self.report.write(json.dumps(record) + "\n")

    def fail(self, kind: str, number: int, message: str, text: str) -> None:
        self.counts.setdefault(kind, [0, 0, 0])[2] += 1
        calls = [line for line in read_ring(self.options.ring)[3] if line.startswith(f"{number}:")]
        self.write(failure={"kind": kind, "case": number, "message": message, "text": text, "calls": calls})

    def prepare(self) -> None:
        """Choose the back-end and load the kinds."""
        backend = self.options.backend
        _cukern._use_backend("cuda" if backend == "cuda" else "host")
        _cukern._set_staging(backend == "host-staged")
        if backend != "cuda" and not SANITIZED:
            resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
        for device in range(cukern.device_count()):
            for memory in MEMORIES:
                cukern.set_memory_limit(LIMIT, memory, device)
        for kind in self.options.kinds:
            module, _, needs_gpu = KINDS[kind]
            if not needs_gpu or backend == "cuda":
                self.functions[kind] = importlib.import_module(f"soak.{module}").run
        if backend == "cuda":  # cuBLAS keeps its workspace for the legacy default stream
            cukern.matmul_cublas(cukern.ones((2, 2)), cukern.ones((2, 2)))
        sys.unraisablehook = self.note_unraisable
        threading.excepthook = self.note_unraisable
        warnings.simplefilter("ignore")
        gc.collect()
        gc.freeze()
        collect()
        self.before = in_use()
        self.held = held()

    def note_unraisable(self, hook: Any) -> None:
        """Keep an exception that had no caller to go to: it fails the case."""
        lines = traceback.format_exception(hook.exc_type, hook.exc_value, hook.exc_traceback)
        where = getattr(hook, "object", None) or getattr(hook, "thread", None)
        self.unraisable.append(f"exception that was not raised, in {where!r:.100}: {''.join(lines)}")

    def run_case(self, number: int, kind: str) -> None:
        self.ring.begin(number, kind)
        counts = self.counts.setdefault(kind, [0, 0, 0])
        counts[0] += 1
        case = Case(self.options.seed, number, kind, self.options.backend, self.ring)
        try:
            self.functions[kind](case)
        except BaseException as error:
            text = traceback.format_exc()
            known = isinstance(error, Failure)
            self.fail(kind, number, str(error) if known else f"{type(error).__name__}: {error}", text)
        counts[1] += case.refused
        while self.unraisable:
            text = self.unraisable.pop()
            self.fail(kind, number, text.strip().splitlines()[-1], text)

    def settle(self) -> dict[str, int]:
        """Return what is in use when other libraries' threads have let go of what they were lent, in their own time."""
        collect()
        now = in_use()
        for _ in range(20):
            if now == self.before:
                break
            time.sleep(0.05)
            collect()
            now = in_use()
        return now

    def run_capture(self, number: int, kind: str) -> None:
        """Run a case whose Arrays' memory stays with their graphs' addresses: it is never used again."""
        use, have = self.settle(), held()
        self.run_case(number, kind)
        collect()
        for place, now in in_use().items():
            self.before[place] += now - use[place]
        self.held = tuple(a + b - c for a, b, c in zip(self.held, held(), have, strict=True))

    def look(self, number: int) -> None:
        """See that nothing is in use that was not at the start."""
        now = self.settle()
        if now != self.before:
            more = {place: now[place] - self.before[place] for place in now if now[place] != self.before[place]}
            message = f"bytes that are still in use: {more}"
            self.fail("leaks", number, message, f"{message}, by cases {self.looked_from} to {number}")
            self.before = now
        self.looked_from = number + 1

    def tell(self, end: float) -> None:
        """Write the counts twice a second; have a hang written down."""
        now = time.monotonic()
        if now - self.told > 0.5 or end <= now:
            self.told = now
            faulthandler.dump_traceback_later(HANG, repeat=True)
            self.write(counts=self.counts, seconds=now - self.began)

    def run(self) -> None:
        self.prepare()
        faulthandler.dump_traceback_later(HANG, repeat=True)
        options = self.options
        end = self.began + options.seconds
        number = options.first
        ran = 0
        while number <= options.last and (time.monotonic() < end or options.last < sys.maxsize):
            kind = kind_of(options.seed, number)
            if kind in self.functions:
                if kind == "captures":
                    self.run_capture(number, kind)
                else:
                    self.run_case(number, kind)
                ran += 1
                if ran % LOOK_EVERY == 0:
                    self.look(number)
                self.tell(end)
            number += 1
        self.look(number - 1)
        if (now := held()) != self.held:
            message = f"blocks, streams and events held of the back-end: {self.held} at first, {now} in the end"
            self.fail("leaks", number - 1, message, message)
        usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        self.write(counts=self.counts, seconds=time.monotonic() - self.began)
        self.write(done={"last": number - 1, "mebibytes": usage})
        self.report.close()


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", required=True, help="seed:index")
    parser.add_argument("--backend", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--last", type=int, default=sys.maxsize)
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=list(KINDS))
    parser.add_argument("--ring", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    faulthandler.enable(all_threads=True)
    Worker(parse()).run()
