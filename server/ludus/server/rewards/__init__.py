"""Rewards: rubrics of weighted checks, judges, process rewards and group scores.

Names are imported when they are first used: a server needs few of them, and each one would slow its startup.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ludus.server.rewards.attempt import Attempt, FromEnvironment, FromTask, TakenStep, TakenTurn
    from ludus.server.rewards.calls import CallOrder, Efficiency, NoErrors, ToolCalled, ToolNotCalled
    from ludus.server.rewards.checklist import Checklist, ChecklistError, lint_checklist, load_checklist
    from ludus.server.rewards.code import FunctionTest, FunctionTests, ProgramTest, ProgramTests
    from ludus.server.rewards.code_runner import Box
    from ludus.server.rewards.evolving import Evolving, ScoredAttempt
    from ludus.server.rewards.functions import CallResult, call_function, values_equal
    from ludus.server.rewards.judges import (
        Budget,
        Endpoint,
        FileCache,
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
    from ludus.server.rewards.nodes import Cap, Check, Gate, Node, Penalty, Sequential, Weighted, WeightedSum
    from ludus.server.rewards.process import EachStep
    from ludus.server.rewards.rubric import Rubric
    from ludus.server.rewards.state import DatabaseState, FileTree
    from ludus.server.rewards.structure import Fields, JsonSchema
    from ludus.server.rewards.text import Exact, NormalizedMatch, Numeric, Pattern
    from ludus.server.rewards.tournament import FunctionComparer, Tournament
    from ludus.server.rewards.verdict import Verdict

__all__ = [
    "Attempt",
    "Box",
    "Budget",
    "CallOrder",
    "CallResult",
    "ToolCalled",
    "Cap",
    "Check",
    "Checklist",
    "ChecklistError",
    "FunctionComparer",
    "DatabaseState",
    "EachStep",
    "Efficiency",
    "Endpoint",
    "Evolving",
    "Exact",
    "Fields",
    "FileCache",
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
    "NormalizedMatch",
    "ToolNotCalled",
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
    "ScoredAttempt",
    "Sequential",
    "TakenStep",
    "TakenTurn",
    "WeightedSum",
    "Tournament",
    "Verdict",
    "Weighted",
    "call_function",
    "check",
    "judged_by",
    "lint_checklist",
    "load_checklist",
    "metric",
    "reward",
    "values_equal",
]

_HOMES: Final = {
    "Attempt": "ludus.server.rewards.attempt",
    "FromEnvironment": "ludus.server.rewards.attempt",
    "FromTask": "ludus.server.rewards.attempt",
    "TakenStep": "ludus.server.rewards.attempt",
    "TakenTurn": "ludus.server.rewards.attempt",
    "Box": "ludus.server.rewards.code_runner",
    "ToolCalled": "ludus.server.rewards.calls",
    "CallOrder": "ludus.server.rewards.calls",
    "Efficiency": "ludus.server.rewards.calls",
    "NoErrors": "ludus.server.rewards.calls",
    "ToolNotCalled": "ludus.server.rewards.calls",
    "Checklist": "ludus.server.rewards.checklist",
    "ChecklistError": "ludus.server.rewards.checklist",
    "lint_checklist": "ludus.server.rewards.checklist",
    "load_checklist": "ludus.server.rewards.checklist",
    "FunctionTest": "ludus.server.rewards.code",
    "FunctionTests": "ludus.server.rewards.code",
    "ProgramTest": "ludus.server.rewards.code",
    "ProgramTests": "ludus.server.rewards.code",
    "CallResult": "ludus.server.rewards.functions",
    "call_function": "ludus.server.rewards.functions",
    "values_equal": "ludus.server.rewards.functions",
    "Evolving": "ludus.server.rewards.evolving",
    "ScoredAttempt": "ludus.server.rewards.evolving",
    "Budget": "ludus.server.rewards.judges",
    "FileCache": "ludus.server.rewards.judges",
    "Endpoint": "ludus.server.rewards.judges",
    "Judge": "ludus.server.rewards.judges",
    "PairwiseJudge": "ludus.server.rewards.judges",
    "Panel": "ludus.server.rewards.judges",
    "Price": "ludus.server.rewards.judges",
    "ReferenceJudge": "ludus.server.rewards.judges",
    "Scale": "ludus.server.rewards.judges",
    "judged_by": "ludus.server.rewards.judges",
    "MathEqual": "ludus.server.rewards.mathematics",
    "check": "ludus.server.rewards.methods",
    "metric": "ludus.server.rewards.methods",
    "reward": "ludus.server.rewards.methods",
    "Cap": "ludus.server.rewards.nodes",
    "Check": "ludus.server.rewards.nodes",
    "Gate": "ludus.server.rewards.nodes",
    "Node": "ludus.server.rewards.nodes",
    "Penalty": "ludus.server.rewards.nodes",
    "Sequential": "ludus.server.rewards.nodes",
    "WeightedSum": "ludus.server.rewards.nodes",
    "Weighted": "ludus.server.rewards.nodes",
    "EachStep": "ludus.server.rewards.process",
    "Rubric": "ludus.server.rewards.rubric",
    "DatabaseState": "ludus.server.rewards.state",
    "FileTree": "ludus.server.rewards.state",
    "Fields": "ludus.server.rewards.structure",
    "JsonSchema": "ludus.server.rewards.structure",
    "Exact": "ludus.server.rewards.text",
    "NormalizedMatch": "ludus.server.rewards.text",
    "Numeric": "ludus.server.rewards.text",
    "Pattern": "ludus.server.rewards.text",
    "FunctionComparer": "ludus.server.rewards.tournament",
    "Tournament": "ludus.server.rewards.tournament",
    "Verdict": "ludus.server.rewards.verdict",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
