"""Random cases: shapes, strides, broadcasts, element types and forms of out, against the oracle."""

from __future__ import annotations

import numpy as np
import pytest
from arrays import SPECIAL, assert_same, random_array
from conftest import SMALL
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracles import ELEMENT_TYPES, PRODUCT_TYPES, check, exact, product_bound, refusal, wider

import cukern
from cukern import _cukern

pytestmark = pytest.mark.usefixtures("backend")
BINARY = [row["name"] for row in _cukern._table if row["kind"] == "binary"]
PROFILE = settings(
    max_examples=40 if SMALL else 200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)


@st.composite
def values(draw: st.DrawFn, dtype: np.dtype, n: int) -> np.ndarray:
    """Draw values over the whole range of a type, some of them special."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if dtype.kind in "biuc":
        return random_array(rng, (n,), dtype)
    with np.errstate(all="ignore"):
        array = (rng.standard_normal(n) * 10.0 ** rng.integers(-3, 4, n)).astype(dtype)
        array[rng.random(n) < 0.1] = np.asarray(rng.choice(SPECIAL)).astype(dtype)
    return array


@st.composite
def views(draw: st.DrawFn, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Draw an array of a shape: permuted axes, steps of -2 to 3, an offset."""
    order = draw(st.permutations(range(len(shape))))
    steps = [draw(st.sampled_from([1, 1, 1, 2, 3, -1, -2])) for _ in shape]
    lengths = [abs(step) * n + draw(st.integers(0, 1)) for step, n in zip(steps, shape, strict=True)]
    base = draw(values(dtype, int(np.prod([lengths[axis] for axis in order], dtype=int))))
    array = base.reshape([lengths[axis] for axis in order]).transpose(np.argsort(order))
    array = array[(*(slice(None, None, step) for step in steps), ...)]
    return array[(*(slice(0, n) for n in shape), ...)]


@st.composite
def broadcastable(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Draw two shapes that broadcast, and the shape to which they do."""
    result = tuple(draw(st.lists(st.integers(0, 5), max_size=5)))
    shapes = []
    for _ in range(2):
        shape = tuple(1 if draw(st.integers(0, 4)) == 0 else n for n in result)
        shapes.append(shape[draw(st.integers(0, len(shape))) :])
    return shapes[0], shapes[1], np.broadcast_shapes(*shapes)


@PROFILE
@given(data=st.data())
def test_elementwise(data: st.DataObject) -> None:
    first, second, result = data.draw(broadcastable())
    name = data.draw(st.sampled_from(BINARY))
    a = data.draw(views(first, data.draw(st.sampled_from(ELEMENT_TYPES))))
    b = data.draw(views(second, data.draw(st.sampled_from(ELEMENT_TYPES))))
    function = getattr(cukern, name)
    check(name, a, b)
    if refusal(name, a, b) is not None:
        return
    target = data.draw(st.sampled_from(ELEMENT_TYPES))
    out = data.draw(views(result, target))
    dtype = exact(name, a, b)[1]
    if np.can_cast(dtype, target, "same_kind"):
        own = function(a, b)
        assert function(a, b, out=out) is out
        with np.errstate(all="ignore"):
            assert_same(np.array(out), own.astype(target))
    else:
        with pytest.raises(TypeError, match="cannot take"):
            function(a, b, out=out)


@PROFILE
@given(data=st.data())
def test_matmul(data: st.DataObject) -> None:
    m, k, n = (data.draw(st.integers(0, 40)) for _ in range(3))
    x, y = (data.draw(st.sampled_from(PRODUCT_TYPES)) for _ in range(2))
    a, b = data.draw(views((m, k), x)), data.draw(views((k, n), y))
    function = data.draw(st.sampled_from([cukern.matmul, cukern.matmul_tiled]))
    with np.errstate(all="ignore"):
        dtype = np.result_type(a, b)
        wide = wider(dtype)
        wanted = a.astype(dtype).astype(wide) @ b.astype(dtype).astype(wide)
        actual = function(a, b)
        assert (actual.dtype, actual.shape) == (dtype, wanted.shape)
        if dtype.kind == "i":
            np.testing.assert_array_equal(actual, wanted)
            return
        # Where the sum of magnitudes overflows, a partial sum may, in one order of summation and not in another.
        bound = product_bound(a.astype(dtype), b.astype(dtype), dtype)
        magnitude = abs(a.astype(dtype).astype(wide)) @ abs(b.astype(dtype).astype(wide))
        finite = magnitude + bound < np.finfo(dtype).max
        assert (abs(actual.astype(wide) - wanted) <= bound)[finite].all()
        nan = np.isnan(a.astype(dtype)).any(axis=1)[:, None] | np.isnan(b.astype(dtype)).any(axis=0)[None, :]
        assert np.isnan(actual[nan]).all()
