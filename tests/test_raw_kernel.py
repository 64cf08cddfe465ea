"""Kernels of one's own on a GPU: launches, orders, attributes, images, and 20,000 random argument lists."""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import random
import re
import shutil
import subprocess
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from conftest import SMALL, use
from kernel_signatures import PRELUDE, Values, address_of, random_kernel
from test_kernel_arguments import arrays

import cukern
from cukern import _compile, _cukern

pytestmark = pytest.mark.gpu

SAXPY = r"""
template <typename T> __global__ void saxpy(T a, const T *x, T *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
__device__ __managed__ int shared_by_all;
__constant__ float table[4] = {1, 2, 3, 4};
__global__ void look_up(float *y) { y[threadIdx.x] = table[threadIdx.x]; }
extern "C" __global__ void shape(unsigned *out) {
    if (threadIdx.x + threadIdx.y + threadIdx.z + blockIdx.x + blockIdx.y + blockIdx.z != 0) return;
    out[0] = gridDim.x; out[1] = gridDim.y; out[2] = gridDim.z;
    out[3] = blockDim.x; out[4] = blockDim.y; out[5] = blockDim.z;
}
extern "C" __global__ void nothing() {}
extern "C" __global__ void dynamic(float *y) {
    extern __shared__ float memory[];
    memory[threadIdx.x] = threadIdx.x;
    __syncthreads();
    y[threadIdx.x] = memory[blockDim.x - 1 - threadIdx.x];
}
extern "C" __global__ void spin(long long cycles, int *out) {
    const long long begin = clock64();
    while (clock64() - begin < cycles);
    *out += 1;
}
extern "C" __global__ void __launch_bounds__(64) narrow(int *out) { *out = 1; }
"""


@pytest.fixture(autouse=True)
def cuda(backend_cuda: None) -> None:
    """The CUDA back-end."""


@pytest.fixture
def backend_cuda() -> Iterator[None]:
    """The CUDA back-end, and nothing of the test left in flight."""
    use("cuda")
    yield
    cukern.synchronize()


@pytest.fixture(scope="module")
def module() -> cukern.RawModule:
    """All kernels of this file."""
    use("cuda")
    return cukern.RawModule(code=SAXPY, name_expressions=["saxpy<float>", "saxpy<double>", "look_up"])


def library(name: str) -> ModuleType:
    """Import a library that the GPU host has."""
    return pytest.importorskip(name)


class TestLaunches:
    def test_three_ways(self) -> None:
        n = 1000
        kernel = cukern.RawKernel(SAXPY, "saxpy<float>")
        x = cukern.asarray(np.arange(n, dtype=np.float32))
        y = cukern.zeros(n, dtype="float32")
        kernel((4,), (256,), (2.0, x, y, n))
        kernel[4, 256](2.0, x, y, n)
        kernel.over(n)(2.0, x, y, n)
        kernel(grid=4, block=(256, 1), args=[2.0, x, y, n], shared_mem=0, stream=None)
        np.testing.assert_array_equal(cukern.asnumpy(y), 8 * np.arange(n, dtype=np.float32))

    def test_shapes(self, module: cukern.RawModule) -> None:
        out = cukern.zeros(6, dtype="uint32")
        kernel = module.get_function("shape")
        for grid, block, wanted in [
            (3, 4, [3, 1, 1, 4, 1, 1]),
            ((2, 3), (4, 5, 6), [2, 3, 1, 4, 5, 6]),
            ([np.int64(1), 1, 7], np.int32(32), [1, 1, 7, 32, 1, 1]),
        ]:
            kernel(grid, block, (out,))
            assert cukern.asnumpy(out).tolist() == wanted

    def test_over_no_threads_launches_nothing(self, module: cukern.RawModule) -> None:
        before = cukern.counters()["launches"]
        module.get_function("shape").over(0)(None)
        assert cukern.counters()["launches"] == before
        with pytest.raises(TypeError, match="has 1 parameter"):
            module.get_function("shape").over(0)()
        module.get_function("nothing").over(5)()
        assert cukern.counters()["launches"] == before + 1

    def test_over_many_threads(self) -> None:
        kernel = cukern.RawKernel(SAXPY, "saxpy<double>")
        for n in (1, 31, 1025, 1 << 20):
            x, y = cukern.ones(n), cukern.zeros(n)
            kernel.over(n)(1.5, x, y, n)
            assert (cukern.asnumpy(y) == 1.5).all()

    def test_the_block_that_over_chooses(self, module: cukern.RawModule) -> None:
        """It is of whole warps, as large as the kernel allows, and no thread is left out."""
        out = cukern.zeros(6, dtype="uint32")
        few = "__global__ void __launch_bounds__(96) shape(unsigned *out) { out[0] = gridDim.x; out[3] = blockDim.x; }"
        for kernel in (module.get_function("shape"), cukern.RawKernel(few, "shape")):
            for n in (1, 1000, 10**6):
                kernel.over(n)(out)
                grid, _, _, block, _, _ = cukern.asnumpy(out).tolist()
                assert block % 32 == 0
                assert 32 <= block <= kernel.attributes["max_threads_per_block"]
                assert (grid - 1) * block < n <= grid * block

    @pytest.mark.provokes_cuda_error
    def test_dynamic_shared_memory(self, module: cukern.RawModule) -> None:
        kernel = module.get_function("dynamic")
        y = cukern.zeros(64, dtype="float32")
        kernel(1, 64, (y,), shared_mem=256)
        assert cukern.asnumpy(y).tolist() == [*range(63, -1, -1)]
        kernel[1, 64, None, 256](y)
        most = kernel.max_dynamic_shared_size_bytes
        with pytest.raises(ValueError, match="more than the kernel's max_dynamic_shared_size_bytes"):
            kernel(1, 64, (y,), shared_mem=most + 4)
        kernel.max_dynamic_shared_size_bytes = most + 4096
        assert kernel.attributes["max_dynamic_shared_size_bytes"] == most + 4096
        kernel(1, 64, (y,), shared_mem=most + 4)
        with pytest.raises(cukern.CudaError):
            kernel.max_dynamic_shared_size_bytes = 1 << 30
        kernel(1, 64, (y,), shared_mem=256)

    def test_settings_before_it_is_loaded(self) -> None:
        kernel = cukern.RawKernel(SAXPY, "dynamic")
        kernel.max_dynamic_shared_size_bytes = 60000
        kernel.preferred_shared_memory_carveout = 50
        assert kernel.max_dynamic_shared_size_bytes == 60000
        assert kernel.preferred_shared_memory_carveout == 50
        with pytest.raises(ValueError, match="at least 0"):
            kernel.max_dynamic_shared_size_bytes = -1
        with pytest.raises(AttributeError):
            del kernel.max_dynamic_shared_size_bytes

    def test_limits(self, module: cukern.RawModule) -> None:
        kernel, out = module.get_function("shape"), cukern.zeros(6, dtype="uint32")
        for grid, block, text in [
            (1, 1025, "a block of"),
            (1, (1, 1, 65), "is more than device 0 takes"),
            ((1, 65536), 1, r"a grid of \(1, 65536, 1\) is more than device 0 takes"),
            (2**31, 1, "is more than device 0 takes"),
            (1, (32, 33), "a block of 1056 threads is more than the 1024"),
        ]:
            with pytest.raises(ValueError, match=text):
                kernel(grid, block, (out,))
        with pytest.raises(ValueError, match="more than the 64 that this kernel takes"):
            module.get_function("narrow")(1, 65, (None,))

    def test_attributes(self, module: cukern.RawModule) -> None:
        kernel = module.get_function("saxpy<float>")
        all_ = kernel.attributes
        assert all_["max_threads_per_block"] == kernel.max_threads_per_block == 1024
        assert 0 < kernel.num_regs < 100
        assert kernel.binary_version // 10 == all_["binary_version"] // 10
        assert (kernel.local_size_bytes, kernel.shared_size_bytes) == (0, 0)
        assert kernel.name == "saxpy<float>"
        assert kernel.code == SAXPY

    def test_a_launch_that_fails(self, module: cukern.RawModule) -> None:
        out = cukern.zeros(6, dtype="uint32")
        _cukern._inject_fault("launch", 1)
        with pytest.raises(cukern.CudaError, match="shape: cuLaunchKernel failed"):
            module.get_function("shape")(1, 1, (out,))
        module.get_function("shape")(1, 1, (out,))
        assert cukern.asnumpy(out)[0] == 1

    @pytest.mark.provokes_cuda_error
    def test_cooperative(self) -> None:
        code = r"""#include <cooperative_groups.h>
        extern "C" __global__ void f(int *x) {
            cooperative_groups::this_grid().sync();
            if (threadIdx.x == 0) atomicAdd(x, 1);
        }"""
        x = cukern.zeros(1, dtype="int32")
        cukern.RawKernel(code, "f", enable_cooperative_groups=True)(8, 32, (x,))
        cukern.RawKernel(code, "f")(8, 32, (x,), cooperative=True)
        assert cukern.asnumpy(x)[0] == 16
        with pytest.raises(cukern.CudaError, match=r"cooperative|Cooperative"):  # more blocks than run at once
            cukern.RawKernel(code, "f")(1 << 20, 1024, (x,), cooperative=True)

    def test_clusters(self) -> None:
        if _cukern._information()["devices"][0]["compute_capability"][0] < 9:
            pytest.skip("needs clusters of blocks, which devices of compute capability 9.0 have")
        code = r"""extern "C" __global__ void f(unsigned *x) {
            unsigned size;
            asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(size));
            x[blockIdx.x] = size;
        }"""
        x = cukern.zeros(8, dtype="uint32")
        kernel = cukern.RawKernel(code, "f")
        kernel(8, 32, (x,), cluster=4)
        assert cukern.asnumpy(x).tolist() == [4] * 8
        kernel(8, 32, (x,), cluster=(2, 1, 1))
        assert cukern.asnumpy(x).tolist() == [2] * 8
        with pytest.raises(ValueError, match="not a multiple of the cluster"):
            kernel(9, 32, (x,), cluster=4)


class TestImages:
    def test_ptx_and_cubin_need_no_nvrtc(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        major, minor = _cukern._information()["devices"][0]["compute_capability"]
        names = ("saxpy<float>",)
        cubin, lowered = _compile.build(SAXPY, (), names, major, minor)
        ptx, _ = _compile.build(SAXPY, (f"-arch=compute_{major}{minor}",), names, major, minor)
        ptx = re.sub(rb"\.version \d+\.\d+", b".version 8.0", ptx)  # which drivers older than NVRTC know
        monkeypatch.setattr(_compile, "build", None)
        for i, image in enumerate((cubin, ptx, ptx.decode().rstrip("\0"))):
            n = 100
            x, y = cukern.ones(n, dtype="float32"), cukern.zeros(n, dtype="float32")
            module = cukern.RawModule(code=image)
            for name in ("saxpy", lowered["saxpy<float>"]):  # alone of its name, and as the image has it
                module.get_function(name)(1, 128, (3.0, x, y, n))
            cukern.RawKernel(image, "saxpy")(1, 128, (1.0, x, y, n))
            assert (cukern.asnumpy(y) == 7).all()
            with pytest.raises(TypeError, match="argument 2 of 4 is an array of float64"):
                module.get_function("saxpy")(1, 128, (3.0, x.astype("float64"), y, n))
            with pytest.raises(TypeError, match="4"):  # arguments
                module.get_function("saxpy")(1, 128, (3.0, x, y))
            with pytest.raises(TypeError, match="argument 4 of 4"):
                module.get_function("saxpy")(1, 128, (3.0, x, y, x))
            (tmp_path / f"k{i}.ptx").write_bytes(image if isinstance(image, bytes) else image.encode())
            assert cukern.RawModule(path=str(tmp_path / f"k{i}.ptx")).get_function("nothing")(1, 1, ()) is None
            if i == 0:
                (tmp_path / "k.cubin").write_bytes(cubin)
                assert cukern.RawModule(path=str(tmp_path / "k.cubin")).get_function("nothing")(1, 1, ()) is None

    def test_fatbin(self, tmp_path: Path) -> None:
        nvcc = os.environ.get("CUKERN_NVCC") or shutil.which("nvcc", path=f"{os.environ['PATH']}:/usr/local/cuda/bin")
        if nvcc is None:
            pytest.skip("needs nvcc")
        (tmp_path / "k.cu").write_text(
            SAXPY.replace(
                "extern", "template __global__ void saxpy<float>(float, const float *, float *, int);\nextern", 1
            )
        )
        subprocess.run([nvcc, "-fatbin", "-arch=all-major", "k.cu", "-o", "k.fatbin"], cwd=tmp_path, check=True)
        x, y = cukern.ones(100, dtype="float32"), cukern.zeros(100, dtype="float32")
        for module in (
            cukern.RawModule(path=str(tmp_path / "k.fatbin")),
            cukern.RawModule(code=(tmp_path / "k.fatbin").read_bytes()),
        ):
            module.get_function("saxpy")(1, 128, (3.0, x, y, 100))
            with pytest.raises(TypeError, match="argument 2 of 4 is an array of float64"):
                module.get_function("saxpy")(1, 128, (3.0, x.astype("float64"), y, 100))
        assert (cukern.asnumpy(y) == 6).all()

    def test_overloads_by_name_expression(self) -> None:
        source = "__global__ void f(int *x) { *x = 1; } __global__ void f(float *x) { *x = 2; }"
        names = ["(void (*)(int *))f", "(void (*)(float *))f"]
        module = cukern.RawModule(code=source, name_expressions=names)
        for name, dtype, want in zip(names, ("int32", "float32"), (1, 2), strict=True):
            x = cukern.zeros(1, dtype=dtype)
            module.get_function(name)(1, 1, (x,))
            assert cukern.asnumpy(x).tolist() == [want]

    def test_unchecked(self) -> None:
        """Types are not looked at, and an address is taken for a pointer."""
        source = "__global__ void f(const int *x, int *y) { *y = *x; }"
        x, y = cukern.full(1, 1.0, dtype="float32"), cukern.zeros(1, dtype="int32")
        with pytest.raises(TypeError):
            cukern.RawKernel(source, "f")(1, 1, (x, y))
        cukern.RawKernel(source, "f")(1, 1, (x, y.__cuda_array_interface__["data"][0]), unchecked=True)
        assert cukern.asnumpy(y).view(np.float32).tolist() == [1.0]

    @pytest.mark.provokes_cuda_error
    def test_what_is_no_image(self) -> None:
        with pytest.raises((cukern.CudaError, cukern.CompileError)):
            cukern.RawModule(code=b"nonsense").compile()
        ptx = b".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry f() { nonsense; }"
        with pytest.raises(cukern.CompileError, match=r"(?s)the driver refuses the image.*  > 4 \| \.visible"):
            cukern.RawModule(code=ptx).compile()

    def test_names(self, module: cukern.RawModule) -> None:
        with pytest.raises(AttributeError, match=r"there is no kernel of this name.*nothing"):
            module.get_function("missing")
        with pytest.raises(AttributeError, match="several kernels have this name"):
            module.get_function("saxpy")
        with pytest.raises(cukern.CompileError, match="missing"):
            cukern.RawKernel(SAXPY, "missing<float>")(1, 1, ())
        with pytest.raises(TypeError):
            module.get_function(3)

    def test_variables(self, module: cukern.RawModule) -> None:
        table = module.get_global("table", "float32")
        assert cukern.asnumpy(table).tolist() == [1, 2, 3, 4]
        assert module.get_global("table").shape == (16,)
        square = module.get_global("table", dtype="float32", shape=(2, 2))
        square[...] = cukern.asarray(np.array([[5, 6], [7, 8]], np.float32))
        y = cukern.zeros(4, dtype="float32")
        module.get_function("look_up")(1, 4, (y,))
        assert cukern.asnumpy(y).tolist() == [5, 6, 7, 8]
        table[...] = cukern.asarray(np.array([1, 2, 3, 4], np.float32))
        assert module.get_global("shared_by_all", "int32").shape == (1,)
        with pytest.raises(AttributeError, match="no variable 'missing'"):
            module.get_global("missing")
        with pytest.raises(ValueError, match="has 16 bytes, too few"):
            module.get_global("table", "float32", 5)

    def test_a_variable_outlives_its_module(self) -> None:
        module = cukern.RawModule(code="__device__ int table[1000] = {1, 2, 3}; __global__ void f() {}")
        table = module.get_global("table", "int32")
        gone = weakref.ref(module)
        del module
        gc.collect()
        for _ in range(10):  # others that would take its memory
            cukern.RawModule(code="__device__ int table[1000] = {4}; __global__ void g() {}").compile()
        assert cukern.asnumpy(table)[:4].tolist() == [1, 2, 3, 0]
        del table
        gc.collect()
        assert gone() is None


class TestOrder:
    def test_on_other_streams(self, module: cukern.RawModule) -> None:
        spin = module.get_function("spin")
        first, second = cukern.Stream(), cukern.Stream()
        out = cukern.zeros(1, dtype="int32")
        for _ in range(20):  # read, add, write: each has to see what the one before has written
            spin(1, 1, (200000, out), stream=first)
            spin[1, 1, second](200000, out)
            with first:
                spin(1, 1, (1000, out))
            cukern.add(out, out, out=out)
            cukern.floor_divide(out, 2, out=out)
        assert cukern.asnumpy(out)[0] == 60

    def test_the_stream_that_it_runs_on(self, module: cukern.RawModule) -> None:
        """The one that is given, else the active one, else that of the first array's library, else the default."""
        torch = library("torch")
        spin = module.get_function("spin")
        out, tensor = cukern.zeros(1, dtype="int32"), torch.zeros(1, dtype=torch.int32, device="cuda")
        given, active = cukern.Stream(), cukern.Stream()
        theirs = torch.cuda.Stream()
        cycles = 100_000_000
        spin(1, 1, (1, out), stream=given)  # loads it

        def seen(call: Callable[[], None]) -> list[bool]:
            cukern.synchronize()
            call()
            busy = [not given.done, not active.done, not theirs.query(), not torch.cuda.default_stream().query()]
            cukern.synchronize()
            return busy

        assert seen(lambda: spin(1, 1, (cycles, out), stream=given)) == [True, False, False, False]
        assert seen(lambda: spin[1, 1, given](cycles, out)) == [True, False, False, False]
        with active:
            assert seen(lambda: spin(1, 1, (cycles, out))) == [False, True, False, False]
            assert seen(lambda: spin(1, 1, (cycles, out), stream=given)) == [True, False, False, False]
        assert seen(lambda: spin(1, 1, (cycles, out))) == [False, False, False, True]
        with torch.cuda.stream(theirs):
            assert seen(lambda: spin(1, 1, (cycles, tensor))) == [False, False, True, False]
        assert seen(lambda: spin(1, 1, (cycles, tensor))) == [False, False, False, True]
        assert (cukern.asnumpy(out).item(), tensor.item()) == (6, 2)

    @pytest.mark.parametrize("name", ["torch", "cupy"])
    def test_memory_of_others_outlives_the_launch(self, module: cukern.RawModule, name: str) -> None:
        other = library(name)
        device = {"device": "cuda"} if name == "torch" else {}
        spin, stream = module.get_function("spin"), cukern.Stream()
        for _ in range(20):
            out = other.zeros(100_000, dtype=other.int32, **device)
            spin(1, 1, (2_000_000, out), stream=stream)
            del out
            later = other.full((100_000,), 7, dtype=other.int32, **device)  # which may get the memory
            cukern.synchronize()
            assert (later == 7).all()

    def test_memory_outlives_the_launch(self, module: cukern.RawModule) -> None:
        stream = cukern.Stream()
        spin = module.get_function("spin")
        for _ in range(50):
            out = cukern.zeros(1000, dtype="int32")
            spin(1, 1, (100000, out), stream=stream)
            del out
            assert (cukern.asnumpy(cukern.zeros(1000, dtype="int32")) == 0).all()

    def test_every_device(self, module: cukern.RawModule) -> None:
        shape = module.get_function("shape")
        for device in range(cukern.device_count()):
            with cukern.Device(device):
                out = cukern.zeros(6, dtype="uint32")
            shape(3, 4, (out,))  # compiled and loaded there
            assert cukern.asnumpy(out).tolist() == [3, 1, 1, 4, 1, 1]
            twice = cukern.ElementwiseKernel("T x", "T y", "y = 2 * x", "twice")
            assert cukern.asnumpy(twice(out)).tolist() == [6, 2, 2, 8, 2, 2]
            if device > 0:
                with pytest.raises(ValueError, match="device 0"):
                    shape(3, 4, (out,), stream=cukern.Stream(device=0))
                x = cukern.zeros(1, dtype="float32", device=0)
                with cukern.Device(device):
                    y = cukern.zeros(1, dtype="float32")
                with pytest.raises(
                    ValueError, match=r"argument 3 of 4 \(y\) is on device 1, and the launch on device 0"
                ):
                    module.get_function("saxpy<float>")(1, 1, (1.0, x, y, 1))

    def test_pinned_and_managed_memory(self, module: cukern.RawModule) -> None:
        saxpy = module.get_function("saxpy<float>")
        for memory in ("pinned", "managed"):
            x = cukern.ones(64, dtype="float32", memory=memory)
            y = cukern.zeros(64, dtype="float32", memory=memory)
            saxpy(1, 64, (2.0, x, y, 64))
            assert (np.asarray(y) == 2).all()
            view = np.asarray(y)  # exported: the launch waits
            saxpy(1, 64, (2.0, x, y, 64))
            assert (view == 4).all()

    def test_threads(self, module: cukern.RawModule) -> None:
        saxpy = module.get_function("saxpy<float>")
        failures = []

        def work() -> None:
            with cukern.Stream():
                x, y = cukern.ones(256, dtype="float32"), cukern.zeros(256, dtype="float32")
                for _ in range(200):
                    saxpy(1, 256, (1.0, x, y, 256))
                failures.append(not (cukern.asnumpy(y) == 200).all())

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == [False] * 6

    def test_a_thread_that_has_called_nothing_of_cuda_finds_kernels(self) -> None:
        code = "".join(f'extern "C" __global__ void own_{i}(int *out) {{ *out = {i}; }}' for i in range(3))
        module = cukern.RawModule(code=code)
        module.get_function("own_0")
        found: list[cukern.RawKernel | Exception] = []

        def work() -> None:
            try:
                found.extend([module.get_function("own_1"), cukern.RawModule(code=code + " ").get_function("own_2")])
            except Exception as error:
                found.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        out = cukern.zeros(2, "int32")
        for i, kernel in enumerate(found):
            assert not isinstance(kernel, Exception), kernel
            kernel[1, 1](out[i:])
        assert out.tolist() == [1, 2]


class TestOtherLibraries:
    def test_torch(self, module: cukern.RawModule) -> None:
        torch = library("torch")
        saxpy = module.get_function("saxpy<float>")
        x = torch.ones(1000, device="cuda")
        y = torch.zeros(1000, device="cuda")
        saxpy(4, 256, (2.0, x, y, 1000))
        assert (y == 2).all()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            saxpy(4, 256, (2.0, x, y, 1000))
            assert (y == 4).all()
        saxpy(4, 256, (2.0, cukern.from_dlpack(x), y[::1], 1000))
        assert (y == 6).all()
        with pytest.raises(TypeError, match=r"argument 2 of 4 \(x\) is in pageable host memory"):
            saxpy(4, 256, (2.0, torch.ones(1000), y, 1000))
        with pytest.raises((TypeError, ValueError, RuntimeError, BufferError), match="grad"):
            saxpy(4, 256, (2.0, torch.ones(1000, device="cuda", requires_grad=True), y, 1000))
        pinned = torch.ones(1000).pin_memory()
        saxpy(4, 256, (2.0, pinned, y, 1000))
        assert (y == 8).all()

    def test_cupy(self, module: cukern.RawModule) -> None:
        cupy = library("cupy")
        saxpy = module.get_function("saxpy<float>")
        x, y = cupy.ones(1000, cupy.float32), cupy.zeros(1000, cupy.float32)
        saxpy(4, 256, (2.0, x, y, 1000))
        assert (cupy.asnumpy(y) == 2).all()
        with pytest.raises(TypeError, match=r"argument 2 of 4 \(x\) is an array of float64"):
            saxpy(4, 256, (2.0, x.astype(float), y, 1000))

    def test_numba_and_jax(self, module: cukern.RawModule) -> None:
        numba_cuda = library("numba.cuda")
        saxpy = module.get_function("saxpy<float>")
        x, y = numba_cuda.to_device(np.ones(1000, np.float32)), numba_cuda.to_device(np.zeros(1000, np.float32))
        saxpy(4, 256, (2.0, x, y, 1000))
        assert (y.copy_to_host() == 2).all()
        z = cukern.zeros(1000, dtype="float32")  # before JAX, which leaves another device current where there are two
        numpy = importlib.import_module("jax.numpy") if library("jax").default_backend() == "gpu" else None
        if numpy is None:
            return
        saxpy(4, 256, (2.0, numpy.ones(1000, numpy.float32), z, 1000))
        assert (cukern.asnumpy(z) == 2).all()
        with pytest.raises(ValueError, match="read-only"):  # its arrays are immutable
            saxpy(4, 256, (2.0, z, numpy.ones(1000, numpy.float32), 1000))

    def test_arrays_of_structures(self) -> None:
        """Numba has them: they are passed by their address, as all arrays are."""
        numba_cuda = library("numba.cuda")
        code = """struct Pair { int a; double b; };
        __global__ void f(const Pair *pairs, double *out, int n) {
            for (int i = 0; i < n; ++i) *out += pairs[i].a + pairs[i].b;
        }
        __global__ void g(const float *x) {}"""
        pair = np.dtype([("a", np.int32), ("b", np.float64)], align=True)
        out = cukern.zeros(1)
        for host, n in ((np.array([(1, 0.5), (2, 0.25)], pair), 2), (np.array([(3, 0.5)], pair), 1)):
            cukern.RawKernel(code, "f")(1, 1, (numba_cuda.to_device(host), out, n))
        assert out.item() == 7.25
        with pytest.raises(TypeError, match="argument 1 of 1"):
            cukern.RawKernel(code, "g")(1, 1, (numba_cuda.to_device(host),))
        with pytest.raises(TypeError, match="element type"):
            cukern.asnumpy(numba_cuda.to_device(host))

    def test_capture_by_torch(self, module: cukern.RawModule) -> None:
        torch = library("torch")
        saxpy = module.get_function("saxpy<float>")
        x, y = torch.ones(1000, device="cuda"), torch.zeros(1000, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            saxpy(4, 256, (2.0, x, y, 1000))
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize()
        assert (y == 6).all()


def test_nothing_is_kept_alive() -> None:
    kernel = cukern.RawKernel(SAXPY, "saxpy<float>")
    x, y = cukern.ones(10, dtype="float32"), cukern.zeros(10, dtype="float32")
    launcher = kernel[1, 32]
    launcher(1.0, x, y, 10)
    cukern.synchronize()
    references = [weakref.ref(thing) for thing in (kernel, x, y)]
    del kernel, x, y, launcher
    gc.collect()
    assert [reference() for reference in references] == [None] * 3


def test_random_kernels_get_what_they_are_given() -> None:
    """At least 500 signatures and 20,000 lists: what is launched writes its arguments back."""
    random_ = random.Random(20261)
    count, lists = (30, 10) if SMALL else (520, 40)
    kernels = [random_kernel(random_, i) for i in range(count)]
    values = Values(random_, *arrays())
    seen: Counter[str] = Counter()
    for begin in range(0, count, 40):
        group = kernels[begin : begin + 40]
        module = cukern.RawModule(
            code=PRELUDE + "".join(kernel.text for kernel in group), name_expressions=[kernel.name for kernel in group]
        )
        launched = []
        out = cukern.zeros((len(group) * lists, 512), dtype="uint8")
        base = address_of(out)
        for kernel in group:
            function = module.get_function(kernel.name)
            for _ in range(lists):
                args, wanted = values.list_for(kernel)
                described = f"{kernel.text} {args}"
                try:
                    function(1, 1, (cukern.Pointer(base + 512 * len(launched)), *args))
                except (TypeError, ValueError, OverflowError) as error:
                    assert wanted is None, f"{described}: {error}"
                    seen["refused"] += 1
                    continue
                assert wanted is not None, described
                launched.append((described, kernel.mask(), b"".join(wanted)))
                seen["taken"] += 1
        cukern.synchronize()
        for row, (described, mask, wanted) in zip(cukern.asnumpy(out), launched, strict=False):
            counts = np.frombuffer(mask, np.uint8)
            np.testing.assert_array_equal(
                row[: len(wanted)] & counts, np.frombuffer(wanted, np.uint8) & counts, described
            )
    assert sum(seen.values()) == count * lists
    assert min(seen.values()) > count * lists // 5, seen


def test_structures_arrive_as_they_are() -> None:
    code = r"""struct Pair { char a; double b; };
    __global__ void f(Pair p, Pair *q, double *out) { out[0] = p.a; out[1] = p.b; }"""

    class Pair(ctypes.Structure):
        _fields_ = (("a", ctypes.c_char), ("b", ctypes.c_double))

    out = cukern.zeros(2)
    kernel = cukern.RawKernel(code, "f")
    kernel(1, 1, (Pair(b"\x07", 2.5), None, out))
    assert cukern.asnumpy(out).tolist() == [7, 2.5]
    kernel(1, 1, (np.array((8, 3.5), np.dtype([("a", "i1"), ("b", "f8")], align=True))[()], cukern.Pointer(8), out))
    assert cukern.asnumpy(out).tolist() == [8, 3.5]
    with pytest.raises(TypeError, match="of 9 bytes; the kernel expects Pair of 16 bytes"):
        kernel(1, 1, (np.array((8, 3.5), np.dtype([("a", "i1"), ("b", "f8")]))[()], None, out))
