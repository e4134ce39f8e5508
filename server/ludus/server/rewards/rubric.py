"""`Rubric`: a tree of checks with a name and a version, and its conversion to a reward."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from itertools import count
from typing import Any

from ludus.protocol.errors import AuthoringError
from ludus.protocol.rewards import Reward
from ludus.server.rewards.attempt import Attempt
from ludus.server.rewards.nodes import Node, Offload, Weighted, settle
from ludus.server.rewards.verdict import Verdict, shorten_evidence

__all__ = ["Rubric"]


class Rubric:
    """A tree of weighted checks that scores attempts.

    Args:
        checks: the tree's root, or a list of checks, whose weighted mean is then taken.
        name: the rubric's name in rewards.
        version: raise it whenever the same attempt would earn a different reward. It is recorded with each reward.

    Raises:
        AuthoringError: two checks have the same name.
    """

    def __init__(self, checks: Node | Sequence[Node], *, name: str = "rubric", version: str = "1") -> None:
        self.root = checks if isinstance(checks, Node) else Weighted(tuple(checks))
        self.name = name
        self.version = version
        repeated = [name for name, count in Counter(self.root.names()).items() if count > 1]
        if repeated:
            raise AuthoringError(
                f"rubric {name!r} has two checks called {repeated[0]!r}; give one of them another name=…, or put them "
                "into named groups"
            )

    @property
    def label(self) -> str:
        """The name with the version, as rewards record it."""
        return f"{self.name}@{self.version}"

    async def evaluate(self, attempt: Attempt, *, offload: Offload = asyncio.to_thread) -> Verdict:
        """Return the verdict of the whole tree.

        Args:
            attempt: the attempt to score.
            offload: runs checks that may block.
        """
        return await settle(self.root.evaluate(attempt, offload))

    async def score(self, attempt: Attempt, *, offload: Offload = asyncio.to_thread) -> Reward:
        """Return the reward, with one component for each check."""
        return reward_of(await self.evaluate(attempt, offload=offload), self.label)


def reward_of(verdict: Verdict, rubric: str | None = None) -> Reward:
    """Return a verdict as a reward: components by name, whose values times weights add up to the reward's value."""
    components: dict[str, dict[str, Any]] = {}
    missing: dict[str, str] = {}
    for name, leaf, weight in verdict.leaves():
        if name in components:  # two caps or floors without a name
            name = next(f"{name}-{n}" for n in count(2) if f"{name}-{n}" not in components)
        if leaf.value is None:
            missing[name] = leaf.evidence
        else:
            components[name] = {"value": leaf.value, "weight": weight, "evidence": leaf.evidence or None}
    reason = verdict.evidence or None
    if verdict.value is None:
        reason = shorten_evidence(verdict.evidence or "it could not be judged")
    # One call that validates everything is faster than a call for each component.
    return Reward.model_validate(
        {
            "value": verdict.value, "components": components, "missing": missing, "reason": reason, "rubric": rubric,
        }
    )  # fmt: skip
