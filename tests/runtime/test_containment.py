"""Every exception that an environment's code raises fails its episode, with an incident, and no other episode."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from worlds import Playground, Riddle, Unspeakable, riddle

from ludus.protocol import episodes as e
from ludus.protocol.errors import EnvironmentFailed, TaskNotFound
from ludus.server import Environment, EpisodeHost, Result, Split, Task, ToolError, tool
from ludus.server.auth import CapabilitySigner
from ludus.server.auth.principal import Principal
from ludus.server.rewards.rubric import Rubric

Start = Callable[..., Awaitable[EpisodeHost]]
OPEN = Principal.open()


class SilentRefusal(ToolError):
    """A refusal whose text exits."""

    def __str__(self) -> str:
        raise SystemExit(5)


RAISED = {
    "GeneratorExit": GeneratorExit,
    "a plain BaseException": BaseException,
    "SystemExit": SystemExit,
    "KeyboardInterrupt": KeyboardInterrupt,
    "CancelledError": asyncio.CancelledError,
    "an exception whose text exits": Unspeakable,
    "a refusal whose text exits": SilentRefusal,
    "StopIteration": StopIteration,
    "KeyError": KeyError,
}
EACH = pytest.mark.parametrize("kind", RAISED.values(), ids=RAISED)


class Quiet(Playground):
    """What the others are compared with."""


async def begin(host: EpisodeHost, name: str, split: str = "train", key: str = "k") -> str:
    params = e.StartParams(environment=name, split=split, index=0, key=key)
    return (await host.start(params, OPEN)).episodes[0].episode


async def still_serves(host: EpisodeHost) -> None:
    episode = await begin(host, "quiet", key="another")
    result = await host.step(e.StepParams(episode=episode, step=1, tool="add", key="s"), OPEN)
    assert result.reward is not None
    assert host.stats().running == 1


@pytest.mark.suite("breadth", first=36)
@EACH
@pytest.mark.parametrize("blocking", [True, False], ids=["in a thread", "on the loop"])
@pytest.mark.parametrize("where", ["__init__", "setup", "prompt", "task_tools"])
async def test_a_start_that_raises_is_answered_with_an_incident(
    host: Start, where: str, kind: type[BaseException], blocking: bool
) -> None:
    calls: list[str] = []

    def fails(self: Any, *args: Any) -> Any:
        calls.append(where)
        if where != "__init__" or len(calls) > 1:  # publishing the class makes one instance
            raise kind

    broken = type("Broken", (Playground,), {where: fails, "blocking": blocking})
    running = await host(broken, Quiet)
    with pytest.raises(EnvironmentFailed) as caught:
        await begin(running, "broken")
    assert caught.value.incident
    before = len(calls)
    with pytest.raises(EnvironmentFailed):  # the same key: the stored outcome, and the code is not run again
        await begin(running, "broken")
    assert len(calls) == before
    await still_serves(running)


@EACH
async def test_a_teardown_that_raises_frees_the_episode_all_the_same(host: Start, kind: type[BaseException]) -> None:
    class Untidy(Playground):
        async def teardown(self) -> None:
            raise kind

    running = await host(Untidy, Quiet)
    episode = await begin(running, "untidy")
    closed = await running.close(e.CloseParams(episode=episode), OPEN)
    assert closed.info.end_reason == "closed"
    await still_serves(running)


@EACH
async def test_grades_and_group_scores_that_raise_fail_with_an_incident(host: Start, kind: type[BaseException]) -> None:
    class Ungrading(Playground):
        async def grade(self, answer: str) -> Any:  # type: ignore[override]
            raise kind

        @classmethod
        def score_group(cls, task: Any, candidates: Sequence[Any]) -> Any:
            yield 1.0
            raise kind

    running = await host(Ungrading, Quiet)
    episode = await begin(running, "ungrading")
    group = (await running.get_episode(e.GetEpisodeParams(episode=episode), OPEN)).info.group
    scoring = e.ScoreGroupParams(group=group, candidates={episode: e.Candidate(messages=())}, key="s")
    with pytest.raises(EnvironmentFailed):
        await running.score_group(scoring, OPEN)
    if kind is not SilentRefusal:  # a refusal is for the agent, wherever it is raised
        with pytest.raises(EnvironmentFailed):
            await running.grade(e.GradeParams(episode=episode, answer="x", key="g"), OPEN)
    else:
        await running.close(e.CloseParams(episode=episode), OPEN)
    await still_serves(running)


@EACH
@pytest.mark.parametrize("how", ["lazy", "load", "sequence", "private serializer"])
async def test_tasks_that_cannot_be_read_fail_the_request(host: Start, kind: type[BaseException], how: str) -> None:
    def fails(*args: Any) -> Any:
        raise kind

    class Odd(list[Riddle]):
        def __getitem__(self, index: Any) -> Any:
            raise kind

    class Hidden(Task):
        def public(self) -> dict[str, Any]:
            raise kind

    splits: dict[str, Any] = {
        "lazy": Split.lazy(fails, 5, type="train"),
        "load": Split.load(fails, type="train"),
        "sequence": Split(Odd([riddle(0)]), type="train"),
        "private serializer": Split([Hidden(id="h")], type="train"),
    }
    broken = type("Broken", (Playground,), {"splits": {"train": splits[how]}})
    running = await host(broken, Quiet)
    with pytest.raises(EnvironmentFailed):
        await begin(running, "broken")
    with pytest.raises(EnvironmentFailed):
        await running.list_tasks(e.ListTasksParams(environment="broken", split="train"), OPEN)
    await still_serves(running)
    with pytest.raises(TaskNotFound):
        await running.get_task(e.GetTaskParams(environment="quiet", split="train", task="none"), OPEN)


async def test_a_refusal_whose_text_exits_is_still_a_refusal(host: Start) -> None:
    class Refusing(Playground):
        @tool
        def no(self) -> str:
            """Refuse."""
            raise SilentRefusal

    running = await host(Refusing, Quiet)
    episode = await begin(running, "refusing")
    result = await running.step(e.StepParams(episode=episode, step=1, tool="no", key="s"), OPEN)
    assert result.error is not None
    assert (result.error.code, result.error.message) == ("refused", "the tool refused")
    await running.close(e.CloseParams(episode=episode), OPEN)
    await still_serves(running)


@EACH
async def test_turns_whose_judgment_raises_fail_the_episode(
    host: Start, kind: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    from ludus.server.rewards import reward

    class Judged(Playground):
        @reward(when="turn")
        def good(self) -> float:
            return 1.0

    async def fails(self: Rubric, *args: Any, **kwargs: Any) -> Any:
        raise kind

    running = await host(Judged, Quiet)
    episode = await begin(running, "judged")
    with monkeypatch.context() as patched:
        patched.setattr(Rubric, "score", fails)
        with pytest.raises(EnvironmentFailed):
            await running.step(e.StepParams(episode=episode, step=1, tool="add", key="s"), OPEN)
    await still_serves(running)


async def test_a_grade_that_returns_nothing_is_a_mistake_of_the_environment_and_not_a_0(host: Start) -> None:
    class Forgetful(Playground):
        def grade(self, answer: str) -> Any:
            float(answer == "right")

    running = await host(Forgetful, Quiet)
    episode = await begin(running, "forgetful")
    with pytest.raises(EnvironmentFailed, match="grading"):
        await running.grade(e.GradeParams(episode=episode, answer="right", key="g"), OPEN)
    info = (await running.get_episode(e.GetEpisodeParams(episode=episode), OPEN)).info
    assert info.reward is not None
    assert info.reward.value is None
    await still_serves(running)


async def test_rewards_too_large_to_add_up_leave_an_episode_unscored(host: Start) -> None:
    class Vast(Environment[Task]):
        splits = {"train": [Task(id="t")]}

        def prompt(self) -> str:
            return "x"

        @tool
        def more(self) -> Result:
            """Earn."""
            return Result("x", reward=1.5e308, components={"a": 1.5e308})

    running = await host(Vast, Quiet)
    episode = await begin(running, "vast")
    for number in (1, 2):
        step = e.StepParams(episode=episode, step=number, tool="more", key=f"s{number}")
        assert (await running.step(step, OPEN)).reward is not None
    info = (await running.close(e.CloseParams(episode=episode), OPEN)).info
    assert info.reward is not None
    assert (info.reward.value, info.reward.reason) == (None, "the sum of the rewards is too large for a number")
    await still_serves(running)


@pytest.mark.parametrize("now", [2**32 - 10, 2**32 + 1, 2**40], ids=["before 2106", "after 2106", "year 36812"])
async def test_clocks_past_2106_sign_capabilities_that_are_good(now: float, monkeypatch: pytest.MonkeyPatch) -> None:
    signer = CapabilitySigner.random(ttl_seconds=3600)
    monkeypatch.setattr(time, "time", lambda: float(now))
    capability, expires = signer.sign("e_1", ["a"])
    if now < 2**40:
        assert expires == now + 3600
        assert signer.verify(capability).episode == "e_1"
    else:
        assert expires == 253_402_300_799
