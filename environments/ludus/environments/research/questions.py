"""The questions of a brief, whose answers follow from the columns of the report."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from ludus.environments.research.archive import Archive
from ludus.environments.research.columns import Path, accepted_values, form_of, label_of, value_shown
from ludus.environments.search.questions import AnswerForm
from ludus.environments.search.world import RELATIONS

Values = Sequence[Sequence[int | None]]
"""The values of all cells, a row for each subject."""

CONFLICTS: Final = "conflicts"


class Asked(NamedTuple):
    """A question.

    Attributes:
        what: the kind of question.
        column: the place of the column that it is about.
        more: a second column, or a limit, as the kind needs.
    """

    what: str
    column: int = 0
    more: int = 0


class Answered(NamedTuple):
    """The answer to a question: its form, the answer as shown, and the texts that mean it."""

    form: AnswerForm
    shown: str
    accepted: frozenset[str]


def text_of(asked: Asked, columns: Sequence[Path]) -> str:
    """Return a question in words."""
    label = f"`{label_of(columns[asked.column])}`"
    target = RELATIONS[columns[asked.column][-1]].target
    great, small = ("latest", "earliest") if target in ("year", "date") else ("greatest", "least")
    match asked.what:
        case "most":
            return f"Which subject has the {great} {label}? (a name)"
        case "least":
            return f"Which subject has the {small} {label}? (a name)"
        case "second":
            return f"Which subject has the second {great} {label}? (a name)"
        case "total":
            return f"What is the sum of {label} over all subjects? (a number)"
        case "spread":
            return f"What is the {great} {label} minus the {small} one? (a number)"
        case "above":
            return f"For how many subjects is {label} greater than {asked.more}? (a number)"
        case "common":
            return f"Which value of {label} occurs most often, not counting `not stated`? (a name)"
        case "different":
            return f"How many different values does {label} have, not counting `not stated`? (a number)"
        case "missing":
            return f"For how many subjects is {label} `not stated`? (a number)"
        case "of_most":
            other = f"`{label_of(columns[asked.more])}`"
            return f"What is the {other} of the subject with the {great} {label}? (its value, or `not stated`)"
        case _:
            return "On how many facts that the findings rest on do pages disagree? (a number)"


def candidates(columns: Sequence[Path], values: Values, conflicts: int, rng: random.Random) -> list[Asked]:
    """Return questions with one answer each in random order, at most two of a kind and none with an obvious answer."""
    found = [Asked(CONFLICTS)]
    for index, path in enumerate(columns):
        column = [row[index] for row in values]
        known = [one for one in column if one is not None]
        if form_of(path) == "name":
            found += _of_names(index, known, len(column))
        elif len(known) == len(column):
            found += _of_numbers(index, path, sorted(known), rng, len(columns))
        elif len(known) < len(column):
            found.append(Asked("missing", index))
    rng.shuffle(found)
    kinds: Counter[str] = Counter()
    kept = []
    for asked in found:
        kinds[asked.what] += 1
        if kinds[asked.what] <= 2:
            kept.append(asked)
    return kept


def _of_names(place: int, known: Sequence[int], number: int) -> list[Asked]:
    found = [Asked("missing", place)] if len(known) < number else []
    counts = Counter(known).most_common(2)
    if len(counts) > 1:
        found.append(Asked("different", place))
        if counts[0][1] > max(1, counts[1][1]):
            found.append(Asked("common", place))
    return found


def _of_numbers(place: int, path: Path, known: Sequence[int], rng: random.Random, columns: int) -> list[Asked]:
    found = []
    target = RELATIONS[path[-1]].target
    if known[-1] > known[-2]:
        found.append(Asked("most", place))
        found.append(Asked("of_most", place, (place + rng.randrange(1, columns)) % columns))
    if known[0] < known[1]:
        found.append(Asked("least", place))
    if known[-1] > known[-2] > known[-3]:
        found.append(Asked("second", place))
    if target != "date":
        found.append(Asked("spread", place))
        limit = known[rng.randrange(1, len(known) - 1)]
        if limit < known[-1]:
            found.append(Asked("above", place, limit))
    if target == "number":
        found.append(Asked("total", place))
    return found


def answer_to(
    asked: Asked, archive: Archive, subjects: Sequence[int], columns: Sequence[Path], values: Values, conflicts: int
) -> Answered:
    """Return the answer to a question."""
    column = [row[asked.column] for row in values]
    known = sorted(one for one in column if one is not None)
    match asked.what:
        case "most" | "least" | "second":
            wanted = {"most": -1, "least": 0, "second": -2}[asked.what]
            return _answered(archive, "name", subjects[column.index(known[wanted])])
        case "common":
            return _answered(archive, "name", Counter(known).most_common(1)[0][0])
        case "of_most":
            value = values[column.index(known[-1])][asked.more]
            return _answered(archive, form_of(columns[asked.more]), value)
        case "total":
            number = sum(known)
        case "spread":
            number = known[-1] - known[0]
        case "above":
            number = sum(one > asked.more for one in known)
        case "different":
            number = len(set(known))
        case "missing":
            number = column.count(None)
        case _:
            number = conflicts
    return _answered(archive, "number", number)


def _answered(archive: Archive, form: AnswerForm, value: int | None) -> Answered:
    return Answered(form, value_shown(archive, form, value), accepted_values(archive, form, value))
