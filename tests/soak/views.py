"""Arrays beside ndarrays: the same sequence of views, assignments and looks at the elements on both."""

from __future__ import annotations

import copy
import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
from arrays import assert_same

import cukern

from .core import Case
from .draw import MEMORIES, dtype_of, is_bfloat16, shape_of, values_of

Pair = tuple[Any, Any]  # an Array, and the ndarray that it should be


def key_of(case: Case, shape: tuple[int, ...]) -> Any:
    """Return an index: integers, slices, new axes, an ellipsis; seldom one out of bounds or too many."""
    key: list[Any] = []
    ellipsis = case.random.randint(0, len(shape)) if case.chance(0.3) else -1
    for axis, n in enumerate(shape):
        if axis == ellipsis:
            key.append(...)
        if case.chance(0.1):
            key.append(None)
        match case.random.randrange(8):
            case 0 | 1 if n:
                key.append(case.random.randrange(-n, n) if case.chance(0.97) else n)
            case 2:
                break
            case 3 | 4:
                key.append(slice(None))
            case _:
                bounds = [None if case.chance(0.4) else case.random.randint(-n - 2, n + 2) for _ in range(2)]
                key.append(slice(*bounds, case.pick([None, 1, 2, 3, -1, -2, 10**20])))
    if case.chance(0.01):
        key += [0] * 3
    return tuple(key) if len(key) != 1 or case.chance(0.5) else key[0]


def numpys_key(key: Any) -> tuple[Any, ...]:
    """Return the index that gives a view also where all dimensions are indexed."""
    key = key if type(key) is tuple else (key,)
    return key if any(each is ... for each in key) else (*key, ...)


def both(case: Case, name: str, mine: Callable[[], Any], theirs: Callable[[], Any]) -> Pair | None:
    """Do the same to both; None where both refuse it."""
    case.note(name)
    try:
        wanted = theirs()
    except (IndexError, ValueError, TypeError, OverflowError) as error:
        kinds: tuple[type[BaseException], ...] = (IndexError, ValueError, TypeError, OverflowError)
        case.refuses(kinds, mine, f"NumPy raises {type(error).__name__}: {error}")
        return None
    return mine(), wanted


def same(case: Case, a: Any, wanted: Any, what: str) -> None:
    """Assert that an Array is what an ndarray is."""
    wanted = np.asarray(wanted)
    case.check(type(a) is cukern.Array, f"{what}: a {type(a).__name__}")
    told = (a.shape, a.ndim, a.size, a.nbytes, a.itemsize)
    expected = (wanted.shape, wanted.ndim, wanted.size, wanted.nbytes, wanted.itemsize)
    case.check(told == expected, f"{what}: {told}; expected {expected}")
    case.check(str(a.dtype) == str(wanted.dtype), f"{what}: {a.dtype}; expected {wanted.dtype}")
    compare_values(cukern.asnumpy(a), wanted)


def compare_values(actual: np.ndarray, wanted: np.ndarray) -> None:
    if is_bfloat16(wanted.dtype):
        actual, wanted = actual.astype(np.float32), wanted.astype(np.float32)
    assert_same(actual, wanted)


def indexed(case: Case, pair: Pair) -> Pair | None:
    a, wanted = pair
    key = key_of(case, wanted.shape)
    return both(case, f"a[{key}]", lambda: a[key], lambda: wanted[numpys_key(key)])


def shape_for(case: Case, wanted: np.ndarray) -> tuple[int, ...]:
    """Return a shape of as many elements, mostly."""
    left, shape = wanted.size, []
    while left > 1 and case.chance(0.7):
        n = case.pick([k for k in range(1, min(left, 60) + 1) if left % k == 0])
        shape.append(n)
        left //= n
    shape.insert(case.random.randint(0, len(shape)), left if case.chance(0.6) else -1)
    if case.chance(0.03):
        shape.append(2)
    return tuple(shape)


def reshaped(case: Case, pair: Pair) -> Pair | None:
    """The result of NumPy may share memory where ours does not, or not: both are copied."""
    a, wanted = pair
    shape = shape_for(case, wanted)
    kept = case.pick([None, None, None, True])
    found = both(
        case, f"a.reshape({shape}, copy={kept})", lambda: a.reshape(shape, copy=kept), lambda: wanted.reshape(shape)
    )
    return None if found is None else (found[0].copy(), found[1].copy())


def transposed(case: Case, pair: Pair) -> Pair | None:
    a, wanted = pair
    axes = list(range(wanted.ndim))
    case.random.shuffle(axes)
    axes = [axis - wanted.ndim * case.chance(0.3) for axis in axes]
    match case.random.randrange(4):
        case 0:
            return both(case, "a.T", lambda: a.T, lambda: wanted.T)
        case 1:
            return both(case, "cukern.transpose(a)", lambda: cukern.transpose(a), wanted.transpose)
        case 2 if case.chance(0.1):
            return both(case, "a.transpose(0, 0)", lambda: a.transpose(0, 0), lambda: wanted.transpose(0, 0))
        case _:
            text = f"a.transpose({axes})"
            return both(case, text, lambda: a.transpose(*axes), lambda: wanted.transpose(*axes))


def squeezed(case: Case, pair: Pair) -> Pair | None:
    a, wanted = pair
    axis = None if case.chance(0.6) or not wanted.ndim else case.random.randrange(-wanted.ndim, wanted.ndim)
    if case.chance(0.5):
        return both(case, f"a.squeeze({axis})", lambda: a.squeeze(axis), lambda: wanted.squeeze(axis))
    at = case.random.randint(-wanted.ndim - 1, wanted.ndim)
    return both(case, f"expand_dims(a, {at})", lambda: cukern.expand_dims(a, at), lambda: np.expand_dims(wanted, at))


def raveled(case: Case, pair: Pair) -> Pair | None:
    a, wanted = pair
    found = both(case, "a.ravel()", a.ravel, wanted.ravel)
    return None if found is None else (found[0].copy(), found[1].copy())


def widened(case: Case, pair: Pair) -> Pair | None:
    a, wanted = pair
    shape = (*(case.pick([(), (2,), (0,), (1, 2)])), *(case.pick([n, n, 3]) if n == 1 else n for n in wanted.shape))
    if np.prod(shape, dtype=float) > 1e5:
        return None
    text = f"broadcast_to(a, {shape})"
    return both(case, text, lambda: cukern.broadcast_to(a, shape), lambda: np.broadcast_to(wanted, shape))


def copied(case: Case, pair: Pair) -> Pair:
    a, wanted = pair
    case.note("copies of a")
    match case.random.randrange(5):
        case 0:
            return a.copy(), wanted.copy()
        case 1:
            return copy.deepcopy(a), wanted.copy()
        case 2:
            return pickle.loads(pickle.dumps(a, case.random.randint(0, 5))), wanted.copy()
        case 3:
            buffers: list[Any] = []
            data = pickle.dumps(a, 5, buffer_callback=buffers.append)
            return pickle.loads(data, buffers=buffers), wanted.copy()
        case _:
            memory = case.pick(MEMORIES)
            return cukern.copy(a, memory=memory), wanted.copy()


def cast(case: Case, pair: Pair) -> Pair | None:
    a, wanted = pair
    to = dtype_of(case)
    with np.errstate(all="ignore"):
        tame = np.nan_to_num(np.asarray(wanted).astype(np.complex128), nan=0, posinf=1, neginf=1)
    if to.kind in "biu" and wanted.dtype.kind not in "biu" and (abs(tame) > 100).any():
        return None  # what does not fit is undefined
    if (
        to.kind in "biu"
        and wanted.dtype.kind not in "biu"
        and not np.isfinite(np.asarray(wanted).astype(complex)).all()
    ):
        return None
    if to.kind == "u" and wanted.dtype.kind in "fcV" and (tame.real < 0).any():
        return None
    if (is_bfloat16(to) and wanted.dtype.itemsize > 4) or (is_bfloat16(to) and wanted.dtype.kind in "iu"):
        return None  # ml_dtypes rounds twice
    with np.errstate(all="ignore"):
        return both(case, f"a.astype({to})", lambda: a.astype(to), lambda: wanted.astype(to))


def joined(case: Case, pair: Pair) -> Pair | None:
    a, wanted = pair
    axis = case.random.randrange(-wanted.ndim - 1, wanted.ndim + 1) if case.chance(0.7) else 0
    other = a[::-1] if wanted.ndim and case.chance(0.5) else a
    model = wanted[::-1] if other is not a else wanted
    name = case.pick(["concat", "stack"])
    if name == "concat" and case.chance(0.2):
        axis = None  # type: ignore[assignment]
    mine, theirs = getattr(cukern, name), {"concat": np.concatenate, "stack": np.stack}[name]
    with np.errstate(all="ignore"):
        return both(
            case,
            f"{name}([a, other, a], axis={axis})",
            lambda: mine([a, other, a], axis=axis),
            lambda: theirs([wanted, model, wanted], axis=axis),
        )


VIEWS: list[Callable[[Case, Pair], Pair | None]] = [
    *(indexed, indexed, indexed, indexed, reshaped, transposed, transposed, squeezed, raveled, widened, copied),
    *(cast, joined),
]


def assign(case: Case, pair: Pair) -> None:
    """Assign to some elements: numbers, arrays, lists, other elements of the same array."""
    a, wanted = pair
    if not wanted.flags.writeable:
        case.refuses((ValueError,), lambda: operator.setitem(a, ..., 0), "it is read-only")
        return
    key = key_of(case, wanted.shape)
    try:
        part = wanted[numpys_key(key)]
    except IndexError:
        case.refuses((IndexError,), lambda: operator.setitem(a, key, 0), "NumPy's index is out of bounds")
        return
    dtype = wanted.dtype
    match case.random.randrange(6):
        case 0:
            value = model = case.pick([0, 1, 3, True])
        case 1 if np.ndim(part):
            value, model = a[key], part.copy()
            flip = slice(None, None, -1)
            value, model = value[flip], model[flip]
        case 2 if wanted.ndim and wanted.shape[0] > 1:
            case.note("a[1:] = a[:-1]")
            operator.setitem(a, slice(1, None), a[:-1])
            wanted[1:] = wanted[:-1].copy()
            return
        case 3 if wanted.ndim == 2 and wanted.shape[0] == wanted.shape[1]:
            case.note("a[...] = a.T")
            a[...] = a.T
            wanted[...] = wanted.T.copy()
            return
        case 4:
            value = model = values_of(case, np.shape(part), dtype, tame=True).tolist()
        case _:
            model = values_of(case, np.shape(part)[case.random.randint(0, np.ndim(part)) :], dtype)
            value = cukern.asarray(model, memory=case.pick(MEMORIES)) if case.chance(0.6) else model
    with np.errstate(all="ignore"):
        both(
            case,
            f"a[{key}] = {type(value).__name__}",
            lambda: operator.setitem(a, key, value),
            lambda: operator.setitem(wanted, numpys_key(key), model),
        )


IN_PLACE = [operator.iadd, operator.isub, operator.imul]


def update(case: Case, pair: Pair) -> None:
    """Operate in place, or fill."""
    a, wanted = pair
    if not wanted.flags.writeable or wanted.dtype.kind == "b" or is_bfloat16(wanted.dtype):
        return
    if case.chance(0.3):
        value = case.pick([0, 1, 2, True])
        case.note(f"a.fill({value})")
        a.fill(value)
        wanted.fill(value)
        return
    function = case.pick(IN_PLACE[: 2 if wanted.dtype.kind == "c" else 3])  # complex products are rounded otherwise
    other = case.pick([1, 2, "itself"])
    case.note(f"{function.__name__}(a, {other})")
    with np.errstate(all="ignore"):
        result = function(a, a if other == "itself" else other)
        function(wanted, wanted if other == "itself" else other)
    case.check(result is a, f"{function.__name__} returned another object")


def look(case: Case, pair: Pair) -> None:
    """Ask for what both tell of themselves."""
    a, wanted = pair
    if is_bfloat16(wanted.dtype):
        return
    pick = case.pick(["tolist", "item", "number", "text", "len", "flags", "array", "format", "contains", "list"])
    case.note(f"{pick} of a")
    with np.errstate(all="ignore"):
        match pick:
            case "tolist":
                case.check(repr(a.tolist()) == repr(wanted.tolist()), f"tolist: {a.tolist()!r:.200}")
            case "item":
                if wanted.size:
                    at = tuple(case.random.randrange(-n, n) for n in wanted.shape)
                    case.check(repr(a.item(*at)) == repr(wanted.item(*at)), f"item{at}: {a.item(*at)}")
            case "number":
                kind = case.pick([int, float, complex, bool, operator.index])
                numbers(case, kind, a, wanted)
            case "text":
                case.check(str(a).startswith("Array("), f"str: {a}")
            case "len":
                both(case, "len(a)", lambda: len(a), lambda: len(wanted))
                if wanted.ndim and wanted.shape[0] < 20:
                    for own, other in zip(a, wanted, strict=True):
                        same(case, own, other, "an item")
            case "flags":
                for name in ("C_CONTIGUOUS", "F_CONTIGUOUS"):
                    like = np.lib.stride_tricks.as_strided(np.zeros(1, wanted.dtype), a.shape, a.strides)
                    case.check(a.flags[name] == like.flags[name], f"flags[{name!r}] of {a.shape} {a.strides}")
            case "array":
                if a.memory != "device":
                    compare_values(np.asarray(a), wanted)
            case "format":
                case.check(format(a, "") == str(a), f"format: {a}")
            case "list":
                beside_list(case, a, wanted)
            case "contains" if wanted.ndim == 1 and wanted.size and wanted.dtype.kind in "biu":
                value = wanted.ravel()[0].item()
                case.check((value in a) == (value in wanted), f"{value} in a")


def beside_list(case: Case, a: Any, wanted: np.ndarray) -> None:
    """Use an operator on an Array and a list: refused, or as NumPy's."""
    values = case.pick([[1], [1, 2], [[1], [2]], []])
    function = case.pick([operator.add, operator.mul, operator.sub, operator.lt])
    pair = case.pick([0, 1])
    case.note(f"{function.__name__} of a {wanted.dtype}{wanted.shape} and {values}, {'reversed' if pair else ''}")
    try:
        result = function(values, a) if pair else function(a, values)
    except (TypeError, ValueError) as error:
        case.check(str(error), "an error without a message")
        case.refused += 1
        return
    case.check(type(result) in (cukern.Array, np.ndarray), f"{function.__name__} gives a {type(result).__name__}")
    model = function(values, wanted) if pair else function(wanted, values)
    actual = cukern.asnumpy(result)
    case.check(np.array_equal(actual, model, equal_nan=wanted.dtype.kind in "fc"), f"{actual!r:.100} != {model!r:.100}")


def numbers(case: Case, kind: Any, a: Any, wanted: np.ndarray) -> None:
    """Compare a conversion to one of Python's numbers."""
    if wanted.size == 1 and wanted.ndim:
        return  # the array API standard leaves it open, NumPy refuses it
    try:
        model = kind(wanted)
    except (TypeError, ValueError, OverflowError) as error:
        case.refuses((TypeError, ValueError, OverflowError), lambda: kind(a), f"NumPy raises {error}")
        return
    case.check(repr(kind(a)) == repr(model), f"{kind.__name__}: {kind(a)}; expected {model}")


def run(case: Case) -> None:
    """Run one case."""
    values = values_of(case, shape_of(case, 4, 400), dtype_of(case))
    wanted = np.array(values)
    memory = case.pick(MEMORIES)
    pairs: list[Pair] = [(case.call("asarray", cukern.asarray, values, memory=memory), wanted)]
    for _ in range(case.random.randint(3, 12)):
        pair = case.pick(pairs)
        match case.random.randrange(6):
            case 0:
                assign(case, pair)
            case 1:
                update(case, pair)
            case 2:
                look(case, pair)
            case _:
                made = case.pick(VIEWS)(case, pair)
                if made is not None:
                    same(case, *made, "a view or copy")
                    pairs.append((made[0], np.asarray(made[1])))
    for own, model in pairs:
        same(case, own, model, "in the end")
