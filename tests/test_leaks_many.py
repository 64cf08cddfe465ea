"""A hundred thousand calls leave as much memory in use as a thousand do, whether they succeed or fail.

Each case runs in a process of its own. On a GPU it looks at all of the GPU's memory: nothing else may run there.
"""

from __future__ import annotations

import gc
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interchange_tools import GPU_LIBRARIES, HOST_LIBRARIES, MEMORIES, Library
from processes import run_quietly

import cukern

SMALL = os.environ.get("CUKERN_TEST_SMALL") == "1"  # conftest, which has them too, would start the GPU in the child
SANITIZED = os.environ.get("CUKERN_TEST_SANITIZED") == "1"
REQUIRE_GPU = os.environ.get("CUKERN_REQUIRE_GPU") == "1"
POOLED = os.environ.get("CUKERN_POOL") != "0"

FIRST = 100 if SMALL else 1000
TIMES = 500 if SMALL else 100_000
BATCH = 100 if SMALL else 1000  # calls from one wait for the device to the next, so that its queue stays short
MOST = 1 << 20  # bytes of host memory that may be resident beyond what was after the first calls
MOST_OF_GPU = TIMES  # of its memory: the driver takes some for itself as processes on other GPUs come and go
PAGE = os.sysconf("SC_PAGE_SIZE")

KINDS = {
    "host": ["ndarray", *MEMORIES, "torch", "jax"],
    "cuda": ["ndarray", *MEMORIES, "torch", "cupy", "jax"],
}
QUIET = {
    "MALLOC_ARENA_MAX": "1",  # other libraries' threads would have heaps of their own
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
SCRIPT = """
    import sys
    sys.path.insert(0, {tests!r})
    from test_leaks_many import measure
    for call in {calls!r}:
        measure({where!r}, {kind!r}, call, {leak!r})
"""


# --- in the child ---


def maker(where: str, kind: str) -> Callable[[np.ndarray], Any]:
    """Return what makes arrays of a kind; skip where the library is not there."""
    if kind in MEMORIES:
        return lambda values: cukern.asarray(values, memory=kind)
    libraries: dict[str, Callable[[], Library]] = GPU_LIBRARIES if where == "cuda" else HOST_LIBRARIES
    return np.copy if kind == "ndarray" else libraries[kind]().make


def calls_of(where: str, kind: str) -> dict[str, tuple[Callable[[], Any], tuple[type[Exception], str] | None]]:
    """Return calls, and the errors that they end in: all are found before anything is launched."""
    make = maker(where, kind)
    x, y = make(np.ones((8, 16), np.float32)), make(np.full((8, 16), 2, np.float32))
    narrow, whole = make(np.ones((8, 15), np.float32)), make(np.ones((8, 16), np.int32))
    no_out = (ValueError, "read-only|immutable") if kind == "jax" else (TypeError, "same_kind")
    calls: dict[str, Any] = {
        "result": (lambda: cukern.add(x, y), None),
        "shapes": (lambda: cukern.add(x, narrow), (ValueError, "do not broadcast")),
        "out's element type": (lambda: cukern.add(x, y, out=whole), no_out),
        "out is no array": (lambda: cukern.add(x, y, out=[x]), (TypeError, "out")),
    }
    assert type(calls["result"][0]()) is type(x)
    return calls


def repeat(call: Callable[[], Any], error: type[Exception] | None, times: int) -> None:
    """Make many calls, each of which must end in the error if there is one."""
    if error is None:
        for _ in range(times):
            call()
        return
    for _ in range(times):
        try:
            call()
        except error:
            continue
        raise AssertionError("it did not fail")


def resident() -> int:
    """Return the bytes of resident memory, exactly: newer kernels' statm is some hundred pages out of date."""
    try:
        with open("/proc/self/smaps_rollup") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Rss:"))
    except OSError:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * PAGE


def state(where: str) -> dict[str, int]:
    """Return what is in use, in bytes, once all work is done and what can be freed is."""
    cukern.synchronize()
    gc.collect()
    used = {"resident": resident()}
    for memory in MEMORIES:
        info = cukern.memory_info(memory)
        used[memory] = info["in_use"] + info["cached"]
    if where == "cuda":  # elsewhere it is the machine's, which others use too
        info = cukern.memory_info("device")
        used["GPU"] = info["total"] - info["free"]
    return used


LEAKS: dict[str, Callable[[Callable[[], Any], list[Any]], Callable[[], Any]]] = {
    "": lambda call, kept: call,
    "a result": lambda call, kept: lambda: kept.append(call()),
    "16 bytes": lambda call, kept: lambda: (kept.append(object()), call()),
    "a wait": lambda call, kept: lambda: (cukern.synchronize(), call()),
    "a launch": lambda call, kept: lambda: (cukern.ones(3), call()),
}


def kept_by_jax() -> int:
    """Return the bytes that JAX's own imports of one Array leave resident, as many as a result's: on a GPU they do."""
    import jax.numpy

    own = cukern.ones((8, 16), np.float32)
    before = resident()
    for _ in range(TIMES // BATCH):
        repeat(lambda: jax.numpy.from_dlpack(own), None, BATCH)
        cukern.synchronize()
    return max(0, resident() - before)


def measure(where: str, kind: str, name: str, leak: str) -> None:
    """Print what the first calls, and what many more, leave in use, and what the latter add to the counters."""
    logging.disable(logging.WARNING)
    try:
        call, expected = calls_of(where, kind)[name]
    except pytest.skip.Exception as skip:
        print(json.dumps({"skip": str(skip)}))
        return
    error = None
    if expected is not None:
        error, text = expected
        with pytest.raises(error, match=text):
            call()
    call = LEAKS[leak](call, [])
    counted = dict.fromkeys(cukern.counters(), 0)
    state(where)  # what looking takes itself
    repeat(call, error, FIRST)
    before = state(where)
    for _ in range(TIMES // BATCH):
        old = cukern.counters()
        repeat(call, error, BATCH)
        new = cukern.counters()
        for counter in counted:
            counted[counter] += new[counter] - old[counter]
        cukern.synchronize()
    after = state(where)
    library = kept_by_jax() if (where, kind, name) == ("cuda", "jax", "result") else 0
    print(json.dumps({"before": before, "after": after, "counted": counted, "library": library}))


# --- in the parent ---


def run(where: str, kind: str, calls: list[str], leak: str = "") -> list[dict[str, Any]]:
    """Return what calls leave behind, one after the other in a process of their own."""
    script = SCRIPT.format(tests=str(Path(__file__).parent), where=where, kind=kind, calls=calls, leak=leak)
    platforms = {"JAX_PLATFORMS": "cpu"} if where == "host" else {}
    text = run_quietly(script, "-W", "ignore", CUKERN_BACKEND=where, **QUIET, **platforms)
    found = [json.loads(line) for line in text.splitlines()]
    if "skip" in found[0]:
        pytest.skip(found[0]["skip"])
    return found


def problems(where: str, kind: str, call: str, found: dict[str, Any]) -> list[str]:
    """Return what is wrong with a case's memory and counts."""
    before, after, counted = found["before"], found["after"], found["counted"]
    print(f"{where}, {kind}, {call}: {before} -> {after}; {counted}")
    wrong = [
        f"{used}: {before[used]} -> {after[used]}"
        for used in before
        if used != "resident" and not SANITIZED
        if after[used] != before[used] and not (used == "GPU" and 0 < after[used] - before[used] < MOST_OF_GPU)
    ]
    grown = after["resident"] - before["resident"] - found["library"]
    if grown > MOST and not SANITIZED:  # a sanitizer keeps freed memory back
        wrong.append(f"resident: {grown / TIMES} bytes a call")
    succeeds = call == "result"
    in_place = kind in MEMORIES or (where == "cuda" and kind != "ndarray")
    none = []  # of these there are none
    if in_place or not succeeds:
        none += ["synchronizations", "host_to_device_bytes", "device_to_host_bytes"]
        none += ["driver_allocations"] if POOLED else []
    if not succeeds:
        none.append("launches")
    wrong += [f"{counter}: {counted[counter]}" for counter in none if counted[counter]]
    if succeeds and in_place and counted["launches"] != TIMES:
        wrong.append(f"launches: {counted['launches']}")
    return wrong


CALLS = ["result", "shapes", "out's element type", "out is no array"]


@pytest.mark.skipif(REQUIRE_GPU, reason="the cases on the GPU take their place")
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", KINDS["host"])
def test_many_calls(kind: str, call: str) -> None:
    assert problems("host", kind, call, run("host", kind, [call])[0]) == []


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS["cuda"])
def test_many_calls_on_a_gpu(kind: str) -> None:
    found = run("cuda", kind, CALLS)
    assert {call: problems("cuda", kind, call, one) for call, one in zip(CALLS, found, strict=True)} == {
        call: [] for call in CALLS
    }


FOUND = {
    ("result", "a result"): {"device", "driver_allocations", "resident"},
    ("result", "16 bytes"): {"resident"},
    ("shapes", "16 bytes"): {"resident"},
    ("result", "a wait"): {"synchronizations"},
    ("shapes", "a launch"): {"launches"},
}


@pytest.mark.skipif(SMALL or SANITIZED or not POOLED or REQUIRE_GPU, reason="memory is not measured")
@pytest.mark.parametrize(("call", "leak"), FOUND)
def test_it_is_found_out(call: str, leak: str) -> None:
    wrong = problems("host", "device", call, run("host", "device", [call], leak)[0])
    assert {line.split(":")[0] for line in wrong} == FOUND[call, leak]
