"""The kernels' headers compile at run time, too: by NVRTC, which has no standard headers and compiles no host code."""

from __future__ import annotations

import ctypes
import importlib
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "cuda/src"
pytestmark = pytest.mark.build

LAUNCHERS = {"device/elementwise/layouts.cuh", "device/elementwise/strided_launch.cuh"}  # no kernel is in them
HEADERS = sorted(
    name
    for folder in ("formulas", "device")
    for path in (SOURCES / folder).rglob("*.cuh")
    if (name := str(path.relative_to(SOURCES))) not in LAUNCHERS
)

KERNELS = {
    "device/elementwise/contiguous.cuh": ["contiguous_kernel<One<Op::add, float>, float, 2>"],
    "device/elementwise/broadcast.cuh": ["broadcast_kernel<Group::arithmetic, float, 2>"],
    "device/elementwise/interleaved.cuh": ["interleaved_kernel<Group::arithmetic, double, 2>"],
    "device/elementwise/transpose.cuh": ["transpose_kernel<Group::copies, std::uint16_t, 1>"],
    "device/elementwise/convert.cuh": ["convert_kernel<BFloat16>"],
    "device/elementwise/where.cuh": ["where_kernel<std::uint32_t>"],
    "device/elementwise/strided.cuh": ["strided_kernel<float, 2>", "strided_kernel<std::int64_t, 3>"],
    "device/reduce/rows.cuh": [
        "rows_kernel<Reducer<Op::max, float>, float, float, true>",
        "short_rows_kernel<SumOrProduct<Float16>, Float16, Float16>",
    ],
    "device/reduce/columns.cuh": [
        "columns_kernel<SumOrProduct<float>, float, float, 4, 8>",
        "short_columns_kernel<Reducer<Op::var, float>, float, float>",
    ],
    "device/scan/lines.cuh": ["scan_lines_kernel<Op::sum, float>", "scan_lines_kernel<Op::prod, Complex64>"],
    "device/matmul/join_tiles.cuh": ["join_tiles_kernel<float>", "join_tiles_kernel<Complex128>"],
    "device/reduce/group.cuh": ["combine_kernel<Reducer<Op::var, double>, double>"],
}


class Nvrtc:
    """The few calls of libnvrtc that a compilation takes."""

    def __init__(self, toolkit: Path) -> None:
        library = next(iter(sorted(toolkit.glob("libnvrtc.so*"))), None)
        if library is None:
            pytest.skip(f"needs NVRTC, which is not in {toolkit}")
        self.library = ctypes.CDLL(str(library))

    def _text(self, program: ctypes.c_void_p, size: str, get: str) -> bytes:
        length = ctypes.c_size_t()
        assert self.library[size](program, ctypes.byref(length)) == 0
        text = ctypes.create_string_buffer(length.value)
        assert self.library[get](program, text) == 0
        return text.raw

    def compile(self, source: str, names: list[str], options: list[str]) -> bytes:
        """Return the code for a GPU of a source, with instances of kernels by their names."""
        program = ctypes.c_void_p()
        assert not self.library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"test.cu", 0, None, None)
        try:
            for name in names:
                assert self.library.nvrtcAddNameExpression(program, name.encode()) == 0
            words = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            failed = self.library.nvrtcCompileProgram(program, len(options), words)
            log = self._text(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog").decode()
            assert not failed, log[:4000]
            for name in names:
                lowered = ctypes.c_char_p()
                assert self.library.nvrtcGetLoweredName(program, name.encode(), ctypes.byref(lowered)) == 0
            return self._text(program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN")
        finally:
            self.library.nvrtcDestroyProgram(ctypes.byref(program))


@pytest.fixture(scope="module")
def compile_at_run_time():
    """A function that compiles a source by NVRTC, with no folder but ours and the toolkit's to include from."""
    sys.path.insert(0, str(ROOT / "build_backend"))
    try:
        toolkit = importlib.import_module("toolchain").find_toolkit().toolkit
    finally:
        sys.path.pop(0)
    if toolkit is None:
        pytest.skip("needs a CUDA toolkit")
    nvrtc = Nvrtc(toolkit.library)
    folders = [ROOT / "cuda/rtc", ROOT / "cuda/include", SOURCES, toolkit.include]
    options = ["-std=c++17", "-arch=sm_90", "-default-device", *(f"-I{folder}" for folder in folders)]
    return lambda source, names: nvrtc.compile(source, names, options)


@pytest.mark.parametrize("header", HEADERS)
def test_a_header_compiles_by_itself(compile_at_run_time, header: str) -> None:
    assert compile_at_run_time(f'#include "{header}"\n', [])


@pytest.mark.parametrize("header", sorted(KERNELS))
def test_kernels_are_instantiated(compile_at_run_time, header: str) -> None:
    names = [f"cukern::cuda::{name}" for name in KERNELS[header]]
    source = f'#include "{header}"\nusing namespace cukern;\nusing namespace cukern::cuda;\n'
    code = compile_at_run_time(source, names)
    for name in KERNELS[header]:
        assert name.partition("<")[0].encode() in code


def test_each_kernel_is_tried() -> None:
    found = {header: set(re.findall(r"\b(\w+_kernel)\(\s*const", (SOURCES / header).read_text())) for header in HEADERS}
    tried = {header: {name.partition("<")[0] for name in names} for header, names in KERNELS.items()}
    assert {header: names for header, names in found.items() if names} == tried


def test_standard_headers_are_not_there(compile_at_run_time) -> None:
    with pytest.raises(AssertionError, match="algorithm"):
        compile_at_run_time("#include <algorithm>\n", [])
