"""Reports of `research` as different writers lay them out, and with flaws, by the templates of `paraphrases`."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any, Final

from paraphrasing import MONTHS, dated, entries, filled

from ludus.environments.research.briefs import PLURALS
from ludus.environments.research.columns import MISSING
from ludus.environments.research.sheet import Entry, Sheet
from ludus.environments.research.writer import cited, finding, perfect, title_of
from ludus.environments.search.world import RELATIONS

_LINE: Final = re.compile(r"(- [^|]+ \| [^|]+ \| )(.*?)( \[.*)")


class Writer:
    """Writes the right report on a sheet in a drawn style."""

    def __init__(self, sheet: Sheet, rng: random.Random) -> None:
        self._sheet = sheet
        drawn = {one["part"]: rng.choice(one.get("texts") or one["styles"]) for one in entries("research")}
        self._style: Mapping[str, Any] = drawn

    def report(self) -> str:
        """Return the whole report."""
        sheet = self._sheet
        bodies = {
            "Summary": [self._summary()],
            "Findings": [
                self._line(place, [sheet.titles[row], sheet.labels[column], self._proved(row, column)])
                for place, (row, column) in enumerate(_places(sheet), 1)
            ],
            "Contradictions": [
                self._line(place, [
                    sheet.archive.titles[one.entity], one.label,
                    f"{self.value(one.holds)} {self._ids((min(one.pages),))}",
                    f"{self.value(one.other)} {self._ids((min(one.other_pages),))}",
                ])
                for place, one in enumerate(sheet.conflicts, 1)
            ] or ["None."],
            "Table": self._table(),
            "Conclusions": [
                filled(self._style["conclusions"], {"n": str(place), "a": self.value(one)})
                for place, one in enumerate(sheet.answers, 1)
            ],
        }  # fmt: skip
        parts = []
        for place, (name, lines) in enumerate(bodies.items(), 1):
            slots = {"h": name, "H": name.upper(), "n": str(place)}
            parts.append(filled(self._style["headings"], slots) + "\n" + "\n".join(lines))
        text = "\n\n".join([f"# {title_of(sheet)}", *parts])
        return filled(self._style["frame"], {"report": text})

    def _summary(self) -> str:
        sheet = self._sheet
        first, last = (sheet.titles[sheet.order[place]] for place in (0, -1))
        slots = {"subjects": PLURALS[sheet.brief.kind], "first": first, "last": last,
                 "column": sheet.labels[sheet.brief.order[0]].lower()}  # fmt: skip
        return filled(self._style["summary"], slots)

    def _line(self, place: int, cells: Sequence[str]) -> str:
        bullet: str = self._style["layout"]["bullet"]
        return bullet.replace("{n}", str(place)) + " | ".join(cells)

    def _proved(self, row: int, column: int) -> str:
        sheet = self._sheet
        pages = tuple(dict.fromkeys(min(fact.pages) for fact in sheet.cells[row][column].facts))
        unit = RELATIONS[sheet.brief.columns[column][-1]].unit
        return f"{self.value(sheet.entries[row][column], unit)} {self._ids(pages)}"

    def _ids(self, pages: Sequence[int]) -> str:
        codes = [self._sheet.archive.codes[page] for page in pages]
        style = self._style["citations"]
        if style.startswith("[b"):
            codes.reverse()
        if style.startswith("[A"):
            codes = [code.upper() for code in codes]
        if "," in style:
            return f"[{(', ' if ' ' in style else ',').join(codes)}]"
        joined = ("" if style == "[a][b]" else " ").join(f"[{code}]" for code in codes)
        return f"({joined})" if style.startswith("(") else joined

    def value(self, entry: Any, unit: str = "") -> str:
        """Return a value in the style of the report."""
        style = self._style["values"]
        text: str = entry.shown
        if text == MISSING:
            return str(style.get("missing", text))
        if entry.form == "date" and "date" in style:
            day, month, year = text.split()
            found = date(int(year), MONTHS.index(month) + 1, int(day))
            text = dated(found, style["date"])
        if entry.form == "number" and text.replace(",", "").isdigit():
            plain = text.replace(",", "")
            text = {"plain": plain, "space": f"{int(plain):,}".replace(",", " ")}.get(style.get("number", ""), text)
            text += f" {unit}" if style.get("unit") and unit else ""
        if entry.form == "name":
            text = text.lower() if style.get("case") == "lower" else text
            text = f'"{text}"' if style.get("quotes") else text
        return f"**{text}**" if style.get("bold") else text

    def _table(self) -> list[str]:
        sheet, style = self._sheet, self._style["table"]
        header = ["Subject", *sheet.labels]
        rows = []
        for row in sheet.order:
            subject = f"**{sheet.titles[row]}**" if style.get("bold subject") else sheet.titles[row]
            rows.append([subject, *(self.value(one) for one in sheet.entries[row])])
        if style.get("bold header"):
            header = [f"**{one}**" for one in header]
        pad = "  " if style.get("padded") else " "
        lines = [f"|{pad}" + f"{pad}|{pad}".join(cells) + f"{pad}|" for cells in (header, *rows)]
        if style.get("no outer bars"):
            lines = [line.strip("| ") for line in lines]
            return [lines[0], " | ".join(["---"] * len(header)), *lines[1:]]
        return [lines[0], style.get("rule", "|---") * len(header) + "|", *lines[1:]]


def _places(sheet: Sheet) -> list[tuple[int, int]]:
    return [(row, column) for row in range(len(sheet.titles)) for column in range(len(sheet.labels))]


def flawed_report(sheet: Sheet, flaw: str, share: float, rng: random.Random) -> str:
    """Return the perfect report with a flaw in a share of its findings."""
    right = perfect(sheet)
    if flaw == "wrong conclusions":
        count = max(1, round(share * len(right.conclusions)))
        changed = [f"{place}. Nowhere" for place in range(1, count + 1)]
        return replace(right, conclusions=[*changed, *right.conclusions[count:]]).text()
    if flaw == "rows in reverse":
        return replace(right, table=[*right.table[:2], *reversed(right.table[2:])]).text()
    if flaw == "no contradictions":
        return replace(right, contradictions=["- Nowhere | Region | North [aaaa] | South [bbbb]"]).text()
    places = _places(sheet)
    chosen = set(rng.sample(range(len(places)), max(1, round(share * len(places)))))
    lines = [
        _flawed(sheet, flaw, *places[at], line) if at in chosen else line for at, line in enumerate(right.findings)
    ]
    return replace(right, findings=[line for line in lines if line]).text()


def _flawed(sheet: Sheet, flaw: str, row: int, column: int, line: str) -> str:
    own: Entry = sheet.entries[row][column]
    others = [one[column].shown for one in sheet.entries if one[column].shown != own.shown] or ["Nowhere"]
    if flaw == "line left out":
        return ""
    if flaw == "citation left out":
        return line.partition(" [")[0]
    if flaw == "page of another subject":
        other = sheet.brief.subjects[(row + 1) % len(sheet.titles)]
        return _LINE.sub(rf"\g<1>\g<2> {cited(sheet, (other,))}", line)
    value = {
        "value of another subject": others[0], "two values": f"{own.shown} or {others[0]}",
        "number changed": "7" if own.shown != "7" else "8", "denied": f"not {own.shown}",
        "hedged": f"perhaps {own.shown}, perhaps {others[0]}",
        "not stated instead": MISSING if own.shown != MISSING else others[0],
    }[flaw]  # fmt: skip
    return finding(sheet, row, column, value)
