"""The options that all formats with a hosted package share."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ludus.protocol.errors import AuthoringError
from ludus.server.tasks.formats import FormatSource

_OF_CODE = ("python", "in_process", "blocking", "isolation", "start_seconds")
ToolErrors = Literal["show", "fail"]
_OWN = frozenset({"python", "in_process", "blocking", "isolation", "start_seconds", "name"})


class HostingSettings(BaseModel):
    """How to run a hosted package. A format adds its own options in a subclass; those reach the adapter."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    decides_tool_errors: ClassVar[str | None] = None
    """Why the hosted package alone decides about errors of tools, if it does; then there is no other choice."""

    python: str = Field(default=sys.executable, min_length=1)
    """The interpreter that has the package, such as `envs/gym/bin/python`; this one by default."""
    in_process: bool = False
    """Whether to run the package in the server's own process, which is faster but isolates nothing."""
    blocking: bool = True
    """With `in_process`: whether calls may take long, so that they need threads. With `false` they run on the server's
    event loop, which saves two switches of threads for each; a call that takes long then delays all episodes."""
    isolation: Literal["process", "thread"] = "process"
    """In an interpreter of its own: whether an episode has a forked process, or only a thread."""
    start_seconds: float = Field(default=120.0, gt=0)
    """How long the package may take to be imported and to describe its environments."""
    name: str | None = Field(default=None, max_length=100)
    """The published name; by default the adapter's."""
    tool_errors: ToolErrors = "fail"
    """What an error that the hosted environment raises in a call of the agent does: with `show` the agent reads it and
    the episode goes on, with `fail` the episode has failed and is unscored; by default as the package's own loop."""

    @model_validator(mode="after")
    def _check_blocking(self) -> Self:
        if not self.blocking and not self.in_process:
            raise ValueError("blocking=false is for in_process=true; an interpreter of its own never blocks the server")
        return self

    @model_validator(mode="after")
    def _check_tool_errors(self) -> Self:
        if self.decides_tool_errors is not None and "tool_errors" in self.model_fields_set:
            raise ValueError(f"leave out tool_errors: {self.decides_tool_errors}")
        return self

    def for_adapter(self) -> dict[str, Any]:
        """Return the format's own options, as JSON values."""
        return {name: value for name, value in self.model_dump(mode="json").items() if name not in _OWN}


def names_server(
    source: FormatSource, settings: HostingSettings, of_code: Sequence[str], of_servers: Sequence[str]
) -> bool:
    """Return whether a target is the address of a running server, and not code to run here.

    Args:
        source: the target.
        settings: its options.
        of_code: the format's options that only code has, besides those of all hosted packages.
        of_servers: the options that only running servers have.

    Raises:
        AuthoringError: an option of the other kind is given.
    """
    is_server = source.target.startswith(("http://", "https://"))
    for option in (*_OF_CODE, *of_code) if is_server else of_servers:
        if option in settings.model_fields_set:
            what = "code that is run here" if is_server else "running servers"
            raise AuthoringError(f"{source!s}: the option {option!r} is for {what}; leave it out")
    return is_server
