"""Tensors of torch that are more than their memory, and where their memory is."""

from __future__ import annotations

import gc
import types
import weakref
from typing import Any

import numpy as np
import pytest
from interchange_tools import GPU_LIBRARIES, HOST_LIBRARIES, QUIET, VALUES, Library, bring, pointer_of
from processes import run_quietly

import cukern

pytestmark = [pytest.mark.usefixtures("backend"), *QUIET]
on_gpu = pytest.mark.parametrize("backend", [pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True)


@pytest.fixture
def torch() -> Any:
    return bring("torch")


def fake(torch: Any) -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(3)


def dense_negative(torch: Any) -> Any:
    return torch.ones(3, dtype=torch.complex64).conj().imag.as_strided((3,), (1,))


REFUSED: dict[str, tuple[Any, str]] = {
    "requires_grad": (lambda torch: torch.ones(3, requires_grad=True), r"x\.detach\(\).*torch\.no_grad\(\)"),
    "parameter": (lambda torch: torch.nn.Parameter(torch.ones(3)), r"x\.detach\(\)"),
    "conjugate": (lambda torch: torch.ones(3, dtype=torch.complex64).conj(), r"x\.resolve_conj\(\)"),
    "negative": (lambda torch: torch.ones(3, dtype=torch.complex64).conj().imag, r"x\.resolve_neg\(\)"),
    "negative, dense": (dense_negative, r"x\.resolve_neg\(\)"),
    "fake": (fake, "fake"),
    "meta": (lambda torch: torch.ones(3, device="meta"), "fake or lazy"),
    "sparse": (lambda torch: torch.ones(3).to_sparse(), "sparse"),
}


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("value", ["[1, 2, 3].reverse", "tensor.detach", "lambda: True"])
def test_what_is_set_on_one_tensor_says_nothing_of_others(value: str) -> None:
    script = f"""
        import torch, cukern
        tensor = torch.arange(8.0)[::2]
        tensor.is_neg = {value}
        tensor.is_conj = {value}
        for x in (tensor, torch.arange(8.0)[1::2], torch.ones(2, dtype=torch.complex64)):
            assert torch.equal(cukern.add(x, 1), x + 1)
        print("right")
    """
    assert run_quietly(script, CUKERN_BACKEND="host").strip() == "right"


@pytest.mark.parametrize("how", ["operand", "second", "out", "asarray"])
@pytest.mark.parametrize("name", REFUSED)
def test_refused_tensors(torch: Any, name: str, how: str) -> None:
    make, advice = REFUSED[name]
    tensor = make(torch)
    ones = np.ones(3, np.float32)
    calls = {
        "operand": lambda: cukern.add(tensor, 1),
        "second": lambda: cukern.add(ones, tensor),
        "out": lambda: cukern.add(ones, 1, out=tensor),
        "asarray": lambda: cukern.asarray(tensor),
    }
    with pytest.raises(TypeError, match=advice):
        calls[how]()


@pytest.mark.parametrize("name", REFUSED)
def test_from_dlpack_refuses_them_too(torch: Any, name: str) -> None:
    with pytest.raises((TypeError, BufferError, ValueError, RuntimeError)):  # most are torch's own
        cukern.from_dlpack(REFUSED[name][0](torch))


def test_nothing_is_left_on_a_tensor(torch: Any) -> None:
    one, other = torch.ones(3), torch.zeros(3)
    for _ in range(3):
        cukern.add(one, 1, out=other)
    assert weakref.getweakrefcount(one) == weakref.getweakrefcount(other) == 0
    torch.utils.swap_tensors(one, other)  # refused where there are any
    assert one.tolist() == [2, 2, 2]


def test_tensors_with_gradients_where_none_are_recorded(torch: Any) -> None:
    tensor = torch.ones(3, requires_grad=True)
    with torch.no_grad():
        assert cukern.add(tensor, 1).tolist() == [2, 2, 2]
        assert cukern.add(tensor, 1, out=tensor) is tensor
    result = cukern.add(tensor.detach(), 1)
    assert (result.tolist(), result.requires_grad) == ([3, 3, 3], False)
    with pytest.raises(TypeError, match="requires gradients"):
        cukern.add(tensor, 1)


def test_resolved_tensors_are_taken(torch: Any) -> None:
    tensor = torch.tensor([1 + 2j, 3 - 4j])
    assert cukern.asarray(tensor.conj().resolve_conj()).tolist() == [1 - 2j, 3 + 4j]
    assert cukern.add(tensor.conj().imag.resolve_neg(), 1).tolist() == [-1, 5]
    assert cukern.add(tensor.real, 1).tolist() == [2, 4]  # strided, and neither bit


def test_subclasses_of_tensors(torch: Any) -> None:
    kind = types.new_class("Mine", (torch.Tensor,))
    tensor = torch.ones(3).as_subclass(kind)
    result = cukern.add(tensor, 1)
    assert isinstance(result, torch.Tensor)
    assert result.tolist() == [2, 2, 2]
    assert cukern.add(1, tensor, out=tensor) is tensor
    assert tensor.tolist() == [2, 2, 2]


# --- on the GPU ---


GPU_REFUSED: dict[str, tuple[Any, str]] = {
    "requires_grad": (lambda torch: torch.ones(3, device="cuda", requires_grad=True), r"x\.detach\(\)"),
    "conjugate": (lambda torch: torch.ones(3, dtype=torch.complex64, device="cuda").conj(), r"x\.resolve_conj\(\)"),
    "negative": (lambda torch: torch.ones(3, dtype=torch.complex64, device="cuda").conj().imag, r"resolve_neg\(\)"),
    "sparse": (lambda torch: torch.ones(3, device="cuda").to_sparse(), "sparse"),
}


@on_gpu
@pytest.mark.parametrize("name", GPU_REFUSED)
def test_refused_tensors_on_the_gpu(torch: Any, name: str) -> None:
    make, advice = GPU_REFUSED[name]
    tensor = make(torch)
    ones = torch.ones(3, device="cuda")
    for call in (
        lambda: cukern.add(tensor, 1),
        lambda: cukern.add(ones, 1, out=tensor),
        lambda: cukern.asarray(tensor),
    ):
        with pytest.raises(TypeError, match=advice):
            call()
    with pytest.raises((TypeError, BufferError, ValueError, RuntimeError)):
        cukern.from_dlpack(tensor)


@on_gpu
def test_a_tensor_that_nothing_of_ours_has_used_is_given_back_at_once(torch: Any) -> None:
    used, unused = torch.ones(1000, device="cuda"), torch.ones(1000, device="cuda")
    cukern.from_dlpack(used).fill(2)  # warm
    cukern.synchronize()
    torch.cuda._sleep(1 << 28)  # some tenths of a second
    lent = torch.ones(1000, device="cuda")
    arrays = [cukern.from_dlpack(tensor) for tensor in (used, unused, lent)]
    arrays[0].fill(3)
    arrays[2].__dlpack__(stream=1)  # whoever takes it may use it without a word
    alive = [weakref.ref(tensor) for tensor in (used, unused, lent)]
    arrays.clear()
    del used, unused, lent
    assert [ref() is not None for ref in alive] == [True, False, True]
    torch.cuda.synchronize()
    cukern.from_dlpack(torch.ones(1, device="cuda"))  # a call releases what has come to its end
    cukern.empty(1)
    gc.collect()
    assert [ref() is not None for ref in alive] == [False] * 3


@on_gpu
def test_pinned_tensors(torch: Any) -> None:
    tensor = torch.arange(12.0).pin_memory()
    result = cukern.add(tensor, tensor)
    assert isinstance(result, torch.Tensor)
    assert result.device.type == "cpu"
    assert result.tolist() == [2 * n for n in range(12)]  # the host may look at once
    assert cukern.add(tensor, 1, out=tensor) is tensor
    assert tensor.tolist() == [n + 1 for n in range(12)]
    for own in (cukern.from_dlpack(tensor), cukern.from_dlpack(tensor, copy=False)):
        assert (own.memory, pointer_of(own), own.base is tensor) == ("pinned", tensor.data_ptr(), True)
        assert own.tolist() == tensor.tolist()
    own.fill(5)
    cukern.synchronize()
    assert tensor.tolist() == [5] * 12
    tensor.copy_(torch.arange(12.0))
    assert own.tolist() == list(range(12))


@on_gpu
def test_copies_of_pinned_tensors_are_made_when_the_call_returns(torch: Any) -> None:
    tensor = torch.zeros(1 << 24).pin_memory()
    for n, copy in enumerate(
        (
            cukern.asarray,
            lambda x: cukern.asarray(x, copy=True),
            lambda x: cukern.from_dlpack(x, copy=True),
            cukern.copy,
        )
    ):
        tensor.fill_(n)
        own = copy(tensor)
        tensor.fill_(99)
        assert own.memory == "device"
        assert bool((torch.from_dlpack(own) == n).all())


@on_gpu
def test_operands_on_the_cpu_and_on_the_gpu_do_not_mix(torch: Any) -> None:
    host, device = torch.ones(3), torch.ones(3, device="cuda")
    for call in (
        lambda: cukern.add(host, device),
        lambda: cukern.add(device, host),
        lambda: cukern.add(device, device, out=host),
        lambda: cukern.add(device, np.ones(3, np.float32)),
    ):
        with pytest.raises(TypeError, match=r"host memory .*cukern\.asarray"):
            call()
    assert cukern.add(device, np.float32(1)).tolist() == [2, 2, 2]


def check_mix(library: Library, memory: str, mixed_memory: str) -> None:
    x = library.make(VALUES)
    values = library.read(x)
    own = cukern.asarray(values, memory=memory)
    result = cukern.add(x, own)
    assert isinstance(result, library.result)
    np.testing.assert_array_equal(cukern.asnumpy(cukern.asarray(result)), values + values)
    mixed = cukern.add(own, x)
    assert (type(mixed), mixed.memory) == (cukern.Array, mixed_memory)
    np.testing.assert_array_equal(cukern.asnumpy(mixed), values + values)
    assert cukern.add(x, x, out=own) is own
    np.testing.assert_array_equal(cukern.asnumpy(own), values + values)


@pytest.mark.parametrize("memory", ["managed", "pinned"])
@pytest.mark.parametrize("name", HOST_LIBRARIES)
def test_arrays_that_both_sides_reach_go_with_the_host(name: str, memory: str) -> None:
    check_mix(HOST_LIBRARIES[name](), memory, memory)


@on_gpu
@pytest.mark.parametrize("memory", ["managed", "pinned"])
@pytest.mark.parametrize("name", GPU_LIBRARIES)
def test_arrays_that_both_sides_reach_go_with_both(name: str, memory: str) -> None:
    check_mix(GPU_LIBRARIES[name](), memory, "device")


@on_gpu
def test_a_tensor_over_managed_memory(torch: Any) -> None:
    own = cukern.ones((2, 3), "float32", memory="managed")
    on_device = torch.as_tensor(own, device="cuda")  # by __cuda_array_interface__
    assert (on_device.is_cuda, on_device.data_ptr()) == (True, pointer_of(own))
    on_host = torch.as_tensor(np.asarray(own))
    assert (on_host.is_cuda, on_host.data_ptr()) == (False, pointer_of(own))
    on_device.fill_(4)
    torch.cuda.synchronize()
    assert on_host.tolist() == [[4] * 3] * 2
