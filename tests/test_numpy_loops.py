"""The host back-end by NumPy's loops: their results, for every layout and mix of types."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest
from conftest import use
from numpy_loops import use_numpy_loops
from oracles import FUNCTIONS, ORACLES
from processes import run_quietly

import cukern
from cukern import _cukern

ROWS = [row for row in _cukern._table if row["kind"] in ("unary", "binary") and row["name"] not in ("real", "imag")]


@pytest.fixture(autouse=True)
def host() -> None:
    """NumPy's loops, as they are used by default."""
    use("host")


def operands(rng: np.random.Generator, dtype: str, count: int, shape: tuple[int, ...]) -> list[np.ndarray]:
    """Return arrays of some strides."""
    found = []
    for _ in range(count):
        base = rng.integers(1, 20, [2 * n for n in shape]) / (8 if dtype[0] == "f" else 1)
        step = tuple(slice(None, None, int(rng.choice([2, 2, -2]))) for _ in shape)
        view = base.astype(dtype)[step]
        found.append(np.ascontiguousarray(view) if rng.random() < 0.5 else view)
    return found


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_results_are_numpys(row: dict, rng: np.random.Generator) -> None:
    own, numpys = getattr(cukern, row["name"]), ORACLES[row["name"]]
    count = 2 if row["kind"] == "binary" else 1
    for dtype, shape in itertools.product(
        ("f2", "f4", "f8", "i1", "u2", "i4", "i8"), ((), (1,), (1000,), (7, 33), (3, 4, 5))
    ):
        values = operands(rng, dtype, count, shape)
        with np.errstate(all="ignore"):
            try:
                given = own(*values)
            except TypeError:
                continue
            wanted = np.asarray(numpys(*values))
        if wanted.dtype != given.dtype or row["name"] == "reciprocal":
            continue  # where the standard's result is another one
        if row["name"] in FUNCTIONS and given.dtype.kind == "f":  # NumPy's own bits depend on strides and lengths
            np.testing.assert_array_max_ulp(given, wanted, 4)
        else:
            np.testing.assert_array_equal(given, wanted)
            assert given.tobytes() == wanted.tobytes() or row["name"] in ("floor_divide", "remainder")


def test_mixed_types_numbers_and_out(rng: np.random.Generator) -> None:
    x, y = (operands(rng, dtype, 1, (700, 3))[0] for dtype in ("f4", "i2"))
    np.testing.assert_array_equal(cukern.atan2(x, y), np.arctan2(x, y.astype("f4")))
    np.testing.assert_array_equal(cukern.tanh(y), np.tanh(y.astype("f4")))
    np.testing.assert_array_equal(cukern.multiply(x, 2.5), np.multiply(x, np.float32(2.5)))
    np.testing.assert_array_equal(cukern.maximum(3, y), np.maximum(3, y))
    out = np.zeros((700, 6))[:, ::2]
    assert cukern.exp(x, out=out) is out
    np.testing.assert_array_equal(out, np.exp(x))
    cukern.sqrt(x, out=x)
    np.testing.assert_array_equal(cukern.logical_and(x, x), np.ones((700, 3), bool))
    np.testing.assert_array_equal(cukern.astype(x, "i1"), x.astype("i8").astype("i1"))


def test_integers_that_numpy_refuses_are_computed_by_formulas() -> None:
    x = np.array([0, 1, 2, -2], "i4")
    assert cukern.pow(x, np.array([-1, -1, -1, 2], "i4"))[3] == 4
    assert cukern.reciprocal(x)[1:].tolist() == [1, 0, 0]
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(cukern.floor_divide(x, np.zeros(4, "i4")), np.floor_divide(x, np.zeros(4, "i4")))


def test_formulas_are_there_without_them(rng: np.random.Generator) -> None:
    x = (rng.random(10_000) * 4).astype("f4")
    numpys = cukern.tanh(x)
    use_numpy_loops(False)
    try:
        formulas = cukern.tanh(x)
    finally:
        use_numpy_loops(True)
    np.testing.assert_allclose(formulas, numpys, rtol=4 * np.finfo("f4").eps)
    assert (formulas != numpys).any()
    assert (cukern.tanh(x) == numpys).all()


def test_many_threads(rng: np.random.Generator) -> None:
    x = rng.random(300_000)
    wanted = np.sin(x)
    wrong = []

    def run() -> None:
        for _ in range(5):
            if (cukern.sin(x) != wanted).any():
                wrong.append(1)

    threads = [threading.Thread(target=run) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8", "u8", "c8", "c16"])
@pytest.mark.parametrize("shape", [(1,), (31,), (33,), (100_000,), (70, 600), (600, 70), (3, 40, 50)])
def test_sums_and_extremes_of_every_axis(dtype: str, shape: tuple[int, ...], rng: np.random.Generator) -> None:
    x = rng.integers(0, 100, shape).astype(dtype)  # exact in any order
    for view in (x, x[::-1], x.T, np.repeat(x, 2, axis=-1)[..., ::2]):
        for axis in (None, *range(view.ndim)):
            assert (cukern.sum(view, axis=axis) == view.sum(axis=axis)).all()
            if dtype[0] != "c":
                assert (cukern.max(view, axis=axis) == view.max(axis=axis)).all()
                assert (cukern.argmin(view, axis=axis) == view.argmin(axis=axis)).all()
            small = view % 2 + 1 if dtype[0] in "iu" else np.where(view.real > 98, 2, 1).astype(dtype)
            with np.errstate(all="ignore"):
                np.testing.assert_allclose(cukern.prod(small, axis=axis), small.prod(axis=axis), rtol=1e-5)
            tolerance = 1e-5 if dtype in ("f4", "c8") else 1e-12
            np.testing.assert_allclose(cukern.var(view, axis=axis), view.astype("c16").var(axis=axis), rtol=tolerance)


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_nan_in_any_place_is_found(axis: int | None, rng: np.random.Generator) -> None:
    x = rng.random((130, 70))
    for place in ((0, 0), (64, 3), (129, 69)):
        y = x.astype("f4" if place[0] else "f8")
        y[place] = np.nan
        for name in ("max", "min", "argmax", "argmin", "sum", "var"):
            with np.errstate(all="ignore"):
                wanted = getattr(np, name)(y, axis=axis)
            np.testing.assert_allclose(getattr(cukern, name)(y, axis=axis), wanted, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i2", "i8", "f2", "f4", "f8", "c8"])
def test_any_and_all_wherever_one_differs(dtype: str) -> None:
    for count in (1, 7, 31, 32, 33, 511, 513, 20_000):
        for place in {0, count // 2, count - 1}:
            zeros, ones = np.zeros((2, count), dtype), np.ones((2, count), dtype)
            assert not cukern.any(zeros)
            assert cukern.all(ones)
            zeros[1, place], ones[1, place] = 1, 0
            for axis in (None, 0, 1):
                np.testing.assert_array_equal(cukern.any(zeros, axis=axis), zeros.any(axis=axis))
                np.testing.assert_array_equal(cukern.all(ones, axis=axis), ones.all(axis=axis))
    minus_zero = np.full(100, -0.0, "f4")
    assert not cukern.any(minus_zero)
    assert cukern.all(np.full(100, np.nan))


def test_bytes_of_bool_that_are_neither_0_nor_1(rng: np.random.Generator) -> None:
    x = rng.integers(0, 256, 5000).astype("u1").view("?")
    truth = x.view("u1") != 0
    a, b = rng.random((2, 5000))
    np.testing.assert_array_equal(cukern.where(x, a, b), np.where(truth, a, b))
    assert cukern.mean(x) == truth.mean()
    assert bool(cukern.all(x)) == truth.all()


def test_means_of_short_integers_are_exact_sums(rng: np.random.Generator) -> None:
    for dtype in ("?", "i1", "u2", "i4", "u4"):
        x = rng.integers(0, 2 if dtype == "?" else 120, (300, 400)).astype(dtype)
        for axis in (None, 0, 1):
            wanted = x.sum(axis=axis, dtype="i8") / (x.size if axis is None else x.shape[axis])
            np.testing.assert_array_equal(cukern.mean(x, axis=axis), wanted)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("to", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
def test_floats_that_no_short_integer_holds(dtype: str, to: str, rng: np.random.Generator) -> None:
    x = (rng.random(1001) * 200 - 100).astype(dtype)
    inside = cukern.astype(x, to)
    np.testing.assert_array_equal(inside, np.trunc(x).astype("i8").astype(to))
    for wild in (2.0**31, -(2.0**31), -(2.0**31) - 4096, 2.0**40, -1e30, np.inf, np.nan):
        y = x.copy()
        y[[3, 700, 1000]] = wild
        given = cukern.astype(y, to)
        one_by_one = [int(cukern.astype(y[i : i + 1][::-1], to)[0]) for i in (3, 700, 1000)]
        assert given[[3, 700, 1000]].tolist() == one_by_one  # whatever stands beside it
        np.testing.assert_array_equal(np.delete(given, [3, 700, 1000]), np.delete(inside, [3, 700, 1000]))


@pytest.mark.parametrize("dtype", ["f4", "f8", "i2", "u8"])
def test_clip_where_and_results_with_steps(dtype: str, rng: np.random.Generator) -> None:
    a, b, c = rng.integers(0, 100, (3, 40, 60)).astype(dtype)
    if dtype[0] == "f":
        a[3, 4] = np.nan
    for least, most in ((10, 50), (b, c), (50, 10), (b, 70)):
        np.testing.assert_array_equal(cukern.clip(a, least, most), np.clip(a, least, most))
    condition = b > 50
    for x, y in ((a, c), (a.T.copy().T, c), (a, c[:, :1]), (a[::-1], c[0]), (a, 3)):
        np.testing.assert_array_equal(cukern.where(condition, x, y), np.where(condition, x, y).astype(dtype))
    for name in ("add", "maximum", "less", "isnan", "isinf", "tanh"):
        args = (a, c)[: 1 + (name in ("add", "maximum", "less"))]
        with np.errstate(all="ignore"):
            wanted = np.asarray(getattr(cukern, name)(*args))
        out = np.zeros((40, 180), wanted.dtype)
        for view in (out[:, ::3], out[:, 59::-1], out[::-1, 60:120]):
            np.testing.assert_array_equal(getattr(cukern, name)(*args, out=view), wanted)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8"])
def test_products_of_every_layout(dtype: str, rng: np.random.Generator) -> None:
    for m, k, n in ((1, 1, 1), (4, 4, 4), (3, 5, 2), (16, 16, 16), (33, 65, 17), (1, 200, 70), (130, 1, 9)):
        a, b = (rng.integers(-9, 9, shape).astype(dtype) for shape in ((m, k), (k, n)))  # exact in any order
        wanted = a.astype("i8") @ b.astype("i8")
        for x in (a, np.asfortranarray(a), np.repeat(a, 2, axis=1)[:, ::2], a[::-1][::-1]):
            for y in (b, np.asfortranarray(b), np.repeat(b, 2, axis=0)[::2]):
                np.testing.assert_array_equal(cukern.matmul(x, y), wanted)
                out = np.full((n, m), 7, dtype).T
                np.testing.assert_array_equal(cukern.matmul(x, y, out=out), wanted)
    with np.errstate(all="raise"):  # NumPy's product warns
        assert np.isinf(cukern.matmul(np.full((9, 9), 1e38, "f4"), np.full((9, 9), 1e38, "f4"))).all()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_results_with_steps_are_those_without(row: dict, rng: np.random.Generator) -> None:
    own = getattr(cukern, row["name"])
    for dtype in ("f2", "f4", "f8", "i1", "u4", "i8", "?", "c8"):
        values = [(rng.integers(-9, 9, 100) / 4).astype(dtype) for _ in range(1 + (row["kind"] == "binary"))]
        if dtype[0] == "f":
            values[0][:6] = [np.nan, np.inf, -np.inf, -0.0, 0.0, -1.0]
        try:
            wanted = own(*values)
        except TypeError:
            continue
        for step in (2, 3, -1):
            out = np.zeros(300, wanted.dtype)[::step][:100]
            own(*values, out=out)
            np.testing.assert_array_equal(out, wanted)


def test_numpys_functions_may_have_been_replaced() -> None:
    script = """
        import numpy as np
        np.matmul, np.add, np.tanh = {}, np.vectorize(len), len
        import cukern
        a = np.full((40, 40), 2.0, np.float32)
        assert (cukern.matmul(a, a) == 160).all()
        assert (cukern.add(a, a) == 4).all()
        np.testing.assert_allclose(cukern.tanh(a), 0.9640276, rtol=1e-6)
        print("done")
    """
    for replaced in ("np.vectorize(len)", "'text'", "3", "np.add", "(lambda a, b: a)"):
        assert run_quietly(script.format(replaced), CUKERN_BACKEND="host") == "done\n"


@pytest.mark.unsanitized  # which need more stack
def test_threads_with_small_stacks() -> None:
    script = """
        import threading
        import numpy as np, cukern
        def work():
            for dtype in ("f4", "f8", "i8", "c8", "c16", "i2"):
                whole = np.ones((500, 600), dtype)
                for x in (whole, whole[::2, ::3], whole.T):
                    for axis in (0, 1, None):
                        for name in ("sum", "prod", "var", "any", "max", "argmax"):
                            getattr(cukern, name)(x, axis=axis)
                    cukern.cumulative_sum(x, axis=0)
                    cukern.add(x, np.ones(x.shape, "i1"))
                    cukern.tan(x)
                    cukern.pow(x, x)
                    cukern.where(x, x, 2)
            print("done")
        threading.stack_size(128 << 10)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    """
    assert run_quietly(script, CUKERN_BACKEND="host", CUKERN_NUM_THREADS="1") == "done\n"


def test_first_calls_of_functions_by_several_threads_at_once() -> None:
    """The first long call of each chooses where its stack lies; others go on meanwhile, some deeper in the stack."""
    script = """
        import threading
        import numpy as np, cukern
        names = {"asin": "arcsin", "acos": "arccos", "atanh": "arctanh", "pow": "power", "atan2": "arctan2"}
        start = threading.Barrier(4)
        wrong = []
        def below(depth, call):
            return call() if depth == 0 else next(map(lambda _: below(depth - 1, call), "1"))
        def work(seed):
            rng = np.random.default_rng(seed)
            start.wait()
            for dtype in ("f4", "f8"):
                for name in "exp log sin cos tan tanh asin acos atanh pow atan2 hypot".split():
                    inputs = 2 if name in ("pow", "atan2", "hypot") else 1
                    for n in (1, 255, 256, 257, 5000):
                        x = [rng.uniform(0.01, 0.99, n).astype(dtype) for _ in range(inputs)]
                        got = below(n % 40, lambda: getattr(cukern, name)(*x))
                        if not np.array_equal(got, getattr(np, names.get(name, name))(*x)):
                            wrong.append((name, dtype, n))
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(wrong)
    """
    assert run_quietly(script, CUKERN_BACKEND="host", CUKERN_NUM_THREADS="1") == "[]\n"


def test_rows_in_pieces_give_the_same_bits_on_any_number_of_threads() -> None:
    script = """
        import hashlib, os, numpy as np, cukern
        rng = np.random.default_rng(5)
        bits = hashlib.sha256()
        is_checked = os.environ["CUKERN_NUM_THREADS"] == "2"  # the others give the same bits
        for shape, axis in [((700, 90), 0), ((600, 1500), 0), ((3, 513, 200), 1), ((70000, 64), 0), ((258, 33000), 0)]:
            few = os.environ.get("CUKERN_TEST_SMALL") == "1" or shape[-1] >= 10000
            for dtype in ("f4", "i1") if few else ("f4", "f8", "i4", "i8", "i1", "?", "c8"):
                x = rng.integers(-4, 5, shape).astype(dtype)
                if dtype[0] == "f":
                    x += rng.random(shape).astype(dtype)
                for name in ("sum", "prod", "max", "any", "var", "argmax", "argmin"):
                    if name == "prod" and x.dtype.kind in "fc":
                        continue  # overflows
                    got = getattr(cukern, name)(x, axis=axis)
                    bits.update(got.tobytes())
                    if not is_checked:
                        continue
                    wanted = getattr(np, name)(x, axis=axis)
                    if x.dtype.kind in "fc" and name in ("sum", "var"):
                        exact = x.astype("f8" if x.dtype.kind == "f" else "c16")
                        wanted = getattr(np, name)(exact, axis=axis)
                        scale = np.abs(exact).sum(axis) if name == "sum" else 9.0 ** 2
                        # Sums in pairs of groups of 32 rows.
                        error = (32 + 16) * np.finfo(x.dtype).eps * scale
                        assert (np.abs(got - wanted) <= error).all(), (shape, dtype, name)
                    else:
                        # NumPy adds one after the other.
                        rtol = 4 * shape[axis] * 2.0**-53 if name == "var" else 0
                        np.testing.assert_allclose(got, wanted, rtol=rtol)
        print(bits.hexdigest())
    """
    runs = [run_quietly(script, CUKERN_BACKEND="host", CUKERN_NUM_THREADS=n) for n in ("1", "2", "5")]
    assert len(set(runs)) == 1
