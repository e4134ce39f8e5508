"""The types of a hub's results: reported and played runs, their episodes, and boards.

A result belongs to one published version (package, version, SHA-256 of the wheel), one environment and one split. Its
level says who vouches for it, and results of different levels are never ranked together:

* `reported`: uploaded by the one who evaluated. Nothing about it is proved.
* `played`: the hub drew the tasks, started the episodes and read the rewards itself. This proves the score, and not
  who or what chose the actions.

On every board, an episode that has no reward of its own counts with the lowest reward, so that leaving episodes out
never helps: see `counted_value`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from ludus.protocol.evaluation import Estimate, Interval, TaskFigures
from ludus.protocol.integers import LARGEST_INTEGER, Ordinal, Whole
from ludus.protocol.lifecycle import EndReason
from ludus.protocol.model import WireModel
from ludus.protocol.text import plain_label
from ludus.registry.types.packages import Digest, PackageId, VersionText

Level = Literal["reported", "played"]
"""Who vouches for a result."""

LEVELS: Final[tuple[Level, ...]] = ("played", "reported")
"""The levels, the one that proves more first."""

USUAL_LEVEL: Final[Level] = "played"
"""The level that is meant where none is named."""

SUBMISSION_EPISODES: Final = 5_000
"""The most episodes of one upload."""

RUN_TASKS: Final = 1_000
"""The most tasks of a played run."""

RUN_SAMPLES: Final = 64
"""The most episodes of a task in a played run."""

EARNED: Final = frozenset({
    EndReason.COMPLETED, EndReason.SUBMITTED, EndReason.STEP_LIMIT, EndReason.TIME_LIMIT, EndReason.OBSERVATION_LIMIT,
    EndReason.TRUNCATED,
})  # fmt: skip
"""The end reasons with which an episode counts what it has earned. With all others it counts with the lowest reward."""

NOT_BEGUN: Final = "not_begun"
"""The end of an episode that was never begun before its run ended."""

Label = Annotated[
    str, StringConstraints(min_length=1, max_length=200, strip_whitespace=True, pattern=r"^[^\x00-\x1f\x7f]+$")
]
"""A short text on one line."""

Name = Annotated[str, StringConstraints(min_length=1, max_length=300)]
Price = Annotated[float, Field(ge=0, le=1e9)]
RunKey = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{22}$")]
"""The name of a run in addresses."""


class Declared(WireModel):
    """What the one who ran it says about the policy. A hub cannot check any of it, and shows it as declared."""

    model: Label
    """The model's name."""
    harness: Label = "unknown"
    """The program around the model, with its version."""
    options: dict[str, Any] = {}
    """Options of the model, such as its temperature."""
    price_in: Price | None = None
    """The price of a million input tokens; null if it is not known."""
    price_out: Price | None = None
    """The price of a million output tokens."""


def _identified(declared: Declared) -> Declared:
    """Return what was declared with the names of a board's line as `plain_label` writes them."""
    changes: dict[str, str] = {}
    for name in ("model", "harness"):
        try:
            changes[name] = plain_label(getattr(declared, name))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return declared.model_copy(update=changes)


NewDeclared = Annotated[Declared, AfterValidator(_identified)]
"""What is declared of a new run. Its model and harness make a line of a board, so they are plain labels."""


class RunParams(WireModel):
    """The request to register a played run. What it says is fixed before the first episode starts."""

    environment: Name
    """The name of the environment in the package."""
    split: Name
    tasks: Annotated[int, Field(ge=1, le=RUN_TASKS)]
    """How many tasks the hub draws."""
    samples: Annotated[int, Field(ge=1, le=RUN_SAMPLES)] = 1
    """The number of episodes of each task."""
    declared: NewDeclared


class EpisodeTicket(WireModel):
    """An episode of a played run that waits for its agent."""

    run: RunKey
    place: Whole
    """The number of the episode in its run."""
    play_url: str = Field(repr=False)
    """The address of the agent endpoint, for any MCP client. It is a credential."""
    seconds_left: Annotated[float, Field(ge=0)]
    """Seconds until the hub closes the episode, which then counts with the lowest reward."""


class NextEpisode(WireModel):
    """The answer to a request for the next episode."""

    ticket: EpisodeTicket | None
    """Null if all episodes have been given out."""
    waiting: Whole
    """The number of episodes that no player has begun."""
    open: Whole
    """The number of episodes that are being played. One that breaks may come back as a waiting one."""


class OpenTickets(WireModel):
    """The open episodes of a run, for a player who comes back."""

    tickets: tuple[EpisodeTicket, ...]


class EndEpisodeParams(WireModel):
    """The message that an agent is done with an episode, with the tokens it used, as declared."""

    input_tokens: Whole | None = None
    output_tokens: Whole | None = None


class EpisodeEnd(WireModel):
    """How an episode of a run has ended. Its reward is shown when the whole run has ended."""

    place: Whole
    end: str | None
    """The end reason; null if the hub plays the episode again, because its infrastructure broke."""


class RunEpisode(WireModel):
    """One row of a run: an episode and what it counts."""

    place: Whole
    task: str
    """The task's id."""
    index: Whole
    """The task's index in its split."""
    sample: Whole
    """The number of the episode among those of its task."""
    seed: Whole | None
    """Null if the environment takes no seeds."""
    reward: float | None
    """The environment's reward; null if there is none."""
    value: float
    """What counts in the mean."""
    end: str
    """The end reason; `not_begun` if it never started."""
    steps: Whole | None
    attempts: Whole
    """How often the hub started it: more than once if the infrastructure broke."""
    input_tokens: Whole | None = None
    """As declared."""
    output_tokens: Whole | None = None
    """As declared."""


class RunFigures(WireModel):
    """The figures of an ended run, which the hub computes from the rows."""

    mean: Estimate
    """The mean of the counted values, with an interval over tasks."""
    success: Estimate
    """The share of episodes whose reward reached `success_at`."""
    pass_at: dict[int, Estimate] = {}
    """pass@k by k (Chen et al. 2021, unbiased)."""
    ends: dict[str, Whole]
    """The number of episodes by end reason."""
    episodes: Whole
    unscored: Whole
    """The number of episodes that counted with the lowest reward, because they have none of their own."""
    input_tokens: Whole | None = None
    """All tokens, as declared; null if an episode does not report them."""
    output_tokens: Whole | None = None
    cost: Annotated[float, Field(ge=0)] | None = None
    """The price of all tokens, as declared."""


class Removal(WireModel):
    """Who took a run off its board, when, and why."""

    at: datetime
    by: str
    reason: str


class RunInfo(WireModel):
    """A run, as all may see it."""

    key: RunKey
    level: Level
    package: PackageId
    version: VersionText
    sha256: Digest
    """The digest of the version's wheel."""
    environment: str
    split: str
    by: str
    """The account."""
    by_publisher: bool
    """Whether that account may publish versions of the package."""
    number: Ordinal
    """Which of the account's runs on this board it is, in order of registration."""
    of: Ordinal
    """The number of the account's runs on this board, removed and unfinished ones included."""
    declared: Declared
    tasks: Whole
    samples: Whole
    success_at: float
    """The lowest reward that counts as a success."""
    reward_range: Interval | None
    state: Literal["open", "ended"]
    created_at: datetime
    deadline: datetime | None
    """When a played run ends at the latest."""
    ended_at: datetime | None
    commitment: Digest | None
    """The digest of the tasks and seeds of a played run, published before its first episode; see `Opening`."""
    reruns: Whole = 0
    """How many episodes the hub started again because the infrastructure broke."""
    figures: RunFigures | None = None
    """Null until the run has ended, and if it was removed."""
    removal: Removal | None = None
    rollouts: bool = False
    """Whether its trajectories were uploaded."""


class DrawnTask(WireModel):
    """A task of a played run."""

    index: Whole
    task: str
    seeds: tuple[Whole | None, ...]
    """The seed of each of its episodes."""


class Opening(WireModel):
    """What a played run's commitment is the digest of, as canonical JSON (RFC 8785). It is published when the run ends.

    The tasks and seeds follow from the secret: see `ludus.registry.types.drawing`.
    """

    secret: Digest
    """32 random bytes, drawn by the hub before the run."""
    environment: str
    split: str
    count: Whole | None
    """The number of tasks in the split; null if it is endless."""
    tasks: tuple[DrawnTask, ...]


class RunEpisodes(WireModel):
    """One page of the rows of an ended run."""

    run: RunKey
    episodes: tuple[RunEpisode, ...]
    total: Whole
    page: Ordinal
    opening: Opening | None = None
    """The opened commitment of a played run; on the first page."""


class Submission(WireModel):
    """The results of an evaluation, as they are uploaded. They hold no conversations."""

    sha256: Digest
    """The digest of the wheel that was evaluated."""
    environment: Name
    environment_version: Annotated[str, StringConstraints(max_length=100)] = ""
    """The version that the environment's class has declared to the evaluation; empty if it declares none."""
    split: Name
    samples: Annotated[int, Field(ge=1, le=SUBMISSION_EPISODES)]
    """The number of episodes of each task."""
    success_at: Annotated[float, Field(ge=-1e12, le=1e12)]
    declared: NewDeclared
    mean: Annotated[float, Field(ge=-1e12, le=1e12)] | None
    """The mean over tasks as `ludus eval` has shown it, without episodes that have no reward; the hub checks it."""
    scored: Whole
    """The number of episodes with a reward."""
    tasks: Annotated[tuple[TaskFigures, ...], Field(min_length=1, max_length=SUBMISSION_EPISODES)]

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        ids, indices = {one.task for one in self.tasks}, {one.index for one in self.tasks}
        if len(ids) != len(self.tasks) or len(indices) != len(self.tasks):
            raise ValueError("a task occurs twice")
        if len(self.tasks) * self.samples > SUBMISSION_EPISODES:
            raise ValueError(f"an upload holds at most {SUBMISSION_EPISODES} episodes")
        for task in self.tasks:
            numbers = [episode.sample for episode in task.episodes]
            if sorted(numbers) != list(range(self.samples)):
                raise ValueError(f"the task {task.task[:80]!r} does not have each of its {self.samples} episodes once")
        rewards = [episode.reward for task in self.tasks for episode in task.episodes if episode.reward is not None]
        if len(rewards) != self.scored:
            raise ValueError(f"scored is {self.scored}, and {len(rewards)} episodes have a reward")
        for task in self.tasks:
            for one in task.episodes:
                numbers = [task.index, one.input_tokens or 0, one.output_tokens or 0, one.seed or 0]
                if not all(0 <= number <= LARGEST_INTEGER for number in numbers):
                    raise ValueError(f"the task {task.task[:80]!r} has a number beyond what JSON holds exactly")
        return self


class RemoveParams(WireModel):
    """Why a run is taken off its board, or scored again."""

    reason: Annotated[
        str, StringConstraints(min_length=1, max_length=500, strip_whitespace=True, pattern=r"^[^\x00-\x1f\x7f]+$")
    ]


class BoardKey(WireModel):
    """The name of a board."""

    package: PackageId
    version: VersionText
    environment: str
    split: str
    level: Level


class BoardRow(WireModel):
    """One line of a board: all ended runs of one account with one model and one harness, counted together."""

    by: str
    by_publisher: bool
    model: str
    harness: str
    runs: tuple[RunKey, ...]
    """The runs that count here, the first one first. All of them count."""
    account_runs: Ordinal
    """The number of the account's runs on this board, with any model."""
    tasks: Whole
    """The number of different tasks."""
    episodes: Whole
    unscored: Whole
    mean: Estimate
    """Over the episodes of all runs."""
    median: float | None = None
    """The median over tasks of each task's mean; null in rows that a hub before wrote."""
    success: Estimate
    pass_at: dict[int, Estimate] = {}
    input_tokens: Whole | None = None
    output_tokens: Whole | None = None
    cost: float | None = None
    """As declared; null if a run has none."""
    at: datetime
    """When the last of the runs ended."""


class Board(BoardKey):
    """One page of a board: rows by mean, the highest first."""

    sha256: Digest
    rows: tuple[BoardRow, ...] = ()
    lines: Whole = 0
    """The number of rows on all pages."""
    page: Ordinal = 1
    open_runs: Whole = 0
    """The number of registered runs that have not ended."""
    removed_runs: Whole = 0
    reward_range: Interval | None = None
    difficulty: tuple[Whole, ...] = ()
    """The number of tasks by pass rate over all runs, in ten bins from 0 to 1.

    Only episodes with a reward of their own count here, and only tasks that have such episodes.
    """


class BoardList(WireModel):
    """The boards of a version."""

    id: PackageId
    version: VersionText
    boards: tuple[BoardKey, ...]


class LogEntry(WireModel):
    """One line of the public log."""

    at: datetime
    kind: Literal["removed", "rescored"]
    run: RunKey
    package: PackageId
    version: VersionText
    environment: str
    split: str
    level: Level
    by: str
    """Who did it."""
    reason: str
    before: float | None = None
    """The mean before a rescoring."""
    after: float | None = None


class ResultsLog(WireModel):
    """One page of the log, the newest line first."""

    entries: tuple[LogEntry, ...]
    total: Whole
    page: Ordinal


def lowest_value(reward_range: Interval | None, reward: float | None = None) -> float:
    """Return what an episode counts that has no reward of its own: 0, or the lowest possible reward if that is less.

    Without a declared range, what the episode had earned so far counts if it is below 0. Otherwise, closing an episode
    would be a way out of a negative reward.
    """
    return min(0.0, reward_range[0] if reward_range is not None else 0.0, reward if reward is not None else 0.0)


def counted_value(reward: float | None, end: str, reward_range: Interval | None) -> float:
    """Return what an episode counts on a board: its reward if it ended by itself or at a limit, else the lowest one."""
    if reward is None or end not in EARNED:
        return lowest_value(reward_range, reward)
    return reward
