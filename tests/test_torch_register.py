"""cukern.torch.register: a user's kernel as an operation of torch."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from interchange_tools import QUIET

import cukern

pytestmark = [*QUIET, pytest.mark.unsanitized]

SOURCE = r"""
template <typename T> __global__ void saxpy(T a, const T *x, const T *y, T *out, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = a * x[i] + y[i];
}
template <typename T> __global__ void add_to(T *x, int times, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) x[i] += times;
}
extern "C" __global__ void one(float *x) { x[threadIdx.x] = 1; }
"""
NUMBERS = itertools.count()
GPU = [pytest.param("cuda", marks=pytest.mark.gpu)]


def on_gpu(test: Any) -> Any:
    """Run a test on the CUDA back-end."""
    return pytest.mark.usefixtures("backend")(pytest.mark.parametrize("backend", GPU, indirect=True)(test))


def name(of: str) -> str:
    """Return a name that no other test has defined: definitions last."""
    return f"cukern_tests::{of}{next(NUMBERS)}"


def kernel(which: str) -> Any:
    return cukern.RawKernel(SOURCE, which)


def register(*args: Any, **options: Any) -> Any:
    import cukern.torch

    return cukern.torch.register(*args, **options)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("f(Tensor x) -> Tensor", "no namespace"),
        ("n::f(Tensor x, int[] d) -> Tensor", "d is of type"),
        ("n::f(Tensor x) -> int", "returns a int"),
        ("n::f(Tensor(a!) x) -> Tensor(a!)", "new tensors"),
        ("n::f(int n) -> Tensor", "no tensor"),
        ("n::f(Tensor x) -> ()", "no result"),
    ],
)
def test_schemas_that_are_refused(torch: Any, schema: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        register(kernel("one"), schema)


def test_what_is_no_kernel(torch: Any) -> None:
    with pytest.raises(TypeError, match="of type str"):
        register("one", "cukern_tests::never(Tensor x) -> Tensor")


def test_fake_kernels(torch: Any) -> None:
    plain = register(kernel("saxpy<float>"), name("a") + "(float a, Tensor x, Tensor y) -> Tensor")
    pair = register(
        kernel("saxpy<float>"), name("b") + "(Tensor x) -> (Tensor, Tensor)", fake=lambda x: (x.new_empty(2), x[:1])
    )
    x = torch.empty(3, 4, device="meta").mT
    assert (plain(2.0, x, x).shape, plain(2.0, x, x).stride()) == ((4, 3), (3, 1))
    assert [y.shape for y in pair(x)] == [(2,), (1, 3)]
    with pytest.raises(NotImplementedError, match="CPU"):
        plain(2.0, torch.ones(3), torch.ones(3))


def test_keyword_arguments(torch: Any) -> None:
    """The implementation and what backward gets, with a kernel that is none."""
    from cukern.torch import _register

    schema = torch._C.parse_schema("n::f(Tensor x, *, float alpha=2.0) -> Tensor")
    launched: list[Any] = []
    run = _register._kernel("n::f", schema, lambda *given: launched.append(given), lambda x, *, alpha=2.0: x * 0, True)
    x = torch.ones(3)
    assert run(x, alpha=3.0).tolist() == [0.0] * 3
    assert run(x).tolist() == [0.0] * 3
    assert [(given[1], given[3]) for given in launched] == [(3.0, 3), (2.0, 3)]
    call = register(
        kernel("one"), name("k") + "(Tensor x, *, float alpha=2.0) -> Tensor", backward=lambda ctx, g: g * ctx.values[0]
    )
    y = torch.ones(3, device="meta", requires_grad=True)
    assert call(y, alpha=3.0).requires_grad


@on_gpu
def test_a_result(torch: Any) -> None:
    call = register(
        kernel("saxpy<float>"),
        name("saxpy") + "(float a, Tensor x, Tensor y) -> Tensor",
        backward=lambda ctx, g: (None, g * ctx.values[0], g),
        size_argument=True,
    )
    x, y = torch.rand(30, 40, device="cuda"), torch.rand(40, 30, device="cuda").mT
    torch.testing.assert_close(call(2.0, x, y), 2 * x + y)
    torch.library.opcheck(call, (2.0, x.clone().requires_grad_(), y))
    z = x.clone().requires_grad_()
    call(3.0, z, y).sum().backward()
    assert torch.equal(z.grad, torch.full_like(z, 3))
    compiled = torch.compile(lambda a, b: call(2.0, a, b) * 2, fullgraph=True)
    torch.testing.assert_close(compiled(x, y), (2 * x + y) * 2)
    with pytest.raises((RuntimeError, TypeError), match="float"):
        call(2.0, x.double(), y.double())


@on_gpu
def test_what_is_written_to(torch: Any) -> None:
    call = register(kernel("add_to<float>"), name("add_to") + "(Tensor(a!) x, int times=2) -> ()", size_argument=True)
    x = torch.zeros(100, device="cuda")
    call(x)
    call(x, 3)
    call(x, times=1)
    assert torch.equal(x, torch.full_like(x, 6))
    torch.library.opcheck(call, (x, 1))
    with pytest.raises(RuntimeError, match="contiguous"):
        call(x[::2], 1)


@on_gpu
def test_a_grid_of_its_own_on_a_stream_and_in_a_graph(torch: Any) -> None:
    call = register(kernel("one")[1, 64], name("one") + "(Tensor(a!) x) -> ()")
    x = torch.zeros(64, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(torch.cuda.Stream()):
        call(x)
        torch.cuda.current_stream().synchronize()
        assert x.sum() == 64
    with torch.cuda.graph(graph):
        call(x)
    x.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert x.sum() == 64
