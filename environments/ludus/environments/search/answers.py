"""Compare an answer with the right one, and citations with the evidence.

An answer is one name, number, year or date; a list of several is none of them. Letters that only
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
_NUMBER: Final = re.compile(
    r"(?:exactly |a total of )?(\d{1,3}(?:[ ,_]\d{3})+|\d{1,12})(?:\.0+)?(?: (?:in (?:total|all)|of (?:them|these)|"
    r"\(counted\)|([a-z ]+)))?",
    re.ASCII,
)
_NUMBER_WORDS: Final = "zero one two three four five six seven eight nine ten eleven twelve".split()
_YEAR: Final = re.compile(r"(?:in )?(?:the )?(?:year )?(?:ad )?(\d{4})(?: (?:ad|ce))?", re.ASCII)
_DAY: Final = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_MONTH: Final = r"(?P<month>[a-z]+)\.?"
_DATES: Final = tuple(
    re.compile(rf"(?:on )?{pattern}", re.ASCII)
    for pattern in (
        rf"(?:the )?{_DAY}[ -](?:of )?{_MONTH}[,-]? ?(?P<year>\d{{4}})",
        rf"{_MONTH} {_DAY},? (?P<year>\d{{4}})",
        rf"(?P<year>\d{{4}}),? {_MONTH} {_DAY}",
    )
)
_ISO: Final = re.compile(r"(?:on )?(\d{4})[-/](\d{2})[-/](\d{2})", re.ASCII)
_WEEKDAY: Final = re.compile(r"^(?:on )?(?:mon|tues|wednes|thurs|fri|satur|sun)day,? ")
_MONTH_NUMBERS: Final = {month.lower(): number for number, month in enumerate(MONTHS, 1)}

_PLAIN: Final = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u00a0": " ", "\u202f": " ",
                               "\u2009": " "})  # fmt: skip
"""Signs of typography, and those that every keyboard has instead."""
_WRAPPED: Final = tuple(
    re.compile(pattern)
    for pattern in (
        r"\\boxed ?\{(.+)\}", r"\\text ?\{(.+)\}", r"<answer>(.+)</answer>", r"\$(.+)\$", r"\[\[([^\[\]|]+)\]\]",
        r"\[([^\[\]|]+)\]", r"\(([^()]+)\)",
    )
)  # fmt: skip
_MARKUP: Final = re.compile(r"^(?:[\"'*_`>\s]|-(?=\s))+|^1\. |[\"'*_`\s]+$")
_LEAD: Final = re.compile(
    r"^(?:so |thus |therefore,? )?(?:i found that )?(?:(?:my |the )?(?:final |correct )?(?:answer|result|name|year|"
    r"number|date|n)(?: is| was| would be|:| =)+|it is called|it(?: is|'s| was)(?: on| in)?|this is|that is|"
    r"there (?:are|were|is|was)|=) ?(?=\S)"
)


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

    Case, markup, quotes, repeated spaces, final punctuation, "the" at the beginning and words that only lead to the
    answer ("The answer is") do not count. Numbers may have separators and the unit of the question; dates may be
    written as 14 March 1893, March 14th, 1893, 1893-03-14 and alike.
    """
    found = canonical(given, form)
    return found is not None and any(found == canonical(one, form) for one in accepted)


def canonical(text: str, form: AnswerForm) -> str | None:
    """Return the form of an answer in which equal answers are equal texts; None if it has not that form."""
    if len(text) > LONGEST:
        return None
    plain = " ".join(text.translate(_PLAIN).split())
    if not plain.isascii():
        return None
    bare = _bare(plain)
    readers = {"year": _year, "number": _number, "date": _date}
    if form in readers:
        return readers[form](bare)
    return re.sub(r"^(?:the )+", "", bare) or None


def _bare(text: str) -> str:
    """Return an answer in lower case without markup, quotes and the words that lead to it."""
    plain, before = text.lower(), ""
    while plain != before:
        before = plain
        for pattern in _WRAPPED:
            if found := pattern.fullmatch(plain):
                plain = found[1]
        plain = _MARKUP.sub("", plain.strip()).rstrip(".,;!").strip()
        plain = _LEAD.sub("", plain)
    return plain


def _year(plain: str) -> str | None:
    found = _YEAR.fullmatch(plain)
    return found[1] if found else None


def _number(plain: str) -> str | None:
    if plain in _NUMBER_WORDS:
        return str(_NUMBER_WORDS.index(plain))
    found = _NUMBER.fullmatch(plain)
    if found is None or (found[2] and found[2] not in _UNITS):
        return None
    return str(int(re.sub(r"[ ,_]", "", found[1])))


def _date(plain: str) -> str | None:
    plain = _WEEKDAY.sub("", plain)
    if found := _ISO.fullmatch(plain):
        year, month, day = map(int, found.groups())
        return f"{year}-{month}-{day}"
    for pattern in _DATES:
        if found := pattern.fullmatch(plain):
            parts = found.groupdict()
            number = next((at for name, at in _MONTH_NUMBERS.items() if parts["month"] in (name, name[:3])), None)
            return None if number is None else f"{int(parts['year'])}-{number}-{int(parts['day'])}"
    return None


def supported(cited: Collection[int], needs: Sequence[Collection[int]]) -> Support:
    """Return how well pages prove an answer.

    Args:
        cited: the numbers of the cited pages.
        needs: for each needed fact, the pages that state it; no page is in two of them. The last fact is the answer.
    """
    covered = [any(page in need for page in cited) for need in needs]
    useful = sum(covered)
    return Support(covered[-1], useful / len(needs), useful / len(cited) if cited else 0.0)
