"""DLPack's C exchange API: what Array offers, and how other types' is used."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import textwrap
import weakref
from typing import Any

import numpy as np
import pytest
from dlpack_cases import BAD, MEMORIES, VALUES, own_device, read_only_array, settle, snapshot
from dlpack_tools import (
    ALLOCATE,
    CPU,
    CUDA,
    CURRENT_STREAM,
    DTYPES,
    EXCHANGE,
    EXCHANGE_NAME,
    FORM_NAMES,
    MANAGED_FROM_OBJECT,
    METAL,
    OBJECT_FROM_MANAGED,
    READ_ONLY,
    TENSOR_FROM_OBJECT,
    VERSIONED,
    DLTensor,
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

pytestmark = pytest.mark.usefixtures("backend", "nothing_left")


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
        pytest.param({"shape": (2**59,)}, "MemoryError", marks=pytest.mark.provokes_cuda_error),
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


def test_products_of_consumed_tensors() -> None:
    kind = make_exchange_type()
    own = VALUES.astype(np.int8)
    out = np.empty((own.shape[0], own.shape[0]), np.int8)
    assert cukern.matmul(kind(own), own.T, out=out) is out
    np.testing.assert_array_equal(out, own @ own.T)


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


# --- from_dlpack of what has the table ---
def with_protocol(kind: Any, calls: list[dict[str, Any]]) -> Any:
    """Give a type with the table the protocol of Python's methods, too."""

    def dlpack(self: Any, **options: Any) -> Any:
        calls.append(options)
        return Producer(self.values).make(VERSIONED)

    kind.__dlpack__ = dlpack
    kind.__dlpack_device__ = lambda self: (CPU, 0)
    return kind


@pytest.mark.parametrize("flags", [0, READ_ONLY])
def test_from_dlpack_takes_a_tensor_by_the_table(backend: str, flags: int) -> None:
    calls: list[dict[str, Any]] = []
    kind = with_protocol(make_exchange_type(flags=flags), calls)
    source = kind(VALUES[:, ::-1].copy()[::2])
    for make in (cukern.from_dlpack, cukern.asarray):
        array = make(source)
        np.testing.assert_array_equal(cukern.asnumpy(array), source.values, strict=True)
        if backend != "cuda" and make is cukern.from_dlpack:
            assert array.base is source
            assert array.__dlpack_device__() == (CPU, 0)
            assert array.flags["WRITEABLE"] == (not flags)
            assert snapshot(array, max_version=(1, 0)).data == source.values.ctypes.data
            assert kind.counter.made > kind.counter.deleted
        del array
    assert kind.calls["managed_from_object"] >= 1
    assert not calls
    settle()
    assert kind.counter.made == kind.counter.deleted


@pytest.mark.parametrize("how", ["a stream", "a with block", "copy=True", "copy=False"])
def test_from_dlpack_with_a_stream_or_a_copy_asks_by_the_protocol(backend: str, how: str) -> None:
    calls: list[dict[str, Any]] = []
    kind = with_protocol(make_exchange_type(), calls)
    stream = cukern.Stream()
    if how == "a with block":
        with stream:
            array = cukern.from_dlpack(kind(VALUES))
    else:
        options = {"a stream": {"stream": stream}, "copy=True": {"copy": True}, "copy=False": {"copy": False}}
        if how == "copy=False" and backend == "cuda":
            with pytest.raises(BufferError, match="copy=False"):
                cukern.from_dlpack(kind(VALUES), copy=False)
            return
        array = cukern.from_dlpack(kind(VALUES), **options[how])
    np.testing.assert_array_equal(cukern.asnumpy(array), VALUES)
    assert len(calls) == 1
    assert kind.counter.made == 0


def test_from_dlpack_of_what_the_table_refuses_asks_by_the_protocol() -> None:
    calls: list[dict[str, Any]] = []
    kind = with_protocol(make_exchange_type(failing="managed_from_object"), calls)
    np.testing.assert_array_equal(cukern.asnumpy(cukern.from_dlpack(kind(VALUES))), VALUES)
    assert len(calls) == 1


def test_from_dlpack_by_the_table_deletes_what_it_refuses() -> None:
    unaligned = np.frombuffer(bytearray(13), np.uint8)[1:].view(np.float32)
    kind = make_exchange_type()
    with pytest.raises(BufferError, match="aligned"):
        cukern.from_dlpack(kind(unaligned))
    with pytest.raises(TypeError, match="no memory"):
        cukern.from_dlpack((none := make_exchange_type(null_data=True))(VALUES))
    gc.collect()
    assert kind.counter.made == kind.counter.deleted == none.counter.made == none.counter.deleted == 1
