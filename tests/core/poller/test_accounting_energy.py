"""The rule of energy, through the join: containers and the rest draw what the GPU draws."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.attribution import Attribution
from exporter.config import load_settings
from exporter.model import (
    Allocation,
    Allocations,
    ContainerRef,
    DeviceKey,
    DeviceProcess,
    DeviceSharing,
    GpuIdentity,
    GpuReading,
    Holding,
    Holdings,
    Memory,
    Meter,
    MigReading,
    OfferedDevice,
    PodIdentity,
    ProcessPlace,
    Profile,
    Snapshot,
    Workloads,
)
from exporter.poll.accounting import Coverage, Ledger
from exporter.poll.snapshot_builder import PollResult, SnapshotBuilder
from tests.core.attribution.build import attribute

UUID = "GPU-a"
MIGS = (("MIG-a", 3), ("MIG-b", 2), ("MIG-c", 1))
PODS = ("a", "b", "c", "d")
LONGEST_GAP = 60.0
MEMORY = Memory(total=16, used=8, free=8, reserved=0)


def share(value) -> Profile | None:
    """Return a meter that saw the engine at work for a share of the time."""
    return None if value is None else Profile(source="gpm", active={"graphics_engine": value})


@dataclass
class Node:
    """A node from poll to poll, and what its counter rose by while it was read."""

    drawn: float = 0.0
    given_out: float = 0.0
    poll: Attribution | None = None

    def __post_init__(self) -> None:
        self._ledger, self._coverage = Ledger(longest_gap=LONGEST_GAP), Coverage()
        self._now, self._last, self._accounts = 1_700_000_000.0, None, {}
        self._holdings_then = Holdings(known=False)

    def read(
        self, gpu: GpuReading, holdings: Holdings, workloads: Workloads, seconds: float, *, bad: bool = False
    ) -> None:
        """Poll once; ``bad`` is whether the counter is not what the GPU drew."""
        self._now += seconds
        elapsed, covered = self._coverage.advance([gpu], self._now)
        if UUID in covered and gpu.energy_millijoules is not None and not gpu.energy_kept and not bad:
            joules = gpu.energy_millijoules / 1000
            self.drawn += joules - self._last if self._last is not None else 0.0
            self._last = joules
        if UUID in covered:
            self._holdings_then = holdings
        stale = {} if UUID in covered else {UUID: self._holdings_then}
        found = attribute([gpu], holdings, workloads, stale)
        unsure = frozenset() if holdings.known else None
        self.poll = self._ledger.advance(found, elapsed, covered, self._now, unsure)
        for row in self.poll.containers:
            account = row.holder, row.device, row.totals.first_seen
            joules = row.totals.energy_joules or 0.0
            self.given_out += joules - self._accounts.get(account, 0.0)
            self._accounts[account] = joules

    @property
    def unattributed(self) -> float:
        """Return the unattributed energy."""
        return self.poll.gpus[0].unattributed_energy_joules or 0.0

    def energy(self, pod: str) -> float:
        """Return what a pod's container drew, over all devices."""
        found = [row.totals.energy_joules for row in self.poll.containers if row.holder.pod == pod]
        return sum(each or 0.0 for each in found)


def whole(joules, percent, processes=(), utilization=None, **more) -> GpuReading:
    """Return a GPU without MIG."""
    return GpuReading(
        identity=GpuIdentity(uuid=UUID, index=0),
        memory=MEMORY,
        energy_millijoules=None if joules is None else round(joules * 1000),
        utilization_percent=percent,
        processes=tuple(DeviceProcess(pid=pid, memory=1, kinds=frozenset()) for pid in processes),
        process_utilization=utilization,
        mig_enabled=False,
        **more,
    )


def cut(joules, shares, processes=((), (), ()), **more) -> GpuReading:
    """Return a GPU that is cut into as many of the MIG devices as there are shares."""
    instances = tuple(
        MigReading(
            uuid=uuid,
            gi=place,
            ci=0,
            compute_slices=slices,
            instance_slices=slices,
            memory=MEMORY,
            profiling=share(shares[place]),
            processes=tuple(DeviceProcess(pid=p, memory=1, kinds=frozenset()) for p in processes[place]),
        )
        for place, (uuid, slices) in enumerate(MIGS[: len(shares)])
    )
    base = whole(joules, None, **more)
    return replace(base, processes=None, mig_enabled=True, mig_slices=7, mig=instances)


def held(holders, *, exclusive=True, known=True) -> Holdings:
    """Let (pod, device, entitled share, meter) hold what they hold."""
    holdings = tuple(
        Holding(
            holder=ContainerRef("ml", pod, "main"),
            device=DeviceKey(UUID, device),
            resource="r",
            slices=1,
            memory_entitled=None,
            compute_entitled=entitled,
            meter=meter,
        )
        for pod, device, entitled, meter in holders
    )
    sharing = DeviceSharing(sharing="x", isolation="hard", exclusive=exclusive)
    return Holdings(
        known=known, holdings=holdings, devices=dict.fromkeys({each.device for each in holdings}, sharing)
    )


def placed(pids, uids=()) -> Workloads:
    """Place pid 100 + n in pod n; ``uids`` are pods that came again under their name."""
    names = {f"uid-{pod}{2 if pod in uids else ''}": pod for pod in PODS}
    pods = {
        uid: PodIdentity(uid=uid, namespace="ml", name=pod, containers=("main",))
        for uid, pod in names.items()
    }
    by_pod = {pod: uid for uid, pod in names.items()}
    places = {
        pid: ProcessPlace(pid=pid, known=True, pod_uid=by_pod.get(dict(enumerate(PODS)).get(pid - 100)))
        for pid in pids
    }
    return Workloads(places=places, pods=pods, process_view=True)


def consecutive(*readings, holders, pids=(100, 101), exclusive=True) -> Node:
    """Read a GPU in consecutive sweeps, 5 s apart."""
    node = Node()
    for sweep, reading in enumerate(readings, 1):
        found = replace(reading, sweep=sweep)
        node.read(found, held(holders, exclusive=exclusive), placed(pids), 5)
    return node


def test_metered_mig_devices_are_charged_by_use_and_by_entitlement():
    """Half of 3/7 is in use; idle energy goes by entitlement, that of free slices to no container."""
    holders = [("a", "MIG-a", 3 / 7, None), ("b", "MIG-b", 2 / 7, None)]
    readings = [cut(joules, [0.5, 0.0], ((100,), (101,))) for joules in (1000, 1700)]
    node = consecutive(*readings, holders=holders)
    used, idle = 0.5 * 3 / 7, 1 - 0.5 * 3 / 7
    assert node.energy("a") == pytest.approx(700 * (used + idle * 3 / 7))
    assert node.energy("b") == pytest.approx(700 * idle * 2 / 7)
    assert node.unattributed == pytest.approx(700 * idle * 2 / 7)


def test_the_use_of_a_free_mig_device_leaves_less_idle_energy():
    holders = [("a", "MIG-a", 3 / 7, None)]
    readings = [cut(joules, [0.0, 1.0], ((100,), (55,))) for joules in (0, 700)]
    node = consecutive(*readings, holders=holders, pids=(55, 100))
    assert node.energy("a") == pytest.approx(700 * (5 / 7) * (3 / 7))
    assert node.given_out + node.unattributed == pytest.approx(700)


def test_an_unmetered_mig_device_leaves_idle_energy_unattributed():
    holders = [("a", "MIG-a", 3 / 7, None), ("b", "MIG-b", 2 / 7, None)]
    readings = [cut(joules, [0.5, None], ((100,), (101,))) for joules in (0, 700)]
    node = consecutive(*readings, holders=holders)
    assert node.energy("a") == pytest.approx(700 * 0.5 * 3 / 7)
    assert node.energy("b") == 0
    assert node.unattributed == pytest.approx(700 - 150)


def test_a_metered_container_is_charged_by_its_meter():
    holders = [("a", "", 0.5, Meter(source="hami", compute=0.3)), ("b", "", 0.5, None)]
    readings = [whole(joules, 50, (100, 101), {100: 40, 101: 10}) for joules in (0, 100)]
    node = consecutive(*readings, holders=holders, exclusive=False)
    assert node.energy("a") == pytest.approx(30 + 50 * 0.5)
    assert node.energy("b") == pytest.approx(10 + 50 * 0.5)
    assert node.unattributed == pytest.approx(10)


def test_energy_of_a_failed_poll_is_unattributed(monkeypatch):
    assembly = SnapshotBuilder(load_settings({}, {}), demo=False)
    allocations = Allocations(
        allocated=(Allocation(ContainerRef("ml", "a", "main"), "nvidia.com/gpu", UUID),),
        offered=(OfferedDevice("nvidia.com/gpu", UUID),),
        api_version="v1",
        read_at=1_700_000_000.0,
    )

    def poll(number) -> Snapshot:
        reading = whole(100 * number, 100, (100,), {100: 100}, sweep=number)
        found = PollResult(gpus=(reading,), allocations=allocations, workloads=placed([100]))
        return assembly.snapshot(found, (), 5.0 * number, 1_700_000_000.0 + 5 * number)

    def fail(*_, **__) -> None:
        raise ValueError("no rows")

    poll(1)
    with monkeypatch.context() as patched:
        patched.setattr("exporter.poll.snapshot_builder.attribute", fail)
        with pytest.raises(ValueError, match="no rows"):
            poll(2)
    after, later = poll(3), poll(4)
    assert (after.containers[0].totals.energy_joules, after.gpus[0].unattributed_energy_joules) == (0, 200)
    assert (later.containers[0].totals.energy_joules, later.gpus[0].unattributed_energy_joules) == (100, 200)


def between(*polls, percent=100) -> Node:
    """Read a GPU every 5 s: joules, None if they are not read; watts; percent by pid; and its holders."""
    node, last = Node(), 0.0
    for sweep, (joules, watts, utilization, pods, *again) in enumerate(polls, 1):
        last = last if joules is None else joules
        found = whole(last, percent, sorted(utilization), utilization, sweep=sweep)
        found = replace(found, energy_kept=joules is None, power_milliwatts=watts * 1000)
        holders = [(pod, "", 0.5, None) for pod in pods]
        node.read(found, held(holders, exclusive=False), placed(utilization, *again), 5)
    return node


def test_between_two_readings_polls_count_by_their_power():
    busy, calm = {100: 100, 101: 0}, {100: 0, 101: 100}
    node = between(
        (0, 500, busy, "ab"), (None, 500, busy, "ab"), (None, 500, busy, "ab"), (6000, 500, busy, "ab")
    )
    assert (node.energy("a"), node.energy("b"), node.unattributed) == (6000, 0, 0)
    # Means of power at both ends: 500, 300 and 100 W.
    node = between(
        (0, 500, busy, "ab"), (None, 500, busy, "ab"), (None, 100, calm, "ab"), (9000, 100, calm, "ab")
    )
    assert node.energy("a") == pytest.approx(5000)
    assert node.energy("b") == pytest.approx(4000)


def test_no_energy_is_attributed_between_readings():
    busy = {100: 100}
    node = between((0, 100, busy, "a"), (None, 100, busy, "a"), (None, 100, busy, "a"))
    assert (node.energy("a"), node.unattributed, node.given_out) == (0, 0, 0)


def test_a_container_has_its_part_from_its_second_poll_on():
    """The part of one that ended stays unattributed."""
    both, one = {100: 50, 101: 50}, {100: 100}
    node = between(
        (0, 100, one, "a"), (None, 100, both, "ab"), (None, 100, both, "ab"), (1500, 100, both, "ab")
    )
    assert node.energy("b") == pytest.approx(500)
    assert node.energy("a") == pytest.approx(750)
    assert node.unattributed == pytest.approx(250)
    node = between(
        (0, 100, both, "ab"), (None, 100, both, "ab"), (None, 100, one, "a"), (1500, 100, one, "a")
    )
    assert node.energy("a") == pytest.approx(250 + 500 + 500)
    assert node.unattributed == pytest.approx(250)


def test_a_pod_that_takes_a_name_over_does_not_inherit():
    busy = {100: 100}
    node = between(
        (0, 100, busy, "a"), (None, 100, busy, "a"), (None, 100, busy, "a", "a"), (1500, 100, busy, "a", "a")
    )
    assert node.energy("a") == pytest.approx(500)
    assert node.unattributed == pytest.approx(1000)


def test_a_poll_without_a_known_use_costs_its_own_part():
    busy, unknown = {100: 100}, {100: None}
    node = between(
        (0, 100, busy, "a"), (None, 100, busy, "a"), (None, 100, unknown, "a"), (1500, 100, busy, "a")
    )
    assert node.energy("a") == pytest.approx(1000)
    assert node.unattributed == pytest.approx(500)


SHARES = st.one_of(st.none(), st.floats(0, 1))
METERS = st.one_of(st.none(), st.builds(Meter, source=st.just("hami"), compute=SHARES))


@dataclass(frozen=True)
class Poll:
    """One poll of a random life of a node."""

    seconds: float
    how: str
    drawn: int | None
    # Millijoules that the counter reports instead of the true ones.
    spoilt: int | None
    kept: bool
    watts: int | None
    percent: int | None
    shares: list[float | None]
    utilization: list[int | None]
    running: list[tuple[int, int]]
    holders: list[tuple]
    exclusive: bool
    known: bool
    again: set[str]


DEVICES = st.integers(0, len(MIGS) - 1)
POLLS = st.lists(
    st.builds(
        Poll,
        seconds=st.floats(0.1, 90),
        how=st.sampled_from(["read", "read", "read", "missed", "lost", "skipped"]),
        drawn=st.one_of(st.none(), st.integers(0, 10**6)),
        spoilt=st.one_of(st.none(), st.none(), st.sampled_from([0, 10**5, 10**10, 2**63])),
        kept=st.booleans(),
        watts=st.one_of(st.none(), st.integers(0, 700)),
        percent=st.one_of(st.none(), st.integers(0, 100)),
        shares=st.lists(SHARES, min_size=3, max_size=3),
        utilization=st.lists(st.one_of(st.none(), st.integers(0, 100)), min_size=5, max_size=5),
        running=st.lists(st.tuples(st.integers(100, 104), DEVICES), max_size=5, unique_by=lambda run: run[0]),
        holders=st.lists(
            st.tuples(st.sampled_from(PODS), DEVICES, st.one_of(st.none(), st.floats(0, 1)), METERS),
            max_size=4,
            unique_by=lambda holder: holder[:2],
        ),
        exclusive=st.booleans(),
        known=st.booleans(),
        again=st.sets(st.sampled_from(PODS), max_size=2),
    ),
    max_size=12,
)


def reading(poll: Poll, joules: float, sweep: int, *, is_cut: bool) -> GpuReading:
    """Return what the driver says at one poll."""
    energy = None if poll.drawn is None else joules
    more = {
        "sweep": sweep,
        "energy_kept": poll.kept,
        "power_milliwatts": None if poll.watts is None else poll.watts * 1000,
    }
    if is_cut:
        processes = [[pid for pid, device in poll.running if device == place] for place in range(len(MIGS))]
        return cut(energy, poll.shares, processes, **more)
    utilization = {pid: poll.utilization[pid - 100] for pid, _ in poll.running}
    return whole(energy, poll.percent, [pid for pid, _ in poll.running], utilization, **more)


@settings(max_examples=50)
@given(POLLS, st.booleans())
def test_each_joule_is_attributed_once(polls, is_cut):
    """Over any polls, containers and the rest draw what the GPU drew, whatever single readings say."""
    node, counter, sweep, last = Node(), 10**7, 0, None
    # The good readings of the counter without a gap since, and whether the last reading was bad.
    good, bad = 0, False
    for poll in polls:
        counter, sweep = counter + (poll.drawn or 0), sweep + 1
        if poll.how != "read" or poll.seconds > LONGEST_GAP:
            # A counter that is lower after a gap was started again.
            good, bad = 0, False
        elif poll.drawn is not None and not poll.kept:
            bad = not bad and good > 1 and poll.spoilt is not None
            good += not bad
        if poll.how == "read" or last is None:
            last = reading(poll, (poll.spoilt if bad else counter) / 1000, sweep, is_cut=is_cut)
        elif poll.how == "lost":
            last = replace(last, sweep=sweep, up=False, energy_millijoules=None)
        elif poll.how == "skipped":
            # A sweep without this GPU comes between two that have it.
            sweep += 1
        devices = [uuid if is_cut else "" for uuid, _ in MIGS]
        holders = {(pod, devices[place]): (entitled, meter) for pod, place, entitled, meter in poll.holders}
        rows = [(*place, *holding) for place, holding in holders.items()]
        holdings = held(rows, exclusive=poll.exclusive, known=poll.known)
        running = placed([pid for pid, _ in poll.running], poll.again)
        node.read(last, holdings, running, poll.seconds, bad=bad)
        assert node.given_out + node.unattributed == pytest.approx(node.drawn, rel=1e-9, abs=1e-6)
        assert all((row.totals.energy_joules or 0.0) >= 0 for row in node.poll.containers)
