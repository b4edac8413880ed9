"""The windows of a cluster's workloads: the last seven days of their containers, from Prometheus."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import add
from typing import NamedTuple

from exporter.advice.guards import COVERED, DAY, STEP
from exporter.advice.model import DeviceFacts, Use, Window
from exporter.advice.node_windows import TIME_SLICING
from exporter.fleet import queries
from exporter.fleet.prometheus import Prometheus, Sample
from exporter.fleet.queries import Answers, ask
from exporter.model import ContainerRef, DeviceKey
from exporter.model.mig_profiles import MigProfile

_HOUR = 3600.0
_FLAT = 0.95
# The controller of cron jobs names a job by its minute.
_SCHEDULED = re.compile(r"(.+)-[0-9]{8}")
_TOGETHER: Mapping[str, Callable[[float, float], float]] = {
    "since": min,
    "flat": min,
    "memory_known": add,
    "compute_known": add,
    "used": add,
    "steps": add,
}
"""How values of one holder become one, of others the largest: the number of a GPU may change at a boot."""
_POD = ("cluster", "namespace", "pod")
_BEYOND_PODS = frozenset({"", "<none>", "Node"})


class AdviceWindows(NamedTuple):
    """The windows, and what could not be asked, as sentences."""

    windows: tuple[Window, ...]
    problems: tuple[str, ...]


class _Device(NamedTuple):
    """A GPU, or a MIG device of it, on a node."""

    cluster: str
    node: str
    uuid: str
    mig_uuid: str

    @property
    def gpu(self) -> "_Device":
        return self._replace(mig_uuid="")


class _Holder(NamedTuple):
    """A container on a device."""

    device: _Device
    namespace: str
    pod: str
    container: str


class _Kind(NamedTuple):
    """What a holder has held, by the labels of its time held."""

    model: str
    sharing: str
    isolation: str


async def advice_windows(prometheus: Prometheus, at: float, namespace: str = "") -> AdviceWindows:
    """Return the windows that end at Unix time ``at``, of all namespaces or of one.

    Those of GPUs on which a namespace takes turns with others have the holders of all namespaces. Without an
    answer on who has opted out there are no windows.
    """
    answers = [await ask(prometheus, queries.advice_questions(), at)]
    answers.append(await _holders(prometheus, queries.of_namespace(namespace), at))
    if namespace:
        turns = {
            sample.text("uuid")
            for sample in answers[1].samples("week")
            if sample.text("sharing") == TIME_SLICING
        }
        if turns:
            answers.append(await _holders(prometheus, queries.of_gpus(turns, namespace), at))
    problems = tuple(f"{name}: {why}" for each in answers for name, why in each.problems.items())
    if "opted_out" in answers[0].problems:
        return AdviceWindows((), problems)
    return AdviceWindows(tuple(_Reader(answers[0], answers[1:], at).windows()), problems)


async def _holders(prometheus: Prometheus, chosen: str, at: float) -> Answers:
    questions = {"week": queries.week_question(chosen), "running": queries.running_question(chosen)}
    return await ask(prometheus, questions, at)


class _Reader:
    """Puts answers together."""

    def __init__(self, devices: Answers, holders: Sequence[Answers], at: float) -> None:
        self._at = at
        week: dict[str, list[Sample]] = {}
        for answers in (devices, *holders):
            for sample in answers.samples("week"):
                week.setdefault(sample.text("value"), []).append(sample)
        self._kinds, self._held = _kinds(week.get("held", ()))
        self._values = {name: _values(samples, _TOGETHER.get(name, max)) for name, samples in week.items()}
        self._running = {_holder(each) for answers in holders for each in answers.samples("running")}
        self._opted_out = {each.texts(*_POD) for each in devices.samples("opted_out")}
        self._workloads = _workloads(devices)
        self._facts = {
            name: {_device(each): each for each in devices.samples(name)}
            for name in ("memory", "media", "replicas")
        }
        self._profiles = _profiles(devices)

    def windows(self) -> Iterable[Window]:
        """Yield a window for each container of a workload on devices of one kind, and each GPU with turns."""
        groups: dict[object, list[_Holder]] = {}
        for holder, kind in sorted(self._kinds.items()):
            workload: object = (holder.device.cluster, holder.namespace, self._workload(holder))
            key = (workload, holder.container, kind, self._profile(holder.device))
            groups.setdefault(holder.device if kind.sharing == TIME_SLICING else key, []).append(holder)
        return (self._window(holders) for holders in groups.values())

    def _workload(self, holder: _Holder) -> tuple[str, str]:
        """Return the kind and the name of the owner; the pod's own without one."""
        pod = holder.device.cluster, holder.namespace, holder.pod
        return self._workloads.get(pod, ("Pod", holder.pod))

    def _profile(self, device: _Device) -> str:
        memory = self._facts["memory"].get(device)
        return memory.text("profile") if memory is not None else ""

    def _window(self, holders: list[_Holder]) -> Window:
        first = holders[0]
        together = self._kinds[first].sharing == TIME_SLICING
        uses = tuple(map(self._use, holders))
        since = [self._value(holder, "since") or self._at for holder in holders]
        return Window(
            cluster=first.device.cluster,
            namespace="" if together else first.namespace,
            workload="" if together else self._workload(first)[1],
            container="" if together else first.container,
            start=max(min(since) - _HOUR, self._at - queries.DAYS * DAY),
            end=self._at,
            device=self._device(holders, uses),
            uses=uses,
            engine=None,
            opted_out=any(
                (holder.device.cluster, holder.namespace, holder.pod) in self._opted_out for holder in holders
            ),
        )

    def _use(self, holder: _Holder) -> Use:
        held, value = self._held[holder], partial(self._value, holder)
        peak, used, entitled = value("peak"), value("used"), value("held_bytes")
        steps, flat = value("steps"), value("flat")
        # A record is missing if use has no step in which it computed, or a peak no flatness.
        known = 0.0 if steps is None and used != 0 else min((value("compute_known") or 0.0) / held, 1.0)
        memory_known = 0.0 if flat is None and peak is not None else (value("memory_known") or 0.0)
        return Use(
            holder=ContainerRef(holder.namespace, holder.pod, holder.container),
            device=DeviceKey(holder.device.uuid, holder.device.mig_uuid),
            held=held,
            memory_coverage=min(memory_known / held, 1.0),
            compute_coverage=known,
            computing=(steps or 0.0) * STEP,
            memory_peak=None if peak is None else int(peak),
            memory_flat=(flat or 0.0) >= _FLAT,
            compute_p95=value("p95_gpus"),
            compute_mean=used / (held * known) if used is not None and known else None,
            sm_p95=value("p95_sm"),
            memory_entitled=None if entitled is None else int(entitled),
            compute_entitled=value("held_gpus"),
            node=holder.device.node if holder in self._running else "",
        )

    def _value(self, holder: _Holder, name: str) -> float | None:
        """Return a value of the last week; None if it is unknown."""
        return self._values.get(name, {}).get(holder)

    def _device(self, holders: list[_Holder], uses: Sequence[Use]) -> DeviceFacts:
        first, kind = holders[0].device, self._kinds[holders[0]]
        devices = {holder.device for holder in holders}
        sizes = self._known("memory", devices)
        memory = int(min(sizes)) if sizes else None
        rest = self._of_devices("rest", devices)
        sent = self._of_devices("sent", {device.gpu for device in devices})
        media = self._known("media", {device.gpu for device in devices})
        filled, p95 = (self._of_devices(name, {first}) for name in ("filled", "p95_together"))
        replicas = self._known("replicas", {first.gpu})
        together = kind.sharing == TIME_SLICING
        measured = all(use.compute_coverage >= COVERED for use in uses)
        return DeviceFacts(
            model=kind.model,
            memory=memory,
            sharing=kind.sharing,
            isolation=kind.isolation,
            profile=self._profile(first),
            profiles=self._profiles.get((first.cluster, kind.model)),
            nvlink_traffic=any(sent) if sent else None,
            # Some moments of a week tell that they are used, and never that they are not.
            media_used=True if any(media) else None,
            unattributed=max(rest) if len(rest) == len(devices) else None,
            replicas=int(replicas[0]) if replicas else None,
            sum_p95=p95[0] if together and measured and p95 else None,
            sum_peak=int(filled[0] * memory) if together and filled and memory else None,
        )

    def _of_devices(self, name: str, devices: Iterable[_Device]) -> list[float]:
        known = self._values.get(name, {})
        rows = (_Holder(device, "", "", "") for device in devices)
        return [known[row] for row in rows if row in known]

    def _known(self, name: str, devices: Iterable[_Device]) -> list[float]:
        facts = self._facts[name]
        return [facts[device].value for device in devices if device in facts]


def _kinds(samples: Iterable[Sample]) -> tuple[dict[_Holder, _Kind], dict[_Holder, float]]:
    """Return what each holder held for most of the time, and the seconds held."""
    seconds: dict[_Holder, dict[_Kind, float]] = {}
    for sample in samples:
        kind = _Kind(*sample.texts(*_Kind._fields))
        kinds = seconds.setdefault(_holder(sample), {})
        kinds[kind] = kinds.get(kind, 0.0) + sample.value
    return (
        {holder: max(kinds, key=kinds.__getitem__) for holder, kinds in seconds.items()},
        {holder: sum(kinds.values()) for holder, kinds in seconds.items()},
    )


def _values(samples: Iterable[Sample], together: Callable[[float, float], float]) -> dict[_Holder, float]:
    values: dict[_Holder, float] = {}
    for sample in samples:
        holder = _holder(sample)
        known = values.get(holder)
        values[holder] = sample.value if known is None else together(known, sample.value)
    return values


def _device(sample: Sample) -> _Device:
    return _Device(*sample.texts(*_Device._fields))


def _holder(sample: Sample) -> _Holder:
    return _Holder(_device(sample), *sample.texts(*_Holder._fields[1:]))


def _workloads(answers: Answers) -> dict[tuple[str, ...], tuple[str, str]]:
    """Return kind and name of the owner of each pod; of a replica set or a job the owner of that."""
    above = {
        (kind, *each.texts("cluster", "namespace", label)): (kind_above, each.text("owner_name"))
        for name, kind, label, kind_above in (
            ("deployments", "ReplicaSet", "replicaset", "Deployment"),
            ("cron_jobs", "Job", "job_name", "CronJob"),
        )
        for each in answers.samples(name)
    }
    workloads = {}
    for sample in answers.samples("owners"):
        pod, kind, name = sample.texts(*_POD), sample.text("owner_kind"), sample.text("owner_name")
        owner = above.get((kind, *pod[:2], name))
        scheduled = _SCHEDULED.fullmatch(name) if kind == "Job" else None
        if owner is not None:
            workloads[pod] = owner
        elif scheduled is not None:
            workloads[pod] = "CronJob", scheduled[1]
        elif kind not in _BEYOND_PODS:
            workloads[pod] = kind, name
    return workloads


def _profiles(answers: Answers) -> dict[tuple[str, ...], tuple[MigProfile, ...]]:
    """Return the MIG profiles by cluster and model; of several answers of nodes the smallest."""
    found: dict[tuple[str, ...], dict[str, dict[str, int]]] = {}
    for value, part in queries.PROFILE_VALUES.items():
        for each in answers.samples(value):
            model = each.texts("cluster", "model")
            profile = found.setdefault(model, {}).setdefault(each.text("profile"), {})
            profile[part] = min(int(each.value), profile.get(part, int(each.value)))
    return {
        model: tuple(MigProfile(name=name, **values) for name, values in profiles.items())
        for model, profiles in found.items()
    }
