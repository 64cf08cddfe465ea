"""Draws what the survey measures: operations, element types, shapes, layouts, axes and places of the result.

Everything comes from the seed, and every row of the table, every element type and every layout is drawn as often as
any other, so that nobody can make just the drawn ones fast.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cukern
from cukern import _cukern

REAL = ["float16", "bfloat16", "float32", "float64"]
INTEGER = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
TYPES = [*REAL, *INTEGER, "bool", "complex64", "complex128"]
ROWS = {row["name"]: row for row in _cukern._table}
# What is no row of the table: conversions, clip, and running results.
OTHERS = {"astype": "conversion", "copyto": "conversion", "clip": "choice"}
OTHERS |= {"cumulative_sum": "scan", "cumulative_prod": "scan"}
# An element of `number` is one Python number; the others are arrays: `row` and `column` broadcast, a `window` has rows
# that begin anywhere, `steps` every second element, and of `interleaved` the first dimension is the packed one.
WHOLE = ["packed", "offset", "window", "steps", "transposed", "interleaved", "reversed"]
LAYOUTS = [*WHOLE, "row", "column", "number"]
WRITTEN = ["packed", "window", "steps", "transposed"]
PLACES = ["fresh", "out", "in place"]
LEAST, MOST = 10**3, 3 * 10**8
ARRAYS = {"binary": 2, "scalar": 1, "unary": 1, "choice": 3, "axpy": 2, "reduction": 1, "scan": 1, "conversion": 1}


@dataclass
class Operand:
    """An array of the case's shape, or what broadcasts to it."""

    dtype: str
    layout: str


@dataclass
class Case:
    """One call."""

    name: str
    kind: str
    shape: tuple[int, ...]
    operands: list[Operand]
    place: str
    out: Operand | None = None
    axis: int | tuple[int, ...] | None = None
    to: str | None = None  # of a conversion
    result: str = ""  # the element type

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def family(self) -> str:
        """Return the group under which the results are told."""
        if self.kind in ("reduction", "scan", "conversion"):
            return f"{self.kind}s"
        if self.name in OTHERS:
            return "arithmetic"
        row = ROWS[self.name]
        if row["rule"] in ("boolean", "test", "logical", "sign") or row["types"] in ("bits", "integers"):
            return "comparisons and bits"
        return "functions" if row["types"] in ("inexact", "floating") or self.name == "pow" else "arithmetic"

    def __str__(self) -> str:
        parts = [f"{x.dtype} {x.layout}" for x in self.operands]
        where = "" if self.axis is None else f" over {self.axis}"
        to = f" to {self.to}" if self.to else ""
        place = f"{self.place} {self.out.layout}" if self.out else self.place
        return f"{self.name} of {', '.join(parts)}{to}{where}, {self.shape}, {place}"


class Cycle:
    """Gives the members of a list in a random order, all of them before any comes again."""

    def __init__(self, rng: random.Random, members: list[Any]) -> None:
        self.rng, self.members, self.waiting = rng, members, list[Any]()

    def next(self, fits: Any = lambda member: True) -> Any:
        """Return the first waiting member that fits."""
        for _ in range(2):
            for index, member in enumerate(self.waiting):
                if fits(member):
                    return self.waiting.pop(index)
            self.waiting += self.rng.sample(self.members, len(self.members))
        raise AssertionError("nothing fits")


def kind_of(name: str) -> str:
    """Return a function's kind: a row's, or one of OTHERS."""
    return OTHERS[name] if name in OTHERS else str(ROWS[name]["kind"])


def arguments(case: Case, arrays: list[Any]) -> list[Any]:
    """Return what cukern's function is called with: numbers go where it takes no array."""
    if case.kind == "scalar":
        return [arrays[0], 2]
    return [2, *arrays] if case.kind == "axpy" else arrays


def result_type(case: Case) -> str | None:
    """Return the element type of a case's result; None: the function does not take its operands."""
    if case.kind == "conversion":
        return case.to
    arrays = [2 if x.layout == "number" else cukern.ones(1, x.dtype) for x in case.operands]
    options = {"axis": 0} if case.kind == "scan" else {}
    try:
        return str(getattr(cukern, case.name)(*arguments(case, arrays), **options).dtype)
    except (TypeError, OverflowError):
        return None


def draw_shape(rng: random.Random, least: int, most: int) -> tuple[int, ...]:
    """Draw a shape whose size is log-uniform and that has 1 to 6 dimensions."""
    size = math.exp(rng.uniform(math.log(least), math.log(most)))
    ndim = rng.randint(1, 6)
    cuts = sorted(rng.random() for _ in range(ndim - 1))
    parts = [b - a for a, b in zip([0.0, *cuts], [*cuts, 1.0], strict=True)]
    lengths = [max(1, round(size**part)) for part in parts]
    while math.prod(lengths) > most:
        lengths[lengths.index(max(lengths))] -= 1
    while math.prod(lengths) < least:
        lengths[-1] += 1
    return tuple(lengths)


def draw(seed: int, count: int, most: int = MOST) -> Iterator[Case]:
    """Draw cases."""
    rng = random.Random(seed)
    names = Cycle(rng, [*ROWS, *OTHERS])
    types, targets, layouts = Cycle(rng, TYPES), Cycle(rng, TYPES), Cycle(rng, LAYOUTS)
    whole, written, places = Cycle(rng, WHOLE), Cycle(rng, WRITTEN), Cycle(rng, PLACES)
    for _ in range(count):
        name = names.next()
        case = Case(name, kind_of(name), draw_shape(rng, LEAST, most), [], "fresh")
        if case.kind in ("reduction", "scan", "conversion"):
            case.operands = [Operand("", whole.next())]
        else:
            case.operands = [Operand("", layouts.next()) for _ in range(ARRAYS[case.kind])]
            if not any(x.layout in WHOLE for x in case.operands):  # one has the result's shape
                rng.choice(case.operands).layout = whole.next()
        types.next(lambda dtype, case=case: takes(case, dtype))
        if len(case.operands) == 2 and rng.random() < 0.2:
            takes(case, case.operands[0].dtype, rng.choice(TYPES))
        if case.kind == "conversion":
            case.to = targets.next(lambda to, case=case: converts(case.name, case.operands[0].dtype, to))
        elif case.kind == "reduction":
            draw_axes(rng, case)
        elif case.kind == "scan":
            case.axis = rng.randrange(len(case.shape))
        case.result = result_type(case) or ""
        case.place = {"astype": "fresh", "copyto": "out"}.get(name) or places.next()
        if case.place == "in place" and target_of(case) is None:
            case.place = "out"
        if case.place == "out":
            case.out = Operand(case.result, "packed" if case.kind == "reduction" else written.next())
        yield case


def takes(case: Case, *dtypes: str) -> bool:
    """Give the operands these types, the last of them to all that follow, if the function takes them."""
    before = [x.dtype for x in case.operands]
    for index, operand in enumerate(case.operands):
        operand.dtype = dtypes[min(index, len(dtypes) - 1)]
    if case.name == "where":
        case.operands[0].dtype = "bool"
    if case.kind == "conversion" or result_type(case) is not None:
        return True
    for operand, dtype in zip(case.operands, before, strict=True):
        operand.dtype = dtype
    return False


def converts(name: str, dtype: str, to: str) -> bool:
    """Whether a function converts elements of one type to another."""
    if dtype == to:
        return False
    try:
        if name == "copyto":
            cukern.copyto(cukern.empty(1, to), cukern.ones(1, dtype))
    except TypeError:
        return False
    return True


def target_of(case: Case) -> int | None:
    """Return the operand that the result can replace."""
    if case.kind in ("reduction", "scan"):
        return None
    fits = (i for i, x in enumerate(case.operands) if x.layout in WHOLE and x.dtype == case.result)
    return next(fits, None)


def draw_axes(rng: random.Random, case: Case) -> None:
    """Draw the axes of a reduction: all, one, or several."""
    ndim = len(case.shape)
    one = case.name in ("argmax", "argmin")
    number = rng.choice([0, 1, 1] if one or ndim == 1 else [0, 1, 1, rng.randint(1, ndim)])
    axes = tuple(sorted(rng.sample(range(ndim), number)))
    case.axis = None if not axes else axes[0] if len(axes) == 1 else axes
