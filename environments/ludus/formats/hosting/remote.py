"""What an environment needs from the place where its hosted episodes run: an interpreter, or a server elsewhere."""

from __future__ import annotations

import os
from typing import Any, Protocol

from ludus.protocol.errors import AuthoringError


def variable_of(format_name: str, option: str, name: str) -> str:
    """Return the value of an environment variable that an option names.

    Raises:
        AuthoringError: it is not set, or empty.
    """
    value = os.environ.get(name)
    if not value:
        raise AuthoringError(f"{format_name}: the environment variable {name!r} of {option} is not set")
    return value


def bearer_headers(format_name: str, variable: str | None) -> dict[str, str]:
    """Return the headers for a running server, with the bearer token that a variable holds; without one, none.

    Raises:
        AuthoringError: the variable is not set.
    """
    if not variable:
        return {}
    return {"Authorization": f"Bearer {variable_of(format_name, 'token_variable', variable)}"}


class Session(Protocol):
    """The place of one episode."""

    async def call(self, name: str, /, **parameters: Any) -> Any:
        """Call `open`, `call` or `grade`, and return what an adapter's episode returns.

        Raises:
            ToolError: the agent's action was refused.
            HostedCodeError: the hosted environment failed.
            InfrastructureFailed: its server is gone, or does not answer.
        """

    async def aclose(self) -> None:
        """Free the episode."""


class EpisodeSource(Protocol):
    """Where hosted episodes run."""

    def acquire(self) -> None:
        """Prepare for episodes of one more environment; runs when the server starts. Blocks."""

    def release(self) -> None:
        """End the use by an environment; the last one frees everything. Blocks."""

    def ask(self, call: str, **parameters: Any) -> Any:
        """Return a task: `ask("task", environment=…, split=…, index=…)`. Blocks.

        Raises:
            HostedCodeError: there is no such task.
            InfrastructureFailed: the server does not answer.
        """

    async def connect(self) -> Session:
        """Return a session for one episode.

        Raises:
            InfrastructureFailed: there is none.
        """
        ...
