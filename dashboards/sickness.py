"""Queries of unhealthy GPUs, with the same signs as the page of the fleet."""

from dashboards.presence import UNNAMED, unnamed
from dashboards.promql import CLUSTER, DEVICE, TARGET, node_names
from exporter.model.xids import XIDS

RECENT_SECONDS = 3600
"""How long an XID counts."""
# XIDs caused by applications do not count. One that needs a reset or a reboot is also a condition, unless the
# exporter that reported it has ended.
_HARMLESS = "|".join(str(xid.code) for xid in XIDS.values() if xid.kind in {"notice", "application"})
_NODES = node_names(CLUSTER)
_UNNAMED = f"max by (cluster, node) (({unnamed(CLUSTER)}) * on ({TARGET}) group_left (node) {_NODES}) > 0"


def reasons() -> str:
    """Return 1 for each unhealthy GPU, by DEVICE and ``reason``."""
    conditions = _gpu("condition", 'condition!="driver_released"')
    signs = _labelled(f"{conditions} == 1", "$1", "condition")
    xids = _labelled(*_xids())
    # The exporter that reported an XID may have ended: use the target that reports the GPU now.
    telling = f"topk by (cluster, uuid) (1, {_gpu('up')} * 0 + 1)"
    found = f"{signs} or ({xids}) * on (cluster, uuid) group_left (job, instance) {telling}"
    return f"max by ({DEVICE}, reason) ({found}) * 0 + 1"


def unnamed_rows() -> str:
    """Return the number of GPUs without a name, by node, with ``reason``."""
    return _labelled(_UNNAMED, UNNAMED)


def count() -> str:
    """Return the number of unhealthy GPUs; 0 if there are GPUs and all are healthy."""
    found = f"sum(group by (cluster, uuid) ({reasons()}) or {_UNNAMED})"
    return f"{found} or count(gpuslice_gpu_up{{{CLUSTER}}}) * 0"


def _labelled(rows: str, reason: str, source: str = "") -> str:
    """Return rows with the reason; ``$1`` in it is the value of the label ``source``."""
    return f'label_replace({rows}, "reason", "{reason}", "{source}", "(.*)")'


def _gpu(series: str, *matchers: str) -> str:
    return f"gpuslice_gpu_{series}{{{', '.join((CLUSTER, *matchers))}}}"


def _xids() -> tuple[str, str, str]:
    matcher = f'xid!~"{_HARMLESS}"'
    last = f"last_over_time({_gpu('xid_last_timestamp_seconds', matcher)}[{RECENT_SECONDS}s])"
    recent = f"(max by (cluster, uuid, xid) ({last}) > time() - {RECENT_SECONDS})"
    return recent, "XID $1 in the last hour", "xid"
