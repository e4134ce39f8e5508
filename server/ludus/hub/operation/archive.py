"""The file of a backup: a tar archive whose last member lists all others with their digests.

    tables/{name}.jsonl     the rows of a table, each a JSON array in the order of the columns, after a line with those
    blobs/{sha256}          a wheel, or its METADATA
    files/{path}            another file of the data folder
    backup.json             `BackupIndex`: the schema's revision, and size and SHA-256 of every member before it

It holds values and not a database's own format, so that a backup of SQLite is restored into PostgreSQL and back. An
archive without its last member was cut; one whose members differ from the list was changed. Both are refused before
anything is read from them.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import tarfile
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from ludus.hub.operation.errors import BackupRefused

INDEX: Final = "backup.json"
INDEX_BYTES: Final = 256 * 1024 * 1024
"""The largest list of members; each takes about 200 bytes."""

CHUNK_BYTES: Final = 1024 * 1024

_MEMBER: Final = re.compile(
    r"tables/[a-z][a-z0-9_]*\.jsonl|blobs/[0-9a-f]{64}|files/(?!\.{1,2}(?:/|$))[^/\0]+(?:/(?!\.{1,2}(?:/|$))[^/\0]+)*"
)


class Member(BaseModel):
    """Size in bytes, and digest of a member."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    size: int
    sha256: str


class BackupIndex(BaseModel):
    """What a backup holds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal["ludus-hub-backup-1"] = "ludus-hub-backup-1"
    created_at: datetime
    version: str
    """The version of Ludus that wrote it."""
    revision: str
    """The revision of the database's schema."""
    tables: dict[str, int]
    """The number of rows of each table."""
    members: dict[str, Member]


class ArchiveWriter:
    """Writes an archive.

    Args:
        file: a file that is open for writing.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._tar = tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT)
        self._members: dict[str, Member] = {}

    def add(self, name: str, size: int, pieces: Iterable[bytes], mode: int = 0o600) -> str:
        """Add a member, and return its digest.

        Args:
            name: its name.
            size: its size in bytes.
            pieces: its content; what comes beyond `size` is left out.
            mode: its permissions.

        Raises:
            OSError: there is less content than `size`, or the file cannot be written.
        """
        reader = _Reader(pieces)
        self._tar.addfile(_info(name, size, mode), reader)
        digest = reader.sha256(size)
        self._members[name] = Member(size=size, sha256=digest)
        return digest

    def finish(self, revision: str, tables: dict[str, int], version: str) -> BackupIndex:
        """Add the list of members, and return it. The archive is then whole."""
        index = BackupIndex(
            created_at=datetime.now(UTC), version=version, revision=revision, tables=tables, members=self._members
        )
        data = index.model_dump_json(indent=1).encode()
        self._tar.addfile(_info(INDEX, len(data), 0o600), io.BytesIO(data))
        self._tar.close()
        return index


class _Reader(io.RawIOBase):
    """Pieces of bytes as a file, hashed as they are read."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._rest = b""
        self._hash = hashlib.sha256()
        self._read = 0

    def read(self, size: int = -1, /) -> bytes:
        while len(self._rest) < size:
            piece = next(self._pieces, None)
            if piece is None:
                break
            self._rest += piece
        found, self._rest = self._rest[:size], self._rest[size:]
        self._hash.update(found)
        self._read += len(found)
        return found

    def sha256(self, size: int) -> str:
        if self._read != size:
            raise OSError(f"a file ended after {self._read} of {size} bytes")
        return self._hash.hexdigest()


def _info(name: str, size: int, mode: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, mode
    return info


class ArchiveReader:
    """An archive that was verified: every member has the size and the digest that its list says.

    Args:
        path: the file.

    Raises:
        BackupRefused: it is no backup, is cut, or was changed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.index = self._verify()

    def names(self, kind: str) -> list[str]:
        """Return the names of the members of a kind: `tables`, `blobs` or `files`."""
        return [name for name in self.index.members if name.startswith(f"{kind}/")]

    def members(self, kind: str) -> Iterator[tuple[str, int, IO[bytes]]]:
        """Yield the members of a kind: the name below its folder, the permissions, and the open content."""
        with tarfile.open(self.path, "r:") as tar:
            for info in tar:
                folder, _, name = info.name.partition("/")
                if folder == kind:
                    content = tar.extractfile(info)
                    assert content is not None
                    yield name, info.mode & 0o700, content

    def rows(self, table: str) -> Iterator[dict[str, Any]]:
        """Yield the rows of a table as values by column."""
        for name, _, content in self.members("tables"):
            if name == f"{table}.jsonl":
                columns = json.loads(content.readline())
                for line in content:
                    yield dict(zip(columns, map(decode, json.loads(line)), strict=True))

    def _verify(self) -> BackupIndex:
        try:
            with tarfile.open(self.path, "r:") as tar:
                return self._compare(tar)
        except (tarfile.TarError, EOFError, UnicodeDecodeError) as error:
            raise self._refuse(f"it is cut, or no backup of a hub ({error})") from None
        except OSError as error:
            raise self._refuse(f"it cannot be read ({error.strerror or error})") from None

    def _compare(self, tar: tarfile.TarFile) -> BackupIndex:
        found: dict[str, Member] = {}
        index: BackupIndex | None = None
        for info in tar:
            if index is not None:
                raise self._refuse("it goes on after its list of members")
            content = tar.extractfile(info) if info.isreg() else None
            if content is None or info.name in found:
                raise self._refuse(f"{ascii(info.name[:120])} is not a file, or is there twice")
            if info.name == INDEX:
                index = self._read_index(content, info.size)
                continue
            if not _MEMBER.fullmatch(info.name):
                raise self._refuse(f"{ascii(info.name[:120])} is no name of a member")
            digest = hashlib.sha256()
            while piece := content.read(CHUNK_BYTES):
                digest.update(piece)
            found[info.name] = Member(size=info.size, sha256=digest.hexdigest())
        if index is None:
            raise self._refuse("it ends before its list of members, so it was cut")
        if found != index.members:
            names = sorted({*found, *index.members})
            wrong = next(name for name in names if found.get(name) != index.members.get(name))
            raise self._refuse(f"{ascii(wrong)} is not as its list of members says")
        return index

    def _read_index(self, content: IO[bytes], size: int) -> BackupIndex:
        if size > INDEX_BYTES:
            raise self._refuse("its list of members is too large")
        try:
            return BackupIndex.model_validate_json(content.read())
        except ValidationError:
            raise self._refuse("its list of members is not valid, or of a newer version of Ludus") from None

    def _refuse(self, why: str) -> BackupRefused:
        return BackupRefused(f"{self.path} is not restored: {why}; take another backup")


# ── values ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def encode(value: Any) -> Any:
    """Return a value of a database as JSON.

    Raises:
        TypeError: it has a type that backups do not know.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, datetime):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return {"time": moment.astimezone(UTC).isoformat()}
    if isinstance(value, bytes | memoryview):
        return {"bytes": base64.b64encode(bytes(value)).decode()}
    if isinstance(value, (dict, list)):
        return {"json": value}
    raise TypeError(f"a backup cannot hold a {type(value).__name__}")


def decode(value: Any) -> Any:
    """Return the value that `encode` has written."""
    if not isinstance(value, dict):
        return value
    kind, content = next(iter(value.items()))
    if kind == "time":
        return datetime.fromisoformat(content)
    return base64.b64decode(content) if kind == "bytes" else content
