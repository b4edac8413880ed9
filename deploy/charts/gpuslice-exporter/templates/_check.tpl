{{/* Combinations of values that cannot work: each ends the rendering with what to do instead. */}}
{{- define "gpuslice.check" -}}
{{- with .Values }}
{{- if and .podMonitor.enabled .serviceMonitor.enabled }}
{{- fail "podMonitor.enabled and serviceMonitor.enabled are both true: each node would be scraped twice and count twice. Enable one of them." }}
{{- end }}
{{- if and .hub.enabled (not .hub.prometheusUrl) }}
{{- fail "hub.enabled is true without hub.prometheusUrl: name the Prometheus that scrapes the nodes, such as http://prometheus-operated.monitoring.svc:9090." }}
{{- end }}
{{- if and (not .serviceAccount.create) (not .serviceAccount.name) }}
{{- fail "serviceAccount.create is false: name the account to use in serviceAccount.name." }}
{{- end }}
{{- if and .amd.enabled (not .privileged) }}
{{- fail "amd.enabled is true without privileged: the kernel tells topology and processes of AMD GPUs to privileged containers only. Set privileged to true." }}
{{- end }}
{{- if and .kubernetesApi.enabled (hasKey .config "kubernetes-api") }}
{{- fail "config.kubernetes-api is given beside kubernetesApi.enabled, which sets it: leave config.kubernetes-api out." }}
{{- end }}
{{- if and .webConfig.existingSecret .webConfig.content }}
{{- fail "webConfig.existingSecret and webConfig.content are both given: use one of them." }}
{{- end }}
{{- if and (include "gpuslice.webConfigSecret" $) (hasKey .config "web-config") }}
{{- fail "config.web-config is given beside webConfig, which sets it: leave config.web-config out." }}
{{- end }}
{{- if and .resourceQuota.enabled (not .priorityClassName) }}
{{- fail "resourceQuota.enabled is true without priorityClassName, whose pods the quota is for." }}
{{- end }}
{{- if and .networkPolicy.enabled (not .networkPolicy.egress) }}
{{- if .kubernetesApi.enabled }}
{{- fail "networkPolicy lets the exporter connect to nobody, and kubernetesApi.enabled needs the API server: name it in networkPolicy.egress." }}
{{- end }}
{{- range list "dcgm-exporter-url" "prometheus-url" }}
{{- if hasKey $.Values.config . }}
{{- fail (printf "networkPolicy lets the exporter connect to nobody, and config.%s needs that address, and DNS: name both in networkPolicy.egress." .) }}
{{- end }}
{{- end }}
{{- end }}
{{- include "gpuslice.checkListen" (dict "path" "config" "config" .config) }}
{{- include "gpuslice.checkListen" (dict "path" "hub.config" "config" .hub.config) }}
{{- include "gpuslice.checkEnv" (dict "path" "extraEnv" "env" .extraEnv "config" .config) }}
{{- include "gpuslice.checkEnv" (dict "path" "hub.extraEnv" "env" .hub.extraEnv "config" .hub.config) }}
{{- end }}
{{- end }}

{{- define "gpuslice.checkListen" -}}
{{- if regexMatch "^(localhost|127\\.|\\[::1\\])" (.config.listen | default "") }}
{{- fail (printf "%s.listen is %s: neither probes nor Prometheus reach the pod there. Give a port alone, such as :9836." .path .config.listen) }}
{{- end }}
{{- end }}

{{- define "gpuslice.checkEnv" -}}
{{- range .env }}
{{- $key := .name | trimPrefix "GPUSLICE_" | lower | replace "_" "-" }}
{{- if and (hasPrefix "GPUSLICE_" .name) (hasKey $.config $key) }}
{{- fail (printf "%s sets %s, and so does %s: use one of them." $.path .name ($.path | replace "extraEnv" (printf "config.%s" $key))) }}
{{- end }}
{{- end }}
{{- end }}
