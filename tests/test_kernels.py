"""Which kernels serve a call, by their names in a graph that holds it, and that each waits for the one before it."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interchange_tools import QUIET, bring

import cukern
from cukern import _cukern

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.usefixtures("backend"),
    pytest.mark.parametrize("backend", ["cuda"], indirect=True),
    *QUIET,
]
TYPES = [
    "bool",
    "int8",
    "uint16",
    "int32",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]
ROWS = {row["name"]: row for row in _cukern._table if row["kind"] in ("unary", "binary")}
SHAPE = (3000, 480)  # so that each multiprocessor has work: of small arrays each thread takes one element
VERBOSE = 1  # CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE


def is_function(name: str) -> bool:
    """Whether an operation is a long one, which has fast kernels for packed arrays alone."""
    long = ("divide", "floor_divide", "remainder", "pow", "reciprocal")
    return name in long or (ROWS[name]["rule"] == "sized" and name != "copysign")


def computes_in(name: str, dtype: str) -> bool:
    """Whether an operation is computed in the type of its operands."""
    kind = "f" if dtype == "bfloat16" else np.dtype(dtype).kind
    types, rule = ROWS[name]["types"], ROWS[name]["rule"]
    if types in ("floating", "inexact") or rule == "floating":
        return kind == "f" or (kind == "c" and types != "floating" and not is_function(name))
    if kind == "c":
        return not is_function(name) and name != "sign" and rule != "logical"
    return kind != "b" or rule not in ("arithmetic", "rounded")


def views(dtype: str) -> Iterator[tuple[str, cukern.Array]]:
    """Operands of one shape, whose rows are whole vectors, in the layouts that kernels of vectors serve."""
    count = SHAPE[0] * SHAPE[1]
    rows, columns = SHAPE
    flat, wide = cukern.zeros(count + 8, dtype), cukern.zeros((rows, 2 * columns), dtype)
    yield "packed", flat[:count].reshape(SHAPE)
    yield "packed, beginning anywhere", flat[1 : count + 1].reshape(SHAPE)
    yield "row", cukern.broadcast_to(wide[0, :columns], SHAPE)
    yield "column", cukern.broadcast_to(wide[:, :1], SHAPE)
    yield "window", wide[:, 3 : 3 + columns]
    yield "steps", wide[:, ::2]


def kernels_of(call: Any, path: Path) -> list[str]:
    """Return the names of the kernels that a call launches."""
    cupy = bring("cupy")
    call()
    stream: Any = cukern.Stream()
    cukern.synchronize()
    theirs = cupy.cuda.ExternalStream(stream.ptr)
    with theirs:
        theirs.begin_capture()
        try:
            call(stream=stream)
        finally:
            graph = theirs.end_capture()
    print_dot = ctypes.CDLL("libcuda.so.1").cuGraphDebugDotPrint
    assert print_dot(ctypes.c_void_p(graph.graph), str(path).encode(), VERBOSE) == 0
    return re.findall(r"\w*kernel\w*", path.read_text())


@pytest.mark.parametrize("name", ROWS)
def test_layouts_of_whole_vectors_take_kernels_of_vectors(name: str, tmp_path: Path) -> None:
    """Each row of the table gets the kernels of all these layouts by itself; none takes strided_kernel."""
    count, fallen = 2 if ROWS[name]["kind"] == "binary" else 1, []
    for dtype in (dtype for dtype in TYPES if computes_in(name, dtype)):
        operands = dict(views(dtype))
        for layout, x in operands.items():
            if is_function(name) and not layout.startswith("packed"):
                continue
            own = [operands["packed"], x] if count == 2 else [x]
            try:
                out = getattr(cukern, name)(*own)
            except TypeError:
                break
            if layout == "window" and x.dtype.itemsize >= 4 and out.dtype == bool:
                continue  # strided_kernel is faster
            kernels = kernels_of(
                lambda own=own, out=out, **options: getattr(cukern, name)(*own, out=out, **options),
                tmp_path / "graph.dot",
            )
            if not kernels or any("strided_kernel" in kernel for kernel in kernels):
                fallen.append((dtype, layout, kernels[:1]))
    assert not fallen


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128"])
def test_quotients_of_packed_arrays_and_of_one_element(dtype: str, tmp_path: Path) -> None:
    x, one = cukern.ones(SHAPE, dtype), cukern.ones((), dtype)
    out = cukern.empty_like(x)
    calls = {
        "divide": lambda **options: cukern.divide(x, x, out=out, **options),
        "by one element": lambda **options: cukern.divide(x, one, out=out, **options),
        "of one element": lambda **options: cukern.divide(one, x, out=out, **options),
        "reciprocal": lambda **options: cukern.reciprocal(x, out=out, **options),
    }
    found = {name: kernels_of(call, tmp_path / "graph.dot") for name, call in calls.items()}
    assert all(any("contiguous_kernel" in kernel for kernel in kernels) for kernels in found.values()), found


def test_few_transposed_rows_take_tiles_without_shared_memory(tmp_path: Path) -> None:
    for rows, kernel in ((11, "strided_kernel"), (12, "transpose_kernel")):
        x, y = cukern.zeros((300_000, rows), "float16").T, cukern.zeros((rows, 300_003), "float16")[:, 1:-2]
        out = cukern.add(x, y)
        kernels = kernels_of(
            lambda x=x, y=y, out=out, **options: cukern.add(x, y, out=out, **options), tmp_path / "graph.dot"
        )
        assert any(kernel in found for found in kernels)


# Lets the next kernel begin, as all of cukern's do, long before it writes.
LONG = r"""
template <typename T> __global__ void long_kernel(T *x) {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
    const long long begin = clock64();
    while (clock64() - begin < 1000000) {}
    x[threadIdx.x] += 1;
}
"""


@dataclass
class Work:
    """A call that one kernel serves: `into` writes to `out` what it computes from elements of `packed`."""

    into: Callable[..., Any]
    packed: cukern.Array
    out: cukern.Array

    def __call__(self, **options: Any) -> None:
        self.into(self.out, **options)


def empty(*shape: int, dtype: str = "float32") -> cukern.Array:
    return cukern.empty(shape, dtype)


def work(function: Callable[..., Any], packed: cukern.Array, out: cukern.Array, *args: Any, **given: Any) -> Work:
    return Work(lambda out, **options: function(*args, out=out, **given, **options), packed, out)


def copy(packed: cukern.Array, out: cukern.Array, view: cukern.Array) -> Work:
    return Work(lambda out, **options: cukern.copyto(out, view, **options), packed, out)


def product(m: int, n: int, k: int, dtype: str = "float32") -> Work:
    a = empty(m, k, dtype=dtype)
    return work(cukern.matmul_tiled, a, empty(m, n, dtype=dtype), a, cukern.ones((k, n), dtype))


def works() -> dict[str, Work]:
    """Return a call for each kernel."""
    x, wide, truths = empty(1024, 1024), empty(2048, 2048), cukern.ones((1024, 1024), "bool")
    beside, short_rows, lines, line = empty(200_000, 3), empty(100_000, 16), empty(48, 4800), empty(1 << 20)
    return {
        "contiguous": work(cukern.add, x, empty(1024, 1024), x, x),
        "convert": copy(x, empty(1024, 1024, dtype="float64"), x),
        "broadcast": work(cukern.add, wide, empty(2048, 2048), wide, wide[0]),
        "interleaved": copy(beside, empty(3, 200_000), beside.T),
        "transpose": copy(x, empty(1024, 1024), x.T),
        "where": work(cukern.where, x, empty(1024, 1024), truths, x, x),
        "strided": work(cukern.sqrt, wide, empty(1024, 1024), wide[::2, ::2]),
        "rows": work(cukern.sum, x, empty(1024), x, axis=1),
        "short_rows": work(cukern.sum, short_rows, empty(100_000), short_rows, axis=1),
        "columns": work(cukern.sum, x, empty(1024), x, axis=0),
        "short_columns": work(cukern.sum, short_rows[:, :3], empty(100_000), short_rows[:, :3], axis=1),
        "combine": work(cukern.sum, line, empty(), line),
        "scan_columns": work(cukern.cumulative_sum, lines, empty(48, 4800), lines, axis=0),
        "scan_lines": work(cukern.cumulative_sum, line, empty(1 << 20), line),
        "clear_totals": work(cukern.cumulative_sum, line, empty(1 << 20), line),
        "matmul_direct": product(64, 64, 64, "float64"),
        "matmul_elements": product(16, 16, 16),
        "matmul_sliced": product(256, 256, 256),
        "matmul_tiled": product(2048, 2048, 1040),
        "matmul_short": product(2048, 2048, 32),
        "matmul_vector": product(2048, 1, 512),
        "join_tiles": product(640, 640, 4096),
    }


def formula_works() -> dict[str, Work]:
    """Return calls of kernels of formulas, which follow, too: one kernel, and two."""
    twice = cukern.ElementwiseKernel("T x", "T y", "y = 2 * x", "twice")
    total = cukern.ReductionKernel("T x", "T y", "x", "a + b", "y = a", "0", "total")
    x, line = empty(1000), empty(1 << 20)
    return {
        "ElementwiseKernel": Work(lambda out, **options: twice(x, out, **options), x, empty(1000)),
        "ReductionKernel": Work(lambda out, **options: total(line, out=out, **options), line, empty()),
    }


def test_there_is_a_call_for_each_kernel(tmp_path: Path) -> None:
    """Which one serves a product is chosen by estimates, which are of an H100's and an H200's multiprocessors."""
    multiprocessors = _cukern._information()["devices"][0]["multiprocessors"]
    missed = {}
    for name, call in works().items():
        kernels = kernels_of(call, tmp_path / "graph.dot")
        is_chosen = multiprocessors == 132 or not name.startswith(("matmul", "join_tiles"))
        if is_chosen and not any(re.search(rf"\d{name}_kernel", kernel) for kernel in kernels):
            missed[name] = kernels
    assert not missed


@pytest.mark.parametrize("is_default", [False, True], ids=["stream", "default stream"])
def test_kernels_wait_for_the_one_before(is_default: bool) -> None:
    """Each is launched while the one before it still runs, and reads what that one writes at its end."""
    module = cukern.RawModule(code=LONG, name_expressions=["long_kernel<float>", "long_kernel<double>"])
    stream = None if is_default else cukern.Stream()
    early = []
    for name, call in (works() | formula_works()).items():
        kind = "double" if call.packed.dtype == "float64" else "float"
        long_kernel = module.get_function(f"long_kernel<{kind}>")
        call.packed[...] = 1
        call(stream=stream)
        before = cukern.asnumpy(call.out)
        results = []
        for is_alone in (True, False):
            call.packed[...] = 5  # so that scratch memory holds other partial results
            call(stream=stream)
            call.packed[...] = 1
            cukern.synchronize()
            long_kernel(1, 256, (call.packed,), stream=stream)
            if is_alone:
                cukern.synchronize()
            call(stream=stream)
            results.append(cukern.asnumpy(call.out))
        assert not np.array_equal(results[0], before), name
        if not np.array_equal(results[1], results[0]):
            early.append(name)
    assert not early
