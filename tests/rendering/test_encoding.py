"""Ids from the library behind a tokenizer are those of the tokenizer, whatever others do with it."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from chat_models import chatml, llama2, llama3
from hypothesis import given, settings
from hypothesis import strategies as st

from ludus.rendering.encoding import text_encoder

MODELS: dict[str, Callable[[], Any]] = {"chatml": chatml, "llama3": llama3, "llama2": llama2}
TOKENIZERS: dict[str, Any] = {name: make() for name, make in MODELS.items()}
pieces = st.sampled_from(["<|im_end|>", "</s>", "<|eot_id|>", " ", "\n", "word", "é", "😀", "\ufdd0", "12", "\t"])


@pytest.mark.parametrize("name", sorted(MODELS))
@settings(deadline=None)
@given(text=st.one_of(st.text(max_size=40), st.lists(pieces, max_size=10).map("".join)))
def test_the_ids_are_those_of_the_tokenizer(name: str, text: str) -> None:
    tokenizer = TOKENIZERS[name]
    assert text_encoder(tokenizer)(text) == tokenizer.encode(text, add_special_tokens=False)


@pytest.mark.parametrize(
    "change",
    [
        lambda tokenizer: tokenizer("a long text", padding="max_length", max_length=20, truncation=True),
        lambda tokenizer: tokenizer("</s>", split_special_tokens=True),
    ],
    ids=["padding and truncation", "special tokens as text"],
)
def test_settings_that_another_user_left_in_the_tokenizer_change_nothing(change: Callable[[Any], Any]) -> None:
    tokenizer = copy.deepcopy(chatml())
    tokenizer.pad_token = "<|im_end|>"
    encode = text_encoder(tokenizer)
    text = "A rather long text of many words, so that it would be cut.<|im_end|>" * 3
    ids = encode(text)
    change(tokenizer)
    assert encode(text) == ids


def test_a_tokenizer_without_such_a_library_is_asked_itself() -> None:
    class Plain:
        def encode(self, text: str, add_special_tokens: bool) -> list[int]:
            return [ord(letter) for letter in text]

    assert text_encoder(Plain())("ab") == [97, 98]


def test_a_tokenizer_that_encodes_differently_from_its_library_is_asked_itself() -> None:
    tokenizer = copy.deepcopy(chatml())
    own = tokenizer.encode
    tokenizer.encode = lambda text, **options: [*own(text, **options), 7]
    assert text_encoder(tokenizer)("word")[-1] == 7
