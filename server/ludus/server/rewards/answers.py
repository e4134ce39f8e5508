"""Find the final answer in a message: what a policy states after "Answer:", or in its last `\\boxed{…}`.

How this works. A policy could list many answers and hope that one counts, so exactly one does:

1. The last line that begins with `Answer:`, `The answer is` or the like states the answer; a message without such a
   line is an answer as a whole.
2. If nothing follows on that line, the next paragraph's first line does, or the formula that begins there: small models
   usually write a heading and give the answer below it.
   If nothing is below it either, the last `\\boxed{…}` before it does.
3. If that holds a `\\boxed{…}`, only what is in the last one counts. Below a heading, the box may stand anywhere.

All patterns have bounded repetitions and read `READ` characters, so no message makes the search slow.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

__all__ = ["last_box"]


READ: Final = 10_000
"""The most characters of a message that are read, from its end."""

_LINE: Final = re.compile(
    r"^[ \t*_#>-]{0,20}(?:(?:so|thus|hence|therefore),?[ \t]{1,4})?(?:the[ \t]{1,4}|my[ \t]{1,4})?(?:final[ \t]{1,4})?"
    r"answer[ \t]{0,4}(?:[*_]{0,4}(?::|[ \t]{1,4}is(?![a-z])[ \t]{0,4}:?)(.*)|[*_#]{0,6}[ \t]{0,4})$",
    re.IGNORECASE | re.MULTILINE,
)
_FORMULA: Final = re.compile(r"\\\[(.{0,2000}?)\\\]|\$\$(.{0,2000}?)\$\$|```[a-z]{0,12}\n(.{0,2000}?)```", re.DOTALL)
_DELIMITED: Final = re.compile(r"\\\[((?:(?!\\\]).)*)\\\]|\\\(((?:(?!\\\)).)*)\\\)", re.DOTALL)
_MARKS: Final = "*_`$ \t\r\n"
_SIMPLE_MARKS: Final = "*_` \t\r\n"
_QUOTED: Final = "*_#> \t\r\n"
_BOX: Final = re.compile(r"\\(?:boxed|fbox)[ \t]{0,4}\{")


def final_answer(message: str) -> str:
    """Return the final answer that a message states; the message itself if it has no such line, perhaps empty.

    White space, marks of Markdown and dollars around the answer are left out, and a period at its end.

    Args:
        message: the policy's message; only its last 10,000 characters are read.
    """
    answers = stated_answers(message)
    return answers[-1] if answers else _bare(last_box(_end(message)))


def stated_answers(message: str) -> list[str]:
    """Return what each line of the form `Answer: …` states, as `final_answer` does for the last one."""
    end = _end(message)
    lines = list(_LINE.finditer(end))
    # What is below a line ends with the next one, so that many lines are read in linear time.
    below = [end[line.end() : following.start()] for line, following in pairwise(lines)]
    below += [end[lines[-1].end() :]] if lines else []
    before = [end[previous.end() : line.start()] for previous, line in pairwise(lines)]
    before = [end[: lines[0].start()], *before] if lines else []
    return [
        _bare(last_box(line[1] if (line[1] or "").strip(_MARKS) else _below(text) or _boxed(earlier)))
        for line, text, earlier in zip(lines, below, before, strict=True)
    ]


def last_box(text: str) -> str:
    """Return what the last `\\boxed{…}` of a text holds; the text itself if there is none, empty if it does not end."""
    boxes = list(_BOX.finditer(text))
    if not boxes:
        return text
    start = boxes[-1].end() - 1
    end = group_end(text, start)
    return "" if end is None else text[start + 1 : end - 1]


def group_end(text: str, start: int) -> int | None:
    """Return the position behind what closes the brace, bracket or parenthesis at `start`; None if nothing does."""
    opening = text[start]
    closing = {"{": "}", "(": ")", "[": "]"}[opening]
    depth = 0
    for at in range(start, len(text)):
        if text[at] in (opening, closing) and text[at - 1 : at] != "\\":
            depth += 1 if text[at] == opening else -1
            if not depth:
                return at + 1
    return None


def _end(message: str) -> str:
    return message[-READ:].replace("\r\n", "\n")


def _below(text: str) -> str:
    """Return what is below a heading: its last box, or else the formula or line with which it begins."""
    if _BOX.search(text):
        return text
    text = text.lstrip(_QUOTED)
    formula = _FORMULA.match(text)
    if formula is not None:
        return next((part for part in formula.groups() if part is not None), "")
    return text.split("\n", 1)[0]


def _boxed(text: str) -> str:
    """Return a text that has a box; nothing if it has none."""
    return text if _BOX.search(text) else ""


def _bare(text: str) -> str:
    plain = text.strip(_MARKS).removesuffix(".").strip(_MARKS)
    if "$" in plain:  # dollars between formulas: then those at the ends are not around the whole
        plain = text.strip(_SIMPLE_MARKS).removesuffix(".").strip(_SIMPLE_MARKS)
    inner = _DELIMITED.fullmatch(plain)
    return (inner[1] or inner[2] or "").strip() if inner else plain
