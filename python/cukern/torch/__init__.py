"""cukern's operations inside torch, without linking it: ``import cukern.torch`` makes ``torch.ops.cukern``.

Every row of the table of operations and `matmul` are operations of torch then, for tensors on a GPU and on the host,
with gradients, for ``torch.compile`` and, `matmul`, for autocast. Results have the element types and the memory layout
that torch's own operations give::

    import torch, cukern.torch

    x = torch.rand(3, requires_grad=True)
    torch.ops.cukern.multiply(x, 2.0).sum().backward()

This is the only module of cukern that imports torch.
"""

from ._operations import register_all as _register_all
from ._register import register

__all__ = ["register", "shim_missing"]

#: Why calls go through Python: what of torch's C shim is missing; None where it is used and they don't.
shim_missing = _register_all()
