"""Params and results of the extension's methods: environments, tasks and episodes as all wires describe them."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from ludus.protocol.content import Content, Message
from ludus.protocol.integers import LARGEST_INTEGER, Ordinal, Whole
from ludus.protocol.lifecycle import EndReason, EpisodeStatus, is_terminated, is_truncated
from ludus.protocol.model import WireModel
from ludus.protocol.rewards import Reward, RewardEntry

__all__ = ["EnvironmentInfo", "EpisodeInfo", "SplitInfo", "SplitType", "StepResult", "TaskRow", "ToolSpec"]


Name = Annotated[str, Field(min_length=1, max_length=200)]
"""A name or an id."""

Key = Annotated[str, Field(min_length=1, max_length=128)]
"""An idempotency key, chosen by the client: each request that changes something has its own."""

Seed = Whole
"""A seed for an episode's randomness."""


# ── environments, splits, tasks ────────────────────────────────────────────────────────────────────────────────────


class ToolSpec(WireModel):
    """A tool as an agent sees it."""

    name: str
    description: str
    input_schema: dict[str, Any]
    """A JSON Schema (2020-12) of type `object`."""


def _unset(value: object) -> bool:
    """Return whether a field of the modules `seats` and `worlds` is left out: its environment has none."""
    return value is None or value == ()


class SeatInfo(WireModel):
    """A seat: the place of one agent in a match."""

    name: Name
    tools: tuple[ToolSpec, ...]
    """The tools that the seat has in every match in which all seats are started."""


class WorldsInfo(WireModel):
    """What the worlds of an environment have in common."""

    chain: Ordinal = 1
    """How many tasks form a chain: those with the indices 0 to `chain` - 1 of each split are its first one, the next
    as many the second, and so on. The tasks of a chain are meant for one world, in this order. 1 without chains."""


SplitType = Literal["train", "validation", "test"]


class SplitInfo(WireModel):
    """A named set of tasks."""

    name: str
    type: SplitType
    count: Whole | None
    """The number of tasks; null for an endless split."""


class EnvironmentInfo(WireModel):
    """An environment as it is published."""

    name: str
    description: str
    version: str
    splits: tuple[SplitInfo, ...]
    tools: tuple[ToolSpec, ...]
    """The tools every task has; a task may add its own."""
    seedable: bool
    """Whether `episodes/start` accepts a seed; if false, a seed is refused."""
    gradable: bool
    """Whether a final answer can be graded."""
    forkable: bool = False
    """Whether `episodes/fork` accepts its episodes."""
    group_scoring: bool = False
    """Whether `groups/score` scores its groups."""
    reward_range: tuple[float, float] | None = None
    """The lowest and the highest total reward, if the author declared them."""
    seats: tuple[SeatInfo, ...] = Field(default=(), exclude_if=_unset)
    """The seats of a match, in the author's order; empty if episodes have one agent. Left out if empty."""
    opponents: tuple[Name, ...] = Field(default=(), exclude_if=_unset)
    """The strengths of the scripted opponents that take seats which are not started, the weakest first; empty if all
    seats must be started. Left out if empty."""
    worlds: WorldsInfo | None = Field(default=None, exclude_if=_unset)
    """What its worlds have in common; null, and left out, if its episodes leave nothing to later ones."""


class TaskRow(WireModel):
    """A task as a trainer may see it. Rows of test splits hold no fields."""

    id: str
    split: str
    index: Whole
    fields: dict[str, Any]
    """The task's public fields."""


class ListEnvironmentsParams(WireModel):
    """`environments/list` has no params."""


class ListEnvironmentsResult(WireModel):
    """All environments of a server."""

    environments: tuple[EnvironmentInfo, ...]


class ListSplitsParams(WireModel):
    """List the splits of an environment."""

    environment: Name


class ListSplitsResult(WireModel):
    """The splits, in the author's order."""

    splits: tuple[SplitInfo, ...]


class ListTasksParams(WireModel):
    """List one page of the tasks of a split."""

    environment: Name
    split: Name
    cursor: str | None = None
    """The `nextCursor` of the previous page; null for the first page."""
    limit: int = Field(default=100, ge=1, le=1000)


class ListTasksResult(WireModel):
    """Tasks in order of index."""

    tasks: tuple[TaskRow, ...]
    next_cursor: str | None
    """Null after the last page."""


class GetTaskParams(WireModel):
    """Get one task by exactly one of its id and its index."""

    environment: Name
    split: Name
    task: Name | None = None
    index: Whole | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.task is None) == (self.index is None):
            raise ValueError("name the task by `task` (its id) or by `index`, and not by both")
        return self


class GetTaskResult(WireModel):
    """The task."""

    task: TaskRow


class SampleTasksParams(WireModel):
    """Draw tasks from a split, uniformly or by their reported outcomes."""

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
    """The number of outcomes that the split has now."""

    recorded: Whole
    """How many outcomes of the split the server has now."""


# ── episodes ───────────────────────────────────────────────────────────────────────────────────────────────────────


class EpisodeLimits(WireModel):
    """The limits of one episode. Null sets no limit; the server's own limits hold in any case."""

    max_steps: Ordinal | None = None
    """The most tool calls."""
    seconds: float | None = Field(default=None, gt=0)
    """Seconds of wall-clock time from the end of the setup."""
    tool_seconds: float | None = Field(default=None, gt=0)
    """Seconds of one tool call."""
    observation_chars: int | None = Field(default=None, ge=100, le=LARGEST_INTEGER)
    """Characters of one observation; the rest is cut off with a visible marker."""
    total_observation_chars: int | None = Field(default=None, ge=100, le=LARGEST_INTEGER)
    """Characters of all observations together."""
    idle_seconds: float | None = Field(default=None, gt=0)
    """Seconds since the last call."""


class WorldChoice(WireModel):
    """Which world an episode plays in."""

    id: Name | None = None
    """The world's id; null for a new world for each episode."""
    branch: bool = False
    """Whether each episode plays in a branch of that world: a new one that begins with the state of `version`."""
    version: Whole | None = None
    """The version that the branches begin with; null for the last one, and without `branch`."""

    @model_validator(mode="after")
    def _of_a_world(self) -> Self:
        if self.branch and self.id is None:
            raise ValueError("a branch needs the `id` of the world that it begins with")
        if self.version is not None and not self.branch:
            raise ValueError("an episode goes on with the last version of a world; to begin with another, set `branch`")
        return self


class EpisodeWorld(WireModel):
    """The world of an episode."""

    id: str
    """The world's id."""
    version: Whole
    """The version that the episode began with."""
    committed: Whole | None = None
    """The version that the episode made with its end; null while it runs, and if it made none."""


class StartParams(WireModel):
    """Start one episode, or a group of `count` episodes of one task.

    The task is named by `task` or `index`; with neither, one is drawn from the split by the seed.
    """

    environment: Name
    split: Name
    task: Name | None = None
    index: Whole | None = None
    seed: Seed | None = None
    """The seed; null lets the server draw it. The result contains it in both cases."""
    count: int = Field(default=1, ge=1, le=1024)
    limits: EpisodeLimits | None = None
    """Limits that tighten those of the environment and the server; they never loosen them."""
    tools: tuple[Name, ...] | None = None
    """Allow only these tools."""
    secrets: dict[str, str] = Field(default_factory=dict, repr=False)
    """Values for the environment, which are never stored in a journal, logged or shown."""
    seats: Annotated[tuple[Name, ...], Field(min_length=1, max_length=64)] | Literal["all"] | None = Field(
        default=None, exclude_if=_unset
    )
    """The seats to start in each match: names, or `all`; null for the first seat of environments with seats. Scripted
    opponents take the others. The group then has `count` matches."""
    opponent: Name | None = Field(default=None, exclude_if=_unset)
    """The strength of the scripted opponents; null for the task's own."""
    world: WorldChoice | None = Field(default=None, exclude_if=_unset)
    """The world that the episodes play in; null for worlds that are not kept."""
    key: Key

    @model_validator(mode="after")
    def _at_most_one(self) -> Self:
        if self.task is not None and self.index is not None:
            raise ValueError("name the task by `task` (its id) or by `index`, and not by both")
        return self


class PlayAccess(WireModel):
    """The play endpoint of one episode, for any MCP client."""

    path: str = Field(repr=False)
    """The endpoint's path, relative to the server's address. It contains the capability: treat it as a secret."""
    expires_at: float
    """Unix time, seconds."""
    url: str | None = Field(default=None, repr=False)
    """The endpoint's full URL, if the server knows its own public address; as secret as `path`."""


class StartedEpisode(WireModel):
    """A running episode, with everything that a policy needs to begin."""

    episode: str
    task: TaskRow
    seed: Seed
    prompt: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    gradable: bool
    """Whether a final answer can be graded in this episode."""
    limits: EpisodeLimits = Field(default_factory=EpisodeLimits)
    play: PlayAccess | None = None
    """Null on servers without a play plane."""
    turns: bool = False
    """Whether turns are judged, so that calls should carry their `turn`."""
    seat: Name | None = Field(default=None, exclude_if=_unset)
    """The seat that the episode plays. Left out if its environment has no seats."""
    match: str | None = Field(default=None, exclude_if=_unset)
    """The id of its match, which the episodes of the other seats have, too. Left out likewise."""
    world: EpisodeWorld | None = Field(default=None, exclude_if=_unset)
    """The world that the episode plays in. Left out if it is not kept."""


class StartResult(WireModel):
    """The episodes of the group, all started."""

    group: str
    episodes: tuple[StartedEpisode, ...]


StepErrorCode = Literal["unknown_tool", "invalid_arguments", "refused", "unavailable"]


class StepError(WireModel):
    """Why a call had no effect, or why its result is withheld. The episode continues.

    `unavailable` is noise; the others are the policy's mistakes.
    """

    code: StepErrorCode
    message: str


NoiseKind = Literal["tool_error", "lost_answer", "delay", "truncation", "flaky_output"]
"""The kinds of noise, which disturb a step on purpose: the tool did not run; it ran and its result was lost; it ran
later; its result was cut; its result was corrupted."""

TURN_TEXT_CHARS: Final = 65_536
"""The longest text of a turn that travels with its calls; clients cut off the rest."""


class TurnMark(WireModel):
    """The turn of the policy that a call belongs to."""

    number: Ordinal
    """The turn's number, which is greater than those of all earlier turns; turns without calls may be left out."""
    last: bool = True
    """Whether it is the turn's last call."""
    text: str = Field(default="", max_length=TURN_TEXT_CHARS)
    """The text that the policy wrote next to its calls; the turn's first call carries it."""


class StepParams(WireModel):
    """Call one tool."""

    episode: str
    step: Ordinal
    """The number of this step: one more than that of the last accepted step."""
    tool: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    turn: TurnMark | None = None
    """Null from clients without turns; each call is then a turn."""
    key: Key


class StepResult(WireModel):
    """The result of one step."""

    step: Whole
    content: tuple[Content, ...]
    """The observation."""
    error: StepError | None = None
    reward: Reward | None = None
    """Null if the step earned none, or the principal may not read rewards."""
    metadata: dict[str, Any] = Field(default_factory=dict)
    """The author's remarks for the trainer; empty if the principal may not read rewards."""
    noise: NoiseKind | None = None
    """The kind of noise that disturbed the step; null without noise, or if the principal may not read rewards."""
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
    """Submit the policy's final message and end the episode."""

    episode: str
    answer: str
    key: Key


class EpisodeInfo(WireModel):
    """The state of an episode."""

    episode: str
    group: str
    environment: str
    task: TaskRow
    seed: Seed
    status: EpisodeStatus
    end_reason: EndReason | None
    steps: Whole
    """The number of steps accepted so far."""
    reward: Reward | None
    """The total so far; null if the principal may not read rewards."""
    incident: str | None = None
    """The id under which the server logged why the episode failed."""
    seat: Name | None = Field(default=None, exclude_if=_unset)
    """The seat that the episode plays. Left out if its environment has no seats."""
    match: str | None = Field(default=None, exclude_if=_unset)
    """The id of its match. Left out likewise."""
    on_move: bool | None = Field(default=None, exclude_if=_unset)
    """Whether the seat may move now. Left out likewise, and if its environment has no moves or its match has ended."""
    moves: Whole | None = Field(default=None, exclude_if=_unset)
    """The number of moves that the seat has made. Left out as `on_move` is."""
    world: EpisodeWorld | None = Field(default=None, exclude_if=_unset)
    """The world that the episode plays in. Left out if it is not kept."""

    @property
    def terminated(self) -> bool:
        """Whether the task itself ended."""
        return is_terminated(self.end_reason)

    @property
    def truncated(self) -> bool:
        """Whether the episode was cut short: by a limit, by its environment or by a close."""
        return is_truncated(self.end_reason)


class GradeResult(WireModel):
    """The reward of the final message."""

    reward: Reward | None
    """The grade and the rewards of the turns that ended with it; null if there is neither, or if the principal
    may not read rewards."""
    info: EpisodeInfo
    """The state of the episode afterwards; its `reward` is the total."""


class RewardsParams(WireModel):
    """Read the reward log of an episode."""

    episode: str
    after: Whole = 0
    """The number of entries to skip at the beginning."""


class RewardsResult(WireModel):
    """The reward log from `after` on, and the total of the whole log."""

    entries: tuple[RewardEntry, ...]
    total: Reward
    status: EpisodeStatus
    end_reason: EndReason | None


class GetEpisodeParams(WireModel):
    """Get the state of an episode."""

    episode: str


class GetEpisodeResult(WireModel):
    """The state of the episode."""

    info: EpisodeInfo


class ForkParams(WireModel):
    """Open a new episode in the state that another episode had after a step."""

    episode: str
    step: Whole | None = None
    """The number of that step; null for the last one."""
    key: Key


class ForkResult(WireModel):
    """The new episode."""

    group: str
    episode: StartedEpisode


class CloseParams(WireModel):
    """End an episode and free what it holds."""

    episode: str


class CloseResult(WireModel):
    """The final state of the episode."""

    info: EpisodeInfo


class Candidate(WireModel):
    """The messages of a policy in one episode of a group."""

    messages: tuple[Message, ...]
    metadata: dict[str, Any] = Field(default_factory=dict)


class ScoreGroupParams(WireModel):
    """Score the episodes of a group against each other."""

    group: str
    candidates: dict[str, Candidate]
    """The messages of the policy in each episode, by the episode's id."""
    key: Key


class ScoreGroupResult(WireModel):
    """A reward for each candidate."""

    rewards: dict[str, Reward]
