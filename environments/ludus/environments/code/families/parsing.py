"""Read a small format: settings, expressions, or packed texts."""

from __future__ import annotations

import random
from typing import Final

from ludus.environments.code.problem import Problem, Rule, function_source, key_of, pick_distinct
from ludus.server import Difficulty

KEYS: Final = ("size", "color", "Name", "LEVEL", "mode", "user", "Path", "limit", "tags", "host")


def draw(rng: random.Random, difficulty: Difficulty) -> Problem:
    """Return a problem."""
    kind = rng.choice(("settings", "settings", "expression", "packed"))
    if kind == "settings":
        return _settings(rng, difficulty)
    return _expression(rng, difficulty) if kind == "expression" else _packed(rng, difficulty)


def _conversions(rng: random.Random) -> list[Rule]:
    comma = rng.choice((",", "+", "~"))
    return [
        Rule("int", "A value of digits only, with an optional minus sign before them, becomes an integer.",
             'if value.removeprefix("-").isdigit():\n    value = int(value)'),
        Rule("bool", "The values yes and no, in lower case, become True and False.",
             'if value in ("yes", "no"):\n    value = value == "yes"'),
        Rule("list", f'A value that contains "{comma}" becomes the list of the texts between these characters.',
             f'if "{comma}" in value:\n    value = value.split("{comma}")'),
        Rule("none", "An empty value becomes None.", 'if value == "":\n    value = None'),
        Rule("quoted", "A value of at least two characters that begins and ends with ' loses these two characters and "
             "stays a text.",
             'if len(value) >= 2 and value[0] == "\'" == value[-1]:\n    value = value[1:-1]'),
        Rule("percent", 'A value of digits followed by "%" becomes the integer before the sign.',
             'if value.endswith("%") and value[:-1].isdigit():\n    value = int(value[:-1])'),
    ]  # fmt: skip


_DUPLICATES: Final = (
    Rule("last", "If a key occurs again, the last value counts.", "result[key] = value"),
    Rule("first", "If a key occurs again, the first value counts.", "result.setdefault(key, value)"),
    Rule("collect", "Each key gets the list of all of its values, in order, even if there is only one.",
         "result.setdefault(key, []).append(value)"),
    Rule("error", "If a key occurs again, raise ValueError.",
         'if key in result:\n    raise ValueError(f"{key} occurs twice")\nresult[key] = value'),
    Rule("number", "If a key occurs again, it gets the suffix _2, the third time _3, and so on.",
         'seen[key] = seen.get(key, 0) + 1\nresult[key if seen[key] == 1 else f"{key}_{seen[key]}"] = value'),
)  # fmt: skip


def _settings(rng: random.Random, difficulty: Difficulty) -> Problem:
    part, sign = rng.choice((";", "|", "&", "\n")), rng.choice(("=", ":", "->"))
    shown = {"\n": "line breaks"}.get(part, f'"{part}"')
    missing = [
        Rule("skip", f'Ignore entries without "{sign}".', f'if "{sign}" not in entry:\n    continue'),
        Rule("flag", f'An entry without "{sign}" is a key with the value True, to which no rule for values applies.',
             f'if "{sign}" not in entry:\n    entry = entry + "{sign}!"'),
        Rule("error", f'If an entry has no "{sign}", raise ValueError.',
             f'if "{sign}" not in entry:\n    raise ValueError(f"no {sign} in {{entry}}")'),
    ]  # fmt: skip
    keys = [
        Rule("lower", "Change keys to lower case.", "key = key.lower()"),
        Rule("dashes", 'Replace each "_" in keys by "-".', 'key = key.replace("_", "-")'),
        Rule("keep", "Keys stay as they are.", ""),
        Rule("group", "Only the part of a key after its last dot counts.", 'key = key.split(".")[-1]'),
    ]
    count = {"easy": 1, "medium": 2, "hard": rng.randint(3, 4)}[difficulty]
    values, bad = pick_distinct(rng, _conversions(rng), count, count), rng.choice(missing)
    key_rule, again = rng.choice(keys), rng.choice(_DUPLICATES)
    comment = difficulty == "hard" and rng.random() < 0.6
    name = rng.choice(("parse_settings", "read_options", "load_pairs", "parse_entries"))
    signature = f"def {name}(text: str) -> dict[str, object]:"
    convert = "\n".join(("el" if number else "") + rule.code for number, rule in enumerate(values))
    if bad.name == "flag":
        convert = f'if value == "!":\n    value = True\nel{convert}'
    escaped = "\\n" if part == "\n" else part
    ignored = ' or entry.startswith("#")' if comment else ""
    body = (
        f'result = {{}}\nseen = {{}}\nfor entry in text.split("{escaped}"):\n    entry = entry.strip()\n'
        f'    if not entry{ignored}:\n        continue\n'
        + _shift(bad.code)
        + f'    key, _, value = entry.partition("{sign}")\n    key, value = key.strip(), value.strip()\n'
        + _shift(key_rule.code) + _shift(convert) + _shift(again.code) + "return result"
    )  # fmt: skip
    if "seen[" not in body:
        body = body.replace("seen = {}\n", "")
    comma = next((rule.text.split('"')[1] for rule in values if rule.name == "list"), ",")

    def sample(rng: random.Random, size: int) -> tuple[str]:
        entries = []
        for _ in range(rng.randint(*((3, 4), (4, 8), (25, 40))[size])):
            key = rng.choice(KEYS) + rng.choice(("", "", "_x", ".y"))
            number = rng.randint(0, 40)
            value = rng.choice((str(number), f"-{number}", "yes", "no", f"a{comma}b{comma}{number}", "", f"'{number}'",
                                f"{number}%", f"word{number}", "Yes"))  # fmt: skip
            space = rng.choice(("", " "))
            entries.append(f"{key}{space}{sign}{space}{value}")
        rare = rng.random() < (0.15 if "error" in (bad.name, again.name) else 0.6)
        if rare:
            entries.insert(rng.randrange(len(entries)), rng.choice(KEYS))
        if again.name == "error" and rng.random() < 0.8:
            entries = list({entry.split(sign)[0].strip(): entry for entry in entries}.values())
        elif rng.random() < 0.8:
            entries.append(f"{entries[0].split(sign)[0]}{sign} {rng.randint(50, 99)}")
        if comment:
            entries.insert(rng.randrange(len(entries)), f"#{rng.choice(KEYS)}{sign}1")
        return (part.join(entries) + rng.choice(("", part)),)

    rules = (
        f"The entries are separated by {shown}. Remove spaces around each entry, and ignore empty entries."
        + " Ignore entries that begin with #." * comment,
        bad.text,
        f'The key is what is before the first "{sign}" of an entry, and the value what is after it, both without '
        f"spaces around them. {key_rule.text}",
        "Values are texts, with these exceptions, of which the first that fits applies: "
        + " ".join(rule.text for rule in values),
        again.text,
    )
    return Problem(
        key=key_of("parsing-settings", bad, key_rule, *values, again, "comment" if comment else "plain"),
        entry=name, signature=signature, intro="Read a text of settings into a dictionary.", rules=rules,
        reference=function_source(signature, body),
        edges=(("",), (f" {part} {part}",), (f"a{sign}1{part}a{sign}2",), (f"a{sign}b{sign}c",), ("x",)), sample=sample,
    )  # fmt: skip


def _shift(code: str) -> str:
    return "".join(f"    {line}\n" for line in code.splitlines())


_OPERATORS: Final = {
    "+": ("adds", "a + b"), "-": ("subtracts the right operand from the left one", "a - b"),
    "*": ("multiplies", "a * b"), "^": ("gives the greater operand", "max(a, b)"),
    "_": ("gives the smaller operand", "min(a, b)"), "#": ("gives 2 × left + right", "2 * a + b"),
    "%": ("gives the left operand modulo 10 plus the right one", "a % 10 + b"),
}  # fmt: skip

_EVALUATE: Final = """\
tokens = re.findall(r"\\d+|[^\\d\\s]", text)
place = 0

def peek():
    return tokens[place] if place < len(tokens) else ""

def take():
    nonlocal place
    place += 1
    return tokens[place - 1]

def atom():
    if peek() == "(" and ALLOWED:
        take()
        value = LOWEST()
        if peek() != ")":
            raise ValueError("a parenthesis is not closed")
        take()
        return value
    if not peek().isdigit():
        raise ValueError("a number is missing")
    return int(take())

LEVELS
result = LOWEST()
if place < len(tokens):
    raise ValueError("there is something after the end")
return RESULT"""

_LEFT: Final = """\
def NAME():
    a = NEXT()
    while peek() in OPERATORS:
        operator = take()
        b = NEXT()
        a = apply(operator, a, b)
    return a
"""
_RIGHT: Final = """\
def NAME():
    a = NEXT()
    if peek() in OPERATORS:
        operator = take()
        return apply(operator, a, NAME())
    return a
"""


def _expression(rng: random.Random, difficulty: Difficulty) -> Problem:
    count = {"easy": 2, "medium": 3, "hard": 4}[difficulty]
    operators = rng.sample(sorted(_OPERATORS), count)
    levels = 1 if difficulty == "easy" else rng.randint(2, 3)
    cuts = sorted(rng.sample(range(1, count), levels - 1)) if levels > 1 else []
    groups = [operators[start:end] for start, end in zip([0, *cuts], [*cuts, count], strict=True)]
    right = [rng.random() < 0.4 for _ in groups]
    parentheses = difficulty != "easy" and rng.random() < 0.7
    modulus = rng.choice((0, 7, 100, 1000))
    name = rng.choice(("evaluate", "calculate", "compute_text", "solve_line"))
    signature = f"def {name}(text: str) -> int:"
    definitions = []
    for number, (group, from_right) in enumerate(zip(groups, right, strict=True)):
        following = f"level_{number + 1}" if number + 1 < len(groups) else "atom"
        code = (_RIGHT if from_right else _LEFT).replace("NAME", f"level_{number}").replace("NEXT", following)
        definitions.append(code.replace("OPERATORS", repr(tuple(group))))
    apply = "def apply(operator, a, b):\n" + "".join(
        f'    if operator == "{sign}":\n        return {_OPERATORS[sign][1]}\n' for sign in operators
    )
    body = _EVALUATE.replace("LEVELS", "\n".join(definitions)).replace("LOWEST", "level_0")
    body = body.replace("ALLOWED", str(parentheses)).replace("RESULT", f"result % {modulus}" if modulus else "result")
    body = body.replace(" and True", "")
    if not parentheses:
        start = body.index('    if peek() == "("')
        body = body[:start] + body[body.index("    if not peek().isdigit()") :]
    binding = "All operators bind equally tightly." if len(groups) == 1 else (
        "From the loosest to the tightest: " + ", then ".join(" and ".join(group) for group in groups) + "."
    )  # fmt: skip
    sides = " ".join(
        f"Of {' and '.join(group)}, the {'right' if from_right else 'left'}most is applied first."
        for group, from_right in zip(groups, right, strict=True)
    )

    def sample(rng: random.Random, size: int) -> tuple[str]:
        terms, depth = [], 0
        for _ in range(rng.randint(*((3, 4), (4, 7), (20, 30))[size])):
            opened = parentheses and rng.random() < 0.3
            terms.append("(" * opened + str(rng.randint(0, 30)))
            depth += opened
            if depth and not opened and rng.random() < 0.6:
                terms[-1] += ")"
                depth -= 1
            terms.append(rng.choice(operators))
        text = rng.choice(("", " ")).join(terms[:-1]) + ")" * depth
        return (text + rng.choice(("", "", "", "", f" {operators[0]}", " 5", ")", "?")) if size else text,)

    return Problem(
        key=key_of("parsing-expression", *(f"{''.join(sorted(one))}{'r' * two}"
                                           for one, two in zip(groups, right, strict=True)), parentheses),
        group=key_of("parsing-expression", *map(len, groups), parentheses),
        entry=name, signature=signature,
        intro="Compute an expression of whole numbers without signs, with the operators "
        f"{', '.join(operators)}. Spaces may be anywhere between them.",
        rules=(
            "Meaning: " + "; ".join(f"{sign} {_OPERATORS[sign][0]}" for sign in operators) + ".",
            binding, sides,
            "Parentheses may be used as usual." if parentheses else "There are no parentheses.",
            "Raise ValueError if the text is not such an expression, or is empty.",
            f"Return the result modulo {modulus}." if modulus else "Return the result.",
        ),
        reference=function_source(signature, apply, body, imports="import re"),
        edges=(("",), ("7",), (f"3{operators[0]}",), (f"9 {operators[0]} 2 {operators[-1]} 4 {operators[0]} 1",)),
        sample=sample,
    )  # fmt: skip


def _packed(rng: random.Random, difficulty: Difficulty) -> Problem:
    open_, close = rng.choice(("[]", "()", "{}", "<>"))
    before = rng.random() < 0.5
    separator = rng.choice(("", "-", "."))
    variants = [
        Rule("repeat", "repeats the part in brackets as often as the number says", "part * count"),
        Rule("mirror", "repeats the part in brackets as often as the number says, each second time reversed",
             '"".join(part if turn % 2 == 0 else part[::-1] for turn in range(count))'),
        Rule("upper", "repeats the part in brackets as often as the number says, and changes the first time to upper "
             "case", 'part.upper() + part * (count - 1) if count else ""'),
        Rule("spread", "repeats each character of the part in brackets as often as the number says",
             '"".join(letter * count for letter in part)'),
        Rule("cycle", "moves as many characters of the part in brackets from its start to its end as the number says, "
             "one after the other", "part[count % len(part):] + part[:count % len(part)] if part else part"),
    ]  # fmt: skip
    chosen, other = rng.sample(variants, 2)
    escape = difficulty == "hard"
    second = difficulty != "easy"
    lone = rng.choice((
        Rule("once", "Brackets without a number count as if the number were 1.", "1"),
        Rule("twice", "Brackets without a number count as if the number were 2.", "2"),
    ))  # fmt: skip
    name = rng.choice(("unpack", "expand", "decode_text", "inflate"))
    signature = f"def {name}(text: str) -> str:"
    marks = f" A number after * instead, as in *2{open_}ab{close}, {other.text}." if second else ""
    body = f"""\
def read(place, depth):
    result = ""
    while place < len(text):
        letter = text[place]
        if letter == "{close}":
            if depth == 0:
                raise ValueError("nothing is open")
            return result, place + 1
"""
    if escape:
        body += """\
        if letter == "!":
            if place + 1 == len(text):
                raise ValueError("nothing follows")
            result += text[place + 1]
            place += 2
            continue
"""
    body += f"""\
        star = letter == "*"
        end = place + star
        while end < len(text) and text[end].isdigit():
            end += 1
        if end < len(text) and text[end] == "{open_}":
            digits = text[place + star:end]
            count = int(digits) if digits else {lone.code}
            part, place = read(end + 1, depth + 1)
            result += {f"({other.code}) if star else ({chosen.code})" if second else chosen.code}
        else:
            result += letter
            place += 1
    if depth:
        raise ValueError("something is not closed")
    return result, place

return read(0, 0)[0]{'.strip("' + separator + '")' if separator and before else ""}"""
    if not second:
        body = body.replace('        star = letter == "*"\n', "").replace("place + star", "place")

    def piece(rng: random.Random, depth: int) -> str:
        text = ""
        for _ in range(rng.randint(1, 3)):
            if depth and rng.random() < 0.6:
                number = rng.choice(("", str(rng.randint(0, 4)), str(rng.randint(1, 3))))
                text += "*" * (second and rng.random() < 0.5) + f"{number}{open_}{piece(rng, depth - 1)}{close}"
            else:
                text += rng.choice("abcdxyz") + rng.choice(("", "b", separator, f"{rng.randint(2, 9)}z"))
            if escape and rng.random() < 0.2:
                text += "!" + rng.choice((open_, close, "!", "3"))
        return text

    def sample(rng: random.Random, size: int) -> tuple[str]:
        text = "".join(piece(rng, 1 + (size > 0)) for _ in range(rng.randint(*((1, 2), (2, 3), (5, 7))[size])))
        return (text + rng.choice(("", "", "", "", "", close, f"2{open_}a")) if size else text,)

    rules = [
        f"A number before brackets, as in 3{open_}ab{close}, {chosen.text}.{marks}",
        lone.text,
        "Brackets may be nested; the inner ones are expanded first.",
        "All other characters, digits and stars included, stand for themselves."
        + " After !, the next character stands for itself, whatever it is, and the ! is dropped." * escape,
        "Raise ValueError if a bracket is not closed or closes nothing"
        + (", or if nothing follows a !." if escape else "."),
    ]
    if separator and before:
        rules.append(f'At last, remove all "{separator}" at the start and end of the result.')
    return Problem(
        key=key_of("parsing-packed", chosen, other if second else "", lone, escape, bool(separator and before)),
        group=key_of("parsing-packed", second, escape),
        entry=name, signature=signature, intro="Expand a packed text.", rules=tuple(rules),
        reference=function_source(signature, body),
        edges=(("",), ("ab1",), (f"{open_}ab{close}",), (f"0{open_}ab{close}c",), (f"2{open_}ab",), (close,)),
        sample=sample,
    )  # fmt: skip
