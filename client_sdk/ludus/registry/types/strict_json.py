"""JSON that all readers read alike, for what is signed or locked.

A signature holds for the values that one reader has found. Where an object has a name twice, one reader takes the first
value and another one the last, so a text with a valid signature could say two things. Such a text is refused.
"""

from __future__ import annotations

import json
from typing import Any

from ludus.protocol.errors import ParseError
from ludus.protocol.text import json_problem


def read_strict(data: bytes | str, what: str) -> Any:
    """Return the value of a JSON text.

    Args:
        data: the text, in UTF-8.
        what: what it is, for messages, such as `the receipt run.json`.

    Raises:
        ParseError: it is no JSON, or JSON that readers read in different ways: with a name twice in an object, with
            `NaN` or infinity, with a number that is too large, or with half of a surrogate pair.
    """
    value: Any = None
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
        value = json.loads(text, object_pairs_hook=_object)
        problem = json_problem(value, "it")
    except RecursionError:
        problem = "it nests too deeply"
    except ValueError as error:
        problem = str(error)
    if problem is not None:
        raise ParseError(f"{what} is not JSON that all readers read alike: {problem}")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"an object has the name {name[:60]!a} twice")
            seen.add(name)
    return members
