"""Whose stream a call on another library's arrays runs on, and what waits for what.

A stream is kept busy by torch's spin kernel, so that work in the wrong order shows: it is done too early. A host that
waits finds the stream done.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

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
def tensors(torch: Any) -> Any:
    """Zeros, ones and memory for the result; what is loaded on first use has been, since that may wait."""
    x, y, out = (torch.full((SIZE,), value, device="cuda") for value in (0.0, 1.0, 3.0))
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(1)
        cukern.add(x, y, out=out)
        cukern.add(x, y).clone().fill_(3)
        torch.empty_like(out).copy_(out)
    with cukern.Stream():
        cukern.add(x, y, out=out)
    torch.cuda.synchronize()
    return x, y, out


# --- the current stream of the operands' library ---


@pytest.mark.parametrize("fresh", [False, True], ids=["out", "fresh result"])
def test_calls_run_on_torchs_current_stream(torch: Any, tensors: Any, fresh: bool) -> None:
    x, y, out = tensors
    stream, copied = torch.cuda.Stream(), torch.empty_like(out)
    with torch.cuda.stream(stream):
        cukern.add(x, y)  # the stream's part of torch's pool has memory now
    torch.cuda.synchronize()
    before = waits()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(CYCLES)
        x.fill_(5)
        found = cukern.add(x, y) if fresh else cukern.add(x, y, out=out)
        copied.copy_(found)
    assert not stream.query()  # the host has waited for nothing
    assert waits() == before
    stream.synchronize()
    assert type(found) is torch.Tensor
    assert (copied == 6).all()


def test_calls_on_torchs_default_stream(torch: Any, tensors: Any) -> None:
    x, y, out = tensors
    before = waits()
    torch.cuda._sleep(CYCLES)
    x.fill_(5)
    cukern.add(x, y, out=out)
    assert not torch.cuda.current_stream().query()
    assert waits() == before
    assert (out == 6).all()


@pytest.mark.parametrize("fresh", [False, True], ids=["out", "fresh result"])
def test_calls_run_on_cupys_current_stream(cupy: Any, fresh: bool) -> None:
    x, y, out = (cupy.full(SIZE, n, "float32") for n in (0, 1, 0))
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        x.fill(3)
        cukern.add(x, y, out=out)
        cukern.add(x, y)
    cupy.cuda.runtime.deviceSynchronize()
    before = waits()
    with stream:
        keep_busy(stream.ptr)
        x.fill(5)
        found = cukern.add(x, y) if fresh else cukern.add(x, y, out=out)
    assert not stream.done
    assert waits() == before
    stream.synchronize()
    assert type(found) is cupy.ndarray
    assert (cupy.asnumpy(found) == 6).all()


def test_the_first_operand_with_a_stream_decides(torch: Any, tensors: Any) -> None:
    x, y, out = tensors
    own = cukern.zeros(SIZE, "float32")
    stream = torch.cuda.Stream()
    cukern.add(x, own, out=out)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(CYCLES)
        x.fill_(5)
        cukern.add(own, x, out=own)  # an Array has no stream of its own
        cukern.add(own, y, out=out)
        assert (out == 6).all()
    assert (cukern.asnumpy(own) == 5).all()


# --- streams that are given ---


def test_a_with_block_wins_and_torchs_stream_waits(torch: Any, tensors: Any) -> None:
    x, y, out = tensors
    stream, own, found = torch.cuda.Stream(), cukern.Stream(), torch.empty_like(out)
    before = waits()
    keep_busy(own.ptr)
    with torch.cuda.stream(stream):
        x.fill_(5)
        with own:
            assert cukern.add(x, y, out=out) is out
        found.copy_(out)
    time.sleep(0.005)
    assert not stream.query()  # it waits for what runs on the other
    assert waits() == before
    stream.synchronize()
    assert (found == 6).all()


def test_a_with_block_waits_for_torchs_stream(torch: Any, tensors: Any) -> None:
    x, y, out = tensors
    stream, own = torch.cuda.Stream(), cukern.Stream()
    with torch.cuda.stream(stream):
        cukern.add(x, y)
    torch.cuda.synchronize()
    before = waits()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(CYCLES)
        x.fill_(5)
        with own:
            cukern.add(x, y, out=out)
            result = cukern.add(x, y)
    assert not own.done
    assert waits() == before
    own.synchronize()
    stream.synchronize()
    assert (out == 6).all()
    assert (result == 6).all()


STREAMS: dict[str, Callable[[], tuple[Any, Any, int]]] = {}  # what is given, what keeps it, the handle


def stream_kind(make: Callable[[], tuple[Any, Any, int]]) -> Callable[[], tuple[Any, Any, int]]:
    STREAMS[make.__name__] = make
    return make


def with_protocol(stream: Any, number: int) -> Any:
    """Return a stream, or its handle where the library is from before the protocol."""
    return stream if hasattr(stream, "__cuda_stream__") else number


@stream_kind
def of_cukern() -> tuple[Any, Any, int]:
    stream = cukern.Stream()
    return stream, stream, stream.ptr


@stream_kind
def handle() -> tuple[Any, Any, int]:
    stream = cukern.Stream()
    return stream.ptr, stream, stream.ptr


@stream_kind
def protocol() -> tuple[Any, Any, int]:
    stream = cukern.Stream()

    class Theirs:
        def __cuda_stream__(self) -> tuple[int, int]:
            return stream.__cuda_stream__()

    return Theirs(), stream, stream.ptr


@stream_kind
def of_torch() -> tuple[Any, Any, int]:
    stream = bring("torch").cuda.Stream()
    number = stream.cuda_stream
    return with_protocol(stream, number), stream, number


@stream_kind
def of_cupy() -> tuple[Any, Any, int]:
    stream = bring("cupy").cuda.Stream(non_blocking=True)
    return with_protocol(stream, stream.ptr), stream, stream.ptr


@stream_kind
def external_of_cupy() -> tuple[Any, Any, int]:
    owner = cukern.Stream()
    return with_protocol(bring("cupy").cuda.ExternalStream(owner.ptr), owner.ptr), owner, owner.ptr


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize("how", ["stream=", "from_handle"])
def test_streams_of_every_kind(torch: Any, tensors: Any, kind: str, how: str) -> None:
    x, y, out = tensors
    given, keeper, number = STREAMS[kind]()
    stream = torch.cuda.Stream()
    before = waits()
    keep_busy(number)
    with torch.cuda.stream(stream):
        x.fill_(5)
        if how == "stream=":
            cukern.add(x, y, out=out, stream=given)
        else:
            with cukern.Stream.from_handle(given):
                cukern.add(x, y, out=out)
    time.sleep(0.005)
    assert not stream.query()  # it waits for the call, which is on the busy stream
    assert waits() == before
    stream.synchronize()
    assert (out == 6).all()
    del keeper


def test_other_libraries_work_on_our_streams(torch: Any, cupy: Any, tensors: Any) -> None:
    x, y, out = tensors
    own = cukern.Stream()
    with torch.cuda.stream(torch.cuda.ExternalStream(own.ptr)):
        torch.cuda._sleep(CYCLES)
        x.fill_(5)
    with own:
        cukern.add(x, y, out=out)
    with cupy.cuda.ExternalStream(own.ptr):
        found = cupy.from_dlpack(out.detach()) + 1
        found = cupy.asnumpy(found)
    assert (found == 7).all()
