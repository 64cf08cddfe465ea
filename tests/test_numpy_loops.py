"""The host back-end by NumPy's loops: their results, for every layout and mix of types."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest
from conftest import use
from numpy_loops import use_numpy_loops
from oracles import FUNCTIONS, ORACLES

import cukern
from cukern import _cukern

ROWS = [row for row in _cukern._table if row["kind"] in ("unary", "binary") and row["name"] not in ("real", "imag")]


@pytest.fixture(autouse=True)
def host() -> None:
    """NumPy's loops, as they are used by default."""
    use("host")


def operands(rng: np.random.Generator, dtype: str, count: int, shape: tuple[int, ...]) -> list[np.ndarray]:
    """Return arrays of some strides."""
    found = []
    for _ in range(count):
        base = rng.integers(1, 20, [2 * n for n in shape]) / (8 if dtype[0] == "f" else 1)
        step = tuple(slice(None, None, int(rng.choice([2, 2, -2]))) for _ in shape)
        view = base.astype(dtype)[step]
        found.append(np.ascontiguousarray(view) if rng.random() < 0.5 else view)
    return found


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_results_are_numpys(row: dict, rng: np.random.Generator) -> None:
    own, numpys = getattr(cukern, row["name"]), ORACLES[row["name"]]
    count = 2 if row["kind"] == "binary" else 1
    for dtype, shape in itertools.product(
        ("f2", "f4", "f8", "i1", "u2", "i4", "i8"), ((), (1,), (1000,), (7, 33), (3, 4, 5))
    ):
        values = operands(rng, dtype, count, shape)
        with np.errstate(all="ignore"):
            try:
                given = own(*values)
            except TypeError:
                continue
            wanted = np.asarray(numpys(*values))
        if wanted.dtype != given.dtype or row["name"] == "reciprocal":
            continue  # where the standard's result is another one
        if row["name"] in FUNCTIONS and given.dtype.kind == "f":  # NumPy's own bits depend on strides and lengths
            np.testing.assert_array_max_ulp(given, wanted, 4)
        else:
            np.testing.assert_array_equal(given, wanted)
            assert given.tobytes() == wanted.tobytes() or row["name"] in ("floor_divide", "remainder")


def test_mixed_types_numbers_and_out(rng: np.random.Generator) -> None:
    x, y = (operands(rng, dtype, 1, (700, 3))[0] for dtype in ("f4", "i2"))
    np.testing.assert_array_equal(cukern.atan2(x, y), np.arctan2(x, y.astype("f4")))
    np.testing.assert_array_equal(cukern.tanh(y), np.tanh(y.astype("f4")))
    np.testing.assert_array_equal(cukern.multiply(x, 2.5), np.multiply(x, np.float32(2.5)))
    np.testing.assert_array_equal(cukern.maximum(3, y), np.maximum(3, y))
    out = np.zeros((700, 6))[:, ::2]
    assert cukern.exp(x, out=out) is out
    np.testing.assert_array_equal(out, np.exp(x))
    cukern.sqrt(x, out=x)
    np.testing.assert_array_equal(cukern.logical_and(x, x), np.ones((700, 3), bool))
    np.testing.assert_array_equal(cukern.astype(x, "i1"), x.astype("i8").astype("i1"))


def test_integers_that_numpy_refuses_are_computed_by_formulas() -> None:
    x = np.array([0, 1, 2, -2], "i4")
    assert cukern.pow(x, np.array([-1, -1, -1, 2], "i4"))[3] == 4
    assert cukern.reciprocal(x)[1:].tolist() == [1, 0, 0]
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(cukern.floor_divide(x, np.zeros(4, "i4")), np.floor_divide(x, np.zeros(4, "i4")))


def test_formulas_are_there_without_them(rng: np.random.Generator) -> None:
    x = (rng.random(10_000) * 4).astype("f4")
    numpys = cukern.tanh(x)
    use_numpy_loops(False)
    try:
        formulas = cukern.tanh(x)
    finally:
        use_numpy_loops(True)
    np.testing.assert_allclose(formulas, numpys, rtol=4 * np.finfo("f4").eps)
    assert (formulas != numpys).any()
    assert (cukern.tanh(x) == numpys).all()


def test_many_threads(rng: np.random.Generator) -> None:
    x = rng.random(300_000)
    wanted = np.sin(x)
    wrong = []

    def run() -> None:
        for _ in range(5):
            if (cukern.sin(x) != wanted).any():
                wrong.append(1)

    threads = [threading.Thread(target=run) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
