"""Kernels of formulas on arrays of the host that are larger than the device's memory: cut into pieces."""

from __future__ import annotations

import array
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from arrays import layouts
from interchange_tools import QUIET, bring

import cukern
from cukern import _host_pieces
from cukern._formula_argument import Argument
from cukern._host_pieces import Cut, Space, choose_cut

pytestmark = pytest.mark.usefixtures("backend")


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_host_pieces, "PIECE_BYTES", 1 << 12)
    monkeypatch.setattr(_host_pieces, "LEAST_BYTES", 0)
    monkeypatch.setattr(_host_pieces, "LEAST_PIECE", 1)


def arguments(*values: Any) -> list[Argument | None]:
    return [None if value is None else Argument(value) for value in values]


def space(*shape: int) -> Space:
    return Space(shape, {d: d for d in range(len(shape))}, shape)


@pytest.mark.usefixtures("small_pieces")
class TestCuts:
    def test_the_first_dimension_that_is_long_enough(self) -> None:
        x = np.zeros((2, 100, 100), np.float32)
        cut = choose_cut(arguments(x, None), 1, ["float32"], space(*x.shape))
        assert cut is not None
        assert (cut.axis, cut.length) == (1, 2)  # 160,000 bytes in pieces of 4096
        pieces = list(cut.pieces())
        assert sum(piece.stop - piece.start for piece in pieces) == 100
        np.testing.assert_array_equal(cut.part(x, pieces[1]), x[:, 2:4])

    def test_the_longest_where_none_is(self) -> None:
        cut = choose_cut(arguments(np.zeros((2, 3)), None), 1, ["complex128"], space(2, 3))
        assert cut is None  # too small
        cut = choose_cut(arguments(np.zeros((2, 3, 4000)), None), 1, ["float64"], space(2, 3, 4000))
        assert cut is not None and cut.axis == 2

    def test_broadcast_operands(self) -> None:
        cut = Cut(space(10, 20), 0, 3)
        assert cut.is_cut((10, 20)) and cut.is_cut((10, 1))
        assert not cut.is_cut((1, 20)) and not cut.is_cut((20,)) and not cut.is_cut(())
        cut = Cut(space(10, 20), 1, 3)
        assert cut.is_cut((20,)) and not cut.is_cut((10, 1))

    def test_what_is_not_cut(self) -> None:
        x = np.zeros(10_000)
        assert choose_cut(arguments(x, x), 1, [], space(10_000)) is not None  # in place
        assert choose_cut(arguments(x[1:], x[:-1]), 1, [], space(9_999)) is None  # writes what later pieces read
        assert choose_cut(arguments(x, np.zeros(())), 1, [], Space((10_000,), {}, ())) is None
        own = cukern.asarray(x, memory="pinned")
        assert choose_cut(arguments(own, None), 1, ["float64"], space(10_000)) is None  # no array of the host

    def test_what_has_a_buffer(self) -> None:
        cut = Cut(space(6), 0, 4)
        for value in (array.array("d", range(6)), bytes(range(6)), bytearray(range(6)), np.arange(6).data):
            parts = [cut.part(value, piece) for piece in cut.pieces()]
            assert [part.tolist() for part in parts] == [[0, 1, 2, 3], [4, 5]]

    def test_what_has_dlpack_alone(self) -> None:
        class Exporter:
            def __init__(self, values: np.ndarray) -> None:
                self.values = values

            def __dlpack__(self, **given: Any) -> Any:
                return self.values.__dlpack__(**given)

            def __dlpack_device__(self) -> Any:
                return self.values.__dlpack_device__()

        x = np.arange(10_000.0)
        cut = choose_cut(arguments(Exporter(x), None), 1, ["float64"], space(10_000))
        assert cut is not None
        np.testing.assert_array_equal(cut.part(Exporter(x), slice(3, 7)), x[3:7])

    def test_operands_that_all_pieces_share(self) -> None:
        """The dimension is one that cuts what is large."""
        long, short = np.zeros((1, 2000)), np.zeros((30, 1))
        cut = choose_cut(arguments(long, short, None), 2, ["float64"], space(30, 2000))
        assert cut is not None and cut.axis == 1
        assert cut.length == (4096 - 240) * 2000 // (16_000 + 480_000)

    def test_outputs_that_are_read_again_or_overlap(self) -> None:
        x, y = np.zeros((1, 100)), np.zeros((100, 100))
        of_rows = Space((100, 100), {0: 0}, (100,))
        assert choose_cut(arguments(y, x[0]), 1, [], of_rows) is not None
        assert choose_cut(arguments(y, x, x[0]), 2, [], of_rows) is None  # the output is what all pieces read
        own = cukern.asarray(np.zeros(15_000), memory="pinned")
        z = np.zeros(10_000)
        assert choose_cut(arguments(z, own[:10_000], own[5_000:]), 1, [], space(10_000)) is None

    def test_no_room(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Pieces are never tiny: where they don't fit in, the call is out of memory."""
        monkeypatch.setattr(_host_pieces, "LEAST_PIECE", 1 << 12)
        x = np.zeros(1 << 14)
        cukern.set_memory_limit(1)
        try:
            cut = choose_cut(arguments(x, x), 1, [], space(1 << 14))
        finally:
            cukern.set_memory_limit(None)
        assert cut is not None and cut.length == 1 << 8

    @pytest.mark.parametrize(
        ("operation", "given"),
        [
            ("z = x + i", {}),
            ("z = x / n", {}),
            ("z = x / _ind.size()", {}),
            ("z = x * inv", {"loop_prep": "T inv = T(1) / n;"}),
            ("z = f(x)", {"preamble": "__device__ double f(double x) { return x; }"}),
        ],
    )
    def test_formulas_that_ask_for_counts(self, operation: str, given: dict[str, str]) -> None:
        kernel = cukern.ElementwiseKernel("T x", "T z", operation, **given)
        assert (kernel._space(arguments(np.zeros(9), None)) is None) == ("preamble" not in given)

    def test_reductions_that_ask_for_counts(self) -> None:
        for post, is_cut in (("y = a", True), ("y = a / _in_ind.size()", False), ("y = a * _i", False)):
            kernel = cukern.ReductionKernel("T x", "T y", "x", "a + b", post, "0", "mean_of")
            assert (kernel._space(arguments(np.zeros((9, 9)), None), 0, False) is not None) == is_cut

    def test_the_room_that_there_is(self) -> None:
        assert _host_pieces.PIECE_BYTES == 1 << 12
        x = np.zeros(1 << 14)
        before = choose_cut(arguments(x, x), 1, [], space(1 << 14))
        assert before is not None and before.length == 1 << 8
        cukern.set_memory_limit(cukern.memory_info()["in_use"] + (1 << 12))
        try:
            cut = choose_cut(arguments(x, x), 1, [], space(1 << 14))
        finally:
            cukern.set_memory_limit(None)
        assert cut is not None and cut.length == 1 << 6  # a quarter of it


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["cuda"], indirect=True)
@pytest.mark.usefixtures("small_pieces")
@QUIET[0]
class TestOnTheGPU:
    @pytest.fixture(autouse=True)
    def counted(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """Return the numbers of pieces of the calls."""
        counts: list[int] = []
        pieces = Cut.pieces

        def counting(cut: Cut) -> Any:
            found = list(pieces(cut))
            counts.append(len(found))
            return iter(found)

        monkeypatch.setattr(Cut, "pieces", counting)
        return counts

    def test_layouts_and_broadcasting(self, counted: list[int], rng: np.random.Generator) -> None:
        kernel = cukern.ElementwiseKernel("T x, T y, T s", "T z, int32 sign", "z = x * y + s; sign = x > y", "two")
        for shape in ((3000,), (40, 70), (2, 3, 500), (70, 1, 40)):
            for x in layouts(rng, shape, np.dtype("f4")).values():
                for other in (shape, shape[-1:], (*shape[:-1], 1), (1,) * len(shape)):
                    y = rng.standard_normal(other).astype("f4")
                    z, sign = kernel(x, y, 0.5)
                    wanted = np.broadcast_arrays(x, y)
                    np.testing.assert_allclose(z, wanted[0] * wanted[1] + np.float32(0.5), rtol=1e-5, atol=1e-5)
                    np.testing.assert_array_equal(sign, wanted[0] > wanted[1])
        assert max(counted) > 3

    def test_outputs_that_are_given(self, counted: list[int], rng: np.random.Generator) -> None:
        kernel = cukern.ElementwiseKernel("T x", "T y", "y = y * 2 + x", "twice_and_more")
        x, y = rng.standard_normal((60, 50)), rng.standard_normal((60, 50))
        for out in layouts(rng, (60, 50), np.dtype("f8")).values():
            if not out.flags.writeable or 0 in out.strides or out.shape != x.shape:
                continue
            out[...] = y
            assert kernel(x, out) is out
            np.testing.assert_allclose(out, 2 * y + x)
        assert kernel(x, x) is x
        assert min(counted) > 1
        own = cukern.zeros(4500, memory="pinned")
        two = cukern.ElementwiseKernel("T x", "T y, T z", "y = x; z = x", "two_outputs")
        with pytest.raises(ValueError, match="y overlaps z in part"):
            two(np.zeros(3000), own[:3000], own[1500:])
        with pytest.raises(ValueError, match="do not broadcast"):
            kernel(x, np.empty((60, 51)))

    def test_kinds_of_arrays(self, counted: list[int]) -> None:
        kernel = cukern.ElementwiseKernel("T x", "T y", "y = x + x", "double_")
        values = np.arange(5000.0)
        torch = bring("torch")
        for x in (values, array.array("d", values), memoryview(values), torch.from_numpy(values.copy())):
            y = kernel(x)
            assert type(y) is (torch.Tensor if isinstance(x, torch.Tensor) else np.ndarray)
            np.testing.assert_array_equal(np.asarray(y), 2 * values)
        add = cukern.ElementwiseKernel("T x, T y", "T z", "z = x + y", "add_two")
        for memory in ("pinned", "managed"):
            own = cukern.asarray(values, memory=memory)
            z = add(own, values)
            assert type(z) is cukern.Array and z.memory == memory
            np.testing.assert_array_equal(cukern.asnumpy(z), 2 * values)
        half = torch.arange(5000).to(torch.bfloat16)
        assert torch.equal(kernel(half), half + half)
        assert len(counted) == 7 and min(counted) > 1

    def test_what_needs_the_whole(self, counted: list[int]) -> None:
        x = np.arange(5000.0)
        index = cukern.ElementwiseKernel("T x", "T y", "y = x + i", "with_index")
        np.testing.assert_array_equal(index(x), 2 * x)
        raw = cukern.ElementwiseKernel("raw T x, T y", "T z", "z = x[4999 - i] + y", "with_raw")
        np.testing.assert_array_equal(raw(x, x), np.full(5000, 4999.0))
        shifted = cukern.ElementwiseKernel("T x", "T y", "y = x", "shift")
        wanted = np.concatenate([x[:1], x[:-1]])
        shifted(x[:-1], x[1:])
        np.testing.assert_array_equal(x, wanted)
        assert not counted

    def test_reductions(self, counted: list[int], rng: np.random.Generator) -> None:
        norm = cukern.ReductionKernel("T x, T y", "T z", "x * y", "a + b", "z = a", "0", "dot_of")
        x, y = rng.standard_normal((30, 40, 20)), rng.standard_normal((40, 1))
        cases: list[tuple[Any, bool]] = [(0, False), ((0, 2), True), (-1, False), ((1, 2), True), (1, True)]
        for axis, keepdims in cases:
            wanted = (x * y).sum(axis=axis, keepdims=keepdims)
            np.testing.assert_allclose(norm(x, y, axis=axis, keepdims=keepdims), wanted)
            out = np.empty(wanted.shape)
            assert norm(x, y, out=out, axis=axis, keepdims=keepdims) is out
            np.testing.assert_allclose(out, wanted)
        assert len(counted) == 10 and min(counted) > 1
        np.testing.assert_allclose(norm(x, y), (x * y).sum())
        assert len(counted) == 10  # one result is not cut

    def test_fused_functions(self, counted: list[int], rng: np.random.Generator) -> None:
        functions: list[Callable[..., Any]] = [
            lambda x, y: (x - y) * 2 + x,
            lambda x, y: (cukern.sqrt(abs(x)), x < y),
            lambda x, y: abs(x - y).sum(axis=0) / 2,
            lambda x, y: (x * y).var(axis=(0, 1)),
        ]
        x, y = rng.standard_normal((20, 30, 15)), rng.standard_normal((30, 15))
        for function in functions:
            found, wanted = cukern.fuse(function)(x, y), function(x, y)
            for one, other in zip(
                found if isinstance(found, tuple) else (found,),
                wanted if isinstance(wanted, tuple) else (wanted,),
                strict=True,
            ):
                assert type(one) is np.ndarray
                np.testing.assert_allclose(one, cukern.asnumpy(other) if isinstance(other, cukern.Array) else other)
        assert len(counted) == 4 and min(counted) > 1

    def test_beyond_the_memory_limit(self, monkeypatch: pytest.MonkeyPatch, counted: list[int]) -> None:
        monkeypatch.undo()
        kernel = cukern.ElementwiseKernel("T x, T y", "T z", "z = x * y", "product_of")
        x = np.arange(1 << 20, dtype=np.float32)
        cukern.empty_cache()
        cukern.set_memory_limit(cukern.memory_info()["in_use"] + (1 << 20))  # a twelfth of the arrays
        try:
            np.testing.assert_array_equal(kernel(x, x), x * x)
            out = np.empty_like(x)
            kernel(x, x, out)
            np.testing.assert_array_equal(out, x * x)
        finally:
            cukern.set_memory_limit(None)
            cukern.empty_cache()

    def test_an_error_among_the_pieces(self, counted: list[int]) -> None:
        kernel = cukern.ElementwiseKernel("T x", "T y", "y = x + x", "double_again")
        x = np.arange(5000.0)
        kernel(x)
        before = cukern.memory_info()["in_use"]
        cukern._cukern._inject_fault("launch", 2)
        with pytest.raises(cukern.CudaError, match="injected by a test"):
            kernel(x)
        np.testing.assert_array_equal(kernel(x), 2 * x)
        assert cukern.memory_info()["in_use"] == before
