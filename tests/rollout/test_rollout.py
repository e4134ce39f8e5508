"""Rollouts end with trajectories: every episode recorded, failures never counted as rewards."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Generator
from contextlib import AsyncExitStack, aclosing
from typing import Any

import aiohttp
import pytest

from ludus.client import (
    Conversation,
    Harness,
    Progress,
    RandomPolicy,
    RemoteEnvironment,
    Turn,
    connect,
    rollout,
    rollout_all,
    run_episode,
    summarize,
)
from ludus.client.rollouts import episode_seed
from ludus.protocol.errors import ConnectionFailed, InvalidParams, SplitNotFound, Unsupported
from ludus.protocol.items import MalformedCall
from ludus.server import Answer, Call, Environment, EpisodeLimits, Private, Result, Split, StepResult, Task, tool
from ludus.server.serving.serve import LudusServer, serving
from ludus.validation.core.oracle import OraclePolicy

Remote = Callable[..., Awaitable[RemoteEnvironment]]


class Sum(Task):
    a: int
    b: int
    answer: Private[int]


def sums(index: int) -> Sum:
    return Sum(id=f"sum-{index}", a=index, b=2, answer=index + 2)


class Adding(Environment[Sum]):
    """Add two numbers."""

    name = "adding"
    version = "3.2.1"
    splits = {"train": [sums(index) for index in range(10)], "endless": Split.generated(sums, type="train")}
    broken_setups: list[int] = []

    def setup(self) -> None:
        if self.broken_setups:
            raise RuntimeError(f"broken {self.broken_setups.pop()}")

    def prompt(self) -> str:
        return f"{self.task.a} + {self.task.b}?"

    @tool
    def hint(self, what: str = "") -> Result:
        """A hint for some reward."""
        return Result(f"hint {what}", reward=0.1, components={"hints": 1.0}, metadata={"said": what})

    @tool
    def submit(self, number: int) -> Result:
        """End the episode."""
        return Result("done", reward=float(number == self.task.answer), finished=True)

    @tool
    def crash(self) -> str:
        """Break."""
        raise RuntimeError("boom")

    def grade(self, answer: str) -> float:
        return float(answer.strip() == str(self.task.answer))

    @classmethod
    def oracle(cls, task: Sum) -> Generator[Call | Answer, StepResult, None]:
        seen = yield Call("hint", {"what": "x"})
        assert seen.reward is not None
        yield Call("submit", {"number": task.answer})


class Ungraded(Environment[Sum]):
    """No final message counts here."""

    splits = {"train": [sums(index) for index in range(3)]}
    seedable = False

    def prompt(self) -> str:
        return "Earn."

    @tool
    def earn(self) -> Result:
        """Earn a half."""
        return Result("here", reward=0.5)


async def test_an_oracle_reaches_the_best_reward_on_every_task(remote: Remote) -> None:
    environment = await remote(Adding)
    found = await rollout_all(environment, OraclePolicy(f"{__file__}:Adding"), seed=1, concurrency=4)
    assert [t.task.index for t in found] == list(range(10))
    assert {t.value for t in found} == {1.1}
    first = found[0]
    assert (first.environment, first.environment_version, first.policy) == ("adding", "3.2.1", "oracle")
    assert first.outcome == "completed"
    assert [item["type"] for item in first.items] == [
        "message", "function_call", "function_call_output", "function_call", "function_call_output",
    ]  # fmt: skip
    assert [step.step for step in first.steps] == [1, 2]
    assert first.steps[0].reward is not None
    assert first.steps[0].reward.components["hints"].value == 1.0
    assert first.steps[0].metadata == {"said": "x"}
    assert len(first.turns) == 2
    assert first.seed == episode_seed(1, "sum-0", 0)


async def test_episodes_that_run_at_the_same_time_share_frames(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = 0
    send_frame = aiohttp.ClientWebSocketResponse.send_frame

    async def count(self: aiohttp.ClientWebSocketResponse, *arguments: Any) -> None:
        nonlocal frames
        frames += 1
        await send_frame(self, *arguments)

    monkeypatch.setattr(aiohttp.ClientWebSocketResponse, "send_frame", count)
    found = await rollout_all(await remote(Adding), OraclePolicy(f"{__file__}:Adding"), samples=16, concurrency=64)
    assert len(found) == 160
    assert frames < len(found) / 2, "each episode sends at least three requests"


async def test_a_random_policy_repeats_itself_under_a_seed(remote: Remote) -> None:
    environment = await remote(Adding)
    runs = [
        await rollout_all(environment, RandomPolicy(7), seed=7, n=5, samples=2, harness=Harness(max_turns=6))
        for _ in range(2)
    ]
    assert len(runs[0]) == 10
    assert [t.items for t in runs[0]] == [t.items for t in runs[1]]
    assert runs[0][0].items != runs[0][1].items


async def test_a_final_message_is_graded(remote: Remote) -> None:
    async def policy(conversation: Conversation) -> Answer:
        return Answer("2" if conversation.task.id == "sum-0" else "wrong")

    found = await rollout_all(await remote(Adding), policy, n=2)
    assert [t.value for t in found] == [1.0, 0.0]
    assert found[0].outcome == "submitted"
    assert found[0].grade is not None


async def test_parallel_calls_are_all_made_and_answered_in_order(remote: Remote) -> None:
    async def policy(conversation: Conversation) -> list[Call] | Answer:
        if conversation.turn == 1:
            return [Call("hint", {"what": str(i)}) for i in range(5)]
        return Answer("2")

    (found,) = await rollout_all(await remote(Adding), policy, n=1)
    outputs = [item["output"] for item in found.items if item["type"] == "function_call_output"]
    assert outputs == [f"hint {i}" for i in range(5)]
    assert [step.step for step in found.steps] == [1, 2, 3, 4, 5]
    assert found.value == pytest.approx(1.5)


async def test_calls_after_the_one_that_ended_the_episode_get_that_answer_and_nothing_fails(remote: Remote) -> None:
    async def policy(conversation: Conversation) -> list[Call]:
        return [Call("submit", {"number": 2}), Call("hint"), Call("hint")]

    (found,) = await rollout_all(await remote(Adding), policy, n=1)
    assert found.failure is None
    assert found.value == 1.0
    assert len(found.steps) == 1
    assert [item["output"] for item in found.items[-2:]] == ["not run: the episode had ended"] * 2


async def test_what_was_earned_stands_when_the_policy_stops_where_nothing_is_graded(remote: Remote) -> None:
    async def policy(conversation: Conversation) -> Call | Answer:
        return Call("earn") if conversation.turn < 3 else Answer("I am done.")

    (found,) = await rollout_all(await remote(Ungraded), policy, n=1)
    assert found.value == 1.0
    assert found.outcome == "closed (final_message)"


async def test_a_turn_limit_stops_the_episode_with_what_it_earned(remote: Remote) -> None:
    async def policy(conversation: Conversation) -> Call:
        return Call("earn")

    (found,) = await rollout_all(await remote(Ungraded), policy, n=1, harness=Harness(max_turns=4))
    assert found.value == 2.0
    assert found.outcome == "closed (turn_limit)"


async def test_a_time_limit_stops_the_episode_with_what_it_earned(remote: Remote) -> None:
    async def policy(conversation: Conversation) -> Call:
        if conversation.turn == 2:
            await asyncio.Event().wait()
        return Call("earn")

    (found,) = await rollout_all(await remote(Ungraded), policy, n=1, harness=Harness(episode_seconds=0.3))
    assert found.value == 0.5
    assert found.outcome == "closed (time_limit)"


async def test_a_limit_that_the_server_keeps_while_the_policy_thinks_is_no_failure(remote: Remote) -> None:
    async def policy(conversation: Conversation) -> Call | Answer:
        if conversation.turn == 1:
            return Call("hint")
        await _elapse(0.5)
        return Call("hint") if conversation.task.index else Answer("2")

    found = await rollout_all(await remote(Adding), policy, n=2, limits=EpisodeLimits(seconds=0.3))
    assert [t.failure for t in found] == [None, None]
    assert [t.outcome for t in found] == ["time_limit", "time_limit"]
    assert [t.value for t in found] == [0.1, 0.1]


async def _elapse(seconds: float) -> None:
    """Let wall-clock time pass, which is what the limit is about."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), seconds)


async def test_malformed_arguments_are_an_observation_and_no_step(remote: Remote) -> None:
    async def policy(conversation: Conversation) -> list[MalformedCall] | Call | Answer:
        if conversation.turn == 1:
            return [MalformedCall("hint", '{"what": ', "the arguments are not valid JSON: cut off")]
        if conversation.turn == 2:
            assert conversation.results[0].error is not None
            return Call("hint", {"what": "\ud800"})
        return Answer("2")

    (found,) = await rollout_all(await remote(Adding), policy, n=1)
    assert found.failure is None
    assert [step.error for step in found.steps] == ["invalid_arguments", "invalid_arguments"]
    assert [step.step for step in found.steps] == [0, 0]
    assert "not valid JSON" in found.items[2]["output"]


async def test_unknown_tools_and_wrong_arguments_are_steps_and_the_episode_goes_on(remote: Remote) -> None:
    async def policy(conversation: Conversation) -> Call | Answer:
        tries: list[Call | Answer] = [Call("nope"), Call("submit", {"number": "many"}), Answer("2")]
        return tries[conversation.turn - 1]

    (found,) = await rollout_all(await remote(Adding), policy, n=1)
    assert [(step.step, step.error) for step in found.steps] == [(1, "unknown_tool"), (2, "invalid_arguments")]
    assert found.value == 1.0


async def test_policies_see_no_rewards_unless_they_say_so(remote: Remote) -> None:
    seen: list[Any] = []

    async def policy(conversation: Conversation) -> Call:
        seen.extend((r.reward, r.metadata) for r in conversation.results)
        return Call("hint") if conversation.turn == 1 else Call("submit", {"number": 1})

    await rollout_all(await remote(Adding), policy, n=1)
    assert seen == [(None, {})]


async def test_an_environment_error_is_reported_apart_and_not_retried(remote: Remote) -> None:
    async def policy(conversation: Conversation) -> Call:
        return Call(
            "crash" if conversation.task.index == 0 else "submit", {} if not conversation.task.index else {"number": 3}
        )

    found = await rollout_all(await remote(Adding), policy, n=2)
    assert found[0].failure is not None
    assert found[0].failure.kind == "environment"
    assert found[0].failure.incident
    assert "boom" not in found[0].failure.message
    assert found[0].reward is None
    assert str(found[0].end_reason) == "environment_error"
    assert found[0].attempts == 1
    summary = summarize(found)
    assert (summary.mean, summary.scored, summary.failed) == (1.0, 1, {"environment": 1})


async def test_environment_errors_are_retried_when_asked(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ludus.client.rollouts.FIRST_PAUSE", 0.01)
    monkeypatch.setattr(Adding, "broken_setups", [1, 2])
    stream = rollout(await remote(Adding), OraclePolicy(f"{__file__}:Adding"), n=1, retry_environment_errors=True)
    (found,) = [t async for t in stream]
    assert found.value == pytest.approx(1.1)
    assert found.attempts == 3
    assert [failure.kind for failure in found.incidents] == ["environment", "environment"]
    assert [failure.attempt for failure in found.incidents] == [1, 2]


async def test_infrastructure_failures_are_retried_with_the_same_seed(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ludus.client.rollouts.FIRST_PAUSE", 0.01)
    seeds: list[int] = []

    async def policy(conversation: Conversation) -> Answer:
        seeds.append(conversation.seed)
        if len(seeds) < 3:
            raise ConnectionFailed("the model is gone")
        return Answer("2")

    (found,) = await rollout_all(await remote(Adding), policy, n=1, seed=5)
    assert found.value == 1.0
    assert found.attempts == 3
    assert len(set(seeds)) == 1
    assert {failure.error for failure in found.incidents} == {"ConnectionFailed"}


async def test_a_policy_that_raises_is_recorded_once_and_never_rewarded(remote: Remote) -> None:
    async def policy(conversation: Conversation) -> Answer:
        raise ValueError("my bug")

    (found,) = await rollout_all(await remote(Adding), policy, n=1)
    assert found.failure is not None
    assert (found.failure.kind, found.failure.error, found.failure.message) == ("policy", "ValueError", "my bug")
    assert found.reward is None
    assert found.attempts == 1


async def test_a_policy_that_raises_cancellation_of_its_own_loses_no_episode(remote: Remote) -> None:
    async def policy(conversation: Conversation) -> Answer:
        raise asyncio.CancelledError

    found = await rollout_all(await remote(Adding), policy, n=3, concurrency=2)
    assert [t.failure.error for t in found if t.failure] == ["CancelledError"] * 3


async def test_a_policy_that_hangs_is_an_infrastructure_failure(remote: Remote) -> None:
    async def policy(conversation: Conversation) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError

    (found,) = await rollout_all(await remote(Adding), policy, n=1, retries=0, harness=Harness(turn_seconds=0.1))
    assert found.failure is not None
    assert (found.failure.kind, found.failure.error) == ("infrastructure", "DeadlineExceeded")


async def test_what_a_policy_may_not_return_is_its_failure(remote: Remote) -> None:
    async def policy(conversation: Conversation) -> Any:
        return "forty-two"

    (found,) = await rollout_all(await remote(Adding), policy, n=1)
    assert found.failure is not None
    assert "return a Call" in found.failure.message


async def test_mistakes_in_the_request_end_the_rollout(remote: Remote) -> None:
    environment = await remote(Adding)
    with pytest.raises(SplitNotFound, match="'train'"):
        await rollout_all(environment, RandomPolicy(), split="nope")
    with pytest.raises(InvalidParams, match="endless"):
        await rollout_all(environment, RandomPolicy(), split="endless")
    with pytest.raises(Unsupported):
        await rollout_all(await remote(Ungraded), RandomPolicy(), seed=1)


async def test_an_endless_split_gives_as_many_tasks_as_asked(remote: Remote) -> None:
    found = await rollout_all(await remote(Adding), RandomPolicy(), split="endless", n=3, harness=Harness(max_turns=2))
    assert [t.task.index for t in found] == [0, 1, 2]


async def test_tasks_may_be_named_by_id_index_or_row(remote: Remote) -> None:
    environment = await remote(Adding)
    row = await environment.task("train", index=7)
    found = await rollout_all(environment, RandomPolicy(), tasks=["sum-3", 1, row], harness=Harness(max_turns=1))
    assert [t.task.index for t in found] == [1, 3, 7]


async def test_no_more_episodes_run_at_once_than_allowed(remote: Remote) -> None:
    running, most = 0, 0
    full = asyncio.Event()

    async def policy(conversation: Conversation) -> Answer:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 3:
            full.set()
        await full.wait()
        running -= 1
        return Answer("x")

    await rollout_all(await remote(Adding), policy, concurrency=3)
    assert most == 3


async def test_leaving_the_loop_early_closes_open_episodes(serve: Any) -> None:
    server = await serve(Adding)
    waiting = asyncio.Event()

    async def policy(conversation: Conversation) -> Turn | Answer:
        if conversation.task.index:
            await waiting.wait()
        return Answer("x")

    async with connect(server.url) as client:
        async with aclosing(rollout(client.environment("adding"), policy, concurrency=4)) as stream:
            async for trajectory in stream:
                assert trajectory.task.index == 0
                break
        assert client._session.open_episodes == {}


async def test_progress_counts_and_skips_what_exists(remote: Remote) -> None:
    told: list[Progress] = []
    stream = rollout(
        await remote(Adding), OraclePolicy(f"{__file__}:Adding"), n=4,
        skip={("adding", "train", "sum-0", 0)}, on_progress=told.append,
    )  # fmt: skip
    assert len([t async for t in stream]) == 3
    assert (told[0].done, told[0].total, told[0].latest) == (0, 4, None)
    assert told[-1].done == 3
    assert told[-1].mean == pytest.approx(1.1)


async def test_one_episode_can_be_played_by_hand(remote: Remote) -> None:
    environment = await remote(Adding)
    async with environment.episode(split="train", index=4) as episode:
        found = await run_episode(episode, OraclePolicy(f"{__file__}:Adding"))
    assert found.value == pytest.approx(1.1)


async def test_a_server_that_goes_away_is_an_infrastructure_failure_without_reward(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ludus.client.rollouts.FIRST_PAUSE", 0.01)
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving([Adding]))
        port = int(server.url.rpartition(":")[2])
        client = await stack.enter_async_context(connect(server.url, reconnect_seconds=0.5))

        async def policy(conversation: Conversation) -> Call:
            server.stop()
            await _refused(port)
            await _disconnected(server)
            return Call("hint")

        found = await rollout_all(client.environment("adding"), policy, n=1, retries=1)
    assert found[0].failure is not None
    assert found[0].failure.kind == "infrastructure"
    assert found[0].reward is None
    assert found[0].attempts == 2


async def _disconnected(server: LudusServer) -> None:
    """Until the server has closed its connections: on an open one it still answers steps."""
    while True:
        if not server.server_state.connections:
            return
        await asyncio.sleep(0)


async def _refused(port: int) -> None:
    """Until no server listens there any more."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionError:
            return
        writer.close()
        await asyncio.sleep(0)
