"""The dated reports about entities of an encyclopedia, and which page states what.

How this works. A world of `search` gets more pages: reports of an archive, each about one entity and from one year.
Articles get a year, too, that of their last revision, and the list of the reports about them. A report repeats some
facts of the article, gives another value for some, and adds a few that the article lacks. Of two values, that of the
later page holds; no two pages about an entity are from the same year, and no fact has more than two values.

Only facts that a single page of the encyclopedia states are drawn into reports, so that lists, which have no year,
never contradict one.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ludus.environments.search.world import RELATIONS, Entity, Graph, Kind, Layout, Relation
from ludus.environments.search.world.index import Index
from ludus.environments.search.world.library import Shelf, World, graph_of, layout_of
from ludus.environments.search.world.pages import Page, link, value_text, write_pages
from ludus.environments.search.world.prose import OUTDATED
from ludus.environments.search.world.schema import LISTINGS, OF_KIND, WORKS
from ludus.server.authoring.partition import digest

YEARS: Final = range(1966, 1990)
"""The years of revisions and reports."""

_LISTED: Final = {WORKS.place, *WORKS.columns} | {column for listing in LISTINGS for column in listing.columns}
REPORTED: Final[Mapping[Kind, tuple[Relation, ...]]] = {
    kind: tuple(
        one for one in relations
        if not one.mirrored and one.name not in _LISTED and one.name not in OUTDATED and one.name != "town.region"
    )
    for kind, relations in OF_KIND.items()
}  # fmt: skip
"""The relations of each kind that reports are about. No list states their facts."""

_SERIES: Final[Mapping[Kind, str]] = {
    "region": "Survey", "river": "Survey", "lake": "Survey", "town": "Gazette", "person": "Biographical note",
    "company": "Trade report", "university": "Academic report", "book": "Library note", "award": "Press report",
    "festival": "Press report", "club": "Sports report", "species": "Field report", "structure": "Building report",
}  # fmt: skip
_WITH_REPORT: Final = 0.5
_WITH_ANOTHER: Final = 0.3
_CHANGED: Final = 0.5
_ADDED: Final = 0.2
_LETTERS: Final = "abcdefghjkmnpqrstuvwxyz23456789"


@dataclass(frozen=True, slots=True)
class Report:
    """A report of the archive.

    Attributes:
        number: the number of its page.
        title: its title.
        year: the year of its publication.
        subject: the entity that it is about.
        claims: what it says about the subject, by relation.
    """

    number: int
    title: str
    year: int
    subject: int
    claims: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Fact:
    """What the pages say about one relation of an entity.

    Attributes:
        relation: the relation.
        subject: the entity.
        value: the value that holds; None if no page states one.
        pages: the pages that state it; if none does, the article of the entity.
        other: the value that does not hold; None if no page states another one.
        other_pages: the pages that state that.
    """

    relation: str
    subject: int
    value: int | None
    pages: frozenset[int]
    other: int | None = None
    other_pages: frozenset[int] = frozenset()


class Archive:
    """The reports of a world, and the facts with them.

    Attributes:
        graph: the facts of the articles.
        layout: the pages of the encyclopedia.
        revised: the year in which each article was revised last.
        reports: the reports; their pages follow those of the encyclopedia.
        about: the reports about each entity that has some.
        codes: the short id of each page, reports included.
        titles: the title of each page, reports included.
        several: the names that several entities have, in lower case.
    """

    def __init__(self, graph: Graph, layout: Layout) -> None:
        self.graph = graph
        self.layout = layout
        self._rng = random.Random(digest(f"research:archive:{graph.name}:{layout.titles[0]}"))
        self.revised: list[int] = []
        self.reports: list[Report] = []
        self.about: dict[int, list[Report]] = {}
        self._facts: dict[tuple[str, int], Fact] = {}
        for entity in graph.entities:
            self._draw(entity)
        self.titles = [*layout.titles, *(report.title for report in self.reports)]
        codes = dict.fromkeys(layout.codes)
        while len(codes) < len(self.titles):
            codes["".join(self._rng.choices(_LETTERS, k=4))] = None
        self.codes = list(codes)
        named: dict[str, int] = {}
        for entity in graph.entities:
            named[entity.name.lower()] = named.get(entity.name.lower(), 0) + 1
        self.several = {name for name, count in named.items() if count > 1}

    def fact(self, relation: str, subject: int) -> Fact:
        """Return what the pages say about a relation of an entity."""
        found = self._facts.get((relation, subject))
        if found is None:
            found = self._facts[relation, subject] = self._found(relation, subject)
        return found

    def _found(self, relation: str, subject: int) -> Fact:
        stated = self.graph.facts[relation].get(subject)
        said = [] if stated is None else [(self.revised[subject], stated, self._stating(relation, subject))]
        said += [
            (one.year, one.claims[relation], frozenset((one.number,)))
            for one in self.about.get(subject, ())
            if relation in one.claims
        ]
        if not said:
            return Fact(relation, subject, None, frozenset((subject,)))
        value = max(said)[1]
        pages = frozenset[int]().union(*(pages for _, found, pages in said if found == value))
        others = [one for one in said if one[1] != value]
        if not others:
            return Fact(relation, subject, value, pages)
        return Fact(relation, subject, value, pages, others[0][1], frozenset[int]().union(*(one[2] for one in others)))

    def _stating(self, relation: str, subject: int) -> frozenset[int]:
        pages = self.layout.stating(relation, subject)
        if relation == "town.region":  # the list of towns in a region says of each that it is there
            page = self.layout.regional.get(("town", self.graph.facts[relation][subject]))
            return pages if page is None else pages | {page}
        return pages

    def _draw(self, entity: Entity) -> None:
        """Draw the year of an article and the reports about its entity."""
        rng, relations = self._rng, REPORTED[entity.kind]
        chance = rng.random()
        count = 0 if not relations or chance > _WITH_REPORT else 1 if chance > _WITH_REPORT * _WITH_ANOTHER else 2
        revised, *years = rng.sample(YEARS, count + 1)
        self.revised.append(revised)
        if not count:
            return
        values: dict[str, tuple[int, ...]] = {}
        for relation in relations:
            right = self.graph.facts[relation.name].get(entity.id)
            if right is None:
                values[relation.name] = (self._value(relation, entity.id),) if rng.random() < _ADDED else ()
            elif rng.random() < _CHANGED:
                values[relation.name] = (right, self._another(relation, entity.id, right))
            else:
                values[relation.name] = (right,)
        for year in sorted(years):
            known = [name for name, choices in values.items() if choices]
            chosen = rng.sample(known, min(len(known), rng.randrange(2, 4)))
            if chosen:
                claims = {name: rng.choice(values[name]) for name in chosen}
                title = f"{_SERIES[entity.kind]} of {year}: {entity.title}"
                report = Report(len(self.layout.titles) + len(self.reports), title, year, entity.id, claims)
                self.reports.append(report)
                self.about.setdefault(entity.id, []).append(report)

    def _another(self, relation: Relation, subject: int, right: int) -> int:
        """Return a wrong value of a relation."""
        while (value := self._value(relation, subject, right)) == right:
            pass
        return value

    def _value(self, relation: Relation, subject: int, right: int = 0) -> int:
        """Return a value of the type of a relation; without a right one, one of another subject."""
        rng = self._rng
        if relation.to_entity:
            entities = self.graph.kinds[relation.target]  # type: ignore[index]
            if relation.name == "club.ground":
                entities = [entity for entity in entities if self.graph.entities[entity].sort == "ground"]
            return rng.choice([entity for entity in entities if entity not in (subject, right)])
        if not right:
            right = rng.choice(list(self.graph.facts[relation.name].values()))
        if relation.target == "year":
            return right + rng.choice((-1, 1)) * rng.randrange(1, 9)
        if relation.target == "date":
            return right // 10_000 * 10_000 + rng.randrange(1, 13) * 100 + rng.randrange(1, 29)
        return max(2, right * rng.randrange(70, 131) // 100)


def _article(page: Page, archive: Archive) -> Page:
    """Return an article with its year and the list of reports about it."""
    lines = [page.text, f"Last revised in {archive.revised[page.number]}."]
    reports = archive.about.get(page.number, ())
    if reports:
        lines.append(f"Reports in the archive: {', '.join(f'[[{report.title}]]' for report in reports)}.")
    return Page(page.number, page.code, page.title, "\n".join(lines))


def _report(report: Report, archive: Archive) -> Page:
    """Write a report."""
    graph = archive.graph
    entity = graph.entities[report.subject]
    code = archive.codes[report.number]
    rng = random.Random(digest(f"research:report:{graph.name}:{report.title}:{code}"))
    name = f"the {entity.name}" if entity.article else entity.name
    lines = []
    for relation, value in report.claims.items():
        kind = RELATIONS[relation]
        shown = link(graph.entities[value]) if kind.to_entity else value_text(kind, value)
        sentence = rng.choice(kind.sentences).replace("{s}", name).replace("{o}", shown)
        lines.append(sentence[:1].upper() + sentence[1:])
    text = f"Published in {report.year}. This report is about {link(entity)}.\n{' '.join(lines)}"
    return Page(report.number, code, report.title, text)


_archives: Final = Shelf[Archive](32)
_worlds: Final = Shelf[World](24)


def archive_of(name: str) -> Archive:
    """Return the archive of a world.

    Raises:
        ValueError: the name is not one of a world, or of a test world drawn from another secret.
    """
    return _archives.get(name, lambda: Archive(graph_of(name), layout_of(name)))


def kept_library(name: str) -> World | None:
    """Return a world with its reports, if its pages are ready."""
    return _worlds.find(name)


def open_library(name: str) -> World:
    """Return a world with its reports, which takes some hundred milliseconds at first use.

    Raises:
        ValueError: as `archive_of` does.
    """
    return _worlds.get(name, lambda: _opened(name))


def _opened(name: str) -> World:
    archive = archive_of(name)
    pages: Sequence[Page] = [
        *(
            _article(page, archive) if page.number < len(archive.graph.entities) else page
            for page in write_pages(archive.graph, archive.layout)
        ),
        *(_report(report, archive) for report in archive.reports),
    ]
    by_name = {page.title.lower(): page.number for page in pages} | {page.code: page.number for page in pages}
    return World(archive.graph, archive.layout, pages, Index(pages), by_name, {})
