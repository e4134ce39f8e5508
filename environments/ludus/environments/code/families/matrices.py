"""A chain of rules on a matrix of integers."""

from __future__ import annotations

import random
from typing import Final

from ludus.environments.code.problem import Problem, Rule, function_source, key_of, pick_distinct
from ludus.server import Difficulty

NAMES: Final = ("transform", "rework", "process_matrix", "rearrange", "convert_rows", "change_table")


def rules(rng: random.Random) -> list[Rule]:
    """Return rules that change a matrix."""
    k, m, plus = rng.randint(2, 4), rng.randint(2, 3), rng.randint(1, 5)
    return [
        Rule("rotate", "Rotate the matrix by 90 degrees clockwise: the first column, read from below, becomes the "
             "first row.", "rows = [list(column)[::-1] for column in zip(*rows)]"),
        Rule("rotate-back", "Rotate the matrix by 90 degrees counterclockwise: the last column becomes the first row.",
             "rows = [list(column) for column in zip(*rows)][::-1]"),
        Rule("transpose", "Exchange rows and columns: the first column becomes the first row.",
             "rows = [list(column) for column in zip(*rows)]"),
        Rule("mirror", "Reverse each row.", "rows = [row[::-1] for row in rows]"),
        Rule("flip", "Reverse the order of the rows.", "rows = rows[::-1]"),
        Rule("add-place", "Add to each number the number of its row and the number of its column, both counted from 0.",
             "rows = [[value + y + x for x, value in enumerate(row)] for y, row in enumerate(rows)]"),
        Rule("scale-row", f"Multiply the rows at positions 0, {m}, {2 * m}, … by {k}.",
             f"rows = [[value * {k} for value in row] if y % {m} == 0 else row for y, row in enumerate(rows)]"),
        Rule("no-negatives", "Replace negative numbers by 0.", "rows = [[max(value, 0) for value in row] for row in rows]"),
        Rule("running", "Replace each number by the sum of itself and all numbers before it in its row.",
             "rows = [[sum(row[:x + 1]) for x in range(len(row))] for row in rows]"),
        Rule("running-down", "Replace each number by the sum of itself and all numbers above it in its column.",
             "rows = [[sum(rows[up][x] for up in range(y + 1)) for x in range(len(row))] for y, row in enumerate(rows)]"),
        Rule("sort-sum", "Sort the rows by their sums, the smallest first; rows with equal sums keep their order.",
             "rows = sorted(rows, key=sum)"),
        Rule("sort-rows", "Sort the numbers within each row in increasing order.", "rows = [sorted(row) for row in rows]"),
        Rule("drop-odd", "Remove the rows whose sum is odd.", "rows = [row for row in rows if sum(row) % 2 == 0]"),
        Rule("neighbors", "Replace each number by the sum of the numbers directly above, below, left and right of it, "
             "as far as they exist.",
             "rows = [[sum(rows[v][u] for v, u in ((y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1))\n"
             "             if 0 <= v < len(rows) and 0 <= u < len(row)) for x in range(len(row))]\n"
             "        for y, row in enumerate(rows)]"),
        Rule("swap-columns", "Exchange the first and the last number of each row.",
             "rows = [row[-1:] + row[1:-1] + row[:1] if len(row) > 1 else row for row in rows]"),
        Rule("shift-rows", "Move the numbers of the row at position i to the right by i places; those that leave it on "
             "the right come in again on the left.",
             "rows = [row[-(y % len(row)):] + row[:-(y % len(row))] if y % len(row) else row\n"
             "        for y, row in enumerate(rows)]"),
        Rule("minus-min", "Subtract from each number the smallest number of its row.",
             "rows = [[value - min(row) for value in row] for row in rows]"),
        Rule("checker", f"Add {plus} to each number for which the sum of the positions of its row and column is odd.",
             f"rows = [[value + {plus} * ((y + x) % 2) for x, value in enumerate(row)] for y, row in enumerate(rows)]"),
        Rule("append-sum", "Append to each row the sum of its numbers.", "rows = [row + [sum(row)] for row in rows]"),
        Rule("append-max", "Append a row with the greatest number of each column, unless the matrix has no rows.",
             "if rows:\n    rows = rows + [[max(column) for column in zip(*rows)]]"),
    ]  # fmt: skip


def finishes(rng: random.Random) -> list[Rule]:
    """Return the forms of the result."""
    m = rng.randint(2, 4)
    return [
        Rule("list[list[int]]:matrix", "Return the matrix.", "return rows"),
        Rule("list[int]:sums", "Return the list of the sums of the rows.", "return [sum(row) for row in rows]"),
        Rule("list[int]:flat", "Return all numbers in one list, row by row.",
             "return [value for row in rows for value in row]"),
        Rule("list[int]:columns", "Return the list of the greatest number of each column.",
             "return [max(column) for column in zip(*rows)]"),
        Rule("list[int]:spiral", "Return all numbers in a spiral: the first row from left to right, then the last "
             "column downward, the last row from right to left, the first column upward, and so on inward.",
             "result = []\nwhile rows:\n    result += rows[0]\n"
             "    rows = [list(column) for column in zip(*rows[1:])][::-1]\nreturn result"),
        Rule("list[int]:diagonals", "Return the sums of the diagonals that run from the upper right to the lower left, "
             "beginning with the one that holds only the number at the upper left.",
             "sums = {}\nfor y, row in enumerate(rows):\n    for x, value in enumerate(row):\n"
             "        sums[y + x] = sums.get(y + x, 0) + value\nreturn [sums[place] for place in sorted(sums)]"),
        Rule("list[list[int]]:places", f"Return the positions [row, column], counted from 0, of the numbers that are "
             f"divisible by {m}, row by row.",
             "return [[y, x] for y, row in enumerate(rows) for x, value in enumerate(row)"
             f" if value % {m} == 0]"),
        Rule("str:text", "Return a text: the numbers of each row joined by spaces, and the rows joined by line breaks.",
             'return "\\n".join(" ".join(str(value) for value in row) for row in rows)'),
        Rule("list[int]:border", "Return the numbers of the first and last row and of the first and last column, each "
             "place once, row by row.",
             "return [value for y, row in enumerate(rows) for x, value in enumerate(row)\n"
             "        if y in (0, len(rows) - 1) or x in (0, len(row) - 1)]"),
    ]  # fmt: skip


def draw(rng: random.Random, difficulty: Difficulty) -> Problem:
    """Return a problem."""
    counts = {"easy": (1, 2), "medium": (3, 3), "hard": (4, 6)}[difficulty]
    chosen = pick_distinct(rng, rules(rng), *counts)
    if {"rotate", "rotate-back"} <= {rule.name for rule in chosen}:  # they may undo each other
        chosen = [rule for rule in chosen if rule.name != "rotate-back"]
    finish = rng.choice(finishes(rng)[: 3 if difficulty == "easy" else 9])
    name = rng.choice(NAMES)
    signature = f"def {name}(rows: list[list[int]]) -> {finish.name.partition(':')[0]}:"

    def sample(rng: random.Random, size: int) -> tuple[list[list[int]]]:
        low, high = ((2, 3), (2, 4), (7, 9))[size]
        height, width = rng.randint(low, high), rng.randint(low, high)
        return ([[rng.randint(-5, 20) for _ in range(width)] for _ in range(height)],)

    return Problem(
        key=key_of("matrices", *chosen, finish),
        entry=name,
        signature=signature,
        intro="A matrix of integers is given as a list of its rows, which all have the same length, at least 1. The "
        "list may be empty. Follow these rules in order:",
        rules=tuple(rule.text for rule in (*chosen, finish)),
        reference=function_source(signature, *(rule.code for rule in chosen), finish.code),
        edges=(([],), ([[4]],), ([[3, -1, 8, 2]],), ([[5], [-2], [7]],)),
        sample=sample,
    )
