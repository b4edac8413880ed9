"""Prometheus' own tool accepts a page."""

import re
import subprocess

import pytest

from exporter.exposition import Exposition, Format, SelfMetrics
from exporter.metrics.selection import Selection
from tests.core.exposition.dcgm_node import NODE
from tests.tools import tool

# Names of DCGM are not ours to choose.
ABOUT_NAMES_OF_DCGM = re.compile(
    r"(DCGM_(FI|EXP)_|dcgm_)\w+ (counter metrics should have|non-counter metrics should not have"
    r"|label names should be|metric names should not|metric name should not)"
)


def _advice(page: bytes) -> list[str]:
    """Return the errors and the advice of promtool."""
    run = subprocess.run(
        [tool("promtool"), "check", "metrics"],
        input=page,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    lines = run.stdout.decode().splitlines()
    assert run.returncode in {0, 3}, lines
    return lines


@pytest.mark.parametrize("example", ["full", "bare"])
def test_promtool_has_no_advice_on_the_native_page(request, example) -> None:
    page = Exposition(Selection(metric_set="full", dcgm_names="off")).page(request.getfixturevalue(example))

    assert _advice(page.body(Format.TEXT)) == []
    assert _advice(SelfMetrics().body(openmetrics=False)) == []


@pytest.mark.parametrize("dcgm_names", ["all", "legacy"])
def test_promtool_has_advice_on_names_of_dcgm_only(dcgm_names) -> None:
    selection = Selection(metric_set="full", dcgm_names=dcgm_names, dcgm_version="both")
    page = Exposition(selection).page(NODE).body(Format.TEXT)

    assert [line for line in _advice(page) if not ABOUT_NAMES_OF_DCGM.match(line)] == []
