"""Listening sockets in a sandbox's own network, on which the server's egress proxy accepts connections.

A socket belongs to the network namespace in which it was created, whichever process holds it. So it is created inside
and handed to the server: by the program inside; or, in a container without Python, by a thread of the server that
enters the container's network namespace, which requires a server that runs as root.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import secrets
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
PORT: Final = 3128
ADDRESS: Final = f"{HOST}:{PORT}"
"""The proxy's address as seen by the programs of a sandbox."""
BACKLOG: Final = 128

_CLONE_NEWNET: Final = 0x40000000


def receive(handoff: socket.socket) -> socket.socket:
    """Receive the listening socket that was sent through a Unix socket.

    Raises:
        OSError: no socket was sent.
    """
    _, descriptors, _, _ = socket.recv_fds(handoff, 1, 1)
    if not descriptors:
        raise OSError("the sandbox sent no socket for its egress proxy")
    os.set_inheritable(descriptors[0], False)
    return socket.socket(fileno=descriptors[0])


def listen_in_netns(process: int) -> socket.socket:
    """Create a listening socket in the network namespace of a process of this machine.

    Raises:
        OSError: this server has no right to do so, or there is no such process.
    """
    outcomes: list[socket.socket | OSError] = []

    def inside() -> None:
        try:
            descriptor = os.open(f"/proc/{process}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            try:
                libc = ctypes.CDLL(None, use_errno=True)
                if libc.setns(descriptor, _CLONE_NEWNET) != 0:
                    code = ctypes.get_errno()
                    raise OSError(code, os.strerror(code))
            finally:
                os.close(descriptor)
            outcomes.append(socket.create_server((HOST, PORT), backlog=BACKLOG))
        except OSError as error:
            outcomes.append(error)

    # A new thread that ends here: the namespace belongs to the thread, so it must not be reused for other work.
    thread = threading.Thread(target=inside, name="ludus-handoff")
    thread.start()
    thread.join()
    (outcome,) = outcomes
    if isinstance(outcome, OSError):
        raise outcome
    return outcome


class SocketHandoff:
    """A Unix socket through which the program inside a container and the server pass descriptors.

    The socket is in a directory that only the server can enter, and is mounted in the container.

    Args:
        folder: the directory, which is empty.
        shared: whether an engine of another user must find the socket; then only its name is secret.
    """

    PATH_INSIDE: Final = "/.ludus-handoff"
    """The path of the Unix socket in the container."""

    def __init__(self, folder: str, *, shared: bool = False) -> None:
        self._folder = Path(folder)
        self.path = self._folder / secrets.token_hex(16)
        if shared:
            self._folder.chmod(0o711)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self.path.chmod(0o666)
        self._listener.listen(1)

    async def accept(self) -> socket.socket:
        """Wait for a connection from the container, and accept no other.

        Raises:
            OSError: the socket was closed.
        """
        self._listener.setblocking(False)
        connection, _ = await asyncio.get_running_loop().sock_accept(self._listener)
        self.close()
        return connection

    def close(self) -> None:
        """Close the Unix socket and remove its directory."""
        self._listener.close()
        with suppress(OSError):
            self.path.unlink()
            self._folder.rmdir()
