"""Reference queries of `sql` give the same rows in PostgreSQL, so that questions mean what standard SQL means."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from postgres_server import PostgresServer

from ludus.server import DIFFICULTIES, Difficulty
from ludus.server.authoring.dice import QuickRandom
from ludus_sql.data import PROFILES, Row, focus, image, rows_of
from ludus_sql.domains import DOMAINS
from ludus_sql.engine import Database
from ludus_sql.grading import is_ordered, is_rounded, same_rows
from ludus_sql.recipes import Plan, make_plan
from ludus_sql.schema import Schema

pytestmark = pytest.mark.suite("sql")

COMPARED = [
    number for number, profile in enumerate(PROFILES) if profile.name in ("ties", "small", "childless", "no leaves")
]


def create(connection: psycopg.Connection[Any], schema: Schema, number: int, folder: str) -> None:
    """Make the tables of a database in a schema of PostgreSQL; decimals are exact there."""
    connection.execute(f"CREATE SCHEMA {folder}".encode())
    connection.execute(f"SET search_path TO {folder}".encode())
    rows = rows_of(schema, number)
    for key, table in schema.tables.items():
        connection.execute(schema.create(table).replace(" REAL", " NUMERIC").encode())
        if rows[key]:
            marks = ", ".join(["%s"] * len(table.columns))
            # Rows of a table that refers to itself may come before those to which they refer.
            ordered = [list(row) for row in rows[key]]
            own = [i for i, column in enumerate(table.columns) if column.target == key]
            with connection.cursor() as cursor:
                for place in own:
                    for row, original in zip(ordered, rows[key], strict=True):
                        row[place] = None if original[place] is not None else row[place]
                cursor.executemany(f"INSERT INTO {table.name} VALUES ({marks})".encode(), ordered)
                for place in own:
                    name, id = table.columns[place].name, table.id.name
                    updates = [(original[place], original[0]) for original in rows[key]]
                    cursor.executemany(f"UPDATE {table.name} SET {name} = %s WHERE {id} = %s".encode(), updates)


def plain(rows: Sequence[tuple[Any, ...]]) -> list[Row]:
    return [tuple(float(v) if isinstance(v, Decimal) else v for v in row) for row in rows]


def in_sqlite(plan: Plan, number: int, updates: Sequence[str]) -> list[Row]:
    database = Database(image(plan.schema.domain, plan.schema.variant, number), (), updates)
    try:
        return database.trusted(plan.solution)
    finally:
        database.close()


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_reference_queries_mean_the_same_in_postgresql(postgres: PostgresServer, difficulty: Difficulty) -> None:
    rng = QuickRandom(DIFFICULTIES.index(difficulty))
    plans: dict[Schema, list[Plan]] = {}
    for _ in range(150):
        plan = make_plan(rng, difficulty)
        plans.setdefault(plan.schema, []).append(plan)
    assert {schema.domain for schema in plans} == set(DOMAINS)
    with psycopg.connect(postgres.new_url()) as connection:
        for place, (schema, found) in enumerate(plans.items()):
            number = COMPARED[place % len(COMPARED)]
            create(connection, schema, number, f"s{place}")
            for plan in found:
                updates = focus(plan.solution, schema) if PROFILES[number].focused else []
                with connection.transaction(force_rollback=True):
                    for update in updates:
                        connection.execute(update.encode())
                    theirs = plain(connection.execute(plan.solution.encode()).fetchall())
                ours = in_sqlite(plan, number, updates)
                ordered, rounded = is_ordered(plan.solution), is_rounded(plan.solution)
                assert same_rows(ours, theirs, ordered, rounded), plan.solution
