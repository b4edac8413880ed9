"""The driver's profiling metric: what two samples of it tell, whatever numbers it puts there."""

import contextlib
import json
import math
from collections.abc import Iterable
from functools import cache, partial
from struct import pack
from typing import Any

from exporter.demo.machine import GpuState, Machine
from exporter.demo.nvml import FakeNvml
from exporter.demo.present import present
from exporter.demo.scenario import Scenario
from exporter.demo.scenario.catalog import parse
from exporter.model import GpuIdentity, GpuReading, ProcessAccounts, Profile
from exporter.nvml.driver.calls import Calls, DeviceLostError, DriverGoneError
from exporter.nvml.mig import MigReader
from exporter.nvml.mig_layout import LayoutReader
from exporter.nvml.readings.accounting import AccountReader
from exporter.nvml.readings.gpm import GpmReader
from exporter.nvml.readings.gpu_processes import ProcessLists
from tests.core.hardware.making import WALL, gpu, instance, process, ticking
from tests.together.fuzz.promises import BrokenPromiseError
from tests.together.fuzz.spoiled import Renewed, Spoiled
from tests.together.fuzz.target import Target
from tests.together.fuzz.targets_nvml import WORDS, seeds

NODE = {"name": "n", "driver_version": "580.65.06", "nvml_version": "13.580.65.06", "cuda_version": 13000}
NEWEST = NODE | {"driver_version": "615.20", "nvml_version": "13.615.20"}
FIRST = instance("first", 1, ci=0, profile="1c.3g.8gb", memory_bytes="8 GiB", start=0, size=4)
SECOND = FIRST | {"uuid": "MIG-second", "ci": 1, "profile": "2c.3g.8gb"}
SINGLE = instance("single", 5, start=5)
BOARDS = {
    b"w": gpu("a", architecture=9, links={"nvlinks": 2, "switch": True}),
    b"c": gpu("a", FIRST, SECOND, SINGLE, architecture=9),
}
BUSY = {b"w": "GPU-a", b"c": "MIG-first"}
WINDOW_SECONDS = 5.0
# Where the value of a metric lies in the driver's answer: behind its head, its own number and code.
HEAD, ENTRY = 24, 40
VALUES = tuple(pack("<d", value) for value in (math.nan, math.inf, -1.0, 1e308, 100.5, 101.5, -0.0, 2.0**64))
METRICS_CALL = {b"w": 5, b"c": 14}


class Metered:
    """A driver with a meter, which shows its hardware at the beginning and at the end of a window."""

    def __init__(self, scenario: Scenario, moments: list[tuple[GpuState, ...]]) -> None:
        self.fake = FakeNvml(scenario.node)
        self._moments = moments
        self.show(0)
        self.spoiled = Spoiled(self.fake, still=False)
        with self.spoiled.opened(b"") as calls:
            layouts = LayoutReader()
            self.layout = layouts.read(calls, "GPU-a", self.spoiled.handles["GPU-a"])
            self.devices = MigReader(layouts, ProcessLists(), ()).read(calls, self.layout, None)

    def show(self, moment: int) -> None:
        """Show the hardware at the beginning (0) or at the end (1)."""
        self.fake.show(self._moments[moment])


@cache
def _scenario(kind: bytes) -> tuple[Scenario, list[tuple[GpuState, ...]]]:
    processes = [process(41, BUSY[kind], load={"high": 50})]
    told = {"name": "test", "node": NODE, "gpus": [BOARDS[kind]], "host_processes": processes}
    scenario, machine = parse(json.dumps(told)), Machine()
    times = (0.0, WINDOW_SECONDS)
    return scenario, [machine.step(present(scenario, seconds), WALL + seconds) for seconds in times]


def _metered(kind: bytes) -> Metered:
    return Metered(*_scenario(kind))


DRIVERS = {kind: Renewed(partial(_metered, kind)) for kind in BOARDS}


def _gpm(content: bytes) -> Any:
    """Read the meter of a GPU at both ends of a window; the first byte chooses a whole one or a cut one."""
    metered = DRIVERS[b"c" if content[:1] == b"c" else b"w"]()
    reader = GpmReader(ticking())
    with metered.spoiled.opened(content[1:]) as calls:
        told = []
        try:
            for moment in (0, 1):
                metered.show(moment)
                told.append(_read(reader, calls, metered))
        finally:
            reader.free_all(calls)
    return told, list(metered.fake.gpm.misuses)


def _read(reader: GpmReader, calls: Calls, metered: Metered) -> tuple[Profile | None, dict[str, Profile]]:
    handle = metered.spoiled.handles["GPU-a"]
    try:
        whole = reader.read_gpu(calls, "GPU-a", handle)
        return whole, reader.read_migs(calls, "GPU-a", handle, metered.layout, metered.devices)
    except DeviceLostError:
        return None, {}


def _check(told: tuple[list[tuple[Profile | None, dict[str, Profile]]], list[str]]) -> None:
    readings, misuses = told
    if misuses:
        raise BrokenPromiseError(f"a buffer of the driver's was misused: {misuses}")
    for whole, parts in readings:
        for profile in (whole, *parts.values()):
            if profile is not None:
                _check_profile(profile)


def _check_profile(profile: Profile) -> None:
    _require(profile, (*profile.active.values(), *profile.engines.values()), 1.0)
    _require(profile, (*profile.rates.values(), *profile.cycles.values(), *profile.bytes_total.values()))


def _require(profile: Profile, figures: Iterable[float], most: float = math.inf) -> None:
    if not all(0 <= figure <= most and figure < math.inf for figure in figures):
        raise BrokenPromiseError(f"no measurement: {profile}")


def _seeds() -> list[bytes]:
    """Spoil each call, and of the answer some metrics, by each of the values that are none or too much."""
    entries = range(0, 60, 7)
    spoilt = [
        kind
        + bytes(call)
        + b"\x80"
        + (HEAD + ENTRY * entry + 8).to_bytes(2, "little")
        + b"\x08"
        + VALUES[entry % len(VALUES)]
        for kind, call in METRICS_CALL.items()
        for entry in entries
    ]
    return [*seeds(14, 4, head=b"w"), *seeds(30, 8, head=b"c"), *spoilt]


def _accounted() -> tuple[FakeNvml, Spoiled, list[tuple[GpuState, ...]]]:
    """Return a driver with accounting and its hardware before, while and after a second process runs."""
    board = BOARDS[b"w"] | {"accounting": True}
    machine, states = Machine(), []
    for seconds, pids in enumerate([(41,), (41, 42), (41, 42), (41,)]):
        processes = [process(pid, "GPU-a", load={"high": 50}) for pid in pids]
        told = {"name": "test", "node": NEWEST, "gpus": [board], "host_processes": processes}
        scenario = parse(json.dumps(told))
        states.append(machine.step(present(scenario, seconds), WALL + seconds))
    fake = FakeNvml(scenario.node)
    fake.show(states[0])
    return fake, Spoiled(fake, still=False), states


ACCOUNTED = Renewed(_accounted)


def _accounts(content: bytes) -> Any:
    """Read the accounts of a GPU in two sweeps."""
    fake, spoiled, states = ACCOUNTED()
    reader, read = AccountReader(), []
    with spoiled.opened(content) as calls, contextlib.suppress(DeviceLostError):
        for sweep, state in ((1, states[0]), (2, states[-1])):
            fake.show(state)
            reading = GpuReading(
                identity=GpuIdentity(uuid="GPU-a", index=0),
                sweep=sweep,
                boot_seconds=float(sweep * WINDOW_SECONDS),
                accounting=True,
            )
            read.append(reader.read(calls, spoiled.handles["GPU-a"], reading, WALL))
    return read


def _check_accounts(read: list[ProcessAccounts | None]) -> None:
    known = [account for accounts in read if accounts is not None for account in accounts.by_pid.values()]
    for account in known:
        seconds = account.gpu_seconds
        if not math.isfinite(account.started) or not (seconds is None or 0 <= seconds < 100):
            raise BrokenPromiseError(f"no account: {account}")


TARGETS = (
    Target(
        name="nvml-accounts",
        covers=("exporter.nvml.readings.accounting", "exporter.nvml.driver.accounting"),
        seeds=lambda: [b"", *seeds(14, 4)],
        decode=_accounts,
        refuses=(DriverGoneError,),
        check=_check_accounts,
        words=WORDS,
        cost=4,
    ),
    Target(
        name="nvml-gpm",
        covers=("exporter.nvml.readings.gpm", "exporter.nvml.readings.gpm_metrics"),
        seeds=_seeds,
        decode=_gpm,
        refuses=(DriverGoneError,),
        check=_check,
        words=(*WORDS, *VALUES, *(b"\x80\x00\x00\x08" + value for value in VALUES)),
        cost=4,
    ),
)
