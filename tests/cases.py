"""Cases of a test within one test, where each takes less time than pytest takes for a test."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def each(name: str, values: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call a test for each value of an argument, as ``pytest.mark.parametrize`` does, but as one test.

    All values are tried; what failed is raised with the values that it failed for. It is skipped if all are.
    """
    cases = list(values)
    assert cases, f"no values of {name}"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(*args: Any, **kwargs: Any) -> None:
            errors: list[Exception] = []
            skips: list[BaseException] = []
            for case in cases:
                try:
                    test(*args, **kwargs, **{name: case})
                except pytest.skip.Exception as skip:
                    skips.append(skip)
                except Exception as error:
                    error.add_note(f"with {name} = {case!r}")
                    errors.append(error)
            if errors:
                errors[0].add_note(f"{len(errors)} of {len(cases)} cases failed")
                raise errors[0]
            if len(skips) == len(cases):
                raise skips[0]

        signature = inspect.signature(test)
        kept = [own for own in signature.parameters.values() if own.name != name]
        assert len(kept) + 1 == len(signature.parameters), f"{test.__name__} has no argument {name!r}"
        run.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return run

    return decorate
