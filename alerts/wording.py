"""Common pieces of annotations: templates of Prometheus."""

from collections.abc import Iterable

from alerts.records import SLICES, USED_GPUS
from exporter.model.xids import XIDS

_MODEL = (
    "{{ with query (printf `gpuslice_gpu_info{uuid=%q,model!=''}` $labels.uuid) }}"
    "{{ . | first | label `model` }}, {{ end }}"
)
# A GPU that was lost before it was read has only its UUID.
GPU = (
    f"GPU{{{{ with $labels.gpu }}}} {{{{ . }}}}{{{{ end }}}} ({_MODEL}{{{{ $labels.uuid }}}}) "
    "of node {{ $labels.node }}"
)
OF_DEVICE = (
    "{{ with $labels.gpu }}GPU {{ . }} ({{ $labels.uuid }}) of {{ else }}{{ with $labels.uuid }}"
    "{{ with query (printf `gpuslice_gpu_info{uuid=%q}` .) }}GPU {{ . | first | label `gpu` }} "
    "({{ $labels.uuid }}){{ else }}device {{ . }}{{ end }} of {{ end }}{{ end }}node {{ $labels.node }}"
)
"""A device as far as it is known, else its node."""
SHORT_GPU = "GPU {{ or $labels.gpu $labels.uuid }} of node {{ $labels.node }}"
ON_MIG = "{{ with $labels.mig_uuid }}, MIG device {{ . }},{{ end }}"
"""The MIG device of the alert, where it has one; follows GPU."""
HOLDER = "{{ $labels.namespace }}/{{ $labels.pod }}{{ with $labels.container }} ({{ . }}){{ end }}"
ROUNDED = "{{ $value | printf `%.0f` }}"
PERCENT = "{{ $value | humanizePercentage }}"


def _pods(rows: str, arguments: str) -> str:
    """Return the pods of some rows, sorted since a query gives them in any order: a template."""
    return (
        f"{{{{ range $i, $row := query (printf `group by (namespace, pod) ({rows})` {arguments}) "
        "| sortByLabel `pod` | sortByLabel `namespace` }}"
        "{{ if $i }}, {{ end }}{{ $row.Labels.namespace }}/{{ $row.Labels.pod }}"
        "{{ else }}no known pod{{ end }}"
    )


PODS = _pods("gpuslice_container_slices{uuid=%q}", "$labels.uuid")
"""The pods that hold or use the GPU of the alert."""

_ON_DEVICE = "gpuslice_container_slices{uuid=%[1]q,mig_uuid=~%[2]q}"
PODS_THEN = _pods(f"{_ON_DEVICE} @ %[3]f or {_ON_DEVICE}", '$labels.uuid (or $labels.mig_uuid ".*") $value')
"""The pods that held or used the GPU, or its MIG device, at the time that is the alert's value, or do now."""


def xid_meaning(codes: Iterable[int]) -> str:
    """Return a template of the meaning and the first action of the alert's XID, for these codes."""
    by_text: dict[str, list[int]] = {}
    for code in codes:
        xid = XIDS[code]
        # Which unit of a kind it is does not matter here.
        meaning = xid.meaning if xid.unit is None else xid.meaning.replace(f" {xid.unit} ", " ")
        by_text.setdefault(f"{meaning} {xid.action}", []).append(code)
    cases = (
        f"if eq $labels.xid {' '.join(f'`{code}`' for code in same_text)} }}}}{text}"
        for text, same_text in by_text.items()
    )
    return "{{ " + "{{ else ".join(cases) + "{{ end }}"


# Alerts on sharing.
PLACE = "{{ with $labels.mig_uuid }}MIG device {{ . }} of {{ end }}" + GPU

_BYTES = "humanize1024 }}B"
_SHARE = "humanizePercentage }}"
TIME = "{{ $value | humanizeDuration }}"
BYTES = "{{ $value | " + _BYTES

_ON_DEVICE = "uuid=%q,mig_uuid=%q"
_DEVICE = "$labels.uuid $labels.mig_uuid"
_IN_POD = "namespace=%q,pod=%q"
_POD = "$labels.namespace $labels.pod"


def bytes_of_row(record: str) -> str:
    """Return a template of a record of the alert's row, in bytes."""
    return _of_row(record, _BYTES)


def share_of_row(record: str) -> str:
    """Return a template of a record of the alert's row, as a percentage."""
    return _of_row(record, _SHARE)


_ROW = f"{_IN_POD},container=%q,{_ON_DEVICE}"
_OF_ROW = f"{_POD} $labels.container {_DEVICE}"


def _of_row(record: str, shown: str) -> str:
    return (
        f"{{{{ with query (printf `{record}{{{_ROW}}}` {_OF_ROW}) }}}}"
        "{{ . | first | value | " + shown + "{{ else }}an unknown part{{ end }}"
    )


def memory_peak() -> str:
    """Return a template of a sentence on the peak of memory of the alert's row, empty without its series."""
    peak = f"max(gpuslice_container_memory_peak_bytes{{{_ROW}}})"
    return (
        f"{{{{ with query (printf `{peak}` {_OF_ROW}) }}}} Its memory peak since it was first seen is "
        "{{ . | first | value | " + _BYTES + ".{{ end }}"
    )


def compute_p95(over: str) -> str:
    """Return a template of a sentence on the p95 of compute of the alert's row, empty if it is unknown."""
    p95 = f"quantile_over_time(0.95, {USED_GPUS}{{{_ROW}}}[{over}])"
    return (
        f"{{{{ with query (printf `{p95}` {_OF_ROW}) }}}} 95 percent of its 5-minute means of compute are at "
        "most {{ . | first | value | printf `%.2f` }} GPU.{{ end }}"
    )


_HELD_BY_OTHERS = f"{SLICES}{{{_ON_DEVICE}}} > 0 unless {SLICES}{{{_IN_POD}}}"
OTHERS = (
    f"{{{{ range $i, $row := query (printf `group by (namespace, pod) ({_HELD_BY_OTHERS})` {_DEVICE} {_POD})"
    " | sortByLabel `pod` | sortByLabel `namespace` }}"
    "{{ if $i }}, {{ end }}{{ $row.Labels.namespace }}/{{ $row.Labels.pod }}"
    "{{ else }}no other pod{{ end }}"
)
"""The other pods that hold slices of the device of the alert."""


def most_grown(record: str, over: str) -> str:
    """Return a template of the container on the device with the largest growth in bytes."""
    now = f"{record}{{{_ON_DEVICE}}}"
    return (
        f"{{{{ with query (printf `topk(1, {now} - {now} offset {over})` {_DEVICE} {_DEVICE}) }}}}"
        "{{ with first . }}{{ .Labels.namespace }}/{{ .Labels.pod }} (by {{ .Value | " + _BYTES + "){{ end }}"
        "{{ else }}no known container{{ end }}"
    )
