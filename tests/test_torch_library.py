"""torch.ops.cukern in torch's machinery: opcheck, gradients, torch.compile, autocast, and without the C shim."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interchange_tools import QUIET
from processes import run_quietly
from torch_tools import ELEMENTWISE, REDUCTIONS, ROWS, operation, values

TESTS = Path(__file__).resolve().parent
BACKENDS = ["host", pytest.param("cuda", marks=pytest.mark.gpu)]
on_backends = pytest.mark.parametrize("backend", BACKENDS, indirect=True)
pytestmark = [*QUIET, pytest.mark.unsanitized]  # torch compiles; its own memory would be reported

ALL = [row for row in ROWS if row["kind"] != "scalar"]
# Sums over parts of numbers that finite differences cannot tell apart, or that torch has no order of.
NOT_COMPLEX = {"maximum", "minimum", "max", "min"}


def has_gradient(row: dict[str, Any]) -> bool:
    from cukern.torch import _gradients

    return row["name"] in _gradients.ELEMENTWISE or row["name"] in _gradients.REDUCTIONS or row["kind"] == "axpy"


def operands(torch: Any, rng: np.random.Generator, row: dict[str, Any], dtype: Any, device: str, grad: bool) -> Any:
    """Return operands that broadcast; those that may have gradients require them."""
    name, kind = row["name"], row["kind"]
    count = {"binary": 2, "choice": 2, "axpy": 2}.get(kind, 1)
    found = [values(torch, rng, (3, 4), dtype, device, 1.1 if name == "acosh" else 0.1) for _ in range(count)]
    if count == 2:
        found[1] = found[1][0]
    if dtype.is_floating_point or dtype.is_complex:
        found = [x.requires_grad_(grad) for x in found]
    if kind == "choice":
        found.insert(0, torch.tensor([True, False, True, True], device=device))
    if kind == "axpy":
        found.insert(0, torch.scalar_tensor(2.0))
    return tuple(found)


def usual_type(torch: Any, row: dict[str, Any]) -> Any:
    if row["types"] in ("bits", "integers"):
        return torch.int32
    return torch.bool if row["types"] == "boolean" and row["kind"] != "reduction" else torch.float32


@on_backends
@pytest.mark.parametrize("row", [pytest.param(row, id=row["name"]) for row in ALL])
def test_opcheck(torch: Any, rng: np.random.Generator, row: dict[str, Any], device: str) -> None:
    xs = operands(torch, rng, row, usual_type(torch, row), device, has_gradient(row))
    call = operation(torch, row["name"])
    torch.library.opcheck(call, xs)
    if row["kind"] == "reduction":
        return
    out = torch.empty_like(call(*xs), requires_grad=False)
    packet = getattr(torch.ops.cukern, row["name"])
    with_out = packet.Tensor_out if row["kind"] == "axpy" else packet.out
    torch.library.opcheck(with_out, tuple(x.detach() for x in xs), {"out": out})


@on_backends
@pytest.mark.parametrize("name", ["matmul", "add.Scalar", "add.Scalar_Tensor", "where.ScalarOther", "scale", "axpy"])
def test_opcheck_of_others(torch: Any, rng: np.random.Generator, name: str, device: str) -> None:
    x = values(torch, rng, (4, 4), torch.float32, device, 0.1).requires_grad_()
    xs = {
        "matmul": (x, x.detach().mT),
        "add.Scalar": (x, 2.0),
        "add.Scalar_Tensor": (2, x),
        "where.ScalarOther": (x.detach() > 0.5, x, 0.0),
        "scale": (x, 3.0),
        "axpy": (2.0, x, x.detach()),
    }[name]
    packet, _, overload = name.partition(".")
    torch.library.opcheck(getattr(getattr(torch.ops.cukern, packet), overload or "default"), xs)


@on_backends
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("row", [pytest.param(row, id=row["name"]) for row in ALL])
def test_gradients(torch: Any, rng: np.random.Generator, row: dict[str, Any], dtype: str, device: str) -> None:
    of = getattr(torch, dtype)
    if not has_gradient(row):
        x = operands(torch, rng, row, torch.float32, device, True)
        if row["types"] in ("bits", "integers", "boolean"):
            pytest.skip("its operands have none")
        assert not operation(torch, row["name"])(*x).requires_grad
        return
    if of.is_complex and (row["types"] not in ("any", "numeric", "inexact") or row["name"] in NOT_COMPLEX):
        pytest.skip("not defined for complex numbers")
    xs = operands(torch, rng, row, of, device, True)
    call = operation(torch, row["name"])
    torch.autograd.gradcheck(call, xs)
    torch.autograd.gradgradcheck(call, xs)


@on_backends
@pytest.mark.parametrize(
    "shapes", [((3, 4), (4, 2)), ((4,), (4, 2)), ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 4), (4, 2))]
)
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_gradients_of_matmul(torch: Any, rng: np.random.Generator, shapes: Any, dtype: str, device: str) -> None:
    xs = tuple(values(torch, rng, s, getattr(torch, dtype), device, 0.1).requires_grad_() for s in shapes)
    torch.autograd.gradcheck(torch.ops.cukern.matmul, xs)
    torch.autograd.gradgradcheck(torch.ops.cukern.matmul, xs)


@on_backends
@pytest.mark.parametrize("name", ["prod", "var", "std", "max"])
def test_gradients_of_reductions(torch: Any, rng: np.random.Generator, name: str, device: str) -> None:
    own = getattr(torch.ops.cukern, name)
    x = values(torch, rng, (2, 3, 4), torch.float64, device, 0.1).requires_grad_()
    options = {"correction": 0.0} if name in ("var", "std") else {}
    for dim, keepdim in (([0, 2], False), ([1], True), (None, False)):
        torch.autograd.gradcheck(lambda a, d=dim, k=keepdim: own(a, d, k, **options), (x,))


@on_backends
def test_gradients_where_formulas_divide_by_zero(torch: Any, device: str) -> None:
    o = torch.ops.cukern
    cases = [
        (lambda a: o.prod(a), torch.prod, [0.0, 2.0, 3.0]),
        (lambda a: o.prod(a), torch.prod, [0.0, 0.0, 3.0]),
        (lambda a: o.pow(a, 2.0), lambda a: torch.pow(a, 2.0), [0.0, -1.0]),
        (lambda a: o.pow(a, 0.0), lambda a: torch.pow(a, 0.0), [0.0, 2.0]),
        (lambda a: o.pow.Scalar_Tensor(0.0, a), lambda a: torch.pow(0.0, a), [1.0, 2.0]),
        (lambda a: o.abs(a), torch.abs, [0.0, -1.0]),
        (lambda a: o.max(a), torch.amax, [1.0, 1.0, 0.0]),
        (lambda a: o.std(a), torch.std, [1.0, 1.0]),
        (lambda a: o.maximum(a, a.detach()), lambda a: torch.maximum(a, a.detach()), [1.0, 2.0]),
        (lambda a: o.maximum(a, 1.0), lambda a: torch.maximum(a, torch.ones_like(a)), [math.nan, 2.0]),
        (lambda a: o.minimum(a, 1.0), lambda a: torch.minimum(a, torch.ones_like(a)), [math.nan, 2.0, 0.5]),
        (lambda a: o.min(a), torch.amin, [math.nan, 1.0]),
        (lambda a: o.atan2(a, 0.0), lambda a: 0 * a, [0.0, 1.0]),  # NaN at 0 of earlier versions of torch
        (o.acosh, torch.acosh, [-1.0, -2.0, 1.0, 3.0]),
        (lambda a: o.pow.Scalar_Tensor(0.0, a), lambda a: torch.pow(torch.zeros_like(a), a), [-1.0, 2.0]),
        (
            lambda a: o.remainder.Scalar_Tensor(1.0, a),
            lambda a: torch.remainder(torch.ones_like(a), a),
            [0.1, -0.1, math.inf, -math.inf],
        ),
        (lambda a: o.var(a), torch.var, [3.0]),
        (lambda a: o.prod(a, [0], True), lambda a: torch.prod(a, 0, True), [3.0]),
    ]
    for own, theirs, numbers in cases:
        gradients = []
        for function in (own, theirs):
            x = torch.tensor(numbers, device=device, dtype=torch.float64, requires_grad=True)
            function(x).sum().backward()
            gradients.append(x.grad)
        torch.testing.assert_close(*gradients, equal_nan=True)


@on_backends
def test_gradients_of_products_of_nothing(torch: Any, device: str) -> None:
    o = torch.ops.cukern
    for shape, dims in (((), None), ((), [0]), ((0, 3), [1]), ((0, 3), [0]), ((2, 3), [0, 1])):
        x = torch.rand(shape, device=device, dtype=torch.float64, requires_grad=True)
        o.prod(x, dims).sum().backward()
        assert x.grad.shape == x.shape
    x = torch.tensor(3.0, device=device, requires_grad=True)
    o.prod(x).backward()
    assert x.grad == 1


@on_backends
def test_what_is_saved(torch: Any, device: str) -> None:
    """What no gradient needs is not kept: it may be large, or changed afterwards."""
    o = torch.ops.cukern
    x = torch.ones(4, 4, device=device, requires_grad=True)
    y = torch.full((4, 4), 2.0, device=device)
    cases = [
        (lambda: o.add(x, y), 0),
        (lambda: o.sum(x), 0),
        (lambda: o.mean(x), 0),
        (lambda: o.multiply(x, y), 16),
        (lambda: o.divide(x, y), 16),
        (lambda: o.remainder(x, y), 0),
        (lambda: o.matmul(x, y), 16),
        (lambda: o.tanh(x), 16),
        (lambda: o.where(y > 0, x, y), 16),
    ]
    for call, wanted in cases:
        saved: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, s=saved: (s.append(t.numel()), t)[1], lambda t: t):
            call()
        assert sum(saved) == wanted
    total = o.sum(x)
    total += 1
    total.backward()
    assert torch.equal(x.grad, torch.ones_like(x))


@on_backends
def test_gradients_of_mixed_types(torch: Any, device: str) -> None:
    x = torch.ones(2, 3, dtype=torch.float16, device=device, requires_grad=True)
    y = torch.ones(3, dtype=torch.float64, device=device, requires_grad=True)
    torch.ops.cukern.multiply(x, y).sum().backward()
    assert (x.grad.dtype, x.grad.shape, y.grad.dtype, y.grad.tolist()) == (
        torch.float16,
        (2, 3),
        torch.float64,
        [2.0] * 3,
    )


@on_backends
@pytest.mark.parametrize("row", [pytest.param(row, id=row["name"]) for row in ALL])
def test_compile(torch: Any, rng: np.random.Generator, row: dict[str, Any], device: str) -> None:
    torch.compiler.reset()
    call = operation(torch, row["name"])
    xs = operands(torch, rng, row, usual_type(torch, row), device, False)
    compiled = torch.compile(lambda *tensors: call(*tensors), fullgraph=True, backend="aot_eager", dynamic=True)
    assert torch.equal(compiled(*xs), call(*xs))


@on_backends
def test_compile_of_numbers(torch: Any, device: str) -> None:
    o = torch.ops.cukern
    torch.compiler.reset()
    x = torch.ones(3, 4, device=device)
    compiled = torch.compile(
        lambda a: o.multiply(a, a.shape[0] * 0.5), dynamic=True, fullgraph=True, backend="aot_eager"
    )
    for rows in (3, 5):
        assert torch.equal(compiled(x[:1].expand(rows, 4)), torch.full((rows, 4), rows * 0.5, device=device))
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        compiled = torch.compile(lambda a: o.multiply(a, a.sum().item()), fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(x / 8), x / 8 * 1.5)


@on_backends
def test_compile_of_a_layout(torch: Any, device: str) -> None:
    torch.compiler.reset()
    a = torch.rand(4, device=device).bfloat16()[None, :, None].expand(3, 4, 5)
    b = torch.rand(3, 5, 4, device=device).mT
    compiled = torch.compile(lambda a, b: torch.ops.cukern.add(a, b).stride(), fullgraph=True, backend="aot_eager")
    assert compiled(a, b) == torch.ops.cukern.add(a, b).stride()


@on_backends
def test_fake_kernels_refuse_what_kernels_do(torch: Any, device: str) -> None:
    o = torch.ops.cukern
    for where in (device, "meta"):
        x = torch.ones(3, device=where)
        for call in (
            lambda x=x: o.bitwise_and(x, x),
            lambda x=x: o.floor(x + 1j),
            lambda x=x: o.subtract(x > 0, x > 0),
            lambda x=x: o.hypot(x + 1j, x),
            lambda x=x: o.matmul(x, x[:2]),
            lambda x=x: o.mean(x > 0),
        ):
            with pytest.raises(RuntimeError, match=r"cukern::.*(not defined|inner)"):
                call()


@on_backends
@pytest.mark.slow
def test_compile_of_a_model(torch: Any, rng: np.random.Generator, device: str) -> None:
    o = torch.ops.cukern
    w = values(torch, rng, (4, 4), torch.float32, device, 0.1).requires_grad_()
    x = values(torch, rng, (3, 4), torch.float32, device, 0.1)

    # Before 2.6 torch.compile has no `out` of any operation.
    compiles_out = tuple(int(n) for n in torch.__version__.split(".")[:2]) >= (2, 6)

    def loss(w: Any, x: Any) -> Any:
        out = torch.empty_like(x)
        if compiles_out:
            o.multiply.out(x, x, out=out)
        else:
            out = o.multiply(x, x)
        return o.mean(o.square(o.tanh(o.add(o.matmul(x, w), 0.5))) * out)

    torch.compiler.reset()
    gradients = []
    for function in (loss, torch.compile(loss, fullgraph=True)):
        w.grad = None
        function(w, x).backward()
        gradients.append(w.grad)
    torch.testing.assert_close(*gradients)


@on_backends
@pytest.mark.parametrize("grad", [False, True])
def test_modes_see_the_operation(torch: Any, grad: bool, device: str) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Seeing(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    x = torch.ones(3, device=device, requires_grad=grad)
    with Seeing():
        torch.ops.cukern.multiply(x, x)
        torch.ops.cukern.tanh(x)
        torch.ops.cukern.floor(x)
    seen = [name for name in seen if not name.startswith("aten.detach")]  # of what is saved
    assert seen == ["cukern.multiply.default", "cukern.tanh.default", "cukern.floor.default"]


@on_backends
def test_subclasses_see_the_operation(torch: Any, device: str) -> None:
    class Named(torch.Tensor):  # type: ignore[misc]
        @classmethod
        def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return super().__torch_function__(function, types, args, kwargs or {})

    x = torch.ones(3, device=device).as_subclass(Named)
    assert type(torch.ops.cukern.add(x, x)) is Named
    assert torch.equal(torch.ops.cukern.add(x, x), torch.full((3,), 2.0, device=device))


@on_backends
def test_forward_mode_is_refused(torch: Any, device: str) -> None:
    o = torch.ops.cukern
    x = torch.ones(2, device=device)
    for call in (o.exp, lambda a: o.multiply(a, a), lambda a: o.matmul(a, a), lambda a: o.where(a > 0, a, a)):
        with pytest.raises(NotImplementedError, match="forward"):
            torch.func.jvp(call, (x,), (x,))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, x)
        with pytest.raises(NotImplementedError, match="forward"):
            o.exp(dual)
        torch.testing.assert_close(o.exp(x), x.exp())


@on_backends
def test_inference_mode(torch: Any, device: str) -> None:
    x = torch.ones(3, device=device, requires_grad=True)
    with torch.inference_mode():
        assert not torch.ops.cukern.add(x, x).requires_grad
    with torch.no_grad():
        assert not torch.ops.cukern.add(x, x).requires_grad


@on_backends
def test_autocast(torch: Any, device: str) -> None:
    a = torch.rand(3, 4, device=device, requires_grad=True)
    b = torch.rand(4, 2, device=device, dtype=torch.float64)
    with torch.autocast(device, dtype=torch.bfloat16):
        product = torch.ops.cukern.matmul(a, a.mT)
        assert product.dtype == torch.bfloat16
        assert torch.ops.cukern.matmul(b.mT, b).dtype == torch.float64
        assert torch.ops.cukern.add(a, a).dtype == torch.float32
    product.sum().backward()
    assert a.grad.dtype == torch.float32
    assert torch.ops.cukern.matmul(a, a.mT).dtype == torch.float32


def test_nothing_else_imports_torch() -> None:
    assert run_quietly("import sys, cukern; print('torch' in sys.modules)") == "False\n"


def test_the_shim_is_used(torch: Any) -> None:
    import cukern.torch

    if os.environ.get("CUKERN_TORCH_SHIM") == "0":
        assert cukern.torch.shim_missing == "CUKERN_TORCH_SHIM is 0"
    elif tuple(int(x) for x in torch.__version__.split(".")[:2]) >= (2, 9):
        assert cukern.torch.shim_missing is None


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("CUKERN_TORCH_SHIM") == "0", reason="it is this very run")
def test_without_the_shim(torch: Any) -> None:
    files = [str(TESTS / "test_torch_operations.py"), str(TESTS / "test_torch_library.py")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files],
        env={**os.environ, "CUKERN_TORCH_SHIM": "0"},
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout


def test_all_rows_are_there(torch: Any) -> None:
    assert len(ELEMENTWISE) + len(REDUCTIONS) > 70
    for row in ROWS:
        assert getattr(torch.ops.cukern, row["name"]).overloads(), row["name"]
