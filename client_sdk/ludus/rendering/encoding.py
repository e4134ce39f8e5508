"""Encoding of text: the ids that a tokenizer of transformers gives, in half of its time or less.

Such a tokenizer wraps a library in Rust. For each text it also makes offsets, words and masks, which takes about as
long as the ids themselves. If the tokenizer encodes every line by itself, as the tiny models' one does, lines that
occurred before are not encoded again: observations such as boards repeat most of their lines.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from typing import Any, Final

_TEXTS: Final = ("probe", " A b\n\n\tc  ", "é😀 1234,5", "</s><|im_end|>\n")
"""Texts for which both ways must give the same."""
_LINE: Final = re.compile(r"[^\n]*\n|[^\n]+")
_LINES: Final = 20_000
_LONGEST: Final = 200
"""The most characters of a line that is kept."""


def text_encoder(tokenizer: Any) -> Callable[[str], list[int]]:
    """Return the function that returns the ids of a text, without tokens that begin or end a text.

    It asks the library for ids alone, or the tokenizer if there is no such library, if the two differ, or while another
    user of the tokenizer has left it with settings that `encode` would reset.
    """
    backend: Any = getattr(tokenizer, "backend_tokenizer", None)

    def slow(text: str) -> list[int]:
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False)
        return ids

    def whole(text: str) -> list[int]:
        ids: list[int] = backend.encode_batch_fast([text], add_special_tokens=False)[0].ids
        return ids

    kept = functools.lru_cache(_LINES)(whole)

    def by_lines(text: str) -> list[int]:
        return [one for line in _LINE.findall(text) for one in (kept if len(line) <= _LONGEST else whole)(line)]

    def fast(text: str) -> list[int]:
        if backend.truncation is not None or backend.padding is not None or backend.encode_special_tokens:
            return slow(text)
        return encode(text)

    try:
        encode = by_lines if _separates_lines(backend) else whole
        return fast if all(fast(text) == slow(text) for text in _TEXTS) else slow
    except AttributeError:
        return slow


def _separates_lines(backend: Any) -> bool:
    """Return whether a tokenizer encodes every line of a text by itself: before anything else, it ends a piece at each
    line break, and none of its added tokens reaches over one."""
    if backend.normalizer is not None or backend.pre_tokenizer is None:
        return False
    added = backend.get_added_tokens_decoder().values()
    if any("\n" in token.content or token.lstrip or token.rstrip for token in added):
        return False
    steps = json.loads(backend.pre_tokenizer.__getstate__())
    first = (steps.get("pretokenizers") or [steps])[0]
    return (first.get("type"), first.get("pattern"), first.get("behavior"), first.get("invert")) == (
        "Split", {"String": "\n"}, "MergedWithPrevious", False,
    )  # fmt: skip
