"""Elementwise operations: every row of the table, mixed types and numbers, broadcasts, layouts, every form of out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from arrays import assert_same
from oracles import ELEMENT_TYPES, FUNCTIONS, ORACLES, STEPWISE, assert_result, refusal

import cukern
from cukern import _cukern

from .accepted import is_accepted
from .core import Case, describe
from .draw import BFLOAT16, Operand, dtype_of, is_bfloat16, number, operand, parts_of, place_of, shape_of

ROWS = {row["name"]: row["kind"] for row in _cukern._table if row["kind"] not in ("reduction", "matmul")}
ARITY = {"unary": 1, "binary": 2, "scalar": 2, "choice": 3, "axpy": 3}
REFUSALS = (TypeError, ValueError, OverflowError)
NUMBERS = (bool, int, float, complex)
LARGEST_RESULT = 1_000_000  # elements


def location(subject: Any) -> str:
    """Return whether an operand is in the host's memory, in the device's alone, or in memory of both."""
    if type(subject) is cukern.Array:
        return "device" if subject.memory == "device" else "both"
    return "host" if type(subject) is np.ndarray and subject.ndim else "number"


def mixed(subjects: list[Any]) -> bool:
    """Whether host and device memory come together, which is refused."""
    places = {location(subject) for subject in subjects}
    return {"host", "device"} <= places


def doubtful(subjects: list[Any]) -> bool:
    """Whether a host array without dimensions comes beside device memory: as a value, or refused."""
    alone = any(type(subject) is np.ndarray and not subject.ndim for subject in subjects)
    return alone and any(location(subject) == "device" for subject in subjects)


def size_of(shape: tuple[int, ...]) -> int:
    """Return the most elements that operands which broadcast to this shape have, empty dimensions counted as one."""
    return math.prod(max(n, 1) for n in shape)


def draw_operands(case: Case, name: str) -> list[Operand]:
    """Return operands that mostly go together."""
    kind = ROWS[name]
    shape = shape_of(case)
    place = place_of(case)
    alike = dtype_of(case) if case.chance(0.5) else None
    operands: list[Operand] = []
    room = LARGEST_RESULT // size_of(shape)
    for i in range(ARITY[kind]):
        is_factor = (name == "scale" and i == 1) or (name == "axpy" and i == 0)
        if is_factor or (len(operands) + 1 < 4 and case.chance(0.12 if kind != "unary" else 0.03)):
            value = number(case)
            operands.append(Operand(value, value, "number"))
            continue
        dtype = alike or dtype_of(case)
        if name == "where" and i == 0 and case.chance(0.7):
            dtype = np.dtype(bool)
        own = place
        if case.chance(0.08):
            own = place_of(case)
        part = shape if ARITY[kind] == 1 or case.chance(0.6) else parts_of(case, shape)
        if case.chance(0.01):
            other = shape_of(case)
            if size_of(other) <= room:  # it may broadcast with the others all the same, to the product of their sizes
                part, room = other, room // size_of(other)
        operands.append(operand(case, part, dtype, own))
    if any(is_bfloat16(getattr(x.model, "dtype", None)) for x in operands):
        return [tamed(case, x) for x in operands]
    return operands


def tamed(case: Case, given: Operand) -> Operand:
    """Beside bfloat16, return small whole numbers: others would be rounded twice on their way to it."""
    if isinstance(given.model, np.ndarray) and not is_bfloat16(given.model.dtype):
        return operand(case, given.model.shape, given.model.dtype, given.place, tame=True)
    if not isinstance(given.model, np.ndarray):
        value = case.pick([0, 1, -3, True, 2.5, 0.5, 7])
        return Operand(value, value, "number")
    return given


def bfloat16_type(name: str, models: list[Any]) -> np.dtype:
    """Return the type that operands of which one is of bfloat16 are converted to."""
    result: Any = BFLOAT16
    taken = models[1:] if name == "where" else models
    for model in taken:
        dtype = getattr(model, "dtype", None)
        if dtype is None:
            if isinstance(model, complex) and result.kind != "c":
                result = np.result_type(np.complex64, np.float32 if is_bfloat16(result) else result)
        elif dtype.kind in "fc" and not is_bfloat16(dtype):
            both = np.float32 if is_bfloat16(result) else result
            result = np.result_type(np.float32, dtype, both) if dtype == np.float16 else np.result_type(dtype, both)
    return np.dtype(result)


def bfloat16_expected(name: str, models: list[Any], dtype: np.dtype) -> np.ndarray:
    """Return the exact result, in float64 where it is to be rounded to bfloat16."""
    x = [np.asarray(model).astype(dtype) for model in models]
    if name == "where":
        return np.where(np.asarray(models[0]).astype(bool), *x[1:])
    compute = np.dtype(np.float32 if name in STEPWISE else np.float64)
    with np.errstate(all="ignore"):
        if name == "nextafter":
            return np.nextafter(*x)
        if name in ("isfinite", "isinf", "isnan", "signbit", "sign", "round"):
            return np.asarray(ORACLES[name](*(v.astype(np.float32) for v in x)))
        return np.asarray(ORACLES[name](*(v.astype(compute) for v in x)))


def compare_bfloat16(case: Case, actual: np.ndarray, name: str, models: list[Any], dtype: np.dtype) -> None:
    """Compare a result that is computed in bfloat16, to a unit in the last place of functions."""
    wide = bfloat16_expected(name, models, dtype)
    case.check(actual.shape == wide.shape, f"shape {actual.shape}; expected {wide.shape}")
    if wide.dtype == bool:
        case.check(np.array_equal(actual, wide), f"{actual.ravel()[:5]} != {wide.ravel()[:5]}")
        return
    assert BFLOAT16 is not None
    case.check(actual.dtype == BFLOAT16, f"element type {actual.dtype}; expected bfloat16")
    with np.errstate(all="ignore"):
        wanted = wide.astype(BFLOAT16)
        same = (actual == wanted) | (np.isnan(actual) & np.isnan(wanted))
        if name in (*FUNCTIONS, "axpy"):
            unit = np.exp2(np.floor(np.log2(np.maximum(abs(wide.astype(float)), 2.0**-126))) - 7)
            size = np.max(np.broadcast_arrays(*(abs(np.asarray(v).astype(float)) for v in models)), axis=0)
            extra = size * 2.0**-7 if name == "logaddexp" else 0
            same |= abs(actual.astype(float) - wide.astype(float)) <= np.maximum(unit, extra)
    case.check(same.all(), f"{actual[~same][:5]} != {wanted[~same][:5]}")


def compare(case: Case, result: Any, name: str, models: list[Any]) -> None:
    """Compare a result with NumPy's, or with the rules for bfloat16."""
    actual = cukern.asnumpy(result) if type(result) is cukern.Array else result
    if name == "where":  # the condition has no part in the element type
        models = [np.asarray(models[0]).astype(bool), *models[1:]]
    if any(is_bfloat16(getattr(model, "dtype", None)) for model in models[name == "where" :]):
        dtype = bfloat16_type(name, models)
        if is_bfloat16(dtype):
            if name != "axpy":  # in how many steps it is rounded is left open
                compare_bfloat16(case, actual, name, models, dtype)
            return
        models = [m if name == "where" and not i else np.asarray(m).astype(dtype) for i, m in enumerate(models)]
    if name == "axpy":
        compare_axpy(case, actual, models)
        return
    assert_result(actual, name, *models)


def compare_axpy(case: Case, actual: np.ndarray, models: list[Any]) -> None:
    """Compare a * x + y in the type of all three: of floats to the rounding of the product and of the sum."""
    dtype = np.result_type(*models)
    of_arrays = np.result_type(models[0], np.result_type(*models[1:]))
    if actual.dtype == of_arrays:  # promotion is not associative, and NumPy has no axpy
        dtype = of_arrays
    a, x, y = (np.asarray(model).astype(dtype) for model in models)
    with np.errstate(all="ignore"):
        wanted = np.asarray(np.logical_or(np.logical_and(a, x), y) if dtype.kind == "b" else a * x + y)
    case.check(
        (actual.dtype, actual.shape) == (dtype, wanted.shape),
        f"{actual.dtype}{actual.shape}; expected {dtype}{wanted.shape}",
    )
    if dtype.kind in "biu":
        case.check(np.array_equal(actual, wanted), f"{actual.ravel()[:5]} != {wanted.ravel()[:5]}")
        return
    with np.errstate(all="ignore"):
        wide = np.clongdouble if dtype.kind == "c" else np.longdouble
        a, x, y = (value.astype(wide) for value in (a, x, y))
        info = np.finfo(dtype)
        size = abs(a) * abs(x) + abs(y)
        finite = np.isfinite(size) & (2 * size < info.max)
        bound = 6 * info.eps * size + 4 * info.smallest_subnormal
        close = abs(actual.astype(wide) - (a * x + y)) <= bound
        bad = finite & ~close
    case.check(not bad.any(), f"{actual[bad][:5]} != {wanted[bad][:5]}")


def wanted_refusal(name: str, operands: list[Operand], models: list[Any]) -> tuple[type[BaseException], ...] | None:
    """Return what a call has to raise, if anything."""
    try:
        np.broadcast_shapes(*(np.shape(model) for model in models))
    except ValueError:
        return (ValueError, TypeError, OverflowError)
    if mixed([x.own for x in operands]):
        return (TypeError, ValueError, OverflowError)
    standins = models
    if any(is_bfloat16(getattr(model, "dtype", None)) for model in models):
        standins = [np.asarray(m).astype(np.float32) if is_bfloat16(getattr(m, "dtype", None)) else m for m in models]
    if name == "axpy":  # NumPy has none: its element type is that of all three
        try:
            dtype = np.result_type(*standins)
            for model in standins:
                np.add(np.zeros(1, dtype), model if type(model) is int else 0)
        except OverflowError:
            return (OverflowError,)
        return None
    error = refusal(name, *standins)
    return None if error is None else (error,)


def run(case: Case) -> None:
    """Run one case."""
    if case.chance(0.04):
        clip_case(case)
        return
    name = case.pick(list(ROWS))
    operands = draw_operands(case, name)
    function = getattr(cukern, name)
    owns, models = [x.own for x in operands], [x.model for x in operands]
    if is_accepted(name, models) or doubtful(owns):
        return
    errors = wanted_refusal(name, operands, models)
    if errors is not None:
        case.refuses(errors, lambda: case.call(name, function, *owns), "NumPy refuses it, or memory does not mix")
        return
    kept = [model.copy() if isinstance(model, np.ndarray) else model for model in models]
    result = case.call(name, function, *owns)
    if name != "where" and type(owns[0]) is cukern.Array:
        case.check(type(result) is cukern.Array, f"a {type(result).__name__} was returned")
    compare(case, result, name, models)
    for given, before in zip(operands, kept, strict=True):
        if isinstance(before, np.ndarray):
            now = cukern.asnumpy(given.own) if type(given.own) is cukern.Array else given.own
            same = np.array_equal(np.ascontiguousarray(now).view(np.uint8), np.ascontiguousarray(before).view(np.uint8))
            case.check(same or before.size == 0, f"an operand was written to: {describe(given.own)}")
    if case.chance(0.5):
        try_out(case, name, operands, result)


def try_out(case: Case, name: str, operands: list[Operand], own: Any) -> None:
    """Call again with out=: of random types and layouts, in place, or overlapping."""
    function = getattr(cukern, name)
    owns = [x.own for x in operands]
    plain = cukern.asnumpy(own) if type(own) is cukern.Array else own
    arrays = [x for x in operands if type(x.own) in (np.ndarray, cukern.Array)]
    if case.chance(0.25) and arrays:
        in_place(case, name, owns, case.pick(arrays), plain)
        return
    place = arrays[0].place if arrays and case.chance(0.9) else place_of(case)
    shape = plain.shape if case.chance(0.95) else shape_of(case, 3, 100)
    target = plain.dtype if case.chance(0.4) else dtype_of(case)
    out = operand(case, shape, target, place, writable=True)
    if type(out.own) not in (np.ndarray, cukern.Array) or doubtful([*owns, out.own]):
        return
    reason = refused_out(plain, out.own, out.model, owns)
    if reason:
        case.refuses(REFUSALS, lambda: case.call(name, function, *owns, out=out.own), reason)
        return
    case.check(case.call(name, function, *owns, out=out.own) is out.own, "another object than out was returned")
    now = cukern.asnumpy(out.own) if type(out.own) is cukern.Array else np.array(out.own)
    compare_cast(now, plain, target)


def compare_cast(now: np.ndarray, plain: np.ndarray, target: np.dtype) -> None:
    with np.errstate(all="ignore"):
        wanted = plain.astype(target)
    if is_bfloat16(target):
        assert_same(now.astype(np.float32), wanted.astype(np.float32))
    else:
        assert_same(now, wanted)


def castable(source: np.dtype, target: np.dtype) -> bool:
    """Whether same_kind casting reaches the target."""
    source, target = (np.dtype(np.float32) if is_bfloat16(dtype) else dtype for dtype in (source, target))
    return np.can_cast(source, target, "same_kind")


def refused_out(plain: np.ndarray, out: Any, model: np.ndarray, owns: list[Any]) -> str:
    """Return why an out that overlaps nothing is refused, or nothing."""
    if model.shape != plain.shape:
        return "out has another shape"
    if not castable(plain.dtype, model.dtype):
        return "out's element type does not take the result"
    places = [location(x) for x in owns] + ["host" if type(out) is np.ndarray else location(out)]
    if {"host", "device"} <= set(places):
        return "host and device memory come together"
    return ""


def same_layout(a: Any, b: Any) -> bool:
    return a.shape == b.shape and a.strides == b.strides and a.dtype == b.dtype


def in_place(case: Case, name: str, owns: list[Any], target: Operand, plain: np.ndarray) -> None:
    """Write the result over an operand, or over a part that overlaps one."""
    function = getattr(cukern, name)
    out = target.own
    if not (out.flags["WRITEABLE"] if type(out) is cukern.Array else out.flags.writeable):
        case.refuses(REFUSALS, lambda: case.call(name, function, *owns, out=out), "out is read-only")
        return
    if case.chance(0.3) and out.ndim and out.shape[0] > 1 and out.size > 1 and plain.ndim == out.ndim:
        moved = out[::-1]  # the same elements, in another order
        if moved.shape == plain.shape and castable(plain.dtype, plain_dtype(moved)):
            case.refuses(REFUSALS, lambda: case.call(name, function, *owns, out=moved), "out overlaps an operand")
        return
    if doubtful([*owns, out]):
        return
    if out.shape != plain.shape or not castable(plain.dtype, plain_dtype(out)) or mixed([*owns, out]):
        case.refuses(REFUSALS, lambda: case.call(name, function, *owns, out=out), "out does not fit")
        return
    if 0 in out.strides and out.size > 1 and any(n > 1 and s == 0 for n, s in zip(out.shape, out.strides, strict=True)):
        case.refuses(REFUSALS, lambda: case.call(name, function, *owns, out=out), "out has an element twice")
        return
    if type(out) is np.ndarray and out.ndim == 0:
        return  # a number and an out at once
    case.check(case.call(name, function, *owns, out=out) is out, "another object than out was returned")
    now = cukern.asnumpy(out) if type(out) is cukern.Array else np.array(out)
    compare_cast(now, plain, now.dtype)


def plain_dtype(x: Any) -> np.dtype:
    """Return an element type as NumPy has it."""
    if str(x.dtype) == "bfloat16":
        assert BFLOAT16 is not None
        return BFLOAT16
    return np.dtype(x.dtype)


def clip_case(case: Case) -> None:
    """Compare clip with NumPy's."""
    dtype = case.pick(ELEMENT_TYPES)
    place = place_of(case)
    given = operand(case, shape_of(case), dtype, place)
    bounds: list[Any] = []
    for _ in range(2):
        value: Any = None if case.chance(0.2) else number(case)
        if case.chance(0.3):
            value = operand(case, parts_of(case, given.model.shape), case.pick(ELEMENT_TYPES), place)
        bounds.append(value)
    owns = [given.own, *(b.own if isinstance(b, Operand) else b for b in bounds)]
    models = [given.model, *(b.model if isinstance(b, Operand) else b for b in bounds)]
    if is_accepted("clip", models) or doubtful(owns):
        return
    if models[1] is None and models[2] is None and given.model.dtype.kind == "b":
        return  # a copy, of which NumPy has none of bool
    if mixed(owns):
        case.refuses(REFUSALS, lambda: case.call("clip", cukern.clip, *owns), "memory does not mix")
        return
    try:
        with np.errstate(all="ignore"):
            wanted = np.asarray(np.clip(*models))
    except (TypeError, ValueError, OverflowError) as error:
        case.refuses(REFUSALS, lambda: case.call("clip", cukern.clip, *owns), f"NumPy raises {error}")
        return
    result = case.call("clip", cukern.clip, *owns)
    actual = cukern.asnumpy(result) if type(result) is cukern.Array else result
    case.check(
        (actual.dtype, actual.shape) == (wanted.dtype, wanted.shape),
        f"{actual.dtype}{actual.shape}; expected {wanted.dtype}{wanted.shape}",
    )
    if wanted.dtype.kind == "c":  # NumPy's clip looks for NaN in the real part of a bound alone
        low, high = models[1:]
        if any(type(bound) is int for bound in (low, high)):
            return  # beside a complex bound NumPy's maximum takes no integer beyond the array's type
        with np.errstate(all="ignore"):
            other = given.model if low is None else np.maximum(given.model, low)
            other = other if high is None else np.minimum(other, high)
        wanted = np.where(np.isnan(other), other, wanted)
    np.testing.assert_array_equal(actual, wanted)
