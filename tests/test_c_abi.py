"""The C ABI, called with ctypes on host memory and on device memory, and from a C program."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cases import each
from conftest import STAGED, takes_few, use
from numpy.ctypeslib import ndpointer
from oracles import PRODUCT_TYPES, assert_result, product_bound, refusal

import cukern
from cukern import _cukern

ROOT = Path(__file__).resolve().parent.parent
SUFFIXES = {"float32": "f32", "float64": "f64", "int32": "i32", "int64": "i64"}
ROWS = [row for row in _cukern._table if row["kind"] in ("binary", "unary")]


class Error(ctypes.Structure):
    """cukern_error."""

    _fields_ = (
        ("status", ctypes.c_int),
        ("code", ctypes.c_int),
        ("name", ctypes.c_char_p),
        ("api", ctypes.c_char_p),
        ("message", ctypes.c_char_p),
    )


@pytest.fixture
def library() -> ctypes.CDLL:
    """The shared object, with the signatures of its helpers."""
    library = ctypes.CDLL(cukern.library_path())
    library.cukern_status_string.restype = ctypes.c_char_p
    library.cukern_backend.restype = ctypes.c_char_p
    library.cukern_last_error.restype = ctypes.POINTER(Error)
    return library


def vector(dtype, *flags: str):
    return ndpointer(dtype, ndim=1, flags=("C_CONTIGUOUS", *flags))


def result_of(row: dict[str, str], dtype: np.dtype) -> np.dtype:
    """Return the element type of a row's result; a bool is a byte."""
    if row["rule"] in ("boolean", "test", "sign", "logical"):
        return np.dtype(np.uint8)
    return np.dtype(np.float64) if row["rule"] in ("floating", "sized") and dtype.kind == "i" else dtype


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
@each("dtype", PRODUCT_TYPES)
def test_rows(library: ctypes.CDLL, row: dict[str, str], dtype: np.dtype, rng: np.random.Generator) -> None:
    target = result_of(row, dtype)
    count = 1 if row["kind"] == "unary" else 2
    function = getattr(library, f"cukern_{row['name']}_{SUFFIXES[str(dtype)]}")
    function.argtypes = [*[vector(dtype)] * count, vector(target, "WRITEABLE"), ctypes.c_size_t]
    for n in (0, 1, 1000) if takes_few() else (0, 1, 1000, 100_001):
        operands = [(rng.standard_normal(n) * 1000).astype(dtype) for _ in range(count)]
        out = np.empty(n, target)
        status = function(*operands, out, n)
        if refusal(row["name"], *operands) is not None:
            assert status == 5
            assert library.cukern_last_error().contents.message.endswith(f"for element type {dtype}".encode())
            return
        assert status == 0
        assert target != np.uint8 or (out <= 1).all()
        assert_result(out.view(bool) if target == np.uint8 else out, row["name"], *operands)
    if target == dtype:
        wanted = out.copy()
        assert function(*operands, operands[0], n) == 0
        np.testing.assert_array_equal(operands[0], wanted)


@pytest.mark.usefixtures("backend")
def test_scale(library: ctypes.CDLL) -> None:
    a = np.arange(5, dtype=np.float32)
    library.cukern_scale_f32.argtypes = [vector(a.dtype), ctypes.c_float, vector(a.dtype), ctypes.c_size_t]
    assert library.cukern_scale_f32(a, 2.5, a, 5) == 0
    assert a.tolist() == [0, 2.5, 5, 7.5, 10]


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("name", ["matmul", "matmul_tiled", "matmul_cublas"])
@pytest.mark.parametrize("dtype", [np.dtype(np.float32), np.dtype(np.float64)], ids=str)
def test_products(library: ctypes.CDLL, name: str, dtype: np.dtype, rng: np.random.Generator) -> None:
    if name == "matmul_cublas" and cukern.backend() == "cuda":
        cukern.matmul_cublas(np.ones((2, 2)), np.ones((2, 2)))  # finds the library; a C program gives its path
    a, b = rng.standard_normal((70, 50)).astype(dtype), rng.standard_normal((50, 90)).astype(dtype)
    out = np.empty((70, 90), dtype)
    function = getattr(library, f"cukern_{name}_{SUFFIXES[str(dtype)]}")
    function.argtypes = [ndpointer(dtype, ndim=2, flags="C_CONTIGUOUS")] * 3 + [ctypes.c_int64] * 3
    assert function(a, b, out, 70, 50, 90) == 0
    assert (abs(out - a @ b) <= 2 * product_bound(a, b, dtype)).all()


def test_status_strings(library: ctypes.CDLL) -> None:
    texts = [library.cukern_status_string(status) for status in range(10)]
    assert texts[0] == b"success"
    assert len(set(texts)) == 10
    assert library.cukern_status_string(99) == b"unknown status"


@pytest.mark.usefixtures("backend")
def test_errors(library: ctypes.CDLL) -> None:
    a = np.arange(10, dtype=np.float32)
    pointer = a.ctypes.data_as(ctypes.c_void_p)
    shifted = ctypes.c_void_p(a.ctypes.data + 4)
    n = ctypes.c_size_t(9)
    cases = [
        (library.cukern_add_f32(None, pointer, pointer, n), b"a is NULL"),
        (library.cukern_add_f32(pointer, pointer, None, n), b"out is NULL"),
        (library.cukern_add_f32(pointer, pointer, shifted, n), b"out overlaps a"),
        (
            library.cukern_add_f32(pointer, pointer, pointer, ctypes.c_size_t(2**62)),
            b"n is 4611686018427387904",
        ),
        (library.cukern_matmul_f32(pointer, shifted, pointer, *[ctypes.c_int64(1)] * 3), b"out overlaps a"),
        (library.cukern_matmul_f32(pointer, pointer, pointer, *[ctypes.c_int64(-1)] * 3), b"negative length"),
        (library.cukern_add_f32_dev(*[pointer] * 6, pointer, 65, 0, None), b"ndim is 65; expected 0 to 64"),
        (library.cukern_add_f32_dev(*[pointer] * 6, None, 1, 0, None), b"the shape of a is NULL"),
    ]
    for status, _ in cases:
        assert status == 1
    status = library.cukern_add_f32(pointer, pointer, shifted, n)
    error = library.cukern_last_error().contents
    assert (error.status, error.code, error.name, error.api) == (status, 0, b"", b"")
    assert error.message == b"out overlaps a"
    assert a.tolist() == list(range(10))


def test_messages(library: ctypes.CDLL) -> None:
    a = (ctypes.c_float * 4)()
    assert library.cukern_add_f32(None, a, a, ctypes.c_size_t(4)) == 1
    assert library.cukern_last_error().contents.message == b"a is NULL"
    odd = ctypes.c_void_p(ctypes.addressof(a) + 2)
    assert library.cukern_add_f32(a, odd, a, ctypes.c_size_t(3)) == 1
    assert library.cukern_last_error().contents.message == b"b is not aligned to its elements of 4 bytes"
    shape = (ctypes.c_int64 * 1)(-3)
    assert library.cukern_add_f32_dev(a, shape, a, shape, a, shape, shape, 1, 0, None) == 1
    assert b"the shape of a has a negative length" in library.cukern_last_error().contents.message


@pytest.mark.parametrize("backend", STAGED, indirect=True)
def test_cuda_errors_have_code_name_and_call(backend: str, library: ctypes.CDLL) -> None:
    a = (ctypes.c_float * 4)()
    _cukern._inject_fault("launch", 1)
    assert library.cukern_add_f32(a, a, a, ctypes.c_size_t(4)) == 3
    error = library.cukern_last_error().contents
    assert (error.code, error.name, error.api) == (999, b"cudaErrorUnknown", b"cudaLaunchKernel")


def int64s(*values: int):
    return (ctypes.c_int64 * max(1, len(values)))(*values)


def device_call(library: ctypes.CDLL, name: str, arrays, shape, stream=None, device: int = 0) -> int:
    """Call a `_dev` form on (pointer, strides) pairs."""
    arguments = []
    for pointer, strides in arrays:
        arguments += [ctypes.c_void_p(pointer), int64s(*strides)]
    return getattr(library, name)(*arguments, int64s(*shape), len(shape), device, ctypes.c_void_p(stream or 0))


@pytest.mark.parametrize("backend", ["host"], indirect=True)
def test_dev_forms_on_the_host(backend: str, library: ctypes.CDLL, rng: np.random.Generator) -> None:
    a, b = rng.random((4, 6)), rng.random((6, 4))
    out = np.empty((4, 3))
    views = [a[:, ::2], b.T[::-1, ::2]]
    arrays = [(view.ctypes.data, [s // 8 for s in view.strides]) for view in [*views, out]]
    assert device_call(library, "cukern_subtract_f64_dev", arrays, out.shape) == 0
    np.testing.assert_array_equal(out, views[0] - views[1])
    assert device_call(library, "cukern_subtract_f64_dev", arrays, out.shape, device=3) == 1
    assert b"device 3 does not exist" in library.cukern_last_error().contents.message


@pytest.mark.gpu
@pytest.mark.parametrize("backend", [pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True)
def test_dev_forms_on_the_gpu(backend: str, library: ctypes.CDLL) -> None:
    torch = pytest.importorskip("torch")
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for dtype, suffix in ((torch.float32, "f32"), (torch.float64, "f64")):
            a, b = (torch.randn(40, 50, device="cuda", dtype=dtype) for _ in range(2))
            out = torch.full((50, 40), 9, device="cuda", dtype=dtype)[::1, :20]
            views = [a.T[:, ::2], b.T[:, 1::2], out]
            arrays = [(view.data_ptr(), view.stride()) for view in views]
            assert device_call(library, f"cukern_add_{suffix}_dev", arrays, out.shape, stream.cuda_stream) == 0
            assert torch.equal(out, views[0] + views[1])
            for name in ("matmul", "matmul_tiled", "matmul_cublas"):
                for x, y in ((a, b.T), (a.T, b), (a[:, 1:], b[:, :-1].T), (a[:, ::2], b[:, ::2].T)):
                    product = torch.empty((y.shape[1], x.shape[0]), device="cuda", dtype=dtype).T
                    sizes = [ctypes.c_int64(n) for n in (x.shape[0], x.shape[1], y.shape[1])]
                    pointers = []
                    for view in (x, y, product):
                        pointers += [ctypes.c_void_p(view.data_ptr()), int64s(*view.stride())]
                    function = getattr(library, f"cukern_{name}_{suffix}_dev")
                    assert function(*pointers, *sizes, 0, ctypes.c_void_p(stream.cuda_stream)) == 0
                    bound = product_bound(x.cpu().numpy(), y.cpu().numpy(), np.dtype(str(dtype)[6:]))
                    wanted = (x.double() @ y.double()).cpu().numpy()
                    assert (abs(product.cpu().numpy() - wanted) <= 2 * bound).all()


@pytest.mark.gpu
def test_cublas_keeps_one_handle_and_workspace_a_stream() -> None:
    torch = pytest.importorskip("torch")
    use("cuda")
    a = np.ones((64, 64), np.float32)

    def used() -> int:
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        return total - free

    for _ in range(3):
        cukern.matmul_cublas(a, a)
    before = used()
    for _ in range(100):
        cukern.matmul_cublas(a, a)
    assert used() == before


@pytest.mark.gpu
@pytest.mark.provokes_cuda_error
def test_dev_forms_leave_the_current_device_alone(library: ctypes.CDLL) -> None:
    torch = pytest.importorskip("torch")
    use("cuda")
    a = torch.ones(8, device="cuda")
    before = torch.cuda.current_device()
    arrays = [(a.data_ptr(), a.stride())] * 3
    assert device_call(library, "cukern_add_f32_dev", arrays, a.shape) == 0
    assert device_call(library, "cukern_add_f32_dev", arrays, a.shape, device=99) == 3
    error = library.cukern_last_error().contents
    assert (error.name, error.api) == (b"cudaErrorInvalidDevice", b"cuCtxPushCurrent")
    assert torch.cuda.current_device() == before
    torch.cuda.synchronize()
    assert a.tolist() == [2] * 8


PROGRAM = r"""
#include <stdio.h>
#include "cukern/cukern.h"

int main(void) {
    float a[4] = {1, 2, 3, 4}, b[4] = {10, 20, 30, 40}, out[4];
    if (cukern_add_f32(a, b, out, 4) != CUKERN_OK) {
        printf("%s\n", cukern_last_error()->message);
        return 1;
    }
    printf("%g %g %g %g\n", out[0], out[1], out[2], out[3]);
    if (cukern_matmul_f32(a, b, out, 2, 2, 2) != CUKERN_OK) return 1;
    printf("%g %g %g %g\n", out[0], out[1], out[2], out[3]);
    printf("%s\n", cukern_status_string(cukern_add_f32(NULL, b, out, 4)));
    printf("%s\n", cukern_last_error()->message);
    return cukern_backend() == NULL;
}
"""


@pytest.mark.build
def test_a_c_program_links_the_plain_library(tmp_path: Path) -> None:
    environment = {**os.environ, "CUKERN_HOST_ONLY": "1"}
    script = ROOT / "scripts/build_library.py"
    subprocess.run([sys.executable, script, tmp_path / "library"], check=True, env=environment, capture_output=True)
    source = tmp_path / "program.c"
    source.write_text(PROGRAM)
    include, lib = tmp_path / "library/include", tmp_path / "library/lib"
    command = [
        "cc",
        "-std=c99",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        source,
        f"-I{include}",
        f"-L{lib}",
    ]
    subprocess.run([*command, "-lcukern", f"-Wl,-rpath,{lib}", "-o", tmp_path / "program"], check=True)
    run = subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["11 22 33 44", "70 100 150 220", "invalid argument", "a is NULL"]
    command = ["nm", "-D", "--defined-only", lib / "libcukern.so"]
    names = subprocess.run(command, capture_output=True, text=True, check=True)
    symbols = [line.split()[-1] for line in names.stdout.splitlines()]
    assert symbols
    assert all(symbol.startswith("cukern_") for symbol in symbols)
