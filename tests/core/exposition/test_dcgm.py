"""Edges of the series under DCGM's names; their usual page is in dcgm_page.txt."""

from dataclasses import replace

from exporter.model import ContainerRow, DeviceKey, Memory


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


def test_a_gpu_in_mig_mode_prints_its_own_memory_if_its_instances_report_none(full, values) -> None:
    migs = tuple(replace(mig, reading=replace(mig.reading, memory=None)) for mig in full.migs)

    samples = values(replace(full, migs=migs))["DCGM_FI_DEV_FB_USED"]

    assert len(samples) == 2
    assert all("GPU_I_ID" not in dict(labels) for labels in samples)


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
