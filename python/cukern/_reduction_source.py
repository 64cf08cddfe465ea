"""The CUDA C++ of kernels that reduce arrays by formulas.

A block has threads along the outputs (`across`) and along the elements that are reduced to one of them (`along`). Each
thread joins what it maps, several loads in flight; the threads along a line join by shared memory. Where outputs are
few, blocks divide the lines into slices, whose partial results a second kernel joins. Who joins what depends on shapes
alone: results are the same from run to run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ._formula_source import Operand, may_load_early, moving_operands, operand_parameters, prelude

IN_FLIGHT = 4  # loads of a thread
_INDEX = re.compile(r"\b_[iIjJ]\b")
_COUNT = re.compile(r"\b_(?:in|out)_ind\b")


@dataclass(frozen=True)
class ReductionFormula:
    """What a reduction computes: elements are mapped, joined, and the joined value is mapped again."""

    name: str
    map: str  # an expression of the inputs
    reducer: str  # a structure `_Reducer`: the type _A, _join(_A, _A), and _identity() if there is one
    post_map: str  # statements that assign the outputs from `a`
    has_identity: bool
    preamble: str = ""
    map_statements: str = ""  # before the map's expression

    @property
    def _text(self) -> str:
        return f"{self.map} {self.map_statements} {self.post_map} {self.preamble}"

    @property
    def uses_index(self) -> bool:
        """Whether the formula asks which element it has."""
        return _INDEX.search(self._text) is not None

    @property
    def needs_whole(self) -> bool:
        """Whether the formula asks for an index, or for the number of elements."""
        return self.uses_index or _COUNT.search(self._text) is not None

    @property
    def may_load_early(self) -> bool:
        """Whether its kernels may load memory before they have waited for the kernel before them."""
        return may_load_early(self._text, self.reducer)


@dataclass(frozen=True)
class Division:
    """How threads divide the work, and how operands lie."""

    across: int  # threads of a block along the outputs
    along: int  # along the elements that are reduced
    in_rows: bool  # whether threads beside each other are along
    kept: int = 0  # dimensions of the outputs
    reduced: int = 0  # dimensions that are reduced
    vector: int = 1  # elements that a thread takes at once
    has_tail: bool = False  # whether elements are left behind the last whole vector
    slices: bool = False  # whether partial results go to a second kernel
    join_across: int = 1  # threads of its blocks along the outputs
    index: str = "long long"  # the type of places

    @property
    def threads(self) -> int:
        return self.across * self.along


HELPERS = r"""
struct _Counts { long long outputs, length, slots, slice, blocks, slices; };

// A partial result; without an identity it begins as nothing.
template <typename R, bool has_identity> struct _Partial;
template <typename R> struct _Partial<R, true> {
    typename R::_A value;
    static __device__ _Partial none() { return {R::_identity()}; }
    __device__ void add(const typename R::_A &element) { value = R::_join(value, element); }
    __device__ void add(const _Partial &other) { value = R::_join(value, other.value); }
};
template <typename R> struct _Partial<R, false> {
    typename R::_A value;
    bool any;
    static __device__ _Partial none() { return {typename R::_A(), false}; }
    __device__ void add(const typename R::_A &element) {
        value = any ? R::_join(value, element) : element;
        any = true;
    }
    __device__ void add(const _Partial &other) {
        if (other.any) add(other.value);
    }
};

__device__ inline long long _least(long long a, long long b) { return b < a ? b : a; }

// Joins what threads along a line have, `apart` from each other in the block; the first one has the result.
template <int threads, int along, int apart, typename P> __device__ void _join_line(P &own, int lane) {
    if (along == 1) return;
    static_assert(threads * sizeof(P) <= 48 * 1024, "what is joined has too many bytes: at most 184 are supported");
    __shared__ __align__(16) unsigned char memory[threads * sizeof(P)];
    P *all = reinterpret_cast<P *>(memory);
    for (int by = along / 2; by > 0; by /= 2) {
        all[threadIdx.x] = own;
        __syncthreads();
        if (lane < by) own.add(all[threadIdx.x + by * apart]);
        __syncthreads();
    }
}
"""


def reducer_of(accumulator: str, join: str, identity: str | None) -> str:
    """Return the structure `_Reducer` of expressions: `join` of `a` and `b`."""
    begin = "" if identity is None else f"    static __device__ _A _identity() {{ return _A({identity}\n); }}\n"
    return (
        f"struct _Reducer {{\n    typedef {accumulator} _A;\n{begin}"
        f"    static __device__ _A _join(_A a, _A b) {{ return _A({join}\n); }}\n}};\n"
    )


def reduction_source(
    formula: ReductionFormula,
    inputs: Sequence[Operand],
    outputs: Sequence[Operand],
    types: dict[str, str],
    division: Division,
) -> str:
    """Return the text of a kernel that reduces, and with `division.slices` of `name_join`, which joins its slices.

    Parameters of both: an address or a number for each operand, the layouts of raw ones, the counts, the layouts of
    operands along kept and reduced dimensions (where there are any), and the memory of partial results.
    """
    operands = (*inputs, *outputs)
    moving = moving_operands(operands)
    parameters, raw = operand_parameters(operands, outputs)
    parameters.append("const _Counts _counts")
    if division.kept > 0:
        parameters.append(f"const _Layout<{division.kept}, {len(moving)}> _kept")
    if division.reduced > 0:
        parameters.append(f"const _Layout<{division.reduced}, {len(moving)}> _reduced")
    if division.slices:
        parameters.append("void *_scratch")
    common = raw + "    const _Index _in_ind{_counts.outputs * _counts.length}, _out_ind{_counts.outputs};\n"
    text = _headers_of(formula.reducer) + prelude(operands, HELPERS + formula.preamble, types, division.index)
    text += formula.reducer
    text += f"typedef _Reducer::_A _type_reduce;\ntypedef _Partial<_Reducer, {_cpp(formula.has_identity)}> _Sum;\n"
    if division.slices:
        text += "__device__ unsigned char _size_of_sum[sizeof(_Sum)];\n"
    begin = f"({', '.join(parameters)}) {{\n    _follow_kernel_before();\n{common}"
    text += f"__global__ void __launch_bounds__({division.threads}) {formula.name}{begin}"
    text += "    const long long _slice = blockIdx.x / _counts.blocks;\n"
    text += "    const long long _block = blockIdx.x - _slice * _counts.blocks;\n"
    text += _lines(division.across, division.along, division.in_rows, "_block")
    text += _slice_loop(formula, inputs, moving, division)
    text += _join(division.across, division.along, division.in_rows)
    if not division.slices:
        return text + _finish(formula, outputs, moving, division) + "}\n"
    text += "    if (_lane == 0 && _i < _counts.outputs)\n"
    text += "        static_cast<_Sum *>(_scratch)[_slice * _counts.outputs + _i] = _sum;\n}\n"
    text += f"__global__ void __launch_bounds__({division.threads}) {formula.name}_join{begin}"
    text += _join_loop(division) + _finish(formula, outputs, moving, division) + "}\n"
    return text


def number_text(value: Any) -> str:
    """Return a number of Python as C++."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, complex):
        return f"complex<double>({number_text(value.real)}, {number_text(value.imag)})"
    if isinstance(value, float) and not math.isfinite(value):
        bits = "7ff8" if math.isnan(value) else "7ff0"
        return f"{'-' if value < 0 else ''}__longlong_as_double(0x{bits}000000000000LL)"
    return repr(value.item() if hasattr(value, "item") else value)


def _headers_of(text: str) -> str:
    """Return headers for the type in which elements are joined; operands bring their own."""
    headers = {"complex<": "cuda/std/complex", "__half": "cuda_fp16.h", "__nv_bfloat16": "cuda_bf16.h"}
    found = "".join(f"#include <{header}>\n" for word, header in headers.items() if word in text)
    return found + ("using cuda::std::complex;\n" if "complex<" in text else "")


def _cpp(value: bool) -> str:
    return "true" if value else "false"


def _lines(across: int, along: int, in_rows: bool, block: str) -> str:
    """Return where a thread is: its lane along a line, and its output `_i`."""
    lane, column = ("%", "/") if in_rows else ("/", "%")
    divisor = along if in_rows else across
    return f"""    const int _lane = threadIdx.x {lane} {divisor}, _column = threadIdx.x {column} {divisor};
    const long long _i = static_cast<long long>({block}) * {across} + _column;
    _Sum _sum = _Sum::none();
"""


def _join(across: int, along: int, in_rows: bool) -> str:
    return f"    _join_line<{across * along}, {along}, {1 if in_rows else across}>(_sum, _lane);\n"


def _slice_loop(
    formula: ReductionFormula, inputs: Sequence[Operand], moving: Sequence[Operand], division: Division
) -> str:
    """Return the loop of a thread over its part of a slice."""
    size, step = division.vector, division.along
    text = "    if (_i < _counts.outputs) {\n"
    text += f"        _Int _begins[{max(1, len(moving))}] = {{}};\n"
    if division.kept > 0:
        text += "        _kept.find(static_cast<_Int>(_i), _begins);\n"
    for operand in inputs:
        if operand in moving:
            name = operand.parameter.name
            text += f"        const {operand.type} *const _q_{name} = _p_{name} + _begins[{moving.index(operand)}];\n"
    text += "        const long long _end = _least((_slice + 1) * _counts.slice, _counts.slots);\n"
    text += "        long long _slot = _slice * _counts.slice + _lane;\n"
    text += f"        for (; _slot + {(IN_FLIGHT - 1) * step} < _end; _slot += {IN_FLIGHT * step}) {{\n"
    text += _loads_and_joins(formula, inputs, moving, division, IN_FLIGHT) + "        }\n"
    text += f"        for (; _slot < _end; _slot += {step}) {{\n"
    text += _loads_and_joins(formula, inputs, moving, division, 1) + "        }\n"
    if division.has_tail:
        first = f"_slice == 0 ? _counts.slots * {size} + _lane : _counts.length"
        text += f"        for (long long _J = {first}; _J < _counts.length; _J += {step}) {{\n"
        text += "            [[maybe_unused]] const long long _j = _J;\n"
        for operand in inputs:
            name = operand.parameter.name
            if operand.layout == "packed":
                text += f"            const {operand.type} {name} = _q_{name}[_J];\n"
            elif operand.layout in ("one", "same"):
                text += f"            const {operand.type} {name} = {'_q' if operand in moving else '_p'}_{name}[0];\n"
        text += _add(formula, "            ") + "        }\n"
    return text + "    }\n"


def _loads_and_joins(
    formula: ReductionFormula, inputs: Sequence[Operand], moving: Sequence[Operand], division: Division, count: int
) -> str:
    """Return loads of `count` slots, and then what is done with their elements."""
    size, step = division.vector, division.along
    text, pad = "", " " * 12
    for operand in inputs:
        if operand in moving:
            kind = f"_Vector<{operand.type}, {size}>" if operand.layout == "packed" and size > 1 else operand.type
            text += f"{pad}{kind} _v_{operand.parameter.name}[{count}];\n"
    text += f"#pragma unroll\n{pad}for (int _u = 0; _u < {count}; ++_u) {{\n"
    text += f"{pad}    _Int _at[{max(1, len(moving))}] = {{}};\n"
    if division.reduced > 0:
        text += f"{pad}    _reduced.find(static_cast<_Int>(_slot + _u * {step}), _at);\n"
    for operand in inputs:
        if operand in moving:
            name, place = operand.parameter.name, f"_q_{operand.parameter.name} + _at[{moving.index(operand)}]"
            if operand.layout == "packed" and size > 1:
                kind = f"_Vector<{operand.type}, {size}>"
                text += f"{pad}    _v_{name}[_u] = *reinterpret_cast<const {kind} *>({place});\n"
            else:
                text += f"{pad}    _v_{name}[_u] = *({place});\n"
    text += f"{pad}}}\n#pragma unroll\n{pad}for (int _u = 0; _u < {count}; ++_u) {{\n"
    text += f"#pragma unroll\n{pad}    for (int _e = 0; _e < {size}; ++_e) {{\n"
    text += f"{pad}        [[maybe_unused]] const long long _J = (_slot + _u * {step}) * {size} + _e, _j = _J;\n"
    for operand in inputs:
        name = operand.parameter.name
        if operand in moving:
            element = ".values[_e]" if operand.layout == "packed" and size > 1 else ""
            text += f"{pad}        const {operand.type} {name} = _v_{name}[_u]{element};\n"
        elif operand.layout == "one":
            text += f"{pad}        const {operand.type} {name} = _p_{name}[0];\n"
    return text + _add(formula, pad + "        ") + f"{pad}    }}\n{pad}}}\n"


def _add(formula: ReductionFormula, pad: str) -> str:
    statements = f"{pad}{formula.map_statements}\n" if formula.map_statements else ""
    return f"{statements}{pad}_sum.add(_type_reduce({formula.map}\n));\n"


def _join_loop(division: Division) -> str:
    """Return what a thread of the second kernel does: it joins its part of an output's slices."""
    across = division.join_across
    along = division.threads // across
    return (
        _lines(across, along, False, "blockIdx.x")
        + f"""    if (_i < _counts.outputs) {{
        const _Sum *const _sums = static_cast<const _Sum *>(_scratch);
        const long long _part = (_counts.slices + {along - 1}) / {along};
        const long long _end = _least((_lane + 1) * _part, _counts.slices);
        for (long long _s = _lane * _part; _s < _end; ++_s) _sum.add(_sums[_s * _counts.outputs + _i]);
    }}
"""
        + _join(across, along, False)
    )


def _finish(
    formula: ReductionFormula, outputs: Sequence[Operand], moving: Sequence[Operand], division: Division
) -> str:
    """Return how the first thread of a line assigns the outputs."""
    text = "    if (_lane == 0 && _i < _counts.outputs) {\n"
    text += f"        _Int _ends[{max(1, len(moving))}] = {{}};\n"
    if division.kept > 0:
        text += "        _kept.find(static_cast<_Int>(_i), _ends);\n"
    for operand in outputs:
        name = operand.parameter.name
        if operand in moving:
            text += f"        {operand.type} &{name} = _p_{name}[_ends[{moving.index(operand)}]];\n"
        elif operand.layout == "one":
            text += f"        {operand.type} &{name} = _p_{name}[0];\n"
    return text + f"        _type_reduce a = _sum.value;\n        {formula.post_map}\n;\n    }}\n"
