"""Labels that name a device: node, NVML index and MIG profile, on every golden page."""

import pytest

from exporter.metrics import FAMILIES
from tests.core.golden.page import Page
from tests.core.golden.story import NODES, story

LEVELS = {family.name: family.level for family in FAMILIES}
# Kubelets list devices of other vendors, which have no index in NVML.
WITH_INDEX = ("gpu", "mig", "vgpu", "container")


@pytest.mark.parametrize("name", NODES)
def test_series_have_the_node_the_index_and_the_profile_of_their_device(name) -> None:
    for scene in story(name).scenes:
        native = [(LEVELS[name], labels) for name, labels, _ in scene.page.samples if name in LEVELS]
        node = scene.page.labels("gpuslice_node_info")["node"]
        assert {labels.get("node") for _, labels in native} == {node}

        indexes = {labels["uuid"]: labels.get("gpu") for labels, _ in scene.page.series("gpuslice_gpu_info")}
        profiles = {
            labels["mig_uuid"]: labels.get("profile") for labels, _ in scene.page.series("gpuslice_mig_info")
        }
        for level, labels in native:
            if level in WITH_INDEX:
                assert labels.get("gpu") == indexes.get(labels["uuid"])
            if level == "mig":
                assert labels.get("profile") == profiles[labels["mig_uuid"]]
        _check_dcgm(scene.page, indexes, profiles)


def _check_dcgm(page: Page, indexes: dict[str, str | None], profiles: dict[str, str | None]) -> None:
    """DCGM's names have the same index, and the profile of the GPU instance."""
    dcgm = [labels for _, labels, _ in page.samples if "UUID" in labels]
    assert all(labels["gpu"] == indexes[labels["UUID"]] for labels in dcgm)
    shown = {labels["GPU_I_PROFILE"] for labels in dcgm if labels.get("GPU_I_PROFILE")}
    assert shown <= {(profile or "").split("c.")[-1] for profile in profiles.values()}
