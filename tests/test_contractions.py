"""tensordot and einsum: values, shapes, kinds, errors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from arrays import random_array
from cases import each
from oracles import ELEMENT_TYPES

import cukern

pytestmark = pytest.mark.usefixtures("backend")
EXACT = [dtype for dtype in ELEMENT_TYPES if dtype.kind in "iu"]


def integers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str = "f8") -> np.ndarray:
    """Return values whose sums of products every type holds exactly."""
    return rng.integers(0, 3, shape).astype(dtype)


@pytest.mark.parametrize("dtype", ELEMENT_TYPES, ids=str)
def test_tensordot(dtype: np.dtype, rng: np.random.Generator) -> None:
    a, b = integers(rng, (2, 3, 4), dtype), integers(rng, (3, 4, 5), dtype)
    for x, y, axes in [
        (a, b, 2),
        (a, b.transpose(1, 0, 2), 1),
        (a, b, ([1, 2], [0, 1])),
        (a, b, ([2, 1], [1, 0])),
        (a, b, ([-1], [-2])),
        (a, b, (1, 0)),
        (a[0], b[0, 0], 0),
        (a, a, ([0, 1, 2], [0, 1, 2])),
        (a[:0], b, 2),
        (a[:, :0], b[:0], 2),
    ]:
        wanted = np.tensordot(x, y, axes)
        actual = cukern.tensordot(x, y, axes=axes)
        assert isinstance(actual, np.ndarray) and actual.dtype == wanted.dtype
        np.testing.assert_array_equal(actual, wanted)
        out = np.empty(wanted.shape, dtype)
        assert cukern.tensordot(x, y, axes=axes, out=out) is out
        np.testing.assert_array_equal(out, wanted)
        array = cukern.tensordot(cukern.asarray(x), cukern.asarray(y), axes=axes)
        assert type(array) is cukern.Array
        np.testing.assert_array_equal(cukern.asnumpy(array), wanted)


SUBSCRIPTS = [
    "ij,jk->ik",
    "ij,jk",
    "ij,kj->ki",
    "bij,bjk->bik",
    "bij,jk->bik",
    "bij,bkj->bki",
    "i,i->",
    "i,i",
    "i,j->ij",
    "i,j->ji",
    "ij,ij->ij",
    "ij,ij->",
    "ij,ij->i",
    "ijk,kl->jl",
    "ijk,ljm->mil",
    "ij,k->ik",
    "ij,k->",
    "...ij,...jk->...ik",
    "...ij,jk->...ik",
    "b...,b...->...",
    "...i,...i",
    "ba,ac",
]


@pytest.mark.parametrize("subscripts", SUBSCRIPTS)
@each("dtype", ["?", "i1", "i8", "f2", "f4", "c16"])
def test_einsum(subscripts: str, dtype: str, rng: np.random.Generator) -> None:
    lengths = dict(zip("abcijklm", (2, 3, 4, 2, 3, 4, 5, 2), strict=True))
    first, second = subscripts.partition("->")[0].split(",")
    shape = lambda text: tuple(lengths[c] for c in text.replace("...", "mk"))  # noqa: E731
    for short in (False, True):
        x, y = shape(first), shape(second)
        if short:  # lengths of 1 repeat
            x = tuple(1 if i % 2 else n for i, n in enumerate(x))
        a, b = integers(rng, x, dtype), integers(rng, y, dtype)
        wanted = np.einsum(subscripts, a, b)
        actual = cukern.einsum(subscripts, a, b)
        assert actual.dtype == dtype and actual.shape == wanted.shape
        np.testing.assert_array_equal(actual, wanted)
        out = np.empty(wanted.shape, dtype)
        assert cukern.einsum(subscripts, a, b, out=out) is out
        np.testing.assert_array_equal(out, wanted)
        array = cukern.einsum(subscripts, cukern.asarray(a), cukern.asarray(b))
        assert type(array) is cukern.Array and array.dtype == dtype
        np.testing.assert_array_equal(cukern.asnumpy(array), wanted)


def test_every_placing_of_three_letters(rng: np.random.Generator) -> None:
    lengths = {"i": 2, "j": 3, "k": 4}
    names = ["".join(p) for n in range(4) for p in itertools.permutations("ijk", n)]
    for first, second in itertools.product(names, names):
        a, b = (integers(rng, tuple(lengths[c] for c in text)) for text in (first, second))
        for n in range(3):
            output = "".join(sorted(set(first + second))[: n + 1])
            text = f"{first},{second}->{output}"
            np.testing.assert_array_equal(cukern.einsum(text, a, b), np.einsum(text, a, b), err_msg=text)


@pytest.mark.parametrize("dtype", EXACT, ids=str)
def test_integers_wrap(dtype: np.dtype, rng: np.random.Generator) -> None:
    a, b = random_array(rng, (3, 4, 5), dtype), random_array(rng, (5, 4, 2), dtype)
    np.testing.assert_array_equal(cukern.einsum("ijk,kjl->li", a, b), np.einsum("ijk,kjl->li", a, b))
    np.testing.assert_array_equal(cukern.tensordot(a, b, axes=([2, 1], [0, 1])), np.tensordot(a, b, ([2, 1], [0, 1])))


def test_one_operand_alone_is_summed_in_more_bits() -> None:
    a, b = np.ones((300, 300), np.float16), np.full(2, 0.001, np.float16)
    result = cukern.einsum("ij,k->k", a, b)
    assert result.dtype == np.float16
    np.testing.assert_allclose(result, 90, rtol=2.0**-9)
    array = cukern.einsum("ij,k->k", cukern.asarray(a).astype("bfloat16"), cukern.asarray(b).astype("bfloat16"))
    assert array.dtype == "bfloat16"


def test_buffers_and_numbers_of_numpy(rng: np.random.Generator) -> None:
    a = integers(rng, (3, 4))
    np.testing.assert_array_equal(cukern.tensordot(memoryview(a), a.T, axes=np.int64(1)), a @ a.T)
    np.testing.assert_array_equal(cukern.tensordot(a, a, axes=(np.int64(1), 1)), a @ a.T)
    np.testing.assert_array_equal(cukern.einsum("ij,kj", memoryview(a), memoryview(a)), a @ a.T)


def test_tensordot_refuses() -> None:
    a = np.ones((2, 3))
    for axes in (3, -1, ([0], [0, 1]), ([0, 0], [0, 0]), ([2], [0]), 1):
        with pytest.raises(ValueError, match="tensordot"):
            cukern.tensordot(a, a, axes=axes)
    with pytest.raises(TypeError, match="tensordot: b is of type list; pass an array"):
        cukern.tensordot(a, [1.0])
    with pytest.raises(ValueError, match=r"tensordot: out has shape \(3,\); the result has \(2, 2\)"):
        cukern.tensordot(a, a.T, axes=1, out=np.empty(3))


@pytest.mark.parametrize(
    ("subscripts", "message"),
    [
        ("ij", "expected the subscripts of two arrays"),
        ("ij,jk,kl", "expected the subscripts of two arrays"),
        ("ijk,jk", "a has 2 dimensions"),
        ("i,jk", "a has 2 dimensions"),
        ("ii,jk", "a letter stands twice"),
        ("ij,jk->ii", "a letter stands twice"),
        ("ij,jk->il", "'l' of the result is in neither array"),
        ("ij,ij->", "'i' has length 2 in a and 3 in b"),
        ("i1,1k", "'1' is no letter"),
        ("...j,jk->k", "the result has no ellipsis"),
    ],
)
def test_einsum_refuses(subscripts: str, message: str) -> None:
    with pytest.raises(ValueError, match="einsum.*" + message):
        cukern.einsum(subscripts, np.ones((2, 3)), np.ones((3, 4)))
    with pytest.raises(TypeError, match="einsum: a is of type float; pass an array"):
        cukern.einsum("i,i", 1.0, np.ones(3))
