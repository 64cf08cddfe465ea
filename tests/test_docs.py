"""The examples in docstrings, README and examples/ run."""

from __future__ import annotations

import doctest
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import HAS_GPU

import cukern

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTED = [name for name in cukern.__all__ if "\nExamples\n" in (inspect.getdoc(getattr(cukern, name)) or "")]


def test_every_function_has_an_example() -> None:
    public = [getattr(cukern, name) for name in cukern.__all__]
    described = [thing for thing in public if callable(thing) and not isinstance(thing, type)]
    described += [cukern.Array, cukern.Stream, cukern.Event, cukern.Device]
    described += [cukern.RawKernel, cukern.RawModule, cukern.Pointer, cukern.ElementwiseKernel]
    described += [cukern.ReductionKernel, cukern.placement, cukern.pinned_allocator, cukern.progress]
    assert sorted(thing.__name__ for thing in described) == sorted(DOCUMENTED)


@pytest.mark.parametrize("name", DOCUMENTED)
def test_docstrings(name: str) -> None:
    test = doctest.DocTestParser().get_doctest(inspect.getdoc(getattr(cukern, name)), {}, name, None, 0)
    assert test.examples
    results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test)
    assert results.failed == 0


@pytest.mark.build
def test_readme_examples() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    run = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)], capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.gpu
@pytest.mark.unsanitized  # a process of its own; other tests have its kernels checked
def test_examples_of_kernels() -> None:
    if not HAS_GPU:
        pytest.skip("needs a GPU")
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/kernels.md").read_text(), re.DOTALL)
    assert len(blocks) > 5
    run = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)], capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.build
def test_quickstart() -> None:
    run = subprocess.run(
        [sys.executable, ROOT / "examples/quickstart.py"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=dict(os.environ),
    )
    assert run.returncode == 0, run.stderr
    assert "matmul" in run.stdout


@pytest.mark.build
def test_the_architecture_page_names_every_folder() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    for folder in (
        "python/cukern",
        "ext",
        "cuda/include",
        "cuda/src",
        "build_backend",
        "tests",
        "benchmarks",
        "scripts",
    ):
        assert f"`{folder}" in page


@pytest.mark.unsanitized  # as above
def test_examples_of_torch() -> None:
    pytest.importorskip("torch")
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/torch.md").read_text(), re.DOTALL)
    assert len(blocks) > 5
    for command in (["-c", "\n".join(blocks)], [str(ROOT / "examples/torch_training.py")]):
        run = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=300, check=False)
        assert run.returncode == 0, run.stdout + run.stderr
