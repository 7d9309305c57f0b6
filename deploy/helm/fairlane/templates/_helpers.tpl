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

{{/* How a probe asks for a path. The kubelet has no client certificate, so where one is required the pod asks itself. */}}
{{- define "fairlane.probe" -}}
{{- $ := index . 0 -}}
{{- if $.Values.tls.requireClientCertificates -}}
exec: {command: [python, -m, fairlane.probe, {{ index . 1 }}]}
timeoutSeconds: 3
{{- else -}}
httpGet: {path: {{ index . 1 }}, port: http, scheme: {{ include "fairlane.scheme" $ | upper }}}
{{- end -}}
{{- end -}}
