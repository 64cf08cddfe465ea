"""cukern.Array: how it is made, what it tells of itself, its views and its elements; NumPy says what is right."""

from __future__ import annotations

import array
import inspect
import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from arrays import assert_same
from conftest import SMALL

import cukern

pytestmark = pytest.mark.usefixtures("backend")
MEMORY = ["device", "managed", "pinned"]
HOST_MEMORY = MEMORY[1:]  # what the host sees
NAMES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NAMES += ["float16", "float32", "float64", "complex64", "complex128"]
TIMES = 40 if SMALL else 250


def same(actual: Any, wanted: np.ndarray) -> None:
    """Assert that an Array is what an ndarray is, to what it tells of itself."""
    assert type(actual) is cukern.Array
    assert actual.shape == wanted.shape
    assert actual.dtype == wanted.dtype
    assert (actual.ndim, actual.size, actual.nbytes) == (wanted.ndim, wanted.size, wanted.nbytes)
    assert actual.itemsize == wanted.itemsize
    assert_same(cukern.asnumpy(actual), wanted)


def same_view(actual: Any, wanted: np.ndarray) -> None:
    """Assert that a view is the same one, strides included where they matter."""
    same(actual, wanted)
    assert actual.flags["C_CONTIGUOUS"] == wanted.flags.c_contiguous
    assert actual.flags["F_CONTIGUOUS"] == wanted.flags.f_contiguous
    if wanted.size:
        pairs = zip(wanted.shape, actual.strides, wanted.strides, strict=True)
        assert all(mine == theirs for n, mine, theirs in pairs if n > 1)


def numbers(shape: tuple[int, ...], dtype: Any = np.float64) -> np.ndarray:
    """Return different small numbers."""
    return np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)


def pair(shape: tuple[int, ...], dtype: Any = np.float64, memory: str = "device") -> tuple[cukern.Array, np.ndarray]:
    """Return an Array and an ndarray of the same numbers."""
    wanted = numbers(shape, dtype)
    return cukern.asarray(wanted, memory=memory), wanted


# --- creation ---

MADE: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    "zeros": ("zeros", ((2, 3),), {}),
    "zeros of one length": ("zeros", (4,), {}),
    "zeros of a list": ("zeros", ([2, 3],), {}),
    "zeros of NumPy's integers": ("zeros", ((np.int64(2), np.uint8(3)),), {}),
    "zeros without dimensions": ("zeros", ((),), {}),
    "zeros without elements": ("zeros", ((3, 0, 2),), {}),
    "dtype by position": ("zeros", (3, "int16"), {}),
    "ones": ("ones", ((2, 3),), {}),
    "ones of bool": ("ones", (3,), {"dtype": bool}),
    "ones of complex64": ("ones", (3,), {"dtype": np.complex64}),
    "full of an int": ("full", ((2, 2), 7), {}),
    "full of a float": ("full", ((2, 2), 7.5), {}),
    "full of a bool": ("full", (2, True), {}),
    "full of a complex": ("full", (2, 1 + 2j), {}),
    "full of a NumPy number": ("full", (2, np.float32(0.1)), {}),
    "full of a 0-d array": ("full", (2, np.array(3, np.int8)), {}),
    "full of a type": ("full", (2, 3), {"dtype": "uint8"}),
    "full of a number that is cast": ("full", (2, 3.9), {"dtype": "int32"}),
    "full of a NumPy number that wraps": ("full", (2, np.int64(300)), {"dtype": "int8"}),
    "full of NaN": ("full", (2, float("nan")), {"dtype": "float16"}),
    "arange": ("arange", (5,), {}),
    "arange of floats": ("arange", (5.0,), {}),
    "arange from to": ("arange", (2, 9), {}),
    "arange with step": ("arange", (9, 2, -2), {}),
    "arange of a type": ("arange", (5,), {"dtype": "float32"}),
    "arange of nothing": ("arange", (5, 2), {}),
    "linspace": ("linspace", (0, 1), {}),
    "linspace of five": ("linspace", (0, 1, 5), {}),
    "linspace without end": ("linspace", (0, 1, 5), {"endpoint": False}),
    "linspace of a type": ("linspace", (0, 9, 4), {"dtype": "int32"}),
    "eye": ("eye", (3,), {}),
    "eye of two lengths": ("eye", (2, 4), {}),
    "eye beside the diagonal": ("eye", (3, 4), {"k": -1}),
    "eye of a type": ("eye", (3,), {"dtype": "int8"}),
}


@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("name", MADE)
def test_made_as_numpy_makes_it(name: str, memory: str) -> None:
    function, positional, keywords = MADE[name]
    wanted = getattr(np, function)(*positional, **keywords)
    made = getattr(cukern, function)(*positional, **keywords, memory=memory)
    same_view(made, wanted)
    assert made.memory == memory
    assert made.base is None


@pytest.mark.parametrize("name", NAMES)
def test_every_element_type(name: str) -> None:
    dtype = np.dtype(name)
    for given in (name, dtype, dtype.type, dtype.char, dtype.str):
        assert cukern.empty((2, 3), given).dtype == dtype
    same(cukern.zeros((2, 3), name), np.zeros((2, 3), name))
    same(cukern.ones((2, 3), name), np.ones((2, 3), name))
    same(cukern.full((2, 3), 1, name), np.full((2, 3), 1, name))
    same(cukern.asarray([[0, 1], [1, 0]], name), np.asarray([[0, 1], [1, 0]], name))
    same(cukern.asarray(np.array([0, 1], name)), np.array([0, 1], name))


@pytest.mark.parametrize(
    "given", [bool, int, float, complex, "longlong", "ulonglong", "l", "Q", np.intc, None], ids=str
)
def test_dtypes_have_numpys_names_and_defaults(given: Any) -> None:
    assert cukern.empty(2, given).dtype == np.empty(2, given).dtype
    assert cukern.empty(2).dtype == np.float64


def test_where_it_is() -> None:
    device = cukern.Device(0)
    for made in (cukern.zeros(3, device=0), cukern.zeros(3, device=device), cukern.zeros(3, device=None)):
        assert type(made.device) is cukern.Device
        assert made.device.id == 0
        same(made, np.zeros(3))


@pytest.mark.parametrize("memory", MEMORY)
def test_on_a_stream(memory: str) -> None:
    stream = cukern.Stream()
    options: dict[str, Any] = {"stream": stream, "memory": memory}
    same(cukern.full(1000, 3, **options), np.full(1000, 3))
    same(cukern.arange(1000, **options), np.arange(1000))
    same(cukern.asarray([1, 2], **options), np.array([1, 2]))
    same(cukern.copy(np.arange(3), **options), np.arange(3))
    a = cukern.ones(1000, **options)
    a.fill(5, stream=stream)
    same(a.astype("int8", stream=stream), np.full(1000, 5, np.int8))
    same(a.copy(stream=stream), np.full(1000, 5.0))
    same(cukern.concat([a, a], stream=stream), np.full(2000, 5.0))
    with stream:
        same(cukern.stack([a[:3], a[:3]]), np.full((2, 3), 5.0))


@pytest.mark.parametrize("memory", MEMORY)
def test_like_forms_of_an_array(memory: str) -> None:
    a = cukern.ones((2, 3), "int16", memory=memory)
    assert (cukern.empty_like(a).shape, cukern.empty_like(a).dtype) == ((2, 3), np.int16)
    for made, value in ((cukern.zeros_like(a), 0), (cukern.ones_like(a), 1), (cukern.full_like(a, 7), 7)):
        same(made, np.full((2, 3), value, np.int16))
        assert made.memory == memory
    same(cukern.zeros_like(a, "float32"), np.zeros((2, 3), np.float32))
    same(cukern.full_like(a, 2.5, dtype=float), np.full((2, 3), 2.5))
    for other in MEMORY:
        assert cukern.ones_like(a, memory=other).memory == other


def test_like_forms_of_other_arrays() -> None:
    for other in (np.zeros((2, 3), np.int8), memoryview(np.zeros((2, 3), np.int8)), np.zeros((3, 2), np.int8).T):
        made = cukern.ones_like(other)
        same(made, np.ones((2, 3), np.int8))
        assert made.memory == "device"
    same(cukern.full_like(np.zeros((), np.float32), 3), np.full((), 3, np.float32))


@pytest.mark.parametrize(
    "given",
    [
        [],
        [1, 2, 3],
        [[1, 2], [3, 4]],
        ((1, 2), (3, 4)),
        [1, 2.5],
        [True, False],
        [1, 2j],
        [[[]]],
        [np.float32(1), np.float32(2)],
        [np.arange(3), np.arange(3)],
        3,
        2.5,
        True,
        1j,
        np.float32(3),
        np.uint8(3),
        np.bool_(True),
        array.array("h", [1, 2, 3]),
        memoryview(b"abc"),
        bytearray(b"abc"),
        memoryview(np.arange(6.0).reshape(2, 3)[::-1, ::2]),
        np.arange(6.0).reshape(2, 3).T,
        np.broadcast_to(np.float32(2), (2, 3)),
        np.array(5),
    ],
    ids=lambda given: f"{type(given).__name__} {np.asarray(given).tolist()}"[:40],
)
def test_asarray(given: Any) -> None:
    for memory in MEMORY:
        same(cukern.asarray(given, memory=memory), np.asarray(given))
        same(cukern.copy(given, memory=memory), np.asarray(given))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
        if not np.iscomplexobj(given):
            same(cukern.asarray(given, "float32"), np.asarray(given).astype("float32"))


def test_asarray_of_an_array_is_itself() -> None:
    for memory in MEMORY:
        a = cukern.ones(3, memory=memory)
        assert cukern.asarray(a) is a
        assert cukern.asarray(a, "float64", memory=memory, device=0, copy=False) is a
        assert cukern.asarray(a[1:]).base is a
        assert cukern.asarray(a, copy=True) is not a
        for other in set(MEMORY) - {memory}:
            moved = cukern.asarray(a, memory=other)
            assert moved.memory == other
            same(moved, np.ones(3))
        cast = cukern.asarray(a, "int32")
        same(cast, np.ones(3, np.int32))
        assert cast.memory == memory
        for options in ({"dtype": "int32"}, {"memory": next(m for m in MEMORY if m != memory)}):
            with pytest.raises(ValueError, match="asarray: copy=False"):
                cukern.asarray(a, copy=False, **options)


def test_asarray_copies_what_is_on_the_host() -> None:
    source = np.arange(3.0)
    a = cukern.asarray(source)
    source[:] = 9
    same(a, np.arange(3.0))
    with pytest.raises(ValueError, match="asarray: copy=False"):
        cukern.asarray(source, copy=False)
    with pytest.raises(ValueError, match="asarray: copy=False"):
        cukern.asarray([1, 2], copy=False)


@pytest.mark.parametrize("memory", MEMORY)
def test_copies_are_apart(memory: str) -> None:
    a, wanted = pair((3, 4), memory=memory)
    copies = [a.copy(), cukern.copy(a), cukern.asarray(a, copy=True), a.astype("float64"), a.T.T.copy()]
    a.fill(-1)
    for copy in copies:
        same(copy, wanted)
        assert copy.base is None
        assert copy.memory == memory
    assert a.astype("float64", copy=False) is a


def test_copies_keep_fortrans_order() -> None:
    a, wanted = pair((3, 4))
    for copy in (a.T.copy(), a.T.astype("float64")):
        same_view(copy, wanted.T.copy(order="K"))
    same_view(a[::2].copy(), wanted[::2].copy())


def test_from_dlpack() -> None:
    source = np.arange(6.0).reshape(2, 3)
    a = cukern.from_dlpack(source)
    same(a, source)
    copied = cukern.from_dlpack(source, copy=True)
    source[0, 0] = 9
    assert (a.item(0) == 9) == (cukern.backend() == "host")
    assert copied.item(0) == 0
    same(cukern.from_dlpack(copied), cukern.asnumpy(copied))


# --- attributes ---


def test_flags_and_base() -> None:
    a = cukern.zeros((2, 3))
    assert a.flags == {"C_CONTIGUOUS": True, "F_CONTIGUOUS": False, "OWNDATA": True, "WRITEABLE": True}
    assert a.T.flags == {"C_CONTIGUOUS": False, "F_CONTIGUOUS": True, "OWNDATA": False, "WRITEABLE": True}
    assert cukern.broadcast_to(a, (4, 2, 3)).flags["WRITEABLE"] is False
    assert a.base is None
    for view in (a[1:], a[1:][:, 1:], a.T, a.reshape(6), a[...], a.T.T[0][1:], cukern.broadcast_to(a, (2, 2, 3))):
        assert view.base is a


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0), (0, 3), (1, 5), (5, 1), (2, 1, 3), (1, 1, 1)], ids=str)
def test_contiguity_of_lengths_of_one_and_none(shape: tuple[int, ...]) -> None:
    a, wanted = pair(shape)
    same_view(a, wanted)
    same_view(a.T, wanted.T)
    same_view(a.T.copy(), wanted.T.copy(order="K"))
    if 0 not in shape:  # without elements, NumPy's own differ by version
        assert cukern.empty(shape).strides == np.empty(shape).strides


@pytest.mark.parametrize(
    "name",
    ["shape", "strides", "dtype", "ndim", "size", "nbytes", "itemsize", "device", "memory", "T", "base", "flags"],
)
def test_attributes_are_not_set(name: str) -> None:
    a = cukern.zeros(3)
    with pytest.raises(AttributeError):
        setattr(a, name, getattr(a, name))
    with pytest.raises(AttributeError):
        a.another = 1  # type: ignore[attr-defined]


def test_the_type_is_final_and_not_called() -> None:
    with pytest.raises(TypeError):
        type("Sub", (cukern.Array,), {})
    with pytest.raises(TypeError, match="asarray"):
        cukern.Array(3)  # type: ignore[call-arg]
    assert cukern.Array.__hash__ is None
    assert cukern.Array.__module__ == "cukern"
    with pytest.raises(TypeError, match="unhashable"):
        hash(cukern.zeros(3))


@pytest.mark.parametrize("compare", [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge])
def test_comparisons_are_refused(compare: Callable[[Any, Any], Any]) -> None:
    a = cukern.zeros(3)
    for other in (a, 1, None, "x", np.zeros(3), [0, 0, 0]):
        with pytest.raises(TypeError, match="asnumpy"):
            compare(a, other)
        with pytest.raises(TypeError, match=r"asnumpy|__array_ufunc__"):
            compare(other, a)


# --- views ---


def random_key(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Return a basic index, of integers, slices, None and an ellipsis."""
    taken = int(rng.integers(0, len(shape) + 1))
    where = int(rng.integers(0, taken + 1))  # of the ellipsis
    axes = [*range(where), *range(len(shape) - taken + where, len(shape))]
    key: list[Any] = []
    for axis in axes:
        n = shape[axis]
        if n and rng.random() < 0.3:
            key.append(int(rng.integers(-n, n)))
            continue
        bounds = [None if rng.random() < 0.3 else int(rng.integers(-n - 2, n + 3)) for _ in range(2)]
        step = None if rng.random() < 0.3 else int(rng.choice([-3, -2, -1, 1, 2, 3, 100]))
        key.append(slice(*bounds, step))
    key.insert(where, ...)
    for _ in range(int(rng.integers(0, 3))):
        key.insert(int(rng.integers(0, len(key) + 1)), None)
    return tuple(key)


def random_shape(rng: np.random.Generator) -> tuple[int, ...]:
    return tuple(int(n) for n in rng.integers(0 if rng.random() < 0.1 else 1, 6, int(rng.integers(0, 5))))


@pytest.mark.parametrize("memory", MEMORY)
def test_random_indices(rng: np.random.Generator, memory: str) -> None:
    for _ in range(TIMES):
        a, wanted = pair(random_shape(rng), np.int32, memory)
        key = random_key(rng, a.shape)
        view = a[key]
        same_view(view, wanted[key])
        second = random_key(rng, view.shape)
        same_view(view[second], wanted[key][second])
        view[second] = -1  # a view shares the memory
        wanted[key][second] = -1
        same(a, wanted)


@pytest.mark.parametrize("memory", HOST_MEMORY)
def test_random_views_lie_where_numpys_do(rng: np.random.Generator, memory: str) -> None:
    for _ in range(TIMES):
        a = cukern.asarray(numbers((3, 4, 5), np.int16), memory=memory)
        whole = np.asarray(a)
        key = random_key(rng, a.shape)
        view, wanted = np.asarray(a[key].T), whole[key].T
        assert view.shape == wanted.shape
        if view.size:
            assert view.__array_interface__["data"] == wanted.__array_interface__["data"]
            assert np.shares_memory(view, whole)
            assert not np.shares_memory(np.asarray(a[key].copy()), whole)


def random_factors(rng: np.random.Generator, size: int) -> tuple[int, ...]:
    """Return a shape of a number of elements."""
    lengths = [1] * int(rng.integers(1, 5))
    left, factor = size, 2
    while left > 1:
        while left % factor:
            factor += 1
        lengths[int(rng.integers(0, len(lengths)))] *= factor
        left //= factor
    return tuple(lengths)


def as_view(wanted: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    try:
        return wanted.reshape(shape, copy=False)
    except ValueError:
        return None


def test_random_reshapes(rng: np.random.Generator) -> None:
    views = 0
    for _ in range(2 * TIMES):
        a, wanted = pair(tuple(int(n) for n in rng.choice([1, 2, 3, 4, 6], 3)), np.int32)
        key, axes = random_key(rng, a.shape), None
        a, wanted = a[key], wanted[key]
        if rng.random() < 0.4:
            axes = tuple(int(axis) for axis in rng.permutation(a.ndim))
            a, wanted = a.transpose(axes), wanted.transpose(axes)
        if a.size == 0:
            continue
        shape = random_factors(rng, a.size)
        given = list(shape)
        if rng.random() < 0.5:
            given[int(rng.integers(0, len(given)))] = -1
        same(a.reshape(*given), wanted.reshape(given))
        same(cukern.reshape(a, tuple(given), copy=True), wanted.reshape(given))
        assert a.reshape(given, copy=True).base is not (a if a.base is None else a.base)
        if as_view(wanted, shape) is None:
            with pytest.raises(ValueError, match=r"reshape: .*copy=False"):
                a.reshape(given, copy=False)
            a.reshape(given).fill(-1)  # of a copy
            same(a, wanted)
        else:
            views += 1
            same_view(a.reshape(given, copy=False), wanted.reshape(given, copy=False))
            a.reshape(given).fill(-1)
            same(a, np.full_like(wanted, -1))
    assert TIMES / 10 < views < 2 * TIMES


def test_random_transposes_squeezes_and_new_axes(rng: np.random.Generator) -> None:
    for _ in range(TIMES):
        a, wanted = pair(random_shape(rng), np.int16)
        same_view(a.T, wanted.T)
        axes = tuple(int(axis) for axis in rng.permutation(a.ndim) - int(rng.integers(0, 2)) * a.ndim)
        same_view(a.transpose(axes), wanted.transpose(axes))
        same_view(a.transpose(*axes), wanted.transpose(*axes))
        same_view(cukern.transpose(a, axes), np.transpose(wanted, axes))
        same_view(a.squeeze(), wanted.squeeze())
        single = tuple(axis for axis, n in enumerate(a.shape) if n == 1)
        same_view(a.squeeze(single), wanted.squeeze(single))
        where = int(rng.integers(-a.ndim - 1, a.ndim + 1))
        same_view(cukern.expand_dims(a, where), np.expand_dims(wanted, where))
        same_view(cukern.expand_dims(a, (0, -1)), np.expand_dims(wanted, (0, -1)))
        assert a.size == 0 or a.T.base is a
        same(a.ravel(), wanted.ravel())
        same(cukern.ravel(a.T), wanted.T.ravel())


def test_forms_of_the_same_view() -> None:
    a, wanted = pair((2, 3))
    for view in (a.T, a.transpose(), a.transpose(None), a.transpose((1, 0)), a.transpose([1, 0]), a.transpose(1, 0)):
        same_view(view, wanted.T)
    same_view(cukern.transpose(a), wanted.T)
    for view in (a.reshape(3, 2), a.reshape((3, 2)), a.reshape([3, -1]), cukern.reshape(a, (3, 2))):
        same_view(view, wanted.reshape(3, 2))
    for view in (a.reshape(-1), a.reshape(6), a.ravel(), cukern.ravel(a), cukern.reshape(a, -1)):
        same_view(view, wanted.ravel())
    one, one_wanted = pair((1, 2, 1))
    for view in (one.squeeze(), one.squeeze((0, 2)), one.squeeze(axis=(0, -1)), cukern.squeeze(one)):
        same_view(view, one_wanted.squeeze())
    same_view(one.squeeze(0), one_wanted.squeeze(0))
    same_view(cukern.squeeze(one, axis=2), one_wanted.squeeze(2))


@pytest.mark.parametrize(
    ("shape", "to"),
    [
        ((3,), (2, 3)),
        ((), (2, 3)),
        ((2, 1), (2, 3)),
        ((1,), (0,)),
        ((1, 3), (4, 2, 3)),
        ((3,), (3,)),
        ((), ()),
        ((1,), 5),
    ],
    ids=str,
)
def test_broadcast_to(shape: tuple[int, ...], to: Any) -> None:
    a, wanted = pair(shape)
    same_view(cukern.broadcast_to(a, to), np.broadcast_to(wanted, to))


@pytest.mark.parametrize("memory", MEMORY)
def test_read_only_views_refuse_writes(memory: str) -> None:
    a = cukern.ones((2, 3), memory=memory)
    wide = cukern.broadcast_to(a, (4, 2, 3))
    writes: list[Callable[[cukern.Array], object]] = [
        lambda v: v.fill(0),
        lambda v: operator.setitem(v, ..., 0),
        lambda v: operator.setitem(v, (0, 0), [1, 2, 3]),
        lambda v: operator.iadd(v, 1),
        lambda v: operator.imatmul(v[0, :, :2], cukern.ones((2, 2))),
        lambda v: cukern.add(v, 1, out=v),
        lambda v: np.add(v, 1, out=v),
        lambda v: cukern.copyto(v, 3.0),
        lambda v: cukern.asnumpy(a, out=v),
    ]
    for write in writes:
        for view in (wide, wide[1:], wide.reshape(4, 2, 3), wide[0][None]):
            with pytest.raises(ValueError, match="read-only"):
                write(view)
    same(a, np.ones((2, 3)))
    assert wide.T.flags["WRITEABLE"] is False
    assert wide.copy().flags["WRITEABLE"] is True


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
@pytest.mark.parametrize("memory", MEMORY)
def test_concat_and_stack(axis: int, memory: str) -> None:
    a, wanted = pair((2, 3, 4), memory=memory)
    joined = cukern.concat([a, a[::-1], a], axis)
    same(joined, np.concatenate([wanted, wanted[::-1], wanted], axis))
    assert joined.memory == memory
    same(cukern.stack((a, a.T.T), axis=axis), np.stack((wanted, wanted), axis))
    lengths = [a.shape[axis], 0, 1]
    parts = [np.moveaxis(np.moveaxis(wanted, axis, 0)[:n], 0, axis) for n in lengths]
    same(cukern.concat([cukern.asarray(part) for part in parts], axis), np.concatenate(parts, axis))


def test_concat_of_all_elements() -> None:
    a, wanted = pair((2, 3))
    zero, zero_wanted = pair(())
    same(cukern.concat([a, a.T, zero], axis=None), np.concatenate([wanted, wanted.T, zero_wanted], axis=None))
    same(cukern.concat(part for part in (a, a)), np.concatenate([wanted, wanted]))
    same(cukern.stack([zero, zero]), np.stack([zero_wanted, zero_wanted]))
    same(cukern.concat([a]), wanted)
    assert cukern.concat([a]).base is None


@pytest.mark.parametrize("mix", [(a, b) for a in MEMORY for b in MEMORY], ids=str)
def test_memory_of_joined_arrays(mix: tuple[str, str]) -> None:
    parts = [cukern.ones(2, memory=memory) for memory in mix]
    assert cukern.concat(parts).memory == cukern.stack(parts).memory == min(mix, key=MEMORY.index)


# --- assignment ---

ASSIGNED: dict[str, tuple[Any, Callable[[], Any]]] = {
    "a number": (np.s_[1:3], lambda: 7),
    "a float into a row": (np.s_[0], lambda: 2.5),
    "one element": (np.s_[1, 2], lambda: 9),
    "a column": (np.s_[:, 1], lambda: [1, 2, 3]),
    "a broadcast row": (np.s_[...], lambda: np.arange(4)),
    "a broadcast column": (np.s_[:, ::-1], lambda: np.arange(3).reshape(3, 1)),
    "leading ones": (np.s_[...], lambda: np.arange(4).reshape(1, 1, 1, 4)),
    "a list of lists": (np.s_[:2, :2], lambda: [[1, 2], [3, 4]]),
    "a tuple": (np.s_[2], lambda: (1, 2, 3, 4)),
    "a bool": (np.s_[0], lambda: True),
    "a NumPy number": (np.s_[0], lambda: np.float32(0.1)),
    "an array without dimensions": (np.s_[0], lambda: np.array(3)),
    "a buffer": (np.s_[0], lambda: array.array("d", [1, 2, 3, 4])),
    "other strides": (np.s_[::-2, ::2], lambda: np.arange(12.0).reshape(3, 4).T[:2, :2]),
    "a new axis": (np.s_[None, 0], lambda: [[1, 2, 3, 4]]),
    "nothing": (np.s_[3:], lambda: np.zeros((0, 4))),
    "a number into nothing": (np.s_[3:], lambda: 3),
    "the whole": (np.s_[()], lambda: 5),
}


@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("name", ASSIGNED)
def test_assignment(name: str, memory: str) -> None:
    key, value = ASSIGNED[name]
    for dtype in (np.float64, np.int32, np.float16, np.complex64):
        a, wanted = pair((3, 4), dtype, memory)
        a[key] = value()
        wanted[key] = value()
        same(a, wanted)
        if isinstance(value(), np.ndarray):
            for other in MEMORY:
                b = cukern.zeros((3, 4), dtype, memory=memory)
                b[key] = cukern.asarray(value(), memory=other)
                wanted[...] = 0
                wanted[key] = value()
                same(b, wanted)


class Library:
    """An array of a library that only speaks DLPack."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __dlpack__(self, **options: Any) -> Any:
        return self.values.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


@pytest.mark.parametrize("memory", MEMORY)
def test_assignment_of_another_librarys_array(memory: str) -> None:
    a = cukern.zeros((2, 3), memory=memory)
    a[...] = Library(numbers((2, 3), np.float32))
    same(a, numbers((2, 3)))
    a[:, 0] = Library(np.array([5, 6]))
    assert a.tolist() == [[5, 1, 2], [6, 4, 5]]


@pytest.mark.parametrize("source", NAMES)
@pytest.mark.parametrize("target", NAMES)
def test_assignment_casts_as_numpy(source: str, target: str) -> None:
    values = np.array([0, 1, 3, 100]).astype(source)
    a, wanted = cukern.zeros(4, target), np.zeros(4, target)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
        wanted[...] = values
    a[...] = cukern.asarray(values)
    same(a, wanted)
    a.fill(0)
    a[...] = values  # from the host
    same(a, wanted)


OVERLAPS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "down": (np.s_[1:], lambda a: a[:-1]),
    "up": (np.s_[:-1], lambda a: a[1:]),
    "reversed": (np.s_[...], lambda a: a[::-1]),
    "into the reversed": (np.s_[::-1], lambda a: a),
    "rows and columns": (np.s_[...], lambda a: a.T),
    "a row of it": (np.s_[...], lambda a: a[3]),
    "a column of it": (np.s_[...], lambda a: a[:, 2:3]),
    "an element of it": (np.s_[...], lambda a: a[3, 3]),
    "every second": (np.s_[: 8 // 2], lambda a: a[::2]),
    "into every second": (np.s_[::2], lambda a: a[:4]),
    "sideways": (np.s_[:, 1:], lambda a: a[:, :-1]),
    "interleaved": (np.s_[:, ::2], lambda a: a[:, 1::2]),
    "itself": (np.s_[...], lambda a: a),
    "itself as view": (np.s_[1:], lambda a: a[1:]),
}


@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("name", OVERLAPS)
def test_assignment_from_itself(name: str, memory: str) -> None:
    key, source = OVERLAPS[name]
    for dtype in (np.float32, np.int8, np.complex128):
        a, wanted = pair((8, 8), dtype, memory)
        a[key] = source(a)
        wanted[key] = source(wanted)
        same(a, wanted)
        if memory != "device":
            a, wanted = pair((8, 8), dtype, memory)
            a[key] = source(np.asarray(a))  # the same memory, seen through NumPy
            wanted[key] = source(wanted)
            same(a, wanted)


def test_large_assignment_from_itself() -> None:
    a, wanted = pair((1 << (12 if SMALL else 18),), np.int32)
    for shift in (1, 3, 1000):
        a[shift:] = a[:-shift]
        wanted[shift:] = wanted[:-shift].copy()
    a[::-1] = a
    same(a, wanted[::-1].copy())


NOT_ASSIGNED: dict[str, tuple[Any, Any, Any, str]] = {
    "a shape that does not fit": (np.s_[...], [1, 2], ValueError, r"\(2,\).*\(3, 4\)"),
    "many into one": (np.s_[0, 0], [1, 2], ValueError, r"\(2,\)"),
    "many into none": (np.s_[:0], np.zeros((2, 4)), ValueError, r"\(2, 4\).*\(0, 4\)"),
    "too many dimensions": (np.s_[0], np.zeros((2, 4)), ValueError, r"\(2, 4\).*\(4,\)"),
    "text": (np.s_[0], "x", (TypeError, ValueError), ""),
    "None": (np.s_[0], None, TypeError, ""),
    "a dict": (np.s_[0], {}, TypeError, "dict"),
    "objects": (np.s_[0], np.array([None] * 4), TypeError, "object"),
    "swapped bytes": (np.s_[0], np.zeros(4, ">f8"), TypeError, "swapped"),
    "a ragged list": (np.s_[0], [[1], [1, 2]], ValueError, ""),
    "a complex number": (np.s_[0], 1j, TypeError, ""),
    "a bad index": (np.s_[3], 1, IndexError, "3"),
}


@pytest.mark.parametrize("name", NOT_ASSIGNED)
def test_refused_assignment(name: str) -> None:
    key, value, error, message = NOT_ASSIGNED[name]
    a, wanted = pair((3, 4))
    with pytest.raises(error, match=message or None):
        a[key] = value
    same(a, wanted)


@pytest.mark.parametrize(
    ("dtype", "value", "error"),
    [
        ("int8", 128, OverflowError),
        ("uint8", -1, OverflowError),
        ("uint64", 2**64, OverflowError),
        ("int64", float("nan"), ValueError),
        ("int64", float("inf"), OverflowError),
        ("float32", 1j, TypeError),
        ("float64", 10**400, OverflowError),
    ],
)
def test_python_numbers_that_do_not_fit(dtype: str, value: Any, error: type[Exception]) -> None:
    a = cukern.ones(3, dtype)
    with pytest.raises(error):
        np.ones(3, dtype)[...] = value
    for call in (
        lambda: operator.setitem(a, ..., value),
        lambda: operator.setitem(a, slice(2), [value, value]),
        lambda: a.fill(value),
        lambda: cukern.full(3, value, dtype),
        lambda: cukern.full_like(a, value),
        lambda: cukern.asarray([value], dtype),
    ):
        with pytest.raises(error):
            call()
    same(a, np.ones(3, dtype))


def test_elements_are_not_deleted() -> None:
    a = cukern.ones(3)
    with pytest.raises(TypeError, match="deleted"):
        del a[0]  # type: ignore[attr-defined]


# --- conversions ---


@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("name", NAMES)
def test_items_and_lists(name: str, memory: str) -> None:
    wanted = numbers((2, 3), name)
    a = cukern.asarray(wanted, memory=memory)
    assert a.tolist() == wanted.tolist()
    assert a.T[::-1].tolist() == wanted.T[::-1].tolist()
    assert a[0, 0].tolist() == wanted[0, 0].tolist()
    for index in ((3,), (-1,), (1, 2), ((1, -1),), (np.int64(4),)):
        assert a.item(*index) == wanted.item(*index)
        assert type(a.item(*index)) is type(wanted.item(*index))
        assert a.T.item(*index[:1]) == wanted.T.item(*index[:1]) or len(index) == 2 or isinstance(index[0], tuple)
    assert a[1, 1].item() == a[1, 1].item(0) == a[1:, 1:2].item() == wanted[1, 1].item()
    assert repr(a) == repr(wanted).replace("array", "Array", 1)


@pytest.mark.parametrize(
    ("index", "error"),
    [
        ((), ValueError),
        ((6,), IndexError),
        ((-7,), IndexError),
        ((0, 3), IndexError),
        ((0, 0, 0), (IndexError, ValueError)),
    ],
    ids=str,
)
def test_no_such_item(index: tuple[Any, ...], error: Any) -> None:
    a, wanted = pair((2, 3))
    with pytest.raises((IndexError, ValueError)):
        wanted.item(*index)
    with pytest.raises(error):
        a.item(*index)


@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("value", [0, 1, -3, 2.75, -0.0, float("inf"), float("nan"), True, False, 0j, 2 + 1j], ids=str)
def test_python_numbers(value: Any, memory: str) -> None:
    for shape in ((), (1,), (1, 1)):
        a = cukern.full(shape, value, memory=memory)
        assert bool(a) is bool(value)
        for convert in (int, float):
            try:
                wanted = convert(value)
            except (TypeError, ValueError, OverflowError) as error:
                with pytest.raises(type(error)):
                    convert(a)
            else:
                assert type(convert(a)) is convert
                assert repr(convert(a)) == repr(wanted)


def test_many_elements_are_no_number() -> None:
    for a in (cukern.zeros(2), cukern.zeros(0), cukern.zeros((2, 2))):
        with pytest.raises(ValueError, match="ambiguous"):
            bool(a)
        for convert in (int, float):
            with pytest.raises(TypeError, match=f"one element.*{a.size}"):
                convert(a)


def test_index() -> None:
    assert operator.index(cukern.asarray(3, "uint8")) == 3
    assert [10, 20, 30][cukern.asarray(-1)] == 30
    assert cukern.arange(5)[cukern.asarray(2)].item() == 2
    for a in (cukern.asarray(3.0), cukern.asarray([3]), cukern.asarray(True)):
        with pytest.raises(TypeError, match="integer"):
            operator.index(a)


@pytest.mark.parametrize(
    "wanted",
    [
        np.array(1.5),
        np.array(True),
        np.zeros(0),
        np.zeros((0, 3), np.int8),
        np.arange(2000),
        np.arange(3000.0).reshape(3, 1000),
        np.array([np.nan, np.inf, -0.0, 1e300]),
        np.array([[1 + 2j, 3]], np.complex64),
        np.array([[[1]]], np.uint8),
        np.arange(6, dtype=np.float32).reshape(2, 3).T[::-1],
        np.array([1e-8, 1, 1e8]),
    ],
    ids=lambda wanted: f"{wanted.dtype} {wanted.shape}",
)
def test_text_is_numpys(wanted: np.ndarray) -> None:
    for memory in MEMORY:
        a = cukern.asarray(wanted, memory=memory)
        assert repr(a) == repr(wanted).replace("array", "Array", 1)
        assert str(a) in (str(wanted), repr(a))
        with np.printoptions(precision=2, threshold=3, edgeitems=1):
            assert repr(a) == repr(wanted).replace("array", "Array", 1)


def test_length_and_iteration() -> None:
    a, wanted = pair((3, 4))
    assert len(a) == 3
    assert len(cukern.zeros((0, 3))) == 0
    rows = list(a)
    assert len(rows) == 3
    for row, wanted_row in zip(a, wanted, strict=True):
        same_view(row, wanted_row)
    for row in a:
        row[...] = 7  # of a view
    same(a, np.full((3, 4), 7.0))
    assert [element.item() for element in cukern.arange(3)] == [0, 1, 2]
    assert all(type(element) is cukern.Array and element.shape == () for element in cukern.arange(3))
    assert list(cukern.zeros((0, 3))) == []
    first, *rest = cukern.arange(4)
    assert (first.item(), len(rest)) == (0, 3)
    with pytest.raises(ValueError, match="unpack"):
        _, _ = cukern.arange(3)


def test_no_length_and_no_iteration_without_dimensions() -> None:
    a = cukern.asarray(3)
    for call in (len, iter, list):
        with pytest.raises(TypeError):
            call(a)


# --- what is refused ---

BAD_INDICES: dict[str, tuple[Any, str]] = {
    "too large": (3, "3.*0.*3"),
    "too small": (-4, "-4.*0.*3"),
    "of the second dimension": ((0, 4), "4.*1.*4"),
    "huge": (2**100, ""),
    "too many": ((0, 0, 0), "2.*3"),
    "two ellipses": ((..., ...), r"\.\.\."),
    "a float": (1.0, "1.0"),
    "a NumPy float": (np.float64(1), "1.0"),
    "a bool": (True, "True"),
    "a NumPy bool": (np.bool_(True), "True"),
    "a list": ([0, 1], r"\[0, 1\]"),
    "an array of indices": (np.array([0, 1]), "array"),
    "text": ("x", "'x'"),
}


@pytest.mark.parametrize("name", BAD_INDICES)
def test_bad_index(name: str) -> None:
    key, message = BAD_INDICES[name]
    a = cukern.zeros((3, 4))
    with pytest.raises(IndexError, match=message or None):
        a[key]
    with pytest.raises(IndexError, match=message or None):
        a[key] = 1


def test_bad_slices() -> None:
    a = cukern.zeros((3, 4))
    with pytest.raises(ValueError, match="step"):
        a[::0]
    for key in (slice(1.0), slice("x", None), slice(None, None, 1.5)):
        with pytest.raises(TypeError):
            a[key]
    same_view(a[2**70 :], np.zeros((3, 4))[2**70 :])
    same_view(a[: 2**70 : 2**70], np.zeros((3, 4))[: 2**70 : 2**70])


REFUSED: dict[str, tuple[Callable[[], object], Any, str]] = {
    "negative length": (lambda: cukern.empty(-1), ValueError, r"empty: .*-1"),
    "negative length among others": (lambda: cukern.zeros((2, -3)), ValueError, r"zeros: .*\(2, -3\)"),
    "too large": (lambda: cukern.empty(2**62), ValueError, r"empty: .*4611686018427387904"),
    "too large as product": (lambda: cukern.ones((2**40, 2**40)), ValueError, r"ones: .*1099511627776"),
    "too large but for a zero": (lambda: cukern.ones((0, 2**40, 2**40)), ValueError, r"ones: .*1099511627776"),
    "a length beyond all": (lambda: cukern.empty(2**70), (ValueError, OverflowError), ""),
    "shape is a float": (lambda: cukern.empty(2.5), TypeError, "empty: shape is 2.5"),
    "shape has a float": (lambda: cukern.empty((2, 2.5)), TypeError, "float"),
    "shape is text": (lambda: cukern.empty("x"), TypeError, "empty: shape is 'x'"),
    "shape is None": (lambda: cukern.empty(None), TypeError, "empty: shape is None"),
    "no shape": (lambda: cukern.empty(), TypeError, "shape"),
    "65 dimensions": (lambda: cukern.empty((1,) * 65), ValueError, "empty: .*65.*64"),
    "no such dtype": (lambda: cukern.empty(3, "foo"), TypeError, "foo"),
    "dtype of text": (lambda: cukern.empty(3, "U3"), TypeError, "empty: .*U3.*float32.*uint64"),
    "dtype of objects": (lambda: cukern.full(3, 1, object), TypeError, "full: .*object"),
    "long double": (lambda: cukern.zeros(3, np.longdouble), TypeError, "zeros: .*float128|zeros: .*longdouble"),
    "swapped dtype": (lambda: cukern.empty(3, ">f4"), TypeError, "empty: .*>f4.*byte order"),
    "record": (lambda: cukern.empty(3, "i4,i4"), TypeError, "empty: "),
    "no such memory": (lambda: cukern.empty(3, memory="fast"), ValueError, "empty: .*'fast'.*device.*managed.*pinned"),
    "no such device": (lambda: cukern.empty(3, device=99), ValueError, "empty: device 99"),
    "negative device": (lambda: cukern.empty(3, device=-1), ValueError, "empty: device -1"),
    "device is text": (lambda: cukern.empty(3, device="x"), TypeError, "empty: device is 'x'"),
    "stream is text": (lambda: cukern.empty(3, stream="x"), TypeError, "empty: stream is 'x'"),
    "unknown argument": (lambda: cukern.empty(3, order="C"), TypeError, "order"),
    "full of text": (lambda: cukern.full(3, "x"), TypeError, "full: 'x'"),
    "full of a list": (lambda: cukern.full((2, 2), [1, 2], "f4"), (ValueError, TypeError), ""),
    "full of nothing": (lambda: cukern.full(2, []), (ValueError, TypeError), ""),
    "full of an array": (lambda: cukern.full(2, np.arange(2)), (ValueError, TypeError), ""),
    "full_like of a list": (lambda: cukern.full_like(A, [1, 2]), (ValueError, TypeError), ""),
    "fill of a list": (lambda: cukern.copy(A).fill([1, 2]), (ValueError, TypeError), ""),
    "fill of nothing": (lambda: cukern.copy(A).fill([]), (ValueError, TypeError), ""),
    "fill of text": (lambda: cukern.copy(A).fill("x"), (ValueError, TypeError), ""),
    "asarray of text": (lambda: cukern.asarray("abc"), TypeError, "asarray: a .*str"),
    "asarray of texts": (lambda: cukern.asarray(["a"]), TypeError, "asarray: a .*U1"),
    "asarray of None": (lambda: cukern.asarray(None), TypeError, "asarray: a .*None"),
    "asarray of Nones": (lambda: cukern.asarray([None]), TypeError, "asarray: a .*object"),
    "asarray of a ragged list": (lambda: cukern.asarray([[1], [1, 2]]), ValueError, ""),
    "asarray of swapped bytes": (lambda: cukern.asarray(np.zeros(3, ">f4")), TypeError, "asarray: a .*swapped"),
    "asarray of a mask": (lambda: cukern.asarray(np.ma.zeros(3)), TypeError, "asarray: a .*mask"),
    "zeros_like of a list": (lambda: cukern.zeros_like([1, 2]), TypeError, "zeros_like: a .*list"),
    "reshape of a list": (lambda: cukern.reshape([1, 2], 2), TypeError, "reshape: .*Array.*list.*asarray"),
    "reshape to another size": (lambda: A.reshape(4), ValueError, r"reshape: 6 .*\(4,\)"),
    "reshape with two left over": (lambda: A.reshape(-1, -1), ValueError, "reshape: 6 .*-1, -1"),
    "reshape that does not divide": (lambda: A.reshape(4, -1), ValueError, "reshape: 6 .*4, -1"),
    "reshape to -2": (lambda: A.reshape(-2, 3), ValueError, "reshape: 6 .*-2, 3"),
    "reshape beyond all": (lambda: A.reshape(2**33, 2**33, 2**33), ValueError, "reshape: 6 .*8589934592"),
    "reshape of nothing with -1 and 0": (lambda: A[:0].reshape(-1, 0), ValueError, "reshape: 0 .*-1, 0"),
    "reshape of nothing beyond all": (lambda: A[:0].reshape(0, 2**40, 2**40), ValueError, "reshape: "),
    "reshape by another order": (lambda: A.reshape(6, order="F"), TypeError, "order"),
    "65 dimensions by reshape": (lambda: A.reshape((6, *(1,) * 64)), ValueError, "reshape: .*65.*64"),
    "ravel with arguments": (lambda: A.ravel("F"), TypeError, "ravel"),
    "squeeze of a length": (lambda: A.squeeze(0), ValueError, "squeeze: .*0.*2"),
    "squeeze beyond": (lambda: A.squeeze(2), ValueError, "squeeze: .*2.*2"),
    "squeeze of a list": (lambda: A.squeeze([0]), TypeError, "list"),
    "transpose of one axis twice": (lambda: A.transpose(0, 0), ValueError, "transpose: .*0"),
    "transpose of too few axes": (lambda: A.transpose(0), ValueError, "transpose: .*1.*2"),
    "transpose of too many axes": (lambda: A.transpose(0, 1, 2), ValueError, "transpose: "),
    "transpose beyond": (lambda: cukern.transpose(A, (2, 1)), ValueError, "transpose: .*2.*2"),
    "new axis beyond": (lambda: cukern.expand_dims(A, 3), ValueError, "expand_dims: .*3"),
    "new axis twice": (lambda: cukern.expand_dims(A, (0, 0)), ValueError, "expand_dims: .*0"),
    "65 dimensions by new axes": (lambda: cukern.expand_dims(A, tuple(range(63))), ValueError, "expand_dims: .*65.*64"),
    "65 dimensions by indexing": (lambda: A[(None,) * 63], IndexError, "64"),
    "65 dimensions by stack": (lambda: cukern.stack([cukern.ones((1,) * 64)]), ValueError, "65.*64"),
    "broadcast that does not fit": (lambda: cukern.broadcast_to(A, (3, 3)), ValueError, r"\(2, 3\).*\(3, 3\)"),
    "broadcast to fewer": (lambda: cukern.broadcast_to(A, (3,)), ValueError, r"\(2, 3\).*\(3,\)"),
    "broadcast to a negative": (lambda: cukern.broadcast_to(A[:1, :1], (-1, 1)), ValueError, "broadcast_to: "),
    "broadcast beyond all": (lambda: cukern.broadcast_to(A[0, 0], (2**40, 2**40)), ValueError, "broadcast_to: "),
    "broadcast beyond all but a zero": (lambda: cukern.broadcast_to(A[0, 0], (0, 2**40, 2**40)), ValueError, "broad"),
    "concat of nothing": (lambda: cukern.concat([]), ValueError, "concat: .*at least one"),
    "concat of lists": (lambda: cukern.concat([[1], [2]]), TypeError, "concat: .*0.*list"),
    "concat of host arrays": (lambda: cukern.concat([A, np.ones((2, 3))]), TypeError, "concat: .*1.*ndarray"),
    "concat of other shapes": (lambda: cukern.concat([A, A.T]), ValueError, r"concat: .*\(2, 3\).*1.*\(3, 2\)"),
    "concat of other dimensions": (lambda: cukern.concat([A, A[0]]), ValueError, r"concat: .*\(2, 3\).*1.*\(3,\)"),
    "concat without dimensions": (lambda: cukern.concat([A[0, 0]]), ValueError, "concat: "),
    "concat beyond": (lambda: cukern.concat([A], 2), ValueError, "concat: .*2.*2"),
    "concat along two axes": (lambda: cukern.concat([A, A], (0, 1)), TypeError, ""),
    "concat along no axis": (lambda: cukern.concat([A, A], ()), TypeError, ""),
    "concat along a float": (lambda: cukern.concat([A, A], 1.0), TypeError, ""),
    "concat of a number": (lambda: cukern.concat(3), TypeError, ""),
    "stack of nothing": (lambda: cukern.stack([]), ValueError, "stack: .*at least one"),
    "stack of other shapes": (lambda: cukern.stack([A, A.T]), ValueError, "stack: "),
    "stack beyond": (lambda: cukern.stack([A], 3), ValueError, "3"),
    "stack along two axes": (lambda: cukern.stack([A, A], (0, 1)), TypeError, ""),
    "astype of nothing": (lambda: A.astype(), TypeError, "dtype"),
    "astype of text": (lambda: A.astype("U3"), TypeError, "astype: .*U3"),
    "asnumpy of a list": (lambda: cukern.asnumpy([1]), TypeError, "asnumpy: a .*list"),
    "arange of nothing": (lambda: cukern.arange(), TypeError, ""),
    "arange of step 0": (lambda: cukern.arange(0, 3, 0), (ValueError, ZeroDivisionError), ""),
    "linspace of -1": (lambda: cukern.linspace(0, 1, -1), ValueError, "-1"),
}
A = np.empty(0)  # an Array of the back-end in use, while test_refused runs


@pytest.fixture
def subject(backend: str) -> Any:
    globals()["A"] = cukern.asarray(numbers((2, 3)))
    yield globals()["A"]
    globals()["A"] = np.empty(0)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, subject: cukern.Array) -> None:
    call, error, message = REFUSED[name]
    with pytest.raises(error, match=message or None):
        call()
    same(subject, numbers((2, 3)))


def test_messages_call_element_types_by_numpys_names() -> None:
    with pytest.raises(TypeError) as refused:
        cukern.empty(3, "U3")
    for name in [*NAMES, "bfloat16"]:
        assert f" {name}," in str(refused.value)


# --- sizes at the edges ---


@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 4)], ids=str)
def test_without_elements(shape: tuple[int, ...], memory: str) -> None:
    a, wanted = pair(shape, memory=memory)
    same_view(a, wanted)
    for view in (
        lambda x: x.T,
        lambda x: x[::-1],
        lambda x: x[..., None],
        lambda x: x.reshape(0, 5),
        lambda x: x.ravel(),
    ):
        same_view(view(a), view(wanted))
    a.fill(3)
    a[...] = 4
    same(a + 1, wanted + 1)
    same(a.astype("int8"), wanted.astype("int8"))
    same(a.copy(), wanted)
    same(cukern.concat([a, a]), np.concatenate([wanted, wanted]))
    assert a.tolist() == wanted.tolist()


@pytest.mark.parametrize("memory", MEMORY)
def test_without_dimensions(memory: str) -> None:
    a, wanted = cukern.asarray(2.5, memory=memory), np.array(2.5)
    same_view(a, wanted)
    for key in ((), ..., None, (..., None), (None, ...)):
        same_view(a[key], wanted[key] if key != () else wanted)
    same_view(a.T, wanted)
    same_view(a.reshape(1, 1), wanted.reshape(1, 1))
    same_view(a.ravel(), wanted.ravel())
    a[...] = 3
    assert a.item() == 3
    a[()] = 4
    assert a.item() == 4
    with pytest.raises(IndexError, match=r"0.*1"):
        a[0]


def test_64_dimensions() -> None:
    shape = (2, *(1,) * 30, 3, *(1,) * 30, 2, 1)
    a, wanted = pair(shape)
    assert a.ndim == 64
    same_view(a, wanted)
    same_view(a.T, wanted.T)
    same_view(a[::-1, ..., ::-1, :], wanted[::-1, ..., ::-1, :])
    same_view(a.squeeze(), wanted.squeeze())
    same(a.T.copy(), wanted.T)
    same(a.T.ravel(), wanted.T.ravel())
    same(a + a, wanted + wanted)
    same(cukern.concat([a, a.copy()], 31), np.concatenate([wanted, wanted], 31))
    same_view(cukern.arange(2)[(None,) * 63], np.arange(2)[(None,) * 63])
    folded = np.arange(2**12).reshape((2,) * 12)[::-1, ::-1].transpose(5, 3, 1, 11, 9, 7, 0, 2, 4, 6, 8, 10)
    same(cukern.asarray(folded).ravel(), folded.ravel())


def test_huge_broadcast_views() -> None:
    one = cukern.ones(1, "int8")
    wide = cukern.broadcast_to(one, (2**31, 2**31))
    assert (wide.shape, wide.strides, wide.size, wide.nbytes) == ((2**31, 2**31), (0, 0), 2**62, 2**62)
    assert wide[2**31 - 1, -(2**31)].item() == 1
    same(wide[:: 2**30, 5], np.ones(2, np.int8))
    same(wide[2**30 : 2**30 + 3, -2:], np.ones((3, 2), np.int8))
    assert wide.reshape(2**62).shape == wide.ravel().shape == (2**62,)
    with pytest.raises(MemoryError):
        wide.copy()
    with pytest.raises(ValueError, match="more elements"):
        wide.astype("float64")
    with pytest.raises(ValueError, match="more elements"):
        cukern.concat([wide, wide])
    with pytest.raises(ValueError, match="more elements"):
        cukern.stack([wide, wide])
    with pytest.raises(IndexError, match="2147483648"):
        wide[2**31]


def test_the_public_names_have_documentation() -> None:
    for name in ("empty", "asarray", "concat", "copyto", "Array"):
        assert inspect.getdoc(getattr(cukern, name))
