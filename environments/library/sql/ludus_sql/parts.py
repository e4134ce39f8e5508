"""Draw the parts of which recipes compose plans: tables, columns, values, conditions, aggregates and orders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal

from ludus.server.authoring.dice import QuickRandom
from ludus_sql.expressions import (
    Aggregate,
    AggregateKind,
    Between,
    Compare,
    Either,
    Initial,
    Missing,
    OneOf,
    Predicate,
    Ref,
    Rows,
)
from ludus_sql.schema import NUMBERS, Column, Schema, Table
from ludus_sql.simple import Order

YEARS: Final = (2021, 2023)
"""The first and the last year of dates."""

_OVER_NUMBERS: Final[tuple[AggregateKind, ...]] = ("sum", "avg", "min", "max")


class Draw:
    """Draws the parts of a plan over one schema."""

    def __init__(self, rng: QuickRandom, schema: Schema) -> None:
        self.rng, self.schema = rng, schema

    def table(self, fits: Callable[[Table], object] = lambda table: True) -> Table | None:
        """Draw a table that fits; None if none does."""
        found = [table for table in self.schema.asked if fits(table)]
        return self.rng.choice(found) if found else None

    def some(self, columns: Sequence[Column], low: int, high: int) -> list[Column]:
        """Draw some of the columns, in their order in the table."""
        count = min(len(columns), self.rng.randint(low, high))
        return [columns[index] for index in sorted(self.rng.indices(len(columns), count))]

    def paths(self, table: Table, nullable: bool = True) -> list[tuple[Column, ...]]:
        """Return the foreign keys, and the pairs of them, that lead away from a table."""
        found: list[tuple[Column, ...]] = []
        for key in table.keys:
            if nullable or not key.nullable:
                found.append((key,))
                target = self.schema.tables[key.target]
                found += [(key, k) for k in target.keys if target is not table and not k.nullable and not key.nullable]
        return found

    def far(self, table: Table, *kinds: str, nullable: bool = True) -> Ref | None:
        """Draw a column of another table to which foreign keys lead."""
        paths = self.paths(table, nullable)
        if not paths:
            return None
        path = self.rng.choice(paths)
        columns = [c for c in self.schema.tables[path[-1].target].usable if not kinds or c.kind in kinds]
        return Ref(path, self.rng.choice(columns)) if columns else None

    def date(self) -> str:
        """Draw a date."""
        rng = self.rng
        month = rng.randint(4, 33)  # neither the first nor the last quarter, outside of which are too few rows
        return f"{YEARS[0] + month // 12}-{month % 12 + 1:02d}-{rng.choice((1, 10, 15, 20)):02d}"

    def number(self, column: Column) -> int | float:
        """Draw a number within the middle of a column's range."""
        span = column.high - column.low
        found = column.low + self.rng.randint(max(1, span // 5), max(1, span * 4 // 5))
        return found + 0.5 if column.kind == "money" and self.rng.random() < 0.3 else found

    def narrow(self, ref: Ref) -> Predicate:
        """Draw a condition on a column that few rows satisfy."""
        column = ref.column
        if column.kind == "choice":
            return Compare(ref, "=", self.rng.choice(column.choices))
        if column.kind == "date":
            year, month = self.rng.randint(*YEARS), self.rng.randint(1, 9)
            return Between(ref, f"{year}-{month:02d}-01", f"{year}-{month + 3:02d}-15")
        if column.kind in NUMBERS:
            low = column.low + self.rng.randint(0, max(1, (column.high - column.low) * 3 // 4))
            return Between(ref, low, low + max(1, (column.high - column.low) // 4))
        return self.predicate(ref)

    def predicate(self, ref: Ref) -> Predicate:
        """Draw a condition on a column."""
        rng, column = self.rng, ref.column
        if column.nullable and rng.random() < 0.3:
            return Missing(ref, rng.random() < 0.5)
        if column.kind == "choice":
            way = rng.random()
            if len(column.choices) > 2 and way < 0.3:
                return OneOf(ref, tuple(rng.some(column.choices, 2)), negated=way < 0.1)
            operator: Literal["=", "<>"] = "=" if way < 0.8 else "<>"
            missing = column.nullable and rng.random() < 0.4
            return Compare(ref, operator, rng.choice(column.choices), missing)
        if column.kind in ("person", "title"):
            return Initial(ref, rng.choice("ABCDEF"))
        if column.kind == "date":
            low, high = sorted((self.date(), self.date()))
            if rng.random() < 0.25 and low[:7] < high[:7]:
                return Between(ref, low, high)
            return Compare(ref, rng.choice(("<", "<=", ">", ">=")), self.date())
        if rng.random() < 0.2 and column.high - column.low >= 4:
            middle = self.number(column)
            return Between(ref, middle - max(1, (column.high - column.low) // 6), middle)
        return Compare(ref, rng.choice(("<", "<=", ">", ">=")), self.number(column))

    def rows(self, table: Table, low: int, high: int, far: bool = False, without: Sequence[Column] = ()) -> Rows:
        """Draw the rows of a table with some conditions.

        Args:
            table: the table.
            low: the least number of conditions.
            high: the greatest number of conditions.
            far: whether the first condition is on another table, if one is near.
            without: columns without conditions.
        """
        count = self.rng.randint(low, high)
        found: list[Predicate] = []
        if far and count:
            ref = self.far(table, "choice", "int", "money", "date")
            if ref is not None and ref.column not in without:
                found.append(self.predicate(ref))
        columns = [c for c in table.usable if c not in without]
        near = [self.predicate(Ref((), c)) for c in self.some(columns, count - len(found), count - len(found))]
        if len(near) == 2 and self.rng.random() < 0.25:
            near = [Either(near[0], near[1])]
        return Rows(table, (*near, *found))

    def shown(self, table: Table, low: int = 1, high: int = 3, id: bool = False) -> tuple[Ref, ...]:
        """Draw the columns of an output.

        Args:
            table: the table.
            low: the least number of columns.
            high: the greatest number of columns.
            id: whether the id is the first, so that an order of equal rows shows.
        """
        found = self.some(table.usable, low, max(low, high - id))
        return tuple(Ref((), column) for column in ([table.id, *found] if id else found))

    def aggregate(self, table: Table, counts: bool = True, different: bool = True) -> Aggregate:
        """Draw an aggregate over the rows of a table."""
        rng = self.rng
        columns = table.of_kind("int", "money", "date")
        way = rng.random()
        if (counts and way < 0.3) or not columns:
            if way < 0.12 and (optional := [c for c in table.usable if c.nullable]):
                return Aggregate("count_present", Ref((), rng.choice(optional)))
            if way < 0.2 and different and (several := table.of_kind("choice", "int")):
                return Aggregate("count_different", Ref((), rng.choice(several)))
            return Aggregate("count")
        column = rng.choice(columns)
        if column.kind == "date":
            return Aggregate(rng.choice(("min", "max")), Ref((), column))
        kind = rng.choice(_OVER_NUMBERS)
        return Aggregate(kind, Ref((), column), rounded=kind == "avg" and rng.random() < 0.5)

    def order(self, table: Table) -> Order:
        """Draw an order of the rows of a table, whose ties the id breaks."""
        rng = self.rng
        # A column with NULLs comes first, where their place shows even in the first rows.
        columns = sorted(self.some(table.usable, 1, 2), key=lambda c: not c.nullable)
        by = tuple((Ref((), c), rng.random() < 0.5) for c in columns)
        return Order(by, rng.random() < 0.5, rng.randint(2, 8) if rng.random() < 0.6 else 0)

    def aggregates(self, table: Table, most: int, without: Sequence[Column] = ()) -> tuple[Aggregate, ...]:
        """Draw different aggregates, none over one of some columns."""
        found: dict[Aggregate, None] = {}
        while not found:
            drawn = (self.aggregate(table) for _ in range(self.rng.randint(1, most)))
            found = {one: None for one in drawn if one.ref is None or one.ref.column not in without}
        if all(one.kind in ("min", "max") for one in found):  # which few rows decide
            found[Aggregate("count")] = None
        return tuple(found)

    def child(
        self, fits: Callable[[Table, Table], object] = lambda parent, child: True
    ) -> tuple[Table, Table, Column] | None:
        """Draw a parent, a child and the child's foreign key."""
        found = [(p, c, k) for p in self.schema.asked for c, k in self.schema.children(p) if fits(p, c)]
        return self.rng.choice(found) if found else None
