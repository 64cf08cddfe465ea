"""Runs the benchmarks: ``python benchmarks/run.py [PART ...] [--output FOLDER]``.

Writes one JSON file a part, prints Markdown tables, and draws them as plots.
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "scripts")]

import harness  # noqa: E402
from source_id import source_id  # noqa: E402

PARTS = ["device", "host", "transfers", "calls", "kernels", "elementwise", "reductions"]
OTHERS = ["products", "small_products", "host_products", "torch_operations"]  # which run where they are named


def machine() -> dict[str, Any]:
    """Return what the figures were taken on."""
    import cupy
    import numpy
    import torch

    import cukern
    from cukern import _cukern

    information = _cukern._information()
    return {
        "gpu": information["devices"][0]["name"],
        "driver": information["driver"],
        "cuda_runtime": information["runtime"],
        "cublas": information["cublas"]["version"],
        "cpu_cores": len(__import__("os").sched_getaffinity(0)),
        "python": platform.python_version(),
        "cukern": cukern.__version__,
        "numpy": numpy.__version__,
        "torch": torch.__version__,
        "cupy": cupy.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS + OTHERS)}")
    parser.add_argument("--output", type=Path, default=HERE / "results")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    for part in options.parts or PARTS:
        results = importlib.import_module(part).run()
        print(harness.table(results), flush=True)
        content = {
            "part": part,
            "sources": source_id(),
            "machine": machine(),
            "results": [result.as_dict() for result in results],
        }
        path = options.output / f"{part}.json"
        path.write_text(json.dumps(content, indent=1) + "\n")
        import plots

        plots.draw(path)


if __name__ == "__main__":
    main()
