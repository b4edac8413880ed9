"""The pages against numbers worked out by hand from the scenarios: holders, their use, and GPU readings."""

from collections.abc import Iterator
from typing import Any

import pytest

from exporter.metrics import FAMILIES, LEVEL_LABELS
from exporter.model import DeviceKey
from tests.core.golden.by_hand import ABSENT, Row, Truth, number
from tests.core.golden.page import Labels, Page
from tests.core.golden.story import HERE, USUAL, story

NAMES = tuple(sorted(path.parent.name for path in HERE.glob("*/truth.toml")))
LABELS = {family.name: {*LEVEL_LABELS[family.level], *family.labels} for family in FAMILIES}
CONTAINER = ("namespace", "pod", "container", "uuid", "mig_uuid")
VALUES = {
    "slices": "slices",
    "memory_entitled": "memory_entitled_bytes",
    "compute_entitled": "compute_entitled_ratio",
    "memory_used": "memory_used_bytes",
    "compute_used": "compute_used_ratio",
    "processes": "processes",
}
DEVICE_VALUES = {
    "holders": "holders",
    "used": "memory_used_bytes",
    "unattributed": "unattributed_memory_bytes",
    "memory_entitled": "memory_entitled_bytes",
}


@pytest.mark.parametrize("name", NAMES)
def test_the_page_has_the_numbers_worked_out_by_hand(name: str) -> None:
    (page,) = [scene.page for scene in story(name).scenes if scene.time == USUAL]
    truth = Truth(HERE / name / "truth.toml", story(name).scenario)

    _check_containers(page, truth)
    _check_devices(page, truth)
    for family, labels, expected in truth.readings:
        # A name or a label that nothing has would be absent from every page.
        assert labels.keys() <= LABELS[family], family
        shown = [value for _, value in page.series(family, **labels)]
        assert _agrees(shown, expected), (family, labels, shown, expected)


def _check_containers(page: Page, truth: Truth) -> None:
    """Check the rows of containers that hold or use a device, and that there is no other."""
    infos = {
        tuple(labels.get(name, "") for name in CONTAINER): labels
        for labels, _ in page.series("gpuslice_container_info")
    }
    assert infos.keys() == truth.containers.keys()
    for key, row in truth.containers.items():
        labels = dict(zip(CONTAINER, key, strict=True))
        for field, family in VALUES.items():
            if field in row:
                _compare(page, f"gpuslice_container_{family}", labels, row[field])
        for word in ("resource", "sharing", "isolation"):
            assert infos[key].get(word, "") == row[word], (key, word)


def _check_devices(page: Page, truth: Truth) -> None:
    """Every GPU and MIG device with its holders, slices and unattributed memory, and how a GPU is shared."""
    assert set(truth.devices) == set(_devices(page))
    for key, row in truth.devices.items():
        level, labels = ("mig", key._asdict()) if key.mig_uuid else ("gpu", {"uuid": key.uuid})
        for field, family in DEVICE_VALUES.items():
            if field in row:
                _compare(page, f"gpuslice_{level}_{family}", labels, row[field])
        _compare_slices(page, level, labels, row)
        if level == "gpu":
            assert page.labels("gpuslice_gpu_info", uuid=key.uuid)["sharing"] == row["sharing"]
            states = [
                page.value("gpuslice_gpu_mig_compute_slices", uuid=key.uuid, state=state)
                for state in ("used", "free")
            ]
            assert states == row.get("mig_slices", [None, None])


def _agrees(shown: list[float], expected: Any) -> bool:
    """Whether there is no series, one with this number, or one within these bounds."""
    if expected == ABSENT:
        return not shown
    if isinstance(expected, list):
        least, most = expected
        return len(shown) == 1 and bool(least <= shown[0] <= most)
    return shown == [pytest.approx(number(expected), rel=1e-12)]


def _devices(page: Page) -> Iterator[DeviceKey]:
    for labels, _ in page.series("gpuslice_gpu_info"):
        yield DeviceKey(labels["uuid"])
    for labels, _ in page.series("gpuslice_mig_info"):
        yield DeviceKey(labels["uuid"], labels["mig_uuid"])


def _compare(page: Page, family: str, labels: Labels, written: float | str) -> None:
    expected = number(written)
    shown = page.value(family, **labels)
    assert shown == (None if expected is None else pytest.approx(expected, rel=1e-12)), (family, labels)


def _compare_slices(page: Page, level: str, labels: Labels, row: Row) -> None:
    for which, family in enumerate(("slices", "slices_allocated")):
        shown = {
            series["resource"]: value for series, value in page.series(f"gpuslice_{level}_{family}", **labels)
        }
        expected = {resource: counts[which] for resource, counts in row["slices"].items()}
        assert shown == {resource: count for resource, count in expected.items() if count != ABSENT}, labels
