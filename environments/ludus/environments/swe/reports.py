"""Reports of faults that are made from the sources: what a user writes who has a session that goes wrong."""

from __future__ import annotations

import ast
import builtins
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ludus.environments.swe.sessions import Outcome, Session, shortest_session
from ludus.server.authoring.partition import digest

ATTEMPTS: Final = 40
"""How many hidden tests are tried for a session, each with inputs of its own."""
_ENOUGH: Final = 3
"""Of how many sessions the shortest is taken."""
_OPENINGS: Final = (
    "I get a wrong result with a few calls:",
    "This session does not do what the documentation says:",
    "Since we use the package for real data, this happens:",
    "One of our jobs failed, and it comes down to this:",
    "The following is wrong as far as I can see:",
)
_CLOSINGS: Final = (
    "Other inputs are affected as well.",
    "I have seen it with other values, too; this is the shortest case I have.",
    "It does not depend on these values.",
    "There may be other calls that go wrong for the same reason.",
)


class WrittenReport(NamedTuple):
    """A report of a derived fault.

    Attributes:
        title: its title.
        text: what the user writes.
        example: a test method that fails with the fault.
    """

    title: str
    text: str
    example: str


def find_session(
    package: str,
    right: Sequence[Mapping[str, str]],
    wrong: Sequence[Mapping[str, str]],
    tests: Sequence[str],
    seed: str,
) -> Session | None:
    """Return a short session that shows a fault; None if no hidden test has one.

    Args:
        package: the name of the package.
        right: versions of the package without the fault; see `shortest_session`.
        wrong: versions with it.
        tests: the hidden tests that notice it.
        seed: what their inputs are drawn from.
    """
    sessions: list[Session] = []
    for attempt in range(ATTEMPTS):
        test = tests[attempt % len(tests)]
        session = shortest_session(package, right, wrong, test, digest(f"session:{seed}:{attempt}") % 2**48)
        if session is not None:
            sessions.append(session)
        if len(sessions) == _ENOUGH:
            break
    return min(sessions, key=lambda session: (len(session.lines), sum(map(len, session.lines))), default=None)


def written_report(session: Session, package: str, seed: str) -> WrittenReport:
    """Return the report of a session.

    Args:
        session: the session.
        package: the name of the package.
        seed: what the wording is drawn from.
    """
    rng = random.Random(digest(f"report:{seed}:{session.lines}"))
    *before, last = session.lines
    shown = f"Error: {session.shown.text}" if session.shown.raised else session.shown.text
    lines = [f">>> from {package} import *", *(f">>> {line}" for line in before), f">>> {last}", shown]
    expected = session.expected
    wanted = f"It should raise {expected.text}." if expected.raised else f"It should be `{expected.text}`."
    text = "\n".join((rng.choice(_OPENINGS), "", "```", *lines, "```", "", f"{wanted} {rng.choice(_CLOSINGS)}"))
    return WrittenReport(_title(session, rng), text, _example(session, package))


def _title(session: Session, rng: random.Random) -> str:
    name, shown, expected = f"`{session.calls}`", session.shown, session.expected
    if shown.raised:
        return rng.choice(
            (f"{name} fails with {shown.text}", f"{shown.text} in {name}", f"Unexpected {shown.text} by {name}")
        )
    if expected.raised:
        return rng.choice((f"{name} does not raise {expected.text}", f"{name} accepts what it should refuse",
                           f"No {expected.text} where {name} should raise it"))  # fmt: skip
    return rng.choice(_difference(name, shown, expected))


def _difference(name: str, shown: Outcome, expected: Outcome) -> tuple[str, ...]:
    before, after = expected.value, shown.value
    if after is None:
        return f"{name} returns None", f"{name} finds nothing"
    if before is None:
        return f"{name} returns something where there is nothing", f"{name} should return None"
    if isinstance(before, bool) or isinstance(after, bool):
        return f"{name} says {after} instead of {before}", f"{name} is {after} where it should be {before}"
    if isinstance(before, (int, float)) and isinstance(after, (int, float)):
        size = "large" if after > before else "small"
        return f"{name} is too {size}", f"The number of {name} is too {size}"
    if isinstance(before, (list, tuple)) and type(before) is type(after):
        return _of_lists(name, Counter(map(repr, after)), Counter(map(repr, before)))
    if isinstance(before, str) and isinstance(after, str):
        return f"{name} gives another text than it should", f"Wrong text from {name}"
    return f"{name} gives a wrong result", f"Wrong result of {name}"


def _of_lists(name: str, shown: Counter[str], expected: Counter[str]) -> tuple[str, ...]:
    if shown == expected:
        return f"{name} has the wrong order", f"The order of {name} is not as documented"
    if not shown - expected:
        return f"{name} leaves something out", f"Entries are missing from {name}"
    if not expected - shown:
        return f"{name} returns too much", f"{name} has entries that do not belong there"
    return f"{name} has wrong entries", f"Wrong entries in {name}"


def _example(session: Session, package: str) -> str:
    *before, last = session.lines
    names = {
        node.id for line in session.lines for node in ast.walk(ast.parse(line))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and not hasattr(builtins, node.id)
    }  # fmt: skip
    names -= {line.partition(" = ")[0] for line in before}
    body: list[Any] = [f"from {package} import {', '.join(sorted(names))}"] if names else []
    body += ["", *before] if names else [*before]
    if session.expected.raised:
        known = session.expected.text if hasattr(builtins, session.expected.text) else "Exception"
        body += [f"with self.assertRaises({known}):", f"    {last}"]
    else:
        body.append(f"self.assertEqual({last}, {session.expected.text})")
    return "\n".join(["def test_reported_session(self):", *(f"    {line}".rstrip() for line in body)]) + "\n"


__all__ = ["WrittenReport", "find_session", "written_report"]
