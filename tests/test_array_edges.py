"""What Array refuses, and the sizes at the edges."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from array_tools import MEMORY, NAMES, numbers, pair, same, same_view

import cukern

pytestmark = pytest.mark.usefixtures("backend")


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


@pytest.mark.provokes_cuda_error
def test_copies_of_huge_broadcast_views() -> None:
    with pytest.raises(MemoryError):
        cukern.broadcast_to(cukern.ones(1, "int8"), (2**31, 2**31)).copy()


def test_huge_broadcast_views() -> None:
    one = cukern.ones(1, "int8")
    wide = cukern.broadcast_to(one, (2**31, 2**31))
    assert (wide.shape, wide.strides, wide.size, wide.nbytes) == ((2**31, 2**31), (0, 0), 2**62, 2**62)
    assert wide[2**31 - 1, -(2**31)].item() == 1
    same(wide[:: 2**30, 5], np.ones(2, np.int8))
    same(wide[2**30 : 2**30 + 3, -2:], np.ones((3, 2), np.int8))
    assert wide.reshape(2**62).shape == wide.ravel().shape == (2**62,)
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
