"""Params made from what a caller passed."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import ValidationError

from ludus.protocol._model import WireModel
from ludus.protocol.errors import InvalidParams
from ludus.protocol.text import json_problem

P = TypeVar("P", bound=WireModel)


def make(model: type[P], /, **fields: Any) -> P:
    """A model of these fields.

    Raises:
        InvalidParams: they do not fit, or JSON cannot carry them; the message says which and why.
    """
    for name, value in fields.items():
        check_json(value, name)
    try:
        return model(**fields)
    except ValidationError as error:
        raise wrong(error) from None


def check_json(value: Any, name: str) -> None:
    """Refuse what no JSON text can carry.

    Raises:
        InvalidParams: there is a NaN, an infinity or a lone surrogate somewhere in `value`.
    """
    if type(value) is str and value.isascii():
        return
    if (problem := json_problem(value, name)) is not None:
        raise InvalidParams(f"{problem}; JSON cannot carry it")


def wrong(error: ValidationError) -> InvalidParams:
    """What a failed validation says to the caller."""
    places = (
        f"{'.'.join(map(str, one['loc'])) or 'the arguments'}: {one['msg'].removeprefix('Value error, ')}"
        for one in error.errors(include_url=False, include_input=False)
    )
    return InvalidParams("; ".join(places))
