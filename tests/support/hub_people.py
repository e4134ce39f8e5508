"""A hub with accounts in this process, over SQLite or PostgreSQL, and its people."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI
from hubs import Release
from sqlalchemy import event
from starlette.testclient import TestClient

from ludus.hub.app import create_hub, parts_of
from ludus.hub.core.rates import RateSettings
from ludus.hub.parts.hub import Hub
from ludus.hub.settings.hub import HubSettings
from ludus.hub.settings.people import PeopleSettings
from ludus.hub.settings.results import ResultLimits
from ludus.registry.types.people import USUAL_SCOPES, HubScope, NewToken

PASSWORD = "correct horse battery"
PEOPLE = ("alice", "bob", "carol")


def in_process(app: FastAPI, headers: dict[str, str] | None = None) -> httpx.Client:
    """A client of an application in this process; entered as a context manager, it starts and ends the application."""
    client: Any = TestClient(app, base_url="http://127.0.0.1", headers=headers, follow_redirects=False)
    return client  # type: ignore[no-any-return]  # it has the methods of httpx's client, of another package


@dataclass
class PeopleHub:
    """A hub with the administrator `root` and some people, none of whom has published anything."""

    app: FastAPI
    client: httpx.Client
    _ids: dict[str, int] = field(default_factory=dict)
    _browsers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def hub(self) -> Hub:
        found: Hub = parts_of(self.app).hub
        return found

    def account(self, name: str) -> int:
        """The id of an account."""
        if name not in self._ids:
            self._ids[name] = self.hub.people.accounts.sign_in(name, PASSWORD).id
        return self._ids[name]

    def token(
        self, name: str, scopes: Sequence[HubScope] = USUAL_SCOPES, packages: tuple[str, ...] = (), days: int = 1
    ) -> str:
        """A new token of an account."""
        wanted = NewToken(name="test", scopes=tuple(scopes), packages=packages, days=days)
        return self.hub.people.tokens.create(self.account(name), wanted, is_admin=name == "root").token

    def as_(self, token: str | None) -> httpx.Client:
        """A client with a token."""
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return in_process(self.app, headers=headers)

    def of(self, name: str, scopes: Sequence[HubScope] = USUAL_SCOPES, packages: tuple[str, ...] = ()) -> httpx.Client:
        """A client with a new token of an account."""
        return self.as_(self.token(name, scopes, packages))

    def browser(self, name: str | None = None) -> httpx.Client:
        """A browser, in which a person has signed in."""
        browser = self.as_(None)
        browser.headers["accept"] = "text/html"
        browser.cookies.set("ludus_visitor", "v" * 43)
        if name is not None:
            signed_in = f"{next(self._browsers):043d}"
            self.hub.people.sessions.begin(self.account(name), signed_in, "a browser")
            browser.cookies.set("ludus_visitor", signed_in)
        return browser


@contextmanager
def people_hub(
    folder: Path, database: str | None, names: Sequence[str] = PEOPLE, administrator: str | None = "root",
    **settings: Any,
) -> Iterator[PeopleHub]:  # fmt: skip
    """Run a hub with accounts, which answers as many requests as a test sends unless the settings say otherwise."""
    quiet: dict[str, Any] = {  # so that the database has no queries but those of a test
        "results": ResultLimits(sweep_seconds=3600.0, lease_seconds=36000.0),
        "people": PeopleSettings(rates=RateSettings(address_minute=1_000_000, token_minute=1_000_000)),
    }
    app = create_hub(HubSettings(data=folder / "data", database_url=database, seed=False, **{**quiet, **settings}))
    with in_process(app) as client:
        accounts = parts_of(app).hub.people.accounts
        if administrator is not None:
            accounts.create(administrator, PASSWORD, admin=True)
        for name in names:
            accounts.create(name, PASSWORD)
        yield PeopleHub(app, client)


def publish_private(client: httpx.Client, one: Release) -> httpx.Response:
    """Publish a release as a private one."""
    files = {"wheel": (one.filename, one.wheel, "application/octet-stream")}
    fields = {**one.fields(), "visibility": "private"}
    return client.post(f"/api/v1/environments/{one.manifest.id}/versions", data=fields, files=files)


@contextmanager
def statements(hub: Hub) -> Iterator[list[str]]:
    """Yield the list of the SQL statements of requests that run from now on."""
    found: list[str] = []
    blocks = hub.block_watch
    looked_at, blocks._looked_at = blocks._looked_at, math.inf  # it looks again and again, and for no request

    def note(connection: object, cursor: object, statement: str, *rest: object) -> None:
        found.append(statement)

    event.listen(hub.database.engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(hub.database.engine, "before_cursor_execute", note)
        blocks._looked_at = looked_at
