"""Ids from the library behind a tokenizer are those of the tokenizer, whatever others do with it."""

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
from chat_models import chatml, llama2, llama3
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken

from ludus.rendering.encoding import text_encoder
from ludus.trainer.core.tiny import make_tokenizer

BOARD = "\n".join(["1 2 3", ". X .", "O X O", "X O X"])


@functools.cache
def tiny() -> Any:
    """One that encodes every line by itself."""
    return make_tokenizer([BOARD, "It is your move.\nX dropped into column 1.\n"] * 3, 400)


MODELS: dict[str, Callable[[], Any]] = {"chatml": chatml, "llama3": llama3, "llama2": llama2, "tiny": tiny}
TOKENIZERS: dict[str, Any] = {name: make() for name, make in MODELS.items()}
pieces = st.sampled_from(
    ["<|im_end|>", "</s>", "<|eot_id|>", " ", "\n", "word", "é", "😀", "\ufdd0", "12", "\t", ". ", "X"]
)


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


class Counted:
    """A tokenizer whose library counts the characters that it encodes."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer, self.characters = tokenizer, 0
        self.backend_tokenizer = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tokenizer if name == "encode" else self.tokenizer.backend_tokenizer, name)

    def encode_batch_fast(self, texts: list[str], **options: Any) -> Any:
        self.characters += sum(map(len, texts))
        return self.tokenizer.backend_tokenizer.encode_batch_fast(texts, **options)


@pytest.mark.parametrize(("make", "again"), [(tiny, 0), (chatml, len(BOARD)), (llama2, len(BOARD))])
def test_a_line_is_encoded_once_where_the_tokenizer_encodes_lines_by_themselves(
    make: Callable[[], Any], again: int
) -> None:
    tokenizer = Counted(make())
    encode = text_encoder(tokenizer)
    ids = encode(BOARD)
    tokenizer.characters = 0
    assert encode(BOARD) == ids == make().encode(BOARD, add_special_tokens=False)
    assert tokenizer.characters == again


def test_an_added_token_that_reaches_over_a_line_break_is_found() -> None:
    tokenizer = copy.deepcopy(tiny())
    tokenizer.add_tokens([AddedToken("\n\n", normalized=False)])
    assert text_encoder(tokenizer)("a\n\nb") == tokenizer.encode("a\n\nb", add_special_tokens=False)
    stripping = copy.deepcopy(tiny())
    stripping.add_tokens([AddedToken("<gap>", rstrip=True, normalized=False)])
    text = "a<gap>\n\n b"
    assert text_encoder(stripping)(text) == stripping.encode(text, add_special_tokens=False)
