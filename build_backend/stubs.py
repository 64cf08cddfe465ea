"""Writes _cukern.pyi beside a built _cukern module, from the table of operations that it holds.

Run as ``python stubs.py path/to/_cukern.abi3.so``.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

HEAD = '''"""Made by build_backend/stubs.py from the table of operations; not edited by hand."""

from typing import Any, TypeAlias, TypedDict, TypeVar, overload

import numpy
from numpy.typing import NDArray
from typing_extensions import Buffer

_Number: TypeAlias = int | float | numpy.number[Any]
_Array: TypeAlias = NDArray[Any] | Buffer
_Out = TypeVar("_Out", bound=_Array)

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

def backend() -> str: ...
def _information() -> dict[str, Any]: ...
def _inject_fault(kind: str, n: int, /) -> None: ...
def _fault_calls(kind: str, /) -> int: ...
def _held() -> tuple[int, int, int]: ...
def _set_staging(copies: bool, slot_bytes: int = 0, small_bytes: int = -1, /) -> None: ...
def _use_backend(name: str, /) -> None: ...
def _block_usage() -> tuple[int, int]: ...
def _release_caches() -> None: ...
'''

FUNCTION = """
@overload
def {name}({parameters}, /, *, out: None = None) -> NDArray[Any]: ...
@overload
def {name}({parameters}, /, *, out: _Out) -> _Out: ...
"""

PARAMETERS = {
    "binary": "a: _Array | _Number, b: _Array | _Number",
    "scalar": "a: _Array | _Number, factor: _Number | NDArray[Any]",
    "product": "a: _Array, b: _Array",
}
PRODUCTS = ["matmul", "matmul_tiled", "matmul_cublas"]


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
    functions = [(row["name"], row["kind"]) for row in module._table] + [(name, "product") for name in PRODUCTS]
    return HEAD + "".join(FUNCTION.format(name=name, parameters=PARAMETERS[kind]) for name, kind in functions)


if __name__ == "__main__":
    built = Path(sys.argv[1])
    built.with_name("_cukern.pyi").write_text(stub_of(load(built)))
