"""What operations should give: NumPy, in a wider type, rounded once.

One entry a row of the table of operations; test_table.py asserts that rows and oracles match one to one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy_loops import takes_numpy_loops

import cukern

ORACLES: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "scale": np.multiply,
    "axpy": lambda a, x, y: np.add(np.multiply(a, x), y),
    "where": np.where,
    "floor_divide": np.floor_divide,
    "remainder": np.remainder,
    "pow": lambda a, b: power(a, b),
    "maximum": np.maximum,
    "minimum": np.minimum,
    "hypot": np.hypot,
    "atan2": np.arctan2,
    "copysign": np.copysign,
    "nextafter": np.nextafter,
    "logaddexp": np.logaddexp,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "bitwise_left_shift": np.left_shift,
    "bitwise_right_shift": np.right_shift,
    "negative": np.negative,
    "positive": np.positive,
    "abs": np.abs,
    "sign": np.sign,
    "square": np.square,
    "reciprocal": np.reciprocal,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "expm1": lambda a: exp_minus_1(a),
    "log": np.log,
    "log1p": lambda a: log_of_1_plus(a),
    "log2": np.log2,
    "log10": np.log10,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.round,
    "isfinite": np.isfinite,
    "isinf": np.isinf,
    "isnan": np.isnan,
    "signbit": np.signbit,
    "logical_not": np.logical_not,
    "bitwise_invert": np.invert,
    "real": lambda a: np.asarray(a).real,
    "imag": lambda a: np.asarray(a).imag,
    "conj": np.conj,
    "sum": np.sum,
    "prod": np.prod,
    "mean": np.mean,
    "var": np.var,
    "std": np.std,
    "max": np.max,
    "min": np.min,
    "any": np.any,
    "all": np.all,
    "argmax": np.argmax,
    "argmin": np.argmin,
}

# What is rounded more than once: its error is at most 2 units in the last place, of 16-bit floats half of it. CUDA's
# own bounds ("CUDA C++ Programming Guide", mathematical functions) are that or less where no formula of ours replaces
# a function, and so are glibc's.
FUNCTIONS = [
    *("exp", "expm1", "log", "log1p", "log2", "log10", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh"),
    *("tanh", "asinh", "acosh", "atanh", "hypot", "atan2", "pow", "logaddexp"),
]
ULPS = 2
# Of the loops that the host back-end takes from NumPy, whose tests allow them up to 4.
NUMPYS_ULPS = 4
# Defined by their steps, as NumPy takes them, and not by an exact result.
STEPWISE = ("floor_divide", "remainder", "nextafter", "round", "floor", "ceil", "trunc")


# Whose complex results are those of the exact function wherever the operand is finite.
COMPLEX_FUNCTIONS = (*FUNCTIONS, "sqrt", "sign", "square", "reciprocal")


def exp_minus_1(a: Any) -> Any:
    """Return NumPy's expm1, but at complex infinities what exp has there (NumPy gives NaN)."""
    own = np.expm1(a)
    if own.dtype.kind != "c":
        return own
    special = np.exp(a)
    parts = np.stack([np.where(np.real(a) == -np.inf, -1, special.real), special.imag], axis=-1)
    return np.where(np.isfinite(a), own, parts.view(own.dtype)[..., 0])


def log_of_1_plus(a: Any) -> Any:
    """Return NumPy's log1p, but for small complex numbers, of which 1 + a would lose digits, by real ones."""
    own = np.log1p(a)
    if own.dtype.kind != "c":
        return own
    x, y = np.real(a), np.imag(a)
    small = np.maximum(abs(x), abs(y)) < 0.5
    parts = np.stack([np.where(small, np.log1p(x * (2 + x) + y * y) / 2, own.real), own.imag], axis=-1)
    return parts.view(own.dtype)[..., 0]


def power(a: Any, b: Any) -> Any:
    """Return NumPy's power, and what docs/operations.md says of negative powers of integers, which NumPy refuses."""
    if isinstance(b, int | float | complex) or isinstance(a, int | float | complex):
        dtype = np.result_type(a, b)
    else:
        dtype = np.result_type(np.asarray(a), np.asarray(b))
    dtype = np.dtype(np.int8) if dtype.kind == "b" else dtype
    if dtype == np.longdouble:  # glibc takes an infinity to a power below -2**63 for one to a positive power
        return np.where(np.isinf(a), np.power(np.float64(a), np.float64(b)), np.power(a, b))
    if dtype.kind != "i":
        return np.power(a, b)
    np.add(np.zeros(1, dtype), a if isinstance(a, int) else 0)  # raises where a Python number does not fit
    np.add(np.zeros(1, dtype), b if isinstance(b, int) else 0)
    base, exponent = np.broadcast_arrays(np.asarray(a).astype(dtype), np.asarray(b).astype(dtype))
    inverse = np.where(base == 1, 1, np.where(base == -1, 1 - 2 * (exponent % 2), 0)).astype(dtype)
    return np.where(exponent < 0, inverse, np.power(base, np.where(exponent < 0, 0, exponent)))


BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = ["float32", "float64", "float16"]
INTEGERS = ["int32", "int64", "int8", "int16", "uint8", "uint16", "uint32", "uint64"]
ELEMENT_TYPES = [np.dtype(name) for name in (*FLOATS, *INTEGERS, "bool", "complex64", "complex128")]  # NumPy's own
PRODUCT_TYPES = [np.dtype(name) for name in ("float32", "float64", "int32", "int64")]


def refusal(name: str, *operands: Any) -> type[Exception] | None:
    """Return what NumPy raises for these operands, if anything."""
    try:
        with np.errstate(all="ignore"):
            ORACLES[name](*operands)
    except (TypeError, OverflowError) as error:
        return OverflowError if isinstance(error, OverflowError) else TypeError
    return None


def check(name: str, *operands: Any) -> None:
    """Assert that a row's function gives the exact result, or raises where NumPy does."""
    function = getattr(cukern, name)
    if (error := refusal(name, *operands)) is not None:
        with pytest.raises(error):
            function(*operands)
        return
    assert_result(function(*operands), name, *operands)


def wider(dtype: np.dtype) -> np.dtype:
    """Return the type in which an oracle computes: float64 for shorter floats, long double for float64."""
    if dtype.kind == "c":
        return np.dtype(np.complex128 if dtype.itemsize == 8 else np.clongdouble)
    if dtype == BFLOAT16:
        return np.dtype(np.float64)
    if dtype.kind != "f":
        return dtype  # integers are exact in their own type, wrapping included
    return np.dtype(np.float64 if dtype.itemsize < 8 else np.longdouble)


def computed_in(operands: tuple[Any, ...], dtype: np.dtype) -> np.dtype:
    """Return the type in which a result of `dtype` is computed: complex where an operand is."""
    if dtype.kind == "f" and any(np.iscomplexobj(operand) for operand in operands):
        return np.dtype(f"c{2 * dtype.itemsize}")
    return dtype


def exact(name: str, *operands: Any) -> tuple[np.ndarray, np.dtype]:
    """Return a row's result in the wider type, and the element type that NumPy gives it."""
    oracle = ORACLES[name]
    with np.errstate(all="ignore"):
        own = np.asarray(oracle(*operands))
        dtype = own.dtype
        if dtype.kind in "biu" or name in STEPWISE:
            return own, dtype
        # Operands are converted to the computing type first: an int64 is rounded before it is divided.
        compute = computed_in(operands, dtype)
        wide = [np.asarray(operand).astype(compute).astype(wider(compute)) for operand in operands]
        return np.asarray(oracle(*wide)), dtype


def expected(name: str, *operands: Any) -> np.ndarray:
    """Return a row's result, rounded to NumPy's result type."""
    wide, dtype = exact(name, *operands)
    with np.errstate(all="ignore"):
        return wide.astype(dtype)


def allowed_error(name: str, rounded: np.ndarray, operands: tuple[Any, ...]) -> np.ndarray:
    """Return the largest error of a float result.

    float64 through a 64-bit long double rounds twice: where the exact result is within 2**-11 of a step of
    a midpoint, the other neighbour is right. There half a step and that much is accepted.
    """
    dtype = rounded.dtype
    magnitude = np.abs(rounded)
    if name == "logaddexp":  # a sum of a and a logarithm of at most log(2), which may cancel
        with np.errstate(all="ignore"):
            magnitude = np.maximum(
                np.maximum(magnitude, 0.7), np.max(np.broadcast_arrays(*(np.abs(x) for x in operands)), axis=0)
            )
        magnitude = np.where(np.isfinite(magnitude), magnitude, np.abs(rounded)).astype(dtype)
    step = np.spacing(magnitude).astype(wider(dtype))
    if name in FUNCTIONS or np.iscomplexobj(operands[0]):
        if dtype.itemsize == 2:
            return step
        if takes_numpy_loops():
            return step * NUMPYS_ULPS
        return step * ULPS
    return step * (0.5 + 2.0**-10) if dtype == np.float64 else step * 0


def assert_equal(actual: np.ndarray, wanted: np.ndarray) -> None:
    """Assert that arrays hold the same; NumPy's own assertion, which tells more, takes 90 us where they do."""
    if actual.shape != wanted.shape or not (actual == wanted).all():
        np.testing.assert_array_equal(actual, wanted)


def assert_result(actual: Any, name: str, *operands: Any) -> None:
    """Assert that a row's result is the exact one, correctly rounded but for FUNCTIONS."""
    wide, dtype = exact(name, *operands)
    if dtype.kind == "c":
        assert_complex(actual, name, wide, dtype, *operands)
        return
    with np.errstate(all="ignore"):
        rounded = wide.astype(dtype)
        assert isinstance(actual, np.ndarray)
        assert (actual.dtype, actual.shape) == (dtype, rounded.shape)
        if dtype.kind not in "f":
            assert_equal(actual, rounded)
            return
        same = (actual == rounded) | (np.isnan(actual) & np.isnan(rounded))
        if name not in ("maximum", "minimum", "nextafter"):  # of two zeros either may be given
            same &= (np.signbit(actual) == np.signbit(rounded)) | np.isnan(rounded)
        if same.all():
            return
        nearest = rounded if name in FUNCTIONS else wide  # CUDA counts from the correctly rounded result
        error = np.abs(actual.astype(wide.dtype) - nearest)
        same |= (error <= allowed_error(name, rounded, operands)) & (np.signbit(actual) == np.signbit(rounded))
    values = [np.broadcast_to(operand, same.shape)[~same][:5] for operand in operands]
    assert same.all(), f"{name}: {actual[~same][:5]} != {rounded[~same][:5]} at {values}"


def assert_complex(actual: Any, name: str, wide: np.ndarray, dtype: np.dtype, *operands: Any) -> None:
    """Assert that a complex result is exact to 8 epsilon of its modulus, and special where NumPy's is.

    Beside a NaN the sign of an infinity is left open, by C99. The bound is for results that neither overflow on the
    way nor vanish: a step of the smallest number is let pass for each of four rounded terms, which a division divides
    by at least the divisor's modulus (Smith's method: (x + y * r) / (c + d * r), r = d / c, |d| <= |c|). A power is
    exp(b * log(a)): what is rounded of the exponent counts by its size. A small whole power n is made of products,
    each exact to sqrt(5) / 2 epsilon (Brent, Percival, Zimmermann, "Error bounds on complex floating-point
    multiplication"), of which squaring doubles what is there: n - 1 times that.
    """
    with np.errstate(all="ignore"):
        x = [np.asarray(operand).astype(dtype) for operand in operands]
        numpys = np.asarray(ORACLES[name](*x))
        assert isinstance(actual, np.ndarray)
        assert (actual.dtype, actual.shape) == (dtype, wide.shape)
        info = np.finfo(dtype)
        if name in COMPLEX_FUNCTIONS:
            inputs_finite = np.all(np.broadcast_arrays(*map(np.isfinite, x)), axis=0)
            numpys = np.where(inputs_finite, wide.astype(dtype), numpys)
        finite = np.isfinite(numpys) & np.isfinite(wide.astype(dtype))
        bound = 8 * info.eps * abs(wide) + 4 * info.smallest_subnormal
        if name == "divide":
            bound += np.nan_to_num(4 * info.smallest_subnormal / abs(x[1]), nan=0, posinf=0)
        if name == "pow":
            exponent = abs(x[1] * np.log(x[0]))
            n = abs(x[1].real)
            whole = (x[1].imag == 0) & (n == np.trunc(n)) & (n < 100)
            products = np.sqrt(5) / 2 * np.where(whole, n, 0)
            bound *= 1 + np.maximum(np.nan_to_num(exponent, nan=0, posinf=0), products / 8)
        close = abs(actual.astype(wide.dtype) - wide) <= bound
        special = np.ones(wide.shape, bool)
        for part in ("real", "imag"):
            own, numpy = getattr(actual, part), getattr(numpys, part)
            own, numpy = np.where(np.isnan(numpys), abs(own), own), np.where(np.isnan(numpys), abs(numpy), numpy)
            special &= (own == numpy) | (np.isnan(own) & np.isnan(numpy)) | (np.isfinite(own) & np.isfinite(numpy))
        same = np.where(finite, close, special)
        same |= close & np.isfinite(wide)  # though the exact result rounds to infinity
        if name == "pow":  # of what overflows the signs hang on the last digits
            same |= inputs_finite & ~np.isfinite(numpys) & ~np.isfinite(actual)
            same |= inputs_finite & (exponent * info.eps > 2.0**-10)
    values = [np.broadcast_to(operand, same.shape)[~same][:5] for operand in operands]
    assert same.all(), f"{name}: {actual[~same][:5]} != {wide[~same][:5]}, NumPy's {numpys[~same][:5]} at {values}"


def count_of(a: np.ndarray, axis: Any) -> int:
    """Return how many elements make one result of a reduction."""
    axes = range(a.ndim) if axis is None else np.atleast_1d(axis)
    return int(np.prod([a.shape[i] for i in axes], dtype=np.int64))


def partial_products_fit(x: np.ndarray, dtype: np.dtype, **options: Any) -> np.ndarray:
    """Return of which products no part can overflow or vanish in a type, whatever the order."""
    with np.errstate(all="ignore"):
        logs = np.log2(abs(x))
    logs = np.where(np.isfinite(logs), logs, 0)  # zeros, infinities and NaN give what they give in any order
    limits = np.finfo(dtype)
    grown = np.asarray(np.sum(np.maximum(logs, 0), **options))
    shrunk = np.asarray(np.sum(np.maximum(-logs, 0), **options))
    return (grown < limits.maxexp - 1) & (shrunk < -limits.minexp - 1)


# Of reductions by name and elements, since each back-end reduces the same ones. It is emptied from time to time.
REDUCED: dict[tuple[Any, ...], tuple[np.ndarray, ...]] = {}
MOST_REDUCED = 10_000
LARGE_RESULT = 10_000  # elements: these are not kept


def exactly_reduced(name: str, a: np.ndarray, own: np.ndarray, **options: Any) -> tuple[np.ndarray, ...]:
    """Return a sum, product, mean or variance in a wider type, its bound, and where it need not be exact."""
    key = (name, repr(options), own.dtype.str, a.dtype.str, a.shape, hashlib.blake2b(a.tobytes()).digest())
    if key in REDUCED:
        return REDUCED[key]
    is_variance = name in ("var", "std")
    wide = wider(a.dtype if is_variance and a.dtype.kind == "c" else own.dtype)
    compute = np.dtype(np.float32) if own.dtype.itemsize == 2 else own.dtype
    narrow = a if a.dtype.kind == "c" and wide.kind == "c" else a.astype(own.dtype)
    x = narrow.astype(wide)
    exact_result = np.asarray(ORACLES[name](x, **options))
    n = count_of(a, options.get("axis"))
    unit = np.finfo(compute).eps / 2
    inexact = np.asarray(False)
    if is_variance:
        bound = 80 * unit * abs(exact_result)  # and what the oracle's mean of equal elements is off
        largest = np.max(abs(narrow), initial=0)
        bound = bound + (np.finfo(wide).eps * largest.astype(exact_result.dtype)) ** (2 if name == "var" else 1)
    elif name == "prod":
        bound = 3 * n * unit * abs(exact_result)
        double = narrow.astype(np.complex128 if narrow.dtype.kind == "c" else np.float64)
        inexact = ~partial_products_fit(double, compute, **options)
    else:
        moduli = abs(narrow).astype(abs(exact_result).dtype)
        bound = (np.log2(max(n, 2)) + 17) * unit * np.asarray(ORACLES[name](moduli, **options)) * 2
    bound = bound + np.finfo(own.dtype).eps / 2 * abs(exact_result) * 1.01 + np.finfo(own.dtype).smallest_subnormal
    found = exact_result, bound, inexact
    if len(REDUCED) == MOST_REDUCED:
        REDUCED.clear()
    if exact_result.size < LARGE_RESULT:
        REDUCED[key] = found
    return found


def assert_reduced(actual: Any, name: str, a: np.ndarray, dtype: Any = None, **options: Any) -> None:
    """Assert a reduction: sums and products to the error of their method, all others exactly.

    A sum of n elements whose partial sums are joined in pairs is within (log2(n) + 16 + 1) half units of the sum of
    the elements' moduli: 16 for the running sums of a block of 128 by eight, or of a thread's own few (Higham, Accuracy
    and Stability of Numerical Algorithms, section 4.2); a product likewise of its own modulus, but of n factors. What a
    16-bit result is rounded to adds half a unit of its own. A variance is within 40 units: the elements of a thread's
    batch, of up to 128, lie up to 11 deviations from their pivot, which makes three roundings of each distance up to 68
    half units of the squares, and what is joined adds some more.
    """
    options_of_numpy = options if dtype is None else options | {"dtype": dtype}
    with np.errstate(all="ignore"):
        own = np.asarray(ORACLES[name](a, **options_of_numpy))
        assert isinstance(actual, np.ndarray)
        assert (actual.dtype, actual.shape) == (own.dtype, own.shape), (actual.dtype, own.dtype)
        if own.dtype.kind not in "fc" or name in ("max", "min"):
            assert_equal(actual, own)
            return
        exact_result, bound, inexact = exactly_reduced(name, a, own, **options)
        result = actual.astype(exact_result.dtype)
        finite = np.isfinite(exact_result) & (abs(exact_result) + bound < np.finfo(own.dtype).max)
        close = abs(result - exact_result) <= bound
        same = np.where(finite, close, ~np.isfinite(result) | close) | inexact
    assert same.all(), f"{name}: {actual[~same][:5]} != {exact_result[~same][:5]}, bound {np.asarray(bound)[~same][:5]}"


def product_bound(a: np.ndarray, b: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the largest error of a product summed in any order, elementwise.

    Each of k terms meets one rounded multiplication and at most k rounded additions, so that the error is
    at most gamma(k + 1) * |a| @ |b| (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1). Each part
    of a complex sum has 2 k terms, of which |a| @ |b| bounds the sum. 16-bit floats are summed in float32 and rounded.
    """
    is_complex, is_short = dtype.kind == "c", dtype.itemsize == 2
    terms = a.shape[-1] * (2 if is_complex else 1)
    unit = np.finfo("float32" if is_short else dtype).eps / 2
    gamma = (terms + 1) * unit / (1 - (terms + 1) * unit) * (2**0.5 if is_complex else 1)
    tiny = float(ml_dtypes.finfo(dtype).smallest_subnormal) * (2 if is_complex else 1)
    wide = wider(dtype)
    bound = gamma * (abs(a.astype(wide)) @ abs(b.astype(wide))) + tiny
    if is_short:
        bound += float(ml_dtypes.finfo(dtype).eps) / 2 * (abs(a.astype(wide) @ b.astype(wide)) + bound)
    return bound


def gelu(x: np.ndarray) -> np.ndarray:
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi).astype(x.dtype) * (x + 0.044715 * x**3)))


def fused_product(
    a: np.ndarray,
    b: np.ndarray,
    alpha: Any = 1,
    beta: Any = 1,
    c: Any = 0,
    bias: Any = 0,
    activation: str | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the result in a wider type, and what it may be off by.

    Each addend and factor is rounded once in the type of the sum, so that each is off by one unit of what it is added
    to; gelu is no steeper than 1.13 and takes eight roundings, of what tanh divides by no more than |x|. Results of 16
    bits are rounded at the end.
    """
    dtype = np.result_type(a, b)
    wide = wider(dtype)

    def wider_of(x: Any) -> np.ndarray:
        return np.asarray(x).astype(wide)

    product = wider_of(a) @ wider_of(b)
    sum_ = wider_of(alpha) * product + wider_of(beta) * wider_of(c) + wider_of(bias)
    sizes = abs(wider_of(alpha) * product) + abs(wider_of(beta) * wider_of(c)) + abs(wider_of(bias))
    sum_type = np.dtype("float32") if dtype.itemsize == 2 else dtype
    eps = np.finfo(sum_type).eps
    bound = abs(wider_of(alpha)) * product_bound(a, b, dtype) + 4 * eps * sizes
    if activation == "relu":
        sum_ = np.maximum(sum_, 0)
    if activation == "gelu":
        bound = 1.13 * bound + 8 * 4 * eps * abs(sum_)
        sum_ = gelu(sum_)
    if dtype.itemsize == 2:
        bound = bound + float(ml_dtypes.finfo(dtype).eps) * (abs(sum_) + bound)
    return sum_, bound + float(ml_dtypes.finfo(dtype).smallest_subnormal)
