"""The whole matrices of faults, as ``make faults`` tries them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# The other matrices are tried cell by cell, in test_kubelet.py, test_proc.py and test_together.py.
LEAST_CELLS = {
    "Calls of NVML that hang": 380,
    "Changes in the middle of a poll": 24,
    "Files of sharing systems": 1300,
    "Errors of NVML": 4400,
}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]


@pytest.fixture(scope="module")
def report() -> str:
    """Try all cells once, and return what is printed."""
    command = [sys.executable, ROOT / "scripts/faults", *LEAST_CELLS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize("title", LEAST_CELLS)
def test_no_cell_of_a_matrix_breaks_a_claim(title: str, report: str) -> None:
    """Each fault, at each place, costs only what it is about, and the page recovers from it."""
    assert not re.findall(rf"^{title}: .*", report, re.MULTILINE)
    tried = re.findall(rf"^{title}, part \d+ of \d+: (\d+) cells in", report, re.MULTILINE)
    assert sum(map(int, tried)) >= LEAST_CELLS[title], report
