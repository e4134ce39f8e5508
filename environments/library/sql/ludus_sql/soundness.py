"""Which plans are sound: their hidden databases tell the reference from wrong queries, and from constants.

A few plans in a hundred are not, such as one whose filter happens to change nothing. For the tasks of validation and
test, and the first `VERIFIED` training tasks of each level, they were found beforehand, and `unsound.txt` lists them so
that another plan is drawn. `find_unsound.py` writes the file. Fresh test tasks are checked when they are drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from importlib import resources
from typing import Final

from ludus_sql.data import HIDDEN, PROFILES, Row
from ludus_sql.engine import Database
from ludus_sql.grading import hidden_database, is_ordered, is_rounded, same_rows
from ludus_sql.mutants import mutants
from ludus_sql.recipes import Plan

VERIFIED: Final = 10_000
"""How many training tasks of each level were checked."""

FILE: Final = "unsound.txt"
"""The list of plans that are not sound, in this package."""


@cache
def unsound() -> frozenset[int]:
    """Return the lower 32 bits of the seeds of plans that are not sound."""
    text = resources.files("ludus_sql").joinpath(FILE).read_text("ascii")
    return frozenset(int(word, 16) for word in text.split())


@contextmanager
def hidden(plan: Plan) -> Iterator[list[tuple[Database, list[Row]]]]:
    """Open the hidden databases of a plan, each with the rows of the reference."""
    found = []
    with ExitStack() as stack:
        for number in HIDDEN:
            database = stack.enter_context(closing(hidden_database(plan.schema, number, plan.solution)))
            found.append((database, database.trusted(plan.solution)))
            database.lock(PROFILES[number].reversed)
        yield found


def faults(plan: Plan) -> list[str]:
    """Return what makes a plan not sound; nothing if it is."""
    found = []
    ordered, rounded = is_ordered(plan.solution), is_rounded(plan.solution)
    with hidden(plan) as databases:
        if all(_trivial(rows) for _, rows in databases):
            found.append("no rows on any hidden database")
        if len({repr(rows) for _, rows in databases}) < 3:
            found.append("the same rows on nearly all hidden databases")
        for what, query in mutants(plan):
            results = (same_rows(rows, one.query(query, len(rows) + 1)[1], ordered, rounded) for one, rows in databases)
            if all(results):
                found.append(what)
    return found


def _trivial(rows: Sequence[Row]) -> bool:
    return all(value in (None, 0) for row in rows for value in row)
