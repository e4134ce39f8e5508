"""What a workbook earns: which goals are reached, and whether all else is as it was.

The workbook is written as .xlsx and read again, so what is graded is what the file holds. Everything about it is a list
of facts. A workbook as it should be, except for formulas, is made from the one at the beginning; each fact that differs
from it belongs to a goal, which is then missed, or to none, which is damage. Cells that must hold formulas are
calculated with the visible data and with variations of it: a formula that only fits the visible data is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ludus.environments.spreadsheet.engine.book import Book, Formula
from ludus.environments.spreadsheet.engine.calculate import Calculation, TooMuchWork
from ludus.environments.spreadsheet.engine.values import Scalar
from ludus.environments.spreadsheet.engine.xlsx import from_xlsx, to_xlsx
from ludus.environments.spreadsheet.goals.goal import Fact, Goal, facts_of
from ludus.environments.spreadsheet.scenes import Data, Scene
from ludus.environments.spreadsheet.variations import VARIATIONS, variation

_ABSENT: Final = object()


class Outcome(NamedTuple):
    """Which goals are reached, and what is changed that belongs to none."""

    reached: Sequence[bool]
    damage: Sequence[Fact]


def evaluate(book: Book, scene: Scene, goals: Sequence[Goal], seed: int) -> Outcome:
    """Return what a workbook earns.

    Args:
        book: the workbook at the end.
        scene: the scene at the start.
        goals: the goals of the task.
        seed: what variations are drawn from.
    """
    saved = from_xlsx(to_xlsx(book))
    target = scene.book.copy()
    for goal in goals:
        goal.apply(target)
    different = _differences(facts_of(saved), facts_of(target))
    computed = [_computed_facts(goal, scene.data) for goal in goals]
    owned: set[Fact] = set().union(*(goal.owns | goal.free for goal in goals), *computed)
    damage = sorted((fact for fact in different if fact not in owned), key=str)
    if [sheet.name for sheet in saved.sheets if target.sheet(sheet.name)] != [
        sheet.name for sheet in target.sheets if saved.sheet(sheet.name)
    ]:
        damage.append(("order of sheets",))
    if damage:
        return Outcome([False] * len(goals), damage)
    reached = [not (goal.owns - facts) & different for goal, facts in zip(goals, computed, strict=True)]
    return Outcome(_calculate(saved, scene, goals, reached, seed), ())


def _differences(one: Mapping[Fact, Any], other: Mapping[Fact, Any]) -> set[Fact]:
    return {fact for fact in {*one, *other} if one.get(fact, _ABSENT) != other.get(fact, _ABSENT)}


def _computed_facts(goal: Goal, data: Data) -> set[Fact]:
    return {("cell", *cell) for cell in goal.expected(data)} if goal.expected else set()


def _calculate(book: Book, scene: Scene, goals: Sequence[Goal], reached: Sequence[bool], seed: int) -> list[bool]:
    """Return which of the reached goals have formulas that are right whatever the data."""
    found = [done and _are_formulas(book, goal, scene.data) for done, goal in zip(reached, goals, strict=True)]
    for which in range(VARIATIONS + 1):
        if not any(done and goal.expected for done, goal in zip(found, goals, strict=True)):
            break
        data = variation(scene, which, seed) if which else scene.data
        for id, table in scene.tables.items():
            sheet = book.sheet(table.sheet)
            if sheet is None:
                return [False] * len(goals)
            table.put(sheet, data[id])
        for index, goal in enumerate(goals):
            if found[index] and goal.expected is not None:
                found[index] = _are_right(book, goal.expected(data))
    return found


def _are_formulas(book: Book, goal: Goal, data: Data) -> bool:
    if goal.expected is None:
        return True
    sheets = {sheet.name: sheet for sheet in book.sheets}
    cells = goal.expected(data)
    return all(
        name in sheets and isinstance(sheets[name].contents.get((row, column)), Formula) for name, row, column in cells
    )


def _are_right(book: Book, expected: Mapping[tuple[str, int, int], Scalar]) -> bool:
    calculation = Calculation(book)
    try:
        return all(is_same(calculation.value(*cell), wanted) for cell, wanted in expected.items())
    except TooMuchWork:
        return False


def is_same(value: Scalar, wanted: Scalar) -> bool:
    """Return whether a computed value is the wanted one: numbers up to a millionth, and texts exactly."""
    if isinstance(wanted, float) and isinstance(value, float):
        return abs(value - wanted) <= 1e-6 * max(1.0, abs(wanted))
    if wanted == "":
        return value is None or value == ""
    return type(value) is type(wanted) and value == wanted
