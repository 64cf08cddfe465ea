"""Workspaces of cuBLAS: blocks of the pool, one for each stream, counted and given back as other memory is."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from interchange_tools import QUIET, bring

import cukern
from cukern import _cukern

WORKSPACE = 32 << 20
KEPT = 16
pytestmark = [
    pytest.mark.usefixtures("no_cached_memory"),
    pytest.mark.parametrize("backend", [pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True),
    pytest.mark.pooled,
    *QUIET,
]


@pytest.fixture
def product(rng: np.random.Generator) -> tuple[Any, Any, np.ndarray]:
    """Return the operands of a product whose sums cuBLAS splits, in its workspace; they are exact."""
    a, b = (rng.integers(-2, 3, shape).astype(np.float32) for shape in ((64, 8192), (8192, 64)))
    return cukern.asarray(a), cukern.asarray(b), a @ b


def allocations() -> int:
    return int(cukern.counters()["driver_allocations"])


def cached() -> int:
    return int(cukern.memory_info()["cached"])


def test_they_are_of_the_pool(product: tuple[Any, Any, np.ndarray]) -> None:
    a, b, wanted = product
    out = cukern.asarray(wanted) * 0
    cukern.matmul_cublas(a, b, out=out)  # cuBLAS and its handle are there now
    np.testing.assert_array_equal(cukern.asnumpy(out), wanted)
    out.fill(0)
    cukern.empty_cache()
    before, held = cukern.memory_info(), _cukern._held()
    cukern.matmul_cublas(a, b, out=out)
    after = cukern.memory_info()
    assert after["in_use"] == before["in_use"]  # what no call uses is cached
    assert after["cached"] == before["cached"] + WORKSPACE
    assert _cukern._held()[0] == held[0] + 1
    assert cukern.memory_info() == after  # counted, and left where it is
    cukern.set_memory_limit(after["in_use"] + WORKSPACE)
    large = cukern.empty(WORKSPACE, "int8")  # there is room for it without the workspace
    assert _cukern._held()[0] == held[0] + 1
    del large
    cukern.set_memory_limit(None)
    cukern.empty_cache()
    assert cached() == before["cached"]
    assert _cukern._held() == held
    np.testing.assert_array_equal(cukern.asnumpy(out), wanted)


def test_a_stream_gives_its_workspace_back(product: tuple[Any, Any, np.ndarray]) -> None:
    a, b, wanted = product
    for turn in range(40):
        stream = cukern.Stream()
        out = cukern.matmul_cublas(a, b, stream=stream)
        np.testing.assert_array_equal(cukern.asnumpy(out), wanted)
        del out, stream
        if turn == 19:
            before = allocations()
    assert allocations() == before
    assert cached() < 10 * WORKSPACE  # operands remember the last few streams that read them, and keep them


def test_more_streams_than_are_kept(product: tuple[Any, Any, np.ndarray]) -> None:
    a, b, wanted = product
    streams = [cukern.Stream() for _ in range(KEPT + 4)]
    outs = [cukern.matmul_cublas(a, b, stream=stream) for stream in streams]
    cukern.synchronize()
    before = allocations()
    for _ in range(5):
        for out, stream in zip(outs, streams, strict=True):
            out.fill(0)
            cukern.matmul_cublas(a, b, out=out, stream=stream)
    for out in outs:
        np.testing.assert_array_equal(cukern.asnumpy(out), wanted)
    assert allocations() == before


def test_streams_of_others(product: tuple[Any, Any, np.ndarray]) -> None:
    """Their end is not noticed: a block is used again after the device has done what there was."""
    torch = bring("torch")
    a, b, wanted = product
    x, y = torch.from_dlpack(a), torch.from_dlpack(b)
    torch.cuda.synchronize()
    for _ in range(3):
        streams = [torch.cuda.Stream() for _ in range(KEPT + 4)]
        outs = [torch.zeros((64, 64), device="cuda") for _ in streams]
        torch.cuda.synchronize()
        for out, stream in zip(outs, streams, strict=True):
            with torch.cuda.stream(stream):
                cukern.matmul_cublas(x, y, out=out)
        torch.cuda.synchronize()
        for out in outs:
            np.testing.assert_array_equal(out.cpu().numpy(), wanted)
    with torch.cuda.stream(streams[-1]):
        cukern.matmul_cublas(x, y, out=outs[-1])
        before = allocations()
        for _ in range(50):
            cukern.matmul_cublas(x, y, out=outs[-1])
        torch.cuda._sleep(50_000_000)
        for _ in range(50):  # while the device is behind
            cukern.memory_info()
            cukern.matmul_cublas(x, y, out=outs[-1])
        assert allocations() == before
    torch.cuda.synchronize()
    assert cached() < 2 * len(streams) * WORKSPACE


@pytest.mark.parametrize("room", [1 << 20, 100_000, 16_384])
def test_less_memory_than_a_workspace(room: int, product: tuple[Any, Any, np.ndarray]) -> None:
    a, b, wanted = product
    out = cukern.asarray(wanted) * 0
    bias = cukern.zeros(64, "float32")
    cukern.empty_cache()
    cukern.set_memory_limit(cukern.memory_info()["in_use"] + room)
    for _ in range(2):
        cukern.matmul_cublas(a, b, out=out)
        np.testing.assert_array_equal(cukern.asnumpy(out), wanted)
        cukern.matmul(a, b, bias=bias, out=out, kernel="cublas")
        np.testing.assert_array_equal(cukern.asnumpy(out), wanted)
    assert 0 < cached() <= room
    cukern.set_memory_limit(None)
    cukern.matmul_cublas(a, b, out=out)
    assert cached() >= WORKSPACE  # the next one is whole


def test_no_memory_at_all(product: tuple[Any, Any, np.ndarray]) -> None:
    a, b, wanted = product
    out = cukern.asarray(wanted) * 0
    cukern.matmul_cublas(a, b, out=out)
    cukern.synchronize()
    cukern.empty_cache()
    cukern.set_memory_limit(cukern.memory_info()["in_use"] + 1000)
    with pytest.raises(cukern.OutOfMemoryError, match="limit"):
        cukern.matmul_cublas(a, b, out=out)
    cukern.set_memory_limit(None)
    cukern.matmul_cublas(a, b, out=out)
    np.testing.assert_array_equal(cukern.asnumpy(out), wanted)


def test_threads(product: tuple[Any, Any, np.ndarray]) -> None:
    """On one stream, on their own ones, and while all that is unused is given back."""
    a, b, wanted = product
    shared = cukern.Stream()
    failures: list[BaseException] = []
    done = threading.Event()

    def multiply(stream: cukern.Stream) -> None:
        try:
            for _ in range(30):
                np.testing.assert_array_equal(cukern.asnumpy(cukern.matmul_cublas(a, b, stream=stream)), wanted)
        except BaseException as failure:
            failures.append(failure)

    def give_back() -> None:
        while not done.wait(0.001):
            cukern.empty_cache()

    threads = [threading.Thread(target=multiply, args=(stream,)) for stream in [shared] * 3 + [cukern.Stream()] * 3]
    threads += [threading.Thread(target=multiply, args=(cukern.Stream(),)) for _ in range(2)]
    cleaner = threading.Thread(target=give_back)
    for thread in [*threads, cleaner]:
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    cleaner.join()
    assert not failures, failures[0]
