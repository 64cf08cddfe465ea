"""Memory of calls that a CUDA graph holds: workspaces, scratch, packed copies; whose it is, and how long it stays."""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from conftest import SMALL
from interchange_tools import QUIET, bring

import cukern

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.usefixtures("backend"),
    pytest.mark.parametrize("backend", ["cuda"], indirect=True),
    *QUIET,
]
LONG = 1 << (16 if SMALL else 24)
MANY = 54_320  # of which no other block is free
POOLED = os.environ.get("CUKERN_POOL") != "0"


class Graph:
    """A graph that CuPy captures on a stream of cukern's."""

    def __init__(self) -> None:
        self.cupy = bring("cupy")
        self.stream: Any = cukern.Stream()
        self.graph: Any = None

    @contextlib.contextmanager
    def captured(self) -> Iterator[Any]:
        cukern.synchronize()
        theirs = self.cupy.cuda.ExternalStream(self.stream.ptr)
        with theirs:
            theirs.begin_capture()
            try:
                yield self.stream
            finally:
                self.graph = theirs.end_capture()

    def replay(self, stream: Any = None) -> None:
        handle = (stream or self.stream).ptr
        self.graph.launch(self.cupy.cuda.ExternalStream(handle))


def random(shape: Any, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def assert_replayed(graph: Graph, out: cukern.Array, wanted: np.ndarray) -> None:
    """Replay a graph that fills `out`, and compare what it leaves there."""
    out.fill(0)
    cukern.synchronize()
    graph.replay()
    cukern.synchronize()
    np.testing.assert_array_equal(cukern.asnumpy(out), wanted)


def test_a_product_outlives_its_stream() -> None:
    a = cukern.asarray(random((512, 512)))
    out, wanted = cukern.empty_like(a), cukern.matmul_cublas(a, a)
    graph = Graph()
    cukern.matmul_cublas(a, a, out=out, stream=graph.stream)
    with graph.captured() as stream:
        cukern.matmul_cublas(a, a, out=out, stream=stream)
    graph.stream = stream = None
    gc.collect()
    others = [cukern.Stream() for _ in range(18)]  # more than workspaces that are kept
    for other in others:
        cukern.matmul_cublas(a, a, stream=other)
    cukern.empty_cache()
    out.fill(0)
    cukern.synchronize()
    for other in others[:3]:
        graph.replay(other)
    cukern.synchronize()
    np.testing.assert_array_equal(cukern.asnumpy(out), cukern.asnumpy(wanted))


def test_replays_beside_eager_products() -> None:
    """The graph's workspace is its own: split products of small m and n write it."""
    a, b = cukern.asarray(random((64, 8192))), cukern.asarray(random((8192, 64), 1))
    c, d = cukern.asarray(random((64, 8192), 2)), cukern.asarray(random((8192, 64), 3))
    first, second = (cukern.asnumpy(cukern.matmul_cublas(x, y)) for x, y in ((a, b), (c, d)))
    own, eager = cukern.empty((64, 64), "float32"), cukern.empty((64, 64), "float32")
    graph = Graph()
    cukern.matmul_cublas(a, b, out=own, stream=graph.stream)
    with graph.captured() as stream:
        cukern.matmul_cublas(a, b, out=own, stream=stream)
    other = cukern.Stream()
    for _ in range(3 if SMALL else 100):
        graph.replay(other)
        cukern.matmul_cublas(c, d, out=eager, stream=graph.stream)
    cukern.synchronize()
    np.testing.assert_array_equal(cukern.asnumpy(own), first)
    np.testing.assert_array_equal(cukern.asnumpy(eager), second)


CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "sum": lambda x, out, s: cukern.sum(x, out=out, stream=s),
    "sum over rows": lambda x, out, s: cukern.sum(x.reshape(4, -1), axis=1, out=out, stream=s),
    "max of another type": lambda x, out, s: cukern.max(x, out=out, stream=s),
    "cumulative_sum": lambda x, out, s: cukern.cumulative_sum(x, out=out, stream=s),
    "cumulative_sum of another type": lambda x, out, s: cukern.cumulative_sum(x, dtype="float16", out=out, stream=s),
    "sum of many dimensions": lambda x, out, s: cukern.sum(x.reshape((2,) * 16 + (-1,))[::-1], out=out, stream=s),
    "packed product": lambda x, out, s: cukern.matmul_tiled(
        x[: 1 << 12].reshape(64, 64)[:, ::2], x[: 1 << 12].reshape(64, 64)[::2], out=out, stream=s
    ),
    "product with steps after it": lambda x, out, s: cukern.matmul_tiled(
        *(x[: 1 << 12].reshape(64, 64),) * 2,
        c=x[: 1 << 12].reshape(64, 64),
        beta=0.5,
        activation="gelu",
        out=out,
        stream=s,
    ),
    "vecdot of another type": lambda x, out, s: cukern.vecdot(x.reshape(64, -1), x.reshape(64, -1), out=out, stream=s),
    "cumulative_sum of bool": lambda x, out, s: cukern.cumulative_sum(x, dtype="bool", out=out, stream=s),
}
OUT: dict[str, Callable[[], Any]] = {
    "sum over rows": lambda: cukern.zeros(4, "float32"),
    "max of another type": lambda: cukern.zeros((), "float64"),
    "cumulative_sum": lambda: cukern.zeros(LONG, "float32"),
    "cumulative_sum of another type": lambda: cukern.zeros(LONG, "float32"),
    "packed product": lambda: cukern.zeros((64, 64), "float64"),
    "product with steps after it": lambda: cukern.zeros((64, 64), "float32"),
    "vecdot of another type": lambda: cukern.zeros(64, "float64"),
    "cumulative_sum of bool": lambda: cukern.zeros(LONG, "bool"),
}


@pytest.mark.parametrize("name", CALLS)
def test_scratch_gives_what_an_eager_call_gives(name: str) -> None:
    x = cukern.asarray(random(LONG))
    out = OUT.get(name, lambda: cukern.zeros((), "float32"))()
    graph = Graph()
    CALLS[name](x, out, graph.stream)
    wanted = cukern.asnumpy(out).copy()
    with graph.captured() as stream:
        CALLS[name](x, out, stream)
        cukern.add(x, 0, out=x, stream=stream)
        CALLS[name](x, out, stream)  # takes the first call's block again
    for _ in range(3):
        out.fill(0)
        cukern.synchronize()
        graph.replay()
        cukern.synchronize()
        np.testing.assert_array_equal(cukern.asnumpy(out), wanted)


def test_a_product_of_complex_vectors() -> None:
    x = cukern.asarray(random((64, 32)) + 1j * random((64, 32), 1))
    out, wanted = cukern.zeros(64, x.dtype), cukern.asnumpy(cukern.vecdot(x, x))
    graph = Graph()
    cukern.vecdot(x, x, out=out, stream=graph.stream)
    with graph.captured() as stream:
        cukern.vecdot(x, x, out=out, stream=stream)
    assert_replayed(graph, out, wanted)


def test_branches_have_scratch_of_their_own() -> None:
    x, y = cukern.asarray(random(LONG)), cukern.asarray(random(LONG, 1))
    outs = [cukern.zeros((), "float32") for _ in range(2)]
    wanted = [cukern.asnumpy(cukern.sum(each)) for each in (x, y)]
    cupy = bring("cupy")
    graph, side = Graph(), cukern.Stream()
    theirs, forked, joined = cupy.cuda.ExternalStream(side.ptr), cupy.cuda.Event(), cupy.cuda.Event()
    with graph.captured() as stream:
        forked.record()
        theirs.wait_event(forked)
        cukern.sum(x, out=outs[0], stream=stream)
        cukern.sum(y, out=outs[1], stream=side)
        joined.record(theirs)
        cupy.cuda.get_current_stream().wait_event(joined)
    for _ in range(2 if SMALL else 50):
        graph.replay()
        cukern.synchronize()
        assert [cukern.asnumpy(out) for out in outs] == wanted


def used() -> int:
    gc.collect()
    cukern.synchronize()
    return int(cukern.memory_info()["in_use"])


def comes_back_to(before: int) -> bool:
    """Tell whether no more is in use in the end; CUDA tells of a graph's end on a thread of its own."""
    end = time.monotonic() + 10
    while used() > before and time.monotonic() < end:
        time.sleep(0.01)
    return used() <= before


def at_rest() -> int:
    """Return what is in use once it has stayed the same for a while: graphs of other tests may just be ending."""
    seen = [used()]
    while len(seen) < 5 or len(set(seen[-5:])) > 1:
        time.sleep(0.02)
        seen.append(used())
    return seen[-1]


def test_what_a_graph_owns_comes_back_with_its_end() -> None:
    x, out = cukern.asarray(random(LONG)), cukern.zeros((), "float32")
    cukern.sum(x, out=out)
    before = at_rest()
    allocations: list[int] = []
    for _ in range(3):
        graph = Graph()
        with graph.captured() as stream:
            cukern.sum(x, out=out, stream=stream)
        graph.replay()
        assert used() > before
        del graph, stream
        assert comes_back_to(before)
        allocations.append(cukern.counters()["driver_allocations"])
    if POOLED:
        assert allocations[1:] == allocations[:-1]  # the next graph's memory is that of the last one


def test_what_a_call_of_many_steps_needs_comes_back_with_its_graph() -> None:
    """Later calls of the graph have it again, and once the graph is gone everybody."""
    x, out = cukern.asarray(random((512, 512))), cukern.zeros((512, 512), "float32")

    def product(**options: Any) -> None:
        cukern.matmul_tiled(x, x, c=x, beta=0.5, activation="gelu", out=out, **options)

    product()
    before = at_rest()
    graph = Graph()
    with graph.captured() as stream:
        product(stream=stream)
        first = cukern.memory_info()["in_use"]
        for _ in range(5):
            product(stream=stream)
        assert cukern.memory_info()["in_use"] == first
    graph.replay()
    assert used() > before
    del graph, stream
    assert comes_back_to(before)


def test_memory_that_is_freed_while_its_stream_is_captured() -> None:
    graph, reader, taker = Graph(), cukern.Stream(), cukern.Stream()
    a, b, seen, again = (cukern.zeros(MANY, "float32") for _ in range(4))
    with graph.stream:
        x = cukern.full(MANY, 1, "float32")
    cukern.add(x, 0, out=seen, stream=reader)  # two streams have worked on it,
    cukern.add(x, 0, out=again, stream=graph.stream)  # and of the last work there is no event
    before = at_rest()
    with graph.captured() as stream:
        del x  # no event can be had of what the captured stream has done
        with taker:
            others = [cukern.full(MANY, n, "float32") for n in range(3)]
        cukern.add(a, 1, out=b, stream=stream)
    graph.replay()
    cukern.synchronize()
    assert cukern.asnumpy(b).tolist() == cukern.asnumpy(seen).tolist() == [1] * MANY
    assert [cukern.asnumpy(other)[-1] for other in others] == [0, 1, 2]
    del others
    cukern.zeros(1)  # a call after the capture frees it
    assert comes_back_to(before - 4 * MANY)


def test_memory_of_a_captured_stream_cannot_be_waited_for() -> None:
    graph, reader = Graph(), cukern.Stream()
    a, b = (cukern.zeros(MANY, "float32") for _ in range(2))
    with graph.stream:
        x, host = cukern.ones(MANY, "float32"), cukern.ones(MANY, "float32", memory="pinned")
    with graph.captured() as stream:
        for call in (lambda: cukern.add(x, 1, stream=reader), lambda: host.tolist()):
            with pytest.raises(RuntimeError, match="being captured"):
                call()
        cukern.add(a, 1, out=b, stream=stream)
    graph.replay()
    cukern.synchronize()
    assert cukern.asnumpy(b).tolist() == [1] * MANY  # the capture went on
    assert host.tolist() == [1] * MANY


def test_a_captured_product_on_one_stream_too_many() -> None:
    a = cukern.asarray(random((256, 256)))
    out, wanted = cukern.zeros_like(a), cukern.asnumpy(cukern.matmul_cublas(a, a))
    streams = [cukern.Stream() for _ in range(16)]  # as many workspaces as are kept
    for stream in streams:
        cukern.matmul_cublas(a, a, out=out, stream=stream)
    graph = Graph()
    with graph.captured() as stream:
        cukern.matmul_cublas(a, a, out=out, stream=stream)
    assert_replayed(graph, out, wanted)
    with cukern.Stream():
        np.testing.assert_array_equal(cukern.asnumpy(cukern.matmul_cublas(a, a)), wanted)


@pytest.mark.pooled
def test_a_captured_call_that_finds_no_memory_leaves_the_capture_alone() -> None:
    a, b = (cukern.zeros(MANY, "float32") for _ in range(2))
    x, out = cukern.asarray(random(LONG)), cukern.zeros((), "float32")
    graph = Graph()
    cukern.empty_cache()
    cukern.set_memory_limit(at_rest() + 1000)
    cukern.empty(1000, memory="pinned")  # whose release from the cache would wait for the device
    try:
        with graph.captured() as stream:
            with pytest.raises(cukern.OutOfMemoryError, match="limit"):
                cukern.sum(x, out=out, stream=stream)
            cukern.add(a, 1, out=b, stream=stream)
    finally:
        cukern.set_memory_limit(None)
    graph.replay()
    cukern.synchronize()
    assert cukern.asnumpy(b).tolist() == [1] * MANY


@pytest.mark.provokes_cuda_error
def test_a_capture_that_fails_gives_its_memory_back() -> None:
    cupy = bring("cupy")
    x, out = cukern.asarray(random(LONG)), cukern.zeros((), "float32")
    before = used()
    stream = cukern.Stream()
    theirs = cupy.cuda.ExternalStream(stream.ptr)
    theirs.begin_capture()
    cukern.sum(x, out=out, stream=stream)
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError):
        theirs.synchronize()  # which ends the capture
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError):
        theirs.end_capture()
    assert comes_back_to(before)
    cukern.sum(x, out=out, stream=stream)
    cukern.synchronize()
