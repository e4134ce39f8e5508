"""Process rewards of turns: judged once, when a turn has ended, over its calls and what was said with them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from waiting import wait_until

from ludus.client import Client, TrajectoryWriter, Turn, connect, run_episode
from ludus.protocol import Answer, Call, TurnMark
from ludus.protocol import episodes as e
from ludus.protocol.errors import AuthoringError, InvalidParams, KeyConflict
from ludus.protocol.items import CallItem, MalformedCall, text_message
from ludus.server import Environment, EpisodeHost, EpisodeLimits, Noise, Result, Task, ToolError, tool, with_noise
from ludus.server.auth.principal import Principal
from ludus.server.hosting.rescoring import read_stored, rescore
from ludus.server.rewards import TakenStep, TakenTurn, Verdict, check, metric, reward

OPEN = Principal.open()
GATES: dict[str, asyncio.Event] = {}
JUDGED: list[TakenTurn] = []


class Talking(Environment[Task]):
    """Say things; each turn is judged by how much was called and said in it."""

    name = "talking"
    splits: ClassVar[Any] = {"train": [Task(id=f"t{n}") for n in range(3)]}
    forkable = True
    blocking = False
    rubric = [check(lambda attempt: 10.0, name="end")]

    def prompt(self) -> str:
        return "Talk."

    @tool
    def say(self, text: str) -> str:
        """Say something."""
        if text == "bad":
            raise ToolError("no")
        return text

    @tool
    def earn(self) -> Result:
        """Earn something."""
        return Result("earned", reward=0.5)

    @tool(concurrent=True)
    async def wait(self, gate: str) -> str:
        """Wait until a gate opens."""
        await GATES.setdefault(gate, asyncio.Event()).wait()
        return gate

    @tool(ends=True)
    def stop(self) -> str:
        """Stop."""
        return "stopped"

    @reward(when="turn")
    def calls(self, turn: TakenTurn, steps: tuple[TakenStep, ...]) -> Verdict:
        """How many calls the turn has."""
        JUDGED.append(turn)
        assert steps[-len(turn.steps) :] == turn.steps
        return Verdict(float(len(turn.steps)), f"turn {turn.number}: {turn.text}")

    @metric(when="turn")
    def errors(self, turn: TakenTurn) -> int:
        """How many of them were mistakes."""
        return sum(step.error is not None for step in turn.steps)


class Player:
    """An episode whose steps are numbered and keyed here."""

    def __init__(self, host: EpisodeHost, episode: str) -> None:
        self.host, self.id, self.number = host, episode, 0

    def submit(self, tool: str, turn: TurnMark | None = None, /, **arguments: Any) -> Awaitable[e.StepResult]:
        self.number += 1
        key = f"{self.id}/{self.number}"
        params = e.StepParams(episode=self.id, step=self.number, tool=tool, arguments=arguments, turn=turn, key=key)
        return asyncio.ensure_future(self.host.step(params, OPEN))

    async def call(self, tool: str, turn: TurnMark | None = None, /, **arguments: Any) -> float | None:
        """The reward's value of the next step."""
        result = await self.submit(tool, turn, **arguments)
        return result.reward.value if result.reward is not None else None

    async def log(self) -> list[tuple[str, int | None, int, float | None]]:
        entries = (await self.host.rewards(e.RewardsParams(episode=self.id), OPEN)).entries
        return [(entry.source, entry.turn, entry.step, entry.reward.value) for entry in entries]

    async def grade(self) -> e.GradeResult:
        return await self.host.grade(e.GradeParams(episode=self.id, answer="x", key="g"), OPEN)


def turn(number: int, *, last: bool = True, text: str = "") -> TurnMark:
    return TurnMark(number=number, last=last, text=text)


Sit = Callable[..., Awaitable[Player]]


@pytest.fixture
def sit(playing: Any) -> Sit:
    async def begin(cls: type[Environment[Any]] = Talking, **options: Any) -> Player:
        JUDGED.clear()
        GATES.clear()
        host = (await playing(cls)).host
        params = e.StartParams(environment=next(iter(host.catalog)), split="train", key="s", **options)
        return Player(host, (await host.start(params, OPEN)).episodes[0].episode)

    return begin


@pytest.mark.requirement("TURN-2", "TURN-3", "REW-9")
async def test_a_turn_is_judged_once_with_its_last_call(sit: Sit) -> None:
    player = await sit()
    assert await player.call("say", turn(1, last=False, text="I think"), text="a") is None
    assert await player.call("earn", turn(1, last=False)) == 0.5
    assert await player.call("say", turn(1), text="bad") == 3.0
    assert await player.call("earn", turn(4, text="so")) == 1.5
    assert await player.log() == [
        ("step", None, 2, 0.5),
        ("turn", 1, 3, 3.0),
        ("step", None, 4, 0.5),
        ("turn", 4, 4, 1.0),
    ]
    assert [(one.number, one.text, [s.text for s in one.steps]) for one in JUDGED] == [
        (1, "I think", ["a", "earned", "no"]),
        (4, "so", ["earned"]),
    ]


@pytest.mark.requirement("TURN-2", "TURN-3")
async def test_components_tell_the_turn_and_the_total_adds_up(sit: Sit) -> None:
    player = await sit()
    await player.submit("earn", turn(1, last=False))
    told = await player.submit("say", turn(1, text="late"), text="bad")
    assert told.reward is not None
    assert {name: part.value for name, part in told.reward.components.items()} == {"calls": 2.0, "errors": 1.0}
    assert told.reward.components["calls"].evidence == "turn 1: late"
    info = (await player.grade()).info
    assert info.reward is not None
    assert info.reward.value == 0.5 + 2.0 + 10.0
    assert {name: part.value for name, part in info.reward.components.items()} == {
        "calls": 2.0, "errors": 1.0, "end": 10.0,
    }  # fmt: skip


@pytest.mark.requirement("TURN-2")
async def test_calls_without_marks_are_turns_of_their_own(sit: Sit) -> None:
    player = await sit()
    assert [await player.call("say", text="a"), await player.call("nosuch")] == [1.0, 1.0]
    assert await player.call("say", turn(1, last=False), text="a") is None
    assert await player.call("say", text="b") == 2.0, "it is over with the call of another turn"
    assert [(source, number) for source, number, _, _ in await player.log()] == [
        ("turn", None), ("turn", None), ("turn", 1), ("turn", None),
    ]  # fmt: skip
    played = await player.host.play(player.id, "say", {"text": "c"})
    assert played.reward is not None
    assert played.reward.value == 1.0


@pytest.mark.requirement("TURN-2", "TURN-3", "REW-9")
async def test_a_turn_whose_last_call_never_came_is_judged_with_the_next_turn_or_the_grade(sit: Sit) -> None:
    player = await sit()
    await player.call("say", turn(1, last=False), text="a")
    assert await player.call("say", turn(2, last=False), text="b") == 1.0
    graded = await player.grade()
    assert graded.reward is not None
    assert graded.reward.value == 11.0
    assert await player.log() == [("turn", 1, 1, 1.0), ("grade", None, 2, 10.0), ("turn", 2, 2, 1.0)]


@pytest.mark.requirement("TURN-2")
async def test_a_turn_has_ended_with_the_call_that_ends_the_task(sit: Sit) -> None:
    player = await sit()
    await player.call("say", turn(1, last=False), text="a")
    assert await player.call("stop", turn(1, last=False)) == 12.0
    assert len(JUDGED) == 1


async def test_a_turn_that_a_limit_cuts_off_is_not_judged(sit: Sit) -> None:
    player = await sit(limits=EpisodeLimits(max_steps=2))
    await player.call("say", turn(1, last=False), text="a")
    assert await player.call("say", turn(1, last=False), text="b") is None
    whole = await sit(limits=EpisodeLimits(max_steps=2))
    await whole.call("say", turn(1, last=False), text="a")
    assert await whole.call("say", turn(1), text="b") == 2.0


@pytest.mark.requirement("TURN-2")
async def test_calls_that_overlap_are_judged_when_all_are_done_whichever_is_the_last(sit: Sit) -> None:
    player = await sit()
    waiting = [player.submit("wait", turn(1, last=gate == "c"), gate=gate) for gate in "abc"]
    await wait_until(lambda: len(GATES) == 3)
    for gate in "cab":
        assert not JUDGED
        GATES[gate].set()
        await waiting["abc".index(gate)]
    rewards = [result.reward.value if result.reward is not None else None for result in await asyncio.gather(*waiting)]
    assert rewards == [None, 3.0, None]
    assert [step.arguments["gate"] for step in JUDGED[0].steps] == ["a", "b", "c"]
    assert await player.log() == [("turn", 1, 3, 3.0)]


@pytest.mark.requirement("TURN-2")
async def test_calls_that_end_at_the_same_time_are_judged_once(sit: Sit) -> None:
    player = await sit()
    waiting = [player.submit("wait", turn(1, last=number == 7), gate="same") for number in range(8)]
    await wait_until(lambda: "same" in GATES)
    GATES["same"].set()
    rewards = [result.reward for result in await asyncio.gather(*waiting)]
    assert [one.value for one in rewards if one is not None] == [8.0]
    assert len(JUDGED) == 1


class Slow(Talking):
    """Takes its time over the first turn."""

    name = "slow"

    @metric(when="turn")
    async def slow(self, turn: TakenTurn) -> float:
        """Wait for a gate."""
        if turn.number == 1:
            await GATES.setdefault("judge", asyncio.Event()).wait()
        return 1.0


@pytest.mark.requirement("TURN-2")
async def test_a_turn_sees_its_calls_though_one_of_them_still_waits_for_the_turn_before_to_be_judged(sit: Sit) -> None:
    player = await sit(Slow)
    await player.call("say", turn(1, last=False), text="x")
    first, second = player.submit("wait", turn(2, last=False), gate="a"), player.submit("wait", turn(2), gate="b")
    await wait_until(lambda: {"a", "b"} <= GATES.keys())
    GATES["a"].set()
    await wait_until(lambda: "judge" in GATES)
    GATES["b"].set()
    late = await second
    assert late.reward is not None
    assert (late.reward.value, [step.number for step in JUDGED[-1].steps]) == (2.0, [2, 3])
    GATES["judge"].set()
    early = await first
    assert early.reward is not None
    assert early.reward.value == 1.0
    assert await player.log() == [("turn", 2, 3, 2.0), ("turn", 1, 1, 1.0)]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.booleans()), max_size=12))
async def test_every_call_is_judged_in_exactly_one_turn(calls: list[tuple[int, bool, bool]]) -> None:
    JUDGED.clear()
    async with EpisodeHost([Talking]) as host:
        started = await host.start(e.StartParams(environment="talking", split="train", key="s"), OPEN)
        player, number = Player(host, started.episodes[0].episode), 1
        for skip, last, marked in calls:
            number += skip
            try:
                await player.call("say", turn(number, last=last) if marked else None, text=str(number))
            except InvalidParams:
                player.number -= 1
        await player.grade()
        judged = [step.number for one in JUDGED for step in one.steps]
        assert judged == list(range(1, player.number + 1))
        total = (await host.rewards(e.RewardsParams(episode=player.id), OPEN)).total
        assert total.value == player.number + 10.0


# ── keys, order, forks ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("TURN-4", "KEY-2", "KEY-4")
async def test_the_turn_belongs_to_what_a_key_stands_for(sit: Sit) -> None:
    player = await sit()
    params = e.StepParams(
        episode=player.id, step=1, tool="say", arguments={"text": "a"}, turn=turn(1, text="x"), key="k"
    )
    first = await player.host.step(params, OPEN)
    assert await player.host.step(params, OPEN) == first
    assert len(JUDGED) == 1
    for other in (None, turn(2, text="x"), turn(1, text="y"), turn(1, last=False, text="x")):
        with pytest.raises(KeyConflict):
            await player.host.step(params.model_copy(update={"turn": other}), OPEN)


@pytest.mark.requirement("CALL-6", "KEY-6")
async def test_a_turn_that_has_ended_takes_no_further_calls(sit: Sit) -> None:
    player = await sit()
    await player.call("say", turn(2), text="a")
    for number in (1, 2):
        with pytest.raises(InvalidParams, match=f"turn {number} .* has ended; the next call belongs to a turn after 2"):
            await player.call("say", turn(number), text="b")
        player.number -= 1
    await player.call("say", turn(3, last=False), text="b")
    await player.call("say", text="c")
    with pytest.raises(InvalidParams, match="turn 3 .* has ended"):
        await player.call("say", turn(3), text="d")
    player.number -= 1
    assert await player.call("say", turn(4), text="d") == 1.0


async def test_a_fork_earns_what_its_origin_earned(sit: Sit) -> None:
    player = await sit()
    await player.call("say", turn(1, last=False, text="x"), text="a")
    await player.call("say", turn(1), text="b")
    await player.call("say", turn(2, last=False), text="c")
    forked = (await player.host.fork(e.ForkParams(episode=player.id, key="f"), OPEN)).episode
    branch = Player(player.host, forked.episode)
    branch.number = 3
    assert await branch.log() == await player.log() == [("turn", 1, 2, 2.0)]
    assert await branch.call("say", turn(2), text="d") == 2.0


async def test_a_turn_that_noise_kept_from_all_its_tools_is_not_judged(sit: Sit) -> None:
    player = await sit(with_noise(Talking, Noise(rate=1.0, kinds={"tool_error": 1.0})))
    assert await player.call("say", turn(1), text="a") is None
    assert JUDGED == []
    answer_lost = await sit(with_noise(Talking, Noise(rate=1.0, kinds={"lost_answer": 1.0})))
    assert await answer_lost.call("say", turn(1), text="a") == 1.0
    assert JUDGED[0].steps[0].text == "a"


def test_a_method_that_judges_turns_takes_no_step() -> None:
    with pytest.raises(AuthoringError, match="takes 'step'; .* any of attempt, answer, task, steps, turn"):

        class Wrong(Talking):
            @reward(when="turn")
            def odd(self, step: TakenStep) -> float:
                return 1.0


# ── our client and our tools ───────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(params=["channel", "mcp"])
async def client(request: pytest.FixtureRequest, serve: Any) -> Any:
    server = await serve(Talking)
    JUDGED.clear()
    async with connect(server.url, wire=request.param) as client:
        yield client


async def policy(conversation: Any) -> Any:
    """Two calls and a malformed one with a thought, then one that is refused, then an answer."""
    malformed = MalformedCall("say", "{", "not JSON")
    if conversation.turn == 1:
        said = text_message("assistant", "first I think")
        calls: list[Call | MalformedCall] = [Call("say", {"text": "a"}), Call("earn"), malformed]
        return Turn((said, *(CallItem(f"c{number}", call) for number, call in enumerate(calls))))
    if conversation.turn == 2:
        return [malformed]
    return Call("say", {"text": "b"}) if conversation.turn == 3 else Answer("done")


@pytest.mark.requirement("TURN-1")
async def test_our_harness_marks_turns_where_they_are_judged(client: Client) -> None:
    episode = await client.environment("talking").start(split="train", index=0)
    assert episode.judges_turns
    trajectory = await run_episode(episode, policy)
    assert [(one.number, one.text, len(one.steps)) for one in JUDGED] == [(1, "first I think", 2), (3, "", 1)]
    assert [step.reward.value if step.reward else None for step in trajectory.steps] == [None, 2.5, None, None, 1.0]
    assert trajectory.value == 2.5 + 1.0 + 10.0


async def test_a_lost_reply_is_asked_for_again_with_the_same_turn(client: Client) -> None:
    episode = await client.environment("talking").start(split="train", index=0)
    asking = asyncio.ensure_future(episode.call_in_turn(turn(1), "wait", gate="g"))
    await wait_until(lambda: "g" in GATES)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    GATES.pop("g").set()
    result = await episode.call_in_turn(turn(2), "say", text="b")
    assert (result.step, result.reward.value if result.reward else None) == (2, 1.0)
    assert [one.number for one in JUDGED] == [1, 2]
    await episode.close()


class Quiet(Environment[Task]):
    """Judges no turns."""

    splits: ClassVar[Any] = {"train": [Task(id="q")]}

    def prompt(self) -> str:
        return "Say nothing."

    @tool
    def nod(self) -> str:
        """Nod."""
        return "nodded"


@pytest.mark.requirement("TURN-1")
async def test_where_turns_are_not_judged_nothing_is_said_of_them(serve: Any) -> None:
    server = await serve(Quiet)
    async with connect(server.url) as client:
        episode = await client.environment("quiet").start(split="train", index=0)
        assert not episode.judges_turns
        assert (await episode.call_in_turn(turn(1), "nod")).reward is None
        await episode.close()


async def test_over_ors_each_call_is_a_turn_of_its_own(serve: Any) -> None:
    server = await serve(Talking)
    JUDGED.clear()
    async with connect(server.url, wire="ors") as client:
        episode = await client.environment("talking").start(split="train", index=0)
        assert not episode.judges_turns
        trajectory = await run_episode(episode, policy)
    assert [(one.number, len(one.steps)) for one in JUDGED] == [(None, 1)] * 3
    assert trajectory.value == 0.5 + 3.0 + 10.0


async def test_stored_turns_are_judged_again_as_they_were(client: Client, tmp_path: Path) -> None:
    episode = await client.environment("talking").start(split="train", index=0)
    trajectory = await run_episode(episode, policy)
    with TrajectoryWriter(tmp_path / "runs.jsonl") as writer:
        writer.write(trajectory)
    then = list(JUDGED)
    JUDGED.clear()
    (stored,) = read_stored(tmp_path / "runs.jsonl")
    assert stored.marks() == {1: turn(1, last=False, text="first I think"), 2: turn(1), 3: turn(3)}
    (again,) = (await rescore([stored], [Talking])).rescored
    assert (again.problem, again.diverged, again.changed, again.components()) == (None, None, False, {})
    assert JUDGED == then


async def test_a_stored_turn_that_the_end_cut_short_is_not_marked_as_whole(client: Client, tmp_path: Path) -> None:
    """The third call was never made, so the turn was judged by its end alone."""

    async def stops(conversation: Any) -> Any:
        return [Call("say", {"text": "a"}), Call("stop"), Call("say", {"text": "never"})]

    episode = await client.environment("talking").start(split="train", index=0)
    trajectory = await run_episode(episode, stops)
    with TrajectoryWriter(tmp_path / "runs.jsonl") as writer:
        writer.write(trajectory)
    (stored,) = read_stored(tmp_path / "runs.jsonl")
    assert stored.marks() == {1: turn(1, last=False), 2: turn(1, last=False)}
    assert not (await rescore([stored], [Talking])).changed
