"""What is installed: symbols, needed libraries, headers, stub, names."""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import sys
import zlib
from importlib.metadata import metadata, version
from pathlib import Path
from typing import Any

import pytest

import cukern

LIBRARY = cukern.library_path()


def tool(*command: str) -> list[str]:
    """Return the lines that a tool of binutils prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_exported_symbols() -> None:
    symbols = {line.split()[-1] for line in tool("nm", "-D", "--defined-only", LIBRARY)}
    assert "PyInit__cukern" in symbols
    assert "cukern_add_f32_dev" in symbols
    assert [name for name in symbols if not name.startswith("cukern_") and name != "PyInit__cukern"] == []


def test_needed_libraries() -> None:
    needed = [line.split("[")[1].rstrip("]") for line in tool("readelf", "-d", LIBRARY) if "(NEEDED)" in line]
    assert needed
    assert [name for name in needed if name.startswith(("libcu", "libnv", "libpython", "libtorch", "libc10"))] == []


def test_it_is_stripped_and_abi3() -> None:
    assert LIBRARY.endswith("_cukern.abi3.so")
    if os.environ.get("CUKERN_STRIP", "1") == "1":
        assert not [line for line in tool("readelf", "-S", "-W", LIBRARY) if " .symtab" in line]


def test_its_size() -> None:
    """The library is nearly all of a wheel, which stays under 20 MB for all generations of GPUs."""
    assert len(zlib.compress(Path(LIBRARY).read_bytes())) < 20e6


def test_versions_agree() -> None:
    assert cukern.__version__ == version("cukern")
    assert metadata("cukern")["License-Expression"] == "Apache-2.0"


def test_headers_are_there_and_are_c(tmp_path: Path) -> None:
    header = Path(cukern.get_include()) / "cukern/cukern.h"
    assert header.is_file()
    source = tmp_path / "header.c"
    source.write_text('#include "cukern/cukern.h"\nint main(void) { return CUKERN_OK; }\n')
    command = [
        "cc",
        "-std=c99",
        "-Wall",
        "-Wpedantic",
        "-Werror",
        "-fsyntax-only",
        f"-I{cukern.get_include()}",
    ]
    subprocess.run([*command, source], check=True)


def test_all_names_exist_and_none_is_missing() -> None:
    for name in cukern.__all__:
        assert hasattr(cukern, name)
    public = {name for name in vars(cukern) if not name.startswith("_")}
    assert public == set(cukern.__all__)


def test_stub_names_every_function() -> None:
    stub = (Path(cukern.__file__).parent / "_cukern.pyi").read_text()
    for name in cukern.__all__:
        if hasattr(cukern._cukern, name):
            assert any(text in stub for text in (f"def {name}(", f"class {name}(", f"class {name}:", f"{name}: "))
    assert (Path(cukern.__file__).parent / "py.typed").is_file()


def parameters(function: ast.FunctionDef) -> set[str]:
    """Return the names that a stub's function takes, of one variant of it."""
    given = function.args
    several = [argument for argument in (given.vararg, given.kwarg) if argument]
    return {argument.arg for argument in given.posonlyargs + given.args + given.kwonlyargs + several} - {"self", "cls"}


def assert_stub_agrees(owner: Any, body: list[ast.stmt]) -> None:
    taken: dict[str, set[str]] = {}
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            kind = getattr(cukern._cukern, statement.name, None)
            if kind is not None:
                assert_stub_agrees(kind, statement.body)
                named = {entry.name for entry in statement.body if isinstance(entry, ast.FunctionDef)}
                methods = {name for name, value in vars(kind).items() if inspect.ismethoddescriptor(value)}
                ours = methods - set(vars(object)) - {"__delitem__", "__del__", "__rsub__", "__release_buffer__"}
                assert ours <= named, f"{statement.name}: {sorted(ours - named)}"
        elif isinstance(statement, ast.FunctionDef):
            taken.setdefault(statement.name, set()).update(parameters(statement))
    for name, names in taken.items():
        value = getattr(owner, name, None)
        if name.startswith("__") or not getattr(value, "__text_signature__", None):
            continue
        signature = inspect.signature(value).parameters.values()
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature):
            assert {parameter.name for parameter in signature} - {"self"} == names, name


def test_stub_agrees_with_the_signatures() -> None:
    stub = (Path(cukern.__file__).parent / "_cukern.pyi").read_text()
    assert_stub_agrees(cukern._cukern, ast.parse(stub).body)


def test_types_as_mypy_sees_them(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"
    program.write_text(
        "import array\nimport numpy as np\nimport cukern\n"
        "a = np.ones(3)\n"
        "reveal_type(cukern.add(a, 1.0))\n"
        "reveal_type(cukern.add(a, a, out=a))\n"
        "reveal_type(cukern.matmul(a, a))\n"
        "reveal_type(cukern.backend())\n"
        "cukern.scale(array.array('f', [1.0]), 2)\n"
        "cukern.add([1.0], 1)\n"
        "cukern.scale(a, 2, into=a)\n"
    )
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", program],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    lines = [line.split(": ", 1)[1] for line in run.stdout.splitlines() if ".py:" in line]
    assert "ndarray" in lines[0]
    assert "ndarray" in lines[1]
    assert "ndarray" in lines[2]
    assert '"str"' in lines[3]
    errors = {line.split(":")[1] for line in run.stdout.splitlines() if ": error:" in line}
    assert errors == {"10", "11"}
