"""A spreadsheet in LibreOffice: the policy completes a table with formulas, and the saved file is scored.

LibreOffice runs inside the episode's sandbox, and the policy has its tools only. When the episode ends, the server
reads the saved file itself, as the zip archive of XML that it is: the formulas must be there, and so must the values
that they have. Needs Linux and Debian's packages libreoffice-calc, libreoffice-writer and python3-uno.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Generator, Sequence
from functools import partial
from random import Random
from typing import Any, Final
from xml.etree import ElementTree

from ludus.environments.computer import office_settings, open_office
from ludus.sandbox import SandboxFileError
from ludus.server import Answer, Call, Environment, EpisodeLimits, Split, StepResult, Task

COUNTS: Final = {"train": 500, "validation": 50, "test": 50}
ITEMS: Final = ("kettle", "lamp", "mirror", "notebook", "umbrella", "vase", "clock")
FILE: Final = "sales.ods"
ROWS: Final = 4
_CONTENT_BYTES: Final = 4_000_000
_CELLS: Final = 10_000
_TABLE: Final = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
_OFFICE: Final = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"


class Sales(Task):
    """A table to complete."""

    rows: list[tuple[str, int, int]]
    """Item, quantity and price."""


def make_sales(split: str, index: int) -> Sales:
    """Return the task at an index."""
    rng = Random(f"{split}/{index}")
    rows = [(item, rng.randint(1, 50), rng.randint(1, 200)) for item in rng.sample(ITEMS, ROWS)]
    return Sales(id=f"{split}-{index}", rows=rows)


class Spreadsheet(Environment[Sales]):
    """Complete a spreadsheet with formulas."""

    version = "1.0.0"
    splits = {split: Split.lazy(partial(make_sales, split), count) for split, count in COUNTS.items()}
    reward_range = (0.0, 1.0)
    limits = EpisodeLimits(max_steps=30, tool_seconds=60)
    sandbox_settings = office_settings()

    async def setup(self) -> None:
        """Start LibreOffice and create the table."""
        self._office = await open_office(self.sandbox)
        table = [["item", "quantity", "price", "total"], *([*row, None] for row in self.task.rows)]
        await self._office.call("create", {"file": FILE})
        await self._office.call("write_cells", {"file": FILE, "sheet": "Sheet1", "cell": "A1", "rows": table})
        await self._office.call("save", {"file": FILE})

    def task_tools(self) -> Sequence[Any]:
        """Return LibreOffice's tools."""
        return self._office.tools

    def prompt(self) -> str:
        """Return the request."""
        return (
            f"Sheet1 of {FILE} has the columns item, quantity, price and total. Fill in the totals in D2:D{ROWS + 1} "
            f"with formulas, and their sum in D{ROWS + 2} with a formula. Save the file."
        )

    async def grade(self, answer: str) -> float:
        """Return the share of the cells in the saved file that have a formula and the right value."""
        try:
            cells = read_column(await self.sandbox.read(f"documents/{FILE}"), 3)
        except (SandboxFileError, zipfile.BadZipFile, ElementTree.ParseError, ValueError, KeyError):
            return 0.0
        totals = [quantity * price for _, quantity, price in self.task.rows]
        wanted = [*totals, sum(totals)]
        found = [cells.get(row) for row in range(1, ROWS + 2)]
        return sum(one == (True, float(value)) for one, value in zip(found, wanted, strict=True)) / len(wanted)

    @classmethod
    def oracle(cls, task: Sales) -> Generator[Call | Answer, StepResult, None]:
        """Write the formulas and save."""
        formulas = [[f"=B{row}*C{row}"] for row in range(2, ROWS + 2)] + [[f"=SUM(D2:D{ROWS + 1})"]]
        yield Call("write_cells", {"file": FILE, "sheet": "Sheet1", "cell": "D2", "rows": formulas})
        yield Call("save", {"file": FILE})
        yield Answer("Done.")


def read_column(data: bytes, column: int) -> dict[int, tuple[bool, float]]:
    """Return the numbers in a column of the first sheet of an .ods file, by row: whether it is a formula, its value.

    Raises:
        BadZipFile, ParseError, ValueError, KeyError: it is not such a file, or it is larger than a table can be.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive, archive.open("content.xml") as file:
        text = file.read(_CONTENT_BYTES + 1)  # a small archive may hold very much
    if len(text) > _CONTENT_BYTES or re.search(rb"<!(DOCTYPE|ENTITY)", text):
        raise ValueError("the table is too large, or declares entities")
    table = next(ElementTree.fromstring(text).iter(f"{_TABLE}table"))
    found: dict[int, tuple[bool, float]] = {}
    at = 0
    for row in table.iter(f"{_TABLE}table-row"):
        place = 0
        for cell in row.iter(f"{_TABLE}table-cell"):
            value = cell.get(f"{_OFFICE}value")
            if place == column and value is not None and len(found) < _CELLS:
                found[at] = (cell.get(f"{_TABLE}formula") is not None, float(value))
            place += int(cell.get(f"{_TABLE}number-columns-repeated", "1"))
        at += int(row.get(f"{_TABLE}number-rows-repeated", "1"))
    return found
