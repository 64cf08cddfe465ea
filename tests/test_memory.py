"""Memory of each kind: what is counted, what is kept for reuse, limits, out of memory, sizes that do not fit."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
from arrays import assert_same
from conftest import MEMORY, POOLED
from processes import run_quietly

import cukern

HOST_MEMORY = MEMORY[1:]
COUNTERS = [
    "launches",
    "synchronizations",
    "host_to_device_bytes",
    "device_to_host_bytes",
    "driver_allocations",
    "free_list_hits",
    "calls_on_host",
    "calls_on_device",
]
MIB = 1 << 20
pytestmark = pytest.mark.usefixtures("no_cached_memory")


def changes(call: Callable[[], object]) -> dict[str, int]:
    """Return what a call adds to the counters; its result is freed after."""
    before = cukern.counters()
    result = call()
    after = cukern.counters()
    del result
    return {name: after[name] - before[name] for name in COUNTERS}


def used(memory: str = "device") -> tuple[int, int]:
    info = cukern.memory_info(memory)
    return info["in_use"], info["cached"]


# --- counters ---


def test_counters_are_plain_numbers_that_never_shrink() -> None:
    before = cukern.counters()
    assert list(before) == COUNTERS
    assert all(type(value) is int and value >= 0 for value in before.values())
    assert cukern.counters() == before
    before["launches"] += 100  # a copy
    assert cukern.counters()["launches"] == before["launches"] - 100
    with pytest.raises(TypeError):
        cukern.counters(1)


LAUNCHES: dict[str, tuple[Callable[[Any], object], int]] = {
    "empty": (lambda a: cukern.empty(3), 0),
    "zeros": (lambda a: cukern.zeros(1000), 1),
    "zeros without elements": (lambda a: cukern.zeros((3, 0)), 0),
    "full": (lambda a: cukern.full((2, 3), 7), 1),
    "add": (lambda a: a + a, 1),
    "add out": (lambda a: cukern.add(a, 1, out=a), 1),
    "two operations": (lambda a: a * 2 + 1, 2),
    "matmul_tiled": (lambda a: cukern.matmul_tiled(a, a), 1),
    "fill": (lambda a: a.fill(2), 1),
    "assignment": (lambda a: a[0].fill(2), 1),
    "astype": (lambda a: a.astype("int8"), 1),
    "copy": (lambda a: a.copy(), 1),
    "concat of three": (lambda a: cukern.concat([a, a, a]), 3),
    "views": (
        lambda a: [a[::2], a.T, a.reshape(-1), a.ravel(), a[None].squeeze(), cukern.broadcast_to(a, (2, 8, 8))],
        0,
    ),
    "a reshape that copies": (lambda a: a.T.reshape(-1), 1),
    "what it tells": (lambda a: (a.shape, a.strides, a.dtype, a.flags, a.device, a.memory, len(a)), 0),
}


@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("name", LAUNCHES)
def test_launches(name: str, memory: str) -> None:
    call, launches = LAUNCHES[name]
    array = cukern.ones((8, 8), memory=memory)
    counted = changes(lambda: call(array))
    assert counted["launches"] == launches
    assert counted["synchronizations"] == 0
    assert counted["host_to_device_bytes"] == counted["device_to_host_bytes"] == 0


def test_a_few_zeros_take_no_launch_on_the_host(backend: str) -> None:
    # Sizes around the most that is set at once.
    for dtype in ("bool", "int16", "float64", "complex128"):
        for length in (0, 1, 255, 256, 511, 512, 513, 4096, 4097):
            counted = changes(partial(cukern.zeros, (length,), dtype))
            few = length * np.dtype(dtype).itemsize <= 4096 and backend != "cuda"
            assert counted["launches"] == (0 if few or length == 0 else 1)
            ones = cukern.ones(length, dtype)
            for make in (partial(cukern.zeros, length, dtype), partial(cukern.zeros_like, ones)):
                cukern.full(length, 1, dtype)  # whose memory is used again
                assert_same(cukern.asnumpy(make()), np.zeros(length, dtype))


BYTES: dict[str, tuple[Callable[[Any, Any, Any], object], int, int]] = {
    "asarray": (lambda x, d, p: cukern.asarray(x), 80_000, 0),
    "asarray of another type": (lambda x, d, p: cukern.asarray(x, memory="device", dtype="float64"), 80_000, 0),
    "asarray of a list": (lambda x, d, p: cukern.asarray([1.0, 2.0]), 16, 0),
    "copyto the device": (lambda x, d, p: cukern.copyto(d, x), 80_000, 0),
    "assignment": (lambda x, d, p: d.__setitem__(slice(0, 50), x[:50]), 40_000, 0),
    "asnumpy": (lambda x, d, p: cukern.asnumpy(d), 0, 80_000),
    "asnumpy of a half": (lambda x, d, p: cukern.asnumpy(d[::2]), 0, 40_000),
    "get": (lambda x, d, p: d.get(out=x), 0, 80_000),
    "item": (lambda x, d, p: d[3, 4].item(), 0, 8),
    "from pinned": (lambda x, d, p: cukern.copyto(d, p), 80_000, 0),
    "into pinned": (lambda x, d, p: cukern.copyto(p, d), 0, 80_000),
    "into pinned, not blocking": (lambda x, d, p: cukern.asnumpy(d, out=p, blocking=False), 0, 80_000),
    "into strided pinned memory": (lambda x, d, p: cukern.copyto(p[:, ::2], d[:, ::2]), 0, 40_000),
    "on the device": (lambda x, d, p: cukern.copyto(d, d + 1), 0, 0),
    "pinned to the host": (lambda x, d, p: cukern.asnumpy(p), 0, 0),
    "host to pinned": (lambda x, d, p: cukern.asarray(x, memory="pinned"), 0, 0),
    "nothing": (lambda x, d, p: cukern.asnumpy(d[:0]), 0, 0),
}


@pytest.mark.parametrize("name", BYTES)
def test_bytes_by_direction(name: str) -> None:
    call, up, down = BYTES[name]
    x = np.ones((100, 100))
    device, pinned = cukern.asarray(x), cukern.asarray(x, memory="pinned")
    counted = changes(lambda: call(x, device, pinned))
    assert (counted["host_to_device_bytes"], counted["device_to_host_bytes"]) == (up, down)


@pytest.mark.parametrize("memory", HOST_MEMORY)
def test_the_host_waits_where_it_looks_and_once(memory: str) -> None:
    array = cukern.ones(8, memory=memory) + 1
    looks: list[Callable[[], object]] = [
        array.tolist,
        array[3].item,
        lambda: repr(array),
        lambda: memoryview(array).tolist(),
        lambda: np.asarray(array).sum(),
        lambda: float(array[1]),
        lambda: cukern.asnumpy(array),
    ]
    for look in looks:
        cukern.add(array, 1, out=array)
        assert changes(look)["synchronizations"] == 1
        assert changes(look)["synchronizations"] == 0  # nothing new to wait for
        assert changes(lambda: (array[::2], array.T, array + 1))["synchronizations"] == 0
    assert array.tolist() == [9.0] * 8


def test_explicit_waits_are_counted() -> None:
    stream, event = cukern.Stream(), cukern.Event()
    assert changes(event.synchronize)["synchronizations"] == 0  # never recorded
    event.record(stream)
    assert changes(lambda: (stream.done, event.done, stream.wait_event(event)))["synchronizations"] == 0
    for wait in (stream.synchronize, event.synchronize, cukern.synchronize, cukern.Device(0).synchronize):
        assert changes(wait)["synchronizations"] == 1


@pytest.mark.parametrize("memory", HOST_MEMORY)
def test_a_call_that_writes_waits_only_while_its_output_is_exported(memory: str) -> None:
    source, out = cukern.ones((4, 4), memory=memory), cukern.zeros((4, 4), memory=memory)

    def write() -> dict[str, int]:
        return changes(lambda: cukern.add(source, 1, out=out))

    assert write()["synchronizations"] == 0
    with memoryview(out) as view:
        out.fill(0)
        assert write()["synchronizations"] == 1
        assert view[3, 3] == 2
        assert changes(lambda: out.fill(5))["synchronizations"] == 1
        assert view[0, 0] == 5
    assert write()["synchronizations"] == 0
    with memoryview(source):  # an input does not count
        assert write()["synchronizations"] == 0
    part = np.asarray(out[2:])  # a view's buffer is of the same memory
    assert write()["synchronizations"] == 1
    assert (part == 2).all()
    more = part[1:]
    del part
    assert write()["synchronizations"] == 1
    del more
    assert write()["synchronizations"] == 0
    assert changes(lambda: cukern.copyto(out, source))["synchronizations"] == 0


# --- reuse ---


@pytest.mark.pooled
@pytest.mark.parametrize("memory", MEMORY)
def test_freed_memory_is_used_again(memory: str) -> None:
    first = changes(lambda: cukern.empty(1000, memory=memory))
    second = changes(lambda: cukern.empty(1000, memory=memory))
    both = changes(lambda: [cukern.empty(1000, memory=memory) for _ in range(2)])
    assert [(c["driver_allocations"], c["free_list_hits"]) for c in (first, second, both)] == [(1, 0), (0, 1), (1, 1)]
    other = changes(lambda: cukern.empty(1000, memory=MEMORY[(MEMORY.index(memory) + 1) % 3]))
    assert (other["driver_allocations"], other["free_list_hits"]) == (1, 0)
    assert changes(lambda: cukern.empty(0, memory=memory)) == dict.fromkeys(COUNTERS, 0)


@pytest.mark.pooled
@pytest.mark.parametrize("memory", MEMORY)
def test_what_was_given_up_last_is_cached_memory(memory: str) -> None:
    array = cukern.empty(1000, "int8", memory=memory)
    in_use, cached = used(memory)
    del array
    assert used(memory) == (in_use - 1024, cached + 1024)
    array = cukern.empty(900, "int8", memory=memory)  # of the same class
    assert used(memory) == (in_use, cached)
    del array
    cukern.empty_cache()
    assert used(memory) == (in_use - 1024, cached)
    cukern.empty(1000, "int8", memory=memory)
    cukern.set_memory_limit(in_use + cached, memory)  # which leaves no room beside it
    assert changes(lambda: cukern.empty(600, "int8", memory=memory))["driver_allocations"] == 1


@pytest.mark.pooled
def test_what_was_given_up_of_each_size_and_memory_serves_again() -> None:
    sizes = [1, 600, 700, 1000, 5000, 100_000, 100_001, 1_000_000]
    blocks = [(size, memory) for size in sizes for memory in MEMORY]
    before = [used(memory) for memory in MEMORY]

    def each() -> None:
        for size, memory in blocks:
            cukern.empty(size, "int8", memory=memory)

    first, second = changes(each), changes(each)
    classes = len(blocks) - len(MEMORY)  # 100,000 and 100,001 bytes are of one
    assert (first["driver_allocations"], first["free_list_hits"]) == (classes, len(MEMORY))
    assert (second["driver_allocations"], second["free_list_hits"]) == (0, len(blocks))
    assert [used(memory)[0] for memory in MEMORY] == [in_use for in_use, _ in before]
    cukern.empty_cache()
    assert [used(memory) for memory in MEMORY] == [(in_use, 0) for in_use, _ in before]


@pytest.mark.pooled
def test_the_last_one_given_up_by_a_thread_serves_another() -> None:
    def work(number: int) -> None:
        for turn in range(200):
            array = cukern.full(500 + turn % 3 * 600, number, "int8")
            assert (cukern.asnumpy(array) == number).all()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))


@pytest.mark.pooled
def test_free_lists_are_by_size_class_and_stream() -> None:
    stream = cukern.Stream()
    del (array := [cukern.empty(600, "int8")])[:]
    assert changes(lambda: cukern.empty(640, "int8"))["free_list_hits"] == 1
    for size in (512, 641, 1280):
        assert changes(lambda size=size: cukern.empty(size, "int8"))["free_list_hits"] == 0
    assert changes(lambda: cukern.empty(600, "int8", stream=stream))["free_list_hits"] == 0
    assert changes(lambda: cukern.empty(600, "int8", stream=stream))["free_list_hits"] == 1
    cukern.empty_cache()
    assert changes(lambda: cukern.empty(600, "int8"))["free_list_hits"] == 0
    assert array == []


@pytest.mark.pooled
@pytest.mark.parametrize("memory", MEMORY)
def test_warm_calls_neither_allocate_nor_wait(memory: str) -> None:
    a = cukern.ones((30, 30), memory=memory)

    def calls() -> None:
        for _ in range(50):
            result = a + a
            result = cukern.matmul_tiled(result, a)
            result = cukern.add(result, 1)
            result[::2] = result[1::2]

    calls()
    cukern.synchronize()
    counted = changes(calls)
    assert counted["driver_allocations"] == counted["synchronizations"] == 0
    assert counted["launches"] == counted["free_list_hits"] + 50 == 200


def test_without_a_pool() -> None:
    script = """
    import numpy as np, cukern
    for memory in ("device", "managed", "pinned"):
        at_first = cukern.memory_info(memory)["in_use"]
        before = cukern.counters()
        arrays = [cukern.full(100 + n, n, "int8", memory=memory) for n in range(5)]
        assert cukern.memory_info(memory)["in_use"] == at_first + 510
        results = [(array + 1 if False else array.astype("int16")).tolist() for array in arrays]
        assert results == [[n] * (100 + n) for n in range(5)]
        del arrays
        for _ in range(3):
            a = cukern.ones(10, memory=memory)
            a = a + a
        counted = {name: value - before[name] for name, value in cukern.counters().items()}
        assert counted["free_list_hits"] == 0
        assert counted["driver_allocations"] == 5 + 5 + 6, counted
        del a
        info = cukern.memory_info(memory)
        assert (info["in_use"], info["cached"]) == (at_first, 0)
    print("done")
    """
    assert run_quietly(script, CUKERN_BACKEND="host", CUKERN_POOL="0") == "done\n"


# --- memory_info, empty_cache ---


@pytest.mark.parametrize("memory", MEMORY)
def test_memory_info(memory: str) -> None:
    info = cukern.memory_info(memory)
    assert list(info) == ["total", "free", "in_use", "cached", "limit"]
    assert 0 < info["free"] <= info["total"]
    assert (info["cached"], info["limit"]) == (0, 0)
    assert cukern.memory_info(memory, 0)["total"] == cukern.memory_info(memory=memory, device=cukern.Device(0))["total"]
    array = cukern.empty(MIB, "int8", memory=memory)
    assert used(memory) == (info["in_use"] + MIB, 0)
    view, empty = array[::2].T, cukern.empty((0, 5), memory=memory)
    assert used(memory) == (info["in_use"] + MIB, 0)
    del array
    assert used(memory) == (info["in_use"] + MIB, 0)  # the view holds it
    del view, empty
    assert used(memory) == (info["in_use"], MIB if POOLED else 0)
    assert cukern.empty_cache() is None
    assert used(memory) == (info["in_use"], 0)


def test_pinned_memory_is_that_of_the_machine_or_the_container() -> None:
    with open("/proc/meminfo") as file:
        machine = int(file.readline().split()[1]) * 1024
    total = cukern.memory_info("pinned")["total"]
    assert 0 < total <= machine
    limits = [machine]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        if os.path.exists(path):
            with open(path) as file:
                text = file.read().strip()
            limits += [int(text)] if text != "max" else []
    assert total <= min(limits)


def test_the_default_is_device_memory() -> None:
    with_default, device = cukern.memory_info(), cukern.memory_info("device")
    assert (with_default["in_use"], with_default["total"]) == (device["in_use"], device["total"])
    assert [cukern.zeros(3, memory=memory).memory for memory in (None, *MEMORY)] == ["device", *MEMORY]


WRONG: dict[str, tuple[Callable[[], object], Any, str]] = {
    "no such memory": (lambda: cukern.zeros(3, memory="gpu"), ValueError, "memory is 'gpu'; expected 'device', 'man"),
    "memory that is no text": (lambda: cukern.zeros(3, memory=1), (TypeError, ValueError), "memory is 1; expected"),
    "info of no memory": (lambda: cukern.memory_info("host"), ValueError, "memory_info: memory is 'host'"),
    "a limit of no memory": (lambda: cukern.set_memory_limit(1, "x"), ValueError, "set_memory_limit: memory is 'x'"),
    "a limit of 0": (lambda: cukern.set_memory_limit(0), ValueError, "bytes is 0; expected a positive number or None"),
    "a negative limit": (lambda: cukern.set_memory_limit(-5), ValueError, "bytes is -5; expected"),
    "a limit that is text": (lambda: cukern.set_memory_limit("1"), TypeError, "."),
    "a fraction": (lambda: cukern.set_memory_limit(1.5), TypeError, "."),
    "a limit that does not fit": (lambda: cukern.set_memory_limit(1 << 63), (OverflowError, ValueError), "."),
    "no limit": (lambda: cukern.set_memory_limit(), TypeError, "bytes"),
    "keyword": (lambda: cukern.memory_info(kind="device"), TypeError, "kind"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(name: str) -> None:
    call, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        call()
    assert cukern.memory_info()["limit"] == 0
