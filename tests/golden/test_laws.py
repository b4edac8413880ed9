"""What must be true of every page, whatever the node: sums hold, nothing stands twice, nothing is made up."""

import math
from collections import Counter
from collections.abc import Iterator
from itertools import product

import pytest

from exporter.demo.scenario import DriverReload, GpuAbsent, PodAdd, Scenario
from exporter.model import ContainerRef, DeviceKey
from tests.golden.page import Labels, Page
from tests.golden.story import NODES, Scene, story
from tests.truth import ContainerTruth

ROW = ("namespace", "pod", "container", "uuid", "mig_uuid")
UTILIZATION, ENERGY = "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetTotalEnergyConsumption"

# Sums of seconds that were measured, and those that are their maximum.
TIMES = (
    ("memory_measured_seconds_total", "held_seconds_total"),
    ("compute_measured_gpu_seconds_total", "entitled_gpu_seconds_total"),
)
each_node = pytest.mark.parametrize("name", NODES)


def _sum(page: Page, family: str, **labels: str) -> float:
    return sum(value for _, value in page.series(family, **labels))


def _device_labels(key: DeviceKey) -> Labels:
    return {"uuid": key.uuid, "mig_uuid": key.mig_uuid}


def _answering(scene: Scene) -> Iterator[DeviceKey]:
    """List the devices of the scenario whose GPU answers."""
    for key in scene.truth.devices:
        if scene.page.value("gpuslice_gpu_up", uuid=key.uuid):
            yield key


def _level(key: DeviceKey) -> tuple[str, Labels]:
    """Give the prefix of the series of a device, and their labels."""
    return ("mig", _device_labels(key)) if key.mig_uuid else ("gpu", {"uuid": key.uuid})


@each_node
def test_memory_adds_up_on_every_device(name: str) -> None:
    """Containers + unattributed = used: on every GPU, and on every MIG device that has memory of its own."""
    for scene in story(name).scenes:
        for key in _answering(scene):
            level, labels = _level(key)
            used = scene.page.value(f"gpuslice_{level}_memory_used_bytes", **labels)
            rest = scene.page.value(f"gpuslice_{level}_unattributed_memory_bytes", **labels)
            held = _sum(scene.page, "gpuslice_container_memory_used_bytes", **labels)
            assert (used is None) == (rest is None)
            assert used is None or held + (rest or 0) == used


@each_node
def test_compute_adds_up_on_every_gpu(name: str) -> None:
    """Containers + unattributed = utilization, on every GPU whose driver tells it."""
    for scene in story(name).scenes:
        for labels, whole in scene.page.series("gpuslice_gpu_utilization_ratio"):
            held = _sum(scene.page, "gpuslice_container_compute_used_ratio", uuid=labels["uuid"])
            rest = scene.page.value("gpuslice_gpu_unattributed_utilization_ratio", uuid=labels["uuid"])
            assert rest is not None
            if _vendor(scene.page, labels["uuid"]) == "amd":
                # The compute units that processes occupy now are no share of the time past.
                assert held <= 1
                assert rest == pytest.approx(max(whole - held, 0))
            elif _answer(name, labels["uuid"], UTILIZATION) is not None:
                # A real driver rounds the figure of each process up.
                assert held <= whole + 0.01 * len(scene.truth.containers)
                assert held + rest == pytest.approx(max(whole, held))
            else:
                assert held + rest == pytest.approx(whole)


@each_node
def test_energy_adds_up_until_a_container_goes(name: str) -> None:
    """Containers + unattributed = what the GPU drew since the start; none of it moves on later.

    The counter of a GPU begins anew with its driver, and what containers drew does not.
    """
    anew = any(isinstance(fault, DriverReload | GpuAbsent) for fault in story(name).scenario.faults)
    for scene in () if anew else story(name).scenes:
        for labels, counted in scene.page.series("gpuslice_gpu_energy_joules_total"):
            # A recording begins with the counter as it was.
            drawn = counted - (_answer(name, labels["uuid"], ENERGY) or 0) / 1000
            held = _sum(scene.page, "gpuslice_container_energy_joules_total", uuid=labels["uuid"])
            rest = scene.page.value("gpuslice_gpu_unattributed_energy_joules_total", uuid=labels["uuid"])
            assert rest is not None
            if story(name).scenario.faults:
                assert held + rest <= drawn * (1 + 1e-9)
            else:
                assert held + rest == pytest.approx(drawn)


@each_node
def test_no_container_uses_more_memory_than_its_peak(name: str) -> None:
    """The peak is there from the first use that is known, and never below the use of now."""
    for scene in story(name).scenes:
        for labels, used in scene.page.series("gpuslice_container_memory_used_bytes"):
            peak = scene.page.value("gpuslice_container_memory_peak_bytes", **labels)
            assert peak is not None
            assert used <= peak


@each_node
def test_no_more_time_is_measured_than_held(name: str) -> None:
    """Each container that holds a device has both sums, the part also where nothing is measured."""
    for scene, (part, whole) in product(story(name).scenes, TIMES):
        held = {str(labels): value for labels, value in scene.page.series(f"gpuslice_container_{whole}")}
        measured = {str(labels): value for labels, value in scene.page.series(f"gpuslice_container_{part}")}
        assert measured.keys() == held.keys()
        assert all(0 <= value <= held[labels] for labels, value in measured.items())


@each_node
def test_each_mig_profile_of_a_model_is_there_once(name: str) -> None:
    """With all that it has, from one source for each model; and only for models that can be partitioned."""
    for scene in story(name).scenes:
        models = {labels["model"] for labels, _ in scene.page.series("gpuslice_gpu_info")}
        sizes = [labels for labels, _ in scene.page.series("gpuslice_node_mig_profile_memory_bytes")]
        assert len({(labels["model"], labels["profile"]) for labels in sizes}) == len(sizes)
        assert {labels["model"] for labels in sizes} <= models
        for other in ("multiprocessors", "instances"):
            series = [labels for labels, _ in scene.page.series(f"gpuslice_node_mig_profile_{other}")]
            assert series == sizes


@each_node
def test_slices_and_entitlements_add_up(name: str) -> None:
    """The slices of the holders are those that are allocated; their entitlements make that of the GPU.

    A holder of one device in several units counts in the first of them.
    """
    for scene in story(name).scenes:
        for labels, _ in scene.page.series("gpuslice_gpu_up"):
            uuid = labels["uuid"]
            counted, beside = _counted_slices(scene.page, uuid)
            for series, allocated in scene.page.series("gpuslice_gpu_slices_allocated", uuid=uuid):
                resource = series["resource"]
                assert counted[resource] == allocated or (
                    resource in beside and counted[resource] < allocated
                )
            entitled = scene.page.value("gpuslice_gpu_memory_entitled_bytes", uuid=uuid)
            parts = _sum(scene.page, "gpuslice_container_memory_entitled_bytes", uuid=uuid)
            assert entitled in (None, parts)


def _counted_slices(page: Page, uuid: str) -> tuple[Counter[str], set[str]]:
    """Add up the slices of a GPU by the resource that they count; name those that also stand behind one."""
    counted: Counter[str] = Counter()
    beside: set[str] = set()
    for info, _ in page.series("gpuslice_container_info", uuid=uuid):
        first, *others = info.get("resource", "").split(",")
        beside |= set(others)
        row = {name: info[name] for name in ROW if name in info}
        counted[first] += _sum(page, "gpuslice_container_slices", **row)
    return counted, beside


@each_node
def test_no_series_stands_twice(name: str) -> None:
    """A page has each series once, and only finite numbers."""
    for scene in story(name).scenes:
        samples = scene.page.samples
        twice = Counter((sample, tuple(sorted(labels.items()))) for sample, labels, _ in samples)
        assert not [series for series, count in twice.items() if count > 1]
        assert all(math.isfinite(value) for _, _, value in samples)


@each_node
def test_devices_are_as_they_are(name: str) -> None:
    """Memory of every device is what is so; a driver that cannot tell what it reserves counts it as used."""
    for scene in story(name).scenes:
        for key in _answering(scene):
            level, labels = _level(key)
            truth = scene.truth.devices[key]
            read = {
                what: scene.page.value(f"gpuslice_{level}_memory_{what}_bytes", **labels)
                for what in ("total", "used", "free", "reserved")
            }
            if read["total"] is None:
                # Compute instances that share their memory.
                assert set(read.values()) == {None}
                continue
            hidden = _reserved_as_used(scene, level, labels, key)
            assert read["total"] == truth.memory_total
            assert read["used"] == truth.memory_used + hidden
            assert read["free"] == truth.memory_total - truth.memory_used - truth.memory_reserved
            assert read["reserved"] in (None, truth.memory_reserved)
            if truth.sm_percent is not None and level == "gpu":
                ratio = scene.page.value("gpuslice_gpu_utilization_ratio", uuid=key.uuid)
                recorded = _answer(name, key.uuid, UTILIZATION)
                assert ratio == (truth.sm_percent if recorded is None else recorded) / 100


@each_node
def test_nobodys_memory_is_nobodys(name: str) -> None:
    """Where processes are seen and tell their memory, what is unattributed is what no pod has."""
    for scene in story(name).scenes:
        for key in _answering(scene):
            level, labels = _level(key)
            told = (truth.memory for (_, on), truth in scene.truth.containers.items() if on.uuid == key.uuid)
            rest = scene.page.value(f"gpuslice_{level}_unattributed_memory_bytes", **labels)
            if (
                rest is not None
                and None not in told
                and scene.page.value("gpuslice_process_attribution_available")
            ):
                hidden = _reserved_as_used(scene, level, labels, key)
                assert rest == scene.truth.devices[key].unattributed + hidden


@each_node
def test_a_gpu_that_does_not_answer_says_nothing(name: str) -> None:
    """Of a GPU that is down no reading stands on the page, and no use."""
    for scene in story(name).scenes:
        for labels, up in scene.page.series("gpuslice_gpu_up"):
            uuid = labels["uuid"]
            readings = ("gpu_memory_used_bytes", "gpu_utilization_ratio", "gpu_power_watts")
            uses = ("container_memory_used_bytes", "container_compute_used_ratio", "container_processes")
            for family in (*readings, *uses) if not up else ():
                assert not list(scene.page.series(f"gpuslice_{family}", uuid=uuid))


@each_node
def test_containers_are_as_they_are(name: str) -> None:
    """Slices, processes, bytes and percents of every container are what is so, or absent."""
    for scene in story(name).scenes:
        for (holder, key), truth in scene.truth.containers.items():
            if _told_apart(story(name).scenario, holder):
                _check(scene.page, _labels(holder, key), truth)


@each_node
def test_pods_are_as_they_are(name: str) -> None:
    """All that a pod uses of a device is on the page, also where its containers cannot be told apart."""
    for scene in story(name).scenes:
        if scene.page.value("gpuslice_process_attribution_available"):
            for pod, key in {((ref.namespace, ref.pod), key) for ref, key in scene.truth.containers}:
                _check_pod(scene, pod, key)


@each_node
def test_nobody_is_made_up(name: str) -> None:
    """Every row is of a container that holds or uses the device, or of a pod as a whole."""
    for scene in story(name).scenes:
        there = {(*holder, *key) for holder, key in scene.truth.containers}
        there |= {(holder.namespace, holder.pod, "", *key) for holder, key in scene.truth.containers}
        for labels, _ in scene.page.series("gpuslice_container_info"):
            assert tuple(labels.get(each, "") for each in ROW) in there


@each_node
def test_unresolved_ids_are_counted(name: str) -> None:
    """Allocated ids that mean no device of the node are counted by resource."""
    for scene in story(name).scenes:
        found = {
            labels["resource"]: value
            for labels, value in scene.page.series("gpuslice_allocations_unresolved")
        }
        ours = {key: count for key, count in scene.truth.unresolved.items() if "fpga" not in key}
        assert found == ours


def _answer(name: str, uuid: str, call: str) -> int | None:
    """Give the number that the GPU of a recording answers to a call, None for all others."""
    gpus = (gpu for gpu in story(name).scenario.gpus if gpu.uuid == uuid)
    return next((gpu.answers[call][0] for gpu in gpus if call in gpu.answers), None)


def _reserved_as_used(scene: Scene, level: str, labels: Labels, key: DeviceKey) -> int:
    """Give what a driver reserves that cannot tell so."""
    told = scene.page.value(f"gpuslice_{level}_memory_reserved_bytes", **labels)
    return scene.truth.devices[key].memory_reserved if told is None else 0


def _labels(holder: ContainerRef, key: DeviceKey) -> Labels:
    return dict(zip(ROW, (*holder, *key), strict=True))


def _told_apart(told: Scenario, holder: ContainerRef) -> bool:
    """Tell whether the node's source of pod names knows in which container of a pod a process runs."""
    pods = (*told.pods, *(fault.pod for fault in told.faults if isinstance(fault, PodAdd)))
    same = (pod for pod in pods if (pod.namespace, pod.name) == (holder.namespace, holder.pod))
    return told.identity == "pods_api" or all(len(pod.containers) == 1 for pod in same)


def _check(page: Page, labels: Labels, truth: ContainerTruth) -> None:
    if not list(page.series("gpuslice_container_info", **labels)):
        # Who holds nothing is only seen by the processes, and those of this node cannot be seen.
        assert not truth.slices
        assert not page.value("gpuslice_process_attribution_available")
        return
    shown = page.value("gpuslice_container_slices", **labels)
    # Beside a holder of its pod a container is not said to hold nothing.
    assert shown == truth.slices or (shown is None and truth.slices == 0)
    for family, true in _use(page, labels, truth).items():
        value = page.value(f"gpuslice_container_{family}", **labels)
        assert value is None or (true is not None and value == pytest.approx(true, abs=_slack(page, labels)))


def _check_pod(scene: Scene, pod: tuple[str, str], key: DeviceKey) -> None:
    labels = {"namespace": pod[0], "pod": pod[1]} | _device_labels(key)
    uses = [
        _use(scene.page, labels, truth)
        for (ref, device), truth in scene.truth.containers.items()
        if ((ref.namespace, ref.pod), device) == (pod, key)
    ]
    for family in uses[0]:
        parts = [use[family] for use in uses]
        shown = [value for _, value in scene.page.series(f"gpuslice_container_{family}", **labels)]
        if shown and None not in parts:
            known = sum(part or 0 for part in parts)
            assert sum(shown) == pytest.approx(known, abs=_slack(scene.page, labels))


def _use(page: Page, labels: Labels, truth: ContainerTruth) -> dict[str, float | None]:
    return {
        "processes": truth.processes,
        "memory_used_bytes": truth.memory,
        "compute_used_ratio": truth.sm_percent / 100 * _part(page, labels),
    }


def _part(page: Page, labels: Labels) -> float:
    """Tell which part of its GPU's compute a device is."""
    if not labels["mig_uuid"]:
        return 1
    whole = _sum(page, "gpuslice_gpu_mig_compute_slices", uuid=labels["uuid"])
    device = {name: labels[name] for name in ("uuid", "mig_uuid")}
    return (page.value("gpuslice_mig_compute_slices", **device) or 0) / whole if whole else 1


def _slack(page: Page, labels: Labels) -> float:
    """Tell how far a share may be from the load of the moment.

    AMD's is a whole number of compute units, and a profiling metric tells the mean since the last poll.
    """
    if _vendor(page, labels["uuid"]) == "amd":
        return 0.005
    sources = [
        row["compute_source"]
        for row, _ in page.series("gpuslice_container_info", uuid=labels["uuid"], mig_uuid=labels["mig_uuid"])
    ]
    return 0.1 * _part(page, labels) if "instance" in sources else 1e-9


def _vendor(page: Page, uuid: str) -> str:
    return page.labels("gpuslice_gpu_info", uuid=uuid)["vendor"]
