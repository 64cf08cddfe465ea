"""An Array, its values, and everything that has a view of it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
from arrays import assert_same
from dlpack_tools import DTYPES

import cukern

from .core import Case
from .draw import MEMORIES, view_of

REFUSALS = (BufferError, TypeError, ValueError, RuntimeError, MemoryError)


class Exchange:
    """One Array, its values, and everything that has a view of it."""

    def __init__(self, case: Case) -> None:
        self.case = case
        shape = tuple(case.random.randint(0 if case.chance(0.1) else 1, 6) for _ in range(case.random.randint(0, 3)))
        self.dtype = np.dtype(case.pick(list(DTYPES)))
        base, view = view_of(case, shape)
        values = np.asarray(case.rng.integers(0, 2 if self.dtype == bool else 9, base)).astype(self.dtype)
        self.memory = case.pick(MEMORIES)
        self.base = case.call("asarray", cukern.asarray, values, memory=self.memory)
        self.array = view(self.base)
        self.values = np.asarray(view(values))
        case.note(f"a = {self.values.dtype}{self.array.shape} strides {self.array.strides} {self.memory}")
        self.kept: list[Any] = []
        self.host_sees = not case.on_gpu or self.memory != "device"

    def keep(self, subject: Any) -> None:
        """Hold a consumer for a while, or not."""
        if self.case.chance(0.6):
            self.kept.append(subject)
        while self.kept and self.case.chance(0.3):
            self.kept.pop(self.case.random.randrange(len(self.kept)))
        if self.case.chance(0.02):
            gc.collect(0)

    def sees(self, view: Any) -> None:
        """Assert that a consumer sees the values."""
        cukern.synchronize()
        assert_same(np.array(view), self.values)


def attempt(case: Case, name: str, call: Callable[[], Any], errors: tuple[type[BaseException], ...] = REFUSALS) -> Any:
    """Make a call that may be refused; None where it was."""
    case.note(name)
    try:
        return call()
    except errors as error:
        case.check(str(error), f"{name}: {type(error).__name__} without a message")
        case.refused += 1
        return None
