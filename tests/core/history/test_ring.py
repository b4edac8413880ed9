"""The ring of history: what is kept, what is unknown, and its memory."""

import math
import threading
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.history import FIELDS, Ask, NotKeptError, Wanted
from exporter.history.plan import span_seconds, spans_of
from exporter.model import DeviceKey, MigReading, MigRow
from tests.core.history.snapshots import EVERYTHING, GIB, START, UUID, Clocked, gpu, holder, snapshot

STEP = 5.0
MIB = 1 << 20
VALUES = st.one_of(st.none(), st.floats(min_value=0, max_value=2.0**40, width=32, allow_subnormal=False))


def test_each_poll_is_a_step_and_a_missed_poll_a_gap() -> None:
    clocked = Clocked()
    for place in (0, 1, 3):
        clocked.memory(START + place * STEP, {"a": place * 1024})
    past = clocked.past(60)
    assert (past.step, past.count, past.note) == (STEP, 12, "")
    assert clocked.values("a", 60) == {START: 0, START + 5: 1024, START + 15: 3072}


@given(st.lists(st.one_of(st.none(), VALUES), min_size=1, max_size=60), st.integers(1, 40))
def test_a_step_is_the_mean_of_its_known_polls(polls, points) -> None:
    clocked = Clocked()
    for place, value in enumerate(polls):
        clocked.memory(START + place * STEP, {"a": value})
    span = len(polls) * STEP
    past = clocked.past(span, points=points)
    assert past.count <= points
    assert past.count * past.step >= span
    values = clocked.values("a", span, points=points)
    for place in range(past.count):
        begin = past.start + place * past.step
        known = [
            value
            for number, value in enumerate(polls)
            if value is not None and begin <= START + number * STEP < begin + past.step
        ]
        if past.step <= 6 * STEP:
            expected = [pytest.approx(sum(known) / len(known), rel=1e-5, abs=1e-3)] if known else []
            assert [value for at, value in values.items() if at == begin] == expected
        else:
            # Of several coarse slots, each counts the same, however much of it is known.
            assert (begin in values) == bool(known)
            assert not known or min(known) * 0.999 <= values[begin] <= max(known) * 1.001


def test_old_values_are_kept_in_coarser_steps_until_they_are_dropped() -> None:
    clocked = Clocked(kept=6 * 3600)
    for place in range(5000):
        clocked.memory(START + place * STEP, {"a": place})
    early = START + 5000 * STEP - 5 * 3600
    values = clocked.values("a", 600, end=early, points=240)
    assert clocked.past(600, end=early).step == 30
    assert len(values) == 20
    for begin, value in values.items():
        first = (begin - START) / STEP
        assert value == pytest.approx(first + 2.5)
    with pytest.raises(NotKeptError, match=r"6 h are kept .* Grafana or the hub"):
        clocked.past(7 * 3600)
    with pytest.raises(NotKeptError, match="6 h are kept"):
        clocked.past(60, end=START)


def test_polls_off_the_grid_leave_no_gap() -> None:
    """Unless one was missed."""
    clocked = Clocked()
    for at in (4.999, 10.001, 14.9, 20.1, 30.2):
        clocked.memory(START + at, {"a": at * 1000})
    values = clocked.values("a", 60)
    assert sorted(values) == [START + at for at in (0, 5, 10, 15, 20, 30)]
    assert values[START + 5] == pytest.approx(10001)


@pytest.mark.parametrize("away", [range(4, 5), range(24, 30)])
def test_an_absent_pod_leaves_a_gap(away) -> None:
    """For one step of either tier."""
    clocked = Clocked(kept=6 * 3600)
    for place in range(60):
        clocked.memory(START + place * STEP, {"stays": 1} | ({} if place in away else {"a": 1}))
    # The finer tier does not reach so far back when the clock has gone on.
    clocked.now = START + (60 if len(away) == 1 else 1000) * STEP
    step = len(away) * STEP
    values = {
        name: clocked.values(name, 10 * step, end=START + 10 * step, points=10) for name in ("a", "stays")
    }
    assert values["stays"].keys() - values["a"].keys() == {START + away.start * STEP}


@given(
    st.lists(
        st.dictionaries(st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 10))),
        min_size=1,
        max_size=90,
    ),
    st.integers(1, 30),
    st.integers(0, 1),
)
def test_parts_add_up_to_the_whole(polls, points, tier) -> None:
    """However holders come, go and are unknown within a step."""
    clocked = Clocked(kept=6 * 3600)
    for place, uses in enumerate(polls):
        known = sum(filter(None, uses.values()))
        rest = None if None in uses.values() else 5 * MIB
        row = gpu(used=known * MIB + 5 * MIB, unattributed_memory=rest)
        rows = (holder(name, memory_used=None if used is None else used * MIB) for name, used in uses.items())
        clocked.poll(START + place * STEP, *rows, gpus=[row])
    end = clocked.now + STEP
    clocked.now += tier * 3600
    past = clocked.past(len(polls) * STEP, end=end, points=points, wanted=Wanted(summing=True))
    (whole,) = (track.values["memory_used_bytes"] for track in past.tracks if track.level == "gpu")
    parts = [track.values["memory_used_bytes"] for track in past.tracks if track.level == "container"]
    parts += [track.values["unattributed_memory_bytes"] for track in past.tracks if track.level == "gpu"]
    for place, used in enumerate(whole):
        known = sum(part[place] or 0 for part in parts)
        assert known <= (used or 0) * 1.00001
        begin = past.start + place * past.step
        within = [
            uses for number, uses in enumerate(polls) if begin <= START + number * STEP < begin + past.step
        ]
        if within and not any(None in uses.values() for uses in within):
            assert known == pytest.approx(used)


def test_holders_that_follow_each_other_within_a_step_share_it() -> None:
    clocked = Clocked()
    for place in range(6):
        row = holder("a" if place < 2 else "b", memory_used=3 * GIB, memory_entitled=3 * GIB)
        clocked.poll(START + place * STEP, row, gpus=[gpu(used=3 * GIB, unattributed_memory=0)])
    wanted = Wanted(summing=True)
    assert clocked.values("a", 30, points=1, wanted=wanted) == {START: GIB}
    assert clocked.values("b", 30, points=1, wanted=wanted, field="memory_entitled_bytes") == {START: 2 * GIB}
    assert clocked.values("a", 30, points=1) == {START: 3 * GIB}
    of_one = replace(wanted, holder=("ml", "a", "main"))
    assert clocked.values("a", 30, points=1, wanted=of_one) == {START: GIB}


def test_two_polls_in_one_step_are_averaged() -> None:
    clocked = Clocked()
    clocked.memory(START, {"a": 10})
    clocked.memory(START + 2, {"a": 20})
    assert clocked.values("a", 60) == {START: 15}


def test_unknown_values_and_empty_snapshots_are_gaps() -> None:
    clocked = Clocked()
    clocked.history.record(snapshot(START, holder("a", memory_used=1), sequence=0))
    assert tuple(clocked.past(60).tracks) == ()
    for place, value in enumerate((7, None, math.nan, math.inf, 0)):
        clocked.memory(START + place * STEP, {"a": value})
    clocked.poll(START + 25)
    clocked.memory(START + 30, {"a": 2})
    assert clocked.values("a", 60) == {START: 7, START + 20: 0, START + 30: 2}


def test_a_lost_gpu_is_a_gap() -> None:
    clocked = Clocked()
    for place, up in enumerate((True, False, True)):
        clocked.poll(START + place * STEP, gpus=[gpu(used=GIB, up=up, power_milliwatts=100_000)])
    (track,) = clocked.past(15).tracks
    assert (track.level, track.labels) == ("gpu", {"uuid": UUID})
    assert track.values["power_watts"] == [100, None, 100]
    assert track.values["memory_used_bytes"] == [GIB, None, GIB]


def test_labels_and_fields_are_those_of_the_table() -> None:
    clocked = Clocked()
    mig = DeviceKey(UUID, "MIG-1")
    rows = MigRow(device=mig, reading=MigReading(uuid="MIG-1", gi=1, ci=0), unattributed_memory=3)
    one = snapshot(START, holder("a", device=mig, memory_used=5, compute_entitled=0.5), gpus=[gpu()])
    clocked.history.record(replace(one, migs=(rows,)))
    tracks = {track.level: track for track in clocked.past(5).tracks}
    assert {level: set(track.values) for level, track in tracks.items()} == {
        level: set(fields) for level, fields in FIELDS.items()
    }
    identity = {"namespace": "ml", "pod": "a", "container": "main", "uuid": UUID, "mig_uuid": "MIG-1"}
    assert tracks["container"].labels == identity
    assert tracks["container"].values["compute_entitled_ratio"] == [0.5]
    assert tracks["mig"].labels == {"uuid": UUID, "mig_uuid": "MIG-1"}
    assert tracks["mig"].values["unattributed_memory_bytes"] == [3]


@pytest.mark.parametrize(
    ("wanted", "pods"),
    [
        (EVERYTHING, {"a", "b"}),
        (Wanted(levels=frozenset({"gpu"})), set()),
        (Wanted(uuid="GPU-1"), {"b"}),
        (Wanted(holder=("ml", "a", "main")), {"a"}),
        (Wanted(holder=("ml", "a", "")), {"a"}),
        (Wanted(holder=("ml", "a", "other")), set()),
        (Wanted(holder=("other", "a", "")), set()),
    ],
)
def test_tracks_are_selected_by_level_gpu_container_and_pod(wanted, pods) -> None:
    clocked = Clocked()
    clocked.poll(START, holder("a", memory_used=1), holder("b", device=DeviceKey("GPU-1"), memory_used=2))
    assert {track.labels["pod"] for track in clocked.past(5, wanted=wanted).tracks} == pods


def test_an_ended_pod_is_kept_for_the_retention() -> None:
    clocked = Clocked(kept=600)
    clocked.memory(START, {"gone": 1, "stays": 1})
    for place in range(1, 119):
        clocked.memory(START + place * STEP, {"stays": 1})
    assert clocked.values("gone", 600) == {START: 1}
    assert clocked.values("gone", 300) == {}
    clocked.memory(START + 121 * STEP, {"stays": 1})
    assert [track.labels["pod"] for track in clocked.past(600).tracks] == ["stays"]


@given(st.integers(1, 100_000), st.integers(0, 50))
def test_a_clock_set_back_forgets_the_future(back, later) -> None:
    clocked = Clocked()
    for place in range(20):
        clocked.memory(START + place * STEP, {"a": 1, "ended": 1})
    again = START + 95 - back
    for place in range(later + 1):
        clocked.memory(again + place * STEP, {"a": 2})
    values = clocked.values("a", 3600, points=720)
    assert values
    assert all(at <= clocked.now for at in values)
    begin = again // STEP * STEP
    assert all((at >= begin) == (value == 2) for at, value in values.items())
    assert all(at < begin for at in clocked.values("ended", 3600, points=720))


@given(st.floats(min_value=0, max_value=4e9, allow_nan=False))
def test_a_clock_set_forward_leaves_a_gap(ahead) -> None:
    clocked = Clocked()
    for place in range(10):
        clocked.memory(START + place * STEP, {"a": 1})
    late = START + 50 + ahead
    clocked.memory(late, {"a": 2})
    values = clocked.values("a", 3600, points=720)
    assert values[max(values)] == pytest.approx(2 if ahead >= STEP else values[max(values)])
    assert all(at < START + 55 or at > late - 2 * STEP for at in values)


@settings(max_examples=40)
@given(st.lists(st.sets(st.integers(0, 30), max_size=8), min_size=1, max_size=30), st.integers(1, 8))
def test_churn_never_exceeds_the_budget_nor_replaces_living_series(polls, room) -> None:
    cost = 4 * 4 * 720 + 2600
    clocked = Clocked(kept=3590, budget=cost * room)
    kept: set[str] = set()
    for place, pods in enumerate(polls):
        names = {f"pod-{number}" for number in pods}
        clocked.memory(START + place * STEP, dict.fromkeys(names, 1))
        tracks = {track.labels["pod"] for track in clocked.past(3590).tracks}
        assert len(tracks) <= room
        # A living series is never replaced.
        assert kept & names <= tracks
        assert len(names & tracks) == min(len(names), room)
        refused = len(names - tracks)
        assert (f"{refused} containers or devices are not kept" in clocked.past(3590).note) == bool(refused)
        kept = tracks


def test_the_series_that_ended_first_is_replaced() -> None:
    clocked = Clocked(kept=3590, budget=(4 * 4 * 720 + 2600) * 3)
    clocked.memory(START, {"first": 1, "second": 1, "lives": 1})
    clocked.memory(START + 5, {"second": 1, "lives": 1})
    clocked.memory(START + 10, {"lives": 1, "new": 1})
    assert {track.labels["pod"] for track in clocked.past(3590).tracks} == {"second", "lives", "new"}


def test_a_huge_answer_has_longer_steps() -> None:
    clocked = Clocked()
    rows = [holder(f"pod-{number}", memory_used=number) for number in range(400)]
    for place in range(3):
        clocked.poll(START + place * STEP, *rows)
    past = clocked.past(3600, points=1440)
    assert past.count * len(past.tracks) * 4 <= 1 << 20
    assert "steps are longer" in past.note
    assert clocked.past(3600, points=240).note == ""


def test_readers_in_threads_see_whole_polls() -> None:
    clocked = Clocked()
    clocked.memory(START, {"a": 1, "b": 1})
    wrong = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            one, other = clocked.past(3600).tracks
            if one.values != other.values:
                wrong.append((one, other))

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for place in range(1, 400):
        clocked.memory(START + place, {"a": place, "b": place})
    done.set()
    for reader in readers:
        reader.join()
    assert not wrong


async def test_the_asynchronous_reader_returns_the_same() -> None:
    clocked = Clocked()
    clocked.memory(START, {"a": 1})
    past = await clocked.history.read(Ask(span=60, points=10, wanted=EVERYTHING))
    direct = clocked.past(60, points=10)
    assert replace(past, tracks=tuple(past.tracks)) == replace(direct, tracks=tuple(direct.tracks))


def test_gpus_have_room_before_containers() -> None:
    clocked = Clocked(kept=3590, budget=(4 * 4 * 720 + 2600) * 3)
    rows = [holder(f"pod-{number}", memory_used=1) for number in range(9)]
    clocked.poll(START, *rows, gpus=[gpu(used=GIB)])
    past = clocked.past(3590)
    assert [track.labels["uuid"] for track in past.tracks if "pod" not in track.labels] == [UUID]
    assert "are not kept" in past.note


def test_spans_on_offer() -> None:
    """Up to what memory keeps."""
    hour = 3600.0
    assert spans_of(6 * hour) == ("5m", "1h", "6h")
    assert spans_of(12 * hour) == ("5m", "1h", "6h", "12h")
    assert spans_of(168 * hour) == ("5m", "1h", "6h", "24h", "7d")
    assert spans_of(300) == ("5m",)
    assert spans_of(330.5) == ("5m", "330s")
    assert [span_seconds(name) for name in ("330s", "90m", "7d")] == [330.0, 5400.0, 168 * hour]
    assert [span_seconds(name) for name in ("", "0h", "1", "-1h", "1.5h", "1w", "9999999d")] == [None] * 7
