"""Queries of unhealthy GPUs, with the same signs as the page of the fleet."""

from collections.abc import Iterator

from dashboards.presence import UNNAMED, unnamed
from dashboards.promql import CLUSTER, DEVICE, TARGET, node_names
from exporter.model.xids import CLASSES, XIDS

RECENT_SECONDS = 3600
"""How long an XID counts."""
# XIDs caused by applications do not count.
_HARMLESS = frozenset({"notice", "application"})
_NODES = node_names(CLUSTER)
_UNNAMED = f"max by (cluster, node) (({unnamed(CLUSTER)}) * on ({TARGET}) group_left (node) {_NODES}) > 0"


def reasons() -> str:
    """Return 1 for each unhealthy GPU, by DEVICE and ``reason``."""
    signs, xids = (" or ".join(_labelled(*sign) for sign in each) for each in (_signs(), _xids()))
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


def _signs() -> Iterator[tuple[str, str] | tuple[str, str, str]]:
    released = f"gpuslice_driver_released{{{CLUSTER}}} == 1"
    yield f"({_gpu('up')} == 0 unless on ({TARGET}) {released})", "does not answer"
    action = _gpu("recovery_action", 'action!="none"')
    yield f"{action} == 1", "needs a recovery: $1", "action"
    yield f"{_gpu('row_remap_failure')} == 1", "no spare memory left: replace the board"
    errors = _gpu("ecc_errors_total", 'severity="uncorrected"', 'scope="volatile"')
    yield f"{errors} > 0", "uncorrected memory errors since the driver was loaded"
    yield f"{_gpu('row_remap_pending')} == 1", "needs a reset to remap a memory row"
    yield f"{_gpu('retired_pages_pending')} == 1", "needs a reboot to retire a memory page"
    brake = _gpu("clock_event_active", 'reason=~"hardware_thermal|power_brake"')
    yield f"{brake} == 1", "slowed down by its hardware: $1", "reason"


def _xids() -> Iterator[tuple[str, str, str]]:
    for kind in CLASSES:
        if kind in _HARMLESS:
            continue
        # Codes that are not in the catalogue are unknown too.
        matcher = (
            f'xid=~"{_codes(kind)}"' if kind != "unknown" else f'xid!~"{_codes(*CLASSES.keys() - {kind})}"'
        )
        last = f"last_over_time({_gpu('xid_last_timestamp_seconds', matcher)}[{RECENT_SECONDS}s])"
        recent = f"(max by (cluster, uuid, xid) ({last}) > time() - {RECENT_SECONDS})"
        yield recent, f"XID $1 in the last hour ({kind})", "xid"


def _codes(*kinds: str) -> str:
    return "|".join(str(xid.code) for xid in XIDS.values() if xid.kind in kinds)
