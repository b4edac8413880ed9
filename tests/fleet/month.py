"""A simulated February of a cluster, as series and records in a real Prometheus, and the truth about it.

Times are seconds of the month. An exporter counts from its start on; what it counted after its last scrape
is lost, as is what a gap in scraping hides that an hour ends in.
"""

import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import yaml

from tests.product.alerts.committed import committed_rules, kept
from tests.product.compat.places import Stored, blocks, serve, victoria_metrics
from tests.together.end_to_end.programs import Prometheus, get
from tests.tools import tool

MINUTE, HOUR, DAY = 60, 3600, 86400
SCRAPE, FIRST_SCRAPE = 180, 17
START = 1_738_368_000  # 2025-02-01 in UTC
LENGTH = 28 * DAY
H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB"
MEMORY, MIG_MEMORY = 80 << 30, 20 << 30
WATTS = 100
# Groups, each after those that it reads, and their interval.
ROUNDS = {
    "gpuslice-containers": "5m",
    "gpuslice-advice-hours": "60m",
    "gpuslice-usage-hours": "15m",
    "gpuslice-usage-groups": "15m",
    "gpuslice-usage-days": "4h",
}
NEEDED = ("container:gpuslice_held_gpus:max", "pod:gpuslice_owner:info1h")


class Time(NamedTuple):
    """A stretch of time."""

    start: float
    end: float

    def part_of(self, other: "Time") -> "Time":
        """Return the part of it in another."""
        return Time(max(self.start, other.start), max(min(self.end, other.end), self.start, other.start))

    @property
    def seconds(self) -> float:
        return max(self.end - self.start, 0.0)


ALWAYS = Time(0, LENGTH)


@dataclass(frozen=True, kw_only=True)
class Run:
    """An exporter from its start to its end."""

    time: Time
    instance: str


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A pod on a device, with shares of the physical GPU."""

    name: str
    time: Time
    gpu: str
    share: float
    used: float | None = 0.0
    namespace: str = "ml"
    team: str = ""
    owner: tuple[str, str] | None = None
    mig: str = ""
    by_memory: bool = False
    unshared: bool = False
    """Whether its share is unknown."""
    seen: bool = True
    """False if it is too short for two scrapes."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU of a node."""

    uuid: str
    node: str
    model: str = H100
    time: Time = ALWAYS
    down: tuple[Time, ...] = ()
    cut: tuple[tuple[Time, float], ...] = ()
    """Times in MIG mode, with the part of the GPU that is in MIG devices."""


@dataclass(frozen=True, kw_only=True)
class World:
    """The cluster, and what was observed of it."""

    gpus: tuple[Gpu, ...]
    pods: tuple[Pod, ...]
    runs: Mapping[str, tuple[Run, ...]]
    gaps: tuple[Time, ...] = ()
    length: float = LENGTH
    bridged: bool = False
    """Whether the database lets an increase begin at the last sample before its range."""

    def observed(self, node: str, time: Time) -> float:
        """Return the seconds of a time in which the node was observed."""
        return sum(
            part.seconds - sum(gap.part_of(part).seconds for gap in self.lost_gaps)
            for part in (time.part_of(run.time) for run in self.runs[node])
        )

    @property
    def lost_gaps(self) -> tuple[Time, ...]:
        """The gaps in which an hour ends; in the others the counters go on."""
        if self.bridged:
            return ()
        return tuple(gap for gap in self.gaps if gap.start // HOUR != gap.end // HOUR)

    def classes(self, gpu: Gpu, at: float) -> tuple[dict[str, float], dict[str, float]]:
        """Return the parts of both balances of a GPU at a time."""
        pods = [pod for pod in self.pods if pod.gpu == gpu.uuid and pod.time.start <= at < pod.time.end]
        held, used = sum(pod.share for pod in pods), sum(pod.used or 0.0 for pod in pods)
        weight = next((part for time, part in gpu.cut if time.start <= at < time.end), 1.0)
        held = min(held, weight)
        down = any(time.start <= at < time.end for time in gpu.down)
        rest = weight - held
        allocation = {"held": held, "down" if down else "free": rest}
        allocation["down" if down else "unpartitioned"] = allocation.get("down", 0.0) + 1 - weight
        if down or any(pod.used is None for pod in pods):
            return allocation, {"unmeasured": 1.0}
        idle = max(held - used, 0.0)
        return allocation, {"holders": used, "idle_held": idle, "idle_free": 1 - used - idle}

    def parts(self, gpu: Gpu, which: int) -> Iterator[tuple[Time, dict[str, float]]]:
        """Yield the times in which nothing changes on a GPU, with the parts of one of the balances."""
        for start, end in pairwise(self.edges(gpu)):
            part = Time(start, end).part_of(gpu.time)
            if part.seconds:
                yield part, self.classes(gpu, start)[which]

    def edges(self, gpu: Gpu) -> list[float]:
        """Return the times at which something changes on a GPU."""
        pods = [pod.time for pod in self.pods if pod.gpu == gpu.uuid]
        times = (gpu.time, *gpu.down, *(time for time, _ in gpu.cut), *pods, Time(0, self.length))
        return sorted({edge for time in times for edge in time if edge <= self.length})


def series(world: World) -> Iterator[Stored]:
    """Yield all series as they were scraped."""
    for gpu in world.gpus:
        for run in world.runs[gpu.node]:
            yield from _of_gpu(world, gpu, run)
    for pod in world.pods:
        yield from _of_pod(world, pod)


def _moments(world: World, *times: Time) -> list[float]:
    """Return the moments of scrapes in all of these times, but for gaps."""
    start, end = max(time.start for time in times), min(time.end for time in times)
    first = max(int((start - FIRST_SCRAPE) // SCRAPE + 1), 0) * SCRAPE + FIRST_SCRAPE
    moments = range(first, int(min(end, world.length)) + 1, SCRAPE)
    return [at for at in moments if not any(gap.start <= at < gap.end for gap in world.gaps) and at < end]


def _stored(name: str, labels: Mapping[str, str], points: Sequence[tuple[float, float]]) -> Stored:
    return Stored({"__name__": name, **labels}, [(START + at, repr(float(value))) for at, value in points])


def _target(gpu: Gpu, run: Run) -> dict[str, str]:
    place = {"cluster": "west", "job": "gpuslice-exporter", "instance": run.instance}
    return place | {"node": gpu.node, "gpu": gpu.uuid[-1], "uuid": gpu.uuid}


def _of_gpu(world: World, gpu: Gpu, run: Run) -> Iterator[Stored]:
    moments, labels = _moments(world, gpu.time, run.time), _target(gpu, run)

    def constant(name: str, value: float, **more: str) -> Stored:
        return _stored(f"gpuslice_{name}", labels | more, [(at, value) for at in moments])

    yield constant("gpu_info", 1, model=gpu.model)
    yield constant("gpu_up", 1)
    yield constant("gpu_memory_total_bytes", MEMORY)
    begin = max(run.time.start, gpu.time.start)
    for name, which in (("allocation", 0), ("use", 1)):
        for kind, points in _cumulated(world, gpu, which, begin, moments).items():
            yield _stored(f"gpuslice_gpu_{name}_seconds_total", labels | {"class": kind}, points)
    for mig in {pod.mig for pod in world.pods if pod.gpu == gpu.uuid and pod.mig}:
        yield constant("mig_memory_total_bytes", MIG_MEMORY, mig_uuid=mig, profile=mig.partition("/")[2])


def _cumulated(
    world: World, gpu: Gpu, which: int, begin: float, moments: Sequence[float]
) -> Mapping[str, list[tuple[float, float]]]:
    """Return the counters of a balance at some moments."""
    edges, place = world.edges(gpu), 0
    names = ("held", "free", "down", "unpartitioned"), ("holders", "idle_held", "idle_free", "unmeasured")
    counted, since = dict.fromkeys(names[which], 0.0), begin
    points: dict[str, list[tuple[float, float]]] = {name: [] for name in counted}
    for at in moments:
        while since < at:
            while place + 1 < len(edges) and edges[place + 1] <= since:
                place += 1
            until = min(at, edges[place + 1]) if place + 1 < len(edges) else at
            for name, share in world.classes(gpu, since)[which].items():
                counted[name] += share * (until - since)
            since = until
        for name, value in counted.items():
            points[name].append((at, value))
    return points


def _of_pod(world: World, pod: Pod) -> Iterator[Stored]:
    (gpu,) = (gpu for gpu in world.gpus if gpu.uuid == pod.gpu)
    cluster = {"cluster": "west", "namespace": pod.namespace}
    for run in world.runs[gpu.node]:
        moments = _moments(world, pod.time, run.time)
        begin = max(pod.time.start, run.time.start)
        labels = _target(gpu, run) | {"namespace": pod.namespace, "pod": pod.name, "container": "main"}
        labels |= {"mig_uuid": pod.mig} if pod.mig else {}
        for name, rate in _rates(pod).items():
            points = [(at, rate * (at - begin)) for at in moments]
            yield _stored(f"gpuslice_container_{name}_total", labels, points)
        share = {"memory_entitled_bytes": pod.share * MEMORY} if pod.by_memory else {}
        share |= {} if pod.by_memory or pod.unshared else {"compute_entitled_ratio": pod.share}
        for name, value in share.items():
            yield _stored(f"gpuslice_container_{name}", labels, [(at, value) for at in moments])
        ones = [(at, 1.0) for at in moments]
        yield _stored("gpuslice_container_info", labels | {"model": gpu.model}, ones)
        if pod.team:
            target = {key: labels[key] for key in ("cluster", "job", "instance", "namespace", "pod", "node")}
            yield _stored("gpuslice_pod_labels", target | {"label_team": pod.team}, ones)
    if pod.owner is not None:
        kind, name = pod.owner
        ones = [(at, 1.0) for at in _moments(world, pod.time)]
        owner = {"pod": pod.name, "owner_kind": kind, "owner_name": name}
        yield _stored("kube_pod_owner", cluster | owner, ones)


def _rates(pod: Pod) -> dict[str, float]:
    rates = {"held_seconds": 1.0, "energy_joules": WATTS * pod.share}
    if not (pod.by_memory or pod.unshared):
        rates["entitled_gpu_seconds"] = pod.share
        rates["compute_measured_gpu_seconds"] = 0.0 if pod.used is None else pod.share
    return rates if pod.used is None else rates | {"used_gpu_seconds": pod.used}


@contextmanager
def served(
    folder: Path,
    world: World,
    change: Callable[[Sequence[Stored]], Sequence[Stored]] = list,
    replicas: Sequence[str] = (),
    paused: Sequence[Time] = (),
) -> Iterator[Prometheus]:
    """Serve the series, and the records that the rules make of them, those of each replica.

    No rule is evaluated in the times of ``paused``, which are in order.
    """
    program, promtool = tool("prometheus"), tool("promtool")
    folder.mkdir()
    blocks(folder, promtool, change(_scraped(world)))
    # A moment that an evaluation is at is in one of two times only.
    starts, ends = [0, *(time.end for time in paused)], [*(time.start - 1 for time in paused), _end(world)]
    for name, interval in ROUNDS.items():
        _write_rules(folder / "rules.yaml", name, interval, replicas)
        with serve(folder, program) as server:
            for start, end in zip(starts, ends, strict=True):
                command = [promtool, "tsdb", "create-blocks-from", "--max-block-duration=192h", "rules"]
                command += [f"--url={server.url}", f"--start={START + start:.0f}", f"--end={START + end:.0f}"]
                _done([*command, "--output-dir=data", "rules.yaml"], folder)
    with serve(folder, program) as server:
        yield server


@contextmanager
def served_by_victoria_metrics(folder: Path, world: World) -> Iterator[Prometheus]:
    """Serve the series by VictoriaMetrics, and the records that vmalert makes of them."""
    program = tool("vmalert")
    with victoria_metrics(folder, tool("victoria-metrics"), _scraped(world)) as server:
        for name, interval in ROUNDS.items():
            _write_rules(folder / "rules.yaml", name, interval, ())
            command = [program, "-rule=rules.yaml", f"-datasource.url={server.url}"]
            command += [
                f"-remoteWrite.url={server.url}",
                "-replay.rulesDelay=0s",
                "-replay.disableProgressBar",
            ]
            command += [f"-replay.timeFrom={_date(START)}", f"-replay.timeTo={_date(START + _end(world))}"]
            _done(command, folder)
            get(f"{server.url}/internal/force_flush")
        yield server


def _scraped(world: World) -> list[Stored]:
    # A series without samples is not scraped.
    return [each for each in series(world) if each.values]


def _end(world: World) -> float:
    return world.length + DAY


def _date(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


def _done(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr


def _write_rules(path: Path, name: str, interval: str, replicas: Sequence[str]) -> None:
    rules = committed_rules()
    (group,) = (group for group in rules.groups if group["name"] == name)
    names = {rule["record"] for rule in group["rules"] if "usage" in name or rule["record"] in NEEDED}
    group = kept(group, names) | {"interval": interval}
    if replicas:
        copies = [rule | {"labels": {"replica": each}} for each in replicas for rule in group["rules"]]
        group["rules"] = copies
    path.write_text(yaml.safe_dump({"groups": [group]}))


def shortened(world: World, length: float) -> World:
    """Return the first part of a world."""
    pods = (pod for pod in world.pods if pod.time.start < length)
    return replace(
        world,
        length=length,
        gpus=tuple(replace(gpu, time=gpu.time.part_of(Time(0, length))) for gpu in world.gpus),
        pods=tuple(replace(pod, time=pod.time.part_of(Time(0, length))) for pod in pods),
    )
