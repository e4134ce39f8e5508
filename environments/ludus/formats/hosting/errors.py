"""What hosted code reports, as exceptions.

HostedCodeError      the package or its adapter raised, or its process ended
(AuthoringError)     a package is missing, or the target or an option cannot be used
(ToolError)          the agent's action was refused
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ludus.protocol.errors import AuthoringError
from ludus.server import ToolError


class HostedCodeError(Exception):
    """Hosted code failed: it raised, returned what cannot be used, or its process ended.

    Attributes:
        traceback: the traceback in the foreign interpreter; empty if there is none.
    """

    def __init__(self, message: str, traceback: str = "") -> None:
        super().__init__(f"{message}\n{traceback}" if traceback else message)
        self.message = message
        self.traceback = traceback


def error_of(format_name: str, python: str, report: Mapping[str, Any]) -> Exception:
    """Return the exception for an error that `runner.explain` reported."""
    message = str(report.get("message", ""))
    match report.get("kind"):
        case "refused":
            return ToolError(message)
        case "missing":
            package = report.get("package") or message
            return AuthoringError(
                f"the format {format_name!r} needs the package {message!r}, which {python} does not have; install it "
                f"with: {python} -m pip install {package}. Or name an interpreter that has it: #python=PATH"
            )
        case "not_usable":
            return AuthoringError(f"{format_name}: {message}")
        case _:
            return HostedCodeError(f"{report.get('type')}: {message}", str(report.get("traceback", "")))
