"""``python -m cukern``: versions, back-end and why, devices, cuBLAS."""

import platform
import sys

import numpy

from . import __version__, _cukern, library_path


def _dotted(version: int) -> str:
    """Return CUDA's number for a version, 13000, as 13.0."""
    return f"{version // 1000}.{version % 1000 // 10}" if version else "none"


def main() -> int:
    """Print what a bug report needs; return 1 when the back-end asked for is not there."""
    print(f"cukern      {__version__} ({library_path()})")
    print(f"Python      {platform.python_version()}, NumPy {numpy.__version__}")
    try:
        information = _cukern._information()
    except RuntimeError as error:
        print(f"back-end    none: {error}")
        return 1
    print(f"back-end    {information['backend']}: {information['reason']}")
    print(f"CUDA        runtime {_dotted(information['runtime'])}, driver {_dotted(information['driver'])}")
    for index, device in enumerate(information["devices"]):
        line = f"device {index}    {device['name']}"
        if information["backend"] == "cuda":
            major, minor = device["compute_capability"]
            line += f", {device['memory'] / 2**30:.1f} GiB, compute capability {major}.{minor}"
        print(line)
    cublas = information["cublas"]
    if cublas["open"]:
        number = cublas["version"]
        print(f"cuBLAS      {number // 10000}.{number // 100 % 100}.{number % 100} ({cublas['path']})")
    else:
        print(f"cuBLAS      not open: {cublas['tried'] or 'the host back-end does without'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
