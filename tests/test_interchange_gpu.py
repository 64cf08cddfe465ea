"""docs/interchange.md, arrays in a GPU's memory: torch, CuPy, Numba and JAX."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from interchange_tools import (
    COMPUTED,
    EXCHANGED,
    GPU_LIBRARIES,
    MEMORIES,
    QUIET,
    VALUES,
    Library,
    bring,
    keep_busy,
    opened,
    pointer_of,
    values_of,
)

import cukern

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.usefixtures("backend"),
    pytest.mark.parametrize("backend", ["cuda"], indirect=True),
    *QUIET,
]


@pytest.fixture(params=GPU_LIBRARIES)
def library(request: pytest.FixtureRequest) -> Iterator[Library]:
    with opened(GPU_LIBRARIES[request.param]()) as found:
        yield found


def moved(call: Callable[[], object]) -> dict[str, int]:
    """Return what a call does that costs: launches (of copies too), bytes over the link and waits of the host."""
    names = ("launches", "host_to_device_bytes", "device_to_host_bytes", "synchronizations")
    before = cukern.counters()
    call()
    after = cukern.counters()
    return {name: after[name] - before[name] for name in names if after[name] != before[name]}


def place_of(library: Library, subject: Any) -> Any:
    """Return where an array is, in its library's terms."""
    if isinstance(subject, cukern.Array):
        return (subject.memory, subject.device)
    return subject.devices() if library.name == "jax" else subject.device


def settle() -> None:
    """Wait for everything on the device, whoever asked for it."""
    bring("torch").cuda.synchronize()
    cukern.synchronize()


# --- as operand, as out=, and the result without out= ---


@pytest.mark.parametrize("dtype", [*COMPUTED, "float16", "int8", "uint8", "complex64"])
def test_operands_and_results(library: Library, dtype: str) -> None:
    a, b = values_of(dtype), values_of(dtype) * 3
    x, y = library.make(a), library.make(b)
    for call, wanted in (
        (lambda: cukern.add(x, y), a + b),
        (lambda: cukern.subtract(x, 1), a - 1),
        (lambda: cukern.multiply(2, x), 2 * a),
        (lambda: cukern.divide(x, np.float32(4)), a / np.float32(4)),
    ):
        results: list[Any] = []
        call()
        cost = moved(lambda call=call, results=results: results.append(call()))  # type: ignore[misc]
        assert cost == {"launches": 1}
        assert isinstance(results[0], library.result)
        own = library.result is cukern.Array
        assert place_of(library, results[0]) == (("device", cukern.Device(0)) if own else place_of(library, x))
        read = cukern.asnumpy if library.result is cukern.Array else library.read
        np.testing.assert_array_equal(read(results[0]), wanted, strict=True)
    np.testing.assert_array_equal(library.read(x), a)


def test_products(library: Library) -> None:
    x, y = library.make(VALUES), library.make(np.ascontiguousarray(VALUES.T))
    result = cukern.matmul(x, y)
    assert isinstance(result, library.result)
    np.testing.assert_allclose(cukern.asnumpy(result), VALUES @ VALUES.T)


@pytest.mark.parametrize("dtype", [*COMPUTED, "float16", "int8", "uint8", "complex64"])
def test_out(library: Library, dtype: str) -> None:
    values = values_of(dtype)
    x, own = library.make(values), cukern.asarray(values)
    if not library.writable:
        for first in (x, own):
            with pytest.raises(ValueError, match="out is read-only"):
                cukern.add(first, 1, out=x)
        np.testing.assert_array_equal(library.read(x), values)
        return
    address = library.pointer(x)
    assert cukern.add(own, 1, out=x) is x
    assert moved(lambda: cukern.add(x, x, out=x)) == {"launches": 1}
    assert library.pointer(x) == address
    np.testing.assert_array_equal(library.read(x), 2 * (values + 1), strict=True)


def test_the_first_array_decides_the_kind_of_the_result(library: Library) -> None:
    x, own = library.make(VALUES), cukern.asarray(VALUES)
    for result, kind in ((cukern.add(x, own), library.result), (cukern.add(own, x), cukern.Array)):
        assert isinstance(result, kind)
        np.testing.assert_array_equal(cukern.asnumpy(result), VALUES + VALUES)


@pytest.mark.parametrize("first", GPU_LIBRARIES)
@pytest.mark.parametrize("second", GPU_LIBRARIES)
def test_libraries_mix(first: str, second: str) -> None:
    one, two = GPU_LIBRARIES[first](), GPU_LIBRARIES[second]()
    result = cukern.subtract(one.make(VALUES), two.make(VALUES * 3))
    assert isinstance(result, one.result)
    np.testing.assert_array_equal(cukern.asnumpy(result), VALUES - VALUES * 3)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1, 1, 1), (2, 3, 4)])
def test_shapes(library: Library, shape: tuple[int, ...]) -> None:
    values = values_of("float32", shape)
    x = library.make(values)
    result = cukern.add(x, x)
    assert isinstance(result, library.result)
    read = cukern.asnumpy if library.result is cukern.Array else library.read
    np.testing.assert_array_equal(read(result), values + values, strict=True)
    for own in (cukern.from_dlpack(x), cukern.asarray(x)) if library.dlpack else (cukern.asarray(x),):
        assert own.__dlpack_device__() == (2, 0)
        np.testing.assert_array_equal(cukern.asnumpy(own), values, strict=True)


VIEWS: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda x: x.T,
    "every second": lambda x: x[:, ::2],
    "inner": lambda x: x[1:, 1:3],
    "a column": lambda x: x[:, 1],
}


# Numba transposes by a kernel of its own, into other memory.
@pytest.mark.parametrize(
    ("name", "view"),
    [(name, view) for name in ("torch", "cupy", "numba") for view in VIEWS if (name, view) != ("numba", "transposed")],
)
def test_views(name: str, view: str) -> None:
    library = GPU_LIBRARIES[name]()
    base, out = library.make(VALUES), library.make(np.zeros_like(VALUES))
    x, wanted = VIEWS[view](base), VIEWS[view](VALUES)
    np.testing.assert_array_equal(cukern.asnumpy(cukern.add(x, x)), wanted + wanted, strict=True)
    assert cukern.add(x, 1, out=(part := VIEWS[view](out))) is part
    expected = np.zeros_like(VALUES)
    VIEWS[view](expected)[...] = wanted + 1
    np.testing.assert_array_equal(library.read(out), expected)  # and nothing beside it
    own = cukern.asarray(x)
    assert (own.shape, own.strides) == (wanted.shape, wanted.strides)
    assert pointer_of(own) == library.pointer(x)


# --- from_dlpack and asarray ---


@pytest.mark.parametrize("how", ["from_dlpack", "asarray"])
def test_another_librarys_memory_is_shared(library: Library, how: str) -> None:
    x = library.make(VALUES)
    if how == "from_dlpack" and not library.dlpack:
        with pytest.raises(TypeError, match="no __dlpack__"):
            cukern.from_dlpack(x)
        return
    make: Any = getattr(cukern, how)
    results: list[cukern.Array] = []
    assert moved(lambda: results.append(make(x))) == {}
    own = results[0]
    assert pointer_of(own) == library.pointer(x)
    assert pointer_of(make(x, copy=False)) == library.pointer(x)
    assert (own.memory, own.base is x, own.flags["OWNDATA"]) == ("device", True, False)
    assert own.flags["WRITEABLE"] == library.writable
    if library.writable:
        own.fill(7)
        settle()
        np.testing.assert_array_equal(library.read(x), np.full_like(VALUES, 7))
    else:
        with pytest.raises(ValueError, match=r"read.only"):
            own.fill(7)
    copied = make(x, copy=True)
    assert pointer_of(copied) != library.pointer(x)
    before = library.read(x)
    copied.fill(9)
    settle()
    np.testing.assert_array_equal(library.read(x), before)


@pytest.mark.parametrize("memory", MEMORIES[1:])
def test_another_librarys_array_goes_to_memory_of_each_kind(library: Library, memory: str) -> None:
    x = library.make(VALUES)
    own = cukern.asarray(x, memory=memory)
    assert own.memory == memory
    np.testing.assert_array_equal(cukern.asnumpy(own), VALUES, strict=True)
    own.fill(7)
    settle()
    np.testing.assert_array_equal(library.read(x), VALUES)
    with pytest.raises(ValueError, match="copy=False"):
        cukern.asarray(x, memory=memory, copy=False)


@pytest.mark.parametrize("how", ["from_dlpack", "asarray"])
def test_managed_memory_of_cupy(how: str) -> None:
    cupy = bring("cupy")
    with cupy.cuda.using_allocator(cupy.cuda.MemoryPool(cupy.cuda.malloc_managed).malloc):
        x = cupy.asarray(VALUES)
    own = getattr(cukern, how)(x)
    assert (own.memory, pointer_of(own)) == ("managed", x.data.ptr)
    np.testing.assert_array_equal(cukern.asnumpy(own), VALUES)
    result = cukern.add(x, own)
    assert type(result) is cupy.ndarray
    np.testing.assert_array_equal(cupy.asnumpy(result), VALUES + VALUES)
    assert cukern.add(x, 1, out=x) is x
    assert (cukern.asnumpy(own) == VALUES + 1).all()
    # CuPy may still work on it, which the host does not see.
    for call in (lambda: cukern.add(x, VALUES), lambda: cukern.add(VALUES, VALUES, out=x)):
        with pytest.raises(TypeError, match=r"host memory .*cukern\.asarray"):
            call()


@pytest.mark.parametrize("how", ["from_dlpack", "asarray"])
def test_pinned_arrays_of_jax(how: str) -> None:
    jax = bring("jax")
    device = jax.devices("gpu")[0]
    x = jax.device_put(VALUES, jax.sharding.SingleDeviceSharding(device, memory_kind="pinned_host"))
    own = getattr(cukern, how)(x)
    assert (own.memory, pointer_of(own), own.flags["WRITEABLE"]) == ("pinned", x.unsafe_buffer_pointer(), False)
    np.testing.assert_array_equal(cukern.asnumpy(own), VALUES)
    result = cukern.add(x, x)
    assert isinstance(result, jax.Array)
    np.testing.assert_array_equal(np.asarray(result), VALUES + VALUES)


def test_arrays_of_numba_and_cupy_on_the_host() -> None:
    cuda, cupyx = bring("numba.cuda"), bring("cupyx")
    for x in (
        cuda.pinned_array(VALUES.shape, VALUES.dtype),
        cuda.mapped_array(VALUES.shape, VALUES.dtype),
        cuda.managed_array(VALUES.shape, VALUES.dtype),
        cupyx.empty_pinned(VALUES.shape, VALUES.dtype),
    ):
        x[...] = VALUES
        result = cukern.add(x, x)  # NumPy's arrays to us
        assert type(result) is np.ndarray
        np.testing.assert_array_equal(result, VALUES + VALUES)
        assert cukern.add(x, 1, out=x) is x
        np.testing.assert_array_equal(np.asarray(x), VALUES + 1)
        own = cukern.asarray(x)
        assert own.memory == "device"
        np.testing.assert_array_equal(cukern.asnumpy(own), VALUES + 1)


@pytest.mark.parametrize("dtype", EXCHANGED)
def test_every_element_type(library: Library, dtype: str) -> None:
    if (library.name, dtype) == ("numba", "bfloat16"):
        return  # it has no such type
    values = values_of(dtype)
    x = library.make(values)
    for make in (cukern.asarray, cukern.from_dlpack) if library.dlpack else (cukern.asarray,):
        own = make(x)
        assert own.dtype == dtype
        assert pointer_of(own) == library.pointer(x)
        np.testing.assert_array_equal(cukern.asnumpy(own), values)


def test_an_array_keeps_what_it_was_made_from(library: Library) -> None:
    own = cukern.asarray(library.make(VALUES))[1:]
    gc.collect()
    others = [library.make(VALUES * 0) for _ in range(4)]  # would take its memory
    np.testing.assert_array_equal(cukern.asnumpy(own), VALUES[1:])
    del others


def test_operands_may_be_dropped_at_once(library: Library) -> None:
    own, out = cukern.Stream(), cukern.empty((3, 4), "float32")
    with own:
        cukern.add(library.make(VALUES), 1, out=out)
    settle()
    keep_busy(own.ptr)
    with own:
        cukern.add(library.make(VALUES), 1, out=out)
    others = [library.make(VALUES * 0) for _ in range(8)]  # would take its memory
    np.testing.assert_array_equal(cukern.asnumpy(out), VALUES + 1)
    del others


# --- the library's view of an Array ---

LOOKS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "torch.from_dlpack": ("torch", lambda x: bring("torch").from_dlpack(x)),
    "torch.as_tensor": ("torch", lambda x: bring("torch").as_tensor(x, device="cuda")),
    "cupy.from_dlpack": ("cupy", lambda x: bring("cupy").from_dlpack(x)),
    "cupy.asarray": ("cupy", lambda x: bring("cupy").asarray(x)),
    "numba.cuda.as_cuda_array": ("numba", lambda x: bring("numba.cuda").as_cuda_array(x)),
    "numba.cuda.to_device": ("numba", lambda x: bring("numba.cuda").to_device(x)),
    "jax.numpy.from_dlpack": ("jax", lambda x: bring("jax").numpy.from_dlpack(x)),
    "jax.numpy.asarray": ("jax", lambda x: bring("jax").numpy.asarray(x)),
}
REFUSED = [  # by the library; it takes the same memory by __cuda_array_interface__
    *[("torch.from_dlpack", memory) for memory in MEMORIES[1:]],
    ("cupy.from_dlpack", "pinned"),
    ("jax.numpy.from_dlpack", "managed"),
]
SEEN = [(look, memory) for look in LOOKS for memory in MEMORIES if (look, memory) not in REFUSED]


@pytest.mark.parametrize(("look", "memory"), SEEN)
def test_views_of_an_array_share_its_memory(look: str, memory: str) -> None:
    name, view_of = LOOKS[look]
    library = GPU_LIBRARIES[name]()
    own = cukern.asarray(VALUES, memory=memory)
    if look == "jax.numpy.asarray":
        settle()  # JAX does not wait for the stream that an interface names
    view = view_of(own)
    assert library.pointer(view) == pointer_of(own)
    np.testing.assert_array_equal(library.read(view), VALUES, strict=True)
    settle()
    cukern.add(own, 1, out=own)
    settle()
    if library.writable:  # JAX may keep what it has read
        np.testing.assert_array_equal(library.read(view), VALUES + 1)
        if name == "numba":
            view.copy_to_device(VALUES * 5)
        else:
            view[...] = library.make(VALUES * 5)
        settle()
        np.testing.assert_array_equal(cukern.asnumpy(own), VALUES * 5)
    if look == "jax.numpy.asarray":
        return  # JAX does not keep what has an interface
    del own
    gc.collect()
    others = [cukern.zeros((3, 4), "float32", memory=memory) for _ in range(4)]  # would take its memory
    settle()
    assert library.pointer(view) not in [pointer_of(other) for other in others]


@pytest.mark.parametrize(("look", "memory"), REFUSED)
def test_memory_that_a_library_does_not_take_by_dlpack(look: str, memory: str) -> None:
    own = cukern.asarray(VALUES, memory=memory)
    with pytest.raises((TypeError, BufferError), match=r"(?i)unsupported"):
        LOOKS[look][1](own)
    np.testing.assert_array_equal(cukern.asnumpy(own), VALUES)  # none the worse
    gc.collect()


CPU_LOOKS: dict[str, Callable[[Any], np.ndarray]] = {
    "np.from_dlpack": lambda x: np.from_dlpack(x, device="cpu"),
    "torch.from_dlpack, a capsule": lambda x: bring("torch")
    .from_dlpack(x.__dlpack__(dl_device=(1, 0), max_version=(1, 0)))
    .numpy(),
    "torch.from_dlpack": lambda x: bring("torch").from_dlpack(x, device="cpu").numpy(),
    "jax.numpy.from_dlpack": lambda x: np.asarray(
        bring("jax").numpy.from_dlpack(x, device=bring("jax").devices("cpu")[0])
    ),
}


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("look", CPU_LOOKS)
def test_a_library_asks_for_memory_of_the_cpu(look: str, memory: str) -> None:
    own = cukern.asarray(VALUES, memory=memory)
    if (look, memory) in [*REFUSED, ("jax.numpy.from_dlpack", "managed")]:
        with pytest.raises((TypeError, BufferError), match=r"(?i)unsupported"):
            CPU_LOOKS[look](own)
        return
    busy = cukern.Stream()
    keep_busy(busy.ptr)
    own.fill(5, stream=busy)
    found = CPU_LOOKS[look](own)  # waits for what is on its way
    np.testing.assert_array_equal(found, np.full_like(VALUES, 5), strict=True)
    if memory == "device":
        assert found.ctypes.data != pointer_of(own)
    elif not look.startswith("jax"):
        assert found.ctypes.data == pointer_of(own)


@pytest.mark.parametrize("memory", MEMORIES[1:])
def test_numpys_view_by_dlpack_waits_for_pending_work(memory: str) -> None:
    own = cukern.asarray(VALUES, memory=memory)
    busy = cukern.Stream()
    keep_busy(busy.ptr)
    own.fill(5, stream=busy)
    view = np.from_dlpack(own)
    np.testing.assert_array_equal(view, np.full_like(VALUES, 5), strict=True)
    assert view.ctypes.data == pointer_of(own)


READ_ONLY_LOOKS: dict[str, tuple[bool | None, Callable[[Any], Any]]] = {  # None: the library refuses
    "torch.from_dlpack": (True, LOOKS["torch.from_dlpack"][1]),  # torch has no read-only tensors
    "torch.as_tensor": (None, LOOKS["torch.as_tensor"][1]),
    "cupy.from_dlpack": (True, LOOKS["cupy.from_dlpack"][1]),
    "cupy.asarray": (True, LOOKS["cupy.asarray"][1]),
    "jax.numpy.from_dlpack": (None, LOOKS["jax.numpy.from_dlpack"][1]),  # it asks for a capsule without the flag
    "jax.numpy.asarray": (False, LOOKS["jax.numpy.asarray"][1]),
}


@pytest.mark.parametrize("look", READ_ONLY_LOOKS)
def test_views_of_a_read_only_array(look: str) -> None:
    own = cukern.asarray(GPU_LIBRARIES["jax"]().make(VALUES))
    assert not own.flags["WRITEABLE"]
    writable, view_of = READ_ONLY_LOOKS[look]
    if writable is None:
        with pytest.raises((TypeError, BufferError), match=r"read.only"):
            view_of(own)
        return
    library = GPU_LIBRARIES[LOOKS[look][0]]()
    settle()
    view = view_of(own)
    assert (library.pointer(view), library.writable) == (pointer_of(own), writable)
    np.testing.assert_array_equal(library.read(view), VALUES)


@pytest.mark.parametrize("dtype", EXCHANGED)
@pytest.mark.parametrize("look", LOOKS)
def test_views_of_every_element_type(look: str, dtype: str) -> None:
    name, view_of = LOOKS[look]
    if dtype == "bfloat16" and "dlpack" not in look:
        assert not hasattr(cukern.zeros(3, dtype), "__cuda_array_interface__")
        return
    with opened(GPU_LIBRARIES[name]()) as library:
        values = values_of(dtype)
        own = cukern.asarray(values)
        settle()
        view = view_of(own)
        assert library.pointer(view) == pointer_of(own)
        np.testing.assert_array_equal(library.read(view), values)


def test_jax_without_64_bit_numbers() -> None:
    jax = bring("jax")
    x = GPU_LIBRARIES["jax"]().make(VALUES.astype(np.int32))
    with jax.enable_x64(False):
        result = cukern.divide(x, 2)  # float64, which JAX then does not have
        assert (isinstance(result, jax.Array), result.dtype) == (True, np.float32)
        np.testing.assert_array_equal(np.asarray(result), VALUES / 2)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("look", ["jax.numpy.from_dlpack", "jax.numpy.asarray"])
def test_jaxs_view_of_a_strided_array(look: str, view: str) -> None:
    own = VIEWS[view](cukern.asarray(VALUES))
    settle()
    if view == "transposed":
        np.testing.assert_array_equal(np.asarray(LOOKS[look][1](own)), VALUES.T, strict=True)
        return
    with pytest.raises(RuntimeError, match="compact"):
        LOOKS[look][1](own)
    np.testing.assert_array_equal(cukern.asnumpy(own), VIEWS[view](VALUES))


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("look", [look for look in LOOKS if not look.startswith("jax")])
def test_views_of_strided_arrays(look: str, view: str) -> None:
    name, view_of = LOOKS[look]
    library = GPU_LIBRARIES[name]()
    own = VIEWS[view](cukern.asarray(VALUES))
    found = view_of(own)
    assert library.pointer(found) == pointer_of(own)
    np.testing.assert_array_equal(cukern.asnumpy(cukern.asarray(found)), VIEWS[view](VALUES), strict=True)


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
def test_views_of_arrays_without_elements_or_dimensions(look: str, shape: tuple[int, ...]) -> None:
    name, view_of = LOOKS[look]
    own = cukern.ones(shape, "float32")
    settle()
    found = view_of(own)
    assert tuple(found.shape) == shape
    read = GPU_LIBRARIES[name]().read if name != "numba" else lambda x: cukern.asnumpy(cukern.asarray(x))
    np.testing.assert_array_equal(read(found), np.ones(shape, np.float32), strict=True)


@pytest.mark.parametrize("memory", MEMORIES)
def test_the_cuda_array_interface_of_an_array(memory: str) -> None:
    own = cukern.asarray(VALUES, memory=memory)
    interface = own.__cuda_array_interface__
    assert interface["shape"] == (3, 4)
    assert interface["typestr"] == "<f4"
    assert interface["data"] == (pointer_of(own), False)
    assert (interface["strides"], interface["stream"], interface["version"]) == (None, 1, 3)
    assert own.T.__cuda_array_interface__["strides"] == (4, 16)
    assert own[:0].__cuda_array_interface__["data"][0] == 0
    assert not interface.get("mask")


@pytest.mark.parametrize("memory", MEMORIES[1:])
def test_a_kernels_result_is_seen_in_a_numpy_view(memory: str) -> None:
    own = cukern.asarray(VALUES, memory=memory)
    view = np.asarray(own)
    assert view.ctypes.data == pointer_of(own)
    tensor = bring("torch").as_tensor(VALUES, device="cuda")
    for n in range(1, 4):
        cukern.multiply(tensor, n, out=own)
        np.testing.assert_array_equal(view, VALUES * n, strict=True)  # the call has waited, since a buffer is exported
    view += 1
    np.testing.assert_array_equal(cukern.add(tensor, own).cpu().numpy(), VALUES * 4 + 1)


# --- a __cuda_array_interface__ that cannot be used ---


class Interface:
    """An array with a __cuda_array_interface__, changed in places."""

    def __init__(self, changes: dict[str, Any]) -> None:
        self.owner = bring("cupy").asarray(VALUES)
        self.__cuda_array_interface__ = {**self.owner.__cuda_array_interface__, **changes}


INTERFACES: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "a mask": ({"mask": object()}, TypeError, "masked"),
    "stream 0": ({"stream": 0}, ValueError, "stream 0"),
    "a stream that is none": ({"stream": "one"}, TypeError, "stream cannot be read"),
    "byte-swapped": ({"typestr": ">f4"}, TypeError, "byte-swapped"),
    "an element type that is not ours": ({"typestr": "<V4"}, TypeError, "element type '<V4'"),
    "no element type": ({"typestr": None}, TypeError, "typestr cannot be read"),
    "a shape that is none": ({"shape": 3}, TypeError, "shape cannot be read"),
    "strides of another number": ({"strides": (4,)}, TypeError, "strides cannot be read"),
    "no data": ({"data": None}, TypeError, "data cannot be read"),
    "a null pointer": ({"data": (0, False)}, TypeError, "no memory"),
    "a pointer of the host": ({"data": (VALUES.ctypes.data, False)}, TypeError, "no memory that CUDA knows"),
    "strides that break elements": ({"strides": (16, 3)}, ValueError, "not aligned"),
    "a length below zero": ({"shape": (-3, 4)}, ValueError, "negative length"),
}


@pytest.mark.parametrize("name", INTERFACES)
def test_interfaces_that_cannot_be_used(name: str) -> None:
    changes, error, message = INTERFACES[name]
    subject, own = Interface(changes), cukern.asarray(VALUES)
    for call in (
        lambda: cukern.add(subject, 1),
        lambda: cukern.add(own, 1, out=subject),
        lambda: cukern.asarray(subject),
    ):
        with pytest.raises(error, match=message):
            call()


def test_an_interface_of_read_only_memory() -> None:
    subject = Interface({})
    subject.__cuda_array_interface__["data"] = (subject.owner.data.ptr, True)
    np.testing.assert_array_equal(cukern.asnumpy(cukern.add(subject, 1)), VALUES + 1)
    with pytest.raises(ValueError, match="out is read-only"):
        cukern.add(subject, 1, out=subject)
    assert not cukern.asarray(subject).flags["WRITEABLE"]
