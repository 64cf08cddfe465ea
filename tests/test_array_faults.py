"""Failures under Arrays: of every runtime call, and of every allocation of Python's, in turn.

Each is an exception, nothing is left behind, and the next call works.
"""

from __future__ import annotations

import copy
import gc
import pickle
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import use
from processes import run_quietly

import cukern
from cukern import _cukern

MEMORY = ["device", "managed", "pinned"]
KINDS = ["allocate", "copy", "launch", "event", "stream", "synchronize"]
SHAPE = (40, 30)


class Operands:
    """What the calls work on: arrays of each memory, host arrays, outputs, streams."""

    def __init__(self) -> None:
        self.host = np.arange(1200.0).reshape(SHAPE)
        self.host_out = np.zeros(SHAPE)
        self.device, self.managed, self.pinned = (cukern.asarray(self.host, memory=memory) for memory in MEMORY)
        self.out, self.managed_out, self.pinned_out = (cukern.zeros(SHAPE, memory=memory) for memory in MEMORY)
        self.square = cukern.ones((30, 30))
        self.stream, self.other = cukern.Stream(), cukern.Stream()
        self.bytes = self.host.tobytes()
        self.pickled = pickle.dumps(self.device, 5)
        self.event = cukern.Event()
        cukern.synchronize()

    def fresh(self, memory: str = "device") -> Any:
        return cukern.ones(SHAPE, memory=memory)


Work = Callable[[Operands], Any]
CREATION: dict[str, Work] = {
    "full": lambda o: cukern.full(SHAPE, 2.5),
    "zeros managed": lambda o: cukern.zeros(SHAPE, memory="managed"),
    "ones pinned": lambda o: cukern.ones(SHAPE, memory="pinned"),
    "zeros on a stream": lambda o: cukern.zeros(SHAPE, stream=o.stream),
    "ones_like": lambda o: cukern.ones_like(o.managed),
    "arange": lambda o: cukern.arange(300),
    "eye": lambda o: cukern.eye(30, memory="pinned"),
    "asarray of a list": lambda o: cukern.asarray([[1, 2], [3, 4]]),
    "asarray of an ndarray": lambda o: cukern.asarray(o.host),
    "asarray of a strided ndarray": lambda o: cukern.asarray(o.host[::-2, ::3].T),
    "asarray of another type": lambda o: cukern.asarray(o.host, "float32", memory="managed"),
    "asarray of other memory": lambda o: cukern.asarray(o.device, memory="pinned"),
    "copy": lambda o: cukern.copy(o.managed),
    "deepcopy": lambda o: copy.deepcopy(o.device),
    "astype": lambda o: o.device.astype("complex64"),
    "astype of a view": lambda o: o.pinned[::2, ::-1].astype("int16"),
    "reshape that copies": lambda o: o.device.T.reshape(1200),
    "concat": lambda o: cukern.concat([o.device, o.managed, o.device], axis=1),
    "stack": lambda o: cukern.stack([o.pinned, o.pinned]),
    "restored": lambda o: _cukern._restore(o.bytes, "float64", SHAPE, "device"),
    "unpickled": lambda o: pickle.loads(o.pickled),
}
TO_HOST: dict[str, Work] = {
    "asnumpy": lambda o: cukern.asnumpy(o.device),
    "asnumpy of a view": lambda o: cukern.asnumpy(o.device[::-2, 1::3].T),
    "asnumpy on a stream": lambda o: cukern.asnumpy(o.device, stream=o.stream),
    "asnumpy into an ndarray": lambda o: cukern.asnumpy(o.device, out=o.host_out),
    "asnumpy into pinned memory": lambda o: cukern.asnumpy(o.device, out=o.pinned_out),
    "get": lambda o: o.managed.get(),
    "tolist": lambda o: o.device.tolist(),
    "item": lambda o: o.device[3, 4].item(),
    "repr": lambda o: repr(o.device),
    "buffer": lambda o: memoryview(cukern.add(o.managed, 1)).tolist(),
    "ndarray over pinned memory": lambda o: cukern.add(o.pinned, 1).__array__().copy(),
    "pickle": lambda o: pickle.dumps(o.device, 5),
    "pickle of an old protocol": lambda o: pickle.dumps(o.pinned[1:], 2),
}
CHANGES: dict[str, Work] = {
    "copyto from the host": lambda o: cukern.copyto(o.out, o.host) or o.out,
    "copyto the host": lambda o: cukern.copyto(o.host_out, o.device) or o.host_out,
    "copyto pinned": lambda o: cukern.copyto(o.pinned_out, o.device, stream=o.stream, blocking=False) or o.pinned_out,
    "copyto from pinned": lambda o: cukern.copyto(o.out, o.pinned, blocking=False) or o.out,
    "copyto a strided view": lambda o: cukern.copyto(o.out[:, ::-1], o.managed) or o.out,
    "fill": lambda o: o.out.fill(3) or o.out,
    "fill on two streams": lambda o: [o.managed_out.fill(3, stream=s) for s in (o.stream, o.other)],
    "assignment of a number": lambda o: o.out.__setitem__((slice(None), 3), 7) or o.out[:, 3],
    "assignment of an ndarray": lambda o: o.out.__setitem__(slice(None, None, 2), o.host[::2]) or o.out[::2],
    "assignment of a list": lambda o: o.pinned_out.__setitem__(0, [1] * 30) or o.pinned_out[0],
    "assignment of an Array": lambda o: o.out.__setitem__(..., o.square[0]) or o.out,
    "assignment over itself": lambda o: _shift(o.fresh()),
}
OPERATIONS: dict[str, Work] = {
    "add": lambda o: o.device + o.device,
    "add a number": lambda o: 1 - o.pinned,
    "add out": lambda o: cukern.add(o.device, 1, out=o.out),
    "add of mixed memory": lambda o: o.device + o.managed + o.pinned,
    "add on a stream": lambda o: cukern.add(o.device, o.managed, stream=o.stream),
    "add in place": lambda o: o.fresh("managed").__iadd__(o.device),
    "add to what a buffer shows": lambda o: _add_exported(o),
    "add of ndarrays": lambda o: cukern.add(o.host, o.host[0]),
    "matmul": lambda o: o.device @ o.square,
    "matmul out": lambda o: cukern.matmul(o.device, o.square, out=o.out),
    "matmul_tiled": lambda o: cukern.matmul_tiled(o.pinned, o.square),
    "matmul of mixed types": lambda o: cukern.matmul_tiled(o.device[::-1], o.square.astype("int32")),
}
EXCHANGE: dict[str, Work] = {
    "an unused capsule": lambda o: bool(o.device.__dlpack__()),
    "an unused versioned capsule": lambda o: bool(o.managed.__dlpack__(max_version=(1, 0))),
    "a capsule of a copy": lambda o: bool(o.device.__dlpack__(max_version=(1, 0), copy=True)),
    "a capsule on a stream": lambda o: bool(o.fresh().__dlpack__(stream=1)),
    "there and back": lambda o: cukern.from_dlpack(o.device),
    "there and back on a stream": lambda o: cukern.from_dlpack(o.fresh(), stream=o.stream) + 1,
    "from_dlpack of an ndarray": lambda o: cukern.from_dlpack(o.host) + 1,
}
STREAMS: dict[str, Work] = {
    "a stream for a call": lambda o: _on_a_stream(o),
    "an event": lambda o: (o.event.record(o.stream), o.event.synchronize(), o.event.done)[-1],
    "a new event": lambda o: (o.stream.record() - o.stream.record()) <= 0,
    "a wait": lambda o: (o.event.record(), o.stream.wait_event(o.event), o.stream.synchronize())[-1],
    "the device": lambda o: cukern.synchronize(),
    "three streams": lambda o: _on_three_streams(o),
    "a default stream of the thread": lambda o: cukern.add(o.fresh(), 1, stream=2),
}
WORK = CREATION | TO_HOST | CHANGES | OPERATIONS | EXCHANGE | STREAMS
# The failures that a call must meet, on every back-end.
MEETS: dict[str, set[str]] = {
    "full": {"launch"},
    "concat": {"launch"},
    "asarray of other memory": {"copy"},
    "copyto pinned": {"copy"},
    "fill on two streams": {"launch", "event"},
    "add": {"launch"},
    "add on a stream": {"launch"},  # the order between the streams is known by then
    "add to what a buffer shows": {"launch", "synchronize"},
    "buffer": {"launch", "synchronize"},
    "matmul_tiled": {"launch"},
    "a stream for a call": {"stream", "launch"},
    "an event": {"event", "synchronize"},
    "the device": {"synchronize"},
    "three streams": {"event", "launch"},
}


def _shift(array: Any) -> Any:
    array[1:] = array[:-1]
    return array


def _add_exported(o: Operands) -> Any:
    with memoryview(o.pinned_out):
        return cukern.add(o.pinned, 1, out=o.pinned_out)


def _on_a_stream(o: Operands) -> Any:
    with cukern.Stream():
        return o.fresh() + 1


def _on_three_streams(o: Operands) -> Any:
    array = o.fresh()
    result = cukern.add(array, o.device, stream=o.stream)
    return cukern.add(array, result, stream=o.other)  # and `array` goes while both read it


def value_of(result: Any) -> Any:
    """Return what compares."""
    if isinstance(result, cukern.Array):
        return result.tolist()
    return result.tolist() if isinstance(result, np.ndarray) else result


def in_use() -> list[int]:
    return [cukern.memory_info(memory)["in_use"] for memory in MEMORY]


def clean() -> tuple[int, int, int]:
    """Give back what is kept for reuse; return what is still held."""
    cukern.synchronize()
    _cukern._release_caches()
    return _cukern._held()  # type: ignore[no-any-return]


def fail_in_turn(call: Callable[[], Any], kind: str, n: int) -> tuple[Exception | None, Any, int]:
    """Make the n-th runtime call fail; return the exception, the result, and how many calls there were."""
    before = _cukern._fault_calls(kind)
    _cukern._inject_fault(kind, n)
    error = result = None
    try:
        result = call()
    except Exception as raised:
        error = raised.with_traceback(None)
    reached = _cukern._fault_calls(kind) - before
    _cukern._inject_fault(kind, 0)
    return error, result, reached


def check_error(error: Exception, kind: str) -> None:
    assert type(error) is (cukern.OutOfMemoryError if kind == "allocate" else cukern.CudaError)
    assert "injected by a test" in str(error)


@pytest.fixture(scope="module", autouse=True)
def quick_collections() -> Iterator[None]:
    """Keep the garbage collector, which out of memory runs, off all the modules that are there already."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", WORK)
def test_every_runtime_call_fails_in_turn(backend: str, name: str, kind: str) -> None:
    gc.collect()  # a test that failed before leaves cycles behind
    operands = Operands()
    wanted = value_of(WORK[name](operands))
    assert value_of(WORK[name](operands)) == wanted
    held = clean()
    failures = 0
    try:
        for n in range(1, 100):
            clean()
            before = in_use()
            error, result, reached = fail_in_turn(lambda: WORK[name](operands), kind, n)
            if error is None:
                # Retried after OutOfMemoryError, or by the release of memory, which finds another way.
                assert reached < n or kind in ("allocate", "event")
                assert value_of(result) == wanted
            else:
                failures += 1
                check_error(error, kind)
            del result
            clean()
            assert in_use() == before
            assert value_of(WORK[name](operands)) == wanted  # the next call works
            assert clean() == held
            if reached < n:
                break
        else:
            pytest.fail("the call never came to its end")
    finally:
        _cukern._inject_fault(kind, 0)
    if kind in MEETS.get(name, ()):
        assert failures > 0


@pytest.mark.pooled
@pytest.mark.usefixtures("backend")
def test_out_of_memory_names_its_own_call() -> None:
    """And not that of a wait for cached pinned memory which failed as well, as it does in a capture."""
    clean()
    del (kept := [cukern.empty(1000, memory="pinned")])[:]
    assert cukern.memory_info("pinned")["cached"] > 0
    calls = _cukern._fault_calls("synchronize")
    _cukern._inject_fault("allocate", 1)
    _cukern._inject_fault("synchronize", 1)
    with pytest.raises(cukern.OutOfMemoryError, match="injected by a test") as caught:
        cukern.empty(12345, memory="managed")
    _cukern._inject_fault("synchronize", 0)
    _cukern._inject_fault("allocate", 0)
    assert _cukern._fault_calls("synchronize") > calls
    assert "ynchronize" not in str(caught.value)
    assert kept == []


@pytest.mark.parametrize("kind", ["copy", "launch", "event", "synchronize"])
@pytest.mark.parametrize("name", ["fill", "add out", "assignment over itself", "add in place"])
def test_a_failure_leaves_the_operands_usable(backend: str, name: str, kind: str) -> None:
    operands = Operands()
    for n in (1, 2, 3):
        fail_in_turn(lambda: WORK[name](operands), kind, n)
        assert operands.device.tolist() == operands.host.tolist()
        operands.out.fill(5, stream=operands.other)
        assert operands.out.tolist() == [[5.0] * 30] * 40


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("memory", MEMORY)
def test_a_free_finds_another_way_than_events(memory: str) -> None:
    operands = Operands()
    before = in_use()
    for n in (1, 2, 3):
        array = operands.fresh(memory)
        result = cukern.add(array, operands.device, stream=operands.stream)
        _cukern._inject_fault("event", n)
        del array
        _cukern._inject_fault("event", 0)
        assert result.tolist() == (operands.host + 1).tolist()
        del result
        assert in_use() == before
    for _ in range(3):
        assert (operands.fresh(memory) * 2).tolist() == [[2.0] * 30] * 40


# --- Python's own allocations ---

SCRIPT = """
    import sys
    sys.path.insert(0, {tests!r})
    from test_array_faults import fail_allocations
    print(fail_allocations({group!r}))
"""
GROUPS = {
    "creation": CREATION,
    "to the host": TO_HOST,
    "changes": CHANGES,
    "operations": OPERATIONS,
    "exchange": EXCHANGE,
    "streams": STREAMS,
}


def fail_allocation(call: Callable[[], Any], n: int) -> tuple[str, Any]:
    """Make the n-th allocation of Python's fail; return the exception's text, empty for none, and the result."""
    import _testcapi

    result, text = None, ""
    _testcapi.set_nomemory(n, n + 1)
    try:
        result = call()
    except Exception as raised:  # not kept: it, and what it came from, hold frames
        _testcapi.remove_mem_hooks()
        text = f"{type(raised).__name__}: {raised}"
    finally:
        _testcapi.remove_mem_hooks()
    return text, result


# Faults of NumPy and Python, which are there without cukern: calls that are left out, and messages.
OTHERS_CALLS = {"repr", "unpickled"}
OTHERS_MESSAGES = (
    "SystemError: <ufunc 'matmul'> returned NULL",
    "PicklingError: Can't pickle <built-in function _restore>: import",
)


def state(subjects: list[Any]) -> tuple[list[int], list[int]]:
    gc.collect()
    cukern.synchronize()
    _cukern._release_caches()
    return in_use(), [sys.getrefcount(subject) for subject in subjects]


def check_allocations(name: str, operands: Operands) -> list[str]:
    """Make each allocation of a call fail; return what went wrong."""
    wanted = value_of(WORK[name](operands))
    subjects = [value for value in vars(operands).values() if not isinstance(value, bytes)]
    problems = []
    successes = n = 0
    before = state(subjects)
    while successes < 25:  # in a row: none is left to fail
        error, result = fail_allocation(lambda: WORK[name](operands), n)
        if not error and value_of(result) != wanted:
            problems.append(f"{name}, allocation {n}: another result")
        if error and not error.startswith(("MemoryError: ", *OTHERS_MESSAGES)):
            problems.append(f"{name}, allocation {n}: {error}")
        del result
        if state(subjects) != before:
            problems.append(f"{name}, allocation {n}: {before} became {state(subjects)}, with {error}")
            before = state(subjects)
        successes = 0 if error else successes + 1
        n += 1
    return problems if value_of(WORK[name](operands)) == wanted else [*problems, f"{name}: does not work any more"]


def fail_allocations(group: str) -> str:
    """Run in a process of its own; return what went wrong."""
    use("host")
    gc.collect()
    gc.freeze()
    operands = Operands()
    names = [name for name in GROUPS[group] if name not in OTHERS_CALLS]
    return "\n".join(problem for name in names for problem in check_allocations(name, operands))


@pytest.mark.unsanitized  # a sanitizer keeps allocators of its own
@pytest.mark.parametrize("group", GROUPS)
def test_every_allocation_of_python_fails_in_turn(group: str) -> None:
    script = SCRIPT.format(tests=str(Path(__file__).parent), group=group)
    assert run_quietly(script, CUKERN_BACKEND="host") == "\n"
