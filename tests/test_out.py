"""`out`: shape, element type, read-only memory, and every kind of overlap."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from arrays import assert_same
from cases import each
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import ELEMENT_TYPES

import cukern

pytestmark = pytest.mark.usefixtures("backend")
SAME = "it may be exactly that array, or share no memory with it"


@each("types", list(itertools.product(ELEMENT_TYPES, repeat=2)))
def test_casting_is_same_kind(types) -> None:
    result, target = types
    a = np.array([0, 1, 2, 100], result)
    out = np.full(4, 7, target)
    before = out.tolist()
    if np.can_cast(result, target, "same_kind"):
        assert cukern.add(a, a, out=out) is out
        assert_same(out, (a + a).astype(target))
    else:
        message = f"add: the result is of element type {result}, which out's {target} cannot take"
        with pytest.raises(TypeError, match=message):
            cukern.add(a, a, out=out)
        assert out.tolist() == before


@pytest.mark.parametrize("shape", [(4,), (3, 1), (1, 3), (), (3, 3)], ids=str)
def test_shape_is_exact(shape) -> None:
    out = np.zeros(shape)
    with pytest.raises(ValueError, match=r"add: out has shape .*; the result has \(3,\)"):
        cukern.add(np.ones(3), np.ones(3), out=out)
    assert not out.any()


def test_broadcasting_never_reaches_out() -> None:
    with pytest.raises(ValueError, match=r"out has shape \(3,\); the result has \(2, 3\)"):
        cukern.add(np.ones((2, 3)), np.ones(3), out=np.ones(3))


def test_read_only() -> None:
    out = np.zeros(3)
    out.flags.writeable = False
    for target in (out, memoryview(out), memoryview(bytes(24)).cast("d")):
        with pytest.raises(ValueError, match="add: out is read-only"):
            cukern.add(np.ones(3), 1, out=target)
    assert not out.any()


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ([0.0] * 3, "out is of type list; expected an array or a writable object with the buffer protocol"),
        (1.0, "out is of type float; expected"),
        (np.float64(1), "out is of type float64; expected"),
        (np.zeros(3, ">f8"), "out is byte-swapped"),
        (np.zeros(3, np.int16), "the result is of element type float64, which out's int16 cannot take"),
        (bytearray(24), r"the result is of element type float64, which out's uint8 cannot take.*memoryview\(x\).cast"),
        ((np.zeros(3),), "out is of type tuple"),
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_refused_out(out, message: str) -> None:
    with pytest.raises(TypeError, match=f"add: {message}"):
        cukern.add(np.ones(3), 1, out=out)


@pytest.mark.parametrize("dtype", ELEMENT_TYPES, ids=str)
def test_exactly_an_operand(dtype: np.dtype) -> None:
    for view in (lambda x: x, lambda x: x[::-1], lambda x: x[:, ::2], lambda x: x.T, lambda x: x[1:, 1:]):
        for which in range(2):
            base = np.arange(24).astype(dtype).reshape(4, 6)
            operands = [view(np.ones((4, 6), dtype)), view(np.ones((4, 6), dtype))]
            operands[which] = view(base)
            name = "add" if dtype.kind == "b" else "subtract"
            wanted = getattr(np, name)(*operands)
            out = view(base)  # another object over the same memory
            assert getattr(cukern, name)(*operands, out=out) is out
            assert_same(np.array(out), wanted)
            untouched = np.arange(24).astype(dtype).reshape(4, 6)
            view(untouched)[...] = wanted
            assert_same(base, untouched)


def test_both_operands_and_out_are_one() -> None:
    a = np.arange(5.0)
    cukern.multiply(a, a, out=a)
    assert a.tolist() == [0, 1, 4, 9, 16]


def test_same_memory_as_another_element_type() -> None:
    a = np.arange(6, dtype=np.int32)
    out = a.view(np.float32)
    cukern.divide(a, 2, out=out)  # same places, same sizes
    assert out.tolist() == [0, 0.5, 1, 1.5, 2, 2.5]
    a = np.arange(6, dtype=np.int32)
    with pytest.raises(ValueError, match=f"out overlaps a; {SAME}"):
        cukern.divide(a[:3], 2, out=a.view(np.float64))


@pytest.mark.parametrize(
    "views",
    [
        (np.s_[1:], np.s_[:-1]),
        (np.s_[:-1], np.s_[1:]),
        (np.s_[:-2], np.s_[2:]),
        (np.s_[::-1], np.s_[:]),
        (np.s_[:6], np.s_[::2]),
    ],
    ids=str,
)
def test_partial_overlap_is_refused(views) -> None:
    a = np.arange(12.0)
    for order in (views, views[::-1]):
        with pytest.raises(ValueError, match=f"add: out overlaps a; {SAME}"):
            cukern.add(a[order[0]], 1, out=a[order[1]])
        with pytest.raises(ValueError, match=f"add: out overlaps b; {SAME}"):
            cukern.add(1, a[order[0]], out=a[order[1]])
    assert a.tolist() == list(range(12))


def test_overlap_through_another_object() -> None:
    a = np.arange(12.0)
    with pytest.raises(ValueError, match="out overlaps a"):
        cukern.add(memoryview(a)[1:], 1, out=a[:-1])
    cukern.add(memoryview(a), 1, out=a)
    assert a.tolist() == list(range(1, 13))


def test_broadcast_operand_inside_out() -> None:
    a = np.ones((3, 4))
    with pytest.raises(ValueError, match="add: out overlaps b"):
        cukern.add(a, a[0], out=a)
    with pytest.raises(ValueError, match="add: out overlaps b"):
        cukern.add(a, a[1:2, 2].reshape(()), out=a)  # its value would be read once, but the rule is one


def test_interleaved_memory_does_not_overlap() -> None:
    a = np.arange(24.0).reshape(4, 6)
    cukern.add(a[:, ::2], a[:, ::2], out=a[:, 1::2])
    assert_same(a[:, 1::2].copy(), 2 * a[:, ::2])
    cukern.add(a[:, :3], 1, out=a[:, 3:])
    assert_same(a[:, 3:].copy(), a[:, :3] + 1)
    pairs = np.zeros(5, [("x", np.float64), ("y", np.float64)])
    cukern.add(pairs["x"], 1, out=pairs["y"])
    assert pairs["x"].tolist() == [0] * 5
    assert pairs["y"].tolist() == [1] * 5


@pytest.mark.parametrize(
    "views",
    [
        lambda a: (a[::2], a[1::2]),
        lambda a: (a.view(np.complex64).real, a.view(np.complex64).imag),
        lambda a: (a[: 3 * 10**5].reshape(500, 200, 3)[..., 0], a[: 3 * 10**5].reshape(500, 200, 3)[..., 2]),
        lambda a: (a[: 10**6].reshape(1000, 1000)[:, ::2], a[: 10**6].reshape(1000, 1000)[:, 1::2]),
        lambda a: (a[: 10**6].reshape(1000, 1000)[:500], a[: 10**6].reshape(1000, 1000)[500:]),
        lambda a: (a[: 10**6].reshape(1000, 1000)[::-2, :500], a[: 10**6].reshape(1000, 1000)[::2, 500:]),
    ],
)
def test_interleaved_memory_of_large_arrays(views) -> None:
    a, out = views(np.zeros(1 << 20, np.float32))
    assert not np.shares_memory(a, out)
    assert cukern.add(a, 1, out=out) is out
    assert (out == 1).all()


@pytest.mark.parametrize("strides", [(0, 8), (8, 8), (8, 0), (16, 8)], ids=str)
def test_out_that_overlaps_itself(strides) -> None:
    out = np.lib.stride_tricks.as_strided(np.zeros(40), (3, 4), strides)
    with pytest.raises(ValueError, match="add: elements of out overlap each other"):
        cukern.add(np.ones((3, 4)), 1, out=out)


def test_empty_arrays_overlap_nothing() -> None:
    a = np.arange(4.0)
    assert cukern.add(a[:0], 1, out=a[:0]).shape == (0,)
    assert cukern.add(a[:0], a[2:2], out=a[1:1]).shape == (0,)


def may_fold(out: np.ndarray) -> bool:
    """Whether the test of `out` against itself may be cautious: a stride within the reach of smaller ones."""
    reach = out.itemsize
    for stride, n in sorted((abs(s), n) for n, s in zip(out.shape, out.strides, strict=True) if n > 1):
        if stride < reach:
            return True
        reach += (n - 1) * stride
    return False


def identical(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays are the same elements in the same order."""
    strides = zip(a.shape, a.strides, b.strides, strict=True) if a.shape == b.shape else [(2, 0, 1)]
    return a.ctypes.data == b.ctypes.data and all(n < 2 or x == y for n, x, y in strides)


@st.composite
def views(draw: st.DrawFn, base: np.ndarray) -> np.ndarray:
    """Draw any view of an array."""
    shape = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    strides = [draw(st.integers(-7, 7)) for _ in shape]
    spans = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    low, high = sum(min(0, span) for span in spans), sum(max(0, span) for span in spans)
    start = draw(st.integers(-low, base.size - 1 - high))
    return np.lib.stride_tricks.as_strided(base[start:], shape, [base.itemsize * s for s in strides])


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_overlap_is_exact(data: st.DataObject) -> None:
    """Whether `out` is refused is just what numpy.shares_memory says, for random views of one array."""
    base = np.zeros(60, np.int32)
    a, out = data.draw(views(base)), data.draw(views(base))
    try:
        if np.broadcast_shapes(a.shape, out.shape) != out.shape:
            return
    except ValueError:
        return
    other = np.ones(out.shape, np.int32)
    try:
        cukern.add(a, other, out=out)
        refused = False
    except ValueError:
        refused = True
    offsets = [sum(i * s for i, s in zip(index, out.strides, strict=True)) for index in np.ndindex(out.shape)]
    if len(set(offsets)) < len(offsets):
        assert refused
    elif refused:
        assert may_fold(out) or (np.shares_memory(a, out) and not identical(a, out))
    else:
        assert identical(a, out) or not np.shares_memory(a, out)
