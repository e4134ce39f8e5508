"""The file of a hub's settings: `ludus hub --settings hub.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from ludus.hub.endpoints.settings import EndpointSettings
from ludus.hub.people.rates import RateSettings
from ludus.hub.results.limits import ResultLimits
from ludus.hub.settings import HubLimits
from ludus.protocol.errors import AuthoringError
from ludus.protocol.messages import describe_invalid, did_you_mean


class SettingsFile(BaseModel):
    """The tables of the file. What is not in it keeps its default."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    uploads: HubLimits = HubLimits()
    """The limits on uploads of packages."""
    results: ResultLimits = ResultLimits()
    """The limits on runs and boards."""
    rates: RateSettings = RateSettings()
    """How many requests are answered."""
    endpoints: EndpointSettings | None = None
    """How published environments run; null if another file or the defaults say so."""


def read_settings_file(path: Path | None) -> SettingsFile:
    """Return the settings in a TOML file, or the defaults.

    Args:
        path: the file; None for the defaults.

    Raises:
        AuthoringError: the file cannot be read, or a setting does not exist or has a wrong value.
    """
    if path is None:
        return SettingsFile()
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise AuthoringError(f"the settings in {path} cannot be read: {error}") from None
    try:
        return SettingsFile.model_validate(given)
    except ValidationError as error:
        first: Any = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        problem = describe_invalid(first)
        if first["type"] == "extra_forbidden":
            names = _names_at(first["loc"][:-1])
            name = str(first["loc"][-1])
            problem = f"there is no such setting{did_you_mean(name, names)}; there are {', '.join(names)}"
        raise AuthoringError(f"{path}: {place}: {problem}") from None


def _names_at(place: Sequence[int | str]) -> list[str]:
    """Return the names of the settings of a table."""
    model: Any = SettingsFile
    for part in place:
        model = EndpointSettings if part == "endpoints" else type(model.model_fields[str(part)].default)
    return sorted(model.model_fields)
