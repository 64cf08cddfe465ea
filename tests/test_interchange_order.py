"""What other libraries do before and after a call of ours is ordered by events, without a wait of the host.

Streams are kept busy as in test_interchange_streams.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from interchange_tools import CYCLES, QUIET, SIZE, bring, keep_busy, waits

import cukern

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
    view = cukern.from_dlpack(x.__dlpack__(stream=-1), stream=consumer)
    cukern.copyto(found, view, stream=consumer)
    consumer.synchronize()
    assert not producer.done
    assert (cukern.asnumpy(found, stream=consumer) == 0).all()  # as it was before
    producer.synchronize()
    assert (cukern.asnumpy(view, stream=consumer) == 5).all()


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
