"""Back up a hub while it runs.

How this works: one transaction of the database reads all tables, so they are of one moment. The blobs that they name
were written before them, so they are there, whatever is published meanwhile; only the deletion of an account removes
some, and a backup that meets one of these ends with an error and is made again. The archive is
written under a temporary name next to its final one, flushed, and then linked to it; a backup that is stopped leaves no
file that looks like one, and none that exists is replaced.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import tempfile
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final

from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, select

from ludus.common.distribution import installed_version
from ludus.hub.database.engine import available
from ludus.hub.database.migrate import MIGRATIONS
from ludus.hub.database.schema import METADATA
from ludus.hub.operation.archive import CHUNK_BYTES, ArchiveWriter, BackupIndex, encode
from ludus.hub.operation.errors import BackupFailed
from ludus.hub.operation.parts import HubParts
from ludus.protocol.errors import LudusError

NOT_COPIED: Final = frozenset(
    {"blobs", "environments", "hub.sqlite", "hub.sqlite-wal", "hub.sqlite-shm", "cache", "processes"}
)
"""What a backup leaves out of the data folder: what it has in another form, and what the hub makes again."""

ROWS_AT_ONCE: Final = 500


def write_backup(parts: HubParts, target: Path) -> tuple[Path, BackupIndex]:
    """Write a backup, and return its file and what it holds.

    Args:
        parts: the hub, which may run.
        target: the file, or a folder in which a file is named by the time.

    Raises:
        BackupFailed: the target exists, is in the data folder, or cannot be written; or the hub has no database of this
            version.
        BlobMissing: the hub has lost a blob; `ludus hub check` lists all that it has lost.
    """
    if target.is_dir():
        target = target / f"ludus-hub-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.tar"
    if target.resolve().is_relative_to(parts.data.resolve()):
        raise BackupFailed(f"{target} is in the data folder, so the backup would hold itself; name another place")
    if target.exists():
        raise BackupFailed(f"{target} exists; name a file that does not, or a folder")
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with _draft(draft) as file:
            index = _write(parts, file, target.parent)
            file.flush()
            os.fsync(file.fileno())
            os.link(draft, target)
    except LudusError:
        raise
    except OSError as error:
        raise BackupFailed(f"the backup {target} cannot be written: {error.strerror or error}") from None
    return target, index


@contextlib.contextmanager
def _draft(path: Path) -> Iterator[IO[bytes]]:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        try:
            yield file
        finally:
            path.unlink(missing_ok=True)


def _write(parts: HubParts, file: IO[bytes], folder: Path) -> BackupIndex:
    writer = ArchiveWriter(file)
    engine = parts.engine
    if engine.dialect.name == "postgresql":
        engine = engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    with available(), engine.connect() as connection:
        revision = check_revision(connection)
        tables = {table.name: _write_table(writer, connection, table, folder) for table in METADATA.sorted_tables}
        digests = list(referenced_digests(connection))
    for digest in digests:
        writer.add(f"blobs/{digest}", parts.blobs.size_of(digest), parts.blobs.read(digest))
    for path in _other_files(parts.data):
        _write_file(writer, parts.data, path)
    return writer.finish(revision, tables, installed_version())


def check_revision(connection: Connection) -> str:
    """Return the revision of a database, which must be the newest one.

    Raises:
        BackupFailed: it is another one, or the database is not one of a hub.
    """
    revision = MigrationContext.configure(connection).get_current_revision()
    newest = newest_revision()
    if revision is None:
        raise BackupFailed("this database is not one of a hub; check --data and --database")
    if revision != newest:
        raise BackupFailed(
            f"the database has the schema {revision}, and this version of Ludus works with {newest}: use the version "
            "that the hub runs with, or start the hub once with this one, which migrates it"
        )
    return revision


def newest_revision() -> str:
    """Return the revision that this version of Ludus works with."""
    head = ScriptDirectory(str(MIGRATIONS)).get_current_head()
    assert head is not None
    return head


def referenced_digests(connection: Connection) -> Iterable[str]:
    """Return the digests of all blobs that the database names: the columns with `info={"blob": True}`."""
    found: set[str] = set()
    for table in METADATA.sorted_tables:
        for column in table.columns:
            if column.info.get("blob"):
                found.update(value for value in connection.scalars(select(column).distinct()) if value)
    return sorted(found)


def _write_table(writer: ArchiveWriter, connection: Connection, table: Any, folder: Path) -> int:
    """Add a table, and return its number of rows. A member's size comes first, so the rows go to the disk before."""
    count = 0
    with tempfile.TemporaryFile(dir=folder) as rows:
        rows.write(_line([column.name for column in table.columns]))
        query = select(table).order_by(*table.primary_key.columns)
        for row in connection.execution_options(yield_per=ROWS_AT_ONCE).execute(query):
            rows.write(_line([encode(value) for value in row]))
            count += 1
        size = rows.tell()
        rows.seek(0)
        writer.add(f"tables/{table.name}.jsonl", size, iter(lambda: rows.read(CHUNK_BYTES), b""))
    return count


def _line(values: list[Any]) -> bytes:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode("utf-8") + b"\n"


def _other_files(data: Path) -> Iterator[Path]:
    for top in sorted(data.iterdir()) if data.is_dir() else ():
        if top.name in NOT_COPIED or top.is_symlink():
            continue
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file() and not path.is_symlink() and not path.name.endswith((".new", ".tmp")):
                yield path


def _write_file(writer: ArchiveWriter, data: Path, path: Path) -> None:
    try:
        file = path.open("rb")
    except FileNotFoundError:  # removed since it was listed
        return
    with file:
        status = os.fstat(file.fileno())
        pieces = iter(lambda: file.read(CHUNK_BYTES), b"")
        writer.add(f"files/{path.relative_to(data).as_posix()}", status.st_size, pieces, status.st_mode & 0o700)
