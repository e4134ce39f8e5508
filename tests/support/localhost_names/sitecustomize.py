"""Resolves names below `.localhost` to loopback, as browsers, macOS and systemd-resolved do (RFC 6761, section 6.3)."""

from __future__ import annotations

import socket
from typing import Any

_ask = socket.getaddrinfo


def _resolve(host: Any, *args: Any, **options: Any) -> Any:
    name = host.decode() if isinstance(host, bytes) else host
    return _ask("127.0.0.1" if str(name).endswith(".localhost") else host, *args, **options)


socket.getaddrinfo = _resolve
