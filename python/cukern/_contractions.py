"""`tensordot` and `einsum`: sums over products of two arrays, as matrix products.

Idea: dimensions of both arrays that stay are a batch, those that are summed over come last in `a` and first in `b`, and
the others become the rows and columns of matrices. What brings them there are views, and copies only where dimensions
that become one do not lie so.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from . import _cukern


def _as_array(function: str, name: str, value: Any) -> Any:
    """Return what has a shape: buffers as ndarrays."""
    if isinstance(value, bool | int | float | complex | list | tuple | str) or value is None:
        raise TypeError(f"{function}: {name} is of type {type(value).__name__}; pass an array")
    if hasattr(value, "reshape"):
        return value
    has_protocol = hasattr(value, "__dlpack__") or hasattr(value, "__cuda_array_interface__")
    return _cukern.asarray(value) if has_protocol else np.asarray(value)


def _permuted(value: Any, axes: Sequence[int]) -> Any:
    """Return a view with the dimensions in another order, by the array's own library."""
    if list(axes) == list(range(len(axes))):
        return value
    permute = getattr(value, "permute", None)  # torch's; its transpose swaps two
    return permute(*axes) if permute is not None else value.transpose(tuple(axes))


def _contract(a: Any, b: Any, batch: Sequence[tuple[int, int]], summed: Sequence[tuple[int, int]]) -> Any:
    """Return the sum over `summed` of products, of dimensions `batch`, and a's and b's others."""
    left, right = [x for x, _ in batch], [y for _, y in batch]
    rows = [axis for axis in range(len(a.shape)) if axis not in left and axis not in [x for x, _ in summed]]
    columns = [axis for axis in range(len(b.shape)) if axis not in right and axis not in [y for _, y in summed]]
    lengths = [a.shape[axis] for axis in left]
    m, n = [a.shape[axis] for axis in rows], [b.shape[axis] for axis in columns]
    k = math.prod(a.shape[x] for x, _ in summed)
    matrices = _permuted(a, [*left, *rows, *(x for x, _ in summed)]).reshape((*lengths, math.prod(m), k))
    others = _permuted(b, [*right, *(y for _, y in summed), *columns]).reshape((*lengths, k, math.prod(n)))
    return _cukern.matmul(matrices, others).reshape((*lengths, *m, *n))


def _into(result: Any, out: Any, function: str) -> Any:
    """Return the result, or `out` with its elements."""
    if out is None:
        return result
    shape = out.shape if hasattr(out, "shape") else np.asarray(out).shape
    if tuple(shape) != tuple(result.shape):
        raise ValueError(f"{function}: out has shape {tuple(shape)}; the result has {tuple(result.shape)}")
    _cukern.copyto(out, result)
    return out


def _axis(axis: int, ndim: int, name: str) -> int:
    if not -ndim <= axis < ndim:
        raise ValueError(f"tensordot: axis {axis} is out of bounds for {name} of {ndim} dimensions")
    return axis % ndim


def tensordot(a: Any, b: Any, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2, out: Any = None) -> Any:
    """Sum products of the elements of two arrays over some dimensions, as `numpy.tensordot`.

    Parameters
    ----------
    a, b : array of any kind
        Of any element type.
    axes : int, or two sequences of int
        How many of a's last and of b's first dimensions are summed over; or which of a's, and which of b's.
    out : array of the result's shape, optional
        Takes the result, and is returned.

    Returns
    -------
    array of the kind of `a`, or `out`
        Of a's other dimensions and then b's, and of the promoted type.

    Notes
    -----
    Raises TypeError for what is no array; ValueError for axes that are not there, or whose lengths differ.

    Examples
    --------
    >>> import cukern
    >>> cukern.tensordot(cukern.ones((2, 3, 4)), cukern.ones((3, 4, 5))).shape
    (2, 5)
    """
    a, b = _as_array("tensordot", "a", a), _as_array("tensordot", "b", b)
    of_a, of_b = len(a.shape), len(b.shape)
    if not isinstance(axes, Iterable):
        axes = operator.index(axes)
        if axes < 0 or axes > min(of_a, of_b):
            raise ValueError(f"tensordot: axes is {axes}; expected 0 to {min(of_a, of_b)}")
        left, right = list(range(of_a - axes, of_a)), list(range(axes))
    else:
        first, second = (list(each) if isinstance(each, Iterable) else [operator.index(each)] for each in axes)
        left, right = [_axis(x, of_a, "a") for x in first], [_axis(y, of_b, "b") for y in second]
    if len(left) != len(right) or len(set(left)) != len(left) or len(set(right)) != len(right):
        raise ValueError(f"tensordot: axes is {axes}; expected as many of a's as of b's, each once")
    for x, y in zip(left, right, strict=True):
        if a.shape[x] != b.shape[y]:
            raise ValueError(f"tensordot: dimension {x} of a has length {a.shape[x]}, {y} of b {b.shape[y]}")
    return _into(_contract(a, b, [], list(zip(left, right, strict=True))), out, "tensordot")


def _refuse(subscripts: str, why: str) -> ValueError:
    return ValueError(f"einsum: {subscripts!r}: {why}")


def _labels(subscripts: str, a: Any, b: Any) -> tuple[list[str], list[str], list[str]]:
    """Return a name for each dimension of both arrays and of the result; those of an ellipsis are numbers."""
    inputs, arrow, output = subscripts.replace(" ", "").partition("->")
    if inputs.count(",") != 1:
        raise _refuse(subscripts, "expected the subscripts of two arrays")
    found = []
    for text, value, name in zip(inputs.split(","), (a, b), "ab", strict=True):
        before, dots, after = text.partition("...")
        rest = len(value.shape) - len(before) - len(after)
        if rest < 0 or (rest > 0 and not dots):
            raise _refuse(subscripts, f"{name} has {len(value.shape)} dimensions")
        found.append([*before, *(str(i) for i in range(-rest, 0)), *after])
    counts = Counter(found[0] + found[1])
    widest = sorted({label for label in counts if label.startswith("-")}, key=int)
    if arrow:
        before, dots, after = output.partition("...")
        result = [*before, *(widest if dots else []), *after]
        if widest and not dots:
            raise _refuse(subscripts, "the result has no ellipsis")
    else:
        result = widest + sorted(label for label, count in counts.items() if count == 1 and label.isalpha())
    for label in [*counts, *result]:
        if not (label.isalpha() and len(label) == 1) and not label.startswith("-"):
            raise _refuse(subscripts, f"{label!r} is no letter")
    for each in (*found, result):
        if len(set(each)) != len(each):
            raise _refuse(subscripts, "a letter stands twice in one array")
    missing = [label for label in result if label not in counts]
    if missing:
        raise _refuse(subscripts, f"{missing[0]!r} of the result is in neither array")
    return found[0], found[1], result


def _reduced(value: Any, labels: list[str], kept: set[str], other: dict[str, int]) -> tuple[Any, list[str]]:
    """Sum over the dimensions that are of this array alone; drop those of length 1 that the other one repeats."""
    single = [i for i, label in enumerate(labels) if value.shape[i] == 1 and other.get(label, 1) != 1]
    summed = [i for i, label in enumerate(labels) if label not in kept and label not in other]
    if single:
        value = value.reshape([n for i, n in enumerate(value.shape) if i not in single])
        labels, summed = _without(labels, single), [i - sum(j < i for j in single) for i in summed]
    if summed:
        axes = tuple(summed)
        name = _name_of(value.dtype)
        wide = "float32" if name in ("float16", "bfloat16") else name
        value = _cukern.any(value, axes) if name == "bool" else _cukern.sum(value, axes, dtype=wide)
        labels = _without(labels, summed)
    return value, labels


def _name_of(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _without(labels: list[str], dropped: list[int]) -> list[str]:
    return [label for i, label in enumerate(labels) if i not in dropped]


def einsum(subscripts: str, a: Any, b: Any, /, *, out: Any = None) -> Any:
    """Sum products of the elements of two arrays over the dimensions that the result lacks, as `numpy.einsum`.

    Parameters
    ----------
    subscripts : str
        A letter for each dimension, as in ``'bij,bjk->bik'``; ``...`` for those that broadcast. Without an arrow the
        result has the letters that stand once, in alphabetical order. No letter stands twice in one array.
    a, b : array of any kind
        Of any element type.
    out : array of the result's shape, optional
        Takes the result, and is returned.

    Returns
    -------
    array of the kind of `a`, or `out`
        Of the promoted type.

    Notes
    -----
    Raises TypeError for what is no array; ValueError for subscripts that do not fit.

    Examples
    --------
    >>> import cukern
    >>> cukern.einsum("ij,kj->ki", cukern.ones((2, 3)), cukern.ones((4, 3))).shape
    (4, 2)
    """
    a, b = _as_array("einsum", "a", a), _as_array("einsum", "b", b)
    of_a, of_b, result = _labels(subscripts, a, b)
    type_ = _cukern.result_type(a, b)
    lengths_a, lengths_b = dict(zip(of_a, a.shape, strict=True)), dict(zip(of_b, b.shape, strict=True))
    for label in of_a:
        x, y = lengths_a[label], lengths_b.get(label, 1)
        if x not in (y, 1) and y != 1:
            raise _refuse(subscripts, f"{label!r} has length {x} in a and {y} in b")
    kept = set(result)
    a, of_a = _reduced(a, of_a, kept, lengths_b)
    b, of_b = _reduced(b, of_b, kept, lengths_a)
    # What one array has left out, the other one may have to be summed over alone.
    a, of_a = _reduced(a, of_a, kept, dict(zip(of_b, b.shape, strict=True)))
    b, of_b = _reduced(b, of_b, kept, dict(zip(of_a, a.shape, strict=True)))
    shared = [label for label in of_a if label in of_b]
    batch = [label for label in shared if label in kept]
    places = {label: (of_a.index(label), of_b.index(label)) for label in shared}
    product = _contract(a, b, [places[x] for x in batch], [places[x] for x in shared if x not in kept])
    order = [*batch, *(x for x in of_a if x not in shared), *(x for x in of_b if x not in shared)]
    if _name_of(product.dtype) != _name_of(type_):  # 16-bit floats, of which some were summed in float32
        product = _cukern.astype(product, type_)
    return _into(_permuted(product, [order.index(label) for label in result]), out, "einsum")
