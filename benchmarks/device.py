"""Device time through the C ABI's `_dev` forms, against bare cuBLAS, a plain float4 kernel, and torch."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import cupy
import torch
from harness import Comparison, compare

import cukern

LIBRARY = ctypes.CDLL(cukern.library_path())
LIBRARY.cukern_last_error.restype = ctypes.POINTER(
    type(
        "Error",
        (ctypes.Structure,),
        {
            "_fields_": [
                ("status", ctypes.c_int),
                ("code", ctypes.c_int),
                ("name", ctypes.c_char_p),
                ("api", ctypes.c_char_p),
                ("message", ctypes.c_char_p),
            ]
        },
    )
)

FLOAT4_ADD = r"""
extern "C" __global__ void add4(const float4 *a, const float4 *b, float4 *out, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) {
        float4 x = a[i], y = b[i];
        out[i] = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
    }
}
"""


def checked(status: int) -> None:
    """Raise what the C ABI reports."""
    if status:
        raise RuntimeError(LIBRARY.cukern_last_error().contents.message.decode())


def stream() -> ctypes.c_void_p:
    """Return torch's current stream."""
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)


def int64s(*values: int) -> Any:
    """Return values as an array of int64_t."""
    return (ctypes.c_int64 * len(values))(*values)


def suffix(tensor: torch.Tensor) -> str:
    """Return the C ABI's name of an element type."""
    return {torch.float32: "f32", torch.float64: "f64"}[tensor.dtype]


def pointer(tensor: torch.Tensor) -> ctypes.c_void_p:
    """Return a tensor's address."""
    return ctypes.c_void_p(tensor.data_ptr())


def add_caller(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> Callable[[], None]:
    """Return a call of cukern_add_*_dev on three tensors of one shape."""
    function = getattr(LIBRARY, f"cukern_add_{suffix(a)}_dev")
    strides = [int64s(*tensor.stride()) for tensor in (a, b, out)]
    shape = int64s(*out.shape)
    arguments = (
        pointer(a),
        strides[0],
        pointer(b),
        strides[1],
        pointer(out),
        strides[2],
        shape,
        out.ndim,
        0,
        stream(),
    )
    return lambda: checked(function(*arguments))


def matmul_caller(name: str, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> Callable[[], None]:
    """Return a call of one of the products on three matrices."""
    function = getattr(LIBRARY, f"cukern_{name}_{suffix(a)}_dev")
    arguments = (
        pointer(a),
        int64s(*a.stride()),
        pointer(b),
        int64s(*b.stride()),
        pointer(out),
        int64s(*out.stride()),
        *(ctypes.c_int64(n) for n in (a.shape[0], a.shape[1], b.shape[1])),
        0,
        stream(),
    )
    return lambda: checked(function(*arguments))


class BareCublas:
    """cublas<T>gemm called directly, with a handle and workspace of its own."""

    def __init__(self) -> None:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        self.library = ctypes.CDLL(load_nvidia_dynamic_lib("cublas").abs_path)
        self.handle = ctypes.c_void_p()
        assert self.library.cublasCreate_v2(ctypes.byref(self.handle)) == 0
        self.workspace = torch.empty(32 << 20, dtype=torch.uint8, device="cuda")
        assert self.library.cublasSetStream_v2(self.handle, stream()) == 0
        size = ctypes.c_size_t(self.workspace.numel())
        assert self.library.cublasSetWorkspace_v2(self.handle, pointer(self.workspace), size) == 0

    def caller(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> Callable[[], None]:
        """Return a call for contiguous matrices: column-major, out' = b' @ a'."""
        scalar = ctypes.c_float if a.dtype == torch.float32 else ctypes.c_double
        function = self.library.cublasSgemm_v2 if a.dtype == torch.float32 else self.library.cublasDgemm_v2
        one, zero = scalar(1), scalar(0)
        (m, k), n = a.shape, b.shape[1]
        arguments = (
            self.handle,
            0,
            0,
            n,
            m,
            k,
            ctypes.byref(one),
            pointer(b),
            n,
            pointer(a),
            k,
            ctypes.byref(zero),
            pointer(out),
            n,
        )
        return lambda: self._checked(function(*arguments))

    @staticmethod
    def _checked(status: int) -> None:
        assert status == 0, f"cuBLAS status {status}"


def adds() -> list[Comparison]:
    """Compare contiguous adds of 1 GiB arrays."""
    n = 1 << 28
    a, b = (torch.rand(n, device="cuda") for _ in range(2))
    out = torch.empty_like(a)
    kernel = cupy.RawKernel(FLOAT4_ADD, "add4")
    arguments = tuple(cupy.asarray(tensor) for tensor in (a, b, out))
    torch_stream = cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)

    def float4() -> None:
        with torch_stream:
            kernel((n // 4 // 256,), (256,), (*arguments, n // 4))

    call = add_caller(a, b, out)
    call()
    assert torch.equal(out, a + b)
    contestants = {
        "cukern_add_f32_dev": call,
        "float4 kernel": float4,
        "torch.add": lambda: torch.add(a, b, out=out),
    }
    return [
        compare(
            "add, 2^28 float32",
            contestants,
            kind="device",
            work=12.0 * n,
            unit="GB/s",
            repeat=20,
            bounds={"float4 kernel": 0.95},
        )
    ]


def check_product(out: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
    """Compare with float64 by the relative Frobenius error: float32 lands near 1e-6, TF32 near 3e-4."""
    wanted = a.double() @ b.double()
    error = float(torch.linalg.norm(out.double() - wanted) / torch.linalg.norm(wanted))
    limit = 1e-5 if a.dtype == torch.float32 else 1e-13
    assert error < limit, f"relative error {error}"


def products() -> list[Comparison]:
    """Compare products with bare cuBLAS: device time."""
    bare = BareCublas()
    results = []
    for dtype in (torch.float32, torch.float64):
        for n in (256, 512, 1024, 2048, 4096, 8192):
            a, b = (torch.randn(n, n, device="cuda", dtype=dtype) for _ in range(2))
            out = torch.empty_like(a)
            for name, bound in (("matmul_cublas", 0.97), ("matmul_tiled", 0.5)):
                call = matmul_caller(name, a, b, out)
                call()
                check_product(out, a, b)
                bounds = {"bare cuBLAS": bound} if n >= 4096 else {}
                results.append(
                    compare(
                        f"{name}, {n}, {str(dtype)[6:]}",
                        {f"cukern_{name}_dev": call, "bare cuBLAS": bare.caller(a, b, out)},
                        kind="device",
                        work=2.0 * n**3,
                        unit="TFLOP/s",
                        repeat=max(2, min(50, 4096**3 // n**3)),
                        bounds=bounds,
                    )
                )
    return results


def small_products() -> list[Comparison]:
    """Compare host time per call of small products: where does cuBLAS begin to pay?"""
    results = []
    for n in (32, 64, 128, 192, 256):
        a, b = (torch.randn(n, n, device="cuda") for _ in range(2))
        out = torch.empty_like(a)
        contestants = {name: matmul_caller(name, a, b, out) for name in ("matmul_tiled", "matmul_cublas")} | {
            "torch.mm": lambda a=a, b=b, out=out: torch.mm(a, b, out=out)
        }
        results.append(
            compare(f"small product, {n}", contestants, kind="device", work=2.0 * n**3, unit="us", repeat=200)
        )
    return results


def run() -> list[Comparison]:
    """Run all comparisons of this file."""
    assert cukern.backend() == "cuda"
    return [*adds(), *products(), *small_products()]
