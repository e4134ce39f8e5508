"""OpenEnv: an environment of a Ludus server behind OpenEnv's own server, and a client for it.

`ludus export --form openenv` writes a folder around this module. Each session of OpenEnv plays one Ludus episode at a
time, over the wire: OpenEnv and a Ludus server cannot be installed next to each other.

* An action calls a tool or gives the final answer. A mistake of the agent is an observation with `error`.
* `reward` is what the step earned, and the rewards of an episode add up to its total. Components, evidence and the
  author's remarks stay on the Ludus server.
* `done` is true at every end; the metadata say the end reason and whether it is a truncation.
* An unscored episode raises, which OpenEnv's client gets as an error of its request and never as a reward.
* The token comes from an environment variable of the process. OpenEnv has no credentials of its own, so any client that
  reaches this server plays and sees rewards: let only the trainer reach it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from ludus.client import ServerAddress
from ludus.client.connecting import TOKEN_VARIABLE
from ludus.integrations.peers import require
from ludus.integrations.stepped import SteppedEnvironment
from ludus.protocol.errors import InvalidParams, NotFound

require("openenv", "0.10.0")

from openenv.core import EnvClient  # noqa: E402  # pyright: ignore[reportMissingImports]
from openenv.core.client_types import StepResult  # noqa: E402  # pyright: ignore[reportMissingImports]
from openenv.core.env_server.http_server import create_app  # noqa: E402  # pyright: ignore[reportMissingImports]
from openenv.core.env_server.interfaces import Environment  # noqa: E402  # pyright: ignore[reportMissingImports]
from openenv.core.env_server.types import (  # noqa: E402  # pyright: ignore[reportMissingImports]
    Action,
    EnvironmentMetadata,
    Observation,
    State,
)
from pydantic import Field  # noqa: E402

ADAPTER: Final = "openenv"
"""The name under which unscored episodes are counted."""

URL_VARIABLE: Final = "LUDUS_URL"
"""The environment variable with the address of the Ludus server, instead of the one in the settings."""

LISTED_TASKS: Final = 1000
"""The most tasks that a list of a split has."""

SESSIONS: Final = 64
"""The most sessions at the same time, by default."""


class LudusAction(Action):  # type: ignore[misc]
    """Call a tool, or give the final answer."""

    tool: str | None = Field(default=None, description="The name of the tool to call.")
    arguments: dict[str, Any] = Field(default_factory=dict, description="The arguments of the tool, by name.")
    answer: str | None = Field(
        default=None, description="The final answer, which ends the episode; give it instead of a tool."
    )


class LudusObservation(Observation):  # type: ignore[misc]
    """The prompt after `reset`, and what the environment answers after `step`."""

    text: str = Field(default="", description="What the environment says.")
    error: str | None = Field(
        default=None, description="Why the action had no effect: unknown_tool, invalid_arguments or refused."
    )
    tools: list[dict[str, Any]] = Field(
        default_factory=list, description="The tools with the JSON Schema of their arguments; after `reset` only."
    )


@dataclass(frozen=True, slots=True)
class OpenEnvSettings:
    """What the server of an exported folder plays."""

    url: str
    """The address of the Ludus server, unless the variable `LUDUS_URL` is set."""
    environment: str
    split: str
    """The split of an episode whose `reset` names none."""
    description: str = ""
    version: str = "0"
    token_variable: str = TOKEN_VARIABLE
    """The environment variable with the trainer token."""
    reconnect_seconds: float = 30.0
    """How long a lost connection to the Ludus server is tried again."""

    @property
    def server(self) -> ServerAddress:
        """The address of the Ludus server."""
        return ServerAddress(os.environ.get(URL_VARIABLE) or self.url, token_variable=self.token_variable)


class LudusOpenEnvironment(Environment):  # type: ignore[misc]
    """A session: it connects at its first request, and plays one episode at a time."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, settings: OpenEnvSettings, observation: type[LudusObservation] = LudusObservation) -> None:
        super().__init__()
        self._settings, self._observation = settings, observation
        self._played: SteppedEnvironment | None = None
        self._state = State()

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        *,
        split: str | None = None,
        task: str | None = None,
        index: int | None = None,
        **others: Any,
    ) -> LudusObservation:
        """End the open episode, start another and return its prompt and its tools.

        Args:
            seed: the seed of the episode; it also draws the task if neither `task` nor `index` is given.
            episode_id: a name for the state.
            split: the split of the task.
            task: the task's id.
            index: the task's index.
            others: none; they are refused.

        Raises:
            InvalidParams: there is no such argument.
            LudusError: the episode could not be started.
        """
        if others:
            raise InvalidParams(
                f"reset has no argument {', '.join(sorted(others))}; it has: seed, episode_id, split, task, index"
            )
        split = split if split is not None else self._settings.split
        started = self._environment().start(split=split, task=task, index=index, seed=seed)
        self._state = State(episode_id=episode_id or str(uuid4()))
        task_row = started.task
        return self._observation(
            text=started.text,
            tools=[tool.model_dump(mode="json") for tool in started.tools],
            metadata={"task": task_row.id, "split": task_row.split, "index": task_row.index, "seed": started.seed},
        )

    def step(self, action: LudusAction, timeout_s: float | None = None, **others: Any) -> LudusObservation:
        """Call a tool, or submit the answer.

        Args:
            action: the call or the answer.
            timeout_s: not used: the limits of the environment bound a step.
            others: not used.

        Raises:
            InvalidParams: there is no open episode.
            LudusError: the episode is unscored.
        """
        played = self._environment()
        if not played.is_open:
            raise InvalidParams("there is no open episode: send reset first")
        if (action.tool is None) == (action.answer is None):
            text = "Error: give either a tool, with its arguments, or an answer."
            return self._observation(text=text, error="invalid_arguments")
        self._state.step_count += 1
        if action.answer is not None:
            taken = played.answer(action.answer)
        else:
            taken = played.call(str(action.tool), action.arguments)
        ended = taken.end_reason is not None
        return self._observation(
            text=taken.text,
            error=taken.error,
            reward=taken.reward,
            done=ended,
            metadata={"end_reason": str(taken.end_reason), "truncated": taken.truncated} if ended else {},
        )

    @property
    def state(self) -> State:
        """The name of the episode and the number of its steps."""
        return self._state

    def get_metadata(self) -> EnvironmentMetadata:
        """Return the environment's name, description and version."""
        settings = self._settings
        return EnvironmentMetadata(
            name=settings.environment, description=settings.description, version=settings.version
        )

    def list_splits(self) -> list[dict[str, str]]:
        """Return the names and the types of the splits."""
        return [{"name": split.name, "type": split.type} for split in self._environment().info.splits]

    def num_tasks(self, split: str) -> int:
        """Return the number of tasks of a split.

        Raises:
            NotImplementedError: the split is endless.
            IndexError: there is no such split.
        """
        counts = {one.name: one.count for one in self._environment().info.splits}
        if split not in counts:
            raise IndexError(f"there is no split {split!r}; there are: {', '.join(counts)}")
        if (count := counts[split]) is None:
            raise NotImplementedError(f"the split {split!r} is endless")
        return count

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        """Return the first tasks of a split, at most `LISTED_TASKS`."""
        return self.get_task_range(split)

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        """Return the id and the index of a task.

        Raises:
            IndexError: there is no such task.
        """
        return self._tasks(split, range(index, index + 1))[0]

    def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[dict[str, Any]]:
        """Return tasks from `start` until before `stop`, at most `LISTED_TASKS`."""
        return self._tasks(split, range(self.num_tasks(split))[start:stop][:LISTED_TASKS])

    def _tasks(self, split: str, indices: range) -> list[dict[str, Any]]:
        try:
            rows = self._environment().tasks(split, indices)
        except (NotFound, InvalidParams) as error:
            raise IndexError(error.message) from None
        return [{"id": row.id, "index": row.index} for row in rows]

    def close(self) -> None:
        """Close the open episode and the connection. Closing twice is no error."""
        played, self._played = self._played, None
        if played is not None:
            played.close()

    def _environment(self) -> SteppedEnvironment:
        if self._played is None:
            settings = self._settings
            self._played = SteppedEnvironment(
                settings.server, settings.environment, adapter=ADAPTER, reconnect_seconds=settings.reconnect_seconds
            )
        return self._played


def create_ludus_app(
    settings: OpenEnvSettings,
    action: type[LudusAction] = LudusAction,
    observation: type[LudusObservation] = LudusObservation,
    sessions: int = SESSIONS,
) -> Any:
    """Return OpenEnv's application for an environment.

    Args:
        settings: what is played, and where.
        action: the model of actions.
        observation: the model of observations.
        sessions: the most sessions at the same time.
    """
    factory = functools.partial(LudusOpenEnvironment, settings, observation)
    return create_app(factory, action, observation, env_name=settings.environment, max_concurrent_envs=sessions)


class LudusEnvClient(EnvClient):  # type: ignore[misc]
    """OpenEnv's client with typed actions and observations.

    A subclass may set `observation` to its own model.
    """

    observation: type[LudusObservation] = LudusObservation

    def _step_payload(self, action: LudusAction) -> dict[str, Any]:
        payload: dict[str, Any] = action.model_dump(mode="json", exclude_defaults=True)
        return payload

    def _parse_result(self, payload: Mapping[str, Any]) -> StepResult:
        reward, done = payload.get("reward"), bool(payload.get("done"))
        fields = {**payload.get("observation", {}), "reward": reward, "done": done}
        observation = self.observation.model_validate(fields)
        return StepResult(observation=observation, reward=reward, done=done, metadata=payload.get("metadata"))

    def _parse_state(self, payload: Mapping[str, Any]) -> State:
        return State.model_validate(dict(payload))
