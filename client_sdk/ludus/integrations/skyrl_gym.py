"""skyrl-gym: an environment by the id `ludus`, for SkyRL's own generators and other programs that use skyrl-gym.

    from ludus.integrations.skyrl_gym import ENV_ID
    env = skyrl_gym.make(ENV_ID, extras={"ludus": address.to_json(), "max_turns": 8})

To train, use `ludus.integrations.skyrl`: an environment of skyrl-gym cannot mask an episode. It must give a number or
raise, and an exception ends SkyRL's whole step.

* The prompt, with the tools as text, comes from the episode; the data's own prompt is not used.
* The last step gives the episode's value, the steps before it 0.0. An unscored episode raises its failure.
* The episode is closed when it ends, when `close` is called, and when the object is gone or the interpreter exits:
  SkyRL calls `close` of no environment after a failure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from ludus.client import Driver, EpisodeOutcome, LudusError, TaskAddress
from ludus.client.sync import run_sync
from ludus.forms.tool_calls import TEXT_FORMATS, TextFormatName
from ludus.integrations.held import HeldEpisode
from ludus.integrations.peers import require
from ludus.integrations.unscored import count, not_started
from ludus.protocol.actions import Call
from ludus.protocol.errors import EpisodeFailed, InvalidParams

require("skyrl-gym", "0.4.0")

import skyrl_gym  # noqa: E402  # pyright: ignore[reportMissingImports]
from skyrl_gym.envs.base_text_env import (  # noqa: E402  # pyright: ignore[reportMissingImports]
    BaseTextEnv,
    BaseTextEnvStepOutput,
)

ADAPTER: Final = "skyrl-gym"
"""The name under which unscored episodes are counted."""

ENV_ID: Final = "ludus"
"""The id of the environment, and the value of the column `env_class`."""


class LudusTextEnv(BaseTextEnv):  # type: ignore[misc]
    """One episode of a task.

    Args:
        env_config: what SkyRL's configuration has for this environment; not used.
        extras: a row of the data: its field `ludus` is the address of the task. `max_turns` limits the turns.
        tool_calls: the form in which the model writes tool calls.

    Raises:
        InvalidParams: `extras` has no address of a task.
    """

    def __init__(
        self, env_config: Any = None, extras: Mapping[str, Any] | None = None, tool_calls: TextFormatName = "hermes"
    ) -> None:
        super().__init__()
        given = extras or {}
        self.address: Final = TaskAddress.from_json(given.get("ludus") or {})
        self.max_turns = given.get("max_turns")
        self.tool_calls: Final[TextFormatName] = tool_calls
        self._held: HeldEpisode | None = None
        self._outcome: EpisodeOutcome | None = None

    def init(self, prompt: list[dict[str, str]]) -> tuple[list[dict[str, str]], dict[str, Any]]:
        """Start the episode, and return its prompt with the tools as text.

        Raises:
            LudusError: the episode could not be started.
        """
        self.close()
        self.turns, self._outcome = 0, None
        try:
            self._held = HeldEpisode(self.address, self.tool_calls)
        except LudusError as error:
            count(not_started(error), ADAPTER)
            raise
        return _prompt(self._held.driver, self.tool_calls), {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Take the model's message, and end the episode after the last turn.

        Raises:
            LudusError: the episode is unscored.
            InvalidParams: there is no open episode.
        """
        if self._held is None:
            raise InvalidParams("this environment has no open episode: call init() first")
        self.turns += 1
        try:
            observations, self._outcome = run_sync(self._step(self._held.driver, action))
        except BaseException:
            self.close()
            raise
        if self._outcome is None:
            return BaseTextEnvStepOutput(observations=observations, reward=0.0, done=False, metadata={})
        self.close()
        outcome = count(self._outcome, ADAPTER)
        if outcome.value is None:
            outcome.raise_for_failure()
            raise EpisodeFailed(f"the episode is unscored: {outcome.reason}")
        metadata = {"components": dict(outcome.components)}
        return BaseTextEnvStepOutput(observations=[], reward=outcome.value, done=True, metadata=metadata)

    async def _step(self, driver: Driver, action: str) -> tuple[list[dict[str, Any]], EpisodeOutcome | None]:
        observations, done = await driver.act(action)
        if done or (self.max_turns is not None and self.turns >= self.max_turns):
            return [], await driver.finish("turn_limit")
        return observations, None

    def close(self) -> None:
        """Close the episode if it is open. Closing twice is no error."""
        held, self._held = self._held, None
        if held is not None:
            held.close()

    def get_metrics(self) -> dict[str, Any]:
        """Return the components of the reward, and how many turns there were."""
        components = self._outcome.components if self._outcome is not None else {}
        return {**components, "turns": self.turns}


def _prompt(driver: Driver, form: TextFormatName) -> list[dict[str, str]]:
    """Return the messages of an episode with its tools as text, because SkyRL gives none to the chat template."""
    messages = list(driver.messages)
    if driver.tools:
        example = TEXT_FORMATS[form].write([Call("NAME", {"ARGUMENT": "VALUE"})])
        lines = [json.dumps(tool["function"], ensure_ascii=False) for tool in driver.tools]
        text = "\n".join(["You have these tools:", *lines, f"Write a call of a tool like this:\n{example}"])
        if messages and messages[0]["role"] == "system":
            text = f"{messages.pop(0)['content']}\n\n{text}"
        messages.insert(0, {"role": "system", "content": text})
    return messages


if ENV_ID not in skyrl_gym.registry:
    skyrl_gym.register(ENV_ID, f"{__name__}:LudusTextEnv")
