"""Hubs with verified runs, each a process with real sandboxes, and a model endpoint on loopback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Literal

import pytest
from postgres_server import PostgresServer
from verified_hub import HARNESS, PUPPET, VerifiedHub, right_turn

Kind = Literal["sqlite", "postgres"]
StartHub = Callable[..., VerifiedHub]


@pytest.fixture(scope="session", params=["sqlite", pytest.param("postgres", marks=pytest.mark.suite("hub"))])
def kind(request: pytest.FixtureRequest) -> Kind:
    """The database of the hub. The plain run has SQLite."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def start_hub(
    request: pytest.FixtureRequest, kind: Kind, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StartHub]:
    """`hub = start_hub(calls=3)`: a hub with other settings, which has the locks."""
    with ExitStack() as stack:

        def start(**settings: Any) -> VerifiedHub:
            server: PostgresServer | None = request.getfixturevalue("postgres") if kind == "postgres" else None
            folder = tmp_path_factory.mktemp("verified")
            hub = VerifiedHub(folder, server.new_url() if server is not None else None, **settings)
            stack.callback(hub.close)
            return hub

        yield start


@pytest.fixture(scope="session")
def shared(
    request: pytest.FixtureRequest, kind: Kind, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VerifiedHub]:
    """A hub with the locks, and with the harnesses root/looper and root/puppet."""
    server: PostgresServer | None = request.getfixturevalue("postgres") if kind == "postgres" else None
    folder = tmp_path_factory.mktemp("verified")
    limits: dict[str, Any] = {
        "calls": 4,
        "cpu_seconds": 30.0,
        "episode_seconds": 90.0,
        "open_runs": 3,
        "disk": 2**23,
        "processes": 32,
    }
    hub = VerifiedHub(folder, server.new_url() if server is not None else None, request_bytes=2**16, **limits)
    try:
        hub.publish("root/looper", source=HARNESS, play="play")
        hub.publish("root/puppet", source=PUPPET, play="play")
        yield hub
    finally:
        hub.close()


@pytest.fixture
def hub(shared: VerifiedHub) -> Iterator[VerifiedHub]:
    """The hub of all tests, with a model that opens each lock."""
    yield shared
    shared.model.answer = right_turn
    shared.model.forget()
