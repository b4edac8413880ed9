"""Reading one pod, as ``is`` shows it.

Needs the series of the set ``core``, and no recording rules; those of advice are used if they are there.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from exporter.advice import advise
from exporter.advice.model import Advice
from exporter.concurrency import in_thread
from exporter.fleet.advice_windows import AdviceWindows, advice_windows
from exporter.fleet.gpus import Gpu, gpu_questions, read_gpus
from exporter.fleet.model import Node, Target
from exporter.fleet.pages.links import Links, NodeUrl
from exporter.fleet.pod_before import read_before
from exporter.fleet.pod_model import PodDevice, PodFound, Xid
from exporter.fleet.prometheus import Prometheus, PrometheusError, Sample
from exporter.fleet.queries import Answers, HolderKey, ask, holder_key, selector, target_of
from exporter.fleet.targets import query_targets, read_clock
from exporter.model import ContainerRow, Memory, Totals

_INFO = "gpuslice_container_info"
_NAMES = "names of its containers"
# Series of a container by the field of its totals.
_TOTALS: Mapping[str, str] = {
    "memory_peak": "memory_peak_bytes",
    "held_seconds": "held_seconds_total",
    "entitled_gpu_seconds": "entitled_gpu_seconds_total",
    "measured_gpu_seconds": "compute_measured_gpu_seconds_total",
    "used_gpu_seconds": "used_gpu_seconds_total",
    "energy_joules": "energy_joules_total",
}
_MEMORY = ("total", "used", "free")
_CODE = re.compile("[0-9]{1,6}")
_PARTS, _XIDS, _XID_COUNTS = "MIG devices", "XID errors", "numbers of XID errors"


async def read_pod(
    prometheus: Prometheus, namespace: str, pod: str, *, idle_after: float, node_url: NodeUrl
) -> PodFound:
    """Return what is known of a pod.

    Raises PrometheusError if nothing can be read, and MissingSeriesError if there are no nodes, or no records
    of any holder.
    """
    at = await read_clock(prometheus)
    nodes = (await query_targets(prometheus, at, need_records=False)).nodes
    links = Links(nodes, node_url)
    found = PodFound(at=at, namespace=namespace, pod=pod, silent=tuple(node for node in nodes if node.silent))
    info = f"{_INFO}{_chosen(found)}"
    answers = await ask(prometheus, {_NAMES: info}, at)
    if why := answers.problems.get(_NAMES):
        raise PrometheusError(f"{_NAMES}: {why}")
    answering = {node.target: node for node in nodes if not node.silent}
    names = [sample for sample in answers.samples(_NAMES) if target_of(sample) in answering]
    if not names:
        return await read_before(prometheus, found, info, nodes, links)
    its_nodes = [answering[target] for target in sorted({target_of(sample) for sample in names})]
    return await _read_devices(_Context(prometheus, found, links, idle_after), names, its_nodes)


def _chosen(found: PodFound) -> str:
    return f"{{namespace={json.dumps(found.namespace)}, pod={json.dumps(found.pod)}}}"


class _Context(NamedTuple):
    """What the reading of a pod needs."""

    prometheus: Prometheus
    found: PodFound
    links: Links
    idle_after: float  # seconds


async def _read_devices(context: _Context, names: Sequence[Sample], nodes: Sequence[Node]) -> PodFound:
    """Return the devices of a pod, by the series ``names`` of its containers on these nodes."""
    prometheus, found, links, idle_after = context
    uuids = {sample.text("uuid") for sample in names}
    of_nodes = await ask(prometheus, gpu_questions({node.key.name for node in nodes}), found.at)
    of_pod = await ask(prometheus, _questions(_chosen(found), uuids), found.at)
    windows = await advice_windows(prometheus, found.at, found.namespace)

    def put_together() -> PodFound:
        gpus = read_gpus(of_nodes, found.at, idle_after) or {}
        reader = _PodReader(found, names, of_pod, links)
        devices = tuple(
            device
            for node in nodes
            for gpu in gpus.get(node.target, ())
            for device in reader.devices(node, gpu)
        )
        return replace(
            found,
            devices=devices,
            advices=tuple(_advices(windows, devices)),
            problems=tuple(_problems((of_nodes, of_pod), windows, devices)),
        )

    return await in_thread(put_together)


def _advices(windows: AdviceWindows, devices: Sequence[PodDevice]) -> Iterator[Advice]:
    mine = {(device.row.holder, device.row.device) for device in devices}
    for window in windows.windows:
        if any((use.holder, use.device) in mine for use in window.uses):
            yield advise(window)


def _problems(
    answers: Iterable[Answers], windows: AdviceWindows, devices: Sequence[PodDevice]
) -> Iterator[tuple[str, str]]:
    for each in answers:
        yield from each.problems.items()
    for problem in windows.problems:
        yield "advice", problem
    if not devices:
        yield "its devices", "their series are not those of a GPU in this Prometheus"


def _questions(chosen: str, uuids: Iterable[str]) -> dict[str, str]:
    """Return the queries for more about the pod, and about the devices that it has."""

    def of_gpus(series: str) -> str:
        return selector(f"gpuslice_{series}", "uuid", uuids)

    return {
        **{field: f"gpuslice_container_{series}{chosen}" for field, series in _TOTALS.items()},
        **{
            field: f"{of_gpus(f'gpu_memory_{field}_bytes')} or {of_gpus(f'mig_memory_{field}_bytes')}"
            for field in _MEMORY
        },
        _PARTS: of_gpus("mig_info"),
        _XIDS: of_gpus("gpu_xid_last_timestamp_seconds"),
        _XID_COUNTS: of_gpus("gpu_xid_errors_total"),
    }


class _PodReader:
    """Joins the series of the pod with the GPUs of its nodes."""

    def __init__(self, found: PodFound, names: Iterable[Sample], answers: Answers, links: Links) -> None:
        self._found = found
        self._links = links
        self._answers = answers
        self._infos = {(target_of(sample), holder_key(sample)): sample for sample in names}
        self._values = {
            name: {(target_of(sample), holder_key(sample)): sample.value for sample in answers.samples(name)}
            for name in (*_TOTALS, *_MEMORY)
        }

    def devices(self, node: Node, gpu: Gpu) -> Iterator[PodDevice]:
        """Yield the containers of the pod on a GPU."""
        for holder in gpu.holders or ():
            row = holder.row
            if row.holder[:2] != (self._found.namespace, self._found.pod):
                continue
            key = HolderKey(node.target.cluster, node.key.name, *row.device, *row.holder)
            info = self._infos.get((node.target, key))
            totals = self._totals(node.target, key, row)
            yield PodDevice(
                node=node,
                url=self._links.holder(node.key, row.holder),
                gpu=gpu,
                holder=holder,
                row=replace(row, totals=totals, model=info.text("model") if info else ""),
                others=tuple(
                    other
                    for other in gpu.holders or ()
                    if other is not holder and other.row.device == row.device
                ),
                pod_uid=info.text("pod_uid") if info else "",
                profile=self._profile(node.target, row.device.mig_uuid),
                memory=self._memory(node.target, key),
                xids=self._xids(node.target, row, totals),
            )

    def _totals(self, target: Target, key: HolderKey, row: ContainerRow) -> Totals:
        values = {name: self._values[name].get((target, key)) for name in _TOTALS}
        peak, held = values.pop("memory_peak"), values["held_seconds"]
        used = values["used_gpu_seconds"]
        last_active = row.totals.last_active if row.totals is not None else None
        return Totals(
            # No series has the moment; what holds a slice has held it since then.
            first_seen=self._found.at - held if held is not None else last_active or self._found.at,
            memory_peak=None if peak is None else int(peak),
            last_active=last_active,
            seen_computing=row.totals is not None and row.totals.seen_computing,
            # No series leaves out the use while its entitlement was unknown, which is rare.
            measured_use_gpu_seconds=used if row.compute_entitled is not None else None,
            **values,
        )

    def _profile(self, target: Target, mig_uuid: str) -> str:
        parts = (sample for sample in self._answers.samples(_PARTS) if target_of(sample) == target)
        return next((part.text("profile") for part in parts if part.text("mig_uuid") == mig_uuid), "")

    def _memory(self, target: Target, key: HolderKey) -> Memory | None:
        device = target, HolderKey(*key[:4])
        sizes = {name: self._values[name].get(device) for name in _MEMORY}
        if None in sizes.values():
            return None
        return Memory(**{name: int(size) for name, size in sizes.items() if size is not None})

    def _xids(self, target: Target, row: ContainerRow, totals: Totals) -> tuple[Xid, ...] | None:
        def mine(name: str) -> list[Sample]:
            samples = self._answers.samples(name)
            return [
                sample
                for sample in samples
                if target_of(sample) == target and sample.text("uuid") == row.device.uuid
            ]

        if not mine(_XID_COUNTS):
            return None
        # An error without a MIG device may be of any of them.
        found = [
            Xid(sample.text("mig_uuid"), int(sample.text("xid")), sample.value)
            for sample in mine(_XIDS)
            if _CODE.fullmatch(sample.text("xid")) and sample.text("mig_uuid") in ("", row.device.mig_uuid)
        ]
        since = totals.first_seen
        return tuple(sorted((xid for xid in found if xid.at >= since), key=lambda xid: (-xid.at, xid.code)))
