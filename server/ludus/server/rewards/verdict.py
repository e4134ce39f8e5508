"""The result of a check, and of each node above it: a value with its evidence, or the reason why there is none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ludus.protocol.text import replace_surrogates

EVIDENCE_CHARS: Final = 2_000
"""The limit for evidence, which is sent with every reward; the rest is cut off."""


@dataclass(slots=True)  # a frozen one would take several times as long to create
class Verdict:
    """A finite value with the reason for it. Most checks return a value between 0 (not at all) and 1 (fully).

    A check returns `Verdict(value, evidence)`, or only a number or a bool. The rubric adds the name and the parts.
    """

    value: float | None
    """None if nothing can be said about the policy; never used in place of 0."""
    evidence: str = ""
    """The reason, for the trainer; the policy never sees it."""
    name: str = ""
    """The name of the check or group that it belongs to."""
    parts: Sequence[tuple[Verdict, float]] | None = None
    """The verdicts below that add up to it, each with the factor by which it counts here; None for a check."""

    @classmethod
    def unscored(cls, reason: str) -> Verdict:
        """Return a verdict for an item that could not be judged, with the reason."""
        return cls(None, reason)

    def leaves(self) -> list[tuple[str, Verdict, float]]:
        """Return the checks below with their full names and effective weights."""
        named: list[tuple[str, Verdict, float]] = []
        self._gather(named, 1.0, "")
        return named

    def _gather(self, named: list[tuple[str, Verdict, float]], factor: float, prefix: str) -> None:
        if self.parts is None:
            named.append((prefix + (self.name or "value"), self, factor))
            return
        inner = f"{prefix}{self.name}/" if self.name else prefix
        for part, share in self.parts:
            part._gather(named, factor * share, inner)


def read_verdict(found: object, name: str = "") -> Verdict:
    """Return the verdict in what a check returned, with the check's name. A number that is not finite is unscored.

    Raises:
        TypeError: a check may not return a value of this type.
    """
    if found is True or found is False:
        return Verdict(1.0 if found else 0.0, "", name)
    if isinstance(found, Verdict):
        value, evidence = found.value, found.evidence
        if type(value) is float and math.isfinite(value) and len(evidence) <= EVIDENCE_CHARS and evidence.isascii():
            return Verdict(value, evidence, name)
    elif isinstance(found, int | float):
        value, evidence = float(found), ""
    else:
        raise TypeError(f"a check must return a number, a bool or a Verdict, not {type(found).__name__}")
    if value is not None:
        value = float(value)
        if not math.isfinite(value):
            return Verdict(None, f"the check returned {value}, which is no finite number", name)
    elif not evidence:
        evidence = "the check gave no reason"
    return Verdict(value, shorten_evidence(evidence) if evidence else "", name)


def shorten_evidence(evidence: str) -> str:
    """Return evidence that can be sent: of bounded length, and without lone surrogates."""
    if len(evidence) > EVIDENCE_CHARS:
        evidence = f"{evidence[:EVIDENCE_CHARS]} [{len(evidence)} characters]"
    return replace_surrogates(evidence)
