"""Random cases of the survey at small sizes, checked against NumPy; under a sanitizer, too, as all tests are."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "scripts")]
pytest.importorskip("survey", reason="the survey is not installed with the package")

import survey  # noqa: E402
from source_id import source_id  # noqa: E402
from survey_cases import OTHERS, ROWS, draw  # noqa: E402

pytestmark = pytest.mark.usefixtures("backend")
CASES = len(ROWS) + len(OTHERS)  # so that each is drawn
MOST = 5000  # elements


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("word", range(4, 8))
def test_cases_of_the_seed_that_the_sources_give(word: int) -> None:
    """Changed sources bring other cases; the survey on a GPU takes the words before these."""
    seed = int(source_id()[8 * word : 8 * word + 8], 16)
    for index, case in enumerate(draw(seed, CASES, MOST)):
        try:
            survey.Run(case).check(None)
        except Exception as error:
            raise AssertionError(f"case {index} of seed {seed}: {case}") from error
