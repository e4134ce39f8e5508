"""Reads the facts in a free text: ids, dates, amounts and the like, but neither layout nor courtesies.

How this works. Before facts are read, numbers that say nothing about the work are taken out: the markers of lists,
spans of time ("within 24 hours"), the ends of spans ("until 17:00"), and counts of what is written down ("all 3 of
them"). They are neither facts nor strays, so a text gains nothing from them: a needed number that appears only there is
not stated. Dates, times and amounts are brought into one form first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from ludus.environments._layout import without_markers
from ludus.environments.workplace.policies import RULES
from ludus.environments.workplace.world.words import PRODUCTS, REGIONS, ROOMS, STAGES

PATTERNS: Final = {
    "id": re.compile(r"\b[A-Za-z]-\d+\b"),
    "order": re.compile(r"\b(?:PO-|ERR)\d+\b"),
    "address": re.compile(r"\b[\w.+-]+@[\w.-]+\w"),
    "date": re.compile(r"\b\d{4}-\d\d-\d\d\b"),
    "month": re.compile(r"\b\d{4}-\d\d\b"),
    "time": re.compile(r"\b\d\d?:\d\d\b"),
    "phone": re.compile(r"\+\d\d [\d ]*\d"),
    "version": re.compile(r"\b\d+\.\d+\.\d+\b"),
    "number": re.compile(r"\b\d+\b"),
}
"""Kinds of facts, in the order in which they are taken out of a text."""
LISTS: Final[Mapping[str, tuple[str, ...]]] = {
    "code": tuple(RULES), "product": PRODUCTS, "region": REGIONS, "tier": ("standard", "silver", "gold"),
    "stage": STAGES, "room": tuple(name for name, *_ in ROOMS),
}  # fmt: skip
"""Kinds of facts that are words of short lists."""

_PADDED: Final = ("number", "time")
"""The kinds in which zeros at the beginning mean nothing."""
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH: Final = (
    r"(jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|"
    r"nov(?:ember)?|dec(?:ember)?)\b\.?"
)
_DAY_FIRST: Final = re.compile(rf"\b(\d{{1,2}})(?:st|nd|rd|th)?\.?\s+(?:of\s+)?{_MONTH},?\s+(\d{{4}})\b", re.IGNORECASE)
_MONTH_FIRST: Final = re.compile(rf"\b{_MONTH}\s+(\d{{1,2}})(?:st|nd|rd|th)?,?\s+(\d{{4}})\b", re.IGNORECASE)
_DOTTED: Final = re.compile(r"\b(\d{1,2})\.(\d{1,2})\.(\d{4})\b")
_SLASHED: Final = re.compile(r"\b(\d{4})/(\d\d)/(\d\d)\b")
_FULL_HOUR: Final = re.compile(r"\b(\d\d?)(:\d\d)?\s?(?:h|hrs|o['’]clock)\b", re.IGNORECASE)
_HALF_DAY: Final = re.compile(r"\b(\d{1,2})(?::(\d\d))?\s?([ap])\.?m\b\.?", re.IGNORECASE)
_UNIT: Final = r"(?:seconds?|secs?|minutes?|mins?|hours?|hrs?|h|days?|nights?|weeks?|months?|quarters?|years?)"
_DURATION: Final = re.compile(
    rf"(?<![\w.,:-])(?:\d{{1,3}}\s?(?:-|–|to|or)\s?)?\d{{1,3}}(?:\s?-\s?|\s+)?(?:(?:full|more|other|working|business|"
    rf"calendar|work)[\s-]+)?{_UNIT}\b",
    re.IGNORECASE,
)
_UNTIL: Final = re.compile(
    r"\b(?:until|till)\s+(?:about\s+)?\d\d?:\d\d\b|(?<=:\d\d)\s?(?:[-–]|to)\s?\d\d?:\d\d\b", re.IGNORECASE
)
_PLACE: Final = re.compile(
    r"\b(?:step|part|item|point|section|remark|day|week|version|page|top)\s+#?\d{1,2}\b(?!\.\d)(?:\s*(?:of|/)\s*"
    r"\d{1,2}\b)?|\(\d{1,2}/\d{1,2}\)|\b24/7\b",
    re.IGNORECASE,
)
_RECORDS: Final = (
    r"(?:in total|of them|items?|entries|points?|parts?|steps?|things?|remarks?|reasons?|questions?|expenses|claims|"
    r"deals|tickets|documents|files|contacts|customers|requests|meetings|e?mails|people|colleagues|employees|records|facts)"
)
_COUNT: Final = re.compile(
    r"\ball (?:the |of the )?\d{1,2}\b|(?<![\w.,:-])\d{1,2}\s+(?:(?:pending|open|overdue|blocked|approved|rejected|"
    rf"other|remaining|current|new|quiet)\s+)?{_RECORDS}\b",
    re.IGNORECASE,
)
_WHOLE: Final = re.compile(r"\b100\s?(?:%|percent\b)", re.IGNORECASE)
_SEPARATOR: Final = re.compile(
    r"(?<=\d)[,\u00a0\u202f\u2009](?=\d{3}\b)|(?<=\d)\.0+\b|(?<=\d)\.(?=\d{3}\s?(?:€|eur))", re.IGNORECASE
)


def facts_of(text: str, names: Iterable[str] = ()) -> dict[str, set[str]]:
    """Return the facts in a text by their kinds.

    Args:
        text: the text.
        names: the names that count as facts.
    """
    rest = _SEPARATOR.sub("", _without_layout(_in_one_form(text)))
    found: dict[str, set[str]] = {}
    for kind, pattern in PATTERNS.items():
        matches = {match.lower() for match in pattern.findall(rest)}
        if matches:
            found[kind] = {re.sub(r"^0+(?=\d)", "", match) for match in matches} if kind in _PADDED else matches
            rest = pattern.sub(" ", rest)
    for kind, words in LISTS.items():
        matches = {word for word in words if re.search(rf"\b{word}\b", text, re.IGNORECASE)}
        if matches:
            found[kind] = matches
    known = {name for name in names if name.lower() in text.lower()}
    return {**found, "name": known} if known else found


def _in_one_form(text: str) -> str:
    """Return a text with dates as YYYY-MM-DD and times as HH:MM."""
    text = re.sub(r"(?<!\w)_+|_+(?!\w)", " ", text)
    text = _DAY_FIRST.sub(lambda hit: _iso(hit[3], hit[2], hit[1]), text)
    text = _MONTH_FIRST.sub(lambda hit: _iso(hit[3], hit[1], hit[2]), text)
    text = _DOTTED.sub(lambda hit: f"{hit[3]}-{int(hit[2]):02d}-{int(hit[1]):02d}", text)
    text = _SLASHED.sub(r"\1-\2-\3", text)
    text = _FULL_HOUR.sub(lambda hit: f"{hit[1]}{hit[2] or ':00'}" if hit[2] or "clock" in hit[0] else hit[0], text)
    return _HALF_DAY.sub(_clock, text)


def _iso(year: str, month: str, day: str) -> str:
    return f"{year}-{_MONTHS.index(month.lower()[:3]) + 1:02d}-{int(day):02d}"


def _clock(hit: re.Match[str]) -> str:
    hour = int(hit[1]) % 12 + (12 if hit[3].lower() == "p" else 0)
    return f"{hour:02d}:{hit[2] or '00'}" if 1 <= int(hit[1]) <= 12 else hit[0]


def _without_layout(text: str) -> str:
    """Return a text without the numbers that are no facts."""
    text = without_markers(text)
    for pattern in (_PLACE, _DURATION, _UNTIL, _COUNT, _WHOLE):
        text = pattern.sub(" ", text)
    return text
