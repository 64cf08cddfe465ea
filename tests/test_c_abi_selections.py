"""The C ABI's where, axpy and reductions, on host memory and on device memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.ctypeslib import ndpointer
from oracles import PRODUCT_TYPES

import cukern
from cukern import _cukern

SUFFIXES = {"float32": "f32", "float64": "f64", "int32": "i32", "int64": "i64"}
REDUCTIONS = [row["name"] for row in _cukern._table if row["kind"] == "reduction"]


def function_of(name: str, dtype: np.dtype, form: str = "") -> Any:
    return getattr(ctypes.CDLL(cukern.library_path()), f"cukern_{name}_{SUFFIXES[str(dtype)]}{form}")


def last_message() -> bytes:
    class Error(ctypes.Structure):
        _fields_ = (
            ("status", ctypes.c_int),
            ("code", ctypes.c_int),
            ("name", ctypes.c_char_p),
            ("api", ctypes.c_char_p),
            ("message", ctypes.c_char_p),
        )

    last = ctypes.CDLL(cukern.library_path()).cukern_last_error
    last.restype = ctypes.POINTER(Error)
    return last().contents.message


def vector(dtype: Any) -> Any:
    return ndpointer(dtype, ndim=1, flags="C_CONTIGUOUS")


def random(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return whole numbers, whose sums are exact."""
    return rng.integers(-50, 50, shape).astype(dtype)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("dtype", PRODUCT_TYPES, ids=str)
def test_where(dtype: np.dtype, rng: np.random.Generator) -> None:
    function = function_of("where", dtype)
    function.argtypes = [vector(np.uint8), *[vector(dtype)] * 3, ctypes.c_size_t]
    for n in (0, 1, 1000, 100_001):
        condition = rng.integers(0, 3, n).astype(np.uint8)  # what is not zero holds
        a, b, out = random(rng, (n,), dtype), random(rng, (n,), dtype), np.empty(n, dtype)
        assert function(condition, a, b, out, n) == 0
        np.testing.assert_array_equal(out, np.where(condition, a, b))
    assert function_of("where", dtype)(None, None, None, None, ctypes.c_size_t(1)) == 1
    assert last_message() == b"condition is NULL"


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("dtype", PRODUCT_TYPES, ids=str)
def test_axpy(dtype: np.dtype, rng: np.random.Generator) -> None:
    function = function_of("axpy", dtype)
    factor = {"float32": ctypes.c_float, "float64": ctypes.c_double, "int32": ctypes.c_int32, "int64": ctypes.c_int64}
    function.argtypes = [factor[str(dtype)], *[vector(dtype)] * 3, ctypes.c_size_t]
    for n in (0, 1, 1000, 100_001):
        x, y = random(rng, (n,), dtype), random(rng, (n,), dtype)
        wanted = 3 * x + y
        assert function(3, x, y, y, n) == 0
        np.testing.assert_array_equal(y, wanted)


def result_type(name: str, dtype: np.dtype) -> np.dtype:
    if name in ("any", "all"):
        return np.dtype(np.uint8)
    if name in ("argmax", "argmin") or (name in ("sum", "prod") and dtype.kind == "i"):
        return np.dtype(np.int64)
    return np.dtype(np.float64) if name in ("mean", "var", "std") and dtype.kind == "i" else dtype


def assert_reduced(actual: np.ndarray, name: str, a: np.ndarray, axis: Any = None) -> None:
    wanted = getattr(np, name)(a, axis=axis)
    if name == "mean":  # the sum is exact, and rounded once when it is divided
        sums, count = a.sum(axis=axis, dtype=np.float64), a.size // max(1, np.size(wanted))
        wanted = (sums / count).astype(actual.dtype)
    if name in ("var", "std"):
        exact = getattr(np, name)(a.astype(np.longdouble), axis=axis)
        np.testing.assert_allclose(actual, exact.astype(actual.dtype), rtol=40 * np.finfo(actual.dtype).eps)
        return
    np.testing.assert_array_equal(actual, wanted)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("dtype", PRODUCT_TYPES, ids=str)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str, dtype: np.dtype, rng: np.random.Generator) -> None:
    function, target = function_of(name, dtype), result_type(name, dtype)
    function.argtypes = [vector(dtype), vector(target), ctypes.c_size_t]
    for n in (1, 1000, 100_001):
        a = random(rng, (n,), dtype) if name != "prod" else np.where(np.arange(n) % 97 == 0, 2, 1).astype(dtype)
        a = a[: 97 * 20] if name == "prod" else a
        out = np.empty(1, target)
        assert function(a, out, len(a)) == 0
        assert_reduced(out[0], name, a)
    status = function(a, out, 0)
    if name in ("max", "min", "argmax", "argmin"):
        assert status == 1
        assert last_message() == f"n is 0: {name} has no identity".encode()
    elif name not in ("mean", "var", "std"):
        assert status == 0
        assert out[0] == getattr(np, name)(a[:0])


def reduce_on_device(
    name: str, dtype: np.dtype, pointer: int, strides: tuple[int, ...], shape: tuple[int, ...], axes: tuple[int, ...]
) -> Callable[[int, int], int]:
    """Return a call of a `_dev` form that takes the result's pointer and a stream."""
    int64s, ints = ctypes.c_int64 * len(shape), ctypes.c_int * max(1, len(axes))
    function = function_of(name, dtype, "_dev")
    return lambda out, stream: function(
        ctypes.c_void_p(pointer),
        int64s(*strides),
        int64s(*shape),
        len(shape),
        ints(*axes),
        len(axes),
        ctypes.c_void_p(out),
        0,
        ctypes.c_void_p(stream),
    )


AXES = [(0,), (2,), (0, 2), (1, 2), (0, 1, 2)]


@pytest.mark.parametrize("backend", ["host"], indirect=True)
@pytest.mark.parametrize("name", ["sum", "max", "argmax", "any", "mean", "var"])
def test_reductions_of_views_on_the_host(backend: str, name: str, rng: np.random.Generator) -> None:
    for dtype in PRODUCT_TYPES:
        a = random(rng, (5, 14, 6), dtype)[:, ::2].transpose(2, 0, 1)
        strides = tuple(stride // a.itemsize for stride in a.strides)
        for axes in AXES if name != "argmax" else AXES[:2]:
            wanted = np.asarray(getattr(np, name)(a, axis=axes if name != "argmax" else axes[0]))
            out = np.empty(wanted.shape, result_type(name, dtype))
            assert reduce_on_device(name, dtype, a.ctypes.data, strides, a.shape, axes)(out.ctypes.data, 0) == 0
            assert_reduced(out, name, a, axes if name != "argmax" else axes[0])
        assert reduce_on_device(name, dtype, a.ctypes.data, strides, a.shape, (3,))(out.ctypes.data, 0) == 1
        assert last_message() == b"axes[0] is 3; expected 0 to 2"


@pytest.mark.parametrize("backend", ["host"], indirect=True)
def test_axes_are_checked(backend: str) -> None:
    a = np.ones((2, 3), np.float32)
    out = np.full(8, 7, np.float32)
    function = function_of("sum", a.dtype, "_dev")
    ints = ctypes.c_int * 3
    cases = [
        (None, 1, b"axes is null, and num_axes is 1"),
        (None, -1, b"num_axes is -1; expected 0 to 2"),
        (ints(0, 1, 0), 3, b"num_axes is 3; expected 0 to 2"),
        (ints(1, 1, 0), 2, b"axes[1] is 1, which is given twice"),
        (ints(-1, 0, 0), 1, b"axes[0] is -1; expected 0 to 1"),
    ]
    for axes, number, message in cases:
        shape, strides = (ctypes.c_int64 * 2)(2, 3), (ctypes.c_int64 * 2)(3, 1)
        data, result = ctypes.c_void_p(a.ctypes.data), ctypes.c_void_p(out.ctypes.data)
        status = function(data, strides, shape, 2, axes, number, result, 0, ctypes.c_void_p(0))
        assert (status, last_message()) == (1, message)
        assert (out == 7).all()
    assert function(data, strides, shape, 2, None, 0, result, 0, ctypes.c_void_p(0)) == 0
    assert out.tolist() == [1] * 6 + [7] * 2


@pytest.mark.parametrize("backend", [pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True)
@pytest.mark.parametrize("name", ["sum", "max", "argmax", "any", "mean"])
def test_reductions_of_views_on_the_gpu(backend: str, name: str, rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for dtype in PRODUCT_TYPES:
            base = random(rng, (5, 14, 6), dtype)
            a = base[:, ::2].transpose(2, 0, 1)
            x = torch.asarray(base, device="cuda")[:, ::2].permute(2, 0, 1)
            for axes in AXES if name != "argmax" else AXES[:2]:
                axis = axes if name != "argmax" else axes[0]
                shape = np.asarray(getattr(np, name)(a, axis=axis)).shape
                out = torch.empty(shape, device="cuda", dtype=getattr(torch, str(result_type(name, dtype))))
                call = reduce_on_device(name, dtype, x.data_ptr(), x.stride(), tuple(x.shape), axes)
                assert call(out.data_ptr(), stream.cuda_stream) == 0
                assert_reduced(out.cpu().numpy(), name, a, axis)


@pytest.mark.parametrize("backend", ["host", pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True)
def test_an_index_over_several_axes_counts_in_c_order(backend: str) -> None:
    """Of equal elements it is the first one's, also where rows of the second axis are read together."""
    base = np.zeros((2, 65, 1024), np.float32)
    base[0, 32] = base[1, 0] = 1
    strides, shape = (65 * 1024, 1024, 1), (2, 64, 1024)
    out = np.empty(1024, np.int64)
    if backend == "host":
        call = reduce_on_device("argmax", base.dtype, base.ctypes.data, strides, shape, (0, 1))
        assert call(out.ctypes.data, 0) == 0
    else:
        torch = pytest.importorskip("torch")
        x, found = torch.asarray(base, device="cuda"), torch.empty(1024, device="cuda", dtype=torch.int64)
        stream = torch.cuda.current_stream().cuda_stream
        call = reduce_on_device("argmax", base.dtype, x.data_ptr(), strides, shape, (0, 1))
        assert call(found.data_ptr(), stream) == 0
        out = found.cpu().numpy()
    assert (out == 32).all()
