{{/*
Metadata and spec of a monitor; the two kinds differ by the name of one field. Takes: root, path (of its values, such as
podMonitor), endpoints, hub (true for the hub's).
*/}}
{{- define "gpuslice.monitor" -}}
{{- $hub := .hub | default false }}
{{- $monitor := $hub | ternary .root.Values.hub.monitor (get .root.Values .path) | deepCopy }}
{{- $web := $hub | ternary .root.Values.hub.webConfig .root.Values.webConfig }}
{{- $place := .root.Values.monitoring.place }}
{{- $google := eq $place "google" }}
{{- $names := get (dict "google" (dict "scrapeTimeout" "timeout" "metricRelabelings" "metricRelabeling") "victoria-metrics" (dict "relabelings" "relabelConfigs" "metricRelabelings" "metricRelabelConfigs" "attachMetadata" "attach_metadata")) $place | default dict }}
{{- $endpoint := dict "port" ($hub | ternary "http" "metrics") }}
{{- if not (or $google $hub) }}
{{- $_ := set $endpoint "honorLabels" $monitor.honorLabels }}
{{- end }}
{{- if eq (include "gpuslice.scheme" $web) "https" }}
{{- $_ := set $endpoint "scheme" "https" }}
{{- end }}
{{- range list "interval" "scrapeTimeout" "relabelings" "metricRelabelings" }}
{{- if and (get $monitor .) (not (and $google (eq . "relabelings"))) }}
{{- $_ := set $endpoint (get $names . | default .) (get $monitor .) }}
{{- end }}
{{- end }}
{{- /* Not merged: that takes false for nothing. */}}
{{- range $key, $value := $monitor.endpoint }}
{{- $_ := set $endpoint $key $value }}
{{- end }}
{{- include "gpuslice.checkTimes" (dict "path" .path "endpoint" $endpoint) }}
{{- /* Written out: a default that the API server adds is a difference for ever to Argo CD. */}}
{{- range list "relabelings" "metricRelabelings" "metricRelabeling" "relabelConfigs" "metricRelabelConfigs" }}
{{- range get $endpoint . | default list }}
{{- $_ := set . "action" (.action | default "replace") }}
{{- end }}
{{- end }}
{{- $spec := dict .endpoints (list $endpoint) }}
{{- $_ := set $spec "selector" (dict "matchLabels" (include ($hub | ternary "gpuslice.hubSelectorLabels" "gpuslice.selectorLabels") .root | fromYaml)) }}
{{- $namespace := include "gpuslice.namespace" .root }}
{{- if $google }}
{{- /* Labels of the target would replace namespace, pod and container of the series, which are the tenant's. */}}
{{- $_ := set $spec "targetLabels" (dict "metadata" list) }}
{{- else }}
{{- if and $monitor.namespace (ne $monitor.namespace $namespace) }}
{{- $_ := set $spec "namespaceSelector" (dict "matchNames" (list $namespace)) }}
{{- end }}
{{- range list "jobLabel" "attachMetadata" }}
{{- if get $monitor . }}
{{- $_ := set $spec (get $names . | default .) (get $monitor .) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $key, $value := $monitor.spec }}
{{- $_ := set $spec $key $value }}
{{- end -}}
metadata:
  name: {{ include ($hub | ternary "gpuslice.hubName" "gpuslice.fullname") .root | quote }}
  {{- include "gpuslice.operatorMetadata" (dict "root" .root "values" $monitor "hub" $hub) | nindent 2 }}
spec:
  {{- toYaml $spec | nindent 2 }}
{{- end }}

{{/* Seconds of a duration such as 1m30s, 1.5h or 90. */}}
{{- define "gpuslice.seconds" -}}
{{- if kindIs "float64" . }}
{{- . }}
{{- else }}
{{- $units := dict "ms" 0.001 "s" 1 "m" 60 "h" 3600 "d" 86400 "w" 604800 "y" 31536000 "" 1 }}
{{- $sum := 0 }}
{{- range regexFindAll "[0-9.]+[a-z]*" (. | default "") -1 }}
{{- $sum = addf $sum (mulf (regexFind "[0-9.]+" .) (get $units (regexFind "[a-z]+" .))) }}
{{- end }}
{{- $sum }}
{{- end }}
{{- end }}

{{/* Times with which Prometheus would refuse the target, or lose its series. Takes: path, endpoint. */}}
{{- define "gpuslice.checkTimes" -}}
{{- with .endpoint }}
{{- $interval := .scrape_interval | default .interval }}
{{- $timeout := .scrapeTimeout | default .timeout }}
{{- if gt (include "gpuslice.seconds" $interval | float64) 120.0 }}
{{- fail (printf "%s.interval is %s: Prometheus forgets a series 5 minutes after its last sample, and one scrape may be lost. Set at most 2m." $.path $interval) }}
{{- end }}
{{- /* Without an interval it is that of the operator. */}}
{{- $interval = $interval | default "30s" }}
{{- if gt (include "gpuslice.seconds" $timeout | float64) (include "gpuslice.seconds" $interval | float64) }}
{{- fail (printf "%s.scrapeTimeout is %s: Prometheus refuses one above the interval. Set at most %s." $.path $timeout $interval) }}
{{- end }}
{{- end }}
{{- end }}

{{/* API version and kind of an object for the place of the values. Takes: root, kinds (by place). */}}
{{- define "gpuslice.place" -}}
{{- $place := .root.Values.monitoring.place -}}
apiVersion: {{ get (dict "prometheus-operator" "monitoring.coreos.com/v1" "google" "monitoring.googleapis.com/v1" "victoria-metrics" "operator.victoriametrics.com/v1beta1" "azure" "azmonitoring.coreos.com/v1") $place }}
kind: {{ get .kinds $place }}
{{- end }}

{{/* Namespace, labels and annotations of an object for an operator; Google's have no namespace. Takes: root, values, hub (true for the hub's). */}}
{{- define "gpuslice.operatorMetadata" -}}
{{- if ne .root.Values.monitoring.place "google" }}
namespace: {{ .values.namespace | default (include "gpuslice.namespace" .root) | quote }}
{{- end }}
labels:
  {{- include "gpuslice.labels" (dict "root" .root "hub" .hub "labels" .values.labels) | nindent 2 }}
{{- with .values.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
