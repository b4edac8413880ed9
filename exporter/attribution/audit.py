"""What the driver's accounting adds to its samples: processes that no poll has seen, and a second figure.

A process that came and went between two polls is not in /proc any more. Rule 6 of ``docs/join.md`` says when
its container is known all the same.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from exporter.attribution.owners import Owned
from exporter.attribution.use import DeviceReading
from exporter.model import ContainerRef, DeviceProcess, ProcessAccount, ProcessPlace, Workloads

# Two clocks are compared, and a process does not use a GPU in the moment in which it starts.
SLACK_SECONDS = 1.0


class Booked(NamedTuple):
    """What the driver booked on one process since the previous reading, by its samples and in its account."""

    owner: ContainerRef | None  # None: processes of no known container
    sampled: float  # share of the GPU
    accounted: float  # GPU-seconds
    ended: bool
    came_and_went: bool


class Audit(NamedTuple):
    """Both figures of the processes of a GPU."""

    booked: tuple[Booked, ...]
    complete: bool  # False if a process of one of the owners, which are left out, has one figure only
    sample_seconds: float
    # As in ProcessAccounts.
    uncertainty: float
    overlap: float


def without_other_places(device: DeviceReading, workloads: Workloads) -> Workloads:
    """Return the workloads without places of pids that a process that came and went has had meanwhile.

    Such a place is that of an earlier or later process of that pid.
    """
    unseen = _came_and_went(device)
    if unseen.isdisjoint(workloads.places):
        return workloads
    places = {
        pid: ProcessPlace(pid=pid, known=False, ended=True) if pid in unseen else place
        for pid, place in workloads.places.items()
    }
    return replace(workloads, places=places)


def with_unseen(device: DeviceReading, holders: Collection[ContainerRef], owned: Owned) -> Owned:
    """Return the owners with the processes that came and went added to the only container that is meant.

    That is the only holder of an exclusive device, before and now, if all other processes are its own.
    """
    unseen = _came_and_went(device)
    added = [process for process in owned.unknown if process.pid in unseen]
    if not added or len(holders) != 1 or not device.sharing.exclusive:
        return owned
    (holder,) = holders
    others = len(owned.unknown) > len(added) or owned.outside or owned.by_owner.keys() - {holder}
    if others or holder not in device.holders_then:
        return owned
    by_owner = {**owned.by_owner, holder: [*owned.by_owner.get(holder, ()), *added]}
    return replace(owned, by_owner=by_owner, unknown=[])


def audit(
    device: DeviceReading,
    percents: Mapping[int, float | None],
    owned: Owned,
    places: Mapping[int, ProcessPlace],
) -> Audit | None:
    """Return both figures by process; None without accounting.

    ``percents`` are those of ``percent_by_pid``. An owner with a process of which one figure is unknown is
    left out: its sum is unknown.
    """
    accounts = device.accounts
    if accounts is None or accounts.sample_seconds is None:
        return None
    groups: list[tuple[ContainerRef | None, list[DeviceProcess]]] = list(owned.by_owner.items())
    groups.append((None, [*owned.outside, *owned.unknown]))
    booked: list[Booked] = []
    complete = True
    for owner, processes in groups:
        figures = [
            _booked(owner, percents[process.pid], _own(accounts.by_pid.get(process.pid), places, process.pid))
            for process in processes
        ]
        known = [figure for figure in figures if figure is not None]
        if len(known) == len(figures):
            booked += known
        else:
            complete = False
    return Audit(tuple(booked), complete, accounts.sample_seconds, accounts.uncertainty, accounts.overlap)


def accounted(device: DeviceReading) -> Iterator[int]:
    """Yield the pids that have computed by their accounts and have ended."""
    for pid, account in _by_pid(device).items():
        if account.ended and account.gpu_seconds:
            yield pid


def has_ended(device: DeviceReading, pid: int) -> bool:
    """Return whether the process of a pid that computed has ended, by its account."""
    account = _by_pid(device).get(pid)
    return account is not None and account.came_and_went


def _booked(
    owner: ContainerRef | None, percent: float | None, account: ProcessAccount | None
) -> Booked | None:
    if percent is None or account is None or account.gpu_seconds is None:
        return None
    return Booked(owner, percent / 100, account.gpu_seconds, account.ended, account.came_and_went)


def _own(
    account: ProcessAccount | None, places: Mapping[int, ProcessPlace], pid: int
) -> ProcessAccount | None:
    """Return an account unless it is that of an earlier process of the pid, by the start of the later one."""
    place = places.get(pid)
    started = place.started if place is not None else None
    if account is None or started is None:
        return account
    return account if started <= account.started + SLACK_SECONDS else None


def _came_and_went(device: DeviceReading) -> set[int]:
    return {pid for pid, account in _by_pid(device).items() if account.came_and_went}


def _by_pid(device: DeviceReading) -> Mapping[int, ProcessAccount]:
    return {} if device.accounts is None else device.accounts.by_pid
