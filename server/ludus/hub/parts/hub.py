"""The parts of a running hub, which the API, the package index, the site and the endpoints share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Final

from fastapi import Request
from sqlalchemy import text

from ludus.hub.access.viewers import Viewer
from ludus.hub.access.visibility import Sight
from ludus.hub.blocking.store import Blocks
from ludus.hub.blocking.watch import BlockWatch
from ludus.hub.core.peers import Peers
from ludus.hub.core.request_times import Times
from ludus.hub.core.runner import Runner
from ludus.hub.database.engine import Database, open_engine, sqlite_url
from ludus.hub.database.migrate import migrate
from ludus.hub.people.authenticator import check_reach
from ludus.hub.people.people import People
from ludus.hub.registry.catalog import PackageCatalog, VersionRecord
from ludus.hub.registry.owners import Ownership
from ludus.hub.registry.publishing import Publisher
from ludus.hub.settings.hub import HubSettings
from ludus.hub.settings.openid import check_callback
from ludus.protocol.errors import Conflict
from ludus.registry.types.packages import VersionInfo
from ludus.registry.types.people import HubScope
from ludus.server.auth import TokenStore

DATABASE_FILE: Final = "hub.sqlite"
"""The name of the SQLite database in the data folder."""

VISITOR_COOKIE: Final = "ludus_visitor"
"""The name of the cookie of a browser, which may have signed in."""

_VIEWER: Final = "ludus.viewer"
"""The key of the ASGI scope under which the viewer of a request is remembered."""


class Hub:
    """The parts of a hub. Making one creates the data folder, and brings the database to the newest schema.

    Args:
        settings: the hub's settings.
        tokens: the tokens of the operator's token file; None if there is none.

    Attributes:
        settings: the hub's settings.
        database: the database.
        blobs: the wheels.
        publisher: publishes and yanks versions.
        blocks: the blocked wheels.
        block_watch: what this process knows of them.
        ownership: changes maintainers, readers and keys.
        people: accounts, their tokens and sessions, and the audit log.
        authenticator: finds the viewer of a request by its token.
        runner: the hub's own credential at its endpoints.
        peers: the processes of this hub.
        counts: events for the metrics, by name.
        requests: the times of requests, by route and status; see `ludus.hub.metrics`.

    Raises:
        AuthoringError: others can reach the hub, and it has no accounts and no tokens, or an OpenID provider and no
            public address with https.
        HubUnavailable: the database cannot be used.
    """

    def __init__(self, settings: HubSettings, tokens: TokenStore | None) -> None:
        self.settings = settings
        self.database = open_database(settings)
        self.blobs = settings.open_blobs()
        self.blobs.sweep()
        self.publisher = Publisher(self.database, self.blobs, settings.limits)
        self.blocks = Blocks(self.database)
        self.block_watch = BlockWatch(self.blocks)
        self.ownership = Ownership(self.database)
        self.people = People(self.database, self.blobs, settings, tokens)
        self.authenticator = self.people.authenticator
        check_reach(settings, self.authenticator)
        check_callback(settings.openid, settings.public_url, on_loopback=settings.on_loopback)
        self.runner = Runner()
        self.peers = Peers(self.database, settings.peer_url)
        self.counts: Counter[str] = Counter()
        self.requests: dict[tuple[str, str], Times] = {}
        self._at_start: list[Callable[[], Awaitable[None]]] = []
        self._at_end: list[Callable[[], Awaitable[None]]] = [self.block_watch.close]

    def viewer(self, request: Request, *, of_page: bool = False) -> Viewer:
        """Return who reads something: the holder of the request's token, or the person who has signed in.

        A browser's cookie counts for reading only. What changes something asks `authenticator.principal` or checks a
        form (`ludus.hub.site.visitors`), because other sites can make browsers send requests.

        Args:
            request: the request.
            of_page: whether a page of the site asks, which checks the form of a request that changes something.

        Raises:
            Unauthenticated: the request has a token, and it is not valid.
            CapacityError: there are too many requests.
        """
        known: Viewer | None = request.scope.get(_VIEWER)
        if known is None:
            known = self.authenticator.viewer(request)
            cookie = request.cookies.get(VISITOR_COOKIE, "")
            if known.is_stranger and cookie and (of_page or request.method in ("GET", "HEAD")):
                known = self.people.sessions.viewer(cookie) or known
            request.scope[_VIEWER] = known
        return known

    def catalog(self, request: Request, scope: HubScope = HubScope.READ) -> PackageCatalog:
        """Return the packages as the sender of a request sees it. Nothing reads packages in another way.

        Args:
            request: the request; it may block to find out who sends it.
            scope: the scope that a token needs to read private packages.

        Raises:
            Unauthenticated: the request has a token, and it is not valid.
            CapacityError: there are too many requests.
        """
        return self.catalog_of(self.viewer(request), scope)

    def catalog_of(self, viewer: Viewer, scope: HubScope = HubScope.READ) -> PackageCatalog:
        """Return the packages as a viewer sees it. See `catalog`."""
        return PackageCatalog(self.database, self.blobs, Sight(viewer, scope))

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
            blocked=record.blocked,
            distribution=record.distribution,
            url=self.file_url(request, record.sha256, record.filename),
            requires_python=record.requires_python,
            manifest=record.manifest,
            card=record.card,
            signature=record.signature,
            validation=record.validation,
            private=record.private,
        )

    def check_hides(self, package: str) -> None:
        """Check that a package that is made private would be hidden from anyone.

        Raises:
            Conflict: the hub is open, so everyone who reaches it may do everything.
        """
        if self.authenticator.is_open:
            raise Conflict(
                f"{package} cannot be private here: this hub has no accounts and no tokens, so everyone who reaches it "
                "reads everything. Create an account first, with `ludus hub accounts create NAME --admin`, or leave "
                "out what makes it private (`--private`, or `private` in ludus.toml)"
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
        await self.block_watch.begin()
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


def open_database(settings: HubSettings) -> Database:
    """Return the database of a hub, brought to the newest schema; make the data folder.

    Raises:
        HubUnavailable: the database cannot be used.
    """
    settings.data.mkdir(parents=True, exist_ok=True)
    database = Database(open_engine(settings.database_url or sqlite_url(settings.data / DATABASE_FILE)))
    migrate(database.engine)
    return database
