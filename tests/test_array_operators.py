"""Operators of Arrays and NumPy's functions on them: results, their types and memory, what mixes and what does not."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from arrays import assert_same, random_array
from conftest import SMALL
from oracles import ELEMENT_TYPES, PRODUCT_TYPES, refusal

import cukern

pytestmark = pytest.mark.usefixtures("backend")
MEMORY = ["device", "managed", "pinned"]
HOST_MEMORY = MEMORY[1:]
OTHER_TYPES = ["bool", "int8", "int16", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "complex64"]
OTHER_TYPES += ["complex128"]
LEAKS_IN_NUMPY = pytest.mark.unsanitized  # NumPy keeps the operands of a reduction that is refused
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
IN_PLACE: dict[str, Callable[[Any, Any], Any]] = {
    "+=": operator.iadd,
    "-=": operator.isub,
    "*=": operator.imul,
    "/=": operator.itruediv,
}
UFUNCS = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "@": np.matmul}
FUNCTIONS = {"+": cukern.add, "-": cukern.subtract, "*": cukern.multiply, "/": cukern.divide, "@": cukern.matmul}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """NumPy warns of what it does; the oracle may."""
    with np.errstate(all="ignore"):
        yield


def same(actual: Any, wanted: np.ndarray, memory: str | None = None) -> None:
    """Assert that a result is an Array of these elements, in this memory."""
    assert type(actual) is cukern.Array
    assert memory is None or actual.memory == memory
    if np.asarray(wanted).dtype.kind == "c":  # 8 epsilon of the modulus: NumPy's own loops may fuse
        values, wanted = cukern.asnumpy(actual), np.asarray(wanted)
        assert (values.dtype, values.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(values, wanted, rtol=8 * np.finfo(wanted.dtype).eps, atol=0)
        return
    assert_same(cukern.asnumpy(actual), np.asarray(wanted))
    if memory is not None and memory != "device":
        assert_same(np.array(memoryview(actual)), np.asarray(wanted))  # through an exported buffer


def small(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return small whole numbers, of which products are exact in any type."""
    return (np.arange(int(np.prod(shape))) % 11 - 4).reshape(shape).astype(dtype)


def not_for_bools(name: str, *types: Any) -> bool:
    """Whether NumPy has no such operation: a difference of two bools."""
    return name.startswith("-") and all(np.dtype(dtype).kind == "b" for dtype in types)


# --- results ---


@pytest.mark.parametrize("a_type", ELEMENT_TYPES, ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_operators(rng: np.random.Generator, name: str, a_type: np.dtype) -> None:
    for b_type, memory in itertools.product(ELEMENT_TYPES, MEMORY):
        a, b = random_array(rng, (7, 9), a_type), random_array(rng, (7, 9), b_type)
        x, y = cukern.asarray(a, memory=memory), cukern.asarray(b, memory=memory)
        if not_for_bools(name, a_type, b_type):
            for operate in (BINARY[name], UFUNCS[name], FUNCTIONS[name]):
                with pytest.raises(TypeError, match="not defined for element type bool"):
                    operate(x, y)
            continue
        wanted = BINARY[name](a, b)
        same(BINARY[name](x, y), wanted, memory)
        same(UFUNCS[name](x, y), wanted, memory)
        same(FUNCTIONS[name](x, y), wanted, memory)
        same(BINARY[name](x[::-1, ::2], y[:, 4:]), BINARY[name](a[::-1, ::2], b[:, 4:]), memory)
        same(BINARY[name](x, y[3]), BINARY[name](a, b[3]), memory)
        same(BINARY[name](x[:, :1], y[:1]), BINARY[name](a[:, :1], b[:1]), memory)
        same(BINARY[name](x[0, 0], y[0, 0]), np.asarray(BINARY[name](a[:1, 0], b[:1, 0]))[0], memory)


# Each with its in-place form, the function of ours and NumPy's; values are the function's, which has its own tests.
OTHER_OPERATORS: dict[str, tuple[Callable[..., Any], Callable[..., Any], str]] = {
    "floor_divide": (operator.floordiv, operator.ifloordiv, "floor_divide"),
    "remainder": (operator.mod, operator.imod, "remainder"),
    "pow": (operator.pow, operator.ipow, "power"),
    "bitwise_and": (operator.and_, operator.iand, "bitwise_and"),
    "bitwise_or": (operator.or_, operator.ior, "bitwise_or"),
    "bitwise_xor": (operator.xor, operator.ixor, "bitwise_xor"),
    "bitwise_left_shift": (operator.lshift, operator.ilshift, "left_shift"),
    "bitwise_right_shift": (operator.rshift, operator.irshift, "right_shift"),
}


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64", "float32", "complex64", "bool"])
@pytest.mark.parametrize("name", OTHER_OPERATORS)
def test_other_operators(rng: np.random.Generator, name: str, dtype: str) -> None:
    operate, in_place, numpys = OTHER_OPERATORS[name]
    a, b = random_array(rng, (7, 9), np.dtype(dtype)), random_array(rng, (7, 9), np.dtype(dtype))
    number = True if dtype == "bool" else 3
    for memory in MEMORY:
        x, y = cukern.asarray(a, memory=memory), cukern.asarray(b, memory=memory)
        if refusal(name, a, b) is not None:
            for function in (operate, in_place, getattr(np, numpys)):
                with pytest.raises(TypeError, match=f"{name}: not defined for element type {dtype}"):
                    function(x, y)
            continue
        function = getattr(cukern, name)
        same(operate(x, y), function(a, b), memory)
        same(getattr(np, numpys)(x, y), function(a, b), memory)
        same(operate(x, number), function(a, number), memory)
        same(operate(number, x), function(number, a), memory)
        result = function(a, b)
        if not np.can_cast(result.dtype, dtype, "same_kind"):
            with pytest.raises(TypeError, match="cannot take"):
                in_place(x, y)
            continue
        assert in_place(x, y) is x
        same(x, result.astype(dtype), memory)
    with pytest.raises(TypeError):
        pow(cukern.arange(3), 2, 5)


@pytest.mark.parametrize("dtype", ELEMENT_TYPES, ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_large_operands(rng: np.random.Generator, name: str, dtype: np.dtype) -> None:
    shape = (50, 60) if SMALL else (300, 700)
    a, b = random_array(rng, shape, dtype), random_array(rng, shape, dtype)
    for memory in MEMORY if not not_for_bools(name, dtype) else []:
        x, y = cukern.asarray(a, memory=memory), cukern.asarray(b, memory=memory)
        same(BINARY[name](x, y), BINARY[name](a, b), memory)
        same(BINARY[name](x.T, y.T), BINARY[name](a.T, b.T), memory)


WEAK: list[Any] = [2, -3, 0, True, False, 2.5, 1 - 2j, -0.0, float("inf"), float("nan")]


@pytest.mark.parametrize("dtype", ELEMENT_TYPES, ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_python_numbers_are_weak(name: str, dtype: np.dtype) -> None:
    a = small((2, 5), dtype)
    for number, memory in itertools.product(WEAK, MEMORY):
        x = cukern.asarray(a, memory=memory)
        calls = [
            lambda y, number=number: BINARY[name](y, number),
            lambda y, number=number: BINARY[name](number, y),
            lambda y, number=number: UFUNCS[name](number, y),
        ]
        for call in calls:
            try:
                wanted = call(a)
            except (TypeError, OverflowError) as error:
                with pytest.raises(OverflowError if isinstance(error, OverflowError) else TypeError):
                    call(x)
                continue
            same(call(x), wanted, memory)


@pytest.mark.parametrize("dtype", ELEMENT_TYPES, ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_numpys_numbers_have_a_type(name: str, dtype: np.dtype) -> None:
    a = small((2, 5), dtype)
    for number, memory in itertools.product([np.float32(1.1), np.float64(1.1), np.int32(7), np.int64(-7)], MEMORY):
        x = cukern.asarray(a, memory=memory)
        same(BINARY[name](x, number), BINARY[name](a, number), memory)
        same(BINARY[name](number, x), BINARY[name](number, a), memory)


def test_integers_beyond_the_element_type() -> None:
    x = cukern.ones(3, "int32")
    for call in (lambda: x + 2**31, lambda: 2**40 * x, lambda: np.add(x, -(2**31) - 1)):
        with pytest.raises(OverflowError, match="out of bounds for int32"):
            call()
    with pytest.raises(OverflowError):
        cukern.ones(3, "int64") + 2**63
    same(x + (2**31 - 1), np.ones(3, np.int32) + (2**31 - 1))  # wraps


# --- in place ---


@pytest.mark.parametrize("a_type", ELEMENT_TYPES, ids=str)
@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_casts_same_kind(name: str, a_type: np.dtype) -> None:
    for b_type, memory in itertools.product(ELEMENT_TYPES, MEMORY):
        a, b = small((3, 4), a_type), small((3, 4), b_type) + 5
        x = before = cukern.asarray(a, memory=memory)
        y = cukern.asarray(b, memory=memory)
        try:
            wanted = IN_PLACE[name](a.copy(), b)
        except TypeError:  # NumPy's UFuncTypeError
            with pytest.raises(TypeError, match="same_kind"):
                IN_PLACE[name](x, y)
            same(x, a)
            continue
        assert IN_PLACE[name](x, y) is before
        same(x, wanted, memory)


@pytest.mark.parametrize("memory", MEMORY)
def test_in_place_of_views_and_numbers(memory: str) -> None:
    a = small((6, 8), np.float32)
    x = cukern.asarray(a, memory=memory)
    x[1:] += 2
    a[1:] += 2
    x[::-2, 1] *= np.float32(3)
    a[::-2, 1] *= np.float32(3)
    x[...] -= 0.5
    a[...] -= 0.5
    x[0] /= x[1]
    a[0] /= a[1]
    view = x.T
    view += 1
    a += 1
    x += x
    a += a
    x *= x[:]
    a *= a[:]
    x[2] += cukern.ones(1, "float32", memory=memory)
    a[2] += 1
    same(x, a, memory)
    with pytest.raises(TypeError, match="complex"):
        x += np.float64(1) * cukern.ones(8, "int32", memory=memory) * 1j  # type: ignore[operator]


def test_in_place_with_a_float_keeps_integers_whole() -> None:
    x = cukern.arange(4)
    for change in IN_PLACE.values():
        with pytest.raises(TypeError, match="same_kind"):
            change(x, 1.5)
    with pytest.raises(TypeError, match="same_kind"):
        x /= 2
    same(x, np.arange(4))


@pytest.mark.parametrize(
    "views",
    [
        (np.s_[1:], np.s_[:-1]),
        (np.s_[:-1], np.s_[1:]),
        (np.s_[::-1], np.s_[:]),
        (np.s_[:6], np.s_[::2]),
        (np.s_[:], np.s_[3]),
        (np.s_[:], np.s_[3:4]),
    ],
    ids=str,
)
def test_partial_overlap_is_refused(views: tuple[Any, Any]) -> None:
    for memory in MEMORY:
        x = cukern.asarray(np.arange(12.0), memory=memory)
        for change in IN_PLACE.values():
            with pytest.raises(ValueError, match="out overlaps"):
                change(x[views[0]], x[views[1]])
        with pytest.raises(ValueError, match="out overlaps"):
            cukern.add(x[views[1]], 0 * x[views[0]], out=x[views[0]])
        same(x, np.arange(12.0))
    if memory != "device":
        with pytest.raises(ValueError, match="out overlaps"):
            cukern.add(np.asarray(x)[1:], 1, out=x[:-1])


def test_shapes_in_place() -> None:
    x = cukern.ones(3)
    with pytest.raises(ValueError, match=r"\(3,\).*\(2, 3\)"):
        x += cukern.ones((2, 3))
    with pytest.raises(ValueError, match="broadcast"):
        x += cukern.ones(4)
    same(x, np.ones(3))


# --- products ---


@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("b_type", PRODUCT_TYPES, ids=str)
@pytest.mark.parametrize("a_type", PRODUCT_TYPES, ids=str)
def test_products(a_type: np.dtype, b_type: np.dtype, memory: str) -> None:
    a, b = small((7, 5), a_type), small((5, 9), b_type)
    x, y = cukern.asarray(a, memory=memory), cukern.asarray(b, memory=memory)
    same(x @ y, a @ b, memory)
    same(np.matmul(x, y), a @ b, memory)
    same(cukern.matmul(x, y), a @ b, memory)
    same(y.T @ x.T, b.T @ a.T, memory)
    same(x[::2, ::-1] @ y[:, 1::3], a[::2, ::-1] @ b[:, 1::3], memory)
    same(x @ y[:, 0], a @ b[:, 0], memory)
    same(x[0] @ y, a[0] @ b, memory)
    same(x[0] @ y[:, 0], np.asarray(a[0] @ b[:, 0]), memory)
    same(x[:, :0] @ y[:0], a[:, :0] @ b[:0], memory)
    same(x[:0] @ y, a[:0] @ b, memory)


@pytest.mark.parametrize("dtype", PRODUCT_TYPES, ids=str)
def test_large_products(dtype: np.dtype) -> None:
    n = 40 if SMALL else 150
    a, b = small((n, n + 3), dtype), small((n + 3, n - 5), dtype)
    for memory in MEMORY:
        same(cukern.asarray(a, memory=memory) @ cukern.asarray(b, memory=memory), a @ b, memory)


@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("dtype", OTHER_TYPES)
def test_products_of_other_element_types(dtype: str, memory: str) -> None:
    x = cukern.ones((2, 3, 4), dtype, memory=memory)
    for result in (x @ x.mT, np.matmul(x, x[0].T), cukern.matmul(x, x.mT)):
        assert type(result) is cukern.Array and result.shape[-2:] == (3, 3) and result.dtype == x.dtype
        assert result.astype("float32").tolist() == np.full(result.shape, 1 if dtype == "bool" else 4).tolist()
    assert (x[0] @ cukern.ones(4, "float32", memory=memory)).tolist() == [4, 4, 4]


@pytest.mark.parametrize("memory", MEMORY)
def test_products_with_host_arrays(memory: str) -> None:
    a, b = small((4, 5), np.float64), small((5, 4), np.float64)
    x = cukern.asarray(a, memory=memory)
    if memory == "device":
        for call in (lambda: x @ b, lambda: b @ x, lambda: np.matmul(x, b)):
            with pytest.raises(TypeError, match="asarray"):
                call()
    else:
        same(x @ b, a @ b, memory)
        result = b @ x
        assert_same(result, b @ a)


@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("dtype", PRODUCT_TYPES, ids=str)
def test_products_in_place(dtype: np.dtype, memory: str) -> None:
    a, b = small((4, 4), dtype), small((4, 4), dtype).T
    x = before = cukern.asarray(a, memory=memory)
    x @= cukern.asarray(b, memory=memory)
    assert x is before
    same(x, a @ b, memory)
    x @= x
    same(x, (a @ b) @ (a @ b), memory)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (np.ones((2, 2), np.int32), np.full((2, 2), 0.5)),
        (np.ones((2, 2), np.int32), np.ones((2, 2), np.int64)),
        (np.ones((2, 2), np.float32), np.ones((2, 2))),
        (np.ones((2, 2)), np.ones((2, 1))),
        (np.ones((2, 2)), np.ones(2)),
        (np.ones((2, 3)), np.ones((3, 1))),
        (np.ones((2, 3)), np.ones((3, 2))),
        (np.ones((2, 2)), np.ones((3, 2))),
        (np.ones(2), np.ones((2, 2))),
        (np.ones(2), np.ones((2, 1))),
    ],
    ids=lambda x: f"{x.dtype}{x.shape}",
)
def test_products_in_place_that_do_not_fit(left: np.ndarray, right: np.ndarray) -> None:
    x, y = cukern.asarray(left), cukern.asarray(right)
    wanted = left.copy()
    try:
        wanted @= right
    except (TypeError, ValueError) as error:
        with pytest.raises(TypeError if isinstance(error, TypeError) else ValueError):
            x @= y
        same(x, left)
    else:
        x @= y
        same(x, wanted)


def test_products_that_do_not_fit() -> None:
    x = cukern.ones((2, 3))
    for call in (lambda: x @ x, lambda: x @ cukern.ones(2), lambda: x @ cukern.ones((3, 2, 2)), lambda: x @ x[0, 0]):
        with pytest.raises(ValueError, match="matmul: "):
            call()
    for call in (lambda: x @ 2, lambda: 2 @ x):  # type: ignore[operator]
        with pytest.raises((TypeError, ValueError)):
            call()


# --- mixing ---


@pytest.mark.parametrize("name", BINARY)
def test_device_memory_does_not_mix_with_host_arrays(name: str) -> None:
    x, host = cukern.ones(3), np.ones(3)
    out = np.zeros(3)
    calls: list[Callable[[], object]] = [
        lambda: BINARY[name](x, host),
        lambda: BINARY[name](host, x),
        lambda: UFUNCS[name](x, host),
        lambda: UFUNCS[name](host, x),
        lambda: FUNCTIONS[name](host, x),
        lambda: FUNCTIONS[name](memoryview(host), x),
        lambda: BINARY[name](x, memoryview(host)),
        lambda: FUNCTIONS[name](x, x, out=out),
        lambda: UFUNCS[name](x, x, out=out),
        lambda: UFUNCS[name](host, host, out=x),
        lambda: IN_PLACE[name + "="](x, host),
        lambda: IN_PLACE[name + "="](host, x),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="asarray"):
            call()
    same(x, np.ones(3))
    assert host.tolist() == [1, 1, 1]
    assert not out.any()


@pytest.mark.parametrize("memory", HOST_MEMORY)
@pytest.mark.parametrize("name", BINARY)
def test_host_visible_memory_mixes_with_host_arrays(name: str, memory: str) -> None:
    a, b = small((3, 4), np.float32), small((3, 4), np.float64) + 7
    x = cukern.asarray(a, memory=memory)
    wanted = BINARY[name](a, b)
    same(BINARY[name](x, b), wanted, memory)  # the first array decides
    same(UFUNCS[name](x, b), wanted, memory)
    same(BINARY[name](x, memoryview(b)), wanted, memory)
    for result in (BINARY[name](b, x), UFUNCS[name](b, x), FUNCTIONS[name](b, x)):
        assert_same(result, BINARY[name](b, a))
    assert_same(FUNCTIONS[name](memoryview(b), x), BINARY[name](b, a))
    host = b.copy()
    assert IN_PLACE[name + "="](host, x) is host
    assert_same(host, BINARY[name](b, a))
    y = cukern.asarray(b, memory=memory)
    assert IN_PLACE[name + "="](y, a) is y
    same(y, BINARY[name](b, a), memory)
    same(BINARY[name](2, x), BINARY[name](2, a), memory)
    same(BINARY[name](x[0, 0], b), BINARY[name](np.asarray(a[0, 0]), b), memory)


@pytest.mark.parametrize("b_memory", MEMORY)
@pytest.mark.parametrize("a_memory", MEMORY)
def test_memory_of_the_result(a_memory: str, b_memory: str) -> None:
    x, y = cukern.ones((3, 3), memory=a_memory), cukern.ones((3, 3), memory=b_memory)
    wanted = min((a_memory, b_memory), key=MEMORY.index)
    for call in (*BINARY.values(), *UFUNCS.values(), *FUNCTIONS.values()):
        assert call(x, y).memory == wanted
    same(x + y, np.full((3, 3), 2.0), wanted)
    x += y
    same(x, np.full((3, 3), 2.0), a_memory)


# --- out ---


@pytest.mark.parametrize("out_memory", MEMORY)
@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("name", [*BINARY, "@"])
def test_out_is_an_array(name: str, memory: str, out_memory: str) -> None:
    a, b = small((4, 4), np.float32), small((4, 4), np.float32) + 9
    x, y = cukern.asarray(a, memory=memory), cukern.asarray(b, memory=memory)
    wanted = UFUNCS[name](a, b)
    for call in (UFUNCS[name], FUNCTIONS[name]):
        out = cukern.zeros((4, 4), "float32", memory=out_memory)
        assert call(x, y, out=out) is out
        same(out, wanted, out_memory)
    out = cukern.zeros((8, 8), memory=out_memory)
    view = out[::2, 1::2]  # strides, and a wider type
    assert UFUNCS[name](x, y, out=(view,)) is view
    same(view, wanted.astype(np.float64))
    assert cukern.asnumpy(out)[1::2].any() is np.False_
    out = cukern.zeros((4, 4), "float32", memory=out_memory)
    assert UFUNCS[name](x, y, out) is out  # by position
    same(out, wanted, out_memory)


@pytest.mark.parametrize("memory", HOST_MEMORY)
@pytest.mark.parametrize("name", [*BINARY, "@"])
def test_out_is_on_the_host(name: str, memory: str) -> None:
    a, b = small((4, 4), np.float64), small((4, 4), np.float64) + 9
    x, y = cukern.asarray(a, memory=memory), cukern.asarray(b, memory=memory)
    wanted = UFUNCS[name](a, b)
    for call in (UFUNCS[name], FUNCTIONS[name]):
        out = np.zeros((4, 4))
        assert call(x, y, out=out) is out
        assert_same(out, wanted)
        large = np.zeros((8, 8))
        call(x, y, out=large.T[::2, ::-2])
        assert_same(large.T[::2, ::-2].copy(), wanted)
        target = cukern.zeros((4, 4), memory=memory)
        assert call(a, b, out=target) is target
        same(target, wanted, memory)
    buffer = memoryview(bytearray(128)).cast("d", (4, 4))
    assert FUNCTIONS[name](x, y, out=buffer) is buffer
    assert_same(np.array(buffer), wanted)


@pytest.mark.parametrize("name", BINARY)
def test_out_that_does_not_fit(name: str) -> None:
    x = cukern.ones((2, 3))
    for out, error, message in (
        (cukern.zeros(3), ValueError, r"\(3,\).*\(2, 3\)"),
        (cukern.zeros((2, 3), "int64"), TypeError, "int64.*same_kind"),
        (cukern.zeros((2, 3), "int8"), TypeError, "int8"),
        (cukern.broadcast_to(cukern.zeros(3), (2, 3)), ValueError, "read-only"),
        ([0.0] * 6, TypeError, "list"),
    ):
        for call in (FUNCTIONS[name], UFUNCS[name]):
            with pytest.raises(error, match=message if isinstance(out, cukern.Array) else None):
                call(x, x, out=out)
    same(UFUNCS[name](x, 2, out=None), UFUNCS[name](np.ones((2, 3)), 2))


# --- what is refused ---


@pytest.mark.parametrize(
    "other", [None, "x", [1, 2, 3], (1, 2, 3), {}, object(), np.str_("x"), {1}], ids=lambda x: type(x).__name__
)
@pytest.mark.parametrize("name", [*BINARY, "@"])
def test_what_is_no_operand(name: str, other: Any) -> None:
    x = cukern.ones(3)
    operate = {**BINARY, "@": operator.matmul}[name]
    with pytest.raises(TypeError):
        operate(x, other)
    with pytest.raises(TypeError):
        operate(other, x)
    with pytest.raises(TypeError):
        FUNCTIONS[name](x, other)


class Other:
    """An object with its own operators."""

    def __radd__(self, other: object) -> str:
        return "radd"

    def __rmatmul__(self, other: object) -> str:
        return "rmatmul"

    def __add__(self, other: object) -> str:
        return "add"


def test_other_objects_own_operators_are_asked() -> None:
    x = cukern.ones(3)
    assert x + Other() == "radd"
    assert x @ Other() == "rmatmul"
    assert Other() + x == "add"
    with pytest.raises(TypeError):
        x - Other()


@pytest.mark.parametrize(
    "call",
    [
        lambda x: np.cbrt(x),
        lambda x: np.fmod(x, 2),
        lambda x: np.spacing(x),
        lambda x: np.fmax(x, x),
        pytest.param(lambda x: np.add.reduce(x), marks=LEAKS_IN_NUMPY),
        pytest.param(lambda x: np.add.accumulate(x), marks=LEAKS_IN_NUMPY),
        lambda x: np.add.outer(x, x),
        lambda x: np.multiply.at(x, [0], 1),
        lambda x: np.add(x, x, dtype="float32"),
        lambda x: np.add(x, x, where=np.array([True, False, True])),
        lambda x: np.divmod(x, x),
        lambda x: np.vecdot(x, x),
    ],
)
def test_numpys_functions_without_a_kernel(call: Callable[[Any], object]) -> None:
    for memory in MEMORY:
        with pytest.raises(TypeError):
            call(cukern.ones(3, memory=memory))


def test_scale_and_chains_of_operations() -> None:
    a = small((5, 6), np.float64)
    for memory in MEMORY:
        x = cukern.asarray(a, memory=memory)
        same(cukern.scale(x, 2.5), a * 2.5, memory)
        same((x + x) * 2 - x / 4 + (x @ x.T)[:, :1], (a + a) * 2 - a / 4 + (a @ a.T)[:, :1], memory)


@pytest.mark.parametrize("memory", HOST_MEMORY)
def test_results_are_right_as_soon_as_the_host_looks(memory: str) -> None:
    a = np.arange(10_000.0)
    x = cukern.asarray(a, memory=memory)
    seen = memoryview(x)
    out = cukern.empty(10_000, memory=memory)
    for i in range(20):
        x += 1
        assert seen[9_999] == a[9_999] + i + 1
        cukern.multiply(x, 2, out=out)
        with memoryview(out) as view:
            assert view[0] == 2 * seen[0] == 2 * (i + 1)
        assert np.asarray(x + x)[5] == 2 * seen[5]


@pytest.mark.parametrize("memory", MEMORY)
def test_results_on_a_stream(memory: str) -> None:
    a = small((50, 50), np.float64)
    with cukern.Stream():
        x = cukern.asarray(a, memory=memory)
        y = x + x
        same(y, a + a, memory)
    y += x  # on another one
    same(y, a + a + a, memory)
    same(cukern.add(x, y, stream=cukern.Stream()), 4 * a, memory)
