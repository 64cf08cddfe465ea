"""Which loops the host back-end computes by: NumPy's, as users have it, or the formulas that a GPU has.

Apart from conftest.py, which looks for a GPU when it is imported: random calls (tests/soak) import this, too.
"""

from __future__ import annotations

import cukern
from cukern import _cukern

_state = {"are_numpys": True}


def use_numpy_loops(use: bool) -> None:
    """Have the host back-end take NumPy's loops, or, as host-staged does, the formulas that a GPU has."""
    if _state["are_numpys"] != use:
        _cukern.backend()  # which hands them over
        _cukern._use_numpy_loops(use)
        _state["are_numpys"] = use


def takes_numpy_loops() -> bool:
    """Whether operations are computed by NumPy's loops at this moment."""
    return _state["are_numpys"] and cukern.backend() == "host"
