#!/usr/bin/env bash
# Install what tests need beyond Python, on Debian and Ubuntu: `bash scripts/system_tools.sh`, and with --all also what
# only suites need (browsers, offices), which takes minutes. What cannot be installed makes its tests skip, with the
# reason; `make rotate` counts such a run as no proof.
set -euo pipefail

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null; then sudo -n "$@"; else return 1; fi; }

# Without these two nothing else works here, so they do not wait for a package that another system lacks.
needed=()
command -v make >/dev/null || needed+=(make)
python3 -c 'import ensurepip' 2>/dev/null || needed+=(python3-venv)

tools=(
    bwrap:bubblewrap dockerd:docker.io podman:podman newuidmap:uidmap docker-registry:docker-registry
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
if [ "${1:-}" = --all ] && [ ! -e /usr/lib/python3/dist-packages/uno.py ]; then missing+=(python3-uno); fi

if [ ${#needed[@]} = 0 ] && [ ${#missing[@]} = 0 ]; then exit 0; fi
if ! command -v apt-get >/dev/null; then
    echo "── missing, and there is no apt-get to install them: ${needed[*]} ${missing[*]}"
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
as_root apt-get update -qq || echo "── the lists of packages could not be updated"
for packages in "${needed[*]}" "${missing[*]}"; do
    if [ -z "$packages" ]; then continue; fi
    echo "── apt-get install $packages"
    # shellcheck disable=SC2086 # names without spaces
    as_root apt-get install -y -qq --no-install-recommends $packages </dev/null || echo "── could not be installed: $packages"
done
