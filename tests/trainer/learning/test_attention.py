from __future__ import annotations

import functools
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import varlen
from torch.nn.attention.flex_attention import create_block_mask
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from ludus.trainer.core.errors import ModelError
from ludus.trainer.learning import attention
from ludus.trainer.learning.attention import NAME, Kind, Layout, attend, attend_alone, choose
from ludus.trainer.learning.parallel import decoder_layers

LENGTHS = (5, 130, 1, 300, 77)
IDS = [torch.randint(100, (n,), generator=torch.Generator().manual_seed(n)) for n in LENGTHS]
eager_flex = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
DIFFERENT: dict[str, dict[str, Any]] = {
    "qwen3": {},
    "llama": {},
    "mistral": {"sliding_window": 50},
    "qwen2": {"use_sliding_window": True, "sliding_window": 20, "max_window_layers": 1},
}


def make(kind: str = "qwen3") -> PreTrainedModel:
    torch.manual_seed(0)
    settings: type[Any] = CONFIG_MAPPING[kind]
    config = settings(
        vocab_size=100,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        **DIFFERENT[kind],
    )
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config)
    return model.eval()


def alone(model: PreTrainedModel) -> Tensor:
    """Hidden states, each sample by itself, with transformers' plain implementation."""
    model.set_attn_implementation("eager")
    return torch.cat([model.get_decoder()(input_ids=ids[None]).last_hidden_state[0] for ids in IDS])


def packed(model: PreTrainedModel, kind: Kind, ids: list[Tensor] = IDS) -> Tensor:
    """Hidden states of one row."""
    model.set_attn_implementation(NAME)
    positions = torch.cat([torch.arange(len(part)) for part in ids])[None]
    layout = Layout([len(part) for part in ids], kind, positions.device)
    hidden: Tensor = model.get_decoder()(
        input_ids=torch.cat(ids)[None], position_ids=positions, layout=layout, use_cache=False
    ).last_hidden_state
    return hidden[0]


def gradients(model: PreTrainedModel, hidden: Tensor) -> list[Tensor]:
    """Of something that depends on every hidden state."""
    scale = torch.randn(hidden.shape, generator=torch.Generator().manual_seed(1))
    return list(torch.autograd.grad((hidden * scale).sum(), list(model.get_decoder().parameters())))


@pytest.mark.suite("training", first=1)
@eager_flex
@pytest.mark.parametrize("implementation", ["sdpa", "flex"])
@pytest.mark.parametrize("kind", DIFFERENT)
def test_a_packed_row_is_what_its_samples_are_alone(kind: str, implementation: Kind) -> None:
    model = make(kind)
    with torch.no_grad():
        torch.testing.assert_close(packed(model, implementation), alone(model), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", DIFFERENT)
def test_gradients_of_a_packed_row_are_those_of_its_samples(kind: str) -> None:
    model = make(kind)
    ours, theirs = gradients(model, packed(model, "sdpa")), gradients(model, alone(model))
    for left, right in zip(ours, theirs, strict=True):
        assert (left - right).norm() <= 1e-5 * right.norm()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="flash and compiled flex attention need a GPU")
@pytest.mark.parametrize("implementation", ["flex", "flash"])
def test_gradients_on_a_gpu_are_those_of_sdpa(implementation: Kind) -> None:
    query, key, value = (torch.randn(1, heads, sum(LENGTHS), 64, device="cuda") for heads in (4, 2, 2))
    module = torch.nn.Module()
    found = []
    for kind in ("sdpa", implementation):
        inputs = [part.bfloat16().requires_grad_() for part in (query, key, value)]
        q, k, v = inputs
        out, _ = attend(module, q, k, v, None, layout=Layout(LENGTHS, kind, "cuda"))
        found.append([out, *torch.autograd.grad(out.float().square().sum(), inputs)])
    for left, right in zip(*found, strict=True):
        torch.testing.assert_close(left, right, rtol=3e-2, atol=3e-2)


def plain_varlen(q: Tensor, k: Tensor, v: Tensor, at: Tensor, scale: float | None, window: tuple[int, int]) -> Tensor:
    """What torch's kernel for sequences of different lengths computes, without a GPU."""
    assert window == (-1, 0)
    parts = []
    for begin, end in pairwise(at.tolist()):
        query, key, value = (part[begin:end].transpose(0, 1) for part in (q, k, v))
        out = functional.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale)
        parts.append(out.transpose(0, 1))
    return torch.cat(parts)


@pytest.mark.parametrize("shares_heads", [True, False])
def test_flash_attention_fits_versions_of_torch_that_share_heads_and_those_that_do_not(
    shares_heads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def newer(
        q: Tensor, k: Tensor, v: Tensor, at: Tensor, at_k: Tensor, longest: int, longest_k: int, *,
        scale: float | None = None, window_size: tuple[int, int] = (-1, -1), enable_gqa: bool = False,
    ) -> Tensor:  # fmt: skip
        k, v = (part.repeat_interleave(2, dim=1) if enable_gqa else part for part in (k, v))
        return plain_varlen(q, k, v, at, scale, window_size)

    def older(
        q: Tensor, k: Tensor, v: Tensor, at: Tensor, at_k: Tensor, longest: int, longest_k: int, *,
        scale: float | None = None, window_size: tuple[int, int] = (-1, -1),
    ) -> Tensor:  # fmt: skip
        return plain_varlen(q, k, v, at, scale, window_size)

    monkeypatch.setattr(attention, "_flash", lambda: newer if shares_heads else older)
    monkeypatch.setattr(attention, "find_spec", lambda name: None)
    model = make()
    with torch.no_grad():
        torch.testing.assert_close(packed(model, "flash"), alone(model), rtol=1e-5, atol=1e-5)


def test_a_kernel_of_torch_that_cannot_be_causal_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_window(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
        return q

    monkeypatch.setattr(attention, "find_spec", lambda name: None)
    monkeypatch.setattr(varlen, "varlen_attn", without_window)
    attention._flash.cache_clear()
    try:
        assert choose("auto", torch.device("cuda"), torch.bfloat16) == "flex"
    finally:
        attention._flash.cache_clear()


def test_another_sample_in_the_row_changes_nothing() -> None:
    model = make()
    other = [*IDS[:3], (IDS[3] + 1) % 100, IDS[4]]
    with torch.no_grad():
        before, after = packed(model, "sdpa"), packed(model, "sdpa", other)
    same = torch.ones(len(before), dtype=torch.bool)
    same[sum(LENGTHS[:3]) : sum(LENGTHS[:4])] = False
    assert torch.equal(before[same], after[same])
    assert not torch.isclose(before[~same], after[~same]).all(1).any()


def test_the_layout_reaches_layers_that_are_computed_again() -> None:
    model = make()
    expected = gradients(model, packed(model, "sdpa"))
    for layer in decoder_layers(model):
        layer.forward = functools.partial(checkpoint, layer.forward, use_reentrant=False)
    for left, right in zip(gradients(model, packed(model, "sdpa")), expected, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-6, atol=1e-6)


@pytest.mark.suite("training", first=1)
@eager_flex
@pytest.mark.parametrize("implementation", ["sdpa", "flex"])
def test_autocast_may_leave_queries_wider_than_values(implementation: Kind) -> None:
    model = make()
    with torch.no_grad():
        exact = alone(model)
        with torch.autocast("cpu", torch.bfloat16):
            rough = packed(model, implementation)
    assert (rough - exact).norm() < 0.02 * exact.norm()


@pytest.mark.parametrize(
    "lengths", [(1,), (128,), (127, 2, 127), (5, 130, 1, 300, 77), (1000,), (256, 256), (40,) * 20]
)
@pytest.mark.parametrize("window", [None, 3, 129, 300])
def test_blocks_made_from_lengths_are_those_made_from_all_pairs_of_tokens(
    lengths: tuple[int, ...], window: int | None
) -> None:
    total = sum(lengths)
    mask = Layout(lengths, "flex").mask(window)
    slow = create_block_mask(mask.mask_mod, None, None, total, total, device="cpu")
    for ours, theirs in (
        ((mask.kv_num_blocks, mask.kv_indices), (slow.kv_num_blocks, slow.kv_indices)),
        ((mask.full_kv_num_blocks, mask.full_kv_indices), (slow.full_kv_num_blocks, slow.full_kv_indices)),
        ((mask.q_num_blocks, mask.q_indices), (slow.q_num_blocks, slow.q_indices)),
        ((mask.full_q_num_blocks, mask.full_q_indices), (slow.full_q_num_blocks, slow.full_q_indices)),
    ):
        assert listed(*ours) == listed(*theirs)


def listed(counts: Tensor | None, indices: Tensor | None) -> list[list[int]]:
    assert counts is not None
    assert indices is not None
    return [sorted(row[:count]) for count, row in zip(counts[0, 0].tolist(), indices[0, 0].tolist(), strict=True)]


def test_attention_without_a_layout_is_an_error() -> None:
    model = make()
    model.set_attn_implementation(NAME)
    with pytest.raises(ModelError, match="Attention does not get the places of packed samples"):
        model.get_decoder()(input_ids=IDS[3][None])


def test_a_cpu_takes_sdpa_and_refuses_what_cannot_train_there() -> None:
    cpu = torch.device("cpu")
    assert choose("auto", cpu, torch.float32) == "sdpa"
    assert choose("sdpa", cpu, torch.bfloat16) == "sdpa"
    with pytest.raises(ModelError, match="flex"):
        choose("flex", cpu, torch.float32)
    with pytest.raises(ModelError, match="flash"):
        choose("flash", cpu, torch.bfloat16)


def test_attention_that_is_more_than_causal_is_refused() -> None:
    q, module = torch.zeros(1, 1, 3, 8), torch.nn.Module()
    for name in ("softcap", "s_aux", "position_bias"):
        for function in (attend, attend_alone):
            option: dict[str, Any] = {name: 30.0}
            with pytest.raises(ModelError, match=f"Module has {name}"):
                function(module, q, q, q, None, **option)
    with pytest.raises(ModelError, match="Module has a mask of its own"):
        attend(module, q, q, q, torch.zeros(3, 3), layout=Layout((3,)))
    windowed: Any = make("mistral").get_decoder().layers[0].self_attn
    windowed.config.layer_types = ["sliding_attention", "full_attention"]
    with pytest.raises(ModelError, match="leaves the width of its sliding window to the mask"):
        attend(windowed, q, q, q, None, layout=Layout((3,)))
