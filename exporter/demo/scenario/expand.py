"""Expansion of the shorthands of a scenario file.

* ``"count": 8`` on a GPU or pod makes eight; ``{n}`` in its strings is the copy's number from 0, and
  ``{n+4}`` that number plus four.
* ``{gpu:0}`` is the uuid of the node's first GPU, ``{gpu:0/mig:2}`` that of its third MIG instance.
* ``{amd:0}`` is the device plugin's id of the first AMD GPU, ``{amd:0/part:2}`` that of its third partition.
* An offer may have a kind of device and a number of replicas instead of a list of ids.
* ``0-{00..99}`` in a list of ids is a range of ids from ``0-00`` to ``0-99``.
* A process without a device runs on the only device that its container holds.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any, TypeVar

from exporter.demo.scenario import CgroupLimit, Fault, MigLayout, PodAdd, Scenario, with_paths
from exporter.demo.scenario.amd_gpus import AmdGpu, complete_amd, gpus_of
from exporter.demo.scenario.derive import complete_gpu, complete_instances, make_hex, make_pid, make_uuid
from exporter.demo.scenario.gpus import Gpu
from exporter.demo.scenario.pods import Claim, Container, Offer, Pod, Process, offered, resolve
from exporter.documents import fail

T = TypeVar("T", Gpu, AmdGpu, Pod)
MOST = 1 << 20
# Shorter runs of ids are shorter as a list.
FEWEST = 3
_NUMBERED = re.compile(r"((?:.*[^0-9])?)([0-9]{1,7})")
_RANGE = re.compile(r"\{([0-9]{1,7})\.\.([0-9]{1,7})\}")
_COPY = re.compile(r"\{n(?:\+(\d+))?\}")
_REFERENCE = re.compile(r"\{((?:gpu|amd):[^{}]*)\}")


def written_out(ids: Iterable[str], path: str) -> tuple[str, ...]:
    """Return the ids with all ranges expanded; ``path`` is their place in the scenario, for errors."""
    expanded: list[str] = []
    for written in ids:
        match = _RANGE.search(written)
        if match is None:
            expanded.append(written)
            continue
        before, after = written[: match.start()], written[match.end() :]
        first, last = int(match[1]), int(match[2])
        if not first <= last < first + MOST:
            fail(path, f"{match[0]} is not a range of at most {MOST} numbers")
        numbers = range(first, last + 1)
        expanded += (f"{before}{number:0{len(match[1])}d}{after}" for number in numbers)
    return tuple(expanded)


def folded(ids: Iterable[str]) -> tuple[str, ...]:
    """Return the ids with runs of numbers as ranges, which expand to the same ids in another order."""
    matches = {device_id: _NUMBERED.fullmatch(device_id) for device_id in ids}
    written = [device_id for device_id, match in matches.items() if match is None]
    runs: list[tuple[str, list[str]]] = []  # text before the number, and the numbers
    numbered = (match for match in matches.values() if match)
    for match in sorted(numbered, key=lambda match: (match[1], int(match[2]), len(match[2]))):
        text, number = match[1], match[2]
        if runs and runs[-1][0] == text and number == _next(runs[-1][1]):
            runs[-1][1].append(number)
        else:
            runs.append((text, [number]))
    for text, run in runs:
        if len(run) >= FEWEST:
            written.append(f"{text}{{{run[0]}..{run[-1]}}}")
        else:
            written += (f"{text}{number}" for number in run)
    return tuple(written)


def _next(run: list[str]) -> str:
    return f"{int(run[-1]) + 1:0{len(run[0])}d}"


def expand(raw: Scenario) -> Scenario:
    """Return the scenario with every shorthand expanded.

    Raises DocumentError with the path of an invalid one.
    """
    expander = _Expander(raw)
    return replace(
        raw,
        gpus=expander.gpus,
        amd=expander.amd,
        offers=tuple(expander.offers(raw.offers)),
        pods=tuple(expander.pod(copy, path) for path, copy in _copies(raw.pods, "pods")),
        host_processes=tuple(expander.host_processes(raw.host_processes)),
        cgroup_limits=tuple(expander.cgroup_limits(raw.cgroup_limits)),
        faults=tuple(expander.fault(fault, path) for path, fault in with_paths("faults", raw.faults)),
    )


def _copies(templates: Iterable[T], name: str) -> Iterator[tuple[str, T]]:
    """Yield the path of each template in the list of that name, with as many copies as it counts."""
    for path, template in with_paths(name, templates):
        if template.count < 1:
            fail(f"{path}.count", "must be at least 1")
        for number in range(template.count):
            yield path, replace(_map_strings(partial(_with_number, number), template), count=1)


def _with_number(number: int, text: str) -> str:
    return _COPY.sub(lambda match: str(number + int(match[1] or 0)), text)


class _Expander:
    """Expands the parts of one scenario that refer to its GPUs."""

    def __init__(self, raw: Scenario) -> None:
        self._scenario, self._node = raw.name, raw.node.name
        self._taken_pids = {process.pid for _, process in raw.all_processes()}
        gpus = [
            complete_gpu(raw.name, copy, index, f"{path}.mig")
            for index, (path, copy) in enumerate(_copies(raw.gpus, "gpus"))
        ]
        copies = enumerate(_copies(raw.amd, "amd"))
        self.amd = tuple(complete_amd(raw.name, copy, index) for index, (_, copy) in copies)
        self._amd_gpus = gpus_of(self.amd)
        # Devices by reference.
        self._known = {f"gpu:{index}": gpu.uuid for index, gpu in enumerate(gpus)}
        self._known |= {f"amd:{index}": gpu.pci_bus_id for index, gpu in enumerate(self._amd_gpus)}
        for kind, part, devices in (("gpu", "mig", gpus), ("amd", "part", self._amd_gpus)):
            for index, gpu in enumerate(devices):
                for place, instance in enumerate(gpu.instances):
                    self._known[f"{kind}:{index}/{part}:{place}"] = instance.uuid
        self.gpus = tuple(self._referred(gpu, path) for path, gpu in with_paths("gpus", gpus))

    def offers(self, offers: tuple[Offer, ...]) -> Iterator[Offer]:
        for path, offer in with_paths("offers", offers):
            if bool(offer.of) == bool(offer.ids):
                fail(path, 'must have either ids or "of": "gpus", "mig" or "amd"')
            written = list(offered(offer, self._amd_gpus if offer.of == "amd" else self.gpus))
            pairs = written or [(offer.resource, key) for key in written_out(offer.ids, f"{path}.ids")]
            for resource in dict.fromkeys(resource for resource, _ in pairs):
                ids = tuple(device_id for other, device_id in pairs if other == resource)
                yield Offer(resource=resource, ids=self._referred(ids, f"{path}.ids"))

    def cgroup_limits(self, limits: tuple[CgroupLimit, ...]) -> Iterator[CgroupLimit]:
        for path, limit in with_paths("cgroup_limits", limits):
            if not limit.path.startswith("/") or ".." in limit.path.split("/"):
                fail(f"{path}.path", "must be the path of a cgroup below the root, such as /kubepods.slice")
            yield self._referred(limit, path)

    def host_processes(self, processes: tuple[Process, ...]) -> Iterator[Process]:
        for path, process in with_paths("host_processes", processes):
            if not process.device:
                fail(f"{path}.device", "must be given: a host process has no container with a device")
            cgroup = process.cgroup or f"/system.slice/{process.command.split(' ')[0].lower()}.service"
            pid = self._pid(process, self._scenario, path)
            yield replace(self._referred(process, path), pid=pid, cgroup=cgroup)

    def fault(self, fault: Fault, path: str) -> Fault:
        fault = self._referred(fault, path)
        if isinstance(fault, PodAdd):
            if fault.pod.count != 1:
                fail(f"{path}.pod.count", "must be 1: a fault adds one pod")
            return replace(fault, pod=self.pod(fault.pod, f"{path}.pod", path))
        if isinstance(fault, MigLayout):
            if not 0 <= fault.gpu < len(self.gpus):
                fail(f"{path}.gpu", f"must be the index of one of the {len(self.gpus)} GPUs")
            instances = complete_instances(self.gpus[fault.gpu].uuid, fault.instances, path)
            return replace(fault, instances=instances)
        return fault

    def pod(self, pod: Pod, path: str, *salt: str) -> Pod:
        pod = self._referred(pod, path)
        names = (self._scenario, pod.namespace, pod.name, *salt)
        containers = (
            self._container(container, container_path, names)
            for container_path, container in with_paths(f"{path}.containers", pod.containers)
        )
        return replace(pod, uid=pod.uid or make_uuid(*names), containers=tuple(containers))

    def _container(self, container: Container, path: str, pod: tuple[str, ...]) -> Container:
        names = (*pod, container.name)
        processes = (
            replace(
                process,
                pid=self._pid(process, *names, index),
                device=process.device or self._only_device(container, f"{path}.processes[{index}]"),
            )
            for index, process in enumerate(container.processes)
        )
        limits = (
            replace(limit, device=limit.device or self._only_device(container, f"{path}.memory_limits"))
            for limit in container.memory_limits
        )
        devices = {
            resource: written_out(ids, f"{path}.devices") for resource, ids in container.devices.items()
        }
        return replace(
            container,
            container_id=container.container_id or make_hex(*names),
            devices=devices,
            claims=tuple(self._claim(claim, pod[1]) for claim in container.claims),
            processes=tuple(processes),
            memory_limits=tuple(limits),
        )

    def _claim(self, claim: Claim, namespace: str) -> Claim:
        namespace = claim.namespace or namespace
        uid = claim.uid or make_uuid(self._scenario, "claim", namespace, claim.name)
        return replace(claim, namespace=namespace, uid=uid, pool=claim.pool or self._node)

    def _pid(self, process: Process, *parts: object) -> int:
        if process.pid:
            return process.pid
        pid = make_pid(*parts)
        while pid in self._taken_pids:
            pid += 1
        self._taken_pids.add(pid)
        return pid

    def _only_device(self, container: Container, path: str) -> str:
        ids = (device_id for ids in container.devices.values() for device_id in ids)
        known = (resolve((*self.gpus, *self._amd_gpus), device_id) for device_id in ids)
        keys = {key for key in known if key is not None}
        if len(keys) != 1:
            fail(f"{path}.device", f"must be given: the container holds {len(keys)} devices of this node")
        [key] = keys
        return key.mig_uuid or key.uuid

    def _referred(self, value: Any, path: str) -> Any:
        """Return the record with the references in all strings replaced."""

        def uuid(match: re.Match[str]) -> str:
            if match[1] not in self._known:
                fail(path, f"{match[0]} is not a device; there are {', '.join(self._known) or 'none'}")
            return self._known[match[1]]

        return _map_strings(partial(_REFERENCE.sub, uuid), value)


def _map_strings(change: Callable[[str], str], value: Any) -> Any:
    """Return a tree of records with every string in it changed, but not the names of fields."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, tuple):
        return tuple(_map_strings(change, item) for item in value)
    if isinstance(value, Mapping):
        return {change(key): _map_strings(change, item) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value, **{field.name: _map_strings(change, getattr(value, field.name)) for field in fields(value)}
        )
    return value
