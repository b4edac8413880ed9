"""AMD's GPUs as a source: one thread, each card by itself, and what is left of one that does not answer."""

import asyncio
import shutil
import threading

import pytest

from exporter.amd import AmdSource
from exporter.amd.amd_source import CardReader
from exporter.amd.cards import Card
from exporter.model import GpuReading, HardwareReading
from tests.hardware.amd.tree import GIB, GPU_ID, UUID, Tree, hanging, release, unreadable

OTHER = f"GPU-{'b' * 16}"


@pytest.fixture
def two(tree: Tree) -> Tree:
    """Give a node with two cards."""
    tree.card()
    tree.second()
    return tree


async def published(amd: AmdSource, uuid: str, sweep: int) -> HardwareReading:
    """Wait until a GPU's reading of a sweep is published."""
    for _ in range(5000):
        latest = amd.latest
        if latest and any(gpu.identity.uuid == uuid and gpu.sweep == sweep for gpu in latest.gpus):
            return latest
        await asyncio.sleep(0.001)
    raise TimeoutError


def threads() -> int:
    """Count the threads that read cards."""
    return sum(thread.name == "amd" for thread in threading.enumerate())


async def one_thread() -> None:
    """Wait until the one that was left behind has ended."""
    for _ in range(5000):
        if threads() == 1:
            return
        await asyncio.sleep(0.001)
    raise TimeoutError


async def test_a_card_that_hangs_does_not_hide_the_one_before(two: Tree) -> None:
    """What is read is published card by card, while the thread still waits for the next one."""
    amd = two.source()
    stuck = two.device(1) / "mem_info_vram_used"
    hanging(stuck)
    reading = asyncio.ensure_future(amd.read())
    latest = await published(amd, UUID, 1)
    assert [gpu.identity.uuid for gpu in latest.gpus] == [UUID]
    assert not reading.done()
    release(stuck)
    assert [gpu.identity.uuid for gpu in (await reading).gpus] == [UUID, OTHER]
    await amd.close()


async def test_the_older_reading_stays_while_a_card_hangs(two: Tree) -> None:
    """A GPU that was known is not gone because it is not read yet."""
    amd = two.source()
    await amd.read()
    stuck = two.device(1) / "mem_info_vram_used"
    hanging(stuck)
    reading = asyncio.ensure_future(amd.read())
    latest = await published(amd, UUID, 2)
    assert {gpu.identity.uuid: gpu.sweep for gpu in latest.gpus} == {UUID: 2, OTHER: 1}
    release(stuck)
    await reading
    await amd.close()


async def test_a_card_that_does_not_return_is_left_out_until_it_does(two: Tree) -> None:
    """The others are read at each sweep, it is down and counted; once its read returns it is read again."""
    amd = two.source(call_timeout=0.2)
    await amd.read()
    stuck = two.device(1) / "mem_info_vram_used"
    hanging(stuck)
    for sweep in (3, 4):
        found = await amd.read()
        well, left_out = found.gpus
        assert (well.identity.uuid, well.up, well.sweep) == (UUID, True, sweep)
        assert (left_out.identity.uuid, left_out.up, left_out.memory) == (OTHER, False, None)
    assert found.errors == {(OTHER, "sysfs mem_info_vram_used", "Hangs"): 2}
    assert threads() == 2
    release(stuck)
    stuck.unlink()
    stuck.write_text("5\n")
    await one_thread()
    again = await amd.read()
    assert {gpu.identity.uuid: (gpu.up, gpu.memory and gpu.memory.used) for gpu in again.gpus}[OTHER] == (
        True,
        5,
    )
    assert again.errors == found.errors
    await amd.close()


async def test_cards_are_read_without_a_kfd_that_does_not_return(tree: Tree) -> None:
    """What KFD alone knows is missing, the partitions are still there by name, and nothing else is lost."""
    tree.partitions(2)
    amd = tree.source(call_timeout=0.2)
    (before,) = (await amd.read()).gpus
    stuck = tree.kfd / "topology/generation_id"
    hanging(stuck)
    (found,) = (await amd.read()).gpus
    assert (found.up, found.memory, found.mig_slices) == (True, before.memory, 2)
    assert (found.mig_complete, found.processes) == (False, None)
    assert [(part.uuid, part.memory) for part in found.mig or ()] == [
        ("0000:19:00.0", None),
        ("amdgpu_xcp_21", None),
    ]
    release(stuck)
    await amd.close()


@pytest.mark.parametrize("name", ["uevent", "vendor"])
async def test_a_card_that_hangs_while_it_is_looked_for_hides_no_other(two: Tree, name: str) -> None:
    """It is taken as it was found last."""
    amd = two.source(call_timeout=0.2)
    before = await amd.read()
    stuck = two.device(1) / name
    hanging(stuck)
    found = await amd.read()
    assert [(gpu.identity, gpu.up) for gpu in found.gpus] == [(gpu.identity, True) for gpu in before.gpus]
    assert found.errors == {("", f"sysfs {name}", "Hangs"): 1}
    release(stuck)
    await amd.close()


async def test_a_card_that_never_said_who_it_is_counts(two: Tree) -> None:
    """There are as many as there are, though of one nothing is known."""
    stuck = two.device(1) / "unique_id"
    hanging(stuck)
    amd = two.source(call_timeout=0.2)
    found = await amd.read()
    assert ([gpu.identity.uuid for gpu in found.gpus], found.gpu_count) == ([UUID], 2)
    release(stuck)
    await amd.close()


async def test_a_process_that_hangs_costs_the_list_of_processes(tree: Tree) -> None:
    """What the card itself tells is told on."""
    tree.card()
    tree.node(1)
    tree.process(7, GIB, 3)
    stuck = tree.kfd / f"proc/7/stats_{GPU_ID}/cu_occupancy"
    amd = tree.source(call_timeout=0.2)
    (before,) = (await amd.read()).gpus
    assert [process.pid for process in before.processes or ()] == [7]
    hanging(stuck)
    (found,) = (await amd.read()).gpus
    assert (found.up, found.memory, found.processes) == (True, before.memory, None)
    assert "processes" in found.withheld
    release(stuck)
    await amd.close()


async def test_a_card_that_takes_too_long_is_given_up(two: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is known, and down; next time it is read after the others."""
    amd = two.source()
    assert [gpu.up for gpu in (await amd.read()).gpus] == [True, True]
    with monkeypatch.context() as patched:
        patched.setattr(amd, "_card_budget", -1.0)
        slow = await amd.read()
    assert [(gpu.up, gpu.memory) for gpu in slow.gpus] == [(False, None), (False, None)]
    assert (UUID, "sysfs uevent", "TooSlow") not in slow.errors
    assert {error for _, _, error in slow.errors} == {"TooSlow"}
    assert [gpu.up for gpu in (await amd.read()).gpus] == [True, True]
    await amd.close()


async def test_a_slow_card_has_its_turn_last(two: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that overran its time keeps nobody waiting twice."""
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
    await amd.close()


async def test_a_broken_card_takes_no_other_down(two: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong with one, the others are read, and it is counted."""
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


async def test_a_card_that_vanishes_is_still_known(two: Tree) -> None:
    """What was held on it keeps its place; when it is back, it is asked who it is."""
    amd = two.source()
    await amd.read()
    shutil.rmtree(two.device(1))
    gone = (await amd.read()).gpus[1]
    assert (gone.identity.uuid, gone.up, gone.memory) == (OTHER, False, None)
    two.second(unique_id="c" * 16)
    found = await amd.read()
    assert [(gpu.identity.uuid, gpu.up) for gpu in found.gpus] == [(UUID, True), (f"GPU-{'c' * 16}", True)]
    await amd.close()


async def test_a_card_that_comes_back_at_another_address_is_one_card(two: Tree) -> None:
    """It is the card that it was, and nothing is left of it where it sat before."""
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
    await amd.close()


@pytest.mark.parametrize(
    ("driver", "known"), [("vfio-pci", [UUID]), ("", [UUID, OTHER]), ("amdgpu", [UUID, OTHER])]
)
async def test_a_card_that_another_driver_has_is_not_lost(two: Tree, driver: str, known: list[str]) -> None:
    """Who was given to a virtual machine leaves the node; who has no driver at all may be in trouble."""
    amd = two.source()
    await amd.read()
    shutil.rmtree(two.device(1))
    two.write("bus/pci/devices/0000:43:00.0/uevent", f"DRIVER={driver}" if driver else "PCI_CLASS=38000")
    reading = await amd.read()
    assert [gpu.identity.uuid for gpu in reading.gpus] == known
    assert (reading.gpu_count, reading.errors) == (len(known), {})
    await amd.close()


async def test_a_vanished_partitioned_card_keeps_its_partitions(tree: Tree) -> None:
    """They are known by name, and nothing else is known of them."""
    tree.partitions(2)
    amd = tree.source()
    await amd.read()
    shutil.rmtree(tree.device())
    (gone,) = (await amd.read()).gpus
    assert [(part.uuid, part.memory, part.processes) for part in gone.mig or ()] == [
        ("0000:19:00.0", None, None),
        ("amdgpu_xcp_21", None, None),
    ]
    await amd.close()


async def test_a_failure_does_not_change_who_a_card_is(tree: Tree) -> None:
    """It was known by its unique id, which cannot be read for once."""
    device = tree.card()
    amd = tree.source()
    await amd.read()
    unreadable(device / "unique_id")
    assert (await amd.read()).gpus[0].identity.uuid == UUID
    await amd.close()


async def test_sweeps_are_numbered(tree: Tree) -> None:
    """Between two consecutive ones no reading was missed."""
    tree.card()
    amd = tree.source()
    assert [(await amd.read()).gpus[0].sweep for _ in range(3)] == [1, 2, 3]
    await amd.close()


async def test_errors_add_up(tree: Tree) -> None:
    """They count since start."""
    unreadable(tree.card() / "gpu_busy_percent")
    amd = tree.source()
    await amd.read()
    assert (await amd.read()).errors == {(UUID, "sysfs gpu_busy_percent", "EISDIR"): 2}
    await amd.close()


async def test_readings_are_dated_by_the_clock(tree: Tree) -> None:
    """Also those of a card that has gone, of which it is known now that nothing is known."""
    tree.card()
    moments = iter((5.0, 7.0))
    amd = tree.source(clock=lambda: next(moments))
    assert [gpu.read_monotonic for gpu in (await amd.read()).gpus] == [5.0]
    shutil.rmtree(tree.device())
    assert [(gpu.read_monotonic, gpu.up) for gpu in (await amd.read()).gpus] == [(7.0, False)]
    await amd.close()
