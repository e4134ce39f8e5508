"""A mix of environments for TRL: the rows are drawn while it trains, and rewards decide what is drawn next.

    mixed = MixedRows("mix.toml", seed=1)
    trainer = GRPOTrainer(
        …, args=GRPOConfig(…, shuffle_dataset=False, max_steps=200),
        train_dataset=mixed.dataset(), reward_funcs=[mixed.outcome_reward], rollout_func=LudusRollout(),
    )

How it works:

* The dataset is iterable and endless. Each row is one draw of the mix and has its number in `ludus_group`; TRL repeats
  it `num_generations` times. TRL reads a batch ahead, so results count one batch later.
* `outcome_reward` reports the values of each group to the mix, and returns them. They are those of `LudusRollout`; an
  `environment_factory` plays one environment, so it is no place for a mix.
* `shuffle_dataset=True`, TRL's default, would read a thousand rows before the first result.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from ludus.client.mix import MixFile, TaskMix, connect_mix, read_mix
from ludus.client.sync import run_sync
from ludus.integrations.groups import kept_client
from ludus.integrations.peers import require
from ludus.integrations.trl import TESTED
from ludus.integrations.trl_environment import shown
from ludus.protocol.errors import Unsupported


class MixedRows:
    """The rows of a mix, and the reward function that reports to it.

    Args:
        mix: a mix, or the path of a mix file, whose sources are on running servers.
        seed: the seed of all choices.

    Raises:
        PeerNotUsable: TRL is missing, or of an untested version.
        Unsupported: several processes train, and the shares of the mix change: each process would draw other tasks.
        LudusError: as for `open_mix`.
    """

    def __init__(self, mix: MixFile | str | Path, *, seed: int = 0) -> None:
        require("trl", TESTED)
        found = mix if isinstance(mix, MixFile) else read_mix(mix)
        if found.policy.kind != "fixed" and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise Unsupported(
                f'policy.kind = "{found.policy.kind}" needs a trainer of one process, because each process sees only '
                'its own results; use "fixed"'
            )
        self._seed = seed
        self.mix: TaskMix = run_sync(connect_mix(found, kept_client, seed=seed))
        """The mix, with its statistics, shares and state."""

    def dataset(self) -> Any:
        """Return the rows as an endless `datasets.IterableDataset`, for `train_dataset`."""
        from datasets import IterableDataset  # pyright: ignore[reportMissingImports]

        return IterableDataset.from_generator(self.rows)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield rows without end: `prompt`, `ludus` with the address of the task, and `ludus_group`."""
        while True:
            yield run_sync(self._row())

    async def _row(self) -> dict[str, Any]:
        draw = await self.mix.draw()
        address = draw.address
        preview = await draw.environment.preview(split=address.split, task=address.task, seed=address.seed)
        first, *others = shown(preview.prompt)
        row = address.to_json()
        return {"prompt": [{**first, "ludus": row}, *others], "ludus": row, "ludus_group": draw.number}

    def outcome_reward(
        self,
        completions: Sequence[Any],
        ludus_group: Sequence[int],
        ludus_reward: Sequence[float | None] | None = None,
        **_: Any,
    ) -> list[float | None]:
        """Report the values of the groups to the mix, and return them, as a reward function of TRL.

        Raises:
            Unsupported: the trainer has no `rollout_func=LudusRollout(…)`.
        """
        if ludus_reward is None:
            raise Unsupported("a mix needs rollout_func=LudusRollout(…), whose episodes have the rewards")
        groups: dict[int, list[float | None]] = {}
        for number, value in zip(ludus_group, ludus_reward, strict=True):
            groups.setdefault(int(number), []).append(value)
        for number in sorted(groups):
            self.mix.report(number, groups[number])
        return list(ludus_reward)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the mix and its seed, by which `datasets` names the rows. A copy of it cannot be loaded."""
        return _refuse_copy, (self.mix.mix.model_dump_json(), self._seed)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return this object: `datasets` copies its parts, and there is only one mix to report to."""
        return self


def _refuse_copy(*_: object) -> None:
    raise Unsupported("a mix cannot be sent to another process, which would draw without knowing the results")
