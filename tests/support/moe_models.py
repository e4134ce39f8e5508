"""Small random mixtures of experts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, MixtralConfig, MixtralForCausalLM, PreTrainedModel, Qwen3MoeConfig
from transformers import Qwen3MoeForCausalLM as Qwen3Moe

from ludus.trainer.core.tiny import make_tiny_model

SIZES: dict[str, Any] = {
    **{"vocab_size": 320, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2},
    **{"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 32, "num_experts_per_tok": 2},
    **{"max_position_embeddings": 2048, "tie_word_embeddings": False},
}


def make_moe(kind: str, folder: Path) -> Path:
    """A random mixture of experts with a tokenizer."""
    torch.manual_seed(0)
    model: PreTrainedModel
    if kind == "mixtral":
        model = MixtralForCausalLM(MixtralConfig(num_local_experts=4, **SIZES))
    else:
        model = Qwen3Moe(Qwen3MoeConfig(num_experts=4, moe_intermediate_size=32, **SIZES))
    AutoTokenizer.from_pretrained(make_tiny_model(folder / "words", vocabulary=320)).save_pretrained(folder / kind)
    model.save_pretrained(folder / kind)
    return folder / kind
