"""The series under DCGM's names: units, labels, and each device once."""

from dataclasses import replace

import pytest

from exporter.model import ContainerRow, DeviceKey, Memory

GPU = {
    "gpu": "0",
    "UUID": "GPU-shared",
    "pci_bus_id": "00000000:00:00.0",
    "device": "nvidia1",
    "modelName": "NVIDIA A100-SXM4-40GB",
    "Hostname": "gpu-node-07",
    "DCGM_FI_DRIVER_VERSION": "570.86",
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SM_CLOCK", 1410),
        ("MEM_CLOCK", 1215),
        ("MEMORY_TEMP", 60),
        ("GPU_TEMP", 54),
        ("POWER_USAGE", 61.234),
        ("TOTAL_ENERGY_CONSUMPTION", 123_456_789),
        ("PCIE_REPLAY_COUNTER", 2),
        ("GPU_UTIL", 37),
        ("MEM_COPY_UTIL", 7),
        ("FAN_SPEED", 30),
        ("FB_TOTAL", 40960),
        ("FB_FREE", 29696),
        ("FB_USED", 10240),
        ("FB_RESERVED", 1024),
        ("FB_USED_PERCENT", 0.25641),
    ],
)
def test_units_are_those_of_dcgm(full, values, name, value) -> None:
    """Clocks are MHz, energy mJ, memory MiB, utilization percent; FB_USED_PERCENT is a ratio nevertheless."""
    samples = values(full)[f"DCGM_FI_DEV_{name}"]

    assert value == samples[tuple(sorted(GPU.items()))]


def test_memory_is_floored_to_whole_mebibytes(full, values) -> None:
    memory = Memory(total=3 * 1024**2 - 1, used=1024**2, free=2 * 1024**2 - 1)
    gpu = replace(full.gpus[0], reading=replace(full.gpus[0].reading, memory=memory))

    samples = values(replace(full, gpus=(gpu,)))

    assert list(samples["DCGM_FI_DEV_FB_TOTAL"].values()) == [2]
    assert list(samples["DCGM_FI_DEV_FB_FREE"].values()) == [1]
    assert "DCGM_FI_DEV_FB_RESERVED" not in samples


def test_a_gpu_without_usable_memory_has_no_used_percent(full, values) -> None:
    memory = Memory(total=0, used=0, free=0, reserved=0)
    gpu = replace(full.gpus[0], reading=replace(full.gpus[0].reading, memory=memory))

    assert "DCGM_FI_DEV_FB_USED_PERCENT" not in values(replace(full, gpus=(gpu,)))


def test_in_mig_mode_memory_is_printed_for_each_gpu_instance_and_power_for_the_gpu(full, values) -> None:
    samples = values(full)
    memory = [dict(labels) for labels in samples["DCGM_FI_DEV_FB_USED"] if ("UUID", "GPU-mig") in labels]
    power = [dict(labels) for labels in samples["DCGM_FI_DEV_POWER_USAGE"] if ("UUID", "GPU-mig") in labels]

    assert [(one["GPU_I_PROFILE"], one["GPU_I_ID"]) for one in memory] == [("3g.20gb", "1"), ("3g.20gb", "2")]
    assert len(power) == 1
    assert "GPU_I_ID" not in power[0]


def test_a_gpu_in_mig_mode_prints_its_own_memory_if_its_instances_report_none(full, values) -> None:
    migs = tuple(replace(mig, reading=replace(mig.reading, memory=None)) for mig in full.migs)

    samples = values(replace(full, migs=migs))["DCGM_FI_DEV_FB_USED"]

    assert len(samples) == 2
    assert all("GPU_I_ID" not in dict(labels) for labels in samples)


def test_compute_instances_of_one_gpu_instance_print_its_memory_once(full, values) -> None:
    """Under the profile of the GPU instance."""
    migs = tuple(
        replace(mig, reading=replace(mig.reading, gi=1, ci=ci, memory_shared=True, profile="1c.3g.20gb"))
        for ci, mig in enumerate(full.migs)
    )

    samples = values(replace(full, migs=migs))["DCGM_FI_DEV_FB_USED"]

    (instance,) = [dict(labels) for labels in samples if ("GPU_I_ID", "1") in labels]
    assert instance["GPU_I_PROFILE"] == "3g.20gb"


def test_a_device_names_a_container_only_if_exactly_one_holds_it(full, values) -> None:
    """Sharers are not named, nor is a container that uses without holding."""
    free = tuple(replace(row, slices=0) for row in full.containers[1:2])
    shared = values(full)["DCGM_FI_DEV_FB_USED"]
    alone = values(replace(full, containers=(full.containers[0], *free)))["DCGM_FI_DEV_FB_USED"]

    assert _pods(shared) == {None: 2, "train-0": 1}
    assert _pods(alone) == {None: 2, "nb-anna": 1}


def test_a_device_names_no_container_if_not_all_holders_are_known(full, values) -> None:
    """The allocation of an unknown device may be of this one."""
    gpus = tuple(replace(row, holders=None) for row in full.gpus)
    migs = tuple(replace(row, holders=None) for row in full.migs)
    samples = values(replace(full, gpus=gpus, migs=migs, containers=full.containers[:1]))
    assert _pods(samples["DCGM_FI_DEV_FB_USED"]) == {None: 3}


def test_a_gpu_instance_names_no_container_if_holders_of_a_compute_instance_are_unknown(full, values) -> None:
    migs = tuple(
        replace(mig, reading=replace(mig.reading, gi=1, ci=ci), holders=holders)
        for ci, (mig, holders) in enumerate(zip(full.migs, (1, None), strict=True))
    )
    row = replace(full.containers[0], device=migs[0].device, slices=1)
    samples = values(replace(full, migs=migs, containers=(row,)))["DCGM_FI_DEV_FB_USED"]
    assert set(_pods(samples)) == {None}
    known = (migs[0], replace(migs[1], holders=0))
    samples = values(replace(full, migs=known, containers=(row,)))["DCGM_FI_DEV_FB_USED"]
    assert row.holder.pod in _pods(samples)


def test_a_holder_of_an_unlisted_mig_device_is_not_named_on_its_gpu(full, values, container) -> None:
    row: ContainerRow = container("lost", DeviceKey("GPU-mig", "MIG-gone"))

    samples = values(replace(full, containers=(row,)))

    assert _pods(samples["DCGM_FI_DEV_POWER_USAGE"]) == {None: 2}


def _pods(samples: dict) -> dict:
    pods = [dict(labels).get("pod") for labels in samples]
    return {pod: pods.count(pod) for pod in pods}


def test_the_node_label_is_configurable_and_an_unknown_driver_version_is_no_label(full, bare, values) -> None:
    labels = next(iter(values(full, hostname_label="hostname")["DCGM_FI_DEV_GPU_TEMP"]))
    assert dict(labels)["hostname"] == "gpu-node-07"
    assert "Hostname" not in dict(labels)

    reading = replace(bare.gpus[0].reading, temperature_celsius=40)
    warm = replace(bare, gpus=(replace(bare.gpus[0], reading=reading),))
    assert "DCGM_FI_DRIVER_VERSION" not in dict(next(iter(values(warm)["DCGM_FI_DEV_GPU_TEMP"])))


@pytest.mark.parametrize(
    ("names", "present", "absent"),
    [
        ("default", ["gpuslice_gpu_up", "DCGM_FI_DEV_GPU_TEMP"], ["DCGM_FI_DEV_FB_TOTAL", "dcgm_gpu_temp"]),
        ("all", ["gpuslice_gpu_up", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_FB_TOTAL"], ["dcgm_gpu_temp"]),
        ("off", ["gpuslice_gpu_up"], ["DCGM_FI_DEV_GPU_TEMP"]),
        (
            "only",
            ["DCGM_FI_DEV_GPU_TEMP", "gpuslice_collector_success", "gpuslice_build_info"],
            ["gpuslice_gpu_up", "gpuslice_mig_holders", "gpuslice_container_slices", "DCGM_FI_DEV_FB_TOTAL"],
        ),
        ("legacy", ["gpuslice_gpu_up", "DCGM_FI_DEV_GPU_TEMP", "dcgm_gpu_temp"], []),
    ],
)
def test_dcgm_names_can_be_added_left_out_or_be_the_only_ones(full, values, names, present, absent) -> None:
    """Series about the exporter's health are always there."""
    samples = values(full, dcgm_names=names)

    assert set(present) <= set(samples)
    assert not set(absent) & set(samples)


def test_a_device_names_a_job_only_if_it_has_exactly_one(full, values) -> None:
    """Each device has one sample."""
    samples = values(full)["DCGM_FI_DEV_FB_USED"]

    jobs = sorted(str(dict(labels).get("hpc_job")) for labels in samples)
    assert jobs == ["4713", "None", "None"]


def test_every_job_of_a_device_is_on_its_info_series(full, values) -> None:
    samples = values(full)

    assert [dict(labels) for labels in samples["gpuslice_gpu_job_info"]] == [
        {"node": "gpu-node-07", "gpu": "0", "uuid": "GPU-shared", "hpc_job": job} for job in ("4711", "4712")
    ]
    (labels,) = map(dict, samples["gpuslice_mig_job_info"])
    assert (labels["mig_uuid"], labels["hpc_job"]) == ("MIG-a", "4713")
