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
    """Return what a call does that costs: bytes over the link and waits of the host."""
    names = ("host_to_device_bytes", "device_to_host_bytes", "synchronizations")
    before = cukern.counters()
    call()
    after = cukern.counters()
    return {name: after[name] - before[name] for name in names if after[name] != before[name]}


def settle() -> None:
    """Wait for everything on the device, whoever asked for it."""
    bring("torch").cuda.synchronize()
    cukern.synchronize()


# --- as operand, as out=, and the result without out= ---


@pytest.mark.parametrize("dtype", COMPUTED)
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
        assert moved(lambda call=call, results=results: results.append(call())) == {}  # type: ignore[misc]
        assert isinstance(results[0], library.result)
        read = cukern.asnumpy if library.result is cukern.Array else library.read
        np.testing.assert_array_equal(read(results[0]), wanted, strict=True)
    np.testing.assert_array_equal(library.read(x), a)


def test_products(library: Library) -> None:
    x, y = library.make(VALUES), library.make(np.ascontiguousarray(VALUES.T))
    result = cukern.matmul(x, y)
    assert isinstance(result, library.result)
    np.testing.assert_allclose(cukern.asnumpy(result), VALUES @ VALUES.T)


@pytest.mark.parametrize("dtype", COMPUTED)
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
    assert moved(lambda: cukern.add(x, x, out=x)) == {}
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


@pytest.mark.parametrize("name", ["torch", "cupy", "jax"])
@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1, 1, 1), (2, 3, 4)])
def test_shapes(name: str, shape: tuple[int, ...]) -> None:
    library = GPU_LIBRARIES[name]()
    values = values_of("float32", shape)
    x = library.make(values)
    result = cukern.add(x, x)
    assert isinstance(result, library.result)
    np.testing.assert_array_equal(library.read(result), values + values, strict=True)
    for own in (cukern.from_dlpack(x), cukern.asarray(x)):
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
        with pytest.raises(ValueError, match="read-only"):
            own.fill(7)
    copied = make(x, copy=True)
    assert pointer_of(copied) != library.pointer(x)
    before = library.read(x)
    copied.fill(9)
    settle()
    np.testing.assert_array_equal(library.read(x), before)


@pytest.mark.parametrize("dtype", EXCHANGED)
def test_every_element_type(library: Library, dtype: str) -> None:
    if dtype == "bfloat16" and library.name in ("cupy", "numba"):
        return  # they have no such type
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
    "jax.numpy.from_dlpack": ("jax", lambda x: bring("jax").numpy.from_dlpack(x)),
}
SEEN = [(look, "device") for look in LOOKS] + [
    (look, memory)
    for memory in MEMORIES[1:]
    for look in ("torch.as_tensor", "cupy.asarray", "numba.cuda.as_cuda_array", "cupy.from_dlpack")
    if (look, memory) != ("cupy.from_dlpack", "pinned")
]


@pytest.mark.parametrize(("look", "memory"), SEEN)
def test_views_of_an_array_share_its_memory(look: str, memory: str) -> None:
    name, view_of = LOOKS[look]
    library = GPU_LIBRARIES[name]()
    own = cukern.asarray(VALUES, memory=memory)
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
    del own
    gc.collect()
    others = [cukern.zeros((3, 4), "float32", memory=memory) for _ in range(4)]  # would take its memory
    settle()
    assert library.pointer(view) not in [pointer_of(other) for other in others]


@pytest.mark.parametrize(("look", "memory"), [("torch.from_dlpack", "managed"), ("cupy.from_dlpack", "pinned")])
def test_memory_that_a_library_does_not_take_by_dlpack(look: str, memory: str) -> None:
    name, view_of = LOOKS[look]
    own = cukern.asarray(VALUES, memory=memory)
    try:
        view = view_of(own)
    except (TypeError, ValueError, RuntimeError, BufferError):
        np.testing.assert_array_equal(cukern.asnumpy(own), VALUES)  # none the worse
    else:  # a later version that does
        assert GPU_LIBRARIES[name]().pointer(view) == pointer_of(own)


@pytest.mark.parametrize("dtype", EXCHANGED)
@pytest.mark.parametrize("look", LOOKS)
def test_views_of_every_element_type(look: str, dtype: str) -> None:
    name, view_of = LOOKS[look]
    by_interface = look in ("torch.as_tensor", "cupy.asarray", "numba.cuda.as_cuda_array")
    if dtype == "bfloat16" and (by_interface or name == "cupy"):
        if by_interface:
            assert not hasattr(cukern.zeros(3, dtype), "__cuda_array_interface__")
        return
    with opened(GPU_LIBRARIES[name]()) as library:
        values = values_of(dtype)
        own = cukern.asarray(values)
        view = view_of(own)
        assert library.pointer(view) == pointer_of(own)
        np.testing.assert_array_equal(library.read(view), values)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("look", [look for look in LOOKS if not look.startswith("jax")])
def test_views_of_strided_arrays(look: str, view: str) -> None:
    name, view_of = LOOKS[look]
    library = GPU_LIBRARIES[name]()
    own = VIEWS[view](cukern.asarray(VALUES))
    found = view_of(own)
    assert library.pointer(found) == pointer_of(own)
    np.testing.assert_array_equal(cukern.asnumpy(cukern.asarray(found)), VIEWS[view](VALUES), strict=True)


@pytest.mark.parametrize("look", ["torch.from_dlpack", "torch.as_tensor", "cupy.from_dlpack", "cupy.asarray"])
@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
def test_views_of_arrays_without_elements_or_dimensions(look: str, shape: tuple[int, ...]) -> None:
    name, view_of = LOOKS[look]
    found = view_of(cukern.ones(shape, "float32"))
    assert tuple(found.shape) == shape
    np.testing.assert_array_equal(GPU_LIBRARIES[name]().read(found), np.ones(shape, np.float32), strict=True)


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
