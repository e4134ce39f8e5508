"""Small random causal models of many families."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from ludus.trainer.core.tiny import make_tiny_model

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
        "vocab_size_per_layer_input": 320,
        "hidden_size_per_layer_input": 16,
        "global_head_dim": 16,
        "num_kv_shared_layers": 0,
        "final_logit_softcapping": None,
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
    "cohere": {"logit_scale": 1.0},
    "ernie4_5_moe": EXPERTS,
    "exaone4": {},
    "gemma": {},
    "gemma3_text": {},
    "glm4": {},
    "granitemoe": EXPERTS,
    "llama": {},
    "mistral": {},
    "mixtral": EXPERTS,
    "olmo2": {},
    "olmoe": EXPERTS,
    "phi3": {},
    "qwen2": {"tie_word_embeddings": True},
    "qwen3": {"tie_word_embeddings": True},
    "qwen3_moe": EXPERTS,
    "seed_oss": {},
    "smollm3": {},
    "starcoder2": {},
}
"""Families without such tensors."""
REFUSED: dict[str, dict[str, Any]] = {"gpt_oss": EXPERTS, "nemotron": {}, "stablelm": {}}
"""Families that the learner cannot pack."""


def make_family(family: str, folder: Path) -> Path:
    """Write a random model of a family with a tokenizer to `folder`, and return it. None of its tensors is constant."""
    config = type(AutoConfig.for_model(family))(**{**SIZES, **(BUFFERED | PLAIN | REFUSED)[family]})
    torch.manual_seed(0)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for tensor in model.state_dict().values():
            if tensor.is_floating_point() and tensor.ndim < 2:  # norms, biases and buffers, which begin as constants
                tensor += 0.2 * torch.randn_like(tensor)
    tokenizer = AutoTokenizer.from_pretrained(make_tiny_model(folder / "words", vocabulary=320))
    model.save_pretrained(folder / family)
    tokenizer.save_pretrained(folder / family)
    return folder / family
