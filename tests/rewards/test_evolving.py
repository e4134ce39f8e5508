"""Rubrics that evolve: one version per group, each reward with its version, and a hook that may fail."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar

import pytest

from ludus.protocol.errors import AuthoringError
from ludus.server import Environment, Task
from ludus.server.rewards import Attempt, Evolving, Pattern, Rubric, ScoredAttempt, metric

Host = Callable[[type[Environment[Any]]], Awaitable[Any]]

FIRST = Rubric([Pattern("please", name="please")], name="manners", version="1")
SECOND = Rubric([Pattern("please", name="please"), Pattern("thanks", name="thanks")], name="manners", version="2")


def environment(rubric: Evolving) -> type[Environment[Any]]:
    class Polite(Environment[Task]):
        """Be polite."""

        splits: ClassVar[Any] = {"train": [Task(id="1")]}

        def prompt(self) -> str:
            return "Ask."

        @metric
        def length(self, answer: str) -> int:
            return len(answer)

    Polite.rubric = rubric
    return type("Polite", (Polite,), {})


async def test_a_group_is_scored_by_one_version_and_the_next_group_by_the_next(playing: Host) -> None:
    evolving = Evolving(FIRST, lambda current, seen: SECOND)
    host = await playing(environment(evolving))
    one, two = await host.start(count=2)
    rewards = [(await host.grade(one, "please")).reward]
    assert await evolving.evolve() is SECOND
    rewards.append((await host.grade(two, "please")).reward)
    (three,) = await host.start()
    rewards.append((await host.grade(three, "please")).reward)
    assert [(reward.value, reward.rubric) for reward in rewards] == [
        (1.0, "manners@1"),
        (1.0, "manners@1"),
        (0.5, "manners@2"),
    ]
    assert list(rewards[2].components) == ["please", "thanks", "length"]
    assert evolving.version("1") is FIRST
    with pytest.raises(KeyError):
        evolving.version("3")


async def test_the_hook_sees_what_the_current_version_gave(playing: Host) -> None:
    shown: list[Sequence[ScoredAttempt]] = []

    async def propose(current: Rubric, seen: Sequence[ScoredAttempt]) -> Rubric | None:
        shown.append(seen)
        return None if current is SECOND else SECOND

    evolving = Evolving(FIRST, propose, keep=2)
    host = await playing(environment(evolving))
    for answer in ("a", "b", "please"):
        (episode,) = await host.start()
        await host.grade(episode, answer)
    await evolving.evolve()
    await evolving.evolve()
    assert [[(one.attempt.answer, one.reward.value) for one in seen] for seen in shown] == [
        [("b", 0.0), ("please", 1.0)],
        [],
    ]
    assert shown[0][0].attempt.environment is None
    assert evolving.current is SECOND


async def test_the_hook_is_called_by_itself_after_so_many_rewards(playing: Host) -> None:
    evolving = Evolving(FIRST, lambda current, seen: SECOND if current is FIRST else None, every=2)
    host = await playing(environment(evolving))
    for expected in ("manners@1", "manners@1"):
        (episode,) = await host.start()
        assert (await host.grade(episode, "please")).reward.rubric == expected
    assert await evolving.settled() is SECOND
    (episode,) = await host.start()
    assert (await host.grade(episode, "please")).reward.rubric == "manners@2"


async def test_a_hook_that_fails_leaves_the_rubric_as_it_is(playing: Host, caplog: pytest.LogCaptureFixture) -> None:
    def broken(current: Rubric, seen: Sequence[ScoredAttempt]) -> Rubric:
        raise OSError("no idea")

    evolving = Evolving(FIRST, broken, every=1)
    host = await playing(environment(evolving))
    (episode,) = await host.start()
    assert (await host.grade(episode, "please")).reward.value == 1.0
    assert await evolving.settled() is FIRST
    assert "proposing the next version of the rubric manners@1 failed; it stays" in caplog.text


async def test_a_proposal_needs_a_version_of_its_own_and_the_same_name() -> None:
    for proposed in (
        Rubric([Pattern("x")], name="manners", version="1"),
        Rubric([Pattern("x")], name="other", version="2"),
    ):
        evolving = Evolving(FIRST, lambda current, seen, proposed=proposed: proposed)  # type: ignore[misc]
        with pytest.raises(AuthoringError, match="keeps the name and has a version of its own"):
            await evolving.evolve()
        assert evolving.current is FIRST
    with pytest.raises(AuthoringError, match="every must be"):
        Evolving(FIRST, lambda current, seen: None, every=0)


async def test_rewards_of_an_earlier_version_are_not_shown_to_the_hook() -> None:
    evolving = Evolving(FIRST, lambda current, seen: SECOND)
    late = await FIRST.score(Attempt("please"))
    await evolving.evolve()
    evolving.record(Attempt("please"), late)
    assert not evolving._seen


def test_a_group_in_use_keeps_its_version_however_many_others_there_are() -> None:
    evolving = Evolving(FIRST, lambda current, seen: SECOND)
    assert evolving.of_group("long") is FIRST
    evolving.versions.append(SECOND)
    for n in range(25_000):
        evolving.of_group(f"other {n}")
        if n % 5000 == 0:
            assert evolving.of_group("long") is FIRST
