"""Score several attempts at one task by comparing them in pairs: round-robin and knockout tournaments."""

from __future__ import annotations

import asyncio
import inspect
import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Literal, Protocol

from ludus.protocol.errors import AuthoringError
from ludus.protocol.rewards import Component, Reward
from ludus.server.rewards.attempt import Attempt
from ludus.server.rewards.nodes import Judged
from ludus.server.rewards.rubric import Rubric
from ludus.server.rewards.verdict import Verdict, read_verdict


class Comparer(Protocol):
    """A comparison of two attempts, such as `PairwiseJudge`."""

    async def compare(self, first: Attempt, second: Attempt) -> Verdict:
        """Return 1 if the first is better, 0 if the second is, between for a tie; unscored without a verdict."""
        ...


@dataclass(frozen=True)
class FunctionComparer:
    """A comparer that calls a function in both orders: a preference that changes with the order is a tie."""

    function: Callable[[Attempt, Attempt], Judged]

    async def compare(self, first: Attempt, second: Attempt) -> Verdict:
        """Return the mean of both orders."""
        forth, back = await self._once(first, second), await self._once(second, first)
        if forth.value is None or back.value is None:
            return forth if forth.value is None else back
        return Verdict((forth.value + 1.0 - back.value) / 2, forth.evidence)

    async def _once(self, first: Attempt, second: Attempt) -> Verdict:
        preference: Any = self.function(first, second)
        verdict = read_verdict(await preference if inspect.isawaitable(preference) else preference)
        if verdict.value is not None and not 0.0 <= verdict.value <= 1.0:
            return Verdict.unscored(f"the comparison returned {verdict.value:g}, which is not from 0 to 1")
        return verdict


@dataclass(slots=True)
class Game:
    """One comparison: `value` is 1 if the first won, 0 if the second did, None if it is undecided."""

    first: int
    second: int
    value: float | None
    evidence: str = ""


@dataclass(slots=True)
class Table:
    """The results of a tournament."""

    count: int
    """The number of attempts."""
    games: list[Game] = field(default_factory=list)
    won: dict[int, int] = field(default_factory=dict)
    """Knockout: the last round that each attempt won, 0 for none. Attempts whose place is unknown are left out."""

    def results(self, attempt: int) -> list[float]:
        """Return the values of an attempt's decided games, from its side."""
        mine = []
        for game in self.games:
            if game.value is not None and attempt in (game.first, game.second):
                mine.append(game.value if attempt == game.first else 1.0 - game.value)
        return mine


@dataclass(frozen=True)
class Tournament:
    """Scores a group by comparisons: set it as an environment's `group_rubric`.

    Values go from 0 to 1. An attempt for which no comparison gave a verdict is unscored. Attempts with equal answers
    and steps tie without being compared. With a `rubric`, each attempt's own reward counts too.
    """

    comparer: Comparer
    schedule: Literal["round_robin", "knockout"] = "round_robin"
    """`round_robin` compares all pairs. `knockout` compares n - 1 pairs, drawn by `seed` and the attempts, and ranks
    attempts from 0 to 1 by the last round that each won. Attempts that tied count as equals; equals share a place."""
    by: Literal["wins", "bradley_terry", "rank"] = "wins"
    """For round robins. `wins`: the mean of its games. `bradley_terry`: the probability of beating an average
    attempt, which takes the opponents' strengths into account. `rank`: its place, from 0 for the last to 1 for the
    first; ties share."""
    rubric: Rubric | None = None
    share: float = 0.5
    """The weight of the tournament if there is a rubric, whose weight is the rest."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0.0 < self.share <= 1.0:
            raise AuthoringError(f"share must be above 0 and at most 1, not {self.share}")

    async def score(self, attempts: Sequence[Attempt]) -> list[Reward]:
        """Return one reward for each attempt, in their order."""
        table = await (self._knockout if self.schedule == "knockout" else self._round_robin)(attempts)
        values = self._values(table)
        own_rewards: Sequence[Reward | None] = [None] * len(attempts)
        if self.rubric is not None:
            own_rewards = await asyncio.gather(*(self.rubric.score(attempt) for attempt in attempts))
        return [self._reward(table, n, values[n], own_rewards[n]) for n in range(len(attempts))]

    async def play(self, first: int, second: int, attempts: Sequence[Attempt]) -> Game:
        """Play one game. If the comparer raises an error, the game is undecided."""
        first_attempt, second_attempt = attempts[first], attempts[second]
        if first_attempt.answer == second_attempt.answer and first_attempt.steps == second_attempt.steps:
            return Game(first, second, 0.5, "the same answer")
        try:
            verdict = await self.comparer.compare(first_attempt, second_attempt)
            value, evidence = verdict.value, verdict.evidence
        except Exception as error:
            return Game(first, second, None, f"the comparison raised {type(error).__name__}")
        if value is not None and not 0.0 <= value <= 1.0:
            return Game(first, second, None, f"the comparison returned {value}")
        return Game(first, second, value, evidence)

    async def _round_robin(self, attempts: Sequence[Attempt]) -> Table:
        pairs = combinations(range(len(attempts)), 2)
        games = await asyncio.gather(*(self.play(first, second, attempts) for first, second in pairs))
        return Table(len(attempts), list(games))

    async def _knockout(self, attempts: Sequence[Attempt]) -> Table:
        table = Table(len(attempts))
        remaining = list(range(len(attempts)))
        # The draw depends on the attempts too: by the seed alone, a position would get the same draw in every group.
        drawn_by = (self.seed, [(attempt.prompt, attempt.answer) for attempt in attempts])
        random.Random(ascii(drawn_by)).shuffle(remaining)
        bracket = _Bracket(len(attempts))
        number = 0
        while len(remaining) > 1:
            number += 1
            pairs = list(zip(remaining[::2], remaining[1::2], strict=False))
            games = await asyncio.gather(*(self.play(first, second, attempts) for first, second in pairs))
            table.games += games
            winners = [bracket.enter(game, number, last=len(remaining) == 2) for game in games]
            remaining = winners + remaining[len(pairs) * 2 :]
        table.won = {n: bracket.won(n) for n in range(len(attempts)) if table.results(n) and n not in bracket.unknown}
        return table

    def _values(self, table: Table) -> list[float | None]:
        if table.count == 1:
            return [None]
        if self.schedule == "knockout":
            return ranks([table.won.get(n) for n in range(table.count)])
        results = [table.results(n) for n in range(table.count)]
        means = [statistics.fmean(games) if games else None for games in results]
        if self.by == "wins":
            return means
        if self.by == "rank":
            return ranks(means)
        strengths = bradley_terry(table.count, table.games)
        return [s / (1.0 + s) if games else None for s, games in zip(strengths, results, strict=True)]

    def _reward(self, table: Table, attempt: int, value: float | None, own_reward: Reward | None) -> Reward:
        label = None if own_reward is None else own_reward.rubric
        games = [game for game in table.games if attempt in (game.first, game.second)]
        if table.count == 1:
            return Reward(value=None, reason="there is no other attempt to compare it with", rubric=label)
        if value is None:
            cause = next((game.evidence for game in games if game.value is None), "no game was decided")
            return Reward(value=None, reason=f"no comparison: {cause}", rubric=label)
        scored = table.results(attempt)
        evidence = f"{math.fsum(scored):g} of {len(scored)} games"
        if undecided := len(games) - len(scored):
            evidence += f", {undecided} undecided"
        components = {"games": Component(value=float(len(scored)), weight=0.0)}
        share = 1.0 if own_reward is None else self.share
        components["tournament"] = Component(value=value, weight=share, evidence=evidence)
        total = share * value
        if own_reward is not None:
            if own_reward.value is None:
                return own_reward
            for name, part in own_reward.components.items():
                changed = part.model_copy(update={"weight": part.weight * (1.0 - share)})
                components[f"rubric/{name}"] = changed
            total += (1.0 - share) * own_reward.value
        return Reward(value=total, components=components, rubric=label)


class _Bracket:
    """The state of a knockout: which attempts advance, and how far each one got."""

    def __init__(self, count: int) -> None:
        self._tied = [{n} for n in range(count)]
        """For each attempt, those that it tied with and itself: they count as equals."""
        self._won = [0] * count
        self.unknown: set[int] = set()
        """Attempts that dropped out although no game decided that they lost."""

    def enter(self, game: Game, number: int, *, last: bool) -> int:
        """Record a game of a round, and return the attempt that advances: without a winner, the one drawn first."""
        if game.value is None:
            if not last:
                self.unknown.add(game.second)
            return game.first
        if math.isclose(game.value, 0.5):
            together = self._tied[game.first] | self._tied[game.second]
            for tied in together:
                self._tied[tied] = together
            return game.first
        winner = game.first if game.value > 0.5 else game.second
        self._won[winner] = number
        return winner

    def won(self, attempt: int) -> int:
        """Return the last round that an attempt won, or an attempt that it tied with."""
        return max(self._won[tied] for tied in self._tied[attempt])


def ranks(values: Sequence[float | None]) -> list[float | None]:
    """Return the places of values, from 0 for the least to 1 for the greatest; ties share the mean of their places."""
    scored = [value for value in values if value is not None]
    if len(scored) < 2:
        return [None if value is None else 0.5 for value in values]
    ranks = {}
    for value in set(scored):
        below = sum(rival < value for rival in scored)
        ranks[value] = (below + (scored.count(value) - 1) / 2) / (len(scored) - 1)
    return [None if value is None else ranks[value] for value in values]


def bradley_terry(count: int, games: Sequence[Game], *, prior: float = 0.5, rounds: int = 1000) -> list[float]:
    """Return strengths such that `i` beats `j` with probability s_i / (s_i + s_j); their geometric mean is 1.

    This is the maximum-a-posteriori estimate by Hunter's MM algorithm (Annals of Statistics 32, 2004). Each attempt
    gets `prior` wins and losses against an opponent of strength 1, so that strengths stay finite after only wins or
    only losses.

    Args:
        count: the number of attempts.
        games: comparisons; undecided ones are left out, and a tie is half a win for both.
        prior: imagined wins, and as many losses.
        rounds: the most iterations.
    """
    played = [(game.first, game.second, game.value) for game in games if game.value is not None]
    wins = [prior] * count
    for first, second, value in played:
        wins[first] += value
        wins[second] += 1.0 - value
    strengths = [1.0] * count
    for _ in range(rounds):
        against = [2 * prior / (strength + 1.0) for strength in strengths]
        for first, second, _value in played:
            shared = 1.0 / (strengths[first] + strengths[second])
            against[first] += shared
            against[second] += shared
        estimates = [won / weight for won, weight in zip(wins, against, strict=True)]
        moved = max(abs(math.log(new / old)) for new, old in zip(estimates, strengths, strict=True))
        strengths = estimates
        if moved < 1e-9:
            break
    mean = math.fsum(math.log(strength) for strength in strengths) / count
    return [strength / math.exp(mean) for strength in strengths]
