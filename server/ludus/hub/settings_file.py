"""The file of a hub's settings: `ludus hub --settings hub.toml`."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from ludus.hub.endpoints.settings import EndpointSettings
from ludus.hub.people.rates import RateSettings
from ludus.hub.results.limits import ResultLimits
from ludus.hub.settings import HubLimits
from ludus.hub.toml_settings import check_settings, read_toml
from ludus.hub.verified.settings import VerifiedSettings, turned_on


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
    verified: VerifiedSettings | None = None
    """What verified runs may use; null if another file says so, or the hub has none."""


def read_settings_file(path: Path | None) -> SettingsFile:
    """Return the settings in a TOML file, or the defaults.

    Args:
        path: the file; None for the defaults.

    Raises:
        AuthoringError: the file cannot be read, or a setting does not exist or has a wrong value.
    """
    if path is None:
        return SettingsFile()
    given = read_toml(path, "the settings")
    if isinstance(given.get("verified"), dict):
        given["verified"] = turned_on(given["verified"])
    return check_settings(SettingsFile, given, path)
