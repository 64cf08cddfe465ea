"""torch.ops.cukern: results, element types and memory layout as torch's own operations have them."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import numpy as np
import pytest
from conftest import SMALL
from interchange_tools import QUIET
from torch_tools import (
    ELEMENTWISE,
    REDUCTIONS,
    TYPES,
    in_random_layout,
    operation,
    random_shapes,
    torch_function,
    values,
)

pytestmark = [pytest.mark.usefixtures("backend"), *QUIET]

ROWS = [pytest.param(row, id=row["name"]) for row in ELEMENTWISE]
EXACT = {"positive", "negative", "abs", "maximum", "minimum", "where", "copysign", "floor", "ceil", "trunc", "round"}
# torch has no bool for these, or gives it another type than the table, which NumPy's follows.
NOT_OF_BOOL = {"square", "reciprocal", "pow", "floor_divide", "remainder", "sign", "round", "conj", "positive"}


def _types_of(torch: Any) -> Any:
    from cukern.torch import _types

    return _types


def operands(torch: Any, rng: np.random.Generator, row: dict[str, Any], device: str) -> list[Any]:
    types = ["complex64", "complex128"] if row["name"] == "imag" else TYPES[row["types"]]
    types = [t for t in types if t != "bool" or row["name"] not in NOT_OF_BOOL]
    count = {"unary": 1, "binary": 2, "choice": 3}[row["kind"]]
    least = 1.1 if row["name"] == "acosh" else 0.1
    found = []
    for i, shape in enumerate(random_shapes(rng, count)):
        dtype = torch.bool if row["kind"] == "choice" and i == 0 else getattr(torch, types[rng.integers(len(types))])
        found.append(in_random_layout(torch, rng, values(torch, rng, shape, dtype, device, least)))
    if row["kind"] == "choice" and torch.promote_types(found[1].dtype, found[2].dtype) != found[1].dtype:
        found[1] = found[1].to(torch.promote_types(found[1].dtype, found[2].dtype))  # torch.where promotes since 2.?
        found[2] = found[2].to(found[1].dtype)
    return found


def assert_close(torch: Any, name: str, got: Any, wanted: Any, exact: Any) -> None:
    """Compare with torch's result: of floats by the exact one, which both may miss by 4 units."""
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    if not got.dtype.is_floating_point and not got.dtype.is_complex:
        assert torch.equal(got, wanted)
        return
    error = (got.to(exact.dtype) - exact).abs()
    # One unit is eps * |x| at most; complex parts are bounded by the modulus, by twice as much.
    units = 1 if name in EXACT else 8 if got.dtype.is_complex else 4.5
    bound = units * torch.finfo(got.dtype).eps * exact.abs() + torch.finfo(got.dtype).tiny
    assert bool(((error <= bound) | (got == exact) | (got.isnan() & exact.isnan())).all()), name


def exactly(torch: Any, name: str, xs: list[Any]) -> Any:
    """Return torch's result in double precision."""
    double = torch.complex128 if any(x.is_complex() for x in xs) else torch.float64
    return torch_function(torch, name)(*(x if i == 0 and name == "where" else x.to(double) for i, x in enumerate(xs)))


@pytest.mark.parametrize("row", ROWS)
def test_elementwise_as_torch(torch: Any, rng: np.random.Generator, row: dict[str, Any], device: str) -> None:
    name = row["name"]
    compared = 0
    for _ in range(4 if SMALL else 24):
        xs = operands(torch, rng, row, device)
        try:
            wanted = torch_function(torch, name)(*xs)
        except (RuntimeError, TypeError):
            continue  # not torch's, as hypot of bfloat16 and float16
        got = operation(torch, name)(*xs)
        inexact = got.dtype.is_floating_point or got.dtype.is_complex
        # Not that of torch's same operation, which is a view at times, or composed of others.
        assert got.stride() == _types_of(torch).like_result(xs, got.dtype).stride()
        assert_close(torch, name, got, wanted, exactly(torch, name, xs) if inexact else wanted)
        out = torch.empty_like(got)
        assert getattr(torch.ops.cukern, name).out(*xs, out=out) is None
        assert bool(((out == got) | (out.isnan() & got.isnan())).all())
        compared += 1
    assert compared >= (1 if SMALL else 8)


@pytest.mark.parametrize("name", ["add", "divide", "less", "pow"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint8", "complex64"])
@pytest.mark.parametrize("shape", [(5,), ()], ids=str)
def test_numbers_as_operands(torch: Any, name: str, dtype: str, shape: tuple[int, ...], device: str) -> None:
    function, own = torch_function(torch, name), getattr(torch.ops.cukern, name)
    numbers: list[Any] = [2, 2.5, True]
    if dtype != "float16":  # beside a complex number its result is of a type that cukern does not have
        numbers.append(2 + 1j)
    for number in numbers:
        x = torch.full(shape, 3, dtype=getattr(torch, dtype), device=device)
        if name == "less" and (x.is_complex() or isinstance(number, complex)):
            continue
        wanted = function(x, number)
        got = own(x, number)
        assert got.dtype == wanted.dtype
        torch.testing.assert_close(got, wanted)
        out = torch.empty_like(got)
        own.Scalar_out(x, number, out=out)
        assert torch.equal(out, got)
        # torch has a number before a tensor for pow alone.
        promoted = torch.full(shape, number, dtype=torch.result_type(x, number), device=device)
        before = torch.pow(number, x) if name == "pow" else x > number if name == "less" else function(promoted, x)
        torch.testing.assert_close(own.Scalar_Tensor(number, x), before)


def test_factors(torch: Any, device: str) -> None:
    x, y = torch.arange(4.0, device=device), torch.ones(4, device=device)
    assert torch.equal(torch.ops.cukern.scale(x, 3), 3 * x)
    assert torch.equal(torch.ops.cukern.axpy(2, x, y), 2 * x + y)
    out = torch.empty_like(x)
    torch.ops.cukern.axpy.out(2.0, x, y, out=out)
    assert torch.equal(out, 2 * x + y)
    assert torch.equal(torch.ops.cukern.where(x > 1, x, 0), torch.where(x > 1, x, 0))
    assert torch.equal(torch.ops.cukern.where(x > 1, 0.5, x), torch.where(x > 1, 0.5, x))
    with pytest.raises(RuntimeError, match="number"):
        torch.ops.cukern.axpy.Tensor(y, x, y)


def test_numbers_beside_a_gpu(torch: Any, device: str) -> None:
    x = torch.ones(3, device=device)
    assert torch.ops.cukern.add(x, torch.tensor(2.0, dtype=torch.float64)).dtype == torch.float32
    assert torch.ops.cukern.add(torch.tensor(2), x).device == x.device


@pytest.mark.parametrize("name", ["floor", "sin", "sum"])
def test_default_type(torch: Any, name: str, device: str) -> None:
    x = torch.arange(3, device=device)
    before = torch.get_default_dtype()
    try:
        for dtype in (torch.float64, torch.float32):
            torch.set_default_dtype(dtype)
            assert operation(torch, name)(x).dtype == torch_function(torch, name)(x).dtype
    finally:
        torch.set_default_dtype(before)


REFUSED = {
    "shapes": (lambda t, d: t.ops.cukern.add(t.ones(3, device=d), t.ones(4, device=d)), r"\(?4\)?,? .*|broadcast"),
    "type": (lambda t, d: t.ops.cukern.bitwise_and(t.ones(3, device=d), t.ones(3, device=d)), "bitwise_and.*float32"),
    "complex": (lambda t, d: t.ops.cukern.floor(t.ones(3, dtype=t.complex64, device=d)), "floor.*complex64"),
    "out's shape": (lambda t, d: t.ops.cukern.add.out(*[t.ones(3, device=d)] * 2, out=t.empty(4, device=d)), "shape"),
    "out's type": (
        lambda t, d: t.ops.cukern.add.out(*[t.ones(3, device=d)] * 2, out=t.empty(3, dtype=t.int32, device=d)),
        "cannot take",
    ),
    "expanded out": (
        lambda t, d: t.ops.cukern.add.out(*[t.ones(3, device=d)] * 2, out=t.empty(1, device=d).expand(3)),
        "memory|overlap|itself",
    ),
    "overlap": (lambda t, d: overlapping(t, d), "overlap"),
    "unsigned": (
        lambda t, d: t.ops.cukern.add(t.ones(3, dtype=t.uint16, device=d), t.ones(3, dtype=t.int32, device=d)),
        "(?i)promot",
    ),
    "inner dimensions": (lambda t, d: t.ops.cukern.matmul(t.ones(2, 3, device=d), t.ones(2, 3, device=d)), "inner"),
    "no dimensions": (lambda t, d: t.ops.cukern.matmul(t.ones((), device=d), t.ones(2, device=d)), "no dimensions"),
    "product into a view": (
        lambda t, d: t.ops.cukern.matmul.out(*[t.ones(2, 2, device=d)] * 2, out=t.empty(2, 2, dtype=t.int32, device=d)),
        "element type",
    ),
    "mean of integers": (lambda t, d: t.ops.cukern.mean(t.arange(3, device=d)), "mean.*int64"),
    "twice": (lambda t, d: t.ops.cukern.sum(t.ones(2, 2, device=d), [0, -2]), "twice"),
}


def overlapping(torch: Any, device: str) -> None:
    x = torch.ones(8, device=device)
    torch.ops.cukern.add.out(x[1:], x[1:], out=x[:-1])


@pytest.mark.parametrize("case", REFUSED)
def test_refused(torch: Any, case: str, device: str) -> None:
    call, message = REFUSED[case]
    with pytest.raises(RuntimeError, match=message):
        call(torch, device)


def test_in_place(torch: Any, device: str) -> None:
    x = torch.arange(4.0, device=device)
    torch.ops.cukern.add.out(x, x, out=x)
    assert x.tolist() == [0, 2, 4, 6]


@pytest.mark.parametrize(
    "shapes",
    [((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 4), (4, 5)), ((2, 1, 3, 4), (5, 4, 2))],
    ids=str,
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "complex64", "int32", "bool"])
def test_matmul(torch: Any, rng: np.random.Generator, shapes: Any, dtype: str, device: str) -> None:
    a, b = (values(torch, rng, shape, getattr(torch, dtype), device, 0.1) for shape in shapes)
    exact = torch.matmul(a.to(torch.complex128), b.to(torch.complex128))
    got = torch.ops.cukern.matmul(a, b)
    assert (got.dtype, got.shape) == (a.dtype, exact.shape)
    if dtype == "bool":
        assert torch.equal(got, exact.real > 0)
    else:
        # k products, each rounded, and k additions in float32 at least, and one rounding.
        eps = torch.finfo(got.dtype).eps if got.is_floating_point() or got.is_complex() else 0
        assert bool(((got.to(torch.complex128) - exact).abs() <= 8 * eps * exact.abs()).all())
    out = torch.empty_like(got)
    torch.ops.cukern.matmul.out(a, b, out=out)
    assert torch.equal(out, got)
    transposed = torch.ops.cukern.matmul(a, b.mT.contiguous().mT) if b.ndim > 1 else got
    torch.testing.assert_close(transposed, got)


@pytest.mark.parametrize("row", [pytest.param(row, id=row["name"]) for row in REDUCTIONS])
def test_reductions_as_torch(torch: Any, rng: np.random.Generator, row: dict[str, Any], device: str) -> None:
    name = row["name"]
    own, function = getattr(torch.ops.cukern, name), torch_function(torch, name)
    for dtype in ("float32", "float64", "int32", "uint8", "bool", "complex64", "bfloat16"):
        of = getattr(torch, dtype)
        if (row["rule"] in ("floating", "variance") and not of.is_floating_point and not of.is_complex) or (
            of.is_complex and name in ("max", "min", "argmax", "argmin")
        ):
            continue
        if dtype == "bool" and name.startswith("arg"):
            continue  # not torch's
        x = values(torch, rng, (3, 4, 5), of, device, 0.5)
        for dim in (0, 1, -1) if row["rule"] == "index" else ([0], [1, -1], [0, 1, 2]):
            for keepdim in (False, True):
                wanted = of_torch(torch, function, name, x, dim, keepdim)
                got = own(x, dim, keepdim)
                assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
                torch.testing.assert_close(got, wanted)
        if name not in ("any", "all", "max", "min", "prod"):
            torch.testing.assert_close(own(x), function(x))
    if row["rule"] == "variance":
        x = values(torch, rng, (3, 4), torch.float64, device, 0.5)
        torch.testing.assert_close(own(x, [1], correction=0), function(x, 1, correction=0))


@pytest.mark.parametrize("name", ["sum", "max", "argmax", "var", "any"])
def test_reductions_into_out(torch: Any, rng: np.random.Generator, name: str, device: str) -> None:
    own = getattr(torch.ops.cukern, name)
    x = values(torch, rng, (3, 4, 5), torch.float32, device, 0.1)
    for dim, keepdim in ((1, False), (2, True), (None, False)):
        dims = dim if name == "argmax" or dim is None else [dim]
        wanted = own.default(x, dims, keepdim)
        wide = torch.empty([2 * n for n in wanted.shape], dtype=wanted.dtype, device=device)
        out = wide[tuple(slice(None, None, 2) for _ in wanted.shape)]
        assert own.out(x, dims, keepdim, out=out) is None
        assert torch.equal(out, wanted)
    bad = [
        (torch.empty(3, 4, device=device), "shape"),
        (torch.empty((), dtype=torch.bool, device=device), "element type"),
        (torch.empty((), device=device, requires_grad=True), "gradient"),
        (x[0, 0, 0], "overlap|shares"),
    ]
    for out, message in bad if name == "sum" else ():
        with pytest.raises(RuntimeError, match=message):
            own.out(x, out=out)
    if name == "sum":
        doubled = torch.empty((), dtype=torch.float64, device=device)
        own.out(x, out=doubled)
        torch.testing.assert_close(doubled, x.sum().double())


def test_dimensions_of_reductions(torch: Any, device: str) -> None:
    o = torch.ops.cukern
    x = torch.rand(3, 4, device=device)
    for grad in (False, True):
        x.requires_grad_(grad)
        torch.testing.assert_close(o.sum(x, []), torch.sum(x))
        torch.testing.assert_close(o.sum(x, [-1, 0]), torch.sum(x))
        for call in (lambda: o.sum(x, [2]), lambda: o.argmax(x, -3), lambda: o.sum(x, list(range(99)))):
            with pytest.raises(IndexError, match="out of range"):
                call()
        for dims in ([0, 0], [0, -2], [1] * 99):
            with pytest.raises(RuntimeError, match="named twice"):
                o.sum(x, dims)
    scalar = torch.tensor(2.0, device=device)
    assert o.sum(scalar, [-1]) == 2
    with pytest.raises(IndexError, match="0 dimensions"):
        o.sum(scalar, [1])
    with pytest.raises(RuntimeError, match="no elements"):
        o.max(x.detach()[:0])


def of_torch(torch: Any, function: Any, name: str, x: Any, dim: Any, keepdim: bool) -> Any:
    """Return torch's reduction; those that take one dimension alone, by one after the other."""
    if name not in ("prod", "any", "all"):
        return function(x, dim, keepdim=keepdim)
    for d in sorted((d % x.ndim for d in dim), reverse=True):
        x = function(x, d, keepdim=keepdim)
    return x.to(torch.bool) if name in ("any", "all") else x


def storage_uses(torch: Any, tensor: Any) -> int:
    count: int = torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)
    return count


def test_results_are_freed(torch: Any, device: str) -> None:
    x = torch.ones(1000, device=device)
    y = torch.ops.cukern.add(x, x)
    for tensor in (x, y):
        assert storage_uses(torch, tensor) == storage_uses(torch, torch.ones(1))
    with pytest.raises(RuntimeError):
        torch.ops.cukern.add(x, torch.ones(7, device=device))
    assert storage_uses(torch, x) == storage_uses(torch, torch.ones(1))


def test_threads(torch: Any, device: str) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for n in range(50):
                x = torch.full((n,), float(number), device=device)
                assert torch.equal(torch.ops.cukern.multiply(x, x), x * x)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_conjugate_bits(torch: Any, device: str) -> None:
    x = torch.tensor([1 + 2j, 3 - 1j], device=device)
    assert torch.equal(torch.ops.cukern.add(x.conj(), x), x.conj() + x)
    assert torch.equal(torch.ops.cukern.negative(x.conj().imag), -(x.conj().imag))


def test_conjugate_bits_of_out(torch: Any, device: str) -> None:
    x = torch.tensor([1 + 2j, 3 - 1j], device=device)
    out = torch.empty(2, dtype=torch.complex64, device=device).conj()
    torch.ops.cukern.add.out(x, x.conj(), out=out)
    assert torch.equal(out.resolve_conj(), x + x.conj())
    torch.ops.cukern.multiply.Scalar_out(out, 2, out=out)
    assert torch.equal(out.resolve_conj(), 2 * (x + x.conj()))
    negative = torch.empty(2, dtype=torch.complex64, device=device).conj().imag
    assert negative.is_neg()
    torch.ops.cukern.negative.out(x.imag, out=negative)
    assert negative.tolist() == [-2.0, 1.0]
    square = torch.empty(1, 1, dtype=torch.complex64, device=device).conj()
    torch.ops.cukern.matmul.out(x[None], x[:, None].conj(), out=square)
    assert square.resolve_conj().tolist() == [[15.0]]


def test_out_and_gradients(torch: Any, device: str) -> None:
    o = torch.ops.cukern
    w, x = torch.ones(3, requires_grad=True, device=device), torch.ones(3, device=device)
    for given in ((w, x, torch.empty(3, device=device)), (x, x, w)):
        with pytest.raises(RuntimeError, match="records no gradient"):
            o.add.out(given[0], given[1], out=given[2])
    with torch.no_grad():
        o.add.out(w, x, out=w)
        assert w.tolist() == [2.0] * 3
        square = torch.empty(1, 1, device=device)
        o.matmul.out(w[None], w[:, None], out=square)
    y = (w * x).sum()
    o.add.out(x, x, out=x)  # which the gradient of w needs as it was
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64"])
def test_wide_unsigned_integers(torch: Any, dtype: str, device: str) -> None:
    x = torch.tensor([1, 2, 3], dtype=getattr(torch, dtype), device=device)
    o = torch.ops.cukern
    for got in (o.add(x, x), o.add(x, 1), o.multiply(x, x), o.maximum(x, x)):
        assert got.dtype == x.dtype
    assert o.add(x, 1).tolist() == [2, 3, 4]
    assert o.divide(x, x).dtype == torch.float32
    assert o.add(x, 0.5).dtype == torch.float32
    assert o.matmul(x, x).item() == 14
    assert o.add(x.to("meta"), x.to("meta")).dtype == x.dtype


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "float16", "bfloat16"])
@pytest.mark.parametrize("number", [-2, 3, 2**31, 2**40, 2.5, 1e9])
def test_numbers_beside_tensors_of_no_dimensions(torch: Any, dtype: str, number: Any, device: str) -> None:
    x = torch.tensor(3, dtype=getattr(torch, dtype), device=device)
    o = torch.ops.cukern
    for name in ("add", "multiply", "divide", "less"):
        if dtype == "float16" and abs(number) > 65504:
            continue  # an operand of float16 cannot hold it: docs/torch.md
        wanted = torch_function(torch, name)(x, number)
        got = getattr(o, name)(x, number)
        assert (got.dtype, got.shape) == (wanted.dtype, ())
        torch.testing.assert_close(got, wanted)
        out = torch.empty_like(got)
        getattr(o, name).Scalar_out(x, number, out=out)
        assert torch.equal(out, got)
    assert o.where(x > 0, x, number).shape == ()
    assert o.where(torch.tensor([True, False], device=device), x, 2).shape == (2,)


def test_out_of_other_integers(torch: Any, device: str) -> None:
    x = torch.tensor([1, 2], device=device)
    for dtype in (torch.uint8, torch.int16, torch.float64):
        out = torch.empty(2, dtype=dtype, device=device)
        torch.ops.cukern.add.out(x, x, out=out)
        assert out.tolist() == [2, 4]


def test_out_of_inference_mode(torch: Any, device: str) -> None:
    with torch.inference_mode():
        out = torch.empty(3, device=device)
        torch.ops.cukern.add.out(out, out, out=out)
    x = torch.ones(3, device=device)
    with pytest.raises(RuntimeError, match=r"(?i)inference"):
        torch.ops.cukern.add.out(x, x, out=out)


def test_numbers_out_of_range(torch: Any, device: str) -> None:
    o = torch.ops.cukern
    x = torch.tensor([1, 2], device=device)
    assert o.add(x, 1e300).tolist() == (x + 1e300).tolist()
    assert o.less(x, 1e300).tolist() == [True, True]
    assert o.add(x > 1, 1e300).dtype == torch.float32
    if tuple(int(n) for n in torch.__version__.split(".")[:2]) >= (2, 11):  # earlier, no overload may take it
        assert o.add(x.float(), 2**63).tolist() == (x.float() + 2**63).tolist()
    with pytest.raises(RuntimeError, match=r"overflow|match any schema"):
        o.add(x, 2**63)


def test_promotion_is_the_same_in_both_places(torch: Any, device: str) -> None:
    """For fake kernels it is written in Python, for kernels in C++."""
    names = [*TYPES["any"], "int16", "uint16", "uint32", "uint64", "complex128"]
    compared = 0
    for a, b in itertools.product(names, repeat=2):
        for shapes in (((2,), (2,)), ((2,), ()), ((), (2,)), ((), ())):
            xs = [torch.ones(s, dtype=getattr(torch, t), device=device) for s, t in zip(shapes, (a, b), strict=True)]
            try:
                wanted = _types_of(torch).result_type(xs)
            except RuntimeError:
                with pytest.raises(RuntimeError, match="promot"):
                    torch.ops.cukern.add(*xs)
                continue
            assert torch.ops.cukern.add(*xs).dtype == wanted, (a, b, shapes)
            if "uint" not in a + b:
                theirs = torch.result_type(*xs)
                assert theirs == wanted or (theirs.is_complex and theirs.itemsize == 4)  # cukern has no such halves
            compared += 1
    assert compared > 700


@pytest.mark.parametrize("backend", [pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True)
def test_tensors_of_the_host_and_the_device_do_not_mix(torch: Any, backend: str) -> None:
    o = torch.ops.cukern
    x, y = torch.ones(3, 3), torch.ones(3, 3, device="cuda")
    for call in (
        lambda: o.add(x, y),
        lambda: o.add(y, x),
        lambda: o.add.out(y, y, out=x),
        lambda: o.where(y > 0, y, x),
        lambda: o.matmul(x, y),
        lambda: o.matmul(y, x),
        lambda: o.matmul.out(y, y, out=x),
        lambda: o.sum.out(y, out=torch.ones(())),
    ):
        with pytest.raises(RuntimeError, match=r"(?i)device|host|cpu"):
            call()
    assert torch.equal(x, torch.ones(3, 3))


@pytest.mark.parametrize("backend", [pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True)
def test_tensors_of_the_host_with_a_gpu(torch: Any, rng: np.random.Generator, backend: str) -> None:
    o = torch.ops.cukern
    for dtype in (torch.float32, torch.int32, torch.bfloat16):
        x, y = (values(torch, rng, (300, 40), dtype, "cpu", 0.1) for _ in range(2))
        scalar = torch.tensor(2.0, dtype=torch.float64)
        for own, wanted in (
            (o.add(x, y), x + y),
            (o.divide(x, y.T.contiguous().T), x / y),
            (o.multiply(x, scalar), x * scalar),
            (o.add(x, 1j), x + 1j),
            (o.where(x > y, x, y), torch.where(x > y, x, y)),
            (o.sum(x, [1]), x.sum(1)),
            (o.argmax(x, 0), x.argmax(0)),
            (o.matmul(x, y.T), x @ y.T),
        ):
            assert (own.dtype, own.device, own.shape) == (wanted.dtype, wanted.device, wanted.shape)
            torch.testing.assert_close(own, wanted)


def test_results_are_torchs_own_memory(torch: Any, device: str) -> None:
    x = torch.rand(3, 4, device=device)
    o = torch.ops.cukern
    for result in (o.floor(x), o.add(x, x), o.less(x, x), o.sum(x), o.sum(x, [1]), o.matmul(x, x.T), o.add(x, 1j)):
        assert result.untyped_storage().resizable()


@pytest.mark.provokes_cuda_error
def test_out_of_memory(torch: Any, device: str) -> None:
    x = torch.ones(1, device=device).expand(1 << 45)
    error = torch.cuda.OutOfMemoryError if device == "cuda" else RuntimeError
    for call in (torch.ops.cukern.floor, lambda a: torch.ops.cukern.add(a, a)):
        with pytest.raises(error):
            call(x)
    assert torch.equal(torch.ops.cukern.floor(x[:3]), torch.ones(3, device=device))
