"""`each`, by which one test has many cases."""

from __future__ import annotations

import inspect

import pytest
from cases import each


def test_all_values_are_tried() -> None:
    seen = []

    @each("value", iter([1, 2, 3]))
    def test(value: int, other: str) -> None:
        seen.append((value, other))

    test(other="x")
    assert seen == [(1, "x"), (2, "x"), (3, "x")]
    assert list(inspect.signature(test).parameters) == ["other"]


def test_what_failed_is_named() -> None:
    seen = []

    @each("value", [1, 2, 3])
    def test(value: int) -> None:
        seen.append(value)
        assert value == 1, "not one"

    with pytest.raises(AssertionError, match="not one") as caught:
        test()
    assert seen == [1, 2, 3]
    assert caught.value.__notes__ == ["with value = 2", "2 of 3 cases failed: 2, 3"]


def test_pytests_own_failures_too() -> None:
    @each("value", [1, 2, 3])
    def test(value: int) -> None:
        with pytest.raises(ValueError, match="two"):
            if value == 2:
                raise ValueError("two")

    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE") as caught:
        test()
    assert caught.value.__notes__[-1] == "2 of 3 cases failed: 1, 3"


@pytest.mark.parametrize("last", [1, 2])
def test_skipped_where_all_are(last: int) -> None:
    @each("value", [1, 2])
    def test(value: int) -> None:
        if value <= last:
            pytest.skip("too small")

    if last == 1:
        test()
    else:
        with pytest.raises(pytest.skip.Exception, match="too small"):
            test()


def test_an_argument_that_the_test_does_not_have() -> None:
    with pytest.raises(AssertionError, match="test has no argument 'name'"):

        @each("name", [1])
        def test(value: int) -> None:
            raise NotImplementedError(value)


def test_no_values() -> None:
    with pytest.raises(AssertionError, match="no values"):
        each("name", [])
