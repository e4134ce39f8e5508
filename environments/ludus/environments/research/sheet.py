"""Work out what a perfect report on a brief says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ludus.environments.research.archive import Archive
from ludus.environments.research.briefs import Brief
from ludus.environments.research.columns import (
    Cell,
    Cells,
    accepted_values,
    explained,
    form_of,
    label_of,
    names_of,
    value_shown,
)
from ludus.environments.research.questions import Answered, answer_to, text_of
from ludus.environments.search.questions import AnswerForm


class Entry(NamedTuple):
    """The value of a cell: its form, how a report shows it, and the texts that mean it."""

    form: AnswerForm
    shown: str
    accepted: frozenset[str]


class Conflict(NamedTuple):
    """A fact on which pages disagree.

    Attributes:
        entity: the number of the entity.
        names: the names that mean it.
        label: the name of the relation.
        holds: the value that holds.
        pages: the pages that state that.
        other: the other value.
        other_pages: the pages that state the other one.
    """

    entity: int
    names: frozenset[str]
    label: str
    holds: Entry
    pages: frozenset[int]
    other: Entry
    other_pages: frozenset[int]


@dataclass(frozen=True)
class Sheet:
    """What a perfect report on a brief says.

    Attributes:
        archive: the world's reports and facts.
        brief: the brief.
        cells: the cells, a row for each subject.
    """

    archive: Archive
    brief: Brief
    cells: Sequence[Sequence[Cell]]

    @staticmethod
    def of(archive: Archive, brief: Brief) -> Sheet:
        """Return the sheet of a brief about a world."""
        cells = Cells(archive)
        return Sheet(
            archive, brief, [[cells.cell(path, subject) for path in brief.columns] for subject in brief.subjects]
        )

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(label_of(path) for path in self.brief.columns)

    @cached_property
    def titles(self) -> tuple[str, ...]:
        """The titles of the subjects."""
        return tuple(self.archive.graph.entities[subject].title for subject in self.brief.subjects)

    @cached_property
    def names(self) -> tuple[frozenset[str], ...]:
        """For each subject, the names that mean it."""
        return tuple(names_of(self.archive, subject) for subject in self.brief.subjects)

    @cached_property
    def entries(self) -> tuple[tuple[Entry, ...], ...]:
        """The value of each cell, a row for each subject."""
        forms: list[AnswerForm] = [form_of(path) for path in self.brief.columns]
        return tuple(
            tuple(self._entry(form, cell.value) for form, cell in zip(forms, row, strict=True)) for row in self.cells
        )

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The places of the subjects in the order of the table."""
        column, falling = self.brief.order
        known = [(row[column].value or 0, index) for index, row in enumerate(self.cells)]
        return tuple(place for _, place in sorted(known, reverse=falling))

    @cached_property
    def conflicts(self) -> tuple[Conflict, ...]:
        """The facts on which pages disagree, by entity and relation."""
        found: dict[tuple[str, int], Conflict] = {}
        for fact in (fact for row in self.cells for cell in row for fact in cell.facts):
            if fact.other is not None:
                form = form_of((fact.relation,))
                found[fact.relation, fact.subject] = Conflict(
                    fact.subject,
                    names_of(self.archive, fact.subject),
                    label_of((fact.relation,)),
                    self._entry(form, fact.value),
                    fact.pages,
                    self._entry(form, fact.other),
                    fact.other_pages,
                )
        titles = self.archive.titles
        return tuple(sorted(found.values(), key=lambda one: (titles[one.entity], one.label)))

    @cached_property
    def answers(self) -> tuple[Answered, ...]:
        """The answers to the questions."""
        brief = self.brief
        values = [[cell.value for cell in row] for row in self.cells]
        return tuple(
            answer_to(question, self.archive, brief.subjects, brief.columns, values, len(self.conflicts))
            for question in brief.questions
        )

    @cached_property
    def needed(self) -> tuple[int, ...]:
        """The pages that a perfect report cites, one for each fact and two for each contradiction, in order."""
        pages = [min(fact.pages) for row in self.cells for cell in row for fact in cell.facts]
        pages += [min(some) for conflict in self.conflicts for some in (conflict.pages, conflict.other_pages)]
        return tuple(dict.fromkeys(pages))

    def columns_explained(self) -> list[str]:
        """Return a line on each column."""
        return [f"- {label_of(path)}: {explained(path)}" for path in self.brief.columns]

    def questions_asked(self) -> list[str]:
        """Return a line with each question."""
        return [
            f"{index}. {text_of(question, self.brief.columns)}"
            for index, question in enumerate(self.brief.questions, 1)
        ]

    def _entry(self, form: AnswerForm, value: int | None) -> Entry:
        return Entry(form, value_shown(self.archive, form, value), accepted_values(self.archive, form, value))
