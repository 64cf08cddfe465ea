"""What can be an operand, and what is refused with which words."""

from __future__ import annotations

import array
import ctypes
import decimal
import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from arrays import assert_same

import cukern

pytestmark = pytest.mark.usefixtures("backend")
BUFFERS = {
    "memoryview": lambda values: memoryview(np.array(values, np.float32)),
    "array.array": lambda values: array.array("f", values),
    "ctypes array": lambda values: (ctypes.c_float * len(values))(*values),
    "cast bytearray": lambda values: memoryview(bytearray(np.array(values, np.float32).tobytes())).cast("f"),
    "strided memoryview": lambda values: memoryview(np.array(values, np.float32).repeat(2))[::2],
    "reversed memoryview": lambda values: memoryview(np.array(values[::-1], np.float32))[::-1],
}


@pytest.mark.parametrize("kind", BUFFERS)
def test_buffers_in_and_out(kind: str) -> None:
    values = [1.0, 2.5, -3.0]
    a = BUFFERS[kind](values)
    assert_same(cukern.add(a, np.float32(1)), np.array(values, np.float32) + 1)
    assert cukern.add(a, a, out=a) is a
    assert [float(x) for x in a] == [2 * x for x in values]
    matrix = np.eye(3, dtype=np.float32)
    assert_same(cukern.matmul(a, matrix), np.array([2 * x for x in values], np.float32))
    out = BUFFERS[kind]([0.0] * 3)
    for function in (cukern.matmul, cukern.matmul_tiled):
        assert function(matrix, a, out=out) is out
        assert list(out) == [2 * x for x in values]


@pytest.mark.parametrize(
    ("code", "dtype"), [("f", "float32"), ("d", "float64"), ("i", "int32"), ("l", "int64"), ("q", "int64")]
)
def test_element_types_of_buffers(code: str, dtype: str) -> None:
    a = array.array(code, [1, 2, 3])
    assert_same(cukern.multiply(a, a), np.array([1, 4, 9], dtype))


@pytest.mark.parametrize(
    ("ctype", "dtype"),
    [
        (ctypes.c_float, "float32"),
        (ctypes.c_double, "float64"),
        (ctypes.c_int, "int32"),
        (ctypes.c_long, "int64"),
        (ctypes.c_longlong, "int64"),
    ],
)
def test_two_dimensional_ctypes_arrays(ctype, dtype: str) -> None:
    a = ((ctype * 2) * 3)((1, 2), (3, 4), (5, 6))
    assert_same(cukern.add(a, a), np.array([[2, 4], [6, 8], [10, 12]], dtype))


def test_both_numpy_numbers_of_int64() -> None:
    for name in ("l", "q"):
        assert_same(cukern.add(np.ones(3, name), 1), np.full(3, 2, np.int64))


def test_a_cast_mmap(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(np.arange(8, dtype=np.float64).tobytes())
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        with memoryview(mapped) as view, view.cast("d") as a:
            assert cukern.add(a, 1, out=a) is a
        mapped.flush()
    assert np.frombuffer(path.read_bytes()).tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


def test_read_only_operands_are_fine() -> None:
    a = np.arange(3.0)
    a.flags.writeable = False
    assert_same(cukern.add(a, memoryview(a.tobytes()).cast("d")), a + a)


@pytest.mark.parametrize("untyped", [bytearray(8), memoryview(bytearray(8))], ids=lambda x: type(x).__name__)
def test_untyped_bytes_get_advice(untyped) -> None:
    with pytest.raises(TypeError, match=r"which out's uint8 cannot take.*memoryview\(x\).cast"):
        cukern.add(np.ones(8), 1, out=untyped)
    assert_same(cukern.add(untyped, 1), np.frombuffer(untyped, np.uint8) + 1)  # else they are 8-bit integers


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        ([1.0, 2.0], "a is of type list; pass an array, as made by cukern.asarray"),
        ((1.0, 2.0), "a is of type tuple; pass an array"),
        (None, "a is of type NoneType; expected an array of cukern, NumPy or another library"),
        ("text", "a is of type str; expected an array"),
        ({1: 2}, "a is of type dict; expected"),
        (decimal.Decimal(1), "a is of type Decimal; expected"),
        (np.array(["x"]), "a has element type <U1; supported"),
        (np.array([object()]), "a has element type object; supported"),
        (np.zeros(3, "f4,f4"), "a has element type"),
        (np.datetime64("2020-01-01"), "a has element type datetime64"),
        (np.ma.ones(3), "a is of type MaskedArray; its mask would be lost; pass x.filled"),
        (np.ones(3, ">f4"), "a is byte-swapped; convert it to native byte order"),
        (memoryview(np.ones(3, ">f8")), "a is byte-swapped"),
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_refused_operands(thing, message: str) -> None:
    out = np.full(3, 9.0)
    for name in ("add", "divide", "scale", "matmul"):
        with pytest.raises(TypeError, match=f"^{name}: {message}"):
            getattr(cukern, name)(thing, 1 if name == "scale" else np.ones(3), out=out)
    with pytest.raises(TypeError, match=f"^scale: {message.replace('a ', 'factor ', 1)}"):
        cukern.scale(np.ones(3), thing, out=out)
    with pytest.raises(TypeError, match=f"^subtract: {message.replace('a ', 'b ', 1)}"):
        cukern.subtract(np.ones(3), thing, out=out)
    assert out.tolist() == [9.0] * 3


@pytest.mark.parametrize(
    ("args", "options", "message"),
    [
        ((), {}, r"add\(\) takes exactly 2 positional arguments \(0 given\)"),
        ((1,), {}, r"add\(\) takes exactly 2 positional arguments \(1 given\)"),
        ((1, 2, 3), {}, r"add\(\) takes exactly 2 positional arguments \(3 given\)"),
        ((1, 2), {"into": 3}, r"add\(\) got an unexpected keyword argument 'into'; there are 'out' and 'stream'"),
        ((1,), {"b": 3}, r"add\(\) takes exactly 2 positional arguments \(1 given\)"),
    ],
)
def test_arguments(args, options, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        cukern.add(*args, **options)


def test_out_of_none_is_no_out() -> None:
    assert_same(cukern.add(np.ones(2), 1, out=None), np.full(2, 2.0))


def test_keyword_made_at_run_time() -> None:
    out = np.zeros(2)
    assert cukern.add(np.ones(2), 1, **{"".join(["o", "ut"]): out}) is out


def test_a_subclass_of_float_is_a_number() -> None:
    class Meters(float):
        pass

    assert_same(cukern.scale(np.ones(2, np.float32), Meters(2)), np.full(2, 2, np.float32))


def test_a_subclass_of_ndarray_gives_an_ndarray() -> None:
    class Stubborn(np.ndarray):
        def __array_ufunc__(self, *args, **options):
            return 42

    eye = np.eye(2).view(Stubborn)
    for function in (cukern.add, cukern.matmul, cukern.matmul_tiled):
        result = function(eye, eye)
        assert type(result) is np.ndarray
        assert result.tolist() == getattr(np, function.__name__.split("_")[0])(np.eye(2), np.eye(2)).tolist()
        out = np.zeros((2, 2)).view(Stubborn)
        assert function(eye, eye, out=out) is out
        assert out.view(np.ndarray).tolist() == result.tolist()


def test_fortran_buffer_without_strides() -> None:
    a = memoryview(np.asfortranarray(np.arange(6, dtype=np.int32).reshape(2, 3)))
    assert_same(cukern.add(a, 0), np.arange(6, dtype=np.int32).reshape(2, 3))


def test_an_unfriendly_exporter() -> None:
    closed = memoryview(b"1234")
    closed.release()
    with pytest.raises(ValueError, match="released memoryview"):
        cukern.add(closed, 1)


def test_a_shape_whose_size_overflows() -> None:
    a, b = np.broadcast_to(np.float32(1), (2**40, 1)), np.broadcast_to(np.float32(1), (1, 2**40))
    for function in (cukern.add, cukern.matmul):
        with pytest.raises(ValueError, match=r"the result of shape \(1099511627776, 1099511627776\) has more elements"):
            function(a, b)


def test_a_result_that_memory_cannot_hold() -> None:
    a = np.broadcast_to(np.float32(1), (2**29, 1))
    with pytest.raises(MemoryError):
        cukern.add(a, np.broadcast_to(np.float32(1), (1, 2**29)))


class Empty(ctypes.Structure):
    """Of no bytes at all."""


class Choice(ctypes.Union):
    """Of a format that says nothing of its eight bytes."""

    _fields_: ClassVar = [("number", ctypes.c_int64), ("real", ctypes.c_double)]


@pytest.mark.parametrize(("kind", "size"), [(Empty, 0), (Choice, 8)])
def test_bytes_of_other_sizes_are_refused(kind: type, size: int) -> None:
    for call in (lambda x: cukern.add(x, 1), cukern.asarray):
        with pytest.raises(TypeError, match=f"a has element type 'B' of {size} bytes"):
            call((kind * 3)())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: cukern.empty(), r"empty\(\) missing required argument 'shape' \(pos 1\)"),
        (lambda x: cukern.full(2), r"full\(\) missing required argument 'fill_value' \(pos 2\)"),
        (lambda x: cukern.empty(dtype="int8"), r"empty\(\) missing required argument 'shape' \(pos 1\)"),
        (lambda x: cukern.zeros(1, "int8", 3), r"zeros\(\) takes at most 2 positional arguments \(3 given\)"),
        (lambda x: cukern.ones(1, shape=1), r"ones\(\) got multiple values for argument 'shape'"),
        (lambda x: cukern.zeros_like(x, order="C"), r"zeros_like\(\) got an unexpected keyword argument 'order'"),
        (lambda x: cukern.sum(), r"sum\(\) missing required argument 'a' \(pos 1\)"),
        (lambda x: cukern.sum(a=x), r"sum\(\) got an unexpected keyword argument 'a'"),
        (lambda x: cukern.max(x, dtype="int8"), r"max\(\) got an unexpected keyword argument 'dtype'"),
        (lambda x: x.sum(0, 1), r"sum\(\) takes at most 1 positional argument \(2 given\)"),
        (lambda x: x.sum(0, axis=0), r"sum\(\) got multiple values for argument 'axis'"),
        (lambda x: x.argmax(a=0), r"argmax\(\) got an unexpected keyword argument 'a'"),
    ],
)
def test_arguments_that_do_not_fit_a_signature(call: Callable[[cukern.Array], Any], message: str) -> None:
    with pytest.raises(TypeError, match=f"^{message}$"):
        call(cukern.ones((2, 2)))


def test_keywords_whose_text_is_not_interned() -> None:
    names = ["".join(["sh", "ape"]), "".join(["dt", "ype"])]
    assert cukern.empty(**dict(zip(names, (3, "int8"), strict=True))).shape == (3,)
    x = cukern.ones((2, 3))
    assert x.sum(**{"".join(["ax", "is"]): 0, "".join(["keep", "dims"]): True}).shape == (1, 3)
    assert x.sum(keepdims=np.bool_(True)).shape == (1, 1)
    with pytest.raises(ZeroDivisionError):
        x.sum(keepdims=RaisesOnTruth())


class RaisesOnTruth:
    def __bool__(self) -> bool:
        raise ZeroDivisionError
