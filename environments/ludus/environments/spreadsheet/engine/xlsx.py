"""Workbooks as .xlsx files, through openpyxl. LibreOffice and Excel open them.

Reading takes files of this module only: they are bounded, have no macros and no references to other files.
"""

from __future__ import annotations

import io
from typing import Any, Final

from openpyxl import Workbook, load_workbook  # type: ignore[import-untyped, unused-ignore]
from openpyxl.chart import BarChart, LineChart, PieChart  # type: ignore[import-untyped, unused-ignore]
from openpyxl.chart.reference import Reference as ChartReference  # type: ignore[import-untyped, unused-ignore]
from openpyxl.formatting.rule import CellIsRule  # type: ignore[import-untyped, unused-ignore]
from openpyxl.styles import Font, PatternFill  # type: ignore[import-untyped, unused-ignore]
from openpyxl.workbook.defined_name import DefinedName  # type: ignore[import-untyped, unused-ignore]
from openpyxl.worksheet.datavalidation import DataValidation  # type: ignore[import-untyped, unused-ignore]

from ludus.environments.spreadsheet.engine.addresses import Area, Corner, Reference, cell_name, parse_reference, quoted
from ludus.environments.spreadsheet.engine.book import Book, Chart, Content, Formula, Highlight, Sheet, Validation
from ludus.environments.spreadsheet.engine.syntax import tokens_of
from ludus.environments.spreadsheet.engine.values import number_text, to_serial

_NEWER: Final = frozenset(
    (
        "CONCAT",
        "DAYS",
        "IFNA",
        "IFS",
        "ISOWEEKNUM",
        "MAXIFS",
        "MINIFS",
        "RANK.EQ",
        "SWITCH",
        "TEXTJOIN",
        "XLOOKUP",
        "XOR",
    )
)
"""Functions that files name with a prefix, because they came after the format."""
_PREFIX: Final = "_xlfn."
_OPERATORS: Final = {
    ">": "greaterThan", ">=": "greaterThanOrEqual", "<": "lessThan", "<=": "lessThanOrEqual", "=": "equal",
    "<>": "notEqual",
}  # fmt: skip
_CHARTS: Final = {"bar": BarChart, "line": LineChart, "pie": PieChart}


def to_xlsx(book: Book) -> bytes:
    """Return a workbook as a file."""
    file: Any = Workbook()
    file.remove(file.active)
    for sheet in book.sheets:
        _write_sheet(file.create_sheet(sheet.name), sheet)
    for sheet in book.sheets:
        for chart in sheet.charts:
            _write_chart(file, file[sheet.name], chart)
    for name, reference in book.names.items():
        file.defined_names[name] = DefinedName(name, attr_text=str(_changed(reference, True)))
    target = io.BytesIO()
    file.save(target)
    return target.getvalue()


def _changed(reference: Reference, absolute: bool) -> Reference:
    """Return a reference with `$` in front of its rows and columns, or without."""

    def changed(corner: Corner) -> Corner:
        return corner._replace(
            absolute_row=absolute and corner.row is not None, absolute_column=absolute and corner.column is not None
        )

    return reference._replace(first=changed(reference.first), last=reference.last and changed(reference.last))


def _write_sheet(file: Any, sheet: Sheet) -> None:
    for (row, column), content in sheet.contents.items():
        cell = file.cell(row, column)
        if isinstance(content, Formula):
            cell.value = f"={_with_prefixes(content.text)}"
        elif isinstance(content, str):
            cell.value, cell.data_type = content, "s"
        else:
            cell.value = content
    for (row, column), style in sheet.styles.items():
        cell = file.cell(row, column)
        cell.number_format = style.number
        if style.bold:
            cell.font = Font(bold=True)
        if style.fill:
            cell.fill = PatternFill("solid", fgColor=f"FF{style.fill}")
    for rule in sheet.validations:
        file.add_data_validation(_validation(rule))
    for highlight in sheet.highlights:
        fill = PatternFill("solid", bgColor=f"FF{highlight.fill}", fgColor=f"FF{highlight.fill}")
        value = highlight.value
        formula = number_text(float(value)) if not isinstance(value, str) else '"' + value.replace('"', '""') + '"'
        rule = CellIsRule(operator=_OPERATORS[highlight.operator], formula=[formula], fill=fill)
        file.conditional_formatting.add(str(highlight.area), rule)
    if sheet.frozen is not None:
        file.freeze_panes = cell_name(*sheet.frozen)
    if sheet.hidden:
        file.sheet_state = "hidden"


def _with_prefixes(formula: str) -> str:
    parts = []
    for token in tokens_of(formula):
        name = token.text.rstrip("( ").upper()
        known = token.kind == "function"
        parts.append(f"{_PREFIX if name in _NEWER else ''}{name}(" if known else token.text)
    return "".join(parts)


def _without_prefixes(formula: str) -> str:
    return "".join(
        token.text.removeprefix(_PREFIX) if token.kind == "function" else token.text for token in tokens_of(formula)
    )


def _validation(rule: Validation) -> Any:
    if rule.kind == "list":
        made = DataValidation(
            type="list", formula1='"' + ",".join(rule.items).replace('"', '""') + '"', allow_blank=True
        )
    else:
        ends = [None if end is None else number_text(end) for end in (rule.low, rule.high)]
        if None not in ends:
            made = DataValidation(
                type=rule.kind, operator="between", formula1=ends[0], formula2=ends[1], allow_blank=True
            )
        else:
            way = "lessThanOrEqual" if ends[0] is None else "greaterThanOrEqual"
            made = DataValidation(type=rule.kind, operator=way, formula1=ends[0] or ends[1], allow_blank=True)
    made.add(str(rule.area))
    return made


def _write_chart(file: Any, home: Any, chart: Chart) -> None:
    made = _CHARTS[chart.kind]()
    made.title = chart.title
    made.add_data(_chart_reference(file, home, chart.values), titles_from_data=False)
    if chart.labels:
        made.set_categories(_chart_reference(file, home, chart.labels))
    home.add_chart(made, cell_name(*chart.anchor))


def _chart_reference(file: Any, home: Any, text: str) -> Any:
    reference = parse_reference(text)
    if reference is None:
        return ChartReference(home, 1, 1)
    area = reference.area
    sheet = file[reference.sheet] if reference.sheet else home
    return ChartReference(sheet, area.left, area.top, area.right, area.bottom)


def from_xlsx(data: bytes) -> Book:
    """Return the workbook of a file that `to_xlsx` wrote."""
    file = load_workbook(io.BytesIO(data))
    sheets = [_read_sheet(worksheet) for worksheet in file.worksheets]
    names = {}
    for name, defined in file.defined_names.items():
        reference = parse_reference(defined.attr_text)
        if reference is not None:
            names[name] = _changed(reference, False)
    return Book(sheets, names)


def _read_sheet(file: Any) -> Sheet:
    sheet = Sheet(file.title, hidden=file.sheet_state != "visible")
    for (row, column), cell in file._cells.items():  # `iter_rows` would make all cells in between
        sheet.put(row, column, _content(cell))
        if cell.has_style:
            fill = str(cell.fill.fgColor.rgb)[-6:] if cell.fill.fill_type == "solid" else ""
            sheet.style(row, column, number=cell.number_format, bold=bool(cell.font.bold), fill=fill)
    for rule in file.data_validations.dataValidation:
        sheet.validations += [_read_validation(rule, str(area)) for area in rule.sqref.ranges]
    signs = {name: sign for sign, name in _OPERATORS.items()}
    for place in file.conditional_formatting:
        for rule in place.rules:
            value = rule.formula[0]
            plain: float | str = value[1:-1].replace('""', '"') if value.startswith('"') else float(value)
            fill = str(rule.dxf.fill.bgColor.rgb)[-6:]
            sheet.highlights += [
                Highlight(_area(str(area)), signs[rule.operator], plain, fill) for area in place.sqref.ranges
            ]
    sheet.charts = [_read_chart(chart) for chart in file._charts]
    if file.freeze_panes:
        area = _area(file.freeze_panes)
        sheet.frozen = (area.top, area.left)
    return sheet


def _content(cell: Any) -> Content:
    value = cell.value
    if cell.data_type == "f":
        return Formula(_without_prefixes(str(value)[1:]))
    if cell.data_type == "d":
        return int(to_serial(value.date()))
    if isinstance(value, (bool, int, float, str)) or value is None:
        return value
    raise ValueError(f"{cell.coordinate} holds a {type(value).__name__}")


def _area(text: str) -> Area:
    reference = parse_reference(text)
    if reference is None:
        raise ValueError(f"there are no cells {text!r}")
    return reference.area


def _read_validation(rule: Any, area: str) -> Validation:
    if rule.type == "list":
        items = str(rule.formula1)[1:-1].replace('""', '"').split(",")
        return Validation(_area(area), "list", tuple(items))
    first = float(rule.formula1)
    second = float(rule.formula2) if rule.formula2 else None
    if rule.operator == "between":
        return Validation(_area(area), rule.type, low=first, high=second)
    if rule.operator == "lessThanOrEqual":
        return Validation(_area(area), rule.type, high=first)
    return Validation(_area(area), rule.type, low=first)


def _read_chart(chart: Any) -> Chart:
    kind = {BarChart: "bar", LineChart: "line", PieChart: "pie"}[type(chart)]
    [series] = chart.series
    title = "".join(run.t for paragraph in chart.title.tx.rich.p for run in paragraph.r or [])
    labels = series.cat.numRef.f if series.cat and series.cat.numRef else ""
    place = chart.anchor._from
    return Chart(kind, title, _plain(series.val.numRef.f), _plain(labels), (place.row + 1, place.col + 1))  # type: ignore[arg-type]


def _plain(text: str) -> str:
    """Return a reference without `$`."""
    reference = parse_reference(text)
    return plain_reference(reference) if reference else ""


def plain_reference(reference: Reference) -> str:
    """Return a reference to cells of a sheet without `$`, such as `Sales!B2:B9`."""
    return f"{quoted(reference.sheet)}!{reference.area}" if reference.sheet else str(reference.area)
