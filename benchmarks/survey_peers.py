"""The survey's peers: torch and CuPy on a GPU, NumPy on the host back-end; and the arrays they share with cukern."""

from __future__ import annotations

import functools
import importlib
import math
import statistics
from collections.abc import Callable
from typing import Any

import numpy
from survey_cases import Case

import cukern

TORCH_NAMES = {
    **{"equal": "eq", "not_equal": "ne", "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge"},
    **{"bitwise_invert": "bitwise_not", "conj": "conj_physical", "max": "amax", "min": "amin", "clip": "clamp"},
    **{"cumulative_sum": "cumsum", "cumulative_prod": "cumprod"},
}
# Of CuPy and of NumPy before 2.
OLD_NAMES = {
    **{"pow": "power", "atan2": "arctan2", "conj": "conjugate", "bitwise_invert": "invert"},
    **{"bitwise_left_shift": "left_shift", "bitwise_right_shift": "right_shift", "abs": "absolute"},
    **{name: f"arc{name[1:]}" for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")},
    **{"cumulative_sum": "cumsum", "cumulative_prod": "cumprod", "round": "rint"},
}


@functools.cache
def torch() -> Any:
    """Import torch."""
    import torch

    return torch


@functools.cache
def cupy() -> Any:
    """Import CuPy."""
    import cupy

    return cupy


class Peer:
    """A library that is compared with."""

    name = ""

    def array(self, x: Any) -> Any:
        """Return one of cukern's arrays as the library's own, without a copy; numbers as they are."""
        raise NotImplementedError

    def function(self, case: Case, x: list[Any], out: Any) -> Callable[[], Any]:
        """Return the library's call."""
        raise NotImplementedError

    def element_type(self, x: Any) -> str:
        """Return the name of an array's element type."""
        return str(x.dtype).removeprefix("torch.")

    def call(self, case: Case, arrays: list[Any], out: Any) -> Callable[[], Any] | None:
        """Return the call, or None where the library can't do it or gives another element type."""
        try:
            own = [self.array(x) for x in arrays]
            target = None if out is None else self.array(out)
            if self.element_type(self.function(case, own, None)()) != case.result:
                return None
            call = self.function(case, own, target)
            if case.place != "in place":
                call()
        except Exception:  # whatever a library raises for what it does not have
            return None
        return call

    def result(self, case: Case, arrays: list[Any]) -> Any:
        """Return the result as one of cukern's arrays."""
        return cukern.from_dlpack(self.function(case, [self.array(x) for x in arrays], None)())


class TorchPeer(Peer):
    """torch."""

    name = "torch"

    def array(self, x: Any) -> Any:
        if isinstance(x, int):
            return x
        if any(stride < 0 for stride in x.strides):  # torch has none, and where C++ finds out the process ends
            raise ValueError("negative strides")
        return torch().from_dlpack(x)

    def function(self, case: Case, x: list[Any], out: Any) -> Callable[[], Any]:
        t, name = torch(), case.name
        options = {} if out is None else {"out": out}
        # The conjugate of real numbers is the array itself in torch.
        if name in ("copyto", "astype", "positive", "real", "imag") or (name == "conj" and not x[0].is_complex()):
            if name in ("real", "imag") and x[0].is_complex():
                x = [getattr(x[0], name)]
            elif name == "imag":
                x = [t.zeros_like(x[0])]
            if out is not None:
                return lambda: out.copy_(x[0])
            dtype = getattr(t, case.result)
            return lambda: x[0].to(dtype, copy=True)
        if name == "axpy":
            return lambda: t.add(x[1], x[0], alpha=2, **options)
        if name == "scale":
            return lambda: t.multiply(x[0], 2, **options)
        function = getattr(t, TORCH_NAMES.get(name, name))
        if case.kind not in ("reduction", "scan"):
            return lambda: function(*x, **options)
        dim = case.axis
        if dim is None and name not in ("argmax", "argmin") and (out is not None or name in ("max", "min")):
            dim = tuple(range(len(case.shape)))
        options |= {} if dim is None else {"dim": dim}
        options |= {"correction": 0} if name in ("var", "std") else {}
        return lambda: function(x[0], **options)


class OldNamesPeer(Peer):
    """A library with NumPy's functions."""

    library: Any

    def function(self, case: Case, x: list[Any], out: Any) -> Callable[[], Any]:
        xp, name = self.library, case.name
        options = {} if out is None else {"out": out}
        if name == "copyto":
            if out is not None:
                return lambda: xp.copyto(out, x[0], casting="unsafe")
            return lambda: x[0].astype(case.result)
        if name == "astype":
            return lambda: x[0].astype(case.result)
        if name in ("real", "imag"):
            part = getattr(x[0], name)
            if out is not None:
                return lambda: xp.copyto(out, part)
            return lambda: part.copy()
        if name == "axpy":
            return lambda: xp.add(2 * x[0], x[1], **options)
        if name == "scale":
            return lambda: xp.multiply(x[0], 2, **options)
        if name == "where" and out is not None:
            return lambda: xp.copyto(out, xp.where(*x))
        function = getattr(xp, OLD_NAMES.get(name, name))
        if case.kind in ("reduction", "scan"):
            options |= {"axis": case.axis}
        return lambda: function(*x, **options)


class CupyPeer(OldNamesPeer):
    """CuPy."""

    name = "CuPy"

    @property
    def library(self) -> Any:  # type: ignore[override]
        return cupy()

    def array(self, x: Any) -> Any:
        return x if isinstance(x, int) else cupy().from_dlpack(x)

    def function(self, case: Case, x: list[Any], out: Any) -> Callable[[], Any]:
        call = super().function(case, x, out)

        def on_stream() -> Any:
            with cupy().cuda.ExternalStream(torch().cuda.current_stream().cuda_stream):
                return call()

        return call if case.size <= 10**5 else on_stream


class NumpyPeer(OldNamesPeer):
    """NumPy, on copies where a GPU is used."""

    name = "NumPy"
    library = numpy

    def array(self, x: Any) -> Any:
        if isinstance(x, int):
            return x
        is_shared = cukern.backend() == "host" and x.dtype != cukern.bfloat16
        if not is_shared:
            importlib.import_module("ml_dtypes")  # whose bfloat16 is NumPy's
        return numpy.from_dlpack(x) if is_shared else cukern.asnumpy(x)

    def result(self, case: Case, arrays: list[Any]) -> Any:
        own = [self.array(x) for x in arrays]
        if case.kind in ("reduction", "scan") and own[0].dtype.itemsize == 2 and own[0].dtype.kind not in "iu":
            own[0] = own[0].astype(numpy.float64)  # ml_dtypes adds bfloat16 up in itself
        if case.name in ("mean", "var", "std") and own[0].dtype.kind in "biu" and case.axis is not None:
            # NumPy adds up rows in pairs, and columns of 10^6 elements one by one, which loses more than we may.
            axes = numpy.atleast_1d(case.axis)
            rows = numpy.moveaxis(own[0], axes, numpy.arange(-axes.size, 0))
            kept = rows.shape[: rows.ndim - axes.size]
            rows = numpy.ascontiguousarray(rows, numpy.float64).reshape(*kept, -1)
            return cukern.asarray(numpy.asarray(getattr(numpy, case.name)(rows, axis=-1)))
        with numpy.errstate(all="ignore"):
            made = self.function(case, own, None)()
        return cukern.asarray(numpy.asarray(made))


@functools.cache
def all_peers() -> list[Peer]:
    """Return the peers that are timed."""
    return [NumpyPeer()] if cukern.backend() == "host" else [TorchPeer(), CupyPeer()]


def random(shape: tuple[int, ...], dtype: str, values: tuple[float, float]) -> Any:
    """Return an Array of random numbers between two; of integers and bool from 0 or 1 to 7."""
    least = 1 if values[0] > 0 else 0
    if cukern.backend() == "host" or math.prod(shape) < 10**4:
        rng = numpy.random.default_rng(sum(shape))
        if cukern.isdtype(getattr(cukern, dtype), ("bool", "integral")):
            return cukern.asarray(rng.integers(least, 8, shape)).astype(dtype)
        return cukern.asarray(rng.uniform(*values, shape)).astype(dtype)
    t = torch()
    if cukern.isdtype(getattr(cukern, dtype), ("bool", "integral")):
        return cukern.asarray(t.randint(least, 8, shape, device="cuda", dtype=t.uint8)).astype(dtype)
    numbers = t.rand(shape, device="cuda", dtype=t.float32).mul_(values[1] - values[0]).add_(values[0])
    return cukern.asarray(numbers).astype(dtype)


def make_signs(x: Any) -> None:
    """Replace numbers by 1 and -1, whose products are exact; integers by 0 and 1."""
    if cukern.isdtype(x.dtype, ("bool", "integral")):
        cukern.copyto(x, (x.astype("float32") > 3).astype(x.dtype))
    else:
        cukern.copyto(x, (2 * (cukern.real(x) > 0).astype("int8") - 1).astype(x.dtype))


def on_current_stream(own: Callable[..., Any]) -> Callable[[], Any]:
    """Return a call of cukern on torch's current stream."""
    return lambda: own(stream=torch().cuda.current_stream().cuda_stream)


def replayed(call: Callable[[], Any], repeat: int) -> Callable[[], Any]:
    """Return a replay of a graph with `repeat` calls."""
    t = torch()
    side = t.cuda.Stream()
    with t.cuda.stream(side):  # on the stream that is captured: libraries keep memory by stream
        for _ in range(2):
            call()
    t.cuda.synchronize()
    graph = t.cuda.CUDAGraph()
    with t.cuda.graph(graph, stream=side):
        for _ in range(repeat):
            call()

    # `kept`: the arrays that the graph reads and writes, which otherwise nothing might hold.
    def replay(kept: Callable[[], Any] = call) -> float:
        begin, end = (t.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3 / repeat

    return replay


def all_replayed(calls: dict[str, Callable[[], Any]], repeat: int) -> dict[str, Callable[[], Any]]:
    """Return replays of those calls that can be captured."""
    found = {}
    for name, call in calls.items():
        try:
            found[name] = replayed(call, repeat)
        except Exception as error:  # whatever a library raises for what it can't do in a capture
            print(f"{name} in a graph: {type(error).__name__}: {error}", flush=True)
            torch().cuda.synchronize()
    return found


def replay_seconds(replay: Callable[[], float], _: int) -> float:
    """Return the device time of one call of a replayed graph."""
    return statistics.median(replay() for _ in range(3))


def plain_copy(moved: int) -> Callable[[], Any]:
    """Return a copy that reads and writes as many bytes together."""
    if cukern.backend() == "host":
        data = numpy.zeros(moved // 2 + 1, numpy.uint8)
        target = numpy.empty_like(data)
        return lambda: numpy.copyto(target, data)
    source = torch().zeros(moved // 2 + 1, dtype=torch().uint8, device="cuda")
    there = torch().empty_like(source)
    return lambda: there.copy_(source)


def free_memory() -> None:
    """Give back what the libraries keep."""
    cukern.empty_cache()
    if cukern.backend() == "cuda":
        torch().cuda.empty_cache()
        cupy().get_default_memory_pool().free_all_blocks()
