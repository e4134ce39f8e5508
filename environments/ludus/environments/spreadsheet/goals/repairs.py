"""Goals that repair the broken formulas of a report, or keep totals right when a table grows."""

from __future__ import annotations

from ludus.environments.spreadsheet.engine.addresses import letters
from ludus.environments.spreadsheet.engine.book import Book, Content, Formula, shifted
from ludus.environments.spreadsheet.engine.values import Scalar
from ludus.environments.spreadsheet.goals.goal import Cell, Goal, call, cell_facts, fill, kind, style_facts, write
from ludus.environments.spreadsheet.scenes import Column, Data, Draw, Scene, Table

_FAULTS = ("range", "reference", "absolute", "text", "column", "hidden row")


def _report(scene: Scene, variant: int) -> Table:
    """Add a table of items with three months each; totals belong below and to its right."""
    heads = (("Jan", "Feb", "Mar"), ("Apr", "May", "Jun"))[variant // len(_FAULTS) % 2]
    items = list(scene.domain.groups) + list(scene.domain.kinds)
    scene.rng.shuffle(items)
    draw = lambda rng, place: rng.randint(20, 900)  # noqa: E731
    columns = [Column("item", "Item", None), *(Column(head, head, draw) for head in heads)]
    rows: list[list[Content]] = [[item, *(scene.rng.randint(20, 900) for _ in heads)] for item in items]
    return scene.add(Table("report", "Report", 2, 1, columns, rows))


@kind(12)
def broken_report(scene: Scene, variant: int) -> Goal:
    """Repair the totals of a report."""
    t = _report(scene, variant)
    fault = _FAULTS[variant % len(_FAULTS)]
    sheet, first, last, total = scene.sheet("Report"), t.first, t.last, t.last + 1
    sheet.put(1, 1, "Quarterly report")
    for place, head in ((5, "Total"), (6, "Share")):
        sheet.put(t.top, place, head)
    sheet.put(total, 1, "Total")
    right: dict[tuple[int, int], str] = {}
    for row in range(first, total + 1):
        right[row, 5] = f"SUM(B{row}:D{row})"
        right[row, 6] = f"E{row}/$E${total}"
    for column in (2, 3, 4):
        right[total, column] = f"SUM({letters(column)}{first}:{letters(column)}{last})"
    wrong = dict(right)
    wrong.update(_broken(fault, right, first, last, total))
    for (row, column), formula in wrong.items():
        sheet.put(
            row, column, Formula(formula) if fault != "text" or formula == right[row, column] else f"'={formula}"[1:]
        )
        sheet.style(row, column, number="0.0%" if column == 6 else "General")
    cells: dict[tuple[int, int], Cell] = {place: ("Report", *place) for place in right}

    def expected(data: Data) -> dict[Cell, Scalar]:
        rows = [[float(value) for value in row[1:]] for row in data["report"]]  # type: ignore[arg-type]
        whole = sum(map(sum, rows))
        found: dict[Cell, Scalar] = {}
        for at, row in enumerate([*rows, [sum(column) for column in zip(*rows, strict=True)]]):
            found["Report", first + at, 5] = sum(row)
            found["Report", first + at, 6] = sum(row) / whole
        for at in range(3):
            found["Report", total, 2 + at] = sum(row[at] for row in rows)
        return found

    solution = [
        write("Report", f"{letters(column)}{row}", [f"={formula}"])
        for (row, column), formula in right.items()
        if wrong[row, column] != formula or fault == "text"
    ]
    if fault in ("absolute", "column"):
        solution = [fill("Report", f"{'F' if fault == 'absolute' else 'E'}{first}:{'F' if fault == 'absolute' else 'E'}{last}",
                         right[first, 6 if fault == "absolute" else 5])]  # fmt: skip
    return Goal(
        request="The sheet Report has broken formulas. Column E must give the sum of the three months of its row, column F the "
        f"share of its row's total in the grand total E{total}, and row {total} the sums of its columns (in F{total}, that is "
        f"1). Repair what is wrong, so that B{total}:D{total}, E{first}:F{total} hold formulas with right results.",
        solution=solution, expected=expected, free=style_facts(list(cells.values())),
    )  # fmt: skip


def _broken(
    fault: str, right: dict[tuple[int, int], str], first: int, last: int, total: int
) -> dict[tuple[int, int], str]:
    """Return wrong formulas by cell."""
    if fault == "range":  # rows that were added later are not in the sums
        return {(total, column): f"SUM({letters(column)}{first}:{letters(column)}{last - 1})" for column in (2, 3, 4)}
    if fault == "reference":
        return {(first + 1, 5): "SUM(#REF!)", (total, 3): "SUM(#REF!)"}
    if fault == "absolute":
        return {(first + at, 6): shifted(f"E{first}/E{total}", at, 0) for at in range(last - first + 1)}
    if fault == "text":  # only some are texts; see where this is used
        return {(total, 2): right[total, 2] + " ", (first + 2, 5): right[first + 2, 5] + " "}
    if fault == "column":
        return {(row, 5): f"SUM(B{row}:C{row})" for row in range(first, last + 1)}
    return {(total, 5): f"SUM(E{first}:E{total - 2})", (first, 5): f"B{first}+C{first}-D{first}"}


@kind(6)
def grown_table(scene: Scene, variant: int) -> Goal:
    """Insert a row into a table with totals."""
    at = scene.rng.randint(2, 5)
    name, roles = "Cost plan", (("count", "money"), ("money", "count"))[variant % 2]
    heads = [scene.domain.header(role) for role in roles]  # type: ignore[arg-type]
    items = list((scene.domain.groups, scene.domain.kinds, scene.domain.groups + scene.domain.kinds)[variant // 2])
    scene.rng.shuffle(items)
    new, *kept = items

    def draws(role: str) -> Draw:
        return lambda rng, place: scene.domain.draw(role, rng, place)  # type: ignore[arg-type]

    columns = [
        Column("item", "Item", None),
        *(Column(role, head, draws(role)) for role, head in zip(roles, heads, strict=True)),
    ]
    rows: list[list[Content]] = [[item, *(scene.domain.draw(role, scene.rng, 0) for role in roles)] for item in kept]  # type: ignore[arg-type]
    at = min(at, len(rows))
    table = Table("plan-costs", name, 1, 1, columns, rows)
    scene.draw_table(table)
    sheet, before = scene.sheet(name), len(rows) + 2
    sheet.put(before, 1, "Total")
    for column in (2, 3):
        sheet.put(before, column, Formula(f"SUM({letters(column)}2:{letters(column)}{before - 1})"))
    values: list[Content] = [new, *(scene.domain.draw(role, scene.rng, 0) for role in roles)]  # type: ignore[arg-type]
    place = at + 1  # the row of the sheet where it goes
    scene.tables[table.id] = Table("plan-costs", name, 1, 1, columns, [*rows[: at - 1], values, *rows[at - 1 :]])
    cells: list[Cell] = [(name, before + 1, 2), (name, before + 1, 3)]

    def apply(book: Book) -> None:
        found = book.sheet(name)
        assert found is not None
        book.insert(found, True, place, 1)
        for column, value in enumerate(values, 1):
            found.put(place, column, value)

    def expected(data: Data) -> dict[Cell, Scalar]:
        return {cell: float(sum(row[column] for row in data["plan-costs"])) for column, cell in enumerate(cells, 1)}  # type: ignore[misc]

    everything = [(name, row, column) for row in range(1, before + 2) for column in range(1, 4)]
    return Goal(
        request=f"On the sheet {name}, insert a row at row {place} (what is there now moves down), and write {values[0]}, {values[1]} "
        f"and {values[2]} into A{place}:C{place}. The totals, then in row {before + 1}, must be formulas that add up all rows above "
        "them, the new one included.",
        solution=[
            call("insert_rows", sheet=name, row=place, count=1), write(name, f"A{place}", values),
            write(name, f"B{before + 1}", [f"=SUM(B2:B{before})", f"=SUM(C2:C{before})"]),
        ],
        expected=expected, apply=apply, owns=cell_facts(everything) - cell_facts(cells), free=style_facts(everything),
    )  # fmt: skip
