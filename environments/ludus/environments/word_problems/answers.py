"""Read the number that a message gives as its final answer, perhaps with the unit that the question asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final

from ludus.server.rewards.readers import read_number, split_name, stated, without_unit

_METERS: Final = r"m(?:et(?:er|re)s?)?"
_UNITS: Final[Mapping[str, Sequence[str]]] = {
    "square meters": (
        rf"sq(?:uare)?\.?[\s-]*{_METERS}\.?", r"m\s*(?:²|\^?\s*\{?2\}?)", rf"{_METERS}\s+squared",
    ),
    "meters": (_METERS,),
    "milliliters": (r"m(?:l|illilit(?:er|re)s?)",),
    "minutes": (r"min(?:s|utes?)?\.?",),
    "dollars": (r"(?:u\.?s\.?\s*)?dollars?", r"usd", r"(?<=\d)\s*\$"),
    "points": (r"pts?\.?|points?",),
    "years": (r"(?:y(?:ea)?rs?\.?)(?:[\s-]+(?:old|of age))?",),
    "weeks": (r"w(?:ee)?ks?\.?",),
}  # fmt: skip
"""Other ways to write the units that units begin with."""
_CURRENCY: Final = re.compile(r"\s*(?:US\s*)?\\?\$\s*|\s*USD\s*", re.IGNORECASE)


def read_answer(message: str, unit: str) -> Fraction | None:
    """Return the number that a message gives; None if it gives none.

    Args:
        message: the message.
        unit: the words of which some in a row may follow the number: `square meters`.
    """
    _, text = split_name(stated(message))
    if unit == "dollars" and (sign := _CURRENCY.match(text)) is not None:
        text = text[sign.end() :]
    measure = next((name for name in _UNITS if f"{unit} ".startswith(f"{name} ")), "")
    # "meters" are no "square meters": a measure counts as a whole, and what it is of may follow.
    of = re.escape(unit.removeprefix(measure).strip())
    patterns = [rf"(?:{one})(?:\s+{of})?" if of else one for one in _UNITS.get(measure, ())]
    return read_number(without_unit(text, patterns, "" if measure else unit))
