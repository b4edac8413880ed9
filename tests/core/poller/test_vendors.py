"""A node with GPUs of two vendors: one driver that hangs or is not there says nothing about the other's."""

from dataclasses import replace

from exporter.demo.scenario import NvmlError, NvmlHang, Scenario, catalog
from tests.core.poller.bench import QUICK, brief_waits, failing, make_stale, polled
from tests.fake.demo.making import gpu, made


def mixed(*faults: NvmlError | NvmlHang) -> Scenario:
    """Return a node with two GPUs of NVIDIA and two of AMD."""
    return replace(made(gpus=[gpu(count=2)]), amd=catalog.load("mi210").amd, faults=faults)


async def test_two_drivers_count_together():
    async with polled(mixed(), **QUICK) as (_, poller):
        node = (await poller.poll()).node
        assert node.gpu_count == 4
        assert node.driver.nvml_version is not None


async def test_a_hung_driver_leaves_the_count_unknown_and_the_other_gpus_alone():
    hang = NvmlHang(kind="nvml_hang", at=10, for_=10)
    async with polled(mixed(hang), **QUICK) as (node, poller):
        await poller.poll()
        await node.step(10)
        make_stale(poller)
        with brief_waits(poller, "nvml"):
            snapshot = await poller.poll()
        assert failing(snapshot) == {"nvml"}
        assert (snapshot.node.gpu_count, snapshot.node.driver) == (None, None)
        up = {(row.identity.vendor, row.reading.up) for row in snapshot.gpus}
        assert up == {("nvidia", False), ("amd", True)}


async def test_a_missing_driver_on_an_amd_node_is_no_failure_after_another_error():
    slow = NvmlError(kind="nvml_error", for_=10, function="nvmlInitWithFlags", code="UNKNOWN")
    absent = NvmlError(kind="nvml_error", at=10, function="nvmlInitWithFlags", code="DRIVER_NOT_LOADED")
    async with polled(replace(catalog.load("mi210"), faults=(slow, absent)), **QUICK) as (node, poller):
        assert failing(await poller.poll()) == {"nvml"}
        await node.step(10)
        snapshot = await poller.poll()
        assert failing(snapshot) == set()
        assert snapshot.node.gpu_count == 2
