"""The errors of endpoints, as a branch of the tree in `ludus.protocol.errors`.

Forbidden
└── EndpointRefused       a version that may not run here: unsigned, or without a sandbox to run it in
ServerError
└── EndpointFailed        a version cannot be installed or does not start; the message ends with its log
    └── InstallRefused    it cannot be installed; the message ends with the installer's output
"""

from __future__ import annotations

from ludus.protocol.errors import Forbidden, ServerError


class EndpointRefused(Forbidden):
    """A version may not run as an endpoint of this hub."""


class EndpointFailed(ServerError):
    """The server of a version does not start.

    Its status is 424 (RFC 4918, 11.4) and not 502, because clients of all transports send requests that got a 502
    again at once, and the same version will fail in the same way.
    """

    http_status = 424


class InstallRefused(EndpointFailed):
    """A version cannot be installed."""
