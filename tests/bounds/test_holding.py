"""What one episode holds and queues is bounded in bytes on each transport, and a refusal names the limit."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ludus.protocol import EndReason, text_of
from ludus.protocol import episodes as e
from ludus.protocol.bounds import MAX_CALL_VALUES, MAX_DEPTH, footprint
from ludus.protocol.errors import CapacityError, KeyConflict
from ludus.server import Environment, EpisodeHost, ServerLimits, Task, ToolError, tool
from ludus.server.auth.principal import Principal
from ludus.server.runtime.idempotency import IdempotencyCache

Start = Callable[..., Awaitable[EpisodeHost]]
OPEN = Principal.open()
KILOBYTES = 1024
HANGS = 60
_keys = itertools.count()


class Desk(Environment[Task]):
    """Takes whatever is put on it."""

    splits = {"train": [Task(id="only")]}
    forkable = True

    def setup(self) -> None:
        self.free = asyncio.Event()
        self.ran = 0

    def prompt(self) -> str:
        return "go"

    @tool
    async def wait(self) -> str:
        """Wait until let go."""
        await self.free.wait()
        return "waited"

    @tool
    async def keep(self, text: str) -> str:
        """Take a text."""
        self.ran += 1
        return f"{len(text)} characters"

    @tool
    async def say(self, count: int) -> str:
        """Say something long."""
        return "x" * count

    @tool
    async def no(self, text: str) -> str:
        """Refuse."""
        raise ToolError("no")

    @tool(concurrent=True)
    async def beside(self, text: str) -> str:
        """Wait next to others."""
        await self.free.wait()
        return "waited"


def key() -> str:
    return f"k{next(_keys)}"


async def start(host: EpisodeHost, **more: Any) -> Any:
    params = e.StartParams(environment="desk", split="train", key=key(), **more)
    identifier = (await host.start(params, OPEN)).episodes[0].episode
    return host.store.find(identifier)


async def step(host: EpisodeHost, episode: Any, tool_name: str, /, _key: str = "", **arguments: Any) -> e.StepResult:
    return await host.play(episode.id, tool_name, arguments, key=_key or key())


def nested(lists: int) -> list[Any]:
    return [[] for _ in range(lists)]


async def test_refused_calls_keep_a_digest_of_large_arguments(host: Start) -> None:
    running = await host(Desk)
    episode = await start(running)
    for number in range(40):
        result = await step(running, episode, "keep", f"same-{number}", text=nested(MAX_CALL_VALUES // 2))
        assert result.error is not None
        assert result.error.code == "invalid_arguments"
    for name in ("nothing", "n" * 100_000):
        result = await step(running, episode, name, text="x" * 100 * KILOBYTES)
        assert result.error is not None
        assert (result.error.code, len(result.error.message) < 1000) == ("unknown_tool", True)
    assert sum(footprint(record.arguments) + len(record.tool) for record in episode.records) < 16 * KILOBYTES
    assert episode.held < 200 * KILOBYTES
    repeat = await step(running, episode, "keep", "same-0", text=nested(MAX_CALL_VALUES // 2))
    assert (repeat.step, repeat.error is not None) == (1, True)
    with pytest.raises(KeyConflict):
        await step(running, episode, "keep", "same-0", text=nested(MAX_CALL_VALUES // 2 - 1))


@pytest.mark.requirement("LIM-14")
@pytest.mark.parametrize(
    ("arguments", "why"),
    [({"text": nested(400_000)}, "values"), ({f"x{n}": n for n in range(380_000)}, "values"), (None, "deeper")],
)
async def test_arguments_of_too_many_values_are_a_refused_step(
    host: Start, arguments: dict[str, Any] | None, why: str
) -> None:
    deep: list[Any] = []
    for _ in range(MAX_DEPTH):
        deep = [deep]
    running = await host(Desk)
    episode = await start(running)
    result = await running.play(episode.id, "keep", {"text": deep} if arguments is None else arguments, key=key())
    assert result.error is not None
    assert result.error.code == "invalid_arguments"
    assert why in result.error.message
    assert episode.records[0].arguments == {}
    assert text_of((await step(running, episode, "keep", text="x")).content) == "1 characters"


@pytest.mark.requirement("LIM-14")
async def test_what_an_episode_holds_is_bounded(host: Start) -> None:
    running = await host(Desk, limits=ServerLimits(episode_bytes=1024 * KILOBYTES))
    episode = await start(running)
    results = [await step(running, episode, "keep", text="x" * 100 * KILOBYTES) for _ in range(20)]
    refused = [result for result in results if result.error is not None]
    assert len(refused) == 10
    assert refused[0].error is not None
    assert "episode_bytes" in refused[0].error.message
    assert sum(footprint(record.arguments) for record in episode.records) < 1024 * KILOBYTES
    assert episode.instance.ran == 10
    while (last := await step(running, episode, "say", count=50 * KILOBYTES)).end_reason is None:
        assert len(episode.records) < 50
    assert (last.end_reason, last.truncated) == (EndReason.OBSERVATION_LIMIT, True)


async def test_a_final_answer_is_taken_from_a_full_episode(host: Start) -> None:
    class Graded(Desk):
        name = "desk"

        async def grade(self, answer: str) -> float:
            return float(len(answer))

    running = await host(Graded, limits=ServerLimits(episode_bytes=64 * KILOBYTES))
    episode = await start(running)
    await step(running, episode, "keep", text="x" * 60 * KILOBYTES)
    graded = await running.grade(e.GradeParams(episode=episode.id, answer="x" * 70_000, key=key()), OPEN)
    assert graded.reward is not None
    assert graded.reward.value == 70_000


@pytest.mark.requirement("LIM-13")
@pytest.mark.parametrize("name", ["keep", "beside"])
async def test_the_queue_behind_a_slow_step_is_bounded_in_bytes(host: Start, name: str) -> None:
    running = await host(Desk, limits=ServerLimits(queue_bytes=1024 * KILOBYTES))
    episode = await start(running)
    slow = asyncio.create_task(step(running, episode, "beside" if name == "beside" else "wait", **_text(name)))
    await asyncio.sleep(0)
    calls = [asyncio.create_task(step(running, episode, name, text="x" * 100 * KILOBYTES)) for _ in range(300)]
    refused = [one for one in calls[-280:]]
    outcomes = await asyncio.gather(*refused, return_exceptions=True)
    assert all(isinstance(one, CapacityError) for one in outcomes)
    error = outcomes[0]
    assert isinstance(error, CapacityError)
    assert (error.data["limit"], error.retry_after) == ("queue_bytes", 1.0)
    waiting = [*(episode.queue or ()), *episode.active]
    assert sum(footprint(record.arguments) for record in waiting) <= 1024 * KILOBYTES
    assert (episode.pending, len(episode.records)) == (len(waiting), len(waiting))
    episode.instance.free.set()
    await slow
    done = [one for one in await asyncio.gather(*calls, return_exceptions=True) if not isinstance(one, Exception)]
    assert len(done) == len(waiting) - 1
    assert (episode.pending, episode.pending_bytes) == (0, 0)
    assert (await step(running, episode, "keep", text="x")).error is None  # a refused call left nothing behind


def _text(name: str) -> dict[str, Any]:
    return {"text": ""} if name == "beside" else {}


async def test_the_queue_behind_a_slow_step_is_bounded_in_places(host: Start) -> None:
    running = await host(Desk, limits=ServerLimits(queue_calls=10))
    episode = await start(running)
    slow = asyncio.create_task(step(running, episode, "wait"))
    await asyncio.sleep(0)
    calls = [asyncio.create_task(step(running, episode, "keep", text="x")) for _ in range(20)]
    refused = [one for one in await asyncio.gather(*calls[9:], return_exceptions=True)]
    assert [type(one) for one in refused] == [CapacityError] * 11
    assert len(episode.queue) == 9
    episode.instance.free.set()
    await asyncio.gather(slow, *calls[:9])


async def test_repeats_of_a_call_that_runs_count_as_well(host: Start) -> None:
    running = await host(Desk, limits=ServerLimits(queue_bytes=1024 * KILOBYTES))
    episode = await start(running)
    first = asyncio.create_task(step(running, episode, "beside", "one", text="x" * 100 * KILOBYTES))
    await asyncio.sleep(0)
    repeats = [
        asyncio.create_task(step(running, episode, "beside", "one", text="x" * 100 * KILOBYTES)) for _ in range(50)
    ]
    outcomes = await asyncio.gather(*repeats[9:], return_exceptions=True)
    assert [type(one) for one in outcomes] == [CapacityError] * 41
    episode.instance.free.set()
    assert len({(await one).step for one in (first, *repeats[:9])}) == 1
    assert (episode.pending, episode.pending_bytes) == (0, 0)


async def test_an_episode_that_ends_lets_its_queue_go(host: Start) -> None:
    running = await host(Desk)
    episode = await start(running)
    slow = asyncio.create_task(step(running, episode, "wait"))
    await asyncio.sleep(0)
    calls = [asyncio.create_task(step(running, episode, "keep", text="x" * 100 * KILOBYTES)) for _ in range(20)]
    await asyncio.sleep(0)
    await running.close(e.CloseParams(episode=episode.id), OPEN)
    await asyncio.gather(slow, *calls, return_exceptions=True)
    assert (episode.pending, episode.pending_bytes) == (0, 0)
    assert sum(footprint(record.arguments) for record in episode.records) < 16 * KILOBYTES


async def test_a_fork_repeats_refused_calls_of_which_a_digest_is_left(host: Start) -> None:
    running = await host(Desk)
    episode = await start(running)
    await step(running, episode, "keep", text=nested(10_000))
    await step(running, episode, "nothing", text="x" * 100 * KILOBYTES)
    await step(running, episode, "no", text="x" * 100 * KILOBYTES)
    await step(running, episode, "keep", text="x" * 100 * KILOBYTES)
    forked = await running.fork(e.ForkParams(episode=episode.id, key=key()), OPEN)
    twin = running.store.find(forked.episode.episode)
    assert [one.outcome for one in twin.records or ()] == [one.outcome for one in episode.records]
    assert [one.digest is None for one in episode.records] == [False, False, True, True]


@pytest.mark.parametrize(
    ("one", "other"),
    [(True, 1), (1, 1.0), (0, False), ({"a": [True]}, {"a": [1]}), ([1.0], [1]), ("1", 1), (None, False), (0.0, -0.0)],
)
async def test_arguments_of_other_types_are_other_arguments(host: Start, one: Any, other: Any) -> None:
    class Any_(Desk):
        name = "desk"

        @tool
        async def take(self, value: Any) -> str:
            """Take anything."""
            return repr(value)

    running = await host(Any_)
    episode = await start(running)
    first = await step(running, episode, "take", "k", value=one)
    assert await step(running, episode, "take", "k", value=one) == first
    with pytest.raises(KeyConflict):
        await step(running, episode, "take", "k", value=other)


@pytest.mark.parametrize(("one", "other"), [(True, 1), (1, 1.0), ({"a": [True]}, {"a": [1]})])
async def test_the_idempotency_cache_distinguishes_types(one: Any, other: Any) -> None:
    once = IdempotencyCache[str](asyncio.get_running_loop().create_task, 60)

    async def score(metadata: Any) -> str:
        candidates = {"e": e.Candidate(messages=(), metadata={"value": metadata})}
        params = e.ScoreGroupParams(group="g", candidates=candidates, key="k")
        return await once.do("owner", "k", params, work)

    async def work(digest: bytes) -> str:
        return "done"

    assert [await score(one), await score(one)] == ["done", "done"]
    with pytest.raises(KeyConflict):
        await score(other)


async def test_the_order_of_names_makes_no_other_arguments(host: Start) -> None:
    running = await host(Desk)
    episode = await start(running)
    first = await running.play(episode.id, "keep", {"text": "a", "more": 1}, key="k")
    assert await running.play(episode.id, "keep", {"more": 1, "text": "a"}, key="k") == first
