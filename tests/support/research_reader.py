"""A careful reader for `research`: it knows the prompt, the pages that its tools show, and English, and nothing else.

It shares the wording of relations with the pages, as any reader of English does, but neither facts nor grading.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ludus.environments.research.briefs import PLURALS
from ludus.environments.research.columns import label_of
from ludus.environments.search.world import RELATIONS, Relation
from ludus.environments.search.world.pages import MONTHS
from ludus.environments.search.world.prose import SHORT
from ludus.environments.search.world.schema import OF_KIND, OFFICES
from ludus.protocol import Answer, Call, StepResult, text_of

LINK = r"(?:[Tt]he )?\[\[([^\]|]*)(?:\|[^\]]*)?\]\]"
VALUES = {"year": r"(\d{4})", "date": r"(\d{1,2} [A-Z][a-z]+ \d{4})"}

Reading = Generator[Call | Answer, StepResult, Any]


@dataclass
class Said:
    """What a page says: its id, its year, and values by relation."""

    code: str
    year: int
    values: dict[str, str]


@dataclass
class Found:
    """A value with the ids that prove it; None if it is not stated."""

    value: str | None
    code: str
    other: tuple[str, str] | None = None


@dataclass
class Reader:
    """Reads and writes one report."""

    prompt: str
    pages: dict[str, tuple[str, str]] = field(default_factory=dict)
    known: dict[tuple[str, str], list[Said]] = field(default_factory=dict)

    def play(self) -> Reading:
        """Read what is needed, and submit the report."""
        head = re.search(r"^# (Report on (.*))$", self.prompt, re.M)
        assert head is not None
        kind = next(one for one, plural in PLURALS.items() if plural == head[2])
        brief = self.prompt.partition("\nBRIEF\n")[2].partition("\nFORM\n")[0]
        scope = brief.partition("Subjects: ")[2].partition("\n")[0].removesuffix(".")
        labels = re.findall(r"^- (.*?): ", brief, re.M)
        questions = re.findall(r"^\d+\. (.*)$", brief, re.M)
        subjects = sorted((yield from self.subjects(scope)))
        conflicts: dict[tuple[str, str], str] = {}
        cells: dict[tuple[str, str], str | None] = {}
        lines = []
        for subject in subjects:
            for label in labels:
                value, ids = yield from self.cell(subject, kind, label, conflicts)
                cells[subject, label] = value
                lines.append(f"- {subject} | {label} | {value or 'not stated'} {' '.join(f'[{one}]' for one in ids)}")
        order = re.search(r"ordered by `(.*?)`, the (greatest|latest|least|earliest) first", self.prompt)
        assert order is not None
        rows = sorted(
            subjects, key=lambda one: number(cells[one, order[1]]), reverse=order[2] in ("greatest", "latest")
        )
        answers = [answer(one, subjects, cells, len(conflicts)) for one in questions]
        text = "\n".join(
            [
                f"# {head[1]}", "## Summary", f"{rows[0]} opens the table. " + "This is for careful readers. " * 7,
                "## Findings", *lines, "## Contradictions", *(conflicts.values() or ["None."]), "## Table",
                f"| Subject | {' | '.join(labels)} |", "|---" * (len(labels) + 1) + "|",
                *(f"| {one} | {' | '.join(cells[one, label] or 'not stated' for label in labels)} |" for one in rows),
                "## Conclusions", *(f"{place}. {one}" for place, one in enumerate(answers, 1)),
            ]
        )  # fmt: skip
        yield Call("check", {"report": text})
        yield Call("submit", {"report": text})

    def open(self, title: str) -> Reading:
        """Return the id and the text of a page."""
        if title not in self.pages:
            result = yield Call("open", {"page": title})
            text = text_of(result.content)
            found = re.match(r"(.*) \[id: (\w{4})\](.*)\n", text)
            if found is None:
                return None
            body, parts = text[found.end() :], re.search(r"of (\d+)", found[3])
            for part in range(2, int(parts[1]) + 1 if parts else 0):
                more = yield Call("open", {"page": title, "part": part})
                body += "\n" + text_of(more.content).partition("\n")[2]
            self.pages[title] = (found[2], body)
        return self.pages[title]

    def read(self, title: str, kind: str) -> Reading:
        """Return what the article of an entity and the reports about it say."""
        if (title, kind) not in self.known:
            code, text = yield from self.open(title)
            self.known[title, kind] = [Said(code, year_in(text, r"Last revised in (\d+)\."), values(text, title, kind))]
            reports = re.search(r"^Reports in the archive: (.*)$", text, re.M)
            for report in re.findall(r"\[\[(.*?)\]\]", reports[1]) if reports else ():
                code, text = yield from self.open(report)
                said = Said(code, year_in(text, r"Published in (\d+)\."), values(text, title, kind))
                self.known[title, kind].append(said)
        return self.known[title, kind]

    def fact(self, title: str, relation: Relation) -> Reading:
        """Return the value that holds, and another one if pages disagree."""
        pages = yield from self.read(title, relation.subject)
        saying = sorted((one for one in pages if relation.name in one.values), key=lambda one: -one.year)
        if not saying:
            return Found(None, pages[0].code)
        right = saying[0].values[relation.name]
        others = [(one.values[relation.name], one.code) for one in saying if one.values[relation.name] != right]
        return Found(right, saying[0].code, others[0] if others else None)

    def cell(self, subject: str, kind: str, label: str, conflicts: dict[tuple[str, str], str]) -> Reading:
        """Return the value of a column for a subject, and the ids that prove it."""
        value, ids = subject, list[str]()
        for part in reversed(label.split(" of ")):
            [relation] = [one for one in OF_KIND[kind] if label_of((one.name,)).lower() == part.lower()]  # type: ignore[index]
            found = yield from self.fact(value, relation)
            ids.append(found.code)
            if found.other:
                name = label_of((relation.name,))
                conflicts[value, name] = (
                    f"- {value} | {name} | {found.value} [{found.code}] | {found.other[0]} [{found.other[1]}]"
                )
            if found.value is None:
                return None, dict.fromkeys(ids)
            value, kind = found.value, relation.target
        return value, dict.fromkeys(ids)

    # Which entities the report is about.

    def subjects(self, scope: str) -> Reading:
        """Return the titles of the subjects."""
        if scope.startswith("these "):
            return scope.partition(": ")[2].split("; ")
        if " who became " in scope or scope.startswith("the winners of "):
            return (yield from self.holders(scope))
        found = re.match(r"the (.*?) (?:with headquarters |whose home town is )?in (.*)$", scope)
        assert found is not None
        where, limit = found[2], None
        if cut := re.match(r"(.*) that were \w+ in (\d+) or (later|earlier)$", where):
            where, limit = cut[1], (int(cut[2]), cut[3])
        region = yield from self.described(where)
        _, text = yield from self.open(f"List of {found[1]} in {region}")
        members = []
        for row in re.findall(r"^\* (.*)$", text, re.M):
            title, year = re.match(LINK, row), re.search(r"(?:Founded|Opened): (\d+)", row)
            assert title is not None
            assert year is not None
            if limit is None or (int(year[1]) >= limit[0] if limit[1] == "later" else int(year[1]) <= limit[0]):
                members.append(title[1])
        return members

    def holders(self, scope: str) -> Reading:
        """Return the people who held an office."""
        patterns = {
            "town.mayor": r"the people who became mayor of (.*) in a year from (\d+) to (\d+)",
            "company.director": r"the people who became director of (.*) in a year from (\d+) to (\d+)",
            "club.coach": r"the people who became coach of (.*) in a year from (\d+) to (\d+)",
            "award.winner": r"the winners of (.*) for the years from (\d+) to (\d+)",
        }
        office, found = next((one, match) for one, pattern in patterns.items() if (match := re.match(pattern, scope)))
        entity = yield from self.described(found[1])
        _, text = yield from self.open(entity)
        sentence = re.escape(OFFICES[office].sentence)
        for mark, part in (
            (r"\{o\}", LINK.replace("([^", "(?P<o>[^", 1)),
            (r"\{a\}", r"(?P<a>\d+)"),
            (r"\{b\}", r"\d+"),
        ):
            sentence = sentence.replace(mark, part)
        held = [(one["o"], int(one["a"])) for one in re.finditer(sentence, text)]
        return [title for title, year in held if int(found[2]) <= year <= int(found[3])]

    def described(self, words: str) -> Reading:
        """Return the title of the entity that words name, or describe through another one."""
        plain = words.removeprefix("the ").strip('"')
        if (yield from self.open(plain)) is not None:
            return plain
        for relation in RELATIONS.values():
            found = re.fullmatch(re.escape(relation.nouns[0]).replace(r"\{s\}", "(.*)"), words)
            if found is not None:
                title = found[1].removeprefix("the ").strip('"')
                page = yield from self.open(title)
                value = values(page[1], title, relation.subject).get(relation.name) if page else None
                if value is not None:
                    return value
        raise AssertionError(f"nothing is described by {words!r}")


class ForgetfulReader(Reader):
    """A reader who reads no reports, and takes what it must order by and does not find for 0."""

    def read(self, title: str, kind: str) -> Reading:
        """Return what the article of an entity says."""
        if (title, kind) not in self.known:
            code, text = yield from self.open(title)
            self.known[title, kind] = [Said(code, year_in(text, r"Last revised in (\d+)\."), values(text, title, kind))]
        return self.known[title, kind]


def year_in(text: str, pattern: str) -> int:
    """The year that a pattern finds."""
    found = re.search(pattern, text)
    assert found is not None
    return int(found[1])


@lru_cache(maxsize=4096)
def patterns(kind: str, name: str) -> Sequence[tuple[str, re.Pattern[str]]]:
    """Return patterns of the statements about an entity of a kind, with the relation of each."""
    last = name.rpartition(" ")[2] if kind == "person" else SHORT[kind]  # type: ignore[index]
    forms = [re.escape(one) for one in (f"the {name}", f"The {name}", name, last, last[0].upper() + last[1:])]
    made = []
    for relation in OF_KIND[kind]:  # type: ignore[index]
        value = LINK if relation.to_entity else VALUES.get(relation.target, rf"([\d,]+) {relation.unit}")
        made.append((relation.name, re.compile(rf"^{re.escape(relation.label)}: {value}$", re.M)))
        for sentence in relation.sentences:
            upper = sentence[0].upper() + sentence[1:]
            parts = re.split(r"(\{[so]\})", upper)
            text = "".join(
                value if part == "{o}" else f"(?:{'|'.join(forms)})" if part == "{s}" else re.escape(part)
                for part in parts
            )
            made.append((relation.name, re.compile(rf"(?:^|(?<=\. )){text}", re.M)))
    return made


def values(text: str, title: str, kind: str) -> dict[str, str]:
    """Return the values that a text states about an entity."""
    name = re.sub(r" \(.*\)$", "", title)
    found = {}
    for relation, pattern in patterns(kind, name):
        match = pattern.search(text)
        if match is not None:
            found[relation] = match[1]
    return found


def number(value: str | None) -> int:
    """Return what a number, a year or a date is ordered by."""
    if value is None:
        return 0
    if found := re.fullmatch(r"(\d+) ([A-Z][a-z]+) (\d{4})", value):
        return int(found[3]) * 10_000 + MONTHS.index(found[2]) * 100 + int(found[1])
    return int(value.replace(",", ""))


def answer(question: str, subjects: Sequence[str], cells: dict[tuple[str, str], str | None], conflicts: int) -> str:
    """Return the answer to a question."""
    names = re.findall(r"`(.*?)`", question)
    labels = [one for one in names if one != "not stated"]
    column = {one: cells[one, labels[-1]] for one in subjects} if labels else {}
    known = [one for one in column.values() if one is not None]
    if "do pages disagree" in question:
        return str(conflicts)
    if "different values" in question:
        return str(len(set(known)))
    if "` `not stated`?" in question:
        return str(len(column) - len(known))
    if "occurs most often" in question:
        return Counter(known).most_common(1)[0][0]
    if "sum of" in question:
        return str(sum(map(number, known)))
    if "minus" in question:
        return str(max(map(number, known)) - min(map(number, known)))
    if found := re.search(r"greater than (\d+)", question):
        return str(sum(number(one) > int(found[1]) for one in known))
    order = sorted(subjects, key=lambda one: number(column[one]))
    if "of the subject with" in question:
        return cells[order[-1], labels[0]] or "not stated"
    if "second" in question:
        return order[-2]
    return order[0] if "least" in question or "earliest" in question else order[-1]
