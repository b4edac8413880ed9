"""Pieces of the annotations of alerts about sharing: templates of Prometheus."""

from alerts.records import SLICES
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


def _of_row(record: str, shown: str) -> str:
    asked = f"{record}{{{_IN_POD},container=%q,{_ON_DEVICE}}}"
    return (
        f"{{{{ with query (printf `{asked}` {_POD} $labels.container {_DEVICE}) }}}}"
        "{{ . | first | value | " + shown + "{{ else }}an unknown part{{ end }}"
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
