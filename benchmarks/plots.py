"""Draws results as dot plots: ``python benchmarks/plots.py benchmarks/results/device.json``.

Each dot is a ratio, the peer's time over cukern's: right of 1 cukern is faster. Losses have another colour.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

WON, LOST = "#3a6ea5", "#c23b22"


def pyplot() -> Any | None:
    """Return matplotlib's pyplot, for files; None where it is not installed."""
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def question(name: str) -> str:
    """Return what a comparison is about: its name up to the element type and the shape."""
    return name.split(",")[0]


def dots(title: str, rows: dict[str, list[float]], label: str, target: Path) -> Path | None:
    """Draw a line for each row with a dot for each of its ratios."""
    plot = pyplot()
    if plot is None or not rows:
        return None
    figure, axes = plot.subplots(figsize=(9, min(11, 0.25 * len(rows) + 1.3)))
    for index, ratios in enumerate(rows.values()):
        colours = [LOST if ratio < 1 else WON for ratio in ratios]
        axes.scatter(ratios, [index] * len(ratios), s=14, c=colours, alpha=0.6, linewidths=0)
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(rows)), [f"{name} ({len(ratios)})" for name, ratios in rows.items()], fontsize=8)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xscale("log")
    ticks = [tick for tick in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if inside(tick, rows)]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.grid(axis="x", linewidth=0.3)
    axes.set_xlabel(label, fontsize=9)
    figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    figure.savefig(target, dpi=100)
    plot.close(figure)
    return target


def inside(tick: float, rows: dict[str, list[float]]) -> bool:
    """Whether a mark of the axis lies among the ratios, or next to them."""
    ratios = [ratio for row in rows.values() for ratio in row]
    return min(*ratios, 1) / 2 <= tick <= max(*ratios, 1) * 2


def draw(path: Path) -> Path | None:
    """Draw a benchmark's median ratios by question and peer; return the PNG's path, or None without matplotlib."""
    content = json.loads(path.read_text())
    rows: dict[str, list[float]] = {}
    for result in content["results"]:
        for peer, ratio in result["median_ratios"].items():
            rows.setdefault(f"{question(result['name'])} / {peer}", []).append(ratio)
    rows = dict(sorted(rows.items()))
    title = (
        f"{content['part']}, {content['machine']['gpu']}: median ratios of seven rounds, number of cases in brackets"
    )
    return dots(title, rows, "peer's time / cukern's time (red: cukern is slower)", path.with_suffix(".png"))


def draw_survey(path: Path) -> Path | None:
    """Draw the survey: a line for each group of cases, against the better peer and against a plain copy."""
    content = json.loads(path.read_text())
    rows: dict[str, list[float]] = {}
    for entry in content["results"]:
        for name, ratio in entry.get("ratios", {}).items():
            time = "call" if entry["kind"] == "call" else "device"
            peer = "a plain copy" if name == "copy" else "the better peer"
            rows.setdefault(f"{time} time of {entry['family']} / {peer}", []).append(ratio)
    rows = dict(sorted(rows.items(), key=lambda row: ("copy" in row[0], row[0])))
    title = "Cases drawn at random: median ratios of seven rounds, number of cases in brackets"
    return dots(title, rows, "its time / cukern's time (red: cukern is slower)", path.with_suffix(".png"))


SIDES = {"numpy": "#888888", "host": WON, "device": "#76b900"}  # of the calls that placement is checked by
PLACED = ["add float32", "tanh float64", "matmul float32"]


def draw_placement(path: Path) -> Path | None:
    """Draw the times of calls on arrays of the host by size: NumPy's, on the processor, and through the device."""
    plot = pyplot()
    if plot is None:
        return None
    threads, cases = list(json.loads(path.read_text())["threads"].items())[-1]
    figure, axes = plot.subplots(1, len(PLACED), figsize=(11, 3.6))
    for axis, name in zip(axes, PLACED, strict=True):
        chosen = [case for case in cases if case["name"].rsplit(" ", 1)[0] == name]
        sizes = [int(case["name"].split()[-1]) for case in chosen]
        for side, colour in SIDES.items():
            axis.loglog(
                sizes, [case[side] * 1e6 for case in chosen], color=colour, marker="o", markersize=4, label=side
            )
        axis.set_title(name, fontsize=10)
        axis.set_xlabel("side of both matrices" if name.startswith("matmul") else "elements", fontsize=9)
        axis.grid(linewidth=0.3)
    axes[0].set_ylabel("us a call", fontsize=9)
    axes[0].legend(["NumPy", f"processor, {threads} threads", "through the device"], fontsize=8)
    figure.tight_layout()
    target = path.with_suffix(".png")
    figure.savefig(target, dpi=100)
    plot.close(figure)
    return target


if __name__ == "__main__":
    for name in sys.argv[1:]:
        draws = draw_survey if "survey" in name else draw_placement if "placement" in name else draw
        print(draws(Path(name)))
