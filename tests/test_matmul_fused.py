"""Products of arrays on a GPU with factors, addends and activations, which cuBLASLt computes in one kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from arrays import random_array
from oracles import ELEMENT_TYPES, fused_product
from test_matmul_options import assert_close

import cukern

TYPES = [dtype for dtype in ELEMENT_TYPES if dtype.kind == "f" and dtype.itemsize <= 4]
SHAPES = [(64, 48, 80), (7, 5, 3), (129, 1000, 257), (1, 8, 8), (256, 256, 256), (33, 1, 2)]
pytestmark = [
    pytest.mark.usefixtures("backend"),
    pytest.mark.parametrize("backend", [pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True),
]


def operands(rng: np.random.Generator, shape: tuple[int, int, int], dtype: np.dtype) -> list[np.ndarray]:
    m, k, n = shape
    return [random_array(rng, s, dtype) for s in ((m, k), (k, n), (m, n), (n,))]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_results(dtype: np.dtype, shape: tuple[int, int, int], rng: np.random.Generator) -> None:
    a, b, c, bias = operands(rng, shape, dtype)
    x, y, z, w = (cukern.asarray(array) for array in (a, b, c, bias))
    turned = cukern.asarray(np.ascontiguousarray(b.T)).T
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"bias": bias}, {"bias": w}),
        ({"activation": "relu"}, {"activation": "relu"}),
        ({"activation": "gelu", "bias": bias, "alpha": 0.5}, {"activation": "gelu", "bias": w, "alpha": 0.5}),
        ({"c": c, "beta": -0.5, "alpha": 2}, {"c": z, "beta": -0.5, "alpha": 2}),
        ({"c": c, "bias": bias, "activation": "relu"}, {"c": z, "bias": w, "activation": "relu"}),
    ]
    for theirs, own in cases:
        for right in (y, turned):
            assert_close(cukern.asnumpy(cukern.matmul(x, right, **own)), *fused_product(a, b, **theirs), dtype)
        out = cukern.empty(c.shape, dtype=dtype)
        assert cukern.matmul(x, y, out=out, **own) is out
        assert_close(cukern.asnumpy(out), *fused_product(a, b, **theirs), dtype)
    wanted = fused_product(a, b, c=c, beta=3, bias=bias)
    assert cukern.matmul(x, y, c=z, beta=3, bias=w, out=z) is z
    assert_close(cukern.asnumpy(z), *wanted, dtype)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_special_values(dtype: np.dtype) -> None:
    a = cukern.asarray(np.array([[np.nan], [np.inf], [-np.inf], [-1.0], [2.0]], dtype))
    b = cukern.asarray(np.ones((1, 8), dtype))
    for options in ({}, {"bias": cukern.zeros(8, dtype=dtype)}):
        found = cukern.asnumpy(cukern.matmul(a, b, activation="relu", **options))
        np.testing.assert_array_equal(found, np.array([[np.nan], [np.inf], [0], [0], [2]], dtype).repeat(8, 1))
    found = cukern.asnumpy(cukern.matmul(a, b, activation="gelu"))
    np.testing.assert_array_equal(found[:2], np.array([[np.nan], [np.inf]], dtype).repeat(8, 1))
    found = cukern.asnumpy(cukern.matmul(a, b, beta=0, c=cukern.full((5, 8), np.nan, dtype=dtype)))
    np.testing.assert_array_equal(found, cukern.asnumpy(a).repeat(8, 1))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_one_kernel(dtype: np.dtype, rng: np.random.Generator, tmp_path: Path) -> None:
    a, b, c, bias = (cukern.asarray(x) for x in operands(rng, (256, 512, 256), dtype))
    out = cukern.empty((256, 256), dtype=dtype)
    for options in ({"alpha": 2, "c": c, "beta": 0.5}, {"bias": bias, "activation": "gelu"}):
        counts = []
        for own in ({}, options):
            cukern.matmul(a, b, out=out, **own)
            with cukern.capture() as graph:
                cukern.matmul(a, b, out=out, kernel="cublas", **own)
            graph.debug_dot(tmp_path / "graph.dot")
            counts.append((tmp_path / "graph.dot").read_text().count("KERNEL"))
        assert 0 < counts[1] <= counts[0] + 1  # one may sum parts of k
        before = cukern.asnumpy(out)
        out[...] = 0
        graph.launch()
        np.testing.assert_array_equal(cukern.asnumpy(out), before)


def test_what_is_not_fused(rng: np.random.Generator) -> None:
    """The same results in other ways: columns of a larger result, an addend of another type, rows that are apart."""
    a, b, c, bias = operands(rng, (40, 30, 50), np.dtype("f4"))
    x, y = cukern.asarray(a), cukern.asarray(b)
    wanted = fused_product(a, b, bias=bias, c=c)
    column_major = cukern.empty((50, 40), dtype="f4").T
    for out in (None, column_major, cukern.empty((40, 100), dtype="f4")[:, ::2], cukern.empty((40, 50), dtype="f8")):
        found = cukern.matmul(x, y, bias=cukern.asarray(bias), c=cukern.asarray(c), out=out)
        assert_close(cukern.asnumpy(found).astype("f4"), *wanted, np.dtype("f4"))
    halves = bias.astype("f2")
    found = cukern.matmul(x, y, bias=cukern.asarray(halves), c=cukern.asarray(c))
    assert_close(cukern.asnumpy(found), *fused_product(a, b, bias=halves.astype("f4"), c=c), np.dtype("f4"))
    overlapping = cukern.asarray(np.vstack([c, c[:1]]))
    found = cukern.matmul(x, y, c=overlapping[1:], out=overlapping[:-1])
    wanted = fused_product(a, b, c=np.vstack([c[1:], c[:1]]))
    assert_close(cukern.asnumpy(found), *wanted, np.dtype("f4"))
