"""Attention over the torch engine's cache: packed tokens of many sequences, each over its own row.

Any Hugging Face model with exchangeable attention calls `slot_attention` in every layer; the engine's own decoder calls
`attend`. All other layers see only the packed tokens, without padding.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import AttentionInterface

from ludus.trainer.core.errors import ModelError
from ludus.trainer.engines.states import States
from ludus.trainer.learning.attention import require_plain

NAME = "ludus_slots"
"""The name of `slot_attention` in transformers."""


@dataclass(slots=True, eq=False)
class Group:
    """Sequences that attend together: B rows of the cache, with T queries each."""

    rows: int | Tensor
    """The indices of the rows; a number n means the first n rows."""
    queries: slice | Tensor
    """[B, T]: the index of each query in the pass; padding repeats another query. A slice of B means that T is 1."""
    positions: Tensor
    """[B, T]: the position of each query; a query sees the keys up to its own position."""
    length: int
    """The number of keys to read: one more than the greatest position."""
    kept: Tensor | None
    """The indices of the B × T queries that are not padding; None means all."""
    _biases: dict[int | None, Tensor] = field(default_factory=dict)

    def bias(self, window: int | None, dtype: torch.dtype, down: int, across: int) -> Tensor:
        """Return the bias of the scores, [B × down, across × T, length]: -inf where a query may not see a key, with the
        sliding window if any. It is the same in all layers, so it is kept."""
        bias = self._biases.get(window)
        if bias is None:
            positions = self.positions[:, None, None].expand(-1, down, across, -1).reshape(-1, across * self.count)
            width = 1 << (self.length - 1).bit_length()
            steps = _steps(width, window, dtype, positions.device).unfold(0, self.length, 1)
            self._biases[window] = bias = steps[width - 1 - positions]
        return bias

    @property
    def count(self) -> int:
        """The number of queries per row (T)."""
        return self.positions.shape[1]


@lru_cache(maxsize=32)
def _steps(width: int, window: int | None, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a vector in which the bias of the query at position p starts at width - 1 - p: 0 up to p, then -inf."""
    steps = torch.zeros(2 * width - 1, dtype=dtype, device=device)
    steps[width:] = -torch.inf
    if window is not None:
        steps[: max(0, width - window)] = -torch.inf
    return steps


@dataclass(slots=True, eq=False)
class Pass:
    """The layout of one forward pass for attention: its packed tokens, in order of the groups."""

    groups: list[Group]
    positions: Tensor
    """[tokens]: the position of each token in its sequence."""
    rows: Tensor | None = None
    """[tokens]: the cache row of each token; set when there is a cache."""
    cache: Cache | States | None = None
    """The cache; None if the pass is one whole sequence, which needs none."""


class Cache:
    """The keys and values of each layer, [2, rows × heads, width, dim], allocated at the layer's first call."""

    rewinds = True
    """Whether a row can go back to fewer tokens."""

    def __init__(self, rows: int, width: int) -> None:
        self.rows = rows
        self.width = width
        self.layers: dict[int, Tensor] = {}
        self._offsets: dict[int, Tensor] = {}
        self._index: tuple[Pass, int, Tensor] | None = None

    def store(self, layer: int, new: Tensor, work: Pass) -> None:
        """Write `new` into the cache: the keys and then the values of a pass, [tokens, 2 × heads, dim]."""
        heads, dim = new.shape[1] // 2, new.shape[2]
        if layer not in self.layers:
            # Zeros, because a masked value is multiplied by 0, which does not remove a NaN.
            self.layers[layer] = new.new_zeros(2, self.rows * heads, self.width, dim)
            head = torch.arange(heads, device=new.device)
            self._offsets[heads] = torch.cat([head, head + self.rows * heads]) * self.width
        if self._index is None or self._index[0] is not work or self._index[1] != heads:
            assert work.rows is not None
            first = torch.add(work.positions, work.rows, alpha=heads * self.width)
            self._index = (work, heads, (first[:, None] + self._offsets[heads]).view(-1))
        self.layers[layer].view(-1, dim).index_copy_(0, self._index[2], new.reshape(-1, dim))

    def read(self, layer: int, group: Group) -> tuple[Tensor, Tensor]:
        """Return the keys and values that the group reads, [B × heads, length, dim] each."""
        cached = self.layers[layer]
        heads = cached.shape[1] // self.rows
        if isinstance(group.rows, int):
            keys, values = cached[:, : group.rows * heads, : group.length].unbind()
        else:
            keys, values = self._by_row(cached)[:, :, :, : group.length][:, group.rows].flatten(1, 2).unbind()
        return keys, values

    def _by_row(self, cached: Tensor) -> Tensor:
        return cached.view(2, self.rows, -1, *cached.shape[2:])

    def copy(self, source: int, target: int, tokens: int) -> None:
        """Copy the first `tokens` tokens of a row to another row."""
        for cached in map(self._by_row, self.layers.values()):
            cached[:, target, :, :tokens] = cached[:, source, :, :tokens]

    def swap(self, one: int, other: int, tokens: int) -> None:
        """Exchange the first `tokens` tokens of two rows."""
        for cached in map(self._by_row, self.layers.values()):
            cached[:, [one, other], :, :tokens] = cached[:, [other, one], :, :tokens]


def slot_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    slots: Pass | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Call `attend` through transformers' attention interface with a batch of one. `query`, `key` and `value` are
    [1, heads, tokens, dim]; the result is [1, tokens, heads, dim].

    Raises:
        ModelError: the model needs a kind of attention that the torch engine does not support.
    """
    require_plain(module, attention_mask, sliding_window, others)
    if slots is None:
        raise ModelError(f"{type(module).__name__} does not get the places of the pass's tokens")
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    dim, wide = value.shape[-1], max(key.shape[-1], value.shape[-1])
    query, key, value = (functional.pad(new[0], (0, wide - new.shape[-1])) for new in (query, key, value))
    both = torch.cat([key, value]).transpose(0, 1)
    layer: int = module.layer_idx  # type: ignore[assignment]
    result = attend(layer, query.transpose(0, 1), both, slots, scale, sliding_window)
    return result[None, ..., :dim].contiguous(), None  # some models take another view of it


def attend(layer: int, query: Tensor, both: Tensor, work: Pass, scale: float, window: int | None) -> Tensor:
    """Return the attention of packed tokens, each over its own row of the cache: [tokens, heads, dim] like `query`.
    `both` holds the keys and then the values, [tokens, 2 × kv heads, dim]."""
    kept = both.shape[1] // 2
    assert not isinstance(work.cache, States)
    if work.cache is not None:
        work.cache.store(layer, both, work)
    parts = []
    for group in work.groups:
        keys, values = work.cache.read(layer, group) if work.cache else both.transpose(0, 1).chunk(2)
        result = _attend(query[group.queries], keys, values, group, kept, scale, window)
        parts.append(result if group.kept is None else result[group.kept])
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _attend(
    query: Tensor, keys: Tensor, values: Tensor, group: Group, kept: int, scale: float, window: int | None
) -> Tensor:
    """Return [B × T, heads, dim] from queries [B, T, heads, dim] and keys [B × kept, length, dim]; heads share keys."""
    *_, heads, dim = query.shape
    batch, count, shared = len(group.positions), group.count, heads // kept
    # The heads that share keys become additional queries, so that keys are read once.
    if count == 1 and query.device.type == "cpu":
        # Two batched products are faster than the fused kernel, which is designed for many queries.
        query = query.reshape(-1, shared, dim)
        bias = group.bias(window, query.dtype, kept, 1)
        scores = torch.baddbmm(bias, query, keys.transpose(1, 2), alpha=scale)
        return torch.bmm(scores.softmax(-1), values).view(batch, heads, dim)
    query = query.view(batch, count, kept, shared, dim).permute(0, 2, 3, 1, 4).reshape(batch, kept, -1, dim)
    keys, values = (part.view(batch, kept, -1, dim) for part in (keys, values))
    bias = group.bias(window, query.dtype, 1, shared)[:, None]
    out = functional.scaled_dot_product_attention(query, keys, values, bias, scale=scale)
    return out.view(batch, kept, shared, count, dim).permute(0, 3, 1, 2, 4).reshape(-1, heads, dim)


AttentionInterface.register(NAME, slot_attention)
