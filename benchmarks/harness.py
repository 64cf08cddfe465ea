"""Timing: alternating rounds, medians, ratios to a named peer."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

ROUNDS = 7


@dataclass
class Comparison:
    """One piece of work done by several contestants. Times are medians in seconds.

    A ratio is the peer's time over ours, taken within a round: above 1 cukern is faster.
    """

    name: str
    kind: str  # "device", "host" or "call"
    ours: str
    work: float  # bytes moved or operations done in one call
    unit: str  # "GB/s", "TFLOP/s" or "us"
    times: dict[str, float] = field(default_factory=dict)
    ratios: dict[str, list[float]] = field(default_factory=dict)
    bounds: dict[str, float] = field(default_factory=dict)
    margins: dict[str, float] = field(default_factory=dict)  # a peer -> how many seconds more than it we may take

    def rate(self, contestant: str) -> float:
        """Return a contestant's rate in `unit`."""
        seconds = self.times[contestant]
        if self.unit == "us":
            return seconds * 1e6
        return self.work / seconds / (1e9 if self.unit == "GB/s" else 1e12)

    def ratio(self, peer: str) -> float:
        """Return the median ratio to a peer, or that of the medians where it says that the peer was faster."""
        ratio, of_medians = statistics.median(self.ratios[peer]), self.times[peer] / self.times[self.ours]
        return of_medians if of_medians < 1 < ratio else ratio

    def holds(self, peer: str) -> bool:
        """Whether the bound against a peer holds; at least 1.0 is met from 0.98."""
        if peer in self.margins:
            return self.excess(peer) <= self.margins[peer]
        bound = self.bounds[peer]
        return self.ratio(peer) >= (0.98 if bound == 1.0 else bound)

    def excess(self, peer: str) -> float:
        """Return how many seconds more than a peer we take."""
        return self.times[self.ours] - self.times[peer]

    def as_dict(self) -> dict[str, Any]:
        """Return what goes into the JSON."""
        rates = {name: self.rate(name) for name in self.times}
        medians = {peer: self.ratio(peer) for peer in self.ratios}
        verdicts = {peer: self.holds(peer) for peer in (*self.bounds, *self.margins)}
        return {**asdict(self), "rates": rates, "median_ratios": medians, "holds": verdicts}


def device_seconds(call: Callable[[], Any], repeat: int) -> float:
    """Return the device time of one call, by events around `repeat` calls on torch's current stream."""
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(repeat):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3 / repeat


def host_seconds(call: Callable[[], Any], repeat: int) -> float:
    """Return the host time of one call."""
    begin = time.perf_counter()
    for _ in range(repeat):
        call()
    return (time.perf_counter() - begin) / repeat


def compare(
    name: str,
    contestants: dict[str, Callable[..., Any]],
    *,
    kind: str,
    work: float,
    unit: str,
    repeat: int,
    bounds: dict[str, float] | None = None,
    margins: dict[str, float] | None = None,
    measure: Callable[[Callable[..., Any], int], float] | None = None,
    turns: int = 1,
) -> Comparison:
    """Time contestants in alternation; the first of them is ours. `measure` gives the seconds of one call.

    In a round the contestants take `turns`, each with its part of `repeat` calls: a host that speeds up or slows down
    within a round then does so for all.
    """
    measure = measure or (device_seconds if kind == "device" else host_seconds)
    ours, *peers = contestants
    for call in contestants.values():  # warm up: load, compile, allocate
        measure(call, max(1, repeat // 4))
    rounds: dict[str, list[float]] = {contestant: [] for contestant in contestants}
    for _ in range(ROUNDS):
        taken = dict.fromkeys(contestants, 0.0)
        for _ in range(turns):
            for contestant, call in contestants.items():
                taken[contestant] += measure(call, repeat // turns) / turns
        for contestant, seconds in taken.items():
            rounds[contestant].append(seconds)
    result = Comparison(name, kind, ours, work, unit, bounds=bounds or {}, margins=margins or {})
    result.times = {contestant: statistics.median(times) for contestant, times in rounds.items()}
    for peer in peers:
        result.ratios[peer] = [theirs / own for theirs, own in zip(rounds[peer], rounds[ours], strict=True)]
    return result


def table(results: list[Comparison]) -> str:
    """Return results as a Markdown table."""
    lines = ["| work | contestant | rate | ratio | all rounds | bound |", "|---|---|---|---|---|---|"]
    for result in results:
        for contestant in result.times:
            rate = f"{result.rate(contestant):.4g} {result.unit}"
            if contestant == result.ours:
                lines.append(f"| {result.name} | **{contestant}** | {rate} | | | |")
                continue
            rounds = " ".join(f"{ratio:.3g}" for ratio in result.ratios[contestant])
            bound = ""
            if contestant in result.bounds or contestant in result.margins:
                verdict = "holds" if result.holds(contestant) else "**fails**"
                if contestant in result.margins:
                    allowed, excess = result.margins[contestant] * 1e6, result.excess(contestant) * 1e6
                    bound = f"at most {allowed:.3g} us more, {excess:.3g}: {verdict}"
                else:
                    bound = f"at least {result.bounds[contestant]:.4g}: {verdict}"
            lines.append(f"| | {contestant} | {rate} | {result.ratio(contestant):.3g} | {rounds} | {bound} |")
    return "\n".join(lines)
