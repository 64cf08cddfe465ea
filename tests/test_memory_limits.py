"""Out of memory: limits, what is done before it is an error, and sizes that do not fit."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from conftest import MEMORY

import cukern
from cukern import _cukern

MIB = 1 << 20
pytestmark = pytest.mark.usefixtures("no_cached_memory")


@pytest.fixture
def no_automatic_collection() -> Iterator[None]:
    """Leave garbage in cycles to whoever asks for its collection."""
    before = gc.get_threshold()
    gc.set_threshold(1_000_000)
    yield
    gc.set_threshold(*before)


class Node:
    """Something in a cycle that holds an Array."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.own = self


def in_use(memory: str = "device") -> int:
    return int(cukern.memory_info(memory)["in_use"])


def allow(more: int, memory: str = "device") -> int:
    """Limit the memory to what is in use and `more`; return the limit."""
    limit = in_use(memory) + more
    cukern.set_memory_limit(limit, memory)
    return limit


# --- limits ---


@pytest.mark.parametrize("memory", MEMORY)
def test_a_limit(memory: str) -> None:
    kept = cukern.ones(MIB, "int8", memory=memory)
    limit = allow(MIB, memory)
    before = in_use(memory)
    assert cukern.memory_info(memory)["limit"] == limit
    assert cukern.memory_info(MEMORY[MEMORY.index(memory) - 1])["limit"] == 0
    sizes = rf"asked for {2 * MIB} bytes of {memory} memory on device 0; \d+ free there, {before} in use .* 0 cached"
    for _ in range(3):
        with pytest.raises(cukern.OutOfMemoryError, match=sizes) as caught:
            cukern.empty(2 * MIB, "int8", memory=memory)
        assert str(caught.value).startswith("empty: ")
        assert f"limit of {limit} bytes" in str(caught.value)
        assert isinstance(caught.value, MemoryError)
        assert in_use(memory) == before
    exactly = cukern.ones(MIB, "int8", memory=memory)
    with pytest.raises(cukern.OutOfMemoryError):
        cukern.empty(1, "int8", memory=memory)
    del exactly
    assert cukern.ones(MIB, "int8", memory=memory).nbytes == MIB
    cukern.set_memory_limit(None, memory)
    assert cukern.memory_info(memory)["limit"] == 0
    assert cukern.empty(2 * MIB, "int8", memory=memory).nbytes == 2 * MIB
    assert kept.tolist() == [1] * MIB


def test_a_limit_is_of_one_kind_of_memory() -> None:
    allow(512, "pinned")
    for memory in ("device", "managed"):
        assert cukern.zeros(MIB, "int8", memory=memory).nbytes == MIB
    with pytest.raises(cukern.OutOfMemoryError, match="pinned memory"):
        cukern.zeros(MIB, "int8", memory="pinned")


def test_a_limit_below_what_is_in_use() -> None:
    array = cukern.ones(MIB, "int8")
    cukern.set_memory_limit(1000)
    assert (array[:5]).tolist() == [1] * 5
    with pytest.raises(cukern.OutOfMemoryError):
        cukern.empty(1)
    array.fill(3)  # needs no memory
    assert array[-1].item() == 3


def test_cached_memory_makes_room() -> None:
    allow(4 * MIB)
    for size in (1, 2, 3, 4):  # each leaves its block in a free list of its own
        del (kept := [cukern.empty(size * MIB, "int8")])[:]
    allocations = cukern.counters()["driver_allocations"]
    assert cukern.empty(4 * MIB, "int8", stream=cukern.Stream()).nbytes == 4 * MIB
    assert cukern.counters()["driver_allocations"] == allocations + 1
    assert kept == []


OUT_OF_MEMORY: dict[str, Callable[[Any], object]] = {
    "zeros": lambda a: cukern.zeros(MIB, "int8"),
    "asarray": lambda a: cukern.asarray(np.zeros(MIB, "int8")),
    "asarray of another": lambda a: cukern.asarray(cukern.zeros(MIB, "int8", memory="pinned"), memory="device"),
    "add": lambda a: a + a,
    "add to a number": lambda a: 1 - a,
    "matmul": lambda a: a @ a,
    "astype": lambda a: a.astype("int64"),
    "copy": lambda a: a.copy(),
    "concat": lambda a: cukern.concat([a, a]),
    "reshape": lambda a: a.T.reshape(-1),
    "assignment over itself": lambda a: a.__setitem__(slice(1, None), a[:-1]),
    "dlpack": lambda a: a.__dlpack__(max_version=(1, 0), copy=True),
}


@pytest.mark.parametrize("name", OUT_OF_MEMORY)
def test_out_of_memory_leaves_nothing_and_recovers(name: str) -> None:
    array = cukern.ones((300, 300))
    allow(1000)
    before = in_use()
    for _ in range(2):
        with pytest.raises(cukern.OutOfMemoryError, match="bytes of device memory on device 0"):
            OUT_OF_MEMORY[name](array)
    assert in_use() == before
    assert array.get().sum() == 90_000
    cukern.set_memory_limit(None)
    OUT_OF_MEMORY[name](array)


@pytest.mark.parametrize("backend", ["host-staged", pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True)
def test_out_of_memory_for_host_arrays(backend: str) -> None:
    _cukern._set_staging(True, 0, 0)
    x, out = np.ones((300, 300)), np.full((300, 300), 7.0)
    allow(1000)
    with pytest.raises(cukern.OutOfMemoryError, match="add: the limit of"):
        cukern.add(x, x, out=out)
    assert (out == 7).all()
    cukern.set_memory_limit(None)
    assert (cukern.add(x, x, out=out) == 2).all()


# --- garbage ---

NEEDS_MEMORY: dict[str, Callable[[Any], Any]] = {
    "empty": lambda a: cukern.empty(MIB, "int8"),
    "asarray": lambda a: cukern.asarray(np.zeros(MIB, "int8")),
    "add": lambda a: a + 1,
    "copy": lambda a: a.copy(),
}


@pytest.mark.usefixtures("no_automatic_collection")
@pytest.mark.parametrize("name", NEEDS_MEMORY)
def test_out_of_memory_collects_garbage(name: str) -> None:
    array = cukern.ones(MIB // 8)
    node = Node(cukern.empty(2 * MIB, "int8"))
    gone = weakref.ref(node)
    allow(0)
    with pytest.raises(cukern.OutOfMemoryError):
        NEEDS_MEMORY[name](array)
    del node
    assert gone() is not None
    assert NEEDS_MEMORY[name](array).nbytes == MIB
    assert gone() is None


@pytest.mark.usefixtures("no_automatic_collection")
@pytest.mark.parametrize("memory", MEMORY)
def test_garbage_is_collected_for_each_memory(memory: str) -> None:
    node = Node(cukern.empty(MIB, "int8", memory=memory)[::2])
    gone = weakref.ref(node)
    allow(0, memory)
    del node
    assert cukern.zeros(MIB // 2, "int8", memory=memory).tolist() == [0] * (MIB // 2)
    assert gone() is None


@pytest.mark.usefixtures("no_automatic_collection")
@pytest.mark.parametrize("backend", ["host-staged", pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True)
def test_garbage_is_collected_for_host_arrays(backend: str) -> None:
    _cukern._set_staging(True, 0, 0)
    x = np.ones((100, 100))
    node = Node(cukern.empty(4 * MIB, "int8"))
    gone = weakref.ref(node)
    allow(0)
    del node
    assert (cukern.add(x, x) == 2).all()
    assert gone() is None


@pytest.mark.usefixtures("no_automatic_collection")
def test_memory_that_is_there_collects_nothing() -> None:
    node = Node(cukern.empty(MIB, "int8"))
    gone = weakref.ref(node)
    allow(MIB)
    del node
    assert cukern.empty(MIB, "int8").nbytes == MIB
    assert gone() is not None
    gc.collect()
    assert gone() is None


# --- sizes that do not fit ---

TOO_LARGE: dict[str, Callable[[], object]] = {
    "one length": lambda: cukern.empty(1 << 61),
    "a product": lambda: cukern.empty((1 << 31, 1 << 31, 2)),
    "a product that wraps to 0": lambda: cukern.zeros((1 << 32, 1 << 32), "int8"),
    "a product that wraps to a small number": lambda: cukern.ones(((1 << 32) + 1, 1 << 32), "int8"),
    "bytes, not elements": lambda: cukern.empty(1 << 60, "complex128"),
    "many dimensions": lambda: cukern.full((1 << 2,) * 32, 1),
    "like": lambda: cukern.zeros_like(cukern.broadcast_to(cukern.zeros(1, "int8"), 1 << 61), "float64"),
    "broadcast_to": lambda: cukern.broadcast_to(cukern.zeros(1), 1 << 61),
    "add": lambda: cukern.broadcast_to(cukern.ones(1), (1 << 40, 1)) + cukern.broadcast_to(cukern.ones(1), 1 << 40),
    "concat": lambda: cukern.concat([cukern.broadcast_to(cukern.zeros(1, "int8"), 1 << 62)] * 2),
    "stack": lambda: cukern.stack([cukern.broadcast_to(cukern.zeros(1, "int8"), 1 << 62)] * 2),
    "matmul": lambda: cukern.matmul(cukern.empty((1 << 40, 0)), cukern.empty((0, 1 << 40))),
    "astype": lambda: cukern.broadcast_to(cukern.zeros(1, "int8"), 1 << 61).astype("float64"),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_overflow_of_a_shapes_product(name: str) -> None:
    before = in_use()
    with pytest.raises(ValueError, match="more elements than memory can hold"):
        TOO_LARGE[name]()
    assert in_use() == before


@pytest.mark.parametrize("shape", [1 << 63, -(1 << 70), (3, 1 << 64)])
def test_lengths_that_are_no_index(shape: Any) -> None:
    with pytest.raises((ValueError, OverflowError)):
        cukern.empty(shape)


@pytest.mark.parametrize("shape", [-1, (3, -1), (0, -1), (-2, -3)])
def test_negative_lengths(shape: Any) -> None:
    with pytest.raises(ValueError, match="negative"):
        cukern.empty(shape)


@pytest.mark.provokes_cuda_error
@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("shape", [1 << 47, (1 << 58), (1 << 30, 1 << 29), (1 << 60) - 1])
def test_more_than_any_machine_has(shape: Any, memory: str) -> None:
    before = in_use(memory)
    with pytest.raises(cukern.OutOfMemoryError, match=rf"asked for \d{{15,19}} bytes of {memory} memory"):
        cukern.empty(shape, memory=memory)
    assert in_use(memory) == before
    assert cukern.ones(3, memory=memory).tolist() == [1.0] * 3


@pytest.mark.provokes_cuda_error
@pytest.mark.parametrize("memory", MEMORY)
def test_more_than_any_machine_has_under_a_limit(memory: str) -> None:
    cukern.set_memory_limit((1 << 63) - 1, memory)
    with pytest.raises(cukern.OutOfMemoryError):
        cukern.empty((1 << 60) - 1, memory=memory)
    with pytest.raises(cukern.OutOfMemoryError):
        cukern.empty((1 << 63) - 1, "int8", memory=memory)
    assert cukern.ones(3, memory=memory).tolist() == [1.0] * 3


def test_views_of_huge_shapes_need_no_memory() -> None:
    wide = cukern.broadcast_to(cukern.ones(1, "int8"), (1 << 31, 1 << 31))
    assert wide.size == 1 << 62
    assert wide[1 << 30, ::-1].shape == (1 << 31,)
    assert wide[5, 7].item() == 1
    assert cukern.empty((0, 1 << 40), "int8").size == 0
