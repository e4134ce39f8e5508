"""Encoding of text: the ids that a tokenizer of transformers gives, in half of its time.

Such a tokenizer wraps a library in Rust. For each text it also makes offsets, words and masks, which takes about as
long as the ids themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

_TEXTS: Final = ("probe", " A b\n\n\tc  ", "é😀 1234,5", "</s><|im_end|>\n")
"""Texts for which both ways must give the same."""


def text_encoder(tokenizer: Any) -> Callable[[str], list[int]]:
    """Return the function that returns the ids of a text, without tokens that begin or end a text.

    It asks the library for ids alone, or the tokenizer if there is no such library, if the two differ, or while another
    user of the tokenizer has left it with settings that `encode` would reset.
    """
    backend: Any = getattr(tokenizer, "backend_tokenizer", None)

    def slow(text: str) -> list[int]:
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False)
        return ids

    def fast(text: str) -> list[int]:
        if backend.truncation is not None or backend.padding is not None or backend.encode_special_tokens:
            return slow(text)
        ids: list[int] = backend.encode_batch_fast([text], add_special_tokens=False)[0].ids
        return ids

    try:
        return fast if all(fast(text) == slow(text) for text in _TEXTS) else slow
    except AttributeError:
        return slow
