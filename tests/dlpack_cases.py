"""What the tests of DLPack share."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
from dlpack_tools import (
    CPU,
    CUDA,
    CUDA_HOST,
    CUDA_MANAGED,
    METAL,
    READ_ONLY,
    VERSIONED,
    Producer,
    Reading,
)

import cukern

MEMORIES = ["device", "managed", "pinned"]


VALUES = np.arange(12, dtype=np.float32).reshape(3, 4)


def settle() -> None:
    """Have cukern let go of what nobody uses."""
    gc.collect()
    cukern.synchronize()


def own_device(backend: str, memory: str) -> tuple[int, int]:
    types_of_memory = {"device": CUDA, "managed": CUDA_MANAGED, "pinned": CUDA_HOST}
    return (types_of_memory[memory] if backend == "cuda" else CPU, 0)


def values_for(dtype: str) -> np.ndarray:
    values = np.arange(12).reshape(3, 4)
    return (values % 2 == 0) if dtype == "bool" else values.astype(dtype)


def snapshot(array: Any, **options: Any) -> Reading:
    """Read a capsule, and drop it unused: what its pointers lead to is gone."""
    return Reading(array.__dlpack__(**options))


def read_only_array(backend: str) -> tuple[cukern.Array, Producer]:
    producer = Producer(VALUES, VERSIONED, backend == "cuda", flags=READ_ONLY)
    array = cukern.from_dlpack(producer)
    assert not array.flags["WRITEABLE"]
    return array, producer


BAD: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "65 dimensions": ({"shape": (1,) * 65}, ValueError, "65 dimensions"),
    "negative dimensions": ({"ndim": -1}, ValueError, "-1 dimensions"),
    "negative length": ({"shape": (3, -4)}, ValueError, "negative length|more elements"),
    "negative length, strides": ({"shape": (3, -4), "strides": (4, 1)}, ValueError, "negative length|more elements"),
    "product overflows": ({"shape": (2**40, 2**40)}, ValueError, "more elements"),
    "bytes overflow": ({"shape": (2**62,)}, ValueError, "more elements"),
    "product overflows, strides": ({"shape": (2**40, 2**40), "strides": (0, 0)}, ValueError, "more elements"),
    "null": ({"data": None}, TypeError, "no memory"),
    "null, no dimensions": ({"data": None, "shape": ()}, TypeError, "no memory"),
    "null, an offset": ({"data": None, "byte_offset": 64}, TypeError, "no memory"),
    "misaligned": ({"shape": (2,), "byte_offset": 2}, BufferError, "not aligned"),
    "another device": ({"device": (METAL, 0)}, TypeError, "device"),
    "lanes": ({"dtype": (2, 32, 4)}, TypeError, "lanes"),
}
