"""The choice of the back-end, what import does, and `python -m cukern`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import HAS_GPU
from processes import run_quietly

import cukern
from cukern import _cukern

HAS_CUDA = _cukern._information()["runtime"] != 0  # else a host-only build


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh process, with the choice of the back-end as given."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CUKERN_")}
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env={**clean, **environment},
        check=False,
    )


def output(code: str, **environment: str) -> str:
    """Return what code prints; it must not fail or warn."""
    done = run(code, **environment)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


BACKEND = "import cukern; print(cukern.backend())"


def test_auto_takes_what_is_there() -> None:
    wanted = "cuda" if HAS_GPU else "host"
    assert output(BACKEND) == wanted
    assert output(BACKEND, CUKERN_BACKEND="auto") == wanted
    assert output(BACKEND, CUKERN_BACKEND="") == wanted


def test_host_can_be_asked_for() -> None:
    assert output(BACKEND, CUKERN_BACKEND="host") == "host"


@pytest.mark.gpu
def test_cuda_can_be_asked_for() -> None:
    assert output(BACKEND, CUKERN_BACKEND="cuda") == "cuda"


@pytest.mark.provokes_cuda_error
def test_cuda_where_there_is_none_is_an_error_with_its_cause() -> None:
    done = run(BACKEND, CUKERN_BACKEND="cuda", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 1
    assert "RuntimeError: backend: " in done.stderr
    assert "host back-end only" in done.stderr or "CUKERN_BACKEND=cuda, but there is no usable device" in done.stderr


def test_every_call_reports_a_missing_backend() -> None:
    code = "import cukern\ntry: cukern.add(1, 2)\nexcept RuntimeError as e: print(e)\ncukern.matmul_tiled"
    text = output(code, CUKERN_BACKEND="gpu")
    assert text == "add: CUKERN_BACKEND is 'gpu'; expected cuda, host or auto"


@pytest.mark.gpu
@pytest.mark.provokes_cuda_error
def test_no_visible_device_falls_back_silently() -> None:
    assert output(BACKEND, CUDA_VISIBLE_DEVICES="") == "host"


@pytest.mark.provokes_cuda_error
@pytest.mark.skipif(not HAS_CUDA, reason="a host-only build looks for no driver")
def test_an_old_driver_falls_back_with_one_warning(tmp_path: Path) -> None:
    source = tmp_path / "driver.c"
    source.write_text("int cuDriverGetVersion(int *v) { *v = 11040; return 0; } int cuInit(unsigned f) { return 0; }")
    library = tmp_path / "libcuda.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", source, "-o", library], check=True)
    code = "import cukern; print(cukern.backend(), cukern.add(1, 2)); print(cukern.backend())"
    done = run(code, LD_LIBRARY_PATH=str(tmp_path))
    assert done.stdout == "host 3\nhost\n"
    assert done.stderr.count("RuntimeWarning") == 1
    assert "cukern uses the CPU although a CUDA driver is installed: the NVIDIA driver supports CUDA" in done.stderr
    assert "cukern needs 1" in done.stderr
    done = run(code, LD_LIBRARY_PATH=str(tmp_path), CUKERN_BACKEND="cuda")
    assert "but there is no usable device: the NVIDIA driver supports" in done.stderr


def test_import_touches_no_driver() -> None:
    code = """
import sys
def loaded():
    return {line.split()[-1] for line in open("/proc/self/maps") if "libcu" in line or "libnv" in line}
before = loaded()
import cukern
print(loaded() - before, "cuda" in sys.modules, "cuda.pathfinder" in sys.modules)
"""
    assert output(code) == "set() False False"


@pytest.mark.gpu
def test_first_use_opens_the_driver() -> None:
    code = "import cukern; cukern.backend(); print(any('libcuda.so' in line for line in open('/proc/self/maps')))"
    assert output(code) == "True"


def test_import_is_quick() -> None:
    code = "import time, numpy; t = time.perf_counter(); import cukern; print(time.perf_counter() - t)"
    assert min(float(output(code)) for _ in range(5)) < 0.015


def test_what_few_need_is_imported_when_it_is_used() -> None:
    names = "[name for name in sys.modules if name.startswith('cukern._')]"
    assert output(f"import sys, cukern; print({names})") == "['cukern._cukern', 'cukern._namespace']"
    code = "import cukern; from cukern import *; print(fuse is cukern.fuse, 'allclose' in dir(cukern))"
    assert output(code) == "True True"
    with pytest.raises(AttributeError, match="module 'cukern' has no attribute 'nothing'"):
        _ = cukern.nothing


def test_pretend_devices() -> None:
    code = "from cukern import _cukern; print(len(_cukern._information()['devices']))"
    assert output(code, CUKERN_BACKEND="host", CUKERN_HOST_DEVICES="2") == "2"
    assert output(code, CUKERN_BACKEND="host") == "1"


def test_one_thread_is_enough() -> None:
    code = "import cukern, numpy as np; a = np.ones(10**6); print((cukern.add(a, a) == 2).all())"
    assert output(code, CUKERN_BACKEND="host", CUKERN_NUM_THREADS="1") == "True"


def test_without_the_pool_nothing_is_cached() -> None:
    code = """
import cukern, numpy as np
from cukern import _cukern
_cukern._set_staging(True, 0, 0)
cukern.add(np.ones(99), 1)
in_use, cached = _cukern._block_usage()
print(in_use, cached > 0)
"""
    assert output(code, CUKERN_PLACEMENT="device", CUKERN_POOL="0") == "0 False"
    assert output(code, CUKERN_PLACEMENT="device") == "0 True"


def test_a_second_interpreter_is_refused() -> None:
    name = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"
    code = f"""
import {name} as interpreters
script = '''
try:
    import cukern
except ImportError as error:
    print(error)
'''
print(end="", flush=True)
try:
    interpreters.run_string(interpreters.create(), script)
except Exception as error:
    print(error)
"""
    text = output(code)
    assert "sub" in text and "interpreter" in text


def test_command_line() -> None:
    done = subprocess.run([sys.executable, "-m", "cukern"], capture_output=True, text=True, check=True)
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert lines["cukern"].startswith(cukern.__version__)
    assert lines["back-end"].split(":")[0] in ("cuda", "host")
    for name in ("Python", "CUDA", "device", "cuBLAS"):
        assert lines[name]
    if HAS_GPU:
        assert "compute capability" in lines["device"]


def test_command_line_without_the_backend_asked_for() -> None:
    environment = {**os.environ, "CUKERN_BACKEND": "nothing"}
    done = subprocess.run(
        [sys.executable, "-m", "cukern"], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 1
    assert "back-end    none: information: CUKERN_BACKEND is 'nothing'" in done.stdout


@pytest.mark.gpu
def test_cublas_is_not_there() -> None:
    """Without cuBLAS matmul uses the tiled kernel, and matmul_cublas says what was tried."""
    code = """
import sys
sys.modules["cuda.pathfinder"] = None
import cukern, numpy as np
a = np.ones((200, 200), np.float32)
assert (cukern.matmul(a, a) == 200).all()
try:
    cukern.matmul_cublas(a, a)
except RuntimeError as error:
    print(error)
else:
    print("found")
"""
    text = output(code, LD_LIBRARY_PATH="")
    if text != "found":  # the system itself may have it where the loader looks
        assert "matmul_cublas: cuBLAS could not be opened; tried cuda-pathfinder (" in text
        assert "libcublas.so.13 (" in text
        assert "pip install cukern[cublas]" in text


@pytest.mark.gpu
@pytest.mark.provokes_cuda_error
def test_a_lost_device_fails_fast_with_its_first_cause() -> None:
    code = """
import ctypes, cukern, numpy as np
library = ctypes.CDLL(cukern.library_path())
shape = (ctypes.c_int64 * 1)(1 << 20)
stride = (ctypes.c_int64 * 1)(1)
wild = ctypes.c_void_p(1 << 20)
cukern.add(1, 2)
library.cukern_add_f32_dev(wild, stride, wild, stride, wild, stride, shape, 1, 0, None)
causes = set()
for _ in range(3):
    try:
        cukern.add(np.ones(100_000), 1)
    except cukern.DeviceLostError as error:
        causes.add(str(error))
        assert error.name == "cudaErrorIllegalAddress" and error.code == 700, error
print(len(causes), causes.pop())
"""
    done = run(code, CUKERN_PLACEMENT="device")
    assert done.returncode == 0, done.stderr  # and no destructor aborts
    assert done.stdout.startswith("1 add: cuda")


FORKS = """
    import os, threading
    import numpy as np, cukern
    from cukern import _cukern
    _cukern._information()
    stop = threading.Event()
    def work():
        while not stop.is_set():
            _cukern._information()
            cukern.from_dlpack(np.ones(3)) + 1
            cukern.add(np.ones(100_000), 1)
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(60):
        child = os.fork()
        if child == 0:
            _cukern._information()
            good = cukern.add(np.ones(100_000), 1).sum() == 200_000 and cukern.ones(2).tolist() == [1, 1]
            os._exit(0 if good else 1)
        assert os.waitpid(child, 0)[1] == 0
    stop.set()
    for thread in threads:
        thread.join()
"""


@pytest.mark.unsanitized  # ThreadSanitizer knows no fork of a process with threads
def test_children_of_fork_find_no_lock_held() -> None:
    assert run_quietly(FORKS, CUKERN_BACKEND="host") == ""
