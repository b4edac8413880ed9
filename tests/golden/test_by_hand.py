"""The pages against what a person worked out from the scenarios: who holds and uses what, what boards say."""

from collections.abc import Iterator
from typing import Any

import pytest

from exporter.metrics import FAMILIES, LEVEL_LABELS
from exporter.model import DeviceKey
from tests.golden.by_hand import ABSENT, Row, Truth, has_readings, number
from tests.golden.page import Labels, Page
from tests.golden.story import HERE, USUAL, story

NAMES = tuple(sorted(path.parent.name for path in HERE.glob("*/truth.toml")))
WITH_READINGS = tuple(name for name in NAMES if has_readings(HERE / name / "truth.toml"))
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

each_name = pytest.mark.parametrize("name", NAMES)


def _scene(name: str) -> tuple[Page, Truth]:
    told = story(name)
    (page,) = [scene.page for scene in told.scenes if scene.time == USUAL]
    return page, Truth(HERE / name / "truth.toml", told.scenario)


@each_name
def test_the_holders_are_those_worked_out(name: str) -> None:
    """The page has a row for each container that holds or uses a device, and for no other."""
    page, truth = _scene(name)
    rows = {
        tuple(labels.get(each, "") for each in CONTAINER)
        for labels, _ in page.series("gpuslice_container_info")
    }

    assert rows == set(truth.containers)


@each_name
def test_the_numbers_of_containers_are_those_worked_out(name: str) -> None:
    """Slices, entitlements and use of every container are what the arithmetic says."""
    page, truth = _scene(name)

    for key, row in truth.containers.items():
        labels = dict(zip(CONTAINER, key, strict=True))
        for field, family in VALUES.items():
            if field in row:
                _compare(page, f"gpuslice_container_{family}", labels, row[field])


@each_name
def test_the_words_about_containers_are_those_worked_out(name: str) -> None:
    """Each row says by which resource, how, and how well kept apart the container shares the device."""
    page, truth = _scene(name)

    for key, row in truth.containers.items():
        shown = page.labels("gpuslice_container_info", **dict(zip(CONTAINER, key, strict=True)))
        for word in ("resource", "sharing", "isolation"):
            assert shown.get(word, "") == row[word], (key, word)


@each_name
def test_the_devices_are_those_worked_out(name: str) -> None:
    """Every GPU and MIG device is there, with its holders, its slices and what belongs to nobody."""
    page, truth = _scene(name)

    assert set(truth.devices) == set(_devices(page))
    for key, row in truth.devices.items():
        level, labels = ("mig", key._asdict()) if key.mig_uuid else ("gpu", {"uuid": key.uuid})
        for field, family in DEVICE_VALUES.items():
            if field in row:
                _compare(page, f"gpuslice_{level}_{family}", labels, row[field])
        _compare_slices(page, level, labels, row)


@each_name
def test_the_sharing_of_gpus_is_that_worked_out(name: str) -> None:
    """Each GPU says how it is shared, and how many of its compute slices are used and free."""
    page, truth = _scene(name)

    for key, row in truth.devices.items():
        if not key.mig_uuid:
            assert page.labels("gpuslice_gpu_info", uuid=key.uuid)["sharing"] == row["sharing"]
            used_and_free = [
                page.value("gpuslice_gpu_mig_compute_slices", uuid=key.uuid, state=state)
                for state in ("used", "free")
            ]
            assert used_and_free == row.get("mig_slices", [None, None])


@pytest.mark.parametrize("name", WITH_READINGS)
def test_the_readings_are_those_worked_out(name: str) -> None:
    """Limits, links, clocks, errors, repairs and meters are those of the boards; nothing else is there."""
    page, truth = _scene(name)

    for family, labels, told in truth.readings:
        # A name or a label that nothing has would be absent from every page.
        assert labels.keys() <= LABELS[family], family
        shown = [value for _, value in page.series(family, **labels)]
        assert _agrees(shown, told), (family, labels, shown, told)


def _agrees(shown: list[float], told: Any) -> bool:
    """Compare the values of the series with none, with one number, or with the bounds of one."""
    if told == ABSENT:
        return not shown
    if isinstance(told, list):
        least, most = told
        return len(shown) == 1 and bool(least <= shown[0] <= most)
    return shown == [pytest.approx(number(told), rel=1e-12)]


def _devices(page: Page) -> Iterator[DeviceKey]:
    for labels, _ in page.series("gpuslice_gpu_info"):
        yield DeviceKey(labels["uuid"])
    for labels, _ in page.series("gpuslice_mig_info"):
        yield DeviceKey(labels["uuid"], labels["mig_uuid"])


def _compare(page: Page, family: str, labels: Labels, told: float | str) -> None:
    expected = number(told)
    shown = page.value(family, **labels)
    assert shown == (None if expected is None else pytest.approx(expected, rel=1e-12)), (family, labels)


def _compare_slices(page: Page, level: str, labels: Labels, row: Row) -> None:
    for which, family in enumerate(("slices", "slices_allocated")):
        shown = {
            series["resource"]: value for series, value in page.series(f"gpuslice_{level}_{family}", **labels)
        }
        told = {resource: counts[which] for resource, counts in row["slices"].items()}
        assert shown == {resource: count for resource, count in told.items() if count != ABSENT}, labels
