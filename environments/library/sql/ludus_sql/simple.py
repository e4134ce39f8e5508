"""Statements with one SELECT: lists of rows, summaries, groups, and parents with their children."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from ludus_sql.expressions import (
    Aggregate,
    DatePart,
    Ref,
    Rows,
    Scope,
    Shown,
    SortKey,
    Value,
    a,
    kind_of,
    listed,
    literal,
    ref_of,
    shown_sql,
    where,
)
from ludus_sql.schema import Column, Schema, Table


class Statement(Protocol):
    """A plan: one question and its reference query."""

    @property
    def rows(self) -> Rows:
        """The rows from which it begins."""
        ...

    def sql(self, schema: Schema) -> str:
        """Return the reference query."""
        ...

    def question(self, schema: Schema) -> str:
        """Return the question, in which `{V}` stands for a verb."""
        ...


@dataclass(frozen=True, slots=True)
class Order:
    """An order of the rows of a result.

    Attributes:
        by: the columns, each with whether the greatest comes first.
        id_descending: whether rows that are equal so far are ordered from the highest id to the lowest; None if the
            columns leave no ties.
        limit: how many rows there are at most; 0 for all.
    """

    by: tuple[tuple[Shown, bool], ...]
    id_descending: bool | None = False
    limit: int = 0

    def keys(self, scope: Scope) -> list[SortKey]:
        """Return the keys of the order, the id among them."""
        found = [
            SortKey(shown_sql(one, scope), one.text, kind_of(ref_of(one).column), down, self._nulls(one, down))
            for one, down in self.by
        ]
        if self.id_descending is not None:
            found.append(SortKey(scope.id, f"{scope.base.key.replace('_', ' ')} id", "number", self.id_descending))
        return found

    @staticmethod
    def _nulls(one: Shown, descending: bool) -> Literal["", "FIRST", "LAST"]:
        return ("LAST" if descending else "FIRST") if ref_of(one).nullable else ""


def order_clause(keys: Sequence[SortKey], limit: int) -> str:
    """Return ORDER BY and LIMIT, each on a line of its own; empty if there are no keys."""
    if not keys:
        return ""
    return f"\nORDER BY {', '.join(key.clause for key in keys)}" + (f"\nLIMIT {limit}" if limit else "")


def order_text(keys: Sequence[SortKey], limit: int) -> str:
    """Return the order in English; empty if there are no keys."""
    if not keys:
        return ""
    words = ", then by ".join(key.words for key in keys)
    first = (
        f" Give only the first {limit} rows of this order."
        if limit > 1
        else " Give only the first row."
        if limit
        else ""
    )
    return f" Sort by {words}.{first}"


def notes(shown: Sequence[Shown], noun: str, outer: bool) -> str:
    """Return what a reader must know about parts of dates and optional keys."""
    found = list(dict.fromkeys(one.note for one in shown if isinstance(one, DatePart)))
    optional = dict.fromkeys(key.role for one in shown for key in ref_of(one).path if key.nullable)
    for role in (role.replace("_", " ") for role in optional):
        found.append(
            f"Keep every row without {a(role)}; what it would say of the {role} is missing then."
            if outer
            else f"Leave out every row without {a(role)}."
        )
    return "".join(f" {one}" for one in found)


@dataclass(frozen=True, slots=True)
class ListRows:
    """The rows of a table, one row each, or their different values."""

    rows: Rows
    shown: tuple[Shown, ...]
    distinct: bool = False
    order: Order | None = None
    outer: bool = False

    def _order(self, scope: Scope) -> tuple[list[SortKey], int]:
        return (self.order.keys(scope), self.order.limit) if self.order else ([], 0)

    def sql(self, schema: Schema) -> str:
        """Return the reference query."""
        scope = Scope(schema, self.rows.base, outer=self.outer)
        columns = ", ".join(shown_sql(one, scope) for one in self.shown)
        tail = where(self.rows.conditions(scope)) + order_clause(*self._order(scope))
        head = f"SELECT {'DISTINCT ' if self.distinct else ''}{columns}"
        return scope.finish(f"{head}\n{scope.clause()}{tail}")

    def question(self, schema: Schema) -> str:
        """Return the question."""
        scope = Scope(schema, self.rows.base)
        shown = listed([one.text for one in self.shown])
        if self.distinct:
            what = "value of" if len(self.shown) == 1 else "combination of"
            head = f"{{V}} each different {what} {shown} that occurs among {self.rows.text}, once each."
        else:
            head = (
                f"{{V}} the {shown} of all {self.rows.text}, one row for each {self.rows.base.key.replace('_', ' ')}."
            )
        return head + notes(self.shown, self.rows.base.key, self.outer) + order_text(*self._order(scope))


@dataclass(frozen=True, slots=True)
class Summary:
    """One row of aggregates."""

    rows: Rows
    aggregates: tuple[Aggregate, ...]

    def sql(self, schema: Schema) -> str:
        """Return the reference query."""
        scope = Scope(schema, self.rows.base)
        columns = ", ".join(aggregate.sql(scope) for aggregate in self.aggregates)
        tail = where(self.rows.conditions(scope))
        return scope.finish(f"SELECT {columns}\n{scope.clause()}{tail}")

    def question(self, schema: Schema) -> str:
        """Return the question."""
        plural = self.rows.base.plural
        if len(self.aggregates) == 1 and self.aggregates[0].ref is None:
            return (
                f"How many {plural} are there{self.rows.suffix}?"
                if self.rows.where
                else f"How many {plural} are there?"
            )
        shown = listed([aggregate.text(plural) for aggregate in self.aggregates])
        return f"{{V}} {shown}, over all {self.rows.text}, in one row."


@dataclass(frozen=True, slots=True)
class Having:
    """A condition on the aggregate of a group.

    Attributes:
        aggregate: the aggregate.
        operator: `>=` or `<`, in `at least` and `less than`.
        value: the value.
    """

    aggregate: Aggregate
    operator: Literal[">=", "<"]
    value: Value

    def text(self, plural: str) -> str:
        """The condition in English."""
        words = "at least" if self.operator == ">=" else "less than"
        return f" Keep only groups for which {self.aggregate.text(plural)} is {words} {literal(self.value)}."


@dataclass(frozen=True, slots=True)
class Grouped:
    """A row of aggregates for each group.

    Attributes:
        rows: the rows that are grouped.
        keys: what the rows of a group have in common.
        aggregates: the aggregates, after the keys.
        having: a condition on the groups.
        by_aggregate: whether the greatest or the least first aggregate comes first; None for an order by the keys.
        ordered: whether there is an order.
        limit: how many groups there are at most.
        outer: whether rows stay whose foreign keys are NULL.
    """

    rows: Rows
    keys: tuple[Shown, ...]
    aggregates: tuple[Aggregate, ...]
    having: Having | None = None
    by_aggregate: bool | None = None
    ordered: bool = False
    limit: int = 0
    outer: bool = False

    def _order(self, scope: Scope) -> list[SortKey]:
        if not self.ordered:
            return []
        found = []
        if self.by_aggregate is not None:
            first = self.aggregates[0]
            nulls: Literal["", "LAST"] = "LAST" if first.nullable else ""
            kind = "date" if first.ref is not None and first.ref.dated and first.kind in ("min", "max") else "number"
            found = [SortKey(first.sql(scope), first.text(self.rows.base.plural), kind, self.by_aggregate, nulls)]  # type: ignore[arg-type]
        for key in self.keys:
            ref = ref_of(key)
            nullable = ref.nullable or (self.outer and any(k.nullable for k in ref.path))
            found.append(
                SortKey(shown_sql(key, scope), key.text, kind_of(ref.column), False, "LAST" if nullable else "")
            )
        return found

    def sql(self, schema: Schema) -> str:
        """Return the reference query."""
        scope = Scope(schema, self.rows.base, outer=self.outer)
        keys = [shown_sql(key, scope) for key in self.keys]
        columns = ", ".join([*keys, *(aggregate.sql(scope) for aggregate in self.aggregates)])
        having = self.having
        kept = f"\nHAVING {having.aggregate.sql(scope)} {having.operator} {literal(having.value)}" if having else ""
        tail = where(self.rows.conditions(scope))
        order = order_clause(self._order(scope), self.limit)
        return scope.finish(f"SELECT {columns}\n{scope.clause()}{tail}\nGROUP BY {', '.join(keys)}{kept}{order}")

    def question(self, schema: Schema) -> str:
        """Return the question."""
        plural = self.rows.base.plural
        keys = listed([key.text for key in self.keys])
        kept = self.having.text(plural) if self.having else ""
        own = any(ref_of(key).nullable for key in self.keys)
        missing = " A missing value is a group of its own." if own or self.outer else ""
        aggregates = listed([aggregate.text(plural) for aggregate in self.aggregates])
        head = f"Group the {self.rows.text} by {keys}. For each group, {{v}} the {keys}, and {aggregates}."
        order = order_text(self._order(Scope(schema, self.rows.base)), self.limit)
        return head + missing + notes(self.keys, self.rows.base.key, self.outer) + kept + order


@dataclass(frozen=True, slots=True)
class PerParent:
    """A row for each parent with an aggregate of its children, whether it has any or not.

    Attributes:
        rows: the parents.
        shown: the columns of the parent.
        children: the children that count.
        key: the children's foreign key.
        aggregate: the aggregate of the children.
        zero: whether a total without children is 0 instead of NULL.
        descending: the direction of the order by the aggregate; None for no order.
        limit: how many parents there are at most.
    """

    rows: Rows
    shown: tuple[Ref, ...]
    children: Rows
    key: Column
    aggregate: Aggregate
    zero: bool = True
    descending: bool | None = None
    limit: int = 0

    def _aggregate(self, child: Scope) -> str:
        if self.aggregate.ref is None:
            return f"COUNT({child.id})"
        found = self.aggregate.sql(child)
        return f"COALESCE({found}, 0)" if self.aggregate.kind == "sum" and self.zero else found

    def _order(self, parent: Scope, child: Scope) -> list[SortKey]:
        if self.descending is None:
            return []
        nullable = self.aggregate.kind in ("avg", "min", "max") or (self.aggregate.kind == "sum" and not self.zero)
        first = SortKey(self._aggregate(child), "that value", "number", self.descending, "LAST" if nullable else "")
        # From the highest id on: SQLite groups in the order of ids, so that the other direction would need no sorting.
        return [first, SortKey(parent.id, f"{self.rows.base.key.replace('_', ' ')} id", "number", descending=True)]

    def sql(self, schema: Schema) -> str:
        """Return the reference query."""
        parent, child = Scope(schema, self.rows.base), Scope(schema, self.children.base, alias="c")
        columns = ", ".join([*map(parent.column, self.shown), self._aggregate(child)])
        on = " AND ".join([f"c.{self.key.name} = {parent.id}", *self.children.conditions(child)])
        tail = where(self.rows.conditions(parent))
        grouped = ", ".join(dict.fromkeys([parent.id, *map(parent.column, self.shown)]))
        join = f"LEFT JOIN {self.children.base.name} AS c ON {on}"
        order = order_clause(self._order(parent, child), self.limit)
        return f"SELECT {columns}\n{parent.clause(join)}{tail}\nGROUP BY {grouped}{order}"

    def question(self, schema: Schema) -> str:
        """Return the question."""
        parent, child = Scope(schema, self.rows.base), Scope(schema, self.children.base, alias="c")
        noun, role = self.rows.base.key.replace("_", " "), self.key.role.replace("_", " ")
        zero = self.aggregate.kind.startswith("count") or (self.aggregate.kind == "sum" and self.zero)
        shown = listed([one.text for one in self.shown])
        what = self.aggregate.text(self.children.base.plural)
        order = order_text(self._order(parent, child), self.limit)
        return (
            f"For each {noun}{_such(self.rows)}, {{v}} its {shown}, and {what} over those {self.children.text} "
            f"that have it as {role}. Keep every such {noun}, with {'0' if zero else 'a missing value'} if there are "
            f"none.{order}"
        )


def _such(rows: Rows) -> str:
    return rows.suffix


@dataclass(frozen=True, slots=True)
class Bucketed:
    """The number of rows with a low, middle or high value.

    Attributes:
        rows: the rows.
        ref: the value.
        low: where `middle` begins.
        high: where `high` begins.
    """

    rows: Rows
    ref: Ref
    low: Value
    high: Value

    def sql(self, schema: Schema) -> str:
        """Return the reference query."""
        scope = Scope(schema, self.rows.base)
        column = scope.column(self.ref)
        unknown = f"WHEN {column} IS NULL THEN 'unknown' " if self.ref.nullable else ""
        bucket = (
            f"CASE {unknown}WHEN {column} < {literal(self.low)} THEN 'low' "
            f"WHEN {column} < {literal(self.high)} THEN 'middle' ELSE 'high' END"
        )
        tail = where(self.rows.conditions(scope))
        return scope.finish(f"SELECT {bucket}, COUNT(*)\n{scope.clause()}{tail}\nGROUP BY {bucket}")

    def question(self, schema: Schema) -> str:
        """Return the question."""
        label, low, high = self.ref.text, literal(self.low), literal(self.high)
        unknown = ", and 'unknown' if it is missing" if self.ref.nullable else ""
        return (
            f"Call the {label} 'low' if it is less than {low}, 'middle' if it is at least {low} and less than {high}, "
            f"'high' if it is at least {high}{unknown}. For each of these words that occurs among {self.rows.text}, "
            f"{{v}} the word and the number of {self.rows.base.plural}."
        )


@dataclass(frozen=True, slots=True)
class Pivot:
    """For each group, the number of rows with each of two values, in columns.

    Attributes:
        rows: the rows.
        key: what the rows of a group have in common.
        ref: the column whose values are counted.
        values: the two values.
    """

    rows: Rows
    key: Ref
    ref: Ref
    values: tuple[str, str]

    def sql(self, schema: Schema) -> str:
        """Return the reference query."""
        scope = Scope(schema, self.rows.base)
        key, column = scope.column(self.key), scope.column(self.ref)
        counts = ", ".join(f"SUM(CASE WHEN {column} = {literal(v)} THEN 1 ELSE 0 END)" for v in self.values)
        tail = where(self.rows.conditions(scope))
        return scope.finish(f"SELECT {key}, {counts}\n{scope.clause()}{tail}\nGROUP BY {key}")

    def question(self, schema: Schema) -> str:
        """Return the question."""
        first, second = map(literal, self.values)
        own = " A missing value is a group of its own." if self.key.nullable else ""
        return (
            f"Group the {self.rows.text} by {self.key.text}. For each group, {{v}} the {self.key.text}, the number of "
            f"{self.rows.base.plural} whose {self.ref.text} is {first}, and the number whose {self.ref.text} is "
            f"{second} (0 if there are none).{own}{notes((self.key, self.ref), self.rows.base.key, False)}"
        )


@dataclass(frozen=True, slots=True)
class Existing:
    """Parents with at least a number of children, or with none.

    Attributes:
        rows: the parents.
        shown: the columns of the parent.
        children: the children that count.
        key: the children's foreign key.
        least: the least number of children; 0 for parents without any.
        order: the order of the result.
    """

    rows: Rows
    shown: tuple[Ref, ...]
    children: Rows
    key: Column
    least: int
    order: Order | None = None

    def sql(self, schema: Schema) -> str:
        """Return the reference query."""
        parent, child = Scope(schema, self.rows.base), Scope(schema, self.children.base, alias="c")
        columns = ", ".join(map(parent.column, self.shown))
        conditions = self.children.conditions(child)
        inner = where([f"c.{self.key.name} = {parent.id}", *conditions]).strip()
        body = " ".join(child.clause().split("\n"))
        if self.least < 2:
            test = f"{'' if self.least else 'NOT '}EXISTS (SELECT 1 {body} {inner})"
        else:
            test = f"(SELECT COUNT(*) {body} {inner}) >= {self.least}"
        keys = self.order.keys(parent) if self.order else []
        tail = where([*self.rows.conditions(parent), test])
        order = order_clause(keys, self.order.limit if self.order else 0)
        return f"SELECT {columns}\n{parent.clause()}{tail}{order}"

    def question(self, schema: Schema) -> str:
        """Return the question."""
        shown, role = listed([one.text for one in self.shown]), self.key.role.replace("_", " ")
        keys = self.order.keys(Scope(schema, self.rows.base)) if self.order else []
        table = self.children.base
        if self.least > 1:
            count = f"at least {self.least} {table.plural}"
        else:
            count = f"{'at least one' if self.least else 'no'} {table.key.replace('_', ' ')}"
        both = " and" if self.rows.where else ""
        return (
            f"{{V}} the {shown} of all {self.rows.text}{both} that are the {role} of {count}{self.children.suffix}, "
            f"one row for each {self.rows.base.key.replace('_', ' ')}."
            f"{order_text(keys, self.order.limit if self.order else 0)}"
        )


def table_noun(table: Table) -> str:
    """Return the singular of a table in English."""
    return table.key.replace("_", " ")
