{{/* The groups of a rule file, unchanged. Takes: root, text (of the user's own file), path (of the chart's). */}}
{{- define "gpuslice.ruleFile" -}}
{{- $text := .text | default (.root.Files.Get .path) }}
{{- $read := $text | fromYaml }}
{{- if not (kindIs "slice" $read.groups) }}
{{- fail (printf "prometheusRule.%s: not a file of rules with `groups`: %s" .value (get $read "Error" | default "it has none")) }}
{{- end }}
{{- toYaml $read.groups }}
{{- end }}

{{/* One alert with the changes of the values. Takes: rule, values. */}}
{{- define "gpuslice.alert" -}}
{{- $change := get .values.overrides .rule.alert | default dict }}
{{- $labels := merge (dict) ($change.labels | default dict) .values.alertLabels .rule.labels }}
{{- with $change.severity }}
{{- $_ := set $labels "severity" . }}
{{- end }}
{{- $own := deepCopy .rule.annotations }}
{{- with .values.runbookUrl }}
{{- $_ := set $own "runbook_url" (printf "%s/%s.md" (trimSuffix "/" .) $.rule.alert) }}
{{- end }}
{{- if and .values.grafanaUrl (hasPrefix "/d/" ($own.dashboard | default "")) }}
{{- $_ := set $own "dashboard" (printf "%s%s" (trimSuffix "/" .values.grafanaUrl) $own.dashboard) }}
{{- end }}
{{- $annotations := merge (dict) ($change.annotations | default dict) .values.alertAnnotations $own }}
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
{{- if not (has .alert $values.disabled) }}
{{- $rules = append $rules (include "gpuslice.alert" (dict "rule" . "values" $values) | fromYaml) }}
{{- end }}
{{- end }}
{{- if $rules }}
{{- $groups = append $groups (merge (dict "rules" $rules) .) }}
{{- end }}
{{- end }}
{{- toYaml $groups }}
{{- end }}
