"""Sampling inside this process: continuous batching over cached keys and values, on a CPU or one GPU.

This module is the part between the event loop and the engine's thread. `ludus.trainer.engines.batch` explains the
passes, `decoder` computes them, and `attention` holds the cache. A model with recurrent layers has another cache and is
computed row by row: `states`.
"""

from __future__ import annotations

import asyncio
import copy
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.initialization import no_init_weights

from ludus.trainer.core.config import TorchEngineConfig
from ludus.trainer.core.errors import ConfigError, EngineError
from ludus.trainer.engines.attention import NAME
from ludus.trainer.engines.base import Generation, Sampling, WeightUpdate
from ludus.trainer.engines.batch import Answer, Batch, Ints, Request
from ludus.trainer.engines.clock import PlayClock
from ludus.trainer.engines.states import find_states
from ludus.trainer.learning.checkpoint_names import kept_tensors
from ludus.trainer.learning.rows import Traits, set_attention, traits_of

_CLOSING_SECONDS: Final = 30.0
T = TypeVar("T")
Action = tuple[Callable[[], Any], "asyncio.Future[Any] | None"]
"""A function, and the future of its result."""


class TorchEngine:
    """An engine that samples in a separate thread of this process.

    Args:
        model: the model with the initial weights; the engine keeps a copy.
        config: the number of sequences decoded at once, and the size of the cache.
        context: the maximum number of tokens of a request.
        dtype: the dtype to compute in; the model's when left out.

    Raises:
        ConfigError: the cache cannot hold one request of `context` tokens.
        ModelError: see `traits_of`.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        config: TorchEngineConfig,
        *,
        context: int,
        dtype: torch.dtype | None = None,
    ) -> None:
        if context > config.cache_tokens:
            raise ConfigError(
                f"engine.torch.cache_tokens ({config.cache_tokens}) must be at least rollouts.context ({context})"
            )
        traits = traits_of(model)
        self._model = _own_copy(model, traits, dtype or model.dtype)
        self._vocabulary: int = self._model.config.get_text_config().vocab_size
        states = None if traits.rows == "shared" else find_states(self._model, dtype or model.dtype)
        self._batch = Batch(self._model, config, context, states)
        self._weights: dict[str, Tensor] = self._model.state_dict()  # After Batch, whose decoder replaces tensors.
        self.context = context
        self.clock = PlayClock()
        self._inbox: queue.SimpleQueue[Action | None] = queue.SimpleQueue()
        """Actions to run between two passes; None ends the thread."""
        self._closed = False
        self._broken: str | None = None
        """Why the weights are a mixture, if they are."""
        self._thread = threading.Thread(target=self._work, name="torch-engine", daemon=True)
        self._thread.start()

    @property
    def version(self) -> int:
        """See `Engine`."""
        return self._batch.version

    async def generate(self, ids: Sequence[int], sampling: Sampling, *, seed: int, session: str) -> Generation:
        """See `Engine`."""
        prompt = self._checked(ids)
        if sampling.max_tokens < 1 or not sampling.temperature >= 0:
            raise EngineError(f"{sampling} cannot be sampled with: at least 1 token and a temperature of at least 0")
        if len(prompt) + sampling.max_tokens > self.context:
            raise EngineError(
                f"a prompt of {len(prompt)} tokens and {sampling.max_tokens} more exceed the context of "
                f"{self.context}; ask for fewer, or raise rollouts.context"
            )
        if self._closed:
            raise EngineError("the torch engine is closed")
        request = Request(prompt, sampling, seed, session, asyncio.get_running_loop().create_future())
        self._inbox.put((lambda: self._batch.waiting.append(request), None))
        try:
            return await request.future
        except asyncio.CancelledError:
            self._inbox.put((lambda: self._batch.cancel(request), None))
            raise

    async def logprobs(self, ids: Sequence[int]) -> dict[str, list[float]]:
        """See `Engine`."""
        sequence = self._checked(ids)

        def compute() -> list[float]:
            self._require_whole()
            return self._batch.sequence_logprobs(sequence)

        return {"the engine": await self._call(compute)}

    async def update_weights(self, update: WeightUpdate) -> None:
        """See `Engine`. `update.tensors` is read in the engine's thread."""
        with self.clock.paused():
            await self._call(lambda: self._load(update))

    async def read_weights(self, read: Callable[[Mapping[str, Tensor]], T]) -> T:
        """Return `read(weights)`, which the engine's thread calls between two passes with its own weights by name."""
        result: T = await self._call(lambda: read(self._weights))
        return result

    async def forget(self, session: str) -> None:
        """See `Engine`."""
        self._inbox.put((lambda: self._batch.forget(session), None))

    async def aclose(self) -> None:
        """Stop the thread; open requests fail with an `EngineError`."""
        self._closed = True
        self._inbox.put(None)
        await asyncio.to_thread(self._thread.join, _CLOSING_SECONDS)
        if self._thread.is_alive():
            raise EngineError(f"the torch engine did not end its pass within {_CLOSING_SECONDS:.0f} s")

    def _checked(self, ids: Sequence[int]) -> Ints:
        array = np.asarray(ids, np.int64)
        if not 0 < len(array) <= self.context:
            raise EngineError(f"a sequence must have 1 to {self.context} tokens, not {len(array)}")
        if array.min() < 0 or array.max() >= self._vocabulary:
            raise EngineError(f"token ids must be from 0 to {self._vocabulary - 1}, not {array.min()} to {array.max()}")
        return array

    # --- between the event loop and the thread

    async def _call(self, action: Callable[[], Any]) -> Any:
        """Run an action in the thread between two passes and return its result."""
        if self._closed:
            raise EngineError("the torch engine is closed")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._inbox.put((action, future))
        return await future

    @torch.inference_mode()
    def _work(self) -> None:
        """Run the actions and then a pass, again and again, until the engine is closed."""
        batch, answers = self._batch, list[Answer]()
        while True:
            try:
                item = self._inbox.get(block=not (answers or batch.waiting or batch.running))
            except queue.Empty:  # deliver the actions' results with those of one pass
                _deliver(answers + self._step())
                answers = []
                continue
            if item is None:
                break
            action, future = item
            try:
                result = action()
            except Exception as error:
                result = _failure(error)
            answers += [(future, result)] if future else []
        closed = [(request.future, EngineError("the torch engine was closed")) for request in batch.drop()]
        _deliver(answers + closed)

    def _step(self) -> list[Answer]:
        """Compute one pass. If it fails, fail all requests and start again with an empty cache."""
        try:
            if self._batch.waiting or self._batch.running:
                self._require_whole()
                return self._batch.step()
            return []
        except Exception as error:
            return [(request.future, _failure(error)) for request in self._batch.drop()]

    def _require_whole(self) -> None:
        if self._broken:
            raise EngineError(f"{self._broken}, so the torch engine holds a mixture of weights; update them again")

    def _load(self, update: WeightUpdate) -> None:
        self._broken = f"the update to version {update.version} did not end"
        left = {tensor.data_ptr(): name for name, tensor in self._weights.items()}
        for name, tensor in _outside_inference(update.tensors):
            target = self._weights.get(name)
            if target is None or target.shape != tensor.shape:
                expected = "no such weight" if target is None else f"a weight of shape {tuple(target.shape)}"
                raise EngineError(f"{name} {tuple(tensor.shape)} does not fit: the model has {expected} there")
            target.copy_(tensor)
            left.pop(target.data_ptr(), None)
        if left:
            raise EngineError(f"the update to version {update.version} lacks {', '.join(sorted(left.values()))}")
        self._broken = None
        self._batch.version = update.version
        self._batch.invalidate()


def _outside_inference(tensors: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors, each computed outside inference mode, in which sharded ones (DTensor) cannot be gathered."""
    source = iter(tensors)
    while True:
        with torch.inference_mode(False), torch.no_grad():
            item = next(source, None)
        if item is None:
            return
        yield item


def _own_copy(model: PreTrainedModel, traits: Traits, dtype: torch.dtype) -> PreTrainedModel:
    """Return a copy of the model with the same weights and the engine's attention: `slot_attention` if only attention
    looks at other tokens, and otherwise transformers' own."""
    # Not a deep copy converted to another dtype, because that would round the rotary frequencies too.
    with torch.random.fork_rng(devices=[]), no_init_weights(), model.device:
        own: PreTrainedModel = AutoModelForCausalLM.from_config(
            copy.deepcopy(model.config), dtype=dtype, attn_implementation="eager"
        )
    set_attention(own, NAME if traits.rows == "shared" else traits.alone)
    own.tie_weights()  # `no_init_weights` leaves tied weights apart
    for name, tensor in kept_tensors(model):
        if not isinstance(tensor, nn.Parameter):
            # A router's bias that is rounded chooses other experts than the learner's, which is never rounded.
            buffer = own.get_buffer(name)
            buffer.data = buffer.to(tensor.dtype)
    own.load_state_dict(model.state_dict())
    return own.eval().requires_grad_(False)


def _failure(error: Exception) -> EngineError:
    """Return a new EngineError for one caller, because raising a shared error would add to its traceback each time."""
    if isinstance(error, EngineError):
        return EngineError(str(error))
    advice = "; lower engine.torch.cache_tokens or slots" if isinstance(error, torch.OutOfMemoryError) else ""
    failure = EngineError(f"the torch engine failed: {type(error).__name__}: {error}{advice}")
    failure.__cause__ = error
    return failure


def _deliver(answers: list[Answer]) -> None:
    """Deliver all answers with one wake-up of the event loop."""

    def settle() -> None:
        for future, result in answers:
            if future.done():
                continue
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)

    if answers:
        with suppress(RuntimeError):  # The loop is closed, so there are no callers left.
            answers[0][0].get_loop().call_soon_threadsafe(settle)
