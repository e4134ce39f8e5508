"""Model families by name: a judge of the policy's own family prefers text that sounds like itself."""

from __future__ import annotations

import re
from typing import Final

_FAMILIES: Final = {
    "gpt": ("gpt", "chatgpt", "o1", "o3", "o4", "davinci", "codex"),
    "claude": ("claude",),
    "gemini": ("gemini", "gemma", "palm"),
    "llama": ("llama", "codellama", "vicuna", "alpaca"),
    "qwen": ("qwen", "qwq", "qvq"),
    "mistral": ("mistral", "mixtral", "ministral", "codestral", "magistral", "devstral", "pixtral", "zephyr"),
    "deepseek": ("deepseek",),
    "phi": ("phi",),
    "cohere": ("command", "aya", "c4ai"),
    "grok": ("grok",),
    "glm": ("glm", "chatglm"),
    "kimi": ("kimi", "moonshot", "moonlight"),
    "yi": ("yi",),
    "olmo": ("olmo", "tulu"),
    "nemotron": ("nemotron",),
    "granite": ("granite",),
    "smollm": ("smollm",),
    "internlm": ("internlm", "internvl"),
    "minimax": ("minimax", "abab"),
    "falcon": ("falcon",),
}
_WORD: Final = re.compile(r"[a-z]+\d*[a-z]*|\d+")
_OF_WORD: Final = {word: family for family, words in _FAMILIES.items() for word in words}


def families_of(model: str) -> frozenset[str]:
    """Return the families that a model's name indicates; a distilled model has several.

    `meta-llama/Llama-3.1-8B` → llama; `DeepSeek-R1-Distill-Qwen-7B` → deepseek, qwen. A name without a
    known family is a family of its own, named by its first word.
    """
    name = model.casefold().rpartition(":")[2] if model.startswith("openai:") else model.casefold()
    words = _WORD.findall(name)
    families = {family for word in words if (family := _family(word)) is not None}
    if families:
        return frozenset(families)
    last_words = _WORD.findall(name.rpartition("/")[2])
    return frozenset(last_words[:1] or [name])


def _family(word: str) -> str | None:
    plain = word if word in _OF_WORD else word.rstrip("0123456789")
    if plain in _OF_WORD:
        return _OF_WORD[plain]
    without_size = re.sub(r"\d.*", "", word)  # gpt4o, llama3b
    return _OF_WORD.get(without_size)
