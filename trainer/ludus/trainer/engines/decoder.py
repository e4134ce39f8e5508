"""One forward pass of the torch engine's model.

In a pass over a few dozen tokens, the arithmetic costs less than the overhead of each operation. So this module
computes models of the Llama family with few operations, on weights that are shared with the model's modules. Other
models run through their modules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import (
    LlamaForCausalLM,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2ForCausalLM,
    Qwen3ForCausalLM,
)
from transformers.models.mistral.modeling_mistral import MistralAttention

from ludus.trainer.engines.attention import Pass, attend

Forward = Callable[[Tensor, Pass, Tensor | None], Tensor]
"""(token ids, how they attend, which of them get logits; None: all) → logits [kept, vocabulary]."""

_FAMILY: Final = (LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM)
_CHANGING: Final = ("dynamic", "longrope")
"""Rotary embeddings whose frequencies depend on the length of the longest sequence."""

_constant = lru_cache(torch.tensor)


def forward_of(model: PreTrainedModel, context: int) -> Forward:
    """Return the fastest forward pass of `model` on up to `context` positions. Its weights may become views."""
    if type(model) in _FAMILY and model.model.rotary_emb.rope_type not in _CHANGING:
        return Decoder(model, context)
    return partial(_through_modules, model)


def _through_modules(model: PreTrainedModel, ids: Tensor, work: Pass, keep: Tensor | None) -> Tensor:
    logits: Tensor = model(
        input_ids=ids[None],
        position_ids=work.positions[None],
        use_cache=False,
        logits_to_keep=0 if keep is None else keep,
        slots=work,
    ).logits[0]
    return logits


class Decoder:
    """The forward pass of a model of the Llama family; see `Forward`."""

    def __init__(self, model: Any, context: int) -> None:
        self._epsilon: float = model.config.rms_norm_eps
        self._embedding: Tensor = model.model.embed_tokens.weight
        self._layers = [_Layer(layer, self._epsilon) for layer in model.model.layers]
        self._head_norms = _head_norms([layer.self_attn for layer in model.model.layers])
        self._norm: Tensor = model.model.norm.weight
        self._head: Tensor = model.lm_head.weight
        cos, sin = model.model.rotary_emb(self._embedding, torch.arange(context, device=model.device)[None])
        # The table includes the negative sign of the half that is rotated backwards.
        lower, upper = sin[0].chunk(2, dim=-1)
        self._turns = torch.stack([cos[0], torch.cat([-lower, upper], dim=-1)], dim=1)

    def __call__(self, ids: Tensor, work: Pass, keep: Tensor | None) -> Tensor:
        """See `Forward`."""
        hidden = functional.embedding(ids, self._embedding)
        cos, sin = self._turns.index_select(0, work.positions).chunk(2, dim=1)
        weights, index = self._head_norms or (None, None)
        norms = [None] * len(self._layers) if weights is None else weights[index].unbind()
        for layer, norm in zip(self._layers, norms, strict=True):
            attended = layer.attention(hidden, cos, sin, norm, work)
            if keep is not None and layer is self._layers[-1]:
                hidden, attended = hidden[keep], attended[keep]
            layer.rest(hidden, attended)
        return functional.linear(_normal(hidden, self._norm, self._epsilon), self._head)


class _Layer:
    def __init__(self, layer: Any, epsilon: float) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self._epsilon = epsilon
        self._number: int = attention.layer_idx
        self._dim: int = attention.head_dim
        self._scale: float = attention.scaling
        # In Mistral the window is set only in the configuration; in other models each layer has its own.
        mistral = isinstance(attention, MistralAttention)
        self._window: int | None = getattr(attention.config if mistral else attention, "sliding_window", None)
        self._norms: tuple[Tensor, Tensor] = (layer.input_layernorm.weight, layer.post_attention_layernorm.weight)
        self._qkv = _fused(attention.q_proj, attention.k_proj, attention.v_proj)
        self._out = (attention.o_proj.weight.t(), attention.o_proj.bias)
        self._gate_up = _fused(mlp.gate_proj, mlp.up_proj)
        self._activation = mlp.act_fn.forward
        self._down = (mlp.down_proj.weight.t(), mlp.down_proj.bias)
        self._heads = len(attention.q_proj.weight) // self._dim

    def attention(self, hidden: Tensor, cos: Tensor, sin: Tensor, norm: Tensor | None, work: Pass) -> Tensor:
        """Return the attention, [tokens, heads × dim]. `norm` is the weight of the queries' and keys' norms, if any."""
        packed = functional.linear(_normal(hidden, self._norms[0], self._epsilon), *self._qkv)
        packed = packed.view(len(hidden), -1, self._dim)
        query, key_value = packed[:, : self._heads], packed[:, self._heads :]
        turning = turned = packed[:, : (self._heads + packed.shape[1]) // 2]
        if norm is not None:
            turning = _normal(turning, norm, self._epsilon)
        torch.addcmul(turning * cos, turning.roll(self._dim // 2, -1), sin, out=turned)
        return attend(self._number, query, key_value, work, self._scale, self._window).flatten(1)

    def rest(self, hidden: Tensor, attended: Tensor) -> None:
        """Add the attention's output layer and the MLP to `hidden`, in place."""
        _add(hidden, attended, *self._out)
        gate, up = functional.linear(_normal(hidden, self._norms[1], self._epsilon), *self._gate_up).chunk(2, dim=-1)
        _add(hidden, self._activation(gate).mul_(up), *self._down)


def _fused(*linears: nn.Linear) -> tuple[Tensor, Tensor | None]:
    """Return weight and bias of several linear layers as one. The layers' own become views of it, so an update of
    their weights changes both."""
    biases = [linear.bias for linear in linears if linear.bias is not None]
    return _joined([linear.weight for linear in linears]), _joined(biases) if biases else None


def _joined(parts: Sequence[Tensor]) -> Tensor:
    whole = torch.cat([part.data for part in parts])
    for part, view in zip(parts, torch.split(whole, [len(part) for part in parts]), strict=True):
        part.data = view
    return whole


def _head_norms(attentions: list[Any]) -> tuple[Tensor, Tensor] | None:
    """Return the weights of the norms of all layers' queries and keys, and an index of them, [layers, heads]. Return
    None for models without such norms."""
    if not hasattr(attentions[0], "q_norm"):
        return None
    first, dim = attentions[0], attentions[0].head_dim
    weights = _joined([norm.weight for one in attentions for norm in (one.q_norm, one.k_norm)]).view(-1, dim)
    query, key = len(first.q_proj.weight) // dim, len(first.k_proj.weight) // dim
    index = [[2 * layer] * query + [2 * layer + 1] * key for layer in range(len(attentions))]
    return weights, torch.tensor(index, device=weights.device)


def _normal(values: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """Return RMSNorm over the last dimension."""
    if values.device.type != "cpu" or values.dtype != torch.float32:
        return functional.rms_norm(values, values.shape[-1:], None, epsilon).mul_(weight)
    # PyTorch has no fused kernel for this on a CPU, and its composite version takes 1.5 times as long as this one.
    norm = torch.linalg.vector_norm(values, dim=-1, keepdim=True)
    inverse = torch.addcmul(_constant(epsilon), norm, norm, value=1 / values.shape[-1]).rsqrt_()
    return (values * inverse).mul_(weight)


def _add(hidden: Tensor, values: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """Add a linear layer's result to `hidden`, in place; `weight` is transposed."""
    hidden.addmm_(values, weight)
    if bias is not None:
        hidden.add_(bias)
