"""What the pieces of a problem are made with: people, things, random choices, and numbers with units.

A problem is a chain of pieces. Each gives a part of the story in sentences and turns one quantity, the `Flow` that
comes in, into another one. Only the last quantity is asked for. Quantities are whole numbers in the smallest unit of
their kind (`SCALES`), so nothing is rounded on the way.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Final, Literal, NamedTuple

from ludus.server.authoring.dice import Dice

Kind = Literal["things", "people", "money", "minutes", "meters", "area", "volume", "years", "points", "chance", "weeks"]
"""What a quantity is a number of."""

SCALES: Final[Mapping[Kind, int]] = {"money": 100}
"""How many of the smallest unit are one of the unit that is asked for, where that is not 1: cents in a dollar."""

NAMES: Final = (
    "Maya", "Liam", "Aisha", "Noah", "Sofia", "Kenji", "Elena", "Omar", "Grace", "Mateo", "Priya", "Lucas", "Hana",
    "Diego", "Nora", "Amir", "Clara", "Tomas", "Zoe", "Ivan", "Leila", "Felix", "Rosa", "Jonas", "Mei", "Samuel",
    "Ingrid", "Carlos", "Fatima", "Peter", "Yuki", "Daniel", "Olga", "Kwame", "Julia", "Ravi", "Anna", "Bruno", "Tara",
    "Viktor", "Lucia",
)  # fmt: skip
"""The people. Their number is prime, so that each stride through them meets all."""

GOODS: Final[tuple[tuple[str, str], ...]] = (
    ("muffin", "muffins"), ("candle", "candles"), ("bracelet", "bracelets"), ("mug", "mugs"), ("kite", "kites"),
    ("notebook", "notebooks"), ("lantern", "lanterns"), ("scarf", "scarves"), ("keychain", "keychains"),
    ("birdhouse", "birdhouses"), ("toy car", "toy cars"), ("wooden spoon", "wooden spoons"), ("basket", "baskets"),
    ("paper flower", "paper flowers"), ("clay pot", "clay pots"), ("picture frame", "picture frames"),
    ("cupcake", "cupcakes"), ("tote bag", "tote bags"), ("puzzle", "puzzles"), ("bookmark", "bookmarks"),
    ("stuffed bear", "stuffed bears"), ("bar of soap", "bars of soap"), ("jar of jam", "jars of jam"),
    ("greeting card", "greeting cards"),
)  # fmt: skip
"""Things that people make and sell: one, and several."""


class Flow(NamedTuple):
    """A quantity on its way through the story.

    Attributes:
        value: how many, in the smallest unit of its kind.
        kind: what it is a number of.
        noun: what is counted, as in "How many muffins".
        ref: what a later sentence calls it, without its value.
        one: what a single one of it is called.
    """

    value: int | Fraction
    kind: Kind
    noun: str
    ref: str
    one: str = ""

    @property
    def whole(self) -> int:
        """The value of a whole quantity."""
        assert isinstance(self.value, int)
        return self.value

    @property
    def answer(self) -> Fraction:
        """The value in the unit that the question asks for."""
        return Fraction(self.value, SCALES.get(self.kind, 1))


class Piece(NamedTuple):
    """A part of a story.

    Attributes:
        steps: how many computations it takes.
        text: its sentences.
        flow: the quantity that follows.
        ask: the question for that quantity; it states the unit.
    """

    steps: int
    text: str
    flow: Flow
    ask: str


class Story(Dice):
    """The random choices of one problem.

    Args:
        seed: the same seed makes the same choices.
        mixed: whether a quantity may be given in another unit than the one that is used next to it.
    """

    __slots__ = ("_at", "_stride", "hero", "mixed")

    def __init__(self, seed: int, *, mixed: bool) -> None:
        super().__init__(seed)
        self._at = self.between(0, len(NAMES) - 1)
        self._stride = self.between(1, len(NAMES) - 1)
        self.mixed = mixed
        self.hero = self.person()

    def person(self) -> str:
        """Return a person whom the story has not named yet."""
        self._at = (self._at + self._stride) % len(NAMES)
        return NAMES[self._at]

    def duration(self, minutes: int) -> str:
        """Write a duration in minutes; with mixed units, perhaps in hours."""
        if not self.mixed or minutes % 15 or minutes < 60 or self.chance(0.4):
            return f"{minutes} minutes"
        hours, rest = divmod(minutes, 60)
        if not rest or self.chance(0.5):
            return "1 hour" if minutes == 60 else f"{decimal(minutes, 60)} hours"
        return f"{hours} hour{'s' if hours > 1 else ''} and {rest} minutes"

    def length(self, meters: int) -> str:
        """Write a length in meters; with mixed units, perhaps in kilometers or centimeters."""
        if not self.mixed or self.chance(0.4):
            return f"{meters} meters"
        return f"{decimal(meters, 1000)} kilometers" if meters >= 500 else f"{meters * 100} centimeters"

    def liters(self, liters: int) -> str:
        """Write a volume in liters; with mixed units, perhaps in milliliters."""
        return f"{liters * 1000} milliliters" if self.mixed and self.chance(0.4) else f"{liters} liters"

    def price(self, cents: int) -> str:
        """Write a small amount of money; with mixed units, perhaps in cents."""
        return f"{cents} cents" if self.mixed and cents < 1000 and self.chance(0.4) else dollars(cents)


def dollars(cents: int) -> str:
    """Write an amount of money in dollars."""
    whole, rest = divmod(cents, 100)
    return f"${whole}.{rest:02}" if rest else f"${whole}"


def decimal(number: int, scale: int) -> str:
    """Write a quotient whose decimals end, such as 1.5."""
    return f"{number / scale:.3f}".rstrip("0").rstrip(".")


def clock(minute: int) -> str:
    """Write a minute of the day as a time, such as 9:05 AM."""
    hour, rest = divmod(minute, 60)
    return f"{(hour + 11) % 12 + 1}:{rest:02} {'AM' if hour < 12 else 'PM'}"


def things(value: int, noun: str, ref: str, one: str = "") -> Flow:
    """Return a number of things."""
    return Flow(value, "things", noun, ref, one)
