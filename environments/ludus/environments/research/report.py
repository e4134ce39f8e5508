"""Read a report: its sections, findings, contradictions, table and conclusions. Nothing here knows what is right.

Each line is read by itself, and what has not the stated form is kept as such: it is a statement that nothing supports.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

SECTIONS: Final = ("Summary", "Findings", "Contradictions", "Table", "Conclusions")
LONGEST: Final = 40_000
"""The most characters of a report that is read."""
LINES: Final = 600
"""The most lines of a report that is read."""
SUMMARY_WORDS: Final = (30, 120)
"""The least and the greatest number of words of the summary."""
LENGTH: Final = 16_000
"""The most characters of a report of the stated form."""
CITED: Final = 6
"""The most pages that a statement may cite."""

_CODE: Final = "[a-z2-9]{4}"
_CITATIONS: Final = re.compile(rf" ?\(?(?: ?\[{_CODE}(?:, ?{_CODE}){{0,7}}\]){{1,8}}\)?$", re.ASCII | re.IGNORECASE)
_CODES: Final = re.compile(_CODE, re.ASCII | re.IGNORECASE)
_NUMBERED: Final = re.compile(r"(\d{1,2})[.)] +(.+)", re.ASCII)
_BULLET: Final = re.compile(r"(?:[-*+]|\d{1,3}[.)]) +", re.ASCII)
_HEADING: Final = re.compile(r"#{2,4} +(.+)|\*\*(.+)\*\*:?", re.ASCII)
_FENCE: Final = re.compile(r"```\w*|-{3,}|\*{3,}", re.ASCII)
_NUMBER: Final = re.compile(r"\d[\d,]*", re.ASCII)
_MARKUP: Final = frozenset("[]{}<>|#*_`\\~^=")
_RULE: Final = re.compile(r"\|(?: ?:?-{1,60}:? ?\|){2,12}", re.ASCII)


class Cited(NamedTuple):
    """A value with the ids of the pages that are cited for it."""

    value: str
    codes: tuple[str, ...]


class Finding(NamedTuple):
    """A line of the findings."""

    line: int
    subject: str
    column: str
    said: Cited


class Contradiction(NamedTuple):
    """A line of the contradictions."""

    line: int
    entity: str
    label: str
    holds: Cited
    other: Cited


class Row(NamedTuple):
    """A row of the table, the first cell being the subject."""

    line: int
    cells: tuple[str, ...]


class Conclusion(NamedTuple):
    """A numbered answer."""

    line: int
    number: int
    answer: str


@dataclass
class Report:
    """What a report says.

    Attributes:
        title: the text of its first line.
        headings: its headings in order.
        summary: the text of its summary.
        findings: the lines of the findings that have the stated form.
        contradictions: the lines of the contradictions that have it.
        none: whether the contradictions are the one line `None.`.
        header: the cells of the header of the table.
        ruled: whether a line of dashes follows the header.
        rows: the rows of the table.
        conclusions: the numbered answers.
        malformed: by section, the lines without the stated form; those outside of all sections stand under "".
        length: its length in characters.
    """

    title: str = ""
    headings: list[str] = field(default_factory=list)
    summary: str = ""
    findings: list[Finding] = field(default_factory=list)
    contradictions: list[Contradiction] = field(default_factory=list)
    none: bool = False
    header: tuple[str, ...] = ()
    ruled: bool = False
    rows: list[Row] = field(default_factory=list)
    conclusions: list[Conclusion] = field(default_factory=list)
    malformed: dict[str, list[int]] = field(default_factory=dict)
    length: int = 0

    def wrong_lines(self, section: str) -> int:
        """Return how many lines of a section have not the stated form."""
        return len(self.malformed.get(section, ()))

    @property
    def concise(self) -> bool:
        """Whether the summary has as many words as it should."""
        return SUMMARY_WORDS[0] <= len(self.summary.split()) <= SUMMARY_WORDS[1]

    @property
    def plain(self) -> bool:
        """Whether the summary is there, and is prose without markup."""
        return bool(self.summary) and not _MARKUP & set(self.summary)

    @property
    def stray_numbers(self) -> list[int]:
        """The numbers of the summary that no other statement has."""
        said = [finding.said.value for finding in self.findings] + [
            conclusion.answer for conclusion in self.conclusions
        ]
        said += [
            some.value for contradiction in self.contradictions for some in (contradiction.holds, contradiction.other)
        ]
        known = {number for text in said for number in _numbers(text)}
        return [one for one in _numbers(self.summary) if one not in known]


def _numbers(text: str) -> list[int]:
    return [int(one.replace(",", "")) for one in _NUMBER.findall(text) if len(one) < 20]


def in_order(places: Sequence[tuple[str, int]]) -> bool:
    """Return whether lines stand in order: by the alphabet of their subjects, and under each by their columns.

    In an alphabet, spaces, punctuation and capitals may count or not.

    Args:
        places: for each line, its subject and the place of its column.
    """
    keys: tuple[Callable[[str], str], ...] = (str, str.lower, _letters)
    orders = (sorted(places, key=lambda one, key=key: (key(one[0]), one[1])) for key in keys)  # type: ignore[misc]
    return len(set(places)) == len(places) and any(order == list(places) for order in orders)


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text.lower()))


class Unreadable(ValueError):
    """A text is no report; the message says why."""


def read_report(text: str) -> Report:
    """Read a report.

    Raises:
        Unreadable: it is too long, has invisible characters, or none of the sections.
    """
    if len(text) > LONGEST or text.count("\n") >= LINES:
        raise Unreadable(f"The report is too long: at most {LONGEST:,} characters and {LINES} lines.")
    text = text.replace("\r\n", "\n").replace("\u00a0", " ").replace("\t", " ").rstrip()
    for number, line in enumerate(text.split("\n"), 1):
        for one in line:
            if not one.isascii() or not one.isprintable():
                _refuse_invisible(one, number)
    report = Report(length=len(text))
    section = ""
    by_section: dict[str, list[tuple[int, str]]] = {}
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip()
        if line.startswith("# ") and not report.title and not report.headings and not by_section:
            report.title = line[2:].strip()
        elif line.startswith("#") or _name_of_section(line):
            section = _name_of_section(line)
            report.headings.append(section)
            if report.headings.count(section) > 1:
                section = ""
        elif line and not _FENCE.fullmatch(line):
            by_section.setdefault(section, []).append((number, line))
    if not set(report.headings) & set(SECTIONS):
        raise Unreadable(
            "This is no report. Begin with `# ` and the title; then come the sections, such as `## Summary`."
        )
    _read_sections(report, by_section)
    return report


def _name_of_section(line: str) -> str:
    """Return the section that a line is the heading of, in any of the usual forms; empty if it is none."""
    found = _HEADING.fullmatch(line)
    text = (found[1] or found[2]) if found else ""
    plain = re.sub(r"^\d\. ", "", text.strip("*_: ")).strip("*_: ").capitalize()
    return plain if plain in SECTIONS else ""


def _plain(text: str) -> str:
    """Return a cell or a line without the marks of emphasis around it."""
    return text.strip().strip("*_").strip()


def _refuse_invisible(one: str, number: int) -> None:
    if unicodedata.category(one)[0] in "CM" or one in "\u2028\u2029\u3164\u115f\u1160\uffa0\u2800":
        raise Unreadable(f"Line {number} has the invisible character U+{ord(one):04X}. Take it out.")


def _read_sections(report: Report, lines: Mapping[str, Sequence[tuple[int, str]]]) -> None:
    report.summary = " ".join(line for _, line in lines.get("Summary", ()))
    report.none = [_unmarked(line).rstrip(".").lower() for _, line in lines.get("Contradictions", ())] == ["none"]
    for number, line in lines.get("Findings", ()):
        finding = _finding(number, line)
        report.findings.append(finding) if finding else _malformed(report, "Findings", number)
    for number, line in () if report.none else lines.get("Contradictions", ()):
        found = _contradiction(number, line)
        report.contradictions.append(found) if found else _malformed(report, "Contradictions", number)
    for index, (number, line) in enumerate(lines.get("Table", ())):
        cells = _cells(line)
        if index == 1 and _RULE.fullmatch(f"|{line.strip('| ')}|"):
            report.ruled = True
        elif not cells:
            _malformed(report, "Table", number)
        elif index == 0:
            report.header = cells
        else:
            report.rows.append(Row(number, cells))
    for number, line in lines.get("Conclusions", ()):
        numbered = _NUMBERED.fullmatch(re.sub(r"^\*\*(\d{1,2}[.)])\*\*", r"\1", line))
        if numbered is None:
            _malformed(report, "Conclusions", number)
        else:
            report.conclusions.append(Conclusion(number, int(numbered[1]), numbered[2].strip()))
    for number, _ in lines.get("", ()):
        _malformed(report, "", number)


def _unmarked(line: str) -> str:
    """Return a line of a list without its marker."""
    return _BULLET.sub("", line, count=1) if _BULLET.match(line) else line


def _malformed(report: Report, section: str, number: int) -> None:
    report.malformed.setdefault(section, []).append(number)


def _finding(number: int, line: str) -> Finding | None:
    parts = [_plain(one) for one in _unmarked(line).split("|")]
    if not _BULLET.match(line) or len(parts) != 3 or not all(parts):
        return None
    said = _cited(parts[2])
    return None if said is None else Finding(number, parts[0], parts[1], said)


def _contradiction(number: int, line: str) -> Contradiction | None:
    parts = [_plain(one) for one in _unmarked(line).split("|")]
    if not _BULLET.match(line) or len(parts) != 4 or not all(parts):
        return None
    holds, other = _cited(parts[2]), _cited(parts[3])
    return None if holds is None or other is None else Contradiction(number, parts[0], parts[1], holds, other)


def _cited(text: str) -> Cited | None:
    """Read a value with its citations; None if it has none, or too many."""
    found = _CITATIONS.search(text[-120:])
    if found is None:
        return None
    codes = tuple(dict.fromkeys(_CODES.findall(found[0].lower())))
    value = text.removesuffix(found[0]).strip()
    return Cited(value, codes) if value and len(codes) <= CITED else None


def _cells(line: str) -> tuple[str, ...]:
    if "|" not in line.strip("|"):
        return ()
    return tuple(_plain(one) for one in line.strip().removeprefix("|").removesuffix("|").split("|"))


def form_problems(report: Report, title: str, labels: Sequence[str], asked: int, opened: Collection[str]) -> list[str]:
    """Return what is wrong with the form of a report, without a word on whether it is right.

    Args:
        report: the report.
        title: the title that it must have.
        labels: the names of the columns.
        asked: the number of questions.
        opened: the ids of the pages that may be cited.
    """
    found = []
    if report.title != title:
        found.append(f"The first line must be `# {title}`.")
    if tuple(report.headings) != SECTIONS:
        found.append(f"The headings must be, in this order: {', '.join(f'## {one}' for one in SECTIONS)}.")
    found += [
        f"Line {numbers[0]} has not the form `{_FORMS[section]}` ({len(numbers)} such lines)."
        if section
        else f"Line {numbers[0]} stands outside of the sections ({len(numbers)} such lines)."
        for section, numbers in report.malformed.items()
    ]
    found += _summary_problems(report)
    if not report.findings and not report.wrong_lines("Findings"):
        found.append("Findings has no line.")
    if not report.contradictions and not report.none and not report.wrong_lines("Contradictions"):
        found.append("Contradictions has no line; if there is nothing to say, write the one line `None.`.")
    known = {label.lower(): index for index, label in enumerate(labels)}
    unknown = [finding for finding in report.findings if finding.column.lower() not in known]
    if unknown:
        found.append(
            f"Line {unknown[0].line}: there is no column {unknown[0].column[:60]!r} ({len(unknown)} such lines)."
        )
    if report.header != ("Subject", *labels):
        found.append("The header of the table must have `Subject` and then the columns in their order.")
    elif not report.ruled:
        found.append("A line such as `|---|---|` must follow the header of the table.")
    short = [row for row in report.rows if len(row.cells) != len(labels) + 1]
    if short:
        found.append(f"Line {short[0].line}: a row of the table must have {len(labels) + 1} cells.")
    if [conclusion.number for conclusion in report.conclusions] != list(range(1, asked + 1)):
        found.append(f"The conclusions must be numbered from 1 to {asked}.")
    if report.length > LENGTH:
        found.append(f"The report has {report.length:,} characters; it must have at most {LENGTH:,}.")
    said = [(finding.line, finding.said) for finding in report.findings]
    said += [
        (contradiction.line, some)
        for contradiction in report.contradictions
        for some in (contradiction.holds, contradiction.other)
    ]
    unread = sorted({(line, code) for line, some in said for code in some.codes if code not in opened})
    if unread:
        found.append(f"Line {unread[0][0]} cites {unread[0][1]}, which you have not opened ({len(unread)} such).")
    if not in_order([(finding.subject, known.get(finding.column.lower(), 0)) for finding in report.findings]):
        found.append("The findings must be in the alphabetical order of their subjects and the order of the columns.")
    if report.rows and report.rows[0].cells[0].lower() not in report.summary.lower():
        found.append("The summary must name the subject of the first row of the table.")
    return found


_FORMS: Final[Mapping[str, str]] = {
    "Findings": "- subject | column | value [id]",
    "Contradictions": "- entity | fact | value [id] | other value [id]",
    "Table": "| cell | cell |",
    "Conclusions": "1. answer",
}


def _summary_problems(report: Report) -> list[str]:
    found = []
    if not report.concise:
        least, most = SUMMARY_WORDS
        found.append(f"The summary has {len(report.summary.split())} words; it must have {least} to {most}.")
    if report.summary and not report.plain:
        found.append("The summary must have no square brackets or markup.")
    if report.stray_numbers:
        found.append(f"The summary has the number {report.stray_numbers[0]}, which no other section has.")
    return found
