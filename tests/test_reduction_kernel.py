"""`ReductionKernel`: on a GPU, and without one by its kernels run on the processor (emulated_kernels.py)."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from conftest import SMALL, use
from emulated_kernels import emulate_kernels

import cukern
from cukern import _formula_source as source
from cukern import _reduction_kernel as reduction
from cukern._reduction_kernel import choose_division
from cukern._reduction_source import Division, ReductionFormula, reducer_of, reduction_source


def l2norm() -> cukern.ReductionKernel:
    return cukern.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "l2norm")


def distance() -> cukern.ReductionKernel:
    return cukern.ReductionKernel("T x, T y", "T z", "(x - y) * (x - y)", "a + b", "z = sqrt(a)", "0", "distance")


def random_operand(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> tuple[Any, np.ndarray]:
    """Return a view of some strides, and its values."""
    host = rng.integers(-9, 10, [2 * n + 4 for n in shape]).astype(dtype)
    order = [int(d) for d in rng.permutation(len(shape))]
    host = np.ascontiguousarray(host.transpose(order)).transpose(np.argsort(order)) if shape else host
    array = cukern.asarray(host)
    index = []
    for n in shape:
        step, begin = int(rng.choice([1, 1, 1, 2, -1])), int(rng.integers(0, 4))
        if step == -1:
            index.append(slice(n + begin, begin, -1))
        else:
            index.append(slice(begin, begin + n * step, step))
    view, host = array[tuple(index)], host[tuple(index)]
    if rng.random() < 0.4:
        return cukern.copy(view, order="C"), host
    if shape and rng.random() < 0.3:
        d = int(rng.integers(len(shape)))
        one = tuple(slice(0, 1) if i == d else slice(None) for i in range(len(shape)))
        return view[one], host[one]
    return view, host


class TestResults:
    def test_the_example_of_cupys_guide(self, formulas_on: str) -> None:
        kernel = l2norm()
        x = cukern.asarray(np.arange(10, dtype=np.float32).reshape(2, 5))
        wanted = np.linalg.norm(cukern.asnumpy(x), axis=1)
        np.testing.assert_allclose(cukern.asnumpy(kernel(x, axis=1)), wanted, rtol=3e-7)
        assert kernel(x).shape == ()
        assert kernel(x, axis=-1, keepdims=True).shape == (2, 1)
        assert repr(kernel) == "<cukern.ReductionKernel l2norm>"

    def test_layouts(self, formulas_on: str) -> None:
        rng = np.random.default_rng(7)
        kernel = cukern.ReductionKernel("T x, S y", "T z", "x * y - 1", "a + b", "z = a", "0", "dot_and_count")
        for case in range(400 if formulas_on == "gpu" and not SMALL else 12):
            shape = tuple(int(n) for n in rng.integers(1, 30 if case % 2 else 8, rng.integers(0, 5)))
            (x, hx), (y, hy) = (random_operand(rng, shape, dtype) for dtype in (np.int64, np.int16))
            broadcast = np.broadcast_shapes(hx.shape, hy.shape)
            axes = tuple(int(d) for d in np.flatnonzero(rng.random(len(broadcast)) < 0.5))
            wanted = np.sum(hx * hy.astype(np.int64) - 1, axis=axes)
            keepdims = bool(rng.random() < 0.3)
            if keepdims:
                wanted = np.sum(hx * hy.astype(np.int64) - 1, axis=axes, keepdims=True)
            given = kernel(x, y, axis=axes, keepdims=keepdims)
            np.testing.assert_array_equal(cukern.asnumpy(given), wanted, strict=True)
            spread = cukern.zeros([2 * n for n in wanted.shape], dtype="int64")
            out = spread[tuple(slice(None, None, 2) for _ in wanted.shape)]
            assert kernel(x, y, out=out, axis=axes, keepdims=keepdims) is out
            np.testing.assert_array_equal(cukern.asnumpy(out), wanted, strict=True)
            assert int(cukern.sum(spread)) == wanted.sum()

    @pytest.mark.parametrize(
        ("shape", "axis", "division"),
        [
            ((40_003,), None, "rows in slices, with a tail"),
            ((3, 20_000), 1, "rows in slices"),
            ((600, 37), 1, "rows"),
            ((600, 5), 1, "short rows"),
            ((2001, 70), 0, "columns in slices"),
            ((9, 70_000), 0, "columns"),
            ((6, 50, 40), (0, 2), "rows of rows"),
        ],
    )
    def test_each_way(self, formulas_on: str, shape: tuple[int, ...], axis: Any, division: str) -> None:
        rng = np.random.default_rng(8)
        x, y = (rng.integers(-5, 6, shape).astype(np.float32) for _ in range(2))
        kernel = cukern.ReductionKernel("T x, T y", "T z", "x * y", "a + b", "z = a", "0", "products")
        given = kernel(cukern.asarray(x), cukern.asarray(y), axis=axis)
        np.testing.assert_array_equal(cukern.asnumpy(given), np.sum(x * y, axis=axis))
        plan = next(iter(kernel._plans.values()))
        assert len(plan.launches) == (2 if "slices" in division else 1)

    @pytest.mark.parametrize("element", ["bool", "int8", "uint16", "float16", "bfloat16", "float64", "complex64"])
    def test_element_types(self, formulas_on: str, element: str) -> None:
        kernel = cukern.ReductionKernel("T x", "S y", "x", "a + b", "y = a", "0", "total", reduce_type="S")
        x = cukern.ones((3, 67), dtype=element)
        out = cukern.empty(3, dtype="complex128" if "complex" in element else "float32")
        kernel(x, out, axis=1)
        assert (cukern.asnumpy(out) == 67).all()
        for begin in (0, 1, 3):  # vectors, and addresses that don't allow them
            assert cukern.asnumpy(kernel(x[:, begin:], out, axis=1)).tolist() == [67 - begin] * 3

    def test_kernels_follow_the_one_before(self, formulas_on: str) -> None:
        kernel = cukern.ReductionKernel("T x", "T y", "x", "a + b", "y = a", "0")
        for count in (20, 1 << 16):
            assert kernel(cukern.ones(count)).item() == count
        kernels = [each for found in kernel._kernels.values() for each in found[:2] if each is not None]
        assert [each._follows for each in kernels] == [True] * 3, "of one kernel, and of two"
        other = cukern.ReductionKernel("T x", "T y", "x", "a + b", "y = a", "0", preamble="#define LOAD __ldg")
        assert not other._may_follow(other._formula({"T": "float32"}, ["float32"] * 2))

    def test_indices_and_no_identity(self, formulas_on: str) -> None:
        preamble = """
        template <typename T> struct Best { T value; long long index; };
        template <typename T> __device__ Best<T> better(Best<T> a, Best<T> b) {
            return b.value > a.value || (b.value == a.value && b.index < a.index) ? b : a;
        }"""
        kernel = cukern.ReductionKernel(
            "T x", "int64 y", "Best<T>{x, _J}", "better(a, b)", "y = a.index", None, "my_argmax",
            reduce_type="Best<T>", preamble=preamble,
        )  # fmt: skip
        x = np.random.default_rng(1).integers(0, 50, (7, 3001)).astype(np.int32)
        for array, axis in ((x, 1), (x, 0), (x, None), (x[:, ::-3], 1), (x.T[::-1], 0)):
            given = kernel(cukern.asarray(array), axis=axis)
            np.testing.assert_array_equal(cukern.asnumpy(given), np.argmax(array, axis=axis))
        with pytest.raises(ValueError, match="my_argmax: no elements are reduced, and there is no identity"):
            kernel(cukern.zeros((3, 0), "int32"), axis=1)
        assert kernel(cukern.zeros((0, 3), "int32"), axis=1).shape == (0,)

    def test_names_and_texts_of_all_kinds(self, formulas_on: str) -> None:
        x = cukern.arange(6.0)
        kernel = cukern.ReductionKernel(
            "T x, T min", "T y", "x > min ? x : min // the larger", "join(a, b) // ours", "y = a // done",
            "identity()", "clash", preamble="struct A {};\n"
            "__device__ double join(double a, double b) { return a + b; }\n__device__ double identity() { return 0; }",
        )  # fmt: skip
        assert kernel(x, 2.0).item() == 2 + 2 + 2 + 3 + 4 + 5
        kernel = cukern.ReductionKernel(
            "T x", "T y", "A{x}", "A{a.value + b.value}", "y = a.value", "A{0}", reduce_type="A",
            preamble="struct A { double value; };",
        )  # fmt: skip
        assert kernel(x).item() == 15
        for type_, element in (("float16", "float32"), ("bfloat16", "float32"), ("complex64", "complex128")):
            kernel = cukern.ReductionKernel("T x", f"{element} y", "x", "a + b", "y = a", 0, reduce_type=type_)
            assert kernel(x.astype("float32")).item() == 15

    def test_identities_of_python(self, formulas_on: str) -> None:
        x = cukern.arange(6.0)
        for identity, text, wanted in (
            (False, "a || b", 1), (True, "a && b", 0), (0, "a + b", 15), (1.0, "a * b", 0),
            (float("-inf"), "a > b ? a : b", 5), (float("inf"), "a < b ? a : b", 0), (np.float64(0), "a + b", 15),
        ):  # fmt: skip
            assert cukern.ReductionKernel("T x", "T y", "x", text, "y = a", identity)(x).item() == wanted
        assert np.isnan(cukern.ReductionKernel("T x", "T y", "x", "a + b", "y = a", float("nan"))(x).item())

    def test_operands_of_one_element(self, formulas_on: str) -> None:
        kernel = cukern.ReductionKernel("T x", "raw T y", "x", "a + b", "y[_i] = a", "0", "spread")
        x, y = cukern.broadcast_to(cukern.full(1, 2.0), (4, 3)), cukern.zeros(4)
        kernel(x, y, axis=1)
        assert cukern.asnumpy(y).tolist() == [6] * 4
        kernel = cukern.ReductionKernel("T x", "T y", "x", "a + b", "y = a", "0", "total")
        assert kernel(x).item() == 24
        assert cukern.asnumpy(kernel(x, axis=0)).tolist() == [8] * 3

    def test_no_elements(self, formulas_on: str) -> None:
        kernel = l2norm()
        assert cukern.asnumpy(kernel(cukern.zeros((3, 0)), axis=1)).tolist() == [0, 0, 0]
        assert kernel(cukern.zeros((0, 3)), axis=1).shape == (0,)
        assert kernel(cukern.zeros((0, 3))).item() == 0

    def test_numbers_raw_arrays_and_several_outputs(self, formulas_on: str) -> None:
        kernel = cukern.ReductionKernel(
            "T x, raw T weights, T factor", "T total, int64 count", "x * weights[_J] * factor", "a + b",
            "total = a + factor; count = _in_ind.size() / _out_ind.size() + _i", "0", "weighted",
        )  # fmt: skip
        x, weights = np.arange(12.0).reshape(3, 4), np.array([1.0, 2.0, 3.0, 4.0])
        total, count = kernel(cukern.asarray(x), cukern.asarray(weights[::-1])[::-1], 0.5, axis=1)
        np.testing.assert_array_equal(cukern.asnumpy(total), (x * weights).sum(axis=1) / 2 + 0.5)
        assert cukern.asnumpy(count).tolist() == [4, 5, 6]
        again = kernel(cukern.asarray(x), cukern.asarray(weights[::-1])[::-1], 2, axis=1)[0]
        np.testing.assert_array_equal(cukern.asnumpy(again), (x * weights).sum(axis=1) * 2 + 2)

    def test_calls_that_repeat_use_other_memory(self, formulas_on: str) -> None:
        kernel = distance()
        for i in range(3):
            x = cukern.full((2, 30_000), float(i))
            assert (cukern.asnumpy(kernel(x, 1.0 * i + 1, axis=1)) == 30_000**0.5).all()
        assert len(kernel._plans) == 1

    def test_arrays_of_numpy(self, formulas_on: str) -> None:
        x = np.arange(6.0).reshape(2, 3)
        given = l2norm()(x, axis=0)
        assert isinstance(given, np.ndarray)
        np.testing.assert_allclose(given, np.linalg.norm(x, axis=0), rtol=1e-15)
        out = np.empty(3)
        assert l2norm()(x, out, axis=0) is out
        np.testing.assert_array_equal(out, given)


class TestRefusals:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("", "T y"), "has inputs and outputs"),
            (("T x", ""), "has inputs and outputs"),
            (("T x", "T a"), "an output has the name a"),
            (("T x", "T x"), "the same name"),
        ],
    )
    def test_constructor(self, arguments: tuple[str, str], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            cukern.ReductionKernel(*arguments, "x", "a + b", "y = a", "0")

    @pytest.mark.build
    def test_calls(self, monkeypatch: pytest.MonkeyPatch) -> None:
        use("host")
        emulate_kernels(monkeypatch)
        kernel, x = distance(), cukern.zeros((2, 3))
        with pytest.raises(TypeError, match="expected 2 inputs, or 3 with the outputs, got 1"):
            kernel(x)
        with pytest.raises(np.exceptions.AxisError, match="distance: axis 2 is out of bounds for 2 dimensions"):
            kernel(x, x, axis=2)
        with pytest.raises(TypeError, match=r"axis is 1\.5; expected None, an int or a tuple"):
            kernel(x, x, axis=1.5)
        kernel(x, x, axis=(1,))
        with pytest.raises(TypeError, match=r"axis is \(1\.0,\)"):
            kernel(x, x, axis=(1.0,))
        with pytest.raises(ValueError, match="names a dimension twice"):
            kernel(x, x, axis=(0, -2))
        with pytest.raises(ValueError, match="shapes do not broadcast"):
            kernel(x, cukern.zeros(4))
        with pytest.raises(ValueError, match=r"z has shape \(2,\); the result has \(3,\)"):
            kernel(x, x, cukern.zeros(2), axis=0)
        with pytest.raises(ValueError, match="out= is for one output"):
            kernel(x, x, cukern.zeros(3), out=cukern.zeros(3), axis=0)
        with pytest.raises(ValueError, match="all inputs are numbers or raw"):
            kernel(1.0, 2.0, cukern.zeros(()))
        with pytest.raises(TypeError, match="y has element type float32, and T is float64"):
            kernel(x, x.astype("float32"))

    def test_without_a_gpu_it_says_so(self) -> None:
        use("host")
        with pytest.raises(RuntimeError, match="l2norm: formulas in C\\+\\+ need a GPU"):
            l2norm()(np.zeros(3))


@pytest.mark.parametrize("slices", [False, True])
def test_kernels_wait_for_the_one_before(slices: bool) -> None:
    x, y = (source.Operand(source.Parameter(name, "T"), "float32", "packed") for name in "xy")
    formula = ReductionFormula("total", "x", reducer_of("float", "a + b", "0"), "y = a", True)
    text = reduction_source(formula, [x], [y], {"T": "float32"}, Division(1, 32, True, slices=slices))
    waits = re.findall(r"__global__ void [^{]* \{\n    _follow_kernel_before\(\);\n", text)
    assert len(waits) == text.count("__global__") == 1 + slices


class TestDivision:
    def test_lines_are_divided_where_outputs_are_few(self) -> None:
        def division_of(shape: tuple[int, ...], axis: tuple[int, ...]) -> Any:
            strides = [tuple(int(np.prod(shape[d + 1 :])) for d in range(len(shape)))]
            kept = [d for d in range(len(shape)) if d not in axis]
            space = reduction._merged(shape, kept, list(axis), strides, False)
            return choose_division(space, ["float32"], [0], 1)

        layouts, division = division_of((1 << 28,), (0,))
        assert (layouts, division.slices, division.vector, division.along) == (["packed"], True, 4, 256)
        layouts, division = division_of((1 << 14, 1 << 14), (1,))
        assert (layouts, division.slices, division.in_rows, division.has_tail) == (["packed"], False, True, False)
        layouts, division = division_of((1 << 14, 1 << 14), (0,))
        assert (layouts, division.slices, division.in_rows) == (["strided"], True, False)
        assert division.across * division.along == 256
        _, division = division_of((1 << 20, 3), (1,))
        assert (division.across, division.along, division.vector) == (64, 4, 1)

    def test_every_type_has_a_size(self) -> None:
        assert set(source.CPP) == set(source.SIZES)
