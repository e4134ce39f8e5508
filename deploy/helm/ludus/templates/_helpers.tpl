{{- define "ludus.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}-{{ .Chart.Name }}{{ end }}
{{- end }}

{{- define "ludus.labels" -}}
app.kubernetes.io/name: ludus
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "ludus.serverLabels" -}}
app.kubernetes.io/name: ludus
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: server
{{- end }}

{{- define "ludus.gatewayLabels" -}}
app.kubernetes.io/name: ludus
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: gateway
{{- end }}

{{- define "ludus.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ . }}
runAsGroup: {{ . }}
fsGroup: {{ . }}
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "ludus.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* A gateway for N servers, as docs/snippets/nginx-workers.conf has it for two. */}}
{{- define "ludus.nginx" -}}
{{- $name := include "ludus.name" . -}}
{{- $replicas := int .Values.replicas -}}
worker_processes auto;
pid /tmp/nginx.pid;

events {
    worker_connections {{ int .Values.gateway.connections }};
}

http {
    access_log off;     # a play URL is a credential
    client_body_temp_path /tmp/client_body;
    proxy_temp_path       /tmp/proxy;
    fastcgi_temp_path     /tmp/fastcgi;
    uwsgi_temp_path       /tmp/uwsgi;
    scgi_temp_path        /tmp/scgi;

    map $http_upgrade $connection_upgrade {
        default upgrade;
        ""      "";
    }

    # The worker that a request names: in its path, in our client's header, or in the id of its ORS session.
    map $uri $worker_in_path {
        default "";
        "~^/workers/(?<at_channel>[a-z0-9]{1,16})/channel$" $at_channel;
        "~^/play/play_(?<at_play>[a-z0-9]{1,16})\."         $at_play;
    }
    map $http_ludus_episode $worker_in_header {
        default "";
        "~^[eg]_(?<of_episode>[a-z0-9]{1,16})\."            $of_episode;
    }
    map $http_x_session_id $worker_in_session {
        default "";
        "~^(?<of_session>[a-z0-9]{1,16})\."                 $of_session;
    }
    map $worker_in_path:$worker_in_header:$worker_in_session $ludus_server {
        default     any;
{{- range $number := until $replicas }}
        "~^:*w{{ $number }}\b"  w{{ $number }};
{{- end }}
    }

    # Each server has a Service of its own: its address stays when the pod gets another one.
{{- range $number := until $replicas }}
    upstream w{{ $number }}  { server {{ $name }}-{{ $number }}:8000 max_fails=0; keepalive 64; }
{{- end }}

    # Everything else, such as starts: a client keeps its server, so that a start that is sent again runs once.
    upstream any {
        hash $remote_addr$http_authorization consistent;
{{- range $number := until $replicas }}
        server {{ $name }}-{{ $number }}:8000 max_fails=0;
{{- end }}
    }

    server {
        listen 8081;

        location = /health { return 200; }
    }

    server {
        listen 8080;

        location = /metrics { return 404; }    # each server has its own

        location / {
            proxy_pass http://$ludus_server;
            proxy_http_version 1.1;

            proxy_set_header Host              $host;
            proxy_set_header X-Forwarded-For   $remote_addr;
            proxy_set_header X-Forwarded-Proto $scheme;
            proxy_set_header X-Forwarded-Host  $http_host;
            proxy_set_header X-Forwarded-Port  "";
            proxy_set_header X-Forwarded-Prefix "";
            proxy_set_header Forwarded         "";

            proxy_set_header Upgrade    $http_upgrade;
            proxy_set_header Connection $connection_upgrade;

            proxy_buffering         off;
            proxy_request_buffering off;
            proxy_connect_timeout   5s;
            proxy_read_timeout      1h;
            proxy_send_timeout      1h;

            client_max_body_size {{ .Values.gateway.bodySize }};
            proxy_next_upstream  off;
        }
    }
}
{{- end }}
