"""Arrays of torch, CuPy, JAX and Numba, where they are installed: as operands, as out, views of Arrays of ours."""

from __future__ import annotations

import contextlib
import gc
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import cukern

from .core import Case
from .draw import MEMORIES

DTYPES = ["float32", "float64", "int32", "int64"]
REFUSALS = (TypeError, ValueError, BufferError, RuntimeError, AttributeError, NotImplementedError)


@dataclass(frozen=True)
class Library:
    """What is done with arrays of one library."""

    name: str
    make: Callable[[np.ndarray], Any]
    read: Callable[[Any], np.ndarray]
    views: tuple[Callable[[Any], Any], ...]  # of an Array
    writable: bool = True


def loaded(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except Exception:  # not installed, or not for this machine
        return None


def torch_library(on_gpu: bool) -> Library | None:
    torch = loaded("torch")
    if torch is None or (on_gpu and not torch.cuda.is_available()):
        return None
    device = "cuda" if on_gpu else "cpu"
    views = (torch.from_dlpack, lambda a: torch.as_tensor(a, device=device)) if on_gpu else (torch.from_dlpack,)
    return Library(
        f"torch {device}", lambda v: torch.tensor(v, device=device), lambda x: np.array(x.detach().cpu().numpy()), views
    )


def cupy_library(on_gpu: bool) -> Library | None:
    cupy = loaded("cupy") if on_gpu else None
    return cupy and Library("cupy", cupy.array, cupy.asnumpy, (cupy.asarray, cupy.from_dlpack))


def numba_library(on_gpu: bool) -> Library | None:
    cuda = loaded("numba.cuda") if on_gpu else None
    if cuda is None or not cuda.is_available():
        return None
    return Library(
        "numba", lambda v: cuda.to_device(v.copy()), lambda x: x.copy_to_host(), (cuda.as_cuda_array, cuda.to_device)
    )


def jax_library(on_gpu: bool) -> Library | None:
    jax = loaded("jax")
    if jax is None:
        return None
    with contextlib.suppress(Exception):
        jax.config.update("jax_enable_x64", True)
    try:
        device = jax.devices("gpu" if on_gpu else "cpu")[0]
    except RuntimeError:
        return None
    return Library("jax", lambda v: jax.device_put(v.copy(), device), np.array, (jax.numpy.from_dlpack,), False)


FOUND: dict[bool, list[Library]] = {}


def libraries(on_gpu: bool) -> list[Library]:
    """Return the libraries that are there; on a GPU those of the host's memory, too."""
    if on_gpu not in FOUND:
        places = (True, False) if on_gpu else (False,)
        makers = (torch_library, cupy_library, numba_library, jax_library)
        FOUND[on_gpu] = [library for place in places for maker in makers if (library := maker(place)) is not None]
    return FOUND[on_gpu]


def operands(case: Case, library: Library) -> None:
    """Compute with a library's arrays, alone and beside Arrays of ours."""
    dtype = case.pick(DTYPES)
    shape = case.pick([(), (5,), (3, 4), (0, 2), (2, 3, 4)])
    a, b = (np.asarray(case.rng.integers(0, 9, shape)).astype(dtype) for _ in range(2))
    x, y = library.make(a), library.make(b)
    if case.chance(0.3):
        y = cukern.asarray(b, memory=case.pick(MEMORIES))
    name = case.pick(["add", "subtract", "multiply", "maximum"])
    case.note(f"{name} of {library.name} {dtype}{shape} and {type(y).__module__}")
    try:
        result = getattr(cukern, name)(x, y)
    except TypeError:  # the host beside the device
        case.refused += 1
        return
    actual = cukern.asnumpy(result)
    wanted = getattr(np, name)(a, b)
    case.check(np.array_equal(actual, wanted), f"{name} of {library.name}: {actual} != {wanted}")
    if len(shape) and case.chance(0.5):
        case.note(f"sum of {library.name} {dtype}{shape}")
        total = cukern.asnumpy(cukern.sum(x, axis=0))
        case.check(np.allclose(total, a.sum(axis=0)), f"sum of {library.name}: {total}")
    if library.writable and case.chance(0.5):
        case.note(f"{name} into {library.name} {dtype}{shape}")
        out = library.make(np.zeros(shape, dtype))
        case.check(getattr(cukern, name)(x, x, out=out) is out, "another object than out was returned")
        case.check(np.array_equal(cukern.asnumpy(out), getattr(np, name)(a, a)), f"{name} into {library.name}")


def shared(case: Case, library: Library) -> None:
    """Import a library's array, have it see one of ours, drop either first."""
    dtype = case.pick(DTYPES)
    values = case.rng.integers(0, 9, case.pick([(5,), (3, 4), (2, 3, 4)])).astype(dtype)
    kept: list[Any] = []
    for _ in range(case.random.randint(1, 4)):
        x = library.make(values)
        take = case.pick([cukern.from_dlpack, cukern.asarray])
        case.note(f"{take.__name__} of {library.name} {dtype}{values.shape}")
        try:
            made = take(x)
            case.check(np.array_equal(cukern.asnumpy(made), values), f"{take.__name__} of {library.name} has others")
            kept.append(case.pick([made, made[::-1], x]))
        except REFUSALS as error:
            case.check(str(error), "an error without a message")
            case.refused += 1
        own = cukern.asarray(values, memory=case.pick(MEMORIES))
        view = case.pick(library.views)
        case.note(f"{library.name}'s view of an Array in {own.memory} memory")
        try:
            seen = view(own)
        except Exception as error:  # the library's own
            case.check(str(error) is not None, "")
            case.refused += 1
        else:
            cukern.synchronize()
            case.check(np.array_equal(library.read(seen), values), f"{library.name} sees other values")
            kept.append(seen)
        del x, own
        if kept and case.chance(0.4):
            kept.pop(case.random.randrange(len(kept)))
        if case.chance(0.02):
            gc.collect()


def run(case: Case) -> None:
    """Run one case; none where no library is installed."""
    found = libraries(case.on_gpu)
    if found:
        case.pick([operands, shared])(case, case.pick(found))
