"""The survey draws everything, and checks what it measures."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import cukern

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.build  # it is of the source tree


@pytest.fixture
def cases(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    return importlib.import_module("survey_cases")


@pytest.fixture
def survey(cases: ModuleType) -> ModuleType:
    return importlib.import_module("survey")


def test_everything_is_drawn(cases: ModuleType) -> None:
    for seed in range(3):
        drawn = list(cases.draw(seed, 135))
        assert {case.name for case in drawn} == {*cases.ROWS, *cases.OTHERS}
        operands = [x for case in drawn for x in case.operands]
        assert {x.dtype for x in operands} == {*cases.TYPES}
        assert {x.layout for x in operands} == {*cases.LAYOUTS}
        assert {case.place for case in drawn} == {*cases.PLACES}
        assert {len(case.shape) for case in drawn} == set(range(1, 7))
        assert all(cases.LEAST <= case.size <= cases.MOST for case in drawn)
        sizes = np.log10([case.size for case in drawn])
        assert sizes.min() < 4 and sizes.max() > 7.5


def test_a_seed_gives_the_same_cases(cases: ModuleType) -> None:
    assert list(cases.draw(7, 20)) == list(cases.draw(7, 20))
    assert list(cases.draw(7, 20)) != list(cases.draw(8, 20))


def test_results_are_checked_and_timed(tmp_path: Path) -> None:
    output = tmp_path / "survey.json"
    command = [sys.executable, ROOT / "benchmarks/survey.py", "--seed", "3", "4", "--cases", "45"]
    environment = {**os.environ, "CUKERN_BACKEND": "host", "PYTHONWARNINGS": "ignore"}
    subprocess.run([*command, "--most", "2000", "--output", output], env=environment, check=True, timeout=300)
    content = json.loads(output.read_text())
    assert len(content["results"]) == 90
    assert all(entry["seconds"]["cukern"] > 0 and "error" not in entry for entry in content["results"])
    figures = content["groups"]["call, all elementwise, peer"]
    assert figures["least"] <= figures["5th percentile"] <= figures["median"]


def test_what_launches_nothing_is_timed_as_a_call(survey: ModuleType, cases: ModuleType) -> None:
    for name, dtype, kind in (("floor", "int32", "call"), ("floor", "float32", "graph")):
        case = cases.Case(name, "unary", (400, 300), [cases.Operand(dtype, "packed")], "in place", result=dtype)
        assert survey.measure(case)[1] == kind


def test_a_wrong_result_is_found(survey: ModuleType, cases: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    if cukern.backend() != "host":
        pytest.skip("its peer is NumPy")
    operands = [cases.Operand("float32", "window"), cases.Operand("float32", "row")]
    case = cases.Case("add", "binary", (5, 300), operands, "fresh", result="float32")
    run = survey.Run(case)
    run.check(None)
    own = run.own()

    def wrong() -> Any:
        result = own()
        result[3, 7] += 1
        return result

    monkeypatch.setattr(run, "own", lambda: wrong)
    with pytest.raises(AssertionError, match="1 of 1500 elements are wrong"):
        run.check(None)


def test_summaries(cases: ModuleType) -> None:
    figures = importlib.import_module("survey_tables").summary([0.5, *[1.0] * 38, 2.0])
    assert figures["cases"] == 40
    assert figures["5th percentile"] == 1.0
    assert figures["below 0.8"] == 1
    assert figures["geometric mean"] == pytest.approx(1.0)
