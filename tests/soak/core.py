"""A case: its random numbers, the ring that its calls are written to, and how it fails."""

from __future__ import annotations

import itertools
import mmap
import os
import random
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

import cukern

SLOTS = 64
SLOT_BYTES = 640
HEADER = struct.Struct("<qqd16s")  # number of the case, number of calls, time of the last one, kind
LIMIT = 1 << 30  # bytes of each memory that a process may take
SANITIZED = os.environ.get("CUKERN_TEST_SANITIZED") == "1"
SHOWN = 20  # of the last calls, where a case fails


class Failure(AssertionError):
    """What a case found wrong."""


class Ring:
    """The last calls, in a file that is left when the process dies."""

    def __init__(self, path: Path) -> None:
        size = HEADER.size + SLOTS * SLOT_BYTES
        if not path.exists() or path.stat().st_size != size:
            path.write_bytes(bytes(size))
        with path.open("r+b") as file:
            self.map = mmap.mmap(file.fileno(), size)
        self.count = itertools.count(1)
        self.calls = 0
        self.case = 0
        self.kind = b""

    def begin(self, case: int, kind: str) -> None:
        """Note that a case begins."""
        self.case, self.kind = case, kind.encode()
        HEADER.pack_into(self.map, 0, case, self.calls, time.time(), self.kind)

    def note(self, text: str) -> None:
        """Write one call."""
        number = self.calls = next(self.count)
        line = f"{self.case}: {text}".encode(errors="replace")[: SLOT_BYTES - 1]
        start = HEADER.size + number % SLOTS * SLOT_BYTES
        self.map[start : start + SLOT_BYTES] = line.ljust(SLOT_BYTES, b"\0")
        HEADER.pack_into(self.map, 0, self.case, number, time.time(), self.kind)


def read_ring(path: Path, shown: int = SHOWN) -> tuple[int, int, str, list[str]]:
    """Return the case that a ring was in, the number of its calls, the kind of the case, and the last calls."""
    data = path.read_bytes()
    case, calls, _, kind = HEADER.unpack_from(data)
    lines = []
    for number in range(max(1, calls - min(shown, SLOTS) + 1), calls + 1):
        start = HEADER.size + number % SLOTS * SLOT_BYTES
        lines.append(data[start : start + SLOT_BYTES].rstrip(b"\0").decode(errors="replace"))
    return case, calls, kind.rstrip(b"\0").decode(), lines


def describe(subject: Any) -> str:
    """Return a short text of an argument; nothing of it is computed or waited for."""
    kind = type(subject)
    try:
        if kind is cukern.Array:
            return f"Array<{subject.dtype}{subject.shape} strides {subject.strides} {subject.memory}>"
        if kind is np.ndarray:
            flags = "" if subject.flags.writeable else " read-only"
            offset = subject.__array_interface__["data"][0] % 64
            few = f" {subject.tolist()}" if subject.size <= 3 else ""
            return f"ndarray<{subject.dtype}{subject.shape} strides {subject.strides} at {offset}{flags}{few}>"
        if kind in (list, tuple) and len(subject) < 8:
            inner = ", ".join(map(describe, subject))
            return f"[{inner}]" if kind is list else f"({inner})"
        if kind is int and abs(subject) > 1 << 128:
            return f"int of {subject.bit_length()} bits"
        return repr(subject)[:90]
    except BaseException as error:
        return f"<{kind.__name__}, whose repr raises {type(error).__name__}>"


class Case:
    """One case: everything random in it comes from its seed and its number."""

    def __init__(self, seed: str, number: int, kind: str, backend: str, ring: Ring) -> None:
        self.random = random.Random(f"{seed}:{number}")
        self._rng: np.random.Generator | None = None
        self.seed = seed
        self.number = number
        self.kind = kind
        self.backend = backend
        self.ring = ring
        self.refused = 0
        self.note = ring.note

    @property
    def rng(self) -> np.random.Generator:
        """Return NumPy's generator; making one takes longer than most calls."""
        if self._rng is None:
            self._rng = np.random.default_rng(self.random.getrandbits(64))
        return self._rng

    @property
    def on_gpu(self) -> bool:
        return self.backend == "cuda"

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def pick(self, choices: Any) -> Any:
        return self.random.choice(choices)

    def note_call(self, name: str, /, *arguments: Any, **options: Any) -> None:
        texts = [describe(argument) for argument in arguments]
        texts += [f"{key}={describe(value)}" for key, value in options.items()]
        self.note(f"{name}({', '.join(texts)})")

    def call(self, name: str, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Any:
        """Note a call and make it."""
        self.note_call(name, *arguments, **options)
        return function(*arguments, **options)

    def fail(self, message: str) -> NoReturn:
        raise Failure(message)

    def check(self, condition: Any, message: str) -> None:
        if not condition:
            raise Failure(message)

    def refuses(self, errors: tuple[type[BaseException], ...], call: Callable[[], Any], why: str) -> None:
        """Assert that a call raises one of these exceptions, with a message."""
        try:
            result = call()
        except errors as error:
            self.check(str(error), f"{type(error).__name__} without a message, where {why}")
            self.refused += 1
        except Exception as error:
            self.fail(f"{type(error).__name__}: {error}; expected {[e.__name__ for e in errors]}, since {why}")
        else:
            self.fail(f"{describe(result)} was returned; expected {[e.__name__ for e in errors]}, since {why}")
