"""A second of ``make fuzz`` for each decoder: inputs that are guided by the code that they reach.

One second of the processor reaches nearly all code that six reach (docs/decisions.md).
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.together.fuzz.every import TARGETS
from tests.together.fuzz.report import outcome_of
from tests.tools import lacks

ROOT = Path(__file__).parents[3]
SECONDS = 1

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def fuzzer() -> Iterator[subprocess.Popen[str]]:
    """Start the process that runs a target for each line of its input."""
    if find_spec("atheris") is None:
        lacks("atheris is not installed (make fuzz)")
    command = [sys.executable, "-m", "tests.together.fuzz.guided", "--serve"]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        yield running


@pytest.mark.parametrize("name", [target.name for target in TARGETS])
def test_a_decoder_keeps_its_promises_on_guided_inputs(
    fuzzer: subprocess.Popen[str], name: str, tmp_path: Path
) -> None:
    assert fuzzer.stdin is not None
    assert fuzzer.stdout is not None
    fuzzer.stdin.write(f"{json.dumps([name, str(tmp_path), '--seconds', str(SECONDS)])}\n")
    fuzzer.stdin.flush()
    assert fuzzer.stdout.readline()
    output = (tmp_path / f"{name}.log").read_text("utf-8", "replace")
    outcome = outcome_of(name, output, tmp_path)

    assert outcome.findings == {}, output
    assert outcome.inputs > 0
