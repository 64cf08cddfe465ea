"""Devices, two of them too, and what stands for no stream, event or device."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from cases import each
from processes import run_quietly

import cukern

# Two GPUs are asked for.
TWO_DEVICES = ["host", *(["cuda"] if os.environ.get("CUKERN_TEST_TWO_GPUS") == "1" else [])]


class Answer:
    """An object whose __cuda_stream__ gives anything, or raises."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __cuda_stream__(self) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


# --- devices ---


@pytest.mark.usefixtures("backend")
def test_a_device_and_what_it_tells() -> None:
    device = cukern.Device(0)
    assert device == cukern.Device() == cukern.Device(device) == cukern.Device(id=0)
    assert hash(device) == hash(cukern.Device(0))
    assert (device.id, int(device), repr(device)) == (0, 0, "Device(0)")
    assert [7][device] == 7
    assert device.name
    assert device.synchronize() is None
    assert (device != cukern.Device(0)) is False
    assert device != 0
    with pytest.raises(TypeError):
        device < device  # noqa: B015, PLR0124
    with pytest.raises(AttributeError):
        device.id = 1


@pytest.mark.usefixtures("backend")
def test_device_count_and_synchronize() -> None:
    count = cukern.device_count()
    assert isinstance(count, int)
    assert count >= 1
    for device in (None, 0, cukern.Device(0)):
        before = cukern.counters()["synchronizations"]
        assert cukern.synchronize(device) is None
        assert cukern.counters()["synchronizations"] == before + 1
    before = cukern.counters()["synchronizations"]
    cukern.Device(0).synchronize()
    cukern.Stream().synchronize()
    assert cukern.counters()["synchronizations"] == before + 2


@pytest.mark.usefixtures("backend")
def test_a_device_as_context_manager() -> None:
    device = cukern.Device(0)
    with device as entered, device:
        assert entered is device
        assert cukern.zeros(3).device == device
    with pytest.raises(RuntimeError, match="this device is not active"):
        device.__exit__(None, None, None)
    with pytest.raises(ZeroDivisionError), device:
        raise ZeroDivisionError
    with pytest.raises(RuntimeError, match="this device is not active"):
        device.__exit__(None, None, None)


INNERMOST = """
    import cukern
    first, second = cukern.Stream(device=0), cukern.Stream(device=1)
    def place(*blocks):
        with contextlib.ExitStack() as stack:
            for block in blocks:
                stack.enter_context(block)
            return cukern.zeros(2).device.id, cukern.current_stream(), cukern.Device().id
    import contextlib
    legacy = [cukern.current_stream(0), cukern.current_stream(1)]
    assert place() == (0, legacy[0], 0)
    assert place(first, cukern.Device(1)) == (1, legacy[1], 1)
    assert place(cukern.Device(1), first) == (0, first, 1)
    assert place(second, cukern.Device(0), cukern.Device(1)) == (1, second, 1)
    assert place(cukern.Device(1), second) == (1, second, 1)
    with second:
        assert (cukern.zeros(2, device=0).device.id, cukern.Device().id) == (0, 0)
    def steps(device):
        with device:
            yield
    one, two = steps(cukern.Device(1)), steps(cukern.Device(0))
    next(one); next(two); one.close()
    assert cukern.Device().id == 0
    two.close()
    assert cukern.Device().id == 0
"""


def test_the_innermost_block_says_where() -> None:
    run_quietly(INNERMOST, CUKERN_BACKEND="host", CUKERN_HOST_DEVICES="2")


# --- bad arguments ---

NO_STREAM: dict[str, tuple[Any, type[Exception], str]] = {
    "text": ("0", TypeError, r"stream is '0'; expected a cukern.Stream, an object with __cuda_stream__, or a handle"),
    "a float": (1.0, TypeError, r"stream is 1\.0; expected"),
    "a bool": (True, TypeError, r"stream is True; expected"),
    "a list": ([0, 0], TypeError, r"stream is \[0, 0\]; expected"),
    "the type": (cukern.Stream, TypeError, "."),
    "version 1": (Answer((1, 0)), TypeError, r"__cuda_stream__ has version 1; 0 is supported"),
    "version -1": (Answer((-1, 0)), TypeError, r"__cuda_stream__ has version -1; 0 is supported"),
    "a version that is none": (Answer(("0", 0)), TypeError, "."),
    "a list as answer": (Answer([0, 0]), TypeError, r"__cuda_stream__ gives \[0, 0\]; expected \(version, handle\)"),
    "None as answer": (Answer(None), TypeError, r"__cuda_stream__ gives None; expected"),
    "one number": (Answer((0,)), TypeError, r"__cuda_stream__ gives \(0,\); expected"),
    "three numbers": (Answer((0, 0, 0)), TypeError, r"__cuda_stream__ gives \(0, 0, 0\); expected"),
    "a handle that is none": (Answer((0, "x")), TypeError, "."),
    "an exception": (Answer(KeyError("own")), KeyError, "own"),
    "a handle that does not fit": (1 << 64, OverflowError, "."),
    "a protocol's handle that does not fit": (Answer((0, 1 << 64)), OverflowError, "."),
}
TAKES_STREAM: dict[str, Callable[[Any], object]] = {
    "from_handle": lambda s: cukern.Stream.from_handle(s),
    "zeros": lambda s: cukern.zeros(3, stream=s),
    "asarray": lambda s: cukern.asarray([1, 2], stream=s),
    "add": lambda s: cukern.add(cukern.zeros(3), 1, stream=s),
    "matmul": lambda s: cukern.matmul(cukern.zeros((3, 3)), cukern.zeros((3, 3)), stream=s),
    "fill": lambda s: cukern.zeros(3).fill(0, stream=s),
    "asnumpy": lambda s: cukern.asnumpy(cukern.zeros(3), stream=s),
    "copyto": lambda s: cukern.copyto(cukern.zeros(3), cukern.zeros(3), stream=s),
    "record": lambda s: cukern.Event().record(s),
}


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("what", NO_STREAM)
@each("call", TAKES_STREAM)
def test_what_is_no_stream(what: str, call: str) -> None:
    stream, error, message = NO_STREAM[what]
    with pytest.raises(error, match=message) as caught:
        TAKES_STREAM[call](stream)
    if message not in (".", "own"):
        assert str(caught.value).startswith(call)


@pytest.mark.parametrize("backend", ["host"], indirect=True)  # the driver would take them for addresses
@pytest.mark.parametrize("stream", [-1, Answer((0, -1))], ids=["handle", "protocol"])
def test_negative_handles(backend: str, stream: Any) -> None:
    with pytest.raises((ValueError, OverflowError)):
        cukern.zeros(3, stream=stream)
    with pytest.raises((ValueError, OverflowError)):
        cukern.Stream.from_handle(stream)


NO_DEVICE: dict[str, tuple[Any, type[Exception], str]] = {
    "text": ("0", TypeError, r"device is '0'; expected a number or a cukern.Device"),
    "a float": (0.0, TypeError, r"device is 0\.0; expected"),
    "a bool": (False, TypeError, r"device is False; expected"),
    "too large": (64, ValueError, r"device 64 does not exist; there are \d+"),
    "negative": (-1, ValueError, r"device -1 does not exist; there are \d+"),
    "beyond a long": (1 << 70, ValueError, r"device 1180591620717411303424 does not exist"),
    "beyond an int": (1 << 32, ValueError, r"device 4294967296 does not exist"),
}
TAKES_DEVICE: dict[str, Callable[[Any], object]] = {
    "Device": lambda d: cukern.Device(d),
    "Stream": lambda d: cukern.Stream(device=d),
    "Event": lambda d: cukern.Event(device=d),
    "from_handle": lambda d: cukern.Stream.from_handle(0, d),
    "current_stream": lambda d: cukern.current_stream(d),
    "synchronize": lambda d: cukern.synchronize(d),
    "zeros": lambda d: cukern.zeros(3, device=d),
    "memory_info": lambda d: cukern.memory_info(device=d),
    "set_memory_limit": lambda d: cukern.set_memory_limit(1 << 40, device=d),
}


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("what", NO_DEVICE)
@each("call", TAKES_DEVICE)
def test_what_is_no_device(what: str, call: str) -> None:
    device, error, message = NO_DEVICE[what]
    with pytest.raises(error, match=f"{call}: {message}"):
        TAKES_DEVICE[call](device)


WRONG: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "priority": (lambda: cukern.Stream(priority="high"), TypeError, "str"),
    "large priority": (lambda: cukern.Stream(priority=1 << 40), OverflowError, "int"),
    "keyword": (lambda: cukern.Stream(blocking=True), TypeError, "blocking"),
    "event's keyword": (lambda: cukern.Event(timed=True), TypeError, "timed"),
    "no handle": (lambda: cukern.Stream.from_handle(), TypeError, "handle"),
    "wait for no event": (lambda: cukern.Stream().wait_event(None), TypeError, "expected a cukern.Event, got None"),
    "wait for a stream": (lambda: cukern.Stream().wait_event(cukern.Stream()), TypeError, "expected a cukern.Event"),
    "record no event": (lambda: cukern.Stream().record(3), TypeError, "cukern.Event"),
    "attribute": (lambda: setattr(cukern.Event(), "done", True), AttributeError, "done"),
}


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("what", WRONG)
def test_wrong_arguments(what: str) -> None:
    call, error, message = WRONG[what]
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("kind", [cukern.Stream, cukern.Event, cukern.Device, cukern.Array])
def test_types_are_final(kind: Any) -> None:
    with pytest.raises(TypeError, match="not an acceptable base type"):
        type("Derived", (kind,), {})


# --- two devices ---

BEGIN = """
    import gc
    import numpy as np, cukern
    def raises(error, text, call):
        try:
            call()
        except error as raised:
            assert text in str(raised), str(raised)
        else:
            raise AssertionError("nothing was raised")
    assert cukern.device_count() >= 2
    one, two = cukern.Device(0), cukern.Device(1)
    a, b = cukern.ones(3, device=0), cukern.ones(3, device=two)
    assert (a.device, b.device) == (one, two)
"""
SCRIPTS = {
    "operands on both": """
    raises(ValueError, "add: a is on device 0 and b on device 1", lambda: cukern.add(a, b))
    raises(ValueError, "subtract: a is on device 1 and b on device 0", lambda: cukern.subtract(b, a))
    raises(ValueError, "add: a is on device 0 and out on device 1", lambda: cukern.add(a, a, out=b))
    raises(ValueError, "matmul: a is on device 0 and b on device 1", lambda: cukern.matmul(a, b))
    raises(ValueError, "device 0 and b on device 1", lambda: a + b)
    raises(ValueError, "device 0", lambda: cukern.concat([a, b]))
    raises(ValueError, "device 1", lambda: cukern.stack([a, b]))
    assert b.tolist() == [1, 1, 1]
""",
    "numbers of NumPy's": """
    with two:
        assert [f(np.float32(3)).device for f in (cukern.asarray, cukern.copy)] == [two] * 2
    assert cukern.asarray(np.float32(3), device=two).device == two
""",
    "capsules and streams": """
    capsule = b.__dlpack__(max_version=(1, 0))
    named = cukern.Stream(device=0)
    if cukern.backend() == "cuda":  # memory of the host back-end is the processor's to others, and knows no stream
        raises(ValueError, "stream is of device 0", lambda: cukern.from_dlpack(capsule, stream=named))
        raises(ValueError, "stream is of device 0", lambda: cukern.from_dlpack(b, stream=named))
    other = cukern.Stream(device=two)
    assert (cukern.from_dlpack(b, stream=other.ptr) + 1).tolist() == [2, 2, 2]  # a handle, of the memory's device
    assert (cukern.from_dlpack(b.__dlpack__(stream=other.ptr), stream=other.ptr) + 1).tolist() == [2, 2, 2]
    with named:
        x = cukern.from_dlpack(capsule)  # which was not used
        y = cukern.from_dlpack(np.ones(3)) if cukern.backend() == "host" else a
    assert x.device == two and (x + 1).tolist() == [2, 2, 2] and y.tolist() == [1, 1, 1]
""",
    "results stay": """
    assert [x.device for x in (b + b, b @ b, b.copy(), b.astype("int8"), b[::2], cukern.zeros_like(b))] == [two] * 6
    assert (b + b).tolist() == [2, 2, 2]
    with two:
        assert (a + 1).device == one
        assert cukern.concat([a, a]).device == one
    b += 1
    b[0] = 7
    assert (b.device, b.tolist()) == (two, [7, 2, 2])
    wide = cukern.ones((3, 4), device=two).T.reshape(12)
    assert (wide.device, wide.tolist()) == (two, [1] * 12)
    assert cukern.copy(b).device == two
    assert cukern.asarray(b) is b
""",
    "the current device": """
    with two as entered:
        assert entered is two and cukern.Device() == two
        made = [cukern.zeros(3), cukern.asarray([1, 2]), cukern.arange(3), cukern.eye(2), cukern.full(2, 1)]
        made += [cukern.zeros(3, memory="managed"), cukern.zeros(3, memory="pinned")]
        assert [x.device for x in made] == [two] * len(made)
        assert cukern.zeros(3, device=0).device == one
        with one:
            assert cukern.zeros(3).device == one
        assert cukern.zeros(3).device == two
        assert cukern.Stream().device == two and cukern.current_stream().device == two
        assert cukern.Stream(device=0).device == one
        stream = cukern.Stream()
    assert cukern.Device() == one and cukern.zeros(3).device == one
    try:
        with two:
            raise KeyError
    except KeyError:
        assert cukern.Device() == one
    with stream:
        assert cukern.zeros(3).device == two and cukern.Device() == one
    cukern.zeros(3, device=1) + 1
    assert cukern.Device() == one
    import threading
    with two:
        seen = []
        thread = threading.Thread(target=lambda: seen.append(cukern.Device()))
        thread.start()
        thread.join()
    assert seen == [one]
""",
    "copies between": """
    cukern.copyto(b, a * 3)
    assert b.tolist() == [3, 3, 3] and b.device == two
    matrix = cukern.asarray(np.arange(12.0).reshape(3, 4))
    other = cukern.zeros((4, 3), device=1)
    cukern.copyto(other, matrix.T)
    assert other.tolist() == np.arange(12.0).reshape(3, 4).T.tolist()
    other[::-1, 1] = matrix[0]
    assert other[:, 1].tolist() == [3, 2, 1, 0]
    cukern.copyto(matrix[:, ::2].T, cukern.ones((2, 3), "int8", device=1))
    assert matrix.tolist() == [[1, 1, 1, 3], [1, 5, 1, 7], [1, 9, 1, 11]]
    moved = cukern.asarray(matrix, device=1)
    assert moved.device == two and moved.tolist() == matrix.tolist()
    assert cukern.copy(moved, device=one).device == one
    assert cukern.asarray(moved, device=two) is moved
    cukern.copyto(b, np.arange(3.0))
    assert cukern.asnumpy(b).tolist() == [0, 1, 2]
    assert cukern.Device() == one
""",
    "streams of another device": """
    stream = cukern.Stream(device=1)
    text = "the stream is of device 1, the memory is on device 0"
    raises(ValueError, text, lambda: cukern.add(a, a, stream=stream))
    raises(ValueError, text, lambda: a.fill(0, stream=stream))
    raises(ValueError, text, lambda: a.astype("int8", stream=stream))
    raises(ValueError, text, lambda: cukern.matmul(a, a, stream=stream))
    raises(ValueError, text, lambda: cukern.zeros(3, device=0, stream=stream))
    assert cukern.add(b, b, stream=stream).tolist() == [2, 2, 2]
    assert cukern.zeros(3, stream=stream).device == two
    assert cukern.add(b, b, stream=0).device == two
    with stream:
        assert (b + b).device == two
        assert cukern.current_stream() is stream
        assert cukern.current_stream(1) is stream
        assert cukern.current_stream(0) == cukern.Stream.from_handle(0, 0)
        assert cukern.asnumpy(a).tolist() == [1, 1, 1]
    assert cukern.Stream.from_handle(0, 0) != cukern.Stream.from_handle(0, 1)
    assert a.tolist() == [1, 1, 1]
""",
    "events of both": """
    streams = [cukern.Stream(device=d) for d in (0, 1)]
    event = cukern.Event(device=1, timing=False)
    event.record(streams[1])
    streams[0].wait_event(event)
    streams[0].synchronize()
    assert event.done
""",
    "an event that a stream makes": """
    stream = cukern.Stream(device=1)
    assert type(stream.record()) is cukern.Event
    with stream:
        assert stream.record() - stream.record() <= 0
    assert type(cukern.Stream(device=0).record()) is cukern.Event
""",
    "an event of another device": """
    event = cukern.Event(device=0)
    raises(ValueError, "event", lambda: event.record(cukern.Stream(device=1)))
    raises(ValueError, "event", lambda: cukern.Stream(device=1).record(event))
""",
    "memory of both": """
    before = [cukern.memory_info(device=d)["in_use"] for d in (0, 1)]
    kept = cukern.empty(1 << 20, "int8", device=1)
    after = [cukern.memory_info(device=d)["in_use"] for d in (0, 1)]
    assert after == [before[0], before[1] + (1 << 20)]
    cukern.set_memory_limit(after[1], device=1)
    cukern.empty_cache()
    raises(cukern.OutOfMemoryError, "on device 1", lambda: cukern.empty(1 << 20, "int8", device=1))
    assert cukern.empty(1 << 20, "int8", device=0).device == one
    del kept
    gc.collect()
    assert cukern.empty(1 << 20, "int8", device=1).device == two
""",
    "calls on the host's memory": """
    import numpy as np
    from cukern import _cukern
    _cukern._set_staging(True)  # as with a GPU
    large = np.ones(1 << 20)
    for device in (1, 0):
        cukern.empty_cache()
        with cukern.Device(device):
            assert (cukern.add(large, large) == 2).all()
        cached = [cukern.memory_info(device=d)["cached"] for d in (0, 1)]
        assert cached[device] > 0 and cached[1 - device] == 0, cached
""",
    "products": """
    for dtype in ("float32", "float64", "float16", "complex64"):
        for n in (8, 40, 300):
            rng = np.random.default_rng(n)
            values, other = (rng.integers(-3, 4, (n, n)).astype(dtype) for _ in range(2))
            wanted = values @ other
            for where in (two, one, two):
                x, y = (cukern.asarray(array, device=where) for array in (values, other))
                c, bias = (cukern.ones(shape, dtype, device=where) for shape in ((n, n), n))
                for kernel in ("auto", "tiled", "cublas"):
                    product = cukern.matmul(x, y, kernel=kernel)
                    assert product.device == where
                    np.testing.assert_array_equal(cukern.asnumpy(product), wanted)
                    fused = cukern.matmul(x, y, c=c, beta=2, bias=bias, kernel=kernel)
                    assert fused.device == where
                    np.testing.assert_array_equal(cukern.asnumpy(fused), wanted + 3)
                    out = cukern.zeros((3, n, n), dtype, device=where)
                    cukern.matmul(cukern.stack([x, x, x]), y, out=out, kernel=kernel)
                    np.testing.assert_array_equal(cukern.asnumpy(out), np.stack([wanted] * 3))
    if cukern.backend() == "cuda":
        x, out = cukern.full((64, 64), 2, "float32", device=two), cukern.zeros((64, 64), "float32", device=two)
        for options in ({}, {"bias": cukern.ones(64, "float32", device=two)}, {"kernel": "cublas"}):
            cukern.matmul(x, x, out=out, **options)
            with cukern.capture(device=two) as graph:
                cukern.matmul(x, x, out=out, **options)
            out.fill(0)
            graph.launch()
            assert out[3, 5].item() == 256 + ("bias" in options)
""",
    "kernels of one's own": """
    if cukern.backend() == "cuda":
        module = cukern.RawModule(code="extern \\"C\\" __global__ void inc(float *x) { ++x[threadIdx.x]; }")
        inc = module.get_function("inc")
        x, y = (cukern.zeros(3, "float32", device=device) for device in (one, two))
        for array in (y, x, y):
            inc(1, 3, (array,))
        assert (x.tolist(), y.tolist()) == ([1] * 3, [2] * 3)
        raises(ValueError, "is on device 1", lambda: inc(1, 3, (y,), stream=cukern.Stream(device=0)))
        add = cukern.ElementwiseKernel("T x, T y", "T z", "z = x + y", "add_of_two")
        norm = cukern.ReductionKernel("T x", "T y", "x", "a + b", "y = a", "0", "sum_of")
        fused = cukern.fuse(lambda a, b: (a + b) * 2)
        for array in (y, x, y):
            assert add(array, array).device == norm(array).device == fused(array, 1).device == array.device
        assert (norm(y).item(), fused(y, 1).tolist()) == (6, [6] * 3)
        for call in (add, fused):
            raises(ValueError, "device", lambda: call(x, y))
        with two:
            assert add(np.ones(3), 1.0).tolist() == [2] * 3
        assert module.get_function("inc").attributes["num_regs"] > 0
""",
    "shared memory": """
    for memory in ("managed", "pinned"):
        x, y = (cukern.full(3, n, "float64", memory=memory, device=n) for n in (0, 1))
        assert (x.device, y.device) == (one, two)
        assert (x + y).tolist() == [1, 1, 1]
        assert (y + b).tolist() == [2, 2, 2] and (y + b).device == two
        assert (a + y).tolist() == [2, 2, 2] and (a + y).device == one
""",
}


@pytest.mark.parametrize("where", TWO_DEVICES)
@pytest.mark.parametrize("name", SCRIPTS)
def test_two_devices(name: str, where: str) -> None:
    script = BEGIN + SCRIPTS[name] + "    print('done')\n"
    assert run_quietly(script, CUKERN_BACKEND=where, CUKERN_HOST_DEVICES="2") == "done\n"
