"""Copies, conversions and running results of the host back-end: every layout, around the sizes of its blocks."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from conftest import SMALL, use

import cukern

TYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
TYPES += ["float16", "float32", "float64", "complex64", "complex128"]
LENGTHS = [1, 2, 3, 5, 8, 15, 16, 17, 33, 63, 64, 65, 130, 511, 512, 513]


@pytest.fixture(autouse=True)
def host() -> None:
    use("host")


def numbers(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return random bits, of bool 0 and 1."""
    if dtype == "bool":
        return np.asarray(rng.random(shape) < 0.5)
    data = rng.bytes(int(np.prod(shape)) * np.dtype(dtype).itemsize)
    return np.frombuffer(data, dtype).reshape(shape).copy()


def view_of(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return memory and a view of it that has this shape: axes in any order, steps, backwards, with a margin."""
    order = rng.permutation(len(shape))
    steps = [int(rng.choice([1, 1, 2, 3, -1, -2])) for _ in shape]
    margins = [int(rng.choice([0, 0, 1, 5])) for _ in shape]
    lengths = [shape[axis] * abs(steps[axis]) + margins[axis] for axis in order]
    memory = numbers(rng, dtype, tuple(lengths))
    view = memory.transpose(np.argsort(order))
    for axis, (n, step, margin) in enumerate(zip(shape, steps, margins, strict=True)):
        whole = (slice(None),) * axis
        view = view[(*whole, slice(margin, None), ...)][(*whole, slice(None, None, step), ...)]
        view = view[(*whole, slice(0, n), ...)]
    assert view.shape == shape
    return memory, view


def shapes(rng: np.random.Generator, count: int) -> list[tuple[int, ...]]:
    """Return shapes of up to 5 dimensions and 10**5 elements."""
    found: list[tuple[int, ...]] = [(0,), (3, 0), ()]
    while len(found) < count:
        shape = tuple(int(rng.choice(LENGTHS[: 16 if i < 2 else 5])) for i in range(int(rng.integers(1, 6))))
        shape = tuple(int(n) for n in rng.permutation(shape))
        if np.prod(shape) <= 100_000:
            found.append(shape)
    return found


@pytest.mark.parametrize("dtype", TYPES)
def test_copies_between_layouts(dtype: str, rng: np.random.Generator) -> None:
    for shape in shapes(rng, 10 if SMALL else 60):
        memory, to = view_of(rng, dtype, shape)
        wanted_memory = memory.copy()
        wanted = np.ndarray(shape, dtype, wanted_memory.data, _offset(memory, to), to.strides) if to.size else to
        # Dimensions of the source of length 1, or that it does not have, are repeated.
        own = tuple(1 if rng.random() < 0.2 else n for n in shape)[int(rng.integers(0, 2)) * (len(shape) > 1) :]
        if rng.random() < 0.5:
            own = shape
        _, source = view_of(rng, dtype, own)
        cukern.copyto(to, source)
        np.copyto(wanted, source)
        assert memory.tobytes() == wanted_memory.tobytes(), (shape, own, to.strides, source.strides)


def _offset(memory: np.ndarray, view: np.ndarray) -> int:
    return view.__array_interface__["data"][0] - memory.__array_interface__["data"][0]


@pytest.mark.parametrize("dtype", TYPES)
def test_transposed_copies_around_the_sizes_of_tiles(dtype: str, rng: np.random.Generator) -> None:
    for m, n in itertools.product([1, 2, 15, 16, 17, 65], [2, 16, 31, 511, 513, 1030]):
        a = numbers(rng, dtype, (m, n))
        out = numbers(rng, dtype, (n, m))
        cukern.copyto(out, a.T)
        assert out.tobytes() == a.T.tobytes()
        out = numbers(rng, dtype, (m, n))
        cukern.copyto(out, numbers(rng, dtype, (n, m)).T)
        cukern.copyto(out.T, a.T)
        assert out.tobytes() == a.tobytes()


@pytest.mark.parametrize("threads_take_part", [False, True])
def test_large_copies(threads_take_part: bool, rng: np.random.Generator) -> None:
    n = 700 if threads_take_part and not SMALL else 90
    a = rng.random((3, n, n))
    out = np.empty((3, n, n))
    for order in itertools.permutations(range(3)):
        view = out.transpose(order)
        source = a.reshape(view.shape)
        cukern.copyto(view, source)
        np.testing.assert_array_equal(view, source)


def edge_values(dtype: str) -> np.ndarray:
    """Return what conversions differ in: the bounds of all integers, fractions, and what no integer holds."""
    powers = [float(2**k) for k in (7, 8, 15, 16, 31, 32, 62, 63, 64, 100)]
    values = [0.0, -0.0, 0.5, -0.5, 1.0, 1.5, -1.5, 100.25, np.inf, -np.inf, np.nan]
    values += [sign * (p + d) for p in powers for sign in (1, -1) for d in (-1, -0.5, 0, 0.5, 1)]
    kind = np.dtype(dtype).kind
    if kind in "fc":
        found = np.zeros(len(values), dtype)
        with np.errstate(over="ignore"):
            found.real = values
            if kind == "c":
                found.imag = values[::-1]
        return found
    if kind == "b":
        return np.array([True, False, True])
    limits = np.iinfo(dtype)
    near = [limits.min, limits.min + 1, limits.max - 1, limits.max, 0, 1, 2, 99]
    near += [sign * 2**k + d for k in (24, 31, 32, 53, 54, 62) for sign in (1, -1) for d in (-1, 0, 1)]
    return np.array([value for value in near if limits.min <= value <= limits.max], dtype)


@pytest.mark.parametrize("to", TYPES)
@pytest.mark.parametrize("source", TYPES)
def test_packed_conversions_are_those_of_single_elements(source: str, to: str, rng: np.random.Generator) -> None:
    """The loops over vectors give, to the bit, what the loop over elements with strides does, and NumPy."""
    edges = edge_values(source)
    usual = (rng.integers(0, 100, 700) / 4).astype(source)
    for n, count in itertools.product([1, 3, 4, 7, 8, 255, 256, 257, 700], [0, 1, 20]):
        values = usual[:n].copy()
        places = rng.permutation(n)[:count]  # of edges, among what vectors hold
        values[places] = rng.choice(edges, places.size)
        apart = np.zeros(2 * n, source)
        apart[::2] = values
        packed = cukern.asarray(values).astype(to).get()
        single = cukern.asarray(apart)[::2].astype(to).get()
        assert packed.tobytes() == single.tobytes(), values[packed != single]
        if count == 0 or (np.dtype(source).kind in "biu" or np.dtype(to).kind not in "iu"):
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
                np.testing.assert_array_equal(packed, values.astype(to))


def as_the_processor(value: float, dtype: str) -> int:
    """Return a float as an integer: of what 64 bits do not hold the least, and what a shorter type holds of that."""
    info = np.iinfo(dtype)
    whole = int(value) if np.isfinite(value) else -(2**64)
    if not (-(2**63) <= whole < 2**63) and not (dtype == "uint64" and 2**63 <= whole < 2**64):
        whole = -(2**63)
    wrapped = whole % 2**info.bits
    return wrapped - 2**info.bits if wrapped > info.max else wrapped


@pytest.mark.parametrize("to", [dtype for dtype in TYPES if "int" in dtype])
@pytest.mark.parametrize("source", ["float16", "float32", "float64", "complex64", "complex128"])
def test_floats_that_no_integer_holds(source: str, to: str) -> None:
    with np.errstate(over="ignore"):  # of float16
        beyond = np.array([2.0**63, 1e19, 1.8e19, 2.0**64, -1e19]).astype(source)
    edges = np.concatenate([edge_values(source), beyond])
    wanted = [as_the_processor(float(value.real), to) for value in edges]
    assert cukern.asarray(edges).astype(to).get().tolist() == wanted


def test_a_wrong_type_is_told_of_before_a_wrong_shape() -> None:
    with pytest.raises(TypeError, match="float64 does not go into int32"):
        cukern.copyto(np.zeros(3, np.int32), np.zeros(4))
    with pytest.raises(ValueError, match="does not broadcast"):
        cukern.copyto(np.zeros(3), np.zeros(4))


def test_any_byte_but_zero_is_true() -> None:
    bytes_ = np.array([0, 1, 2, 128, 255] * 20, np.uint8)
    truths = bytes_.view(bool)
    for dtype in TYPES[1:]:
        out = np.empty(truths.size, dtype)
        cukern.copyto(out, truths)
        np.testing.assert_array_equal(out, (bytes_ != 0).astype(dtype))


@pytest.mark.parametrize("function", ["cumulative_sum", "cumulative_prod"])
@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "uint16", "float32", "float64", "complex64"])
def test_running_results_of_lines_side_by_side(function: str, dtype: str, rng: np.random.Generator) -> None:
    """Groups of lines, whose sizes and places differ, give what each line alone gives."""
    own = getattr(cukern, function)
    for shape in [(5, 700), (3, 4, 600), (4, 3, 5, 7), (2, 513, 2), (513, 3), (1, 600), (600, 1), (7, 2, 513)]:
        a = rng.integers(0, 3, shape).astype(dtype)
        for order in itertools.permutations(range(len(shape))):
            view = a.transpose(order)
            for axis in range(view.ndim):
                lines = np.moveaxis(view, axis, -1)
                wanted = np.stack([own(line, axis=0) for line in lines.reshape(-1, lines.shape[-1])])
                got = np.moveaxis(own(view, axis=axis), axis, -1)
                assert got.reshape(wanted.shape).tobytes() == wanted.tobytes(), (view.shape, view.strides, axis)


@pytest.mark.parametrize("to", ["int32", "uint32", "float32", "int64", "float64", "int8", "int16"])
def test_conversions_from_each_place_in_a_cache_line(to: str, rng: np.random.Generator) -> None:
    """What comes before the target's first whole line is converted apart; of any element type, and in place."""
    for source, n in itertools.product(TYPES, [255, 256, 257, 1000]):
        if not np.can_cast(source, to, "same_kind"):
            continue
        x = np.resize(edge_values(source), n)
        memory = np.zeros(n + 96, to)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            want = x.astype(to)
        for first in range(0, 64 // np.dtype(to).itemsize, 1 if np.dtype(to).itemsize >= 4 else 7):
            memory[:] = 1
            cukern.copyto(memory[first : first + n], x)
            np.testing.assert_array_equal(memory[first : first + n], want)
            assert np.all(memory[:first] == 1) and np.all(memory[first + n :] == 1)
        same = x.copy().view(to) if x.itemsize == memory.itemsize else None
        if same is not None:
            cukern.copyto(same, same.view(source))
            np.testing.assert_array_equal(same, want)


@pytest.mark.parametrize("size", [2000, 2048, 2049, 5000, 70_001])
def test_packed_copies_at_each_distance(size: int, rng: np.random.Generator) -> None:
    """Where the last 12 bits of addresses seem to overlap, copies go backwards; what lies around stays."""
    page = 4096
    distances = (0, 1, 15, 16, 48, 63, 64, 65, 304, 1023, 1024, 1025, 2048, page - 64, page - 1)
    source = rng.integers(0, 256, size + 2 * page).astype(np.uint8)
    target = np.empty(size + 3 * page, np.uint8)
    for place in (0, 16, 47):
        begin = -source.ctypes.data % page + place
        taken = source[begin : begin + size]
        for distance in distances:
            first = (taken.ctypes.data + distance - target.ctypes.data) % page + page
            target[:] = 7
            cukern.copyto(target[first : first + size], taken)
            want = np.full_like(target, 7)
            want[first : first + size] = taken
            np.testing.assert_array_equal(target, want, err_msg=f"{place}, {distance}")
