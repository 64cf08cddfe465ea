"""CUKERN_TEST_SHARE: what several runs leave to each other."""

from __future__ import annotations

from typing import Any

from conftest import others_share


class Item:
    """What of a pytest.Item is looked at."""

    def __init__(self, nodeid: str) -> None:
        self.nodeid = nodeid


def test_shares_cover_all_and_each_has_every_test() -> None:
    many = [f"tests/test_a.py::test_many[{i}]" for i in range(300)]
    few = ["tests/test_b.py::test_few[a]", "tests/test_b.py::test_few[b]", "tests/test_b.py::test_one"]
    items: list[Any] = [Item(name) for name in many + few]
    kept = [[item.nodeid for item in items if item not in others_share(items, i, 3)] for i in range(3)]
    assert sorted(name for share in kept for name in share if name in many) == sorted(many)
    for share in kept:
        assert 50 < len(share) < 150
        assert share[-3:] == few


def test_a_share_does_not_depend_on_the_other_cases() -> None:
    items: list[Any] = [Item(f"tests/test_a.py::test_many[{i}]") for i in range(300)]
    left = others_share(items, 1, 2)
    assert others_share(items[7:], 1, 2) == {item for item in left if item in items[7:]}
