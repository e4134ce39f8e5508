"""Files by their SHA-256 digest: written once, never changed.

A file is written under a temporary name, flushed to the disk, and then linked to its final name, which fails if that
exists. So a reader never sees a part of a file, whenever the process dies; what it leaves under a temporary name is
removed by `sweep`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ludus.protocol.errors import PayloadTooLarge
from ludus.protocol.registry_errors import BlobMissing, DigestMismatch

CHUNK_BYTES: Final = 1024 * 1024
"""How much of a file is read at once."""

STALE_SECONDS: Final = 24 * 3600.0
"""The age from which a temporary file is of a process that died."""

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


class Incoming:
    """A file that is being received: its bytes are counted and hashed as they come.

    Attributes:
        path: where it is, under a temporary name.
        size: the bytes received so far.
    """

    def __init__(self, path: Path, most: int) -> None:
        self.path = path
        self.size = 0
        self._most = most
        self._file = path.open("xb")
        self._hash = hashlib.sha256()

    @property
    def sha256(self) -> str:
        """The digest of the bytes received so far."""
        return self._hash.hexdigest()

    def write(self, data: bytes) -> None:
        """Add bytes.

        Raises:
            PayloadTooLarge: the file is larger than it may be.
        """
        self.size += len(data)
        if self.size > self._most:
            raise PayloadTooLarge(
                f"the file is larger than the {self._most} bytes this hub accepts", limit="wheel_bytes"
            )
        self._hash.update(data)
        self._file.write(data)

    def flush(self) -> None:
        """Write everything to the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file, and remove it from its temporary name."""
        self._file.close()
        self.path.unlink(missing_ok=True)


class Blobs:
    """A folder of files by digest.

    Args:
        folder: the folder, which is created.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._incoming = folder / "incoming"
        self._incoming.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def receiving(self, most: int) -> Iterator[Incoming]:
        """Yield a file to write to, of at most `most` bytes; what is not kept by `keep` is removed."""
        incoming = Incoming(self._incoming / secrets.token_hex(16), most)
        try:
            yield incoming
        finally:
            incoming.close()

    def keep(self, incoming: Incoming) -> str:
        """Put a received file under its digest, and return the digest. A file that is there stays as it is."""
        incoming.flush()
        digest = incoming.sha256
        self._link(incoming.path, digest)
        return digest

    def put(self, data: bytes) -> str:
        """Put bytes under their digest, and return the digest."""
        with self.receiving(len(data)) as incoming:
            incoming.write(data)
            return self.keep(incoming)

    def _link(self, source: Path, digest: str) -> None:
        target = self.path(digest)
        target.parent.mkdir(exist_ok=True)
        with contextlib.suppress(FileExistsError):  # another one may still be about to flush its folder
            os.link(source, target)
        for folder in (target.parent, self._folder):
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def path(self, digest: str) -> Path:
        """Return where the file with a digest is, or would be.

        Raises:
            DigestMismatch: `digest` is not 64 hexadecimal digits.
        """
        if not _DIGEST.fullmatch(digest):
            raise DigestMismatch(f"{digest[:80]!r} is not a SHA-256 digest: it takes 64 digits of 0-9 and a-f")
        return self._folder / digest[:2] / digest

    def size_of(self, digest: str) -> int:
        """Return the size of a file in bytes.

        Raises:
            BlobMissing: there is no file with this digest.
        """
        try:
            return self.path(digest).stat().st_size
        except FileNotFoundError:
            raise BlobMissing(f"the hub has lost the file {digest}; restore it from a backup") from None

    def read(self, digest: str) -> Iterator[bytes]:
        """Yield the content of a file in pieces.

        Raises:
            BlobMissing: there is no file with this digest.
        """
        self.size_of(digest)
        with self.path(digest).open("rb") as file:
            while piece := file.read(CHUNK_BYTES):
                yield piece

    def digests(self) -> Iterator[str]:
        """Yield the digests of all files, in order."""
        for folder in sorted(self._folder.glob("[0-9a-f][0-9a-f]")):
            yield from sorted(file.name for file in folder.iterdir() if _DIGEST.fullmatch(file.name))

    def sweep(self) -> int:
        """Remove temporary files that are older than `STALE_SECONDS`, and return their number."""
        stale = [file for file in self._incoming.iterdir() if time.time() - file.stat().st_mtime > STALE_SECONDS]
        for file in stale:
            file.unlink(missing_ok=True)
        return len(stale)
