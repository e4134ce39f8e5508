"""Goals about formats and other features of the main table: validations, names, highlights, charts, sheets."""

from __future__ import annotations

from datetime import date
from typing import Any, Final

from ludus.environments.spreadsheet.engine.addresses import Area, letters, parse_reference
from ludus.environments.spreadsheet.engine.book import Book, Chart, Highlight, Sheet, Validation
from ludus.environments.spreadsheet.engine.values import to_serial
from ludus.environments.spreadsheet.goals.columns import CATEGORIES, NUMBERS, _threshold, plain
from ludus.environments.spreadsheet.goals.goal import Goal, call, cell_facts, facts_of, kind, style_facts
from ludus.environments.spreadsheet.scenes import SUMMARY, Scene, Table

COLORS: Final = (("yellow", "FFFF00"), ("light green", "C6EFCE"), ("light red", "FFC7CE"), ("light blue", "DDEBF7"))


def _main(book: Book, scene: Scene) -> Sheet:
    found = book.sheet(scene.main.sheet)
    assert found is not None
    return found


def _column_area(t: Table, role: str) -> Area:
    column = t.left + t.index(role)
    return Area(t.first, column, t.last, column)


def _cells(t: Table, role: str) -> list[tuple[str, int, int]]:
    return [(t.sheet, *cell) for cell in _column_area(t, role).cells()]


_FORMATS: Final = (
    ("money", "$#,##0.00", "in dollars with two decimals and a comma between thousands"),
    ("money", "#,##0", "without decimals and with a comma between thousands"),
    ("count", "0.00", "with two decimals"), ("date", "dd/mm/yyyy", "as day/month/year with two, two and four digits"),
    ("date", "mmm d, yyyy", "such as Mar 5, 2025"), ("count", "000", "with leading zeros to three digits"),
)  # fmt: skip


@kind(len(_FORMATS))
def number_format(scene: Scene, variant: int) -> Goal:
    """Set a number format."""
    t = scene.main
    role, pattern, words = _FORMATS[variant]
    cells = _cells(t, role)

    def apply(book: Book) -> None:
        for _, row, column in cells:
            _main(book, scene).style(row, column, number=pattern)

    return Goal(
        request=f"On the sheet {t.sheet}, show the column {t.header(role)} ({t.plain(role)}) {words}: give its cells the number format "
        f"{pattern}. Do not change the values.",
        solution=[call("format_cells", sheet=t.sheet, range=t.plain(role), number_format=pattern)],
        apply=apply, owns=style_facts(cells),
    )  # fmt: skip


@kind(4)
def header_style(scene: Scene, variant: int) -> Goal:
    """Color the headers and freeze them."""
    t, (name, color) = scene.main, COLORS[variant]
    area = Area(t.top, t.left, t.top, t.area.right)
    cells = [(t.sheet, *cell) for cell in area.cells()]
    corner = (t.first, t.left + 1) if variant % 2 else (t.first, 1)
    where = f"{letters(corner[1])}{corner[0]}"

    def apply(book: Book) -> None:
        sheet = _main(book, scene)
        for _, row, column in cells:
            sheet.style(row, column, fill=color, bold=True)
        sheet.frozen = corner

    what = f"the rows above row {t.first}" + (
        f" and the columns left of column {letters(corner[1])}" if variant % 2 else ""
    )
    return Goal(
        request=f"On the sheet {t.sheet}, give the headers in {area} a {name} fill ({color}) and keep them bold, and freeze {what} "
        f"(freeze at {where}).",
        solution=[
            call("format_cells", sheet=t.sheet, range=str(area), fill=color, bold="yes"),
            call("freeze_panes", sheet=t.sheet, cell=where),
        ],
        apply=apply, owns=style_facts(cells) | {("frozen", t.sheet)},
    )  # fmt: skip


@kind(5)
def validation(scene: Scene, variant: int) -> Goal:
    """Restrict what may be typed."""
    t = scene.main
    role = ("group", "kind", "count", "money", "date")[variant]
    area = _column_area(t, role)
    arguments: dict[str, Any]
    if variant < 2:
        items = scene.domain.groups if role == "group" else scene.domain.kinds
        rule = Validation(area, "list", tuple(items))
        words, arguments = (
            f"only one of these from a list, in this order: {', '.join(items)}",
            {"kind": "list", "items": ", ".join(items)},
        )
    elif variant == 4:
        rule = Validation(area, "date", (), to_serial(date(2025, 1, 1)), to_serial(date(2025, 12, 31)))
        words, arguments = (
            "only dates from 2025-01-01 to 2025-12-31",
            {"kind": "date", "low": "2025-01-01", "high": "2025-12-31"},
        )
    else:
        high = float(scene.rng.randint(3, 30) * 100)
        whole = "whole" if variant == 2 else "decimal"
        rule = Validation(area, whole, (), 0.0, high)  # type: ignore[arg-type]
        kind_of = "whole numbers" if variant == 2 else "numbers (also with decimals)"
        words, arguments = f"only {kind_of} from 0 to {plain(high)}", {"kind": whole, "low": "0", "high": plain(high)}

    def apply(book: Book) -> None:
        _main(book, scene).validations.append(rule)

    return Goal(
        request=f"On the sheet {t.sheet}, add a data validation to {t.plain(role)} ({t.header(role)}) that allows {words}.",
        solution=[call("set_validation", sheet=t.sheet, range=t.plain(role), **arguments)],
        apply=apply, owns={("validation", t.sheet, *cell) for cell in area.cells()},
    )  # fmt: skip


@kind(4)
def defined_name(scene: Scene, variant: int) -> Goal:
    """Name a range, and use it in a formula."""
    t, role = scene.main, NUMBERS[variant % 2]
    uses = variant >= 2
    name = f"All{t.header(role).replace(' ', '')}"
    reference = parse_reference(f"'{t.sheet}'!{t.plain(role)}")
    assert reference is not None
    top = scene.summary_row(2)
    summary = scene.sheet(SUMMARY)
    summary.put(top, 1, "Check")
    summary.put(top + 1, 1, f"Sum of {t.header(role)}")
    cell = (SUMMARY, top + 1, 2)

    def apply(book: Book) -> None:
        book.names[name] = reference

    solution = [call("define_name", name=name, sheet=t.sheet, range=t.plain(role))]
    more = ""
    if uses:
        solution.append(call("write_cells", sheet=SUMMARY, start=f"B{top + 1}", rows=[[f"=SUM({name})"]]))
        more = f" Then write a formula into B{top + 1} on the sheet {SUMMARY} that gives the sum of that range."
    return Goal(
        request=f"Define the name {name} for the range {t.plain(role)} on the sheet {t.sheet}.{more}",
        solution=solution, apply=apply, owns={("name", name.casefold())}, free=style_facts([cell]) if uses else set(),
        expected=(lambda data: {cell: sum(t.numbers(data, role))}) if uses else None,
    )  # fmt: skip


@kind(8)
def highlight(scene: Scene, variant: int) -> Goal:
    """Color cells by a condition."""
    t, (name, color) = scene.main, COLORS[variant % 4]
    if variant < 4:
        role = NUMBERS[variant % 2]
        sign, words = ((">=", "is at least"), ("<", "is less than"))[variant // 2]
        value: float | str = _threshold(scene, role)
        shown = plain(float(value))
    else:
        role, sign, words = CATEGORIES[variant % 2], ("=", "<>")[variant // 2 % 2], ("is", "is not")[variant // 2 % 2]
        value = scene.rng.choice(t.texts(scene.data, role))
        shown = value
    rule = Highlight(_column_area(t, role), sign, value, color)

    def apply(book: Book) -> None:
        _main(book, scene).highlights.append(rule)

    target = Book([Sheet(t.sheet, highlights=[rule])])
    return Goal(
        request=f"On the sheet {t.sheet}, add a conditional format to {t.plain(role)} ({t.header(role)}): a {name} fill ({color}) where the "
        f"cell {words} {shown}.",
        solution=[
            call("add_conditional_format", sheet=t.sheet, range=t.plain(role), operator=sign, value=shown, fill=color)
        ],
        apply=apply, owns={fact for fact in facts_of(target) if fact[0] == "highlight"},
    )  # fmt: skip


@kind(6)
def chart(scene: Scene, variant: int) -> Goal:
    """Draw a chart of a small table."""
    type_of, category = ("bar", "line", "pie")[variant % 3], CATEGORIES[variant // 3]
    items = scene.domain.groups if category == "group" else scene.domain.kinds
    sheet, top = scene.sheet("Figures"), 3
    head = scene.domain.header("group" if category == "group" else "kind")
    sheet.put(1, 2, "Figures of the year")
    for column, text in ((2, head), (3, "Plan"), (4, "Result")):
        sheet.put(top, column, text)
    for index, item in enumerate(items, top + 1):
        sheet.put(index, 2, item)
        sheet.put(index, 3, scene.rng.randint(10, 99) * 10)
        sheet.put(index, 4, scene.rng.randint(10, 99) * 10)
    last = top + len(items)
    title = f"Result by {head.lower()}"
    made: Chart = Chart(type_of, title, f"Figures!D{top + 1}:D{last}", f"Figures!B{top + 1}:B{last}", (2, 6))  # type: ignore[arg-type]

    def apply(book: Book) -> None:
        found = book.sheet("Figures")
        assert found is not None
        found.charts.append(made)

    target = Book([Sheet("Figures", charts=[made])])
    return Goal(
        request=f'On the sheet Figures, add a {type_of} chart with the title "{title}". Its values are those of the column Result '
        f"(D{top + 1}:D{last}), and its labels those of {head} (B{top + 1}:B{last}).",
        solution=[
            call(
                "add_chart", sheet="Figures", cell="F2", kind=type_of, title=title, values=f"D{top + 1}:D{last}",
                labels=f"B{top + 1}:B{last}",
            )
        ],
        apply=apply, owns={fact for fact in facts_of(target) if fact[0] == "chart"},
    )  # fmt: skip


@kind(4)
def sheet_work(scene: Scene, variant: int) -> Goal:
    """Rename a sheet on which others depend, or delete one."""
    names = ("Draft", "Tmp", "Sheet7", "Copy of plan")
    old, new = names[variant], f"{scene.domain.things.capitalize()} plan"
    deletes = variant == 1
    sheet = scene.sheet(old)
    sheet.put(1, 1, "Target")
    sheet.put(1, 2, scene.rng.randint(100, 999))

    def apply(book: Book) -> None:
        found = book.sheet(old)
        assert found is not None
        if deletes:
            book.drop(found)
        else:
            book.rename(found, new)

    owned = {("sheet", old), ("sheet", new), *cell_facts([(one, 1, column) for one in (old, new) for column in (1, 2)])}
    if deletes:
        return Goal(
            request=f"Delete the sheet {old}.", solution=[call("delete_sheet", sheet=old)], apply=apply, owns=owned
        )
    return Goal(
        request=f'Rename the sheet "{old}" to "{new}".', solution=[call("rename_sheet", sheet=old, name=new)],
        apply=apply, owns=owned,
    )  # fmt: skip
