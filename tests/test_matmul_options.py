"""What products may be told beside their operands: factors, addends, activations, precision, a kernel."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from arrays import random_array
from conftest import STAGED
from oracles import ELEMENT_TYPES, fused_product, product_bound

import cukern

FUNCTIONS = ["matmul", "matmul_tiled", "matmul_cublas"]
NUMBERS = [dtype for dtype in ELEMENT_TYPES if dtype.kind != "b"]
INEXACT = [dtype for dtype in ELEMENT_TYPES if dtype.kind in "fc"]
FLOATS = [dtype for dtype in ELEMENT_TYPES if dtype.kind == "f"]
SHAPES = [
    ((3, 4), (4, 5)),
    ((4,), (4, 5)),
    ((2, 9, 8), (8, 7)),
    ((2, 3, 4), (2, 4, 1)),
    ((3, 0), (0, 4)),
    ((0, 3), (3, 2)),
]
pytestmark = pytest.mark.usefixtures("backend")


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    return rng.integers(-4, 5, shape).astype(dtype) if dtype.kind in "iu" else random_array(rng, shape, dtype)


def assert_close(actual: np.ndarray, wanted: np.ndarray, bound: np.ndarray, dtype: np.dtype) -> None:
    assert actual.dtype == dtype
    assert actual.shape == wanted.shape
    assert (abs(actual.astype(wanted.dtype) - wanted) <= bound).all()


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dtype", INEXACT, ids=str)
def test_factors_and_addends(function: str, dtype: np.dtype, rng: np.random.Generator) -> None:
    f = getattr(cukern, function)
    for x, y in SHAPES:
        a, b = numbers(rng, x, dtype), numbers(rng, y, dtype)
        c, bias = numbers(rng, (a @ b).shape, dtype), numbers(rng, y[-1:], dtype)
        for options in (
            {"alpha": 2.5},
            {"c": c},
            {"c": c, "beta": -0.5},
            {"c": c, "beta": 0},
            {"alpha": -1, "c": c, "beta": 3},
            {"bias": bias},
            {"alpha": 0.5, "c": c, "beta": 2, "bias": bias},
        ):
            assert_close(f(a, b, **options), *fused_product(a, b, **options), dtype)
            out = np.empty(c.shape, dtype)
            assert f(a, b, out=out, **options) is out
            assert_close(out, *fused_product(a, b, **options), dtype)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_activations(activation: str, dtype: np.dtype, rng: np.random.Generator) -> None:
    for x, y in SHAPES:
        a, b = numbers(rng, x, dtype), numbers(rng, y, dtype)
        bias = numbers(rng, y[-1:], dtype)
        for options in ({"activation": activation}, {"activation": activation, "bias": bias, "alpha": 2}):
            assert_close(cukern.matmul(a, b, **options), *fused_product(a, b, **options), dtype)
    with np.errstate(all="ignore"):
        special = cukern.matmul(
            np.array([[np.nan], [np.inf], [-np.inf]], dtype), np.ones((1, 1), dtype), activation="relu"
        )
    np.testing.assert_array_equal(special[:, 0], np.array([np.nan, np.inf, 0], dtype))


@pytest.mark.parametrize("dtype", [dtype for dtype in NUMBERS if dtype.kind in "iu"], ids=str)
def test_integers_stay_exact(dtype: np.dtype, rng: np.random.Generator) -> None:
    a, b, c, bias = (numbers(rng, shape, dtype) for shape in ((3, 4), (4, 5), (3, 5), (5,)))
    with np.errstate(all="ignore"):
        wanted = np.maximum(3 * (a @ b) + 2 * c + bias, 0).astype(dtype)
    np.testing.assert_array_equal(cukern.matmul(a, b, alpha=3, beta=2, c=c, bias=bias, activation="relu"), wanted)
    for options in ({"alpha": 0.5}, {"c": c, "beta": 0.5}, {"activation": "gelu"}, {"c": c.astype("f8")}):
        with pytest.raises(TypeError, match="matmul"):
            cukern.matmul(a, b, **options)


@pytest.mark.parametrize("dtype", [np.dtype("float32"), np.dtype("float64")], ids=str)
def test_gelu_of_large_numbers(dtype: np.dtype) -> None:
    """The limit is the number itself as far as the type reaches."""
    largest = float(np.finfo(dtype).max)
    a = np.array([[largest], [-largest], [0.6 * largest]], dtype)
    for options in ({}, {"bias": np.zeros(1, dtype)}, {"kernel": "tiled"}):
        found = cukern.matmul(a, np.ones((1, 1), dtype), activation="gelu", **options)
        np.testing.assert_array_equal(found[:, 0], [a[0, 0], 0, a[2, 0]])


def test_c_is_out(rng: np.random.Generator) -> None:
    a, b = numbers(rng, (3, 4), np.dtype("f4")), numbers(rng, (4, 5), np.dtype("f4"))
    for function in FUNCTIONS:
        c = numbers(rng, (3, 5), np.dtype("f4"))
        wanted = fused_product(a, b, alpha=2, beta=0.5, c=c.copy())
        assert getattr(cukern, function)(a, b, alpha=2, beta=0.5, c=c, out=c) is c
        assert_close(c, *wanted, c.dtype)
    array = cukern.asarray(c)
    wanted = fused_product(a, b, beta=0.5, c=c)
    assert cukern.matmul(cukern.asarray(a), cukern.asarray(b), beta=0.5, c=array, out=array) is array
    assert_close(cukern.asnumpy(array), *wanted, c.dtype)


def test_c_of_a_narrower_type_is_multiplied_in_the_results(rng: np.random.Generator) -> None:
    a, c = np.ones((2, 2), np.int32), np.full((2, 2), 100, np.int8)
    np.testing.assert_array_equal(cukern.matmul(a, a, c=c, beta=1000), 100002)
    half = np.full((2, 2), 60000, np.float16)
    one = np.eye(2, dtype=np.float16)
    np.testing.assert_array_equal(cukern.matmul(one, one, alpha=0, c=half, beta=0.5), 30000)
    sums = cukern.matmul(half[:, :1], one[:1], alpha=-2, c=np.full((2, 2), 60000, np.float16), beta=2)
    np.testing.assert_array_equal(sums, [[0, np.inf], [0, np.inf]])  # of float32, rounded at the end
    single = cukern.matmul(one.astype("f4"), one.astype("f4"), c=half, beta=1e6)
    np.testing.assert_allclose(single, 6e10 + np.eye(2), rtol=1e-6)


def test_what_c_holds_is_not_looked_at_where_beta_is_0() -> None:
    a = np.ones((2, 2))
    np.testing.assert_array_equal(cukern.matmul(a, a, beta=0, c=np.full((2, 2), np.nan)), 2)


@pytest.mark.parametrize("kernel", ["auto", "tiled", "cublas"])
@pytest.mark.parametrize("precision", ["highest", "tf32"])
def test_kernels_and_precisions(kernel: str, precision: str, rng: np.random.Generator) -> None:
    a, b = numbers(rng, (40, 50), np.dtype("f4")), numbers(rng, (50, 60), np.dtype("f4"))
    actual = cukern.matmul(a, b, kernel=kernel, precision=precision)
    bound = product_bound(a, b, a.dtype)
    if precision == "tf32":  # each factor is off by 2**-11 at most
        bound = bound + 2 * 2.0**-10 * (abs(a).astype("f8") @ abs(b).astype("f8"))
    assert (abs(actual - a.astype("f8") @ b.astype("f8")) <= bound).all()


def test_results_are_of_the_operands_kind(rng: np.random.Generator) -> None:
    a = cukern.asarray(numbers(rng, (3, 4), np.dtype("f4")))
    result = cukern.matmul(a, a.T, bias=cukern.ones(3, "f4"), activation="relu")
    assert type(result) is cukern.Array and result.dtype == "float32"
    bf16 = a.astype("bfloat16")
    result = cukern.matmul(bf16, bf16.T, alpha=2)
    assert result.dtype == "bfloat16" and result.memory == a.memory
    np.testing.assert_allclose(
        result.astype("f4").asnumpy() if hasattr(result, "asnumpy") else cukern.asnumpy(result.astype("f4")),
        2 * cukern.asnumpy(bf16.astype("f4")) @ cukern.asnumpy(bf16.astype("f4")).T,
        rtol=2.0**-7,
        atol=1e-5,
    )


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"alpha": "2"}, TypeError, "alpha is '2'; expected a number of Python"),
        ({"alpha": 1j}, TypeError, "alpha is 1j, which a product of element type float64 cannot be multiplied with"),
        ({"beta": 2}, TypeError, "beta is a factor of c, which is missing"),
        ({"c": np.ones(3)}, ValueError, r"c has shape \(3,\); expected \(3, 3\)"),
        ({"bias": np.ones(4)}, ValueError, r"bias has shape \(4,\); expected \(3,\)"),
        (
            {"bias": np.ones(3, "c16")},
            TypeError,
            "bias is of element type complex128, which the product's float64 cannot",
        ),
        ({"activation": "tanh"}, ValueError, "activation is 'tanh'; expected 'none', 'relu' or 'gelu'"),
        ({"precision": "high"}, ValueError, "precision is 'high'; expected 'highest', 'tf32'"),
        ({"kernel": 3}, ValueError, "kernel is 3; expected 'auto', 'tiled' or 'cublas'"),
        ({"gamma": 3}, TypeError, "gamma"),
        ({"alpha": 2, "out": np.empty((2, 2))}, ValueError, "out has shape"),
    ],
)
def test_what_is_refused(options: dict, error: type[Exception], message: str) -> None:
    a = np.ones((3, 3))
    with pytest.raises(error, match=message):
        cukern.matmul(a, a, **options)


def test_other_refusals() -> None:
    a = np.ones((2, 2), bool)
    with pytest.raises(TypeError, match="matmul: products of element type bool take no such option"):
        cukern.matmul(a, a, alpha=2)
    z = np.ones((2, 2), complex)
    for activation in ("relu", "gelu"):
        with pytest.raises(TypeError, match="element type complex128 take no such option"):
            cukern.matmul(z, z, activation=activation)
    with pytest.raises(TypeError, match="kernel"):
        cukern.matmul_tiled(z, z, kernel="auto")
    with pytest.raises(ValueError, match="bias has shape"):  # vectors have no columns
        cukern.matmul(np.ones((2, 3)), np.ones(3), bias=np.ones(2))


@pytest.mark.parametrize("backend", STAGED, indirect=True)
def test_nothing_is_kept(rng: np.random.Generator) -> None:
    a, c, bias = np.ones((4, 4), "f4"), np.ones((4, 4), "f4"), np.ones(4, "f4")
    cukern.matmul(a, a, c=c, bias=bias, activation="gelu")
    counts = [sys.getrefcount(x) for x in (a, c, bias)]
    for _ in range(50):
        cukern.matmul(a, a, alpha=2.0, beta=0.5, c=c, bias=bias, activation="gelu", out=c)
    assert [sys.getrefcount(x) for x in (a, c, bias)] == counts
