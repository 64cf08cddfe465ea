"""The emulation of kernels on the processor (tests/emulation), by kernels whose results are known."""

import os
import subprocess
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "emulation"

# Sums 0 to 255 by shuffles and shared memory; prints the sum, or what a defect makes of it.
SOURCE = """
struct Params { int defect; long sum; };

__global__ void sum(Params *p) {
    __shared__ std::uint32_t warps[8];
    std::uint32_t value = threadIdx.x;
    for (int by = 16; by > 0; by /= 2) value += __shfl_down_sync(~0u, value, by);
    if (p->defect == 2 && threadIdx.x == 5) return;
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
    if (p->defect != 1) __syncthreads();
    if (threadIdx.x != 0) return;
    for (std::uint32_t warp : warps) p->sum += warp;
}

int main(int, char **arguments) {
    Params params{std::atoi(arguments[1]), 0};
    for (int i = 0; i < 2; ++i)
        emulation::run_grid("sum", 3, 256, [](void *p) { sum(static_cast<Params *>(p)); }, &params);
    std::printf("%ld", params.sum);
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("emulation")
    (folder / "main.cpp").write_text(SOURCE)
    command = [os.environ.get("CXX", "g++"), "-std=c++17", "-O1", "-I", str(FOLDER), "-include", "emulation.h"]
    command += [str(folder / "main.cpp"), str(FOLDER / "fibers.cpp"), "-o", str(folder / "main")]
    subprocess.run(command, check=True)
    return folder / "main"


def run(program: Path, defect: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, str(defect)], capture_output=True, text=True, check=False)


@pytest.mark.build
def test_a_kernel(program: Path) -> None:
    done = run(program, 0)
    assert (done.returncode, done.stdout) == (0, str(2 * 3 * sum(range(256))))


@pytest.mark.build
def test_a_missing_barrier_shows(program: Path) -> None:
    done = run(program, 1)
    assert done.returncode == 0
    assert int(done.stdout) < 2 * 3 * sum(range(256))


@pytest.mark.build
def test_a_barrier_that_not_all_reach_ends_the_process(program: Path) -> None:
    done = run(program, 2)
    assert done.returncode != 0
    assert "sum, block 0: 255 threads wait for others that don't come" in done.stderr
