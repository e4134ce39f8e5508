"""What an environment needs from the place where its hosted episodes run: an interpreter, or a server elsewhere."""

from __future__ import annotations

from typing import Any, Protocol


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
