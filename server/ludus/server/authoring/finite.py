"""Finds numbers in arguments that are not finite; they are refused unless the tool's type allows them explicitly.

JSON has no NaN and no infinity, but `1e999` is valid JSON and parses as infinity, and pydantic accepts the text "nan"
as a float. A tool that rejects an answer if `abs(guess - answer) > tolerance` then rewards NaN, because every
comparison with NaN is false. pydantic's `allow_inf_nan=False` is not enough: it does not apply to nested models, `Any`
or the author's own validators.
"""

from __future__ import annotations

import cmath
import enum
from collections import deque
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

_WITHOUT_FLOATS: Final = (bool, int, str, bytes, type(None), enum.Enum)
_CONTAINERS: Final = (list, tuple, set, frozenset, deque)


def allows_non_finite(hint: Any) -> bool:
    """Return whether a type has an explicit `allow_inf_nan=True`, not counting the models that it contains."""
    if isinstance(hint, FieldInfo):
        return any(map(allows_non_finite, hint.metadata)) or allows_non_finite(hint.annotation)
    if getattr(hint, "allow_inf_nan", None) is True:
        return True
    return any(map(allows_non_finite, get_args(hint))) if get_origin(hint) is not Literal else False


def may_hold_floats(hint: Any) -> bool:
    """Return whether values of a type can contain floats: true except for integers, text and similar types."""
    origin = get_origin(hint)
    if origin is Literal:
        return False
    if origin is Annotated:
        return may_hold_floats(get_args(hint)[0]) or len(get_args(hint)) > 2
    if origin is not None and (arguments := get_args(hint)):
        return any(may_hold_floats(argument) for argument in arguments if argument is not Ellipsis)
    return not (isinstance(hint, type) and issubclass(hint, _WITHOUT_FLOATS))


def find_non_finite(value: object, name: str) -> str | None:
    """Return the place of a number in a validated value that must be finite and is not; None if there is none.

    Defaults of arguments that the caller left out are not checked.
    """
    waiting: list[tuple[object, str]] = [(value, name)]
    while waiting:
        item, where = waiting.pop()
        if isinstance(item, float | Decimal | complex):
            if not cmath.isfinite(item):
                return where
        elif isinstance(item, Mapping):
            waiting += ((inner, where) for pair in item.items() for inner in pair if type(inner) not in _WITHOUT_FLOATS)
        elif isinstance(item, _CONTAINERS):
            waiting += ((inner, where) for inner in item if type(inner) not in _WITHOUT_FLOATS)
        elif isinstance(item, BaseModel):
            waiting += _model_values(item, where)
        elif is_dataclass(item) and not isinstance(item, type):
            waiting += (
                (inner, f"{where}.{one.name}")
                for one in fields(item)
                if (inner := getattr(item, one.name)) is not one.default
                and (isinstance(one.type, str) or not allows_non_finite(one.type))
            )
    return None


def _model_values(model: BaseModel, where: str) -> list[tuple[object, str]]:
    kind = type(model)
    if kind.model_config.get("allow_inf_nan"):
        return []
    declared = kind.model_fields
    given = [name for name in declared if name in model.model_fields_set and not allows_non_finite(declared[name])]
    values: list[tuple[object, str]] = [(getattr(model, name), f"{where}.{name}") for name in given]
    return values + [(extra, f"{where}.{name}") for name, extra in (model.model_extra or {}).items()]
