"""Say what is good: rubrics of weighted checks, judges, process rewards and group scores."""

from __future__ import annotations

from ludus.server.rewards.attempt import Attempt, FromEnvironment, FromTask, TakenStep
from ludus.server.rewards.boxes import Box
from ludus.server.rewards.calls import Called, CallOrder, Efficiency, NoErrors, NotCalled
from ludus.server.rewards.checklist import Checklist, ChecklistError, lint_checklist, load_checklist
from ludus.server.rewards.code import FunctionTest, FunctionTests, ProgramTest, ProgramTests
from ludus.server.rewards.evolving import Evolving, Seen
from ludus.server.rewards.judges import (
    Budget,
    Endpoint,
    Judge,
    PairwiseJudge,
    Panel,
    Price,
    ReferenceJudge,
    Scale,
    judged_by,
)
from ludus.server.rewards.mathematics import MathEqual
from ludus.server.rewards.methods import check, metric, reward
from ludus.server.rewards.nodes import Cap, Check, Gate, Node, Penalty, Sequential, Total, Weighted
from ludus.server.rewards.rubric import Rubric
from ludus.server.rewards.state import DatabaseState, FileTree
from ludus.server.rewards.structure import Fields, JsonSchema
from ludus.server.rewards.text import Exact, Normalised, Numeric, Pattern
from ludus.server.rewards.tournament import Comparing, Tournament
from ludus.server.rewards.verdict import Verdict

__all__ = [
    "Attempt",
    "Box",
    "Budget",
    "CallOrder",
    "Called",
    "Cap",
    "Check",
    "Checklist",
    "ChecklistError",
    "Comparing",
    "DatabaseState",
    "Efficiency",
    "Endpoint",
    "Evolving",
    "Exact",
    "Fields",
    "FileTree",
    "FromEnvironment",
    "FromTask",
    "FunctionTest",
    "FunctionTests",
    "Gate",
    "JsonSchema",
    "Judge",
    "MathEqual",
    "NoErrors",
    "Node",
    "Normalised",
    "NotCalled",
    "Numeric",
    "PairwiseJudge",
    "Panel",
    "Pattern",
    "Penalty",
    "Price",
    "ProgramTest",
    "ProgramTests",
    "ReferenceJudge",
    "Rubric",
    "Scale",
    "Seen",
    "Sequential",
    "TakenStep",
    "Total",
    "Tournament",
    "Verdict",
    "Weighted",
    "check",
    "judged_by",
    "lint_checklist",
    "load_checklist",
    "metric",
    "reward",
]
