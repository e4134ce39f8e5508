"""Wrong queries that people and models write, made from the reference of a plan by changing one thing.

A plan is sound if the hidden databases tell its reference from all of these. `soundness.py` checks that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Final

from ludus_sql.advanced import PerPeriod, Windowed
from ludus_sql.expressions import Compare, Either, Rows
from ludus_sql.recipes import Plan
from ludus_sql.simple import Grouped, ListRows, Statement

CHANGES: Final[Sequence[tuple[str, str, str | Callable[[re.Match[str]], str]]]] = (
    ("distinct lost", r"SELECT DISTINCT ", "SELECT "),
    ("distinct count lost", r"COUNT\(DISTINCT ", "COUNT("),
    ("descending lost", r" DESC", ""),
    ("greater or equal", r" > (?=['\d])", " >= "),
    ("greater only", r" >= ", " > "),
    ("less or equal", r" < (?=['\d])", " <= "),
    ("less only", r" <= ", " < "),
    ("inner join", r"LEFT JOIN", "JOIN"),
    ("other set operation", r"\nUNION ALL\n", "\nUNION\n"),
    ("other set operation", r"\nUNION\n", "\nUNION ALL\n"),
    ("other set operation", r"\nINTERSECT\n", "\nEXCEPT\n"),
    ("other set operation", r"\nEXCEPT\n", "\nUNION\n"),
    ("limit off by one", r"\nLIMIT (\d+)", lambda found: f"\nLIMIT {int(found[1]) + 1}"),
    ("limit lost", r"\nLIMIT \d+", ""),
    ("order lost", r"\nORDER BY [^\n]*\Z", ""),
    ("last key of the order lost", r"(\nORDER BY [^\n]*), [^,\n]*", r"\1"),
    ("nulls elsewhere", r"NULLS FIRST", "NULLS LAST"),
    ("nulls elsewhere", r"NULLS LAST", "NULLS FIRST"),
    ("anti-join turned around", r"NOT EXISTS", "EXISTS"),
    ("zero lost", r"COALESCE\((.*?\)), 0\)", r"\1"),
    ("partition lost", r"PARTITION BY \S+?(?= ORDER|\))", ""),
    ("rows that are equal", r"\b(?:DENSE_)?RANK\(\)", "ROW_NUMBER()"),
    ("other ranks", r"\bDENSE_RANK\(\)", "RANK()"),
    ("other ranks", r"\bRANK\(\)(?=.*<= [2-9])", "DENSE_RANK()"),
    ("counts outer rows", r"COUNT\(c\.\w+\)(?=\n)", "COUNT(*)"),
    ("frame lost", r" ROWS BETWEEN 2 PRECEDING AND CURRENT ROW", ""),
    ("group of the correlated subquery lost", r"(FROM \w+ AS o) WHERE [^)]*", r"\1"),
    ("missing values forgotten", r"\((\S+ \S+ \S+) OR \S+ IS NULL\)", r"\1"),
    ("sum for average", r"\bAVG\(", "SUM("),
    ("other extreme", r"\bMAX\(", "MIN("),
)  # fmt: skip


def without_effect(statement: Statement) -> tuple[str, ...]:
    """Return the changes without effect in SQLite, which sorts to group, to find different rows, and for windows."""
    if isinstance(statement, Grouped):
        by_keys = statement.by_aggregate is None
        return ("last key of the order lost", *(["order lost"] if by_keys else []))
    if isinstance(statement, ListRows) and statement.distinct:
        return ("last key of the order lost", "order lost")
    return ("order lost", "last key of the order lost") if isinstance(statement, PerPeriod | Windowed) else ()


def mutants(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield wrong queries for a plan, each with what is wrong with it."""
    solution = plan.solution
    skipped = without_effect(plan.statement)
    for what, pattern, new in CHANGES:
        if what in skipped:
            continue
        for match in re.finditer(pattern, solution, re.DOTALL):
            changed = _changed_everywhere(solution, match, new)
            if changed != solution:
                yield what, changed
    for statement in _without_conditions(plan.statement):
        yield "condition lost", statement.sql(plan.schema)


def _changed_everywhere(solution: str, match: re.Match[str], new: str | Callable[[re.Match[str]], str]) -> str:
    """Change a part, and all others that are equal to it up to the words around it, such as a repeated expression."""
    left = re.search(r"\S*\s?\Z", solution[: match.start()])
    right = re.match(r"\s?\S*", solution[match.end() :])
    assert left is not None
    assert right is not None
    around = left[0] + match[0] + right[0]
    return solution.replace(
        around, left[0] + match.expand(new) + right[0] if isinstance(new, str) else left[0] + new(match) + right[0]
    )


def _without_conditions(statement: Statement) -> Iterator[Statement]:
    for field in fields(statement):  # type: ignore[arg-type]
        rows = getattr(statement, field.name)
        if not isinstance(rows, Rows):
            continue
        for index, one in enumerate(rows.where):
            rest = (*rows.where[:index], *rows.where[index + 1 :])
            yield replace(statement, **{field.name: Rows(rows.base, rest)})  # type: ignore[type-var]
            if isinstance(one, Either):
                half = (*rows.where[:index], one.first, *rows.where[index + 1 :])
                yield replace(statement, **{field.name: Rows(rows.base, half)})  # type: ignore[type-var]
            if isinstance(one, Compare) and one.operator == "<>" and not one.or_missing:
                other = (*rows.where[:index], replace(one, or_missing=True), *rows.where[index + 1 :])
                if one.ref.nullable:
                    yield replace(statement, **{field.name: Rows(rows.base, other)})  # type: ignore[type-var]
