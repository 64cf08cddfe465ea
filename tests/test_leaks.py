"""Nothing is left behind by calls that succeed, and by each way to fail."""

from __future__ import annotations

import array
import gc
import sys
from collections.abc import Callable

import numpy as np
import pytest
from conftest import SANITIZED, SMALL, STAGED

import cukern
from cukern import _cukern

A = np.arange(12.0, dtype=np.float32).reshape(3, 4)
OUT = np.zeros((3, 4), np.float32)
PRODUCT = np.zeros((3, 3), np.float32)
BUFFER = array.array("f", range(12))
FLOAT = 1e300 * 1.0
READ_ONLY = np.zeros((3, 4), np.float32)
READ_ONLY.flags.writeable = False
RECORD = np.zeros(5, [("pad", np.int8), ("x", np.float32)])["x"]
BIG = 2**70
RELEASED = memoryview(b"1234")
RELEASED.release()

SUCCESSES: dict[str, Callable[[], object]] = {
    "add": lambda: cukern.add(A, A),
    "add out": lambda: cukern.add(A, A, out=OUT),
    "add scalar": lambda: cukern.add(A, FLOAT),
    "add numpy scalar": lambda: cukern.add(A, np.float64(2)),
    "buffer": lambda: cukern.add(BUFFER, BUFFER, out=BUFFER),
    "unaligned": lambda: cukern.add(RECORD, RECORD),
    "unaligned out": lambda: cukern.add(RECORD, 0, out=RECORD),
    "strided": lambda: cukern.divide(A[:, ::-1], A[:, ::-1]),
    "matmul": lambda: cukern.matmul(A, A.T),
    "matmul out": lambda: cukern.matmul(A, A.T, out=PRODUCT),
    "matmul_tiled": lambda: cukern.matmul_tiled(A, A.T),
    "matmul buffer": lambda: cukern.matmul(BUFFER, BUFFER),
    "backend": lambda: cukern.backend(),
    "information": lambda: _cukern._information(),
}
FAILURES: dict[str, Callable[[], object]] = {
    "list": lambda: cukern.add([1], A),
    "second list": lambda: cukern.add(BUFFER, [1]),
    "element type": lambda: cukern.matmul(A, A.astype(np.int8)),
    "byte order": lambda: cukern.add(A, A.astype(">f4")),
    "scalar's element type": lambda: cukern.add(A, np.datetime64(1, "s")),
    "untyped": lambda: cukern.add(A[0], A[0], out=bytearray(4)),
    "shapes": lambda: cukern.add(A, A[:, :3]),
    "overflow": lambda: cukern.add(A.astype(np.int32), BIG),
    "too large": lambda: cukern.add(A, 10**400),
    "out's shape": lambda: cukern.add(A, A, out=PRODUCT),
    "out's type": lambda: cukern.add(A, A, out=np.zeros((3, 4), np.int32)),
    "out read-only": lambda: cukern.add(A, A, out=READ_ONLY),
    "out list": lambda: cukern.add(A, A, out=[1]),
    "out buffer's shape": lambda: cukern.add(A, A, out=BUFFER),
    "overlap": lambda: cukern.add(OUT[1:], 1, out=OUT[:-1]),
    "self-overlap": lambda: cukern.add(A, 1, out=np.lib.stride_tricks.as_strided(OUT, (3, 4), (0, 4))),
    "arguments": lambda: cukern.add(A),
    "keyword": lambda: cukern.add(A, A, into=A),
    "factor": lambda: cukern.scale(A, A),
    "inner": lambda: cukern.matmul(A, A),
    "dimensions": lambda: cukern.matmul(A, A[None]),
    "integers": lambda: cukern.matmul_cublas(A.astype(np.int32), A.T.astype(np.int32)),
    "product overlap": lambda: cukern.matmul(A, A.T, out=A[:, :3]),
    "huge": lambda: cukern.add(np.broadcast_to(A[0, 0], (2**40, 1)), np.broadcast_to(A[0, 0], (1, 2**40))),
    "no memory": lambda: cukern.add(np.broadcast_to(A[0, 0], (2**29, 1)), np.broadcast_to(A[0, 0], (1, 2**29))),
    "released buffer": lambda: cukern.add(RELEASED, A),
    "two bools": lambda: cukern.subtract(True, True),
    "fault's name": lambda: _cukern._inject_fault("nothing", 1),
}
TIMES = 100 if SMALL else 1000


def failing(call: Callable[[], object]) -> None:
    """Make a call that must raise."""
    try:
        call()
    except Exception:
        return
    raise AssertionError("it did not fail")


def injected(kind: str) -> Callable[[], object]:
    """Return a call that fails in the runtime."""

    def call() -> object:
        _cukern._set_staging(True, 0, 0)  # so that a small array is copied
        _cukern._release_caches()
        _cukern._inject_fault(kind, 2 if kind == "allocate" else 1)  # the first is of a lane, which tries twice
        return cukern.add(A, A)

    return call


def growth(call: Callable[[], object]) -> tuple[int, int]:
    """Return how many blocks of Python's allocator, and pages of memory, many calls leave behind."""
    for _ in range(20):
        call()
    gc.collect()
    blocks, pages = sys.getallocatedblocks(), resident_pages()
    for _ in range(TIMES):
        call()
    gc.collect()
    return sys.getallocatedblocks() - blocks, resident_pages() - pages


def resident_pages() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])


def check(call: Callable[[], object]) -> None:
    """Assert that neither grows with the number of calls, nor any argument's count of references."""
    subjects = [
        A,
        OUT,
        PRODUCT,
        BUFFER,
        READ_ONLY,
        RECORD,
        FLOAT,
        BIG,
        np.dtype(np.float32),
        cukern.CudaError,
    ]
    gc.collect()  # a test that failed before leaves cycles behind
    counts = [sys.getrefcount(subject) for subject in subjects]
    for _ in range(3):  # what happens by chance meanwhile, in other threads say, does not happen three times
        blocks, pages = growth(call)
        if SANITIZED or (blocks < TIMES // 10 and pages * 4096 < TIMES * 100 + (1 << 18)):
            break
    assert [sys.getrefcount(subject) for subject in subjects] == counts
    if not SANITIZED:  # a sanitizer keeps freed memory back, or frames for its reports
        assert blocks < TIMES // 10
        assert pages * 4096 < TIMES * 100 + (1 << 18)  # 100 bytes a call, above what the allocator may round


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("name", SUCCESSES)
def test_successes(name: str) -> None:
    check(SUCCESSES[name])


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("name", FAILURES)
def test_failures(name: str) -> None:
    check(lambda: failing(FAILURES[name]))


@pytest.mark.parametrize("backend", STAGED, indirect=True)
@pytest.mark.parametrize("kind", ["allocate", "copy", "event", "launch", "stream", "synchronize"])
def test_failures_of_the_runtime(backend: str, kind: str) -> None:
    check(lambda: failing(injected(kind)))
    _cukern._inject_fault(kind, 0)


def test_the_check_finds_a_leak() -> None:
    if not SANITIZED:
        kept: list[object] = []
        with pytest.raises(AssertionError):
            check(lambda: kept.append(object()))
    references: list[object] = []
    with pytest.raises(AssertionError):
        check(lambda: references.append(A))
