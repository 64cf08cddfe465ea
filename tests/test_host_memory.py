"""Memory of NumPy's arrays from cukern's pools: large results, pinned arrays, NumPy's allocator; and `progress`."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from arrays import assert_same
from conftest import POOLED, SMALL, STAGED
from processes import run_quietly

import cukern
from cukern import _cukern, _progress

LARGE = (600, 500)  # of float64: over the size from which results are in memory that is used again

pytestmark = pytest.mark.usefixtures("backend")


@pytest.fixture(autouse=True)
def no_limit() -> Iterator[None]:
    yield
    cukern.set_pinned_limit(None)


# --- results ---


@pytest.mark.parametrize("placement", ["host", "device"])
def test_results_are_ordinary_arrays_in_memory_that_is_used_again(placement: str, rng: np.random.Generator) -> None:
    a = rng.random(LARGE)
    with cukern.placement(placement):
        first = cukern.add(a, 1)
        assert first.flags.owndata
        assert first.flags.writeable
        assert first.base is None
        assert_same(first, a + 1)
        kept = first[:2].copy()
        address = first.ctypes.data
        del first
        second = cukern.add(a, 2)
        assert second.ctypes.data == address or not POOLED
        assert_same(second, a + 2)
        second.resize((1000, 500), refcheck=False)
        assert_same(second[: LARGE[0]], a + 2)
        assert (second[LARGE[0] :] == 0).all()
        assert_same(kept, a[:2] + 1)


def test_asnumpy_uses_memory_again(rng: np.random.Generator) -> None:
    a = rng.random(LARGE)
    there = cukern.asarray(a)
    address = cukern.asnumpy(there).ctypes.data
    again = cukern.asnumpy(there)
    assert again.ctypes.data == address or not POOLED
    assert_same(again, a)
    assert np.isfortran(cukern.asnumpy(there.T))


@pytest.mark.unsanitized  # the pool is off there
def test_empty_cache_gives_results_memory_back() -> None:
    if not POOLED:
        pytest.skip("nothing is kept without the pool")
    cukern.empty_cache()
    _cukern._release_caches()
    blocks = _cukern._held()[0]
    with cukern.placement("host"):
        result = cukern.add(np.ones(LARGE), 1)
    cached = cukern.memory_info("pinned")["cached"]
    del result
    if cukern.backend() == "host":  # whose pool it is
        assert cukern.memory_info("pinned")["cached"] > cached
    assert _cukern._held()[0] == blocks + 1
    cukern.empty_cache()
    assert cukern.memory_info("pinned")["cached"] == 0
    assert _cukern._held()[0] == blocks


# --- pinned arrays ---


@pytest.mark.parametrize("dtype", ["float64", "int8", "complex64", "bool"])
def test_pinned_arrays(dtype: str) -> None:
    for shape in [(), (0,), 7, (3, 4), (600, 700)]:
        zeros = cukern.zeros_pinned(shape, dtype)
        assert_same(zeros, np.zeros(shape, dtype))
        empty = cukern.empty_pinned(shape, dtype, order="F")
        assert empty.shape == zeros.shape
        assert empty.flags.f_contiguous
        assert empty.flags.owndata
        empty[...] = 1
        assert_same(cukern.asnumpy(cukern.asarray(empty)), np.ones(shape, dtype))


def test_shapes_of_pinned_arrays() -> None:
    for shape in (
        3,
        np.int64(3),
        (2, np.int8(3)),
        [2, 3],
        np.array([2, 3]),
        (),
        range(2, 4),
        np.array(2),
        np.array([5]),
    ):
        assert cukern.empty_pinned(shape).shape == np.empty(shape).shape  # type: ignore[arg-type]
    for bad in (2.0, "x", None, {1}, (2, 1.5), np.array([1.5])):
        with pytest.raises(TypeError, match=r"empty_pinned: shape must be an int or a sequence of ints, got \w+"):
            cukern.empty_pinned(bad)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="maximum supported dimension"):
        cukern.zeros_pinned((1,) * 100)

    class Interrupted:
        def __len__(self) -> int:
            return 1

        def __getitem__(self, i: int) -> int:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cukern.zeros_pinned(Interrupted())  # type: ignore[arg-type]


@pytest.mark.parametrize("backend", [pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True)
def test_others_know_that_it_is_pinned() -> None:
    torch = pytest.importorskip("torch")
    torch.cuda.init()  # before, it takes no memory to be pinned
    assert torch.from_numpy(cukern.empty_pinned((100, 100))).is_pinned()
    with cukern.pinned_allocator():
        a = np.ones((100, 100))
    assert torch.from_numpy(a).is_pinned()
    assert not torch.from_numpy(np.ones((100, 100))).is_pinned()


def test_the_allocator_is_that_of_the_block(rng: np.random.Generator) -> None:
    from numpy._core.multiarray import get_handler_name

    with cukern.pinned_allocator() as allocator:
        a = np.arange(1000.0)
        with allocator, cukern.pinned_allocator():
            b = a * 2
        c = np.zeros((1000, 3))
        names: list[str] = []
        thread = threading.Thread(target=lambda: names.append(get_handler_name(np.ones(10))))
        thread.start()
        thread.join()
    outside = np.ones(1000)
    assert {get_handler_name(x) for x in (a, b, c)} == {"cukern_pinned"}
    assert get_handler_name(outside) == "default_allocator"
    assert names != ["cukern_pinned"] or sys.version_info >= (3, 14)  # where threads may inherit their contexts
    b.resize(5000, refcheck=False)
    assert_same(b[:1000], np.arange(1000.0) * 2)
    assert (b[1000:] == 0).all()
    assert (c == 0).all()
    del a
    gc.collect()
    assert_same(np.sort(b)[-1000:], np.sort(np.arange(1000.0) * 2))


def test_results_are_the_allocators_of_the_block() -> None:
    from numpy._core.multiarray import get_handler_name

    with cukern.pinned_allocator():
        small, large = cukern.add(np.ones(1000), 1), cukern.add(np.ones(LARGE), 1)
    assert {get_handler_name(small), get_handler_name(large)} == {"cukern_pinned"}
    assert get_handler_name(cukern.add(np.ones(LARGE), 1)) == "cukern"


def test_a_limit_of_pinned_memory() -> None:
    held = cukern.empty_pinned(200_000)
    cukern.set_pinned_limit(1_000_000)
    with pytest.warns(RuntimeWarning, match="empty_pinned: no pinned memory is left, or its limit is reached") as told:
        ordinary = cukern.empty_pinned(200_000)
    assert told[0].filename == __file__
    ordinary[:] = 1
    assert_same(cukern.add(ordinary, ordinary), np.full(200_000, 2.0))
    del held, ordinary
    cukern.empty_cache()
    cukern.set_pinned_limit(None)
    cukern.empty_pinned(200_000)  # without a warning: an error here
    for wrong in (0, -1):
        with pytest.raises(ValueError, match="set_pinned_limit: bytes is"):
            cukern.set_pinned_limit(wrong)
    with pytest.raises(TypeError):
        cukern.set_pinned_limit("much")  # type: ignore[arg-type]


def test_a_child_of_fork_leaves_what_it_inherits() -> None:
    a, pinned = np.ones(LARGE), cukern.zeros_pinned(LARGE)
    result = cukern.add(a, 1)
    child = os.fork()
    if child == 0:
        good = (result == 2).all() and (pinned == 0).all()
        del result, pinned
        gc.collect()
        with cukern.placement("host"):
            good = good and (cukern.add(a, 2) == 3).all()
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert (result == 2).all()


def test_nothing_is_leaked() -> None:
    a = np.ones(LARGE)

    def work() -> None:
        for _ in range(3):
            cukern.add(a, 1)
            cukern.empty_pinned(LARGE)
            with cukern.pinned_allocator():
                np.ones(LARGE) + np.ones(LARGE)

    work()
    gc.collect()
    _cukern._release_caches()
    held, in_use = _cukern._held(), _cukern._block_usage()[0]
    work()
    gc.collect()
    assert _cukern._block_usage()[0] == in_use
    _cukern._release_caches()
    assert _cukern._held() == held


@pytest.mark.parametrize("backend", STAGED, indirect=True)
def test_a_system_that_refuses_pinned_memory() -> None:
    """It is told once; a process of its own, since that is of the process."""
    staged = cukern.backend() == "host"
    run_quietly(
        f"""
        import warnings
        import numpy as np
        import cukern
        from cukern import _cukern
        _cukern._use_backend({cukern.backend()!r})
        _cukern._set_staging({staged})
        _cukern._inject_fault("pinned", 1 << 30)
        a, large = np.ones((300, 200)), np.ones((2000, 1000))
        with warnings.catch_warnings(record=True) as told, cukern.placement("device"):
            warnings.simplefilter("always")
            for x in (a[0], a, large):
                for _ in range(2):
                    assert (cukern.add(x, x) == 2).all() and cukern.sum(x) == x.size
                    assert (cukern.asnumpy(cukern.asarray(x)) == 1).all()
            assert (cukern.matmul(large[:500], large.T) == 1000).all()
        assert [str(warning.message)[:32] for warning in told] == ["the system refuses pinned memory"], told
        _cukern._inject_fault("pinned", 0)
        _cukern._release_caches()
        assert (cukern.add(a, a) == 2).all()
        """,
        CUKERN_PLACEMENT="device",
    )


@pytest.mark.parametrize("backend", ["host-staged"], indirect=True)
def test_a_warning_that_is_an_exception() -> None:
    run_quietly(
        """
        import warnings
        import numpy as np
        import cukern
        from cukern import _cukern
        warnings.simplefilter("error")
        _cukern._use_backend("host")
        _cukern._set_staging(True)
        _cukern._inject_fault("pinned", 1 << 30)
        out = np.zeros(100)
        try:
            cukern.add(np.ones(100), 1, out=out)
        except RuntimeWarning:
            pass
        else:
            raise AssertionError
        assert (out == 2).all() and (cukern.add(out, 1) == 3).all()
        """,
        CUKERN_PLACEMENT="device",
    )


# --- progress ---


@pytest.fixture
def long_work(backend: str, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """Work that is long enough to be reported is, for these tests, any that takes 50 ms or so."""
    _cukern._set_staging(True, 64, 0, 2)
    monkeypatch.setattr(_progress, "SECONDS", 0.0)
    return np.ones(60_000 if SMALL and backend == "cuda" else 4_000_000, np.float32)


def work_on(a: np.ndarray) -> None:
    with cukern.placement("device"):
        cukern.add(a, a, out=np.empty_like(a))


@pytest.mark.parametrize("backend", STAGED, indirect=True)
class TestProgress:
    def test_chunks_are_told_of(self, long_work: np.ndarray) -> None:
        told: list[tuple[int, int]] = []
        with cukern.progress(lambda done, total: told.append((done, total))):
            work_on(long_work)
        assert len(told) >= 2
        assert {total for _, total in told} == {told[0][1]}
        assert [done for done, _ in told] == sorted(done for done, _ in told)
        assert told[-1][0] == told[-1][1]
        before = len(told)
        work_on(long_work)  # outside the block
        assert len(told) == before

    def test_a_callback_may_make_calls(self, long_work: np.ndarray) -> None:
        told: list[tuple[int, int]] = []

        def tell(done: int, total: int) -> None:
            told.append((done, total))
            cukern.add(np.ones(100_000), 1)

        with cukern.progress(tell):
            work_on(long_work)
        assert told[-1][0] == told[-1][1]

    def test_an_exception_comes_before_other_failures(self, long_work: np.ndarray) -> None:
        class Enough(Exception):
            pass

        def stop(done: int, total: int) -> None:
            _cukern._inject_fault("copy", 1)  # of a worker that goes on meanwhile
            time.sleep(0.05)
            raise Enough

        for _ in range(5):
            with cukern.progress(stop), pytest.raises(Enough):
                work_on(long_work)
            _cukern._inject_fault("copy", 0)
        work_on(long_work)

    def test_short_work_is_not(self, long_work: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_progress, "SECONDS", 1000.0)
        with cukern.progress(lambda done, total: pytest.fail("told")):
            work_on(long_work)

    def test_the_innermost_block_is_told(self, long_work: np.ndarray) -> None:
        outer: list[int] = []
        inner: list[int] = []
        with cukern.progress(lambda done, total: outer.append(done)):
            with cukern.progress(lambda done, total: inner.append(done)):
                work_on(long_work)
            assert inner
            assert not outer
            work_on(long_work)
        assert outer

    def test_an_exception_ends_the_work(self, long_work: np.ndarray) -> None:
        class Enough(Exception):
            pass

        def stop(done: int, total: int) -> None:
            raise Enough

        held = _cukern._block_usage()[0]
        with cukern.progress(stop), pytest.raises(Enough):
            work_on(long_work)
        assert _cukern._block_usage()[0] == held
        work_on(long_work)

    def test_an_interrupt_ends_the_work(self, long_work: np.ndarray) -> None:
        class Interrupted(Exception):
            pass

        def interrupt(number: int, frame: Any) -> None:
            raise Interrupted

        a = np.ones(8_000_000, np.float32)
        before = signal.signal(signal.SIGALRM, interrupt)
        held = _cukern._block_usage()[0]
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(Interrupted):
                work_on(a)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert _cukern._block_usage()[0] == held
        work_on(long_work)

    def test_a_bar_of_text(
        self, long_work: np.ndarray, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setitem(sys.modules, "tqdm", None)  # not installed
        with cukern.progress():
            work_on(long_work)
        lines = capsys.readouterr().err
        assert lines.count("\r") >= 2
        assert f"|{'#' * 40}|" in lines
        assert lines.endswith("\n")

    def test_a_bar_of_tqdm(self, long_work: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
        bars: list[Any] = []

        class Bar:
            def __init__(self, total: int, unit: str) -> None:
                self.total, self.n, self.is_closed = total, 0, False
                bars.append(self)

            def update(self, more: int) -> None:
                self.n += more

            def close(self) -> None:
                self.is_closed = True

        monkeypatch.setitem(sys.modules, "tqdm", types.SimpleNamespace(tqdm=Bar))  # type: ignore[arg-type]
        with cukern.progress(True):
            work_on(long_work)
        assert [(bar.n == bar.total, bar.is_closed) for bar in bars] == [(True, True)]

    def test_wrong_callbacks(self, backend: str) -> None:
        for wrong in (1, "yes", None, False):
            with pytest.raises(TypeError, match="progress: callback must be callable or True"):
                cukern.progress(wrong)  # type: ignore[arg-type]
