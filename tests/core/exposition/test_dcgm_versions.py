"""The names of two versions of dcgm-exporter, alone and together, with the labels and units of each."""

import re
from dataclasses import replace
from fractions import Fraction
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.exposition import Exposition, Format
from exporter.metrics.dcgm import DCGM, DcgmNames, DcgmVersion, HostnameLabel, levels
from exporter.metrics.dcgm.dialects import RENAMED
from exporter.metrics.selection import Selection
from exporter.model import Bar1, Memory, Snapshot
from tests.core.exposition.dcgm_node import NODE, WHOLE

Samples = dict[tuple[str, frozenset[tuple[str, str]]], str]
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
SAMPLE = re.compile(r"^(DCGM_\w+)\{(.*)\} (\S+)$", re.MULTILINE)
HOST = {"Hostname", "hostname", "DCGM_FI_DRIVER_VERSION", "DCGM_FI_SYSTEM_DRIVER_VERSION"}
OLD, NEW = ({"Hostname", "DCGM_FI_DRIVER_VERSION"}, {"hostname", "DCGM_FI_SYSTEM_DRIVER_VERSION"})
OF_OLD, OF_NEW = {field.old for field in RENAMED}, {field.new for field in RENAMED}
# 4.8 has both names of it.
IN_BOTH = {"DCGM_FI_DEV_CLOCKS_EVENT_REASONS"}
# Of type counter in the collector files; here they are what they count as.
OTHER_TYPES = {"DCGM_FI_DEV_PAGE_RETIRED_PENDING"}


def _page(
    version: DcgmVersion,
    snapshot: Snapshot = NODE,
    hostname_label: HostnameLabel = "Hostname",
    names: DcgmNames = "all",
) -> str:
    selection = Selection(metric_set="full", dcgm_names=names, dcgm_version=version)
    return Exposition(selection, hostname_label=hostname_label).page(snapshot).body(Format.TEXT).decode()


def _samples(page: str) -> Samples:
    """Return the text of each sample under DCGM's names, by name and labels."""
    found = SAMPLE.findall(page)
    samples = {(name, frozenset(LABEL.findall(labels))): value for name, labels, value in found}
    assert len(samples) == len(found)
    return samples


def _without_host(samples: Samples) -> Samples:
    return {
        (name, frozenset(pair for pair in labels if pair[0] not in HOST)): value
        for (name, labels), value in samples.items()
    }


def _host_labels(samples: Samples, names: set[str]) -> list[set[str]]:
    """Return the sets of labels of the host that series of these names have."""
    sets = {frozenset(HOST & dict(labels).keys()) for (name, labels) in samples if name in names}
    return list(map(set, sets))


@pytest.mark.parametrize("names", get_args(DcgmNames))
def test_both_has_the_series_of_each_version_once(names: DcgmNames) -> None:
    """Renamed ones as in their version to the byte, the others once."""
    old, new, both = (_samples(_page(version, names=names)) for version in ("4.8", "4.9", "both"))

    assert _without_host(both) == _without_host(old) | _without_host(new)
    renamed = {key: value for key, value in both.items() if key[0] in (OF_OLD | OF_NEW) - IN_BOTH}
    assert renamed.items() <= (old | new).items()
    assert {name for name, _ in old} & {name for name, _ in new} == {name for name, _ in both} - {
        name for name, _ in renamed
    }


def test_a_version_has_no_name_of_the_other() -> None:
    old, new = ({name for name, _ in _samples(_page(version))} for version in ("4.8", "4.9"))

    assert not old & (OF_NEW - IN_BOTH)
    assert not new & OF_OLD
    assert len(old & new) > 50


@pytest.mark.parametrize(
    ("version", "old", "new", "kept"),
    [("4.8", [OLD], [], [OLD]), ("4.9", [], [NEW], [NEW]), ("both", [OLD], [NEW], [OLD | NEW])],
)
def test_each_name_has_the_labels_of_its_version(version, old, new, kept) -> None:
    """A name of both versions has both."""
    samples = _samples(_page(version))

    assert _host_labels(samples, OF_OLD) == old
    assert _host_labels(samples, OF_NEW - IN_BOTH) == new
    assert _host_labels(samples, {name for name, _ in samples} - OF_OLD - OF_NEW | IN_BOTH) == kept
    assert {dict(labels).get("hostname", "gpu-node-07") for _, labels in samples} == {"gpu-node-07"}
    drivers = {value for _, labels in samples for name, value in labels if "DRIVER_VERSION" in name}
    assert drivers == {"570.124.06"}


def test_the_label_of_the_node_is_chosen_for_old_names_only() -> None:
    """As in 4.8.3, which has old names and the new label."""
    both = _samples(_page("both", hostname_label="hostname"))

    assert _host_labels(both, OF_OLD) == [{"hostname", "DCGM_FI_DRIVER_VERSION"}]
    assert _host_labels(both, OF_NEW - IN_BOTH) == [NEW]
    assert _host_labels(both, {"DCGM_FI_PROF_PCIE_TX_BYTES"}) == [NEW | {"DCGM_FI_DRIVER_VERSION"}]
    assert _samples(_page("4.9", hostname_label="hostname")) == _samples(_page("4.9"))


def test_an_unknown_driver_version_is_no_label() -> None:
    node = replace(NODE, node=replace(NODE.node, driver=None))

    labels = {name for _, labels in _samples(_page("both", node)) for name, _ in labels}
    assert labels & HOST == {"Hostname", "hostname"}


def test_levels_with_the_same_labels_are_listed_once() -> None:
    """A poll of the default page costs what it did with one version."""
    old, new, both = (levels(version, "Hostname") for version in ("4.8", "4.9", "both"))

    assert old["dcgm"] is old["dcgm_old"]
    assert new["dcgm"] is new["dcgm_new"]
    assert len({both[level] for level in ("dcgm", "dcgm_old", "dcgm_new")}) == 3


def test_types_are_those_of_the_new_version() -> None:
    types = {family.name: family.type for family in DCGM["4.9"]}
    expected = {field.new: field.new_type for field in RENAMED}

    assert {name for name in expected if types[name] != expected[name]} == OTHER_TYPES


SIZE = st.integers(0, 2**45)


@settings(max_examples=60)
@given(
    memory=st.builds(Memory, total=SIZE, used=SIZE, free=SIZE, reserved=st.none() | SIZE),
    bar1=SIZE.flatmap(lambda total: st.builds(Bar1, total=st.just(total), used=st.integers(0, total))),
    nvlink=st.floats(0, 1e13),
    energy=st.integers(0, 2**50),
    percent=st.integers(0, 100),
)
def test_the_old_value_is_the_new_one_in_its_unit(memory, bar1, nvlink, energy, percent) -> None:
    """Rounded down where the old unit is coarser; the new value has all digits of the reading."""
    reading = replace(
        WHOLE.reading,
        memory=memory,
        bar1=bar1,
        utilization_percent=percent,
        fan_percent=percent,
        energy_millijoules=energy,
        clocks_megahertz={"sm": percent * 15},
    )
    gpu = replace(WHOLE, reading=reading, nvlink_bytes_per_second=nvlink)
    values = {
        name: Fraction(value)
        for (name, _), value in _samples(_page("both", replace(NODE, gpus=(gpu,), migs=()))).items()
    }

    for field in RENAMED:
        old, new = values.get(field.old), values.get(field.new)
        assert (old is None) == (new is None), field
        if old is not None and new is not None and field.steps == "finer":
            assert old == new // field.factor, field
        elif old is not None and new is not None:
            assert float(old * field.factor) == float(new), field
    assert values["DCGM_FI_DEV_FB_USED_BYTES"] == memory.used
    assert values["DCGM_FI_DEV_BAR1_FREE_BYTES"] == bar1.total - bar1.used
    assert values["DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL"] == Fraction(repr(energy / 1000))
    assert values["DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND"] == int(nvlink)
