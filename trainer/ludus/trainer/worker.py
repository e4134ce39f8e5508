"""The work that every rank does on command of the first rank: learn, send weights, save and load.

The first rank runs episodes and makes all decisions; the other ranks wait for commands. A command is a method of
`Worker` and its arguments. It is broadcast to all ranks, so that all ranks make the same calls in the same order and
take part in the same collectives.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ludus.trainer.core.checkpoints import Checkpoints
from ludus.trainer.core.config import TrainConfig
from ludus.trainer.core.samples import TrainBatch
from ludus.trainer.core.stopping import ignore_signals
from ludus.trainer.learning.checkpoint_names import require_checkpoint_names
from ludus.trainer.learning.dpo import Pair, reference_sums, train_dpo
from ludus.trainer.learning.learner import Learner
from ludus.trainer.learning.losses import linear_objective, policy_objective
from ludus.trainer.learning.model import load_model, load_tokenizer, model_folder
from ludus.trainer.learning.parallel import Parallel
from ludus.trainer.learning.rows import require_length

P = ParamSpec("P")
R = TypeVar("R")


class Worker:
    """The learner and checkpoints of one rank. Its methods are commands: every rank runs them in the same order."""

    def __init__(self, config: TrainConfig, parallel: Parallel) -> None:
        torch.manual_seed(config.seed)
        random.seed(config.seed)
        self.config, self.parallel = config, parallel
        self.tokenizer: PreTrainedTokenizerBase = load_tokenizer(config.model)
        model = load_model(config.model, parallel.device)
        require_length(model.config, config.rollouts.context)
        if config.engine.kind == "vllm" and config.model.lora is None:
            require_checkpoint_names(model, model_folder(config.model.path))
        self.learner = Learner(config, model, parallel)
        self.checkpoints = Checkpoints(config.output / "checkpoints", config.checkpoints.keep)
        self._objective = policy_objective(config.loss)
        self._dpo_steps: Iterator[dict[str, float]] = iter(())

    def learn(self, batch: TrainBatch) -> dict[str, float]:
        """Learn from one batch of rollouts."""
        return self.learner.step(batch, self._objective)

    def sft_step(self, batch: TrainBatch, learning_rate: float) -> dict[str, float]:
        """Learn from one batch of the supervised warm-up."""
        return self.learner.step(batch, linear_objective, learning_rate=learning_rate)

    def set_pairs(self, pairs: Sequence[Pair], done: int, reference: Sequence[float] | None) -> list[float]:
        """Prepare the preference warm-up from batch `done` on. Return its reference, which a resume needs."""
        config = self.config
        assert config.dpo is not None
        known = list(reference) if reference is not None else reference_sums(self.learner, pairs)
        self._dpo_steps = train_dpo(self.learner, pairs, config.dpo, seed=config.seed, before=known, done=done)
        return known

    def dpo_step(self) -> dict[str, float]:
        """Learn from one batch of the preference warm-up."""
        return next(self._dpo_steps)

    def keep_reference(self) -> None:
        """Make the policy as it is now the reference of the KL term, unless a checkpoint had one."""
        if not self.learner.reference_kept:
            self.learner.keep_reference()

    def logprobs(self, ids: Sequence[int]) -> list[float]:
        """Return the log-probabilities of `ids[1:]`, for the canary."""
        return self.learner.sequence_logprobs(ids)

    def weights(self) -> Iterator[tuple[str, Tensor]] | None:
        """Return an iterator of the weights on the first rank, which must exhaust it; other ranks send their parts."""
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
        state = {**state, "reference_kept": self.learner.reference_kept}
        return self.checkpoints.save(step, state, self._tensors(), warm_up=warm_up)

    def resume(self) -> dict[str, Any] | None:
        """Load the newest checkpoint and return its plain state; None to start from the beginning.

        Raises:
            CheckpointError: it cannot be read.
        """
        if not self.config.checkpoints.resume:  # otherwise a later run would continue from an earlier one's
            self.checkpoints.clear()
        if (path := self.checkpoints.latest()) is None:
            return None
        if self.checkpoints.state(path).get("reference_kept"):
            self.learner.keep_reference()  # makes room for the one in the checkpoint
        tensors = self._tensors()
        state = self.checkpoints.load(path, tensors)
        self.learner.load_state(tensors["learner"])
        torch.set_rng_state(tensors["random"])
        return state

    def export(self, folder: Path, stop: Sequence[int]) -> None:
        """Write the policy in Hugging Face format; it stops where it stopped in training, at the tokens of `stop`."""
        self.learner.export(self.tokenizer, folder, stop)

    def _tensors(self) -> dict[str, Any]:
        tensors: dict[str, Any] = {"learner": self.learner.state(), "random": torch.get_rng_state()}
        if self.learner.reference_kept:
            tensors["reference"] = self.learner.reference_tensors()
        return tensors


class WorkerGroup:
    """All ranks, as used from the first rank's event loop. Commands run one at a time in a separate thread."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._thread = ThreadPoolExecutor(1, "ludus-learner")
        self._in_step = True
        """Whether all ranks wait for a command. Stays False after a command failed halfway."""
        self._weights: Iterator[tuple[str, Tensor]] = iter(())
        """The iterator that `weights` returned last."""

    @property
    def can_save(self) -> bool:
        """Whether the learner is between two updates and every rank waits for a command."""
        return self._worker.learner.whole and (self._in_step or self._worker.parallel.world == 1)

    async def command(self, method: Callable[Concatenate[Worker, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a method of `Worker` on every rank and return its result on this rank."""

        def run() -> R:
            self._in_step = False
            self._worker.parallel.broadcast((method, args, kwargs))
            result = method(self._worker, *args, **kwargs)
            self._in_step = True
            return result

        future = asyncio.get_running_loop().run_in_executor(self._thread, run)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            # A collective cannot be interrupted, so a cancellation takes effect when the command has ended.
            await asyncio.gather(future, return_exceptions=True)
            raise

    async def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Return an iterator of the policy's tensors, which gathers them from all ranks and must be exhausted."""
        tensors = await self.command(Worker.weights)
        assert tensors is not None
        self._in_step = False

        def until_the_end() -> Iterator[tuple[str, Tensor]]:
            yield from tensors
            self._in_step = True

        self._weights = until_the_end()
        return self._weights

    async def drain_weights(self) -> None:
        """Gather the rest of the weights after their receiver failed, so that all ranks wait for a command again."""
        with suppress(ValueError):  # raised when a thread that never returned is still iterating
            await asyncio.get_running_loop().run_in_executor(self._thread, deque, self._weights, 0)

    async def shutdown(self) -> None:
        """Let the other ranks end, because no more commands follow. After a failure torchrun ends them instead."""
        if self._in_step:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._worker.parallel.broadcast, None)
        self._thread.shutdown()


def worker_loop(worker: Worker) -> None:
    """Run commands until there are no more. All ranks except the first one do this."""
    ignore_signals()
    nothing: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]] | None = None
    while (command := worker.parallel.broadcast(nothing)) is not None:
        method, args, kwargs = command
        method(worker, *args, **kwargs)
