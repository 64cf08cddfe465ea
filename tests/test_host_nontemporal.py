"""Large results of the host back-end, which are stored past the caches: whole lines, and what lies around them."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import use

import cukern

LEAST = 16 << 20  # bytes of results, from which on they go past the caches


@pytest.fixture(autouse=True)
def host() -> None:
    use("host")


def numbers(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return numbers that every operation here takes, of bool both."""
    values = rng.integers(0 if dtype == "bool" else 1, 2 if dtype == "bool" else 50, shape).astype(np.float32)
    values /= 1 if dtype.startswith(("i", "u", "b")) else 8
    return (values - 1j * values[::-1] if dtype.startswith("c") else values).astype(dtype)


def memory_at_a_line(dtype: str, n: int) -> np.ndarray:
    """Return n elements, the first of which begins a cache line."""
    size = np.dtype(dtype).itemsize
    memory = np.zeros(n * size + 64, np.uint8)
    begin = -memory.ctypes.data % 64
    return memory[begin : begin + n * size].view(dtype)


CASES: list[tuple[str, str, str, int]] = [
    ("add", "float32", "float32", 2),
    ("subtract", "float64", "float64", 2),
    ("multiply", "float64", "float64", 2),
    ("divide", "float32", "float32", 2),
    ("sqrt", "float32", "float32", 1),
    ("multiply", "int16", "int16", 2),
    ("negative", "complex128", "complex128", 1),
    ("less", "int8", "bool", 2),
    ("bitwise_xor", "uint8", "uint8", 2),
    ("positive", "int8", "int8", 1),  # a copy
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def test_results(case: tuple[str, str, str, int], rng: np.random.Generator) -> None:
    """From each place in a cache line; what lies before and behind stays."""
    name, dtype, result, arity = case
    size = np.dtype(result).itemsize
    places = range(0, 64 // size, 1 if size >= 8 else 3)
    n = LEAST // size + 1037
    args = [numbers(rng, dtype, (n + 16,))[i : i + n] for i in range(arity)]
    want = getattr(np, name)(*args)
    memory = memory_at_a_line(result, n + 256)
    pattern = numbers(rng, result, memory.shape)
    for place in places:
        memory[:] = pattern
        getattr(cukern, name)(*args, out=memory[64 + place : 64 + place + n])
        assert np.array_equal(memory[64 + place : 64 + place + n], want)
        assert np.array_equal(memory[: 64 + place], pattern[: 64 + place])
        assert np.array_equal(memory[64 + place + n :], pattern[64 + place + n :])


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_around_the_least_size(more: int, rng: np.random.Generator) -> None:
    n = LEAST // 4 + more
    x, y = numbers(rng, "float32", (n,)), numbers(rng, "float32", (n,))
    out = memory_at_a_line("float32", n)
    cukern.add(x, y, out=out)
    assert np.array_equal(out, x + y)


def test_in_blocks(rng: np.random.Generator) -> None:
    """Of an operand that is converted first, of short rows, and of results that are."""
    n = LEAST // 8 + 77
    a, b = numbers(rng, "int32", (n,)), numbers(rng, "float64", (n,))
    assert np.array_equal(cukern.add(a, b), a + b)
    out = np.empty(n)
    cukern.multiply(a, a, out=out)
    assert np.array_equal(out, a * a)
    assert np.array_equal(cukern.less(a, b), a < b)


def test_what_is_not_finite(rng: np.random.Generator) -> None:
    n = LEAST // 4 + 5
    values = np.array([0, -0.0, 1, np.inf, -np.inf, np.nan, 1e38, 1e-45], np.float32)
    x, y = values[rng.integers(0, 8, n)], values[rng.integers(0, 8, n)]
    with np.errstate(all="ignore"):
        for name in ("add", "subtract", "multiply", "divide"):
            got, want = getattr(cukern, name)(x, y), getattr(np, name)(x, y)
            np.testing.assert_array_equal(got, want)
            is_number = ~np.isnan(want)
            assert np.array_equal(np.signbit(got[is_number]), np.signbit(want[is_number]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide"])
def test_one_value_for_all(name: str, dtype: str, rng: np.random.Generator) -> None:
    x = numbers(rng, dtype, (LEAST // np.dtype(dtype).itemsize + 13,))
    own, numpys = getattr(cukern, name), getattr(np, name)
    out = np.empty_like(x)
    for args in ((x, 3), (0.7, x), (x, x[5:6])):
        own(*args, out=out)
        assert np.array_equal(out, numpys(*args))
    assert np.array_equal(own(x, 3), numpys(x, 3))  # a fresh result


def test_rows(rng: np.random.Generator) -> None:
    """Of operands that are not packed: long rows, short ones, transposed, and values along rows and columns."""
    for shape in ((100, 50_001), (70_001, 61), (34_000, 127), (34_000, 128), (34_000, 129), (1100, 4000)):
        wide = numbers(rng, "float32", (shape[0], shape[1] + 3))
        x, row, column = wide[:, 1:-2], wide[0, :-3], wide[:, :1]
        for args in ((x, x), (x, row), (column, x), (x, x[::-1, ::-1])):
            assert np.array_equal(cukern.add(*args), np.add(*args))
        out = np.empty(shape, np.float32)
        cukern.copyto(out, x)
        assert np.array_equal(out, x)
        cukern.copyto(out, row)
        assert np.array_equal(out, np.broadcast_to(row, shape))
        turned = np.ascontiguousarray(x.T)
        assert np.array_equal(cukern.subtract(x, turned.T), np.zeros(shape, np.float32))


def test_what_lies_elsewhere(rng: np.random.Generator) -> None:
    """Results in place, into steps and into a window."""
    x = numbers(rng, "float32", (2100, 2100))
    y = numbers(rng, "float32", (2100, 2100))
    for out in (x.copy(), np.empty((2100, 4200), np.float32)[:, ::2], np.empty((2100, 2103), np.float32)[:, 1:-2]):
        cukern.add(x, y, out=out)
        assert np.array_equal(out, x + y)
    want = x + y
    cukern.add(x, y, out=x)
    assert np.array_equal(x, want)


def test_alignment_of_halves_of_an_element(rng: np.random.Generator) -> None:
    """Complex numbers may lie between two lines of the cache."""
    n = LEAST // 16 + 100
    memory = np.zeros(2 * n + 9)
    for first in range(9):
        out = memory[first : first + 2 * n].view(np.complex128)
        x = numbers(rng, "complex128", (n,))
        cukern.add(x, x, out=out)
        assert np.array_equal(out, x + x)


@pytest.mark.parametrize("source", ["int32", "float64", "bool", "int64"])
def test_conversions(source: str, rng: np.random.Generator) -> None:
    n = LEAST // 4 + 77
    x = numbers(rng, source, (n,))
    out = memory_at_a_line("float32", n + 16)
    for first in range(16):
        cukern.copyto(out[first : first + n], x)
        assert np.array_equal(out[first : first + n], x.astype("float32"))


def test_copies_that_seem_to_overlap(rng: np.random.Generator) -> None:
    """The last 12 bits of what is read are soon those of what was just written: lines go backwards."""
    source = rng.integers(0, 256, LEAST + 100).astype(np.uint8)
    memory = np.empty(LEAST + 9000, np.uint8)
    for distance in (1, 48, 80, 128, 129):
        begin = (source.ctypes.data + distance - memory.ctypes.data) % 4096
        memory[:] = 7
        cukern.copyto(memory[begin : begin + len(source)], source)
        assert np.array_equal(memory[begin : begin + len(source)], source)
        assert np.all(memory[:begin] == 7) and np.all(memory[begin + len(source) :] == 7)
