"""The CUDA C++ of kernels that are made from formulas: parameters are parsed, layouts are described, text is written.

A kernel is written for the element types of its operands and for how they lie in memory, both of which are part of its
text, so that the compiler sees constants. What changes from call to call of one text are addresses, numbers, lengths.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

# C++ types by the names of element types.
CPP = {
    "bool": "bool",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned int",
    "uint64": "unsigned long long",
    "float16": "__half",
    "bfloat16": "__nv_bfloat16",
    "float32": "float",
    "float64": "double",
    "complex64": "complex<float>",
    "complex128": "complex<double>",
}
SIZES = {name: int(re.sub(r"\D", "", name) or 8) // 8 for name in CPP}
ALIASES = {"float": "float64", "int": "int64", "double": "float64", "half": "float16", "complex": "complex128"}
ALIASES |= {"long": "int64", "longlong": "int64", "short": "int16", "byte": "int8", "ubyte": "uint8", "bool_": "bool"}

_PARAMETER = re.compile(r"(?P<words>(?:(?:raw|const|_non_const)\s+)*)(?P<type>\w+)\s+(?P<name>\w+)")
_RESERVED = {"n", "i", "_ind"}
_INDEX = re.compile(r"\bi\b")
_COUNT = re.compile(r"\b(?:i|n|_ind)\b")
_JUMPS = re.compile(r"\b(?:continue|return|break|goto)\b")
# What may stand for a load that the compiler is free to move to before the wait for the kernel before.
_MOVABLE = re.compile(r"ldg|restrict|asm|include|##|\\\n|\?\?/")


@dataclass(frozen=True)
class Parameter:
    """A parameter of a formula: ``raw const T x``."""

    name: str
    type: str  # an element type's name, or one letter that stands for any
    is_raw: bool = False
    cpp: str = ""  # its C++ type, where it is not that of CPP

    @property
    def is_generic(self) -> bool:
        return len(self.type) == 1


def parse_parameters(text: str) -> tuple[Parameter, ...]:
    """Return the parameters that a text lists, separated by commas."""
    parameters = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = _PARAMETER.fullmatch(part)
        if match is None:
            raise ValueError(f"a parameter is written as 'float32 x', 'T x' or 'raw T x', got {part!r}")
        name, kind = match["name"], ALIASES.get(match["type"], match["type"])
        if name in _RESERVED or name.startswith("_"):
            raise ValueError(f"parameter {name!r}: n, i and names that begin with an underscore are reserved")
        if len(kind) > 1 and kind not in CPP:
            raise ValueError(f"parameter {name!r}: {kind!r} is no element type and no single letter")
        parameters.append(Parameter(name, kind, "raw" in match["words"].split()))
    names = [parameter.name for parameter in parameters]
    if len(set(names)) < len(names):
        raise ValueError(f"parameters have the same name: {', '.join(names)}")
    return tuple(parameters)


def element_strides(shape: Sequence[int], strides: Sequence[int], item_size: int) -> tuple[int, ...]:
    """Return strides in elements, 0 where a length is 1."""
    return tuple(0 if n == 1 else stride // item_size for n, stride in zip(shape, strides, strict=True))


def broadcast_strides(shape: Sequence[int], own_shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Return an operand's strides along the dimensions of a shape that it broadcasts to."""
    missing = len(shape) - len(own_shape)
    return (0,) * missing + tuple(0 if n == 1 else stride for n, stride in zip(own_shape, strides, strict=True))


def merge_dimensions(
    shape: Sequence[int], operands: Sequence[Sequence[int]]
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Merge neighbouring dimensions that every operand steps through evenly, and leave out those of length 1."""
    lengths: list[int] = []
    merged: list[list[int]] = [[] for _ in operands]
    for d, n in enumerate(shape):
        if n == 1:
            continue
        here = [strides[d] for strides in operands]
        if lengths and all(own[-1] == n * stride for own, stride in zip(merged, here, strict=True)):
            lengths[-1] *= n
            for own, stride in zip(merged, here, strict=True):
                own[-1] = stride
            continue
        lengths.append(n)
        for own, stride in zip(merged, here, strict=True):
            own.append(stride)
    return tuple(lengths), [tuple(own) for own in merged]


def divisor_numbers(divisor: int) -> tuple[int, int, int]:
    """Return `_Divisor` for 32 bits: n / divisor = (n * factor / 2**32 + n) >> shift for n from 0 to 2**31 - 1."""
    shift = (divisor - 1).bit_length()
    factor = ((1 << shift) - divisor << 32) // divisor + 1
    return divisor, factor - (1 << 32) * (factor >> 31), shift  # as a signed number


@dataclass(frozen=True)
class Operand:
    """An operand as the text knows it."""

    parameter: Parameter
    element: str
    # How the elements lie that the loop takes: "number" (one value), "one" (one element for all), "packed" (side by
    # side, along rows at least), "same" (one element for a row) or "strided"; "raw" for what the formula indexes by
    # itself.
    layout: str
    ndim: int = 0  # of a raw one, at least 1
    is_packed: bool = False  # the same

    @property
    def type(self) -> str:
        return self.parameter.cpp or CPP[self.element]


# What `_Layout` divides by. 32-bit numbers are divided by a multiplication (T. Granlund, P. L. Montgomery: Division by
# invariant integers using multiplication, 1994), with what `divisor_numbers` gives.
DIVISORS = {
    "int": r"""
struct _Divisor {
    int value;
    unsigned factor;
    int shift;
    __device__ int divide(int n) const { return static_cast<int>((__umulhi(n, factor) + n) >> shift); }
};
""",
    "long long": r"""
struct _Divisor {
    long long value;
    __device__ long long divide(long long n) const { return n / value; }
};
""",
}

HELPERS = r"""
template <typename T, int size> struct alignas(sizeof(T) * size) _Vector { T values[size]; };
struct _Index {
    long long _size;
    __device__ long long size() const { return _size; }
};
template <int dims> struct _RawLayout { long long size, shape[dims], strides[dims]; };
template <typename T> struct _Unconst { typedef T type; };
template <typename T> struct _Unconst<const T> { typedef T type; };
template <typename T, int dims, bool packed> struct _Raw {
    typedef typename _Unconst<T>::type _Plain;
    static const int ndim = dims;
    T *_data;
    const _RawLayout<dims> &_layout;
    __device__ T &operator[](long long i) const {
        if (packed) return _data[i];
        long long at = 0;
        for (int d = dims - 1; d > 0; --d) {
            const long long next = i / _layout.shape[d];
            at += (i - next * _layout.shape[d]) * _layout.strides[d];
            i = next;
        }
        return _at(at + i * _layout.strides[0]);
    }
    template <typename I> __device__ T &operator[](const I *index) const {  // of each dimension
        long long at = 0;
        for (int d = 0; d < dims; ++d) at += static_cast<long long>(index[d]) * _layout.strides[d];
        return _at(at);
    }
    __device__ long long size() const { return _layout.size; }
    __device__ const long long *shape() const { return _layout.shape; }
    __device__ const long long *strides() const { return _layout.strides; }  // in bytes
    __device__ T &_at(long long bytes) const {
        return *reinterpret_cast<T *>(reinterpret_cast<char *>(const_cast<_Plain *>(_data)) + bytes);
    }
};
template <int dims, int operands> struct _Layout {
    _Divisor shape[dims];
    _Int strides[operands][dims];
    __device__ void find(_Int rest, _Int (&at)[operands]) const {
        for (int o = 0; o < operands; ++o) at[o] = 0;
        for (int d = dims - 1; d >= 0; --d) {
            const _Int next = d > 0 ? shape[d].divide(rest) : 0;
            for (int o = 0; o < operands; ++o) at[o] += (rest - next * shape[d].value) * strides[o][d];
            rest = next;
        }
    }
};
"""

# As cuda/src/device/follow.cuh. A kernel that begins with it may be launched early.
FOLLOW = """
__device__ inline void _follow_kernel_before() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    if (blockIdx.x + 1280 >= gridDim.x) asm volatile("griddepcontrol.launch_dependents;");
#endif
}
"""


def may_load_early(*texts: str) -> bool:
    """Return whether texts of a user may hold loads that the compiler moves to before a kernel's first statement."""
    return any(_MOVABLE.search(text) for text in texts)


def prelude(operands: Sequence[Operand], preamble: str, types: dict[str, str], index: str) -> str:
    """Return what comes before a kernel: headers for its types, names of its generic types, the user's own text."""
    elements = {operand.element for operand in operands if not operand.parameter.cpp} | set(types.values())
    lines = []
    if elements & {"complex64", "complex128"}:
        lines += ["#include <cuda/std/complex>", "using cuda::std::complex;"]
    if "float16" in elements:
        lines.append("#include <cuda_fp16.h>")
    if "bfloat16" in elements:
        lines.append("#include <cuda_bf16.h>")
    lines.append(f"using _Int = {index};")
    lines += [f"typedef {CPP[element]} {letter};" for letter, element in sorted(types.items())]
    return "\n".join([*lines, DIVISORS[index], HELPERS, FOLLOW, preamble, ""])


@dataclass(frozen=True)
class Formula:
    """What an elementwise kernel computes."""

    name: str
    operation: str
    preamble: str = ""
    loop_prep: str = ""
    after_loop: str = ""

    @property
    def uses_index(self) -> bool:
        """Whether the order in which elements are taken matters."""
        return _INDEX.search(f"{self.operation} {self.preamble}") is not None

    @property
    def needs_whole(self) -> bool:
        """Whether the formula asks for an element's index, or for the number of elements."""
        texts = (self.operation, self.preamble, self.loop_prep, self.after_loop)
        return any(_COUNT.search(text) is not None for text in texts)

    @property
    def may_jump(self) -> bool:
        """Whether the formula may leave the loop's body early."""
        return _JUMPS.search(self.operation) is not None

    @property
    def may_load_early(self) -> bool:
        """Whether its kernel may load memory before it has waited for the kernel before it."""
        return may_load_early(self.operation, self.preamble, self.loop_prep, self.after_loop)


@dataclass(frozen=True)
class Loop:
    """How a kernel goes over the elements."""

    ndim: int = 0  # of the layouts that are passed; 0: all operands are packed, or one element
    vector: int = 1  # elements that lie beside each other, which a thread takes at once
    index: str = "long long"  # the type of places: int where that is enough


def operand_parameters(operands: Sequence[Operand], outputs: Sequence[Operand]) -> tuple[list[str], str]:
    """Return a kernel's parameters for its operands, the layouts of raw ones last, and the declarations of these."""
    parameters, layouts, raw = [], [], ""
    for operand in operands:
        name = operand.parameter.name
        kind = operand.type if operand in outputs else f"const {operand.type}"
        parameters.append(f"const {operand.type} {name}" if operand.layout == "number" else f"{kind} *_p_{name}")
        if operand.layout == "raw":
            layouts.append(f"const _RawLayout<{operand.ndim}> _l_{name}")
            packed = "true" if operand.is_packed else "false"
            raw += f"    const _Raw<{kind}, {operand.ndim}, {packed}> {name}{{_p_{name}, _l_{name}}};\n"
    return [*parameters, *layouts], raw


def elementwise_source(
    formula: Formula, inputs: Sequence[Operand], outputs: Sequence[Operand], types: dict[str, str], loop: Loop
) -> str:
    """Return the text of an elementwise kernel.

    Its parameters: an address or a number for each operand, the layouts of raw ones, the number of elements, and with
    `loop.ndim` > 0 one structure: the lengths, and the strides of each operand that moves. With vectors the last length
    counts them, and the last strides step over one.
    """
    operands = (*inputs, *outputs)
    parameters, raw = operand_parameters(operands, outputs)
    parameters.append("const long long n")
    moving = moving_operands(operands)
    if loop.ndim > 0:
        parameters.append(f"const _Layout<{loop.ndim}, {len(moving)}> _layout")
    text = prelude(operands, formula.preamble, types, loop.index)
    text += f"__global__ void {formula.name}({', '.join(parameters)}) {{\n    _follow_kernel_before();\n{raw}"
    text += "    const _Index _ind{n};\n    const long long _step = static_cast<long long>(gridDim.x) * blockDim.x;\n"
    text += "    const long long _thread = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;\n"
    text += f"    {formula.loop_prep};\n" if formula.loop_prep else ""
    if loop.vector > 1:
        text += _vector_loop(formula, inputs, outputs, loop)
    if loop.vector == 1 or loop.ndim == 0:
        text += _scalar_loop(formula, inputs, outputs, loop)
    text += f"    {formula.after_loop};\n" if formula.after_loop else ""
    return text + "}\n"


def moving_operands(operands: Sequence[Operand]) -> list[Operand]:
    """Return the operands that the loop steps through."""
    return [operand for operand in operands if operand.layout in ("packed", "same", "strided")]


def _find_places(moving: Sequence[Operand], loop: Loop, index: str) -> str:
    if loop.ndim == 0:
        return ""
    return f"        _Int _at[{len(moving)}];\n        _layout.find(static_cast<_Int>({index}), _at);\n"


def _scalar_loop(formula: Formula, inputs: Sequence[Operand], outputs: Sequence[Operand], loop: Loop) -> str:
    """Return a loop over single elements: all of them, or what is left behind the last whole vector."""
    moving = moving_operands((*inputs, *outputs))
    begin = f"n / {loop.vector} * {loop.vector} + _thread" if loop.vector > 1 else "_thread"
    text = f"    for (long long i = {begin}; i < n; i += _step) {{\n" + _find_places(moving, loop, "i")
    for operand in (*inputs, *outputs):
        if operand.layout in ("raw", "number"):
            continue
        name = operand.parameter.name
        kind = f"{operand.type} &" if operand in outputs else f"const {operand.type} "
        place = "0" if operand.layout == "one" else "i" if loop.ndim == 0 else f"_at[{moving.index(operand)}]"
        text += f"        {kind}{name} = _p_{name}[{place}];\n"
    return text + f"        {formula.operation}\n;\n    }}\n"


def _vector_loop(formula: Formula, inputs: Sequence[Operand], outputs: Sequence[Operand], loop: Loop) -> str:
    """Return a loop over whole vectors. What an output held is there for the formula; the compiler drops idle loads."""
    size, operands = loop.vector, (*inputs, *outputs)
    moving = moving_operands(operands)
    places = {o: f"_at[{moving.index(o)}]" if loop.ndim > 0 else f"_v * {size}" for o in moving}
    # Vectors whose places have to be found are taken one by one: four side by side take 38 registers instead of 32, and
    # fewer threads run at once.
    text = "#pragma unroll 1\n" if loop.ndim > 0 else ""
    text += f"    for (long long _v = _thread; _v < n / {size}; _v += _step) {{\n" + _find_places(moving, loop, "_v")
    for operand in moving:
        if operand.layout == "packed":
            name, kind = operand.parameter.name, f"_Vector<{operand.type}, {size}>"
            text += f"        {'' if operand in outputs else 'const '}{kind} _v_{name} = "
            text += f"*reinterpret_cast<const {kind} *>(_p_{name} + {places[operand]});\n"
    text += f"#pragma unroll\n        for (int _e = 0; _e < {size}; ++_e) {{\n"
    text += f"            [[maybe_unused]] const long long i = _v * {size} + _e;\n"
    for operand in operands:
        if operand.layout in ("raw", "number"):
            continue
        name = operand.parameter.name
        kind = f"{operand.type} &" if operand in outputs else f"const {operand.type} "
        value = f"_v_{name}.values[_e]" if operand.layout == "packed" else f"_p_{name}[{places.get(operand, 0)}]"
        text += f"            {kind}{name} = {value};\n"
    text += f"            {formula.operation}\n;\n        }}\n"
    for operand in outputs:
        if operand.layout == "packed":
            name, kind = operand.parameter.name, f"_Vector<{operand.type}, {size}>"
            text += f"        *reinterpret_cast<{kind} *>(_p_{name} + {places[operand]}) = _v_{name};\n"
    return text + "    }\n"
