"""A hub with accounts, over SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pytest
from hub_people import PeopleHub, people_hub
from postgres_server import PostgresServer

Kind = Literal["sqlite", "postgres"]


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def kind(request: pytest.FixtureRequest) -> Kind:
    """The database of the hub."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def people(request: pytest.FixtureRequest, kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PeopleHub]:
    """A hub with accounts, whose tests use runs of their own."""
    url = None
    if kind == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.new_url()
    with people_hub(tmp_path_factory.mktemp("people"), url) as hub:
        yield hub
