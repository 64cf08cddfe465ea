"""The folders of ext/ and cuda/src/ are as docs/architecture.md draws them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cukern._formula_source import FOLLOW

ROOT = Path(__file__).resolve().parent.parent
SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
MOST_LINES = 450
# Its name and its body, but for one of one line, which does nothing.
KERNEL = re.compile(r"^__global__ void.*?\b(\w+_kernel)\([^;{]*\{\n(.*?)^\}", re.DOTALL | re.MULTILINE)

pytestmark = pytest.mark.build


def drawn(root: str) -> dict[str, set[str]]:
    """Return the folders that the page names below `root`, and what each of them may include."""
    page = (ROOT / "docs/architecture.md").read_text()
    rows = re.findall(rf"^\| `{root}/([a-z_/]+)` \|.*\|([^|]*)\|$", page, re.MULTILINE)
    return {folder: set(re.findall("`([a-z_/]+)`", includes)) for folder, includes in rows}


def sources(root: str) -> Iterator[Path]:
    return (path for path in (ROOT / root).rglob("*") if path.suffix in SUFFIXES)


@pytest.mark.parametrize("root", ["ext", "cuda/src"])
def test_every_folder_is_on_the_page(root: str) -> None:
    folders = {path.parent.relative_to(ROOT / root).as_posix() for path in sources(root)} - {"."}
    assert len(folders) > 8
    assert folders == set(drawn(root))


@pytest.mark.parametrize("root", ["ext", "cuda/src"])
def test_includes_go_the_way_that_the_page_draws(root: str) -> None:
    allowed = drawn(root)
    seen: dict[str, set[str]] = {folder: set() for folder in allowed}
    for path in sources(root):
        folder = path.parent.relative_to(ROOT / root).as_posix()
        for name in re.findall(r'^#include "(.*)"$', path.read_text(), re.MULTILINE):
            own = ROOT / root / name
            assert own.exists() != (ROOT / "cuda/include" / name).exists(), f"{path}: {name} is not below {root}"
            if own.exists() and folder != ".":
                seen[folder].add(Path(name).parent.as_posix())
    for folder, used in seen.items():
        assert used - {folder} <= allowed[folder], folder
    unused = {folder: allowed[folder] - used for folder, used in seen.items() if allowed[folder] - used}
    assert not unused, "the page draws more than there is"


@pytest.mark.parametrize("root", ["ext", "cuda/src"])
def test_headers_include_no_folder_that_includes_theirs(root: str) -> None:
    edges: dict[str, set[str]] = {}
    for path in sources(root):
        if path.suffix in (".h", ".cuh"):
            folder = path.parent.relative_to(ROOT / root).as_posix()
            names = re.findall(r'^#include "(.*)"$', path.read_text(), re.MULTILINE)
            others = {Path(name).parent.as_posix() for name in names if (ROOT / root / name).exists()}
            edges.setdefault(folder, set()).update(others - {folder})
    while leaves := [folder for folder, others in edges.items() if not others & set(edges)]:
        for folder in leaves:
            del edges[folder]
    assert not edges, "a circle"


@pytest.mark.parametrize("root", ["ext", "cuda"])
def test_no_file_is_long(root: str) -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in sources(root)}
    assert len(lengths) > 40
    assert not {str(path): lines for path, lines in lengths.items() if lines > MOST_LINES}


def test_what_may_not_be_below_a_folder() -> None:
    for path in sources("cuda"):
        assert "Python.h" not in path.read_text(), path
    for path in sources("ext"):
        assert path.suffix in (".h", ".cpp"), path
        assert "<<<" not in path.read_text(), path


def test_every_kernel_follows_the_one_before() -> None:
    """A kernel that did not wait would break the order of those around it (device/follow.cuh)."""
    names, launched, count = set(), set(), 0
    for path in sources("cuda"):
        text = path.read_text()
        count += len(re.findall("^ *[^/\n]*__global__", text, re.MULTILINE))
        launched |= set(re.findall(r"(?:launch_kernel|kernel_of)<(\w+)", text)) - {"auto", "kernel"}
        for kernel in KERNEL.finditer(text):
            name, body = kernel[1], kernel[2]
            names.add(name)
            # Not within a branch, but for one of what the compiler knows.
            calls = re.findall(r"^((?: {4}){1,2})follow_kernel_before\(\);", body, re.MULTILINE)
            assert [len(call) for call in calls] == [8 if "if constexpr (kIsCompiled)" in body else 4], name
        # Loads that the compiler may move to before the wait.
        assert not re.search(r"__ldg|__restrict__|\bld\.global\.nc", text), path
    assert launched == names
    # The text made of a formula waits likewise.
    text = (ROOT / "cuda/src/device/follow.cuh").read_text()
    most = re.findall(r"kMostBlocksAtOnce = (\d+)", text)
    waits = r"void _?follow_kernel_before\(\) \{\n#if [^\n]*__CUDA_ARCH__ >= 900\n(.*?)\n#endif"
    ours, formulas = (re.findall(waits, each, re.DOTALL) for each in (text, FOLLOW))
    assert formulas == [each.replace("kMostBlocksAtOnce", *most) for each in ours] != []
    assert count == len(names) + 1, "all but probe_kernel, which does nothing"
