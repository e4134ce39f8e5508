"""Errors of sandboxes, as part of the tree in `ludus.protocol.errors`.

AuthoringError
├── SandboxUnavailable        at startup: a backend cannot work here; the message names what to install or use instead
└── CassetteError             a cassette cannot be read or recorded, or was changed; the message names file and line
Unsupported
└── SandboxUnsupported        a backend cannot do what the settings ask for
    └── SandboxImageError     an image does not exist, cannot be built, is too large, or cannot be run here
InfrastructureFailed
├── SandboxFailed             a sandbox died or does not answer: the episode is unscored
└── CassetteMiss              a cassette has no answer to a request: the episode is unscored
LudusError
├── SandboxFileError          a path is missing, leads outside the work directory, or is too large
├── SandboxLimitReached       a limit leaves no room for another process
├── SandboxPortClosed         nothing listens on a port of the sandbox
└── SandboxInputClosed        a background process has closed its standard input, or has ended
"""

from __future__ import annotations

from typing import Final

from ludus.protocol.errors import AuthoringError, InfrastructureFailed, LudusError, Unsupported

__all__ = ["SandboxFailed", "SandboxFileError", "SandboxPortClosed", "SandboxUnavailable", "SandboxUnsupported"]


class SandboxUnavailable(AuthoringError):
    """A backend cannot work on this machine; raised when it is opened."""


class CassetteError(AuthoringError):
    """A cassette cannot be read or recorded: its file is missing, was changed, or is for another version."""


class SandboxUnsupported(Unsupported):
    """This backend cannot do what the settings ask for."""


class SandboxImageError(SandboxUnsupported):
    """An image cannot be used. The message names it and says what to do."""


class SandboxFailed(InfrastructureFailed):
    """The sandbox has ended or does not answer."""


class CassetteMiss(InfrastructureFailed):
    """A cassette has no recorded answer to a request."""


class SandboxFileError(LudusError):
    """A path in the sandbox is missing, is not a plain file, leads outside the work directory, or is too large."""


class SandboxLimitReached(LudusError):
    """A limit of the sandbox leaves no room for another process: end one first, or raise the limit."""


class SandboxPortClosed(LudusError):
    """Nothing in the sandbox listens on the port."""


class SandboxInputClosed(LudusError):
    """The background process has closed its standard input, or has ended."""


CAUSED_INSIDE: Final = (SandboxFileError, SandboxLimitReached, SandboxPortClosed, SandboxInputClosed)
"""The errors that what runs in a sandbox can cause, such as the agent's commands. So they are the agent's: a tool that
raises one has refused the call, a grade or a check of a rubric that raises one is 0, and a snapshot is left out."""
