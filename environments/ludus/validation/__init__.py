"""Whether an environment's reward works: `ludus validate`, and `validate` from Python.

Checks play an environment over the wire, as a trainer does, and look for faults that spoil learning: an oracle that
misses the greatest reward, a reward for doing nothing, seeds without effect, episodes that touch each other, answers
that leak, splits that overlap, and rewards that can be had without solving the task. What they find is typed
(`Finding.kind`); `docs/validation.md` lists the kinds.
"""

from __future__ import annotations

from ludus.validation.checks import Check, Evidence, Finding, Severity, Status, Verdict
from ludus.validation.report import CHECKS, Report, validate
from ludus.validation.settings import Settings

__all__ = ["CHECKS", "Check", "Evidence", "Finding", "Report", "Settings", "Severity", "Status", "Verdict", "validate"]
