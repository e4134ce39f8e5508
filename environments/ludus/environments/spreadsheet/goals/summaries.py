"""Goals that summarize or look up the main table, with formulas on the sheet Summary or in a new column."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Final, NamedTuple

from ludus.environments.spreadsheet.engine.addresses import letters
from ludus.environments.spreadsheet.engine.book import Content
from ludus.environments.spreadsheet.engine.values import Scalar, to_date, to_serial
from ludus.environments.spreadsheet.goals.columns import (
    CATEGORIES,
    INPUTS,
    NUMBERS,
    _threshold,
    column_goal,
    plain,
)
from ludus.environments.spreadsheet.goals.goal import Cell, Goal, kind, style_facts, write
from ludus.environments.spreadsheet.scenes import SUMMARY, Column, Data, Draw, Rows, Scene, Table

MONTHS: Final = ("January", "February", "March", "April", "May", "June")


class Line(NamedTuple):
    """A row of a summary: its label, its formulas, and the values that they must give."""

    label: Content
    formulas: Sequence[str]
    values: Callable[[Data], Sequence[Scalar]]


def block_goal(scene: Scene, title: Sequence[str], request: str, lines: Sequence[Line]) -> Goal:
    """Return the goal of a block on the sheet Summary whose labels are there.

    Args:
        scene: the scene.
        title: the headers of the block.
        request: what the formulas give; it may have `{area}` and `{labels}`, the ranges to fill and of labels.
        lines: the rows.
    """
    top = scene.summary_row(len(lines) + 1)
    sheet = scene.sheet(SUMMARY)
    for at, header in enumerate(title):
        sheet.put(top, 1 + at, header)
        sheet.style(top, 1 + at, bold=True)
    for at, line in enumerate(lines, 1):
        sheet.put(top + at, 1, line.label)
    width, last = len(lines[0].formulas), top + len(lines)
    area = f"B{top + 1}:{letters(1 + width)}{last}"
    rows = [
        [f"={formula.replace('{row}', str(top + index))}" for formula in line.formulas]
        for index, line in enumerate(lines, 1)
    ]
    cells: list[list[Cell]] = [
        [(SUMMARY, top + at, 2 + column) for column in range(width)] for at in range(1, len(lines) + 1)
    ]

    def expected(data: Data) -> Mapping[Cell, Scalar]:
        return {
            cell: value
            for line, row in zip(lines, cells, strict=True)
            for cell, value in zip(row, line.values(data), strict=True)
        }

    return Goal(
        request=request.format(area=area if len(lines) * width > 1 else f"B{top + 1}", labels=f"A{top + 1}:A{last}", heads=f"B{top}:{letters(1 + width)}{top}"),
        solution=[write(SUMMARY, f"B{top + 1}", *[[one.replace("{head}", str(top)) for one in row] for row in rows])],
        expected=expected,
        free=style_facts([cell for row in cells for cell in row]),
    )  # fmt: skip


def _items(scene: Scene, category: str) -> list[str]:
    """Return all values of a category, in any order."""
    found = list(scene.domain.groups if category == "group" else scene.domain.kinds)
    scene.rng.shuffle(found)
    return found


def _of(t: Table, data: Data, category: str, item: str, role: str) -> list[float]:
    pairs = zip(t.texts(data, category), t.numbers(data, role), strict=True)
    return [value for group, value in pairs if group == item]


@kind(4)
def sum_by(scene: Scene, variant: int) -> Goal:
    """Add up by category."""
    t, role, category = scene.main, NUMBERS[variant % 2], CATEGORIES[variant // 2]
    lines = [
        Line(item, [f"SUMIF({t.far(category)},A{{row}},{t.far(role)})"],
             lambda data, item=item: [float(sum(_of(t, data, category, item, role)))])  # type: ignore[misc]
        for item in _items(scene, category)
    ]  # fmt: skip
    return block_goal(
        scene, [t.header(category), f"Sum of {t.header(role)}"],
        f"On the sheet {SUMMARY}, write formulas into {{area}} that add up {t.header(role)} in the sheet {t.sheet} for each "
        f"{t.header(category)} in {{labels}}.", lines,
    )  # fmt: skip


@kind(4)
def average_by(scene: Scene, variant: int) -> Goal:
    """Average by category."""
    t, role, category = scene.main, NUMBERS[variant % 2], CATEGORIES[variant // 2]

    def mean(data: Data, item: str) -> float:
        found = _of(t, data, category, item, role)
        return sum(found) / len(found) if found else 0.0

    lines = [
        Line(item, [f"IFERROR(AVERAGEIF({t.far(category)},A{{row}},{t.far(role)}),0)"],
             lambda data, item=item: [mean(data, item)])  # type: ignore[misc]
        for item in _items(scene, category)
    ]  # fmt: skip
    return block_goal(
        scene, [t.header(category), f"Average {t.header(role)}"],
        f"On the sheet {SUMMARY}, write formulas into {{area}} that give the average {t.header(role)} in the sheet {t.sheet} "
        f"for each {t.header(category)} in {{labels}}. Where there are no rows, they give 0.", lines,
    )  # fmt: skip


@kind(8)
def extreme_by(scene: Scene, variant: int) -> Goal:
    """Find the greatest or the smallest by category, or the last date."""
    t, category = scene.main, CATEGORIES[variant % 2]
    role = ("count", "money", "date", "money")[variant // 2]
    least = variant // 2 == 3
    name, what = ("MINIFS", "smallest") if least else ("MAXIFS", "latest" if role == "date" else "greatest")

    def extreme(data: Data, item: str) -> float:
        found = _of(t, data, category, item, role)
        return (min if least else max)(found, default=0.0)

    lines = [
        Line(item, [f"{name}({t.far(role)},{t.far(category)},A{{row}})"],
             lambda data, item=item: [extreme(data, item)])  # type: ignore[misc]
        for item in _items(scene, category)
    ]  # fmt: skip
    return block_goal(
        scene, [t.header(category), f"{what.capitalize()} {t.header(role)}"],
        f"On the sheet {SUMMARY}, write formulas into {{area}} that give the {what} {t.header(role)} in the sheet {t.sheet} "
        f"for each {t.header(category)} in {{labels}}. Where there are no rows, they give 0.", lines,
    )  # fmt: skip


@kind(8)
def count_by(scene: Scene, variant: int) -> Goal:
    """Count by category the rows that meet a condition."""
    t, category, role, how = scene.main, CATEGORIES[variant % 2], NUMBERS[variant // 2 % 2], variant // 4
    limit = _threshold(scene, role)
    sign, phrase = ((">=", "at least"), ("<", "less than"))[how]

    def count(data: Data, item: str) -> float:
        found = _of(t, data, category, item, role)
        return float(sum(value < limit if how else value >= limit for value in found))

    lines = [
        Line(item, [f'COUNTIFS({t.far(category)},A{{row}},{t.far(role)},"{sign}{plain(limit)}")'],
             lambda data, item=item: [count(data, item)])  # type: ignore[misc]
        for item in _items(scene, category)
    ]  # fmt: skip
    return block_goal(
        scene, [t.header(category), f"Number of {scene.domain.things}"],
        f"On the sheet {SUMMARY}, write formulas into {{area}} that count, for each {t.header(category)} in {{labels}}, the "
        f"rows in the sheet {t.sheet} with {t.header(role)} of {phrase} {plain(limit)}.", lines,
    )  # fmt: skip


@kind(4)
def share_by(scene: Scene, variant: int) -> Goal:
    """Give the share of each category in the total."""
    t, role, category = scene.main, NUMBERS[variant % 2], CATEGORIES[variant // 2]
    scene.sometimes_zero("main", role)

    def part(data: Data, item: str) -> float:
        total = sum(t.numbers(data, role))
        return sum(_of(t, data, category, item, role)) / total if total else 0.0

    lines = [
        Line(item, [f"IF(SUM({t.far(role)})=0,0,SUMIF({t.far(category)},A{{row}},{t.far(role)})/SUM({t.far(role)}))"],
             lambda data, item=item: [part(data, item)])  # type: ignore[misc]
        for item in _items(scene, category)
    ]  # fmt: skip
    return block_goal(
        scene, [t.header(category), f"Share of {t.header(role)}"],
        f"On the sheet {SUMMARY}, write formulas into {{area}} that give, for each {t.header(category)} in {{labels}}, its share "
        f"in the total of {t.header(role)} in the sheet {t.sheet}, as a fraction such as 0.25 (0 if the total is 0).", lines,
    )  # fmt: skip


@kind(6)
def cross_table(scene: Scene, variant: int) -> Goal:
    """Cross two categories, or a category with months."""
    t, what = scene.main, variant % 3
    category = CATEGORIES[variant // 3]
    other = CATEGORIES[1 - variant // 3]
    items = _items(scene, category)
    if what == 2:
        heads: list[str] = list(MONTHS)
        tests = [f"(MONTH({t.far('date')})={month})" for month in range(1, 7)]
    else:
        heads = _items(scene, other)
        tests = [f"({t.far(other)}={letters(2 + at)}${{head}})" for at in range(len(heads))]
    counts = what == 1
    role = "count"
    tail = "1" if counts else t.far(role)

    def values(data: Data, item: str) -> list[Scalar]:
        rows = zip(
            t.texts(data, category), t.texts(data, other), t.numbers(data, "date"), t.numbers(data, role), strict=True
        )
        kept = [
            (MONTHS[m - 1] if (m := to_date(d).month) <= 6 else "") if what == 2 else b
            for a, b, d, n in rows
            if a == item
        ]
        amounts = [n for a, n in zip(t.texts(data, category), t.numbers(data, role), strict=True) if a == item]
        return [
            float(sum(1 if counts else n for k, n in zip(kept, amounts, strict=True) if k == head)) for head in heads
        ]

    lines = [
        Line(item, [f"SUMPRODUCT(({t.far(category)}=$A{{row}})*{test}*{tail})" for test in tests],
             lambda data, item=item: values(data, item))  # type: ignore[misc]
        for item in items
    ]  # fmt: skip
    over = "month of the year (whatever the year)" if what == 2 else t.header(other)
    by = f"the {t.header('date')}'s {over}" if what == 2 else f"each {over}"
    give = f"count the rows in the sheet {t.sheet}" if counts else f"add up {t.header(role)} in the sheet {t.sheet}"
    return block_goal(
        scene, [t.header(category), *heads],
        f"On the sheet {SUMMARY}, fill {{area}} with formulas that {give} by {t.header(category)} (in {{labels}}) and by {by} "
        "(in {heads}).", lines,
    )  # fmt: skip


@kind(2)
def statistics_of(scene: Scene, variant: int) -> Goal:
    """Describe a column of numbers."""
    t, role = scene.main, NUMBERS[variant]
    computed: tuple[tuple[str, str, Callable[[list[float]], float]], ...] = (
        ("Sum", "SUM", sum), ("Average", "AVERAGE", statistics.fmean), ("Median", "MEDIAN", statistics.median),
        ("Smallest", "MIN", min), ("Greatest", "MAX", max),
    )  # fmt: skip
    lines = [
        Line(name, [f"{function}({t.far(role)})"], lambda data, compute=compute: [compute(t.numbers(data, role))])  # type: ignore[misc]
        for name, function, compute in computed
    ]
    return block_goal(
        scene, ["Statistic", t.header(role)],
        f"On the sheet {SUMMARY}, write formulas into {{area}} that give the statistics of {t.header(role)} in the sheet "
        f"{t.sheet} that {{labels}} names: sum, average, median, smallest and greatest.", lines,
    )  # fmt: skip


@kind(4)
def top_values(scene: Scene, variant: int) -> Goal:
    """List the greatest or smallest values, or the row that has one."""
    t, role, least = scene.main, NUMBERS[variant % 2], variant >= 2
    what, name = ("smallest", "SMALL") if least else ("greatest", "LARGE")

    def value(data: Data, place: int) -> float:
        return sorted(t.numbers(data, role), reverse=not least)[place]

    def is_shared(data: Mapping[str, Rows]) -> None:
        """Give the last row the value that is the greatest or smallest already."""
        at = t.index(role)
        data["main"][-1][at] = data["main"][0][at] = value(data, 0)

    scene.edges.append(is_shared)

    def first_key(data: Data) -> str:
        found = t.numbers(data, role)
        return t.texts(data, "key")[found.index(value(data, 0))]

    lines = [
        Line(
            f"Number {place + 1}",
            [f"{name}({t.far(role)},{place + 1})"],
            lambda data, place=place: [value(data, place)],  # type: ignore[misc]
        )
        for place in range(3)
    ]
    best = "MIN" if least else "MAX"
    lines.append(
        Line(
            "Found in",
            [f"INDEX({t.far('key')},MATCH({best}({t.far(role)}),{t.far(role)},0))"],
            lambda data: [first_key(data)],
        )
    )
    return block_goal(
        scene, [what.capitalize(), t.header(role)],
        f"On the sheet {SUMMARY}, write four formulas into {{area}}: the three {what} values of {t.header(role)} in the sheet "
        f"{t.sheet}, the {what} first (equal values count separately), and then the {t.header('key')} of the first row of the "
        f"table that has the {what} value.", lines,
    )  # fmt: skip


@kind(3)
def distinct(scene: Scene, variant: int) -> Goal:
    """Count different values."""
    t, role = scene.main, ("group", "kind", "person")[variant]
    if role == "person":
        scene.hot["main", "person"] = [*t.texts(scene.data, "person")[:3]]
    lines = [
        Line(f"Different: {t.header(role)}", [f"SUMPRODUCT(1/COUNTIF({t.far(role)},{t.far(role)}))"],
             lambda data: [float(len(set(t.texts(data, role))))])
    ]  # fmt: skip
    return block_goal(
        scene, ["Measure", "Value"],
        f"On the sheet {SUMMARY}, write a formula into {{area}} that counts how many different values of {t.header(role)} there "
        f"are in the table on the sheet {t.sheet}.", lines,
    )  # fmt: skip


@kind(2)
def weighted(scene: Scene, variant: int) -> Goal:
    """Average with weights, or add up products."""
    t = scene.main
    scene.sometimes_zero("main", "count")
    products = f"SUMPRODUCT({t.far('count')},{t.far('money')})"

    def value(data: Data) -> float:
        counts = t.numbers(data, "count")
        total = sum(a * b for a, b in zip(counts, t.numbers(data, "money"), strict=True))
        return total if variant == 0 else total / sum(counts) if sum(counts) else 0.0

    label, what, formula = (
        ("Total", f"the sum over all rows of {t.header('count')} times {t.header('money')}", products),
        (
            "Weighted average",
            f"the average of {t.header('money')} weighted by {t.header('count')} (0 if all weights are 0)",
            f"IF(SUM({t.far('count')})=0,0,{products}/SUM({t.far('count')}))",
        ),
    )[variant]
    return block_goal(
        scene, ["Measure", "Value"],
        f"On the sheet {SUMMARY}, write one formula into {{area}} that gives {what}, from the table on the sheet {t.sheet}. Do not "
        "add columns to the table.", [Line(label, [formula], lambda data: [value(data)])],
    )  # fmt: skip


@kind(4)
def between_dates(scene: Scene, variant: int) -> Goal:
    """Add up or count the rows of a time."""
    t, role, counts = scene.main, NUMBERS[variant % 2], variant >= 2
    low, high = sorted(scene.rng.sample(t.numbers(scene.data, "date"), 2))
    scene.hot["main", "date"] = [*scene.hot.get(("main", "date"), []), int(low), int(high)]
    ends = f'{t.far("date")},">="&DATE({{}}),{t.far("date")},"<="&DATE({{}})'
    parts = [to_date(end) for end in (low, high)]
    ends = ends.format(*(f"{day.year},{day.month},{day.day}" for day in parts))
    formula = f"COUNTIFS({ends})" if counts else f"SUMIFS({t.far(role)},{ends})"

    def value(data: Data) -> float:
        pairs = zip(t.numbers(data, "date"), t.numbers(data, role), strict=True)
        return float(sum(1 if counts else number for day, number in pairs if low <= day <= high))

    what = "counts the rows" if counts else f"adds up {t.header(role)} of the rows"
    return block_goal(
        scene, ["Measure", "Value"],
        f"On the sheet {SUMMARY}, write a formula into {{area}} that {what} in the sheet {t.sheet} with {t.header('date')} from "
        f"{parts[0].isoformat()} to {parts[1].isoformat()}, both days included.",
        [Line("In the period", [formula], lambda data: [value(data)])],
    )  # fmt: skip


@kind(4)
def above_average(scene: Scene, variant: int) -> Goal:
    """Count or add up the rows above the average."""
    t, role, sums = scene.main, NUMBERS[variant % 2], variant >= 2
    name = "SUMIF" if sums else "COUNTIF"

    def value(data: Data) -> float:
        found = t.numbers(data, role)
        mean = statistics.fmean(found)
        return float(sum(number if sums else 1 for number in found if number > mean))

    what = f"adds up {t.header(role)} of all rows whose" if sums else "counts the rows whose"
    return block_goal(
        scene, ["Measure", "Value"],
        f"On the sheet {SUMMARY}, write a formula into {{area}} that {what} {t.header(role)} is greater than the average "
        f"{t.header(role)} of the table on the sheet {t.sheet}.",
        [Line("Above average", [f'{name}({t.far(role)},">"&AVERAGE({t.far(role)}))'], lambda data: [value(data)])],
    )  # fmt: skip


@kind(2)
def record_card(scene: Scene, variant: int) -> Goal:
    """Look up the record whose id is in a cell."""
    t = scene.main
    keys = t.texts(scene.data, "key")
    roles = ("person", "money", "group") if variant == 0 else ("kind", "count", "person")
    missing = f"{scene.domain.prefix}-0000-000"
    place = sum(table.sheet == INPUTS for table in scene.tables.values())
    card = scene.inputs(
        f"input{place}",
        INPUTS,
        1,
        1 + 4 * place,
        [(f"{t.header('key')} to show", lambda rng, place: rng.choice(keys), "General")],
    )
    scene.sometimes(card.id, missing)

    def look_up(data: Mapping[str, Rows], place: int) -> None:
        data[card.id][0][1] = keys[place]

    scene.looked_up.append(look_up)
    cell = f"{INPUTS}!${card.letter('value')}${card.first}"

    def value(data: Data, role: str) -> Scalar:
        wanted, found = data[card.id][0][1], t.texts(data, "key")
        if wanted not in found:
            return "not found"
        content = t.values(data, role)[found.index(str(wanted))]
        return content if isinstance(content, str) else float(content)  # type: ignore[arg-type]

    lines = [
        Line(t.header(role), [f'IFERROR(INDEX({t.far(role)},MATCH({cell},{t.far("key")},0)),"not found")'],
             lambda data, role=role: [value(data, role)])  # type: ignore[misc]
        for role in roles
    ]  # fmt: skip
    return block_goal(
        scene, ["Field", "Value"],
        f"On the sheet {SUMMARY}, write formulas into {{area}} that show the fields in {{labels}} of the row in the sheet {t.sheet} "
        f"whose {t.header('key')} is in {cell.replace('$', '')}. If there is no such row, they give \"not found\".", lines,
    )  # fmt: skip


# Lookups in a column of the main table


def small_table(
    scene: Scene, id: str, columns: Sequence[tuple[str, str, Draw | None]], rows: Sequence[Sequence[Content]]
) -> Table:
    """Add a small table to the sheet with inputs; columns are roles, headers and how they vary."""
    place = sum(table.sheet == INPUTS for table in scene.tables.values())
    made = [Column(role, header, draw) for role, header, draw in columns]
    return scene.add(Table(f"{id}{place}", INPUTS, 1, 1 + 4 * place, made, [list(row) for row in rows]))


@kind(8)
def lookup(scene: Scene, variant: int) -> Goal:
    """Look up a value of each row's category in another table, which lacks one."""
    t, category, texts, how = scene.main, CATEGORIES[variant % 2], variant // 2 % 2 == 0, variant // 4
    items = _items(scene, category)[:-1]
    codes = [f"{letter}{number}" for letter in "ABCD" for number in range(10, 60)]
    header = "Code" if texts else "Factor"

    def draw(rng: object, place: int) -> Content:
        return rng.choice(codes) if texts else rng.randint(11, 99) / 10  # type: ignore[attr-defined, no-any-return]

    table = small_table(
        scene,
        "lookup",
        [("item", t.header(category), None), ("value", header, draw)],
        [[item, draw(scene.rng, 0)] for item in items],
    )
    other = "none" if texts else 0.0

    def values(data: Data) -> list[Scalar]:
        known = dict(zip(table.texts(data, "item"), table.values(data, "value"), strict=True))
        found = [known.get(group, other) for group in t.texts(data, category)]
        return [one if isinstance(one, str) else float(one) for one in found]  # type: ignore[arg-type]

    area = f"{INPUTS}!${table.letter('item')}${table.first}:${table.letter('value')}${table.last}"
    shown = '"none"' if texts else "0"
    formula = (
        f"IFERROR(VLOOKUP({t.cell(category)},{area},2,FALSE),{shown})",
        f"XLOOKUP({t.cell(category)},{table.far('item')},{table.far('value')},{shown})",
    )[how]
    return column_goal(
        scene, header,
        f"the {header} of the row's {t.header(category)}, looked up in the table {INPUTS}!{table.area}; {shown} where that table "
        "does not have it", formula, values,
    )  # fmt: skip


@kind(4)
def band(scene: Scene, variant: int) -> Goal:
    """Find the band in which a number lies."""
    t, role, texts = scene.main, NUMBERS[variant % 2], variant < 2
    low, high = scene.domain.counts if role == "count" else scene.domain.amounts
    step = max(1, (high - low) // 5)
    starts: list[Content] = [0, low + step, low + 2 * step, low + 4 * step]
    scene.hot["main", role] = [*scene.hot.get(("main", role), []), *starts[1:]]
    names: list[Content] = ["Basic", "Bronze", "Silver", "Gold"]
    header = "Band" if texts else "Rate"
    draw: Draw | None = None if texts else lambda rng, place: rng.randint(1, 30) / 100
    results = names if texts else [scene.rng.randint(1, 30) / 100 for _ in starts]
    table = small_table(
        scene,
        "band",
        [("from", f"{t.header(role)} from", None), ("value", header, draw)],
        [list(pair) for pair in zip(starts, results, strict=True)],
    )

    def values(data: Data) -> list[Scalar]:
        ends = table.numbers(data, "from")
        given = table.values(data, "value")
        found = [
            given[max(index for index, start in enumerate(ends) if start <= number)] for number in t.numbers(data, role)
        ]
        return [one if isinstance(one, str) else float(one) for one in found]  # type: ignore[arg-type]

    area = f"{INPUTS}!${table.letter('from')}${table.first}:${table.letter('value')}${table.last}"
    return column_goal(
        scene, header,
        f"the {header} for {t.header(role)} from the table {INPUTS}!{table.area}: the one of the last line there whose start is not "
        f"greater than {t.header(role)}", f"VLOOKUP({t.cell(role)},{area},2,TRUE)", values,
    )  # fmt: skip


@kind(2)
def two_way(scene: Scene, variant: int) -> Goal:
    """Look up by row and column."""
    t = scene.main
    down, across = CATEGORIES[variant], CATEGORIES[1 - variant]
    rows, heads = _items(scene, down), _items(scene, across)

    def draw(rng: object, place: int) -> Content:
        return rng.randint(5, 95) / 10  # type: ignore[attr-defined, no-any-return]

    columns = [("item", t.header(down), None), *((head, head, draw) for head in heads)]
    name = "Rates" if scene.book.sheet("Rates") is None else "Rates 2"
    made = [Column(role, header, way) for role, header, way in columns]
    table = scene.add(Table(f"{name}", name, 1, 1, made, [[row, *(draw(scene.rng, 0) for _ in heads)] for row in rows]))
    width = letters(len(columns))
    sheet = name if name == "Rates" else f"'{name}'"
    formula = (
        f"INDEX({sheet}!$B$2:${width}${table.last},MATCH({t.cell(down)},{sheet}!$A$2:$A${table.last},0),"
        f"MATCH({t.cell(across)},{sheet}!$B$1:${width}$1,0))"
    )

    def values(data: Data) -> list[Scalar]:
        known = {str(row[0]): dict(zip(heads, row[1:], strict=True)) for row in data[table.id]}
        pairs = zip(t.texts(data, down), t.texts(data, across), strict=True)
        return [float(known[one][other]) for one, other in pairs]  # type: ignore[arg-type]

    return column_goal(
        scene, "Rate",
        f"the rate from the table on the sheet {name}: in the line of the row's {t.header(down)} and the column of its "
        f"{t.header(across)}", formula, values,
    )  # fmt: skip


@kind(2)
def from_other_sheet(scene: Scene, variant: int) -> Goal:
    """Add up for each row what another sheet has about it."""
    t, counts = scene.main, variant == 1
    rng, name = scene.rng, "Payments"
    keys = t.texts(scene.data, "key")
    columns = (
        Column("id", t.header("key"), lambda rng, place: rng.choice(keys)),
        Column("on", "Paid on", None, "yyyy-mm-dd"),
        Column("amount", "Amount", lambda rng, place: rng.randint(100, 9000) / 100, "#,##0.00"),
    )
    day = int(to_serial(date(2026, 1, 5)))
    rows: list[list[Content]] = [
        [rng.choice(keys), day + rng.randrange(90), rng.randint(100, 9000) / 100] for _ in range(len(keys) + 4)
    ]
    table = scene.add(Table("payments", name, 1, 1, columns, rows))

    def values(data: Data) -> list[Scalar]:
        pairs = list(zip(table.texts(data, "id"), table.numbers(data, "amount"), strict=True))
        return [float(sum(1 if counts else a for k, a in pairs if k == key)) for key in t.texts(data, "key")]

    formula = (
        f"COUNTIF({table.far('id')},{t.cell('key')})" if counts
        else f"SUMIF({table.far('id')},{t.cell('key')},{table.far('amount')})"
    )  # fmt: skip
    what = "the number of lines" if counts else "the sum of the amounts"
    return column_goal(
        scene,
        "Payments" if counts else "Paid",
        f"{what} on the sheet {name} that have the {t.header('key')} of the row",
        formula,
        values,
    )
