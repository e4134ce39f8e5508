"""Ratings of players from the results of their matches, by a Bradley–Terry model with draws and an advantage of a seat.

How it works (Bradley and Terry 1952; draws: Davidson 1970; the advantage of a seat: Davidson and Beaver 1977):

* A player i has a strength s_i. In a match of i at the first seat and j at the second one, with the advantage a of the
  first seat, d = s_i − s_j + a. The odds of a win of i, of a draw and of a win of j are exp(d/2) : exp(t) : exp(−d/2).
  So a draw is the likelier the closer the two are. Without draws in the data there is no t, and the model is the plain
  one: i wins with the probability 1 / (1 + exp(−d)).
* All parameters are found together, at the maximum of the log likelihood and of a normal prior on each of them. The
  prior keeps players finite who have won or lost everything. The function is strictly concave, so there is one
  maximum, and Newton's method with step halving finds it.
* A match says something about differences only. The prior makes the mean of the strengths 0 in each group of players
  that are connected by matches. Players of different groups cannot be compared, whatever their numbers.
* A rating is 1500 + s × 400 / ln 10, the scale of Elo: 400 more are odds of 10 to 1. Its interval comes from the
  inverse of the curvature at the maximum, of the strength relative to the mean of its group. The curvature has the
  eigenvector 1 of each group with the eigenvalue of the prior, so the variance of the mean is known, and is taken off.

The work is a Cholesky decomposition of a matrix of all players for each step, usually 5 to 8 of them, and fewer if it
starts from earlier strengths.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import mul
from typing import Final, NamedTuple

ELO: Final = 400 / math.log(10)
"""Points of a rating for each unit of strength."""

MEAN: Final = 1500.0
"""The mean of the ratings of a group."""

PRIOR: Final = 350 / ELO
"""The standard deviation of the prior of a strength: 350 points, as of a new player in Glicko (Glickman 1999)."""

SEAT_PRIOR: Final = 1.0
"""The standard deviation of the prior of the first seat's advantage."""

DRAW_PRIOR: Final = 2.0
"""The standard deviation of the prior of t, the logarithm of a draw's odds between equal players."""

Z95: Final = 1.959963984540054
"""Half the width of a 95% interval of the normal distribution, in standard deviations."""

STEPS: Final = 60
"""The most steps of Newton's method; a strictly concave function needs far fewer."""

TOLERANCE: Final = 1e-6
"""The gradient at which the maximum is reached."""


class Tally(NamedTuple):
    """The matches of two players with the same one at the first seat."""

    wins: int = 0
    """Matches that the player at the first seat has won."""
    draws: int = 0
    losses: int = 0

    @property
    def matches(self) -> int:
        """The number of matches."""
        return self.wins + self.draws + self.losses


class Rating(NamedTuple):
    """The rating of a player."""

    value: float
    low: float
    """The lower end of the 95% interval."""
    high: float
    group: int
    """Players of the same group are connected by matches; the largest group is 0. Others cannot be compared."""


@dataclass(frozen=True)
class Ratings:
    """The ratings of all players of a board.

    Attributes:
        players: the rating of each player.
        seat_advantage: the advantage of the first seat, in points of a rating, with its 95% interval.
        draw_share: the probability of a draw between equal players, without an advantage of a seat.
        strengths: the strengths, from which a later computation may start.
        others: the advantage of the first seat, and t if there are draws, in units of strength.
    """

    players: Mapping[str, Rating]
    seat_advantage: tuple[float, float, float]
    draw_share: float
    strengths: Mapping[str, float]
    others: tuple[float, ...]


def rate(
    players: Iterable[str], tallies: Mapping[tuple[str, str], Tally], *, start: Ratings | None = None,
    prior: float = PRIOR, seat_prior: float = SEAT_PRIOR, draw_prior: float = DRAW_PRIOR,
) -> Ratings:  # fmt: skip
    """Return the ratings of players. The order of players and of tallies does not matter.

    Args:
        players: all players, with or without matches.
        tallies: the matches by the names of the players at the first and the second seat.
        start: an earlier computation to start from; it changes the work and not the result.
        prior, seat_prior, draw_prior: the standard deviations of the priors.

    Raises:
        ValueError: a tally names a player who is not in `players`, or one against itself.
    """
    names = sorted(set(players))
    place = {name: index for index, name in enumerate(names)}
    games = []
    for (first, second), tally in sorted(tallies.items()):
        if first not in place or second not in place or first == second:
            raise ValueError(f"a match of {first!r} against {second!r} is not one of two of the players")
        if tally.matches:
            games.append(_Games(place[first], place[second], tally))
    has_draws = any(one.tally.draws for one in games)
    precisions = [prior**-2] * len(names) + [seat_prior**-2] + [draw_prior**-2] * has_draws
    model = _Model(len(names), games, precisions)
    known, others = (start.strengths, start.others) if start is not None else ({}, ())
    found = model.maximum([known.get(name, 0.0) for name in names] + [*others, 0.0, 0.0][: 1 + has_draws])
    variances = _inverse_diagonal(model.curvature(found))
    groups = _groups(len(names), games)
    sizes = [groups.count(group) for group in groups]
    rated = {}
    for index, name in enumerate(names):
        deviation = math.sqrt(max(0.0, variances[index] - prior**2 / sizes[index]))
        value = MEAN + ELO * found[index]
        rated[name] = Rating(value, value - Z95 * ELO * deviation, value + Z95 * ELO * deviation, groups[index])
    seat, wide = ELO * found[len(names)], Z95 * ELO * math.sqrt(variances[len(names)])
    draws = math.exp(found[-1]) / (2 + math.exp(found[-1])) if has_draws else 0.0
    return Ratings(
        rated,
        (seat, seat - wide, seat + wide),
        draws,
        dict(zip(names, found, strict=False)),
        tuple(found[len(names) :]),
    )


class _Games(NamedTuple):
    """The matches of two players, by their indices."""

    first: int
    second: int
    tally: Tally


class _Model:
    """The log posterior. Its parameters are the strengths, the advantage of the first seat, and t if there are draws.

    Args:
        players: the number of players.
        games: their matches.
        precisions: the precision of the prior of each parameter.
    """

    def __init__(self, players: int, games: Sequence[_Games], precisions: Sequence[float]) -> None:
        self._seat = players
        self._draw = players + 1 if len(precisions) > players + 1 else None
        self._games = games
        self._precisions = precisions

    def maximum(self, start: list[float]) -> list[float]:
        """Return the parameters at the maximum."""
        here, value = start, self.value(start)
        for _ in range(STEPS):
            slope = self.gradient(here)
            if max(map(abs, slope)) < TOLERANCE:
                break
            step = _solve(self.curvature(here), slope)
            share = 1.0
            while True:
                there = [old + share * change for old, change in zip(here, step, strict=True)]
                after = self.value(there)
                if after >= value or share < 1e-6:
                    break
                share /= 2
            if after <= value and share < 1:
                break  # rounding: it cannot be improved any more
            here, value = there, after
        return here

    def value(self, at: Sequence[float]) -> float:
        """Return the log posterior, without its constant."""
        total = -0.5 * sum(precision * one * one for precision, one in zip(self._precisions, at, strict=True))
        for one in self._games:
            half, tie = self._odds(one, at)
            wins, draws, losses = one.tally
            parts = (abs(half), -abs(half), tie)
            top = max(parts)
            total += (wins - losses) * half + (draws * tie if draws else 0.0)
            total -= (wins + draws + losses) * (top + math.log(sum(math.exp(part - top) for part in parts)))
        return total

    def gradient(self, at: Sequence[float]) -> list[float]:
        """Return the derivatives of the log posterior."""
        slope = [-precision * one for precision, one in zip(self._precisions, at, strict=True)]
        for one in self._games:
            mean, tied, _ = self._moments(one, at)
            wins, draws, losses = one.tally
            change = (wins - losses) / 2 - one.tally.matches * mean
            slope[one.first] += change
            slope[one.second] -= change
            slope[self._seat] += change
            if self._draw is not None:
                slope[self._draw] += draws - one.tally.matches * tied
        return slope

    def curvature(self, at: Sequence[float]) -> list[list[float]]:
        """Return the second derivatives with the opposite sign: the information, as a full matrix."""
        size = len(self._precisions)
        matrix = [[0.0] * size for _ in range(size)]
        for place, precision in enumerate(self._precisions):
            matrix[place][place] = precision
        seat, draw = self._seat, self._draw
        for one in self._games:
            first, second, count = one.first, one.second, one.tally.matches
            mean, tied, spread = self._moments(one, at)
            weight = count * spread
            matrix[first][first] += weight
            matrix[second][second] += weight
            matrix[seat][seat] += weight
            high, low = max(first, second), min(first, second)
            matrix[high][low] -= weight
            matrix[seat][first] += weight
            matrix[seat][second] -= weight
            if draw is not None:
                both = -count * mean * tied
                matrix[draw][first] += both
                matrix[draw][second] -= both
                matrix[draw][seat] += both
                matrix[draw][draw] += count * tied * (1 - tied)
        return matrix

    def _odds(self, one: _Games, at: Sequence[float]) -> tuple[float, float]:
        """Return d/2 and t of a match."""
        half = (at[one.first] - at[one.second] + at[self._seat]) / 2
        return half, at[self._draw] if self._draw is not None else -math.inf

    def _moments(self, one: _Games, at: Sequence[float]) -> tuple[float, float, float]:
        """Return the mean of a match's result (±1/2, 0 for a draw), the probability of a draw, and the variance."""
        half, tie = self._odds(one, at)
        top = max(abs(half), tie)
        win, loss, draw = math.exp(half - top), math.exp(-half - top), math.exp(tie - top)
        total = win + loss + draw
        mean, tied = (win - loss) / (2 * total), draw / total
        return mean, tied, (1 - tied) / 4 - mean * mean


def _groups(count: int, games: Iterable[_Games]) -> list[int]:
    """Return the group of each player; the largest one is 0."""
    leader = list(range(count))

    def find(one: int) -> int:
        while leader[one] != one:
            leader[one] = leader[leader[one]]
            one = leader[one]
        return one

    for game in games:
        leader[find(game.first)] = find(game.second)
    members: dict[int, list[int]] = {}
    for one in range(count):
        members.setdefault(find(one), []).append(one)
    ordered = sorted(members.values(), key=lambda some: (-len(some), some))
    groups = [0] * count
    for number, some in enumerate(ordered):
        for one in some:
            groups[one] = number
    return groups


# ── a symmetric, positive definite matrix, of which only the lower triangle is read ───────────────────────────────────


def _cholesky(matrix: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return the rows of the lower triangle L with L Lᵀ = matrix."""
    rows: list[list[float]] = []
    for place, given in enumerate(matrix):
        row: list[float] = []
        for column in range(place):
            above = rows[column]
            row.append((given[column] - sum(map(mul, row, above))) / above[column])
        row.append(math.sqrt(given[place] - sum(map(mul, row, row))))
        rows.append(row)
    return rows


def _solve(matrix: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """Return x with matrix x = right."""
    rows = _cholesky(matrix)
    found: list[float] = []
    for row, value in zip(rows, right, strict=True):
        found.append((value - sum(map(mul, row, found))) / row[-1])
    for place in range(len(rows) - 1, -1, -1):
        row = rows[place]
        known = found[place] / row[-1]
        found[place] = known
        for column in range(place):
            found[column] -= row[column] * known
    return found


def _inverse_diagonal(matrix: Sequence[Sequence[float]]) -> list[float]:
    """Return the diagonal of the inverse: the sums of squares of the columns of the inverse of L."""
    rows = _cholesky(matrix)
    diagonal = []
    for start in range(len(rows)):
        column = [1 / rows[start][start]]
        for row in rows[start + 1 :]:
            column.append(-sum(map(mul, row[start:], column)) / row[-1])
        diagonal.append(sum(map(mul, column, column)))
    return diagonal
