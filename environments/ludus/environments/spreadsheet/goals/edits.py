"""Goals that change data: sorting, cleaning, filling, deleting and splitting a list on a sheet of its own."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import date
from typing import Any, Final

from ludus.environments.spreadsheet.domains import Role
from ludus.environments.spreadsheet.engine.addresses import letters
from ludus.environments.spreadsheet.engine.book import Book, Content, Sheet
from ludus.environments.spreadsheet.engine.values import to_date, to_serial
from ludus.environments.spreadsheet.goals.columns import CATEGORIES
from ludus.environments.spreadsheet.goals.goal import (
    Fact,
    Goal,
    call,
    cell_facts,
    kind,
    style_facts,
    write,
)
from ludus.environments.spreadsheet.scenes import Rows, Scene, Table, table_of
from ludus.protocol import Call

SORT: Final[tuple[tuple[tuple[Role, bool], ...], ...]] = (
    (("count", True), ("key", False)), (("date", False), ("key", False)), (("group", False), ("money", True), ("key", False)),
    (("kind", False), ("date", False), ("key", False)), (("person", False), ("money", False), ("key", False)),
    (("group", False), ("kind", False), ("key", False)),
)  # fmt: skip


def _list(scene: Scene, name: str, count: int | None = None) -> Table:
    """Return a new list of the domain, with its own sheet; it does not vary, and it is not written yet."""
    if scene.book.sheet(name) is not None:
        name = next(f"{name} {number}" for number in range(2, 9) if scene.book.sheet(f"{name} {number}") is None)
    rows = count or scene.rng.randint(9, 15) + (6 if scene.level == "hard" else 0)
    table = table_of(scene.domain, name, name, (1, 1), rows, scene.rng)
    table.columns = [column._replace(draw=None) for column in table.columns]
    return table


def _list_goal(scene: Scene, table: Table, wanted: Rows, request: str, solution: Sequence[Call], **more: Any) -> Goal:
    """Return the goal that a list has some rows afterwards; formats of the list's cells may move."""
    scene.draw_table(table)
    name = table.sheet
    height, width = max(len(table.rows), len(wanted)), len(table.columns)
    cells = [(name, row, column) for row in range(2, height + 2) for column in range(1, width + 1)]

    def apply(book: Book) -> None:
        sheet = book.sheet(name)
        assert sheet is not None
        for row, column in [cell[1:] for cell in cells]:
            sheet.put(row, column, None)
        table.put(sheet, wanted)

    return Goal(
        request=request, solution=list(solution), apply=more.get("apply", apply), owns=cell_facts(cells) | more.get("owns", set()),
        free=style_facts(cells) | more.get("free", set()),
    )  # fmt: skip


def _in_order(table: Table, rows: Rows, by: Sequence[tuple[str, bool]]) -> Rows:
    found = list(rows)
    for role, downward in reversed(by):
        at = table.index(role)
        found.sort(key=lambda row: _sort_key(row[at]), reverse=downward)
    return found


def _sort_key(value: Content) -> Any:
    return value.casefold() if isinstance(value, str) else value


def _direction(role: Role, down: bool) -> str:
    if role == "date":
        return "latest first" if down else "earliest first"
    if role in ("count", "money"):
        return "largest first" if down else "smallest first"
    return "Z to A" if down else "A to Z"


@kind(len(SORT))
def sort_list(scene: Scene, variant: int) -> Goal:
    """Sort a list by several columns."""
    table, by = _list(scene, "List"), SORT[variant]
    words = [f"{table.header(role)} ({_direction(role, down)})" for role, down in by]
    text = f"Sort the rows of the list on the sheet {table.sheet} by {words[0]}, " + ", ".join(
        f"then by {word}" for word in words[1:]
    )
    area = f"A2:{letters(len(table.columns))}{table.last}"
    columns = [f"{table.letter(role)} desc" if down else table.letter(role) for role, down in by]
    return _list_goal(
        scene, table, _in_order(table, table.rows, by), text + ". The headers stay in row 1, and rows stay whole.",
        [call("sort_rows", sheet=table.sheet, range=area, by=columns)],
    )  # fmt: skip


@kind(3)
def remove_duplicates(scene: Scene, variant: int) -> Goal:
    """Delete repeated rows."""
    table, rng = _list(scene, "Import"), scene.rng
    at = table.index("key")
    rows = list(table.rows)
    for row in rng.sample(rows, rng.randint(3, 5)):
        copy = list(row)
        if variant == 1:  # the id alone says what is the same
            copy[table.index("count")] = int(row[table.index("count")] or 0) + rng.randint(1, 9)  # type: ignore[arg-type]
        rows.insert(rng.randint(rows.index(row) + 1, len(rows)), copy)
    near = list(rng.choice(rows))  # almost a duplicate, which stays
    if variant != 1:
        near[table.index("count")] = int(near[table.index("count")] or 0) + 1  # type: ignore[arg-type]
        rows.append(near)
    table.rows = rows
    seen: list[Any] = []
    wanted: Rows = []
    order = rows if variant < 2 else rows[::-1]
    for row in order:
        key = row[at] if variant == 1 else row
        if key not in seen:
            seen.append(key)
            wanted.append(row)
    if variant == 2:
        wanted.reverse()
    rest = (
        "Delete each row that repeats an earlier row in all of its columns, and keep the first",
        f"Keep of all rows with the same {table.header('key')} only the first, and delete the others",
        "Where several rows are the same in all columns, keep the last of them and delete the others",
    )[variant]
    kept = set(map(id, wanted))
    gone = [index + 2 for index, row in enumerate(rows) if id(row) not in kept]
    return _list_goal(
        scene, table, wanted,
        f"{rest}, on the sheet {table.sheet}. The other rows keep their order and move up, so that none is empty in between.",
        [call("delete_rows", sheet=table.sheet, row=row, count=1) for row in reversed(gone)],
    )  # fmt: skip


def _corrected(
    scene: Scene, table: Table, role: str, wrong: Sequence[Content], request: str, changes: Callable[[Content], Content]
) -> Goal:
    """Return the goal of correcting a column that `wrong` fills at the start."""
    at = table.index(role)
    wanted = [
        [changes(wrong[index]) if column == at else value for column, value in enumerate(row)]
        for index, row in enumerate(table.rows)
    ]
    for index, row in enumerate(table.rows):
        row[at] = wrong[index]
    column = letters(at + 1)
    return _list_goal(
        scene, table, wanted, request.replace("{area}", f"{column}2:{column}{table.last}"),
        [write(table.sheet, f"{column}2", *[[row[at]] for row in wanted])],
    )  # fmt: skip


def _messy(text: str, rng: random.Random) -> str:
    case = rng.choice((str.upper, str.lower, str.title, str.swapcase))
    gap = " " * rng.choice((1, 1, 2, 3))
    return " " * rng.choice((0, 0, 1, 2)) + case(text).replace(" ", gap) + " " * rng.choice((0, 1, 2))


@kind(6)
def clean_text(scene: Scene, variant: int) -> Goal:
    """Clean spaces and capital letters."""
    table, role = _list(scene, "Contacts"), ("person", "group")[variant // 3]
    way: Callable[[str], str] = (str.title, str.upper, str.lower)[variant % 3]
    how = ("each word begins with a capital letter and goes on in small letters, such as \"Anna Berg\"",
           "all letters are capital", "all letters are small")[variant % 3]  # fmt: skip
    at = table.index(role)
    wrong = [_messy(str(row[at]), scene.rng) for row in table.rows]
    return _corrected(
        scene, table, role, wrong,
        f"On the sheet {table.sheet}, clean the column {table.header(role)} ({{area}}) in place: no spaces at the beginning or end, single "
        f"spaces between words, and {how}. Write values, not formulas.",
        lambda value: " ".join(way(str(value)).split()),
    )  # fmt: skip


@kind(4)
def text_to_number(scene: Scene, variant: int) -> Goal:
    """Turn texts into numbers."""
    table, rng = _list(scene, "Import"), scene.rng

    def spelled(value: float) -> str:
        swapped = f"{value:,.2f}".translate(str.maketrans(",.", ".,"))
        return (f"${value:,.2f}", f"{value:.2f} EUR", swapped, f"{value:.2f} ")[variant]

    amounts = [float(rng.randint(100_000, 999_999)) / 100 for _ in table.rows]
    known = {spelled(value): value for value in amounts}
    form = ("amounts such as $1,234.50", "amounts such as 1234.50 EUR",
            "amounts such as 1.234,50, with a period between thousands and a decimal comma", "amounts such as 1234.50 with a space behind them")[variant]  # fmt: skip
    return _corrected(
        scene, table, "money", [spelled(value) for value in amounts],
        f"On the sheet {table.sheet}, the column {table.header('money')} ({{area}}) holds texts: {form}. Replace each by the number itself, such as "
        "1234.5. Write values, not formulas.", lambda value: known[str(value)],
    )  # fmt: skip


_DATE_FORMS: Final = ("%m/%d/%Y", "%d.%m.%Y", "%Y%m%d")


@kind(3)
def text_to_date(scene: Scene, variant: int) -> Goal:
    """Turn texts into dates."""
    table = _list(scene, "Import")
    days = [date(2025, scene.rng.randint(1, 12), scene.rng.randint(1, 28)) for _ in table.rows]
    form = _DATE_FORMS[variant]
    known = {day.strftime(form): int(to_serial(day)) for day in days}
    example = ("03/14/2025 (month/day/year)", "14.03.2025 (day.month.year)", "20250314 (year, month, day)")[variant]
    goal = _corrected(
        scene, table, "date", [day.strftime(form) for day in days],
        f"On the sheet {table.sheet}, the column {table.header('date')} ({{area}}) holds texts such as {example}. Replace each by the date "
        "itself, which is a number with a date format. Write values, not formulas; a date that you write as 2025-03-14 becomes one.",
        lambda value: known[str(value)],
    )  # fmt: skip
    column = letters(table.index("date") + 1)
    goal.solution = [write(table.sheet, f"{column}2", *[[day.isoformat()] for day in days])]
    return goal


@kind(4)
def fill_down(scene: Scene, variant: int) -> Goal:
    """Fill gaps with the value above."""
    category, zeros = CATEGORIES[variant % 2], variant >= 2
    table = _list(scene, "Export")
    if zeros:
        role, at = "count", table.index("count")
        wrong: list[Content] = [None if scene.rng.random() < 0.4 else row[at] for row in table.rows]
        wrong[scene.rng.randrange(len(wrong))] = None
        number = scene.rng.choice((0, 1, -1)) if variant == 2 else 0
        return _corrected(
            scene, table, role, wrong,
            f"On the sheet {table.sheet}, write {number} into each empty cell of the column {table.header(role)} ({{area}}).",
            lambda value: number if value is None else value,
        )  # fmt: skip
    at = table.index(category)
    table.rows = _in_order(table, table.rows, [(category, False)])
    wrong = []
    for index, row in enumerate(table.rows):
        repeated = index > 0 and row[at] == table.rows[index - 1][at]
        wrong.append(None if repeated else row[at])
    if None not in wrong:  # every value is different: the last becomes the same as the one before
        table.rows[-1][at] = table.rows[-2][at]
        wrong[-1] = None
    filled = iter([row[at] for row in table.rows])
    return _corrected(
        scene, table, category, wrong,
        f"On the sheet {table.sheet}, the column {table.header(category)} ({{area}}) is empty where the value is the same as in the row above. "
        "Write the value into each empty cell. Write values, not formulas.", lambda value: next(filled),
    )  # fmt: skip


@kind(4)
def one_spelling(scene: Scene, variant: int) -> Goal:
    """Give each value one spelling."""
    category = CATEGORIES[variant % 2]
    table = _list(scene, "Import")
    at = table.index(category)
    items = list(dict.fromkeys(str(row[at]) for row in table.rows))
    chosen = items[: 2 if variant < 2 else 3]
    other = {item: [f"{item[:3].upper()}.", f"{item}s", f"The {item}"][: 1 + variant // 2] for item in chosen}
    wrong = [scene.rng.choice([str(row[at]), *other.get(str(row[at]), [])]) for row in table.rows]
    for item in chosen:  # each other spelling occurs
        place = next(index for index, row in enumerate(table.rows) if row[at] == item)
        wrong[place] = other[item][0]
    back = {spelling: item for item, spellings in other.items() for spelling in spellings}
    rules = "; ".join(f'"{spelling}" becomes "{item}"' for spelling, item in back.items())
    return _corrected(
        scene, table, category, wrong,
        f"On the sheet {table.sheet}, replace spellings in the column {table.header(category)} ({{area}}): {rules}. Other values stay. Write values, "
        "not formulas.", lambda value: back.get(str(value), value),
    )  # fmt: skip


def _condition(variant: int, value: Any) -> tuple[str, Callable[[Any], bool]]:
    return (
        (f"is {value}", lambda v: v == value), (f"is {value}", lambda v: v == value),
        (f"is less than {value} or equal to it", lambda v: v <= value), (f"is {value} or more", lambda v: v >= value),
        (f"is before {_iso(value)} or that day", lambda v: v <= value), (f"is not {value}", lambda v: v != value),
    )[variant]  # fmt: skip


@kind(6)
def delete_matching(scene: Scene, variant: int) -> Goal:
    """Delete the rows that meet a condition."""
    role = ("group", "kind", "count", "money", "date", "group")[variant]
    while True:
        table = _list(scene, "List")
        at = table.index(role)
        what, test = _condition(variant, scene.rng.choice(table.rows)[at])
        gone = [index + 2 for index, row in enumerate(table.rows) if test(row[at])]
        if 0 < len(gone) < len(table.rows):
            break
    wanted = [row for row in table.rows if not test(row[at])]
    return _list_goal(
        scene, table, wanted,
        f"On the sheet {table.sheet}, delete all rows whose {table.header(role)} {what}. The other rows keep their order and move up, so that none is "
        "empty in between.", [call("delete_rows", sheet=table.sheet, row=row, count=1) for row in reversed(gone)],
    )  # fmt: skip


def _iso(value: Content) -> str:
    return to_date(float(value)).isoformat() if isinstance(value, int) and value > 20_000 else str(value)


@kind(4)
def split_off(scene: Scene, variant: int) -> Goal:
    """Copy rows of a category to a new sheet."""
    table, category, moves = _list(scene, "List"), CATEGORIES[variant % 2], variant >= 2
    at = table.index(category)
    item = str(scene.rng.choice(table.rows)[at])
    chosen = [row for row in table.rows if row[at] == item]
    kept = [row for row in table.rows if row[at] != item] if moves else table.rows
    sheet = f"{item} only"
    header = [column.header for column in table.columns]
    width = len(header)
    cells = [(sheet, row, column) for row in range(1, len(chosen) + 2) for column in range(1, width + 1)]
    formats = [(index, column.format) for index, column in enumerate(table.columns, 1) if column.format != "General"]

    def apply(book: Book) -> None:
        old = book.sheet(table.sheet)
        assert old is not None
        for row in range(2, table.last + 1):
            for column in range(1, width + 1):
                old.put(row, column, None)
        table.put(old, kept)
        new = Sheet(sheet)
        book.sheets.append(new)
        for column, text in enumerate(header, 1):
            new.put(1, column, text)
        for index, line in enumerate(chosen, 2):
            for column, content in enumerate(line, 1):
                new.put(index, column, content)

    places = [index for index, row in enumerate(table.rows) if row[at] == item]
    solution = [call("add_sheet", name=sheet), write(sheet, "A1", header, *[[*row] for row in chosen])]
    solution += [
        call(
            "format_cells",
            sheet=sheet,
            range=f"{letters(column)}2:{letters(column)}{len(chosen) + 1}",
            number_format=pattern,
        )
        for column, pattern in formats
    ]
    if moves:
        solution += [call("delete_rows", sheet=table.sheet, row=place + 2, count=1) for place in reversed(places)]
    owns: set[Fact] = {("sheet", sheet), *cell_facts(cells)}
    verb = "Move" if moves else "Copy"
    rest = (
        f" and delete them from {table.sheet}, where the other rows move up"
        if moves
        else f" and leave {table.sheet} as it is"
    )
    return _list_goal(
        scene, table, kept,
        f'{verb} all rows of the sheet {table.sheet} whose {table.header(category)} is {item} to a new sheet with the name "{sheet}", which comes last: '
        f"the headers in row 1 from A1 on, the rows below in their order,{rest}.",
        solution, apply=apply, owns=owns, free=style_facts(cells),
    )  # fmt: skip


@kind(4)
def stack_sheets(scene: Scene, variant: int) -> Goal:
    """Append the rows of one list to another, whose columns are in another order."""
    table, rng = _list(scene, "All"), scene.rng
    count = rng.randint(3, 5) + variant
    numbers = rng.sample(range(1, 999), count)
    shuffled = list(table.columns)
    rng.shuffle(shuffled)
    names = ("Week 2", "New", "Branch", "Late")
    other = Table("new", names[variant], 1, 1, shuffled, [])
    roles: list[Role] = [column.role for column in shuffled]  # type: ignore[misc]
    other.rows = [[scene.domain.draw(role, rng, number) for role in roles] for number in numbers]
    scene.draw_table(other)
    place = {column.role: index for index, column in enumerate(shuffled)}
    added = [[row[place[column.role]] for column in table.columns] for row in other.rows]
    end = letters(len(table.columns))
    solution = [write(table.sheet, f"A{table.last + 1}", *added)]
    for index, column in enumerate(table.columns, 1):
        if column.format != "General":
            area = f"{letters(index)}{table.last + 1}:{letters(index)}{table.last + count}"
            solution.append(call("format_cells", sheet=table.sheet, range=area, number_format=column.format))
    return _list_goal(
        scene, table, [*table.rows, *added],
        f"Append the rows of the sheet {names[variant]} to the list on the sheet {table.sheet}, in their order, in rows {table.last + 1} to "
        f"{table.last + count} (columns A to {end}). Its columns are in another order: put each value below the same header. Leave the sheet "
        f"{names[variant]} as it is. Write values, not formulas.", solution,
    )  # fmt: skip
