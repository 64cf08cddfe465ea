"""Back-ends for the tests: every case runs on each that is available.

host          the host back-end, views passed through
host-staged   the host back-end, through staging's copies
cuda          the GPU; left out without one, or failed with CUKERN_REQUIRE_GPU=1

Without a GPU pytest ends with status 5, "no tests ran", where all that was chosen needs one.
"""

from __future__ import annotations

import gc
import itertools
import os
import zlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from dlpack_tools import ALIVE
from numpy_loops import use_numpy_loops

import cukern
from cukern import _cukern

BACKENDS = ["host", "host-staged", pytest.param("cuda", marks=pytest.mark.gpu)]
STAGED = BACKENDS[1:]  # on which operands travel
MEMORY = ["device", "managed", "pinned"]
SMALL = os.environ.get("CUKERN_TEST_SMALL") == "1"  # for compute-sanitizer, under which kernels crawl
POOLED = os.environ.get("CUKERN_POOL") != "0"
SANITIZED = os.environ.get("CUKERN_TEST_SANITIZED") == "1"  # freed memory may be kept back, allocators are others


os.environ["CUKERN_PLACEMENT"] = "device"  # so that arrays of the host reach its kernels, here and in processes
# Before JAX is imported by any test: it would take most of the GPU's memory, which processes side by side share.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def has_gpu() -> bool:
    """Whether the CUDA back-end can be used here."""
    try:
        _cukern._use_backend("cuda")
    except RuntimeError:
        return False
    finally:
        _cukern._use_backend("host")
    return True


HAS_GPU = has_gpu()
FINISHED = itertools.count(1)
NEEDS_GPU = pytest.StashKey[int]()
OTHER_SHARES = pytest.StashKey[int]()
SHARE = os.environ.get("CUKERN_TEST_SHARE", "0/1")  # i/n: this run takes the i-th of n shares of each test's cases
REQUIRE_GPU = os.environ.get("CUKERN_REQUIRE_GPU") == "1"


USED: list[str] = []  # the back-end that `use` was last called with


def use(backend: str) -> None:
    """Make a back-end of BACKENDS the process's own."""
    USED[:] = [backend]
    _cukern._use_backend("cuda" if backend == "cuda" else "host")
    _cukern._set_staging(backend == "host-staged")
    use_numpy_loops(backend == "host")


def takes_few() -> bool:
    """Whether a test takes fewer and smaller cases: under sanitizers, and on host-staged, which has host's loops.

    How operands of many chunks travel is the subject of test_transfer_engine.py.
    """
    return SMALL or USED == ["host-staged"]


def on_processor() -> bool:
    """Whether calls run on the processor, which stands in for kernels that only a GPU has."""
    return USED != ["cuda"]


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run a test on each back-end."""
    use(request.param)
    yield request.param
    use("cuda" if HAS_GPU else "host")


@pytest.fixture
def device(backend: str) -> str:
    """Return the name of torch's device for a back-end."""
    return "cuda" if backend == "cuda" else "cpu"


@pytest.fixture
def torch() -> Any:
    """Return torch, with the operations of cukern.torch."""
    from interchange_tools import bring

    torch = bring("torch")
    import cukern.torch  # noqa: F401

    return torch


@pytest.fixture(params=[pytest.param("emulated", marks=pytest.mark.build), pytest.param("gpu", marks=pytest.mark.gpu)])
def formulas_on(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Run kernels of formulas on a GPU, and without one on the processor, as emulated_kernels.py does it."""
    if request.param == "emulated":
        from emulated_kernels import emulate_kernels

        use("host")
        emulate_kernels(monkeypatch)
    else:
        use("cuda")
    yield request.param
    cukern.synchronize()


@pytest.fixture
def rng() -> np.random.Generator:
    """Return a generator with a fixed seed."""
    return np.random.default_rng(20240229)


@pytest.fixture
def no_cached_memory(backend: str) -> Iterator[None]:
    """Begin without cached memory; end without limits."""
    gc.collect()
    cukern.synchronize()
    _cukern._release_caches()
    yield
    for memory in MEMORY:
        cukern.set_memory_limit(None, memory)


@pytest.fixture
def on_gpu(backend: str) -> bool:
    """Whether the test runs on the GPU."""
    return backend == "cuda"


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Every tensor that a producer of dlpack_tools made is deleted in the end, exactly once."""
    before = set(ALIVE)
    yield
    gc.collect()
    cukern.synchronize()
    assert set(ALIVE) <= before


@pytest.hookimpl(trylast=True)  # after -m and -k
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what does not fit here: skipping a third of the cases one by one takes time, too."""

    def leave_out(unfit: set[pytest.Item]) -> None:
        if unfit:
            config.hook.pytest_deselected(items=[item for item in items if item in unfit])
            items[:] = [item for item in items if item not in unfit]

    def marked(*names: str) -> set[pytest.Item]:
        return {item for item in items if any(item.get_closest_marker(name) for name in names)}

    leave_out(marked(*([] if POOLED else ["pooled"]), *(["unsanitized"] if SANITIZED else [])))
    need_gpu = set() if HAS_GPU or REQUIRE_GPU else marked("gpu")
    leave_out(need_gpu)
    config.stash[NEEDS_GPU] = len(need_gpu)
    share, count = map(int, SHARE.split("/"))
    if not 0 <= share < count:
        raise pytest.UsageError(f"CUKERN_TEST_SHARE is {SHARE}; expected i/n with i from 0 to n - 1")
    others = others_share(items, share, count)
    leave_out(others)
    config.stash[OTHER_SHARES] = len(others)


def others_share(items: list[pytest.Item], share: int, count: int) -> set[pytest.Item]:
    """Return the cases that are left to the other shares. A test of which some share would get none is in all.

    A case's share follows from its own name, so that processes that collect different cases agree on the others.
    """
    tests: dict[str, list[list[pytest.Item]]] = {}
    for item in items:
        shares = tests.setdefault(item.nodeid.partition("[")[0], [[] for _ in range(count)])
        shares[zlib.crc32(item.nodeid.encode()) % count].append(item)
    return {item for shares in tests.values() if all(shares) for i in range(count) if i != share for item in shares[i]}


def forget_what_is_there() -> None:
    """Keep what pytest holds out of the collector's sight: many tests collect, and under a sanitizer that is slow."""
    gc.collect()
    gc.freeze()


def pytest_collection_finish() -> None:
    forget_what_is_there()


def pytest_runtest_logfinish() -> None:
    if next(FINISHED) % 100 == 0:  # the reports that pytest keeps
        forget_what_is_there()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """With CUKERN_REQUIRE_GPU=1 a test that needs a GPU is not skipped for want of anything."""
    report = yield
    if REQUIRE_GPU and report.skipped and item.get_closest_marker("gpu"):
        report.outcome = "failed"
        report.longrepr = f"skipped although CUKERN_REQUIRE_GPU=1: {report.longrepr}"
    return report


def reason_of(report: pytest.TestReport) -> str:
    """Return why a test was skipped."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what ran where, and what was skipped and why, in a few lines."""
    write = terminalreporter.write_line
    ran = sum(len(terminalreporter.stats.get(kind, [])) for kind in ("passed", "failed", "xfailed", "xpassed"))
    places = "host, host-staged and cuda" if HAS_GPU else "host and host-staged"
    write(f"cukern {cukern.__version__}: {ran} tests ran, on the back-ends {places}")
    if need_gpu := terminalreporter.config.stash.get(NEEDS_GPU, 0):
        write(f"{need_gpu} left out: need a GPU")
    if others := terminalreporter.config.stash.get(OTHER_SHARES, 0):
        write(f"{others} left to the other shares: CUKERN_TEST_SHARE is {SHARE}")
    reasons = Counter(map(reason_of, terminalreporter.stats.get("skipped", [])))
    for reason, count in reasons.most_common(5):
        write(f"{count} skipped: {reason}")
    if len(reasons) > 5:
        write(
            f"{sum(count for _, count in reasons.most_common()[5:])} skipped for {len(reasons) - 5} other reasons (-rs)"
        )
