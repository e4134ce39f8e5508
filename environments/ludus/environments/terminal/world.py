"""The words of a task, and its random choices.

The name of a task's project determines its split. It is the name of the working folder and is in the prompt, so no
content belongs to two splits.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, TypeVar

from ludus.environments.terminal.problem import Difficulty
from ludus.environments.terminal.workspace import EPOCH, Entry, file

T = TypeVar("T")

ADJECTIVES: Final = tuple(
    "amber ancient arctic autumn azure bitter bold brave brief bright brisk broad bronze calm candid careful cedar "
    "chilly clear clever coastal cobalt copper coral crimson crisp curious daily dapper dawn deep desert distant dusty "
    "eager early eastern ebony emerald faint fair fancy fearless fleet floral foggy forest fresh frosty gentle gilded "
    "golden grand gray green hardy hazel hidden hollow humble icy indigo inland iron ivory jade jolly keen kind lively "
    "lofty lone lucid lunar maple marble meadow mellow merry misty modest mossy narrow nimble noble northern oaken "
    "olive opal open orange pale patient pearl placid plain polar proud quick quiet rapid raven ready rosy rough royal "
    "ruby rural rustic sandy scarlet serene sharp shiny silent silver simple sleek slow smooth snowy solar solid "
    "southern stark steady stony stout sturdy sunny swift tawny tidal tidy timber tranquil upland urban valiant velvet "
    "verdant violet vivid warm western wild windy winter wise witty wooden woven young zesty".split()
)
NOUNS: Final = tuple(
    "acorn anchor anvil apple arbor arrow atlas badger barley basin beacon beetle birch bishop bison bobbin bonnet "
    "bottle branch brook bucket bugle butter button cabin cactus camel candle canoe canyon carbon carpet castle cavern "
    "cello cherry chisel cider cinder circus clover cobble comet compass condor cotton cradle crater cricket crystal "
    "dagger dahlia dolphin donkey dragon drum eagle ember falcon feather fennel ferry fiddle finch flint flute fossil "
    "fountain fox galaxy garden garnet gazelle geyser ginger glacier goblet granite gravel grove hammer harbor harvest "
    "hazelnut heron hickory hornet island jasmine jigsaw juniper kernel kettle kite ladder lagoon lantern lark lemon "
    "lichen lily linen lizard lobster locket lotus magnet magpie mantle marmot meteor mill mirror mitten monsoon "
    "mountain mustard nectar nettle nutmeg oasis onion orbit orchard orchid otter oyster paddle panther parsley peach "
    "pebble pelican pepper pigeon pillow pine planet plum pocket pollen poplar prairie prism puffin pumpkin quarry "
    "quartz quill rabbit radish raisin reef ribbon river robin rocket saddle saffron sail salmon sandal sparrow spruce "
    "squirrel stork summit sunset swallow tangerine temple thimble thistle thunder tiger timberland tower trellis "
    "trumpet tulip tunnel turnip turtle valley vessel village walnut walrus weasel willow window zebra zephyr".split()
)
FIRST: Final = tuple(
    "Ada Amir Anna Bela Bruno Carla Cem Chidi Dana Dario Edda Elif Emil Femi Fiona Goran Greta Hana Hugo Ines Ivan "
    "Jana Jonas Kaya Kofi Lena Liam Lucia Mara Mei Milan Nadia Nils Noor Olga Omar Paula Pedro Quinn Rania Rosa Samir "
    "Selma Tara Theo Uma Viktor Wanda Yara Zoe".split()
)
LAST: Final = tuple(
    "Abara Acker Baranov Bauer Castell Cohen Dahl Demir Eklund Farkas Fischer Garcia Gomez Haas Hansen Ito Jensen Kaur "
    "Keller Kovac Lang Lopez Maier Moreau Nakata Novak Okafor Olsen Park Petrov Quist Ramos Rossi Sato Silva Tamm "
    "Torres Ueda Varga Vogel Weber Xu Yilmaz Zeman".split()
)
SERVICES: Final = tuple(
    "auth billing cart catalog checkout delivery export gateway inbox ingest invoice ledger mailer metrics notify "
    "orders payments pricing profile quota reports scheduler search session shipping stock sync tokens uploads "
    "worker".split()
)
CITIES: Final = tuple(
    "Aarhus Bergen Brno Cadiz Cork Delft Essen Faro Gent Graz Izmir Kyoto Leeds Lima Lyon Malmo Nantes Osaka Oulu "
    "Parma Porto Quito Riga Salta Split Tartu Turin Utrecht Varna Zadar".split()
)


class World:
    """Draws the parts of a task, and collects its files.

    Args:
        project: the name of the project.
        level: the difficulty.
        rng: the random generator of this task.
    """

    def __init__(self, project: str, level: Difficulty, rng: random.Random) -> None:
        self.project = project
        self.level = level
        self.r = rng
        self.tree: dict[str, Entry] = {}
        self._words = [word for word in NOUNS if word not in project]
        rng.shuffle(self._words)

    @property
    def hard(self) -> bool:
        """Whether the level is hard."""
        return self.level == "hard"

    def by_level(self, easy: T, medium: T, hard: T) -> T:
        """Return the value for the level."""
        return {"easy": easy, "medium": medium, "hard": hard}[self.level]

    def word(self) -> str:
        """Return a noun that no other call has returned."""
        return self._words.pop()

    def words(self, count: int) -> list[str]:
        """Return nouns that no other call has returned."""
        return [self.word() for _ in range(count)]

    def some(self, items: Sequence[T], count: int) -> list[T]:
        """Return different items in a random order."""
        return self.r.sample(list(items), count)

    def person(self) -> tuple[str, str]:
        """Return a first and a last name."""
        return self.r.choice(FIRST), self.r.choice(LAST)

    def address(self) -> str:
        """Return an IPv4 address for documentation."""
        return f"{self.r.choice(('192.0.2', '198.51.100', '203.0.113'))}.{self.r.randint(1, 254)}"

    def addresses(self, count: int) -> list[str]:
        """Return different addresses."""
        found: dict[str, None] = {}
        while len(found) < count:
            found[self.address()] = None
        return list(found)

    def moment(self) -> int:
        """Return a moment of 2024, in whole minutes."""
        return EPOCH + 60 * self.r.randint(0, 500_000)

    def file(self, path: str, content: str | bytes, mode: int = 0o644, mtime: int | None = None) -> None:
        """Add a file."""
        self.tree[path] = file(content, mode, EPOCH if mtime is None else mtime)

    def prose(self, words: int) -> str:
        """Return a line of words."""
        return " ".join(self.r.choice(NOUNS) for _ in range(words))


def stamp(when: int, pattern: str = "%Y-%m-%dT%H:%M:%SZ") -> str:
    """Return a moment as text, in UTC."""
    return datetime.fromtimestamp(when, UTC).strftime(pattern)
