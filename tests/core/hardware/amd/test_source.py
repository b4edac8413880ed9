"""AMD GPUs as a source: one thread, each card by itself, and what is known of one that does not answer."""

import asyncio
import shutil

import pytest

from exporter.amd import AmdSource
from exporter.amd.amd_source import CardReader
from exporter.amd.cards import Card
from exporter.model import GpuReading, HardwareReading
from tests.core.hardware.amd.conftest import Stuck
from tests.core.hardware.amd.tree import GIB, GPU_ID, UUID, Tree, unreadable
from tests.core.hardware.hanging import CALL_TIMEOUT
from tests.waiting import wait_until_async

OTHER = f"GPU-{'b' * 16}"


async def published(amd: AmdSource, uuid: str, sweep: int) -> HardwareReading:
    """Return what is published once it has a GPU's reading of a sweep."""
    await wait_until_async(
        lambda: any((gpu.identity.uuid, gpu.sweep) == (uuid, sweep) for gpu in amd.latest.gpus)
    )
    return amd.latest


async def test_cards_are_published_one_by_one(two: Tree, stuck: Stuck) -> None:
    """Also while the next one hangs."""
    amd = two.source()
    file = stuck.hang(two.device(1) / "mem_info_vram_used")
    reading = asyncio.ensure_future(amd.read())
    latest = await published(amd, UUID, 1)
    assert [gpu.identity.uuid for gpu in latest.gpus] == [UUID]
    assert not reading.done()
    stuck.release(file)
    assert [gpu.identity.uuid for gpu in (await reading).gpus] == [UUID, OTHER]


async def test_the_last_reading_of_a_card_stays_while_it_hangs(two: Tree, stuck: Stuck) -> None:
    amd = two.source()
    await amd.read()
    file = stuck.hang(two.device(1) / "mem_info_vram_used")
    reading = asyncio.ensure_future(amd.read())
    latest = await published(amd, UUID, 2)
    assert {gpu.identity.uuid: gpu.sweep for gpu in latest.gpus} == {UUID: 2, OTHER: 1}
    stuck.release(file)
    await reading


async def test_a_card_that_hangs_is_down_until_it_answers(two: Tree, stuck: Stuck) -> None:
    """The other is read in each sweep, and the hang is counted."""
    amd = two.source(call_timeout=CALL_TIMEOUT)
    await amd.read()
    file = stuck.hang(two.device(1) / "mem_info_vram_used")
    for sweep in (3, 4):
        reading = await amd.read()
        healthy, hung = reading.gpus
        assert (healthy.identity.uuid, healthy.up, healthy.sweep) == (UUID, True, sweep)
        assert (hung.identity.uuid, hung.up, hung.memory) == (OTHER, False, None)
    assert reading.errors == {(OTHER, "sysfs mem_info_vram_used", "Hangs"): 2}
    assert len(stuck.threads()) == 2
    stuck.release(file)
    await stuck.settle()
    again = await amd.read()
    assert [gpu.up and gpu.memory is not None for gpu in again.gpus] == [True, True]
    assert again.errors == reading.errors


async def test_a_kfd_that_hangs_costs_what_only_kfd_reports(tree: Tree, stuck: Stuck) -> None:
    """The partitions are still known by name."""
    tree.partitions(2)
    amd = tree.source(call_timeout=CALL_TIMEOUT)
    (before,) = (await amd.read()).gpus
    stuck.hang(tree.kfd / "topology/generation_id")
    (gpu,) = (await amd.read()).gpus
    assert (gpu.up, gpu.memory, gpu.mig_slices) == (True, before.memory, 2)
    assert (gpu.mig_complete, gpu.processes) == (False, None)
    assert [(part.uuid, part.memory) for part in gpu.mig or ()] == [
        ("0000:19:00.0", None),
        ("amdgpu_xcp_21", None),
    ]


@pytest.mark.parametrize("name", ["uevent", "vendor"])
async def test_a_known_card_that_hangs_in_discovery_stays(two: Tree, stuck: Stuck, name: str) -> None:
    amd = two.source(call_timeout=CALL_TIMEOUT)
    before = await amd.read()
    stuck.hang(two.device(1) / name)
    reading = await amd.read()
    assert [(gpu.identity, gpu.up) for gpu in reading.gpus] == [(gpu.identity, True) for gpu in before.gpus]
    assert reading.errors == {("", f"sysfs {name}", "Hangs"): 1}


async def test_an_unknown_card_that_hangs_is_counted(two: Tree, stuck: Stuck) -> None:
    stuck.hang(two.device(1) / "unique_id")
    amd = two.source(call_timeout=CALL_TIMEOUT)
    reading = await amd.read()
    assert ([gpu.identity.uuid for gpu in reading.gpus], reading.gpu_count) == ([UUID], 2)


async def test_a_process_that_hangs_costs_the_list_of_processes(tree: Tree, stuck: Stuck) -> None:
    tree.card()
    tree.node(1)
    tree.process(7, GIB, 3)
    amd = tree.source(call_timeout=CALL_TIMEOUT)
    (before,) = (await amd.read()).gpus
    assert [process.pid for process in before.processes or ()] == [7]
    stuck.hang(tree.kfd / f"proc/7/stats_{GPU_ID}/cu_occupancy")
    (gpu,) = (await amd.read()).gpus
    assert (gpu.up, gpu.memory, gpu.processes) == (True, before.memory, None)
    assert "processes" in gpu.withheld


async def test_a_card_beyond_its_budget_is_down(two: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    amd = two.source()
    assert [gpu.up for gpu in (await amd.read()).gpus] == [True, True]
    with monkeypatch.context() as patched:
        patched.setattr(amd, "_card_budget", -1.0)
        slow = await amd.read()
    assert [(gpu.up, gpu.memory) for gpu in slow.gpus] == [(False, None), (False, None)]
    assert (UUID, "sysfs uevent", "TooSlow") not in slow.errors
    assert {error for _, _, error in slow.errors} == {"TooSlow"}
    assert [gpu.up for gpu in (await amd.read()).gpus] == [True, True]


async def test_a_slow_card_is_read_last(two: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    amd = two.source()
    read = CardReader.read

    def late(self: CardReader, card: Card, *others: object) -> GpuReading:
        if card.index == 0:
            self._files.context.deadline = 0.0
        return read(self, card, *others)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(CardReader, "read", late)
        await amd.read()
    assert [gpu.identity.uuid for gpu in (await amd.read()).gpus] == [OTHER, UUID]


async def test_an_unexpected_exception_costs_one_card(two: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    read = CardReader.read

    def broken(self: CardReader, card: Card, *others: object) -> GpuReading:
        reading = read(self, card, *others)  # type: ignore[arg-type]
        if card.index == 0:
            raise ZeroDivisionError
        return reading

    monkeypatch.setattr(CardReader, "read", broken)
    reading = await two.read()
    assert {gpu.identity.uuid: gpu.up for gpu in reading.gpus} == {UUID: False, OTHER: True}
    assert reading.errors == {(UUID, "read", "ZeroDivisionError"): 1}


async def test_a_removed_card_is_down_and_identified_again_when_back(two: Tree) -> None:
    amd = two.source()
    await amd.read()
    shutil.rmtree(two.device(1))
    gone = (await amd.read()).gpus[1]
    assert (gone.identity.uuid, gone.up, gone.memory) == (OTHER, False, None)
    two.second(unique_id="c" * 16)
    reading = await amd.read()
    assert [(gpu.identity.uuid, gpu.up) for gpu in reading.gpus] == [(UUID, True), (f"GPU-{'c' * 16}", True)]


async def test_a_card_that_returns_at_another_address_is_one_card(two: Tree) -> None:
    amd = two.source()
    await amd.read()
    shutil.rmtree(two.device(1))
    assert (await amd.read()).gpu_count == 2
    two.second(uevent="DRIVER=amdgpu\nPCI_SLOT_NAME=0000:44:00.0")
    for _ in range(2):
        reading = await amd.read()
        assert [(gpu.identity.uuid, gpu.identity.pci_bus_id, gpu.up) for gpu in reading.gpus] == [
            (UUID, "00000000:19:00.0", True),
            (OTHER, "00000000:44:00.0", True),
        ]
        assert reading.gpu_count == 2


@pytest.mark.parametrize(
    ("driver", "known"), [("vfio-pci", [UUID]), ("", [UUID, OTHER]), ("amdgpu", [UUID, OTHER])]
)
async def test_a_card_of_another_driver_is_not_lost(two: Tree, driver: str, known: list[str]) -> None:
    """One given to a virtual machine leaves; one without a driver may be broken."""
    amd = two.source()
    await amd.read()
    shutil.rmtree(two.device(1))
    two.write("bus/pci/devices/0000:43:00.0/uevent", f"DRIVER={driver}" if driver else "PCI_CLASS=38000")
    reading = await amd.read()
    assert [gpu.identity.uuid for gpu in reading.gpus] == known
    assert (reading.gpu_count, reading.errors) == (len(known), {})


async def test_a_removed_card_keeps_its_partitions_without_values(tree: Tree) -> None:
    tree.partitions(2)
    amd = tree.source()
    await amd.read()
    shutil.rmtree(tree.device())
    (gone,) = (await amd.read()).gpus
    assert [(part.uuid, part.memory, part.processes) for part in gone.mig or ()] == [
        ("0000:19:00.0", None, None),
        ("amdgpu_xcp_21", None, None),
    ]


async def test_an_unreadable_unique_id_does_not_change_the_uuid(tree: Tree) -> None:
    device = tree.card()
    amd = tree.source()
    await amd.read()
    unreadable(device / "unique_id")
    assert (await amd.read()).gpus[0].identity.uuid == UUID


async def test_sweeps_are_numbered(tree: Tree) -> None:
    tree.card()
    amd = tree.source()
    assert [(await amd.read()).gpus[0].sweep for _ in range(3)] == [1, 2, 3]


async def test_errors_are_counted_since_start(tree: Tree) -> None:
    unreadable(tree.card() / "gpu_busy_percent")
    amd = tree.source()
    await amd.read()
    assert (await amd.read()).errors == {(UUID, "sysfs gpu_busy_percent", "EISDIR"): 2}


async def test_readings_have_the_time_of_the_clock(tree: Tree) -> None:
    tree.card()
    moments = iter((5.0, 7.0))
    amd = tree.source(clock=lambda: next(moments))
    assert [gpu.read_monotonic for gpu in (await amd.read()).gpus] == [5.0]
    shutil.rmtree(tree.device())
    assert [(gpu.read_monotonic, gpu.up) for gpu in (await amd.read()).gpus] == [(7.0, False)]
