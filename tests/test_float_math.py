"""The float32 functions that GPUs compute by formulas of our own, compiled for the host."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from float_tools import BOUND, compile_float_math, errors, exact_result, pairs

pytestmark = pytest.mark.build

UNARY = ["tan", "sinh", "asinh", "acosh", "atanh"]
BINARY = ["hypot", "atan2", "pow", "logaddexp"]
SPECIAL = [0.0, 1e-45, 1e-40, 1.1754944e-38, 1e-20, 2.0**-24, 0.25, 1 / 3, 0.5, 0.99999994, 1.0, 1.0000001, 1.5, 2.0]
SPECIAL += [3.0, 4.0, 17.0, 88.72284, 89.5, 150.0, 1e5, 32768.0, 8388607.0, 8388609.0, 16777216.0, 1e10, 1e20, 1e38]
SPECIAL += [3.4028235e38, np.inf, np.nan]


@pytest.fixture(scope="module")
def float_math(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., np.ndarray]:
    return compile_float_math(tmp_path_factory.mktemp("float_math"))


def assert_close(float_math: Callable[..., np.ndarray], name: str, *operands: np.ndarray) -> None:
    with np.errstate(all="ignore"):
        exact = exact_result(np, name, *operands)
        error = errors(np, name, float_math(name, *operands), exact, *operands)
    worst = int(np.argmax(error))
    assert error[worst] <= BOUND, (name, error[worst], [float(x[worst]) for x in operands], exact[worst])


@pytest.mark.parametrize("name", UNARY)
def test_unary(float_math: Callable[..., np.ndarray], name: str) -> None:
    special = np.array(SPECIAL, np.float32)
    assert_close(float_math, name, np.concatenate([special, -special]))
    # One of every 1021 numbers: neighbours of a power of two have other low bits each.
    assert_close(float_math, name, np.arange(0, 2**32, 1021, dtype=np.uint32).view(np.float32))


@pytest.mark.parametrize("name", BINARY)
def test_binary(float_math: Callable[..., np.ndarray], name: str, rng: np.random.Generator) -> None:
    special = np.array(SPECIAL, np.float32)
    values = np.concatenate([special, -special])
    a, b = np.array(list(itertools.product(values, values)), np.float32).T.copy()
    assert_close(float_math, name, a, b)
    assert_close(float_math, name, *pairs(rng, 3_000_000))


def test_logaddexp_of_nothing(float_math: Callable[..., np.ndarray]) -> None:
    """Beside what vanishes an operand is left as it is, however small, where errors are measured by 0.7."""
    x = np.array([0.0, 1e-38, -1e-38, 1e-45, 5.0, -5.0], np.float32)
    for nothing in (-np.inf, -3e38, -1000.0, -110.0):
        y = np.full_like(x, nothing)
        np.testing.assert_array_equal(float_math("logaddexp", x, y), x)
        np.testing.assert_array_equal(float_math("logaddexp", y, x), x)


def test_normal_powers(float_math: Callable[..., np.ndarray], rng: np.random.Generator) -> None:
    """Powers that are served as normal numbers have the bits of all others, close to the ends of the range, too."""
    a = np.concatenate([rng.uniform(0.99, 1.01, 500_000), 2.0 ** rng.uniform(-126, 127, 500_000)]).astype(np.float32)
    with np.errstate(all="ignore"):
        b = (rng.uniform(120, 150, a.size) * rng.choice([-1, 1], a.size) / np.log2(a, dtype=float)).astype(np.float32)
    np.testing.assert_array_equal(float_math("normal_power", a, b), float_math("pow", a, b))


def test_rough_angle(float_math: Callable[..., np.ndarray], rng: np.random.Generator) -> None:
    """The angle of complex numbers, whose bound is of the modulus: two units more than atan2."""
    special = np.array(SPECIAL, np.float32)
    values = np.concatenate([special, -special])
    grid = np.array(list(itertools.product(values, values)), np.float32).T.copy()
    for a, b in (grid, pairs(rng, 3_000_000)):
        exact = exact_result(np, "atan2", a, b)
        error = errors(np, "atan2", float_math("rough_angle", a, b), exact, a, b)
        assert error.max() <= BOUND + 2, (error.max(), float(a[error.argmax()]), float(b[error.argmax()]))


def test_near_sine_and_cosine(float_math: Callable[..., np.ndarray], rng: np.random.Generator) -> None:
    """Those of complex numbers, whose bound is of the modulus: their errors are measured beside 1."""
    multiples = (np.arange(41_700) * (np.pi / 2)).astype(np.float32)
    drawn = (rng.uniform(-1, 1, 1_000_000) * 2.0 ** rng.integers(-30, 17, 1_000_000)).astype(np.float32)
    x = np.concatenate([multiples, -multiples, np.nextafter(multiples, np.float32(0)), drawn])
    for name, function in (("near_sine", np.sin), ("near_cosine", np.cos)):
        error = np.abs(float_math(name, x) - function(x.astype(np.float64)))
        assert error.max() <= 1.5 * 2.0**-24, (name, error.max() * 2**24, float(x[error.argmax()]))
    small = x[np.abs(x) < 1e-3]
    np.testing.assert_allclose(float_math("near_sine", small), small, rtol=1e-6)


def test_multiples_of_pi(float_math: Callable[..., np.ndarray]) -> None:
    """Close to its poles and zeros the tangent has what is left of the argument after many digits have cancelled."""
    turns = np.concatenate([np.arange(1, 200_000), 2.0 ** np.arange(18, 120)])
    nearest = (turns * (np.pi / 2)).astype(np.float32)
    assert_close(float_math, "tan", np.concatenate([nearest, -nearest, np.nextafter(nearest, np.float32(0))]))


def test_a_wrong_result_is_found() -> None:
    one = np.ones(1, np.float32)
    for wrong in (np.nextafter(np.nextafter(np.nextafter(one, one * 2), one * 2), one * 2), one * np.nan):
        assert errors(np, "tan", wrong, np.ones(1))[0] > BOUND
    zero = np.zeros(1, np.float32)
    assert errors(np, "tan", -zero, np.zeros(1))[0] == np.inf
    assert errors(np, "tan", zero, np.zeros(1))[0] == 0
