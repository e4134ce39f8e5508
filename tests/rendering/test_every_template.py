"""Templates of current models play tool episodes token for token as `apply_chat_template` writes them, or are refused.

TRL keeps copies of the models' own templates; they are read from its installation and not from this repository. For
models that it has no template of, there are templates in their style in `template_styles`.
"""

from __future__ import annotations

import asyncio
import functools
import random
import re
from typing import Any, Final

import pytest
import torch
from peer_clients import ROOT, python_of
from template_styles import EOS, STYLES, byte_tokenizer
from token_play import ScriptedEngine, assert_samples_are_what_was_seen, played
from transformers import LlamaConfig, LlamaForCausalLM

from ludus.gateway.token_policy import TokenPolicy
from ludus.protocol.actions import Call
from ludus.protocol.episodes import ToolSpec
from ludus.protocol.items import Item, text_message
from ludus.rendering import Renderer, RenderingError
from ludus.trainer.core.config import RolloutConfig

FORMS: Final = {
    **dict.fromkeys(["qwen2_5", "qwen3", "qwen3_instruct_2507", "qwen3_vl"], "hermes"),
    **dict.fromkeys(["qwen3_5_nothink", "qwen3_5_think", "qwen3_6", "qwen3_8"], "xml"),
    **dict.fromkeys(["nemotron_3_5_lightning", "nemotron_3_nano", "nemotron_3_super", "nemotron_3_ultra"], "xml"),
    **dict.fromkeys(["diffusion_gemma", "gemma4", "gemma4_v2", "gemma4_v3", "gemma4_v4", "gemma4_v5"], "gemma"),
    **dict.fromkeys(["lfm2", "lfm2_2_5", "lfm2_2_5_v2", "lfm2_2_5_vl", "lfm2_v2"], "lfm2"),
    **dict.fromkeys(["llama3_1", "llama3_2"], "llama"),
    "glm4moe": "glm",
    "gptoss": "harmony",
    "muse_glimmer": "muse",
}
"""The templates of TRL with tools, and the forms of their calls."""
REFUSED: Final = {
    **dict.fromkeys(
        ["cohere", "cohere2", "deepseek_r1_distill", "deepseekv3", "gemma", "gemma3", "llama3", "phi3", "phi3_5",
         "qwen2_5_vl"],
        "leaves out the tools",
    ),
    **dict.fromkeys(["idefics3", "smolvlm"], "does not write a message that is a text"),
    "llava_next": "cannot render a conversation",
}  # fmt: skip
"""The templates of TRL without tools, and why they are refused."""
REWRITES: Final = {"diffusion_gemma": "<|turn>model\n"}
"""What a template writes before a turn only once the turn is there, so that each turn is a sample of its own."""
OWN: Final = {
    "qwen3_coder": "xml", "kimi": "kimi", "mistral": "mistral", "mistral_v11": "mistral_v11", "deepseek": "deepseek",
    "deepseek_v31": "deepseek_v31", "minimax": "minimax", "command": "command", "phi": "phi",
}  # fmt: skip

TOOLS: Final = tuple(
    ToolSpec(
        name=name,
        description=f"Does {name}.",
        input_schema={
            "type": "object",
            "properties": {
                "text": {"type": "string", "description": "A text."},
                "count": {"type": "integer", "description": "A count."},
                "share": {"type": "number", "description": "A share."},
                "sure": {"type": "boolean", "description": "Whether."},
                "rows": {"type": "array", "items": {"type": "integer"}, "description": "Rows."},
            },
            "required": ["text"],
        },
    )
    for name in ("add", "look_up")
)
PLAIN_TEXTS: Final = ["two words", "12", "true", "é😀", "a, b: c = d", "<b>x</b>", "x" * 40]
ODD_TEXTS: Final = [*PLAIN_TEXTS, 'it\'s "x"', "a\nb", "  padded ", "", "back\\slash", "{1}", "[2]", "null"]
RESULTS: Final = ["The sum is 3.", "a\nb", '{"a": 1}', "é😀", "12", "no", "</think> and <tool_call>"]


def template(name: str) -> str:
    """The Jinja text of a template of TRL, or in a model's style."""
    if name in STYLES:
        return STYLES[name]
    python_of("trl")
    [folder] = (ROOT / ".peers" / "trl").glob("lib/python3.*/site-packages/trl/chat_templates")
    return (folder / f"{name}.jinja").read_text("utf-8")


@functools.cache
def renderer(name: str) -> Renderer:
    return Renderer(byte_tokenizer(template(name), eos=EOS.get(name, "<eos>")))


class Conversation:
    """A random conversation: a task, three turns with calls and their results, and a last message."""

    def __init__(self, name: str, seed: int) -> None:
        rng = random.Random(f"{name}/{seed}")
        self.renderer = renderer(name)
        style, form = self.renderer.style, self.renderer.style.format
        assert form is not None
        self.tokenizer = self.renderer.tokenizer
        self.task: list[dict[str, Any]] = [{"role": "user", "content": rng.choice(["Go on.", " Add  them.\n", "é?"])}]
        if rng.random() < 0.5:
            self.task.insert(0, {"role": "system", "content": rng.choice(["Be brief.", "Rules:\n1. Think."])})
        self.calls: list[list[Call]] = []
        self.answers: list[str] = []
        messages = [*self.task]
        self.conversations = [messages]
        # The templates of lfm2 leave `tool_calls` out, so calls are in the text; those of Llama take one at once.
        in_words = name in ("lfm2", "lfm2_v2")
        single = style.form in ("llama", "harmony")
        silent = style.form in ("llama", "harmony", "muse", "command", "gemma")
        total = 0
        for _ in range(3):
            calls = [self._call(rng, style.form in ("lfm2",)) for _ in range(1 if single else rng.choice([1, 1, 2]))]
            ids = [
                form.call_id(call.tool, total + n) if form.call_id else f"call_{n + 1}" for n, call in enumerate(calls)
            ]
            total += len(calls)
            message = "" if silent or rng.random() < 0.6 else "Let me see."
            thought = rng.choice(["Hm.", "I think so.\nYes."]) if style.thought_key else ""
            if in_words:
                turn: dict[str, Any] = {"role": "assistant", "content": message + form.write(calls)}
            else:
                turn = style.turn(message, thought, calls, ids)
            answer = rng.choice(RESULTS)
            results = [
                {"role": "tool", "content": answer, "tool_call_id": call_id, "name": call.tool}
                for call_id, call in zip(ids, calls, strict=True)
            ]
            messages = [*messages, turn, *results]
            self.conversations.append(messages)
            self.calls.append(calls)
            self.answers.append(answer)
        last = style.turn("Done.", "So." if style.thought_key and style.form != "command" else "", [], [])
        self.prompts = [self._ids(messages, prompt=True) for messages in self.conversations]
        whole = self._ids([*messages, last], prompt=False)
        if style.form == "harmony":  # whose template drops all thoughts before the last message
            whole = [*self.prompts[-1], *self.renderer.encode("<|channel|>final<|message|>Done.<|return|>")]
        self.turns: list[list[int]] = []
        for before, after in zip(self.prompts, [*self.prompts[1:], whole], strict=True):
            assert after[: len(before)] == before, "the template rewrites a prompt within an episode"
            rest = after[len(before) :]
            header = self.renderer.encode(REWRITES.get(name, ""))
            rest = rest[len(header) :] if header and rest[: len(header)] == header else rest
            end = next((n for n, token in enumerate(rest) if token in self.renderer.stop), len(rest) - 1)
            self.turns.append(rest[: end + 1] if rest[end] in self.renderer.stop else [*rest, self.renderer.stop[0]])

    def _call(self, rng: random.Random, plain: bool) -> Call:
        values: dict[str, list[Any]] = {"count": [0, -3, 12], "share": [0.5, 2.0], "sure": [True, False]}
        values["rows"] = [[], [1, 2]]
        arguments: dict[str, Any] = {"text": rng.choice(PLAIN_TEXTS if plain else ODD_TEXTS)}
        arguments |= {key: rng.choice(choices) for key, choices in values.items() if rng.random() < 0.4}
        return Call(rng.choice(["add", "look_up"]), arguments)

    def _ids(self, messages: list[dict[str, Any]], *, prompt: bool) -> list[int]:
        """What `apply_chat_template` gives, with what comes from outside guarded as in our own prompts."""
        guarded = [
            {**message, "content": self.renderer._escaped(message["content"])}
            if message["role"] != "assistant"
            else message
            for message in messages
        ]
        tools = [
            {
                "type": "function",
                "function": {"name": t.name, "description": t.description, "parameters": t.input_schema},
            }
            for t in TOOLS
        ]
        text = self.tokenizer.apply_chat_template(guarded, tools=tools, add_generation_prompt=prompt, tokenize=False)
        return self.renderer.encode(text)

    def play(self, engine: Any) -> tuple[TokenPolicy, list[Any]]:
        config = RolloutConfig.model_validate({"max_tokens": 5_000, "context": 100_000})
        policy = TokenPolicy(engine, self.renderer, config, session="s", seed=7)
        task: list[Item] = [text_message(message["role"], message["content"]) for message in self.task]
        _, turns = asyncio.run(played(policy, task, 4, lambda turn: self.answers[min(turn, 3) - 1], TOOLS))
        return policy, turns


def check(name: str, count: int, first: int = 0) -> None:
    for seed in range(first, first + count):
        conversation = Conversation(name, seed)
        engine = ScriptedEngine(conversation.turns)
        policy, turns = conversation.play(engine)
        assert [request.prompt for request in engine.requests] == conversation.prompts
        assert [[item.call for item in turn.calls] for turn in turns[:3]] == conversation.calls
        assert (turns[3].calls, turns[3].text) == ((), "Done.")
        assert len(policy.samples) == 1 or name in REWRITES


ALL: Final = sorted({**FORMS, **OWN})


@pytest.mark.parametrize("name", ALL)
def test_a_tool_episode_has_the_ids_that_apply_chat_template_gives(name: str) -> None:
    assert renderer(name).style.form == {**FORMS, **OWN}[name]
    check(name, 5)


@pytest.mark.suite("breadth")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ALL)
def test_two_hundred_tool_episodes_have_the_ids_that_apply_chat_template_gives(name: str) -> None:
    check(name, 200, first=5)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_template_that_cannot_show_tools_is_refused_by_name(name: str) -> None:
    tokenizer = byte_tokenizer(template(name))
    tokenizer.name_or_path = f"models/{name}"
    with pytest.raises(RenderingError, match=REFUSED[name]) as error:
        Renderer(tokenizer).require_tools()
    assert f"models/{name}" in str(error.value)


def test_every_template_of_trl_is_played_or_refused_by_name() -> None:
    python_of("trl")
    [folder] = (ROOT / ".peers" / "trl").glob("lib/python3.*/site-packages/trl/chat_templates")
    names = {file.stem for file in folder.glob("*.jinja") if not file.stem.endswith("_training")}
    assert names == {*FORMS, *REFUSED}


class TinyEngine(ScriptedEngine):
    """Says given ids, with the log-probabilities that a tiny random model gives them."""

    model: Any = None

    async def generate(self, ids: Any, sampling: Any, *, seed: int, session: str) -> Any:
        generation = await super().generate(ids, sampling, seed=seed, session=session)
        object.__setattr__(generation, "logprobs", tuple(logprobs(self.model, [*ids, *generation.ids])[len(ids) - 1 :]))
        return generation


def logprobs(model: Any, ids: list[int]) -> list[float]:
    with torch.no_grad():
        scores = torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), -1)
    return [float(scores[at, token]) for at, token in enumerate(ids[1:])]


@pytest.mark.parametrize("name", ALL)
def test_an_episode_of_a_tiny_model_has_its_log_probabilities_in_one_sample(name: str) -> None:
    torch.manual_seed(0)
    conversation = Conversation(name, 1000)
    config = LlamaConfig(
        vocab_size=len(conversation.tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, max_position_embeddings=16_384,
    )  # fmt: skip
    engine = TinyEngine(conversation.turns)
    engine.model = LlamaForCausalLM(config).eval()
    policy, _ = conversation.play(engine)
    assert_samples_are_what_was_seen(policy.samples, engine.requests, 100_000)
    assert len(policy.samples) == 1 or name in REWRITES
    for sample in policy.samples:
        seen = logprobs(engine.model, list(sample.ids))
        for is_own, own, again in zip(sample.mask[1:], sample.logprobs[1:], seen, strict=True):
            assert not is_own or own == pytest.approx(again, abs=1e-4)


@pytest.mark.parametrize("name", ALL)
def test_any_tokens_at_all_are_a_turn_and_nothing_that_was_sampled_is_lost(name: str) -> None:
    tokenizer, rng = renderer(name).tokenizer, random.Random(name)
    conversation = Conversation(name, 2000)
    junk: list[list[int]] = []
    for _ in range(6):
        if rng.random() < 0.5:
            turn = list(rng.choice(conversation.turns))
            del turn[rng.randrange(len(turn)) :]
        else:
            turn = [rng.randrange(len(tokenizer)) for _ in range(rng.randrange(1, 12))]
        junk.append([*[token for token in turn if token not in renderer(name).stop], renderer(name).stop[0]])
    engine = ScriptedEngine(junk)
    config = RolloutConfig.model_validate({"max_tokens": 5_000, "context": 100_000})
    policy = TokenPolicy(engine, renderer(name), config, session="s", seed=7)
    asyncio.run(played(policy, [text_message("user", "Go.")], 6, lambda turn: f"Result {turn}.", TOOLS))
    assert len(engine.requests) == 6
    assert_samples_are_what_was_seen(policy.samples, engine.requests, 100_000)
    assert sum(sample.sampled for sample in policy.samples) == engine.sampled


def _rows() -> list[tuple[list[str], str, str]]:
    """The table of models in the page on training: the templates, the form, and the remark."""
    page = (ROOT / "docs" / "training.md").read_text("utf-8")
    table = page.partition("### Chat templates and tool calls")[2].partition("\n### ")[0]
    cells = [line.strip("|").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    return [(re.findall(r"`(\w+)`", row[1]), row[2].strip(" `"), row[3]) for row in cells[1:]]


def test_the_page_names_the_templates_with_their_forms() -> None:
    named = {name: form for names, form, _ in _rows() for name in names}
    forms = {**FORMS, **OWN}
    assert all(form in ("see there", forms[name]) for name, form in named.items())
    assert {*forms} - {*named} == {"diffusion_gemma", "gemma4_v2"}
    for _, _, remark in _rows():
        if "refused" in remark:
            assert all("leaves out the tools" in REFUSED[name] for name in re.findall(r"`(\w+)`", remark))


@pytest.mark.parametrize(("names", "remark"), [(names, remark) for names, _, remark in _rows()])
def test_the_page_says_which_templates_get_turns_as_fields(names: list[str], remark: str) -> None:
    assert {renderer(name).style.structured for name in names} == {"turns as fields" in remark}
