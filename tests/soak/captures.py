"""CUDA graphs: calls with out= that torch or CuPy capture, replayed beside other work, against a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import cukern

from .core import Case
from .libraries import loaded

SIDE = 64
Step = tuple[str, tuple[int, ...]]


def apply(case: Case, step: Step, arrays: list[Any], **options: Any) -> None:
    """Make one call on Arrays."""
    name, (i, j, k) = step
    a, b, out = arrays[i], arrays[j], arrays[k]
    match name:
        case "copyto":
            cukern.copyto(out, a, **options)
        case "sum":
            cukern.sum(a, axis=0, keepdims=True, out=out[:1], **options)
        case "cumulative_sum":
            cukern.cumulative_sum(a, axis=1, out=out, **options)
        case "matmul_tiled":
            cukern.matmul_tiled(a, b, out=out, **options)
        case "negative":
            cukern.negative(a, out=out, **options)
        case _:
            getattr(cukern, name)(a, b, out=out, **options)


def imitate(step: Step, models: list[np.ndarray]) -> None:
    """Make the same call on the models."""
    name, (i, j, k) = step
    a, b, out = models[i], models[j], models[k]
    match name:
        case "copyto":
            out[...] = a.copy()
        case "sum":
            out[:1] = a.sum(axis=0, keepdims=True).astype(out.dtype)
        case "cumulative_sum":
            out[...] = np.cumulative_sum(a, axis=1).astype(out.dtype)
        case "matmul_tiled":
            out[...] = a @ b
        case "negative":
            out[...] = -a
        case _:
            out[...] = getattr(np, name)(a, b)


NAMES = ["add", "subtract", "multiply", "maximum", "negative", "copyto", "sum", "cumulative_sum", "matmul_tiled"]
WITHOUT_OVERLAP = ("sum", "cumulative_sum", "matmul_tiled", "copyto")


def draw_steps(case: Case, count: int) -> list[Step]:
    """Return calls on three Arrays; some take no operand as out."""
    steps: list[Step] = []
    for _ in range(count):
        name = case.pick(NAMES)
        i, j, k = (case.random.randrange(3) for _ in range(3))
        if name in WITHOUT_OVERLAP:
            i, j, k = case.random.sample(range(3), 3)
        steps.append((name, (i, j, k)))
    return steps


def torch_capture(body: Callable[[int], None]) -> Callable[[], None] | None:
    """Capture by torch; return what replays it."""
    torch = loaded("torch")
    if torch is None:
        return None
    graph = torch.cuda.CUDAGraph()
    # JAX's threads, which the cases of libraries leave, call what the mode "global" lets no thread call.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        body(torch.cuda.current_stream().cuda_stream)
    return graph.replay


def cupy_capture(body: Callable[[int], None]) -> Callable[[], None] | None:
    """Capture by CuPy; return what replays it."""
    cupy = loaded("cupy")
    if cupy is None:
        return None
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        try:
            body(stream.ptr)
        finally:
            graph = stream.end_capture()

    def replay() -> None:
        graph.launch(stream)
        stream.synchronize()

    return replay


def run(case: Case) -> None:
    """Run one case."""
    models = [case.rng.integers(-3, 4, (SIDE, SIDE)).astype("int64") for _ in range(3)]
    memories = [case.pick(["device", "device", "managed"]) for _ in range(3)]
    arrays = [cukern.asarray(model, memory=memory) for model, memory in zip(models, memories, strict=True)]
    steps = draw_steps(case, case.random.randint(1, 6))
    case.note(f"capture of {steps} on {memories}")
    for step in steps:  # what needs memory of its own takes it now
        apply(case, step, arrays)
        imitate(step, models)
    cukern.synchronize()

    def body(handle: int) -> None:
        with cukern.Stream.from_handle(handle):
            for step in steps:
                apply(case, step, arrays)
            if case.chance(0.3):
                try:
                    arrays[0] + 1
                    case.fail("a new result was made in a capture")
                except RuntimeError as error:
                    case.check(str(error), "an error without a message")
                    case.refused += 1

    replay = case.pick([torch_capture, cupy_capture])(body)
    if replay is None:
        return
    for _ in range(case.random.randint(1, 4)):
        if case.chance(0.5):
            eager = draw_steps(case, 1)[0]
            case.note(f"eagerly {eager}")
            apply(case, eager, arrays)
            imitate(eager, models)
        cukern.synchronize()
        case.note("replay")
        replay()
        loaded("torch") and loaded("torch").cuda.synchronize()
        cukern.synchronize()
        for step in steps:
            imitate(step, models)
        for array, model in zip(arrays, models, strict=True):
            case.check(np.array_equal(cukern.asnumpy(array), model), f"a replay of {steps} gives other values")
