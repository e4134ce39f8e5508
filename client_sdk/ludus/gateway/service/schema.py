"""The request for rollouts and the lines of its stream, as types and as a JSON Schema."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, StringConstraints, TypeAdapter, model_validator
from pydantic.json_schema import models_json_schema

from ludus.protocol.lifecycle import EndReason
from ludus.protocol.tool_calls import TextFormatName
from ludus.protocol.trajectory import Stop, Trajectory
from ludus.rendering.bounded import SOURCE_CHARACTERS

MOST_EPISODES: Final = 100_000
"""The most episodes of one job."""
MOST_SEED: Final = 2**48 - 1

Name = Annotated[str, StringConstraints(min_length=1, max_length=500)]
Url = Annotated[str, StringConstraints(pattern=r"^https?://[^\s/]+\S*$", max_length=2000)]
Seed = Annotated[int, Field(ge=0, le=MOST_SEED)]
Ids = list[int]


class _Record(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


# ── the request ──────────────────────────────────────────────────────────────────────────────────────────────────────


class EnvironmentAddress(_Record):
    """The environment whose episodes are played."""

    url: Url
    """The address of the Ludus server, such as `http://127.0.0.1:8000`."""
    name: Name
    """The name of the environment on that server."""
    wire: Literal["auto", "channel", "mcp"] = "auto"
    """How the service talks to the server."""
    token: SecretStr | None = Field(default=None, strict=False)
    """The trainer token for that server; none for a server on loopback without tokens."""


class ModelAddress(_Record):
    """The endpoint that samples from the policy."""

    url: Url
    """The address up to and including `/v1`."""
    name: Name
    """The model's name at the endpoint."""
    api_key: SecretStr | None = Field(default=None, strict=False)
    """Sent to the endpoint as a bearer token."""
    tokenizer: Name | None = None
    """The folder or the name of the tokenizer, for the service's machine; that of `--tokenizer` if null."""
    chat_template: str | None = Field(default=None, max_length=SOURCE_CHARACTERS)
    """Jinja text to use instead of the tokenizer's own chat template."""
    tool_calls: Literal["auto"] | TextFormatName = "auto"
    """The form in which the model writes tool calls; `auto` detects it from the chat template."""
    context: int | None = Field(default=None, ge=2)
    """The most tokens of prompt and turn together; what the endpoint says if null."""
    version: int = Field(default=-1, ge=-1)
    """The version of the weights, for endpoints that do not report it."""
    seconds: float = Field(default=300.0, gt=0, le=3600)
    """The most seconds of one request to the endpoint."""


class SamplingOptions(_Record):
    """How the policy is sampled. The defaults sample from its whole distribution, as training needs."""

    temperature: float = Field(default=1.0, ge=0)
    """The temperature; 0 takes the most probable token."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """The share of the distribution to sample from."""
    top_k: int = Field(default=0, ge=0)
    """The number of most probable tokens to sample from; 0 for all."""
    min_p: float = Field(default=0.0, ge=0, le=1)
    """The least probability, relative to the most probable token."""
    max_tokens: int = Field(default=512, ge=1)
    """The most tokens of one turn."""


class EpisodeBounds(_Record):
    """The bounds of each episode. An episode that reaches one is truncated and keeps what it has earned."""

    max_turns: int = Field(default=200, ge=1)
    """The most turns of the policy; with a harness, the most model calls."""
    turn_seconds: float = Field(default=300.0, gt=0, le=86_400)
    """The most seconds of one turn."""
    episode_seconds: float = Field(default=3600.0, gt=0, le=86_400)
    """The most seconds of one episode."""
    idle_seconds: float = Field(default=300.0, gt=0, le=86_400)
    """The most seconds that a harness may go on without a model call; after them it counts as broken."""


class TaskChoice(_Record):
    """One task to play."""

    task: Name | None = None
    """The id of the task; give this or `index`."""
    index: int | None = Field(default=None, ge=0)
    """The index of the task in its split."""
    split: Name | None = None
    """The split of the task; that of the request if null."""
    seed: Seed | None = None
    """The seed of the task's episodes; derived from the request's seed if null."""

    @model_validator(mode="after")
    def _one_name(self) -> Self:
        if (self.task is None) == (self.index is None):
            raise ValueError("give either task (its id) or index")
        return self


class RolloutRequest(_Record):
    """A request for rollouts: which episodes to play, with which model and how."""

    environment: EnvironmentAddress
    model: ModelAddress
    sampling: SamplingOptions = SamplingOptions()
    limits: EpisodeBounds = EpisodeBounds()
    split: Name = "train"
    """The split that the tasks come from."""
    tasks: list[TaskChoice] | None = Field(default=None, min_length=1, max_length=MOST_EPISODES)
    """The tasks to play; the first `n` tasks of the split, beginning with `first`, if null."""
    n: int | None = Field(default=None, ge=1, le=MOST_EPISODES)
    """How many tasks of the split to play; needed without `tasks`."""
    first: int = Field(default=0, ge=0)
    """The index of the first task of the split."""
    samples: int = Field(default=1, ge=1, le=1024)
    """Episodes per task. They are a group: they have one seed, so that they can be compared."""
    seed: Seed | None = None
    """The seed from which those of the groups and of the sampling are derived; drawn by the service if null."""
    harness: Name | None = None
    """The program that plays: the name of one that the service was started with, or `command …` or `worker …` if the
    service allows it; the service's own loop if null."""
    tokens: bool = True
    """Whether trajectories have tokens. If false, the endpoint needs chat completions only, and lines have no
    samples."""
    trajectory: bool = False
    """Whether each line has the conversation and the steps, too."""
    concurrency: int = Field(default=32, ge=1, le=10_000)
    """The most episodes of this job that run at the same time; the service's own limit holds as well."""
    ahead: int = Field(default=64, ge=1, le=10_000)
    """How many lines may wait for a reader. Episodes that run count as well; when so many wait, none is started."""
    retries: int = Field(default=2, ge=0, le=5)
    """How many times an episode is played again after the infrastructure or the harness broke."""
    stream: bool = True
    """Whether the answer is the stream; if false, it is the state of the job, and the stream is read later."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.tasks is None) == (self.n is None):
            raise ValueError("give either tasks, or n for the first n tasks of the split")
        if self.tasks is not None and self.first:
            raise ValueError("first works only with n, not with tasks")
        if self.episodes > MOST_EPISODES:
            raise ValueError(f"this asks for {self.episodes} episodes; one job may have {MOST_EPISODES}")
        if self.harness is not None and not self.tokens:
            raise ValueError("a harness calls the model through the gateway, which needs tokens: leave tokens out")
        return self

    @property
    def groups(self) -> int:
        """The number of groups, one for each task."""
        return self.n if self.n is not None else len(self.tasks or ())

    @property
    def episodes(self) -> int:
        """The number of episodes."""
        return self.groups * self.samples


# ── the lines ────────────────────────────────────────────────────────────────────────────────────────────────────────


class SampleLine(_Record):
    """Tokens exactly as the endpoint saw and sampled them. All lists have one length.

    An episode has one sample, unless its context was rewritten.
    """

    ids: list[int]
    """Token ids, prompt included."""
    mask: list[Literal[0, 1]]
    """1 for tokens that the policy sampled."""
    logprobs: list[float]
    """Natural logarithms under the policy that sampled; 0.0 where the mask is 0."""
    versions: list[int]
    """The version of the weights that sampled each token; -1 if unknown, and where the mask is 0."""
    turns: list[int]
    """The turn in which each token was sampled, from 0; -1 where the mask is 0."""


class Problem(_Record):
    """Why an attempt at an episode is unscored."""

    kind: Literal["environment", "infrastructure", "policy", "request", "no_verdict"]
    """What broke: the environment's own code; the infrastructure, a worker included; the harness; the request, so that
    no attempt can succeed. `no_verdict`: nothing broke, but the reward has no value."""
    error: str
    """The name of the error."""
    message: str
    attempt: int
    """The number of the attempt, from 1."""


class _EpisodeFields(_Record):
    line: int
    """The number of the line, from 0."""
    index: int
    """The number of the episode in the request, from 0: `group * samples + sample`."""
    group: int
    """The number of the task in the request, from 0."""
    sample: int
    """The number of the episode in its group, from 0."""
    environment: str
    split: str
    task: str
    """The id of the task; empty if the server did not say it before the episode failed."""
    seed: int | None
    """The seed of the episode; null if none was started."""
    episode: str | None
    """The id of the episode on its server; null if none was started."""
    attempt: int
    """The number of attempts, this one included."""
    end_reason: EndReason | None
    """Why the environment ended the episode, or null."""
    stopped: Stop | None
    """The limit or the message with which the harness stopped an episode that the environment had not ended."""
    earlier: list[Problem]
    """Why earlier attempts failed."""
    seconds: float
    """Seconds of the last attempt."""
    trajectory: Trajectory | None = None
    """Conversation and steps, if the request asks for them."""


class EpisodeLine(_EpisodeFields):
    """An episode with a reward."""

    type: Literal["episode"]
    reward: float
    """The total reward."""
    components: dict[str, float]
    """The unweighted values of the reward's components."""
    truncated: bool
    """Whether a limit ended the episode, or the last turn was cut off; the reward is then what it had earned."""
    samples: list[SampleLine]
    """The tokens; empty if the request asks for text only."""
    parse_errors: int
    """The number of turns with a tool call that could not be parsed."""


class UnscoredLine(_EpisodeFields):
    """An episode without a reward, which counts in no mean and in no loss. It has no tokens."""

    type: Literal["unscored"]
    problem: Problem


class Counts(_Record):
    """The episodes of a job by what became of them."""

    episodes: int
    """All episodes of the request."""
    scored: int
    unscored: int
    canceled: int
    """Those without a line, because the job was canceled before they ended."""
    attempts: int
    """The attempts that were made, those whose worker died included."""


State = Literal["running", "completed", "canceled", "expired", "stopped"]
"""`expired`: it was not read for too long. `stopped`: the service ended."""


class JobStatus(_Record):
    """The state of a job."""

    job: str
    """The id of the job."""
    state: State
    counts: Counts
    running: int
    """Episodes that are played now."""
    lines: int
    """Lines written so far."""
    first_line: int
    """The first line that is kept; earlier ones were acknowledged, or dropped after they were sent."""


class JobLine(JobStatus):
    """The first line of each stream, and a sign of life while no episode ends. It has no number."""

    type: Literal["job"]


class EndLine(_Record):
    """The last line of a job."""

    type: Literal["end"]
    line: int
    job: str
    state: State
    counts: Counts


LINES: Final = (JobLine, EpisodeLine, UnscoredLine, EndLine)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the request (`$defs/RolloutRequest`) and of a line of the stream."""
    models: list[tuple[type[BaseModel], Literal["validation", "serialization"]]] = [
        (model, "validation") for model in (RolloutRequest, *LINES)
    ]
    _, schema = models_json_schema(models, ref_template="#/$defs/{model}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Ludus rollout service",
        "description": "A line of a stream of rollouts. The request is $defs/RolloutRequest.",
        "oneOf": [{"$ref": f"#/$defs/{model.__name__}"} for model in LINES],
        **schema,
    }


REQUEST: Final = TypeAdapter(RolloutRequest)
