{{/*
Variables of the exporter that the templates set, or derive ports, probes, mounts or permissions from, with the value to
set instead. An option is an argument too.
*/}}
{{- define "gpuslice.derived" -}}
GPUSLICE_CONFIG: config
GPUSLICE_DCGM_EXPORTER_URL: config.dcgm-exporter-url
GPUSLICE_DCGM_HOSTNAME_LABEL: config.dcgm-hostname-label
GPUSLICE_DCGM_VERSION: config.dcgm-version
GPUSLICE_KUBELET_ROOT: kubeletRoot
GPUSLICE_KUBERNETES_API: kubernetesApi.enabled
GPUSLICE_LISTEN: config.listen
GPUSLICE_NODE_NAME: config.node-name
GPUSLICE_PROMETHEUS_HEADER_FILE: hub.prometheusHeaderSecret
GPUSLICE_PROMETHEUS_URL: hub.prometheusUrl
GPUSLICE_ROUTE_PREFIX: config.route-prefix
GPUSLICE_WEB_CONFIG: webConfig, or config.web-config with webConfig.scheme
NODE_NAME: config.node-name
NVIDIA_MIG_MONITOR_DEVICES: migMonitor.enabled
{{- end }}

{{/* The same for the hub. */}}
{{- define "gpuslice.hubDerived" -}}
GPUSLICE_CONFIG: hub.config
GPUSLICE_KUBERNETES_API: hub.waiting.enabled
GPUSLICE_LISTEN: hub.config.listen
GPUSLICE_PROMETHEUS_HEADER_FILE: hub.prometheusHeaderSecret, or hub.config.prometheus-header-file
GPUSLICE_PROMETHEUS_URL: hub.prometheusUrl
GPUSLICE_ROUTE_PREFIX: hub.config.route-prefix
GPUSLICE_WEB_CONFIG: hub.webConfig.existingSecret
{{- end }}

{{/* Options whose default is a path at which a value mounts a directory. */}}
{{- define "gpuslice.mounted" -}}
cgroup-root: sharing.memoryLimits.enabled
hami-root: sharing.hami.enabled
hami-vnpu-root: sharing.hamiVnpu.enabled
mps-root: sharing.mps.enabled
pods-api-socket: podsApi.enabled
runai-root: sharing.runai.enabled
vcuda-root: sharing.gpuManager.enabled
vgpu-manager-root: sharing.vgpuManager.enabled
{{- end }}

{{/* Options that are set where the templates do not see them, or twice. */}}
{{- define "gpuslice.checkDerived" -}}
{{- $derived := include "gpuslice.derived" . | fromYaml }}
{{- $config := include "gpuslice.options" .Values.config | fromYaml }}
{{- range $option, $value := include "gpuslice.mounted" . | fromYaml }}
{{- $enabled := $.Values }}
{{- range splitList "." $value }}
{{- $enabled = index $enabled . }}
{{- end }}
{{- if $enabled }}
{{- if hasKey $config $option }}
{{- fail (printf "config.%s is not where %s mounts the directory: leave one of them out." $option $value) }}
{{- end }}
{{- $_ := set $derived (include "gpuslice.variable" $option) $value }}
{{- end }}
{{- end }}
{{- include "gpuslice.checkGiven" (dict "path" "" "values" .Values "config" $config "derived" $derived) }}
{{- with .Values.hub }}
{{- include "gpuslice.checkGiven" (dict "path" "hub." "values" . "config" (include "gpuslice.options" .config | fromYaml) "derived" (include "gpuslice.hubDerived" . | fromYaml)) }}
{{- end }}
{{- end }}

{{/* Variables and arguments of a workload. Takes: path ("" or "hub."), values (its own), config, derived. */}}
{{- define "gpuslice.checkGiven" -}}
{{- $given := dict }}
{{- range .values.extraEnv }}
{{- $_ := set $given .name (printf "%sextraEnv %s" $.path .name) }}
{{- end }}
{{- range .values.extraArgs }}
{{- if hasPrefix "--" . }}
{{- $option := splitList "=" . | first }}
{{- $_ := set $given (trimPrefix "--" $option | include "gpuslice.variable") (printf "extraArgs %s" $option) }}
{{- end }}
{{- end }}
{{- range $variable, $place := $given }}
{{- with get $.derived $variable }}
{{- fail (printf "%s is not seen by the rest of the chart, which follows %s: set that instead." $place .) }}
{{- end }}
{{- end }}
{{- range $option, $_ := .config }}
{{- with get $given (include "gpuslice.variable" $option) }}
{{- fail (printf "%s sets what %sconfig.%s sets: use one of them." . $.path $option) }}
{{- end }}
{{- end }}
{{- end }}
