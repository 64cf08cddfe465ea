"""`progress`: how far work on large arrays of the host is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import ContextVar, Token
from importlib import import_module
from types import TracebackType
from typing import Any, Literal

ACTIVE: ContextVar[progress | None] = ContextVar("cukern.progress", default=None)
SECONDS = 1.0  # that work takes before it is reported


class progress:
    """Report work on large arrays of the host's memory that goes over the link, for a block of code.

    Such work goes in chunks: elementwise operations, matrix products, `asarray`, `asnumpy`, `copyto`. What takes less
    than about a second is not reported.

    Parameters
    ----------
    callback : callable or True
        Called as ``callback(done, total)`` with numbers of chunks, some 50 times a second at most, on the thread that
        waits for the work, and at the end with ``done == total``. An exception that it raises ends the work. True: a
        bar, by tqdm where that is installed, else as text on the standard error stream.

    Examples
    --------
    >>> import cukern, numpy
    >>> with cukern.progress(print):
    ...     a = cukern.add(numpy.ones(3), 1)  # too short to be reported
    """

    def __init__(self, callback: Callable[[int, int], Any] | Literal[True] = True) -> None:
        if callback is not True and not callable(callback):
            raise TypeError(f"progress: callback must be callable or True, got {callback!r}")
        self._callback = callback
        self._tokens: list[Token[progress | None]] = []
        self._bar: Any = None

    def __enter__(self) -> progress:
        self._tokens.append(ACTIVE.set(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        ACTIVE.reset(self._tokens.pop())

    def _tell(self, done: int, total: int) -> None:
        if self._callback is not True:
            self._callback(done, total)
            return
        if self._bar is None:
            self._bar = _new_bar(total)
        self._bar.update(done - self._bar.n)

    def _end(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class TextBar:
    """A bar of text, as tqdm's."""

    WIDTH = 40

    def __init__(self, total: int) -> None:
        self.n = 0
        self.total = total

    def update(self, more: int) -> None:
        """Show that so many more are done."""
        self.n += more
        full = self.WIDTH * self.n // self.total
        print(f"\r|{'#' * full:<{self.WIDTH}}| {self.n}/{self.total}", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        """End the line."""
        print(file=sys.stderr)


def _new_bar(total: int) -> Any:
    try:
        tqdm = import_module("tqdm")
    except ImportError:
        return TextBar(total)
    return tqdm.tqdm(total=total, unit="chunk")


def report(done: int, total: int, seconds: float) -> bool:
    """Tell the innermost block's callback; whether there is one. Called by the extension."""
    active = ACTIVE.get()
    if active is None or seconds < SECONDS:
        return False
    token = ACTIVE.set(None)  # calls that the callback makes are not reported to it
    try:
        active._tell(done, total)
    finally:
        ACTIVE.reset(token)
    return True


def end() -> None:
    """End what has been reported. Called by the extension."""
    active = ACTIVE.get()
    if active is not None:
        active._end()
