"""Compares mathematics for `MathEqual`: one JSON line in, one out, until standard input ends."""

from __future__ import annotations

import json
import os
import resource
import sys
from typing import Any, Final

MEMORY: Final = 2 * 1024**3
"""Bytes of address space beyond which it may not grow."""


def main() -> None:
    """Serve."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints must not look like a reply
    from math_verify import parse, verify

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    _say(out, {"ready": True})
    for line in sys.stdin:
        question = json.loads(line)
        try:
            reply = _compare(parse, verify, question["expected"], question["answer"])
        except MemoryError:
            raise
        except Exception as error:
            reply = {"error": f"comparing raised {type(error).__name__}"}
        _say(out, reply)


def _compare(parse: Any, verify: Any, expected: str, answer: str) -> dict[str, Any]:
    wanted = _parse(parse, expected)
    if not wanted:
        return {"error": "no mathematics was found in what is expected"}
    found = _parse(parse, answer)
    equal = bool(found) and verify(wanted, found, timeout_seconds=None)
    return {"equal": bool(equal), "parsed": str(found[0])[:200] if found else ""}


def _parse(parse: Any, text: str) -> list[Any]:
    found: list[Any] = parse(text, parsing_timeout=None)
    # A bare LaTeX expression has no delimiters by which it is found.
    return found or parse(f"${text}$", parsing_timeout=None)


def _say(out: Any, reply: dict[str, Any]) -> None:
    out.write(json.dumps(reply) + "\n")
    out.flush()


if __name__ == "__main__":
    main()
