"""``record`` writes this node as a scenario, masked unless asked otherwise."""

import json
from typing import Any

import pytest

from exporter.demo.scenario import catalog
from exporter.demo.scenario.catalog import load_file, parse
from tests.core.commands.program import nothing_here, output_of


def test_a_recording_keeps_what_a_fault_depends_on(tmp_path):
    """Models, sizes, versions and the spelling of device ids are those of the node; its name is not."""
    path = tmp_path / "recorded.json"
    assert output_of("record", "--scenario", "gke", "--output", path) == ""
    recorded, original = load_file(path), catalog.load("gke")
    assert recorded.node.driver_version == original.node.driver_version
    assert recorded.node.name != original.node.name
    assert {gpu.uuid for gpu in recorded.gpus}.isdisjoint(gpu.uuid for gpu in original.gpus)
    assert [gpu.memory_total for gpu in recorded.gpus] == [gpu.memory_total for gpu in original.gpus]
    assert [gpu.model for gpu in recorded.gpus] == ["Tesla T4", "Tesla T4"]
    assert {key for offer in recorded.offers for key in offer.ids} == {
        key for offer in original.offers for key in offer.ids
    }
    assert not recorded.host_pid


def test_unmasked_keeps_all_names():
    original, recorded = (
        catalog.load("a10-mps"),
        parse(output_of("record", "--scenario", "a10-mps", "--unmasked")),
    )
    assert recorded.node.name == original.node.name
    assert [gpu.uuid for gpu in recorded.gpus] == [gpu.uuid for gpu in original.gpus]
    assert {pod.uid for pod in recorded.pods} == {pod.uid for pod in original.pods}
    assert {pod.name for pod in recorded.pods} == {pod.name for pod in original.pods}


@pytest.mark.parametrize(("name", "described"), [("t4-timeslicing", False), ("volcano-vgpu", True)])
def test_shares_are_recorded_unless_ids_describe_them(name, described):
    """An id of the NVIDIA plugin is a share by itself; one of another system is not."""
    recorded = parse(output_of("record", "--scenario", name))
    holders = [container for pod in recorded.pods for container in pod.containers if container.devices]
    assert {container.shares is not None for container in holders} == {described}


def test_sources_that_fail_here_fail_in_the_recording(tmp_path):
    """Unknown is not recorded as none."""
    path = tmp_path / "recorded.json"
    path.write_text(output_of("record", *nothing_here(tmp_path), "--node-name", "jupiter-17"))
    assert "jupiter" not in path.read_text()
    document: dict[str, Any] = json.loads(output_of("snapshot", "--format", "json", "--scenario", path))
    assert (document["gpus"], document["containers"], document["node"]["gpus"]) == ([], [], None)
    failing = {collector["collector"] for collector in document["collectors"] if not collector["success"]}
    assert failing >= {"nvml", "podresources", "identity"}
