{{- define "sage.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else if eq .Values.image.pullPolicy "Never" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag }}
{{- else -}}
{{ fail "image: give the digest of your image (sha256:…), or pullPolicy: Never for one on the nodes" }}
{{- end -}}
{{- end -}}
{{- define "sage.settings" -}}
- name: SAGE_CHECKPOINT_URL
  valueFrom: {secretKeyRef: {name: {{ .Values.secret | quote }}, key: checkpoint-url}}
- name: SAGE_LEDGER
  valueFrom: {secretKeyRef: {name: {{ .Values.secret | quote }}, key: ledger-url}}
{{- end -}}
{{- define "sage.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}
{{- define "sage.mounts" -}}
- {name: runs, mountPath: /srv/sage}
- {name: tmp, mountPath: /tmp}
{{- if .Values.data }}
- {name: data, mountPath: /data, readOnly: true}
{{- end }}
{{- end -}}
{{- define "sage.volumes" -}}
- name: runs
  persistentVolumeClaim: {claimName: {{ .Release.Name }}-runs}
- name: tmp
  emptyDir: {}
{{- if .Values.data }}
- name: data
  persistentVolumeClaim: {claimName: {{ .Values.data | quote }}, readOnly: true}
{{- end }}
{{- end -}}
{{- define "sage.pod" -}}
securityContext: {runAsNonRoot: true, runAsUser: 10001, runAsGroup: 10001, fsGroup: 10001, seccompProfile: {type: RuntimeDefault}}
automountServiceAccountToken: false
shareProcessNamespace: true {{- /* process 1 would ignore SIGTERM as long as SAGE loads */}}
{{- end -}}
