"""The terms of a deal as text: what a seat writes, and what it is shown.

Each seat writes and reads terms from its own side: of items, the numbers are those that it gets itself.
"""

from __future__ import annotations

import re
from typing import Final

from ludus.environments.negotiation.scenario import Deal, Issue, Scenario
from ludus.server import ToolError

LONGEST: Final = 300
"""The most characters of terms."""


_LEAD: Final = re.compile(r"\s*(?:my\s+)?(?:terms|offer)\s*[:=]\s*", re.IGNORECASE)
_BULLET: Final = re.compile(r"(?m)^\s*(?:[-*•]|\d{1,2}[.)])\s+")
_SEPARATOR: Final = re.compile(r"[,;|&\n]|\band\b|\s+(?=[A-Za-z]+\s*[=:])", re.IGNORECASE)
_NAMED: Final = re.compile(r"\s*([A-Za-z]+)\s*[=:]\s*([A-Za-z0-9%$. ]+?)\s*")
_SPACED: Final = re.compile(r"\s*(?:([A-Za-z]+)\s+([0-9]{1,4})|([0-9]{1,4})\s+([A-Za-z]+))\s*", re.ASCII)
_PRICE: Final = re.compile(r"\s*(?:\$|USD)?\s*([0-9]{1,4})\s*(?:dollars|USD)?\s*", re.ASCII | re.IGNORECASE)
_BRACKETS: Final = {"(": ")", "[": "]", "{": "}"}


def read_terms(scenario: Scenario, seat: int, text: str) -> Deal:
    """Return the deal that terms describe: `books=2, hats=0`, `books: 2; hats: 0`, `2 books, 0 hats`, lines, or JSON.

    Raises:
        ToolError: they are not one option for each issue; the message says what is wrong.
    """
    if len(text) > LONGEST:
        raise ToolError(f"The terms are {len(text):,} characters long; the most is {LONGEST}. {_form(scenario)}")
    named: dict[str, str] = {}
    for part in _SEPARATOR.split(_without_marks(text)):
        if not part.strip():
            continue
        name, value = _named(scenario, part)
        if name in named:
            raise ToolError(f"The terms name {name} twice. {_form(scenario)}")
        named[name] = " ".join(value.split())
    unknown = [name for name in named if all(issue.name != name for issue in scenario.issues)]
    if unknown:
        raise ToolError(f"There is no {ascii(unknown[0])[:60]} to agree on. {_form(scenario)}")
    missing = [issue.name for issue in scenario.issues if issue.name not in named]
    if missing:
        raise ToolError(f"The terms do not name {missing[0]}. {_form(scenario)}")
    deal = tuple(_option(scenario, issue, named[issue.name]) for issue in scenario.issues)
    return _turned(scenario, seat, deal)


def _without_marks(text: str) -> str:
    """Return terms without quotes, bold, bullets, brackets around them and a period at their end."""
    plain = _BULLET.sub("", re.sub(r"->|→|⇒", "=", text))
    plain = re.sub(r"[\"'`]|\*\*", "", plain).strip().removesuffix(".")
    if plain and _BRACKETS.get(plain[0]) == plain[-1]:
        plain = plain[1:-1]
    return _LEAD.sub("", plain, count=1)


def _named(scenario: Scenario, part: str) -> tuple[str, str]:
    """Return the name and the value of a part of terms.

    Raises:
        ToolError: it has no such form.
    """
    if (found := _NAMED.fullmatch(part)) is not None:
        return found[1].lower(), found[2]
    if scenario.domain == "items" and (found := _SPACED.fullmatch(part)) is not None:
        return (found[1] or found[4]).lower(), found[2] or found[3]
    if scenario.domain == "price" and (found := _PRICE.fullmatch(part.replace("price", ""))) is not None:
        return "price", found[1]
    raise ToolError(f"{ascii(part.strip())[:60]} is not of the form NAME=VALUE. {_form(scenario)}")


def write_terms(scenario: Scenario, seat: int, deal: Deal) -> str:
    """Return the terms of a deal as a seat sees them."""
    own = _turned(scenario, seat, deal)
    return ", ".join(
        f"{issue.name}={issue.options[option]}" for issue, option in zip(scenario.issues, own, strict=True)
    )


def _turned(scenario: Scenario, seat: int, deal: Deal) -> Deal:
    """Turn a deal from the side of `first` to that of a seat, or back."""
    if scenario.domain != "items" or seat == 0:
        return deal
    return tuple(len(issue.options) - 1 - option for issue, option in zip(scenario.issues, deal, strict=True))


def _option(scenario: Scenario, issue: Issue, text: str) -> int:
    if scenario.domain == "contract":
        for number, option in enumerate(issue.options):
            if option.lower() == text.lower():
                return number
        raise ToolError(f"{issue.name} is one of {', '.join(issue.options)}, not {ascii(text)[:60]}.")
    most = len(issue.options) - 1
    if scenario.domain == "price" and (price := _PRICE.fullmatch(re.sub(r"\.0{1,2}\b", "", text))) is not None:
        text = price[1]
    if not re.fullmatch(r"[0-9]{1,4}", text) or int(text) > most:
        raise ToolError(f"{issue.name} is a whole number from 0 to {most}, not {ascii(text)[:60]}.")
    return int(text)


def _form(scenario: Scenario) -> str:
    example = ", ".join(f"{issue.name}={issue.options[-1]}" for issue in scenario.issues)
    return f"Name each issue once, such as: {example}"
