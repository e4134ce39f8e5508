"""Write reports: the perfect one, and those that differ from it in a stated way."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ludus.environments.research.briefs import PLURALS
from ludus.environments.research.report import SECTIONS
from ludus.environments.research.sheet import Entry, Sheet


@dataclass
class Draft:
    """The parts of a report, each as lines."""

    title: str
    summary: list[str]
    findings: list[str]
    contradictions: list[str]
    table: list[str]
    conclusions: list[str]

    def text(self) -> str:
        """Return the report."""
        parts = (self.summary, self.findings, self.contradictions, self.table, self.conclusions)
        bodies = [f"## {name}\n" + "\n".join(lines) for name, lines in zip(SECTIONS, parts, strict=True)]
        return "\n\n".join([f"# {self.title}", *bodies]) + "\n"


def title_of(sheet: Sheet) -> str:
    """Return the title that a report must have."""
    return f"Report on {PLURALS[sheet.brief.kind]}"


def perfect(sheet: Sheet) -> Draft:
    """Return the perfect report."""
    contradictions = [
        f"- {sheet.archive.titles[one.entity]} | {one.label} | {one.holds.shown} {cited(sheet, (min(one.pages),))}"
        f" | {one.other.shown} {cited(sheet, (min(one.other_pages),))}"
        for one in sheet.conflicts
    ]
    return Draft(
        title_of(sheet),
        [summary_of(sheet)],
        [finding(sheet, row, column) for row in range(len(sheet.titles)) for column in range(len(sheet.labels))],
        contradictions or ["None."],
        table(sheet, sheet.entries, sheet.order),
        [f"{place}. {one.shown}" for place, one in enumerate(sheet.answers, 1)],
    )


def summary_of(sheet: Sheet) -> str:
    """Return a summary of the stated form."""
    column, falling = sheet.brief.order
    first, last = (sheet.titles[sheet.order[place]] for place in (0, -1))
    return (
        f"This report compares {PLURALS[sheet.brief.kind]} by what the encyclopedia and its archive say about them. "
        f"Ordered by {sheet.labels[column].lower()}, with the {'greatest' if falling else 'least'} value first, "
        f"{first} opens the table and {last} closes it. Where pages disagree, the later one was followed."
    )


def finding(sheet: Sheet, row: int, column: int, value: str | None = None) -> str:
    """Return the line of a cell, with its value or another one."""
    pages = (min(fact.pages) for fact in sheet.cells[row][column].facts)
    shown = sheet.entries[row][column].shown if value is None else value
    return f"- {sheet.titles[row]} | {sheet.labels[column]} | {shown} {cited(sheet, dict.fromkeys(pages))}"


def cited(sheet: Sheet, pages: Collection[int]) -> str:
    """Return citations of pages."""
    return " ".join(f"[{sheet.archive.codes[page]}]" for page in pages)


def table(sheet: Sheet, entries: Sequence[Sequence[Entry]], order: Sequence[int]) -> list[str]:
    """Return a table with values of all cells."""
    lines = [f"| Subject | {' | '.join(sheet.labels)} |", f"|{'---|' * (len(sheet.labels) + 1)}"]
    lines += [f"| {sheet.titles[row]} | {' | '.join(one.shown for one in entries[row])} |" for row in order]
    return lines
