"""The database of one episode: a copy of an image, with a record of what was changed.

All writes go through `insert`, `update` and `delete`. Each keeps the row as it was before the first write, so that
`changes` compares the state with that at the start without reading the whole database; writes that cancel each other
are no change. The tables, columns and conditions in SQL come from this package's code, and values are always bound.
"""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, get_type_hints

Tables = Mapping[str, type[Any]]
"""The tables by name. Each is a named tuple of texts and whole numbers, whose first field `id` is the primary key."""

Row = dict[str, Any]
"""A row by the names of its columns."""


def table_script(tables: Tables) -> str:
    """Return the SQL that makes tables."""
    lines = []
    for table, kind in tables.items():
        hints = get_type_hints(kind)
        columns = ", ".join(
            f"{name} {'INTEGER' if hints[name] is int else 'TEXT'} NOT NULL" for name in kind._fields[1:]
        )
        lines.append(f"CREATE TABLE {table} (id TEXT PRIMARY KEY, {columns}) WITHOUT ROWID;")
    return "\n".join(lines)


class Change(NamedTuple):
    """The difference of one row: `before` is None for a new row, `after` for a deleted one."""

    table: str
    id: str
    before: Row | None
    after: Row | None


class Store:
    """The state of one episode.

    Args:
        image: the database at the start, which is copied.
        tables: its tables.
        prefixes: the letters with which the ids of a table begin, for tables that get new rows.
    """

    def __init__(self, image: bytes, tables: Tables, prefixes: Mapping[str, str]) -> None:
        self._tables, self._prefixes = tables, prefixes
        self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        weakref.finalize(self, self._connection.close)  # Python 3.13 warns of a database that is only dropped
        self._connection.deserialize(image)
        self._connection.row_factory = sqlite3.Row
        self._before: dict[tuple[str, str], Row | None] = {}
        self._numbers: dict[str, int] = {}

    def close(self) -> None:
        """Free the database."""
        self._connection.close()

    def image(self) -> bytes:
        """Return the whole state, from which another store starts without changes."""
        return self._connection.serialize()

    def rows(self, sql: str, *values: Any) -> list[Row]:
        """Return the rows of a query."""
        return [dict(row) for row in self._connection.execute(sql, values)]

    def get(self, table: str, id: str) -> Row | None:
        """Return a row by its id, or None."""
        found = self.rows(f"SELECT * FROM {table} WHERE id = ?", id)
        return found[0] if found else None

    def new_id(self, table: str) -> str:
        """Return the next id of a table."""
        prefix = self._prefixes[table]
        if table not in self._numbers:
            cut = len(prefix) + 2
            row = self.rows(f"SELECT MAX(CAST(SUBSTR(id, {cut}) AS INTEGER)) AS last FROM {table}")[0]
            self._numbers[table] = row["last"] or 0
        self._numbers[table] += 1
        return f"{prefix}-{self._numbers[table]}"

    def insert(self, table: str, row: Mapping[str, Any]) -> None:
        """Add a row with all its columns."""
        columns = self._tables[table]._fields
        self._keep(table, row["id"])
        marks = ", ".join("?" * len(columns))
        self._connection.execute(f"INSERT INTO {table} VALUES ({marks})", [row[column] for column in columns])

    def update(self, table: str, id: str, **values: Any) -> None:
        """Change columns of a row."""
        self._keep(table, id)
        columns = ", ".join(f"{column} = ?" for column in values)
        self._connection.execute(f"UPDATE {table} SET {columns} WHERE id = ?", [*values.values(), id])

    def delete(self, table: str, id: str) -> None:
        """Delete a row."""
        self._keep(table, id)
        self._connection.execute(f"DELETE FROM {table} WHERE id = ?", [id])

    def add_all(self, rows: Iterable[tuple[str, tuple[Any, ...]]]) -> None:
        """Add rows that belong to the state at the start."""
        for table, row in rows:
            self._connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)

    def changes(self) -> list[Change]:
        """Return the differences to the state at the start, in the order of the first writes."""
        found = [Change(table, id, before, self.get(table, id)) for (table, id), before in self._before.items()]
        return [one for one in found if one.before != one.after]

    def dump(self) -> dict[str, list[Row]]:
        """Return all rows of all tables."""
        return {table: self.rows(f"SELECT * FROM {table} ORDER BY id") for table in self._tables}

    def _keep(self, table: str, id: str) -> None:
        if (table, id) not in self._before:
            self._before[table, id] = self.get(table, id)
