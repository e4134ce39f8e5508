"""How a model's samples are put into rows, and how its logits follow from its states: found by trying, when it is
loaded.

    shared    samples one after the other, a prefix that they share once: only attention looks at other tokens
    packed    samples one after the other: recurrent layers look back too, and take the samples' boundaries
    single    one sample per row, with transformers' own attention: slower, and any causal model can do it

Each way is tried on a few tokens, in this order, and the first that leaves a sample as it is alone is taken. A name
says little: the same recurrent layer keeps samples apart with its kernels' packages installed, and mixes them or
refuses without. Attention that depends on length, such as in chunks of thousands of tokens, is the exception: a few
tokens cannot show it, so layers of such kinds are computed alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from ludus.trainer.core.errors import ModelError
from ludus.trainer.learning.attention import ALONE, NAME, Layout
from ludus.trainer.learning.logprobs import Head, token_logits

Rows = Literal["shared", "packed", "single"]

PROBE: Final = 16
"""The number of tokens of the sample that precedes the compared one."""
ROUNDING: Final = 1e-4
"""The greatest relative change of a token's state that is taken for rounding in float32, which is about 1e-6. A state
that a recurrent layer carries over may change the next sample by less than a hundredth."""
EXACT: Final = 1e-4
"""The greatest relative difference of logits that can be rounding in float32."""
_ANY_LENGTH: Final = {
    "full_attention",
    "sliding_attention",
    "linear_attention",
    "conv",
    "hybrid",
    "hybrid_sliding",
    "moe",
    "mlp",
    "dense",
    "sparse",
}
"""Kinds of layers that do the same at every length. What all others do at length is left to transformers' plain code,
apart from chunks, for which it makes masks."""
_SCALES: Final = ("logit_scale", "logits_scaling", "lm_head_multiplier")
"""Keys of configurations that say by what logits are multiplied or divided."""
_CAPS: Final = ("final_logit_softcapping", "logits_soft_cap")
"""Keys of configurations that say at which value logits are capped."""


@dataclass(frozen=True, slots=True)
class Traits:
    """How a model is computed."""

    rows: Rows
    head: Head
    alone: str
    """The attention, by its name in transformers, for a row that is one sample."""
    reason: str | None = None
    """Why the rows are not `shared`."""

    @property
    def attention(self) -> str:
        """The attention for the learner's rows."""
        return self.alone if self.rows == "single" else NAME

    @property
    def remark(self) -> str | None:
        """A sentence for the log, unless the model is computed in the usual way."""
        match self.rows:
            case "shared":
                return None
            case "packed":
                rows = "recurrent layers get the boundaries of packed samples, and no prompt is shared"
            case "single":
                rows = "each sample is computed in a row of its own, which is slower and as exact"
        return f"{rows}, because of the model: {self.reason}. The torch engine computes its sequences one by one"


def traits_of(model: PreTrainedModel) -> Traits:
    """Return how a model is computed, which is found once; its attention stays what it is.

    Args:
        model: with its weights in float32, in evaluation mode.

    Raises:
        ModelError: tokens depend on later ones, or the logits are not a multiple of states × head, capped or not.
    """
    traits: Traits | None = model.__dict__.get("ludus_traits")
    if traits is None:
        before: str = model.config._attn_implementation
        try:
            with torch.backends.cudnn.flags(allow_tf32=False):  # a GPU's convolutions round to 10 bits by default
                traits = model.__dict__["ludus_traits"] = _find_traits(model)
        finally:
            set_attention(model, before)
    return traits


def require_length(config: PreTrainedConfig, context: int) -> None:
    """Raise ModelError if the rotary positions of short samples would depend on longer ones.

    With the types `dynamic` and `longrope` they are others as soon as a row, or one before it, is longer than the
    model's original length.

    Args:
        config: the model's configuration.
        context: the maximum length of a sample.
    """
    text: Any = config.get_text_config()
    parameters: dict[str, Any] = getattr(text, "rope_parameters", None) or {}
    by_layer = [value for value in parameters.values() if isinstance(value, dict)]
    for rope in by_layer or [parameters]:
        original = rope.get("original_max_position_embeddings") or text.max_position_embeddings
        if rope.get("rope_type") in ("dynamic", "longrope") and context > original:
            raise ModelError(
                f"the rotary positions of this {config.model_type} model ({rope['rope_type']}) change for samples of "
                f"more than {original} tokens; set rollouts.context to {original} or less"
            )


def decoder_of(model: PreTrainedModel) -> Any:
    """Return the part of a model that ends with the states from which its head makes logits."""
    decoder: Any = model.get_decoder()
    return model.model if decoder is model else decoder  # Llama 4's wrapper has it under no name that is looked up


def decode(model: Any, rows: Rows, ids: Tensor, positions: Tensor, layout: Layout) -> Any:
    """Call a model, or its decoder, on a row.

    Args:
        model: what is called.
        rows: how the row's samples lie in it.
        ids: the tokens of the row, [R].
        positions: the position of each token in its sample, [R].
        layout: the places of the samples.
    """
    options: dict[str, Any] = {} if rows == "single" else {"layout": layout}
    if rows == "packed":
        options |= {
            "seq_idx": layout.numbers,
            "cu_seq_lens_q": layout.offsets,
            "cu_seq_lens_k": layout.offsets,
            "max_length_q": layout.longest,
            "max_length_k": layout.longest,
        }
    return model(input_ids=ids[None], position_ids=positions[None], use_cache=False, **options)


@torch.no_grad()
def _find_traits(model: PreTrainedModel) -> Traits:
    embeddings: Any = model.get_input_embeddings()
    ids = torch.arange(2 * PROBE).remainder(embeddings.num_embeddings).to(model.device)
    # Two samples that begin alike; what is compared is the second, of two tokens. Of a long sample in a mixture of
    # experts, rounding may change some token's choice of experts.
    first, second = ids[PROBE:], ids[[PROBE, 1]]
    set_attention(model, "eager")
    expected = _states(model, "single", second, Layout((2,), device=ids.device))
    alone = _find_alone(model, first, expected)
    rows, reason = _find_rows(model, first, second, expected)
    set_attention(model, NAME if rows != "single" else alone)
    return Traits(rows, _find_head(model, rows, ids), alone, reason)


def _find_rows(model: PreTrainedModel, first: Tensor, second: Tensor, expected: Tensor) -> tuple[Rows, str | None]:
    """Return the first way of making rows that leaves the states of `second` as `expected`, and why those before do
    not."""
    reason = _not_packable(model)
    attempts: tuple[Rows, ...] = () if reason else ("shared", "packed")
    for rows in attempts:
        try:
            set_attention(model, NAME)
            change = _relative(_second(model, rows, first, second), expected)
        except Exception as error:  # whatever a layer raises that does not take a layout or boundaries
            reason = str(error)
            continue
        if change <= ROUNDING:
            return rows, reason
        reason = f"its layers mix the samples of a row (a state changes by {change:.2g} of its size)"
    return "single", reason


def _second(model: PreTrainedModel, rows: Rows, first: Tensor, second: Tensor) -> Tensor:
    """Return the states of `second`, [2, d], computed in a row after `first`."""
    lengths, device = (len(first), len(second)), first.device
    if rows == "packed":
        return _states(model, rows, torch.cat([first, second]), Layout(lengths, device=device))[-2:]
    # Their first token, which they share, is in the row once.
    numbers = torch.arange(len(first) + 1, device=device)
    spread = torch.cat([numbers[:-1], numbers[:1], numbers[-1:]])
    kept = torch.cat([numbers[:-1], numbers[-1:] + 1])
    layout = Layout(lengths, device=device, spread=spread, kept=kept)
    return _states(model, rows, torch.cat([first, second[1:]]), layout)[[0, -1]]


def _states(model: PreTrainedModel, rows: Rows, ids: Tensor, layout: Layout) -> Tensor:
    """Return the states of a row, [R, d]."""
    positions = torch.cat([torch.arange(length) for length in layout.lengths]).to(ids.device)
    positions = positions if layout.kept is None else positions[layout.kept]
    states: Tensor = decode(decoder_of(model), rows, ids, positions, layout).last_hidden_state[0]
    return states


def _find_alone(model: PreTrainedModel, sample: Tensor, beginning: Tensor) -> str:
    """Return the attention for rows of one sample: torch's kernels if they compute what transformers' plain code does.

    Raises:
        ModelError: a token's state depends on the tokens after it, so that of the sample's first one is not that of
            `beginning`.
    """
    layout = Layout((len(sample),), device=sample.device)
    plain = _states(model, "single", sample, layout)
    change = _relative(plain[:1], beginning[:1])
    if not change <= ROUNDING:
        raise ModelError(
            f"a {model.config.model_type} model looks ahead: the state of a token changes by {change:.2g} of its size "
            "with the tokens after it. It is not supported"
        )
    if not model._can_set_attn_implementation() or _kinds(model) - _ANY_LENGTH - {"chunked_attention"}:
        return "eager"
    try:
        set_attention(model, ALONE)
        same = _relative(_states(model, "single", sample, layout), plain) <= ROUNDING
    except Exception:  # as in `_find_rows`
        same = False
    return ALONE if same else "eager"


def set_attention(model: PreTrainedModel, name: str) -> None:
    """Set a model's attention, if it can be exchanged."""
    if model._can_set_attn_implementation():
        model.set_attn_implementation(name)


def _not_packable(model: PreTrainedModel) -> str | None:
    """Return why a model is not tried in rows of several samples; None if it is."""
    if not model._can_set_attn_implementation():
        return "its attention cannot be exchanged"
    kinds = _kinds(model) - _ANY_LENGTH
    return f"it has layers of the kind {min(kinds)}" if kinds else None


def _kinds(model: PreTrainedModel) -> set[str]:
    return set(getattr(model.config.get_text_config(), "layer_types", None) or ())


def _find_head(model: PreTrainedModel, rows: Rows, ids: Tensor) -> Head:
    """Return how logits follow from the states and the LM head's weight."""
    head: Any = model.get_output_embeddings()
    decoder, layout = decoder_of(model), Layout((len(ids),), device=ids.device)
    positions = torch.arange(len(ids), device=ids.device)
    logits: Tensor = decode(model, rows, ids, positions, layout).logits[0].float()
    states = decode(decoder, rows, ids, positions, layout).last_hidden_state[0]
    weight = getattr(head, "weight", None)
    if weight is not None and weight.shape == (logits.shape[-1], states.shape[-1]):
        bias: Tensor | None = getattr(head, "bias", None)
        plain = token_logits(states, weight, bias)
        errors = {
            made: _relative(token_logits(states, weight, bias, made), logits) for made in _heads(model, plain, logits)
        }
        made = min(errors, key=errors.__getitem__)
        if errors[made] <= EXACT:
            return made
    raise ModelError(
        f"a {model.config.model_type} model's logits are not those of its states and its head, scaled or capped. It "
        "is not supported"
    )


def _heads(model: PreTrainedModel, plain: Tensor, logits: Tensor) -> Iterator[Head]:
    """Yield the ways to make logits of states × head that the configuration may mean, the usual one first, and the
    multiple that fits best."""
    config = model.config.get_text_config()
    values = [value for key in _SCALES if isinstance(value := getattr(config, key, None), int | float) and value]
    scales = [1.0, *(float(scale) for value in values for scale in (value, 1 / value))]
    caps = [float(cap) for key in _CAPS if (cap := getattr(config, key, None))]
    for scale in scales:
        yield Head(scale)
        yield from (Head(scale, cap) for cap in caps)
    fitted = float((plain.double() * logits).sum() / plain.double().square().sum())
    if all(abs(fitted - scale) > EXACT * abs(scale) for scale in scales):
        yield Head(fitted)


def _changes(states: Tensor, reference: Tensor) -> Tensor:
    """Return by how much each token's state differs, relative to its size."""
    sizes = reference.double().norm(dim=-1)
    # The state of a token for padding, whose embedding is 0, can be 0.
    changes: Tensor = (states.double() - reference.double()).norm(dim=-1) / sizes.clamp_min(EXACT * float(sizes.mean()))
    return changes


def _relative(states: Tensor, reference: Tensor) -> float:
    return float(_changes(states, reference).max())
