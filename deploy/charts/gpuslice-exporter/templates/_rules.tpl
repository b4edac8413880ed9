{{/*
The groups of a rule file. Takes: root, text (of the user's own file), path (of the chart's), value (the name of the
text in prometheusRule).
*/}}
{{- define "gpuslice.ruleFile" -}}
{{- $read := .text | default (.root.Files.Get .path) | fromYaml }}
{{- $victoria := eq .root.Values.monitoring.place "victoria-metrics" }}
{{- $valid := kindIs "slice" $read.groups }}
{{- range $valid | ternary $read.groups list }}
{{- if not (and (kindIs "map" .) (kindIs "string" (index . "name")) (kindIs "slice" (index . "rules"))) }}
{{- $valid = false }}
{{- else }}
{{- range .rules }}
{{- if not (and (kindIs "map" .) (kindIs "string" .expr) (kindIs "string" (.alert | default "")) (kindIs "map" (.labels | default dict)) (kindIs "map" (.annotations | default dict))) }}
{{- $valid = false }}
{{- else if $victoria }}
{{- /* Written out: a default that the API server adds is a difference for ever to Argo CD. */}}
{{- $_ := set . "alert" (.alert | default "") }}
{{- $_ := set . "record" (.record | default "") }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- if not $valid }}
{{- fail (printf "prometheusRule.%s is not a file of rules: %s. Set it by --set-file to one that `python -m alerts` wrote." .value (get $read "Error" | default "it has no `groups` with `name` and `rules`")) }}
{{- end }}
{{- toYaml $read.groups }}
{{- end }}

{{/* One alert with the changes of the values. Takes: rule, values. */}}
{{- define "gpuslice.alert" -}}
{{- $change := get (.values.overrides | default dict) .rule.alert | default dict }}
{{- $labels := merge (dict) ($change.labels | default dict) (.values.alertLabels | default dict) (.rule.labels | default dict) }}
{{- with $change.severity }}
{{- $_ := set $labels "severity" . }}
{{- end }}
{{- $own := .rule.annotations | default dict | deepCopy }}
{{- with .values.runbookUrl }}
{{- $_ := set $own "runbook_url" (printf "%s/%s.md" (trimSuffix "/" .) $.rule.alert) }}
{{- end }}
{{- if and .values.grafanaUrl (kindIs "string" $own.dashboard) (hasPrefix "/d/" $own.dashboard) }}
{{- $_ := set $own "dashboard" (printf "%s%s" (trimSuffix "/" .values.grafanaUrl) $own.dashboard) }}
{{- end }}
{{- $annotations := merge (dict) ($change.annotations | default dict) (.values.alertAnnotations | default dict) $own }}
{{- $alert := merge (dict "labels" $labels "annotations" $annotations) .rule }}
{{- with get $change "for" }}
{{- $_ := set $alert "for" . }}
{{- end }}
{{- toYaml $alert }}
{{- end }}

{{/* The groups of alerts without disabled ones, and without empty groups. */}}
{{- define "gpuslice.alertGroups" -}}
{{- $values := .Values.prometheusRule }}
{{- $groups := list }}
{{- range include "gpuslice.ruleFile" (dict "root" . "text" $values.alertsFile "path" "files/rules/gpuslice-alerts.yaml" "value" "alertsFile") | fromYamlArray }}
{{- $rules := list }}
{{- range .rules }}
{{- if not .alert }}
{{- $rules = append $rules . }}
{{- else if not (has .alert ($values.disabled | default list)) }}
{{- $rules = append $rules (include "gpuslice.alert" (dict "rule" . "values" $values) | fromYaml) }}
{{- end }}
{{- end }}
{{- if $rules }}
{{- $groups = append $groups (merge (dict "rules" $rules) .) }}
{{- end }}
{{- end }}
{{- toYaml $groups }}
{{- end }}
