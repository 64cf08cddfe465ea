"""The names of parameters that messages about a kernel's arguments have."""

from __future__ import annotations

import pytest
from conftest import use

import cukern
from cukern import _cukern
from cukern._parameter_names import parameter_names

SAXPY = "template <typename T> __global__ void saxpy(T a, const T *x, T *y, int n) { y[n] = a * x[n]; }"


@pytest.mark.parametrize(
    ("code", "name", "names"),
    [
        (SAXPY, "saxpy<float>", ["a", "x", "y", "n"]),
        ('extern "C" __global__ void f(float* __restrict__ x, int, unsigned, int n = 3) {}', "f", ["x", "", "", "n"]),
        ("__global__ void f(std::pair<int, float> p, void (*g)(int, int), int a[3]);", "f", ["p", "", "a"]),
        ("__global__ void f(const\n float4*x,unsigned long long n)", "f", ["x", "n"]),
        ("__global__ void f() {}", "f", []),
        ("__global__ void f(void) {}", "f", []),
        ("__global__ void __launch_bounds__(256) f(int yes) { f(no); }", "ours::f", ["yes"]),
        ("/* __global__ void f(int no) */ // __global__ void f(int no)\n__global__ void f(int yes);", "f", ["yes"]),
        ('const char *s = "__global__ void f(int no)"; __global__ void f(int yes) {}', "f", ["yes"]),
        ("void f(int no) {} __global__ void f(int yes) {}", "f", ["yes"]),
        ("__global__ void f(int x, int y) {} __global__ void f(int one) {}", "f", ["one"]),
        ("__global__ void f(int x) {} __global__ void f(float y) {}", "f", None),
        ("__global__ void f(int x", "f", None),
        ("__global__ void f_long(int x) {}", "f", None),
        ("", "", None),
    ],
)  # fmt: skip
def test_names(code: str, name: str, names: list[str] | None) -> None:
    assert parameter_names(code, name, 1 if names is None else len(names)) == names
    assert parameter_names(code, name, 7) is None


def test_messages_have_them() -> None:
    use("host")
    mangled, sizes = "_Z5saxpyIfEvT_PKS0_PS0_i", (4, 8, 8, 4)
    x, y = cukern.ones(3, dtype="float32"), cukern.ones(3, dtype="int32")

    def message(error: type, *args: object, code: object = SAXPY, name: object = "saxpy<float>") -> str:
        with pytest.raises(error) as raised:
            _cukern._pack_arguments(mangled, sizes, args, False, code, name)
        return str(raised.value)

    assert ": argument 2 of 4 (x) is an array of int32; the parameter is const" in message(TypeError, 1, y, x, 3)
    assert ": argument 4 of 4 (n) is out of the range of the parameter, int: 4294967296" in message(
        OverflowError, 1, x, x, 2**32
    )
    assert ": argument 4 of 4 (n) is of type float; the parameter is int" in message(TypeError, 1, x, x, 1.5)
    # Where the source does not tell, the place has to do.
    for code, name in ((b"image", "saxpy"), (None, None), (SAXPY, "other"), (SAXPY, 3), ("\udc00", "saxpy")):
        assert ": argument 2 of 4 is an array of int32" in message(TypeError, 1, y, x, 3, code=code, name=name)
