"""Holders that ended are kept for the retention of history, in memory of a limited size."""

import gc
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.history.ended import EndedHolders
from exporter.model import (
    CollectorHealth,
    ContainerRef,
    DeviceKey,
    GpuRow,
    MigReading,
    MigRow,
    NodeRow,
    PodRow,
    Snapshot,
    Totals,
)
from tests.core.history.snapshots import START, UUID, gpu, holder

A, B = ContainerRef("ml", "a", "main"), ContainerRef("ml", "b", "main")
KEPT, STEP = 3600.0, 5.0


def poll(at: float, *containers: Any, failing: tuple[str, ...] = (), **facts: Any) -> Snapshot:
    """Return a snapshot of Unix time ``at`` of a node whose kubelet lists all pods."""
    node = {"unlisted_pods": 0, "process_view": True} | facts.pop("node", {})
    names = ("nvml", "podresources", "processes", "identity")
    return Snapshot(
        timestamp=at,
        sequence=1,
        node=NodeRow(name="node", **node),
        gpus=facts.pop("gpus", (gpu(),)),
        containers=containers,
        collectors=tuple(CollectorHealth(name=name, success=name not in failing) for name in names),
        **facts,
    )


def kept(*polls: Snapshot, **options: Any) -> EndedHolders:
    """Return what is kept after some polls."""
    ended = EndedHolders(KEPT, **options)
    for each in polls:
        ended.record(each)
    return ended


def test_a_holder_that_is_gone_is_kept_with_its_last_poll() -> None:
    old, new = holder("a", memory_used=1), holder("a", memory_used=2)
    found = kept(poll(START, old), poll(START + 5, new, holder("b")), poll(START + 10, holder("b"))).find(A)

    assert found is not None
    assert (found.last_seen, found.gone_at, found.why_unknown) == (START + 5, START + 10, "")
    assert [device.row.memory_used for device in found.devices] == [2]
    assert [device.gpu for device in found.devices] == [0]


def test_names_of_a_mig_device_and_labels_of_the_pod_outlive_them() -> None:
    """The device may be destroyed, and the pod deleted, before the next poll."""
    device = DeviceKey(UUID, "MIG-1")
    part = MigRow(device=device, reading=MigReading(uuid="MIG-1", gi=1, ci=0, profile="1g.5gb"))
    pod = PodRow(namespace="ml", name="a", uid="u", labels=(("team", "nlp"),))
    row = holder("a", device=device, pod_uid="u")
    found = kept(poll(START, row, migs=(part,), pods=(pod,)), poll(START + 5)).find(A)

    assert found is not None
    assert (found.devices[0].profile, found.labels) == ("1g.5gb", (("team", "nlp"),))


def test_holders_that_are_there_are_not_kept() -> None:
    ended = kept(poll(START, holder("a")), poll(START + 5, holder("a")))

    assert (ended.find(A), ended.newest()) == (None, ())


def test_a_holder_with_one_device_less_has_not_ended() -> None:
    both = holder("a"), holder("a", device=DeviceKey("GPU-1"))
    ended = kept(poll(START, *both), poll(START + 5, both[0]), poll(START + 10))

    assert [len(each.devices) for each in ended.newest()] == [1]


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"failing": ("podresources",)}, "the kubelet does not answer"),
        ({"node": {"unlisted_pods": None}}, "the kubelet does not answer"),
        ({"node": {"unlisted_pods": 2}}, "the kubelet does not list all running pods yet"),
        ({"node": {"unresolved": {"r": 1}}}, "some allocated devices match no GPU"),
    ],
)
def test_a_holder_that_cannot_be_seen_has_not_ended_for_certain(facts: dict[str, Any], why: str) -> None:
    """It has once the sources answer again without it."""
    ended = kept(poll(START, holder("a")), poll(START + 5, **facts))
    unknown = ended.find(A)
    ended.record(poll(START + 60))
    known = ended.find(A)

    assert unknown is not None
    assert known is not None
    assert (unknown.gone_at, unknown.why_unknown) == (None, why)
    assert (known.last_seen, known.gone_at) == (START, START + 60)


@pytest.mark.parametrize(
    "facts", [{"failing": ("processes",)}, {"failing": ("nvml",)}, {"node": {"process_view": False}}]
)
def test_use_without_a_slice_ends_for_certain_only_if_processes_are_visible(facts: dict[str, Any]) -> None:
    used = replace(holder("a"), slices=0)
    without, with_slice = (
        kept(poll(START, row), poll(START + 5, **facts)).find(A) for row in (used, holder("a"))
    )

    assert without is not None
    assert with_slice is not None
    assert without.gone_at is None
    assert with_slice.gone_at == START + 5


def test_a_holder_that_is_back_has_not_ended() -> None:
    ended = kept(
        poll(START, holder("a")), poll(START + 5, failing=("podresources",)), poll(START + 10, holder("a"))
    )

    assert ended.find(A) is None


def test_another_pod_of_the_same_name_does_not_hide_the_earlier_one() -> None:
    first, second = holder("a", pod_uid="1"), holder("a", pod_uid="2")
    ended = kept(poll(START, first), poll(START + 5), poll(START + 10, second))
    earlier = ended.find(A)
    ended.record(poll(START + 15))
    later = ended.find(A)

    assert earlier is not None
    assert later is not None
    assert (earlier.last_seen, later.last_seen) == (START, START + 10)
    assert len(ended.newest()) == 1


def test_they_are_kept_as_long_as_history_is() -> None:
    ended = kept(poll(START, holder("a")), poll(START + 5))
    ended.record(poll(START + KEPT))
    before = ended.find(A)
    ended.record(poll(START + KEPT + 1))

    assert before is not None
    assert ended.find(A) is None


def test_before_the_first_poll_nothing_ends() -> None:
    ended = kept(poll(START, holder("a")), replace(poll(START + 5), sequence=0))

    assert ended.newest() == ()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sets(st.integers(0, 12)), max_size=40),
    st.integers(1, 6),
    st.lists(st.sampled_from([1.0, 5.0, 900.0, 4000.0]), min_size=40, max_size=40),
)
def test_what_is_kept_is_what_a_diary_of_all_polls_says(
    present: list[set[int]], most: int, steps: list[float]
) -> None:
    """The newest ends within the retention, up to the number of devices; each number has two devices."""
    ended, at, last_poll = EndedHolders(KEPT, most=2 * most), START, START
    diary: dict[str, float] = {}
    before: set[str] = set()
    for numbers, step in zip(present, steps, strict=False):
        names = {str(number) for number in numbers}
        rows = [
            holder(name, device=DeviceKey(f"GPU-{at_gpu}")) for name in sorted(names) for at_gpu in (0, 1)
        ]
        ended.record(poll(at, *rows))
        for name in sorted(before - names):
            diary.pop(name, None)
            diary[name] = last_poll
        for name in names:
            diary.pop(name, None)
        diary = {name: seen for name, seen in diary.items() if seen >= at - KEPT}
        diary = dict(list(diary.items())[-most:])
        before, last_poll, at = names, at, at + step

        assert [(each.holder.pod, each.last_seen) for each in ended.newest()] == list(reversed(diary.items()))


@pytest.mark.slow
def test_thousands_of_short_pods_each_hour_take_limited_memory() -> None:
    """Each poll has six new pods, and none of the previous one: 4320 an hour."""
    ended, polls = EndedHolders(6 * KEPT), 340
    tracemalloc.start()
    try:
        sizes = []
        for part in range(3):
            for number in range(polls):
                at = START + (part * polls + number) * STEP
                ended.record(poll(at, *(_short_pod(f"{part}-{number}-{each}", at) for each in range(6))))
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()

    assert len(ended.newest()) == ended.most
    assert sizes[0] < 2048 * ended.most
    assert max(sizes) < 1.1 * sizes[0]


def _short_pod(name: str, at: float) -> Any:
    """Return a pod with names of its own, as long as real ones."""
    long = f"{name}-7d9f8b6c5d-x2x9z"
    totals = Totals(
        first_seen=at - 5,
        memory_peak=int(at) * 1000,
        held_seconds=at / 3,
        memory_measured_seconds=at / 5,
        entitled_gpu_seconds=at / 7,
        measured_gpu_seconds=at / 9,
        measured_use_gpu_seconds=at / 11,
        used_gpu_seconds=at / 13,
        energy_joules=at / 17,
        last_active=at - 1,
    )
    row = holder(
        long, pod_uid=f"00000000-0000-0000-0000-{name:>12}", totals=totals, memory_used=int(at) * 999
    )
    return replace(row, memory_entitled=int(at) * 1001, compute_used=at / 1e10, compute_entitled=at / 1e9)


def test_gpu_rows_are_not_kept_alive() -> None:
    """Only rows of containers are: readings of GPUs are large."""
    ended = kept(poll(START, holder("a")), poll(START + 5))
    gc.collect()

    assert not any(isinstance(each, GpuRow) for each in gc.get_referents(*gc.get_referents(ended)))
