"""The doctor counts the series of this node, and says what larger sets would add."""

import re

import pytest

from exporter.config.settings import load_settings
from exporter.doctor.series import series_checks
from exporter.exposition.page import Exposition, Format
from exporter.metrics.selection import SETS, Selection
from tests.golden.story import story

SNAPSHOT = story("t4-timeslicing").scenes[0].snapshot


def count(**selected: str) -> int:
    """Count the samples of a page that are not about the exporter itself."""
    page = Exposition(Selection(**selected)).page(SNAPSHOT).families(Format.TEXT).decode()
    return sum(not line.startswith("#") for line in page.splitlines())


def test_the_series_of_this_node_are_counted() -> None:
    """The numbers are those of the pages with that set."""
    (check,) = series_checks(SNAPSHOT, load_settings({}, {}))
    core, standard, full = (count(metric_set=each) for each in SETS)
    assert check.found.startswith(f"{core:,} on /metrics; ")
    assert f"--metric-set standard has {standard - core:,} more" in check.found
    assert f"--metric-set full has {full - core:,} more" in check.found
    assert f"--dcgm-names all has {count(dcgm_names='all') - core:,} more" in check.found
    assert f"off {core - count(dcgm_names='off'):,} fewer" in check.found


@pytest.mark.parametrize("metric_set", SETS)
def test_only_larger_sets_are_named(metric_set) -> None:
    """With ``full`` there is no larger one."""
    (check,) = series_checks(SNAPSHOT, load_settings({"metric_set": metric_set}, {}))
    named = re.findall(r"--metric-set (\w+)", check.found)
    assert named == list(SETS[SETS.index(metric_set) + 1 :])


def test_a_pattern_without_a_match_is_a_finding() -> None:
    """It names the pattern, and the names most like it."""
    settings = load_settings({"metric_allowlist": ["gpuslice_gpu_fan_ratios"]}, {})
    _, check = series_checks(SNAPSHOT, settings)
    assert check.code == "series-unmatched"
    assert "gpuslice_gpu_fan_ratio," in check.found
