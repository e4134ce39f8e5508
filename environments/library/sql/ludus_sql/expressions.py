"""The parts of a plan: columns, predicates, aggregates and sources of rows, each with its SQL and its English."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ludus_sql.schema import Column, Schema, Table

Value = str | int | float
Comparison = Literal["=", "<>", "<", "<=", ">", ">="]

_NUMBER_WORDS: Final = {
    "=": "is", "<>": "is not", "<": "is less than", "<=": "is at most", ">": "is greater than", ">=": "is at least",
}  # fmt: skip
_DATE_WORDS: Final = {
    **_NUMBER_WORDS,
    "<": "is before",
    "<=": "is on or before",
    ">": "is after",
    ">=": "is on or after",
}


def literal(value: Value) -> str:
    """Return a value in SQL; the same form is used in English."""
    return f"'{value}'" if isinstance(value, str) else f"{value:g}"


def listed(parts: Sequence[str], word: str = "and") -> str:
    """Join parts as English does: a, b and c."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} {word} {parts[-1]}"


def a(noun: str) -> str:
    """Return a noun with its indefinite article."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


@dataclass(frozen=True, slots=True)
class Ref:
    """A column of the base table, or of one that foreign keys lead to.

    Attributes:
        path: the foreign keys, from the base table on.
        column: the column of the last table.
    """

    path: tuple[Column, ...]
    column: Column

    @property
    def text(self) -> str:
        """The column in English, such as `order's customer's city` without its first noun."""
        return "".join(f"{key.role.replace('_', ' ')}'s " for key in self.path) + self.column.label

    @property
    def nullable(self) -> bool:
        """Whether the column itself may be NULL."""
        return self.column.nullable

    @property
    def dated(self) -> bool:
        """Whether the column is a date."""
        return self.column.kind == "date"


class Scope:
    """The FROM clause of one SELECT, which grows with the columns that are used.

    Args:
        schema: the schema.
        base: the table from which paths begin.
        alias: the name of the base table in the query; the table's own by default.
        outer: whether rows stay whose foreign keys are NULL.
    """

    def __init__(self, schema: Schema, base: Table, alias: str = "", outer: bool = False) -> None:
        self.schema, self.base, self.alias, self.outer = schema, base, alias or base.name, outer
        self._prefix = f"{alias}_" if alias else ""
        self._joins: dict[str, str] = {}

    def column(self, ref: Ref) -> str:
        """Return a column with the name of its table, which is joined."""
        alias = self.alias
        table = self.base
        for depth, key in enumerate(ref.path):
            table = self.schema.tables[key.target]
            name = self._prefix + "_".join(k.role for k in ref.path[: depth + 1]) + "_x"
            if name not in self._joins:
                join = "LEFT JOIN" if self.outer else "JOIN"
                self._joins[name] = f"{join} {table.name} AS {name} ON {name}.{table.id.name} = {alias}.{key.name}"
            alias = name
        return f"{alias}.{ref.column.name}"

    @property
    def id(self) -> str:
        """The id of the base table."""
        return f"{self.alias}.{self.base.id.name}"

    def clause(self, extra: str = "") -> str:
        """Return the FROM clause for the columns so far.

        Args:
            extra: a join that comes before the others.
        """
        base = self.base.name if self.alias == self.base.name else f"{self.base.name} AS {self.alias}"
        return "\n".join([f"FROM {base}", *([extra] if extra else []), *self._joins.values()])

    def finish(self, sql: str) -> str:
        """Leave out the name of the table where it is the only one."""
        return sql if self._joins else sql.replace(f"{self.alias}.", "")


@dataclass(frozen=True, slots=True)
class Compare:
    """A column compared with a value."""

    ref: Ref
    operator: Comparison
    value: Value
    or_missing: bool = False

    def sql(self, scope: Scope) -> str:
        """Return the condition."""
        column = scope.column(self.ref)
        test = f"{column} {self.operator} {literal(self.value)}"
        return f"({test} OR {column} IS NULL)" if self.or_missing else test

    @property
    def text(self) -> str:
        """The condition in English, after `whose`."""
        words = (_DATE_WORDS if self.ref.dated else _NUMBER_WORDS)[self.operator]
        shown = str(self.value) if self.ref.dated else literal(self.value)
        return f"{self.ref.text} {words} {shown}{' or missing' if self.or_missing else ''}"


@dataclass(frozen=True, slots=True)
class Between:
    """A column within two values, both included."""

    ref: Ref
    low: Value
    high: Value

    def sql(self, scope: Scope) -> str:
        """Return the condition."""
        return f"{scope.column(self.ref)} BETWEEN {literal(self.low)} AND {literal(self.high)}"

    @property
    def text(self) -> str:
        """The condition in English, after `whose`."""
        low, high = (str(v) if self.ref.dated else literal(v) for v in (self.low, self.high))
        return f"{self.ref.text} is between {low} and {high} (both included)"


@dataclass(frozen=True, slots=True)
class OneOf:
    """A column that is one of some texts, or none of them."""

    ref: Ref
    values: tuple[str, ...]
    negated: bool = False

    def sql(self, scope: Scope) -> str:
        """Return the condition."""
        values = ", ".join(map(literal, self.values))
        return f"{scope.column(self.ref)} {'NOT ' if self.negated else ''}IN ({values})"

    @property
    def text(self) -> str:
        """The condition in English, after `whose`."""
        values = listed([literal(v) for v in self.values], "nor" if self.negated else "or")
        return f"{self.ref.text} is {'neither' if self.negated else 'either'} {values}"


@dataclass(frozen=True, slots=True)
class Missing:
    """A column that is NULL, or is not."""

    ref: Ref
    negated: bool = False

    def sql(self, scope: Scope) -> str:
        """Return the condition."""
        return f"{scope.column(self.ref)} IS {'NOT ' if self.negated else ''}NULL"

    @property
    def text(self) -> str:
        """The condition in English, after `whose`."""
        return f"{self.ref.text} is {'not ' if self.negated else ''}missing"


@dataclass(frozen=True, slots=True)
class Initial:
    """A text that begins with a letter."""

    ref: Ref
    letter: str

    def sql(self, scope: Scope) -> str:
        """Return the condition."""
        return f"{scope.column(self.ref)} LIKE '{self.letter}%'"

    @property
    def text(self) -> str:
        """The condition in English, after `whose`."""
        return f"{self.ref.text} begins with '{self.letter}'"


@dataclass(frozen=True, slots=True)
class Either:
    """Two conditions of which at least one holds."""

    first: Predicate
    second: Predicate

    def sql(self, scope: Scope) -> str:
        """Return the condition."""
        return f"({self.first.sql(scope)} OR {self.second.sql(scope)})"

    @property
    def text(self) -> str:
        """The condition in English, after `whose`."""
        return f"{self.first.text} or whose {self.second.text} (or both)"


Predicate = Compare | Between | OneOf | Missing | Initial | Either


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a table that satisfy some conditions.

    Attributes:
        base: the table.
        where: the conditions, all of which hold.
    """

    base: Table
    where: tuple[Predicate, ...] = ()

    def conditions(self, scope: Scope) -> list[str]:
        """Return the conditions in SQL."""
        return [predicate.sql(scope) for predicate in self.where]

    @property
    def text(self) -> str:
        """The rows in English, such as `orders whose status is 'open'`."""
        return self.base.plural + self.suffix

    @property
    def suffix(self) -> str:
        """The conditions in English, after the noun."""
        parts = [f"whose {one.text}" for one in self.where]
        if len(parts) > 1:
            parts = [f"({part})" if "(or both)" in part else part for part in parts]
        return f" {listed(parts)}" if parts else ""


def where(conditions: Sequence[str]) -> str:
    """Return a WHERE clause on a line of its own; empty if there are no conditions."""
    return f"\nWHERE {' AND '.join(conditions)}" if conditions else ""


AggregateKind = Literal["count", "count_present", "count_different", "sum", "avg", "min", "max"]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate over rows.

    Attributes:
        kind: what it computes.
        ref: the column; None for a count of rows.
        rounded: whether the result is rounded to two decimals.
    """

    kind: AggregateKind
    ref: Ref | None = None
    rounded: bool = False

    def sql(self, scope: Scope) -> str:
        """Return the aggregate."""
        if self.ref is None:
            return "COUNT(*)"
        column = scope.column(self.ref)
        if self.kind == "count_present":
            return f"COUNT({column})"
        if self.kind == "count_different":
            return f"COUNT(DISTINCT {column})"
        found = f"{self.kind.upper()}({column})"
        return f"ROUND({found}, 2)" if self.rounded else found

    def text(self, plural: str) -> str:
        """Return the aggregate in English, for rows with this plural."""
        if self.ref is None:
            return f"the number of {plural}"
        label = self.ref.text
        if self.kind == "count_present":
            return f"the number of {plural} whose {label} is not missing"
        if self.kind == "count_different":
            return f"the number of different values of {label}"
        words = {"sum": "total", "avg": "average", "min": "smallest", "max": "largest"}
        if self.ref.dated:
            words = {"min": "earliest", "max": "latest"}
        return f"the {words[self.kind]} {label}{' (rounded to 2 decimals)' if self.rounded else ''}"

    @property
    def nullable(self) -> bool:
        """Whether the aggregate of a group may be NULL."""
        return self.ref is not None and self.ref.nullable and not self.kind.startswith("count")


@dataclass(frozen=True, slots=True)
class SortKey:
    """A key of an order.

    Attributes:
        sql: the expression.
        text: the expression in English.
        kind: decides the words for the direction.
        descending: whether the greatest comes first.
        nulls: where NULLs are put; empty if there are none.
    """

    sql: str
    text: str
    kind: Literal["number", "date", "text"]
    descending: bool = False
    nulls: Literal["", "FIRST", "LAST"] = ""

    @property
    def clause(self) -> str:
        """The key in SQL."""
        return f"{self.sql}{' DESC' if self.descending else ''}{f' NULLS {self.nulls}' if self.nulls else ''}"

    @property
    def words(self) -> str:
        """The key in English."""
        low, high = {"number": ("lowest", "highest"), "date": ("earliest", "latest"), "text": ("A", "Z")}[self.kind]
        first, last = (high, low) if self.descending else (low, high)
        way = f"from {first} to {last}" if self.kind == "text" else f"{first} first"
        return f"{self.text} ({way}{f', missing values {self.nulls.lower()}' if self.nulls else ''})"


def kind_of(column: Column) -> Literal["number", "date", "text"]:
    """Return how the values of a column are ordered."""
    if column.kind == "date":
        return "date"
    return "number" if column.kind in ("int", "money", "id", "key") else "text"


_MONTH_NOTE: Final = "Write the month as a text of the form YYYY-MM."


@dataclass(frozen=True, slots=True)
class DatePart:
    """The year or the month of a date, as a text.

    Attributes:
        ref: the date.
        length: 4 for the year, such as 2022; 7 for the month, such as 2022-03.
    """

    ref: Ref
    length: Literal[4, 7]

    def sql(self, scope: Scope) -> str:
        """Return the expression."""
        return f"SUBSTR({scope.column(self.ref)}, 1, {self.length})"

    @property
    def text(self) -> str:
        """The part in English."""
        return f"{'year' if self.length == 4 else 'month'} of the {self.ref.text}"

    @property
    def note(self) -> str:
        """The form of the value."""
        return "Write the year as a text of the form YYYY." if self.length == 4 else _MONTH_NOTE


Shown = Ref | DatePart


def shown_sql(one: Shown, scope: Scope) -> str:
    """Return a column or a part of a date in SQL."""
    return scope.column(one) if isinstance(one, Ref) else one.sql(scope)


def ref_of(one: Shown) -> Ref:
    """Return the column of an output."""
    return one if isinstance(one, Ref) else one.ref
