{{/*
Names of the variables that Kubernetes replaces in a text, as a list in JSON: X of $(X), but not of $$(X), which is the
text $(X). Takes the text.
*/}}
{{- define "gpuslice.references" -}}
{{- $names := list }}
{{- range regexFindAll "(?s)\\$(\\([^)]*\\)|.)" . -1 }}
{{- if and (hasPrefix "$(" .) (hasSuffix ")" .) }}
{{- $names = append $names (. | trimPrefix "$(" | trimSuffix ")") }}
{{- end }}
{{- end }}
{{- toJson $names }}
{{- end }}

{{/*
Those of them that a container does not have; it has those of the API server's Service too. Takes: text, names.
*/}}
{{- define "gpuslice.unknown" -}}
{{- $unknown := list }}
{{- range include "gpuslice.references" .text | fromJsonArray }}
{{- if not (or (has . $.names) (regexMatch "^KUBERNETES_(SERVICE|PORT)" .)) }}
{{- $unknown = append $unknown . }}
{{- end }}
{{- end }}
{{- toJson $unknown }}
{{- end }}

{{/* Ends the rendering if there is one. Takes: value (its name in the values), text, names, path. */}}
{{- define "gpuslice.checkReferences" -}}
{{- range include "gpuslice.unknown" . | fromJsonArray }}
{{- fail (printf "%s has $(%s), a variable that the container does not have: add %s to %sextraEnv, or write $$(%s) for the text itself." $.value . . $.path .) }}
{{- end }}
{{- end }}

{{/*
Variables of a container, in an order in which each refers to earlier ones only, as Kubernetes requires: the user's
first, then the chart's, but for those that the user replaces. Takes: path ("" or "hub."), own (the chart's, a list as
YAML), extra, texts (what else Kubernetes replaces variables in, by its name in the values).
*/}}
{{- define "gpuslice.env" -}}
{{- $waiting := .extra | default list }}
{{- $names := list }}
{{- range $waiting }}
{{- if has .name $names }}
{{- fail (printf "%sextraEnv has %s twice: leave one of them out." $.path .name) }}
{{- end }}
{{- $names = append $names .name }}
{{- end }}
{{- $values := dict }}
{{- range $names }}
{{- $_ := set $values . (printf "%sextraEnv %s" $.path .) }}
{{- end }}
{{- range .own | fromYamlArray }}
{{- if not (has .name $names) }}
{{- $waiting = append $waiting . }}
{{- $_ := set $values .name (printf "%sconfig.%s" $.path (.name | trimPrefix "GPUSLICE_" | lower | replace "_" "-")) }}
{{- end }}
{{- end }}
{{- if eq .path "hub." }}
{{- $_ := set $values "GPUSLICE_PROMETHEUS_URL" "hub.prometheusUrl" }}
{{- end }}
{{- range $waiting }}
{{- include "gpuslice.checkReferences" (dict "value" (get $values .name) "text" (.value | default "") "names" (keys $values) "path" $.path) }}
{{- end }}
{{- range $value, $text := .texts }}
{{- include "gpuslice.checkReferences" (dict "value" $value "text" $text "names" (keys $values) "path" $.path) }}
{{- end }}
{{- $env := list }}
{{- $known := list }}
{{- range $waiting }}
{{- /* One more turn for all that still wait. */}}
{{- $later := list }}
{{- range $waiting }}
{{- if include "gpuslice.unknown" (dict "text" (.value | default "") "names" $known) | fromJsonArray }}
{{- $later = append $later . }}
{{- else }}
{{- $env = append $env . }}
{{- $known = append $known .name }}
{{- end }}
{{- end }}
{{- $waiting = $later }}
{{- end }}
{{- range $waiting }}
{{- fail (printf "%s is %s, which leads back to it: let it refer to other variables only." (get $values .name) .value) }}
{{- end }}
{{- toYaml $env }}
{{- end }}

{{/* Paths in which Kubernetes replaces variables, one in a line. Takes a list of mounts. */}}
{{- define "gpuslice.subPaths" -}}
{{- range . }}
{{- .subPathExpr | default "" }}
{{ end }}
{{- end }}
