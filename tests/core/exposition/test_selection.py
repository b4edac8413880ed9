"""The sets of series, and the rules, dashboards and queries that read them."""

import re
from pathlib import Path
from typing import get_args

import pytest

from exporter.exposition import Exposition, Format
from exporter.metrics import FAMILIES
from exporter.metrics.dcgm import DCGM, DEFAULT, LEGACY, DcgmNames, DcgmVersion
from exporter.metrics.selection import SETS, Selection, has

ROOT = Path(__file__).parents[3]
# Readers, and the set that their series are in.
READERS = {
    "alerts/rules/gpuslice-alerts.yaml": "core",
    "alerts/rules/gpuslice-recording.yaml": "core",
    "dashboards/json/gpuslice-fleet.json": "core",
    "dashboards/json/gpuslice-node.json": "core",
    "dashboards/json/gpuslice-tenant.json": "core",
    "dashboards/json/gpuslice-hardware.json": "standard",
}
HOUSE = ROOT / "exporter/fleet"
# Fills a column of ``inspect --details`` that is left out without it.
OPTIONAL = {"gpuslice_container_claim_info"}


def names(selection: Selection) -> list[str]:
    """Return the names of the families of a selection."""
    return [family.name for family in selection.families()]


def beyond(text: str, metric_set: str) -> set[str]:
    """Return the series in a text that a set lacks."""
    lacking = {family.name for family in FAMILIES if not has(metric_set, family)}
    return lacking & set(re.findall(r"\bgpuslice_\w+", text))


@pytest.mark.parametrize(("path", "metric_set"), READERS.items())
def test_rules_and_dashboards_read_series_of_their_set_only(path, metric_set) -> None:
    assert beyond((ROOT / path).read_text(), metric_set) == set()


def test_queries_of_the_cluster_read_series_of_core_only() -> None:
    """But for a column that may be missing."""
    texts = [path.read_text() for path in HOUSE.rglob("*.py")]
    assert any("gpuslice_gpu_up" in text for text in texts)
    assert set().union(*(beyond(text, "core") for text in texts)) <= OPTIONAL


def test_no_rule_dashboard_or_query_of_the_cluster_reads_a_name_of_dcgm() -> None:
    """They are the same with every ``--dcgm-names`` and ``--dcgm-version``."""
    paths = [*(ROOT / path for path in READERS), *HOUSE.rglob("*.py")]
    assert [path for path in paths if re.search(r"\bDCGM_(FI|EXP)_", path.read_text())] == []


def test_each_set_contains_the_smaller_ones() -> None:
    core, standard, full = (names(Selection(metric_set=metric_set)) for metric_set in SETS)
    assert set(core) < set(standard) < set(full)
    assert [name for name in full if name.startswith("gpuslice_")] == [family.name for family in FAMILIES]


def test_core_has_only_the_clocks_that_alerts_read(full, parse) -> None:
    clocks = {
        metric_set: [
            dict(labels)["clock"]
            for name, labels in parse(
                Exposition(Selection(metric_set=metric_set)).page(full).body(Format.TEXT), Format.TEXT
            )
            if name == "gpuslice_gpu_clock_hertz"
        ]
        for metric_set in SETS
    }
    assert set(clocks["core"]) <= {"sm", "memory"} < set(clocks["standard"])
    assert clocks["standard"] == clocks["full"]


@pytest.mark.parametrize(("version", "count"), [("4.8", 25), ("4.9", 26), ("both", 48)])
@pytest.mark.parametrize("dcgm_names", get_args(DcgmNames))
def test_names_of_dcgm_are_those_of_its_version(dcgm_names, version, count) -> None:
    """By default the 25 of dcgm-exporter 4.8, or the 26 of 4.9."""
    default = DEFAULT[version]
    expected = {
        "default": default,
        "all": DCGM[version],
        "only": default,
        "off": (),
        "legacy": (*default, *LEGACY),
    }[dcgm_names]
    selection = Selection(dcgm_names=dcgm_names, dcgm_version=version)
    chosen = [name for name in names(selection) if name.lower().startswith("dcgm_")]
    assert chosen == [family.name for family in expected]
    assert len(default) == count


@pytest.mark.parametrize("dcgm_names", get_args(DcgmNames))
def test_a_version_needs_the_readings_of_the_others(dcgm_names) -> None:
    """What is not read for the names of one version is not needed for those of another."""
    versions = get_args(DcgmVersion)
    unneeded = {Selection(dcgm_names=dcgm_names, dcgm_version=version).unneeded() for version in versions}
    assert len(unneeded) == 1
    assert unneeded != {frozenset()}


def test_only_names_of_dcgm_means_no_other_series_of_devices() -> None:
    native = {name for name in names(Selection(dcgm_names="only")) if name.startswith("gpuslice_")}
    assert "gpuslice_collector_success" in native
    assert not {"gpuslice_gpu_up", "gpuslice_mig_holders", "gpuslice_container_slices"} & native


def test_the_allowlist_adds_and_the_denylist_wins() -> None:
    """A pattern matches a whole name, of any set and of DCGM's names."""
    allow = tuple(
        map(re.compile, ("gpuslice_gpu_fan_.*", "DCGM_FI_DEV_FAN_SPEED", "gpuslice_gpu_clock_hertz"))
    )
    deny = tuple(map(re.compile, ("DCGM_.*", "gpuslice_gpu_u")))
    chosen = names(Selection(allow=allow, deny=deny))
    assert "gpuslice_gpu_fan_ratio" in chosen
    assert "gpuslice_gpu_up" in chosen
    assert not [name for name in chosen if name.startswith("DCGM_")]


def test_an_allowed_family_has_all_its_samples() -> None:
    """Core has two of the clocks."""
    allow = (re.compile("gpuslice_gpu_clock_hertz"),)
    chosen = {family.name: family for family in Selection(allow=allow).families()}
    assert chosen["gpuslice_gpu_clock_hertz"] in FAMILIES


def test_a_pattern_without_a_match_is_named_with_similar_names() -> None:
    """It may be a name of an older version."""
    selection = Selection(allow=(re.compile("gpuslice_gpu_fan_ratios"),), deny=(re.compile("DCGM_.*"),))
    (problem,) = selection.unmatched()
    assert problem.startswith("no series matches 'gpuslice_gpu_fan_ratios'; similar names: ")
    assert "gpuslice_gpu_fan_ratio," in problem


@pytest.mark.parametrize(
    ("version", "pattern"), [("4.8", "DCGM_FI_DEV_FB_USED_BYTES"), ("4.9", "DCGM_FI_DEV_FB_USED")]
)
def test_a_pattern_chooses_no_name_of_another_version(version, pattern) -> None:
    """And it is reported."""
    selection = Selection(dcgm_version=version, allow=(re.compile(pattern), re.compile("DCGM_FI_DEV_F.*")))
    (problem,) = selection.unmatched()
    assert pattern not in names(selection)
    assert any(name.startswith("DCGM_FI_DEV_FAN_SPEED") for name in names(selection))
    assert problem == (
        f"no series matches '{pattern}' with --dcgm-version {version}; another version has such names"
    )
