"""Sessions and streams of the ORS transport, without HTTP."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ludus.protocol.episodes import StartParams
from ludus.server import Environment, EpisodeHost, Task
from ludus.server.auth.principal import Principal
from ludus.server.transports.ors.calls import Stream
from ludus.server.transports.ors.session_store import SessionStore


class Quiet(Environment[Task]):
    """Nothing to do."""

    splits = {"train": [Task(id="one")]}

    def prompt(self) -> str:
        return "Wait."

    def grade(self, answer: str) -> float:
        return 1.0


async def test_the_sweep_of_sessions_does_not_count_as_use_of_their_episodes(host: Any, trainer: Principal) -> None:
    running: EpisodeHost = await host(Quiet)
    sessions = SessionStore(running, idle_seconds=0.0)
    sessions.open(trainer, "sid", StartParams(environment="quiet", split="train", key="k"), "k")
    session = sessions.find(trainer, "sid")
    assert session.settled is not None
    await session.settled
    assert session.episode is not None
    episode = running.store.find(session.episode)
    episode.used = session.used = asyncio.get_running_loop().time() - 100
    before = episode.used, session.used
    sessions.sweep()
    assert (episode.used, session.used) == before
    assert len(sessions) == 1, "its episode still runs"
    await running.discard(session.episode)
    sessions.sweep()
    assert len(sessions) == 0


async def test_a_stream_whose_body_fails_while_its_head_is_being_sent_leaves_no_task() -> None:
    begun = asyncio.Event()

    async def never(*_: object) -> None:
        begun.set()
        await asyncio.get_running_loop().create_future()

    async def fail(request: Any) -> None:
        async with Stream(request) as stream:
            stream._open()
            await begun.wait()
            raise ZeroDivisionError

    before = asyncio.all_tasks()
    with pytest.raises(ZeroDivisionError):
        await fail(SimpleNamespace(started=False, begin_events=never, disconnected=never))
    assert asyncio.all_tasks() == before
