"""The settings of accounts."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from ludus.hub.core.rates import RateSettings

Registration = Literal["closed", "invite", "open"]
"""Who may register: none, those with an invitation, or all."""


class PeopleSettings(BaseModel):
    """The settings of accounts."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    registration: Registration = "closed"
    """Who may register an account by themselves."""
    rates: RateSettings = RateSettings()
    """How many requests a hub with accounts or tokens answers."""
