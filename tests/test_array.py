"""cukern.Array: how it is made, and what it tells of itself; NumPy says what is right."""

from __future__ import annotations

import array
import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from array_tools import MEMORY, NAMES, pair, same, same_view

import cukern

pytestmark = pytest.mark.usefixtures("backend")


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
    same_view(a.T.astype("float64"), wanted.T.copy(order="K"))
    same_view(a.T.copy(), wanted.T.copy())
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
    same_view(a.T.copy(order="K"), wanted.T.copy(order="K"))
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


COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


@pytest.mark.parametrize("compare", COMPARISONS)
def test_comparisons(compare: Callable[[Any, Any], Any]) -> None:
    values, others = np.array([1.0, np.nan, -3.0, 5.0]), np.array([1, 2, -3, 7], np.int16)
    a, b = cukern.asarray(values), cukern.asarray(others)
    for x, y, wanted in (
        (a, b, compare(values, others)),
        (b, a, compare(others, values)),
        (a, 1, compare(values, 1)),
        (1, a, compare(1, values)),
        (b, 10**30, compare(others, 10**30)),
        (a, np.float32(5), compare(values, np.float32(5))),
        (a[:, None], b, compare(values[:, None], others)),
    ):
        result = compare(x, y)
        assert (type(result), result.dtype) == (cukern.Array, np.bool_)
        np.testing.assert_array_equal(cukern.asnumpy(result), wanted)
    assert bool(compare(a[:1], 1)) == compare(1, 1)
    with pytest.raises(ValueError, match="element"):
        bool(compare(a, b))


@pytest.mark.parametrize("compare", COMPARISONS)
def test_comparisons_with_what_is_no_array(compare: Callable[[Any, Any], Any]) -> None:
    a = cukern.zeros(3)
    for other in ([0, 0, 0], (0, 0, 0)):
        with pytest.raises(TypeError, match="is a list or tuple; pass an array"):
            compare(a, other)
        with pytest.raises(TypeError, match="is a list or tuple; pass an array"):
            compare(other, a)
    with pytest.raises(TypeError, match=r"asarray|__array_ufunc__"):
        compare(a, np.zeros(3))
    for other in (None, "x", object()):
        if compare in (operator.eq, operator.ne):
            assert compare(a, other) is compare(0, 1)
        else:
            with pytest.raises(TypeError, match="not supported between"):
                compare(a, other)
