"""Compiles the sources of `RawKernel` and `RawModule` by NVRTC, and keeps what it has compiled on disk.

What is compiled depends on the source, the options, the files that it includes, the target and NVRTC's version, so an
entry of the cache is named by a hash of all of them. It is written to a file of its own and renamed, so that processes
don't see each other's halves; it begins with a hash of what follows, so that a damaged one is compiled anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from . import _cukern

FORMAT = 1  # of an entry
FILE_NAME = "kernel.cu"  # the source's name in messages
DEFAULT_LIMIT = 256 << 20  # bytes of the cache
CONTEXT = 2  # lines of the source around one that a message is about
MOST_SHOWN = 4 << 20  # bytes of an included file whose lines a message shows

_PTX = re.compile(r"\s*(//[^\n]*\n\s*)*\.version\b")
# Wherever the word stands, so that neither comments nor other spellings of # hide one.
_INCLUDE = re.compile(r"\binclude(?:_next)?\b(?:\s|/\*.*?\*/)*(?:\"([^\"\n]+)\"|<([^>\n]+)>)?", re.DOTALL)
_HASH = re.compile(r"#|%:|\?\?=")
_ASKS_FOR_FILES = re.compile(r"__has_include|__has_embed|\bembed\b")
_FILE_OPTION = re.compile(r"--?(?:include\b|pre-include|use-pch|create-pch|pch|options-file|optf)")
_ENTRY = re.compile(r"[0-9a-f]{64}\.bin|cukern-\w+\.part")
# What a message is about: a line of a file as NVRTC names it, or one of PTX as the driver does.
_MESSAGE = re.compile(r"^(?:(\S[^\n]*?)\((\d+)\): |ptxas [^\n]*\bline (\d+)\b)", re.MULTILINE)
# nvcc's that NVRTC does not have and that say nothing of device code here: it always optimises, there is no host code,
# and the target is the device at hand.
_IGNORED = re.compile(
    r"-O[0-3]|--optimize=[0-3]|-g|--debug|-c|-cubin|--cubin|-ptx|--ptx|--?expt-relaxed-constexpr|--?extended-lambda"
    r"|--?(?:Xcompiler|compiler-options|ccbin|compiler-bindir|Xlinker|linker-options|gencode|generate-code)=.*"
    r"|(?:-arch|--gpu-architecture)=(?:native|all|all-major)"
)
_IGNORED_WITH_NEXT = re.compile(
    r"-O|--optimize|--?(?:Xcompiler|compiler-options|ccbin|compiler-bindir|Xlinker|linker-options|gencode|generate-code)"
)
_JOINED_WITH_NEXT = re.compile(r"--?std|-arch|--gpu-architecture")


def read(
    function: str,
    code: str | bytes | None,
    path: str | os.PathLike[str] | None,
    options: Sequence[str] | None,
    names: Sequence[str] | None,
) -> tuple[str | bytes, tuple[str, ...], tuple[str, ...]]:
    """Return the source or the image of a module, and its options and name expressions as tuples."""
    if (code is None) == (path is None):
        raise TypeError(f"{function}: expected either code= or path=")
    if path is not None:
        code = Path(path).read_bytes()
    if isinstance(code, bytearray | memoryview):
        code = bytes(code)
    if not isinstance(code, str | bytes):
        raise TypeError(
            f"{function}: code must be str (CUDA C++ or PTX) or bytes (an image), got {type(code).__name__}"
        )
    if isinstance(code, str) and _PTX.match(code):
        code = code.encode()
    if isinstance(code, str) and "\0" in code:
        raise ValueError(f"{function}: the source has a null character; pass an image as bytes")
    if len(code) == 0:
        raise ValueError(f"{function}: code is empty")
    return code, _words(function, "options", options), _words(function, "name_expressions", names)


def _words(function: str, name: str, words: Iterable[str] | None) -> tuple[str, ...]:
    found = () if words is None or isinstance(words, str) else tuple(words)
    if isinstance(words, str) or not all(isinstance(word, str) for word in found):
        raise TypeError(f"{function}: {name} must be a sequence of str, got {words!r}")
    if any("\0" in word for word in found):
        raise ValueError(f"{function}: {name} has a null character: {found!r}")
    return found


def build(
    code: str, options: tuple[str, ...], names: tuple[str, ...], major: int, minor: int
) -> tuple[bytes, dict[str, str]]:
    """Return a source's code for a device of this compute capability, and the names in it of name expressions."""
    version, targets, folder = _nvrtc()
    options = nvrtcs(options)
    if not any(re.match(r"-arch\b|--gpu-architecture\b", option) for option in options):
        options = (*options, f"-arch={target_of(10 * major + minor, targets)}")
    if not any(re.match(r"--?std\b", option) for option in options):
        options = (*options, "-std=c++17")
    if folder is not None:
        if (Path(folder) / "cccl").is_dir():  # cuda/std and the like, from CUDA 13 on
            options = (*options, f"-I{folder}/cccl")
        options = (*options, f"-I{folder}")
    path = None  # of the entry; without a home or a current folder, or beside files that cannot be read, there is none
    with contextlib.suppress(OSError, RuntimeError):
        key = key_of(code, options, names, version, folder)
        path = None if key is None else cache_folder() / f"{key}.bin"
    found = None if path is None else load(path)
    if found is not None:
        return found
    image, lowered, log = _cukern._compile(code, FILE_NAME, names, options)
    if image is None:
        raise _compile_error(code, options, log)
    if path is not None:
        store(path, image, lowered)
    return image, lowered


def nvrtcs(options: Sequence[str]) -> tuple[str, ...]:
    """Return options as NVRTC takes them, of nvcc's: a value may be a word of its own, others are left out."""
    found = []
    rest = iter(options)
    for option in rest:
        if _IGNORED_WITH_NEXT.fullmatch(option):
            next(rest, None)
            continue
        joined = f"{option}={next(rest, '')}" if _JOINED_WITH_NEXT.fullmatch(option) else option
        if not _IGNORED.fullmatch(joined):
            found.append(joined)
    return tuple(found)


def target_of(capability: int, targets: list[int]) -> str:
    """Return the option for a device: its own code, or PTX for what is newer than NVRTC."""
    if capability in targets or not targets:
        return f"sm_{capability}"
    older = [target for target in targets if target < capability]
    return f"compute_{max(older)}" if older else f"sm_{capability}"


def _pathfinder() -> Any:
    return importlib.import_module("cuda.pathfinder")


@cache
def _nvrtc() -> tuple[str, list[int], str | None]:
    """Open NVRTC; return what tells it from others, its targets, and the folder of the toolkit's headers."""
    try:
        path = _pathfinder().load_nvidia_dynamic_lib("nvrtc").abs_path
    except (ImportError, RuntimeError, OSError):  # cuda-pathfinder's own error is a RuntimeError
        path = None
    major, minor, opened, targets = _cukern._open_nvrtc(path)
    size = Path(opened).stat().st_size if Path(opened).exists() else 0  # builds of one version differ
    return f"{major}.{minor} {os.path.realpath(opened)} {size}", targets, _headers(opened)


def _headers(library: str) -> str | None:
    """Return the folder that has cuda_fp16.h: the environment's toolkit, cuda-pathfinder's, or that of the library."""
    folders = [Path(os.environ[name]) / "include" for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    with contextlib.suppress(ImportError, AttributeError, RuntimeError, OSError):  # versions before 1.2 find none
        found = _pathfinder().find_nvidia_header_directory("cudart")
        folders += [Path(found)] if found else []
    real = Path(os.path.realpath(library))
    folders += [parent / "include" for parent in real.parents[:4]]
    folders.append(Path("/usr/local/cuda/include"))
    for folder in folders:
        if (folder / "cuda_fp16.h").is_file():
            return str(folder)
    return None


def key_of(
    code: str, options: tuple[str, ...], names: tuple[str, ...], version: str, toolkit: str | None
) -> str | None:
    """Return what names an entry, or None where what a source includes cannot be told from its text."""
    included = included_files(code, options, toolkit)
    if included is None:
        return None
    parts = [FORMAT, code, options, sorted(names), version, included]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def included_files(code: str, options: Iterable[str], toolkit: str | None) -> list[tuple[str, str]] | None:
    """Return all files that a source may include, each with a hash of it: in its folder, and in those of the options.

    Those of the toolkit go by size and time, and are not looked into. None where a name is made by a macro, where
    whether a file is there matters, and where the options name files.
    """
    folders = include_folders(options)
    if folders is None:
        return None
    found: dict[str, str] = {}
    waiting = [(code, Path.cwd())]  # where NVRTC looks first, since the source has no folder of its own
    while waiting:
        text, own_folder = waiting.pop()
        names = _included_names(text)
        if names is None:
            return None
        for path in [folder / name for name in names for folder in (own_folder, Path.cwd(), *folders)]:
            if str(path) in found or not path.is_file():
                continue
            if toolkit is not None and path.is_relative_to(toolkit):
                status = path.stat()
                found[str(path)] = f"{status.st_size} {status.st_mtime_ns}"
                continue
            data = path.read_bytes()
            found[str(path)] = hashlib.sha256(data).hexdigest()
            waiting.append((data.decode(errors="replace"), path.parent))
    return sorted(found.items())


def _included_names(text: str) -> list[str] | None:
    """Return the names of what a text may include, or None where it cannot be told."""
    text = re.sub(r"\\[^\S\n]*\n", "", text)  # lines that go on in the next
    if _ASKS_FOR_FILES.search(text):
        return None
    names = []
    for match in _INCLUDE.finditer(text):
        if name := match[1] or match[2]:
            names.append(name)
        elif _HASH.search(text, text.rfind("\n", 0, match.start()) + 1, match.start()):
            return None
    return names


def include_folders(options: Iterable[str]) -> list[Path] | None:
    """Return the folders to include from, or None where an option names a file."""
    folders: list[Path] = []
    words = iter(options)
    for word in words:
        matched = re.fullmatch(r"(?:-I|--include-path)[= ]*(.*)", word)
        if matched:
            folders.append(Path(matched[1] or next(words, ".")))
        elif _FILE_OPTION.match(word):
            return None
    return folders


def cache_folder() -> Path:
    """Return the folder of the cache: ``CUKERN_CACHE_DIR``, or that of the user's caches."""
    if folder := os.environ.get("CUKERN_CACHE_DIR"):
        return Path(folder)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "cukern"


def load(path: Path) -> tuple[bytes, dict[str, str]] | None:
    """Return an entry of the cache, or None where there is none, or none that is whole."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    digest, rest = data[:32], data[32:]
    if hashlib.sha256(rest).digest() != digest:
        return None
    head, _, image = rest.partition(b"\n")
    with contextlib.suppress(OSError):
        os.utime(path)  # the least recently used go first
    lowered: dict[str, str] = json.loads(head)
    return image, lowered


def store(path: Path, image: bytes, lowered: dict[str, str]) -> None:
    """Write an entry of the cache; a folder that cannot be written to is no error."""
    rest = json.dumps(lowered).encode() + b"\n" + image
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix="cukern-", suffix=".part")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(hashlib.sha256(rest).digest() + rest)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
        _trim(path.parent)
    except OSError:
        return


def _limit() -> int:
    text = os.environ.get("CUKERN_CACHE_SIZE", "")
    return int(text) if text.isdigit() else DEFAULT_LIMIT


def _entries(folder: Path) -> Iterator[tuple[float, int, Path]]:
    for path in folder.iterdir():
        if not _ENTRY.fullmatch(path.name):  # somebody else's
            continue
        try:
            status = path.stat()
        except OSError:  # another process has removed it
            continue
        yield status.st_mtime, status.st_size, path


def _trim(folder: Path) -> None:
    """Remove the least recently used entries beyond the limit."""
    entries = sorted(_entries(folder))
    size = sum(entry[1] for entry in entries)
    for _, bytes_, path in entries[:-1]:  # never the one that has just been written
        if size <= _limit():
            return
        path.unlink(missing_ok=True)
        size -= bytes_


def _compile_error(code: str, options: tuple[str, ...], log: str) -> Exception:
    message = f"the source does not compile with {' '.join(options)}\n{with_source(code, log)}"
    error = _cukern.CompileError(message)
    error.log, error.source, error.options = log, code, options
    return error


def with_source(code: str, log: str) -> str:
    """Return a compiler's log with the numbered lines around each that a message is about.

    They are the source's, or of a file that it includes.
    """
    parts = []
    for part in re.split(r"\n\n+|\n(?=ptxas )", log.strip("\n")):  # one message each
        parts.append(part)
        message = _MESSAGE.search(part)
        if message is not None:
            file, number = message[1], int(message[2] or message[3])
            parts += _lines_around(code if file in (None, FILE_NAME) else _text_of(Path(file)), number)
    return "\n".join(parts)


def with_image(image: bytes, log: bytes) -> str:
    """Return the driver's log of an image that it refuses: of PTX with its lines."""
    text = image.rstrip(b"\0").decode(errors="replace")
    message = log.decode(errors="replace")
    return with_source(text, message) if _PTX.match(text) else message


def _text_of(path: Path) -> str:
    """Return a file's text for a message, or an empty one where it cannot be read."""
    try:
        is_shown = path.is_file() and path.stat().st_size <= MOST_SHOWN
        return path.read_text(errors="replace") if is_shown else ""
    except (OSError, ValueError):
        return ""


def _lines_around(text: str, number: int) -> list[str]:
    """Return numbered lines, the one that is meant marked; none where there is no such line."""
    lines = text.removesuffix("\n").split("\n")  # as the compiler counts them
    if not text or not 1 <= number <= len(lines):
        return []
    width = len(str(len(lines)))
    shown = range(max(1, number - CONTEXT), min(len(lines), number + CONTEXT) + 1)
    return [f"  {'>' if i == number else ' '} {i:{width}} | {lines[i - 1]}" for i in shown]
