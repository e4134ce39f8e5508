"""The layout of free texts: the markers of their lists, which are numbers without being facts."""

from __future__ import annotations

import re
from typing import Final

_MARKER: Final = re.compile(
    r"^[ \t>*_|#+-]*(?:[(\[]?(\d{1,2})(?:[.)\]:/]+(?=[ \t*_])|[ \t]*\|)|[(]?[ivx]{1,4}[.)])|\((\d)\)(?= [a-z])",
    re.MULTILINE | re.IGNORECASE,
)


def without_markers(text: str) -> str:
    """Return a text without the markers of its lists: from 1 on, each one more than the last.

    Other numbers at the start of lines stay, since they may be guesses. Some writers number every item with 1.
    """
    last = 0

    def unmarked(hit: re.Match[str]) -> str:
        nonlocal last
        number = hit[1] or hit[2]
        if number is None:
            return " "
        if int(number) not in (1, last + 1):
            return hit[0]
        last = int(number)
        return " "

    return _MARKER.sub(unmarked, text)
