"""Episodes that have ended hold little, however many there are and whether or not their clients close them."""

from __future__ import annotations

import asyncio
import gc
import random
import tracemalloc
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import aiohttp
import pytest
from waiting import wait_until

from ludus.client import connect
from ludus.protocol.episodes import (
    CloseParams,
    ForkParams,
    GetEpisodeParams,
    GradeParams,
    RewardsParams,
    StartParams,
    StepParams,
    StepResult,
)
from ludus.protocol.errors import EpisodeEnded, EpisodeNotFound
from ludus.protocol.lifecycle import EndReason
from ludus.protocol.methods import Scope
from ludus.protocol.rewards import Reward
from ludus.server import Environment, EpisodeHost, Result, Task, Toolset, tool
from ludus.server.auth.principal import Principal
from ludus.server.durability.sqlite_journal import SqliteJournal
from ludus.server.execution import user_code
from ludus.server.runtime.episode import Episode, StepRecord
from ludus.server.runtime.kept_episodes import KeptEpisodes
from ludus.server.runtime.limits import ServerLimits

OWNER = Principal.open()
OTHER = Principal("other", frozenset(Scope))
KIB = 1024


class Heavy:
    """What an author makes for an episode; all that live are known."""

    alive: ClassVar[weakref.WeakSet[Heavy]] = weakref.WeakSet()

    def __init__(self) -> None:
        self.alive.add(self)


class Kit(Toolset):
    """Tools with something heavy."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.heavy = Heavy()

    @tool
    async def weigh(self) -> str:
        """Weigh it."""
        return repr(self.heavy)


class Holder(Environment[Task]):
    """Holds heavy things wherever an author can put them."""

    splits: ClassVar = {"train": [Task(id="t")]}
    toolsets = (Kit,)
    blocking = False
    forkable = True

    def setup(self) -> None:
        self.heavy = Heavy()
        self.count = 0

    def prompt(self) -> str:
        return "Hold."

    def task_tools(self) -> Sequence[Any]:
        captured = Heavy()

        @tool
        async def look() -> str:
            """Look at what the tool has captured."""
            return repr(captured)

        return [look]

    @tool
    async def note(self, text: str) -> Result:
        """Note a text."""
        self.count += 1
        return Result(str(self.count), reward=1.0)

    @tool(ends=True)
    async def finish(self) -> str:
        """End the episode."""
        return "finished"

    @tool
    async def fail(self) -> str:
        """Break."""
        raise RuntimeError("broken")

    def grade(self, answer: str) -> Reward:
        return Reward.of(1.0, {"length": float(len(answer))}, "x" * len(answer))


Hosting = Callable[..., Awaitable[EpisodeHost]]


async def start(host: EpisodeHost, key: str, owner: Principal = OWNER, **params: Any) -> str:
    given = StartParams(environment="holder", split="train", key=key, **params)
    return (await host.start(given, owner)).episodes[0].episode


async def step(host: EpisodeHost, episode: str, number: int, tool: str, **arguments: Any) -> StepResult:
    given = StepParams(episode=episode, step=number, tool=tool, arguments=arguments, key=f"k{number}")
    return await host.step(given, Principal("admin", frozenset(Scope)))


async def play(host: EpisodeHost, key: str, size: int, owner: Principal = OWNER, *, closes: bool = False) -> str:
    """Play an episode whose only step holds so many bytes, and close it only if `closes`."""
    episode = await start(host, key, owner)
    await step(host, episode, 1, "note", text="x" * size)
    await host.grade(GradeParams(episode=episode, answer="a", key="g"), owner)
    if closes:
        await host.close(CloseParams(episode=episode), owner)
    return episode


def is_kept(host: EpisodeHost, episode: str) -> bool:
    return episode in host.store


def records() -> int:
    """How many records of calls there are in this process."""
    gc.collect()
    # `isinstance` asks each object for its class, and one of torch warns when it is asked.
    return sum(type(entry) is StepRecord for entry in gc.get_objects())


@pytest.mark.parametrize("end", ["grade", "finish", "fail", "close", "step_limit"])
async def test_what_an_author_made_for_an_episode_is_released_when_it_ends(
    host: Hosting, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_code.log, "disabled", True)  # what captures logs keeps tracebacks
    running = await host(Holder, limits=ServerLimits(max_steps=2 if end == "step_limit" else None))
    Heavy.alive.clear()
    episode = await start(running, "k")
    await step(running, episode, 1, "look")
    assert len(Heavy.alive) == 3
    if end == "grade":
        await running.grade(GradeParams(episode=episode, answer="a", key="g"), OWNER)
    elif end == "close":
        await running.close(CloseParams(episode=episode), OWNER)
    else:
        name = "look" if end == "step_limit" else end
        await asyncio.gather(step(running, episode, 2, name), return_exceptions=True)
    ended = running.store.find(episode)
    assert ended.end_reason is not None
    assert ended.retired is not None
    await ended.retired
    gc.collect()
    assert len(Heavy.alive) == 0
    assert [spec.name for spec in ended.view().tools][-1] == "submit_answer", "what it shows is unchanged"
    assert {"note", "look", "weigh"} <= set(ended.tools)


async def test_ended_episodes_that_are_not_closed_hold_no_more_than_their_budget(host: Hosting) -> None:
    running = await host(Holder, limits=ServerLimits(max_episodes=4, ended_bytes=1000 * KIB))
    before = records()
    episodes = [await play(running, f"k{number}", 90 * KIB) for number in range(60)]
    ended = running.store.ended
    assert ended.bytes <= 1000 * KIB
    kept = [one for one in episodes if is_kept(running, one)]
    assert kept == episodes[-len(kept) :], "the oldest are forgotten first"
    assert 8 <= len(kept) <= 11
    assert records() - before == 2 * len(kept)
    assert running.stats().running == 0
    newest = kept[-1]
    info = (await running.get_episode(GetEpisodeParams(episode=newest), OWNER)).info
    assert (info.end_reason, info.reward.value if info.reward else None) == (EndReason.SUBMITTED, 2.0)
    assert len((await running.rewards(RewardsParams(episode=newest), OWNER)).entries) == 2
    repeated = await running.grade(GradeParams(episode=newest, answer="a", key="g"), OWNER)
    assert repeated.reward is not None
    with pytest.raises(EpisodeEnded):
        await step(running, newest, 2, "note", text="")
    for request in (
        running.get_episode(GetEpisodeParams(episode=episodes[0]), OWNER),
        running.rewards(RewardsParams(episode=episodes[0]), OWNER),
        running.grade(GradeParams(episode=episodes[0], answer="a", key="g"), OWNER),
    ):
        with pytest.raises(EpisodeNotFound, match="ended or was closed a while ago and its result is no longer kept"):
            await request


async def test_a_start_that_is_repeated_gets_its_group_also_if_members_are_forgotten(host: Hosting) -> None:
    running = await host(Holder, limits=ServerLimits(ended_bytes=100 * KIB))
    before = records()
    params = StartParams(environment="holder", split="train", key="k", count=5)
    group = await running.start(params, OWNER)
    for one in group.episodes[1:]:
        await step(running, one.episode, 1, "note", text="x" * 60 * KIB)
        await running.grade(GradeParams(episode=one.episode, answer="a", key="g"), OWNER)
    assert [is_kept(running, one.episode) for one in group.episodes] == [True, False, False, False, True]
    assert records() - before == 2, "the key of the start holds no calls"
    again = await running.start(params, OWNER)
    assert [one.episode for one in again.episodes] == [one.episode for one in group.episodes]


async def test_the_last_episode_is_kept_however_large_it_is(host: Hosting) -> None:
    running = await host(Holder, limits=ServerLimits(ended_bytes=0))
    first, second = [await play(running, key, 50 * KIB) for key in ("a", "b")]
    assert [is_kept(running, first), is_kept(running, second)] == [False, True]


async def test_closed_episodes_are_forgotten_before_others(host: Hosting) -> None:
    running = await host(Holder, limits=ServerLimits(ended_bytes=300 * KIB))
    unclosed = await play(running, "a", 100 * KIB)
    closed = await play(running, "b", 100 * KIB, closes=True)
    last = await play(running, "c", 100 * KIB)
    assert [is_kept(running, one) for one in (unclosed, closed, last)] == [True, False, True]


async def test_the_episodes_of_one_owner_do_not_push_out_those_of_another(host: Hosting) -> None:
    running = await host(Holder, limits=ServerLimits(ended_bytes=500 * KIB))
    others = [await play(running, f"o{number}", 50 * KIB, OTHER) for number in range(3)]
    flood = [await play(running, f"k{number}", 50 * KIB) for number in range(50)]
    assert all(is_kept(running, one) for one in others)
    assert sum(is_kept(running, one) for one in flood) < 10


async def test_an_episode_that_ended_still_forks(host: Hosting) -> None:
    running = await host(Holder)
    episode = await play(running, "a", 10)
    fork = await running.fork(ForkParams(episode=episode, key="f"), OWNER)
    assert {spec.name for spec in fork.episode.tools} >= {"note", "look", "weigh"}
    result = await step(running, fork.episode.episode, 2, "look")
    assert result.error is None


async def test_what_is_counted_is_what_episodes_hold(host: Hosting) -> None:
    running = await host(Holder)
    sizes = [0, 100, 10 * KIB, 100 * KIB]
    for size in sizes:
        await play(running, f"warm{size}", size)

    async def measured(size: int, turn: int) -> tuple[int, int]:
        """Return the bytes that twenty episodes hold, with what else was allocated meanwhile, and those counted."""
        gc.collect()
        before = running.store.ended.bytes
        tracemalloc.start()
        for number in range(20):
            await play(running, f"{size}/{turn}/{number}", size)
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        return held, running.store.ended.bytes - before

    for size in sizes:
        rounds = [await measured(size, turn) for turn in range(3)]
        held, counted = min(rounds)  # what other code of the process allocates only adds to what is held
        assert held <= 1.1 * counted, (size, rounds)
        assert counted <= 2 * held, (size, rounds)


async def test_a_journal_brings_back_no_more_than_the_budget(tmp_path: Path) -> None:
    limits = ServerLimits(ended_bytes=300 * KIB)
    async with EpisodeHost([Holder], journal=SqliteJournal(tmp_path / "j.db"), limits=limits) as host:
        episodes = [await play(host, f"k{number}", 90 * KIB) for number in range(6)]
        kept = [one for one in episodes if is_kept(host, one)]
        counted = host.store.ended.bytes
    async with EpisodeHost([Holder], journal=SqliteJournal(tmp_path / "j.db"), limits=limits) as host:
        assert [one for one in episodes if is_kept(host, one)] == kept
        assert abs(host.store.ended.bytes - counted) < 10 * KIB
        assert len((await host.rewards(RewardsParams(episode=kept[0]), OWNER)).entries) == 2
    smaller = ServerLimits(ended_bytes=120 * KIB)
    async with EpisodeHost([Holder], journal=SqliteJournal(tmp_path / "j.db"), limits=smaller) as host:
        assert [one for one in episodes if is_kept(host, one)] == episodes[-1:]


@pytest.mark.parametrize("seed", range(20))
def test_counts_and_order_are_those_of_a_plain_list(seed: int) -> None:
    rng = random.Random(seed)
    kept = KeptEpisodes(1000)
    model: list[tuple[str, str, int, bool]] = []
    for number in range(300):
        match rng.randrange(4):
            case 0 | 1:
                name, owner, size = f"e{number}", f"o{rng.randrange(3)}", rng.randrange(1, 300)
                kept.add(name, owner, size)
                model.append((name, owner, size, False))
            case 2 if model:
                place = rng.randrange(len(model))
                name, owner, size, _ = model[place]
                kept.close(name)
                model[place] = (name, owner, size, True)
            case _ if model:
                name = model.pop(rng.randrange(len(model)))[0]
                kept.remove(name)
                kept.remove(name)
        assert (kept.bytes, len(kept)) == (sum(one[2] for one in model), len(model))
        while (surplus := kept.surplus(lambda _: True)) is not None:
            held = Counter[str]()
            for one in model:
                held[one[1]] += one[2]
            (gone,) = (one for one in model if one[0] == surplus)
            assert held[gone[1]] == max(held.values())
            kept.remove(surplus)
            model.remove(gone)
        largest = max((one[2] for one in model), default=0)
        assert kept.bytes <= 1000 + largest, "the last one may exceed it"


async def play_over_ors(http: aiohttp.ClientSession, number: int, *, closes: bool) -> None:
    """Play an episode as a client of ORS does."""

    async def post(path: str, body: Any) -> str:
        async with http.post(path, json=body, headers={"X-Session-ID": f"s{number}"}) as answer:
            assert answer.status == 200
            return await answer.text()

    await post("/create", {"env_name": "holder", "split": "train", "index": 0})
    assert "event: end" in await post("/holder/call", {"name": "note", "input": {"text": "x"}})
    assert "event: end" in await post("/holder/call", {"name": "submit_answer", "input": {"answer": "a"}})
    if closes:
        await post("/delete", {})


@pytest.mark.suite("breadth", first=2)
@pytest.mark.parametrize("closes", [True, False], ids=["closed", "left open"])
@pytest.mark.parametrize("wire", ["channel", "mcp", "ors"])
async def test_a_server_holds_as_much_after_many_episodes_as_after_few(serve: Any, wire: Any, closes: bool) -> None:
    limits = ServerLimits(ended_bytes=60 * KIB, result_ttl_seconds=3600.0, max_episodes=4)
    server = await serve(Holder, limits=limits)
    host: EpisodeHost = server.app.context.host
    kinds = (Episode, StepRecord, StepResult, Heavy)
    async with (
        aiohttp.ClientSession(server.url) as http,
        connect(server.url, wire="channel" if wire == "ors" else wire) as client,
    ):
        holder = client.environment("holder")

        async def play_some(first: int, count: int) -> list[int]:
            for number in range(first, first + count):
                if wire == "ors":
                    await play_over_ors(http, number, closes=closes)
                else:
                    episode = await holder.start(index=0)
                    await episode.call("note", text="x")
                    await episode.grade("a")
                    if closes:
                        await episode.close()
                    del episode
            await wait_until(lambda: not host.stats().running and len(list(host.starts)) <= len(host.store))
            gc.collect()
            return [sum(type(entry) is kind for entry in gc.get_objects()) for kind in kinds]

        few = await play_some(0, 30)
        many = await play_some(30, 150)
        assert [after - before for before, after in zip(few, many, strict=True)] == pytest.approx([0, 0, 0, 0], abs=6)
        assert host.store.ended.bytes <= 60 * KIB
