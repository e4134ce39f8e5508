"""Compare an answer with the right one, and citations with the evidence.

An answer is one name, number, year or date, and nothing else; a list of several is none of them. Letters that only
look like others make another name, because names are compared as ASCII.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from ludus.environments.search.questions import AnswerForm
from ludus.environments.search.world.pages import MONTHS
from ludus.environments.search.world.schema import RELATIONS

LONGEST: Final = 200
"""The most characters of an answer."""

_UNITS: Final = frozenset(one.unit for one in RELATIONS.values() if one.unit) | {"years"}
_NUMBER: Final = re.compile(r"(\d{1,3}(?:,\d{3})+|\d{1,12})(?: ([a-z ]+))?", re.ASCII)
_YEAR: Final = re.compile(r"\d{4}", re.ASCII)
_DAY_FIRST: Final = re.compile(r"(\d{1,2}) ([a-z]+),? (\d{4})", re.ASCII)
_MONTH_FIRST: Final = re.compile(r"([a-z]+) (\d{1,2}),? (\d{4})", re.ASCII)
_ISO: Final = re.compile(r"(\d{4})-(\d{2})-(\d{2})", re.ASCII)
_MONTH_NUMBERS: Final = {month.lower(): number for number, month in enumerate(MONTHS, 1)}


class Support(NamedTuple):
    """How well citations prove an answer.

    Attributes:
        stated: whether one of them states the answer.
        recall: the share of the needed facts that they state.
        precision: the share of them that is needed.
    """

    stated: bool
    recall: float
    precision: float


def same_answer(given: str, accepted: Collection[str], form: AnswerForm) -> bool:
    """Return whether an answer is one of the accepted ones.

    Case, outer quotes, repeated spaces, a final period and "the" at the beginning do not count. Numbers may have commas
    and the unit of the question; dates may be written as 14 March 1893, March 14, 1893 or 1893-03-14.
    """
    found = canonical(given, form)
    return found is not None and any(found == canonical(one, form) for one in accepted)


def canonical(text: str, form: AnswerForm) -> str | None:
    """Return the form of an answer in which equal answers are equal texts; None if it has not that form."""
    plain = " ".join(text.replace("\u2019", "'").split())
    if len(text) > LONGEST or not plain.isascii():
        return None
    plain = plain.strip("\"'*_` ").removesuffix(".").strip("\"'*_` ").lower()
    if form == "year":
        return plain if _YEAR.fullmatch(plain) else None
    if form == "number":
        found = _NUMBER.fullmatch(plain)
        if found is None or (found[2] and found[2] not in _UNITS):
            return None
        return str(int(found[1].replace(",", "")))
    if form == "date":
        return _date(plain)
    return plain.removeprefix("the ") or None


def _date(plain: str) -> str | None:
    if found := _ISO.fullmatch(plain):
        year, month, day = map(int, found.groups())
        return f"{year}-{month}-{day}"
    if found := _DAY_FIRST.fullmatch(plain):
        day_text, name, year_text = found.groups()
    elif found := _MONTH_FIRST.fullmatch(plain):
        name, day_text, year_text = found.groups()
    else:
        return None
    number = _MONTH_NUMBERS.get(name)
    return None if number is None else f"{int(year_text)}-{number}-{int(day_text)}"


def supported(cited: Collection[int], needs: Sequence[Collection[int]]) -> Support:
    """Return how well pages prove an answer.

    Args:
        cited: the numbers of the cited pages.
        needs: for each needed fact, the pages that state it; no page is in two of them. The last fact is the answer.
    """
    covered = [any(page in need for page in cited) for need in needs]
    useful = sum(covered)
    return Support(covered[-1], useful / len(needs), useful / len(cited) if cited else 0.0)
