"""Products by cuBLAS on a GPU: which calls it gets, what they cost beside its kernels, its precision, its graphs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from arrays import random_array
from interchange_tools import QUIET, bring
from oracles import BFLOAT16, fused_product

import cukern
from cukern import _cukern

TYPES = [np.dtype(name) for name in ("float32", "float64", "float16", "complex64", "complex128")] + [BFLOAT16]
FUSED = [np.dtype("float32"), np.dtype("float16"), BFLOAT16]
pytestmark = [
    pytest.mark.usefixtures("backend"),
    pytest.mark.parametrize("backend", [pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True),
    *QUIET,
]


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return small whole numbers, whose products of some hundred addends are exact in float32."""
    values = rng.integers(-2, 3, shape)
    return (values + 1j * rng.integers(-2, 3, shape)).astype(dtype) if dtype.kind == "c" else values.astype(dtype)


def exact(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    return (a.astype(wide) @ b.astype(wide)).astype(a.dtype)


def kernels(call: Callable[[], Any], folder: Path) -> int:
    """Return the number of kernels that a call launches, cuBLAS's and our own."""
    call()  # what is made once
    with cukern.capture() as graph:
        call()
    graph.debug_dot(folder / "graph.dot")
    return (folder / "graph.dot").read_text().count("KERNEL")


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_views_are_not_copied(dtype: np.dtype, rng: np.random.Generator, tmp_path: Path) -> None:
    """Transposed matrices, and slices of rows and columns, are operands and results of the same one call."""
    n = 128
    wide, square = (numbers(rng, shape, dtype) for shape in ((2 * n, 2 * n), (n, n)))
    x, y, out = cukern.asarray(wide), cukern.asarray(square), cukern.zeros((2 * n, 2 * n), dtype)

    def launches(a: Any, b: Any, c: Any, of_a: np.ndarray, of_b: np.ndarray) -> int:
        out.fill(0)
        count = kernels(lambda: cukern.matmul(a, b, out=c, kernel="cublas"), tmp_path)
        np.testing.assert_array_equal(cukern.asnumpy(c), exact(of_a, of_b))
        return count

    packed = out.reshape(4, n, n)[0]
    views: list[Callable[[Any], Any]] = [
        lambda z: z[:n, :n],
        lambda z: z[n:, n:],
        lambda z: z[:n, 8 : 8 + n],
        lambda z: z[: 2 * n : 2, :n],
        lambda z: z[:n, :n].T,
        lambda z: z[::2, n:].T,
    ]
    for view in views:
        # Where cuBLAS splits a sum, a second kernel of its own adds up the parts.
        assert 0 < launches(view(x), y, packed, view(wide), square) <= 2
        assert 0 < launches(y, view(x), packed, square, view(wide)) <= 2
        assert 0 < launches(y, y, view(out), square, square) <= 2
    for view in views:
        before = cukern.counters()["launches"]
        cukern.matmul(view(x), y, out=packed, kernel="cublas")
        assert cukern.counters()["launches"] - before == 1
    before = cukern.counters()["launches"]
    cukern.matmul(x[:n, n - 1 :: -1], y, out=packed, kernel="cublas")
    assert cukern.counters()["launches"] - before == 2  # no leading dimension tells of it


@pytest.mark.pooled
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_no_allocation_and_no_synchronization(dtype: np.dtype, rng: np.random.Generator) -> None:
    a, b, c, bias = (cukern.asarray(numbers(rng, s, dtype)) for s in ((3, 96, 64), (3, 64, 80), (3, 96, 80), (80,)))
    options: list[dict[str, Any]] = [{}, {"alpha": 2, "c": c[0], "beta": 0.5}, {"bias": bias}]
    if dtype.kind != "c":
        options += [{"activation": "gelu", "bias": bias}, {"activation": "relu"}]

    def all_of_them() -> None:
        for own in options:
            cukern.matmul(a[0], b[0], out=out[0], kernel="cublas", **own)
        cukern.matmul(a, b, out=out, kernel="cublas")
        cukern.matmul(a, b[0], out=out, kernel="cublas")

    out = cukern.empty((3, 96, 80), dtype)
    for _ in range(3):
        all_of_them()
    before = cukern.counters()
    for _ in range(20):
        all_of_them()
    after = cukern.counters()
    for name in ("driver_allocations", "synchronizations"):
        assert after[name] == before[name], name


def test_tf32_is_used_where_asked_for_and_no_less_accurate_than_torchs(rng: np.random.Generator) -> None:
    torch = bring("torch")
    kept = torch.backends.cuda.matmul.allow_tf32
    for shape in ((200, 300, 100), (512, 4096, 256), (1024, 1024, 1024)):
        m, k, n = shape
        a, b = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n)))
        wanted = a.astype(np.float64) @ b.astype(np.float64)

        def error(found: Any, wanted: np.ndarray = wanted) -> float:
            return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))

        x, y = cukern.asarray(a), cukern.asarray(b)
        try:
            torch.backends.cuda.matmul.allow_tf32 = True
            theirs = error((torch.from_dlpack(x) @ torch.from_dlpack(y)).cpu().numpy())
        finally:
            torch.backends.cuda.matmul.allow_tf32 = kept
        plain = [error(cukern.asnumpy(cukern.matmul(x, y, kernel=kernel))) for kernel in ("tiled", "cublas")]
        highest = max(plain)
        for options in ({"kernel": "auto"}, {"kernel": "cublas"}, {"bias": cukern.zeros(n, "f4")}):
            ours = error(cukern.asnumpy(cukern.matmul(x, y, precision="tf32", **options)))
            assert ours <= 1.5 * theirs, (shape, options)
            if "kernel" not in options or options["kernel"] == "cublas":  # auto has small ones by a kernel of its own
                assert ours > 30 * highest, (shape, options)  # factors of 11 bits, where float32 has 24


@pytest.mark.parametrize("dtype", FUSED, ids=str)
def test_more_layouts_than_choices_are_kept(dtype: np.dtype, rng: np.random.Generator) -> None:
    """cuBLASLt's choices are kept for 64 layouts: what comes back later is chosen anew, and right."""
    sides = [(8 + 8 * (k % 9), 16 + 4 * k, 8 + 8 * (k // 9)) for k in range(90)]
    arrays = [[numbers(rng, s, dtype) for s in ((m, k), (k, n), (n,))] for m, k, n in sides]
    for _ in range(2):
        for a, b, bias in arrays:
            own = [cukern.asarray(x) for x in (a, b, bias)]
            found = cukern.asnumpy(cukern.matmul(own[0], own[1], bias=own[2], activation="relu", kernel="cublas"))
            wanted, bound = fused_product(a, b, bias=bias, activation="relu")
            assert (abs(found.astype(np.float64) - wanted) <= bound).all()


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("recorder", ["cukern", "torch", "cupy"])
def test_graphs(recorder: str, dtype: np.dtype, rng: np.random.Generator) -> None:
    """Captured products, batches and epilogues compute from what the operands hold when the graph is launched."""
    a, b, c, bias = (
        random_array(rng, s, np.dtype("f4")).astype(dtype) for s in ((3, 40, 64), (3, 64, 48), (40, 48), (48,))
    )
    x, y, z, w = (cukern.asarray(array) for array in (a, b, c, bias))
    calls: list[tuple[Any, dict[str, Any], dict[str, Any]]] = [
        (lambda v: v[0], {}, {}),
        (lambda v: v, {}, {}),
        (lambda v: v[0], {"alpha": 2, "c": z, "beta": 0.5}, {"alpha": 2, "c": c, "beta": 0.5}),
        (lambda v: v[0], {"bias": w}, {"bias": bias}),
    ]
    if dtype.kind != "c":
        for activation in ("relu", "gelu"):
            calls.append(
                (lambda v: v[0], {"bias": w, "activation": activation}, {"bias": bias, "activation": activation})
            )
    outs = [cukern.empty((*part(x).shape[:-1], 48), dtype) for part, _, _ in calls]

    def all_of_them(stream: Any = None) -> None:
        for (part, own, _), out in zip(calls, outs, strict=True):
            cukern.matmul(part(x), part(y), out=out, kernel="cublas", stream=stream, **own)

    all_of_them()
    cukern.synchronize()
    replay: Callable[[], Any]
    if recorder == "cukern":
        with cukern.capture() as graph:
            all_of_them()
        replay = graph.launch
    elif recorder == "torch":
        torch = bring("torch")
        recorded = torch.cuda.CUDAGraph()
        with torch.cuda.graph(recorded):
            all_of_them(torch.cuda.current_stream().cuda_stream)
        replay = recorded.replay
    else:
        stream = bring("cupy").cuda.Stream(non_blocking=True)
        with stream:
            stream.begin_capture()
            try:
                all_of_them(stream.ptr)
            finally:
                taken = stream.end_capture()
        replay = taken.launch
    for _ in range(2):
        a = random_array(rng, a.shape, np.dtype("f4")).astype(dtype)
        x[...] = cukern.asarray(a)
        for out in outs:
            out.fill(0)
        cukern.synchronize()
        replay()
        cukern.synchronize()
        for (part, _, theirs), out in zip(calls, outs, strict=True):
            wanted, bound = fused_product(part(a), part(b), **theirs)
            found = cukern.asnumpy(out)
            assert (abs(found.astype(wanted.dtype) - wanted) <= bound).all()


@pytest.mark.parametrize("dtype", FUSED, ids=str)
def test_epilogues_of_many_shapes(dtype: np.dtype, rng: np.random.Generator) -> None:
    """What cuBLASLt fuses has the values of the product and its addends, rounded once."""
    for _ in range(25):
        m, k, n = (int(x) for x in np.exp2(rng.uniform(0, 9, 3)))
        a, b, c, bias = (rng.standard_normal(s).astype("f4").astype(dtype) for s in ((m, k), (k, n), (m, n), (n,)))
        x, y, z, w = (cukern.asarray(array) for array in (a, b, c, bias))
        for theirs, own in (
            ({"bias": bias, "activation": "gelu"}, {"bias": w, "activation": "gelu"}),
            ({"alpha": 0.5, "bias": bias, "activation": "relu"}, {"alpha": 0.5, "bias": w, "activation": "relu"}),
            ({"alpha": -2, "c": c, "beta": 0.25}, {"alpha": -2, "c": z, "beta": 0.25}),
        ):
            wanted, bound = fused_product(a, b, **theirs)
            for kernel in ("auto", "cublas"):
                found = cukern.asnumpy(cukern.matmul(x, y, kernel=kernel, **own))
                assert found.dtype == dtype
                assert (abs(found.astype(np.float64) - wanted) <= bound).all(), ((m, k, n), sorted(own))


@pytest.mark.parametrize("dtype", [np.dtype("float16"), BFLOAT16], ids=str)
@pytest.mark.parametrize("half", [256, 4096, 16384])
def test_parts_of_sums_are_kept_in_float32(half: int, dtype: np.dtype) -> None:
    """However k is split: a part of 16 bits, as of torch's reduced-precision reductions, would lose what remains."""
    a = np.full((16, 2 * half), 0.5, dtype)
    a[:, half:] = -0.5
    a[:, 0] = 0.5 + 2.0**-8
    b = np.ones((2 * half, 24), dtype)
    x, y = cukern.asarray(a), cukern.asarray(b)
    for options in ({}, {"bias": cukern.zeros(24, dtype)}, {"kernel": "cublas"}):
        np.testing.assert_array_equal(cukern.asnumpy(cukern.matmul(x, y, **options)).astype("f4"), 2.0**-8)


def test_cublaslt_chooses_once_a_shape(rng: np.random.Generator) -> None:
    """A choice is kept for the shape; where memory was short, it is asked for again when the pool has given back."""

    def multiply(n: int) -> int:
        before = _cukern._fault_calls("choice")
        a, bias = numbers(rng, (n, n), np.dtype("float32")), numbers(rng, (n,), np.dtype("float32"))
        result = cukern.matmul(cukern.asarray(a), cukern.asarray(a), bias=cukern.asarray(bias))
        np.testing.assert_array_equal(cukern.asnumpy(result), exact(a, a) + bias)
        return _cukern._fault_calls("choice") - before

    assert [multiply(n) for n in (344, 344, 344, 352, 344, 352)] == [1, 0, 0, 1, 0, 0]
    _cukern._inject_fault("choice", 1)
    assert [multiply(360), multiply(360)] == [2, 0]
