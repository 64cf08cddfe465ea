"""The survey's distribution, by what was computed, and its slowest cases."""

from __future__ import annotations

import math
import statistics
from typing import Any

SLOW = 0.7  # of a copy's speed, below which the reason is told
FEW_SECONDS = 6e-6
MUCH_MEMORY = 64 * 10**6  # bytes: beside the time that they take, that of a launch is little


def summary(ratios: list[float]) -> dict[str, float]:
    """Return the distribution of ratios."""
    ordered = sorted(ratios)
    return {
        "cases": len(ordered),
        "geometric mean": statistics.geometric_mean(ordered),
        "5th percentile": ordered[math.ceil(0.05 * len(ordered)) - 1],
        "median": statistics.median(ordered),
        "least": ordered[0],
        "below 0.8": sum(ratio < 0.8 for ratio in ordered),
    }


def groups(results: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return summaries: of each time against the better peer and against the copy, by what was computed."""
    found: dict[str, list[float]] = {}
    for entry in results:
        for name, ratio in entry.get("ratios", {}).items():
            peer = "copy" if name == "copy" else "peer"
            kind = "call" if entry["kind"] == "call" else "device"
            part = "all reductions" if entry["family"] in ("reductions", "scans") else "all elementwise"
            parts = [part, entry["family"]]
            if peer == "copy" and entry["bytes"] >= MUCH_MEMORY:
                parts.append(f"{part} of 64 MB and more")
            for group in parts:
                found.setdefault(f"{kind}, {group}, {peer}", []).append(ratio)
    return {group: summary(ratios) for group, ratios in sorted(found.items())}


def table(results: list[dict[str, Any]]) -> str:
    """Return the groups and the slowest cases as Markdown."""
    lines = ["| time, work, against | cases | geometric mean | 5th percentile | median | least | below 0.8 |"]
    lines.append("|---|---|---|---|---|---|---|")
    for group, figures in groups(results).items():
        numbers = (f"{value:.3g}" for value in figures.values())
        cells = dict(zip(figures, numbers, strict=True))
        order = ("cases", "geometric mean", "5th percentile", "median", "least", "below 0.8")
        lines.append(f"| {group} | {' | '.join(cells[name] for name in order)} |")
    lines += ["", "| ratio | case | time | us | GB/s | peer | copy |", "|---|---|---|---|---|---|---|"]
    for ratio, peer, entry in worst(results)[:20]:
        seconds = entry["seconds"]["cukern"]
        copy = entry["ratios"].get("copy", math.nan)
        rate = entry["bytes"] / seconds / 1e9
        figures = f"{seconds * 1e6:.4g} | {rate:.4g} | {peer} | {copy:.3g}"
        lines.append(f"| {ratio:.3g} | {entry['text']} | {entry['kind']} | {figures} |")
    lines += ["", f"Below {SLOW} of a copy of as many bytes, and what it comes from, by the rule of `reason`:", ""]
    lines += ["| copy | case | us | reason |", "|---|---|---|---|"]
    for ratio, entry in slower_than_copy(results):
        lines.append(f"| {ratio:.3g} | {entry['text']} | {entry['seconds']['cukern'] * 1e6:.4g} | {reason(entry)} |")
    lines += [f"- error: {entry['text']}: {entry['error']}" for entry in results if "error" in entry]
    return "\n".join(lines)


def slower_than_copy(results: list[dict[str, Any]]) -> list[tuple[float, dict[str, Any]]]:
    """Return the cases that take much longer than a copy, with their ratio to it, the slowest first."""
    found = [(entry["ratios"]["copy"], entry) for entry in results if entry.get("ratios", {}).get("copy", 1) < SLOW]
    return sorted(found, key=lambda item: item[0])


def reason(entry: dict[str, Any]) -> str:
    """Return what a case's time comes from where memory allows less: a rule, by time, operation, types and layouts."""
    case, own = entry["case"], entry["seconds"]["cukern"]
    rate = f"{math.prod(case['shape']) / own / 1e9:.3g} elements a ns"
    types = {operand["dtype"] for operand in case["operands"] if operand["layout"] != "number"}
    layouts = [operand["layout"] for operand in case["operands"]] + ([case["out"]["layout"]] if case["out"] else [])
    if own < FEW_SECONDS:
        return "short: " + ("two kernels" if case["kind"] == "reduction" else "a kernel begins and ends")
    if entry["family"] == "scans":
        return "each result needs those before it"
    if entry["family"] == "functions" or case["name"] in ("var", "std", "floor_divide", "remainder", "divide"):
        return f"arithmetic, {rate}"
    if entry["family"] == "conversions" or len(types - {"bool"}) > 1:
        return f"conversions, {rate}"
    if {"transposed", "interleaved"} & {*layouts}:
        return f"orders of memory that differ, {rate}"
    return f"instructions of short or single elements, {rate}"


def worst(results: list[dict[str, Any]]) -> list[tuple[float, str, dict[str, Any]]]:
    """Return cases with their ratio to the better peer, the slowest first."""
    found = [
        (ratio, peer, entry) for entry in results for peer, ratio in entry.get("ratios", {}).items() if peer != "copy"
    ]
    return sorted(found, key=lambda item: item[0])
