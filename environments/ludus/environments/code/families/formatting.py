"""Write tables, paragraphs, lists and quantities as text."""

from __future__ import annotations

import random
from typing import Any, Final

from ludus.environments.code.families.inputs import CITIES, NAMES, WORDS
from ludus.environments.code.problem import Problem, Rule, function_source, key_of, pick_distinct
from ludus.server import Difficulty


def draw(rng: random.Random, difficulty: Difficulty) -> Problem:
    """Return a problem."""
    return rng.choice((_table, _paragraph, _quantities))(rng, difficulty)


_ALIGN: Final = {"left": "ljust", "right": "rjust", "center": "center"}


def _table(rng: random.Random, difficulty: Difficulty) -> Problem:
    between = rng.choice((" | ", "  ", " ; ", " : "))
    aligned = [rng.choice(("left", "right")) for _ in range(3)]
    prepare = [
        Rule("sort-name", "Sort the rows by their first text alphabetically.", "rows = sorted(rows, key=lambda row: row[0])"),
        Rule("sort-number", "Sort the rows by their number, the greatest first; rows with equal numbers keep their "
             "order.", "rows = sorted(rows, key=lambda row: -row[2])"),
        Rule("upper", "Change the first text of each row to upper case.",
             "rows = [[row[0].upper(), row[1], row[2]] for row in rows]"),
        Rule("shorten", 'Shorten a second text of more than 4 characters to its first 3 characters and ".".',
             'rows = [[row[0], row[1] if len(row[1]) <= 4 else row[1][:3] + ".", row[2]] for row in rows]'),
        Rule("drop-zero", "Leave out the rows whose number is less than 10.", "rows = [row for row in rows if row[2] >= 10]"),
    ]  # fmt: skip
    numbers = rng.choice((
        Rule("plain", "Numbers are written as usual.", "str(row[2])"),
        Rule("thousands", 'Numbers are written with "," between groups of three digits (12,345).', 'f"{row[2]:,}"'),
        Rule("cents", "Numbers are cents and are written as 12.05 for 1205.", 'f"{row[2] // 100}.{row[2] % 100:02}"'),
        Rule("signed", 'Numbers are written with "+" before them, and 0 as "-".', 'f"+{row[2]}" if row[2] else "-"'),
    ))  # fmt: skip
    frame = rng.choice((
        Rule("none", "", ""),
        Rule("rule", 'Put a line of "-" below the first line, as long as the first line before spaces at its end are '
             "removed.", "rule"),
        Rule("count", 'Add a last line "N rows" with the number of rows, such as "3 rows" (also "1 rows").', "count"),
        Rule("total", 'Add a last line "total N" with the sum of the numbers of the rows, written as usual.', "total"),
        Rule("numbered", 'Put the number of the line, counted from 1, and ". " before each line.', "numbered"),
    ))  # fmt: skip
    counts = {"easy": (0, 1), "medium": (1, 2), "hard": (2, 3)}[difficulty]
    chosen = pick_distinct(rng, prepare, *counts)
    if difficulty == "easy":
        frame, numbers = Rule("none", "", ""), Rule("plain", "Numbers are written as usual.", "str(row[2])")
    name = rng.choice(("format_table", "print_rows", "layout", "make_table"))
    signature = f"def {name}(rows: list[list[object]]) -> str:"
    cells = ", ".join(f"cells[{n}].{_ALIGN[way]}(widths[{n}])" for n, way in enumerate(aligned))
    body = (
        f"table = [[row[0], row[1], {numbers.code}] for row in rows]\n"
        "widths = [max((len(cells[place]) for cells in table), default=0) for place in range(3)]\n"
        f'lines = ["{between}".join([{cells}]) for cells in table]\n'
    )
    if frame.name == "rule":
        body += 'if lines:\n    lines.insert(1, "-" * len(lines[0]))\n'
    elif frame.name == "count":
        body += 'lines.append(f"{len(rows)} rows")\n'
    elif frame.name == "total":
        body += 'lines.append(f"total {sum(row[2] for row in rows)}")\n'
    elif frame.name == "numbered":
        body += 'lines = [f"{number}. {line}" for number, line in enumerate(lines, 1)]\n'
    body += 'return "\\n".join(line.rstrip() for line in lines)'

    def row(rng: random.Random) -> list[Any]:
        return [rng.choice(NAMES), rng.choice(CITIES), rng.choice((0, 7, rng.randint(8, 99), rng.randint(100, 99999)))]

    def sample(rng: random.Random, size: int) -> tuple[list[list[Any]]]:
        return ([row(rng) for _ in range(rng.randint(*((2, 3), (3, 7), (20, 30))[size]))],)

    fixed = random.Random(name)
    sides = ", ".join(f"the {number} one to the {way}" for number, way in
                      zip(("first", "second", "third"), aligned, strict=True))  # fmt: skip
    return Problem(
        key=key_of("formatting-table", *chosen, numbers, frame, *aligned),
        group=key_of("formatting-table", *sorted(rule.name for rule in chosen), numbers, frame), entry=name, signature=signature,
        intro="Write a table. Each row has two texts and a number that is not negative, and becomes a line with three "
        "columns." + " First change the rows, in this order:" * bool(chosen),
        rules=(
            *(rule.text for rule in chosen), numbers.text,
            f'Each column is as wide as its longest entry, and is aligned: {sides}. Columns are joined by "{between}".',
            *([frame.text] if frame.text else []),
            "Remove spaces at the end of each line, and join the lines by line breaks (an empty text without lines).",
        ),
        reference=function_source(signature, *(rule.code for rule in chosen), body),
        edges=(([],), ([["ada", "Rome", 0]],), ([row(fixed), row(fixed)],)), sample=sample,
    )  # fmt: skip


def _paragraph(rng: random.Random, difficulty: Difficulty) -> Problem:
    width, inset = rng.randint(14, 22), rng.randint(2, 4)
    long_words = rng.choice((
        Rule("keep", "A word that is longer than that gets a line of its own.", ""),
        Rule("cut", "A word that is longer than 8 characters is shortened to its first 7 characters and \"~\" before "
             "that.", 'words = [word if len(word) <= 8 else word[:7] + "~" for word in words]'),
    ))  # fmt: skip
    align = rng.choice((
        Rule("left", "", ""),
        Rule("right", f"Put spaces before each line so that it has {width} characters.", f"lines = [line.rjust({width}) for line in lines]"),
        Rule("boxed", f'Put spaces after each line so that it has {width} characters, and then "|" before and after it.',
             f'lines = ["|" + line.ljust({width}) + "|" for line in lines]'),
        Rule("justify", f"Except in the last line and in lines of one word, put more spaces between words so that the "
             f"line has {width} characters: as many as possible between all of them alike, and the remaining ones one "
             "each in the gaps from the left.",
             "filled = []\nfor place, line in enumerate(lines):\n    parts = line.split()\n    gaps = len(parts) - 1\n"
             f"    if gaps and place < len(lines) - 1:\n        spaces = {width} - sum(len(part) for part in parts)\n"
             '        line = parts[0]\n        for number, part in enumerate(parts[1:]):\n'
             '            line += " " * (spaces // gaps + (number < spaces % gaps)) + part\n'
             "    filled.append(line)\nlines = filled"),
    ))  # fmt: skip
    extra = [
        Rule("hanging", f"Put {inset} spaces before all lines but the first.",
             f'lines = [" " * {inset} * (place > 0) + line for place, line in enumerate(lines)]'),
        Rule("numbers", 'Put the number of the line, counted from 1, with two digits and ":" before each line (01:).',
             'lines = [f"{number:02}:{line}" for number, line in enumerate(lines, 1)]'),
        Rule("quote", 'Put "> " before each line.', 'lines = ["> " + line for line in lines]'),
        Rule("limit", 'If there are more than 3 lines, keep the first 3 and add the line "...".',
             'if len(lines) > 3:\n    lines = lines[:3] + ["..."]'),
        Rule("reverse", "Reverse the order of the lines.", "lines = lines[::-1]"),
        Rule("ends", 'Add " (N)" to the end of each line, where N is the number of its words.',
             'lines = [f"{line} ({len(line.split())})" for line in lines]'),
    ]  # fmt: skip
    before = [
        Rule("none", "", ""),
        Rule(
            "capital",
            "Change the first character of each word to upper case, and leave the others as they are.",
            "words = [word[0].upper() + word[1:] for word in words]",
        ),
        Rule("unique", "Of equal words, keep only the first.", "words = list(dict.fromkeys(words))"),
        Rule(
            "doubled",
            "Leave out each word that equals the word before it in the text.",
            "words = [word for place, word in enumerate(words) if place == 0 or words[place - 1] != word]",
        ),
    ]
    if difficulty == "easy":
        align, chosen, first = Rule("left", "", ""), rng.sample(extra[:3], rng.randint(0, 1)), before[0]
    else:
        count = 1 if difficulty == "medium" else 2
        chosen, first = rng.sample(extra, count), rng.choice(before)
    name = rng.choice(("wrap_text", "fill_lines", "break_lines", "set_paragraph"))
    signature = f"def {name}(text: str) -> str:"
    body = (
        "lines = []\nfor word in words:\n"
        f"    if lines and len(lines[-1]) + 1 + len(word) <= {width}:\n"
        '        lines[-1] += " " + word\n    else:\n        lines.append(word)\n'
    )
    rules = (
        "Split the text at spaces and ignore empty words." + f" {first.text}" * bool(first.text),
        f"Put as many words as possible into each line, joined by single spaces, so that no line has more than {width} "
        f"characters. {long_words.text}",
        *(rule.text for rule in (align, *chosen) if rule.text),
        "Join the lines by line breaks (an empty text without lines).",
    )

    def sample(rng: random.Random, size: int) -> tuple[str]:
        found = [rng.choice(WORDS) for _ in range(rng.randint(*((5, 8), (9, 18), (50, 70))[size]))]
        if rng.random() < 0.5:
            found.insert(rng.randrange(len(found)), found[0] * 2)
            found.insert(1, found[0])
        return (rng.choice((" ", "  ")).join(found),)

    return Problem(
        key=key_of("formatting-paragraph", long_words, align, *chosen, first), entry=name, signature=signature,
        intro="Break a text into lines.", rules=rules,
        reference=function_source(signature, "words = text.split()", first.code, long_words.code, body + align.code,
                                  *(rule.code for rule in chosen), 'return "\\n".join(lines)'),
        edges=(("",), ("word",), ("a b a b b a",), ("extraordinarily-long-words are rare",)), sample=sample,
    )  # fmt: skip


def _forms(unit: str) -> list[Rule]:
    """Return ways to write an integer `number` as `text`."""
    return [
        Rule("duration", "as a duration of so many seconds, with hours, minutes and seconds as in 1h 5m 20s, where "
             "parts that are 0 are left out, and 0 is 0s",
             'parts = [f"{number // 3600}h"] * (number >= 3600) + [f"{number // 60 % 60}m"] * (number // 60 % 60 > 0)\n'
             'parts += [f"{number % 60}s"] * (number % 60 > 0 or number == 0)\ntext = " ".join(parts)'),
        Rule("clock", "as a time of day of so many minutes after midnight (of any day), as 07:05",
             'text = f"{number // 60 % 24:02}:{number % 60:02}"'),
        Rule("plural", f'followed by a space and "{unit}", or "{unit}s" unless the number is 1',
             f'text = f"{{number}} {unit}" + "s" * (number != 1)'),
        Rule("ordinal", "as an ordinal number, as 1st, 2nd, 3rd, 4th, 11th, 12th, 13th, 21st",
             'ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")\n'
             'text = f"{number}" + ("th" if number % 100 in (11, 12, 13) else ending)'),
        Rule("size", "as a size: below 1024 with B, as in 512B; otherwise divided by 1024 and rounded down, with K, as "
             "in 3K; from 1024 K on, again divided by 1024 and rounded down, with M",
             'size, sign = number, "B"\nfor larger in "KM":\n    if size >= 1024:\n'
             '        size, sign = size // 1024, larger\ntext = f"{size}{sign}"'),
        Rule("roman", "as a Roman numeral (modulo 400; 0 is an empty text)",
             'rest, text = number % 400, ""\n'
             'for value, sign in ((100, "C"), (90, "XC"), (50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"),\n'
             '                    (4, "IV"), (1, "I")):\n'
             "    while rest >= value:\n        rest -= value\n        text += sign"),
        Rule("bar", 'as a bar: one "#" for each full ten of the number modulo 100, and then "." up to ten characters',
             'text = "#" * (number % 100 // 10) + "." * (10 - number % 100 // 10)'),
        Rule("money", "as an amount of so many cents, as $1,234.05",
             'text = f"${number // 100:,}.{number % 100:02}"'),
        Rule("grouped", 'with "\'" between groups of three digits, as in 1\'234\'567',
             'text = f"{number:,}".replace(",", "\'")'),
        Rule("padded", "with leading zeros up to 6 digits", 'text = f"{number:06}"'),
    ]  # fmt: skip


def _quantities(rng: random.Random, difficulty: Difficulty) -> Problem:
    unit = rng.choice(("item", "file", "point", "step"))
    forms = _forms(unit)
    select = rng.choice((
        Rule("all", "", ""),
        Rule("sorted", "Sort the numbers, the smallest first.", "numbers = sorted(numbers)"),
        Rule("unique", "Of equal numbers, keep only the first.", "numbers = list(dict.fromkeys(numbers))"),
        Rule("even", "Leave out the odd numbers.", "numbers = [number for number in numbers if number % 2 == 0]"),
    ))  # fmt: skip
    join = rng.choice((
        Rule("str:and", 'Join the texts: none gives an empty text, one is itself, two are joined by " and ", and more '
             'by ", ", with ", and " before the last one.',
             'if len(texts) <= 2:\n    return " and ".join(texts)\nreturn ", ".join(texts[:-1]) + ", and " + texts[-1]'),
        Rule("list[str]:list", "Return the list of the texts.", "return texts"),
        Rule("list[str]:padded", "Return the list of the texts, with spaces before them so that all are as long as the "
             "longest.", "width = max((len(text) for text in texts), default=0)\n"
             "return [text.rjust(width) for text in texts]"),
        Rule("str:runs", 'Join the texts by ", ", but write neighbors that are equal only once, followed by " (xN)" if '
             "there are N of them and N is at least 2.",
             'runs = []\nfor text in texts:\n    if runs and runs[-1][0] == text:\n        runs[-1][1] += 1\n'
             '    else:\n        runs.append([text, 1])\n'
             'return ", ".join(text + (f" (x{count})" if count > 1 else "") for text, count in runs)'),
        Rule("str:limit", 'Join the first three texts by "; ", and if there are more, add " and N more" with their '
             "number.",
             'return "; ".join(texts[:3]) + (f" and {len(texts) - 3} more" if len(texts) > 3 else "")'),
    ))  # fmt: skip
    m = rng.randint(2, 4)
    first, second = rng.sample(forms, 2)
    two = difficulty != "easy"
    condition = rng.choice((
        Rule("multiple", f"are divisible by {m}", f"number % {m} == 0"),
        Rule("large", "are greater than 1000", "number > 1000"),
        Rule("place", "are at positions 0, 2, 4, … at this point", "place % 2 == 0"),
    ))  # fmt: skip
    name = rng.choice(("write_numbers", "describe", "format_values", "spell_out"))
    signature = f"def {name}(numbers: list[int]) -> {join.name.partition(':')[0]}:"
    loop = "for place, number in enumerate(numbers):" if two and condition.name == "place" else "for number in numbers:"

    def block(code: str, levels: int) -> str:
        return "".join(f"{'    ' * levels}{line}\n" for line in code.splitlines())

    inner = (
        f"    if {condition.code}:\n{block(first.code, 2)}    else:\n{block(second.code, 2)}"
        if two
        else block(first.code, 1)
    )
    written = (
        f"Numbers that {condition.text} are written {first.text}. The others are written {second.text}." if two else
        f"Each number is written {first.text}."
    )  # fmt: skip
    bracket = difficulty == "hard" and rng.random() < 0.6
    mark = 'texts = [f"[{text}]" if len(text) % 2 == 0 else text for text in texts]' if bracket else ""

    def sample(rng: random.Random, size: int) -> tuple[list[int]]:
        count = rng.randint(*((2, 4), (3, 8), (25, 40))[size])
        numbers = [rng.choice((rng.randint(0, 30), rng.randint(0, 150), rng.randint(100, 9000), rng.randint(3000, 2000000)))
                   for _ in range(count)]  # fmt: skip
        if rng.random() < 0.5:
            numbers.insert(1, numbers[0])
        return (numbers,)

    return Problem(
        key=key_of("formatting-numbers", select, first, *([second, condition] if two else []), join, bracket),
        entry=name, signature=signature, intro="Write a list of integers, none of which is negative, as text.",
        rules=(
            *([select.text] if select.text else []), written,
            *(["Put each text that has an even number of characters into square brackets."] if bracket else []),
            join.text,
        ),
        reference=function_source(signature, select.code, f"texts = []\n{loop}\n{inner}    texts.append(text)", mark,
                                  join.code),
        edges=(([],), ([0],), ([1, 1],), ([11, 60, 1024, 3661, 99],)), sample=sample,
    )  # fmt: skip
