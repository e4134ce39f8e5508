"""The model of the checks: random weights in the shape of Qwen3-0.6B, or a small one for a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from ludus.trainer.core.tiny import PADDING, TURN_END, make_tokenizer
from ludus.trainer.doctor.context import Context

FULL: Final[dict[str, Any]] = {
    "vocab_size": 151_936,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
    "tie_word_embeddings": True,
}
"""The shape of Qwen3-0.6B, by its published configuration."""
SMALL: Final[dict[str, Any]] = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 192,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,  # vLLM's CPU backend supports no smaller one
    "tie_word_embeddings": True,
}
SPREAD: Final = 0.04
"""The standard deviation of the weights: twice the usual one, so that some tokens are much likelier than others."""


def build(folder: Path, *, small: bool, **changes: Any) -> Path:
    """Write a random model and a tokenizer of bytes into `folder`, in Hugging Face format, and return it. `changes` are
    values of its configuration that differ."""
    tokenizer = make_tokenizer((), 261)
    config = Qwen3Config(
        **{**(SMALL if small else FULL), **changes},
        initializer_range=SPREAD,
        max_position_embeddings=40_960,
        bos_token_id=None,
        eos_token_id=tokenizer.get_vocab()[TURN_END],
        pad_token_id=tokenizer.get_vocab()[PADDING],
        architectures=["Qwen3ForCausalLM"],
        dtype="float32" if small else "bfloat16",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Qwen3ForCausalLM(config)
    if not small:
        torch.nn.Module.to(model, torch.bfloat16)  # as the published weights are; buffers are not saved
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def build_part(context: Context) -> None:
    """Write the built-in model into the folder that the settings name."""
    build(Path(context.setting.model), small=context.setting.small)


def describe(folder: Path) -> dict[str, Any]:
    """Return the shape of a model, for the report, with None for what its configuration does not say."""
    from safetensors import safe_open
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder).get_text_config()
    parameters = 0
    for file in folder.glob("*.safetensors"):
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():
                count = 1
                for size in tensors.get_slice(name).get_shape():
                    count *= size
                parameters += count
    return {
        "architecture": next(iter(config.architectures or ()), None) or config.model_type,
        "parameters": parameters or None,
        "layers": getattr(config, "num_hidden_layers", None),
        "width": getattr(config, "hidden_size", None),
        "vocabulary": getattr(config, "vocab_size", None),
        "tied": getattr(config, "tie_word_embeddings", None),
    }
