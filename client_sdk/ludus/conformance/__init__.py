"""Black-box checks of whether a server conforms to the standard, on every wire, including requests to be refused."""

from __future__ import annotations

from ludus.checks import Status
from ludus.conformance.checks import Verdict
from ludus.conformance.discover import WIRES
from ludus.conformance.report import CHECKS, Report, conform

__all__ = ["CHECKS", "WIRES", "Report", "Status", "Verdict", "conform"]
