"""Threads, generators and tasks that work on the same Arrays, each in streams and on devices of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import cukern

from . import elementwise, nonsense, protocols, reductions, views
from .core import SANITIZED, Case
from .draw import MEMORIES

KINDS: list[Callable[[Case], None]] = [elementwise.run, reductions.run, views.run]
UNCHECKED: list[Callable[[Case], None]] = [nonsense.run, protocols.run]


def inner(case: Case, number: int) -> Case:
    """Return a case for one thread, with random numbers of its own."""
    return Case(f"{case.seed}:{case.number}", number, case.kind, case.backend, case.ring)


def several(case: Case, work: Callable[[int], None], count: int) -> None:
    """Run threads; pass on the first thing that went wrong."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(count)

    def act(number: int) -> None:
        try:
            barrier.wait(60)
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=act, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
        case.check(not thread.is_alive(), "a thread hangs")
    if errors:
        raise errors.pop()


def cases_at_once(case: Case) -> None:
    """Run cases of other kinds at the same time."""
    cases = [inner(case, number) for number in range(case.random.randint(2, 4))]

    def work(number: int) -> None:
        own = cases[number]
        for _ in range(4):
            function = own.pick(KINDS if own.chance(0.9) else UNCHECKED[:1])
            if own.chance(0.5):
                with cukern.Stream():
                    function(own)
            else:
                function(own)

    several(case, work, len(cases))
    case.refused += sum(own.refused for own in cases)


def shared_arrays(case: Case) -> None:
    """Read and write the same Arrays; what is only read is checked."""
    shape = case.pick([(10,), (500,), (40, 50), (200_000,)])
    models = [case.rng.integers(0, 20, shape).astype("int64") for _ in range(3)]
    arrays = [cukern.asarray(model, memory=case.pick(MEMORIES)) for model in models]
    memory = case.pick(MEMORIES)
    # Two threads that write the same elements race, as in NumPy: ThreadSanitizer is not to see that.
    targets = [cukern.zeros(shape, "int64", memory=memory) for _ in range(4 if SANITIZED else 1)]
    views_of = [array[::-1] for array in arrays]
    cases = [inner(case, number) for number in range(case.random.randint(2, 4))]
    case.note(f"threads on Arrays of {shape} in {[array.memory for array in arrays]}")

    def work(number: int) -> None:
        own, target = cases[number], targets[number % len(targets)]
        with cukern.Stream():
            for _ in range(8):
                i, j = own.random.randrange(3), own.random.randrange(3)
                match own.random.randrange(7):
                    case 0 | 1:
                        result = cukern.add(arrays[i], views_of[j])
                        own.check(np.array_equal(cukern.asnumpy(result), models[i] + models[j][::-1]), "a sum is wrong")
                    case 2:
                        own.check(int(cukern.sum(arrays[i])) == int(models[i].sum()), "a reduction is wrong")
                    case 3:
                        cukern.multiply(arrays[i], arrays[j], out=target)
                    case 4:
                        target.fill(number)
                    case 5 if arrays[i].memory != "device":
                        own.check(np.array_equal(np.asarray(arrays[i]), models[i]), "a view is wrong")
                    case _:
                        copied = arrays[i][...].copy()
                        own.check(np.array_equal(copied.get(), models[i]), "a copy is wrong")

    several(case, work, len(cases))
    for array, model in zip(arrays, models, strict=True):
        case.check(np.array_equal(cukern.asnumpy(array), model), "an Array that is only read was changed")


def mutating_lists(case: Case) -> None:
    """Change lists, buffers and attributes that another thread's calls look at."""
    arrays = [cukern.ones(5) for _ in range(6)]
    given = list(arrays)
    buffer = bytearray(64)

    def work(number: int) -> None:
        for step in range(30):
            try:
                if number == 0:
                    given.clear() if step % 2 else given.extend(arrays)
                elif number == 1:
                    buffer.extend(b"12345678") if len(buffer) < 200 else buffer.clear()
                elif step % 2 or (SANITIZED and number == 3):
                    cukern.concat(given)
                else:
                    cukern.add(buffer, 1, out=buffer)
            except (TypeError, ValueError, BufferError, RuntimeError) as error:
                case.check(str(error), "an error without a message")

    case.note("concat of a list, add on a bytearray, that other threads change")
    several(case, work, 4)


def generator(case: Case, device: int, depth: int) -> Iterator[Any]:
    """Yield from within blocks of streams and devices."""
    with cukern.Device(device), cukern.Stream() as stream:
        x = cukern.ones(4, "int32")
        yield x, stream
        if depth:
            yield from generator(case, device, depth - 1)
        yield x + 1, stream


def generators(case: Case) -> None:
    """Interleave generators that are in blocks of their own; some are left unfinished."""
    running = [
        generator(case, case.random.randrange(cukern.device_count()), case.random.randint(0, 2)) for _ in range(3)
    ]
    case.note("generators in blocks of streams")
    while running:
        one = running.pop(case.random.randrange(len(running)))
        try:
            x, _ = next(one)
            case.check(int(x.sum()) in (4, 8), "an Array of a generator is wrong")
            if case.chance(0.1):
                one.close()
            else:
                running.append(one)
        except StopIteration:
            continue
        except (RuntimeError, ValueError) as error:  # blocks that end in another order than they began
            case.check(str(error), "an error without a message")
            case.refused += 1
    restore(case)


def restore(case: Case) -> None:
    """See that calls still work when blocks have ended in any order."""
    case.check(int((cukern.ones(3, "int8") + 1).sum()) == 6, "a call after the blocks is wrong")


def tasks(case: Case) -> None:
    """Interleave asyncio's tasks that are in blocks of their own."""
    pauses = [[case.random.randint(0, 2) for _ in range(4)] for _ in range(3)]
    devices = [case.random.randrange(cukern.device_count()) for _ in range(3)]

    async def work(number: int) -> None:
        with cukern.Device(devices[number]):
            for pause in pauses[number]:
                with cukern.Stream() as stream:
                    x = cukern.ones(5, "int16")
                    for _ in range(pause):
                        await asyncio.sleep(0)
                    case.check(int((x + x).sum()) == 10, "an Array of a task is wrong")
                    stream.synchronize()

    async def together() -> None:
        found = await asyncio.gather(*(work(number) for number in range(3)), return_exceptions=True)
        for error in found:
            if error is not None and not isinstance(error, RuntimeError | ValueError):
                raise error

    case.note("tasks in blocks of streams")
    asyncio.run(together())
    restore(case)


def run(case: Case) -> None:
    """Run one case; blocks that are left in another order stay with the thread, which ends then."""
    function = case.pick([cases_at_once, shared_arrays, shared_arrays, mutating_lists, generators, tasks])
    if function in (generators, tasks):
        several(case, lambda number: function(case), 1)
    else:
        function(case)
