"""Labels that name a device: node, NVML index and MIG profile, on every golden page."""

import pytest

from exporter.metrics import FAMILIES
from tests.golden.page import Page
from tests.golden.story import NODES, story

LEVELS = {family.name: family.level for family in FAMILIES}
# Kubelets list devices of other vendors, which no driver here numbers.
WITH_INDEX = ("gpu", "mig", "vgpu", "container")


def native(page: Page):
    """Yield level and labels of each series of the tables."""
    for name, labels, _ in page.samples:
        if name in LEVELS:
            yield LEVELS[name], labels


@pytest.mark.parametrize("name", NODES)
def test_every_series_names_the_node(name) -> None:
    """It is the name under which the node's pods are known."""
    for scene in story(name).scenes:
        page = scene.page
        assert {labels.get("node") for _, labels in native(page)} == {
            page.labels("gpuslice_node_info")["node"]
        }


@pytest.mark.parametrize("name", NODES)
def test_a_series_of_a_device_has_the_index_that_dcgm_gives_it(name) -> None:
    """It has none where the GPU's index is unknown, and never one of another GPU."""
    for scene in story(name).scenes:
        page = scene.page
        indexes = {labels["UUID"]: labels["gpu"] for _, labels, _ in page.samples if "UUID" in labels}
        infos = {labels["uuid"]: labels.get("gpu") for labels, _ in page.series("gpuslice_gpu_info")}
        assert {uuid: infos[uuid] for uuid in indexes} == indexes
        for level, labels in native(page):
            if level in WITH_INDEX:
                assert labels.get("gpu") == infos.get(labels["uuid"])


@pytest.mark.parametrize("name", NODES)
def test_a_series_of_a_mig_device_has_its_profile(name) -> None:
    """It is the same on all of its series; the GPU instance under DCGM's names has it too."""
    for scene in story(name).scenes:
        page = scene.page
        profiles = {
            labels["mig_uuid"]: labels.get("profile") for labels, _ in page.series("gpuslice_mig_info")
        }
        told = {labels["GPU_I_PROFILE"] for _, labels, _ in page.samples if labels.get("GPU_I_PROFILE")}
        assert told <= {(profile or "").split("c.")[-1] for profile in profiles.values()}
        for level, labels in native(page):
            if level == "mig":
                assert labels.get("profile") == profiles[labels["mig_uuid"]]
