{{/* Values that cannot work: each ends the rendering with what to do instead. */}}
{{- define "gpuslice.check" -}}
{{- range list "image" "migMonitor" "podsApi" "kubernetesApi" "amd" "sharing" "webConfig" "service" "serviceAccount" "rbac" "podMonitor" "serviceMonitor" "prometheusRule" "dashboards" "networkPolicy" "openshift" "resourceQuota" "hub" }}
{{- if not (kindIs "map" (get $.Values .)) }}
{{- fail (printf "%s is null, as it is where nothing but comments stands below it: leave it out." .) }}
{{- end }}
{{- end }}
{{- include "gpuslice.checkName" . }}
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
{{- if and .resourceQuota.enabled (not .priorityClassName) }}
{{- fail "resourceQuota.enabled is true without priorityClassName, whose pods the quota is for." }}
{{- end }}
{{- if and .hostNetwork .networkPolicy.enabled }}
{{- fail "networkPolicy.enabled is true beside hostNetwork: no NetworkPolicy holds for pods on the network of their node. Choose one of them." }}
{{- end }}
{{- end }}
{{- include "gpuslice.checkConfig" . }}
{{- include "gpuslice.checkWeb" . }}
{{- end }}

{{- define "gpuslice.checkName" -}}
{{- $name := include "gpuslice.fullname" . }}
{{- if not (regexMatch "^[a-z][a-z0-9-]*$" $name) }}
{{- fail (printf "the objects would be called %s, and the name of a Service begins with a letter: set fullnameOverride." $name) }}
{{- end }}
{{- end }}

{{/* What `config`, `extraEnv` and other values say together, for the exporter and for the hub. */}}
{{- define "gpuslice.checkConfig" -}}
{{- $config := dict }}
{{- range $key, $value := .Values.config }}
{{- if not (kindIs "invalid" $value) }}
{{- $_ := set $config $key $value }}
{{- end }}
{{- end }}
{{- with .Values }}
{{- if and .kubernetesApi.enabled (hasKey $config "kubernetes-api") }}
{{- fail "config.kubernetes-api is given beside kubernetesApi.enabled, which sets it: leave config.kubernetes-api out." }}
{{- end }}
{{- if hasKey $config "kubelet-root" }}
{{- fail "config.kubelet-root is where the container sees the kubelet's files, which is always the default: name the directory of the nodes in kubeletRoot." }}
{{- end }}
{{- if and (hasKey $config "node-name") (not (contains "$(" (get $config "node-name"))) }}
{{- fail "config.node-name would be the name of every node: leave it out, or make it of a variable, such as $(NODE_NAME).example.com." }}
{{- end }}
{{- if and .networkPolicy.enabled (not .networkPolicy.egress) }}
{{- if .kubernetesApi.enabled }}
{{- fail "networkPolicy lets the exporter connect to nobody, and kubernetesApi.enabled needs the API server: name it in networkPolicy.egress." }}
{{- end }}
{{- range list "dcgm-exporter-url" "prometheus-url" }}
{{- if hasKey $config . }}
{{- fail (printf "networkPolicy lets the exporter connect to nobody, and config.%s needs that address, and DNS: name both in networkPolicy.egress." .) }}
{{- end }}
{{- end }}
{{- end }}
{{- $elsewhere := dict "kubernetes-api" (.kubernetesApi.enabled | ternary "kubernetesApi.enabled" "") "web-config" (include "gpuslice.webConfigSecret" $ | empty | ternary "" "webConfig") }}
{{- $hub := dict "prometheus-url" "hub.prometheusUrl" "web-config" (.hub.webConfig.existingSecret | empty | ternary "" "hub.webConfig") }}
{{- include "gpuslice.checkListen" (dict "path" "config" "config" $config) }}
{{- include "gpuslice.checkListen" (dict "path" "hub.config" "config" .hub.config) }}
{{- include "gpuslice.checkEnv" (dict "path" "" "env" .extraEnv "config" $config "elsewhere" $elsewhere) }}
{{- include "gpuslice.checkEnv" (dict "path" "hub." "env" .hub.extraEnv "config" .hub.config "elsewhere" $hub) }}
{{- end }}
{{- end }}

{{- define "gpuslice.checkListen" -}}
{{- with (.config).listen }}
{{- $port := splitList ":" . | last | int }}
{{- if regexMatch "^(localhost|127\\.|\\[::1\\])" . }}
{{- fail (printf "%s.listen is %s: neither probes nor Prometheus reach the pod there. Give a port alone, such as :9836." $.path .) }}
{{- end }}
{{- if or (lt $port 1) (gt $port 65535) }}
{{- fail (printf "%s.listen is %s: a port is a number from 1 to 65535." $.path .) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "gpuslice.checkEnv" -}}
{{- range .env }}
{{- $key := .name | trimPrefix "GPUSLICE_" | lower | replace "_" "-" }}
{{- $also := get $.elsewhere $key | default (hasKey ($.config | default dict) $key | ternary (printf "%sconfig.%s" $.path $key) "") }}
{{- if and $also (hasPrefix "GPUSLICE_" .name) }}
{{- fail (printf "%sextraEnv sets %s, and so does %s: use one of them." $.path .name $also) }}
{{- end }}
{{- end }}
{{- end }}

{{/* A port that is not as safe as its values look, or that nobody can scrape. */}}
{{- define "gpuslice.checkWeb" -}}
{{- $file := get (.Values.config | default dict) "web-config" }}
{{- with .Values.webConfig }}
{{- if and .existingSecret .content }}
{{- fail "webConfig.existingSecret and webConfig.content are both given: use one of them." }}
{{- end }}
{{- if and $file (or .existingSecret .content) }}
{{- fail "config.web-config is given beside webConfig, which sets it: leave config.web-config out." }}
{{- end }}
{{- if and (or .tlsSecret .clientCaSecret (eq .scheme "https") .clientCertificates) (not (or .existingSecret .content $file)) }}
{{- fail "webConfig has certificates, or says that there are some, and no file that uses them: the port would speak plain HTTP. Give webConfig.content, such as tls_server_config: {cert_file: /etc/gpuslice/tls/tls.crt, key_file: /etc/gpuslice/tls/tls.key}, or webConfig.existingSecret." }}
{{- end }}
{{- if and .content (or .tlsSecret .clientCaSecret (eq .scheme "https")) (eq (include "gpuslice.scheme" .) "http") }}
{{- fail "webConfig has certificates, or says that there are some, and webConfig.content does not use them: the port would speak plain HTTP. Give it tls_server_config: {cert_file: /etc/gpuslice/tls/tls.crt, key_file: /etc/gpuslice/tls/tls.key}." }}
{{- end }}
{{- range list "podMonitor" "serviceMonitor" }}
{{- $monitor := get $.Values . }}
{{- if and $monitor.enabled (get ($.Values.webConfig.content | default dict) "basic_auth_users") (not (hasKey ($monitor.endpoint | default dict) "basicAuth")) }}
{{- fail (printf "webConfig.content asks for a password, and %s has none: each scrape would be refused. Name a Secret in %s.endpoint.basicAuth." . .) }}
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.hub.webConfig }}
{{- if and (or (eq .scheme "https") .clientCertificates) (not .existingSecret) }}
{{- fail "hub.webConfig says that there are certificates, and hub.webConfig.existingSecret names no Secret with them: the port would speak plain HTTP." }}
{{- end }}
{{- end }}
{{- end }}
