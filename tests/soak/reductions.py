"""Reductions, running sums and products, var and std, dot, vecdot and products, against NumPy in a wider type."""

from __future__ import annotations

from typing import Any

import numpy as np
from oracles import ELEMENT_TYPES, assert_reduced, count_of, partial_products_fit, product_bound, wider

import cukern
from cukern import _cukern

from .core import Case
from .draw import Operand, dtype_of, is_bfloat16, operand, place_of, shape_of
from .elementwise import REFUSALS, castable, compare_cast, doubtful, mixed, plain_dtype

# Of variances see spread.
ROWS = [row["name"] for row in _cukern._table if row["kind"] == "reduction" and row["rule"] != "variance"]
INDICES = ("argmax", "argmin")
TYPED = ("sum", "prod", "mean")


def host(result: Any) -> np.ndarray:
    return cukern.asnumpy(result) if type(result) is cukern.Array else result


def drawn(case: Case, name: str, shape: tuple[int, ...], dtype: np.dtype, place: str) -> Operand:
    """Return an operand of which no partial sum or product overflows in one order alone."""
    given = operand(case, shape, dtype, place, writable=True)
    if type(given.own) not in (np.ndarray, cukern.Array):
        return given
    tame = name in ("sum", "mean", "prod", "var", "std", "cumulative_sum", "cumulative_prod", "vecdot", "dot", "matmul")
    if (tame and dtype.kind in "fc") or is_bfloat16(dtype):
        with np.errstate(all="ignore"):
            values = np.asarray(case.rng.standard_normal(shape))
            if dtype.kind == "c":
                values = values + 1j * case.rng.standard_normal(shape)
            if name in ("prod", "cumulative_prod"):
                values = np.exp((0.1 if name == "prod" else 0.01) * values)
            given.model = np.asarray(values).astype(dtype)
    elif name in ("any", "all") and case.chance(0.7):
        given.model = np.asarray(case.rng.integers(0, 50, shape) == (0 if name == "any" else 1)).astype(dtype)
    given.own[...] = given.model
    return given


def axis_of(case: Case, name: str, ndim: int) -> Any:
    """Return an axis, several, none, or seldom a wrong one."""
    if case.chance(0.3):
        return None
    if case.chance(0.03) and ndim:  # without dimensions NumPy takes 0 and -1, which the standard does not
        return case.pick([ndim, -ndim - 1, (0, 0), (0, ndim)])
    if ndim == 0 or (name not in INDICES and case.chance(0.3)):
        axes = case.random.sample(range(ndim), case.random.randint(0, ndim))
        return None if name in INDICES else tuple(axis - ndim * case.chance(0.4) for axis in axes)
    return case.random.randrange(-ndim, ndim)


def compare_short(case: Case, actual: np.ndarray, name: str, a: np.ndarray, options: dict[str, Any]) -> None:
    """Compare a reduction of bfloat16."""
    x = a.astype(np.float64)
    wanted = np.asarray(getattr(np, name)(x, **options))
    case.check(actual.shape == wanted.shape, f"shape {actual.shape}; expected {wanted.shape}")
    if wanted.dtype.kind in "bi" or name in ("max", "min"):
        case.check(np.array_equal(actual.astype(wanted.dtype), wanted, equal_nan=True), f"{actual} != {wanted}")
        return
    case.check(is_bfloat16(actual.dtype), f"element type {actual.dtype}; expected bfloat16")
    n = count_of(a, options.get("axis"))
    size = abs(wanted) if name == "prod" else np.asarray(getattr(np, name)(abs(x), **options))
    bound = 2.0**-8 * abs(wanted) * 1.01 + (n + 20) * 2.0**-23 * size + 2.0**-133
    bad = ~(abs(actual.astype(float) - wanted) <= bound) & np.isfinite(wanted)
    if name == "prod":
        bad &= partial_products_fit(x, np.dtype(np.float32), **options)
    case.check(not bad.any(), f"{name}: {actual[bad][:3]} != {wanted[bad][:3]}")


def reduction(case: Case) -> None:
    """Compare one of the table's reductions."""
    name = case.pick(ROWS)
    dtype, place = dtype_of(case), place_of(case)
    given = drawn(case, name, shape_of(case, largest=6.2), dtype, place)
    options: dict[str, Any] = {"axis": axis_of(case, name, np.ndim(given.model)), "keepdims": case.chance(0.4)}
    function = getattr(cukern, name)
    call = lambda **more: case.call(name, function, given.own, **options, **more)  # noqa: E731
    if type(given.own) is cukern.Array and case.chance(0.4):
        method = getattr(given.own, name)
        call = lambda **more: case.call("a." + name, method, **options, **more)  # noqa: E731
        case.note(f"a = {given.model.dtype}{given.model.shape} {given.place}")
    try:
        with np.errstate(all="ignore"):
            model = given.model.astype(np.float32) if is_bfloat16(dtype) else given.model
            getattr(np, name)(model, **options)
    except (TypeError, ValueError, IndexError) as error:
        case.refuses((*REFUSALS, IndexError), call, f"NumPy raises {error}")
        return
    if name in TYPED and not is_bfloat16(dtype) and case.chance(0.15):
        to = case.pick([t for t in ELEMENT_TYPES if np.can_cast(dtype, t, "safe") and t.kind != "b"])
        # In a type of integers sums are exact; the mean is computed in a floating one.
        if to.kind in "iu" if name == "prod" else name == "sum" or to.kind in "fc":
            assert_reduced(host(call(dtype=to)), name, given.model, dtype=to, **options)
        return
    result = call()
    if is_bfloat16(dtype):
        compare_short(case, host(result), name, given.model, options)
    else:
        assert_reduced(host(result), name, given.model, **options)
    if case.chance(0.3):
        into_out(case, call, given, host(result), name in TYPED)


def into_out(case: Case, call: Any, given: Operand, plain: np.ndarray, summed: bool) -> None:
    """Call again with out=."""
    place = given.place if case.chance(0.9) else place_of(case)
    shape = plain.shape if case.chance(0.95) else (*plain.shape, 1)
    out = operand(case, shape, plain.dtype if case.chance(0.5) else dtype_of(case), place, writable=True)
    if type(out.own) not in (np.ndarray, cukern.Array) or doubtful([given.own, out.own]):
        return
    target = plain_dtype(out.own)
    if shape != plain.shape or not castable(plain.dtype, target) or mixed([given.own, out.own]):
        case.refuses(REFUSALS, lambda: call(out=out.own), "out does not fit")
        return
    case.check(call(out=out.own) is out.own, "another object than out was returned")
    now = np.array(host(out.own))
    if not summed or plain.dtype.kind in "biu":  # else the order of terms may be another
        compare_cast(now, plain, target)


def spread(case: Case) -> None:
    """Compare var and std, to what a pass over memory may lose (tests/oracles.py)."""
    name = case.pick(["var", "std"])
    dtype = dtype_of(case, 0)
    given = drawn(case, name, shape_of(case), dtype, place_of(case))
    a = given.model
    options = {"axis": axis_of(case, name, a.ndim), "keepdims": case.chance(0.4)}
    correction = case.pick([0, 0, 1, 0.5])
    call = lambda: case.call(name, getattr(cukern, name), given.own, correction=correction, **options)  # noqa: E731
    try:
        with np.errstate(all="ignore"):
            wide = np.clongdouble if dtype.kind == "c" else np.longdouble
            x = a.astype(np.float64 if dtype.kind in "biu" else dtype).astype(wide)
            wanted = np.asarray(np.var(x, correction=correction, **options))
    except (ValueError, TypeError) as error:
        case.refuses((*REFUSALS, IndexError), call, f"NumPy raises {error}")
        return
    actual = host(call())
    own = np.dtype({"b": "f8", "i": "f8", "u": "f8"}.get(dtype.kind, dtype))
    own = np.dtype(f"f{own.itemsize // 2}") if own.kind == "c" else own
    case.check((actual.dtype, actual.shape) == (own, wanted.shape), f"{actual.dtype}{actual.shape}; expected {own}")
    n = count_of(a, options["axis"])
    if n - correction <= 0 or not a.size:
        return
    eps = np.finfo(np.float32 if own.itemsize == 2 else own).eps
    lost = np.finfo(np.longdouble).eps * np.max(abs(x), initial=0)  # of the model's mean
    bound = (40 * eps + 8 * np.finfo(own).eps) * wanted + lost**2 + 8 * np.finfo(own).smallest_subnormal
    square = actual.astype(np.longdouble) ** 2 if name == "std" else actual.astype(np.longdouble)
    finite = np.isfinite(bound) & (wanted + bound < np.finfo(own).max)
    bad = finite & ~(abs(square - wanted) <= bound)
    case.check(not bad.any(), f"{name}: {square[bad][:3]} != {wanted[bad][:3]}, bound {np.asarray(bound)[bad][:3]}")


def running(case: Case) -> None:
    """Compare cumulative sums and products."""
    name = case.pick(["cumulative_sum", "cumulative_prod"])
    dtype = case.pick(ELEMENT_TYPES)
    shape = shape_of(case) or (1,)  # without dimensions NumPy takes one for them
    given = drawn(case, name, shape, dtype, place_of(case))
    a = given.model
    axis = None if len(shape) == 1 and case.chance(0.3) else case.random.randrange(-len(shape) - 1, len(shape) + 1)
    initial = case.chance(0.3)
    call = lambda: case.call(name, getattr(cukern, name), given.own, axis=axis, include_initial=initial)  # noqa: E731
    own = np.dtype({"b": "int64", "i": "int64", "u": "uint64"}.get(dtype.kind, dtype))
    wide = own if own.kind in "iu" else np.dtype("complex256" if own.kind == "c" else "float128")
    try:
        wanted = getattr(np, name)(a, axis=axis, dtype=wide, include_initial=initial)
    except (ValueError, TypeError) as error:
        case.refuses((*REFUSALS, IndexError), call, f"NumPy raises {error}")
        return
    actual = host(call())
    case.check((actual.dtype, actual.shape) == (own, wanted.shape), f"{actual.dtype}{actual.shape}; expected {own}")
    if own.kind in "iu" or wanted.size == 0:
        case.check(np.array_equal(actual, wanted), f"{actual.ravel()[:5]} != {wanted.ravel()[:5]}")
        return
    along = 0 if axis is None else axis % a.ndim
    terms = np.arange(wanted.shape[along]).reshape([-1 if d == along else 1 for d in range(a.ndim)])
    size = abs(wanted)
    if name == "cumulative_sum":
        size = np.cumulative_sum(abs(a.astype(wide)), axis=along, include_initial=initial)
    computed = np.finfo("float32" if own.itemsize == 2 else own).eps
    bound = terms * computed * size * 3 + np.finfo(own).eps * abs(wanted) + np.finfo(own).smallest_subnormal
    finite = np.isfinite(wanted) & (size + bound < np.finfo(own).max)
    bad = finite & ~(abs(actual.astype(wide) - wanted) <= bound)
    case.check(not bad.any(), f"{name}: {actual[bad][:3]} != {wanted[bad][:3]}")


def scalar_product(case: Case) -> None:
    """Compare vecdot, and dot of vectors."""
    dtype, place = case.pick(ELEMENT_TYPES), place_of(case)
    n = case.pick([0, 1, 2, 3, 7, 30, 300, 5000])
    outer = case.pick([(), (), (3,), (2, 3), (0,)])
    shapes = [(*outer, n), (n,) if case.chance(0.4) else (*outer, n)]
    if case.chance(0.3):
        shapes.reverse()
    x, y = (drawn(case, "dot", shape, dtype, place) for shape in shapes)
    name = "dot" if not outer and case.chance(0.5) else "vecdot"
    wide = {"f": "float128", "c": "complex256"}.get(dtype.kind, dtype)
    a, b = x.model.astype(wide), y.model.astype(wide)
    wanted = np.asarray(np.dot(a, b) if name == "dot" else np.vecdot(a, b))
    actual = host(case.call(name, getattr(cukern, name), x.own, y.own))
    case.check((actual.dtype, actual.shape) == (dtype, wanted.shape), f"{actual.dtype}{actual.shape}")
    if dtype.kind in "biu":
        case.check(np.array_equal(actual, wanted), f"{actual} != {wanted}")
        return
    size = np.asarray(np.sum(abs(a) * abs(b), axis=-1))
    eps = np.finfo("float32" if dtype.itemsize == 2 else dtype).eps
    bound = (n + 4) * eps * size + np.finfo(dtype).eps * abs(wanted) + np.finfo(dtype).smallest_subnormal
    finite = size + bound < np.finfo(dtype).max
    bad = finite & ~(abs(actual.astype(wide) - wanted) <= bound)
    case.check(not bad.any(), f"{name}: {actual[bad][:3]} != {wanted[bad][:3]}")


def product(case: Case) -> None:
    """Compare products of matrices and vectors."""
    longest = case.pick([3, 40, 40, 200])
    m, k, n = (case.random.randint(0, longest) for _ in range(3))
    place = place_of(case)
    numpys = [dtype for dtype in ELEMENT_TYPES if not is_bfloat16(dtype)]
    first = case.pick(numpys)
    second = first if case.chance(0.7) else case.pick(numpys)
    inner = k if case.chance(0.97) else k + 1
    batch = tuple(case.random.randint(0, 3) for _ in range(case.pick([0, 0, 0, 1, 2, 3]))) if longest < 100 else ()
    ones = [tuple(1 if case.chance(0.2) else length for length in batch) for _ in range(2)]
    heads = [own[case.random.randint(0, len(own)) if case.chance(0.3) else 0 :] for own in ones]
    x = drawn(case, "matmul", (k,) if case.chance(0.15) else (*heads[0], m, k), first, place)
    y = drawn(case, "matmul", (inner,) if case.chance(0.15) else (*heads[1], inner, n), second, place)
    name = case.pick(["matmul", "matmul_tiled"])
    call = lambda **more: case.call(name, getattr(cukern, name), x.own, y.own, **more)  # noqa: E731
    if inner != k:
        case.refuses((ValueError,), call, "the inner dimensions differ")
        return
    dtype = np.result_type(first, second)
    a, b = x.model.astype(dtype), y.model.astype(dtype)
    wanted = np.asarray(a.astype(wider(dtype)) @ b.astype(wider(dtype)))
    actual = host(call())
    case.check((actual.dtype, actual.shape) == (dtype, wanted.shape), f"{actual.dtype}{actual.shape}")
    if dtype.kind in "biu":
        case.check(np.array_equal(actual, wanted), f"{actual.ravel()[:5]} != {wanted.ravel()[:5]}")
    else:
        bad = ~(abs(actual.astype(wider(dtype)) - wanted) <= product_bound(a, b, dtype))
        case.check(not bad.any(), f"{actual[bad][:3]} != {wanted[bad][:3]}")
    if case.chance(0.3):
        out = operand(case, wanted.shape, dtype, place, writable=True)
        if type(out.own) in (np.ndarray, cukern.Array) and not doubtful([x.own, out.own]):
            case.check(call(out=out.own) is out.own, "another object than out was returned")
            again = host(out.own)
            if dtype.kind in "biu":
                case.check(np.array_equal(again, wanted), "with out= the product differs")
            else:
                bad = ~(abs(np.asarray(again).astype(wider(dtype)) - wanted) <= product_bound(a, b, dtype))
                case.check(not bad.any(), "with out= the product differs")


def run(case: Case) -> None:
    """Run one case."""
    case.pick([reduction] * 6 + [spread, spread, running, running, scalar_product, product])(case)
