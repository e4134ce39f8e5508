"""Many samples in one row of tokens: nothing is padded, memory is bounded, and the rows take equally long.

What samples of a micro-batch have in common from their first token on, as the prompt of a group, is in the row once:
every layer but attention computes it once, which changes no number but by rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.trainer.samples import TrainSample

LINEAR: Final = 12_288
"""Tokens of context at which attention costs as much as the matrices of a layer: 12 × width, for a width of 1,024."""
SHARED: Final = 16
"""Fewer tokens in common than this are not shared."""

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Samples one after the other in a row of R tokens, of which N others are predicted and count in the loss.

    A sample goes in only as far as its last counted token, which is predicted and needs no place of its own.
    """

    ids: Tensor
    """Tokens that the model reads. [R], int64 like all whole numbers here"""
    positions: Tensor
    """Of each within its sample. [R]"""
    lengths: tuple[int, ...]
    """Tokens of each sample, shared ones included; their sum is T."""
    spread: Tensor | None
    """Where in the row each token of the samples is, one sample after the other. [T]; None: nothing is shared"""
    kept: Tensor | None
    """The inverse: which of the T tokens each one of the row is, the first of those that share it. [R]"""
    samples: tuple[int, ...]
    """Which of the samples given to `pack` these are."""
    index: Tensor
    """Where in the row the hidden states are that predict the counted tokens. [N]"""
    targets: Tensor
    """The counted tokens. [N]"""
    sample: Tensor
    """Which sample of this micro-batch each is of, from 0. [N]"""
    behavior: Tensor
    """Their log-probabilities under the policy that sampled them. [N], float32 like the next two"""
    advantages: Tensor
    weights: Tensor

    def to(self, device: torch.device | str) -> MicroBatch:
        """The same on another device."""
        parts: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        parts.update({k: v.to(device, non_blocking=True) for k, v in parts.items() if isinstance(v, Tensor)})
        return MicroBatch(**parts)


def pack(samples: Sequence[TrainSample], tokens: int, *, multiple: int = 1) -> list[MicroBatch]:
    """Distribute samples over as few micro-batches as hold them, with equal work in each.

    A token counts when its weight is not 0. Samples without one are left out.

    Args:
        samples: in any order; the same samples always give the same micro-batches.
        tokens: the most that a micro-batch may hold. A longer sample is alone in one, and never split.
        multiple: the number of micro-batches is a multiple of this (of the ranks that share them), unless there are
            fewer samples than that.

    Raises:
        ValueError: the first token of a sample counts, so nothing predicts it.
    """
    counted = [np.flatnonzero(np.asarray(item.weights)) for item in samples]
    if any(len(where) and where[0] == 0 for where in counted):
        raise ValueError("the first token of a sample cannot count in the loss: nothing before it predicts it")
    lengths = {i: int(where[-1]) for i, where in enumerate(counted) if len(where)}
    alone = sum(length >= tokens for length in lengths.values())
    count = alone + -(-sum(length for length in lengths.values() if length < tokens) // tokens)
    while (bins := _distribute(lengths, -(-count // multiple) * multiple, tokens)) is None:
        count += multiple
    return [_join(samples, counted, members) for members in bins if members]


def _distribute(lengths: dict[int, int], count: int, tokens: int) -> list[list[int]] | None:
    """The costliest sample first, each into the bin of least cost that has room; None when there is none."""
    bins: list[list[int]] = [[] for _ in range(count)]
    cost, room = [0] * count, [tokens] * count
    for i, length in sorted(lengths.items(), key=lambda item: (-item[1], item[0])):
        open_bins = [b for b in range(count) if length <= room[b] or not bins[b]]
        if not open_bins:
            return None
        best = min(open_bins, key=cost.__getitem__)
        bins[best].append(i)
        cost[best] += length * (length + LINEAR)
        room[best] -= length
    return [sorted(members) for members in bins]


def _join(samples: Sequence[TrainSample], counted: Sequence[Any], members: list[int]) -> MicroBatch:
    """One micro-batch."""
    where = [counted[i] for i in members]
    lengths = [int(places[-1]) for places in where]
    chosen = [samples[i] for i in members]
    texts = [np.asarray(item.sample.ids[:n], np.int64) for item, n in zip(chosen, lengths, strict=True)]
    places, kept = _layout(texts)
    spread = np.concatenate(places)

    def pick(values: Sequence[Sequence[float]], dtype: Any) -> Any:
        parts = [np.asarray(v, dtype)[counting] for v, counting in zip(values, where, strict=True)]
        return torch.from_numpy(np.concatenate(parts))

    shares = len(kept) < len(spread)
    return MicroBatch(
        ids=torch.from_numpy(np.concatenate(texts)[kept]),
        positions=torch.from_numpy(np.concatenate([np.arange(n) for n in lengths])[kept]),
        lengths=tuple(lengths),
        spread=torch.from_numpy(spread) if shares else None,
        kept=torch.from_numpy(kept) if shares else None,
        samples=tuple(members),
        index=torch.from_numpy(np.concatenate([at[counting - 1] for at, counting in zip(places, where, strict=True)])),
        targets=pick([item.sample.ids for item in chosen], np.int64),
        sample=torch.from_numpy(np.repeat(np.arange(len(where)), [len(counting) for counting in where])),
        behavior=pick([item.sample.logprobs for item in chosen], np.float32),
        advantages=pick([item.advantages for item in chosen], np.float32),
        weights=pick([item.weights for item in chosen], np.float32),
    )


def _layout(texts: Sequence[Ints]) -> tuple[list[Ints], Ints]:
    """Where in the row each token of each sample is, and which token of all samples each one of the row is.

    A sample shares what it has in common with the first one that begins as it does.
    """
    first: dict[bytes, int] = {}
    places: list[Ints] = []
    kept: list[Ints] = []
    row = before = 0
    for number, ids in enumerate(texts):
        leader = first.setdefault(ids[:SHARED].tobytes(), number)
        common = 0
        if leader != number and len(ids) >= SHARED:
            length = min(len(ids), len(texts[leader]))
            differ = np.flatnonzero(ids[:length] != texts[leader][:length])
            common = int(differ[0]) if len(differ) else length
        own = np.arange(len(ids) - common)
        places.append(np.concatenate([places[leader][:common], row + own]) if common else row + own)
        kept.append(before + common + own)
        row += len(own)
        before += len(ids)
    return places, np.concatenate(kept)
