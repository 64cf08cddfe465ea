"""cumulative_sum and cumulative_prod: values, axes, layouts, element types, results of every kind."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from arrays import layouts, random_array
from conftest import SMALL, takes_few
from hypothesis import given
from hypothesis import strategies as st
from oracles import ELEMENT_TYPES, assert_equal
from test_properties import PROFILE, views

import cukern
from cukern import _cukern

NAMES = ["cumulative_sum", "cumulative_prod"]
pytestmark = pytest.mark.usefixtures("backend")


def elements(rng: np.random.Generator, name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return random elements, of products such that they neither vanish nor overflow."""
    a = random_array(rng, shape, dtype)
    return a if name == "cumulative_sum" or dtype.kind not in "fc" else np.exp(0.01 * a).astype(dtype)


def assert_running(actual: Any, name: str, a: np.ndarray, axis: int, initial: bool = False, dtype: Any = None) -> None:
    """Compare with NumPy's in a wider type; of n terms n - 1 roundings are allowed, and that of the result."""
    product = name == "cumulative_prod"
    result = cukern.asnumpy(actual)
    own = np.dtype(dtype or {"b": "int64", "i": "int64", "u": "uint64"}.get(a.dtype.kind, a.dtype))
    assert result.dtype == own
    if own.kind in "biu":
        wanted = getattr(np, name)(a, axis=axis, dtype=own, include_initial=initial)
        assert_equal(result, wanted)
        return
    wide = np.dtype("complex256" if own.kind == "c" else "float128")
    wanted = getattr(np, name)(a, axis=axis, dtype=wide, include_initial=initial)
    assert result.shape == wanted.shape
    if wanted.size == 0:
        return
    terms = np.arange(wanted.shape[axis]).reshape([-1 if d == axis % a.ndim else 1 for d in range(a.ndim)])
    computed = np.finfo("float32" if own.itemsize == 2 else own).eps
    double = np.dtype("complex128" if own.kind == "c" else "float64")  # whose moduli are good for a bound, and fast
    size = np.abs((wanted if product else a).astype(double))
    if not product:
        size = np.cumulative_sum(size, axis=axis, include_initial=initial)
    # A complex product takes some roundings a term.
    bound = terms * computed * size * (3 if product and own.kind == "c" else 1) + np.finfo(own).eps * np.abs(wanted)
    bound = bound + np.finfo(own).smallest_subnormal
    assert np.all(np.abs(result.astype(wide) - wanted) <= bound)


@pytest.mark.parametrize("dtype", ELEMENT_TYPES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_axes(name: str, dtype: np.dtype, rng: np.random.Generator) -> None:
    for shape in ((1,), (7,), (3, 1), (4, 33), (5, 6, 7), (2, 3, 4, 5), (0,), (3, 0), (0, 3)):
        a = elements(rng, name, shape, dtype)
        for axis, initial in itertools.product(range(-len(shape), len(shape)), (False, True)):
            result = getattr(cukern, name)(a, axis=axis, include_initial=initial)
            assert_running(result, name, a, axis, initial)


@pytest.mark.parametrize("dtype", ["float16", "float32", "complex128", "int8", "uint64"])
@pytest.mark.parametrize("name", NAMES)
def test_sizes(name: str, dtype: str, rng: np.random.Generator) -> None:
    """Sizes at which kernels change their ways: short lines, many lines beside each other, lines of many parts."""
    shapes = [(1023,), (1025,), (3, 2049), (5000, 3), (3, 5000), (40_000,), (1100, 40), (70, 4100)]
    shapes += [(2000, 20), (2000, 2), (5000, 32)]  # lines of a warp that has several, with fewest elements a thread
    if not takes_few():
        shapes += [(300_001,), (2, 70_000), (4097, 40), (2, 131, 2500), (2, 3, 5001), (3, 40_000, 2)]
    for shape in shapes:
        for axis in range(len(shape)):
            a = rng.integers(-4, 5, shape).astype(dtype)
            if name == "cumulative_prod" and np.dtype(dtype).kind in "fc":  # quotients of neighbours: they don't grow
                a = np.exp2(np.diff(rng.integers(-3, 4, shape), axis=axis, prepend=0)).astype(dtype)
            elif dtype != "float16":
                a = elements(rng, name, shape, np.dtype(dtype))
            assert_running(getattr(cukern, name)(cukern.asarray(a), axis=axis), name, a, axis)


@pytest.mark.parametrize("name", NAMES)
def test_layouts(name: str, rng: np.random.Generator) -> None:
    for dtype in (np.dtype("float32"), np.dtype("int16")):
        for view in layouts(rng, (6, 5, 4), dtype).values():
            a = view if name == "cumulative_sum" or dtype.kind == "i" else np.abs(view) % 1 + 0.5
            for axis in range(3):
                assert_running(getattr(cukern, name)(a, axis=axis), name, a, axis)


@given(data=st.data())
@PROFILE
def test_any_view(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(0, 6), max_size=6)))
    a = data.draw(views(shape, np.dtype("int32")))
    if a.ndim == 0:
        with pytest.raises(ValueError, match="no dimensions"):
            cukern.cumulative_sum(a)
        return
    axis = data.draw(st.integers(-a.ndim, a.ndim - 1))
    initial = data.draw(st.booleans())
    assert_running(cukern.cumulative_sum(a, axis=axis, include_initial=initial), "cumulative_sum", a, axis, initial)


def test_many_dimensions(rng: np.random.Generator) -> None:
    a = rng.integers(0, 9, (2,) * 12).transpose(11, 0, 9, 2, 7, 4, 5, 6, 3, 8, 1, 10)
    for axis in (0, 5, 11):
        np.testing.assert_array_equal(cukern.cumulative_sum(a, axis=axis), np.cumulative_sum(a, axis=axis))


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint16", "float32", "float16", "complex64", "bool"])
def test_dtype(dtype: str, rng: np.random.Generator) -> None:
    a = rng.integers(-9, 10, 300).astype(np.int16)
    result = cukern.cumulative_sum(a, dtype=dtype)
    if dtype == "bool":  # whether any element up to each holds
        np.testing.assert_array_equal(result, np.cumsum(a, dtype=bool), strict=True)
        return
    assert_running(result, "cumulative_sum", a, 0, dtype=dtype)


@pytest.mark.parametrize("backend", ["cuda"], indirect=True)
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_lines_of_many_tiles(backend: str, dtype: str, rng: np.random.Generator) -> None:
    """More tiles than a group of groups has, whole vectors and none: against sums of parts in a wider type."""
    for size, steps in ((9_000_000, 1), (5_000_001, 1), (5_000_000, 2)):
        a = rng.integers(-9, 10, size * steps).astype(dtype)[::steps]  # sums of integers are exact
        device = cukern.asarray(a)[::1] if steps == 1 else cukern.asarray(np.repeat(a, 2))[::2]
        np.testing.assert_array_equal(cukern.asnumpy(cukern.cumulative_sum(device)), np.cumsum(a))
    lines = rng.integers(-9, 10, (3, 2_000_004)).astype(dtype)
    result = cukern.asnumpy(cukern.cumulative_sum(cukern.asarray(lines), axis=1))
    np.testing.assert_array_equal(result, np.cumsum(lines, axis=1))


def test_the_same_each_time(rng: np.random.Generator) -> None:
    for size in (100_000, 3_000_000) if not SMALL else (100_000,):
        a = cukern.asarray(random_array(rng, (size,), np.dtype("float32")))
        first = cukern.asnumpy(cukern.cumulative_sum(a))
        for _ in range(3):
            np.testing.assert_array_equal(cukern.asnumpy(cukern.cumulative_sum(a)), first)


def test_bfloat16(rng: np.random.Generator) -> None:
    a = cukern.asarray(rng.integers(0, 9, 1000), dtype="bfloat16")  # sums in bfloat16 would stop growing at 512
    result = cukern.cumulative_sum(a)
    assert result.dtype == "bfloat16"
    wide = np.cumsum(cukern.asnumpy(a.astype("float32")))
    wanted = cukern.asnumpy(cukern.asarray(wide).astype("bfloat16").astype("float32"))
    np.testing.assert_array_equal(cukern.asnumpy(result.astype("float32")), wanted)


def test_products_whose_parts_are_out_of_bounds() -> None:
    """What a zero, or small numbers, keep in bounds: products of what follows alone would be infinite."""
    a = np.full(3000, 5, np.float32)
    a[0] = 0
    np.testing.assert_array_equal(cukern.cumulative_prod(a), np.zeros(3000))
    for dtype, small, large in (("float64", 1e-70, 1e80), ("complex128", 1e-70, 1e80), ("float32", 1e-9, 1e10)):
        b = np.array(([small] * 4 + [large] * 4 + [1 / large] * 4 + [1 / small] * 4) * 100, dtype)
        wanted = np.cumulative_prod(b.astype("complex256"))
        result = cukern.asnumpy(cukern.cumulative_prod(b))
        eps = np.finfo(dtype).eps
        assert np.all(np.abs(result - wanted) <= 4 * np.arange(1, b.size + 1) * eps * np.abs(wanted))


def test_products_of_the_largest_and_the_smallest() -> None:
    """Subnormal numbers and those that they bring back to about 1."""
    for dtype, large in (("float64", 1.7e308), ("float32", 3.3e38)):
        own = np.dtype(dtype).type(large)
        a = np.array([own, 1 / own] * 3000, dtype)
        assert 0 < a[1] < np.finfo(dtype).smallest_normal
        wanted = np.cumulative_prod(a.astype("float128"))
        result = cukern.asnumpy(cukern.cumulative_prod(a)).astype("float128")
        assert np.all(np.abs(result - wanted) <= np.arange(1, a.size + 1) * np.finfo(dtype).eps * wanted)


@pytest.mark.parametrize("backend", [pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True)
def test_special_complex_products_do_not_depend_on_the_place(backend: str) -> None:
    """On a GPU (1 + 0i) times an infinity is this infinity, wherever threads' parts begin."""
    for special in (complex(np.inf, 0), complex(-np.inf, 1), complex(0, np.inf), complex(np.nan, 2)):
        for dtype in ("complex64", "complex128"):
            a = np.ones(700, dtype)
            for place in (0, 1, 2, 3, 31, 64, 255, 256, 511, 699):
                a[:] = 1
                a[place] = special
                result = cukern.asnumpy(cukern.cumulative_prod(a))
                assert np.all(result[:place] == 1)
                np.testing.assert_array_equal(result[place:], np.full(700 - place, special, dtype))


@pytest.mark.parametrize("size", [1, 2, 300, 5000])
def test_first_elements_are_kept(size: int) -> None:
    """Nothing joins what has nothing before it: an identity would change signs of zeros and parts of infinities."""
    for dtype in ("float16", "float32", "float64"):
        result = cukern.asnumpy(cukern.cumulative_sum(np.full(size, -0.0, dtype)))
        assert np.all(np.signbit(result)), dtype
    a = np.ones(size, np.complex128)
    a[0] = complex(np.inf, 0)
    assert cukern.asnumpy(cukern.cumulative_prod(a))[0] == a[0]
    a[0] = complex(-0.0, -0.0)
    result = cukern.asnumpy(cukern.cumulative_sum(a[:1]))[0]
    assert np.signbit(result.real) and np.signbit(result.imag)


@pytest.mark.parametrize("name", NAMES)
def test_out(name: str) -> None:
    function = getattr(cukern, name)
    a = np.arange(1, 7.0).reshape(2, 3)
    wanted = getattr(np, name)(a, axis=1)
    for source, out in ((a, np.empty((2, 3))), (cukern.asarray(a), cukern.empty((2, 3))), (a, np.empty((3, 2)).T)):
        assert function(source, axis=1, out=out) is out
        np.testing.assert_array_equal(cukern.asnumpy(out), wanted)
    out = np.empty((2, 4), np.float32)
    assert function(a, axis=1, include_initial=True, out=out) is out
    np.testing.assert_array_equal(out, getattr(np, name)(a, axis=1, include_initial=True))
    for wrong in (np.empty(6), np.empty((2, 4)), a):
        with pytest.raises(ValueError, match=name):
            function(a, axis=1, out=wrong)
    with pytest.raises(TypeError, match=name):
        function(a, axis=1, out=np.empty((2, 3), np.int64))


@pytest.mark.parametrize("name", NAMES)
def test_refuses(name: str) -> None:
    function = getattr(cukern, name)
    with pytest.raises(ValueError, match="axis="):
        function(np.ones((2, 2)))
    with pytest.raises(ValueError, match="no dimensions"):
        function(np.float32(1))
    with pytest.raises(ValueError, match="out of bounds"):
        function(np.ones(2), axis=1)
    with pytest.raises(TypeError, match="expected one int"):
        function(np.ones((2, 2)), axis=(0, 1))
    with pytest.raises(TypeError):
        function([1, 2])


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["cuda"], indirect=True)
def test_a_second_step_that_fails_is_waited_for(backend: str) -> None:
    """Nothing knows of the first step's work then: the host waits for it before it says what failed."""
    x, out = cukern.ones(1000), cukern.zeros(1001)
    stream = cukern.Stream()
    before = cukern.counters()["synchronizations"]
    _cukern._inject_fault("launch", 2)
    try:
        with pytest.raises(cukern.CudaError, match="injected"):
            cukern.cumulative_sum(x, include_initial=True, out=out, stream=stream)
    finally:
        _cukern._inject_fault("launch", 0)
    assert cukern.counters()["synchronizations"] == before + 1
    cukern.cumulative_sum(x, include_initial=True, out=out, stream=stream)
    assert cukern.asnumpy(out)[-1] == 1000


LINES = [(75, 2200), (2200, 43), (9, 2500), (2500, 9), (3, 5003), (5003, 3), (2, 33, 1200), (1200, 33, 2), (40, 7, 150)]


@pytest.mark.parametrize("dtype", ["bool", "int16", "uint64", "float16", "float32", "float64", "complex64"])
@pytest.mark.parametrize("name", NAMES)
def test_lines_lie_in_any_way(name: str, dtype: str, rng: np.random.Generator) -> None:
    """Short and long, few and many, beside each other in the input or in ``out``, at whole vectors or not: all exact,
    since sums are of small whole numbers, products of signs or of integers, which wrap.
    """
    kind = np.dtype(dtype).kind
    for shape in LINES:
        base = rng.integers(0, 2, shape) if kind in "bu" else rng.integers(-1, 2, shape)
        if name == "cumulative_prod":
            base = {"b": rng.random(shape) > 0.01, "u": 2 * base + 1}.get(kind, np.where(base > 0, 1, -1))
        a = base.astype(dtype)
        result = {"b": "int64", "i": "int64", "u": "uint64"}.get(kind, dtype)
        order = np.argsort(rng.random(len(shape)))
        for axis in range(len(shape)):
            wanted = getattr(np, name)(a.astype("float64") if dtype == "float16" else a, axis=axis)
            wider = np.zeros((*shape[:-1], shape[-1] + 3), dtype)
            wider[..., 1:-2] = a
            moved = np.ascontiguousarray(a.transpose(order)).transpose(np.argsort(order))
            for own in (cukern.asarray(a), cukern.asarray(wider)[..., 1:-2], cukern.asarray(moved)):
                assert_equal(cukern.asnumpy(getattr(cukern, name)(own, axis=axis)), wanted.astype(result))
                out = cukern.zeros((*shape[:-1], 2 * shape[-1]), result)
                getattr(cukern, name)(own, axis=axis, out=out[..., ::2])
                assert_equal(cukern.asnumpy(out[..., ::2]), wanted.astype(result))
                assert not cukern.any(out[..., 1::2])
            turned = cukern.zeros(shape[::-1], result).T
            getattr(cukern, name)(cukern.asarray(a), axis=axis, out=turned)
            assert_equal(cukern.asnumpy(turned), wanted.astype(result))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "float32", "complex64", "int64"])
def test_lines_of_one_element(name: str, dtype: str, rng: np.random.Generator) -> None:
    """Are copied: each element is its own result, a zero keeps its sign."""
    a = random_array(rng, (7, 1, 5), np.dtype(dtype))
    a[0, 0, 0] = -0.0 if np.dtype(dtype).kind in "fc" else 1
    for x in (a, np.repeat(a, 2, axis=0)[::2], a.transpose(2, 1, 0)):
        own = cukern.asarray(x)
        found = cukern.asnumpy(getattr(cukern, name)(own, axis=1))
        np.testing.assert_array_equal(found, x)
        assert found.dtype == getattr(np, name)(x, axis=1).dtype
        if found.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(found), np.signbit(x))
        out = cukern.empty(x.shape, "complex128")
        getattr(cukern, name)(own, axis=1, out=out)
        np.testing.assert_array_equal(cukern.asnumpy(out), x)
