"""Goals that add a column of formulas to the main table."""

from __future__ import annotations

import calendar
from collections.abc import Callable, Sequence
from datetime import date
from typing import Final

from ludus.environments.spreadsheet.engine.addresses import letters
from ludus.environments.spreadsheet.engine.book import Book, Content
from ludus.environments.spreadsheet.engine.values import Scalar, to_date, to_serial
from ludus.environments.spreadsheet.goals.goal import Cell, Goal, cell_facts, fill, kind, style_facts, write
from ludus.environments.spreadsheet.scenes import Data, Scene

NUMBERS: Final = ("count", "money")
CATEGORIES: Final = ("group", "kind")
INPUTS: Final = "Inputs"
"""The sheet with input values and small tables."""


def column_goal(scene: Scene, header: str, what: str, formula: str, values: Callable[[Data], Sequence[Scalar]]) -> Goal:
    """Return the goal of a new column right of the main table.

    Args:
        scene: the scene.
        header: the new header.
        what: completes "a formula that gives …".
        formula: the formula of the first row.
        values: computes the column from data.
    """
    main, column = scene.main, scene.next_column()
    letter, sheet = letters(column), main.sheet
    cells: list[Cell] = [(sheet, row, column) for row in range(main.first, main.last + 1)]
    label: Cell = (sheet, main.top, column)

    def apply(book: Book) -> None:
        found = book.sheet(sheet)
        assert found is not None
        found.put(main.top, column, header)

    return Goal(
        request=f'On the sheet {sheet}, write the header "{header}" into {letter}{main.top}, and in each row of the table '
        f"({letter}{main.first}:{letter}{main.last}) a formula that gives {what}.",
        solution=[
            write(sheet, f"{letter}{main.top}", [header]),
            fill(sheet, f"{letter}{main.first}:{letter}{main.last}", formula),
        ],
        expected=lambda data: dict(zip(cells, values(data), strict=True)),
        apply=apply,
        owns=cell_facts([label]),
        free=style_facts([label, *cells]),
    )


def _is_taken(scene: Scene) -> int:
    return sum(table.sheet == INPUTS for table in scene.tables.values())


def input_cell(scene: Scene, label: str, draw: Callable[..., Content], pattern: str = "General") -> tuple[str, str]:
    """Add an input value; return its id as a table, and its address for formulas on other sheets."""
    place = _is_taken(scene)
    table = scene.inputs(f"input{place}", INPUTS, 1, 1 + 4 * place, [(label, draw, pattern)])
    return table.id, f"{INPUTS}!${table.letter('value')}${table.first}"


def given(data: Data, id: str) -> float:
    """Return the value of an input that is a number."""
    value = data[id][0][1]
    assert isinstance(value, (int, float))
    return float(value)


@kind(1)
def product(scene: Scene, variant: int) -> Goal:
    """Multiply two columns."""
    t = scene.main
    return column_goal(
        scene, "Total", f"{t.header('count')} times {t.header('money')}", f"{t.cell('count')}*{t.cell('money')}",
        lambda data: [a * b for a, b in zip(t.numbers(data, "count"), t.numbers(data, "money"), strict=True)],
    )  # fmt: skip


@kind(4)
def rate(scene: Scene, variant: int) -> Goal:
    """Apply a rate in an input cell."""
    t, role = scene.main, NUMBERS[variant % 2]
    name = ("Surcharge", "Discount")[variant // 2]
    id, cell = input_cell(scene, f"{name} rate", lambda rng, place: rng.randint(2, 40) / 100, "0%")
    sign = 1 if variant < 2 else -1
    return column_goal(
        scene, f"After {name.lower()}",
        f"the {t.header(role)} {'plus' if sign > 0 else 'minus'} the {name.lower()}, which is {t.header(role)} times the "
        f"rate in {cell.replace('$', '')}. The rate may change later, so refer to that cell",
        f"{t.cell(role)}*(1{'+' if sign > 0 else '-'}{cell})",
        lambda data: [value * (1 + sign * given(data, id)) for value in t.numbers(data, role)],
    )  # fmt: skip


@kind(2)
def share(scene: Scene, variant: int) -> Goal:
    """Give the share of the total."""
    t, role = scene.main, NUMBERS[variant]
    scene.sometimes_zero("main", role)

    def values(data: Data) -> list[Scalar]:
        found = t.numbers(data, role)
        total = sum(found)
        return [value / total if total else 0.0 for value in found]

    return column_goal(
        scene, f"Share of {t.header(role).lower()}",
        f"the share of the row in the total of {t.header(role)}, as a fraction such as 0.05 (0 if the total is 0)",
        f"IF(SUM({t.span(role)})=0,0,{t.cell(role)}/SUM({t.span(role)}))", values,
    )  # fmt: skip


@kind(4)
def rank(scene: Scene, variant: int) -> Goal:
    """Rank the rows."""
    t, role, upward = scene.main, NUMBERS[variant % 2], variant >= 2

    def values(data: Data) -> list[Scalar]:
        found = t.numbers(data, role)
        return [1.0 + sum(o < v if upward else o > v for o in found) for v in found]

    scene.hot["main", role] = scene.hot.get(("main", role), []) + [t.numbers(scene.data, role)[0]]
    return column_goal(
        scene, f"Rank by {t.header(role).lower()}",
        f"the rank of the row by {t.header(role)}, 1 for the {'smallest' if upward else 'largest'}. Equal values have the "
        "same rank, and the ranks after them are skipped",
        f"RANK({t.cell(role)},{t.span(role)},{int(upward)})", values,
    )  # fmt: skip


@kind(2)
def running_total(scene: Scene, variant: int) -> Goal:
    """Add up from the first row to the current one."""
    t, role = scene.main, NUMBERS[variant]

    def values(data: Data) -> list[Scalar]:
        found = t.numbers(data, role)
        return [sum(found[: at + 1]) for at in range(len(found))]

    first = f"${t.letter(role)}${t.first}"
    return column_goal(
        scene, f"Running {t.header(role).lower()}",
        f"the sum of {t.header(role)} from the first row of the table to the row itself",
        f"SUM({first}:{t.cell(role)})", values,
    )  # fmt: skip


def _threshold(scene: Scene, role: str) -> float:
    """Return a value of a column, which is common in variations, so that "at least" and "more than" differ."""
    ordered = sorted(scene.main.numbers(scene.data, role))
    found = ordered[scene.rng.randint(len(ordered) // 3, 2 * len(ordered) // 3)]
    scene.hot["main", role] = [*scene.hot.get(("main", role), []), found]
    return found


def plain(value: float) -> str:
    """Return a number as people write it."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


@kind(8)
def label(scene: Scene, variant: int) -> Goal:
    """Label rows by a threshold."""
    t, role, how = scene.main, NUMBERS[variant % 2], variant // 2
    limit = _threshold(scene, role)
    words = (("High", "Low"), ("Check", "OK"), ("Large", "Small"), ("Review", "Pass"))[how]
    phrase, sign = (("at least", ">="), ("less than", "<"), ("more than", ">"), ("at most", "<="))[how]
    holds: Callable[[float], bool] = (
        lambda v: v >= limit, lambda v: v < limit, lambda v: v > limit, lambda v: v <= limit,
    )[how]  # fmt: skip
    return column_goal(
        scene, "Label", f'"{words[0]}" if {t.header(role)} is {phrase} {plain(limit)}, and "{words[1]}" otherwise',
        f'IF({t.cell(role)}{sign}{plain(limit)},"{words[0]}","{words[1]}")',
        lambda data: [words[0] if holds(value) else words[1] for value in t.numbers(data, role)],
    )  # fmt: skip


@kind(8)
def flag(scene: Scene, variant: int) -> Goal:
    """Test two conditions."""
    t, role, category, both = scene.main, NUMBERS[variant % 2], CATEGORIES[variant // 2 % 2], variant < 4
    limit, item = _threshold(scene, role), scene.rng.choice(t.texts(scene.data, category))
    scene.hot["main", category] = [*scene.hot.get(("main", category), []), item]
    name, word = ("AND", "and") if both else ("OR", "or")

    def values(data: Data) -> list[Scalar]:
        pairs = zip(t.texts(data, category), t.numbers(data, role), strict=True)
        return ["Yes" if ((c == item and v > limit) if both else (c == item or v > limit)) else "No" for c, v in pairs]

    return column_goal(
        scene, "Flag",
        f'"Yes" if {t.header(category)} is {item} {word} {t.header(role)} is more than {plain(limit)}, and "No" otherwise',
        f'IF({name}({t.cell(category)}="{item}",{t.cell(role)}>{plain(limit)}),"Yes","No")', values,
    )  # fmt: skip


@kind(6)
def due_date(scene: Scene, variant: int) -> Goal:
    """Compute a date from the date of the row."""
    t, cell = scene.main, scene.main.cell("date")
    count = scene.rng.choice((10, 14, 21, 30, 45, 60)) if variant in (0, 3) else scene.rng.randint(1, 7)
    what, formula = (
        (f"the date {count} days after", f"{cell}+{count}"),
        (f"the date {count} months after", f"EDATE({cell},{count})"),
        ("the last day of the month of", f"EOMONTH({cell},0)"),
        (f"the date {count} working days (Monday to Friday) after", f"WORKDAY({cell},{count})"),
        ("the first day of the month after the month of", f"EOMONTH({cell},0)+1"),
        ("the first day of the month of", f"DATE(YEAR({cell}),MONTH({cell}),1)"),
    )[variant]

    def later(day: date) -> date:
        if variant == 1:
            year, month = divmod(day.year * 12 + day.month - 1 + count, 12)
            return date(year, month + 1, min(day.day, calendar.monthrange(year, month + 1)[1]))
        if variant == 2:
            return day.replace(day=calendar.monthrange(day.year, day.month)[1])
        if variant == 4:
            return date(day.year + day.month // 12, day.month % 12 + 1, 1)
        return day.replace(day=1)

    def value(serial: float) -> float:
        if variant == 0:
            return serial + count
        if variant == 3:
            left, found = count, serial
            while left:
                found += 1
                left -= to_date(found).weekday() < 5
            return found
        return to_serial(later(to_date(serial)))

    scene.hot["main", "date"] = [
        int(to_serial(day)) for day in (date(2025, 1, 31), date(2025, 12, 31), date(2025, 8, 30))
    ]
    note = " (the last day of that month if it is shorter)" if variant == 1 else ""
    return column_goal(
        scene, "Due date", f"{what} the {t.header('date')}{note}, as a date", formula,
        lambda data: [value(serial) for serial in t.numbers(data, "date")],
    )  # fmt: skip


@kind(3)
def age(scene: Scene, variant: int) -> Goal:
    """Count days, working days or months up to a date."""
    t, cell = scene.main, scene.main.cell("date")
    id, today = input_cell(
        scene, "Report date", lambda rng, place: int(to_serial(date(2026, 1, 1))) + rng.randrange(180), "yyyy-mm-dd"
    )
    where = today.replace("$", "")
    what, formula = (
        (f"the number of days from the {t.header('date')} to the report date", f"{today}-{cell}"),
        (
            f"the number of working days (Monday to Friday) from the {t.header('date')} to the report date, both included",
            f"NETWORKDAYS({cell},{today})",
        ),
        (
            f"the number of complete months from the {t.header('date')} to the report date",
            f'DATEDIF({cell},{today},"m")',
        ),
    )[variant]

    def value(start: float, end: float) -> float:
        if variant == 0:
            return end - start
        if variant == 1:
            return float(sum(to_date(day).weekday() < 5 for day in range(int(start), int(end) + 1)))
        one, other = to_date(start), to_date(end)
        return float((other.year - one.year) * 12 + other.month - one.month - (other.day < one.day))

    return column_goal(
        scene, ("Age in days", "Working days", "Full months")[variant], f"{what} in {where}, as a number", formula,
        lambda data: [value(start, given(data, id)) for start in t.numbers(data, "date")],
    )  # fmt: skip


@kind(4)
def period(scene: Scene, variant: int) -> Goal:
    """Name the month, quarter, weekday or year."""
    t, cell = scene.main, scene.main.cell("date")
    header, what, formula = (
        ("Month", 'the year and month as text, such as "2025-03"', f'TEXT({cell},"yyyy-mm")'),
        ("Quarter", 'the quarter as text, such as "Q1" for January to March', f'"Q"&ROUNDUP(MONTH({cell})/3,0)'),
        (
            "Weekday", 'the day of the week in three letters, such as "Mon"',
            f'CHOOSE(WEEKDAY({cell},2),"Mon","Tue","Wed","Thu","Fri","Sat","Sun")',
        ),
        ("Weekend", '"Weekend" for Saturday and Sunday, and "Weekday" otherwise,', f'IF(WEEKDAY({cell},2)>5,"Weekend","Weekday")'),
    )[variant]  # fmt: skip

    def value(serial: float) -> str:
        day = to_date(serial)
        return (
            f"{day.year}-{day.month:02d}", f"Q{(day.month + 2) // 3}",
            ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[day.weekday()],
            "Weekend" if day.weekday() > 4 else "Weekday",
        )[variant]  # fmt: skip

    return column_goal(
        scene, header, f"{what} of the {t.header('date')}", formula,
        lambda data: [value(serial) for serial in t.numbers(data, "date")],
    )  # fmt: skip


@kind(5)
def name_part(scene: Scene, variant: int) -> Goal:
    """Take names apart."""
    t, cell = scene.main, scene.main.cell("person")
    first, last = f'LEFT({cell},FIND(" ",{cell})-1)', f'MID({cell},FIND(" ",{cell})+1,100)'
    header, what, formula = (
        ("First name", "the first name", first),
        ("Last name", "the last name", last),
        ("Initials", 'the initials, such as "AB" for Anna Berg', f'LEFT({cell},1)&MID({cell},FIND(" ",{cell})+1,1)'),
        ("Sort name", 'the name in the form "Berg, Anna"', f'{last}&", "&{first}'),
        ("Upper name", 'the last name in capital letters, such as "BERG"', f"UPPER({last})"),
    )[variant]

    def value(name: str) -> str:
        one, other = name.split(" ")
        return (one, other, one[0] + other[0], f"{other}, {one}", other.upper())[variant]

    return column_goal(
        scene, header, f"{what} from {t.header('person')}, which holds a first and a last name with a space between", formula,
        lambda data: [value(name) for name in t.texts(data, "person")],
    )  # fmt: skip


@kind(2)
def email(scene: Scene, variant: int) -> Goal:
    """Build addresses."""
    t, cell = scene.main, scene.main.cell("person")
    domains = ("example.com", "example.org", "mail.example", "team.example")
    id, host = input_cell(scene, "Mail domain", lambda rng, place: rng.choice(domains))
    short = variant == 1
    begin = f"LEFT({cell},1)" if short else f'LEFT({cell},FIND(" ",{cell})-1)'

    def values(data: Data) -> list[Scalar]:
        pairs = [name.lower().split(" ") for name in t.texts(data, "person")]
        return [f"{one[0] if short else one}.{other}@{data[id][0][1]}" for one, other in pairs]

    return column_goal(
        scene, "E-mail",
        f"the e-mail address of the {t.header('person')} in small letters: {'the first letter of ' if short else ''}the first "
        f"name, a period, the last name, @, and the mail domain in {host.replace('$', '')}; such as "
        f'"{"a" if short else "anna"}.berg@example.com"',
        f'LOWER({begin}&"."&MID({cell},FIND(" ",{cell})+1,100)&"@"&{host})', values,
    )  # fmt: skip


@kind(4)
def to_average(scene: Scene, variant: int) -> Goal:
    """Compare with the average of the row's category."""
    t, role, category = scene.main, NUMBERS[variant % 2], CATEGORIES[variant // 2]

    def values(data: Data) -> list[Scalar]:
        groups, found = t.texts(data, category), t.numbers(data, role)
        same = [[v for g, v in zip(groups, found, strict=True) if g == group] for group in groups]
        return [value - sum(one) / len(one) for value, one in zip(found, same, strict=True)]

    return column_goal(
        scene, "Above average",
        f"{t.header(role)} minus the average {t.header(role)} of all rows with the same {t.header(category)}, the row itself "
        "included",
        f"{t.cell(role)}-AVERAGEIF({t.span(category)},{t.cell(category)},{t.span(role)})", values,
    )  # fmt: skip


@kind(4)
def occurrence(scene: Scene, variant: int) -> Goal:
    """Count or add up within the category, up to the row."""
    t, category, sums = scene.main, CATEGORIES[variant % 2], variant >= 2
    letter = t.letter(category)
    so_far = f"${letter}${t.first}:{letter}{t.first}"
    money = t.letter("money")

    def values(data: Data) -> list[Scalar]:
        groups, found = t.texts(data, category), t.numbers(data, "money")
        return [
            float(sum(v if sums else 1 for g, v in zip(groups[: index + 1], found, strict=False) if g == group))
            for index, group in enumerate(groups)
        ]

    what = f"the sum of {t.header('money')}" if sums else "the number"
    return column_goal(
        scene, "So far",
        f"{what} of the rows from the first of the table to the row itself that have the same {t.header(category)} as the row",
        f"SUMIF({so_far},{letter}{t.first},${money}${t.first}:{money}{t.first})" if sums
        else f"COUNTIF({so_far},{letter}{t.first})",
        values,
    )  # fmt: skip


@kind(4)
def change(scene: Scene, variant: int) -> Goal:
    """Compare with the row above."""
    t, role, relative = scene.main, NUMBERS[variant % 2], variant >= 2
    letter = t.letter(role)
    above = f"{letter}{t.top}"

    def values(data: Data) -> list[Scalar]:
        found = t.numbers(data, role)
        pairs = list(zip(found, found[1:], strict=False))
        if relative:
            return ["", *("" if old == 0 else (new - old) / old for old, new in pairs)]
        return ["", *(new - old for old, new in pairs)]

    scene.hot["main", role] = [*scene.hot.get(("main", role), []), 0]
    step = f'IF(ROW()={t.first},"",{t.cell(role)}-{above})'
    divided = f'IF(ROW()={t.first},"",IF({above}=0,"",({t.cell(role)}-{above})/{above}))'
    what = (
        "the change as a fraction of the row above, such as 0.1 if it grew by a tenth"
        if relative
        else "the difference to the row above"
    )
    return column_goal(
        scene, "Change",
        f"{what}, of {t.header(role)}. In the first row{', and where the row above has 0,' if relative else ''} the formula gives "
        "an empty text",
        divided if relative else step, values,
    )  # fmt: skip


@kind(3)
def key_part(scene: Scene, variant: int) -> Goal:
    """Take ids apart."""
    t, cell = scene.main, scene.main.cell("key")
    # Ids vary here, though elsewhere they do not: a formula must read them.
    at = t.index("key")
    columns = list(t.columns)
    columns[at] = columns[at]._replace(draw=lambda rng, place: scene.domain.draw("key", rng, rng.randint(1, 999)))
    t.columns = columns
    header, what, formula = (
        ("Year", "the year in the middle, as a number", f"VALUE(MID({cell},4,4))"),
        ("Number", "the last three digits, as a number", f"VALUE(RIGHT({cell},3))"),
        (
            "Short id",
            f'the id without the year, such as "{scene.domain.prefix}-017"',
            f"LEFT({cell},3)&RIGHT({cell},3)",
        ),
    )[variant]

    def value(id: str) -> Scalar:
        prefix, year, number = id.split("-")
        return (float(year), float(number), f"{prefix}-{number}")[variant]

    return column_goal(
        scene, header, f'{what}, of {t.header("key")}, whose form is "{scene.domain.prefix}-2024-017"', formula,
        lambda data: [value(id) for id in t.texts(data, "key")],
    )  # fmt: skip
