"""verifiers and prime-rl: a taskset of a server's tasks, and the environment that plays them.

verifiers finds plugins by the name of a top-level module, so write one of two lines, such as `ludus_sums.py`, and give
its name to `vf-eval` or prime-rl as the id of the taskset:

    from ludus.integrations.verifiers import LudusEnv, LudusHarness, LudusTaskset
    __all__ = ["LudusEnv", "LudusHarness", "LudusTaskset"]

* `LudusHarness`, the default, runs the chat loop in verifiers' process. Other harnesses play over the episode's URL.
* Both ways, the reward is the episode's total; its components are metrics. They are read over the control plane.
* If an episode is unscored, `trace.ok` is false, and verifiers and prime-rl leave the rollout out.

One rollout (the task and the harness) is in `ludus.integrations.verifiers_rollout`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, Final

from ludus.client import EnvironmentInfo, LudusError, ServerAddress, TaskAddress
from ludus.client.driver import failure_of
from ludus.client.formats import openai_chat
from ludus.client.sync import connect
from ludus.integrations.unscored import RETRIES, UNSCORED
from ludus.integrations.verifiers_rollout import LudusData, LudusHarness, LudusTask
from ludus.protocol.errors import EnvironmentNotFound

# verifiers_rollout has checked that verifiers is installed.
import verifiers.v1 as vf  # isort: skip  # pyright: ignore[reportMissingImports]
from verifiers.v1.mcp import SharedToolServer  # isort: skip  # pyright: ignore[reportMissingImports]

__all__ = ["LudusEnv", "LudusHarness", "LudusTaskset"]

_INFRASTRUCTURE: Final = "InfrastructureFailed|ConnectionFailed"
"""What the message of an error says if the episode is to be played again."""


class LudusTasksetConfig(vf.TasksetConfig):  # type: ignore[misc]
    """Which tasks of which server to play: `--env.taskset.url`, `--env.taskset.environment` and so on."""

    url: str = "http://127.0.0.1:8000"
    """The server's address."""
    environment: str = ""
    """The environment's name; may be left out if the server has only one."""
    split: str = "train"
    n: int | None = None
    """How many tasks of the split; all when None, which an endless split refuses."""
    seed: int | None = 0
    """The seed of every episode, unless the environment is not seedable. None draws one for each episode."""
    token_variable: str = "LUDUS_TOKEN"
    """The environment variable with the trainer's token."""


class LudusTaskset(vf.Taskset[LudusTask, LudusTasksetConfig]):  # type: ignore[misc]
    """The tasks of one split of an environment, in order of index."""

    def load(self) -> Iterator[LudusTask]:
        """Yield the tasks with their prompts."""
        config = self.config
        server = ServerAddress(config.url, token_variable=config.token_variable)
        with connect(config.url, token=os.environ.get(config.token_variable)) as client:
            info = _named(client.environments(), config.environment)
            seed = config.seed if info.seedable else None
            for preview in client.environment(info.name).previews(config.split, n=config.n, seed=seed):
                address = server.task(info.name, config.split, preview.task.id, seed)
                prompt = openai_chat.messages(preview.prompt)["messages"]
                yield LudusTask(_row(address, prompt), config.task)


class LudusEnvConfig(vf.EnvConfig):  # type: ignore[misc]
    """One agent, on this machine; an episode whose infrastructure failed is played again."""

    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())
    """The agent. verifiers' own default runtime is a remote sandbox."""
    retries: vf.RetryConfig = vf.RetryConfig(rules=[vf.RetryRule(message=_INFRASTRUCTURE, max_retries=RETRIES)])


class LudusEnv(vf.Env[LudusEnvConfig]):  # type: ignore[misc]
    """Plays a task once: with `LudusHarness`, or with another harness over the episode's play URL."""

    async def run(self, task: LudusTask, agents: Any) -> None:
        """Run the agent on the task.

        Raises:
            ValueError: `--env.agent.retries` is set, but an episode cannot be played twice; set `--env.retries`.
            EnvironmentFailed, InfrastructureFailed: the episode did not start, or the server was lost.
        """
        agent = agents.agent
        if isinstance(agent.harness, LudusHarness):
            _leave_out(await agent.run(task))
            return
        if agent.config.retries.max_retries or agent.config.retries.rules:
            raise ValueError("set --env.retries instead of --env.agent.retries, so that each try has its own episode")
        address = TaskAddress.from_json(task.data.ludus)
        try:
            async with address.drive() as driver:
                playing = task.with_data(prompt=_row(address, driver.messages).prompt)
                playing.driver = driver
                server = SharedToolServer(driver.episode.require_play_url(), local=False, external=True)
                _leave_out(await agent.run(playing, tools={"ludus": server}))
        except LudusError as error:
            raise failure_of(error).as_error() from error

    async def run_slot(self, slot: Any, *args: Any, **options: Any) -> Any:
        """Run an episode with its retries, and count it if it stayed unscored."""
        episode = await super().run_slot(slot, *args, **options)
        UNSCORED["verifiers"] += not episode.ok
        return episode


def _leave_out(trace: Any) -> None:
    """Take a failed trace out of the training and of verifiers' mean, where it would count as 0.0."""
    trace.agent.trainable &= trace.ok


def _row(address: TaskAddress, prompt: list[dict[str, Any]]) -> LudusData:
    """Return the row of a task. A prompt of one text is a string, because some harnesses take nothing else."""
    plain = len(prompt) == 1 and prompt[0]["role"] == "user" and isinstance(prompt[0]["content"], str)
    return LudusData(id=address.task, prompt=prompt[0]["content"] if plain else prompt, ludus=address.to_json())


def _named(found: Sequence[EnvironmentInfo], name: str) -> EnvironmentInfo:
    """Return the environment of that name, or the only one."""
    chosen = [info for info in found if info.name == name or not name]
    if len(chosen) != 1:
        names = ", ".join(info.name for info in found)
        raise EnvironmentNotFound(f"say which environment to play with --env.taskset.environment; there are: {names}")
    return chosen[0]
