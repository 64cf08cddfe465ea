"""`RawKernel` and `RawModule` on the processor: a kernel's text is compiled as C++ and run by tests/emulation.

So what Python writes, plans and passes is run without a GPU. Only what these texts need is there.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy_loops import use_numpy_loops

from cukern import _compile, _cukern, _elementwise_kernel, _formula_kernel, _fuse, _reduction_kernel, _trace, _traced

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests/emulation"

ENTRY = """
struct double2 { double x, y; };
inline double __longlong_as_double(long long bits) { double d; std::memcpy(&d, &bits, sizeof d); return d; }
namespace emulated {
struct Value { const void *address; long long integer; double real, imag; int kind; };
template <typename P> P value_of(const Value &value) {
    if constexpr (std::is_pointer_v<P>) {
        return static_cast<P>(const_cast<void *>(value.address));
    } else if constexpr (std::is_arithmetic_v<P>) {
        return value.kind == 1 ? static_cast<P>(value.integer) : static_cast<P>(value.real);
    } else {
        if (value.kind == 0) return *static_cast<const P *>(value.address);
        if constexpr (std::is_same_v<P, double2>) return P{value.real, value.imag};
        else if constexpr (std::is_constructible_v<P, double, double>) return P(value.real, value.imag);
        else if constexpr (std::is_constructible_v<P, double>) return P(value.real);
        else std::abort();
    }
}
template <typename... P, std::size_t... I>
void call(void (*kernel)(P...), const Value *values, std::index_sequence<I...>) {
    kernel(value_of<std::remove_const_t<P>>(values[I])...);
}
template <typename... P> void call(void (*kernel)(P...), const Value *values) {
    call(kernel, values, std::index_sequence_for<P...>());
}
template <typename... P> long sizes_of(void (*)(P...), unsigned *sizes) {  // of the first 64 parameters
    const unsigned all[] = {0, sizeof(P)...};
    for (std::size_t i = 0; i < sizeof...(P) && i < 64; ++i) sizes[i] = all[i + 1];
    return sizeof...(P);
}
}
"""
ONE_ENTRY = """
extern "C" void run_{name}(unsigned grid, unsigned block, emulated::Value *values) {{
    emulation::run_grid("{name}", grid, block,
                        [](void *values) {{ emulated::call({name}, static_cast<emulated::Value *>(values)); }}, values);
}}
"""


ONE_ENTRY += """
extern "C" long sizes_{name}(unsigned *sizes) {{ return emulated::sizes_of({name}, sizes); }}
"""


class Value(ctypes.Structure):
    _fields_ = (
        ("address", ctypes.c_void_p),
        ("integer", ctypes.c_longlong),
        ("real", ctypes.c_double),
        ("imag", ctypes.c_double),
        ("kind", ctypes.c_int),
    )


_libraries: dict[str, ctypes.CDLL] = {}
_folder = tempfile.TemporaryDirectory()
# Shared memory of templates is the own memory of each library: not unique in the process.
FLAGS = [
    "-std=c++17",
    "-O0",
    "-w",
    "-fPIC",
    "-fno-gnu-unique",
    "-I",
    str(ROOT / "cuda/src"),
    "-I",
    str(ROOT / "cuda/include"),
]


def run_compiler(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [os.environ.get("CXX", "g++"), *FLAGS, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def prepare() -> Path:
    """Return the folder in which the emulation is compiled, whose header is compiled, too."""
    folder = Path(_folder.name)
    if not (folder / "fibers.o").exists():
        shutil.copytree(FOLDER, folder, dirs_exist_ok=True)
        (folder / "entry.h").write_text('#include "emulation.h"\n#include "formulas/reducers.cuh"\n' + ENTRY)
        for arguments in (["-x", "c++-header", "entry.h", "-o", "entry.h.gch"], ["-c", "fibers.cpp", "-o", "fibers.o"]):
            paths = [str(folder / each) if "." in each else each for each in arguments]
            done = run_compiler(*paths)
            assert done.returncode == 0, done.stderr
    return folder


def compile_text(text: str, names: Sequence[str], options: Sequence[str]) -> ctypes.CDLL:
    """Return a library that has `run_<name>` of each kernel of a text."""
    source = text + "".join(ONE_ENTRY.format(name=name) for name in names)
    key = hashlib.sha256(repr((source, options)).encode()).hexdigest()
    if key not in _libraries:
        folder = prepare()
        path = folder / f"{key}.cpp"
        path.write_text(source)
        own = [each for each in options if each.startswith("-D")]  # the others are for our headers, or for NVRTC
        includes = ["-I", str(folder / "include"), "-include", str(folder / "entry.h"), *own]
        done = run_compiler(*includes, "-shared", str(path), str(folder / "fibers.o"), "-o", str(folder / key))
        assert done.returncode == 0, f"{done.stderr[:3000]}\n{text}"
        _, lowered = _compile.build(text, tuple(options), tuple(names), 9, 0)  # NVRTC takes it, too
        _libraries[key] = ctypes.CDLL(str(folder / key))
        _libraries[key].lowered = lowered
    return _libraries[key]


class EmulatedKernel:
    """What takes the place of a `RawKernel`."""

    def __init__(self, library: ctypes.CDLL, name: str) -> None:
        self.run = library[f"run_{name}"]
        self.name = library.lowered[name]
        sizes = (ctypes.c_uint * 64)()
        count = library[f"sizes_{name}"](sizes)
        self.sizes = tuple(sizes[:count]) if count <= 64 else None

    def __call__(self, grid: int, block: int, args: Sequence[Any], stream: Any = None) -> None:
        if self.sizes is not None:  # what a launch would check
            _cukern._pack_arguments(self.name, self.sizes, tuple(args), False)
        values = (Value * len(args))()
        for value, arg in zip(values, args, strict=True):
            if isinstance(arg, np.void):
                value.address = arg.__array_interface__["data"][0]
            elif isinstance(arg, _cukern.Array):
                value.address = _cukern._address(arg)
            elif isinstance(arg, int):
                value.kind, value.integer, value.real = 1, arg, float(arg)
            else:
                value.kind, value.real, value.imag = 2, complex(arg).real, complex(arg).imag
        self.run(grid, block, values)

    def __getitem__(self, shape: tuple[int, int]) -> Callable[..., None]:
        return lambda *args: self(*shape, args)


class EmulatedModule:
    """What takes the place of a `RawModule`."""

    def __init__(self, code: str, options: Sequence[str], name_expressions: Sequence[str]) -> None:
        self.library = compile_text(code, name_expressions, options)

    def get_function(self, name: str) -> EmulatedKernel:
        return EmulatedKernel(self.library, name)

    def get_global(self, name: str, dtype: str) -> np.ndarray:
        size = int(
            subprocess.run(
                f"nm -S {self.library._name} | grep ' {name}$' | cut -d' ' -f2",
                shell=True,
                capture_output=True,
                text=True,
                check=True,
            ).stdout,
            16,
        )
        return np.empty(size, dtype)


class EmulatedCukern(ModuleType):
    """The extension, whose kernels are emulated; arrays are those of the host back-end."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_cukern, name)

    def backend(self) -> str:
        return "cuda"

    def RawKernel(self, code: str, name: str, options: Sequence[str]) -> EmulatedKernel:
        return EmulatedKernel(compile_text(code, [name], options), name)

    RawModule = EmulatedModule


def emulate_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have kernels of formulas emulated, and operations computed by the formulas that a GPU has."""
    use_numpy_loops(False)  # until the next use() of a back-end
    monkeypatch.setenv("CUKERN_CACHE_DIR", str(Path(_folder.name, "cache")))
    emulated = EmulatedCukern("_cukern")
    for module in (_formula_kernel, _elementwise_kernel, _fuse, _trace, _traced, _reduction_kernel):
        monkeypatch.setattr(module, "_cukern", emulated)
