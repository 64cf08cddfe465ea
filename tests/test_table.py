"""The table of operations and what is made from it."""

from __future__ import annotations

import ctypes
import inspect

import oracles
import pytest

import cukern
from cukern import _cukern

ROWS = [row["name"] for row in _cukern._table]


def test_rows_and_oracles_match_one_to_one() -> None:
    assert sorted(ROWS) == sorted(oracles.ORACLES)
    assert len(set(ROWS)) == len(ROWS)


@pytest.mark.parametrize("row", _cukern._table, ids=ROWS)
def test_every_row_is_a_documented_function(row: dict[str, str]) -> None:
    function = getattr(cukern, row["name"])
    assert row["name"] in cukern.__all__
    assert function.__doc__.startswith(row["doc"])
    for section in ("Parameters", "Returns", "Raises", "Examples"):
        assert f"\n{section}\n{'-' * len(section)}\n" in function.__doc__
    parameters = inspect.signature(function).parameters
    assert list(parameters)[-2:] == ["out", "stream"]
    for name in ("out", "stream"):
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
    assert parameters["a"].kind is inspect.Parameter.POSITIONAL_ONLY


@pytest.mark.parametrize("name", ROWS)
def test_every_row_is_in_the_c_abi(name: str) -> None:
    library = ctypes.CDLL(cukern.library_path())
    for suffix in ("f32", "f64", "i32", "i64"):
        assert getattr(library, f"cukern_{name}_{suffix}")
        assert getattr(library, f"cukern_{name}_{suffix}_dev")
