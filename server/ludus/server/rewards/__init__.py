"""Rewards: rubrics of weighted checks, judges, process rewards and group scores.

Names are imported when they are first used: a server needs few of them, and each one would slow its startup.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ludus.server.rewards.answers import final_answer, stated_answers
    from ludus.server.rewards.attempt import Attempt, FromEnvironment, FromTask, TakenStep, TakenTurn
    from ludus.server.rewards.calls import CallOrder, Efficiency, NoErrors, ToolCalled, ToolNotCalled
    from ludus.server.rewards.checklist import Checklist, ChecklistError, lint_checklist, load_checklist
    from ludus.server.rewards.code import FunctionTest, FunctionTests, ProgramTest, ProgramTests
    from ludus.server.rewards.code_runner import Box
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
    "Sequential",
    "TakenStep",
    "TakenTurn",
    "WeightedSum",
    "Tournament",
    "Verdict",
    "Weighted",
    "call_function",
    "check",
    "final_answer",
    "judged_by",
    "lint_checklist",
    "load_checklist",
    "metric",
    "reward",
    "stated_answers",
    "values_equal",
]

_MODULES: Final = {
    "answers": "final_answer stated_answers",
    "attempt": "Attempt FromEnvironment FromTask TakenStep TakenTurn",
    "calls": "CallOrder Efficiency NoErrors ToolCalled ToolNotCalled",
    "checklist": "Checklist ChecklistError lint_checklist load_checklist",
    "code": "FunctionTest FunctionTests ProgramTest ProgramTests",
    "code_runner": "Box",
    "functions": "call_function CallResult values_equal",
    "judges": "Budget Endpoint FileCache Judge judged_by PairwiseJudge Panel Price ReferenceJudge Scale",
    "mathematics": "MathEqual",
    "methods": "check metric reward",
    "nodes": "Cap Check Gate Node Penalty Sequential Weighted WeightedSum",
    "process": "EachStep",
    "rubric": "Rubric",
    "state": "DatabaseState FileTree",
    "structure": "Fields JsonSchema",
    "text": "Exact NormalizedMatch Numeric Pattern",
    "tournament": "FunctionComparer Tournament",
    "verdict": "Verdict",
}
"""The modules of this package that define the public names."""

_HOMES: Final = {name: module for module, names in _MODULES.items() for name in names.split()}
"""The module of each public name."""


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
