"""Schemas: the tables of a domain, under the names and with the distractors of one of its variants."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Final, Literal

from ludus.server.authoring.partition import digest
from ludus_sql.domains import DOMAINS

Kind = Literal["id", "key", "person", "title", "choice", "date", "int", "money"]
NUMBERS: Final = ("int", "money")
VARIANTS: Final = 6
"""The number of schemas of each domain."""

_TYPES: Final[Mapping[Kind, str]] = {"id": "INT", "key": "INT", "int": "INT", "money": "REAL"}
_PLAIN: Final[tuple[Kind, ...]] = ("person", "title", "date", "int", "money")
_COLUMN: Final = re.compile(r"(~?)(\w+)(\??)(?:>(\w+)(\??)|=(.+)|:(\w+)(?: (\d+)-(\d+))?)")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        name: its name in the database, which is unique in its table.
        label: its name in English.
        kind: what its values are.
        nullable: whether values may be NULL.
        choices: the values of a `choice`.
        low: the least value of a number.
        high: the greatest value of a number.
        role: the role of a foreign key, such as `manager`.
        target: the table to which a foreign key points.
        distractor: whether no question is about it.
    """

    name: str
    label: str
    kind: Kind
    nullable: bool = False
    choices: tuple[str, ...] = ()
    low: int = 0
    high: int = 0
    role: str = ""
    target: str = ""
    distractor: bool = False

    @property
    def declaration(self) -> str:
        """The column in a CREATE TABLE statement."""
        suffix = " PRIMARY KEY" if self.kind == "id" else "" if self.nullable else " NOT NULL"
        return f"{self.name} {_TYPES.get(self.kind, 'TEXT')}{suffix}"


@dataclass(frozen=True, eq=False)
class Table:
    """A table of a schema.

    Attributes:
        key: the singular in English, which is its name in the domain.
        plural: the plural in English.
        name: its name in the database.
        columns: its columns, the id first.
        distractor: whether no question is about it.
    """

    key: str
    plural: str
    name: str
    columns: tuple[Column, ...]
    distractor: bool = False
    usable: tuple[Column, ...] = field(init=False)
    """The columns that questions are about, without keys."""
    keys: tuple[Column, ...] = field(init=False)
    """The foreign keys."""
    _kinds: dict[tuple[Kind, ...], tuple[Column, ...]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        usable = tuple(c for c in self.columns if not c.distractor and c.kind not in ("id", "key"))
        object.__setattr__(self, "usable", usable)
        object.__setattr__(self, "keys", tuple(c for c in self.columns if c.kind == "key"))

    @property
    def id(self) -> Column:
        """The primary key."""
        return self.columns[0]

    def of_kind(self, *kinds: Kind) -> tuple[Column, ...]:
        """Return the usable columns of these kinds."""
        if kinds not in self._kinds:
            self._kinds[kinds] = tuple(column for column in self.usable if column.kind in kinds)
        return self._kinds[kinds]


@dataclass(frozen=True, eq=False)
class Schema:
    """The tables of one variant of a domain, by key; each refers only to those before it, or to itself."""

    domain: str
    variant: int
    tables: Mapping[str, Table]
    asked: tuple[Table, ...] = field(init=False)
    """The tables that questions are about."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "asked", tuple(t for t in self.tables.values() if not t.distractor))

    def children(self, parent: Table) -> list[tuple[Table, Column]]:
        """Return the tables that refer to a table, each with its foreign key."""
        return [(t, c) for t in self.asked if t is not parent for c in t.keys if c.target == parent.key]

    @property
    def statements(self) -> list[str]:
        """The CREATE TABLE statements."""
        return [self.create(table) for table in self.tables.values()]

    def create(self, table: Table) -> str:
        """Return the statement that creates a table."""
        lines = [column.declaration for column in table.columns]
        for column in table.keys:
            target = self.tables[column.target]
            lines.append(f"FOREIGN KEY ({column.name}) REFERENCES {target.name} ({target.id.name})")
        return f"CREATE TABLE {table.name} (\n  " + ",\n  ".join(lines) + "\n)"


@cache
def schema_of(domain: str, variant: int) -> Schema:
    """Return a schema.

    Args:
        domain: a key of `DOMAINS`.
        variant: 0 to 5. It decides the names of tables and ids, and which distractors are there.
    """
    rng = random.Random(digest(f"sql:schema:{domain}:{variant}"))
    tables: dict[str, Table] = {}
    for line in DOMAINS[domain].strip().replace("\n    ", " ").splitlines():
        head, _, body = line.partition(": ")
        key, plural = head.lstrip("~").split()
        distractor = head.startswith("~")
        if distractor and rng.random() < 0.5:
            continue
        columns = [_column(match) for match in map(_COLUMN.fullmatch, body.split(", ")) if match]
        kept = [c for c in columns if not c.distractor or rng.random() < 0.5]
        name = (plural, f"{domain}_{plural}", f"t_{key}")[variant % 3]
        identity = Column("id" if variant % 2 == 0 else f"{key}_id", "id", "id")
        if any(c.name == identity.name for c in kept):  # a table that refers to itself under its own name
            identity = Column("id", "id", "id")
        tables[key] = Table(key, plural.replace("_", " "), name, (identity, *kept), distractor)
    return Schema(domain, variant, _sorted(tables))


def _sorted(tables: Mapping[str, Table]) -> Mapping[str, Table]:
    """Put tables after those to which they refer."""
    done: dict[str, Table] = {}
    while len(done) < len(tables):
        for key, table in tables.items():
            if all(c.target in done or c.target == key for c in table.keys):
                done.setdefault(key, table)
    return done


def _column(match: re.Match[str]) -> Column:
    distractor, name, nullable, target, optional, choices, kind, low, high = match.groups()
    hidden = bool(distractor)
    if target:
        label = f"{name.replace('_', ' ')} id"
        return Column(f"{name}_id", label, "key", bool(optional), role=name, target=target, distractor=hidden)
    label = name.replace("_", " ")
    if choices:
        return Column(name, label, "choice", bool(nullable), tuple(choices.split("|")), distractor=hidden)
    plain: Kind = next(known for known in _PLAIN if known == kind)
    return Column(name, label, plain, bool(nullable), (), int(low or 0), int(high or 0), distractor=hidden)
