"""Sums over the life of a container: GPU-seconds held and used, energy, last activity."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.attribution import Attribution
from exporter.model import ContainerRef, ContainerRow, DeviceKey, GpuIdentity, GpuReading, GpuRow, Totals
from exporter.poll.accounting import MISSED_SECONDS, Ledger
from exporter.poll.energy import split_energy

UUID = "GPU-a"
START = 1_700_000_000.0


def row(pod="a", *, held=0.5, used=0.25, uid="", uuid=UUID, slices=1) -> ContainerRow:
    """Return a container on a GPU: its entitled and its used share, None where it is not known."""
    return ContainerRow(
        holder=ContainerRef("ml", pod, "main"),
        device=DeviceKey(uuid),
        pod_uid=uid,
        slices=slices,
        compute_entitled=held,
        compute_used=used,
    )


def gpu(joules=None, percent=None, uuid=UUID) -> GpuRow:
    """Return a GPU whose energy counter is at ``joules``, ``percent`` of the time busy."""
    identity = GpuIdentity(uuid=uuid, index=0)
    millijoules = None if joules is None else round(joules * 1000)
    reading = GpuReading(identity=identity, energy_millijoules=millijoules, utilization_percent=percent)
    return GpuRow(identity=identity, reading=reading)


def with_rest(gpu, rows) -> GpuRow:
    """Return a GPU with its unattributed utilization, as the join does."""
    percent = gpu.reading.utilization_percent if gpu.reading is not None else None
    used = sum(each.compute_used or 0.0 for each in rows if each.device.uuid == gpu.identity.uuid)
    return replace(gpu, unattributed_utilization=None if percent is None else max(percent / 100 - used, 0.0))


@dataclass
class Node:
    """A ledger and the clock of its polls."""

    ledger: Ledger = field(default_factory=lambda: Ledger(longest_gap=60.0))
    now: float = START
    poll: Attribution | None = None

    def after(
        self, seconds, *rows, gpus=(), fresh=(UUID,), covers=None, complete=True, proven=(UUID,)
    ) -> "Node":
        """Poll once more, ``seconds`` later; the users of ``proven`` GPUs are known.

        ``covers`` are the seconds that a new reading stands for, by default those since the poll before.
        """
        self.now += seconds
        gpus = [with_rest(each, rows) for each in gpus]
        known = frozenset(map(DeviceKey, proven))
        found = Attribution(gpus=tuple(gpus), migs=(), containers=rows, inconsistent=(), proven=known)
        elapsed = seconds if self.poll is not None else 0.0
        covered = dict.fromkeys(fresh, elapsed if covers is None else covers)
        unsure = frozenset() if complete else None
        self.poll = self.ledger.advance(found, elapsed, covered, self.now, unsure)
        return self

    def totals(self, pod="a") -> Totals:
        """Return the sums of a pod at the last poll."""
        (found,) = [each.totals for each in self.poll.containers if each.holder.pod == pod]
        return found

    @property
    def unattributed(self) -> float | None:
        """Return the unattributed energy of the first GPU."""
        return self.poll.gpus[0].unattributed_energy_joules


def new_account(now: float) -> Totals:
    """Return the sums of a container that is seen for the first time, computing."""
    zeros = dict.fromkeys(
        (
            "held_seconds",
            "memory_measured_seconds",
            "entitled_gpu_seconds",
            "measured_gpu_seconds",
            "measured_use_gpu_seconds",
            "used_gpu_seconds",
        ),
        0,
    )
    return Totals(first_seen=now, last_active=now, seen_computing=True, **zeros)


def test_each_poll_adds_its_shares_times_the_time_since_the_poll_before():
    node = Node().after(0, row(held=0.5, used=0.2))
    node.after(5, row(held=0.5, used=0.2)).after(1.5, row(held=1.0, used=0.8)).after(
        30, row(held=0.1, used=0)
    )
    assert node.totals().entitled_gpu_seconds == pytest.approx(5 * 0.5 + 1.5 * 1.0 + 30 * 0.1)
    assert node.totals().used_gpu_seconds == pytest.approx(5 * 0.2 + 1.5 * 0.8)


def test_a_container_begins_at_zero():
    node = Node().after(0).after(5, row(held=0.5, used=0.9))
    assert node.totals() == new_account(START + 5)


def test_a_missed_poll_adds_no_use_but_entitlement_goes_on():
    node = Node().after(0, row()).after(5, row())
    node.after(5, row(), fresh=())
    assert node.totals().used_gpu_seconds == pytest.approx(5 * 0.25)
    assert node.totals().entitled_gpu_seconds == pytest.approx(10 * 0.5)
    node.after(5, row())
    assert node.totals().used_gpu_seconds == pytest.approx(10 * 0.25)
    assert node.totals().entitled_gpu_seconds == pytest.approx(15 * 0.5)


def test_entitlement_while_use_was_not_measured_is_counted_separately():
    """A lost GPU, an unknown use and a gap are not measured."""
    node = Node().after(0, row()).after(10, row())
    node.after(20, row(), fresh=()).after(5, row(used=None)).after(61, row())
    assert node.totals().entitled_gpu_seconds == pytest.approx(96 * 0.5)
    assert node.totals().measured_gpu_seconds == pytest.approx(10 * 0.5)
    node.after(5, row(held=None)).after(5, row())
    assert node.totals().measured_gpu_seconds == pytest.approx(15 * 0.5)
    assert node.totals().measured_use_gpu_seconds == pytest.approx(15 * 0.25)
    assert node.totals().used_gpu_seconds == pytest.approx(20 * 0.25)


def test_a_missed_gpu_does_not_affect_another():
    rows = (row("a"), row("b", uuid="GPU-b"))
    node = Node().after(0, *rows, fresh=(UUID, "GPU-b")).after(10, *rows, fresh=("GPU-b",))
    assert node.totals("a").used_gpu_seconds == 0
    assert node.totals("b").used_gpu_seconds == pytest.approx(2.5)


def test_unknown_use_adds_nothing():
    node = Node().after(0, row(used=None)).after(5, row(used=None))
    assert node.totals().used_gpu_seconds is None
    assert node.totals().energy_joules is None
    node.after(5, row(used=0.5)).after(5, row(used=None)).after(5, row(used=0.5))
    assert node.totals().used_gpu_seconds == pytest.approx(5.0)


def test_unknown_entitlement_adds_nothing():
    node = Node().after(0, row(held=None)).after(5, row(held=None))
    assert node.totals().entitled_gpu_seconds is None
    node.after(5, row(held=0.5)).after(5, row(held=None))
    assert node.totals().entitled_gpu_seconds == pytest.approx(2.5)


def test_a_long_gap_adds_no_use():
    node = Node().after(0, row()).after(61, row())
    assert node.totals().used_gpu_seconds == 0
    assert node.totals().entitled_gpu_seconds == pytest.approx(61 * 0.5)
    node.after(60, row())
    assert node.totals().used_gpu_seconds == pytest.approx(60 * 0.25)


def test_sums_end_with_their_container():
    node = Node().after(0, row()).after(5, row()).after(5).after(5, row())
    assert node.totals() == new_account(START + 15)


@pytest.mark.parametrize("held", [{"slices": 0, "held": None}, {"slices": 0, "held": None, "uid": "u"}])
def test_sums_of_a_container_without_slices_outlive_a_poll_without_process_lists(held):
    node = Node().after(0, row(**held)).after(5, row(**held))
    node.after(5, proven=()).after(5, row(**held))
    assert node.totals().first_seen == START
    assert node.totals().used_gpu_seconds == pytest.approx(10 * 0.25)
    node.after(5).after(5, row(**held))
    assert node.totals().first_seen == START + 25
    node.after(5, proven=()).after(MISSED_SECONDS + 1, proven=()).after(5, row(**held))
    assert node.totals().first_seen == node.now


def test_sums_of_a_holder_end_with_it_whether_or_not_processes_are_known():
    node = Node().after(0, row()).after(5, proven=()).after(5, row())
    assert node.totals().first_seen == START + 10


def test_sums_outlive_a_silent_kubelet():
    """A container without a row for less than an hour of silence is the same one when it returns."""
    node = Node().after(0, row()).after(5, row()).after(5, complete=False).after(5, row())
    assert node.totals().first_seen == START
    assert node.totals().used_gpu_seconds == pytest.approx(10 * 0.25)
    # The silence counts from its last row.
    node.after(MISSED_SECONDS, row(), complete=False)
    node.after(MISSED_SECONDS - 5, complete=False).after(5, row())
    assert node.totals().first_seen == START


def test_the_ledger_keeps_only_containers_of_the_last_hour():
    pods = [f"job-{number}" for number in range(12)]
    node = Node()
    for pod in pods:
        node.after(MISSED_SECONDS / 4, row(pod), complete=False)
    node.after(1, *(row(pod) for pod in pods), complete=False)
    kept = [pod for pod in pods if node.totals(pod).first_seen < node.now]
    assert kept == pods[-5:]


def test_another_pod_of_the_same_name_starts_from_zero():
    """A StatefulSet reuses names; the uid differs."""
    node = Node().after(0, row(uid="one")).after(5, row(uid="one")).after(5, row(uid="two"))
    assert node.totals().first_seen == START + 10
    assert node.totals().used_gpu_seconds == 0
    node.after(5, row(uid="two"))
    assert node.totals().entitled_gpu_seconds == pytest.approx(2.5)


def test_a_uid_that_becomes_known_changes_nothing():
    node = Node().after(0, row()).after(5, row(uid="one")).after(5, row()).after(5, row(uid="one"))
    assert node.totals().entitled_gpu_seconds == pytest.approx(7.5)
    node.after(5, row()).after(5, row(uid="two"))
    assert node.totals().first_seen == START + 25


def test_last_active_is_the_last_poll_with_compute():
    node = Node().after(0, row(used=0.1)).after(5, row(used=0.1)).after(5, row(used=0)).after(5, row(used=0))
    assert node.totals().last_active == START + 5


def test_last_active_before_any_activity_is_first_seen():
    node = Node().after(3, row(used=0)).after(5, row(used=0))
    assert node.totals().last_active == START + 3


def test_containers_that_have_computed_are_marked():
    node = Node().after(0, row(used=0)).after(5, row(used=0))
    assert not node.totals().seen_computing
    node.after(5, row(used=0.1)).after(5, row(used=0))
    assert node.totals().seen_computing
    at_first = Node().after(0, row(used=0.1)).after(5, row(used=0))
    assert at_first.totals().seen_computing
    assert at_first.totals().used_gpu_seconds == 0


def test_last_active_is_absent_while_compute_is_unknown():
    node = Node().after(0, row(used=0.1)).after(5, row(used=None))
    assert node.totals().last_active is None
    node.after(5, row(used=0))
    assert node.totals().last_active == START
    assert node.totals().seen_computing


def test_time_without_measurement_is_not_idle_time():
    """Idle time begins when the container is measured again."""
    node = Node().after(0, row(used=0.1)).after(60, row(used=None)).after(1200, row(used=None))
    node.after(5, row(used=0)).after(5, row(used=0))
    assert node.totals().last_active == START + 1265
    assert not node.totals().seen_computing
    never = Node().after(0, row(used=None)).after(1200, row(used=None)).after(5, row(used=0))
    assert never.totals().last_active == START + 1205


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_setting_the_clock_makes_no_container_idle(step):
    node = Node().after(0, row(used=0.1)).after(5, row(used=0))
    node.now += step
    node.after(5, row(used=0))
    assert node.now - node.totals().last_active == pytest.approx(10)
    assert node.now - node.totals().first_seen == pytest.approx(10)
    node.after(5, row(used=0))
    assert node.now - node.totals().last_active == pytest.approx(15)


def test_a_poll_that_could_not_be_joined_is_no_step_of_the_clock():
    node = Node().after(0, row(used=0.1))
    node.ledger.skip(100)
    node.now += 100
    node.after(5, row(used=0))
    assert node.totals().first_seen == START


def test_a_missed_poll_is_no_activity():
    node = Node().after(0, row(used=0.1)).after(5, row(used=0.1), fresh=())
    assert node.totals().last_active == START


def test_energy_before_a_container_came_is_unattributed_after_a_late_sweep_too():
    node, new = Node(), row("new", held=1.0, used=1.0)
    node.after(5, gpus=[gpu(0, 100)])
    node.after(50, new, gpus=[gpu(0, 100)], fresh=())
    node.after(5, new, gpus=[gpu(55 * 700, 100)], covers=55.0)
    assert (node.totals("new").energy_joules, node.unattributed) == (0.0, 38_500.0)
    node.after(5, new, gpus=[gpu(60 * 700, 100)])
    assert (node.totals("new").energy_joules, node.unattributed) == (3_500.0, 38_500.0)


def test_what_a_gpu_drew_is_forgotten_an_hour_after_it_is_gone():
    node = Node().after(0, gpus=[gpu(0, 100)]).after(5, gpus=[gpu(70, 100)])
    assert node.unattributed == 70.0
    node.after(60, fresh=()).after(5, gpus=[gpu(70, 100)])
    assert node.unattributed == 70.0
    lost = replace(gpu(), reading=None)
    node.after(MISSED_SECONDS + 1, gpus=[lost], fresh=()).after(5, gpus=[gpu(70, 100)])
    assert node.unattributed == 70.0
    node.after(MISSED_SECONDS + 1, fresh=()).after(5, gpus=[gpu(70, 100)])
    assert node.unattributed == 0.0


def energy(*polls, percent=None) -> Node:
    """Run polls of (joules on the counter, rows), 5 s apart."""
    node = Node()
    for joules, *rows in polls:
        node.after(5, *rows, gpus=[gpu(joules, percent)])
    return node


def test_energy_is_split_by_use_and_idle_energy_by_entitlement():
    """Half busy: the busy half by used share, the idle half by what each may use."""
    rows = (row("a", held=0.25, used=0.4), row("b", held=0.75, used=0.1))
    node = energy((1000, *rows), (1100, *rows), percent=50)
    assert node.totals("a").energy_joules == pytest.approx(40 + 50 * 0.25)
    assert node.totals("b").energy_joules == pytest.approx(10 + 50 * 0.75)
    assert node.unattributed == pytest.approx(0)


def test_energy_of_free_slices_and_of_unknown_users_is_unattributed():
    node = energy((0, row(held=0.5, used=0.1)), (100, row(held=0.5, used=0.1)), percent=60)
    assert node.totals().energy_joules == pytest.approx(10 + 40 * 0.5)
    assert node.unattributed == pytest.approx(70)


def test_unknown_use_is_charged_no_energy():
    rows = (row("a", held=0.5, used=0.2), row("b", held=0.5, used=None))
    node = energy((0, *rows), (100, *rows), percent=80)
    assert node.totals("b").energy_joules is None
    assert node.totals("a").energy_joules == pytest.approx(20 + 20 * 0.5)
    assert node.unattributed == pytest.approx(70)


def test_idle_energy_is_unattributed_while_idleness_is_unknown():
    rows = (row("a", held=0.5, used=0.2), row("b", held=0.5, used=None))
    for shown in (rows, rows[:1]):
        node = energy((0, *shown), (100, *shown))
        assert node.totals("a").energy_joules == pytest.approx(20)
        assert node.unattributed == pytest.approx(80)


def test_excess_use_and_entitlement_are_scaled_down_to_the_gpu():
    rows = (row("a", held=1.5, used=0.9), row("b", held=0.5, used=0.6))
    node = energy((0, *rows), (100, *rows))
    assert node.totals("a").energy_joules == pytest.approx(60)
    assert node.totals("b").energy_joules == pytest.approx(40)
    idle = energy((0, *(replace(each, compute_used=0.0) for each in rows)), percent=0)
    idle.after(5, *(replace(each, compute_used=0.0) for each in rows), gpus=[gpu(100, 0)])
    assert idle.totals("a").energy_joules == pytest.approx(75)
    assert idle.unattributed == pytest.approx(0)


def test_energy_begins_with_the_second_reading():
    node = energy((123_456, row()))
    assert node.totals().energy_joules == 0
    assert node.unattributed == 0


def test_a_counter_that_falls_adds_nothing():
    node = energy((1000, row()), (1100, row()), (10, row()), (20, row()), percent=100)
    assert node.totals().energy_joules == pytest.approx(110 * 0.25)
    assert node.unattributed == pytest.approx(110 * 0.75)


def test_energy_over_a_missed_poll_is_unattributed():
    node = Node().after(0, row(), gpus=[gpu(0, 100)]).after(5, row(), gpus=[gpu(0, 100)], fresh=())
    node.after(5, row(), gpus=[gpu(300, 100)])
    assert (node.totals().energy_joules, node.unattributed) == (0, 300)
    node.after(5, row(), gpus=[gpu(400, 100)])
    assert node.totals().energy_joules == pytest.approx(25)
    assert node.unattributed == pytest.approx(375)


def test_energy_over_a_long_gap_is_unattributed():
    node = Node().after(0, row(), gpus=[gpu(0, 100)]).after(61, row(), gpus=[gpu(300, 100)])
    assert (node.totals().energy_joules, node.unattributed) == (0, 300)


def test_energy_before_a_container_came_is_not_its_own():
    node = Node().after(0, gpus=[gpu(0, 100)]).after(5, row(used=1.0), gpus=[gpu(100, 100)])
    assert (node.totals().energy_joules, node.unattributed) == (0, 100)
    node.after(5, row(used=1.0, uid="two"), gpus=[gpu(200, 100)])
    node.after(5, row(used=1.0, uid="three"), gpus=[gpu(300, 100)])
    assert (node.totals().energy_joules, node.unattributed) == (0, pytest.approx(200))


def test_without_an_energy_counter_there_is_no_energy():
    node = energy((None, row()), (None, row()))
    assert (node.totals().energy_joules, node.unattributed) == (None, None)


def test_unattributed_energy_stays_while_the_gpu_cannot_be_read():
    """A counter does not vanish with one bad reading."""
    node = energy((0, row(used=None)), (100, row(used=None)))
    lost = replace(gpu(), reading=None)
    node.after(5, row(), gpus=[lost], fresh=())
    assert node.unattributed == pytest.approx(100)


SHARES = st.one_of(st.none(), st.floats(0, 1.5))
ROWS = st.lists(st.tuples(SHARES, SHARES), max_size=5).map(
    lambda shares: [row(f"p{n}", held=held, used=used) for n, (held, used) in enumerate(shares)]
)
PERCENT = st.one_of(st.none(), st.integers(0, 100))


@given(ROWS, PERCENT, st.integers(0, 10**12))
def test_parts_of_energy_never_exceed_the_whole(rows, percent, millijoules):
    joules = millijoules / 1000
    parts = split_energy(joules, with_rest(gpu(0, percent), rows), rows)
    assert all(part >= 0 for part in parts.values())
    assert sum(parts.values()) <= joules * (1 + 1e-9)
    assert parts.keys() == {(each.holder, each.device) for each in rows if each.compute_used is not None}


@dataclass(frozen=True)
class Poll:
    """One poll of a random life."""

    rows: list[ContainerRow]
    fresh: bool
    complete: bool
    elapsed: float
    drawn: int | None
    percent: int | None


POLLS = st.lists(
    st.builds(
        Poll,
        rows=st.lists(
            st.builds(
                row,
                st.sampled_from("abc"),
                held=SHARES,
                used=SHARES,
                uid=st.sampled_from(["", "one", "two"]),
            ),
            max_size=3,
            unique_by=lambda each: each.holder,
        ),
        fresh=st.booleans(),
        complete=st.booleans(),
        elapsed=st.floats(0.1, 200),
        drawn=st.one_of(st.none(), st.integers(-(10**6), 10**6)),
        percent=PERCENT,
    ),
    max_size=12,
)


def live(polls):
    """Yield every poll of a random life with the counter's joules and the ledger's answer."""
    node, counter = Node(), 10**7
    for poll in polls:
        counter = max(0, counter + (poll.drawn or 0))
        reading = gpu(None if poll.drawn is None else counter / 1000, poll.percent)
        fresh = (UUID,) if poll.fresh else ()
        node.after(poll.elapsed, *poll.rows, gpus=[reading], fresh=fresh, complete=poll.complete)
        yield poll, counter / 1000, node.poll


def figures(totals: Totals) -> list[float]:
    """Return the sums of an account, unknown ones as nothing yet."""
    sums = (totals.entitled_gpu_seconds, totals.used_gpu_seconds, totals.energy_joules)
    return [each or 0.0 for each in sums]


@given(POLLS)
def test_sums_never_fall(polls):
    """Nor does the unattributed energy."""
    before, rest = {}, 0.0
    for poll, _, answer in live(polls):
        for each in answer.containers:
            account = each.holder, each.totals.first_seen
            grown = zip(figures(each.totals), before.get(account, [0.0] * 3), strict=True)
            assert all(new >= old for new, old in grown)
            known = figures(each.totals)[1] - before.get(account, [0.0] * 3)[1]
            assert known <= 1.5 * poll.elapsed * (1 + 1e-9)
            before[account] = figures(each.totals)
        unattributed = answer.gpus[0].unattributed_energy_joules or 0.0
        assert unattributed >= rest
        rest = unattributed
