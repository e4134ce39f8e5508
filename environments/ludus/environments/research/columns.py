"""The columns of a report: chains of relations from a subject, with their names, and the cells under them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from ludus.environments.research.archive import Archive, Fact
from ludus.environments.search.answers import canonical
from ludus.environments.search.questions import AnswerForm
from ludus.environments.search.world import KINDS, RELATIONS, Kind
from ludus.environments.search.world.pages import date_text
from ludus.environments.search.world.schema import OF_KIND

Path = tuple[str, ...]
"""Relations, each from the object of the one before."""

MISSING: Final = "not stated"
"""What a report has for a value that no page states."""

_LABELS: Final[Mapping[str, str]] = {
    "person.born": "Birth date", "person.school": "Alma mater", "town.population": "Population",
    "town.founded": "Founding", "company.founded": "Founding", "university.founded": "Founding",
    "club.founded": "Founding", "company.employees": "Workforce", "university.students": "Students",
    "book.dedicatee": "Dedicatee", "book.year": "Publication", "book.pages": "Pages", "award.namesake": "Namesake",
    "award.established": "Establishment", "festival.first": "First edition", "festival.visitors": "Visitors",
    "club.titles": "Titles", "species.discoverer": "Discoverer", "species.described": "First description",
    "structure.opened": "Opening",
}  # fmt: skip
"""The names of relations in reports, where they differ from those in articles."""

_MEASURES: Final = ("meters", "kilometers", "square kilometers", "millimeters", "pages")
"""The units that a column names; those of other numbers are clear from its words."""

_FORMS: Final[Mapping[str, AnswerForm]] = {"year": "year", "number": "number", "date": "date"}


@dataclass(frozen=True, slots=True)
class Cell:
    """The value of a column for a subject.

    Attributes:
        facts: the facts that lead to it, one for each relation of the path up to the first that no page states.
        value: the value that holds; None if no page states it.
        conflicts: the relation and the entity of those of the facts on which pages disagree.
    """

    facts: tuple[Fact, ...]
    value: int | None
    conflicts: tuple[tuple[str, int], ...]


class Cells:
    """The cells of a world."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._found: dict[tuple[Path, int], Cell] = {}

    def cell(self, path: Path, subject: int) -> Cell:
        """Return the cell of a column for a subject."""
        found = self._found.get((path, subject))
        if found is None:
            facts: list[Fact] = []
            value: int | None = subject
            for relation in path:
                if value is not None:
                    facts.append(self._archive.fact(relation, value))
                    value = facts[-1].value
            conflicts = tuple((fact.relation, fact.subject) for fact in facts if fact.other is not None)
            found = self._found[path, subject] = Cell(tuple(facts), value, conflicts)
        return found


@lru_cache(maxsize=2048)
def label_of(path: Path) -> str:
    """Return the name of a column, such as "Region of birthplace of founder"."""
    parts = [_LABELS.get(one) or RELATIONS[one].label for one in reversed(path)]
    return " of ".join([parts[0], *(part.lower() for part in parts[1:])])


@lru_cache(maxsize=1024)
def explained(path: Path) -> str:
    """Return what a column is, in words and with its form."""
    text = f"the {KINDS[RELATIONS[path[0]].subject]}"
    for relation in path:
        text = RELATIONS[relation].nouns[0].replace("{s}", text)
    last = RELATIONS[path[-1]]
    if last.target == "year":
        return f"the year of {text}"
    return f"{text}, in {last.unit}" if last.unit in _MEASURES else text


@lru_cache(maxsize=2048)
def form_of(path: Path) -> AnswerForm:
    """Return what the values of a column are."""
    return _FORMS.get(RELATIONS[path[-1]].target, "name")


def value_shown(archive: Archive, form: AnswerForm, value: int | None) -> str:
    """Return a value as a report shows it."""
    if value is None:
        return MISSING
    if form == "name":
        return archive.graph.entities[value].title
    return date_text(value) if form == "date" else f"{value:,}" if form == "number" else str(value)


def names_of(archive: Archive, entity: int) -> frozenset[str]:
    """Return the names that mean an entity, in the form in which equal names are equal texts."""
    found = archive.graph.entities[entity]
    names = [found.title, *found.aliases]
    if found.name.lower() not in archive.several:
        names.append(found.name)
    return frozenset(one for one in (canonical(name, "name") for name in names) if one)


def accepted_values(archive: Archive, form: AnswerForm, value: int | None) -> frozenset[str]:
    """Return the texts that mean a value, as `read_value` returns them."""
    if value is None:
        return frozenset((MISSING,))
    if form == "name":
        return names_of(archive, value)
    found = canonical(value_shown(archive, form, value), form)
    return frozenset((found,)) if found is not None else frozenset()


def read_value(text: str, form: AnswerForm) -> str | None:
    """Return a value in the form in which equal values are equal texts; None if it has not that form."""
    if text.strip(" .*_\"'()").lower() == MISSING:
        return MISSING
    return canonical(text, form)


@lru_cache(maxsize=64)
def paths_of(kind: Kind, length: int) -> Sequence[Path]:
    """Return the columns for subjects of a kind that take so many relations."""
    if length == 1:
        return tuple((one.name,) for one in OF_KIND[kind])
    return tuple(path for start in paths_of(kind, length - 1) for path in continued(start))


@lru_cache(maxsize=2048)
def continued(path: Path) -> Sequence[Path]:
    """Return the columns that are one relation longer; a twin's twin or a spouse's spouse is none."""
    last = RELATIONS[path[-1]]
    if not last.to_entity or last.mirrored:
        return ()
    return tuple((*path, one.name) for one in OF_KIND[last.target] if not one.mirrored)  # type: ignore[index]
