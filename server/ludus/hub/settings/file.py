"""The file of a hub's settings: `ludus hub --settings hub.toml`."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from ludus.hub.core.rates import RateSettings
from ludus.hub.core.toml_settings import check_settings, read_toml
from ludus.hub.settings.endpoints import EndpointSettings
from ludus.hub.settings.hub import HubLimits
from ludus.hub.settings.results import ResultLimits


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
    return check_settings(SettingsFile, read_toml(path, "the settings"), path)
