"""The fake node's AMD GPUs: its files, read by the source, against the scenario."""

import pytest

from exporter.amd import AmdOptions, AmdSource
from exporter.demo.node import FakeNode
from exporter.demo.scenario import catalog
from exporter.demo.scenario.amd_gpus import gpus_of
from exporter.demo.scenario.catalog import dump, parse
from exporter.documents import DocumentError
from exporter.model import DeviceKey, GpuReading, HardwareReading
from exporter.workloads.processes import boot_seconds
from tests.fake.demo.making import made, pod
from tests.truth import truth_of

TIMES = (0, 20, 47, 90, 300)
BOARD = {
    "model": "AMD Instinct MI300X",
    "device": "0x74a1",
    "architecture": "gfx942",
    "compute_units": 304,
    "memory_total": "192 GiB",
    "power_idle_mw": 100_000,
    "power_max_mw": 700_000,
    "sclk_max": 2100,
    "mclk": 1300,
}
CUT = BOARD | {"dies": 8, "mode": "CPX", "memory_mode": "NPS1", "metrics": "1.6"}


def source(node: FakeNode) -> AmdSource:
    """Point a source at a fake node."""
    proc = node.paths.proc_root
    options = AmdOptions(
        sys_root=node.paths.sys_root,
        call_timeout=2.5,
        card_budget=5.0,
        boot_clock=lambda: boot_seconds(proc),
    )
    return AmdSource(options)


def devices(reading: HardwareReading) -> dict[DeviceKey, tuple[int, int, int | None]]:
    """Return total and used memory of each device, and its use in percent of itself."""
    by_key = {}
    for gpu in reading.gpus:
        uuid = gpu.identity.uuid
        assert gpu.memory is not None
        busy = None if gpu.mig_enabled else gpu.utilization_percent
        by_key[DeviceKey(uuid)] = gpu.memory.total, gpu.memory.used, busy
        for part in gpu.mig or ():
            assert part.memory is not None
            key = DeviceKey(uuid, part.uuid)
            by_key[key] = part.memory.total, part.memory.used, part.utilization_percent
    return by_key


@pytest.mark.parametrize("name", ["mi210", "mi300x-cpx"])
async def test_the_files_agree_with_the_truth(name):
    """Every GPU and partition, its memory and its use, at some times."""
    async with FakeNode(catalog.load(name), clock=lambda: 0.0) as node:
        amd = source(node)
        for time in TIMES:
            await node.step(time)
            reading = await amd.read()
            truth = truth_of(node).devices
            assert reading.errors == {}
            assert devices(reading) == {
                key: (device.memory_total, device.memory_used, device.sm_percent)
                for key, device in truth.items()
            }
        await amd.close()


async def test_a_process_has_its_memory_and_its_share_of_compute_units():
    process = {"pid": 4242, "device": "{amd:0/part:3}", "memory": "5 GiB", "load": {"high": 50}}
    scenario = made(gpus=[], amd=[CUT], pods=[pod("p", process)])
    async with FakeNode(scenario, clock=lambda: 0.0) as node:
        amd = source(node)
        (gpu,) = (await amd.read()).gpus
        await amd.close()
    assert gpu.mig is not None
    assert [len(part.processes or ()) for part in gpu.mig] == [0, 0, 0, 1, 0, 0, 0, 0]
    part = gpu.mig[3]
    assert (part.uuid, part.utilization_percent) == ("amdgpu_xcp_2", 50)
    assert part.process_utilization == {4242: 6.25}


async def test_the_files_of_a_process_are_removed_and_return_with_it():
    process = {"pid": 4242, "device": "{amd:0/part:0}", "memory": "5 GiB"}
    fault = {"kind": "process_exit", "pid": 4242, "at": 10, "for": 10}
    scenario = made(gpus=[], amd=[CUT], pods=[pod("p", process)], faults=[fault])
    async with FakeNode(scenario, clock=lambda: 0.0) as node:
        folder = node.paths.sys_root / "class/kfd/kfd/proc/4242"
        existing = []
        for time in (0, 15, 25):
            await node.step(time)
            existing.append(folder.is_dir())
    assert existing == [True, False, True]


async def test_energy_is_the_integral_of_power():
    async with FakeNode(catalog.load("mi210"), clock=lambda: 0.0) as node:
        amd = source(node)
        readings = [await _second_gpu(amd, node, time) for time in (0, 100, 150)]
        await amd.close()
    assert [gpu.energy_millijoules for gpu in readings] == [None, 4_100_000, 6_150_000]


async def _second_gpu(amd: AmdSource, node: FakeNode, time: float) -> GpuReading:
    await node.step(time)
    return (await amd.read()).gpus[1]


async def test_boards_have_the_sensors_of_their_generation():
    """Before MI300 power is a mean, and the edge has a sensor; only boards with a fan report its speed."""
    old = BOARD | {"architecture": "gfx90a", "metrics": "1.3"}
    async with FakeNode(made(gpus=[], amd=[old, CUT | {"fan": 30}]), clock=lambda: 0.0) as node:
        amd = source(node)
        before, after = (await amd.read()).gpus
        await amd.close()
    assert list(before.power_parts_milliwatts) == ["average"]
    assert list(after.power_parts_milliwatts) == ["instant"]
    assert (before.temperature_celsius, after.temperature_celsius) == (34, 43)
    assert (before.fan_percent, after.fan_percent) == (None, 30)
    assert [gpu.identity.pci_bus_id for gpu in (before, after)] == ["00000000:05:00.0", "00000000:26:00.0"]


async def test_a_node_without_amd_gpus_has_no_files_of_them(tmp_path):
    async with FakeNode(made(), root=tmp_path, clock=lambda: 0.0) as node:
        assert not (node.paths.sys_root / "class").exists()


def test_omitted_values_are_derived():
    """Addresses, ids and serial numbers; a dumped scenario parses as equal."""
    scenario = made(gpus=[], amd=[BOARD | {"count": 9}])
    assert len({gpu.address for gpu in scenario.amd}) == 9
    assert len({gpu.unique_id for gpu in scenario.amd}) == 9
    assert [scenario.amd[index].address for index in (0, 8)] == ["0000:05:00.0", "0001:05:00.0"]
    assert parse(dump(scenario)) == scenario


def test_offers_have_the_addresses_of_gpus_and_partitions():
    offer = {"resource": "amd.com/{profile}", "of": "amd"}
    halves = CUT | {"mode": "DPX", "memory_mode": "NPS2"}
    whole = CUT | {"mode": "SPX"}
    scenario = made(gpus=[], amd=[halves, whole], offers=[offer])
    assert {offer.resource: offer.ids for offer in scenario.offers} == {
        "amd.com/dpx_nps2": ("0000:05:00.0", "amdgpu_xcp_0"),
        "amd.com/spx_nps1": ("0000:26:00.0",),
    }


@pytest.mark.parametrize(
    ("board", "named"),
    [
        ({"address": "19:00.0"}, r"amd\[0\]\.address"),
        ({"unique_id": "xyz"}, r"amd\[0\]\.unique_id"),
        ({"architecture": "MI300"}, r"amd\[0\]\.architecture"),
        ({"overhead": "200 GiB"}, r"amd\[0\]\.memory_total"),
        ({"power_idle_mw": 800_000}, r"amd\[0\]\.power_idle_mw"),
        ({"memory_mode": ""}, r"amd\[0\]\.memory_mode"),
        ({"dies": 7}, r"amd\[0\]\.dies"),
        ({"mode": "TPX"}, r"amd\[0\]\.mode"),
    ],
)
def test_a_mistake_has_the_path_of_its_value(board, named):
    with pytest.raises(DocumentError, match=named):
        made(gpus=[], amd=[CUT | board])


def test_processes_must_fit_into_their_partition():
    process = {"device": "{amd:0/part:1}", "memory": "25 GiB"}
    with pytest.raises(DocumentError, match=r"amd\[0\]: its processes use"):
        made(gpus=[], amd=[CUT], pods=[pod("p", process)])


def test_a_missing_partition_is_an_error_with_the_existing_ones():
    process = {"device": "{amd:0/part:8}"}
    with pytest.raises(DocumentError, match=r"amd:0/part:7"):
        made(gpus=[], amd=[CUT], pods=[pod("p", process)])


def test_the_mode_determines_the_number_of_partitions():
    modes = {"SPX": 1, "DPX": 2, "QPX": 4, "CPX": 8}
    for mode, count in modes.items():
        (gpu,) = made(gpus=[], amd=[CUT | {"mode": mode}]).amd
        assert gpu.partitions == count
        assert len(gpus_of([gpu])[0].instances or [gpu]) == count
