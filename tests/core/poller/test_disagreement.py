"""The disagreement between samples and accounting, on a GPU of which the truth is known."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.attribution.audit import Audit
from exporter.model.snapshot import Disagreement
from exporter.poll.disagreement import Disagreements
from tests.core.attribution.build import UUID, held, join, replicas, workloads
from tests.core.poller.sampled_gpu import Gpu

POLL = 5.0
OWNERS = ("a", "b", "c")


@pytest.fixture
def patched(monkeypatch: pytest.MonkeyPatch):
    """Let the readers take the time of a simulated GPU."""

    def patch(gpu: Gpu) -> Gpu:
        monkeypatch.setattr("exporter.nvml.readings.samples.time", gpu)
        return gpu

    return patch


@dataclass
class Polled:
    """A GPU that three containers share, and what polls find of it."""

    gpu: Gpu
    known_ended: bool = True  # whether the place of a process that has ended is known
    booked_wrong: float = (
        0.0  # part of the samples of the first container that the second one is charged with
    )

    def __post_init__(self) -> None:
        self.disagreements = Disagreements()
        self.polled_at = self.gpu.now
        self.before: set[int] = set()
        self.allocated = [entry for n, pod in enumerate(OWNERS) for entry in held(pod, f"{UUID}::{n}")]

    def poll(self, seconds: float = 0.0) -> Disagreement | None:
        """Let the time pass, and poll."""
        self.gpu.run(seconds)
        reading = self.gpu.read()
        # Pids that the driver may report: those before are of processes that have ended in an earlier poll.
        recent = {*self.before, *self.gpu.runs, *self.gpu.ended}
        known = {pid for pid in recent if self.known_ended or pid in self.gpu.runs}
        self.before = set(self.gpu.runs)
        pods = {pid: self.gpu.owners[pid] for pid in known if self.gpu.owners[pid] in OWNERS}
        host = [pid for pid in known if self.gpu.owners[pid] not in OWNERS]
        attribution = join(reading, self.allocated, replicas(3), workloads(pods, outside=host))
        audits = {uuid: self._wrong(audit) for uuid, audit in attribution.audits.items()}
        covered, self.polled_at = self.gpu.now - self.polled_at, self.gpu.now
        return self.disagreements.add(audits, {UUID: covered}).get(UUID)

    def _wrong(self, audit: Audit) -> Audit:
        owners = {figure.owner for figure in audit.booked if figure.owner is not None}
        if not self.booked_wrong or len(owners) < 2:
            return audit
        first, second, *_ = sorted(owners)
        sampled = {first: 1 - self.booked_wrong, second: 1 + self.booked_wrong}
        return audit._replace(
            booked=tuple(
                figure._replace(sampled=figure.sampled * sampled.get(figure.owner, 1.0))
                for figure in audit.booked
            )
        )


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_disagreement_lies_within_what_is_explained(data: st.DataObject, patched):
    """Whatever processes do: long and short ones, at the same time, with any length of samples."""
    gpu = patched(
        Gpu(data.draw(st.integers(0, 2**32)), length=data.draw(st.sampled_from([1 / 6, 0.2, 0.5, 1.0])))
    )
    node = Polled(gpu, known_ended=data.draw(st.booleans()))
    begins = st.tuples(
        st.sampled_from((*OWNERS, "host")),
        st.sampled_from([0.0, 0.003, 0.1, 0.5, 1.0]),
        st.sampled_from([0.3, 1.5, 4.0, 30.0, 600.0]),
    )
    for _ in range(data.draw(st.integers(5, 15))):
        for owner, share, seconds in data.draw(st.lists(begins, max_size=4)):
            gpu.start(owner, share, seconds)
        disagreement = node.poll(data.draw(st.sampled_from([1.5, 5.0, 7.3])))
        if disagreement is not None:
            assert 0 <= disagreement.share <= disagreement.explained <= 1


def test_thousands_of_short_processes(patched):
    """The last second of each is in no account, and their samples are: that is within what is explained."""
    gpu = patched(Gpu(7))
    node = Polled(gpu)
    gpu.start("a", 0.5)
    found = []
    for _ in range(120):
        for _ in range(5):
            for n in range(5):
                gpu.start("bc"[n % 2], 0.1, gpu.random.uniform(0.2, 6.0))
            gpu.run(1.0)
        found.append(node.poll())
    assert len(gpu.owners) == 1 + 120 * 25
    known = [disagreement for disagreement in found if disagreement is not None]
    assert len(known) == 119
    assert all(disagreement.share <= disagreement.explained for disagreement in known)
    assert 0.05 < known[-1].share < known[-1].explained < 0.95


def test_processes_that_run_for_long_leave_little_to_explain(patched):
    gpu = patched(Gpu(3))
    node = Polled(gpu)
    for owner in OWNERS:
        gpu.start(owner, 0.5)
    found = [node.poll(POLL) for _ in range(120)]
    assert found[0] is None
    assert found[-1].share <= found[-1].explained < 0.15
    assert found[-1].share < 0.03


def tiny_ones(gpu: Gpu, poll: int) -> None:
    """Run twenty processes that compute 0.3 % each, which the driver rounds up to 1 %."""
    for _ in range(0 if poll else 20):
        gpu.start("a", 0.003)


def one_after_the_other(gpu: Gpu, poll: int) -> None:
    """Run processes that end before the driver books their samples, next to one that runs on."""
    if not poll:
        gpu.start("c", 0.05)
    gpu.start("a" if poll % 2 else "b", 1.0, 0.9)


def pauses(gpu: Gpu, poll: int) -> None:
    """Work for a second, then pause: the next mean of samples is of the pause, too."""
    if not poll:
        gpu.start("a", 0.0)
    (run,) = gpu.runs.values()
    run.share = 1.0
    gpu.run(1.0)
    run.share = 0.0


@pytest.mark.parametrize(("pattern", "share"), [(tiny_ones, 0.5), (one_after_the_other, 0.3), (pauses, 0.2)])
def test_each_way_of_the_driver_is_explained(pattern: Callable[[Gpu, int], None], share: float, patched):
    gpu = patched(Gpu(3))
    node = Polled(gpu)
    found = []
    for poll in range(200):
        pattern(gpu, poll)
        found.append(node.poll(POLL - (gpu.now - node.polled_at)))
    known = [disagreement for disagreement in found if disagreement is not None]
    assert len(known) > 190
    assert all(disagreement.share <= disagreement.explained for disagreement in known)
    assert known[-1].share > share


def test_compute_of_the_wrong_container_is_more_than_is_explained(patched):
    gpu = patched(Gpu(3))
    node = Polled(gpu, booked_wrong=0.3)
    for owner in OWNERS:
        gpu.start(owner, 0.5)
    found = [node.poll(POLL) for _ in range(120)]
    assert found[-1].share > found[-1].explained


def test_polls_that_are_longer_than_the_drivers_buffer_show(patched):
    """Of a poll of a minute, samples of 14 seconds are left; the accounts have all of them."""
    gpu = patched(Gpu(5))
    node = Polled(gpu)
    gpu.start("a", 0.01)
    found = []
    for _ in range(30):
        gpu.start("b", 1.0, 20.0)
        gpu.run(20.0)
        gpu.run(40.0)
        found.append(node.poll())
    assert found[-1].share > found[-1].explained


def test_both_figures_err_from_the_truth_alike(patched):
    """They are of the same samples: that they agree does not prove that they are right."""
    gpu = patched(Gpu(11))
    node = Polled(gpu)
    gpu.start("a", 0.6)
    gpu.start("b", 0.2)
    gpu.start("c", 0.2)
    for _ in range(12):
        disagreement = node.poll(POLL)
    window = node.disagreements._windows[UUID]
    errors = {
        owner.pod: abs(window.sampled[owner] - gpu.truth[owner.pod]) for owner in window.sampled if owner
    }
    assert sum(errors.values()) / sum(gpu.truth.values()) > disagreement.share


def test_a_pid_that_is_reused_gives_absence(patched):
    """The only process with a second figure is gone with its pid."""
    gpu = patched(Gpu(5))
    node = Polled(gpu)
    pid = gpu.start("a", 0.5)
    node.poll(POLL)
    assert node.poll(POLL) is not None
    gpu.runs[pid].until = gpu.now + 1
    gpu.run(2)
    gpu.start("a", 0.5, pid=pid)
    assert [node.poll(POLL) for _ in range(3)] == [None] * 3


def test_a_ring_that_overflows_gives_absence(patched):
    gpu = patched(Gpu(5))
    node = Polled(gpu)
    gpu.start("a", 0.5)
    node.poll(POLL)
    for overflows in (False, True, False):
        for _ in range(140 if overflows else 20):
            gpu.start("b", 0.01, 2.0)
        assert (node.poll(POLL) is None) is overflows


def test_nothing_is_said_of_a_gpu_on_which_nothing_computes(patched):
    gpu = patched(Gpu(5))
    node = Polled(gpu)
    gpu.start("a", 0.0)
    assert [node.poll(POLL) for _ in range(4)] == [None] * 4
