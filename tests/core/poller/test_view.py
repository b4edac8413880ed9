"""Nodes on which processes cannot be seen, or not be named."""

from dataclasses import replace

import pytest

from exporter.demo.scenario import NvmlError, Scenario, catalog
from exporter.model.poll_result import CONFIDENTIAL_LISTS
from tests.core.poller.bench import failing, health, holders, polled, rows
from tests.truth import truth_of

MIB = 1 << 20


async def test_without_the_hosts_pids_shared_use_is_unknown():
    async with polled(catalog.load("gke")) as (_, poller):
        snapshot = await poller.poll()
        assert not snapshot.node.process_view
        assert "hostPID" in snapshot.node.process_view_reason
        assert failing(snapshot) == {"processes", "identity"}
        assert holders(snapshot) == {"infer-0", "infer-1", "infer-2", "nb-anna"}
        for row in snapshot.containers:
            assert (row.slices, row.compute_entitled) == (1, 1 / 4)
            assert (row.memory_used, row.compute_used, row.processes) == (None, None, None)
            assert (row.memory_source, row.compute_source) == ("none", "none")
            assert (row.totals.used_gpu_seconds, row.totals.last_active) == (None, None)
        for gpu in snapshot.gpus:
            assert gpu.unattributed_memory == gpu.reading.memory.used


async def test_under_confidential_computing_shared_use_is_unknown():
    async with polled(catalog.load("confidential")) as (_, poller):
        snapshot = await poller.poll()
        assert not snapshot.node.process_view
        assert snapshot.node.process_view_reason == CONFIDENTIAL_LISTS
        assert failing(snapshot) == set()
        devices = {gpu.identity.uuid: gpu.reading for gpu in snapshot.gpus}
        known = {row.holder.pod: row.memory_used for row in snapshot.containers}
        assert known == {"scoring": snapshot.gpus[0].reading.memory.used, "train-0": None, "train-1": None}
        shared = [row for row in snapshot.containers if row.holder.pod != "scoring"]
        assert [(row.compute_used, row.processes, row.slices) for row in shared] == [(None, None, 1)] * 2
        used = devices[shared[0].device.uuid].memory.used
        assert snapshot.gpus[1].unattributed_memory == used


async def test_without_the_hosts_pids_an_only_holder_takes_the_devices_numbers():
    async with polled(replace(catalog.load("h100-exclusive"), host_pid=False)) as (node, poller):
        snapshot = await poller.poll()
        devices = {gpu.identity.uuid: gpu.reading for gpu in snapshot.gpus}
        assert len(snapshot.containers) == 7
        for row in snapshot.containers:
            assert row.memory_used == devices[row.device.uuid].memory.used
            assert row.compute_used == devices[row.device.uuid].utilization_percent / 100
            assert (row.memory_source, row.compute_source) == ("device", "device")
            assert row.processes is None
        held = {row.device.uuid for row in snapshot.containers}
        for gpu in snapshot.gpus:
            rest = 0 if gpu.identity.uuid in held else gpu.reading.memory.used
            assert gpu.unattributed_memory == rest
        truth = truth_of(node).devices
        assert all(truth[row.device].memory_used == row.memory_used for row in snapshot.containers)


async def test_without_the_hosts_pids_an_only_holder_takes_the_instances_numbers():
    async with polled(replace(catalog.load("a100-mig-single"), host_pid=False)) as (node, poller):
        snapshot = await poller.poll()
        truth = truth_of(node).devices
        assert len(snapshot.containers) == 6
        for row in snapshot.containers:
            assert (row.memory_used, row.memory_source) == (truth[row.device].memory_used, "instance")
            assert (row.compute_used, row.compute_source) == (None, "none")


async def test_without_names_no_use_is_guessed():
    async with polled(replace(catalog.load("t4-timeslicing"), identity="none")) as (_, poller):
        snapshot = await poller.poll()
        assert failing(snapshot) == {"identity"}
        assert health(snapshot, "identity").errors == {"no_source": 1}
        assert snapshot.node.process_view
        for pod in ("nb-anna", "nb-bruno", "nb-chloe", "infer-1", "infer-2", "embed-0"):
            (row,) = rows(snapshot, pod)
            assert row.slices >= 1
            assert (row.memory_used, row.compute_used, row.processes) == (None, None, None)
        assert {gpu.unattributed_memory for gpu in snapshot.gpus} == {
            gpu.reading.memory.used for gpu in snapshot.gpus
        }


async def test_the_only_pod_on_a_gpu_is_named_by_its_only_holder():
    async with polled(replace(catalog.load("lost-gpu"), identity="none")) as (node, poller):
        snapshot = await poller.poll()
        assert failing(snapshot) == {"identity"}
        truth = truth_of(node).containers
        for row in snapshot.containers:
            assert row.memory_used == truth[row.holder, row.device].memory


async def test_names_from_the_pod_logs_are_as_good():
    async with polled(replace(catalog.load("t4-timeslicing"), identity="pod_logs")) as (node, poller):
        snapshot = await poller.poll()
        assert failing(snapshot) == set()
        truth = truth_of(node).containers
        found = {(row.holder, row.device): row.memory_used for row in snapshot.containers}
        # Both containers of this pod run, and logs do not have their ids: the use is that of the pod.
        expected = {key: each.memory for key, each in truth.items()}
        (holder,) = (key for key in expected if key[0].pod == "infer-1")
        expected[holder[0]._replace(container=""), holder[1]] = expected[holder]
        assert found == expected | {holder: None}


async def test_a_driver_that_lists_no_processes_gives_no_view_of_them():
    """A refused list is not an empty one."""
    refused = tuple(
        NvmlError(kind="nvml_error", code="NO_PERMISSION", function=f"nvmlDeviceGet{kind}RunningProcesses_v3")
        for kind in ("Compute", "Graphics", "MPSCompute")
    )
    async with polled(replace(catalog.load("t4-timeslicing"), faults=refused)) as (_, poller):
        snapshot = await poller.poll()
    assert not snapshot.node.process_view
    assert "gpuslice_nvml_errors_total" in snapshot.node.process_view_reason
    assert {row.memory_used for row in snapshot.containers} == {None}


def ended(scenario: Scenario, name: str) -> Scenario:
    """Return the node after the processes of a pod have ended."""
    pods = tuple(
        replace(pod, containers=tuple(replace(of, processes=()) for of in pod.containers))
        if pod.name == name
        else pod
        for pod in scenario.pods
    )
    return replace(scenario, pods=pods)


@pytest.mark.parametrize("listed_again", ["now", "late", "failing"])
async def test_a_process_that_ends_before_its_place_is_read_costs_zeros_only_while_it_is_listed(
    monkeypatch, listed_again
):
    """The driver is asked for a second list, in which a process that has ended is missing."""
    async with polled(catalog.load("t4-timeslicing")) as (node, poller):
        read, nvml = poller._sources.processes.read, poller._sources.nvml

        async def late(*arguments):
            node.scenario = ended(node.scenario, "nb-anna")
            await node.step(0.0)
            return await read(*arguments)

        async def hanging(*_arguments):
            return {}

        def failing_list(_uuids):
            raise RuntimeError("no list")

        monkeypatch.setattr(poller._sources.processes, "read", late)
        if listed_again == "late":
            monkeypatch.setattr(nvml, "list_again", hanging)
        if listed_again == "failing":
            monkeypatch.setattr(nvml._sweeper, "list_again", failing_list)
        snapshot = await poller.poll()
        (idle,) = rows(snapshot, "nb-bruno")
        expected = (0, 0) if listed_again == "now" else (None, None)
        assert (idle.memory_used, idle.processes) == expected
        # The process that ended has computed, for a container that no earlier poll knows.
        assert idle.compute_used is None
        (other,) = rows(snapshot, "nb-chloe")
        assert (other.memory_used, other.compute_used) == (5120 * MIB, None)


async def test_a_build_of_docker_in_a_pod_is_its_pods():
    """Its cgroup is next to those of all pods; its parents are in the pod."""
    scenario = catalog.load("h100-exclusive")
    pod = scenario.pods[0]
    (container,) = pod.containers
    path = "/docker/buildkit/f3jq1rqwbqz1vz5v1m9q2x4ac"
    moved = tuple(replace(process, cgroup=path) for process in container.processes)
    building = replace(pod, containers=(replace(container, processes=moved),))
    async with polled(scenario) as (_, poller):
        before = await poller.poll()
    async with polled(replace(scenario, pods=(building, *scenario.pods[1:]))) as (_, poller):
        after = await poller.poll()
    assert [row.memory_used for row in rows(after, pod.name)] == [
        row.memory_used for row in rows(before, pod.name)
    ]
    assert after.gpus[0].unattributed_memory == before.gpus[0].unattributed_memory
