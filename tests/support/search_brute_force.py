"""Evaluates what a question asks by walking over all facts, without the indexes and shortcuts of its maker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ludus.environments.search.world import RELATIONS, Graph

Readable = Callable[[str, int], bool]
"""Whether the fact of a relation or office about a subject may be used."""


class Unanswerable(Exception):
    """A needed fact is missing, or several entities fit."""


class BruteForce:
    """Evaluates programs.

    Args:
        graph: the world.
        readable: says which facts may be used; all by default.
    """

    def __init__(self, graph: Graph, readable: Readable = lambda relation, subject: True) -> None:
        self._graph = graph
        self._readable = readable

    def evaluate(self, program: tuple[Any, ...]) -> int:
        """Return the entity or the value that a program means.

        Raises:
            Unanswerable: there is none, or more than one.
        """
        found = set(self._results(program))
        if len(found) != 1:
            raise Unanswerable(f"{len(found)} results of {program}")
        return found.pop()

    def _results(self, program: tuple[Any, ...]) -> Iterator[int]:
        match program:
            case ("entity", entity):
                yield entity
            case ("follow" | "value", relation, inner):
                start = self.evaluate(inner)
                yield from (target for subject, target in self._facts(relation) if subject == start)
            case ("back", relation, inner):
                end = self.evaluate(inner)
                yield from (subject for subject, target in self._facts(relation) if target == end)
            case ("holder", office, inner, when):
                year = when if isinstance(when, int) else self.evaluate(when)
                owner = self.evaluate(inner)
                for subject, terms in self._graph.terms[office].items():
                    if subject == owner and self._readable(office, subject):
                        yield from (term.holder for term in terms if term.first <= year <= term.last)
            case ("both", one, left, other, right):
                first, second = self.evaluate(left), self.evaluate(right)
                meeting = {subject for subject, target in self._facts(one) if target == first}
                yield from meeting & {subject for subject, target in self._facts(other) if target == second}
            case ("extreme", relation, which, inner):
                rows = self._members(relation, self.evaluate(inner))
                best = (max if which == "max" else min)(value for _, value in rows)
                yield from (subject for subject, value in rows if value == best)
            case ("compare", relation, which, left, right):
                pair = [(self.evaluate(("value", relation, one)), self.evaluate(one)) for one in (left, right)]
                best = (max if which == "max" else min)(pair)[0]
                yield from (entity for value, entity in pair if value == best)
            case ("difference", left, right):
                yield abs(self.evaluate(left) - self.evaluate(right))
            case ("count", relation, by, inner, order, limit):
                owner = self.evaluate(inner)
                rows = self._works(relation, owner) if by == "author" else self._members(relation, owner)
                yield sum(value > limit if order == "after" else value < limit for _, value in rows)
            case _:
                raise AssertionError(f"unknown program {program}")

    def _facts(self, relation: str) -> Iterator[tuple[int, int]]:
        for subject, target in self._graph.facts[relation].items():
            if self._readable(relation, subject):
                yield subject, target

    def _members(self, relation: str, region: int) -> list[tuple[int, int]]:
        """The entities in a region with a value each; only a complete list says which these are."""
        kind = RELATIONS[relation].subject
        if not self._readable(f"list:{kind}", region):
            raise Unanswerable(f"no list of {kind} in {region}")
        place = {"company": "company.seat", "club": "club.town", "structure": "structure.town"}.get(kind)
        towns = self._graph.facts["town.region"]
        rows = []
        for subject, value in self._graph.facts[relation].items():
            town = subject if place is None else self._graph.facts[place].get(subject)
            if town is not None and towns.get(town) == region:
                rows.append((subject, value))
        return rows

    def _works(self, relation: str, author: int) -> list[tuple[int, int]]:
        if not self._readable("list:book", author):
            raise Unanswerable(f"no list of works by {author}")
        written = {book for book, writer in self._graph.facts["book.author"].items() if writer == author}
        return [(book, self._graph.facts[relation][book]) for book in sorted(written)]
