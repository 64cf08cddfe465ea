"""Calls of torch's tensors on a GPU that repeat an earlier one's layouts: checked and ordered as the first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from interchange_tools import QUIET, bring

import cukern

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.usefixtures("backend"),
    pytest.mark.parametrize("backend", ["cuda"], indirect=True),
    *QUIET,
]


@pytest.fixture
def torch() -> Any:
    return bring("torch")


@pytest.mark.parametrize("dtype", ["float32", "int64", "bfloat16", "bool"])
def test_tensors_of_torch_in_turn(torch: Any, dtype: str) -> None:
    for shape in [(5,), (1000,), (33, 7), (4, 1, 6), (2, 3, 4, 5)] * 2:
        for begin in (0, 0, 0, 1, 2, 0):
            count = int(np.prod(shape))
            a, b, out = (
                torch.randint(0, 5, (count + 2,), device="cuda").to(getattr(torch, dtype))[begin : begin + count]
                for _ in range(3)
            )
            a, b, out = (x.reshape(shape) for x in (a, b, out))
            want = torch.logical_or(a, b) if dtype == "bool" else a + b
            got = cukern.add(a, b)
            assert type(got) is torch.Tensor
            assert torch.equal(got, want)
            assert cukern.add(a, b, out=out) is out
            assert torch.equal(out, want)
            assert cukern.add(a, b, out=a) is a
            assert torch.equal(a, want)


def test_tensors_are_checked_each_time(torch: Any) -> None:
    memory = torch.ones(64, device="cuda")
    a, out = memory[:16], memory[32:48]
    for _ in range(4):
        cukern.add(a, a, out=out)
        cukern.add(a, a)
    with pytest.raises(TypeError, match="requires gradients"):
        cukern.add(torch.ones(16, device="cuda", requires_grad=True), a)
    with pytest.raises(TypeError, match="requires gradients"):
        cukern.add(a, a, out=torch.ones(16, device="cuda").requires_grad_())
    with torch.no_grad():
        assert float(cukern.add(torch.ones(16, device="cuda", requires_grad=True), a)[3]) == 2
    for begin in (8, 12):
        with pytest.raises(ValueError, match="overlaps"):
            cukern.add(a, memory[32:48], out=memory[begin : begin + 16])
    with pytest.raises(ValueError, match="out has shape"):
        cukern.add(a, a, out=memory[32:47])
    with pytest.raises(TypeError, match="in host memory"):
        cukern.add(a, torch.ones(16))
    negative = torch.ones(16, dtype=torch.complex64, device="cuda").conj().imag.as_strided((16,), (1,))
    with pytest.raises(TypeError, match="negative bit"):
        cukern.add(negative, a)
    assert torch.equal(cukern.add(memory[:32:2], memory[:32:2]), memory[:32:2] * 2)
    with pytest.raises(ValueError, match="overlap each other"):
        cukern.add(a, a, out=torch.ones(1, device="cuda").expand(16))


def test_tensors_on_streams(torch: Any) -> None:
    a = torch.ones(1 << 20, device="cuda")
    for _ in range(3):
        own = torch.cuda.Stream()
        own.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(own):
            torch.cuda._sleep(10_000_000)
            b = a * 3
            total = cukern.add(cukern.add(a, b), b)  # behind what torch's stream has to do
            assert float(total.sum()) == 7 * a.numel()
        ours: Any = cukern.Stream()
        with ours:
            double = cukern.add(a, a)
        torch.cuda.current_stream().wait_stream(torch.cuda.ExternalStream(ours.ptr))
        assert float(double.sum()) == 2 * a.numel()


def test_tensors_are_given_back(torch: Any) -> None:
    a = torch.ones(1 << 18, device="cuda")
    before = 0
    for k in range(60):
        b = cukern.add(a, a)
        cukern.add(a, b, out=b)
        if k == 10:
            before = torch.cuda.memory_allocated()
    assert torch.cuda.memory_allocated() == before
