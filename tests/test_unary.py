"""Operations of one operand: values over the whole range, special values, layouts, element types, numbers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from arrays import assert_same, layouts, random_array, special_values
from cases import each
from oracles import ELEMENT_TYPES, check, exact, expected, refusal

import cukern
from cukern import _cukern

UNARY = [row["name"] for row in _cukern._table if row["kind"] == "unary"]
pytestmark = pytest.mark.usefixtures("backend")


def over_the_range(dtype: np.dtype, rng: np.random.Generator, n: int) -> np.ndarray:
    """Return floats of every exponent, near one, and near multiples of pi; of other types random values."""
    if dtype.kind not in "fc":
        return random_array(rng, (n,), dtype)
    if dtype.kind == "c":
        real = np.dtype(f"f{dtype.itemsize // 2}")
        parts = np.empty((n, 2), real)
        parts[:, 0], parts[:, 1] = (over_the_range(real, rng, n)[rng.permutation(n)] for _ in range(2))
        return parts.view(dtype)[:, 0]
    info = np.finfo(dtype)
    exponents = rng.uniform(np.log2(float(info.smallest_subnormal)), np.log2(float(info.max)), n // 4)
    with np.errstate(all="ignore"):
        values = [
            np.exp2(exponents.astype(np.longdouble)),
            1 + rng.standard_normal(n // 4) * 10.0 ** rng.uniform(-9, 0, n // 4),
            rng.integers(0, 1000, n // 4) * np.pi / 2 + rng.standard_normal(n // 4) * 1e-3,
            rng.uniform(0, 90, n - 3 * (n // 4)),
        ]
        return (np.concatenate(values) * rng.choice([-1, 1], n)).astype(dtype)


@pytest.mark.parametrize("name", UNARY)
@each("dtype", ELEMENT_TYPES)
def test_values(name: str, dtype: np.dtype, rng: np.random.Generator) -> None:
    check(name, over_the_range(dtype, rng, 20_001))
    check(name, special_values(dtype))


@pytest.mark.parametrize("name", UNARY)
@each("dtype", ["float16", "int8", "uint8", "int16", "uint16"])
def test_every_value(name: str, dtype: str) -> None:
    own = np.dtype(dtype)
    check(name, np.arange(1 << 8 * own.itemsize, dtype=np.uint32).astype(f"u{own.itemsize}").view(own))


@pytest.mark.parametrize("name", UNARY)
def test_layouts(name: str, rng: np.random.Generator) -> None:
    for dtype, shape in itertools.product(ELEMENT_TYPES, ((), (1,), (0,), (3, 0), (7,), (3, 4, 5))):
        if len(shape) in (1, 3) and shape[0] > 1:
            for a in layouts(rng, shape, dtype).values():
                check(name, a)
        else:
            check(name, random_array(rng, shape, dtype))


@pytest.mark.parametrize("name", UNARY)
def test_out(name: str, rng: np.random.Generator) -> None:
    for dtype in ELEMENT_TYPES:
        a = random_array(rng, (6, 5), dtype)
        if refusal(name, a) is not None:
            continue
        result = exact(name, a)[1]
        own = getattr(cukern, name)(a)
        for target in ELEMENT_TYPES:
            out = np.zeros((5, 12), target).T[::2]
            if not np.can_cast(result, target, "same_kind"):
                with pytest.raises(TypeError, match="cannot take"):
                    getattr(cukern, name)(a, out=out)
                continue
            assert getattr(cukern, name)(a, out=out) is out
            with np.errstate(all="ignore"):
                assert_same(out.copy(), own.astype(target))
        if result == dtype:
            assert getattr(cukern, name)(a, out=a) is a
            assert_same(a, own)


@pytest.mark.parametrize("name", UNARY)
def test_numbers_give_arrays(name: str) -> None:
    for number in (2, -3, 0, True, False, 0.5, -2.5, 1 - 2j, np.float32(0.25), np.int16(7)):
        check(name, number)


@pytest.mark.parametrize("name", UNARY)
def test_arrays(name: str, rng: np.random.Generator) -> None:
    for dtype in ELEMENT_TYPES:
        a = random_array(rng, (33, 5), dtype)
        if refusal(name, a) is not None:
            with pytest.raises(TypeError, match=f"{name}: not defined for element type"):
                getattr(cukern, name)(cukern.asarray(a))
            continue
        result = getattr(cukern, name)(cukern.asarray(a))
        assert type(result) is cukern.Array
        assert_same(cukern.asnumpy(result), getattr(cukern, name)(a))


def test_operators_and_numpys_functions() -> None:
    a = cukern.asarray([-2, 3])
    for result, wanted in ((-a, [2, -3]), (+a, [-2, 3]), (abs(a), [2, 3]), (~a, [1, -4])):
        assert cukern.asnumpy(result).tolist() == wanted
    x = cukern.asarray([0.5, 0.25])
    for name in ("exp", "arcsin", "absolute", "conjugate", "isnan", "sqrt"):
        result = getattr(np, name)(x)
        assert type(result) is cukern.Array
        np.testing.assert_allclose(cukern.asnumpy(result), getattr(np, name)(cukern.asnumpy(x)), rtol=1e-15)
    out = cukern.zeros(2)
    assert np.exp(x, out=out) is out
    assert_same(cukern.asnumpy(out), cukern.exp(cukern.asnumpy(x)))
    with pytest.raises(TypeError):
        np.spacing(x)


def test_one_argument() -> None:
    for arguments in ((), (1, 2)):
        with pytest.raises(TypeError, match=r"exp\(\) takes"):
            cukern.exp(*arguments)
    with pytest.raises(TypeError, match="exp: a is"):
        cukern.exp([1.0])
    assert_same(cukern.negative(np.arange(3)), expected("negative", np.arange(3)))
