"""Draws a results file as a plot: ``python benchmarks/plots.py benchmarks/results/device.json``."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def draw(path: Path) -> Path | None:
    """Draw the median ratio to each peer, one bar each; return the PNG's path, or None without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    content = json.loads(path.read_text())
    bars = [
        (f"{result['name']} / {peer}", ratio, result["bounds"].get(peer))
        for result in content["results"]
        for peer, ratio in result["median_ratios"].items()
    ]
    figure, axes = pyplot.subplots(figsize=(10, 0.3 * len(bars) + 1.5))
    labels, ratios, bounds = zip(*reversed(bars), strict=True)
    axes.barh(range(len(labels)), ratios, color="#3a6ea5")
    axes.axvline(1.0, color="black", linewidth=0.8)
    for index, bound in enumerate(bounds):
        if bound is not None:
            axes.plot([bound, bound], [index - 0.4, index + 0.4], color="#c23b22", linewidth=2)
    axes.set_yticks(range(len(labels)), labels, fontsize=7)
    axes.set_xscale("log")
    axes.set_xlabel("peer's time / cukern's time (right of 1: cukern is faster; red: the bound)")
    axes.set_title(f"{content['part']}, {content['machine']['gpu']}")
    figure.tight_layout()
    target = path.with_suffix(".png")
    figure.savefig(target, dpi=110)
    pyplot.close(figure)
    return target


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(draw(Path(name)))
