"""A run says why episodes have no reward, and does not go on where every attempt fails alike."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import pytest

from ludus.client import Conversation, OpenAIPolicy, RemoteEnvironment, rollout, rollout_all, summarize
from ludus.protocol import Call
from ludus.protocol.errors import ConnectionFailed, EveryAttemptFailed, Unauthenticated
from ludus.protocol.rewards import Component, Reward
from ludus.protocol.trajectory import Trajectory
from ludus.server import Environment, Result, Task, tool
from ludus.server.tasks.catalog import Catalog

Remote = Callable[..., Awaitable[RemoteEnvironment]]

TASKS, LIMIT, AT_ONCE = 60, 6, 4


class Odd(Environment[Task]):
    """Divides by what it should not, from the task of `breaks_from` on; leaves some without a verdict."""

    splits = {"train": [Task(id=f"task-{index}") for index in range(TASKS)]}
    breaks_from: ClassVar[int] = 0
    judged: ClassVar[bool] = True
    begun: ClassVar[int] = 0

    def prompt(self) -> str:
        return "Go."

    def setup(self) -> None:
        type(self).begun += 1

    @tool(ends=True)
    def go(self) -> Result:
        """Go."""
        number = int(self.task.id.removeprefix("task-"))
        if number >= self.breaks_from:
            raise ZeroDivisionError
        if not self.judged:
            return Result("ok", reward=Reward.unscored(f"judge 'style' gave no verdict in {number}.5 s"))
        parts = {"right": 1.0} | ({"bonus": Component(value=0.5, weight=0.1)} if number % 2 else {})
        return Result("ok", reward=Reward.of(1.0, parts))


@pytest.fixture(autouse=True)
def usual() -> None:
    Odd.breaks_from, Odd.judged, Odd.begun = 0, True, 0


async def go(conversation: Conversation) -> Call:
    return Call("go")


async def needs_a_package(conversation: Conversation) -> Call:
    raise ModuleNotFoundError("No module named 'surely.absent'", name="surely.absent")


async def all_of(environment: RemoteEnvironment, **options: Any) -> tuple[list[Trajectory], EveryAttemptFailed | None]:
    seen: list[Trajectory] = []
    try:
        async for trajectory in rollout(environment, go, concurrency=AT_ONCE, **options):
            seen.append(trajectory)
    except EveryAttemptFailed as error:
        return seen, error
    return seen, None


async def test_a_run_whose_attempts_all_fail_alike_begins_no_further_episodes(remote: Remote) -> None:
    seen, error = await all_of(await remote(Odd), stop_after_same_failure=LIMIT)
    assert error is not None
    assert "ZeroDivisionError" in error.message
    assert LIMIT <= len(seen) == Odd.begun <= LIMIT + AT_ONCE, "what was played is yielded all the same"


async def test_without_being_asked_a_rollout_plays_on(remote: Remote) -> None:
    seen, error = await all_of(await remote(Odd))
    assert (len(seen), error) == (TASKS, None)


async def test_a_run_that_scored_once_plays_on(remote: Remote) -> None:
    Odd.breaks_from = 1
    seen, error = await all_of(await remote(Odd), stop_after_same_failure=LIMIT)
    assert (len(seen), error) == (TASKS, None)


async def test_a_judge_that_never_gives_a_verdict_stops_a_run(remote: Remote) -> None:
    Odd.breaks_from, Odd.judged = TASKS, False
    seen, error = await all_of(await remote(Odd), stop_after_same_failure=LIMIT)
    assert error is not None
    assert "gave no verdict" in error.message
    assert len(seen) <= LIMIT + AT_ONCE


async def test_a_run_that_ends_by_itself_is_not_stopped(remote: Remote) -> None:
    seen, error = await all_of(await remote(Odd), stop_after_same_failure=LIMIT, n=LIMIT)
    assert (len(seen), error) == (LIMIT, None)


async def test_retries_end_when_every_attempt_failed_alike(remote: Remote, endpoint: Any) -> None:
    """Three attempts of two requests at each of sixty tasks would be 360 requests."""
    endpoint.say(lambda _: {"error": {"message": "no capacity"}})
    async with OpenAIPolicy("m", endpoint.url, "key", attempts=2, first_pause=0.01) as policy:
        with pytest.raises(EveryAttemptFailed, match="no capacity"):
            async for _ in rollout(await remote(Odd), policy, concurrency=AT_ONCE, stop_after_same_failure=LIMIT):
                pass
    assert len(endpoint.requests) <= 2 * (LIMIT + AT_ONCE)


async def test_causes_are_counted_over_what_differs_between_their_messages(remote: Remote) -> None:
    Odd.breaks_from = 10
    broken = await rollout_all(await remote(Odd), go, n=30)
    Odd.judged = False
    unjudged = await rollout_all(await remote(Odd), go, n=9)
    absent = await rollout_all(await remote(Odd), needs_a_package, n=2)
    first, second, third = summarize([*broken, *unjudged, *absent]).causes
    assert (first.kind, first.count) == ("environment", 20)
    assert "ZeroDivisionError" in first.message
    assert (second.kind, second.count) == ("unscored", 9)
    assert "gave no verdict" in second.message
    assert (third.kind, third.count) == ("policy", 2)
    assert "pip install surely" in third.message
    assert summarize(broken[:10]).causes == ()


async def test_a_component_says_in_how_many_episodes_it_is_and_what_it_counts(remote: Remote) -> None:
    Odd.breaks_from = TASKS
    summary = summarize(await rollout_all(await remote(Odd), go, n=10))
    right, bonus = summary.components["right"], summary.components["bonus"]
    assert (right.mean, right.count, right.weight) == (1.0, 10, 1.0)
    assert (bonus.mean, bonus.count, bonus.weight) == (0.5, 5, 0.1)


async def test_the_refusal_of_a_models_key_is_marked_as_the_endpoints(remote: Remote, endpoint: Any) -> None:
    from aiohttp import web

    from ludus.cli.app import ExitCode, explain

    endpoint.say(lambda _: web.json_response({"error": {"message": "Incorrect API key"}}, status=401))
    async with OpenAIPolicy("m", endpoint.url, "wrong") as policy:
        with pytest.raises(Unauthenticated) as refused:
            await rollout_all(await remote(Odd), policy, n=1)
    code, message = explain(refused.value)
    assert code is ExitCode.REFUSED
    assert "--api-key" in message
    assert "--token" not in message


async def test_a_web_page_in_place_of_json_is_called_one(remote: Remote, endpoint: Any) -> None:
    from aiohttp import web

    page = "<html><head><title>Sign in</title></head>" + "<p>x</p>" * 99
    endpoint.say(lambda _: web.Response(text=page, content_type="text/html"))
    async with OpenAIPolicy("m", endpoint.url, attempts=1) as policy:
        (found,) = await rollout_all(await remote(Odd), policy, n=1, retries=0)
    assert found.failure is not None
    assert "web page titled 'Sign in' instead of JSON" in found.failure.message
    assert "<p>" not in found.failure.message


async def test_an_endpoint_where_nothing_listens_is_found_before_the_first_episode(endpoint: Any) -> None:
    async with OpenAIPolicy("m", endpoint.url) as policy:
        await policy.check()
    assert endpoint.requests == [], "looking is no request for a completion"
    async with OpenAIPolicy("m", "http://127.0.0.1:9/v1") as policy:
        with pytest.raises(ConnectionFailed, match=r"no connection to the model endpoint http://127\.0\.0\.1:9/v1"):
            await policy.check()


@pytest.mark.parametrize(
    "address", ["127.0.0.1:9/v1", "localhost:9/v1", "ftp://here/v1", "", "http://", "http://[::1/v1"]
)
def test_an_address_that_is_none_is_refused_at_once(address: str) -> None:
    with pytest.raises(ValueError, match="is not the address of a model endpoint"):
        OpenAIPolicy("m", address)


async def test_the_interval_of_a_mean_keeps_to_the_reward_range(remote: Remote) -> None:
    Odd.breaks_from = TASKS
    played = await rollout_all(await remote(Odd), go, n=3)
    first = played[0].model_copy(update={"reward": Reward.of(0.4)})
    free, kept = (summarize([first, *played[1:]], reward_range=bounds).interval for bounds in (None, (0.0, 1.0)))
    assert free is not None
    assert free[0] < 0.0
    assert free[1] > 1.0
    assert kept == (0.0, 1.0)
    wrong = summarize([first, *played[1:]], reward_range=(0.0, 0.9))
    assert wrong.interval == free, "a range that rewards lie beyond cuts nothing off"


@pytest.mark.parametrize("name", ["val", "valid", "dev", "eval"])
def test_a_validation_split_may_have_the_names_that_people_give_it(name: str) -> None:
    cls = type("Named", (Odd,), {"__doc__": "Go.", "splits": {name: [Task(id="a")]}})
    assert Catalog([cls]).find("named").split(name).type == "validation"


@pytest.mark.parametrize(("module", "extra"), [("ludus.server", "server"), ("ludus.trainer", "trainer")])
def test_a_missing_package_in_python_is_named_with_pips_command(module: str, extra: str) -> None:
    absent = {"server": "docstring_parser", "trainer": "torch"}[extra]
    names = {"server": "import ludus.server", "trainer": "from ludus.trainer import run"}[extra]
    program = f"import sys; sys.modules[{absent!r}] = None\n{names}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    assert f"pip install 'ludus-rl[{extra}]'" in done.stderr, done.stderr
