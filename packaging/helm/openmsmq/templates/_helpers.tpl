{{- define "openmsmq.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- /* 40 characters: a pod's labels hold it with a hash behind, and its names with "-external". */ -}}
{{- define "openmsmq.fullname" -}}
{{- $name := include "openmsmq.name" . -}}
{{- $full := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- default $full .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "openmsmq.selector" -}}
app.kubernetes.io/name: {{ include "openmsmq.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "openmsmq.labels" -}}
{{ include "openmsmq.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "openmsmq.image" -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}

{{- define "openmsmq.computerName" -}}
{{- default (printf "%s-0" (include "openmsmq.fullname" .)) .Values.computerName -}}
{{- end -}}

{{- define "openmsmq.webPort" -}}
{{- add 18021 .Values.portOffset -}}
{{- end -}}

{{- /* The ports of the wire, as a list for containers, services and network policies to choose from. */ -}}
{{- define "openmsmq.ports" -}}
- {name: endpoint-mapper, port: {{ add 135 .Values.portOffset }}}
- {name: messages, port: {{ add 1801 .Values.portOffset }}}
- {name: qmcomm, port: {{ add 2103 .Values.portOffset }}}
{{- end -}}

{{- /* Settings of one table in TOML: scalars and lists of text are written there as in JSON. */ -}}
{{- define "openmsmq.toml" -}}
{{- range $name, $value := . }}
{{ $name }} = {{ toJson $value }}
{{- end }}
{{- end -}}

{{- /* By HTTPS the node asks the pod; without, the server answers on loopback alone, so the probe asks from inside. */ -}}
{{- define "openmsmq.probe" -}}
{{- if not .root.Values.web.enabled }}
tcpSocket: {port: qmcomm}
{{- else if .root.Values.web.tlsSecret }}
httpGet: {path: {{ .path }}, port: web, scheme: HTTPS}
{{- else }}
exec:
  command:
    - python3
    - -c
    - import urllib.request; urllib.request.urlopen("http://127.0.0.1:{{ include "openmsmq.webPort" .root }}{{ .path }}", timeout=5)
{{- end }}
timeoutSeconds: 10
{{- end -}}

{{- define "openmsmq.validate" -}}
{{- $web := .Values.web -}}
{{- if and $web.ingress.enabled (not $web.ingress.host) -}}
{{- fail "web.ingress.host is empty; allowed: the name by which browsers reach the console" -}}
{{- end -}}
{{- range $what, $wants := dict "web.ingress.enabled" $web.ingress.enabled "metrics.serviceMonitor.enabled" .Values.metrics.serviceMonitor.enabled -}}
{{- if and $wants (not (and $web.enabled $web.tlsSecret)) -}}
{{- fail (printf "%s is true, but nothing outside of the pod reaches the HTTP server: set web.enabled and web.tlsSecret" $what) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.metrics.serviceMonitor.tokenSecret.name) (not .Values.settings.allow_anonymous) -}}
{{- fail "metrics.serviceMonitor.tokenSecret.name is empty, and the figures need a login: create a token with `openmsmq token create --role monitor`, and a secret from it" -}}
{{- end -}}
{{- if and .Values.users.administrators (not .Values.users.existingSecret) -}}
{{- fail "users.administrators are given without users.existingSecret, which has their passwords" -}}
{{- end -}}
{{- end -}}
