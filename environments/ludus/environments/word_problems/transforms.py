"""Pieces that go on with a story: each makes another quantity of the one before. None if it cannot be of that value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Final

from ludus.environments.word_problems.story import GOODS, Flow, Kind, Piece, Story, decimal, dollars, things

Transform = Callable[[Story, Flow], Piece | None]

_PARTS: Final = ((1, 3), (2, 3), (1, 4), (3, 4), (2, 5), (3, 5), (4, 5), (3, 8), (5, 8), (2, 7), (3, 7), (4, 9), (5, 9))
_PRICES: Final = (120, 145, 160, 185, 225, 240, 275, 310, 360, 425)
_PERCENTS: Final = (5, 10, 15, 20, 24, 25, 30, 35, 40, 45, 60, 65, 70, 75, 80)


def money(cents: int, ref: str) -> Flow:
    """Return an amount of money."""
    return Flow(cents, "money", "dollars", ref)


# ── things ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def sell(story: Story, flow: Flow) -> Piece:
    """Each thing earns the same."""
    price = story.pick((25, 35, 40, 45, 60, 75, 80, 120, 125, 150, 175, 250, 300, 350, 400, 450, 600))
    text = f"{story.hero} gets {story.price(price)} for each of {flow.ref}."
    ask = f"How many dollars does {story.hero} get for {flow.ref}?"
    return Piece(1, text, money(flow.whole * price, "this money"), ask)


def percent_lost(story: Story, flow: Flow) -> Piece | None:
    """A percentage of the things goes away."""
    share = story.pick(_PERCENTS)
    if flow.whole * share % 100 or flow.whole < 20:
        return None
    does = story.pick(("are taken away", "are crossed off the list", "turn out to be unusable"))
    left = flow.whole * (100 - share) // 100
    text = f"Of {flow.ref}, {share} percent {does}."
    return Piece(
        2, text, things(left, flow.noun, f"the {flow.noun} that remain", flow.one), f"How many {flow.noun} remain?"
    )


def fraction_kept(story: Story, flow: Flow) -> Piece | None:
    """A fraction of the things has a property, and those are what the story goes on with."""
    above, below = story.pick(_PARTS)
    if flow.whole % below or flow.whole < 2 * below:
        return None
    sort = story.pick(("new", "special", "rare", "popular"))
    text = f"Exactly {above}/{below} of {flow.ref} are {sort}."
    noun = f"{sort} {flow.noun}"
    flow = things(flow.whole // below * above, noun, f"the {noun}", f"{sort} {flow.one}")
    return Piece(2, text, flow, f"How many {noun} are there?")


def shared(story: Story, flow: Flow) -> Piece | None:
    """As many as possible are given out in equal shares, and the rest stays."""
    shares = story.between(5, 16)
    each, rest = divmod(flow.whole, shares)
    if not rest or not each:
        return None
    group = story.pick(("classes", "families", "schools", "neighbors", "clubs"))
    text = (
        f"{story.hero} divides {flow.ref} equally among {shares} {group}. Each gets as many as possible, and those "
        "that "
        "cannot be divided equally are kept back."
    )
    return Piece(
        3, text, things(flow.whole - rest, flow.noun, f"the {flow.noun} that were given out", flow.one),
        f"How many {flow.noun} are given out in total?",
    )  # fmt: skip


def packed(story: Story, flow: Flow) -> Piece | None:
    """The things go into boxes, the last of which may be part full."""
    size = story.between(4, 15)
    if flow.whole < 8 * size:
        return None
    one, noun = story.pick((("box", "boxes"), ("crate", "crates"), ("bag", "bags"), ("carton", "cartons")))
    if flow.noun == noun or flow.one == one:
        return None
    text = (
        f"{story.hero} writes a label for each of {flow.ref}. One {one} holds {size} labels, and the last {one} need "
        "not "
        "be full."
    )
    boxes = -(-flow.whole // size)
    ask = f"How many {noun} are needed to hold all the labels?"
    return Piece(2, text, things(boxes, noun, f"the {noun} that are needed for the labels", one), ask)


def grown(story: Story, flow: Flow) -> Piece | None:
    """The next time there are more, by a percentage."""
    share = story.pick(_PERCENTS)
    if flow.whole * share % 100 or flow.whole < 20:
        return None
    text = (
        f"A year later, the number of {flow.noun} is {share} percent greater than the number of {flow.ref} this year."
    )
    flow = things(flow.whole * (100 + share) // 100, flow.noun, f"the {flow.noun} of the later year", flow.one)
    return Piece(2, text, flow, f"How many {flow.noun} are there in the later year?")


def given_and_doubled(story: Story, flow: Flow) -> Piece | None:
    """Some are given away; then more come, a multiple of what is left."""
    if flow.whole < 25:
        return None
    away, times, other = story.between(3, flow.whole // 3), story.pick((2, 3)), story.person()
    word = {2: "twice", 3: "three times"}[times]
    text = (
        f"{story.hero} removes {away} of {flow.ref}. Then {other} brings {word} as many {flow.noun} as are left after "
        f"that, and adds them to those."
    )
    flow = things((flow.whole - away) * (times + 1), flow.noun, f"all the {flow.noun} that are then there", flow.one)
    return Piece(3, text, flow, f"How many {flow.noun} are there in the end?")


def drawn(story: Story, flow: Flow) -> Piece | None:
    """One of the things, or two, are picked at random."""
    if not 15 <= flow.whole <= 5000:
        return None
    count, marked = flow.whole, story.between(4, flow.whole // 2)
    mark = story.pick(("marked with a star", "checked by an inspector", "photographed for a catalog"))
    text = f"Of {flow.ref}, {marked} are {mark}. "
    if story.chance(0.5) or count > 200:
        text += f"One of {flow.ref} is picked at random."
        chance, ask, steps = Fraction(count - marked, count), f"that it is not {mark}", 2
    else:
        text += f"Two of {flow.ref} are picked at random at the same time."
        chance = Fraction((count - marked) * (count - marked - 1), count * (count - 1))
        ask, steps = f"that neither of the two is {mark}", 4
    return Piece(
        steps, text, Flow(chance, "chance", "as a fraction", "this probability"),
        f"What is the probability, as an exact fraction, {ask}?",
    )  # fmt: skip


def time_each(story: Story, flow: Flow) -> Piece | None:
    """Each thing takes some time."""
    each = story.between(3, 14)
    if flow.whole > 1500:
        return None
    text = f"Then {story.hero} has to inspect {flow.ref} one after the other, and each takes {each} minutes."
    return Piece(
        1, text, Flow(flow.whole * each, "minutes", "minutes", "the time for the inspection"),
        "How many minutes does the inspection take?",
    )  # fmt: skip


# ── money ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def expense(story: Story, flow: Flow) -> Piece | None:
    """A part of the money is spent on two things."""
    dollars_there = flow.whole // 100
    if dollars_there < 30:
        return None
    one = story.between(3, max(4, min(dollars_there // 4, 400)))
    count = story.between(2, 5)
    text = (
        f"From {flow.ref}, {story.hero} pays {dollars(100 * one)} for a permit, and {dollars(50 * one)} to each of "
        f"{count} helpers."
    )
    left = flow.whole - 100 * one - 50 * one * count
    if left <= 0:
        return None
    return Piece(3, text, money(left, "the money that is left"), "How many dollars are left?")


def simple_interest(story: Story, flow: Flow) -> Piece | None:
    """Interest each year, on the first amount only."""
    rate, years = story.between(2, 8), story.between(2, 9)
    if flow.whole * rate * years % 100 or flow.whole < 2000:
        return None
    text = (
        f"{story.hero} puts {flow.ref} in an account with {rate} percent simple interest per year, and leaves it there "
        f"for {years} years."
    )
    flow = money(flow.whole + flow.whole * rate * years // 100, "the money in the account at the end")
    return Piece(3, text, flow, f"How many dollars are in the account after {years} years?")


def compound_interest(story: Story, flow: Flow) -> Piece | None:
    """Interest for two years, on the interest as well."""
    rate = story.pick((4, 5, 10, 20))
    value = flow.whole * (100 + rate) ** 2
    if value % 10_000 or flow.whole < 2000:
        return None
    text = (
        f"{story.hero} invests {flow.ref} for two years. At the end of each year, {rate} percent of all that is "
        "there is "
        "added."
    )
    return Piece(
        3,
        text,
        money(value // 10_000, "the money after these two years"),
        "How many dollars are there after two years?",
    )


def split_money(story: Story, flow: Flow) -> Piece | None:
    """The money is divided equally among people."""
    friends = story.between(2, 8)
    if flow.whole % (friends + 1):
        return None
    text = f"{story.hero} and {friends} friends divide {flow.ref} equally among themselves."
    return Piece(
        2, text, money(flow.whole // (friends + 1), f"{story.hero}'s share"), "How many dollars does each of them get?"
    )


def buy(story: Story, flow: Flow) -> Piece | None:
    """As many things as possible are bought."""
    price = story.pick(_PRICES)
    if flow.whole < 12 * price or not flow.whole % price:
        return None
    one, goods, text = _purchase(story, flow, price)
    flow = things(flow.whole // price, goods, f"the {goods} that {story.hero} bought", one)
    return Piece(1, text, flow, f"How many {goods} does {story.hero} buy?")


def change(story: Story, flow: Flow) -> Piece | None:
    """What is left when as many things as possible are bought."""
    price = story.pick(_PRICES)
    if flow.whole < 12 * price or not flow.whole % price:
        return None
    text = _purchase(story, flow, price)[2]
    return Piece(2, text, money(flow.whole % price, "the money that is left"), "How many dollars are left after that?")


def _purchase(story: Story, flow: Flow, price: int) -> tuple[str, str, str]:
    one, goods = story.pick((("pen", "pens"), ("seed packet", "seed packets"), ("brush", "brushes"), ("map", "maps")))
    text = f"With {flow.ref}, {story.hero} buys as many {goods} as possible, which cost {story.price(price)} each."
    return one, goods, text


def tax(story: Story, flow: Flow) -> Piece | None:
    """A percentage of the money goes away."""
    rate = story.pick((5, 8, 10, 12, 15, 20, 25))
    if flow.whole * rate % 100:
        return None
    what = story.pick(("as tax", "to a charity", "as a fee to the market"))
    text = f"{story.hero} pays {rate} percent of {flow.ref} {what}."
    left = flow.whole * (100 - rate) // 100
    return Piece(2, text, money(left, "the rest of the money"), "How many dollars remain after that?")


def goal(story: Story, flow: Flow) -> Piece | None:
    """How many weeks of saving the rest of a price takes."""
    weekly, weeks = story.between(6, 35), story.between(12, 60)
    price = flow.whole // 100 + weekly * weeks - story.between(1, weekly - 3)
    what = story.pick(("a bicycle", "a boat", "a piano", "a new oven", "a telescope"))
    text = (
        f"{story.hero} wants to buy {what} for {dollars(100 * price)} and uses {flow.ref} for it. For the rest, "
        f"{story.hero} saves {dollars(100 * weekly)} at the end of each week until there is enough."
    )
    exact = -(-(100 * price - flow.whole) // (100 * weekly))
    flow = Flow(exact, "weeks", "weeks", "the weeks of saving")
    return Piece(3, text, flow, f"After how many weeks is there enough for {what}?")


def discount(story: Story, flow: Flow) -> Piece | None:
    """A discount in percent, then a fixed delivery fee, on a purchase that is compared with the money."""
    rate, fee = story.pick((10, 15, 20, 25, 30, 40)), story.between(3, 15)
    times = story.pick((2, 3))
    price = flow.whole * times
    if price * rate % 100:
        return None
    word = {2: "twice", 3: "three times"}[times]
    text = (
        f"A machine costs {word} as much as {flow.ref}. {story.hero} gets it with a discount of {rate} percent and "
        "pays "
        f"{dollars(100 * fee)} for the delivery, on which there is no discount."
    )
    flow = money(price * (100 - rate) // 100 + 100 * fee, "what the machine costs with delivery")
    return Piece(4, text, flow, f"How many dollars does {story.hero} pay for the machine and its delivery?")


# ── people ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def tickets(story: Story, flow: Flow) -> Piece:
    """Everyone pays, some of them half."""
    price = 2 * story.between(2, 14)
    half = story.between(2, flow.whole - 1)
    text = (
        f"All of {flow.ref} go to a concert. {half} of them are students and pay half the price; the others pay the "
        "full "
        f"price of {dollars(100 * price)}."
    )
    total = 100 * price * (flow.whole - half) + 50 * price * half
    return Piece(4, text, money(total, "the money for the tickets"), "How many dollars do they pay together?")


def portions(story: Story, flow: Flow) -> Piece:
    """Everyone gets the same number of things."""
    (one, goods), each, spare = story.pick(GOODS), story.between(3, 12), story.between(5, 30)
    text = (
        f"{story.hero} prepares {each} {goods} for each of {flow.ref}, and {spare} more in case some of the {goods} "
        "break."
    )
    flow = things(flow.whole * each + spare, goods, f"the {goods} that {story.hero} prepared", one)
    return Piece(2, text, flow, f"How many {goods} does {story.hero} prepare?")


# ── minutes ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def wage(story: Story, flow: Flow) -> Piece | None:
    """Work of the same length has pay by the hour."""
    hourly, more = story.pick((12, 15, 18, 21, 24, 27, 30, 36)), story.between(4, 40)
    if flow.whole * hourly * 100 % 60:
        return None
    text = (
        f"{story.hero} has a job with {dollars(100 * hourly)} per hour, works there exactly as long as {flow.ref}, and "
        f"gets a bonus of {dollars(100 * more)} in addition."
    )
    flow = money(flow.whole * hourly * 100 // 60 + 100 * more, "the pay")
    return Piece(3, text, flow, f"How many dollars does {story.hero} get for the job?")


def distance(story: Story, flow: Flow) -> Piece | None:
    """A drone moves at a steady speed for that time."""
    if flow.whole > 400:
        return None
    speed = 5 * story.between(10, 50)
    text = f"For as long as {flow.ref}, a drone flies at {speed} meters per minute."
    flow = Flow(flow.whole * speed, "meters", "meters", "the distance that the drone flies")
    return Piece(1, text, flow, "How many meters does the drone fly?")


def repeated(story: Story, flow: Flow) -> Piece:
    """The same time is spent on several days of several weeks."""
    days, weeks = story.between(2, 6), story.between(3, 14)
    text = f"{story.hero} trains for exactly as long as {flow.ref} on {days} days of each week, for {weeks} weeks."
    flow = Flow(flow.whole * days * weeks, "minutes", "minutes", "all the training together")
    return Piece(2, text, flow, f"How many minutes does {story.hero} train in total?")


def machine(story: Story, flow: Flow) -> Piece | None:
    """A machine makes one thing in a fixed time."""
    seconds = story.pick((12, 15, 20, 24, 30, 40, 45))
    if flow.whole * 60 % seconds or flow.whole > 2000:
        return None
    one, goods = story.pick(
        (("bolt", "bolts"), ("button", "buttons"), ("bottle cap", "bottle caps"), ("coin", "coins"))
    )
    text = f"For as long as {flow.ref}, a machine runs and makes one {one} every {seconds} seconds."
    flow = things(flow.whole * 60 // seconds, goods, f"the {goods} from the machine", one)
    return Piece(2, text, flow, f"How many {goods} does the machine make?")


# ── meters ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def posts(story: Story, flow: Flow) -> Piece | None:
    """Posts at equal distances, at both ends as well."""
    apart = story.pick((4, 5, 6, 8, 10, 12, 15, 20, 25))
    if flow.whole % apart or flow.whole < 14 * apart:
        return None
    text = (
        f"Along a straight road that is exactly as long as {flow.ref}, there is a post every {apart} meters, with "
        "one post "
        "at each end of the road."
    )
    return Piece(
        2, text, things(flow.whole // apart + 1, "posts", "the posts", "post"), "How many posts are along the road?"
    )


def footsteps(story: Story, flow: Flow) -> Piece | None:
    """Steps of one length cover the distance."""
    step = story.pick((40, 50, 60, 64, 75, 80))
    if flow.whole * 100 % step:
        return None
    who = story.person()
    text = f"{who} walks a distance that is exactly as long as {flow.ref}, with steps of {step} centimeters."
    flow = things(flow.whole * 100 // step, "steps", f"the steps that {who} makes", "step")
    return Piece(2, text, flow, f"How many steps does {who} make?")


def cable(story: Story, flow: Flow) -> Piece:
    """A cable costs by length, and a reel once."""
    price, reel = story.pick((15, 20, 25, 30, 35, 45, 60, 75)), story.between(5, 60)
    text = (
        f"{story.hero} buys a cable that is exactly as long as {flow.ref}. It costs {story.price(price)} per meter, "
        "and "
        f"the reel costs {dollars(100 * reel)} in addition."
    )
    return Piece(
        2, text, money(flow.whole * price + 100 * reel, "the price of the cable and the reel"),
        "How many dollars do the cable and the reel cost together?",
    )  # fmt: skip


def commute(story: Story, flow: Flow) -> Piece:
    """The distance there and back on several days."""
    days = story.between(3, 24)
    text = f"On each of {days} days, {story.hero} rides exactly as far as {flow.ref} to work, and the same way back."
    flow = Flow(flow.whole * 2 * days, "meters", "meters", "all these rides together")
    return Piece(2, text, flow, f"How many meters does {story.hero} ride on these days in total?")


# ── areas, volumes, years, points ─────────────────────────────────────────────────────────────────────────────────────


def seeds(story: Story, flow: Flow) -> Piece | None:
    """Material by area, in bags of a weight."""
    grams, bag = 10 * story.between(3, 30), story.pick((200, 250, 300, 400, 500, 750))
    bags = -(-flow.whole * grams // bag)
    weight = f"{decimal(bag, 1000)} kilograms" if story.mixed else f"{bag} grams"
    if bags < 13:
        return None
    text = (
        f"For an area of the same size as {flow.ref}, {story.hero} needs {grams} grams of gravel per square meter. "
        "Gravel "
        f"is sold in whole bags of {weight}."
    )
    flow = things(bags, "bags of gravel", "the bags of gravel", "bag of gravel")
    return Piece(3, text, flow, f"How many bags of gravel does {story.hero} have to buy?")


def tiles(story: Story, flow: Flow) -> Piece:
    """Square tiles of one size cover the area."""
    side, per = story.pick(((50, 4), (25, 16), (20, 25), (10, 100)))
    text = (
        f"A surface that has exactly the area of {flow.ref} is covered with square tiles with sides of {side} "
        "centimeters; none overlap, and no space is left between them."
    )
    return Piece(3, text, things(flow.whole * per, "tiles", "the tiles", "tile"), "How many tiles are needed?")


def paving(story: Story, flow: Flow) -> Piece:
    """The area costs money by the square meter."""
    price, fixed = story.between(3, 24), 5 * story.between(4, 40)
    text = (
        f"A company treats an area of the same size as {flow.ref} for {dollars(100 * price)} per square meter, plus a "
        f"fixed fee of {dollars(100 * fixed)}."
    )
    return Piece(
        2, text, money(flow.whole * price * 100 + fixed * 100, "the company's price"),
        "How many dollars does the company charge?",
    )  # fmt: skip


def part_planted(story: Story, flow: Flow) -> Piece | None:
    """A fraction of an area."""
    above, below = story.pick(_PARTS)
    if flow.whole % below or flow.whole < 3 * below:
        return None
    text = f"Of an area of the same size as {flow.ref}, exactly {above}/{below} gets roses, and the rest gets herbs."
    flow = Flow(flow.whole // below * (below - above), "area", "square meters", "the area with herbs")
    return Piece(2, text, flow, "How many square meters get herbs?")


def glasses(story: Story, flow: Flow) -> Piece | None:
    """Full glasses of one size."""
    size = story.pick((30, 40, 60, 70, 80, 90, 110, 120, 130))
    if flow.whole < 14 * size:
        return None
    what = story.pick(("glasses", "cups", "bottles"))
    text = (
        f"As much syrup as {flow.ref} is filled into small {what} of {size} milliliters, and only full {what} are sold."
    )
    one = {"glasses": "glass", "cups": "cup", "bottles": "bottle"}[what]
    return Piece(
        1, text, things(flow.whole // size, f"full {what}", f"the full {what}", f"full {one}"),
        f"How many full {what} are there?",
    )  # fmt: skip


def evaporated(story: Story, flow: Flow) -> Piece | None:
    """A percentage of a volume goes, and a fixed volume comes."""
    rate, more = story.pick(_PERCENTS), 10 * story.between(3, 40)
    if flow.whole * rate % 100:
        return None
    text = (
        f"Of a volume of water that is equal to {flow.ref}, {rate} percent evaporates, and then {more} milliliters of "
        "water are added."
    )
    flow = Flow(flow.whole * (100 - rate) // 100 + more, "volume", "milliliters of water", "this water")
    return Piece(3, text, flow, "How many milliliters of water are there in the end?")


def gift(story: Story, flow: Flow) -> Piece:
    """Money for each year of age."""
    each, extra, other = story.between(3, 25), story.between(10, 80), story.person()
    text = (
        f"For each year of {flow.ref}, {other} gives {story.hero} {dollars(100 * each)}, and {dollars(100 * extra)} "
        "once "
        "in addition."
    )
    return Piece(
        2, text, money(100 * (flow.whole * each + extra), "the gift"), f"How many dollars does {story.hero} get?"
    )


def years_of_pages(story: Story, flow: Flow) -> Piece:
    """A diary with some pages for each year."""
    pages, extra = story.between(11, 60), story.between(12, 50)
    text = (
        f"{story.hero} writes a book about that life: {pages} pages for each year of {flow.ref}, and {extra} pages "
        "for the "
        "introduction."
    )
    return Piece(
        2, text, things(flow.whole * pages + extra, "pages", "the pages of the book", "page"),
        "How many pages does the book have?",
    )  # fmt: skip


def donation(story: Story, flow: Flow) -> Piece:
    """Money for each point."""
    each, other = story.pick((15, 25, 35, 40, 50, 75, 125)), story.person()
    fixed = story.between(5, 60)
    text = (
        f"For each of {flow.ref}, {other} donates {story.price(each)} to a school, and {dollars(100 * fixed)} once in "
        "addition."
    )
    return Piece(
        2, text, money(flow.whole * each + 100 * fixed, "the donation"), f"How many dollars does {other} donate?"
    )


def other_team(story: Story, flow: Flow) -> Piece:
    """Another number of points, compared with this one."""
    times, less, other = story.pick((2, 3)), story.between(4, 29), story.person()
    word = {2: "twice", 3: "three times"}[times]
    text = f"In that game, {other} scores {less} points less than {word} {flow.ref}."
    flow = Flow(times * flow.whole - less, "points", "points", f"{other}'s points in that game")
    return Piece(2, text, flow, f"How many points does {other} score in that game?")


TRANSFORMS: Final[Mapping[Kind, tuple[Transform, ...]]] = {
    "things": (sell, percent_lost, fraction_kept, shared, packed, grown, given_and_doubled, drawn, time_each, sell),
    "money": (expense, simple_interest, compound_interest, split_money, buy, change, tax, goal, discount),
    "people": (tickets, portions),
    "minutes": (wage, distance, repeated, machine),
    "meters": (posts, footsteps, cable, commute),
    "area": (seeds, tiles, paving, part_planted),
    "volume": (glasses, evaporated),
    "years": (gift, years_of_pages),
    "points": (donation, other_team),
    "chance": (),
    "weeks": (),
}
"""The pieces that go on from a quantity, by its kind."""
