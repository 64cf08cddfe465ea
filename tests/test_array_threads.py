"""Arrays under threads, forks and ends of processes, and freed while work on them is in flight."""

from __future__ import annotations

import ctypes
import gc
import queue
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from conftest import SMALL
from processes import run_quietly

import cukern
from cukern import _cukern

MEMORY = ["device", "managed", "pinned"]
# Capsules' names, what a consumer renames them to, and where their deleter is: DLPack's structures.
CAPSULES = {
    "versioned": ({"max_version": (1, 0)}, b"dltensor_versioned", b"used_dltensor_versioned", 16),
    "legacy": ({}, b"dltensor", b"used_dltensor", 56),
}


def in_use() -> list[int]:
    gc.collect()
    cukern.synchronize()
    _cukern._release_caches()
    return [cukern.memory_info(memory)["in_use"] for memory in MEMORY]


# --- threads ---


@pytest.mark.usefixtures("backend")
def test_threads_make_and_free_arrays_on_several_streams() -> None:
    rounds = 10 if SMALL else 100
    before = in_use()
    shared = [cukern.arange(5000.0)]
    streams = [cukern.Stream() for _ in range(3)]  # of all threads

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        kept: list[tuple[Any, np.ndarray]] = []
        with cukern.Stream():
            for _ in range(rounds):
                n = int(rng.integers(1, 5000))
                x = rng.integers(-99, 99, n).astype(np.float64)
                a = cukern.asarray(x, memory=MEMORY[int(rng.integers(3))])
                b = cukern.add(a, shared[0][:n], stream=streams[int(rng.integers(3))])
                kept.append((a * 2 + b, x * 3 + np.arange(n)))
                if len(kept) > 4:
                    result, wanted = kept.pop(int(rng.integers(len(kept))))
                    np.testing.assert_array_equal(cukern.asnumpy(result), wanted)
        for result, wanted in kept:
            np.testing.assert_array_equal(cukern.asnumpy(result), wanted)

    with ThreadPoolExecutor(8) as pool:
        for future in [pool.submit(work, seed) for seed in range(8)]:
            future.result()
    shared.clear()
    streams.clear()
    assert in_use() == before


@pytest.mark.usefixtures("backend")
def test_arrays_are_freed_by_another_thread() -> None:
    before = in_use()
    made: queue.Queue[Any] = queue.Queue(10)
    sums: list[float] = []

    def make() -> None:
        with cukern.Stream():
            for n in range(200):
                made.put(cukern.full(100, n, "float64") + 1)
        made.put(None)

    def use_up() -> None:
        with cukern.Stream():
            while (array := made.get()) is not None:
                sums.append(float(cukern.matmul(array, cukern.ones(100)).item()))
                del array

    threads = [threading.Thread(target=make), threading.Thread(target=use_up)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sums == [100.0 * (n + 1) for n in range(200)]
    assert in_use() == before


@pytest.mark.usefixtures("backend")
def test_memory_calls_from_many_threads() -> None:
    before = in_use()
    failures: list[BaseException] = []

    def work(call: int) -> None:
        try:
            for _ in range(20 if SMALL else 200):
                array = cukern.ones(1000)
                [cukern.empty_cache, cukern.synchronize, cukern.memory_info, cukern.counters][call]()
                assert (array + 1)[999].item() == 2
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n % 4,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert in_use() == before


# --- capsules ---


def consume(capsule: object, form: str) -> tuple[int, int]:
    """Take a capsule over as a consumer does; return the addresses of its deleter and of its tensor."""
    _, name, used, at = CAPSULES[form]
    api = ctypes.pythonapi
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
    tensor = api.PyCapsule_GetPointer(capsule, name)
    assert api.PyCapsule_SetName(capsule, used) == 0
    return ctypes.c_void_p.from_address(tensor + at).value or 0, tensor


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("form", CAPSULES)
def test_a_deleter_is_called_from_a_thread_that_is_not_pythons(form: str) -> None:
    before = in_use()
    array = cukern.ones(1000)
    gone = weakref.ref(array)
    capsule = array.__dlpack__(**CAPSULES[form][0])
    deleter, tensor = consume(capsule, form)
    del array, capsule
    assert gone() is not None
    libc = ctypes.CDLL(None)
    thread = ctypes.c_ulong()
    start = ctypes.c_void_p(deleter)
    assert libc.pthread_create(ctypes.byref(thread), None, start, ctypes.c_void_p(tensor)) == 0
    assert libc.pthread_join(thread, None) == 0  # without the GIL, which the deleter takes
    assert gone() is None
    assert in_use() == before


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("form", CAPSULES)
def test_a_deleter_is_called_while_the_caller_has_the_gil(form: str) -> None:
    array = cukern.ones(10)
    gone = weakref.ref(array)
    deleter, tensor = consume(array.__dlpack__(**CAPSULES[form][0]), form)
    del array
    ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(deleter)(tensor)
    assert gone() is None


# --- freed in flight ---


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("memory", MEMORY)
def test_freed_while_a_kernel_is_in_flight(memory: str) -> None:
    side = 64 if SMALL else 256
    results = []
    for n in range(10):
        a = cukern.full((side, side), n, "float64", memory=memory)
        b = cukern.matmul_tiled(a, cukern.ones((side, side), memory=memory))
        results.append(b + a)
        del a, b
    assert [result[side - 1, 0].item() for result in results] == [side * n + n for n in range(10)]


@pytest.mark.parametrize("backend", ["host", "host-staged"], indirect=True)
def test_foreign_memory_lives_until_work_on_it_is_done(backend: str) -> None:
    host = np.arange(1000.0)
    gone = weakref.ref(host)
    array = cukern.from_dlpack(host)
    result = cukern.add(array, 1, stream=cukern.Stream())
    del host
    assert gone() is not None
    del array
    gc.collect()
    cukern.synchronize()
    assert gone() is None
    assert result.tolist() == list(range(1, 1001))


# --- forks ---

FORK = """
    import gc, os, sys, weakref
    import numpy as np, cukern

    arrays = [cukern.ones(1000, memory=memory) for memory in ("device", "managed", "pinned")]
    stream, event = cukern.Stream(), cukern.Event()
    other = cukern.ones(1000, stream=stream)
    event.record(stream)
    pending = cukern.add(other, arrays[0], stream=cukern.Stream())
    view = np.asarray(arrays[2])
    capsule = arrays[0].__dlpack__()
    foreign = cukern.from_dlpack(arrays[1])
    with stream:
        child = os.fork()
        if child == 0:
            CHILD
            del arrays, other, pending, view, capsule, foreign, stream, event
            gc.collect()
            sys.exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert pending.tolist() == [2] * 1000
    assert [(array + 1).tolist() for array in arrays] == [[2] * 1000] * 3
    assert view.tolist() == [1] * 1000
    print("done")
"""
IN_A_HOST_CHILD = """
            assert [(array + array).tolist() for array in arrays] == [[2] * 1000] * 3
            assert (pending + other).tolist() == [3] * 1000 and view.sum() == 1000
            arrays[2] += 1
            assert view.tolist() == [2] * 1000
            assert cukern.ones(5, stream=stream).tolist() == [1] * 5
            event.record()
            event.synchronize(), stream.synchronize(), cukern.synchronize(), cukern.empty_cache()
            assert (cukern.Event() is not None) and cukern.Stream().done
            assert foreign.tolist() == [1] * 1000
"""
IN_A_GPU_CHILD = """
            def refused(call):
                try:
                    call()
                except RuntimeError as error:
                    assert "fork" in str(error) and "spawn" in str(error), error
                else:
                    raise AssertionError("the child used the GPU")
            for array in (*arrays, other, pending, foreign):
                for call in (lambda: array + 1, lambda: array.tolist(), lambda: array.fill(0), lambda: array.copy()):
                    refused(call)
                assert array.shape == (1000,) and array[::2].size == 500
            for call in (lambda: cukern.zeros(3), cukern.Stream, cukern.Event, cukern.synchronize, stream.synchronize,
                         event.synchronize, event.record, lambda: cukern.asarray([1]), cukern.empty_cache,
                         cukern.memory_info, lambda: np.asarray(arrays[2][::2])):
                refused(call)
            assert cukern.add(np.ones(9), 1).tolist() == [2] * 9 and cukern.add(np.ones(10**6), 1).sum() == 2 * 10**6
"""


def test_arrays_that_are_there_at_a_fork_work_on_the_host() -> None:
    script = FORK.replace("CHILD", IN_A_HOST_CHILD.strip())
    assert run_quietly(script, CUKERN_BACKEND="host", CUKERN_NUM_THREADS="4") == "done\n"


@pytest.mark.unsanitized  # compute-sanitizer does not let a forked child end
@pytest.mark.gpu
def test_arrays_that_are_there_at_a_fork_are_refused_with_a_gpu() -> None:
    script = FORK.replace("CHILD", IN_A_GPU_CHILD.strip())
    assert run_quietly(script, CUKERN_BACKEND="cuda") == "done\n"


def test_a_child_and_its_parent_free_what_is_their_own() -> None:
    child = """
            in_use = cukern.memory_info()["in_use"]
            assert in_use == 0, in_use
            own = cukern.ones(1000)
            assert cukern.memory_info()["in_use"] == 8192
            del own
            assert cukern.memory_info()["in_use"] == 0
    """
    assert run_quietly(FORK.replace("CHILD", child.strip()), CUKERN_BACKEND="host", CUKERN_POOL="1") == "done\n"


# --- ends of processes ---

ENDS = {
    "names of the module": "pass",
    "a cycle": "cycle = [arrays, streams, events]\n    cycle.append(cycle)",
    "kept by another module": "sys.kept = [arrays, capsules, views, streams, events]",
    "kept by a type": "type('Keeper', (), {'kept': [arrays, capsules, views, streams]})",
    "an active stream": "streams[0].__enter__()",
    "an active stream of a thread": (
        "thread = threading.Thread(target=lambda: cukern.Stream().__enter__())\n    thread.start(); thread.join()"
    ),
    "an active device": "cukern.Device(0).__enter__()",
    "used by atexit": "atexit.register(lambda: (arrays[0] + 1).tolist())",
    "used by a finalizer": "weakref.finalize(sys, lambda: cukern.add(arrays[0], 1, stream=streams[0]).tolist())",
    "a limit": "cukern.set_memory_limit(1 << 40)",
    "an exception": "sys.exit(0)",
    "foreign memory": "kept = cukern.from_dlpack(np.ones(9)) + 1; sys.more = cukern.from_dlpack(np.ones(9))",
    "del of the module": "del sys.modules['cukern'], sys.modules['cukern._cukern'], cukern; gc.collect()",
}
END = """
    import atexit, gc, sys, threading, weakref
    import numpy as np, cukern
    streams = [cukern.Stream() for _ in range(3)]
    arrays = [cukern.ones(1000, memory=memory) for memory in ("device", "managed", "pinned")]
    arrays += [cukern.add(arrays[0], 1, stream=stream) for stream in streams]
    events = [stream.record() for stream in streams]
    capsules = [arrays[0].__dlpack__(), arrays[1].__dlpack__(max_version=(1, 0)), arrays[2].__dlpack__(copy=True)]
    views = [np.asarray(arrays[1]), memoryview(arrays[2]), arrays[3][::2], cukern.from_dlpack(arrays[4])]
    print("done")
"""


@pytest.mark.parametrize("where", ["host", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("name", ENDS)
def test_a_process_ends_with_all_kinds_alive(name: str, where: str) -> None:
    assert run_quietly(END + f"    {ENDS[name]}\n", CUKERN_BACKEND=where) == "done\n"


@pytest.mark.parametrize("where", ["host", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("call", ["cukern.add(x, x)", "cukern.asnumpy(a)", "cukern.asarray(x)", "cukern.synchronize()"])
def test_a_process_ends_while_a_thread_computes(call: str, where: str) -> None:
    script = f"""
    import threading, time
    import numpy as np, cukern
    x = np.ones(3_000_000, np.float32)
    a = cukern.asarray(x)
    begun = threading.Event()
    def compute():
        while True:
            {call}
            begun.set()
    threading.Thread(target=compute, daemon=True).start()
    begun.wait()
    print("done")
    """
    for _ in range(3):
        assert run_quietly(script, CUKERN_BACKEND=where) == "done\n"
