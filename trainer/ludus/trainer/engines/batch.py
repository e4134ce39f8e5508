"""The torch engine's batch: the rows of its cache, the tokens of each forward pass, and sampling.

How this works:

A sequence occupies one row: of `cells`, which holds its tokens with their log-probabilities and versions, and of the
cache, which holds its keys and values. `length` counts the tokens of a row, `ready` those whose keys and values are
cached.

Each `step` is one forward pass. It first admits waiting requests while fewer than `slots` run (`_admit`). A request
gets the row of its session, where only the new tokens must be computed, or the row unused for the longest time
(`_row_for`). The pass then computes the tokens that are not ready. Rows that lack one token are decoding; rows that
lack more compute a prompt, at most `PASS_TOKENS` prompt tokens in one pass (`_chunks`). A row without any cached token
first copies the longest prefix that it shares with another row. If another row computes a longer shared prefix in the
same pass, it waits for that one (`_copy_prefix`). All tokens go through the model packed, without padding.

If the pass contains a row's last token, `_sample` draws the next one. The random number depends only on the request's
seed and the index of the token. A sequence that has ended keeps its cached tokens until its row is used for another.

After a weight update, `invalidate` sets `ready` to 0, so sequences that run are computed again with the new weights.
The same happens when `_allocate` makes more or wider rows.

Of a model with recurrent layers the cache holds `States`, and its rows are computed one after another. No row takes a
prefix from another one, and a request continues its session's row or is computed from its first token.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from ludus.trainer.core.config import TorchEngineConfig
from ludus.trainer.core.errors import EngineError
from ludus.trainer.engines.attention import Cache, Group, Pass
from ludus.trainer.engines.base import Finish, Generation, Sampling
from ludus.trainer.engines.decoder import forward_of
from ludus.trainer.engines.states import States

PASS_TOKENS: Final = 4096
"""The maximum number of prompt tokens of one pass. Longer prompts take several passes, which also decode."""
_LEAST_WIDTH: Final = 256
_LEAST_SHARED: Final = 8
"""Shorter shared prefixes are computed, not copied from another row."""
_RUNNING: Final = 1 << 62
"""The time of use of a row that runs."""
_FORGOTTEN: Final = 1 << 40
"""How much older a row becomes when its episode has ended."""
_CELL: Final = np.dtype([("id", np.int32), ("logprob", np.float32), ("version", np.int64)])
"""A token of a row."""

Ints = NDArray[np.int64]
Answer = tuple["asyncio.Future[Any]", Any]
"""A future, and its result or the exception to raise."""


@dataclass(slots=True, eq=False)
class Request:
    """A request for a generation, waiting or running."""

    ids: Ints
    sampling: Sampling
    seed: int
    session: str
    future: asyncio.Future[Generation]
    row: int = -1

    @property
    def limit(self) -> int:
        """The maximum number of tokens, prompt and generation together."""
        return len(self.ids) + self.sampling.max_tokens


class Batch:
    """All sequences, and the passes over them. Only the engine's thread uses it.

    Args:
        model: the model, with the engine's attention.
        config: the number of sequences decoded at once, and the size of the cache.
        context: the maximum number of tokens of a sequence.
        states: what makes the cache of a model that is computed row by row; None for all others.

    A row holds `length` tokens, of which `ready` have cached keys and values. The next passes compute the tokens of
    running rows that are not ready. A row that does not run keeps its tokens, so that a later request can use them.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        config: TorchEngineConfig,
        context: int,
        states: Callable[[int, int], States] | None = None,
    ) -> None:
        self.forward = forward_of(model, context) if states is None else partial(row_by_row, model)
        self._make_cache: Callable[[int, int], Cache | States] = states or Cache
        self.device = model.device  # Kept, because the model searches its parameters for it on each access.
        self.config = config
        self.context = context
        self.version = -1
        self.waiting: deque[Request] = deque()
        """Requests that start as soon as there is room."""
        self.running: dict[int, Request] = {}
        self.sessions: dict[str, int] = {}
        self._clock = 0
        self._cells = np.zeros((0, 0), _CELL)
        self._length, self._ready, self._used = np.zeros((3, 0), np.int64)
        self._allocate(config.slots, min(context, _LEAST_WIDTH))

    def _allocate(self, rows: int, width: int) -> None:
        """Make `rows` rows of `width` tokens, or as many as the budget allows. Running sequences move to the first
        rows and are computed again: this is rare, and simpler than moving the cache."""
        rows, requests = min(rows, self.config.cache_tokens // width), list(self.running.values())
        old, count = [request.row for request in requests], len(requests)
        cells, length = np.zeros((rows, width), _CELL), np.zeros(rows, np.int64)
        cells[:count, : self._cells.shape[1]], length[:count] = self._cells[old], self._length[old]
        self._cells, self._length, self._ready = cells, length, np.zeros(rows, np.int64)
        self._used = np.where(np.arange(rows) < count, _RUNNING, -2 * _FORGOTTEN)
        self._cache = self._make_cache(rows, width)
        self._slots = min(self.config.slots, rows)
        self.running = dict(enumerate(requests))
        for row, request in self.running.items():
            request.row = row
        self.sessions = {request.session: row for row, request in self.running.items()}

    def cancel(self, request: Request) -> None:
        """Remove a request whose caller no longer waits for it."""
        if self.running.get(request.row) is request:
            self._release(request)
        elif request in self.waiting:
            self.waiting.remove(request)

    def forget(self, session: str) -> None:
        """Make the session's row the first to be reused. Until then, other rows may copy from it."""
        row = self.sessions.pop(session, None)
        if row is not None and row not in self.running:
            self._used[row] -= _FORGOTTEN

    def invalidate(self) -> None:
        """Mark all cached keys and values as invalid, after the weights have changed."""
        self._ready[:] = 0

    def drop(self) -> list[Request]:
        """Remove and return all requests, waiting or running, and clear the cache, which may hold NaN."""
        requests = [*self.running.values(), *self.waiting]
        self.running.clear()
        self.waiting.clear()
        self._allocate(self._cache.rows, self._cache.width)
        return requests

    # --- assigning rows to requests

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self._slots:
            request = self.waiting[0]
            if request.limit > self._cache.width:
                width = min(self.context, 1 << (request.limit - 1).bit_length())
                if self.config.cache_tokens // width <= len(self.running):
                    return  # Wider rows would be too few for the running sequences.
                self._allocate(self._cache.rows, width)
            self.waiting.popleft()
            row = request.row = self._row_for(request.session)
            ids, stored = request.ids, self._cells["id"][row]
            kept = min(int(self._ready[row]), len(ids) - 1)
            same = stored[:kept] == ids[:kept]
            common = kept if same.all() else int(same.argmin())
            self._ready[row] = common if self._cache.rewinds or common == self._ready[row] else 0
            stored[: len(ids)] = ids
            self._length[row], self._used[row] = len(ids), _RUNNING
            self.running[row], self.sessions[request.session] = request, row

    def _release(self, request: Request) -> None:
        row = request.row
        del self.running[row]
        self._clock += 1
        self._used[row] = self._clock - (0 if self.sessions.get(request.session) == row else _FORGOTTEN)

    def _row_for(self, session: str) -> int:
        """Return the session's own row, or the one not used for the longest time. If that row belongs to an open
        session, first allocate more rows where the budget allows. The row is moved into the first `_slots` rows, which
        are the rows that decode."""
        row, cache = self.sessions.get(session, -1), self._cache
        if row < 0 or row in self.running:
            row = int(self._used.argmin())
            if row in self.sessions.values() and 2 * cache.rows * cache.width <= self.config.cache_tokens:
                self._allocate(2 * cache.rows, cache.width)
                row = int(self._used.argmin())
            self._ready[row] = 0
            self.sessions = {name: other for name, other in self.sessions.items() if other != row}
        if row >= self._slots:
            slot = int(self._used[: self._slots].argmin())
            self._swap(row, slot)
            row = slot
        return row

    def _swap(self, one: int, other: int) -> None:
        self._cache.swap(one, other, int(max(self._ready[one], self._ready[other])))
        for values in (self._cells, self._length, self._ready, self._used):
            values[[one, other]] = values[[other, one]]
        moved = {one: other, other: one}
        self.sessions = {name: moved.get(row, row) for name, row in self.sessions.items()}

    # --- one pass

    def step(self) -> list[Answer]:
        """Admit requests, compute one pass and sample. Return the generations that ended."""
        self._admit()
        running = np.array(sorted(self.running), np.int64)
        pending = self._length[running] - self._ready[running]
        decoding = running[pending == 1]
        chunks = self._chunks(running[pending > 1])
        if not len(decoding) and not chunks:
            return []
        rows = np.concatenate([decoding, *(np.full(stop - start, row) for row, start, stop in chunks)])
        positions = np.concatenate([self._ready[decoding], *(np.arange(start, stop) for _, start, stop in chunks)])
        groups = [self._decoding_group(decoding)] if len(decoding) else []
        groups += self._prompt_groups(chunks, len(decoding))
        work = Pass(groups, self._tensor(positions), self._tensor(rows), self._cache)
        self._ready[decoding] += 1
        for row, _, stop in chunks:
            self._ready[row] = stop
        # These rows have their last token in this pass, so their next token can be sampled.
        last = np.flatnonzero(positions == self._length[rows] - 1)
        keep = self._tensor(last) if len(last) < len(rows) else None
        logits = self.forward(self._tensor(self._cells["id"][rows, positions].astype(np.int64)), work, keep)
        return self._sample([self.running[row] for row in rows[last].tolist()], logits)

    def _tensor(self, values: NDArray[Any]) -> Tensor:
        return torch.from_numpy(values).to(self.device, non_blocking=True)

    def _sample(self, requests: Sequence[Request], logits: Tensor) -> list[Answer]:
        """Sample one token for each request: invert the distribution function at the request's random number."""
        if not requests:
            return []
        rows = np.array([request.row for request in requests])
        at, starts = self._length[rows], np.array([len(request.ids) for request in requests])
        temperatures = np.array([request.sampling.temperature for request in requests])
        logits = logits.float()
        if (temperatures != 1.0).any():
            logits = logits.double() / self._tensor(np.maximum(temperatures, 1e-9))[:, None]
        probabilities = logits.softmax(-1)
        cumulative = probabilities.cumsum(-1, dtype=torch.float64)
        point = self._tensor(_uniform([request.seed for request in requests], at - starts))[:, None]
        chosen = torch.searchsorted(cumulative, point * cumulative[:, -1:], right=True).clamp_(max=logits.shape[1] - 1)
        values = probabilities.gather(1, chosen).log_()[:, 0].cpu().numpy()
        if not np.isfinite(values).all():
            raise EngineError(f"weights of version {self.version} give NaN in place of probabilities")
        tokens = chosen[:, 0].cpu().numpy()
        for name, column in (("id", tokens), ("logprob", values), ("version", self.version)):
            self._cells[name][rows, at] = column
        self._length[rows] = at + 1
        answers: list[Answer] = []
        for request, token, length in zip(requests, tokens.tolist(), (at + 1).tolist(), strict=True):
            stopped = token in request.sampling.stop
            if stopped or length == request.limit:
                cells = self._cells[request.row, len(request.ids) : length]
                self._release(request)
                ids, logprobs, versions = (tuple(cells[name].tolist()) for name in ("id", "logprob", "version"))
                finish: Finish = "stop" if stopped else "length"
                answers.append((request.future, Generation(ids, logprobs, versions, finish)))
        return answers

    def sequence_logprobs(self, ids: Ints) -> list[float]:
        """Return the log-probabilities of `ids[1:]`, computed in one pass that does not use the cache."""
        positions = self._tensor(np.arange(len(ids)))
        group = Group(1, positions[None], positions[None], len(ids), None)
        logits = self.forward(self._tensor(ids), Pass([group], positions), None)[:-1]
        values: list[float] = logits.float().log_softmax(-1).gather(1, self._tensor(ids[1:])[:, None])[:, 0].tolist()
        return values

    def _chunks(self, rows: Ints) -> list[tuple[int, int, int]]:
        """Return the prompt tokens to compute in this pass as (row, first, end), sorted by length."""
        stops, left = np.zeros_like(self._ready), PASS_TOKENS
        common: dict[bytes, Ints] = {}
        for row in rows.tolist():
            if left and (self._ready[row] or not self._cache.rewinds or self._copy_prefix(row, stops, common)):
                stops[row] = min(self._length[row], self._ready[row] + left)
                left -= int(stops[row] - self._ready[row])
        chunks = [(int(row), int(self._ready[row]), int(stops[row])) for row in np.flatnonzero(stops)]
        return sorted(chunks, key=lambda chunk: chunk[2] - chunk[1])

    def _copy_prefix(self, row: int, stops: Ints, common: dict[bytes, Ints]) -> bool:
        """Copy the longest cached prefix that another row shares. Return False if this pass computes a longer shared
        prefix in another row, so that this row should wait for it.

        Args:
            row: the row, without any cached token.
            stops: for each row the end of the tokens that this pass computes.
            common: for each prompt so far, the number of tokens that it shares with each row.
        """
        prompt = self._cells["id"][row, : int(self._length[row]) - 1]
        key = prompt.tobytes()
        if key not in common:
            same = self._cells["id"][:, : len(prompt)] == prompt
            common[key] = np.where(same.all(1), len(prompt), same.argmin(1))
        cached = np.minimum(common[key], self._ready)
        source = int(cached.argmax())
        shared = int(cached[source])
        if np.minimum(common[key], stops).max() >= shared + _LEAST_SHARED:
            return False
        if shared >= _LEAST_SHARED:
            assert isinstance(self._cache, Cache)
            self._cache.copy(source, row, shared)
            self._ready[row] = shared
        return True

    def _decoding_group(self, rows: Ints) -> Group:
        """Return the group of all rows up to the last one that decodes. Computing the rows in between too is cheaper
        than gathering the others, unless they are the majority."""
        span, count, ready = int(rows[-1]) + 1, len(rows), self._ready[rows]
        length = int(ready.max()) + 1
        if span == count or 2 * count < span:
            seen = span if span == count else self._tensor(rows)
            return Group(seen, slice(0, count), self._tensor(ready)[:, None], length, None)
        queries = np.searchsorted(rows, np.arange(span))  # A row that does not decode repeats the next row's query.
        positions = self._tensor(ready[queries])[:, None]
        return Group(span, self._tensor(queries)[:, None], positions, length, self._tensor(rows))

    def _prompt_groups(self, chunks: Sequence[tuple[int, int, int]], place: int) -> list[Group]:
        """Return groups of chunks, padded to the longest of a group, which is less than four times its shortest."""
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
    """Apply SplitMix64's finalizer (Steele, Lea and Flood, 2014): each bit of the result depends on all bits."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _uniform(seeds: Sequence[int], counters: Ints) -> NDArray[np.float64]:
    """Return each request's random number in [0, 1) for its token of that index: SplitMix64 of its seed."""
    keys = _mix(np.array([seed % (1 << 64) for seed in seeds], np.uint64))
    mixed = _mix(keys + (counters.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15))
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def row_by_row(model: PreTrainedModel, ids: Tensor, work: Pass, keep: Tensor | None) -> Tensor:
    """Compute a pass one row after another; see `ludus.trainer.engines.decoder.Forward`."""
    if work.cache is None:
        logits: Tensor = model(input_ids=ids[None], position_ids=work.positions[None], use_cache=False).logits[0]
        return logits
    assert isinstance(work.cache, States)
    assert work.rows is not None
    kept = set(range(len(ids)) if keep is None else keep.tolist())
    positions, lasts = work.positions.tolist(), list[Tensor]()
    for row, first, end in _runs(work.rows.tolist()):
        last = work.cache.advance(model, row, positions[first], ids[first:end])
        lasts += [last] if end - 1 in kept else []
    return torch.stack(lasts) if lasts else ids.new_zeros((0, 1), dtype=torch.float32)


def _runs(rows: list[int]) -> Iterator[tuple[int, int, int]]:
    """Yield each row with the beginning and the end of its tokens in the pass."""
    first = 0
    for row, members in groupby(rows):
        end = first + len(list(members))
        yield row, first, end
        first = end
