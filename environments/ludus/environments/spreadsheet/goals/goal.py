"""What a goal is: a request, what must hold afterwards, and calls that reach it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ludus.environments.spreadsheet.engine.book import Book, Content, Formula, Sheet
from ludus.environments.spreadsheet.engine.values import Scalar
from ludus.environments.spreadsheet.scenes import Data, Scene
from ludus.protocol import Call

Cell = tuple[str, int, int]
"""A cell: the name of its sheet, its row and its column."""
Fact = tuple[Hashable, ...]
"""Something about a workbook that has a value, such as `("cell", "Orders", 1, 1)`."""


@dataclass
class Goal:
    """One thing to do.

    Attributes:
        request: what the agent is asked for.
        solution: calls that do it.
        expected: computes what the formulas of cells must give, from any data of the tables; None if none are asked.
        apply: makes in a copy of the workbook all that does not depend on formulas, such as labels and formats.
        owns: the facts that `apply` makes; they must be as it makes them.
        free: facts that may be anything.
    """

    request: str
    solution: list[Call]
    expected: Callable[[Data], Mapping[Cell, Scalar]] | None = None
    apply: Callable[[Book], None] = lambda book: None
    owns: set[Fact] = field(default_factory=set)
    free: set[Fact] = field(default_factory=set)


class Kind(NamedTuple):
    """A kind of goals.

    Attributes:
        make: adds a goal of a variant to a scene.
        variants: how many there are.
        general: whether it is about the same in every domain.
    """

    name: str
    make: Callable[[Scene, int], Goal]
    variants: int
    general: bool = False


KINDS: dict[str, Kind] = {}
"""The kinds by name; the other modules of this package fill it."""


def kind(
    variants: int, general: bool = False
) -> Callable[[Callable[[Scene, int], Goal]], Callable[[Scene, int], Goal]]:
    """Register a kind of goals under the name of its function."""

    def register(make: Callable[[Scene, int], Goal]) -> Callable[[Scene, int], Goal]:
        KINDS[make.__name__] = Kind(make.__name__, make, variants, general)
        return make

    return register


def facts_of(book: Book) -> dict[Fact, Any]:
    """Return all facts of a workbook with their values; what is not there is no fact."""
    found: dict[Fact, Any] = {
        ("name", name.casefold()): (str(reference.sheet).casefold(), reference.area)
        for name, reference in book.names.items()
    }
    for sheet in book.sheets:
        found["sheet", sheet.name] = True
        found |= _sheet_facts(sheet)
    return found


def _sheet_facts(sheet: Sheet) -> dict[Fact, Any]:
    name = sheet.name
    found: dict[Fact, Any] = {("cell", name, *cell): _plain(content) for cell, content in sheet.contents.items()}
    found |= {("style", name, *cell): style for cell, style in sheet.styles.items()}
    if sheet.frozen is not None:
        found["frozen", name] = sheet.frozen
    if sheet.hidden:
        found["hidden", name] = True
    for rule in sheet.validations:
        for cell in rule.area.cells():
            found["validation", name, *cell] = rule[1:]
    for highlight in sheet.highlights:
        for cell in highlight.area.cells():
            found["highlight", name, *cell, highlight.operator, highlight.value, highlight.fill] = True
    for chart in sheet.charts:
        key = (
            "chart",
            name,
            chart.kind,
            chart.title.strip().casefold(),
            _reference(chart.values),
            _reference(chart.labels),
        )
        found[key] = found.get(key, 0) + 1
    return found


def _reference(text: str) -> str:
    return text.replace("$", "").replace("'", "").casefold()


def _plain(content: Content) -> Any:
    if isinstance(content, Formula):
        return ("formula", "".join(content.text.split()).upper())
    if isinstance(content, bool) or content is None or isinstance(content, str):
        return content
    return round(float(content), 9)


def cell_facts(cells: Sequence[Cell]) -> set[Fact]:
    """Return the facts about the contents of cells."""
    return {("cell", *cell) for cell in cells}


def style_facts(cells: Sequence[Cell]) -> set[Fact]:
    """Return the facts about the formats of cells."""
    return {("style", *cell) for cell in cells}


def call(tool: str, /, **arguments: Any) -> Call:
    """Return a call of a tool."""
    return Call(tool, arguments)


def write(sheet: str, start: str, *rows: Sequence[Any]) -> Call:
    """Return a call that writes rows of values."""
    return call("write_cells", sheet=sheet, start=start, rows=[list(row) for row in rows])


def fill(sheet: str, area: str, formula: str) -> Call:
    """Return a call that fills a range with a formula."""
    return call("fill_formula", sheet=sheet, range=area, formula=f"={formula}")
