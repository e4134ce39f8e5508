"""Packing: distributes samples over micro-batches, each of which is one row of tokens without padding.

How this works:

A token counts if its weight in the loss is not 0. Samples without a counted token are left out. Of the others, the row
contains the tokens before the last counted one, which is only predicted.

`pack` starts with the smallest number of micro-batches that the token limit allows, rounded up to a multiple of the
ranks that share them. `_distribute` puts the samples, the costliest first, into the micro-batch with the lowest cost
that has room. The cost of a sample is length × (length + `LINEAR`), an estimate of the time for attention and for the
matrices, so all micro-batches take about equally long. If a sample finds no room, `pack` tries again with more
micro-batches. A sample that exceeds the limit gets its own micro-batch and is never split.

`_join` builds one micro-batch. Samples that begin with the same tokens, such as the prompt of a group, share them: the
row contains the shared prefix once (`_layout`), so every layer except attention computes it once. This changes results
only by rounding. Attention uses `spread` to assemble each whole sample from the row, and `kept` for the inverse. A
model with recurrent layers cannot share prefixes, and some models cannot have several samples in a row (`rows`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.trainer.core.samples import TrainSample
from ludus.trainer.learning.rows import Rows

LINEAR: Final = 12_288
"""Tokens of context at which attention costs as much as the matrices of a layer: 12 × width, for a width of 1,024."""
SHARED: Final = 16
"""Shorter common prefixes are not shared."""

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Samples one after the other in a row of R tokens, with N predicted tokens that count in the loss.

    The row contains the tokens of each sample before its last counted token, which is only predicted.
    """

    ids: Tensor
    """[R]: the tokens that the model reads. int64 like all integers here."""
    positions: Tensor
    """[R]: the position of each token in its sample."""
    lengths: tuple[int, ...]
    """The number of tokens of each sample, shared ones included; their sum is T."""
    spread: Tensor | None
    """[T]: the index in the row of each token of the samples, one sample after the other; None if nothing is shared."""
    kept: Tensor | None
    """[R]: the inverse, the index among the T tokens of each token of the row; of shared tokens, the first sample's."""
    samples: tuple[int, ...]
    """The indices of these samples in the argument of `pack`."""
    index: Tensor
    """[N]: the indices in the row of the hidden states that predict the counted tokens."""
    targets: Tensor
    """[N]: the counted tokens."""
    sample: Tensor
    """[N]: the index of each counted token's sample in this micro-batch, from 0."""
    behavior: Tensor
    """[N]: their log-probabilities under the policy that sampled them. float32 like the next two fields."""
    advantages: Tensor
    weights: Tensor

    def to(self, device: torch.device | str) -> MicroBatch:
        """Return a copy on another device."""
        parts: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        parts.update({k: v.to(device, non_blocking=True) for k, v in parts.items() if isinstance(v, Tensor)})
        return MicroBatch(**parts)


def pack(samples: Sequence[TrainSample], tokens: int, *, multiple: int = 1, rows: Rows = "shared") -> list[MicroBatch]:
    """Distribute samples over as few micro-batches as possible, with about equal work in each.

    A token counts if its weight is not 0. Samples without a counted token are left out.

    Args:
        samples: the samples in any order; the same samples always give the same micro-batches.
        tokens: the maximum number of tokens in a micro-batch. A longer sample gets its own and is never split.
        multiple: the number of micro-batches is a multiple of this (the number of ranks that share them), unless there
            are too few samples.
        rows: what may be in a row: several samples and their shared prefixes once (`shared`), several samples
            (`packed`), or one (`single`).

    Raises:
        ValueError: the first token of a sample counts, so nothing predicts it.
    """
    counted = [np.flatnonzero(np.asarray(item.weights)) for item in samples]
    if any(len(positions) and positions[0] == 0 for positions in counted):
        raise ValueError("the first token of a sample cannot count in the loss: nothing before it predicts it")
    lengths = {i: int(positions[-1]) for i, positions in enumerate(counted) if len(positions)}
    tokens = 1 if rows == "single" else tokens  # every sample exceeds it, and so gets its own row
    alone = sum(length >= tokens for length in lengths.values())
    count = alone + -(-sum(length for length in lengths.values() if length < tokens) // tokens)
    while (bins := _distribute(lengths, -(-count // multiple) * multiple, tokens)) is None:
        count += multiple
    return [_join(samples, counted, members, share=rows == "shared") for members in bins if members]


def _distribute(lengths: dict[int, int], count: int, tokens: int) -> list[list[int]] | None:
    """Put each sample, the costliest first, into the bin with the lowest cost that has room. Return None if a sample
    finds no room."""
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


def _join(samples: Sequence[TrainSample], counted: Sequence[Any], members: list[int], share: bool) -> MicroBatch:
    """Build one micro-batch of the samples with the indices `members`."""
    counting_of = [counted[i] for i in members]
    lengths = [int(counting[-1]) for counting in counting_of]
    chosen = [samples[i] for i in members]
    texts = [np.asarray(item.sample.ids[:n], np.int64) for item, n in zip(chosen, lengths, strict=True)]
    row_indices, kept_indices = _layout(texts, share)
    spread = np.concatenate(row_indices)

    def pick(values: Sequence[Sequence[float]], dtype: Any) -> Any:
        parts = [np.asarray(v, dtype)[counting] for v, counting in zip(values, counting_of, strict=True)]
        return torch.from_numpy(np.concatenate(parts))

    shares = len(kept_indices) < len(spread)
    return MicroBatch(
        ids=torch.from_numpy(np.concatenate(texts)[kept_indices]),
        positions=torch.from_numpy(np.concatenate([np.arange(n) for n in lengths])[kept_indices]),
        lengths=tuple(lengths),
        spread=torch.from_numpy(spread) if shares else None,
        kept=torch.from_numpy(kept_indices) if shares else None,
        samples=tuple(members),
        index=torch.from_numpy(
            np.concatenate([at[counting - 1] for at, counting in zip(row_indices, counting_of, strict=True)])
        ),
        targets=pick([item.sample.ids for item in chosen], np.int64),
        sample=torch.from_numpy(np.repeat(np.arange(len(counting_of)), [len(counting) for counting in counting_of])),
        behavior=pick([item.sample.logprobs for item in chosen], np.float32),
        advantages=pick([item.advantages for item in chosen], np.float32),
        weights=pick([item.weights for item in chosen], np.float32),
    )


def _layout(texts: Sequence[Ints], share: bool) -> tuple[list[Ints], Ints]:
    """Return the index in the row of each sample's tokens, and for each token of the row its index among all samples'
    tokens.

    With `share`, a sample shares its common prefix with the first sample that begins with the same `SHARED` tokens.
    """
    first_with: dict[bytes, int] = {}
    row_indices: list[Ints] = []
    kept_indices: list[Ints] = []
    row = before = 0
    for number, ids in enumerate(texts):
        leader = first_with.setdefault(ids[:SHARED].tobytes(), number)
        common = 0
        if share and leader != number and len(ids) >= SHARED:
            length = min(len(ids), len(texts[leader]))
            differ = np.flatnonzero(ids[:length] != texts[leader][:length])
            common = int(differ[0]) if len(differ) else length
        suffix = np.arange(len(ids) - common)
        row_indices.append(np.concatenate([row_indices[leader][:common], row + suffix]) if common else row + suffix)
        kept_indices.append(before + common + suffix)
        row += len(suffix)
        before += len(ids)
    return row_indices, np.concatenate(kept_indices)
