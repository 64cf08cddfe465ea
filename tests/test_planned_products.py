"""Products that repeat the layouts of earlier ones' arrays: what is kept of a call must fit the next one."""

from __future__ import annotations

import gc
import itertools
from typing import Any

import numpy as np
import pytest
from interchange_tools import QUIET, bring

import cukern
from cukern import _cukern

DTYPES = ["float32", "float64", "float16", "int8", "int32", "bool", "complex64"]
SHAPES = [
    ((4, 5), (5, 3)),
    ((16, 16), (16, 16)),
    ((40, 33), (33, 24)),
    ((5,), (5, 3)),
    ((4, 5), (5,)),
    ((5,), (5,)),
    ((2, 3, 4, 5), (3, 5, 2)),
    ((7, 4, 5), (5, 6)),
    ((4, 0), (0, 3)),
    ((0, 4), (4, 3)),
    ((1, 1), (1, 1)),
]


def drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return small integers, whose products are exact in every type."""
    return rng.integers(0, 4, shape).astype(dtype)


def same(got: Any, want: np.ndarray) -> None:
    np.testing.assert_array_equal(cukern.asnumpy(got), want, strict=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_products_of_all_shapes_in_turn(dtype: str, rng: np.random.Generator) -> None:
    for k in np.tile(rng.permutation(len(SHAPES)), 2):
        for _ in range(4):
            x, y = (drawn(rng, shape, dtype) for shape in SHAPES[k])
            a, b = cukern.asarray(x), cukern.asarray(y)
            same(a @ b, x @ y)
            out = cukern.zeros(np.shape(x @ y), dtype)
            assert cukern.matmul(a, b, out=out) is out
            same(out, x @ y)


VIEWS: dict[str, Any] = {
    "packed": lambda x: x[:9, :9],
    "transposed": lambda x: x[:9, :9].T,
    "window": lambda x: x[2:11, 3:12],
    "every second row": lambda x: x[:18:2, :9],
    "every second column": lambda x: x[:9, :18:2],
    "backwards": lambda x: x[8::-1, :9],
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_products_of_views_in_turn(dtype: str, rng: np.random.Generator) -> None:
    for of_a, of_b in itertools.product(VIEWS, VIEWS):
        for _ in range(3):
            x, y = drawn(rng, (20, 20), dtype), drawn(rng, (20, 20), dtype)
            a, b = cukern.asarray(x), cukern.asarray(y)
            want = VIEWS[of_a](x) @ VIEWS[of_b](y)
            same(VIEWS[of_a](a) @ VIEWS[of_b](b), want)
            for of_out in ("packed", "transposed", "window", "every second column"):
                out = cukern.zeros((20, 20), dtype)
                cukern.matmul(VIEWS[of_a](a), VIEWS[of_b](b), out=VIEWS[of_out](out))
                same(VIEWS[of_out](out), want)
                assert np.count_nonzero(cukern.asnumpy(out)) == np.count_nonzero(want)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
def test_addresses_are_those_of_the_call(dtype: str, rng: np.random.Generator) -> None:
    """Also of memory that is aligned in another way than that of the call which was kept."""
    memory = [cukern.zeros(400, dtype) for _ in range(3)]
    for begins in [(0, 0, 0)] * 4 + [(k % 7, k % 5, k % 3) for k in range(30)] + [(0, 0, 0), (32, 64, 96)]:
        x, y = drawn(rng, (12, 13), dtype), drawn(rng, (13, 11), dtype)
        places = [
            array[begin : begin + int(np.prod(shape))].reshape(shape)
            for array, begin, shape in zip(memory, begins, [(12, 13), (13, 11), (12, 11)], strict=True)
        ]
        places[0][...], places[1][...] = x, y
        cukern.matmul(places[0], places[1], out=places[2])
        same(places[2], x @ y)
        out = cukern.zeros((11, 12), dtype)
        cukern.matmul(places[0], places[1], out=out.T)
        same(out.T, x @ y)


@pytest.mark.parametrize("function", [cukern.matmul, cukern.matmul_tiled])
def test_each_function_keeps_its_own(function: Any) -> None:
    a, b = cukern.arange(16, dtype="f8").reshape(4, 4), cukern.full((4, 4), 2.0)
    for _ in range(3):
        assert function(a, b)[1, 0].item() == 44.0
        assert (a * b)[1, 0].item() == 8.0
        assert cukern.dot(a, b)[1, 0].item() == 44.0
        assert function(a, b, alpha=2)[1, 0].item() == 88.0
        assert function(a, b, precision="tf32")[1, 0].item() == 44.0


def test_checks_of_out_are_made_each_time() -> None:
    memory = cukern.zeros((8, 4))
    a, b, out = cukern.ones((4, 4)), cukern.ones((4, 4)), cukern.zeros((4, 4))
    for _ in range(4):
        cukern.matmul(a, b, out=out)
        cukern.matmul(memory[:4], b, out=memory[4:])
        cukern.matmul(a, b, out=memory[:4])
    for wrong, message in ((a, "out overlaps a"), (b, "out overlaps b")):
        with pytest.raises(ValueError, match=message):
            cukern.matmul(a, b, out=wrong)
    with pytest.raises(ValueError, match="out overlaps a"):
        cukern.matmul(memory[:4], b, out=memory[2:6])
    with pytest.raises(ValueError, match="out has shape"):
        cukern.matmul(a, b, out=cukern.zeros((4, 5)))
    with pytest.raises(ValueError, match="inner dimensions"):
        cukern.matmul(a, cukern.ones((5, 4)))
    with pytest.raises(TypeError, match="cannot take"):
        cukern.matmul(a, b, out=cukern.zeros((4, 4), "i4"))
    same(cukern.matmul(a, b, out=out), np.full((4, 4), 4.0))


def test_an_out_of_another_type_takes_rounded_values() -> None:
    a = cukern.full((4, 4), 0.1, "f2")
    for _ in range(3):
        same(cukern.matmul(a, a), (cukern.asnumpy(a).astype("f4") @ cukern.asnumpy(a).astype("f4")).astype("f2"))
        wide = cukern.matmul(a, a, out=cukern.zeros((4, 4), "f4"))
        same(wide, cukern.asnumpy(a @ a).astype("f4"))


def test_products_are_ordered_with_other_work() -> None:
    a = cukern.ones((64, 64))
    for _ in range(4):
        with cukern.Stream():
            b = a @ a
            c = b @ a
        with cukern.Stream():
            d = c @ b
        assert (d + c)[3, 5].item() == 64.0**4 + 64.0**2


def test_a_fault_of_a_kept_product_is_told() -> None:
    a, out = cukern.ones((4, 4)), cukern.zeros((4, 4))
    for _ in range(3):
        cukern.matmul(a, a, out=out)
    _cukern._inject_fault("launch", 1)
    with pytest.raises(cukern.CudaError, match=r"matmul: .*injected by a test"):
        cukern.matmul(a, a, out=out)
    same(cukern.matmul(a, a, out=out), np.full((4, 4), 4.0))


def test_nothing_leaks() -> None:
    for k in range(3):
        gc.collect()
        before = cukern.memory_info()["in_use"]
        for n in range(1, 100):
            a = cukern.ones((n % 9 + 1, n % 7 + 1))
            for _ in range(2):
                a.T @ a
        del a
        gc.collect()
        if k:
            assert cukern.memory_info()["in_use"] == before


@pytest.mark.gpu
@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("backend", ["cuda"], indirect=True)
@QUIET[0]
class TestOnTheGPU:
    @pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "complex64"])
    def test_tensors_of_torch_in_turn(self, dtype: str) -> None:
        torch = bring("torch")
        for side in (4, 16, 40, 100, 300):
            for begin in (0, 0, 0, 1, 2, 0):
                a, b, out = (
                    torch.randint(0, 3, (side * side + 2,), device="cuda")
                    .to(getattr(torch, dtype))[begin : begin + side * side]
                    .reshape(side, side)
                    for _ in range(3)
                )
                want = a.cpu() @ b.cpu()
                got = cukern.matmul(a, b)
                assert type(got) is torch.Tensor
                assert torch.equal(got.cpu(), want)
                assert cukern.matmul(a, b, out=out) is out
                assert torch.equal(out.cpu(), want)
                with pytest.raises(ValueError, match="overlaps"):
                    cukern.matmul(a, b, out=a)

    def test_a_plan_of_the_host_is_none_of_the_device(self) -> None:
        """On the host by NumPy's BLAS, on the device by a kernel of our own, cuBLAS open or not."""
        for name in ("host", "cuda", "host", "cuda"):
            _cukern._use_backend(name)
            a = cukern.full((11, 11), 3.0, "f4")
            for _ in range(4):
                same(a @ a, np.full((11, 11), 99.0, np.float32))

    def test_products_in_graphs(self) -> None:
        for side in (4, 64, 600):
            for dtype in ("f4", "f8"):
                a, b, out = (cukern.ones((side, side), dtype) for _ in range(3))
                for _ in range(3):
                    cukern.matmul(a, b, out=out)
                with cukern.capture() as graph:
                    cukern.matmul(a, b, out=out)
                    c = out @ b
                for k in (1, 2, 3):
                    a.fill(k)
                    graph.launch()
                    assert c[1, 2].item() == float(k) * side * side
                cukern.matmul(a, b, out=out)
                assert out[0, 0].item() == 3.0 * side

    @pytest.mark.parametrize("side", [8, 16, 200])
    def test_no_allocation_and_one_launch(self, side: int) -> None:
        a, b, out = (cukern.ones((side, side), "f8") for _ in range(3))
        for _ in range(3):
            cukern.matmul(a, b, out=out)
        before = cukern.counters()
        for _ in range(50):
            cukern.matmul(a, b, out=out)
        after = cukern.counters()
        assert after["launches"] - before["launches"] == 50
        assert after["driver_allocations"] == before["driver_allocations"]
        assert after["synchronizations"] == before["synchronizations"]
