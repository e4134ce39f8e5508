"""What a service must offer: a machine that runs a line of shell, takes and gives files, and can be ended."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Executed:
    """How the service says that a line ended."""

    exit_code: int
    stdout: str
    stderr: str = ""


class Overdue(Exception):
    """The service ended a command at the time that was asked of it, or did not answer until then."""


class Machine(ABC):
    """One sandbox of a service. Any exception other than `Overdue` means that the service or the sandbox failed."""

    id: str

    @abstractmethod
    async def execute(self, line: str, seconds: float) -> Executed:
        """Run a line once, as root if the service allows it.

        Raises:
            Overdue: it did not end within `seconds`.
        """

    @abstractmethod
    async def upload(self, path: str, data: bytes) -> None:
        """Write a file that the user of `execute` can read."""

    @abstractmethod
    async def download(self, path: str) -> bytes:
        """Return the content of a file of the user of `execute`."""

    @abstractmethod
    async def end(self) -> None:
        """End and remove the sandbox; one that is gone already is no error."""
