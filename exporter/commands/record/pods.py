"""The pods of a recording, and the files of sharing systems about them, with masked names."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from exporter import model
from exporter.commands.record.checkpoints import CLAIM_SYSTEMS, checkpoints, masked_request
from exporter.commands.record.mask import Mask
from exporter.demo.scenario import pods
from exporter.demo.scenario.expand import folded
from exporter.demo.scenario.pods import Claim, Share
from exporter.demo.sharing_files import KEEPERS
from exporter.model import ClaimedDevice, ContainerFile, ContainerRef, ContainerSpec, PodIdentity, SystemFiles
from exporter.model.kubelet import worst_health
from exporter.model.poll_result import PollResult
from exporter.sharing import SYSTEMS, made
from exporter.sharing.base.holdings import holdings_from
from exporter.sharing.base.resolve import resolve
from exporter.sharing.base.view import NodeFacts, View
from exporter.sharing.cgpu import Cgpu
from exporter.sharing.dra.cdi import claim_uid, is_health_of
from exporter.sharing.nvidia_plugin import Nvidia, is_named

Files = Mapping[str, SystemFiles]
NOTHING = model.Allocations(allocated=(), offered=None, api_version="", read_at=0.0)
DRIVERS = frozenset(system.driver for system in CLAIM_SYSTEMS)
GPU_SPELLINGS = ("GPU-", "MIG-", "nvidia")
ALL = 100
Processes = Mapping[ContainerRef | None, Sequence[pods.Process]]


def kept(files: Files, mask: Mask) -> dict[str, tuple[ContainerFile, ...]]:
    """Return the files of containers, by system."""
    return {
        system: tuple(_container(file, mask) for file in files[system].containers)
        for system in KEEPERS
        if system in files and files[system].containers
    }


def other_files(files: Files, mask: Mask) -> dict[str, str]:
    """Return the other files of sharing systems, as texts by path."""
    nothing = SystemFiles()
    texts = {
        f"run/nvidia/mps/{mask.text(resource)}/.started": ""
        for resource in files.get(Nvidia.name, nothing).names
    }
    texts |= {f"proc/cgpu_km/{name}": text for name, text in files.get(Cgpu.name, nothing).names.items()}
    return texts | dict(checkpoints(files, mask))


def _container(file: ContainerFile, mask: Mask) -> ContainerFile:
    return replace(
        file,
        pod_uid=mask.uid(file.pod_uid),
        container=mask.container(file.container),
        container_id=mask.container_id(file.container_id),
        claim_uid=mask.uid(file.claim_uid),
        devices=tuple(replace(use, device=mask.text(use.device)) for use in file.devices),
    )


class NodeHoldings:
    """The holdings of one poll, as the sharing systems resolve them."""

    def __init__(self, evidence: PollResult, facts: NodeFacts) -> None:
        self.view = View(evidence.gpus, evidence.allocations or NOTHING, facts)
        systems = list(made(self.view))
        resolved = resolve(self.view, systems)
        # Containers with shares that no device id of NVIDIA's plugin describes.
        self.with_shares = {holder for holder, _ in resolved.settled}
        self.with_shares |= {grant.holder for _, _, grant in resolved.grants}
        for (_, _, holder), system in resolved.system_of.items():
            if not isinstance(system, Nvidia):
                self.with_shares.add(holder)
        # Resources that a sharing system knows.
        known = (*resolved.settled, *resolved.owners)
        self.resources = {resource for _, resource in known} | resolved.unresolved.keys()
        # DRA drivers whose claims are for GPUs, or may be.
        self.drivers = DRIVERS | resolved.unknown_drivers
        self._patterns = facts.patterns
        self.held: dict[ContainerRef, list[model.Holding]] = defaultdict(list)
        for holding in holdings_from(resolved, self.view, systems).holdings:
            self.held[holding.holder].append(holding)

    def concerns_gpus(self, resource: str, device_id: str = "") -> bool:
        """Return False for resources of other device plugins, which are private and not recorded."""
        known = resource in self.resources or is_named(resource, self._patterns)
        return known or device_id.startswith(GPU_SPELLINGS)


def notes(texts: Mapping[str, str], masked: Callable[[str], str]) -> dict[str, str]:
    """Return the annotations or labels that a sharing system reads; ``masked`` masks each text."""
    kept_texts: dict[str, str] = {}
    for key, text in texts.items():
        match = next((match for system in SYSTEMS if (match := system.reads(key)) is not None), None)
        if match is not None:
            begin, end = match.span("name") if match.groupdict().get("name") else (len(key), len(key))
            kept_texts[key[:begin] + masked(key[begin:end]) + key[end:]] = masked(text)
    return kept_texts


class Pods:
    """The pods of one poll, for a scenario."""

    def __init__(self, holdings: NodeHoldings, processes: Processes, mask: Mask, node: str) -> None:
        self._holdings, self._processes, self._mask, self._node = holdings, processes, mask, node
        self._pods = {(pod.namespace, pod.name): pod for pod in (holdings.view.facts.pods or {}).values()}
        self._devices: dict[ContainerRef, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        self._claims: dict[ContainerRef, list[ClaimedDevice]] = defaultdict(list)
        for held in holdings.view.allocations.allocated:
            if holdings.concerns_gpus(held.resource, held.device_id):
                self._devices[held.holder][held.resource].append(mask.text(held.device_id))
        for claim in holdings.view.allocations.claims:
            if claim.driver in holdings.drivers:
                self._claims[claim.holder].append(claim)

    def recorded(self) -> Iterator[pods.Pod]:
        """Yield the pods that hold or use GPUs, or have annotations of a sharing system."""
        held = (*self._devices, *self._claims, *self._processes)
        containers: dict[tuple[str, str], set[str]] = defaultdict(set)
        for ref in held:
            if ref is not None:
                containers[ref.namespace, ref.pod].add(ref.container)
        for name, pod in self._pods.items():
            details = pod.details
            noted = details is not None and notes({**details.labels, **details.annotations}, str)
            if name in containers or noted:
                # All containers of the pod decide whether a process can be attributed to one of them.
                containers[name] |= set(pod.containers)
        for name in sorted(containers):
            yield self._pod(name, containers[name])

    def _pod(self, name: tuple[str, str], containers: Collection[str]) -> pods.Pod:
        mask, pod = self._mask, self._pods.get(name)
        details = pod.details if pod is not None else None
        specs = {spec.name: spec for spec in (details.containers if details is not None else ())}
        for other in sorted(containers):
            specs.setdefault(other, ContainerSpec(name=other))
        recorded = pods.Pod(
            namespace=mask.name("namespace", name[0]),
            name=mask.name("pod", "/".join(name)),
            uid=mask.uid(pod.uid if pod is not None else ""),
            containers=tuple(self._container(name, spec, pod) for spec in specs.values()),
        )
        if details is None:
            return recorded

        def masked(text: str) -> str:
            return mask.text(text, specs, self._node)

        return replace(
            recorded,
            phase=details.phase or recorded.phase,
            labels=notes(details.labels, masked),
            annotations=notes(details.annotations, masked),
        )

    def _container(
        self, pod: tuple[str, str], spec: ContainerSpec, identity: PodIdentity | None
    ) -> pods.Container:
        ref = ContainerRef(*pod, spec.name)
        ids = [key for key, name in identity.container_ids.items() if name == spec.name] if identity else []
        return pods.Container(
            name=self._mask.container(spec.name),
            container_id=self._mask.container_id(ids[-1] if ids else ""),
            devices={resource: folded(ids) for resource, ids in self._devices.get(ref, {}).items()},
            claims=tuple(self._claim(claim) for claim in self._claims.get(ref, ())),
            requests=self._requests(ref),
            shares=tuple(self._shares(ref)) if ref in self._holdings.with_shares else None,
            init=spec.init,
            limits={
                name: amount
                for name, amount in spec.limits.items()
                if self._holdings.concerns_gpus(name) or any(system.reads(name) for system in SYSTEMS)
            },
            health={
                self._mask.text(entry.device_id): entry.health
                for entry in self._holdings.view.health(ref)
                if entry.resource in self._devices.get(ref, {})
            },
            processes=tuple(self._processes.get(ref, ())),
        )

    def _claim(self, claim: ClaimedDevice) -> Claim:
        mask = self._mask
        return Claim(
            driver=claim.driver,
            device=mask.text(claim.device),
            name=mask.name("claim", f"{claim.claim_namespace}/{claim.claim}"),
            namespace=mask.name("namespace", claim.claim_namespace),
            uid=mask.uid(claim_uid(claim)),
            pool=mask.name("node", claim.pool),
            share_id=mask.uid(claim.share_id),
            health=worst_health(
                entry.health
                for entry in self._holdings.view.health(claim.holder)
                if is_health_of(claim, entry.device_id)
            ),
        )

    def _requests(self, ref: ContainerRef) -> Mapping[str, tuple[str, ...]]:
        """Return the requests that a container names, by claim."""
        details = self._holdings.view.details(ref)
        named: dict[str, list[str]] = defaultdict(list)
        for of, claim, request in details.requests if details is not None else ():
            if of == ref.container:
                name = self._mask.name("claim", f"{ref.namespace}/{claim}")
                named[name].append(masked_request(request, self._mask))
        return {claim: tuple(requests) for claim, requests in named.items()}

    def _shares(self, ref: ContainerRef) -> Iterable[Share]:
        """Yield the share that a container has of each device, summed over its resources."""
        by_device: dict[model.DeviceKey, list[model.Holding]] = defaultdict(list)
        for held in self._holdings.held.get(ref, ()):
            by_device[held.device].append(held)
        for device, holdings in by_device.items():
            yield Share(
                device=self._mask.text(device.mig_uuid or device.uuid, (), self._node),
                slices=sum(held.slices for held in holdings if not held.counted_elsewhere),
                memory=sum(held.memory_entitled or 0 for held in holdings),
                cores=round(sum(held.compute_entitled or 0 for held in holdings) * ALL),
            )
