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
import re
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "docs/gpu-report.md"
sys.path.insert(0, str(ROOT / "benchmarks"))

import survey_tables  # noqa: E402
from gpu_sanitizers import TOOLS, run_sanitizer  # noqa: E402
from gpu_tests import (  # noqa: E402
    RESULTS,
    TIMED_OUT,
    environment,
    machine,
    of_all_files,
    partial_path,
    pytest,
    run,
    run_files,
    unfinished,
)
from source_id import source_id  # noqa: E402

PARTS = ["suite", *TOOLS, "soak", "bench", "survey"]
SOAK_SECONDS = 60
SOAK_PROCESSES = 12
SURVEY_CASES = 135  # of each of three seeds
BENCHMARKS = ["device", "host", "transfers", "calls", "kernels", "elementwise", "reductions", "torch_operations"]


def run_suite() -> dict[str, Any]:
    def test(file: str) -> dict[str, Any]:
        # Tests of the build need no GPU, and take longer than all others.
        status, text = run(pytest(file, "-m", "not build"), environment())
        return {"status": status, "text": text}

    return of_all_files(run_files("suite", test))


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
        begin = time.monotonic() - unfinished(part).get("seconds", 0)
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
            partial_path(part).unlink(missing_ok=True)
        print(f"{part}: {'passed' if good else 'FAILED'} in {content['seconds']} s", flush=True)
        outcome |= not good
    write_report()
    return outcome


if __name__ == "__main__":
    sys.exit(main())
