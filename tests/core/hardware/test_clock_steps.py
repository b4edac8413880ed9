"""Utilization of processes over a wall clock that is set: samples carry wall time, in microseconds."""

import pytest

from exporter.nvml.readings.gpu_processes import read_utilization
from exporter.nvml.readings.samples import SampleReader
from tests.core.hardware.making import Clock, ticking
from tests.core.hardware.tiny import HANDLE, installed, sample, samples

GPU = "GPU-a"
SAMPLES = "nvmlDeviceGetProcessUtilization"
HOUR = 3600.0


class Node:
    """One GPU whose driver keeps its samples, and a reader of them, on a clock that can be set."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.asked: list[int] = []
        self.records: list[dict[str, int]] = []
        self._reader = SampleReader(ticking())

    def run(self, pid: int, percent: int, ago: float = 0.0) -> None:
        """Add a sample of a process, with the time of the wall clock, to the driver's."""
        self.records.append(sample(pid, int((self.clock.time() - ago) * 1e6), percent))

    def read(self, uuid: str = GPU) -> dict[int, int | None] | None:
        """Read what is newer than the last sample; the driver keeps all samples."""
        calls = installed(**{SAMPLES: samples(*self.records, asked=self.asked)})
        return read_utilization(self._reader, calls, uuid, HANDLE, ())

    def forget(self) -> None:
        """Let the reader forget all GPUs."""
        self._reader.keep_only([])


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    """Return a node where one process has run and was read."""
    clock = Clock()
    monkeypatch.setattr("exporter.nvml.readings.samples.time", clock)
    node = Node(clock)
    node.run(41, 5)
    assert node.read() == {41: 5}
    return node


def test_after_a_step_back_samples_are_requested_from_the_beginning(node: Node):
    """New samples look older than the last one."""
    node.clock.wall_offset = -HOUR
    node.run(42, 30)
    assert node.read() == {42: 30}
    assert node.asked[-1] == 0


def test_samples_from_before_a_step_back_do_not_hide_newer_ones(node: Node):
    """They have times in the future by the new clock."""
    node.clock.wall_offset = -HOUR
    for percent in (30, 40, 50):
        node.clock.now += 15
        node.run(42, percent)
        assert node.read() == {42: percent}


def test_samples_from_before_a_step_back_stay_ignored(node: Node):
    """Also when the wall clock has reached their time and the driver still has them."""
    node.clock.wall_offset = -HOUR
    assert node.read() == {}
    node.clock.now += HOUR + 60
    assert node.read() == {}
    node.run(42, 30)
    assert node.read() == {42: 30}


def test_a_sample_slightly_ahead_of_the_clock_counts(node: Node):
    """The two clocks are not read at the same moment."""
    node.clock.wall_offset = -HOUR
    node.run(42, 30, ago=-0.5)
    assert node.read() == {42: 30}


def test_without_a_step_samples_of_the_future_count(node: Node):
    """The clock of the driver may be ahead."""
    node.run(42, 30, ago=-HOUR)
    assert node.read() == {41: 5, 42: 30}
    node.records.clear()
    node.run(43, 20, ago=-HOUR - 15)
    assert node.read() == {43: 20}


def test_a_sample_with_an_impossible_time_is_unknown_and_hides_no_other(node: Node):
    node.run(42, 30)
    node.records.append(sample(99, 2**63 + 12345, 3))
    assert node.read() == {41: 5, 42: 30, 99: None}
    node.clock.now += 15
    node.records.clear()
    node.run(43, 20)
    assert node.read() == {43: 20}


@pytest.mark.parametrize("step", [HOUR, 0.5, -0.5])
def test_a_step_forward_or_a_small_one_changes_nothing(node: Node, step: float):
    last = node.records[-1]["timeStamp"]
    node.clock.now += 15
    node.clock.wall_offset = step
    node.records.clear()
    node.run(42, 30)
    assert node.read() == {42: 30}
    assert node.asked[-1] == last


def test_ignored_samples_are_recorded_by_gpu_and_forgotten_with_it(node: Node):
    assert node.read("GPU-b") == {41: 5}
    node.clock.wall_offset = -HOUR
    assert (node.read(GPU), node.read("GPU-b")) == ({}, {})
    node.forget()
    node.clock.now += HOUR + 60
    assert node.read("GPU-b") == {41: 5}
