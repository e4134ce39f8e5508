"""The files of trajectories that people keep on the hub. They are in the database, so all processes of a hub have them.

A file is kept in parts of the same size, with an index of its lines. So a page reads the parts of one line and not the
file, and a removed file leaves nothing on any machine.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import zlib
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from pydantic import ValidationError
from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session, undefer

from ludus.common.hub import OWNER_PATTERN
from ludus.hub.database.engine import Database
from ludus.hub.database.rollout_tables import KeptPart, KeptRollouts
from ludus.hub.database.times import aware
from ludus.hub.results.rollout_index import RolloutFile, index_of, parse_episode
from ludus.protocol.errors import InvalidParams, LudusError, NotFound, PayloadTooLarge
from ludus.protocol.trajectory import Trajectory

MEGABYTE: Final = 1024 * 1024
FILE_BYTES: Final = 32 * MEGABYTE
"""The largest file."""

OWNER_BYTES: Final = 256 * MEGABYTE
"""The most bytes of all files of an owner."""

OWNER_FILES: Final = 100
"""The most files of an owner."""

PART_BYTES: Final = 512 * 1024
"""The size of a part before compression."""

KEEPING_LOCK: Final = 7_360
"""The kind of the lock that an owner holds who keeps a file; see `Database.lock_name`."""

log = logging.getLogger("ludus.hub.site")

_ID: Final = re.compile(r"[a-z0-9]{16}")
_OWNER: Final = re.compile(OWNER_PATTERN)


class KeptFile(NamedTuple):
    """A file in a list."""

    id: str
    name: str
    size: int
    lines: int
    kept_at: datetime


class Rollouts:
    """The kept files. All methods block, and any thread may call them.

    Args:
        database: the hub's database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def keep(self, owner: str, name: str, data: IO[bytes]) -> RolloutFile:
        """Keep a file, and return it.

        Raises:
            PayloadTooLarge: it is too large, has too many lines, or the owner has no room left.
            InvalidParams: it has no episode.
        """
        with self._database.reading() as session:
            _check_room(session, owner)
        return self._keep(owner, name, data, datetime.now(UTC))

    def _keep(self, owner: str, name: str, data: IO[bytes], kept_at: datetime) -> RolloutFile:
        size = _size_of(data)
        lines = tuple(index_of(data))
        if all(line.problem for line in lines):
            why = lines[0].problem if lines else "it is empty"
            raise InvalidParams(f"this file has no episode; it takes lines of `ludus run --out`: {why[:300]}")
        new = f"{secrets.randbits(64):016x}"
        kept = RolloutFile(id=new, name=_plain_name(name), size=size, kept_at=kept_at.timestamp(), lines=lines)
        row = KeptRollouts(
            id=new, owner=owner, name=kept.name, size=size, lines=len(lines), kept_at=kept_at,
            index=zlib.compress(kept.model_dump_json().encode()),
        )  # fmt: skip
        data.seek(0)
        pieces = iter(lambda: data.read(PART_BYTES), b"")
        parts = [KeptPart(file_id=new, number=number, data=zlib.compress(piece)) for number, piece in enumerate(pieces)]
        with self._database.writing() as session:
            self._database.lock_name(session, KEEPING_LOCK, owner)
            _check_room(session, owner)
            session.add(row)
            session.flush()
            session.add_all(parts)
        return kept

    def files(self, owner: str) -> list[KeptFile]:
        """Return the files of an owner, the newest first."""
        query = select(KeptRollouts).where(KeptRollouts.owner == owner)
        with self._database.reading() as session:
            rows = session.scalars(query.order_by(KeptRollouts.kept_at.desc(), KeptRollouts.id))
            return [KeptFile(row.id, row.name, row.size, row.lines, aware(row.kept_at)) for row in rows]

    def file(self, owner: str, file_id: str) -> RolloutFile:
        """Return a file.

        Raises:
            NotFound: the owner has no such file.
        """
        with self._database.reading() as session:
            row = _find(session, owner, file_id)
            return RolloutFile.model_validate_json(zlib.decompress(row.index))

    def episode(self, file: RolloutFile, number: int) -> Trajectory:
        """Return the episode of a line.

        Raises:
            NotFound: the file has no such episode, or was removed.
        """
        line = file.line(number)
        first, last = line.start // PART_BYTES, max(line.start, line.end - 1) // PART_BYTES
        found = b"".join(self._parts(file.id, first, last))
        start = line.start - first * PART_BYTES
        return parse_episode(found[start : start + line.end - line.start], line)

    def content(self, file: RolloutFile) -> Iterator[bytes]:
        """Yield a file as it came, in pieces.

        Raises:
            NotFound: it was removed.
        """
        return self._parts(file.id, 0, max(0, file.size - 1) // PART_BYTES)

    def _parts(self, file_id: str, first: int, last: int) -> Iterator[bytes]:
        for number in range(first, last + 1):
            query = select(KeptPart.data).where(KeptPart.file_id == file_id, KeptPart.number == number)
            with self._database.reading() as session:
                data = session.scalar(query)
            if data is None:
                raise _absent()
            yield zlib.decompress(data)

    def export(self, owner: str) -> list[dict[str, Any]]:
        """Return what is kept of an owner, as JSON: each file with its lines."""
        found = []
        for file in self.files(owner):
            with suppress(NotFound):  # removed meanwhile
                content = b"".join(self.content(self.file(owner, file.id)))
                kept_at = file.kept_at.timestamp()
                found.append({"name": file.name, "keptAt": kept_at, "lines": content.decode("utf-8", "replace")})
        return found

    def delete(self, owner: str) -> None:
        """Remove all files of an owner."""
        mine = select(KeptRollouts.id).where(KeptRollouts.owner == owner)
        with self._database.writing() as session:
            self._database.lock_name(session, KEEPING_LOCK, owner)
            session.execute(delete(KeptPart).where(KeptPart.file_id.in_(mine)))
            session.execute(delete(KeptRollouts).where(KeptRollouts.owner == owner))

    def remove(self, owner: str, file_id: str) -> None:
        """Remove a file.

        Raises:
            NotFound: the owner has no such file.
        """
        with self._database.writing() as session:
            self._database.lock_name(session, KEEPING_LOCK, owner)
            row = _find(session, owner, file_id)
            session.execute(delete(KeptPart).where(KeptPart.file_id == row.id))
            session.delete(row)

    def take_over(self, folder: Path) -> None:
        """Keep the files that an older version of the hub has kept in a folder, and remove them there.

        What cannot be read stays where it is.
        """
        for path in sorted(folder.glob("*/*.jsonl")):
            try:
                old = RolloutFile.model_validate_json(path.with_suffix(".index").read_bytes())
                with path.open("rb") as data:
                    self._keep(_owner_of(path.parent.name), old.name, data, datetime.fromtimestamp(old.kept_at, UTC))
            except (OSError, ValidationError, LudusError) as error:
                log.warning("the kept rollouts in %s were not taken over: %s", path, error)
                continue
            path.unlink()
            path.with_suffix(".index").unlink()
            with suppress(OSError):  # it holds other files
                path.parent.rmdir()


def _check_room(session: Session, owner: str) -> None:
    totals = select(func.count(), func.coalesce(func.sum(KeptRollouts.size), 0)).where(KeptRollouts.owner == owner)
    count, size = session.execute(totals).one()
    if count >= OWNER_FILES or size >= OWNER_BYTES:
        raise PayloadTooLarge(
            f"you keep {count} files with {int(size) // MEGABYTE} MiB; the hub keeps {OWNER_FILES} files and "
            f"{OWNER_BYTES // MEGABYTE} MiB for each owner: remove some first",
            limit="rollouts",
        )


def _find(session: Session, owner: str, file_id: str) -> KeptRollouts:
    query = select(KeptRollouts).where(KeptRollouts.id == file_id, KeptRollouts.owner == owner)
    found = session.scalars(query.options(undefer(KeptRollouts.index))).first() if _ID.fullmatch(file_id) else None
    if found is None:
        raise _absent()
    return found


def _absent() -> NotFound:
    return NotFound("you keep no such file of rollouts")


def _size_of(data: IO[bytes]) -> int:
    """Return the size of a file, and go to its beginning."""
    data.seek(0, os.SEEK_END)
    size = data.tell()
    if size > FILE_BYTES:
        raise PayloadTooLarge(f"the file is larger than the {FILE_BYTES // MEGABYTE} MiB kept here", limit="rollouts")
    data.seek(0)
    return size


def _owner_of(folder: str) -> str:
    """Return the owner of a folder of an older version, which had other names as `x-` and hexadecimal digits."""
    if folder.startswith("x-"):
        with suppress(ValueError):
            name = bytes.fromhex(folder[2:]).decode("utf-8", "ignore")
            if not _OWNER.fullmatch(name):
                return name
    return folder


def _plain_name(name: str) -> str:
    """Return the last part of a file's name, short and without control characters."""
    last = name.replace("\\", "/").rpartition("/")[2]
    return "".join(character for character in last if character.isprintable())[:80] or "rollouts.jsonl"
