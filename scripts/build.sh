#!/usr/bin/env bash
# Builds, tests and packages cukern: TASK=name ./scripts/build.sh [arguments]. Without TASK it prints the tasks.
set -euo pipefail
cd "$(dirname "$0")/.."

VENV="${CUKERN_VENV:-$PWD/.venv}"
BIN="$VENV/bin"

usage() {
    cat <<'TEXT'
TASK=name ./scripts/build.sh

  install_environment  make .venv with what the other tasks need
  demo                 build, install, and run examples/quickstart.py, on the GPU or without one
  run_tests            build, install, and run the tests [pytest's arguments]
  soak                 random calls from a seed in several processes [scripts/soak.py's arguments]
  run_sanitizers       the tests on the host back-end under the sanitizers: address, thread, kernels, or all
  build_wheel          a manylinux wheel in wheelhouse/ (CUKERN_CUDA_ARCHS: 90, 80;90 or all-major)
  test_install_wheel   install that wheel for each Python 3.11 to 3.13 present; run the tests, half the cases on each
  build_library        libcukern.so and its headers in build/library, for programs without Python
  lint                 formatters, linters, type checkers
  array_api_tests      the array API standard's own tests on the host back-end; ARRAY_API_TESTS: a checkout of them
  cupy_examples        CuPy's examples of kernels on a GPU, with cukern in its place; CUPY_CHECKOUT: a checkout of CuPy
  torch_versions       the tests of cukern.torch with the last three versions of torch, or those that are named;
                       with --wheel a wheel's, else what is built here
  gpu_report           on a machine with a GPU: docs/gpu-report.md (PARTS=suite,memcheck,racecheck,...)
  cleanup              remove what the tasks made

Variables: CUKERN_HOST_ONLY=1 builds without CUDA, =0 with it (default: with it where a GPU is present);
CUKERN_CUDA_ARCHS, CUKERN_NVCC, CUDA_HOME, CUKERN_BACKEND, CUKERN_REQUIRE_GPU: see README.md.
TEXT
}

say() { printf '\n== %s\n' "$*"; }

fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

is_recent() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    local candidate
    for candidate in "${PYTHON:-python3}" python3.13 python3.12 python3.11; do
        if command -v "$candidate" >/dev/null && is_recent "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    fail "no Python 3.11 or later was found; install it with: apt-get install python3 python3-venv"
}

# The requirements of an extra, and of the build, as pyproject.toml lists them.
requirements() {
    "$BIN/python" - "$@" <<'PY'
import sys, tomllib
with open("pyproject.toml", "rb") as file:
    data = tomllib.load(file)
for extra in sys.argv[1:]:
    print("\n".join(data["project"]["optional-dependencies"][extra]))
print("\n".join(data["build-system"]["requires"] + data["project"]["dependencies"]))
PY
}

install_extras() {
    local stamp wanted
    stamp="$VENV/.extras-$*"
    stamp="${stamp// /-}"
    wanted="$(requirements "$@")"
    if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$wanted" ]; then
        mapfile -t packages <<<"$wanted"
        "$BIN/python" -m pip install --quiet --disable-pip-version-check "${packages[@]}"
        printf '%s' "$wanted" >"$stamp"
    fi
}

task_install_environment() {
    local python
    if [ ! -x "$BIN/python" ]; then
        python="$(find_python)"
        command -v "${CXX:-g++}" >/dev/null || fail "no C++ compiler was found; install one with: apt-get install g++"
        "$python" -c 'import venv, ensurepip' 2>/dev/null ||
            fail "$python has no venv; install it with: apt-get install python3-venv"
        say "making $VENV with $("$python" --version)"
        "$python" -m venv "$VENV"
        "$BIN/python" -m pip install --quiet --disable-pip-version-check --upgrade pip
    fi
    command -v "${CXX:-g++}" >/dev/null || fail "no C++ compiler was found; install one with: apt-get install g++"
    install_extras test
}

has_gpu() { command -v nvidia-smi >/dev/null && nvidia-smi --list-gpus >/dev/null 2>&1; }

has_toolkit() {
    "$BIN/python" -c 'import sys; sys.path.insert(0, "build_backend")
from toolchain import find_toolkit; sys.exit(find_toolkit().toolkit is None)'
}

# For the machine at hand: its own GPU's kernels, or none. A toolkit that is missing is fetched as wheels, which
# needs pip's build isolation; without that need the build uses .venv and no network.
install_package() {
    if [ -z "${CUKERN_HOST_ONLY:-}" ]; then
        if has_gpu; then
            export CUKERN_HOST_ONLY=0
            if [ -z "${CUKERN_CUDA_ARCHS:-}" ]; then
                CUKERN_CUDA_ARCHS="$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | tr -d . | sort -u |
                    paste -sd ';')"
                export CUKERN_CUDA_ARCHS
            fi
        else
            export CUKERN_HOST_ONLY=1
        fi
    fi
    local isolation=(--no-build-isolation)
    if [ "$CUKERN_HOST_ONLY" != 1 ] && ! has_toolkit; then isolation=(); fi
    if [ "$CUKERN_HOST_ONLY" = 1 ]; then
        say "building the host back-end (no GPU was found; CUKERN_HOST_ONLY=0 builds the kernels all the same)"
    else
        say "building for compute capability ${CUKERN_CUDA_ARCHS:-all-major}"
    fi
    "$BIN/python" -m pip install --quiet --disable-pip-version-check --no-deps "${isolation[@]}" --editable .
}

task_demo() {
    task_install_environment
    install_package
    say "examples/quickstart.py"
    "$BIN/python" examples/quickstart.py
}

task_run_tests() {
    task_install_environment
    install_package
    "$BIN/python" -m cukern
    if [ $# -gt 0 ]; then
        "$BIN/python" -m pytest "$@"
        return
    fi
    # Tests that build take the longest. The others run beside them at a lower priority: in two halves without a GPU, in
    # one process with one, since some tests look at all of its memory.
    local logs job first=(tests) jobs=() failed=0
    logs="$(mktemp -d)"
    "$BIN/python" -m pytest -p no:cacheprovider -m build >"$logs/tests that build" 2>&1 &
    jobs+=($!)
    if ! has_gpu; then
        first=(tests/test_[a-l]*.py)
        nice "$BIN/python" -m pytest -p no:cacheprovider -m "not build" tests/test_[!a-l]*.py \
            >"$logs/the other half" 2>&1 &
        jobs+=($!)
    fi
    nice "$BIN/python" -m pytest -m "not build" "${first[@]}" || failed=$?
    for job in "${jobs[@]}"; do wait "$job" || failed=$?; done
    (cd "$logs" && for log in *; do say "$log" && cat "$log"; done)
    rm -r "$logs"
    return "$failed"
}

task_run_sanitizers() {
    task_install_environment
    "$BIN/python" scripts/sanitizers.py "$@"
}

task_build_wheel() {
    task_install_environment
    install_extras wheel
    local isolation=(--no-isolation)
    if [ "${CUKERN_HOST_ONLY:-0}" != 1 ] && ! has_toolkit; then isolation=(); fi
    rm -rf dist wheelhouse
    say "building for ${CUKERN_CUDA_ARCHS:-all-major}"
    "$BIN/python" -m build --wheel "${isolation[@]}" >build.log 2>&1 || {
        tail -n 60 build.log >&2
        fail "the build failed; build.log has all of it"
    }
    rm build.log
    PATH="$BIN:$PATH" "$BIN/python" -m auditwheel repair --exclude 'libcu*' --zip-compression-level 9 \
        --wheel-dir wheelhouse dist/*.whl
    "$BIN/abi3audit" --strict --summary wheelhouse/*.whl
    "$BIN/python" scripts/check_wheel.py wheelhouse/*.whl
}

# A Python of a minor version: on PATH, or one that pyenv has made.
find_minor() {
    local candidate
    for candidate in "python$1" "$HOME/.pyenv/versions/$1".*/bin/python; do
        if "$candidate" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
}

# The wheel in a fresh environment of one Python, and a share of each test's cases on it.
test_wheel_on() {
    local python="$1" wheel="$2" share="$3" folder failed=0
    shift 3
    folder="$(mktemp -d)"
    "$python" -m venv "$folder/venv"
    "$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "${wheel}[test]"
    cp -r tests pyproject.toml "$folder"
    # Temporary files in a folder of its own: where pytest processes share one, they trip over what another removes.
    (cd "$folder" && venv/bin/python -m cukern &&
        CUKERN_TEST_SHARE="$share" venv/bin/python -m pytest -q -m "not build" --basetemp=temporary "$@") || failed=$?
    rm -rf "$folder"
    return "$failed"
}

# All Pythons side by side. Each runs every test, and of a test's many cases one half. 3.12 and 3.13 run all cases
# between them: thirds would not do, since 3.11 has an older NumPy.
task_test_install_wheel() {
    local wheel=(wheelhouse/*.whl) minor python i failed=0 minors=() pythons=() shares logs=() jobs=()
    [ -f "${wheel[0]}" ] || fail "there is no wheel in wheelhouse/; make one with: TASK=build_wheel ./scripts/build.sh"
    for minor in 3.11 3.12 3.13; do
        python="$(find_minor "$minor")"
        [ -n "$python" ] || continue
        minors+=("$minor")
        pythons+=("$python")
    done
    [ "${#pythons[@]}" -gt 0 ] || fail "no Python 3.11, 3.12 or 3.13 was found"
    shares=$((${#pythons[@]} > 1 ? 2 : 1))
    for i in "${!pythons[@]}"; do
        logs+=("$(mktemp)")
        test_wheel_on "${pythons[$i]}" "$PWD/${wheel[0]}" "$((i % shares))/$shares" "$@" >"${logs[-1]}" 2>&1 &
        jobs+=("$!")
    done
    for i in "${!jobs[@]}"; do
        wait "${jobs[$i]}" || failed=$?
        say "${wheel[0]} on Python ${minors[$i]}"
        cat "${logs[$i]}"
        rm "${logs[$i]}"
    done
    [ "$failed" = 0 ] || fail "the wheel failed; see above"
    say "the wheel passed on ${#jobs[@]} Pythons"
}

# A venv of another Python that runs the extension built for .venv's, which is the same for all.
soak_venv() {
    local python="$1" folder="build/soak/venv-$2"
    if [ ! -f "$folder/.ready" ]; then
        rm -rf "$folder"
        "$python" -m venv "$folder"
        "$folder/bin/python" -m pip install --quiet --disable-pip-version-check \
            numpy ml_dtypes cuda-pathfinder pytest hypothesis && touch "$folder/.ready"
    fi
}

task_soak() {
    task_install_environment
    install_package
    local minor python own pythons=("$BIN/python")
    own="$("$BIN/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
    for minor in 3.11 3.12 3.13; do
        python="$(find_minor "$minor")"
        if [ -z "$python" ] || [ "$minor" = "$own" ]; then continue; fi
        soak_venv "$python" "$minor" || {
            say "left out, since its packages could not be installed: Python $minor"
            continue
        }
        pythons+=("$PWD/build/soak/venv-$minor/bin/python")
    done
    "$BIN/python" scripts/soak.py --python "${pythons[@]}" "$@"
}

task_build_library() {
    task_install_environment
    "$BIN/python" scripts/build_library.py "$@"
}

task_lint() {
    task_install_environment
    install_extras lint
    local sources tidy
    mapfile -t sources < <(find cuda ext -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh')
    say "clang-format"
    "$BIN/clang-format" --dry-run --Werror "${sources[@]}"
    say "ruff"
    "$BIN/ruff" check .
    "$BIN/ruff" format --check .
    say "mypy"
    if [ ! -f python/cukern/_cukern.pyi ]; then CUKERN_HOST_ONLY=1 install_package; fi
    "$BIN/mypy" python/cukern
    say "clang-tidy"
    mapfile -t tidy < <("$BIN/python" -c 'import numpy, sysconfig
print("-isystem", sysconfig.get_path("include"), "-isystem", numpy.get_include(), sep="\n")')
    tidy+=(-std=c++17 -x c++ -Icuda/include -iquotecuda/src -iquoteext -DPy_LIMITED_API=0x030B0000 '-DCUKERN_VERSION="0"')
    # The slowest first, so that no core waits for it; with the types for which host/kernels.h lets functions be made.
    local slow=cuda/src/host/formula_loops.cpp
    # shellcheck disable=SC2016  # bash -c expands them
    {
        printf '%s\0' float32 "$slow" int8 "$slow" bool_ "$slow"
        find ext cuda/src -path cuda/src/device -prune -o -path "$slow" -o -name '*.cpp' -printf 'float32\0%p\0'
    } | xargs -0 -n 2 -P "$(nproc)" bash -c '"$0" --quiet --warnings-as-errors="*" "${@: -1}" -- \
        "${@:1:$#-2}" "-DCUKERN_EACH_TYPE(X)=X(${*: -2:1})" 2>/dev/null' "$BIN/clang-tidy" "${tidy[@]}"
    if command -v shellcheck >/dev/null; then
        say "shellcheck"
        shellcheck scripts/build.sh .ci/run
    fi
    if command -v actionlint >/dev/null; then
        say "actionlint"
        actionlint
    fi
}

# Their elementwise, special-case, statistical and DLPack files; what NumPy fails too is listed with reasons. The
# list's path is behind a '=': as a word of its own pytest takes its folder, and with it our settings, for the root.
task_cupy_examples() {
    task_install_environment
    install_package
    "$BIN/python" scripts/cupy_examples.py "$@"
}

task_array_api_tests() {
    [ -n "${ARRAY_API_TESTS:-}" ] ||
        fail "ARRAY_API_TESTS is not set; it names a checkout of github.com/data-apis/array-api-tests, with its submodule"
    task_install_environment
    install_extras array-api
    CUKERN_HOST_ONLY=1 install_package
    local xfails="$PWD/tests/array_api_xfails.txt" files=()
    for name in operators_and_elementwise_functions special_cases statistical_functions dlpack; do
        files+=("array_api_tests/test_$name.py")
    done
    for name in matmul tensordot vecdot; do files+=("array_api_tests/test_linalg.py::test_$name"); done
    (cd "$ARRAY_API_TESTS" && ARRAY_API_TESTS_MODULE=cukern CUKERN_BACKEND=host "$BIN/python" -m pytest -q -rfE \
        --disable-warnings -p no:cacheprovider --disable-deadline --xfails-file="$xfails" \
        "${files[@]}" "$@")
}

task_torch_versions() {
    task_install_environment
    CUKERN_HOST_ONLY=1 install_package
    "$BIN/python" scripts/torch_versions.py "$@"
}

task_gpu_report() {
    # The Python at hand: on a GPU host it is the one that holds torch and CuPy. It can have cukern from a wheel.
    "${PYTHON:-python3}" scripts/gpu_report.py "$@"
}

task_cleanup() {
    rm -rf build dist wheelhouse .venv build.log python/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
    rm -f python/cukern/*.so python/cukern/*.pyi
    find . -name __pycache__ -type d -prune -exec rm -rf {} +
}

if [ -z "${TASK:-}" ]; then
    usage
    if [ $# -gt 0 ]; then fail "no task was given; tasks are named by TASK: TASK=$1 ./scripts/build.sh"; fi
elif declare -F "task_$TASK" >/dev/null; then
    "task_$TASK" "$@"
else
    usage >&2
    fail "there is no task '$TASK'"
fi
