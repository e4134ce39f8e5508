"""The torch engine's sequences: which row each one has, what the next forward pass computes, and sampling."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from ludus.trainer.config import TorchEngineConfig
from ludus.trainer.engines.attention import Cache, Group, Pass
from ludus.trainer.engines.base import Generation, Sampling
from ludus.trainer.engines.decoder import forward_of
from ludus.trainer.errors import EngineError

PASS_TOKENS: Final = 4096
"""The most prompt tokens of one pass; longer prompts take several, and sampling goes on between them."""
_LEAST_WIDTH: Final = 256
_LEAST_SHARED: Final = 8
"""Fewer tokens than this are computed rather than copied from another row."""
_FORGOTTEN: Final = 1 << 40
"""How much older a row becomes when its episode is over."""

Ints = NDArray[np.int64]
Answer = tuple["asyncio.Future[Any]", Any]
"""What to tell whom: a result, or the exception to raise."""


@dataclass(slots=True, eq=False)
class Request:
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


class Batch:
    """All sequences, and the passes over them. Used by the engine's thread alone.

    A row holds `length` tokens, of which `ready` have cached keys and values. What is running and not ready is computed
    by the next passes; a row that does not run keeps what it has for whoever needs it again.
    """

    def __init__(self, model: PreTrainedModel, config: TorchEngineConfig, context: int) -> None:
        self.forward = forward_of(model, context)
        self.device = model.device  # The model looks for it among its parameters each time.
        self.config = config
        self.context = context
        self.version = -1
        self.waiting: deque[Request] = deque()
        self.running: dict[int, Request] = {}
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
        self._allocate(config.slots, min(context, _LEAST_WIDTH))

    def _allocate(self, rows: int, width: int) -> None:
        """So many rows of `width` tokens, or what the budget allows. What runs goes on in the first of them and is
        computed again, which is simpler than moving it, and rare."""
        rows, order = min(rows, self.config.cache_tokens // width), list(self.running)
        for name in ("tokens", "logprobs", "versions"):
            wide = np.zeros((rows, width), getattr(self, name).dtype)
            wide[: len(order), : getattr(self, name).shape[1]] = getattr(self, name)[order]
            setattr(self, name, wide)
        for name in ("length", "start", "limit", "used", "active", "temperature", "seed", "stop"):
            old = getattr(self, name)
            new = np.zeros((rows, *old.shape[1:]), old.dtype)
            new[: len(order)] = old[order]
            setattr(self, name, new)
        self.used[len(order) :] = -2 * _FORGOTTEN
        self.ready = np.zeros(rows, np.int64)
        self.cache = Cache(rows, width)
        self.slots = min(self.config.slots, rows)
        self.running = dict(enumerate(self.running.values()))
        for row, request in self.running.items():
            request.row = row
        self.sessions = {request.session: row for row, request in self.running.items()}

    def add(self, request: Request) -> None:
        """Let it begin as soon as there is room."""
        self.waiting.append(request)

    def cancel(self, request: Request) -> None:
        """Nobody waits for it any more."""
        if self.running.get(request.row) is request:
            self._release(request.row)
        elif request in self.waiting:
            self.waiting.remove(request)

    def forget(self, session: str) -> None:
        """Its row is the first to be used for something else; until then, others may copy from it."""
        row = self.sessions.pop(session, None)
        if row is not None and not self.active[row]:
            self.used[row] -= _FORGOTTEN

    def invalidate(self) -> None:
        """The weights changed: nothing that was cached holds any more."""
        self.ready[:] = 0

    def drop(self) -> list[Request]:
        """Give up everything that waits or runs, and the cache, which may hold NaN."""
        requests = [*self.running.values(), *self.waiting]
        self.running.clear()
        self.waiting.clear()
        self._allocate(self.cache.rows, self.cache.width)
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

    def _place(self, request: Request, row: int) -> None:
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
            self.used[row] -= _FORGOTTEN

    def _widen(self, needed: int) -> bool:
        """Make rows longer, unless that leaves too few for what runs; then it waits for some to end."""
        width = min(self.context, 1 << (needed - 1).bit_length())
        if self.config.cache_tokens // width <= len(self.running):
            return False
        self._allocate(self.cache.rows, width)
        return True

    def _row_for(self, session: str) -> int:
        """The session's own row, or the one not used for the longest time, with more rows before a session that goes
        on loses its own. It is moved among the first `slots` rows, which are those that decode."""
        row = self.sessions.get(session, -1)
        if row < 0 or self.active[row]:
            row = self._oldest(self.cache.rows)
            if row in self.sessions.values() and 2 * self.cache.rows * self.cache.width <= self.config.cache_tokens:
                self._allocate(2 * self.cache.rows, self.cache.width)
                row = self._oldest(self.cache.rows)
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

    def step(self) -> list[Answer]:
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
        work = Pass(groups, self._tensor(positions), self._tensor(rows), self.cache)
        self.ready[decoding] += 1
        for row, _, stop in chunks:
            self.ready[row] = stop
        # The rows whose last token is among these; what follows it is sampled.
        last = np.flatnonzero(positions == self.length[rows] - 1)
        keep = self._tensor(last) if len(last) < len(rows) else None
        logits = self.forward(self._tensor(self.tokens[rows, positions].astype(np.int64)), work, keep)
        return self._sample(rows[last], logits)

    def _tensor(self, values: NDArray[Any]) -> Tensor:
        return torch.from_numpy(values).to(self.device, non_blocking=True)

    def _sample(self, rows: Ints, logits: Tensor) -> list[Answer]:
        """One token for each of `rows`, by inverting the distribution function at the request's own random number."""
        if not len(rows):
            return []
        at, logits = self.length[rows], logits.float()
        if (self.temperature[rows] != 1.0).any():
            logits = logits.double() / self._tensor(np.maximum(self.temperature[rows], 1e-9))[:, None]
        probabilities = logits.softmax(-1)
        cumulative = probabilities.cumsum(-1, dtype=torch.float64)
        point = self._tensor(_uniform(self.seed[rows], at - self.start[rows]))[:, None]
        chosen = torch.searchsorted(cumulative, point * cumulative[:, -1:], right=True).clamp_(max=logits.shape[1] - 1)
        values = probabilities.gather(1, chosen).log_()[:, 0].cpu().numpy()
        if not np.isfinite(values).all():
            raise EngineError(f"weights of version {self.version} give NaN in place of probabilities")
        ids = chosen[:, 0].cpu().numpy()
        self.tokens[rows, at] = ids
        self.logprobs[rows, at] = values
        self.versions[rows, at] = self.version
        self.length[rows] = at + 1
        stopped = (self.stop[rows] == ids[:, None]).any(1)
        ended = stopped | (at + 1 == self.limit[rows])
        return [self._finish(int(row), bool(stop)) for row, stop in zip(rows[ended], stopped[ended], strict=True)]

    def _finish(self, row: int, stopped: bool) -> Answer:
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
        group = Group(1, positions[None], positions[None], len(ids), None)
        logits = self.forward(self._tensor(ids), Pass([group], positions), None)[:-1]
        values: list[float] = logits.float().log_softmax(-1).gather(1, self._tensor(ids[1:])[:, None])[:, 0].tolist()
        return values

    def _chunks(self, rows: Ints) -> list[tuple[int, int, int]]:
        """Which tokens of which prompts to compute now: row, first, end. Those of like length are neighbors."""
        stops, left = np.zeros_like(self.ready), PASS_TOKENS
        common: dict[bytes, Ints] = {}
        origins: dict[int, int] = {}
        for row in map(int, rows):
            if left and (self.ready[row] or self._borrow(row, stops, common, origins)):
                stops[row] = min(self.length[row], self.ready[row] + left)
                left -= int(stops[row] - self.ready[row])
        copies: dict[tuple[int, int], list[int]] = {}
        for row, source in origins.items():
            copies.setdefault((source, int(self.ready[row])), []).append(row)
        for (source, tokens), targets in copies.items():
            self.cache.copy(source, targets, tokens)
        chunks = [(int(row), int(self.ready[row]), int(stops[row])) for row in np.flatnonzero(stops)]
        return sorted(chunks, key=lambda chunk: chunk[2] - chunk[1])

    def _borrow(self, row: int, stops: Ints, common: dict[bytes, Ints], origins: dict[int, int]) -> bool:
        """Have the longest beginning that another row has in common copied, of which `origins` takes note. False: one
        that this pass computes is longer, so that it is better to wait for it."""
        prompt = self.tokens[row, : int(self.length[row]) - 1]
        key = prompt.tobytes()
        if key not in common:
            same = self.tokens[:, : len(prompt)] == prompt
            common[key] = np.where(same.all(1), len(prompt), same.argmin(1))
        present = np.minimum(common[key], self.ready)
        source = int(present.argmax())
        shared = int(present[source])
        if np.minimum(common[key], stops).max() >= shared + _LEAST_SHARED:
            return False
        if shared >= _LEAST_SHARED:
            # What is itself still to be copied comes from where that does.
            origins[row] = origins.get(source, source)
            self.ready[row] = shared
        return True

    def _decoding_group(self, rows: Ints) -> Group:
        """All rows up to the last that decodes: looking at the gaps too is cheaper than moving the others together,
        unless most are gaps."""
        span, count, ready = int(rows[-1]) + 1, len(rows), self.ready[rows]
        length = int(ready.max()) + 1
        if span == count or 2 * count < span:
            seen = span if span == count else self._tensor(rows)
            return Group(seen, slice(0, count), self._tensor(ready)[:, None], length, None)
        queries = np.searchsorted(rows, np.arange(span))  # A gap repeats the query of the next row.
        positions = self._tensor(ready[queries])[:, None]
        return Group(span, self._tensor(queries)[:, None], positions, length, self._tensor(rows))

    def _prompt_groups(self, chunks: Sequence[tuple[int, int, int]], place: int) -> list[Group]:
        """Chunks side by side, padded to the longest, which is less than four times the shortest of its group."""
        groups = []
        for _, members in groupby(chunks, lambda chunk: (chunk[2] - chunk[1]).bit_length() // 2):
            rows, starts, stops = np.array(list(members), np.int64).T
            counts = stops - starts
            offsets = np.arange(int(counts.max()))
            inside = offsets < counts[:, None]
            first = place + np.cumsum(counts) - counts
            queries = first[:, None] + np.where(inside, offsets, 0)
            positions = starts[:, None] + np.where(inside, offsets, 0)
            kept = None if inside.all() else self._tensor(np.flatnonzero(inside))
            groups.append(
                Group(self._tensor(rows), self._tensor(queries), self._tensor(positions), int(stops.max()), kept)
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
