"""Products of every element type, bfloat16 among them, in random shapes, layouts and options at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from arrays import random_array
from conftest import SANITIZED, SMALL, STAGED, on_processor
from oracles import BFLOAT16, ELEMENT_TYPES, fused_product, wider

import cukern

TYPES = [*ELEMENT_TYPES, BFLOAT16]
INEXACT = [dtype for dtype in TYPES if dtype == BFLOAT16 or dtype.kind in "fc"]
DEFAULTS = {"alpha": 1, "beta": 1, "c": 0, "bias": 0}
CASES = 8 if SMALL or SANITIZED else 60
pytestmark = pytest.mark.usefixtures("backend")


def is_inexact(dtype: np.dtype) -> bool:
    return dtype in INEXACT


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return normal values; integers of any size, which wrap."""
    if dtype in (np.float16, BFLOAT16):
        return rng.standard_normal(shape).astype(np.float32).astype(dtype)
    return random_array(rng, shape, dtype)


def in_wide(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return x.astype(wider(dtype))


def assert_is_product(actual: np.ndarray, a: np.ndarray, b: np.ndarray, **options: Any) -> None:
    """Compare with the result in a wider type; integers and bool exactly."""
    dtype = a.dtype
    assert actual.dtype == dtype
    if is_inexact(dtype):
        wanted, bound = fused_product(a, b, **options)
        assert actual.shape == wanted.shape
        assert (abs(in_wide(actual, dtype) - wanted) <= bound).all()
        return
    wanted = np.asarray(a @ b)
    if dtype.kind != "b":
        alpha, beta, c, bias = (np.asarray(options.get(name, x), dtype) for name, x in DEFAULTS.items())
        wanted = (wanted * alpha + beta * c + bias).astype(dtype)
        wanted = np.maximum(wanted, 0) if options.get("activation") == "relu" else wanted
    np.testing.assert_array_equal(actual, wanted)


def view_of(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    """Return the same values in another layout: transposed, steps of two, backwards, a window."""
    kind = int(rng.integers(6)) if x.ndim > 0 else 5
    if kind == 0 and x.ndim > 1:
        return np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)
    if kind == 1:
        wide = np.zeros(tuple(2 * n for n in x.shape), x.dtype)
        view = wide[tuple(slice(None, None, 2) for _ in x.shape)]
    elif kind == 2:
        view = np.zeros(x.shape, x.dtype)[tuple(slice(None, None, -1) for _ in x.shape)]
    elif kind == 3:
        view = np.zeros(tuple(n + 3 for n in x.shape), x.dtype)[tuple(slice(1, n + 1) for n in x.shape)]
    else:
        return x
    view[...] = x
    return view


def shapes_of(rng: np.random.Generator) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of two operands: vectors, matrices, batches that broadcast, some sizes 0 or 1."""
    m, k, n = (int(x) for x in rng.choice([0, 1, 2, 3, 7, 8, 16, 17, 33, 40], 3, p=[0.04, 0.1, *[0.1075] * 8]))
    batch = tuple(int(x) for x in rng.integers(1, 4, int(rng.integers(0, 3))))
    left, right = ((*(1 if rng.random() < 0.3 else x for x in batch), *two) for two in ((m, k), (k, n)))
    return left if rng.random() < 0.85 else (k,), right if rng.random() < 0.7 else (k, n) if rng.random() < 0.6 else (
        k,
    )


def options_of(rng: np.random.Generator, shape: tuple[int, ...], is_matrix: bool, dtype: np.dtype) -> dict[str, Any]:
    """Return random options of a product with a result of this shape."""
    options: dict[str, Any] = {}
    if dtype.kind == "b":
        return options
    factors = [-2, 3] if not is_inexact(dtype) else [0.5 - 1.5j, 2j] if dtype.kind == "c" else [0.5, -2.25]
    if dtype.kind == "u":
        factors = [2, 3]
    if rng.random() < 0.5:
        options["alpha"] = factors[int(rng.integers(2))]
    if rng.random() < 0.4:
        options["c"] = view_of(rng, numbers(rng, shape, dtype))
        if rng.random() < 0.7:
            options["beta"] = factors[int(rng.integers(2))]
    if is_matrix and rng.random() < 0.5:
        options["bias"] = view_of(rng, numbers(rng, shape[-1:], dtype))
    if dtype.kind != "c" and rng.random() < 0.5:
        options["activation"] = "gelu" if is_inexact(dtype) and rng.random() < 0.5 else "relu"
    return options


@pytest.mark.parametrize(
    ("function", "dtype"),
    [
        pytest.param(function, dtype, id=f"{function}-{dtype}")
        for function in ("matmul", "matmul_tiled", "matmul_cublas")
        for dtype in (INEXACT if function == "matmul_cublas" else TYPES)  # which has no exact products of integers
    ],
)
def test_random_products(function: str, dtype: np.dtype, rng: np.random.Generator) -> None:
    f = getattr(cukern, function)
    for _ in range(CASES):
        x, y = shapes_of(rng)
        a, b = view_of(rng, numbers(rng, x, dtype)), view_of(rng, numbers(rng, y, dtype))
        shape = np.empty(x, bool).__matmul__(np.empty(y, bool)).shape
        options = options_of(rng, shape, len(y) > 1, dtype)
        kept = {name: np.array(value) if isinstance(value, np.ndarray) else value for name, value in options.items()}
        with np.errstate(all="ignore"):
            try:
                assert_is_product(f(a, b, **options), a, b, **kept)
                out = view_of(rng, np.zeros(shape, dtype))
                if "c" in options and rng.random() < 0.5:
                    out = options["c"]  # in place
                assert f(a, b, out=out, **options) is out
                assert_is_product(np.array(out), a, b, **kept)
            except AssertionError as error:
                raise AssertionError(f"{x} @ {y}, {sorted(options)}: {error}") from error


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), BFLOAT16], ids=str)
def test_short_floats_are_summed_in_float32(dtype: np.dtype) -> None:
    a = np.ones((3, 4096), dtype)  # in bfloat16 itself a sum of ones stops at 256, in float16 at 2048
    for f in (cukern.matmul, cukern.matmul_tiled, cukern.matmul_cublas):
        for x in (a, np.ones((2, 3, 4096), dtype)):
            np.testing.assert_array_equal(f(x, a.T).astype(np.float32), 4096)


@pytest.mark.parametrize("function", ["matmul", "matmul_tiled", "matmul_cublas"])
@pytest.mark.parametrize("dtype", INEXACT, ids=str)
@pytest.mark.parametrize(
    "shapes", [((5, 9), (9, 6)), ((130, 40), (40, 131)), ((3, 20, 17), (17, 33)), ((3, 600), (600, 3))]
)
def test_nan_and_infinity(function: str, dtype: np.dtype, shapes: Any, rng: np.random.Generator) -> None:
    """They come out where IEEE says, and nowhere else."""
    a, b = (numbers(rng, shape, dtype) for shape in shapes)
    a[..., 1, 3], b[..., 4, 2] = np.nan, np.inf
    a[..., 0, 4] = 0  # times infinity is NaN
    with np.errstate(all="ignore"):
        actual = in_wide(getattr(cukern, function)(a, b), dtype)
        wanted = in_wide(a, dtype) @ in_wide(b, dtype)
    touched = np.zeros(wanted.shape, bool)
    touched[..., 1, :] = touched[..., :, 2] = True
    assert np.isfinite(actual[~touched]).all()
    if dtype.kind == "c":  # a NaN or an infinity in either part
        assert not np.isfinite(actual[touched]).any()
        return
    assert np.isnan(actual[..., 1, :]).all()
    assert np.isnan(actual[..., 0, 2]).all()
    np.testing.assert_array_equal(actual[touched], wanted[touched])
    assert np.isinf(actual[touched]).any()


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_functions_of_one_kernel_are_the_option(dtype: np.dtype, rng: np.random.Generator) -> None:
    for x, y in (((20, 30), (30, 10)), ((3, 20, 30), (30, 10)), ((30,), (30, 10)), ((150, 40), (40, 140))):
        a, b = numbers(rng, x, dtype), numbers(rng, y, dtype)
        with np.errstate(all="ignore"):
            for kernel in ("tiled", "cublas") if is_inexact(dtype) else ("tiled",):
                given = cukern.matmul(a, b, kernel=kernel)
                np.testing.assert_array_equal(given, getattr(cukern, f"matmul_{kernel}")(a, b))


CONTRACTIONS: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (lambda a, b: cukern.einsum("ij,jk->ik", a, b), lambda a, b: cukern.matmul(a, b)),
    (lambda a, b: cukern.einsum("ij,jk->ki", a, b), lambda a, b: cukern.matmul(a, b).T),
    (lambda a, b: cukern.tensordot(a, b, axes=1), lambda a, b: cukern.matmul(a, b)),
    (lambda a, b: cukern.tensordot(a, b.T, axes=([1], [1])), lambda a, b: cukern.matmul(a, b)),
    (lambda a, b: cukern.dot(a, b), lambda a, b: cukern.matmul(a, b)),
]


def assert_same_work(contract: Callable[..., Any], product: Callable[..., Any], *operands: Any) -> None:
    """Compare the bits of two functions' results, and the numbers of launches."""
    found = []
    for f in (contract, product):
        f(*operands)
        before = cukern.counters()["launches"]
        result = f(*operands)
        found.append((cukern.counters()["launches"] - before, cukern.asnumpy(result)))
    assert found[0][0] == found[1][0]
    np.testing.assert_array_equal(found[0][1], found[1][1])


@pytest.mark.parametrize("backend", STAGED, indirect=True)
@pytest.mark.parametrize("case", range(len(CONTRACTIONS)))
def test_contractions_are_products(case: int, rng: np.random.Generator) -> None:
    """What `matmul` can compute it computes: the same bits by as many launches."""
    contract, product = CONTRACTIONS[case]
    for dtype in (np.dtype(np.float32), np.dtype(np.complex64), BFLOAT16):
        a, b = cukern.asarray(numbers(rng, (150, 90), dtype)), cukern.asarray(numbers(rng, (90, 130), dtype))
        assert_same_work(contract, product, a, b)


@pytest.mark.parametrize("backend", STAGED, indirect=True)
def test_dot_with_a_vector_is_a_product(rng: np.random.Generator) -> None:
    """Without the products in memory of their own."""
    for dtype in (np.dtype(np.float32), np.dtype(np.int16), np.dtype(bool), BFLOAT16):
        v = cukern.asarray(numbers(rng, (90,), dtype))
        for shape in ((90,), (150, 90), (3, 40, 90)):
            a = cukern.asarray(numbers(rng, shape, dtype))
            assert_same_work(cukern.dot, cukern.matmul, a, v)


@pytest.mark.parametrize("backend", STAGED, indirect=True)
@pytest.mark.parametrize(
    "dtype", [np.dtype(name) for name in ("float64", "complex128", "float32", "int32")] + [BFLOAT16], ids=str
)
def test_forms_beyond_the_memory_limit(dtype: np.dtype, rng: np.random.Generator) -> None:
    cukern.empty_cache()
    limit = max(1 << 20, dtype.itemsize << 17)  # a fraction of the operands; two panels of each have to fit in
    cukern.set_memory_limit(cukern.memory_info()["in_use"] + limit)
    try:
        a, b = numbers(rng, (40, 64, 64), dtype), numbers(rng, (40, 64, 64), dtype)
        c, bias = numbers(rng, (40, 64, 64), dtype), numbers(rng, (64,), dtype)
        activation = {} if dtype.kind == "c" else {"activation": "relu"}
        for x, y, options in (
            (a, b, {"alpha": 2, "c": c, "beta": 3}),
            (a, b, {"bias": bias, **activation}),
            *([] if SMALL else [(a.swapaxes(1, 2), b, {}), (a, b.swapaxes(1, 2), {"c": c})]),
            (a[:, ::2], b, {}),
            (a.reshape(320, 512), b.reshape(512, 320), {"alpha": 2, "bias": numbers(rng, (320,), dtype)}),
            (a.reshape(512, 320).T, b.reshape(512, 320), {"alpha": -1} if dtype.kind != "u" else {}),
        ):
            with cukern.placement("device"), np.errstate(all="ignore"):
                assert_is_product(cukern.matmul(x, y, **options), x, y, **options)
                if "c" in options:
                    in_place = np.array(c)
                    cukern.matmul(x, y, out=in_place, **{**options, "c": in_place})
                    assert_is_product(in_place, x, y, **options)
    finally:
        cukern.set_memory_limit(None)


@pytest.mark.parametrize("dtype", INEXACT, ids=str)
@pytest.mark.parametrize("kind", ["normal", "uniform", "scaled"])
def test_no_less_accurate_than_a_plain_sum(dtype: np.dtype, kind: str, rng: np.random.Generator) -> None:
    """The relative Frobenius error is that of a sum of K rounded products, of 16 bits that of one rounding."""
    m, k, n = 40, 1024 if on_processor() else 4096, 30
    if kind == "normal":
        a, b = numbers(rng, (m, k), dtype), numbers(rng, (k, n), dtype)
    else:
        a, b = rng.random((m, k)).astype(dtype), rng.random((k, n)).astype(dtype)
    if kind == "scaled":  # powers of two, which a range of float16 holds
        scales = 2.0 ** rng.integers(-6, 4, k)
        a, b = (a * scales.astype(dtype)), (b / scales.astype(dtype)[:, None])
    wanted = in_wide(a, dtype) @ in_wide(b, dtype)
    eps = float(np.finfo(np.float32 if dtype.itemsize == 2 else dtype).eps)
    short = float(ml_dtypes.finfo(dtype).eps) if dtype.itemsize == 2 else 0.0
    for f in (cukern.matmul, cukern.matmul_tiled, cukern.matmul_cublas):
        error = float(np.linalg.norm(in_wide(f(a, b), dtype) - wanted) / np.linalg.norm(wanted))
        size = np.linalg.norm(abs(in_wide(a, dtype)) @ abs(in_wide(b, dtype))) / np.linalg.norm(wanted)
        # Roundings of a sum are independent: their errors add up as the square root of their number.
        assert error <= short / 2 + eps * float(size) * k**0.5, f.__name__
