"""Fill an empty hub from a backup.

How this works: the archive is verified before anything is written. Then blobs and files are put where they belong, and
last one transaction makes the tables, fills them, brings them to the newest schema and makes the search index again.
So a hub is there whole or not at all; what a stopped restore leaves are files, and the same restore goes on with them.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import IO, Any, Final

from alembic.util import CommandError
from sqlalchemy import Connection, MetaData, func, insert, inspect, select, text
from sqlalchemy.orm import Session

from ludus.hub.database.engine import available
from ludus.hub.database.migrate import migrate_in
from ludus.hub.database.tables import Package
from ludus.hub.operation.archive import CHUNK_BYTES, ArchiveReader, BackupIndex
from ludus.hub.operation.backup import ROWS_AT_ONCE
from ludus.hub.operation.errors import BackupRefused, RestoreRefused
from ludus.hub.operation.parts import HubParts
from ludus.hub.registry.publishing import index_latest

_OWN_TABLES: Final = ("package_search", "alembic_version")


def restore_backup(parts: HubParts, source: Path) -> BackupIndex:
    """Restore a backup, and return what it holds.

    Args:
        parts: where to; its database must be empty, and its files must not exist with other content.
        source: the backup.

    Raises:
        BackupRefused: the file is no backup, is cut, was changed, or is of a newer version of Ludus.
        RestoreRefused: the place is not empty.
    """
    archive = ArchiveReader(source)
    with available(), parts.engine.connect() as connection:
        check_empty(connection)
    for path in archive.names("files"):
        _check_file(parts.data / path.removeprefix("files/"), archive.index.members[path].size)
    for digest, _, content in archive.members("blobs"):
        with parts.blobs.receiving(archive.index.members[f"blobs/{digest}"].size) as incoming:
            while piece := content.read(CHUNK_BYTES):
                incoming.write(piece)
            parts.blobs.keep(incoming)
    for name, mode, content in archive.members("files"):
        _write_file(parts.data / name, mode, content)
    with available(), parts.engine.execution_options(ludus_writes=True).begin() as connection:
        check_empty(connection)
        _fill(connection, archive)
    return archive.index


def check_empty(connection: Connection) -> None:
    """Check that no table of a database has a row.

    Raises:
        RestoreRefused: one has.
    """
    for name in inspect(connection).get_table_names():
        if not name.startswith(_OWN_TABLES) and connection.execute(text(f'SELECT 1 FROM "{name}" LIMIT 1')).first():
            raise RestoreRefused(f"the table {name} of the database has rows; restore into an empty hub")


def _check_file(path: Path, size: int) -> None:
    if path.exists() and path.stat().st_size != size:
        raise RestoreRefused(f"{path} exists with other content; restore into an empty folder")


def _write_file(path: Path, mode: int, content: IO[bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode | 0o600), "wb") as file:
        while piece := content.read(CHUNK_BYTES):
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def _fill(connection: Connection, archive: ArchiveReader) -> None:
    try:
        migrate_in(connection, archive.index.revision)
    except CommandError:
        raise BackupRefused(
            f"{archive.path} has the schema {archive.index.revision}, which this version of Ludus does not know; "
            f"restore it with version {archive.index.version} or a newer one"
        ) from None
    metadata = MetaData()
    metadata.reflect(connection)
    given = {name.removeprefix("tables/").removesuffix(".jsonl") for name in archive.names("tables")}
    if missing := given - set(metadata.tables):
        raise BackupRefused(f"{archive.path} has the table {min(missing)}, which its schema does not have")
    for table in metadata.sorted_tables:
        if table.name in given:
            _fill_table(connection, archive, table)
    migrate_in(connection, "head")
    with Session(connection) as session:
        for package in session.scalars(select(Package).where(Package.latest != "")):
            index_latest(session, package)
        session.flush()


def _fill_table(connection: Connection, archive: ArchiveReader, table: Any) -> None:
    batch: list[dict[str, Any]] = []
    for row in archive.rows(table.name):
        batch.append(row)
        if len(batch) == ROWS_AT_ONCE:
            connection.execute(insert(table), batch)
            batch = []
    if batch:
        connection.execute(insert(table), batch)
    if connection.dialect.name != "postgresql" or "id" not in table.columns:
        return
    sequence = connection.execute(text("SELECT pg_get_serial_sequence(:name, 'id')"), {"name": table.name}).scalar()
    if sequence is not None:
        last = connection.execute(select(func.max(table.columns["id"]))).scalar() or 0
        connection.execute(text("SELECT setval(:sequence, :next, false)"), {"sequence": sequence, "next": last + 1})
