"""The form of GSM8K's answers: the final number after `####`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ludus.server import Attempt, FromTask
from ludus.server.rewards import Check, Verdict
from ludus.server.rewards.attempt import Selector, answer_of, resolve

_FINAL: Final = re.compile(r"#### (-?[0-9.,]+)")


def final_number(text: str) -> str | None:
    """Return the first number after `#### ` without commas, as GSM8K's own evaluation and SkyRL read it, or None."""
    found = _FINAL.search(text)
    return found[1].replace(",", "") if found is not None else None


@dataclass(frozen=True)
class FinalNumber(Check):
    """1 when the text of the message's final number is the expected one: `5.0` is not `5`."""

    expected: Selector[str] = FromTask("answer")
    of: Selector[str] = answer_of

    def check(self, attempt: Attempt) -> Verdict:
        """Compare the message's number with the expected one."""
        found = final_number(resolve(self.of, attempt))
        if found is None:
            return Verdict(0.0, "there is no number after ####")
        return Verdict(float(found == resolve(self.expected, attempt)), f"read as {found[:120]}")
