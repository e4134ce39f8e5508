"""What every rank does, at the word of the first one: learn, hand out weights, save and load.

The first rank plays episodes and decides; the others wait for orders. An order is a method of `Worker` and its
arguments, broadcast to all ranks, so that each makes the same calls in the same order and collectives meet.
"""

from __future__ import annotations

import asyncio
import functools
import random
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ludus.trainer.checkpoints import Checkpoints
from ludus.trainer.config import TrainConfig
from ludus.trainer.learning.checkpoint_names import require_checkpoint_names
from ludus.trainer.learning.dpo import Pair, reference_sums, train_dpo
from ludus.trainer.learning.learner import Learner
from ludus.trainer.learning.losses import linear_objective, policy_objective
from ludus.trainer.learning.model import load_model, load_tokenizer, model_folder
from ludus.trainer.learning.parallel import Parallel
from ludus.trainer.samples import TrainBatch
from ludus.trainer.stopping import leave_signals_to_the_first_rank


class Worker:
    """One rank's learner and checkpoints. Its methods are orders: every rank runs each of them, in the same order."""

    def __init__(self, config: TrainConfig, parallel: Parallel) -> None:
        torch.manual_seed(config.seed)
        random.seed(config.seed)
        self.config, self.parallel = config, parallel
        self.tokenizer: PreTrainedTokenizerBase = load_tokenizer(config.model)
        model = load_model(config.model, parallel.device)
        if config.engine.kind == "vllm" and config.model.lora is None:
            require_checkpoint_names(model, model_folder(config.model.path))
        self.learner = Learner(config, model, parallel)
        self.checkpoints = Checkpoints(config.output / "checkpoints", config.checkpoints.keep)
        self._objective = policy_objective(config.loss)
        self._preferences: Iterator[dict[str, float]] = iter(())

    def learn(self, batch: TrainBatch) -> dict[str, float]:
        """One batch of rollouts."""
        return self.learner.step(batch, self._objective)

    def imitate(self, batch: TrainBatch, learning_rate: float) -> dict[str, float]:
        """One batch of the supervised warm-up."""
        return self.learner.step(batch, linear_objective, learning_rate=learning_rate)

    def set_pairs(self, pairs: Sequence[Pair], done: int, reference: Sequence[float] | None) -> list[float]:
        """Get ready for the preference warm-up from batch `done` on; returns its reference, for a later resume."""
        config = self.config
        assert config.dpo is not None
        known = list(reference) if reference is not None else reference_sums(self.learner, pairs)
        self._preferences = train_dpo(self.learner, pairs, config.dpo, seed=config.seed, before=known, done=done)
        return known

    def prefer(self) -> dict[str, float]:
        """One batch of the preference warm-up."""
        return next(self._preferences)

    def logprobs(self, ids: Sequence[int]) -> list[float]:
        """Of `ids[1:]`, for the canary."""
        return self.learner.sequence_logprobs(ids)

    def weights(self) -> Iterator[tuple[str, Tensor]] | None:
        """The first rank gets an iterator, which it must exhaust; the others send their parts."""
        tensors = self.learner.weights(self.learner.dtype, as_checkpoint=self.config.engine.kind == "vllm")
        if self.parallel.first:
            return tensors
        for _ in tensors:
            pass
        return None

    def save_adapter(self, folder: Path) -> None:
        """Write the LoRA adapter."""
        self.learner.save_adapter(folder)

    def save(self, step: int, state: dict[str, Any], warm_up: bool) -> Path:
        """Write a checkpoint.

        Raises:
            CheckpointError: it cannot be written.
            LearningError: the weights are not finite.
        """
        self.learner.require_finite()
        return self.checkpoints.save(step, state, self._tensors(), warm_up=warm_up)

    def load(self, path: Path) -> dict[str, Any]:
        """Read one; its plain state."""
        tensors = self._tensors()
        state = self.checkpoints.load(path, tensors)
        self.learner.load_state(tensors["learner"])
        torch.set_rng_state(tensors["random"])
        return state

    def export(self, folder: Path) -> None:
        """Write the policy in Hugging Face format."""
        self.learner.export(self.tokenizer, folder)

    def forget_checkpoints(self) -> None:
        """Remove those of an earlier run in the same folder."""
        self.checkpoints.clear()

    def latest(self) -> Path | None:
        """The newest checkpoint."""
        return self.checkpoints.latest()

    def _tensors(self) -> dict[str, Any]:
        return {"learner": self.learner.state(), "random": torch.get_rng_state()}


class WorkerGroup:
    """All ranks, seen from the first one's event loop. Orders run one at a time in a thread of their own."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self._thread = ThreadPoolExecutor(1, "ludus-learner")
        self._together = True
        """Whether all ranks wait for an order. When one failed half way they never will again."""
        self._handed: Iterator[tuple[str, Tensor]] = iter(())
        """What `weights` returned last."""

    @property
    def can_save(self) -> bool:
        """Whether the learner is between two updates, and every rank waits for an order."""
        return self.worker.learner.whole and (self._together or self.worker.parallel.world == 1)

    async def do(self, order: str, *arguments: Any) -> Any:
        """Run a method of `Worker` on every rank; what it returns on this one."""
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._thread, functools.partial(self._do, order, arguments))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            # A collective cannot be left half way; whoever cancels waits for the order to end.
            await asyncio.gather(future, return_exceptions=True)
            raise

    def _do(self, order: str, arguments: tuple[Any, ...]) -> Any:
        self._together = False
        self.worker.parallel.broadcast((order, arguments))
        result = getattr(self.worker, order)(*arguments)
        self._together = True
        return result

    async def weights(self) -> Iterator[tuple[str, Tensor]]:
        """The policy's tensors, gathered from all ranks while they are iterated over, which must be to the end."""
        tensors = await self.do("weights")
        self._together = False

        def until_the_end() -> Iterator[tuple[str, Tensor]]:
            yield from tensors
            self._together = True

        self._handed = until_the_end()
        return self._handed

    async def take_back(self) -> None:
        """Gather the rest of the weights when their receiver failed, so that the ranks are together again."""
        with suppress(ValueError):  # a thread that never comes back is still reading
            await asyncio.get_running_loop().run_in_executor(self._thread, deque, self._handed, 0)

    async def dismiss(self) -> None:
        """Tell the other ranks that there is nothing more to do. After a failure torchrun ends them instead."""
        if self._together:
            await asyncio.get_running_loop().run_in_executor(self._thread, self.worker.parallel.broadcast, None)
        self._thread.shutdown()


def follow(worker: Worker) -> None:
    """What every rank but the first does: orders, until there are no more."""
    leave_signals_to_the_first_rank()
    nothing: tuple[str, tuple[Any, ...]] | None = None
    while (order := worker.parallel.broadcast(nothing)) is not None:
        name, arguments = order
        getattr(worker, name)(*arguments)
