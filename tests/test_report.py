"""How the GPU report reads what pytest and compute-sanitizer print."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.build  # it is of the source tree

MEMCHECK = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at void cukern::cuda::contiguous_kernel<(cukern::Op)0, float, 2>(T2 *)+0x90
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x7f0000000000 is out of bounds
=========
========= Invalid __global__ read of size 4 bytes
=========     at other_kernel(float *)+0x90
=========
========= Program hit cudaErrorInvalidDevice (error 101) due to "invalid device" on CUDA API call to cudaSetDevice.
=========
========= Program hit CUDA_ERROR_INVALID_VALUE (error 1) due to "invalid" on CUDA API call to cuGetProcAddress_v2.
=========
========= Program hit CUDA_ERROR_INVALID_VALUE (error 1) due to "invalid" on CUDA API call to cuKernelGetParamInfo.
=========
========= Program hit CUDA_ERROR_NOT_FOUND (error 500) due to "named symbol" on CUDA API call to cuLibraryGetGlobal.
=========
========= Program hit CUDA_ERROR_NOT_FOUND (error 500) due to "named symbol" on CUDA API call to cuModuleGetGlobal.
=========
========= ERROR SUMMARY: 7 errors
"""
RACECHECK = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at planted+0x50 and Read access at planted+0x90 [64 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    monkeypatch.setattr(sys, "path", [str(ROOT / "scripts"), str(ROOT / "benchmarks"), *sys.path])
    module = importlib.import_module("gpu_report")
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    return module


@pytest.fixture
def files(report: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """gpu_tests.py, on a machine of its own."""
    module = sys.modules["gpu_tests"]
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    monkeypatch.setattr(module, "gpus", lambda: ["one"])
    return module


@pytest.fixture
def sanitizers(report: ModuleType) -> ModuleType:
    return sys.modules["gpu_sanitizers"]


def test_every_kernel_is_checked_for_races(sanitizers: ModuleType) -> None:
    """The report's list is what there is: a new kernel needs a test there."""
    define = r"__global__ void (?:__launch_bounds__\((?:[^()]|\([^()]*\))*\)\s*)?(\w+)\("
    sources = [path for path in (ROOT / "cuda").rglob("*.cu*") if path.name != "probe.cu"]
    kernels = {name for path in sources for name in re.findall(define, path.read_text())}
    assert kernels == set(sanitizers.KERNEL_TEMPLATES)
    # Without a GPU they are left out, which pytest tells by a status of its own; what is not there is an error.
    tests = [ROOT / "tests" / test for test in sanitizers.KERNEL_TESTS]
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED), done.stdout + done.stderr


def test_findings_are_told_apart(sanitizers: ModuleType) -> None:
    ours, others = sanitizers.findings(MEMCHECK)
    assert [text.split(",")[0].split(" (")[0] for text in ours] == [
        "Invalid __global__ write of size 4 bytes",
        "Invalid __global__ read of size 4 bytes",
        "Program hit cudaErrorInvalidDevice",
        "Program hit CUDA_ERROR_NOT_FOUND",
    ]
    asked = [re.search(r"cu\w+(?=\.$)", text) for text in others]
    assert [found and found[0] for found in asked] == [
        "cuGetProcAddress_v2",
        "cuKernelGetParamInfo",
        "cuLibraryGetGlobal",
    ]
    assert len(sanitizers.findings(RACECHECK)[0]) == 1
    assert sanitizers.findings("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n") == ([], [])
    log = "========= COMPUTE-SANITIZER\n========= Host API memory access error at host access to 0x10 of size 4\n"
    assert len(sanitizers.findings(log)[0]) == 1, "of a kind that was not seen before"


def test_counts(files: ModuleType) -> None:
    text = "FAILED tests/a.py::b[c d] - assert\nERROR tests/e.py\n"
    text += "2 failed, 7 passed, 1 skipped, 3 deselected, 1 error in 2s\n"
    assert files.counts(text) == {"passed": 7, "failed": 2, "skipped": 1, "error": 1, "deselected": 3}
    assert files.failures(text) == ["tests/a.py::b[c d]", "tests/e.py"]


def test_verdicts(report: ModuleType) -> None:
    clean = {
        "status": 0,
        "counts": {"passed": 5, "failed": 0, "error": 0},
        "findings": [],
        "findings_elsewhere": ["theirs"],
        "reported_errors": 1,
        "summaries": 1,
        "planted_defect_found": True,
    }
    assert report.passed("memcheck", {"result": clean})
    for change in (
        {"status": 1},
        {"counts": {"passed": 0, "failed": 0, "error": 0}},
        {"counts": {"passed": 5, "failed": 1, "error": 0}},
        {"findings": ["ours"]},
        {"reported_errors": 2},
        {"summaries": 0},
        {"planted_defect_found": False},
    ):
        assert not report.passed("memcheck", {"result": {**clean, **change}}), change


def test_parts_of_other_sources_never_mix(report: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "suite.json").write_text(json.dumps({"sources": "older", "result": {}}))
    assert report.stored("suite", "newer") is None
    assert report.stored("suite", "older") is not None
    assert report.stored("memcheck", "older") is None


def test_new_files_and_the_longest_of_last_time_run_first(
    files: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    began: list[str] = []

    def run(file: str) -> dict[str, object]:
        began.append(file)
        return {"status": {"tests/test_matmul.py": -11, "tests/test_docs.py": 5}.get(file, 0), "text": "2 passed in 1s"}

    monkeypatch.setattr(files.os, "cpu_count", lambda: 1)
    last = {f"tests/{path.name}": 1.0 for path in (ROOT / "tests").glob("test_*.py")}
    last |= {"tests/test_matmul.py": 2.0, "tests/test_table.py": 40.5}
    del last["tests/test_docs.py"]
    (tmp_path / "suite.json").write_text(json.dumps({"sources": "older", "result": {"seconds": last}}))
    result = files.of_all_files(files.run_files("suite", run))
    assert began[:3] == ["tests/test_docs.py", "tests/test_table.py", "tests/test_matmul.py"]
    assert "tests/test_memory.py" in began[-len(files.ALONE) :]  # beside nothing else
    assert result["status"] == 11  # a signal ended it
    assert set(result["seconds"]) == set(began) == {f"tests/{path.name}" for path in (ROOT / "tests").glob("test_*.py")}
    assert result["counts"]["passed"] == 2 * len(began)


def test_a_part_that_was_cut_off_runs_the_files_that_are_left(
    files: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    began: list[str] = []
    timed_out, interrupted, others = "tests/test_matmul.py", "tests/test_memory.py", ["tests/test_out.py"]
    killed = "tests/test_docs.py"
    wanted = sorted([timed_out, interrupted, killed])

    def cut_off(file: str) -> dict[str, object]:
        if file == interrupted:
            raise KeyboardInterrupt
        return {"status": {timed_out: files.TIMED_OUT, killed: -2}.get(file, 0), "text": "1 passed in 1s"}

    def run(file: str) -> dict[str, object]:
        began.append(file)
        return {"status": 0, "text": "1 passed in 1s"}

    monkeypatch.setattr(files, "shards", lambda: ([timed_out, killed, *others], [interrupted]))
    with pytest.raises(KeyboardInterrupt):
        files.run_files("suite", cut_off)
    results = files.run_files("suite", run)
    assert sorted(began) == wanted
    assert files.of_all_files(results)["counts"]["passed"] == 4
    files.partial_path("suite").unlink()
    assert not list(tmp_path.iterdir())
    for other, found in (("source_id", "others"), ("gpus", ["another"])):
        with pytest.raises(KeyboardInterrupt):
            files.run_files("suite", cut_off)
        assert files.unfinished("suite")["seconds"] >= 0
        began.clear()
        with monkeypatch.context() as patch:
            patch.setattr(files, other, lambda found=found: found)
            assert files.unfinished("suite") == {}
            files.run_files("suite", run)
        assert sorted(began) == sorted([*wanted, *others])
    assert files.worst_status({"a": {"status": 124}, "b": {"status": 139}}) == files.TIMED_OUT


def test_the_survey_is_told(report: ModuleType) -> None:
    entry = {"kind": "call", "family": "functions", "text": "exp of float32", "bytes": 8e3}
    entry |= {"seconds": {"cukern": 4e-6}, "ratios": {"torch": 0.5}}
    failed = {"text": "sin of int8", "error": "AssertionError: 1 of 5 elements are wrong"}
    text = report.survey_tables.table([entry, failed])
    content = {"result": {"status": 1, "seeds": [1, 2, 3], "table": text}}
    assert not report.passed("survey", content)
    lines = "\n".join(report.describe("survey", content))
    assert "| 0.5 | exp of float32 | call | 4 | 2 | torch |" in lines
    assert "- error: sin of int8: AssertionError" in lines


def test_what_is_slower_than_a_copy_has_a_reason(report: ModuleType) -> None:
    def entry(ratio: float, seconds: float, family: str = "arithmetic", **case: object) -> dict[str, object]:
        operands = [{"dtype": "int8", "layout": "packed"}, {"dtype": case.pop("type", "int8"), "layout": "steps"}]
        told = {"name": "add", "kind": "binary", "shape": [1000, 1000], "operands": operands, "out": None} | case
        times = {"kind": "graph", "family": family, "seconds": {"cukern": seconds}, "ratios": {"copy": ratio}}
        return {"case": {"result": "int8"} | told, "text": f"case {ratio}", "bytes": 1e6} | times

    entries = [entry(0.9, 1e-5), entry(0.69, 1e-5), entry(0.2, 2e-6), entry(0.3, 1e-4, "functions")]
    entries += [entry(0.4, 1e-5, "scans"), entry(0.5, 1e-5, type="int16"), entry(0.6, 3e-6, kind="reduction")]
    entries += [entry(0.65, 1e-5, out={"layout": "transposed"})]
    lines = [line for line in report.survey_tables.table(entries).split("\n") if line.startswith("| 0.")]
    assert lines == [
        "| 0.2 | case 0.2 | 2 | short: a kernel begins and ends |",
        "| 0.3 | case 0.3 | 100 | arithmetic, 10 elements a ns |",
        "| 0.4 | case 0.4 | 10 | each result needs those before it |",
        "| 0.5 | case 0.5 | 10 | conversions, 100 elements a ns |",
        "| 0.6 | case 0.6 | 3 | short: two kernels |",
        "| 0.65 | case 0.65 | 10 | orders of memory that differ, 100 elements a ns |",
        "| 0.69 | case 0.69 | 10 | instructions of short or single elements, 100 elements a ns |",
    ]
    large = "device, all elementwise of 64 MB and more, copy"
    groups = report.survey_tables.groups([*entries, entries[1] | {"bytes": 64e6}])
    assert groups[large]["cases"] == 1 and groups["device, all elementwise, copy"]["cases"] == len(entries)


def test_a_ratio_is_not_won_where_the_medians_say_otherwise(report: ModuleType) -> None:
    comparison = importlib.import_module("harness").Comparison
    rounds = [1.07, 1.05, 1.1]
    faster = comparison("a", "call", "cukern", 1, "us", {"cukern": 8.0, "torch": 9.0}, {"torch": rounds})
    slower = comparison("a", "call", "cukern", 1, "us", {"cukern": 9.3, "torch": 8.3}, {"torch": rounds})
    assert faster.ratio("torch") == 1.07
    assert slower.ratio("torch") < 1
