#!/usr/bin/env python3
"""On a machine with a GPU: runs the suite, compute-sanitizer and the benchmarks, and writes docs/gpu-report.md.

    PARTS=suite,memcheck python scripts/gpu_report.py     these parts; without PARTS all that are not done
    python scripts/gpu_report.py --write                  the report alone, from what is there

Each part takes under 8 minutes and leaves benchmarks/results/<part>.json with the hash of the sources that it
ran on. A part that is there for the sources as they stand is not run again; the report takes in no other. The suite
and memcheck run a process for each file of tests; where they were cut off only the files that are left are run.
cukern is imported as it is installed, which may be from a wheel built elsewhere.

suite                            the suite but for tests of the build, on every back-end; one without its GPU fails
memcheck                         the suite under compute-sanitizer at small sizes, every block its own
                                 allocation; without the tests whose subject is an error of CUDA, which then
                                 run without it, and those that build from source
racecheck, synccheck, initcheck  at least one test a kernel template
soak                             random calls from a seed of the clock, in several processes (scripts/soak.py)
bench                            benchmarks/run.py
survey                           benchmarks/survey.py with seeds that the sources' hash gives
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks/results"
REPORT = ROOT / "docs/gpu-report.md"
sys.path.insert(0, str(ROOT / "benchmarks"))

import survey_tables  # noqa: E402
from source_id import source_id  # noqa: E402

LIMIT = 480  # seconds a part
TIMED_OUT = 124
# pytest's statuses for a file of which no test is chosen, and for those whose tests have ended.
NOTHING = 5
ENDED = (0, 1, NOTHING)
# What is printed for each object that a library can't free after an error of the GPU.
AFTER_THE_END = "Error in sys.excepthook:\n\nOriginal exception was:\n"
TOOLS = ["memcheck", "racecheck", "synccheck", "initcheck"]
PARTS = ["suite", *TOOLS, "soak", "bench", "survey"]
SOAK_SECONDS = 60
SOAK_PROCESSES = 12
SURVEY_CASES = 135  # of each of three seeds
BENCHMARKS = ["device", "host", "transfers", "calls", "kernels", "elementwise", "reductions", "torch_operations"]
ALONE = {
    "test_c_abi",
    "test_leaks",
    "test_leaks_many",
    "test_memory",
    "test_memory_limits",
    "test_package",
    "test_report",
    "test_workspaces",
}

# For the tools that follow every access to memory: at least one test a kernel template.
KERNEL_TESTS = [
    "test_elementwise.py::test_contiguous[cuda-add-float32]",
    "test_elementwise.py::test_contiguous[cuda-divide-int64]",
    "test_elementwise.py::test_element_types_and_special_values",
    "test_selections.py::test_broadcasting",
    "test_selections.py::test_where[cuda-float32]",
    *(
        f"test_reductions.py::test_sizes[cuda-{row}]"
        for row in ("sum-float32", "max-int8", "argmax-float64", "any-bool")
    ),
    "test_reductions.py::test_axes[cuda-mean-complex64]",
    "test_cumulative.py::test_sizes[cuda-cumulative_sum-float32]",
    "test_cumulative.py::test_axes[cuda-cumulative_prod-complex64]",
    "test_layouts.py::test_two_operands[cuda-transposed-float32]",
    "test_layouts.py::test_two_operands[cuda-row-float16]",
    "test_layouts.py::test_copies[cuda-transposed and backwards-complex128]",
    "test_layouts.py::test_more_dimensions[cuda-int8]",
    "test_layouts.py::test_rows_that_begin_anywhere[cuda-sqrt-float16]",
    "test_layouts.py::test_packed_conversions[cuda-uint16]",
    "test_reductions.py::test_many_dimensions",
    "test_elementwise.py::test_dimensions_that_do_not_merge",
    "test_elementwise.py::test_sixty_four_dimensions",
    "test_elementwise.py::test_the_main_job",
    "test_matmul.py::test_integers_are_exact_and_wrap",
    "test_matmul.py::test_large_transposed",
    "test_matmul.py::test_layouts[cuda-float64-matmul_tiled]",
    "test_product_kernels.py::test_shapes[cuda-float32-NN]",
    "test_product_kernels.py::test_vectors_amid_nan[cuda-float32-NN]",
    "test_product_kernels.py::test_short_sums_amid_nan[cuda-float64-TN]",
    "test_product_kernels.py::test_shapes[cuda-float32-TT]",
    "test_product_kernels.py::test_shapes[cuda-float64-NT]",
    "test_product_kernels.py::test_sums_that_blocks_share[cuda-float32]",
    "test_product_kernels.py::test_sums_that_blocks_share[cuda-complex128]",
    "test_product_kernels.py::test_results_in_columns[cuda-float64]",
    "test_product_kernels.py::test_small_matrices_amid_nan[cuda-float32-NN]",
    "test_product_kernels.py::test_small_matrices_amid_nan[cuda-float64-TN]",
    "test_elementwise_kernel.py::TestResults::test_layouts[gpu]",
    "test_elementwise_kernel.py::TestResults::test_rows_columns_and_windows[gpu]",
    "test_reduction_kernel.py::TestResults::test_layouts[gpu]",
    "test_reduction_kernel.py::TestResults::test_indices_and_no_identity[gpu]",
    "test_fuse.py::TestArguments::test_results[gpu]",
    "test_raw_kernel.py::TestLaunches::test_three_ways",
    "test_graphs.py::TestCalls::test_kernels_of_ones_own[cuda]",
    "test_graphs.py::TestCalls::test_branches_share_no_memory[cuda]",
]
FINDING = r"^========= (?:Invalid|Program hit|Error: |Warning: |Uninitialized|Race|Barrier|Potential).*"
KERNEL_TEMPLATES = [
    *(
        "contiguous_kernel",
        "strided_kernel",
        "matmul_tiled_kernel",
        "matmul_sliced_kernel",
        "matmul_direct_kernel",
        "matmul_short_kernel",
        "matmul_vector_kernel",
        "matmul_elements_kernel",
        "join_tiles_kernel",
        "rows_kernel",
        "short_rows_kernel",
    ),
    *("columns_kernel", "combine_kernel", "broadcast_kernel", "transpose_kernel"),
    *("interleaved_kernel", "where_kernel", "convert_kernel"),
    *("scan_lines_kernel", "scan_columns_kernel"),
]


def environment(**extra: str) -> dict[str, str]:
    """Return the environment of a part."""
    return {**os.environ, "CUKERN_REQUIRE_GPU": "1", "PYTHONUNBUFFERED": "1", **extra}


def pytest(*arguments: str) -> list[str]:
    """Return a command that runs the tests."""
    return [sys.executable, "-m", "pytest", "-q", "-ra", "-p", "no:cacheprovider", *arguments]


def run(command: list[str], env: dict[str, str], limit: float = LIMIT) -> tuple[int, str]:
    """Run a command; return its exit status and what it printed, which is shown too."""
    print("$", " ".join(command), flush=True)
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=limit,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        output = error.stdout or b""
        text = output.decode(errors="replace") if isinstance(output, bytes) else output
        print(text[-3000:], flush=True)
        return TIMED_OUT, text
    print(done.stdout.replace(AFTER_THE_END, "")[-3000:], flush=True)
    return done.returncode, done.stdout


def counts(text: str) -> dict[str, int]:
    """Return the numbers of pytest's last lines, added up over its runs."""
    found = dict.fromkeys(("passed", "failed", "skipped", "error", "deselected"), 0)
    for line in text.splitlines():
        if re.search(r"\d+ (passed|failed|errors?|skipped|deselected)\b.* in [\d.]+s", line):
            for number, kind in re.findall(r"(\d+) (passed|failed|error|skipped|deselected)", line):
                found[kind] += int(number)
    return found


def failures(text: str) -> list[str]:
    """Return the names of the tests that failed."""
    return re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", text, re.MULTILINE)


def machine() -> dict[str, Any]:
    """Return what a part ran on."""
    from cukern import _cukern

    information = _cukern._information()
    versions = {"python": platform.python_version(), "cukern": _cukern.__version__}
    for name in ("numpy", "torch", "cupy", "numba", "jax", "ml_dtypes"):
        try:
            versions[name] = __import__(name).__version__
        except ImportError:
            versions[name] = "not installed"
    return {
        "gpu": ", ".join(device["name"] for device in information["devices"]),
        "driver": nvidia_driver(),
        "cuda_driver_api": information["driver"],
        "cuda_runtime": information["runtime"],
        "cublas": information["cublas"]["version"],
        "backend": information["backend"],
        **versions,
    }


def nvidia_driver() -> str:
    """Return the driver's version."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "unknown"


def shards() -> tuple[list[str], list[str]]:
    """Return the files of tests that run side by side, and those that look at all of the GPU's memory."""
    files = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").glob("test_*.py"))
    alone = [file for file in files if Path(file).stem in ALONE]
    return [file for file in files if file not in alone], alone


def partial_result(part: str) -> Path:
    """Return where the results of files are kept while their part is not done."""
    return RESULTS / f"{part}.partial.json"


def run_files(part: str, command: Callable[[str], dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Run a command for each file of tests: first new ones, then those that took longest last time.

    Return what the command returned for each file, and its seconds. Each file's result is stored as the file ends, so
    that a part that was cut off runs only the files that are left.
    """
    path = RESULTS / f"{part}.json"
    last = json.loads(path.read_text())["result"].get("seconds", {}) if path.is_file() else {}
    sources, partial = source_id(), partial_result(part)
    stored = json.loads(partial.read_text()) if partial.is_file() else {}
    results: dict[str, dict[str, Any]] = stored["results"] if stored.get("sources") == sources else {}
    lock = threading.Lock()

    def run_one(file: str) -> None:
        if file in results:
            return
        begin = time.monotonic()
        result = command(file)
        result["seconds"] = round(time.monotonic() - begin, 1)
        with lock:
            results[file] = result
            ended = {name: each for name, each in results.items() if each["status"] in ENDED}
            unfinished = partial.with_suffix(".tmp")
            unfinished.write_text(json.dumps({"sources": sources, "results": ended}))
            unfinished.replace(partial)

    together, alone = shards()
    with ThreadPoolExecutor(max_workers=min(12, os.cpu_count() or 1)) as pool:
        list(pool.map(run_one, sorted(together, key=lambda file: -last.get(file, LIMIT))))
    for file in alone:
        run_one(file)
    return results


def worst_status(results: dict[str, dict[str, Any]]) -> int:
    """Return the worst exit status of the files of tests."""
    # A process that a signal has ended has a status below zero.
    found = [abs(each["status"]) for each in results.values() if each["status"] != NOTHING]
    return TIMED_OUT if TIMED_OUT in found else max(found, default=0)


def of_all_files(results: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the worst status, the numbers of tests, what failed, and how many seconds each file took."""
    text = "\n".join(each["text"] for each in results.values())
    return {
        "status": worst_status(results),
        "counts": counts(text),
        "failures": failures(text),
        "skips": re.findall(r"^SKIPPED (\[\d+\] .*)$", text, re.MULTILINE),
        "seconds": {file: each["seconds"] for file, each in results.items()},
    }


def run_suite() -> dict[str, Any]:
    def test(file: str) -> dict[str, Any]:
        # Tests of the build need no GPU, and take longer than all others.
        status, text = run(pytest(file, "-m", "not build"), environment())
        return {"status": status, "text": text}

    return of_all_files(run_files("suite", test))


QUESTION = (
    r"on CUDA API call to cuGetProcAddress|CUDA_ERROR_INVALID_VALUE .* to cuKernelGetParamInfo"
    r"|CUDA_ERROR_NOT_FOUND .* to cuLibraryGet(?:Kernel|Global|Managed)\b"
)


def findings(log: str) -> tuple[list[str], list[str]]:
    """Return the findings of a sanitizer's log: those that count, and those that are other libraries' way.

    Whose memory and whose call it was is not known, so that all count but questions that the driver answers by an
    error: which functions it has, how many parameters a kernel has, and whether an image has a kernel or a variable of
    a name.
    """
    ours, others = [], []
    for block in re.split(r"\n=========\s*\n", log):
        found = re.search(FINDING, block, re.MULTILINE)
        if found is None:
            continue
        text = found[0].removeprefix("========= ")
        where = re.search(r"    (at .*)", block)
        if where is not None:
            text += f", {where[1][:160]}"
        (others if re.search(QUESTION, text) else ours).append(text)
    return ours, others


def sanitize(tool: str, command: list[str]) -> dict[str, Any]:
    """Run a command under a tool of compute-sanitizer; return what it reported."""
    env = environment(CUKERN_POOL="0", CUKERN_TEST_SMALL="1", CUKERN_TEST_SANITIZED="1")
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        # A backtrace of the host keeps the frames of Python that it names, and with them what tests expect to go.
        options = f"--tool {tool} --show-backtrace device --print-limit 1000 --error-exitcode 0".split()
        options += ["--log-file", f"{log}.%p"]
        status, text = run(["compute-sanitizer", *options, *command], env)
        content = "\n".join(path.read_text(errors="replace") for path in sorted(Path(folder).glob("log.*")))
    ours, others = findings(content)
    summaries = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) (?:error|hazard)", content)
    return {
        "status": status,
        "text": text,
        "findings": ours,
        "findings_elsewhere": others,
        "reported_errors": sum(map(int, summaries)),
        "summaries": len(summaries),
    }


def run_sanitizer(tool: str) -> dict[str, Any]:
    planted = sanitize(tool, [sys.executable, "scripts/planted_defects.py", tool])
    whole = tool == "memcheck"
    left_out = "not provokes_cuda_error and not build"
    if whole:
        files = run_files(tool, lambda file: sanitize(tool, pytest(file, "-m", f"gpu and {left_out}")))
        result = of_all_files(files)
        del result["skips"]  # most tests are left out at small sizes
        for key in ("findings", "findings_elsewhere", "reported_errors", "summaries"):
            parts = [each[key] for each in files.values()]
            result[key] = sum(parts) if isinstance(parts[0], int) else [line for part in parts for line in part]
    else:
        result = sanitize(tool, pytest(*[f"tests/{test}" for test in KERNEL_TESTS], "-k", "cuda or gpu"))
        text = result.pop("text")
        result |= {"counts": counts(text), "failures": failures(text)}
    result["planted_defect_found"] = bool(planted["findings"] or planted["findings_elsewhere"])
    if whole:
        _, names = run(pytest("tests", "-m", "provokes_cuda_error", "--collect-only"), environment())
        result["run_without"] = re.findall(r"^(tests/\S+::\S+)", names, re.MULTILINE)
        status, text = run(pytest("tests", "-m", "provokes_cuda_error"), environment())
        result["counts_without"] = counts(text)
        result["status"] = result["status"] or status
    else:
        result["tests"] = KERNEL_TESTS
        result["kernel_templates"] = KERNEL_TEMPLATES
    return result


def run_soak() -> dict[str, Any]:
    options = ["--seconds", str(SOAK_SECONDS), "--processes", str(SOAK_PROCESSES), "--backend", "cuda"]
    status, text = run([sys.executable, "scripts/soak.py", *options], environment())
    seed = re.search(r"^seed (\d+)", text, re.MULTILINE)
    table = re.findall(r"^(\w+) +(\d+) +(\d+) +(\d+)$", text, re.MULTILINE)
    cases = {kind: dict(zip(("cases", "refusals", "failures"), map(int, row), strict=True)) for kind, *row in table}
    return {"status": status, "seed": seed[1] if seed else "unknown", "cases": cases}


def run_bench() -> dict[str, Any]:
    command = [sys.executable, "benchmarks/run.py", *BENCHMARKS, "--output", str(RESULTS)]
    status, _ = run(command, environment())
    return {"status": status}


def run_survey() -> dict[str, Any]:
    words = [int(source_id()[begin : begin + 8], 16) for begin in (0, 8, 16)]
    output = RESULTS / "survey_cases.json"
    output.unlink(missing_ok=True)
    command = [sys.executable, "benchmarks/survey.py", "--seed", *map(str, words)]
    status, text = run([*command, "--cases", str(SURVEY_CASES), "--output", str(output)], environment())
    results = json.loads(output.read_text())["results"] if status != TIMED_OUT and output.is_file() else []
    begun = re.findall(r"^\d+:\d+ .*$", text, re.MULTILINE)
    last = begun[-1] if begun and len(begun) < len(words) * SURVEY_CASES else None
    return {"status": status, "seeds": words, "last": last, "table": survey_tables.table(results)}


def run_part(part: str) -> dict[str, Any]:
    if part == "suite":
        return run_suite()
    if part == "soak":
        return run_soak()
    if part == "survey":
        return run_survey()
    return run_bench() if part == "bench" else run_sanitizer(part)


def stored(part: str, sources: str) -> dict[str, Any] | None:
    """Return a part's result if it is of these sources."""
    path = RESULTS / f"{part}.json"
    if not path.is_file():
        return None
    content = json.loads(path.read_text())
    return content if content["sources"] == sources else None


def passed(part: str, content: dict[str, Any]) -> bool:
    """Whether a part found nothing wrong."""
    result = content["result"]
    tests = result.get("counts", {"failed": 0, "error": 0, "passed": 1})
    # Each error that a tool counts must be a finding that the report lists.
    unclean = part in TOOLS and (
        result["findings"]
        or result["reported_errors"] > len(result["findings_elsewhere"])
        or not result["summaries"]
        or not result["planted_defect_found"]
    )
    return not (result["status"] or tests["failed"] or tests["error"] or not tests["passed"] or unclean)


def describe(part: str, content: dict[str, Any]) -> list[str]:
    """Return a part's lines of the report."""
    result = content["result"]
    lines = []
    if "counts" in result:
        shown = {kind: number for kind, number in result["counts"].items() if number or kind in ("passed", "failed")}
        lines.append("Tests: " + ", ".join(f"{number} {kind}" for kind, number in shown.items()) + ".")
    lines += [f"- failed: `{name}`" for name in result.get("failures", [])]
    lines += [f"- skipped: {text}" for text in result.get("skips", [])]
    if part in TOOLS:
        number = len(result["findings"])
        planted = "found" if result["planted_defect_found"] else "**not found**"
        lines.append(f"Findings: {number or 'none'}. A planted defect: {planted}.")
        lines += [f"- {text}" for text in result["findings"][:50]]
        elsewhere = result["findings_elsewhere"]
        lines.append(f"Questions that the driver answered by an error: {len(elsewhere) or 'none'}.")
        lines += [f"- {text}" for text in sorted(set(elsewhere))[:50]]
    if part == "soak":
        lines.append(f"Random calls of seed {result['seed']}, by kind: cases, of them refused as expected, failures.")
        lines += [
            f"- {kind}: {row['cases']}, {row['refusals']}, {row['failures']}" for kind, row in result["cases"].items()
        ]
    if part == "survey":
        lines.append(f"Of the seeds {', '.join(map(str, result['seeds']))}, and the twenty slowest:")
        if result.get("last"):
            lines.append(f"It ended in `{result['last']}` (seed, number, case).")
        lines += ["", "![survey](../benchmarks/results/survey_cases.png)", "", result["table"]]
    if part == "memcheck":
        lines.append("Left out, here and above: tests that build from source (marked `build`), which need no GPU.")
    if "run_without" in result:
        lines.append("Run without the tool, since an error of CUDA is their subject:")
        lines += [f"- `{name}`" for name in result["run_without"]]
        lines.append(f"  ({result['counts_without']['passed']} passed, {result['counts_without']['failed']} failed)")
    if "tests" in result:
        templates = ", ".join(f"`{name}`" for name in result["kernel_templates"])
        lines.append(f"Over {templates}, by:")
        lines += [f"- `{name}`" for name in result["tests"]]
    return lines


def bench_lines(sources: str) -> list[str]:
    """Return the benchmarks' tables."""
    from harness import Comparison, table

    lines = []
    for name in BENCHMARKS:
        path = RESULTS / f"{name}.json"
        content = json.loads(path.read_text()) if path.is_file() else {"sources": None}
        if content["sources"] != sources:
            lines += [f"### {name}", "", "Not run on these sources.", ""]
            continue
        fields = ("name", "kind", "ours", "work", "unit", "times", "ratios", "bounds", "margins")
        results = [Comparison(**{field: entry[field] for field in fields}) for entry in content["results"]]
        plot = f"![{name}](../benchmarks/results/{name}.png)"
        lines += [f"### {name}", "", plot, "", table(results), ""]
    return lines


def write_report() -> bool:
    """Write docs/gpu-report.md; return whether every part has passed on these sources."""
    sources = source_id()
    parts = {part: stored(part, sources) for part in PARTS}
    done = [content for content in parts.values() if content]
    lines = ["# GPU report", "", f"Sources: `{sources}` (`scripts/source_id.py`).", ""]
    if done:
        facts = done[0]["machine"]
        lines += ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in facts.items()), ""]
    lines += ["| part | outcome | seconds |", "|---|---|---|"]
    for part, content in parts.items():
        if content is None:
            lines.append(f"| {part} | not run on these sources | |")
        else:
            lines.append(f"| {part} | {'passed' if passed(part, content) else '**failed**'} | {content['seconds']} |")
    lines.append("")
    for part, content in parts.items():
        if content is not None and part != "bench":
            lines += [f"## {part}", "", *describe(part, content), ""]
    lines += [
        "## Benchmarks", "",
        "A ratio is the peer's time over cukern's within one round, its median over seven alternated rounds; above 1",
        "cukern is faster. `device` is time on the device by events, `host` the time of a whole call, `calls` the host",
        "time of a call that enqueues (a bound of 1.333 is 0.75 of the peer's time).", "",
        *bench_lines(sources),
    ]  # fmt: skip
    REPORT.write_text("\n".join(lines).rstrip() + "\n")
    print(f"{REPORT.relative_to(ROOT)}: {sum(content is not None for content in parts.values())} of {len(parts)} parts")
    return all(content is not None and passed(part, content) for part, content in parts.items())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="only write the report")
    options = parser.parse_args()
    asked = os.environ.get("PARTS")
    RESULTS.mkdir(parents=True, exist_ok=True)
    sources = source_id()
    outcome = 0
    for part in [] if options.write else asked.split(",") if asked else PARTS:
        if part not in PARTS:
            parser.error(f"there is no part {part!r}; parts are {', '.join(PARTS)}")
        if stored(part, sources) is not None:
            print(f"{part}: done on these sources")
            continue
        begin = time.monotonic()
        result = run_part(part)
        content = {
            "part": part,
            "sources": sources,
            "seconds": round(time.monotonic() - begin),
            "machine": machine(),
            "result": result,
        }
        good = passed(part, content)
        if result["status"] != TIMED_OUT:  # what ran out of time is not done
            (RESULTS / f"{part}.json").write_text(json.dumps(content, indent=1) + "\n")
            partial_result(part).unlink(missing_ok=True)
        print(f"{part}: {'passed' if good else 'FAILED'} in {content['seconds']} s", flush=True)
        outcome |= not good
    write_report()
    return outcome


if __name__ == "__main__":
    sys.exit(main())
