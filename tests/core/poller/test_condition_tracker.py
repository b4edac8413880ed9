"""What the rules remember between polls: XIDs until a restart, and what lasts over a window."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from exporter.model import (
    C2c,
    Condition,
    DriverInfo,
    Ecc,
    EventCount,
    GpuIdentity,
    GpuReading,
    GpuRow,
    HardwareReading,
    Nvlink,
    PcieLink,
    PeerLink,
    Topology,
)
from exporter.poll.condition_tracker import UNSEEN_RESTART_SECONDS, ConditionTracker
from exporter.poll.gpu_counters import NodeCounters
from exporter.poll.several_readings import GENERATION_SECONDS, LINK_SECONDS, THROTTLE_SECONDS, StateWindow

AT = 1_700_000_000.0
PERIOD = 10.0
IDLE, POWER_CAP, SOFTWARE_THERMAL, HARDWARE_THERMAL, BRAKE = 0x1, 0x4, 0x20, 0x40, 0x80


class Bench:
    """GPUs that are polled every PERIOD seconds."""

    def __init__(self) -> None:
        self.time = 0.0
        self.errors: dict[tuple[str, str, str], int] = {}
        self.module: bool | None = True
        # Unix time of each XID, by code and count.
        self._xids: dict[tuple[int, int], float] = {}
        self._counters = NodeCounters()
        self._tracker = ConditionTracker(self._counters)

    def poll(self, *gpus: dict[str, Any], xids: tuple[tuple[int, int], ...] = ()) -> tuple[GpuRow, ...]:
        """Poll GPUs of these readings; ``xids`` are codes of the first, with their counts.

        The last one of a count is of 5 s before the first poll that has it.
        """
        self.time += PERIOD
        for xid in xids:
            self._xids.setdefault(xid, AT + self.time - 5)
        hardware = HardwareReading(
            driver=DriverInfo(), gpus=(), gpu_count=len(gpus), errors=dict(self.errors)
        )
        rows = [self._row(place, values, xids if not place else ()) for place, values in enumerate(gpus)]
        believed = self._counters.advance([row.reading for row in rows if row.reading is not None])
        rows = [replace(row, reading=believed[row.identity.uuid]) for row in rows]
        return self._tracker.advance(rows, hardware, AT + self.time, module_loaded=self.module)

    def _row(self, place: int, values: dict[str, Any], xids: tuple[tuple[int, int], ...]) -> GpuRow:
        identity = GpuIdentity(uuid=f"GPU-{place}", index=place, model="A100")
        known: dict[str, Any] = {
            "identity": identity,
            "recovery_action": "none",
            "read_at": AT + self.time,
            "read_monotonic": self.time,
            "energy_millijoules": 1000 + int(self.time),
        }
        events = tuple(
            EventCount(uuid=identity.uuid, mig_uuid="", kind="xid", xid=code, count=count, last=last)
            for (code, count), last in self._xids.items()
            if (code, count) in xids
        )
        return GpuRow(identity=identity, reading=GpuReading(**known | values), watched=True, events=events)

    def watch(
        self, condition: Condition, seconds: float, *gpus: dict[str, Any]
    ) -> Iterator[tuple[float, bool | None]]:
        """Poll for some time; yield the state of the first GPU's condition at each second of a poll."""
        end = self.time + seconds
        while self.time < end:
            yield self.time + PERIOD, self.poll(*gpus)[0].conditions.get(condition)


def needs(rows: tuple[GpuRow, ...], condition: Condition = "needs_reset") -> bool | None:
    """Return the state of the first GPU's condition."""
    return rows[0].conditions.get(condition)


SILENT = {"up": False, "energy_millijoules": None, "recovery_action": None}
COUNTERS: dict[str, Any] = {
    "energy_millijoules": 5_000_000_000,
    "pcie_replays": 30,
    "violations_nanoseconds": {"power": 900},
    "nvlink": Nvlink(links=1, active=1, errors={"replay": 20}),
    "ecc": Ecc(errors={("corrected", "volatile"): 7, ("corrected", "aggregate"): 70}),
}
BEGUN_AGAIN: dict[str, dict[str, Any]] = {
    "energy": {"energy_millijoules": 5},
    "replays": {"pcie_replays": 0},
    "violations": {"violations_nanoseconds": {"power": 1}},
    "NVLink errors": {"nvlink": Nvlink(links=1, active=1, errors={"replay": 0})},
    "volatile errors": {"ecc": Ecc(errors={("corrected", "volatile"): 0, ("corrected", "aggregate"): 70})},
}
ALL_BEGUN_AGAIN = {name: value for values in BEGUN_AGAIN.values() for name, value in values.items()}
ENERGY, REPLAYS = BEGUN_AGAIN["energy"], BEGUN_AGAIN["replays"]
WITHOUT = COUNTERS | {"energy_millijoules": None}
OF_ERRORS = BEGUN_AGAIN["NVLink errors"] | BEGUN_AGAIN["volatile errors"]
# By name, the counters before a restart, and what the readings after it show instead.
RESTARTS: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "energy, which rises": (COUNTERS, [ENERGY, {"energy_millijoules": 900}]),
    "all counters": (COUNTERS, [ALL_BEGUN_AGAIN]),
    "energy and replays": (COUNTERS, [ENERGY | REPLAYS]),
    "energy, after an outage": (COUNTERS, [SILENT, ENERGY]),
    "replays, without energy": (WITHOUT, [REPLAYS, REPLAYS]),
    "replays, without energy, after an outage": (WITHOUT, [SILENT, REPLAYS]),
    "errors of links and memory, without energy": (WITHOUT, [OF_ERRORS, OF_ERRORS]),
}
XID: dict[str, tuple[tuple[int, int], ...]] = {"xids": ((119, 1),)}


@pytest.mark.parametrize(("before", "readings"), RESTARTS.values(), ids=RESTARTS)
def test_two_signs_show_a_restart(before: dict[str, Any], readings: list[dict[str, Any]]):
    """An XID of before it needs nothing any more, and one of after it does."""
    bench = Bench()
    bench.poll(before)
    assert needs(bench.poll(before, **XID)) is True
    states = [needs(bench.poll(before | reading, **XID)) for reading in readings]
    assert states == [*[True] * (len(readings) - 1), False]
    assert needs(bench.poll(before | readings[-1], xids=((119, 2),))) is True


@pytest.mark.parametrize("reading", [*BEGUN_AGAIN.values(), ALL_BEGUN_AGAIN | {"energy_millijoules": 0}])
def test_one_bad_reading_is_no_restart(reading: dict[str, Any]):
    """Nor is a counter that is a little lower, or one of errors that was cleared by hand."""
    bench = Bench()
    bench.poll(COUNTERS)
    bench.poll(COUNTERS)
    lower = {"energy_millijoules": COUNTERS["energy_millijoules"] - 1}
    cleared = BEGUN_AGAIN["volatile errors"]
    for now in (reading, {}, lower, {}, cleared, cleared):
        assert needs(bench.poll(COUNTERS | now, **XID)) is True


def test_an_xid_between_a_restart_and_its_second_sign_counts():
    bench = Bench()
    bench.poll(COUNTERS)
    bench.poll(COUNTERS | ENERGY)
    assert needs(bench.poll(COUNTERS | {"energy_millijoules": 900}, **XID)) is True


def test_a_gpu_that_was_only_silent_was_not_reset():
    bench = Bench()
    bench.poll({})
    assert needs(bench.poll({}, xids=((119, 1),))) is True
    assert needs(bench.poll(SILENT, xids=((119, 1),))) is True
    assert needs(bench.poll({}, xids=((119, 1),))) is True


def test_a_recovery_that_the_driver_no_longer_asks_for_was_done():
    bench = Bench()
    bench.poll({})
    bench.poll({"recovery_action": "reset"}, **XID)
    assert needs(bench.poll({}, **XID)) is False


def test_the_file_of_the_module_says_nothing_while_the_driver_answers():
    """Some systems do not have it; there, a GPU that was silent was not initialized."""
    bench = Bench()
    bench.module = False
    bare = {"energy_millijoules": None}
    bench.poll(bare)
    for reading in (bare, SILENT, bare):
        assert needs(bench.poll(reading, **XID)) is True


def test_a_driver_that_was_unloaded_starts_gpus_without_counters_again():
    bench = Bench()
    bare = {"energy_millijoules": None}
    bench.poll(bare)
    assert needs(bench.poll(bare, **XID)) is True
    bench.module = False
    assert needs(bench.poll(SILENT, **XID)) is True
    bench.module = True
    assert needs(bench.poll(bare, **XID)) is False


def test_a_gpu_that_was_unplugged_and_returns_was_initialized():
    bench = Bench()
    bench.poll({})
    assert needs(bench.poll({}, **XID)) is True
    bench.poll()
    assert needs(bench.poll({}, **XID)) is False


@pytest.mark.parametrize(("counters", "lasts"), [({}, True), ({"energy_millijoules": None}, False)])
def test_an_xid_counts_for_hours_where_no_counter_shows_a_restart(counters: dict[str, Any], lasts: bool):
    bench = Bench()
    bench.poll(counters)
    rows = bench.poll(counters, **XID)
    assert rows[0].raised["needs_reset"].since == AT + bench.time - 5
    tracker, old = bench._tracker, rows[0]
    later = replace(old, reading=replace(old.reading, read_monotonic=bench.time + 1))
    (now,) = tracker.advance((later,), HardwareReading(), AT + UNSEEN_RESTART_SECONDS + 60)
    assert now.conditions["needs_reset"] is lasts


def test_reset_required_lasts_as_long_as_the_gpu_is_silent():
    """An error without a uuid is of the only GPU that does not answer."""
    bench = Bench()
    bench.poll({}, {})
    bench.errors = {("", "nvmlDeviceGetHandleByIndex", "ResetRequired"): 1}
    assert [row.conditions.get("needs_reset") for row in bench.poll(SILENT, {})] == [True, False]
    assert [row.conditions.get("needs_reset") for row in bench.poll(SILENT, {})] == [True, False]
    assert [row.conditions.get("needs_reset") for row in bench.poll({}, {})] == [False, False]


@pytest.mark.parametrize("mask", [SOFTWARE_THERMAL, HARDWARE_THERMAL, BRAKE | POWER_CAP])
def test_throttling_is_raised_by_half_of_the_window_and_cleared_by_a_quarter(mask: int):
    """In between it stays what it was."""
    bench, name = Bench(), "throttled_by_heat_or_power"
    bench.poll({"clock_events": 0})
    raised = dict(bench.watch(name, THROTTLE_SECONDS, {"clock_events": mask}))
    first = next(time for time, holds in raised.items() if holds)
    assert first - PERIOD == THROTTLE_SECONDS / 2 + PERIOD
    assert False not in [holds for time, holds in raised.items() if time >= first]
    cleared = dict(bench.watch(name, THROTTLE_SECONDS, {"clock_events": 0}))
    start = bench.time - THROTTLE_SECONDS
    assert all(cleared[time] for time in cleared if time - start <= THROTTLE_SECONDS * 0.75)
    assert cleared[bench.time] is False


def test_the_power_cap_is_not_throttling():
    bench = Bench()
    found = dict(bench.watch("throttled_by_heat_or_power", THROTTLE_SECONDS, {"clock_events": POWER_CAP}))
    assert True not in found.values()
    assert found[bench.time] is False


def test_throttling_is_unknown_without_reasons_and_on_a_silent_gpu():
    """What was observed before is kept for the time after."""
    bench = Bench()
    dict(bench.watch("throttled_by_heat_or_power", THROTTLE_SECONDS, {"clock_events": BRAKE}))
    assert needs(bench.poll(SILENT), "throttled_by_heat_or_power") is None
    assert needs(bench.poll({"clock_events": None}), "throttled_by_heat_or_power") is None
    assert needs(bench.poll({"clock_events": BRAKE}), "throttled_by_heat_or_power") is True


def pcie(width: int = 16, generation: int = 4, **values: Any) -> dict[str, Any]:
    """Return a GPU in a slot of 16 lanes of generation 4."""
    link = PcieLink(generation=generation, width=width, max_generation=4, max_width=16)
    return {"pcie_link": link, "clock_events": 0} | values


def test_a_narrow_link_counts_after_two_minutes_until_it_is_wide_once():
    """Before that it is what it was, or unknown if it was never wide."""
    bench = Bench()
    assert needs(bench.poll(pcie()), "link_degraded") is False
    found = dict(bench.watch("link_degraded", LINK_SECONDS + PERIOD, pcie(width=8)))
    assert list(found.values())[:-1].count(False) == len(found) - 1
    assert found[bench.time] is True
    assert needs(bench.poll(pcie()), "link_degraded") is False
    assert needs(Bench().poll(pcie(width=8)), "link_degraded") is None


@pytest.mark.parametrize(("events", "raised"), [(0, True), (IDLE, None)])
def test_a_low_generation_counts_on_a_working_gpu_only(events: int, raised: bool | None):
    """An idle GPU lowers it; whether it could be higher is unknown then."""
    bench = Bench()
    found = dict(
        bench.watch("link_degraded", GENERATION_SECONDS + PERIOD, pcie(generation=1, clock_events=events))
    )
    assert found[bench.time] is raised
    assert found[GENERATION_SECONDS - PERIOD] is None
    assert needs(bench.poll(pcie(clock_events=events)), "link_degraded") is False


def test_a_link_that_was_read_a_minute_ago_does_not_degrade_a_gpu_that_just_began_to_work():
    """Its generation is that of the idle GPU."""
    bench = Bench()
    bench.poll(pcie())
    dict(bench.watch("link_degraded", GENERATION_SECONDS, pcie(generation=1, clock_events=IDLE)))
    found = dict(bench.watch("link_degraded", 60, pcie(generation=1)))
    assert set(found.values()) == {False}


def nvlinks(active: int, *, switched: bool = False, **values: Any) -> dict[str, Any]:
    """Return a GPU with twelve NVLinks."""
    peers = {f"GPU-peer-{n}": PeerLink(nvlinks=active) for n in range(2)} if switched else {}
    return {"nvlink": Nvlink(links=12, active=active), "topology": Topology(peers=peers)} | values


def test_fewer_nvlinks_than_before_count_until_they_are_back():
    """Also across a reset, which may not bring them back. Links that were never up do not count."""
    bench = Bench()
    assert needs(bench.poll(nvlinks(4)), "link_degraded") is False
    assert dict(bench.watch("link_degraded", LINK_SECONDS + PERIOD, nvlinks(3)))[bench.time] is True
    bench.poll(nvlinks(3, energy_millijoules=1))
    assert needs(bench.poll(nvlinks(3, energy_millijoules=2)), "link_degraded") is None
    reset = nvlinks(3, energy_millijoules=2)
    assert dict(bench.watch("link_degraded", LINK_SECONDS + PERIOD, reset))[bench.time] is True
    assert needs(bench.poll(nvlinks(4)), "link_degraded") is False
    assert needs(bench.poll(nvlinks(0, mig_enabled=True)), "link_degraded") is None


def c2c(active: int, links: int = 10) -> dict[str, Any]:
    """Return a reading with links to a processor."""
    return {"c2c": C2c(links=links, states={link: link < active for link in range(links)})}


def test_an_inactive_c2c_link_counts_after_two_minutes_until_it_is_back():
    """A GPU has all of its links or is degraded; one whose state is unknown leaves that open."""
    bench = Bench()
    assert needs(bench.poll(c2c(10)), "link_degraded") is False
    found = dict(bench.watch("link_degraded", LINK_SECONDS + PERIOD, c2c(9)))
    assert set(found.values()) == {False, True}
    assert found[bench.time] is True
    assert found[bench.time - PERIOD] is False
    assert needs(bench.poll({"c2c": C2c(links=10, states={0: True})}), "link_degraded") is None
    assert needs(bench.poll(c2c(10)), "link_degraded") is False
    assert needs(Bench().poll(c2c(0, links=0)), "link_degraded") is None


@pytest.mark.parametrize("switched", [True, False])
def test_gpus_behind_switches_have_equally_many_nvlinks(switched: bool):
    """Bridges may join some GPUs of a node only."""
    bench = Bench()
    gpus = nvlinks(11, switched=switched), nvlinks(12, switched=switched)
    found = dict(bench.watch("link_degraded", LINK_SECONDS + PERIOD, *gpus))
    assert found[bench.time] is switched


def test_gaps_in_a_window_are_unknown_and_old_parts_are_dropped():
    window = StateWindow(100)
    window.add(0, 50, holds=True)
    window.add(50, 60, holds=True)
    window.add(80, 100, holds=False)
    assert window.shares(100) == pytest.approx((0.6, 0.2))
    assert window.shares(150) == pytest.approx((0.1, 0.7))
    window.add(100, 190, holds=False)
    assert window.shares(190) == pytest.approx((0.0, 0.0))
