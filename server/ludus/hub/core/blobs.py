"""Files by their SHA-256 digest: written once, never changed. They lie in a folder, or in an object store.

`BlobStore` is what the hub uses; `Blobs` is a folder, and `S3Blobs` of `object_store.py` a bucket. In a folder, a
file is written under a temporary name, flushed to the disk, and then linked to its final name, which fails if that
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
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from ludus.protocol.errors import PayloadTooLarge
from ludus.registry.types.errors import BlobMissing, DigestMismatch

CHUNK_BYTES: Final = 1024 * 1024
"""How much of a file is read at once."""

STALE_SECONDS: Final = 24 * 3600.0
"""The age from which a temporary file is of a process that died."""

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


class Incoming:
    """A file that is being received: its bytes are counted and hashed as they come.

    Args:
        path: where it is, under a temporary name.
        most: the most bytes.
        limit: the name of that limit, for the error.

    Attributes:
        path: where it is, under a temporary name.
        size: the bytes received so far.
    """

    def __init__(self, path: Path, most: int, limit: str) -> None:
        self.path = path
        self.size = 0
        self._most = most
        self._limit = limit
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
            raise PayloadTooLarge(f"the file is larger than the {self._most} bytes this hub accepts", limit=self._limit)
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


class BlobStore(ABC):
    """Files by digest. All methods block, and any thread may call them.

    Args:
        incoming: the folder for files that are being received, which is created.
    """

    def __init__(self, incoming: Path) -> None:
        self._incoming = incoming
        self._incoming.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def receiving(self, most: int, limit: str = "wheel_bytes") -> Iterator[Incoming]:
        """Yield a file to write to, of at most `most` bytes; what is not kept by `keep` is removed."""
        incoming = Incoming(self._incoming / secrets.token_hex(16), most, limit)
        try:
            yield incoming
        finally:
            incoming.close()

    def put(self, data: bytes) -> str:
        """Put bytes under their digest, and return the digest."""
        with self.receiving(len(data)) as incoming:
            incoming.write(data)
            return self.keep(incoming)

    def sweep(self) -> int:
        """Remove temporary files that are older than `STALE_SECONDS`, and return their number."""
        stale = [file for file in self._incoming.iterdir() if time.time() - file.stat().st_mtime > STALE_SECONDS]
        for file in stale:
            file.unlink(missing_ok=True)
        return len(stale)

    @abstractmethod
    def keep(self, incoming: Incoming) -> str:
        """Put a received file under its digest, and return the digest. A file that is there stays as it is.

        Raises:
            HubUnavailable: the object store cannot be used.
        """

    @abstractmethod
    def path(self, digest: str) -> Path:
        """Return where the file with a digest lies on this machine, or would lie once it was used.

        Raises:
            DigestMismatch: `digest` is not 64 hexadecimal digits.
        """

    @abstractmethod
    def local(self, digest: str) -> AbstractContextManager[Path]:
        """Return a context in which the file with a digest lies on this machine.

        Raises:
            BlobMissing: there is no file with this digest, or it is not what it was.
            HubUnavailable: the object store cannot be used.
        """

    @abstractmethod
    def size_of(self, digest: str) -> int:
        """Return the size of a file in bytes.

        Raises:
            BlobMissing: there is no file with this digest.
            HubUnavailable: the object store cannot be used.
        """

    @abstractmethod
    def read(self, digest: str) -> Iterator[bytes]:
        """Yield the content of a file in pieces, without comparing it with its digest.

        Raises:
            BlobMissing: there is no file with this digest.
            HubUnavailable: the object store cannot be used.
        """

    @abstractmethod
    def remove(self, digest: str) -> None:
        """Remove a file, if it is there.

        Raises:
            HubUnavailable: the object store cannot be used.
        """

    @abstractmethod
    def digests(self) -> Iterator[str]:
        """Yield the digests of all files.

        Raises:
            HubUnavailable: the object store cannot be used.
        """


def check_digest(digest: str) -> str:
    """Return a digest that has the form of one.

    Raises:
        DigestMismatch: it has another form.
    """
    if not _DIGEST.fullmatch(digest):
        raise DigestMismatch(f"{digest[:80]!r} is not a SHA-256 digest: it takes 64 digits of 0-9 and a-f")
    return digest


class Blobs(BlobStore):
    """A folder of files by digest.

    Args:
        folder: the folder, which is created.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "incoming")
        self._folder = folder

    def keep(self, incoming: Incoming) -> str:
        """Put a received file under its digest, and return the digest."""
        incoming.flush()
        digest = incoming.sha256
        self._link(incoming.path, digest)
        return digest

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
        return self._folder / check_digest(digest)[:2] / digest

    @contextmanager
    def local(self, digest: str) -> Iterator[Path]:
        """Yield where a file lies; nothing removes it."""
        self.size_of(digest)
        yield self.path(digest)

    def size_of(self, digest: str) -> int:
        """Return the size of a file in bytes."""
        try:
            return self.path(digest).stat().st_size
        except FileNotFoundError:
            raise BlobMissing(f"the hub has lost the file {digest}; restore it from a backup") from None

    def read(self, digest: str) -> Iterator[bytes]:
        """Yield the content of a file in pieces."""
        self.size_of(digest)
        with self.path(digest).open("rb") as file:
            while piece := file.read(CHUNK_BYTES):
                yield piece

    def remove(self, digest: str) -> None:
        """Remove a file, if it is there."""
        self.path(digest).unlink(missing_ok=True)

    def digests(self) -> Iterator[str]:
        """Yield the digests of all files."""
        for folder in sorted(self._folder.glob("[0-9a-f][0-9a-f]")):
            yield from sorted(file.name for file in folder.iterdir() if _DIGEST.fullmatch(file.name))
