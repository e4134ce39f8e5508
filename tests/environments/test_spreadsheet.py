"""The spreadsheet environment: splits, formulas, the workbook, what goals demand, and what does not pay."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from libreoffice import NEEDS_LIBREOFFICE, recalculated
from random_formulas import book_of

from ludus.environments.spreadsheet import Spreadsheet, exploits
from ludus.environments.spreadsheet.desk import BookDesk
from ludus.environments.spreadsheet.domains import DOMAINS
from ludus.environments.spreadsheet.engine.addresses import Area, parse_reference
from ludus.environments.spreadsheet.engine.book import Book, Chart, Formula, Highlight, Sheet, Validation, shifted
from ludus.environments.spreadsheet.engine.calculate import Calculation, TooMuchWork
from ludus.environments.spreadsheet.engine.criteria import wildcards
from ludus.environments.spreadsheet.engine.syntax import SyntaxFault, parse
from ludus.environments.spreadsheet.engine.values import ErrorValue, Scalar, read_number
from ludus.environments.spreadsheet.engine.xlsx import from_xlsx, to_xlsx
from ludus.environments.spreadsheet.equivalents import equivalents
from ludus.environments.spreadsheet.goals import KINDS
from ludus.environments.spreadsheet.goals.goal import Goal
from ludus.environments.spreadsheet.grading import Outcome, evaluate
from ludus.environments.spreadsheet.scenes import Scene, make_scene
from ludus.environments.spreadsheet.tasks import GOALS, build, pool, split_of_goal
from ludus.environments.spreadsheet.tools import CellTools, FeatureTools, SheetTools
from ludus.environments.spreadsheet.variations import VARIATIONS, variation
from ludus.protocol import Call
from ludus.server import DIFFICULTIES, Difficulty, ToolError
from ludus.server.authoring.partition import SPLITS, SplitType

each_level = pytest.mark.parametrize("level", DIFFICULTIES)
VARIANTS = [(kind.name, variant) for kind in KINDS.values() for variant in range(kind.variants)]


class Opened:
    """A workbook with the tools of the environment, called directly."""

    def __init__(self, book: Book) -> None:
        self.desk = BookDesk(book)
        self._tools = [tools(cast(Any, self)) for tools in (CellTools, SheetTools, FeatureTools)]

    def call(self, tool: str, **arguments: Any) -> str:
        owner = next(one for one in self._tools if hasattr(one, tool))
        return cast(str, getattr(owner, tool)(**arguments))


def worked(scene: Scene, calls: list[Call]) -> Book:
    opened = Opened(scene.book)
    for one in calls:
        opened.call(one.tool, **one.arguments)
    return opened.desk.book


def goal_of(name: str, variant: int, level: Difficulty) -> tuple[Scene, Goal]:
    seed = sum(map(ord, name)) + variant
    scene = make_scene(list(DOMAINS)[seed % len(DOMAINS)], level, seed)
    return scene, KINDS[name].make(scene, variant)


def values(*formulas: str, **cells: Any) -> list[Scalar]:
    """Calculate formulas in column Z of a sheet with some cells."""
    sheet = Sheet("S")
    for name, content in cells.items():
        reference = parse_reference(name)
        assert reference is not None
        sheet.put(reference.area.top, reference.area.left, content)
    for row, text in enumerate(formulas, 1):
        sheet.put(row, 26, Formula(text))
    calculation = Calculation(Book([sheet]))
    return [calculation.value("S", row, 26) for row in range(1, len(formulas) + 1)]


# Splits


@given(index=st.integers(0, 2**40), split=st.sampled_from(SPLITS), level=st.sampled_from(DIFFICULTIES))
def test_every_goal_of_a_task_belongs_to_its_split(index: int, split: SplitType, level: Difficulty) -> None:
    task = Spreadsheet.load_task(split, index, [level])
    assert task == Spreadsheet.load_task(split, index, [level])
    goals = [goal.split("/") for goal in task.goals.split(" ")]
    assert {split_of_goal(name, int(variant)) for name, variant in goals} == {split}
    assert GOALS[level][0] <= len({name for name, _ in goals}) == len(goals) <= GOALS[level][1]


def test_no_goal_is_in_two_splits_and_some_kinds_are_in_one_only() -> None:
    pools = {split: {(kind, variant) for kind, every in pool(split).items() for variant in every} for split in SPLITS}
    assert set.union(*pools.values()) == set(VARIANTS)
    assert sum(map(len, pools.values())) == len(VARIANTS)
    for split in ("validation", "test"):
        assert len(pools[split]) >= 30
        assert len(pool(split)) > 3 * GOALS["hard"][1]
        assert len(pool(split).keys() - pool("train").keys()) >= 4


def words_of(request: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", request.lower()))


@pytest.mark.suite("spreadsheet", first=1)
@each_level
def test_pasting_the_calls_of_the_nearest_training_goal_earns_nothing(level: Difficulty) -> None:
    training = [goal for index in range(300) for goal in build(Spreadsheet.load_task("train", index))[1]]
    known = [(words_of(goal.request), goal.solution) for goal in training]
    earned = 0.0
    for split in ("validation", "test"):
        for index in range(20):
            task = Spreadsheet.load_task(split, index, [level])
            scene, goals = build(task)
            opened = Opened(scene.book)
            for goal in goals:
                words = words_of(goal.request)
                for one in max(known, key=lambda pair: len(words & pair[0]) / len(words | pair[0]))[1]:
                    with suppress(ToolError):
                        opened.call(one.tool, **one.arguments)
            reached = evaluate(opened.desk.book, scene, goals, task.draw).reached
            earned += sum(reached) / len(reached)
    assert earned <= 0.1 * 40


# Formulas


def test_errors_pass_through_and_can_be_caught() -> None:
    found = values(
        "1/0", "Z1+1", 'IFERROR(Z1,"x")', "ISERROR(Z1)", "#REF!+1", "SUM(Z1:Z1)", 'IFNA(NA(),"n")', "SQRT(-1)"
    )
    div = ErrorValue.DIV
    assert found == [div, div, "x", True, ErrorValue.REF, div, "n", ErrorValue.NUM]


def test_a_cell_that_depends_on_itself_is_found_without_end() -> None:
    sheet = Sheet(
        "S", {(1, 1): Formula("B1+1"), (1, 2): Formula("A1"), (2, 1): Formula("SUM(A:A)"), (3, 3): Formula("1+1")}
    )
    calculation = Calculation(Book([sheet]))
    assert calculation.value("S", 1, 1) is calculation.value("S", 2, 1) is ErrorValue.CIRCULAR
    assert calculation.value("S", 3, 3) == 2.0


def test_a_long_chain_of_cells_needs_no_recursion() -> None:
    sheet = Sheet("S", {(row, 1): Formula(f"A{row - 1}+1" if row > 1 else "1") for row in range(1, 1001)})
    assert Calculation(Book([sheet])).value("S", 1000, 1) == 1000.0


@pytest.mark.parametrize(
    "formula",
    [
        "SUMPRODUCT((A1:Z1000>0)*(A1:Z1000<9)*(A1:Z1000>1)*(A1:Z1000>2)*(A1:Z1000>2)*(A1:Z1000>2)*(A1:Z1000>2))",
        "SUMPRODUCT(COUNTIF(A1:A1000,A1:A1000))",
        'SUMPRODUCT(COUNTIF(A1:A1000,"*a"&A1:A20))',
        "SUMPRODUCT(LEN(PROPER(AB1&A1:A1000)))",
        "SUMPRODUCT((AB1&A1:A1000=AB1)*1)",
        'LEN(TEXTJOIN("",TRUE,AC1:AC400))',
    ],
)
def test_a_calculation_does_a_bounded_amount_of_work(formula: str) -> None:
    sheet = Sheet("S", {(row, column): 1 for row in range(1, 1001) for column in (1, 26)})
    sheet.put(1, 28, "x" * 30_000)
    for row in range(1, 401):
        sheet.put(row, 29, "x" * 32_000)
    sheet.put(1, 30, Formula(formula))
    with pytest.raises(TooMuchWork):
        Calculation(Book([sheet])).value("S", 1, 30)


def test_rounding_up_and_down_ignores_what_subtraction_leaves_behind() -> None:
    assert values("ROUNDUP(51.6-51,1)", "ROUNDUP(MOD(51.6,3),1)", "ROUNDDOWN(51.6-51.3,1)") == [0.6, 0.6, 0.3]
    assert values("TRUNC(0.5999999999999,1)", "TRUNC(6.9999999999999)", "ROUNDUP(0.600000000001,1)") == [0.6, 6.0, 0.7]
    assert values("ROUNDUP(0.60000000000014,12)", "ROUNDDOWN(1234567890123.9,0)") == [0.600000000001, 1234567890123.0]


def test_texts_stay_within_a_cell() -> None:
    grown = 'SUBSTITUTE("' + "b" * 40 + '","b","' + "b" * 40 + '")'
    for _ in range(3):
        grown = f'SUBSTITUTE({grown},"b","{"b" * 40}")'
    assert values(grown, "A1&A1", A1="x" * 20_000) == [ErrorValue.VALUE, ErrorValue.VALUE]


def test_only_ascii_digits_are_numbers() -> None:
    assert read_number("12.5") == 12.5
    assert read_number("2025-03-01") == 45717.0
    assert [
        read_number(text) for text in ("１２", "٣", "½", "1e999", "1_000", "", " ", "-", "2025-02-30", "9" * 400)
    ] == [None] * 10
    assert values('"１２"+1', '"12"+1') == [ErrorValue.VALUE, 13.0]


@pytest.mark.parametrize(
    "text",
    [
        "[a.xlsx]S!A1", "'[a.xlsx]S'!A1", "cmd|' /C calc'!A0", "{1,2}", "1;2", "", "(", "1+", "A1 B1", "@A1", "SUM(A1",
        '"a', "(" * 60 + "1" + ")" * 60, "+".join(["1"] * 900), "A1048577", "XFE1", "x" * 3000,
    ],
)  # fmt: skip
def test_what_is_no_formula_here_is_refused(text: str) -> None:
    with pytest.raises(SyntaxFault):
        parse(text)


@given(st.text("A1$:!'\"(),+-*/^&=<>% #.SUMIF{}[]", max_size=60))
@settings(max_examples=150)
def test_any_text_is_a_formula_or_refused_by_name(text: str) -> None:
    try:
        parse(text)
    except SyntaxFault:
        return
    found = values(text, A1=2, B1="x")
    assert isinstance(found[0], (float, str, bool, ErrorValue))


def compared(seeds: range, formulas: int, folder: Path) -> list[str]:
    """Return the formulas whose value in LibreOffice is another one."""
    books = [book_of(seed, formulas) for seed in seeds]
    different = []
    for book, file in zip(books, recalculated([to_xlsx(book) for book in books], folder), strict=True):
        calculation = Calculation(book, 10**9)
        for row in range(1, formulas + 1):
            value = calculation.value("Data", row, 8)
            if not is_equal(value, file["Data"].cell(row, 8).value):
                different.append(f"{book.sheets[0].contents[row, 8]}: {value}, {file['Data'].cell(row, 8).value}")
    return different


def is_equal(value: Scalar, other: Any) -> bool:
    if isinstance(other, datetime):
        other = (other - datetime(1899, 12, 30)).days
    if isinstance(value, ErrorValue):
        return bool(other == value.value)
    if value == "":
        return other in (None, "")
    if isinstance(value, float) and not isinstance(other, (bool, str)) and other is not None:
        return abs(value - float(other)) <= 1e-9 * max(1.0, abs(value))
    return type(value) is type(other) and value == other


@NEEDS_LIBREOFFICE
@pytest.mark.suite("spreadsheet")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(6))
def test_libreoffice_calculates_the_same_from_random_formulas(part: int, tmp_path: Path) -> None:
    assert compared(range(100 * part, 100 * part + 100), 100, tmp_path) == []


@NEEDS_LIBREOFFICE
@pytest.mark.suite("spreadsheet")
@pytest.mark.timeout(900)
@each_level
def test_libreoffice_calculates_what_the_reference_expects_from_the_oracles_files(
    level: Difficulty, tmp_path: Path
) -> None:
    cases = [build(Spreadsheet.load_task("train", index, [level])) for index in range(60)]
    cases = [(scene, goals) for scene, goals in cases if "XLOOKUP" not in str([goal.solution for goal in goals])]
    files = [to_xlsx(worked(scene, [one for goal in goals for one in goal.solution])) for scene, goals in cases]
    for (scene, goals), file in zip(cases, recalculated(files, tmp_path), strict=True):
        for goal in goals:
            for (sheet, row, column), wanted in (goal.expected(scene.data) if goal.expected else {}).items():
                found = file[sheet].cell(row, column).value
                close = isinstance(wanted, float) and is_equal(
                    round(wanted, 6), found if isinstance(found, datetime) else round(found, 6)
                )
                assert close or is_equal(wanted, found), (goal.request, sheet, row, column)


# The workbook


def full_book() -> Book:
    sheet = Sheet(
        "Data & more",
        {(1, 1): "a", (2, 1): 1.5, (3, 1): True, (4, 2): Formula("SUM(A1:A3)"), (5, 1): "=not one", (6, 1): " x "},
    )
    sheet.style(2, 1, number="$#,##0.00", bold=True, fill="FFFF00")
    sheet.style(9, 9, fill="C6EFCE")
    sheet.validations = [
        Validation(Area(1, 3, 5, 3), "list", ("a", 'b "c"')),
        Validation(Area(1, 4, 5, 4), "date", (), 45000.0, 45100.0),
        Validation(Area(6, 4, 6, 4), "whole", (), 1.0, None), Validation(Area(7, 4, 7, 4), "decimal", (), None, 2.5),
    ]  # fmt: skip
    sheet.highlights = [
        Highlight(Area(1, 1, 3, 1), ">=", 1.5, "FFC7CE"),
        Highlight(Area(1, 2, 3, 2), "=", 'a "b"', "FFFF00"),
    ]
    sheet.charts = [
        Chart("pie", "T & <u>", "'Data & more'!A2:A3", "'Data & more'!B2:B3", (4, 5)),
        Chart("bar", "B", "Other!A1:A2", "", (1, 1)),
    ]
    sheet.frozen = (2, 1)
    reference = parse_reference("'Data & more'!A1:A3")
    assert reference is not None
    functions = 'IFNA(XLOOKUP(A1,A1:A3,A1:A3),MAXIFS(A1:A3,A1:A3,">0"))&TEXTJOIN("",TRUE,"XLOOKUP(")'
    return Book([sheet, Sheet("Other", {(1, 1): Formula(functions)}, hidden=True)], {"Part": reference})


def test_a_file_holds_all_that_a_workbook_has() -> None:
    assert from_xlsx(to_xlsx(full_book())) == full_book()


@pytest.mark.suite("breadth")
@each_level
def test_a_file_holds_all_that_the_workbooks_of_tasks_have(level: Difficulty) -> None:
    for index in range(60):
        scene, goals = build(Spreadsheet.load_task("train", index, [level]))
        book = worked(scene, [one for goal in goals for one in goal.solution])
        assert from_xlsx(to_xlsx(book)) == book


def test_formulas_follow_inserted_and_deleted_rows_and_columns() -> None:
    book = Book(
        [Sheet("S", {(9, 1): Formula("SUM(A2:A8)+$A$3+B:B"), (1, 2): 1}), Sheet("T", {(1, 1): Formula("S!A5*A5")})]
    )
    sheet, other = book.sheets
    book.insert(sheet, True, 3, 2)
    assert sheet.contents[11, 1] == Formula("SUM(A2:A10)+$A$5+B:B")
    assert other.contents[1, 1] == Formula("S!A7*A5")
    book.delete(sheet, True, 5, 1)
    assert sheet.contents[10, 1] == Formula("SUM(A2:A9)+#REF!+B:B")
    book.insert(sheet, False, 1, 1)
    assert sheet.contents[10, 2] == Formula("SUM(B2:B9)+#REF!+C:C")
    book.delete(sheet, False, 3, 1)
    assert sheet.contents[10, 2] == Formula("SUM(B2:B9)+#REF!+#REF!")
    book.rename(sheet, "My data")
    assert other.contents[1, 1] == Formula("'My data'!B6*A5")
    book.drop(sheet)
    assert other.contents[1, 1] == Formula("#REF!*A5")


def test_a_copied_formula_moves_its_relative_references_only() -> None:
    assert shifted('A1+$A1+A$1+$A$1+SUM(B2:$C$3)&"A1"', 2, 1) == 'B3+$A3+B$1+$A$1+SUM(C4:$C$3)&"A1"'
    assert shifted("A1", -1, 0) == "#REF!"


def test_a_refused_change_leaves_the_workbook_as_it_was_and_changes_can_be_undone() -> None:
    opened = Opened(Book([Sheet("S", {(1, 1): 5})]))
    with pytest.raises(ToolError, match="not available"):
        opened.call("write_cells", sheet="S", start="A1", rows=[[1], [2], ["=RAND()"]])
    assert opened.desk.book.sheets[0].contents == {(1, 1): 5}
    with pytest.raises(ToolError, match="500000 are the most"):
        opened.call("write_cells", sheet="S", start="A2", rows=[["x" * 2000] * 50] * 6)
    opened.call("clear_range", sheet="S", range="A1:AZ1000")
    assert opened.desk.book.sheets[0].contents == {}
    opened.call("undo", steps=1)
    assert opened.desk.book.sheets[0].contents[1, 1] == 5


def test_texts_are_entered_as_typed() -> None:
    opened = Opened(Book([Sheet("S")]))
    opened.call(
        "write_cells",
        sheet="S",
        start="A1",
        rows=[["12.5", "'12.5", "2025-03-01", "15%", "true", "=1+1", "", None, "a", 3, True, "１"]],
    )
    sheet = opened.desk.book.sheets[0]
    assert [sheet.contents.get((1, column)) for column in range(1, 13)] == [
        12.5, "12.5", 45717, 0.15, True, Formula("1+1"), None, None, "a", 3, True, "１",
    ]  # fmt: skip
    assert (
        opened.call("read_range", sheet="s", range="A1:F1").splitlines()[1]
        == '1 | 12.5 | "12.5" | 2025-03-01 | 0.15 | TRUE | 2'
    )


# Goals


def outcome(scene: Scene, goal: Goal, calls: list[Call]) -> Outcome:
    return evaluate(worked(scene, calls), scene, [goal], 7)


@pytest.mark.suite("spreadsheet", first=12)
@pytest.mark.parametrize(("name", "variant"), random.Random(5).sample(VARIANTS, len(VARIANTS)))
def test_each_goal_is_missed_by_nothing_and_reached_by_its_solution(name: str, variant: int) -> None:
    for level in DIFFICULTIES if variant % 5 == 0 else DIFFICULTIES[variant % 3 : variant % 3 + 1]:
        scene, goal = goal_of(name, variant, level)
        assert outcome(scene, goal, []) == ([False], ())
        assert outcome(scene, goal, goal.solution) == ([True], ())


@pytest.mark.parametrize("name", sorted(KINDS))
def test_what_formulas_must_give_changes_with_the_data(name: str) -> None:
    for variant in range(KINDS[name].variants):
        scene, goal = goal_of(name, variant, "easy")
        if goal.expected is None:
            continue
        found = [
            goal.expected(scene.data),
            *(goal.expected(variation(scene, which, 7)) for which in range(1, VARIATIONS + 1)),
        ]
        constant = [cell for cell in found[0] if len({one[cell] for one in found}) == 1]
        assert len(constant) <= 0.7 * len(found[0]), (variant, constant)


def mutants(formula: str) -> set[str]:
    """Return formulas with a typical mistake: a range too short, another comparison, a reference that moves."""
    found = set()
    for match in re.finditer(r":(\$?[A-Z]{1,2}\$?)(\d+)", formula):
        found.add(f"{formula[: match.start(2)]}{int(match[2]) - 1}{formula[match.end(2) :]}")
    for match in re.finditer(r"(\$[A-Z]{1,2}\$)(\d+):", formula):
        found.add(f"{formula[: match.start(2)]}{int(match[2]) + 1}{formula[match.end(2) :]}")
    for match in re.finditer(r"(?<![<>\"&])(>=|<=|>|<)(?![<>=])", formula):
        other = {">": ">=", ">=": ">", "<": "<=", "<=": "<"}[match[1]]
        found.add(formula[: match.start()] + other + formula[match.end() :])
    return found - {formula}


SAME = {"share": 4, "weighted_marks": 10}
"""How many of these formulas are as good as right: they differ in the range of a test whether a sum is 0, or in a row
of texts that SUM skips."""


@pytest.mark.suite("spreadsheet", first=4)
@pytest.mark.parametrize("name", random.Random(3).sample(sorted(KINDS), len(KINDS)))
def test_formulas_with_typical_mistakes_miss_the_goal(name: str) -> None:
    survived = tried = 0
    for variant in range(KINDS[name].variants):
        scene, goal = goal_of(name, variant, "medium")
        for at, one in enumerate(goal.solution):
            if one.tool != "fill_formula":
                continue
            for mutant in sorted(mutants(one.arguments["formula"])):
                calls = [*goal.solution]
                calls[at] = Call(one.tool, {**one.arguments, "formula": mutant})
                try:
                    book = worked(scene, calls)
                except ToolError:  # a range that begins in row 0
                    continue
                tried += 1
                survived += evaluate(book, scene, [goal], 7).reached == [True]
    assert survived <= max(tried * 0.1, SAME.get(name, 0)), f"{survived} of {tried} are taken for right ones"


def leave_out_row(number: int, first: bool) -> Callable[[str], str]:
    """Return a change of formulas: a range of several rows loses its first or last one."""

    def change(formula: str) -> str:
        ranges = [match for match in re.finditer(r"(\$?[A-Z]{1,2}\$?)(\d+):(\$?[A-Z]{1,2}\$?)(\d+)", formula)
                  if int(match[2]) < int(match[4])]  # fmt: skip
        if number >= len(ranges):
            return formula
        match = ranges[number]
        top, bottom = (int(match[2]) + 1, int(match[4])) if first else (int(match[2]), int(match[4]) - 1)
        return f"{formula[: match.start()]}{match[1]}{top}:{match[3]}{bottom}{formula[match.end() :]}"

    return change


def other_limit(number: int, kind: str) -> Callable[[str], str]:
    """Return a change of formulas: another comparison, or a limit that is one step too high."""

    def change(formula: str) -> str:
        found = list(re.finditer(r"(>=|<=|>|<)(\d+(?:\.\d+)?)?(?![<>=])", formula))
        if number >= len(found):
            return formula
        match = found[number]
        sign, limit = match[1], match[2] or ""
        if kind == "side":
            sign = {">": ">=", ">=": ">", "<": "<=", "<=": "<"}[sign]
        elif limit in ("", "0"):
            return formula
        else:
            limit = str(int(limit) + 1) if limit.isdigit() else f"{float(limit) + 0.01:.2f}"
        return f"{formula[: match.start()]}{sign}{limit}{formula[match.end() :]}"

    return change


SLIPS = {
    **{f"the first row of range {number + 1} left out": leave_out_row(number, True) for number in range(5)},
    **{f"the last row of range {number + 1} left out": leave_out_row(number, False) for number in range(5)},
    **{f"comparison {number + 1} includes the limit or not": other_limit(number, "side") for number in range(2)},
    **{f"limit {number + 1} is a step too high": other_limit(number, "step") for number in range(2)},
}
OFTEN_SLIPPED = ("above_average", "record_card", "top_values", "count_by", "flag", "share", "between_dates")


@pytest.mark.suite("spreadsheet", first=3)
@pytest.mark.parametrize("name", [*OFTEN_SLIPPED, *sorted(KINDS.keys() - set(OFTEN_SLIPPED))])
@pytest.mark.timeout(300)
def test_a_range_without_an_end_and_a_limit_on_the_wrong_side_miss_the_goal(name: str) -> None:
    survivors = []
    for variant in range(KINDS[name].variants):
        scene, goal = goal_of(name, variant, DIFFICULTIES[variant % 3])
        if goal.expected is None:
            continue
        for slip, change in SLIPS.items():
            calls = replaced(goal, lambda cell, change=change: change(cell) if cell.startswith("=") else cell)  # type: ignore[misc]
            if calls != goal.solution and evaluate(worked(scene, calls), scene, [goal], 7).reached == [True]:
                survivors.append((variant, slip, calls))
    assert survivors == []


@pytest.mark.suite("spreadsheet", first=20)
@pytest.mark.parametrize(("name", "variant"), random.Random(6).sample(VARIANTS, len(VARIANTS)))
def test_other_right_formulas_and_calls_reach_each_goal(name: str, variant: int) -> None:
    scene, goal = goal_of(name, variant, DIFFICULTIES[variant % 3])
    for what, policy in equivalents([goal]).items():
        calls = [action for action in policy if isinstance(action, Call)]
        assert evaluate(worked(scene, calls), scene, [goal], 7) == ([True], ()), (what, calls)


def test_many_goals_have_other_right_formulas() -> None:
    kinds = Counter(what for name, variant in VARIANTS for what in equivalents([goal_of(name, variant, "medium")[1]]))
    assert min(kinds[what] for what in ("other functions", "whole columns", "spaces and small letters")) >= 20


@pytest.mark.suite("spreadsheet", first=1)
@each_level
async def test_other_right_ways_earn_what_the_oracle_earns(player: Any, level: Difficulty) -> None:
    for index in range(3):
        policies = Spreadsheet.equivalents(player.task(f"spreadsheet-{level}", "test", index))
        assert policies
        for what, policy in policies.items():
            [episode] = await player.start(f"spreadsheet-{level}", "test", index)
            await player.play(episode.episode, policy)
            assert (await player.rewards(episode.episode))[0].value == 1.0, what


def test_round_rounds_converted_units_as_asked() -> None:
    """Halves below 0, which ROUND takes down, do not occur."""
    scene, goal = goal_of("units", 8, "easy")
    assert "Fahrenheit" in goal.request
    assert goal.expected is not None
    for seed in range(20):
        assert all(cast(float, value) >= 0 for value in goal.expected(scene.variation(1, seed)).values())
    calls = replaced(goal, lambda formula: "=ROUND(B2*9/5+32,0)")
    assert evaluate(worked(scene, calls), scene, [goal], 7).reached == [True]


MATCHED = st.text("ab*?~.\n", max_size=8)


def matches(pattern: str, text: str) -> bool:
    """Return whether a text matches a pattern, by trying everything."""
    if not pattern:
        return not text
    if pattern[0] == "*":
        return any(matches(pattern[1:], text[at:]) for at in range(len(text) + 1))
    quoted = pattern[0] == "~" and pattern[1:2] in ("*", "?", "~") and pattern[1:2] != ""
    if quoted:
        pattern = pattern[1:]
    return bool(text) and (pattern[0] == text[0] or pattern[0] == "?" and not quoted) and matches(pattern[1:], text[1:])


@settings(max_examples=300)
@given(MATCHED, MATCHED)
def test_wildcards_match_what_trying_everything_matches(pattern: str, text: str) -> None:
    test = wildcards(pattern)
    assert (test(text) if test else pattern == text) == matches(pattern, text)


def test_wildcards_that_nearly_match_everywhere_take_little_time() -> None:
    test, text = wildcards("*" + "a" * 200 + "b"), "a" * 2_000
    assert test is not None
    assert not any(test(text) for _ in range(20_000))


@pytest.mark.parametrize(
    ("name", "variant", "usual"),
    [
        ("sum_by", 0, "=SUM(IF({groups}=A{row},{counts}))"),
        ("sum_by", 0, "=SUM(IF({groups}=A{row},{counts},0))"),
        ("sum_by", 0, "=SUMPRODUCT(--({groups}=A{row}),{counts})"),
        ("average_by", 0, "=IFERROR(AVERAGE(IF({groups}=A{row},{counts})),0)"),
        ("extreme_by", 0, "=MAX(IF({groups}=A{row},{counts}))"),
        ("sum_by", 0, '=SUM(IF({groups}=A{row},IF({counts}>=0,{counts},""),0))'),
    ],
)
def test_conditions_on_ranges_give_ranges(name: str, variant: int, usual: str) -> None:
    scene, goal = goal_of(name, variant, "medium")
    [one] = goal.solution
    top = int(str(one.arguments["start"])[1:])
    groups, counts = scene.main.far("group"), scene.main.far("count")
    rows = [[usual.format(groups=groups, counts=counts, row=top + at)] for at in range(len(one.arguments["rows"]))]
    calls = [Call(one.tool, {**one.arguments, "rows": rows})]
    assert evaluate(worked(scene, calls), scene, [goal], 7).reached == [True]


def replaced(goal: Goal, change: Callable[[str], str]) -> list[Call]:
    """Return the calls of a goal's solution with other formulas."""
    found = []
    for one in goal.solution:
        arguments = dict(one.arguments)
        if "formula" in arguments:
            arguments["formula"] = change(arguments["formula"])
        if "rows" in arguments:
            arguments["rows"] = [
                [change(cell) if isinstance(cell, str) else cell for cell in row] for row in arguments["rows"]
            ]
        found.append(Call(one.tool, arguments))
    return found


@pytest.mark.suite("spreadsheet", first=11)
@pytest.mark.parametrize(
    ("name", "variant", "before", "after"),
    [
        ("account", 2, r"D5<0", "D5<=0"),
        ("share", 0, r"=IF\(SUM\(.*?\)=0,0,(.*)\)$", r"=\1"),
        ("share_by", 1, r"=IF\(SUM\(.*?\)=0,0,(.*)\)$", r"=\1"),
        ("weighted", 1, r"=IF\(SUM\(.*?\)=0,0,(.*)\)$", r"=\1"),
        ("loan", 1, r"=MIN\(.*", "=$B$4"),
        ("plan_and_actual", 1, r'=IF\(B2=0,"n/a",(.*)\)$', r"=\1"),
        ("plan_and_actual", 0, "C2>B2", "C2>=B2"),
        ("weighted_marks", 2, ">=50", ">50"),
        ("weighted_marks", 3, ">=20", ">20"),
        ("record_card", 0, r'=IFERROR\((.*),"not found"\)$', r"=\1"),
        ("top_values", 1, r"=INDEX\((.*?),MATCH\((.*\)),(.*),0\)\)", r"=LOOKUP(2,1/(\3=\2),\1)"),
    ],
)
@pytest.mark.parametrize("seed", range(4))
def test_the_rare_cases_that_a_request_names_are_tried(
    name: str, variant: int, before: str, after: str, seed: int
) -> None:
    scene, goal = goal_of(name, variant, "medium")
    calls = replaced(goal, lambda formula: re.sub(before, after, formula))
    assert calls != goal.solution
    assert evaluate(worked(scene, goal.solution), scene, [goal], seed).reached == [True]
    assert evaluate(worked(scene, calls), scene, [goal], seed).reached == [False]


def test_damage_costs_every_goal() -> None:
    scene, goals = build(Spreadsheet.load_task("train", 3, ["hard"]))
    calls = [one for goal in goals for one in goal.solution]
    stray = Call("write_cells", {"sheet": scene.main.sheet, "start": "AZ900", "rows": [["note"]]})
    assert all(evaluate(worked(scene, calls), scene, goals, 1).reached)
    found = evaluate(worked(scene, [*calls, stray]), scene, goals, 1)
    assert not any(found.reached)
    assert found.damage == [("cell", scene.main.sheet, 900, 52)]


def test_some_of_several_goals_earn_their_share() -> None:
    scene, goals = build(Spreadsheet.load_task("train", 3, ["hard"]))
    assert evaluate(worked(scene, goals[0].solution), scene, goals, 1).reached == [True] + [False] * (len(goals) - 1)


# Episodes


@each_level
async def test_the_prompt_has_all_requests_and_hides_what_is_graded(player: Any, level: Difficulty) -> None:
    for index in range(10):
        task = player.task(f"spreadsheet-{level}", "validation", index)
        [episode] = await player.start(f"spreadsheet-{level}", "validation", index)
        text = episode.prompt[0].content[0].text
        assert all(goal.request in text for goal in build(task)[1])
        assert str(task.draw) not in text
        assert task.goals not in text


def test_the_card_says_how_many_exploits_there_are() -> None:
    counts = {len(exploits.policies(*build(Spreadsheet.load_task("train", index)))) for index in range(60)}
    card = (Path(exploits.__file__).parent / "README.md").read_text("utf-8")
    assert f"The class lists up to {max(counts)} for a task" in card


@pytest.mark.suite("spreadsheet", first=1)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("index", range(60))
async def test_no_exploit_earns_anything(player: Any, index: int) -> None:
    level = DIFFICULTIES[index % 3]
    policies = Spreadsheet.exploits(player.task(f"spreadsheet-{level}", "train", index))
    assert len(policies) >= 35
    for what, policy in policies.items():
        [episode] = await player.start(f"spreadsheet-{level}", "train", index, seed=index)
        await player.play(episode.episode, policy)
        total, _ = await player.rewards(episode.episode)
        assert total.value == 0.0, (what, player.task(f"spreadsheet-{level}", "train", index).goals)
