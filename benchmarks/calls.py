"""Host time of one call on small arrays: cukern on arrays of each library, the libraries themselves, a bare launch."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cupy
import torch
from harness import Comparison, compare

import cukern

N = 1024
REPEAT = 10000
# Calls that are timed in a row. A stream holds some 1,000 launches that have not begun: beyond them a call waits for
# the device, and what is timed is its kernels.
BURST = 500
TURNS = 10

BARE = """
#include <cuda.h>
#include <cuda_runtime.h>
__global__ void add(const float *a, const float *b, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] + b[i];
}
using Launch = CUresult(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                        void **, void **);
extern "C" int run(const float *a, const float *b, float *out, int n, int times) {
    cudaFunction_t function;
    void *launch;
    cudaDriverEntryPointQueryResult found;
    if (cudaGetFuncBySymbol(&function, (const void *)add)) return -1;
    if (cudaGetDriverEntryPointByVersion("cuLaunchKernel", &launch, 12000, cudaEnableDefault, &found)) return -2;
    void *parameters[] = {&a, &b, &out, &n};
    for (int i = 0; i < times; ++i) {
        int error = ((Launch *)launch)((CUfunction)function, (n + 255) / 256, 1, 1, 256, 1, 1, 0, nullptr, parameters,
                                       nullptr);
        if (error) return error;
    }
    return 0;
}
"""


def bare_launches() -> Callable[[int], None]:
    """Compile a loop over cuLaunchKernel; return a call that runs it so many times."""
    folder = Path(tempfile.mkdtemp())
    (folder / "bare.cu").write_text(BARE)
    command = ["nvcc", "-O3", "-arch=native", "-shared", "-Xcompiler=-fPIC", "-cudart=shared"]
    subprocess.run([*command, "-o", folder / "bare.so", folder / "bare.cu"], check=True)
    library = ctypes.CDLL(str(folder / "bare.so"))
    a, b, out = (torch.rand(N, device="cuda") for _ in range(3))
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (a, b, out)]

    def run(times: int) -> None:
        error = library.run(*pointers, N, times)
        assert error == 0, error

    run.kept = (a, b, out)  # type: ignore[attr-defined]
    return run


def loop(statement: str, **names: Any) -> Callable[[int], None]:
    """Return a loop over a Python statement, so that no other call of Python's is timed with it."""
    space: dict[str, Any] = {}
    exec(f"def run(times, {', '.join(names)}):\n    for _ in range(times):\n        {statement}\n", space)
    return lambda times: space["run"](times, **names)


def seconds_per_call(run: Callable[[int], None], repeat: int) -> float:
    """Time a loop on the host, warm, in bursts that the stream's queue holds, if a call launches one kernel."""
    bursts = max(1, repeat // BURST)
    run(BURST)
    torch.cuda.synchronize()
    elapsed = 0.0
    for _ in range(bursts):
        begin = time.perf_counter()
        run(BURST)
        elapsed += time.perf_counter() - begin
        torch.cuda.synchronize()
    return elapsed / (bursts * BURST)


Work = tuple[str, dict[str, Callable[[int], None]], dict[str, float], dict[str, float]]  # with bounds and margins


def compare_calls(work: list[Work], repeat: int) -> list[Comparison]:
    """Compare the host time of calls on arrays of N float32, after all of them have been warmed up."""
    for _, calls, _, _ in work:
        for call in calls.values():
            seconds_per_call(call, repeat)
    return [
        compare(
            name,
            calls,
            kind="call",
            work=12.0 * N,
            unit="us",
            repeat=repeat,
            bounds=bounds,
            margins=margins,
            measure=seconds_per_call,
            turns=TURNS,
        )
        for name, calls, bounds, margins in work
    ]


def run() -> list[Comparison]:
    """Run all comparisons of this file."""
    assert cukern.backend() == "cuda"
    bare = bare_launches()
    ta, tb, tout = (torch.rand(N, device="cuda") for _ in range(3))
    ca, cb, cout = (cupy.asarray(tensor) for tensor in (ta, tb, tout))
    a, b, out = (cukern.copy(tensor) for tensor in (ta, tb, tout))
    cukern.add(ta, tb, out=tout)
    assert torch.equal(tout, ta + tb)

    def own(a: Any, b: Any) -> Callable[[int], None]:
        return loop("add(a, b)", add=cukern.add, a=a, b=b)

    def own_out(a: Any, b: Any, out: Any) -> Callable[[int], None]:
        return loop("add(a, b, out=out)", add=cukern.add, a=a, b=b, out=out)

    torch_sum = loop("a + b", a=ta, b=tb)
    cupy_sum = loop("a + b", a=ca, b=cb)
    torch_out = loop("add(a, b, out=out)", add=torch.add, a=ta, b=tb, out=tout)
    cupy_out = loop("add(a, b, out=out)", add=cupy.add, a=ca, b=cb, out=cout)
    torch_fresh = 1 / 0.9
    work: list[Work] = [
        (
            "add on Array, out=",
            {"cukern": own_out(a, b, out), "cuLaunchKernel": bare},
            {},
            {"cuLaunchKernel": 0.2e-6},
        ),
        (
            "add on torch tensors, out=",
            {"cukern": own_out(ta, tb, tout), "torch.add": torch_out},
            {"torch.add": 1 / 0.7},
            {},
        ),
        ("add on CuPy arrays, out=", {"cukern": own_out(ca, cb, cout), "cupy.add": cupy_out}, {"cupy.add": 1.0}, {}),
        (
            "add on Array, fresh result",
            {"cukern": own(a, b), "cuLaunchKernel": bare, "torch a + b": torch_sum, "cupy a + b": cupy_sum},
            {"torch a + b": 1 / 0.7},
            {"cuLaunchKernel": 0.35e-6},
        ),
        (
            "a + b on Array",
            {"cukern": loop("a + b", a=a, b=b), "cuLaunchKernel": bare, "torch a + b": torch_sum},
            {},
            {"cuLaunchKernel": 0.35e-6},
        ),
        (
            "add on torch tensors, fresh result",
            {"cukern": own(ta, tb), "torch a + b": torch_sum},
            {"torch a + b": torch_fresh},
            {},
        ),
        ("add on CuPy arrays, fresh result", {"cukern": own(ca, cb), "cupy a + b": cupy_sum}, {}, {}),
        (
            "zeros(1024)",
            {
                "cukern": loop("zeros(1024)", zeros=cukern.zeros),
                "cupy.zeros": loop("zeros(1024)", zeros=cupy.zeros),
                "torch.zeros": loop("zeros(1024, device='cuda')", zeros=torch.zeros),
            },
            {"cupy.zeros": 1.0},
            {},
        ),
        (
            "from_dlpack of a torch tensor",
            {
                "cukern": loop("from_dlpack(a)", from_dlpack=cukern.from_dlpack, a=ta),
                "empty loop": loop("pass"),
                "cupy.from_dlpack": loop("from_dlpack(a)", from_dlpack=cupy.from_dlpack, a=ta),
            },
            {},
            {"empty loop": 1e-6},
        ),
    ]
    return compare_calls(work, REPEAT)
