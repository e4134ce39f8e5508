"""The runtime: lifecycle, exactly-once steps, order, limits, and failures that affect one episode only."""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import weakref
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import field_serializer
from waiting import wait_until
from worlds import FAULTS, SECRET_ANSWER, Counting, Playground, Riddle, Troublesome, riddle

from ludus.protocol import EndReason, EpisodeLimits, EpisodeStatus, TextBlock, text_of
from ludus.protocol import episodes as e
from ludus.protocol import errors as err
from ludus.server import Environment, EpisodeHost, Result, ServerLimits, Split, tool
from ludus.server.auth.principal import Principal
from ludus.server.execution import user_code
from ludus.server.hosting.dispatch import dispatch
from ludus.server.tasks import service

Start = Callable[..., Awaitable[EpisodeHost]]
OPEN = Principal.open()
_keys = itertools.count()


def key() -> str:
    return f"key-{next(_keys)}"


async def begin(
    host: EpisodeHost, environment: str = "playground", split: str = "train", **more: Any
) -> e.StartedEpisode:
    params = e.StartParams(environment=environment, split=split, key=more.pop("key", key()), **more)
    return (await host.start(params, OPEN)).episodes[0]


async def step(host: EpisodeHost, episode: str, number: int, name: str, /, **arguments: Any) -> e.StepResult:
    params = e.StepParams(episode=episode, step=number, tool=name, arguments=arguments, key=f"s{number}")
    return await host.step(params, OPEN)


async def info(host: EpisodeHost, episode: str) -> e.EpisodeInfo:
    return (await host.get_episode(e.GetEpisodeParams(episode=episode), OPEN)).info


# ── a whole episode ────────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_episode_runs_from_prompt_to_reward(host: Start) -> None:
    running = await host(Playground)
    started = await begin(running, index=3, seed=7)
    assert text_of(started.prompt[0].content) == "Say word 3."
    assert (started.task.id, started.task.index, started.seed) == ("r-3", 3, 7)
    first = await step(running, started.episode, 1, "add", amount=2)
    assert first.reward is not None
    assert (text_of(first.content), first.reward.value, first.status) == ("count 2", 0.25, EpisodeStatus.RUNNING)
    last = await step(running, started.episode, 2, "finish", word=f"{SECRET_ANSWER}-3")
    assert (last.end_reason, last.terminated, last.truncated) == (EndReason.COMPLETED, True, False)
    log = await running.rewards(e.RewardsParams(episode=started.episode), OPEN)
    assert [(entry.step, entry.reward.value) for entry in log.entries] == [(1, 0.25), (2, 1.0)]
    assert (log.total.value, log.total.components["added"].value) == (1.25, 2.0)


async def test_a_final_message_is_graded_and_ends_the_episode(host: Start) -> None:
    running = await host(Playground)
    started = await begin(running, index=0)
    graded = await running.grade(e.GradeParams(episode=started.episode, answer=f"{SECRET_ANSWER}-0", key=key()), OPEN)
    assert graded.reward is not None
    assert (graded.reward.value, graded.info.end_reason) == (1.0, EndReason.SUBMITTED)


async def test_an_agents_mistakes_are_observations_and_the_episode_goes_on(host: Start) -> None:
    running = await host(Playground)
    episode = (await begin(running)).episode
    unknown = await step(running, episode, 1, "nosuch")
    wrong = await step(running, episode, 2, "add", amount="many", color="red")
    refused = await step(running, episode, 3, "refuse")
    codes = [result.error.code for result in (unknown, wrong, refused) if result.error is not None]
    assert codes == ["unknown_tool", "invalid_arguments", "refused"]
    assert "amount" in text_of(wrong.content)
    assert "color: there is no such argument" in text_of(wrong.content)
    assert text_of((await step(running, episode, 4, "add")).content) == "count 1"


async def test_groups_share_task_and_seed_and_nothing_else(host: Start) -> None:
    running = await host(Playground)
    params = e.StartParams(environment="playground", split="train", count=3, key=key())
    result = await running.start(params, OPEN)
    assert len({one.episode for one in result.episodes}) == 3
    assert len({(one.task.id, one.seed) for one in result.episodes}) == 1
    await step(running, result.episodes[0].episode, 1, "add", amount=5)
    assert text_of((await step(running, result.episodes[1].episode, 1, "add")).content) == "count 1"


async def test_the_same_seed_gives_the_same_task_and_the_same_randomness(host: Start) -> None:
    running = await host(Playground)
    seen = []
    for seed in (5, 5, 6):
        started = await begin(running, seed=seed)
        seen.append((started.task.id, text_of((await step(running, started.episode, 1, "roll")).content)))
    assert seen[0] == seen[1]
    assert seen[0] != seen[2]


async def test_an_environment_that_cannot_be_seeded_refuses_a_seed(host: Start) -> None:
    class Unseedable(Playground):
        seedable = False

    running = await host(Unseedable)
    with pytest.raises(err.Unsupported, match="cannot be seeded"):
        await begin(running, "unseedable", seed=1)


# ── exactly once ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_repeated_key_returns_the_stored_outcome_and_runs_nothing(host: Start) -> None:
    running = await host(Playground)
    episode = (await begin(running)).episode
    first = await step(running, episode, 1, "add")
    assert await step(running, episode, 1, "add") == first
    assert (await info(running, episode)).steps == 1
    assert text_of((await step(running, episode, 2, "add")).content) == "count 2"


async def test_a_repeat_while_the_step_runs_waits_for_the_same_outcome(host: Start) -> None:
    running = await host(Counting)
    Counting.runs.clear()
    episode = (await begin(running, "counting")).episode
    results = await asyncio.gather(*(step(running, episode, 1, "tick", mark="together") for _ in range(20)))
    assert Counting.runs["together"] == 1
    assert len({text_of(result.content) for result in results}) == 1


async def test_a_key_cannot_stand_for_two_things(host: Start) -> None:
    running = await host(Playground)
    episode = (await begin(running)).episode
    await step(running, episode, 1, "add")
    with pytest.raises(err.KeyConflict):
        await step(running, episode, 1, "add", amount=2)
    await running.start(e.StartParams(environment="playground", split="train", key="one", index=1), OPEN)
    with pytest.raises(err.KeyConflict):
        await running.start(e.StartParams(environment="playground", split="train", key="one", index=2), OPEN)


@pytest.mark.parametrize("number", [0 + 2, 3, 99])
async def test_a_gap_in_the_steps_is_refused_and_changes_nothing(host: Start, number: int) -> None:
    running = await host(Playground)
    episode = (await begin(running)).episode
    with pytest.raises(err.StepConflict) as caught:
        await step(running, episode, number, "add")
    assert caught.value.data["expected"] == 1
    assert text_of((await step(running, episode, 1, "add")).content) == "count 1"


async def test_an_old_number_under_a_new_key_is_refused(host: Start) -> None:
    running = await host(Playground)
    episode = (await begin(running)).episode
    await step(running, episode, 1, "add")
    params = e.StepParams(episode=episode, step=1, tool="add", key="another")
    with pytest.raises(err.StepConflict):
        await running.step(params, OPEN)


async def test_a_repeated_start_gives_the_same_episodes(host: Start) -> None:
    running = await host(Playground)
    params = e.StartParams(environment="playground", split="train", count=4, key=key())
    first, second = await asyncio.gather(running.start(params, OPEN), running.start(params, OPEN))
    assert first.episodes == second.episodes
    assert running.stats().running == 4


async def test_a_repeated_grade_gives_the_same_reward_even_after_the_end(host: Start) -> None:
    running = await host(Playground)
    episode = (await begin(running)).episode
    params = e.GradeParams(episode=episode, answer="x", key=key())
    assert await running.grade(params, OPEN) == await running.grade(params, OPEN)
    with pytest.raises(err.EpisodeEnded):
        await running.grade(params.model_copy(update={"key": "other"}), OPEN)


async def test_a_lost_reply_can_be_had_after_the_close_and_close_may_repeat(host: Start) -> None:
    running = await host(Playground)
    episode = (await begin(running)).episode
    first = await step(running, episode, 1, "add")
    closed = await running.close(e.CloseParams(episode=episode), OPEN)
    assert await step(running, episode, 1, "add") == first
    assert await running.close(e.CloseParams(episode=episode), OPEN) == closed
    with pytest.raises(err.EpisodeEnded):
        await step(running, episode, 2, "add")


@pytest.mark.requirement("STEP-5")
async def test_canceling_who_waits_does_not_cancel_the_step(host: Start) -> None:
    release = asyncio.Event()

    class Slow(Playground):
        @tool
        async def slow(self) -> str:
            """Wait for the test."""
            await release.wait()
            self.count += 1
            return f"count {self.count}"

    running = await host(Slow)
    episode = (await begin(running, "slow")).episode
    waiting = asyncio.create_task(step(running, episode, 1, "slow"))
    await asyncio.wait([waiting], timeout=0.05)
    waiting.cancel()
    await asyncio.wait([waiting])
    release.set()
    assert text_of((await step(running, episode, 1, "slow")).content) == "count 1"


@pytest.mark.requirement("KEY-2", "STEP-2", "STEP-3")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(script=st.lists(st.integers(min_value=1, max_value=6), min_size=1, max_size=30))
def test_any_order_of_repeats_and_gaps_runs_each_step_once(script: list[int]) -> None:
    async def play() -> None:
        async with EpisodeHost([Playground]) as running:
            episode = (await begin(running)).episode
            done = 0
            for number in script:
                try:
                    result = await step(running, episode, number, "add")
                except err.StepConflict:
                    assert number > done + 1
                else:
                    done = max(done, number)
                    assert text_of(result.content) == f"count {number}"
            assert (await info(running, episode)).steps == done

    asyncio.run(play())


# ── order and concurrency ──────────────────────────────────────────────────────────────────────────────────────────


async def test_steps_of_one_episode_run_one_at_a_time_in_order(host: Start) -> None:
    order: list[str] = []

    class Ordered(Playground):
        @tool
        async def note(self, name: str) -> str:
            """Note begin and end."""
            order.append(f"begin {name}")
            await asyncio.sleep(0)
            order.append(f"end {name}")
            return name

    running = await host(Ordered)
    episode = (await begin(running, "ordered")).episode
    await asyncio.gather(*(step(running, episode, number, "note", name=str(number)) for number in range(1, 5)))
    assert order == [f"{what} {number}" for number in range(1, 5) for what in ("begin", "end")]


async def test_concurrent_tools_overlap_with_each_other_and_with_nothing_else(host: Start) -> None:
    meeting = asyncio.Barrier(2)
    alone: list[int] = []
    inside = 0

    class Meeting(Playground):
        @tool(concurrent=True)
        async def meet(self) -> str:
            """Wait until two are here."""
            nonlocal inside
            inside += 1
            await meeting.wait()
            inside -= 1
            return "met"

        @tool
        async def count_others(self) -> str:
            """Who is here."""
            alone.append(inside)
            return "alone"

    running = await host(Meeting)
    episode = (await begin(running, "meeting")).episode
    names = ["meet", "meet", "count_others", "meet", "meet"]
    results = await asyncio.gather(*(step(running, episode, n, name) for n, name in enumerate(names, 1)))
    assert [text_of(result.content) for result in results] == ["met", "met", "alone", "met", "met"]
    assert alone == [0]


@pytest.mark.requirement("LIFE-7")
async def test_a_blocking_tool_does_not_stall_other_episodes(host: Start) -> None:
    running = await host(Troublesome, Playground)
    stuck = (await begin(running, "troublesome")).episode
    other = (await begin(running)).episode
    blocked = asyncio.create_task(step(running, stuck, 1, "block"))
    await asyncio.sleep(0)
    for number in range(1, 20):
        await step(running, other, number, "roll")
    assert not blocked.done()
    with pytest.raises(err.EnvironmentFailed):
        await blocked


async def test_calls_that_never_return_do_not_use_up_the_threads(host: Start) -> None:
    running = await host(Troublesome, Playground, limits=ServerLimits(threads=2, grace_seconds=0.1))
    for _ in range(4):
        with pytest.raises(err.EnvironmentFailed, match=r"longer than 0\.3 s"):
            await step(running, (await begin(running, "troublesome")).episode, 1, "block")
    assert text_of((await step(running, (await begin(running, seed=1)).episode, 1, "roll")).content).startswith("dice")


# ── failures ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.suite("breadth", first=10)
@pytest.mark.requirement("LIFE-5", "LIFE-7")
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_of_the_environment_fails_that_episode_only(
    host: Start, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    running = await host(Troublesome, Playground)
    bystander = (await begin(running)).episode
    episode = (await begin(running, "troublesome")).episode
    with caplog.at_level(logging.ERROR), pytest.raises(err.EnvironmentFailed) as caught:
        await step(running, episode, 1, fault)
    incident = caught.value.incident
    assert incident is not None
    assert any(incident in record.getMessage() for record in caplog.records)
    assert SECRET_ANSWER not in caught.value.message
    after = await info(running, episode)
    assert (after.status, after.end_reason, after.incident) == (
        EpisodeStatus.FAILED,
        EndReason.ENVIRONMENT_ERROR,
        incident,
    )
    assert after.reward is not None
    assert after.reward.value is None
    with pytest.raises(err.EnvironmentFailed):
        await step(running, episode, 1, fault)
    assert text_of((await step(running, bystander, 1, "add")).content) == "count 1"


@pytest.mark.parametrize("error", [RuntimeError("no"), SystemExit(2), asyncio.CancelledError()])
async def test_a_setup_that_raises_fails_the_start_and_frees_its_place(host: Start, error: BaseException) -> None:
    torn_down: list[bool] = []
    visible: list[int] = []

    class Unready(Playground):
        def setup(self) -> None:
            visible.append(len(running.store))
            raise error

        def teardown(self) -> None:
            torn_down.append(True)

    running = await host(Unready, limits=ServerLimits(max_episodes=1))
    for _ in range(3):
        with pytest.raises(err.EnvironmentFailed, match="setup"):
            await begin(running, "unready")
    assert running.stats().running == len(running.store) == 0
    assert visible == [0] * 3, "an episode is visible only when it is ready"
    assert torn_down == [True] * 3


async def test_a_task_that_cannot_be_shown_fails_and_takes_no_place(host: Start) -> None:
    class Stubborn(Riddle):
        @field_serializer("question")
        def _write(self, value: str) -> str:
            raise RuntimeError("no")

    class Unshowable(Playground):
        splits: ClassVar[Any] = {"train": [Stubborn(id="s", question="?", answer="!")]}

    running = await host(Unshowable, limits=ServerLimits(max_episodes=1, queue_seconds=0))
    for _ in range(2):
        with pytest.raises(err.EnvironmentFailed, match="public part"):
            await begin(running, "unshowable")
    with pytest.raises(err.EnvironmentFailed, match="public part"):
        await running.list_tasks(e.ListTasksParams(environment="unshowable", split="train"), OPEN)
    assert running.stats().running == 0


async def test_a_failed_start_is_returned_again_to_a_repeat_of_its_key(host: Start) -> None:
    class Unready(Playground):
        tries = 0

        def setup(self) -> None:
            type(self).tries += 1
            raise RuntimeError("no")

    running = await host(Unready)
    for _ in range(2):
        with pytest.raises(err.EnvironmentFailed):
            await begin(running, "unready", key="same")
    assert Unready.tries == 1


async def test_an_infrastructure_fault_is_distinguished(host: Start) -> None:
    class Sandboxed(Playground):
        @tool
        def run(self) -> str:
            """Fail below."""
            raise err.InfrastructureFailed("the sandbox died")

    running = await host(Sandboxed)
    episode = (await begin(running, "sandboxed")).episode
    with pytest.raises(err.InfrastructureFailed):
        await step(running, episode, 1, "run")
    assert (await info(running, episode)).end_reason is EndReason.INFRASTRUCTURE_ERROR


async def test_a_teardown_that_raises_or_hangs_is_logged_and_bounded(host: Start) -> None:
    class Untidy(Playground):
        async def teardown(self) -> None:
            await asyncio.Event().wait()

    running = await host(Untidy, limits=ServerLimits(setup_seconds=0.1))
    episode = (await begin(running, "untidy")).episode
    closed = await running.close(e.CloseParams(episode=episode), OPEN)
    assert closed.info.end_reason is EndReason.CLOSED


# ── limits ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_step_limit_truncates_and_keeps_what_was_earned(host: Start) -> None:
    running = await host(Playground)
    episode = (await begin(running, limits=EpisodeLimits(max_steps=2))).episode
    assert (await step(running, episode, 1, "add")).end_reason is None
    last = await step(running, episode, 2, "add")
    assert (last.end_reason, last.truncated, last.status) == (EndReason.STEP_LIMIT, True, EpisodeStatus.TRUNCATED)
    reward = (await info(running, episode)).reward
    assert reward is not None
    assert reward.value == 0.5


async def test_a_client_cannot_loosen_the_servers_limits(host: Start) -> None:
    running = await host(Playground, limits=ServerLimits(max_steps=3))
    assert (await begin(running, limits=EpisodeLimits(max_steps=50))).limits.max_steps == 3


async def test_long_observations_are_cut_with_a_visible_marker(host: Start) -> None:
    running = await host(Playground)
    episode = (await begin(running, limits=EpisodeLimits(observation_chars=100))).episode
    shown = await step(running, episode, 1, "say", text="x" * 5000)
    assert shown.content == (
        TextBlock(text="x" * 100),
        TextBlock(text="[observation cut: 100 of 5000 characters shown]"),
    )


async def test_too_many_observations_end_the_episode(host: Start) -> None:
    running = await host(Playground)
    episode = (await begin(running, limits=EpisodeLimits(total_observation_chars=150))).episode
    await step(running, episode, 1, "say", text="x" * 100)
    assert (await step(running, episode, 2, "say", text="x" * 100)).end_reason is EndReason.OBSERVATION_LIMIT


async def test_the_time_limit_ends_an_idle_episode_and_one_in_the_middle_of_a_step(host: Start) -> None:
    running = await host(Playground, Troublesome, limits=ServerLimits(idle_seconds=0.2))
    limits = EpisodeLimits(seconds=0.15, idle_seconds=60)
    idle = (await begin(running, limits=limits)).episode
    busy = (await begin(running, "troublesome", limits=limits)).episode
    result = await step(running, busy, 1, "hang")
    assert (result.end_reason, result.truncated) == (EndReason.TIME_LIMIT, True)
    await wait_until(lambda: running.stats().running == 0)
    assert (await info(running, idle)).end_reason is EndReason.TIME_LIMIT


async def test_idle_episodes_expire_unscored_and_use_keeps_them(host: Start) -> None:
    running = await host(Playground, limits=ServerLimits(idle_seconds=0.3))
    used, unused = (await begin(running)).episode, (await begin(running)).episode

    async def keep() -> None:
        while True:
            await info(running, used)
            await asyncio.sleep(0)

    keeping = asyncio.create_task(keep())
    await wait_until(lambda: running.stats().running == 1)
    keeping.cancel()
    assert (await info(running, used)).end_reason is None
    expired = await info(running, unused)
    assert expired.end_reason is EndReason.EXPIRED
    assert expired.reward is not None
    assert expired.reward.value is None


@pytest.mark.parametrize("last", ["crash", "crash_softly", "hang", "block", "close", None])
async def test_a_closed_episode_is_remembered_without_its_environment(
    host: Start, caplog: pytest.LogCaptureFixture, last: str | None
) -> None:
    alive: weakref.WeakSet[Any] = weakref.WeakSet()

    class Watched(Troublesome):
        def setup(self) -> None:
            alive.add(self)

    caplog.set_level(logging.CRITICAL, "ludus.server")  # a record that is captured holds its traceback
    running = await host(Watched)
    episode = (await begin(running, "watched")).episode
    assert len(alive) == 1
    if last == "close":
        hanging = asyncio.create_task(step(running, episode, 1, "hang"))
        await wait_until(running.busy)
        await running.close(e.CloseParams(episode=episode), OPEN)
        with pytest.raises(err.EpisodeEnded):
            await hanging
        del hanging
    elif last is not None:
        with pytest.raises(err.EpisodeFailed):
            await step(running, episode, 1, last)
    await running.close(e.CloseParams(episode=episode), OPEN)
    assert (await info(running, episode)).end_reason is not None

    def is_forgotten() -> bool:
        """Only a thread that never returns may still hold it; another lets go a moment after it gives its result."""
        gc.collect()
        return len(alive) == (last == "block")

    await wait_until(is_forgotten)


async def test_a_full_server_queues_in_turn_and_says_when_to_come_back(host: Start) -> None:
    running = await host(Playground, limits=ServerLimits(max_episodes=1, queue_seconds=0.1))
    first = (await begin(running)).episode
    with pytest.raises(err.CapacityError) as caught:
        await begin(running)
    assert caught.value.retry_after is not None
    waiting = asyncio.create_task(begin(running))
    await asyncio.sleep(0)
    await running.close(e.CloseParams(episode=first), OPEN)
    assert (await waiting).episode != first


async def test_a_refused_start_may_be_tried_again_under_its_key(host: Start) -> None:
    running = await host(Playground, limits=ServerLimits(max_episodes=1, queue_seconds=0.01))
    first = (await begin(running)).episode
    with pytest.raises(err.CapacityError):
        await begin(running, key="again")
    await running.close(e.CloseParams(episode=first), OPEN)
    assert (await begin(running, key="again")).episode


async def test_a_group_that_can_never_fit_is_refused_at_once(host: Start) -> None:
    running = await host(Playground, limits=ServerLimits(max_episodes=3))
    with pytest.raises(err.CapacityError, match="can never fit"):
        await begin(running, count=4)


# ── ownership, forks, groups ───────────────────────────────────────────────────────────────────────────────────────


async def test_an_episode_does_not_exist_for_another_principal(host: Start) -> None:
    running = await host(Playground)
    alice = Principal("alice", frozenset({"episodes:run", "rewards:read", "tasks:read"}))
    bob = Principal("bob", alice.scopes)
    params = e.StartParams(environment="playground", split="train", key="k")
    episode = (await running.start(params, alice)).episodes[0].episode
    calls: dict[str, dict[str, Any]] = {
        "step": {"step": 1, "tool": "add", "key": "x"},
        "grade": {"answer": "x", "key": "y"},
        "rewards": {},
        "get": {},
        "fork": {"key": "z"},
        "close": {},
    }
    for method, more in calls.items():
        with pytest.raises(err.EpisodeNotFound):
            await dispatch(running, f"dev.ludus/episodes/{method}", {"episode": episode, **more}, bob)
    assert (await running.start(params, bob)).episodes[0].episode != episode


async def test_rewards_are_left_out_for_tokens_that_may_not_read_them(host: Start) -> None:
    running = await host(Playground)
    player = Principal("player", frozenset({"episodes:run"}))
    episode = (
        (await running.start(e.StartParams(environment="playground", split="train", key="k"), player))
        .episodes[0]
        .episode
    )
    result = await running.step(e.StepParams(episode=episode, step=1, tool="add", key="a"), player)
    assert (result.reward, result.metadata) == (None, {})
    assert (await running.get_episode(e.GetEpisodeParams(episode=episode), player)).info.reward is None
    with pytest.raises(err.Forbidden, match="rewards:read"):
        await dispatch(running, "dev.ludus/episodes/rewards", {"episode": episode}, player)


async def test_test_splits_need_their_scope_and_show_ids_only(host: Start) -> None:
    running = await host(Playground)
    plain = Principal("plain", frozenset({"tasks:read", "episodes:run"}))
    asked = e.ListTasksParams(environment="playground", split="test")
    with pytest.raises(err.Forbidden, match="splits:test"):
        await running.list_tasks(asked, plain)
    with pytest.raises(err.Forbidden):
        await running.start(e.StartParams(environment="playground", split="test", key="k"), plain)
    allowed = Principal("tester", plain.scopes | {"splits:test"})
    rows = (await running.list_tasks(asked, allowed)).tasks
    assert [(row.id, row.fields) for row in rows] == [("r-100", {}), ("r-101", {}), ("r-102", {})]


async def test_a_fork_stands_where_the_other_stood_and_goes_its_own_way(host: Start) -> None:
    running = await host(Playground)
    source = (await begin(running, seed=3)).episode
    await step(running, source, 1, "add", amount=4)
    await step(running, source, 2, "add", amount=4)
    fork = await running.fork(e.ForkParams(episode=source, step=1, key=key()), OPEN)
    assert text_of((await step(running, fork.episode.episode, 2, "add")).content) == "count 5"
    assert text_of((await step(running, source, 3, "add")).content) == "count 9"


async def test_group_scores_are_given_to_the_right_episodes(host: Start) -> None:
    running = await host(Playground)
    group = await running.start(e.StartParams(environment="playground", split="train", count=2, key=key()), OPEN)
    one, two = (episode.episode for episode in group.episodes)
    message = {"role": "assistant", "content": [{"type": "text", "text": "x"}]}
    candidates = {one: {"messages": [message]}, two: {"messages": [message, message]}}
    params = e.ScoreGroupParams.model_validate({"group": group.group, "candidates": candidates, "key": "k"})
    scored = await running.score_group(params, OPEN)
    assert {name: reward.value for name, reward in scored.rewards.items()} == {one: 1.0, two: 2.0}


# ── tasks ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_pages_of_tasks_cover_a_split_once_without_private_fields(host: Start) -> None:
    running = await host(Playground)
    seen: list[str] = []
    cursor: str | None = None
    while True:
        params = e.ListTasksParams(environment="playground", split="train", cursor=cursor, limit=5)
        page = await running.list_tasks(params, OPEN)
        seen += [row.id for row in page.tasks]
        assert SECRET_ANSWER not in page.model_dump_json()
        if (cursor := page.next_cursor) is None:
            break
    assert seen == [f"r-{index}" for index in range(12)]


async def test_a_page_of_tasks_made_on_demand_is_made_in_one_turn_of_a_thread_or_in_several_if_it_takes_long(
    host: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = 0
    run = user_code.run

    async def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal turns
        turns += 1
        return await run(*args, **kwargs)

    monkeypatch.setattr(user_code, "run", counted)
    params = e.ListTasksParams(environment="playground", split="endless", limit=50)
    monkeypatch.setattr(service, "_MAKING_SECONDS", 1e9)
    quick = await (await host(Playground)).list_tasks(params, OPEN)
    assert turns == 1
    assert [row.index for row in quick.tasks] == list(range(50))
    monkeypatch.setattr(service, "_MAKING_SECONDS", -1.0)
    assert await (await host(Playground)).list_tasks(params, OPEN) == quick
    assert turns == 1 + 50


@pytest.mark.parametrize(("split", "count"), [("validation", 5), ("endless", None)])
async def test_tasks_made_on_demand_are_found_by_index_and_by_id(host: Start, split: str, count: int | None) -> None:
    running = await host(Playground)
    by_index = await running.get_task(e.GetTaskParams(environment="playground", split=split, index=4), OPEN)
    by_id = await running.get_task(e.GetTaskParams(environment="playground", split=split, task="r-4"), OPEN)
    assert by_index == by_id
    wrongs: list[dict[str, Any]] = [{"task": "r-x"}, *([{"index": 5}] if count else [])]
    for wrong in wrongs:
        with pytest.raises(err.TaskNotFound):
            await running.get_task(
                e.GetTaskParams.model_validate({"environment": "playground", "split": split, **wrong}), OPEN
            )


async def test_ids_that_count_up_are_found_or_refused_without_making_other_tasks(host: Start) -> None:
    made: list[int] = []

    def make(index: int) -> Riddle:
        made.append(index)
        return Riddle(id=f"later-{1000 + index}", question="?", answer="!")

    class Many(Playground):
        splits: ClassVar[Any] = {"train": Split.lazy(make, 100_000)}

    running = await host(Many)
    asked = e.GetTaskParams(environment="many", split="train", task="later-91000")
    assert (await running.get_task(asked, OPEN)).task.index == 90_000
    for wrong in ("later-999", "later-101000", "later-", "later-01000", "other-1000", "later-\u0661000"):
        with pytest.raises(err.TaskNotFound):
            await running.get_task(asked.model_copy(update={"task": wrong}), OPEN)
    assert len(made) < 10


async def test_ids_that_do_not_count_up_are_found_by_one_search(host: Start) -> None:
    class Named(Playground):
        splits: ClassVar[Any] = {
            "train": Split.lazy(lambda i: Riddle(id="abc"[i], question="?", answer="!"), 3),
            "endless": Split.generated(lambda i: Riddle(id=f"{i}-x", question="?", answer="!"), type="train"),
        }

    running = await host(Named)
    asked = e.GetTaskParams(environment="named", split="train", task="b")
    assert (await running.get_task(asked, OPEN)).task.index == 1
    with pytest.raises(err.TaskNotFound):
        await running.get_task(e.GetTaskParams(environment="named", split="endless", task="3-x"), OPEN)


async def test_the_size_of_a_split_read_at_first_use_is_known_when_it_is_listed(host: Start) -> None:
    class Filed(Playground):
        splits: ClassVar[Any] = {"train": Split.load(lambda: [riddle(index) for index in range(4)])}

    running = await host(Filed)
    listed = await running.list_splits(e.ListSplitsParams(environment="filed"), OPEN)
    assert listed.splits[0].count == 4


async def test_band_sampling_prefers_tasks_solved_sometimes(host: Start) -> None:
    running = await host(Playground)
    outcomes = [
        *(e.Outcome(task="r-1", reward=1, passed=n < 1) for n in range(3)),
        *(e.Outcome(task="r-2", reward=1, passed=True) for _ in range(3)),
    ]
    report = e.ReportOutcomesParams(environment="playground", split="train", outcomes=tuple(outcomes), key="k")
    for _ in range(2):
        assert (await running.report_outcomes(report, OPEN)).recorded == 6
    params = e.SampleTasksParams(environment="playground", split="train", strategy="band", count=3, seed=1)
    drawn = [row.id for row in (await running.sample_tasks(params, OPEN)).tasks]
    assert drawn[0] == "r-1"
    assert "r-2" not in drawn
    assert drawn == [row.id for row in (await running.sample_tasks(params, OPEN)).tasks]


async def test_names_that_do_not_exist_answer_with_the_nearest(host: Start) -> None:
    running = await host(Playground)
    with pytest.raises(err.EnvironmentNotFound, match="did you mean 'playground'"):
        await begin(running, "playgroud")
    with pytest.raises(err.SplitNotFound, match="'train'"):
        await begin(running, split="trian")
    with pytest.raises(err.MethodNotFound, match="episodes/start"):
        await dispatch(running, "dev.ludus/episodes/strat", {}, OPEN)
    with pytest.raises(err.InvalidParams, match="color"):
        await dispatch(running, "dev.ludus/tasks/list", {"environment": "p", "split": "s", "color": 1}, OPEN)


# ── the end of the host ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("LIFE-10")
async def test_leaving_the_host_tears_down_every_episode_and_leaves_no_task() -> None:
    Counting.torn_down.clear()
    before = asyncio.all_tasks()
    async with EpisodeHost([Counting, Troublesome], limits=ServerLimits(grace_seconds=0.2)) as running:
        for seed in range(50):
            await begin(running, "counting", seed=seed)
        stuck = (await begin(running, "troublesome")).episode
        waiting = asyncio.create_task(step(running, stuck, 1, "hang_stubbornly"))
        await asyncio.sleep(0)
    with pytest.raises(err.EpisodeEnded):
        await waiting
    assert sum(Counting.torn_down.values()) == 50
    assert asyncio.all_tasks() == before
    with pytest.raises(err.ShuttingDown):
        await begin(running, "counting")


class Nested(Environment[Riddle]):
    splits = {"train": [riddle(1)]}

    def prompt(self) -> str:
        return "x"

    @tool
    def deep(self) -> Result:
        """Nested lists are not observations."""
        return Result([["a"]])


async def test_nested_observations_are_the_environments_fault(host: Start) -> None:
    running = await host(Nested)
    with pytest.raises(err.EnvironmentFailed):
        await step(running, (await begin(running, "nested")).episode, 1, "deep")
