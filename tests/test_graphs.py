"""`capture` and `Graph`: what is captured, what a launch orders, whose the memory is, and how a capture ends."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import SMALL
from interchange_tools import QUIET, SIZE, bring, keep_busy

import cukern
from cukern import _cukern

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.usefixtures("backend"),
    pytest.mark.parametrize("backend", ["cuda"], indirect=True),
    *QUIET,
]

SOURCE = r"""
template <typename T> __global__ void saxpy(T a, const T *x, T *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
__global__ void slow(float *x, int n) {
    long long begin = clock64();
    while (clock64() - begin < 20000000) {}
    for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] += 1;
}
"""


@pytest.fixture
def module() -> cukern.RawModule:
    return cukern.RawModule(code=SOURCE, name_expressions=["saxpy<float>", "slow"])


@pytest.fixture(autouse=True)
def nothing_is_captured() -> Iterator[None]:
    """Every test leaves the device as it was: a wait for it is refused while anything is captured."""
    yield
    cukern.synchronize()


def values(shape: Any = SIZE, seed: int = 1, element: str = "float32") -> np.ndarray:
    return (np.random.default_rng(seed).integers(-50, 50, shape) / 4).astype(element)


def holds(array: Any, wanted: Any) -> None:
    np.testing.assert_array_equal(cukern.asnumpy(array), np.asarray(wanted))


class TestCalls:
    def test_results_are_filled_by_each_launch(self) -> None:
        x = cukern.asarray(values())
        with cukern.capture() as graph:
            y = x + 1
            z = cukern.multiply(y, x)
        assert repr(graph) == "<cukern.Graph of device 0: ready>"
        for seed in range(3):
            a = values(seed=seed)
            x[...] = a
            assert graph.launch() is None
            holds(y, a + 1)
            holds(z, (a + 1) * a)

    @pytest.mark.parametrize(
        "call",
        [
            lambda x: x[::2] * x[1::2],
            lambda x: x.reshape(-1, 4).T + x[:4, None],
            lambda x: cukern.sum(x),
            lambda x: x.reshape(4, -1).max(axis=0),
            lambda x: cukern.cumulative_sum(x),
            lambda x: x.reshape(32, -1) @ x.reshape(-1, 32),
            lambda x: cukern.matmul_cublas(x.reshape(32, -1), x.reshape(-1, 32)),
            lambda x: cukern.matmul_tiled(x.reshape(32, -1), x.reshape(-1, 32)),
            lambda x: x.astype("int32"),
            lambda x: cukern.where(x > 0, x, -1),
            lambda x: cukern.clip(x, -3, 3),
            lambda x: x.copy(),
            lambda x: cukern.full_like(x, 3),
            lambda x: cukern.concat([x, x]),
            lambda x: cukern.zeros((0, 3)),
            lambda x: cukern.sum(x) + x[0],
            lambda x: cukern.argmax(x.reshape(4, -1), axis=1),
            lambda x: cukern.var(x.reshape(4, -1), axis=0),
            lambda x: cukern.any(x > 12),
            lambda x: cukern.cumulative_prod(x.reshape(4, -1), axis=0),
            lambda x: cukern.atan2(x, 0.5),
            lambda x: cukern.divmod(x, 3)[1] if hasattr(cukern, "divmod") else cukern.remainder(x, 3),
            lambda x: cukern.einsum("ij,kj->ik", x.reshape(32, -1), x.reshape(32, -1)),
            lambda x: cukern.tensordot(x.reshape(4, 8, -1), x.reshape(4, 8, -1), axes=([1], [1])),
            lambda x: cukern.vecdot(x, x),
            lambda x: cukern.matmul(x.reshape(32, -1), x.reshape(-1, 32), bias=x[:32], activation="relu"),
            lambda x: cukern.matmul(x.reshape(32, -1), x.reshape(-1, 32), beta=2.0, c=x[:1024].reshape(32, 32)),
            lambda x: cukern.matmul(x.reshape(4, 8, -1), x.reshape(4, -1, 8)),
            lambda x: cukern.matmul(x.astype("int32").reshape(32, -1), x.astype("int32").reshape(-1, 32)),
        ],
    )
    def test_each_kind_of_call(self, call: Callable[[Any], Any]) -> None:
        x = cukern.asarray(values())
        call(x)  # loads what is loaded once
        with cukern.capture() as graph:
            y = call(x)
        for seed in (5, 6):
            x[...] = values(seed=seed)
            if y.size > 0:
                y.fill(99)
            before = cukern.counters()["launches"]
            graph.launch()
            assert cukern.counters()["launches"] == before + 1
            holds(y, cukern.asnumpy(call(x)))

    def test_nothing_runs_meanwhile(self) -> None:
        x, out = cukern.asarray(values()), cukern.zeros(SIZE, dtype="float32")
        with cukern.capture() as graph:
            out += x
            out += x
        holds(out, np.zeros(SIZE))
        graph.launch()
        graph.launch()
        holds(out, 4 * values())

    def test_kernels_of_ones_own(self, module: cukern.RawModule) -> None:
        x, y = cukern.asarray(values()), cukern.zeros(SIZE, dtype="float32")
        elementwise = cukern.ElementwiseKernel("T x, T y", "T z", "z = x * y + 1", "product_and_one")
        distance = cukern.ReductionKernel("T x, T y", "T z", "(x - y) * (x - y)", "a + b", "z = a", "0", "distance")
        fused = cukern.fuse(lambda a, b: cukern.sqrt(abs(a)) * 2 + b)
        with cukern.capture() as graph:
            module.get_function("saxpy<float>").over(SIZE)(2.0, x, y, SIZE)
            products = elementwise(x, y)
            far = distance(x, y)
            sums = fused(x, y)
        a, b = values(), np.zeros(SIZE, np.float32)
        for _ in range(2):
            graph.launch()
            b = b + 2 * a
            holds(y, b)
            holds(products, a * b + 1)
            holds(far, ((a - b) ** 2).sum())
            holds(sums, np.sqrt(abs(a)) * np.float32(2) + b)

    def test_streams_that_join(self) -> None:
        x = cukern.asarray(values())
        side = cukern.Stream()
        with cukern.capture() as graph:
            main = cukern.current_stream()
            side.wait_event(main.record(cukern.Event(timing=False)))
            a = cukern.add(x, 1, stream=side)
            b = x * 2
            main.wait_event(side.record(cukern.Event(timing=False)))
            c = a + b
        for seed in (3, 4):
            x[...] = values(seed=seed)
            graph.launch()
            holds(c, 3 * values(seed=seed) + 1)

    def test_a_stream_that_joins_and_has_used_the_arrays_before(self) -> None:
        x, out = cukern.asarray(values(50_000)), cukern.zeros(50_000, dtype="float32")
        main, side = cukern.Stream(), cukern.Stream()
        cukern.add(x, 1, out=out, stream=side)
        with cukern.capture() as inner:
            cukern.multiply(out, 2, out=out)
        inner.launch(side)
        with cukern.capture() as graph:
            main = cukern.current_stream()
            side.wait_event(main.record(cukern.Event(timing=False)))
            cukern.add(x, 1, out=out, stream=side)
            inner.launch(side)
            main.wait_event(side.record(cukern.Event(timing=False)))
        del x, inner
        others = [cukern.full(50_000, -1, dtype="float32") for _ in range(8)]
        for stream in (None, cukern.Stream()):
            out.fill(0)
            graph.launch(stream)
            holds(out, 2 * (values(50_000) + 1))
        del others, side, main

    def test_branches_share_no_memory(self) -> None:
        n = 100_000
        x, out = cukern.asarray(values(n)), cukern.zeros(n, dtype="float32")
        with cukern.capture() as graph:
            main, side = cukern.current_stream(), cukern.Stream()
            y = x + 1
            place = y.__cuda_array_interface__["data"][0]
            y = cukern.add(x, 1, out=cukern.empty(n, "float32"))
            used_by_side = _cukern._address(y)
            side.wait_event(main.record(cukern.Event(timing=False)))
            cukern.add(y, 1, out=out, stream=side)
            del y
            z = [x * 2 for _ in range(4)]
            main.wait_event(side.record(cukern.Event(timing=False)))
            del side
        assert used_by_side not in {_cukern._address(each) for each in z}
        assert place not in {_cukern._address(each) for each in z}  # which was lent
        graph.launch()
        holds(out, values(n) + 2)
        for each in z:
            holds(each, values(n) * 2)

    def test_captures_of_products_in_a_loop(self) -> None:
        a = cukern.asarray(values((128, 128)))
        for n in range(20):
            with cukern.capture() as graph:
                y = cukern.matmul_cublas(a, a)
                y = cukern.matmul_cublas(y, a)
            graph.launch(cukern.Stream() if n % 2 else None)
        holds(y, cukern.asnumpy(cukern.matmul_cublas(cukern.matmul_cublas(a, a), a)))
        streams = [cukern.Stream() for _ in range(20)]
        with cukern.capture() as graph:
            y = cukern.matmul_cublas(a, a)
            with cukern.Stream() as other:
                for stream in streams:
                    cukern.matmul_cublas(a, a, stream=stream)
                del stream, streams, other
                gc.collect()
        graph.launch()
        holds(y, cukern.asnumpy(cukern.matmul_cublas(a, a)))

    def test_another_stream_runs_at_once(self) -> None:
        x, out = cukern.asarray(values()), cukern.zeros(SIZE, dtype="float32")
        side = cukern.Stream()
        with cukern.capture() as graph:
            cukern.add(x, 1, out=out, stream=side)
            with side:
                cukern.add(out, 1, out=out)
                side.synchronize()
        holds(out, values() + 2)
        graph.launch()  # of nothing
        holds(out, values() + 2)

    @pytest.mark.parametrize("memory", ["managed", "pinned"])
    def test_memory_that_the_host_sees(self, memory: str) -> None:
        x = cukern.asarray(values(), memory=memory)
        with cukern.capture() as graph:
            y = x + 1
            y *= 2
        with cukern.capture() as failed:
            z = x + 1
            for look in (z.tolist, z[0].item, lambda: bool(z[0] > 1), lambda: np.asarray(z)):
                with pytest.raises(RuntimeError, match="captured"):
                    look()
            with pytest.raises(RuntimeError, match="captured"):
                x[...] = values(seed=2)
        del failed
        assert y.memory == memory
        graph.launch()
        holds(y, 2 * (values() + 1))
        view = memoryview(y)  # exported: a launch waits
        x[...] = values(seed=9)
        graph.launch()
        np.testing.assert_array_equal(np.asarray(view), 2 * (values(seed=9) + 1))

    def test_a_graph_in_a_graph(self) -> None:
        x, out = cukern.asarray(values()), cukern.zeros(SIZE, dtype="float32")
        with cukern.capture() as inner:
            y = x + 1
        with cukern.capture() as outer:
            inner.launch()
            cukern.add(out, y, out=out)
            inner.launch()
            cukern.add(out, y, out=out)
        del inner, y, x
        gc.collect()
        others = [cukern.full(SIZE, -1, dtype="float32") for _ in range(8)]
        outer.launch()
        holds(out, 2 * (values() + 1))
        del others

    def test_a_graph_of_kernels_that_follow_each_other_in_a_graph(self) -> None:
        """Behind another such graph, behind an operation of two kernels, and beside another stream."""
        x = cukern.asarray(values(1 << 16))
        out = cukern.zeros(1 << 16, dtype="float32")
        with cukern.capture() as inner:
            cukern.add(x, 1, out=x)
            y = cukern.cumulative_sum(x)  # two kernels
            cukern.subtract(y, 1, out=y)
        side = cukern.Stream()
        with cukern.capture() as outer:
            main = cukern.current_stream()
            inner.launch()
            inner.launch()
            cukern.add(out, y, out=out)
            side.wait_event(main.record(cukern.Event(timing=False)))
            z = cukern.multiply(y, 2, stream=side)
            cukern.add(out, x, out=out)
            main.wait_event(side.record(cukern.Event(timing=False)))
            cukern.add(out, z, out=out)
        wanted, moved = np.zeros(1 << 16), values(1 << 16).astype("float64")
        for _ in range(3):
            outer.launch()
            moved += 2
            wanted += 3 * (np.cumsum(moved) - 1) + moved
            holds(out, wanted)  # exact: quarters of less than 2**24

    def test_what_comes_after_a_kernel_that_follows_another(self) -> None:
        """Of a large sum, and of a product whose sums blocks share: graphs, other streams and torch after them."""
        torch = bring("torch")
        x = cukern.asarray(values())
        big = cukern.ones(1 << 22, dtype="float32")
        wide = cukern.ones((256, 4096), dtype="float32")
        with cukern.capture() as inner:
            y = x + 1
        side = cukern.Stream()
        with cukern.capture() as outer:
            total = cukern.sum(big)
            inner.launch()
            total = total + cukern.sum(big)
            main = cukern.current_stream()
            side.wait_event(main.record(cukern.Event(timing=False)))
            product = cukern.matmul_tiled(wide, wide.mT, stream=side)
            main.wait_event(side.record(cukern.Event(timing=False)))
            z = y + total
            w = cukern.sum(product) + z
        for _ in range(2):
            outer.launch()
            holds(z, values() + 1 + 2 * big.size)
            holds(w, values() + 1 + 2 * big.size + 256 * 256 * 4096)
        graph, t = torch.cuda.CUDAGraph(), torch.ones(1 << 22, device="cuda")
        out = torch.zeros((), device="cuda")
        cukern.sum(t, out=out)
        with torch.cuda.graph(graph):
            cukern.sum(t, out=out)
            after = out * 2
            cukern.sum(t, out=out)
        graph.replay()
        assert (float(after), float(out)) == (2.0 * t.numel(), float(t.numel()))

    def test_two_captures_at_once(self) -> None:
        x = cukern.asarray(values())
        with cukern.capture() as outer:
            a = x + 1
            with cukern.capture() as inner:
                b = x * 2
            c = a + 1
        for graph in (inner, outer):
            graph.launch()
        holds(b, 2 * values())
        holds(c, values() + 2)


class TestOrder:
    def test_a_launch_waits_for_its_operands(self, module: cukern.RawModule) -> None:
        x, y = cukern.zeros(SIZE, dtype="float32"), cukern.zeros(SIZE, dtype="float32")
        with cukern.capture() as graph:
            cukern.add(x, 1, out=y)
        a, b = cukern.Stream(), cukern.Stream()
        for n in (1, 2, 3):
            module.get_function("slow")((1,), (256,), (x, SIZE), stream=a)
            graph.launch(b)
            cukern.add(y, 1, out=x, stream=a)  # after the launch, which reads x
            holds(y, np.full(SIZE, 3 * n - 1))

    def test_the_host_waits_for_a_launch(self, module: cukern.RawModule) -> None:
        x = cukern.zeros(SIZE, dtype="float32")
        with cukern.capture() as graph:
            module.get_function("slow")((1,), (256,), (x, SIZE))
            y = x * 2
        for stream in (None, cukern.Stream(), cukern.Stream()):
            x.fill(0)
            graph.launch(stream)
            assert y.tolist() == [2] * SIZE

    def test_a_launch_is_made_on_the_active_stream(self) -> None:
        x = cukern.asarray(values())
        with cukern.capture() as graph:
            y = x + 1
        stream = cukern.Stream()
        keep_busy(stream.ptr)
        with stream:
            graph.launch()
        assert not stream.done
        holds(y, values() + 1)
        assert stream.done
        graph.launch(stream=stream.ptr)
        holds(y, values() + 1)

    def test_a_graph_goes_while_it_runs(self, module: cukern.RawModule) -> None:
        for _ in range(3):
            x = cukern.zeros(SIZE, dtype="float32")
            with cukern.capture() as graph:
                module.get_function("slow")((1,), (256,), (x, SIZE))
                y = x * 2
                hidden = y + 1
                out = hidden * 1
            stream = cukern.Stream()
            graph.launch(stream)
            del graph, hidden, stream
            others = [cukern.full(SIZE, -1, dtype="float32") for _ in range(8)]
            holds(out, np.full(SIZE, 3))
            del others


class TestMemory:
    def used(self) -> int:
        gc.collect()
        return int(cukern.memory_info()["in_use"])

    def test_results_belong_to_the_graph(self) -> None:
        x = cukern.asarray(values())
        before = self.used()
        with cukern.capture() as graph:
            y = x + 1
            z = y * 2
        del y
        others = [cukern.full(SIZE, -1, dtype="float32") for _ in range(8)]
        graph.launch()
        holds(z, 2 * (values() + 1))
        del graph
        others.append(cukern.full(SIZE, -1, dtype="float32"))
        holds(z, 2 * (values() + 1))  # a result outlives it
        del others, z
        cukern.synchronize()
        assert self.used() == before

    @pytest.mark.pooled
    def test_results_that_nobody_has_are_used_again(self) -> None:
        n = 1 << 16
        x = cukern.asarray(values(n))
        before = self.used()
        with cukern.capture() as graph:
            y = x
            for _ in range(100):
                y = y + 1
        assert self.used() - before <= 3 * 4 * n
        graph.launch()
        holds(y, values(n) + 100)

    def test_operands_are_kept(self) -> None:
        x = cukern.asarray(values())
        gone = weakref.ref(x)
        with cukern.capture() as graph:
            y = x + x[::-1]
        del x
        gc.collect()
        assert gone() is None  # the memory is kept, not the array
        others = [cukern.full(SIZE, -1, dtype="float32") for _ in range(8)]
        graph.launch()
        holds(y, values() + values()[::-1])
        del others

    def test_nothing_is_left(self, module: cukern.RawModule) -> None:
        torch = bring("torch")
        tensor = torch.ones((64, 64), device="cuda")

        def work() -> None:
            x = cukern.asarray(values(4096))
            with cukern.capture() as graph:
                y = x.reshape(64, 64) @ tensor
                z = cukern.sum(y, axis=0)
                module.get_function("saxpy<float>").over(64)(2.0, tensor, z, 64)
            graph.launch()
            graph.launch(cukern.Stream())
            z.tolist()

        work()
        cukern.synchronize()
        before, held, references = self.used(), _cukern._held(), sys.getrefcount(tensor)
        for _ in range(5 if SMALL else 30):
            work()
        cukern.synchronize()
        cukern.zeros(1)  # what waited for events is given up by a later call
        assert self.used() == before
        assert _cukern._held()[1] == held[1]
        assert sys.getrefcount(tensor) == references


class TestOtherLibraries:
    def test_tensors_of_torch(self, module: cukern.RawModule) -> None:
        torch = bring("torch")
        x, out = (torch.zeros(SIZE, device="cuda") for _ in range(2))
        with cukern.capture() as graph:
            y = cukern.add(x, 1)
            cukern.multiply(y, 2, out=out)
            module.get_function("saxpy<float>").over(SIZE)(2.0, x, out, SIZE)
        assert type(y) is torch.Tensor
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for n in (1, 2, 3):
                torch.cuda._sleep(20_000_000)
                x.fill_(n)
                graph.launch()  # on torch's stream
                assert out.tolist() == [2 * (n + 1) + 2 * n] * SIZE
                assert y.tolist() == [n + 1] * SIZE
        torch.cuda._sleep(20_000_000)
        x.fill_(7)
        stream = cukern.Stream()
        graph.launch(stream)  # waits for torch's stream, which then waits for it
        assert out.tolist() == [30] * SIZE

    def test_tensors_are_kept(self, module: cukern.RawModule) -> None:
        torch = bring("torch")
        x, y = (torch.full((SIZE,), value, device="cuda") for value in (2.0, 3.0))
        out = cukern.zeros(SIZE, dtype="float32")
        with cukern.capture() as graph:
            cukern.add(x, y, out=out)
            module.get_function("saxpy<float>").over(SIZE)(1.0, torch.full((SIZE,), 5.0, device="cuda"), out, SIZE)
        del x, y
        others = [torch.full((SIZE,), -1.0, device="cuda") for _ in range(8)]
        graph.launch()
        holds(out, np.full(SIZE, 10))
        del others

    @pytest.mark.parametrize("library", ["cupy", "numba.cuda"])
    def test_arrays_of_others_are_kept(self, module: cukern.RawModule, library: str) -> None:
        other = bring(library)
        make = other.to_device if library == "numba.cuda" else other.asarray
        x = make(values())
        alive = weakref.ref(x)
        out = cukern.zeros(SIZE, dtype="float32")
        with cukern.capture() as graph:
            cukern.add(x, 1, out=out)
            module.get_function("saxpy<float>").over(SIZE)(2.0, x, out, SIZE)
        del x
        gc.collect()
        assert alive() is not None
        others = [make(np.full(SIZE, -1, np.float32)) for _ in range(8)]
        graph.launch()
        holds(out, values() + 1 + 2 * values())
        del others, graph
        cukern.synchronize()
        cukern.zeros(1)  # what waited for events is given up by a later call
        gc.collect()
        assert alive() is None

    def test_torch_works_on_the_captured_stream(self) -> None:
        torch = bring("torch")
        x = torch.ones(SIZE, device="cuda")
        out = cukern.zeros(SIZE, dtype="float32")
        with cukern.capture() as graph:
            stream = torch.cuda.ExternalStream(cukern.current_stream().ptr)
            with torch.cuda.stream(stream):
                x.mul_(2)
            cukern.add(x, 1, out=out)
        graph.launch()
        graph.launch()
        holds(out, np.full(SIZE, 5))

    def test_arrays_of_cupy(self) -> None:
        cupy = bring("cupy")
        x = cupy.zeros(SIZE, "float32")
        with cukern.capture() as graph:
            y = cukern.add(x, 1)
        assert type(y) is cupy.ndarray
        with cupy.cuda.Stream(non_blocking=True) as side:
            for n in (1, 2):
                keep_busy(side.ptr)
                x.fill(n)
                graph.launch()
                assert (y == n + 1).all()

    def test_arrays_of_jax(self) -> None:
        jnp = bring("jax.numpy")
        x = jnp.arange(SIZE, dtype="float32")
        out = cukern.zeros(SIZE, dtype="float32")
        with cukern.capture() as graph:
            cukern.add(x, 1, out=out)
        del x
        graph.launch()
        graph.launch(cukern.Stream())
        holds(out, np.arange(SIZE) + 1)

    @pytest.mark.parametrize("make", ["from_dlpack", "asarray"])
    @pytest.mark.parametrize("library", ["torch", "cupy"])
    def test_imports_meanwhile(self, library: str, make: str) -> None:
        other = bring(library)
        x = other.ones(SIZE, dtype=other.float32, **({"device": "cuda"} if library == "torch" else {}))
        with cukern.capture() as graph:
            view = getattr(cukern, make)(x)
            y = view + 1
        del view
        x *= 5
        graph.launch()
        holds(y, np.full(SIZE, 6))

    def test_libraries_on_the_same_stream_at_first(self) -> None:
        torch, cupy = bring("torch"), bring("cupy")
        x, y = torch.zeros(SIZE, device="cuda"), cupy.zeros(SIZE, "float32")
        out = cukern.zeros(SIZE, dtype="float32")
        with cukern.capture() as graph:
            cukern.add(x, 1, out=out)
            cukern.add(y, out, out=out)
        with cupy.cuda.Stream(non_blocking=True) as side:
            keep_busy(side.ptr)
            y.fill(5)
            graph.launch()
            y.fill(7)  # after the launch
        holds(out, np.full(SIZE, 6))

    def test_a_tensor_that_requires_gradients_later(self) -> None:
        torch = bring("torch")
        x, out = torch.ones(SIZE, device="cuda"), cukern.zeros(SIZE, dtype="float32")
        with cukern.capture() as graph:
            cukern.add(x, 1, out=out)
        x.requires_grad_()
        graph.launch()
        holds(out, np.full(SIZE, 2))

    def test_exports_meanwhile(self) -> None:
        torch, cupy = bring("torch"), bring("cupy")
        x = cukern.asarray(values())
        with cukern.capture() as graph:
            y = x + 1
            views = [torch.from_dlpack(y), cupy.asarray(y)]
            z = y + 1
        side = cukern.Stream()
        keep_busy(side.ptr)
        x.fill(1, stream=side)
        x[...] = values()
        graph.launch(side)
        cukern.synchronize()
        for view in views:
            np.testing.assert_array_equal(view.cpu().numpy() if hasattr(view, "cpu") else view.get(), values() + 1)
        holds(z, values() + 2)

    def test_captured_by_torch(self) -> None:
        torch = bring("torch")
        x, tensor = cukern.asarray(values()), torch.zeros(SIZE, device="cuda")
        with cukern.capture() as graph:
            y = x + cukern.asarray(tensor)
            cukern.add(y, 1, out=y)
            cukern.add(tensor, 0, out=tensor)
        out = torch.zeros(SIZE, device="cuda")
        theirs = torch.cuda.CUDAGraph()
        with torch.cuda.graph(theirs):
            graph.launch(torch.cuda.current_stream())
            cukern.add(y, out, out=out)
        theirs.replay()
        theirs.replay()
        np.testing.assert_array_equal(out.cpu().numpy(), 2 * (values() + 1))


REFUSED: dict[str, Callable[[Any], Any]] = {
    "an array of NumPy": lambda x: cukern.add(np.ones(SIZE, np.float32), 1),
    "its sum": lambda x: cukern.sum(np.ones(SIZE, np.float32)),
    "its product": lambda x: cukern.matmul(np.ones((4, 4)), np.ones((4, 4))),
    "copied to the device": lambda x: cukern.asarray(np.ones(SIZE, np.float32)),
    "made by the host": lambda x: cukern.arange(SIZE),
    "copied to the host": lambda x: cukern.asnumpy(x),
    "an item": lambda x: x[0].item(),
    "a list": lambda x: x.tolist(),
    "a branch": lambda x: bool(cukern.all(x > 0)),
    "its text": lambda x: repr(x),
    "a wait for the stream": lambda x: cukern.current_stream().synchronize(),
    "whether it is done": lambda x: cukern.current_stream().done,
    "a wait for the device": lambda x: cukern.synchronize(),
    "a wait for an event": lambda x: cukern.current_stream().record().synchronize(),
    "whether an event is done": lambda x: cukern.current_stream().record().done,
    "the time between events": lambda x: cukern.current_stream().record() - cukern.current_stream().record(),
}


class TestErrors:
    @pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
    def test_what_a_graph_cannot_hold(self, call: Callable[[Any], Any]) -> None:
        x = cukern.asarray(values())
        with cukern.capture() as graph:
            y = x + 1
            with pytest.raises(RuntimeError, match="captur"):
                call(x)
            z = y + 1
        graph.launch()
        holds(z, values() + 2)  # the capture has survived
        with pytest.raises(RuntimeError, match="captur"), cukern.capture() as failed:
            y = x + 1
            call(x)
        assert repr(failed) == "<cukern.Graph of device 0: failed>"
        with pytest.raises(RuntimeError, match="launch: the capture ended with an error"):
            failed.launch()
        assert (x + 1).tolist() == (values() + 1).tolist()

    def test_the_message_names_the_array(self) -> None:
        message = r"add: b is in host memory, whose work a graph cannot hold; .*cukern.asarray\(b\)"
        with cukern.capture(), pytest.raises(RuntimeError, match=message):
            cukern.add(1, np.ones(3))

    def test_numbers_alone_are_no_work(self) -> None:
        with cukern.capture():
            assert cukern.add(1, 2) == 3

    def test_any_exception_ends_the_capture(self) -> None:
        x = cukern.asarray(values())
        gc.collect()
        before, held = cukern.memory_info()["in_use"], _cukern._held()[1]
        with pytest.raises(ZeroDivisionError), cukern.capture() as graph:
            y = x + 1
            1 / 0  # noqa: B018
        del y, graph
        gc.collect()
        assert cukern.memory_info()["in_use"] == before
        assert _cukern._held()[1] == held

    def test_a_capture_that_is_dropped(self) -> None:
        x = cukern.asarray(values())
        before = cukern.current_stream()
        graph = cukern.capture()
        graph.__enter__()
        x + 1
        assert cukern.current_stream() != before
        del graph
        gc.collect()
        assert cukern.current_stream() == before
        cukern.synchronize()
        graph = cukern.capture()
        graph.__enter__()
        with pytest.raises(RuntimeError, match="being captured; wait for the end"):
            graph.launch()
        y = x + 1
        graph.__exit__(None, None, None)
        graph.launch()
        holds(y, values() + 1)

    def test_a_graph_is_captured_once(self) -> None:
        graph = cukern.capture()
        assert repr(graph) == "<cukern.Graph of device 0: not captured yet>"
        with pytest.raises(RuntimeError, match="nothing has been captured"):
            graph.launch()
        with pytest.raises(RuntimeError, match="comes after __enter__"):
            graph.__exit__(None, None, None)
        with graph:
            pass
        with pytest.raises(RuntimeError, match="captured once"), graph:
            pass
        graph.launch()

    @pytest.mark.provokes_cuda_error
    def test_another_library_ends_the_capture(self) -> None:
        torch = bring("torch")
        x = cukern.asarray(values())
        with pytest.raises(RuntimeError, match="ended by a call"), cukern.capture() as graph:
            x + 1
            stream = torch.cuda.ExternalStream(cukern.current_stream().ptr)
            with pytest.raises(Exception, match="captur"):
                stream.synchronize()
        with pytest.raises(RuntimeError, match="ended with an error"):
            graph.launch()
        holds(x + 1, values() + 1)

    @pytest.mark.provokes_cuda_error
    def test_a_stream_that_does_not_join(self) -> None:
        x = cukern.asarray(values())
        side = cukern.Stream()
        with pytest.raises(cukern.CudaError, match="Unjoined"), cukern.capture():
            side.wait_event(cukern.current_stream().record(cukern.Event(timing=False)))
            cukern.add(x, 1, stream=side)
        holds(x + 1, values() + 1)

    def test_arguments(self) -> None:
        with pytest.raises(ValueError, match="device 77 does not exist"):
            cukern.capture(device=77)
        with pytest.raises(TypeError):
            cukern.capture(1, 2)
        with cukern.capture() as graph:
            pass
        with pytest.raises(TypeError, match="stream is 'x'"):
            graph.launch("x")
        with pytest.raises(TypeError):
            graph.debug_dot(3)
        with pytest.raises(TypeError, match="cannot create"):
            cukern.Graph()

    @pytest.mark.parametrize("kind", ["allocate", "launch", "stream", "event"])
    def test_failures_in_turn(self, kind: str) -> None:
        x, stream = cukern.asarray(values(5000)), cukern.Stream()

        def work() -> np.ndarray:
            with cukern.capture() as graph:
                y = x + 1
                z = cukern.sum(y.reshape(50, 100), axis=0)
            graph.launch(stream)
            return cukern.asnumpy(z)

        wanted = work()
        failures = 0
        for n in range(1, 100):
            _cukern._release_caches()
            before, held = _cukern._fault_calls(kind), _cukern._held()[1]
            _cukern._inject_fault(kind, n)
            try:
                np.testing.assert_array_equal(work(), wanted)
            except cukern.CudaError as error:
                assert "injected by a test" in str(error)
                failures += 1
            finally:
                reached = _cukern._fault_calls(kind) - before
                _cukern._inject_fault(kind, 0)
            cukern.synchronize()
            _cukern._release_caches()  # and with them the streams of what staged the results
            assert _cukern._held()[1] == held
            if reached < n:
                break
        assert failures > 0
        np.testing.assert_array_equal(work(), wanted)


class TestThreads:
    def test_other_threads_go_on(self) -> None:
        x = cukern.asarray(values())
        ready, finish = threading.Event(), threading.Event()
        results: list[Any] = []

        def other() -> None:
            ready.wait(30)
            for _ in range(50):
                y = cukern.ones(SIZE * 3) + 1  # runs, with fresh memory
                results.append(y.tolist() == [2] * SIZE * 3)
                results.append(cukern.add(np.ones(3), 1).tolist() == [2, 2, 2])
            finish.set()

        thread = threading.Thread(target=other)
        thread.start()
        with cukern.capture() as graph:
            y = x + 1
            ready.set()
            finish.wait(60)
            z = y + 1
        thread.join()
        assert len(results) == 100
        assert all(results)
        graph.launch()
        holds(z, values() + 2)

    def test_two_threads_leave_one_block(self) -> None:
        x = cukern.asarray(values())
        for _ in range(20):
            graph = cukern.capture()
            graph.__enter__()
            for _ in range(50):
                y = x + 1
            failed: list[Exception] = []

            def leave(graph: Any = graph, failed: list[Exception] = failed) -> None:
                try:
                    graph.__exit__(None, None, None)
                except RuntimeError as error:
                    failed.append(error)

            threads = [threading.Thread(target=leave) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(failed) == 1
            if "ready" in repr(graph):
                graph.launch()
                holds(y, values() + 1)

    def test_graphs_of_several_threads(self) -> None:
        failures: list[BaseException] = []

        def work(seed: int) -> None:
            try:
                x = cukern.asarray(values(seed=seed))
                for _ in range(20):
                    with cukern.capture() as graph:
                        y = x + seed
                        z = y * 2
                    graph.launch()
                    holds(z, 2 * (values(seed=seed) + seed))
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []


def test_debug_dot(tmp_path: Path) -> None:
    x = cukern.asarray(values())
    with cukern.capture() as graph:
        cukern.sqrt(x + 1)
    for path in (tmp_path / "graph.dot", str(tmp_path / "again.dot")):
        graph.debug_dot(path)
        assert Path(path).read_text().startswith("digraph")


def test_debug_dot_where_no_file_can_be(tmp_path: Path) -> None:
    with cukern.capture() as graph:
        pass
    with pytest.raises(FileNotFoundError, match=r"missing/graph\.dot"):
        graph.debug_dot(tmp_path / "missing" / "graph.dot")
