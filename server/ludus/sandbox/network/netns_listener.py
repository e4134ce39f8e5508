"""How the server gets a listening socket in a box's own network, which is all that a way out needs.

A socket belongs to the network in which it was made, whoever holds it. So it is made inside, and handed out: by the
program inside a box of bubblewrap's; by Python in a container; or by a thread of the server that steps into the
container's network for a moment, which takes a server that is root.
"""

from __future__ import annotations

import ctypes
import os
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
PORT: Final = 3128
ADDRESS: Final = f"{HOST}:{PORT}"
"""Where a box's programs find the proxy."""
BACKLOG: Final = 128

_CLONE_NEWNET: Final = 0x40000000


def receive(door: socket.socket) -> socket.socket:
    """The listening socket that was sent through a socket.

    Raises:
        OSError: none was.
    """
    _, descriptors, _, _ = socket.recv_fds(door, 1, 1)
    if not descriptors:
        raise OSError("the box made no socket for its way out")
    os.set_inheritable(descriptors[0], False)
    return socket.socket(fileno=descriptors[0])


def listen_in_netns(process: int) -> socket.socket:
    """A listening socket in the network of a process of this machine.

    Raises:
        OSError: this server may not, or there is no such process.
    """
    made: list[socket.socket | OSError] = []

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
            made.append(socket.create_server((HOST, PORT), backlog=BACKLOG))
        except OSError as error:
            made.append(error)

    # A thread that ends here: what it stepped into is its own, and no other work may be given to it.
    thread = threading.Thread(target=inside, name="ludus-door")
    thread.start()
    thread.join()
    (outcome,) = made
    if isinstance(outcome, OSError):
        raise outcome
    return outcome


class SocketHandoff:
    """A place in the file system where a program in a container hands its socket over; gone once it has.

    A directory that only the server can enter, with one socket in it that is shown in the container.
    """

    SEEN: Final = "/.ludus-door"
    """Where the container sees it."""
    PROGRAM: Final = (
        "import array, socket as s\n"
        f"l = s.create_server(({HOST!r}, {PORT}), backlog={BACKLOG})\n"
        f"c = s.socket(s.AF_UNIX)\nc.connect({SEEN!r})\n"
        "c.sendmsg([b'x'], [(s.SOL_SOCKET, s.SCM_RIGHTS, array.array('i', [l.fileno()]))])\n"
    )
    """For the container's Python."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self.path = self._folder / "door"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self.path.chmod(0o666)
        self._listener.listen(1)

    def receive(self, seconds: float) -> socket.socket:
        """The socket that was handed over.

        Raises:
            OSError: none was, in that time.
        """
        self._listener.settimeout(seconds)
        connection, _ = self._listener.accept()
        with connection:
            connection.settimeout(seconds)
            return receive(connection)

    def close(self) -> None:
        """Remove it."""
        self._listener.close()
        with suppress(OSError):
            self.path.unlink()
            self._folder.rmdir()
