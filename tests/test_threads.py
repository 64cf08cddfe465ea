"""Several threads at once, and processes that fork."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from conftest import SMALL, on_processor
from processes import run_quietly

import cukern
from cukern import _cukern


@pytest.mark.usefixtures("backend")
def test_calls_from_many_threads() -> None:
    rounds = 5 if SMALL else 60
    in_use = _cukern._block_usage()[0]

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(rounds):
            n = int(rng.integers(1, 60_000))
            a, b = rng.random(n, np.float32), rng.random(n, np.float32)
            np.testing.assert_array_equal(cukern.add(a, b), a + b)
            cukern.multiply(a, b, out=b)
            side = int(rng.integers(1, 60))
            m = rng.integers(-9, 9, (side, side)).astype(np.float64)
            np.testing.assert_array_equal(cukern.matmul_tiled(m, m), m @ m)
            np.testing.assert_array_equal(cukern.matmul(m, m.T), m @ m.T)

    with ThreadPoolExecutor(8) as pool:
        for future in [pool.submit(work, seed) for seed in range(8)]:
            future.result()
    assert _cukern._block_usage()[0] == in_use


@pytest.mark.usefixtures("backend")
def test_the_gil_is_released() -> None:
    a = np.ones((300 if SMALL else 700 if on_processor() else 1000,) * 2, np.int64)
    ticks = 0
    done = threading.Event()

    def call() -> None:
        for _ in range(2):
            cukern.matmul_tiled(a, a)
        done.set()

    thread = threading.Thread(target=call)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # no thread is made to give the GIL up: the call must do so itself
    try:
        thread.start()
        while not done.wait(0.0005):
            ticks += 1
    finally:
        sys.setswitchinterval(interval)
        thread.join()
    assert ticks > 0


def run_script(script: str, **environment: str) -> str:
    """Run a script in a process of its own; return what it prints."""
    import os

    run = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


FORK = """
    import os, sys
    import numpy as np, cukern
    from cukern import _cukern

    def compute():
        a = np.ones(200_000, np.float32)
        assert (cukern.add(a, a) == 2).all()
        m = np.ones((40, 40))
        assert (cukern.matmul_tiled(m, m) == 40).all()

    _cukern._set_staging(sys.argv[1:] == ["staged"] or STAGED)
    compute()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            CHILD
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    compute()
    print("done")
"""


@pytest.mark.parametrize("staged", ["False", "True"])
def test_a_child_of_fork_works_on_the_host(staged: str) -> None:
    script = FORK.replace("STAGED", staged).replace("CHILD", "compute()")
    assert run_script(script, CUKERN_BACKEND="host", CUKERN_NUM_THREADS="4") == "done\n"


@pytest.mark.gpu
@pytest.mark.parametrize("placement", ["auto", "device", "host"])
def test_a_child_of_fork_computes_on_the_processor_and_is_told_about_spawn(placement: str) -> None:
    child = """
            before = cukern.counters()
            compute()
            after = cukern.counters()
            assert after["calls_on_device"] == before["calls_on_device"]
            assert after["calls_on_host"] == before["calls_on_host"] + 2
            assert (cukern.matmul(np.eye(200), np.eye(200)) == np.eye(200)).all()
            assert "fork" in cukern.explain_placement(cukern.add, np.ones(9), 1)["reason"]
            try:
                cukern.ones(3)
            except RuntimeError as error:
                assert "fork" in str(error) and "spawn" in str(error), error
            else:
                raise AssertionError("the child used the GPU")
    """
    script = FORK.replace("STAGED", "False").replace("CHILD", child.strip())
    assert run_script(script, CUKERN_BACKEND="cuda", CUKERN_PLACEMENT=placement) == "done\n"


def test_a_child_of_fork_before_first_use_works() -> None:
    script = """
        import os
        import numpy as np, cukern
        child = os.fork()
        a = np.ones(100_000, np.float32)
        assert (cukern.add(a, a) == 2).all()
        if child == 0:
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        print("done")
    """
    assert run_script(script) == "done\n"


def test_threads_that_are_awake_leave_work_to_the_caller() -> None:
    """The caller reports, and sees interrupts: others may be faster, but not take all of the work."""
    code = f"""
    import numpy as np, cukern
    from cukern import _cukern, _progress
    _progress.SECONDS = 0.0
    _cukern._set_staging(True, 64, 0, 2)
    a, big = np.ones(4_000_000, np.float32), np.ones(1 << 21)
    out, other = np.empty_like(a), np.empty_like(big)
    for _ in range({2 if SMALL else 20}):  # more than 10 s each under ThreadSanitizer
        told = []
        with cukern.placement("host"):
            cukern.sqrt(big, out=other)
        with cukern.progress(lambda done, total: told.append(done)), cukern.placement("device"):
            cukern.add(a, a, out=out)
        assert told
    """
    run_quietly(code, CUKERN_BACKEND="host", CUKERN_NUM_THREADS="16")
