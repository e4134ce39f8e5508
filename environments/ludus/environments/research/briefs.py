"""Draw briefs: which entities a report is about, what it has to find out about each, and what follows from that.

How this works. A brief has *subjects* of one kind, which it names or describes; *columns*, chains of relations such as
"birthplace of the founder"; an order of its table; and *questions* whose answers follow from the columns. It is drawn
so that no simple policy earns anything: no column has one value for more than half of the subjects, and few cells are
not stated. Each brief has some cells that no page states and some contradictions between pages.

A `Brief` holds what was drawn, without any answer; `sheet.py` works the answers out.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple, TypeVar

from ludus.environments.research.archive import Archive, archive_of
from ludus.environments.research.columns import Cells, Path, continued, form_of, label_of, paths_of
from ludus.environments.research.questions import Asked, candidates
from ludus.environments.search.questions import mention
from ludus.environments.search.world import RELATIONS, Kind
from ludus.server import Difficulty
from ludus.server.authoring.partition import digest

T = TypeVar("T")

_TRIES: Final = 400


class Level(NamedTuple):
    """What a level of difficulty asks for.

    Attributes:
        subjects: the least and the greatest number of subjects.
        columns: for each length of a chain, how many columns have it.
        questions: the number of questions.
        conflicts: the least and the greatest number of contradictions.
        scopes: how subjects are given; one that is listed twice is drawn twice as often.
    """

    subjects: tuple[int, int]
    columns: tuple[int, ...]
    questions: int
    conflicts: tuple[int, int]
    scopes: tuple[str, ...]


LEVELS: Final[Mapping[Difficulty, Level]] = {
    "easy": Level((7, 7), (4, 2), 5, (1, 3), ("named",)),
    "medium": Level((7, 8), (4, 3), 7, (2, 6), ("named", "listed", "listed", "holders", "holders")),
    "hard": Level((8, 9), (3, 3, 2), 9, (3, 9), ("listed", "holders")),
}

_NAMED: Final[tuple[Kind, ...]] = ("person", "book", "company", "club", "town", "festival", "university", "structure")
PLURALS: Final[Mapping[Kind, str]] = {
    "person": "people", "book": "books", "company": "companies", "club": "sports clubs", "town": "towns",
    "festival": "festivals", "university": "universities", "structure": "structures", "species": "species",
    "award": "awards", "river": "rivers", "lake": "lakes", "region": "regions",
}  # fmt: skip
_IN_REGION: Final[Mapping[Kind, str]] = {
    "town": "the towns in {o}", "company": "the companies with headquarters in {o}",
    "club": "the sports clubs whose home town is in {o}", "structure": "the structures in {o}",
}  # fmt: skip
_OFFICES: Final[Mapping[str, str]] = {
    "town.mayor": "the people who became mayor of {o} in a year from {a} to {b}",
    "company.director": "the people who became director of {o} in a year from {a} to {b}",
    "club.coach": "the people who became coach of {o} in a year from {a} to {b}",
    "award.winner": "the winners of {o} for the years from {a} to {b}",
}
_YEARS: Final[Mapping[Kind, tuple[str, str]]] = {
    "town": ("town.founded", "founded"), "company": ("company.founded", "founded"),
    "club": ("club.founded", "founded"), "structure": ("structure.opened", "opened"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Brief:
    """What a report is about.

    Attributes:
        scope: the words that name or describe the subjects.
        kind: the kind of the subjects.
        subjects: the subjects, by title.
        columns: what the report finds out about each.
        order: the column that orders the table, and whether the greatest value comes first.
        questions: the questions.
    """

    scope: str
    kind: Kind
    subjects: tuple[int, ...]
    columns: tuple[Path, ...]
    order: tuple[int, bool]
    questions: tuple[Asked, ...]


class Drawer:
    """Draws briefs about a world."""

    def __init__(self, archive: Archive, cells: Cells, rng: random.Random) -> None:
        self._archive = archive
        self._graph = archive.graph
        self._rng = rng
        self._cells = cells

    def draw(self, difficulty: Difficulty) -> Brief:
        """Return a brief of a level."""
        level = LEVELS[difficulty]
        for _ in range(_TRIES):
            found = self._drawn(difficulty, level)
            if found is not None:
                return found
        raise RuntimeError(f"no {difficulty} brief found in world {self._graph.name}; this is a defect of its maker")

    def _drawn(self, difficulty: Difficulty, level: Level) -> Brief | None:
        number = self._rng.randint(*level.subjects)
        scope = self._pick(level.scopes)
        if scope == "named":
            kind: Kind = self._pick(_NAMED)
            given: tuple[str, list[int]] | None = self._named(kind, number)
        elif scope == "listed":
            kind = self._pick(tuple(_IN_REGION))
            given = self._listed(kind, number, described=difficulty == "hard")
        else:
            kind, given = "person", self._holders(number, described=difficulty == "hard")
        if given is None:
            return None
        text, subjects = given
        if scope != "named" and any(self._graph.entities[subject].name in text for subject in subjects):
            return None
        subjects.sort(key=lambda one: self._graph.entities[one].title)
        columns = self._columns(kind, subjects, level)
        return None if columns is None else self._checked(text, kind, subjects, columns, level)

    # Subjects.

    def _named(self, kind: Kind, number: int) -> tuple[str, list[int]]:
        subjects = self._rng.sample(self._graph.kinds[kind], number)
        names = sorted(self._graph.entities[subject].title for subject in subjects)
        return f"these {number} {PLURALS[kind]}: {'; '.join(names)}", subjects

    def _listed(self, kind: Kind, number: int, *, described: bool) -> tuple[str, list[int]] | None:
        """Choose the entities of a kind in a region, or those of them up to or from a year."""
        region = self._pick(self._graph.kinds["region"])
        page = self._archive.layout.regional.get((kind, region))
        members = [] if page is None else list(self._archive.layout.members[page])
        relation, verb = _YEARS[kind]
        years = self._graph.facts[relation]
        members.sort(key=lambda one: years[one])
        owner = self._described(region) if described else mention(self._graph.entities[region])
        if len(members) < number or owner is None:
            return None
        text = _IN_REGION[kind].replace("{o}", owner)
        if len(members) == number:
            return text, members
        if self._rng.random() < 0.5:
            members.reverse()
            first, last = years[members[number - 1]], years[members[number]]
            text += f" that were {verb} in {first} or later"
        else:
            first, last = years[members[number - 1]], years[members[number]]
            text += f" that were {verb} in {first} or earlier"
        return None if first == last else (text, members[:number])

    def _holders(self, number: int, *, described: bool) -> tuple[str, list[int]] | None:
        """Choose people who held an office, or won an award, one after another."""
        office = self._pick(tuple(_OFFICES))
        entity = self._pick(tuple(self._graph.terms[office]))
        terms = self._graph.terms[office][entity]
        owner = self._described(entity) if described else mention(self._graph.entities[entity])
        if len(terms) < number or owner is None:
            return None
        start = self._rng.randrange(len(terms) - number + 1)
        chosen = terms[start : start + number]
        holders = {term.holder for term in chosen}
        if len(holders) < number:
            return None
        text = _OFFICES[office].replace("{o}", owner)
        return text.replace("{a}", str(chosen[0].first)).replace("{b}", str(chosen[-1].first)), list(holders)

    def _described(self, entity: int) -> str | None:
        """Return a description of an entity through another one, whose fact no page contradicts."""
        found = self._graph.incoming[entity]
        if not found:
            return None
        relation, subject = self._pick(found)
        fact = self._archive.fact(relation, subject)
        if fact.value != entity or fact.other is not None:
            return None
        return RELATIONS[relation].nouns[0].replace("{s}", mention(self._graph.entities[subject]))

    # Columns.

    def _columns(self, kind: Kind, subjects: Sequence[int], level: Level) -> tuple[Path, ...] | None:
        """Choose columns; longer chains continue few shorter ones, so that they share pages."""
        chosen = self._some(paths_of(kind, 1), subjects, level.columns[0])
        lacking = level.columns[0] - len(chosen)
        starts: Sequence[Path] = paths_of(kind, 1)
        for length, number in enumerate(level.columns[1:], 2):
            taken: list[Path] = []
            wanted = number + lacking if length == 2 else number
            for start in self._shuffled([one for one in starts if form_of(one) == "name"]):
                if len(taken) < wanted:
                    under = self._some(continued(start), subjects, min(3, wanted - len(taken)))
                    taken += under if len(under) > 1 else ()
            starts = taken
            chosen += taken
        if len(chosen) != sum(level.columns) or len({label_of(one) for one in chosen}) < len(chosen):
            return None
        return tuple(chosen)

    def _some(self, paths: Sequence[Path], subjects: Sequence[int], number: int) -> list[Path]:
        """Return some columns, as many as there are or as are wanted, in which no value makes up more than half."""
        found: list[Path] = []
        for path in self._shuffled(paths):
            if len(found) == number:
                break
            values = self._values(path, subjects)
            different = set(values)
            most = len(subjects) // 2
            if len(subjects) - len(different) < most or max(map(values.count, different)) <= most:
                found.append(path)
        return found

    def _values(self, path: Path, subjects: Sequence[int]) -> list[int | None]:
        return [self._cells.cell(path, subject).value for subject in subjects]

    def _shuffled(self, items: Sequence[T]) -> list[T]:
        """Return items in random order: several times as fast as `shuffle`, for a generator that draws so often."""
        draw = self._rng.random
        return [item for _, _, item in sorted((draw(), index, item) for index, item in enumerate(items))]

    # The whole.

    def _checked(
        self, text: str, kind: Kind, subjects: Sequence[int], columns: tuple[Path, ...], level: Level
    ) -> Brief | None:
        """Return a brief if it has what it needs: an order, contradictions, cells without a value, and questions."""
        cells = [[self._cells.cell(path, subject) for path in columns] for subject in subjects]
        values = [[cell.value for cell in row] for row in cells]
        missing = sum(row.count(None) for row in values)
        if not 1 <= missing <= len(subjects) * len(columns) // 4:
            return None
        conflicts = {conflict for row in cells for cell in row for conflict in cell.conflicts}
        if not level.conflicts[0] <= len(conflicts) <= level.conflicts[1]:
            return None
        ordering = [
            index
            for index, path in enumerate(columns)
            if form_of(path) != "name" and len({row[index] for row in values} - {None}) == len(subjects)
        ]
        if not ordering:
            return None
        order = (self._pick(ordering), self._rng.random() < 0.5)
        asked = candidates(columns, values, len(conflicts), self._rng)
        if len(asked) < level.questions:
            return None
        return Brief(text, kind, tuple(subjects), columns, order, tuple(asked[: level.questions]))

    def _pick(self, choices: Sequence[T]) -> T:
        return choices[int(self._rng.random() * len(choices))]


@lru_cache(maxsize=256)
def brief_of(world: str, difficulty: Difficulty, number: int) -> Brief:
    """Return a brief about a world.

    Raises:
        ValueError: there is no such world.
    """
    archive = archive_of(world)
    rng = random.Random(digest(f"research:brief:{world}:{difficulty}:{number}:{archive.titles[0]}"))
    return Drawer(archive, _cells_of(world), rng).draw(difficulty)


@lru_cache(maxsize=32)
def _cells_of(world: str) -> Cells:
    return Cells(archive_of(world))
