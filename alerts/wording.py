"""Common pieces of annotations: templates of Prometheus."""

from collections.abc import Iterable

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
