"""cukern: the short way from a Python array to a CUDA kernel.

Operations take arrays of NumPy, torch, CuPy, JAX, Numba and cukern's own, run on the GPU where there is one and
on the CPU where there is none, and return arrays of the kind that they are given::

    import numpy, cukern

    a = numpy.random.rand(2048, 2048).astype(numpy.float32)
    cukern.add(a, a)                         # from the host and back
    b = cukern.asarray(a)                    # on the device
    cukern.matmul(b, b.T) + 1

``python -m cukern`` tells which back-end is in use, and why.
"""

import os as _os
import typing as _typing
from importlib import import_module as _import_module

from . import _cukern
from ._cukern import *  # noqa: F403
from ._namespace import __array_namespace_info__ as __array_namespace_info__
from ._namespace import e, finfo, iinfo, inf, isdtype, nan, newaxis, pi

if _typing.TYPE_CHECKING:
    from ._allclose import allclose
    from ._contractions import einsum, tensordot
    from ._elementwise_kernel import ElementwiseKernel
    from ._fuse import fuse
    from ._pinned import empty_pinned, pinned_allocator, zeros_pinned
    from ._progress import progress
    from ._reduction_kernel import ReductionKernel

# Imported when they are first used: most programs need none of them, and they take as long as all else.
_LATER = {
    "ElementwiseKernel": "_elementwise_kernel",
    "ReductionKernel": "_reduction_kernel",
    "allclose": "_allclose",
    "einsum": "_contractions",
    "empty_pinned": "_pinned",
    "fuse": "_fuse",
    "pinned_allocator": "_pinned",
    "progress": "_progress",
    "tensordot": "_contractions",
    "zeros_pinned": "_pinned",
}

__array_api_version__ = "2024.12"

# What the extension has without a leading underscore is public: types, errors, functions, the table's rows.
__all__ = [
    "ElementwiseKernel",
    "ReductionKernel",
    "allclose",
    "e",
    "einsum",
    "empty_pinned",
    "finfo",
    "fuse",
    "get_include",
    "iinfo",
    "inf",
    "isdtype",
    "library_path",
    "nan",
    "newaxis",
    "pi",
    "pinned_allocator",
    "progress",
    "tensordot",
    "zeros_pinned",
    *(name for name in sorted(vars(_cukern)) if not name.startswith("_")),
]

__version__ = _cukern.__version__


def __getattr__(name: str) -> _typing.Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(_import_module(f".{_LATER[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})


def get_include() -> str:
    """Return the folder to give a C compiler with ``-I``, so that it finds ``cukern/cukern.h``.

    Returns
    -------
    str

    Examples
    --------
    >>> import cukern, os
    >>> os.path.exists(os.path.join(cukern.get_include(), "cukern", "cukern.h"))
    True
    """
    package = _os.path.dirname(__file__)
    installed = _os.path.join(package, "include")
    if _os.path.isdir(installed):
        return installed
    return _os.path.join(_os.path.dirname(_os.path.dirname(package)), "cuda", "include")  # an editable install


def library_path() -> str:
    """Return the path of the shared object that exports the C ABI of ``cukern/cukern.h``.

    Returns
    -------
    str

    Examples
    --------
    >>> import ctypes, cukern
    >>> library = ctypes.CDLL(cukern.library_path())
    >>> library.cukern_status_string.restype = ctypes.c_char_p
    >>> library.cukern_status_string(0)
    b'success'
    """
    return str(_cukern.__file__)
