"""Multiple choice: the choices of a row with their letters, and the letter that a message chooses."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal

from ludus.server import Attempt, FromTask
from ludus.server.rewards import Check, Verdict
from ludus.server.rewards.answers import last_box
from ludus.server.rewards.attempt import Selector, answer_of, resolve
from ludus.server.rewards.text import TEXT_CHARS, normalize

LETTERS: Final = string.ascii_uppercase
_LABELS: Final = ("label", "labels", "letter", "key")
_MARKS: Final = " \t\r\n*_`$().:[]{}\"'"


def read_choices(values: Sequence[Any]) -> dict[str, str]:
    """Return the choices of a row by their letters.

    Args:
        values: the values of the columns with choices: one value that holds all of them (a list of texts, a list of
            `{label, text}`, `{label: [...], text: [...]}` or a mapping of letters to texts), or several values.

    Raises:
        ValueError: they have another form, or there are fewer than two, more than 26, or two with one letter.
    """
    given = values[0] if len(values) == 1 else list(values)
    if isinstance(given, Mapping) and "text" in given:
        labels = next((given[name] for name in _LABELS if name in given), None)
        pairs = _pairs(given["text"], labels)
    elif isinstance(given, Mapping):
        pairs = [(str(label), text) for label, text in given.items()]
    elif isinstance(given, list) and given and all(isinstance(one, Mapping) for one in given):
        pairs = [(str(next((one[name] for name in _LABELS if name in one), "")), one.get("text")) for one in given]
    else:
        pairs = _pairs(given, None)
    found = {label.strip(): _text(text) for label, text in pairs}
    if not 2 <= len(pairs) <= len(LETTERS):
        raise ValueError(f"it has {len(pairs)} choices; there must be 2 to {len(LETTERS)}")
    if len(found) < len(pairs) or not all(re.fullmatch(r"\w{1,3}", label) for label in found):
        raise ValueError("its choices must have letters or short labels, each another one")
    return found


def _pairs(texts: Any, labels: Any) -> list[tuple[str, Any]]:
    if not isinstance(texts, list):
        raise ValueError(f"its choices must be a list, not {type(texts).__name__}")
    if labels is None:
        labels = LETTERS[: len(texts)]
    if len(labels) != len(texts):
        raise ValueError(f"it has {len(texts)} choices, and {len(labels)} of them have letters")
    return [(str(label), text) for label, text in zip(labels, texts, strict=True)]


def _text(value: Any) -> str:
    text = str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else ""
    if not text.strip():
        raise ValueError(f"its choices must be texts, not {value!r}")
    return text


def lettered(choices: Mapping[str, str]) -> str:
    """Return choices for a prompt, one on each line."""
    return "\n".join(f"{label}. {text}" for label, text in choices.items())


def right_letter(answer: Any, choices: Mapping[str, str], form: Literal["letter", "index", "text"] | None) -> str:
    """Return the letter of the right choice.

    Args:
        answer: the row's answer.
        choices: the row's choices by letter.
        form: whether the answer is a letter, a number from 0, or a text; None if it may be any of them.

    Raises:
        ValueError: it is none of them, or two of them that differ.
    """
    labels = list(choices)
    plain = str(answer).strip()
    found: dict[str, str] = {}
    if not isinstance(answer, bool | float):
        if plain in choices:
            found["letter"] = plain
        if plain.isascii() and plain.isdigit() and int(plain) < len(labels):
            found["index"] = labels[int(plain)]
        same = [label for label, text in choices.items() if text.strip() == plain]
        if len(same) == 1:
            found["text"] = same[0]
    if form is not None:
        found = {form: found[form]} if form in found else {}
    if not found:
        what = {"letter": "letter", "index": "number", "text": "text", None: "letter, number or text"}[form]
        raise ValueError(f"its answer {plain[:80]!r} is no {what} of its choices")
    if len(set(found.values())) > 1:
        raise ValueError(
            f"its answer {plain[:80]!r} may be a {' or a '.join(found)} of its choices; say which with answer_as="
            f"{' or answer_as='.join(found)}"
        )
    return next(iter(found.values()))


def chosen_letter(message: str, choices: Mapping[str, str]) -> str | None:
    r"""Return the letter that a message chooses, or None if it chooses none, or several.

    What chooses is, in this order: the whole message; the last \boxed; what follows the last `answer is` or `answer:`,
    on its line or below; the last line. It must be a letter, alone or with the text of its choice or a reason (`b`,
    `(B)`, `B. Rome`, `B because …`), or the text of one choice.
    """
    if len(message) > TEXT_CHARS:
        return None
    if (whole := _exact(message, choices)) is not None:
        return whole
    if _BOX.search(message) is not None:
        return None if _SEVERAL_BOXES.search(message) else _letter_in(last_box(message), choices)
    lines = [line for line in message.splitlines() if line.strip(_MARKS)]
    for number, line in reversed(list(enumerate(lines))):
        for stated in reversed(list(_STATED.finditer(line))):
            rest = line[stated.end() :]
            rest = rest if rest.strip(_MARKS) else "".join(lines[number + 1 : number + 2])
            return _letter_in(rest, choices)
    last = lines[-1] if lines else ""
    return _letter_in(last, choices) or _letter_in(_VERB.split(last)[-1], choices)


_BOX: Final = re.compile(r"\\boxed\s*\{")
_SEVERAL_BOXES: Final = re.compile(
    r"\\boxed\s*\{[^{}]{0,80}\}[\s$]{0,4}(?:,|;|and|or|&)[\s$]{0,4}\\boxed\s*\{[^{}]{0,80}\}[^\\]*$"
)
_STATED: Final = re.compile(r"(?i:\banswer)[\s*_]{0,8}(?:(?i:is)\b:?|:|=)")
_VERB: Final = re.compile(r"\b(?:is|choose|chose|select|pick|be)\b:?")
_ALSO: Final = re.compile(r"\s{0,4}(?:,|/|&|\+|\b(?:and|or)\b)\s{0,4}(?:also\s)?[(\[*]{0,3}(\w{1,3})(?![\w'’-])")


def _letter_in(text: str, choices: Mapping[str, str]) -> str | None:
    """Return the letter that a statement is, that it begins with, or whose text it is."""
    bare = re.sub(r"^(?i:the\s{1,3})?(?i:option|choice|letter)\s{1,3}", "", _unmarked(text))
    if (whole := _exact(bare, choices)) is not None:
        return whole
    begins = _first_label(tuple(choices)).match(bare)
    if begins is not None:
        also = _ALSO.match(bare, begins.end(1)) or _ALSO.match(bare, begins.end())
        return None if also is not None and also[1] in choices and also[1] != begins[1] else begins[1]
    return None


def _exact(text: str, choices: Mapping[str, str]) -> str | None:
    """Return the letter that a text is, or whose choice it is."""
    bare, plain = text.strip(_MARKS).casefold(), normalize(text)
    same = [label for label in choices if label.casefold() == bare]
    same = same or [label for label, choice in choices.items() if normalize(choice) == plain]
    return same[0] if len(same) == 1 else None


def _unmarked(text: str) -> str:
    plain = re.sub(r"\\text\s*\{([^{}]*)\}", r"\1", text.strip())
    return re.sub(r"[*_`$]", "", plain).strip().lstrip("> ")


@lru_cache(maxsize=64)
def _first_label(labels: tuple[str, ...]) -> re.Pattern[str]:
    one = "|".join(map(re.escape, sorted(labels, key=len, reverse=True)))
    ends = r"[)\]]{1,2}(?=\s|$|[.:,;])|(?=\s*$|[.:]|\s*[,;(—–-]|\s+(?:because|since|as|for)\b)"
    return re.compile(rf"[(\[\s-]{{0,8}}({one})(?![\w'’-])(?:{ends})")


@dataclass(frozen=True)
class Chosen(Check):
    """1 when the message chooses the right letter."""

    expected: Selector[str] = FromTask("answer")
    choices: Selector[Mapping[str, str]] = FromTask("choices")
    of: Selector[str] = answer_of

    def check(self, attempt: Attempt) -> Verdict:
        """Compare the letter with the right one."""
        found = chosen_letter(resolve(self.of, attempt), resolve(self.choices, attempt))
        if found is None:
            return Verdict(0.0, "no choice was found in the message")
        return Verdict(float(found == resolve(self.expected, attempt)), f"read as {found}")
