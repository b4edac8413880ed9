{{/* Invalid values: each ends the rendering with the remedy. */}}
{{- define "gpuslice.check" -}}
{{- range .Files.Get "files/values/never-null.txt" | trim | splitList "\n" }}
{{- $value := $.Values }}
{{- range splitList "." . }}
{{- $value = index $value . }}
{{- end }}
{{- if kindIs "invalid" $value }}
{{- fail (printf "%s is null, as if only comments are below it: leave it out, or set it." .) }}
{{- end }}
{{- end }}
{{- include "gpuslice.checkName" . }}
{{- with .Values }}
{{- if and .podMonitor.enabled .serviceMonitor.enabled }}
{{- fail "podMonitor.enabled and serviceMonitor.enabled are both true: each node would be scraped twice and count twice. Enable one of them." }}
{{- end }}
{{- if and .serviceMonitor.enabled (ne .monitoring.place "prometheus-operator") }}
{{- fail (printf "serviceMonitor.enabled is true, and monitoring.place is %s, which has none: enable podMonitor." .monitoring.place) }}
{{- end }}
{{- if and .prometheusRule.enabled (eq .monitoring.place "azure") }}
{{- fail "prometheusRule.enabled is true, and monitoring.place is azure: rule groups of Azure Monitor are not objects of Kubernetes." }}
{{- end }}
{{- if and .hub.enabled (not .hub.prometheusUrl) }}
{{- fail "hub.enabled is true without hub.prometheusUrl: name the Prometheus that scrapes the nodes, such as http://prometheus-operated.monitoring.svc:9090." }}
{{- end }}
{{- if .hub.enabled }}
{{- $refresh := include "gpuslice.seconds" .hub.refresh | float64 }}
{{- $window := include "gpuslice.seconds" .hub.window | float64 }}
{{- if or (lt $refresh 1.0) (gt $refresh 3600.0) }}
{{- fail (printf "hub.refresh is %v: set it to 1s to 1h." .hub.refresh) }}
{{- end }}
{{- if or (lt $window 3600.0) (gt $window 2592000.0) }}
{{- fail (printf "hub.window is %v: set it to 1h to 720h." .hub.window) }}
{{- end }}
{{- end }}
{{- if and .hub.waiting.enabled (not .hub.enabled) }}
{{- fail "hub.waiting.enabled is true, but hub.enabled is not: there is no hub that could read the cluster. Enable the hub too." }}
{{- end }}
{{- with .hub.monitor }}
{{- if and .enabled (not $.Values.hub.enabled) }}
{{- fail "hub.monitor.enabled is true, but hub.enabled is not: there is no hub to scrape. Enable the hub too." }}
{{- end }}
{{- if and .enabled (eq .kind "ServiceMonitor") (ne $.Values.monitoring.place "prometheus-operator") }}
{{- fail (printf "hub.monitor.kind is ServiceMonitor, and monitoring.place is %s, which has none: set it to PodMonitor." $.Values.monitoring.place) }}
{{- end }}
{{- end }}
{{- if and (not .serviceAccount.create) (not .serviceAccount.name) }}
{{- fail "serviceAccount.create is false: name the account to use in serviceAccount.name." }}
{{- end }}
{{- if and .amd.enabled (not .privileged) }}
{{- fail "amd.enabled is true without privileged: the kernel shows topology and processes of AMD GPUs to privileged containers only. Set privileged to true." }}
{{- end }}
{{- if and .resourceQuota.enabled (not .priorityClassName) }}
{{- fail "resourceQuota.enabled is true without priorityClassName: the quota applies to pods of that class. Set it, or disable the quota." }}
{{- end }}
{{- if and .hostNetwork .networkPolicy.enabled }}
{{- fail "networkPolicy.enabled and hostNetwork are both true: a NetworkPolicy does not apply to pods on the network of their node. Choose one of them." }}
{{- end }}
{{- end }}
{{- include "gpuslice.checkConfig" . }}
{{- include "gpuslice.checkDerived" . }}
{{- include "gpuslice.checkWeb" . }}
{{- include "gpuslice.checkRoutes" . }}
{{- end }}

{{- define "gpuslice.checkName" -}}
{{- $name := include "gpuslice.fullname" . }}
{{- if not (regexMatch "^[a-z][a-z0-9-]*$" $name) }}
{{- fail (printf "the objects would be named %s, but the name of a Service must begin with a letter: set fullnameOverride." $name) }}
{{- end }}
{{- end }}

{{/* Conflicts of `config` and other values, for the exporter and for the hub. */}}
{{- define "gpuslice.checkConfig" -}}
{{- $config := include "gpuslice.options" .Values.config | fromYaml }}
{{- with .Values }}
{{- if hasKey $config "kubernetes-api" }}
{{- fail "config.kubernetes-api follows kubernetesApi.enabled, which also gives the pod a token and a role: leave config.kubernetes-api out. With a kubeconfig file it is not needed." }}
{{- end }}
{{- if hasKey $config "kubelet-root" }}
{{- fail "config.kubelet-root is the path in the container, which is always the default: set kubeletRoot to the directory of the nodes." }}
{{- end }}
{{- if and (hasKey $config "node-name") (not (include "gpuslice.references" (get $config "node-name") | fromJsonArray)) }}
{{- fail "config.node-name would be the name of every node: leave it out, or use a variable, such as $(NODE_NAME).example.com." }}
{{- end }}
{{- if and (eq (get $config "dcgm-version" | toString) "4.9") (eq (get $config "dcgm-hostname-label" | toString) "Hostname") }}
{{- fail "config.dcgm-version is 4.9, whose names have the label hostname, and config.dcgm-hostname-label is Hostname: leave config.dcgm-hostname-label out." }}
{{- end }}
{{- if and .networkPolicy.enabled (not .networkPolicy.egress) }}
{{- if .kubernetesApi.enabled }}
{{- fail "networkPolicy allows no connections of the exporter, but kubernetesApi.enabled needs the API server: add it to networkPolicy.egress." }}
{{- end }}
{{- if hasKey $config "dcgm-exporter-url" }}
{{- fail "networkPolicy allows no connections of the exporter, but config.dcgm-exporter-url needs that address, and DNS: add both to networkPolicy.egress." }}
{{- end }}
{{- end }}
{{- include "gpuslice.checkListen" (dict "path" "config" "config" $config) }}
{{- include "gpuslice.checkListen" (dict "path" "hub.config" "config" .hub.config) }}
{{- end }}
{{- end }}

{{- define "gpuslice.checkListen" -}}
{{- with (.config).listen }}
{{- $port := splitList ":" . | last | int }}
{{- if regexMatch "^(localhost|127\\.|\\[::1\\])" . }}
{{- fail (printf "%s.listen is %s: neither probes nor Prometheus can reach the pod there. Set a port alone, such as :9836." $.path .) }}
{{- end }}
{{- if or (lt $port 1) (gt $port 65535) }}
{{- fail (printf "%s.listen is %s: a port is a number from 1 to 65535." $.path .) }}
{{- end }}
{{- end }}
{{- end }}

{{/* A port with less protection than its values suggest, or that cannot be scraped. */}}
{{- define "gpuslice.checkWeb" -}}
{{- $file := get (.Values.config | default dict) "web-config" }}
{{- with .Values.webConfig }}
{{- if and .existingSecret .content }}
{{- fail "webConfig.existingSecret and webConfig.content are both set: use one of them." }}
{{- end }}
{{- if and $file (or .existingSecret .content) }}
{{- fail "config.web-config and webConfig are both set: leave config.web-config out." }}
{{- end }}
{{- if and (or .tlsSecret .clientCaSecret (eq .scheme "https") .clientCertificates) (not (or .existingSecret .content $file)) }}
{{- fail "webConfig has certificates, or a scheme that needs them, but no file that uses them: the port would serve plain HTTP. Set webConfig.content, such as tls_server_config: {cert_file: /etc/gpuslice/tls/tls.crt, key_file: /etc/gpuslice/tls/tls.key}, or webConfig.existingSecret." }}
{{- end }}
{{- if and .content (or .tlsSecret .clientCaSecret (eq .scheme "https")) (eq (include "gpuslice.scheme" .) "http") }}
{{- fail "webConfig has certificates, or a scheme that needs them, but webConfig.content does not use them: the port would serve plain HTTP. Add tls_server_config: {cert_file: /etc/gpuslice/tls/tls.crt, key_file: /etc/gpuslice/tls/tls.key}." }}
{{- end }}
{{- range list "podMonitor" "serviceMonitor" }}
{{- $monitor := get $.Values . }}
{{- if and $monitor.enabled (get ($.Values.webConfig.content | default dict) "basic_auth_users") (not (hasKey ($monitor.endpoint | default dict) "basicAuth")) }}
{{- fail (printf "webConfig.content requires a password, but %s has none: each scrape would be refused. Name a Secret in %s.endpoint.basicAuth." . .) }}
{{- end }}
{{- end }}
{{- end }}
{{- if and .Values.hub.prometheusHeaderSecret (get (.Values.hub.config | default dict) "prometheus-header-file") }}
{{- fail "hub.prometheusHeaderSecret and hub.config.prometheus-header-file are both set: use one of them." }}
{{- end }}
{{- with .Values.hub.webConfig }}
{{- if and (or (eq .scheme "https") .clientCertificates) (not .existingSecret) }}
{{- fail "hub.webConfig needs certificates, but hub.webConfig.existingSecret is empty: the port would serve plain HTTP. Name a Secret with them." }}
{{- end }}
{{- end }}
{{- end }}
