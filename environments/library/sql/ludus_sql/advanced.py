"""Statements with several SELECTs or with windows: set operations, subqueries, CTEs, ranks and running values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from ludus_sql.expressions import Aggregate, DatePart, Ref, Rows, Scope, SortKey, a, kind_of, listed, where
from ludus_sql.schema import Column, Schema
from ludus_sql.simple import notes, order_clause, order_text, table_noun

SetOperation = Literal["UNION", "UNION ALL", "INTERSECT", "EXCEPT"]


@dataclass(frozen=True, slots=True)
class Compound:
    """The values of two sets of rows, combined by a set operation.

    Attributes:
        rows: the first rows.
        other: the second rows.
        shown: the columns of the first rows.
        other_shown: the columns of the second rows, in the same order.
        operation: how they are combined.
    """

    rows: Rows
    other: Rows
    shown: tuple[Ref, ...]
    other_shown: tuple[Ref, ...]
    operation: SetOperation

    def sql(self, schema: Schema) -> str:
        """Return the reference query."""
        parts = []
        for rows, shown in ((self.rows, self.shown), (self.other, self.other_shown)):
            scope = Scope(schema, rows.base)
            columns = ", ".join(map(scope.column, shown))
            tail = where(rows.conditions(scope))
            parts.append(scope.finish(f"SELECT {columns}\n{scope.clause()}{tail}"))
        return f"\n{self.operation}\n".join(parts)

    def question(self, schema: Schema) -> str:
        """Return the question."""
        first, second = (listed([one.text for one in shown]) for shown in (self.shown, self.other_shown))
        what = "value" if len(self.shown) == 1 else "combination"
        left, right = f"the {first} of {self.rows.text}", f"the {second} of {self.other.text}"
        if self.operation == "UNION ALL":
            return f"{{V}} {left}, and below that {right}, in one list. Keep all duplicates."
        tie = {
            "UNION": f"as {left}, or as {right}, or as both",
            "INTERSECT": f"both as {left} and as {right}",
            "EXCEPT": f"as {left}, but not as {right}",
        }[self.operation]
        return f"{{V}} each different {what} that occurs {tie}, once each."


@dataclass(frozen=True, slots=True)
class AgainstGroup:
    """Rows whose value compares with an aggregate of the rows that they belong to.

    Attributes:
        rows: the rows.
        shown: the columns.
        value: the value.
        aggregate: what it is compared with.
        operator: how.
        group: the column that those rows have in common; None for all rows.
    """

    rows: Rows
    shown: tuple[Ref, ...]
    value: Column
    aggregate: Literal["avg", "max", "min"]
    operator: Literal[">", "<", "="]
    group: Column | None

    def sql(self, schema: Schema) -> str:
        """Return the reference query."""
        scope = Scope(schema, self.rows.base)
        columns = ", ".join(map(scope.column, self.shown))
        table = self.rows.base.name
        same = f" WHERE o.{self.group.name} = {table}.{self.group.name}" if self.group else ""
        inner = f"(SELECT {self.aggregate.upper()}(o.{self.value.name}) FROM {table} AS o{same})"
        test = f"{table}.{self.value.name} {self.operator} {inner}"
        return f"SELECT {columns}\n{scope.clause()}{where([*self.rows.conditions(scope), test])}"

    def question(self, schema: Schema) -> str:
        """Return the question."""
        words = {"avg": "average", "max": "largest", "min": "smallest"}[self.aggregate]
        compared = {">": "is greater than", "<": "is less than", "=": "equals"}[self.operator]
        base, label = self.rows.base, self.value.label
        group = f" that have the same {self.group.label}" if self.group else ""
        both = " and" if self.rows.where else ""
        return (
            f"{{V}} the {listed([one.text for one in self.shown])} of all {self.rows.text}{both} whose {label} "
            f"{compared} the {words} {label} of all {base.plural}{group}, one row for each {table_noun(base)}."
        )


Ranking = Literal["ROW_NUMBER", "RANK", "DENSE_RANK"]


@dataclass(frozen=True, slots=True)
class TopOfGroups:
    """The first rows of each group, with a rule for ties.

    Attributes:
        rows: the rows.
        group: what the rows of a group have in common.
        shown: the columns, after the group.
        value: decides the order.
        descending: whether the greatest comes first.
        ranking: the rule for ties.
        count: how many rows, ranks or values count.
    """

    rows: Rows
    group: Ref
    shown: tuple[Ref, ...]
    value: Ref
    descending: bool
    ranking: Ranking
    count: int

    def _keys(self, scope: Scope) -> list[SortKey]:
        found = [SortKey(scope.column(self.value), self.value.text, kind_of(self.value.column), self.descending)]
        if self.ranking == "ROW_NUMBER":
            found.append(SortKey(scope.id, f"{table_noun(self.rows.base)} id", "number"))
        return found

    def sql(self, schema: Schema) -> str:
        """Return the reference query."""
        scope = Scope(schema, self.rows.base)
        names = [f"v{number}" for number in range(len(self.shown) + 1)]
        columns = [f"{scope.column(one)} AS {name}" for one, name in zip((self.group, *self.shown), names, strict=True)]
        order = ", ".join(key.clause for key in self._keys(scope))
        rank = f"{self.ranking}() OVER (PARTITION BY {scope.column(self.group)} ORDER BY {order}) AS place"
        present = [f"{scope.column(self.value)} IS NOT NULL"] if self.value.nullable else []
        tail = where([*self.rows.conditions(scope), *present])
        inner = f"SELECT {', '.join(columns)}, {rank}\n{scope.clause()}{tail}"
        return f"WITH ranked AS (\n{inner}\n)\nSELECT {', '.join(names)}\nFROM ranked\nWHERE place <= {self.count}"

    def question(self, schema: Schema) -> str:
        """Return the question."""
        base, label, number = self.rows.base, self.value.text, self.count
        low, high = ("earliest", "latest") if self.value.dated else ("lowest", "highest")
        first = high if self.descending else low
        better = {"highest": "higher", "lowest": "lower", "latest": "later", "earliest": "earlier"}[first]
        if self.ranking == "ROW_NUMBER":
            which = f"{number} {base.plural}" if number > 1 else table_noun(base)
            rule = (
                f"the {which} with the {first} {label}; among equal ones, those with a lower {table_noun(base)} id "
                "come first"
            )
        elif self.ranking == "RANK" and number == 1:
            rule = f"every one whose {label} is the {first} of the group, all of them if several share it"
        elif self.ranking == "RANK":
            rule = (
                f"every one for which fewer than {number} {base.plural} of the group have {a(better)} {label}, as RANK "
                "counts"
            )
        else:
            which = f"one of the {number} {first} different values of the group"
            rule = f"every one whose {label} is {which}, as DENSE_RANK counts"
        left = f" Leave out {base.plural} whose {label} is missing." if self.value.nullable else ""
        missing = " A missing value is a group of its own." if self.group.nullable else ""
        return (
            f"Group the {self.rows.text} by {self.group.text}. From each group, take {rule}. {{V}} their "
            f"{listed([one.text for one in (self.group, *self.shown)])}.{left}{missing}"
            f"{notes((self.group, *self.shown), base.key, False)}"
        )


WindowKind = Literal["running", "previous", "change", "share", "moving", "number", "best", "size", "gap"]
_RUNNING: Final = ("running", "previous", "change", "moving", "number", "best")


@dataclass(frozen=True, slots=True)
class Windowed:
    """Rows with a value that depends on other rows.

    Attributes:
        rows: the rows.
        shown: the columns before that value; with the id, so that each row is recognizable.
        kind: what the value is.
        value: the column that it is computed from.
        by: the column that orders the rows; the id breaks ties.
        descending: whether the greatest comes first.
        group: the column within which rows count; None for all rows.
    """

    rows: Rows
    shown: tuple[Ref, ...]
    kind: WindowKind
    value: Column
    by: Column
    descending: bool
    group: Column | None

    def _keys(self, name: str, schema: Schema) -> list[SortKey]:
        base = self.rows.base
        return [
            SortKey(f"{name}.{self.by.name}", self.by.label, kind_of(self.by), self.descending),
            SortKey(f"{name}.{base.id.name}", f"{table_noun(base)} id", "number"),
        ]

    def sql(self, schema: Schema) -> str:
        """Return the reference query."""
        scope = Scope(schema, self.rows.base)
        name = self.rows.base.name
        value = f"{name}.{self.value.name}"
        order = order_clause(self._keys(name, schema), 0).strip()
        partition = f"PARTITION BY {name}.{self.group.name}" if self.group else ""
        over = f"OVER ({' '.join(part for part in (partition, order) if part)})"
        whole = f"OVER ({partition})"
        found = {
            "running": f"SUM({value}) {over}",
            "previous": f"LAG({value}) {over}",
            "change": f"{value} - LAG({value}) {over}",
            "share": f"ROUND(100.0 * {value} / SUM({value}) {whole}, 2)",
            "moving": f"AVG({value}) {over[:-1]} ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)",
            "number": f"ROW_NUMBER() {over}",
            "best": f"MAX({value}) {over}",
            "size": f"COUNT(*) {whole}",
            "gap": f"{value} - AVG({value}) {whole}",
        }[self.kind]
        columns = ", ".join([*map(scope.column, self.shown), found])
        tail = where(self.rows.conditions(scope))
        sort = order_clause(self._keys(name, schema), 0) if self.kind in _RUNNING else ""
        return scope.finish(f"SELECT {columns}\n{scope.clause()}{tail}{sort}")

    def question(self, schema: Schema) -> str:
        """Return the question."""
        base, label = self.rows.base, self.value.label
        group = f" with the same {self.group.label}" if self.group else ""
        these = f"all these {base.plural}{group}"
        found = {
            "running": f"the running total of {label} over {these}, up to and including this row",
            "previous": f"the {label} of the row just before it among {these} (missing for the first)",
            "change": f"its {label} minus that of the row just before it among {these} (missing for the first)",
            "share": f"its share of the total {label} of {these}, in percent, rounded to 2 decimals",
            "moving": (
                f"the average {label} over this row and the two rows just before it among {these} (fewer at the "
                "beginning)"
            ),
            "number": f"its position among {these}, counted from 1",
            "best": f"the largest {label} among {these} up to and including this row",
            "size": f"the number of {these}",
            "gap": f"its {label} minus the average {label} of {these}",
        }[self.kind]
        order = ""
        if self.kind in _RUNNING:
            keys = order_text(self._keys("", schema), 0)
            order = f" The rows follow each other in the order of the result.{keys}"
        shown = listed([one.text for one in self.shown])
        return f"For each of the {self.rows.text}, {{v}} the {shown}, and {found}.{order}"


GroupQuestion = Literal["average", "largest", "above", "many", "top_share"]


@dataclass(frozen=True, slots=True)
class OverGroups:
    """A question about the groups of rows.

    Attributes:
        rows: the rows.
        key: what the rows of a group have in common.
        aggregate: the aggregate of each group.
        asked: what is asked about the groups: the average or the largest aggregate, the groups above average, how many
            reach a number, or the groups with the largest aggregate.
        least: the number for `many`.
    """

    rows: Rows
    key: Ref | DatePart
    aggregate: Aggregate
    asked: GroupQuestion
    least: int = 0

    def sql(self, schema: Schema) -> str:
        """Return the reference query."""
        scope = Scope(schema, self.rows.base)
        key = self.key.sql(scope) if isinstance(self.key, DatePart) else scope.column(self.key)
        value = self.aggregate.sql(scope)
        inner = scope.finish(
            f"SELECT {key} AS k, {value} AS n\n{scope.clause()}{where(self.rows.conditions(scope))}\nGROUP BY {key}"
        )
        outer = {
            "average": "SELECT AVG(n)\nFROM g",
            "largest": "SELECT MAX(n), MIN(n)\nFROM g",
            "above": "SELECT k, n\nFROM g\nWHERE n > (SELECT AVG(n) FROM g)",
            "many": f"SELECT COUNT(*)\nFROM g\nWHERE n >= {self.least}",
            "top_share": "SELECT k, n\nFROM g\nWHERE n = (SELECT MAX(n) FROM g)",
        }[self.asked]
        return f"WITH g AS (\n{inner}\n)\n{outer}"

    def question(self, schema: Schema) -> str:
        """Return the question."""
        value = self.aggregate.text(self.rows.base.plural)
        key = self.key.text
        asked = {
            "average": "{V} the average of this value over all groups, in one row.",
            "largest": "{V} the largest and the smallest of these values, in one row.",
            "above": (
                f"{{V}} the {key} and this value of each group whose value is greater than the average of the values "
                "of all groups."
            ),
            "many": f"How many groups have a value of at least {self.least}?",
            "top_share": (
                f"{{V}} the {key} and this value of the group with the largest value; if several share it, of all of "
                "them."
            ),
        }[self.asked]
        nullable = (self.key.ref if isinstance(self.key, DatePart) else self.key).nullable
        missing = " A missing value is a group of its own." if nullable else ""
        return (
            f"Group the {self.rows.text} by {key}, and compute {value} for each group that has rows.{missing}"
            f"{notes((self.key,), self.rows.base.key, False)} {asked}"
        )


@dataclass(frozen=True, slots=True)
class PerPeriod:
    """The number of rows, or a total, of each month or year that has rows, and its change.

    Attributes:
        rows: the rows.
        part: the month or year.
        aggregate: the aggregate of each period.
        running: whether the last column is a running total instead of the change.
    """

    rows: Rows
    part: DatePart
    aggregate: Aggregate
    running: bool

    def sql(self, schema: Schema) -> str:
        """Return the reference query."""
        scope = Scope(schema, self.rows.base)
        part = self.part.sql(scope)
        present = [f"{scope.column(self.part.ref)} IS NOT NULL"] if self.part.ref.nullable else []
        tail = where([*self.rows.conditions(scope), *present])
        inner = scope.finish(
            f"SELECT {part} AS p, {self.aggregate.sql(scope)} AS n\n{scope.clause()}{tail}\nGROUP BY {part}"
        )
        last = "SUM(n) OVER (ORDER BY p)" if self.running else "n - LAG(n) OVER (ORDER BY p)"
        return f"WITH periods AS (\n{inner}\n)\nSELECT p, n, {last}\nFROM periods\nORDER BY p"

    def question(self, schema: Schema) -> str:
        """Return the question."""
        what = "year" if self.part.length == 4 else "month"
        value = self.aggregate.text(self.rows.base.plural)
        last = (
            f"the running total of this value up to and including the {what}"
            if self.running
            else f"this value minus that of the {what} just before it in the result (missing for the first)"
        )
        left = (
            f" Leave out {self.rows.base.plural} whose {self.part.ref.text} is missing."
            if self.part.ref.nullable
            else ""
        )
        return (
            f"For each {self.part.text} that occurs among {self.rows.text}, {{v}} the {what}, {value}, and {last}. "
            f"{self.part.note}{left} Sort by the {what} (earliest first)."
        )


@dataclass(frozen=True, slots=True)
class ForAll:
    """Parents with a child for each value of a column that occurs.

    Attributes:
        rows: the parents.
        shown: the columns of the parent.
        children: the children.
        key: the children's foreign key.
        value: the column of the children.
    """

    rows: Rows
    shown: tuple[Ref, ...]
    children: Rows
    key: Column
    value: Column

    def sql(self, schema: Schema) -> str:
        """Return the reference query."""
        parent, child = Scope(schema, self.rows.base), Scope(schema, self.children.base, alias="c")
        columns = ", ".join(map(parent.column, self.shown))
        conditions = self.children.conditions(child)
        mine = where([f"c.{self.key.name} = {parent.id}", *conditions]).replace("\n", " ")
        every = where(conditions).replace("\n", " ")
        head = f"SELECT COUNT(DISTINCT c.{self.value.name}) FROM {self.children.base.name} AS c"
        exists = f"EXISTS (SELECT 1 FROM {self.children.base.name} AS c{mine})"
        tests = [*self.rows.conditions(parent), exists, f"({head}{mine}) = ({head}{every})"]
        return f"SELECT {columns}\n{parent.clause()}{where(tests)}"

    def question(self, schema: Schema) -> str:
        """Return the question."""
        role, table, label = self.key.role.replace("_", " "), self.children.base, self.value.label
        both = " and" if self.rows.where else ""
        return (
            f"Consider only {self.children.text}. {{V}} the {listed([one.text for one in self.shown])} of all "
            f"{self.rows.text}{both} that are the {role} of such {table.plural} with every {label} that occurs among "
            f"them (and of at least one), one row for each {table_noun(self.rows.base)}."
        )


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of different rows that agree in some columns.

    Attributes:
        rows: the rows.
        same: the columns in which they agree.
        differs: a column in which the second is greater, if any.
    """

    rows: Rows
    same: tuple[Column, ...]
    differs: Column | None

    def sql(self, schema: Schema) -> str:
        """Return the reference query."""
        base = self.rows.base
        one, two = Scope(schema, base, alias="a"), Scope(schema, base, alias="b")
        on = [f"a.{column.name} = b.{column.name}" for column in self.same]
        on.append(f"a.{self.differs.name} < b.{self.differs.name}" if self.differs else f"{one.id} < {two.id}")
        tests = [*self.rows.conditions(one), *self.rows.conditions(two)]
        tables = f"FROM {base.name} AS a\nJOIN {base.name} AS b ON {' AND '.join(on)}"
        return f"SELECT {one.id}, {two.id}\n{tables}{where(tests)}"

    def question(self, schema: Schema) -> str:
        """Return the question."""
        base, same = self.rows.base, listed([column.label for column in self.same])
        first = f"the one with the lower {self.differs.label} first" if self.differs else "the lower id first"
        more = f" and a different {self.differs.label}" if self.differs else ""
        return (
            f"Find all pairs of different {self.rows.text}: both with the same {same} (not missing){more}. {{V}} the "
            f"two {table_noun(base)} ids of each pair, {first}, each pair once."
        )
