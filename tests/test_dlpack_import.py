"""DLPack: imports, operands and out by capsules."""

from __future__ import annotations

import gc
import threading
import types
from typing import Any

import numpy as np
import pytest
from dlpack_cases import BAD, VALUES, read_only_array, settle, snapshot, values_for
from dlpack_tools import (
    ALIVE,
    CUDA,
    CUDA_HOST,
    CUDA_MANAGED,
    DTYPES,
    FORM_NAMES,
    FORMS,
    READ_ONLY,
    VERSIONED,
    Counter,
    OldProducer,
    Producer,
    capsule_name,
    make_managed,
    new_capsule,
)

import cukern
from cukern import _cukern

pytestmark = pytest.mark.usefixtures("backend", "nothing_left")


# --- import ---


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
    assert producer.deleted == (1, 0)  # what is refused stays unused
    producer.drop()
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
    assert producer.deleted == (taken, 0)  # what is refused stays unused
    del subject
    producer.drop()
    assert producer.deleted == (taken, taken)


@pytest.mark.parametrize("name", [name for name in BAD if name != "misaligned"])
def test_bad_tensors_as_operands_are_deleted_once(name: str) -> None:
    fields, error, message = BAD[name]
    producer = Producer(VALUES, **fields)
    with pytest.raises(error, match=message):
        cukern.add(producer, 1)
    producer.drop()
    assert producer.counter.made == producer.counter.deleted
    with pytest.raises(error, match=message):
        cukern.add(VALUES, 1, out=producer)
    producer.drop()
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
    producer.drop()
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
    producer.drop()
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


@pytest.mark.parametrize("backend", ["host"], indirect=True)  # where NumPy's arrays are shared
def test_a_long_chain_of_owners_is_released_without_recursion() -> None:
    x = np.zeros(4)
    for _ in range(50_000):  # a level of calls takes some hundred bytes of the stack
        x = np.from_dlpack(cukern.from_dlpack(x.__dlpack__()))
    assert x.tolist() == [0, 0, 0, 0]
    del x


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
        lambda x: cukern.add(x, np.ones(4, "M8[s]")),
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
