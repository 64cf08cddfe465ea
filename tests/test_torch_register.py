"""cukern.torch.register: a user's kernel as an operation of torch."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from interchange_tools import QUIET
from processes import run_quietly

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
template <typename T, typename U> __global__ void fill(T *x, U value, bool twice) {
    x[threadIdx.x] = twice ? 2 * (T)value : (T)value;
}
template <typename T> __global__ void split(const T *x, T *low, T *high, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) { low[i] = x[i] - 1; high[i] = x[i] + 1; }
}
extern "C" __global__ void one(float *x) { x[threadIdx.x] = 1; }
extern "C" __global__ void untyped(float *x, int n, float a, long long *count, double b) {
    x[threadIdx.x] = n + a + b;
    *count = n;
}
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
    with pytest.raises((RuntimeError, TypeError, ValueError), match=r"device|host"):
        call(2.0, x, y.cpu())


@on_gpu
def test_a_result_of_another_shape_and_a_context(torch: Any) -> None:
    """`fake=` says what the results are, and `setup_context=` what backward is given."""

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.factor, ctx.shape = inputs[0], inputs[1].shape

    call = register(
        kernel("saxpy<float>")[1, 32],
        name("first") + "(float a, Tensor x, Tensor y) -> Tensor",
        fake=lambda a, x, y: x.new_empty(8),
        backward=lambda ctx, g: (None, torch.nn.functional.pad(g * ctx.factor, (0, ctx.shape[0] - 8)), None),
        setup_context=keep,
        size_argument=True,
    )
    x, y = torch.rand(20, device="cuda", requires_grad=True), torch.rand(20, device="cuda")
    found = call(2.0, x, y)
    assert found.shape == (8,)
    torch.testing.assert_close(found, (2 * x + y)[:8])
    found.sum().backward()
    assert x.grad.tolist() == [2.0] * 8 + [0.0] * 12
    compiled = torch.compile(lambda a, b: call(3.0, a, b), fullgraph=True)
    torch.testing.assert_close(compiled(x.detach(), y), (3 * x.detach() + y)[:8])


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


@on_gpu
def test_several_results(torch: Any) -> None:
    call = register(kernel("split<double>"), name("split") + "(Tensor x) -> (Tensor, Tensor)", size_argument=True)
    for shape in ((3, 5), (0, 4), ()):
        x = torch.rand(shape, device="cuda", dtype=torch.float64)
        low, high = call(x)
        assert torch.equal(low, x - 1)
        assert torch.equal(high, x + 1)
    torch.library.opcheck(call, (x,))


@on_gpu
@pytest.mark.parametrize(
    ("types", "schema", "good", "bad"),
    [
        ("float, int", "int value", [-5, 2**31 - 1], [2**31, -(2**31) - 1]),
        ("float, unsigned char", "int value", [0, 255], [-1, 256]),
        ("float, char", "int value", [5, 120], [256, -129]),
        ("float, float", "float value", [0.5, -3.0], [1e300]),
        ("float, float", "int value", [3, -4], []),
        ("double, double", "float value", [1e300], []),
        ("float, bool", "bool value", [True, False], []),
        ("float, bool", "int value", [1, 0], [2, -1]),
    ],
)
def test_numbers(torch: Any, types: str, schema: str, good: list[Any], bad: list[Any]) -> None:
    call = register(kernel(f"fill<{types}>")[1, 8], name("fill") + f"(Tensor(a!) x, {schema}, bool twice=False) -> ()")
    x = torch.zeros(8, device="cuda", dtype=torch.float64 if types.startswith("double") else torch.float32)
    for value in good:
        call(x, value)
        assert torch.equal(x, torch.full_like(x, value))
        call(x, value, True)
        assert torch.equal(x, 2 * torch.full_like(x, value))
    before = x.clone()
    for value in bad:
        with pytest.raises((RuntimeError, OverflowError), match="range"):
            call(x, value)
    assert torch.equal(x, before)


@on_gpu
@pytest.mark.parametrize(
    ("which", "schema"),
    [
        ("fill<float, int>", "float value, bool twice"),
        ("fill<float, float>", "Tensor value, bool twice"),
        ("fill<float, float>", "float value"),
        ("fill<int, float>", "float value, bool twice"),
        ("untyped", "Tensor n, float a, Tensor count, float b"),
    ],
)
def test_what_does_not_fit_the_kernel(torch: Any, which: str, schema: str) -> None:
    call = register(kernel(which)[1, 8], name("never") + f"(Tensor(a!) x, {schema}) -> ()")
    x = torch.zeros(8, device="cuda")
    values = {"Tensor": x.clone(), "float": 1.5, "int": 1, "bool": True}
    before = x.clone()
    with pytest.raises((RuntimeError, TypeError)):
        call(x, *(values[part.split()[0]] for part in schema.split(", ")))
    torch.cuda.synchronize()
    assert torch.equal(x, before)


@on_gpu
def test_without_types(torch: Any) -> None:
    call = register(
        kernel("untyped")[1, 8], name("u") + "(Tensor(a!) x, int n, float a, Tensor(b!) count, float b) -> ()"
    )
    x = torch.zeros(8, device="cuda")
    count = torch.zeros(1, device="cuda", dtype=torch.int64)
    call(x, 3, 0.25, count, 0.5)
    assert torch.equal(x, torch.full_like(x, 3.75))
    assert count.item() == 3


@on_gpu
def test_a_kernel_that_does_not_compile(torch: Any) -> None:
    call = register(
        cukern.RawKernel('extern "C" __global__ void f(float *x) { nothing; }', "f"), name("f") + "(Tensor(a!) x) -> ()"
    )
    for _ in range(2):
        with pytest.raises((RuntimeError, cukern.CompileError), match="nothing"):
            call(torch.zeros(4, device="cuda"))


@on_gpu
def test_threads(torch: Any) -> None:
    from concurrent.futures import ThreadPoolExecutor

    call = register(kernel("split<float>"), name("threads") + "(Tensor x) -> (Tensor, Tensor)", size_argument=True)
    xs = [torch.full((1000,), float(i), device="cuda") for i in range(8)]
    torch.cuda.synchronize()

    def work(x: Any) -> bool:
        with torch.cuda.stream(torch.cuda.Stream()):
            found = [call(x)[1] for _ in range(50)]
            torch.cuda.current_stream().synchronize()
            return all(torch.equal(y, x + 1) for y in found)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, xs))


@on_gpu
def test_results_are_freed(torch: Any) -> None:
    call = register(kernel("split<float>"), name("freed") + "(Tensor x) -> (Tensor, Tensor)", size_argument=True)
    x = torch.rand(1000, 2, device="cuda")
    before = torch.cuda.memory_allocated()
    for _ in range(20):
        call(x)
        call(x.mT)  # a copy of it is made
        with pytest.raises((RuntimeError, TypeError)):
            call(x.double())
    assert torch.cuda.memory_allocated() == before


@on_gpu
def test_gradients_and_writing(torch: Any) -> None:
    call = register(kernel("add_to<float>"), name("version") + "(Tensor(a!) x, int times) -> ()", size_argument=True)
    x = torch.zeros(10, device="cuda")
    version = x._version
    call(x, 1)
    assert x._version > version
    w = torch.ones(10, device="cuda", requires_grad=True)
    y = w * x
    call(x, 1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    with pytest.raises(RuntimeError, match="gradient"):
        call(w, 1)


def test_a_registration_that_fails_leaves_nothing(torch: Any) -> None:
    full = name("fails")
    with pytest.raises((RuntimeError, ValueError)):  # torch has no gradients of what is written to
        register(kernel("one"), full + "(Tensor x, Tensor(a!) y) -> ()", backward=lambda ctx, g: g)
    assert "CUDA" not in torch._C._dispatch_dump(full)


def test_tensors_by_keyword_alone(torch: Any) -> None:
    call = register(kernel("one"), name("keyword") + "(float s, *, Tensor x) -> Tensor")
    assert call(1.0, x=torch.empty(3, 4, device="meta")).shape == (3, 4)


@on_gpu
def test_pinned_and_empty_tensors(torch: Any) -> None:
    call = register(
        kernel("saxpy<float>"), name("pinned") + "(float a, Tensor x, Tensor y) -> Tensor", size_argument=True
    )
    x, y = torch.rand(100, device="cuda"), torch.rand(100).pin_memory()
    torch.testing.assert_close(call(2.0, x, y).cpu(), 2 * x.cpu() + y)
    with pytest.raises((RuntimeError, TypeError), match="pageable"):
        call(2.0, x, torch.rand(100))
    write = register(kernel("add_to<float>"), name("empty") + "(Tensor(a!) x, int times) -> ()", size_argument=True)
    for shape in ((3, 0), (0, 3), (0,)):
        write(torch.empty(shape, device="cuda"), 1)


def test_more_than_there_are_functions_for(torch: Any) -> None:
    """The shim calls 256 kernels at most; those beyond are called by Python."""
    script = """
import torch, cukern, cukern.torch
kernel = cukern.RawKernel('extern "C" __global__ void f(float *x) {}', "f")
if cukern.torch.shim_missing is None:
    library = torch.library.Library("many", "DEF")
    found = []
    for i in range(300):
        library.define(f"f{i}(Tensor x) -> ()")
        found.append(cukern._cukern._register_torch_raw_kernel("many", f"f{i}", kernel, "w", 0, False))
    assert found == [True] * 256 + [False] * 44, found
    assert cukern._cukern._register_torch_raw_kernel("many", "g", kernel, "w", 40, False) is False
print("done")
"""
    assert run_quietly(script).endswith("done\n")
