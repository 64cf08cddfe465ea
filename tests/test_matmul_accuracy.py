"""How accurate products are, beside the best library's for the same precision."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import SMALL, on_processor
from oracles import BFLOAT16, wider

import cukern

TYPES = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
DEPTHS = [256, 4096, 16384]
# Computed in a wider type, which is slow, and kept: each back-end multiplies the same values.
PRODUCTS: dict[tuple[str, str, int], np.ndarray] = {}
pytestmark = pytest.mark.usefixtures("backend")


def values(rng: np.random.Generator, kind: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return normal or uniform values, or such that span twelve powers of ten."""
    draw = rng.random if kind == "uniform" else rng.standard_normal
    found = np.asarray(draw(shape), np.complex128 if dtype.kind == "c" else np.float64)
    if dtype.kind == "c":
        found = found + 1j * draw(shape)
    if kind == "scaled":
        found = found * 10.0 ** rng.integers(-6, 7, shape)
    return found.astype(dtype)


def error(actual: np.ndarray, wanted: np.ndarray) -> float:
    """Return the relative error in the Frobenius norm."""
    return float(np.sqrt((abs(actual.astype(wanted.dtype) - wanted) ** 2).sum() / (abs(wanted) ** 2).sum()))


@pytest.mark.parametrize("kind", ["normal", "uniform", "scaled"])
@pytest.mark.parametrize("name", TYPES)
def test_errors_are_those_of_the_best_library(name: str, kind: str, backend: str, rng: np.random.Generator) -> None:
    dtype = BFLOAT16 if name == "bfloat16" else np.dtype(name)
    if name == "float16" and kind == "scaled":
        kind = "normal"  # twelve powers of ten are more than it has
    for k in DEPTHS[: 2 if SMALL or on_processor() else 3]:
        a, b = values(rng, kind, (40, k), dtype), values(rng, kind, (k, 50), dtype)
        if (name, kind, k) not in PRODUCTS:
            PRODUCTS[name, kind, k] = a.astype(wider(dtype)) @ b.astype(wider(dtype))
        wanted = PRODUCTS[name, kind, k]
        if backend == "cuda":
            best = error(cukern.matmul_cublas(a, b), wanted)
        else:
            sums = np.float32 if dtype.itemsize == 2 else dtype
            best = error((a.astype(sums) @ b.astype(sums)).astype(dtype), wanted)
        for function in (cukern.matmul, cukern.matmul_tiled):
            assert error(function(a, b), wanted) <= 1.5 * best
            assert error(function(np.stack([a, a]), b)[1], wanted) <= 1.5 * best


# By a kernel for vectors, for small results whose sums blocks share, and by tiles; 1,000 entries each.
SHAPES = [(1, 16384, 60), (50, 16384, 1), (16, 16384, 16)]
SMALL_SHAPES = [(m, 4096, n) for m, _, n in SHAPES]
# Whose k cuBLAS cuts.
LARGE = [(1100, 16384, 1000), (1500, 4096, 1500), (1800, 8192, 1800), (3000, 2048, 2000)]


def exact_entries(a: np.ndarray, b: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return entries of a product, summed in a wider type."""
    wide = wider(a.dtype)
    return np.concatenate(
        [
            (a[r].astype(wide) * b.T[c].astype(wide)).sum(axis=1)
            for r, c in zip(np.split(rows, 20), np.split(columns, 20), strict=True)
        ]
    )


@pytest.mark.parametrize("kind", ["normal", "uniform", "scaled"])
@pytest.mark.parametrize("name", ["float32", "float64", "complex64"])
def test_errors_of_long_sums(name: str, kind: str, backend: str, rng: np.random.Generator) -> None:
    dtype = np.dtype(name)
    for m, k, n in SMALL_SHAPES if SMALL or on_processor() else SHAPES + LARGE:
        a, b = values(rng, kind, (m, k), dtype), values(rng, kind, (k, n), dtype)
        entries = rng.integers(0, m, 1000), rng.integers(0, n, 1000)
        wanted = exact_entries(a, b, *entries)
        best = error((cukern.matmul_cublas(a, b) if backend == "cuda" else a @ b)[entries], wanted)
        for function in (cukern.matmul, cukern.matmul_tiled):
            assert error(function(a, b)[entries], wanted) <= 1.5 * best + np.finfo(dtype).eps / 2, (m, k, n)
