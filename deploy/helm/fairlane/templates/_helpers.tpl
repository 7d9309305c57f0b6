{{- define "fairlane.name" -}}
{{- printf "%s" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "fairlane.selector" -}}
app.kubernetes.io/name: fairlane
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "fairlane.labels" -}}
{{ include "fairlane.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "fairlane.scheme" -}}
{{- if .Values.tls.existingSecret }}https{{ else }}http{{ end -}}
{{- end -}}
