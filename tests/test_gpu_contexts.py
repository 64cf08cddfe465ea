"""CUDA contexts: which ones calls use, and that threads and callers keep theirs."""

from __future__ import annotations

import os

import pytest
from processes import run_quietly

pytestmark = pytest.mark.gpu

BEGIN = """
    import ctypes, threading
    import numpy as np, cukern
    cuda = ctypes.CDLL("libcuda.so.1")
    def current():
        context = ctypes.c_void_p()
        assert cuda.cuCtxGetCurrent(ctypes.byref(context)) == 0
        return context.value
    def is_active(device):
        flags, active = ctypes.c_uint(), ctypes.c_int()
        assert cuda.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active)) == 0
        return bool(active.value)
    def in_a_thread(call):
        errors = []
        def run():
            try:
                call()
            except BaseException as error:
                errors.append(error)
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
"""
THREAD = """
    x = cukern.ones(1000)
    def work():
        assert current() is None
        y = cukern.add(x, x)
        y += 1
        cukern.sum(y)
        with cukern.Stream() as stream:
            event = stream.record()
        event.synchronize()
        assert current() is None
        assert y.tolist() == [3.0] * 1000
        assert cukern.add(np.ones(1 << 20), 1).sum() == 2 << 20
        del y
        assert current() is None
    in_a_thread(work)
"""
OWN_CONTEXT = """
    x = cukern.ones(1000)
    own = ctypes.c_void_p()
    create = cuda.cuCtxCreate_v2
    assert create(ctypes.byref(own), 0, 0) == 0
    assert current() == own.value
    y = x + x
    assert y.tolist() == [2.0] * 1000
    assert cukern.add(np.ones(1 << 20), 1).sum() == 2 << 20
    z = cukern.zeros((300, 300)) @ cukern.zeros((300, 300))
    del y, z
    cukern.empty_cache()
    assert current() == own.value
    assert cuda.cuCtxDestroy_v2(own) == 0
"""
TWO_DEVICES = """
    import torch
    torch.cuda.set_device(1)  # the back-end's choice runs a kernel on the current device
    x = cukern.ones(1000, device=1)
    def work():
        y = cukern.add(x, x)
        cukern.matmul(cukern.ones((64, 64), device=1), cukern.ones((64, 64), device=1))
        assert y.tolist() == [2.0] * 1000
        del y
        cukern.from_dlpack(x) + 1
        cukern.current_stream(1).synchronize()
    in_a_thread(work)
    work()
    assert is_active(1) and not is_active(0)
"""


@pytest.mark.parametrize("script", [THREAD, OWN_CONTEXT], ids=["a thread", "a context of the caller"])
def test_contexts_stay_as_they_are(script: str) -> None:
    assert run_quietly(BEGIN + script, CUKERN_BACKEND="cuda") == ""


if os.environ.get("CUKERN_TEST_TWO_GPUS") == "1":

    def test_no_context_is_made_on_another_device() -> None:
        assert run_quietly(BEGIN + TWO_DEVICES, CUKERN_BACKEND="cuda") == ""
