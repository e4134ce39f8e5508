"""The extension's methods, in one table: names, params, results and the scope each needs.

The JSON-RPC wires, the client, the schemas and the spec's text are all driven from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeVar

from ludus.protocol import episodes as e
from ludus.protocol import worlds as w
from ludus.protocol.identifiers import METHOD_PREFIX
from ludus.protocol.model import WireModel
from ludus.protocol.modules import METHOD_MODULES, Module

__all__ = ["SPLIT_SCOPE_PREFIX", "Scope"]


P = TypeVar("P", bound=WireModel)
R = TypeVar("R", bound=WireModel)


class Scope(StrEnum):
    """The rights of a trainer token. Test splits also require `splits:<name>`."""

    TASKS_READ = "tasks:read"
    EPISODES_RUN = "episodes:run"
    REWARDS_READ = "rewards:read"
    ADMIN = "admin"
    """All rights, on the episodes and worlds of all principals."""


SPLIT_SCOPE_PREFIX: Final = "splits:"
"""`splits:<name>` opens one test split, `splits:*` all of them."""


class Method(NamedTuple, Generic[P, R]):
    """One method of the extension."""

    name: str
    params: type[P]
    result: type[R]
    scope: Scope
    summary: str

    @property
    def module(self) -> Module | None:
        """Return the module that the method belongs to; None for the core."""
        return METHOD_MODULES.get(self.name.removeprefix(METHOD_PREFIX))


LIST_ENVIRONMENTS = Method(
    METHOD_PREFIX + "environments/list", e.ListEnvironmentsParams, e.ListEnvironmentsResult,
    Scope.TASKS_READ, "List the environments of this server.",
)  # fmt: skip
LIST_SPLITS = Method(
    METHOD_PREFIX + "splits/list", e.ListSplitsParams, e.ListSplitsResult,
    Scope.TASKS_READ, "List the splits of an environment.",
)  # fmt: skip
LIST_TASKS = Method(
    METHOD_PREFIX + "tasks/list", e.ListTasksParams, e.ListTasksResult,
    Scope.TASKS_READ, "List the tasks of a split, page by page.",
)  # fmt: skip
GET_TASK = Method(
    METHOD_PREFIX + "tasks/get", e.GetTaskParams, e.GetTaskResult,
    Scope.TASKS_READ, "Get one task by id or index.",
)  # fmt: skip
SAMPLE_TASKS = Method(
    METHOD_PREFIX + "tasks/sample", e.SampleTasksParams, e.SampleTasksResult,
    Scope.TASKS_READ, "Draw tasks from a split, uniformly or by reported outcomes.",
)  # fmt: skip
START = Method(
    METHOD_PREFIX + "episodes/start", e.StartParams, e.StartResult,
    Scope.EPISODES_RUN, "Start one episode, or a whole group of one task.",
)  # fmt: skip
STEP = Method(
    METHOD_PREFIX + "episodes/step", e.StepParams, e.StepResult,
    Scope.EPISODES_RUN, "Call one tool of an episode.",
)  # fmt: skip
GRADE = Method(
    METHOD_PREFIX + "episodes/grade", e.GradeParams, e.GradeResult,
    Scope.EPISODES_RUN, "Submit the final message and end the episode.",
)  # fmt: skip
REWARDS = Method(
    METHOD_PREFIX + "episodes/rewards", e.RewardsParams, e.RewardsResult,
    Scope.REWARDS_READ, "Read an episode's reward log.",
)  # fmt: skip
GET_EPISODE = Method(
    METHOD_PREFIX + "episodes/get", e.GetEpisodeParams, e.GetEpisodeResult,
    Scope.EPISODES_RUN, "Get the state of an episode, and keep it alive.",
)  # fmt: skip
FORK = Method(
    METHOD_PREFIX + "episodes/fork", e.ForkParams, e.ForkResult,
    Scope.EPISODES_RUN, "Branch a new episode off another.",
)  # fmt: skip
CLOSE = Method(
    METHOD_PREFIX + "episodes/close", e.CloseParams, e.CloseResult,
    Scope.EPISODES_RUN, "End an episode and free what it holds.",
)  # fmt: skip
SCORE_GROUP = Method(
    METHOD_PREFIX + "groups/score", e.ScoreGroupParams, e.ScoreGroupResult,
    Scope.REWARDS_READ, "Score the episodes of a group against each other.",
)  # fmt: skip
REPORT_OUTCOMES = Method(
    METHOD_PREFIX + "outcomes/report", e.ReportOutcomesParams, e.ReportOutcomesResult,
    Scope.EPISODES_RUN, "Report task outcomes to the server, for its curriculum.",
)  # fmt: skip
LIST_WORLDS = Method(
    METHOD_PREFIX + "worlds/list", w.ListWorldsParams, w.ListWorldsResult,
    Scope.EPISODES_RUN, "List the principal's worlds, page by page.",
)  # fmt: skip
GET_WORLD = Method(
    METHOD_PREFIX + "worlds/get", w.GetWorldParams, w.GetWorldResult,
    Scope.EPISODES_RUN, "Get one world with its versions.",
)  # fmt: skip
BRANCH_WORLD = Method(
    METHOD_PREFIX + "worlds/branch", w.BranchWorldParams, w.BranchWorldResult,
    Scope.EPISODES_RUN, "Make new worlds that begin as a version of another one.",
)  # fmt: skip
RESET_WORLD = Method(
    METHOD_PREFIX + "worlds/reset", w.ResetWorldParams, w.ResetWorldResult,
    Scope.EPISODES_RUN, "Bring a world back to the state of an earlier version.",
)  # fmt: skip
DELETE_WORLD = Method(
    METHOD_PREFIX + "worlds/delete", w.DeleteWorldParams, w.DeleteWorldResult,
    Scope.EPISODES_RUN, "Delete a world with all its versions.",
)  # fmt: skip

METHODS: Final[Mapping[str, Method[Any, Any]]] = MappingProxyType(
    {
        method.name: method
        for method in (
            LIST_ENVIRONMENTS, LIST_SPLITS, LIST_TASKS, GET_TASK, SAMPLE_TASKS, START, STEP, GRADE,
            REWARDS, GET_EPISODE, FORK, CLOSE, SCORE_GROUP, REPORT_OUTCOMES,
            LIST_WORLDS, GET_WORLD, BRANCH_WORLD, RESET_WORLD, DELETE_WORLD,
        )
    }
)  # fmt: skip
"""Every method by its full name."""
