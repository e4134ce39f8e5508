"""Does a server keep to the standard? Black-box checks of every wire, negative ones included."""

from __future__ import annotations

from ludus.conformance.checks import Status, Verdict
from ludus.conformance.report import CHECKS, WIRES, Report, conform

__all__ = ["CHECKS", "WIRES", "Report", "Status", "Verdict", "conform"]
