"""The options that all formats with a hosted package share."""

from __future__ import annotations

import sys
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

_OWN = frozenset({"python", "in_process", "isolation", "start_seconds", "name"})


class HostingSettings(BaseModel):
    """How to run a hosted package. A format adds its own options in a subclass; those reach the adapter."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    python: str = Field(default=sys.executable, min_length=1)
    """The interpreter that has the package, such as `envs/gym/bin/python`; this one by default."""
    in_process: bool = False
    """Whether to run the package in the server's own process, which is faster but isolates nothing."""
    isolation: Literal["process", "thread"] = "process"
    """In an interpreter of its own: whether an episode has a forked process, or only a thread."""
    start_seconds: float = Field(default=120.0, gt=0)
    """How long the package may take to be imported and to describe its environments."""
    name: str | None = Field(default=None, max_length=100)
    """The published name; by default the adapter's."""

    def for_adapter(self) -> dict[str, Any]:
        """Return the format's own options, as JSON values."""
        return {name: value for name, value in self.model_dump(mode="json").items() if name not in _OWN}
