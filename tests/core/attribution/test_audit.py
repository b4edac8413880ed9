"""Processes that came and went between two polls, and their two figures."""

from dataclasses import replace

import pytest

from exporter.attribution.audit import Booked
from exporter.model import ContainerRef, ProcessAccount, ProcessAccounts, ProcessPlace
from tests.core.attribution.build import (
    UUID,
    gpu,
    held,
    join,
    mig,
    mig_gpu,
    process,
    replicas,
    row,
    whole,
    workloads,
)

UNSEEN = ProcessAccount(started=100.0, gpu_seconds=1.0, ended=True, came_and_went=True)
RUNNING = ProcessAccount(started=50.0, gpu_seconds=2.0)
ENDED = replace(RUNNING, ended=True)


def accounts(**by_pid: ProcessAccount) -> ProcessAccounts:
    """Return accounts by pid, each as ``p1=...``."""
    known = {int(name[1:]): account for name, account in by_pid.items()}
    return ProcessAccounts(by_pid=known, sample_seconds=0.2)


def exclusive(utilization, known, who, *, processes=(1,), pods=("a",)):
    """Join a GPU of one holder."""
    used = len(processes) << 30
    reading = gpu(map(process, processes), utilization, used, process_accounts=known)
    return join(reading, [entry for pod in pods for entry in held(pod, UUID)], whole(), who)


def shared(utilization, known, who, *, processes=(1, 2)):
    """Join a GPU that two containers share."""
    reading = gpu(map(process, processes), utilization, process_accounts=known)
    both = [*held("a", f"{UUID}::0"), *held("b", f"{UUID}::1")]
    return join(reading, both, replicas(4), who)


def test_a_process_that_came_and_went_is_of_the_only_container_that_is_meant():
    joined = exclusive({1: 30, 7: 20}, accounts(p1=RUNNING, p7=UNSEEN), workloads({1: "a"}, lost=[7]))
    used = row(joined, "a")
    assert used.compute_used == pytest.approx(0.5)
    assert (used.processes, used.memory_used) == (1, 1 << 30)
    assert joined.gpus[0].unattributed_utilization == pytest.approx(0.1)


def test_it_is_of_the_holder_of_a_gpu_without_other_processes():
    joined = exclusive({7: 20}, accounts(p7=UNSEEN), workloads(lost=[7]), processes=())
    assert row(joined, "a").compute_used == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("known", "who", "pods"),
    [
        # Without an account it may have been there before.
        (None, workloads({1: "a"}, lost=[7]), ("a",)),
        (
            accounts(p1=RUNNING, p7=replace(UNSEEN, came_and_went=False)),
            workloads({1: "a"}, lost=[7]),
            ("a",),
        ),
        # The host, another pod, or an unknown process uses the GPU, too.
        (accounts(p1=RUNNING, p2=RUNNING, p7=UNSEEN), workloads({1: "a"}, outside=[2], lost=[7]), ("a",)),
        (accounts(p1=RUNNING, p2=RUNNING, p7=UNSEEN), workloads({1: "a", 2: "b"}, lost=[7]), ("a",)),
        (accounts(p1=RUNNING, p2=RUNNING, p7=UNSEEN), workloads({1: "a"}, lost=[2, 7]), ("a",)),
        # Two containers hold it.
        (accounts(p1=RUNNING, p7=UNSEEN), workloads({1: "a"}, lost=[7]), ("a", "b")),
    ],
)
def test_else_it_stays_unattributed(known, who, pods):
    listed = [pid for pid in (1, 2) if pid in who.places]
    joined = exclusive({1: 30, 7: 20}, known, who, processes=listed, pods=pods)
    assert row(joined, "a").compute_used == pytest.approx(0.3)
    assert joined.gpus[0].unattributed_utilization == pytest.approx(0.3)


def test_on_a_shared_gpu_it_stays_unattributed():
    joined = shared(
        {1: 10, 7: 20}, accounts(p1=RUNNING, p2=RUNNING, p7=UNSEEN), workloads({1: "a", 2: "b"}, lost=[7])
    )
    assert [row(joined, pod).compute_used for pod in "ab"] == [pytest.approx(0.1), None]


def test_the_place_of_an_earlier_process_of_its_pid_is_not_its_own():
    """The poll before saw another process under this pid, in pod b."""
    who = workloads({1: "a", 7: "b"})
    who = replace(who, places={**who.places, 7: replace(who.places[7], ended=True)})
    with_account = shared({1: 10, 7: 20}, accounts(p1=RUNNING, p7=UNSEEN), who, processes=(1,))
    assert row(with_account, "b").compute_used is None
    without = shared({1: 10, 7: 20}, None, who, processes=(1,))
    assert row(without, "b").compute_used == pytest.approx(0.2)


def test_both_figures_are_by_process():
    who = workloads({1: "a", 2: "b"}, outside=[3], lost=[7])
    known = accounts(p1=RUNNING, p2=ENDED, p3=RUNNING, p7=UNSEEN)
    audit = shared({1: 30, 2: 10, 7: 20}, known, who, processes=(1, 2, 3)).audits[UUID]
    assert audit.complete
    a, b = (ContainerRef("ml", pod, "main") for pod in "ab")
    assert set(audit.booked) == {
        Booked(a, 0.3, 2.0, ended=False, came_and_went=False),
        Booked(b, 0.1, 2.0, ended=True, came_and_went=False),
        Booked(None, 0.0, 2.0, ended=False, came_and_went=False),
        Booked(None, 0.2, 1.0, ended=True, came_and_went=True),
    }


def test_what_ended_without_a_sample_has_its_account():
    """Its place is that of the poll before."""
    who = workloads({1: "a", 2: "b"})
    who = replace(who, places={**who.places, 2: replace(who.places[2], ended=True)})
    audit = shared({1: 30}, accounts(p1=RUNNING, p2=ENDED), who, processes=(1,)).audits[UUID]
    assert Booked(ContainerRef("ml", "b", "main"), 0.0, 2.0, ended=True, came_and_went=False) in audit.booked


@pytest.mark.parametrize(
    ("account", "started"),
    [
        (None, None),
        (replace(RUNNING, gpu_seconds=None), None),
        # The process that runs now started after the one of the account.
        (RUNNING, RUNNING.started + 60),
    ],
)
def test_an_owner_with_an_unknown_figure_is_left_out(account: ProcessAccount | None, started: float | None):
    known = accounts(p1=RUNNING) if account is None else accounts(p1=RUNNING, p2=account)
    who = workloads({1: "a", 2: "b"})
    who = replace(who, places={**who.places, 2: replace(who.places[2], started=started)})
    audit = shared({1: 30, 2: 10}, known, who).audits[UUID]
    assert not audit.complete
    assert [figure.owner.pod for figure in audit.booked] == ["a"]


def test_a_process_is_as_old_as_its_account_or_older():
    who = workloads({1: "a", 2: "b"})
    for started in (0.0, RUNNING.started, RUNNING.started + 0.5):
        places = {**who.places, 2: replace(who.places[2], started=started)}
        assert (
            shared({1: 3}, accounts(p1=RUNNING, p2=RUNNING), replace(who, places=places))
            .audits[UUID]
            .complete
        )


def test_accounts_are_not_used_under_mps():
    """They are of the server."""
    reading = gpu(
        [process(1, kind="mps"), process(2)], {2: 50}, process_accounts=accounts(p1=RUNNING, p2=RUNNING)
    )
    joined = join(reading, held("a", UUID), whole(), workloads({1: "a"}, outside=[2]))
    assert not joined.audits


def test_accounts_are_not_used_on_mig_devices():
    reading = mig_gpu([mig([process(1)])], process_accounts=accounts(p1=RUNNING))
    assert not join(reading, held("a", mig().uuid), whole(mig().uuid), workloads({1: "a"})).audits


def test_places_are_equal_whatever_their_start():
    assert ProcessPlace(pid=1, known=True, started=1.0) == ProcessPlace(pid=1, known=True)
