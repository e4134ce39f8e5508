"""Compares mathematics for `MathEqual`: one JSON line in, two out, until standard input ends.

The first says that what is expected was understood, so that whatever happens after it is the answer's doing: it may
use so much processor time and no more, or the system ends this process.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from typing import Any, Final

MEMORY: Final = 2 * 1024**3
"""Bytes of address space beyond which it may not grow."""

PLAIN: Final = "1.5"
"""What nothing is the matter with: whoever cannot be compared with it is at fault."""

KEPT: Final = 10_000
"""Expected answers that are known to be comparable."""


def main() -> None:
    """Serve."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints must not look like a reply
    from math_verify import parse, verify

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    _say(out, {"ready": True})
    sound: set[str] = set()
    for line in sys.stdin:
        question = json.loads(line)
        try:
            wanted = _understand(parse, verify, question["expected"], sound)
        except Exception as error:
            _say(out, {"error": f"reading what is expected raised {type(error).__name__}"})
            continue
        if not wanted:
            _say(out, {"error": "no mathematics was found in what is expected"})
            continue
        _say(out, {"understood": True})
        signal.setitimer(signal.ITIMER_PROF, question["seconds"])
        reply = _compare(parse, verify, wanted, question["answer"])
        signal.setitimer(signal.ITIMER_PROF, 0)
        _say(out, reply)


def _understand(parse: Any, verify: Any, expected: str, sound: set[str]) -> list[Any]:
    wanted = _parse(parse, expected)
    if wanted and expected not in sound:
        verify(wanted, _parse(parse, PLAIN), timeout_seconds=None)
        if len(sound) >= KEPT:
            sound.clear()
        sound.add(expected)
    return wanted


def _compare(parse: Any, verify: Any, wanted: list[Any], answer: str) -> dict[str, Any]:
    try:
        found = _parse(parse, answer)
        equal = bool(found) and verify(wanted, found, timeout_seconds=None)
    except MemoryError:
        raise
    except Exception as error:
        return {"equal": False, "parsed": "", "raised": type(error).__name__}
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
