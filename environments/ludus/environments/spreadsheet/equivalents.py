"""Other right ways to do what the goals of a task ask for, which all earn what the oracle earns."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Final

from ludus.environments.spreadsheet.engine.addresses import cell_name, parse_reference
from ludus.environments.spreadsheet.engine.book import shifted
from ludus.environments.spreadsheet.goals.goal import Goal, call, write
from ludus.protocol import Answer, Call, StepResult

Policy = Generator[Call | Answer, StepResult, None]
Rewrite = Callable[[str], str]

_RANGE: Final = r"(?:'[^']+'!|\w+!)?\$?[A-Z]{1,2}\$?\d+:\$?[A-Z]{1,2}\$?\d+"
_CELL: Final = r"(?:'[^']+'!|\w+!)?\$?[A-Z]{1,2}\$?\d+"
_OTHER_FUNCTIONS: Final[Sequence[tuple[re.Pattern[str], str]]] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (rf"\bSUMIF\(({_RANGE}),({_CELL}),({_RANGE})\)", r"SUMPRODUCT((\1=\2)*\3)"),
        (rf"\bCOUNTIF\(({_RANGE}),({_CELL})\)", r"SUMPRODUCT(--(\1=\2))"),
        (rf"\bAVERAGEIF\(({_RANGE}),({_CELL}),({_RANGE})\)", r"(SUMIF(\1,\2,\3)/COUNTIF(\1,\2))"),
        (rf'\bCOUNTIFS\(({_RANGE}),({_CELL}),({_RANGE}),"([<>]=?)([\d.]+)"\)', r"SUMPRODUCT((\1=\2)*(\3\4\5))"),
        (rf"\bMAXIFS\(({_RANGE}),({_RANGE}),({_CELL})\)", r"MAX(IF(\2=\3,\1))"),
        (rf"\bRANK\(({_CELL}),({_RANGE}),0\)", r'(COUNTIF(\2,">"&\1)+1)'),
        (rf"\bRANK\(({_CELL}),({_RANGE}),1\)", r'(COUNTIF(\2,"<"&\1)+1)'),
        (rf"\bAVERAGE\(({_RANGE})\)", r"(SUM(\1)/COUNT(\1))"),
        (r"\bIF\(AND\(([^(),]+),([^(),]+)\),([^(),]+),([^(),]+)\)", r"IF(\1,IF(\2,\3,\4),\4)"),
    )
)
_COLUMN_RANGE: Final = re.compile(r"((?:'[^']+'|\b\w+)!)(\$[A-Z]{1,2})\$\d+:\2\$\d+")
_WHOLE_COLUMNS: Final = frozenset(
    (
        "SUM", "AVERAGE", "MEDIAN", "MIN", "MAX", "SUMIF", "COUNTIF", "AVERAGEIF", "SUMIFS", "COUNTIFS",
        "MAXIFS", "MINIFS", "IF", "IFERROR", "LARGE", "SMALL", "RANK",
    )
)  # fmt: skip
"""Functions that skip texts and empty cells of whole columns."""
_FUNCTION: Final = re.compile(r"([A-Z]+)\(")
_TEXTS: Final = re.compile(r'("[^"]*"|\'[^\']*\')')


def equivalents(goals: Sequence[Goal]) -> Mapping[str, Policy]:
    """Return policies that reach all goals by other calls or formulas, by what is different; see the README."""
    calls = [one for goal in goals for one in goal.solution]
    found = {
        "cell by cell": [part for one in calls for part in _by_cells(one)],
        "looks in between": [part for one in calls for part in _with_looks(one)],
        "a mistake taken back": [part for one in calls for part in _after_a_mistake(one)],
    }
    rewrites: dict[str, Rewrite] = {
        "other functions": _other_functions, "whole columns": _whole_columns, "spaces and small letters": _spaced,
    }  # fmt: skip
    for name, rewrite in rewrites.items():
        rewritten = [_rewritten(one, rewrite) for one in calls]
        if rewritten != calls:
            found[name] = rewritten
    if len(goals) > 1 and all(one.tool in ("write_cells", "fill_formula") for one in calls):
        found["goals in reverse"] = [one for goal in reversed(goals) for one in goal.solution]
    return {name: _play(made) for name, made in found.items() if name == "looks in between" or made != calls}


def _play(calls: Iterable[Call]) -> Policy:
    for one in calls:  # noqa: UP028 - a list takes no results, which `yield from` would send it
        yield one
    yield Answer("Done.")


def _by_cells(one: Call) -> list[Call]:
    """Return calls that write a filled range cell by cell, with the formulas that a fill would give."""
    reference = parse_reference(str(one.arguments.get("range", ""))) if one.tool == "fill_formula" else None
    if reference is None:
        return [one]
    area = reference.area
    formula = str(one.arguments["formula"]).removeprefix("=")
    rows: list[list[Any]] = [
        [f"={shifted(formula, row - area.top, column - area.left)}" for column in range(area.left, area.right + 1)]
        for row in range(area.top, area.bottom + 1)
    ]
    return [write(str(one.arguments["sheet"]), cell_name(area.top, area.left), *rows)]


def _with_looks(one: Call) -> list[Call]:
    sheet = one.arguments.get("sheet")
    return [one] if one.tool != "write_cells" else [call("read_range", sheet=sheet, range="A1:C6"), one]


def _after_a_mistake(one: Call) -> list[Call]:
    if one.tool != "write_cells":
        return [one]
    wrong = write(one.arguments["sheet"], one.arguments["start"], ["a mistake"])
    return [wrong, call("undo", steps=1), one]


def _rewritten(one: Call, rewrite: Rewrite) -> Call:
    arguments = dict(one.arguments)
    if one.tool == "fill_formula":
        arguments["formula"] = rewrite(arguments["formula"])
    elif one.tool == "write_cells":
        arguments["rows"] = [
            [rewrite(cell) if isinstance(cell, str) and cell.startswith("=") else cell for cell in row]
            for row in arguments["rows"]
        ]
    return Call(one.tool, arguments)


def _other_functions(formula: str) -> str:
    for pattern, replacement in _OTHER_FUNCTIONS:
        formula = pattern.sub(replacement, formula)
    return formula


def _whole_columns(formula: str) -> str:
    if not set(_FUNCTION.findall(_TEXTS.sub("", formula))) <= _WHOLE_COLUMNS:
        return formula
    return _COLUMN_RANGE.sub(r"\1\2:\2", formula)


def _spaced(formula: str) -> str:
    """Return a formula with spaces after commas, small letters in names of functions, and parentheses around it all."""
    parts = _TEXTS.split(formula[1:])
    for at in range(0, len(parts), 2):
        parts[at] = _FUNCTION.sub(lambda match: f"{match[1].lower()}(", parts[at]).replace(",", ", ")
    return f"=({''.join(parts)})"


__all__ = ["equivalents"]
