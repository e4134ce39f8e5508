"""The graders: how each one reads a row's answer, scores a message, and says in the prompt how to answer."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from ludus.formats.dataset.choices import Chosen
from ludus.formats.dataset.code import CodeTests, read_tests
from ludus.formats.dataset.columns import Columns
from ludus.formats.dataset.gsm8k import FinalNumber, final_number
from ludus.formats.dataset.settings import DatasetSettings
from ludus.protocol.errors import AuthoringError
from ludus.server import FromTask
from ludus.server.rewards import Check, Exact, MathEqual, NormalizedMatch, Numeric, Rubric, load_checklist
from ludus.server.rewards.answers import last_box
from ludus.server.rewards.binding import Declared
from ludus.server.rewards.units import read_quantity

_SKYRL_CLASS: Final = "gsm8k"
"""The environment of SkyRL that is served here: one turn, no tools."""


@dataclass(frozen=True)
class Grader:
    """How answers are graded."""

    rubric: Declared
    read: Callable[[Any], Any]
    """Returns the expected answer from a row's value; raises `ValueError` if it cannot be used."""
    best: Callable[[Any], str | None]
    """Returns a message that earns 1 from the expected answer; None if it shows no such message."""
    instruction: str = ""
    """What the prompt says about the form of the answer, if there is no template."""
    knows_best: bool = True
    """Whether `best` returns messages."""
    check: Check | None = None
    """What grades the messages that `best` returns, to try them at startup; None if they need more than the task."""


def make_grader(columns: Columns, settings: DatasetSettings) -> Grader:
    """Return the grader that a dataset names.

    Raises:
        AuthoringError: a package is missing, or an option cannot be used.
    """
    expected: Any = FromTask("answer")
    match columns.grader:
        case "exact":
            line = "Your message must be the answer and nothing else."
            return _text_grader(Exact(expected, name="correct"), _texts, _first, line)
        case "normalized":
            line = "Your message must be the answer and nothing else."
            return _text_grader(NormalizedMatch(expected, name="correct"), _texts, _first, line)
        case "numeric":
            return _numeric(expected, settings)
        case "math":
            line = r"End your message with the result as \boxed{RESULT}."
            return _text_grader(MathEqual(expected, name="correct"), _math, _boxed, line)
        case "choice":
            line = 'End your message with "Answer: " and the letter of the right choice.'
            return _text_grader(Chosen(name="correct"), _same, lambda letter: f"Answer: {letter}", line)
        case "gsm8k":
            line = 'End your message with "#### " and the number.'
            return _text_grader(FinalNumber(name="correct"), _gsm8k, lambda number: f"#### {number}", line)
        case "skyrl":
            return _text_grader(FinalNumber(name="correct"), _skyrl, lambda number: f"#### {number}", "")
        case "code":
            check = CodeTests(
                all_or_nothing=settings.all_or_nothing, relative=settings.relative,
                exact_numbers=settings.exact_numbers, name="tests",
            )  # fmt: skip
            return Grader(
                _rubric(check), lambda tests: read_tests(tests, settings.results), lambda _: None, knows_best=False
            )
        case "checklist":
            if settings.checklist is None:
                raise AuthoringError("grader=checklist needs the file of the checklist: checklist=FILE (JSON or TOML)")
            return Grader(
                load_checklist(settings.checklist), _optional_text, _same, knows_best=columns.answer is not None
            )


def _text_grader(
    check: Check, read: Callable[[Any], Any], best: Callable[[Any], str | None], instruction: str
) -> Grader:
    return Grader(_rubric(check), read, best, instruction, check=check)


def _boxed(answer: str) -> str:
    r"""Return a message with an answer in `\boxed`, as the prompt asks."""
    return answer if "\\boxed" in answer else rf"\boxed{{{answer.strip()}}}"


def _rubric(check: Any) -> Rubric:
    return Rubric(check, name="dataset", version="1")


def _numeric(expected: Any, settings: DatasetSettings) -> Grader:
    relative = 1e-6 if settings.relative is None else settings.relative
    check = Numeric(expected, unit=settings.unit, relative=relative, absolute=settings.absolute, name="correct")
    after = f" {settings.unit}" if settings.unit else ""
    line = f"End your message with the number{f' and its unit, {settings.unit}' if settings.unit else ''}."
    return _text_grader(check, _number, lambda number: f"{number!r}{after}", line)


def _same(value: Any) -> Any:
    return value


def _first(value: Any) -> str:
    return value if isinstance(value, str) else str(value[0])


def _one_text(value: Any) -> str:
    """Return an answer as text: a text, or a whole number."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise ValueError(f"its answer must be text, not {type(value).__name__}")
    if not value.strip():
        raise ValueError("its answer is empty")
    return value


def _texts(value: Any) -> str | list[str]:
    """Return one accepted answer, or several."""
    if not isinstance(value, list):
        return _one_text(value)
    if not value:
        raise ValueError("its list of accepted answers is empty")
    return [_one_text(one) for one in value]


def _optional_text(value: Any) -> str | None:
    return None if value is None else _one_text(value)


def _number(value: Any) -> float:
    """Return an answer as a number: a number, or text that is a number and nothing else."""
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        try:
            found = float(value)
        except OverflowError:
            found = math.inf
        if not math.isfinite(found):
            raise ValueError(f"its answer {value} is no finite number")
        return found
    text = _one_text(value).strip()
    quantity = read_quantity(text)
    if quantity is None or quantity.unit is not None:
        raise ValueError(f"its answer {text[:80]!r} is no number")
    return quantity.value


def _math(value: Any) -> str:
    r"""Return an answer: the `\boxed` of a text that has exactly one, as MATH's solutions do, or the text itself."""
    text = _one_text(value)
    return _one_text(last_box(text)) if text.count("\\boxed") == 1 else text


def _gsm8k(value: Any) -> str:
    found = final_number(_one_text(value))
    if found is None:
        raise ValueError("its answer has no number after ####")
    return found


def _skyrl(value: Any) -> str:
    if not isinstance(value, Mapping):
        raise ValueError(f"its reward_spec must have a method and a ground_truth, and it is {type(value).__name__}")
    if value.get("method", "rule") != "rule":
        raise ValueError(f"its reward_spec has the method {value['method']!r}; only 'rule' is graded here")
    truth = value.get("ground_truth")
    if not isinstance(truth, str) or not truth:
        raise ValueError(f"its ground_truth is {truth!r}; it must be text, with which SkyRL compares the answer's text")
    return truth


def check_skyrl(values: Mapping[str, Any]) -> None:
    """Check that a row is for an environment of SkyRL that is served here.

    Raises:
        ValueError: it is for another one.
    """
    found = values.get("env_class")
    if found != _SKYRL_CLASS:
        raise ValueError(f"its env_class is {found!r}; only {_SKYRL_CLASS!r} has one turn and no tools, as served here")


def decoded(value: Any) -> Any:
    """Return what a text holds as JSON, for lists and objects in files whose columns hold text; else the value itself.

    Raises:
        ValueError: it begins like JSON, and is none.
    """
    if not isinstance(value, str) or value.lstrip()[:1] not in ("[", "{"):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise ValueError(f"it holds no JSON: {error}") from None
