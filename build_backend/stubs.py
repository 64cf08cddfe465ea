"""Writes _cukern.pyi beside a built _cukern module: parameters as its docstrings write them, with types added.

Run as ``python stubs.py path/to/_cukern.abi3.so``.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy

HEAD = '''"""Made by build_backend/stubs.py from the built module; not edited by hand."""

import builtins
from collections.abc import Iterator, Sequence
from os import PathLike
from types import EllipsisType
from typing import Any, Protocol, SupportsIndex, TypeAlias, TypedDict, TypeVar, final, overload

import numpy
from numpy.typing import ArrayLike, DTypeLike, NDArray
from typing_extensions import Buffer, CapsuleType, Self

class _SupportsDLPack(Protocol):
    def __dlpack__(self, *, stream: Any = ...) -> Any: ...
    def __dlpack_device__(self) -> tuple[Any, int]: ...

class _SupportsInterface(Protocol):
    @property
    def __cuda_array_interface__(self) -> Any: ...

class _SupportsStream(Protocol):
    def __cuda_stream__(self) -> tuple[int, int]: ...

_bool: TypeAlias = builtins.bool  # `bool` is an element type here
_Number: TypeAlias = int | float | numpy.number[Any]
_Foreign: TypeAlias = _SupportsDLPack | _SupportsInterface
_Array: TypeAlias = Array | NDArray[Any] | _Foreign | Buffer
_Out = TypeVar("_Out", bound=_Array)
_Key: TypeAlias = int | slice | EllipsisType | None
_Index: TypeAlias = _Key | tuple[_Key, ...]
_Shape: TypeAlias = int | Sequence[int]
_DType: TypeAlias = DTypeLike | _BFloat16DType
_Device: TypeAlias = int | Device | None
_Stream: TypeAlias = Stream | _SupportsStream | int | None

class _Row(TypedDict):
    name: str
    kind: str
    types: str
    rule: str
    doc: str

__version__: str
_table: tuple[_Row, ...]

class CudaError(RuntimeError):
    code: int
    name: str
    api: str

class OutOfMemoryError(CudaError, MemoryError): ...
class DeviceLostError(CudaError): ...

class CompileError(RuntimeError):
    log: str
    source: str
    options: tuple[str, ...]

@final
class _BFloat16DType(str):
    @property
    def itemsize(self) -> int: ...
    @property
    def name(self) -> str: ...

bfloat16: _BFloat16DType
{dtypes}
@final
class Device:
    def __init__(self, id: _Device = None) -> None: ...
    @property
    def id(self) -> int: ...
    @property
    def name(self) -> str: ...
    def synchronize(self) -> None: ...
    def __index__(self) -> int: ...
    def __int__(self) -> int: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *args: object) -> None: ...

@final
class Event:
    def __init__(self, timing: _bool = True, device: _Device = None) -> None: ...
    @property
    def done(self) -> _bool: ...
    def record(self, stream: _Stream = None) -> None: ...
    def synchronize(self) -> None: ...
    def __sub__(self, begin: Event, /) -> float: ...

@final
class Stream:
    def __init__(self, non_blocking: _bool = True, priority: int = 0, device: _Device = None) -> None: ...
    @classmethod
    def from_handle(cls, handle: _Stream, device: _Device = None) -> Self: ...
    @property
    def ptr(self) -> int: ...
    @property
    def done(self) -> _bool: ...
    @property
    def device(self) -> Device: ...
    def synchronize(self) -> None: ...
    def record(self, event: Event | None = None) -> Event: ...
    def wait_event(self, event: Event, /) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *args: object) -> None: ...
    def __cuda_stream__(self) -> tuple[int, int]: ...

@final
class Graph:
    def launch(self, stream: _Stream = None) -> None: ...
    def debug_dot(self, path: str | PathLike[str], /) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *args: object) -> _bool | None: ...

@final
class placement:
    def __init__(self, where: str) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *args: object) -> None: ...

@final
class Pointer:
    def __init__(self, address: SupportsIndex, /) -> None: ...
    def __index__(self) -> int: ...
    def __int__(self) -> int: ...

@final
class _Launcher:
    def __call__(self, *args: Any) -> None: ...

_Extent: TypeAlias = SupportsIndex | Sequence[SupportsIndex]

@final
class RawKernel:
    def __init__(
        self,
        code: str | Buffer,
        name: str,
        options: Sequence[str] = (),
        backend: str = "nvrtc",
        *,
        enable_cooperative_groups: _bool = False,
    ) -> None: ...
    def __call__(
        self,
        grid: _Extent,
        block: _Extent,
        args: tuple[Any, ...] | list[Any],
        *,
        shared_mem: int = 0,
        stream: _Stream = None,
        cluster: _Extent | None = None,
        cooperative: _bool | None = None,
        unchecked: _bool = False,
    ) -> None: ...
    def __getitem__(self, key: tuple[Any, ...], /) -> _Launcher: ...
    def over(self, threads: int, *, shared_mem: int = 0, stream: _Stream = None) -> _Launcher: ...
    def compile(self) -> None: ...
    max_dynamic_shared_size_bytes: int
    preferred_shared_memory_carveout: int
    _follows: _bool
    @property
    def attributes(self) -> dict[str, int]: ...
{kernel_attributes}    @property
    def name(self) -> str: ...
    @property
    def code(self) -> str | bytes: ...
    @property
    def options(self) -> tuple[str, ...]: ...

@final
class RawModule:
    def __init__(
        self,
        *,
        code: str | Buffer | None = None,
        path: str | PathLike[str] | None = None,
        options: Sequence[str] = (),
        backend: str = "nvrtc",
        name_expressions: Sequence[str] | None = None,
    ) -> None: ...
    def get_function(self, name: str, /) -> RawKernel: ...
    def get_global(self, name: str, dtype: _DType = "uint8", shape: _Shape | None = None) -> Array: ...
    def compile(self) -> None: ...
    @property
    def code(self) -> str | bytes: ...
    @property
    def options(self) -> tuple[str, ...]: ...
    @property
    def name_expressions(self) -> tuple[str, ...]: ...

@final
class Array:
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> Any: ...
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def itemsize(self) -> int: ...
    @property
    def device(self) -> Device: ...
    @property
    def memory(self) -> str: ...
    @property
    def T(self) -> Array: ...
    @property
    def mT(self) -> Array: ...
    @property
    def base(self) -> Any: ...
    @property
    def flags(self) -> dict[str, _bool]: ...
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...
    def __copy__(self) -> Array: ...
    def __deepcopy__(self, memo: Any, /) -> Array: ...
{methods}    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any: ...
    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Array]: ...
    def __contains__(self, value: Any, /) -> _bool: ...
    def __getitem__(self, key: _Index, /) -> Array: ...
    def __setitem__(self, key: _Index, value: Any, /) -> None: ...
    def __bool__(self) -> _bool: ...
    def __int__(self) -> int: ...
    def __float__(self) -> float: ...
    def __complex__(self) -> complex: ...
    def __index__(self) -> int: ...
    def __round__(self, ndigits: int | None = None, /) -> Any: ...
    def __format__(self, format_spec: str, /) -> str: ...
    def __eq__(self, other: Any, /) -> Any: ...
    def __ne__(self, other: Any, /) -> Any: ...
    def __lt__(self, other: Any, /) -> Any: ...
    def __le__(self, other: Any, /) -> Any: ...
    def __gt__(self, other: Any, /) -> Any: ...
    def __ge__(self, other: Any, /) -> Any: ...
{operators}    def __matmul__(self, other: Any, /) -> Any: ...
    def __rmatmul__(self, other: Any, /) -> Any: ...
    def __imatmul__(self, other: Any, /) -> Self: ...

{functions}'''

OPERATORS = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift"]
OPERATOR = """    def __{name}__(self, other: Any, /) -> Any: ...
    def __r{name}__(self, other: Any, /) -> Any: ...
    def __i{name}__(self, other: Any, /) -> Self: ...
"""
PROPERTY = "    @property\n    def {name}(self) -> int: ...\n"
KERNEL_ATTRIBUTES = ["max_threads_per_block", "shared_size_bytes", "const_size_bytes", "local_size_bytes", "num_regs"]
KERNEL_ATTRIBUTES += ["ptx_version", "binary_version", "cache_mode_ca"]
SIGNS = "".join(f"    def __{name}__(self) -> Any: ...\n" for name in ("neg", "pos", "abs", "invert"))

# What a parameter of this name takes; with a default of None, that too.
TYPES = {
    "M": "int",
    "N": "int",
    "a": "_Array",
    "activation": "str",
    "alpha": "complex",
    "api_version": "str",
    "args": "Any",
    "arrays": "Sequence[Array]",
    "arrays_and_dtypes": "Any",
    "axes": "Sequence[int]",
    "axis": "_Shape",
    "b": "_Array",
    "beta": "complex",
    "bias": "_Array",
    "blocking": "_bool",
    "buffer": "Buffer",
    "bytes": "int | None",
    "c": "_Array",
    "copies": "_bool",
    "copy": "_bool",
    "correction": "float",
    "device": "_Device",
    "dl_device": "tuple[int, int]",
    "dst": "_Array",
    "dtype": "_DType",
    "endpoint": "_bool",
    "file_name": "str",
    "fill_value": "Any",
    "from_": "Any",
    "include_initial": "_bool",
    "index": "Any",
    "k": "int",
    "keepdims": "_bool",
    "kernel": "str",
    "kind": "str",
    "max": "_Array | _Number",
    "max_version": "tuple[int, int]",
    "memory": "str",
    "min": "_Array | _Number",
    "n": "int",
    "name": "str",
    "names": "tuple[str, ...]",
    "num": "int",
    "options": "Sequence[str]",
    "order": "str",
    "out": "Any",
    "path": "str",
    "precision": "str",
    "shape": "_Shape",
    "sizes": "tuple[int, ...]",
    "slot_bytes": "int",
    "small_bytes": "int",
    "source": "str",
    "src": "_Array | ArrayLike",
    "start": "Any",
    "step": "Any",
    "stop": "Any",
    "stream": "_Stream",
    "to": "_DType",
    "unchecked": "_bool",
    "value": "Any",
    "workers": "int",
    "x": "_Array",
}
TAKE_NONE = {"_Device", "_Stream", "Any"}

ANY_ARRAY = {"a": "_Array | ArrayLike"}
OWN_ARRAY = {"a": "Array"}
OR_NUMBER = {"a": "_Array | _Number", "b": "_Array | _Number"}
ALONG_ONE = {"axis": "int"}

# What functions return, and which of their parameters take something else.
FUNCTIONS: dict[str, tuple[str, dict[str, str]]] = {
    "_address": ("int", {"array": "Any"}),
    "_allocate_like": ("Any", {"like": "Any", "dtype": "_DType", "shape": "tuple[int, ...]"}),
    "_argument_key": ("bytes | None", {"args": "tuple[Any, ...]", "inputs": "int | None"}),
    "_block_usage": ("tuple[int, int]", {}),
    "_check_image": ("None", {"image": "Buffer"}),
    "_compile": ("tuple[bytes | None, dict[str, str], str]", {"options": "tuple[str, ...]"}),
    "_compute_type": ("str", {"function": "str", "a": "Any", "b": "Any"}),
    "_convert_like": ("Any", {"array": "Array | NDArray[Any]", "like": "Any"}),
    "_fault_calls": ("int", {}),
    "_held": ("tuple[int, int, int]", {}),
    "_host_layout": (
        "tuple[str, tuple[int, ...], tuple[int, ...], int, _bool] | None",
        {"array": "Any", "function": "str", "name": "str"},
    ),
    "_information": ("dict[str, Any]", {}),
    "_register_torch_kernels": ("str | None", {"names": "dict[str, str]", "have_lists": "_bool"}),
    "_register_torch_raw_kernel": (
        "_bool",
        {
            "library": "str",
            "name": "str",
            "kernel": "object",
            "arguments": "str",
            "num_results": "int",
            "size_argument": "_bool",
        },
    ),
    "_are_plain": ("_bool", {"tensors": "object"}),
    "_inject_fault": ("None", {}),
    "_is_from_pool": ("_bool", {"array": "NDArray[Any]"}),
    "_kernel_signature": ("tuple[str, list[tuple[str, str, _bool, str]]] | None", {}),
    "_open_nvrtc": ("tuple[int, int, str, list[int]]", {"path": "str | None"}),
    "_overlap": ("_bool", {"a": "Any", "b": "Any"}),
    "_pack_arguments": ("bytes", {"args": "tuple[Any, ...]", "asked": "str | None", "code": "str | None"}),
    "_release_caches": ("None", {}),
    "_repeat_call": (
        "tuple[Any, ...] | None",
        {"plans": "dict[bytes, tuple[Any, ...]]", "args": "tuple[Any, ...]", "inputs": "int"},
    ),
    "_restore": ("Array", {"dtype": "str", "shape": "tuple[int, ...]"}),
    "_set_numpy_allocator": ("CapsuleType", {"before": "CapsuleType | None"}),
    "_set_staging": ("None", {}),
    "_set_traced_type": ("None", {"type": "type"}),
    "_use_backend": ("None", {}),
    "_use_numpy_loops": ("None", {"use": "_bool"}),
    "arange": ("Array", {}),
    "asarray": ("Array", ANY_ARRAY),
    "astype": ("Any", {}),
    "backend": ("str", {}),
    "broadcast_to": ("Array", OWN_ARRAY),
    "can_cast": ("_bool", {}),
    "capture": ("Graph", {}),
    "clip": ("Any", OR_NUMBER),
    "concat": ("Array", {"axis": "int | None"}),
    "copy": ("Array", ANY_ARRAY),
    "copyto": ("None", {}),
    "counters": ("dict[str, int]", {}),
    "cumulative_prod": ("Any", ALONG_ONE),
    "cumulative_sum": ("Any", ALONG_ONE),
    "current_stream": ("Stream", {}),
    "device_count": ("int", {}),
    "dot": ("Any", OR_NUMBER),
    "empty": ("Array", {}),
    "empty_cache": ("None", {}),
    "empty_like": ("Array", {}),
    "explain_placement": ("dict[str, Any]", {"function": "Any", "args": "Any", "kwargs": "Any"}),
    "expand_dims": ("Array", {**OWN_ARRAY, "axis": "int | tuple[int, ...]"}),
    "eye": ("Array", {}),
    "from_dlpack": ("Array", {"x": "Any"}),
    "full": ("Array", {}),
    "full_like": ("Array", {}),
    "linspace": ("Array", {}),
    "matrix_transpose": ("Array", OWN_ARRAY),
    "memory_info": ("dict[str, int]", {}),
    "ones": ("Array", {}),
    "ones_like": ("Array", {}),
    "ravel": ("Array", OWN_ARRAY),
    "reshape": ("Array", OWN_ARRAY),
    "result_type": ("Any", {}),
    "set_memory_limit": ("None", {}),
    "set_pinned_limit": ("None", {"bytes": "int | None"}),
    "squeeze": ("Array", OWN_ARRAY),
    "stack": ("Array", ALONG_ONE),
    "synchronize": ("None", {}),
    "transpose": ("Array", OWN_ARRAY),
    "vecdot": ("Any", ALONG_ONE),
    "zeros": ("Array", {}),
    "zeros_like": ("Array", {}),
}
METHODS: dict[str, tuple[str, dict[str, str]]] = {
    "__array__": ("NDArray[Any]", {"dtype": "DTypeLike"}),
    "__array_namespace__": ("Any", {}),
    "__dlpack__": ("CapsuleType", {"stream": "int"}),
    "__dlpack_device__": ("tuple[int, int]", {}),
    "astype": ("Array", {}),
    "copy": ("Array", {}),
    "fill": ("None", {}),
    "get": ("Any", {}),
    "item": ("Any", {}),
    "ravel": ("Array", {}),
    "reshape": ("Array", {"shape": "Any"}),
    "squeeze": ("Array", {}),
    "tolist": ("Any", {}),
    "transpose": ("Array", {"axes": "Any"}),
}

# Of what takes several operands: those that are arrays, and those that may be numbers beside an array.
ARRAYS = {
    "unary": (["a"], []),
    "binary": (["a"], ["b"]),
    "scalar": (["a"], ["factor"]),
    "choice": (["condition", "a"], ["b"]),
    "axpy": (["x"], ["a", "y"]),
    "product": (["a", "b"], []),
}
PRODUCTS = ["matmul", "matmul_tiled", "matmul_cublas"]


def parameters(function: Callable[..., Any], types: dict[str, str]) -> str:
    """Return a function's parameters as it documents and parses them, with types."""
    written = []
    before: inspect.Parameter | None = None
    for parameter in inspect.signature(function).parameters.values():
        if before and before.kind == before.POSITIONAL_ONLY != parameter.kind:
            written.append("/")
        if parameter.kind == parameter.KEYWORD_ONLY and (before is None or before.kind < before.VAR_POSITIONAL):
            written.append("*")
        before = parameter
        if parameter.name == "self":
            written.append("self")
            continue
        text = f"{parameter.name}: {types.get(parameter.name) or TYPES[parameter.name]}"
        if parameter.kind == parameter.VAR_POSITIONAL:
            text = "*" + text
        elif parameter.kind == parameter.VAR_KEYWORD:
            text = "**" + text
        elif parameter.default is None and not text.endswith("None") and text.split(": ")[1] not in TAKE_NONE:
            text += " | None"
        if parameter.default is not parameter.empty:
            text += f" = {parameter.default!r}"
        written.append(text)
    if before and before.kind == before.POSITIONAL_ONLY and before.name != "self":
        written.append("/")
    return ", ".join(written).replace("self, /", "self")


def overloads(function: Callable[..., Any], kind: str) -> str:
    """Return the definitions of an operation: of ndarrays alone, of Arrays alone, of anything, into `out`."""
    arrays, numbers = ARRAYS[kind]
    anything = dict.fromkeys(arrays + numbers, "_Array" if kind == "product" else "_Array | _Number")
    result = []
    for returns in ("NDArray[Any]", "Array"):
        one = dict.fromkeys(arrays, returns) | {
            name: "_Number" if kind == "scalar" or (kind == "axpy" and name == "a") else f"{returns} | _Number"
            for name in numbers
        }
        result.append((one | {"out": "None"}, returns))
    result += [(anything | {"out": "None"}, "Any"), (anything | {"out": "_Out"}, "_Out")]
    return "".join(definition(function, types, returns, "@overload\n") for types, returns in result)


def definition(function: Callable[..., Any], types: dict[str, str], returns: str, before: str = "") -> str:
    """Return a line of the stub. `out` of a type that excludes None has no default."""
    text = parameters(function, types)
    if types.get("out") == "_Out":
        text = text.replace("out: _Out | None = None", "out: _Out")
    return f"{before}def {function.__name__}({text}) -> {returns}: ...\n"


def load(path: Path) -> ModuleType:
    """Import the extension from its file, without the package around it."""
    loader = importlib.machinery.ExtensionFileLoader("_cukern", str(path))
    spec = importlib.util.spec_from_file_location("_cukern", path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def stub_of(module: ModuleType) -> str:
    """Return the stub's text."""
    functions, methods = [], []
    for name, (returns, types) in FUNCTIONS.items():
        functions.append(definition(getattr(module, name), types, returns))
    for name, (returns, types) in METHODS.items():
        methods.append(definition(getattr(module.Array, name), types, returns, "    "))
    copied = module.asnumpy
    functions.append(definition(copied, {"out": "None"}, "NDArray[Any]", "@overload\n"))
    functions.append(definition(copied, {"out": "_Out"}, "_Out", "@overload\n"))
    for row in module._table:
        function = getattr(module, row["name"])
        if row["kind"] == "reduction":
            functions.append(definition(function, OR_NUMBER, "Any"))
            methods.append(definition(getattr(module.Array, row["name"]), {}, "Any", "    "))
        else:
            functions.append(overloads(function, row["kind"]))
    functions += [overloads(getattr(module, name), "product") for name in PRODUCTS]
    dtypes = [name for name, value in vars(module).items() if isinstance(value, numpy.dtype)]
    head = HEAD.replace("{dtypes}", "".join(f"{name}: numpy.dtype[Any]\n" for name in dtypes))
    readable = [name for name in KERNEL_ATTRIBUTES if hasattr(module.RawKernel, name)]
    head = head.replace("{kernel_attributes}", "".join(PROPERTY.format(name=name) for name in readable))
    head = head.replace("{operators}", "".join(OPERATOR.format(name=name) for name in OPERATORS) + SIGNS)
    return head.replace("{methods}", "".join(methods)).replace("{functions}", "".join(functions))


if __name__ == "__main__":
    built = Path(sys.argv[1])
    built.with_name("_cukern.pyi").write_text(stub_of(load(built)))
