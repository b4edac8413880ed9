{{/* Annotations for a Prometheus without the Operator, or nothing. Takes: root, config, web. */}}
{{- define "gpuslice.scrapeAnnotations" -}}
{{- $values := .root.Values }}
{{- if and $values.scrapeAnnotations (not (or $values.podMonitor.enabled $values.serviceMonitor.enabled $values.hub.monitor.enabled)) }}
prometheus.io/scrape: "true"
prometheus.io/port: {{ include "gpuslice.port" .config | quote }}
{{- if eq (include "gpuslice.scheme" .web) "https" }}
prometheus.io/scheme: https
{{- end }}
{{- end }}
{{- end }}

{{/* Annotations of the exporter's pods. */}}
{{- define "gpuslice.podAnnotations" -}}
kubectl.kubernetes.io/default-container: exporter
{{- include "gpuslice.scrapeAnnotations" (dict "root" . "config" .Values.config "web" .Values.webConfig) }}
{{- if .Values.openshift.enabled }}
{{- /* From OpenShift 4.14 on: this one and no other, however many the service account may use. */}}
openshift.io/required-scc: {{ include "gpuslice.clusterName" . }}
{{- end }}
{{- with .Values.webConfig.content }}
checksum/web-config: {{ toYaml . | sha256sum }}
{{- end }}
{{- end }}

{{/* Variables of the exporter. */}}
{{- define "gpuslice.exporterEnv" -}}
- name: NODE_NAME
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
- name: POD_UID
  valueFrom:
    fieldRef:
      fieldPath: metadata.uid
{{- /* For the NVIDIA container runtime. No nvidia.com/gpu is requested: that would take a GPU away. */}}
- name: NVIDIA_VISIBLE_DEVICES
  value: all
- name: NVIDIA_DRIVER_CAPABILITIES
  value: utility
{{- if .Values.migMonitor.enabled }}
- name: NVIDIA_MIG_MONITOR_DEVICES
  value: all
{{- end }}
{{- if .Values.kubernetesApi.enabled }}
- name: GPUSLICE_KUBERNETES_API
  value: "on"
{{- end }}
{{- if include "gpuslice.webConfigSecret" . }}
- name: GPUSLICE_WEB_CONFIG
  value: /etc/gpuslice/web/web-config.yml
{{- end }}
{{- include "gpuslice.optionsEnv" (dict "path" "config" "config" .Values.config) }}
{{- end }}

{{/* Variables of the hub. Takes the values of the hub. */}}
{{- define "gpuslice.hubEnv" -}}
- name: GPUSLICE_PROMETHEUS_URL
  value: {{ .prometheusUrl | quote }}
{{- /* The hub does not need the driver. */}}
- name: NVIDIA_VISIBLE_DEVICES
  value: void
{{- if .waiting.enabled }}
- name: GPUSLICE_KUBERNETES_API
  value: "on"
{{- end }}
{{- if .webConfig.existingSecret }}
- name: GPUSLICE_WEB_CONFIG
  value: /etc/gpuslice/web/web-config.yml
{{- end }}
{{- if .prometheusHeaderSecret }}
- name: GPUSLICE_PROMETHEUS_HEADER_FILE
  value: /etc/gpuslice/prometheus/headers
{{- end }}
{{- include "gpuslice.optionsEnv" (dict "path" "hub.config" "config" .config) }}
{{- end }}
