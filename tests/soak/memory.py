"""Limits, the end of memory, what is given back, cycles, failing calls of the back-end, children of fork."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import time
from typing import Any

import numpy as np

import cukern
from cukern import _cukern

from .core import LIMIT, SANITIZED, Case
from .draw import MEMORIES

KIB = 1 << 10
FAULTS = ["allocate", "launch", "copy", "stream", "event", "synchronize"]


class Node:
    """Something in a cycle that holds an Array."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.own = self


def limit(case: Case) -> None:
    """Allocate up to a limit, and beyond it."""
    memory = case.pick(MEMORIES)
    cukern.empty_cache()
    before = cukern.memory_info(memory)["in_use"]
    more = case.random.randint(1, 256) * KIB
    cukern.set_memory_limit(before + more, memory)
    kept: list[cukern.Array] = []
    try:
        case.check(cukern.memory_info(memory)["limit"] == before + more, "memory_info tells another limit")
        for _ in range(30):
            size = case.random.randint(0, 2 * more)
            case.note(f"empty({size}) of {memory}, {cukern.memory_info(memory)}")
            try:
                kept.append(cukern.empty(size, "int8", memory=memory))
            except cukern.OutOfMemoryError as error:
                case.check(size > 0 and str(error).startswith("empty: "), f"OutOfMemoryError: {error}")
                case.refused += 1
            info = cukern.memory_info(memory)
            case.check(info["in_use"] + info["cached"] <= before + more, f"{info} beyond the limit {before + more}")
            if kept and case.chance(0.4):
                kept.pop(case.random.randrange(len(kept)))
            if kept and case.chance(0.3):
                with contextlib.suppress(cukern.OutOfMemoryError):
                    kept.append(kept[-1] + 1)
    finally:
        cukern.set_memory_limit(LIMIT, memory)


def cycle(case: Case) -> None:
    """Let go of Arrays in cycles, by the collector or when memory is short."""
    memory = case.pick(MEMORIES)
    gc.collect()
    cukern.empty_cache()
    before = cukern.memory_info(memory)["in_use"]
    cukern.set_memory_limit(before + 64 * KIB, memory)
    try:
        for i in range(case.random.randint(1, 40)):
            case.note(f"a cycle that holds 16 KiB, {i}")
            Node(cukern.zeros(16 * KIB, "int8", memory=memory))
    finally:
        cukern.set_memory_limit(LIMIT, memory)
    gc.collect()
    cukern.synchronize()
    after = cukern.memory_info(memory)["in_use"]
    case.check(after == before, f"{after - before} bytes are in use after the cycles went")


def fault(case: Case) -> None:
    """Have the n-th call of some kind fail: an exception is right, and what was there is whole."""
    values = case.rng.integers(0, 9, (4, 6)).astype(np.float32)
    x = cukern.asarray(values, memory=case.pick(MEMORIES))
    out = cukern.zeros((4, 6), "float32")
    kind = case.pick(FAULTS)
    try:
        _cukern._inject_fault(kind, case.random.randint(1, 4))
    except ValueError:
        return
    calls = [
        lambda: cukern.add(x, x),
        lambda: cukern.add(values, values),
        lambda: cukern.matmul(x, x.T),
        lambda: cukern.asnumpy(x),
        lambda: cukern.sum(x, axis=0),
        lambda: cukern.copyto(out, values),
        lambda: cukern.cumulative_sum(x, axis=1),
        lambda: cukern.Stream().record(),
        x.__dlpack__,
        lambda: x.T.copy().tolist(),
        lambda: cukern.zeros(100, memory="pinned").sum(),
    ]
    try:
        for _ in range(case.random.randint(1, 4)):
            number = case.random.randrange(len(calls))
            case.note(f"call {number} with a fault in {kind}")
            try:
                calls[number]()
            except (RuntimeError, MemoryError) as error:
                case.check(str(error), f"{type(error).__name__} without a message")
                case.refused += 1
    finally:
        _cukern._inject_fault(kind, 0)
    case.check(np.array_equal(cukern.asnumpy(x), values), "an operand was changed by a call that failed")


def fork(case: Case) -> None:
    """Work in a child of fork; on a GPU only an error is to be had there."""
    if SANITIZED:
        return
    values = np.arange(10.0)
    kept = cukern.asarray(values)
    case.note("fork")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if case.on_gpu:
                try:
                    cukern.zeros(3)
                except RuntimeError:
                    code = 0
            else:
                fine = cukern.asnumpy(cukern.asarray(values) + 1).sum() == 55 and cukern.add(values, 1)[0] == 1
                code = 0 if fine else 2
            del kept
        except BaseException:
            code = 3
        finally:
            os._exit(code)
    end = time.monotonic() + 60
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            case.fail("a child of fork hangs")
        time.sleep(0.002)
    case.check(ended[1] == 0, f"a child of fork ended with {ended[1]:#x}")
    case.check(np.array_equal(cukern.asnumpy(kept), values), "an Array was changed by a child of fork")


def caches(case: Case) -> None:
    """Make and drop Arrays of all kinds, give back what is cached, look at the numbers in between."""
    kept: list[cukern.Array] = []
    for _ in range(case.random.randint(1, 20)):
        match case.random.randrange(6):
            case 0 | 1 | 2:
                kept.append(
                    cukern.zeros(
                        case.random.randint(0, 5000), case.pick(["int8", "float64"]), memory=case.pick(MEMORIES)
                    )
                )
            case 3 if kept:
                kept.pop(case.random.randrange(len(kept)))
            case 4:
                case.note("empty_cache")
                cukern.empty_cache()
                if not case.on_gpu:
                    case.check(
                        all(cukern.memory_info(memory)["cached"] == 0 for memory in MEMORIES),
                        "cached after empty_cache",
                    )
            case _:
                counters = cukern.counters()
                case.check(all(value >= 0 for value in counters.values()), f"counters: {counters}")
    for array in kept:
        case.check(not cukern.asnumpy(array).any(), "an Array of zeros has others")


def run(case: Case) -> None:
    """Run one case."""
    case.pick([limit, limit, cycle, fault, fault, fault, fork, caches, caches])(case)
