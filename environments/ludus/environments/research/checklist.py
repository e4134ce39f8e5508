"""Compare a report with the sheet of its brief, item by item, and make the reward of it.

How this works. A statement is a line of the findings, a contradiction, a cell of the table or a conclusion. It is right
if all of it is: the value, and for the first two also that each cited page was opened and states it. The share of a
part is the number of its right statements minus that of its wrong ones, divided by the number of items, and at least 0.
So a statement that is left out costs nothing more, and nothing is gained by guessing, hedging, repeating, or copying
all that the pages say. All other parts are multiplied by the share of the findings, so that none is worth anything
without them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from ludus.environments.research.columns import read_value
from ludus.environments.research.report import LENGTH, SECTIONS, Cited, Contradiction, Finding, Report, in_order
from ludus.environments.research.sheet import Conflict, Sheet
from ludus.environments.search.answers import canonical
from ludus.server.rewards import Attempt, Checklist, Node, Penalty, Verdict, Weighted, WeightedSum, check
from ludus.server.rewards.checklist import ItemCheck

WEIGHTS: Final[Mapping[str, float]] = {
    "findings": 0.5, "table": 0.15, "contradictions": 0.15, "conclusions": 0.15, "form": 0.05,
}  # fmt: skip


@dataclass(slots=True)
class Part:
    """What was found about one part of a report.

    Attributes:
        items: the items by name, and whether each is met.
        wrong: the number of its wrong statements.
        why: the lines with wrong statements.
    """

    items: dict[str, bool] = field(default_factory=dict)
    wrong: int = 0
    why: list[int] = field(default_factory=list)

    @property
    def share(self) -> float:
        """What the part is worth, from 0 to 1."""
        return max(0.0, (sum(self.items.values()) - self.wrong) / len(self.items))

    def note_wrong(self, line: int, count: int = 1) -> None:
        """Count wrong statements of a line."""
        if count:
            self.wrong += count
            self.why.append(line)


class Grading:
    """Compares one report with the sheet of its brief.

    Args:
        sheet: what a perfect report says.
        report: the report.
        title: the title that it must have.
        opened: the numbers of the pages that the episode has opened.
        codes: the numbers of all pages by their ids.
    """

    def __init__(
        self, sheet: Sheet, report: Report, title: str, opened: Collection[int], codes: Mapping[str, int]
    ) -> None:
        self._sheet = sheet
        self._report = report
        self._title = title
        self._opened = frozenset(opened)
        self._codes = codes
        self._right: dict[tuple[int, int], bool] = {}
        self._columns = {label.lower(): index for index, label in enumerate(sheet.labels)}
        self._subjects: dict[str, int] = {}
        for index, names in enumerate(sheet.names):
            self._subjects |= dict.fromkeys(names, index)
        self.parts = {
            "findings": self._findings(),
            "table": self._table(),
            "contradictions": self._contradictions(),
            "conclusions": self._conclusions(),
            "form": self._form(),
        }

    @property
    def value(self) -> float:
        """The value of the report, from 0 to 1."""
        return self.parts["findings"].share * sum(
            weight * (1.0 if name == "findings" else self.parts[name].share) for name, weight in WEIGHTS.items()
        )

    def tree(self) -> WeightedSum:
        """Return a tree with a check for each item, whose value is that of the report."""
        base = self.parts["findings"].share
        groups = [
            self._group(part, found, WEIGHTS[part] * (1.0 if part == "findings" else base))
            for part, found in self.parts.items()
        ]
        items = [met for found in self.parts.values() for met in found.items.values()]
        said = Verdict(sum(items) / len(items), f"{sum(items)}/{len(items)} met")
        return WeightedSum((*groups, check(lambda attempt: said, name="met", weight=0.0)))

    def _group(self, name: str, found: Part, weight: float) -> Node:
        items = tuple(ItemCheck(check(partial(_known, met)), name=item) for item, met in found.items.items())
        wrong = Verdict(float(found.wrong), f"lines {', '.join(map(str, found.why[:40]))}" if found.why else "")
        penalty = Penalty(check(lambda attempt: wrong, name="wrong"), amount=1.0 / len(items))
        children = (Checklist(children=items), *(() if name == "form" else (penalty,)))
        return Weighted(children, floor=0.0, name=name, weight=weight)

    # Findings.

    def _findings(self) -> Part:
        sheet, part = self._sheet, Part()
        said: dict[tuple[int, int], list[Finding]] = {}
        for finding in self._report.findings:
            place = self._place(finding)
            if place is None:
                part.note_wrong(finding.line)
            else:
                said.setdefault(place, []).append(finding)
        for row, title in enumerate(sheet.titles):
            for column, label in enumerate(sheet.labels):
                found = said.get((row, column), [])
                met = len(found) == 1 and self._holds(found[0], row, column)
                self._right[row, column] = part.items[f"{title}: {label}"] = met
                for finding in () if met else found:
                    part.note_wrong(finding.line)
        for line in self._report.malformed.get("Findings", ()):
            part.note_wrong(line)
        return part

    def _place(self, finding: Finding) -> tuple[int, int] | None:
        name = canonical(finding.subject, "name")
        subject = None if name is None else self._subjects.get(name)
        column = self._columns.get(finding.column.lower())
        return None if subject is None or column is None else (subject, column)

    def _holds(self, finding: Finding, row: int, column: int) -> bool:
        """Return whether a finding is right: its value, and the pages that it cites for each step to it."""
        entry = self._sheet.entries[row][column]
        pages = self._pages(finding.said)
        if pages is None or read_value(finding.said.value, entry.form) not in entry.accepted:
            return False
        facts = self._sheet.cells[row][column].facts
        useful = frozenset[int]().union(*(fact.pages for fact in facts))
        return pages <= useful and all(pages & fact.pages for fact in facts)

    def _pages(self, said: Cited) -> set[int] | None:
        """Return the cited pages; None if one of them does not exist or was not opened."""
        pages = {self._codes.get(code, -1) for code in said.codes}
        return pages if pages <= self._opened else None

    # The other parts.

    def _table(self) -> Part:
        """Compare the table; a cell counts only if its finding does, since it repeats that."""
        sheet, part = self._sheet, Part()
        width = len(sheet.labels)
        rows: dict[int, list[int]] = {}
        for place, row in enumerate(self._report.rows):
            name = canonical(row.cells[0], "name")
            subject = None if name is None else self._subjects.get(name)
            if subject is None or len(row.cells) != width + 1 or self._report.header != ("Subject", *sheet.labels):
                part.note_wrong(row.line, max(1, min(len(row.cells) - 1, width)))
            else:
                rows.setdefault(subject, []).append(place)
        for subject, title in enumerate(sheet.titles):
            places = rows.get(subject, [])
            once = self._report.rows[places[0]] if len(places) == 1 else None
            for column, label in enumerate(sheet.labels):
                text = once.cells[column + 1] if once is not None else ""
                entry = sheet.entries[subject][column]
                met = self._right[subject, column] and read_value(text, entry.form) in entry.accepted
                part.items[f"{title}: {label}"] = met
                if once is not None and text not in ("", "-") and not met:
                    part.note_wrong(once.line)
            for place in places if once is None else ():
                part.note_wrong(self._report.rows[place].line, width)
        part.items |= self._positions(rows)
        for line in self._report.malformed.get("Table", ()):
            part.note_wrong(line)
        return part

    def _positions(self, rows: Mapping[int, Sequence[int]]) -> dict[str, bool]:
        """Return for each position of the table whether the right subject stands there, with the value it is for."""
        column = self._sheet.brief.order[0]
        found = {}
        for position, subject in enumerate(self._sheet.order):
            found[f"position {position + 1}"] = rows.get(subject) == [position] and self._right[subject, column]
        return found

    def _contradictions(self) -> Part:
        part = Part()
        left = list(self._report.contradictions)
        for conflict in self._sheet.conflicts:
            about = [one for one in left if self._about(one, conflict)]
            met = len(about) == 1 and self._named(about[0], conflict)
            part.items[f"{self._sheet.archive.titles[conflict.entity]}: {conflict.label}"] = met
            left = [one for one in left if one not in about]
            for one in () if met else about:
                part.note_wrong(one.line)
        for one in left:
            part.note_wrong(one.line)
        for line in self._report.malformed.get("Contradictions", ()):
            part.note_wrong(line)
        return part

    @staticmethod
    def _about(said: Contradiction, conflict: Conflict) -> bool:
        return said.label.lower() == conflict.label.lower() and canonical(said.entity, "name") in conflict.names

    def _named(self, said: Contradiction, conflict: Conflict) -> bool:
        both = (
            (said.holds, conflict.holds, conflict.pages),
            (said.other, conflict.other, conflict.other_pages),
        )
        for given, entry, pages in both:
            cited = self._pages(given)
            if cited is None or not cited <= pages or read_value(given.value, entry.form) not in entry.accepted:
                return False
        return True

    def _conclusions(self) -> Part:
        part = Part()
        said: dict[int, list[str]] = {}
        for conclusion in self._report.conclusions:
            said.setdefault(conclusion.number, []).append(conclusion.answer)
            if conclusion.number > len(self._sheet.answers) or conclusion.number < 1:
                part.note_wrong(conclusion.line)
        lines = {conclusion.number: conclusion.line for conclusion in self._report.conclusions}
        for number, answer in enumerate(self._sheet.answers, 1):
            given = said.get(number, [])
            met = len(given) == 1 and read_value(given[0], answer.form) in answer.accepted
            part.items[f"question {number}"] = met
            if given and not met:
                part.note_wrong(lines[number], len(given))
        for line in self._report.malformed.get("Conclusions", ()):
            part.note_wrong(line)
        return part

    def _form(self) -> Part:
        report, sheet = self._report, self._sheet
        summary = report.summary.lower()
        numbers = [conclusion.number for conclusion in report.conclusions]
        return Part(
            {
                "title": report.title == self._title,
                "sections": tuple(report.headings) == SECTIONS and not report.wrong_lines(""),
                "summary length": report.concise,
                "summary without markup": report.plain,
                "summary with known numbers": bool(report.summary) and not report.stray_numbers,
                "summary with the first subject": any(one in summary for one in sheet.names[sheet.order[0]]),
                "findings are well-formed": bool(report.findings) and not report.wrong_lines("Findings"),
                "findings are in order": self._ordered(),
                "contradictions are well-formed": not report.wrong_lines("Contradictions")
                and bool(report.contradictions or report.none),
                "header of the table": report.header == ("Subject", *sheet.labels) and report.ruled,
                "conclusions are numbered": numbers == list(range(1, len(sheet.answers) + 1)),
                "length": report.length <= LENGTH,
            }
        )

    def _ordered(self) -> bool:
        """Return whether the findings follow the alphabet of the subjects' titles, and the columns under each."""
        places = [self._place(finding) for finding in self._report.findings]
        known = [one for one in places if one is not None]
        titles = self._sheet.titles
        return len(known) == len(places) > 0 and in_order([(titles[subject], column) for subject, column in known])


def _known(met: bool, attempt: Attempt) -> bool:
    return met
