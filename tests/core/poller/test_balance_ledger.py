"""The balances of GPUs from poll to poll: which time is observed, and that it always adds up."""

from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from exporter.attribution import NOT_KNOWN, Attribution, HoldingsIndex
from exporter.model import (
    ContainerRef,
    ContainerRow,
    DeviceKey,
    GpuIdentity,
    GpuReading,
    GpuRow,
    Holding,
    Holdings,
    Memory,
    MigReading,
    MigRow,
)
from exporter.model.balances import NANOSECONDS, Balances
from exporter.poll.accounting import MISSED_SECONDS
from exporter.poll.balance_ledger import BalanceLedger

UUID, OTHER = "GPU-a", "GPU-b"
KEY = DeviceKey(UUID)
BOTH = frozenset({KEY, DeviceKey(OTHER)})
REF = ContainerRef("ml", "a", "main")
GAP = 60.0
GIB = 1 << 30


def gpu(uuid=UUID, *, up=True, holders=1, memory=16 * GIB, rest=0.0) -> GpuRow:
    """Return a GPU; without ``up`` it is lost."""
    identity = GpuIdentity(uuid=uuid, index=0)
    size = Memory(total=memory, used=0, free=memory) if up and memory is not None else None
    return GpuRow(
        identity=identity,
        reading=GpuReading(identity=identity, up=up, memory=size),
        holders=holders,
        unattributed_utilization=rest if up else None,
    )


def row(*, compute=None, memory=4 * GIB, used=0.0, uid="uid-a") -> ContainerRow:
    """Return a holder of the first GPU that has a share of its memory alone."""
    return ContainerRow(
        holder=REF,
        device=KEY,
        pod_uid=uid,
        slices=1,
        compute_entitled=compute,
        memory_entitled=memory,
        compute_used=used,
    )


def index(*, offered=BOTH) -> HoldingsIndex:
    holding = Holding(
        holder=REF, device=KEY, resource="r", slices=1, memory_entitled=None, compute_entitled=None
    )
    return HoldingsIndex(Holdings(known=True, holdings=(holding,), offered=offered))


@dataclass
class Node:
    """A ledger and its last poll."""

    ledger: BalanceLedger = field(default_factory=lambda: BalanceLedger(GAP))
    gpus: tuple[GpuRow, ...] = ()

    def after(
        self, seconds, *gpus, rows=(), migs=(), held=None, fresh=(UUID, OTHER), confirmed=True
    ) -> "Node":
        """Poll once more, ``seconds`` later."""
        found = Attribution(gpus=gpus, migs=migs, containers=tuple(rows), inconsistent=())
        held = index() if held is None else held
        self.gpus = self.ledger.add(found, held, seconds, fresh, confirmed=confirmed).gpus
        return self

    def balances(self, uuid=UUID) -> Balances:
        (found,) = [each.balances for each in self.gpus if each.identity.uuid == uuid]
        return found

    def seconds(self, uuid=UUID) -> dict[str, float]:
        """Return the seconds of each class that has some."""
        balances = self.balances(uuid)
        classes = {**balances.allocation, **balances.use}
        return {name: part / NANOSECONDS for name, part in classes.items() if part}


def test_all_classes_begin_at_zero():
    balances = Node().after(5, gpu()).balances()
    assert (balances.observed, len(balances.allocation), len(balances.use)) == (0, 7, 5)
    assert not any({**balances.allocation, **balances.use}.values())


def test_each_poll_adds_the_time_since_the_poll_before_by_its_own_facts():
    node = Node().after(0, gpu()).after(5, gpu(rest=0.2)).after(10, gpu(), rows=[row(used=0.1)])
    assert node.seconds() == {"free": 12.5, "held": 2.5, "others": 1, "holders": 1, "idle_held": 1.5} | {
        "idle_free": 4 + 7.5
    }


def test_time_before_a_gpu_is_listed_and_while_it_is_not_is_not_observed():
    node = Node().after(0, gpu()).after(5, gpu(), gpu(OTHER))
    assert node.seconds(OTHER) == {}
    node.after(5, gpu(), gpu(OTHER)).after(5, gpu()).after(5, gpu(), gpu(OTHER))
    assert node.seconds(OTHER) == {"free": 5, "idle_free": 5}
    assert node.balances().observed == 20 * NANOSECONDS


def test_a_gpu_that_is_not_listed_for_an_hour_begins_again():
    node = Node().after(0, gpu(OTHER)).after(5, gpu(OTHER))
    node.after(MISSED_SECONDS, gpu()).after(0, gpu(), gpu(OTHER))
    assert node.seconds(OTHER) == {"free": 5, "idle_free": 5}
    node.after(MISSED_SECONDS + 1, gpu()).after(0, gpu(), gpu(OTHER))
    assert node.seconds(OTHER) == {}


def test_a_gap_that_is_too_long_is_not_observed():
    node = Node().after(0, gpu()).after(GAP, gpu()).after(GAP + 1, gpu()).after(1, gpu())
    assert node.seconds() == {"free": GAP + 1, "idle_free": GAP + 1}


def test_a_poll_without_a_new_reading_is_unmeasured():
    node = Node().after(0, gpu()).after(5, gpu(), fresh=()).after(5, gpu())
    assert node.seconds() == {"free": 10, "unmeasured": 5, "idle_free": 5}


def test_without_the_kubelets_answer_nothing_is_free():
    assert Node().after(0, gpu()).after(5, gpu(), confirmed=False).seconds() == {
        "unknown": 5,
        "idle_free": 5,
    }
    node = Node().after(0, gpu(holders=None)).after(5, gpu(holders=None), held=NOT_KNOWN)
    assert node.seconds() == {"unknown": 5, "idle_free": 5}


def test_a_holder_by_memory_keeps_its_share_while_the_gpu_is_lost():
    """The memory that the share is a part of cannot be read then, nor what follows from it."""
    node = Node().after(0, gpu(), rows=[row()])
    node.after(4, gpu(up=False), rows=[row(used=None)])
    node.after(4, gpu(up=False), rows=[row(memory=None, used=None)])
    assert node.seconds() == {"held": 2, "down": 6, "unmeasured": 8}


def test_another_pod_of_the_same_name_does_not_take_over_a_share():
    node = Node().after(0, gpu(), rows=[row()])
    node.after(4, gpu(up=False), rows=[row(used=None, uid="uid-b")])
    assert node.seconds() == {"unknown": 4, "unmeasured": 4}


def test_a_share_that_is_unknown_while_the_gpu_answers_is_not_that_of_before():
    node = Node().after(0, gpu(), rows=[row()]).after(4, gpu(), rows=[row(memory=None)])
    assert node.seconds() == {"unknown": 4, "idle_free": 4}


SHARES = st.none() | st.floats(0, 1.5)
SECONDS = st.floats(0, 2 * GAP)


@st.composite
def polls(draw) -> dict:
    """Draw the rows of one poll of GPUs of which one may be partitioned, with a holder."""
    uuids = draw(st.lists(st.sampled_from([UUID, OTHER]), unique=True))
    gpus = [
        gpu(
            uuid,
            up=draw(st.booleans()),
            holders=draw(st.none() | st.just(1)),
            memory=draw(st.none() | st.just(16 * GIB)),
            rest=draw(SHARES),
        )
        for uuid in uuids
    ]
    migs = []
    if gpus and draw(st.booleans()):
        reading = replace(gpus[0].reading, mig_enabled=True, mig_slices=draw(st.sampled_from([None, 4, 7])))
        slices = draw(st.lists(st.none() | st.integers(0, 4), max_size=3))
        parts = tuple(
            MigReading(uuid=f"MIG-{n}", gi=n, ci=0, compute_slices=size) for n, size in enumerate(slices)
        )
        gpus[0] = replace(gpus[0], reading=replace(reading, mig=draw(st.none() | st.just(parts))))
        uuid = gpus[0].identity.uuid
        migs = [MigRow(device=DeviceKey(uuid, part.uuid), reading=part) for part in parts]
    rows = [row(compute=draw(SHARES), memory=draw(st.none() | st.integers(0, 32 * GIB)), used=draw(SHARES))]
    return {
        "seconds": draw(SECONDS),
        "gpus": gpus,
        "migs": tuple(migs),
        "rows": rows if draw(st.booleans()) else (),
        "fresh": draw(st.sets(st.sampled_from([UUID, OTHER]))),
        "confirmed": draw(st.booleans()),
        "held": index(offered=draw(st.none() | st.sets(st.just(KEY)).map(frozenset))),
    }


@given(st.lists(polls(), max_size=6))
def test_both_balances_add_up_to_the_observed_time_and_no_class_ever_falls(sequence):
    node, before = Node(), {}
    observed = dict.fromkeys((UUID, OTHER), 0)
    for poll in sequence:
        listed = {each.identity.uuid for each in node.gpus}
        node.after(poll.pop("seconds"), *poll.pop("gpus"), **poll)
        for each in node.gpus:
            balances, uuid = each.balances, each.identity.uuid
            assert sum(balances.allocation.values()) == sum(balances.use.values()) == balances.observed
            assert balances.observed == observed[uuid] or uuid in listed
            observed[uuid] = balances.observed
            classes = {**balances.allocation, **balances.use}
            earlier = before.get(uuid, dict.fromkeys(classes, 0))
            assert all(part >= earlier[name] for name, part in classes.items())
            before[uuid] = classes
