"""One pod of the cluster as JSON data."""

from typing import Any

from exporter.fleet.json_data import holder_json
from exporter.fleet.pod_model import PodBefore, PodDevice, PodFound, Xid
from exporter.fleet.pod_text import answers_of
from exporter.formats.advice import advice_document
from exporter.model.xids import explain

_TOTALS = (
    "held_seconds",
    "entitled_gpu_seconds",
    "measured_gpu_seconds",
    "used_gpu_seconds",
    "energy_joules",
)


def pod_json(found: PodFound, price: float | None = None) -> dict[str, Any]:
    """Return what is known of a pod as JSON data; unknown values are null. ``price`` is of a GPU-hour."""
    return {
        "timestamp": found.at,
        "namespace": found.namespace,
        "pod": found.pod,
        "state": found.state,
        "answers": [
            {
                "question": answer.question,
                "sentences": [{"about": where or None, "text": text} for where, text in answer.sentences],
            }
            for answer in answers_of(found)
        ],
        "devices": [_device_json(device) for device in found.devices],
        "before": [_before_json(device) for device in found.before],
        "advice": advice_document(found.advices, found.at, price)["advice"],
        "nodes_not_answering": [str(node.key) for node in found.silent],
        "problems": [{"question": name, "error": error} for name, error in found.problems],
    }


def _device_json(device: PodDevice) -> dict[str, Any]:
    row, gpu = device.row, device.gpu
    peak = None if row.totals is None else row.totals.memory_peak
    return {
        "node": device.node.key.name,
        "cluster": device.node.target.cluster or None,
        "url": device.url,
        "uuid": gpu.uuid,
        "gpu": gpu.index or None,
        "model": row.model or gpu.model or None,
        "sharing": row.sharing or gpu.sharing or None,
        "profile": device.profile or None,
        "up": gpu.up,
        "conditions": None if gpu.conditions is None else list(gpu.conditions),
        "pod_uid": device.pod_uid or None,
        **holder_json(device.holder),
        "memory_peak_bytes": peak,
        **{name: None if row.totals is None else getattr(row.totals, name) for name in _TOTALS},
        "last_active": None if row.totals is None else row.totals.last_active,
        "xids": None if device.xids is None else [_xid(xid) for xid in device.xids],
        "others": [holder_json(other) for other in device.others],
        "all_holders": gpu.all_holders,
    }


def _xid(xid: Xid) -> dict[str, Any]:
    meaning = explain(xid.code).meaning
    return {"xid": xid.code, "timestamp": xid.at, "mig_uuid": xid.mig_uuid or None, "meaning": meaning}


def _before_json(device: PodBefore) -> dict[str, Any]:
    return {
        "container": device.holder.container or None,
        "node": device.node.name,
        "cluster": device.node.cluster or None,
        "url": device.url or None,
        "uuid": device.uuid,
        "mig_uuid": device.mig_uuid or None,
        "gpu": device.gpu or None,
        "resource": device.resource or None,
        "model": device.model or None,
        "until": device.until,
        "ended": not device.why_unknown,
        "reason": device.why_unknown or None,
    }
