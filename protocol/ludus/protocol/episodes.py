"""Params and results of the extension's methods: what every wire says about environments, tasks and episodes."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from ludus.protocol._model import WireModel
from ludus.protocol.content import Content, Message
from ludus.protocol.lifecycle import EndReason, EpisodeStatus, is_terminated, is_truncated
from ludus.protocol.rewards import Reward, RewardEntry

Name = Annotated[str, Field(min_length=1, max_length=200)]
"""A name or an id."""

Key = Annotated[str, Field(min_length=1, max_length=128)]
"""An idempotency key: unique for what it asks, chosen by the client."""

Seed = Annotated[int, Field(ge=0, lt=2**63)]
"""A seed for an episode's randomness."""


# ── environments, splits, tasks ────────────────────────────────────────────────────────────────────────────────────


class ToolSpec(WireModel):
    """A tool as an agent sees it."""

    name: str
    description: str
    input_schema: dict[str, Any]
    """A JSON Schema (2020-12) of type `object`."""


SplitType = Literal["train", "validation", "test"]


class SplitInfo(WireModel):
    """A named set of tasks."""

    name: str
    type: SplitType
    count: int | None
    """How many tasks; null for a generator without end."""


class EnvironmentInfo(WireModel):
    """An environment as it is published."""

    name: str
    description: str
    version: str
    splits: tuple[SplitInfo, ...]
    tools: tuple[ToolSpec, ...]
    """The tools every task has; a task may add its own."""
    seedable: bool
    """Whether `episodes/start` accepts a seed; where false, naming one is an error."""
    gradable: bool
    """Whether a final answer can be graded."""
    forkable: bool
    group_scoring: bool
    reward_range: tuple[float, float] | None
    """The least and the greatest total reward, where the author declared them."""


class TaskRow(WireModel):
    """A task as a trainer may see it. Rows of test splits hold no fields."""

    id: str
    split: str
    index: int
    fields: dict[str, Any]
    """The task's public fields."""


class ListEnvironmentsParams(WireModel):
    """`environments/list` takes nothing."""


class ListEnvironmentsResult(WireModel):
    """All environments of a server, by name."""

    environments: tuple[EnvironmentInfo, ...]


class ListSplitsParams(WireModel):
    """Which environment's splits."""

    environment: Name


class ListSplitsResult(WireModel):
    """The splits in the author's order."""

    splits: tuple[SplitInfo, ...]


class ListTasksParams(WireModel):
    """One page of a split."""

    environment: Name
    split: Name
    cursor: str | None = None
    """`next_cursor` of the page before; null for the first."""
    limit: int = Field(default=100, ge=1, le=1000)


class ListTasksResult(WireModel):
    """Tasks in order of index."""

    tasks: tuple[TaskRow, ...]
    next_cursor: str | None
    """Null after the last page."""


class GetTaskParams(WireModel):
    """One task, by id or by index: exactly one of the two."""

    environment: Name
    split: Name
    task: Name | None = None
    index: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.task is None) == (self.index is None):
            raise ValueError("name the task by `task` (its id) or by `index`, and not by both")
        return self


class GetTaskResult(WireModel):
    """The task asked for."""

    task: TaskRow


class SampleTasksParams(WireModel):
    """Draw tasks from a split, uniformly or by what has been reported of them."""

    environment: Name
    split: Name
    count: int = Field(default=1, ge=1, le=1000)
    seed: Seed | None = None
    """The same seed draws the same tasks (as long as the same outcomes have been reported)."""
    strategy: Literal["uniform", "band"] = "uniform"
    """`band` prefers tasks whose reported pass rate lies in `band`, then unreported ones, then the rest."""
    band: tuple[float, float] = (0.2, 0.5)


class SampleTasksResult(WireModel):
    """The tasks drawn, possibly with repetitions."""

    tasks: tuple[TaskRow, ...]


class Outcome(WireModel):
    """The outcome of one task."""

    task: Name
    reward: float
    passed: bool


class ReportOutcomesParams(WireModel):
    """Report task outcomes to the server, for its curriculum."""

    environment: Name
    split: Name
    outcomes: tuple[Outcome, ...] = Field(max_length=1000)
    key: Key


class ReportOutcomesResult(WireModel):
    """How many outcomes the split has now."""

    recorded: int


# ── episodes ───────────────────────────────────────────────────────────────────────────────────────────────────────


class EpisodeLimits(WireModel):
    """What one episode may use. Null is no limit of its own; a server's own limits hold in any case."""

    max_steps: int | None = Field(default=None, ge=1)
    """Tool calls."""
    seconds: float | None = Field(default=None, gt=0)
    """Wall clock from the end of setup."""
    tool_seconds: float | None = Field(default=None, gt=0)
    """One tool call."""
    observation_chars: int | None = Field(default=None, ge=100)
    """One observation; more is cut off with a visible marker."""
    total_observation_chars: int | None = Field(default=None, ge=100)
    """All observations together."""
    idle_seconds: float | None = Field(default=None, gt=0)
    """Since the last call."""


class StartParams(WireModel):
    """Start one episode, or a group of `count` episodes of one task.

    The task is named by `task` or `index`; with neither, one is drawn from the split by the seed.
    """

    environment: Name
    split: Name
    task: Name | None = None
    index: int | None = Field(default=None, ge=0)
    seed: Seed | None = None
    """Drawn by the server when null. The result contains it in both cases."""
    count: int = Field(default=1, ge=1, le=1024)
    limits: EpisodeLimits | None = None
    """Only ever tightens what the environment and the server allow."""
    tools: tuple[Name, ...] | None = None
    """Allow only these tools."""
    secrets: dict[str, str] = Field(default_factory=dict, repr=False)
    """Given to the environment, never stored in a journal, logged or shown."""
    key: Key

    @model_validator(mode="after")
    def _at_most_one(self) -> Self:
        if self.task is not None and self.index is not None:
            raise ValueError("name the task by `task` (its id) or by `index`, and not by both")
        return self


class PlayAccess(WireModel):
    """Where a stock MCP client plays this one episode."""

    path: str = Field(repr=False)
    """The play plane's path, relative to the server's address; it holds the capability, so treat it as a secret."""
    expires_at: float
    """Unix time, seconds."""
    url: str | None = Field(default=None, repr=False)
    """The full URL of the same, where the server knows by which address its callers reach it; as secret as `path`."""


class StartedEpisode(WireModel):
    """An episode that runs, with all that a policy needs to begin."""

    episode: str
    task: TaskRow
    seed: int
    prompt: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    limits: EpisodeLimits
    play: PlayAccess | None
    """Null on servers without a play plane."""
    turns: bool = False
    """Whether turns are judged, so that calls should carry their `turn`."""


class StartResult(WireModel):
    """The episodes of the group, all started."""

    group: str
    episodes: tuple[StartedEpisode, ...]


StepErrorCode = Literal["unknown_tool", "invalid_arguments", "refused", "unavailable"]


class StepError(WireModel):
    """Why the tool did not do, or does not tell, what the policy asked. The episode goes on.

    `unavailable` is noise; the others are the policy's mistakes.
    """

    code: StepErrorCode
    message: str


NoiseKind = Literal["tool_error", "lost_answer", "delay", "truncation", "flaky_output"]
"""How a step was disturbed on purpose: the tool did not run; it ran and its answer was lost; it ran later; its answer
was cut; its answer was garbled."""

TURN_TEXT_CHARS: Final = 65_536
"""The longest text of a turn that travels with its calls; clients cut off the rest."""


class TurnMark(WireModel):
    """Which turn of the policy a call belongs to."""

    number: int = Field(ge=1)
    """The turn's number, which is greater than that of every turn before; turns without calls may be left out."""
    last: bool = True
    """Whether it is the turn's last call."""
    text: str = Field(default="", max_length=TURN_TEXT_CHARS)
    """The text that the policy wrote next to its calls; the turn's first call carries it."""


class StepParams(WireModel):
    """Call one tool."""

    episode: str
    step: int = Field(ge=1)
    """The number of this step: one more than the last one asked for."""
    tool: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    turn: TurnMark | None = None
    """Null from clients that know no turns: each call is then a turn of its own."""
    key: Key


class StepResult(WireModel):
    """One step's outcome."""

    step: int
    content: tuple[Content, ...]
    """The observation."""
    error: StepError | None = None
    reward: Reward | None = None
    """Null when the step gave none, or the credential may not read rewards."""
    metadata: dict[str, Any] = Field(default_factory=dict)
    """The author's remarks for the trainer; empty when the credential may not read rewards."""
    noise: NoiseKind | None = None
    """How the step was disturbed on purpose. Null when it was not, or the credential may not read rewards."""
    status: EpisodeStatus = EpisodeStatus.RUNNING
    end_reason: EndReason | None = None

    @property
    def terminated(self) -> bool:
        """Whether the task itself ended with this step."""
        return is_terminated(self.end_reason)

    @property
    def truncated(self) -> bool:
        """Whether the episode was cut short with this step."""
        return is_truncated(self.end_reason)

    @property
    def ended(self) -> bool:
        """Whether the episode has ended."""
        return self.end_reason is not None


class GradeParams(WireModel):
    """Hand in the policy's final message and end the episode."""

    episode: str
    answer: str
    key: Key


class EpisodeInfo(WireModel):
    """Where an episode stands."""

    episode: str
    group: str
    environment: str
    task: TaskRow
    seed: int
    status: EpisodeStatus
    end_reason: EndReason | None
    steps: int
    """Steps asked for so far."""
    reward: Reward | None
    """The total so far; null when the credential may not read rewards. Unscored for episodes that failed, expired
    or lost their server."""
    incident: str | None = None
    """The id under which the server logged why it failed."""

    @property
    def terminated(self) -> bool:
        """Whether the task itself ended."""
        return is_terminated(self.end_reason)

    @property
    def truncated(self) -> bool:
        """Whether the episode was cut short: by a limit, by its environment or by a close."""
        return is_truncated(self.end_reason)


class GradeResult(WireModel):
    """What the final answer earned."""

    reward: Reward | None
    """The grade, and the turns that were over with it; null when there is neither, or the credential may not read
    rewards."""
    info: EpisodeInfo
    """The episode after it; its `reward` is the total."""


class RewardsParams(WireModel):
    """Read an episode's reward log."""

    episode: str
    after: int = Field(default=0, ge=0)
    """Leave out this many entries from the beginning."""


class RewardsResult(WireModel):
    """The reward log from `after` on, and the total of all of it."""

    entries: tuple[RewardEntry, ...]
    total: Reward
    status: EpisodeStatus
    end_reason: EndReason | None


class GetEpisodeParams(WireModel):
    """Ask where an episode stands. Counts as use: it puts off idle expiry."""

    episode: str


class GetEpisodeResult(WireModel):
    """Where it stands."""

    info: EpisodeInfo


class ForkParams(WireModel):
    """A new episode that stands where another stood after a step."""

    episode: str
    step: int | None = Field(default=None, ge=0)
    """After which step; null for the last one."""
    key: Key


class ForkResult(WireModel):
    """The new episode."""

    group: str
    episode: StartedEpisode


class CloseParams(WireModel):
    """End an episode and free its resources. Closing an episode that has ended is not an error."""

    episode: str


class CloseResult(WireModel):
    """Where it stood at the end."""

    info: EpisodeInfo


class Candidate(WireModel):
    """One answer among several to the same task."""

    messages: tuple[Message, ...]
    metadata: dict[str, Any] = Field(default_factory=dict)


class ScoreGroupParams(WireModel):
    """Score the episodes of a group against each other."""

    group: str
    candidates: dict[str, Candidate]
    """By episode id: what the policy said in that episode."""
    key: Key


class ScoreGroupResult(WireModel):
    """A reward for each candidate."""

    rewards: dict[str, Reward]
