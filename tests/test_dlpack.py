"""DLPack: the export of an Array."""

from __future__ import annotations

import ctypes
import enum
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from dlpack_cases import MEMORIES, VALUES, own_device, read_only_array, snapshot
from dlpack_tools import (
    CPU,
    CUDA,
    DTYPES,
    IS_COPIED,
    LEGACY,
    METAL,
    READ_ONLY,
    VERSIONED,
    Reading,
)

import cukern

pytestmark = pytest.mark.usefixtures("backend", "nothing_left")


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("max_version", [None, (1, 0)])
def test_export_fields(backend: str, memory: str, max_version: tuple[int, int] | None) -> None:
    array = cukern.asarray(VALUES, memory=memory)
    reading = snapshot(array, max_version=max_version)
    assert reading.name == (VERSIONED if max_version else LEGACY)
    assert reading.version == ((1, 3) if max_version else None)
    assert reading.flags == (0 if max_version else None)
    assert reading.device == own_device(backend, memory) == array.__dlpack_device__()
    assert (reading.dtype, reading.shape, reading.strides) == ((2, 32, 1), (3, 4), (4, 1))
    assert reading.data
    assert reading.byte_offset == 0


@pytest.mark.parametrize(
    ("max_version", "name"),
    [(None, LEGACY), ((0, 8), LEGACY), ((1, 0), VERSIONED), ((1, 99), VERSIONED), ((2, 0), VERSIONED)],
)
def test_export_is_of_the_version_that_the_consumer_knows(max_version: Any, name: str) -> None:
    reading = snapshot(cukern.ones(2), max_version=max_version)
    assert reading.name == name
    assert reading.version is None or reading.version[0] == 1


@pytest.mark.parametrize("max_version", ["1.0", 1, (1,), (1, 0, 0), ("1", 0)])
def test_export_refuses_what_is_no_version(max_version: Any) -> None:
    with pytest.raises(TypeError):
        cukern.ones(2).__dlpack__(max_version=max_version)


@pytest.mark.parametrize("dtype", DTYPES)
def test_export_of_element_types(dtype: str) -> None:
    assert snapshot(cukern.zeros(2, dtype)).dtype == (*DTYPES[dtype], 1)


def test_export_of_bfloat16() -> None:
    assert snapshot(cukern.zeros(2, cukern.bfloat16)).dtype == (4, 16, 1)


@pytest.mark.parametrize("key", [np.s_[:, ::-1], np.s_[1:, 1::2], np.s_[::-2], np.s_[None, 2], np.s_[1, 2], np.s_[3:]])
def test_export_of_views(key: Any) -> None:
    array, model = cukern.asarray(VALUES), VALUES[(*np.index_exp[key], ...)]
    start = snapshot(array).data
    view = snapshot(array[key])
    assert view.shape == model.shape
    if model.size:
        assert view.strides == tuple(stride // 4 for stride in model.strides)
        assert view.data - start == model.ctypes.data - VALUES.ctypes.data
    assert view.byte_offset == 0


def test_export_of_a_broadcast_view_has_strides_of_zero() -> None:
    assert snapshot(cukern.broadcast_to(cukern.ones((3, 1)), (3, 5)), max_version=(1, 0)).strides == (1, 0)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1,) * 64])
def test_export_of_shapes(shape: tuple[int, ...]) -> None:
    reading = snapshot(cukern.zeros(shape), max_version=(1, 0))
    assert reading.shape == shape
    assert len(reading.strides or ()) == len(shape)


def test_export_options_are_keywords() -> None:
    array = cukern.ones(2)
    with pytest.raises(TypeError):
        array.__dlpack__(None)  # type: ignore[misc]
    with pytest.raises(TypeError):
        array.__dlpack__(streams=None)  # type: ignore[call-arg]


@pytest.mark.parametrize("stream", [None, -1, 1, 2])
def test_export_for_streams(stream: int | None) -> None:
    array = cukern.asarray(VALUES)
    capsule = array.__dlpack__(stream=stream)
    np.testing.assert_array_equal(cukern.asnumpy(cukern.from_dlpack(capsule)), VALUES)


def test_export_for_a_streams_handle() -> None:
    stream = cukern.Stream()
    capsule = cukern.asarray(VALUES).__dlpack__(stream=stream.ptr)
    np.testing.assert_array_equal(cukern.asnumpy(cukern.from_dlpack(capsule, stream=stream)), VALUES)


@pytest.mark.parametrize("stream", [0, -2, -(2**70)])
def test_export_refuses_ambiguous_streams(stream: int) -> None:
    with pytest.raises(ValueError, match="stream is"):
        cukern.ones(2).__dlpack__(stream=stream)


@pytest.mark.parametrize("stream", ["1", 1.0, True, (0, 1)])
def test_export_refuses_what_is_no_stream(stream: Any) -> None:
    with pytest.raises(TypeError, match="stream is"):
        cukern.ones(2).__dlpack__(stream=stream)


class DeviceType(enum.IntEnum):
    kDLCPU = CPU
    kDLCUDA = CUDA


@pytest.mark.parametrize("memory", MEMORIES)
def test_export_to_the_own_device(backend: str, memory: str) -> None:
    array = cukern.asarray(VALUES, memory=memory)
    device, number = array.__dlpack_device__()
    for pair in [(device, number), (np.int64(device), np.int32(number))]:
        reading = snapshot(array, dl_device=pair, max_version=(1, 0))
        assert (reading.device, reading.flags, reading.data) == ((device, number), 0, snapshot(array).data)


@pytest.mark.parametrize("memory", MEMORIES)
def test_export_to_the_cpu(backend: str, memory: str) -> None:
    array = cukern.asarray(VALUES, memory=memory)
    copied = backend == "cuda" and memory == "device"
    capsule = array.__dlpack__(dl_device=(DeviceType.kDLCPU, 0), max_version=(1, 0))
    reading = Reading(capsule)
    assert reading.device == (CPU, 0)
    assert reading.flags == (IS_COPIED if copied else 0)
    assert (reading.data == snapshot(array).data) == (not copied)
    found = np.ctypeslib.as_array((ctypes.c_float * 12).from_address(reading.data)).reshape(3, 4)
    np.testing.assert_array_equal(found, VALUES)
    if copied:
        with pytest.raises(BufferError, match="copy=False"):
            array.__dlpack__(dl_device=(CPU, 0), copy=False)


@pytest.mark.parametrize("pair", [(METAL, 0), (CPU, 1), (CUDA, 7)])
def test_export_to_another_device_is_refused(pair: tuple[int, int]) -> None:
    with pytest.raises(BufferError, match="was asked for"):
        cukern.ones(2).__dlpack__(dl_device=pair)


@pytest.mark.parametrize("pair", [1, "cpu", (1,), (1, 0, 0), ("cpu", 0), (1, None)])
def test_export_refuses_what_is_no_device(pair: Any) -> None:
    with pytest.raises(TypeError, match="dl_device"):
        cukern.ones(2).__dlpack__(dl_device=pair)


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("max_version", [None, (1, 0)])
def test_export_with_copy(memory: str, max_version: tuple[int, int] | None) -> None:
    array = cukern.asarray(VALUES, memory=memory)
    shared = [snapshot(array, copy=copy).data for copy in (None, False)]
    assert shared[0] == shared[1]
    capsule = array.__dlpack__(copy=True, max_version=max_version)
    reading = Reading(capsule)
    assert reading.data != shared[0]
    assert reading.flags == (IS_COPIED if max_version else None)
    assert reading.device == array.__dlpack_device__()
    array.fill(0)
    np.testing.assert_array_equal(cukern.asnumpy(cukern.from_dlpack(capsule)), VALUES)


def test_export_of_a_read_only_array(backend: str) -> None:
    array, _ = read_only_array(backend)
    assert snapshot(array, max_version=(1, 0)).flags == READ_ONLY
    assert snapshot(array[1:], max_version=(1, 0)).flags == READ_ONLY
    with pytest.raises(BufferError, match="read-only"):
        array.__dlpack__()
    with pytest.raises(BufferError, match="read-only"):
        array.__dlpack__(max_version=(0, 8), copy=False)
    assert snapshot(array, copy=True).name == LEGACY
    assert snapshot(array, copy=True, max_version=(1, 0)).flags == IS_COPIED


@pytest.mark.parametrize("max_version", [None, (1, 0)])
def test_a_capsule_that_nobody_takes_keeps_the_array_only_itself(max_version: Any) -> None:
    array = cukern.ones(3)
    died = weakref.ref(array)
    capsule = array.__dlpack__(max_version=max_version)
    del array
    assert died() is not None
    del capsule
    assert died() is None


@pytest.mark.parametrize("max_version", [None, (1, 0)])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_consumer_keeps_the_array_until_it_calls_the_deleter(max_version: Any, elsewhere: bool) -> None:
    array = cukern.asarray(VALUES, memory="pinned")
    died = weakref.ref(array)
    capsule = array.__dlpack__(max_version=max_version)
    reading = Reading(capsule)
    reading.take(capsule)
    del array, capsule
    assert died() is not None
    np.testing.assert_array_equal(np.ctypeslib.as_array((ctypes.c_float * 12).from_address(reading.data)), VALUES.flat)
    if elsewhere:
        thread = threading.Thread(target=reading.delete)
        thread.start()
        thread.join()
    else:
        reading.delete()
    assert died() is None


def test_numpy_shares_memory_both_ways_on_the_host(backend: str) -> None:
    array = cukern.asarray(VALUES, memory="pinned")
    view = np.from_dlpack(array, device="cpu" if backend == "cuda" else None)
    view[0, 0] = 50
    assert array[0, 0].item() == 50
    again = cukern.from_dlpack(view)
    np.testing.assert_array_equal(cukern.asnumpy(again), view)
