"""The wording of pages, apart from that of the relations: first sentences, remarks, and statements that mislead.

Remarks hold no facts. Statements that mislead are true in themselves: they say from when they are, or that they are
wrong, and an agent that reads carefully is not misled by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ludus.environments.search.world.schema import Kind

LEADS: Final[Mapping[Kind, tuple[str, ...]]] = {
    "region": ("{s} is one of the regions of the country.", "{s} is a region with a council of its own."),
    "river": ("{s} is a river.", "{s} is a river that is navigable for small boats only."),
    "lake": ("{s} is a freshwater lake.", "{s} is a lake left behind by a glacier."),
    "town": ("{s} is a town.", "{s} is a market town.", "{s} is a town with a well-kept old quarter."),
    "person": ("{s} was a {k}.", "{s} worked as a {k} for most of a long life.", "{s} is remembered as a {k}."),
    "company": ("{s} is a company in the {k} business.", "{s} is a firm known for {k}."),
    "university": ("{s} is a university.", "{s} is a place of higher learning with several faculties."),
    "book": ("{s} is a {k}.", "{s} is a {k} that went through many editions."),
    "award": ("{s} is an award for outstanding work.", "{s} is an award that a jury of five decides on."),
    "festival": ("{s} is a yearly event.", "{s} is an event that ends with a procession."),
    "club": ("{s} is a sports club.", "{s} is a sports club with teams in several age groups."),
    "species": ("{s} is a species of {k}.", "{s} is a rare species of {k}."),
    "structure": ("{s} is a {k}.", "{s} is a listed {k}."),
}
"""The first sentence of a page, with `{s}` for the name and `{k}` for what the entity is more exactly."""

SHORT: Final[Mapping[Kind, str]] = {
    "region": "the region", "river": "the river", "lake": "the lake", "town": "the town", "company": "the company",
    "university": "the university", "book": "the book", "award": "the award", "festival": "the event",
    "club": "the club", "species": "the species", "structure": "the structure",
}  # fmt: skip
"""What sentences call an entity on its own page. People go by their last name."""

REMARKS: Final[Mapping[Kind, tuple[str, ...]]] = {
    "region": (
        "Most of the land is used for grazing.",
        "The roads are closed in heavy snow.",
        "A dialect is spoken that outsiders find hard to follow.",
        "The flag shows a heron over three waves.",
    ),
    "river": (
        "In spring, the water rises quickly.",
        "Anglers value the quiet stretches of the middle course.",
        "Several mills used its water until power lines arrived.",
        "A path for walkers follows the left bank.",
    ),
    "lake": (
        "In winter, the surface freezes for some weeks.",
        "A small ferry crosses in the summer months.",
        "The water is used for drinking.",
        "Reeds cover the shallow end.",
    ),
    "town": (
        "The market is held on Thursdays.",
        "The old walls were taken down when the railway came.",
        "A fire destroyed the granaries, which were rebuilt in brick.",
        "The coat of arms shows a key.",
        "Tanneries and dye works once lined the quay.",
    ),
    "person": (
        "Letters and notebooks are kept in a private collection.",
        "Contemporaries praised a dry sense of humor.",
        "A portrait in oil has been lost.",
        "Travel diaries describe the hardships of the road.",
        "Little is known about the early years.",
        "The estate was divided among several heirs.",
    ),
    "company": (
        "A strike ended with a compromise.",
        "The archive of the firm burned down.",
        "The trademark shows a rooster.",
        "Most of the output is exported.",
        "The firm keeps a small museum.",
    ),
    "university": (
        "The library is open to the public.",
        "The botanical garden is worth a visit.",
        "Lectures were suspended during the great flood.",
        "A bell rings at the beginning of each term.",
    ),
    "book": (
        "Critics disagreed about the ending.",
        "A stage version closed after a few nights.",
        "The manuscript has many corrections in red ink.",
        "It is read in schools.",
        "The first printing sold out within a month.",
    ),
    "award": (
        "The statutes forbid dividing it.",
        "Winners receive a certificate on handmade paper.",
        "The ceremony is held in autumn.",
        "The jury meets behind closed doors.",
    ),
    "festival": (
        "Stalls sell roasted chestnuts.",
        "It was canceled in years of heavy storms.",
        "Volunteers do most of the work.",
        "Visitors come from far away.",
    ),
    "club": (
        "The colors are green and white.",
        "The youth teams train on weekdays.",
        "The members elect the board.",
        "A local derby draws the largest crowds.",
    ),
    "species": (
        "It is active at night.",
        "It is protected by law.",
        "Eggs are laid in early summer.",
        "It is sensitive to polluted water.",
    ),
    "structure": (
        "It was restored with great care.",
        "It is a popular subject of postcards.",
        "The foundations rest on oak piles.",
        "A plaque recalls the workers who built it.",
    ),
}
"""Sentences without facts."""

OUTDATED: Final[Mapping[str, str]] = {
    "town.population": "An almanac of {y} still gave {o} for {s}.",
    "company.employees": "In {y}, {s} had {o}.",
    "university.students": "In {y}, there were {o} at {s}.",
    "festival.visitors": "In {y}, {s} drew {o}.",
    "club.titles": "By {y}, {s} had won {o}.",
}
"""Statements about figures of an earlier year `{y}`."""

MISLEADING: Final[Mapping[str, tuple[str, ...]]] = {
    "person.birthplace": ("An obituary names {o} as the birthplace of {s}, which is wrong.",),
    "person.school": ("A place at {o} was offered to {s}, who declined.",),
    "person.teacher": ("{s} never met {o}, although a popular story claims so.",),
    "town.river": ("{o} no longer reaches {s} since it was diverted.",),
    "region.capital": ("Until {y}, {o} was the capital of {s}.",),
    "river.mouth": ("Old maps show {s} as flowing into {o}, which is an error.",),
    "company.founder": ("Older handbooks name {o} as the founder of {s}; the company register refutes this.",),
    "company.seat": ("Until {y}, the headquarters of {s} were in {o}.",),
    "company.parent": ("Negotiations about a sale of {s} to {o} failed in {y}.",),
    "university.rector": ("{o} was offered the post of first rector of {s}, but declined.",),
    "book.author": ("For some time, {o} was wrongly believed to have written {s}.",),
    "book.publisher": ("{o} had rejected the manuscript of {s}.",),
    "book.setting": ("An early draft of {s} was set in {o}, which the author gave up.",),
    "book.dedicatee": ("A rumor that {s} was meant for {o} is unfounded.",),
    "award.sponsor": ("Until {y}, {s} was paid for by {o}.",),
    "award.namesake": ("A proposal to rename {s} after {o} was rejected in {y}.",),
    "festival.town": ("Until {y}, {s} was held in {o}.",),
    "festival.initiator": ("{o} opposed {s} in the council and was not among its initiators.",),
    "club.ground": ("Until {y}, {s} played at {o}.",),
    "club.founder": ("{o}, who is sometimes named as the founder of {s}, joined only later.",),
    "species.discoverer": ("{o} claimed the discovery of {s}, but withdrew the claim.",),
    "species.habitat": ("Reports of {s} from {o} have proved to be mistaken.",),
    "structure.architect": ("Plans for {s} by {o} were not carried out.",),
}
"""Statements with another object `{o}` of the same kind."""

HISTORY: Final[Mapping[Kind, str]] = {
    "region": "Geography", "river": "Course", "lake": "Description", "town": "Overview", "person": "Life",
    "company": "History", "university": "History", "book": "Publication", "award": "Rules", "festival": "History",
    "club": "History", "species": "Description", "structure": "Construction",
}  # fmt: skip
"""The heading of the section with the facts."""
