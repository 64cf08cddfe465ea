"""The float64 functions that GPUs compute by formulas of our own, compiled for the host."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from float_tools import BOUND, compile_float_math
from oracles import ORACLES

pytestmark = pytest.mark.build

SPECIAL = [0.0, 5e-324, 1e-310, 2.0**-1022, 1e-300, 1e-150, 2.0**-54, 2.0**-28, np.nextafter(2.0**-28, 1), 1e-5, 0.25]
SPECIAL += [1 / 3, np.nextafter(0.5, 0), 0.5, np.nextafter(0.5, 1), np.nextafter(1, 0), 1.0, np.nextafter(1, 2), 1.5]
SPECIAL += [2.0, 36.7, 37.0, 699.9, 700.1, 709.7, 710.4758600739439, 710.475860073944, 710.76, 745.2, 1e5, 1e100]
SPECIAL += [2.0**1000, np.nextafter(2.0**1000, 0), 1e308, np.finfo(np.float64).max, np.inf, np.nan]


@pytest.fixture(scope="module")
def double_math(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., np.ndarray]:
    return compile_float_math(tmp_path_factory.mktemp("double_math"))


def errors(name: str, got: np.ndarray, *operands: np.ndarray) -> np.ndarray:
    """Return results' distances from exact ones in units in the last place of these; infinity where one is NaN, or a
    zero of the other sign."""
    with np.errstate(all="ignore"):
        exact = ORACLES[name](*(x.astype(np.longdouble) for x in operands))
        rounded = exact.astype(np.float64)
        scale = np.abs(rounded)
        if name == "logaddexp":  # as in tests/oracles.py
            for x in (*operands, np.full_like(got, 0.7)):
                scale = np.where(np.isfinite(x), np.maximum(scale, np.abs(x)), scale)
        step = np.spacing(np.minimum(scale, np.finfo(np.float64).max))
        distance = np.where(got == rounded, np.abs(got - exact), np.abs(got.astype(np.longdouble) - exact)) / step
    distance = np.where(np.isinf(got) & (got == rounded), 0, distance)
    distance = np.where(np.isnan(got) & np.isnan(exact), 0, distance)
    other_sign = (got == 0) & (rounded == 0) & (np.signbit(got) != np.signbit(exact))
    return np.where(other_sign | (np.isnan(got) != np.isnan(exact)), np.inf, distance).astype(np.float64)


def assert_close(double_math: Callable[..., np.ndarray], name: str, *operands: np.ndarray) -> None:
    error = errors(name, double_math(name, *operands), *operands)
    worst = int(np.argmax(error))
    assert error[worst] <= BOUND, (name, error[worst], [float(x[worst]).hex() for x in operands])


def drawn(rng: np.random.Generator, n: int) -> np.ndarray:
    """Draw numbers of any bits, from -1 to 1, close to 1, and of the sizes whose exponentials are finite."""
    parts = [
        rng.integers(0, 2**64, n, dtype=np.uint64).view(np.float64),
        rng.uniform(-1, 1, n),
        1 - 2.0 ** rng.uniform(-53, -1, n),
        rng.standard_normal(n) * 2.0 ** rng.integers(-30, 10, n),
    ]
    return rng.permutation(np.concatenate(parts))


@pytest.mark.parametrize("name", ["asin", "acos", "sinh", "asinh", "acosh", "atanh", "log1p"])
def test_unary(double_math: Callable[..., np.ndarray], name: str, rng: np.random.Generator) -> None:
    special = np.array(SPECIAL)
    assert_close(double_math, name, np.concatenate([special, -special]))
    assert_close(double_math, name, drawn(rng, 500_000))


@pytest.mark.parametrize("name", ["atan2", "pow", "logaddexp"])
def test_binary(double_math: Callable[..., np.ndarray], name: str, rng: np.random.Generator) -> None:
    special = np.array(SPECIAL)
    values = np.concatenate([special, -special])
    assert_close(double_math, name, *np.array(list(itertools.product(values, values))).T.copy())
    assert_close(double_math, name, drawn(rng, 500_000), drawn(rng, 500_000))
    a = drawn(rng, 250_000)
    if name == "pow":  # with finite results, and some beyond
        a = np.abs(a[np.isfinite(a) & (a != 0)])
        b = rng.uniform(-1100, 1100, a.size) / np.maximum(np.abs(np.log2(a)), 1e-17)
        assert_close(double_math, name, a, b)
    with np.errstate(all="ignore"):
        b = a * rng.uniform(0.5, 2, a.size)  # of like size
    assert_close(double_math, name, a, b)


def test_logaddexp_of_nothing(double_math: Callable[..., np.ndarray]) -> None:
    """Beside what vanishes an operand is left as it is, however small."""
    x = np.array([0.0, 1e-308, -1e-308, 5e-324, 5.0, -5.0])
    for nothing in (-np.inf, -1e308, -1000.0, -750.0):
        y = np.full_like(x, nothing)
        np.testing.assert_array_equal(double_math("logaddexp", x, y), x)
        np.testing.assert_array_equal(double_math("logaddexp", y, x), x)


def test_a_wrong_result_is_found() -> None:
    one = np.ones(1)
    exact = float(np.arcsin(one)[0])
    for wrong in (exact + 3 * np.spacing(exact), np.nan, np.inf):
        assert errors("asin", np.array([wrong]), one)[0] > BOUND
    assert errors("asin", -np.zeros(1), np.zeros(1))[0] == np.inf
    assert errors("asin", np.zeros(1), np.zeros(1))[0] == 0
