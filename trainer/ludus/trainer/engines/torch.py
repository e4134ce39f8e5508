"""Sampling inside this process: continuous batching over cached keys and values, on a CPU or one GPU.

Every iteration is one forward pass over all that is to be done: one token of each sequence that is being sampled, and
the new tokens of prompts that came in. They are packed end to end, so that no layer computes padding; attention alone
sees single sequences (`slot_attention`, which any Hugging Face model with exchangeable attention calls).

A sequence lives in a row of the cache. An episode keeps its row between turns, so that a turn costs only the tokens
that are new; what begins like another row's tokens, as the prompts of a group do, is copied and not computed.
"""

from __future__ import annotations

import asyncio
import copy
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from transformers import AttentionInterface, AutoModelForCausalLM, PreTrainedModel
from transformers.initialization import no_init_weights

from ludus.trainer.config import TorchEngineConfig
from ludus.trainer.engines.base import Engine, Generation, Sampling, WeightUpdate
from ludus.trainer.errors import ConfigError, EngineError, ModelError

_PASS_TOKENS: Final = 4096
"""The most prompt tokens of one pass; longer prompts take several, and sampling goes on between them."""
_LEAST_WIDTH: Final = 256
_LEAST_SHARED: Final = 8
"""Fewer tokens than this are computed rather than copied from another row."""
_CLOSING_SECONDS: Final = 30.0

Ints = NDArray[np.int64]
_Answer = tuple["asyncio.Future[Any]", Any]


# --- attention over rows of the cache ---------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Group:
    """Sequences that attend together: B rows of the cache, with T queries each."""

    rows: slice | Tensor
    queries: Tensor
    """[B, T]: where in the pass each query is; padding repeats some other one."""
    positions: Tensor
    """[B, T]: a query sees the keys up to its own position."""
    length: int
    """Keys looked at: one more than the greatest position."""
    kept: Tensor | None
    """Which of the B × T are no padding; None: all."""
    masks: dict[int | None, Tensor] = field(default_factory=dict)

    def mask(self, window: int | None) -> Tensor:
        """Where a query may look: [B, 1, T, length], of the sliding window if there is one."""
        if window not in self.masks:
            keys = torch.arange(self.length, device=self.positions.device)
            mask = keys <= self.positions[..., None]
            if window is not None:
                mask &= keys > self.positions[..., None] - window
            self.masks[window] = mask[:, None]
        return self.masks[window]


@dataclass(slots=True, eq=False)
class _Pass:
    """What attention must know of one forward pass over `tokens` packed tokens."""

    groups: list[_Group]
    cache: _Cache | None = None
    """None: the pass is one sequence, which is its own cache."""
    rows: Tensor | None = None
    positions: Tensor | None = None


class _Cache:
    """Keys and values of each layer, [rows, heads, width, dim], made when the layer is first called."""

    def __init__(self, rows: int, width: int) -> None:
        self.rows = rows
        self.width = width
        self.layers: dict[int, tuple[Tensor, Tensor]] = {}
        self._index: tuple[_Pass, int, Tensor] | None = None

    def store(self, layer: int, key: Tensor, value: Tensor, work: _Pass) -> tuple[Tensor, Tensor]:
        """Write what was computed for the tokens of a pass ([heads, tokens, dim] each); the whole layer's cache."""
        if layer not in self.layers:
            # Zeros, because a masked value is multiplied by 0, which does not remove a NaN.
            self.layers[layer] = tuple(  # type: ignore[assignment]
                new.new_zeros(self.rows, len(new), self.width, new.shape[-1]) for new in (key, value)
            )
        for cached, new in zip(self.layers[layer], (key, value), strict=True):
            flat = new.transpose(0, 1).reshape(-1, new.shape[-1])
            cached.view(-1, new.shape[-1]).index_copy_(0, self._places(work, len(new)), flat)
        return self.layers[layer]

    def _places(self, work: _Pass, heads: int) -> Tensor:
        if self._index is None or self._index[0] is not work or self._index[1] != heads:
            assert work.rows is not None
            assert work.positions is not None
            head = work.rows[:, None] * heads + torch.arange(heads, device=work.rows.device)
            self._index = (work, heads, (head * self.width + work.positions[:, None]).view(-1))
        return self._index[2]

    def copy(self, source: int, target: int, tokens: int) -> None:
        """Copy the beginning of a row to another."""
        for pair in self.layers.values():
            for cached in pair:
                cached[target, :, :tokens] = cached[source, :, :tokens]

    def swap(self, one: int, other: int, tokens: int) -> None:
        """Exchange the beginnings of two rows."""
        for pair in self.layers.values():
            for cached in pair:
                cached[[one, other], :, :tokens] = cached[[other, one], :, :tokens]


def slot_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    slots: _Pass | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention of packed tokens, each over its own row of the cache.

    Shapes are those of transformers' attention interface with a batch of one: `query`, `key` and `value` are
    [1, heads, tokens, dim], and the result [1, tokens, heads, dim].
    """
    if slots is None or others.get("softcap") is not None or others.get("s_aux") is not None:
        raise ModelError(f"{type(module).__name__} needs a kind of attention that the torch engine has not; use vllm")
    if slots.cache is None:
        keys, values = key, value
    else:
        keys, values = slots.cache.store(module.layer_idx, key[0], value[0], slots)  # type: ignore[arg-type]
    packed = query[0].transpose(0, 1)
    parts = []
    for group in slots.groups:
        result = _attend(
            packed[group.queries],
            keys[group.rows][:, :, : group.length],
            values[group.rows][:, :, : group.length],
            group.mask(sliding_window),
            scaling if scaling is not None else query.shape[-1] ** -0.5,
        ).flatten(0, 1)
        parts.append(result if group.kept is None else result[group.kept])
    return (parts[0] if len(parts) == 1 else torch.cat(parts))[None], None


def _attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float) -> Tensor:
    """[B, T, heads, dim] queries over [B, kv heads, length, dim]: [B, T, heads, dim]."""
    batch, length, heads, _ = query.shape
    shared = heads // key.shape[1]
    if length > 1:
        if shared > 1:
            key, value = key.repeat_interleave(shared, 1), value.repeat_interleave(shared, 1)
        out = functional.scaled_dot_product_attention(query.transpose(1, 2), key, value, mask, scale=scale)
        return out.transpose(1, 2)
    # One query: the heads that share keys take the place of the queries, so that keys are read once.
    query = query.view(batch, -1, shared, query.shape[-1])
    if query.device.type == "cpu":
        # Two batched products are faster than the fused kernel, which is made for many queries.
        weights = torch.matmul(query * scale, key.transpose(2, 3)).masked_fill_(~mask, -1e30).softmax(-1)
        return torch.matmul(weights, value).view(batch, 1, heads, -1)
    out = functional.scaled_dot_product_attention(query, key, value, mask.expand(-1, -1, shared, -1), scale=scale)
    return out.reshape(batch, 1, heads, -1)


AttentionInterface.register("ludus_slots", slot_attention)


# --- the sequences ----------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Request:
    """Somebody waits for a generation."""

    ids: Ints
    sampling: Sampling
    seed: int
    session: str
    future: asyncio.Future[Generation]
    row: int = -1

    @property
    def limit(self) -> int:
        """The most tokens it may come to."""
        return len(self.ids) + self.sampling.max_tokens


class _Batch:
    """All sequences, and the passes over them. Used by the engine's thread alone.

    A row holds `length` tokens, of which `ready` have cached keys and values. What is running and not ready is computed
    by the next passes; a row that does not run keeps what it has for whoever needs it again.
    """

    def __init__(self, model: PreTrainedModel, config: TorchEngineConfig, context: int) -> None:
        self.model = model
        self.config = config
        self.context = context
        self.version = -1
        self.waiting: deque[_Request] = deque()
        self.running: dict[int, _Request] = {}
        self.sessions: dict[str, int] = {}
        self.clock = 0
        self.tokens = np.zeros((0, 0), np.int32)
        self.logprobs = np.zeros((0, 0), np.float32)
        self.versions = np.zeros((0, 0), np.int64)
        self.length, self.ready, self.start, self.limit, self.used = np.zeros((5, 0), np.int64)
        self.active = np.zeros(0, bool)
        self.temperature = np.zeros(0)
        self.seed = np.zeros(0, np.uint64)
        self.stop = np.zeros((0, 1), np.int64)
        self._allocate(min(context, _LEAST_WIDTH))

    def _allocate(self, width: int) -> None:
        """Rows of `width` tokens, as many as the budget allows. What runs goes on in the first of them and is computed
        again, which is simpler than moving it, and rare."""
        rows, order = self.config.cache_tokens // width, list(self.running)
        for name in ("tokens", "logprobs", "versions"):
            wide = np.zeros((rows, width), getattr(self, name).dtype)
            wide[: len(order), : getattr(self, name).shape[1]] = getattr(self, name)[order]
            setattr(self, name, wide)
        for name in ("length", "start", "limit", "used", "active", "temperature", "seed", "stop"):
            old = getattr(self, name)
            new = np.zeros((rows, *old.shape[1:]), old.dtype)
            new[: len(order)] = old[order]
            setattr(self, name, new)
        self.ready = np.zeros(rows, np.int64)
        self.cache = _Cache(rows, width)
        self.slots = min(self.config.slots, rows)
        self.running = dict(enumerate(self.running.values()))
        for row, request in self.running.items():
            request.row = row
        self.sessions = {request.session: row for row, request in self.running.items()}

    def add(self, request: _Request) -> None:
        """Let it begin as soon as there is room."""
        self.waiting.append(request)

    def cancel(self, request: _Request) -> None:
        """Nobody waits for it any more."""
        if self.running.get(request.row) is request:
            self._release(request.row)
        elif request in self.waiting:
            self.waiting.remove(request)

    def forget(self, session: str) -> None:
        """Its row is the first to be used for something else; until then, others may copy from it."""
        row = self.sessions.pop(session, None)
        if row is not None and not self.active[row]:
            self.used[row] -= 1 << 40

    def invalidate(self) -> None:
        """The weights changed: nothing that was cached holds any more."""
        self.ready[:] = 0

    def drop(self) -> list[_Request]:
        """Give up everything that waits or runs, and the cache, which may hold NaN."""
        requests = [*self.running.values(), *self.waiting]
        self.running.clear()
        self.waiting.clear()
        self._allocate(self.cache.width)
        return requests

    # --- where a request goes

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self.slots:
            request = self.waiting[0]
            if request.limit > self.cache.width and not self._widen(request.limit):
                return
            self.waiting.popleft()
            row = self._row_for(request.session)
            ids = request.ids
            kept = min(int(self.ready[row]), len(ids) - 1)
            same = self.tokens[row, :kept] == ids[:kept]
            self.ready[row] = kept if same.all() else same.argmin()
            self.tokens[row, : len(ids)] = ids
            self.length[row] = len(ids)
            self._place(request, row)

    def _place(self, request: _Request, row: int) -> None:
        request.row = row
        self.running[row] = request
        self.sessions[request.session] = row
        self.active[row] = True
        self.start[row] = len(request.ids)
        self.limit[row] = request.limit
        self.temperature[row] = request.sampling.temperature
        self.seed[row] = _mix(np.array([request.seed % (1 << 64)], np.uint64))[0]
        stop = request.sampling.stop
        if len(stop) > self.stop.shape[1]:
            more = np.full((len(self.stop), len(stop) - self.stop.shape[1]), -1, np.int64)
            self.stop = np.concatenate([self.stop, more], axis=1)
        self.stop[row] = -1
        self.stop[row, : len(stop)] = stop

    def _release(self, row: int) -> None:
        request = self.running.pop(row)
        self.active[row] = False
        self.clock += 1
        self.used[row] = self.clock
        if self.sessions.get(request.session) != row:
            self.used[row] -= 1 << 40

    def _widen(self, needed: int) -> bool:
        """Make rows longer, unless that leaves too few for what runs; then it waits for some to end."""
        width = min(self.context, 1 << (needed - 1).bit_length())
        if self.config.cache_tokens // width <= len(self.running):
            return False
        self._allocate(width)
        return True

    def _row_for(self, session: str) -> int:
        """The session's own row, or the one not used for the longest time; moved among the first `slots` rows, which
        are those that decode."""
        row = self.sessions.get(session, -1)
        if row < 0 or self.active[row]:
            row = self._oldest(len(self.used))
            self.ready[row] = 0
            for name in [name for name, other in self.sessions.items() if other == row]:
                del self.sessions[name]
        if row >= self.slots:
            slot = self._oldest(self.slots)
            self._swap(row, slot)
            row = slot
        return row

    def _oldest(self, rows: int) -> int:
        return int(np.where(self.active[:rows], np.iinfo(np.int64).max, self.used[:rows]).argmin())

    def _swap(self, one: int, other: int) -> None:
        self.cache.swap(one, other, int(max(self.ready[one], self.ready[other])))
        for values in (self.tokens, self.length, self.ready, self.used):
            values[[one, other]] = values[[other, one]]
        places = {one: other, other: one}
        self.sessions = {name: places.get(row, row) for name, row in self.sessions.items()}

    # --- one pass

    def step(self) -> list[_Answer]:
        """Admit, compute one pass, sample; the generations that ended with it."""
        self._admit()
        pending = np.where(self.active, self.length - self.ready, 0)
        decoding = np.flatnonzero(pending == 1)
        chunks = self._chunks(np.flatnonzero(pending > 1))
        if not len(decoding) and not chunks:
            return []
        rows = np.concatenate([decoding, *(np.full(stop - start, row) for row, start, stop in chunks)])
        positions = np.concatenate([self.ready[decoding], *(np.arange(start, stop) for _, start, stop in chunks)])
        groups = [self._decoding_group(decoding)] if len(decoding) else []
        groups += self._prompt_groups(chunks, len(decoding))
        work = _Pass(groups, self.cache, self._tensor(rows), self._tensor(positions))
        self.ready[decoding] += 1
        for row, _, stop in chunks:
            self.ready[row] = stop
        # The rows whose last token is among these; what follows it is sampled.
        last = np.flatnonzero(positions == self.length[rows] - 1)
        logits = self._forward(self.tokens[rows, positions], work, self._tensor(last))
        return self._sample(rows[last], logits)

    def _forward(self, ids: NDArray[Any], work: _Pass, keep: Tensor) -> Tensor:
        output = self.model(
            input_ids=self._tensor(ids.astype(np.int64))[None],
            position_ids=self._tensor(np.arange(len(ids)))[None] if work.positions is None else work.positions[None],
            use_cache=False,
            logits_to_keep=keep,
            slots=work,
        )
        logits: Tensor = output.logits[0]
        return logits

    def _tensor(self, values: NDArray[Any]) -> Tensor:
        return torch.from_numpy(values).to(self.model.device, non_blocking=True)

    def _sample(self, rows: Ints, logits: Tensor) -> list[_Answer]:
        """One token for each of `rows`, by inverting the distribution function at the request's own random number."""
        if not len(rows):
            return []
        logits = logits.float()
        if (self.temperature[rows] != 1.0).any():
            logits = logits.double() / self._tensor(np.maximum(self.temperature[rows], 1e-9))[:, None]
        logprobs = logits.log_softmax(-1)
        cumulative = logprobs.exp().cumsum(-1, dtype=torch.float64)
        point = self._tensor(_uniform(self.seed[rows], self.length[rows] - self.start[rows]))[:, None]
        chosen = torch.searchsorted(cumulative, point * cumulative[:, -1:], right=True).clamp_(max=logits.shape[1] - 1)
        values = logprobs.gather(1, chosen)[:, 0].cpu().numpy()
        if not np.isfinite(values).all():
            raise EngineError(f"weights of version {self.version} give NaN in place of probabilities")
        ids = chosen[:, 0].cpu().numpy()
        at = self.length[rows]
        self.tokens[rows, at] = ids
        self.logprobs[rows, at] = values
        self.versions[rows, at] = self.version
        self.length[rows] = at + 1
        stopped = (self.stop[rows] == ids[:, None]).any(1)
        ended = stopped | (at + 1 == self.limit[rows])
        return [self._finish(int(row), bool(stop)) for row, stop in zip(rows[ended], stopped[ended], strict=True)]

    def _finish(self, row: int, stopped: bool) -> _Answer:
        request = self.running[row]
        span = slice(int(self.start[row]), int(self.length[row]))
        ids, logprobs, versions = (
            tuple(values[row, span].tolist()) for values in (self.tokens, self.logprobs, self.versions)
        )
        self._release(row)
        return request.future, Generation(ids, logprobs, versions, "stop" if stopped else "length")

    def sequence_logprobs(self, ids: Ints) -> list[float]:
        """Of each of the ids but the first, in one pass that leaves the cache alone."""
        positions = self._tensor(np.arange(len(ids)))
        group = _Group(slice(0, 1), positions[None], positions[None], len(ids), None)
        logits = self._forward(ids, _Pass([group]), positions)[:-1]
        values: list[float] = logits.float().log_softmax(-1).gather(1, self._tensor(ids[1:])[:, None])[:, 0].tolist()
        return values

    def _chunks(self, rows: Ints) -> list[tuple[int, int, int]]:
        """Which tokens of which prompts to compute now: row, first, end. Those of like length are neighbours."""
        counts: dict[int, int] = {}
        left = _PASS_TOKENS
        for row in map(int, rows):
            if left and (self.ready[row] or self._borrow(row, counts)):
                counts[row] = min(int(self.length[row] - self.ready[row]), left)
                left -= counts[row]
        ordered = sorted(counts, key=lambda row: counts[row])
        return [(row, int(self.ready[row]), int(self.ready[row]) + counts[row]) for row in ordered]

    def _borrow(self, row: int, counts: Mapping[int, int]) -> bool:
        """Copy the longest beginning that another row has in common. False: one that this pass computes is longer, so
        that it is better to wait for it."""
        length = int(self.length[row]) - 1
        same = self.tokens[:, :length] == self.tokens[row, :length]
        common = np.where(same.all(1), length, same.argmin(1))
        common[row] = 0
        present = np.minimum(common, self.ready)
        source = int(present.argmax())
        shared = int(present[source])
        coming = max((min(int(common[r]), int(self.ready[r]) + count) for r, count in counts.items()), default=0)
        if coming >= shared + _LEAST_SHARED:
            return False
        if shared >= _LEAST_SHARED:
            self.cache.copy(source, row, shared)
            self.ready[row] = shared
        return True

    def _decoding_group(self, rows: Ints) -> _Group:
        """All rows up to the last that decodes, gaps included: looking at a gap is cheaper than moving the others."""
        count, span = len(rows), int(rows[-1]) + 1
        length = int(self.ready[rows].max()) + 1
        if 2 * count < span:
            queries, positions = np.arange(count), self.ready[rows]
            return _Group(
                self._tensor(rows), self._tensor(queries)[:, None], self._tensor(positions)[:, None], length, None
            )
        queries, positions = np.zeros((2, span), np.int64)
        queries[rows], positions[rows] = np.arange(count), self.ready[rows]
        kept = None if count == span else self._tensor(rows)
        return _Group(slice(0, span), self._tensor(queries)[:, None], self._tensor(positions)[:, None], length, kept)

    def _prompt_groups(self, chunks: Sequence[tuple[int, int, int]], place: int) -> list[_Group]:
        """Chunks side by side, padded to the longest; those of less than half its length make a group of their own."""
        groups = []
        for _, members in groupby(chunks, lambda chunk: (chunk[2] - chunk[1]).bit_length()):
            rows, starts, stops = np.array(list(members), np.int64).T
            counts = stops - starts
            offsets = np.arange(int(counts.max()))
            inside = offsets < counts[:, None]
            first = place + np.cumsum(counts) - counts
            queries = first[:, None] + np.where(inside, offsets, 0)
            positions = starts[:, None] + np.where(inside, offsets, 0)
            kept = None if inside.all() else self._tensor(np.flatnonzero(inside))
            groups.append(
                _Group(self._tensor(rows), self._tensor(queries), self._tensor(positions), int(stops.max()), kept)
            )
            place += int(counts.sum())
        return groups


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finalizer (Steele, Lea and Flood, 2014): each bit of the result depends on all bits."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _uniform(seeds: NDArray[np.uint64], counters: Ints) -> NDArray[np.float64]:
    """The number in [0, 1) that each request uses for its token of that index: SplitMix64 of its seed."""
    mixed = _mix(seeds + (counters.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15))
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


# --- the engine -------------------------------------------------------------------------------------------------------


class TorchEngine(Engine):
    """Samples in this process, in a thread of its own.

    Args:
        model: whose weights to begin with; the engine keeps a copy.
        config: how many sequences at once, and how large a cache.
        context: the most tokens of a request.
        device: where to compute; the model's when left out.
        dtype: what to compute in; the model's when left out.

    Raises:
        ConfigError: the cache cannot hold one request of `context` tokens.
        ModelError: the model's attention is not of the kind that can be cached here.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        config: TorchEngineConfig,
        *,
        context: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if context > config.cache_tokens:
            raise ConfigError(
                f"engine.torch.cache_tokens ({config.cache_tokens}) must be at least rollouts.context ({context})"
            )
        self._model = _own_copy(model, torch.device(device or model.device), dtype or model.dtype)
        self._weights: dict[str, Tensor] = self._model.state_dict()
        self._vocabulary: int = self._model.config.get_text_config().vocab_size
        self._batch = _Batch(self._model, config, context)
        self._context = context
        self._inbox: deque[tuple[Callable[[], Any], asyncio.Future[Any] | None]] = deque()
        self._wake = threading.Event()
        self._closing = False
        self._broken: str | None = None
        self._thread = threading.Thread(target=self._work, name="torch-engine", daemon=True)
        self._thread.start()

    @property
    def version(self) -> int:
        """See `Engine`."""
        return self._batch.version

    @property
    def context(self) -> int:
        """See `Engine`."""
        return self._context

    async def generate(self, ids: Sequence[int], sampling: Sampling, *, seed: int, session: str) -> Generation:
        """See `Engine`."""
        prompt = self._checked(ids)
        if sampling.max_tokens < 1 or not sampling.temperature >= 0:
            raise EngineError(f"{sampling} cannot be sampled with: at least 1 token and a temperature of at least 0")
        if len(prompt) + sampling.max_tokens > self._context:
            raise EngineError(
                f"a prompt of {len(prompt)} tokens and {sampling.max_tokens} more exceed the context of "
                f"{self._context}; ask for fewer, or raise rollouts.context"
            )
        request = _Request(prompt, sampling, seed, session, asyncio.get_running_loop().create_future())
        self._post(lambda: self._batch.add(request), request.future)
        try:
            return await request.future
        except asyncio.CancelledError:
            self._post(lambda: self._batch.cancel(request))
            raise

    async def logprobs(self, ids: Sequence[int]) -> list[float]:
        """See `Engine`."""
        sequence = self._checked(ids)
        return list(await self._call(lambda: self._probe(sequence)))

    async def update_weights(self, update: WeightUpdate) -> None:
        """See `Engine`. `update.tensors` is read in the engine's thread."""
        await self._call(lambda: self._load(update))

    async def forget(self, session: str) -> None:
        """See `Engine`."""
        self._post(lambda: self._batch.forget(session))

    async def aclose(self) -> None:
        """Stop the thread; what still waits gets an `EngineError`."""
        self._closing = True
        self._wake.set()
        await asyncio.to_thread(self._thread.join, _CLOSING_SECONDS)
        if self._thread.is_alive():
            raise EngineError(f"the torch engine did not end its pass within {_CLOSING_SECONDS:.0f} s")

    def _checked(self, ids: Sequence[int]) -> Ints:
        array = np.asarray(ids, np.int64)
        if not 0 < len(array) <= self._context:
            raise EngineError(f"a sequence must have 1 to {self._context} tokens, not {len(array)}")
        if array.min() < 0 or array.max() >= self._vocabulary:
            raise EngineError(f"token ids must be from 0 to {self._vocabulary - 1}, not {array.min()} to {array.max()}")
        return array

    # --- between the event loop and the thread

    def _post(self, action: Callable[[], Any], future: asyncio.Future[Any] | None = None) -> None:
        if future is not None and self._closing:
            raise EngineError("the torch engine is closed")
        self._inbox.append((action, future))
        self._wake.set()

    async def _call(self, action: Callable[[], Any]) -> Any:
        """Do something in the thread, between two passes."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._post(lambda: [(future, action())], future)
        return await future

    def _work(self) -> None:
        with torch.inference_mode():
            while not self._closing:
                self._wake.clear()
                answers = self._take()
                if self._batch.waiting or self._batch.running:
                    _deliver(answers + self._step())
                else:
                    _deliver(answers)
                    self._wake.wait()
        left = [future for _, future in self._inbox if future] + [request.future for request in self._batch.drop()]
        _deliver([(future, EngineError("the torch engine was closed")) for future in left])

    def _take(self) -> list[_Answer]:
        """Do what was posted."""
        answers: list[_Answer] = []
        while self._inbox and not self._closing:
            action, future = self._inbox.popleft()
            try:
                answers += action() or []
            except Exception as error:
                answers += [(future, _failure(error))] if future else []
        return answers

    def _step(self) -> list[_Answer]:
        """One pass; when it fails, everybody who waits is told, and the next one begins afresh."""
        try:
            self._refuse_mixture()
            return self._batch.step()
        except Exception as error:
            return [(request.future, _failure(error)) for request in self._batch.drop()]

    def _probe(self, ids: Ints) -> list[float]:
        self._refuse_mixture()
        return self._batch.sequence_logprobs(ids)

    def _refuse_mixture(self) -> None:
        if self._broken:
            raise EngineError(f"{self._broken}, so the torch engine holds a mixture of weights; update them again")

    def _load(self, update: WeightUpdate) -> None:
        self._broken = f"the update to version {update.version} did not end"
        left = {tensor.data_ptr(): name for name, tensor in self._weights.items()}
        for name, tensor in update.tensors:
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


def _own_copy(model: PreTrainedModel, device: torch.device, dtype: torch.dtype) -> PreTrainedModel:
    """The same weights in a model of its own, whose attention is `slot_attention`."""
    kinds = set(getattr(model.config, "layer_types", None) or ()) - {"full_attention", "sliding_attention"}
    if kinds or not model._supports_attention_backend:
        what = f"layers of {', '.join(sorted(kinds))}" if kinds else "an attention that cannot be exchanged"
        raise ModelError(f"{type(model).__name__} has {what}; the torch engine cannot run it: set engine.kind to vllm")
    # Not a deep copy in another dtype: that would round the rotary frequencies too.
    with torch.random.fork_rng(devices=[]), no_init_weights(), device:
        own: PreTrainedModel = AutoModelForCausalLM.from_config(
            copy.deepcopy(model.config), dtype=dtype, attn_implementation="ludus_slots"
        )
    own.load_state_dict(model.state_dict())
    return own.eval().requires_grad_(False)


def _failure(error: Exception) -> EngineError:
    """An error of its own for each who waits, since raising one adds to its traceback."""
    if isinstance(error, EngineError):
        return EngineError(str(error))
    advice = "; lower engine.torch.cache_tokens or slots" if isinstance(error, torch.OutOfMemoryError) else ""
    failure = EngineError(f"the torch engine failed: {type(error).__name__}: {error}{advice}")
    failure.__cause__ = error
    return failure


def _deliver(answers: list[_Answer]) -> None:
    """Wake the event loop once for all."""
    if answers:
        with suppress(RuntimeError):  # The loop is closed, so nobody waits.
            answers[0][0].get_loop().call_soon_threadsafe(_settle, answers)


def _settle(answers: list[_Answer]) -> None:
    for future, result in answers:
        if future.done():
            continue
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)
