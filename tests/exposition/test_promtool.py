"""Prometheus' own tool accepts a page."""

import os
import re
import shutil
import subprocess

import pytest

from exporter.exposition import Exposition, Format, SelfMetrics
from exporter.metrics.selection import Selection


@pytest.fixture(scope="session")
def promtool() -> str:
    """Return the path of promtool; without it the test is skipped, but never in CI."""
    path = shutil.which("promtool")
    if path is None and os.environ.get("CI") == "true":
        pytest.fail("promtool is not on PATH; CI must have it (Debian: apt-get install prometheus)")
    return path or pytest.skip("promtool is not on PATH")


def _check(promtool: str, page: bytes) -> subprocess.CompletedProcess:
    return subprocess.run(
        [promtool, "check", "metrics"], input=page, capture_output=True, check=False, timeout=30
    )


@pytest.mark.parametrize("example", ["full", "bare"])
def test_promtool_finds_nothing_on_the_native_page(promtool, request, example) -> None:
    """Promtool parses the page and its linter has no advice."""
    page = Exposition(Selection(metric_set="full", dcgm_names="off")).page(request.getfixturevalue(example))

    found = _check(promtool, page.body(Format.TEXT))

    assert (found.returncode, found.stdout, found.stderr) == (0, b"", b"")


def test_promtool_parses_dcgm_names_and_lints_only_them(promtool, full) -> None:
    """Names that are not ours to choose are the only ones that the linter has advice on."""
    found = _check(promtool, Exposition().page(full).body(Format.TEXT))

    assert found.returncode in {0, 3}
    assert all(
        re.match(r"DCGM_(FI|EXP)_", line) for line in (found.stdout + found.stderr).decode().splitlines()
    )


def test_promtool_accepts_the_exporters_own_series(promtool) -> None:
    """The part of the page that is about the exporter itself is clean too."""
    found = _check(promtool, SelfMetrics().body(openmetrics=False))

    assert (found.returncode, found.stdout, found.stderr) == (0, b"", b"")
