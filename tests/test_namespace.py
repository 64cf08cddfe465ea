"""The array API standard's constants and inquiries, and astype."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from arrays import random_array
from oracles import ELEMENT_TYPES

import cukern

BFLOAT16 = cukern.bfloat16
NAMES = [str(dtype) for dtype in ELEMENT_TYPES]


def test_constants() -> None:
    assert (cukern.e, cukern.pi, cukern.inf) == (math.e, math.pi, math.inf)
    assert math.isnan(cukern.nan)
    assert cukern.newaxis is None
    for name in NAMES:
        dtype = getattr(cukern, name)
        assert dtype == np.dtype(name)
        assert cukern.zeros(2, dtype=dtype).dtype is dtype
    assert len({getattr(cukern, name) for name in NAMES} | {BFLOAT16}) == len(NAMES) + 1


@pytest.mark.parametrize("a", NAMES)
def test_result_type_of_pairs(a: str) -> None:
    for b in NAMES:
        assert cukern.result_type(np.dtype(a), np.dtype(b)) == np.result_type(a, b)
        assert cukern.result_type(np.zeros(2, a), cukern.zeros(3, dtype=b)) == np.result_type(a, b)
    for number in (True, 1, 1.0, 1j):
        if a != "bool":  # whose results with numbers are those of the number alone
            assert cukern.result_type(np.dtype(a), number) == np.result_type(np.dtype(a), number)
            assert cukern.result_type(number, np.dtype(a)) == np.result_type(np.dtype(a), number)


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (("bool", 1), "int64"),
        (("bool", 1.0), "float64"),
        (("bool", 1j), "complex128"),
        (("int8", "uint8", "float16"), "float16"),
        (("int8", 2, 1.5), "float64"),
        (("float32", 1, 1j), "complex64"),
        ((BFLOAT16, "int64"), "bfloat16"),
        ((BFLOAT16, 1.0), "bfloat16"),
        ((BFLOAT16, "float16"), "float32"),
        ((BFLOAT16, "float64"), "float64"),
        ((BFLOAT16, 1j), "complex64"),
        ((np.float32(1), "int8"), "float32"),
    ],
    ids=str,
)
def test_result_type(arguments: tuple[Any, ...], wanted: str) -> None:
    assert cukern.result_type(*arguments) == wanted


def test_result_type_of_bfloat16_arrays() -> None:
    a = cukern.zeros(2, dtype=BFLOAT16)
    assert cukern.result_type(a, a) == "bfloat16"
    assert cukern.result_type(a, np.zeros(2, np.float32)) == "float32"


@pytest.mark.parametrize(
    "arguments",
    [(len,), ("no such type",), (np.zeros(2, "U1"),), (["list"],)],
    ids=["function", "name", "array", "list"],
)
def test_result_type_of_others(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        cukern.result_type(*arguments)


@pytest.mark.parametrize("arguments", [(), (1,), (True, 2.0)], ids=str)
def test_result_type_without_a_type(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match="result_type: at least one"):
        cukern.result_type(*arguments)


@pytest.mark.parametrize("a", NAMES)
def test_can_cast(a: str) -> None:
    for b in NAMES:
        assert cukern.can_cast(np.dtype(a), np.dtype(b)) is (np.promote_types(a, b) == b)
        assert cukern.can_cast(cukern.zeros(1, dtype=a), b) is np.can_cast(a, b)
    assert cukern.can_cast(BFLOAT16, "float32")
    assert not cukern.can_cast("float32", BFLOAT16)


def test_can_cast_of_others() -> None:
    for arguments in ((1.0, "float32"), ("float32", 1), ("float32",)):
        with pytest.raises(TypeError):
            cukern.can_cast(*arguments)


@pytest.mark.parametrize("name", NAMES)
def test_isdtype(name: str) -> None:
    dtype = np.dtype(name)
    kinds = ["bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric"]
    for kind in kinds:
        assert cukern.isdtype(dtype, kind) is np.isdtype(dtype, kind)
    for pair in itertools.combinations(kinds, 2):
        assert cukern.isdtype(dtype, pair) is np.isdtype(dtype, pair)
    for other in NAMES:
        assert cukern.isdtype(dtype, np.dtype(other)) is (name == other)


def test_isdtype_of_bfloat16_and_others() -> None:
    assert cukern.isdtype(BFLOAT16, "real floating")
    assert cukern.isdtype(BFLOAT16, ("bool", BFLOAT16))
    assert not cukern.isdtype(BFLOAT16, "integral")
    assert not cukern.isdtype(cukern.float32, BFLOAT16)
    with pytest.raises(ValueError, match="isdtype: kind is 'float'"):
        cukern.isdtype(cukern.float32, "float")
    with pytest.raises(TypeError):
        cukern.isdtype(3.0, "numeric")


@pytest.mark.parametrize("name", ["float16", "float32", "float64", "complex64", "complex128"])
def test_finfo(name: str) -> None:
    info, wanted = cukern.finfo(np.dtype(name)), np.finfo(name)
    assert (info.bits, info.eps, info.max, info.min) == (wanted.bits, wanted.eps, wanted.max, wanted.min)
    assert (info.smallest_normal, info.dtype) == (wanted.smallest_normal, wanted.dtype)
    assert all(type(value) is float for value in (info.eps, info.max, info.min, info.smallest_normal))
    assert cukern.finfo(cukern.zeros(1, dtype=name)) == info


def test_finfo_of_bfloat16() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    info, wanted = cukern.finfo(BFLOAT16), ml_dtypes.finfo(ml_dtypes.bfloat16)
    assert (info.bits, info.eps, info.max, info.min) == (
        16,
        float(wanted.eps),
        float(wanted.max),
        float(wanted.min),
    )
    assert info.smallest_normal == float(wanted.smallest_normal)
    assert info.dtype == BFLOAT16


@pytest.mark.parametrize("name", [name for name in NAMES if np.dtype(name).kind in "iu"])
def test_iinfo(name: str) -> None:
    info, wanted = cukern.iinfo(np.dtype(name)), np.iinfo(name)
    assert (info.bits, info.max, info.min, info.dtype) == (wanted.bits, wanted.max, wanted.min, np.dtype(name))
    assert cukern.iinfo(np.zeros(1, name)) == info


def test_limits_of_other_kinds() -> None:
    for dtype in (cukern.int8, cukern.bool):
        with pytest.raises(TypeError, match="finfo"):
            cukern.finfo(dtype)
    for other in (cukern.float32, cukern.bool, BFLOAT16):
        with pytest.raises(TypeError, match="iinfo"):
            cukern.iinfo(other)


def test_namespace(backend: str) -> None:
    a = cukern.zeros(3)
    assert a.__array_namespace__() is cukern
    for version in ("2021.12", "2024.12", None):
        assert a.__array_namespace__(api_version=version) is cukern
    for wrong in ("2020.01", 2024, ""):
        with pytest.raises(ValueError, match="api_version"):
            a.__array_namespace__(api_version=wrong)


def test_namespace_info(backend: str) -> None:
    info = cukern.__array_namespace_info__()
    assert info.capabilities() == {"boolean indexing": False, "data-dependent shapes": False, "max dimensions": 64}
    assert info.default_device() in info.devices()
    assert cukern.zeros(1).device == info.default_device()
    assert cukern.zeros(1).dtype == info.default_dtypes()["real floating"]
    assert cukern.asarray(1).dtype == info.default_dtypes()["integral"]
    assert cukern.asarray(1j).dtype == info.default_dtypes()["complex floating"]
    assert cukern.argmax(np.zeros(2)).dtype == info.default_dtypes()["indexing"]
    wanted = [name for name in NAMES if name != "float16"]
    assert sorted(info.dtypes()) == sorted(wanted)
    assert sorted(info.dtypes(kind="real floating")) == ["float32", "float64"]
    assert sorted(info.dtypes(kind=("bool", "unsigned integer"))) == ["bool", "uint16", "uint32", "uint64", "uint8"]


@pytest.mark.parametrize("name", NAMES)
def test_astype(name: str, backend: str, rng: np.random.Generator) -> None:
    a = random_array(rng, (3, 5), np.dtype(name)) if name != "bool" else rng.integers(0, 2, (3, 5)) != 0
    for to in ("bool", "float64", "complex64") if a.dtype.kind != "c" else ("bool", "complex64", "complex128"):
        wanted = a.astype(to)
        for source in (a, cukern.asarray(a), memoryview(a) if name not in ("complex64", "complex128") else a):
            result = cukern.astype(source, to)
            assert type(result) is (cukern.Array if isinstance(source, cukern.Array) else np.ndarray)
            assert result.dtype == wanted.dtype
            np.testing.assert_array_equal(cukern.asnumpy(result), wanted)


def test_astype_without_a_copy(backend: str) -> None:
    for a in (np.ones(3, np.float32), cukern.ones(3, dtype="float32")):
        assert cukern.astype(a, "float32", copy=False) is a
        assert cukern.astype(a, "float32") is not a
        assert cukern.astype(a, "int8", copy=False).dtype == "int8"


def test_astype_of_swapped_bytes(backend: str) -> None:
    a = np.array([1, 2], np.dtype("int32").newbyteorder())
    for copy in (True, False):
        with pytest.raises(TypeError, match="byte"):
            cukern.astype(a, "int32", copy=copy)


def test_astype_refuses(backend: str) -> None:
    a = cukern.ones(3)
    assert cukern.astype(a, "int8", device=a.device).dtype == "int8"
    with pytest.raises(TypeError):
        cukern.astype(a, "U3")
    with pytest.raises(TypeError, match="astype"):
        cukern.astype([1, 2], "int8")
    with pytest.raises(TypeError, match="astype"):
        cukern.astype(1.0, "int8")
    with pytest.raises((ValueError, cukern.CudaError)):
        cukern.astype(a, "int8", device=cukern.device_count())


def test_complex(backend: str) -> None:
    assert complex(cukern.asarray(np.complex64(1 + 2j))) == 1 + 2j
    assert complex(cukern.ones(1, dtype="int8")) == 1
    assert complex(cukern.ones((1, 1), dtype="bool")) == 1
    with pytest.raises(TypeError, match="complex"):
        complex(cukern.ones(2))
