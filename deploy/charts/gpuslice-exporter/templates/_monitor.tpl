{{/* Metadata and spec of a monitor; the two kinds differ by the name of one field. Takes: root, monitor, endpoints. */}}
{{- define "gpuslice.monitor" -}}
{{- $place := .root.Values.monitoring.place }}
{{- $google := eq $place "google" }}
{{- $names := get (dict "google" (dict "scrapeTimeout" "timeout" "metricRelabelings" "metricRelabeling") "victoria-metrics" (dict "relabelings" "relabelConfigs" "metricRelabelings" "metricRelabelConfigs" "attachMetadata" "attach_metadata")) $place | default dict }}
{{- $endpoint := dict "port" "metrics" }}
{{- if not $google }}
{{- $_ := set $endpoint "honorLabels" .monitor.honorLabels }}
{{- end }}
{{- if eq (include "gpuslice.scheme" .root.Values.webConfig) "https" }}
{{- $_ := set $endpoint "scheme" "https" }}
{{- end }}
{{- range list "interval" "scrapeTimeout" "relabelings" "metricRelabelings" }}
{{- if and (get $.monitor .) (not (and $google (eq . "relabelings"))) }}
{{- $_ := set $endpoint (get $names . | default .) (get $.monitor .) }}
{{- end }}
{{- end }}
{{- /* Not merged: that takes false for nothing. */}}
{{- range $key, $value := .monitor.endpoint }}
{{- $_ := set $endpoint $key $value }}
{{- end }}
{{- $spec := dict .endpoints (list $endpoint) }}
{{- $_ := set $spec "selector" (dict "matchLabels" (include "gpuslice.selectorLabels" .root | fromYaml)) }}
{{- $namespace := include "gpuslice.namespace" .root }}
{{- if $google }}
{{- /* Labels of the target would replace namespace, pod and container of the series, which are the tenant's. */}}
{{- $_ := set $spec "targetLabels" (dict "metadata" list) }}
{{- else }}
{{- if and .monitor.namespace (ne .monitor.namespace $namespace) }}
{{- $_ := set $spec "namespaceSelector" (dict "matchNames" (list $namespace)) }}
{{- end }}
{{- range list "jobLabel" "attachMetadata" }}
{{- if get $.monitor . }}
{{- $_ := set $spec (get $names . | default .) (get $.monitor .) }}
{{- end }}
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

{{/* API version and kind of an object for the place of the values. Takes: root, kinds (by place). */}}
{{- define "gpuslice.place" -}}
{{- $place := .root.Values.monitoring.place -}}
apiVersion: {{ get (dict "prometheus-operator" "monitoring.coreos.com/v1" "google" "monitoring.googleapis.com/v1" "victoria-metrics" "operator.victoriametrics.com/v1beta1" "azure" "azmonitoring.coreos.com/v1") $place }}
kind: {{ get .kinds $place }}
{{- end }}

{{/* Namespace, labels and annotations of an object for an operator; Google's have no namespace. Takes: root, values. */}}
{{- define "gpuslice.operatorMetadata" -}}
{{- if ne .root.Values.monitoring.place "google" }}
namespace: {{ .values.namespace | default (include "gpuslice.namespace" .root) | quote }}
{{- end }}
labels:
  {{- include "gpuslice.labels" (dict "root" .root "labels" .values.labels) | nindent 2 }}
{{- with .values.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
