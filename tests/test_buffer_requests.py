"""What Array's buffers hold for each kind of request, beside NumPy's own."""

from __future__ import annotations

import ctypes
import hashlib
import threading
from typing import Any

import numpy as np
import pytest
from buffer_tools import GET_BUFFER, RELEASE_BUFFER, PyBuffer

import cukern

pytestmark = pytest.mark.usefixtures("backend")
SIMPLE, WRITABLE, FORMAT, ND, STRIDES = 0, 1, 4, 8, 0x18
REQUESTS = [SIMPLE, WRITABLE, FORMAT, ND, ND | FORMAT, STRIDES, STRIDES | FORMAT | WRITABLE, 0x38, 0x98]


def described(exporter: Any, flags: int) -> dict[str, Any]:
    """Return what a buffer says of an object."""
    buffer = PyBuffer()
    GET_BUFFER(exporter, ctypes.byref(buffer), flags)
    try:
        return {
            "len": buffer.len,
            "itemsize": buffer.itemsize,
            "ndim": buffer.ndim if flags & ND else None,
            "format": buffer.format,
            "shape": buffer.shape[: buffer.ndim] if buffer.shape else None,
            "strides": buffer.strides[: buffer.ndim] if buffer.strides else None,
        }
    finally:
        RELEASE_BUFFER(ctypes.byref(buffer))


@pytest.mark.parametrize("flags", REQUESTS)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 0, 3)], ids=str)
@pytest.mark.parametrize("memory", ["managed", "pinned"])
def test_requests(memory: str, shape: tuple[int, ...], flags: int) -> None:
    wanted = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
    x = cukern.asarray(wanted, memory=memory)
    own, theirs = described(x, flags), described(wanted, flags)
    if not shape:  # the protocol wants no shape and no strides; NumPy gives empty ones
        theirs["shape"] = theirs["strides"] = None
    if 0 in shape:  # NumPy's strides of arrays without elements differ by version
        theirs["strides"] = own["strides"]
    assert own == theirs


def test_a_request_without_a_shape_is_of_one_dimension() -> None:
    x = cukern.asarray(np.arange(6.0).reshape(2, 3), memory="pinned")
    buffer = PyBuffer()
    GET_BUFFER(x, ctypes.byref(buffer), SIMPLE)
    assert (buffer.ndim, bool(buffer.shape), bool(buffer.strides)) == (1, False, False)
    RELEASE_BUFFER(ctypes.byref(buffer))


def test_consumers_of_bytes() -> None:
    wanted = np.arange(12, dtype=np.int32).reshape(3, 4)
    x = cukern.asarray(wanted, memory="pinned")
    assert hashlib.sha256(x).digest() == hashlib.sha256(wanted).digest()
    assert bytes(x) == wanted.tobytes()
    with pytest.raises(BufferError, match="C-contiguous"):
        hashlib.sha256(x.T)


def test_an_export_that_is_taken_while_another_thread_launches() -> None:
    """Each view shows a whole result: a launch that comes while the exporter waits is waited for too."""
    x = cukern.zeros(1 << 16, "int64", memory="pinned")
    one = cukern.ones(1 << 16, "int64", memory="pinned")
    stop = threading.Event()

    def launch() -> None:
        while not stop.is_set():
            cukern.add(x, one, out=x)

    thread = threading.Thread(target=launch)
    thread.start()
    try:
        for _ in range(200):
            view = memoryview(x)
            view.release()
    finally:
        stop.set()
        thread.join()
    cukern.synchronize()
    values = np.asarray(x)
    assert values.min() == values.max() > 0
