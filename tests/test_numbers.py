"""Numbers that go into Arrays and come out of them: bounds, kinds, formats; and what arguments' errors say."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from processes import run_quietly

import cukern

pytestmark = pytest.mark.usefixtures("backend")
SETTERS: dict[str, Callable[[Any, Any], object]] = {
    "fill": lambda x, value: x.fill(value),
    "assignment": lambda x, value: x.__setitem__(..., value),
}


@pytest.mark.parametrize("how", SETTERS)
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int64", "uint64", "float16", "float32", "complex64"])
def test_numbers_are_set_as_numpy_sets_them(dtype: str, how: str) -> None:
    values = [True, 7, -7, 300, 2**63, 2**64, 2.7, -2.7, 1e60, float("nan"), float("inf"), 1 + 2j]
    values += [np.int64(300), np.uint8(200), np.float64(2.5), np.float32(1e30), np.bool_(True), np.complex64(1j)]
    for value in values:
        wanted = np.zeros(3, dtype)
        x = cukern.asarray(wanted)
        try:
            with np.errstate(all="ignore"):
                SETTERS[how](wanted, value)
            refused: tuple[type[Exception], ...] = ()
        except (OverflowError, TypeError, ValueError, np.exceptions.ComplexWarning) as error:
            refused = (type(error), TypeError)
        if isinstance(value, np.generic) and wanted.dtype.kind == "u":
            refused = beyond(value, wanted.dtype)  # which NumPy checks for signed types alone
        if refused:
            with pytest.raises(refused):
                SETTERS[how](x, value)
            assert cukern.asnumpy(x).tolist() == np.zeros(3, dtype).tolist()
            continue
        SETTERS[how](x, value)
        np.testing.assert_array_equal(cukern.asnumpy(x), wanted, err_msg=repr(value))


def beyond(value: Any, dtype: np.dtype) -> tuple[type[Exception], ...]:
    """Return the exceptions that a number of NumPy's is refused with."""
    if value.dtype.kind == "c":
        return (TypeError,)
    return () if 0 <= int(value) <= np.iinfo(dtype).max else (OverflowError,)


@pytest.mark.parametrize("value", ["7", None, [1], b"7", {}, object(), np.datetime64("2020-01-01"), np.str_("7")])
def test_what_is_no_number_is_refused(value: Any) -> None:
    x = cukern.zeros(2)
    for call in (lambda: x.fill(value), lambda: cukern.full(2, value, "f8")):
        with pytest.raises(TypeError):
            call()
    assert x.tolist() == [0, 0]


def test_full_finds_its_type() -> None:
    for value in (True, 3, 2.5, 1j, 2**63, np.int8(3), np.float32(2.5)):
        assert cukern.full(2, value).dtype == np.full(2, value).dtype
    assert cukern.full(2, cukern.asarray(3, "int16")).dtype == "int16"
    for value in (2**64, -(2**63) - 1):
        with pytest.raises(OverflowError, match="out of bounds"):
            cukern.full(2, value)


def test_formats_and_rounding() -> None:
    x = cukern.asarray([1.25, 2.5, 4.125], "float64")
    assert f"{x.sum():.2f}" == "7.88"
    assert f"{x.max():8.3e}" == "4.125e+00"
    assert f"{x.argmax():03d}" == "002"
    assert f"{x}" == str(x)
    assert round(x.sum(), 1) == 7.9
    assert round(x.sum()) == 8
    assert isinstance(round(x.sum()), int)
    with pytest.raises(TypeError, match=r"formats numbers.*1 dimensions"):
        format(x, ".2f")
    with pytest.raises(TypeError, match="without dimensions"):
        round(x)


def test_membership() -> None:
    x = cukern.asarray([[1.0, 2.0], [3.0, 4.0]])
    assert 3 in x
    assert 5 not in x
    assert "a" not in x
    assert 7 in cukern.asarray(7)


def test_axes_out_of_bounds_are_both_errors() -> None:
    x = cukern.zeros((2, 3))
    calls: list[Callable[[], object]] = [
        lambda: x.sum(axis=2),
        lambda: cukern.argmax(x, axis=-3),
        lambda: cukern.var(x, axis=5),
        lambda: cukern.expand_dims(x, 4),
        lambda: cukern.stack([x, x], axis=7),
        lambda: cukern.concat([x, x], axis=2),
        lambda: x.transpose(0, 2),
        lambda: cukern.cumulative_sum(x, axis=2),
        lambda: cukern.vecdot(x, x, axis=9),
    ]
    for call in calls:
        with pytest.raises(IndexError, match=r"out of bounds|expected -2 to"):
            call()
        with pytest.raises(ValueError, match=r"out of bounds|expected -2 to"):
            call()


def test_complex_numbers_are_not_rounded_to_numbers() -> None:
    with pytest.raises(TypeError, match="complex"):
        round(cukern.asarray(1j))


def test_errors_name_the_function_that_was_called() -> None:
    x = cukern.zeros((2, 3))
    with pytest.raises(ValueError, match=r"^stack: axis 7"):
        cukern.stack([x], axis=7)
    with pytest.raises(ValueError, match=r"^dot: inner dimensions must match"):
        cukern.dot(x, x)


def test_variance_with_a_correction_that_is_no_number() -> None:
    assert np.isnan(cukern.asnumpy(cukern.var(np.arange(3.0), correction=float("nan"))))
    assert cukern.asnumpy(cukern.var(np.arange(3.0), correction=3)) == np.inf


def test_shapes_whose_strides_do_not_fit() -> None:
    for call in (lambda: cukern.zeros(0).reshape(-1, 2**62), lambda: cukern.zeros(0).reshape(0, 2**62)):
        with pytest.raises(ValueError, match="do not fit the shape"):
            call()
    assert cukern.zeros(0).reshape(0, 2**40).shape == (0, 2**40)


def test_arrays_repeat_no_sequences() -> None:
    three = cukern.asarray(3)
    for call in (
        lambda: three * [1, 2],
        lambda: [1, 2] * three,
        lambda: three * (1, 2),
        lambda: "ab" * three,
        lambda: three - [1],
    ):
        with pytest.raises(TypeError, match="operand"):
            call()


def test_element_types_are_equal_and_hash_alike() -> None:
    x = cukern.ones(2, "bfloat16")
    assert x.dtype == cukern.bfloat16 == "bfloat16"
    assert hash(x.dtype) == hash(cukern.bfloat16) == hash("bfloat16")
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert x.dtype == ml_dtypes.bfloat16
    assert x.dtype == np.dtype(ml_dtypes.bfloat16)
    assert x.dtype != ml_dtypes.float8_e5m2
    assert pickle.loads(pickle.dumps(x.dtype)) == cukern.bfloat16


WITHOUT_ML_DTYPES = """
    import sys
    import numpy as np, cukern
    assert "ml_dtypes" not in sys.modules
    x = cukern.ones(3, "bfloat16", memory="pinned")
    for call in (
        lambda: cukern.astype(np.ones(2), "bfloat16"),
        lambda: cukern.asnumpy(x),
        lambda: cukern.clip(np.ones(2), 0, cukern.astype(np.ones(2), "bfloat16")),
    ):
        try:
            call()
        except TypeError as error:
            assert "ml_dtypes" in str(error), error
        else:
            raise AssertionError("nothing was raised")
    assert (x + x).tolist() == [2.0] * 3 and "ml_dtypes" not in sys.modules
"""


def test_host_results_of_bfloat16_without_its_package() -> None:
    assert run_quietly(WITHOUT_ML_DTYPES, CUKERN_BACKEND="host") == ""


def test_bfloat16_of_jax_on_the_cpu() -> None:
    jax = pytest.importorskip("jax")
    cpu = jax.devices("cpu")[0]
    x = jax.device_put(jax.numpy.arange(5, dtype=jax.numpy.bfloat16), cpu)
    result = cukern.add(x, x)
    assert isinstance(result, jax.Array)
    assert result.dtype == jax.numpy.bfloat16
    assert result.tolist() == [0, 2, 4, 6, 8]
    assert cukern.asarray(x).dtype == "bfloat16"


def test_devices_are_pickled_and_copied() -> None:
    device = cukern.Device(0)
    assert pickle.loads(pickle.dumps(device)) == copy.deepcopy(device) == device


def test_asarray_asks_an_object_once() -> None:
    class Counting:
        asked = 0

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

        def __dlpack__(self, **options: Any) -> Any:
            Counting.asked += 1
            return np.ones(3).__dlpack__(**options)

    assert cukern.asarray(Counting()).tolist() == [1, 1, 1]
    assert Counting.asked == 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_copysign_of_nan(dtype: str) -> None:
    bits = {"float16": ("uint16", 0xFE00), "bfloat16": ("uint16", 0xFFC0), "float32": ("uint32", 0xFFC00000)}[dtype]
    signs = np.array([bits[1], bits[1] & ~(1 << (8 * np.dtype(bits[0]).itemsize - 1))], bits[0])
    signs = signs.view(pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else dtype)
    ones = np.ones(2, np.float32)
    for first in (cukern.asarray(ones, dtype), cukern.asarray(ones, "float32"), cukern.asarray(ones, "float64")):
        result = cukern.copysign(first, cukern.asarray(signs))
        assert cukern.asnumpy(cukern.astype(result, "float32")).tolist() == [-1, 1]


def test_running_sums_keep_their_accuracy() -> None:
    n = 10_000_000
    for dtype, bound in (("float32", 2**-22), ("float64", 2**-50)):
        total = cukern.asnumpy(cukern.cumulative_sum(np.full(n, 0.1, dtype)))[-1]
        wanted = n * float(np.asarray(0.1, dtype))
        assert abs(float(total) - wanted) <= bound * wanted
    signed = cukern.asnumpy(cukern.cumulative_sum(np.array([-0.0, -0.0, 1e308, 1e308, -1e308])))
    assert np.signbit(signed[:2]).all()
    assert signed.tolist()[2:] == [1e308, np.inf, np.inf]


@pytest.mark.parametrize("count", ["x", "-3", "0", "2.5", "4 "])
def test_a_wrong_number_of_threads_is_said(count: str) -> None:
    script = """
        import cukern
        try:
            cukern.zeros(2)
        except RuntimeError as error:
            print(error)
    """
    assert f"CUKERN_NUM_THREADS is '{count}'" in run_quietly(script, CUKERN_BACKEND="host", CUKERN_NUM_THREADS=count)


def test_keywords_of_creation() -> None:
    np.testing.assert_array_equal(cukern.asnumpy(cukern.eye(N=2, M=3, k=1)), np.eye(2, 3, 1))
    np.testing.assert_array_equal(cukern.asnumpy(cukern.eye(2, 3, 1)), np.eye(2, 3, 1))
    for call in (
        lambda: cukern.eye(2, order="F"),
        lambda: cukern.linspace(0, 1, 3, retstep=True),
        lambda: cukern.arange(3, like=np.ones(2)),
    ):
        with pytest.raises(TypeError, match="unexpected keyword"):
            call()


def test_orders_of_copies() -> None:
    for shape in ((3, 4), (2, 3, 4), ()):
        base = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
        for view in (lambda a: a, lambda a: a.T, lambda a: a.transpose(1, 2, 0) if a.ndim == 3 else a):
            wanted, x = view(base), view(cukern.asarray(base))
            for order in ("C", "F", "A", "K"):
                assert x.copy(order).strides == wanted.copy(order).strides
                assert cukern.copy(x, order).strides == np.copy(wanted, order).strides
                assert cukern.copy(wanted, order).strides == np.copy(wanted, order).strides
            assert x.copy().strides == wanted.copy().strides
            assert cukern.copy(x).strides == np.copy(wanted).strides
            assert copy.copy(x).strides == copy.copy(wanted).strides
    with pytest.raises(ValueError, match="order is 'Z'"):
        x.copy("Z")


def test_assignment_and_copyto_take_leading_dimensions_of_one() -> None:
    for call in (lambda x, v: cukern.copyto(x, v), lambda x, v: x.__setitem__(..., v)):
        x = cukern.zeros(2)
        call(x, cukern.ones((1, 2)))
        assert x.tolist() == [1, 1]
        with pytest.raises(ValueError, match="does not broadcast"):
            call(x, cukern.ones((2, 1)))
