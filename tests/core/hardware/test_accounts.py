"""The driver's accounts of processes: what is read of them, and when nothing is known."""

from typing import Any

import pytest

from exporter.model import ProcessAccount
from exporter.nvml.readings.accounting import FEWEST_KEPT
from exporter.nvml.sweep import Sweeper
from tests.core.hardware.making import NODE, SMALL, Clock, Driver, gpu, nvml, sweep

NEW = NODE | {"driver_version": "615.20", "nvml_version": "13.615.20"}
OLD = NODE
PIDS, STATS, STATS_V2 = (
    "nvmlDeviceGetAccountingPids",
    "nvmlDeviceGetAccountingStats",
    "nvmlDeviceGetAccountingStats_v2",
)


def process(pid: int, sm: float = 40) -> dict[str, Any]:
    return {"pid": pid, "device": "GPU-a", "memory": "10 MiB", "load": {"high": sm}}


class Accounted:
    """A driver with accounting; each step of its hardware takes a second, and is a sample."""

    def __init__(
        self,
        clock: Clock,
        *processes: dict[str, Any],
        node: dict[str, Any] = NEW,
        machine_pids: bool = True,
        **of_gpu: Any,
    ) -> None:
        # One wall clock for both sides.
        clock.wall_offset = -clock.now
        self._clock = clock
        self._gpu = gpu("a", **({"accounting": True} | of_gpu))
        self._node = node
        self.driver = Driver(self._gpu, node=node, host_processes=list(processes))
        options = nvml(
            self.driver.library,
            clock=clock.monotonic,
            boot_clock=clock.monotonic,
            machine_pids=lambda: machine_pids,
        )
        self.sweeper = Sweeper(options)

    def runs(self, *processes: dict[str, Any], seconds: int = 1) -> None:
        """Let these processes run for some seconds."""
        for _ in range(seconds):
            self._clock.now += 1
            self.driver.go_on(self._gpu, node=self._node, host_processes=list(processes))

    def accounts(self) -> dict[int, ProcessAccount] | None:
        """Sweep; return the accounts."""
        accounts = next(iter(sweep(self.sweeper).values())).process_accounts
        return None if accounts is None else dict(accounts.by_pid)

    def known(self) -> dict[int, ProcessAccount]:
        """Sweep; return the accounts, which must be known."""
        accounts = self.accounts()
        assert accounts is not None
        return accounts

    def asked(self) -> int:
        """Return how many accounts were asked for."""
        return self.driver.asked(STATS_V2, "GPU-a") + self.driver.asked(STATS, "GPU-a")


def test_seconds_are_those_since_the_last_sweep(clock: Clock):
    node = Accounted(clock, process(41, 40), process(42, 10))
    assert node.accounts() is None
    for seconds in (5, 1, 7):
        node.runs(process(41, 40), process(42, 10), seconds=seconds)
        assert {pid: account.gpu_seconds for pid, account in node.known().items()} == {
            41: pytest.approx(seconds * 0.4),
            42: pytest.approx(seconds * 0.1),
        }


def test_a_process_that_came_and_went_has_its_total(clock: Clock):
    node = Accounted(clock, process(41))
    node.accounts()
    for pids in [(41,), (41, 77), (41, 77), (41, 77), (41,)]:
        node.runs(*map(process, pids))
    accounts = node.known()
    assert (accounts[77].ended, accounts[77].came_and_went) == (True, True)
    # Two samples after its start.
    assert accounts[77].gpu_seconds == pytest.approx(2 * 0.4)
    assert not accounts[41].ended
    assert 77 not in node.known()


def test_a_process_that_ends_has_its_last_samples(clock: Clock):
    node = Accounted(clock, process(41), process(42))
    node.accounts()
    for pids in [(41, 42), (41, 42), (41,), (41,)]:
        node.runs(*map(process, pids))
    accounts = node.known()
    assert (accounts[42].ended, accounts[42].came_and_went) == (True, False)
    assert accounts[41].gpu_seconds == pytest.approx(4 * 0.4)
    assert accounts[42].gpu_seconds == pytest.approx(2 * 0.4)


@pytest.mark.parametrize("ended", [FEWEST_KEPT - 1, FEWEST_KEPT, FEWEST_KEPT + 1])
def test_a_ring_that_may_have_overflowed_gives_absence(clock: Clock, ended: int):
    """If no process had ended before, a full ring may have lost one."""
    node = Accounted(clock, process(21))
    node.accounts()
    node.runs(process(21), *(process(1000 + n, 0) for n in range(ended)))
    node.runs(process(21))
    assert (node.accounts() is None) == (ended >= FEWEST_KEPT)
    node.runs(process(21))
    assert node.known()[21].gpu_seconds == pytest.approx(0.4)


def test_a_full_ring_loses_nothing_that_is_new(clock: Clock):
    """It drops the accounts of processes that ended before the last sweep."""
    node = Accounted(clock, process(21))

    def come_and_go(count: int, first: int) -> None:
        node.runs(process(21), *(process(first + n, 0) for n in range(count)))
        node.runs(process(21))

    come_and_go(FEWEST_KEPT, 1000)
    node.accounts()
    for count, first in [(FEWEST_KEPT - 1, 2000), (1, 3000)]:
        come_and_go(count, first)
        assert sum(account.came_and_went for account in node.known().values()) == count
    # The one that had ended last is gone, so that others may be, too.
    come_and_go(FEWEST_KEPT, 4000)
    assert node.accounts() is None


def test_a_reused_pid_has_no_figure(clock: Clock):
    """The driver reports the account of the process that has ended, under the pid of the one that runs."""
    node = Accounted(clock, process(21), process(41))
    node.accounts()
    node.runs(process(21))
    for _ in range(3):
        node.runs(process(21), process(41, 90))
        accounts = node.known()
        assert accounts[41].gpu_seconds is None
        assert accounts[21].gpu_seconds is not None


def test_two_processes_of_a_pid_between_two_sweeps_give_absence(clock: Clock):
    """The account of the first one is lost."""
    node = Accounted(clock, process(21), process(41))
    node.accounts()
    for pids in [(21,), (21, 41), (21,)]:
        node.runs(*map(process, pids))
    assert node.accounts() is None


def test_a_sweep_that_was_missed_gives_absence_once(clock: Clock):
    node = Accounted(clock, process(41))
    node.accounts()
    node.driver.fail("UNKNOWN", PIDS)
    assert node.accounts() is None
    node.driver.recover()
    node.runs(process(41))
    assert node.accounts() is None
    node.runs(process(41))
    assert node.known()[41].gpu_seconds == pytest.approx(0.4)


def test_an_older_driver_has_no_sums(clock: Clock):
    """Whole percents over the life of a process are no figure of five seconds."""
    node = Accounted(clock, process(41), node=OLD)
    node.accounts()
    node.runs(process(41), process(77))
    node.runs(process(41))
    accounts = node.known()
    assert {account.gpu_seconds for account in accounts.values()} == {None}
    assert accounts[77].came_and_went
    assert not node.sweeper.calls.records.errors


@pytest.mark.parametrize(
    "of_gpu",
    [
        {"accounting": False},
        {"mig": {"instances": [SMALL]}, "architecture": 8},
        {"virtualization": "vgpu_host"},
        {"machine_pids": False},
    ],
)
def test_nothing_is_asked_where_accounts_are_off_or_no_use(clock: Clock, of_gpu: dict[str, Any]):
    node = Accounted(clock, **of_gpu)
    assert [node.accounts(), node.accounts()] == [None, None]
    assert node.asked() == node.driver.asked(PIDS, "GPU-a") == 0


def test_nothing_is_set(clock: Clock):
    node = Accounted(clock, process(41))
    node.accounts()
    node.accounts()
    names = {name for name, _ in node.driver.library.calls}
    assert STATS_V2 in names
    assert not {name for name in names if ("AccountingMode" in name and "Get" not in name) or "Clear" in name}


def test_accounts_come_back_when_accounting_is_turned_on_again(clock: Clock):
    """The mode is a slow reading: until it is read again, the driver refuses the calls."""
    node = Accounted(clock, process(41))
    node.accounts()
    node.runs(process(41))
    assert node.known()
    node.driver.fail("NOT_SUPPORTED", PIDS)
    assert node.accounts() is None
    node.driver.recover()
    assert node.accounts() is None
    node.runs(process(41))
    assert node.known()
    assert not node.sweeper.calls.records.errors


def test_what_has_ended_is_read_once(clock: Clock):
    """A sweep asks about each process that runs, each with a new sample, and the one that ended last."""
    node = Accounted(clock, process(21), process(22))
    node.runs(process(21), process(22), *(process(100 + n, 0) for n in range(50)))
    node.runs(process(21), process(22))
    counts = []
    for _ in range(3):
        before = node.asked()
        node.accounts()
        counts.append(node.asked() - before)
        node.runs(process(21), process(22))
    assert counts == [52, 3, 3]


def test_an_impossible_account_is_none(clock: Clock):
    node = Accounted(clock, process(41))
    real = node.driver.library.nvmlDeviceGetAccountingStats_v2

    def broken(*arguments: Any) -> int:
        code = real(*arguments)
        arguments[-1]._obj.sumGpuUtil = 2**60
        return code

    node.driver.library.nvmlDeviceGetAccountingStats_v2 = broken
    assert node.accounts() is None
    assert node.accounts() == {}
    assert node.sweeper.calls.records.errors["GPU-a", STATS_V2, "ImpossibleValue"] == 2
