"""Assignment to an Array, and its way to other types, Python and text; NumPy says what is right."""

from __future__ import annotations

import array
import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from array_tools import MEMORY, NAMES, numbers, pair, same, same_view
from cases import each
from conftest import SMALL

import cukern

pytestmark = pytest.mark.usefixtures("backend")


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


@pytest.mark.parametrize("target", NAMES)
@each("source", NAMES)
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


@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("name", OVERLAPS)
def test_copy_from_itself_that_nobody_waits_for(name: str, memory: str) -> None:
    key, source = OVERLAPS[name]
    for dtype in (np.float32, np.int8):
        a, wanted = pair((8, 8), dtype, memory)
        cukern.copyto(a[key], source(a), blocking=False)
        wanted[key] = source(wanted)
        cukern.synchronize()
        same(a, wanted)


@pytest.mark.parametrize("memory", MEMORY)
def test_large_copies_from_itself_that_nobody_waits_for(memory: str) -> None:
    n = 5000 if SMALL else 100_000
    for shift in (1, 16, 1025, 2000, 4095):
        for to, of in ((np.s_[shift:], np.s_[:-shift]), (np.s_[:-shift], np.s_[shift:])):
            a, wanted = pair((n,), np.int8, memory)
            cukern.copyto(a[to], a[of], blocking=False)
            wanted[to] = wanted[of].copy()
            cukern.synchronize()
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
