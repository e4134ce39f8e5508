"""Attention over the torch engine's cache: packed tokens of many sequences, each over its own row.

Any Hugging Face model whose attention can be exchanged calls `slot_attention` in every layer; all its other layers see
the packed tokens only, without padding.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import AttentionInterface

from ludus.trainer.errors import ModelError

NAME = "ludus_slots"
"""What transformers knows `slot_attention` by."""


@dataclass(slots=True, eq=False)
class Group:
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
    _biases: dict[int | None, Tensor] = field(default_factory=dict)

    def bias(self, window: int | None, dtype: torch.dtype) -> Tensor:
        """Added to the scores, [B, 1, T, length]: -inf where a query may not look, of the sliding window if any."""
        if window not in self._biases:
            keys = torch.arange(self.length, device=self.positions.device)
            hidden = keys > self.positions[..., None]
            if window is not None:
                hidden |= keys <= self.positions[..., None] - window
            self._biases[window] = torch.zeros_like(hidden, dtype=dtype).masked_fill_(hidden, -torch.inf)[:, None]
        return self._biases[window]


@dataclass(slots=True, eq=False)
class Pass:
    """What attention must know of one forward pass: who is who among the packed tokens, in order of the groups."""

    groups: list[Group]
    cache: Cache | None = None
    """None: the pass is one sequence, which is its own cache."""
    rows: Tensor | None = None
    """[tokens]: the row of the cache that each belongs to, and its place there; set when there is a cache."""
    positions: Tensor | None = None


class Cache:
    """Keys and values of each layer, [rows, heads, width, dim], made when the layer is first called."""

    def __init__(self, rows: int, width: int) -> None:
        self.rows = rows
        self.width = width
        self.layers: dict[int, tuple[Tensor, Tensor]] = {}
        self._index: tuple[Pass, int, Tensor] | None = None

    def store(self, layer: int, key: Tensor, value: Tensor, work: Pass) -> tuple[Tensor, Tensor]:
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

    def _places(self, work: Pass, heads: int) -> Tensor:
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
    slots: Pass | None = None,
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
            keys[:, :, : group.length][group.rows],
            values[:, :, : group.length][group.rows],
            group.bias(sliding_window, query.dtype),
            scaling if scaling is not None else query.shape[-1] ** -0.5,
        ).flatten(0, 1)
        parts.append(result if group.kept is None else result[group.kept])
    return (parts[0] if len(parts) == 1 else torch.cat(parts))[None], None


def _attend(query: Tensor, key: Tensor, value: Tensor, bias: Tensor, scale: float) -> Tensor:
    """[B, T, heads, dim] queries over [B, kv heads, length, dim]: [B, T, heads, dim]."""
    batch, length, heads, dim = query.shape
    kept = key.shape[1]
    # The heads that share keys become further queries, so that keys are read once: [B, kv heads, shared × T, dim].
    query = query.view(batch, length, kept, -1, dim).permute(0, 2, 3, 1, 4).reshape(batch, kept, -1, dim)
    bias = bias.repeat(1, 1, heads // kept, 1)
    if length == 1 and query.device.type == "cpu":
        # Two batched products are faster than the fused kernel, which is made for many queries.
        weights = torch.matmul(query * scale, key.transpose(2, 3)).add_(bias).softmax(-1)
        out = torch.matmul(weights, value)
    else:
        out = functional.scaled_dot_product_attention(query, key, value, bias, scale=scale)
    return out.view(batch, kept, -1, length, out.shape[-1]).permute(0, 3, 1, 2, 4).flatten(2, 3)


AttentionInterface.register(NAME, slot_attention)
