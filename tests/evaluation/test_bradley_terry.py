"""Ratings by a Bradley–Terry model: against closed forms, other programs' results, and simulated players."""

from __future__ import annotations

import math
import random

import pytest

from ludus.evaluation.bradley_terry import ELO, MEAN, Ratings, Tally, rate

WIDE, OFF = 100.0, 1e-6
"""Standard deviations of priors that do not matter, and that keep a parameter at 0."""

GAMES = {
    ("ant", "bee"): Tally(7, 0, 3), ("bee", "ant"): Tally(4, 0, 6), ("bee", "cow"): Tally(8, 0, 2),
    ("cow", "bee"): Tally(3, 0, 7), ("ant", "cow"): Tally(9, 0, 1), ("cow", "dog"): Tally(5, 0, 5),
    ("dog", "ant"): Tally(2, 0, 8), ("dog", "cow"): Tally(6, 0, 4),
}  # fmt: skip
DRAWN = {
    ("ant", "bee"): Tally(6, 3, 1), ("bee", "ant"): Tally(3, 3, 4), ("bee", "cow"): Tally(7, 2, 1),
    ("cow", "ant"): Tally(2, 2, 6), ("ant", "cow"): Tally(4, 5, 1),
}  # fmt: skip


def values(found: Ratings) -> list[float]:
    return [found.players[name].value for name in sorted(found.players)]


@pytest.mark.parametrize(("wins", "losses"), [(1, 1), (3, 1), (60, 15)])
def test_the_odds_between_two_players_are_those_of_their_matches(wins: int, losses: int) -> None:
    found = rate("ab", {("a", "b"): Tally(wins, 0, losses)}, prior=WIDE, seat_prior=OFF)
    assert found.players["a"].value - found.players["b"].value == pytest.approx(
        400 * math.log10(wins / losses), abs=0.1
    )
    share = wins / (wins + losses)
    error = math.sqrt(1 / ((wins + losses) * share * (1 - share))) / 2  # of the difference, of which each has a half
    assert found.players["a"].high - found.players["a"].value == pytest.approx(1.959964 * ELO * error, rel=1e-4)


def test_the_share_of_draws_between_equal_players_is_that_of_their_matches() -> None:
    found = rate("ab", {("a", "b"): Tally(10, 20, 10)}, draw_prior=WIDE)
    assert found.draw_share == pytest.approx(0.5, abs=1e-4)
    assert values(found) == pytest.approx([MEAN, MEAN])


def test_ratings_with_the_prior_are_those_of_choix() -> None:
    """`1500 + ELO * choix.opt_pairwise(4, pairs, alpha=0.5 / PRIOR**2)`, with choix 0.4."""
    expected = [1668.034155, 1556.793647, 1365.197564, 1409.974634]
    assert values(rate(["ant", "bee", "cow", "dog"], GAMES, seat_prior=OFF)) == pytest.approx(expected, abs=1e-3)


def test_ratings_intervals_and_the_seat_are_those_of_a_logistic_regression() -> None:
    """`statsmodels.api.Logit` with one column for each player, of which the sum is zero, and an intercept."""
    found = rate(["ant", "bee", "cow", "dog"], GAMES, prior=WIDE, seat_prior=WIDE)
    assert values(found) == pytest.approx([1677.747928, 1562.822898, 1362.319305, 1397.109870], abs=0.1)
    errors = [(one.high - one.low) / 2 / 1.959964 for _, one in sorted(found.players.items())]
    assert errors == pytest.approx([52.244493, 49.772315, 44.388765, 56.778622], abs=0.01)
    value, low, high = found.seat_advantage
    assert (value, (high - low) / 2 / 1.959964) == pytest.approx((41.543456, 44.645958), abs=0.01)


def test_ratings_with_draws_are_those_of_a_general_optimizer() -> None:
    """`scipy.optimize.minimize` of the model as Davidson and Beaver write it, with the same priors."""
    found = rate(["ant", "bee", "cow"], DRAWN)
    assert values(found) == pytest.approx([1618.8945, 1514.0874, 1367.0181], abs=1e-2)
    assert found.seat_advantage[0] == pytest.approx(66.1885, abs=1e-2)
    assert found.draw_share == pytest.approx(0.334316, abs=1e-4)


def test_ratings_of_simulated_players_are_recovered_within_their_intervals() -> None:
    luck = random.Random(7)
    names = [f"p{number:02}" for number in range(24)]
    strength = {name: luck.gauss(0, 1) for name in names}
    mean = sum(strength.values()) / len(names)
    tallies: dict[tuple[str, str], Tally] = {}
    for _ in range(6000):
        first, second = luck.sample(names, 2)
        half = (strength[first] - strength[second] + 0.4) / 2
        weights = math.exp(half), 0.8, math.exp(-half)
        result = luck.choices(range(3), weights)[0]
        before = tallies.get((first, second), Tally())
        tallies[first, second] = Tally(*(count + (place == result) for place, count in enumerate(before)))
    found = rate(names, tallies)
    inside = sum(
        one.low <= MEAN + ELO * (strength[name] - mean) <= one.high for name, one in found.players.items()
    )  # fmt: skip
    assert inside >= 21, "95% intervals of 24 players"
    assert found.seat_advantage[1] <= 0.4 * ELO <= found.seat_advantage[2]
    assert found.draw_share == pytest.approx(0.8 / 2.8, abs=0.03)


def test_the_order_of_players_and_matches_does_not_matter_nor_does_the_start() -> None:
    whole = rate(["ant", "bee", "cow"], DRAWN)
    turned = rate(["cow", "ant", "bee"], dict(reversed(DRAWN.items())))
    assert turned == whole
    warm = rate(["ant", "bee", "cow"], DRAWN, start=rate(["ant", "bee"], {("ant", "bee"): Tally(0, 0, 9)}))
    assert values(warm) == pytest.approx(values(whole), abs=1e-6)


def test_an_unbeaten_player_is_finite_and_rises_with_each_win() -> None:
    ratings = [rate("ab", {("a", "b"): Tally(wins, 0, 0)}).players["a"] for wins in (1, 5, 50, 5000)]
    assert [one.value for one in ratings] == sorted(one.value for one in ratings)
    assert all(math.isfinite(one.high) and one.low < one.value < one.high for one in ratings)


def test_only_draws_are_finite() -> None:
    found = rate("abc", {("a", "b"): Tally(0, 50, 0), ("b", "c"): Tally(0, 50, 0)})
    assert values(found) == pytest.approx([MEAN] * 3)
    assert 0.5 < found.draw_share < 1


def test_groups_without_a_match_between_them_are_apart_and_each_has_the_mean() -> None:
    tallies = {("a", "b"): Tally(9, 0, 1), ("b", "c"): Tally(3, 1, 1), ("x", "y"): Tally(1, 0, 5)}
    found = rate(["a", "b", "c", "x", "y", "lone"], tallies)
    assert {name: one.group for name, one in found.players.items()} == {
        "a": 0, "b": 0, "c": 0, "x": 1, "y": 1, "lone": 2,
    }  # fmt: skip
    for names in ("abc", "xy", ["lone"]):
        assert sum(found.players[name].value for name in names) / len(names) == pytest.approx(MEAN)


def test_more_matches_make_intervals_narrower() -> None:
    widths = []
    for times in (1, 10, 100):
        found = rate("abc", {pair: Tally(3 * times, times, times) for pair in (("a", "b"), ("b", "c"), ("c", "b"))})
        widths.append(found.players["a"].high - found.players["a"].low)
    assert widths == sorted(widths, reverse=True)
    assert widths[0] / widths[2] > 5


def test_a_match_against_itself_or_an_unknown_player_is_refused() -> None:
    for pair in (("a", "a"), ("a", "z")):
        with pytest.raises(ValueError, match="not one of two"):
            rate("ab", {pair: Tally(1, 0, 0)})


def test_without_matches_ratings_are_the_mean() -> None:
    assert rate([], {}).players == {}
    assert [one.value for one in rate("ab", {}).players.values()] == [MEAN, MEAN]
