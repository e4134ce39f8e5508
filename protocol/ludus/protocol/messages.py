"""Words that messages of the server, the client and the command line share."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ludus.protocol.text import truncate

__all__ = ["VALIDATION_NAMES", "describe_invalid", "did_you_mean"]


VALIDATION_NAMES: Final = ("val", "valid", "dev", "eval", "evaluation")
"""Other names that people give a validation split."""

_SHOWN: Final = 120
"""The most characters of an invalid value that a message shows."""

_OTHER_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys((*VALIDATION_NAMES, "validation"), ("validation", *VALIDATION_NAMES)),
    **dict.fromkeys(("training", "train"), ("train", "training")),
    **dict.fromkeys(("testing", "test"), ("test", "testing")),
}


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" for the known name that is nearest to `name`, or an empty text if none is near."""
    names = list(known)
    near = [other for other in _OTHER_NAMES.get(name.lower(), ()) if other in names and other != name]
    near = near or difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""


def describe_invalid(detail: Mapping[str, Any]) -> str:
    """Return what is wrong with a value that a user typed, from one of pydantic's error details."""
    given, limits = detail.get("input"), detail.get("ctx") or {}
    shown = truncate(repr(given), _SHOWN)
    match str(detail["type"]):
        case "int_parsing" | "int_type" | "int_from_float" | "int_parsing_size":
            return f"{shown} is not a whole number"
        case "float_parsing" | "float_type":
            return f"{shown} is not a number"
        case "finite_number":
            return f"{given} is not a finite number"
        case "bool_parsing" | "bool_type":
            return f"{shown} is neither true nor false"
        case "greater_than_equal":
            return f"{given} is too small; the least is {_limit(limits['ge'])}"
        case "greater_than":
            return f"{given} is too small; it must be more than {_limit(limits['gt'])}"
        case "less_than_equal":
            return f"{given} is too large; the greatest is {_limit(limits['le'])}"
        case "less_than":
            return f"{given} is too large; it must be less than {_limit(limits['lt'])}"
        case "literal_error" | "enum":
            return f"{shown} is not one of {limits['expected']}"
        case "string_type":
            return f"{shown} is not a text"
        case "missing":
            return "it is missing"
        case "dict_type" | "model_type" | "model_attributes_type":
            return f"{shown} is not a table of fields"
        case _:
            text = str(detail["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
            return f"{shown}: {text[:1].lower()}{text[1:]}" if text.startswith("Input should") else text


def _limit(value: object) -> str:
    """Return a limit as a text: of a number, or of a date, which pydantic gives as a text already."""
    return f"{value:g}" if isinstance(value, int | float) else str(value)
