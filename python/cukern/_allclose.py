"""`allclose`: whether two arrays are the same within a tolerance."""

from __future__ import annotations

import cmath
from typing import Any

import numpy as np

from . import _cukern

NUMBERS = bool | int | float | complex


def allclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Whether all elements of two arrays are close: ``abs(a - b) <= atol + rtol * abs(b)``, as `numpy.allclose`.

    Parameters
    ----------
    a, b : array of any kind, or number
        Of shapes that broadcast; `b` is the one that is compared with.
    rtol, atol : float
        The tolerance beside `b`, and the one beside zero.
    equal_nan : bool
        Whether NaN is close to NaN. Infinities are close to themselves alone.

    Returns
    -------
    bool
        Waits for the result.

    Notes
    -----
    Raises TypeError for what is no array or number, ValueError for shapes that do not broadcast.

    Examples
    --------
    >>> import cukern
    >>> cukern.allclose(cukern.ones(3), 1 + 1e-9)
    True
    """
    a, b = (each.item() if isinstance(each, np.generic) else each for each in (a, b))
    is_number = isinstance(b, NUMBERS)
    if is_number and isinstance(a, NUMBERS):
        return bool(np.isclose(a, b, rtol, atol, equal_nan))
    if is_number:
        b = complex(b) if isinstance(b, complex) else float(b)
    else:
        b = _cukern.astype(b, _cukern.result_type(b, 1.0), copy=False)
    # Of floats, whose differences do not wrap.
    distance = _cukern.abs(_cukern.subtract(a, b))
    if is_number:
        limit = atol + rtol * abs(b) if cmath.isfinite(b) else -1.0
        close = _cukern.less_equal(distance, limit)
    else:
        close = _cukern.less_equal(distance, _cukern.add(_cukern.multiply(_cukern.abs(b), rtol), atol))
        close = _cukern.logical_and(close, _cukern.isfinite(b))
    close = _cukern.logical_or(close, _cukern.equal(a, b))
    if equal_nan:
        first, second = (cmath.isnan(each) if isinstance(each, NUMBERS) else _cukern.isnan(each) for each in (a, b))
        if first is not False and second is not False:
            both = second if first is True else first if second is True else _cukern.logical_and(first, second)
            close = _cukern.logical_or(close, both)
    return bool(_cukern.all(close))
