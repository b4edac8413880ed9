"""Pieces of the annotations that alerts have in common: templates of Prometheus."""

from alerts.promql import CONTAINER_SLICES

GPU = "GPU {{ $labels.gpu }} ({{ $labels.model }}, {{ $labels.uuid }}) of node {{ $labels.node }}"
HOLDER = "{{ $labels.namespace }}/{{ $labels.pod }}{{ with $labels.container }} ({{ . }}){{ end }}"

PODS = (
    "{{ range $i, $row := query (printf `group by (namespace, pod) ("
    + CONTAINER_SLICES
    + "{uuid=%q})` $labels.uuid) }}"
    "{{ if $i }}, {{ end }}{{ $row.Labels.namespace }}/{{ $row.Labels.pod }}"
    "{{ else }}no pod that is known{{ end }}"
)
"""The pods that hold or use the GPU of the alert."""
