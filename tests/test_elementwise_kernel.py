"""`ElementwiseKernel`: parameters, types and layouts without a GPU, results on one."""

from __future__ import annotations

import itertools
import math
import re
from array import array
from typing import Any

import numpy as np
import pytest
from conftest import SMALL, use

import cukern
from cukern import _formula_source as source
from cukern._formula_argument import Argument
from cukern._formula_source import (
    Formula,
    Loop,
    Operand,
    Parameter,
    divisor_numbers,
    elementwise_source,
    merge_dimensions,
    parse_parameters,
)
from cukern._formula_types import bind_types


class TestParameters:
    def test_forms(self) -> None:
        assert parse_parameters("T x, raw const float32 y,\n float z, ") == (
            Parameter("x", "T"),
            Parameter("y", "float32", True),
            Parameter("z", "float64"),
        )
        assert parse_parameters("") == ()

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("float32", "is written as 'float32 x'"),
            ("float32 *x", "is written as"),
            ("T n", "reserved"),
            ("T _x", "reserved"),
            ("floot x", "'floot' is no element type"),
            ("T x, U x", "the same name"),
        ],
    )
    def test_errors(self, text: str, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            parse_parameters(text)

    def test_inputs_and_outputs_of_one_name(self) -> None:
        with pytest.raises(ValueError, match="an input and an output have the same name"):
            cukern.ElementwiseKernel("T x", "T x", "x = x")
        with pytest.raises(ValueError, match="is no name of a kernel"):
            cukern.ElementwiseKernel("T x", "T y", "y = x", "a b")

    def test_every_element_type_has_a_cpp_type(self) -> None:
        assert list(source.CPP) == list(source.SIZES)
        assert {name: np.dtype(name).itemsize for name in source.SIZES if name != "bfloat16"} == {
            name: size for name, size in source.SIZES.items() if name != "bfloat16"
        }


class TestTypes:
    def bound(self, parameters: str, *values: Any) -> dict[str, str]:
        return bind_types("f", parse_parameters(parameters), [Argument(value) for value in values])

    def test_arrays_decide_before_scalars_and_numbers(self) -> None:
        x = np.zeros(3, np.float32)
        assert self.bound("T x, T y", x, np.float64(2)) == {"T": "float32"}
        assert self.bound("T x, T y", np.float64(2), x) == {"T": "float32"}
        assert self.bound("T x, T y", np.int8(2), 3) == {"T": "int8"}

    @pytest.mark.parametrize(
        ("parameters", "values", "message"),
        [
            ("T x, T y", (np.zeros(3, np.int32), 2.5), "f: y is 2.5, and T is int32; pass a number of that kind"),
            ("T x, T y", (np.zeros(3, np.int32), np.float64(2.5)), "f: y is .*2.5.*, and T is int32"),
            ("T x, T y", (np.zeros(3, np.float32), 2j), "f: y is 2j, and T is float32"),
            ("T x, float32 y", (np.zeros(3), 1j), "f: y is 1j, and its type is float32"),
            ("int32 k, T x", (2.0, np.zeros(3)), "f: k is 2.0, and its type is int32"),
            ("T x, T y", (np.zeros(3, bool), 1), "f: y is 1, and T is bool"),
            ("T x, T y", (np.zeros(3), np.zeros(3, "f4")), "y has element type float32, and T is float64 by another"),
            ("float32 x", (np.zeros(3),), "x has element type float64, not float32"),
        ],
    )
    def test_numbers_of_another_kind(self, parameters: str, values: tuple[Any, ...], message: str) -> None:
        with pytest.raises(TypeError, match=message):
            self.bound(parameters, *values)

    def test_numbers_that_fit(self) -> None:
        for element in ("int8", "uint64", "float16", "complex64"):
            x = np.zeros(3, element)
            for number in (True, 1, np.int64(1), np.uint8(1), np.bool_(True)):
                assert self.bound("T x, T y", x, number) == {"T": element}


class TestLayouts:
    @pytest.mark.parametrize(
        ("shape", "operands", "lengths", "merged"),
        [
            ((4, 5), [(5, 1), (5, 1)], (20,), [(1,), (1,)]),
            ((4, 5), [(5, 1), (0, 1)], (4, 5), [(5, 1), (0, 1)]),
            ((4, 5, 6), [(30, 6, 1), (6, 0, 0)], (4, 30), [(30, 1), (6, 0)]),
            ((1, 5, 1), [(5, 1, 1)], (5,), [(1,)]),
            ((1, 1), [(7, 7)], (), [()]),
            ((), [()], (), [()]),
            ((3, 4), [(-4, -1)], (12,), [(-1,)]),
        ],
    )
    def test_merged(self, shape: tuple, operands: list, lengths: tuple, merged: list) -> None:
        assert merge_dimensions(shape, operands) == (lengths, merged)

    def test_divisors_are_exact(self, rng: np.random.Generator) -> None:
        most = (1 << 31) - 1
        edges = [1, 2, 3, 7, 641, 1 << 30, (1 << 30) + 1, most - 1, most]
        for divisor in [*edges, *(int(most ** float(x)) + 1 for x in rng.random(2000))]:
            value, factor, shift = divisor_numbers(divisor)
            assert value == divisor
            for n in [0, divisor - 1, min(divisor, most), most, most // divisor * divisor, *rng.integers(0, most, 20)]:
                total = (int(n) * (factor % (1 << 32)) >> 32) + int(n)
                assert total < 1 << 32
                assert total >> shift == int(n) // divisor

    def test_merged_ones_are_the_same_elements(self) -> None:
        rng = np.random.default_rng(3)
        for _ in range(200):
            base = np.arange(2000)
            shape = tuple(rng.integers(1, 5, rng.integers(0, 5)))
            strides = [tuple(int(s) for s in rng.choice([0, 1, 2, 4, 8, 12], len(shape))) for _ in range(2)]
            lengths, merged = merge_dimensions(shape, strides)
            for before, after in zip(strides, merged, strict=True):
                view = np.lib.stride_tricks.as_strided(base, shape, [8 * s for s in before])
                other = np.lib.stride_tricks.as_strided(base, lengths, [8 * s for s in after])
                assert (view.ravel() == other.ravel()).all()


class TestText:
    def test_packed(self) -> None:
        x, y = (Operand(Parameter(name, "T"), "float32", "packed") for name in "xy")
        text = elementwise_source(Formula("f", "y = x * n"), [x], [y], {"T": "float32"}, Loop(0, 4))
        assert "typedef float T;" in text
        assert "__global__ void f(const float *_p_x, float *_p_y, const long long n)" in text
        assert "n / 4 * 4 + _thread" in text
        assert "y = x * n\n;" in text

    def test_strided_and_raw(self) -> None:
        x = Operand(Parameter("x", "T"), "complex64", "one")
        r = Operand(Parameter("r", "float32", True), "float32", "raw", 2)
        k = Operand(Parameter("k", "int32"), "int32", "number")
        y = Operand(Parameter("y", "T"), "complex64", "strided")
        text = elementwise_source(Formula("f", "y = x * r[i] * k"), [x, r, k], [y], {"T": "complex64"}, Loop(3))
        assert "#include <cuda/std/complex>" in text
        assert "const _Raw<const float, 2, false> r{_p_r, _l_r};" in text
        assert "const int k, complex<float> *_p_y, const _RawLayout<2> _l_r, const long long n" in text
        assert "const _Layout<3, 1> _layout)" in text  # of y alone: x does not move
        assert "_p_x[0]" in text

    def test_rows_of_vectors(self) -> None:
        x, y = Operand(Parameter("x", "T"), "int16", "same"), Operand(Parameter("y", "T"), "int16", "packed")
        text = elementwise_source(Formula("f", "y = x"), [x], [y], {"T": "int16"}, Loop(2, 8, "int"))
        assert "using _Int = int;" in text
        assert "const _Layout<2, 2> _layout)" in text
        assert "x = _p_x[_at[0]];" in text
        assert "(_p_y + _at[1]) = _v_y;" in text
        assert "i < n;" not in text  # rows are whole vectors: nothing is left

    @pytest.mark.parametrize("loop", [Loop(0, 4), Loop(2, 1, "int")], ids=["packed", "strided"])
    def test_waits_for_the_kernel_before(self, loop: Loop) -> None:
        x, y = (Operand(Parameter(name, "T"), "float32", "strided" if loop.ndim else "packed") for name in "xy")
        text = elementwise_source(Formula("f", "y = x", loop_prep="const T c = 1"), [x], [y], {"T": "float32"}, loop)
        assert re.search(r"__global__ void f\(.*\) \{\n    _follow_kernel_before\(\);\n", text)

    def test_which_may_follow(self) -> None:
        def may_follow(operation: str, preamble: str = "", options: tuple[str, ...] = ()) -> bool:
            kernel = cukern.ElementwiseKernel("T x, raw T r", "T y", operation, preamble=preamble, options=options)
            return kernel._may_follow(kernel._formula)

        assert may_follow("y = x * constant", "__constant__ float constant;")
        for load in ("__ldg(&r[i])", 'asm("ld.global.nc.f32 %0, [%1];" : "=f"(y) : "l"(&r[i]))'):
            assert not may_follow(f"y = {load}")
        assert not may_follow("y = LOAD(__ld, g)(&r[i])", "#define LOAD(a, b) a##b")
        for preamble in ("#include <cub/cub.cuh>", '#/**/include "own.h"', '#inc\\\nlude "own.h"'):
            assert not may_follow("y = x", preamble)
        assert not may_follow("y = x", "float f(const float *__restrict__ p);")
        assert not may_follow("y = LOAD(&r[i])", options=("-DLOAD=__ldg",))

    def test_jumps(self) -> None:
        assert Formula("f", "if (x) continue; y = 1").may_jump
        assert not Formula("f", "y = returned + x").may_jump
        assert Formula("f", "y = i").uses_index
        assert not Formula("f", "y = sin(x) + n").uses_index


LOOPS = [
    # lengths, strides of the input and the output in elements, element types, addresses: layouts and the loop
    ([12], [[1], [1]], ("float32", "float32"), (0, 16), (["packed", "packed"], Loop(0, 4))),
    ([12], [[1], [1]], ("float64", "int8"), (0, 0), (["packed", "packed"], Loop(0, 2))),
    ([12], [[1], [1]], ("float32", "float32"), (8, 16), (["packed", "packed"], Loop(0, 2))),
    ([12], [[1], [1]], ("float32", "float32"), (4, 16), (["packed", "packed"], Loop(0, 1))),
    ([12], [[0], [1]], ("float64", "float32"), (8, 16), (["one", "packed"], Loop(0, 4))),
    ([12], [[2], [1]], ("float32", "float32"), (0, 0), (["strided", "strided"], Loop(1, 1, "int"))),
    ([3, 8], [[0, 1], [8, 1]], ("float32", "float32"), (0, 0), (["packed", "packed"], Loop(2, 4, "int"))),
    ([3, 8], [[16, 1], [8, 1]], ("float16", "float16"), (0, 0), (["packed", "packed"], Loop(2, 8, "int"))),
    ([3, 8], [[18, 1], [8, 1]], ("float16", "float16"), (0, 0), (["packed", "packed"], Loop(2, 2, "int"))),
    ([3, 7], [[8, 1], [8, 1]], ("float32", "float32"), (0, 0), (["strided", "strided"], Loop(2, 1, "int"))),
    ([3, 8], [[1, 0], [8, 1]], ("float32", "float32"), (0, 0), (["same", "packed"], Loop(2, 4, "int"))),
    ([3, 8], [[1, 3], [8, 1]], ("float32", "float32"), (0, 0), (["strided", "strided"], Loop(2, 1, "int"))),
    ([3, 8], [[8, 1], [1, 3]], ("float32", "float32"), (0, 0), (["strided", "strided"], Loop(2, 1, "int"))),
    ([3, 8], [[2**31, 1], [8, 1]], ("int8", "int8"), (0, 0), (["packed", "packed"], Loop(2, 8, "long long"))),
    ([], [[], []], ("float32", "float32"), (0, 0), (["one", "one"], Loop(0, 1))),
]


@pytest.mark.parametrize(("lengths", "strides", "elements", "addresses", "chosen"), LOOPS)
def test_the_loop_is_the_widest_that_all_operands_allow(
    lengths: list[int], strides: list[list[int]], elements: tuple[str, ...], addresses: tuple[int, ...], chosen: object
) -> None:
    kernel = cukern.ElementwiseKernel("T x", "U y", "y = x", "same")
    assert kernel._choose_loop(lengths, strides, elements, addresses, math.prod(lengths)) == chosen


def test_reduce_dims_changes_no_result() -> None:
    """It is taken for calls that are written for CuPy; dimensions are merged either way."""
    for reduce_dims in (True, False):
        kernel = cukern.ElementwiseKernel("T x", "T y", "y = x", "same", reduce_dims)
        assert kernel.reduce_dims is reduce_dims
        (layouts, loop) = kernel._choose_loop([24], [[1], [1]], ("float32",) * 2, (0, 0), 24)
        assert (layouts, loop.vector) == (["packed", "packed"], 4)


def test_without_a_gpu_it_says_so() -> None:
    use("host")
    kernel = cukern.ElementwiseKernel("T x", "T y", "y = x")
    with pytest.raises(RuntimeError, match="formulas in C\\+\\+ need a GPU"):
        kernel(np.zeros(3))
    assert repr(kernel) == "<cukern.ElementwiseKernel kernel>"


@pytest.mark.usefixtures("formulas_on")
class TestResults:
    def test_the_examples_of_cupys_guide(self) -> None:
        squared_diff = cukern.ElementwiseKernel(
            "float32 x, float32 y", "float32 z", "z = (x - y) * (x - y)", "squared_diff"
        )
        x = cukern.asarray(np.arange(10, dtype=np.float32).reshape(2, 5))
        y = cukern.asarray(np.arange(5, dtype=np.float32))
        wanted = (np.arange(10).reshape(2, 5) - np.arange(5)) ** 2
        assert cukern.asnumpy(squared_diff(x, y)).tolist() == wanted.tolist()
        assert cukern.asnumpy(squared_diff(x, 5)).tolist() == ((np.arange(10).reshape(2, 5) - 5) ** 2).tolist()
        z = cukern.empty((2, 5), dtype="float32")
        assert squared_diff(x, y, z) is z
        assert cukern.asnumpy(z).tolist() == wanted.tolist()
        generic = cukern.ElementwiseKernel("X x, Y y", "Z z", "z = (x - y) * (x - y)", "generic")
        z = cukern.empty((2, 5), dtype="int64")
        generic(x, y, z)
        assert cukern.asnumpy(z).tolist() == wanted.tolist()
        with pytest.raises(TypeError, match="no argument tells the type Z of z"):
            generic(x, y)
        reverse = cukern.ElementwiseKernel("T x, raw T y", "T z", "z = x + y[_ind.size() - i - 1]", "add_reverse")
        assert cukern.asnumpy(reverse(y, y)).tolist() == [4] * 5

    def test_raw_arrays_tell_of_themselves(self, formulas_on: str) -> None:
        """As CuPy's: strides in bytes, the number of dimensions, an element by an index of each."""
        kernel = cukern.ElementwiseKernel(
            "raw T x",
            "T y",
            "const int index[] = {int(i / 3), int(i % 3)};"
            "y = x[index] + 100 * x.ndim + 10000 * x.strides()[0] + 1000000 * x.strides()[1];",
            "of_raw",
        )
        values = np.arange(12, dtype=np.int64).reshape(2, 6)[:, ::2]
        x = cukern.asarray(np.arange(12, dtype=np.int64).reshape(2, 6))[:, ::2]
        found = cukern.asnumpy(kernel(x, size=6))
        np.testing.assert_array_equal(found, values.reshape(-1) + 200 + 10000 * 48 + 1000000 * 16)

    def test_scalars_of_numpy_take_the_type_of_arrays(self, formulas_on: str) -> None:
        kernel = cukern.ElementwiseKernel("T x, T y", "T z", "z = x * y", "times")
        x = cukern.arange(3, dtype="float32")
        for number in (np.float64(2), np.int16(2), np.float32(2), 2, 2.0, True + 1):
            z = kernel(x, number)
            assert (z.dtype, cukern.asnumpy(z).tolist()) == ("float32", [0, 2, 4])
            assert kernel(number, x).dtype == "float32"
        assert kernel(np.float32(3), np.float32(2)).dtype == "float32"
        with pytest.raises(TypeError, match="y has element type float64, and T is float32 by another argument"):
            kernel(x, cukern.ones(3))

    def test_element_types(self, formulas_on: str) -> None:
        kernel = cukern.ElementwiseKernel("T x, T y", "T z", "z = x + y", "plus")
        elements = source.CPP if formulas_on == "gpu" else ("bool", "int8", "float16", "bfloat16", "complex64")
        for element, shape in itertools.product(elements, ((), (1,), (7,), (33, 5), (1025,))):
            x = cukern.ones(shape, dtype=element)
            z = kernel(x, x)
            assert (z.dtype, z.shape) == (x.dtype, shape), element
            assert (cukern.asnumpy(z.astype("complex128")) == (1 if element == "bool" else 2)).all(), element

    def test_layouts(self, formulas_on: str) -> None:
        rng = np.random.default_rng(5)
        kernel = cukern.ElementwiseKernel("T x, S y", "T z", "z = x - y", "minus")
        for _ in range(200 if formulas_on == "gpu" and not SMALL else 12):
            shape = tuple(int(n) for n in rng.integers(1, 9, rng.integers(1, 5)))
            operands = []
            for dtype in (np.float32, np.int16):
                values = rng.integers(-99, 99, [2 * n for n in shape]).astype(dtype)
                view = cukern.asarray(values)
                host = values
                index = tuple(slice(None, None, int(rng.choice([2, 2, -2]))) for _ in shape)
                view, host = view[index], host[index]
                if rng.random() < 0.3:  # broadcast along one dimension
                    d = int(rng.integers(len(shape)))
                    one = tuple(slice(0, 1) if i == d else slice(None) for i in range(len(shape)))
                    view, host = view[one], host[one]
                elif rng.random() < 0.5:
                    view, host = cukern.copy(view, order="C"), host.copy()
                operands.append((view, host))
            (x, hx), (y, hy) = operands
            z = kernel(x, y)
            np.testing.assert_array_equal(cukern.asnumpy(z), np.broadcast_arrays(hx - hy.astype(np.float32))[0])

    def test_rows_columns_and_windows(self, formulas_on: str) -> None:
        rng = np.random.default_rng(6)
        kernel = cukern.ElementwiseKernel("T x, S y", "T z", "z = x - y; z *= 2", "minus_twice")
        on_gpu = formulas_on == "gpu"
        for dtype in (np.float32, np.float64, np.int8) if on_gpu else (np.float32,):
            for length in (16, 32, 33) if on_gpu else (16, 33):
                a = rng.integers(-50, 50, (9, length)).astype(dtype)
                for other in (a[0], a[:, :1], a[:1, :1], a, a[::-1]):
                    x, y = cukern.asarray(a), cukern.asarray(np.ascontiguousarray(other))
                    wanted = (2 * (a - other)).astype(dtype)
                    np.testing.assert_array_equal(cukern.asnumpy(kernel(x, y)), wanted)
                    out = cukern.zeros((9, length + 16), dtype=dtype.__name__)
                    kernel(x, y, out[:, 16:])
                    np.testing.assert_array_equal(cukern.asnumpy(out[:, 16:]), wanted)
                    assert not cukern.asnumpy(out[:, :16]).any()
                    fortran = cukern.zeros((length, 9), dtype=dtype.__name__).T
                    kernel(x, y, fortran)
                    np.testing.assert_array_equal(cukern.asnumpy(fortran), wanted)

    def test_calls_that_repeat_use_other_memory(self) -> None:
        kernel = cukern.ElementwiseKernel("T x, T y", "T z", "z = x + y", "again")
        for i in range(5):
            x = cukern.full(100, float(i))
            assert (cukern.asnumpy(kernel(x, x)) == 2 * i).all()
            assert (cukern.asnumpy(kernel(x, i + 1)) == 2 * i + 1).all()
            assert (cukern.asnumpy(kernel(x, 0.5)) == i + 0.5).all()
        assert len(kernel._plans) == 3
        for n in range(1, 300):
            kernel(cukern.ones(n), 1.0)
        assert len(kernel._plans) <= 256

    def test_calls_that_repeat_run_no_python(self, monkeypatch: pytest.MonkeyPatch) -> None:
        kernel = cukern.ElementwiseKernel("T x, T y", "T z, int32 k", "z = x + y; k = i", "repeated", return_tuple=True)
        total = cukern.ReductionKernel("T x", "T y", "x", "a + b", "y = a", "0", "repeated_sum")
        x, out, k = cukern.arange(6.0), cukern.zeros(6), cukern.zeros(6, dtype="int32")
        calls = [
            lambda: kernel(x, x),
            lambda: kernel(x, 2),
            lambda: kernel(x, x, out, k),
            lambda: kernel(x, x, x, k),
            lambda: (total(x),),
            lambda: (total(x, axis=0, keepdims=True),),
            lambda: (total(x, out=out[0]),),
        ]
        first = [[cukern.asnumpy(each) for each in call()] for call in calls[:3] + calls[4:]]
        calls[3]()
        x[...] = np.arange(6.0)
        monkeypatch.setattr(kernel, "_call", None)
        monkeypatch.setattr(total, "_call", None)
        for call, wanted in zip(calls[:3] + calls[4:], first, strict=True):
            for given, values in zip(call(), wanted, strict=True):
                assert isinstance(given, cukern.Array)
                np.testing.assert_array_equal(cukern.asnumpy(given), values)
        assert kernel(x, x, out, k)[0] is out
        kernel(x, x, x, k)
        assert x.tolist() == [0, 2, 4, 6, 8, 10]
        for args in ((x, x.astype("float32")), (x[1:], x[1:], x[:-1], k[1:]), (x,)):  # refused the long way
            with pytest.raises(TypeError, match="not callable"):
                kernel(*args)

    def test_memory_that_begins_anywhere(self) -> None:
        kernel = cukern.ElementwiseKernel("T x", "T y", "y = 2 * x", "twice")
        base = np.arange(5000, dtype=np.float32)
        x = cukern.asarray(base)
        for begin in range(6):
            for n in (0, 1, 3, 4, 5, 4093):
                out = cukern.zeros(n + 8, dtype="float32")
                kernel(x[begin : begin + n], out[1 : n + 1])
                wanted = np.zeros(n + 8, np.float32)
                wanted[1 : n + 1] = 2 * base[begin : begin + n]
                np.testing.assert_array_equal(cukern.asnumpy(out), wanted)

    def test_reduce_dims(self) -> None:
        x = cukern.asarray(np.arange(24.0).reshape(4, 6))
        for reduce_dims in (True, False):
            kernel = cukern.ElementwiseKernel("T x, raw T r", "T y", "y = x + r[i]", "plus", reduce_dims=reduce_dims)
            np.testing.assert_array_equal(
                cukern.asnumpy(kernel(x.T, x)), cukern.asnumpy(x).T + cukern.asnumpy(x).reshape(6, 4)
            )

    def test_in_place_and_several_outputs(self) -> None:
        kernel = cukern.ElementwiseKernel("T x", "T y, int32 k", "y += x; k = i", "more", return_tuple=True)
        x, y, k = cukern.ones(1000), cukern.ones(1000), cukern.empty(1000, dtype="int32")
        returned = kernel(x, y, k)
        assert (returned[0] is y, returned[1] is k, len(returned)) == (True, True, 2)
        assert (cukern.asnumpy(y) == 2).all()
        assert (cukern.asnumpy(k) == np.arange(1000)).all()
        double = cukern.ElementwiseKernel("T x", "T y", "y = x + x", "doubled")
        double(x, x)
        assert (cukern.asnumpy(x) == 2).all()

    def test_jumps_loops_and_preambles(self) -> None:
        kernel = cukern.ElementwiseKernel(
            "T x",
            "T y",
            "if (x < 3) { y = -1; continue; } y = twice(x) + offset",
            "jump",
            preamble="__device__ double twice(double x) { return 2 * x; }",
            loop_prep="const double offset = 0.5",
            options=("-DUNUSED",),
        )
        x = np.arange(6.0)
        assert cukern.asnumpy(kernel(cukern.asarray(x))).tolist() == [-1, -1, -1, 6.5, 8.5, 10.5]

    def test_raw_arrays(self) -> None:
        kernel = cukern.ElementwiseKernel("raw T x", "raw T y", "y[i] = x[n - 1 - i] + x.size() + x.shape()[0]", "raw")
        base = np.arange(24.0).reshape(4, 6)
        x = cukern.asarray(base)
        y = cukern.zeros(12)
        kernel(x[::2], y, size=12)
        np.testing.assert_array_equal(cukern.asnumpy(y), base[::2].ravel()[::-1] + 14)
        with pytest.raises(ValueError, match="all arrays are raw; pass size="):
            kernel(x, y)
        with pytest.raises(ValueError, match="y is raw: pass it"):
            kernel(x, size=3)

    def test_kinds_of_results(self) -> None:
        kernel = cukern.ElementwiseKernel("T x", "T y", "y = x + 1", "inc")
        x = np.arange(5.0)
        result = kernel(x)
        assert type(result) is np.ndarray
        assert result.tolist() == [1, 2, 3, 4, 5]
        out = np.zeros(5)
        assert kernel(x, out) is out
        assert out.tolist() == [1, 2, 3, 4, 5]
        with pytest.raises(TypeError, match="some arrays are in host memory and some in device memory"):
            kernel(x, cukern.zeros(5))

    def test_host_arrays_of_each_kind(self) -> None:
        """As operations take them: what has a buffer gives NumPy's arrays, and outputs are written in place."""
        kernel = cukern.ElementwiseKernel("T x", "T y", "y = x + 1", "inc")
        total = cukern.ReductionKernel("T x", "T y", "x", "a + b", "y = a", "0", "total")
        fused = cukern.fuse(lambda x: (x + 1) * 2)
        values = array("d", [1, 2, 3])
        unaligned = memoryview(bytes(1) + values.tobytes())[1:].cast("d")
        for given in (values, memoryview(values), unaligned, np.array(unaligned)):
            result = kernel(given)
            assert type(result) is np.ndarray
            assert result.tolist() == [2, 3, 4]
            assert type(total(given)) is np.ndarray
            assert total(given).item() == 6
            assert np.asarray(fused(given)).tolist() == [4, 6, 8]
        assert kernel(np.array(values)[::-1]).tolist() == [4, 3, 2]
        assert kernel(np.array(5.0)).tolist() == 6
        assert kernel(memoryview(b"")).tolist() == []
        out = array("d", [0, 0, 0])
        assert kernel(values, out) is out
        assert out.tolist() == [2, 3, 4]
        view = memoryview(out)[:1]
        assert total(values, view, axis=0, keepdims=True) is view
        assert out.tolist() == [6, 3, 4]
        with pytest.raises(TypeError, match="inc: some arrays are in host memory and some in device memory"):
            kernel(values, cukern.zeros(3))
        with pytest.raises(TypeError, match="inc: x"):
            kernel([1.0, 2.0])

    def test_outputs_on_the_host(self) -> None:
        """Each is checked before anything runs, and one array is one copy on the device."""
        both = cukern.ElementwiseKernel("T x", "raw T y, raw T z", "y[2 * i] = x; z[2 * i + 1] = x + 1", "both")
        x, out = np.arange(3.0), np.full(6, -1.0)
        both(x, out, out)
        assert out.tolist() == [0, 1, 1, 2, 2, 3]
        with pytest.raises(ValueError, match="both: the outputs y and z overlap"):
            both(x, out, out[:5])
        two = cukern.ElementwiseKernel("T x", "T y, T z", "y = x; z = x + 1", "two")
        first = np.full(3, -1.0)
        for refused in (memoryview(bytes(24)).cast("d"), np.broadcast_to(np.zeros(1), 3)):
            with pytest.raises(ValueError, match="two: z is an output, and it is read-only"):
                two(x, first, refused)
        repeated = np.lib.stride_tricks.as_strided(np.zeros(1), (3,), (0,))
        with pytest.raises(ValueError, match="elements of z overlap each other"):
            two(x, first, repeated)
        assert first.tolist() == [-1, -1, -1]
        two(x, first, x)
        assert (first.tolist(), x.tolist()) == ([0, 1, 2], [1, 2, 3])

    def test_pinned_arrays_beside_host_arrays(self) -> None:
        """They go with both, and the first array decides what the result is."""
        add = cukern.ElementwiseKernel("T x, T y", "T z", "z = x + y", "add")
        host = np.arange(3.0)
        for memory in ("pinned", "managed"):
            own = cukern.ones(3, memory=memory)
            result = add(host, own)
            assert type(result) is np.ndarray
            assert result.tolist() == [1, 2, 3]
            result = add(own, host)
            assert isinstance(result, cukern.Array)
            assert result.memory == cukern.add(own, host).memory == memory
            assert cukern.asnumpy(result).tolist() == [1, 2, 3]
            out = cukern.zeros(3, memory=memory)
            assert add(host, own, out) is out
            assert cukern.asnumpy(out).tolist() == [1, 2, 3]

    def test_cpu_tensors(self) -> None:
        torch = pytest.importorskip("torch")
        kernel = cukern.ElementwiseKernel("T x", "T y", "y = x + T(1)", "inc")
        for dtype in (torch.float32, torch.bfloat16, torch.bool):
            tensor = torch.tensor([0, 1, 0]).to(dtype)
            result = kernel(tensor)
            assert isinstance(result, torch.Tensor)
            assert (result.device.type, result.dtype) == ("cpu", dtype)
            assert result.tolist() == [1, 1, 1] if dtype == torch.bool else result.tolist() == [1, 2, 1]
            out = torch.zeros(3, dtype=dtype)
            assert kernel(tensor, out) is out
            assert torch.equal(out, result)
        with pytest.raises(ValueError, match="overlap each other"):
            kernel(torch.zeros(3), torch.zeros(1).expand(3))

    def test_errors(self) -> None:
        kernel = cukern.ElementwiseKernel("float32 x, T y, T z", "T w", "w = x + y + z", "three")
        f, d = cukern.ones(3, dtype="float32"), cukern.ones(3)
        for args, error, message in [
            ((f, f), TypeError, "expected 3 inputs, or 4 with the outputs, got 2"),
            ((d, f, f), TypeError, "x has element type float64, not float32"),
            ((f, f, d), TypeError, "z has element type float64, and T is float32"),
            ((f, f, f, cukern.ones(4, dtype="float32")), ValueError, "do not broadcast"),
            ((f, f, f, 3), TypeError, "w is an output: expected an array"),
            ((f, cukern.ones(4, dtype="float32"), f), ValueError, re.escape("(3,), (4,), (3,)")),
        ]:
            with pytest.raises(error, match=message):
                kernel(*args)
        with pytest.raises(ValueError, match="w has shape"):
            kernel(f, f, f, f[:1])
        with pytest.raises(ValueError, match="elements of w overlap"):
            kernel(f, f, f, cukern.broadcast_to(f[:1], (3,)))

    def test_outputs_that_overlap(self) -> None:
        kernel = cukern.ElementwiseKernel("T x", "T y, T z", "y = x; z = 2 * x", "both")
        raw = cukern.ElementwiseKernel("raw T x", "T y", "y = x[i]", "raw_copy")
        x = cukern.arange(12.0)
        other = cukern.empty(6)
        for given, out in ((x[1:7], x[:6]), (x[:6], x[:6][::-1]), (x[::2], x[:6]), (x[:6], x[5:11])):
            for _ in range(2):  # no plan is kept for another call
                with pytest.raises(ValueError, match="both: y overlaps x in part"):
                    kernel(given, out, other)
            with pytest.raises(ValueError, match="both: y overlaps z in part"):
                kernel(cukern.zeros(6), given, out)
            raw(given, out)
        x = cukern.arange(12.0)
        kernel(x[::2], x[::2], x[1::2])
        assert cukern.asnumpy(x).tolist() == [0, 0, 2, 4, 4, 8, 6, 12, 8, 16, 10, 20]
        host = np.arange(6.0)  # whose device copies do not overlap
        kernel(host[1:4], host[:3], np.empty(3))
        assert host.tolist() == [1, 2, 3, 3, 4, 5]

    def test_scalars_alone(self) -> None:
        kernel = cukern.ElementwiseKernel("T x, T y", "T z", "z = x + y", "scalars")
        assert kernel(2, 3).item() == 5
        assert str(kernel(2, 3).dtype) == "int64"
        assert kernel(np.float32(2), 3).dtype == np.float32
        assert kernel(2.5, 3).item() == 5.5


@pytest.mark.gpu
def test_results_of_other_libraries() -> None:
    use("cuda")
    kernel = cukern.ElementwiseKernel("T x", "T y", "y = x + 1", "inc")
    torch = pytest.importorskip("torch")
    result = kernel(torch.arange(5.0, device="cuda"))
    assert isinstance(result, torch.Tensor)
    assert result.tolist() == [1, 2, 3, 4, 5]
    cupy = pytest.importorskip("cupy")
    result = kernel(cupy.arange(5.0))
    assert isinstance(result, cupy.ndarray)
    assert result.tolist() == [1, 2, 3, 4, 5]


@pytest.mark.gpu
def test_errors_of_the_compiler_and_of_numbers() -> None:
    use("cuda")
    f = cukern.ones(3, dtype="float32")
    with pytest.raises(cukern.CompileError, match="nonsense"):
        cukern.ElementwiseKernel("T x", "T y", "y = nonsense", "bad")(f)
    with pytest.raises((TypeError, OverflowError)):
        cukern.ElementwiseKernel("int8 x", "T y", "y = x", "narrow")(300, f)
