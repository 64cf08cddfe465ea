"""Exchange of memory: DLPack both ways, its C exchange API, buffers with any flags, NumPy's protocols."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from typing import Any

import numpy as np
from arrays import assert_same
from dlpack_tools import (
    ALIVE,
    ALLOCATE,
    CURRENT_STREAM,
    DTYPES,
    FORM_NAMES,
    FORMS,
    MANAGED_FROM_OBJECT,
    METAL,
    OBJECT_FROM_MANAGED,
    READ_ONLY,
    TENSOR_FROM_OBJECT,
    VERSIONED,
    DLTensor,
    Producer,
    Reading,
    SetError,
    exchange_table,
    fill_tensor,
    make_managed,
    new_capsule,
)

import cukern

from .buffers import buffers, flagged, host_operands
from .core import Case
from .exchange import REFUSALS, Exchange, attempt
from .garbage import plain

TABLE = exchange_table(cukern.Array)


class Holder:
    """What has one capsule to give."""

    def __init__(self, capsule: Any, device: tuple[int, int]) -> None:
        self.capsule, self.device = capsule, device

    def __dlpack__(self, **options: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


def capsule(x: Exchange) -> None:
    """Ask for a capsule with random keywords; use it once, twice, or not at all."""
    case, options = x.case, {}
    own = x.array.__dlpack_device__()
    if case.chance(0.6):
        options["max_version"] = case.pick([None, (1, 0), (1, 3), (0, 8), (2, 0), (1, 2**31), (-1, 0), (1,), 1, "x"])
    if case.chance(0.3):
        options["copy"] = case.pick([None, True, False, True])
    if case.chance(0.4):
        options["dl_device"] = case.pick([None, (1, 0), own, own, (2, 0), (8, 0), (1, 1), (1,), "x", (own[0], -1)])
    if case.chance(0.4):
        options["stream"] = case.pick([None, -1, 1, 2, 0, "x", -2, 2**70, cukern.Stream()])
    made = attempt(case, f"a.__dlpack__({options})", lambda: x.array.__dlpack__(**options), (*REFUSALS, OverflowError))
    if made is None:
        return
    reading = Reading(made)
    case.check(reading.shape == x.values.shape, f"a capsule of shape {reading.shape}")
    case.check(reading.dtype == (*DTYPES[x.dtype.name], 1), f"a capsule of type {reading.dtype}")
    times = case.pick([0, 1, 1, 1, 2])
    taken = False  # a consumer that refuses it leaves it unused
    for time in range(times):
        holder = Holder(made, reading.device)
        take = case.pick([cukern.from_dlpack, np.from_dlpack])
        if take is cukern.from_dlpack and case.chance(0.5):
            holder = made
        view = attempt(case, f"{take.__module__}.from_dlpack of it, {time + 1}", lambda take=take, h=holder: take(h))
        case.check(not taken or view is None, "a capsule was taken twice")
        taken = taken or view is not None
        if view is not None:
            cukern.synchronize()
            assert_same(cukern.asnumpy(view) if type(view) is cukern.Array else np.array(view), x.values)
            x.keep(view)
    x.keep(made)


LAYOUTS: list[dict[str, Any]] = [
    *({}, {}, {}, {"strides": (4, 1)}, {"shape": (4, 3), "strides": (1, 4)}, {"shape": (3, 2), "strides": (4, 2)}),
    *({"strides": (0, 1)}, {"shape": (2, 3), "strides": (4, 1), "byte_offset": "5"}, {"shape": (2, 0), "data": None}),
    *({"shape": (), "byte_offset": "1"}, {"shape": (1, 4), "strides": (2**62, 1)}, {"shape": (3, -4)}, {"data": None}),
    *({"shape": (1,) * 65}, {"shape": (2**40, 2**40)}, {"dtype": (2, 32, 4)}, {"device": (METAL, 0)}, {"ndim": -1}),
    *({"dtype": (9, 8, 1)}, {"version": (2, 0)}, {"version": (0, 1)}, {"flags": READ_ONLY}, {"has_deleter": False}),
]


def imported(x: Exchange) -> None:
    """Import a tensor of another library, sensible or not; each is deleted exactly once."""
    case = x.case
    dtype = np.dtype(case.pick(list(DTYPES)))
    values = np.asarray(case.rng.integers(0, 2 if dtype.kind == "b" else 9, (3, 4))).astype(dtype)
    fields = dict(case.pick(LAYOUTS))
    if isinstance(fields.get("byte_offset"), str):
        fields["byte_offset"] = int(fields["byte_offset"]) * dtype.itemsize
    on_gpu = case.on_gpu and case.chance(0.6) and "has_deleter" not in fields  # else nobody frees it
    producer = Producer(values, case.pick([None, *FORMS]), on_gpu, **fields)
    options = {"copy": case.pick([None, True, False])} if case.chance(0.4) else {}
    call: Callable[[], Any] = lambda: cukern.from_dlpack(producer, **options)  # noqa: E731
    if case.chance(0.3):
        call = lambda: cukern.add(producer, 1)  # noqa: E731
    elif case.chance(0.2):
        call = lambda: cukern.asarray(producer)  # noqa: E731
    result = attempt(case, f"from_dlpack, add or asarray of a tensor {dtype} {fields} {options}", call)
    if result is not None and fields == {} and type(result) is cukern.Array and result.dtype == dtype:
        now = cukern.asnumpy(result)
        case.check(
            np.array_equal(now, values) or np.array_equal(now, cukern.add(values, 1)), "an import has other values"
        )
    producer.drop()
    x.keep(result)


def table_call(x: Exchange) -> None:
    """Call a function of the C exchange API."""
    case = x.case
    subject = x.array if case.chance(0.8) else plain(case)
    fits = type(subject) is cukern.Array
    match case.random.randrange(5):
        case 0:
            tensor = DLTensor()
            case.note_call("tensor_from_object", subject)
            code = attempt(
                case, "tensor_from_object", lambda: TENSOR_FROM_OBJECT(TABLE.tensor_from_object)(subject, tensor)
            )
            case.check((code == 0) == fits, f"tensor_from_object returned {code} for a {type(subject).__name__}")
            if fits:
                case.check(tuple(tensor.shape[: tensor.ndim]) == x.values.shape, "tensor_from_object has another shape")
        case 1:
            out = ctypes.c_void_p()
            case.note_call("managed_from_object", subject)
            code = attempt(
                case, "managed_from_object", lambda: MANAGED_FROM_OBJECT(TABLE.managed_from_object)(subject, out)
            )
            case.check((code == 0) == fits, f"managed_from_object returned {code} for a {type(subject).__name__}")
            if fits:
                Reading(new_capsule(out.value, FORM_NAMES[VERSIONED], None)).delete()
        case 2:
            producer = Producer(x.values.copy(), VERSIONED, case.on_gpu)
            managed = make_managed(VERSIONED, producer.counter, producer.memory, **producer.fields)
            out = ctypes.c_void_p()
            function = OBJECT_FROM_MANAGED(TABLE.object_from_managed)
            if attempt(case, "object_from_managed", lambda: function(managed.address, out)) == 0:
                made = ctypes.cast(out, ctypes.py_object).value
                ctypes.pythonapi.Py_DecRef(ctypes.py_object(made))
                assert_same(cukern.asnumpy(made), x.values)
                x.keep(made)
        case 3:
            allocate(x)
        case _:
            out = ctypes.c_void_p(5)
            device = case.pick([(1, 0), x.array.__dlpack_device__(), (METAL, 0), (1, 99), (2, -1)])
            function = CURRENT_STREAM(TABLE.current_stream)
            attempt(case, f"current_stream{device}", lambda: function(*device, out))


def allocate(x: Exchange) -> None:
    """Have the exchange API allocate."""
    case = x.case
    messages: list[bytes] = []
    prototype, out = DLTensor(), ctypes.c_void_p()
    shape = case.pick([(), (3,), (2, 3), (0, 3), (2**40, 2**40), (-1,)])
    device = case.pick([x.array.__dlpack_device__(), (METAL, 0), (1, 0)])
    kept = fill_tensor(prototype, data=None, shape=shape, dtype=x.dtype.name, device=device)
    report = SetError(lambda context, kind, message: messages.append(message))
    case.note(f"allocate {shape} on {device}")
    code = ALLOCATE(TABLE.allocate)(prototype, out, None, report)
    case.check((code == 0) == (not messages) and kept, f"allocate returned {code} with {messages}")
    if code == 0:
        Reading(new_capsule(out.value, FORM_NAMES[VERSIONED], None)).delete()


def ufuncs(x: Exchange) -> None:
    """Call NumPy's universal functions on an Array.

    reduce, accumulate and reduceat are left out: NumPy (2.4.6) never lets go of an operand that refuses them.
    """
    case, a, v = x.case, x.array, x.values
    other: Any = case.pick([1, 2, a, v[...] if x.host_sees and x.memory != "device" else 1])
    model = v if type(other) in (cukern.Array, np.ndarray) else other
    ufunc = case.pick([np.add, np.subtract, np.multiply, np.maximum, np.less, np.equal, np.logical_and, np.bitwise_and])
    calls: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "call": (lambda: ufunc(a, other), lambda: ufunc(v, model)),
        "reflected": (lambda: ufunc(other, a), lambda: ufunc(model, v)),
        "at 1": (lambda: ufunc.at(a, 1, 1), lambda: None),
        "outer": (lambda: ufunc.outer(a, a), lambda: ufunc.outer(v, v)),
        "at": (lambda: ufunc.at(a, 0, 1), lambda: None),
        "dtype": (lambda: ufunc(a, other, dtype="float64"), lambda: ufunc(v, model, dtype="float64")),
        "where": (lambda: ufunc(a, other, where=False), lambda: None),
        "out": (lambda: ufunc(a, other, out=cukern.empty_like(a)), lambda: ufunc(v, model, out=np.empty_like(v))),
        "sum": (lambda: np.sum(a), lambda: np.sum(v)),
        "stack": (lambda: np.stack([a, a]), lambda: np.stack([v, v])),
        "mean": (lambda: np.mean(a), lambda: None),
        "ravel": (lambda: np.ravel(a), lambda: np.ravel(v)),
        "sort": (lambda: np.sort(a), lambda: None),
    }
    name = case.pick(list(calls))
    mine, theirs = calls[name]
    found = attempt(case, f"{ufunc.__name__}, {name}", mine, (*REFUSALS, IndexError, AttributeError))
    if found is None:
        return
    with np.errstate(all="ignore"):
        try:
            wanted = theirs()
        except (TypeError, ValueError) as error:
            case.fail(f"{ufunc.__name__}, {name}: NumPy raises {error}")
    if wanted is not None:
        actual = np.asarray(cukern.asnumpy(found) if type(found) is cukern.Array else found)
        case.check(
            actual.dtype == np.asarray(wanted).dtype and np.allclose(actual, wanted, rtol=1e-3, equal_nan=True),
            f"{ufunc.__name__}, {name}: {actual.dtype} {actual!r:.200}; expected {wanted!r:.200}",
        )


ACTIONS = [capsule, capsule, imported, imported, table_call, flagged, flagged, buffers, buffers, ufuncs, host_operands]


def run(case: Case) -> None:
    """Run one case."""
    before = set(ALIVE)
    exchange = Exchange(case)
    for _ in range(case.random.randint(2, 8)):
        case.pick(ACTIONS)(exchange)
    if type(exchange.array) is cukern.Array:
        assert_same(cukern.asnumpy(exchange.array), exchange.values)
    if case.chance(0.5):
        exchange.array = exchange.base = None
    case.random.shuffle(exchange.kept)
    while exchange.kept:
        exchange.kept.pop()
    del exchange
    if set(ALIVE) - before:
        gc.collect()
        cukern.synchronize()
        left = set(ALIVE) - before
        # A tensor without a deleter goes with its capsule alone.
        left = {address for address in left if ALIVE[address].struct.deleter}
        case.check(not left, f"{len(left)} imported tensors were never deleted")
