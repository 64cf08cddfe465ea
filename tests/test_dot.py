"""dot and vecdot: values, element types, shapes, results of every kind."""

from __future__ import annotations

import numpy as np
import pytest
from arrays import random_array
from oracles import ELEMENT_TYPES, product_bound

import cukern

pytestmark = pytest.mark.usefixtures("backend")
SHAPES = [((5,), (5,)), ((300,), (300,)), ((3, 4), (3, 4)), ((2, 3, 4), (4,)), ((4,), (2, 3, 4)), ((2, 1, 6), (5, 6))]
SHAPES += [((0,), (0,)), ((3, 0), (3, 0)), ((0, 3), (3,))]


def assert_products(actual: object, wanted: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """Of n terms n roundings, in float32 for 16 bits, and that of the result; complex products take some more."""
    result = cukern.asnumpy(actual)
    dtype = np.result_type(a, b)
    assert result.dtype == dtype
    assert result.shape == wanted.shape
    if dtype.kind in "biu":
        np.testing.assert_array_equal(result, wanted)
        return
    n = a.shape[-1] + 4
    size = np.sum(np.abs(a.astype("complex256")) * np.abs(b.astype("complex256")), axis=-1).real
    eps = np.finfo("float32" if dtype.itemsize == 2 else dtype).eps
    bound = n * eps * size + np.finfo(dtype).eps * np.abs(wanted) + np.finfo(dtype).smallest_subnormal
    assert np.all(np.abs(result.astype(wanted.dtype) - wanted) <= bound)


@pytest.mark.parametrize("dtype", ELEMENT_TYPES, ids=str)
def test_vecdot(dtype: np.dtype, rng: np.random.Generator) -> None:
    for x, y in SHAPES:
        a, b = random_array(rng, x, dtype), random_array(rng, y, dtype)
        if dtype == "float16":
            a, b = a % 8, b % 8
        wide = {"f": "float128", "c": "complex256"}.get(dtype.kind, dtype)
        wanted = np.vecdot(a.astype(wide), b.astype(wide))
        assert_products(cukern.vecdot(a, b), wanted, a, b)
        result = cukern.vecdot(cukern.asarray(a), cukern.asarray(b))
        assert type(result) is cukern.Array
        assert_products(result, wanted, a, b)


def test_vecdot_of_two_types(rng: np.random.Generator) -> None:
    a, b = rng.integers(-9, 9, (3, 5)).astype(np.int8), rng.integers(0, 9, 5).astype(np.uint16)
    assert_products(cukern.vecdot(a, b), np.vecdot(a, b), a, b)
    z = random_array(rng, (3, 5), np.dtype("complex64"))
    np.testing.assert_allclose(cukern.vecdot(z, b), np.vecdot(z, b), rtol=1e-5)
    np.testing.assert_allclose(cukern.vecdot(b, z), np.vecdot(b, z), rtol=1e-5)


def test_vecdot_along_other_dimensions(rng: np.random.Generator) -> None:
    a, b = rng.integers(0, 9, (3, 4, 5)), rng.integers(0, 9, (3, 4, 5))
    for axis in range(-3, 3):
        np.testing.assert_array_equal(cukern.vecdot(a, b, axis=axis), np.vecdot(a, b, axis=axis))
    np.testing.assert_array_equal(cukern.vecdot(a, b[0], axis=-2), np.vecdot(a, b[0], axis=-2))


def test_vecdot_refuses() -> None:
    a = np.ones((2, 3))
    for b, axis in ((np.ones(2), -1), (np.ones((2, 1)), -1), (a, 2), (a, -3), (np.ones(3), 0), (1.0, -1)):
        with pytest.raises(ValueError, match="vecdot"):
            cukern.vecdot(a, b, axis=axis)
    with pytest.raises(ValueError, match=r"vecdot: axis is 2; expected -2 to 1$"):
        cukern.vecdot(a, a, axis=2)
    with pytest.raises(ValueError, match="vecdot: axis is 0; expected -1 to -1, counted from the end"):
        cukern.vecdot(a, a[0], axis=0)
    with pytest.raises(TypeError):
        cukern.vecdot([1.0], [2.0])


@pytest.mark.parametrize("dtype", ELEMENT_TYPES, ids=str)
def test_dot(dtype: np.dtype, rng: np.random.Generator) -> None:
    for x, y in (((6,), (6,)), ((3, 4), (4,)), ((2, 3, 4), (4,)), ((0,), (0,))):
        a, b = random_array(rng, x, dtype), random_array(rng, y, dtype)
        if dtype == "float16":
            a, b = a % 8, b % 8
        wide = {"f": "float128", "c": "complex256"}.get(dtype.kind, dtype)
        assert_products(cukern.dot(a, b), np.asarray(np.dot(a.astype(wide), b.astype(wide))), a, b)
    a = random_array(rng, (3, 4), dtype)
    np.testing.assert_array_equal(cukern.dot(a, 2), cukern.multiply(a, 2))
    np.testing.assert_array_equal(cukern.dot(a[0, 0], a), cukern.multiply(a[0, 0], a))


def test_dot_of_matrices(rng: np.random.Generator) -> None:
    a, b = rng.random((3, 4)), rng.random((4, 5))
    assert np.all(np.abs(cukern.dot(a, b) - a @ b) <= product_bound(a, b, np.dtype("float64")))
    assert np.all(np.abs(cukern.dot(a[0], b) - a[0] @ b) <= product_bound(a[:1], b, np.dtype("float64"))[0])
    for x, y in ((a, a), (a, np.ones(3)), (np.ones((2, 2, 3)), np.ones((2, 2)))):
        with pytest.raises(ValueError, match=r"dot: (inner dimensions must match|along the dimension)"):
            cukern.dot(x, y)


@pytest.mark.parametrize("dtype", ELEMENT_TYPES, ids=str)
def test_dot_of_more_dimensions(dtype: np.dtype, rng: np.random.Generator) -> None:
    shapes = [
        ((2, 3, 4), (4, 5)),
        ((3, 4), (2, 4, 5)),
        ((2, 3, 4), (5, 4, 2)),
        ((4,), (2, 3, 4, 5)),
        ((2, 2, 3, 4), (3, 2, 4, 1)),
    ]
    for x, y in [*shapes, ((2, 0, 4), (3, 4, 5)), ((2, 3, 0), (2, 0, 5))]:
        a, b = random_array(rng, x, dtype), random_array(rng, y, dtype)
        if dtype == "float16":
            a, b = a % 8, b % 8
        wide = {"f": "float128", "c": "complex256"}.get(dtype.kind, dtype)
        wanted = np.dot(a.astype(wide), b.astype(wide))
        result = cukern.dot(a, b)
        assert (result.dtype, result.shape) == (dtype, wanted.shape)
        out = np.empty(wanted.shape[::-1], dtype).T
        assert cukern.dot(a[..., ::-1], b[..., ::-1, :], out=out) is out
        for actual in (result, out):
            if dtype.kind in "biu":
                np.testing.assert_array_equal(actual, wanted)
            else:
                rows = a.reshape(int(np.prod(x[:-1])), x[-1])
                columns = np.moveaxis(b, -2, 0).reshape(y[-2], int(np.prod(y[:-2])) * y[-1])
                bound = product_bound(rows, columns, dtype).reshape(wanted.shape)
                assert (abs(actual.astype(wide) - wanted) <= bound).all()


def test_dot_has_no_more_dimensions_than_arrays() -> None:
    a = cukern.ones((1,) * 40)
    with pytest.raises(ValueError, match="dot: the product has too many dimensions"):
        cukern.dot(a, a)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int64", "bool"])
def test_out(dtype: str, rng: np.random.Generator) -> None:
    a = random_array(rng, (3, 4), np.dtype(dtype))
    for function in (cukern.vecdot, cukern.dot):
        b = a if function is cukern.vecdot else a[0].copy()
        for source, other, out in (
            (a, b, np.empty(3, dtype)),
            (cukern.asarray(a), cukern.asarray(b), cukern.empty(3, dtype=dtype)),
        ):
            assert function(source, other, out=out) is out
            np.testing.assert_array_equal(cukern.asnumpy(out), cukern.asnumpy(function(source, other)))
        with pytest.raises(ValueError, match="out has shape"):
            function(a, b, out=np.empty(4, dtype))


def test_bfloat16() -> None:
    a = cukern.asarray(np.arange(20), dtype="bfloat16")
    for result in (cukern.vecdot(a, a), cukern.dot(a, a)):
        assert result.dtype == "bfloat16"
        assert float(result.astype("float32")) == 2464.0  # 2470 to 8 bits
