"""Databases: generated rows for a schema, as images of SQLite databases in memory.

Each schema has one visible database and several hidden ones, which differ in their rows only: one like the visible one,
one with many ties, duplicates and NULLs, one with more rows, one in which most parents have no children, one whose
children are missing, and one without rows. Two of them are changed for each task, so that the values that its reference
query names, and NULLs next to them, are common (`focus`).

Rows are inserted in an order that is not that of their ids, and ids have no TYPE `INTEGER`, so that a query without
ORDER BY gives no order by id.
"""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from ludus.server.authoring.partition import digest
from ludus_sql.domains import ADJECTIVES, FIRST_NAMES, LAST_NAMES, NOUNS
from ludus_sql.schema import Column, Schema, Table, schema_of

Row = tuple[str | int | float | None, ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """What the rows of a database are like.

    Attributes:
        name: what the database tests.
        size: the number of rows, relative to the visible database.
        missing: the share of NULLs in columns that allow them.
        values: how many different values a column has at most; 0 for no limit.
        parents: the share of parents that have children.
        empty: the tables without rows: those with foreign keys, or those to which no other table refers.
        focused: whether it is changed for each task.
        reversed: whether SQLite returns rows without an order the other way around.
    """

    name: str
    size: float = 1.0
    missing: float = 0.15
    values: int = 0
    parents: float = 0.9
    empty: Literal["", "children", "leaves"] = ""
    focused: bool = False
    reversed: bool = False


PROFILES: Final = (
    Profile("visible"),
    Profile("alike"),
    Profile("ties", size=1.5, missing=0.35, values=3, focused=True),
    Profile("large", size=2.0, focused=True, reversed=True),
    Profile("small", size=0.3, missing=0.3, focused=True),
    Profile("childless", missing=0.5, parents=0.3, reversed=True),
    Profile("no children", empty="children"),
    Profile("no leaves", empty="leaves"),
    Profile("empty", size=0.0),
)
VISIBLE: Final = 0
HIDDEN: Final = range(1, len(PROFILES))
_SIZES: Final = (14, 24, 40, 60)
"""The number of rows by how many tables a table depends on, one after the other."""

_COMPARED: Final = re.compile(
    r"(?:(\w+)\.)?(\w+) (?:=|<>|<=?|>=?|(?:NOT )?IN|BETWEEN) \(?('[^']*'|-?[\d.]+)(?:(?:,| AND) ('[^']*'|[\d.]+))?"
)
_BEGINS: Final = re.compile(r"(\w+) LIKE '(\w)%'")


def rows_of(schema: Schema, number: int) -> Mapping[str, list[Row]]:
    """Return the rows of each table of a database, by the key of the table, in the order of their insertion."""
    profile = PROFILES[number]
    rng = random.Random(digest(f"sql:rows:{schema.domain}:{schema.variant}:{number}"))
    sizes = random.Random(digest(f"sql:sizes:{schema.domain}:{schema.variant}"))
    referred = {c.target for table in schema.asked for c in table.keys if c.target != table.key}
    depths: dict[str, int] = {}
    ids: dict[str, list[int]] = {}
    found: dict[str, list[Row]] = {}
    for key, table in schema.tables.items():
        depths[key] = max((depths[c.target] + 1 for c in table.keys if c.target != key), default=0)
        usual = _SIZES[min(depths[key], 3)]
        count = round((usual + sizes.randint(-usual // 4, usual // 4)) * profile.size)
        if (profile.empty == "children" and depths[key]) or (profile.empty == "leaves" and key not in referred):
            count = 0
        ids[key] = rng.sample(range(1, 2 * count + 5), count)
        makers = [_maker(column, table, ids, profile, rng) for column in table.columns[1:]]
        found[key] = [(id, *(make() for make in makers)) for id in ids[key]]
    return found


def _maker(
    column: Column, table: Table, ids: Mapping[str, list[int]], profile: Profile, rng: random.Random
) -> Callable[[], str | int | float | None]:
    """Return a function that draws values of a column."""
    uniform = rng.random
    if column.kind == "key":
        targets = ids[column.target]
        kept = rng.sample(targets, max(1, round(len(targets) * profile.parents))) if targets else []
        pool: Sequence[str | int | float] = kept
    else:
        pool = _pool(column, rng, profile.values)
    count, missing = len(pool), profile.missing if column.nullable else 0.0
    if not count:
        return lambda: None
    return lambda: None if missing and uniform() < missing else pool[int(uniform() * count)]


def _pool(column: Column, rng: random.Random, values: int) -> Sequence[str | int | float]:
    """Return the values of a column, some of them several times."""
    if column.kind == "choice":
        return [*column.choices, *rng.choices(column.choices, k=len(column.choices))]
    count = values or 60
    if column.kind == "int":
        span = range(column.low, column.high + 1)
        return [rng.choice(span) for _ in range(count)] if values else span
    if column.kind == "money":
        return [rng.randint(column.low * 4, column.high * 4) / 4 for _ in range(count)]
    if column.kind == "date":
        months = [f"{rng.choice((2021, 2022, 2023))}-{rng.randint(1, 12):02d}" for _ in range(max(2, count // 4))]
        return [f"{rng.choice(months)}-{rng.randint(1, 28):02d}" for _ in range(count)]
    first, last = (FIRST_NAMES, LAST_NAMES) if column.kind == "person" else (ADJECTIVES, NOUNS)
    return [f"{rng.choice(first)} {rng.choice(last)}" for _ in range(count)]


@lru_cache(maxsize=704)
def image(domain: str, variant: int, number: int) -> bytes:
    """Return a database as an image that `sqlite3.Connection.deserialize` reads."""
    schema = schema_of(domain, variant)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("PRAGMA page_size = 1024")
        connection.execute("BEGIN")
        for statement in schema.statements:
            connection.execute(statement)
        for key, rows in rows_of(schema, number).items():
            table = schema.tables[key]
            marks = ", ".join("?" * len(table.columns))
            connection.executemany(f"INSERT INTO {table.name} VALUES ({marks})", rows)
        connection.execute("COMMIT")
        return connection.serialize()


def focus(solution: str, schema: Schema) -> list[str]:
    """Return UPDATE statements that make the values in a reference query common, and NULLs next to them.

    Each value that a column is compared with replaces the values of two in seven rows, chosen by id; so does each
    initial of texts.
    """
    names = {table.name: table for table in schema.tables.values()}
    used = [table for name, table in names.items() if re.search(rf"\b{name}\b", solution)]
    found: dict[str, None] = {}
    for number, match in enumerate(_COMPARED.finditer(solution)):
        _, name, *values = match.groups()
        for table in used:
            column = next((c for c in table.columns if c.name == name and c.kind not in ("id", "key")), None)
            if column is None:
                continue
            id = table.id.name
            for index, value in enumerate(v for v in values if v is not None):
                rest = (number * 2 + index * 3) % 7
                found[f"UPDATE {table.name} SET {name} = {value} WHERE {id} % 7 IN ({rest}, {(rest + 1) % 7})"] = None
            if column.nullable:
                found[f"UPDATE {table.name} SET {name} = NULL WHERE {id} % 11 = {number % 11}"] = None
    for number, match in enumerate(_BEGINS.finditer(solution)):
        for table in used:
            if any(c.name == match[1] for c in table.columns):
                update = f"SET {match[1]} = '{match[2]}' || SUBSTR({match[1]}, 2)"
                found[f"UPDATE {table.name} {update} WHERE {table.id.name} % 7 IN ({number}, {number + 3})"] = None
    return list(found)
