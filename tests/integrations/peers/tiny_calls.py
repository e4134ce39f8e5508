"""A tiny random model that calls tools at once, because a whole tool call is one token of it.

    make_model(folder, calls=[{"name": "add", "arguments": {"a": 1, "b": 2}}], words=["The sum is 3."])

A turn of it is one of these calls or words, at random, and the end of the turn; now and then there are two or more. It
needs torch and transformers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CHATML = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' + (tools | tojson) + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + (message.content or '') }}
    {%- for call in message.tool_calls or [] %}
        {{- '<tool_call>\\n' + ({"name": call.function.name, "arguments": call.function.arguments} | tojson) }}
        {{- '\\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKS = ("<tool_call>", "</tool_call>", "<think>", "</think>", "<tool_response>", "</tool_response>")


def call_text(call: dict[str, Any]) -> str:
    """Return a call as a model of the Qwen family writes it."""
    return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"


def make_model(
    folder: Path | str,
    calls: Sequence[dict[str, Any]],
    words: Sequence[str] = (),
    *,
    template: str = CHATML,
    hidden: int = 32,
    layers: int = 1,
    context: int = 4096,
    seed: int = 0,
) -> Path:
    """Write the model and its tokenizer into `folder`, as `from_pretrained` takes them.

    Args:
        folder: created if missing.
        calls: the calls that it makes, as `name` and `arguments`.
        words: the texts that it says.
        template: its chat template, in ChatML.
        hidden: the width.
        layers: the number of layers.
        context: the number of positions.
        seed: the seed of the weights.
    """
    import torch
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(letters)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(list(SPECIAL))
    said = [*map(call_text, calls), *words]
    core.add_tokens([AddedToken(text, special=False, normalized=False) for text in (*MARKS, *said)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=template,
        clean_up_tokenization_spaces=False,
    )  # fmt: skip
    config = Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=hidden, intermediate_size=2 * hidden, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=2, head_dim=hidden // 4, max_position_embeddings=context,
        tie_word_embeddings=False, bos_token_id=None, eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id, dtype="float32",
    )  # fmt: skip
    torch.manual_seed(seed)
    model = Qwen3ForCausalLM(config)
    with torch.no_grad():
        # The first dimension is 1 in every state, so its output weights are a bias; the second one is 1 after a call.
        known, embedded, head = tokenizer.convert_tokens_to_ids(said), model.model.embed_tokens.weight, model.lm_head
        embedded[:, 0], embedded[:, 1] = 1.0, 0.0
        embedded[known, 1] = 1.0
        head.weight[:, 0], head.weight[:, 1] = -30.0 / hidden**0.5, 0.0
        head.weight[known, 0] = 0.0
        head.weight[tokenizer.eos_token_id, 1] = 36.0 / hidden**0.5
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return Path(folder)
