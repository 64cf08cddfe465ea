"""Runs tests on a GPU under the tools of compute-sanitizer, and reads what these report."""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from gpu_tests import counts, environment, failures, of_all_files, pytest, run, run_files

TOOLS = ["memcheck", "racecheck", "synccheck", "initcheck"]
# For the tools that follow every access to memory: at least one test a kernel template.
KERNEL_TESTS = [
    "test_elementwise.py::test_contiguous[cuda-add]",
    "test_elementwise.py::test_contiguous[cuda-divide]",
    "test_elementwise.py::test_element_types_and_special_values",
    "test_selections.py::test_broadcasting",
    "test_selections.py::test_where[cuda-float32]",
    *(f"test_reductions.py::test_sizes[cuda-{row}]" for row in ("sum", "max", "argmax", "any")),
    *(
        f"test_reduction_layouts.py::test_work_for_all_multiprocessors[{row}-cuda]"
        for row in ("sum-float32", "argmax-int8", "var-float16", "any-complex128")
    ),
    "test_reduction_layouts.py::test_axes[cuda-mean]",
    "test_reduction_layouts.py::test_columns_of_few_elements[cuda-argmax-int8]",
    "test_reduction_layouts.py::test_short_rows_of_windows[cuda-sum-complex64]",
    "test_cumulative.py::test_sizes[cuda-cumulative_sum-float32]",
    "test_cumulative.py::test_axes[cuda-cumulative_prod-complex64]",
    "test_layouts.py::test_two_operands[cuda-transposed-float32]",
    "test_layouts.py::test_two_operands[cuda-row-float16]",
    "test_layouts.py::test_copies[cuda-transposed and backwards]",
    "test_layouts.py::test_more_dimensions[cuda-int8]",
    "test_layouts.py::test_rows_that_begin_anywhere[cuda-sqrt]",
    "test_layouts.py::test_packed_conversions[cuda-uint16]",
    "test_reduction_layouts.py::test_many_dimensions",
    "test_elementwise.py::test_dimensions_that_do_not_merge",
    "test_elementwise.py::test_sixty_four_dimensions",
    "test_elementwise.py::test_the_main_job",
    "test_matmul.py::test_integers_are_exact_and_wrap",
    "test_matmul.py::test_large_transposed",
    "test_matmul.py::test_layouts[cuda-float64-matmul_tiled]",
    "test_product_kernels.py::test_shapes[cuda-float32-NN]",
    "test_product_kernels.py::test_vectors_amid_nan[cuda-float32-NN]",
    "test_product_kernels.py::test_short_sums_amid_nan[cuda-float64-TN]",
    "test_product_kernels.py::test_shapes[cuda-float32-TT]",
    "test_product_kernels.py::test_shapes[cuda-float64-NT]",
    "test_product_kernels.py::test_sums_that_blocks_share[cuda-float32]",
    "test_product_kernels.py::test_sums_that_blocks_share[cuda-complex128]",
    "test_product_kernels.py::test_results_in_columns[cuda-float64]",
    "test_product_kernels.py::test_small_matrices_amid_nan[cuda-float32-NN]",
    "test_product_kernels.py::test_small_matrices_amid_nan[cuda-float64-TN]",
    "test_elementwise_kernel.py::TestResults::test_layouts[gpu]",
    "test_elementwise_kernel.py::TestResults::test_rows_columns_and_windows[gpu]",
    "test_reduction_kernel.py::TestResults::test_layouts[gpu]",
    "test_reduction_kernel.py::TestResults::test_indices_and_no_identity[gpu]",
    "test_fuse.py::TestArguments::test_results[gpu]",
    "test_raw_kernel.py::TestLaunches::test_three_ways",
    "test_graphs.py::TestCalls::test_kernels_of_ones_own[cuda]",
    "test_graphs.py::TestCalls::test_branches_share_no_memory[cuda]",
]
# Whatever a tool tells of its own accord: what follows is indented.
FINDING = r"^========= (?!COMPUTE-SANITIZER|[A-Z]+ SUMMARY|Target application returned an error)\S.*"
KERNEL_TEMPLATES = [
    *(
        "contiguous_kernel",
        "strided_kernel",
        "matmul_tiled_kernel",
        "matmul_sliced_kernel",
        "matmul_direct_kernel",
        "matmul_short_kernel",
        "matmul_vector_kernel",
        "matmul_elements_kernel",
        "join_tiles_kernel",
        "rows_kernel",
        "short_rows_kernel",
    ),
    *("columns_kernel", "short_columns_kernel", "combine_kernel", "broadcast_kernel", "transpose_kernel"),
    *("interleaved_kernel", "where_kernel", "convert_kernel"),
    *("scan_lines_kernel", "scan_columns_kernel", "clear_totals_kernel"),
]
QUESTION = (
    r"on CUDA API call to cuGetProcAddress|CUDA_ERROR_INVALID_VALUE .* to cuKernelGetParamInfo"
    r"|CUDA_ERROR_NOT_FOUND .* to cuLibraryGet(?:Kernel|Global|Managed)\b"
)


def findings(log: str) -> tuple[list[str], list[str]]:
    """Return the findings of a sanitizer's log: those that count, and those that are other libraries' way.

    Whose memory and whose call it was is not known, so that all count but questions that the driver answers by an
    error: which functions it has, how many parameters a kernel has, and whether an image has a kernel or a variable of
    a name.
    """
    ours, others = [], []
    for block in re.split(r"\n=========\s*\n", log):
        found = re.search(FINDING, block, re.MULTILINE)
        if found is None:
            continue
        text = found[0].removeprefix("========= ")
        where = re.search(r"    (at .*)", block)
        if where is not None:
            text += f", {where[1][:160]}"
        (others if re.search(QUESTION, text) else ours).append(text)
    return ours, others


def sanitize(tool: str, command: list[str]) -> dict[str, Any]:
    """Run a command under a tool of compute-sanitizer; return what it reported."""
    env = environment(CUKERN_POOL="0", CUKERN_TEST_SMALL="1", CUKERN_TEST_SANITIZED="1")
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        # A backtrace of the host keeps the frames of Python that it names, and with them what tests expect to go.
        options = f"--tool {tool} --show-backtrace device --print-limit 1000 --error-exitcode 0".split()
        options += ["--log-file", f"{log}.%p"]
        status, text = run(["compute-sanitizer", *options, *command], env)
        content = "\n".join(path.read_text(errors="replace") for path in sorted(Path(folder).glob("log.*")))
    ours, others = findings(content)
    summaries = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) (?:error|hazard)", content)
    return {
        "status": status,
        "text": text,
        "findings": ours,
        "findings_elsewhere": others,
        "reported_errors": sum(map(int, summaries)),
        "summaries": len(summaries),
    }


def run_sanitizer(tool: str) -> dict[str, Any]:
    planted = sanitize(tool, [sys.executable, "scripts/planted_defects.py", tool])
    whole = tool == "memcheck"
    left_out = "not provokes_cuda_error and not build"
    if whole:
        files = run_files(tool, lambda file: sanitize(tool, pytest(file, "-m", f"gpu and {left_out}")))
        result = of_all_files(files)
        del result["skips"]  # most tests are left out at small sizes
        for key in ("findings", "findings_elsewhere", "reported_errors", "summaries"):
            parts = [each[key] for each in files.values()]
            result[key] = sum(parts) if isinstance(parts[0], int) else [line for part in parts for line in part]
    else:
        command = pytest(*[f"tests/{test}" for test in KERNEL_TESTS], "-k", "cuda or gpu")
        result = sanitize(tool, command)
        text = result.pop("text")
        result |= {"counts": counts(text), "failures": failures(text)}
    result["planted_defect_found"] = bool(planted["findings"] or planted["findings_elsewhere"])
    if whole:
        _, names = run(pytest("tests", "-m", "provokes_cuda_error", "--collect-only"), environment())
        result["run_without"] = re.findall(r"^(tests/\S+::\S+)", names, re.MULTILINE)
        status, text = run(pytest("tests", "-m", "provokes_cuda_error"), environment())
        result["counts_without"] = counts(text)
        result["status"] = result["status"] or status
    else:
        result["tests"] = KERNEL_TESTS
        result["kernel_templates"] = KERNEL_TEMPLATES
    return result
