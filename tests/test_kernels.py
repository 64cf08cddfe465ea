"""Which kernels serve a call, by their names in a graph that holds it: vectors wherever rows are whole vectors."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
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
            if layout == "window" and x.dtype.itemsize >= 8 and out.dtype == bool:
                continue  # strided_kernel is faster
            kernels = kernels_of(
                lambda own=own, out=out, **options: getattr(cukern, name)(*own, out=out, **options),
                tmp_path / "graph.dot",
            )
            if not kernels or any("strided_kernel" in kernel for kernel in kernels):
                fallen.append((dtype, layout, kernels[:1]))
    assert not fallen
