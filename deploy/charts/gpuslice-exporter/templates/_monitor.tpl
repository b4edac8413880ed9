{{/* Metadata and spec of a monitor; the two kinds differ by the name of one field. Takes: root, monitor, endpoints. */}}
{{- define "gpuslice.monitor" -}}
{{- $endpoint := dict "port" "metrics" "honorLabels" .monitor.honorLabels }}
{{- if eq (include "gpuslice.scheme" .root.Values.webConfig) "https" }}
{{- $_ := set $endpoint "scheme" "https" }}
{{- end }}
{{- range list "interval" "scrapeTimeout" "relabelings" "metricRelabelings" }}
{{- if get $.monitor . }}
{{- $_ := set $endpoint . (get $.monitor .) }}
{{- end }}
{{- end }}
{{- /* Not merged: that takes false for nothing. */}}
{{- range $key, $value := .monitor.endpoint }}
{{- $_ := set $endpoint $key $value }}
{{- end }}
{{- $spec := dict .endpoints (list $endpoint) }}
{{- $_ := set $spec "selector" (dict "matchLabels" (include "gpuslice.selectorLabels" .root | fromYaml)) }}
{{- $namespace := include "gpuslice.namespace" .root }}
{{- if and .monitor.namespace (ne .monitor.namespace $namespace) }}
{{- $_ := set $spec "namespaceSelector" (dict "matchNames" (list $namespace)) }}
{{- end }}
{{- range list "jobLabel" "attachMetadata" }}
{{- if get $.monitor . }}
{{- $_ := set $spec . (get $.monitor .) }}
{{- end }}
{{- end }}
{{- range $key, $value := .monitor.spec }}
{{- $_ := set $spec $key $value }}
{{- end -}}
metadata:
  name: {{ include "gpuslice.fullname" .root | quote }}
  {{- include "gpuslice.operatorMetadata" (dict "root" .root "values" .monitor) | nindent 2 }}
spec:
  {{- toYaml $spec | nindent 2 }}
{{- end }}

{{/* Namespace, labels and annotations of an object for the Prometheus Operator. Takes: root, values. */}}
{{- define "gpuslice.operatorMetadata" -}}
namespace: {{ .values.namespace | default (include "gpuslice.namespace" .root) | quote }}
labels:
  {{- include "gpuslice.labels" (dict "root" .root "labels" .values.labels) | nindent 2 }}
{{- with .values.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
