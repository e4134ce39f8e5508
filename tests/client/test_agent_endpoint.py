"""The agent's side of an episode: our client plays it with the play URL alone, and sees no reward."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, ClassVar

import pytest
from cutting import CuttingProxy

from ludus.client import Conversation, Driver, Episode, connect, run_episode
from ludus.client.agent_endpoint import open_agent_endpoint, with_rewards
from ludus.client.policies.base import PolicyResult
from ludus.protocol import Answer, Call, EndReason, ImageBlock, Message, Task, TextBlock, errors
from ludus.protocol.trajectory import Trajectory
from ludus.server import Environment, EpisodeLimits, Result, ServerLimits, ToolError, tool

PIXEL = ImageBlock.of(b"\x89PNG")


class Desk(Environment[Task]):
    """Counts, refuses, shows an image, fails and ends."""

    splits = {"train": [Task(id="only")]}
    limits = EpisodeLimits(max_steps=6)
    runs: ClassVar[list[int]] = []

    def prompt(self) -> list[Message]:
        return [
            Message(role="system", content=(TextBlock(text="Be brief."),)),
            Message(role="user", content=(TextBlock(text="Count."), PIXEL)),
        ]

    def setup(self) -> None:
        self.total = 0

    @tool
    async def add(self, number: int) -> Result:
        """Add a number."""
        await asyncio.sleep(0)
        self.runs.append(number)
        self.total += number
        return Result(str(self.total), reward=1.0)

    @tool
    def refuse(self) -> str:
        """Refuse."""
        raise ToolError("not today")

    @tool
    def look(self) -> Result:
        """Look."""
        return Result([PIXEL])

    @tool
    def finish(self) -> Result:
        """Finish."""
        return Result("finished", reward=2.0, finished=True)

    @tool
    def fail(self) -> str:
        """Fail."""
        raise RuntimeError("a bug")

    def grade(self, answer: str) -> float:
        return float(answer == "6")


@pytest.fixture
async def both(serve: Any) -> AsyncIterator[Any]:
    """`trainer, agent = await both()`: an episode as its trainer has it, and as the agent has it."""
    Desk.runs.clear()
    async with AsyncExitStack() as stack:
        server = await serve(Desk)
        client = await stack.enter_async_context(connect(server.url))

        async def start() -> tuple[Episode, Episode]:
            trainer = await client.environment("desk").start()
            assert trainer.play_url is not None
            return trainer, await stack.enter_async_context(open_agent_endpoint(trainer.play_url))

        yield start


async def count(conversation: Conversation) -> PolicyResult:
    """Add 1, 2 and 3, and submit the sum."""
    return Answer("6") if conversation.turn == 4 else Call("add", {"number": conversation.turn})


async def test_a_policy_plays_an_episode_and_the_trainer_reads_what_it_earned(both: Any) -> None:
    trainer, agent = await both()
    assert [tool.name for tool in agent.tools] == [tool.name for tool in trainer.tools]
    assert agent.tools == trainer.tools
    assert agent.gradable
    trajectory = await run_episode(agent, count)
    assert [item["type"] for item in trajectory.items if item["type"] == "function_call_output"] == [
        "function_call_output"
    ] * 3
    assert (trajectory.end_reason, trajectory.failure) == (EndReason.SUBMITTED, None)
    assert trajectory.reward is None
    assert all(step.reward is None for step in trajectory.steps)
    info = await trainer.close()
    scored = with_rewards(trajectory, info, (await trainer.rewards()).entries)
    assert scored.reward is not None
    assert scored.grade is not None
    assert (scored.reward.value, scored.grade.value, scored.task) == (4.0, 1.0, trainer.task)
    assert [step.reward and step.reward.value for step in scored.steps] == [1.0, 1.0, 1.0]
    assert Trajectory.model_validate_json(scored.model_dump_json()) == scored


async def test_the_prompt_and_images_arrive_and_the_url_is_in_no_record(both: Any) -> None:
    trainer, agent = await both()
    assert [block for message in agent.prompt for block in message.content] == [
        TextBlock(text="Be brief."), TextBlock(text="Count."), PIXEL,
    ]  # fmt: skip
    assert (await agent.call("look")).content == (PIXEL,)
    capability = trainer.play_url.rsplit("/", 2)[1]
    assert capability not in repr(agent)
    assert capability not in Driver(agent).trajectory("p").model_dump_json()


async def test_mistakes_of_the_policy_are_observations_and_count_as_steps(both: Any) -> None:
    trainer, agent = await both()
    unknown = await agent.call("nothing")
    wrong = await agent.call("add", number="many")
    refused = await agent.call("refuse")
    assert [one.error and one.error.code for one in (unknown, wrong, refused)] == ["unknown_tool", "refused", "refused"]
    assert refused.content == (TextBlock(text="not today"),)
    assert (await agent.call("add", number=1)).content == (TextBlock(text="1"),)
    assert (await agent.info()).steps == (await trainer.info()).steps == 4


async def test_the_end_is_known_with_its_reason_and_later_calls_are_refused(both: Any) -> None:
    trainer, agent = await both()
    result = await agent.call("finish")
    assert (result.content, result.end_reason) == ((TextBlock(text="finished"),), EndReason.COMPLETED)
    with pytest.raises(errors.EpisodeEnded):
        await agent.call("add", number=1)
    trainer, agent = await both()
    results = [await agent.call("add", number=1) for _ in range(6)]
    assert [one.end_reason for one in results] == [None] * 5 + [EndReason.STEP_LIMIT]
    trainer, agent = await both()
    await trainer.close()
    with pytest.raises(errors.EpisodeEnded, match="closed"):
        await agent.call("add", number=1)


async def test_an_episode_that_the_environment_fails_is_a_failure_with_its_incident(both: Any) -> None:
    trainer, agent = await both()

    async def fail(conversation: Conversation) -> PolicyResult:
        return Call("fail", {})

    trajectory = await run_episode(agent, fail)
    assert trajectory.failure is not None
    info = await trainer.info()
    assert (trajectory.failure.kind, trajectory.failure.incident) == ("environment", info.incident)
    assert with_rewards(trajectory.model_copy(update={"failure": None}), info, ()).failure is not None


async def test_an_agent_that_leaves_ends_nothing(both: Any) -> None:
    trainer, agent = await both()

    async def leave(conversation: Conversation) -> PolicyResult:
        raise RuntimeError("the policy broke")

    trajectory = await run_episode(agent, leave)
    assert trajectory.failure is not None
    assert (await trainer.info()).end_reason is None
    assert (await agent.close()).end_reason is None
    assert (await trainer.call("add", number=1)).error is None


@pytest.mark.parametrize("what", ["rewards", "fork"])
async def test_what_belongs_to_the_trainer_is_refused_without_a_request(both: Any, what: str) -> None:
    _, agent = await both()
    with pytest.raises(errors.Unsupported):
        await getattr(agent, what)()


@pytest.mark.suite("breadth")
async def test_a_call_whose_reply_is_lost_runs_once(serve: Any) -> None:
    Desk.runs.clear()
    server = await serve(Desk)
    async with (
        connect(server.url) as client,
        CuttingProxy(server.url, mean_bytes=1500, seed=3).running() as proxy,
    ):
        for _ in range(10):
            trainer = await client.environment("desk").start()
            assert trainer.play_url is not None
            async with open_agent_endpoint(trainer.play_url.replace(server.url, proxy.url)) as agent:
                for number in range(1, 5):
                    assert (await agent.call("add", number=number)).step == number
            assert (await trainer.close()).steps == 4
        assert proxy.cuts > 10
    assert Desk.runs == [1, 2, 3, 4] * 10


async def test_a_url_that_opens_nothing_is_refused(serve: Any) -> None:
    server = await serve(Desk)
    with pytest.raises(errors.CapabilityRefused):
        async with open_agent_endpoint(f"{server.url}/play/play_forged/mcp"):
            pass
    with pytest.raises(ValueError, match="play URL"):
        async with open_agent_endpoint("play_forged"):
            pass


async def test_an_episode_that_the_server_has_discarded_is_reported_as_lost(serve: Any) -> None:
    server = await serve(Desk, limits=ServerLimits(result_ttl_seconds=0, grace_seconds=0.3))
    async with connect(server.url) as client:
        trainer = await client.environment("desk").start()
        assert trainer.play_url is not None
        async with open_agent_endpoint(trainer.play_url) as agent:
            host = server.app.context.host
            await host.discard(trainer.id)
            host.store.evict(float("inf"))
            with pytest.raises(errors.EpisodeNotFound, match="discarded"):
                await agent.call("add", number=1)
