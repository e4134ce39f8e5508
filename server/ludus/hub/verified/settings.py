"""The settings of verified runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, field_validator

from ludus.hub.toml_settings import check_settings, read_toml
from ludus.sandbox.core.allowlist import Allowlist

MEGABYTE: Final = 1024 * 1024

ANY: Final = "*"
"""The entry of `hosts` that stands for all hosts on the public internet."""


class VerifiedSettings(BaseModel):
    """What verified runs may use. Sizes are in bytes, times in seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    enabled: bool = False
    """Whether this hub does verified runs. It needs bubblewrap."""
    hosts: tuple[str, ...] = (ANY,)
    """The hosts of model endpoints on the public internet, by https: `api.openai.com`, `*.example.org:8443`, or `*` for
    all at port 443."""
    private_hosts: tuple[str, ...] = ()
    """Further hosts, which may have private addresses, and may be reached by http: `127.0.0.1:8000`."""
    runs: int = Field(default=2, ge=1)
    """Runs at one time; others wait."""
    open_runs: int = Field(default=2, ge=1)
    """The most open runs of an account, waiting ones included."""
    open_runs_of_hub: int = Field(default=16, ge=1)
    """The same, of all accounts."""
    run_seconds: float = Field(default=72 * 3600.0, gt=0, le=366 * 24 * 3600.0)
    """How long a run may take, with the time that it waits. What is missing then counts with the lowest reward."""
    episodes: int = Field(default=2, ge=1)
    """Episodes of a run at one time."""
    run_episodes: int = Field(default=500, ge=1)
    """The most episodes of a run."""
    run_tokens: int = Field(default=100_000_000, ge=1)
    """The most tokens of all calls of a run, in and out."""
    episode_seconds: float = Field(default=1800.0, gt=0)
    """How long an episode may take."""
    cpu_seconds: float = Field(default=600.0, gt=0)
    """CPU time of a harness in one episode."""
    memory: int = Field(default=1024 * MEGABYTE, ge=64 * MEGABYTE)
    """Memory of a harness."""
    processes: int = Field(default=64, ge=8)
    """Processes and threads of a harness."""
    disk: int = Field(default=256 * MEGABYTE, ge=MEGABYTE)
    """Files that a harness writes. They lie in memory and end with the episode."""
    calls: int = Field(default=400, ge=1)
    """The most calls of the model in one episode."""
    open_calls: int = Field(default=4, ge=1)
    """The most calls of an episode at one time."""
    request_bytes: int = Field(default=16 * MEGABYTE, ge=1024)
    """The largest request to the model, and to the episode."""
    answer_bytes: int = Field(default=16 * MEGABYTE, ge=1024)
    """The largest answer of the model."""
    call_seconds: float = Field(default=600.0, gt=0)
    """How long a call of the model may take."""
    outage_seconds: float = Field(default=300.0, ge=0)
    """For how long, in one episode, calls are repeated while the endpoint does not answer, or answers 429 or 5xx."""
    pause_seconds: float = Field(default=60.0, gt=0)
    """How long a run waits after an episode that could not be played."""

    @field_validator("hosts", "private_hosts")
    @classmethod
    def _check_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        Allowlist([host for host in hosts if host != ANY])
        return hosts


def turned_on(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings that turn verified runs on, unless they say otherwise."""
    return {"enabled": True, **given}


def read_settings(path: Path | None) -> VerifiedSettings:
    """Return the settings in a TOML file; those of a hub without verified runs if there is none.

    Raises:
        AuthoringError: the file cannot be read, or a setting does not exist or has a wrong value.
    """
    if path is None:
        return VerifiedSettings()
    return check_settings(VerifiedSettings, turned_on(read_toml(path, "the settings of verified runs")), path)
