"""The build: where nvcc is found, what is rebuilt, the sdist, and the three places of a new operation."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.build
LEFT_OUT = shutil.ignore_patterns(
    "build", "dist", "wheelhouse", ".git", ".venv", ".carry", "*.so", "*.pyi", "__pycache__", "*.egg-info", ".*_cache"
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the sources."""
    return Path(shutil.copytree(ROOT, tmp_path / "tree", ignore=LEFT_OUT))


@pytest.fixture
def toolchain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """build_backend/toolchain.py, in an environment where no nvcc is."""
    for name in ("CUKERN_NVCC", "CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV", "CUKERN_HOST_ONLY", "CUKERN_CUDA_ARCHS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(ROOT / "build_backend"))
    importlib.import_module("backend")  # while setuptools can be found
    module = importlib.import_module("toolchain")
    usual = module._candidates
    monkeypatch.setattr(module, "_candidates", lambda: [pair for pair in usual() if pair[0] != "the usual place"])
    monkeypatch.setattr(sys, "path", [path for path in sys.path if "site-packages" not in path])
    return module


def host_only(**environment: str) -> dict[str, str]:
    """Return the environment of a host-only build, unoptimized, which takes a third of the time, and of its tests."""
    return {
        **os.environ,
        "CUKERN_HOST_ONLY": "1",
        "CUKERN_REQUIRE_GPU": "0",
        "CUKERN_CXXFLAGS": f"{os.environ.get('CUKERN_CXXFLAGS', '')} -O0",
        **environment,
    }


def run(*command: str | Path, cwd: Path, **options) -> str:
    """Run a command; return what it prints."""
    options.setdefault("env", host_only())
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=600, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build_in_place(tree: Path, **environment: str) -> list[str]:
    """Build the extension into the tree; return the sources that were compiled."""
    output = run(sys.executable, "setup.py", "build_ext", "--inplace", cwd=tree, env=host_only(**environment))
    return sorted(set(re.findall(r" -c (\S+)", output)))


# Compiles nothing: preprocessed sources, with their depfiles, stand for objects and for what is linked of them.
PREPROCESSOR = """#!/bin/sh
for word; do
    if [ "$last" = -o ]; then output=$word; fi
    last=$word
done
case " $* " in
*" -shared "*) : >"$output" ;;
*" -c "*) exec g++ -E "$@" ;;
*) exec g++ "$@" ;;
esac
"""


def make_nvcc(folder: Path, top: Path | None = None, release: str = "13.0") -> Path:
    """Make something that answers as nvcc does."""
    folder.mkdir(parents=True, exist_ok=True)
    nvcc = folder / "nvcc"
    nvcc.write_text(f'#!/bin/sh\necho "#\\$ TOP={top or folder.parent}" >&2\necho "tools, release {release}, V1"\n')
    nvcc.chmod(0o755)
    return nvcc


def test_nvcc_is_found_in_order(toolchain: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places: list[tuple[str, Path, Callable[[Path], None]]] = [
        ("NVIDIA's compiler wheels", tmp_path / "venv/lib/python3.11/site-packages/nvidia/cu13/bin", lambda p: None),
        ("PATH", tmp_path, lambda p: None),
        ("CUDA_PATH", tmp_path / "second/bin", lambda p: monkeypatch.setenv("CUDA_PATH", str(p.parent.parent))),
        ("CUDA_HOME", tmp_path / "first/bin", lambda p: monkeypatch.setenv("CUDA_HOME", str(p.parent.parent))),
        ("CUKERN_NVCC", tmp_path / "own/bin", lambda p: monkeypatch.setenv("CUKERN_NVCC", str(p))),
    ]
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "venv"))
    for found_by, folder, set_variable in places:  # each is preferred to those before it
        nvcc = make_nvcc(folder)
        set_variable(nvcc)
        toolkit = toolchain.find_toolkit().toolkit
        assert (toolkit.found_by, toolkit.nvcc) == (found_by, nvcc)


def test_nvcc_may_be_a_wrapper(toolchain: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = tmp_path / "opt/cuda-13"
    (real / "include").mkdir(parents=True)
    (real / "include/cuda_runtime_api.h").touch()
    monkeypatch.setenv("CUKERN_NVCC", str(make_nvcc(tmp_path / "wrappers", real)))
    toolkit = toolchain.find_toolkit().toolkit
    assert toolkit.root == real
    assert toolkit.include == real / "include"
    with pytest.raises(SystemExit, match=r"has no libcudart_static\.a; looked in .*lib64"):
        _ = toolkit.library


def test_an_old_nvcc_is_passed_over(toolchain: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUKERN_NVCC", str(make_nvcc(tmp_path / "old/bin", release="11.8")))
    search = toolchain.find_toolkit()
    assert search.toolkit is None
    assert f"CUKERN_NVCC: {tmp_path}/old/bin/nvcc (release 11.8, older than 12.8)" in search.tried


def test_depfiles(toolchain: ModuleType) -> None:
    compile_module = importlib.import_module("compile")
    text = "/a b/x.o: /a\\ b/x.cpp /usr/include/y.h \\\n /a\\ b/z.h\n"
    assert compile_module.prerequisites(text) == [Path("/a b/x.cpp"), Path("/usr/include/y.h"), Path("/a b/z.h")]
    assert compile_module.prerequisites("") == [Path()]


def test_an_emulation_shares_objects(toolchain: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the kernels and what emulates them is compiled as without an emulation."""
    build = importlib.import_module("compile")

    def commands() -> dict[Path, list[str]]:
        made = build.Compilation(["g++"], None)
        return {source: build._command(made, source, []) for source in build.cuda_sources(False)}

    usual = commands()
    monkeypatch.setenv("CUKERN_EMULATE_KERNELS", "1")
    emulated = commands()
    own = {path for path in emulated if path.is_relative_to(build.EMULATION) or path.is_relative_to(build.DEVICE)}
    assert {path.suffix for path in own} == {".cpp", ".cu"}
    assert own == emulated.keys() - usual.keys()
    assert all(emulated[path] == usual[path] for path in emulated.keys() - own)


def test_no_nvcc_says_where_it_was_looked_for(toolchain: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_HOME", "/nowhere/cuda")
    with pytest.raises(SystemExit) as error:
        toolchain.required_toolkit()
    for text in ("CUDA_HOME: /nowhere/cuda/bin/nvcc", "PATH: nvcc", "pip install nvidia-cuda-nvcc==13.0.*"):
        assert text in str(error.value)
    assert "CUKERN_HOST_ONLY=1" in str(error.value)


def test_compiler_wheels_are_asked_for_only_where_needed(
    toolchain: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = toolchain.compiler_requirements()
    names = {"nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm", "nvidia-cuda-runtime", "nvidia-cuda-cccl"}
    assert {requirement.split("==")[0] for requirement in wanted} == names
    assert {requirement.split("==")[1] for requirement in wanted} == {"13.0.*"}
    backend = importlib.import_module("backend")
    for name in ("get_requires_for_build_wheel", "get_requires_for_build_editable"):
        monkeypatch.setattr(backend._setuptools, name, lambda settings: [])
    assert set(wanted) <= set(backend.get_requires_for_build_wheel())
    assert set(wanted) <= set(backend.get_requires_for_build_editable())
    monkeypatch.setenv("CUKERN_HOST_ONLY", "1")
    assert toolchain.compiler_requirements() == []
    monkeypatch.delenv("CUKERN_HOST_ONLY")
    make_nvcc(tmp_path)
    assert toolchain.compiler_requirements() == []


def test_targets(toolchain: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_module = importlib.import_module("compile")
    flags = compile_module.target_flags()
    assert [flag.rpartition("=")[2] for flag in flags] == ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120", "compute_120"]
    monkeypatch.setenv("CUKERN_CUDA_ARCHS", "native")
    assert compile_module.target_flags() == ["-arch=native"]
    monkeypatch.setenv("CUKERN_CUDA_ARCHS", "80;90")
    assert compile_module.target_flags() == [
        "-gencode=arch=compute_80,code=sm_80",
        "-gencode=arch=compute_90,code=sm_90",
        "-gencode=arch=compute_90,code=compute_90",
    ]
    for own in ("90a", "100f"):  # of a source alone, whatever all others are compiled for
        flags = compile_module.target_flags(Path(f"cuda/src/device/matmul/wgmma_sm{own}.cu"))
        assert flags == [f"-gencode=arch=compute_{own},code=sm_{own}"]
    assert len(compile_module.target_flags(Path("cuda/src/device/matmul/tiled.cu"))) == 3
    monkeypatch.setenv("CUKERN_CUDA_ARCHS", "sm_90")
    with pytest.raises(SystemExit, match="CUKERN_CUDA_ARCHS is 'sm_90'; expected 90, 80;90 or all-major"):
        compile_module.target_flags()


def test_only_what_changed_is_rebuilt(tree: Path, tmp_path: Path) -> None:
    compiler = tmp_path / "preprocessor"
    compiler.write_text(PREPROCESSOR)
    compiler.chmod(0o755)
    own = dict.fromkeys(("LDSHARED", "LDCXXSHARED"), f"{compiler} -shared")
    build = partial(build_in_place, CXX=str(compiler), CUKERN_STUBS="0", **own)
    for source in (path for folder in ("ext", "cuda/src") for path in (tree / folder).rglob("*.cpp")):
        if source.parent.name not in ("ops", "host") and source.name not in ("cukernmodule.cpp", "c_abi.cpp"):
            source.unlink()  # these are enough: nothing is linked
    everything = build(tree)
    assert len(everything) > 20
    assert build(tree) == []
    (tree / "ext/ops/matmul.cpp").touch()
    assert build(tree) == [str(tree / "ext/ops/matmul.cpp")]
    (tree / "cuda/src/host/kernels.h").touch()
    users = {str(path) for path in (tree / "cuda/src").rglob("*.cpp") if '"host/kernels.h"' in path.read_text()}
    assert set(build(tree)) == users
    (tree / "cuda/include/cukern/ops.def").touch()
    assert set(build(tree)) >= {str(tree / "ext/ops/elementwise.cpp"), str(tree / "cuda/src/c_abi.cpp")}
    project = tree / "pyproject.toml"
    project.write_text(project.read_text().replace('version = "0.1.0"', 'version = "9.9.9"'))
    assert str(tree / "ext/cukernmodule.cpp") in build(tree)  # it holds the version
    (tree / "ext/extra.cpp").write_text("int cukern_extra = 1;\n")
    assert build(tree) == [str(tree / "ext/extra.cpp")]


def apply_change(tree: Path, change: str) -> None:
    """Apply a unified diff: each hunk's old lines must be in the file once, wherever that is."""
    for part in re.split(r"^--- .*\n", change, flags=re.MULTILINE)[1:]:
        header, body = part.split("\n", 1)
        path = tree / header.removeprefix("+++ b/")
        text = path.read_text()
        for hunk in re.split(r"^@@.*\n", body, flags=re.MULTILINE)[1:]:
            lines = hunk.splitlines()
            old = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("+"))
            new = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("-"))
            assert text.count(old) == 1, f"{path.name} does not have these lines once:\n{old}"
            text = text.replace(old, new)
        path.write_text(text)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of the sdist of the sources with the change that CONTRIBUTING.md shows: one build for two tests.

    Beside it lie the sources in ``tree``, the sdist's in ``sdist``, and what the wheel installs in ``site``.
    """
    folder = tmp_path_factory.mktemp("wheel")
    tree = Path(shutil.copytree(ROOT, folder / "tree", ignore=LEFT_OUT))
    change = re.search(r"```diff\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    assert change is not None
    assert re.findall(r"^\+\+\+ b/(.*)$", change[1], re.MULTILINE) == [
        "cuda/include/cukern/ops.def",
        "cuda/src/formulas/functors.cuh",
        "tests/oracles.py",
    ]
    apply_change(tree, change[1])
    run(sys.executable, "-m", "build", "--no-isolation", "--sdist", "--outdir", folder / "dist", cwd=tree)
    sdist = next((folder / "dist").glob("*.tar.gz"))
    run("tar", "xzf", sdist, cwd=folder)
    unpacked = (folder / sdist.name.removesuffix(".tar.gz")).rename(folder / "sdist")
    # What an earlier build left in build/lib must not be shipped.
    stale = unpacked / "build/lib.linux-x86_64-cpython-311/cukern/stale.py"
    stale.parent.mkdir(parents=True)
    stale.touch()
    options = ["--no-deps", "--no-build-isolation", "--disable-pip-version-check", "-q"]
    run(sys.executable, "-m", "pip", "wheel", *options, "-w", folder, unpacked, cwd=folder)
    made = next(folder.glob("cukern-*-cp311-abi3-linux_x86_64.whl"))
    with zipfile.ZipFile(made) as archive:
        archive.extractall(folder / "site")
    return made


def test_a_wheel_from_the_sdist(wheel: Path) -> None:
    tree, unpacked, site = (wheel.parent / name for name in ("tree", "sdist", "site"))
    for folder in ("cuda", "ext", "build_backend", "tests", "benchmarks", "scripts", "examples", "docs"):
        theirs = {path.relative_to(unpacked) for path in (unpacked / folder).rglob("*") if path.is_file()}
        ours = {path.relative_to(tree) for path in (tree / folder).rglob("*") if path.is_file()}
        ours = {path for path in ours if path.parts[:2] != ("benchmarks", "results")}
        assert {path for path in theirs if path.parent.name != "__pycache__"} == {
            path for path in ours if path.parent.name != "__pycache__"
        }
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    headers = {f"cukern/include/cukern/{name}" for name in ("cukern.h", "ops.def")}
    device = ("ops.h", "element_type.h", "element_types.def", "scalar_types.h")
    headers |= {f"cukern/device/cukern/{name}" for name in device}
    for folder, source in (("formulas", "cuda/src/formulas"), ("rtc", "cuda/rtc")):
        headers |= {f"cukern/device/{folder}/{path.name}" for path in (tree / source).iterdir()}
    package = {
        "__init__.py",
        "__main__.py",
        "_allclose.py",
        "_compile.py",
        "_contractions.py",
        "_elementwise_kernel.py",
        "_formula_argument.py",
        "_formula_kernel.py",
        "_formula_source.py",
        "_formula_types.py",
        "_fuse.py",
        "_host_pieces.py",
        "_namespace.py",
        "_number_text.py",
        "_numpy_functions.py",
        "_parameter_names.py",
        "_pinned.py",
        "_progress.py",
        "_reduction_kernel.py",
        "_reduction_source.py",
        "_trace.py",
        "_traced.py",
        "py.typed",
        "_cukern.pyi",
        "_cukern.abi3.so",
        *(f"torch/{name}.py" for name in ("__init__", "_autograd", "_fallback", "_gradients", "_operations")),
        *(f"torch/{name}.py" for name in ("_reductions", "_register", "_types")),
    }
    assert {name for name in names if ".dist-info" not in name} == headers | {f"cukern/{name}" for name in package}
    code = "import cukern; print(cukern.__file__, cukern.add(1, 2), cukern.get_include())"
    text = run(sys.executable, "-c", code, cwd=wheel.parent, env=host_only(PYTHONPATH=str(site)))
    assert str(site / "cukern/__init__.py") in text
    assert str(site / "cukern/include") in text


def test_adding_an_operation_touches_three_places(wheel: Path) -> None:
    """Run the table's tests over the operation that CONTRIBUTING.md adds: those that a row has which was there."""
    tree, site = (wheel.parent / name for name in ("tree", "site"))
    environment = host_only(PYTHONPATH=str(site), CUKERN_BACKEND="host")
    code = "import cukern; print(cukern.reversed_subtract(5, 7), cukern.__file__)"
    assert run(sys.executable, "-c", code, cwd=tree, env=environment).split() == ["2", f"{site}/cukern/__init__.py"]
    assert "def reversed_subtract(a:" in (site / "cukern/_cukern.pyi").read_text()
    tests = [f"tests/test_{name}.py" for name in ("table", "elementwise")]
    chosen = ["-q", "-rA", "-p", "no:cacheprovider", "-k", "subtract or one_to_one"]
    text = run(sys.executable, "-m", "pytest", *chosen, *tests, cwd=tree, env=environment)
    assert "PASSED tests/test_table.py::test_rows_and_oracles_match_one_to_one" in text
    passed = re.findall(r"^PASSED tests/(\S+\[(?:\S+-)?)(reversed_subtract|subtract)\]", text, re.MULTILINE)
    added, present = ({test for test, row in passed if row == name} for name in ("reversed_subtract", "subtract"))
    assert added == present
    assert {"test_elementwise.py::test_contiguous[host-", "test_table.py::test_every_row_is_in_the_c_abi["} <= added


def test_source_id(tree: Path) -> None:
    def source_id() -> str:
        return run(sys.executable, "scripts/source_id.py", cwd=tree).strip()

    first = source_id()
    assert re.fullmatch("[0-9a-f]{64}", first)
    assert run(sys.executable, ROOT / "scripts/source_id.py", cwd=ROOT).strip() == first  # no git is needed
    for name in (
        "docs/new.md",
        "benchmarks/results/new.json",
        "build/x.o",
        "python/cukern/_cukern.abi3.so",
        "README.md",
    ):
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("new")
        assert source_id() == first, name
    seen = {first}
    for name in (
        "cuda/src/plan/launch.h",
        "ext/base/python.h",
        "tests/new.py",
        "setup.py",
        "build_backend/stubs.py",
        "scripts/x",
    ):
        path = tree / name
        path.write_text((path.read_text() if path.exists() else "") + "\n")
        seen.add(source_id())
    assert len(seen) == 7


def test_tasks_are_printed() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TASK"}
    text = run(ROOT / "scripts/build.sh", cwd=ROOT, env=environment)
    script = (ROOT / "scripts/build.sh").read_text()
    tasks = re.findall(r"^task_(\w+)\(\)", script, re.MULTILINE)
    assert len(tasks) >= 9
    for task in tasks:
        assert f"\n  {task} " in text
    wrong = subprocess.run(
        [ROOT / "scripts/build.sh"], env={**os.environ, "TASK": "nothing"}, capture_output=True, text=True, check=False
    )
    assert wrong.returncode == 1
    assert "there is no task 'nothing'" in wrong.stderr


def test_a_task_given_as_an_argument_is_an_error() -> None:
    plain = {name: value for name, value in os.environ.items() if name != "TASK"}  # that of who runs the tests
    done = subprocess.run([ROOT / "scripts/build.sh", "demo"], capture_output=True, text=True, check=False, env=plain)
    assert done.returncode == 1
    assert "TASK=demo ./scripts/build.sh" in done.stderr
