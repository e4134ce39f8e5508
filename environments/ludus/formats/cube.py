"""`cube:TARGET`: benchmarks of CUBE (`cube-standard`), such as `cube:arithmetic-cube` or `cube:terminalbench2-cube`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field, Json

from ludus.formats.hosting import HostingSettings, ToolErrors, host_environments
from ludus.server import Environment
from ludus.server.tasks.formats import FormatSource


class CubeSettings(HostingSettings):
    """The options of `cube:`."""

    make: Json[dict[str, Any]] | None = None
    """Fields of the benchmark's config, as JSON."""
    subset: str | None = None
    """A named subset of the benchmark."""
    tasks: Json[list[str]] | None = Field(default=None, min_length=1)
    """The ids of the tasks to serve, as JSON; all by default."""
    infra: str | None = None
    """Where containers of tasks are launched: `local`, or `module:NAME` of an `InfraConfig`; by default as the
    benchmark chooses."""
    tool_errors: ToolErrors = "show"
    """As for all formats; CUBE shows the agent what an action raised."""
    install: bool = True
    """Whether the benchmark's `install` runs at startup, as CUBE's own runners do; it may download data."""


def resolve(source: FormatSource) -> Sequence[type[Environment[Any]]]:
    """Return the environment that a target names.

    Raises:
        AuthoringError: cube-standard is missing, there is no such benchmark, it cannot be installed or set up, or an
            option cannot be used.
    """
    return host_environments("cube", source.target, source.settings(CubeSettings))
