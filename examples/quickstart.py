"""The main job: NumPy arrays in, NumPy arrays out, on the GPU or without one."""

import time

import numpy as np

import cukern


def timed(name, call):
    """Run a call twice, the first time to warm up, and print how long the second took."""
    call()
    begin = time.perf_counter()
    result = call()
    print(f"  {name:<28}{(time.perf_counter() - begin) * 1e3:9.2f} ms")
    return result


def main():
    rng = np.random.default_rng(0)
    a = rng.random((2048, 2048), np.float32)
    b = rng.random((2048, 2048), np.float32)
    print(f"cukern {cukern.__version__} on the {cukern.backend()} back-end, two arrays of {a.shape} float32")

    total = timed("add(a, b)", lambda: cukern.add(a, b))
    assert np.array_equal(total, a + b)
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    products = [cukern.matmul, cukern.matmul_tiled]
    try:
        cukern.matmul_cublas(a[:2, :2], b[:2, :2])
        products.append(cukern.matmul_cublas)
    except RuntimeError as error:  # cuBLAS is optional
        print(f"  {error}")
    for product in products:
        result = timed(f"{product.__name__}(a, b)", lambda product=product: product(a, b))
        assert np.abs(result - wanted).max() / np.abs(wanted).max() < 1e-5

    before = a.copy()
    assert cukern.add(a, b, out=a) is a
    assert cukern.scale(a, 2.0, out=a) is a
    assert np.array_equal(a, (before + b) * np.float32(2))
    print("  all results agree with NumPy's")


if __name__ == "__main__":
    main()
