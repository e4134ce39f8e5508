"""What a message says: its ids, dates, numbers and times, what it asks for, and whether it proposes or announces.

Patterns read free text of any writer. A user who does not understand a message says so; nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Final

from ludus.environments._layout import without_markers

_MONTHS: Final = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
_WORDS: Final = {
    word: str(number)
    for number, word in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen".split()
    )
}
_MONTH: Final = "|".join(f"{name[:3]}(?:{name[3:]})?" for name in _MONTHS)
_ID: Final = re.compile(r"\b[A-Za-z]-\d+\b", re.ASCII)
_EMAIL: Final = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+", re.ASCII)
_DATE: Final = re.compile(r"\b(\d{4})-(\d\d)-(\d\d)\b", re.ASCII)
_MONTH_DAY: Final = re.compile(
    rf"\b({_MONTH})\.?[ \t]+(\d{{1,2}})(?:st|nd|rd|th)?(?:,?[ \t]+(\d{{4}}))?\b", re.ASCII | re.IGNORECASE
)
_DAY_MONTH: Final = re.compile(
    rf"\b(\d{{1,2}})(?:st|nd|rd|th)?[ \t]+(?:of[ \t]+)?({_MONTH})\b(?![ \t]+(?:I|we)\b)\.?(?:,?[ \t]+(\d{{4}})\b)?",
    re.ASCII | re.IGNORECASE,
)
_TIME: Final = re.compile(r"\b(\d{1,2}):(\d\d)(?::00)?\s*([ap]\.?m\b\.?)?", re.ASCII | re.IGNORECASE)
_PERCENT: Final = re.compile(r"\b\d+(?:\.\d+)?\s*(?:%|percent\b)", re.ASCII | re.IGNORECASE)
_NUMBER: Final = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w]|\.\d)", re.ASCII)
_WORD_NUMBER: Final = re.compile(rf"\b(?:{'|'.join(_WORDS)})\b", re.IGNORECASE)
_COUNTED: Final = re.compile(
    rf"\b(?:\d|{'|'.join(_WORDS)}) (?:(?:quick|more|other|last|short|simple|small|further|final) )*"
    r"(?:things?|questions?|pieces?|points?|moments?|seconds?|minutes?|details?|options?|steps?)\b",
    re.IGNORECASE,
)
_FREE: Final = re.compile(
    r"\b(?:free|none|no (?:fee|charge|cost|extra|more|further|additional)|without (?:a |any )?(?:fee|charge|cost))\b",
    re.I,
)
_DATED: Final = re.compile(r"\b(?:\d{4}-\d\d-\d\d|\d{1,2}:\d\d|[a-z]-\d+)\b|\+?\d+(?: \d+){2,}", re.ASCII)
_FROM: Final = re.compile(r"\bfrom\W+\d+(?:\.\d+)?\s+to\b", re.ASCII)
_FIGURE: Final = r"(?:\d{4}-\d\d-\d\d|\d{1,2}:\d\d|\d+(?:\.\d+)?)"
_FIGURES: Final = rf"{_FIGURE}(?:\W{{1,3}}and\W{{1,3}}{_FIGURE})*"
_EITHER: Final = re.compile(rf"({_FIGURES})\D{{0,15}}\bor\W+(?:[a-z]+\W+)?({_FIGURES})", re.ASCII)
_WORKING_DAYS: Final = re.compile(r"\b(\d+|[a-z]+)(?:\s|-)+(?:working|business)(?:\s|-)+days?\b", re.ASCII | re.I)
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+|\n+")
_ASKING: Final = re.compile(
    r"\?|\b(?:please|provide|tell me|give me|let me know|share|confirm|state|enter|specify|send me|"
    r"need (?:your|the|to know)|"
    r"need|require|ask|what|which|when|why|how|could|can you|would you|may i|whether)\b",
    re.IGNORECASE,
)
_REFERRING: Final = re.compile(r"\b(?:it|that|this|them|these|again|once more|one more time)\b", re.IGNORECASE)
_CONSENT: Final = re.compile(
    r"\b(?:shall|should|may|can|could) (?:i|we)\b|\b(?:do|would|did) you (?:want|like|agree|accept|confirm|wish)|"
    r"\bwant me to\b|\bare you (?:happy|okay|ok|fine|comfortable|good|alright|satisfied) (?:with|to|if)\b|"
    r"\b(?:is|are|does|would) (?:that|this|it|these|everything)\b[^?]{0,60}\b(?:ok|okay|fine|"
    r"correct|right|"
    r"alright|acceptable|good|work|sound|suit)|\bok(?:ay)? (?:if|to|with|for you)\b|\b(?:please )?confirm\b|"
    r"\bis (?:this|that) what you\b|\b(?:proceed|go ahead|go on|agree|agreed|approve|consent|permission)\b|\byes\b",
    re.IGNORECASE,
)
_REFUSING: Final = re.compile(
    r"\b(?:can ?not|can['’]?t|could ?n['’]?t|unable|won['’]?t|not (?:able|possible|eligible|allowed|permitted|allow|"
    r"qualify|covered)|do(?:es)?(?: not|n['’]t) (?:allow|permit|qualify|cover)|declin\w+|refus\w+|den(?:y|ied)|"
    r"(?:is|are|was|were)n['’]t (?:able|possible|eligible|allowed|permitted|covered)|impossible|reject\w*|"
    r"unfortunately|no longer|not something (?:i|we) can|prevents?|outside (?:of )?(?:our|the)|say no|"
    r"against (?:our|the)|"
    r"do(?:es)?(?: not|n['’]t) (?:meet|offer)|too late)\b",
    re.IGNORECASE,
)
_ESCALATING: Final = re.compile(
    r"\b(?:escalat\w+|transfer\w*|pass(?:ed|ing)? (?:it|this|your|on)|forward\w*|hand(?:ed|ing)? (?:it|this|over)|"
    r"supervisors?|referred|raised (?:this|it)|(?:opened|created) a (?:case|ticket)|get back to you|"
    r"(?:now|is) with (?:the|our))\b",
    re.IGNORECASE,
)
_MORE: Final = re.compile(
    r"\b(?:what|how) else\b|\banother (?:question|request|concern|issue|matter)\b|\b(?:is|will) that (?:be )?(?:all|"
    r"everything)\b|\b(?:anything|something|any|nothing) (?:else|more|further|other)|\bany ?thing i can\b|"
    r"\b(?:further|other|more) (?:question|request|help|concern|issue|matter)s?\b|\bhelp you further\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts in a text, each in one form: ids in capitals, dates as YYYY-MM-DD, times as HH:MM, plain numbers."""

    ids: frozenset[str] = frozenset()
    emails: frozenset[str] = frozenset()
    dates: frozenset[str] = frozenset()
    times: frozenset[str] = frozenset()
    numbers: frozenset[str] = frozenset()

    def all(self) -> frozenset[str]:
        """Return the facts of all kinds."""
        return self.ids | self.emails | self.dates | self.times | self.numbers


@dataclass(frozen=True, slots=True)
class Reading:
    """What a message says.

    Attributes:
        text: the message in lower case with single spaces.
        facts: the facts in it.
        sentences: its sentences, as they are.
        proposes: whether it asks for consent.
        refuses: whether it announces a refusal.
        escalates: whether it announces that others decide.
        asks_more: whether it asks for further wishes.
        choices: the figures of each choice that it offers, such as `5 or 7`.
        slots: the slots that it asks about, if a model has read it; None to find them by their patterns.
    """

    text: str
    facts: Facts
    sentences: tuple[str, ...] = field(default=())
    proposes: bool = False
    refuses: bool = False
    escalates: bool = False
    asks_more: bool = False
    choices: tuple[frozenset[str], ...] = ()
    slots: tuple[str, ...] | None = None

    def asked(self, slots: Mapping[str, re.Pattern[str]]) -> list[str]:
        """Return the names of the slots that the message asks about, in the order of the message."""
        if self.slots is not None:
            return [name for name in self.slots if name in slots]
        return list(dict.fromkeys(name for _, names in self._questions(slots) for name in names))

    def overheard(self, slots: Mapping[str, re.Pattern[str]]) -> list[int]:
        """Return which of the questions of the message, from 1, are about none of some slots.

        A message that a model has read has none, and neither do questions for consent or further wishes.
        """
        if self.slots is not None:
            return []
        questions = [(text, names) for text, names in self._questions(slots) if "?" in text]
        return [
            index
            for index, (text, names) in enumerate(questions, 1)
            if not names and not _CONSENT.search(text) and not _MORE.search(text)
        ]

    def _questions(self, slots: Mapping[str, re.Pattern[str]]) -> list[tuple[str, list[str]]]:
        """Return the sentences that ask for something, each with the slots that it is about.

        The lines of a list belong to the sentence with a colon before them, and words such as "it" and "again" refer to
        the sentence before.
        """
        found: list[tuple[str, list[str]]] = []
        before: list[str] = []
        in_list = False
        for sentence in self.sentences:
            hits = sorted((hit.start(), name) for name, words in slots.items() if (hit := words.search(sentence)))
            names = [name for _, name in hits]
            if asks := _ASKING.search(sentence) is not None:
                in_list = sentence.rstrip("*_ ").endswith(":")
                refers = _REFERRING.search(sentence) and not _CONSENT.search(sentence)
                found.append((sentence, names or (before if refers else [])))
            elif in_list:
                found.append((sentence, names))
            before = names if names or not asks else before
        return found


def number(text: str) -> str:
    """Return an amount in its shortest form, such as 80 for 80.00; 8.0 is no amount, and stays."""
    whole, _, rest = text.partition(".")
    plain = whole.lstrip("0") or "0"
    return plain if rest in ("", "00") else f"{plain}.{rest}"


def facts_of(text: str, today: date) -> Facts:
    """Return the facts in a text.

    Args:
        text: the text.
        today: what `today` means, and the year of dates without one.
    """
    year = today.year
    found: dict[str, set[str]] = {name: set() for name in ("ids", "emails", "dates", "times", "numbers")}
    rest = _COUNTED.sub(" ", re.sub(r"(?<=\d),(?=\d{3}\b)", "", without_markers(text)))

    def take(pattern: re.Pattern[str], kind: str, form: re.Pattern[str] | None = None) -> None:
        nonlocal rest
        found[kind] |= {hit.group().lower() for hit in pattern.finditer(rest)}
        rest = pattern.sub(" ", rest)

    take(_EMAIL, "emails")
    found["ids"] = {hit.group().upper() for hit in _ID.finditer(rest)}
    rest = _ID.sub(" ", rest)
    for pattern, read in ((_DATE, _iso), (_MONTH_DAY, _month_day), (_DAY_MONTH, _day_month)):
        found["dates"] |= {one for hit in pattern.finditer(rest) if (one := read(hit, year))}
        rest = pattern.sub(" ", rest)
    if re.search(r"\btoday\b", rest, re.IGNORECASE):
        found["dates"].add(today.isoformat())
    found["times"] = {one for hit in _TIME.finditer(rest) if (one := _clock(hit))}
    rest = _PERCENT.sub(" ", _TIME.sub(" ", rest))
    found["numbers"] = {number(hit.group()) for hit in _NUMBER.finditer(re.sub(r"[$€£]", " ", rest))}
    found["numbers"] |= {_WORDS[hit.group().lower()] for hit in _WORD_NUMBER.finditer(rest)}
    if _FREE.search(rest):
        found["numbers"].add("0")
    return Facts(**{name: frozenset(values) for name, values in found.items()})


def working_days(text: str) -> set[str]:
    """Return the numbers of working days in a text."""
    found = [hit[1].lower() for hit in _WORKING_DAYS.finditer(text)]
    return {_WORDS.get(one, one) for one in found if one.isdigit() or one in _WORDS}


def read(message: str, today: date) -> Reading:
    """Return what a message says."""
    text = " ".join(message.lower().split())
    questions = "?" in message or re.search(
        r"\b(?:please|reply|answer|say|just|let me know)\b[^.]*\b(?:confirm|yes|i should)\b", text
    )
    return Reading(
        text=text,
        facts=facts_of(message, today),
        sentences=tuple(one for one in _SENTENCE.split(message) if one.strip()),
        proposes=bool(questions and _CONSENT.search(text)),
        refuses=_REFUSING.search(text) is not None,
        escalates=_ESCALATING.search(text) is not None,
        asks_more=_MORE.search(text) is not None,
        choices=_alternatives(text, today.year),
    )


def says(reading: Reading, value: str | int) -> bool:
    """Return whether a message has a value: a number, a date, a time or an id as a fact, other texts as words."""
    plain = str(value)
    if plain.upper() in reading.facts.ids or plain.lower() in reading.facts.all():
        return True
    return isinstance(value, str) and has_words(reading.text, value)


def is_one_of_several(reading: Reading, value: str = "") -> bool:
    """Return whether a message offers several figures where one is right, such as `5 or 7` and `5-7`.

    Args:
        reading: the message.
        value: the figure that must be among them; by default, any number or date.
    """
    if any(not value or value in figures for figures in reading.choices):
        return True
    if value and value not in reading.facts.numbers:
        return False
    one, text = re.escape(value) if value else r"\d+", _FROM.sub(" ", _DATED.sub(" ", reading.text))
    money = r"[$€£]?"
    either = rf"\b{one}\b\D{{0,15}}\bor\W+\d|\d\D{{0,15}}\bor\W+{one}\b"
    span = rf"\d\s*(?:[-–/]|to)\s*{money}{one}\b|\b{one}\s*(?:[-–/]|to)\s*{money}\d"
    return re.search(f"{either}|{span}", text) is not None


def _alternatives(text: str, year: int) -> tuple[frozenset[str], ...]:
    """Return the figures of each "A or B" in a text in lower case, if A and B have figures of one kind.

    Args:
        text: the text.
        year: the year of dates without one.
    """
    for pattern, read_date in ((_MONTH_DAY, _month_day), (_DAY_MONTH, _day_month)):
        text = pattern.sub(lambda hit, read_date=read_date: read_date(hit, year) or hit[0], text)  # type: ignore[misc]
    text = _WORD_NUMBER.sub(lambda hit: _WORDS[hit[0].lower()], re.sub(r"[$€£*]|(?<=\d),(?=\d{3}\b)", "", text))
    found = []
    for hit in _EITHER.finditer(text):
        one, other = (set(re.findall(_FIGURE, part)) for part in hit.groups())
        kinds = [{("-" in figure, ":" in figure) for figure in figures} for figures in (one, other)]
        if kinds[0] & kinds[1] and one != other:
            found.append(frozenset(number(figure) if figure.isdigit() else figure for figure in one | other))
    return tuple(found)


def has_words(text: str, words: str) -> bool:
    """Return whether a text in lower case has some words in a row."""
    plain = " ".join(words.lower().split())
    return re.search(rf"(?<![\w-]){re.escape(plain)}(?![\w-])", text) is not None


def any_of(words: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern for any of some words or patterns."""
    return re.compile(rf"\b(?:{'|'.join(words)})\b", re.IGNORECASE)


def _valid(year: int, month: int, day: int) -> str | None:
    try:
        return date(year, month, day).isoformat()
    except ValueError:
        return None


def _iso(hit: re.Match[str], year: int) -> str | None:
    return _valid(int(hit[1]), int(hit[2]), int(hit[3]))


def _month_day(hit: re.Match[str], year: int) -> str | None:
    return _valid(int(hit[3] or year), _month(hit[1]), int(hit[2]))


def _day_month(hit: re.Match[str], year: int) -> str | None:
    return _valid(int(hit[3] or year), _month(hit[2]), int(hit[1]))


def _month(name: str) -> int:
    return next(index for index, month in enumerate(_MONTHS, 1) if month.startswith(name.lower()[:3]))


def _clock(hit: re.Match[str]) -> str | None:
    hour, minute = int(hit[1]), int(hit[2])
    half = (hit[3] or "").lower()[:1]
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    return f"{hour:02d}:{minute:02d}" if hour < 24 and minute < 60 else None
