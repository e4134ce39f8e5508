r"""Find the mathematics that a message gives as its answer, and write it in one normal form of LaTeX.

How this works. `answer_text` takes the part of a message that states the answer: the last `\boxed{…}` or the last run
of them ("\boxed{5} or \boxed{6}" are two answers), with a name and `=` before it and a unit behind it; else the last
formulas between dollars; else what is left of a sentence after "is" or "=". An answer that is cut off is no answer.

`normalize` writes text in one normal form, so that the reader (math_forms.py) knows one way for each thing: characters
of Unicode (`√2`, `½`, `π/2`, `x²`, `≤`), plain text (`sqrt(13)*3`, `1.5e6`, `pi/2`), marks of Markdown, and the many
ways to write spaces, signs and groups of thousands in LaTeX. Nothing is dropped that could change the value: what is
not known stays, and cannot be read later.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

from ludus.server.rewards.answers import group_end, stated_answers
from ludus.server.rewards.units import VULGAR_FRACTIONS

# ── one normal form ───────────────────────────────────────────────────────────────────────────────────────────────────

_COMMANDS: Final = {
    r"\pi": "π", r"\infty": "∞", r"\le": "≤⩽≦", r"\ge": "≥⩾≧", r"\ne": "≠", r"\times": "×", r"\cdot": "·⋅∙",
    r"\pm": "±", r"\mp": "∓", r"\cup": "∪", r"\cap": "∩", r"\emptyset": "∅", r"\in": "∈", r"\equiv": "≡",
    r"\setminus": "∖", r"^\circ": "°º", r"^\circ C": "℃", r"\lfloor": "⌊", r"\rfloor": "⌋", r"\lceil": "⌈",
    r"\rceil": "⌉", r"\langle": "⟨", r"\rangle": "⟩", r"\alpha": "α", r"\beta": "β", r"\gamma": "γ", r"\delta": "δ",
    r"\epsilon": "ε", r"\zeta": "ζ", r"\eta": "η", r"\theta": "θ", r"\lambda": "λ", r"\mu": "μ", r"\nu": "ν",
    r"\xi": "ξ", r"\rho": "ρ", r"\sigma": "σ", r"\tau": "τ", r"\phi": "φϕ", r"\chi": "χ", r"\psi": "ψ", r"\omega": "ω",
    r"\Gamma": "Γ", r"\Delta": "Δ", r"\Omega": "Ω", r"\sum": "Σ∑", r"\prod": "∏", r"\int": "∫", r"\hbar": "ℏ",
    r"\mathbb{Z}": "ℤ", r"\mathbb{R}": "ℝ", r"\mathbb{N}": "ℕ",
}  # fmt: skip
_SPACES: Final = "\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
_CHARACTERS: Final = str.maketrans(
    {character: f"{command} " for command, characters in _COMMANDS.items() for character in characters}
    | dict.fromkeys("−–—‑‐﹣－", "-")
    | dict.fromkeys(_SPACES, " ")
    | dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff", "")
    | dict(zip("’′“”÷∕⁄∗，；：（）｛｝％＝＋", "''\"\"///*,;:(){}%=+", strict=True))
)
_RAISED: Final = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱˣ", "0123456789+-()nix")
_LOWERED: Final = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋₍₎ₙₖₐₓ", "0123456789+-()nkax")
_VULGAR: Final = re.compile(rf"(\d*)\s?([{''.join(VULGAR_FRACTIONS)}])")
FUNCTIONS: Final = (
    "arcsinh", "arccosh", "arctanh", "arcsin", "arccos", "arctan", "arccot", "sinh", "cosh", "tanh", "coth", "sech",
    "sin", "cos", "tan", "cot", "sec", "csc", "log", "ln", "exp", "max", "min", "gcd", "lcm", "det",
)  # fmt: skip
_NAMES: Final = (
    *FUNCTIONS, "pi", "infty", "infinity", "theta", "alpha", "beta", "gamma", "lambda", "omega", "mu", "sigma", "phi",
)  # fmt: skip
_PLAIN_NAME: Final = re.compile(rf"(?<![\\A-Za-z])({'|'.join(_NAMES)})(?![A-Za-z])")
_SPACED: Final = re.compile(r"(?<!\\)\\(?:[,;:!> ]|quad(?![a-z])|qquad(?![a-z])|enspace|thinspace)|~")
_DROPPED: Final = re.compile(r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|textstyle|limits|nolimits)(?![a-zA-Z])")
_GROUPS: Final = re.compile(r"(?<![\d.])([1-9]\d{0,2})((?:(?:,\\!|\{,\}|\\,|\\!,|\\ |,| )\d{3})+)(?![\d])(?!\}?\\frac)")
_BRACKETS: Final = re.compile(r"(\(|\[|\\\{|\\lbrace)|(\)|\]|\\\}|\\rbrace)")
_LATEX: Final = (
    (re.compile(r"\\[dtc]frac(?![a-z])"), r"\\frac"),
    (re.compile(r"\\leq?(?:qslant)?(?![a-z])"), r"\\le "),
    (re.compile(r"\\geq?(?:qslant)?(?![a-z])"), r"\\ge "),
    (re.compile(r"\\neq(?![a-z])|\\not\s*="), r"\\ne "),
    (re.compile(r"\\lt(?![a-z])"), "<"),
    (re.compile(r"\\gt(?![a-z])"), ">"),
    (re.compile(r"\\varnothing(?![a-z])|\\O(?![a-zA-Z])"), r"\\emptyset "),
    (re.compile(r"\\(?:lor|vee)(?![a-z])"), r" or "),
    (re.compile(r"\\(?:land|wedge)(?![a-z])"), r" and "),
    (re.compile(r"\\(?:vert|mid|lvert|rvert)(?![a-z])"), "|"),
    (re.compile(r"\\(?:colon)(?![a-z])"), ":"),
    (re.compile(r"\\lbrace(?![a-z])"), r"\\{"),
    (re.compile(r"\\rbrace(?![a-z])"), r"\\}"),
    (re.compile(r"\\lg(?![a-z])"), r"\\log_{10}"),
    (re.compile(r"\\(?:cdotp|bullet|ast)(?![a-z])"), r"\\cdot "),
    (re.compile(r"\\(?:dots|ldots|cdots)(?![a-z])|…"), r"\\ldots "),
    (re.compile(r"\\(?:mathrm|text|rm|operatorname)\s*\{\s*([ei])\s*\}"), r" \1 "),
    (re.compile(r"\\operatorname\*?\s*\{\s*([a-z]+)\s*\}"), r"\\\1 "),
    (re.compile(r"\\(?:textbf|textit|textrm|textsf|mbox|hbox|textnormal|emph)(?![a-z])"), r"\\text"),
    (re.compile(r"\\mathrm(?![a-z])|\\rm(?![a-z])"), r"\\text"),
    (re.compile(r"\^\s*\{?\s*\\circ\s*\}?"), r"^\\circ "),
    (re.compile(r"\\degree(?:s)?(?![a-z])"), r"^\\circ "),
    (re.compile(r"\\(?:mathbf|boldsymbol|bm|pmb|text)\s*\{\s*(-?\d[\d.,]*)\s*\}"), r"\1"),
    (re.compile(r"^\\text\s*\{[^{}]*(?::|=|\bis)\s*\}"), ""),
    (re.compile(r"\^\s*\{?\s*\\prime\s*\}?|\\prime(?![a-z])"), "'"),
    (re.compile(r"\{\s*([^{}]+?)\s*\\choose\s+([^{}]+?)\s*\}"), r"\\binom{\1}{\2}"),
)


def normalize(text: str) -> str:
    """Return a mathematical text in one normal form of LaTeX."""
    text = _VULGAR.sub(_vulgar, text)
    text = re.sub(r"[⁰¹²³⁴-⁹⁺⁻⁽⁾ⁿⁱˣ]+", lambda match: f"^{{{match[0].translate(_RAISED)}}}", text)
    text = re.sub(r"[₀-₎ₙₖₐₓ]+", lambda match: f"_{{{match[0].translate(_LOWERED)}}}", text)
    text = text.translate(_CHARACTERS)
    text = powers(text).replace("**", " ")
    text = re.sub(r"^\s*#{1,6}\s+", "", text)
    text = _GROUPS.sub(_joined, text)
    text = _DROPPED.sub("", text)
    for written, normal in _LATEX:
        text = written.sub(normal, text)
    text = _SPACED.sub(" ", text)
    text = re.sub(r"\\\{|\\\}", lambda match: r"\lbrace " if match[0] == r"\{" else r"\rbrace ", text)
    text = _fractions(_roots(text))
    text = _named(text).replace(r"\infinity ", r"\infty ")
    text = re.sub(r"_\s*(\w)(?!\w*\})", r"_{\1}", text)
    text = re.sub(r"(?<![\w.])(\d+(?:\.\d+)?|\.\d+)\s?[eE]([+-]?\d{1,4})(?![\w.])", r"\1 \\cdot 10^{\2}", text)
    text = re.sub(r"(\d)\s*[xX]\s*10\s*(?=\^)", r"\1 \\cdot 10", text)
    text = re.sub(r"(?<=[\w)}])\s*\*\s*(?=[\w(\\])", r" \\cdot ", text)
    text = re.sub(r"\^\(([^()]{1,40})\)", r"^{\1}", text)
    text = re.sub(r"(\d)\.(?!\d)(?=\s*(?:$|[,;})]))", r"\1", text)
    return re.sub(r"\s+", " ", text).strip()


def powers(text: str) -> str:
    """Write Python's powers with `^`: `2**10` and `x**(-1)`; other `**` are marks of Markdown."""
    text = re.sub(r"(?<=[\w)}\]])\*\*\(([^()]{1,60})\)", r"^{\1}", text)
    return re.sub(r"(?<=[\w)}\]])\*\*(-?\w+)(?!\w*\*\*)", r"^{\1}", text)


def _joined(match: re.Match[str]) -> str:
    """Return groups of three digits as one number; in brackets, as in `(0,100)`, a comma is between two numbers."""
    depth = sum(1 if bracket[1] else -1 for bracket in _BRACKETS.finditer(match.string, 0, match.start()))
    is_marked = re.search(r"\\|\{", match[2]) is not None
    return match[1] + re.sub(r"\D", "", match[2]) if is_marked or depth <= 0 else match[0]


def _vulgar(match: re.Match[str]) -> str:
    above, below = VULGAR_FRACTIONS[match[2]].split("/")
    return rf"{match[1]}\frac{{{above}}}{{{below}}}"


def _named(text: str) -> str:
    """Write names of functions with a backslash, except inside `\\text{…}`."""
    parts = re.split(r"(\\text\s*\{[^{}]*\})", text)
    return "".join(part if index % 2 else _PLAIN_NAME.sub(r"\\\1 ", part) for index, part in enumerate(parts))


_ROOT: Final = re.compile(r"√|∛|∜|\\sqrt(?![a-z])|(?<![\\A-Za-z])sqrt(?=\s*[({])")
_ATOM: Final = re.compile(r"\s*(\\[a-zA-Z]+|\d+(?:\.\d+)?|[A-Za-z])")


def _roots(text: str) -> str:
    """Write every root as `\\sqrt{…}` or `\\sqrt[n]{…}`."""
    written, at = [], 0
    while match := _ROOT.search(text, at):
        written.append(text[at : match.start()])
        at, degree = match.end(), {"∛": "[3]", "∜": "[4]"}.get(match[0], "")
        while text[at : at + 1] == " ":
            at += 1
        if text[at : at + 1] == "[" and not degree and (end := group_end(text, at)) is not None:
            degree, at = text[at:end], end
            while text[at : at + 1] == " ":
                at += 1
        end = group_end(text, at) if text[at : at + 1] in ("{", "(") else None
        if end is not None:
            inner, at = text[at + 1 : end - 1], end
        elif (atom := _ATOM.match(text, at)) is not None:
            inner, at = (atom[1] if match[0][0] != "\\" or atom[1][0] == "\\" else atom[1][0]), atom.end()
            at -= len(atom[1]) - len(inner)
        else:
            written.append(r"\sqrt ")
            continue
        written.append(rf"\sqrt{degree}{{{_roots(inner)}}}")
    return "".join([*written, text[at:]])


def _fractions(text: str) -> str:
    """Write every `\\frac` with two braces: `\\frac12` and `\\frac1{2}`."""
    written, at = [], 0
    while (start := text.find(r"\frac", at)) >= 0:
        written.append(text[at : start + 5])
        at = start + 5
        for _ in range(2):
            while text[at : at + 1] == " ":
                at += 1
            end = group_end(text, at) if text[at : at + 1] == "{" else None
            if end is not None:
                written.append("{" + _fractions(text[at + 1 : end - 1]) + "}")
                at = end
            elif (atom := re.match(r"\\[a-zA-Z]+|\w", text[at:])) is not None:
                written.append("{" + atom[0] + "}")
                at += atom.end()
            else:
                break
    return "".join([*written, text[at:]])


# ── the answer in a message ───────────────────────────────────────────────────────────────────────────────────────────

_BOX: Final = re.compile(r"\\(?:boxed|fbox)\s*(?=\{)|\\(?:boxed|fbox)\s+(?=\w)")
_JOINTS: Final = re.compile(
    r"(?:\s|[$,;.&*]|\(\d\)|\\[,;: ()\[\]]|\\q?quad|\\text\s*\{\s*,?\s*(?:and|or)\s*,?\s*\}"
    r"|\b(?:and|or|at|and at|or at)\b)*"
)
"""What may be between answers of one list."""
_FORMULA: Final = re.compile(
    r"\$\$([^$]+)\$\$|(?<!\\)\$((?:\\\$|[^$\n])+?)(?<!\\)\$(?!\d)|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL
)
_VERB: Final = re.compile(
    r"(?<![A-Za-z\\])(?:is|are|equals?|be|at|has|have|costs?|takes?|gives?|get|was|were|needs?|yields?|becomes?)"
    r"(?:\s+(?:exactly|at|also))?(?:\s*:)?\s+|[:→⇒]\s+|\\(?:implies|Rightarrow|to|therefore)\s+"
)
_CONDITION: Final = re.compile(r"\s(?:for (?:all|every|any|each|some)|where|in terms of)\s")
_NOISE: Final = re.compile("[∴∎⟹⇒✅✓✔☑→\u2600-\u27bf\U0001f000-\U0001faff\ufe0f]")
_MARKED: Final = re.compile(r"<answer>(.{1,2000}?)</answer>|####\s+([^\n#]{1,500})\s*\Z", re.DOTALL)
"""How some sets and prompts mark answers: in tags, or behind the signs of GSM8K in the last line."""
_BOLD: Final = re.compile(r"\*\*([^*\n]{1,200})\*\*")
_LEADING_WORDS: Final = re.compile(r"^(?:\W{0,3}[A-Za-z][A-Za-z'’]*[,:]?\s+)+(?=[^A-Za-z\s])")
_WORD: Final = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}(?![A-Za-z{])")
_UNIT_BEHIND: Final = re.compile(
    r"\s*(?:\\?%|\^\s*\{?\\circ\}?\s*[CF]?|°\s*[CF]?|\\(?:text|mathrm|mbox|textrm)\s*\{[^{}]*\}(?:\s*\^\{?\d\}?)?"
    r"|[A-Za-z][\w/^²³·° ]{0,30})"
)
_NO_UNIT: Final = re.compile(r"\b(?:and|or|where|for|since|because|if|when)\b")
_ALSO: Final = re.compile(r"\s*,?\s*(?:\\text\s*\{\s*)?(?:or|and)(?:\s*\})?\s+(.+)")
_LETTER: Final = re.compile(r"\s*\(?([A-J])\)?[.:)]?\s*")


def answer_text(message: str) -> str | None:
    """Return the part of a message that states its answer; None if it is cut off."""
    message = _NOISE.sub(" ", powers(message))
    if (marked := list(_MARKED.finditer(message))) and not _BOX.search(message, marked[-1].end()):
        message = marked[-1][1] or marked[-1][2]
    answers = stated_answers(message)
    if _BOX.search(message) is None:
        return _in_formulas(answers[-1] if answers else message)
    tail = re.split("answer", message, flags=re.IGNORECASE)[-1]
    return _in_boxes(tail if answers and _BOX.search(tail) else message)


def _in_boxes(message: str) -> str | None:
    """Return the contents of the last boxes that are joined to a list, with the left sides and units around them."""
    boxes: list[tuple[int, int, str]] = []
    for match in _BOX.finditer(message):
        at = match.end()
        end = group_end(message, at) if message[at] == "{" else at + 1
        if end is None:
            return None
        boxes.append((match.start(), end, message[at:end].removeprefix("{").removesuffix("}")))
    begin = len(boxes) - 1
    while begin and _are_joined(message[boxes[begin - 1][1] : boxes[begin][0]]):
        begin -= 1
    answers, end = [], 0
    for start, behind, inside in boxes[begin:]:
        answers.append(_left_side(message[end:start]) + inside)
        end = behind
    _add_what_follows(answers, re.split(r"\n|\\end\s*\{", message[end:])[0])
    return " , ".join(answers)


def _are_joined(between: str) -> bool:
    """Return whether a text joins two boxes: `or`, a comma, or also the left side of the second."""
    left_side = _left_side(between).removesuffix(" = ")
    return _JOINTS.fullmatch(between[: between.rfind(left_side)] if left_side else between) is not None


def _left_side(before: str) -> str:
    """Return the left side with its `=` that ends a text, as in `so m+n = `; empty if there is none."""
    before = re.split(r"\n|\$|\\\(|\\\[|\\\\|[.:;]\s", before)[-1].replace("&", "").rstrip()
    if not before.endswith("="):
        return ""
    words = list(_WORD.finditer(before))
    side = before[words[-1].end() if words else 0 : -1].strip()
    return f"{side} = " if side else ""


def _add_what_follows(answers: list[str], behind: str) -> None:
    """Add a further answer after `or`, or what belongs to the last one: the rest of its formula, or a unit."""
    formula, closing, remaining = re.split(r"(\$+|\\\)|\\\]|$)", behind, maxsplit=1)
    if not closing:
        formula, remaining = "", behind
    formula = formula.strip(" .,*")
    also, unit = _ALSO.match(formula or remaining), _UNIT_BEHIND.match(remaining)
    if also is not None and _WORD.search(also[1]) is None and re.search(r"\w", also[1]):
        answers.append(also[1].strip(" .$*"))
    elif formula:
        answers[-1] += f" {formula}"
    elif unit is not None and _NO_UNIT.search(unit[0]) is None:
        answers[-1] += _as_unit(unit[0])


def _as_unit(text: str) -> str:
    plain = text.strip(" .,*")
    return rf" \text{{{plain}}}" if plain[:1].isalpha() and not re.search(r"[\^²³]", plain) else f" {plain}"


def _in_formulas(text: str) -> str | None:
    """Return the last formulas that are joined to a list, with a unit behind them; without a formula, see below."""
    text = text.strip().strip("_` ").strip()
    main = _CONDITION.split(text)[0]
    formulas = list(_FORMULA.finditer(main)) or list(_FORMULA.finditer(text))
    text = main if _FORMULA.search(main) else text
    if not formulas:
        return _in_sentence(text)
    start = len(formulas) - 1
    while start and _JOINTS.fullmatch(text, formulas[start - 1].end(), formulas[start].start()):
        start -= 1
    run = formulas[start:]
    before, behind = text[: run[0].start()], text[run[-1].end() :]
    if (verb := _VERB.search(behind)) is not None and re.search(r"\d", behind[verb.end() :]):
        return _in_sentence(behind)
    answers = [next(part for part in formula.groups() if part is not None) for formula in run]
    if (letter := _LETTER.fullmatch(before)) is not None and len(answers) == 1:
        return rf"\text{{({letter[1]})}} {answers[0]}"
    is_choice = any(re.search(r"\bor\b", text[a.end() : b.start()]) for a, b in pairwise(run))
    _add_what_follows(answers, f"$ {behind}" if not behind.startswith("$") else behind)
    return (r" \text{or} " if is_choice else " , ").join(answers)


def _in_sentence(text: str) -> str:
    """Return what the last line of a text says: in bold, or after a verb, without words before the first number."""
    text = next((line for line in reversed(text.splitlines()) if line.strip()), "")
    bold = _BOLD.findall(text)
    if len(bold) == 1 and re.search(r"\w", bold[0]) and not bold[0].rstrip().endswith(":"):
        text = re.sub(r"^.{0,20}answer\s*(?::|is)\s*", "", bold[0], flags=re.IGNORECASE)
    text = re.sub(r"\*\*|`", " ", text).strip()
    text = (
        text[:-1].strip() if text.endswith((".", "?")) and not re.search(r"\b[ap]\.m\.$", text, re.IGNORECASE) else text
    )
    if len(_WORD.findall(re.sub(r"\\text\s*\{[^{}]*\}", "", text))) < 2:
        return text
    verbs = list(_VERB.finditer(text))
    text = text[verbs[-1].end() :].strip() if verbs else text
    return _LEADING_WORDS.sub("", text) if re.search(r"\d", text) else re.sub(r"^(?:a|an|the)\s+", "", text)
