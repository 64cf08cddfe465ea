"""Compilation of kernels at run time: the cache on disk, what is included, and messages. No GPU is needed."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import use
from processes import run_quietly

import cukern
from cukern import _compile, _cukern

SOURCE = "template <typename T> __global__ void saxpy(T a, const T *x, T *y, int n) { y[0] = a * x[0] + n; }"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of this test's own."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("CUKERN_CACHE_DIR", str(folder))
    return folder


class Compiler:
    """Stands in for NVRTC, and counts."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = []

    def __call__(self, code: str, _: str, names: tuple[str, ...], options: tuple[str, ...]) -> object:
        self.calls.append((code, names, options))
        if "wrong" in code:
            return None, {}, "kernel.cu(1): error: wrong\n\n1 error detected"
        return b"image of " + code.encode() + b"\n\0more", {name: f"_Z{name}" for name in names}, ""


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    """A compiler that compiles nothing, of version 13.0 with the targets of that."""
    stand_in = Compiler()
    monkeypatch.setattr(_cukern, "_compile", stand_in)
    monkeypatch.setattr(_compile, "_nvrtc", lambda: ("13.0", [75, 80, 90, 100], "/toolkit/include"))
    return stand_in


def build(code: str = "x", options: tuple[str, ...] = (), names: tuple[str, ...] = ("f<int>",)) -> object:
    return _compile.build(code, options, names, 9, 0)


class TestCache:
    def test_compiles_once(self, cache: Path, compiler: Compiler) -> None:
        first = build()
        assert first == build() == (b"image of x\n\0more", {"f<int>": "_Zf<int>"})
        assert len(compiler.calls) == 1
        assert [path.suffix for path in cache.iterdir()] == [".bin"]

    @pytest.mark.parametrize("other", [{"code": "y"}, {"options": ("-DN=1",)}, {"names": ("g",)}])
    def test_what_is_in_the_key(self, cache: Path, compiler: Compiler, other: dict) -> None:
        build()
        build(**other)
        assert len(compiler.calls) == len([*cache.iterdir()]) == 2

    def test_the_target_and_the_version_are_in_the_key(
        self, cache: Path, compiler: Compiler, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        build()
        _compile.build("x", (), ("f<int>",), 8, 0)
        monkeypatch.setattr(_compile, "_nvrtc", lambda: ("13.1", [90], None))
        build()
        assert len(compiler.calls) == 3

    def test_included_files(self, cache: Path, compiler: Compiler, tmp_path: Path) -> None:
        (tmp_path / "a.h").write_text('#include "b.h"\n#  include <c.h>')
        (tmp_path / "b.h").write_text("int b;")
        (tmp_path / "c.h").write_text("#include <a.h>")  # in a circle
        options = (f"-I{tmp_path}",)
        build('#include "a.h"', options)
        build('#include "a.h"', options)
        assert len(compiler.calls) == 1
        (tmp_path / "c.h").write_text("#include <a.h>\nint c;")
        build('#include "a.h"', options)
        assert len(compiler.calls) == 2
        build('#include "a.h"', ("-I", str(tmp_path)))
        (tmp_path / "b.h").write_text("int changed;")
        build('#include "a.h"', ("-I", str(tmp_path)))
        assert len(compiler.calls) == 4

    @pytest.mark.parametrize(
        "line",
        [
            '/* c */ #include "h.h"',
            '#/**/include "h.h"',
            '#include /* c */ "h.h"',
            '%:include "h.h"',
            "\f#include <h.h>",
            '#inc\\\nlude "h.h"',
            '#include_next "h.h"',
            '// include "h.h"',
        ],
    )
    @pytest.mark.parametrize("option", ["-I{}", "-I={}", "-I {}", "--include-path={}", "--include-path {}"])
    def test_every_way_to_include(
        self, cache: Path, compiler: Compiler, tmp_path: Path, line: str, option: str
    ) -> None:
        for text, calls in [("int a;", 1), ("int a;", 1), ("int b;", 2)]:
            (tmp_path / "h.h").write_text(text)
            build(line, (option.format(tmp_path),))
            assert len(compiler.calls) == calls

    def test_without_a_toolkit_included_files_are_looked_into(
        self, cache: Path, compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(_compile, "_nvrtc", lambda: ("13.0", [90], None))
        (tmp_path / "a.h").write_text('#include "b.h"')
        for text, calls in [("int a;", 1), ("int b;", 2)]:
            (tmp_path / "b.h").write_text(text)
            build('#include "a.h"', (f"-I{tmp_path}",))
            assert len(compiler.calls) == calls

    def test_without_a_home_or_a_current_folder(
        self, compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def nowhere() -> Path:
            raise RuntimeError("Could not determine home directory.")

        for name in ("CUKERN_CACHE_DIR", "XDG_CACHE_HOME"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(Path, "home", nowhere)
        assert build() == build()
        assert len(compiler.calls) == 2
        monkeypatch.setenv("CUKERN_CACHE_DIR", str(tmp_path / "cache"))
        (tmp_path / "gone").mkdir()
        monkeypatch.chdir(tmp_path / "gone")
        (tmp_path / "gone").rmdir()
        build()
        build('#include "' + "x" * 5000 + '"')
        assert len(compiler.calls) == 4

    def test_files_of_others_are_left_alone(
        self, cache: Path, compiler: Compiler, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cache.mkdir()
        others = [cache / name for name in ("model.bin", "video.part", f"{'a' * 63}.bin", "notes.txt")]
        for path in others:
            path.write_bytes(bytes(1000))
            os.utime(path, (1, 1))
        monkeypatch.setenv("CUKERN_CACHE_SIZE", "10")
        build()
        build("other")
        assert all(path.exists() for path in others)
        assert len([*cache.iterdir()]) == len(others) + 1

    def test_files_in_the_current_folder(
        self, cache: Path, compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)  # where NVRTC looks, too
        for text, calls in [("int a;", 1), ("int a;", 1), ("int b;", 2)]:
            (tmp_path / "here.h").write_text(text)
            build('#include "here.h"')
            assert len(compiler.calls) == calls

    def test_what_cannot_be_told_is_not_kept(self, cache: Path, compiler: Compiler) -> None:
        for _ in range(2):
            build("#define H <a.h>\n#include H\n")
            build("x", ("-include", "a.h"))
            build('#if __has_include("a.h")\n#endif')
            build("x", ("--options-file=a",))
        assert len(compiler.calls) == 8
        assert not cache.exists()

    @pytest.mark.parametrize("damage", [b"", b"short", None])
    def test_a_damaged_entry_is_compiled_anew(self, cache: Path, compiler: Compiler, damage: bytes | None) -> None:
        wanted = build()
        (entry,) = cache.iterdir()
        data = entry.read_bytes()
        entry.write_bytes(data[:-1] + bytes([data[-1] ^ 1]) if damage is None else damage)
        assert build() == wanted
        assert len(compiler.calls) == 2
        assert entry.read_bytes() == data

    def test_a_folder_that_cannot_be_written_to(
        self, compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("CUKERN_CACHE_DIR", str(tmp_path / "file" / "folder"))
        assert build() == build()
        assert len(compiler.calls) == 2

    def test_its_size_has_a_limit(self, cache: Path, compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CUKERN_CACHE_SIZE", "5000")
        for i in range(6):
            build(f"{i}" * 1500)
            os.utime(max(cache.iterdir(), key=lambda path: path.stat().st_mtime_ns), (i, i))
        assert sum(path.stat().st_size for path in cache.iterdir()) <= 5000
        calls = len(compiler.calls)
        build("5" * 1500)
        assert len(compiler.calls) == calls  # the newest are kept
        build("0" * 1500)
        assert len(compiler.calls) == calls + 1

    def test_one_larger_than_the_limit_is_kept_alone(
        self, cache: Path, compiler: Compiler, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CUKERN_CACHE_SIZE", "10")
        build()
        build("other")
        assert len([*cache.iterdir()]) == 1

    def test_many_threads(self, cache: Path, compiler: Compiler) -> None:
        wanted = build()
        found = []

        def work() -> None:
            for i in range(50):
                found.append(build())
                build(f"{i % 5}")

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [wanted] * 400
        assert {path.suffix for path in cache.iterdir()} == {".bin"}

    def test_the_folder(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("CUKERN_CACHE_DIR", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
        assert _compile.cache_folder() == Path("/xdg/cukern")
        monkeypatch.delenv("XDG_CACHE_HOME")
        assert _compile.cache_folder() == Path.home() / ".cache/cukern"


class TestOptions:
    def test_what_is_added(self, cache: Path, compiler: Compiler) -> None:
        build("x", ("-O3", "-DN=1"))
        assert compiler.calls[0][2] == ("-DN=1", "-arch=sm_90", "-std=c++17", "-I/toolkit/include")
        build("y", ("-arch=compute_80", "--std=c++20"))
        assert compiler.calls[1][2] == ("-arch=compute_80", "--std=c++20", "-I/toolkit/include")

    @pytest.mark.parametrize(
        ("given", "taken"),
        [
            (("-O", "3", "-DN=1"), ("-DN=1",)),
            (("-std", "c++20"), ("-std=c++20",)),
            (("--std", "c++20", "-lineinfo"), ("--std=c++20", "-lineinfo")),
            (("-arch", "sm_80"), ("-arch=sm_80",)),
            (("-arch=native", "-use_fast_math"), ("-use_fast_math",)),
            (("-arch", "native"), ()),
            (("-gencode", "arch=compute_90,code=sm_90", "-g"), ()),
            (("-gencode=arch=compute_90,code=sm_90", "--expt-relaxed-constexpr", "--extended-lambda"), ()),
            (("-Xcompiler", "-fPIC", "-ccbin=g++", "--compiler-options", "-Wall", "-DN"), ("-DN",)),
            (("-I", "folder", "-maxrregcount", "32", "-G"), ("-I", "folder", "-maxrregcount", "32", "-G")),
        ],
    )
    def test_options_of_nvcc(self, given: tuple[str, ...], taken: tuple[str, ...]) -> None:
        assert _compile.nvrtcs(given) == taken

    def test_targets(self) -> None:
        assert _compile.target_of(90, [80, 90]) == "sm_90"
        assert _compile.target_of(120, [80, 90]) == "compute_90"  # a device that is newer than NVRTC
        assert _compile.target_of(50, [80, 90]) == "sm_50"  # of which NVRTC says what is wrong

    def test_bad_input(self) -> None:
        for arguments, text in [
            ({"code": 3}, "code must be str"),
            ({}, "either code= or path="),
            ({"code": "x", "path": "y"}, "either code= or path="),
            ({"code": "x", "options": "-DN"}, "options must be a sequence of str"),
            ({"code": "x", "options": (3,)}, "options must be a sequence of str"),
            ({"code": "x", "name_expressions": "f"}, "name_expressions must be a sequence of str"),
        ]:
            with pytest.raises(TypeError, match=text):
                cukern.RawModule(**arguments)
        with pytest.raises(TypeError, match="RawKernel: options must be"):
            cukern.RawKernel("x", "f", "-DN")
        for arguments in ({"options": ("a\0b",)}, {"name_expressions": ("a\0b",)}):
            with pytest.raises(ValueError, match="has a null character"):
                cukern.RawModule(code="x", **arguments)
        for code in (SOURCE, b".version 8.0"):
            with pytest.raises(ValueError, match="null character"):
                cukern.RawKernel(code, "a\0b")
        for code in ("a\0b", "", b""):
            with pytest.raises(ValueError, match=r"code is empty|null character"):
                cukern.RawModule(code=code)
        with pytest.raises(ValueError, match="backend must be 'nvrtc'"):
            cukern.RawModule(code="x", backend="nvcc")
        with pytest.raises(FileNotFoundError):
            cukern.RawModule(path="/nowhere/kernels.ptx")

    def test_images(self, tmp_path: Path) -> None:
        (tmp_path / "k.ptx").write_bytes(b".version 8.0")
        assert cukern.RawModule(path=tmp_path / "k.ptx").code == b".version 8.0"
        assert cukern.RawModule(code=bytearray(b"\x7fELF")).code == b"\x7fELF"
        ptx = "//\n// Generated\n//\n\n.version 8.0\n.target sm_90"
        assert cukern.RawModule(code=ptx).code == ptx.encode()
        assert cukern.RawModule(code=SOURCE, options=["-DN"]).options == ("-DN",)
        module = cukern.RawModule(code=SOURCE, options=iter(["-DN"]), name_expressions=iter(["f", "g"]))
        assert (module.options, module.name_expressions) == (("-DN",), ("f", "g"))


class TestMessages:
    def test_lines_of_the_source(self) -> None:
        code = "".join(f"line {i}\n" for i in range(1, 13))
        log = "kernel.cu(12): error: wrong\n    line 12\n    ^\n\nRemark: nothing\n\n"
        log += "kernel.cu(1): warning: odd\n\n1 error\n"
        assert _compile.with_source(code, log) == (
            "kernel.cu(12): error: wrong\n    line 12\n    ^\n"
            "    10 | line 10\n    11 | line 11\n  > 12 | line 12\n"
            "Remark: nothing\n"
            "kernel.cu(1): warning: odd\n"
            "  >  1 | line 1\n     2 | line 2\n     3 | line 3\n"
            "1 error"
        )

    def test_lines_are_the_compilers(self) -> None:
        code = "a\f\u2028b\nsecond\nthird"
        assert "> 2 | second" in _compile.with_source(code, "kernel.cu(2): error: wrong")

    def test_lines_of_included_files(self, tmp_path: Path) -> None:
        header = tmp_path / "odd (1).h"
        header.write_bytes(b"first\nsecond \xff\n")
        log = f"{header}(2): error: wrong\n\n{tmp_path}/missing.h(2): error: wrong\n\n{header}(3): error: wrong"
        assert _compile.with_source("kernel's\nown\n", log) == (
            f"{header}(2): error: wrong\n    1 | first\n  > 2 | second \ufffd\n"
            f"{tmp_path}/missing.h(2): error: wrong\n{header}(3): error: wrong"
        )

    def test_lines_of_ptx(self) -> None:
        ptx = b".version 8.0\n.target sm_80\nnonsense;\n\0"
        log = b"ptxas application ptx input, line 3; error   : Parsing error\nptxas fatal   : aborted \xff"
        assert _compile.with_image(ptx, log) == (
            "ptxas application ptx input, line 3; error   : Parsing error\n"
            "    1 | .version 8.0\n    2 | .target sm_80\n  > 3 | nonsense;\n"
            "ptxas fatal   : aborted \ufffd"
        )
        assert _compile.with_image(b"\x7fELF\nline\nline", log) == log.decode(errors="replace")

    def test_the_error(self, cache: Path, compiler: Compiler) -> None:
        with pytest.raises(cukern.CompileError) as error:
            build("wrong")
        assert "does not compile with -arch=sm_90" in str(error.value)
        assert "> 1 | wrong" in str(error.value)
        assert error.value.source == "wrong"
        assert error.value.log.startswith("kernel.cu(1): error")
        assert error.value.options[0] == "-arch=sm_90"
        assert not cache.exists()


@pytest.fixture
def nvrtc() -> Iterator[None]:
    """Skips without NVRTC."""
    _compile._nvrtc.cache_clear()
    try:
        _compile._nvrtc()
    except RuntimeError as error:
        pytest.skip(f"needs NVRTC: {error}")
    yield


def test_headers_without_a_toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that cuda-pathfinder finds, of NVIDIA's wheels; else those beside the library."""
    wheels, library = tmp_path / "wheels/include", tmp_path / "other/lib/libnvrtc.so.13"
    for folder in (wheels, library.parent, tmp_path / "other/include"):
        folder.mkdir(parents=True)
    for folder in (wheels, tmp_path / "other/include"):
        (folder / "cuda_fp16.h").touch()
    library.touch()
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)

    class Pathfinder:
        found: str | None = str(wheels)

        def find_nvidia_header_directory(self, name: str) -> str | None:
            assert name == "cudart"
            return self.found

    monkeypatch.setattr(_compile, "_pathfinder", Pathfinder)
    assert _compile._headers(str(library)) == str(wheels)
    monkeypatch.setattr(Pathfinder, "found", None)
    assert _compile._headers(str(library)) == str(tmp_path / "other/include")
    monkeypatch.delattr(Pathfinder, "find_nvidia_header_directory")  # versions before 1.2
    assert _compile._headers(str(library)) == str(tmp_path / "other/include")
    toolkit = tmp_path / "toolkit"
    (toolkit / "include").mkdir(parents=True)
    (toolkit / "include/cuda_fp16.h").touch()
    monkeypatch.setenv("CUDA_HOME", str(toolkit))
    assert _compile._headers(str(library)) == str(toolkit / "include")


@pytest.mark.usefixtures("nvrtc")
class TestNvrtc:
    def test_compiles(self, cache: Path) -> None:
        image, names = _compile.build(SOURCE, (), ("saxpy<float>", "saxpy<double>"), 9, 0)
        assert names == {"saxpy<float>": "_Z5saxpyIfEvT_PKS0_PS0_i", "saxpy<double>": "_Z5saxpyIdEvT_PKS0_PS0_i"}
        assert image.startswith(b"\x7fELF")

    def test_images_that_are_cut_off(self, cache: Path) -> None:
        image, _ = _compile.build(SOURCE, (), ("saxpy<float>",), 9, 0)
        _cukern._check_image(image)
        for length in (4, 63, 64, 200, len(image) // 2, len(image) - 1):
            with pytest.raises(ValueError, match="the image is cut off"):
                _cukern._check_image(image[:length])

    def test_overloads_variables_and_ptx(self, cache: Path) -> None:
        code = """#include <cuda_fp16.h>
        __constant__ int table[4];
        __global__ void f(float *x, __half h) {} __global__ void f(int *x) {}"""
        names = ("(void (*)(int *))f", "&table")
        image, lowered = _compile.build(code, ("-arch=compute_90",), names, 9, 0)
        assert lowered == {"(void (*)(int *))f": "_Z1fPi", "&table": "table"}
        assert b".version" in image

    def test_errors(self, cache: Path, tmp_path: Path) -> None:
        with pytest.raises(cukern.CompileError, match=r"> 2 \|   nothing\(\);"):
            _compile.build("__global__ void f() {\n  nothing();\n}", (), (), 9, 0)
        (tmp_path / "odd.h").write_text("\n\nnothing here;\n")
        with pytest.raises(cukern.CompileError, match=r"> 3 \| nothing here;"):
            _compile.build('#include "odd.h"\n', (f"-I{tmp_path}",), (), 9, 0)
        with pytest.raises(cukern.CompileError, match="-nonsense"):
            _compile.build(SOURCE, ("-nonsense",), (), 9, 0)
        with pytest.raises(cukern.CompileError, match="missing"):
            _compile.build(SOURCE, (), ("missing<float>",), 9, 0)
        assert not cache.exists()

    def test_a_process_finds_what_another_has_compiled(self, cache: Path) -> None:
        code = f"from cukern import _compile; print(len(_compile.build({SOURCE!r}, (), (), 9, 0)[0]))"
        run = [subprocess.run([sys.executable, "-c", code], check=True, capture_output=True) for _ in range(2)]
        assert run[0].stdout == run[1].stdout
        (entry,) = cache.iterdir()
        assert entry.suffix == ".bin"

    def test_many_processes_at_once(self, cache: Path) -> None:
        code = (
            f"from cukern import _compile; import hashlib; image = _compile.build({SOURCE!r}, (), (), 9, 0)[0]; "
            "print(hashlib.sha256(image).hexdigest())"
        )
        runs = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(8)]
        printed = {run.communicate()[0] for run in runs}
        assert [run.returncode for run in runs] == [0] * 8
        assert len(printed) == 1
        (entry,) = cache.iterdir()  # and nothing half-written beside it
        assert entry.suffix == ".bin"


def test_nvrtc_is_opened_where_it_is_needed() -> None:
    """Neither the import nor a kernel that is not compiled opens it, and without it the message says what brings it."""
    script = """
import cukern
kernel = cukern.RawKernel("__global__ void f() {}", "f")
cukern.ElementwiseKernel("T x", "T y", "y = x", "same")
print("nvrtc" in open("/proc/self/maps").read())
"""
    assert run_quietly(script) == "False\n"
    script = """
import resource
from cukern import _cukern
limits = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))  # no further file can be opened
message = "opened"
try:
    _cukern._open_nvrtc("/nonexistent/libnvrtc.so.13")
except RuntimeError as error:
    message = str(error)
resource.setrlimit(resource.RLIMIT_NOFILE, limits)
print(message)
"""
    message = run_quietly(script)
    assert "could not be opened; tried /nonexistent/libnvrtc.so.13" in message
    assert "'pip install cukern[nvrtc]' brings it" in message


def test_fatbins_that_are_cut_off() -> None:
    fatbin = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 40) + bytes(40)
    _cukern._check_image(fatbin)
    _cukern._check_image(b".version 8.0")
    for length in (4, 15, 16, 55):
        with pytest.raises(ValueError, match="the image is cut off"):
            _cukern._check_image(fatbin[:length])
    with pytest.raises(ValueError, match="the image is cut off"):
        _cukern._check_image(struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 2**64 - 8) + bytes(40))


def test_without_a_gpu_a_kernel_says_so() -> None:
    use("host")
    kernel = cukern.RawKernel(SOURCE, "saxpy<float>")
    module = cukern.RawModule(code=SOURCE)
    for call in (
        lambda: kernel(1, 1, (1.0, None, None, 1)),
        lambda: kernel[1, 1](1.0, None, None, 1),
        lambda: kernel.over(5)(1.0, None, None, 1),
        kernel.compile,
        lambda: kernel.attributes,
        lambda: kernel.num_regs,
        lambda: module.get_function("saxpy"),
        lambda: module.get_global("table"),
        module.compile,
    ):
        with pytest.raises(RuntimeError, match="need a GPU, and the host back-end is in use"):
            call()


def test_what_a_launch_is_asked_for_is_parsed_first() -> None:
    use("host")
    kernel = cukern.RawKernel(SOURCE, "saxpy<float>")
    for call, error, text in [
        (lambda: kernel(0, 1, ()), ValueError, "a length of grid is 0"),
        (lambda: kernel(1, (1, -1), ()), ValueError, "a length of block is -1"),
        (lambda: kernel((1, 2, 3, 4), 1, ()), ValueError, "one to three lengths, got 4"),
        (lambda: kernel((), 1, ()), ValueError, "one to three lengths, got 0"),
        (lambda: kernel(1.5, 1, ()), TypeError, "grid must be an int or up to three ints, got 1.5"),
        (lambda: kernel(1, 1, 3), TypeError, "args must be a tuple"),
        (lambda: kernel(1, 1), TypeError, "missing required argument 'args'"),
        (lambda: kernel(1, 1, (), shared_mem=-1), ValueError, "shared_mem is -1 bytes"),
        (lambda: kernel(1, 1, (), shared=1), TypeError, "unexpected keyword argument 'shared'"),
        (lambda: kernel(2**40, 1, ()), ValueError, "below 2"),
        (lambda: kernel[1], TypeError, "expected k\\[grid, block\\]"),
        (lambda: kernel[1, 1](x=3), TypeError, "no keywords"),
        (lambda: kernel.over(-1), ValueError, "number of threads is -1"),
    ]:
        with pytest.raises(error, match=text):
            call()
    with pytest.raises(RuntimeError, match="graphs need a GPU, and the host back-end is in use"), cukern.capture():
        pass
    assert repr(kernel) == "<cukern.RawKernel saxpy<float>>"
    assert "over 7 threads" in repr(kernel.over(7))
    assert "of (2, 1, 1) blocks of (8, 4, 1) threads" in repr(kernel[2, (8, 4)])


def test_pointers() -> None:
    pointer = cukern.Pointer(4096)
    assert int(pointer) == 4096
    assert hash(pointer) == hash(cukern.Pointer(4096))
    assert pointer != cukern.Pointer(8)
    assert repr(pointer) == "cukern.Pointer(0x1000)"
    for wrong in ("x", 1.5):
        with pytest.raises(TypeError):
            cukern.Pointer(wrong)
    for wrong in (-1, 2**64):
        with pytest.raises(OverflowError):
            cukern.Pointer(wrong)
