"""Request parameters made from the arguments of a caller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from ludus.protocol.errors import InvalidParams
from ludus.protocol.model import WireModel
from ludus.protocol.text import json_problem

P = TypeVar("P", bound=WireModel)


def make(model: type[P], /, **fields: Any) -> P:
    """Return a `model` with these fields.

    Raises:
        InvalidParams: a field is invalid, or JSON cannot carry it; the message says which and why.
    """
    check_json(fields)
    try:
        return model(**fields)
    except ValidationError as error:
        raise wrong(error) from None


def check_json(values: Mapping[str, Any]) -> None:
    """Check that JSON can carry every value.

    Raises:
        InvalidParams: a value contains a NaN, an infinity or a lone surrogate; the message says which.
    """
    for name, value in values.items():
        if not value or type(value) is int or (type(value) is str and value.isascii()):
            continue
        if (problem := json_problem(value, name)) is not None:
            raise InvalidParams(f"{problem}; JSON cannot carry it")


def wrong(error: ValidationError) -> InvalidParams:
    """Return the error for a failed validation, with every field that is wrong."""
    problems = (
        f"{'.'.join(map(str, problem['loc'])) or 'the arguments'}: {problem['msg'].removeprefix('Value error, ')}"
        for problem in error.errors(include_url=False, include_input=False)
    )
    return InvalidParams("; ".join(problems))
