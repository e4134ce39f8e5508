"""Compose plans at random: a schema, a statement, and the parts of which it consists.

`make_plan` draws a plan of one level from a random generator. A recipe chooses a table with what its statement needs,
and the parts; where a schema has no such table, it returns None and another recipe is drawn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, get_args

from ludus.server import Difficulty
from ludus.server.authoring.dice import QuickRandom
from ludus_sql.advanced import (
    AgainstGroup,
    Compound,
    ForAll,
    GroupQuestion,
    OverGroups,
    Pairs,
    PerPeriod,
    Ranking,
    TopOfGroups,
    Windowed,
    WindowKind,
)
from ludus_sql.domains import DOMAINS
from ludus_sql.expressions import (
    Aggregate,
    DatePart,
    Ref,
    Rows,
    Shown,
    ref_of,
)
from ludus_sql.parts import Draw
from ludus_sql.schema import NUMBERS, VARIANTS, Column, Schema, Table, schema_of
from ludus_sql.simple import (
    Bucketed,
    Existing,
    Grouped,
    Having,
    ListRows,
    Order,
    PerParent,
    Pivot,
    Statement,
    Summary,
)

_RANKINGS: Final[tuple[Ranking, ...]] = get_args(Ranking)
_WINDOWS: Final[tuple[WindowKind, ...]] = get_args(WindowKind)
_GROUP_QUESTIONS: Final[tuple[GroupQuestion, ...]] = get_args(GroupQuestion)
_DOMAINS: Final = tuple(DOMAINS)
_VERBS: Final = (("List", "list"), ("Give", "give"), ("Show", "show"), ("Return", "return"))
_LITERALS: Final = re.compile(r"'[^']*'|\d+(?:[-.]\d+)*")


@dataclass(frozen=True)
class Plan:
    """A question about the databases of a schema.

    Attributes:
        schema: the schema.
        statement: what is asked.
        difficulty: the level.
        verb: the wording.
    """

    schema: Schema
    statement: Statement
    difficulty: Difficulty
    verb: int

    @property
    def question(self) -> str:
        """The question in English."""
        capital, small = _VERBS[self.verb]
        return self._form.replace("{V}", capital).replace("{v}", small)

    @cached_property
    def _form(self) -> str:
        return self.statement.question(self.schema)

    @property
    def solution(self) -> str:
        """The reference query."""
        return self.statement.sql(self.schema)

    @property
    def identity(self) -> str:
        """A text that is equal for plans that differ in nothing but constants and names of tables."""
        return f"sql:{self.schema.domain}:{_LITERALS.sub('?', self._form)}"


def make_plan(rng: QuickRandom, difficulty: Difficulty) -> Plan:
    """Draw a plan of a level."""
    schema = schema_of(rng.choice(_DOMAINS), rng.below(VARIANTS))
    recipes = _RECIPES[difficulty]
    while True:
        statement = rng.choice(recipes)(Draw(rng, schema))
        if statement is not None:
            return Plan(schema, statement, difficulty, rng.below(len(_VERBS)))


def _list_rows(d: Draw) -> Statement | None:
    table = d.table()
    assert table is not None
    shown = d.shown(table, id=d.rng.random() < 0.3)
    return ListRows(d.rows(table, 1, 2, without=_unless_few(table, shown)), shown)


def _unless_few(table: Table, shown: Sequence[Ref]) -> list[Column]:
    """Return the columns of an output, about which there are no conditions if other columns are left."""
    found = [ref.column for ref in shown]
    return found if len(set(table.usable) - set(found)) > 1 else []


def _list_ordered(d: Draw) -> Statement | None:
    table = d.table()
    assert table is not None
    order = d.order(table)
    return ListRows(d.rows(table, 0, 1, without=_sorted_by(order)), d.shown(table, id=True), order=order)


def _sorted_by(order: Order | None) -> list[Column]:
    return [ref_of(one).column for one, _ in order.by] if order else []


def _computed(aggregates: Sequence[Aggregate]) -> list[Column]:
    return [aggregate.ref.column for aggregate in aggregates if aggregate.ref is not None]


def _list_different(d: Draw) -> Statement | None:
    table = d.table(lambda t: t.of_kind("choice"))
    if table is None:
        return None
    columns = d.some(table.of_kind("choice", "int"), 1, 2)
    shown = tuple(Ref((), c) for c in columns)
    if len(columns) == 1 and len(table.usable) > 1:
        other = d.rng.choice([c for c in table.usable if c not in columns])
        rows = Rows(table, (d.narrow(Ref((), other)),))
    else:
        rows = d.rows(table, 0, 1, without=columns)
    order = Order(tuple((ref, d.rng.random() < 0.5) for ref in shown), None) if d.rng.random() < 0.4 else None
    return ListRows(rows, shown, distinct=True, order=order)


def _summary(d: Draw) -> Statement | None:
    table = d.table()
    assert table is not None
    found = d.aggregates(table, 3)
    rows = d.rows(table, 1 if len(found) < 2 else 0, 2, without=_computed(found))
    return Summary(rows, found)


def _group_one(d: Draw) -> Statement | None:
    table = d.table(lambda t: t.of_kind("choice"))
    if table is None:
        return None
    key = d.rng.choice(table.of_kind("choice"))
    found = d.aggregates(table, 2, without=[key])
    return Grouped(d.rows(table, 0, 1, without=[key, *_computed(found)]), (Ref((), key),), found)


def _list_joined(d: Draw) -> Statement | None:
    table = d.table(lambda t: t.keys)
    if table is None:
        return None
    far = d.far(table)
    if far is None:
        return None
    outer = far.path[0].nullable and d.rng.random() < 0.6
    order = d.order(table) if d.rng.random() < 0.5 else None
    far_too = not outer and d.rng.random() < 0.5
    rows = d.rows(table, 0 if outer else 1, 2, far=far_too, without=_sorted_by(order))
    return ListRows(rows, (*d.shown(table, 1, 2, id=order is not None), far), order=order, outer=outer)


def _different_joined(d: Draw) -> Statement | None:
    table = d.table(lambda t: t.keys)
    far = d.far(table, "int", "date", "title", "person") if table else None
    if table is None or far is None:
        return None
    rows = Rows(table, (d.narrow(Ref((), d.rng.choice(table.usable))),))
    return ListRows(rows, (far,), distinct=True, order=Order(((far, d.rng.random() < 0.5),), None))


def _summary_joined(d: Draw) -> Statement | None:
    table = d.table(lambda t: t.keys)
    far = d.far(table, "choice", "int", "date", "money") if table else None
    if table is None or far is None:
        return None
    found = d.aggregates(table, 2)
    rows = Rows(table, (*d.rows(table, 0, 1, without=_computed(found)).where, d.predicate(far)))
    return Summary(rows, found)


def _group(d: Draw) -> Statement | None:
    rng = d.rng
    table = d.table(lambda t: t.keys or t.of_kind("date"))
    if table is None:
        return None
    keys: list[Shown] = []
    far = d.far(table, "choice", "title")
    if far is not None and rng.random() < 0.7:
        keys.append(far)
    near: list[Shown] = [Ref((), c) for c in table.of_kind("choice")]
    near += [DatePart(Ref((), c), 4) for c in table.of_kind("date") if not c.nullable]
    if near and (not keys or rng.random() < 0.35):
        keys.append(rng.choice(near))
    if not keys or (len(keys) == 1 and isinstance(keys[0], Ref) and not keys[0].path):
        return None
    outer = bool(keys) and any(k.nullable for k in _path(keys[0])) and rng.random() < 0.5
    used = [ref_of(key).column for key in keys]
    found = d.aggregates(table, 2, without=used)
    having = None
    many = len(keys) > 1 or used[0].kind == "title"
    if rng.random() < 0.6 and isinstance(keys[0], Ref):
        least = rng.randint(2, 3) if many else rng.randint(2, 6)
        having = Having(Aggregate("count"), ">=" if rng.random() < 0.6 else "<", least)
    ordered = rng.random() < 0.6
    sortable = not found[0].nullable and found[0].kind != "count_different"
    by = rng.random() < 0.5 if ordered and sortable and rng.random() < 0.8 else None
    limit = rng.randint(1, 4 if many else 2) if ordered and not outer and not having and rng.random() < 0.6 else 0
    rows = d.rows(table, 0, 1, without=[*used, *_computed(found)])
    return Grouped(rows, tuple(keys), found, having, by, ordered, limit, outer)


def _path(key: Shown) -> tuple[Column, ...]:
    return key.path if isinstance(key, Ref) else key.ref.path


def _per_parent(d: Draw) -> Statement | None:
    family = d.child()
    if family is None:
        return None
    parent, child, key = family
    aggregate = d.aggregate(child, counts=d.rng.random() < 0.6, different=False)
    if aggregate.ref is not None and aggregate.ref.dated:
        aggregate = Aggregate("count")
    ordered = d.rng.random() < 0.5
    plain = aggregate.kind in ("count", "count_present", "sum")
    limit = d.rng.randint(2, 6) if ordered and plain and d.rng.random() < 0.6 else 0
    children = d.rows(child, 0, 1, without=_computed([aggregate]))
    return PerParent(
        d.rows(parent, 0, 1), d.shown(parent, 1, 2), children, key, aggregate, d.rng.random() < 0.6,
        d.rng.random() < 0.5 if ordered else None, limit,
    )  # fmt: skip


def _bucketed(d: Draw) -> Statement | None:
    table = d.table(lambda t: any(c.high - c.low >= 5 for c in t.of_kind(*NUMBERS)))
    if table is None:
        return None
    column = d.rng.choice([c for c in table.of_kind(*NUMBERS) if c.high - c.low >= 5])
    third = (column.high - column.low) // 3
    low = column.low + third + d.rng.randint(0, max(1, third // 2))
    return Bucketed(d.rows(table, 0, 1, far=True, without=[column]), Ref((), column), low, low + max(1, third))


def _pivot(d: Draw) -> Statement | None:
    table = d.table(lambda t: t.of_kind("choice"))
    if table is None:
        return None
    column = d.rng.choice(table.of_kind("choice"))
    near = [Ref((), c) for c in table.of_kind("choice") if c is not column]
    far = d.far(table, "choice", nullable=False)
    keys = [*near, *([far] if far else [])]
    if not keys:
        return None
    key = d.rng.choice(keys)
    first, second = d.rng.some(column.choices, 2)
    rows = d.rows(table, 0, 1, without=[column, key.column])
    return Pivot(rows, key, Ref((), column), (first, second))


def _having_children(d: Draw) -> Statement | None:
    family = d.child()
    if family is None:
        return None
    parent, child, key = family
    order = d.order(parent) if d.rng.random() < 0.4 else None
    rows = d.rows(child, 0, 1)
    least = d.rng.randint(1, 2) if rows.where else d.rng.randint(2, 3)
    parents = d.rows(parent, 0, 1, without=_sorted_by(order))
    return Existing(parents, d.shown(parent, 1, 2, id=order is not None), rows, key, least, order)


def _without_children(d: Draw) -> Statement | None:
    family = d.child()
    if family is None:
        return None
    parent, child, key = family
    rows = d.rows(child, 1, 2)
    if d.rng.random() < 0.5:
        far = d.far(child, "choice", "int", "money", "date")
        if far is not None and far.path[0] is not key:
            rows = Rows(child, (d.predicate(far),))
    order = d.order(parent) if d.rng.random() < 0.4 else None
    parents = d.rows(parent, 0, 2 - len(rows.where), without=_sorted_by(order))
    return Existing(parents, d.shown(parent, 1, 2, id=order is not None), rows, key, 0, order)


def _compound(d: Draw, operations: Sequence[Literal["UNION", "UNION ALL", "INTERSECT", "EXCEPT"]]) -> Statement | None:
    rng = d.rng
    operation = rng.choice(operations)
    kind: Literal["choice", "person"] = "person" if rng.random() < 0.3 else "choice"
    tables = [t for t in d.schema.asked if t.of_kind(kind)]
    if kind == "person" and len(tables) >= 2:
        one, two = rng.some(tables, 2)
        return Compound(
            d.rows(one, 0, 1), d.rows(two, 0, 1), (Ref((), one.of_kind("person")[0]),),
            (Ref((), two.of_kind("person")[0]),), operation,
        )  # fmt: skip
    table = d.table(lambda t: len(t.of_kind("choice", "int", "title")) > 1)
    if table is None:
        return None
    columns = d.some(table.of_kind("choice", "int", "title"), 2, 2)
    shown = tuple(Ref((), c) for c in columns)
    free = [c for c in table.usable if c not in columns]
    if not free:
        return None
    chosen = d.some(free, 2, 2)
    first, second = (Rows(table, (d.narrow(Ref((), column)),)) for column in (chosen[0], chosen[-1]))
    return Compound(first, second, shown, shown, operation) if first != second else None


def _union(d: Draw) -> Statement | None:
    return _compound(d, ("UNION", "UNION ALL"))


def _both_or_not(d: Draw) -> Statement | None:
    return _compound(d, ("INTERSECT", "EXCEPT"))


def _against_group(d: Draw) -> Statement | None:
    rng = d.rng
    table = d.table(lambda t: t.of_kind(*NUMBERS))
    if table is None:
        return None
    value = rng.choice(table.of_kind(*NUMBERS))
    groups = [c for c in table.of_kind("choice") if not c.nullable]
    groups += [key for key in table.keys if not key.nullable]
    group = rng.choice(groups) if groups and rng.random() < 0.7 else None
    rows = d.rows(table, 0, 1, without=[value, *([group] if group else [])])
    aggregate, operator = rng.choice((("avg", ">"), ("avg", "<"), ("max", "="), ("min", "=")))
    return AgainstGroup(rows, d.shown(table, 1, 2), value, aggregate, operator, group)  # type: ignore[arg-type]


def _top_of_groups(d: Draw) -> Statement | None:
    rng = d.rng
    table = d.table(lambda t: t.of_kind("int", "money", "date") and t.of_kind("choice"))
    if table is None:
        return None
    value = rng.choice(table.of_kind("int", "money", "date"))
    far = d.far(table, "choice", nullable=False) if rng.random() < 0.5 else None
    group = far or Ref((), rng.choice(table.of_kind("choice")))
    rest = [c for c in table.usable if c not in (value, group.column)]
    shown = (Ref((), table.id), *(Ref((), c) for c in d.some(rest, 0, 1)), Ref((), value))
    rows = d.rows(table, 0, 1, without=[value, group.column])
    ranking = rng.choice(_RANKINGS)
    count = rng.randint(2 if ranking == "DENSE_RANK" else 1, 3)
    return TopOfGroups(rows, group, shown, Ref((), value), rng.random() < 0.6, ranking, count)


def _windowed(d: Draw) -> Statement | None:
    rng = d.rng
    table = d.table(lambda t: any(not c.nullable and c.low > 0 for c in t.of_kind(*NUMBERS)))
    if table is None:
        return None
    value = rng.choice([c for c in table.of_kind(*NUMBERS) if not c.nullable and c.low > 0])
    by = rng.choice([c for c in table.of_kind("date", "int", "money") if not c.nullable])
    groups = [c for c in table.of_kind("choice") if not c.nullable] + [k for k in table.keys if not k.nullable]
    kind = rng.choice(_WINDOWS)
    needs = kind in ("number", "size")
    group = rng.choice(groups) if groups and (needs or rng.random() < 0.6) else None
    if (needs and group is None) or (kind == "best" and by is value):
        return None
    shown = (Ref((), table.id), *([Ref((), value)] if value is not by or rng.random() < 0.5 else []))
    without = [value, *([group] if group else [])]
    return Windowed(d.rows(table, 0, 1, without=without), shown, kind, value, by, rng.random() < 0.3, group)


def _over_groups(d: Draw) -> Statement | None:
    rng = d.rng
    table = d.table(lambda t: t.keys or t.of_kind("choice"))
    if table is None:
        return None
    keys: list[Ref | DatePart] = [Ref((), c) for c in (*table.of_kind("choice"), *table.keys)]
    keys += [DatePart(Ref((), c), 7) for c in table.of_kind("date") if not c.nullable]
    key = rng.choice(keys)
    asked = rng.choice(_GROUP_QUESTIONS)
    number = [c for c in table.of_kind(*NUMBERS) if not c.nullable]
    total = number and asked != "many" and rng.random() < 0.5
    aggregate = Aggregate("sum", Ref((), rng.choice(number))) if total else Aggregate("count")
    least = rng.randint(2, 5)
    used = [key.column] if isinstance(key, Ref) else [key.ref.column]
    return OverGroups(d.rows(table, 0, 1, without=used), key, aggregate, asked, least if asked == "many" else 0)


def _per_period(d: Draw) -> Statement | None:
    table = d.table(lambda t: t.of_kind("date"))
    if table is None:
        return None
    column = d.rng.choice(table.of_kind("date"))
    number = [c for c in table.of_kind(*NUMBERS) if not c.nullable]
    total = number and d.rng.random() < 0.5
    aggregate = Aggregate("sum", Ref((), d.rng.choice(number))) if total else Aggregate("count")
    part = DatePart(Ref((), column), 4 if d.rng.random() < 0.4 else 7)
    return PerPeriod(d.rows(table, 0, 1, far=True, without=[column]), part, aggregate, d.rng.random() < 0.5)


def _for_all(d: Draw) -> Statement | None:
    def few(parent: Table, child: Table) -> bool:
        return any(len(c.choices) <= 3 and not c.nullable for c in child.of_kind("choice"))

    family = d.child(few)
    if family is None:
        return None
    parent, child, key = family
    value = d.rng.choice([c for c in child.of_kind("choice") if len(c.choices) <= 3 and not c.nullable])
    free = [c for c in child.usable if c is not value and c.kind == "choice"]
    chosen = (d.predicate(Ref((), d.rng.choice(free))),) if free and d.rng.random() < 0.4 else ()
    children = Rows(child, chosen)
    return ForAll(d.rows(parent, 0, 0), d.shown(parent, 1, 2), children, key, value)


def _pairs(d: Draw) -> Statement | None:
    rng = d.rng
    table = d.table(lambda t: t.of_kind("choice"))
    if table is None:
        return None
    same = d.some(table.of_kind("choice"), 1, 2) if rng.random() < 0.6 or not table.keys else d.some(table.keys, 1, 1)
    rest = [c for c in table.of_kind("int", "money", "date") if c not in same]
    differs = rng.choice(rest) if rest and rng.random() < 0.5 else None
    without = [*same, *([differs] if differs else [])]
    return Pairs(d.rows(table, 1, 1, without=without), tuple(same), differs)


_Recipe = Callable[[Draw], Statement | None]
_RECIPES: Final[Mapping[Difficulty, Sequence[_Recipe]]] = {
    "easy": (_list_rows, _list_rows, _list_ordered, _list_different, _summary, _summary, _group_one),
    "medium": (
        _list_joined, _list_joined, _different_joined, _summary_joined, _group, _group, _group, _per_parent,
        _per_parent, _bucketed, _pivot, _having_children, _union,
    ),
    "hard": (
        _without_children, _without_children, _both_or_not, _against_group, _against_group, _top_of_groups,
        _top_of_groups, _windowed, _windowed, _windowed, _over_groups, _over_groups, _per_period, _for_all, _pairs,
    ),
}  # fmt: skip
