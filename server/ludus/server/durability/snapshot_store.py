"""Where the parts of snapshots are kept: the interface, and files in a folder."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from ludus.protocol.errors import InfrastructureFailed


class PartNotWritten(InfrastructureFailed):
    """There is no room for a part, or the disk fails."""


class SnapshotStore(Protocol):
    """Parts of snapshots, each kept once for each episode, by its SHA-256. Its methods block."""

    def put(self, episode: str, data: bytes) -> str:
        """Keep a part and return its SHA-256; the same content is kept once.

        Raises:
            PartNotWritten: it cannot be written.
        """
        ...

    def get(self, episode: str, digest: str) -> bytes:
        """Return a part.

        Raises:
            InfrastructureFailed: it is not there, or was changed, or cannot be read.
        """
        ...

    def share(self, origin: str, episode: str, digests: Iterable[str]) -> bool:
        """Give an episode the parts of another one; return whether all of them were there.

        Raises:
            InfrastructureFailed: they cannot be written.
        """
        ...

    def drop(self, episode: str, digests: Iterable[str]) -> None:
        """Remove parts of an episode."""
        ...

    def forget(self, episode: str) -> None:
        """Remove all parts of an episode."""
        ...

    def keep_only(self, episodes: Iterable[str]) -> None:
        """Remove the parts of all episodes except these."""
        ...


def checked(episode: str, digest: str, data: bytes, store_name: str) -> bytes:
    """Return a part that was read, if it is the one that was written.

    Raises:
        InfrastructureFailed: it was changed.
    """
    if hashlib.sha256(data).hexdigest() != digest:
        raise InfrastructureFailed(f"a part of a snapshot of {episode} was changed {store_name}")
    return data


class SnapshotFolder:
    """Parts of snapshots as files, in one folder for each episode, named by their SHA-256.

    Args:
        folder: where to keep them; made when first used.
        syncs: whether a file must survive the loss of power.
    """

    def __init__(self, folder: Path, *, syncs: bool) -> None:
        self.folder = folder
        self._syncs = syncs

    def put(self, episode: str, data: bytes) -> str:
        """Keep a part and return its SHA-256; the same content is kept once."""
        digest = hashlib.sha256(data).hexdigest()
        path = self._path(episode, digest)
        try:
            if not path.exists():
                self._write(path, data)
        except OSError as error:
            raise PartNotWritten(f"a snapshot cannot be written: {error.strerror}") from None
        return digest

    def _write(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".tmp")
        try:
            with unfinished.open("wb") as file:
                file.write(data)
                if self._syncs:
                    file.flush()
                    os.fsync(file.fileno())
            unfinished.rename(path)
        except OSError:
            unfinished.unlink(missing_ok=True)  # what did not fit takes the room that the journal needs
            raise
        if self._syncs:
            _sync_folder(path.parent)

    def get(self, episode: str, digest: str) -> bytes:
        """Return a part."""
        try:
            data = self._path(episode, digest).read_bytes()
        except OSError as error:
            raise InfrastructureFailed(f"a part of a snapshot of {episode} cannot be read: {error.strerror}") from None
        return checked(episode, digest, data, "on disk")

    def share(self, origin: str, episode: str, digests: Iterable[str]) -> bool:
        """Give an episode the parts of another one, without copying them."""
        for digest in digests:
            path = self._path(episode, digest)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                os.link(self._path(origin, digest), path)
            except FileExistsError:
                continue
            except FileNotFoundError:
                return False
            except OSError as error:
                raise InfrastructureFailed(f"a snapshot cannot be shared: {error.strerror}") from None
        return True

    def drop(self, episode: str, digests: Iterable[str]) -> None:
        """Remove parts of an episode."""
        for digest in digests:
            self._path(episode, digest).unlink(missing_ok=True)

    def forget(self, episode: str) -> None:
        """Remove all parts of an episode."""
        shutil.rmtree(self.folder / episode, ignore_errors=True)

    def keep_only(self, episodes: Iterable[str]) -> None:
        """Remove the parts of all episodes except these."""
        kept_episodes = frozenset(episodes)
        if self.folder.is_dir():
            for folder in self.folder.iterdir():
                if folder.name not in kept_episodes:
                    shutil.rmtree(folder, ignore_errors=True)

    def _path(self, episode: str, digest: str) -> Path:
        return self.folder / episode / digest


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
