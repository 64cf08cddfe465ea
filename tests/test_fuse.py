"""`fuse`: functions as kernels, on a GPU, and without one run on the processor; and functions without a kernel."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from conftest import SMALL, use

import cukern
from cukern import _cukern, _fuse

TYPES = [
    np.dtype(f"{kind}{size}").name for kind, sizes in (("i", "1248"), ("u", "1248"), ("f", "248")) for size in sizes
]
TYPES += ["bool", "bfloat16", "complex64", "complex128"]


def values(rng: np.random.Generator, element: str, shape: Any) -> Any:
    """Return an Array of small numbers, fractions and NaN among them where a type has them."""
    numbers: Any = rng.integers(-20, 20, shape)
    if element == "bool":
        return cukern.asarray(numbers > 0)
    if element.startswith("u"):
        numbers = abs(numbers)
    if "float" in element or "complex" in element:
        numbers = np.where(numbers == 7, np.nan, numbers / 4)
    if "complex" in element:
        numbers = numbers + 1j * rng.integers(-3, 4, shape)
    return cukern.asarray(np.asarray(numbers)).astype(element)


def same(given: Any, wanted: Any) -> bool:
    """Whether two arrays are the same in type, shape and values."""
    if (given.dtype, given.shape) != (wanted.dtype, wanted.shape):
        return False
    if str(given.dtype) == "bfloat16":
        given, wanted = given.astype("float32"), wanted.astype("float32")
    given, wanted = cukern.asnumpy(given), cukern.asnumpy(wanted)
    return np.array_equal(given, wanted, equal_nan=given.dtype.kind in "fc")


def calls(x: Any, y: Any) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield a call of each function of the table, and more of those that take numbers."""
    for row in _cukern._table:
        match row["kind"]:
            case "unary":
                yield row["name"], (x,)
            case "binary":
                yield row["name"], (x, y)
            case "scalar":
                yield row["name"], (x, 2)
            case "choice":
                yield row["name"], (x, x, y)
            case "axpy":
                yield row["name"], (3, x, y)
    yield from [("clip", (x, 1, y)), ("clip", (x, 0, 5)), ("clip", (x, None, 2)), ("clip", (x, -(10**6), 10**6))]
    yield from [("astype", (x, "int16")), ("astype", (x, "float16")), ("astype", (x, "complex64"))]
    yield from [("add", (x, 2)), ("multiply", (2.5, x)), ("subtract", (x, 1j)), ("pow", (x, 2)), ("add", (x, True))]
    yield from [("less", (x, 3)), ("less", (x, 300)), ("greater_equal", (2**70, x)), ("equal", (x, math.inf))]
    yield from [("add", (x, np.float32(0.1))), ("where", (True, x, 1.5)), ("maximum", (x, -math.inf))]


class TestOperations:
    @pytest.mark.parametrize("element", TYPES)
    def test_each_gives_what_it_gives_alone(self, formulas_on: str, element: str) -> None:
        if formulas_on == "emulated" and element not in ("float32", "int8", "bool", "bfloat16", "uint64"):
            element = "complex64"  # whose text is compiled once
        rng = np.random.default_rng(1)
        for other in (element, "int16") if formulas_on == "gpu" else ("int16",):
            x, y = (values(rng, each, 67) for each in (element, other))
            wanted: list[Any] = []
            for name, args in calls(x, y):
                try:
                    wanted.append(getattr(cukern, name)(*args))
                except (TypeError, OverflowError) as error:
                    wanted.append(type(error))

            def every_call(x: Any, y: Any, wanted: list[Any] = wanted) -> tuple[Any, ...]:
                results = []
                for (name, args), expected in zip(calls(x, y), wanted, strict=True):
                    if isinstance(expected, type):
                        with pytest.raises(expected):
                            getattr(cukern, name)(*args)
                    else:
                        results.append(getattr(cukern, name)(*args))
                return tuple(results)

            given = cukern.fuse(every_call)(x, y)
            names = [name for (name, _), each in zip(calls(x, y), wanted, strict=True) if not isinstance(each, type)]
            arrays = [each for each in wanted if not isinstance(each, type)]
            assert [n for n, a, b in zip(names, given, arrays, strict=True) if not same(a, b)] == []

    def test_operators_methods_and_functions_of_numpy(self, formulas_on: str) -> None:
        def every_operator(x: Any, y: Any) -> tuple[Any, ...]:
            binary = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod]
            binary += [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]
            binary += [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
            results = [function(a, b) for function in binary for a, b in ((x, y), (x, 3), (3, y))]
            results += [x**2, 2 ** abs(y), -x, +x, ~x, abs(x), x.astype("float32")]
            results += [np.arctan2(x, y), np.absolute(x), np.power(abs(x), 2), np.mod(x, 5)]
            return (*results, np.arcsinh(x), np.true_divide(x, y), np.invert(x))

        rng = np.random.default_rng(2)
        x, y = (values(rng, element, (5, 13)) for element in ("int32", "int16"))
        y = cukern.where(y == 0, 1, y)
        for given, wanted in zip(cukern.fuse(every_operator)(x, abs(y)), every_operator(x, abs(y)), strict=True):
            assert same(given, wanted)

    def test_chains_of_any_shapes_and_types(self, formulas_on: str) -> None:
        @cukern.fuse
        def chain(x: Any, row: Any, column: Any, factor: Any) -> Any:
            return cukern.where(x > row, cukern.sqrt(abs(x)) * factor, column - x) + cukern.exp(-abs(row))

        rng = np.random.default_rng(3)
        for n in (1, 16, 33) if formulas_on == "emulated" or SMALL else range(1, 130):
            x, row, column = (values(rng, "float32", shape) for shape in ((9, n), (n,), (9, 1)))
            for base in (x, x[::-1, ::-1], x.T.copy().T):
                given = chain(base, row, column, 2.5)
                assert given.shape == (9, n)
                wanted = chain.__wrapped__(base, row, column, 2.5)
                np.testing.assert_allclose(cukern.asnumpy(given), cukern.asnumpy(wanted), rtol=1e-6)
        assert len(chain._by_types) == 1
        mixed = chain(x.astype("float16"), row.astype("int8"), column, 2)
        wanted = chain.__wrapped__(x.astype("float16"), row.astype("int8"), column, 2)
        assert mixed.dtype == wanted.dtype
        np.testing.assert_allclose(cukern.asnumpy(mixed), cukern.asnumpy(wanted), rtol=1e-6)


class TestArguments:
    def test_numbers_change_without_another_kernel(self, formulas_on: str) -> None:
        traces = []

        @cukern.fuse(kernel_name="scaled")
        def scaled(x: Any, factor: Any, power: Any) -> Any:
            traces.append(factor)
            return x * (factor / 2 + 1) + 3 ** (power - 1) - factor

        x = cukern.arange(7, dtype="float32")
        for factor, power in ((2, 3), (5, 1), (-7, 2)):
            wanted = cukern.asnumpy(x) * (factor / 2 + 1) + 3 ** (power - 1) - factor
            np.testing.assert_array_equal(cukern.asnumpy(scaled(x, factor, power)), wanted.astype(np.float32))
        assert len(traces) == 1
        scaled(x, 2.5, 1)  # of another type
        scaled(x.astype("int8"), 2, 1)
        assert len(traces) == 3
        assert repr(scaled) == "<cukern.fuse of fused_scaled>"
        assert scaled.__name__ == "scaled"

    def test_kinds_of_numbers(self, formulas_on: str) -> None:
        sum_of = cukern.fuse(lambda x, number: x + number)
        x = cukern.arange(3, dtype="int8")
        for number in (True, 3, 2.5, 1 - 2j, np.float16(0.1), np.int64(2**40), np.complex64(1j), np.bool_(True)):
            given, wanted = sum_of(x, number), x + number
            assert same(given, wanted), number
        with pytest.raises(OverflowError):
            sum_of(cukern.zeros(3, dtype="uint8"), 1000)
        assert sum_of(2, 3) == 5  # no array: the function is called

    def test_arrays_of_numpy_and_from_outside(self, formulas_on: str) -> None:
        weights = np.arange(4.0)
        weighted = cukern.fuse(lambda x: (x * weights + weights).sum(axis=1))
        x = np.arange(12.0).reshape(3, 4)
        given = weighted(x)
        assert type(given) is np.ndarray
        np.testing.assert_array_equal(given, (x * weights + weights).sum(axis=1))
        own = cukern.asarray(weights)
        assert same(cukern.fuse(lambda x: own * x + own)(own), own * own + own)

    @pytest.mark.gpu
    def test_it_is_one_launch(self) -> None:
        use("cuda")
        x = cukern.asarray(np.arange(4096.0).reshape(64, 64))
        for function in (lambda x: cukern.sqrt(x * 2 + 1) - x, lambda x: (x * x + 1).sum(axis=1)):
            fused = cukern.fuse(function)
            fused(x)
            before = cukern.counters()["launches"]
            fused(x)
            assert cukern.counters()["launches"] == before + 1
            fused(x + 1)  # the sum is another
            assert cukern.counters()["launches"] == before + 3

    def test_results(self, formulas_on: str) -> None:
        x = cukern.arange(4.0)
        one = cukern.fuse(lambda x: (x + 1,))(x)
        assert type(one) is tuple
        assert len(one) == 1
        given = cukern.fuse(lambda x: x)(x)
        assert same(given, x)
        assert given is not x
        assert cukern.fuse(lambda x: x + 1)(cukern.zeros((0, 3))).shape == (0, 3)
        assert cukern.fuse(lambda x: x + 1)(cukern.asarray(2.0)).item() == 3

    def test_changes_in_place(self, formulas_on: str) -> None:
        def changed(x: Any, y: Any) -> tuple[Any, Any]:
            a = x + 1
            same = a
            a += y
            a *= 2
            a //= 3
            return a, same - 1

        x, y = cukern.arange(10, dtype="float32"), cukern.arange(10, dtype="float64")
        for given, wanted in zip(cukern.fuse(changed)(x, y), changed(x, y), strict=True):
            assert same(given, wanted)

        def narrowed(x: Any, y: Any) -> Any:
            a = x + 0
            a += y
            return a

        for function in (narrowed, cukern.fuse(narrowed)):
            with pytest.raises(TypeError, match="same_kind"):
                function(x.astype("int32"), y)

    def test_functions_that_call_each_other(self, formulas_on: str) -> None:
        @cukern.fuse
        def inner(x: Any, n: Any) -> Any:
            return x * n + 1

        outer = cukern.fuse(lambda x, n: inner(x, n) + inner(x, 2) + cukern.sqrt(n) + cukern.add(n, n))
        x = cukern.arange(5.0)
        given = outer(x, 4.0)
        np.testing.assert_array_equal(cukern.asnumpy(given), np.arange(5.0) * 6 + 12)
        assert len(inner._by_types) == 0


class TestLikeTheOperations:
    """What the operations give one after the other, the fused function gives."""

    def check(self, function: Callable[..., Any], *args: Any, fused: Any = None) -> None:
        fused = fused or cukern.fuse(function)
        try:
            wanted = function(*args)
        except (TypeError, ValueError, OverflowError) as error:
            with pytest.raises(type(error)):
                fused(*args)
            return
        given = fused(*args)
        for one, other in zip(
            *((each if isinstance(each, tuple) else (each,)) for each in (given, wanted)), strict=True
        ):
            assert same(*(cukern.asarray(each) for each in (one, other))), (one, other)

    def test_shapes_of_what_is_not_used(self, formulas_on: str) -> None:
        x, matrix, tall = cukern.arange(3.0), cukern.ones((2, 3)), cukern.ones((4, 3))
        self.check(lambda x, y: x.sum(), x, matrix)
        self.check(lambda x, y: x * 2, x, matrix)
        self.check(lambda x, y: (x * 2, y * 2), x, matrix)
        self.check(lambda x, y: (x * 2, y * 2), x, x)
        self.check(lambda x, y: x.mean(axis=0), x, tall)

        def grown(x: Any, y: Any) -> Any:
            t = x + 1
            t += y
            return t

        fused = cukern.fuse(grown)
        for pair in ((x, x), (matrix, x), (x, matrix), (tall, matrix)):
            self.check(grown, *pair, fused=fused)

    def test_arrays_from_outside(self, formulas_on: str) -> None:
        w, y = cukern.arange(3.0), cukern.ones(3)

        def changes_it(y: Any) -> Any:
            t = w
            t += y
            return t

        with pytest.raises(TypeError, match="cannot change an array from outside in place"):
            cukern.fuse(changes_it)(y)
        assert cukern.asnumpy(w).tolist() == [0, 1, 2]
        self.check(lambda y, n: (w * n) + y - n * w, y, 2.5)
        self.check(lambda y, n: cukern.where(w < n, y, n > w), y, 2.5)
        self.check(lambda y, n: cukern.where(w < n, y, n), y, 1)
        host = np.arange(3.0)
        self.check(lambda y, n: np.multiply(host, n) + n * host + host * n + y, np.ones(3), 2)

    def test_means_of_no_elements(self, formulas_on: str) -> None:
        for element in ("float64", "int32", "complex64", "float16"):
            self.check(lambda x: x.mean(axis=0), cukern.zeros((0, 3), element))
        self.check(lambda x: x.sum(axis=0) + 1, cukern.zeros((0, 3)))

    def test_comparisons_at_the_ends_of_types(self, formulas_on: str) -> None:
        def compared(x: Any) -> tuple[Any, ...]:
            limits = (2**63, -(2**63) - 1, 2**64, 2**63 - 1, -(2**63), 10**400, -(10**400), 255, 256, -1)
            functions = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)
            return tuple(function(*pair) for n in limits for function in functions for pair in ((x, n), (n, x)))

        for element in ("int64", "uint64", "uint8"):
            info = np.iinfo(element)
            self.check(compared, cukern.asarray(np.array([info.min, 0, 1, info.max - 1, info.max], element)))
        self.check(lambda x: cukern.logical_and(x, 10**400), cukern.arange(3))

    def test_numbers_of_other_types_and_sizes(self, formulas_on: str) -> None:
        for function, numbers in (
            (lambda x, n: x * (2**n), (-1, 2, 3, -2)),
            (lambda x, n: x * (2**n), (2, -1)),
            (lambda x, n: x + n**0.5, (2.0, -2.0, 4.0)),
            (lambda x, n: x + n**0.5, (-2.0, 2.0)),
            (lambda x, n: x < n, (3, 300, -1, 4)),
            (lambda x, n: x < n, (300, 3)),
            (lambda x, n: cukern.clip(x, 0, n), (5, 300, 2, -7)),
            (lambda x, n: cukern.clip(x, n, None), (300, 2)),
            (lambda x, n: x + n, (3, 300, 1)),
            (lambda x, n: cukern.logical_and(x, n), (5, 0, 0.5, 2j, True, 10**30)),
            (lambda x, n: cukern.where(n, x, -x), (5, 0, 0.5)),
        ):
            for element in ("uint8", "int64"):
                fused = cukern.fuse(function)
                for n in numbers:
                    self.check(function, cukern.arange(6, dtype=element), n, fused=fused)

    def test_scalars_of_numpy(self, formulas_on: str) -> None:
        x = cukern.arange(3, dtype="float64")

        def changed(x: Any, s: Any) -> Any:
            t = s
            s += 1
            return x * t + s

        self.check(changed, x, np.float64(2))
        self.check(changed, x.astype("float32"), np.float32(2))
        self.check(lambda x, s: x.sum() * s, x, np.float32(2))
        self.check(lambda x, s: s + 1, x, np.float32(2))
        for function in (lambda x, n: x * (np.float32(2) * n), lambda x, n: x * np.multiply(n, 2)):
            with pytest.raises(TypeError, match="compute with Python's numbers"):
                cukern.fuse(function)(x, 3)

    def test_casts_that_copy_nothing(self, formulas_on: str) -> None:
        def changed(x: Any) -> Any:
            y = x + 1
            z = y.astype(y.dtype, copy=False)
            z += 1
            return y

        self.check(changed, cukern.arange(3.0))

    def test_operands_of_one_element(self, formulas_on: str) -> None:
        x = cukern.broadcast_to(cukern.ones(1), (5,))
        self.check(lambda x: (x + x).sum(), x)
        self.check(lambda x: x + x, x)
        self.check(lambda x: x.max(axis=0), cukern.broadcast_to(cukern.ones(1), (5, 3)))

    def test_methods(self, formulas_on: str) -> None:
        class Model:
            factor = 3

            @cukern.fuse
            def scaled(self, x: Any) -> Any:
                return x * 3

        with pytest.raises(TypeError):
            Model().scaled(cukern.ones(2))  # `self` is no array
        assert type(Model.scaled).__name__ == "Fused"


class TestReductions:
    @pytest.mark.parametrize("element", ["float32", "int8", "bool", "bfloat16", "complex64"])
    def test_each(self, formulas_on: str, element: str) -> None:
        if formulas_on == "emulated" and element != "float32":
            element = "int8"  # as above
        x = values(np.random.default_rng(4), element, (6, 70))
        x = cukern.where(cukern.isnan(x), 1, x)
        names = [row["name"] for row in _cukern._table if row["kind"] == "reduction"]
        for name in names:
            for options in ({}, {"axis": 1}, {"axis": 0, "keepdims": True}) if formulas_on == "gpu" else ({"axis": 1},):

                def reduced(x: Any, name: str = name, options: dict[str, Any] = options) -> Any:
                    return getattr(cukern, name)(x, **options)

                try:
                    wanted = reduced(x)
                except TypeError as error:
                    with pytest.raises(type(error)):
                        cukern.fuse(reduced)(x)
                    continue
                given = cukern.fuse(reduced)(x)
                assert (given.dtype, given.shape) == (wanted.dtype, wanted.shape)
                given, wanted = (cukern.asnumpy(each.astype("complex128")) for each in (given, wanted))
                np.testing.assert_allclose(given, wanted, rtol=2**-7 if element == "bfloat16" else 1e-5)

    def test_what_comes_before_and_after(self, formulas_on: str) -> None:
        @cukern.fuse
        def distance(x: Any, y: Any, power: Any) -> tuple[Any, Any]:
            total = (abs(x - y) ** power).sum(axis=-1)
            return total ** (1 / power), total + 1

        rng = np.random.default_rng(5)
        x, y = rng.random((2, 3, 5000))
        root, total = distance(cukern.asarray(x), cukern.asarray(y), 2)
        np.testing.assert_allclose(cukern.asnumpy(root), np.linalg.norm(x - y, axis=-1), rtol=1e-14)
        np.testing.assert_allclose(cukern.asnumpy(total), np.sum((x - y) ** 2, axis=-1) + 1, rtol=1e-14)
        variance = cukern.fuse(lambda x: cukern.var(x, axis=1, correction=1, keepdims=True))
        np.testing.assert_allclose(
            cukern.asnumpy(variance(cukern.asarray(x))), np.var(x, axis=1, ddof=1, keepdims=True), rtol=1e-13
        )
        with pytest.raises(ValueError, match="no elements are reduced, and there is no identity"):
            cukern.fuse(lambda x: cukern.max(x))(cukern.zeros(0))


class TestRefusals:
    @pytest.mark.build
    @pytest.mark.parametrize(
        ("function", "message"),
        [
            (lambda x: x if x > 0 else -x, "cannot look at values"),
            (float, "cannot look at values"),
            (lambda x: x[0], "sees no shapes, indices or elements"),
            (lambda x: x.shape, "sees no shapes"),
            (lambda x: x.T, r"\.T of an array"),
            (lambda x: list(x), "sees no shapes"),
            (lambda x: x / x.sum(), "divide takes what a reduction gives and what it reduces"),
            (lambda x: x.sum().max(), "max is the second reduction"),
            (lambda x: (x.sum(), x), "returns a reduction and what is none"),
            (lambda x: 1, "has to return what it has computed of arrays, got 1"),
            (lambda x: None, "got None"),
            (lambda x: x.sum(axis=[0]), "expected an int or a tuple"),
            (lambda x: operator.iadd(x, 1), "cannot change its arguments in place"),
            (lambda x: cukern.add(x, 1, out=cukern.zeros(3)), "add: out= has no meaning"),
            (lambda x: cukern.cumulative_sum(x), "are fused, and no others"),
            (lambda x: cukern.matmul(x, x), "are fused, and no others"),
            (lambda x: x @ x, "are fused, and no others"),
            (lambda x: np.ones((3, 3)) @ x, "numpy.matmul is no operation of cukern that is fused"),
            (round, "are fused, and no others"),
            (lambda x: np.add.reduce(x), "numpy.add is no operation"),
            (lambda x: cukern.argmax(x, axis=(0, 1)), "expected one int or None"),
            (lambda x: operator.add(x, [1, 2]), "is no array and no number"),
            (lambda x: x + "a", "is no array and no number"),
        ],
    )
    def test_what_cannot_be_traced(
        self, monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any], message: str
    ) -> None:
        from emulated_kernels import emulate_kernels

        use("host")
        emulate_kernels(monkeypatch)
        with pytest.raises(TypeError, match=message):
            cukern.fuse(function)(cukern.arange(3.0))

    @pytest.mark.build
    def test_branches_on_numbers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from emulated_kernels import emulate_kernels

        use("host")
        emulate_kernels(monkeypatch)
        for function in (lambda x, n: x if n > 0 else -x, lambda x, n: x * math.sqrt(n), lambda x, n: x * (n == 1)):
            with pytest.raises(TypeError, match="cannot look at values"):
                cukern.fuse(function)(cukern.arange(3.0), 2)

    def test_other_errors_of_calls_stay(self) -> None:
        use("host")
        with pytest.raises(TypeError, match="add: a is of type object"):
            cukern.add(object(), 1)
        with pytest.raises(ValueError, match="no row nothing"):
            _cukern._compute_type("nothing", 1)


class TestWithoutGpu:
    def test_the_operations_run(self) -> None:
        use("host")
        calls = []

        @cukern.fuse
        def half(x: Any, limit: float) -> Any:
            """Halve."""
            calls.append(x)
            return cukern.where(x > limit, x / 2, x) if limit > 0 else x

        x = np.arange(4.0)
        np.testing.assert_array_equal(half(x, 1.0), [0, 1, 1, 1.5])
        assert type(half(cukern.asarray(x), -1.0)) is cukern.Array
        assert calls[0] is x
        assert half.__doc__ == "Halve."

    def test_the_headers_are_there(self) -> None:
        folders = [option[2:] for option in _fuse.compiler_options() if option.startswith("-I")]
        found = [
            name
            for name in ("formulas/reducers.cuh", "cukern/ops.def", "cukern/element_type.h", "cmath")
            if any(_exists(folder, name) for folder in folders)
        ]
        assert len(found) == 4


def _exists(folder: str, name: str) -> bool:
    from pathlib import Path

    return Path(folder, name).is_file()
