r"""Read final answers of mathematics as models write them.

How this works. `ludus.server.final_answer` finds the answer in a message, as hosted datasets do. `stated` then removes
what only concerns layout: bold, LaTeX around words and numbers, spaces of LaTeX, groups of thousands in every usual
way. `split_name` separates a name before `=`, as in `S_7 = 10393`. `read_number` reads a whole text as one exact
number; `without_unit` removes the unit that a question asks for. Nothing is read in part: a text with two numbers, or
with words, is no number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final, NamedTuple

from ludus.server.rewards.answers import READ, final_answer

__all__ = [
    "LONGEST", "MOST_READ", "READ", "Box", "boxes_of", "in_other_layouts", "read_number", "split_name", "stated",
    "without_commas", "without_layout", "without_unit",
]  # fmt: skip

LONGEST: Final = 100
"""The most characters of a number."""
MOST_READ: Final = 600
"""The most characters of a text whose layout is removed; a longer one is no answer."""

_SIGNS: Final = str.maketrans("−–‑﹣－⁄∕", "-----//")
"""Characters that look like a minus sign or a slash."""
_VULGAR: Final[Mapping[str, str]] = {
    "½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅕": "1/5", "⅖": "2/5", "⅗": "3/5", "⅘": "4/5",
    "⅙": "1/6", "⅚": "5/6", "⅛": "1/8", "⅜": "3/8", "⅝": "5/8", "⅞": "7/8",
}  # fmt: skip
_MARKED_GROUPS: Final = re.compile(
    r"(?<![\d.,])([1-9]\d{0,2})((?:(?:\{,\}|,\\!|\\!,|\\[,;: ]|[\u00a0\u2009\u202f])\d{3})+)(?!\d)"
)
_SPACED_GROUPS: Final = re.compile(r"(?<![\d.,])(?<!\d )([1-9]\d{0,2})((?: \d{3})+)(?![\d/]| [\d/])")
_COMMA_GROUPS: Final = re.compile(r"(?<![\d.,])([1-9]\d{0,2})((?:,\d{3})+)(?![\d,])")
_LAYOUT: Final = (
    (
        re.compile(
            r"\\(?:text|textrm|textbf|mathrm|mathbf|mathit|boldsymbol|mbox|operatorname|num)\{([^{}\\]{0,100})\}"
        ),
        r" \1 ",
    ),
    (re.compile(r"\\(?:text|mathrm)\{\\\$([^{}\\]{0,100})\}"), r"$\1"),
    (re.compile(r"\\(?:left|right|displaystyle|[bB]igg?[lr]?)(?![a-zA-Z])"), ""),
    (re.compile(r"\\min(?![a-zA-Z])"), " min"),
    (re.compile(r"\\(?:qquad|quad)(?![a-zA-Z])|\\[()\[\],;:! ]|~|[\u00a0\u2009\u202f]"), " "),
    (re.compile(r"\\([%#&])"), r"\1"),
    (re.compile(r"\\[dtc]frac(?![a-zA-Z])"), r"\\frac"),
)
"""What LaTeX has around words and numbers, and what replaces it."""
_APPROXIMATION: Final = re.compile(
    r"(?<=\S)\s*\(?\s*(?:\\approx|≈|\bapproximately\b|\bapprox\.)\s*-?\d{1,9}(?:\.\d{1,9})?\s*\)?\s*\Z"
)
"""An approximation behind an exact value, as in `103/18 ≈ 5.72`."""
_TOTAL: Final = re.compile(r"\s+(?:in total|total|altogether)\s*\Z", re.IGNORECASE)
_MARKS: Final = "*_`$ \t\r\n"
_NAME: Final = re.compile(
    r"\s*((?:the\s+)?(?!not\b|about\b|around\b|roughly\b|approximately\b|maybe\b)(?:\\?[A-Za-z]{3,20}|\\?[A-Za-z]'?)"
    r"(?:_\{?[\w,]{1,5}\}?|\d{1,2})?(?:\([A-Za-z ]{1,30}\))?|)\s*(?::(?!=)|=)(?!.*=)",
    re.DOTALL | re.IGNORECASE,
)
"""A symbol such as `S_7` or `f(x)`, or a word such as `Total`, with its `=` or colon; no other `=` may follow."""
_FRACTION: Final = re.compile(r"\\frac\s*(?:\{([^{}]{1,60})\}|(\d))\s*(?:\{([^{}]{1,60})\}|(\d))")
_BOX: Final = re.compile(r"\\boxed\s{0,4}\{")
_DECIMAL: Final = re.compile(r"\d+(?:\.\d+)?|\.\d+", re.ASCII)
_MIXED: Final = re.compile(r"(\d+)(?:\s+(\d+)\s*/\s*(\d+)|\s*\(\((\d+)\)/\((\d+)\)\))", re.ASCII)


def stated(message: str) -> str:
    """Return the final answer that a message states, without its layout; empty if that is longer than any answer."""
    text = final_answer(message)
    return "" if len(text) > MOST_READ else without_layout(text)


def without_layout(text: str) -> str:
    """Return a text without bold, what LaTeX has around words and numbers, and marks of groups of thousands."""
    text = _APPROXIMATION.sub("", text)
    text = _MARKED_GROUPS.sub(_joined, text.translate(_SIGNS))
    for mark, plain in _LAYOUT:
        text = mark.sub(plain, text)
    return text.strip().strip(_MARKS).removesuffix(".").removesuffix(",").strip(_MARKS)


def without_commas(text: str) -> str:
    """Return a text whose groups of thousands, with commas or spaces between them, are joined.

    Use it where no comma can separate two answers: `14,986` may be a list.
    """
    return _COMMA_GROUPS.sub(_joined, _SPACED_GROUPS.sub(_joined, text))


class Box(NamedTuple):
    """What a `\\boxed{…}` holds, and where it is."""

    start: int
    end: int
    text: str


def boxes_of(text: str) -> list[Box]:
    """Return the boxes of a text in order; of boxes within each other, the outer ones."""
    found: list[Box] = []
    for opening in _BOX.finditer(text):
        if found and opening.start() < found[-1].end:
            continue
        depth, end = 1, opening.end()
        while end < len(text) and depth:
            depth += (text[end] == "{") - (text[end] == "}")
            end += 1
        if depth:
            return found
        found.append(Box(opening.start(), end, text[opening.end() : end - 1]))
    return found


def split_name(text: str) -> tuple[str, str]:
    """Split a text such as `r = 128` into the name before `=` or a colon, empty if there is none, and the rest."""
    name = _NAME.match(text)
    return (name[1], text[name.end() :].strip(_MARKS)) if name else ("", text)


def read_number(text: str) -> Fraction | None:
    """Return the exact number that a text is as a whole; None if it is none.

    It may be whole, a decimal, a quotient of two of them, plain or as `\\frac`, or a mixed number such as `5 13/18`;
    signs may be anywhere in a quotient, and parentheses around any part.
    """
    text = without_commas(text.strip())
    if len(text) > LONGEST:
        return None
    for character, quotient in _VULGAR.items():
        text = text.replace(character, f" {quotient}")
    text = _FRACTION.sub(lambda found: f"(({found[1] or found[2]})/({found[3] or found[4]}))", text)
    return _signed(text.replace("{", "(").replace("}", ")"), 3)


def without_unit(text: str, patterns: Sequence[str], words: str = "") -> str:
    """Return a text without the unit at its end.

    Args:
        text: the text.
        patterns: regular expressions of the units that may be there.
        words: what is counted, of which some words in a row may be there, singular or plural: `bars of soap`.
    """
    text = _TOTAL.sub("", text)
    for pattern in patterns:
        if (found := re.search(rf"(?<![A-Za-z])(?:{pattern})\s*\Z", text, re.IGNORECASE)) is not None:
            return text[: found.start()].strip()
    number, unit = _leading_number(text)
    counted = [_singular(word) for word in words.lower().split()]
    named = [_singular(word) for word in unit.lower().rstrip(".").split()]
    parts = [counted[start : start + len(named)] for start in range(len(counted))]
    return number if named and named in parts else text


def in_other_layouts(plain: str, latex: str) -> Mapping[str, str]:
    """Return messages that state an answer in the layouts of models, by what each is.

    Args:
        plain: the answer as plain text.
        latex: the answer in LaTeX.
    """
    return {
        "a period at the end": f"Answer: {plain}.",
        "bold": f"**Answer:** **{plain}**",
        "the line below": f"Answer:\n{plain}",
        "a heading": f"First I compute, and then I check.\n\n### Answer\n\n{plain}",
        "a box": rf"So the result is \boxed{{{latex}}}.",
        "a box below a heading": f"**Answer:**\n\n\\[\n\\boxed{{{latex}}}\n\\]",
        "a box, and a heading without anything": f"This gives \\boxed{{{latex}}}.\n\nAnswer:",
        "dollars": f"Answer: ${latex}$",
        "a formula of its own": f"Final answer:\n\\[{latex}\\]",
        "a sentence": f"Therefore, the final answer is {plain}.",
        "text after it": f"Answer: {plain}\n\nI hope that this helps.",
        "a first try": f"Answer: 5\n\nNo, that is wrong.\n\nAnswer: {plain}",
    }


def _leading_number(text: str) -> tuple[str, str]:
    """Split a text before its first word of letters that LaTeX does not have."""
    found = re.search(r"(?<![A-Za-z\\])[A-Za-z]", text)
    return (text[: found.start()].strip(), text[found.start() :].strip()) if found else (text, "")


def _singular(word: str) -> str:
    for ending, replaced in (("ves", "f"), ("ies", "y")):
        if word.endswith(ending) and len(word) > 4:
            return word.removesuffix(ending) + replaced
    if re.search(r"(?:x|ch|sh|ss|us)es\Z", word):
        word = word[:-2]
    return word if word.endswith("ss") else word.removesuffix("s")


def _joined(found: re.Match[str]) -> str:
    return found[1] + re.sub(r"\D", "", found[2])


def _signed(text: str, depth: int) -> Fraction | None:
    text = text.strip()
    sign, rest = (text[0], text[1:].strip()) if text[:1] in ("+", "-") else ("", text)
    if not rest or rest[0] in "+-":
        return None
    value = _unsigned(rest, depth)
    return -value if value is not None and sign == "-" else value


def _unsigned(text: str, depth: int) -> Fraction | None:
    if _DECIMAL.fullmatch(text):
        return Fraction(text)
    if (mixed := _MIXED.fullmatch(text)) is not None:
        whole, above, below = int(mixed[1]), int(mixed[2] or mixed[4]), int(mixed[3] or mixed[5])
        return whole + Fraction(above, below) if above < below else None
    if depth and _encloses(text):
        return _signed(text[1:-1], depth - 1)
    sides = _quotient(text)
    if not depth or sides is None:
        return None
    numbers = [_signed(side, 0 if _DECIMAL.search(side) is None else 1) for side in sides]
    if any("/" in side for side in sides) or None in numbers or not numbers[1]:
        return None
    assert numbers[0] is not None
    return numbers[0] / numbers[1]


def _quotient(text: str) -> tuple[str, str] | None:
    """Return the two sides of the only division outside of parentheses; None if there is none, or another one."""
    depth, places = 0, []
    for place, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == "/" and depth == 0:
            places.append(place)
    return (text[: places[0]], text[places[0] + 1 :]) if len(places) == 1 else None


def _encloses(text: str) -> bool:
    """Return whether the parenthesis at the beginning closes at the end."""
    depth = 0
    for place, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return place == len(text) - 1 and place > 0
    return False
