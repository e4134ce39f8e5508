"""Small random causal models of many families, and what the learner must compute with them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoTokenizer,
    PreTrainedModel,
)

from ludus.trainer.core.samples import TrainBatch
from ludus.trainer.core.tiny import make_tiny_model
from ludus.trainer.learning.learner import Learner

SIZES: dict[str, Any] = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": 1,
    "tie_word_embeddings": False,
    "initializer_range": 0.1,
}
EXPERTS: dict[str, Any] = {
    "n_routed_experts": 4,
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "n_shared_experts": 1,
    "num_shared_experts": 1,
}
LATENT: dict[str, Any] = {
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "num_key_value_heads": 4,
    "head_dim": 8,
}
BUFFERED: dict[str, dict[str, Any]] = {
    "apertus": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
    "axk1": EXPERTS | LATENT,
    "deepseek_v3": EXPERTS | LATENT,
    "dots1": EXPERTS,
    "exaone_moe": EXPERTS,
    "gemma4_text": {
        "num_hidden_layers": 4,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "vocab_size_per_layer_input": 320,
        "hidden_size_per_layer_input": 16,
        "global_head_dim": 16,
        "num_kv_shared_layers": 2,
        "final_logit_softcapping": 3.0,
    },
    "glm4_moe": EXPERTS,
    "glm4_moe_lite": EXPERTS | LATENT,
    "hy_v3": EXPERTS,
    "longcat_flash": EXPERTS | LATENT | {"ffn_hidden_size": 64, "expert_ffn_hidden_size": 32, "moe_topk": 2},
    "minimax_m2": EXPERTS,
    "solar_open": EXPERTS,
}
"""Families whose checkpoints have tensors that no gradient reaches: routers' biases, layers' scales."""
PLAIN: dict[str, dict[str, Any]] = {
    "afmoe": EXPERTS,
    "arcee": {},
    "cohere": {"logit_scale": 0.25},
    "cohere2": {},
    "deepseek_v2": EXPERTS | LATENT,
    "ernie4_5": {},
    "ernie4_5_moe": EXPERTS,
    "exaone4": {},
    "gemma": {},
    "gemma3_text": {},
    "gemma3n_text": {
        "num_hidden_layers": 4,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "vocab_size_per_layer_input": 320,
        "hidden_size_per_layer_input": 16,
        "num_kv_shared_layers": 2,
        "laurel_rank": 8,
        "pad_token_id": 319,  # the gradient of its state, which is 0, is not a number
        "activation_sparsity_pattern": [0.5, 0.0, 0.5, 0.0],
        "final_logit_softcapping": 3.0,
    },
    "glm4": {},
    "gpt2": {"tie_word_embeddings": True},
    "granite": {"logits_scaling": 8.0},
    "granitemoe": EXPERTS | {"logits_scaling": 6.0},
    "hunyuan_v1_dense": {},
    "llama": {},
    "ministral3": {},
    "mistral": {},
    "mixtral": EXPERTS,
    "nanochat": {},
    "olmo2": {},
    "olmo3": {},
    "olmoe": EXPERTS,
    "phi3": {},
    "qwen2": {"tie_word_embeddings": True},
    "qwen2_moe": EXPERTS | {"shared_expert_intermediate_size": 32},
    "qwen3": {"tie_word_embeddings": True},
    "qwen3_moe": EXPERTS,
    "seed_oss": {},
    "smollm3": {},
    "starcoder2": {},
}
"""Families without such tensors."""
GATED_DELTA: dict[str, Any] = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "shared_expert_intermediate_size": 32,
}
MAMBA: dict[str, Any] = {
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_d_state": 16,
    "mamba_chunk_size": 16,
    "mamba_dt_rank": 8,
    "state_size": 16,
    "time_step_rank": 8,
}
HYBRID: dict[str, dict[str, Any]] = {
    "bailing_hybrid": EXPERTS
    | LATENT
    | {"layer_types": ["linear_attention", "full_attention"], "linear_head_dim": 16, "linear_num_heads": 4}
    | {"num_expert_group": 1, "num_experts_per_token": 2, "mlp_layer_types": ["dense", "sparse"]},
    "bamba": MAMBA | {"attn_layer_indices": [1]},
    "falcon_h1": MAMBA | {"mamba_d_ssm": 128, "lm_head_multiplier": 0.5},
    "falcon_mamba": MAMBA,
    "granitemoehybrid": MAMBA
    | EXPERTS
    | {"layer_types": ["mamba", "attention"], "shared_intermediate_size": 64, "logits_scaling": 8.0},
    "jamba": MAMBA | EXPERTS | {"attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 4},
    "kimi_linear": EXPERTS
    | LATENT
    | {"layer_types": ["linear_attention", "full_attention"], "linear_head_dim": 16, "linear_num_heads": 4}
    | {"num_expert_group": 1, "num_experts_per_token": 2, "mlp_layer_types": ["dense", "sparse"]},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "lfm2_moe": EXPERTS | {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "lfm3": {
        "num_hidden_layers": 3,
        "layer_types": ["conv", "full_attention", "sliding_attention"],
        "sliding_window": 8,
    },
    "mamba": MAMBA,
    "mamba2": MAMBA | {"num_heads": 8, "head_dim": 16, "n_groups": 2, "chunk_size": 16},
    "minimax": EXPERTS | {"layer_types": ["linear_attention", "full_attention"], "block_size": 16},
    "nemotron_h": EXPERTS
    | {
        "num_hidden_layers": 4,
        "layers_block_type": ["mamba", "moe", "attention", "mlp"],
        "mamba_num_heads": 8,
        "mamba_head_dim": 16,
        "ssm_state_size": 16,
        "n_groups": 2,
        "chunk_size": 16,
        "moe_shared_expert_intermediate_size": 32,
    },
    "olmo_hybrid": GATED_DELTA | {"linear_num_key_heads": 4},
    "qwen3_5_moe_text": GATED_DELTA | EXPERTS,
    "qwen3_5_text": GATED_DELTA,
    "qwen3_next": GATED_DELTA | EXPERTS,
    "recurrent_gemma": {
        "num_hidden_layers": 3,
        "lru_width": 64,
        "attention_window_size": 8,
        "tie_word_embeddings": True,
    },
    "zamba2": {
        "num_hidden_layers": 3,
        "layers_block_type": ["mamba", "hybrid", "mamba"],
        "hybrid_layer_ids": [1],
        "mamba_d_state": 16,
        "n_mamba_heads": 8,
        "mamba_headdim": 16,
        "chunk_size": 16,
        "num_key_value_heads": 4,
        "tie_word_embeddings": True,
    },
}
"""Families with recurrent layers."""
INDEXED: dict[str, Any] = {
    "layer_types": ["indexed_attention"] * 2,
    "mlp_layer_types": ["dense", "sparse"],
    "index_topk": 8,
    "index_head_dim": 16,
    "index_n_heads": 16,  # with few, scores that are all 0 tie, and the length of the row decides which are taken
}
LONELY: dict[str, dict[str, Any]] = {
    "bloom": {"tie_word_embeddings": True},
    "deepseek_v32": EXPERTS | LATENT | INDEXED,
    "gemma2": {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0, "query_pre_attn_scalar": 16},
    "glm_moe_dsa": EXPERTS | LATENT | INDEXED,
    "gpt_oss": EXPERTS,
    "granite_swa": {},
    "llama4_text": EXPERTS | {"num_experts_per_tok": 1, "attention_chunk_size": 16, "intermediate_size_mlp": 64},
    "mimo_v2_flash": EXPERTS | {"v_head_dim": 16},
    "minimax_m3_vl_text": EXPERTS
    | {
        "layer_types": ["full_attention", "minimax_m3_sparse"],
        "index_n_heads": 2,
        "index_head_dim": 16,
        "index_block_size": 4,
        "index_topk_blocks": 2,
        "dense_intermediate_size": 64,
        "shared_intermediate_size": 32,
        "rotary_dim": 8,
    },
    "nemotron": {},
    "phimoe": EXPERTS,
    "stablelm": {},
}
"""Families without recurrent layers, of which a row can hold one sample only."""


FAMILIES: dict[str, dict[str, Any]] = BUFFERED | PLAIN | HYBRID | LONELY


WITH_IMAGES: dict[str, str] = {
    "gemma3": "gemma3_text",
    "gemma4": "gemma4_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
}
"""Families that read images too, by that of their text."""
VISION: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "depth": 1,
    "num_attention_heads": 2,
    "num_heads": 2,
    "out_hidden_size": 64,
    "image_size": 28,
    "patch_size": 14,
}


def make_family(family: str, folder: Path) -> Path:
    """Write a random model of a family with a tokenizer to `folder`, and return it. None of its tensors is constant."""
    if family in WITH_IMAGES:
        return _make_with_images(family, folder)
    default = AutoConfig.for_model(family)
    window = {"sliding_window": 16} if hasattr(default, "sliding_window") else {}  # shorter than samples
    config = type(default)(**{**SIZES, **window, **FAMILIES[family]})
    torch.manual_seed(0)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for tensor in model.state_dict().values():
            if tensor.is_floating_point() and tensor.ndim < 2:  # norms, biases and buffers, which begin as constants
                tensor += 0.2 * torch.randn_like(tensor)
    return _save(model, folder, family)


def _make_with_images(family: str, folder: Path) -> Path:
    text = {**SIZES, **FAMILIES[WITH_IMAGES[family]], "model_type": WITH_IMAGES[family]}
    options: dict[str, Any] = {"audio_config": None} if family == "gemma4" else {}
    config = type(AutoConfig.for_model(family))(text_config=text, vision_config=VISION, **options)
    torch.manual_seed(0)
    return _save(AutoModelForImageTextToText.from_config(config, dtype=torch.float32), folder, family)


def _save(model: PreTrainedModel, folder: Path, family: str) -> Path:
    tokenizer = AutoTokenizer.from_pretrained(make_tiny_model(folder / "words", vocabulary=320))
    model.save_pretrained(folder / family)
    tokenizer.save_pretrained(folder / family)
    return folder / family


def plain_model(folder: Path) -> PreTrainedModel:
    """The model by transformers' plain code, which every other way to compute it must equal."""
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    return model.eval()


def plain_logprobs(model: PreTrainedModel, ids: Sequence[int]) -> Tensor:
    """The log-probabilities of ids[1:]."""
    every: Tensor = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, :-1].float().log_softmax(-1)
    return every.gather(1, torch.tensor(ids[1:])[:, None])[:, 0]


def check_rows(learner: Learner, plain: PreTrainedModel, batch: TrainBatch) -> None:
    """The learner's rows give log-probabilities and the gradient of samples that are computed one by one."""
    for work in learner._share(batch.samples):
        logprobs, _ = learner.policy(work.micro, False)
        torch.autograd.backward((logprobs * work.micro.advantages).sum())
    ours = learner.logprobs([item.sample for item in batch.samples])
    for item, found in zip(batch.samples, ours, strict=True):
        counted = torch.tensor(item.sample.mask[1:])
        expected = plain_logprobs(plain, item.sample.ids)[counted]
        torch.testing.assert_close(found, expected.detach(), rtol=1e-5, atol=5e-5)
        torch.autograd.backward((expected * torch.tensor(item.advantages)[1:][counted]).sum())
    differences, sizes = [torch.zeros(1)], [torch.zeros(1)]
    for (name, mine), theirs in zip(learner.model.named_parameters(), plain.parameters(), strict=True):
        assert (mine.grad is None) == (theirs.grad is None), name
        if mine.grad is not None and theirs.grad is not None:
            differences.append((mine.grad - theirs.grad).norm()[None])
            sizes.append(theirs.grad.norm()[None])
    assert float(torch.cat(differences).norm()) <= 1e-4 * float(torch.cat(sizes).norm())
