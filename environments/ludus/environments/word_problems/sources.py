"""Pieces that begin a story: each describes a situation from which one quantity follows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ludus.environments.word_problems.story import GOODS, Flow, Piece, Story, clock, dollars, things

Source = Callable[[Story], Piece]


def production(story: Story) -> Piece:
    """One person makes things at a steady rate."""
    one, goods = story.pick(GOODS)
    rate, minutes, who = 4 * story.between(2, 12), 15 * story.between(6, 30), story.hero
    text = story.pick((
        f"{who} makes {rate} {goods} an hour and works for {story.duration(minutes)}.",
        f"In a workshop, {who} can make {rate} {goods} per hour. Today {who} works for {story.duration(minutes)}.",
    ))  # fmt: skip
    flow = things(rate * minutes // 60, goods, f"the {goods} that {who} made", one)
    return Piece(2, text, flow, f"How many {goods} did {who} make?")


def two_workers(story: Story) -> Piece:
    """Two people make the same things; one of them starts later."""
    (one, goods), who, other = story.pick(GOODS), story.hero, story.person()
    first, second, hours = story.between(6, 28), story.between(6, 28), story.between(4, 9)
    late = story.between(1, hours - 2)
    text = (
        f"{who} makes {first} {goods} an hour, and {other} makes {second} {goods} an hour. {who} works for {hours} "
        f"hours. {other} starts {story.duration(60 * late)} later than {who}, and they stop at the same time."
    )
    total = first * hours + second * (hours - late)
    return Piece(4, text, things(total, goods, f"all these {goods}", one), f"How many {goods} did they make together?")


def inventory(story: Story) -> Piece:
    """A shop sells and receives things on several days."""
    (one, goods), who = story.pick(GOODS), story.hero
    sold, came, times = story.between(13, 60), story.between(20, 120), story.pick((2, 3))
    start = sold * (times + 1) + story.between(15, 250)
    word = {2: "twice", 3: "three times"}[times]
    day, second, third = story.pick((
        ("Monday", "Tuesday", "Wednesday"), ("Wednesday", "Thursday", "Friday"), ("Thursday", "Friday", "Saturday"),
    ))  # fmt: skip
    text = (
        f"On {day} morning, {who}'s shop has {start} {goods}. It sells {sold} of them on {day}. On {second} it sells "
        f"none, and {came} {goods} are delivered. On {third} it sells {word} as many as on {day}."
    )
    left = start - sold + came - times * sold
    flow = things(left, goods, f"the {goods} that the shop then has", one)
    return Piece(4, text, flow, f"How many {goods} does the shop have after {third}?")


def ratio(story: Story) -> Piece:
    """Two people's numbers of things are in a ratio."""
    (one, goods), who, other = story.pick(GOODS), story.hero, story.person()
    less, more = story.pick(((2, 3), (3, 4), (2, 5), (3, 5), (4, 5), (3, 7), (4, 7), (5, 7), (5, 8), (3, 8), (4, 9)))
    part = story.between(6, 45)
    text = (
        f"The number of {goods} that {who} has and the number that {other} has are in the ratio {less}:{more}. {other} "
        f"has {part * (more - less)} more {goods} than {who}. They put all their {goods} together."
    )
    flow = things(part * (less + more), goods, f"all these {goods}", one)
    return Piece(4, text, flow, f"How many {goods} do they have together?")


def ages(story: Story) -> Piece:
    """The sum of two people's ages some years from now."""
    who, other = story.hero, story.person()
    times, young, later = story.between(2, 4), story.between(8, 19), story.between(3, 15)
    word = {2: "twice", 3: "three times", 4: "four times"}[times]
    total = (times + 1) * young + 2 * later
    text = f"{who} is {word} as old as {other}. In {later} years, the sum of their ages will be {total} years."
    flow = Flow(times * young, "years", "years", f"{who}'s age now")
    return Piece(4, text, flow, f"How old is {who} now, in years?")


def mixture(story: Story) -> Piece:
    """Two drinks with different shares of juice are mixed."""
    who, first, second = story.hero, story.between(2, 14), story.between(2, 14)
    weak, strong = 5 * story.between(2, 8), 5 * story.between(9, 18)
    text = (
        f"{who} mixes {story.liters(first)} of a drink that is {weak} percent juice with {story.liters(second)} of a "
        f"drink that is {strong} percent juice."
    )
    flow = Flow(10 * (first * weak + second * strong), "volume", "milliliters of juice", "the juice in this mixture")
    return Piece(4, text, flow, "How many milliliters of juice are in the mixture?")


def meeting(story: Story) -> Piece:
    """Two riders start at the same time and ride toward each other."""
    who, other, minutes = story.hero, story.person(), 4 * story.between(6, 45)
    first, second = story.between(14, 26), story.between(14, 26)
    second += -(first + second) % 15
    text = (
        f"{who} and {other} live {(first + second) * minutes // 60} kilometers apart on a straight road. At the same "
        f"time, they leave home and ride toward each other, {who} at {first} kilometers per hour and {other} at "
        f"{second} kilometers per hour, until they meet."
    )
    flow = Flow(minutes, "minutes", "minutes", "the time until they meet")
    return Piece(3, text, flow, "After how many minutes do they meet?")


def catching_up(story: Story) -> Piece:
    """One person starts later and follows a slower one."""
    who, other = story.hero, story.person()
    slow, faster = 10 * story.between(5, 9), 10 * story.pick((1, 2, 3, 4, 5))
    ahead = faster // 10 * story.between(2, 9)
    time = slow * ahead // faster
    text = (
        f"{other} leaves home on foot at {slow} meters per minute. {story.duration(ahead)} later, {who} leaves the "
        "same "
        f"home and follows on the same path at {slow + faster} meters per minute, and catches up with {other}."
    )
    flow = Flow((slow + faster) * time, "meters", "meters", f"the distance that {who} went")
    return Piece(4, text, flow, f"How many meters has {who} gone when catching up?")


def average(story: Story) -> Piece:
    """One more game changes the mean of the points."""
    who, games, mean = story.hero, story.between(4, 11), story.between(30, 90)
    better = mean + story.between(2, 9)
    text = (
        f"In the first {games} games of a season, {who} scores {mean} points per game on average. After one more game, "
        f"the average of all {games + 1} games is {better} points."
    )
    flow = Flow(better * (games + 1) - mean * games, "points", "points", f"{who}'s points in that last game")
    return Piece(4, text, flow, f"How many points does {who} score in the last game?")


def either_or_both(story: Story) -> Piece:
    """Members of a club do one thing, another, both or neither."""
    who, both, neither = story.hero, story.between(8, 40), story.between(12, 90)
    first, second = both + story.between(10, 80), both + story.between(10, 80)
    this, that = story.pick((
        ("play chess", "play tennis"), ("sing", "dance"), ("swim", "run"), ("paint", "take photographs"),
        ("speak Spanish", "speak French"),
    ))  # fmt: skip
    text = (
        f"{who}'s club has {first + second - both + neither} members. Of these, {first} {this}, {second} {that}, and "
        f"{both} do both; they are counted each time."
    )
    flow = Flow(neither, "people", "members", "the members who do neither", "member")
    return Piece(3, text, flow, "How many members do neither?")


def garden(story: Story) -> Piece:
    """A rectangle with a square left out."""
    who, width, length = story.hero, story.between(8, 25), story.between(12, 48)
    pond = story.between(2, 7)
    text = (
        f"{who} has a rectangular garden that is {story.length(length)} long and {width} meters wide. A square pond in "
        f"it has sides of {story.length(pond)}. The rest of the garden is lawn."
    )
    flow = Flow(width * length - pond * pond, "area", "square meters", "the lawn")
    return Piece(3, text, flow, "How many square meters of lawn are there?")


def border(story: Story) -> Piece:
    """A path all around a rectangle."""
    width, length, path = story.between(6, 24), story.between(10, 40), story.between(1, 4)
    text = (
        f"A rectangular pool is {story.length(length)} long and {width} meters wide. {story.hero} builds a path all "
        f"around it that is {path} meter{'s' if path > 1 else ''} wide everywhere, with square corners."
    )
    flow = Flow((width + 2 * path) * (length + 2 * path) - width * length, "area", "square meters", "the path")
    return Piece(5, text, flow, "How many square meters does the path cover?")


def field(story: Story) -> Piece:
    """A rectangle with a given perimeter and a length compared with its width."""
    who, width, times, more = story.hero, story.between(7, 40), story.between(2, 4), story.between(2, 30)
    word = {2: "twice", 3: "three times", 4: "four times"}[times]
    length = times * width + more
    text = (
        f"{who}'s rectangular field is {story.length(more)} longer than {word} its width. The fence all around it is "
        f"{story.length(2 * (length + width))} long."
    )
    flow = Flow(length * width, "area", "square meters", "the field")
    return Piece(4, text, flow, "How many square meters is the field?")


def timetable(story: Story) -> Piece:
    """Vehicles leave at equal intervals."""
    first, every, more = 5 * story.between(60, 100), story.pick((6, 8, 9, 12, 14, 15, 18, 24)), story.between(14, 45)
    one, noun, place = story.pick(
        (("bus", "buses", "station"), ("ferry", "ferries", "port"), ("tram", "trams", "depot"))
    )
    first -= max(0, first + every * more - 24 * 60 + 1)
    text = (
        f"From {story.hero}'s {place}, the first {one} of the day leaves at {clock(first)}, and then one {one} leaves "
        f"every {every} minutes. The last one leaves at {clock(first + every * more)} on the same day."
    )
    return Piece(3, text, things(more + 1, noun, f"these {noun}", one), f"How many {noun} leave on that day in total?")


def journey(story: Story) -> Piece:
    """A journey between two times of day, with a break."""
    who, start, rest = story.hero, story.between(6 * 60, 11 * 60), story.between(12, 55)
    moving = 6 * story.between(20, 75)
    text = (
        f"{who} leaves home at {clock(start)} and arrives at {clock(start + moving + rest)} on the same day. On the "
        "way, "
        f"{who} takes one break of {rest} minutes and otherwise keeps driving."
    )
    flow = Flow(moving, "minutes", "minutes", "the time of driving")
    return Piece(3, text, flow, f"For how many minutes does {who} drive?")


def menus(story: Story) -> Piece:
    """Choices that combine, except some."""
    who, starters, mains, desserts = story.hero, story.between(3, 8), story.between(5, 12), story.between(3, 9)
    never = story.between(2, mains - 2)
    text = (
        f"At {who}'s restaurant, a menu is one of {starters} starters, one of {mains} main courses and one of "
        f"{desserts} "
        f"desserts. The soup, which is one of the starters, cannot be combined with {never} of the main courses. All "
        "other choices are possible."
    )
    flow = things((starters * mains - never) * desserts, "different menus", "all these menus", "menu")
    return Piece(4, text, flow, "How many different menus are possible?")


def tournament(story: Story) -> Piece:
    """Everyone plays everyone else, and then the best do so again."""
    players, times = story.between(9, 30), story.pick((1, 2))
    best = story.between(4, players - 3)
    often = {1: "once", 2: "twice"}[times]
    text = (
        f"{story.hero} runs a tournament with {players} players. In the first round, each player plays {often} against "
        f"every other player. In the second round, each of the best {best} players plays once against every other one "
        "of these."
    )
    total = players * (players - 1) // 2 * times + best * (best - 1) // 2
    return Piece(4, text, things(total, "games", "these games", "game"), "How many games are played in both rounds?")


def animals(story: Story) -> Piece:
    """Heads and legs of two kinds of animals."""
    two, four = story.between(12, 90), story.between(12, 70)
    bird = story.pick(("hens", "ducks", "geese", "turkeys"))
    one, beast = story.pick((("goat", "goats"), ("cow", "cows"), ("sheep", "sheep"), ("rabbit", "rabbits")))
    text = (
        f"On {story.hero}'s farm there are only {bird} with 2 legs each and {beast} with 4 legs each. Together, the "
        f"animals have {two + four} heads and {2 * two + 4 * four} legs."
    )
    return Piece(4, text, things(four, beast, f"the {beast}", one), f"How many {beast} are on the farm?")


def rows(story: Story) -> Piece:
    """Rows that grow by the same number."""
    first, more, count = story.between(8, 30), story.between(2, 5), story.between(8, 24)
    text = (
        f"A theater in {story.hero}'s town has {count} rows of seats. The first row has {first} seats, and each other "
        f"row has {more} more seats than the row in front of it."
    )
    flow = things(count * (2 * first + (count - 1) * more) // 2, "seats", "the seats", "seat")
    return Piece(5, text, flow, "How many seats does the theater have?")


def comparison(story: Story) -> Piece:
    """Three people's numbers of things, each compared with another."""
    (one, goods), who, other, third = story.pick(GOODS), story.hero, story.person(), story.person()
    base, times, extra = story.between(11, 60), story.between(2, 4), story.between(5, 40)
    fewer = story.between(3, base)
    word = {2: "twice", 3: "three times", 4: "four times"}[times]
    text = (
        f"{other} has {base} {goods}. {who} has {extra} more than {word} as many {goods} as {other}. {third} has "
        f"{fewer} "
        f"fewer {goods} than {who}. {who} and {third} put theirs together."
    )
    flow = things(2 * (times * base + extra) - fewer, goods, f"the {goods} of {who} and {third}", one)
    return Piece(4, text, flow, f"How many {goods} do {who} and {third} have together?")


def together(story: Story) -> Piece:
    """Two people do one job together, with a break."""
    who, other, scale, rest = story.hero, story.person(), story.between(3, 17), story.between(5, 40)
    slow, quick = story.pick(((3, 2), (4, 1), (3, 1), (4, 3), (5, 2), (5, 3), (2, 1)))
    total = slow + quick
    job = story.pick(("paint a fence", "clean a hall", "print a newspaper", "rake the leaves in a park"))
    text = (
        f"Alone, {who} would need {story.duration(scale * quick * total)} to {job}, and {other} would need "
        f"{story.duration(scale * slow * total)}. They do it together, each at their usual speed, with one break of "
        f"{rest} minutes in which neither of them works."
    )
    flow = Flow(scale * slow * quick + rest, "minutes", "minutes", "the time that they need together with their break")
    return Piece(4, text, flow, "How many minutes do they need together, including the break?")


def tank(story: Story) -> Piece:
    """A tank that is filled while it leaks."""
    minutes, leak, net, there = (
        story.between(15, 120),
        story.between(2, 9),
        story.between(4, 20),
        story.between(10, 150),
    )
    text = (
        f"{story.hero}'s water tank holds {minutes * net + there} liters, and there are {story.liters(there)} in it. A "
        f"pump adds {net + leak} liters per minute, while {leak} liters per minute leak out, until the tank is full."
    )
    flow = Flow(minutes, "minutes", "minutes", "the time until the tank is full")
    return Piece(3, text, flow, "How many minutes does it take until the tank is full?")


def coins(story: Story) -> Piece:
    """Coins of two kinds, by number and worth."""
    who, quarters, dimes = story.hero, story.between(13, 90), story.between(13, 90)
    text = (
        f"{who} has {quarters + dimes} coins, only quarters of 25 cents and dimes of 10 cents. Together they are worth "
        f"{dollars(25 * quarters + 10 * dimes)}."
    )
    return Piece(
        4, text, things(quarters, "quarters", "the quarters", "quarter"), f"How many quarters does {who} have?"
    )


def there_and_back(story: Story) -> Piece:
    """A way out and back at different speeds."""
    who, part = story.hero, story.between(6, 25)
    out, back, p, q = story.pick((
        (40, 60, 2, 3), (60, 80, 3, 4), (45, 60, 3, 4), (60, 90, 2, 3), (50, 75, 2, 3), (80, 100, 4, 5), (48, 60, 4, 5),
        (60, 40, 3, 2), (90, 60, 3, 2), (75, 60, 5, 4), (70, 60, 7, 6),
    ))  # fmt: skip
    minutes = q * part
    text = (
        f"{who} drives to a town at {out} kilometers per hour and gets there after {story.duration(minutes)}. {who} "
        "comes "
        f"back on the same road at {back} kilometers per hour."
    )
    flow = Flow(minutes + p * part, "minutes", "minutes", "the time of driving there and back")
    return Piece(3, text, flow, f"For how many minutes does {who} drive, there and back together?")


def ribbon(story: Story) -> Piece:
    """A long ribbon cut into short pieces, some of them spoiled."""
    who, piece, pieces = story.hero, 5 * story.between(3, 16), 20 * story.between(3, 18)
    spoiled = story.between(3, 25)
    text = (
        f"{who} cuts a ribbon of {piece * pieces // 100} meters into pieces of {piece} centimeters and throws away "
        f"{spoiled} of the pieces."
    )
    flow = things(pieces - spoiled, "pieces of ribbon", "the pieces of ribbon that are left", "piece of ribbon")
    return Piece(3, text, flow, "How many pieces of ribbon are left?")


SOURCES: Final[Mapping[str, Source]] = {
    one.__name__: one
    for one in (
        production, two_workers, inventory, ratio, ages, mixture, meeting, catching_up, average, either_or_both, garden,
        border, field, timetable, journey, menus, tournament, animals, rows, comparison, together, tank, coins,
        there_and_back, ribbon,
    )
}  # fmt: skip
"""The pieces that begin a story, by family."""
