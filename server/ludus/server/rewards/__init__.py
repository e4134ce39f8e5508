"""Say what is good: rubrics of weighted checks, judges, process rewards and group scores."""

from __future__ import annotations

from ludus.server.rewards.attempt import Attempt, FromEnvironment, FromTask, TakenStep
from ludus.server.rewards.methods import check, metric, reward
from ludus.server.rewards.nodes import Cap, Check, Gate, Node, Penalty, Sequential, Total, Weighted
from ludus.server.rewards.rubric import Rubric
from ludus.server.rewards.verdict import Verdict

__all__ = [
    "Attempt",
    "Cap",
    "Check",
    "FromEnvironment",
    "FromTask",
    "Gate",
    "Node",
    "Penalty",
    "Rubric",
    "Sequential",
    "TakenStep",
    "Total",
    "Verdict",
    "Weighted",
    "check",
    "metric",
    "reward",
]
