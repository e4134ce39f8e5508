"""Write the text of pages.

How this works. Each page has a random generator of its own, so pages do not depend on the order in which they are
written. Of the facts about an entity, some stand in the infobox, some in a sentence, and some in both; each stands
somewhere. `Layout.stating` says which further pages state it, and these are written accordingly: a test reads every
page and compares.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ludus.environments.search.world.graph import Entity, Graph
from ludus.environments.search.world.layout import Layout
from ludus.environments.search.world.prose import HISTORY, LEADS, MISLEADING, OUTDATED, REMARKS, SHORT
from ludus.environments.search.world.schema import (
    KINDS,
    LISTINGS,
    OF_KIND,
    OFFICES,
    PRESENT,
    RELATIONS,
    WORKS,
    Listing,
    Relation,
)
from ludus.server.authoring.partition import digest

MONTHS: Final = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
                 "November", "December")  # fmt: skip
_BEGUN: Final = ("town.founded", "company.founded", "university.founded", "club.founded", "festival.first",
                 "award.established")  # fmt: skip
_COLUMNS: Final = {WORKS.kind: WORKS} | {listing.kind: listing for listing in LISTINGS}


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the encyclopedia.

    Attributes:
        number: its number in the world.
        code: its short id.
        title: its title.
        text: its text, in which `[[Title]]` is a link, and `[[Title|words]]` one with other words.
    """

    number: int
    code: str
    title: str
    text: str


def date_text(value: int) -> str:
    """Return a date such as 14 March 1893, from the number yyyymmdd."""
    year, rest = divmod(value, 10_000)
    month, day = divmod(rest, 100)
    return f"{day} {MONTHS[month - 1]} {year}"


def value_text(relation: Relation, value: int) -> str:
    """Return a year, a date, or a number with its unit, as pages write it."""
    if relation.target == "date":
        return date_text(value)
    return str(value) if relation.target == "year" else f"{value:,} {relation.unit}"


def link(entity: Entity) -> str:
    """Return a link to the page of an entity, with its article."""
    shown = entity.title if entity.title == entity.name else f"{entity.title}|{entity.name}"
    return f"the [[{shown}]]" if entity.article else f"[[{shown}]]"


class Writer:
    """Writes the pages of a world."""

    def __init__(self, graph: Graph, layout: Layout) -> None:
        self._graph = graph
        self._layout = layout
        self._stream = f"search:pages:{graph.name}:{layout.titles[0]}"
        self._mirrored: dict[int, list[str]] = {}
        for relation in RELATIONS.values():
            if relation.mirrored:
                for subject, target in graph.facts[relation.name].items():
                    # Symmetric relations are facts of both, and each page states its own in a sentence anyway.
                    if graph.facts[relation.name].get(target) != subject:
                        sentence = self._sentence(relation.mirrored, link(graph.entities[subject]), target)
                        self._mirrored.setdefault(target, []).append(sentence)

    def pages(self) -> list[Page]:
        """Write all pages."""
        count = len(self._graph.entities)
        texts = [self._entity_page(entity) for entity in self._graph.entities]
        for number in range(count, len(self._layout.titles)):
            if number in self._layout.members:
                texts.append(self._list_page(number))
            else:
                texts.append(self._disambiguation(number))
        layout = self._layout
        return [Page(i, layout.codes[i], layout.titles[i], text) for i, text in enumerate(texts)]

    def _entity_page(self, entity: Entity) -> str:
        rng = random.Random(digest(f"{self._stream}:{entity.id}"))
        known = [one for one in OF_KIND[entity.kind] if entity.id in self._graph.facts[one.name]]
        box: list[str] = []
        body: list[str] = []
        for relation in known:
            place = rng.random()
            value = self._object(relation, self._graph.facts[relation.name][entity.id])
            if place < 0.55:
                box.append(f"{relation.label}: {value}")
            if place >= 0.3:
                body.append(self._sentence(rng.choice(relation.sentences), self._short(entity, rng), value))
            body += self._misleading(rng, entity, relation)
        body += self._mirrored.get(entity.id, ())
        remarks = rng.sample(REMARKS[entity.kind], 3)
        rng.shuffle(body)
        for remark in remarks:
            body.insert(rng.randrange(len(body) + 1), remark)
        lead = self._sentence(rng.choice(LEADS[entity.kind]), self._own(entity), "", entity.sort)
        if entity.aliases:
            called = "wrote as" if entity.kind == "person" else "was formerly called"
            lead += f" {entity.name} also {called} {entity.aliases[0]}."
        half = 1 + rng.randrange(len(body))
        lines = [lead, *box, f"== {HISTORY[entity.kind]} ==", " ".join(body[:half]), " ".join(body[half:])]
        return "\n".join(line for line in [*lines, *self._offices(entity.id)] if line)

    def _misleading(self, rng: random.Random, entity: Entity, relation: Relation) -> list[str]:
        """Return a statement that misleads about a fact, for some facts."""
        graph = self._graph
        begun = next((graph.facts[name][entity.id] for name in _BEGUN if entity.id in graph.facts[name]), 0)
        earliest = max(begun + 6, PRESENT - 75)
        value = graph.facts[relation.name][entity.id]
        form = OUTDATED.get(relation.name) or rng.choice(MISLEADING.get(relation.name, ("",)))
        wanted = rng.random() < (0.6 if relation.name in OUTDATED else 0.35)
        year = rng.randrange(min(earliest, PRESENT - 12), PRESENT - 10)
        if not form or not wanted or ("{y}" in form and earliest > PRESENT - 12):
            return []
        form = form.replace("{y}", str(year))
        if not relation.to_entity:
            old = value_text(relation, max(1, value * rng.randrange(30, 90) // 100))
            return [self._sentence(form, self._short(entity, rng), old)]
        right = graph.entities[value]
        other = graph.entities[rng.choice(graph.kinds[right.kind])]
        if other.id in (value, entity.id) or (right.kind == "structure" and other.sort != right.sort):
            return []
        return [self._sentence(form, self._short(entity, rng), link(other))]

    def _offices(self, entity: int) -> list[str]:
        """Return the sections with terms in office."""
        lines: list[str] = []
        for office in OFFICES.values():
            terms = self._graph.terms[office.name].get(entity, ())
            if terms:
                lines.append(f"== {office.title} ==")
            for term in terms:
                holder = link(self._graph.entities[term.holder])
                line = office.sentence.replace("{a}", str(term.first)).replace("{b}", str(term.last))
                lines.append(self._sentence(line, "", holder))
        return lines

    def _list_page(self, number: int) -> str:
        graph, members = self._graph, self._layout.members[number]
        entity = graph.entities[members[0]]
        listing = _COLUMNS[entity.kind]
        title = self._layout.titles[number]
        lines = [f"This {title[0].lower()}{title[1:]} is complete as of {PRESENT}. It has {len(members)} entries."]
        lines += [self._row(listing, graph.entities[member]) for member in members]
        return "\n".join(lines)

    def _row(self, listing: Listing, entity: Entity) -> str:
        facts = self._graph.facts
        cells = [
            f"{RELATIONS[name].label}: {self._object(RELATIONS[name], facts[name][entity.id])}"
            for name in listing.columns
            if entity.id in facts[name]
        ]
        return f"* {self._upper(link(entity))}. {'; '.join(cells)}"

    def _disambiguation(self, number: int) -> str:
        meanings = [self._graph.entities[one] for one in self._layout.meanings[number]]
        word = self._layout.titles[number].removesuffix(" (disambiguation)")
        lines = [f"{word} can mean:"]
        for entity in meanings:
            what = entity.sort if entity.sort and entity.kind != "company" else KINDS[entity.kind]
            lines.append(f"* {self._upper(link(entity))}, {'an' if what[0] in 'aeiou' else 'a'} {what}")
        return "\n".join(lines)

    def _object(self, relation: Relation, value: int) -> str:
        return link(self._graph.entities[value]) if relation.to_entity else value_text(relation, value)

    def _own(self, entity: Entity) -> str:
        return f"the {entity.name}" if entity.article else entity.name

    def _short(self, entity: Entity, rng: random.Random) -> str:
        if rng.random() < 0.35:
            return self._own(entity)
        return entity.name.rpartition(" ")[2] if entity.kind == "person" else SHORT[entity.kind]

    def _sentence(self, form: str, subject: str, value: str | int, sort: str = "") -> str:
        if isinstance(value, int):
            value = self._own(self._graph.entities[value])
        sentence = form.replace("{s}", subject).replace("{o}", value).replace("{k}", sort)
        if sort and sort[0] in "aeiou":
            sentence = sentence.replace(f" a {sort}", f" an {sort}")
        return self._upper(sentence)

    @staticmethod
    def _upper(sentence: str) -> str:
        return sentence[:1].upper() + sentence[1:]


def write_pages(graph: Graph, layout: Layout) -> Sequence[Page]:
    """Write all pages of a world."""
    return Writer(graph, layout).pages()
