"""Read the number that a message gives as its final answer, perhaps with the unit that the question asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Final

from ludus.environments.arithmetic.answers import LONGEST, read_number
from ludus.server import final_answer

_TEXT: Final = re.compile(r"\\(?:text|mathrm)\{([^{}]{0,100})\}")
_MARKS: Final = re.compile(r"\\[()\[\] ]|\\\$")
_SHORT: Final[Mapping[str, tuple[str, ...]]] = {
    "dollars": ("dollar", "usd"),
    "meters": ("m", "metres"),
    "milliliters": ("ml", "millilitres"),
    "minutes": ("min", "mins"),
    "square meters": ("m²", "m^2", "sq m", "square metres"),
}
"""Other ways to write the units that units begin with."""


def read_answer(message: str, unit: str) -> Fraction | None:
    """Return the number that a message gives; None if it gives none.

    Args:
        message: the message.
        unit: the words of which some in a row may follow the number: `square meters`.
    """
    said = final_answer(message)
    if len(said) > 2 * LONGEST:
        return None
    plain = _MARKS.sub(" ", _TEXT.sub(r" \1", said)).strip().strip("*_`$ ").removesuffix(".")
    return read_number(_without_unit(plain.strip("*_`$ "), unit))


def _without_unit(text: str, unit: str) -> str:
    words = unit.split()
    starts = range(1 if words[:1] == ["square"] else len(words))  # "meters" are no "square meters".
    endings = {" ".join(words[start:end]) for start in starts for end in range(start + 1, len(words) + 1)}
    endings |= {one for full, ways in _SHORT.items() if f"{unit} ".startswith(f"{full} ") for one in ways}
    for ending in sorted(endings, key=len, reverse=True):
        if text.lower().endswith(f" {ending}"):
            return text[: -len(ending)].strip()
    return text
