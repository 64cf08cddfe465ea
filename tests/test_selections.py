"""where, axpy and clip: values, element types, broadcasting, layouts, numbers, results of every kind."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from arrays import assert_same, layouts, random_array, special_values
from hypothesis import given
from hypothesis import strategies as st
from oracles import ELEMENT_TYPES
from test_properties import PROFILE, views

import cukern

pytestmark = pytest.mark.usefixtures("backend")


def axpy(a: Any, x: Any, y: Any) -> np.ndarray:
    """Return a * x + y computed in the promoted type, to which all operands are converted first."""
    with np.errstate(all="ignore"):
        dtype = np.result_type(a, x, y)
        if dtype == np.float16:  # computed in float32, rounded once
            return (np.float32(a) * np.float32(x) + np.float32(y)).astype(dtype)
        return np.asarray(np.asarray(a).astype(dtype) * np.asarray(x).astype(dtype) + np.asarray(y).astype(dtype))


def close(actual: np.ndarray, wanted: np.ndarray) -> None:
    if wanted.dtype.kind == "c":  # NumPy's own loops may fuse: 8 epsilon of the modulus of the terms
        assert actual.dtype == wanted.dtype
        np.testing.assert_allclose(actual, wanted, rtol=1e-3 if wanted.dtype == np.complex64 else 1e-12, atol=1e-5)
    else:
        assert_same(actual, wanted)


@pytest.mark.parametrize("dtype", ELEMENT_TYPES, ids=str)
def test_where(dtype: np.dtype, rng: np.random.Generator) -> None:
    for other, condition in itertools.product(ELEMENT_TYPES, ("bool", "float32", "int8", dtype)):
        for shape in ((7,), (5003,), (3, 4, 5)):
            c = (random_array(rng, shape, np.dtype(condition)) * (rng.random(shape) < 0.5)).astype(condition)
            a, b = random_array(rng, shape, dtype), random_array(rng, shape, other)
            assert_same(cukern.where(c, a, b), np.where(c, a, b))


@pytest.mark.parametrize("dtype", ELEMENT_TYPES, ids=str)
def test_where_of_unaligned_arrays(dtype: np.dtype, rng: np.random.Generator) -> None:
    """Arrays that begin in the middle of a vector, each elsewhere, and numbers."""
    n = 5000
    c, a, b = rng.random(n) < 0.5, random_array(rng, (n,), dtype), random_array(rng, (n,), dtype)
    condition, x, y, out = (cukern.asarray(each) for each in (c, a, b, np.zeros(n, dtype)))
    for starts in (
        (0, 0, 0, 0),
        (1, 0, 0, 0),
        (4, 0, 0, 0),
        (0, 1, 0, 0),
        (0, 0, 2, 0),
        (0, 0, 0, 3),
        (16, 16, 16, 16),
    ):
        p, q, r, s = (slice(start, start + n - 21) for start in starts)
        wanted = np.where(c[p], a[q], b[r])
        cukern.where(condition[p], x[q], y[r], out=out[s])
        assert_same(cukern.asnumpy(out[s]), wanted)
        cukern.where(condition[p], x[q], dtype.type(1), out=out[s])
        assert_same(cukern.asnumpy(out[s]), np.where(c[p], a[q], dtype.type(1)))
        cukern.where(condition[p], dtype.type(0), y[r], out=out[s])
        assert_same(cukern.asnumpy(out[s]), np.where(c[p], dtype.type(0), b[r]))
        integers = cukern.asarray(c.astype(np.uint8) * 2)
        assert_same(cukern.asnumpy(cukern.where(integers[p], x[q], y[r])), wanted)


def test_conditions_are_looked_at_in_their_own_type() -> None:
    """What is not zero holds, though it be zero in the type of the elements; a NaN holds."""
    for condition in (np.array([1e-300, 0, -0.0, np.nan]), np.array([256, 0, 1 << 40, 1]), np.array([1e-300j, 0])):
        for dtype in ("float32", "float16", "int8", "uint8", "bool", "complex64"):
            a, b = np.ones(condition.shape, dtype), np.zeros(condition.shape, dtype)
            assert_same(cukern.where(condition, a, b), np.where(condition, a, b))
            assert_same(cukern.where(condition[0], a, b), np.where(condition[0], a, b))
            with np.errstate(all="ignore"):
                own = condition.astype(np.complex64) if condition.dtype.kind == "c" else condition
            assert_same(cukern.where(own[::-1], a[::-1], b), np.where(own[::-1], a[::-1], b))


@pytest.mark.parametrize(
    "shapes",
    [((3, 4), (4,), (1,)), ((4,), (3, 1), ()), ((), (2, 3), (3,)), ((0,), (1,), ()), ((2, 1), (1, 3), (2, 3))],
    ids=str,
)
def test_broadcasting(shapes: Any, rng: np.random.Generator) -> None:
    c, a, b = (random_array(rng, shape, np.dtype(np.float32)) for shape in shapes)
    assert_same(cukern.where(c > 0, a, b), np.where(c > 0, a, b))
    assert_same(cukern.clip(a, b, 0.5), np.clip(a, b, np.float32(0.5)) + np.zeros_like(b))
    assert_same(cukern.axpy(2.5, a, b), axpy(np.float32(2.5), a, b))


def test_shapes_that_do_not_broadcast() -> None:
    with pytest.raises(ValueError, match=r"where: shapes do not broadcast: condition is \(3,\), a is \(4,\)"):
        cukern.where(np.ones(3), np.ones(4), np.ones(3))
    with pytest.raises(ValueError, match=r"where: shapes do not broadcast: a is \(2, 3\), b is \(4,\)"):
        cukern.where(np.ones((2, 1)), np.ones(3), np.ones(4))


@pytest.mark.parametrize("dtype", ELEMENT_TYPES, ids=str)
def test_axpy(dtype: np.dtype, rng: np.random.Generator) -> None:
    factor: Any = True if dtype.kind == "b" else 3
    for other in ELEMENT_TYPES:
        for n in (1, 7, 5003):
            x, y = random_array(rng, (n,), dtype), random_array(rng, (n,), other)
            close(cukern.axpy(factor, x, y), axpy(np.result_type(x, y).type(factor), x, y))
    x = random_array(rng, (9,), dtype)
    close(cukern.axpy(np.float64(0.1), x, x), axpy(np.float64(0.1), x, x))
    special = special_values(dtype)
    if dtype.kind != "c":
        close(cukern.axpy(factor, special, special[::-1]), axpy(dtype.type(factor), special, special[::-1]))


@pytest.mark.parametrize("dtype", [t for t in ELEMENT_TYPES if t.kind != "c"], ids=str)
def test_clip(dtype: np.dtype, rng: np.random.Generator) -> None:
    a, low, high = (random_array(rng, (6, 7), dtype) for _ in range(3))
    for least, most in ((low, high), (low, None), (None, high), (low[0], high[:, :1]), (high, low)):
        assert_same(cukern.clip(a, least, most), np.clip(a, least, most))
    if dtype.kind != "b":
        assert_same(cukern.clip(a, 1, 5), np.clip(a, 1, 5))
        assert_same(cukern.clip(a, min=3), np.clip(a, 3, None))
    if dtype.kind == "f":
        special = special_values(dtype)
        np.testing.assert_array_equal(cukern.clip(special, -1, 1), np.clip(special, -1, 1))
    assert_same(cukern.clip(a), a)


@pytest.mark.parametrize("bounds", [(-1, 1), (-1, None), (None, 1), (np.zeros(5), np.ones((4, 1)))], ids=str)
def test_clip_is_one_launch(bounds: tuple[Any, Any], rng: np.random.Generator) -> None:
    values = rng.standard_normal((4, 5))
    own = [cukern.asarray(b, copy=True) if isinstance(b, np.ndarray) else b for b in bounds]
    x, out = cukern.asarray(values, copy=True), cukern.empty((4, 5), "float64")
    before = cukern.counters()
    assert cukern.clip(x, *own, out=out) is out
    after = cukern.counters()
    assert after["launches"] - before["launches"] == 1
    assert after["driver_allocations"] + after["free_list_hits"] == (
        before["driver_allocations"] + before["free_list_hits"]
    )
    np.testing.assert_array_equal(cukern.asnumpy(out), np.clip(values, *bounds))


def test_layouts(rng: np.random.Generator) -> None:
    shape, dtype = (3, 4, 5), np.dtype(np.float32)
    for c, a, b in itertools.product(
        layouts(rng, shape, np.dtype(bool)).values(), *[layouts(rng, shape, dtype).values()] * 2
    ):
        assert_same(cukern.where(c, a, b), np.where(c, a, b))
    for x, y in itertools.product(layouts(rng, shape, dtype).values(), repeat=2):
        close(cukern.axpy(0.3, x, y), axpy(np.float32(0.3), x, y))


def test_the_values_decide_the_kind_of_the_result() -> None:
    condition, own = np.array([True, False]), cukern.ones(2, memory="pinned")
    assert type(cukern.where(condition, own, 0.0)) is cukern.Array
    assert type(cukern.where(condition, 0.0, own)) is cukern.Array
    assert type(cukern.where(own > 0, condition, False)) is np.ndarray
    assert type(cukern.where(own > 0, 1.0, 2.0)) is cukern.Array
    assert type(cukern.axpy(2.0, np.ones(2), own)) is np.ndarray


def test_numbers_and_out(rng: np.random.Generator) -> None:
    c = rng.random((4, 5)) < 0.5
    a = random_array(rng, (4, 5), np.dtype(np.float32))
    for x, y in ((1, 2), (1, 2.5), (a, 0), (0.5, a), (True, a), (1j, a), (np.float64(2), a), (1, True)):
        assert_same(cukern.where(c, x, y), np.where(c, x, y))
    assert_same(cukern.where(True, a, 0), np.where(True, a, 0))
    assert_same(cukern.where(2, 3, 4), np.where(2, 3, 4))
    own = a.copy()
    assert cukern.where(c, a, -1, out=a) is a
    assert_same(a, np.where(c, own, np.float32(-1)))
    assert cukern.axpy(2, a, a, out=a) is a
    assert cukern.clip(a, -1, 1, out=a) is a
    assert abs(a).max() <= 1
    wide = np.zeros((5, 4)).T
    assert cukern.where(c, a, 0, out=wide) is wide
    assert_same(wide.copy(), np.where(c, a, 0).astype(float))
    with pytest.raises(TypeError, match="cannot take"):
        cukern.where(c, a, 0, out=np.zeros((4, 5), int))
    with pytest.raises(ValueError, match="overlaps"):
        cukern.where(c[:, 1:], a[:, 1:], 0, out=a[:, :-1])
    with pytest.raises(TypeError, match="axpy: a is an array"):
        cukern.axpy(a, a, a)
    with pytest.raises(OverflowError):
        cukern.where(c, np.int8(1), 1000)


@pytest.mark.parametrize("memory", ["device", "managed", "pinned"])
def test_arrays(memory: str, rng: np.random.Generator) -> None:
    c, a, b = rng.random((4, 5)) < 0.5, *(random_array(rng, (4, 5), np.dtype(np.float64)) for _ in range(2))
    x, y, z = (cukern.asarray(value, memory=memory) for value in (c, a, b))
    for result, wanted in (
        (cukern.where(x, y, z), np.where(c, a, b)),
        (cukern.where(x, 1.5, z), np.where(c, 1.5, b)),
        (cukern.where(y > z, y, z), np.maximum(a, b)),
        (cukern.axpy(2.5, y, z.T.T), 2.5 * a + b),
        (cukern.clip(y, z, 1), np.clip(a, b, 1)),
        (cukern.where(x, 1, 2), np.where(c, 1, 2)),
    ):
        assert type(result) is cukern.Array
        assert result.memory == memory
        assert_same(cukern.asnumpy(result), wanted)


@PROFILE
@given(data=st.data())
def test_properties(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(0, 5), max_size=5)))
    types = [data.draw(st.sampled_from(ELEMENT_TYPES)) for _ in range(3)]
    c, a, b = (data.draw(views(shape, dtype)) for dtype in types)
    wanted = np.where(c, a, b)
    actual = cukern.where(c, a, b)
    assert actual.dtype == wanted.dtype
    np.testing.assert_array_equal(actual, wanted)
