"""How scripts/cupy_examples.py reads a guide and runs its examples; the guide itself is run on a GPU, of a checkout."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cukern

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.build

GUIDE = """
Title
=====

Some text.

.. doctest::

   >>> x = cp.arange(3,
   ...               dtype=cp.float32)
   >>> x
   array([0., 1., 2.])

First part
----------

.. doctest::

   >>> assert cp.allclose(x + 1, cp.arange(1, 4))
.. doctest::

   >>> x.nothing  # doctest: +SKIP

Second part
-----------

.. note:: no example

.. doctest::

   >>> from cupyx import jit
"""


@pytest.fixture(scope="module")
def examples():
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("cupy_examples", ROOT / "scripts/cupy_examples.py")
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["cupy_examples"] = module
    spec.loader.exec_module(module)
    return module


def test_blocks_are_found_and_run(examples) -> None:
    blocks = list(examples.blocks_of(GUIDE))
    assert [block.heading for block in blocks] == ["Title", "First part", "First part", "Second part"]
    assert [len(block.statements) for block in blocks] == [2, 1, 1, 1]
    results = examples.run_blocks(blocks, {"cp": cukern, "np": np})
    assert [status for _, status, _ in results] == ["ran", "ran", "failed", "left out"]
    assert "nothing" in results[2][2]
    assert "CuPy's compiler" in results[3][2]


def test_it_needs_a_checkout() -> None:
    script = ROOT / "scripts/cupy_examples.py"
    environment = {name: value for name, value in os.environ.items() if name != "CUPY_CHECKOUT"}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 2
    assert "CUPY_CHECKOUT has to be" in done.stderr
