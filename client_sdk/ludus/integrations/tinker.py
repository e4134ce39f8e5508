"""tinker-cookbook: environments, group builders and a dataset for its training loop, over the tasks of a Ludus server.

    dataset = LudusDatasetBuilder(url="http://10.0.0.5:8000", environment="wordle", model_name="Qwen/Qwen3-8B")

* Observations are token ids, and each of them begins with the one before and what was sampled after it, unchanged. So
  the cookbook makes one datum of an episode. Sampled ids are decoded to find the tool calls, and never encoded again.
* Steps are worth 0.0, and `compute_group_rewards` gives an episode its value.
* An unscored episode gets the mean of its group's scored episodes and is masked. If there are none, the group is
  dropped with `AllTrajectoriesFailedError`, which the cookbook handles under every strategy.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from ludus.client import ServerAddress, group_seed
from ludus.client.environment import find_split
from ludus.forms.tool_calls import TextFormatName
from ludus.integrations.tinker_env import LudusEnv
from ludus.integrations.tinker_group import LudusGroupBuilder
from ludus.protocol.errors import InvalidParams

import chz  # isort: skip  # pyright: ignore[reportMissingImports]
from tinker_cookbook.rl.types import RLDataset, RLDatasetBuilder  # isort: skip  # pyright: ignore[reportMissingImports]

__all__ = ["LudusDataset", "LudusDatasetBuilder", "LudusEnv", "LudusGroupBuilder"]


class LudusDataset(RLDataset):  # type: ignore[misc]
    """Batches of groups, in another order in each epoch.

    Args:
        groups: one group for each task.
        batch_size: how many groups a batch has; the last one of an epoch may have fewer.
        run: the name of which seeds and order are functions; the groups keep their seeds when None.
        epochs: how many times each task is played.

    Raises:
        InvalidParams: `batch_size` or `epochs` is less than 1.
    """

    def __init__(self, groups: Sequence[LudusGroupBuilder], batch_size: int, run: str | None, epochs: int = 1) -> None:
        if batch_size < 1 or epochs < 1:
            raise InvalidParams(f"batch_size is {batch_size} and epochs is {epochs}: the least is 1")
        self._groups, self._size, self._run, self._epochs = groups, batch_size, run, epochs

    def __len__(self) -> int:
        return self._epochs * -(-len(self._groups) // self._size)

    def get_batch(self, index: int) -> Sequence[LudusGroupBuilder]:
        """Return new builders for a batch; the same ones for the same index in every process."""
        if not 0 <= index < len(self):
            raise IndexError(f"no batch {index}: there are {len(self)}")
        epoch, batch = divmod(index, len(self) // self._epochs)
        groups = list(self._groups)
        random.Random(f"{self._run}/{epoch}").shuffle(groups)
        found = []
        for group in groups[batch * self._size : (batch + 1) * self._size]:
            address = group.address
            if self._run is not None:
                address = replace(address, seed=group_seed(self._run, address.task, epoch))
            found.append(replace(group, address=address))
        return found


@chz.chz
class LudusDatasetBuilder(RLDatasetBuilder):  # type: ignore[misc]
    """Lists the tasks of one split to train on, and of one to evaluate on, when the run starts.

    Raises, when it is called:
        SplitNotFound: there is no such split.
        InvalidParams: the split is endless, and `n` or `test_n` is None; or `batch_size` or `epochs` is less than 1.
    """

    url: str
    environment: str
    model_name: str
    """The model whose tokenizer and chat template to use; see `LudusGroupBuilder`."""
    batch_size: int = 32
    """How many groups a batch has."""
    group_size: int = 8
    """How many episodes a group has."""
    split: str = "train"
    n: int | None = None
    """How many tasks of the split to use; all when None."""
    test_split: str | None = None
    test_n: int | None = None
    epochs: int = 1
    """How many times each task is played, with other seeds each time."""
    run: str = "tinker"
    """The run's name; seeds and the order of tasks are functions of it."""
    tool_calls: Literal["auto"] | TextFormatName = "auto"
    max_turns: int | None = None
    max_trajectory_tokens: int | None = None
    template_options: Mapping[str, Any] = chz.field(default_factory=dict)
    token_variable: str = "LUDUS_TOKEN"
    """The environment variable with the server's token, in each process that plays."""

    async def __call__(self) -> tuple[LudusDataset, LudusDataset | None]:
        """Return the dataset to train on and the one to evaluate on."""
        train = await self._dataset(self.split, self.n, self.group_size, self.epochs)
        if self.test_split is None:
            return train, None
        return train, await self._dataset(self.test_split, self.test_n, 1, 1)

    async def _dataset(self, split: str, n: int | None, size: int, epochs: int) -> LudusDataset:
        server = ServerAddress(self.url, token_variable=self.token_variable)
        names: list[str] = []
        async with server.client() as client:
            environment = client.environment(self.environment)
            info = await environment.info()
            find_split(info, split, n)
            async for row in environment.tasks(split):
                if n is not None and len(names) >= n:
                    break
                names.append(row.id)
        common: dict[str, Any] = {
            "tool_calls": self.tool_calls,
            "max_turns": self.max_turns,
            "max_trajectory_tokens": self.max_trajectory_tokens,
            "template_options": dict(self.template_options),
        }
        groups = [
            LudusGroupBuilder(server.task(self.environment, split, name), self.model_name, size, **common)
            for name in names
        ]
        return LudusDataset(groups, self.batch_size, self.run if info.seedable else None, epochs)
