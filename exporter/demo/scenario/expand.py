"""Writing out the shorthands of a scenario file, so that nothing is left to derive.

* ``"count": 8`` on a GPU or pod makes eight; ``{n}`` in its strings is the copy's number from 0, and
  ``{n+4}`` that number and four.
* ``{gpu:0}`` is the uuid of the node's first GPU, ``{gpu:0/mig:2}`` that of its third MIG instance.
* ``{amd:0}`` is what AMD's plugin calls the first AMD GPU, ``{amd:0/part:2}`` its third partition.
* An offer may say on what it offers how many replicas, instead of listing ids.
* ``0-{00..99}`` in a list of ids stands for all of ``0-00`` to ``0-99``.
* A process without a device runs on the one device that its container holds.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from exporter.demo.kubelet.device_ids import offered, resolve
from exporter.demo.scenario import amd_gpus
from exporter.demo.scenario.amd_gpus import AmdGpu
from exporter.demo.scenario.codec import fail, map_strings
from exporter.demo.scenario.derive import complete_gpu, complete_instances, make_hex, make_pid, make_uuid
from exporter.demo.scenario.faults import Fault, MigLayout, NvmlFault, PodAdd, Unhealthy
from exporter.demo.scenario.gpus import Gpu
from exporter.demo.scenario.pods import Claim, Container, Offer, Pod, Process
from exporter.demo.scenario.schema import Scenario

MOST = 1 << 20
# As many as need fewer characters as a range.
FEWEST = 3
_NUMBERED = re.compile(r"((?:.*[^0-9])?)([0-9]{1,7})")
_RANGE = re.compile(r"\{([0-9]{1,7})\.\.([0-9]{1,7})\}")


def written_out(ids: Iterable[str], path: str) -> tuple[str, ...]:
    """Return the ids with all ranges written out; ``path`` is where they stand in the scenario."""
    return tuple(each for written in ids for each in _written_out(written, path))


def _written_out(written: str, path: str) -> Iterator[str]:
    match = _RANGE.search(written)
    if match is None:
        yield written
        return
    first, last = int(match[1]), int(match[2])
    if not first <= last < first + MOST:
        fail(path, f"{match[0]} is no range of at most {MOST} numbers")
    for number in range(first, last + 1):
        yield f"{written[: match.start()]}{number:0{len(match[1])}d}{written[match.end() :]}"


def folded(ids: Iterable[str]) -> tuple[str, ...]:
    """Put ranges in the place of ids that differ by a number; they stand for the same ids, in some order."""
    numbered = {each: _NUMBERED.fullmatch(each) for each in ids}
    runs: dict[str, list[list[str]]] = {}
    for match in sorted((match for match in numbered.values() if match), key=_place):
        of_text = runs.setdefault(match[1], [])
        if of_text and match[2] == _next(of_text[-1]):
            of_text[-1].append(match[2])
        else:
            of_text.append([match[2]])
    alone = (each for each, match in numbered.items() if match is None)
    return (
        *alone,
        *(each for text, of_text in runs.items() for run in of_text for each in _written(text, run)),
    )


def _place(match: re.Match[str]) -> tuple[str, int, int]:
    return match[1], int(match[2]), len(match[2])


def _next(run: list[str]) -> str:
    return f"{int(run[-1]) + 1:0{len(run[0])}d}"


def _written(text: str, run: list[str]) -> Iterator[str]:
    if len(run) >= FEWEST:
        yield f"{text}{{{run[0]}..{run[-1]}}}"
    else:
        yield from (f"{text}{number}" for number in run)


_NUMBER = re.compile(r"\{n(?:\+(\d+))?\}")
_REFERENCE = re.compile(r"\{((?:gpu|amd):[^{}]*)\}")


def expand(raw: Scenario) -> Scenario:
    """Return the scenario with every shorthand written out.

    Raises ScenarioError with the path of one that means nothing.
    """
    writer = _Writer(raw, tuple(_gpus(raw)), tuple(_amd(raw)), set(_given_pids(raw)))
    return replace(
        raw,
        gpus=writer.gpus,
        amd=writer.amd,
        offers=tuple(writer.offers(raw.offers)),
        pods=tuple(writer.pods(raw.pods)),
        host_processes=tuple(writer.host_processes(raw.host_processes)),
        faults=tuple(writer.fault(fault, f"faults[{place}]") for place, fault in enumerate(raw.faults)),
    )


def _gpus(raw: Scenario) -> Iterator[Gpu]:
    index = 0
    for place, template in enumerate(raw.gpus):
        for copy in _copies(template, f"gpus[{place}]"):
            yield complete_gpu(raw.name, copy, index, f"gpus[{place}].mig")
            index += 1


def _amd(raw: Scenario) -> Iterator[AmdGpu]:
    copies = (copy for place, template in enumerate(raw.amd) for copy in _copies(template, f"amd[{place}]"))
    for index, copy in enumerate(copies):
        yield amd_gpus.complete(raw.name, copy, index)


def _given_pids(raw: Scenario) -> Iterator[int]:
    added = (fault.pod for fault in raw.faults if isinstance(fault, PodAdd))
    for pod in (*raw.pods, *added):
        yield from (process.pid for container in pod.containers for process in container.processes)
    yield from (process.pid for process in raw.host_processes)


def _copies(template: Any, path: str) -> Iterator[Any]:
    if template.count < 1:
        fail(f"{path}.count", "must be at least 1")
    for number in range(template.count):
        yield replace(map_strings(partial(_numbered, number), template), count=1)


def _numbered(number: int, text: str) -> str:
    return _NUMBER.sub(lambda match: str(number + int(match[1] or 0)), text)


class _Writer:
    """Writes out whatever refers to the GPUs of one scenario."""

    def __init__(
        self, raw: Scenario, gpus: tuple[Gpu, ...], amd: tuple[AmdGpu, ...], taken_pids: set[int]
    ) -> None:
        self.amd = amd
        self._taken_pids = taken_pids
        self._scenario, self._node = raw.name, raw.node.name
        self._known = {f"gpu:{index}": gpu.uuid for index, gpu in enumerate(gpus)}
        self._known |= dict(amd_gpus.references(amd))
        for index, gpu in enumerate(gpus):
            for place, instance in enumerate(gpu.mig.instances if gpu.mig else ()):
                self._known[f"gpu:{index}/mig:{place}"] = instance.uuid
        self.gpus = tuple(self._referred(gpu, f"gpus[{place}]") for place, gpu in enumerate(gpus))

    def offers(self, offers: tuple[Offer, ...]) -> Iterator[Offer]:
        for place, offer in enumerate(offers):
            path = f"offers[{place}]"
            if bool(offer.of) == bool(offer.ids):
                fail(path, 'must either list ids or say "of": "gpus", "mig" or "amd"')
            written = (*offered(offer, self.gpus), *amd_gpus.offered(offer, self.amd))
            pairs = written or [(offer.resource, key) for key in written_out(offer.ids, f"{path}.ids")]
            for resource in dict.fromkeys(resource for resource, _ in pairs):
                ids = tuple(device_id for other, device_id in pairs if other == resource)
                yield Offer(resource=resource, ids=self._referred(ids, f"{path}.ids"))

    def pods(self, pods: tuple[Pod, ...]) -> Iterator[Pod]:
        for place, template in enumerate(pods):
            for copy in _copies(template, f"pods[{place}]"):
                yield self._pod(copy, f"pods[{place}]")

    def host_processes(self, processes: tuple[Process, ...]) -> Iterator[Process]:
        for place, process in enumerate(processes):
            path = f"host_processes[{place}]"
            if not process.device:
                fail(f"{path}.device", "must name a device: no container tells which")
            cgroup = process.cgroup or f"/system.slice/{process.command.split(' ')[0].lower()}.service"
            pid = self._pid(process, self._scenario, path)
            yield replace(self._referred(process, path), pid=pid, cgroup=cgroup)

    def fault(self, fault: Fault, path: str) -> Fault:
        if isinstance(fault, PodAdd):
            if fault.pod.count != 1:
                fail(f"{path}.pod.count", "must be 1: a fault adds one pod")
            return replace(fault, pod=self._pod(fault.pod, f"{path}.pod", path))
        if isinstance(fault, MigLayout):
            return self._layout(fault, path)
        if isinstance(fault, NvmlFault):
            return replace(fault, device=self._referred(fault.device, f"{path}.device"))
        if isinstance(fault, Unhealthy):
            ids = (self._referred(each, f"{path}.devices") for each in fault.devices)
            return replace(fault, devices=tuple(ids))
        return fault

    def _layout(self, fault: MigLayout, path: str) -> MigLayout:
        if not 0 <= fault.gpu < len(self.gpus):
            fail(f"{path}.gpu", f"must be the index of one of the {len(self.gpus)} GPUs")
        instances = complete_instances(self.gpus[fault.gpu].uuid, fault.instances, path)
        return replace(fault, instances=instances)

    def _pod(self, pod: Pod, path: str, *salt: str) -> Pod:
        pod = self._referred(pod, path)
        place = (self._scenario, pod.namespace, pod.name, *salt)
        containers = (
            self._container(container, f"{path}.containers[{index}]", place)
            for index, container in enumerate(pod.containers)
        )
        return replace(pod, uid=pod.uid or make_uuid(*place), containers=tuple(containers))

    def _container(self, container: Container, path: str, place: tuple[str, ...]) -> Container:
        own = (*place, container.name)
        processes = (
            replace(
                process,
                pid=self._pid(process, *own, index),
                device=process.device or self._only_device(container, f"{path}.processes[{index}]"),
            )
            for index, process in enumerate(container.processes)
        )
        identity = container.container_id or make_hex(*own)
        devices = {
            resource: written_out(ids, f"{path}.devices") for resource, ids in container.devices.items()
        }
        claims = tuple(self._claim(claim, place[1]) for claim in container.claims)
        return replace(
            container,
            container_id=identity,
            devices=devices,
            claims=claims,
            processes=tuple(processes),
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
        amd = amd_gpus.gpus_of(self.amd)
        held = {resolve(self.gpus, each) or amd_gpus.resolve(amd, each) for each in ids} - {None}
        if len(held) != 1:
            fail(f"{path}.device", f"must be given: the container holds {len(held)} devices of this node")
        key = held.pop()
        return key.mig_uuid or key.uuid if key else ""

    def _referred(self, value: Any, path: str) -> Any:
        """Put uuids in the place of references, in every string of the record."""
        return map_strings(lambda text: _REFERENCE.sub(lambda match: self._uuid(match[1], path), text), value)

    def _uuid(self, reference: str, path: str) -> str:
        if reference not in self._known:
            fail(path, f"{{{reference}}} is no device; there are {', '.join(self._known) or 'none'}")
        return self._known[reference]
