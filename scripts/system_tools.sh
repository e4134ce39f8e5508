#!/usr/bin/env bash
# Install what tests need beyond Python, on Debian and Ubuntu: `bash scripts/system_tools.sh`, and with --all also what
# only suites need (browsers, offices), which takes minutes. What cannot be installed makes its tests skip, with the
# reason; `make rotate` counts such a run as no proof.
set -euo pipefail

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null; then sudo -n "$@"; else return 1; fi; }

tools=(
    make:make bwrap:bubblewrap dockerd:docker.io podman:podman newuidmap:uidmap docker-registry:docker-registry
    busybox:busybox-static nginx:nginx-light caddy:caddy openssl:openssl initdb:postgresql redis-server:redis-server
    ip:iproute2 git:git
)
if [ "${1:-}" = --all ]; then
    tools+=(chromium:chromium soffice:libreoffice-calc swriter:libreoffice-writer)
fi

PATH="$PATH:/usr/sbin:/usr/lib/libreoffice/program"
for folder in /usr/lib/postgresql/*/bin; do PATH="$PATH:$folder"; done # Debian keeps them apart
missing=()
for pair in "${tools[@]}"; do
    command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
done
python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
if [ "${1:-}" = --all ] && [ ! -e /usr/lib/python3/dist-packages/uno.py ]; then missing+=(python3-uno); fi
if [ ${#missing[@]} = 0 ]; then exit 0; fi
if ! command -v apt-get >/dev/null; then
    echo "── missing, and there is no apt-get to install them: ${missing[*]}"
    exit 0
fi
echo "── apt-get install ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
{ as_root apt-get update -qq && as_root apt-get install -y -qq --no-install-recommends "${missing[@]}" </dev/null; } \
    || echo "── could not be installed: ${missing[*]}"
