"""Playing episodes through the client, over the channel and over the MCP extension alike."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest
from worlds import SECRET_ANSWER, Counting, Playground, Troublesome

from ludus.client import Call, Episode, GroupMember, connect
from ludus.protocol import Candidate, EndReason, EpisodeLimits, Message, Outcome, StepResult, Task, TextBlock, text_of
from ludus.protocol.errors import (
    CapacityError,
    ConnectionFailed,
    EnvironmentFailed,
    EnvironmentNotFound,
    EpisodeEnded,
    EpisodeNotFound,
    Forbidden,
    InvalidParams,
    SplitNotFound,
    TaskNotFound,
    Unauthenticated,
    Unsupported,
)
from ludus.server import Environment, ServerLimits, StepContext, tool
from ludus.server.auth.tokens import TokenFile, new_token


class Slow(Environment[Task]):
    """Wait until released."""

    splits = {"train": [Task(id="t")]}
    seedable = False
    waiting: asyncio.Event
    gates: ClassVar[dict[str, asyncio.Event]] = {}

    def setup(self) -> None:
        self.meeting = asyncio.Barrier(2)

    def prompt(self) -> str:
        return "Wait."

    @tool
    async def wait(self, gate: str, ctx: StepContext) -> str:
        """Wait for a gate."""
        self.waiting.set()
        await self.gates.setdefault(gate, asyncio.Event()).wait()
        return f"step {ctx.step}"

    @tool(concurrent=True)
    async def meet(self, ctx: StepContext) -> str:
        """Wait for two of these to run at once."""
        await self.meeting.wait()
        return f"step {ctx.step}"


class SlowToStart(Environment[Task]):
    """Setup that waits."""

    splits = {"train": [Task(id="t")]}
    gate: asyncio.Event
    begun: asyncio.Event

    async def setup(self) -> None:
        self.begun.set()
        await self.gate.wait()

    def prompt(self) -> str:
        return "Hello."

    @tool
    def noop(self) -> str:
        """Nothing."""
        return ""


def said(result: StepResult) -> str:
    return text_of(result.content)


async def test_environments_splits_and_tasks(client_of: Any) -> None:
    client = await client_of(Playground, Counting)
    assert {one.name for one in await client.environments()} == {"playground", "counting"}
    playground = client.environment("playground")
    assert (await playground.info()).version == "1.2.3"
    assert {split.name: split.count for split in await playground.splits()} == {
        "train": 12,
        "validation": 5,
        "test": 3,
        "endless": None,
    }
    assert [task.id async for task in playground.tasks("train", page=5)] == [f"r-{n}" for n in range(12)]
    task = await playground.task("train", index=3)
    assert (task.id, task.fields) == ("r-3", {"question": "Say word 3."})
    assert await playground.task("train", task="r-3") == task
    assert len(await playground.sample("train", 7, seed=1)) == 7
    assert await playground.sample("train", 7, seed=1) == await playground.sample("train", 7, seed=1)


async def test_an_endless_split_is_iterated_as_long_as_wanted(client_of: Any) -> None:
    client = await client_of(Playground)
    seen = []
    async for task in client.environment("playground").tasks("endless", page=10):
        seen.append(task.index)
        if len(seen) == 25:
            break
    assert seen == list(range(25))


async def test_a_whole_episode(client_of: Any) -> None:
    client = await client_of(Playground)
    async with client.environment("playground").episode(split="train", index=4, seed=11) as episode:
        assert (episode.task.id, episode.seed, episode.environment) == ("r-4", 11, "playground")
        assert episode.prompt[0].content == (TextBlock(text="Say word 4."),)
        assert {"add", "finish"} <= {spec.name for spec in episode.tools}
        assert episode.play_url is not None
        assert episode.play_url.startswith(client.url)
        assert episode.play_url not in repr(episode)
        step = await episode.call("add", amount=2)
        assert (step.step, step.content, step.reward.value) == (1, (TextBlock(text="count 2"),), 0.25)
        assert not step.ended
        mistake = await episode.call("add", amount="many")
        assert mistake.error is not None
        assert mistake.error.code == "invalid_arguments"
        last = await episode.call(Call("finish", {"word": f"{SECRET_ANSWER}-4"}))
        assert (last.step, last.terminated, last.end_reason) == (3, True, EndReason.COMPLETED)
        assert episode.ended
        rewards = await episode.rewards()
        assert [entry.step for entry in rewards.entries] == [1, 3]
        assert rewards.total.value == 1.25
        assert (await episode.rewards(after=1)).entries == rewards.entries[1:]
        assert (await episode.info()).status == "completed"
        with pytest.raises(EpisodeEnded):
            await episode.call("add")


async def test_a_tool_argument_may_have_any_name(client_of: Any) -> None:
    client = await client_of(Playground)
    async with client.environment("playground").episode() as episode:
        result = await episode.call("say", text="x", self="y", tool="z")
        assert result.error is not None
        assert "self" in result.error.message


async def test_a_final_answer_is_graded_once(client_of: Any) -> None:
    client = await client_of(Playground)
    async with client.environment("playground").episode(index=2) as episode:
        graded = await episode.grade(f"{SECRET_ANSWER}-2")
        assert graded.reward is not None
        assert graded.reward.value == 1.0
        assert graded.info.end_reason is EndReason.SUBMITTED
        again = await episode.grade(f"{SECRET_ANSWER}-2")
        assert again.reward == graded.reward


async def test_calls_made_together_are_numbered_in_order(client_of: Any) -> None:
    client = await client_of(Playground)
    async with client.environment("playground").episode() as episode:
        results = await asyncio.gather(*(episode.call("add") for _ in range(20)))
        assert [(result.step, result.content[0].text) for result in results] == [
            (n, f"count {n}") for n in range(1, 21)
        ]


async def test_a_group_is_one_task_scored_together(client_of: Any) -> None:
    client = await client_of(Playground)
    async with client.environment("playground").group(4, index=7, seed=3) as group:
        assert len(group) == 4
        assert {episode.task.id for episode in group} == {"r-7"}
        assert {(await episode.call("roll")).content for episode in group} == {(await group[0].call("roll")).content}
        talk = Message(role="assistant", content=(TextBlock(text="hm"),))
        candidates = {
            episode.id: Candidate(messages=(talk,) * (number + 1)) for number, episode in enumerate(group.episodes)
        }
        rewards = await group.score(candidates)
        assert [rewards[episode.id].value for episode in group] == [1.0, 2.0, 3.0, 4.0]


async def test_outcomes_are_counted(client_of: Any) -> None:
    client = await client_of(Playground)
    outcomes = [Outcome(task="r-1", reward=1.0, passed=True), Outcome(task="r-2", reward=0.0, passed=False)]
    assert await client.environment("playground").report_outcomes("train", outcomes) == 2


async def test_a_fork_goes_its_own_way(client_of: Any) -> None:
    client = await client_of(Playground)
    async with client.environment("playground").episode() as trunk:
        for _ in range(3):
            await trunk.call("add")
        async with await trunk.fork(2) as branch, await trunk.fork() as twin:
            assert (await branch.call("add")).content == (TextBlock(text="count 3"),)
            assert (await twin.call("add", amount=5)).content == (TextBlock(text="count 8"),)
        assert (await trunk.call("add")).step == 4


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        ({"split": "nope"}, SplitNotFound),
        ({"task": "nope"}, TaskNotFound),
        ({"index": 10_000}, TaskNotFound),
        ({"tools": ["nope"]}, InvalidParams),
    ],
)
async def test_what_does_not_exist_is_named(client_of: Any, what: dict[str, Any], kind: type[Exception]) -> None:
    client = await client_of(Playground)
    with pytest.raises(kind) as refused:
        await client.environment("playground").start(**what)
    assert "nope" in str(refused.value) or "10000" in str(refused.value)


async def test_an_unknown_environment_is_answered_with_the_known_ones(client_of: Any) -> None:
    client = await client_of(Playground)
    with pytest.raises(EnvironmentNotFound, match="playground"):
        await client.environment("nope").info()
    with pytest.raises(EnvironmentNotFound):
        await client.environment("nope").start()


async def test_what_an_environment_cannot_do_is_refused(client_of: Any) -> None:
    client = await client_of(Slow)
    environment = client.environment("slow")
    with pytest.raises(Unsupported):
        await environment.start(seed=1)
    async with environment.episode() as episode:
        with pytest.raises(Unsupported):
            await episode.fork()


async def test_an_environment_that_breaks_raises_with_an_incident(client_of: Any) -> None:
    client = await client_of(Troublesome)
    async with client.environment("troublesome").episode() as episode:
        with pytest.raises(EnvironmentFailed) as failed:
            await episode.call("crash")
        info = await episode.info()
    assert failed.value.incident == info.incident
    assert info.end_reason is EndReason.ENVIRONMENT_ERROR
    assert info.reward is not None
    assert info.reward.value is None


async def test_leaving_the_block_closes_however_it_is_left(client_of: Any) -> None:
    client = await client_of(Playground)
    environment = client.environment("playground")
    left: list[Episode] = []

    async def raising() -> None:
        async with environment.episode() as episode:
            left.append(episode)
            raise ZeroDivisionError

    async def cancelled() -> None:
        async with environment.episode() as episode:
            left.append(episode)
            entered.set()
            await asyncio.Event().wait()

    with pytest.raises(ZeroDivisionError):
        await raising()

    entered = asyncio.Event()
    task = asyncio.create_task(cancelled())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [(await episode.info()).end_reason for episode in left] == [EndReason.CLOSED, EndReason.CLOSED]


async def test_leaving_the_client_closes_what_is_open(serve: Any, wire: Any) -> None:
    server = await serve(Playground)
    async with connect(server.url, wire=wire) as client:
        group = await client.environment("playground").start_group(5)
        assert server.app.context.host.stats().running == len(group)
    assert server.app.context.host.stats().running == 0


async def test_a_start_given_up_leaves_no_episode_behind(serve: Any, wire: Any) -> None:
    SlowToStart.gate, SlowToStart.begun = asyncio.Event(), asyncio.Event()
    server = await serve(SlowToStart)
    async with connect(server.url, wire=wire) as client:
        starting = asyncio.create_task(client.environment("slow_to_start").start())
        await SlowToStart.begun.wait()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        SlowToStart.gate.set()
    stats = server.app.context.host.stats()
    assert (stats.running, stats.started) == (0, {"slow_to_start": 1})


async def test_a_place_in_a_group_given_up_during_the_start_leaves_the_other_places_open(serve: Any, wire: Any) -> None:
    SlowToStart.gate, SlowToStart.begun = asyncio.Event(), asyncio.Event()
    server = await serve(SlowToStart)
    async with connect(server.url, wire=wire) as staying:
        async with connect(server.url, wire=wire) as leaving:
            places = [GroupMember("k", 3, place) for place in range(3)]
            starts = [
                asyncio.create_task(client.environment("slow_to_start").start(join=place))
                for client, place in zip((leaving, staying, staying), places, strict=True)
            ]
            await SlowToStart.begun.wait()
            starts[0].cancel()
            await asyncio.wait([starts[0]])
            SlowToStart.gate.set()
            kept = await asyncio.gather(*starts[1:])
        assert server.app.context.host.stats().running == 2
        assert [(await episode.call("noop")).error for episode in kept] == [None, None]


async def test_a_call_given_up_still_counts_and_the_next_one_follows_it(client_of: Any) -> None:
    Slow.gates.clear()
    Slow.waiting = asyncio.Event()
    client = await client_of(Slow)
    async with client.environment("slow").episode() as episode:
        call = asyncio.create_task(episode.call("wait", gate="g"))
        await Slow.waiting.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        Slow.gates["g"].set()
        assert (await episode.call("wait", gate="g")).content == (TextBlock(text="step 2"),)


async def test_arguments_that_json_cannot_hold_are_refused_and_the_step_is_not_spent(client_of: Any) -> None:
    client = await client_of(Playground)
    async with client.environment("playground").episode() as episode:
        for bad in (object(), "\ud800", float("nan"), [float("inf")]):
            with pytest.raises(InvalidParams):
                await episode.call("say", text=bad)
        assert (await episode.call("add")).step == 1


async def test_an_episode_closed_elsewhere_says_so(serve: Any, wire: Any) -> None:
    server = await serve(Playground, limits=ServerLimits(result_ttl_seconds=0, grace_seconds=0.2))
    async with connect(server.url, wire=wire) as client:
        async with client.environment("playground").episode() as episode:
            await server.app.context.host.discard(episode.id)
            with pytest.raises((EpisodeEnded, EpisodeNotFound)):
                await episode.call("add")


async def test_limits_tighten_and_a_full_server_says_when_to_return(serve: Any, wire: Any) -> None:
    server = await serve(Playground, limits=ServerLimits(max_episodes=1, queue_seconds=0.05, grace_seconds=0.2))
    async with connect(server.url, wire=wire, patience_seconds=0) as client:
        environment = client.environment("playground")
        async with environment.episode(limits=EpisodeLimits(max_steps=2)) as episode:
            assert episode.limits.max_steps == 2
            with pytest.raises(CapacityError) as full:
                await environment.start()
            assert full.value.retry_after is not None
            await episode.call("add")
            last = await episode.call("add")
            assert (last.truncated, last.end_reason) == (True, EndReason.STEP_LIMIT)


async def test_concurrent_tools_overlap_where_the_wire_keeps_order(serve: Any) -> None:
    server = await serve(Slow)
    async with connect(server.url) as client, client.environment("slow").episode() as episode:
        results = await asyncio.gather(episode.call("meet"), episode.call("meet"))
        assert [said(result) for result in results] == ["step 1", "step 2"]


async def test_tokens_open_what_their_scopes_say(serve: Any, wire: Any) -> None:
    good, first = new_token("trainer", ["tasks:read", "episodes:run", "rewards:read"])
    poor, second = new_token("reader", ["tasks:read"])
    variables = {"LUDUS_TOKENS": TokenFile(tokens=(first, second)).model_dump_json()}
    server = await serve(Playground, variables=variables)
    for token in (None, "ludus_" + "c" * 43):
        async with connect(server.url, token=token, wire=wire) as client:
            with pytest.raises(Unauthenticated):
                await client.environments()
    async with connect(server.url, token=good, wire=wire) as client, client.environment("playground").episode():
        pass
    async with connect(server.url, token=poor, wire=wire) as client:
        assert await client.environments()
        with pytest.raises(Forbidden, match="episodes:run"):
            await client.environment("playground").start()


async def test_an_episode_that_could_not_be_closed_is_left_once_and_closed_with_its_client(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await serve(Playground)
    tried = 0

    async def unreachable() -> None:
        nonlocal tried
        tried += 1
        raise ConnectionFailed("the server is gone")

    async with connect(server.url) as client:
        with pytest.raises(ConnectionFailed):
            async with client.environment("playground").episode() as episode, episode:
                monkeypatch.setattr(episode, "close", unreachable)
        assert tried == 1
        monkeypatch.undo()
    assert server.app.context.host.stats().running == 0
