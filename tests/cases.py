"""Cases of a test within one test, where each takes less time than pytest takes for a test."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def each(name: str, values: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call a test for each value of an argument, as ``pytest.mark.parametrize`` does, but as one test.

    All values are tried; the first failure is raised, with a note of all values that failed. It is skipped if all are.
    """
    cases = list(values)
    assert cases, f"no values of {name}"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(*args: Any, **kwargs: Any) -> None:
            errors: list[BaseException] = []
            skips: list[BaseException] = []
            failed: list[Any] = []
            for case in cases:
                try:
                    test(*args, **kwargs, **{name: case})
                except pytest.skip.Exception as skip:
                    skips.append(skip)
                except (Exception, pytest.fail.Exception) as error:
                    errors.append(error)
                    failed.append(case)
            if errors:
                errors[0].add_note(f"with {name} = {failed[0]!r}")
                errors[0].add_note(f"{len(failed)} of {len(cases)} cases failed: {', '.join(map(str, failed))}")
                raise errors[0]
            if len(skips) == len(cases):
                raise skips[0]

        signature = inspect.signature(test)
        kept = [own for own in signature.parameters.values() if own.name != name]
        assert len(kept) + 1 == len(signature.parameters), f"{test.__name__} has no argument {name!r}"
        run.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return run

    return decorate
