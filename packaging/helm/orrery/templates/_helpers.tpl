{{- define "orrery.name" -}}
{{- if contains "orrery" .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-orrery" .Release.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "orrery.selector" -}}
app.kubernetes.io/name: orrery
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "orrery.labels" -}}
{{ include "orrery.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "orrery.gateway" -}}
{{- if not (has .Values.mode (list "embedded" "gateway")) }}{{ fail "mode must be embedded or gateway" }}{{ end -}}
{{- if eq .Values.mode "gateway" }}true{{ end }}
{{- end }}

{{- /* The name of the secret with the key, or nothing if the server generates its own. */ -}}
{{- define "orrery.secret" -}}
{{- if .Values.existingSecret }}{{ .Values.existingSecret }}
{{- else if or .Values.key .Values.store }}{{ include "orrery.name" . }}
{{- end }}
{{- end }}

{{- define "orrery.pod" -}}
metadata:
  labels:
    {{- include "orrery.labels" . | nindent 4 }}
  {{- with .Values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  automountServiceAccountToken: false
  # Requests have 10 seconds to finish, then the store is closed.
  terminationGracePeriodSeconds: 45
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    seccompProfile: {type: RuntimeDefault}
  {{- if include "orrery.gateway" . }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "orrery.selector" . | nindent 10 }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: orrery
      image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: [serve]
      env:
        - {name: ORRERY_LISTEN, value: "0.0.0.0:8081"}
        - {name: ORRERY_PROFILE, value: {{ .Values.profile | quote }}}
        - name: ORRERY_CERT_NAME
          value: {{ prepend .Values.certificateNames (include "orrery.name" .) | join "," | quote }}
        {{- if include "orrery.gateway" . }}
        - name: ORRERY_STORE
          valueFrom: {secretKeyRef: {name: {{ include "orrery.secret" . }}, key: store}}
        {{- else }}
        - {name: ORRERY_DATA, value: /data}
        {{- end }}
        {{- if or .Values.existingSecret .Values.key }}
        - name: ORRERY_KEY
          valueFrom: {secretKeyRef: {name: {{ include "orrery.secret" . }}, key: key}}
        {{- end }}
        {{- range $name, $value := .Values.env }}
        - {name: {{ $name | quote }}, value: {{ $value | quote }}}
        {{- end }}
      ports:
        - {name: https, containerPort: 8081}
        - {name: direct, containerPort: 10250}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      startupProbe:
        httpGet: {path: /ready, port: https, scheme: HTTPS}
        periodSeconds: 2
        failureThreshold: 150
      readinessProbe:
        httpGet: {path: /ready, port: https, scheme: HTTPS}
        periodSeconds: 5
      livenessProbe:
        httpGet: {path: /alive, port: https, scheme: HTTPS}
        periodSeconds: 10
        failureThreshold: 6
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      {{- if not (include "orrery.gateway" .) }}
      volumeMounts:
        - {name: data, mountPath: /data}
      {{- end }}
{{- end }}
