"""NumPy's functions on Arrays: cukern's own where there are such, else NumPy's on memory that it sees."""

from __future__ import annotations

from collections import deque, namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cukern

pytestmark = pytest.mark.usefixtures("backend")
Pair = namedtuple("Pair", "first second")
MEMORY = ["device", "managed", "pinned"]
OWN: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: np.sum(x),
    "sum over axes": lambda x: np.sum(x, axis=(0, 1), keepdims=True),
    "sum by position": lambda x: np.sum(x, 1, np.float32),
    "prod": lambda x: np.prod(x, axis=0),
    "mean": lambda x: np.mean(x, 1),
    "max": lambda x: np.max(x, axis=1),
    "amin": lambda x: np.amin(x),
    "any": lambda x: np.any(x, axis=0),
    "all": lambda x: np.all(x),
    "argmax": lambda x: np.argmax(x, axis=1),
    "std": lambda x: np.std(x),
    "var": lambda x: np.var(x, axis=0, ddof=1),
    "var by correction": lambda x: np.var(x, axis=0, ddof=0, correction=1),
    "cumsum": lambda x: np.cumsum(x),
    "cumprod": lambda x: np.cumprod(x, axis=1),
    "concatenate": lambda x: np.concatenate([x, x], axis=1),
    "stack": lambda x: np.stack((x, x), axis=2),
    "where": lambda x: np.where(x > 2, x, -x),
    "clip": lambda x: np.clip(x, 1, 3),
    "clip by name": lambda x: np.clip(x, None, 3),
    "reshape": lambda x: np.reshape(x, (4, 3)),
    "ravel": lambda x: np.ravel(x),
    "transpose": lambda x: np.transpose(x),
    "transpose by axes": lambda x: np.transpose(x, (1, 0)),
    "squeeze": lambda x: np.squeeze(x[:, :1]),
    "expand_dims": lambda x: np.expand_dims(x, 1),
    "broadcast_to": lambda x: np.broadcast_to(x, (2, 3, 4)),
    "copy": lambda x: np.copy(x.T),
    "zeros_like": lambda x: np.zeros_like(x),
    "full_like": lambda x: np.full_like(x, 7, dtype="int8"),
    "dot": lambda x: np.dot(x, x.T),
    "tensordot": lambda x: np.tensordot(x, x.T, 1),
    "einsum": lambda x: np.einsum("ij,kj->ki", x, x),
    "round": lambda x: np.round(x * 1.3),
    "real": lambda x: np.real(x),
    "zeros_like by position": lambda x: np.zeros_like(x, np.float32),
    "full_like by position": lambda x: np.full_like(x, 3, "f4"),
    "expand_dims by a list": lambda x: np.expand_dims(x, [0, 1]),
}
SCALARS: dict[str, Callable[[Any], Any]] = {
    "array_equal": lambda x: np.array_equal(x, x),
    "array_equal of others": lambda x: np.array_equal(x, x + 1),
    "array_equal of other shapes": lambda x: np.array_equal(x, x[:1]),
    "array_equal with NaN": lambda x: np.array_equal(x / (x - x), x / (x - x), equal_nan=True),
    "shape": lambda x: np.shape(x),
    "ndim": lambda x: np.ndim(x),
    "size": lambda x: np.size(x, 1),
    "size of all": lambda x: np.size(x),
    "result_type": lambda x: np.result_type(x, np.float32),
    "can_cast": lambda x: np.can_cast(x, "complex128"),
}
THEIRS: dict[str, Callable[[Any], Any]] = {
    "sort": lambda x: np.sort(x, axis=0),
    "percentile": lambda x: np.percentile(x, 30),
    "sum with where": lambda x: np.sum(x, where=np.ones((3, 4), bool)),
    "flip": lambda x: np.flip(x),
    "reshape in F order": lambda x: np.reshape(x, (4, 3), order="F"),
    "concatenate with an ndarray": lambda x: np.concatenate([x, np.ones((1, 4))]),
    "vstack": lambda x: np.vstack([x, x]),
    "vstack of a named tuple": lambda x: np.vstack(Pair(x, x)),
    "vstack of a deque": lambda x: np.vstack(deque([x, x])),
    "array_equal to lists": lambda x: np.array_equal(x, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]),
    "array_equal of lists": lambda x: np.array_equal([[1]], x),
    "array_equal to text": lambda x: np.array_equal(x, np.array([["a"]])),
    "where with a list": lambda x: np.where(x > 1, x, [1, 2, 3, 4]),
    "clip to a list": lambda x: np.clip(x, [0, 1, 2, 3], 4),
    "dot with a list": lambda x: np.dot(x, [1, 2, 3, 4]),
    "cumsum of one": lambda x: np.cumsum(x[0, 1], axis=0),
    "result_type with text": lambda x: np.result_type(x, "S3"),
    "zeros_like of objects": lambda x: np.zeros_like(x, dtype=object),
}
REFUSED: dict[str, tuple[Callable[[Any], Any], type[Exception]]] = {
    "clip by two names": (lambda x: np.clip(x, 1, 2, min=3), ValueError),
    "ddof and correction": (lambda x: np.std(x, ddof=1, correction=0), ValueError),
    "size along no axis": (lambda x: np.size(x, 5), np.exceptions.AxisError),
}


def values() -> np.ndarray:
    return np.arange(12.0).reshape(3, 4)


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("memory", MEMORY)
def test_functions_that_cukern_has(memory: str, name: str) -> None:
    with np.errstate(all="ignore"):
        wanted = OWN[name](values())
    result = OWN[name](cukern.asarray(values(), memory=memory))
    assert type(result) is cukern.Array
    assert result.memory == memory
    np.testing.assert_allclose(cukern.asnumpy(result), wanted, rtol=1e-15, strict=True)


@pytest.mark.parametrize("name", SCALARS)
@pytest.mark.parametrize("memory", MEMORY)
def test_what_is_no_array(memory: str, name: str) -> None:
    with np.errstate(all="ignore"):
        wanted = SCALARS[name](values())
    assert SCALARS[name](cukern.asarray(values(), memory=memory)) == wanted


@pytest.mark.parametrize("name", THEIRS)
@pytest.mark.parametrize("memory", MEMORY)
def test_other_functions(memory: str, name: str) -> None:
    x = cukern.asarray(values(), memory=memory)
    if memory == "device":
        with pytest.raises(TypeError, match=r"device memory.*asnumpy"):
            THEIRS[name](x)
        return
    result, wanted = THEIRS[name](x), THEIRS[name](values())
    if isinstance(wanted, np.dtype):
        assert result == wanted
    else:
        np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("name", REFUSED)
def test_what_numpy_refuses(name: str) -> None:
    call, error = REFUSED[name]
    for subject in (values(), cukern.asarray(values(), memory="pinned")):
        with pytest.raises(error):
            call(subject)


def test_arrays_of_other_libraries_beside_ours() -> None:
    class Lent:
        def __dlpack__(self, **options: Any) -> Any:
            return values().__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    x = cukern.asarray(values(), memory="pinned")
    for result in (np.where(x > 3, x, Lent()), np.clip(x, Lent(), None)):
        assert type(result) is cukern.Array
        np.testing.assert_array_equal(cukern.asnumpy(result), values())


def test_size_of_several_axes() -> None:
    assert np.size(cukern.asarray(values(), memory="pinned"), (0, 1)) == 12


def test_out_is_returned() -> None:
    x = cukern.asarray(values(), memory="pinned")
    out = cukern.empty(4, memory="pinned")
    assert np.sum(x, axis=0, out=out) is out
    assert out.tolist() == values().sum(axis=0).tolist()
    np.copyto(out, 3.0)
    assert out.tolist() == [3] * 4
    assert np.median(x, axis=0, out=out) is out


def test_other_types_are_asked() -> None:
    class Other:
        def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> str:
            return function.__name__

        def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> str:
            return f"{ufunc.__name__} {method}"

        def __radd__(self, other: Any) -> str:
            return "radd"

    class Refusing:
        __array_ufunc__ = None

        def __rmul__(self, other: Any) -> str:
            return "rmul"

    x = cukern.ones(3)
    x @= Other()
    assert x == "matmul __call__"
    x = cukern.ones(3)
    assert np.concatenate([x, Other()]) == "concatenate"
    assert np.add(x, Other()) == "add __call__"
    assert np.add(Other(), x) == "add __call__"
    assert np.negative(x, out=(Other(),)) == "negative __call__"
    assert x + Other() == np.ones(3) + Other() == "add __call__"  # NumPy's array does not leave it to __radd__
    assert (Other() < x) == (Other() < np.ones(3))
    x -= Other()
    assert x == "subtract __call__"
    x = cukern.ones(3)
    assert x * Refusing() == "rmul"
    with pytest.raises(TypeError):
        np.multiply(x, Refusing())


def test_what_wants_its_own_operators_does_so_once_it_is_known() -> None:
    class Refusing:
        __array_ufunc__ = None

        def __dlpack__(self, **options: Any) -> Any:
            return np.ones(3).__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

        def __radd__(self, other: Any) -> str:
            return "radd"

    x = cukern.ones(3, memory="pinned")
    assert x + Refusing() == "radd"
    assert cukern.add(np.ones(3), Refusing()).tolist() == [2, 2, 2]
    assert x + Refusing() == "radd"


def test_objects_are_no_numbers() -> None:
    x, five = cukern.ones(3, memory="pinned"), np.array(5, dtype=object)
    for call in (lambda: x + five, lambda: five + x, lambda: np.add(x, five)):
        with pytest.raises(TypeError):
            call()


def test_numpys_scalars_on_the_left() -> None:
    for memory in MEMORY:
        x = cukern.asarray(np.array([0.1, 0.3, 0.5], np.float32), memory=memory)
        for result, wanted in (
            (np.float32(0.3) < x, [False, False, True]),
            (np.float32(0.3) == x, [False, True, False]),
            (np.float32(0.3) >= x, [True, True, False]),
            (np.int8(1) != x, [True, True, True]),
        ):
            assert type(result) is cukern.Array
            assert result.tolist() == wanted
        assert np.add(np.array(1.0), x).dtype == np.float64


@pytest.mark.parametrize("element", ["float32", "float64", "complex64", "int32", "uint8", "bool"])
def test_allclose(backend: str, element: str) -> None:
    rng = np.random.default_rng(1)
    for scale in (0, 1e-9, 1e-6, 1e-4, 1):
        a = rng.integers(0, 3, (4, 5)).astype(element)
        b = (a + scale * rng.random((4, 5))).astype(element)
        for equal_nan in (False, True):
            if a.dtype.kind in "fc":
                a[0, 0] = b[0, 0] = np.nan if equal_nan else np.inf
            options = {"rtol": 1e-5, "atol": 1e-7, "equal_nan": equal_nan}
            assert cukern.allclose(cukern.asarray(a), cukern.asarray(b), **options) is np.allclose(a, b, **options)
    assert cukern.allclose(np.zeros(3), 1e-9)
    assert cukern.allclose(cukern.zeros(3), 1e-9)
    assert cukern.allclose(1, cukern.ones(3))
    assert cukern.allclose(1.0, 1.0)
    assert not cukern.allclose(1, 2)
    assert cukern.allclose(cukern.full(3, 255, dtype="uint8"), np.uint8(255))
    assert not cukern.allclose(cukern.full(3, 0, dtype="uint8"), 256)
    assert cukern.allclose(cukern.full(3, np.inf), np.inf)
    assert cukern.allclose(cukern.full(3, np.nan), np.full((), np.nan)[()], equal_nan=True)
    assert not cukern.allclose(np.zeros(3), [[1.0]][0][0])
    assert not cukern.allclose(np.array([np.nan]), np.array([np.nan]))
    assert not cukern.allclose(np.array([np.inf]), np.array([-np.inf]))
    with pytest.raises(ValueError, match="broadcast"):
        cukern.allclose(np.zeros(3), np.zeros(4))
