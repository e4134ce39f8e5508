"""Draw the entities of a world and the facts about them.

How this works. Kinds are drawn one after another, each from those before it: people need towns to be born in, companies
need people who found them. Years fit together: a founder is an adult at the founding, a teacher is older than the
pupil. Facts are tables: `facts["company.founder"][company]` is a person. Entities are numbers, years and numbers are
themselves, and a date is the number `yyyymmdd`. What changes over the years, such as mayors and winners, are `terms`.
"""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ludus.environments.search.world.names import NameMaker
from ludus.environments.search.world.schema import PRESENT, RELATIONS, Kind
from ludus.server.authoring.partition import SplitType, digest

SIZES: Final[Mapping[Kind, int]] = {
    "region": 7, "lake": 14, "river": 24, "town": 64, "person": 220, "university": 18, "company": 56, "structure": 72,
    "book": 96, "award": 14, "festival": 24, "club": 38, "species": 36,
}  # fmt: skip
"""How many entities of each kind a world has."""

_GROUNDS: Final = 28
"""The structures that are the home ground of a club."""

_OCCUPATIONS: Final = ("painter", "engineer", "botanist", "novelist", "merchant", "physician", "composer", "architect",
                       "chemist", "lawyer", "printer", "surveyor", "historian", "shipowner")  # fmt: skip
_INDUSTRIES: Final = (("Shipping Company", "shipping"), ("Press", "publishing"), ("Works", "engineering"),
                      ("Mills", "textiles"), ("Glassworks", "glass"), ("Brewery", "brewing"), ("Press", "publishing"),
                      ("Instruments", "instruments"), ("Timber Company", "timber"))  # fmt: skip
_BUILDINGS: Final = (("Bridge", "bridge"), ("Lighthouse", "lighthouse"), ("Observatory", "observatory"),
                     ("Museum", "museum"), ("Theater", "theater"), ("Water Tower", "water tower"))  # fmt: skip
_ANIMALS: Final = ("newt", "perch", "pond snail", "dragonfly", "water beetle", "char", "crayfish", "whitefish")
_GENRES: Final = ("novel", "travelogue", "collection of stories", "play", "family saga", "memoir")
_TEAMS: Final = ("Rovers", "Athletic", "Wanderers", "Rowing Club", "United", "Harriers")
_FESTIVALS: Final = ("Lantern Festival", "Music Days", "Regatta", "Book Fair", "Harvest Fair", "Kite Meeting")
_TIMES: Final = ("Prize", "Medal")


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity.

    Attributes:
        id: its number, which is also the number of its page.
        kind: its kind.
        name: its name.
        title: the title of its page: the name, with a word in parentheses where several entities share it.
        article: whether sentences put "the" before its name.
        sort: what it is more exactly, such as "lighthouse" or "botanist".
        aliases: other names, which its page gives.
    """

    id: int
    kind: Kind
    name: str
    title: str
    article: bool
    sort: str
    aliases: tuple[str, ...] = ()


class Term(NamedTuple):
    """A time in office, or one award of a prize, whose first and last year are the same."""

    holder: int
    first: int
    last: int


class Graph:
    """The entities and facts of a world.

    Attributes:
        name: the name of the world.
        entities: all entities; the number of each is its place.
        kinds: the numbers of the entities of each kind.
        facts: for each relation, the object of each subject that has one.
        terms: for each office, the terms of each entity in order.
    """

    def __init__(
        self,
        name: str,
        entities: Sequence[Entity],
        facts: Mapping[str, Mapping[int, int]],
        terms: Mapping[str, Mapping[int, Sequence[Term]]],
    ) -> None:
        self.name = name
        self.entities = tuple(entities)
        self.facts = facts
        self.terms = terms
        self.kinds: dict[Kind, list[int]] = {kind: [] for kind in SIZES}
        for entity in entities:
            self.kinds[entity.kind].append(entity.id)
        self.subjects: dict[str, dict[int, list[int]]] = {}
        """For each relation between entities, the subjects of each object: the facts backward."""
        self.mentions = [0] * len(entities)
        """How many facts have an entity as their object or holder."""
        self.incoming: list[list[tuple[str, int]]] = [[] for _ in entities]
        """The facts whose object an entity is, as relations and subjects."""
        for relation, table in facts.items():
            if RELATIONS[relation].to_entity:
                backward = self.subjects[relation] = {}
                for subject, target in table.items():
                    backward.setdefault(target, []).append(subject)
                    self.mentions[target] += 1
                    self.incoming[target].append((relation, subject))
        for offices in terms.values():
            for terms_of_one in offices.values():
                for term in terms_of_one:
                    self.mentions[term.holder] += 1
        self.favorites = {max(ids, key=lambda one: (self.mentions[one], -one)) for ids in self.kinds.values()}
        """The most frequent entity of each kind, which is never an answer."""

    def region_of(self, entity: int) -> int | None:
        """Return the region of a town, or of an entity that is in a town; None if it has none."""
        place = {"company": "company.seat", "club": "club.town", "structure": "structure.town"}
        kind = self.entities[entity].kind
        town = entity if kind == "town" else self.facts[place[kind]].get(entity)
        return None if town is None else self.facts["town.region"].get(town)


def draw_graph(name: str, split: SplitType, secret: str = "") -> Graph:
    """Draw the graph of a world.

    Args:
        name: the world's name, from which everything follows.
        split: the split that its names belong to.
        secret: a secret from which everything follows, too; empty for a world that everybody can compute.
    """
    rng = random.Random(digest(f"search:world:{name}:{secret}"))
    return _Drawing(name, rng, NameMaker(rng, split)).graph()


class _Drawing:
    """Draws one world, a kind at a time."""

    def __init__(self, name: str, rng: random.Random, names: NameMaker) -> None:
        self.name = name
        self.rng = rng
        self.names = names
        self.entities: list[Entity] = []
        self.facts: dict[str, dict[int, int]] = {relation: {} for relation in RELATIONS}
        self.terms: dict[str, dict[int, list[Term]]] = {
            "town.mayor": {}, "company.director": {}, "club.coach": {}, "award.winner": {},
        }  # fmt: skip
        self.born: dict[int, int] = {}
        self.ages: list[tuple[int, int]] = []
        self.roots: list[tuple[Kind, str]] = []

    def graph(self) -> Graph:
        """Draw all kinds."""
        self.regions = self._regions()
        self.lakes = self._lakes()
        self.rivers = self._rivers()
        self.towns = self._towns()
        self.people = self._people()
        self._capitals()
        self.universities = self._universities()
        self._lives()
        self.companies = self._companies()
        self._structures()
        self._books()
        self._awards()
        self._festivals()
        self._clubs()
        self._species()
        return Graph(self.name, self.entities, self.facts, self.terms)

    def _add(
        self, kind: Kind, name: str, sort: str = "", *, article: bool = False, aliases: tuple[str, ...] = (),
        title: str = "",
    ) -> int:  # fmt: skip
        entity = Entity(len(self.entities), kind, name, title or name, article, sort, aliases)
        self.entities.append(entity)
        return entity.id

    def _set(self, relation: str, subject: int, value: int | None) -> None:
        if value is not None:
            self.facts[relation][subject] = value

    def _regions(self) -> list[int]:
        made = []
        for _ in range(SIZES["region"]):
            made.append(self._add("region", self.names.root("place")))
            self._set("region.area", made[-1], self.rng.randrange(1_800, 24_000))
        return made

    def _lakes(self) -> list[int]:
        made = []
        for _ in range(SIZES["lake"]):
            lake = self._add("lake", f"Lake {self._root('word', 'lake')}")
            self._set("lake.region", lake, self.rng.choice(self.regions))
            self._set("lake.area", lake, self.rng.randrange(11, 900))
            self._set("lake.depth", lake, self.rng.randrange(9, 320))
            made.append(lake)
        return made

    def _rivers(self) -> list[int]:
        made = []
        for _ in range(SIZES["river"]):
            river = self._add("river", f"{self._root('word', 'river')} River", article=True)
            self._set("river.mouth", river, self.rng.choice(self.lakes))
            self._set("river.source", river, self.rng.choice(self.regions))
            self._set("river.length", river, self.rng.randrange(24, 780))
            made.append(river)
        return made

    def _towns(self) -> list[int]:
        rng, made = self.rng, list[int]()
        for number in range(SIZES["town"]):
            near = self.entities[rng.choice(made)].name if number > 12 and rng.random() < 0.2 else ""
            if near and " " not in near:
                name = self.names.similar(near)
            else:
                name = self._root("place", "town")
            if rng.random() < 0.12:
                name = f"{rng.choice(('Upper', 'New', 'Saint'))} {name}"
            aliases = (self.names.root("place"),) if rng.random() < 0.2 else ()
            town = self._add("town", name, aliases=aliases)
            self._set("town.region", town, rng.choice(self.regions))
            self._set("town.river", town, rng.choice(self.rivers))
            self._set("town.founded", town, rng.randrange(1150, 1780))
            self._set("town.population", town, rng.randrange(2_100, 190_000))
            self._set("town.elevation", town, rng.randrange(8, 1_400))
            made.append(town)
        pairs = rng.sample(made, 30)
        for one, other in zip(pairs[::2], pairs[1::2], strict=True):
            self.facts["town.twin"] |= {one: other, other: one}
        return made

    def _people(self) -> list[int]:
        rng = self.rng
        lasts = [self._root("last", "person") for _ in range(SIZES["person"] * 3 // 5)]
        firsts = [self.names.root("first") for _ in range(60)]
        used: set[str] = set()
        made: list[int] = []
        for number in range(SIZES["person"]):
            sort = rng.choice(_OCCUPATIONS)
            while (name := f"{rng.choice(firsts)} {rng.choice(lasts)}") in used:
                pass
            title = ""
            if number % 18 == 17:  # two people share a name
                other = self.entities[made[-1]]
                name, sort = other.name, rng.choice([one for one in _OCCUPATIONS if one != other.sort])
                title = f"{name} ({sort})"
                self.entities[other.id] = Entity(
                    other.id, "person", name, f"{name} ({other.sort})", other.article, other.sort, other.aliases
                )
            used.add(name)
            pen = (f"{rng.choice(firsts)} {self.names.root('last')}",) if sort == "novelist" and not title else ()
            person = self._add("person", name, sort, aliases=pen, title=title)
            year = rng.randrange(1800, 1951)
            self.born[person] = year
            self._set("person.born", person, year * 10_000 + rng.randrange(1, 13) * 100 + rng.randrange(1, 29))
            if rng.random() < 0.9:
                self._set("person.birthplace", person, rng.choice(self.towns))
            made.append(person)
        self.ages = sorted((year, person) for person, year in self.born.items())
        return made

    def _capitals(self) -> None:
        for region in self.regions:
            inside = [town for town in self.towns if self.facts["town.region"][town] == region]
            self._set("region.capital", region, self.rng.choice(inside) if inside else None)
        for town in self.towns:
            self._hold("town.mayor", town, self.rng.randrange(1880, 1930))

    def _universities(self) -> list[int]:
        made = []
        for town in self.rng.sample(self.towns, SIZES["university"]):
            if self.rng.random() < 0.6:
                name = f"University of {self.entities[town].name}"
            else:
                name = f"{self._root('last', 'university')} Academy"
            university = self._add("university", name, article=True)
            year = self.rng.randrange(1835, 1900)
            self._set("university.town", university, town)
            self._set("university.founded", university, year)
            self._set("university.rector", university, self._person(year - 62, year - 32))
            self._set("university.students", university, self.rng.randrange(900, 31_000))
            made.append(university)
        return made

    def _lives(self) -> None:
        """Draw schools, teachers and families."""
        rng, facts = self.rng, self.facts
        for person in self.people:
            year = self.born[person]
            open_ones = [one for one in self.universities if facts["university.founded"][one] <= year + 19]
            if open_ones and rng.random() < 0.85:
                self._set("person.school", person, rng.choice(open_ones))
            for relation, share, low, high in (("person.teacher", 0.6, 50, 14), ("person.father", 0.3, 48, 20)):
                older = self._person(year - low, year - high)
                if rng.random() < share and self.born[older] <= year - high:
                    self._set(relation, person, older)
        single = rng.sample(self.people, 110)
        for one, other in zip(single[::2], single[1::2], strict=True):
            related = other in (facts["person.father"].get(one), facts["person.teacher"].get(one))
            if (
                abs(self.born[one] - self.born[other]) <= 18
                and not related
                and facts["person.father"].get(other) != one
            ):
                facts["person.spouse"] |= {one: other, other: one}

    def _companies(self) -> list[int]:
        rng, made = self.rng, list[int]()
        founded = self.facts["company.founded"]
        for number in range(SIZES["company"]):
            founder = rng.choice(self.people)
            kind, sort = _INDUSTRIES[number % len(_INDUSTRIES)]
            name = f"{self._last(founder) if rng.random() < 0.3 else self._root('last', 'company')} {kind}"
            if any(one.name == name for one in self.entities):
                name = f"{self._root('last', 'company')} {kind}"
            company = self._add("company", name, sort)
            year = self._year_in_life(founder)
            self._set("company.founder", company, founder)
            self._set("company.founded", company, year)
            self._set("company.seat", company, rng.choice(self.towns))
            self._set("company.employees", company, rng.randrange(40, 18_000))
            older = [one for one in made if founded[one] < year]
            if older and rng.random() < 0.45:
                self._set("company.parent", company, rng.choice(older))
            self._hold("company.director", company, year)
            made.append(company)
        return made

    def _structures(self) -> None:
        for number in range(SIZES["structure"] - _GROUNDS):
            suffix, sort = _BUILDINGS[number % len(_BUILDINGS)]
            self._structure(f"{self._root('word', 'structure')} {suffix}", sort, self.rng.choice(self.towns))

    def _structure(self, name: str, sort: str, town: int) -> int:
        structure = self._add("structure", name, sort, article=sort != "ground")
        architect = self.rng.choice(self.people)
        self._set("structure.architect", structure, architect)
        self._set("structure.town", structure, town)
        self._set("structure.opened", structure, self._year_in_life(architect))
        self._set("structure.height", structure, self.rng.randrange(9, 140))
        return structure

    def _books(self) -> None:
        rng = self.rng
        presses = [one for one in self.companies if self.entities[one].sort == "publishing"]
        authors = rng.sample(self.people, 44)
        for number in range(SIZES["book"]):
            author = authors[number % 44] if number < 66 else authors[rng.randrange(12)]
            title = self.names.title(self.entities[rng.choice(self.towns)].name)
            book = self._add("book", title, rng.choice(_GENRES))
            year = self._year_in_life(author)
            older = [one for one in presses if self.facts["company.founded"][one] <= year]
            self._set("book.author", book, author)
            self._set("book.year", book, year)
            self._set("book.pages", book, rng.randrange(96, 880))
            self._set("book.publisher", book, rng.choice(older) if older else None)
            self._set("book.setting", book, rng.choice(self.towns))
            if rng.random() < 0.6:
                dedicatee = self._person(year - 80, year - 10)
                self._set("book.dedicatee", book, dedicatee if dedicatee != author else None)

    def _awards(self) -> None:
        rng = self.rng
        for number in range(SIZES["award"]):
            year = rng.randrange(1880, 1940)
            namesake = self._person(year - 90, year - 25)
            word = self._last(namesake) if number % 2 else self._root("last", "award")
            name = f"{word} {_TIMES[number // 2 % 2]}"
            if any(one.name == name for one in self.entities):
                name = f"{self._root('last', 'award')} {_TIMES[number // 2 % 2]}"
            award = self._add("award", name, article=True)
            self._set("award.established", award, year)
            self._set("award.namesake", award, namesake)
            self._set("award.sponsor", award, rng.choice(self.companies))
            step = rng.randrange(2, 5)
            years = range(year, PRESENT + 1, step)
            winners = [Term(self._person(one - 78, one - 26), one, one) for one in years]
            self.terms["award.winner"][award] = winners

    def _festivals(self) -> None:
        for number in range(SIZES["festival"]):
            town, initiator = self.rng.choice(self.towns), self.rng.choice(self.people)
            name = f"{self._root('place', 'festival')} {_FESTIVALS[number % len(_FESTIVALS)]}"
            festival = self._add("festival", name, article=True)
            self._set("festival.town", festival, town)
            self._set("festival.initiator", festival, initiator)
            self._set("festival.first", festival, self._year_in_life(initiator))
            self._set("festival.visitors", festival, self.rng.randrange(700, 96_000))

    def _clubs(self) -> None:
        rng = self.rng
        for number in range(SIZES["club"]):
            town, founder = rng.choice(self.towns), rng.choice(self.people)
            word = self.entities[town].name if rng.random() < 0.3 else self._root("place", "club")
            name = f"{word} {_TEAMS[number % len(_TEAMS)]}"
            if any(one.name == name for one in self.entities):
                name = f"{self._root('place', 'club')} {_TEAMS[number % len(_TEAMS)]}"
            ground = None
            if number < _GROUNDS:
                ground = self._structure(
                    f"{self._root('word', 'structure')} {rng.choice(('Park', 'Field'))}", "ground", town
                )
            club = self._add("club", name)
            year = self._year_in_life(founder)
            self._set("club.town", club, town)
            self._set("club.founder", club, founder)
            self._set("club.founded", club, year)
            self._set("club.titles", club, rng.randrange(2, 38))
            self._set("club.ground", club, ground)
            self._hold("club.coach", club, year)

    def _species(self) -> None:
        for number in range(SIZES["species"]):
            discoverer = self.rng.choice(self.people)
            species = self._add(
                "species", f"{self._root('word', 'species')} {_ANIMALS[number % len(_ANIMALS)]}", article=True
            )
            self._set("species.discoverer", species, discoverer)
            self._set("species.habitat", species, self.rng.choice(self.lakes))
            self._set("species.described", species, self._year_in_life(discoverer))
            self._set("species.length", species, self.rng.randrange(6, 620))

    def _root(self, sort: str, kind: Kind) -> str:
        """Return a new word, or seldom one that another kind has, too: such names need disambiguation."""
        if len(self.roots) > 30 and self.rng.random() < 0.15:
            place = self.rng.randrange(len(self.roots))
            if self.roots[place][0] != kind:
                return self.roots.pop(place)[1]
        root = self.names.root(sort)
        self.roots.append((kind, root))
        return root

    def _last(self, person: int) -> str:
        return self.entities[person].name.rpartition(" ")[2]

    def _person(self, low: int, high: int) -> int:
        """Return a person born in a range of years, or else the one born next."""
        first, last = bisect_left(self.ages, (low, 0)), bisect_right(self.ages, (high, 10**9))
        if first < last:
            return self.ages[self.rng.randrange(first, last)][1]
        return self.ages[min(first, len(self.ages) - 1)][1]

    def _year_in_life(self, person: int) -> int:
        return min(self.born[person] + self.rng.randrange(24, 58), PRESENT - 2)

    def _hold(self, office: str, entity: int, year: int) -> None:
        """Draw the terms of an office from a year on."""
        terms = []
        year = max(year, PRESENT - 80)
        while year < PRESENT - 2:
            last = min(year + self.rng.randrange(5, 19), PRESENT)
            if PRESENT - last < 4:
                last = PRESENT
            terms.append(Term(self._person(year - 62, year - 28), year, last))
            year = last
        if terms:
            self.terms[office][entity] = terms
