"""The cluster, and nodes with their GPUs and holders, as JSON data.

Unknown values are null. An amount has its value and its completeness.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from exporter.fleet.amounts import Amount, Units
from exporter.fleet.gpus import Gpu, Holder
from exporter.fleet.model import Fleet, IdleHolder, Namespace, Node, NodeKey, NodeSums, SickGpu, in_order
from exporter.fleet.watch import Inspection


def fleet_json(fleet: Fleet) -> dict[str, Any]:
    """Return the cluster as JSON data."""
    none_idle = fleet.idle is not None and fleet.idle_holders == Amount(0, 1)
    idle = in_order("idle", fleet.idle or ())
    counted = fleet.idle_counted.value
    return {
        "timestamp": fleet.at,
        "window_seconds": fleet.window,
        "totals": {
            "nodes": len(fleet.nodes),
            "nodes_not_answering": len(fleet.silent),
            **_sums(fleet.total),
        },
        "nodes": [_node(node) for node in fleet.nodes],
        "namespaces": _listed(map(_namespace, fleet.namespaces or ()), whole=fleet.all_namespaces),
        "all_namespaces": fleet.all_namespaces,
        "only_namespaces": list(fleet.only) or None,
        "idle_holders": {
            "holders": None if counted is None else int(counted),
            "compute_held": fleet.idle_compute.value,
            "complete": fleet.idle_complete,
            "listed": _listed(map(_idle, idle), whole=none_idle),
        },
        "sick_gpus": _listed(map(_sick, fleet.sick), whole=fleet.all_sick),
        "all_sick": fleet.all_sick,
        "problems": _problems(fleet.problems),
    }


def inspection_json(inspection: Inspection, *, details: bool) -> dict[str, Any]:
    """Return nodes as JSON data, with their GPUs if these were asked for."""
    nodes = []
    for node, gpus in inspection.nodes:
        data = _node(node)
        if inspection.gpus or details:
            data["devices"] = None if gpus is None else [_gpu(gpu, details) for gpu in gpus]
        nodes.append(data)
    return {
        "timestamp": inspection.at,
        "only_namespaces": list(inspection.only) or None,
        "nodes": nodes,
        "problems": _problems(inspection.problems),
    }


def _listed(rows: Iterable[dict[str, Any]], *, whole: bool) -> list[dict[str, Any]] | None:
    """Return a list; None in place of an empty one that is not known to be all."""
    return list(rows) or ([] if whole else None)


def _problems(problems: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"question": name, "error": error} for name, error in problems]


def _sums(sums: NodeSums) -> dict[str, Any]:
    return {
        "gpus": sums.gpus.as_dict(),
        **_slices(sums.slices, sums.units),
        "memory_total_bytes": sums.memory_total.as_dict(),
        "memory_bytes": sums.memory.as_dict(),
        "compute_gpus": sums.compute.as_dict(),
    }


def _slices(slices: Units, units: Sequence[Units] | None) -> dict[str, Any]:
    return {
        "slices_held": slices.held.as_dict(),
        "slices_offered": slices.size.as_dict(),
        "units": None if units is None else [part.as_dict() for part in units],
    }


def _place(node: NodeKey) -> dict[str, Any]:
    return {"node": node.name, "cluster": node.cluster or None}


def _node(node: Node) -> dict[str, Any]:
    return {
        **_place(node.key),
        "job": node.target.job,
        "instance": node.target.instance,
        "answers": not node.silent,
        "reason": node.silent or None,
        "data_age_seconds": node.age,
        "models": None if node.models is None else dict(node.models),
        "sharing": None if node.sharing is None else list(node.sharing),
        "driver_released": node.released,
        **_sums(node),
    }


def _namespace(namespace: Namespace) -> dict[str, Any]:
    return {
        "namespace": namespace.name,
        "holders": namespace.holders,
        "all_holders": namespace.all_holders,
        "memory_bytes": namespace.memory.as_dict(),
        "compute_gpus": namespace.compute.as_dict(),
        "gpu_hours": namespace.hours.as_dict(),
    }


def _idle(idle: IdleHolder) -> dict[str, Any]:
    return {
        **_place(idle.node),
        "namespace": idle.holder.namespace,
        "pod": idle.holder.pod,
        "container": idle.holder.container or None,
        "uuid": idle.uuid,
        "mig_uuid": idle.mig_uuid or None,
        "gpu": idle.gpu or None,
        "resource": idle.resource or None,
        "quiet_seconds": idle.seconds,
        "memory_held_bytes": idle.memory_held,
        "memory_used_bytes": idle.memory_used,
        "compute_held_gpus": idle.compute_held,
    }


def _sick(gpu: SickGpu) -> dict[str, Any]:
    return {
        **_place(gpu.node),
        "uuid": gpu.uuid,
        "gpu": gpu.gpu or None,
        "model": gpu.model or None,
        "severity": gpu.severity,
        "reasons": list(gpu.reasons),
    }


def _gpu(gpu: Gpu, details: bool) -> dict[str, Any]:
    data: dict[str, Any] = {
        "uuid": gpu.uuid,
        "gpu": gpu.index or None,
        "model": gpu.model or None,
        "sharing": gpu.sharing or None,
        "up": gpu.up,
        "conditions": None if gpu.conditions is None else list(gpu.conditions),
        **_slices(gpu.slices, gpu.units),
        "memory_total_bytes": gpu.memory_total.as_dict(),
        "memory_held_bytes": gpu.memory_held.as_dict(),
        "memory_used_bytes": gpu.memory_used.as_dict(),
        "compute_held_gpus": gpu.compute_held.as_dict(),
        "compute_used_gpus": gpu.compute_used.as_dict(),
    }
    if details:
        data["holders"] = None if gpu.holders is None else [_holder(holder) for holder in gpu.holders]
        data["all_holders"] = gpu.all_holders
    return data


def _holder(holder: Holder) -> dict[str, Any]:
    row = holder.row
    return {
        "namespace": row.holder.namespace,
        "pod": row.holder.pod,
        "container": row.holder.container or None,
        "mig_uuid": row.device.mig_uuid or None,
        "resource": row.resource or None,
        "isolation": row.isolation or None,
        "slices": row.slices,
        "memory_entitled_bytes": row.memory_entitled,
        "memory_used_bytes": row.memory_used,
        "compute_entitled_ratio": row.compute_entitled,
        "compute_used_ratio": row.compute_used,
        # Only nodes with claims, or a kubelet that reports health, have these; else they are unknown.
        "claims": [claim._asdict() for claim in row.claims] or None,
        "health": row.health or None,
        "state": holder.judged.state,
        "other_states": list(holder.judged.also),
        "quiet_seconds": holder.judged.quiet_for,
    }
