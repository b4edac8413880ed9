"""The rows of one device: every container that holds it, uses it, or both."""

from collections import defaultdict
from operator import attrgetter

from exporter.attribution.meters import with_meters
from exporter.attribution.owners import Owned, owners
from exporter.attribution.processes import process_rows
from exporter.attribution.use import Device, Use, use_by_process, use_without_processes
from exporter.model import ContainerRef, ContainerRow, DeviceKey, Holding, Holdings, ProcessRow, Workloads
from exporter.sums import total


class DeviceJoin:
    """Joins one poll's holdings and processes, device by device.

    ``processes`` are those of the devices whose rows were made; none without a view of processes.
    """

    def __init__(self, holdings: Holdings, workloads: Workloads) -> None:
        self.holdings = holdings
        self.processes: list[ProcessRow] = []
        self._workloads = workloads
        self._uids = _uids_by_name(workloads)
        self._held: dict[DeviceKey, dict[ContainerRef, list[Holding]]] = {}
        for holding in holdings.holdings:
            of_device = self._held.setdefault(holding.device, defaultdict(list))
            of_device[holding.holder].append(holding)
        self._unresolved_pods = {(ref.namespace, ref.pod) for ref in holdings.unresolved_holders}

    def held(self, key: DeviceKey) -> dict[ContainerRef, list[Holding]]:
        """Return the holdings of one device by container."""
        return self._held.get(key, {})

    def rows(self, device: Device) -> list[ContainerRow]:
        """Return one row for each container on the device."""
        held = self.held(device.key)
        owned = Owned()
        if self._workloads.process_view and device.processes is not None:
            owned = owners(device.processes, held, self._workloads)
            uses = use_by_process(device, held, owned, self._workloads.pods is not None)
            self.processes += process_rows(device, owned, self._workloads)
        else:
            uses = use_without_processes(device, held)
        used = device.memory.used if device.memory is not None else None
        return [
            self._row(device, ref, use, owned.pod_uids.get(ref))
            for ref, use in with_meters(uses, held, used).items()
        ]

    def _row(self, device: Device, ref: ContainerRef, use: Use, uid: str | None) -> ContainerRow:
        # What counts the slices stands first.
        held = sorted(self.held(device.key).get(ref, []), key=attrgetter("beside"))
        return ContainerRow(
            holder=ref,
            device=device.key,
            resource=",".join(dict.fromkeys(holding.resource for holding in held)),
            sharing=next((holding.sharing for holding in held if holding.sharing), device.sharing.sharing),
            isolation=next(
                (holding.isolation for holding in held if holding.sharing), device.sharing.isolation
            ),
            pod_uid=uid or self._uids.get((ref.namespace, ref.pod), ""),
            model=device.model,
            slices=self._slices(device.key, ref, held),
            memory_entitled=total([holding.memory_entitled for holding in held]) if held else None,
            compute_entitled=total([holding.compute_entitled for holding in held]) if held else None,
            memory_used=use.memory,
            compute_used=use.compute,
            processes=use.processes,
            memory_source=use.memory_source,
            compute_source=use.compute_source,
        )

    def _slices(self, key: DeviceKey, ref: ContainerRef, held: list[Holding]) -> int | None:
        """Rule 7: 0 slices says that nothing is held here, which must be known, not just unseen.

        What is held in several units counts in the first.

        The kubelet lists neither init nor ephemeral containers: beside a holder of the same pod, a
        container may well hold the device.
        """
        if held:
            return sum(holding.slices for holding in held if not holding.beside)
        pod = (ref.namespace, ref.pod)
        pod_holds = any(pod == (other.namespace, other.pod) for other in self.held(key))
        unsure = not self.holdings.known or pod in self._unresolved_pods or pod_holds
        unsure = unsure or key in self.holdings.unplaced
        return None if unsure else 0


def _uids_by_name(workloads: Workloads) -> dict[tuple[str, str], str]:
    """Map names to uids; a name that two pods have had tells no uid."""
    uids: dict[tuple[str, str], set[str]] = defaultdict(set)
    for pod in (workloads.pods or {}).values():
        uids[pod.namespace, pod.name].add(pod.uid)
    return {name: next(iter(known)) for name, known in uids.items() if len(known) == 1}
