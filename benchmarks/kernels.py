"""Host time of a launch of one's own kernel, with all checks: beside CuPy's, cuda.core's and a bare launch."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import cupy
import numpy as np
import torch
from calls import REPEAT, N, Work, bare_launches, compare_calls, loop
from harness import Comparison, compare, device_seconds

import cukern

# Four arguments each: the kernel that cuLaunchKernel alone starts has the same.
SOURCE = """
extern "C" __global__ void add(const float *a, const float *b, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] + b[i];
}
template <typename T> __global__ void add_typed(const T *a, const T *b, T *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] + b[i];
}
__global__ void four(const float *a, const float *b, const float *c, float *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = a[i] + b[i] + c[i];
}
"""
KERNELS = 20  # that a fresh process finds in the cache

# Prints the seconds that each cached kernel takes from its constructor to its first launch's return, after one. With a
# second argument nothing can be compiled.
FRESH = """
import sys, time
import cukern
from cukern import _cukern
if len(sys.argv) > 2:
    del _cukern._compile
x = cukern.zeros(32, dtype="float32")
for i in range(int(sys.argv[1]) + 1):
    begin = time.perf_counter()
    source = f"__global__ void f(float *x) {{ x[threadIdx.x] += {i}; }}"
    cukern.RawKernel(source, "f")(1, 32, (x,))
    if i > 0:
        print(time.perf_counter() - begin)
"""


def cuda_core_launch(arrays: list[Any]) -> Callable[[int], None]:
    """Return a loop over cuda.core's launch of the same kernel, with addresses and a NumPy scalar."""
    try:
        from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch
    except ImportError:
        from cuda.core.experimental import Device, LaunchConfig, Program, ProgramOptions, launch
    device = Device()
    device.set_current()
    major, minor = device.compute_capability
    options = ProgramOptions(std="c++17", arch=f"sm_{major}{minor}")
    kernel = Program(SOURCE, code_type="c++", options=options).compile("cubin").get_kernel("add")
    a, b, out = (array.__cuda_array_interface__["data"][0] for array in arrays)
    return loop(
        "launch(stream, config, kernel, a, b, out, n)",
        launch=launch,
        stream=device.default_stream,
        config=LaunchConfig(grid=N // 256, block=256),
        kernel=kernel,
        a=a,
        b=b,
        out=out,
        n=np.int32(N),
    )


def fresh_process(*options: str) -> float:
    """Return the seconds of the kernel that takes longest in a fresh process."""
    command = [sys.executable, "-c", FRESH, str(KERNELS), *options]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    return max(float(line) for line in run.stdout.split())


def cached_kernels() -> Comparison:
    """Compare the start of a kernel from the cache with nothing."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CUKERN_CACHE_DIR"] = folder
        try:
            fresh_process()  # compiles them

            def measure(call: Callable[[int], None], _: int) -> float:
                return fresh_process("cached") if call is from_cache else 0.0

            def from_cache(_: int) -> None: ...

            def nothing(_: int) -> None: ...

            return compare(
                "RawKernel from the cache, constructor to the first launch's return, the longest of 20",
                {"cukern": from_cache, "nothing": nothing},
                kind="call",
                work=0.0,
                unit="us",
                repeat=1,
                bounds={},
                margins={"nothing": 2e-3},
                measure=measure,
            )
        finally:
            del os.environ["CUKERN_CACHE_DIR"]


def formulas() -> list[Comparison]:
    """Compare ElementwiseKernel: the device time of a large one, and the host time of a small one."""
    arguments = ("T x, T y, T z", "T w", "w = x * y + z", "multiply_add")
    own, theirs = cukern.ElementwiseKernel(*arguments), cupy.ElementwiseKernel(*arguments)
    compiled = torch.compile(lambda x, y, z, out: torch.add(x * y, z, out=out))
    n = 1 << 28
    x, y, z, w = (torch.rand(n, device="cuda") for _ in range(4))
    cx, cy, cz, cw = (cupy.asarray(tensor) for tensor in (x, y, z, w))
    own(x, y, z, w)
    assert torch.allclose(w, x * y + z)
    table, row, column = w.view(1 << 14, 1 << 14), y[: 1 << 14], y[: 1 << 14].view(-1, 1)

    def on_stream_of_torch(call: Callable[[], Any]) -> Callable[[], Any]:
        def run() -> None:
            with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
                call()

        return run

    peers = {
        "torch.compile": lambda: compiled(x, y, z, w),
        "cupy.ElementwiseKernel": on_stream_of_torch(lambda: theirs(cx, cy, cz, cw)),
    }
    bounds = {"torch.compile": 1.0, "cupy.ElementwiseKernel": 1.25}
    matrix = x.view(1 << 14, 1 << 14)
    copy = {"copy": lambda: table.copy_(matrix)}
    results = [
        compare(name, calls, kind="device", work=work * n, unit="GB/s", repeat=20, bounds=limits)
        for name, calls, work, limits in [
            ("x * y + z, 2^28 float32", {"cukern": lambda: own(x, y, z, w), **peers}, 16.0, bounds),
            ("matrix * row + 1", {"cukern": lambda: own(matrix, row, 1.0, table), **copy}, 8.0, {"copy": 0.95}),
            ("matrix * column + 1", {"cukern": lambda: own(matrix, column, 1.0, table), **copy}, 8.0, {"copy": 0.95}),
        ]
    ]
    a, b, c, out = (cukern.ones(N, dtype="float32") for _ in range(4))
    small = {
        "cukern": loop("f(a, b, c, out)", f=own, a=a, b=b, c=c, out=out),
        "cupy.ElementwiseKernel": loop("f(a, b, c, out)", f=theirs, a=cx[:N], b=cy[:N], c=cz[:N], out=cw[:N]),
    }
    bounds = {"cupy.ElementwiseKernel": 1.25}
    return [*results, *compare_calls([("ElementwiseKernel, launch", small, bounds, {})], REPEAT // 4)]


def reductions() -> list[Comparison]:
    """Compare ReductionKernel with the rate at which `sum` reads memory, and with CuPy's."""
    arguments = ("T x, T y", "T z", "(x - y) * (x - y)", "a + b", "z = sqrt(a)", "0", "distance")
    own, theirs = cukern.ReductionKernel(*arguments), cupy.ReductionKernel(*arguments)
    side = 1 << 14
    x, y = (cukern.asarray(torch.rand(side, side, device="cuda")) for _ in range(2))
    cx, cy = cupy.asarray(x), cupy.asarray(y)
    results = []
    for name, axis, bounds in [
        ("distance of two vectors", None, {"sum": 0.9}),
        ("distances of rows", 1, {"sum": 0.9}),
        ("distances of columns", 0, {}),
    ]:
        wanted = np.sqrt(np.square(cukern.asnumpy(x) - cukern.asnumpy(y)).sum(axis=axis, dtype=np.float64))
        np.testing.assert_allclose(cukern.asnumpy(own(x, y, axis=axis)), wanted, rtol=1e-4)
        calls = {
            "cukern": lambda axis=axis: own(x, y, axis=axis),
            # As many bytes: the sums of both.
            "sum": lambda axis=axis: (cukern.sum(x, axis=axis), cukern.sum(y, axis=axis)),
            "cupy.ReductionKernel": lambda axis=axis: theirs(cx, cy, axis=axis),
        }
        work = 8.0 * side * side
        results.append(compare(name, calls, kind="device", work=work, unit="GB/s", repeat=20, bounds=bounds))
    a, b, out = cukern.ones(N, dtype="float32"), cukern.zeros(N, dtype="float32"), cukern.zeros((), dtype="float32")
    small = {
        "cukern": loop("f(a, b, out)", f=own, a=a, b=b, out=out),
        "cupy.ReductionKernel": loop("f(a, b, out)", f=theirs, a=cx[0, :N], b=cy[0, :N], out=cupy.empty((), "float32")),
    }
    return [*results, *compare_calls([("ReductionKernel, launch", small, {}, {})], REPEAT // 4)]


def graphs() -> list[Comparison]:
    """Compare graphs of 1000 small adds with torch's of the same, a node, and what a launch takes of the host."""
    nodes = 1000
    a, b = (torch.rand(N, device="cuda") for _ in range(2))
    outs = [torch.empty(N, device="cuda") for _ in range(nodes)]
    own_a, own_b, *own_outs = (cukern.from_dlpack(tensor) for tensor in (a, b, *outs))
    results = []
    for name, own_out, out in [
        ("into one array", [own_outs[0]] * nodes, [outs[0]] * nodes),
        ("into an array each", own_outs, outs),
    ]:
        with cukern.capture() as own:
            for array in own_out:
                cukern.add(own_a, own_b, out=array)
        theirs = torch.cuda.CUDAGraph()
        with torch.cuda.graph(theirs):
            for tensor in out:
                torch.add(a, b, out=tensor)
        out[-1].zero_()
        own.launch(torch.cuda.current_stream())
        assert torch.equal(out[-1], a + b)

        def per_node(call: Callable[[], Any], repeat: int) -> float:
            return device_seconds(call, repeat) / nodes

        calls = {"cukern": lambda own=own: own.launch(torch.cuda.current_stream()), "torch": theirs.replay}
        results.append(
            compare(
                f"graph of 1000 adds {name}, a node",
                calls,
                kind="device",
                work=0.0,
                unit="us",
                repeat=20,
                bounds={"torch": 1.0},
                measure=per_node,
            )
        )
    with cukern.capture() as short:
        cukern.add(own_a, own_b, out=own_outs[0])
    short_theirs = torch.cuda.CUDAGraph()
    with torch.cuda.graph(short_theirs):
        torch.add(a, b, out=outs[0])
    small = {"cukern": loop("f()", f=short.launch), "torch": loop("f()", f=short_theirs.replay)}
    return [*results, *compare_calls([("graph of one add, launch", small, {}, {})], REPEAT // 4)]


def fused() -> list[Comparison]:
    """Compare functions that are fused with copies of as many bytes."""

    @cukern.fuse
    def six(x: Any, y: Any, z: Any) -> Any:
        return cukern.maximum(cukern.sqrt(abs(x - y)) * 2 + z, 0)

    side = 1 << 14
    x, y, z = (torch.rand(side, side, device="cuda") for _ in range(3))
    row, column, short = y[0].contiguous(), z[:, :1].contiguous(), x.to(torch.float16)
    wanted = torch.sqrt((x - y).abs()) * 2 + z
    assert torch.allclose(six(x, y, z), wanted, rtol=1e-5)
    ax, ay, az, arow, acolumn, ashort = (cukern.asarray(each) for each in (x, y, z, row, column, short))
    n = side * side
    results = []
    for name, arguments, size in [
        ("contiguous", (ax, ay, az), 16),
        ("matrix, row, column", (ax, arow, acolumn), 8),
        ("float32, float16, number", (ax, ashort, 1.0), 10),
    ]:
        source = torch.empty(size * n // 2, dtype=torch.uint8, device="cuda")
        target = torch.empty_like(source)
        calls = {
            "cukern": lambda arguments=arguments: six(*arguments),
            "copy": lambda target=target, source=source: target.copy_(source),
        }
        results.append(
            compare(
                f"fuse of six operations: {name}",
                calls,
                kind="device",
                work=float(size * n),
                unit="GB/s",
                repeat=20,
                bounds={"copy": 0.95},
            )
        )
    return results


def run() -> list[Comparison]:
    """Run all comparisons of this file."""
    assert cukern.backend() == "cuda"
    tensors = [torch.rand(N, device="cuda") for _ in range(4)]
    own = [cukern.copy(tensor) for tensor in tensors]
    foreign = [cupy.asarray(tensor) for tensor in tensors]
    module = cukern.RawModule(code=SOURCE, name_expressions=["add", "add_typed<float>", "four"])
    untyped, typed, four = (module.get_function(name) for name in ("add", "add_typed<float>", "four"))
    call, call_four = "f((4,), (256,), (a, b, out, 1024))", "f((4,), (256,), (a, b, c, out))"

    def launch(kernel: Any, arrays: list[Any]) -> Callable[[int], None]:
        return loop(call, f=kernel, a=arrays[0], b=arrays[1], out=arrays[3])

    def launch_four(arrays: list[Any]) -> Callable[[int], None]:
        return loop(call_four, f=four, a=arrays[0], b=arrays[1], c=arrays[2], out=arrays[3])

    peers = {
        "cuLaunchKernel": bare_launches(),
        "cupy.RawKernel": launch(cupy.RawKernel(SOURCE, "add"), foreign),
        "cuda.core launch": cuda_core_launch([own[0], own[1], own[3]]),
    }
    bounds, margins = {"cupy.RawKernel": 1 / 0.8, "cuda.core launch": 1.0}, {"cuLaunchKernel": 1e-6}
    short = loop("f(a, b, out, 1024)", f=typed[4, 256], a=own[0], b=own[1], out=own[3])
    over = loop("f(a, b, out, 1024)", f=typed.over(N), a=own[0], b=own[1], out=own[3])
    work: list[Work] = [
        ("RawKernel, types checked", {"cukern": launch(typed, own), **peers}, bounds, margins),
        ('RawKernel, extern "C"', {"cukern": launch(untyped, own), **peers}, bounds, margins),
        ("RawKernel, k[grid, block]", {"cukern": short, **peers}, bounds, margins),
        ("RawKernel, k.over(threads)", {"cukern": over, **peers}, bounds, margins),
        (
            "RawKernel, four torch tensors",
            {"cukern": launch_four(tensors), "four Arrays": launch_four(own)},
            {},
            {"four Arrays": 1.3e-6},
        ),
        (
            "RawKernel, CuPy's arrays",
            {"cukern": launch(typed, foreign), "cupy.RawKernel": peers["cupy.RawKernel"]},
            {},
            {},
        ),
    ]
    return [*compare_calls(work, REPEAT // 2), cached_kernels(), *formulas(), *reductions(), *fused(), *graphs()]
