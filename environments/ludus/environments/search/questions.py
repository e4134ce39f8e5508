"""Make questions about a world, each with exactly one answer.

How this works. A `Node` is a description of an entity that exactly one entity fits, such as "the birthplace of the
founder of X". It grows from a named entity, one hop at a time: forward along a relation, backward where only one
subject has the object, to the holder of an office in a year, or to the extreme of a list. With each hop goes a *need*:
the pages that state its fact, any one of which suffices. A question ends with a value, an entity, a comparison or a
count.

`_checked` drops a question with a shortcut. Its needs must not share a page, so that it takes one page for each need;
the answer is not named by the question, by the entities on the way or by the pages before the last; and it is not the
entity of its kind that the world mentions most. `program` says what a question asks, without words; tests evaluate it
by brute force over all facts.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Final, Literal, NamedTuple, TypeVar

from ludus.environments.search.world import KINDS, RELATIONS, Entity, Graph, Kind, Layout, Relation
from ludus.environments.search.world.library import graph_of, layout_of
from ludus.environments.search.world.pages import date_text
from ludus.environments.search.world.schema import LISTINGS, OF_KIND, OFFICES, PRESENT, TO_KIND
from ludus.server import Difficulty
from ludus.server.authoring.partition import digest

HOPS: Final[Mapping[Difficulty, tuple[int, ...]]] = {"easy": (2,), "medium": (3,), "hard": (4, 5)}
"""The numbers of pages that the questions of a level take."""

ChoiceT = TypeVar("ChoiceT")
AnswerForm = Literal["name", "year", "number", "date"]
Need = frozenset[int]
Program = tuple[Any, ...]

EXTREMES: Final[Mapping[str, tuple[str, str]]] = {
    "town.population": ("the town with the most inhabitants in 1990", "the town with the fewest inhabitants in 1990"),
    "town.elevation": ("the highest-lying town", "the lowest-lying town"),
    "town.founded": ("the most recently founded town", "the oldest town"),
    "company.founded": ("the most recently founded company with headquarters",
                        "the earliest founded company with headquarters"),
    "company.employees": ("the company with the most employees in 1990 among those with headquarters",
                          "the company with the fewest employees in 1990 among those with headquarters"),
    "club.founded": ("the most recently founded sports club", "the oldest sports club"),
    "club.titles": ("the sports club with the most league titles", "the sports club with the fewest league titles"),
    "structure.opened": ("the most recently opened structure", "the earliest opened structure"),
    "structure.height": ("the highest structure", "the lowest structure"),
}  # fmt: skip
"""The greatest and the least of a list, to be followed by "in" and a region."""

COMPARISONS: Final[Mapping[str, tuple[str, str]]] = {
    "company.founded": ("was founded later", "was founded earlier"),
    "university.founded": ("was founded later", "was founded earlier"),
    "town.founded": ("was founded later", "was founded earlier"),
    "town.population": ("had more inhabitants in 1990", "had fewer inhabitants in 1990"),
    "town.elevation": ("lies higher", "lies lower"),
    "book.year": ("appeared later", "appeared earlier"),
    "river.length": ("is longer", "is shorter"),
    "lake.depth": ("is deeper", "is shallower"),
    "structure.height": ("is higher", "is lower"),
    "structure.opened": ("was opened later", "was opened earlier"),
    "company.employees": ("had more employees in 1990", "had fewer employees in 1990"),
    "university.students": ("had more students in 1990", "had fewer students in 1990"),
    "person.born": ("was born later", "was born earlier"),
}
"""What the greater and the lesser of two entities is asked by."""

_OFFICES, _EXTREMES, _COMPARISONS = tuple(OFFICES), tuple(EXTREMES), tuple(COMPARISONS)
_FORWARD: Final = {kind: tuple(one for one in OF_KIND[kind] if one.to_entity) for kind in KINDS}
_YEARS: Final = tuple(relation for relation in RELATIONS.values() if relation.target == "year")
_PLURALS: Final[Mapping[Kind, str]] = {listing.kind: listing.plural for listing in LISTINGS}
_WORD: Final = re.compile(r"[a-z0-9]+")
_TRIES: Final = 60


class Node(NamedTuple):
    """A description that exactly one entity fits.

    Attributes:
        entity: that entity.
        text: the description.
        needs: for each hop so far, the pages that state its fact.
        trail: the entities from the named one up to this one.
        program: the description without words.
    """

    entity: int
    text: str
    needs: tuple[Need, ...]
    trail: tuple[int, ...]
    program: Program


@dataclass(frozen=True, slots=True)
class Question:
    """A question.

    Attributes:
        text: its text.
        form: what the answer is.
        answers: the answer, and other names of the same entity that its page gives.
        needs: sets of pages; an answer is proved by one page of each.
        deciding: the places in `needs` of the facts that decide between candidates; none unless there are several.
        family: the kind of question.
        program: what it asks, without words.
    """

    text: str
    form: AnswerForm
    answers: tuple[str, ...]
    needs: tuple[Need, ...]
    family: str
    program: Program
    deciding: tuple[int, ...] = ()

    @property
    def hops(self) -> int:
        """The least number of pages that prove the answer."""
        return len(self.needs)


class QuestionMaker:
    """Makes the questions of a world.

    Args:
        graph: the world's facts.
        layout: which page states which fact.
        rng: a random generator.
    """

    def __init__(self, graph: Graph, layout: Layout, rng: random.Random) -> None:
        self._graph = graph
        self._layout = layout
        self._rng = rng
        names: dict[str, int] = {}
        for entity in graph.entities:
            for name in (entity.name, *entity.aliases):
                names[name.lower()] = names.get(name.lower(), 0) + 1
        self._shared = {name for name, count in names.items() if count > 1}
        self._words = [frozenset(_words(entity.name)) for entity in graph.entities]
        self._kinds = tuple(graph.kinds)
        self._events = [(one, entity) for one in _YEARS for entity in graph.facts[one.name]]
        self._recent = [event for event in self._events if graph.facts[event[0].name][event[1]] > PRESENT - 80]

    @cached_property
    def _linked(self) -> list[tuple[int, Kind, list[tuple[Relation, int, list[int]]]]]:
        """The entities of which two facts or more hold for others as well, with these facts and whom they hold for."""
        facts, subjects = self._graph.facts, self._graph.subjects
        found = []
        for kind, members in self._graph.kinds.items():
            relations = [one for one in _FORWARD[kind] if not one.mirrored]
            tables = [(relation, facts[relation.name], subjects[relation.name]) for relation in relations]
            for entity in members:
                links = [
                    (one, table[entity], backward[table[entity]]) for one, table, backward in tables if entity in table
                ]
                links = [link for link in links if len(link[2]) > 1]
                if len(links) > 1:
                    found.append((entity, kind, links))
        return found

    def make(self, difficulty: Difficulty) -> Question:
        """Return a question of a level."""
        families = FAMILIES[difficulty]
        for _ in range(_TRIES):
            family = self._pick(families)
            hops = self._pick(HOPS[difficulty])
            for _ in range(_TRIES):  # so that a family is not rare because most of its drafts fail
                found = family(self, hops)
                if found is not None and found.hops == hops:
                    return found
        raise RuntimeError(f"no {difficulty} question found in world {self._graph.name}; this is a defect of its maker")

    def _pick(self, choices: Sequence[ChoiceT]) -> ChoiceT:
        """Return one of some choices: three times as fast as `choice`, for a generator that draws so often."""
        return choices[int(self._rng.random() * len(choices))]

    # Descriptions.

    def _start(self, entity: int | None = None) -> Node:
        if entity is None:
            entity = self._pick(self._graph.kinds[self._pick(self._kinds)])
        return Node(entity, mention(self._graph.entities[entity]), (), (entity,), ("entity", entity))

    def _grown(self, hops: int) -> Node | None:
        """Return a description with some hops from a random entity."""
        node: Node | None = self._start()
        for _ in range(hops):
            node = None if node is None else self._hop(node)
        return node

    def _hop(self, node: Node) -> Node | None:
        """Return a description one hop further, in a random direction."""
        choice = self._rng.random()
        kind = self._graph.entities[node.entity].kind
        if choice < 0.2:
            return self._holder(node, self._pick(_OFFICES))
        if choice < 0.5 and TO_KIND[kind]:
            return self._backward(node, self._pick(TO_KIND[kind]))
        forward = _FORWARD[kind]
        return self._forward(node, self._pick(forward)) if forward else None

    def _forward(self, node: Node, relation: Relation) -> Node | None:
        target = self._graph.facts[relation.name].get(node.entity)
        if target is None or target in node.trail:
            return None
        text = self._pick(relation.nouns).replace("{s}", node.text)
        need = self._layout.stating(relation.name, node.entity)
        return self._next(node, target, text, need, ("follow", relation.name, node.program))

    def _backward(self, node: Node, relation: Relation) -> Node | None:
        subjects = self._graph.subjects[relation.name].get(node.entity, ())
        if len(subjects) != 1 or subjects[0] in node.trail:
            return None
        text = relation.inverse.replace("{o}", node.text)
        need = self._layout.stating(relation.name, subjects[0])
        return self._next(node, subjects[0], text, need, ("back", relation.name, node.program))

    def _holder(self, node: Node, office: str) -> Node | None:
        terms = self._graph.terms[office].get(node.entity, ())
        fitting = [one for one in terms if one.first == one.last or one.last - one.first > 1]
        if not fitting:
            return None
        term = self._pick(fitting)
        year = term.first if term.first == term.last else self._rng.randrange(term.first + 1, term.last)
        if term.holder in node.trail:
            return None
        text = OFFICES[office].noun.replace("{s}", node.text).replace("{y}", str(year))
        need = frozenset((node.entity,))
        return self._next(node, term.holder, text, need, ("holder", office, node.program, year))

    def _extreme(self, region: Node) -> Node | None:
        """Return the description of the greatest or the least of a list of a region."""
        name = self._pick(_EXTREMES)
        greatest = self._rng.random() < 0.5
        kind = RELATIONS[name].subject
        page = self._layout.regional.get((kind, region.entity))
        if page is None or len(self._layout.members[page]) < 3:
            return None
        table = self._graph.facts[name]
        ranked = sorted((table[one], one) for one in self._layout.members[page])
        best, second = (ranked[-1], ranked[-2]) if greatest else (ranked[0], ranked[1])
        if best[0] == second[0] or best[1] in region.trail:
            return None
        text = f"{EXTREMES[name][not greatest]} in {region.text}"
        program = ("extreme", name, "max" if greatest else "min", region.program)
        return self._next(region, best[1], text, frozenset((page,)), program)

    @staticmethod
    def _next(node: Node, entity: int, text: str, need: Need, program: Program) -> Node:
        return Node(entity, text, (*node.needs, need), (*node.trail, entity), program)

    def _leading_to(self, target: int, hops: int) -> Node | None:
        """Return a description of a given entity, with some hops."""
        if hops == 0:
            return self._start(target)
        found = self._graph.incoming[target]
        if not found:
            return None
        name, subject = self._pick(found)
        before = self._leading_to(subject, hops - 1)
        return None if before is None else self._forward(before, RELATIONS[name])

    # Questions, each a family.

    def chain(self, hops: int) -> Question | None:
        """Ask for what lies at the end of a chain: an entity, or a value of one."""
        if self._rng.random() < 0.5:
            node = self._grown(hops)
            return None if node is None else self._ask_name(node, "chain")
        node = self._grown(hops - 1)
        return None if node is None else self._ask_value(node, "chain")

    def extreme(self, hops: int) -> Question | None:
        """Ask for the greatest or least of a list, or for something about it."""
        after = self._rng.randrange(hops - 1)
        region = self._described_region(hops - 1 - after)
        node = None if region is None else self._extreme(region)
        if node is None:
            return None
        if after and self._rng.random() < 0.5:
            for _ in range(after):
                node = None if node is None else self._hop(node)
            return None if node is None else self._ask_name(node, "extreme")
        for _ in range(after - 1):
            node = None if node is None else self._hop(node)
        if node is None:
            return None
        return self._ask_value(node, "extreme") if after else self._ask_name(node, "extreme")

    def both(self, hops: int) -> Question | None:
        """Ask for the one entity that meets two conditions."""
        answer, kind, links = self._pick(self._linked)
        (one, first, subjects), (other, second, other_subjects) = self._rng.sample(links, 2)
        if first == second or {answer} != set(subjects).intersection(other_subjects):
            return None
        depth = self._rng.randrange(hops)
        left = self._leading_to(first, depth)
        right = None if left is None else self._leading_to(second, hops - 1 - depth)
        if left is None or right is None or answer in (*left.trail, *right.trail):
            return None
        conditions = [rel.condition.replace("{o}", node.text) for rel, node in ((one, left), (other, right))]
        conditions.sort(key=len)  # the longer one last, so that no reader has to hold it open
        text = f"Which {KINDS[kind]} {conditions[0]} and {conditions[1]}?"
        if kind == "person":
            text = f"Who {conditions[0]} and {conditions[1]}?"
        needs = [*left.needs, *right.needs]
        needs += [self._layout.stating(rel.name, answer) for rel in (one, other)]
        program = ("both", one.name, left.program, other.name, right.program)
        question = self._checked(text, answer, needs, (*left.trail, *right.trail), "both", program)
        return question and decided_by(question, needs[-2:])

    def compare(self, hops: int) -> Question | None:
        """Ask which of two described entities comes first, or is greater."""
        rng = self._rng
        name = self._pick(_COMPARISONS)
        kind, table = RELATIONS[name].subject, self._graph.facts[name]
        depth = 1 + rng.randrange(hops - 3)
        left = self._leading_to(self._pick(self._graph.kinds[kind]), depth)
        right = None if left is None else self._leading_to(self._pick(self._graph.kinds[kind]), hops - 2 - depth)
        if left is None or right is None or left.entity == right.entity:
            return None
        one, other = table[left.entity], table[right.entity]
        if one == other:
            return None
        greater = rng.random() < 0.5
        winner, loser = (left, right) if (one > other) == greater else (right, left)
        asked = "Who" if kind == "person" else f"Which {KINDS[kind]}"
        text = f"{asked} {COMPARISONS[name][not greater]}: {left.text}, or {right.text}?"
        values = [self._layout.stating(name, node.entity) for node in (loser, winner)]
        program = ("compare", name, "max" if greater else "min", left.program, right.program)
        trail = (*loser.trail, *winner.trail[:-2])
        question = self._checked(text, winner.entity, [*left.needs, *right.needs, *values], trail, "compare", program)
        return question and decided_by(question, values)

    def difference(self, hops: int) -> Question | None:
        """Ask for the years between two events."""
        one = self._event(hops // 2)
        other = None if one is None else self._event(hops - hops // 2)
        if one is None or other is None:
            return None
        years = abs(one[2] - other[2])
        if years < 2:
            return None
        text = f"How many years lie between {one[0]} and {other[0]}, counted from the one year to the other?"
        needs = [*one[1], *other[1]]
        return self._checked_value(text, "number", str(years), needs, "difference", ("difference", one[3], other[3]))

    def in_year(self, hops: int) -> Question | None:
        """Ask who held an office, or won an award, in the year of an event."""
        rng = self._rng
        office = self._pick(_OFFICES)
        depth = rng.randrange(hops - 2)
        owner = self._leading_to(self._pick(tuple(self._graph.terms[office])), depth)
        event = None if owner is None else self._event(hops - 1 - depth, recent=True)
        if owner is None or event is None:
            return None
        terms = self._graph.terms[office][owner.entity]
        fitting = [term for term in terms if term.first <= event[2] <= term.last]
        if len(fitting) != 1:
            return None
        noun = OFFICES[office].noun.replace("{s}", owner.text).replace("{y}", f"the year of {event[0]}")
        needs = [*owner.needs, *event[1], frozenset((owner.entity,))]
        program = ("holder", office, owner.program, event[3])
        return self._checked(f"Who was {noun}?", fitting[0].holder, needs, owner.trail, "in_year", program)

    def count(self, hops: int) -> Question | None:
        """Ask how many of a list come before or after a year."""
        rng = self._rng
        by_author = rng.random() < 0.4
        if by_author:
            authors = tuple(self._layout.works)
            node = self._leading_to(self._pick(authors), hops - 1) if authors else None
            name, page = "book.year", None if node is None else self._layout.works.get(node.entity)
        else:
            node = self._described_region(hops - 1)
            name = self._pick(("town.founded", "company.founded", "club.founded", "structure.opened"))
            page = None if node is None else self._layout.regional.get((RELATIONS[name].subject, node.entity))
        if node is None or page is None:
            return None
        table = self._graph.facts[name]
        years = sorted(table[one] for one in self._layout.members[page])
        if len(years) < 5:
            return None
        limit = (years[rng.randrange(1, len(years) - 1)] + 4) // 10 * 10
        after = rng.random() < 0.5
        number = sum((year > limit) if after else (year < limit) for year in years)
        if limit in years or not 2 <= number < len(years):
            return None
        condition = RELATIONS[name].condition.replace("was ", "were ").replace("in {o}", "{o}")
        condition = condition.replace("{o}", f"{'after' if after else 'before'} {limit}")
        if by_author:
            text = f"How many works by {node.text} {condition}?"
        elif name.startswith("company"):
            text = f"How many of the companies with headquarters in {node.text} {condition}?"
        else:
            text = f"How many of the {_PLURALS[RELATIONS[name].subject]} in {node.text} {condition}?"
        program = (
            "count",
            name,
            "author" if by_author else "region",
            node.program,
            "after" if after else "before",
            limit,
        )
        return self._checked_value(text, "number", str(number), [*node.needs, frozenset((page,))], "count", program)

    def _described_region(self, hops: int) -> Node | None:
        region = self._pick(self._graph.kinds["region"])
        return self._leading_to(region, hops)

    def _event(self, hops: int, *, recent: bool = False) -> tuple[str, list[Need], int, Program] | None:
        """Return the words, needs, year and program of an event of a described entity."""
        relation, entity = self._pick(self._recent if recent else self._events)
        node = self._leading_to(entity, hops - 1)
        if node is None:
            return None
        text = relation.nouns[0].replace("{s}", node.text)
        need = self._layout.stating(relation.name, entity)
        year = self._graph.facts[relation.name][entity]
        return text, [*node.needs, need], year, ("value", relation.name, node.program)

    # Ends.

    def _ask_name(self, node: Node, family: str) -> Question | None:
        if self._graph.entities[node.entity].kind == "person":
            text = f"Who was {node.text}?"
        else:
            text = self._pick(("What is the name of {s}?", "Find the name of {s}.")).replace("{s}", node.text)
        return self._checked(text, node.entity, node.needs, node.trail[:-1], family, node.program)

    def _ask_value(self, node: Node, family: str) -> Question | None:
        kind = self._graph.entities[node.entity].kind
        values = [one for one in OF_KIND[kind] if not one.to_entity and node.entity in self._graph.facts[one.name]]
        if not values:
            return None
        relation = self._pick(values)
        value = self._graph.facts[relation.name][node.entity]
        text = relation.question.replace("{s}", node.text)
        needs = [*node.needs, self._layout.stating(relation.name, node.entity)]
        program = ("value", relation.name, node.program)
        if relation.target == "date":
            return self._checked_value(text, "date", date_text(value), needs, family, program)
        form: AnswerForm = "year" if relation.target == "year" else "number"
        return self._checked_value(text, form, str(value), needs, family, program)

    def _checked(
        self, text: str, answer: int, needs: Sequence[Need], trail: Sequence[int], family: str, program: Program
    ) -> Question | None:
        """Return a question whose answer is an entity; None if it has a shortcut."""
        entities = self._graph.entities
        found = entities[answer]
        least = reduced(needs)
        if least is None or answer in self._graph.favorites or found.name.lower() in self._shared:
            return None
        words = self._words[answer]
        if any(words & self._words[one] for one in trail) or words & set(_words(text)):
            return None
        last = least[-1]
        if any(answer in self._objects(one) for one in trail if one not in last):
            return None
        return Question(text, "name", (found.name, *found.aliases), least, family, program)

    def _checked_value(
        self, text: str, form: AnswerForm, answer: str, needs: Sequence[Need], family: str, program: Program
    ) -> Question | None:
        """Return a question whose answer is a value; None if it has a shortcut."""
        least = reduced(needs)
        if least is None or answer in _words(text):
            return None
        return Question(text, form, (answer,), least, family, program)

    def _objects(self, entity: int) -> set[int]:
        """Return the entities that the facts about an entity name."""
        graph = self._graph
        kind = graph.entities[entity].kind
        named = {
            graph.facts[one.name][entity] for one in OF_KIND[kind] if one.to_entity and entity in graph.facts[one.name]
        }
        for terms in graph.terms.values():
            named.update(term.holder for term in terms.get(entity, ()))
        return named


def decided_by(question: Question, needs: Sequence[Need]) -> Question:
    """Return a question with the facts that decide between candidates, of which another need may have implied one."""
    places = (next(index for index, least in enumerate(question.needs) if least <= need) for need in needs)
    return replace(question, deciding=tuple(sorted(set(places))))


Family = Callable[[QuestionMaker, int], Question | None]

_CHAIN, _EXTREME, _BOTH, _COUNT = QuestionMaker.chain, QuestionMaker.extreme, QuestionMaker.both, QuestionMaker.count
FAMILIES: Final[Mapping[Difficulty, tuple[Family, ...]]] = {
    "easy": (_CHAIN, _CHAIN, _CHAIN, _EXTREME, _BOTH),
    "medium": (_CHAIN, _CHAIN, _EXTREME, _BOTH, _BOTH, _COUNT, QuestionMaker.in_year),
    "hard": (
        _CHAIN, _EXTREME, _BOTH, _BOTH, _COUNT, QuestionMaker.in_year, QuestionMaker.in_year, QuestionMaker.compare,
        QuestionMaker.compare, QuestionMaker.difference, QuestionMaker.difference,
    ),
}  # fmt: skip
"""The families of each level; one that is listed twice is tried twice as often."""


def reduced(needs: Sequence[Need]) -> tuple[Need, ...] | None:
    """Return the needs without those that another one implies; None if two of the rest share a page.

    The last of the result is the last need, or the one that implies it.
    """
    if len(frozenset().union(*needs)) == sum(map(len, needs)):
        return tuple(needs)  # no two share a page, which is the usual case
    least: list[Need] = []
    for index, need in enumerate(needs):
        if not any(other < need or (other == need and later > index) for later, other in enumerate(needs)):
            least.append(need)
    pages = [page for need in least for page in need]
    if len(set(pages)) < len(pages):
        return None
    final = next(need for need in least if need <= needs[-1])
    return (*(need for need in least if need is not final), final)


def mention(entity: Entity) -> str:
    """Return how a question names an entity."""
    if entity.kind == "book":
        return f'"{entity.title}"'
    return f"the {entity.title}" if entity.article else entity.title


_COMMON: Final = frozenset(
    "the of and a in for lake river university academy press works mills prize medal bridge park field theater museum "
    "lighthouse observatory water tower upper new saint company shipping timber brewery glassworks instruments".split()
)


def _words(text: str) -> list[str]:
    """Return the words of a name that say who it is."""
    return [word for word in _WORD.findall(text.lower()) if word not in _COMMON]


@lru_cache(maxsize=72)
def questions_of(world: str, difficulty: Difficulty, count: int) -> Sequence[Question]:
    """Return questions about a world, all different.

    Raises:
        ValueError: there is no such world.
    """
    rng = random.Random(digest(f"search:questions:{world}:{difficulty}:{graph_of(world).entities[0].name}"))
    maker = QuestionMaker(graph_of(world), layout_of(world), rng)
    made: dict[Program, Question] = {}
    while len(made) < count:
        question = maker.make(difficulty)
        made.setdefault(question.program, question)
    return tuple(made.values())
