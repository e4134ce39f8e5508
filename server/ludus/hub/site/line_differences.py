"""Differences between two texts line by line, and pages of lines, in bounded time and as safe HTML.

How this works: both texts are cut into pieces, which are lines, or parts of very long lines. `compare` leaves out the
common beginning and end and finds the shortest edit between the rest (Myers, "An O(ND) Difference Algorithm", 1986).
That can take time in proportion to the length of the texts times the number of edits, so both edits and steps are
bounded: what needs more is shown as removed and added as a whole.

A reader decides by what is shown whether code is safe to run. So no character is left out: those that are invisible
or that reorder the characters around them are shown as escapes, and so is the end of a file without a newline.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeVar

from markupsafe import Markup, escape

LONGEST_PIECE: Final = 400
"""The most characters of a piece of a line."""

CONTEXT: Final = 3
"""The pieces that are shown before and after each change."""

MOST_EDITS: Final = 600
"""The most pieces that may be removed and added in a shortest edit."""

MOST_STEPS: Final = 400_000
"""The most steps of the search for a shortest edit, each of which looks at one pair of pieces."""

MOST_PIECES: Final = 20_000
"""The most pieces of a text that is shown."""

NO_NEWLINE: Final = "\n"
"""The piece at the end of a text that does not end with a newline; no line can be like it."""

Kind = Literal["same", "removed", "added", "place"]
T = TypeVar("T")

_UNSEEN: Final = re.compile(r"[^ -~\t]")
_SIGNS: Final[dict[Kind, str]] = {"same": "  ", "removed": "- ", "added": "+ ", "place": ""}


class Row(NamedTuple):
    """One row of a difference: a piece of a line, or the place at which the following pieces are."""

    kind: Kind
    html: Markup
    size: int
    """The bytes of its HTML with its element."""


@dataclass(frozen=True)
class Comparison:
    """The differences between two texts.

    Attributes:
        rows: what is shown of them, in order.
        removed, added: the number of pieces that only the first or only the second text has.
        is_coarse: whether the texts differ too much to look for what they have in common.
    """

    rows: list[Row]
    removed: int
    added: int
    is_coarse: bool


def is_too_long(text: str) -> bool:
    """Return whether a text has more pieces than can be shown."""
    return text.count("\n") + len(text) // LONGEST_PIECE > MOST_PIECES


def compare(before: str, after: str) -> Comparison:
    """Return the differences between two texts."""
    old, new = _pieces(before), _pieces(after)
    common, is_coarse = _common(old.texts, new.texts)
    edits = list(_edits(old.texts, new.texts, common))
    kinds = [edit.kind for edit in edits]
    rows = list(_rows(edits, old, new))
    return Comparison(rows, kinds.count("removed"), kinds.count("added"), is_coarse)


def numbered(text: str) -> list[Row]:
    """Return the lines of a text, each with its number."""
    pieces, rows, last = _pieces(text), [], 0
    width = len(str(pieces.numbers[-1])) if pieces.numbers else 1
    for part, number in zip(pieces.texts, pieces.numbers, strict=True):
        label = " " * width if number == last or part == NO_NEWLINE else f"{number:>{width}}"
        rows.append(_row("same", part, f"{label}  "))
        last = number
    return rows


def in_pages(items: Sequence[T], sizes: Sequence[int], most: int) -> list[list[T]]:
    """Return items in pages of at most `most` bytes each; at least one page, and at least one item on each other."""
    found: list[list[T]] = [[]]
    left = most
    for item, size in zip(items, sizes, strict=True):
        if size > left and found[-1]:
            found.append([])
            left = most
        found[-1].append(item)
        left -= size
    return found


def visible(text: str) -> Markup:
    """Return text as HTML in which every character can be seen."""
    if text.isascii() and (text.isprintable() or text.replace("\t", "").isprintable()):
        return escape(text)
    parts, done = [], 0
    for found in _UNSEEN.finditer(text):
        if not found[0].isprintable():
            parts += [escape(text[done : found.start()]), Markup("<mark>{}</mark>").format(ascii(found[0])[1:-1])]
            done = found.end()
    return Markup("").join([*parts, escape(text[done:])])


class _Pieces(NamedTuple):
    texts: list[str]
    numbers: list[int]
    """The line of each piece."""


def _pieces(text: str) -> _Pieces:
    found = _Pieces([], [])
    lines = text.split("\n")
    last = lines.pop()
    for number, line in enumerate([*lines, last] if last else lines, 1):
        for start in range(0, len(line) or 1, LONGEST_PIECE):
            found.texts.append(line[start : start + LONGEST_PIECE])
            found.numbers.append(number)
    if last:
        found.texts.append(NO_NEWLINE)
        found.numbers.append(found.numbers[-1])
    return found


# ── the shortest edit ──────────────────────────────────────────────────────────────────────────────────────────────


def _common(old: Sequence[str], new: Sequence[str]) -> tuple[list[tuple[int, int]], bool]:
    """Return the places of the pieces that both have, in order, and whether some were not looked for."""
    shorter, start, end = min(len(old), len(new)), 0, 0
    while start < shorter and old[start] == new[start]:
        start += 1
    while end < shorter - start and old[-1 - end] == new[-1 - end]:
        end += 1
    first = [(place, place) for place in range(start)]
    last = [(len(old) - place, len(new) - place) for place in range(end, 0, -1)]
    ids: dict[str, int] = {}
    left, right = ([ids.setdefault(piece, len(ids)) for piece in some[start : len(some) - end]] for some in (old, new))
    if not left or not right:
        return first + last, False
    middle = _shortest(left, right)
    return first + [(x + start, y + start) for x, y in middle or ()] + last, middle is None


def _shortest(old: Sequence[int], new: Sequence[int]) -> list[tuple[int, int]] | None:
    """Return the places of the common pieces in a shortest edit; None if it takes too many edits or steps."""
    reached, history, steps = {1: 0}, [], 0
    for edits in range(MOST_EDITS + 1):
        history.append(reached.copy())
        for diagonal in range(-edits, edits + 1, 2):
            if steps > MOST_STEPS:
                return None
            begun = x = _next(reached, edits, diagonal)
            while x < len(old) and x - diagonal < len(new) and old[x] == new[x - diagonal]:
                x += 1
            steps += x - begun + 1
            reached[diagonal] = x
            if x >= len(old) and x - diagonal >= len(new):
                return _traced(history, len(old), len(new))
    return None


def _next(reached: dict[int, int], edits: int, diagonal: int) -> int:
    """Return how far one more edit leads on a diagonal."""
    return reached[diagonal + 1] if _adds(reached, edits, diagonal) else reached[diagonal - 1] + 1


def _traced(history: list[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    """Return the common pieces on the way to the end of both, from how far each number of edits has led."""
    found = []
    for edits in range(len(history) - 1, -1, -1):
        begun = _next(history[edits], edits, x - y)
        while x > begun:
            x, y = x - 1, y - 1
            found.append((x, y))
        x, y = (x, y - 1) if _adds(history[edits], edits, x - y) else (x - 1, y)
    return found[::-1]


def _adds(reached: dict[int, int], edits: int, diagonal: int) -> bool:
    """Return whether the edit that leads to a diagonal adds a piece rather than removes one."""
    return diagonal == -edits or (diagonal != edits and reached[diagonal - 1] < reached[diagonal + 1])


# ── what is shown ──────────────────────────────────────────────────────────────────────────────────────────────────


class _Edit(NamedTuple):
    kind: Kind
    old: int
    new: int


def _edits(old: Sequence[str], new: Sequence[str], common: Sequence[tuple[int, int]]) -> Iterator[_Edit]:
    x = y = 0
    for one, other in (*common, (len(old), len(new))):
        yield from (_Edit("removed", place, y) for place in range(x, one))
        yield from (_Edit("added", one, place) for place in range(y, other))
        if one < len(old):
            yield _Edit("same", one, other)
        x, y = one + 1, other + 1


def _rows(edits: Sequence[_Edit], old: _Pieces, new: _Pieces) -> Iterator[Row]:
    changed = [index for index, edit in enumerate(edits) if edit.kind != "same"]
    shown = sorted({near for place in changed for near in range(place - CONTEXT, place + CONTEXT + 1)})
    before = -2
    for place in shown:
        if not 0 <= place < len(edits):
            continue
        edit = edits[place]
        if place != before + 1:
            yield _place(_number(old, edit.old), _number(new, edit.new))
        text = new.texts[edit.new] if edit.kind == "added" else old.texts[edit.old]
        yield _row(edit.kind, text, _SIGNS[edit.kind])
        before = place


def _number(pieces: _Pieces, place: int) -> int:
    """Return the line of a piece, or the one after the last line."""
    if place < len(pieces.numbers):
        return pieces.numbers[place]
    return (pieces.numbers[-1] if pieces.numbers else 0) + 1


def _place(old: int, new: int) -> Row:
    text = f"Line {new}" if old == new else f"Line {new} (before: {old})"
    return Row("place", Markup(text), len(text) + 40)


def _row(kind: Kind, text: str, sign: str) -> Row:
    html = Markup("<i>(no newline at the end)</i>") if text == NO_NEWLINE else visible(text)
    html = Markup(sign) + html
    return Row(kind, html, len(html.encode()) + 14)
