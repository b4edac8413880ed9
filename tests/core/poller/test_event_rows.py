"""Which containers are named beside an event of a device."""

import pytest

from exporter.model import ContainerRef, ContainerRow, DeviceEvent, DeviceKey, EventRow
from exporter.poll.snapshot_builder import event_rows

NOW = 1_700_000_000.0


def row(pod: str, uuid: str = "GPU-a", mig: str = "", **facts) -> ContainerRow:
    """Make a container that holds one slice of a device."""
    return ContainerRow(
        holder=ContainerRef("ml", pod, "main"), device=DeviceKey(uuid, mig), **{"slices": 1} | facts
    )


def event(at: float = 0.0, uuid: str = "GPU-a", mig: str = "", xid: int = 31) -> DeviceEvent:
    """Make an XID error, so many seconds after some moment."""
    return DeviceEvent(at=NOW + at, uuid=uuid, kind="xid", mig_uuid=mig, xid=xid)


def pods(found: EventRow) -> list[str]:
    """Name the pods of an event."""
    return [holder.pod for holder in found.holders]


def test_an_event_of_a_gpu_names_each_of_its_holders_once() -> None:
    containers = [row("b"), row("a"), row("a"), row("c", uuid="GPU-b")]
    (found,) = event_rows([event()], [], containers)
    assert pods(found) == ["a", "b"]


def test_an_event_of_a_whole_gpu_names_holders_of_its_mig_devices() -> None:
    containers = [row("a", mig="MIG-1"), row("b", mig="MIG-2")]
    (found,) = event_rows([event()], [], containers)
    assert pods(found) == ["a", "b"]


def test_an_event_of_a_mig_device_names_no_other_holder() -> None:
    containers = [row("a", mig="MIG-1"), row("b", mig="MIG-2"), row("c")]
    (found,) = event_rows([event(mig="MIG-2")], [], containers)
    assert pods(found) == ["b"]


@pytest.mark.parametrize(
    ("facts", "named"),
    [
        ({"slices": 0, "processes": 2}, True),
        ({"slices": None, "processes": 1}, True),
        ({"slices": 2, "processes": None}, True),
        ({"slices": 0, "processes": 0}, False),
        ({"slices": None, "processes": None}, False),
    ],
)
def test_holders_have_slices_or_processes(facts, named) -> None:
    (found,) = event_rows([event()], [], [row("a", **facts)])
    assert bool(found.holders) == named


def test_a_later_poll_does_not_change_the_holders_of_an_event() -> None:
    before = event_rows([event()], [], [row("a")])
    old, new = event_rows([event(), event(at=5)], before, [row("b")])
    assert (pods(old), pods(new)) == (["a"], ["b"])


def test_events_that_are_no_longer_recent_are_dropped() -> None:
    before = event_rows([event(at=1), event(at=2)], [], [row("a")])
    rows = event_rows([event(at=2), event(at=3)], before, [])
    assert [found.event.at - NOW for found in rows] == [2.0, 3.0]
    assert [pods(found) for found in rows] == [["a"], []]
