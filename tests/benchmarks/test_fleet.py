"""The benchmark of a fleet at its smallest: that it still measures, and finds what can be told beforehand."""

import asyncio
import re
from typing import Any

import pytest

from benchmarks.effort import LEAST
from benchmarks.fleet import FARTHEST, measure
from benchmarks.fleet_forms import BOTH, COPIED, JOINED
from benchmarks.fleet_table import table
from benchmarks.simulated.copied import copied
from tests.end_to_end.programs import program

_LABEL = re.compile(r'(\w+)="([^"]*)"')
# `up` and four more that Prometheus adds to what it scrapes.
OF_A_TARGET = 5


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """Measure as little as can be."""
    program("prometheus")
    return asyncio.run(measure("", LEAST))


@pytest.mark.slow
def test_a_fleet_has_the_series_of_its_nodes(found: dict[str, Any]) -> None:
    """Every node is scraped, and counted with the same series, so that they grow by the power of 1."""
    *_, largest = found["growth"]
    assert [fleet["series"] / fleet["nodes"] for fleet in found["growth"]] == [largest["series"] / 3] * 2
    assert found["many"]["series"] / 5 == largest["series"] / 3
    assert found["exponents"]["series"] == pytest.approx(1)
    assert found["reckoned"]["series"] == pytest.approx(largest["series"] / 3 * FARTHEST)
    assert largest["samples_per_second"] > 0 < largest["live"] < largest["live_with_rules"]


@pytest.mark.slow
def test_all_groups_of_rules_are_evaluated(found: dict[str, Any]) -> None:
    """Each group took some time, and made of three nodes more than of one."""
    one, three = found["growth"]
    assert len(three["groups"]) == 12
    assert all(group["seconds"] > 0 for group in three["groups"].values())
    assert {group["interval"] for group in three["groups"].values()} == {60, 240}
    assert 0 < one["made"] < three["made"]


@pytest.mark.slow
def test_only_what_tells_a_name_is_new_where_labels_are_joined(found: dict[str, Any]) -> None:
    """Where a label of pods changes, or the driver, that makes one series of a node, and copied many."""
    joined, copies, both = (found["compared"]["forms"][form] for form in (JOINED, COPIED, BOTH))
    assert joined["created"]["label"] == joined["created"]["driver"] == [1.0]
    assert copies["series"] == joined["series"] < both["series"]
    # The driver's version is on all but what Prometheus adds.
    assert copies["created"]["driver"] == [copies["series"] / 2 - OF_A_TARGET]
    assert copies["created"]["label"] == copies["created"]["pods"]
    assert joined["created"]["pods"][0] * 10 < copies["created"]["pods"][0]
    assert joined["created"]["pods"][0] < both["created"]["pods"][0]
    assert joined["stored"]["index"] < copies["stored"]["index"]


@pytest.mark.slow
def test_the_table_tells_it_all(found: dict[str, Any]) -> None:
    """Each fleet, each group of rules and each question has its row, and no number is missing."""
    told = table(found)
    rows = [line for line in told.splitlines() if line.startswith("| ")]
    assert len(rows) == 3 * 2 + (2 + 3) + 12 + 17
    assert "nan" not in told
    assert "{" not in told


def test_copying_adds_labels_and_nothing_else() -> None:
    """Each series keeps labels and value, and has those of its node, its GPU, its holder and the pod too."""
    page = [
        "# TYPE gpuslice_gpu_up gauge",
        'gpuslice_node_info{node="n",driver_version="570"} 1',
        'gpuslice_gpu_info{uuid="GPU-1",gpu="0",device="nvidia0",model="H100",pci_bus_id="07"} 1',
        'gpuslice_gpu_info{uuid="GPU-2",gpu="1",device="nvidia1",model="H100",pci_bus_id="0F"} 1',
        'gpuslice_container_info{namespace="a",pod="p",container="c",uuid="GPU-1",pod_uid="u"} 1',
        'gpuslice_pod_labels{namespace="a",pod="p",pod_uid="u",label_team="t"} 1',
        'gpuslice_gpu_up{uuid="GPU-1"} 1',
        'gpuslice_gpu_up{uuid="GPU-2"} 0',
        "gpuslice_node_gpus 2",
        "# EOF",
    ]
    lines = copied(page)
    for before, after in zip(page, lines, strict=True):
        assert before.split("{")[0].split()[0] == after.split("{")[0].split()[0]
        assert before.rsplit(" ", 1)[1] == after.rsplit(" ", 1)[1]
        assert dict(_LABEL.findall(before)).items() <= dict(_LABEL.findall(after)).items()
    of_node = {"node": "n", "driver_version": "570"}
    gpu = {"device": "nvidia0", "gpu": "0", "model": "H100", "pci_bus_id": "07", "uuid": "GPU-1"}
    holder = {"namespace": "a", "pod": "p", "container": "c", "label_team": "t"}
    assert dict(_LABEL.findall(lines[6])) == of_node | gpu | holder
    assert "pod" not in dict(_LABEL.findall(lines[7]))
    assert dict(_LABEL.findall(lines[8])) == of_node
