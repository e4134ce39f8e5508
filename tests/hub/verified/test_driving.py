"""Driving a verified run: what the hub does after it has failed itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

from ludus.hub.results.verified_store import Setup
from ludus.hub.verified.runs import VerifiedRuns
from ludus.hub.verified.settings import VerifiedSettings
from ludus.registry.types.results import NextEpisode, VerifiedInfo


async def test_episodes_that_a_failure_of_the_hub_left_open_are_put_back_before_the_next_ones_start() -> None:
    @asynccontextmanager
    async def using(*arguments: object) -> AsyncIterator[None]:
        yield

    played = AsyncMock()
    played.tickets.return_value = SimpleNamespace(tickets=(SimpleNamespace(place=1), SimpleNamespace(place=4)))
    played.next_episode.return_value = NextEpisode(ticket=None, waiting=0, open=0)
    parts: list[Any] = [
        SimpleNamespace(settings=SimpleNamespace(public_url=None)), VerifiedSettings(), None, None, played,
        SimpleNamespace(using=using), AsyncMock(), SimpleNamespace(open=lambda sealed: "key"), None,
    ]  # fmt: skip
    run = SimpleNamespace(
        by="alice", key="run", package="ada/locks", version="1.0.0", tasks=1, samples=1,
        declared=SimpleNamespace(options={}),
    )  # fmt: skip
    info = VerifiedInfo(harness="ludus 1", harness_sha256="a" * 64, host="models.example.org", model="m")
    await VerifiedRuns(*parts)._play(cast(Any, run), Setup(info, "https://models.example.org/v1", "sealed", 1000))
    done = [(name, arguments[2:]) for name, arguments, _ in played.mock_calls]
    address = "/e/ada/locks@1.0.0"
    assert done == [
        ("tickets", (address,)), ("put_back", (1,)), ("put_back", (4,)), ("next_episode", (address, address)),
    ]  # fmt: skip
