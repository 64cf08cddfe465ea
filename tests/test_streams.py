"""Streams and events, and which stream a call runs on."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import numpy as np
import pytest

import cukern
from cukern import _cukern

pytestmark = pytest.mark.usefixtures("backend")
MEMORY = ["device", "managed", "pinned"]
SIZE = 4096  # elements of float64: a size class of their own


class Foreign:
    """Another library's stream, as the protocol has it."""

    def __init__(self, *answer: Any) -> None:
        self.answer = answer
        self.asked = 0

    def __cuda_stream__(self) -> Any:
        self.asked += 1
        return self.answer


class Draft:
    """The same as the first drafts of the protocol had it."""

    def __init__(self, handle: int) -> None:
        self.__cuda_stream__ = (0, handle)


def event_calls(call: Callable[[], object]) -> int:
    """Return how many calls for events a call makes: none where nothing has to be ordered."""
    before = _cukern._fault_calls("event")
    call()
    return _cukern._fault_calls("event") - before


def last_written_on(array: Any, stream: Any) -> bool:
    """Whether work on `stream` need not wait for what was last written to an array."""
    return event_calls(lambda: array.fill(0, stream=stream)) == 0


def belongs_to(make: Callable[[], Any], stream: Any) -> bool:
    """Whether the memory of the array that is made goes back to the free list of `stream`."""
    array = make()
    size, dtype = array.shape, array.dtype
    del array
    cukern.synchronize()
    hits = cukern.counters()["free_list_hits"]
    kept = cukern.empty(size, dtype, stream=stream)
    found = cukern.counters()["free_list_hits"] - hits
    del kept
    return found == 1


# --- Stream ---


@pytest.mark.parametrize("options", [{}, {"non_blocking": False}, {"priority": -1}, {"device": 0}])
def test_a_stream_and_what_it_tells(options: dict[str, Any]) -> None:
    stream = cukern.Stream(**options)
    assert isinstance(stream.ptr, int)
    assert stream.ptr > 2  # those below stand for default streams
    assert stream.__cuda_stream__() == (0, stream.ptr)
    assert stream.device == cukern.Device(0)
    assert "of device 0" in repr(stream)
    assert stream.synchronize() is None
    assert stream.done is True
    with pytest.raises(AttributeError):
        stream.ptr = 0


def test_every_stream_is_its_own() -> None:
    streams = [cukern.Stream() for _ in range(8)]
    assert len({stream.ptr for stream in streams}) == 8
    assert len(set(streams)) == 8
    assert streams[0] != streams[1]
    assert streams[0] == cukern.Stream.from_handle(streams[0])
    assert hash(streams[0]) == hash(cukern.Stream.from_handle(streams[0]))
    assert streams[0] != streams[0].ptr
    with pytest.raises(TypeError):
        streams[0] < streams[1]  # noqa: B015


@pytest.mark.parametrize("handle", [0, 1])
def test_the_handles_of_the_legacy_default_stream(handle: int) -> None:
    for named in (handle, Foreign(0, handle), Draft(handle)):
        stream = cukern.Stream.from_handle(named)
        assert stream == cukern.current_stream()
        assert stream.ptr == 0
        assert "legacy default stream of device 0" in repr(stream)
        array = cukern.zeros(3)
        assert last_written_on(array, named)


def test_the_handle_of_the_threads_default_stream() -> None:
    stream = cukern.Stream.from_handle(2)
    assert stream.ptr == 2
    assert stream != cukern.current_stream()
    array = cukern.zeros(3)
    assert not last_written_on(array, Foreign(0, 2))
    assert (cukern.ones(3, stream=2) + array).tolist() == [1, 1, 1]


def test_from_handle_keeps_what_it_came_from() -> None:
    stream = cukern.Stream()
    source = Foreign(0, stream.ptr)
    gone = weakref.ref(source)
    borrowed = cukern.Stream.from_handle(source)
    assert borrowed.ptr == stream.ptr == cukern.Stream.from_handle(stream.ptr).ptr
    assert source.asked == 1
    del source
    gc.collect()
    assert gone() is not None
    del borrowed
    gc.collect()
    assert gone() is None


def test_a_stream_is_given_back_with_its_last_user() -> None:
    cukern.zeros(3)
    _cukern._release_caches()
    gc.collect()
    _, streams, _ = _cukern._held()
    stream = cukern.Stream()
    array = cukern.ones(SIZE, stream=stream)
    borrowed = cukern.Stream.from_handle(stream)
    del stream
    assert _cukern._held()[1] == streams + 1
    del borrowed
    assert (array + array).tolist() == [2.0] * SIZE
    _cukern._release_caches()
    assert _cukern._held()[1] == streams + 1  # the array's memory goes back to it
    del array
    gc.collect()
    cukern.synchronize()
    _cukern._release_caches()
    assert _cukern._held()[1] == streams


@pytest.mark.parametrize("memory", MEMORY)
def test_arrays_outlive_their_streams(memory: str) -> None:
    arrays = []
    for n in range(20):
        with cukern.Stream():
            arrays.append(cukern.full(SIZE, n, "float64", memory=memory) + 1)
    gc.collect()
    total = cukern.zeros(SIZE, memory=memory)
    for array in arrays:
        total += array
    assert total.tolist() == [210.0] * SIZE


# --- which stream a call runs on ---


def test_with_blocks() -> None:
    outside = cukern.current_stream()
    first, second = cukern.Stream(), cukern.Stream()
    with first as entered:
        assert entered is first
        assert cukern.current_stream() is first
        array = cukern.zeros(3)
        with second, second, first, second:
            assert cukern.current_stream() is second
            inner = cukern.zeros(3)
        assert cukern.current_stream() is first
        assert last_written_on(array, first)
        assert last_written_on(array, None)
    assert cukern.current_stream() == outside
    assert last_written_on(inner, second)
    assert not last_written_on(inner, None)
    assert not last_written_on(array, second)


def test_an_exception_leaves_a_with_block() -> None:
    outside = cukern.current_stream()
    with pytest.raises(ZeroDivisionError), cukern.Stream(), cukern.Stream():
        raise ZeroDivisionError
    assert cukern.current_stream() == outside


def test_a_block_is_left_once() -> None:
    first, second = cukern.Stream(), cukern.Stream()
    with pytest.raises(RuntimeError, match="not active"):
        first.__exit__(None, None, None)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)  # the own entry, wherever it is
    assert cukern.current_stream() is second
    second.__exit__(None, None, None)
    with pytest.raises(RuntimeError, match="not active"):
        second.__exit__(None, None, None)
    assert cukern.current_stream() == cukern.Stream.from_handle(0)


def test_blocks_nest_deep_and_of_one_stream() -> None:
    stream = cukern.Stream()
    for _ in range(1000):
        stream.__enter__()
    with cukern.Stream() as inner:
        assert cukern.current_stream() is inner
    for _ in range(1000):
        assert cukern.current_stream() is stream
        stream.__exit__(None, None, None)
    assert cukern.current_stream() == cukern.Stream.from_handle(0)


def test_blocks_of_interleaved_generators() -> None:
    def steps(stream: cukern.Stream) -> Iterator[Any]:
        with stream:
            yield
            yield

    outside = cukern.current_stream()
    first, second = cukern.Stream(), cukern.Stream()
    one, two = steps(first), steps(second)
    next(one)
    next(two)
    assert cukern.current_stream() is second
    one.close()
    assert cukern.current_stream() is second
    two.close()
    assert cukern.current_stream() == outside
    one = steps(first)
    next(one)
    del one  # a generator that is given up leaves its block
    assert cukern.current_stream() == outside


def test_blocks_of_interleaved_tasks() -> None:
    streams = [cukern.Stream() for _ in range(4)]
    outside = cukern.current_stream()

    async def work(stream: cukern.Stream, i: int) -> None:
        for _ in range(3):
            with stream, cukern.Device(0):
                await asyncio.sleep(0.001 * ((i * 7) % 4))
                assert cukern.current_stream() is stream
                array = cukern.zeros(3)
                await asyncio.sleep(0)
                assert last_written_on(array, stream)
            assert cukern.current_stream() == outside

    async def main() -> None:
        await asyncio.gather(*(work(stream, i) for i, stream in enumerate(streams)))
        assert cukern.current_stream() == outside
        with streams[0]:  # a task starts with the blocks of the one that made it
            task = asyncio.create_task(inherits(streams[0]))
            await asyncio.sleep(0)
        await task

    async def inherits(stream: cukern.Stream) -> None:
        assert cukern.current_stream() is stream
        await asyncio.sleep(0.001)
        assert cukern.current_stream() is stream

    asyncio.run(main())
    assert cukern.current_stream() == outside


def test_a_thread_that_ends_inside_a_block() -> None:
    stream = cukern.Stream()
    gone = weakref.ref(stream)
    for target in (stream.__enter__, cukern.Device(0).__enter__):
        thread = threading.Thread(target=target)
        thread.start()
        thread.join()
    assert cukern.current_stream() == cukern.Stream.from_handle(0)
    del stream, thread, target
    gc.collect()
    assert gone() is None  # its context has let go of it


def test_an_asynchronous_generator_that_another_task_closes() -> None:
    outside = cukern.current_stream()

    async def numbers(stream: cukern.Stream) -> AsyncIterator[int]:
        with stream:
            yield 1
            yield 2

    async def main() -> None:
        generator = numbers(cukern.Stream())

        async def first() -> None:
            assert await anext(generator) == 1

        await asyncio.create_task(first())
        await asyncio.create_task(close(generator))
        assert cukern.current_stream() == outside

    async def close(generator: Any) -> None:
        await generator.aclose()

    asyncio.run(main())
    assert cukern.current_stream() == outside


def test_an_asynchronous_generator_that_is_given_up() -> None:
    outside = cukern.current_stream()

    async def numbers() -> AsyncIterator[int]:
        with cukern.Stream(), cukern.Device(0):
            yield 1
            yield 2

    async def main() -> None:
        async for _ in numbers():
            assert cukern.current_stream() != outside
            break
        for _ in range(3):  # the loop closes it in a task of its own
            gc.collect()
            await asyncio.sleep(0)
        assert cukern.current_stream() == outside
        with cukern.Stream() as own:
            assert cukern.current_stream() is own
        assert cukern.current_stream() == outside

    asyncio.run(main())
    assert cukern.current_stream() == outside


def test_a_generator_that_another_thread_closes() -> None:
    outside = cukern.current_stream()

    def numbers() -> Iterator[int]:
        with cukern.Stream():
            yield 1

    generator = numbers()
    next(generator)
    assert cukern.current_stream() != outside
    thread = threading.Thread(target=generator.close)
    thread.start()
    thread.join()
    assert cukern.current_stream() == outside


def test_a_block_that_is_left_in_a_copy_of_its_context() -> None:
    outside = cukern.current_stream()
    stream = cukern.Stream()
    stream.__enter__()
    copy = contextvars.copy_context()
    copy.run(stream.__exit__, None, None, None)
    assert cukern.current_stream() == outside
    assert copy.run(cukern.current_stream) == outside
    with pytest.raises(RuntimeError, match="not active"):
        stream.__exit__(None, None, None)


def test_a_stack_that_another_task_closes_leaves_others_blocks_alone() -> None:
    stream = cukern.Stream()
    stack = contextlib.ExitStack()

    async def main() -> None:
        entered, inside = asyncio.Event(), asyncio.Event()

        async def first() -> None:
            stack.enter_context(stream)
            entered.set()
            await asyncio.sleep(0.01)

        async def second() -> None:
            await entered.wait()
            with stream:
                inside.set()
                await asyncio.sleep(0.01)
                assert cukern.current_stream() is stream

        async def third() -> None:
            await inside.wait()
            stack.close()

        await asyncio.gather(first(), second(), third())

    asyncio.run(main())
    assert cukern.current_stream() == cukern.Stream.from_handle(0)


def test_collections_while_blocks_are_entered_and_left() -> None:
    outer, inner = cukern.Stream(), cukern.Stream()
    outside = cukern.current_stream()

    def steps(stream: cukern.Stream) -> Iterator[int]:
        with stream:
            yield 1

    thresholds = gc.get_threshold()
    try:
        for threshold in range(1, 300):
            gc.collect()
            generator = steps(inner)
            next(generator)
            cycle: list[Any] = [generator]
            cycle.append(cycle)
            gc.set_threshold(threshold)
            del generator, cycle  # a collection will leave its block, at any time from now on
            with outer:
                pass
            gc.set_threshold(*thresholds)
            gc.collect()
            assert cukern.current_stream() == outside
    finally:
        gc.set_threshold(*thresholds)


def test_blocks_of_threads_that_end_do_not_pile_up() -> None:
    stream = cukern.Stream()
    threads = [threading.Thread(target=stream.__enter__) for _ in range(20)]
    for thread in threads:
        thread.start()
        thread.join()
    del threads, thread
    gc.collect()
    with pytest.raises(RuntimeError, match="not active"):
        stream.__exit__(None, None, None)


def test_generators_that_share_a_stream() -> None:
    def steps(stream: cukern.Stream) -> Iterator[int]:
        with stream:
            yield 1

    shared, other = cukern.Stream(), cukern.Stream()
    generators = [steps(shared), steps(other), steps(shared)]
    for generator in generators:
        next(generator)
    generators[0].close()  # its own block, not the innermost one
    assert cukern.current_stream() is shared
    generators[2].close()
    assert cukern.current_stream() is other
    generators[1].close()
    assert cukern.current_stream() == cukern.Stream.from_handle(0)


def test_at_the_limit_of_recursion_no_block_is_overlooked() -> None:
    missed: list[Any] = []

    def down() -> None:
        with contextlib.suppress(RecursionError):
            if cukern.current_stream() is not stream:
                missed.append(cukern.current_stream())
        down()

    with cukern.Stream() as stream, contextlib.suppress(RecursionError):
        down()
    assert missed == []


def test_with_blocks_are_of_one_thread() -> None:
    stream = cukern.Stream()
    seen: list[object] = []

    def look() -> None:
        seen.append(cukern.current_stream())
        with cukern.Stream() as own:
            seen.append(cukern.current_stream() is own)

    with stream:
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        assert cukern.current_stream() is stream
    assert seen == [cukern.Stream.from_handle(0), True]


# By the stream and by an array of zeros, which is not freed.
A_STREAM_OF: dict[str, Callable[[Any, Any], Any]] = {
    "empty": lambda s, x: cukern.empty(SIZE, stream=s),
    "zeros": lambda s, x: cukern.zeros(SIZE, stream=s),
    "ones": lambda s, x: cukern.ones(SIZE, stream=s),
    "full": lambda s, x: cukern.full(SIZE, 2.5, stream=s),
    "arange": lambda s, x: cukern.arange(float(SIZE), stream=s),
    "linspace": lambda s, x: cukern.linspace(0, 1, SIZE, stream=s),
    "eye": lambda s, x: cukern.eye(64, stream=s),
    "zeros_like": lambda s, x: cukern.zeros_like(x, stream=s),
    "full_like": lambda s, x: cukern.full_like(x, 1, stream=s),
    "asarray": lambda s, x: cukern.asarray(np.ones(SIZE), stream=s),
    "copy": lambda s, x: cukern.copy(np.ones(SIZE), stream=s),
    "astype": lambda s, x: x.astype("float64", stream=s),
    "Array.copy": lambda s, x: x.copy(stream=s),
    "concat": lambda s, x: cukern.concat([x[: SIZE // 2]] * 2, stream=s),
    "stack": lambda s, x: cukern.stack([x[: SIZE // 2]] * 2, stream=s),
    "add": lambda s, x: cukern.add(x, 1, stream=s),
    "matmul": lambda s, x: cukern.matmul(x[:64, None], x[None, :64], stream=s),
    "matmul_tiled": lambda s, x: cukern.matmul_tiled(x[:64, None], x[None, :64], stream=s),
}


@pytest.mark.pooled
@pytest.mark.parametrize("name", A_STREAM_OF)
def test_results_belong_to_the_stream_that_is_asked_for(name: str) -> None:
    x = cukern.zeros(SIZE)

    def make(stream: Any) -> Any:
        return A_STREAM_OF[name](stream, x)

    stream, other = cukern.Stream(), cukern.Stream()
    cukern.empty_cache()
    assert belongs_to(lambda: make(stream), stream)
    with other:
        assert belongs_to(lambda: make(stream), stream)
        assert belongs_to(lambda: make(None), other)
    cukern.empty_cache()
    assert not belongs_to(lambda: make(stream), None)
    for named in (Foreign(0, stream.ptr), Draft(stream.ptr), stream.ptr):
        assert belongs_to(lambda named=named: make(named), stream.ptr)


@pytest.mark.parametrize("memory", MEMORY)
def test_work_on_another_stream_is_ordered(memory: str) -> None:
    stream = cukern.Stream()
    a, b = (cukern.full(SIZE, n, "float64", memory=memory) for n in (1, 2))
    out = cukern.zeros(SIZE, memory=memory)
    assert event_calls(lambda: cukern.add(a, b, out=out)) == 0
    # The first call on the stream waits for what was written to each, and the second for nothing.
    assert event_calls(lambda: cukern.add(a, b, out=out, stream=stream)) >= 3
    assert event_calls(lambda: cukern.add(a, b, out=out, stream=stream)) <= 4
    assert event_calls(lambda: cukern.add(out, out, out=out, stream=stream)) == 0
    before = cukern.counters()["synchronizations"]
    cukern.subtract(out, b, out=out)
    if memory == "device":
        assert cukern.counters()["synchronizations"] == before
    assert out.tolist() == [4.0] * SIZE


def test_assignment_fill_and_copies_take_the_active_stream() -> None:
    stream = cukern.Stream()
    array, value = cukern.zeros(3), cukern.ones(3, stream=stream)
    with stream:
        array[:] = value
    assert last_written_on(array, stream)
    cukern.copyto(array, value, stream=stream)
    assert last_written_on(array, stream)
    assert cukern.asnumpy(array, stream=stream).tolist() == [0.0] * 3
    assert array.get(stream=stream).tolist() == [0.0] * 3


# --- events ---


def test_events() -> None:
    stream = cukern.Stream()
    begin, end = cukern.Event(), cukern.Event()
    assert begin.done
    assert begin.synchronize() is None
    assert begin.record(stream) is None
    array = cukern.ones((200, 200), stream=stream)
    cukern.matmul_tiled(array, array, out=cukern.empty_like(array), stream=stream)
    assert stream.record(end) is end
    cukern.Stream().wait_event(end)
    end.synchronize()
    assert begin.done is True
    assert end.done is True
    milliseconds = end - begin
    assert isinstance(milliseconds, float)
    assert 0 < milliseconds < 60_000
    assert begin - end <= 0
    begin.record(stream)  # again
    assert end - begin <= 0


def test_record_makes_an_event() -> None:
    with cukern.Stream() as stream:
        first = stream.record()
        second = stream.record(None)
        own = cukern.Event()
        own.record()
    assert type(first) is cukern.Event
    assert second - first >= 0
    assert own - second >= 0
    assert first.done


def test_wait_event_orders_without_a_wait_of_the_host() -> None:
    first, second = cukern.Stream(), cukern.Stream()
    event = cukern.Event(timing=False)
    assert event_calls(lambda: second.wait_event(event)) == 0  # never recorded: nothing to wait for
    event.record(first)
    before = cukern.counters()["synchronizations"]
    assert event_calls(lambda: second.wait_event(event)) == 1
    assert cukern.counters()["synchronizations"] == before
    event.synchronize()
    assert cukern.counters()["synchronizations"] == before + 1


def test_times_need_two_events_that_take_them() -> None:
    recorded, fresh, quick = cukern.Event(), cukern.Event(), cukern.Event(timing=False)
    recorded.record()
    quick.record()
    for a, b in ((recorded, fresh), (fresh, recorded)):
        with pytest.raises(ValueError, match="recorded"):
            a - b
    for a, b in ((recorded, quick), (quick, recorded), (quick, fresh)):
        with pytest.raises(ValueError, match=r"timing=True|recorded"):
            a - b
    for other in (1.0, None, cukern.Stream()):
        with pytest.raises(TypeError):
            recorded - other
        with pytest.raises(TypeError):
            other - recorded


# --- memory that is freed while streams work on it ---


@pytest.mark.parametrize("memory", MEMORY)
def test_freed_while_used_on_another_stream(memory: str) -> None:
    reader = cukern.Stream()
    results = []
    for n in range(30):
        array = cukern.full((64, 64), 1, "float64", memory=memory)
        results.append(cukern.matmul_tiled(array, array, stream=reader) + n)
        del array  # its memory must not be used again before `reader` is done
        cukern.full((64, 64), -1, "float64", memory=memory)
    for n, result in enumerate(results):
        assert cukern.asnumpy(result).tolist() == [[64.0 + n] * 64] * 64


def test_the_free_of_memory_in_use_elsewhere_is_ordered_by_an_event() -> None:
    stream = cukern.Stream()
    own, used = cukern.ones(SIZE), cukern.ones(SIZE)
    result = cukern.add(used, 1, stream=stream)
    in_use = cukern.memory_info()["in_use"]
    before = _cukern._fault_calls("event"), cukern.counters()["synchronizations"]
    del own
    assert _cukern._fault_calls("event") == before[0]
    del used
    assert _cukern._fault_calls("event") > before[0]
    assert cukern.counters()["synchronizations"] == before[1]
    assert cukern.memory_info()["in_use"] == in_use - 2 * 8 * SIZE
    assert result.tolist() == [2.0] * SIZE


def test_events_of_arrays_without_elements_are_given_back() -> None:
    def use() -> None:
        empty = cukern.zeros(0, "float32")
        for stream in (2, cukern.Stream(), None):  # of the thread's default stream an event is kept
            cukern.sign(empty, stream=stream)
            cukern.add(empty, empty, out=empty, stream=stream)

    use()
    _cukern._release_caches()
    gc.collect()
    before = _cukern._held()
    for _ in range(5):
        use()
    _cukern._release_caches()
    assert _cukern._held() == before
