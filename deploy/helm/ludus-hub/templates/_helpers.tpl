{{- define "hub.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}-{{ .Chart.Name }}{{ end }}
{{- end }}

{{- define "hub.selector" -}}
app.kubernetes.io/name: ludus-hub
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "hub.labels" -}}
{{ include "hub.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
