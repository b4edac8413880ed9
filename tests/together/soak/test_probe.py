"""What is counted in a process."""

from exporter.model import DeviceEvent
from exporter.nvml.events import RECENT, EventLog
from tests.together.soak.probe import Probe


async def test_a_book_is_counted_by_its_entries_and_a_queue_with_a_bound_by_that():
    """Each kind of event is one entry more; the list of the last events cannot outgrow its bound."""
    log = EventLog()
    log.note(DeviceEvent(uuid="GPU-0", kind="xid", xid=13, at=1.0))
    probe = Probe()
    before = _entries(probe)
    log.note(DeviceEvent(uuid="GPU-0", kind="xid", xid=31, at=2.0))
    after = _entries(probe)
    assert before["_recent"] == after["_recent"] >= RECENT
    assert after["_counts"] > before["_counts"]


def _entries(probe: Probe) -> dict[str, int]:
    """Count what is in all logs of events, by attribute."""
    log = "exporter.nvml.events.EventLog."
    return {
        name.removeprefix(log): count
        for name, count in probe.look()["caches"].items()
        if name.startswith(log)
    }
