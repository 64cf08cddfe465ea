"""Cases drawn at random, each checked, and timed against the better of torch and CuPy and against a plain copy.

    python benchmarks/survey.py --seed 1 --cases 400 [--most ELEMENTS] [--output FILE]

Up to 10^5 elements a call's time on the host counts, as where nothing is launched; above, the device's, of calls in a
replayed graph where less than 64 MB are moved. On the host back-end NumPy is the peer and all is host time: to try the
survey itself.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import plots
import survey_peers as peers
from harness import Comparison, compare, device_seconds
from survey_cases import MOST, Case, Operand, arguments, draw, target_of
from survey_tables import MUCH_MEMORY, groups, table

import cukern

FEW_ELEMENTS = 10**5
SPREAD = {"steps": 2}  # bytes that memory moves for each byte of such elements: whole sectors, of 32 bytes
REPEAT = {"call": 200, "graph": 20, "device": 3}
# float32's, in which sums of shorter floats are made, too.
EPSILON = {"float64": 2.0**-52, "complex128": 2.0**-52}


def make(operand: Operand, shape: tuple[int, ...], values: tuple[float, float]) -> tuple[Any, int]:
    """Return an operand with random elements, and how many bytes memory moves for it."""
    if operand.layout == "number":
        return 2, 0
    *rows, columns = shape
    layouts: dict[str, tuple[tuple[int, ...], Callable[[Any], Any]]] = {
        "packed": (shape, lambda x: x),
        "offset": ((math.prod(shape) + 1,), lambda x: x[1:].reshape(shape)),
        "window": ((*rows, columns + 3), lambda x: x[..., 1:-2]),
        "steps": ((*rows, 2 * columns), lambda x: x[..., ::2]),
        "transposed": (shape[::-1], lambda x: x.T),
        "interleaved": ((*shape[1:], shape[0]), lambda x: x.transpose(len(rows), *range(len(rows)))),
        "reversed": (shape, lambda x: x[..., ::-1]),
        "row": ((columns,), lambda x: x),
        "column": ((*rows, 1), lambda x: x),
    }
    base, view = layouts[operand.layout]
    made = view(peers.random(base, operand.dtype, values))
    return made, made.nbytes * SPREAD.get(operand.layout, 1)


def domain(case: Case) -> tuple[float, float]:
    """Return between which numbers operands are drawn: where the function is defined, and overflows nowhere."""
    if case.to is not None and case.to.startswith("u"):
        return 0, 4  # what becomes of negative floats is left to the processor
    if case.name in ("asin", "acos", "atanh") or case.kind in ("reduction", "scan"):
        return -1, 1
    if case.name in ("sqrt", "log", "log2", "log10", "log1p", "pow"):
        return 0.25, 3
    return (1, 5) if case.name in ("acosh", "reciprocal", "divide", "floor_divide", "remainder") else (-4, 4)


class Run:
    """A case with its arrays."""

    def __init__(self, case: Case) -> None:
        self.case = case
        values = domain(case)
        made = [make(x, case.shape, values) for x in case.operands]
        self.arrays = [array for array, _ in made]
        if case.kind == "scan" or case.name == "prod":
            peers.make_signs(self.arrays[0])
        self.out: Any = None
        if case.place == "in place":
            target = target_of(case)
            assert target is not None
            self.out = self.arrays[target]
        elif case.out is not None:
            shape = cukern.max(self.arrays[0], axis=case.axis).shape if case.kind == "reduction" else case.shape
            self.out = make(case.out, shape, (0, 1))[0] if shape else cukern.empty((), case.result)
        count = case.size
        if case.kind == "reduction":
            count = math.prod(cukern.max(self.arrays[0], axis=case.axis).shape)
        target = target_of(case) if case.place == "in place" else None
        written = case.out if target is None else case.operands[target]
        spread = SPREAD.get(written.layout, 1) if written is not None else 1
        self.moved = sum(size for _, size in made) + count * spread * cukern.empty(0, case.result).itemsize

    def capturable(self) -> Callable[..., Any] | None:
        """Return a call that a graph can hold, in which no Array can be made: a fresh result goes to memory that is
        there. None: the function has no such form.
        """
        if self.case.place != "fresh":
            return self.own()
        into = self.own()()
        if self.case.name != "astype":
            return lambda **stream: self.own(into)(**stream)
        try:
            cukern.copyto(into, self.arrays[0])
        except TypeError:
            return None
        return lambda **stream: cukern.copyto(into, self.arrays[0], **stream)

    def own(self, out: Any = None) -> Callable[..., Any]:
        """Return cukern's call."""
        case, out = self.case, self.out if out is None else out
        if case.name == "copyto":
            return lambda **stream: cukern.copyto(out, self.arrays[0], **stream)
        if case.name == "astype":
            return lambda **stream: cukern.astype(self.arrays[0], case.to, **stream)
        function, given = getattr(cukern, case.name), arguments(case, self.arrays)
        options = {} if case.kind not in ("reduction", "scan") else {"axis": case.axis}
        options |= {} if out is None else {"out": out}
        return lambda **stream: function(*given, **options, **stream)

    def check(self, peer: peers.Peer | None) -> None:
        """Assert that the result is the peer's, or NumPy's."""
        inputs = [x if isinstance(x, int) else cukern.copy(x) for x in self.arrays]
        got = self.own()()
        got = cukern.copy(self.out if self.out is not None else got)
        if self.case.kind == "scan" and got.dtype.itemsize == 2:  # torch adds up in that type, where 256 + 1 may be 256
            inputs = [x.astype("float32") for x in inputs]
        want = (peer or peers.NumpyPeer()).result(self.case, inputs)
        assert got.shape == want.shape, f"{got.shape} instead of {want.shape}"
        wrong = self.differs(got, want, inputs)
        assert not bool(cukern.any(wrong)), f"{int(cukern.sum(wrong))} of {wrong.size} elements are wrong"

    def differs(self, got: Any, want: Any, inputs: list[Any]) -> Any:
        """Return where two results differ by more than rounding explains."""
        case = self.case
        if case.name in ("argmax", "argmin"):
            return self.at(inputs[0], got) != self.at(inputs[0], want)
        if not cukern.isdtype(got.dtype, ("real floating", "complex floating")):
            return got != want
        wide = "complex128" if cukern.isdtype(got.dtype, "complex floating") else "float64"
        own, other = got.astype(wide), want.astype(wide)
        both = cukern.abs(own - other)
        epsilon = max(EPSILON.get(str(got.dtype), 2.0**-23), float(cukern.finfo(got.dtype).eps))
        # 4 units for each side, of the result or of what it is the sum of; and what adding up a line may lose.
        size = cukern.abs(other) + sum(float(cukern.max(cukern.abs(x))) for x in inputs if not isinstance(x, int))
        lost = 0.0
        if case.kind in ("reduction", "scan") and case.name not in ("max", "min"):
            terms = case.size / max(1, got.size) if case.kind == "reduction" else case.shape[case.axis]  # type: ignore[index]
            sums = 1 if case.name in ("mean", "var", "std") else terms
            lost = EPSILON.get(str(got.dtype), 2.0**-23) * (math.log2(terms + 1) + 17) * sums
        wrong = both > 8 * epsilon * size + lost
        same = (own == other) | (cukern.isnan(own) & cukern.isnan(other))
        return (wrong | cukern.isnan(both)) & ~same

    def at(self, x: Any, indices: Any) -> Any:
        """Return the elements that an argmax names."""
        values, where = cukern.asnumpy(x), cukern.asnumpy(indices)
        axis = self.case.axis
        if axis is None:
            return cukern.asarray(values.reshape(-1)[where])
        taken = peers.numpy.take_along_axis(values, peers.numpy.expand_dims(where, axis), axis)
        return cukern.asarray(peers.numpy.squeeze(taken, axis))


def host_seconds(call: Callable[[], Any], repeat: int) -> float:
    """Return the host time of one call, with nothing in flight before."""
    cukern.synchronize()
    begin = time.perf_counter()
    for _ in range(repeat):
        call()
    elapsed = time.perf_counter() - begin
    cukern.synchronize()
    return elapsed / repeat


def able_peers(run: Run) -> list[tuple[peers.Peer, Callable[[], Any]]]:
    """Return the peers that can do a case, with their calls."""
    calls = ((peer, peer.call(run.case, run.arrays, run.out)) for peer in peers.all_peers())
    return [(peer, call) for peer, call in calls if call is not None]


def check(case: Case) -> None:
    """Check a case once."""
    run = Run(case)
    able = able_peers(run)
    # CuPy adds up a thread's share of integers one by one, which loses more than the bound allows.
    exact = case.name in ("mean", "var", "std") and cukern.isdtype(run.arrays[0].dtype, ("bool", "integral"))
    run.check(able[0][0] if able and not exact else None)


def timed(calls: dict[str, Callable[..., Any]], timer: Callable[..., float]) -> dict[str, float]:
    """Time calls roughly; those that fail are left out."""
    found = {}
    for name, call in calls.items():
        try:
            found[name] = min(timer(call, 2) for _ in range(3))
        except Exception as error:  # whatever a library raises for what it can't do here
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
    return found


def replay_of(run: Run) -> Callable[..., Any] | None:
    """Return the replay of a graph with cukern's call; None where a graph can't hold it."""
    call = run.capturable()
    if call is None:
        return None
    return peers.all_replayed({"cukern": peers.on_current_stream(call)}, REPEAT["graph"]).get("cukern")


def launches(run: Run) -> bool:
    """Return whether cukern's call launches anything: floors of integers in place are those integers."""
    before = cukern.counters()["launches"]
    run.own()()
    return cukern.counters()["launches"] > before


def measure(case: Case) -> tuple[Comparison, str]:
    """Check a case and time it; return the comparison and which time it is."""
    check(case)
    peers.free_memory()
    run = Run(case)
    is_call = case.size <= FEW_ELEMENTS or not launches(run)
    kind = "call" if is_call else "device" if run.moved >= MUCH_MEMORY else "graph"
    own: Callable[..., Any] | None = run.own()
    theirs: dict[str, Callable[..., Any]] = {peer.name: call for peer, call in able_peers(run)}
    copy = peers.plain_copy(run.moved) if kind != "call" else None
    timer: Callable[..., float] = host_seconds
    if cukern.backend() == "cuda" and kind != "call":
        timer = device_seconds
        captured = replay_of(run) if kind == "graph" else None
        if captured is None:
            kind = "device"
        else:
            own = captured
            theirs = peers.all_replayed(theirs, REPEAT[kind])
            copy = peers.replayed(copy, REPEAT[kind]) if copy else None
            timer = peers.replay_seconds
    contestants: dict[str, Callable[..., Any]] = {"cukern": own or run.own()}
    if times := timed(theirs, timer):
        best = min(times, key=lambda name: times[name])
        contestants[best] = theirs[best]
    if copy is not None:
        contestants["copy"] = copy
    repeat = REPEAT[kind] if cukern.backend() == "cuda" else 3
    done = compare(
        str(case), contestants, kind="device", work=float(run.moved), unit="GB/s", repeat=repeat, measure=timer
    )
    return done, kind


def survey(seed: int, count: int, most: int = MOST) -> Iterator[dict[str, Any]]:
    """Measure the cases of a seed. Each is named on standard error before it is run, since what it does to the GPU
    may end the process.
    """
    for index, case in enumerate(draw(seed, count, most)):
        print(f"{seed}:{index} {case}", file=sys.stderr, flush=True)
        entry: dict[str, Any] = {"seed": seed, "index": index, "case": asdict(case), "family": case.family}
        try:
            done, entry["kind"] = measure(case)
            entry |= {"text": str(case), "seconds": done.times, "bytes": done.work}
            entry["ratios"] = {name: done.ratio(name) for name in done.ratios}
        except Exception as error:
            entry |= {"text": str(case), "error": f"{type(error).__name__}: {error}"}
            print(f"{case}: {entry['error']}", flush=True)
        yield entry
        gc.collect()
        peers.free_memory()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, nargs="+", required=True)
    parser.add_argument("--cases", type=int, default=400, help="of each seed")
    parser.add_argument("--most", type=int, default=MOST, help="elements of an array")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    results: list[dict[str, Any]] = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(f"ended after {len(results)} cases"))
    try:
        for seed in options.seed:
            results.extend(survey(seed, options.cases, options.most))
    finally:
        if options.output is not None:
            content = {"backend": cukern.backend(), "groups": groups(results), "results": results}
            options.output.write_text(json.dumps(content, indent=1) + "\n")
            plots.draw_survey(options.output)
    print(table(results))
    raise SystemExit(any("error" in entry for entry in results))


if __name__ == "__main__":
    main()
