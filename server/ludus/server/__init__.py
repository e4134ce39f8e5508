"""Write an environment and serve it: everything that an author needs is importable from here.

    from ludus.server import Environment, Private, Result, Rubric, Split, Task, tool

The checks, rubrics and judges of `ludus.server.rewards` and the sandbox types of `ludus.sandbox` are imported when they
are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from ludus.common.distribution import missing_extra
from ludus.protocol import (
    Answer,
    Call,
    Candidate,
    Component,
    EpisodeLimits,
    ImageBlock,
    Message,
    Private,
    Reward,
    StepResult,
    Task,
    TextBlock,
    text_of,
)
from ludus.protocol.errors import InfrastructureFailed

try:
    from ludus.server.authoring.environment import Environment, Toolset
    from ludus.server.authoring.generation import HeldOutTask
    from ludus.server.authoring.noise import Noise
    from ludus.server.authoring.partition import digest, draw_in_split, split_of
    from ludus.server.authoring.procedural import (
        DIFFICULTIES,
        Difficulty,
        ProceduralEnvironment,
        TaskDraw,
        fresh_tests,
    )
    from ludus.server.authoring.results import Result
    from ludus.server.authoring.seats import Match, SeatedEnvironment
    from ludus.server.authoring.splits import Split
    from ludus.server.authoring.tools import StepContext, tool
    from ludus.server.authoring.worlds import WorldEnvironment
    from ludus.server.execution.errors import ToolError
    from ludus.server.hosting.host import EpisodeHost
    from ludus.server.runtime.limits import ServerLimits
    from ludus.server.tasks.noisy import with_noise
except ModuleNotFoundError as error:
    raise missing_extra(error, "server") from None

if TYPE_CHECKING:
    from ludus.sandbox import Cassette, CassetteMiss, Limits, RunResult, Sandbox, SandboxSettings
    from ludus.server.authoring.mcp_servers import McpServer, connect_mcp
    from ludus.server.rewards import (
        Attempt,
        Box,
        Budget,
        CallOrder,
        CallResult,
        Cap,
        Check,
        Checklist,
        ChecklistError,
        DatabaseState,
        EachStep,
        Efficiency,
        Endpoint,
        Exact,
        Fields,
        FileCache,
        FileTree,
        FromEnvironment,
        FromTask,
        FunctionComparer,
        FunctionTest,
        FunctionTests,
        Gate,
        JsonSchema,
        Judge,
        MathEqual,
        Node,
        NoErrors,
        NormalizedMatch,
        Numeric,
        PairwiseJudge,
        Panel,
        Pattern,
        Penalty,
        Price,
        ProgramTest,
        ProgramTests,
        ReferenceJudge,
        Rubric,
        Scale,
        Sequential,
        TakenStep,
        TakenTurn,
        ToolCalled,
        ToolNotCalled,
        Tournament,
        Verdict,
        Weighted,
        WeightedSum,
        call_function,
        check,
        final_answer,
        judged_by,
        lint_checklist,
        load_checklist,
        metric,
        reward,
        stated_answers,
        values_equal,
    )

__all__ = [
    "Answer",
    "Attempt",
    "Box",
    "Budget",
    "Call",
    "CallOrder",
    "CallResult",
    "Cassette",
    "CassetteMiss",
    "Candidate",
    "Cap",
    "Check",
    "Checklist",
    "ChecklistError",
    "Component",
    "DIFFICULTIES",
    "DatabaseState",
    "Difficulty",
    "EachStep",
    "Efficiency",
    "Endpoint",
    "Environment",
    "EpisodeHost",
    "EpisodeLimits",
    "Exact",
    "Fields",
    "FileCache",
    "FileTree",
    "FromEnvironment",
    "FromTask",
    "FunctionComparer",
    "FunctionTest",
    "FunctionTests",
    "Gate",
    "HeldOutTask",
    "ImageBlock",
    "InfrastructureFailed",
    "JsonSchema",
    "Judge",
    "Limits",
    "Match",
    "MathEqual",
    "McpServer",
    "Message",
    "NoErrors",
    "Node",
    "Noise",
    "NormalizedMatch",
    "Numeric",
    "PairwiseJudge",
    "Panel",
    "Pattern",
    "Penalty",
    "Price",
    "Private",
    "ProceduralEnvironment",
    "ProgramTest",
    "ProgramTests",
    "ReferenceJudge",
    "Result",
    "Reward",
    "Rubric",
    "RunResult",
    "Sandbox",
    "SandboxSettings",
    "Scale",
    "SeatedEnvironment",
    "Sequential",
    "ServerLimits",
    "Split",
    "StepContext",
    "StepResult",
    "TakenStep",
    "TakenTurn",
    "Task",
    "TaskDraw",
    "TextBlock",
    "ToolCalled",
    "ToolError",
    "ToolNotCalled",
    "Toolset",
    "Tournament",
    "Verdict",
    "Weighted",
    "WeightedSum",
    "WorldEnvironment",
    "call_function",
    "check",
    "connect_mcp",
    "digest",
    "draw_in_split",
    "final_answer",
    "fresh_tests",
    "judged_by",
    "lint_checklist",
    "load_checklist",
    "metric",
    "reward",
    "split_of",
    "stated_answers",
    "text_of",
    "tool",
    "values_equal",
    "with_noise",
]

_MCP: Final = frozenset({"McpServer", "connect_mcp"})
_SANDBOX: Final = frozenset({"Cassette", "CassetteMiss", "Limits", "RunResult", "Sandbox", "SandboxSettings"})


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "ludus.sandbox" if name in _SANDBOX else "ludus.server.rewards"
    if name in _MCP:
        home = "ludus.server.authoring.mcp_servers"
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
