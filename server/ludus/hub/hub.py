"""The parts of a running hub, which the API, the package index, the site and the endpoints share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Final

from fastapi import Request
from sqlalchemy import text

from ludus.hub.database.engine import Database, open_engine, sqlite_url
from ludus.hub.database.migrate import migrate
from ludus.hub.endpoints.runner import Runner
from ludus.hub.registry.catalog import Registry, VersionRecord
from ludus.hub.registry.owners import Ownership
from ludus.hub.registry.publishing import Publisher
from ludus.hub.request_times import Times
from ludus.hub.settings import HubSettings
from ludus.hub.tokens import Authenticator
from ludus.protocol.registry import VersionInfo
from ludus.server.auth import TokenStore

DATABASE_FILE: Final = "hub.sqlite"
"""The name of the SQLite database in the data folder."""


class Hub:
    """The parts of a hub. Making one creates the data folder, and brings the database to the newest schema.

    Args:
        settings: the hub's settings.
        tokens: the tokens; None for an open hub.

    Attributes:
        settings: the hub's settings.
        database: the database.
        blobs: the wheels.
        registry: reads packages and versions.
        publisher: publishes and yanks versions.
        ownership: changes maintainers and keys.
        authenticator: finds the principal of a request.
        runner: the hub's own credential at its endpoints.
        counts: events for the metrics, by name.
        requests: the times of requests, by route and status; see `ludus.hub.metrics`.
    """

    def __init__(self, settings: HubSettings, tokens: TokenStore | None) -> None:
        self.settings = settings
        settings.data.mkdir(parents=True, exist_ok=True)
        self.blobs = settings.open_blobs()
        self.blobs.sweep()
        self.database = Database(open_engine(settings.database_url or sqlite_url(settings.data / DATABASE_FILE)))
        migrate(self.database.engine)
        self.registry = Registry(self.database, self.blobs)
        self.publisher = Publisher(self.database, self.blobs, settings.limits)
        self.ownership = Ownership(self.database)
        self.authenticator = Authenticator(tokens)
        self.runner = Runner()
        self.counts: Counter[str] = Counter()
        self.requests: dict[tuple[str, str], Times] = {}
        self._at_start: list[Callable[[], Awaitable[None]]] = []
        self._at_end: list[Callable[[], Awaitable[None]]] = []

    def base_url(self, request: Request) -> str:
        """Return the address of the hub for a client, without a slash at its end."""
        return (self.settings.public_url or str(request.base_url)).rstrip("/")

    def file_url(self, request: Request, sha256: str, filename: str) -> str:
        """Return the address of a wheel."""
        return f"{self.base_url(request)}/files/{sha256}/{filename}"

    def version_info(self, request: Request, record: VersionRecord) -> VersionInfo:
        """Return a version as the API shows it."""
        return VersionInfo(
            id=record.id,
            version=record.version,
            filename=record.filename,
            sha256=record.sha256,
            size=record.size,
            signed=record.signed,
            uploaded_at=record.uploaded_at,
            uploaded_by=record.uploaded_by,
            yanked=record.yanked,
            distribution=record.distribution,
            url=self.file_url(request, record.sha256, record.filename),
            requires_python=record.requires_python,
            manifest=record.manifest,
            card=record.card,
            signature=record.signature,
            validation=record.validation,
        )

    def check(self) -> None:
        """Check that the database answers.

        Raises:
            HubUnavailable: it does not.
        """
        with self.database.reading() as session:
            session.execute(text("SELECT 1"))

    def at_start(self, begin: Callable[[], Awaitable[None]]) -> None:
        """Call something when the hub starts, before the first request."""
        self._at_start.append(begin)

    async def begin(self) -> None:
        """Begin what runs besides requests."""
        for begin in self._at_start:
            await begin()

    def at_end(self, end: Callable[[], Awaitable[None]]) -> None:
        """Call something when the hub stops, before what was given earlier."""
        self._at_end.append(end)

    async def close(self) -> None:
        """End all parts, the last one first, and close all connections to the database."""
        async with AsyncExitStack() as stack:
            stack.callback(self.database.close)
            for end in self._at_end:
                stack.push_async_callback(end)
