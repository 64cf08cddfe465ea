"""The transfer engine: calls on the host's memory in chunks, through the device, whatever the arrays are like."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from arrays import assert_same, layouts, random_array
from conftest import POOLED, SANITIZED, SMALL, STAGED
from oracles import BFLOAT16, assert_reduced, assert_result, product_bound
from processes import run_quietly

import cukern
from cukern import _cukern

ROWS = {
    kind: [row["name"] for row in _cukern._table if row["kind"] == kind] for kind in ("unary", "binary", "reduction")
}
TYPES = ["float32", "int8", "complex64"]  # what is cut knows of sizes alone
LIMIT = 32 << 10
SLOT = 4 << 10
pytestmark = pytest.mark.parametrize("backend", STAGED, indirect=True)


@pytest.fixture
def in_chunks(backend: str) -> Iterator[Callable[..., None]]:
    """Set how the engine cuts: bytes of a slot, and workers."""

    def cut(slot_bytes: int = SLOT, workers: int = 3) -> None:
        _cukern._set_staging(True, slot_bytes, 0, workers)

    cut()
    yield cut
    cukern.set_memory_limit(None)


@pytest.fixture
def little_memory(in_chunks: Callable[..., None]) -> None:
    """The device has an eighth of the memory that an array of `large` takes."""
    _cukern._release_caches()
    cukern.set_memory_limit(cukern.memory_info()["in_use"] + LIMIT)


def large(rng: np.random.Generator, dtype: Any, columns: int = 256) -> np.ndarray:
    dtype = np.dtype(dtype)
    return random_array(rng, (8 * LIMIT // dtype.itemsize // columns, columns), dtype)


def moved(call: Callable[[], Any]) -> dict[str, int]:
    """What counters() counts for a call."""
    before = cukern.counters()
    call()
    return {name: number - before[name] for name, number in cukern.counters().items()}


# --- elementwise operations ---


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("slot_bytes", [64, 100, 1000])
def test_every_layout_at_every_cut(
    in_chunks: Callable[..., None], slot_bytes: int, workers: int, rng: np.random.Generator
) -> None:
    in_chunks(slot_bytes, workers)
    for shape in [(1001,), (37, 19), (5, 6, 7, 3), (3, 1, 90)]:
        a, b = (layouts(rng, shape, np.dtype(dtype)) for dtype in ("float32", "int16"))
        for x, y in zip(a.values(), reversed(b.values()), strict=True):
            assert_result(cukern.add(x, y), "add", x, y)
            assert_result(cukern.multiply(x, y[..., :1]), "multiply", x, y[..., :1])
            assert_result(cukern.subtract(x[:1], y), "subtract", x[:1], y)
            assert_result(cukern.add(x, x), "add", x, x)
            assert_result(cukern.add(x, 3), "add", x, 3)
            assert_same(cukern.where(x > 0, x, y.astype("float32")), np.where(x > 0, x, y.astype("float32")))
            out = np.zeros(shape[::-1], np.float64).T
            assert cukern.add(x, y, out=out) is out
            assert_same(out, np.add(x, y).astype("float64"))


def test_in_place(in_chunks: Callable[..., None], rng: np.random.Generator) -> None:
    a, b = rng.random((200, 300)), rng.random((200, 300))
    wanted = a + b
    cukern.add(a, b, out=a)
    assert_same(a, wanted)
    wanted = np.sqrt(a[::-1, ::2])
    cukern.sqrt(a[::-1, ::2], out=a[::-1, ::2])
    assert_same(a[::-1, ::2], wanted)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", ROWS["binary"] + ROWS["unary"])
def test_rows_larger_than_memory(name: str, dtype: str, rng: np.random.Generator) -> None:
    function = getattr(cukern, name)
    a = large(rng, dtype)
    operands: list[tuple[np.ndarray, ...]] = [(a,), (a[:, ::2],), (a.T,)]
    if name in ROWS["binary"]:
        b = large(rng, dtype)
        operands = [(a, b), (a[:, ::2], b[::-1, 1::2]), (a, b[0]), (a[:, :1], b), (a[:128, :128], b[:128, :128].T)]
    for own in operands:
        try:
            result = function(*own)
        except TypeError:
            return  # not of this element type
        assert_result(result, name, *own)


@pytest.mark.usefixtures("little_memory")
def test_each_byte_travels_once_and_nothing_is_allocated_twice(rng: np.random.Generator) -> None:
    a, b = large(rng, "float32"), large(rng, "float32")
    row, column = b[0].copy(), b[:, :1].copy()
    out = np.empty_like(a)
    wanted_bytes = {
        "two": (lambda: cukern.add(a, b, out=out), 2 * a.nbytes),
        "the same": (lambda: cukern.multiply(a, a, out=out), a.nbytes),
        "row": (lambda: cukern.add(a, row, out=out), a.nbytes + row.nbytes),
        "column": (lambda: cukern.add(a, column, out=out), a.nbytes + column.nbytes),
        "sum": (lambda: cukern.sum(a), a.nbytes),
        "var": (lambda: cukern.var(a, axis=0), a.nbytes),
        "argmax": (lambda: cukern.argmax(a, axis=1), a.nbytes),
    }
    for name, (call, wanted) in wanted_bytes.items():
        call()
        counted = [moved(call) for _ in range(5)]
        assert {one["host_to_device_bytes"] for one in counted} == {wanted}, name
        if POOLED:  # by the time that each worker has had a chunk
            assert min(one["driver_allocations"] for one in counted) == 0, name


@pytest.mark.usefixtures("little_memory")
def test_a_broadcast_operand_that_does_not_fit_travels_again(rng: np.random.Generator) -> None:
    a = large(rng, "float32")
    many = np.broadcast_to(a, (2, *a.shape))
    assert_same(cukern.add(many, 1), many + 1)


def test_pinned_arrays_beside_one_that_is_packed_again_and_again(in_chunks: Callable[..., None]) -> None:
    # Chunks of pinned arrays are larger than a slot: not beside one that has to be packed into it.
    in_chunks(4 << 20, 2)
    a, out = cukern.zeros_pinned((4, 1_000_000)), cukern.zeros_pinned((4, 1_000_000))
    b = np.arange(1_000_000.0)
    _cukern._release_caches()
    for limit in (34_000_000, 200 << 20):
        cukern.set_memory_limit(cukern.memory_info()["in_use"] + limit)
        out[:] = 0
        cukern.add(a, b, out=out)
        assert_same(out, a + b)


def test_single_elements_without_memory(in_chunks: Callable[..., None]) -> None:
    kept = cukern.ones(1000)
    _cukern._release_caches()
    cukern.set_memory_limit(cukern.memory_info()["in_use"])
    for shape in [(), (1,), (1, 1)]:
        with pytest.raises(cukern.OutOfMemoryError):
            cukern.add(np.ones(shape), 2.0)
    cukern.set_memory_limit(None)
    assert cukern.add(np.ones((1, 1)), 2.0) == 3
    assert kept.sum() == 1000


# --- reductions ---


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("dtype", [*TYPES, "float16", "bool"])
@pytest.mark.parametrize("name", ROWS["reduction"])
def test_reductions_larger_than_memory(name: str, dtype: str, on_gpu: bool, rng: np.random.Generator) -> None:
    a = large(rng, dtype)
    cases = [a.reshape(-1), a, a.T, a[::-1, ::3], a.reshape(64, -1, 128), np.broadcast_to(a[:1], a.shape)]
    if on_gpu:  # where so many small boxes take long; how they are cut is the same everywhere
        cases = cases[1::2]
    for x in cases:
        axes: list[Any] = [None, *range(x.ndim)]
        axes += [(0, 2), (1, 2)] if x.ndim == 3 and not name.startswith("arg") else []
        for axis in axes:
            try:
                result = getattr(cukern, name)(x, axis=axis)
            except TypeError:
                return  # not of this element type
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # NumPy's, of overflow
                assert_reduced(result, name, x, axis=axis)


@pytest.mark.usefixtures("little_memory")
def test_the_first_of_equal_elements_and_of_nans() -> None:
    a = np.zeros((1024, 512), np.float32)
    a[700, 3] = a[700, 400] = a[1000, 0] = 5
    assert cukern.argmax(a) == 700 * 512 + 3
    assert_same(cukern.argmax(a.reshape(8, 128, 512), axis=0), np.argmax(a.reshape(8, 128, 512), axis=0))
    a[900, 7] = a[80, 9] = np.nan
    assert cukern.argmax(a) == cukern.argmin(a) == 80 * 512 + 9
    assert np.isnan(cukern.max(a))
    assert np.isnan(cukern.min(a))


@pytest.mark.usefixtures("little_memory")
def test_variances_of_numbers_far_from_zero(rng: np.random.Generator) -> None:
    a = 1e9 + rng.random((512, 512))
    for correction in (0, 1):
        wanted = np.var(a - 1e9, ddof=correction)
        assert abs(cukern.var(a, correction=correction) - wanted) < 1e-6 * wanted
    assert cukern.var(np.full((512, 512), 1e160)) == 0  # whose square is no number


@pytest.mark.usefixtures("little_memory")
def test_results_in_another_type(rng: np.random.Generator) -> None:
    a = rng.integers(-100, 100, (512, 1024)).astype("int16")
    out = np.zeros(1024, np.float32)
    cukern.sum(a, axis=0, dtype="float32", out=out)
    assert_same(out, a.sum(axis=0).astype("float32"))
    assert cukern.sum(a, dtype="int8").dtype == "int8"
    assert cukern.sum(a, dtype="int8") == a.sum(dtype="int8")
    half = np.full((1024, 512), 0.1, np.float16)
    assert abs(float(cukern.mean(half)) - float(half[0, 0])) < 1e-4  # which sums of 16 bits would miss


# --- products ---

ORDERS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "rows": lambda x: x,
    "columns": np.asfortranarray,
    "steps": lambda x: np.repeat(np.repeat(x, 2, axis=0), 3, axis=1)[::2, ::3],
    "backwards": lambda x: x[::-1].copy()[::-1],
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_products_of_every_layout(in_chunks: Callable[..., None], dtype: str, rng: np.random.Generator) -> None:
    in_chunks(64, 3)
    for m, k, n in [(5, 7, 9), (40, 3, 50), (1, 100, 1), (70, 1, 2)]:
        a, b = (rng.integers(-9, 9, shape).astype(dtype) for shape in ((m, k), (k, n)))
        for own_a, own_b, own_out in itertools.product(ORDERS.values(), repeat=3):
            out = own_out(np.zeros((m, n), dtype))
            cukern.matmul(own_a(a), own_b(b), out=out)
            assert (out == a @ b).all()  # exact, of so small integers; of zeros the sign may differ


@pytest.mark.parametrize("limit", [None, 4 << 20, 1 << 20])
def test_products_of_many_panels(in_chunks: Callable[..., None], limit: int | None, rng: np.random.Generator) -> None:
    _cukern._release_caches()
    if limit is not None:
        cukern.set_memory_limit(cukern.memory_info()["in_use"] + limit)
    in_chunks(100_000, 4)
    m, n = (1300, 1050) if SMALL else (2600, 2100)
    a, b = rng.random((m, 40), np.float32), rng.random((40, n), np.float32)
    # With little memory panels of both are sent again and again; what is there is used first.
    result = cukern.matmul(a, b)
    exact = a.astype(float) @ b.astype(float)
    assert (np.abs(result - exact) <= product_bound(a, b, np.dtype("float32"))).all()
    wide = cukern.matmul(a, b.astype("float64"), out=np.empty((m, n)))
    assert_same(np.round(wide, 9), np.round(exact, 9))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "float16", "bfloat16", "int32", "uint8", "bool"])
def test_products_of_sums_that_the_device_does_not_hold(
    in_chunks: Callable[..., None], dtype: str, rng: np.random.Generator
) -> None:
    """k is cut: the shapes are of one element, of narrow and of wide results, and of a batch."""
    _cukern._release_caches()
    cukern.set_memory_limit(cukern.memory_info()["in_use"] + (1 << 18))
    in_chunks(10_000, 3)
    kind = BFLOAT16 if dtype == "bfloat16" else np.dtype(dtype)
    for x, y in [
        ((300_001,), (300_001,)),
        ((3, 70_000), (70_000, 2)),
        ((70_000,), (70_000, 3)),
        ((90, 4000), (4000, 70)),
        ((2, 2, 90_000), (2, 90_000, 1)),
    ]:
        low, high = {"bool": (-9999, 2), "uint8": (0, 3)}.get(dtype, (-1, 2))
        a, b = (np.maximum(rng.integers(low, high, shape), -1 if low == -1 else 0).astype(kind) for shape in (x, y))
        wide = np.float64 if dtype in ("float16", "bfloat16") else kind  # exact, and rounded once
        wanted = (a.astype(wide) @ b.astype(wide)).astype(kind)
        np.testing.assert_array_equal(cukern.matmul(a, b), wanted)
        for turn in (lambda v: np.flip(np.flip(v).copy()), np.asfortranarray):
            np.testing.assert_array_equal(cukern.matmul(turn(a), turn(b)), wanted)
        if np.ndim(wanted) > 0:
            out = np.asfortranarray(np.zeros(np.shape(wanted), kind))
            cukern.matmul(a, b, out=out)
            np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("kind", ["allocate", "copy", "launch", "event"])
def test_failures_amid_sums_that_are_cut(in_chunks: Callable[..., None], kind: str) -> None:
    """The result is written at the end alone."""
    in_chunks(10_000, 2)
    a, out = np.ones((3, 70_000)), np.full((3, 3), -1.0)
    for n in (1, 3, 20, 100):
        _cukern._release_caches()
        cukern.set_memory_limit(cukern.memory_info()["in_use"] + (1 << 18))
        _cukern._inject_fault(kind, n)
        try:
            cukern.matmul(a, a.T, out=out)
        except cukern.CudaError as error:
            assert "written in part" not in str(error)
            assert (out == -1).all()
        else:
            assert (out == 70_000).all()
        finally:
            _cukern._inject_fault(kind, 0)
        cukern.matmul(a, a.T, out=out)
        assert (out == 70_000).all()
        out.fill(-1)


def test_products_do_without_memory_that_is_not_there(in_chunks: Callable[..., None]) -> None:
    _cukern._release_caches()
    cukern.set_memory_limit(cukern.memory_info()["in_use"] + 4096)
    a = np.ones((300, 5000))
    with pytest.raises(cukern.OutOfMemoryError, match="matmul: the limit of"):
        cukern.matmul(a, a.T)
    cukern.set_memory_limit(None)
    assert (cukern.matmul(a, a.T) == 5000).all()


# --- batches of products ---


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "complex64", "int8", "bool"])
def test_batches_of_every_layout(in_chunks: Callable[..., None], dtype: str, rng: np.random.Generator) -> None:
    in_chunks(256, 3)
    shapes = [((9, 5, 7), (9, 7, 4)), ((9, 5, 7), (7, 4)), ((5, 7), (9, 7, 4)), ((3, 1, 5, 7), (4, 7, 2))]
    for x, y in [*shapes, ((3, 2, 5, 7), (3, 1, 7, 2)), ((7,), (20, 7, 4)), ((30, 5, 7), (7,))]:
        a, b = (rng.integers(0, 2 if dtype == "bool" else 4, shape).astype(dtype) for shape in (x, y))
        wanted = a @ b
        for turn in (lambda v: v, lambda v: v[..., ::-1].copy()[..., ::-1], np.asfortranarray):
            result = cukern.matmul(turn(a), turn(b))
            assert result.dtype == dtype
            np.testing.assert_array_equal(result, wanted)
            out = turn(np.zeros(wanted.shape, dtype))
            assert cukern.matmul(turn(a), turn(b), out=out) is out
            np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("limit", [None, 1 << 20, 200_000])
def test_batches_of_many_chunks(in_chunks: Callable[..., None], limit: int | None, rng: np.random.Generator) -> None:
    _cukern._release_caches()
    in_chunks(100_000, 4)
    a, b = rng.random((200, 30, 40), np.float32), rng.random((200, 40, 20), np.float32)
    if limit is not None:
        cukern.set_memory_limit(cukern.memory_info()["in_use"] + limit)
    for other in (b, b[:1], b[0]):
        result = cukern.matmul(a, other)
        exact = a.astype(float) @ other.astype(float)
        assert (np.abs(result - exact) <= product_bound(a, other, np.dtype("float32"))).all()


def test_large_matrices_of_a_batch_go_by_panels(in_chunks: Callable[..., None], rng: np.random.Generator) -> None:
    in_chunks(4096, 3)
    a, b = rng.integers(0, 9, (3, 1100, 40)).astype("float32"), rng.integers(0, 9, (40, 1000)).astype("float32")
    np.testing.assert_array_equal(cukern.matmul(a, b), a @ b)


# --- copies ---


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_copies_of_every_layout(
    in_chunks: Callable[..., None], order: Callable[[np.ndarray], np.ndarray], rng: np.random.Generator
) -> None:
    a = order(rng.random((300, 200)))
    there = cukern.asarray(a)
    assert_same(cukern.asnumpy(there), a)
    out = order(np.zeros((300, 200), np.float32))
    cukern.copyto(out, there)
    assert_same(out, a.astype("float32"))
    cukern.copyto(there, out)
    assert_same(cukern.asnumpy(there), out.astype("float64"))


def test_copies_come_after_earlier_work_of_the_stream(in_chunks: Callable[..., None]) -> None:
    a = cukern.zeros(500_000)
    host = np.empty(500_000)
    for i in range(20):
        cukern.add(a, 1, out=a)
        cukern.asnumpy(a, out=host)
        assert host[0] == host[-1] == i + 1
        host += 1
        cukern.copyto(a, host)
        host -= 1
        cukern.subtract(a, 1, out=a)


def test_pinned_arrays_are_not_copied_again(in_chunks: Callable[..., None], rng: np.random.Generator) -> None:
    pinned = cukern.empty_pinned((1 << 10, 1 << 10))
    pinned[:] = rng.random(pinned.shape)
    pageable = pinned.copy()

    def copies(call: Callable[[], Any]) -> int:
        before = _cukern._fault_calls("copy")
        call()
        return _cukern._fault_calls("copy") - before

    assert copies(lambda: cukern.asarray(pinned)) == 1
    assert copies(lambda: cukern.asarray(pageable)) > 100
    there = cukern.asarray(pinned)
    assert copies(lambda: cukern.asnumpy(there, out=pinned)) == 1
    out = cukern.empty_pinned(pinned.shape)
    assert copies(lambda: cukern.add(pinned, pinned, out=out)) < copies(lambda: cukern.add(pageable, pageable))
    assert_same(out, pageable + pageable)
    assert_same(cukern.add(pinned, pageable), out)
    assert_same(cukern.add(pinned.T, pageable), pageable.T + pageable)
    assert_same(cukern.add(pinned[::2, ::2], pinned[0, ::2]), pageable[::2, ::2] + pageable[0, ::2])
    cukern.add(out, pinned, out=out)
    assert_same(out, 3 * pageable)
    product = cukern.matmul(pinned[:100], pinned, out=cukern.empty_pinned((100, 1 << 10)))
    np.testing.assert_allclose(product, pageable[:100] @ pageable)


# --- faults, threads ---

ONES = np.ones((200, 300), np.float32)
EYE = np.eye(300, dtype=np.float32)
WORK: dict[str, Callable[[np.ndarray], Any]] = {
    "add": lambda out: cukern.add(ONES, ONES, out=out),
    "broadcast add": lambda out: cukern.add(ONES, ONES[0], out=out),
    "product": lambda out: cukern.matmul(ONES, np.ones((300, 300), np.float32), out=out),
    "products": lambda out: cukern.matmul(ONES.reshape(20, 10, 300), EYE, out=out.reshape(20, 10, 300)),
    "upload": lambda out: cukern.asarray(ONES),
    "download": lambda out: cukern.copyto(out, cukern.ones(out.shape, "float32")),
}


@pytest.mark.parametrize("kind", ["allocate", "copy", "launch", "event", "synchronize", "stream"])
@pytest.mark.parametrize("name", WORK)
def test_a_failure_among_the_chunks(in_chunks: Callable[..., None], name: str, kind: str) -> None:
    in_chunks(4096, 3)
    work = WORK[name]
    wanted = np.empty_like(ONES)
    work(wanted)
    _cukern._release_caches()
    at_rest = _cukern._held()
    failures = 0
    for n in (1, 2, 3, 5, 8, 17, 53) if SANITIZED else (*range(1, 12), 17, 29, 53, 100):
        out = np.empty_like(ONES)
        _cukern._inject_fault(kind, n)
        try:
            work(out)
        except cukern.CudaError as error:
            failures += 1
            assert "injected by a test" in str(error)  # the first cause, whoever failed after it
            assert isinstance(error, cukern.OutOfMemoryError) or kind != "allocate"
        finally:
            _cukern._inject_fault(kind, 0)
        work(out)
        assert_same(out, wanted) if name != "upload" else None
        _cukern._release_caches()
        assert _cukern._held() == at_rest
    if kind in ("copy", "synchronize"):  # for want of memory, a stream or an event other workers do it all
        assert failures > 3
    if kind == "launch" and "load" not in name:
        assert failures > 0


def test_a_failure_says_that_the_result_may_be_written_in_part(in_chunks: Callable[..., None]) -> None:
    in_chunks(4096, 2)
    _cukern._inject_fault("copy", 40)
    with pytest.raises(cukern.CudaError, match=r"injected by a test.*; the result may have been written in part"):
        cukern.add(ONES, ONES, out=np.empty_like(ONES))


def test_calls_from_many_threads(in_chunks: Callable[..., None], rng: np.random.Generator) -> None:
    in_chunks(4096, 4)
    a, b = rng.random((150, 200)), rng.random((200, 150))
    wanted = a + a, a @ b, a.sum(axis=0)
    failures: list[Any] = []

    def work() -> None:
        try:
            for _ in range(10):
                assert_same(cukern.add(a, a), wanted[0])
                np.testing.assert_allclose(cukern.matmul(a, b), wanted[1])
                assert_same(cukern.asnumpy(cukern.asarray(a)), a)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.parametrize(
    "name, wrong, expected",
    [
        ("CUKERN_TRANSFER_WORKERS", "17", "a number of threads from 1 to 16"),
        ("CUKERN_TRANSFER_WORKERS", "many", "a number of threads from 1 to 16"),
        ("CUKERN_TRANSFER_CHUNK", "100", "a number of bytes from 4096 to 4194304"),
    ],
)
def test_the_environment_sets_sizes(backend: str, name: str, wrong: str, expected: str) -> None:
    code = "import cukern; cukern.backend()"
    run = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, name: wrong}, capture_output=True, text=True, check=False
    )
    assert f"{name} is '{wrong}'; expected {expected}" in run.stderr
    run_quietly(
        """
        import numpy as np
        import cukern
        from cukern import _cukern
        _cukern._use_backend("host")
        _cukern._set_staging(True)
        a = np.ones(1 << 20)
        before = cukern.counters()["launches"]
        assert (cukern.add(a, a) == 2).all()
        assert cukern.counters()["launches"] - before >= 2 * a.nbytes // 8192
        """,
        CUKERN_TRANSFER_WORKERS="2",
        CUKERN_TRANSFER_CHUNK="8192",
        CUKERN_PLACEMENT="device",
    )
