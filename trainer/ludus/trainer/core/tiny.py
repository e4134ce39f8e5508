"""A small random model for the demo, for tests, and for trying a configuration on a laptop.

It is a Qwen3 with untied embeddings, a tokenizer trained offline, and a short ChatML template. Text that the tokenizer
was trained on takes few tokens. Every digit is a separate token, so that numbers can be learned. So is every cell of a
board such as `. X O .`, so that two cells are always as many tokens apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

PADDING: Final = "<|endoftext|>"
TURN: Final = "<|im_start|>"
TURN_END: Final = "<|im_end|>"
CALL: Final = "<tool_call>"
CALL_END: Final = "</tool_call>"

TEMPLATE: Final = """\
{%- macro signature(function) -%}
{{ function.name }}(
{%- for name, schema in ((function.parameters or {}).properties or {}).items() -%}
{{ ", " if not loop.first }}{{ name }}: {{ schema.type if schema.type is string else schema | tojson }}
{%- if schema.description %} = {{ schema.description }}{% endif -%}
{%- endfor -%}
){% if function.description %} {{ function.description }}{% endif %}
{%- endmacro -%}
{%- set first = messages[0] if messages and messages[0].role == "system" -%}
{%- if first or tools -%}
<|im_start|>system
{{ first.content if first }}
{%- if tools -%}
{{ "\n" if first }}Tools:
{%- for tool in tools %}{{ "\n" ~ signature(tool.function or tool) }}{% endfor -%}
{%- endif -%}
<|im_end|>
{% endif -%}
{%- for message in messages -%}
{%- if not (loop.first and first) -%}
<|im_start|>{{ message.role }}
{{ message.content or "" }}
{%- for call in message.tool_calls or [] -%}
{%- set function = call.function or call -%}
<tool_call>{"name": {{ function.name | tojson }}, "arguments": {{
    function.arguments if function.arguments is string else function.arguments | tojson }}}</tool_call>
{%- endfor -%}
<|im_end|>
{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}
"""
"""A ChatML template. The text of a longer conversation begins with the text of a shorter one: it never rewrites
earlier turns."""

_FRAMES: Final = (
    "system\nTools:\n",
    "user\n",
    "assistant\n",
    "tool\n",
    "\n",
    '{"name": "',
    '", "arguments": {"',
    '": ',
    "}}",
)
_CELL: Final = r"(?<!\S)[^\s\d] (?=[^\s\d](?:\s|$))"
"""A single character and the space after it, if another single character follows; digits are separate anyway."""
_SPECIAL: Final = (PADDING, TURN, TURN_END, CALL, CALL_END)


def make_tiny_model(
    folder: Path | str,
    *,
    texts: Iterable[str] = (),
    vocabulary: int = 512,
    hidden: int = 128,
    layers: int = 2,
    heads: int = 4,
    context: int = 4096,
    seed: int = 0,
) -> Path:
    """Write a random model and its tokenizer into `folder`, in Hugging Face format.

    Args:
        folder: created if missing; a model in it is overwritten.
        texts: the tokenizer's training texts: prompts, tool calls and observations, or whole conversations as the
            template writes them. Without any, tokens are single bytes.
        vocabulary: the maximum number of tokens: the 256 bytes, 5 special tokens, and phrases of `texts`.
        hidden: the width; a multiple of twice `heads`.
        layers: the number of decoder layers.
        heads: the number of query heads; half as many hold keys and values.
        context: the number of positions.
        seed: the seed of the weights.

    Returns:
        `folder`, as `AutoModelForCausalLM.from_pretrained` takes it.
    """
    if hidden % (2 * heads):
        raise ValueError(f"hidden ({hidden}) must be a multiple of twice the heads ({heads})")
    folder = Path(folder)
    tokenizer = make_tokenizer(texts, vocabulary)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=max(1, heads // 2),
        head_dim=hidden // heads,
        max_position_embeddings=context,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.get_vocab()[TURN_END],
        pad_token_id=tokenizer.get_vocab()[PADDING],
        architectures=["Qwen3ForCausalLM"],
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_tokenizer(texts: Iterable[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer. A token may be a phrase; a digit is one token, and so is a cell of a board; a
    line break ends a token.

    Raises:
        ValueError: `vocabulary` has no room for the bytes and the special tokens.
    """
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    if vocabulary < len(alphabet) + len(_SPECIAL):
        raise ValueError(f"vocabulary ({vocabulary}) must be at least {len(alphabet) + len(_SPECIAL)}")
    tokenizer = Tokenizer(models.BPE())
    # Without the usual split into words, a fixed phrase becomes one token. A line break ends a token, so that the text
    # after `assistant` and its line break has the same ids whether it was sampled or rendered. It comes first, so that
    # every line is encoded by itself, and `ludus.rendering` need not encode a line again that it has seen.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split("\n", "merged_with_previous"),
            pre_tokenizers.Split(Regex(_CELL), "isolated"),
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    marks = re.compile("|".join(map(re.escape, _SPECIAL)))
    corpus = [part for text in texts for part in marks.split(text) if part]
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(_SPECIAL),
        initial_alphabet=sorted(alphabet),
        min_frequency=2,
        show_progress=False,
    )
    tokenizer.train_from_iterator([*corpus, *_FRAMES * 4] if corpus else [], trainer)
    # Not `special`, so that skip_special_tokens keeps the marks of a call in decoded text.
    tokenizer.add_special_tokens([PADDING, TURN, TURN_END])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in (CALL, CALL_END)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=TURN_END,
        pad_token=PADDING,
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
    )
