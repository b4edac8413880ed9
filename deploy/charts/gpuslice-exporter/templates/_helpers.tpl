{{- define "gpuslice.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimAll "-" }}
{{- end }}

{{/*
A release called gpuslice need not say it twice. 52 characters leave room for what is put behind the name. A release may
have dots in its name, which a Service may not.
*/}}
{{- define "gpuslice.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- $own := printf "%s-%s" .Release.Name $name }}
{{- if contains $name .Release.Name }}
{{- $own = .Release.Name }}
{{- else if hasPrefix (printf "%s-" .Release.Name) $name }}
{{- $own = $name }}
{{- end }}
{{- default $own .Values.fullnameOverride | replace "." "-" | trunc 52 | trimAll "-" }}
{{- end }}

{{- define "gpuslice.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace }}
{{- end }}

{{/* For objects without a namespace: two releases of the same name must not clash. */}}
{{- define "gpuslice.clusterName" -}}
{{- printf "%s-%s" (include "gpuslice.namespace" .) (include "gpuslice.fullname" .) }}
{{- end }}

{{- define "gpuslice.serviceAccount" -}}
{{- default (include "gpuslice.fullname" .) .Values.serviceAccount.name }}
{{- end }}

{{- define "gpuslice.hubName" -}}
{{- include "gpuslice.fullname" . }}-hub
{{- end }}

{{/* The account of a hub that reads the cluster. */}}
{{- define "gpuslice.hubServiceAccount" -}}
{{- .Values.hub.waiting.serviceAccount | default (include "gpuslice.hubName" .) }}
{{- end }}

{{/* Selectors can never be changed: they must not depend on values that users change. */}}
{{- define "gpuslice.selectorLabels" -}}
{{- toYaml (dict "app.kubernetes.io/name" (include "gpuslice.name" .) "app.kubernetes.io/instance" .Release.Name) }}
{{- end }}

{{- define "gpuslice.hubSelectorLabels" -}}
{{- $name := printf "%s-hub" (include "gpuslice.name" . | trunc 59) }}
{{- toYaml (dict "app.kubernetes.io/name" $name "app.kubernetes.io/instance" .Release.Name) }}
{{- end }}

{{/* Labels of an object, each of them once. Takes: root, hub (true for the hub's), labels (over the common ones). */}}
{{- define "gpuslice.labels" -}}
{{- $selector := include (.hub | default false | ternary "gpuslice.hubSelectorLabels" "gpuslice.selectorLabels") .root | fromYaml }}
{{- with .root }}
{{- /* A tag may end, and begin, with what a label may not. */}}
{{- $version := .Values.image.tag | default .Chart.AppVersion | trunc 63 | trimAll "._-" }}
{{- $chart := printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimAll "._-" }}
{{- $release := dict "app.kubernetes.io/version" $version "app.kubernetes.io/managed-by" .Release.Service "helm.sh/chart" $chart }}
{{- toYaml (merge (dict) ($.labels | default dict) (.Values.commonLabels | default dict) $selector $release) }}
{{- end }}
{{- end }}

{{/* The registry of `global` applies if the first part of the repository is not a host. */}}
{{- define "gpuslice.image" -}}
{{- with .Values.image }}
{{- $repository := .repository }}
{{- if not (regexMatch "^([^/]*[.:][^/]*|localhost)/" $repository) }}
{{- $repository = printf "%s/%s" (($.Values.global).imageRegistry | default "") $repository | trimPrefix "/" }}
{{- end }}
{{- if .digest }}
{{- printf "%s@%s" $repository .digest }}
{{- else }}
{{- printf "%s:%s" $repository (.tag | default $.Chart.AppVersion) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Those of `global` are names, or objects with a name: charts use both forms. */}}
{{- define "gpuslice.imagePullSecrets" -}}
{{- $secrets := .Values.imagePullSecrets | default list }}
{{- range ($.Values.global).imagePullSecrets }}
{{- $secrets = append $secrets (kindIs "string" . | ternary (dict "name" .) .) }}
{{- end }}
{{- with $secrets | uniq }}
{{- toYaml . }}
{{- end }}
{{- end }}

{{/*
A value of `config` as the program reads it. YAML takes on and off for true and false; several values are separated
by commas in the environment, so that none may contain one. Headers are separated by line breaks.
Takes: option, value.
*/}}
{{- define "gpuslice.optionText" -}}
{{- if kindIs "bool" .value }}
{{- .value | ternary "on" "off" }}
{{- else if and (kindIs "slice" .value) (hasSuffix "config.prometheus-header" (.option | default "")) }}
{{- join "\n" .value }}
{{- else if kindIs "slice" .value }}
{{- range .value }}
{{- if contains "," . }}
{{- fail (printf "%s: %q contains a comma, which separates values in the environment: give it by extraArgs: [\"--%s=%s\"]" $.option . ($.option | splitList "." | last) .) }}
{{- end }}
{{- end }}
{{- join "," .value }}
{{- else if kindIs "string" .value }}
{{- .value }}
{{- else }}
{{- /* Not 1e+06 for a million. */}}
{{- toJson .value }}
{{- end }}
{{- end }}

{{/* The keys of a mapping, such as `config`, that are not null. */}}
{{- define "gpuslice.options" -}}
{{- $options := dict }}
{{- range $key, $value := . }}
{{- if not (kindIs "invalid" $value) }}
{{- $_ := set $options $key $value }}
{{- end }}
{{- end }}
{{- toYaml $options }}
{{- end }}

{{/* The variable of an option. */}}
{{- define "gpuslice.variable" -}}
GPUSLICE_{{ . | upper | replace "-" "_" }}
{{- end }}

{{/* The options of a `config` as environment variables. Takes: path (its name in the values), config. */}}
{{- define "gpuslice.optionsEnv" -}}
{{- range $key, $value := include "gpuslice.options" .config | fromYaml }}
- name: {{ include "gpuslice.variable" $key }}
  value: {{ include "gpuslice.optionText" (dict "option" (printf "%s.%s" $.path $key) "value" $value) | quote }}
{{- end }}
{{- end }}

{{/* The port of `config.listen`. Takes a `config`. */}}
{{- define "gpuslice.port" -}}
{{- (.).listen | default ":9836" | splitList ":" | last }}
{{- end }}

{{- define "gpuslice.webConfigSecret" -}}
{{- with .Values.webConfig }}
{{- if .existingSecret }}
{{- .existingSecret }}
{{- else if .content }}
{{- include "gpuslice.fullname" $ }}-web
{{- end }}
{{- end }}
{{- end }}

{{/* http or https. Takes a `webConfig`. */}}
{{- define "gpuslice.scheme" -}}
{{- if .content }}
{{- $tls := .content.tls_server_config | default dict }}
{{- empty (or $tls.cert_file $tls.cert) | ternary "http" "https" }}
{{- else }}
{{- .scheme }}
{{- end }}
{{- end }}

{{/* "true" if clients without a certificate are refused, such as the kubelet. Takes a `webConfig`. */}}
{{- define "gpuslice.clientCertificates" -}}
{{- if .content }}
{{- eq (dig "tls_server_config" "client_auth_type" "" .content) "RequireAndVerifyClientCert" }}
{{- else }}
{{- .clientCertificates }}
{{- end }}
{{- end }}

{{/* The action of a probe. Takes: path, port, web (a `webConfig`). */}}
{{- define "gpuslice.probe" -}}
{{- if eq (include "gpuslice.clientCertificates" .web) "true" -}}
tcpSocket:
  port: {{ .port }}
{{- else -}}
httpGet:
  path: {{ .path }}
  port: {{ .port }}
  {{- if eq (include "gpuslice.scheme" .web) "https" }}
  scheme: HTTPS
  {{- end }}
{{- end }}
{{- end }}

{{/* Name and path of each directory of the node that is mounted at the same place, in order. */}}
{{- define "gpuslice.directories" -}}
{{- $below := "/var/lib/kubelet" }}
pod-resources: {{ $below }}/pod-resources
pod-logs: /var/log/pods
{{- if .Values.podsApi.enabled }}
pods-api: {{ $below }}/pods-api
{{- end }}
{{- with .Values.driverRoot }}
driver: {{ . | quote }}
{{- end }}
{{- with .Values.sharing }}
{{- if .hami.enabled }}
hami: /usr/local/vgpu
{{- end }}
{{- if .hamiVnpu.enabled }}
hami-vnpu: /usr/local/hami-vnpu-core
{{- end }}
{{- if .hamiDra.enabled }}
hami-dra: {{ $below }}/plugins/hami-core-gpu.project-hami.io
{{- end }}
{{- if .gpuManager.enabled }}
gpu-manager: /etc/gpu-manager/vm
gpu-manager-checkpoint: /etc/gpu-manager/checkpoint
{{- end }}
{{- if .vgpuManager.enabled }}
vgpu-manager: /etc/vgpu-manager
{{- end }}
{{- if .mps.enabled }}
mps: /run/nvidia/mps
{{- end }}
{{- if .runai.enabled }}
runai: /runai
{{- end }}
{{- if .dra.enabled }}
dra: {{ $below }}/plugins/gpu.nvidia.com
{{- end }}
{{- if .vgpuManagerDra.enabled }}
vgpu-manager-dra: {{ $below }}/plugins/manager.nvidia.com
{{- end }}
{{- if .amdDra.enabled }}
amd-dra: {{ $below }}/plugins/gpu.amd.com
{{- end }}
{{- if .intelDra.enabled }}
intel-dra: {{ $below }}/plugins/gpu.intel.com
{{- end }}
{{- if .memoryLimits.enabled }}
cgroups: /sys/fs/cgroup
{{- end }}
{{- end }}
{{- end }}

{{/* The container's securityContext with the needs of enabled features. */}}
{{- define "gpuslice.securityContext" -}}
{{- $context := .Values.securityContext | default dict | deepCopy }}
{{- if .Values.privileged }}
{{- /* Kubernetes refuses a privileged container that is not allowed to escalate. */}}
{{- $context = merge (dict "privileged" true "allowPrivilegeEscalation" true) $context }}
{{- end }}
{{- if .Values.migMonitor.enabled }}
{{- $capabilities := $context.capabilities | default dict }}
{{- $added := append ($capabilities.add | default list) "SYS_ADMIN" | uniq }}
{{- $context = merge (dict "capabilities" (dict "add" $added)) $context }}
{{- end }}
{{- toYaml $context }}
{{- end }}

{{/* The container's resources, with the claim of all GPUs. */}}
{{- define "gpuslice.resources" -}}
{{- $resources := .Values.resources | default dict | deepCopy }}
{{- if .Values.adminClaim.enabled }}
{{- $_ := set $resources "claims" (append ($resources.claims | default list) (dict "name" "gpus")) }}
{{- end }}
{{- toYaml $resources }}
{{- end }}

{{- define "gpuslice.affinity" -}}
{{- if .Values.affinity }}
{{- toYaml .Values.affinity }}
{{- else }}
{{- $pauses := list }}
{{- range list "dcgm-exporter" "dcgm-exporter-dra" }}
{{- $pauses = append $pauses (dict "key" (printf "nvidia.com/gpu.deploy.%s" .) "operator" "NotIn" "values" (list "paused-for-driver-upgrade" "paused-for-mig-change")) }}
{{- end }}
{{- $terms := list }}
{{- range $key, $value := include "gpuslice.options" .Values.gpuNodes | fromYaml }}
{{- $mark := dict "key" $key "operator" "In" "values" (list $value) }}
{{- if eq $value "*" }}
{{- $mark = dict "key" $key "operator" "Exists" }}
{{- end }}
{{- $terms = append $terms (dict "matchExpressions" (prepend $pauses $mark)) }}
{{- end }}
{{- if .Values.amd.enabled }}
{{- range list "amd-gpu" "pci-1002.present" "pci-1200_1002.present" "pci-0380_1002.present" }}
{{- $mark := dict "key" (printf "feature.node.kubernetes.io/%s" .) "operator" "In" "values" (list "true") }}
{{- $terms = append $terms (dict "matchExpressions" (list $mark)) }}
{{- end }}
{{- end }}
{{- /* Without any mark `nodeSelector` chooses alone. */}}
{{- if not $terms }}
{{- $terms = list (dict "matchExpressions" $pauses) }}
{{- end -}}
nodeAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
      {{- toYaml $terms | nindent 6 }}
{{- end }}
{{- end }}
