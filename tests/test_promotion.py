"""Result types of several operands at once, and of bounds: NumPy's, in whatever order they come."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from arrays import assert_same, random_array
from conftest import SMALL
from oracles import ELEMENT_TYPES

import cukern

pytestmark = pytest.mark.usefixtures("backend")
NAMES = [str(dtype) for dtype in ELEMENT_TYPES] + ["bfloat16"]
NUMBERS: list[Any] = [True, 3, -3, 300, 2**40, -(2**70), 2**70, 2**64 - 1, 1.5, 1.9677921, 1e300, 1 + 2j]


def test_result_types_of_three() -> None:
    for types in itertools.product(ELEMENT_TYPES, repeat=3):
        assert cukern.result_type(*types) == np.result_type(*types), types


def test_result_types_do_not_depend_on_the_order() -> None:
    for types in itertools.combinations(NAMES, 3):
        found = {cukern.result_type(*order) for order in itertools.permutations(types)}
        assert len(found) == 1, (types, found)


@pytest.mark.parametrize(
    "types", [("uint16", "int32", "float16"), ("int8", "uint8", "float16"), ("float16", "bfloat16")]
)
def test_joined_arrays_are_promoted_at_once(types: tuple[str, ...]) -> None:
    wanted = cukern.result_type(*types)
    for order in itertools.permutations(types):
        parts = [cukern.ones(2, dtype) for dtype in order]
        assert cukern.concat(parts).dtype == wanted
        assert cukern.stack(parts).dtype == wanted


def clip_type(a: Any, least: Any, most: Any) -> Any:
    """Return what NumPy says of a clip, or its exception's type."""
    try:
        with np.errstate(all="ignore"):
            return np.clip(a, least, most)
    except (TypeError, OverflowError) as error:
        return type(error)


def check_clip(a: np.ndarray, least: Any, most: Any) -> None:
    wanted = clip_type(a, least, most)
    if isinstance(wanted, type):
        with pytest.raises(wanted):
            cukern.clip(a, least, most)
        return
    result = cukern.clip(a, least, most)
    if wanted.dtype.kind == "c":
        assert result.dtype == wanted.dtype
        return
    assert_same(result, np.asarray(wanted))


@pytest.mark.parametrize("dtype", ELEMENT_TYPES, ids=str)
def test_clip_by_numbers(rng: np.random.Generator, dtype: np.dtype) -> None:
    a = random_array(rng, (9,), dtype)
    for least, most in itertools.product([None, *NUMBERS], repeat=2):
        if a.dtype.kind == "c" or any(isinstance(bound, complex) for bound in (least, most)):
            continue  # an order of complex numbers is not what either library promises
        if least is None and most is None and a.dtype.kind == "b":
            continue  # NumPy has no copy of bool there
        check_clip(a, least, most)


def test_clip_by_arrays_and_numbers(rng: np.random.Generator) -> None:
    real = [dtype for dtype in ELEMENT_TYPES if dtype.kind != "c"]
    choices: list[Any] = [None, *real, *(number for number in NUMBERS if not isinstance(number, complex))]
    for _ in range(200 if SMALL else 2000):
        a = random_array(rng, (5,), real[rng.integers(len(real))])
        bounds = []
        for _ in range(2):
            choice = choices[rng.integers(len(choices))]
            bounds.append(random_array(rng, (5,), choice) if isinstance(choice, np.dtype) else choice)
        if bounds[0] is None and bounds[1] is None:
            continue
        check_clip(a, *bounds)


def test_clip_of_bfloat16() -> None:
    a = cukern.asarray([1.0, 5.0, 9.0], dtype="bfloat16")
    assert cukern.clip(a, 2, 6.0).dtype == "bfloat16"
    assert cukern.clip(a, 2, 6).tolist() == [2, 5, 6]
    assert cukern.clip(a, cukern.zeros(3, "float16"), 6).dtype == "float32"
    assert cukern.clip(a, 0, cukern.ones(3, "float16")).dtype == "float32"


def test_python_integers_of_any_size_are_compared_exactly() -> None:
    numbers = [0, 1, -1, 2**63, 2**64, 2**70, 2**71, -(2**70), 2**70 + 1]
    for a, b in itertools.product(numbers, repeat=2):
        for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"):
            assert bool(getattr(cukern, name)(a, b)) == bool(getattr(np, name)(a, b)), (name, a, b)


@pytest.mark.parametrize("function", [cukern.vecdot, cukern.dot])
def test_products_wrap_in_their_own_type_before_out_takes_them(function: Any) -> None:
    a = np.full(5, 200, np.uint8)
    wanted = np.dot(a, a)
    out = np.zeros((), np.int64)
    function(a, a, out=out)
    assert out == wanted == (200 * 200 * 5) % 256


def test_running_sums_of_a_type_wrap_before_out_takes_them() -> None:
    a = np.full(9, 100, np.int8)
    for dtype in ("int8", "uint8", "int16", "float32"):
        out = np.zeros(9, np.float64)
        cukern.cumulative_sum(a, dtype=dtype, out=out)
        np.testing.assert_array_equal(out, np.cumsum(a, dtype=dtype).astype(np.float64))


@pytest.mark.parametrize("dtype", ELEMENT_TYPES, ids=str)
def test_sums_and_products_of_bool(rng: np.random.Generator, dtype: np.dtype) -> None:
    a = random_array(rng, (4, 5), dtype)
    a[1] = 0
    a[2, 3] = 0
    for own, theirs in ((cukern.sum, np.sum), (cukern.prod, np.prod)):
        for axis in (None, 0, 1):
            with np.errstate(all="ignore"):
                np.testing.assert_array_equal(
                    own(a, axis=axis, dtype=bool), theirs(a, axis=axis, dtype=bool), strict=True
                )
    for own, theirs in ((cukern.cumulative_sum, np.cumsum), (cukern.cumulative_prod, np.cumprod)):
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(own(a, axis=1, dtype=bool), theirs(a, axis=1, dtype=bool), strict=True)


@pytest.mark.parametrize("name", ["any", "all"])
def test_any_and_all_of_no_dimensions_into_another_type(name: str) -> None:
    for value, dtype in ((16, "uint32"), (5, "uint8"), (0.78, "float32"), (0, "int8")):
        for out_type in ("int16", "uint8", "int32", "float64", "bool"):
            out = np.full((), 9, out_type)
            getattr(cukern, name)(np.array(value, dtype), out=out)
            assert out == bool(value)
