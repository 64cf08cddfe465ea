"""Views of an Array; NumPy says what is right."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from array_tools import HOST_MEMORY, MEMORY, TIMES, numbers, pair, same, same_view

import cukern

pytestmark = pytest.mark.usefixtures("backend")


def random_key(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Return a basic index, of integers, slices, None and an ellipsis."""
    taken = int(rng.integers(0, len(shape) + 1))
    where = int(rng.integers(0, taken + 1))  # of the ellipsis
    axes = [*range(where), *range(len(shape) - taken + where, len(shape))]
    key: list[Any] = []
    for axis in axes:
        n = shape[axis]
        if n and rng.random() < 0.3:
            key.append(int(rng.integers(-n, n)))
            continue
        bounds = [None if rng.random() < 0.3 else int(rng.integers(-n - 2, n + 3)) for _ in range(2)]
        step = None if rng.random() < 0.3 else int(rng.choice([-3, -2, -1, 1, 2, 3, 100]))
        key.append(slice(*bounds, step))
    key.insert(where, ...)
    for _ in range(int(rng.integers(0, 3))):
        key.insert(int(rng.integers(0, len(key) + 1)), None)
    return tuple(key)


def random_shape(rng: np.random.Generator) -> tuple[int, ...]:
    return tuple(int(n) for n in rng.integers(0 if rng.random() < 0.1 else 1, 6, int(rng.integers(0, 5))))


@pytest.mark.parametrize("memory", MEMORY)
def test_random_indices(rng: np.random.Generator, memory: str) -> None:
    for _ in range(TIMES):
        a, wanted = pair(random_shape(rng), np.int32, memory)
        key = random_key(rng, a.shape)
        view = a[key]
        same_view(view, wanted[key])
        second = random_key(rng, view.shape)
        same_view(view[second], wanted[key][second])
        view[second] = -1  # a view shares the memory
        wanted[key][second] = -1
        same(a, wanted)


@pytest.mark.parametrize("memory", HOST_MEMORY)
def test_random_views_lie_where_numpys_do(rng: np.random.Generator, memory: str) -> None:
    for _ in range(TIMES):
        a = cukern.asarray(numbers((3, 4, 5), np.int16), memory=memory)
        whole = np.asarray(a)
        key = random_key(rng, a.shape)
        view, wanted = np.asarray(a[key].T), whole[key].T
        assert view.shape == wanted.shape
        if view.size:
            assert view.__array_interface__["data"] == wanted.__array_interface__["data"]
            assert np.shares_memory(view, whole)
            assert not np.shares_memory(np.asarray(a[key].copy()), whole)


def random_factors(rng: np.random.Generator, size: int) -> tuple[int, ...]:
    """Return a shape of a number of elements."""
    lengths = [1] * int(rng.integers(1, 5))
    left, factor = size, 2
    while left > 1:
        while left % factor:
            factor += 1
        lengths[int(rng.integers(0, len(lengths)))] *= factor
        left //= factor
    return tuple(lengths)


def as_view(wanted: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    try:
        return wanted.reshape(shape, copy=False)
    except ValueError:
        return None


def test_random_reshapes(rng: np.random.Generator) -> None:
    views = 0
    for _ in range(2 * TIMES):
        a, wanted = pair(tuple(int(n) for n in rng.choice([1, 2, 3, 4, 6], 3)), np.int32)
        key, axes = random_key(rng, a.shape), None
        a, wanted = a[key], wanted[key]
        if rng.random() < 0.4:
            axes = tuple(int(axis) for axis in rng.permutation(a.ndim))
            a, wanted = a.transpose(axes), wanted.transpose(axes)
        if a.size == 0:
            continue
        shape = random_factors(rng, a.size)
        given = list(shape)
        if rng.random() < 0.5:
            given[int(rng.integers(0, len(given)))] = -1
        same(a.reshape(*given), wanted.reshape(given))
        same(cukern.reshape(a, tuple(given), copy=True), wanted.reshape(given))
        assert a.reshape(given, copy=True).base is not (a if a.base is None else a.base)
        if as_view(wanted, shape) is None:
            with pytest.raises(ValueError, match=r"reshape: .*copy=False"):
                a.reshape(given, copy=False)
            a.reshape(given).fill(-1)  # of a copy
            same(a, wanted)
        else:
            views += 1
            same_view(a.reshape(given, copy=False), wanted.reshape(given, copy=False))
            a.reshape(given).fill(-1)
            same(a, np.full_like(wanted, -1))
    assert TIMES / 10 < views < 2 * TIMES


def test_matrix_transpose_needs_a_matrix() -> None:
    for shape in ((), (3,)):
        with pytest.raises(ValueError, match=f"mT: the array has {len(shape)} dimensions; a matrix has two"):
            _ = cukern.ones(shape).mT
    with pytest.raises(TypeError, match="matrix_transpose"):
        cukern.matrix_transpose(np.ones((2, 2)))


def test_random_transposes_squeezes_and_new_axes(rng: np.random.Generator) -> None:
    for _ in range(TIMES):
        a, wanted = pair(random_shape(rng), np.int16)
        same_view(a.T, wanted.T)
        axes = tuple(int(axis) for axis in rng.permutation(a.ndim) - int(rng.integers(0, 2)) * a.ndim)
        same_view(a.transpose(axes), wanted.transpose(axes))
        same_view(a.transpose(*axes), wanted.transpose(*axes))
        same_view(cukern.transpose(a, axes), np.transpose(wanted, axes))
        if a.ndim > 1:
            same_view(a.mT, wanted.swapaxes(-1, -2))
            same_view(cukern.matrix_transpose(a), wanted.swapaxes(-1, -2))
        same_view(a.squeeze(), wanted.squeeze())
        single = tuple(axis for axis, n in enumerate(a.shape) if n == 1)
        same_view(a.squeeze(single), wanted.squeeze(single))
        where = int(rng.integers(-a.ndim - 1, a.ndim + 1))
        same_view(cukern.expand_dims(a, where), np.expand_dims(wanted, where))
        same_view(cukern.expand_dims(a, (0, -1)), np.expand_dims(wanted, (0, -1)))
        assert a.size == 0 or a.T.base is a
        same(a.ravel(), wanted.ravel())
        same(cukern.ravel(a.T), wanted.T.ravel())


def test_forms_of_the_same_view() -> None:
    a, wanted = pair((2, 3))
    for view in (a.T, a.transpose(), a.transpose(None), a.transpose((1, 0)), a.transpose([1, 0]), a.transpose(1, 0)):
        same_view(view, wanted.T)
    same_view(cukern.transpose(a), wanted.T)
    for view in (a.reshape(3, 2), a.reshape((3, 2)), a.reshape([3, -1]), cukern.reshape(a, (3, 2))):
        same_view(view, wanted.reshape(3, 2))
    for view in (a.reshape(-1), a.reshape(6), a.ravel(), cukern.ravel(a), cukern.reshape(a, -1)):
        same_view(view, wanted.ravel())
    one, one_wanted = pair((1, 2, 1))
    for view in (one.squeeze(), one.squeeze((0, 2)), one.squeeze(axis=(0, -1)), cukern.squeeze(one)):
        same_view(view, one_wanted.squeeze())
    same_view(one.squeeze(0), one_wanted.squeeze(0))
    same_view(cukern.squeeze(one, axis=2), one_wanted.squeeze(2))


@pytest.mark.parametrize(
    ("shape", "to"),
    [
        ((3,), (2, 3)),
        ((), (2, 3)),
        ((2, 1), (2, 3)),
        ((1,), (0,)),
        ((1, 3), (4, 2, 3)),
        ((3,), (3,)),
        ((), ()),
        ((1,), 5),
    ],
    ids=str,
)
def test_broadcast_to(shape: tuple[int, ...], to: Any) -> None:
    a, wanted = pair(shape)
    same_view(cukern.broadcast_to(a, to), np.broadcast_to(wanted, to))


@pytest.mark.parametrize("memory", MEMORY)
def test_read_only_views_refuse_writes(memory: str) -> None:
    a = cukern.ones((2, 3), memory=memory)
    wide = cukern.broadcast_to(a, (4, 2, 3))
    writes: list[Callable[[cukern.Array], object]] = [
        lambda v: v.fill(0),
        lambda v: operator.setitem(v, ..., 0),
        lambda v: operator.setitem(v, (0, 0), [1, 2, 3]),
        lambda v: operator.iadd(v, 1),
        lambda v: operator.imatmul(v[0, :, :2], cukern.ones((2, 2))),
        lambda v: cukern.add(v, 1, out=v),
        lambda v: np.add(v, 1, out=v),
        lambda v: cukern.copyto(v, 3.0),
        lambda v: cukern.asnumpy(a, out=v),
    ]
    for write in writes:
        for view in (wide, wide[1:], wide.reshape(4, 2, 3), wide[0][None]):
            with pytest.raises(ValueError, match="read-only"):
                write(view)
    same(a, np.ones((2, 3)))
    assert wide.T.flags["WRITEABLE"] is False
    assert wide.copy().flags["WRITEABLE"] is True


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
@pytest.mark.parametrize("memory", MEMORY)
def test_concat_and_stack(axis: int, memory: str) -> None:
    a, wanted = pair((2, 3, 4), memory=memory)
    joined = cukern.concat([a, a[::-1], a], axis)
    same(joined, np.concatenate([wanted, wanted[::-1], wanted], axis))
    assert joined.memory == memory
    same(cukern.stack((a, a.T.T), axis=axis), np.stack((wanted, wanted), axis))
    lengths = [a.shape[axis], 0, 1]
    parts = [np.moveaxis(np.moveaxis(wanted, axis, 0)[:n], 0, axis) for n in lengths]
    same(cukern.concat([cukern.asarray(part) for part in parts], axis), np.concatenate(parts, axis))


def test_concat_of_all_elements() -> None:
    a, wanted = pair((2, 3))
    zero, zero_wanted = pair(())
    same(cukern.concat([a, a.T, zero], axis=None), np.concatenate([wanted, wanted.T, zero_wanted], axis=None))
    same(cukern.concat(part for part in (a, a)), np.concatenate([wanted, wanted]))
    same(cukern.stack([zero, zero]), np.stack([zero_wanted, zero_wanted]))
    same(cukern.concat([a]), wanted)
    assert cukern.concat([a]).base is None


@pytest.mark.parametrize("mix", [(a, b) for a in MEMORY for b in MEMORY], ids=str)
def test_memory_of_joined_arrays(mix: tuple[str, str]) -> None:
    parts = [cukern.ones(2, memory=memory) for memory in mix]
    assert cukern.concat(parts).memory == cukern.stack(parts).memory == min(mix, key=MEMORY.index)
