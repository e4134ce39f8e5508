"""Values that every wire can carry: text that has a UTF-8 form, and numbers that JSON has.

Python's strings may hold *lone surrogates*: half of a pair, as `bytes.decode(errors="surrogateescape")` makes them of
bytes that are not text. They have no UTF-8 form, so no wire, log or file can carry them. One rule holds everywhere:

* In the results, messages and metadata of an environment, each of them is replaced by U+FFFD.
* Input is never changed: a call whose arguments hold one is refused.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections import deque
from decimal import Decimal
from itertools import islice
from typing import Final, TypeVar

from pydantic_core import to_json

__all__ = [
    "escape_controls",
    "is_unicode",
    "json_problem",
    "plain_label",
    "printable",
    "replace_surrogates",
    "split_lines",
]


T = TypeVar("T")

REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
"""The replacement of a lone surrogate."""

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_FRAME: Final = re.compile(r'  File "([^"]+)", line \d+')
_OUR_CODE: Final = re.compile(r"/ludus/(?!environments/)|^<frozen ")
"""Matches the files whose frames `shorten_traceback` leaves out."""

_SEARCHED: Final = 10_000
"""The most values that are searched for the place of an invalid value; naming it is not worth more time."""


def is_unicode(text: str) -> bool:
    """Return whether `text` has a UTF-8 form, as any text without lone surrogates has."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def replace_surrogates(value: T) -> T:
    """Return `value` with every lone surrogate replaced by U+FFFD.

    Args:
        value: text, or a value of JSON's types: the keys and values of dicts and the items of lists and tuples are
            searched too. Anything else is returned unchanged. If nothing was replaced, the result is `value` itself.
    """
    if isinstance(value, str):
        return value if value.isascii() else _SURROGATE.sub(REPLACEMENT, value)  # type: ignore[return-value]
    if isinstance(value, dict):
        pairs = {replace_surrogates(key): replace_surrogates(item) for key, item in value.items()}
        same = all(old is new for old, new in zip(value.values(), pairs.values(), strict=False))
        return value if same and pairs.keys() == value.keys() else pairs  # type: ignore[return-value]
    if isinstance(value, (list, tuple)):
        items = [replace_surrogates(item) for item in value]
        if all(old is new for old, new in zip(value, items, strict=True)):
            return value
        return items if isinstance(value, list) else tuple(items)  # type: ignore[return-value]
    return value


def truncate(text: str, limit: int) -> str:
    """Return the text, cut to `limit` characters with an ellipsis as the last one if it is longer."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def printable(text: str) -> str:
    """Return the text for a terminal: every control character except newline and tab becomes U+FFFD."""
    return text if text.isprintable() else "".join(c if _harmless(c) else REPLACEMENT for c in text)


def plain_label(text: str) -> str:
    """Return a label that names one thing on a board or in a list: printable ASCII, with single spaces.

    Compatibility forms such as `ｍ` and `ﬁ` are read as their ASCII letters (NFKC). Labels that look alike are then
    equal, because nothing is left that has a twin: no other alphabet, no invisible and no combining character.

    Raises:
        ValueError: the label has another character, or nothing that is shown; the message names it.
    """
    label = " ".join(unicodedata.normalize("NFKC", text).split())
    for char in label:
        if not " " <= char <= "~":
            name = unicodedata.name(char, "a character without a name")
            raise ValueError(
                f"{text[:60]!a} has U+{ord(char):04X} ({name}); write it in ASCII, so that no other name looks like it"
            )
    if not label:
        raise ValueError(f"{text[:60]!a} has nothing that is shown")
    return label


def escape_controls(text: str) -> str:
    """Return the text for a log: every control character except newline and tab as an escape, such as `\\x1b`.

    The same holds for characters that reorder or hide what is read, such as U+202E.
    """
    if text.isprintable():
        return text
    return "".join(c if _harmless(c) else c.encode("unicode_escape").decode() for c in text)


def escape_record(text: str) -> str:
    """Return the text of one log record: as `escape_controls` does, with all lines but the first one indented.

    So a message or an exception with line breaks cannot be taken for other records.
    """
    return text if text.isprintable() else escape_controls(text).replace("\n", "\n  ")


def escape_json(text: str) -> str:
    """Return JSON text with control characters, and those that reorder what is read, in JSON's escapes."""
    if text.isprintable():
        return text
    return "".join(c if _harmless(c) else json.dumps(c)[1:-1] for c in text)


def _harmless(char: str) -> bool:
    # Joiners are what emoji and several scripts are made with; other format characters can reorder what is read.
    return char.isprintable() or char in "\n\t\u200c\u200d" or unicodedata.category(char) == "Zs"


def json_problem(value: object, name: str, *, finite: bool = True) -> str | None:
    """Return which part of a value JSON cannot carry, such as `score.mean is nan, …`; None if JSON can carry it.

    Args:
        value: text, numbers, lists and dicts; the insides of other objects are not searched.
        name: the name of the value in the message.
        finite: whether numbers must be finite, as in JSON.
    """
    # pydantic writes a value ten times as fast as Python walks through it, so Python walks through invalid values only.
    try:
        text = to_json(value, inf_nan_mode="constants")
        if not finite or not (b"NaN" in text or b"Infinity" in text) or text == to_json(value, inf_nan_mode="null"):
            return None
    except ValueError:
        pass
    return _find_problem(value, name, finite)


def _find_problem(value: object, name: str, finite: bool) -> str | None:
    waiting: deque[tuple[object, str]] = deque([(value, name)])
    for _ in range(_SEARCHED):
        if not waiting:
            return None
        item, where = waiting.popleft()
        if isinstance(item, str):
            if not is_unicode(item):
                return f"{where} holds a lone surrogate, which is not a character"
        elif isinstance(item, float | Decimal):
            if finite and not math.isfinite(item):
                return f"{where} is {item}, which is not a finite number"
        elif isinstance(item, dict):
            if any(isinstance(key, str) and not is_unicode(key) for key in item):
                return f"{where} has a name that holds a lone surrogate, which is not a character"
            waiting.extend((inner, f"{where}.{key}") for key, inner in islice(item.items(), _SEARCHED))
        elif isinstance(item, (list, tuple)):
            waiting.extend((inner, f"{where}.{index}") for index, inner in enumerate(islice(item, _SEARCHED)))
    return f"{name} holds a lone surrogate or a number that is not finite, or is nested too deeply"


def split_lines(text: str) -> list[str]:
    """Return the lines of JSON lines or of an event stream, without a byte order mark.

    Only CR, LF and CR LF end a line. `str.splitlines` also breaks at U+2028, U+2029, U+0085 and others, which a JSON
    text may hold.
    """
    return _LINE_END.split(text.removeprefix("\ufeff"))


_LINE_END: Final = re.compile(r"\r\n|\n|\r")


def shorten_traceback(text: str, lines: int = 12) -> list[str]:
    """Return the last lines of a traceback, without the frames of Ludus and of Python's import system.

    Args:
        text: the traceback as Python prints it.
        lines: the most lines to return.
    """
    kept: list[str] = []
    in_frame = dropped = False
    for line in text.splitlines():
        if found := _FRAME.match(line):
            in_frame, dropped = True, _OUR_CODE.search(found[1]) is not None
        elif not line.startswith("    "):
            in_frame = False
        if line.strip() and not (in_frame and dropped):
            kept.append(line)
    return kept[-lines:]
