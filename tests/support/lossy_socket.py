"""A Unix socket in front of a PostgreSQL server, which loses answers when a test wants it."""

from __future__ import annotations

import select
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SOCKET = ".s.PGSQL.5432"


class LossySocket:
    """Passes bytes both ways. Once `lose_after` is set, the next answer to a message that has these bytes is lost:
    the server has run the statement, and the client's connection breaks.

    Args:
        folder: where the server's socket is.
    """

    def __init__(self, folder: Path) -> None:
        self._target = str(folder / SOCKET)
        self._folder = tempfile.TemporaryDirectory(prefix="ludus-lossy-")
        self.folder = Path(self._folder.name)
        self.lose_after = b""
        self.lost = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.folder / SOCKET))
        self._listener.listen()
        self._ending = False
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while not self._ending:
            client, _ = self._listener.accept()
            threading.Thread(target=self._pass, args=(client,), daemon=True).start()

    def _pass(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server, suppress(OSError):
            server.connect(self._target)
            losing = False
            while True:
                for ready in select.select([client, server], [], [])[0]:
                    data = ready.recv(65536)
                    if not data:
                        return
                    if ready is client:
                        losing = losing or bool(self.lose_after and self.lose_after in data)
                        server.sendall(data)
                    elif losing:
                        self.lose_after = b""
                        self.lost.set()
                        return
                    else:
                        client.sendall(data)

    def close(self) -> None:
        """Stop accepting, and remove the socket."""
        self._ending = True
        with suppress(OSError), socket.socket(socket.AF_UNIX) as last:
            last.connect(str(self.folder / SOCKET))
        self._thread.join(30)
        self._listener.close()
        self._folder.cleanup()


@contextmanager
def lossy_socket(folder: Path) -> Iterator[LossySocket]:
    """A lossy socket, which is gone at the end."""
    lossy = LossySocket(folder)
    try:
        yield lossy
    finally:
        lossy.close()
