"""Injected failures of the runtime: each is the right exception, nothing leaks, the next call works."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable

import numpy as np
import pytest
from conftest import STAGED

import cukern
from cukern import _cukern

POOLED = os.environ.get("CUKERN_POOL") != "0"
KINDS = ["allocate", "copy", "launch", "event", "stream", "synchronize"]
ONES = np.ones((300, 200), np.float32)
WORK: dict[str, tuple[Callable[[], np.ndarray], set[str]]] = {
    "small add": (lambda: cukern.add(ONES[0], ONES[1]), {"launch", "stream", "synchronize"}),
    "large add": (lambda: cukern.add(ONES, ONES.T.copy().T), set(KINDS)),
    "strided add": (lambda: cukern.add(ONES[:, ::2], ONES[:, ::2]), set(KINDS)),
    "tiled product": (lambda: cukern.matmul_tiled(ONES, ONES.T), set(KINDS)),
    "cuBLAS product": (lambda: cukern.matmul_cublas(ONES, ONES.T), set(KINDS)),
    "packed product": (lambda: cukern.matmul_tiled(ONES[::-1], ONES.T.astype(np.int32)), set(KINDS)),
}


@pytest.mark.parametrize("backend", STAGED, indirect=True)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("work", WORK)
def test_every_failure_in_turn(backend: str, work: str, kind: str) -> None:
    call, meets = WORK[work]
    wanted = call()
    gc.collect()  # what earlier tests have left in cycles
    _cukern._release_caches()
    at_rest, in_use = _cukern._held(), _cukern._block_usage()[0]
    failures = 0
    try:
        for n in range(1, 200):
            _cukern._release_caches()  # so that a call allocates all that it needs
            before = _cukern._fault_calls(kind)
            _cukern._inject_fault(kind, n)
            try:
                result = call()
            except cukern.CudaError as error:
                failures += 1
                expected = cukern.OutOfMemoryError if kind == "allocate" else cukern.CudaError
                assert type(error) is expected
                assert "injected by a test" in str(error)
                assert error.code == (2 if kind == "allocate" else 999)
                assert error.name == ("cudaErrorMemoryAllocation" if kind == "allocate" else "cudaErrorUnknown")
                assert error.api.startswith(("cuda", "cublas"))
            else:
                np.testing.assert_array_equal(result, wanted)
            reached = _cukern._fault_calls(kind) - before
            _cukern._inject_fault(kind, 0)
            assert _cukern._block_usage()[0] == in_use
            _cukern._release_caches()
            assert _cukern._held() == at_rest
            np.testing.assert_array_equal(call(), wanted)  # warm, after the failure
            if reached < n:
                break
        else:
            pytest.fail("the call never came to its end")
    finally:
        _cukern._inject_fault(kind, 0)
    assert (failures > 0) == (kind in meets)


@pytest.mark.parametrize("backend", STAGED, indirect=True)
def test_out_of_memory_gives_cached_blocks_back_and_tries_again(backend: str) -> None:
    _cukern._set_staging(True, 0, 0)
    cukern.add(ONES, ONES)
    assert (_cukern._block_usage()[1] > 0) == POOLED
    if POOLED:
        _cukern._inject_fault("allocate", 1)
    larger = np.ones((600, 400), np.float32)
    np.testing.assert_array_equal(cukern.add(larger, larger), larger + larger)


@pytest.mark.parametrize("backend", STAGED, indirect=True)
def test_out_of_memory_is_a_memory_error_with_sizes(backend: str) -> None:
    _cukern._release_caches()
    cukern.add(ONES[0], ONES[0])  # a lane is there
    _cukern._inject_fault("allocate", 1)
    sizes = r"asked for \d+ bytes of device memory on device 0; -?\d+ free there, \d+ in use by cukern and \d+ cached"
    with pytest.raises(MemoryError, match=f"add: cudaMalloc failed.*{sizes}"):
        cukern.add(ONES, ONES)


@pytest.mark.parametrize("backend", STAGED, indirect=True)
def test_once_warm_nothing_is_allocated(backend: str) -> None:
    work = [call for call, _ in WORK.values()]
    for call in work:
        call()
    before = {kind: _cukern._fault_calls(kind) for kind in ("allocate", "stream")}
    events = _cukern._fault_calls("event")
    copies = _cukern._fault_calls("copy")
    for call in work * 5:
        call()
    if POOLED:
        assert before["allocate"] == _cukern._fault_calls("allocate")
    assert before["stream"] == _cukern._fault_calls("stream")
    assert _cukern._fault_calls("copy") > copies
    assert _cukern._fault_calls("event") - events == _cukern._fault_calls("copy") - copies  # records, no more


@pytest.mark.parametrize("backend", STAGED, indirect=True)
def test_a_failure_leaves_out_to_its_owner(backend: str) -> None:
    out = np.full(ONES.shape, 7, np.float32)
    _cukern._inject_fault("launch", 1)
    with pytest.raises(cukern.CudaError):
        cukern.add(ONES, ONES, out=out)
    assert (out == 7).all()


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["cuda"], indirect=True)
@pytest.mark.parametrize("part", [1, 2])
def test_a_launch_in_parts_is_tried_again_only_while_nothing_is_written(backend: str, part: int) -> None:
    x = cukern.ones((3,) * 9, "int32")[(slice(2),) * 9]  # more dimensions than one kernel takes
    gc.collect()
    cycle: list[object] = [cukern.ones(1000)]
    cycle.append(cycle)
    del cycle  # for the collection before the second try
    before = _cukern._fault_calls("part")
    _cukern._inject_fault("part", part)
    if part == 1:
        cukern.add(x, 1, out=x)
        assert _cukern._fault_calls("part") == before + 3  # of two, the first twice
    else:
        with pytest.raises(cukern.CudaError, match="cudaLaunchKernel") as caught:
            cukern.add(x, 1, out=x)
        assert not isinstance(caught.value, MemoryError)
        assert _cukern._fault_calls("part") == before + 2
    values, counts = np.unique(cukern.asnumpy(x), return_counts=True)
    assert dict(zip(values.tolist(), counts.tolist(), strict=True)) == ({2: 512} if part == 1 else {1: 256, 2: 256})


def test_exception_types() -> None:
    assert issubclass(cukern.CudaError, RuntimeError)
    assert issubclass(cukern.OutOfMemoryError, cukern.CudaError)
    assert issubclass(cukern.OutOfMemoryError, MemoryError)
    assert issubclass(cukern.DeviceLostError, cukern.CudaError)
    for error in (cukern.CudaError, cukern.OutOfMemoryError, cukern.DeviceLostError):
        assert error.__module__ == "cukern"
        assert error.__doc__
