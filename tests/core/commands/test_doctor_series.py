"""The doctor and ``metrics --count`` count the series of this node, and say what larger sets would add."""

import re
from dataclasses import replace

import pytest

from exporter.commands.metrics import node_series
from exporter.config import load_settings
from exporter.doctor.checks import series_checks
from exporter.exposition import Exposition, Format
from exporter.metrics.selection import SETS, Selection
from tests.core.golden.story import story

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


def test_what_was_not_read_is_not_counted() -> None:
    """While metrics are served, the readings that only larger sets need are missing from the snapshot."""
    rows = [replace(row, reading=replace(row.reading, skipped=frozenset({"bar1"}))) for row in SNAPSHOT.gpus]
    (check,) = series_checks(replace(SNAPSHOT, gpus=tuple(rows)), load_settings({}, {}))
    assert re.search(r"--metric-set standard has at least \d+ more", check.found)
    assert re.search(r"--dcgm-names all has at least \d+ more", check.found)


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


def test_the_command_counts_each_family_in_each_set() -> None:
    """Sums and lines are those of the pages, and each set's line says what it adds to the smaller one."""
    text = node_series(SNAPSHOT, load_settings({}, {}))
    title, sums, families = text.split("\n\n")
    sizes = [count(metric_set=each, dcgm_names="off") for each in SETS]
    assert title.startswith(f"{count():,} series of node ")
    assert [int(line.split()[2].replace(",", "")) for line in sums.splitlines()[: len(SETS)]] == sizes
    assert f"{sizes[1] - sizes[0]:,} more" in sums.splitlines()[1]
    columns = zip(*(line.split()[1:] for line in families.splitlines()[1:]), strict=True)
    assert [sum(map(int, column)) for column in columns] == sizes
