{{/*
The groups of a rule file. Takes: root, text (of the user's own file), path (of the chart's), value (the name of the
text in prometheusRule).
*/}}
{{- define "gpuslice.ruleFile" -}}
{{- $read := .text | default (.root.Files.Get .path) | fromYaml }}
{{- $rules := list }}
{{- $valid := kindIs "slice" $read.groups }}
{{- range $valid | ternary $read.groups list }}
{{- $of := kindIs "map" . | ternary . dict }}
{{- $valid = and $valid (kindIs "slice" (get $of "rules")) }}
{{- $rules = kindIs "slice" (get $of "rules") | ternary (concat $rules (get $of "rules")) $rules }}
{{- end }}
{{- range $rules }}
{{- $valid = and $valid (kindIs "map" .) }}
{{- end }}
{{- if not $valid }}
{{- fail (printf "prometheusRule.%s is not a file of rules: %s. Set it by --set-file to one that `python -m alerts` wrote." .value (get $read "Error" | default "a list of `groups` with `rules` is missing")) }}
{{- end }}
{{- if eq .root.Values.monitoring.place "victoria-metrics" }}
{{- /* Written out: a default that the API server adds is a difference for ever to Argo CD. */}}
{{- range $rules }}
{{- $_ := set . "alert" (.alert | default "") }}
{{- $_ := set . "record" (.record | default "") }}
{{- end }}
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
{{- if and .values.grafanaUrl (hasPrefix "/d/" ($own.dashboard | default "")) }}
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
