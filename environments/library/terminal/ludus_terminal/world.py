"""The words of a task, and its random choices."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypeVar

from ludus.server import Difficulty
from ludus.server.authoring.workspace import EPOCH, FIRST, LAST, NOUNS, Entry, file

T = TypeVar("T")


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
