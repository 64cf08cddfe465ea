"""torch.ops.cukern in torch's machinery: opcheck, torch.compile, modes, autocast."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interchange_tools import QUIET
from processes import run_quietly
from torch_tools import ALL, ELEMENTWISE, REDUCTIONS, ROWS, has_gradient, operands, operation, usual_type, values

BACKENDS = ["host", pytest.param("cuda", marks=pytest.mark.gpu)]
on_backends = pytest.mark.parametrize("backend", BACKENDS, indirect=True)
pytestmark = [*QUIET, pytest.mark.unsanitized]  # torch compiles; its own memory would be reported


@on_backends
@pytest.mark.parametrize("row", [pytest.param(row, id=row["name"]) for row in ALL])
def test_opcheck(torch: Any, rng: np.random.Generator, row: dict[str, Any], device: str) -> None:
    xs = operands(torch, rng, row, usual_type(torch, row), device, has_gradient(row))
    call = operation(torch, row["name"])
    torch.library.opcheck(call, xs)
    out = torch.empty_like(call(*xs), requires_grad=False)
    packet = getattr(torch.ops.cukern, row["name"])
    with_out = packet.Tensor_out if row["kind"] == "axpy" else packet.out
    torch.library.opcheck(with_out, tuple(x.detach() for x in xs), {"out": out})


BINARY = [row["name"] for row in ROWS if row["kind"] == "binary"]
WITH_NUMBERS = [f"{name}.{overload}" for name in BINARY for overload in ("Scalar", "Scalar_Tensor")]
OTHERS = ["matmul", "where.ScalarOther", "where.ScalarSelf", "scale", "axpy", *WITH_NUMBERS]


def overload_of(torch: Any, name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.cukern, packet), overload or "default")


def operands_of(torch: Any, rng: np.random.Generator, name: str, device: str, dtype: Any = None) -> tuple[Any, ...]:
    """Return operands of an overload that is not of tensors alone; those that may have gradients require them."""
    packet, _, overload = name.partition(".")
    row = next((row for row in ROWS if row["name"] == packet), {"types": "any", "kind": "none"})
    dtype = dtype or usual_type(torch, row)
    x = values(torch, rng, (4, 4), dtype, device, 0.1)
    number = 2.5 if dtype.is_floating_point else 2
    if dtype.is_floating_point:
        x.requires_grad_()
    if overload.startswith("Scalar_Tensor"):
        return (number, x)
    if overload.startswith("ScalarSelf"):
        return (x.detach() > 0.5, number, x)
    if overload.startswith("ScalarOther"):
        return (x.detach() > 0.5, x, number)
    if packet in ("matmul", "axpy"):
        other = x.detach().mT.clone()
        return (x, other) if packet == "matmul" else (number, x, other)
    return (x, number)


@on_backends
@pytest.mark.parametrize("name", OTHERS)
def test_opcheck_of_others(torch: Any, rng: np.random.Generator, name: str, device: str) -> None:
    xs = operands_of(torch, rng, name, device)
    torch.library.opcheck(overload_of(torch, name), xs)
    if name in ("matmul", "scale", "axpy", "add.Scalar", "where.ScalarOther"):
        with_out = overload_of(torch, f"{name}_out" if "." in name else f"{name}.out")
        xs = tuple(x.detach() if isinstance(x, torch.Tensor) else x for x in xs)
        torch.library.opcheck(with_out, xs, {"out": torch.empty_like(overload_of(torch, name)(*xs))})


@on_backends
@pytest.mark.parametrize("name", OTHERS)
def test_compile_of_others(torch: Any, rng: np.random.Generator, name: str, device: str) -> None:
    torch.compiler.reset()
    call = overload_of(torch, name)
    xs = tuple(x.detach() if isinstance(x, torch.Tensor) else x for x in operands_of(torch, rng, name, device))
    compiled = torch.compile(lambda *given: call(*given), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*xs), call(*xs))


INEXACT = [row["name"] for row in ROWS if row["types"] not in ("bits", "integers", "boolean")]


@on_backends
@pytest.mark.parametrize("name", [name for name in OTHERS if name.partition(".")[0] in (*INEXACT, "matmul")])
def test_gradients_of_others(torch: Any, rng: np.random.Generator, name: str, device: str) -> None:
    packet = name.partition(".")[0]
    xs = operands_of(torch, rng, name, device, torch.float64)
    call = overload_of(torch, name)
    if packet in ("matmul", "scale") or has_gradient(next(row for row in ROWS if row["name"] == packet)):
        torch.autograd.gradcheck(call, xs)
    else:
        assert not call(*xs).requires_grad


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

    hidden = os.environ.get("CUKERN_TORCH_HIDE", "")
    if os.environ.get("CUKERN_TORCH_SHIM") == "0":
        assert cukern.torch.shim_missing == "CUKERN_TORCH_SHIM is 0"
    elif hidden.startswith("aoti_"):
        assert cukern.torch.shim_missing == f"torch {torch.__version__} has no {hidden}"
    elif tuple(int(x) for x in torch.__version__.split(".")[:2]) >= (2, 9):
        assert cukern.torch.shim_missing is None


def test_all_rows_are_there(torch: Any) -> None:
    """Each row of the table, with an overload for each form that it has."""
    assert len(ELEMENTWISE) + len(REDUCTIONS) > 70
    plain = {"default", "out"}
    forms = {
        "binary": plain | {"Scalar", "Scalar_out", "Scalar_Tensor", "Scalar_Tensor_out"},
        "choice": plain | {"ScalarOther", "ScalarOther_out", "ScalarSelf", "ScalarSelf_out"},
        "axpy": plain | {"Tensor", "Tensor_out"},
    }
    for row in ROWS:
        overloads = getattr(torch.ops.cukern, row["name"]).overloads()
        assert set(overloads) == forms.get(row["kind"], plain), row["name"]
    assert set(torch.ops.cukern.matmul.overloads()) == plain


def test_a_call_enters_no_python(torch: Any) -> None:
    """By the shim: a call runs torch's own `__call__` of an overload, and no other function of Python."""
    import cukern.torch

    if cukern.torch.shim_missing is not None:
        pytest.skip(f"needs the shim: {cukern.torch.shim_missing}")
    x, out = torch.ones(4), torch.empty(4)
    o = torch.ops.cukern
    calls = [
        lambda f=o.floor.default: f(x),
        lambda f=o.add.out: f(x, x, out=out),
        lambda f=o.isfinite.default: f(x),
        lambda f=o.sum.out: f(x, None, False, out=out[0]),
        lambda f=o.matmul.out: f(x, x, out=out[0]),
    ]
    entered = []

    def see(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            entered.append((Path(frame.f_code.co_filename).name, frame.f_code.co_name))

    for call in calls:
        call()
        entered.clear()
        sys.setprofile(see)
        try:
            call()
        finally:
            sys.setprofile(None)
        assert entered == [(Path(__file__).name, "<lambda>"), ("_ops.py", "__call__")]
