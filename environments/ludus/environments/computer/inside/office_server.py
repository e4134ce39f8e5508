"""The office tools as an MCP server inside a sandbox: LibreOffice without a window, driven through UNO.

Documents stay open between calls. Macros never run, and links to other files are not updated. An action that takes too
long ends LibreOffice, which starts again at the next call, with the documents as they were saved.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from ludus.environments.computer.inside.stdio_mcp import Refused, ServedTool, serve

_SECONDS: Final = 25.0
_START_SECONDS: Final = 40.0
_PAUSE_SECONDS: Final = 0.05
_START_AGAIN: Final = 81
"""The exit code with which LibreOffice asks to be started again, after it has made its profile."""
_CELLS: Final = 5_000
_TEXT_CHARS: Final = 20_000
_PARAGRAPH_CHARS: Final = 2_000
_PARAGRAPHS: Final = 2_000
_OPEN: Final = 8
_FILTERS: Final = {
    ".ods": "calc8", ".xlsx": "Calc MS Excel 2007 XML", ".odt": "writer8", ".docx": "MS Word 2007 XML",
}  # fmt: skip
_SPREADSHEETS: Final = (".ods", ".xlsx")
_EXPORTS: Final = {
    ("spreadsheet", "pdf"): "calc_pdf_Export", ("document", "pdf"): "writer_pdf_Export",
    ("spreadsheet", "csv"): "Text - txt - csv (StarCalc)", ("document", "txt"): "Text (encoded)",
}  # fmt: skip
_SETTINGS: Final = """<?xml version="1.0" encoding="UTF-8"?>
<oor:items xmlns:oor="http://openoffice.org/2001/registry" xmlns:xs="http://www.w3.org/2001/XMLSchema">
<item oor:path="/org.openoffice.Office.Common/Security/Scripting"><prop oor:name="DisableMacrosExecution" oor:op="fuse">
<value>true</value></prop></item>
<item oor:path="/org.openoffice.Office.Common/Security/Scripting"><prop oor:name="MacroSecurityLevel" oor:op="fuse">
<value>3</value></prop></item>
<item oor:path="/org.openoffice.Office.Common/Security/Scripting"><prop oor:name="BlockUntrustedRefererLinks"
oor:op="fuse"><value>true</value></prop></item>
<item oor:path="/org.openoffice.Office.Calc/Content/Update"><prop oor:name="Link" oor:op="fuse"><value>1</value></prop>
</item>
<item oor:path="/org.openoffice.Office.Writer/Content/Update"><prop oor:name="Link" oor:op="fuse"><value>2</value></prop>
</item>
</oor:items>
"""
"""No macros, no links to other files; the values are LibreOffice's own."""


class Office:
    """LibreOffice and the open documents; the methods are the tools."""

    def __init__(self, program: str, folder: Path) -> None:
        self._program = program
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._desktop: Any = None
        self._open: dict[str, Any] = {}
        self._linked: dict[str, int] = {}
        """How many links to other files the documents had when they were opened."""
        folder.mkdir(parents=True, exist_ok=True)

    # ── the process ────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Start LibreOffice and connect to it."""
        import uno

        profile = Path(os.environ.get("TMPDIR", "/tmp")) / "office-profile"
        shutil.rmtree(profile, ignore_errors=True)
        (profile / "user").mkdir(parents=True)
        (profile / "user" / "registrymodifications.xcu").write_text(_SETTINGS, encoding="utf-8")
        pipe = f"office{os.getpid()}"
        self._open = {}
        command = [self._program, "--headless", "--invisible", "--norestore", "--nologo", "--nodefault", "--nolockcheck",
                   f"-env:UserInstallation=file://{profile}", f"--accept=pipe,name={pipe};urp;"]  # fmt: skip
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2)
        context = uno.getComponentContext()
        resolver = context.ServiceManager.createInstanceWithContext("com.sun.star.bridge.UnoUrlResolver", context)
        until = time.monotonic() + _START_SECONDS
        while True:
            try:
                remote = resolver.resolve(f"uno:pipe,name={pipe};urp;StarOffice.ComponentContext")
                break
            except Exception:
                if self._process.poll() == _START_AGAIN:
                    self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2)
                elif self._process.poll() is not None or time.monotonic() > until:
                    self.stop()
                    raise Refused("LibreOffice does not start") from None
                time.sleep(_PAUSE_SECONDS)
        self._desktop = remote.ServiceManager.createInstanceWithContext("com.sun.star.frame.Desktop", remote)

    def stop(self) -> None:
        """End LibreOffice."""
        self._desktop, self._open = None, {}
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def guarded(self, run: Callable[..., str]) -> Callable[..., str]:
        """Return a tool that starts LibreOffice if needed, and ends it if it takes too long."""

        def call(**arguments: Any) -> str:
            if self._process is None or self._process.poll() is not None or self._desktop is None:
                self.stop()
                self.start()
            assert self._process is not None
            late = threading.Event()
            process = self._process

            def end() -> None:
                late.set()
                process.kill()

            timer = threading.Timer(_SECONDS, end)
            timer.start()
            try:
                return run(**arguments)
            except Refused:
                raise
            except Exception as error:
                if late.is_set():
                    self.stop()
                    raise Refused(f"that took longer than {_SECONDS:g} s; what was not saved is lost") from None
                if process.poll() is not None or "Disposed" in type(error).__name__:
                    self.stop()
                    raise Refused(
                        "LibreOffice has ended; what was not saved is lost, the next call starts it"
                    ) from None
                raise
            finally:
                timer.cancel()

        return call

    # ── files ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def list_files(self) -> str:
        """List the files."""
        names = sorted(one.name for one in self._folder.iterdir() if one.is_file() and one.name[0] != ".")[:500]
        return "\n".join(f"{name}{' (open)' if name in self._open else ''}" for name in names) or "There are no files."

    def create(self, file: str) -> str:
        """Create a file."""
        place = self._place(file)
        if place.exists() or file in self._open:
            raise Refused(f"{file} exists already")
        self._make_room()
        self._linked.pop(file, None)
        kind = "scalc" if place.suffix in _SPREADSHEETS else "swriter"
        self._open[file] = self._desktop.loadComponentFromURL(f"private:factory/{kind}", "_blank", 0, _loading())
        self.save(file)
        return f"Created {file}."

    def save(self, file: str) -> str:
        """Save a file."""
        place = self._place(file)
        self._document(file).storeToURL(place.as_uri(), (_value("FilterName", _FILTERS[place.suffix]),))
        return f"Saved {file}."

    def close(self, file: str) -> str:
        """Close a file without saving it."""
        if file not in self._open:
            raise Refused(f"{file[:100]} is not open")
        self._open.pop(file).close(True)
        return f"Closed {file}."

    def export(self, file: str, format: str) -> str:
        """Export a file."""
        document = self._document(file)
        kind = "spreadsheet" if _is_spreadsheet(document) else "document"
        if (kind, format) not in _EXPORTS:
            raise Refused(f"a {kind} cannot be exported as {format[:20]!r}")
        options = [_value("FilterName", _EXPORTS[kind, format])]
        if format == "csv":
            options.append(_value("FilterOptions", "44,34,76,1"))
        target = self._folder / f"{Path(file).stem}.{format}"
        document.storeToURL(target.as_uri(), tuple(options))
        return f"Exported {target.name}."

    # ── spreadsheets ───────────────────────────────────────────────────────────────────────────────────────────────

    def sheets(self, file: str) -> str:
        """List the sheets."""
        lines = []
        for sheet in self._sheets(file):
            cursor = sheet.createCursor()
            cursor.gotoEndOfUsedArea(False)
            end = cursor.getRangeAddress()
            lines.append(f"{sheet.Name}: {end.EndRow + 1} rows, {end.EndColumn + 1} columns used")
        return "\n".join(lines)

    def add_sheet(self, file: str, name: str) -> str:
        """Add a sheet."""
        sheets = self._sheets(file)
        if sheets.hasByName(name):
            raise Refused(f"there is a sheet {name[:100]!r} already")
        sheets.insertNewByName(name, sheets.Count)
        return f"Added the sheet {name}."

    def read_cells(self, file: str, sheet: str, range: str, formulas: bool = False) -> str:
        """Read cells."""
        cells = self._range(file, sheet, range)
        if formulas:
            return "\n".join("\t".join(row) for row in cells.getFormulaArray())[:_TEXT_CHARS]
        return self._shown(cells)

    def write_cells(self, file: str, sheet: str, cell: str, rows: list[list[Any]]) -> str:
        """Write cells from one cell on."""
        width = max((len(row) for row in rows), default=0)
        if not width or len(rows) * width > _CELLS:
            raise Refused(f"write 1 to {_CELLS} cells at a time")
        first = self._range(file, sheet, cell).getRangeAddress()
        target = self._sheets(file).getByName(sheet).getCellRangeByPosition(
            first.StartColumn, first.StartRow, first.StartColumn + width - 1, first.StartRow + len(rows) - 1
        )  # fmt: skip
        for index, row in enumerate(rows):
            for column, value in enumerate(row):
                one = target.getCellByPosition(column, index)
                if isinstance(value, int | float):
                    one.setValue(float(value))
                elif isinstance(value, str) and value.startswith("="):
                    one.setFormula(value)
                else:
                    one.setString("" if value is None else str(value))
        document = self._document(file)
        document.calculateAll()
        if _links(document) > self._linked.get(file, 0):
            # The values of other files are in the document now, so it is dropped as a whole.
            self.close(file)
            raise Refused(f"formulas must not link to other files or programs; {file} is now as it was last saved")
        return self._shown(target)

    def _shown(self, cells: Any) -> str:
        place = cells.getRangeAddress()
        rows = range(place.EndRow - place.StartRow + 1)
        columns = range(place.EndColumn - place.StartColumn + 1)
        lines = ("\t".join(cells.getCellByPosition(column, row).getString() for column in columns) for row in rows)
        return "\n".join(lines)[:_TEXT_CHARS]

    def _sheets(self, file: str) -> Any:
        document = self._document(file)
        if not _is_spreadsheet(document):
            raise Refused(f"{file} is not a spreadsheet")
        return document.Sheets

    def _range(self, file: str, sheet: str, name: str) -> Any:
        sheets = self._sheets(file)
        if not sheets.hasByName(sheet):
            raise Refused(f"there is no sheet {sheet[:100]!r}; there are {', '.join(sheets.ElementNames)[:1000]}")
        try:
            cells = sheets.getByName(sheet).getCellRangeByName(name)
        except Exception:
            raise Refused(f"{name[:100]!r} is not a range of cells such as A1 or A1:C9") from None
        place = cells.getRangeAddress()
        if (place.EndRow - place.StartRow + 1) * (place.EndColumn - place.StartColumn + 1) > _CELLS:
            raise Refused(f"{name[:100]!r} has more than {_CELLS} cells; take fewer at a time")
        return cells

    # ── documents ──────────────────────────────────────────────────────────────────────────────────────────────────

    def read_document(self, file: str, start: int = 1) -> str:
        """Read paragraphs."""
        lines: list[str] = []
        size = 0
        for number, paragraph in enumerate(self._paragraphs(file), start=1):
            if number < start:
                continue
            level = paragraph.OutlineLevel if hasattr(paragraph, "OutlineLevel") else 0
            text = paragraph.getString()
            shown = text if len(text) <= _PARAGRAPH_CHARS else f"{text[:_PARAGRAPH_CHARS]}[…]"
            lines.append(f"[{number}] {'#' * level + ' ' if level else ''}{shown}")
            size += len(shown)
            if size > _TEXT_CHARS or len(lines) >= _PARAGRAPHS:
                lines.append(f"[more from start={number + 1}]")
                break
        return "\n".join(lines) or "There is nothing more."

    def insert_text(self, file: str, text: str, after: int | None = None, heading: int = 0) -> str:
        """Insert a paragraph."""
        from com.sun.star.text.ControlCharacter import PARAGRAPH_BREAK

        document = self._writer(file)
        body = document.Text
        if after is None:
            cursor = body.createTextCursorByRange(body.End)
        else:
            paragraphs = list(self._paragraphs(file))
            if not 1 <= after <= len(paragraphs):
                raise Refused(f"there is no paragraph {after}; there are {len(paragraphs)}")
            cursor = body.createTextCursorByRange(paragraphs[after - 1].End)
        if after is not None or body.String:
            body.insertControlCharacter(cursor, PARAGRAPH_BREAK, False)
        cursor.ParaStyleName = f"Heading {heading}" if heading else "Standard"
        body.insertString(cursor, text, False)
        return "Inserted."

    def replace_text(self, file: str, find: str, replacement: str) -> str:
        """Replace text."""
        document = self._writer(file)
        search = document.createReplaceDescriptor()
        search.SearchString, search.ReplaceString, search.SearchCaseSensitive = find, replacement, True
        return f"Replaced {document.replaceAll(search)} times."

    def _writer(self, file: str) -> Any:
        document = self._document(file)
        if _is_spreadsheet(document):
            raise Refused(f"{file} is not a text document")
        return document

    def _paragraphs(self, file: str) -> Any:
        found = self._writer(file).Text.createEnumeration()
        while found.hasMoreElements():
            paragraph = found.nextElement()
            if paragraph.supportsService("com.sun.star.text.Paragraph"):
                yield paragraph

    # ── open documents ─────────────────────────────────────────────────────────────────────────────────────────────

    def _place(self, file: str) -> Path:
        place = self._folder / file
        if place.name != file or file.startswith(".") or place.suffix not in _FILTERS:
            raise Refused(f"{file[:100]!r} is not the name of a file that ends in {', '.join(_FILTERS)}")
        if place.is_symlink():
            raise Refused(f"{file} is a link")
        return place

    def _document(self, file: str) -> Any:
        if file in self._open:
            return self._open[file]
        place = self._place(file)
        if not place.is_file():
            raise Refused(f"there is no file {file}; see `list_files`")
        self._make_room()
        document = self._desktop.loadComponentFromURL(place.as_uri(), "_blank", 0, _loading())
        if document is None or not hasattr(document, "storeToURL"):
            raise Refused(f"{file} cannot be opened")
        self._open[file] = document
        self._linked[file] = _links(document)
        return document

    def _make_room(self) -> None:
        if len(self._open) >= _OPEN:
            raise Refused(f"{_OPEN} files are open; close one first")


def _value(name: str, value: Any) -> Any:
    from com.sun.star.beans import PropertyValue

    one = PropertyValue()
    one.Name, one.Value = name, value
    return one


def _loading() -> tuple[Any, ...]:
    """Return the options for loading: never run macros (0), and never update links (0)."""
    return (_value("Hidden", True), _value("MacroExecutionMode", 0), _value("UpdateDocMode", 0))


def _links(document: Any) -> int:
    """Return the number of links to other files and programs."""
    if not _is_spreadsheet(document):
        return 0
    return int(document.ExternalDocLinks.Count + document.DDELinks.Count + document.AreaLinks.Count)


def _is_spreadsheet(document: Any) -> bool:
    return bool(document.supportsService("com.sun.star.sheet.SpreadsheetDocument"))


def _tools(office: Office) -> list[ServedTool]:
    text, number = {"type": "string"}, {"type": "integer"}
    file = {"type": "string", "description": "its name, such as report.odt, letter.docx, table.ods or sales.xlsx"}
    cells = {"type": "array", "items": {"type": "array", "items": {"type": ["string", "number", "null"]}},
             "description": "rows of numbers, texts, and formulas such as =SUM(A1:A3)"}  # fmt: skip
    rows: list[tuple[str, str, dict[str, dict[str, Any]], Callable[..., str], tuple[str, ...] | None]] = [
        ("list_files", "List the files.", {}, office.list_files, None),
        ("create", "Create a spreadsheet or a text document; its name decides which.", {"file": file}, office.create,
         None),
        ("save", "Save a file. What is not saved does not count.", {"file": file}, office.save, None),
        ("close", "Close a file without saving it.", {"file": file}, office.close, None),
        ("export", "Export a file: a spreadsheet as pdf or csv, a document as pdf or txt.",
         {"file": file, "format": {"enum": ["pdf", "csv", "txt"]}}, office.export, None),
        ("sheets", "List the sheets of a spreadsheet.", {"file": file}, office.sheets, None),
        ("add_sheet", "Add a sheet.", {"file": file, "name": text}, office.add_sheet, None),
        ("read_cells", "Read the values of a range of cells such as A1:C9, or their formulas.",
         {"file": file, "sheet": text, "range": text, "formulas": {"type": "boolean", "default": False}},
         office.read_cells, ("file", "sheet", "range")),
        ("write_cells", "Write rows of cells from one cell on, and show their values after recalculation.",
         {"file": file, "sheet": text, "cell": text, "rows": cells}, office.write_cells, None),
        ("read_document", "Read the paragraphs of a document, numbered; # marks headings.",
         {"file": file, "start": number | {"default": 1}}, office.read_document, ("file",)),
        ("insert_text", "Insert a paragraph after another, at the end by default.",
         {"file": file, "text": text, "after": number | {"description": "the number of the paragraph before it"},
          "heading": number | {"minimum": 0, "maximum": 6, "default": 0, "description": "1 to 6 for a heading"}},
         office.insert_text, ("file", "text")),
        ("replace_text", "Replace a text everywhere in a document.",
         {"file": file, "find": text | {"minLength": 1}, "replacement": text}, office.replace_text, None),
    ]  # fmt: skip
    return [ServedTool(name, about, have, office.guarded(run), need) for name, about, have, run, need in rows]


def main(program: str, folder: str) -> None:
    """Start LibreOffice and serve its tools."""
    office = Office(program, Path(folder))
    office.start()
    try:
        asyncio.run(serve("office", _tools(office)))
    finally:
        office.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
