"""Formats: prefixes of specs, such as `gymnasium:FrozenLake-v1`, that publish environments written for other systems.

A format is an entry point of the group `ludus.formats`: its name is the prefix, and its value a `Resolver`. A spec is

    PREFIX:TARGET#OPTION=VALUE,OPTION=VALUE

TARGET has the form that the format defines. Options are optional; a comma or a percent sign in a value is written as
in URLs (`%2C`, `%25`).
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, Literal, TypeVar
from urllib.parse import quote, unquote
from weakref import WeakSet

from pydantic import BaseModel, ValidationError

from ludus.protocol.errors import AuthoringError
from ludus.protocol.messages import describe_invalid, did_you_mean
from ludus.server.authoring.environment import Environment

__all__ = ["FormatSource"]


GROUP: Final = "ludus.formats"
"""The entry-point group of formats: prefix → `module:function`."""

_PREFIX: Final = re.compile(r"([a-z][a-z0-9-]*):(.*)", re.DOTALL)
_PLAIN: Final = "/:@ ._-+*[]{}"
"""Characters of a value that are written as they are, in addition to letters and digits."""
_OPTIONS: Final = re.compile(r"(.*)#([a-z][a-z0-9_-]*=[^#]*)", re.DOTALL)

Check = Literal["none", "formats", "all"]
"""Of which environments one episode is played before their server is announced."""

_resolved: Final[WeakSet[type[Environment[Any]]]] = WeakSet()

SettingsT = TypeVar("SettingsT", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class FormatSource:
    """What a spec of a format names."""

    format: str
    """The prefix."""
    target: str
    """The text between the prefix and the options."""
    options: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.format}:{self.target}{_written(self.options)}"

    def with_options(self, options: Mapping[str, str]) -> FormatSource:
        """Return this source with further options.

        Raises:
            AuthoringError: an option is given twice.
        """
        if repeated := [name for name in options if name in self.options]:
            raise AuthoringError(f"the option {repeated[0]!r} is given twice for {self!s}; give it once")
        return FormatSource(self.format, self.target, {**self.options, **options})

    def settings(self, model: type[SettingsT]) -> SettingsT:
        """Return the options as settings of a format. Values are text, numbers, `true`, `false`, or JSON.

        Raises:
            AuthoringError: there is no such option, or a value does not fit; the message names it.
        """
        options = {name.replace("-", "_"): value for name, value in self.options.items()}
        for name in options:
            if name not in model.model_fields:
                names = ", ".join(model.model_fields)
                raise AuthoringError(
                    f"the format {self.format!r} has no option {name!r}{did_you_mean(name, model.model_fields)}; "
                    f"its options are: {names}"
                )
        try:
            return model.model_validate_strings(options)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            prefix = f"option {problem['loc'][0]}: " if problem["loc"] else ""  # none if options contradict each other
            raise AuthoringError(f"{self!s}: {prefix}{describe_invalid(problem)}") from None


Resolver = Callable[[FormatSource], Sequence[type[Environment[Any]]]]
"""Returns the environments that a source names.

It runs once when a server loads its environments, and may block. It raises `AuthoringError` or `EnvironmentNotFound`
with what to do: the package to install, the option to give.
"""


def formats() -> dict[str, EntryPoint]:
    """Return the formats that are installed, by prefix. Nothing is imported."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def parse_source(spec: str) -> FormatSource | None:
    """Return what a spec names if it begins with the prefix of a format; None otherwise.

    Raises:
        AuthoringError: the options cannot be read.
    """
    match = _PREFIX.fullmatch(spec)
    if match is None or match[1] not in formats():
        return None
    target, text = match[2], ""
    if (split := _OPTIONS.fullmatch(target)) is not None:
        target, text = split[1], split[2]
    options: dict[str, str] = {}
    for part in text.split(",") if text else ():
        name, separator, value = part.partition("=")
        name = name.strip()
        if not separator or not name:
            raise AuthoringError(
                f"{spec!r}: {part!r} is no option; write OPTION=VALUE, and a comma inside a value as %2C"
            )
        if name in options:
            raise AuthoringError(f"{spec!r}: the option {name!r} is given twice; give it once")
        options[name] = unquote(value)
    return FormatSource(match[1], target, options)


def resolve(source: FormatSource) -> list[type[Environment[Any]]]:
    """Return the environments that a source names.

    Raises:
        AuthoringError: the format cannot be loaded or the source cannot be used.
        EnvironmentNotFound: the target does not exist.
    """
    entry = formats()[source.format]
    try:
        resolver: Resolver = getattr(importlib.import_module(entry.module), entry.attr)
    except ModuleNotFoundError as error:
        raise AuthoringError(
            f"the format {source.format!r} needs the package {error.name!r}; install it with: pip install {error.name}"
        ) from error
    environments = list(resolver(source))
    if not environments:
        raise AuthoringError(f"{source!s} names no environment")
    _resolved.update(environments)
    return environments


def is_of_format(environment: type[Environment[Any]]) -> bool:
    """Return whether a format made an environment, or one that it is derived from."""
    return any(base in _resolved for base in environment.__mro__)


def with_options(specs: Sequence[str], options: Mapping[str, str]) -> list[str]:
    """Return specs in which the only one of a format has further options.

    Raises:
        AuthoringError: none or several of the specs are of a format, or an option is given twice.
    """
    if not options:
        return list(specs)
    sources = [parse_source(spec) for spec in specs]
    if (count := sum(source is not None for source in sources)) != 1:
        raise AuthoringError(
            f"the options {', '.join(options)} are for one environment of a format, such as gymnasium:FrozenLake-v1, "
            f"and {count} of {len(specs)} are of a format; write them as FORMAT:TARGET#OPTION=VALUE,OPTION=VALUE"
        )
    return [
        spec if source is None else str(source.with_options(options))
        for spec, source in zip(specs, sources, strict=True)
    ]


def _written(options: Mapping[str, str]) -> str:
    if not options:
        return ""
    return "#" + ",".join(f"{name}={quote(value, safe=_PLAIN)}" for name, value in options.items())
