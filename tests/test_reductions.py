"""Reductions: values, element types, empty arrays, results of every kind; test_reduction_layouts.py has layouts."""

from __future__ import annotations

import itertools
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from arrays import assert_same, random_array, special_values
from cases import each
from conftest import SMALL, takes_few
from hypothesis import given
from hypothesis import strategies as st
from oracles import ELEMENT_TYPES, ORACLES, assert_reduced
from reduction_tools import INDICES, REDUCTIONS, values
from test_properties import PROFILE, views

import cukern

pytestmark = pytest.mark.usefixtures("backend")


@pytest.mark.parametrize("name", REDUCTIONS)
@each("dtype", ELEMENT_TYPES)
def test_sizes(name: str, dtype: np.dtype, rng: np.random.Generator) -> None:
    """Sizes at which kernels change their ways: rows, columns, aligned and not, one result of many blocks."""
    shapes = [(3000,), (2, 4099), (300, 16), (5, 64, 32), (3, 65, 33), (90, 515)]
    if not takes_few():
        shapes += [(300_001,), (3, 129), (1000, 3), (4096, 8), (16, 300), (700, 515)]
    for shape in shapes:
        a = values(rng, name, shape, dtype)
        for axis in (None, *range(len(shape))):
            assert_reduced(getattr(cukern, name)(a, axis=axis), name, a, axis=axis)
        assert_reduced(getattr(cukern, name)(a.T, axis=0), name, a.T, axis=0)
        assert_reduced(getattr(cukern, name)(a[..., 1:]), name, a[..., 1:])


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("to", ["uint64", "uint32"])
def test_floats_that_no_int64_holds(to: str, dtype: str) -> None:
    """They are converted to uint64, and then added up or multiplied."""
    for shape in ((2,), (40, 2), (2, 40), (3, 2, 30)):
        a = np.ones(shape, dtype)
        axis = shape.index(2)
        np.moveaxis(a, axis, 0)[0] = 1.5 * 2.0**63
        for name, want in (("sum", 3 * 2**62 + 1), ("prod", 3 * 2**62)):
            got = cukern.asnumpy(getattr(cukern, name)(a, axis=axis, dtype=to))
            assert got.dtype == to and np.all(got == want % 2 ** np.iinfo(to).bits), (name, shape)


@pytest.mark.parametrize("name", ["any", "all", "max", "min", "argmax", "argmin"])
def test_bytes_that_are_true(name: str) -> None:
    """A bool is true by any byte but 0, also where it is compared."""
    for shape in ((48,), (3, 5), (40, 33), (2, 2000)):
        count = int(np.prod(shape))
        a = np.zeros(count, np.uint8)
        a[count // 2 :] = np.arange(count - count // 2) % 255 + 1
        x = cukern.asarray(a.view(np.bool_).reshape(shape), copy=True)
        truth = (a != 0).reshape(shape)
        for axis in (None, *range(len(shape))):
            for own, want in ((x, truth), (x[..., 1:], truth[..., 1:])):
                assert_reduced(cukern.asnumpy(getattr(cukern, name)(own, axis=axis)), name, want, axis=axis)


@pytest.mark.parametrize("dtype", [t for t in ELEMENT_TYPES if t.kind in "fc"], ids=str)
@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin", "sum", "mean", "prod", "any", "all"])
def test_special_values(name: str, dtype: np.dtype, rng: np.random.Generator) -> None:
    special = special_values(dtype)
    if name in ("sum", "mean", "prod"):  # of which no partial result overflows or vanishes in one order alone
        special = special[~np.isfinite(special) | np.isin(abs(special), (0, 1))]
    for n in (1, 5, 40, 1000):
        for _ in range(10):
            a = rng.choice(special, (n, 3))
            for axis in (0, 1, None):
                actual, own = getattr(cukern, name)(a, axis=axis), None
                with np.errstate(all="ignore"):
                    own = np.asarray(ORACLES[name](a, axis=axis))
                if name in ("sum", "mean", "prod") and dtype.kind == "c":
                    continue  # of NaN and infinities only what the order of terms leaves
                if name in ("sum", "mean", "prod"):
                    np.testing.assert_array_equal(np.isnan(actual), np.isnan(own))
                    continue
                np.testing.assert_array_equal(actual, own)


@pytest.mark.parametrize("name", INDICES)
def test_the_first_of_equals(name: str, rng: np.random.Generator) -> None:
    for dtype in ELEMENT_TYPES:
        for shape in ((5000,), (40, 300), (300, 40)):
            a = rng.integers(0, 2, shape).astype(dtype)
            for axis in (None, *range(len(shape))):
                assert_reduced(getattr(cukern, name)(a, axis=axis), name, a, axis=axis)
                assert_reduced(getattr(cukern, name)(a[::-1], axis=axis), name, a[::-1], axis=axis)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_nothing(name: str) -> None:
    for shape in ((0,), (3, 0), (0, 3), (2, 0, 4), (0, 0)):
        for dtype in ("float32", "int8", "bool", "complex64"):
            a = np.zeros(shape, dtype)
            for axis in (None, *range(len(shape))):
                try:
                    with np.errstate(all="ignore"), warnings.catch_warnings():
                        warnings.simplefilter("ignore")  # of means of nothing
                        own = np.asarray(ORACLES[name](a, axis=axis))
                except ValueError:
                    with pytest.raises(ValueError, match=f"{name}: there are no elements"):
                        getattr(cukern, name)(a, axis=axis)
                    continue
                assert_same(getattr(cukern, name)(a, axis=axis), own)


@pytest.mark.parametrize("name", ["sum", "prod", "mean"])
def test_dtype(name: str, rng: np.random.Generator) -> None:
    for source, target in itertools.product(ELEMENT_TYPES, ELEMENT_TYPES):
        if target.kind == "b" or (source.kind == "c" and target.kind != "c"):
            continue
        if source.kind in "f" and target.kind in "iu":
            continue  # of negative and large ones the processor decides
        a = values(rng, name, (9, 40), source)
        if name == "prod" and target.kind in "fc":
            a = (a % 3 + 1).astype(source) if source.kind in "iu" else a
        if name == "mean" and target.kind in "iu":
            with pytest.raises(TypeError, match="mean: dtype is"):
                cukern.mean(a, dtype=target)
            continue
        assert_reduced(getattr(cukern, name)(a, axis=1, dtype=target), name, a, axis=1, dtype=target)
        assert_reduced(getattr(cukern, name)(a, dtype=target.name), name, a, dtype=target)


@pytest.mark.parametrize("dtype", ELEMENT_TYPES, ids=str)
@pytest.mark.parametrize("name", ["var", "std"])
def test_corrections(name: str, dtype: np.dtype, rng: np.random.Generator) -> None:
    a = random_array(rng, (30, 70), dtype)
    a = (a % 100 if dtype.kind in "iu" else a).astype(dtype)
    for axis, correction, keepdims in itertools.product((None, 0, 1, (0, 1)), (0, 1, 2.5), (False, True)):
        actual = getattr(cukern, name)(a, axis=axis, correction=correction, keepdims=keepdims)
        own = np.asarray(getattr(np, name)(a, axis=axis, ddof=correction, keepdims=keepdims))
        wide = np.complex128 if dtype.kind == "c" else np.longdouble
        exact = np.asarray(getattr(np, name)(a.astype(wide), axis=axis, ddof=correction, keepdims=keepdims))
        assert (actual.dtype, actual.shape) == (own.dtype, own.shape)
        np.testing.assert_allclose(actual.astype(float), exact.astype(float), rtol=40 * np.finfo(own.dtype).eps)
    with np.errstate(all="ignore"):
        assert np.isnan(getattr(cukern, name)(a[:1], axis=0, correction=1)).all()


@pytest.mark.parametrize("dtype", [np.dtype(t) for t in ("float32", "float64", "complex64")], ids=str)
def test_variance_far_from_zero(dtype: np.dtype, rng: np.random.Generator) -> None:
    """Elements 10**4 deviations from zero have a variance as accurate as others, also after one of another kind."""
    for shape in ((3000,), (4, 5000), (5000, 4), (3, 70, 33)):
        a = (random_array(rng, shape, np.dtype(np.float64)) + 1e4).astype(dtype)
        if dtype.kind == "c":
            a = a + random_array(rng, shape, np.dtype(np.float64)).astype(dtype) * 1j - 1e4j
        for first in (None, 0):
            if first is not None:
                a[tuple(n // 2 for n in shape)] = first
            for axis in (None, *range(len(shape))):
                for x in (a, a[::-1]):
                    assert_reduced(cukern.var(x, axis=axis), "var", x, axis=axis)


@pytest.mark.parametrize("dtype", ["bool", "int8", "int16", "int32", "uint8", "uint16", "uint32"])
def test_variance_of_integers(dtype: str, on_gpu: bool, rng: np.random.Generator) -> None:
    """On the GPU sums are exact: 4 units come from the last steps, twice that from the square of a root.

    Those are 1 of each sum, which the difference makes 3 at most, as one sum is at most half of the other, and 1 of the
    factor and the product.
    """
    least, most = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    bound = 8 * np.finfo(float).eps if on_gpu else 40 * np.finfo(float).eps
    for count in (1, 3000, 15_000):
        ends = rng.choice(np.array([least, most]), count)
        near = np.where(np.arange(count) == 7, most - 1, most)
        for numbers in (rng.integers(least, most, count, endpoint=True), ends, near, np.full(count, least)):
            a = numbers.astype(dtype)
            exact = [int(x) for x in a]
            want = float(Fraction(count * sum(x * x for x in exact) - sum(exact) ** 2, count**2))
            got = [cukern.var(a), cukern.var(a[::-1]), cukern.var(np.stack([a, a], 1)[:, 1]), cukern.std(a) ** 2]
            got += list(cukern.var(np.stack([a, a[::-1]]), axis=1)) + list(cukern.var(np.stack([a, a], 1), axis=0))
            np.testing.assert_allclose([float(x) for x in got], want, rtol=bound)


@pytest.mark.parametrize("dtype", ["int8", "uint16"])
def test_variance_of_many_short_integers(dtype: str, on_gpu: bool, rng: np.random.Generator) -> None:
    """Of more than the GPU converts at once."""
    count = 200_000 if SMALL else 9_000_001
    a = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, count, dtype, endpoint=True)
    wide = a.astype(np.int64)
    squares = count * int(np.sum(wide * wide)) - int(np.sum(wide)) ** 2
    bound = 8 * np.finfo(float).eps if on_gpu else 40 * np.finfo(float).eps
    np.testing.assert_allclose(float(cukern.var(a)), float(Fraction(squares, count**2)), rtol=bound)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"])
def test_variance_of_what_is_not_finite(dtype: str) -> None:
    for shape in ((1,), (7,), (3000,), (3, 40)):
        for bad in (np.inf, -np.inf, np.nan):
            for place in (0, -1):
                x = np.ones(shape, "float32")
                x.reshape(-1)[place] = bad
                for name in ("var", "std"):
                    result = getattr(cukern, name)(cukern.asarray(x).astype(dtype))
                    assert np.isnan(float(result.astype("float64")))


@pytest.mark.parametrize("name", REDUCTIONS)
def test_out(name: str, rng: np.random.Generator) -> None:
    function = getattr(cukern, name)
    a = random_array(rng, (6, 50), np.dtype(np.float32))
    own = function(a, axis=1)
    out = np.zeros((12,), own.dtype)[::2]
    assert function(a, axis=1, out=out) is out
    assert_same(out.copy(), own)
    wide = np.zeros(6, np.complex128)
    assert function(a, axis=1, out=wide) is wide
    assert_same(wide, own.astype(np.complex128))
    kept = np.zeros((6, 1), own.dtype)
    assert function(a, axis=1, keepdims=True, out=kept) is kept
    assert_same(kept[:, 0], own)
    with pytest.raises(ValueError, match="out has shape"):
        function(a, axis=1, out=np.zeros(5, own.dtype))
    with pytest.raises(ValueError, match="overlaps"):
        function(a, axis=1, out=a[:, 0])
    if own.dtype.kind == "f":
        with pytest.raises(TypeError, match="cannot take"):
            function(a, axis=1, out=np.zeros(6, np.int32))


@pytest.mark.parametrize("name", REDUCTIONS)
def test_arrays_and_methods(name: str, rng: np.random.Generator) -> None:
    for dtype in ("float32", "int16", "bool", "complex64", "float16"):
        a = values(rng, name, (12, 33), np.dtype(dtype))
        for memory in ("device", "managed", "pinned"):
            x = cukern.asarray(a, memory=memory)
            for axis in (None, 0, 1):
                own = getattr(cukern, name)(a, axis=axis)
                for result in (
                    getattr(cukern, name)(x, axis=axis),
                    getattr(x, name)(axis),
                    getattr(x, name)(axis=axis),
                ):
                    assert type(result) is cukern.Array
                    assert result.memory == memory
                    np.testing.assert_allclose(cukern.asnumpy(result), own, rtol=1e-2 if dtype == "float16" else 1e-4)
            assert getattr(x.T, name)(axis=0, keepdims=True).shape == (1, 12)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_numbers(name: str) -> None:
    for number in (3, -2.5, True, 1 - 2j, np.float32(1.5), np.int8(-3)):
        own = np.asarray(ORACLES[name](number))
        assert_same(getattr(cukern, name)(number), own)


def test_bad_arguments() -> None:
    a = np.ones((2, 3))
    for axis in (2, -3, (0, 2)):
        with pytest.raises(ValueError, match="sum: axis"):
            cukern.sum(a, axis=axis)
    with pytest.raises(ValueError, match="sum: "):
        cukern.sum(a, axis=(0, 0))
    for name in ("var", "std", "mean"):
        with pytest.raises(ValueError, match=f"{name}: axis 9 is out of bounds for 2 dimensions"):
            getattr(cukern, name)(a, axis=9)
    with pytest.raises(TypeError, match="argmax: axis is"):
        cukern.argmax(a, axis=(0,))
    with pytest.raises(TypeError, match="sum: a is"):
        cukern.sum([1.0])
    with pytest.raises(TypeError):
        cukern.sum(a, 0, "int8")
    with pytest.raises(TypeError):
        cukern.max(a, dtype="int8")


def test_accuracy_of_long_sums(rng: np.random.Generator) -> None:
    n = 10_000 if SMALL else 4_000_000
    a = rng.random(n).astype(np.float32)
    for x in (a, np.ascontiguousarray(np.broadcast_to(a[: n // 4, None], (n // 4, 4)))):
        assert_reduced(cukern.sum(x), "sum", x)
        assert_reduced(cukern.sum(x, axis=0), "sum", x, axis=0)
        again = cukern.sum(x)
        for _ in range(3):
            assert cukern.sum(x) == again


def test_large_results_of_small_integers() -> None:
    n = 1000 if SMALL else 3_000_000
    for dtype in ("int8", "uint8", "int16", "bool"):
        a = np.full(n, np.ones(1, dtype)[0] if dtype == "bool" else np.iinfo(dtype).max, dtype)
        assert_reduced(cukern.sum(a), "sum", a)
        assert_reduced(cukern.sum(-a if dtype == "int8" else a), "sum", -a if dtype == "int8" else a)


@PROFILE
@given(data=st.data())
def test_properties(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(REDUCTIONS))
    shape = tuple(data.draw(st.lists(st.integers(1, 6), max_size=6)))
    dtype = data.draw(
        st.sampled_from([t for t in ELEMENT_TYPES if name not in ("sum", "mean", "prod") or t.kind in "iub"])
    )
    a = data.draw(views(shape, dtype))
    axis: Any = None
    if shape and data.draw(st.booleans()):
        axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    if shape and axis is not None and name not in INDICES and data.draw(st.booleans()):
        axis = tuple(sorted(set(data.draw(st.lists(st.integers(0, len(shape) - 1))))))
    keepdims = data.draw(st.booleans())
    assert_reduced(getattr(cukern, name)(a, axis=axis, keepdims=keepdims), name, a, axis=axis, keepdims=keepdims)


# --- complex numbers that begin at a part of one ---


# --- more results than a grid has blocks ---


def test_the_oracle_takes_an_overflow_of_parts_alone() -> None:
    overflow = np.asarray(np.float32(np.inf))
    assert_reduced(overflow, "prod", np.repeat(np.float32([4, 0.25]), 100))
    with pytest.raises(AssertionError):
        assert_reduced(overflow, "prod", np.repeat(np.float32([4, 0.25]), 20))
    assert_reduced(np.asarray(np.float32(0)), "prod", np.repeat(np.float32([4, 0.25, 0]), 20))


def test_a_value_is_computed_in_the_type_asked_for() -> None:
    # A zero-dimensional array of the host's is a value, which takes a way of its own.
    for value in (0.1, np.pi):
        out, wanted = np.empty(()), np.empty(())
        for function in ("sum", "prod"):
            getattr(cukern, function)(np.array(value), dtype="float32", out=out)
            getattr(cukern, function)(np.array([value]), dtype="float32", out=wanted)
            assert out == wanted == np.float32(value)
    whole = np.empty((), "int64")
    assert cukern.sum(np.array(300, "int16"), dtype="int8", out=whole) == 44
    assert cukern.any(np.array(0.5), out=whole) == 1
    assert cukern.argmax(np.array(7.0), out=whole) == 0


@pytest.mark.gpu
@pytest.mark.unsanitized  # kernels over billions of elements crawl under a sanitizer
@pytest.mark.parametrize("backend", ["cuda"], indirect=True)
def test_more_elements_of_a_result_than_32_bits_count(backend: str, rng: np.random.Generator) -> None:
    """A row that is broadcast, so that it takes no memory."""
    count = (1 << 21) + 1
    row = rng.integers(-9, 9, 2048)
    for name in ("int8", "float32"):
        x = cukern.broadcast_to(cukern.asarray(row.astype(name), copy=True), (count, row.size))
        assert int(cukern.max(x)) == row.max()
        assert int(cukern.argmin(x)) == row.argmin()
        assert float(cukern.sum(x, dtype="float64")) == count * int(row.sum())  # exact: of small whole numbers
        assert float(cukern.mean(x, dtype="float64")) == pytest.approx(row.mean(), rel=1e-12)
        np.testing.assert_array_equal(cukern.asnumpy(cukern.sum(x, axis=0, dtype="float64")), count * row)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes_of_complex_numbers(name: str, dtype: str, rng: np.random.Generator) -> None:
    """Many equal real parts, numbers that only imaginary parts tell apart, and a NaN in either part anywhere."""
    for count in [1, 2, 63, 64, 65, 127, 128, 200, 511, 512, 513, 700, *([] if SMALL else [70_000])]:
        for special in (None, complex(np.nan, 1), complex(1, np.nan), complex(np.inf, -1), complex(-np.inf, np.inf)):
            x = (rng.integers(-3, 4, count) + 1j * rng.integers(-3, 4, count)).astype(dtype)
            if special is not None:
                x[int(rng.integers(count))] = special
            for view in (x, x[::-1], np.sort(x), np.repeat(x, 2)[::2]):
                found, wanted = getattr(cukern, name)(view), getattr(np, name)(view)
                assert found == wanted or (np.isnan(found) and np.isnan(wanted)), (count, special)
