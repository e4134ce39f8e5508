"""Environments of which nothing can be judged: no episode starts, or none has a reward."""

from __future__ import annotations

from typing import Any

from sound import Sums

from ludus.server import Reward


class NeverStarts(Sums):
    """Fail in the setup of every episode."""

    def setup(self) -> None:
        raise RuntimeError("the dataset is missing")


class NeverScored(Sums):
    """Leave every episode unscored."""

    def grade(self, answer: str) -> Any:
        return Reward.unscored("the judge is out")
