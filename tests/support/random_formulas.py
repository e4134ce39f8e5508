"""Random formulas over a sheet of data, for comparing two programs that calculate them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from ludus.environments.spreadsheet.engine.book import Book, Formula, Sheet

ROWS: Final = 12
WORDS: Final = ("North", "south", "East Side", "a-b-c", "x1", "North", "Zed, Ann", " two  spaces ", "90 days", "o'neil")

Make = Callable[[random.Random], str]


def book_of(seed: int, count: int) -> Book:
    """Return a workbook with data in A1:F12 of Data, and formulas in column H.

    Columns are numbers with gaps (A), whole numbers (B), texts (C), dates (D), categories (E) and amounts (F).
    """
    rng = random.Random(seed)
    sheet = Sheet("Data")
    for row in range(1, ROWS + 1):
        if rng.random() > 0.15:
            sheet.put(row, 1, round(rng.uniform(-50, 50), rng.randint(0, 3)))
        sheet.put(row, 2, rng.randint(-5, 20))
        sheet.put(row, 3, rng.choice(WORDS))
        sheet.put(row, 4, 45_000 + rng.randrange(900))
        sheet.put(row, 5, rng.choice(("red", "green", "blue")))
        sheet.put(row, 6, rng.randint(100, 9999) / 100)
        sheet.style(row, 4, number="yyyy-mm-dd")
    for place in range(count):
        sheet.put(1 + place, 8, Formula(formula(rng)))
    return Book([sheet])


def formula(rng: random.Random) -> str:
    """Return a random formula."""
    return rng.choice((_number, _number, _text, _logical))(rng, 3)


def _cell(rng: random.Random, columns: str) -> str:
    return f"{rng.choice(columns)}{rng.randint(1, ROWS)}"


def _range(rng: random.Random, column: str) -> str:
    first, last = sorted(rng.sample(range(1, ROWS + 1), 2))
    return rng.choice((f"{column}{first}:{column}{last}", f"${column}$1:${column}${ROWS}", f"{column}:{column}"))


def full(column: str) -> str:
    """Return the range of a column's data."""
    return f"{column}1:{column}{ROWS}"


def _literal(rng: random.Random) -> str:
    return rng.choice((str(rng.randint(-9, 30)), f"{rng.uniform(-5, 50):.2f}", "0", "1", "12%"))


def _criterion(rng: random.Random) -> tuple[str, str]:
    return rng.choice((
        ("E", '"red"'), ("E", '"<>blue"'), ("E", '"g*"'), ("E", '"?ed"'), ("B", f'">={rng.randint(-3, 15)}"'),
        ("B", f'"<{rng.randint(-3, 15)}"'), ("B", f"{rng.randint(0, 9)}"), ("A", '">0"'), ("D", '">"&D3'), ("E", "E2"),
    ))  # fmt: skip


def _number(rng: random.Random, depth: int) -> str:
    if depth == 0:
        return rng.choice((_cell(rng, "ABF"), _cell(rng, "BF"), _literal(rng)))
    n: Make = lambda r: _number(r, depth - 1)  # noqa: E731
    t: Make = lambda r: _text(r, depth - 1)  # noqa: E731
    b: Make = lambda r: _logical(r, depth - 1)  # noqa: E731
    one, other = _criterion(rng), _criterion(rng)
    choices: tuple[Callable[[], str], ...] = (
        lambda: f"({n(rng)}{rng.choice('+-*/')}{n(rng)})",
        lambda: f"-{_number(rng, 0)}^{rng.choice(('2', '3', '0.5'))}",
        lambda: f"{rng.choice(('SUM', 'AVERAGE', 'MIN', 'MAX', 'COUNT', 'COUNTA', 'MEDIAN', 'PRODUCT', 'STDEV'))}({_range(rng, rng.choice('ABF'))})",
        lambda: f"SUM({_range(rng, 'A')},{n(rng)})",
        lambda: f"{rng.choice(('ROUND', 'ROUNDUP', 'ROUNDDOWN', 'TRUNC'))}({n(rng)},{rng.randint(-1, 3)})",
        lambda: f"{rng.choice(('ABS', 'INT', 'SIGN'))}({n(rng)})",
        lambda: f"MOD({_cell(rng, 'ABF')},{rng.randint(2, 9)})",
        lambda: f"IF({b(rng)},{n(rng)},{n(rng)})",
        lambda: f"IFERROR({n(rng)},{n(rng)})",
        lambda: f"COUNTIF({full(one[0])},{one[1]})",
        lambda: f"{rng.choice(('SUMIF', 'AVERAGEIF'))}({full(one[0])},{one[1]},{full('F')})",
        lambda: f"{rng.choice(('SUMIFS', 'AVERAGEIFS', 'MAXIFS', 'MINIFS'))}({full('F')},{full(one[0])},{one[1]},{full(other[0])},{other[1]})",
        lambda: f"COUNTIFS({full(one[0])},{one[1]},{full(other[0])},{other[1]})",
        lambda: f'SUMPRODUCT(({full("E")}="{rng.choice(("red", "blue"))}")*({full("B")}>{rng.randint(0, 9)})*{full("F")})',
        lambda: f"SUMPRODUCT({full('B')},{full('F')})",
        lambda: f"SUMPRODUCT((MONTH({full('D')})={rng.randint(1, 12)})*1)",
        lambda: f"SUMPRODUCT(1/COUNTIF({full('E')},{full('E')}))",
        lambda: f"INDEX({full('F')},{rng.randint(1, ROWS)})",
        lambda: f"INDEX(B1:F{ROWS},{rng.randint(1, ROWS)},{rng.choice((1, 5))})",
        lambda: f"MATCH({_cell(rng, 'E')},{full('E')},0)",
        lambda: f"VLOOKUP({_cell(rng, 'E')},E1:F{ROWS},2,FALSE)",
        lambda: f"RANK({_cell(rng, 'F')},{full('F')},{rng.randint(0, 1)})",
        lambda: f"{rng.choice(('LARGE', 'SMALL'))}({full('B')},{rng.randint(1, 5)})",
        lambda: f"LEN({t(rng)})",
        lambda: f"{rng.choice(('FIND', 'SEARCH'))}(\"{rng.choice(('a', 'e', ' ', 'S', 'th'))}\",{t(rng)})",
        lambda: f"{rng.choice(('YEAR', 'MONTH', 'DAY', 'WEEKDAY', 'ISOWEEKNUM'))}({_cell(rng, 'D')})",
        lambda: f"WEEKDAY({_cell(rng, 'D')},{rng.choice((1, 2, 3))})",
        lambda: f"EDATE({_cell(rng, 'D')},{rng.randint(-14, 20)})",
        lambda: f"EOMONTH({_cell(rng, 'D')},{rng.randint(-3, 14)})",
        lambda: f"DATE(YEAR({_cell(rng, 'D')}),{rng.randint(-2, 15)},{rng.randint(1, 28)})",
        lambda: f"NETWORKDAYS({_cell(rng, 'D')},{_cell(rng, 'D')})",
        lambda: f"WORKDAY({_cell(rng, 'D')},{rng.randint(-20, 20)})",
        lambda: f'DATEDIF(MIN({full("D")}),{_cell(rng, "D")},"{rng.choice("dmy")}")',
        lambda: f"DAYS({_cell(rng, 'D')},{_cell(rng, 'D')})",
        lambda: f"PMT({rng.uniform(0.001, 0.02):.4f},{rng.randint(6, 60)},{rng.randint(1000, 9000)})",
        lambda: f"CHOOSE({rng.randint(1, 3)},{n(rng)},{n(rng)},{n(rng)})",
        lambda: f"IFS({b(rng)},{n(rng)},TRUE,{n(rng)})",
        lambda: f"SQRT(ABS({n(rng)}))",
        lambda: f"{rng.choice(('CEILING', 'FLOOR', 'MROUND'))}({_cell(rng, 'F')},{rng.choice(('1', '5', '0.5', '0.25'))})",
        lambda: f"COUNTBLANK({full('A')})",
        lambda: f"SUBTOTAL({rng.choice((1, 2, 4, 5, 9))},{full('F')})",
        lambda: f"QUOTIENT({_cell(rng, 'F')},{rng.randint(2, 9)})",
        lambda: f"VALUE(RIGHT(\"n{rng.randint(10, 99)}\",2))",
    )  # fmt: skip
    return rng.choice(choices)()


def _text(rng: random.Random, depth: int) -> str:
    if depth == 0:
        return rng.choice((_cell(rng, "C"), _cell(rng, "E"), f'"{rng.choice(WORDS)}"'))
    n: Make = lambda r: _number(r, 0)  # noqa: E731
    t: Make = lambda r: _text(r, depth - 1)  # noqa: E731
    b: Make = lambda r: _logical(r, depth - 1)  # noqa: E731
    choices: tuple[Callable[[], str], ...] = (
        lambda: f"{rng.choice(('UPPER', 'LOWER', 'PROPER', 'TRIM'))}({t(rng)})",
        lambda: f"{rng.choice(('LEFT', 'RIGHT'))}({t(rng)},{rng.randint(0, 6)})",
        lambda: f"MID({t(rng)},{rng.randint(1, 5)},{rng.randint(0, 5)})",
        lambda: f"{t(rng)}&{t(rng)}",
        lambda: f"{t(rng)}&{_cell(rng, 'B')}",
        lambda: f"SUBSTITUTE({t(rng)},\"{rng.choice(('a', ' ', 'or', '-'))}\",\"{rng.choice(('', '_', 'xx'))}\")",
        lambda: f"REPLACE({t(rng)},{rng.randint(1, 4)},{rng.randint(0, 3)},\"#\")",
        lambda: f"CONCATENATE({t(rng)},\" \",{t(rng)})",
        lambda: f"TEXTJOIN(\",\",TRUE,C1:C{rng.randint(2, 5)})",
        lambda: f"CONCAT(E1:E{rng.randint(2, 5)})",
        lambda: f"IF({b(rng)},{t(rng)},{t(rng)})",
        lambda: f"IFERROR({t(rng)},\"none\")",
        lambda: f"TEXT({_cell(rng, 'F')},\"{rng.choice(('0', '0.00', '#,##0.00', '0%', '0.0%', '000', '$#,##0.00'))}\")",
        lambda: f"TEXT({_cell(rng, 'D')},\"{rng.choice(('yyyy-mm-dd', 'mmm d, yyyy', 'dd/mm/yyyy', 'ddd', 'mmmm', 'yyyy-mm'))}\")",
        lambda: f"INDEX(C1:C{ROWS},{rng.randint(1, ROWS)})",
        lambda: f"INDEX(C1:C{ROWS},MATCH({n(rng)},B1:B{ROWS},0))",
        lambda: f"SWITCH({_cell(rng, 'E')},\"red\",\"R\",\"blue\",\"B\",\"other\")",
    )  # fmt: skip
    return rng.choice(choices)()


def _logical(rng: random.Random, depth: int) -> str:
    sign = rng.choice(("=", "<>", "<", "<=", ">", ">="))
    if depth == 0:
        return f"{_cell(rng, 'BF')}{sign}{_cell(rng, 'BF')}"
    n: Make = lambda r: _number(r, depth - 1)  # noqa: E731
    t: Make = lambda r: _text(r, depth - 1)  # noqa: E731
    b: Make = lambda r: _logical(r, depth - 1)  # noqa: E731
    choices: tuple[Callable[[], str], ...] = (
        lambda: f"{_number(rng, 0)}{sign}{_number(rng, 0)}",
        lambda: f"{t(rng)}{rng.choice(('=', '<>'))}{t(rng)}",
        lambda: f"{rng.choice(('AND', 'OR', 'XOR'))}({b(rng)},{b(rng)})",
        lambda: f"NOT({b(rng)})",
        lambda: f"EXACT({t(rng)},{t(rng)})",
        lambda: f"{rng.choice(('ISNUMBER', 'ISTEXT', 'ISBLANK', 'ISERROR', 'ISNA'))}({rng.choice((n, t))(rng)})",
        lambda: f"ISBLANK({_cell(rng, 'A')})",
    )  # fmt: skip
    return rng.choice(choices)()
