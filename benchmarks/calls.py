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
REPEAT = 400

BARE = """
#include <cuda_runtime.h>
__global__ void add(const float *a, const float *b, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] + b[i];
}
extern "C" int run(const float *a, const float *b, float *out, int n, int times) {
    for (int i = 0; i < times; ++i) add<<<(n + 255) / 256, 256>>>(a, b, out, n);
    return cudaGetLastError();
}
"""


def bare_launches() -> Callable[[int], None]:
    """Compile a loop of launches; return a call that runs it so many times."""
    folder = Path(tempfile.mkdtemp())
    (folder / "bare.cu").write_text(BARE)
    command = ["nvcc", "-O3", "-arch=native", "-shared", "-Xcompiler=-fPIC", "-cudart=shared"]
    subprocess.run([*command, "-o", folder / "bare.so", folder / "bare.cu"], check=True)
    library = ctypes.CDLL(str(folder / "bare.so"))
    a, b, out = (torch.rand(N, device="cuda") for _ in range(3))
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (a, b, out)]

    def run(times: int) -> None:
        assert library.run(*pointers, N, times) == 0

    run.kept = (a, b, out)  # type: ignore[attr-defined]
    return run


def seconds_per_launch(run: Callable[[int], None]) -> Callable[[Any, int], float]:
    """Return a measure that times whole loops where the contestant is the bare one."""

    def measure(call: Any, repeat: int) -> float:
        torch.cuda.synchronize()
        begin = time.perf_counter()
        if call is run:
            run(repeat)
        else:
            for _ in range(repeat):
                call()
        elapsed = time.perf_counter() - begin
        torch.cuda.synchronize()
        return elapsed / repeat

    return measure


def run() -> list[Comparison]:
    """Run all comparisons of this file."""
    assert cukern.backend() == "cuda"
    bare = bare_launches()
    measure = seconds_per_launch(bare)
    a, b, out = (cukern.asarray(torch.rand(N, device="cuda")) for _ in range(3))
    a, b, out = (cukern.copy(array) for array in (a, b, out))
    ta, tb, tout = (torch.rand(N, device="cuda") for _ in range(3))
    ca, cb, cout = (cupy.asarray(tensor) for tensor in (ta, tb, tout))
    cukern.add(ta, tb, out=tout)
    assert torch.equal(tout, ta + tb)
    work: list[tuple[str, dict[str, Callable[..., Any]], dict[str, float]]] = [
        (
            "add on Array, out=",
            {"cukern": lambda: cukern.add(a, b, out=out), "bare launch": bare},
            {"bare launch": 1 / 1.15},
        ),
        (
            "add on torch tensors, out=",
            {"cukern": lambda: cukern.add(ta, tb, out=tout), "torch.add": lambda: torch.add(ta, tb, out=tout)},
            {"torch.add": 1 / 0.75},
        ),
        (
            "add on CuPy arrays, out=",
            {"cukern": lambda: cukern.add(ca, cb, out=cout), "cupy.add": lambda: cupy.add(ca, cb, out=cout)},
            {"cupy.add": 1.0},
        ),
        (
            "add on Array, fresh result",
            {"cukern": lambda: cukern.add(a, b), "torch a + b": lambda: ta + tb, "cupy a + b": lambda: ca + cb},
            {"torch a + b": 1 / 0.7},
        ),
        (
            "a + b on Array",
            {"cukern": lambda: a + b, "torch a + b": lambda: ta + tb},
            {},
        ),
        (
            "add on torch tensors, fresh result",
            {"cukern": lambda: cukern.add(ta, tb), "torch a + b": lambda: ta + tb},
            {"torch a + b": 1.0},
        ),
        (
            "add on CuPy arrays, fresh result",
            {"cukern": lambda: cukern.add(ca, cb), "cupy a + b": lambda: ca + cb},
            {},
        ),
    ]
    return [
        compare(name, calls, kind="call", work=12.0 * N, unit="us", repeat=REPEAT, bounds=bounds, measure=measure)
        for name, calls, bounds in work
    ]
