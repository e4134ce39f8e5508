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

    def dial(self, asked: dict[str, Any]) -> None:
        """Connect to a port of this sandbox's loopback, and send the connected socket before the reply."""
        import _socket as sockets  # importing `socket` would delay the start of every sandbox

        if len(self._open) >= _AT_ONCE:
            self._refuse(asked, errno.EAGAIN)
            return
        one = sockets.socket(sockets.AF_INET6 if asked["six"] else sockets.AF_INET, sockets.SOCK_STREAM)
        one.setblocking(False)
        code = one.connect_ex(("::1" if asked["six"] else "127.0.0.1", asked["port"]))
        if code not in (0, errno.EINPROGRESS):
            one.close()
            self._refuse(asked, code)
            return
        end = one.fileno()
        self._open[end] = one
        self._loop.watch(end, select.POLLOUT, lambda _: self._settle(one, asked))
        if code == 0:
            self._settle(one, asked)

    def _settle(self, one: socket, asked: dict[str, Any]) -> None:
        import _socket as sockets

        end = one.fileno()
        self._loop.forget(end)
        del self._open[end]
        code = one.getsockopt(sockets.SOL_SOCKET, sockets.SO_ERROR)
        if code == 0:
            send_descriptor(self._loop.config["passing"], end)
            send(self._loop.control, {"id": asked["id"], "ok": True})
        else:
            self._refuse(asked, code)
        one.close()

    def _refuse(self, asked: dict[str, Any], code: int) -> None:
        send(self._loop.control, {"id": asked["id"], "closed": os.strerror(code)})
