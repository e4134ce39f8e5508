"""The kinds of entities, the relations between them, and the wording of each relation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal[
    "region", "river", "lake", "town", "person", "company", "university", "book", "award", "festival", "club",
    "species", "structure",
]  # fmt: skip
Value = Literal["year", "number", "date"]

KINDS: Final[Mapping[Kind, str]] = {
    "region": "region", "river": "river", "lake": "lake", "town": "town", "person": "person", "company": "company",
    "university": "university", "book": "book", "award": "award", "festival": "festival", "club": "sports club",
    "species": "species", "structure": "structure",
}  # fmt: skip
"""The kinds of entities, each with the noun that questions and pages use."""

PRESENT: Final = 1990
"""The year that the encyclopedia describes: current figures are those of this year."""


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation of a subject to one object: an entity, a year, a number or a date.

    Attributes:
        name: the name, which also says the kind of the subject, such as `company.founder`.
        subject: the kind of the subject.
        target: the kind of the object, or the type of a value.
        label: its name in the infobox.
        nouns: phrases for the object, with `{s}` for the subject. They branch to the right, so that they can be nested
            without ambiguity: "the birthplace of the founder of X".
        inverse: a phrase for the subject, with `{o}` for the object; empty if questions never go that way. Questions
            use it only where there is exactly one such subject.
        sentences: statements on the subject's page, with `{s}` and `{o}`. The first begins with `{s}`, so that the
            rest of it is a condition: "Which company was founded by …".
        question: the question for a value; empty for entities.
        unit: the unit of a number.
        mirrored: the statement on the object's page; empty if that page does not state the fact.
    """

    name: str
    subject: Kind
    target: Kind | Value
    label: str
    nouns: tuple[str, ...]
    sentences: tuple[str, ...]
    inverse: str = ""
    question: str = ""
    unit: str = ""
    mirrored: str = ""

    @property
    def to_entity(self) -> bool:
        """Whether the object is an entity."""
        return self.target in KINDS

    @property
    def condition(self) -> str:
        """The first sentence without its subject and period, such as "was founded by {o}"."""
        return self.sentences[0].removeprefix("{s} ").removesuffix(".")


def _founded(kind: Kind, *sentences: str) -> Relation:
    return Relation(
        f"{kind}.founded", kind, "year", "Founded", ("the founding of {s}",), sentences,
        question="In which year was {s} founded?",
    )  # fmt: skip


_ALL: Final = (
    Relation("person.born", "person", "date", "Born", ("the date of birth of {s}",),
             ("{s} was born on {o}.", "The parish register gives {o} as the day on which {s} was born."),
             question="On what date was {s} born?"),
    Relation("person.birthplace", "person", "town", "Birthplace", ("the birthplace of {s}", "the native town of {s}"),
             ("{s} was a native of {o}.", "{s} came from {o}.", "The family of {s} lived in {o}, where {s} was born.")),
    Relation("person.school", "person", "university", "Education", ("the university attended by {s}",
             "the alma mater of {s}"), ("{s} studied at {o}.", "{s} took a degree at {o}.",
             "After school, {s} enrolled at {o}.")),
    Relation("person.teacher", "person", "person", "Teacher", ("the teacher of {s}", "the mentor of {s}"),
             ("{s} was taught by {o}.", "{o} was the teacher of {s}.", "The most important mentor of {s} was {o}."),
             inverse="the pupil of {o}"),
    Relation("person.spouse", "person", "person", "Spouse", ("the spouse of {s}",),
             ("{s} was married to {o}.", "{s} married {o}."), mirrored="{o} was married to {s}."),
    Relation("person.father", "person", "person", "Father", ("the father of {s}",),
             ("{s} was a child of {o}, the father of the family.", "The father of {s} was {o}."),
             inverse="the only recorded child of {o}"),
    Relation("town.region", "town", "region", "Region", ("the region of {s}", "the region around {s}"),
             ("{s} lies in {o}.", "{s} belongs to the region of {o}.")),
    Relation("town.river", "town", "river", "River", ("the river at {s}", "the river that flows through {s}"),
             ("{s} lies on {o}.", "{s} was built on the banks of {o}.", "{o} flows through {s}.")),
    Relation("town.twin", "town", "town", "Twin town", ("the twin town of {s}",),
             ("{s} has been twinned with {o} for decades.", "The twin town of {s} is {o}."),
             mirrored="{o} and {s} are twin towns."),
    _founded("town", "{s} was founded in {o}.", "The charter of {s} dates from {o}, the year of its founding."),
    Relation("town.population", "town", "number", "Population (1990)", ("the population of {s} in 1990",),
             ("{s} had {o} at the census of 1990.", "The census of 1990 counted {o} in {s}."),
             question="How many inhabitants did {s} have at the census of 1990?", unit="inhabitants"),
    Relation("town.elevation", "town", "number", "Elevation", ("the elevation of {s}",),
             ("{s} lies at an elevation of {o}.", "The market square of {s} is {o} above the sea."),
             question="What is the elevation of {s}, in meters?", unit="meters"),
    Relation("region.capital", "region", "town", "Capital", ("the capital of {s}", "the administrative seat of {s}"),
             ("{s} has {o} as its capital.", "{s} is governed from {o}, its capital."),
             inverse="the region whose capital is {o}"),
    Relation("region.area", "region", "number", "Area", ("the area of {s}",),
             ("{s} covers {o}.", "The area of {s} is {o}."), question="What is the area of {s}, in square kilometers?",
             unit="square kilometers"),
    Relation("river.mouth", "river", "lake", "Mouth", ("the lake at the mouth of {s}",),
             ("{s} flows into {o}.", "{s} ends in {o}."), inverse="the only river that flows into {o}"),
    Relation("river.source", "river", "region", "Source", ("the region of the source of {s}",),
             ("{s} rises in {o}.", "The springs of {s} are in {o}."),
             inverse="the only river that rises in {o}"),
    Relation("river.length", "river", "number", "Length", ("the length of {s}",),
             ("{s} is {o} long.", "From source to mouth, {s} measures {o}."),
             question="How long is {s}, in kilometers?", unit="kilometers"),
    Relation("lake.region", "lake", "region", "Region", ("the region of {s}",),
             ("{s} lies in {o}.", "{s} is a lake in {o}."), inverse="the only lake in {o}"),
    Relation("lake.area", "lake", "number", "Area", ("the area of {s}",),
             ("{s} covers {o}.", "The surface of {s} measures {o}."),
             question="What is the area of {s}, in square kilometers?", unit="square kilometers"),
    Relation("lake.depth", "lake", "number", "Greatest depth", ("the depth of {s}",),
             ("{s} is up to {o} deep.", "At its deepest point, {s} measures {o}."),
             question="What is the greatest depth of {s}, in meters?", unit="meters"),
    Relation("company.founder", "company", "person", "Founder", ("the founder of {s}",),
             ("{s} was founded by {o}.", "The founder of {s} was {o}.", "{o} started {s} with borrowed money."),
             inverse="the company founded by {o}"),
    Relation("company.seat", "company", "town", "Headquarters", ("the town of the headquarters of {s}",),
             ("{s} has its headquarters in {o}.", "The head office of {s} is in {o}."),
             inverse="the only company with its headquarters in {o}"),
    Relation("company.parent", "company", "company", "Parent company", ("the parent company of {s}",),
             ("{s} is owned by {o}.", "{s} is a subsidiary of {o}.", "{o} bought {s} and still owns it."),
             inverse="the only subsidiary of {o}"),
    _founded("company", "{s} was founded in {o}.", "The company register lists {s} as founded in {o}."),
    Relation("company.employees", "company", "number", "Employees (1990)", ("the workforce of {s} in 1990",),
             ("{s} had {o} in 1990.", "The report of 1990 gives {o} for {s}."),
             question="How many employees did {s} have in 1990?", unit="employees"),
    Relation("university.town", "university", "town", "Town", ("the town of {s}", "the town that hosts {s}"),
             ("{s} is in {o}.", "The halls of {s} stand in {o}."), inverse="the only university in {o}"),
    Relation("university.rector", "university", "person", "First rector", ("the first rector of {s}",),
             ("{s} had {o} as its first rector.", "{o} was called as the first rector of {s}."),
             inverse="the university whose first rector was {o}"),
    _founded("university", "{s} was founded in {o}.", "A decree of {o} founded {s}."),
    Relation("university.students", "university", "number", "Students (1990)", ("the number of students of {s}",),
             ("{s} had {o} in 1990.", "The rolls of 1990 list {o} at {s}."),
             question="How many students did {s} have in 1990?", unit="students"),
    Relation("book.author", "book", "person", "Author", ("the author of {s}", "the writer of {s}"),
             ("{s} is a work by {o}.", "{o} wrote {s}.", "The author of {s} is {o}."),
             inverse="the only book by {o}"),
    Relation("book.publisher", "book", "company", "Publisher", ("the publisher of {s}",),
             ("{s} was published by {o}.", "{o} brought {s} out."), inverse="the only book published by {o}"),
    Relation("book.setting", "book", "town", "Setting", ("the setting of {s}", "the town depicted in {s}"),
             ("{s} is set in {o}.", "The plot of {s} takes place in {o}."), inverse="the only book set in {o}"),
    Relation("book.dedicatee", "book", "person", "Dedicated to", ("the dedicatee of {s}",),
             ("{s} is dedicated to {o}.", "A line before the first chapter dedicates {s} to {o}."),
             inverse="the book dedicated to {o}"),
    Relation("book.year", "book", "year", "Published", ("the publication of {s}",),
             ("{s} appeared in {o}.", "{s} was first published in {o}."),
             question="In which year was {s} first published?"),
    Relation("book.pages", "book", "number", "Length", ("the length of {s}",),
             ("{s} runs to {o} in the first edition.", "The first edition of {s} has {o}."),
             question="How many pages does the first edition of {s} have?", unit="pages"),
    Relation("award.sponsor", "award", "company", "Sponsor", ("the sponsor of {s}",),
             ("{s} is sponsored by {o}.", "{o} pays for {s}."), inverse="the award sponsored by {o}"),
    Relation("award.namesake", "award", "person", "Named after", ("the namesake of {s}",),
             ("{s} is named after {o}.", "The name of {s} honors {o}."), inverse="the award named after {o}"),
    Relation("award.established", "award", "year", "Established", ("the establishment of {s}",),
             ("{s} was established in {o}.", "{s} has existed since {o}, the year of its establishment."),
             question="In which year was {s} established?"),
    Relation("festival.town", "festival", "town", "Town", ("the host town of {s}", "the town that hosts {s}"),
             ("{s} is held in {o}.", "Each year, {s} takes place in {o}."), inverse="the only festival held in {o}"),
    Relation("festival.initiator", "festival", "person", "Initiator", ("the initiator of {s}",),
             ("{s} was initiated by {o}.", "The idea of {s} came from {o}, its initiator."),
             inverse="the festival initiated by {o}"),
    Relation("festival.first", "festival", "year", "First held", ("the first edition of {s}",),
             ("{s} was first held in {o}.", "The first edition of {s} took place in {o}."),
             question="In which year was {s} first held?"),
    Relation("festival.visitors", "festival", "number", "Visitors (1990)", ("the attendance of {s} in 1990",),
             ("{s} drew {o} in 1990.", "The organizers of {s} counted {o} in 1990."),
             question="How many visitors did {s} have in 1990?", unit="visitors"),
    Relation("club.town", "club", "town", "Town", ("the home town of {s}",),
             ("{s} is at home in {o}.", "{s} comes from {o}."), inverse="the only sports club from {o}"),
    Relation("club.ground", "club", "structure", "Home ground", ("the home ground of {s}",),
             ("{s} plays at {o}.", "The home ground of {s} is {o}."), inverse="the sports club that plays at {o}"),
    Relation("club.founder", "club", "person", "Founder", ("the founder of {s}",),
             ("{s} was founded by {o}.", "{o} gathered the first members of {s} and counts as its founder."),
             inverse="the sports club founded by {o}"),
    _founded("club", "{s} was founded in {o}.", "The statutes of {s} date from {o}, the year of its founding."),
    Relation("club.titles", "club", "number", "League titles", ("the number of league titles of {s}",),
             ("{s} has won {o} up to 1990.", "Up to 1990, {s} collected {o}."),
             question="How many league titles had {s} won up to 1990?", unit="league titles"),
    Relation("species.discoverer", "species", "person", "Described by", ("the discoverer of {s}",),
             ("{s} was discovered by {o}.", "{o} discovered {s}."), inverse="the species discovered by {o}"),
    Relation("species.habitat", "species", "lake", "Habitat", ("the lake inhabited by {s}",),
             ("{s} lives only in {o}.", "{s} is found in {o} and nowhere else."),
             inverse="the only species that lives in {o}"),
    Relation("species.described", "species", "year", "Described in", ("the first description of {s}",),
             ("{s} was first described in {o}.", "The first description of {s} appeared in {o}."),
             question="In which year was {s} first described?"),
    Relation("species.length", "species", "number", "Body length", ("the body length of {s}",),
             ("{s} grows to {o}.", "Adult specimens of {s} measure {o}."),
             question="What is the body length of {s}, in millimeters?", unit="millimeters"),
    Relation("structure.architect", "structure", "person", "Architect", ("the architect of {s}",),
             ("{s} was designed by {o}.", "{o} drew the plans of {s}.", "The architect of {s} was {o}."),
             inverse="the structure designed by {o}"),
    Relation("structure.town", "structure", "town", "Location", ("the location of {s}",),
             ("{s} is located in {o}.", "{s} was built in {o}."), inverse="the only structure in {o}"),
    Relation("structure.opened", "structure", "year", "Opened", ("the opening of {s}",),
             ("{s} was opened in {o}.", "{s} opened in {o}."), question="In which year was {s} opened?"),
    Relation("structure.height", "structure", "number", "Height", ("the height of {s}",),
             ("{s} is {o} high.", "{s} reaches a height of {o}."), question="How high is {s}, in meters?",
             unit="meters"),
)  # fmt: skip

RELATIONS: Final[Mapping[str, Relation]] = {relation.name: relation for relation in _ALL}
"""All relations with one object for each subject, by name."""

OF_KIND: Final[Mapping[Kind, tuple[Relation, ...]]] = {
    kind: tuple(relation for relation in _ALL if relation.subject == kind) for kind in KINDS
}
"""The relations whose subject is of a kind."""

TO_KIND: Final[Mapping[Kind, tuple[Relation, ...]]] = {
    kind: tuple(relation for relation in _ALL if relation.target == kind and relation.inverse) for kind in KINDS
}
"""The relations that questions follow backward from an object of a kind."""


@dataclass(frozen=True, slots=True)
class Office:
    """An office of an entity that one person holds after another, or an award with a winner every few years.

    Attributes:
        name: the name, such as `town.mayor`.
        subject: the kind of the entity.
        noun: a phrase for its holder in a year, with `{s}` and `{y}`.
        sentence: the statement on the entity's page, with `{o}`, `{a}` (the first year) and `{b}` (the last one).
        title: the heading of the section.
    """

    name: str
    subject: Kind
    noun: str
    sentence: str
    title: str


OFFICES: Final[Mapping[str, Office]] = {
    office.name: office
    for office in (
        Office("town.mayor", "town", "the mayor of {s} in {y}", "{o} was mayor from {a} to {b}.", "Mayors"),
        Office("company.director", "company", "the director of {s} in {y}", "{o} was director from {a} to {b}.",
               "Directors"),
        Office("club.coach", "club", "the coach of {s} in {y}", "{o} coached the team from {a} to {b}.", "Coaches"),
        Office("award.winner", "award", "the winner of {s} for {y}", "{a}: {o}", "Winners"),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Listing:
    """The list pages of a kind, one for each region or author.

    Attributes:
        kind: the kind of the entities on the list.
        plural: the noun in titles.
        place: the relation that leads from a listed entity to the town that names its region; empty for towns.
        columns: the relations whose facts the list states for each entity.
    """

    kind: Kind
    plural: str
    place: str
    columns: tuple[str, ...]


LISTINGS: Final = (
    Listing("town", "towns", "", ("town.population", "town.elevation", "town.founded")),
    Listing("company", "companies", "company.seat", ("company.seat", "company.founded", "company.employees")),
    Listing("club", "sports clubs", "club.town", ("club.town", "club.founded", "club.titles")),
    Listing("structure", "structures", "structure.town",
            ("structure.town", "structure.opened", "structure.height")),
)  # fmt: skip
"""The lists of each region. Besides them, each author of three books or more has a list of works."""

WORKS: Final = Listing("book", "works", "book.author", ("book.year", "book.pages"))
"""The list of an author's works."""
