"""What other libraries do before and after a call of ours is ordered by events, without a wait of the host.

Streams are kept busy as in test_interchange_streams.py.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from interchange_tools import CYCLES, QUIET, SIZE, bring, keep_busy, waits

import cukern
from cukern import _cukern

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.usefixtures("backend"),
    pytest.mark.parametrize("backend", ["cuda"], indirect=True),
    *QUIET,
]


@pytest.fixture
def torch() -> Any:
    return bring("torch")


@pytest.fixture
def cupy() -> Any:
    return bring("cupy")


@pytest.fixture
def arrays() -> Any:
    """Zeros, ones and memory for the result; what is loaded on first use has been, since that may wait."""
    zeros, ones, out = cukern.zeros(SIZE, "float32"), cukern.ones(SIZE, "float32"), cukern.empty(SIZE, "float32")
    with cukern.Stream():
        cukern.add(zeros, ones, out=out)
        cukern.copyto(out, ones)
        out.fill(3)
    bring("torch").cuda._sleep(1)
    bring("torch").cuda.synchronize()
    return zeros, ones, out


# --- DLPack: the stream that the consumer names ---


@pytest.mark.parametrize("stream", [None, 1, 2, "handle"])
def test_an_export_is_ordered_for_the_consumers_stream(arrays: Any, stream: Any) -> None:
    x, _, found = arrays
    producer, other = cukern.Stream(), cukern.Stream()
    consumer = {None: 1, "handle": other.ptr}.get(stream, stream)
    cukern.copyto(found, x, stream=consumer)
    cukern.synchronize()
    before = waits()
    keep_busy(producer.ptr)
    x.fill(5, stream=producer)
    capsule = x.__dlpack__(stream=other.ptr if stream == "handle" else stream, max_version=(1, 0))
    view = cukern.from_dlpack(capsule, stream=consumer)  # knows nothing of the producer
    cukern.copyto(found, view, stream=consumer)
    assert not producer.done
    assert waits() == before
    assert (cukern.asnumpy(found, stream=consumer) == 5).all()


@pytest.mark.unsanitized  # needs work that lasts longer than the calls beside it
def test_an_export_without_ordering(arrays: Any) -> None:
    x, _, found = arrays
    producer, consumer = cukern.Stream(), cukern.Stream()
    cukern.copyto(found, x, stream=consumer)
    cukern.synchronize()
    keep_busy(producer.ptr)
    x.fill(5, stream=producer)
    before = _cukern._fault_calls("event")
    capsule = x.__dlpack__(stream=-1)
    assert _cukern._fault_calls("event") == before  # nothing was ordered
    assert not producer.done
    x.__dlpack__(stream=consumer.ptr)
    assert _cukern._fault_calls("event") > before
    view = cukern.from_dlpack(capsule, stream=consumer)  # the Array's own memory, whose order is known
    cukern.copyto(found, view, stream=consumer)
    assert (cukern.asnumpy(found, stream=consumer) == 5).all()


@pytest.mark.unsanitized  # needs work that lasts longer than the calls beside it
def test_an_array_that_another_object_lends_is_ordered_as_itself(arrays: Any) -> None:
    class Lender:
        def __dlpack__(self, **options: Any) -> Any:
            return lent.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return lent.__dlpack_device__()

    zeros, ones, lent = arrays
    lent.fill(3)
    writer, reader = cukern.Stream(), cukern.Stream()
    cukern.add(zeros, zeros, stream=reader)
    cukern.add(zeros, ones, out=Lender(), stream=writer)
    lent.fill(3)
    cukern.synchronize()
    keep_busy(writer.ptr)
    cukern.add(zeros, ones, out=Lender(), stream=writer)
    found = cukern.add(lent, zeros, stream=reader)
    assert not writer.done
    assert (cukern.asnumpy(found, stream=reader) == 1).all()


def test_an_ambiguous_stream_is_refused(arrays: Any) -> None:
    with pytest.raises(ValueError, match="ambiguous"):
        arrays[0].__dlpack__(stream=0)


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_a_librarys_from_dlpack_names_its_current_stream(torch: Any, cupy: Any, arrays: Any, library: str) -> None:
    x, _, _ = arrays
    producer = cukern.Stream()
    stream = torch.cuda.Stream() if library == "torch" else cupy.cuda.Stream(non_blocking=True)
    before = waits()
    with torch.cuda.stream(stream) if library == "torch" else stream:
        warm = bring(library).from_dlpack(x) + 1
        del warm
        keep_busy(producer.ptr)
        x.fill(5, stream=producer)
        found = bring(library).from_dlpack(x) + 1
        assert not producer.done
        assert waits() == before
        assert (found == 6).all()


@pytest.mark.parametrize("call", ["from_dlpack", "asarray"])
def test_imports_are_ordered_after_torchs_stream(torch: Any, arrays: Any, call: str) -> None:
    _, y, result = arrays
    x = torch.full((SIZE,), 3.0, device="cuda")
    stream, own = torch.cuda.Stream(), cukern.Stream()
    x.fill_(0)
    with own:
        cukern.add(getattr(cukern, call)(x), y, out=result)
    torch.cuda.synchronize()
    before = waits()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(CYCLES)
        x.fill_(5)
        view = getattr(cukern, call)(x, stream=own)
    with own:
        cukern.add(view, 1, out=result)
    assert not own.done
    assert waits() == before
    assert (cukern.asnumpy(result) == 6).all()


# --- __cuda_array_interface__ ---


@pytest.mark.parametrize("active", [False, True])
def test_the_interface_is_ordered_by_an_event(arrays: Any, active: bool) -> None:
    x, _, found = arrays
    producer, own = cukern.Stream(), cukern.Stream()
    keep_busy(producer.ptr)
    x.fill(5, stream=producer)
    before = waits()
    if active:
        with own:
            interface = x.__cuda_array_interface__
    else:
        interface = x.__cuda_array_interface__
    assert interface["stream"] == (own.ptr if active else 1)
    view = cukern.from_dlpack(x.__dlpack__(stream=-1), stream=interface["stream"])
    cukern.copyto(found, view, stream=interface["stream"])
    assert not producer.done
    assert waits() == before
    assert (cukern.asnumpy(found, stream=interface["stream"]) == 5).all()


@pytest.mark.parametrize("library", ["cupy", "numba"])
def test_an_array_goes_to_others_without_a_wait_of_ours(cupy: Any, arrays: Any, library: str) -> None:
    x, _, _ = arrays
    cuda = bring("numba.cuda")
    producer = cukern.Stream()
    cuda.as_cuda_array(x, sync=False)  # Numba takes its time at first
    before = waits()
    keep_busy(producer.ptr)
    x.fill(5, stream=producer)
    if library == "numba":
        view = cuda.as_cuda_array(x, sync=False)
        assert not producer.done
        found = view.copy_to_host()
        bring("torch").cuda.synchronize()
    else:
        found = cupy.asnumpy(cupy.asarray(x))  # CuPy waits for the stream that the interface names
    assert waits() == before
    assert (found == 5).all()


def test_numba_waits_by_itself(arrays: Any) -> None:
    x, _, _ = arrays
    cuda = bring("numba.cuda")
    producer = cukern.Stream()
    cuda.as_cuda_array(x)  # Numba takes its time at first
    before = waits()
    keep_busy(producer.ptr)
    x.fill(5, stream=producer)
    view = cuda.as_cuda_array(x)
    assert producer.done
    assert waits() == before
    assert (view.copy_to_host() == 5).all()


def test_cupys_pending_work_comes_first(cupy: Any, arrays: Any) -> None:
    _, y, out = arrays
    x = cupy.zeros(SIZE, "float32")
    stream, own = cupy.cuda.Stream(non_blocking=True), cukern.Stream()
    with stream, own:
        x.fill(3)
        cukern.add(x, y, out=out)
    cupy.cuda.runtime.deviceSynchronize()
    before = waits()
    with stream:
        keep_busy(stream.ptr)
        x.fill(5)
        with own:
            cukern.add(x, y, out=out)
    assert not own.done
    assert waits() == before
    assert (cukern.asnumpy(out) == 6).all()


def test_numbas_pending_work_comes_first(torch: Any, arrays: Any) -> None:
    _, y, out = arrays
    cuda = bring("numba.cuda")
    theirs, own = cukern.Stream(), cukern.Stream()
    x = cuda.to_device(np.zeros(SIZE, np.float32), stream=cuda.external_stream(theirs.ptr))
    tensor = torch.as_tensor(x, device="cuda")
    tensor.fill_(3)
    assert x.__cuda_array_interface__["stream"] == theirs.ptr
    with own:
        cukern.add(x, y, out=out)
    torch.cuda.synchronize()
    before = waits()
    with torch.cuda.stream(torch.cuda.ExternalStream(theirs.ptr)):
        torch.cuda._sleep(CYCLES)
        tensor.fill_(5)
    with own:
        cukern.add(x, y, out=out)
    assert not own.done
    assert waits() == before
    assert (cukern.asnumpy(out) == 6).all()


# --- memory that is free again ---


def test_memory_that_waits_for_another_stream_waits_for_its_own_too(arrays: Any) -> None:
    own, reader, taker = cukern.Stream(), cukern.Stream(), cukern.Stream()
    size = 54_321  # of which no other block is free
    with own:
        x = cukern.full(size, 1, "float32")
    copy, found = cukern.empty(size, "float32"), cukern.empty(size, "float32")
    cukern.synchronize()
    keep_busy(reader.ptr)
    cukern.add(x, 0, out=copy, stream=reader)
    for _ in range(3):
        keep_busy(own.ptr)
    cukern.add(x, 1, out=found, stream=own)
    del x
    before = cukern.counters()["driver_allocations"]
    with taker:
        other = cukern.full(size, 9, "float32")
    assert cukern.counters()["driver_allocations"] == before  # x's memory
    assert cukern.asnumpy(found).tolist() == [2.0] * size
    assert cukern.asnumpy(other)[-1] == 9


# --- a thread of the host that waits, and others that launch meanwhile ---


@contextlib.contextmanager
def waiting(stream: Any, wait: Callable[[], Any]) -> Iterator[list[Any]]:
    """A thread that has begun to wait for a busy stream; what its call gave is there at the end."""
    found: list[Any] = []
    before = _cukern._fault_calls("synchronize")
    thread = threading.Thread(target=lambda: found.append(wait()))
    thread.start()
    while _cukern._fault_calls("synchronize") == before and thread.is_alive():
        time.sleep(0)
    assert not stream.done
    yield found
    thread.join()


@pytest.mark.unsanitized  # needs work that lasts longer than the calls beside it
def test_a_launch_while_an_export_waits_waits_as_well() -> None:
    x, stream = cukern.zeros(SIZE, "float32", memory="pinned"), cukern.Stream()
    cukern.add(x, 0, out=x, stream=stream)
    memory = (ctypes.c_float * SIZE).from_address(np.asarray(x).ctypes.data)  # of which nobody knows
    for _ in range(3):
        keep_busy(stream.ptr)
    cukern.add(x, 1, out=x, stream=stream)
    with waiting(stream, lambda: memoryview(x)) as views:
        cukern.add(x, 2, out=x, stream=stream)
        assert memory[0] == 3  # the buffer counts from before its wait on
    assert views[0][SIZE - 1] == 3


@pytest.mark.unsanitized  # as above
def test_an_event_that_a_thread_waits_for_is_not_recorded_anew(torch: Any) -> None:
    x, y = (cukern.zeros(SIZE, "float32", memory="pinned") for _ in range(2))
    busy, idle = torch.cuda.Stream(), torch.cuda.Stream()
    theirs, others = (cukern.Stream.from_handle(stream.cuda_stream) for stream in (busy, idle))
    own = cukern.Stream()
    for array in (x, y):
        for stream in (theirs, others, own):
            cukern.add(array, 0, out=array, stream=stream)
        float(array[0])  # now nothing is known of earlier work
    gc.collect()
    _cukern._release_caches()  # the events that are kept for reuse, too
    for _ in range(3):
        keep_busy(busy.cuda_stream)
    cukern.add(x, 1, out=x, stream=theirs)  # may end without our notice: an event is recorded
    events = _cukern._held()[2]
    with waiting(theirs, lambda: float(cukern.asnumpy(x)[0])) as values:  # which exports nothing
        cukern.add(x, 2, out=x, stream=own)  # comes after that event, which nobody else needs then
        assert _cukern._held()[2] == events
        cukern.add(y, 1, out=y, stream=others)  # needs an event, and gets another one
        assert _cukern._held()[2] == events + 1
    assert values == [3]
