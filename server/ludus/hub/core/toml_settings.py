"""Settings in TOML files: how they are read, and how those that are wrong are refused by name."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from ludus.protocol.errors import AuthoringError
from ludus.protocol.messages import describe_invalid, did_you_mean

M = TypeVar("M", bound=BaseModel)


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """Return what a file holds.

    Args:
        path: the file.
        what: what it is, for the message: "the settings of endpoints".

    Raises:
        AuthoringError: it cannot be read.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise AuthoringError(f"{what} in {path} cannot be read: {error}") from None


def check_settings(model: type[M], given: Mapping[str, Any], path: Path) -> M:
    """Return the settings that a file holds.

    Args:
        model: their type.
        given: what the file holds.
        path: the file, for the message.

    Raises:
        AuthoringError: a setting does not exist, is missing or has a wrong value.
    """
    try:
        return model.model_validate(given)
    except ValidationError as error:
        first: Any = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        problem = describe_invalid(first)
        if first["type"] == "extra_forbidden":
            names = _names_at(model, first["loc"][:-1])
            near = did_you_mean(str(first["loc"][-1]), names)
            problem = f"there is no such setting{near}; there are {', '.join(names)}"
        raise AuthoringError(f"{path}: {place + ': ' if place else ''}{problem}") from None


def _names_at(model: type[BaseModel], place: Sequence[int | str]) -> list[str]:
    """Return the names of the settings of a table."""
    for part in place:
        annotation = model.model_fields[str(part)].annotation
        types = (annotation, *get_args(annotation))
        model = next(type_ for type_ in types if isinstance(type_, type) and issubclass(type_, BaseModel))
    return sorted(model.model_fields)
