"""What must be true of every page, whatever the node: sums hold, no series is duplicated or invented."""

# ruff: noqa: ARG001 - all laws take the same arguments
import math
from collections import Counter
from collections.abc import Iterator

import pytest

from exporter.demo.scenario import DriverReload, GpuAbsent, PodAdd, Scenario
from exporter.model import ContainerRef, DeviceKey
from exporter.model.balances import ALLOCATION_CLASSES, USE_CLASSES
from tests.core.golden.page import Labels, Page
from tests.core.golden.story import NODES, Scene, story
from tests.truth import ContainerTruth

ROW = ("namespace", "pod", "container", "uuid", "mig_uuid")
UTILIZATION, ENERGY = "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetTotalEnergyConsumption"
# Sums of measured seconds, and the sums that limit them.
TIMES = (
    ("memory_measured_seconds_total", "held_seconds_total"),
    ("compute_measured_gpu_seconds_total", "entitled_gpu_seconds_total"),
)
# The two balances of a GPU: counters by class.
BALANCES = ("gpuslice_gpu_allocation_seconds_total", "gpuslice_gpu_use_seconds_total")
OF_A_GPU_THAT_IS_UP = (
    *("gpu_memory_used_bytes", "gpu_utilization_ratio", "gpu_power_watts"),
    *("container_memory_used_bytes", "container_compute_used_ratio", "container_processes"),
)


def memory_adds_up(scenario: Scenario, scene: Scene) -> None:
    """Check containers + unattributed = used on every GPU, and on every MIG device with memory of its own."""
    for key in _answering(scene):
        level, labels = _level(key)
        used = scene.page.value(f"gpuslice_{level}_memory_used_bytes", **labels)
        rest = scene.page.value(f"gpuslice_{level}_unattributed_memory_bytes", **labels)
        held = _sum(scene.page, "gpuslice_container_memory_used_bytes", **labels)
        assert (used is None) == (rest is None)
        assert used is None or held + (rest or 0) == used


def compute_adds_up(scenario: Scenario, scene: Scene) -> None:
    """Check containers + unattributed = utilization on every GPU whose driver reports it."""
    for labels, whole in scene.page.series("gpuslice_gpu_utilization_ratio"):
        held = _sum(scene.page, "gpuslice_container_compute_used_ratio", uuid=labels["uuid"])
        rest = scene.page.value("gpuslice_gpu_unattributed_utilization_ratio", uuid=labels["uuid"])
        assert rest is not None
        if _vendor(scene.page, labels["uuid"]) == "amd":
            # The compute units that processes occupy now are not a share of the past interval.
            assert held <= 1
            assert rest == pytest.approx(max(whole - held, 0))
        elif _answer(scenario, labels["uuid"], UTILIZATION) is not None:
            # A real driver rounds the figure of each process up.
            assert held <= whole + 0.01 * len(scene.truth.containers)
            assert held + rest == pytest.approx(max(whole, held))
        else:
            assert held + rest == pytest.approx(whole)


def both_balances_add_up(scenario: Scenario, scene: Scene) -> None:
    """Check that each GPU has all classes, which add up to the same time in both balances."""
    for labels, _ in scene.page.series("gpuslice_gpu_info"):
        allocation, use = (_classes(scene.page, name, labels["uuid"]) for name in BALANCES)
        assert (tuple(allocation), tuple(use)) == (ALLOCATION_CLASSES, USE_CLASSES)
        assert min(*allocation.values(), *use.values()) >= 0
        assert math.isclose(sum(allocation.values()), sum(use.values()), rel_tol=1e-12, abs_tol=1e-9)


def memory_never_exceeds_its_peak(scenario: Scenario, scene: Scene) -> None:
    """Check that there is a peak from the first known use."""
    for labels, used in scene.page.series("gpuslice_container_memory_used_bytes"):
        peak = scene.page.value("gpuslice_container_memory_peak_bytes", **labels)
        assert peak is not None
        assert used <= peak


def no_more_time_is_measured_than_held(scenario: Scenario, scene: Scene) -> None:
    """Check that each container that holds a device has both sums, also if nothing is measured."""
    for part, whole in TIMES:
        held = {str(labels): value for labels, value in scene.page.series(f"gpuslice_container_{whole}")}
        measured = {str(labels): value for labels, value in scene.page.series(f"gpuslice_container_{part}")}
        assert measured.keys() == held.keys()
        assert all(0 <= value <= held[labels] for labels, value in measured.items())


def each_mig_profile_of_a_model_is_there_once(scenario: Scenario, scene: Scene) -> None:
    """Check for all of its series, from one source for each model, only for models with MIG."""
    models = {labels["model"] for labels, _ in scene.page.series("gpuslice_gpu_info")}
    sizes = [labels for labels, _ in scene.page.series("gpuslice_node_mig_profile_memory_bytes")]
    assert len({(labels["model"], labels["profile"]) for labels in sizes}) == len(sizes)
    assert {labels["model"] for labels in sizes} <= models
    for other in ("multiprocessors", "instances"):
        assert [labels for labels, _ in scene.page.series(f"gpuslice_node_mig_profile_{other}")] == sizes


def slices_and_entitlements_add_up(scenario: Scenario, scene: Scene) -> None:
    """Check that holders' slices are those allocated, and that entitlements add up to that of the GPU.

    A container that holds one device through several resources counts for the first of them.
    """
    for labels, _ in scene.page.series("gpuslice_gpu_up"):
        uuid = labels["uuid"]
        counted, further = _counted_slices(scene.page, uuid)
        for series, allocated in scene.page.series("gpuslice_gpu_slices_allocated", uuid=uuid):
            resource = series["resource"]
            assert counted[resource] == allocated or (resource in further and counted[resource] < allocated)
        entitled = scene.page.value("gpuslice_gpu_memory_entitled_bytes", uuid=uuid)
        assert entitled in (None, _sum(scene.page, "gpuslice_container_memory_entitled_bytes", uuid=uuid))


def no_series_is_duplicated(scenario: Scenario, scene: Scene) -> None:
    """Check it, and that all numbers are finite."""
    samples = scene.page.samples
    counts = Counter((name, tuple(sorted(labels.items()))) for name, labels, _ in samples)
    assert not [series for series, count in counts.items() if count > 1]
    assert all(math.isfinite(value) for _, _, value in samples)


def memory_and_utilization_of_devices_are_true(scenario: Scenario, scene: Scene) -> None:
    """Check them; a driver that does not report reserved memory counts it as used."""
    for key in _answering(scene):
        level, labels = _level(key)
        truth = scene.truth.devices[key]
        read = {
            kind: scene.page.value(f"gpuslice_{level}_memory_{kind}_bytes", **labels)
            for kind in ("total", "used", "free", "reserved")
        }
        if read["total"] is None:
            # Compute instances that share their memory.
            assert set(read.values()) == {None}
            continue
        assert read["total"] == truth.memory_total
        assert read["used"] == truth.memory_used + _reserved_as_used(scene, level, labels, key)
        assert read["free"] == truth.memory_total - truth.memory_used - truth.memory_reserved
        assert read["reserved"] in (None, truth.memory_reserved)
        if truth.sm_percent is not None and level == "gpu":
            recorded = _answer(scenario, key.uuid, UTILIZATION)
            percent = truth.sm_percent if recorded is None else recorded
            assert scene.page.value("gpuslice_gpu_utilization_ratio", uuid=key.uuid) == percent / 100


def unattributed_memory_is_what_no_pod_uses(scenario: Scenario, scene: Scene) -> None:
    """Check it if the processes and their memory are known."""
    if not scene.page.value("gpuslice_process_attribution_available"):
        return
    for key in _answering(scene):
        level, labels = _level(key)
        memory = [truth.memory for (_, on), truth in scene.truth.containers.items() if on.uuid == key.uuid]
        rest = scene.page.value(f"gpuslice_{level}_unattributed_memory_bytes", **labels)
        if rest is not None and None not in memory:
            hidden = _reserved_as_used(scene, level, labels, key)
            assert rest == scene.truth.devices[key].unattributed + hidden


def a_gpu_that_is_down_has_no_reading_and_no_use(scenario: Scenario, scene: Scene) -> None:
    for labels, up in scene.page.series("gpuslice_gpu_up"):
        for family in OF_A_GPU_THAT_IS_UP if not up else ():
            assert not list(scene.page.series(f"gpuslice_{family}", uuid=labels["uuid"]))


def numbers_of_containers_are_true_or_absent(scenario: Scenario, scene: Scene) -> None:
    """Check slices, processes, bytes and percents."""
    for (holder, key), truth in scene.truth.containers.items():
        if _containers_are_distinguished(scenario, holder):
            _check_container(scene.page, dict(zip(ROW, (*holder, *key), strict=True)), truth)


def numbers_of_pods_are_true(scenario: Scenario, scene: Scene) -> None:
    """Check that a pod's use is on the page, also if its containers cannot be distinguished."""
    if scene.page.value("gpuslice_process_attribution_available"):
        for pod, key in {((ref.namespace, ref.pod), key) for ref, key in scene.truth.containers}:
            _check_pod(scene, pod, key)


def every_holder_exists(scenario: Scenario, scene: Scene) -> None:
    """Check that every row is of a container that holds or uses the device, or of a pod as a whole."""
    existing = {(*holder, *key) for holder, key in scene.truth.containers}
    existing |= {(holder.namespace, holder.pod, "", *key) for holder, key in scene.truth.containers}
    for labels, _ in scene.page.series("gpuslice_container_info"):
        assert tuple(labels.get(name, "") for name in ROW) in existing


# The unknown DRA driver of the scenarios.
UNKNOWN_DRIVER = "dra.example.com"


def unresolved_ids_are_counted(scenario: Scenario, scene: Scene) -> None:
    """Check them by resource; ids of other devices than GPUs are not counted."""
    claims = [claim for pod in scenario.pods for of in pod.containers for claim in of.claims]
    unknown = {(claim.pool, claim.device) for claim in claims if claim.driver == UNKNOWN_DRIVER}
    expected = {name: count for name, count in scene.truth.unresolved.items() if "fpga" not in name}
    if unknown:
        expected[UNKNOWN_DRIVER] = len(unknown)
    counts = {
        labels["resource"]: value for labels, value in scene.page.series("gpuslice_allocations_unresolved")
    }
    assert counts == expected


LAWS = (
    *(memory_adds_up, compute_adds_up, both_balances_add_up, memory_never_exceeds_its_peak),
    *(no_more_time_is_measured_than_held, each_mig_profile_of_a_model_is_there_once),
    *(slices_and_entitlements_add_up, no_series_is_duplicated),
    *(memory_and_utilization_of_devices_are_true, unattributed_memory_is_what_no_pod_uses),
    *(a_gpu_that_is_down_has_no_reading_and_no_use, numbers_of_containers_are_true_or_absent),
    *(numbers_of_pods_are_true, every_holder_exists, unresolved_ids_are_counted),
)


# tests/together/soak/laws.py holds the pages of a day to the tests of this file with the parameter `name`.
@pytest.mark.parametrize("name", NODES)
def test_every_law_holds_on_every_page(name: str) -> None:
    broken = []
    for scene in story(name).scenes:
        for law in LAWS:
            try:
                law(story(name).scenario, scene)
            except AssertionError as error:
                broken.append(f"{law.__name__} after {scene.time} s: {error}")
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize("name", NODES)
def test_energy_adds_up_until_a_container_goes(name: str) -> None:
    """Containers + unattributed = what the GPU drew since the start; none of it moves on later.

    The counter of a GPU starts again with its driver, and the energy of containers does not.
    """
    scenario, scenes = story(name).scenario, story(name).scenes
    if any(isinstance(fault, DriverReload | GpuAbsent) for fault in scenario.faults):
        return
    for scene in scenes:
        for labels, counter in scene.page.series("gpuslice_gpu_energy_joules_total"):
            # A recording begins with the counter as it was.
            drawn = counter - (_answer(scenario, labels["uuid"], ENERGY) or 0) / 1000
            held = _sum(scene.page, "gpuslice_container_energy_joules_total", uuid=labels["uuid"])
            rest = scene.page.value("gpuslice_gpu_unattributed_energy_joules_total", uuid=labels["uuid"])
            assert rest is not None
            if scenario.faults:
                assert held + rest <= drawn * (1 + 1e-9)
            else:
                assert held + rest == pytest.approx(drawn)


@pytest.mark.parametrize("name", NODES)
def test_no_class_of_a_balance_ever_falls_and_no_time_is_missing(name: str) -> None:
    """All time since the start is observed of a GPU that is always listed."""
    listed_from_the_start = not any(isinstance(fault, GpuAbsent) for fault in story(name).scenario.faults)
    for family in BALANCES:
        earlier: dict[str, dict[str, float]] = {}
        for scene in story(name).scenes:
            for labels, _ in scene.page.series("gpuslice_gpu_up"):
                classes = _classes(scene.page, family, labels["uuid"])
                before = earlier.get(labels["uuid"], dict.fromkeys(classes, 0.0))
                assert all(classes[key] >= value for key, value in before.items())
                observed = sum(classes.values())
                assert observed == pytest.approx(scene.time) or not listed_from_the_start
                assert observed <= scene.time + 1e-9
                earlier[labels["uuid"]] = classes


def _classes(page: Page, family: str, uuid: str) -> dict[str, float]:
    """Return the seconds of a GPU by class."""
    return {labels["class"]: value for labels, value in page.series(family, uuid=uuid)}


def _sum(page: Page, family: str, **labels: str) -> float:
    return sum(value for _, value in page.series(family, **labels))


def _device_labels(key: DeviceKey) -> Labels:
    return {"uuid": key.uuid, "mig_uuid": key.mig_uuid}


def _answering(scene: Scene) -> Iterator[DeviceKey]:
    """Yield the devices of the scenario whose GPU answers."""
    return (key for key in scene.truth.devices if scene.page.value("gpuslice_gpu_up", uuid=key.uuid))


def _level(key: DeviceKey) -> tuple[str, Labels]:
    """Return the prefix of the series of a device, and their labels."""
    return ("mig", _device_labels(key)) if key.mig_uuid else ("gpu", {"uuid": key.uuid})


def _counted_slices(page: Page, uuid: str) -> tuple[Counter[str], set[str]]:
    """Return the slices of a GPU by the resource they count for, and the resources listed after another."""
    counted: Counter[str] = Counter()
    further: set[str] = set()
    for info, _ in page.series("gpuslice_container_info", uuid=uuid):
        first, *others = info.get("resource", "").split(",")
        further |= set(others)
        row = {name: info[name] for name in ROW if name in info}
        counted[first] += _sum(page, "gpuslice_container_slices", **row)
    return counted, further


def _answer(scenario: Scenario, uuid: str, call: str) -> int | None:
    """Return the number that the GPU of a recording answers to a call, None for all others."""
    gpus = (gpu for gpu in scenario.gpus if gpu.uuid == uuid)
    return next((gpu.answers[call][0] for gpu in gpus if call in gpu.answers), None)


def _reserved_as_used(scene: Scene, level: str, labels: Labels, key: DeviceKey) -> int:
    """Return the reserved memory of a device if its driver does not report it."""
    shown = scene.page.value(f"gpuslice_{level}_memory_reserved_bytes", **labels)
    return scene.truth.devices[key].memory_reserved if shown is None else 0


def _containers_are_distinguished(scenario: Scenario, holder: ContainerRef) -> bool:
    """Whether the node's source of pod names knows in which container of a pod a process runs."""
    pods = (*scenario.pods, *(fault.pod for fault in scenario.faults if isinstance(fault, PodAdd)))
    namesakes = (pod for pod in pods if (pod.namespace, pod.name) == (holder.namespace, holder.pod))
    return scenario.identity == "pods_api" or all(len(pod.containers) == 1 for pod in namesakes)


def _check_container(page: Page, labels: Labels, truth: ContainerTruth) -> None:
    if not list(page.series("gpuslice_container_info", **labels)):
        # A container without a slice is known by its processes only, which this node does not show.
        assert not truth.slices
        assert not page.value("gpuslice_process_attribution_available")
        return
    shown = page.value("gpuslice_container_slices", **labels)
    # Next to a holder in its pod, a container is not said to hold nothing.
    assert shown == truth.slices or (shown is None and truth.slices == 0)
    for family, expected in _use(page, labels, truth).items():
        value = page.value(f"gpuslice_container_{family}", **labels)
        tolerance = _tolerance(page, labels)
        assert value is None or (expected is not None and value == pytest.approx(expected, abs=tolerance))


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
            total = sum(part or 0 for part in parts)
            assert sum(shown) == pytest.approx(total, abs=_tolerance(scene.page, labels))


def _use(page: Page, labels: Labels, truth: ContainerTruth) -> dict[str, float | None]:
    return {
        "processes": truth.processes,
        "memory_used_bytes": truth.memory,
        "compute_used_ratio": truth.sm_percent / 100 * _part(page, labels),
    }


def _part(page: Page, labels: Labels) -> float:
    """Return the device's share of the compute of its GPU."""
    if not labels["mig_uuid"]:
        return 1
    whole = _sum(page, "gpuslice_gpu_mig_compute_slices", uuid=labels["uuid"])
    device = {name: labels[name] for name in ("uuid", "mig_uuid")}
    return (page.value("gpuslice_mig_compute_slices", **device) or 0) / whole if whole else 1


def _tolerance(page: Page, labels: Labels) -> float:
    """Return how far a share may be from the load of the moment.

    AMD reports whole compute units, and a profiling metric the mean since the last poll.
    """
    if _vendor(page, labels["uuid"]) == "amd":
        return 0.005
    device = {name: labels[name] for name in ("uuid", "mig_uuid")}
    sources = [info["compute_source"] for info, _ in page.series("gpuslice_container_info", **device)]
    return 0.1 * _part(page, labels) if "instance" in sources else 1e-9


def _vendor(page: Page, uuid: str) -> str:
    return page.labels("gpuslice_gpu_info", uuid=uuid)["vendor"]
