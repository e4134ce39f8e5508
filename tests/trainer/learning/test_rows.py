"""How samples are put into rows is found by trying, and what a model does to its logits too."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from families import check_rows, make_family, plain_model
from learners import configure, make_batch, make_learner
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    Phi3Config,
    PreTrainedConfig,
    PreTrainedModel,
)

from ludus.trainer.core.errors import ModelError
from ludus.trainer.learning.logprobs import Head
from ludus.trainer.learning.model import load_model
from ludus.trainer.learning.rows import require_length, traits_of

BATCH = make_batch(0)
KERNELS = {
    "qwen3_next": ("causal_conv1d_fn", "torch_chunk_gated_delta_rule"),
    "nemotron_h": ("causal_conv1d_fn", "mamba2_chunk_scan"),
    "lfm2": ("causal_conv1d_fn",),
}
"""What a GPU's packages compute with the samples' boundaries, and transformers' own code refuses to."""


def by_sample(function: Callable[..., Any], boundaries: bool) -> Callable[..., Any]:
    """A kernel that computes each sample of a row alone, or takes the boundaries and ignores them."""

    def parts(numbers: Tensor | None, offsets: Tensor | None, length: int) -> Iterator[slice]:
        if not boundaries or (numbers is None and offsets is None):
            yield slice(0, length)
        elif offsets is not None:
            assert offsets.dtype == torch.int32
            yield from (slice(int(a), int(b)) for a, b in zip(offsets[:-1], offsets[1:], strict=True))
        else:
            assert numbers is not None
            assert (numbers.dtype, numbers.shape) == (torch.int32, (1, length))
            yield from (
                slice(int(w[0]), int(w[-1]) + 1) for n in torch.unique(numbers) for w in [(numbers[0] == n).nonzero()]
            )

    def call(first: Tensor, *rest: Any, **options: Any) -> Any:
        convolution = function.__name__ == "causal_conv1d_fn"  # [batch, channels, time]; the others have time second
        numbers, offsets = options.pop("seq_idx", None), options.pop("cu_seqlens", None)
        length = first.shape[2 if convolution else 1]

        def cut(value: Any, part: slice) -> Any:
            if convolution or not isinstance(value, Tensor) or value.ndim < 3:
                return value
            return value[:, part]

        results = [
            function(
                first[:, :, part] if convolution else first[:, part],
                *(cut(value, part) for value in rest),
                **{name: cut(value, part) for name, value in options.items()},
            )
            for part in parts(numbers, offsets, length)
        ]
        if isinstance(results[0], tuple):
            return torch.cat([result[0] for result in results], 1), None
        return torch.cat(results, 2 if convolution else 1)

    return call


def install(family: str, patch: pytest.MonkeyPatch, without: str | None = None) -> None:
    """Put kernels in the place of transformers' own code; the one named `without` ignores boundaries."""
    module = sys.modules[f"transformers.models.{family}.modeling_{family}"]
    for name in KERNELS[family]:
        patch.setattr(module, name, by_sample(getattr(module, name), name != without))


@pytest.mark.parametrize("family", KERNELS)
def test_recurrent_layers_get_the_boundaries_where_they_take_them(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_family(family, tmp_path)
    install(family, monkeypatch)
    learner = make_learner(configure(folder, optimizer={"tokens": 256}))
    assert learner.policy.traits.rows == "packed"
    assert "recurrent layers get the boundaries of packed samples" in str(learner.policy.traits.remark)
    works = learner._share(BATCH.samples)
    assert max(len(work.micro.lengths) for work in works) > 2
    assert all(work.micro.spread is None for work in works), "no prompt can be shared"
    check_rows(learner, plain_model(folder), BATCH)


@pytest.mark.parametrize(("family", "kernel"), [(family, name) for family in KERNELS for name in KERNELS[family]])
def test_a_kernel_that_ignores_boundaries_is_found_out(
    family: str, kernel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_family(family, tmp_path)
    install(family, monkeypatch, without=kernel)
    traits = traits_of(load_model(configure(folder).model))
    assert traits.rows == "single"
    assert "its layers mix the samples of a row" in str(traits.remark)


def test_a_model_that_mixes_samples_outside_of_attention_gets_rows_of_one_sample(tmp_path: Path) -> None:
    model = plain_model(make_family("qwen3", tmp_path))
    layer: Any = model.get_decoder().layers[1].mlp
    layer.register_forward_hook(lambda _, args, states: states + args[0].cumsum(1))
    assert traits_of(model).rows == "single"
    assert model.config._attn_implementation == "eager", "it is left as it was"


def test_a_model_that_looks_ahead_is_refused(tmp_path: Path) -> None:
    model = plain_model(make_family("qwen3", tmp_path))
    layer: Any = model.get_decoder().layers[1].mlp
    layer.register_forward_hook(lambda _, args, states: states + args[0].flip(1))
    with pytest.raises(ModelError, match=r"a qwen3 model looks ahead: the state of a token changes by \d"):
        traits_of(model)


@pytest.mark.parametrize(
    ("change", "head"),
    [
        (lambda logits: logits, Head()),
        (lambda logits: logits * 0.375, Head(0.375)),
        (lambda logits: 2.5 * (logits / 2.5).tanh(), Head(1.0, 2.5)),
    ],
    ids=["plain", "scaled", "capped"],
)
def test_what_a_model_does_to_its_logits_is_found(
    change: Callable[[Tensor], Tensor], head: Head, tmp_path: Path
) -> None:
    model = plain_model(make_family("qwen3", tmp_path))
    model.config.final_logit_softcapping = 2.5
    model.get_output_embeddings().register_forward_hook(lambda _, args, logits: change(logits))
    found = traits_of(model).head
    assert found.scale == pytest.approx(head.scale, rel=1e-5)
    assert found.cap == head.cap


def test_logits_that_cannot_be_computed_from_states_and_head_are_refused(tmp_path: Path) -> None:
    model = plain_model(make_family("qwen3", tmp_path))
    model.get_output_embeddings().register_forward_hook(lambda _, args, logits: logits + logits.roll(1, -1))
    with pytest.raises(ModelError, match="a qwen3 model's logits are not those of its states and its head"):
        traits_of(model)


@pytest.mark.parametrize(
    "config",
    [
        LlamaConfig(
            max_position_embeddings=64, rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
        ),
        Phi3Config(
            original_max_position_embeddings=64,
            rope_parameters={
                "rope_type": "longrope",
                "rope_theta": 1e4,
                "short_factor": [1.0] * 48,
                "long_factor": [2.0] * 48,
            },
        ),
    ],
    ids=["dynamic", "longrope"],
)
def test_rotary_positions_that_depend_on_other_samples_limit_the_context(config: PreTrainedConfig) -> None:
    require_length(config, 64)
    with pytest.raises(ModelError, match=r"rotary positions of this \w+ model .* set rollouts.context to 64 or less"):
        require_length(config, 65)
    require_length(LlamaConfig(max_position_embeddings=64), 65)
    require_length(Gemma3TextConfig(), 1 << 20)


def test_a_model_that_cannot_compute_a_row_is_refused_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_family("qwen3", tmp_path)
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", broken(AutoModelForCausalLM.from_pretrained))
    with pytest.raises(ModelError, match=r"a qwen3 model cannot compute a row of tokens: no such kernel"):
        load_model(configure(folder).model)


def broken(load: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        loaded = load(*arguments, **options)
        model: PreTrainedModel = loaded[0]

        def fail(*_: Any) -> None:
            raise RuntimeError("no such kernel")

        model.get_decoder().register_forward_pre_hook(fail)
        return loaded

    return call
