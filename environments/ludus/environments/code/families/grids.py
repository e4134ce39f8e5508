"""Boards of characters: regions, neighbors, falling stones, sliding numbers, cellular automata."""

from __future__ import annotations

import random
from typing import Any, Final

from ludus.environments.code.problem import Problem, Rule, function_source, key_of
from ludus.server import Difficulty

_FOUR: Final = "((-1, 0), (1, 0), (0, -1), (0, 1))"
_EIGHT: Final = "((-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1))"
_SIDES: Final = {
    "four": ("the up to four cells above, below, left and right of it", _FOUR),
    "eight": ("the up to eight cells around it", _EIGHT),
    "corners": ("the up to four cells that touch it at a corner", "((-1, -1), (-1, 1), (1, -1), (1, 1))"),
}  # fmt: skip


def draw(rng: random.Random, difficulty: Difficulty) -> Problem:
    """Return a problem."""
    return rng.choice((_regions, _automaton, _gravity, _sliding))(rng, difficulty)


def _board(rng: random.Random, size: int, letters: str) -> list[str]:
    low, high = ((2, 4), (3, 6), (9, 12))[size]
    height, width = rng.randint(low, high), rng.randint(low, high)
    return ["".join(rng.choice(letters) for _ in range(width)) for _ in range(height)]


def _regions(rng: random.Random, difficulty: Difficulty) -> Problem:
    side = rng.choice(("four", "eight") if difficulty == "easy" else ("four", "eight", "corners"))
    alike = rng.choice((
        Rule("filled", "Cells with a # belong to regions; two of them that are neighbors belong to the same region.",
             'board[y][x] == "#"'),
        Rule("letters", "Each cell belongs to a region; two neighbors with the same character belong to the same "
             "region.", ""),
        Rule("not-dots", "Cells with another character than . belong to regions; two of them that are neighbors and "
             "have the same character belong to the same region.", 'board[y][x] != "."'),
    ))  # fmt: skip
    drop = Rule("all", "", "") if difficulty != "hard" or alike.name == "filled" else rng.choice((
        Rule("all", "", ""),
        Rule("inner", "Regions with a cell at the edge of the board are left out.",
             "regions = [region for region in regions\n"
             "           if all(0 < y < len(board) - 1 and 0 < x < len(board[0]) - 1 for y, x in region)]"),
        Rule("not-single", "Regions of a single cell are left out.",
             "regions = [region for region in regions if len(region) > 1]"),
    ))  # fmt: skip
    result = rng.choice((
        Rule("list[int]:sizes", "Return the sizes of the regions (their numbers of cells), the greatest first.",
             "return sorted((len(region) for region in regions), reverse=True)"),
        Rule("list[list[int]]:starts", "Return for each region the list [row, column, size] of its first cell (by row, "
             "then by column, both counted from 0) and its size, in the order of the first cells.",
             "return [[*min(region), len(region)] for region in regions]"),
        Rule("list[str]:mark", 'Return the board, in which the cells of the largest region (of several, the one with '
             'the first cell by row and then by column) are replaced by "*"; without regions, the board stays as it is.',
             "largest = max(regions, key=len, default=[])\n"
             'return ["".join("*" if (y, x) in largest else cell for x, cell in enumerate(row))\n'
             "        for y, row in enumerate(board)]"),
        Rule("list[int]:perimeters", "Return for each region, in the order of their first cells (by row, then by "
             "column), its perimeter: the number of sides of its cells, above, below, left and right, at which there "
             "is no cell of the same region.",
             f"return [sum((y + dy, x + dx) not in region for y, x in region for dy, dx in {_FOUR})\n"
             "        for region in regions]"),
    ))  # fmt: skip
    if alike.name != "filled" and rng.random() < 0.25:
        result = Rule(
            "dict[str, int]:counts",
            "Return a dictionary from each character that occurs in a region to the number of "
            "regions with this character.",
            "counts = {}\nfor region in regions:\n    y, x = region[0]\n"
            "    counts[board[y][x]] = counts.get(board[y][x], 0) + 1\nreturn counts",
        )
    name = f"{rng.choice(('find', 'map', 'explore', 'survey'))}_{rng.choice(('regions', 'areas', 'patches'))}"
    signature = f"def {name}(board: list[str]) -> {result.name.partition(':')[0]}:"
    belongs = (
        f"            if (y, x) in seen or not ({alike.code}):\n" if alike.code else "            if (y, x) in seen:\n"
    )
    body = (
        "regions, seen = [], set()\nfor y in range(len(board)):\n        for x in range(len(board[0])):\n"
        f"{belongs}                continue\n            seen.add((y, x))\n            region = [(y, x)]\n"
        f"            for a, b in region:\n                for dy, dx in {_SIDES[side][1]}:\n"
        "                    v, u = a + dy, b + dx\n"
        "                    if (0 <= v < len(board) and 0 <= u < len(board[0]) and (v, u) not in seen\n"
        "                            and board[v][u] == board[y][x]):\n"
        "                        seen.add((v, u))\n                        region.append((v, u))\n"
        "            regions.append(region)\n"
    ).replace("\n    ", "\n")
    letters = {"filled": "##..", "letters": "aab#", "not-dots": "ab.."}[alike.name]

    def sample(rng: random.Random, size: int) -> tuple[list[str]]:
        return (_board(rng, size, letters),)

    return Problem(
        key=key_of("grids-regions", side, alike, drop, result), group=key_of("grids-regions", result),
        entry=name, signature=signature,
        intro="A board is a list of rows, which are texts of the same length. The neighbors of a cell are "
        f"{_SIDES[side][0]}.",
        rules=tuple(rule.text for rule in (alike, drop, result) if rule.text),
        reference=function_source(signature, body + drop.code, result.code),
        edges=(([],), (["#"],), (["a.", ".a"],), (["##.#", "..##"],)), sample=sample,
    )  # fmt: skip


def _automaton(rng: random.Random, difficulty: Difficulty) -> Problem:
    side = rng.choice(("four", "eight", "corners"))
    most = 8 if side == "eight" else 4
    born = sorted(rng.sample(range(1, most), 1 if difficulty == "easy" else 2 if most == 4 else rng.randint(1, 2)))
    stay = sorted(rng.sample(range(most + 1), 2 if difficulty == "easy" else rng.randint(1, 3) if most == 8 else 2))
    wrap = difficulty != "easy" and rng.random() < 0.5
    age = difficulty == "hard" and rng.random() < 0.6
    steps = {"easy": 1, "medium": rng.randint(1, 2), "hard": rng.randint(2, 3)}[difficulty]
    result = rng.choice((
        Rule("list[str]:board", "Return the board after that.", "return board"),
        Rule("list[int]:rows", "Return for each row after that the number of its cells with a #.",
             'return [row.count("#") for row in board]'),
        Rule("list[int]:history", "Return a list of the numbers of cells with a # in the whole board: at first, and "
             "after each step.", "return history"),
    )[: 2 if steps == 1 else 3])  # fmt: skip
    name = f"{rng.choice(('evolve', 'grow', 'advance', 'step'))}_{rng.choice(('board', 'cells', 'field'))}"
    signature = f"def {name}(board: list[str]) -> {result.name.partition(':')[0]}:"
    place = "board[(y + dy) % len(board)][(x + dx) % len(row)]" if wrap else "board[y + dy][x + dx]"
    condition = (
        f'{place} == "#"'
        if wrap
        else f'0 <= y + dy < len(board) and 0 <= x + dx < len(row)\n                        and {place} == "#"'
    )
    free = 'cell == "." and ' if age else ""
    other = '"o" if cell == "#" else "."' if age else '"."'
    body = (
        'history = [sum(row.count("#") for row in board)]\n'
        * ("history" in result.name)
        + f'for step in range({steps}):\n    following = []\n    for y, row in enumerate(board):\n        line = ""\n'
        "        for x, cell in enumerate(row):\n"
        f"            count = sum(1 for dy, dx in {_SIDES[side][1]}\n                        if {condition})\n"
        f'            alive = count in {tuple(stay)!r} if cell == "#" else {free}count in {tuple(born)!r}\n'
        f'            line += "#" if alive else {other}\n        following.append(line)\n    board = following\n'
        + '    history.append(sum(row.count("#") for row in board))\n' * ("history" in result.name)
        + result.code
    )
    texts = [
        "Cells are alive (#) or dead (.)." if not age else "Cells are alive (#), old (o) or dead (.).",
        f"In one step, all cells change at once. A dead cell becomes alive if exactly {' or '.join(map(str, born))} of "
        f"its neighbors {'is' if born == [1] else 'are'} alive. A cell that is alive stays alive if "
        f"{' or '.join(map(str, stay))} of its neighbors are alive, and becomes {'old' if age else 'dead'} otherwise."
        + " An old cell becomes dead." * age,
        "The board has no edge: beyond its first row comes the last, beyond its first column the last, and the other "
        "way around, so that every cell has all neighbors; a cell may be its own neighbor, and one cell may count as "
        "several neighbors." if wrap else "Beyond the edge of the board there are no cells.",
        f"Make {steps} step{'s' * (steps > 1)}. {result.text}",
    ]  # fmt: skip

    def sample(rng: random.Random, size: int) -> tuple[list[str]]:
        return (_board(rng, size, "##.." if not age else "##...o"),)

    sides = _SIDES[side][0].replace("up to ", "")
    return Problem(
        key=key_of("grids-automaton", side, born, stay, wrap, age, steps > 1, result),
        group=key_of("grids-automaton", wrap, age, result), entry=name, signature=signature,
        intro=f"A board is a list of rows, which are texts of the same length. The neighbors of a cell are {sides}.",
        rules=tuple(texts), reference=function_source(signature, body),
        edges=(([],), (["#"],), (["#.", ".#"],), (["...", "###", "..."],)), sample=sample,
    )  # fmt: skip


def _gravity(rng: random.Random, difficulty: Difficulty) -> Problem:
    ways = {"down": "downward", "up": "upward", "left": "to the left", "right": "to the right"}
    moves = rng.sample(sorted(ways), {"easy": 1, "medium": rng.randint(1, 2), "hard": 2}[difficulty])
    wall = difficulty != "easy" and rng.random() < 0.6
    run = rng.randint(3, 4)
    clear = Rule("none", "", "") if difficulty == "easy" else rng.choice((
        Rule("none", "", ""),
        Rule("rows", "Then empty each row that has no dots.",
             'board = ["." * len(row) if "." not in row else row for row in board]'),
        Rule("runs", f"Then remove, all at once, the stones of each run of {run} or more equal letters next to each "
             "other in a row.",
             "cleared = []\nfor row in board:\n    cells = list(row)\n    start = 0\n"
             "    for place in range(1, len(row) + 1):\n"
             "        if place == len(row) or row[place] != row[start]:\n"
             f'            if place - start >= {run} and row[start] not in ".#":\n'
             '                cells[start:place] = "." * (place - start)\n            start = place\n'
             '    cleared.append("".join(cells))\nboard = cleared'),
        Rule("pairs", "Then remove, all at once, each stone that has a stone with the same letter directly above or "
             "below it.",
             "def alike(y, x):\n    return any(0 <= v < len(board) and board[v][x] == board[y][x] for v in (y - 1, y + 1))\n\n"
             'board = ["".join("." if cell not in ".#" and alike(y, x) else cell for x, cell in enumerate(row))\n'
             "         for y, row in enumerate(board)]"),
    ))  # fmt: skip
    result = rng.choice((
        Rule("list[str]:board", "Return the board.", "return board"),
        Rule("dict[str, int]:count", "Return a dictionary from each letter on the board to the number of its stones.",
             'counts = {}\nfor cell in "".join(board):\n    if cell not in ".#":\n'
             "        counts[cell] = counts.get(cell, 0) + 1\nreturn counts"),
        Rule("list[int]:heights", "Return for each column the number of its stones.",
             'return [sum(cell not in ".#" for cell in column) for column in zip(*board)]'),
        Rule("list[str]:columns", "Return the columns as a list of texts, from the first to the last, each read "
             "downward.", 'return ["".join(column) for column in zip(*board)]'),
    ) if clear.name != "none" else (
        Rule("list[str]:board", "Return the board.", "return board"),
        Rule("list[str]:columns", "Return the columns as a list of texts, from the first to the last, each read "
             "downward.", 'return ["".join(column) for column in zip(*board)]'),
    ))  # fmt: skip
    name = f"{rng.choice(('drop', 'settle', 'tilt', 'shake'))}_{rng.choice(('stones', 'board', 'field'))}"
    signature = f"def {name}(board: list[str]) -> {result.name.partition(':')[0]}:"
    helper = (
        'def fall(line):\n    parts = [part.replace(".", "").ljust(len(part), ".") for part in line.split("#")]\n'
        '    return "#".join(parts)'
    )
    lines = {
        "left": "board = [fall(row) for row in board]", "right": "board = [fall(row[::-1])[::-1] for row in board]",
        "up": 'columns = [fall("".join(column)) for column in zip(*board)]\n'
              'board = ["".join(row) for row in zip(*columns)]',
        "down": 'columns = [fall("".join(column)[::-1])[::-1] for column in zip(*board)]\n'
                'board = ["".join(row) for row in zip(*columns)]',
    }  # fmt: skip
    parts = [lines[moves[0]], clear.code, *(lines[move] for move in moves[1:])]
    texts = [
        "Letters are stones, and dots are free cells." + " A # is a wall, which stays where it is and stops stones."
        * wall,
        f"All stones move {ways[moves[0]]} as far as they can.", *([clear.text] if clear.text else []),
        *(f"Then all stones move {ways[move]} as far as they can." for move in moves[1:]), result.text,
    ]  # fmt: skip

    def sample(rng: random.Random, size: int) -> tuple[list[str]]:
        return (_board(rng, size, "aaabb...." + "##" * wall),)

    return Problem(
        key=key_of("grids-gravity", *moves, wall, clear, result), group=key_of("grids-gravity", clear, result),
        entry=name, signature=signature,
        intro="A board is a list of rows, which are texts of the same length, at least 1. There is at least one row.",
        rules=tuple(texts), reference=function_source(signature, *parts, result.code, imports=helper),
        edges=((["a"],), (["."],), (["a.b", "..."],), (["ab.a", "a..a", ".baa"],)), sample=sample,
    )  # fmt: skip


def _sliding(rng: random.Random, difficulty: Difficulty) -> Problem:
    k = rng.randint(2, 3)
    merge = rng.choice((
        (Rule("equal", "two equal numbers that meet merge into their sum", "row[-1] == number"), "row[-1] + number"),
        (Rule("parity", "two numbers that meet and are both odd or both even merge into their sum",
              "(row[-1] - number) % 2 == 0"), "row[-1] + number"),
        (Rule("step", f"two numbers that meet and differ by at most {k} merge into the greater one plus 1",
              f"abs(row[-1] - number) <= {k}"), "max(row[-1], number) + 1"),
        (Rule("divides", "two numbers that meet merge into their sum if the one in front divides the other one",
              "number % row[-1] == 0"), "row[-1] + number"),
    ))  # fmt: skip
    rule, value = merge
    again = difficulty != "easy" and rng.random() < 0.4
    ways = {"left": "to the left", "right": "to the right", "up": "upward", "down": "downward"}
    count = {"easy": 1, "medium": rng.randint(1, 2), "hard": 3}[difficulty]
    moves = [rng.choice(("left", "right") if difficulty == "easy" else sorted(ways)) for _ in range(count)]
    result = rng.choice((
        Rule("list[list[int]]:board", "Return the board.", "return board"),
        Rule("dict[str, int]:score", 'Return a dictionary with the keys "free" (the number of cells with 0), "greatest" '
             '(the greatest number) and "merges" (how many merges there were in all).',
             'cells = [number for line in board for number in line]\n'
             'return {"free": cells.count(0), "greatest": max(cells), "merges": merges}'),
    ))  # fmt: skip
    score = result.name.endswith("score")
    name = f"{rng.choice(('slide', 'push', 'merge', 'move'))}_{rng.choice(('tiles', 'rows', 'board'))}"
    signature = f"def {name}(board: list[list[int]]) -> {result.name.partition(':')[0]}:"
    body = (
        f"merges = 0\n\ndef push(line):\n    {'nonlocal merges' if score else ''}\n    row, fixed = [], False\n"
        "    for number in line:\n        if number == 0:\n            continue\n"
        f"        if row and {'' if again else 'not fixed and '}{rule.code}:\n            row[-1] = {value}\n"
        f"            fixed = True\n            {'merges += 1' if score else ''}\n"
        "        else:\n            row.append(number)\n            fixed = False\n"
        "    return row + [0] * (len(line) - len(row))\n\n"
    )
    if not score:
        body = (
            body.replace("merges = 0\n\n", "")
            .replace("    \n    row, fixed", "    row, fixed")
            .replace("            \n        else", "        else")
        )
    if again:
        body = (
            body.replace("row, fixed = [], False", "row = []")
            .replace("            fixed = True\n", "")
            .replace("            fixed = False\n", "")
        )
    lines = {
        "left": "board = [push(line) for line in board]", "right": "board = [push(line[::-1])[::-1] for line in board]",
        "up": "columns = [push(list(column)) for column in zip(*board)]\nboard = [list(row) for row in zip(*columns)]",
        "down": "columns = [push(list(column)[::-1])[::-1] for column in zip(*board)]\n"
                "board = [list(row) for row in zip(*columns)]",
    }  # fmt: skip
    body += "\n".join(lines[move] for move in moves) + "\n" + result.code
    many = "A number that came from a merge may merge again in the same move." if again else (
        "A number that came from a merge does not merge again in the same move."
    )  # fmt: skip

    def sample(rng: random.Random, size: int) -> tuple[list[list[Any]]]:
        low, high = ((2, 3), (3, 5), (8, 9))[size]
        height, width = rng.randint(low, high), rng.randint(low, high)
        pool = (0, 0, 2, 2, 4, 4, 8) if rule.name in ("equal", "divides") else (0, 0, 1, 2, 3, 4, 6, 9)
        return ([[rng.choice(pool) for _ in range(width)] for _ in range(height)],)

    return Problem(
        key=key_of("grids-sliding", rule, again, *moves, result),
        group=key_of("grids-sliding", again, len(moves), result), entry=name, signature=signature,
        intro="A board is a list of rows of integers, all of the same length; 0 is a free cell. In a move to a side, all "
        "numbers slide to that side as far as they can, beginning with those nearest to it.",
        rules=(
            f"When a number slides against the one in front of it, {rule.text}. {many}",
            "Make these moves one after the other: " + ", ".join(ways[move] for move in moves) + ".", result.text,
        ),
        reference=function_source(signature, body),
        edges=(([[2]],), ([[2, 2, 2, 2]],), ([[2, 0, 2], [4, 4, 8], [0, 0, 0]],)), sample=sample,
    )  # fmt: skip
