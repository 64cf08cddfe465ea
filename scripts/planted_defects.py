#!/usr/bin/env python3
"""One defect for each tool of compute-sanitizer, in kernels of its own: what a tool must find to be believed.

``compute-sanitizer --tool racecheck python scripts/planted_defects.py racecheck``
"""

from __future__ import annotations

import sys

KERNELS = {
    "memcheck": "out[threadIdx.x + (1 << 24)] = 1;",
    "racecheck": """
        __shared__ int shared[64];
        shared[threadIdx.x] = threadIdx.x;
        out[threadIdx.x] = shared[(threadIdx.x + 33) % 64];""",
    "synccheck": "if (threadIdx.x < 7) __syncthreads(); out[threadIdx.x] = 1;",
    "initcheck": "out[threadIdx.x] = in[threadIdx.x];",
}


def main(tool: str) -> None:
    import cupy

    cupy.cuda.set_allocator(None)  # each array is an allocation of its own
    code = f'extern "C" __global__ void planted(const int *in, int *out) {{ {KERNELS[tool]} }}'
    kernel = cupy.RawKernel(code, "planted")
    kernel((1,), (64,), (cupy.empty(64, cupy.int32), cupy.empty(64, cupy.int32)))
    try:
        cupy.cuda.Device().synchronize()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        print(error)


if __name__ == "__main__":
    main(sys.argv[1])
