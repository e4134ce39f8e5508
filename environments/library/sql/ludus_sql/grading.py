"""Compare a policy's query with the reference on the hidden databases.

A query is right if its rows equal those of the reference on every hidden database. Rows are compared as a multiset, or
in order where the question asks for an order. Columns count by position. NULL equals NULL, texts are compared exactly,
whole numbers and decimals by value with a small tolerance, and a number never equals a text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ludus_sql.data import HIDDEN, PROFILES, Row, focus, image
from ludus_sql.engine import Database, QueryError, check_query
from ludus_sql.schema import Schema

TOLERANCE: Final = 1e-6
"""The tolerance of numbers, relative and absolute."""

_READ: Final = 20_000
"""The most characters of a message that are read, from its end."""

_FENCE: Final = re.compile(r"(`{3,}|~{3,})[ \t]*([\w+-]{0,20})[ \t]*\r?\n(.*?)\1", re.DOTALL)
_LANGUAGES: Final = frozenset({"sql", "sqlite", "sqlite3", "postgresql", "postgres", "mysql"})
_QUERY: Final = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*(?:select|with)\b", re.IGNORECASE | re.DOTALL)
_ORDERED: Final = re.compile(r"\nORDER BY [^\n]*(?:\nLIMIT \d+)?\Z")
_ROUNDED: Final = re.compile(r"\bROUND\(")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a query earned.

    Attributes:
        correct: whether it is right on all hidden databases.
        runs: whether it ran on the first one.
    """

    correct: bool
    runs: bool


def read_query(message: str) -> str:
    """Return the query of a final message: its last code block of SQL, or else the whole message.

    A block without a language is one of SQL if it begins with SELECT or WITH, so the output below a query is none.
    Where no block is one of SQL, the last block without a language counts.
    """
    end = message[-_READ:]
    blocks = [(language.lower(), text) for _, language, text in _FENCE.findall(end)]
    queries = [text for language, text in blocks if language in _LANGUAGES or (not language and _QUERY.match(text))]
    queries = queries or [text for language, text in blocks if not language]
    query = (queries[-1] if queries else end).strip()
    return query[1:-1].strip() if len(query) > 1 and query[0] == query[-1] == "`" else query


def judge(sql: str, solution: str, schema: Schema) -> Verdict:
    """Run a query and the reference on the hidden databases until they differ."""
    try:
        query = check_query(sql)
    except QueryError:
        return Verdict(False, False)
    ran = False
    for number in HIDDEN:
        database = hidden_database(schema, number, solution)
        try:
            expected = database.trusted(solution)
            database.lock(PROFILES[number].reversed)
            _, found = database.query(query, len(expected) + 1)
        except QueryError:
            return Verdict(False, ran)
        finally:
            database.close()
        ran = True
        if not same_rows(expected, found, ordered=is_ordered(solution), rounded=is_rounded(solution)):
            return Verdict(False, True)
    return Verdict(True, True)


def hidden_database(schema: Schema, number: int, solution: str) -> Database:
    """Open a hidden database for a task with a reference query."""
    updates = focus(solution, schema) if PROFILES[number].focused else ()
    tables = [table.name for table in schema.tables.values()]
    return Database(image(schema.domain, schema.variant, number), tables, updates)


def is_ordered(solution: str) -> bool:
    """Return whether the rows of a reference query have an order."""
    return _ORDERED.search(solution) is not None


def is_rounded(solution: str) -> bool:
    """Return whether a reference query rounds."""
    return _ROUNDED.search(solution) is not None


def same_rows(expected: Sequence[Row], found: Sequence[Row], ordered: bool, rounded: bool = False) -> bool:
    """Return whether two results are the same.

    Args:
        expected: the rows of the reference.
        found: the rows of the query.
        ordered: whether the order counts.
        rounded: whether a number with two decimals may be off by one hundredth, since databases round ties differently.
    """
    if len(expected) != len(found) or (expected and len(expected[0]) != len(found[0])):
        return False
    if not ordered:
        expected, found = sorted(expected, key=_sort_key), sorted(found, key=_sort_key)
    return all(
        _same(one, two, rounded)
        for left, right in zip(expected, found, strict=True)
        for one, two in zip(left, right, strict=True)
    )


def _sort_key(row: Row) -> list[tuple[int, float, str]]:
    # Rounded, so that two sums of the same numbers in another order are at the same place.
    return [
        (0, 0.0, "") if one is None else (1, round(one, 4), "") if isinstance(one, int | float) else (2, 0.0, str(one))
        for one in row
    ]


def _same(one: str | float | None, two: str | float | None, rounded: bool) -> bool:
    if isinstance(one, int | float) and isinstance(two, int | float):
        if math.isclose(one, two, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
            return True
        return rounded and abs(one - two) < 0.0100001 and abs(two * 100 - round(two * 100)) < 1e-6
    return type(one) is type(two) and one == two
