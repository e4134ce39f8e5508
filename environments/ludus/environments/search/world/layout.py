"""Decide which pages exist, and which of them state a fact. This takes no text, so questions are made without it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

from ludus.environments.search.world.graph import Graph
from ludus.environments.search.world.schema import LISTINGS, RELATIONS, WORKS, Kind, Listing
from ludus.server.authoring.partition import digest

_LETTERS: Final = "abcdefghjkmnpqrstuvwxyz23456789"
_COLUMNS: Final[Mapping[str, Listing]] = {column: listing for listing in LISTINGS for column in listing.columns}


class Layout:
    """The pages of a world. The page of an entity has the entity's number; lists and disambiguations follow.

    Attributes:
        titles: the title of each page.
        codes: the short id of each page.
        regional: the page of the list of a kind in a region.
        works: the page of the list of an author's works.
        meanings: for the page of a disambiguation, the entities that share the word.
        members: for the page of a list, the entities that it lists.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.titles = [entity.title for entity in graph.entities]
        self.regional: dict[tuple[Kind, int], int] = {}
        self.works: dict[int, int] = {}
        self.meanings: dict[int, tuple[int, ...]] = {}
        self.members: dict[int, tuple[int, ...]] = {}
        self._region_of = [
            graph.region_of(one.id) if one.kind in {listing.kind for listing in LISTINGS} else None
            for one in graph.entities
        ]
        self._add_lists()
        self._add_disambiguations()
        rng = random.Random(digest(f"search:codes:{graph.name}:{self.titles[0]}"))
        codes: dict[str, None] = {}
        while len(codes) < len(self.titles):
            codes["".join(rng.choices(_LETTERS, k=4))] = None
        self.codes = list(codes)

    def stating(self, relation: str, subject: int) -> frozenset[int]:
        """Return the pages that state the fact of a relation about a subject."""
        pages = {subject}
        kind = RELATIONS[relation]
        if kind.mirrored:
            pages.add(self.graph.facts[relation][subject])
        if relation in _COLUMNS:
            region = self._region_of[subject]
            page = None if region is None else self.regional.get((kind.subject, region))
            if page is not None:
                pages.add(page)
        if relation == WORKS.place or relation in WORKS.columns:
            page = self.works.get(self.graph.facts[WORKS.place][subject])
            if page is not None:
                pages.add(page)
        return frozenset(pages)

    def _add_lists(self) -> None:
        graph = self.graph
        for listing in LISTINGS:
            for region in graph.kinds["region"]:
                inside = [one for one in graph.kinds[listing.kind] if self._region_of[one] == region]
                members = tuple(sorted(inside, key=lambda one: graph.entities[one].title))
                if len(members) >= 2:
                    page = self._add(f"List of {listing.plural} in {graph.entities[region].title}")
                    self.regional[listing.kind, region] = page
                    self.members[page] = members
        for author, books in graph.subjects[WORKS.place].items():
            if len(books) >= 3:
                page = self._add(f"List of {WORKS.plural} by {graph.entities[author].title}")
                self.works[author] = page
                self.members[page] = tuple(books)

    def _add_disambiguations(self) -> None:
        sharing: dict[str, list[int]] = {}
        plain = {"Lake", "River", "The", "of", "in", "University", "Academy", "Upper", "New", "Saint", "A"}
        for entity in self.graph.entities:
            if entity.kind != "book":
                words = entity.name.split()
                invented = [word for word in words if word not in plain]
                word = entity.name if entity.title != entity.name else invented[-1 if entity.kind == "person" else 0]
                sharing.setdefault(word, []).append(entity.id)
        taken = set(self.titles)
        for word, entities in sharing.items():
            if len(entities) >= 2:
                page = self._add(f"{word} (disambiguation)" if word in taken else word)
                self.meanings[page] = tuple(entities)

    def _add(self, title: str) -> int:
        self.titles.append(title)
        return len(self.titles) - 1
