"""Params made from what a caller passed."""

from __future__ import annotations

import math
from typing import Any, TypeVar

from pydantic import ValidationError

from ludus.protocol._model import WireModel
from ludus.protocol.errors import InvalidParams

P = TypeVar("P", bound=WireModel)


def make(model: type[P], /, **fields: Any) -> P:
    """A model of these fields.

    Raises:
        InvalidParams: they do not fit; the message says which and why.
    """
    try:
        return model(**fields)
    except ValidationError as error:
        raise wrong(error) from None


def check_finite(value: Any, name: str) -> None:
    """Refuse numbers that JSON does not have, which serialisation would turn into null.

    Raises:
        InvalidParams: there is a NaN or an infinity somewhere in `value`.
    """
    kind = type(value)
    if kind is float:
        if not math.isfinite(value):
            raise InvalidParams(f"{name} is {value}, which JSON cannot hold; pass a finite number")
    elif kind is dict:
        for key, inner in value.items():
            check_finite(inner, f"{name}.{key}")
    elif kind is list or kind is tuple:
        for inner in value:
            check_finite(inner, name)


def wrong(error: ValidationError) -> InvalidParams:
    """What a failed validation says to the caller."""
    places = (
        f"{'.'.join(map(str, one['loc'])) or 'the arguments'}: {one['msg'].removeprefix('Value error, ')}"
        for one in error.errors(include_url=False, include_input=False)
    )
    return InvalidParams("; ".join(places))
