"""docs/interchange.md, arrays in host memory: NumPy, buffers, torch and JAX on the CPU."""

from __future__ import annotations

import array
import gc
import mmap
import re
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from interchange_tools import (
    COMPUTED,
    EXCHANGED,
    GPU_LIBRARIES,
    HOST_LIBRARIES,
    MEMORIES,
    QUIET,
    VALUES,
    Library,
    bring,
    opened,
    pointer_of,
    values_of,
)

import cukern

pytestmark = [pytest.mark.usefixtures("backend"), *QUIET]


@pytest.fixture(params=HOST_LIBRARIES)
def library(request: pytest.FixtureRequest) -> Iterator[Library]:
    with opened(HOST_LIBRARIES[request.param]()) as found:
        yield found


# --- as operand, and the result without out= ---


@pytest.mark.parametrize("dtype", COMPUTED)
def test_operands_and_results(backend: str, library: Library, dtype: str) -> None:
    x, y = library.make(values_of(dtype)), library.make(values_of(dtype) * 3)
    a, b = library.read(x), library.read(y)
    before = cukern.counters()["launches"]
    for result, wanted in (
        (cukern.add(x, y), a + b),
        (cukern.subtract(x, 1), a - 1),
        (cukern.multiply(2, x), 2 * a),
        (cukern.divide(x, np.float32(4)), a / np.float32(4)),
    ):
        assert isinstance(result, library.result)
        np.testing.assert_array_equal(library.read(result), wanted, strict=True)
    np.testing.assert_array_equal(library.read(x), a, strict=True)
    assert cukern.counters()["launches"] == before + 4  # the elements have travelled


def test_products(library: Library) -> None:
    x = library.make(VALUES)
    wanted = library.read(x)
    result = cukern.matmul(x, x) if wanted.ndim == 1 else cukern.matmul(x, VALUES.T)
    assert isinstance(result, library.result)
    np.testing.assert_allclose(library.read(result), wanted @ wanted.T)


def test_the_first_array_decides_the_kind_of_the_result(library: Library) -> None:
    x = library.make(VALUES)
    values = library.read(x)
    assert type(cukern.add(values, x)) is np.ndarray
    assert isinstance(cukern.add(x, values), library.result)
    pinned = cukern.asarray(values, memory="pinned")
    assert type(cukern.add(pinned, x)) is cukern.Array
    result = cukern.add(x, pinned)
    assert isinstance(result, library.result)
    np.testing.assert_array_equal(library.read(result), values + values)


def test_the_host_and_the_device_do_not_mix(library: Library) -> None:
    x = library.make(VALUES)
    device = cukern.asarray(library.read(x))
    for call in (
        lambda: cukern.add(x, device),
        lambda: cukern.add(device, x),
        lambda: cukern.add(x, x, out=device),
    ):
        with pytest.raises(TypeError, match=r"host memory .*cukern\.asarray"):
            call()


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1, 1, 1), (2, 3, 4)])
@pytest.mark.parametrize("name", ["numpy", "torch", "jax"])
def test_shapes(name: str, shape: tuple[int, ...]) -> None:
    library = HOST_LIBRARIES[name]()
    values = values_of("float32", shape)
    x = library.make(values)
    result = cukern.add(x, x)
    assert isinstance(result, library.result)
    np.testing.assert_array_equal(library.read(result), values + values, strict=True)
    for own in (cukern.from_dlpack(x), cukern.asarray(x)):
        np.testing.assert_array_equal(cukern.asnumpy(own), values, strict=True)


VIEWS = {
    "transposed": lambda x: x.T,
    "every second": lambda x: x[:, ::2],
    "inner": lambda x: x[1:, 1:3],
    "a column": lambda x: x[:, 1],
}


@pytest.mark.parametrize("name", ["numpy", "torch"])
@pytest.mark.parametrize("view", VIEWS)
def test_views(backend: str, name: str, view: str) -> None:
    library = HOST_LIBRARIES[name]()
    base, out = library.make(VALUES), library.make(np.zeros_like(VALUES))
    x, wanted = VIEWS[view](base), VIEWS[view](VALUES)
    np.testing.assert_array_equal(library.read(cukern.add(x, x)), wanted + wanted, strict=True)
    assert cukern.add(x, 1, out=(part := VIEWS[view](out))) is part
    expected = np.zeros_like(VALUES)
    VIEWS[view](expected)[...] = wanted + 1
    np.testing.assert_array_equal(library.read(out), expected)  # and nothing beside it
    own = cukern.from_dlpack(x)
    np.testing.assert_array_equal(cukern.asnumpy(own), wanted, strict=True)
    if backend != "cuda":
        assert own.strides == wanted.strides
        assert pointer_of(own) == library.pointer(x)


def test_results_keep_the_order_of_numpys_operands() -> None:
    assert cukern.add(VALUES.T, 1).strides == (4, 16)


# --- as out= ---


@pytest.mark.parametrize("dtype", COMPUTED)
def test_out(library: Library, dtype: str) -> None:
    x = library.make(values_of(dtype))
    before = library.read(x)
    address = library.pointer(x)
    if not library.writable:
        for first in (x, before):
            with pytest.raises(ValueError, match="out is read-only"):
                cukern.add(first, 1, out=x)
        np.testing.assert_array_equal(library.read(x), before)
        return
    assert cukern.add(before, 1, out=x) is x
    assert cukern.add(x, x, out=x) is x
    assert library.pointer(x) == address
    np.testing.assert_array_equal(library.read(x), 2 * (before + 1), strict=True)


def test_read_only_memory_is_read_and_not_written() -> None:
    frozen = VALUES.copy()
    frozen.flags.writeable = False
    for subject in (frozen, memoryview(frozen), memoryview(VALUES.tobytes()).cast("f", (3, 4)), np.from_dlpack(frozen)):
        np.testing.assert_array_equal(cukern.add(subject, 1), VALUES + 1)
        with pytest.raises(ValueError, match="out is read-only"):
            cukern.add(VALUES, 1, out=subject)
    assert (frozen == VALUES).all()


# --- from_dlpack and asarray ---


def test_from_dlpack(backend: str, library: Library) -> None:
    x = library.make(VALUES)
    if not library.dlpack:
        with pytest.raises(TypeError, match="no __dlpack__"):
            cukern.from_dlpack(x)
        return
    own = cukern.from_dlpack(x)
    np.testing.assert_array_equal(cukern.asnumpy(own), VALUES, strict=True)
    if backend == "cuda":  # it has been copied there
        assert own.__dlpack_device__() == (2, 0)
        assert own.flags["WRITEABLE"]
        own.fill(7)
        np.testing.assert_array_equal(library.read(x), VALUES)
        with pytest.raises(BufferError, match="copy=False"):
            cukern.from_dlpack(x, copy=False)
        return
    assert pointer_of(own) == library.pointer(x)
    assert pointer_of(cukern.from_dlpack(x, copy=False)) == library.pointer(x)
    assert own.base is x
    assert own.flags["WRITEABLE"] == library.writable
    if not library.writable:
        with pytest.raises(ValueError, match="read-only"):
            own.fill(7)
        np.testing.assert_array_equal(library.read(x), VALUES)
        return
    own.fill(7)
    np.testing.assert_array_equal(library.read(x), np.full_like(VALUES, 7))


def test_asarray_copies(library: Library) -> None:
    x = library.make(VALUES)
    before = library.read(x)
    own = cukern.asarray(x)
    assert type(own) is cukern.Array
    assert own.memory == "device"
    assert own.flags["WRITEABLE"]
    assert pointer_of(own) != library.pointer(x)
    np.testing.assert_array_equal(cukern.asnumpy(own), before, strict=True)
    own.fill(7)
    np.testing.assert_array_equal(library.read(x), before)
    with pytest.raises(ValueError, match="copy=False"):
        cukern.asarray(x, copy=False)


def test_from_dlpack_with_copy(library: Library) -> None:
    if not library.dlpack:
        return
    x = library.make(VALUES)
    own = cukern.from_dlpack(x, copy=True)
    assert pointer_of(own) != library.pointer(x)
    own.fill(7)  # JAX's copy too
    np.testing.assert_array_equal(library.read(x), VALUES)


@pytest.mark.parametrize("dtype", EXCHANGED)
def test_every_element_type(library: Library, dtype: str) -> None:
    if not library.dlpack and dtype in ("bfloat16", "float16", "complex64", "complex128", "bool"):
        return  # array.array and memoryview have no such types
    values = values_of(dtype)
    x = library.make(values)
    wanted = library.read(x)
    for make in (cukern.asarray, cukern.from_dlpack):
        if make is cukern.from_dlpack and (not library.dlpack or (library.name, dtype) == ("numpy", "bfloat16")):
            continue  # NumPy does not lend other packages' types
        own = make(x)
        assert own.dtype == dtype
        np.testing.assert_array_equal(cukern.asnumpy(own), wanted)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "int8", "uint16"])
def test_types_of_array_array(dtype: str) -> None:
    values = array.array(np.dtype(dtype).char, range(5))
    own = cukern.asarray(values)
    assert own.dtype == dtype
    assert own.tolist() == [0, 1, 2, 3, 4]


def test_bytes_are_8_bit_integers() -> None:
    block = mmap.mmap(-1, 16)
    block[:] = bytes(range(16))
    for subject in (bytes(range(16)), bytearray(range(16)), block):
        assert cukern.asarray(subject).tolist() == list(range(16))
        result = cukern.add(subject, 250)
        assert (result.dtype, result.tolist()) == ("uint8", [(n + 250) % 256 for n in range(16)])
        assert cukern.matmul(subject, subject) == sum(n * n for n in range(16)) % 256
    numbers = memoryview(bytearray(8)).cast("f")
    assert cukern.add(numbers, 1).tolist() == [1, 1]


def test_jax_on_the_cpu_stays_there() -> None:
    jax = bring("jax")
    x = jax.device_put(VALUES, jax.devices("cpu")[0])
    assert cukern.add(x, x).devices() == x.devices()


def test_a_traced_jax_array_is_refused() -> None:
    jax = bring("jax")
    with pytest.raises(TypeError, match="add: a"):
        jax.jit(lambda x: cukern.add(x, 1))(VALUES)


# --- lifetimes ---


@pytest.mark.parametrize("name", ["numpy", "torch", "jax"])
def test_an_array_keeps_what_it_was_made_from(backend: str, name: str) -> None:
    library = HOST_LIBRARIES[name]()
    x = library.make(VALUES)
    died = weakref.ref(x)
    view = cukern.from_dlpack(x)[1:]
    del x
    gc.collect()
    assert (died() is None) == (backend == "cuda")
    np.testing.assert_array_equal(cukern.asnumpy(view), VALUES[1:])
    del view
    gc.collect()
    assert died() is None


@pytest.mark.parametrize("lend", ["numpy", "torch", "memoryview"])
@pytest.mark.parametrize("memory", MEMORIES[1:])
def test_a_view_keeps_the_array(memory: str, lend: str) -> None:
    looks = {
        "numpy": np.asarray,
        "torch": lambda x: bring("torch").as_tensor(np.asarray(x)).numpy(),
        "memoryview": memoryview,
    }
    own = cukern.asarray(VALUES, memory=memory)
    died = weakref.ref(own)
    view = looks[lend](own)
    del own
    gc.collect()
    assert died() is not None
    np.testing.assert_array_equal(np.asarray(view), VALUES)
    del view
    gc.collect()
    assert died() is None


def test_a_buffer_is_not_resized_while_it_is_lent() -> None:
    own = cukern.from_dlpack(np.frombuffer(block := bytearray(8), np.float32))
    if cukern.backend() == "host":
        with pytest.raises(BufferError):
            block.append(1)
    del own
    cukern.synchronize()
    gc.collect()
    block.append(1)


# --- the library's view of an Array ---


@pytest.mark.parametrize("memory", MEMORIES[1:])
@pytest.mark.parametrize("name", ["numpy", "torch", "memoryview", "frombuffer", "np.from_dlpack"])
def test_views_of_an_array_share_its_memory(backend: str, name: str, memory: str) -> None:
    looks = {
        "numpy": np.asarray,
        "torch": lambda x: bring("torch").as_tensor(np.asarray(x)),
        "memoryview": lambda x: np.asarray(memoryview(x)),
        "frombuffer": lambda x: bring("torch").frombuffer(x, dtype=bring("torch").float32).reshape(3, 4),
        "np.from_dlpack": lambda x: np.from_dlpack(x, device="cpu"),
    }
    own = cukern.asarray(VALUES, memory=memory)
    view = looks[name](own)
    np.testing.assert_array_equal(np.asarray(view), VALUES, strict=True)
    assert np.asarray(view).ctypes.data == pointer_of(own)
    view[0, 0] = 50
    assert own[0, 0].item() == 50
    cukern.add(own, 1, out=own)
    if name not in ("frombuffer", "np.from_dlpack"):  # a call waits where a buffer is exported, and these hold none
        np.testing.assert_array_equal(np.asarray(view), np.where(VALUES == 0, 50, VALUES) + 1)
    cukern.synchronize()
    np.testing.assert_array_equal(np.asarray(view), np.where(VALUES == 0, 50, VALUES) + 1)


def test_the_host_does_not_see_device_memory(backend: str) -> None:
    own = cukern.asarray(VALUES)
    with pytest.raises(TypeError, match="asnumpy"):
        np.asarray(own)
    for look in (memoryview, bytearray):
        with pytest.raises(BufferError, match="asnumpy"):
            look(own)
    if backend != "cuda":  # by DLPack it does, without a GPU
        assert np.from_dlpack(own).ctypes.data == pointer_of(own)
        return
    with pytest.raises((BufferError, RuntimeError)):
        np.from_dlpack(own)
    copied = np.from_dlpack(own, device="cpu")
    np.testing.assert_array_equal(copied, VALUES, strict=True)


@pytest.mark.parametrize("backend", ["host", "host-staged"], indirect=True)
def test_torch_and_jax_see_an_array_of_the_host_backend() -> None:
    torch, jax = bring("torch"), bring("jax")
    for memory in MEMORIES:
        own = cukern.asarray(VALUES, memory=memory)
        for tensor in (torch.from_dlpack(own), torch.as_tensor(own)):
            assert tensor.data_ptr() == pointer_of(own)
        theirs = jax.numpy.from_dlpack(own)
        np.testing.assert_array_equal(np.asarray(theirs), VALUES, strict=True)


@pytest.mark.parametrize("memory", MEMORIES[1:])
def test_jax_sees_managed_and_pinned_memory_through_numpy(memory: str) -> None:
    own, jax = cukern.asarray(VALUES, memory=memory), bring("jax")
    found = jax.numpy.asarray(np.asarray(own), device=jax.devices("cpu")[0])
    np.testing.assert_array_equal(np.asarray(found), VALUES, strict=True)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint8", "int16", "int32", "int64", "uint64"])
@pytest.mark.parametrize("memory", MEMORIES)
def test_an_array_goes_to_an_array_array(memory: str, dtype: str) -> None:
    own = cukern.arange(6, dtype=dtype, memory=memory)
    code = np.dtype(dtype).char
    for fill in (lambda to: cukern.asnumpy(own, out=to), lambda to: cukern.copyto(to, own)):
        found = array.array(code, [99] * 6)
        fill(found)
        assert found == array.array(code, range(6))
    if memory != "device":
        assert array.array(code, memoryview(own).tobytes()) == array.array(code, range(6))


@pytest.mark.parametrize("dtype", [dtype for dtype in EXCHANGED if dtype != "bfloat16"])
@pytest.mark.parametrize("memory", MEMORIES[1:])
@pytest.mark.parametrize("look", ["np.asarray", "np.from_dlpack", "memoryview", "torch"])
def test_host_views_of_every_element_type(look: str, memory: str, dtype: str) -> None:
    looks = {
        "np.asarray": np.asarray,
        "np.from_dlpack": np.from_dlpack,
        "memoryview": lambda x: np.asarray(memoryview(x)),
        "torch": lambda x: bring("torch").as_tensor(np.asarray(x)).numpy(),
    }
    values = values_of(dtype)
    own = cukern.asarray(values, memory=memory)
    view = looks[look](own)
    np.testing.assert_array_equal(view, values, strict=True)
    assert view.ctypes.data == pointer_of(own)


@pytest.mark.parametrize("memory", MEMORIES[1:])
def test_numpys_array_method_with_arguments(memory: str) -> None:
    own = cukern.asarray(VALUES, memory=memory)
    for view in (own.__array__(), own.__array__(None, copy=None), own.__array__(np.dtype("float32"), copy=False)):
        assert view.ctypes.data == pointer_of(own)
    for copied in (own.__array__(copy=True), np.array(own), own.__array__(np.dtype("float64"))):
        assert copied.ctypes.data != pointer_of(own)
        np.testing.assert_array_equal(copied, VALUES)
    assert own.__array__(np.dtype("float64")).dtype == "float64"
    assert np.asarray(own, dtype="int16").dtype == "int16"
    with pytest.raises(ValueError, match="copy"):
        own.__array__(np.dtype("float64"), copy=False)


@pytest.mark.parametrize("memory", MEMORIES[1:])
def test_views_of_a_read_only_array(memory: str) -> None:
    own = cukern.broadcast_to(cukern.ones(1, "float32", memory=memory), (3,))
    for view in (np.asarray(own), np.from_dlpack(own), np.asarray(memoryview(own))):
        assert not view.flags.writeable
        assert view.ctypes.data == pointer_of(own)


HOST_ONLY = pytest.mark.parametrize("backend", ["host", "host-staged"], indirect=True)


@HOST_ONLY
def test_an_array_of_jax_goes_back_by_its_values_alone() -> None:
    library = HOST_LIBRARIES["jax"]()
    jax = bring("jax")
    own = cukern.from_dlpack(library.make(VALUES))
    with pytest.raises(BufferError, match=r"read-only.*max_version"):  # JAX asks for a capsule without that flag
        jax.numpy.from_dlpack(own)
    np.testing.assert_array_equal(np.asarray(jax.numpy.asarray(cukern.asnumpy(own))), VALUES)


class OnGpu:
    """An array of a library that offers the CUDA array interface alone."""

    __cuda_array_interface__: ClassVar[dict[str, Any]] = {
        "shape": (3,),
        "typestr": "<f4",
        "data": (512, False),
        "version": 3,
    }


class Holder:
    """An object on which the interface is set."""


class Proxy:
    """An object that answers in another's stead."""

    def __init__(self, subject: Any) -> None:
        self.subject = subject

    def __getattr__(self, name: str) -> Any:
        return getattr(self.subject, name)


@HOST_ONLY
def test_arrays_of_a_gpu_on_the_host_backend() -> None:
    holder: Any = Holder()
    holder.__cuda_array_interface__ = OnGpu.__cuda_array_interface__
    for subject in (OnGpu(), holder):
        for call in (
            lambda subject=subject: cukern.add(subject, 1),
            lambda subject=subject: cukern.add(np.ones(3, np.float32), 1, out=subject),
            lambda subject=subject: cukern.asarray(subject),
        ):
            with pytest.raises(TypeError, match="in a GPU's memory"):
                call()


def test_what_answers_in_an_arrays_stead_is_no_array() -> None:
    for subject in (OnGpu(), HOST_LIBRARIES["torch"]().make(VALUES), HOST_LIBRARIES["jax"]().make(VALUES)):
        for call in (lambda x: cukern.add(x, 1), lambda x: cukern.add(VALUES, 1, out=x), cukern.asarray):
            with pytest.raises(TypeError, match="is of type Proxy; expected"):
                call(Proxy(subject))


@pytest.mark.build  # reads docs/, which is no part of a wheel
def test_the_page_names_tests_that_exist() -> None:
    here = Path(__file__).parent
    sources = "".join(path.read_text() for path in here.glob("test_*.py"))
    named = re.findall(r"`(?:tests/\w+\.py::)?(test_\w+)`", (here.parent / "docs/interchange.md").read_text())
    assert len(named) > 40
    assert [name for name in named if f"def {name}(" not in sources] == []


@pytest.mark.build
def test_the_pages_tables_have_the_libraries_that_the_tests_have() -> None:
    page = (Path(__file__).parent.parent / "docs/interchange.md").read_text()
    heads = re.findall(r"^\| (`?[\w.]+`?)[^|]*\|.*\|$", page, re.MULTILINE)
    rows = [head.strip("`").lower() for head in heads]
    assert rows[: len(GPU_LIBRARIES)] == list(GPU_LIBRARIES)
    assert set(rows[len(GPU_LIBRARIES) :]) == set(HOST_LIBRARIES) - {"memoryview"}  # one row with array.array
