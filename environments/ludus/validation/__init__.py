"""Check that an environment's reward works: `ludus validate`, and `validate` in Python.

The checks play an environment through a server, as a trainer does, and look for faults that spoil learning: an oracle
that misses the best reward, a reward for doing nothing, seeds without effect, episodes that affect each other, leaked
answers, overlapping splits, and rewards that are available without solving the task. Each finding has a kind
(`Finding.kind`); `docs/validation.md` lists the kinds.
"""

from __future__ import annotations

from ludus.checks import Status
from ludus.validation.core.checks import Check, Evidence, Finding, Severity, Verdict
from ludus.validation.core.last_report import LastReport, read_reports
from ludus.validation.core.settings import Settings
from ludus.validation.report import CHECKS, Report, validate

__all__ = [
    "CHECKS", "Check", "Evidence", "Finding", "LastReport", "Report", "Settings", "Severity", "Status", "Verdict",
    "read_reports", "validate",
]  # fmt: skip
