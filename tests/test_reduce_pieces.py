"""The plan of reductions in pieces (cuda/src/plan/reduce_pieces.cpp), of arrays larger than any memory."""

import itertools
import math
import os
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.build

ROOT = Path(__file__).resolve().parent.parent
SLOTS = 1 << 17

# Reads limits and the kept and the reduced dimensions as lengths and strides, each list behind its length; prints how
# many pieces there are, and each one's results, elements, first result, first index and place.
SOURCE = """
#include <iostream>
#include "plan/reduce_pieces.h"
using namespace cukern;

int main() {
    ReduceLaunch launch;
    launch.op = Op::max;
    launch.type = launch.compute = ElementType::int8;  // so that places are counted in elements
    launch.in = launch.out = nullptr;
    PieceLimits limits;
    while (std::cin >> limits.reduced >> limits.elements >> limits.slots) {
        std::cin >> launch.num_kept;
        launch.kept = launch.reduced = 1;
        for (int d = 0; d < launch.num_kept; ++d) {
            std::cin >> launch.kept_shape[d] >> launch.kept_strides[d];
            launch.kept *= launch.kept_shape[d];
        }
        std::cin >> launch.num_reduced;
        for (int d = 0; d < launch.num_reduced; ++d) {
            std::cin >> launch.reduced_shape[d] >> launch.reduced_strides[d];
            launch.reduced *= launch.reduced_shape[d];
        }
        const ReducePieces pieces = plan_pieces(launch, limits);
        std::cout << pieces.num_kept << ' ' << pieces.num_reduced << ' ' << pieces.kept << ' ' << pieces.reduced;
        for (std::int64_t i = 0; i < pieces.num_kept; i += std::max<std::int64_t>(1, pieces.num_kept / 7))
            for (std::int64_t j = 0; j < pieces.num_reduced; ++j) {
                const ReduceLaunch piece = piece_of(launch, pieces, i, j);
                std::cout << ' ' << i << ' ' << piece.kept << ' ' << piece.reduced << ' '
                          << reinterpret_cast<std::intptr_t>(piece.out) << ' ' << piece.first_index << ' '
                          << reinterpret_cast<std::intptr_t>(piece.in);
            }
        std::cout << std::endl;
    }
}
"""

Dimensions = list[tuple[int, int]]  # length and stride


@pytest.fixture(scope="module")
def planner(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("pieces")
    (folder / "main.cpp").write_text("#include <algorithm>\n" + SOURCE)
    command = [
        os.environ.get("CXX", "g++"),
        "-std=c++17",
        "-O1",
        f"-I{ROOT / 'cuda/include'}",
        f"-I{ROOT / 'cuda/src'}",
    ]
    command += [str(folder / "main.cpp"), str(ROOT / "cuda/src/plan/reduce_pieces.cpp"), "-o", str(folder / "main")]
    subprocess.run(command, check=True)

    def plan(reduced: int, elements: int, kept_dims: Dimensions, reduced_dims: Dimensions) -> list[int]:
        numbers = [reduced, elements, SLOTS]
        for dims in (kept_dims, reduced_dims):
            numbers += [len(dims), *itertools.chain(*dims)]
        done = subprocess.run(
            [folder / "main"], input=" ".join(map(str, numbers)), capture_output=True, text=True, check=True
        )
        return [int(number) for number in done.stdout.split()]

    return plan


def place(index: int, dims: Dimensions) -> int:
    """Return the offset of an element, counted in C order."""
    offset = 0
    for length, stride in reversed(dims):
        index, along = divmod(index, length)
        offset += along * stride
    return offset


def size(dims: Dimensions) -> int:
    return math.prod(length for length, _ in dims)


CASES: dict[str, tuple[Dimensions, Dimensions]] = {
    "2^40 in one dimension": ([], [(1 << 40, 1)]),
    "2^40 + 1 in one dimension": ([], [((1 << 40) + 1, 1)]),
    "rows of 2^32 + 3": ([(5, (1 << 32) + 3)], [((1 << 32) + 3, 1)]),
    "columns of 2^33": ([(2, 1)], [(1 << 33, 2)]),
    "2^20 columns of 2^20": ([(1 << 20, 1)], [(1 << 20, 1 << 20)]),
    "2^37 short rows": ([(1 << 37, 7)], [(7, 1)]),
    "reduced, kept, reduced, backwards": ([(1000, 3000)], [(1 << 30, 3_000_000), (3000, -1)]),
    "many dimensions": ([(1 << 8, 1 << 30), (3, 1 << 20)], [(1 << 9, 1 << 21), (1 << 9, 1 << 11), (1 << 10, 1)]),
    "broadcast": ([(1 << 16, 0)], [(1 << 16, 0), (1 << 8, 0)]),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("elements", [1 << 27, 0])
def test_pieces_cover_all(planner: Any, name: str, elements: int) -> None:
    kept_dims, reduced_dims = CASES[name]
    kept_size, reduced_size = size(kept_dims), size(reduced_dims)
    most = (1 << 31) - (1 << 22)
    num_kept, num_reduced, kept, reduced, *found = planner(
        most, elements or min(most * kept_size, 1 << 62), kept_dims, reduced_dims
    )
    assert 1 <= reduced <= most
    if num_reduced > 1 and kept > 1:  # of one result there may be more: they are joined in rounds
        assert num_reduced * kept <= SLOTS
    pieces = list(zip(*[iter(found)] * 6, strict=True))
    by_results: dict[int, list[tuple[int, ...]]] = {}
    for piece in pieces:
        by_results.setdefault(piece[0], []).append(piece)
    assert 0 in by_results
    for number, parts in by_results.items():
        assert len(parts) == num_reduced
        first_result, index = parts[0][3], 0
        assert first_result == 0 or number > 0
        for _, piece_kept, piece_reduced, result, first, offset in parts:
            assert (result, first) == (first_result, index)
            assert 1 <= piece_kept <= kept
            assert 1 <= piece_reduced <= reduced
            assert offset == place(result, kept_dims) + place(first, reduced_dims)
            index += piece_reduced
        assert index == reduced_size  # the indices of the elements follow each other, to the last
        if number == num_kept - 1:
            assert first_result + parts[0][1] == kept_size
    assert (num_kept == 1) == (by_results[0][0][1] == kept_size)


def test_random_shapes(planner: Any) -> None:
    draw = random.Random(5)
    for _ in range(60):
        lists: list[Dimensions] = [
            [(draw.randint(2, 40), draw.randint(-50, 50)) for _ in range(draw.randint(low, 3))] for low in (0, 1)
        ]
        most, elements = draw.choice([(10**6, 500), (37, 10**9), (100, 1000), (20, 20)])
        num_kept, num_reduced, _, reduced, *found = planner(most, elements, *lists)
        assert reduced <= most
        pieces = list(zip(*[iter(found)] * 6, strict=True))
        seen = {piece[0] for piece in pieces}
        assert len(pieces) == len(seen) * num_reduced
        for _, _, _, result, first, offset in pieces:
            assert offset == place(result, lists[0]) + place(first, lists[1])
        if len(seen) == num_kept:  # all were printed
            assert sum(piece[1] * piece[2] for piece in pieces) == size(lists[0]) * size(lists[1])
