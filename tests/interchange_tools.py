"""The libraries that cukern exchanges arrays with, each with the same few functions."""

from __future__ import annotations

import array
import contextlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from dlpack_tools import DTYPES, Reading

import cukern

VALUES = np.arange(12, dtype=np.float32).reshape(3, 4)
COMPUTED = ["float32", "float64", "int32", "int64"]  # the element types that every library computes with
EXCHANGED = [*DTYPES, "bfloat16"]  # and those that arrays have
MEMORIES = ["device", "managed", "pinned"]
CYCLES = 100_000_000  # of torch's spin kernel: some 50 ms
SIZE = 1024  # elements of arrays in tests of order

# What other libraries warn of when they are imported and first used is not our subject.
QUIET = [
    pytest.mark.filterwarnings(f"ignore::{name}")
    for name in ("DeprecationWarning", "PendingDeprecationWarning", "FutureWarning", "UserWarning")
]


@dataclass(frozen=True)
class Library:
    """Arrays of one library in one kind of memory."""

    name: str
    make: Callable[[np.ndarray], Any]
    read: Callable[[Any], np.ndarray]
    pointer: Callable[[Any], int]
    result: type  # what calls give that have no out=
    dlpack: bool = True
    writable: bool = True


def bring(name: str) -> Any:
    """Import a library, or skip the test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name)


def values_of(dtype: str, shape: tuple[int, ...] = (3, 4)) -> np.ndarray:
    """Return small whole numbers, which every element type holds; bfloat16 needs ml_dtypes."""
    if dtype == "bfloat16":
        dtype = bring("ml_dtypes").bfloat16
    count = int(np.prod(shape))
    numbers = np.arange(count).reshape(shape)
    return numbers % 2 == 0 if dtype == "bool" else numbers.astype(dtype)


def pointer_of(subject: cukern.Array) -> int:
    """Return the address of an Array's first element."""
    return int(Reading(subject.__dlpack__(max_version=(1, 0))).data or 0)


def keep_busy(handle: int) -> None:
    """Give a stream work that takes a while."""
    torch = bring("torch")
    with torch.cuda.stream(torch.cuda.ExternalStream(handle)):
        torch.cuda._sleep(CYCLES)


def waits() -> int:
    """Return how often the host has waited for a device, of cukern's doing."""
    return cukern.counters()["synchronizations"]


def torch_values(tensor: Any) -> np.ndarray:
    """Return a tensor's elements; those of bfloat16 as float32."""
    torch = bring("torch")
    tensor = tensor.cpu()
    return np.array((tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy())


def torch_tensor(values: np.ndarray, device: str) -> Any:
    """Return a tensor of its own memory."""
    torch = bring("torch")
    if values.dtype.name == "bfloat16":
        return torch.tensor(values.astype(np.float32), dtype=torch.bfloat16, device=device)
    return torch.tensor(values, device=device)


def torch_library(device: str) -> Library:
    torch = bring("torch")
    return Library("torch", lambda v: torch_tensor(v, device), torch_values, lambda x: x.data_ptr(), torch.Tensor)


def jax_library(platform: str) -> Library:
    jax = bring("jax")
    try:
        device = jax.devices(platform)[0]
    except RuntimeError as error:
        pytest.skip(f"JAX has no {platform} here: {error}")
    return Library(
        "jax",
        lambda v: jax.device_put(v.copy(), device),
        np.asarray,
        lambda x: x.unsafe_buffer_pointer(),
        jax.Array,
        writable=False,
    )


def numpy_library() -> Library:
    return Library("numpy", np.copy, np.copy, lambda x: x.ctypes.data, np.ndarray)


def address_of_buffer(buffer: Any) -> int:
    return int(np.asarray(memoryview(buffer)).ctypes.data)


def array_array_library() -> Library:
    return Library(
        "array.array",
        lambda v: array.array(v.dtype.char, v.ravel().tolist()),
        np.array,
        address_of_buffer,
        np.ndarray,
        dlpack=False,
    )


def memoryview_library() -> Library:
    return Library(
        "memoryview",
        lambda v: memoryview(bytearray(v.tobytes())).cast(v.dtype.char, v.shape),
        np.array,
        address_of_buffer,
        np.ndarray,
        dlpack=False,
    )


def cupy_library() -> Library:
    cupy = bring("cupy")
    return Library("cupy", cupy.array, cupy.asnumpy, lambda x: x.data.ptr, cupy.ndarray)


def numba_library() -> Library:
    cuda = bring("numba.cuda")
    return Library(
        "numba",
        lambda v: cuda.to_device(v.copy()),
        lambda x: x.copy_to_host(),
        lambda x: x.__cuda_array_interface__["data"][0],
        cukern.Array,
        dlpack=False,
    )


HOST_LIBRARIES: dict[str, Callable[[], Library]] = {
    "numpy": numpy_library,
    "array.array": array_array_library,
    "memoryview": memoryview_library,
    "torch": lambda: torch_library("cpu"),
    "jax": lambda: jax_library("cpu"),
}
GPU_LIBRARIES: dict[str, Callable[[], Library]] = {
    "torch": lambda: torch_library("cuda"),
    "cupy": cupy_library,
    "numba": numba_library,
    "jax": lambda: jax_library("gpu"),
}


@contextlib.contextmanager
def opened(library: Library) -> Iterator[Library]:
    """Let JAX have 64-bit numbers, which it does not have by default."""
    with bring("jax").enable_x64(True) if library.name == "jax" else contextlib.nullcontext():
        yield library
