"""A tokenizer of bytes with a chat template in Qwen's style, and a policy that solves sums with it, token by token."""

import json
import re

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

TEMPLATE = """\
{%- if tools %}{{- '<|im_start|>system\\n# Tools\\n' }}\
{%- for tool in tools %}{{- tool | tojson + '\\n' }}{%- endfor %}\
{{- '<|im_end|>\\n' }}{%- endif %}\
{%- for message in messages %}\
{%- if message.role == 'tool' %}\
{{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}\
{%- else %}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{%- endif %}\
{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}\
{#- calls are written in <tool_call>, as Qwen's template says to the model -#}"""

LOGPROB = -0.25


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer with one token per byte and one per mark."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(alphabet)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    inner.add_tokens([AddedToken(mark, special=False) for mark in ("<tool_call>", "</tool_call>")])
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=TEMPLATE
    )


def question(text: str) -> tuple[int, int]:
    """Return the two numbers that a prompt asks about."""
    a, b = re.findall(r"What is (-?\d+) \+ (-?\d+)", text)[-1]
    return int(a), int(b)


def call(name: str, **arguments: int) -> str:
    """Return a call in the form of Hermes."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


class SumPolicy:
    """Makes two calls of `add` at once, then submits: the right sum in every second episode, else a wrong one."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self.tokenizer = tokenizer
        self.requests: dict[str, list[tuple[list[int], list[int]]]] = {}
        """The prompts and the sampled ids of each request, by its id."""

    def sample(self, request: str, ids: list[int]) -> list[int]:
        """Return the next message of an episode, as ids that end with the end of the turn."""
        turns = self.requests.setdefault(request, [])
        right = list(self.requests).index(request) % 2 == 0
        a, b = question(self.tokenizer.decode(ids))
        text = call("submit", number=a + b + (not right))
        if not turns:
            text = f"I add twice.\n{call('add', a=a, b=b)}\n{call('add', a=b, b=a)}"
        said = [*self.tokenizer.encode(text, add_special_tokens=False), self.tokenizer.eos_token_id]
        turns.append((list(ids), said))
        return said

    def said(self, prompt: list[int]) -> list[list[tuple[list[int], list[int]]]]:
        """Return the turns of the episodes that began with a prompt."""
        return [turns for turns in self.requests.values() if turns[0][0] == prompt]


def is_exact(policy: SumPolicy, prompt: list[int], response: list[int], learned: list[int]) -> bool:
    """Return whether a response is what one episode sampled: each turn followed the ids before it, unchanged.

    Args:
        learned: 1 for each sampled token, 0 for others.
    """
    for turns in policy.said(prompt):
        sampled = [token for _, said in turns for token in said]
        if [token for token, one in zip(response, learned, strict=True) if one] != sampled:
            continue
        last, said = turns[-1]
        return (prompt + response)[: len(last) + len(said)] == last + said
    return False
