"""Group scores: tournaments in both orders, over every wire that compares episodes."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.client import connect
from ludus.protocol import Candidate, Reward
from ludus.protocol import episodes as e
from ludus.protocol.items import text_message
from ludus.server import Environment, Task
from ludus.server.auth.principal import Principal
from ludus.server.rewards import (
    Attempt,
    FunctionComparer,
    PairwiseJudge,
    Pattern,
    Rubric,
    Tournament,
    Verdict,
)
from ludus.server.rewards.tournament import Game, bradley_terry, ranks

OPEN = Principal.open()


def longer(first: Attempt, second: Attempt) -> float:
    return 0.5 if len(first.answer) == len(second.answer) else float(len(first.answer) > len(second.answer))


LONGER = FunctionComparer(longer)


async def values(answers: Sequence[str], **options: Any) -> list[float | None]:
    given: dict[str, Any] = {"comparer": LONGER, **options}
    tournament = Tournament(**given)
    return [reward.value for reward in await tournament.score([Attempt(answer) for answer in answers])]


async def test_a_round_robin_scores_by_wins_places_or_strength() -> None:
    answers = ["aaa", "b", "cc"]
    assert await values(answers) == [1.0, 0.0, 0.5]
    assert await values(answers, by="rank") == [1.0, 0.0, 0.5]
    strong, weak, middle = await values(answers, by="bradley_terry")
    assert strong is not None
    assert weak is not None
    assert 1.0 > strong > 0.5 > weak > 0.0
    assert middle == pytest.approx(0.5)


@pytest.mark.parametrize("count", [2, 3, 5, 8])
async def test_a_knockout_finds_the_best_with_one_game_less_than_attempts(count: int) -> None:
    played: list[tuple[str, str]] = []

    def compare(first: Attempt, second: Attempt) -> float:
        played.append((first.answer, second.answer))
        return longer(first, second)

    found = await values(
        ["x" * n for n in range(1, count + 1)], comparer=FunctionComparer(compare), schedule="knockout"
    )
    assert found[-1] == 1.0
    assert all(value is not None and value < 1.0 for value in found[:-1])
    assert len(played) == 2 * (count - 1), "each in both orders"


async def test_a_draw_is_the_same_for_the_same_seed() -> None:
    answers = ["x" * n for n in range(1, 8)]
    one = await values(answers, schedule="knockout", seed=1)
    assert one == await values(answers, schedule="knockout", seed=1)
    assert any([await values(answers, schedule="knockout", seed=seed) != one for seed in range(2, 6)])


async def test_a_preference_for_a_place_is_a_tie() -> None:
    assert await values(["a", "bb"], comparer=FunctionComparer(lambda first, second: 1.0)) == [0.5, 0.5]


async def test_equal_answers_tie_without_being_compared() -> None:
    def never(first: Attempt, second: Attempt) -> float:
        raise AssertionError

    assert await values(["a", "a"], comparer=FunctionComparer(never)) == [0.5, 0.5]


@pytest.mark.parametrize("schedule", ["round_robin", "knockout"])
@pytest.mark.parametrize("broken", ["raises", "unscored", "nan", "2"])
async def test_an_attempt_without_any_comparison_is_unscored_and_the_others_are_not(schedule: Any, broken: str) -> None:
    def compare(first: Attempt, second: Attempt) -> Any:
        if "?" in first.answer + second.answer:
            if broken == "raises":
                raise OSError("down")
            return {"unscored": Verdict.unscored("down"), "nan": math.nan, "2": 2.0}[broken]
        return longer(first, second)

    tournament = Tournament(FunctionComparer(compare), schedule=schedule)
    odd, *others = await tournament.score([Attempt("?"), Attempt("bb"), Attempt("ccc")])
    if schedule == "round_robin":
        assert odd.value is None
        assert [reward.value for reward in others] == [0.0, 1.0]
        assert others[1].components["tournament"].evidence == "1 of 1 games, 1 undecided"
    else:
        assert odd.value is None
        told = [reward.value for reward in others]
        assert told in ([0.0, 1.0], [None, None]), "unscored where the draw gave them no game with each other"


@pytest.mark.parametrize("count", [2, 3, 4, 7])
async def test_a_knockout_without_a_judge_has_no_winner(count: int) -> None:
    nobody = FunctionComparer(lambda first, second: Verdict.unscored("down"))
    rewards = await Tournament(nobody, schedule="knockout").score([Attempt("x" * n) for n in range(count)])
    assert [reward.value for reward in rewards] == [None] * count
    assert all(reward.reason == "no comparison: down" for reward in rewards)


async def test_the_finalists_of_an_undecided_final_share_the_first_place() -> None:
    asked: list[tuple[int, int]] = []

    def compare(first: Attempt, second: Attempt) -> Verdict:
        asked.append((len(first.answer), len(second.answer)))
        return Verdict(longer(first, second)) if len(asked) <= 4 else Verdict.unscored("down")

    found = await values(["a", "bb", "ccc", "dddd"], comparer=FunctionComparer(compare), schedule="knockout")
    first, second = asked[4]
    assert [found[first - 1], found[second - 1]] == [pytest.approx(5 / 6)] * 2
    assert sorted(value for value in found if value is not None)[:2] == [pytest.approx(1 / 6)] * 2


@pytest.mark.parametrize("count", [2, 3, 4, 8])
async def test_equal_attempts_come_out_of_a_knockout_equal(count: int) -> None:
    assert await values(["a"] * count, schedule="knockout") == [0.5] * count


@pytest.mark.parametrize("seed", range(6))
async def test_who_ties_comes_as_far_as_the_one_that_the_draw_let_go_on(seed: int) -> None:
    # "aa" and "bb" are equals and "c" is worse; regardless of who meets first, the equals share the place before it.
    found = await values(["aa", "c", "bb", "d"], schedule="knockout", seed=seed)
    assert found[0] is not None
    if found[0] == found[2]:  # they met
        assert found[0] >= max(value for value in (found[1], found[3]) if value is not None)
    assert math.fsum(value for value in found if value is not None) == pytest.approx(2.0)


async def test_no_position_is_favored_by_the_draws_of_many_groups() -> None:
    met: list[str] = []

    def compare(first: Attempt, second: Attempt) -> float:
        met.append(first.answer)
        return longer(first, second)

    finalists = []
    for group in range(40):
        attempts = [Attempt("x" * n, prompt=f"task {group}") for n in range(1, 5)]
        await Tournament(FunctionComparer(compare), schedule="knockout").score(attempts)
        finalists.append(len(min(met[-2:], key=len)))
    assert set(finalists) == {2, 3}, "with whom the longest has its final is drawn anew each time"


async def test_one_attempt_alone_is_unscored() -> None:
    (reward,) = await Tournament(LONGER).score([Attempt("a")])
    assert reward.reason == "there is no other attempt to compare it with"


async def test_a_rubric_counts_next_to_the_tournament_and_components_add_up() -> None:
    rubric = Rubric([Pattern("a")], name="plain", version="3")
    rewards = await Tournament(LONGER, rubric=rubric, share=0.25).score([Attempt("a"), Attempt("bb")])
    assert [reward.value for reward in rewards] == [0.75, 0.25]
    assert rewards[0].rubric == "plain@3"
    for reward in rewards:
        added = math.fsum(part.value * part.weight for part in reward.components.values())
        assert added == pytest.approx(reward.value)


async def test_games_of_a_round_are_played_at_the_same_time() -> None:
    met = asyncio.Barrier(6)

    async def meet(first: Attempt, second: Attempt) -> float:
        async with asyncio.timeout(60):
            await met.wait()
        return longer(first, second)

    assert len(await values(["a", "bb", "ccc", "dddd"], comparer=FunctionComparer(meet))) == 4


GAMES = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 4), st.none() | st.floats(0, 1)).filter(
        lambda game: game[0] != game[1]
    ),
    max_size=30,
)


@given(GAMES)
def test_strengths_are_finite_and_even_out_whatever_was_played(games: list[tuple[int, int, float | None]]) -> None:
    strengths = bradley_terry(5, [Game(*game) for game in games])
    assert all(math.isfinite(strength) and strength > 0 for strength in strengths)
    assert math.prod(strengths) == pytest.approx(1.0, rel=1e-6)


@given(GAMES)
def test_strengths_follow_from_who_won_and_not_from_names(games: list[tuple[int, int, float | None]]) -> None:
    straight = bradley_terry(5, [Game(*game) for game in games])
    turned = bradley_terry(5, [Game(b, a, None if v is None else 1.0 - v) for a, b, v in games])
    assert straight == pytest.approx(turned, rel=1e-6)


def test_strengths_recover_the_chances_that_made_the_games() -> None:
    true = [4.0, 2.0, 1.0, 0.125]
    pairs = [(i, j) for i in range(4) for j in range(4) if i < j]
    games = [Game(i, j, true[i] / (true[i] + true[j])) for i, j in pairs for _ in range(500)]
    assert bradley_terry(4, games) == pytest.approx(true, rel=0.02)


@given(st.lists(st.none() | st.floats(0, 1), min_size=2, max_size=8))
def test_places_go_from_0_to_1_in_the_order_of_the_values(given_values: list[float | None]) -> None:
    found = ranks(given_values)
    pairs = [(value, place) for value, place in zip(given_values, found, strict=True) if value is not None]
    assert all(place is not None and 0.0 <= place <= 1.0 for _, place in pairs)
    for value, place in pairs:
        for other, behind in pairs:
            if value > other:
                assert place is not None
                assert behind is not None
                assert place > behind


# ── over the wires ─────────────────────────────────────────────────────────────────────────────────────────────────


class Saying(Environment[Task]):
    """Say something long."""

    splits: ClassVar[Any] = {"train": [Task(id="1")]}
    group_rubric = Tournament(LONGER)

    def prompt(self) -> str:
        return "Say it."

    def grade(self, answer: str) -> float:
        return 0.0


def candidate(text: str, **metadata: Any) -> Candidate:
    return Candidate(messages=(text_message("user", "Say it."), text_message("assistant", text)), metadata=metadata)


@pytest.mark.parametrize("wire", ["channel", "mcp", "ors"])
async def test_groups_are_scored_over_every_wire(serve: Any, wire: Any) -> None:
    server = await serve(Saying)
    async with connect(server.url, wire=wire) as client:
        environment = client.environment("saying")
        async with environment.group(3, split="train", index=0) as group:
            texts = dict(zip([episode.id for episode in group], ["aaa", "b", "cc"], strict=True))
            rewards = await group.score({name: candidate(text) for name, text in texts.items()})
    assert {texts[name]: reward.value for name, reward in rewards.items()} == {"aaa": 1.0, "b": 0.0, "cc": 0.5}
    assert all(reward.components["tournament"].evidence for reward in rewards.values())


async def test_a_judged_group_knows_the_policy_from_the_candidates(
    playing: Callable[..., Awaitable[Any]], served: Any, endpoint: Any, say: Any
) -> None:
    served.says(say.comparison(lambda first, second: "first" if len(first) > len(second) else "second"))

    class Judged(Saying):
        group_rubric = Tournament(PairwiseJudge("Which is longer?", endpoint("Qwen/Qwen3-32B")), by="bradley_terry")

    host = await playing(Judged)

    async def score(**metadata: Any) -> list[Reward]:
        episodes = await host.start(count=2)
        candidates = {name: candidate("x" * (n + 1), **metadata) for n, name in enumerate(episodes)}
        params = e.ScoreGroupParams(group=host.group, candidates=candidates, key=host.key())
        return list((await host.host.score_group(params, OPEN)).rewards.values())

    worse, better = await score()
    assert worse.value is not None
    assert better.value is not None
    assert worse.value < 0.5 < better.value
    refused = await score(model="Qwen/Qwen3-0.6B")
    assert all("of the family qwen" in (reward.reason or "") for reward in refused)
