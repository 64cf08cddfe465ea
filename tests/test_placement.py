"""Where calls on arrays of the host run: what is asked for, what is estimated, what is counted and explained."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import BACKENDS, HAS_GPU, use
from processes import run_quietly

import cukern

STAGED = BACKENDS[1:]
ROOT = Path(__file__).resolve().parent.parent
LARGE = 1 << 20

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "add": cukern.add,
    "where": lambda a, b: cukern.where(a > b, a, b),
    "axpy": lambda a, b: cukern.axpy(2, a, b),
    "clip": lambda a, b: cukern.clip(a, 0.25, 0.75),
    "astype": lambda a, b: cukern.astype(a, "int32"),
    "sum": lambda a, b: cukern.sum(a, axis=0),
    "std": lambda a, b: cukern.std(a),
    "cumulative_sum": lambda a, b: cukern.cumulative_sum(a, axis=0),
    "matmul": cukern.matmul,
    "dot": cukern.dot,
    "vecdot": cukern.vecdot,
}


@pytest.fixture(params=STAGED)
def staged(request: pytest.FixtureRequest) -> Iterator[str]:
    """Use a back-end on which operands travel."""
    use(request.param)
    yield request.param
    use("cuda" if HAS_GPU else "host")


def counted(call: Callable[[], Any]) -> tuple[int, int]:
    """Return how many calls were computed on the processor, and how many on the device."""
    before = cukern.counters()
    call()
    after = cukern.counters()
    return tuple(after[name] - before[name] for name in ("calls_on_host", "calls_on_device"))


@pytest.mark.parametrize("name", CALLS)
def test_every_call_runs_where_it_is_asked_to(name: str, staged: str, rng: np.random.Generator) -> None:
    a, b = rng.random((2, 40, 40))
    call = CALLS[name]
    calls = sum(counted(lambda: call(a, b)))
    assert calls > 0
    results = {}
    for where in ("host", "device"):
        with cukern.placement(where):
            moved = cukern.counters()["host_to_device_bytes"]
            on_host, on_device = counted(lambda where=where: results.__setitem__(where, call(a, b)))
            moved = cukern.counters()["host_to_device_bytes"] - moved
        assert (on_host, on_device) == ((calls, 0) if where == "host" else (0, calls))
        assert (moved == 0) == (where == "host")
    for result in results.values():
        assert isinstance(result, np.ndarray)
        np.testing.assert_allclose(result, results["host"], rtol=1e-13)


@pytest.mark.parametrize("backend", BACKENDS, indirect=True)
def test_blocks_nest_and_belong_to_their_thread(backend: str) -> None:
    a = np.ones(9)
    seen = []

    def reason() -> str:
        return cukern.explain_placement(cukern.add, a, a)["placement"]

    with cukern.placement("host"):
        assert reason() == "host"
        with cukern.placement("device") as block:
            assert repr(block) == "placement('device')"
            assert reason() == ("host" if backend == "host" else "device")
            with block:  # again
                assert reason() == ("host" if backend == "host" else "device")
            thread = threading.Thread(target=lambda: seen.append(reason()))
            thread.start()
            thread.join()
        assert reason() == "host"
    assert seen == ["host" if backend == "host" else "device"]  # the process's, which conftest sets


def test_blocks_that_cannot_be_entered_or_left() -> None:
    for wrong in ("gpu", "", "Host"):
        with pytest.raises(ValueError, match=f"placement: got '{wrong}'; expected 'auto', 'host' or 'device'"):
            cukern.placement(wrong)
    with pytest.raises(TypeError):
        cukern.placement(1)  # type: ignore[arg-type]
    block = cukern.placement("host")
    with pytest.raises(RuntimeError, match="not in this block"):
        block.__exit__(None, None, None)
    for _ in range(1000):
        block.__enter__()
    for _ in range(1000):
        block.__exit__()
    with pytest.raises(RuntimeError, match="not in this block"):
        block.__exit__()


def test_blocks_that_end_in_another_order(staged: str) -> None:
    def where() -> str:
        return cukern.explain_placement(cukern.add, np.ones(3), 1)["placement"]

    host, device = cukern.placement("host"), cukern.placement("device")
    host.__enter__()
    device.__enter__()
    host.__exit__()
    assert where() == "device"
    device.__exit__()

    def generate() -> Iterator[str]:
        with cukern.placement("host"):
            yield where()

    with cukern.placement("device"):
        generator = generate()
        assert next(generator) == "host"
        assert list(generator) == []  # leaves its own block, and no other
        assert where() == "device"

    with cukern.placement("host"):
        failures = []

        def leave() -> None:
            try:
                host.__exit__()
            except RuntimeError as error:
                failures.append(str(error))

        thread = threading.Thread(target=leave)
        thread.start()
        thread.join()
        assert len(failures) == 1
        assert where() == "host"


def test_an_error_leaves_the_block(staged: str) -> None:
    with pytest.raises(ValueError, match="broadcast"), cukern.placement("host"):
        cukern.add(np.ones(3), np.ones(4))
    assert counted(lambda: cukern.add(np.ones(3), 1)) == (0, 1)


def test_the_environment_names_a_placement() -> None:
    script = """
        import numpy as np, cukern
        from cukern import _cukern
        if cukern.backend() == "host":
            _cukern._set_staging(True)
        a = np.ones(5)
        print(cukern.explain_placement(cukern.add, a, a)["placement"])
    """
    for where in ("host", "device"):
        assert run_quietly(script, CUKERN_PLACEMENT=where) == f"{where}\n"
    for where in ("auto", ""):
        assert run_quietly(script, CUKERN_PLACEMENT=where) == "host\n"
    script = """
        import numpy as np, cukern
        for call in (lambda: cukern.add(np.ones(3), 1), cukern.backend, lambda: cukern.placement("host")):
            try:
                call()
            except RuntimeError as error:
                print(error)
    """
    expected = "CUKERN_PLACEMENT is 'gpu'; expected auto, host or device"
    lines = run_quietly(script, CUKERN_PLACEMENT="gpu").splitlines()
    assert len(lines) == 3
    assert all(expected in line for line in lines)


class TestAuto:
    """By the estimates."""

    @pytest.fixture(autouse=True)
    def auto(self, staged: str) -> Iterator[None]:
        with cukern.placement("auto"):
            yield

    def test_small_calls_stay_and_large_products_travel(self) -> None:
        a = np.ones(1000, np.float32)
        assert counted(lambda: cukern.add(a, a)) == (1, 0)
        big = np.ones((2000, 2000), np.float32)
        told = cukern.explain_placement(cukern.matmul, big, big)
        assert told["placement"] == "device"
        assert told["device"] < told["host"]
        assert (
            cukern.explain_placement(cukern.matmul, a[:16].reshape(4, 4), a[:16].reshape(4, 4))["placement"] == "host"
        )

    def test_what_is_told_is_done(self, rng: np.random.Generator) -> None:
        for n in (10, 1000, 10**5, 10**6):
            for function, args in (
                (cukern.add, rng.random((2, n))),
                (cukern.asinh, [rng.random(n) + 1j]),
                (cukern.sum, [rng.random(n, np.float32)]),
                (cukern.cumulative_sum, [rng.random(n, np.float32)]),
            ):
                told = cukern.explain_placement(function, *args)
                assert told == cukern.explain_placement(function, *args)  # always the same
                assert told["placement"] == ("host" if told["host"] <= told["device"] else "device")
                assert counted(lambda function=function, args=args: function(*args)) == (
                    (1, 0) if told["placement"] == "host" else (0, 1)
                )

    def test_estimates_grow_with_the_work(self) -> None:
        def told(call: Callable[..., Any], *args: Any) -> tuple[float, float]:
            found = cukern.explain_placement(call, *args)
            return found["host"], found["device"]

        x = np.ones(LARGE, np.float32)
        square = x.reshape(1024, 1024)
        for slow, fast in [
            (told(cukern.add, x, x), told(cukern.add, x[: LARGE // 8], x[: LARGE // 8])),
            (told(cukern.add, square, square.T), told(cukern.add, square, square)),
            (told(cukern.matmul, square, square), told(cukern.matmul, square[:512], square)),
        ]:
            assert slow[0] > fast[0]
            assert slow[1] > fast[1]
        assert told(cukern.acosh, x.astype("c8"))[0] > 3 * told(cukern.add, x, x)[0]  # many threads hide some of it
        # A broadcast operand travels once.
        large = np.empty((4096, 4096), np.float32)
        row = np.broadcast_to(large[0], large.shape)
        assert told(cukern.add, large, row)[1] < told(cukern.add, large, large)[1]

    def test_what_is_not_computed_is_not_estimated(self, rng: np.random.Generator) -> None:
        def host(call: Callable[..., Any], *args: Any, **options: Any) -> float:
            return float(cukern.explain_placement(call, *args, **options)["host"])

        numbers = rng.integers(0, 9, (2, 400, 500), np.int32)
        truths = numbers > 4
        for call, less, more in [
            (cukern.logical_or, numbers, (numbers[0], truths[1])),  # takes operands of one type as they are
            (cukern.isnan, numbers[:1], [numbers[0].astype("f8")]),  # of an integer it is known
            (cukern.pow, truths, truths.astype("i1")),  # a comparison
            (cukern.add, (numbers[0].T, numbers[1].T), (numbers[0].T, numbers[1].reshape(500, 400))),
        ]:
            assert host(call, *less) < 0.8 * host(call, *more)
        # Of bool to int8 nothing is converted.
        assert host(cukern.square, truths[0]) < 1.5 * host(cukern.square, truths[0].view("i1"))
        table = numbers[0].astype("f4")
        for call in (cukern.prod, cukern.mean):  # whose loops vectorise where results lie beside each other
            assert host(call, table, axis=0) < host(call, table, axis=1)
            assert host(call, table[:, :, None], axis=0) < host(call, table, axis=1)
        assert host(cukern.max, table.astype("f2"), axis=0) == host(cukern.max, table.astype("f2"), axis=1)

    def test_few_bytes_go_by_one_thread(self) -> None:
        device = [
            cukern.explain_placement(cukern.add, np.ones(n), np.ones(n))["device"]
            for n in (1, 10, 1 << 17, 1 << 18, 1 << 22)
        ]
        assert device[0] == device[1] >= 20e-6  # no call is expected to be shorter
        assert device[2] < device[3] < device[4]
        assert device[3] - device[2] > 24 * (1 << 17) / 15e9  # at most 15 GB/s

    def test_kernels_that_are_named_are_of_the_device(self) -> None:
        a = np.ones((4, 4), np.float32)
        assert cukern.explain_placement(cukern.matmul_tiled, a, a)["placement"] == "device"
        with cukern.placement("host"):
            assert counted(lambda: cukern.matmul_tiled(a, a)) == (1, 0)

    def test_an_array_that_the_device_reaches_takes_the_call_there(self) -> None:
        pinned = cukern.ones(9, memory="pinned")
        a = np.ones(9)
        assert counted(lambda: cukern.add(a, pinned)) == (0, 1)
        with cukern.placement("host"):
            assert counted(lambda: cukern.add(a, pinned)) == (1, 0)
        for where in ("host", "device", "auto"):  # no array that only the host reaches
            with cukern.placement(where):
                assert counted(lambda: cukern.add(pinned, pinned)) == (0, 0)


class TestExplanations:
    """What explain_placement tells."""

    def test_nothing_is_computed(self, backend: str) -> None:
        a = np.full(5, 2.0)
        out = np.full(5, 7.0)
        launches = cukern.counters()["launches"]
        for name, call in CALLS.items():
            if name not in ("where", "astype", "dot", "vecdot", "matmul"):
                told = cukern.explain_placement(call, a, a)
                assert told["calls"] >= 1
                assert told["host"] > 0
        cukern.explain_placement(cukern.add, a, a, out=out)
        cukern.explain_placement(cukern.matmul, np.ones((3, 3)), np.ones((3, 3)), out=np.ones((3, 3)))
        assert out.tolist() == [7] * 5
        assert cukern.counters()["launches"] == launches
        assert counted(lambda: cukern.explain_placement(cukern.add, a, a)) == (0, 0)
        cukern.add(a, a, out=out)
        assert out.tolist() == [4] * 5

    def test_calls_of_a_function_are_summed(self, backend: str) -> None:
        a = np.ones(1000)
        one = cukern.explain_placement(cukern.add, a, a)
        two = cukern.explain_placement(lambda x: cukern.add(cukern.add(x, x), x), a)
        assert (one["calls"], two["calls"]) == (1, 2)
        assert two["host"] == pytest.approx(2 * one["host"])
        assert two["placement"] == one["placement"]

    def test_calls_that_differ(self) -> None:
        use("host-staged")

        def both(x: Any) -> Any:
            with cukern.placement("host"):
                cukern.add(x, x)
            return cukern.add(x, x)

        assert cukern.explain_placement(both, np.ones(3))["placement"] == "host and device"
        use("host")

    def test_all_else_is_done(self, backend: str) -> None:
        a, array = np.ones(4), cukern.ones(10)
        for _ in range(5):  # planned, and not
            array += 1
            cukern.add(array, array)
        results = []

        def work() -> None:
            nonlocal array
            cukern.add(a, a)
            array += 1
            results.append(cukern.add(array, array).tolist())
            results.append(cukern.sqrt(array).tolist())

        assert cukern.explain_placement(work)["calls"] == 1
        assert array.tolist() == [7] * 10
        assert results == [[14] * 10, [7**0.5] * 10]

    def test_errors(self, backend: str) -> None:
        with pytest.raises(TypeError, match="takes a function and its arguments"):
            cukern.explain_placement()  # type: ignore[call-arg]
        with pytest.raises(ValueError, match="broadcast"):
            cukern.explain_placement(cukern.add, np.ones(3), np.ones(4))
        with pytest.raises(TypeError):
            cukern.explain_placement(3)
        on_device = cukern.ones(3)
        if backend != "host":
            with pytest.raises(ValueError, match="no call on arrays of the host"):
                cukern.explain_placement(lambda: None)
        with pytest.raises(ValueError, match="no call on arrays of the host"):
            cukern.explain_placement(cukern.add, on_device, 1)
        assert counted(lambda: cukern.add(np.ones(3), 1)) != (0, 0)  # and computes again


def test_the_host_back_end_computes_everything_itself(rng: np.random.Generator) -> None:
    use("host")
    a = rng.random(1000)
    for where in ("auto", "host", "device"):
        with cukern.placement(where):
            assert counted(lambda: cukern.add(a, a)) == (1, 0)
            told = cukern.explain_placement(cukern.add, a, a)
            assert (told["placement"], told["device"], told["calls"]) == ("host", 0, 1)
            assert told["reason"] == "the host back-end is in use"
            assert told["threads"] == 1


def test_threads_are_those_that_a_call_is_worth() -> None:
    script = """
        import numpy as np, cukern
        for n in (10, 10**4, 120_000, 10**7):
            print(cukern.explain_placement(cukern.sqrt, np.ones(n))["threads"])
    """
    assert run_quietly(script, CUKERN_BACKEND="host", CUKERN_NUM_THREADS="4").split() == ["1", "1", "2", "4"]


@pytest.mark.build
def test_constants_are_what_the_script_writes(tmp_path: Path) -> None:
    names = ("placement/machines.inc", "placement/model.inc", "host/costs.inc")
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
    script = f"""
        import sys
        from pathlib import Path
        sys.path.insert(0, {str(ROOT / "benchmarks")!r})
        import placement_model
        placement_model.PLACEMENT = Path({str(tmp_path / "placement")!r})
        placement_model.write()
    """
    run_quietly(script)
    for name in names:
        assert (tmp_path / name).read_text() == (ROOT / "cuda/src" / name).read_text()
