"""The scene of a task: a workbook with tables, what may vary in them, and room for what the goals add.

The same workbook is graded with its visible data and with variations of it: other values in the columns of tables that
may vary. Goals register values that must be common in variations (`hot`), such as thresholds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ludus.environments.spreadsheet.domains import DATES, DOMAINS, MONEY, ROLES, Domain, Role
from ludus.environments.spreadsheet.engine.addresses import Area, cell_name, letters, quoted
from ludus.environments.spreadsheet.engine.book import Book, Content, Sheet
from ludus.server import Difficulty

Rows = list[list[Content]]
Data = Mapping[str, Rows]
"""The rows of all tables by the table's id."""
Draw = Callable[[random.Random, int], Content]
"""Draws a value for a row, from its place."""
Edge = Callable[[Mapping[str, Rows]], None]
"""Changes data so that a rare case occurs in it, such as a total of 0."""
EDGES: Final = 4
"""The variation in which the rare cases occur."""


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        role: its name for goals.
        header: its header.
        draw: draws other values; None if they never vary.
        format: the number format.
    """

    role: str
    header: str
    draw: Draw | None
    format: str = "General"


@dataclass
class Table:
    """A table on a sheet, whose headers are in row `top` and whose first column is `left`."""

    id: str
    sheet: str
    top: int
    left: int
    columns: Sequence[Column]
    rows: Rows

    def index(self, role: str) -> int:
        """Return the place of a column among the table's columns."""
        return next(at for at, column in enumerate(self.columns) if column.role == role)

    def header(self, role: str) -> str:
        """Return a column's header."""
        return self.columns[self.index(role)].header

    def letter(self, role: str) -> str:
        """Return a column's letter."""
        return letters(self.left + self.index(role))

    @property
    def first(self) -> int:
        """The first row with data."""
        return self.top + 1

    @property
    def last(self) -> int:
        """The last row with data."""
        return self.top + len(self.rows)

    @property
    def area(self) -> Area:
        """The whole table with its headers."""
        return Area(self.top, self.left, self.last, self.left + len(self.columns) - 1)

    def cell(self, role: str, place: int = 0) -> str:
        """Return the address of a cell with data."""
        return f"{self.letter(role)}{self.first + place}"

    def span(self, role: str) -> str:
        """Return the absolute range of a column's data, for formulas on the same sheet."""
        letter = self.letter(role)
        return f"${letter}${self.first}:${letter}${self.last}"

    def far(self, role: str) -> str:
        """Return the absolute range of a column's data, for formulas on any sheet."""
        return f"{quoted(self.sheet)}!{self.span(role)}"

    def plain(self, role: str) -> str:
        """Return the range of a column's data, as people write it."""
        return f"{self.letter(role)}{self.first}:{self.letter(role)}{self.last}"

    def values(self, data: Data, role: str) -> list[Content]:
        """Return a column of data."""
        at = self.index(role)
        return [row[at] for row in data[self.id]]

    def numbers(self, data: Data, role: str) -> list[float]:
        """Return a column of numbers."""
        return [float(value) for value in self.values(data, role) if isinstance(value, (int, float))]

    def texts(self, data: Data, role: str) -> list[str]:
        """Return a column of texts."""
        return [str(value) for value in self.values(data, role)]

    def put(self, sheet: Sheet, rows: Rows) -> None:
        """Write data into the table's cells."""
        for place, row in enumerate(rows):
            for at, value in enumerate(row):
                sheet.put(self.first + place, self.left + at, value)


@dataclass
class Scene:
    """What the goals of a task are built on.

    Attributes:
        book: the workbook at the start.
        hot: values that variations use often, by table and role.
        edges: rare cases that requests name, which one variation has.
        zeroed: columns whose total may be 0, by table and role.
        looked_up: make an input name a row of the main table, from its place.
    """

    domain: Domain
    level: Difficulty
    rng: random.Random
    book: Book = field(default_factory=Book)
    tables: dict[str, Table] = field(default_factory=dict)
    hot: dict[tuple[str, str], list[Content]] = field(default_factory=dict)
    edges: list[Edge] = field(default_factory=list)
    zeroed: list[tuple[str, str]] = field(default_factory=list)
    looked_up: list[Callable[[Mapping[str, Rows], int], None]] = field(default_factory=list)
    _columns: int = 0
    _summary: int = 0

    @property
    def main(self) -> Table:
        """The main table."""
        return self.tables["main"]

    @property
    def data(self) -> Data:
        """The visible data."""
        return {id: table.rows for id, table in self.tables.items()}

    def sheet(self, name: str) -> Sheet:
        """Return a sheet, which is added if there is none of that name."""
        found = self.book.sheet(name)
        if found is None:
            found = Sheet(name)
            self.book.sheets.append(found)
        return found

    def add(self, table: Table) -> Table:
        """Write a table into its sheet, and keep it as one whose values vary."""
        self.tables[table.id] = table
        self.draw_table(table)
        return table

    def draw_table(self, table: Table) -> None:
        """Write a table into its sheet."""
        sheet = self.sheet(table.sheet)
        for at, column in enumerate(table.columns):
            sheet.put(table.top, table.left + at, column.header)
            sheet.style(table.top, table.left + at, bold=True)
            for place in range(len(table.rows)):
                sheet.style(table.first + place, table.left + at, number=column.format)
        table.put(sheet, table.rows)

    def next_column(self) -> int:
        """Return the next free column to the right of the main table."""
        self._columns += 1
        return self.main.area.right + self._columns

    def summary_row(self, height: int) -> int:
        """Return the first of some free rows of the sheet `Summary`; one row stays free between blocks."""
        top = self._summary + 2 if self._summary else 1
        self._summary = top + height - 1
        self.sheet(SUMMARY)
        return top

    def inputs(self, id: str, sheet: str, top: int, left: int, values: Sequence[tuple[str, Draw, str]]) -> Table:
        """Add a block of labels with input values to their right, which vary; each is a label, a draw and a format.

        Its columns are `label` and `value`.
        """
        rows: Rows = [[label, draw(self.rng, place)] for place, (label, draw, _) in enumerate(values)]
        columns = (
            Column("label", "Input", None),
            Column("value", "Value", lambda rng, place: values[place][1](rng, place)),
        )
        table = self.add(Table(id, sheet, top, left, columns, rows))
        for place, (_, _, pattern) in enumerate(values):
            self.sheet(sheet).style(table.first + place, left + 1, number=pattern)
        return table

    def variation(self, which: int, seed: int) -> Data:
        """Return other data: values that are drawn again, and `hot` ones; every third has few different values."""
        rng = random.Random(f"{seed}:{which}")
        few = which % 3 == 2
        found: dict[str, Rows] = {}
        for id, table in self.tables.items():
            rows = [list(row) for row in table.rows]
            for at, column in enumerate(table.columns):
                if column.draw is not None:
                    self._vary(rows, at, column, self.hot.get((id, column.role), []), rng, few)
            found[id] = rows
        for edge in self.edges if which == EDGES else ():
            edge(found)
        return found

    def sometimes_zero(self, id: str, role: str) -> None:
        """Make all numbers of a column 0 in one variation."""
        at = self.tables[id].index(role)
        self.zeroed.append((id, role))

        def edge(data: Mapping[str, Rows]) -> None:
            for row in data[id]:
                row[at] = 0

        self.edges.append(edge)

    def sometimes(self, id: str, value: Content) -> None:
        """Make an input of a table another value in one variation."""

        def edge(data: Mapping[str, Rows]) -> None:
            data[id][0][1] = value

        self.edges.append(edge)

    def _vary(self, rows: Rows, at: int, column: Column, hot: list[Content], rng: random.Random, few: bool) -> None:
        assert column.draw is not None
        limited: list[Content] = []
        if few and column.role in ("group", "kind"):
            limited = [column.draw(rng, place) for place in range(2)]
        for place, row in enumerate(rows):
            value = column.draw(rng, place)
            if limited:
                value = rng.choice(limited)
            row[at] = rng.choice(hot) if hot and rng.random() < 0.25 else value


SUMMARY: Final = "Summary"
_SIZES: Final[Mapping[Difficulty, tuple[int, int]]] = {"easy": (10, 16), "medium": (14, 24), "hard": (20, 34)}
FORMATS: Final[Mapping[str, str]] = {"date": DATES, "money": MONEY}


def table_of(domain: Domain, id: str, sheet: str, corner: tuple[int, int], count: int, rng: random.Random) -> Table:
    """Return a table of a domain with some rows; the columns after the first are in any order."""
    order: list[Role] = [*ROLES[1:]]
    rng.shuffle(order)

    def drawing(role: Role) -> Draw | None:
        return None if role == "key" else lambda rng, place: domain.draw(role, rng, place)

    columns = [
        Column(role, domain.header(role), drawing(role), FORMATS.get(role, "General")) for role in ("key", *order)
    ]
    numbers = rng.sample(range(1, 1000), count)
    rows: Rows = [[domain.draw(_role(column), rng, number) for column in columns] for number in numbers]
    return Table(id, sheet, *corner, columns, rows)


def _role(column: Column) -> Role:
    return next(role for role in ROLES if role == column.role)


def make_scene(domain: str, level: Difficulty, seed: int) -> Scene:
    """Return a workbook with the main table of a domain; harder levels have titles and sheets to leave alone."""
    rng = random.Random(seed)
    found = DOMAINS[domain]
    scene = Scene(found, level, rng)
    offset = level != "easy" and rng.random() < 0.7
    corner = (rng.randint(3, 5), rng.randint(1, 3)) if offset else (1, 1)
    main = table_of(found, "main", found.sheet, corner, rng.randint(*_SIZES[level]), rng)
    scene.add(main)
    if offset:
        sheet = scene.sheet(found.sheet)
        sheet.put(1, corner[1], f"{found.sheet} 2025")
        sheet.style(1, corner[1], bold=True)
    if level != "easy":
        scene.draw_table(table_of(found, "old", f"{found.sheet} 2024", (1, 1), rng.randint(6, 10), rng))
    if level == "hard":
        other = DOMAINS[rng.choice([name for name in DOMAINS if name != domain])]
        scene.draw_table(table_of(other, "other", "Archive", (2, 2), rng.randint(5, 8), rng))
        scene.sheet("Archive").hidden = True
    return scene


def address(row: int, column: int) -> str:
    """Return the address of a cell."""
    return cell_name(row, column)
