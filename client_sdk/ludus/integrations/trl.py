"""TRL: `GRPOTrainer` trains on the environments of a Ludus server. Unsloth trains through TRL, and so it does too.

TRL has two places for environments, and `rows` makes the dataset for both:

* `environment_factory=LudusEnvironmentFactory(…)`: TRL owns the loop over tools, and calls them as methods.
* `rollout_func=LudusRollout(…)`, in `ludus.integrations.trl_rollout`: Ludus owns the loop, and TRL samples.

How the factory works:

* TRL resets its environments one after another, so `reset` starts nothing. The first call starts the episodes of all
  environments that were reset: one request for the environments of one task.
* TRL does not ask whether an episode has ended. If it has, the tool's output has more tokens than a completion may
  have; TRL drops such an output and samples no more. So no token after the end is trained on.
* TRL gives exceptions of tools to the model as text. So mistakes of the setup are raised when the reward is computed.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ludus.client import EnvironmentInfo, ServerAddress
from ludus.client.sync import run_sync
from ludus.integrations.groups import kept_client
from ludus.integrations.peers import require
from ludus.integrations.trl_environment import LudusEnvironment, method_of, shown, start_waiting
from ludus.protocol.errors import Unsupported

TESTED: Final = "1.16.0"
"""The version of TRL that the adapter was tested with."""


def rows(
    server: ServerAddress, environment: str, split: str = "train", *, n: int | None = None, seed: int | None = None
) -> list[dict[str, Any]]:
    """Return the tasks of a split as rows of a dataset: `prompt`, and in `ludus` the address of the task.

    Args:
        server: the server.
        environment: the environment's name.
        split: the split's name.
        n: how many tasks; all when None.
        seed: the seed of every episode; when None, the server draws one for each task.
    """
    return run_sync(_rows(server, environment, split, n, seed))


async def _rows(server: ServerAddress, name: str, split: str, n: int | None, seed: int | None) -> list[dict[str, Any]]:
    environment = (await kept_client(server)).environment(name)
    seedable = (await environment.info()).seedable
    found: list[dict[str, Any]] = []
    async for preview in environment.previews(split, n=n, seed=seed):
        address = server.task(name, split, preview.task.id, preview.seed if seedable else None).to_json()
        first, *others = shown(preview.prompt)
        # `rollout_func` gets only the prompts of the rows, so the prompt holds the address too.
        found.append({"prompt": [{**first, "ludus": address}, *others], "ludus": address})
    return found


@dataclass(frozen=True)
class LudusEnvironmentFactory:
    """The `environment_factory` of a trainer. It pickles, for trainers that sample in another process.

    If the environment grades final messages, the trainer needs `reward_funcs=[outcome_reward]` too: TRL does not show
    them to environments. It is harmless otherwise.

    Raises:
        PeerNotUsable: TRL is missing, or of an untested version.
    """

    server: ServerAddress
    environment: str
    """The environment's name."""
    max_completion_length: int | None
    """That of the trainer's configuration. None for `AsyncGRPOTrainer`, which keeps tool outputs of any length and
    gives no environments to reward functions: it trains on calls after the end, and final messages are not graded."""

    def __post_init__(self) -> None:
        require("trl", TESTED)

    def __call__(self) -> LudusEnvironment:
        """Return an environment, which plays one episode at a time."""
        return _class_of(self, os.getpid())()


@functools.cache
def _class_of(factory: LudusEnvironmentFactory, process: int) -> type[LudusEnvironment]:
    """Return the class of the environments. TRL looks for tools among its methods, but shows the functions' names.

    So a tool may have a name that TRL does not allow for a method, such as `reset`.
    """
    info = run_sync(_info(factory))
    members: dict[str, Any] = {f"tool_{number}": method_of(spec) for number, spec in enumerate(info.tools)}
    if not info.gradable or factory.max_completion_length is None:
        members["get_reward"] = _get_reward
    return type(info.name, (LudusEnvironment,), {**members, "_info": info, "_longest": factory.max_completion_length})


async def _info(factory: LudusEnvironmentFactory) -> EnvironmentInfo:
    return await (await kept_client(factory.server)).environment(factory.environment).info()


def _get_reward(environment: LudusEnvironment) -> float | None:
    return _values([None], [environment])[0]


def outcome_reward(
    completions: Sequence[Any],
    environments: Sequence[Any] | None = None,
    ludus_reward: Sequence[float | None] | None = None,
    **_: Any,
) -> list[float | None]:
    """Return the values of the outcomes, as a reward function of TRL; None for unscored episodes.

    An environment with a `get_reward` of its own gets None here, because TRL adds the two.

    Raises:
        Unsupported: the trainer gives no environments to reward functions.
    """
    values = _values(completions, environments, ludus_reward)
    owners = environments or [None] * len(values)
    return [None if hasattr(owner, "get_reward") else value for owner, value in zip(owners, values, strict=True)]


def only_scored(reward_func: Callable[..., Any]) -> Callable[..., Any]:
    """Return a reward function that returns None for unscored episodes, and is otherwise the given one.

    TRL adds the values of all reward functions and takes None as 0, if another function has a value. So without this,
    the outcome of an unscored episode would count as 0.

    Args:
        reward_func: a reward function of TRL, synchronous or not; not a model.
    """

    def masked(values: Sequence[float | None], given: dict[str, Any]) -> list[float | None]:
        environments = given.get("environments")
        outcomes = _values(given["completions"], environments, given.get("ludus_reward"))
        foreign = [
            environments is not None and not isinstance(environment, LudusEnvironment)
            for environment in environments or values
        ]
        rows = zip(values, outcomes, foreign, strict=True)
        return [None if outcome is None and not other else value for value, outcome, other in rows]

    async def later(**given: Any) -> list[float | None]:
        return masked(await reward_func(**given), given)

    def now(**given: Any) -> list[float | None]:
        return masked(reward_func(**given), given)

    return functools.wraps(reward_func)(later if inspect.iscoroutinefunction(reward_func) else now)


def _values(
    completions: Sequence[Any], environments: Sequence[Any] | None, rewards: Sequence[float | None] | None = None
) -> list[float | None]:
    """Return the values of the outcomes, of `LudusRollout` or of environments, which end with the final messages."""
    if rewards is not None:
        return list(rewards)
    if environments is None:
        raise Unsupported("this trainer gives no environments to reward functions; see max_completion_length")
    start_waiting()
    run_sync(_finish(completions, environments))
    return [environment._value() if isinstance(environment, LudusEnvironment) else None for environment in environments]


async def _finish(completions: Sequence[Any], environments: Sequence[Any]) -> None:
    pairs = zip(environments, completions, strict=True)
    await asyncio.gather(*(one._finish(_final(said)) for one, said in pairs if isinstance(one, LudusEnvironment)))


def _final(completion: Sequence[dict[str, Any]] | None) -> str | None:
    """Return the final message of a completion; None if it has none, such as one that ends with a call."""
    last = completion[-1] if completion else {}
    return last.get("content") or "" if last.get("role") == "assistant" and not last.get("tool_calls") else None
