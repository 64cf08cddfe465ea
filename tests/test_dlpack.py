"""DLPack both ways, capsules and the C exchange API, against producers and consumers made by hand."""

from __future__ import annotations

import ctypes
import enum
import gc
import subprocess
import sys
import textwrap
import threading
import types
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from dlpack_tools import (
    ALIVE,
    ALLOCATE,
    CPU,
    CUDA,
    CUDA_HOST,
    CUDA_MANAGED,
    CURRENT_STREAM,
    DTYPES,
    EXCHANGE,
    EXCHANGE_NAME,
    FORM_NAMES,
    FORMS,
    IS_COPIED,
    LEGACY,
    MANAGED_FROM_OBJECT,
    METAL,
    OBJECT_FROM_MANAGED,
    READ_ONLY,
    TENSOR_FROM_OBJECT,
    VERSIONED,
    Counter,
    DLTensor,
    OldProducer,
    Producer,
    Reading,
    SetError,
    capsule_name,
    exchange_table,
    fill_tensor,
    make_exchange_type,
    make_managed,
    new_capsule,
)

import cukern
from cukern import _cukern

MEMORIES = ["device", "managed", "pinned"]
VALUES = np.arange(12, dtype=np.float32).reshape(3, 4)
pytestmark = pytest.mark.usefixtures("backend")


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Every tensor that a producer of ours made is deleted in the end, exactly once."""
    before = set(ALIVE)
    yield
    settle()
    assert set(ALIVE) <= before


def settle() -> None:
    """Have cukern let go of what nobody uses."""
    gc.collect()
    cukern.synchronize()


def own_device(backend: str, memory: str) -> tuple[int, int]:
    types_of_memory = {"device": CUDA, "managed": CUDA_MANAGED, "pinned": CUDA_HOST}
    return (types_of_memory[memory] if backend == "cuda" else CPU, 0)


def values_for(dtype: str) -> np.ndarray:
    values = np.arange(12).reshape(3, 4)
    return (values % 2 == 0) if dtype == "bool" else values.astype(dtype)


def snapshot(array: Any, **options: Any) -> Reading:
    """Read a capsule, and drop it unused: what its pointers lead to is gone."""
    return Reading(array.__dlpack__(**options))


# --- export ---


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


def read_only_array(backend: str) -> tuple[cukern.Array, Producer]:
    producer = Producer(VALUES, VERSIONED, backend == "cuda", flags=READ_ONLY)
    array = cukern.from_dlpack(producer)
    assert not array.flags["WRITEABLE"]
    return array, producer


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


# --- import ---


@pytest.fixture
def on_gpu(backend: str) -> bool:
    return backend == "cuda"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_import_of_element_types(on_gpu: bool, dtype: str, form: str) -> None:
    values = values_for(dtype)
    producer = Producer(values, form, on_gpu)
    array = cukern.from_dlpack(producer)
    assert (array.dtype, array.shape) == (np.dtype(dtype), (3, 4))
    np.testing.assert_array_equal(cukern.asnumpy(array), values)
    assert producer.deleted == (1, 0)
    del array
    settle()
    assert producer.deleted == (1, 1)


def test_import_of_bfloat16(on_gpu: bool) -> None:
    bits = np.array([0x3F80, 0x4000, 0xC040], np.uint16)
    array = cukern.from_dlpack(Producer(bits, on_gpu=on_gpu, dtype=(4, 16, 1)))
    assert array.dtype == "bfloat16" == cukern.bfloat16
    assert array.tolist() == [1.0, 2.0, -3.0]


@pytest.mark.parametrize("dtype", [(0, 4, 1), (2, 32, 2), (2, 128, 1), (10, 8, 1), (3, 64, 1), (4, 32, 1), (6, 1, 1)])
@pytest.mark.parametrize("form", FORMS)
def test_import_of_other_element_types_is_refused(form: str, dtype: tuple[int, int, int]) -> None:
    producer = Producer(VALUES, form, dtype=dtype)
    with pytest.raises(TypeError, match="element type"):
        cukern.from_dlpack(producer)
    assert producer.deleted == (1, 1)


LAYOUTS: dict[str, tuple[dict[str, Any], Any]] = {
    "null strides": ({}, lambda v: v),
    "C": ({"strides": (4, 1)}, lambda v: v),
    "transposed": ({"shape": (4, 3), "strides": (1, 4)}, lambda v: v.T),
    "every second": ({"shape": (3, 2), "strides": (4, 2)}, lambda v: v[:, ::2]),
    "one row thrice": ({"strides": (0, 1)}, lambda v: np.broadcast_to(v[0], (3, 4))),
    "byte offset": ({"shape": (2, 3), "strides": (4, 1), "byte_offset": 20}, lambda v: v[1:, 1:]),
    "reversed": ({"strides": (-4, -1), "byte_offset": 44}, lambda v: v[::-1, ::-1]),
    "overlapping": (
        {"shape": (4, 3), "strides": (1, 1)},
        lambda v: np.lib.stride_tricks.as_strided(v, (4, 3), (4, 4)),
    ),
    "no dimensions": ({"shape": (), "byte_offset": 8}, lambda v: v[0, 2]),
    "no dimensions, strides": ({"shape": (), "strides": ()}, lambda v: v[0, 0]),
    "empty": ({"shape": (2, 0), "data": None}, lambda v: v[:2, :0]),
    "empty with memory": ({"shape": (0, 5), "strides": (1, 1)}, lambda v: np.zeros((0, 5), np.float32)),
    "any stride of length one": ({"shape": (1, 4), "strides": (2**62, 1)}, lambda v: v[:1]),
    "any stride of length none": ({"shape": (0, 4), "strides": (2**62, -(2**62))}, lambda v: v[:0]),
    "64 dimensions": ({"shape": (1,) * 63 + (12,)}, lambda v: v.reshape((1,) * 63 + (12,))),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", LAYOUTS)
def test_import_of_layouts(on_gpu: bool, name: str, form: str) -> None:
    fields, model = LAYOUTS[name]
    array = cukern.from_dlpack(Producer(VALUES, form, on_gpu, **fields))
    np.testing.assert_array_equal(cukern.asnumpy(array), model(VALUES), strict=True)


@pytest.mark.parametrize("form", FORMS)
def test_import_shares_memory(on_gpu: bool, form: str) -> None:
    producer = Producer(VALUES, form, on_gpu)
    array = cukern.from_dlpack(producer, copy=False)
    array.fill(9)
    assert array.base is producer
    assert array.flags["OWNDATA"] is False
    assert (producer.values() == 9).all()
    view = array[1:]
    del array
    settle()
    assert producer.deleted == (1, 0)
    view.fill(8)
    assert producer.values()[1:].tolist() == [[8] * 4] * 2
    del view
    settle()
    assert producer.deleted == (1, 1)


@pytest.mark.parametrize("form", FORMS)
def test_import_of_a_capsule(on_gpu: bool, form: str) -> None:
    producer = Producer(VALUES, on_gpu=on_gpu)
    capsule = producer.make(form)
    array = cukern.from_dlpack(capsule)
    assert array.base is None
    assert not array.flags["OWNDATA"] or array.base is None
    assert capsule_name(capsule) == b"used_" + form.encode()
    np.testing.assert_array_equal(cukern.asnumpy(array), VALUES)
    del capsule
    producer.drop()
    assert producer.deleted == (1, 0)
    del array
    settle()
    assert producer.deleted == (1, 1)


@pytest.mark.parametrize("form", FORMS)
def test_a_capsule_is_used_once(on_gpu: bool, form: str) -> None:
    producer = Producer(VALUES, on_gpu=on_gpu)
    capsule = producer.make(form)
    array = cukern.from_dlpack(capsule)
    with pytest.raises(ValueError, match="has been used"):
        cukern.from_dlpack(capsule)
    np.testing.assert_array_equal(cukern.asnumpy(array), VALUES)
    del array
    settle()
    assert producer.deleted == (1, 1)
    with pytest.raises(ValueError, match="has been used"):
        cukern.from_dlpack(capsule)


@pytest.mark.parametrize("version", [(0, 8), (2, 0), (2**32 - 1, 0)])
def test_a_capsule_of_an_unknown_major_version_is_left_to_its_owner(version: tuple[int, int]) -> None:
    producer = Producer(VALUES, VERSIONED, version=version)
    capsule = producer.make(VERSIONED)
    with pytest.raises(BufferError, match=r"version .*1\.x is supported"):
        cukern.from_dlpack(capsule)
    assert capsule_name(capsule) == FORM_NAMES[VERSIONED]
    assert producer.deleted == (1, 0)
    del capsule
    producer.drop()
    assert producer.deleted == (1, 1)
    with pytest.raises(BufferError, match="is supported"):
        cukern.add(producer, 1)
    producer.drop()
    assert producer.deleted == (2, 2)


def test_a_later_minor_version_is_read(on_gpu: bool) -> None:
    array = cukern.from_dlpack(Producer(VALUES, VERSIONED, on_gpu, version=(1, 99), flags=1 << 40))
    np.testing.assert_array_equal(cukern.asnumpy(array), VALUES)
    assert array.flags["WRITEABLE"]


@pytest.mark.parametrize("form", FORMS)
def test_a_tensor_without_a_deleter(on_gpu: bool, form: str) -> None:
    producer = Producer(VALUES, form, on_gpu, has_deleter=False)
    array = cukern.from_dlpack(producer)
    np.testing.assert_array_equal(cukern.asnumpy(array), VALUES)
    address = next(address for address, managed in ALIVE.items() if managed.counter is producer.counter)
    del array
    settle()
    del ALIVE[address]


BAD: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "65 dimensions": ({"shape": (1,) * 65}, ValueError, "65 dimensions"),
    "negative dimensions": ({"ndim": -1}, ValueError, "-1 dimensions"),
    "negative length": ({"shape": (3, -4)}, ValueError, "negative length|more elements"),
    "negative length, strides": ({"shape": (3, -4), "strides": (4, 1)}, ValueError, "negative length|more elements"),
    "product overflows": ({"shape": (2**40, 2**40)}, ValueError, "more elements"),
    "bytes overflow": ({"shape": (2**62,)}, ValueError, "more elements"),
    "product overflows, strides": ({"shape": (2**40, 2**40), "strides": (0, 0)}, ValueError, "more elements"),
    "null": ({"data": None}, TypeError, "no memory"),
    "null, no dimensions": ({"data": None, "shape": ()}, TypeError, "no memory"),
    "null, an offset": ({"data": None, "byte_offset": 64}, TypeError, "no memory"),
    "misaligned": ({"shape": (2,), "byte_offset": 2}, ValueError, "not aligned"),
    "another device": ({"device": (METAL, 0)}, TypeError, "device"),
    "lanes": ({"dtype": (2, 32, 4)}, TypeError, "lanes"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("how", ["object", "capsule"])
def test_import_of_bad_tensors_deletes_them_once(on_gpu: bool, how: str, name: str, form: str) -> None:
    fields, error, message = BAD[name]
    producer = Producer(VALUES, form, on_gpu, **fields)
    subject = producer if how == "object" else producer.make(form)
    with pytest.raises(error, match=message):
        cukern.from_dlpack(subject)
    settle()
    taken = int(producer.counter.made > 0)  # a device that is not ours is refused before a capsule is asked for
    assert producer.deleted == (taken, taken)
    del subject
    producer.drop()
    assert producer.deleted == (taken, taken)


@pytest.mark.parametrize("name", [name for name in BAD if name != "misaligned"])
def test_bad_tensors_as_operands_are_deleted_once(name: str) -> None:
    fields, error, message = BAD[name]
    producer = Producer(VALUES, **fields)
    with pytest.raises(error, match=message):
        cukern.add(producer, 1)
    assert producer.counter.made == producer.counter.deleted
    with pytest.raises(error, match=message):
        cukern.add(VALUES, 1, out=producer)
    assert producer.counter.made == producer.counter.deleted


@pytest.mark.parametrize("device", [(CUDA, 0), (CUDA_HOST, 0), (CUDA_MANAGED, 0)])
def test_tensors_of_a_gpu_on_the_host_backend(backend: str, device: tuple[int, int]) -> None:
    if backend == "cuda":
        return
    producer = Producer(VALUES, device=device)
    for call in (cukern.from_dlpack, cukern.asarray, lambda x: cukern.add(x, 1), lambda x: cukern.add(VALUES, x)):
        with pytest.raises(TypeError, match="GPU"):
            call(producer)
    with pytest.raises(TypeError, match="GPU"):
        cukern.from_dlpack(producer.make(VERSIONED))
    assert producer.counter.made == producer.counter.deleted


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["cuda"], indirect=True)
@pytest.mark.parametrize("device", [(CUDA, 99), (CUDA, -1)])
def test_tensors_of_a_device_that_does_not_exist(backend: str, device: tuple[int, int]) -> None:
    producer = Producer(VALUES, on_gpu=True, device=device)
    with pytest.raises(ValueError, match="device"):
        cukern.from_dlpack(producer)
    with pytest.raises(ValueError, match="device"):
        cukern.from_dlpack(producer.make(VERSIONED))
    assert producer.counter.made == producer.counter.deleted == 1


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["cuda"], indirect=True)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", LAYOUTS)
def test_host_memory_is_copied_to_a_gpu(backend: str, name: str, form: str) -> None:
    fields, model = LAYOUTS[name]
    producer = Producer(VALUES, form, **fields)
    array = cukern.from_dlpack(producer)
    assert array.__dlpack_device__() == (CUDA, 0)
    np.testing.assert_array_equal(cukern.asnumpy(array), model(VALUES), strict=True)
    settle()
    assert producer.deleted == (1, 1)
    with pytest.raises(BufferError, match="copy=False"):
        cukern.from_dlpack(producer, copy=False)
    assert producer.counter.made == producer.counter.deleted


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["cuda"], indirect=True)
@pytest.mark.parametrize(("memory", "device"), [("managed", CUDA_MANAGED), ("pinned", CUDA_HOST)])
def test_import_of_managed_and_pinned_memory(backend: str, memory: str, device: int) -> None:
    owner = cukern.asarray(VALUES, memory=memory)
    producer = Producer(VALUES, data=snapshot(owner).data, device=(device, 0))
    array = cukern.from_dlpack(producer)
    assert (array.memory, array.__dlpack_device__()) == (memory, (device, 0))
    array.fill(5)
    assert (cukern.asnumpy(owner) == 5).all()


@pytest.mark.parametrize("subject", [object(), 1, "x", [1.0], None])
def test_import_of_what_has_no_dlpack(subject: Any) -> None:
    with pytest.raises(TypeError, match="__dlpack__"):
        cukern.from_dlpack(subject)


def test_import_of_another_capsule() -> None:
    counter = Counter()
    managed = make_managed(VERSIONED, counter, None, data=None, shape=(0,))
    capsule = new_capsule(managed.address, b"another", None)
    with pytest.raises(TypeError, match="no DLPack capsule"):
        cukern.from_dlpack(capsule)
    assert counter.deleted == 0
    del ALIVE[managed.address]


def test_import_of_a_producer_that_gives_no_capsule() -> None:
    class Wrong(Producer):
        def __dlpack__(self, **options: Any) -> Any:
            return 7

    with pytest.raises(TypeError, match="no DLPack capsule"):
        cukern.from_dlpack(Wrong(VALUES))


@pytest.mark.parametrize("device", [None, 1, (), ("cpu", 0), (1,)])
def test_a_producer_without_a_proper_device(device: Any) -> None:
    class Wrong(Producer):
        def __dlpack_device__(self) -> Any:
            return device

    for call in (lambda: cukern.from_dlpack(Wrong(VALUES)), lambda: cukern.add(Wrong(VALUES), 1)):
        try:
            call()
        except (TypeError, ValueError, IndexError):
            continue
        assert device == (1,)  # the CPU's number is not read by from_dlpack


def test_errors_of_a_producer_are_passed_on() -> None:
    class Failing(Producer):
        def __dlpack__(self, **options: Any) -> Any:
            raise BufferError("cannot be lent")

    for call in (cukern.from_dlpack, lambda x: cukern.add(x, 1)):
        with pytest.raises(BufferError, match="cannot be lent"):
            call(Failing(VALUES))


def test_a_producer_is_asked_for_the_versioned_form(on_gpu: bool) -> None:
    producer = Producer(VALUES, on_gpu=on_gpu)
    cukern.from_dlpack(producer)
    cukern.from_dlpack(producer, copy=True)
    cukern.from_dlpack(producer, copy=False)
    assert [call["max_version"][0] for call in producer.calls] == [1, 1, 1]
    assert [call.get("copy") for call in producer.calls] == [None, True, False]
    # The CPU has no streams; 1 is the legacy default stream of a GPU.
    assert {call.get("stream") for call in producer.calls} == {1 if on_gpu else None}


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["cuda"], indirect=True)
def test_a_producer_is_told_the_consumers_stream(backend: str) -> None:
    producer = Producer(VALUES, on_gpu=True)
    stream = cukern.Stream()
    cukern.from_dlpack(producer, stream=stream)
    cukern.from_dlpack(producer, stream=2)
    with stream:
        cukern.from_dlpack(producer)
        cukern.add(producer, 1)
    cukern.add(producer, 1, stream=stream)
    assert [call["stream"] for call in producer.calls] == [stream.ptr, 2, stream.ptr, stream.ptr, stream.ptr]


def test_a_producer_from_before_the_versions(on_gpu: bool) -> None:
    producer = OldProducer(VALUES, on_gpu=on_gpu)
    np.testing.assert_array_equal(cukern.asnumpy(cukern.from_dlpack(producer)), VALUES)
    np.testing.assert_array_equal(cukern.asnumpy(cukern.add(producer, 1)), VALUES + 1)
    settle()
    assert producer.deleted == (2, 2)


@pytest.mark.parametrize("form", FORMS)
def test_a_capsule_is_copied_on_request(on_gpu: bool, form: str) -> None:
    producer = Producer(VALUES, on_gpu=on_gpu)
    array = cukern.from_dlpack(producer.make(form), copy=True)
    array.fill(0)
    np.testing.assert_array_equal(producer.values(), VALUES)


def test_import_to_a_device(on_gpu: bool) -> None:
    producer = Producer(VALUES, on_gpu=on_gpu)
    for device in (0, cukern.Device(0), None):
        assert cukern.from_dlpack(producer, device=device).device == cukern.Device(0)
    with pytest.raises(ValueError, match="does not exist"):
        cukern.from_dlpack(producer, device=63)
    with pytest.raises(TypeError, match="device"):
        cukern.from_dlpack(producer, device="cpu")  # type: ignore[arg-type]
    settle()
    assert producer.counter.made == producer.counter.deleted


@pytest.mark.parametrize("how", ["operation", "fill", "assignment", "copyto", "in place"])
def test_a_read_only_tensor_is_not_written(backend: str, how: str) -> None:
    array, producer = read_only_array(backend)
    calls = {
        "operation": lambda: cukern.add(array, 1, out=array[:]),
        "fill": lambda: array.fill(1),
        "assignment": lambda: array.__setitem__(0, 1),
        "copyto": lambda: cukern.copyto(array, 1.0),
        "in place": lambda: array.__iadd__(1),
    }
    with pytest.raises(ValueError, match="read-only"):
        calls[how]()
    np.testing.assert_array_equal(producer.values(), VALUES)


@pytest.mark.parametrize("form", FORMS)
def test_a_deleter_runs_on_the_thread_that_frees_the_array(on_gpu: bool, form: str) -> None:
    producer = Producer(VALUES, form, on_gpu)
    held = [cukern.from_dlpack(producer)]
    np.testing.assert_array_equal(cukern.asnumpy(held[0]), VALUES)

    def free() -> None:
        held.clear()
        cukern.synchronize()

    thread = threading.Thread(target=free)
    thread.start()
    thread.join()
    assert producer.deleted == (1, 1)
    assert producer.counter.threads == [thread.ident]


def test_an_array_that_was_lent_on_keeps_its_producer(on_gpu: bool) -> None:
    producer = Producer(VALUES, on_gpu=on_gpu)
    capsule = cukern.from_dlpack(producer).__dlpack__(max_version=(1, 0))
    settle()
    assert producer.deleted == (1, 0)
    second = cukern.from_dlpack(capsule)
    np.testing.assert_array_equal(cukern.asnumpy(second), VALUES)
    del second, capsule
    settle()
    assert producer.deleted == (1, 1)


@pytest.mark.parametrize("kind", ["allocate", "event"])
def test_every_failure_while_importing_deletes_once(on_gpu: bool, kind: str) -> None:
    producer = Producer(VALUES, on_gpu=on_gpu)
    for n in range(1, 30):
        before = _cukern._fault_calls(kind)
        _cukern._inject_fault(kind, n)
        try:
            array = cukern.from_dlpack(producer)
            copied = cukern.copy(array)
        except cukern.CudaError as error:
            assert "injected" in str(error)
        reached = _cukern._fault_calls(kind) - before
        _cukern._inject_fault(kind, 0)
        array = copied = None  # type: ignore[assignment]
        _cukern._release_caches()
        settle()
        assert producer.counter.made == producer.counter.deleted == n
        if reached < n:
            break
    else:
        pytest.fail("the call never came to its end")
    assert array is None and copied is None


# --- operands and out, by __dlpack__ ---


def test_a_tensor_as_operand() -> None:
    producer = Producer(VALUES)
    assert type(cukern.add(producer, VALUES)) is np.ndarray
    np.testing.assert_array_equal(cukern.add(producer, producer), VALUES + VALUES)
    np.testing.assert_array_equal(cukern.subtract(VALUES, producer), VALUES - VALUES)
    np.testing.assert_array_equal(cukern.matmul(producer, VALUES.T), VALUES @ VALUES.T)
    assert producer.deleted == (5, 5)


@pytest.mark.parametrize("name", [name for name in LAYOUTS if "64" not in name])
def test_a_tensor_as_operand_in_any_layout(name: str) -> None:
    fields, model = LAYOUTS[name]
    producer = Producer(VALUES, **fields)
    np.testing.assert_array_equal(cukern.add(producer, np.float32(1)), model(VALUES) + np.float32(1), strict=True)
    assert producer.deleted == (1, 1)


def test_a_misaligned_operand_on_the_host_is_copied() -> None:
    raw = np.zeros(50, np.uint8)
    raw[1:49] = np.frombuffer(VALUES.tobytes(), np.uint8)
    producer = Producer(raw, shape=(3, 4), dtype="float32", byte_offset=1)
    np.testing.assert_array_equal(cukern.add(producer, 1), VALUES + 1)
    assert cukern.multiply(producer, 2, out=producer) is producer
    np.testing.assert_array_equal(producer.values()[1:49].view(np.float32).reshape(3, 4), VALUES * 2)
    assert producer.values()[[0, 49]].tolist() == [0, 0]


def test_the_kind_of_the_result_is_found_by_the_types_namespace() -> None:
    made: list[Any] = []

    def from_dlpack(array: Any) -> str:
        made.append(np.from_dlpack(array))
        return "theirs"

    class Theirs(Producer):
        def __array_namespace__(self, api_version: str | None = None) -> Any:
            return types.SimpleNamespace(from_dlpack=from_dlpack)

    assert cukern.add(Theirs(VALUES), 1) == "theirs"
    np.testing.assert_array_equal(made[0], VALUES + 1)
    assert cukern.add(VALUES, Theirs(VALUES)) is not None
    assert type(cukern.add(VALUES, Theirs(VALUES))) is np.ndarray
    assert len(made) == 1


@pytest.mark.parametrize("form", FORMS)
def test_a_tensor_as_out(form: str) -> None:
    producer = Producer(VALUES, form)
    assert cukern.add(VALUES, 1, out=producer) is producer
    np.testing.assert_array_equal(producer.values(), VALUES + 1)
    assert cukern.add(producer, producer, out=producer) is producer
    np.testing.assert_array_equal(producer.values(), 2 * (VALUES + 1))
    assert producer.counter.made == producer.counter.deleted == 4


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"flags": READ_ONLY}, "out is read-only"),
        ({"strides": (0, 1)}, "overlap each other"),
        ({"shape": (4, 3)}, r"out has shape \(4, 3\)"),
    ],
    ids=["read-only", "stride of zero", "shape"],
)
def test_a_tensor_that_cannot_be_out(fields: dict[str, Any], message: str) -> None:
    producer = Producer(VALUES, **fields)
    with pytest.raises(ValueError, match=message):
        cukern.add(VALUES, 1, out=producer)
    np.testing.assert_array_equal(producer.values(), VALUES)
    assert producer.deleted == (1, 1)


def test_out_that_overlaps_an_operand_is_refused() -> None:
    producer = Producer(VALUES)
    shifted = Producer(VALUES, data=producer.memory.pointer, shape=(2, 4), byte_offset=16)
    first = Producer(VALUES, data=producer.memory.pointer, shape=(2, 4))
    with pytest.raises(ValueError, match="out overlaps a"):
        cukern.add(first, 1, out=shifted)
    np.testing.assert_array_equal(producer.values(), VALUES)
    assert first.deleted == shifted.deleted == (1, 1)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: cukern.add(x, np.ones(3, np.float32)),
        lambda x: cukern.add(x, np.ones(4, np.int8)),
        lambda x: cukern.add(x, [1]),
        lambda x: cukern.add(x, 1, out=np.zeros(4, np.float32)),
        lambda x: cukern.add(x, 1, stream="s"),
        lambda x: cukern.matmul(x, x),
        lambda x: cukern.add(x, x, into=x),
    ],
    ids=["shapes", "element type", "list", "out", "stream", "matmul", "keyword"],
)
def test_failing_calls_delete_their_tensors(call: Any) -> None:
    producer = Producer(VALUES)
    with pytest.raises((TypeError, ValueError)):
        call(producer)
    gc.collect()
    assert producer.counter.made == producer.counter.deleted


def test_the_host_and_a_device_do_not_mix() -> None:
    producer = Producer(VALUES)
    with pytest.raises(TypeError, match="a is in host memory and b in memory of device 0"):
        cukern.add(producer, cukern.asarray(VALUES))
    pinned = cukern.asarray(VALUES, memory="pinned")
    np.testing.assert_array_equal(cukern.add(Producer(VALUES), pinned), VALUES + VALUES)
    assert type(cukern.add(pinned, Producer(VALUES))) is cukern.Array


# --- the C exchange API that Array offers ---


@pytest.fixture
def table() -> Any:
    return exchange_table(cukern.Array)


def reported(messages: list[tuple[str, str]]) -> Any:
    return SetError(lambda context, kind, message: messages.append((kind.decode(), message.decode())))


def test_the_table_that_arrays_offer(table: Any) -> None:
    assert capsule_name(getattr(cukern.Array, EXCHANGE)) == EXCHANGE_NAME
    assert (table.version.major, table.version.minor, table.previous) == (1, 3, None)
    assert all(getattr(table, name) for name, _ in table._fields_[2:])


@pytest.mark.parametrize("memory", MEMORIES)
def test_offered_tensor_from_object(backend: str, table: Any, memory: str) -> None:
    array = cukern.asarray(VALUES, memory=memory)[1:, ::-2]
    tensor = DLTensor()
    assert TENSOR_FROM_OBJECT(table.tensor_from_object)(array, tensor) == 0
    reading = snapshot(array)
    assert (tensor.data, (tensor.device.type, tensor.device.id)) == (reading.data, own_device(backend, memory))
    assert (tuple(tensor.shape[:2]), tuple(tensor.strides[:2]), tensor.byte_offset) == ((2, 2), (4, -2), 0)
    assert (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes) == (2, 32, 1)
    died = weakref.ref(array)
    del array
    assert died() is None  # it is borrowed


def test_offered_managed_from_object(backend: str, table: Any) -> None:
    array = cukern.asarray(VALUES)
    died = weakref.ref(array)
    out = ctypes.c_void_p()
    assert MANAGED_FROM_OBJECT(table.managed_from_object)(array, out) == 0
    reading = Reading(new_capsule(out.value, FORM_NAMES[VERSIONED], None))
    assert (reading.version, reading.flags, reading.shape) == ((1, 3), 0, (3, 4))
    assert reading.data == snapshot(array).data
    del array
    assert died() is not None
    reading.delete()
    assert died() is None
    read_only, _ = read_only_array(backend)
    assert MANAGED_FROM_OBJECT(table.managed_from_object)(read_only, out) == 0
    reading = Reading(new_capsule(out.value, FORM_NAMES[VERSIONED], None))
    assert reading.flags == READ_ONLY
    reading.delete()


def object_at(address: int) -> Any:
    """Return the object of a reference that is handed over."""
    subject = ctypes.cast(address, ctypes.py_object).value
    ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_DecRef", ctypes.pythonapi))(subject)
    return subject


def test_offered_object_from_managed(on_gpu: bool, table: Any) -> None:
    producer = Producer(VALUES, on_gpu=on_gpu)
    managed = make_managed(VERSIONED, producer.counter, producer.memory, flags=READ_ONLY, **producer.fields)
    out = ctypes.c_void_p()
    assert OBJECT_FROM_MANAGED(table.object_from_managed)(managed.address, out) == 0
    array = object_at(out.value)
    assert type(array) is cukern.Array
    assert not array.flags["WRITEABLE"]
    assert snapshot(array, max_version=(1, 0)).data == producer.memory.pointer
    np.testing.assert_array_equal(cukern.asnumpy(array), VALUES)
    del array
    settle()
    assert producer.deleted == (1, 1)


def test_offered_round_trip_through_the_table(table: Any) -> None:
    array = cukern.asarray(VALUES)
    out = ctypes.c_void_p()
    MANAGED_FROM_OBJECT(table.managed_from_object)(array, out)
    OBJECT_FROM_MANAGED(table.object_from_managed)(out.value, out)
    again = object_at(out.value)
    again.fill(3)
    assert (cukern.asnumpy(array) == 3).all()
    died = weakref.ref(array)
    del array, again
    settle()
    assert died() is None


@pytest.mark.parametrize("name", [*BAD, "major version"])
def test_offered_object_from_managed_deletes_what_it_refuses(on_gpu: bool, table: Any, name: str) -> None:
    fields, error, message = BAD.get(name, ({"version": (2, 0)}, BufferError, "supported"))
    producer = Producer(VALUES, on_gpu=on_gpu, **fields)
    managed = make_managed(VERSIONED, producer.counter, producer.memory, **producer.fields)
    out = ctypes.c_void_p()
    with pytest.raises(error, match=message):
        OBJECT_FROM_MANAGED(table.object_from_managed)(managed.address, out)
    assert out.value is None
    settle()
    assert producer.deleted == (1, 1)


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["cuda"], indirect=True)
def test_offered_object_from_managed_refuses_host_memory(backend: str, table: Any) -> None:
    producer = Producer(VALUES)
    managed = make_managed(VERSIONED, producer.counter, producer.memory, **producer.fields)
    out = ctypes.c_void_p()
    with pytest.raises((BufferError, TypeError)):
        OBJECT_FROM_MANAGED(table.object_from_managed)(managed.address, out)
    assert producer.deleted == (1, 1)


@pytest.mark.parametrize("dtype", ["float32", "int8", "complex128"])
@pytest.mark.parametrize("shape", [(), (0, 3), (5, 4)])
def test_offered_allocate(backend: str, table: Any, dtype: str, shape: tuple[int, ...]) -> None:
    device = own_device(backend, "device")
    prototype, out, messages = DLTensor(), ctypes.c_void_p(), []
    kept = fill_tensor(prototype, data=None, shape=shape, dtype=dtype, device=device)
    in_use = _cukern._block_usage()[0]
    assert ALLOCATE(table.allocate)(prototype, out, None, reported(messages)) == 0
    assert not messages and kept
    reading = Reading(new_capsule(out.value, FORM_NAMES[VERSIONED], None))
    assert (reading.shape, reading.device, reading.dtype) == (shape, device, (*DTYPES[dtype], 1))
    assert (reading.flags, reading.data is not None) == (0, 0 not in shape)
    reading.delete()
    settle()
    assert _cukern._block_usage()[0] == in_use


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["cuda"], indirect=True)
@pytest.mark.parametrize("memory", MEMORIES)
def test_offered_allocate_of_each_memory(backend: str, table: Any, memory: str) -> None:
    prototype, out, messages = DLTensor(), ctypes.c_void_p(), []
    kept = fill_tensor(prototype, data=None, shape=(3,), device=own_device(backend, memory))
    assert ALLOCATE(table.allocate)(prototype, out, None, reported(messages)) == 0
    assert kept
    reading = Reading(new_capsule(out.value, FORM_NAMES[VERSIONED], None))
    assert reading.device == own_device(backend, memory)
    reading.delete()


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"dtype": (0, 4, 1)}, ""),
        ({"shape": (-1,)}, ""),
        ({"shape": (2**40, 2**40)}, ""),
        ({"device": (METAL, 0)}, ""),
        ({"shape": (2**59,)}, "MemoryError"),
    ],
    ids=["element type", "negative length", "overflow", "device", "too much"],
)
def test_offered_allocate_reports_errors(backend: str, table: Any, fields: dict[str, Any], kind: str) -> None:
    prototype, out, messages = DLTensor(), ctypes.c_void_p(1), []
    kept = fill_tensor(prototype, **{"data": None, "shape": (3,), "device": own_device(backend, "device"), **fields})
    assert ALLOCATE(table.allocate)(prototype, out, None, reported(messages)) == -1  # and no exception
    assert kept
    assert len(messages) == 1 and messages[0][1]
    assert kind in messages[0][0]


def test_offered_allocate_reports_that_memory_is_short(backend: str, table: Any) -> None:
    _cukern._release_caches()
    prototype, out, messages = DLTensor(), ctypes.c_void_p(), []
    kept = fill_tensor(prototype, data=None, shape=(1000,), device=own_device(backend, "device"))
    allocate = ALLOCATE(table.allocate)
    statuses = []
    _cukern._inject_fault("allocate", 1)
    try:
        statuses.append(allocate(prototype, out, None, reported(messages)))
    finally:
        _cukern._inject_fault("allocate", 0)
    assert kept
    if statuses == [0]:  # a second try, after the garbage collector's, went well
        Reading(new_capsule(out.value, FORM_NAMES[VERSIONED], None)).delete()
        assert not messages
    else:
        assert [kind for kind, _ in messages] == ["MemoryError"]


@pytest.mark.parametrize("ndim", [65, 200, -1])
def test_offered_allocate_refuses_too_many_dimensions(backend: str, ndim: int) -> None:
    # In a process of its own: it would write over its neighbours.
    script = """
        import ctypes, sys
        import cukern
        from dlpack_tools import ALLOCATE, DLTensor, SetError, exchange_table, fill_tensor
        from conftest import use
        backend, ndim = sys.argv[1], int(sys.argv[2])
        use(backend)
        messages = []
        prototype, out = DLTensor(), ctypes.c_void_p()
        kept = fill_tensor(
            prototype, data=None, shape=(1,) * abs(ndim), ndim=ndim, device=cukern.zeros(1).__dlpack_device__()
        )
        set_error = SetError(lambda context, kind, message: messages.append(message))
        assert ALLOCATE(exchange_table(cukern.Array).allocate)(prototype, out, None, set_error) == -1
        assert len(messages) == 1, messages
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), backend, str(ndim)],
        capture_output=True,
        text=True,
        cwd=__file__.rpartition("/")[0],
        check=False,
    )
    assert run.returncode == 0, run.stderr


def test_offered_current_stream(backend: str, table: Any) -> None:
    current = CURRENT_STREAM(table.current_stream)
    out = ctypes.c_void_p(5)
    assert current(CPU, 0, out) == 0
    assert out.value is None
    with cukern.Stream() as stream:
        assert current(CPU, 0, out) == 0
        assert out.value is None
        if backend == "cuda":
            assert current(CUDA, 0, out) == 0
            assert out.value == stream.ptr


# --- the C exchange API of other types ---


def test_consumed_operands_and_result() -> None:
    kind = make_exchange_type()
    a, b = kind(VALUES), kind(VALUES[::-1, ::-1].copy())
    result = cukern.subtract(a, b)
    assert type(result) is kind
    np.testing.assert_array_equal(result.values, a.values - b.values, strict=True)
    assert kind.calls["allocate"] == kind.calls["object_from_managed"] == 1
    np.testing.assert_array_equal(cukern.matmul(a, VALUES.T).values, VALUES @ VALUES.T)
    np.testing.assert_array_equal(cukern.divide(kind(VALUES.astype(int)), 2).values, VALUES.astype(int) / 2)
    assert type(cukern.add(VALUES, a)) is np.ndarray
    assert type(cukern.add(2, a)) is kind


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("key", [np.s_[:], np.s_[:, ::-1], np.s_[::2, 1:], np.s_[:, :0], np.s_[1, 1]])
def test_consumed_layouts(key: Any, dtype: str) -> None:
    kind = make_exchange_type()
    values = np.asarray(VALUES.astype(dtype)[key])
    np.testing.assert_array_equal(cukern.add(kind(values), kind(values)).values, values + values, strict=True)


def test_consumed_out() -> None:
    kind = make_exchange_type()
    out = kind(np.zeros((3, 4), np.float32))
    assert cukern.add(VALUES, 1, out=out) is out
    np.testing.assert_array_equal(out.values, VALUES + 1)
    assert "allocate" not in kind.calls
    assert kind.calls["managed_from_object"] == 1  # only that form has flags
    assert kind.counter.made == kind.counter.deleted == 1


@pytest.mark.parametrize("has_tensor", [True, False])
def test_consumed_read_only_out(has_tensor: bool) -> None:
    kind = make_exchange_type(flags=READ_ONLY, has_tensor=has_tensor)
    out = kind(np.zeros((3, 4), np.float32))
    with pytest.raises(ValueError, match="out is read-only"):
        cukern.add(VALUES, 1, out=out)
    assert not out.values.any()
    np.testing.assert_array_equal(cukern.add(out, VALUES).values, VALUES)
    assert kind.counter.made == kind.counter.deleted


def test_consumed_without_the_borrowing_function() -> None:
    kind = make_exchange_type(has_tensor=False)
    np.testing.assert_array_equal(cukern.add(kind(VALUES), VALUES).values, VALUES + VALUES)
    assert kind.calls["managed_from_object"] == 1  # the operand: the result's memory is known
    assert kind.counter.made == kind.counter.deleted == 2


@pytest.mark.parametrize("has_tensor", [True, False])
def test_consumed_null_data(has_tensor: bool) -> None:
    kind = make_exchange_type(null_data=True, has_tensor=has_tensor)
    for call in (lambda x: cukern.add(x, 1), lambda x: cukern.add(VALUES, x), lambda x: cukern.add(VALUES, 1, out=x)):
        with pytest.raises(TypeError, match="no memory"):
            call(kind(VALUES.copy()))
    assert cukern.add(kind(VALUES[:0]), 1).values.shape == (0, 4)
    assert kind.counter.made == kind.counter.deleted


@pytest.mark.parametrize("failing", ["tensor_from_object", "managed_from_object", "allocate", "object_from_managed"])
def test_consumed_functions_that_fail(failing: str) -> None:
    kind = make_exchange_type(failing=failing, has_tensor=failing != "managed_from_object")
    with pytest.raises((TypeError, RuntimeError)):
        cukern.add(kind(VALUES), 1)
    gc.collect()
    assert kind.counter.made == kind.counter.deleted


def test_consumed_element_types_that_operations_do_not_take() -> None:
    kind = make_exchange_type()
    with pytest.raises(TypeError, match="int8"):
        cukern.add(kind(VALUES.astype(np.int8)), 1)


def test_consumed_tensors_of_a_gpu_on_the_host_backend(backend: str) -> None:
    if backend == "cuda":
        return
    kind = make_exchange_type(device=(CUDA, 0))
    with pytest.raises(TypeError, match="GPU"):
        cukern.add(kind(VALUES), 1)


@pytest.mark.parametrize("version", [(0, 9), (2, 0)])
def test_a_table_of_another_major_version_is_not_read(version: tuple[int, int]) -> None:
    kind = make_exchange_type(version=version)
    with pytest.raises(TypeError, match="expected an array"):
        cukern.add(kind(VALUES), 1)
    assert not kind.calls


def test_an_older_table_behind_a_newer_one_is_read() -> None:
    newer, older = make_exchange_type(version=(2, 0)), make_exchange_type()
    newer.table.previous = ctypes.addressof(older.table)
    np.testing.assert_array_equal(cukern.add(newer(VALUES), 1).values, VALUES + 1)
    assert older.calls["tensor_from_object"] and not newer.calls


def test_a_capsule_of_another_name_is_no_table() -> None:
    kind = make_exchange_type()
    setattr(kind, EXCHANGE, new_capsule(ctypes.addressof(kind.table), b"another", None))
    with pytest.raises(TypeError, match="expected an array"):
        cukern.add(kind(VALUES), 1)


def test_an_error_that_an_allocator_reports_is_raised(backend: str, table: Any) -> None:
    if backend == "cuda":  # where cukern's allocator does not make what the CPU has
        with pytest.raises(RuntimeError, match="does not allocate on that device"):
            cukern.add(make_exchange_type(allocate_with=table.allocate)(VALUES), 1)
        return
    kind = make_exchange_type(allocate_with=table.allocate)
    one = np.float32(1)
    column, row = kind(np.broadcast_to(one, (2**30, 1))), kind(np.broadcast_to(one, (1, 2**30)))  # 4 EiB together
    with pytest.raises(MemoryError):
        cukern.add(column, row)


def test_subclasses_inherit_the_table() -> None:
    kind = make_exchange_type()

    class Derived(kind):  # type: ignore[misc,valid-type]
        pass

    assert type(cukern.add(Derived(VALUES), 1)) is kind


def test_more_types_than_are_remembered() -> None:
    kinds = [make_exchange_type() for _ in range(40)]
    for _ in range(2):
        for kind in kinds:
            np.testing.assert_array_equal(cukern.add(kind(VALUES), 1).values, VALUES + 1)


def test_asarray_of_an_exchanged_tensor() -> None:
    kind = make_exchange_type()
    np.testing.assert_array_equal(cukern.asnumpy(cukern.asarray(kind(VALUES))), VALUES)
    np.testing.assert_array_equal(cukern.asnumpy(kind(VALUES)), VALUES)
