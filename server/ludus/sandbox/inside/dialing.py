"""Connections from the server to the ports of a sandbox: made inside, in the sandbox's own network, and handed over."""

from __future__ import annotations

import errno
import os
import select

from ludus.sandbox.inside.messages import send, send_descriptor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from typing import Any

    from ludus.sandbox.inside.loop import Loop

_AT_ONCE = 64


class Dials:
    """The connections that are being made."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._open: dict[int, socket] = {}

    def dial(self, request: dict[str, Any]) -> None:
        """Connect to a port of this sandbox's loopback, and send the connected socket before the reply."""
        import _socket as sockets  # importing `socket` would delay the start of every sandbox

        if len(self._open) >= _AT_ONCE:
            self._refuse(request, errno.EAGAIN)
            return
        connection = sockets.socket(sockets.AF_INET6 if request["six"] else sockets.AF_INET, sockets.SOCK_STREAM)
        connection.setblocking(False)
        code = connection.connect_ex(("::1" if request["six"] else "127.0.0.1", request["port"]))
        if code not in (0, errno.EINPROGRESS):
            connection.close()
            self._refuse(request, code)
            return
        end = connection.fileno()
        self._open[end] = connection
        self._loop.watch(end, select.POLLOUT, lambda _: self._settle(connection, request))
        if code == 0:
            self._settle(connection, request)

    def _settle(self, connection: socket, request: dict[str, Any]) -> None:
        import _socket as sockets

        end = connection.fileno()
        self._loop.forget(end)
        del self._open[end]
        code = connection.getsockopt(sockets.SOL_SOCKET, sockets.SO_ERROR)
        if code == 0:
            send_descriptor(self._loop.config["passing"], end)
            send(self._loop.control, {"id": request["id"], "ok": True})
        else:
            self._refuse(request, code)
        connection.close()

    def _refuse(self, request: dict[str, Any], code: int) -> None:
        send(self._loop.control, {"id": request["id"], "closed": os.strerror(code)})
