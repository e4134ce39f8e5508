"""Where a hub keeps what it has, for commands that do not run the hub."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sqlalchemy import Engine

from ludus.hub.core.blobs import BlobStore
from ludus.hub.core.object_store import open_blobs
from ludus.hub.database.engine import open_engine, sqlite_url
from ludus.hub.operation.errors import BackupFailed
from ludus.hub.parts.hub import DATABASE_FILE

CACHE_BYTES: Final = 0
"""Commands keep no files of an object store on this machine."""

STORE_SECONDS: Final = 120.0
"""How long a request to an object store may take."""


@dataclass(frozen=True)
class HubParts:
    """Where a hub keeps what it has.

    Attributes:
        data: its data folder.
        engine: its database.
        blobs: its blobs.
    """

    data: Path
    engine: Engine
    blobs: BlobStore


@contextmanager
def open_parts(
    data: Path, database: str | None = None, blobs: str | None = None, *, new: bool = False
) -> Iterator[HubParts]:
    """Yield the parts of a hub, and close its database afterwards.

    Args:
        data: the data folder.
        database: the URL of the database; None for the file in the data folder.
        blobs: `s3://bucket/prefix`; None for the data folder.
        new: make what does not exist.

    Raises:
        BackupFailed: there is no hub, and `new` is not set.
    """
    if not new and not (data.is_dir() and (database is not None or (data / DATABASE_FILE).is_file())):
        raise BackupFailed(f"{data} is no data folder of a hub; name it with --data")
    data.mkdir(parents=True, exist_ok=True)
    engine = open_engine(database or sqlite_url(data / DATABASE_FILE))
    try:
        yield HubParts(data, engine, open_blobs(data, blobs, CACHE_BYTES, STORE_SECONDS))
    finally:
        engine.dispose()
