r"""Read mathematical text as a form: a value with its unit, an equation, a tuple, a list of answers, a set of numbers …

How this works. `read` takes one text in any usual way of writing (math_text.py makes one of them), and asks in turn for
words, the letter of a choice, a matrix, an equation, a set of real numbers, a list, a tuple; what is none of them is
a value, whose expression must be one (math_values.py). Parts are read in the same way. A text is read whole or not at
all: what is left over in any place, such as half of a fraction, makes it `Unreadable`. How forms are compared is in
math_equality.py.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from ludus.server.rewards.math_text import FUNCTIONS, normalize
from ludus.server.rewards.math_values import MEASURE, Unreadable, expression, split_unit, unit_name, value_at
from ludus.server.rewards.units import read_unit

LONGEST: Final = 2_000
"""The most characters of a text that is read."""
MOST_PARTS: Final = 24
"""The most parts of a list, and the most rows of a matrix."""


@dataclass(frozen=True)
class Words:
    """Text: a word such as `Tuesday`, or the letter of a choice; compared without case, spaces and punctuation."""

    text: str


@dataclass(frozen=True)
class Value:
    """An expression, with its unit: a name such as `km/h`, `deg`, `%`, `$`; empty if there is none."""

    latex: str
    unit: str = ""


@dataclass(frozen=True)
class Choice:
    """The letter of a choice with what it stands for."""

    letter: str
    form: Form


@dataclass(frozen=True)
class Based:
    """A number in another base than ten."""

    digits: str
    base: int


@dataclass(frozen=True)
class Ratio:
    """Numbers between colons, also a time of day; with a unit such as `am`."""

    parts: tuple[Value, ...]
    unit: str = ""


@dataclass(frozen=True)
class Equation:
    """A left and a right side."""

    left: Form
    right: Form


@dataclass(frozen=True)
class Several:
    """Answers in any order: a list without brackets, or a set."""

    parts: tuple[Form, ...]


@dataclass(frozen=True)
class Ordered:
    """A tuple, point or vector, the rows of a matrix, or an open or closed interval."""

    parts: tuple[Form, ...]
    brackets: str
    """Around it; `+` for a quantity of several units, and `==` for a chain of equations."""


@dataclass(frozen=True)
class Reals:
    """A set of real numbers."""

    intervals: tuple[Ordered, ...]
    variable: str = ""
    """Of the inequality that describes it."""


@dataclass(frozen=True)
class Inequality:
    """An inequality that describes no set of one variable, such as `|z| < 2` or `x + y <= 1`."""

    sides: tuple[Form, ...]
    signs: tuple[str, ...]


@dataclass(frozen=True)
class Congruence:
    """Two numbers that differ by a multiple of a third."""

    left: Form
    right: Form
    modulus: Form


Form = Words | Value | Choice | Based | Ratio | Equation | Several | Ordered | Reals | Inequality | Congruence


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────────

_TEXT: Final = re.compile(r"\\text\s*\{([^{}]*)\}")
_NAME: Final = (
    r"(?:\\?[A-Za-z]+(?:\^\{?-1\}?)?|\\(?:vec|overrightarrow|mathbf|hat|bar)\s*\{\w+\})(?:_(?:\{[^{}]*\}|\w))?'*"
)
_QUANTITIES: Final = (
    rf"{_NAME}\s*(?:\(\s*[\w, ]{{1,12}}\s*\))?",
    r"d[a-z]\s*/\s*d[a-z]|\\frac\{\s*d\s*\w*\s*\}\{\s*d\s*\w\s*\}",
    r"\\(?:det|nabla|angle|triangle|Delta)\s*\(?\s*\w+\s*\)?",
    r"[A-Z](?:\s*\\(?:cap|cup|setminus)\s*[A-Z])+",
    r"\|?\s*[A-Z]{2}\s*\|?",
    r"[a-wA-W](?:\s*[+*-]?\s*[a-wA-W]){1,4}",
)
"""What an equation gives a value to: names and functions, derivatives, sets, lengths, and sums such as `m+n`."""
_QUANTITY: Final = re.compile(rf"\s*(?:{'|'.join(_QUANTITIES)})\s*")
_LETTERS: Final = re.compile(r"\s*[A-J](?:\s*,\s*[A-J])+\s*")
_CHOICE: Final = re.compile(
    r"\s*(?:\\text\s*\{\s*\(?([A-J])\)?\s*[.:]?\s*\}|\(([A-J])\)|([A-J])[.:)](?=\s))\s*(.*)", re.DOTALL
)
_BASED: Final = re.compile(
    r"\(?\s*([0-9A-Fa-f]+)\s*\)?\s*_\s*\{?\s*(?:\\text\s*\{)?\s*(\d{1,2}|[a-z]{3,7})\s*\}?\s*\}?"
)
_BASES: Final = {
    word: str(base) for base, word in enumerate("two three four five six seven eight nine ten eleven twelve".split(), 2)
} | {"sixteen": "16"}
RELATION: Final = re.compile(r"\\le(?![a-z])|\\ge(?![a-z])|\\ne(?![a-z])|<|>")
_ELEMENT: Final = re.compile(r"\s*(\\?[A-Za-z](?:_\w)?)\s*\\in(?![a-z])\s*(.+)", re.DOTALL)
_BUILDER: Final = re.compile(
    r"\s*\\lbrace\s*(\\?[A-Za-z](?:_\w)?)(?:\s*\\in\s*\\mathbb\{R\})?\s*[|:]\s*(.+)\\rbrace\s*", re.DOTALL
)
_SCALED: Final = re.compile(r"(.*?)((?:\\lbrace\s*|[(\[]\s*)?\\begin\s*\{.*)", re.DOTALL)
_ROWS: Final = re.compile(
    r"\s*(?:\\lbrace\s*)?[(\[]?\s*\\begin\{(p?b?v?matrix|array|cases|smallmatrix|aligned)\}(?:\{[^{}]*\})?"
    r"(.+)\\end\{\1\}\s*[)\]]?\s*(?:\.\s*)?",
    re.DOTALL,
)
_CONDITION: Final = re.compile(
    r"[\s,;]*(?:\\text\s*\{\s*)?\(?\s*(?:where|for|with)?\s*\}?\s*[a-z]\s*\\in\s*"
    r"\\?(?:(?:mathbb|mathbf|text)\s*\{[ZN]\}|[ZN])\s*\)?\s*$"
)
_CONGRUENCE: Final = re.compile(
    r"(.+?)\\equiv(.+?)(?:\\pmod\s*\{?|\(?\s*\\?(?:text\s*\{\s*)?\\?b?mod\s*\}?)\s*([\w+*-]+)\s*[})]*"
)
_SIGN: Final = re.compile(r"\\[pm][mp](?![a-z])")
_EQUALS: Final = r"(?<![<>!\\])=(?!=)"
_OR: Final = r"\\text\s*\{\s*,?\s*or\s*,?\s*\}|\bor\b"
_AND: Final = r",|\\text\s*\{\s*,?\s*(?:and|but)\s*,?\s*\}|\b(?:and|but)\b"
_LIST: Final = rf";|{_AND}|{_OR}"
_WRAPPINGS: Final = tuple(
    re.compile(pattern, re.DOTALL)
    for pattern in (
        r"\[\s*['\"](.*)['\"]\s*\]",
        r"\\boxed\s*\{((?:[^{}]|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})*)\}",
        r"\\\((.*)\\\)",
        r"\\\[(.*)\\\]",
        r"\$\$(.*)\$\$",
        r"\$((?:[^$\\]|\\.)+)\$\.?",
    )
)
_FORMULA_DOLLAR: Final = re.compile(r"(?<!\\)\$(?=[^$]*(?<!\\)\$)|(?<=[^\d\\\s,;])(?<!\\)\$(?!\d)")
_BRACKETS: Final = (
    (r"\lbrace", r"\rbrace", "{}"), (r"\langle", r"\rangle", "()"), ("{", "}", "{}"), ("(", ")", "()"),
    ("[", "]", "[]"), ("(", "]", "(]"), ("[", ")", "[)"),
)  # fmt: skip
_ALL_REALS: Final = (Value(r"-\infty"), Value(r"\infty"))


def read(text: str) -> Form:
    """Return the form of a text.

    Raises:
        Unreadable: it is none, it is cut off, or it is longer than 2,000 characters.
    """
    if len(text) > LONGEST:
        raise Unreadable("it is too long")
    try:
        return _read(normalize(_unwrapped(text)))
    except RecursionError:
        raise Unreadable("it is nested too deeply") from None


def _unwrapped(text: str) -> str:
    """Return a text without the list of Python, dollars, brackets and box around it."""
    before = None
    while before != text:
        before = text
        for wrapping in _WRAPPINGS:
            inner = wrapping.fullmatch(text.strip())
            text = inner[1] if inner else text.strip()
    # Dollars that pair off are marks of formulas; a single one is a currency.
    return _FORMULA_DOLLAR.sub(" ", text) if text.count("$") - text.count("\\$") > 1 else text


def _read(text: str) -> Form:
    text = re.sub(r"^[=:]\s*|[,;:]\s*$", "", _CONDITION.sub("", text).strip()).strip()
    if not text:
        raise Unreadable("it is empty")
    form = _read_words(text) or _read_rows(text)
    if form is None and RELATION.search(text) is None:
        form = _read_equation(text)
    if form is None and (congruence := _CONGRUENCE.fullmatch(text)) is not None:
        form = Congruence(_read(congruence[1]), _read(congruence[2]), _read(congruence[3]))
    form = form or _read_reals(text) or _read_inequality(text) or _read_measures(text) or _read_list(text)
    return form or _read_brackets(text) or _read_value(text)


# ── words ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _read_words(text: str) -> Form | None:
    """Return words, letters of choices, and sets that have a name; None for formulas."""
    inside = _TEXT.fullmatch(text)
    if inside is not None and _LETTERS.fullmatch(inside[1]):
        return Several(tuple(Words(letter.casefold()) for letter in re.findall("[A-J]", inside[1])))
    if text == r"\mathbb{R}":
        return Reals((Ordered(_ALL_REALS, "()"),))
    if re.fullmatch(r"\\emptyset|\\mathbb\s*\{[A-Z]\}(?:\^\{?[+*n]\}?)?", text):
        return Words(re.sub(r"[\\\s]", "", text).casefold())
    if re.fullmatch(r"[A-J]|\([a-jA-J]\)", text):
        return Words(text.strip("()").casefold())
    words = inside[1] if inside is not None else text
    if re.fullmatch(r"\s*[①-⑳]+\s*", words):
        return Words(words.strip())
    if (
        inside is not None
        and plain_words(words)
        and (not re.search(r"\d", words) or re.match(r"\s*[A-Za-z]{3}", words))
    ):
        return Words(plain_words(words))
    if re.search(r"[A-Za-z]{3}", text) and re.fullmatch(r"[A-Za-z\s'.\"-]+", text):
        return None if read_unit(text) else Words(plain_words(text))
    # A phrase with a variable in it, such as "all even n".
    plain = _TEXT.sub(r" \1 ", text)
    if re.fullmatch(r"[A-Za-z\s]+", plain) and any(len(word) > 2 and word not in FUNCTIONS for word in plain.split()):
        return Words(plain_words(plain))
    choice = _CHOICE.fullmatch(text) if len(_split(text, _LIST)) == 1 else None
    if choice is None:
        return None
    letter, content = choice[1] or choice[2] or choice[3], choice[4].strip()
    return Choice(letter.casefold(), _read(content)) if content else Words(letter.casefold())


def plain_words(text: str) -> str:
    """Return words without case, punctuation and white space between them."""
    return re.sub(r"[\s.,;:!\"'()-]+", " ", text).strip().casefold()


# ── lists, tuples, matrices ───────────────────────────────────────────────────────────────────────────────────────────


def _split(text: str, separator: str) -> list[str]:
    """Split a text at separators that are not inside of brackets or of an environment."""
    pattern = re.compile(separator)
    parts, depth, start, at = [], 0, 0, 0
    while at < len(text):
        command = re.compile(r"\\text\s*\{[^{}]*\}|\\[a-zA-Z]+|.", re.DOTALL).match(text, at)
        token = command[0] if command else text[at]
        match = pattern.match(text, at) if depth == 0 else None
        if match is not None and (token[0] != "\\" or match[0][0] == "\\"):
            parts.append(text[start:at])
            start = at = match.end()
            continue
        if token in ("(", "[", "{", r"\lbrace", r"\langle", r"\lfloor", r"\lceil", r"\begin"):
            depth += 1
        elif token in (")", "]", "}", r"\rbrace", r"\rangle", r"\rfloor", r"\rceil", r"\end"):
            depth -= 1
        at += len(token)
    return [*parts, text[start:]]


def _several(parts: Sequence[Form]) -> Form:
    flat = [inner for part in parts for inner in (part.parts if isinstance(part, Several) else (part,))]
    return Several(tuple(flat)) if len(flat) > 1 else flat[0]


def _read_list(text: str) -> Form | None:
    parts = [part.strip() for part in _split(text, _LIST) if part.strip()]
    if len(parts) < 2:
        return None
    if len(parts) > MOST_PARTS:
        raise Unreadable("it has too many parts")
    numbers = [f"({number})" for number in range(1, len(parts) + 1)]
    if all(map(str.startswith, parts, numbers)):  # "(1) 3; (2) 5" answers two questions
        return Ordered(tuple(map(_read, map(str.removeprefix, parts, numbers))), "()")
    return _several([_read(part) for part in parts])


def _read_brackets(text: str) -> Form | None:
    """Return the set or tuple of which the brackets are around the whole text; None if there are none."""
    for opening, closing, brackets in _BRACKETS:
        if not (text.startswith(opening) and text.endswith(closing) and _encloses(text)):
            continue
        inner = text[len(opening) : len(text) - len(closing)]
        parts = _split(inner, r",|;")
        if brackets == "{}" and not inner.strip():
            return Words("emptyset")
        if brackets == "{}":
            elements = _several([_read(part) for part in parts])
            return Words("{emptyset}") if elements == Words("emptyset") else elements
        if 1 < len(parts) <= MOST_PARTS:
            return Ordered(tuple(_read(part) for part in parts), brackets)
    return None


def _encloses(text: str) -> bool:
    """Return whether the bracket at the beginning is closed at the end, whatever its kind."""
    depth = 0
    for token in re.finditer(r"\\[lr](?:brace|angle)|[()\[\]{}]", text):
        depth += 1 if token[0] in ("(", "[", "{", r"\lbrace", r"\langle") else -1
        if depth == 0:
            return token.end() == len(text)
    return False


def _read_rows(text: str) -> Form | None:
    """Return a matrix, perhaps times a number, or the equations between a brace; None if the text is neither."""
    scaled = _SCALED.fullmatch(text)
    rows = _ROWS.fullmatch(scaled[2]) if scaled is not None and "=" not in scaled[1] else None
    if scaled is None or rows is None:
        return None
    factor, lines = scaled[1].removesuffix(r"\cdot ").strip(), re.split(r"\\\\(?:\[[^\]]*\])?", rows[2])
    lines = [line for line in lines if line.strip()]
    if len(lines) > MOST_PARTS:
        raise Unreadable("it has too many rows")
    if rows[1] in ("cases", "array", "aligned") and "=" in rows[2]:
        return _several([_read(line.replace("&", " ").strip().rstrip(",")) for line in lines])
    cells = [[f"({factor}) \\cdot ({cell})" if factor else cell for cell in line.split("&")] for line in lines]
    return Ordered(tuple(Ordered(tuple(map(_read, row)), "[]") for row in cells), "[]")


# ── equations and sets of real numbers ────────────────────────────────────────────────────────────────────────────────


def _read_equation(text: str) -> Form | None:
    sides = _split(text, _EQUALS)
    if len(sides) < 2 or len(_split(text, _LIST)) > 1:
        return None
    left_side = _read_left(sides[0])
    if len(sides) > 2 and not quantity_of(left_side) and not is_number(left_side):
        try:
            return Ordered(tuple(Equation(_read_side(a), _read_side(b)) for a, b in itertools.pairwise(sides)), "==")
        except Unreadable:  # a side that is no expression, such as a sum with dots
            pass
    return Equation(left_side, _read_side(sides[-1]))


def _read_left(text: str) -> Form:
    """Read the left side of an equation, which may be no expression, such as `A \\cap B` or a limit."""
    value = Value(text.strip())
    if quantity_of(value):
        return value
    try:
        return _read_side(text)
    except Unreadable:
        return value


def _read_side(text: str) -> Form:
    form = _read(text)
    return _read_value(text) if isinstance(form, Words) and len(form.text) == 1 else form


def quantity_of(form: Form) -> str:
    """Return what the left side of an equation names: `x`, `f` for `f(x)`, `m+n`; empty if it is an expression."""
    if isinstance(form, Words):
        return form.text.replace(" ", "")
    if not isinstance(form, Value) or form.unit or not _QUANTITY.fullmatch(form.latex):
        return ""
    name = re.sub(r"\s+", "", form.latex)
    return re.sub(r"\([a-z,]+\)$", "", re.sub(r"^d(\w)/d(\w)$", r"\\frac{d\1}{d\2}", name))


def is_number(form: Form) -> bool:
    """Return whether a form is an expression without variables."""
    try:
        return isinstance(form, Value) and not expression(form.latex).free_symbols
    except Unreadable:
        return False


def _read_inequality(text: str) -> Form | None:
    signs = RELATION.findall(text)
    if not signs or len(_split(text, _LIST)) > 1:
        return None
    return Inequality(tuple(_read(side) for side in RELATION.split(text)), tuple(signs))


def _read_reals(text: str) -> Reals | None:
    """Return the set of real numbers that intervals with `\\cup` or inequalities describe; None for anything else."""
    if (builder := _BUILDER.fullmatch(text)) is not None:
        return _read_reals(builder[2].strip()) if RELATION.search(builder[2]) else None
    if (element := _ELEMENT.fullmatch(text)) is not None:
        inner = _read_reals(element[2]) or as_reals(_read_brackets(element[2]))
        return None if inner is None else Reals(inner.intervals, element[1])
    if len(parts := _split(text, r"\\(?:setminus|backslash)(?![a-z])")) == 2:
        reals, holes = as_reals(_read(parts[0])), _read(parts[1])
        if reals is None or len(reals.intervals) != 1:
            return None
        return Reals(_without(reals.intervals[0], holes.parts if isinstance(holes, Several) else (holes,)))
    if len(parts := _split(text, r"\\cup(?![a-z])")) > 1:
        return _union([as_reals(_read_brackets(part.strip())) for part in parts])
    if RELATION.search(text) is None or re.search(r"\\(?:begin|langle)", text):
        return None
    if len(parts := _split(text, _OR)) > 1:
        return _union([_read_reals(part.strip(" ,")) or _read_point(part.strip(" ,")) for part in parts])
    return _read_bounds([part for part in _split(text, _AND) if part.strip()])


def _union(sets: Sequence[Reals | None]) -> Reals | None:
    present = [set_ for set_ in sets if set_ is not None]
    if len(present) < len(sets):
        return None
    return Reals(tuple(interval for set_ in present for interval in set_.intervals), present[0].variable)


def _read_point(text: str) -> Reals | None:
    """Return the set of one number that `x = 3` describes."""
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch(_NAME, name.strip()):
        return None
    number = _read(value)
    return Reals((Ordered((number, number), "[]"),), name.strip())


def as_reals(form: Form | None) -> Reals | None:
    """Return a form as a set of real numbers: an interval in brackets, or a set of numbers; None for anything else."""
    if isinstance(form, Reals):
        return form
    if isinstance(form, Several):
        return Reals(tuple(Ordered((part, part), "[]") for part in form.parts))
    return Reals((form,)) if isinstance(form, Ordered) and len(form.parts) == 2 else None


def _read_bounds(conditions: Sequence[str]) -> Reals | None:
    """Return the set that several inequalities of one variable describe together; None if they are no such."""
    bounds: dict[bool, tuple[Form, str]] = {}
    variable, holes = "", []
    for condition in conditions:
        sides, signs = RELATION.split(condition), RELATION.findall(condition)
        names = [index for index, side in enumerate(sides) if _is_variable(side)]
        if len(names) != 1 or len(signs) not in (1, 2) or variable not in ("", sides[names[0]].strip()):
            return None
        at, variable = names[0], sides[names[0]].strip()
        for index, sign in enumerate(signs):
            bound = _read(sides[index] if index < at else sides[index + 1])
            if index not in (at - 1, at) or not isinstance(bound, Value):
                return None
            is_upper = (sign in ("<", r"\le")) == (index == at)
            if sign == r"\ne":
                holes.append(bound)
            elif is_upper in bounds:  # which of the two bounds holds is not computed here
                return None
            else:
                bounds[is_upper] = (bound, ("(", ")", "[", "]")[is_upper + 2 * (sign in (r"\le", r"\ge"))])
    low, opening = bounds.get(False, (_ALL_REALS[0], "("))
    high, closing = bounds.get(True, (_ALL_REALS[1], ")"))
    return Reals(_without(Ordered((low, high), opening + closing), holes), variable)


def _is_variable(side: str) -> bool:
    return bool(re.fullmatch(rf"{_NAME}(?:\(\w\))?", side.strip())) and side.strip() not in (r"\pi", r"\infty", "e")


def _without(interval: Ordered, holes: Sequence[Form]) -> tuple[Ordered, ...]:
    """Return an interval without some numbers."""

    def size(hole: Form) -> float:
        value = value_at(expression(hole.latex), {}) if isinstance(hole, Value) else None
        if value is None:
            raise Unreadable("what a set leaves out is no number")
        return float(value)

    parts = [interval]
    for hole in sorted(holes, key=size):
        last_part = parts.pop()
        parts.append(Ordered((last_part.parts[0], hole), f"{last_part.brackets[0]})"))
        parts.append(Ordered((hole, last_part.parts[1]), f"({last_part.brackets[1]}"))
    return tuple(parts)


# ── values ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _read_measures(text: str) -> Form | None:
    """Return a quantity of several units, such as 3 hours 20 minutes; None for anything else."""
    if not re.fullmatch(f"(?:{MEASURE}){{2,3}}", text):
        return None
    parts = tuple(Value(number, unit_name(first or second)) for number, first, second in re.findall(MEASURE, text))
    return Ordered(parts, "+") if all(part.unit and part.unit[0] != "~" for part in parts) else None


def _read_value(text: str) -> Form:
    """Return an expression with its unit; with a sign `\\pm`, the two expressions that it stands for."""
    if _SIGN.search(text):
        upper, lower = ({r"\pm": first, r"\mp": second} for first, second in (("+", "-"), ("-", "+")))
        return Several(tuple(_read(_SIGN.sub(partial(_signed, signs), text)) for signs in (upper, lower)))
    based = _BASED.fullmatch(re.sub(r"^\\text\s*\{([^{}]*)\}", r"\1", text))
    if based is not None and (base := _BASES.get(based[2], based[2])).isdecimal() and 2 <= int(base) <= 36:
        return Based(based[1].casefold().lstrip("0") or "0", int(base))
    ratio = _split(text, ":")
    if len(ratio) > 1:
        *first, last = [_expression_with_unit(part) for part in ratio]
        return Ratio((*first, Value(last.latex)), last.unit)
    return _expression_with_unit(text)


def _signed(signs: Mapping[str, str], match: re.Match[str]) -> str:
    return signs[match[0]]


def _expression_with_unit(text: str) -> Value:
    latex, unit = split_unit(text.strip())
    if not re.search(r"[\w\\]", latex):
        raise Unreadable("there is no expression")
    expression(latex)
    return Value(latex, unit)
