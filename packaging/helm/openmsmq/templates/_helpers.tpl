{{- define "openmsmq.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- /* 40 characters: labels of the pod append a hash, and other names append "-external". */ -}}
{{- define "openmsmq.fullname" -}}
{{- $name := include "openmsmq.name" . -}}
{{- $full := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- default $full .Values.fullnameOverride | replace "." "-" | trunc 40 | trimSuffix "-" -}}
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

{{- /* Ports for calls and messages; used by containers, services and network policies. */ -}}
{{- define "openmsmq.ports" -}}
- {name: endpoint-mapper, port: {{ add 135 .Values.portOffset }}}
- {name: messages, port: {{ add 1801 .Values.portOffset }}}
- {name: qmcomm, port: {{ add 2103 .Values.portOffset }}}
{{- end -}}

{{- /* Settings of one TOML table. Scalars and lists of strings have the same syntax in TOML and JSON. */ -}}
{{- define "openmsmq.toml" -}}
{{- range $name, $value := . }}
{{ $name }} = {{ toJson $value }}
{{- end }}
{{- end -}}

{{- /* Without TLS, the HTTP server listens on loopback only, so the probe runs in the container. */ -}}
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
{{- if not (regexMatch "^[a-z]" (include "openmsmq.fullname" .)) -}}
{{- fail "names of services must begin with a letter, and the name of the release does not; set fullnameOverride" -}}
{{- end -}}
{{- $web := .Values.web -}}
{{- if and $web.ingress.enabled (not $web.ingress.host) -}}
{{- fail "web.ingress.host is empty; set the host name that browsers use for the console" -}}
{{- end -}}
{{- range $what, $wants := dict "web.ingress.enabled" $web.ingress.enabled "metrics.serviceMonitor.enabled" .Values.metrics.serviceMonitor.enabled -}}
{{- if and $wants (not (and $web.enabled $web.tlsSecret)) -}}
{{- fail (printf "%s is true, but the HTTP server is not reachable from outside the pod; set web.enabled and web.tlsSecret" $what) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.metrics.serviceMonitor.tokenSecret.name) (not .Values.settings.allow_anonymous) -}}
{{- fail "metrics.serviceMonitor.tokenSecret.name is empty, but metrics require a login; create a token with `openmsmq token create --role monitor` and put it into a secret" -}}
{{- end -}}
{{- if and .Values.users.administrators (not .Values.users.existingSecret) -}}
{{- fail "users.administrators is set without users.existingSecret, which has the passwords; set users.existingSecret" -}}
{{- end -}}
{{- end -}}
