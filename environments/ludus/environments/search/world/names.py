"""Invent names. The hash of a name decides the split whose worlds may use it, so splits share no names."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from ludus.server.authoring.partition import SplitType, split_of

_ONSETS: Final = (
    "b", "br", "d", "dr", "f", "g", "gl", "gr", "h", "j", "k", "kl", "kr", "kv", "l", "m", "n", "p", "pl", "qu", "r",
    "s", "sk", "sl", "st", "sv", "t", "th", "tr", "v", "w", "y", "z",
)  # fmt: skip
_INNER: Final = ("b", "d", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z", "br", "dr", "st", "nd", "lv", "rn")
_VOWELS: Final = ("a", "e", "i", "o", "u", "a", "e", "o", "ae", "ei", "ou", "ie")
_CODAS: Final = ("l", "n", "r", "s", "m", "nd", "rk", "lt", "rn", "sk", "th", "v", "ld", "st")
_ENDINGS: Final = {
    "place": (
        "mar",
        "holm",
        "vik",
        "gard",
        "rath",
        "oum",
        "esk",
        "ovar",
        "ind",
        "ey",
        "osta",
        "une",
        "evra",
        "ack",
        "dal",
    ),
    "first": ("a", "o", "in", "el", "is", "ane", "ur", "ik", "eth", "on", "ia", "em"),
    "last": ("sen", "ovic", "ard", "quist", "ane", "erel", "oth", "ikov", "wyn", "auer", "esco", "ild", "arre", "unt"),
    "word": ("or", "ax", "ene", "it", "el", "um", "os", "an"),
}

_ADJECTIVES: Final = (
    "Amber", "Bitter", "Borrowed", "Broken", "Burning", "Careful", "Crooked", "Distant", "Drowned", "Empty", "Faithful",
    "Forgotten", "Frozen", "Gentle", "Golden", "Hidden", "Hollow", "Honest", "Idle", "Iron", "Last", "Lesser", "Little",
    "Lonely", "Lost", "Mild", "Narrow", "Nameless", "Patient", "Pale", "Quiet", "Restless", "Salt", "Second", "Secret",
    "Silent", "Silver", "Slow", "Stolen", "Stubborn", "Sunken", "Third", "Unfinished", "Unsent", "Wandering", "Wild",
)  # fmt: skip
_NOUNS: Final = (
    "Almanac", "Anchor", "Archive", "Barrel", "Bell", "Bridge", "Candle", "Cartographer", "Choir", "Clock", "Compass",
    "Cousin", "Debt", "Door", "Echo", "Ferry", "Garden", "Glassmaker", "Harbor", "Harvest", "Heir", "Hour", "Inventory",
    "Island", "Kettle", "Key", "Lantern", "Ledger", "Letter", "Library", "Map", "Market", "Mirror", "Notary", "Oath",
    "Orchard", "Pilot", "Promise", "Quarry", "Rain", "Road", "Roof", "Season", "Sleeper", "Staircase", "Stone",
    "Surveyor", "Tailor", "Tide", "Tower", "Violin", "Visitor", "Voyage", "Wall", "Weaver", "Well", "Window", "Winter",
)  # fmt: skip


class NameMaker:
    """Invents the names of one world, none of them twice.

    Args:
        rng: the world's random generator.
        split: the split that every name must belong to.
    """

    def __init__(self, rng: random.Random, split: SplitType) -> None:
        self._rng = rng
        self._split: SplitType = split
        self._used: set[str] = set()
        # A world has its own sounds, so that its names look alike.
        self._onsets = tuple(rng.sample(_ONSETS, 20))
        self._inner = tuple(rng.sample(_INNER, 11))
        self._vowels = tuple(rng.sample(_VOWELS, 7))
        self._codas = tuple(rng.sample(_CODAS, 8))

    def root(self, sort: str) -> str:
        """Return a new word.

        Args:
            sort: a key of `_ENDINGS`, which decides how the word ends.
        """
        endings = _ENDINGS[sort]
        return self._first_fit(lambda: self._word(endings))

    def similar(self, root: str) -> str:
        """Return a new word that differs from another one in one letter, or a few."""

        tries = 0

        def change() -> str:
            nonlocal tries
            tries += 1
            changed = root
            for _ in range(1 + tries // 80):  # a short word may have no such neighbor in this split
                place = self._rng.randrange(1, len(root))
                letters = "aeiou" if root[place] in "aeiou" else "lmnrstvd"
                changed = changed[:place] + self._rng.choice(letters) + changed[place + 1 :]
            return changed

        return self._first_fit(change)

    def title(self, place: str) -> str:
        """Return a new title of a book.

        Args:
            place: an invented word that a third of the titles have in them.
        """

        def make() -> str:
            adjective = self._rng.choice(_ADJECTIVES)
            noun, other = self._rng.sample(_NOUNS, 2)
            form = self._rng.randrange(6)
            if form < 2:
                return (f"The {noun} of {place}", f"A {adjective} {noun} in {place}")[form]
            return (
                f"The {adjective} {noun}", f"The {noun} and the {other}",
                f"A {noun} for the {adjective} {other}", f"{adjective} {noun}, {adjective} {other}",
            )[form - 2]  # fmt: skip

        return self._first_fit(make, longest=60)

    def _word(self, endings: tuple[str, ...]) -> str:
        rng = self._rng
        word = rng.choice(self._onsets) + rng.choice(self._vowels)
        if rng.random() < 0.6:
            word += rng.choice(self._inner) + rng.choice(self._vowels)
        ending = rng.choice(endings)
        if ending[:1] in "aeiou":
            word += rng.choice(self._codas)
        return (word + ending).capitalize()

    def _first_fit(self, make: Callable[[], str], longest: int = 11) -> str:
        while True:
            name = make()
            if name not in self._used and 5 <= len(name) <= longest and belongs(name, self._split):
                self._used.add(name)
                return name


def belongs(name: str, split: SplitType) -> bool:
    """Return whether worlds of a split may use an invented word or the title of a book."""
    return split_of(f"search:name:{name}") == split
