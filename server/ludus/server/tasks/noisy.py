"""Environment classes with noise: attaches noise to a class, and parses noise settings of the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final, TypeVar, cast

from pydantic import ValidationError

from ludus.protocol.errors import AuthoringError
from ludus.server.authoring.environment import Environment
from ludus.server.authoring.noise import Noise
from ludus.server.tasks.catalog import published_name

E = TypeVar("E", bound=Environment[Any])

_NAMED: Final = re.compile(r"([a-z0-9][a-z0-9_.-]*):(.*)", re.DOTALL)


def with_noise(cls: type[E], noise: Noise | None, name: str | None = None) -> type[E]:
    """Return a subclass of `cls` with noise, which also applies to its variants.

    Args:
        cls: the environment class; it is not changed.
        noise: the noise to add; None removes the noise of `cls`.
        name: the name to publish the subclass under; the name of `cls` by default.
    """
    attributes: dict[str, Any] = {
        "__doc__": cls.__doc__,
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "name": name or published_name(cls),
        "noise": noise,
    }
    return cast(type[E], type(cls.__name__, (cls,), attributes))


def all_with_noise(classes: Sequence[type[Environment[Any]]], wishes: Sequence[str]) -> list[type[Environment[Any]]]:
    """Return classes with the noise of command-line options: `SETTINGS` for all of them, `NAME:SETTINGS` for one.

    Settings are `rate=0.1,kinds=tool_error+delay,seed=3` or a JSON object. Settings for one class take precedence over
    settings for all, and later settings over earlier ones.

    Raises:
        AuthoringError: an option cannot be parsed, or names none of the classes.
    """
    by_name: dict[str | None, Noise] = {}
    names = [published_name(cls) for cls in classes]
    for wish in wishes:
        named = _NAMED.fullmatch(wish.strip())
        name = named[1] if named else None
        if name is not None and name not in names:
            raise AuthoringError(f"noise {wish!r} is for {name!r}, which is not served; there are: {', '.join(names)}")
        by_name[name] = parse_noise(named[2] if named else wish)
    chosen = (by_name.get(name, by_name.get(None)) for name in names)
    return [cls if noise is None else with_noise(cls, noise) for cls, noise in zip(classes, chosen, strict=True)]


def parse_noise(text: str) -> Noise:
    """Parse noise settings: `rate=0.1,kinds=tool_error+delay,seed=3`, or a JSON object with the same fields.

    Raises:
        AuthoringError: the text cannot be parsed; the message says where.
    """
    try:
        if text.strip().startswith("{"):
            settings: dict[str, Any] = json.loads(text)
        else:
            settings = dict(_setting(part) for part in text.split(","))
    except ValueError as error:
        raise AuthoringError(f"noise {text!r} cannot be read: {error}") from None
    unknown = [name for name in settings if name not in Noise.model_fields]
    if unknown:
        raise AuthoringError(f"noise has no setting {unknown[0]!r}; there are: {', '.join(Noise.model_fields)}")
    try:
        return Noise(**settings)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        field_path = ".".join(str(part) for part in problem["loc"])
        raise AuthoringError(f"noise {text!r}: {field_path}: {problem['msg'].removeprefix('Value error, ')}") from None


def _setting(part: str) -> tuple[str, str]:
    name, equals, value = (piece.strip() for piece in part.partition("="))
    if not equals or not name or not value:
        raise ValueError(f"{part.strip()!r} is no NAME=VALUE, as in rate=0.1,kinds=tool_error+delay,seed=3")
    return name, value
