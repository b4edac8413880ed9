"""Pieces of the annotations of alerts about sharing: templates of Prometheus."""

from alerts.records import SLICES, USED_GPUS
from alerts.wording import GPU

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
