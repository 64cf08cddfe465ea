"""Operands that lie otherwise than the result: rows, columns, steps, transposed, of every width that kernels know."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from arrays import VIEWS, random_array
from cases import each
from conftest import SMALL, takes_few, use
from oracles import assert_result, refusal

import cukern
from cukern import _cukern

pytestmark = pytest.mark.usefixtures("backend")

TYPES = ["float32", "float64", "float16", "int32", "int64", "int8", "complex128"]
SHAPES = [(70, 130), (64, 64), (3, 1001), (1001, 3), (9, 600), (600, 9), (17, 33), (2, 5), (1, 300), (300, 1)]


def make(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, view: str) -> tuple[np.ndarray, cukern.Array]:
    """Return an ndarray of a shape and an Array of the same elements, which lie as the view says."""
    memory, of = VIEWS[view]
    base = random_array(rng, memory(*shape), np.dtype(dtype))
    return of(base), of(cukern.asarray(base))


def compare(name: str, a: tuple[np.ndarray, cukern.Array], b: tuple[np.ndarray, cukern.Array]) -> None:
    """Compare fresh results, and those in packed memory."""
    function = getattr(cukern, name)
    assert_result(cukern.asnumpy(function(a[1], b[1])), name, a[0], b[0])
    out = cukern.empty(np.broadcast_shapes(a[0].shape, b[0].shape), dtype=function(a[1], b[1]).dtype)
    assert function(a[1], b[1], out=out) is out
    assert_result(cukern.asnumpy(out), name, a[0], b[0])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("view", VIEWS)
def test_two_operands(view: str, dtype: str, rng: np.random.Generator) -> None:
    for shape in SHAPES[:4] if SMALL else SHAPES:
        a, b = make(rng, shape, dtype, "packed"), make(rng, shape, dtype, view)
        compare("add", a, b)
        compare("subtract", b, a)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("other", ["transposed", "row", "column", "every second column", "wider"])
def test_both_operands(view: str, other: str, rng: np.random.Generator) -> None:
    for shape in ((70, 130), (3, 257), (257, 12)):
        a, b = make(rng, shape, "float32", view), make(rng, shape, "float32", other)
        compare("multiply", a, b)
        compare("divide", b, a)
        compare("maximum", a, b)


@pytest.mark.parametrize("view", VIEWS)
@each("dtype", [*TYPES, "bool", "uint16", "complex64"])
def test_copies(view: str, dtype: str, rng: np.random.Generator) -> None:
    for shape in SHAPES[:4] if SMALL else SHAPES:
        wanted, a = make(rng, shape, dtype, view)
        out = cukern.empty(shape, dtype=dtype)
        cukern.copyto(out, a)
        np.testing.assert_array_equal(cukern.asnumpy(out), np.broadcast_to(wanted, shape))
        # And out of packed memory into the view.
        if view in ("row", "column", "number"):
            continue
        source, (_, target) = random_array(rng, shape, np.dtype(dtype)), make(rng, shape, dtype, view)
        cukern.copyto(target, cukern.asarray(source))
        np.testing.assert_array_equal(cukern.asnumpy(target), source)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
def test_more_dimensions(dtype: str, rng: np.random.Generator) -> None:
    for shape, axes in (
        ((5, 40, 30), (0, 2, 1)),
        ((40, 5, 30), (2, 1, 0)),
        ((30, 40, 5), (1, 2, 0)),
        ((3, 4, 20, 30), (1, 0, 3, 2)),
        ((3, 20, 4, 30), (3, 0, 2, 1)),
        ((2, 3, 4, 5, 6), (4, 3, 2, 1, 0)),
    ):
        base = random_array(rng, shape, np.dtype(dtype))
        b = (base.transpose(axes), cukern.asarray(base).transpose(axes))
        other = random_array(rng, b[0].shape, np.dtype(dtype))
        compare("add", (other, cukern.asarray(other)), b)
        row = random_array(rng, b[0].shape[-1:], np.dtype(dtype))
        compare("add", b, (row, cukern.asarray(row)))
        middle = random_array(rng, (b[0].shape[-2], 1), np.dtype(dtype))
        compare("subtract", (middle, cukern.asarray(middle)), (other, cukern.asarray(other)))


@pytest.mark.parametrize("view", [view for view in VIEWS if view not in ("row", "column", "number")])
def test_in_place(view: str, rng: np.random.Generator) -> None:
    """The result goes into an operand, packed or not."""
    for shape in ((70, 130), (3, 257), (257, 12)):
        for other in ("transposed", "row", "column", "wider"):
            (a, x), (b, y) = make(rng, shape, "float32", view), make(rng, shape, "float32", other)
            wanted = a + b
            assert cukern.add(x, y, out=x) is x
            np.testing.assert_array_equal(cukern.asnumpy(x), wanted)
            wanted = b - wanted
            cukern.subtract(y, x, out=x)
            np.testing.assert_array_equal(cukern.asnumpy(x), wanted)


def test_many_small_matrices(rng: np.random.Generator) -> None:
    for shape in ((500, 16, 16), (500, 3, 20), (50, 40, 33)):
        base = random_array(rng, shape, np.dtype("float32"))
        b = (base.swapaxes(1, 2), cukern.asarray(base).transpose(0, 2, 1))
        other = random_array(rng, b[0].shape, np.dtype("float32"))
        compare("add", (other, cukern.asarray(other)), b)


def test_bfloat16(rng: np.random.Generator) -> None:
    for shape in ((70, 130), (3, 1001), (1001, 9)):
        for view in VIEWS:
            small = rng.integers(-8, 9, VIEWS[view][0](*shape)).astype(np.float32)  # whose sums are exact
            other = rng.integers(-8, 9, shape).astype(np.float32)
            a = VIEWS[view][1](cukern.asarray(small, dtype="bfloat16"))
            for name in ("add", "subtract", "multiply"):
                result = getattr(cukern, name)(a, cukern.asarray(other, dtype="bfloat16"))
                assert result.dtype == "bfloat16"
                wanted = getattr(np, name)(VIEWS[view][1](small), other)
                np.testing.assert_array_equal(cukern.asnumpy(result.astype("float32")), wanted)


def test_long_rows(rng: np.random.Generator) -> None:
    """Rows that caches do not hold: blocks go through them side by side."""
    n = 1 << 18 if takes_few() else (1 << 20) + 77
    for rows in (2, 3, 5):
        a, row = random_array(rng, (rows, n), np.dtype("float64")), random_array(rng, (n,), np.dtype("float64"))
        compare("add", (a, cukern.asarray(a)), (row, cukern.asarray(row)))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int16", "complex64"])
def test_few_rows(backend: str, dtype: str, rng: np.random.Generator) -> None:
    """Interleaved rows: widths around those of vectors, and of the columns that a block takes."""
    for rows in (2, 3, 8, 33, 49) if SMALL or backend != "cuda" else (*range(2, 10), 16, 33, 47, 48, 49):
        for columns in (63, 64, 67, 1000, 8191):
            wanted, a = make(rng, (rows, columns), dtype, "transposed")
            out = cukern.empty((rows, columns), dtype=dtype)
            cukern.copyto(out, a)
            np.testing.assert_array_equal(cukern.asnumpy(out), wanted)
            b = make(rng, (rows, columns), dtype, "packed")
            compare("add", (wanted, a), b)
            compare("subtract", b, (wanted, a))
            three = np.asarray(3, dtype)
            cukern.multiply(a, 3, out=out)
            np.testing.assert_array_equal(cukern.asnumpy(out), wanted * three)
            cukern.subtract(3, a, out=out)
            np.testing.assert_array_equal(cukern.asnumpy(out), three - wanted)
            cukern.add(a, a, out=out)  # two that are interleaved, and one below beside one that is wider
            np.testing.assert_array_equal(cukern.asnumpy(out), wanted + wanted)
            compare("add", (wanted, a), make(rng, (rows, columns), dtype, "wider"))
            # Memory that no vector begins with.
            base = random_array(rng, (rows * columns + 1,), np.dtype(dtype))
            shifted = (base[1:].reshape(columns, rows).T, cukern.asarray(base)[1:].reshape(columns, rows).T)
            compare("add", shifted, b)


@pytest.mark.parametrize("gap", [0, 1, 5])
@pytest.mark.parametrize("start", [0, 1, 3])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int16", "complex128"])
def test_tiles(dtype: str, start: int, gap: int, rng: np.random.Generator) -> None:
    """Transposed operands: sides around those of a block's tile, memory that begins and goes on in mid-vector."""
    sides = [(50, 70), (64, 128), (65, 129)]
    if not takes_few():
        sides += [(63, 127), (128, 64), (200, 9), (700, 17), (49, 15), (97, 300)]

    def lie(a: Any, shape: tuple[int, ...], begin: int) -> Any:
        """Return a view of one-dimensional memory: rows with a gap behind each."""
        rows, columns = shape
        return a[begin : begin + rows * (columns + gap)].reshape(rows, columns + gap)[:, :columns]

    def both(shape: tuple[int, ...], begin: int) -> tuple[np.ndarray, cukern.Array]:
        base = random_array(rng, (begin + shape[0] * (shape[1] + gap),), np.dtype(dtype))
        return lie(base, shape, begin), lie(cukern.asarray(base), shape, begin)

    for rows, columns in sides:
        wanted, x = (each.T for each in both((columns, rows), start))
        for target in (cukern.empty((rows, columns), dtype=dtype), both((rows, columns), 2)[1]):
            cukern.copyto(target, x)
            np.testing.assert_array_equal(cukern.asnumpy(target), wanted)
            cukern.copyto(target, x[:, ::-1])
            np.testing.assert_array_equal(cukern.asnumpy(target), wanted[:, ::-1])
            others = [both((rows, columns), 2), both((rows, columns), start + 1)]
            others += [tuple(each.T for each in both((columns, rows), 1)), both((1, columns), 0), both((rows, 1), 0)]
            for other, y in others:
                cukern.subtract(x, y, out=target)
                np.testing.assert_array_equal(cukern.asnumpy(target), wanted - other)
                cukern.subtract(y, x, out=target)
                np.testing.assert_array_equal(cukern.asnumpy(target), other - wanted)
            cukern.subtract(7, x, out=target)
            np.testing.assert_array_equal(cukern.asnumpy(target), np.asarray(7, dtype) - wanted)
            cukern.add(x, target, out=target)
            np.testing.assert_array_equal(cukern.asnumpy(target), wanted + (np.asarray(7, dtype) - wanted))


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8"])
def test_tiles_of_many_matrices(dtype: str, rng: np.random.Generator) -> None:
    """More dimensions than two, each matrix beginning elsewhere in a vector."""
    for shape, axes in (((3, 67, 51), (0, 2, 1)), ((5, 3, 49, 65), (1, 0, 3, 2)), ((49, 7, 65), (2, 1, 0))):
        base = random_array(rng, shape, np.dtype(dtype))
        wanted, x = base.transpose(axes), cukern.asarray(base).transpose(axes)
        out = cukern.empty(wanted.shape, dtype=dtype)
        cukern.copyto(out, x)
        np.testing.assert_array_equal(cukern.asnumpy(out), wanted)
        other = random_array(rng, wanted.shape, np.dtype(dtype))
        compare("subtract", (other, cukern.asarray(other)), (wanted, x))


def spread(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, order: tuple[int, ...]) -> Any:
    """Return arrays of a shape, NumPy's and ours, whose dimensions lie in an order, with gaps behind the last one."""
    lies = [shape[d] for d in order]
    lies[-1] += 3
    back = np.argsort(order)
    base = random_array(rng, tuple(lies), np.dtype(dtype))
    return base[..., :-3].transpose(back), cukern.asarray(base)[..., :-3].transpose(back)


SIDES = [1, 2, 3, 7, 11, 12, 16, 17, 24, 25, 31, 32, 33, 65, 100, 130]


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64", "complex64", "complex128"])
def test_tiles_of_strided_operands(dtype: str, rng: np.random.Generator) -> None:
    """Operands that lie in another order than a result that is not packed: sides around those of tiles, and lines so
    short that tiles lie along the result's last dimension.
    """
    sides = SIDES[2::4] if takes_few() else SIDES
    for rows, columns in itertools.product(sides, sides):
        shape = (rows, max(columns, -(-1024 // rows)) if rows < 12 else columns)
        for order in ((1, 0), (0, 1)):
            a, x = spread(rng, shape, dtype, order[::-1])
            b, y = spread(rng, shape, "int8", order)
            out = spread(rng, shape, dtype, order)[1]
            cukern.subtract(x, y, out=out)
            np.testing.assert_array_equal(cukern.asnumpy(out), (a - b.astype(dtype)).astype(dtype))
            cukern.where(y, x, out, out=out)
            np.testing.assert_array_equal(cukern.asnumpy(out), np.where(b != 0, a, a - b.astype(dtype)))


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64", "complex64"])
def test_tiles_of_more_dimensions(dtype: str, rng: np.random.Generator) -> None:
    """The same of up to five dimensions in many orders, and of so many elements that threads have several."""
    shapes = [(2, 3, 200), (7, 33, 17), (3, 2, 11, 40), (5, 2, 3, 2, 130)]
    shapes += [(5, 20_011), (2, 3, 40_013), (33, 2500), (3, 7, 9001), (9, 8009), (4, 70_003)]
    for shape in [*shapes[:4:2], *shapes[4:6]] if takes_few() else shapes:
        orders = [*itertools.permutations(range(len(shape)))]
        for number, order in enumerate(orders[:: max(1, len(orders) // 12)]):
            a, x = spread(rng, shape, dtype, order)
            b, y = spread(rng, shape, dtype, orders[-1 - number])
            out = spread(rng, shape, dtype, orders[number // 2])[1]
            cukern.add(x, y, out=out)
            np.testing.assert_array_equal(cukern.asnumpy(out), a + b)
            result = cukern.exp(x)
            into = spread(rng, shape, str(result.dtype), orders[-1 - number // 3])[1]
            assert cukern.exp(x, out=into) is into
            assert_result(cukern.asnumpy(into), "exp", a)
            np.testing.assert_array_equal(cukern.asnumpy(result), cukern.asnumpy(into))


class Shifted:
    """Device memory as complex numbers that begin at the second part of one."""

    def __init__(self, memory: cukern.Array, shape: tuple[int, ...], dtype: str) -> None:
        self.memory = memory
        pointer = memory.__cuda_array_interface__["data"][0]
        self.__cuda_array_interface__ = {
            "shape": shape,
            "typestr": np.dtype(dtype).str,
            "data": (pointer + np.dtype(dtype).itemsize // 2, False),
            "version": 3,
        }


def converted(x: np.ndarray, target: str) -> np.ndarray:
    """Return elements as another type: of complex ones the real parts, without NumPy's warning."""
    return (x.real if x.dtype.kind == "c" and target not in ("bool", "complex64", "complex128") else x).astype(target)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_numbers_that_begin_at_a_part(dtype: str, rng: np.random.Generator) -> None:
    use("cuda")
    for shape in ((64, 70), (3, 200), (200, 3), (100, 100), (1, 1_200_000)):
        parts = rng.random(2 * shape[0] * shape[1] + 1).astype(np.finfo(dtype).dtype)
        wanted = parts[1:].view(dtype).reshape(shape)
        a = cukern.asarray(Shifted(cukern.asarray(parts), shape, dtype))
        out = cukern.empty(shape[::-1], dtype=dtype)
        cukern.copyto(out, a.T)
        np.testing.assert_array_equal(cukern.asnumpy(out), wanted.T)
        cukern.copyto(a.T, out)
        np.testing.assert_array_equal(cukern.asnumpy(a), wanted)
        np.testing.assert_array_equal(cukern.asnumpy(cukern.add(a.T, out)), wanted.T + wanted.T)
        for other in ("complex64", "complex128", "float32", "int16", "bool"):
            x = (wanted.T.real > 0.5).astype(other)
            sums = cukern.asnumpy(cukern.add(cukern.asarray(x), a.T))
            np.testing.assert_array_equal(sums, np.add(x, wanted.T))
            where = cukern.where(a.T, cukern.asarray(x), a.T)
            np.testing.assert_array_equal(cukern.asnumpy(where), np.where(wanted.T != 0, x, wanted.T))
        one = np.array(3 + 4j, dtype)
        of_part = cukern.asarray(Shifted(cukern.asarray(np.array([0, 3, 4], parts.dtype)), (), dtype))
        assert_result(cukern.asnumpy(cukern.divide(a, of_part)), "divide", wanted, one)
        assert_result(cukern.asnumpy(cukern.divide(of_part, out)), "divide", one, wanted.T)
        assert_result(cukern.asnumpy(cukern.reciprocal(a)), "reciprocal", wanted)
        for target in ("complex64", "complex128", "float32", "bool"):
            np.testing.assert_array_equal(
                cukern.asnumpy(a.reshape(-1).astype(target)), converted(wanted.ravel(), target)
            )


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "int8"])
def test_few_rows_at_the_end_of_a_block(dtype: str, rng: np.random.Generator) -> None:
    """Widths around those that blocks take, also in place."""
    size = 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize
    vector = 16 // size
    for rows in (3, 48) if SMALL else (3, 4, 7, 8, 13, 48):
        block = (1024 - rows) // rows * vector
        for columns in range(2 * block - vector, 2 * block + vector + 1, 1 if vector < 8 else 3):
            values = rng.integers(-8, 9, (columns, rows)).astype(np.float32)  # whose sums are exact
            other = rng.integers(-8, 9, (rows, columns)).astype(np.float32)
            a, b = cukern.asarray(values, dtype="float32").astype(dtype).T, cukern.asarray(other).astype(dtype)
            out = cukern.empty((rows, columns), dtype=dtype)
            cukern.copyto(out, a)
            np.testing.assert_array_equal(cukern.asnumpy(out.astype("float32")), values.T)
            cukern.subtract(a, b, out=b)
            np.testing.assert_array_equal(cukern.asnumpy(b.astype("float32")), values.T - other)


# One of each group of operations that share a kernel (device/elementwise/groups.cuh).
BY_GROUP = ["add", "maximum", "negative", "less", "isnan", "sqrt", "divide", "abs", "bitwise_xor", "logical_and"]


@pytest.mark.parametrize("name", BY_GROUP)
@each("dtype", [*TYPES, "bool", "uint16", "complex64"])
def test_rows_that_begin_anywhere(name: str, dtype: str, rng: np.random.Generator) -> None:
    """A vector of 16 bytes is read from the two that hold it, but at the ends of a row."""
    function, vector = getattr(cukern, name), 16 // np.dtype(dtype).itemsize
    for begin in range(0, vector + 1, 3 if vector > 8 else 1):
        for length in (vector - 1, 2 * vector + 1, 3 * vector, 5 * vector + 2):
            if length == 0:
                continue
            base = random_array(rng, (3, begin + length + 2), np.dtype(dtype))
            a, b = base[:, begin : begin + length], random_array(rng, (3, length), np.dtype(dtype))
            own = [cukern.asarray(base)[:, begin : begin + length], cukern.asarray(b)]
            if refusal(name, *[a, b][: arity_of(name)]) is not None:
                return
            assert_result(cukern.asnumpy(function(*own[: arity_of(name)])), name, *[a, b][: arity_of(name)])


def arity_of(name: str) -> int:
    """Return how many operands a function takes."""
    return 1 if name in ("negative", "isnan", "sqrt", "abs") else 2


@pytest.mark.parametrize(
    "source", ["bool", "int8", "uint16", "int32", "uint64", "float16", "float32", "complex64", "complex128"]
)
def test_packed_conversions(source: str, rng: np.random.Generator) -> None:
    for n, place in itertools.product((1, 3, 4, 5, 1023, 1024, 4097, 20_001), (0, 1, 3)):
        x = random_array(rng, (place + n,), np.dtype(source))
        # What every type holds.
        x = (x.real.clip(0, 100) if x.dtype.kind in "fc" else x % 100 if x.dtype.kind in "iu" else x).astype(x.dtype)
        own, x = cukern.asarray(x)[place:], x[place:]
        for target in ("bool", "uint8", "int16", "int64", "float16", "float32", "float64", "complex64", "complex128"):
            np.testing.assert_array_equal(cukern.asnumpy(own.astype(target)), converted(x, target))


@pytest.mark.parametrize(
    ("source", "target"),
    [("uint8", "uint64"), ("bool", "float32"), ("float16", "float64"), ("float32", "complex128")],
)
def test_packed_conversions_of_many_elements(source: str, target: str, rng: np.random.Generator) -> None:
    """From 4 blocks of 1024 to 4096 elements for each of 132 multiprocessors on, threads take neighbours repeatedly."""
    much = 132 * 4 * {"float16": 2048, "float32": 1024}.get(source, 4096)
    for count in (much + 1,) if takes_few() else (much - 1, much, much + 1, much + 4097):
        base = random_array(rng, (count + 1,), np.dtype(source))
        x = cukern.asarray(base)
        for start in (0, 1):
            np.testing.assert_array_equal(cukern.asnumpy(x[start:].astype(target)), base[start:].astype(target))


def test_many_results_that_are_shorter_than_operands(rng: np.random.Generator) -> None:
    """So many that blocks take several vectors a thread."""
    n = 5029 if takes_few() else 2**23 + 1029
    x = rng.random(n)
    x[::1000] = np.nan
    own = cukern.asarray(x)
    for begin, place in itertools.product((0, 1), (0, 3)):
        part, values = own[begin:], x[begin:]
        np.testing.assert_array_equal(cukern.asnumpy(cukern.less(part, 0.5)), values < 0.5)
        memory = cukern.zeros((n + 8,), "bool")
        out = memory[place : place + values.size]
        cukern.isnan(part, out=out)
        np.testing.assert_array_equal(cukern.asnumpy(out), np.isnan(values))
        assert cukern.sum(memory) == cukern.sum(out)


@pytest.mark.parametrize("dtype", [*TYPES, "bool", "bfloat16", "uint16", "complex64"])
def test_packed_arrays_that_begin_anywhere(dtype: str, rng: np.random.Generator) -> None:
    """Every operation gives of arrays that begin inside a vector, all alike or not, what it gives of others."""

    def host(x: cukern.Array) -> np.ndarray:
        return cukern.asnumpy(x.astype("float32") if x.dtype == cukern.bfloat16 else x)

    for row in _cukern._table:
        if row["kind"] not in ("unary", "binary"):
            continue
        function, count = getattr(cukern, row["name"]), 2 if row["kind"] == "binary" else 1
        for n, places in itertools.product((1, 6, 40, 1500), ((1, 1, 1), (0, 1, 3), (5, 2, 0))):
            drawn = np.dtype("bool" if dtype == "bool" else "int8")
            bases = [cukern.asarray(random_array(rng, (n + 8,), drawn)).astype(dtype) for _ in range(count)]
            operands = [base[place : place + n] for base, place in zip(bases, places, strict=False)]
            try:
                want = function(*[cukern.copy(operand) for operand in operands])
            except TypeError:
                break
            out = cukern.zeros(n + 8, want.dtype)
            function(*operands, out=out[places[2] : places[2] + n])
            whole = np.zeros(n + 8, host(want).dtype)
            whole[places[2] : places[2] + n] = host(want)
            np.testing.assert_array_equal(host(out), whole)
            np.testing.assert_array_equal(host(function(*operands)), host(want))
            if want.dtype == operands[0].dtype:
                rest = np.array(host(bases[0]))
                rest[places[0] : places[0] + n] = host(want)
                function(*operands, out=operands[0])
                np.testing.assert_array_equal(host(bases[0]), rest)


@pytest.mark.parametrize("dtype", [*TYPES, "uint16"])
def test_three_arrays_that_begin_anywhere(dtype: str, rng: np.random.Generator) -> None:
    """Bounds that are aligned otherwise than the array, and than the result."""
    for n, places in itertools.product((1, 40, 1500), ((1, 1, 1, 1), (0, 1, 3, 2), (5, 2, 0, 4))):
        low, high, a, whole = (random_array(rng, (n + 8,), np.dtype(dtype)) for _ in range(4))
        low, high = np.minimum(low, high), np.maximum(low, high)
        out = cukern.asarray(whole)
        wanted = [x[place : place + n] for x, place in zip((a, low, high, whole), places, strict=True)]
        own = [cukern.asarray(x)[place : place + n] for x, place in zip((a, low, high), places, strict=False)]
        cukern.clip(*own, out=out[places[3] : places[3] + n])
        np.clip(*wanted[:3], out=wanted[3])
        np.testing.assert_array_equal(cukern.asnumpy(out), whole)


def test_copies_onto_themselves(rng: np.random.Generator) -> None:
    """Nothing happens, but for what overlaps otherwise."""
    a = random_array(rng, (40, 30), np.dtype(np.float32))
    x = cukern.asarray(a)
    for _ in range(3):
        for view in (x, x.T, x[::2, 1:], x[::-1]):
            assert cukern.positive(view, out=view) is view
            assert cukern.conj(view, out=view) is view
    np.testing.assert_array_equal(cukern.asnumpy(x), a)
    cukern.negative(x, out=x)
    cukern.copyto(x, x)
    np.testing.assert_array_equal(cukern.asnumpy(x), -a)
