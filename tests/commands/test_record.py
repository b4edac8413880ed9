"""``record``: this node as a scenario that shows the same and names nobody."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from exporter.demo.scenario import Scenario, catalog
from exporter.demo.scenario.catalog import load_file, parse
from exporter.sharing.kai import KAI_CONTAINER, KAI_NAMESPACE
from tests.commands.program import nothing_here, output_of

NAMES = ("showcase", "gke", "old-driver")


def strings(value: Any) -> Iterator[str]:
    """Yield every text in a JSON document, keys of devices included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)


def identities(scenario: Scenario) -> tuple[set[str], set[str]]:
    """Return what identifies a node or its tenants: numbers that may stand within a text, and names."""
    numbers = {gpu.uuid.removeprefix("GPU-") for gpu in scenario.gpus}
    numbers |= {gpu.serial for gpu in scenario.gpus if gpu.serial}
    for gpu in scenario.gpus:
        numbers |= {cut.uuid.removeprefix("MIG-") for cut in (gpu.mig.instances if gpu.mig else ())}
    numbers |= {pod.uid for pod in scenario.pods}
    numbers |= {container.container_id for pod in scenario.pods for container in pod.containers}
    names = {pod.namespace for pod in scenario.pods} | {pod.name for pod in scenario.pods}
    containers = [container for pod in scenario.pods for container in pod.containers]
    names |= {container.name for container in containers}
    names |= {process.command for container in containers for process in container.processes}
    return numbers, names | {scenario.node.name}


def shape(found: dict[str, Any]) -> dict[str, Any]:
    """Return what of a snapshot must be the same: its structure, without names and without what moves."""
    gpus = [
        (
            gpu["model"],
            gpu["sharing"],
            gpu["slices"],
            gpu["slices_allocated"],
            gpu["holders"],
            gpu["memory_total_bytes"],
        )
        for gpu in found["gpus"]
    ]
    migs = [(mig["profile"], mig["gi"], mig["ci"], mig["slices"], mig["holders"]) for mig in found["migs"]]
    containers = [
        (
            row["resource"] or "",
            row["sharing"],
            row["slices"],
            row["memory_entitled_bytes"],
            row["compute_entitled_ratio"],
            row["processes"],
            row["memory_used_bytes"] is None,
            row["compute_used_ratio"] is None,
        )
        for row in found["containers"]
    ]
    collectors = [(each["collector"], each["success"]) for each in found["collectors"]]
    return {"gpus": gpus, "migs": migs, "containers": sorted(containers, key=repr), "collectors": collectors}


def snapshot(*arguments: object) -> dict[str, Any]:
    """Return a snapshot as JSON."""
    return json.loads(output_of("snapshot", "--format", "json", *arguments))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_recording_shows_the_same_and_names_nobody(name: str, tmp_path):
    """It loads as a scenario, its snapshot has the same structure, and no name or number is an original."""
    path = tmp_path / "recorded.json"
    assert output_of("record", "--scenario", name, "--output", path) == ""
    load_file(path)
    assert shape(snapshot("--scenario", path)) == shape(snapshot("--scenario", name))
    numbers, names = identities(catalog.load(name))
    text = path.read_text()
    assert [number for number in numbers if number in text] == []
    # What KAI calls the pods that it makes itself names nobody.
    assert (names - {KAI_NAMESPACE, KAI_CONTAINER}) & set(strings(json.loads(text))) == set()


@pytest.mark.slow
def test_a_recording_keeps_what_a_fault_depends_on():
    """Models, sizes, versions and the spelling of device ids stay as they are."""
    recorded = parse(output_of("record", "--scenario", "gke"))
    original = catalog.load("gke")
    assert recorded.node.driver_version == original.node.driver_version
    assert [gpu.memory_total for gpu in recorded.gpus] == [gpu.memory_total for gpu in original.gpus]
    assert [gpu.model for gpu in recorded.gpus] == ["Tesla T4", "Tesla T4"]
    assert {key for offer in recorded.offers for key in offer.ids} == {
        key for offer in original.offers for key in offer.ids
    }
    assert not recorded.host_pid


def test_unmasked():
    """On request everything is left as it is."""
    text = output_of("record", "--scenario", "a10-mps", "--unmasked")
    original = catalog.load("a10-mps")
    recorded = parse(text)
    assert recorded.node.name == original.node.name
    assert [gpu.uuid for gpu in recorded.gpus] == [gpu.uuid for gpu in original.gpus]
    assert {pod.uid for pod in recorded.pods} == {pod.uid for pod in original.pods}
    assert {pod.name for pod in recorded.pods} == {pod.name for pod in original.pods}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "described"), [("t4-timeslicing", False), ("volcano-vgpu", True)])
def test_shares_are_recorded_unless_ids_describe_them(name, described):
    """An id of NVIDIA's plugin is a share by itself, one of another system is not."""
    recorded = parse(output_of("record", "--scenario", name))
    holders = [container for pod in recorded.pods for container in pod.containers if container.devices]
    assert {container.shares is not None for container in holders} == {described}


@pytest.mark.slow
def test_a_machine_without_a_gpu(tmp_path):
    """What does not answer here does not answer in the recording: nothing is said to be none."""
    path = tmp_path / "recorded.json"
    path.write_text(output_of("record", *nothing_here(tmp_path), "--node-name", "jupiter-17"))
    assert "jupiter" not in path.read_text()
    found = snapshot("--scenario", path)
    assert (found["gpus"], found["containers"], found["node"]["gpus"]) == ([], [], None)
    failing = {each["collector"] for each in found["collectors"] if not each["success"]}
    assert failing >= {"nvml", "podresources", "identity"}
