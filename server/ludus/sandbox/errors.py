"""What goes wrong with sandboxes, within the one tree of `ludus.protocol.errors`.

AuthoringError
└── SandboxUnavailable        at start: a backend cannot work here; the message names what to install instead
Unsupported
└── SandboxUnsupported        a backend that cannot do what the settings ask for
InfrastructureFailed
└── SandboxFailed             a box died, or does not answer: the episode is unscored
LudusError
└── SandboxFileError          a path that is missing, leads outside, or is too large; also an unknown directory
"""

from __future__ import annotations

from ludus.protocol.errors import AuthoringError, InfrastructureFailed, LudusError, Unsupported


class SandboxUnavailable(AuthoringError):
    """A backend cannot work on this machine; found when it is opened."""


class SandboxUnsupported(Unsupported):
    """This backend cannot do what the settings ask for."""


class SandboxFailed(InfrastructureFailed):
    """The box is gone, or does not answer."""


class SandboxFileError(LudusError):
    """A path in the box that is missing, is not a plain file, leads outside, or is too large."""
