"""Calls while torch or CuPy captures a CUDA graph: they go into the graph, or raise and leave the capture whole."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from interchange_tools import MEMORIES, QUIET, SIZE, bring

import cukern

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.usefixtures("backend"),
    pytest.mark.parametrize("backend", ["cuda"], indirect=True),
    *QUIET,
]

SIDE = 128  # of matrices that cuBLAS multiplies


@pytest.fixture
def torch() -> Any:
    return bring("torch")


class Capture:
    """A capture by torch or CuPy. `handle` is the stream's."""

    def __init__(self, library: str) -> None:
        self.library = library
        self.module = bring(library)
        self.owner = cukern.Stream()  # torch's own come from a pool, and have been used
        self.handle = self.owner.ptr
        self.stream = self.module.cuda.ExternalStream(self.handle)
        if library == "torch":
            self.graph = self.module.cuda.CUDAGraph()

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Make the stream current, for the call before the capture that loads what is loaded once."""
        self.settle()
        with self.module.cuda.stream(self.stream) if self.library == "torch" else self.stream:
            yield
        self.settle()

    @contextlib.contextmanager
    def begun(self) -> Iterator[None]:
        self.settle()
        if self.library == "torch":
            with self.module.cuda.graph(self.graph, stream=self.stream):
                yield
            return
        with self.stream:
            self.stream.begin_capture()
            try:
                yield
            finally:
                self.graph = self.stream.end_capture()

    def replay(self) -> None:
        self.settle()
        if self.library == "torch":
            self.graph.replay()
        else:
            self.graph.launch(self.stream)
        self.settle()

    def settle(self) -> None:
        bring("torch").cuda.synchronize()

    def full(self, shape: Any, value: float) -> Any:
        if self.library == "torch":
            return self.module.full(shape if isinstance(shape, tuple) else (shape,), value, device="cuda")
        return self.module.full(shape, value, dtype="float32")


@pytest.fixture(params=["torch", "cupy"])
def capture(request: pytest.FixtureRequest) -> Capture:
    return Capture(request.param)


def fill(subject: Any, value: float) -> None:
    if hasattr(subject, "fill_"):
        subject.fill_(value)
    else:
        subject.fill(value)


def holds(subject: Any, value: float) -> bool:
    """Whether every element is `value`; replays are not known to an Array, so the device has been waited for."""
    return bool((cukern.asnumpy(subject) == value).all())


def full(shape: Any, value: float) -> cukern.Array:
    return cukern.full(shape, value, "float32")


def test_a_call_on_the_librarys_arrays(capture: Capture) -> None:
    x, y, out = (capture.full(SIZE, value) for value in (1.0, 2.0, 0.0))
    with capture.current():
        cukern.add(x, y, out=out)
        cukern.multiply(out, 2, out=out)
    fill(out, 0)
    before = cukern.counters()["synchronizations"]
    with capture.begun():
        assert cukern.add(x, y, out=out) is out
        cukern.multiply(out, 2, out=out)
    assert cukern.counters()["synchronizations"] == before
    assert holds(out, 0)  # nothing has run yet
    for value in (10, 20):
        fill(x, value)
        capture.replay()
        assert holds(out, 2 * (value + 2))


def test_a_call_on_arrays(capture: Capture) -> None:
    x, y, out = full(SIZE, 1), full(SIZE, 2), full(SIZE, 0)
    with capture.current():
        cukern.add(x, y, out=out, stream=capture.handle)
        cukern.multiply(out, 2, out=out, stream=capture.handle)
    out.fill(0)
    with capture.begun():
        cukern.add(x, y, out=out, stream=capture.handle)
        with cukern.Stream.from_handle(capture.handle):
            cukern.multiply(out, 2, out=out)
    assert holds(out, 0)
    for value in (10, 20):
        x.fill(value)
        capture.replay()
        assert holds(out, 2 * (value + 2))


def test_arrays_beside_the_librarys_own(capture: Capture) -> None:
    x, y, out = capture.full(SIZE, 1.0), full(SIZE, 2), full(SIZE, 0)
    with capture.current():
        cukern.add(x, y, out=out)
        cukern.subtract(out, y, out=x)
    with capture.begun():
        cukern.add(x, y, out=out)  # on the stream of x
        cukern.subtract(out, x, out=x)
    capture.replay()
    assert holds(out, 3)
    assert holds(x, 2)
    capture.replay()
    assert holds(out, 4)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, stream: cukern.add(x, x, stream=stream),
        lambda x, stream: cukern.empty(SIZE, "float32", stream=stream),
        lambda x, stream: cukern.copy(x, stream=stream),
        lambda x, stream: cukern.matmul(x[:, None], x[None], stream=stream),
    ],
    ids=["add", "empty", "copy", "matmul"],
)
def test_a_fresh_result_of_ours_is_refused(capture: Capture, call: Callable[[Any, Any], Any]) -> None:
    x, y, out = full(SIZE, 1), full(SIZE, 2), full(SIZE, 0)
    with capture.current():
        cukern.add(x, y, out=out, stream=capture.handle)
        call(x, capture.handle)
    with capture.begun():
        with pytest.raises(RuntimeError, match="captured"):
            call(x, capture.handle)
        cukern.add(x, y, out=out, stream=capture.handle)
    x.fill(10)
    capture.replay()
    assert holds(out, 12)  # the capture has survived


def test_a_fresh_result_of_the_librarys_own_pool(capture: Capture) -> None:
    x, y = capture.full(SIZE, 1.0), capture.full(SIZE, 2.0)
    with capture.current():
        cukern.add(x, y)
    with capture.begun():
        result = cukern.add(x, y)
        result = cukern.add(result, y)
    assert type(result) is type(x)
    for value in (10, 20):
        fill(x, value)
        capture.replay()
        assert holds(result, value + 4)


@pytest.mark.parametrize("ours", [False, True], ids=["theirs", "ours"])
def test_a_product(capture: Capture, ours: bool) -> None:
    make = full if ours else capture.full
    x, y, out = (make((SIDE, SIDE), value) for value in (1.0, 2.0, 0.0))
    options = {"stream": capture.handle} if ours else {}
    with capture.current():
        cukern.matmul(x, y, out=out, **options)
    fill(out, 0)
    with capture.begun():
        cukern.matmul(x, y, out=out, **options)
    assert holds(out, 0)
    for value in (3, 4):
        fill(x, value)
        capture.replay()
        assert holds(out, 2 * value * SIDE)


def test_a_streams_first_product(capture: Capture) -> None:
    x, y, out = (capture.full((SIDE, SIDE), value) for value in (1.0, 2.0, 0.0))
    cukern.matmul(x, y, out=out)  # on another stream: cuBLAS is open
    with capture.current():
        cukern.add(x, y, out=out)
    with capture.begun():
        cukern.matmul_cublas(x, y, out=out)
    fill(x, 5)
    capture.replay()
    assert holds(out, 10 * SIDE)


def test_errors_in_the_arguments_leave_a_capture_whole(capture: Capture) -> None:
    x, y, out = (capture.full(SIZE, value) for value in (1.0, 2.0, 0.0))
    with capture.current():
        cukern.add(x, y, out=out)
    with capture.begun():
        with pytest.raises(TypeError, match="host memory"):
            cukern.add(x, np.ones(SIZE, np.float32), out=out)
        with pytest.raises(ValueError, match="out has shape"):
            cukern.add(x, y, out=out[:3])
        cukern.add(x, y, out=out)
    fill(x, 5)
    capture.replay()
    assert holds(out, 7)


# --- exchange while a stream is captured ---


@pytest.mark.parametrize("stream", [None, -1, 1, 2, "handle"])
def test_an_export(capture: Capture, stream: Any) -> None:
    own, out = full(SIZE, 1), capture.full(SIZE, 0.0)
    with cukern.Stream():
        own.fill(1)
    with capture.current():
        cukern.add(own, out, out=out)
    fill(out, 0)
    with capture.begun():
        capsule = own.__dlpack__(stream=capture.handle if stream == "handle" else stream, max_version=(1, 0))
        view = cukern.from_dlpack(capsule, stream=capture.handle)
        cukern.add(view, out, out=out)  # on the stream of `out`
        with pytest.raises(ValueError, match="ambiguous"):
            own.__dlpack__(stream=0)
    own.fill(10)
    for n in (1, 2):
        capture.replay()
        assert holds(out, 10 * n)


def test_the_librarys_view_of_an_array(capture: Capture) -> None:
    own, out = full(SIZE, 1), capture.full(SIZE, 0.0)
    with capture.current():
        fill(out, 0)
        warm = capture.module.from_dlpack(own)
        out += warm
    fill(out, 0)
    with capture.begun():
        view = capture.module.from_dlpack(own)
        out += view
    own.fill(10)
    capture.replay()
    assert holds(out, 10)


@pytest.mark.parametrize("call", ["from_dlpack", "asarray"])
def test_an_import(capture: Capture, call: str) -> None:
    x, out = capture.full(SIZE, 1.0), full(SIZE, 0)
    make = getattr(cukern, call)
    with capture.current():
        cukern.add(make(x, stream=capture.handle), 1, out=out, stream=capture.handle)
    with capture.begun():
        view = make(x, stream=capture.handle)
        cukern.add(view, 1, out=out, stream=capture.handle)
    fill(x, 10)
    capture.replay()
    assert holds(out, 11)


def test_torchs_own_capture_stream(torch: Any) -> None:
    x, y, out = (torch.full((SIZE,), value, device="cuda") for value in (1.0, 2.0, 0.0))
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # torch's advice: warm up on a side stream
        cukern.add(x, y, out=out)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        cukern.add(x * 2, y, out=out)
        result = cukern.add(out, y) * 10
    x.fill_(7)
    graph.replay()
    assert (out == 16).all()
    assert (result == 180).all()


@pytest.mark.pooled
def test_lent_memory_is_not_settled_while_there_is_other(torch: Any) -> None:
    capture = Capture("torch")
    x, out = full(SIZE, 1), full(SIZE, 0)
    with capture.current():
        cukern.add(x, x, out=out, stream=capture.handle)
    cukern.empty_cache()
    lent = cukern.empty(SIZE, "float32")
    torch.from_dlpack(lent)
    with cukern.Stream():  # its blocks are any stream's once it is gone
        spare = cukern.empty(SIZE, "float32")
        del spare
    del lent
    before = cukern.counters()
    with capture.begun():
        other = cukern.empty(SIZE, "float32")
        cukern.add(x, x, out=out, stream=capture.handle)
    after = cukern.counters()
    assert after["driver_allocations"] == before["driver_allocations"]
    assert after["free_list_hits"] == before["free_list_hits"] + 1
    capture.replay()
    assert holds(out, 2)
    del other


@pytest.mark.pooled
@pytest.mark.parametrize("memory", MEMORIES)
def test_the_driver_is_asked_for_memory_meanwhile(capture: Capture, memory: str) -> None:
    x, out = full(SIZE, 1), full(SIZE, 0)
    busy = cukern.Stream()
    with capture.current():
        cukern.add(x, x, out=out, stream=capture.handle)
    cukern.empty_cache()
    pending = cukern.full(SIZE, 3, "float32", stream=busy)
    lent = cukern.empty(5 * SIZE, "float32")  # of another size: it is of no use to what is made below
    bring("torch").from_dlpack(lent)
    del lent
    with capture.begun():
        before = cukern.counters()["driver_allocations"]
        other = cukern.empty(SIZE, "float32", memory=memory, stream=busy)
        assert cukern.counters()["driver_allocations"] == before + 1
        other.fill(7, stream=busy)
        assert pending.tolist() == [3] * SIZE  # the host may wait for other streams
        cukern.add(x, x, out=out, stream=capture.handle)
    capture.replay()
    assert holds(out, 2)
    assert holds(other, 7)


@pytest.mark.pooled
@pytest.mark.parametrize("memory", MEMORIES[:2])
def test_the_driver_gets_memory_back_meanwhile(capture: Capture, memory: str) -> None:
    x, out = full(SIZE, 1), full(SIZE, 0)
    with capture.current():
        cukern.add(x, x, out=out, stream=capture.handle)
    cukern.empty_cache()
    spare = cukern.ones(SIZE, "float32", memory=memory)
    cukern.synchronize()
    with capture.begun():
        del spare
        assert cukern.memory_info(memory)["cached"] > 0
        cukern.empty_cache()
        assert cukern.memory_info(memory)["cached"] == 0
        cukern.add(x, x, out=out, stream=capture.handle)
    capture.replay()
    assert holds(out, 2)


@pytest.mark.pooled
def test_arrays_are_freed_and_made_elsewhere_meanwhile(torch: Any) -> None:
    capture = Capture("torch")
    x, out = full(SIZE, 1), full(SIZE, 0)
    with capture.current():
        cukern.add(x, x, out=out, stream=capture.handle)
    with capture.begun():
        other = cukern.empty(SIZE, "float32")
        del other
        cukern.add(x, x, out=out, stream=capture.handle)
    del x
    others = [full(SIZE, -1) for _ in range(8)]  # the graph still reads the memory of x
    capture.replay()
    assert holds(out, 2)
    del others


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_reductions_and_layouts_are_captured(library: str) -> None:
    """Work of several kernels: without memory for partial results, and in the layouts that have their own kernels."""
    capture = Capture(library)
    a, row = capture.full((300, 1000), 2.0), capture.full((1000,), 3.0)
    results = [capture.full(shape, 0.0) for shape in ((), (1000,), (300, 1000), (1000, 300), (300, 1000))]

    def work() -> None:
        cukern.sum(a, out=results[0])
        cukern.max(a, axis=0, out=results[1])
        cukern.cumulative_sum(a, axis=1, out=results[2])
        cukern.add(a.T, 1, out=results[3])
        cukern.add(a, row, out=results[4])

    with capture.current():
        work()
    with capture.begun():
        work()
    for result in results:
        result[...] = 0
    capture.replay()
    assert float(results[0]) == 600_000
    assert bool((results[1] == 2).all())
    assert float(results[2][-1, -1]) == 2000
    assert bool((results[3] == 3).all())
    assert bool((results[4] == 5).all())
