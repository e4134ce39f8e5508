"""The result of a check: a value with its evidence, or the reason why the item could not be judged."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from ludus.protocol.text import replace_surrogates

EVIDENCE_CHARS: Final = 2_000
"""The limit for evidence, which is sent with every reward; the rest is cut off."""


class Verdict(NamedTuple):
    """A finite value with the reason for it. Most checks return a value between 0 (not at all) and 1 (fully)."""

    value: float | None
    """None if nothing can be said about the policy; never used in place of 0."""
    evidence: str = ""
    """The reason, for the trainer; the policy never sees it."""

    @classmethod
    def unscored(cls, why: str) -> Verdict:
        """Return a verdict for an item that could not be judged, with the reason."""
        return cls(None, why)


Finding = Verdict | float | bool
"""What a check may return; True is 1 and False is 0."""


def read_verdict(found: object) -> Verdict:
    """Return the verdict in what a check returned. A number that is not finite is unscored.

    Raises:
        TypeError: a check may not return a value of this type.
    """
    if found is True or found is False:
        return Verdict(1.0 if found else 0.0)
    if isinstance(found, Verdict):
        value, evidence = found
        if type(value) is float and math.isfinite(value) and len(evidence) <= EVIDENCE_CHARS and evidence.isascii():
            return found
    elif isinstance(found, int | float):
        value, evidence = float(found), ""
    else:
        raise TypeError(f"a check must return a number, a bool or a Verdict, not {type(found).__name__}")
    if value is not None:
        value = float(value)
        if not math.isfinite(value):
            return Verdict.unscored(f"the check returned {value}, which is no finite number")
    elif not evidence:
        evidence = "the check gave no reason"
    return Verdict(value, shorten_evidence(evidence) if evidence else "")


def shorten_evidence(evidence: str) -> str:
    """Return evidence that can be sent: of bounded length, and without lone surrogates."""
    if len(evidence) > EVIDENCE_CHARS:
        evidence = f"{evidence[:EVIDENCE_CHARS]} [{len(evidence)} characters]"
    return replace_surrogates(evidence)
