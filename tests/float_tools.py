"""Errors of float32 functions, and those functions that GPUs compute by formulas of our own, on the host."""

from __future__ import annotations

import ctypes
import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
# In units in the last place: what tests/oracles.py allows.
BOUND = 2


def compile_float_math(folder: Path) -> Callable[..., np.ndarray]:
    """Compile tests/float_math.cpp; return a function of a name and one or two arrays of float32 or float64."""
    library = folder / "float_math.so"
    command = [*shlex.split(os.environ.get("CXX", "c++")), "-std=c++17", "-O2", "-ffp-contract=off", "-fPIC", "-shared"]
    if " fma " in Path("/proc/cpuinfo").read_text():
        command.append("-mfma")
    command += [f"-I{ROOT / 'cuda/include'}", f"-I{ROOT / 'cuda/src'}"]
    subprocess.run([*command, ROOT / "tests/float_math.cpp", "-o", library], check=True)
    loaded = ctypes.CDLL(str(library))
    functions = {np.dtype(np.float32): loaded.float_math, np.dtype(np.float64): loaded.double_math}
    for each in functions.values():
        each.restype = ctypes.c_bool

    def call(name: str, a: np.ndarray, b: np.ndarray | None = None) -> np.ndarray:
        out = np.empty_like(a)
        pointers = [None if x is None else x.ctypes.data_as(ctypes.c_void_p) for x in (a, b, out)]
        assert all(x is None or (x.dtype == a.dtype and x.flags.c_contiguous) for x in (a, b))
        assert b is None or b.shape == a.shape
        assert functions[a.dtype](name.encode(), *pointers, ctypes.c_int64(a.size)), name
        return out

    return call


def errors(xp: Any, name: str, got: Any, exact: Any, *operands: Any) -> Any:
    """Return float32 results' distances from exact ones (float64), in units in the last place; infinity where one is
    NaN, or a zero of the other sign. Infinity counts as 2**128. Results at a power of two are measured by the shorter
    of the steps beside it. `xp`: numpy or cukern, whose arrays these are.
    """
    largest = 2.0**128
    rounded = xp.abs(exact.astype(xp.float32))
    scale = rounded
    if name == "logaddexp":  # as in tests/oracles.py
        for x in (*operands, xp.asarray(np.float32(0.7))):
            scale = xp.where(xp.isfinite(x), xp.maximum(scale, xp.abs(x)), scale)
    below = scale - xp.nextafter(scale, xp.zeros_like(scale))
    step = xp.where(xp.isinf(scale), 2.0**104, xp.maximum(below.astype(xp.float64), 2.0**-149))
    distance = xp.abs(xp.clip(got.astype(xp.float64), -largest, largest) - xp.clip(exact, -largest, largest)) / step
    is_nan = xp.isnan(exact)
    other_sign = (got == 0) & (rounded == 0) & (xp.signbit(got) != xp.signbit(exact))
    distance = xp.where(is_nan & xp.isnan(got), 0.0, distance)
    return xp.where((is_nan != xp.isnan(got)) | other_sign, xp.inf, distance)


def exact_result(xp: Any, name: str, *operands: Any) -> Any:
    """Return a function in float64, of numpy or cukern."""
    with np.errstate(all="ignore"):
        return getattr(xp, name)(*(x.astype(xp.float64) for x in operands))


def pairs(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw two operands: a third of them of any bits, a third of like size, a third whose powers are finite."""
    bits = rng.integers(0, 2**32, (2, n), dtype=np.uint32)
    third = n // 3
    for operand in bits:  # from 2**-7 to 2**6
        exponents = rng.integers(120, 134, third, dtype=np.uint32)
        operand[:third] = (operand[:third] & 0x807FFFFF) | exponents << 23
    a, b = bits.view(np.float32)
    a[third : 2 * third] = np.abs(rng.uniform(0.5, 1.5, third))
    b[third : 2 * third] = rng.uniform(-1, 1, third) * 2.0 ** rng.integers(0, 9, third)
    return a, b
