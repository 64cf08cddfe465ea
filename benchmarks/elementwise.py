"""Device time of elementwise operations on large arrays, contiguous and not, and on small ones, against torch.

Arrays have 1 GiB; rates count the bytes that each operand and the result hold.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Any

import cupy
import torch
from harness import Comparison, compare

import cukern

BYTES = 1 << 30
FLOATING = ("float16", "bfloat16", "float32", "float64")
TYPES = (*FLOATING, "bool", "int8", "int16", "int32", "int64", "uint8", "complex64", "complex128")
LAYOUT_TYPES = ("float32", "float64", "bfloat16")
REPEAT = 5

# A thread a vector of 16 bytes: what a kernel that only moves them reaches. Integers stand for 16-bit floats.
VECTOR_ADD = r"""
template <typename T> struct alignas(16) Vector { T values[16 / sizeof(T)]; };
template <typename T> __global__ void add(const Vector<T> *a, const Vector<T> *b, Vector<T> *out, long long n) {
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= n) return;
    const Vector<T> x = a[i], y = b[i];
    Vector<T> sum;
    for (int e = 0; e < 16 / sizeof(T); ++e) sum.values[e] = x.values[e] + y.values[e];
    out[i] = sum;
}
"""
ELEMENTS = {1: "unsigned char", 2: "unsigned short", 4: "float", 8: "double", 16: "double"}


def random(shape: tuple[int, ...], name: str) -> torch.Tensor:
    """Return random elements: small numbers, so that no type has to saturate."""
    dtype = getattr(torch, name)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, device="cuda", dtype=torch.float32).to(dtype)
    return torch.randint(0, 2 if name == "bool" else 100, shape, device="cuda", dtype=torch.uint8).to(dtype)


def vector_kernel(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> Callable[[], None]:
    """Return a call of the plain kernel."""
    name = f"add<{ELEMENTS[a.element_size()]}>"
    kernel = cupy.RawModule(code=VECTOR_ADD, name_expressions=[name]).get_function(name)
    stream = cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)
    count = a.numel() * a.element_size() // 16
    pointers = (a.data_ptr(), b.data_ptr(), out.data_ptr())

    def call() -> None:
        with stream:
            kernel(((count + 255) // 256,), (256,), (*pointers, count))

    return call


def compared(
    name: str,
    own: Callable[[], Any],
    peers: dict[str, Callable[[], Any]],
    moved: int,
    bounds: dict[str, float],
) -> Comparison:
    """Compare device times."""
    contestants = {"cukern": own} | peers
    return compare(name, contestants, kind="device", work=moved, unit="GB/s", repeat=REPEAT, bounds=bounds)


def contiguous(name: str) -> Iterator[Comparison]:
    """Compare contiguous arrays of an element type."""
    n = BYTES // getattr(torch, name).itemsize
    a, b = random((n,), name), random((n,), name)
    out = torch.empty_like(a)
    plain = {"torch": lambda: torch.add(a, b, out=out), "vector kernel": vector_kernel(a, b, out)}
    assert torch.equal(cukern.add(a, b), torch.add(a, b))
    bounds = {"torch": 1.0, "vector kernel": 0.97}
    yield compared(f"add, {name}", lambda: cukern.add(a, b, out=out), plain, 3 * BYTES, bounds)
    copies = {"torch": lambda: out.copy_(a)}
    yield compared(f"copy, {name}", lambda: cukern.copyto(out, a), copies, 2 * BYTES, {"torch": 1.0})
    if name != "bool":
        sums = {"torch": lambda: torch.add(a, 1, out=out)}
        yield compared(f"add a number, {name}", lambda: cukern.add(a, 1, out=out), sums, 2 * BYTES, {"torch": 1.0})
    c = random((n,), "bool")
    chosen = {"torch": lambda: torch.where(c, a, b, out=out)}
    moved = 3 * BYTES + c.nbytes
    yield compared(f"where, {name}", lambda: cukern.where(c, a, b, out=out), chosen, moved, {"torch": 1.0})
    if name in FLOATING:
        exps = {"torch": lambda: torch.exp(a, out=out)}
        yield compared(f"exp, {name}", lambda: cukern.exp(a, out=out), exps, 2 * BYTES, {"torch": 1.0})


def shapes(name: str) -> list[tuple[int, int]]:
    """Return shapes of about 1 GiB: square, with odd sides, and from 1 to 64 tall."""
    n = BYTES // getattr(torch, name).itemsize
    side = 1 << (n.bit_length() // 2)
    return [
        (side, n // side),
        (side - 1, n // side - 1),
        *((tall, n // tall) for tall in (1, 4, 16, 64)),
        *((tall, n // tall // 2 * 2 - 1) for tall in (3, 33)),
    ]


def broadcast(text: str, a: torch.Tensor, other: torch.Tensor) -> Comparison:
    """Compare an add of a row or a column."""
    out = torch.empty_like(a)
    assert torch.equal(cukern.add(a, other), a + other)
    peers = {"torch": lambda: torch.add(a, other, out=out)}
    return compared(text, lambda: cukern.add(a, other, out=out), peers, 2 * a.nbytes, {"torch": 1.35})


def layouts(name: str, rows: int, columns: int) -> Iterator[Comparison]:
    """Compare rows, columns, transposed arrays and every second column."""
    text = f"{name} ({rows}, {columns})"
    a = random((rows, columns), name)
    yield broadcast(f"add a row, {text}", a, random((columns,), name))
    yield broadcast(f"add a column, {text}", a, random((rows, 1), name))
    b = random((columns, rows), name)
    out = torch.empty_like(a)
    assert torch.equal(cukern.add(a, b.T), a + b.T)
    peers = {"torch": lambda: torch.add(a, b.T, out=out)}
    yield compared(
        f"add a transposed array, {text}", lambda: cukern.add(a, b.T, out=out), peers, 3 * a.nbytes, {"torch": 2.0}
    )
    peers = {"torch": lambda: out.copy_(b.T)}
    yield compared(
        f"copy a transposed array, {text}", lambda: cukern.copyto(out, b.T), peers, 2 * a.nbytes, {"torch": 2.0}
    )
    x, y = a[:, ::2], b.reshape(rows, columns)[:, ::2]
    half = torch.empty(x.shape, dtype=a.dtype, device="cuda")
    assert torch.equal(cukern.add(x, y), x + y)
    peers = {"torch": lambda: torch.add(x, y, out=half)}
    yield compared(
        f"add every second column, {text}", lambda: cukern.add(x, y, out=half), peers, 3 * half.nbytes, {"torch": 1.0}
    )


def graph_seconds(call: Callable[[], Any], repeat: int) -> float:
    """Return the device time of a call among `repeat` in a captured graph."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeat):
            call()
    times = []
    for _ in range(5):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3 / repeat)
    return statistics.median(times)


def small(name: str, size: int) -> Comparison:
    """Compare small adds in captured graphs."""
    a, b = (random((size // getattr(torch, name).itemsize,), name) for _ in range(2))
    out = torch.empty_like(a)
    return compare(
        f"add in a graph, {name}, {size >> 10} KiB",
        {"cukern": lambda: cukern.add(a, b, out=out), "torch": lambda: torch.add(a, b, out=out)},
        kind="device",
        work=3.0 * size,
        unit="us",
        repeat=200,
        bounds={"torch": 1.0},
        measure=graph_seconds,
    )


def all_of_them() -> Iterator[Comparison]:
    """Run the comparisons one by one: each frees its arrays before the next."""
    for name in TYPES:
        yield from contiguous(name)
        torch.cuda.empty_cache()
    for name in LAYOUT_TYPES:
        for rows, columns in shapes(name):
            yield from layouts(name, rows, columns)
            torch.cuda.empty_cache()
        for size in (1 << 12, 1 << 16, 1 << 20, 1 << 22):
            yield small(name, size)


def run() -> list[Comparison]:
    """Run all comparisons of this file."""
    assert cukern.backend() == "cuda"
    return list(all_of_them())
