"""The whole matrices of faults, as ``make faults`` tries them; the other files here try a few cells."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.matrices import MATRICES

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("title", MATRICES)
def test_no_cell_of_a_matrix_breaks_a_claim(title: str) -> None:
    """Each fault, at each place, costs only what it is about, and the page recovers from it."""
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/faults", title], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
