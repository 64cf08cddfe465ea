"""What a kernel of one's own takes: its mangled name is read, and its arguments are checked, without a GPU."""

from __future__ import annotations

import ctypes
import random
import struct
from collections import Counter

import ml_dtypes
import numpy as np
import pytest
from conftest import SANITIZED, SMALL, use
from kernel_signatures import DTYPES, ELEMENTS, PRELUDE, Kernel, Values, address_of, random_kernel

import cukern
from cukern import _cukern

MANGLED = {
    "_Z1fv": ("f", []),
    "_Z5saxpyIfEvT_PKS0_PS0_i": ("saxpy", ["float", "const float *", "float *", "int"]),
    "_Z1kPKfs1Pdi": ("k", ["const float *", "short", "P", "double", "int"]),
    "_ZN2ns6kernelIfJidEEEvPT_DpPKT0_": ("ns::kernel", ["float *", "const int *", "const double *"]),
    "_Z1gIN2ns2TrEfEvT_IT0_EPKS4_S3_": ("g", ["ns::Tr<float>", "const ns::Tr<float> *", "float"]),
    "_Z1mILi3ELb1EfEvPAT__T1_N2ns1VIS0_XT_EEEPS5_": ("m", ["float[] *", "ns::V<float, 3>", "ns::V<float, 3> *"]),
    "_Z1cIfEvN2ns2TrIT_E4typeENS0_1PEPS5_": ("c", ["ns::Tr<float>::type", "ns::P", "ns::P *"]),
    "_Z1ePA4_fRA3_KfPFvifEPViPVKi": ("e", ["float[] *", "const float[] *", "function *", "int *", "const int *"]),
    "_ZL1kml": ("k", ["unsigned long", "long"]),
    "_ZN12_GLOBAL__N_11hEPKPi": ("_GLOBAL__N_1::h", ["int *const *"]),
    "_Z1zN4cuda3std3__47complexIdEE6__half": ("z", ["cuda::std::__4::complex<double>", "__half"]),
    "_Z1sPSt6vectorIfSaIfEE": ("s", ["std::vector<float, std::allocator<float>> *"]),
    "_Z1tDhPDF16_.clone": None,  # a decimal float: no kernel has one
}


@pytest.mark.parametrize("name", MANGLED)
def test_names_of_the_itanium_abi(name: str) -> None:
    signature = _cukern._kernel_signature(name)
    if MANGLED[name] is None:
        assert signature is None or len(signature[1]) == 2
        return
    plain, texts = MANGLED[name]
    assert signature[0] == plain
    assert [row[1] for row in signature[1]] == texts


def test_kinds_of_parameters() -> None:
    def kinds(name: str) -> list[tuple[str, bool, str]]:
        return [(kind, const, element) for kind, _, const, element in _cukern._kernel_signature(name)[1]]

    assert kinds("_Z1fbjPKdP6float2") == [
        ("number", False, "bool"),
        ("number", False, "uint32"),
        ("pointer", True, "float32"),
        ("pointer", False, "float32"),
    ]
    assert kinds("_Z1f6__half13__nv_bfloat167double25other")[:3] == [
        ("number", False, "float16"),
        ("number", False, "bfloat16"),
        ("number", False, "complex128"),
    ]
    assert kinds("_Z1f5other")[0][0] == "structure"
    assert kinds("_Z1fe")[0][0] == "structure"  # long double, which no number of Python is
    # Const by a template argument: h<const float>(T, T *), g<const float>(const T *), f<float *const>(T).
    assert kinds("_Z1hIKfEvT_PS1_") == [("number", False, "float32"), ("pointer", True, "float32")]
    assert kinds("_Z1gIKfEvPKT_") == [("pointer", True, "float32")]
    assert _cukern._kernel_signature("_Z1gIKfEvPKT_")[1][0][1] == "const float *"
    assert kinds("_Z1fIKPfEvT_")[0][0] == "pointer"
    assert kinds("_Z1fI5IdentEvT_IfE")[0][0] == "unknown"  # a template that may be an alias
    # Complex numbers are those of std, cuda::std and thrust; classes of other namespaces are structures.
    assert kinds("_Z1qN4mine7complexIdEE")[0][0] == "structure"
    for scope in ("N4cuda3std3__47complexIdEE", "St7complexIdE", "N6thrust7complexIdEE", "7complexIdE"):
        assert kinds("_Z1q" + scope)[0] == ("number", False, "complex128")
    assert kinds("_Z1cIfEvN2ns2TrIT_E4typeE")[0][0] == "unknown"  # a typedef in a template may be anything


@pytest.mark.parametrize(
    "name",
    [
        "",
        "f",
        "_Z",
        "_Z1",
        "_Z9f",
        "_Z1fIfE",
        "_Z1fS_",
        "_Z1fS9_",
        "_ZN1fE",
        "_Z1fDtE",
        "_Z1fPPPPPPP",
        "_Z99999999999f",
    ],
)
def test_what_is_no_name_is_refused_whole(name: str) -> None:
    assert _cukern._kernel_signature(name) is None


def test_names_cut_or_changed_anywhere_never_crash() -> None:
    random_ = random.Random(7)
    for name in MANGLED:
        for end in range(len(name)):
            _cukern._kernel_signature(name[:end])
        for _ in range(300):
            letters = [*name]
            for _ in range(random_.randint(1, 4)):
                letters[random_.randrange(len(letters))] = random_.choice("ISNEKPTFDLXJAZ_0123456789fidvbcU")
            _cukern._kernel_signature("".join(letters))
    for name in ("_Z1fIA3_T_EvPT_", "_Z1fIKT_EvT_", "_Z1fIPT_EvT_", "_Z1fIT_EvT_", "_Z1fI1AIT_EEvPT_"):  # within itself
        _cukern._kernel_signature(name)
    assert _cukern._kernel_signature("_Z1f" + "P" * 2000 + "i") is None  # too deep
    # Each type has the one before twice: 40 of them would be a text of 2**40 letters.
    twice = "_Z1f1AIiiE" + "".join(
        f"S_I{s}{s}E" for s in ["S0_", *(f"S{i}_" for i in "123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ")]
    )
    signature = _cukern._kernel_signature(twice + "N" + "SZ_" + "1BE")
    assert signature is None or len(signature[1]) > 30
    assert _cukern._kernel_signature("_Z1f" + "i" * 600) is None  # too long


@pytest.fixture
def host():
    """The host back-end, whatever there is."""
    use("host")


def pack(name: str, sizes: tuple[int, ...], *args: object, unchecked: bool = False) -> bytes:
    return _cukern._pack_arguments(name, sizes, args, unchecked)


@pytest.mark.usefixtures("host")
class TestPacking:
    def test_offsets_and_types(self) -> None:
        x = cukern.zeros(3, dtype="float32")
        block = pack("_Z1fbPKfsdf", (1, 8, 2, 8, 4), True, x, -5, 2, np.float32(1.5))
        assert block == struct.pack("<?7xQh6xdf", True, address_of(x), -5, 2.0, 1.5)

    def test_views_pass_the_address_of_their_first_element(self) -> None:
        x = cukern.zeros((4, 6), dtype="float32")
        view = x[1:, 2::3]
        assert pack("_Z1fPKf", (8,), view) == struct.pack("<Q", address_of(x) + 4 * (6 + 2))
        assert pack("_Z1fPKf", (8,), x[::-1]) == struct.pack("<Q", address_of(x) + 4 * 18)

    def test_an_error_names_the_place_the_argument_and_the_parameter(self) -> None:
        x = cukern.zeros(3, dtype="int32")
        with pytest.raises(TypeError) as error:
            pack("_Z5saxpyIfEvT_PKS0_PS0_i", (4, 8, 8, 4), 2.0, x, x, 3)
        assert str(error.value) == (
            "_Z5saxpyIfEvT_PKS0_PS0_i: argument 2 of 4 is an array of int32; the parameter is const float *, which "
            "takes an array of float32"
        )

    @pytest.mark.parametrize("count", [0, 1, 3])
    def test_the_number_of_arguments(self, count: int) -> None:
        with pytest.raises(TypeError, match=f"the kernel has 2 parameters, and {count} argument"):
            pack("_Z1fii", (4, 4), *[1] * count)

    def test_an_address_as_int_is_refused(self) -> None:
        with pytest.raises(TypeError, match=r"cukern.Pointer\(address\)"):
            pack("_Z1fPf", (8,), 4096)
        assert pack("_Z1fPf", (8,), cukern.Pointer(4096)) == struct.pack("<Q", 4096)
        assert pack("_Z1fPf", (8,), None) == bytes(8)

    def test_read_only_arrays(self) -> None:
        x = cukern.broadcast_to(cukern.zeros(1, dtype="float32"), (3,))
        assert len(pack("_Z1fPKf", (8,), x)) == 8
        with pytest.raises(ValueError, match=r"argument 1 of 1 is read-only; the parameter is float \*"):
            pack("_Z1fPf", (8,), x)
        assert len(pack("f", (8,), x)) == 8  # nothing tells

    def test_host_memory_is_refused(self) -> None:
        for x in (np.zeros(3, np.float32), memoryview(b"1234"), np.zeros(1, [("x", "f4")]), (ctypes.c_float * 3)()):
            with pytest.raises(TypeError, match=r"argument 1 of 1 (is in pageable host memory|has element type)"):
                pack("_Z1fPKv", (8,), x)

    def test_structures(self) -> None:
        class Pair(ctypes.Structure):
            _fields_ = (("a", ctypes.c_int), ("b", ctypes.c_float))

        value = np.array((3, 1.5), np.dtype([("a", np.int32), ("b", np.float32)]))[()]
        assert pack("_Z1f4Pair", (8,), value) == pack("_Z1f4Pair", (8,), Pair(3, 1.5)) == struct.pack("<if", 3, 1.5)
        with pytest.raises(TypeError, match="of 8 bytes; the kernel expects Pair of 12 bytes"):
            pack("_Z1f4Pair", (12,), value)

    def test_ranges(self) -> None:
        ranges = {"a": (-(2**7), 2**7 - 1), "h": (0, 255), "y": (0, 2**64 - 1), "x": (-(2**63), 2**63 - 1)}
        for name, good in ranges.items():
            size, bad = 1 if name in "ah" else 8, (good[0] - 1, good[1] + 1)
            for value in good:
                assert pack("_Z1f" + name, (size,), value) == (value % 2 ** (8 * size)).to_bytes(size, "little")
            for value in bad:
                with pytest.raises(OverflowError, match="out of the range"):
                    pack("_Z1f" + name, (size,), value)
        with pytest.raises(OverflowError):
            pack("_Z1ff", (4,), 1e39)
        assert pack("_Z1ff", (4,), float("inf")) == struct.pack("<f", float("inf"))
        for name, size, good, bad in [
            ("6__half", 2, 65504.0, 65520.0),
            ("13__nv_bfloat16", 2, 3.38e38, 3.4e38),
            ("6float2", 8, 1e38j, 1e39j),
            ("7double2", 16, 1e300, 10**400),
        ]:
            assert len(pack("_Z1f" + name, (size,), good)) == size
            with pytest.raises(OverflowError, match="argument 1 of 1 is out of the range of the parameter"):
                pack("_Z1f" + name, (size,), bad)

    def test_bool(self) -> None:
        for true in (True, 1, np.True_, ctypes.c_bool(True)):
            assert pack("_Z1fb", (1,), true) == b"\1"
        with pytest.raises(OverflowError, match="argument 1 of 1 is out of the range of the parameter, bool: 2"):
            pack("_Z1fb", (1,), 2)
        for number in (1.0, np.uint8(1), np.int8(1), ctypes.c_byte(1)):
            with pytest.raises(TypeError, match=r"argument 1 of 1 is .*; the parameter is bool, which takes"):
                pack("_Z1fb", (1,), number)
        assert pack("_Z1fi", (4,), True) == struct.pack("<i", 1)
        assert pack("_Z1fd", (8,), True) == struct.pack("<d", 1)
        with pytest.raises(TypeError, match="is a NumPy scalar of bool; the parameter is int"):
            pack("_Z1fi", (4,), np.True_)

    def test_unchecked_leaves_out_types_but_not_sizes(self) -> None:
        x = cukern.zeros(3, dtype="int32")
        assert pack("_Z1fPKf", (8,), x, unchecked=True) == struct.pack("<Q", address_of(x))
        assert pack("_Z1fPKf", (8,), 4096, unchecked=True) == struct.pack("<Q", 4096)
        with pytest.raises(TypeError, match="of 8 bytes"):
            pack("_Z1fi", (4,), x, unchecked=True)
        with pytest.raises(TypeError, match="has 1 parameter"):
            pack("_Z1fi", (4,), unchecked=True)

    def test_unchecked_numbers_are_of_the_parameters_type(self) -> None:
        for unchecked in (False, True):
            assert pack("_Z1ff", (4,), 2, unchecked=unchecked) == struct.pack("<f", 2)
            assert pack("_Z1f6__half", (2,), 2.0, unchecked=unchecked) == np.float16(2).tobytes()
        assert pack("_Z1fi", (4,), 2.0, unchecked=True) == struct.pack("<f", 2)
        assert pack("_Z1ff", (4,), ctypes.c_int(2), unchecked=True) == struct.pack("<i", 2)

    def test_types_of_another_size_are_unknown(self) -> None:
        # A class of the user's that is called as one of CUDA's, and a kernel that is extern "C" and called _Z1fd.
        value = np.zeros(1, "V22")[0]
        for name, sizes, args in [
            ("_Z1f1S7complexIdE", (22, 1), (value, 1j)),
            ("_Z1f7complexIdE", (4,), (1j,)),
            ("_Z1f6__half", (1,), (1.5,)),
            ("_Z1fd", (1,), (1.5,)),
            ("_Z1fP1S", (3,), (None,)),
        ]:
            with pytest.raises(TypeError):
                pack(name, sizes, *args)
        assert pack("_Z1fl", (16,), np.zeros((), "i8,i8")[()]) == bytes(16)
        with pytest.raises(TypeError):
            pack("_Z1fl", (16,), 1)

    @pytest.mark.parametrize("size", [*range(1, 8), *range(9, 16), 17, 24])
    def test_complex_numbers_fit_two_floats_alone(self, size: int) -> None:
        with pytest.raises(TypeError):
            pack("f", (size,), 1j)
        assert pack("f", (8,), 1j) == struct.pack("<ff", 0, 1)

    def test_numbers_are_taken_by_their_own_value(self) -> None:
        class Odd(int):
            def __float__(self) -> float:
                raise AssertionError("no code of the number's runs")

            __index__ = __int__ = __float__  # type: ignore[assignment]

        assert pack("_Z1fdi", (8, 4), Odd(2), Odd(3)) == struct.pack("<di", 2, 3)
        with pytest.raises(OverflowError, match="argument 1 of 1 is out of the range of the parameter, double"):
            pack("_Z1fd", (8,), 10**400)

    def test_ctypes_char_and_objects(self) -> None:
        assert pack("_Z1fc", (1,), ctypes.c_ubyte(200)) == pack("_Z1fc", (1,), np.uint8(200)) == b"\xc8"
        assert pack("_Z1fIKcEvT_", (1,), np.uint8(200)) == b"\xc8"  # const char, of a template
        assert pack("_Z1fah", (1, 1), ctypes.c_byte(-3), ctypes.c_ubyte(3)) == b"\xfd\x03"
        with pytest.raises(TypeError, match="argument 1 of 1 is of type c_ubyte"):
            pack("_Z1fa", (1,), ctypes.c_ubyte(3))
        with pytest.raises(TypeError, match="takes no Python objects"):
            pack("_Z1f1S", (8,), np.array((None,), [("a", object)])[()])

    def test_many_arguments(self) -> None:
        x = cukern.zeros(3)
        args = [x, 1.0] * 20
        block = pack("_Z1f" + "PKdd" + "S0_d" * 19, (8, 8) * 20, *args)
        assert block == struct.pack("<" + "Qd" * 20, *[address_of(x), 1.0] * 20)

    def test_objects_whose_look_up_raises(self) -> None:
        class Interrupting(type):
            def __getattr__(cls, name: str) -> object:
                raise KeyboardInterrupt

        class Interrupts(metaclass=Interrupting):
            pass

        with pytest.raises(KeyboardInterrupt):
            pack("_Z1fi", (4,), Interrupts())

        class Index:
            def __index__(self) -> int:
                return 3

        with pytest.raises(TypeError):
            pack("_Z1fi", (4,), Index())


def arrays() -> tuple[dict[str, list[object]], dict[str, object]]:
    """Arrays of each element type in any layout, and read-only ones."""
    every, read_only = {}, {}
    for element in ELEMENTS:
        base = cukern.zeros((4, 6), dtype=element)
        every[element] = [
            base,
            base.T,
            base[1:, ::2],
            base[::-1],
            base[0, 0],
            cukern.zeros(5, dtype=element, memory="pinned"),
        ]
        read_only[element] = cukern.broadcast_to(base[:1], (4, 6))
    return every, read_only


def compile_all(kernels: list[Kernel]) -> dict[str, str]:
    """The names of kernels in an image, by those that they were asked for by."""
    from cukern import _compile

    try:
        _, targets, folder = _compile._nvrtc()
    except RuntimeError as error:
        pytest.skip(f"needs NVRTC: {error}")
    if folder is None:
        pytest.skip("needs the toolkit's headers")
    options = (f"-arch=sm_{max(targets[:1])}", f"-I{folder}", "-std=c++17")
    source = PRELUDE + "".join(kernel.text for kernel in kernels)
    image, names, log = _cukern._compile(source, "fuzz.cu", tuple(kernel.name for kernel in kernels), options)
    assert image is not None, log
    return names


def test_random_kernels_take_what_they_must() -> None:
    """Signatures and lists by the record of tests/kernel_signatures.py; the GPU's test launches them, too."""
    use("host")
    random_ = random.Random(20260)
    count, lists = (40, 10) if SMALL or SANITIZED else (500, 20)
    kernels = [random_kernel(random_, i) for i in range(count)]
    names = {}
    for begin in range(0, count, 100):
        names |= compile_all(kernels[begin : begin + 100])
    values = Values(random_, *arrays())
    out = cukern.zeros(512, dtype="uint8")
    seen: Counter[str] = Counter()
    for kernel in kernels:
        for _ in range(lists):
            args, wanted = values.list_for(kernel)
            described = f"{kernel.text} {names[kernel.name]} {args}"
            try:
                block = pack(names[kernel.name], kernel.sizes, out, *args)
            except (TypeError, ValueError, OverflowError) as error:
                assert wanted is None, f"{described}: {error}"
                assert str(error).startswith(names[kernel.name] + ": "), error
                seen["refused"] += 1
                continue
            assert wanted is not None, described
            offset = 8
            for size, expected in zip(kernel.sizes[1:], wanted, strict=True):
                alignment = min(16, size & -size)
                offset = -(-offset // alignment) * alignment
                assert block[offset : offset + size] == expected, described
                offset += size
            seen["taken"] += 1
    assert min(seen["refused"], seen["taken"]) > count * lists // 5, seen
    assert ml_dtypes.bfloat16 is DTYPES["bfloat16"].type
