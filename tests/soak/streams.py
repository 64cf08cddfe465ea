"""Work on the same Arrays from several streams, with events, views on the host and copies in between."""

from __future__ import annotations

from typing import Any

import numpy as np

import cukern

from .core import Case
from .draw import MEMORIES

DTYPES = ["int8", "int32", "int64", "uint16"]  # of integers every order of exact steps gives the same bits


class Graph:
    """Arrays, their models, and the streams and events that work on them."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.device = case.random.randrange(cukern.device_count())
        with cukern.Device(self.device):
            self.streams = [
                cukern.Stream(non_blocking=case.chance(0.7), priority=case.pick([0, 0, -1]))
                for _ in range(case.random.randint(1, 4))
            ]
            shape = case.pick([(5,), (1000,), (30, 40), (100_000,) if case.chance(0.2) else (7,)])
            dtype = case.pick(DTYPES)
            self.models = [case.rng.integers(0, 50, shape).astype(dtype) for _ in range(case.random.randint(2, 4))]
            self.arrays = [cukern.asarray(model, memory=case.pick(MEMORIES)) for model in self.models]
        self.events: list[cukern.Event] = []
        self.views: list[tuple[Any, int]] = []

    def place(self) -> int:
        return self.case.random.randrange(len(self.arrays))

    def stream(self) -> Any:
        """Return a stream to name, in one of its forms."""
        stream = self.case.pick(self.streams)
        return self.case.pick([stream, stream, stream.ptr, Named(stream), 1])


class Named:
    """An object with the stream protocol."""

    def __init__(self, stream: cukern.Stream) -> None:
        self.stream = stream

    def __cuda_stream__(self) -> tuple[int, int]:
        return self.stream.__cuda_stream__()


def operate(graph: Graph) -> None:
    """Write one Array, of two others."""
    case = graph.case
    i, j, k = (graph.place() for _ in range(3))
    a, b, out = graph.arrays[i], graph.arrays[j], graph.arrays[k]
    x, y, z = graph.models[i], graph.models[j], graph.models[k]
    options = {"stream": graph.stream()} if case.chance(0.5) else {}
    match case.random.randrange(8):
        case 0 | 1:
            name = case.pick(["add", "subtract", "multiply", "maximum"])
            case.call(name, getattr(cukern, name), a, b, out=out, **options)
            z[...] = getattr(np, name)(x, y)
        case 2:
            case.note(f"array {k} ({out.memory}) gets array {i} ({a.memory}) reversed")
            out[...] = a[::-1]
            z[...] = x[::-1].copy()
        case 3:
            case.call("fill", out.fill, 7, **options)
            z.fill(7)
        case 4:
            case.call("copyto", cukern.copyto, out, a, **options)
            z[...] = x.copy()
        case 5:
            case.note(f"array {k} is made anew of {i}, as a + 3, on {cukern.current_stream()!r}")
            graph.arrays[k] = a + 3
            graph.models[k] = x + x.dtype.type(3)
            graph.views = [view for view in graph.views if view[1] != k]
        case 6:
            out += 1
            z += z.dtype.type(1)
        case _:
            total = case.call("sum", cukern.sum, a, **options)
            case.check(int(total) == int(x.sum()), f"a sum is {int(total)}; expected {int(x.sum())}")


def order(graph: Graph) -> None:
    """Record, wait, ask, drop."""
    case = graph.case
    stream = case.pick(graph.streams)
    match case.random.randrange(7):
        case 0 | 1:
            case.note("record")
            graph.events.append(stream.record() if case.chance(0.7) else cukern.Event(timing=case.chance(0.5)))
        case 2 if graph.events:
            case.note("wait_event")
            event = case.pick(graph.events)
            try:
                stream.wait_event(event)
            except (RuntimeError, ValueError) as error:  # of an event that was never recorded
                case.check(str(error), "an error without a message")
        case 3 if graph.events:
            case.note("done, synchronize of an event")
            event = case.pick(graph.events)
            event.done  # noqa: B018
            event.synchronize()
        case 4:
            case.note("synchronize")
            stream.synchronize()
            case.check(stream.done, "a stream is not done after synchronize()")
        case 5 if len(graph.streams) > 1:
            case.note("drop a stream")
            graph.streams.remove(stream)
        case _:
            case.note("synchronize all")
            cukern.synchronize()


def export(graph: Graph) -> None:
    """Have the host see an Array, and let go of such views."""
    case, k = graph.case, graph.place()
    array = graph.arrays[k]
    if graph.views and case.chance(0.4):
        graph.views.pop()
        return
    match case.random.randrange(3):
        case 0 if array.memory != "device":
            case.note(f"memoryview of array {k}")
            graph.views.append((memoryview(array), k))
        case 1:
            case.note(f"capsule of array {k}")
            graph.views.append((array.__dlpack__(stream=case.pick([None, -1])), -1))
        case _:
            case.note(f"asnumpy of array {k}")
            case.check(np.array_equal(cukern.asnumpy(array), graph.models[k]), f"array {k} is not what it should be")
    for view, i in graph.views:
        if i >= 0:
            # What NumPy takes as an operation's value is there when the call that made it has returned.
            found = np.asarray(view).copy()
            case.check(
                np.array_equal(found, graph.models[i]),
                f"a view of array {i} is not what it should be: {found[:5]}, not {graph.models[i][:5]}, and after "
                f"a synchronisation {after_all(view)[:5]}; {graph.arrays[i].memory}",
            )


def after_all(view: Any) -> np.ndarray:
    """Return what a view holds when everything is done."""
    cukern.synchronize()
    return np.asarray(view).copy()


def run(case: Case) -> None:
    """Run one case."""
    graph = Graph(case)
    for _ in range(case.random.randint(3, 25)):
        step = case.pick([operate, operate, operate, order, order, export])
        if graph.streams and case.chance(0.5):
            with case.pick(graph.streams):
                step(graph)
        else:
            step(graph)
    if case.chance(0.3):
        graph.streams.clear()
        graph.events.clear()
    for k, (array, model) in enumerate(zip(graph.arrays, graph.models, strict=True)):
        case.check(np.array_equal(cukern.asnumpy(array), model), f"array {k} is not what it should be in the end")
