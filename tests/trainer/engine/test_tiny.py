import random
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from ludus.trainer.core.tiny import make_tiny_model, make_tokenizer

TEXTS = [
    *(f"I have chosen a whole number from {low} to {low + 16}, both included.\nCall `guess`." for low in range(40)),
    *(f'<tool_call>{{"name": "guess", "arguments": {{"number": {n}}}}}</tool_call>' for n in range(40)),
    *(f"My number is higher than {n}. Guesses left: {n % 5}." for n in range(40)),
]
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "guess",
            "description": "Guess the hidden number.",
            "parameters": {
                "type": "object",
                "properties": {
                    "number": {"type": "integer", "description": "your guess."},
                    "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                },
            },
        },
    },
    {"type": "function", "function": {"name": "stop", "parameters": {"type": "object"}}},
]


def call(number: int) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "guess", "arguments": {"number": number}}}


CONVERSATION: list[dict[str, Any]] = [
    {"role": "system", "content": "Play well."},
    {"role": "user", "content": TEXTS[3]},
    {"role": "assistant", "content": "", "tool_calls": [call(5), call(12)]},
    {"role": "tool", "content": TEXTS[85]},
    {"role": "tool", "content": TEXTS[92]},
    {"role": "assistant", "content": "I give up."},
]


def test_text_comes_back_exactly_and_digits_stand_alone() -> None:
    tokenizer = make_tokenizer(TEXTS, 512)
    for text in (*TEXTS, "ünï¢ödé 日本 \x00\r\n\n", "  1234567890  "):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    for token in range(len(tokenizer)):
        text = tokenizer.decode([token])
        assert len(text) == 1 or not any(character.isdigit() for character in text), text
        assert "\n" not in text[:-1], text


def test_text_like_that_it_was_trained_on_takes_few_tokens() -> None:
    tokenizer = make_tokenizer(TEXTS, 512)
    assert len(tokenizer.encode("My number is higher than 7. Guesses left: 2.")) <= 5
    assert len(tokenizer.encode('<tool_call>{"name": "guess", "arguments": {"number": 7}}</tool_call>')) <= 5


def test_a_cell_of_a_board_is_a_token_so_that_all_boards_take_the_same_number() -> None:
    boards = [
        "\n".join(" ".join(random.Random(n).choices(".XO", k=7)) for n in range(seed, seed + 6)) for seed in range(90)
    ]
    texts = [f"Drop a stone into a column.\n{board}\nIt is your move." for board in boards]
    tokenizer = make_tokenizer(texts, 512)
    found = [tokenizer.encode(text) for text in texts]
    assert len({len(ids) for ids in found}) == 1
    tokens = [tokenizer.decode([token]) for token in found[0]]
    assert tokens == ["Drop a stone into a column.\n", *_cells(boards[0]), "It is your move."]
    for text in (*texts, "a b cd e", "X O\n", ". 1 . 2"):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def _cells(board: str) -> list[str]:
    return [
        part for line in board.splitlines() for part in [*(f"{cell} " for cell in line.split()[:-1]), f"{line[-1]}\n"]
    ]


def test_without_texts_every_byte_is_a_token() -> None:
    tokenizer = make_tokenizer((), 512)
    assert len(tokenizer) == 261
    assert len(tokenizer.encode("higher é")) == 9


def test_a_vocabulary_without_room_for_the_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 261"):
        make_tokenizer((), 256)


@pytest.mark.parametrize("system", [True, False])
@pytest.mark.parametrize("tools", [TOOLS, None])
def test_a_longer_conversation_begins_with_the_ids_of_a_shorter_one(system: bool, tools: Any) -> None:
    tokenizer = make_tokenizer(TEXTS, 512)
    messages = CONVERSATION if system else CONVERSATION[1:]

    def render(count: int, prompt: bool) -> list[int]:
        encoded: Any = tokenizer.apply_chat_template(messages[:count], tools=tools, add_generation_prompt=prompt)
        return list(encoded["input_ids"])

    whole = render(len(messages), False)
    for count in range(1, len(messages)):
        assert whole[: len(render(count, False))] == render(count, False)
        if messages[count]["role"] == "assistant":
            assert whole[: len(render(count, True))] == render(count, True)


def test_the_template_lists_tools_and_writes_calls() -> None:
    text: Any = make_tokenizer((), 512).apply_chat_template(CONVERSATION, tools=TOOLS, tokenize=False)
    assert text.startswith("""<|im_start|>system
Play well.
Tools:
guess(number: integer = your guess., note: {"anyOf": [{"type": "string"}, {"type": "null"}]}) Guess the hidden number.
stop()<|im_end|>
<|im_start|>user
I have chosen""")
    assert (
        '<|im_start|>assistant\n<tool_call>{"name": "guess", "arguments": {"number": 5}}</tool_call>'
        '<tool_call>{"name": "guess", "arguments": {"number": 12}}</tool_call><|im_end|>\n<|im_start|>tool\n' in text
    )


def test_the_model_loads_in_hugging_face_format_and_depends_on_its_seed_alone(tmp_path: Path) -> None:
    random.seed(0)
    torch.manual_seed(1)
    folders = [
        make_tiny_model(tmp_path / name, texts=TEXTS, seed=seed) for name, seed in (("a", 5), ("b", 5), ("c", 6))
    ]
    assert torch.initial_seed() == 1
    a, b, c = (AutoModelForCausalLM.from_pretrained(folder).state_dict() for folder in folders)
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not torch.equal(a["lm_head.weight"], c["lm_head.weight"])
    assert not torch.equal(a["lm_head.weight"], a["model.embed_tokens.weight"])
    tokenizer = AutoTokenizer.from_pretrained(folders[0])
    assert len(tokenizer) == a["lm_head.weight"].shape[0]
    assert tokenizer.eos_token == "<|im_end|>"
