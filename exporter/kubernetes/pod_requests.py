"""The resources that a pod requests, summed as the scheduler does.

Init containers run one after the other before the others, except sidecars, which go on running: a pod needs
what its hungriest moment needs. See
https://kubernetes.io/docs/concepts/workloads/pods/init-containers/#resource-sharing-within-containers
and, for requests of the whole pod,
https://kubernetes.io/docs/tasks/configure-pod-container/assign-pod-level-resources/
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from exporter.kubernetes.collection import mapping, objects, text
from exporter.model.quantity import amount, billionths

Sizes: TypeAlias = dict[str, int]
"""Billionths by resource name."""
_PLAIN: Final = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})
_STATUSES: Final = ("containerStatuses", "initContainerStatuses")
_OF_PODS: Final = frozenset({"cpu", "memory"})


class Read(NamedTuple):
    """Amounts in the scheduler's units, and the resources whose amounts could not be read."""

    amounts: Mapping[str, int]
    unread: tuple[str, ...]


def read_amounts(parent: Mapping[str, Any], name: str) -> Read:
    """Return amounts such as the allocatable ones of a node."""
    reader = _Reader()
    return reader.read(reader.sizes(mapping(parent, name)))


def read_requests(pod: Mapping[str, Any], *, placed: bool) -> Read:
    """Return what a pod requests, and one pod.

    A placed pod may have been resized: it takes the most of what is requested, allocated and in effect.
    """
    reader = _Reader()
    spec, status = mapping(pod, "spec"), mapping(pod, "status")
    requested = reader.whole(spec, lambda container: mapping(container, "resources", "requests"))
    total = _of_placed(reader, spec, status, requested) if placed else requested
    own = reader.sizes(mapping(spec, "resources", "requests"))
    if placed and own and mapping(status, "resources"):
        own = _most(
            {} if _infeasible(status) else own,
            reader.sizes(mapping(status, "resources", "requests")),
            reader.sizes(mapping(status, "allocatedResources")),
        )
    total |= {name: size for name, size in own.items() if name in _OF_PODS or name.startswith("hugepages-")}
    total = _sum(total, reader.sizes(mapping(spec, "overhead")))
    total["pods"] = billionths("1")
    return reader.read(total)


def _of_placed(
    reader: "_Reader", spec: Mapping[str, Any], status: Mapping[str, Any], requested: Sizes
) -> Sizes:
    statuses = {text(each, "name"): each for name in _STATUSES for each in objects(status, name)}
    infeasible = _infeasible(status)

    def allocated(container: Mapping[str, Any]) -> Mapping[str, Any]:
        of_container = statuses.get(text(container, "name"), {})
        fallback = {} if infeasible else mapping(container, "resources", "requests")
        return mapping(of_container, "allocatedResources") or fallback

    def actual(container: Mapping[str, Any]) -> Mapping[str, Any]:
        of_container = statuses.get(text(container, "name"), {})
        return mapping(of_container, "resources", "requests") or allocated(container)

    whole = mapping(status, "allocatedResources"), mapping(status, "resources", "requests")
    if all(whole):
        parts = [reader.sizes(each) for each in whole]
    else:
        parts = [reader.whole(spec, each) for each in (allocated, actual)]
    return _most(*parts, {} if infeasible else requested)


def _infeasible(status: Mapping[str, Any]) -> bool:
    """Return whether the kubelet has refused to resize the pod to what it requests."""
    pending = (each for each in objects(status, "conditions") if text(each, "type") == "PodResizePending")
    return text(next(pending, {}), "reason") == "Infeasible"


class _Reader:
    """Reads sizes, and remembers which could not be read."""

    def __init__(self) -> None:
        self._unread: dict[str, None] = {}

    def read(self, sizes: Sizes) -> Read:
        """Return sizes in the scheduler's units."""
        return Read({name: amount(name, size) for name, size in sizes.items()}, tuple(self._unread))

    def sizes(self, quantities: Mapping[str, Any]) -> Sizes:
        """Return the sizes of quantities, as far as they can be read and the scheduler counts them."""
        return dict(self._sizes(quantities))

    def whole(self, spec: Mapping[str, Any], of: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> Sizes:
        """Return the most that the containers of a pod take together at any time."""
        running: Sizes = {}
        for container in objects(spec, "containers"):
            running = _sum(running, self.sizes(of(container)))
        sidecars: Sizes = {}
        most: Sizes = {}
        for container in objects(spec, "initContainers"):
            sizes = self.sizes(of(container))
            if text(container, "restartPolicy") == "Always":
                sidecars, running = _sum(sidecars, sizes), _sum(running, sizes)
                most = _most(most, sidecars)
            else:
                most = _most(most, _sum(sizes, sidecars))
        return _most(running, most)

    def _sizes(self, quantities: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
        for name, quantity in quantities.items():
            if name in _PLAIN or "/" in name or name.startswith(("hugepages-", "attachable-volumes-")):
                try:
                    yield name, billionths(quantity if isinstance(quantity, str) else "")
                except ValueError:
                    self._unread[name] = None


def _sum(*parts: Sizes) -> Sizes:
    total: Sizes = {}
    for part in parts:
        for name, size in part.items():
            total[name] = total.get(name, 0) + size
    return total


def _most(*parts: Sizes) -> Sizes:
    most: Sizes = {}
    for part in parts:
        for name, size in part.items():
            most[name] = max(most.get(name, size), size)
    return most
