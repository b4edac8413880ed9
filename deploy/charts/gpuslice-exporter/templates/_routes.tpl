{{/* The path of a route without a slash at its end, "" for /. Takes a route: `hub.ingress` or `hub.httpRoute`. */}}
{{- define "gpuslice.routePath" -}}
{{- trimSuffix "/" .path }}
{{- end }}

{{/* The path below which the hub serves too, "" if there is none. Takes `hub`. */}}
{{- define "gpuslice.hubPrefix" -}}
{{- get (.config | default dict) "route-prefix" | default "" | trimSuffix "/" }}
{{- end }}

{{/* Routes to the hub that lead nowhere. */}}
{{- define "gpuslice.checkRoutes" -}}
{{- $hub := .Values.hub }}
{{- $prefix := include "gpuslice.hubPrefix" $hub }}
{{- range $name := list "ingress" "httpRoute" }}
{{- $route := get $hub $name }}
{{- if $route.enabled }}
{{- if not $hub.enabled }}
{{- fail (printf "hub.%s.enabled is true, but hub.enabled is not: there is nothing that it could lead to. Enable the hub too." $name) }}
{{- end }}
{{- $path := include "gpuslice.routePath" $route }}
{{- if ne ($route.pathType | default "Prefix") "ImplementationSpecific" }}
{{- if or (not (regexMatch "^(/[A-Za-z0-9._~-]+)*$" $path)) (regexMatch "/\\.{1,2}(/|$)" $path) }}
{{- fail (printf "hub.%s.path is %s: set a path such as /gpus, of letters, digits, and -._~." $name $route.path) }}
{{- end }}
{{- if and $path $prefix (not (hasPrefix (printf "%s/" $path) (printf "%s/" $prefix))) }}
{{- fail (printf "hub.%s.path is %s, but hub.config.route-prefix is %s: the hub would not find its pages. Set both to the same path." $name $route.path $prefix) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- include "gpuslice.checkIngress" $hub }}
{{- include "gpuslice.checkHttpRoute" $hub }}
{{- end }}

{{/* Takes `hub`. */}}
{{- define "gpuslice.checkIngress" -}}
{{- with .ingress }}
{{- if .enabled }}
{{- if not .hosts }}
{{- fail "hub.ingress.enabled is true without hub.ingress.hosts: it would take the requests of every host. Name one, such as gpus.example.com." }}
{{- end }}
{{- if and (include "gpuslice.routePath" .) (ne .pathType "ImplementationSpecific") (not (include "gpuslice.hubPrefix" $)) }}
{{- fail (printf "hub.ingress.path is %s, but hub.config.route-prefix is not set: the hub would not find its pages. Set it to the same path. If an annotation lets the controller strip the path, set hub.ingress.pathType to ImplementationSpecific." .path) }}
{{- end }}
{{- $annotations := printf "%s%s" (toJson .annotations) (toJson $.service.annotations) }}
{{- if and (eq (include "gpuslice.scheme" $.webConfig) "https") (not (regexMatch "(?i)https\\\\*\"|h[12]-ssl|server-ssl|upstream-protocol|reencrypt|passthrough" $annotations)) }}
{{- fail "hub.webConfig.scheme is https, but controllers speak plain HTTP to the hub without an annotation: set it in hub.ingress.annotations, such as nginx.ingress.kubernetes.io/backend-protocol: HTTPS, or in hub.service.annotations." }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* A reference to a Gateway with the fields that the API server would add. */}}
{{- define "gpuslice.parentRef" -}}
{{- $parent := dict "group" "gateway.networking.k8s.io" "kind" "Gateway" }}
{{- range $name, $value := . }}
{{- $_ := set $parent $name $value }}
{{- end }}
{{- toYaml $parent }}
{{- end }}

{{/* Takes `hub`. */}}
{{- define "gpuslice.checkHttpRoute" -}}
{{- with .httpRoute }}
{{- if .enabled }}
{{- if not .parentRefs }}
{{- fail "hub.httpRoute.enabled is true without hub.httpRoute.parentRefs: no Gateway would use it. Name one, such as {name: gateway, namespace: gateways}." }}
{{- end }}
{{- $sections := dict }}
{{- range .parentRefs }}
{{- $parent := include "gpuslice.parentRef" (omit . "sectionName" "port") }}
{{- $others := get $sections $parent | default list }}
{{- $section := .sectionName | default "" }}
{{- if and $others (or (not $section) (has $section $others) (has "" $others)) }}
{{- fail (printf "hub.httpRoute.parentRefs has %s twice: give each a sectionName of its own, or leave one out." .name) }}
{{- end }}
{{- $_ := set $sections $parent (append $others $section) }}
{{- end }}
{{- if and (eq (include "gpuslice.scheme" $.webConfig) "https") (not .backendTLS.hostname) }}
{{- fail "hub.webConfig.scheme is https, but a Gateway speaks plain HTTP to the hub without a BackendTLSPolicy: set hub.httpRoute.backendTLS.hostname to the name in the hub's certificate." }}
{{- end }}
{{- if and .backendTLS.hostname (ne (include "gpuslice.scheme" $.webConfig) "https") }}
{{- fail "hub.httpRoute.backendTLS.hostname is set, but hub.webConfig.scheme is http: the Gateway would expect TLS of a hub without it. Leave the hostname out, or set hub.webConfig." }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Name, namespace, labels and annotations of an object for the hub. Takes: root, annotations. */}}
{{- define "gpuslice.hubMetadata" -}}
name: {{ include "gpuslice.hubName" .root | quote }}
namespace: {{ include "gpuslice.namespace" .root | quote }}
labels:
  {{- include "gpuslice.labels" (dict "root" .root "hub" true) | nindent 2 }}
{{- with .annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
