"""Mistakes in classes with seats are found at startup, and those in their code end the match unscored."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import pytest
from loop_clock import advance
from seated_world import Nim, Pile, Piles

from ludus.protocol import EndReason, text_of
from ludus.protocol import episodes as e
from ludus.protocol.errors import AuthoringError, EnvironmentFailed
from ludus.server import Environment, EpisodeHost, Match, tool
from ludus.server.auth.principal import Principal
from ludus.server.authoring.seats import SeatedEnvironment
from ludus.server.durability.journal import Ended, Entry, Journal, MemoryJournal
from ludus.server.tasks.catalog import publish

Host = Callable[..., Awaitable[EpisodeHost]]


def variant(base: type[Any], **changes: Any) -> type[Any]:
    return type("Changed", (base,), {"__doc__": "Changed.", "name": "changed", **changes})


class Silent(SeatedEnvironment[Pile, Nim]):
    """No observation."""

    match_class = Nim
    splits = Piles.splits

    def prompt(self) -> str:
        return ""


@tool(concurrent=True)
def overlapping(self: Any) -> str:
    """Overlap."""
    return ""


@tool(seats=("third",))
def lost(self: Any) -> str:
    """Belong to no seat."""
    return ""


@tool(move=True)
def moving(self: Any) -> str:
    """Move."""
    return ""


def grade(self: Any, answer: str) -> float:
    return 1.0


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (variant(Piles, match_class=int), "has no match"),
        (variant(Piles, match_class=variant(Nim, seats=("alone",))), "at least 2 different names"),
        (variant(Piles, match_class=variant(Nim, seats=("a", "a"))), "at least 2 different names"),
        (variant(Piles, match_class=variant(Nim, seats=("a", "all"))), "not 'all'"),
        (variant(Piles, match_class=variant(Nim, act=Match.act)), "no act"),
        (Silent, "no observe"),
        (variant(Piles, overlapping=overlapping), "calls of a match never overlap"),
        (variant(Piles, lost=lost), "not one of the seats"),
        (variant(Piles, grade=grade), "do not go together"),
        (variant(Piles, forkable=True), "do not go together"),
        (variant(Environment, prompt=Piles.prompt, splits=Piles.splits, moving=moving), "SeatedEnvironment"),
    ],
)
def test_a_mistake_in_a_class_is_refused_with_what_to_change(cls: type[Any], message: str) -> None:
    with pytest.raises(AuthoringError, match=message):
        publish("changed", cls)


class Faulty(Nim):
    """A match that breaks where its task says."""

    def setup(self) -> None:
        if self.seed == 1:
            raise RuntimeError("planted")
        super().setup()

    def act(self, seat: str, opponent: str) -> None:
        if self.seed == 2:
            return
        super().act(seat, opponent)

    def left(self, seat: str) -> dict[str, float]:
        return {seat: 0.0}


class Breaking(Piles):
    """A game that breaks."""

    match_class = Faulty
    name = "breaking"


async def started(host: EpisodeHost, trainer: Principal, seed: int, seats: Any = "all") -> list[str]:
    params = e.StartParams(
        environment="breaking", split="train", index=3, seed=seed, seats=seats, opponent=None, key=f"start-{seed}"
    )
    return [one.episode for one in (await host.start(params, trainer)).episodes]


async def infos(host: EpisodeHost, trainer: Principal, episodes: list[str]) -> list[e.EpisodeInfo]:
    return [(await host.get_episode(e.GetEpisodeParams(episode=one), trainer)).info for one in episodes]


async def test_a_match_that_breaks_in_its_setup_starts_no_seat(host: Host, trainer: Principal) -> None:
    runtime = await host(Breaking)
    with pytest.raises(EnvironmentFailed, match="the match"):
        await started(runtime, trainer, 1)
    assert runtime.stats().running == 0


async def test_scripted_opponents_that_never_move_on_fail_and_do_not_hang(host: Host, trainer: Principal) -> None:
    runtime = await host(Breaking)
    (first,) = await started(runtime, trainer, 2, ("first",))
    with pytest.raises(EnvironmentFailed):
        await runtime.step(e.StepParams(episode=first, step=1, tool="take", arguments={"count": 1}, key="k"), trainer)


async def test_a_decision_about_a_seat_that_left_which_breaks_makes_all_unscored(
    host: Host, trainer: Principal
) -> None:
    runtime = await host(Breaking)
    episodes = await started(runtime, trainer, 3)
    await runtime.close(e.CloseParams(episode=episodes[0]), trainer)
    left, other = await infos(runtime, trainer, episodes)
    assert (str(left.end_reason), str(other.end_reason)) == ("closed", "environment_error")
    assert left.reward is not None
    assert other.reward is not None
    assert left.reward.value is other.reward.value is None


async def test_a_match_is_freed_when_its_seats_have_ended(host: Host, trainer: Principal) -> None:
    runtime = await host(Piles)
    params = e.StartParams(environment="piles", split="train", index=3, seats="all", key="start")
    episodes = [one.episode for one in (await runtime.start(params, trainer)).episodes]
    match = runtime.store.find(episodes[0]).match
    assert match is not None
    shared = weakref.ref(match.match)
    for episode in episodes:
        await runtime.close(e.CloseParams(episode=episode), trainer)
    del match
    gc.collect()
    assert shared() is None


@pytest.mark.requirement("SEAT-10")
async def test_a_server_that_stops_makes_no_seat_the_winner(host: Host, trainer: Principal) -> None:
    runtime = await host(Piles)
    params = e.StartParams(environment="piles", split="train", index=3, seats="all", key="start")
    episodes = [runtime.store.find(one.episode) for one in (await runtime.start(params, trainer)).episodes]
    runtime.release()
    assert [(one.end_reason, one.entries) for one in episodes] == [(EndReason.SERVER_STOPPED, None)] * 2


class Paced(Piles):
    """A game with a move that takes as long as a test says."""

    name = "paced"
    go: ClassVar[asyncio.Event]

    def observe(self) -> str:
        return f"{super().observe()}{'.' * 200}"

    @tool(move=True)
    async def take_all(self) -> str:
        """Take what is left, when the test says so."""
        await self.go.wait()
        self.match.take(self.seat, self.match.left_over)
        return self.observe()


@pytest.fixture
async def paced(host: Host, trainer: Principal) -> Any:
    """Starts a match, and returns a function that makes a call: of a seat, with a step and a tool."""

    async def start(journal: Journal | None = None, **limits: Any) -> Callable[..., asyncio.Task[e.StepResult]]:
        runtime = await host(Paced, journal=journal)
        Paced.go = asyncio.Event()
        params = e.StartParams(
            environment="paced", split="train", index=0, seats="all", key="start", limits=e.EpisodeLimits(**limits)
        )
        episodes = (await runtime.start(params, trainer)).episodes

        def call(seat: int, tool: str, step: int = 1) -> asyncio.Task[e.StepResult]:
            params = e.StepParams(episode=episodes[seat].episode, step=step, tool=tool, arguments={}, key=f"{step}")
            return asyncio.create_task(runtime.step(params, trainer))

        return call

    return start


async def settle() -> None:
    """Let the calls go as far as they can."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.requirement("SEAT-7")
async def test_a_wait_outlasts_a_move_that_began_shortly_before_its_limit(paced: Any) -> None:
    call = await paced(tool_seconds=50)
    waiting = call(1, "wait")
    await settle()
    advance(30)
    moving = call(0, "take_all")
    await settle()
    advance(35)
    await settle()
    assert not waiting.done()
    Paced.go.set()
    assert (await moving).end_reason is EndReason.COMPLETED
    assert (await waiting).end_reason is EndReason.COMPLETED
    assert "you lost" in text_of(waiting.result().content)


async def test_a_call_that_meets_the_end_of_the_match_shows_it_within_the_limit_of_an_observation(paced: Any) -> None:
    call = await paced(observation_chars=100)
    moving = call(0, "take_all")
    late = call(1, "recall")
    Paced.go.set()
    await moving
    assert (await late).end_reason is EndReason.COMPLETED
    assert "you lost" in text_of(late.result().content)
    assert "[observation cut: 100 of" in text_of(late.result().content)


@pytest.mark.requirement("SEAT-9")
async def test_a_match_that_ends_with_the_last_step_of_a_seat_is_no_step_limit(paced: Any) -> None:
    call = await paced(max_steps=1)
    moving = call(0, "take_all")
    late = call(1, "recall")
    Paced.go.set()
    assert [(one.end_reason, one.reward.value) for one in (await moving, await late)] == [
        (EndReason.COMPLETED, 1.0), (EndReason.COMPLETED, 0.0),
    ]  # fmt: skip


class RecordingJournal(MemoryJournal):
    """A journal that also keeps all entries in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Entry] = []

    def append(self, entry: Entry) -> None:
        self.seen.append(entry)
        super().append(entry)


async def test_a_journal_has_the_reward_of_a_seat_whose_call_still_runs_at_the_end(paced: Any) -> None:
    journal = RecordingJournal()
    call = await paced(journal)
    moving, late = call(0, "take_all"), call(1, "recall")
    Paced.go.set()
    await moving
    await late
    ends = [entry for entry in journal.seen if isinstance(entry, Ended)]
    assert ends[0].episode != ends[1].episode == ends[2].episode
    given = [[(one.source, one.step, one.reward.value) for one in end.entries] for end in ends]
    assert given == [[], [("match", 1, 0.0)], []], "the second end is for a server that dies before the call ends"


async def test_seats_of_one_match_have_noise_of_their_own(host: Host, trainer: Principal) -> None:
    runtime = await host(Piles)
    params = e.StartParams(environment="piles", split="train", index=3, seed=1, seats="all", key="start")
    started = (await runtime.start(params, trainer)).episodes
    assert len({runtime.store.find(one.episode).noise_key for one in started}) == 2
