"""Read the number that a message gives as its answer, perhaps with the unit that the question asks for.

Exactly one counts, as in `arithmetic`: what follows `Answer:` or "The answer is" in the last line that has one of them
at its beginning, or else the whole message; and if that holds a `\\boxed{…}`, only the last of these does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Final

from ludus.environments.arithmetic.answers import LONGEST, READ, in_last_box, read_number

# The repetitions are bounded, so that no message makes the search slow.
_LINE: Final = re.compile(
    r"^[ \t*_#>-]{0,20}(?:(?:so|thus|hence|therefore),?[ \t]{1,4})?(?:the[ \t]{1,4})?(?:final[ \t]{1,4})?"
    r"answer[ \t]{0,4}[*_]{0,4}(?::|[ \t]{1,4}is[ \t]{0,4}:?)(.*)$",
    re.IGNORECASE | re.MULTILINE,
)
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
    end = message[-READ:]
    lines = _LINE.findall(end)
    said = in_last_box(lines[-1] if lines else end).strip()
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
