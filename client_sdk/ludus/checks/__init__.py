"""The frame that `ludus conform` and `ludus validate` share: checks in suites, a verdict for each, and one report.

A package of checks defines its own subclass of `Check` (what else one of its checks declares), of `Verdict` (what
else its report shows) and of `Report` (what was checked, and which statuses fail).
"""

from __future__ import annotations

from ludus.checks.frame import Check, NotApplicable, Report, Status, Suite, Verdict

__all__ = ["Check", "NotApplicable", "Report", "Status", "Suite", "Verdict"]
