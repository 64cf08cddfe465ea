"""cukern.Array: creation, views, operators, buffers, interchange with NumPy."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import cukern


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("memory", ["device", "managed", "pinned"])
def test_the_main_job(memory: str) -> None:
    x = np.arange(12.0).reshape(3, 4)
    a = cukern.asarray(x, memory=memory)
    assert (a.shape, a.strides, a.dtype, a.memory) == (x.shape, x.strides, x.dtype, memory)
    assert (a + a.T.T * 2 - 1).tolist() == (x + x * 2 - 1).tolist()
    assert (a @ a.T).tolist() == (x @ x.T).tolist()
    a[::-1, 1] = [1, 2, 3]
    x[::-1, 1] = [1, 2, 3]
    assert a.tolist() == x.tolist()
    assert a.astype("int8").tolist() == x.astype("int8").tolist()
    assert pickle.loads(pickle.dumps(a, 5)).tolist() == x.tolist()


@pytest.mark.usefixtures("backend")
def test_buffers_and_mixes() -> None:
    pinned = cukern.zeros(3, memory="pinned")
    view = np.asarray(pinned)
    pinned += 2
    assert view.tolist() == [2.0] * 3
    with pytest.raises(BufferError, match="asnumpy"):
        memoryview(cukern.zeros(3))
    with pytest.raises(TypeError, match="asarray"):
        cukern.add(cukern.ones(3), np.ones(3))
    with pytest.raises(TypeError, match="one number"):
        cukern.full(2, [], "float64")
