"""Solves the pieces of word problems from their sentences alone, by counting, trying and simulating.

It shares nothing with the generator but the English text: numbers are read from the sentences, quantities are brought
to one unit each (minutes, centimeters, cents, milliliters, grams), and each family is solved by another way than the
formula that made it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations, count, product
from math import comb
from typing import Any

_TOKEN = re.compile(
    r"(?P<hour>\d+):(?P<minute>\d\d) (?P<half>[AP]M)|\$(?P<dollars>\d+(?:\.\d\d)?)"
    r"|(?P<hours>\d+) hours? and (?P<minutes>\d+) minutes|(?P<above>\d+)/(?P<below>\d+)"
    r"|(?P<number>\d+(?:\.\d+)?)(?: (?P<unit>kilometers per hour|kilometers|meters?|hours?|liters|kilograms)\b)?"
)
_UNITS = {
    "kilometers per hour": 1, "kilometers": 100_000, "meters": 100, "meter": 100, "hours": 60, "hour": 60,
    "liters": 1000, "kilograms": 1000,
}  # fmt: skip
_WORDS = {"twice": 2, "three times": 3, "four times": 4}


def numbers(text: str) -> list[Any]:
    """The numbers of a text in the base units."""
    found: list[Any] = []
    for one in _TOKEN.finditer(text):
        if one["hour"]:
            found.append(int(one["hour"]) % 12 * 60 + int(one["minute"]) + (720 if one["half"] == "PM" else 0))
        elif one["dollars"]:
            found.append(Fraction(one["dollars"]) * 100)
        elif one["hours"]:
            found.append(int(one["hours"]) * 60 + int(one["minutes"]))
        elif one["above"]:
            found.append(Fraction(int(one["above"]), int(one["below"])))
        else:
            found.append(Fraction(one["number"]) * _UNITS.get(one["unit"] or "", 1))
    return [int(one) if one == int(one) else one for one in found]


def times(text: str) -> int:
    """The only multiple in words of a text."""
    [found] = {_WORDS[one] for one in re.findall(r"twice|three times|four times", text)}
    return found


def only(candidates: Any) -> Any:
    """The one candidate; an error if there are none or several."""
    [found] = list(candidates)
    return found


def first(condition: Callable[[int], bool]) -> int:
    """The first whole number from 1 that fulfills a condition."""
    return next(one for one in count(1) if condition(one))


def two_workers(text: str) -> Any:
    a, b, hours, late = numbers(text)
    return Fraction(sum(a + (b if minute >= late else 0) for minute in range(hours)), 60)


def inventory(text: str) -> Any:
    start, sold, came = numbers(text)
    stock = list(range(start))
    del stock[:sold]
    stock += range(came)
    for _ in range(times(text)):
        del stock[:sold]
    return len(stock)


def ratio(text: str) -> Any:
    p, q, more = numbers(text)
    part = first(lambda one: one * q - one * p == more)
    return part * p + part * q


def ages(text: str) -> Any:
    later, total = numbers(text)
    return only(times(text) * one for one in range(200) if times(text) * one + later + one + later == total)


def mixture(text: str) -> Any:
    a, weak, b, strong = numbers(text)
    return Fraction(a * weak, 100) + Fraction(b * strong, 100)


def meeting(text: str) -> Any:
    apart, u, v = numbers(text)
    minute = first(lambda one: Fraction(100_000 * one, 60) * u + Fraction(100_000 * one, 60) * v >= apart)
    assert Fraction(100_000 * minute * (u + v), 60) == apart
    return minute


def catching_up(text: str) -> Any:
    slow, ahead, quick = numbers(text)
    leader, follower = slow * ahead, 0
    while follower < leader:
        leader, follower = leader + slow, follower + quick
    assert follower == leader
    return follower // 100


def average(text: str) -> Any:
    games, mean, more, better = numbers(text)
    assert more == games + 1
    return first(lambda last: sum([mean] * games + [last]) == better * more)


def either_or_both(text: str) -> Any:
    members, a, b, both = numbers(text)
    one, other = set(range(a)), set(range(a - both, a - both + b))
    return len(set(range(members)) - one - other)


def garden(text: str) -> Any:
    length, width, pond = (one // 100 for one in numbers(_centimeters(text)))
    return sum(not (x < pond and y < pond) for x in range(length) for y in range(width))


def border(text: str) -> Any:
    length, width, path = (one // 100 for one in numbers(_centimeters(text)))
    cells = product(range(-path, length + path), range(-path, width + path))
    return sum(not (0 <= x < length and 0 <= y < width) for x, y in cells)


def field(text: str) -> Any:
    more, fence = numbers(_centimeters(text))
    width = first(lambda one: sum([one * 100, one * 100 * times(text) + more] * 2) == fence)
    return sum(times(text) * width + more // 100 for _ in range(width))


def _centimeters(text: str) -> str:
    """The text with centimeters as a number alone, so that meters are the only unit."""
    return text.replace(" centimeters", "")


def timetable(text: str) -> Any:
    start, every, end = numbers(text)
    departures = list(range(start, end + 1, every))
    assert departures[-1] == end
    return len(departures)


def journey(text: str) -> Any:
    start, end, rest = numbers(text)
    return len(range(start, end)) - rest


def menus(text: str) -> Any:
    starters, mains, desserts, never = numbers(text)
    every = product(range(starters), range(mains), range(desserts))
    return sum(not (starter == 0 and main < never) for starter, main, _ in every)


def tournament(text: str) -> Any:
    players, best = numbers(text)
    every = list(combinations(range(players), 2)) * (2 if "twice" in text else 1)
    return len(every) + len(list(combinations(range(best), 2)))


def animals(text: str) -> Any:
    few, many, heads, legs = numbers(text)
    return only(one for one in range(heads + 1) if many * one + few * (heads - one) == legs)


def rows(text: str) -> Any:
    lines, seats, more = numbers(text)
    return sum(seats + more * one for one in range(lines))


def comparison(text: str) -> Any:
    base, extra, fewer = numbers(text)
    mine = [base] * times(text) + [extra]
    return sum(mine) + sum([*mine, -fewer])


def together(text: str) -> Any:
    a, b, rest = numbers(text)
    minutes = first(lambda one: Fraction(one, a) + Fraction(one, b) >= 1)
    assert Fraction(minutes, a) + Fraction(minutes, b) == 1
    return minutes + rest


def tank(text: str) -> Any:
    room, there, pump, leak = numbers(text.replace(" milliliters", ""))
    return first(lambda one: there + pump * one - leak * one == room)


def coins(text: str) -> Any:
    number, big, small, worth = numbers(text)
    return only(one for one in range(number + 1) if big * one + small * (number - one) == worth)


def there_and_back(text: str) -> Any:
    out, minutes, back = numbers(text)
    return minutes + first(lambda one: back * one == out * minutes)


def ribbon(text: str) -> Any:
    length, piece, spoiled = numbers(text)
    pieces = 0
    while length >= piece:
        length, pieces = length - piece, pieces + 1
    assert length == 0
    return pieces - spoiled


SOURCES: dict[str, Callable[[str], Any]] = {
    "production": lambda text: Fraction(numbers(text)[0] * numbers(text)[1], 60),
    **{
        one.__name__: one
        for one in (
            two_workers, inventory, ratio, ages, mixture, meeting, catching_up, average, either_or_both, garden, border,
            field, timetable, journey, menus, tournament, animals, rows, comparison, together, tank, coins,
            there_and_back, ribbon,
        )
    },
}  # fmt: skip


def shared(value: Any, text: str) -> Any:
    [shares] = numbers(text)
    given, left = 0, value
    while left >= shares:
        given, left = given + shares, left - shares
    return given


def drawn(value: Any, text: str) -> Any:
    [marked] = numbers(text)
    picked = 2 if "Two of" in text else 1
    return Fraction(comb(value - marked, picked), comb(value, picked))


def simple_interest(value: Any, text: str) -> Any:
    rate, years = numbers(text.replace("two years", "2 years"))
    return value + sum(Fraction(value * rate, 100) for _ in range(years))


def compound_interest(value: Any, text: str) -> Any:
    [rate] = numbers(text)
    for _ in range(2):
        value += Fraction(value * rate, 100)
    return value


def goal(value: Any, text: str) -> Any:
    price, weekly = numbers(text)
    return first(lambda weeks: value + weekly * weeks >= price)


def discount(value: Any, text: str) -> Any:
    rate, fee = numbers(text)
    price = times(text) * value
    return price - Fraction(price * rate, 100) + fee


def tickets(value: Any, text: str) -> Any:
    students, price = numbers(text)
    return sum(Fraction(price, 2) if person < students else price for person in range(value))


def posts(value: Any, text: str) -> Any:
    [apart] = numbers(text)
    places = list(range(0, value * 100 + 1, apart))
    assert places[-1] == value * 100
    return len(places)


def given_and_doubled(value: Any, text: str) -> Any:
    [away] = numbers(text)
    return (value - away) + times(text) * (value - away)


def expense(value: Any, text: str) -> Any:
    permit, each, helpers = numbers(text)
    return value - sum([permit] + [each] * helpers)


def seeds(value: Any, text: str) -> Any:
    grams, bag = numbers(text)
    return first(lambda bags: bags * bag >= grams * value)


def tiles(value: Any, text: str) -> Any:
    [side] = numbers(text)
    return value * Fraction(100, side) ** 2


def _percent(value: Any, text: str) -> Any:
    return Fraction(value * numbers(text)[0], 100)


TRANSFORMS: dict[str, Callable[[Any, str], Any]] = {
    "sell": lambda value, text: sum(numbers(text) * value),
    "percent_lost": lambda value, text: value - _percent(value, text),
    "fraction_kept": lambda value, text: value * only(numbers(text)),
    "packed": lambda value, text: len(range(0, value, only(numbers(text)))),
    "grown": lambda value, text: value + _percent(value, text),
    "time_each": lambda value, text: sum(numbers(text) * value),
    "split_money": lambda value, text: Fraction(value, 1 + only(numbers(text))),
    "buy": lambda value, text: len(range(only(numbers(text)), value + 1, only(numbers(text)))),
    "change": lambda value, text: value - max(range(0, value + 1, only(numbers(text)))),
    "tax": lambda value, text: value - _percent(value, text),
    "portions": lambda value, text: sum([numbers(text)[0]] * value) + numbers(text)[1],
    "wage": lambda value, text: Fraction(numbers(text)[0], 60) * value + numbers(text)[1],
    "distance": lambda value, text: Fraction(numbers(text)[0] * value, 100),
    "repeated": lambda value, text: sum(value for _ in product(range(numbers(text)[0]), range(numbers(text)[1]))),
    "machine": lambda value, text: len(range(0, value * 60, only(numbers(text)))),
    "footsteps": lambda value, text: Fraction(value * 100, only(numbers(text))),
    "cable": lambda value, text: value * numbers(text)[0] + numbers(text)[1],
    "commute": lambda value, text: sum(value + value for _ in range(only(numbers(text)))),
    "paving": lambda value, text: value * numbers(text)[0] + numbers(text)[1],
    "part_planted": lambda value, text: value - value * only(numbers(text)),
    "glasses": lambda value, text: len(range(only(numbers(text)), value + 1, only(numbers(text)))),
    "evaporated": lambda value, text: value - _percent(value, text) + numbers(text)[1],
    "gift": lambda value, text: value * numbers(text)[0] + numbers(text)[1],
    "years_of_pages": lambda value, text: value * numbers(text)[0] + numbers(text)[1],
    "donation": lambda value, text: value * numbers(text)[0] + numbers(text)[1],
    "other_team": lambda value, text: times(text) * value - only(numbers(text)),
    **{
        one.__name__: one
        for one in (
            shared, drawn, simple_interest, compound_interest, goal, discount, tickets, posts, given_and_doubled,
            expense, seeds, tiles,
        )
    },
}  # fmt: skip


def solve(families: tuple[str, ...], texts: tuple[str, ...]) -> list[Any]:
    """The quantities that follow from the sentences of each piece, in order."""
    values = [SOURCES[families[0]](texts[0])]
    for family, text in zip(families[1:], texts[1:], strict=True):
        assert values[-1] == int(values[-1]), f"{family} begins with a broken number"
        values.append(TRANSFORMS[family](int(values[-1]), text))
    return values
