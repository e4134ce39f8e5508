"""Attention over packed samples: each token sees its own sample up to itself, and no other samples. A prefix that
samples share is in the row once.

Importing this module adds it to transformers as `ludus_varlen`. A model uses it after
`model.set_attn_implementation(NAME)`, and every call of its decoder gets the row's `Layout`:

    model.get_decoder()(input_ids=ids[None], position_ids=positions[None], layout=layout, use_cache=False)

Transformers passes the keyword unchanged to each layer, also through activation checkpointing. A model whose layers do
not pass it on would mix the samples of a row: attention without a layout is an error. `ludus.trainer.learning.rows`
tries which models can be computed like this.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from itertools import accumulate
from typing import Any, Final, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from ludus.trainer.core.errors import ModelError

NAME: Final = "ludus_varlen"
ALONE: Final = "ludus_alone"
"""Attention for a row that is one sample: transformers' own masks and torch's scaled dot product."""
CHANGES: Final = ("softcap", "s_aux", "position_bias")
"""Arguments with which a model changes its scores; an attention that does not know them would leave them out."""
BLOCK: Final = 128
"""The number of tokens along one side of flex attention's blocks."""
LIKE: Final = 0.8
"""Samples of at least this share of the longest sample's length are padded to that length."""
TORCH_VARLEN: Final = "torch.nn.attention.varlen"
Kind = Literal["sdpa", "flex", "flash"]


def choose(kind: Literal["auto", "sdpa", "flex", "flash"], device: torch.device, dtype: torch.dtype) -> Kind:
    """Return the implementation to use. `auto` means flash where it can run, flex on another GPU, sdpa on a CPU.

    Raises:
        ModelError: flash or flex was requested and cannot run.
    """
    flash = device.type == "cuda" and dtype != torch.float32 and _flash() is not None
    if kind == "auto":
        return "flash" if flash else "flex" if device.type == "cuda" else "sdpa"
    if kind == "flash" and not flash:
        raise ModelError(
            'model.attention = "flash" needs a GPU, model.dtype = "bfloat16", and flash-attn or torch 2.11'
        )
    if kind == "flex" and device.type == "cpu":
        raise ModelError('model.attention = "flex" has no backward pass on a CPU; use "sdpa" or "auto"')
    return kind


class Layout:
    """The places of the samples in a row, in the form that attention needs.

    Args:
        lengths: the lengths of the samples, in order.
        kind: the implementation of attention.
        device: the row's device.
        spread: the index in the row of each token of the samples, if some share a prefix.
        kept: for each token of the row, its index among the samples' tokens.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        kind: Kind = "sdpa",
        device: torch.device | str = "cpu",
        spread: Tensor | None = None,
        kept: Tensor | None = None,
    ) -> None:
        self.spread, self.kept = spread, kept
        self.lengths, self.kind, self.device = tuple(lengths), kind, torch.device(device)
        self.total, self.longest = sum(self.lengths), max(self.lengths)
        self._masks: dict[int | None, BlockMask] = {}

    @functools.cached_property
    def offsets(self) -> Tensor:
        """The index at which each sample begins, and the end of the row. [samples + 1], int32."""
        return F.pad(torch.tensor(self.lengths).cumsum(0), (1, 0)).to(self.device, torch.int32)

    @functools.cached_property
    def numbers(self) -> Tensor:
        """The number of the sample of each token, [1, tokens] int32."""
        numbers = torch.repeat_interleave(torch.tensor(self.lengths))[None]
        return numbers.to(self.device, torch.int32)

    @functools.cached_property
    def padded(self) -> tuple[list[Tensor], Tensor]:
        """Samples of similar length in batches, and the way back.

        Returns:
            For each batch, the index in the row of each token of its samples, [samples, longest]; padding repeats the
            sample's last token. And for each token of the row its index among the tokens of all batches, [R].
        """
        row = torch.arange(self.total) if self.spread is None else self.spread.cpu()
        starts = list(accumulate(self.lengths, initial=0))
        groups: list[list[int]] = []
        for sample in sorted(range(len(self.lengths)), key=self.lengths.__getitem__, reverse=True):
            if not groups or self.lengths[sample] < LIKE * self.lengths[groups[-1][0]]:
                groups.append([])
            groups[-1].append(sample)
        batches: list[Tensor] = []
        back, before = torch.empty(self.total, dtype=torch.long), 0
        for members in groups:
            longest = self.lengths[members[0]]
            inside, end = torch.arange(longest), torch.tensor([self.lengths[sample] - 1 for sample in members])
            start = torch.tensor([starts[sample] for sample in members])
            batches.append(row[start[:, None] + torch.minimum(inside, end[:, None])].to(self.device))
            for number, sample in enumerate(members):
                length = self.lengths[sample]
                back[starts[sample] : starts[sample] + length] = inside[:length] + before + number * longest
            before += len(members) * longest
        return batches, (back if self.kept is None else back[self.kept.cpu()]).to(self.device)

    def mask(self, window: int | None) -> BlockMask:
        """Return the block mask of flex attention, made from the lengths without a matrix of all pairs of tokens."""
        if window not in self._masks:
            self._masks[window] = _block_mask(self, window)
        return self._masks[window]


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    layout: Layout | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Compute causal attention within each sample, through transformers' attention interface with a batch of one.

    `query`, `key` and `value` are [1, heads, T, head_dim]; several heads of `query` may share one of `key` and `value`.
    A row has no padding; dropout is not applied. `sliding_window` is the number of tokens that a token sees, itself
    included. The result is [1, T, heads, head_dim].

    Raises:
        ModelError: the model caps its scores, has attention sinks or a mask of its own, or did not pass `layout` or
            the width of its sliding window on.
    """
    require_plain(module, attention_mask, sliding_window, options)
    if layout is None:  # never taken as one sample: tokens would attend to the samples before theirs
        raise ModelError(f"{type(module).__name__} does not get the places of packed samples")
    window = sliding_window if sliding_window is not None and sliding_window < layout.longest else None
    query, key = query.to(value.dtype), key.to(value.dtype)  # autocast leaves normalized queries in float32
    if layout.kind == "sdpa" or layout.spread is None or layout.kept is None:
        return _KINDS[layout.kind](query, key, value, scaling, window, layout), None
    # Each sample includes the queries of its shared prefix, because the kernels need as many queries as keys.
    query, key, value = (tensor.index_select(2, layout.spread) for tensor in (query, key, value))
    out = _KINDS[layout.kind](query, key, value, scaling, window, layout)
    return out.index_select(1, layout.kept), None


def require_plain(
    module: torch.nn.Module, mask: Tensor | None, sliding_window: int | None, options: Mapping[str, Any]
) -> None:
    """Raise ModelError if the attention of `module` is more than causal attention with a sliding window."""
    kind = type(module).__name__
    if changes := [name for name in CHANGES if options.get(name) is not None]:
        raise ModelError(f"{kind} has {changes[0]}")
    if mask is not None:  # transformers makes none for this attention, so the model has made it
        raise ModelError(f"{kind} has a mask of its own")
    if sliding_window is None and _has_window(module):
        raise ModelError(f"{kind} leaves the width of its sliding window to the mask")


def _has_window(module: torch.nn.Module) -> bool:
    """Return whether the configuration gives an attention a sliding window."""
    config: Any = getattr(module, "config", None)
    number: Any = getattr(module, "layer_idx", None)
    kinds: Sequence[str] = getattr(config, "layer_types", None) or ()
    if number is not None and number < len(kinds):
        return "sliding" in kinds[number]
    return getattr(config, "sliding_window", None) is not None


def attend_alone(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """Compute attention of one sample, in transformers' way.

    Raises:
        ModelError: the model caps its scores or has attention sinks.
    """
    if changes := [name for name in CHANGES if options.get(name) is not None]:
        raise ModelError(f"{type(module).__name__} has {changes[0]}")
    options["dropout"] = 0.0
    result: tuple[Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    return result


def _sdpa(query: Tensor, key: Tensor, value: Tensor, scale: float | None, window: int | None, layout: Layout) -> Tensor:
    """Attend in batches of samples of similar length. Shorter samples are padded at the end, where causal attention
    ignores the padding."""
    rows, heads = [part[0].transpose(0, 1) for part in (query, key, value)], query.shape[1]
    batches, back = layout.padded
    out = []
    for indices in batches:
        # Flattened to matrices, because torch adds up gradients of rows much faster than of higher dimensions.
        gathered = [part.flatten(1).index_select(0, indices.flatten()) for part in rows]
        q, k, v = (
            new.view(*indices.shape, *part.shape[1:]).transpose(1, 2) for new, part in zip(gathered, rows, strict=True)
        )
        band = None
        if window is not None and q.shape[2] > window:
            band = q.new_ones(q.shape[2], q.shape[2], dtype=torch.bool).tril().triu(1 - window)
        grouped = heads != k.shape[1]
        part = F.scaled_dot_product_attention(
            q, k, v, attn_mask=band, is_causal=band is None, scale=scale, enable_gqa=grouped
        )
        out.append(part.transpose(1, 2).flatten(2).flatten(0, 1))
    return torch.cat(out).index_select(0, back).view(1, -1, heads, value.shape[-1])


def _flex(query: Tensor, key: Tensor, value: Tensor, scale: float | None, window: int | None, layout: Layout) -> Tensor:
    """Attend with one kernel that skips the blocks in which no token sees another."""
    out: Tensor = _flex_kernel(compiled=query.is_cuda)(
        query, key, value, block_mask=layout.mask(window), scale=scale, enable_gqa=query.shape[1] != key.shape[1]
    )
    return out.transpose(1, 2)


@functools.cache
def _flex_kernel(compiled: bool) -> Callable[..., Any]:
    return cast(Callable[..., Any], torch.compile(flex_attention, dynamic=True) if compiled else flex_attention)


def _flash_varlen(
    query: Tensor, key: Tensor, value: Tensor, scale: float | None, window: int | None, layout: Layout
) -> Tensor:
    """Attend with flash-attn's kernel for sequences of different lengths (2307.08691), or torch's own copy of it."""
    q, k, v = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    at, longest = layout.offsets, layout.longest
    flash, left_window = _flash(), -1 if window is None else window - 1
    assert flash is not None
    out: Tensor
    if find_spec("flash_attn"):
        out = flash(q, k, v, at, at, longest, longest, softmax_scale=scale, causal=True, window_size=(left_window, 0))
    else:
        options: dict[str, Any] = {"scale": scale, "window_size": (left_window, 0)}
        if q.shape[1] != k.shape[1] and "enable_gqa" in _parameters(flash):
            options["enable_gqa"] = True
        elif q.shape[1] != k.shape[1]:  # the kernel of torch 2.11 wants a key for each query
            k, v = (part.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for part in (k, v))
        out = flash(q, k, v, at, at, longest, longest, **options)
    return out[None]


@functools.cache
def _flash() -> Callable[..., Any] | None:
    name, of = ("flash_attn", "flash_attn_varlen_func") if find_spec("flash_attn") else (TORCH_VARLEN, "varlen_attn")
    try:
        function = cast(Callable[..., Any], getattr(importlib.import_module(name), of))
    except ImportError:
        return None
    # An older function without a window cannot be used: the window's right side makes attention causal.
    return None if name == TORCH_VARLEN and "window_size" not in _parameters(function) else function


@functools.cache
def _parameters(function: Callable[..., Any]) -> frozenset[str]:
    """Return the names of a function's parameters, which differ between versions of torch."""
    return frozenset(inspect.signature(function).parameters)


_KINDS: Final = {"sdpa": _sdpa, "flex": _flex, "flash": _flash_varlen}


def _block_mask(layout: Layout, window: int | None) -> BlockMask:
    """Return for each block of queries the blocks of keys that they see in part and in full.

    Samples are consecutive, so two blocks belong to one sample if the first token of the earlier block and the last
    token of the later block do. No matrix of all pairs of tokens is needed.
    """
    total, device = layout.total, layout.device
    reach = window or total
    sample = torch.repeat_interleave(torch.tensor(layout.lengths)).to(device)

    def causal(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (query >= key) & (sample[query] == sample[key])

    def near(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return causal(batch, head, query, key) & (query - key < reach)

    block_starts = torch.arange(0, total, BLOCK, device=device)
    block_ends = (block_starts + BLOCK - 1).clamp(max=total - 1)
    q_first, q_last, k_first, k_last = block_starts[:, None], block_ends[:, None], block_starts, block_ends
    some = (k_first <= q_last) & (sample[k_last] >= sample[q_first]) & (q_first - k_last < reach)
    full = (k_last <= q_first) & (sample[k_first] == sample[q_last]) & (q_last - k_first < reach)
    full &= (block_ends - block_starts + 1 == BLOCK) & (q_last - q_first + 1 == BLOCK)
    return BlockMask.from_kv_blocks(
        *_listed(some & ~full),
        *_listed(full),
        BLOCK_SIZE=BLOCK,
        mask_mod=near if window else causal,
        seq_lengths=(total, total),
    )


def _listed(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Return the number of blocks in each row, and the blocks' indices, the selected ones first."""
    count = blocks.sum(1, dtype=torch.int32)
    order = torch.argsort(blocks.to(torch.int8), dim=1, descending=True, stable=True).to(torch.int32)
    return count[None, None], order[None, None]


AttentionInterface.register(NAME, attend)
AttentionInterface.register(ALONE, attend_alone)
AttentionMaskInterface.register(ALONE, sdpa_mask)
