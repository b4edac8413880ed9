"""The windows of a cluster's workloads: the last seven days of their containers, from Prometheus."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import add
from typing import NamedTuple

from exporter.advice.guards import COVERED, DAY, STEP
from exporter.advice.model import DeviceFacts, Use, Window
from exporter.advice.node_windows import TIME_SLICING
from exporter.fleet.advice_queries import (
    DAYS,
    PROFILE_VALUES,
    device_questions,
    holder_questions,
    of_gpus,
    of_namespace,
)
from exporter.fleet.owners import owners_above, workload_of
from exporter.fleet.prometheus import Prometheus, Sample
from exporter.fleet.queries import Answers, HolderKey, ask, holder_key
from exporter.model import DeviceKey
from exporter.model.mig_profiles import MigProfile

_HOUR = 3600.0
_FLAT = 0.95
# How several values of a holder become one, as the number of a GPU may change at a boot; else the largest.
_COMBINED: Mapping[str, Callable[[float, float], float]] = {
    "since": min,
    "flat": min,
    "memory_known": add,
    "compute_known": add,
    "used": add,
    "steps": add,
}
_POD = ("cluster", "namespace", "pod")


class AdviceWindows(NamedTuple):
    """The windows, and the failed queries as sentences."""

    windows: tuple[Window, ...]
    problems: tuple[str, ...]


async def advice_windows(prometheus: Prometheus, at: float, namespace: str = "") -> AdviceWindows:
    """Return the windows that end at Unix time ``at``, of all namespaces or of one.

    Those of GPUs on which a namespace takes turns with others have the holders of all namespaces. Without an
    answer on who has opted out there are no windows.
    """
    devices = await ask(prometheus, device_questions(), at)
    holders = [await ask(prometheus, holder_questions(of_namespace(namespace)), at)]
    if namespace:
        week = holders[0].samples("week")
        turns = {sample.text("uuid") for sample in week if sample.text("sharing") == TIME_SLICING}
        if turns:
            holders.append(await ask(prometheus, holder_questions(of_gpus(turns, namespace)), at))
    problems = tuple(
        f"{name}: {why}" for answers in (devices, *holders) for name, why in answers.problems.items()
    )
    if "opted_out" in devices.problems:
        return AdviceWindows((), problems)
    return AdviceWindows(tuple(_Week(devices, holders, at).windows()), problems)


class _SliceKind(NamedTuple):
    """What a holder has held, by the labels of its time held."""

    model: str
    sharing: str
    isolation: str


class _Week:
    """The answers about a week."""

    def __init__(self, devices: Answers, holders: Sequence[Answers], at: float) -> None:
        self._at = at
        week: dict[str, list[Sample]] = defaultdict(list)
        for answers in (devices, *holders):
            for sample in answers.samples("week"):
                week[sample.text("value")].append(sample)
        self._kinds, self._held = _kinds(week["held"])
        self._values = {name: _values(samples, _COMBINED.get(name, max)) for name, samples in week.items()}
        self._running = {holder_key(sample) for answers in holders for sample in answers.samples("running")}
        self._opted_out = {sample.texts(*_POD) for sample in devices.samples("opted_out")}
        self._workloads = _workloads(devices)
        # These are of devices.
        self._memory, self._media, self._replicas = (
            {holder_key(sample): sample.value for sample in devices.samples(name)}
            for name in ("memory", "media", "replicas")
        )
        self._profile_names = {
            holder_key(sample): sample.text("profile") for sample in devices.samples("memory")
        }
        self._profiles = _profiles(devices)

    def windows(self) -> Iterator[Window]:
        """Yield a window for each container of a workload on devices of one kind, and each GPU with turns."""
        groups: dict[object, list[HolderKey]] = defaultdict(list)
        for holder, kind in sorted(self._kinds.items()):
            device = _device(holder)
            group: object = device
            if kind.sharing != TIME_SLICING:
                workload = (holder.cluster, holder.namespace, self._workload(holder))
                group = (workload, holder.container, kind, self._profile_names.get(device, ""))
            groups[group].append(holder)
        for holders in groups.values():
            yield self._window(holders)

    def _workload(self, holder: HolderKey) -> tuple[str, str]:
        """Return the kind and the name of the owner; the pod's own without one."""
        return self._workloads.get(_pod(holder), ("Pod", holder.pod))

    def _window(self, holders: Sequence[HolderKey]) -> Window:
        first = holders[0]
        together = self._kinds[first].sharing == TIME_SLICING
        uses = tuple(map(self._use, holders))
        since = [self._value(holder, "since") or self._at for holder in holders]
        return Window(
            cluster=first.cluster,
            namespace="" if together else first.namespace,
            workload="" if together else self._workload(first)[1],
            container="" if together else first.container,
            start=max(min(since) - _HOUR, self._at - DAYS * DAY),
            end=self._at,
            device=self._device_facts(holders, uses),
            uses=uses,
            engine=None,
            opted_out=any(_pod(holder) in self._opted_out for holder in holders),
        )

    def _use(self, holder: HolderKey) -> Use:
        def value(name: str) -> float | None:
            return self._value(holder, name)

        held, peak, used, entitled = self._held[holder], value("peak"), value("used"), value("held_bytes")
        steps, flat = value("steps"), value("flat")
        memory_known, compute_known = value("memory_known") or 0.0, value("compute_known") or 0.0
        # A record is missing if use has no step in which it computed, or a peak no flatness.
        if steps is None and used != 0:
            compute_known = 0.0
        if flat is None and peak is not None:
            memory_known = 0.0
        compute_coverage, compute_mean = min(compute_known / held, 1.0), None
        if used is not None and compute_coverage:
            compute_mean = used / (held * compute_coverage)
        return Use(
            holder=holder.holder,
            device=DeviceKey(holder.uuid, holder.mig_uuid),
            held=held,
            memory_coverage=min(memory_known / held, 1.0),
            compute_coverage=compute_coverage,
            computing=(steps or 0.0) * STEP,
            memory_peak=None if peak is None else int(peak),
            memory_flat=(flat or 0.0) >= _FLAT,
            compute_p95=value("p95_gpus"),
            compute_mean=compute_mean,
            sm_p95=value("p95_sm"),
            memory_entitled=None if entitled is None else int(entitled),
            compute_entitled=value("held_gpus"),
            node=holder.node if holder in self._running else "",
        )

    def _value(self, key: HolderKey, name: str) -> float | None:
        """Return a value of the last week of a holder or a device; None if it is unknown."""
        return self._values.get(name, {}).get(key)

    def _device_facts(self, holders: Sequence[HolderKey], uses: Sequence[Use]) -> DeviceFacts:
        kind, first = self._kinds[holders[0]], _device(holders[0])
        devices = {_device(holder) for holder in holders}
        gpus = {_gpu(device) for device in devices}
        sizes = [self._memory[device] for device in devices if device in self._memory]
        memory = int(min(sizes)) if sizes else None
        rest, sent = self._known("rest", devices), self._known("sent", gpus)
        replicas = self._replicas.get(_gpu(first))
        filled = p95 = None
        if kind.sharing == TIME_SLICING:
            filled, p95 = self._value(first, "filled"), self._value(first, "p95_together")
        measured = all(use.compute_coverage >= COVERED for use in uses)
        return DeviceFacts(
            model=kind.model,
            memory=memory,
            sharing=kind.sharing,
            isolation=kind.isolation,
            profile=self._profile_names.get(first, ""),
            profiles=self._profiles.get((first.cluster, kind.model)),
            nvlink_traffic=any(sent) if sent else None,
            # Some moments of a week show that they are used, and never that they are not.
            media_used=True if any(self._media.get(gpu) for gpu in gpus) else None,
            unattributed=max(rest) if len(rest) == len(devices) else None,
            replicas=None if replicas is None else int(replicas),
            sum_p95=p95 if measured else None,
            sum_peak=int(filled * memory) if filled is not None and memory else None,
        )

    def _known(self, name: str, devices: Iterable[HolderKey]) -> list[float]:
        """Return the known values of devices."""
        values = self._values.get(name, {})
        return [values[device] for device in devices if device in values]


def _pod(holder: HolderKey) -> tuple[str, ...]:
    return holder.cluster, holder.namespace, holder.pod


def _device(holder: HolderKey) -> HolderKey:
    return HolderKey(holder.cluster, holder.node, holder.uuid, holder.mig_uuid)


def _gpu(device: HolderKey) -> HolderKey:
    return device._replace(mig_uuid="")


def _kinds(samples: Iterable[Sample]) -> tuple[dict[HolderKey, _SliceKind], dict[HolderKey, float]]:
    """Return what each holder held for most of the time, and the seconds held."""
    seconds: dict[HolderKey, dict[_SliceKind, float]] = defaultdict(lambda: defaultdict(float))
    for sample in samples:
        seconds[holder_key(sample)][_SliceKind(*sample.texts(*_SliceKind._fields))] += sample.value
    return (
        {holder: max(kinds, key=kinds.__getitem__) for holder, kinds in seconds.items()},
        {holder: sum(kinds.values()) for holder, kinds in seconds.items()},
    )


def _values(samples: Iterable[Sample], combined: Callable[[float, float], float]) -> dict[HolderKey, float]:
    values: dict[HolderKey, float] = {}
    for sample in samples:
        key = holder_key(sample)
        values[key] = combined(values[key], sample.value) if key in values else sample.value
    return values


def _workloads(answers: Answers) -> dict[tuple[str, ...], tuple[str, str]]:
    """Return kind and name of the owner of each pod; of a replica set or a job the owner of that."""
    above, workloads = owners_above(answers), {}
    for sample in answers.samples("owners"):
        cluster, namespace, _ = pod = sample.texts(*_POD)
        owner = workload_of(above, cluster, namespace, *sample.texts("owner_kind", "owner_name"))
        if owner is not None:
            workloads[pod] = owner
    return workloads


def _profiles(answers: Answers) -> dict[tuple[str, ...], tuple[MigProfile, ...]]:
    """Return the MIG profiles by cluster and model; of several answers of nodes the smallest."""
    fields: dict[tuple[str, ...], dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    for value, field in PROFILE_VALUES.items():
        for sample in answers.samples(value):
            profile = fields[sample.texts("cluster", "model")][sample.text("profile")]
            profile[field] = min(int(sample.value), profile.get(field, int(sample.value)))
    return {
        model: tuple(MigProfile(name=name, **values) for name, values in profiles.items())
        for model, profiles in fields.items()
    }
