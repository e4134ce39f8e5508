"""For any conversation: the samples are what the engine saw, and the prompts are what the template writes."""

import asyncio
import functools
from collections.abc import Callable, Sequence
from typing import Any

from chat_models import HERMES, QWEN3, chatml, llama2, llama3
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from token_play import ADD, ScriptedEngine, assert_samples_are_what_was_seen, played, said

from ludus.client.policies.base import Turn
from ludus.gateway.token_policy import TokenPolicy
from ludus.protocol.content import text_of
from ludus.protocol.items import CallItem, Item, OutputItem, text_message
from ludus.rendering import Renderer
from ludus.trainer.core.config import RolloutConfig

MODELS: dict[str, Callable[[], Any]] = {
    "qwen3": lambda: chatml(QWEN3),
    "hermes": lambda: chatml(HERMES),
    "llama3": llama3,
    "llama2": llama2,
}


@functools.cache
def renderer(name: str) -> Renderer:
    return Renderer(MODELS[name]())


CALLS = {
    "qwen3": ['<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>', "<tool_call>{broken</tool_call>"],
    "hermes": ['<tool_call>{"name":"add","arguments":{"a":1}}</tool_call>', '<tool_call>{"name": "add"'],
    "llama3": ['{"name": "add", "parameters": {"a": 1}}', '{"name": "add", "parameters": [}'],
    "llama2": ["[add(a=1), add(b=2)]", "[add(1)]"],
}
CONTROL = ["<|im_end|>", "<|im_start|>", "<tool_call>", "</tool_response>", "</s>", "<|eot_id|>", "<think>", "[/user]"]

texts = st.lists(
    st.sampled_from([*CONTROL, "word", " ", "\n", "\n\n", "é", "😀", "3", "<", "|>", "</"]), max_size=6
).map("".join)


def turns(name: str) -> st.SearchStrategy[list[int]]:
    """Words, thoughts, calls, or any ids at all; with an end, another end, or none."""
    tokenizer = MODELS[name]()
    stop = renderer(name).stop
    parts = st.sampled_from([*CALLS[name], "I think so.", "<think>\nHm.\n</think>\n\n", "<think>", "\n", " ", ""])
    words = st.lists(parts, min_size=1, max_size=4).map(lambda found: said(tokenizer, "".join(found), None))
    junk = st.lists(st.integers(0, len(tokenizer) - 1), min_size=1, max_size=12)
    body = st.one_of(words, words, junk).map(lambda ids: [i for i in ids if i not in stop])
    end = st.sampled_from([*[[i] for i in stop], [stop[0]], []])
    return st.tuples(body, end).map(lambda pair: [*pair[0], *pair[1]] or [stop[0]])


@st.composite
def episodes(draw: st.DrawFn, context_overflow: str | None = None, model: str | None = None) -> dict[str, Any]:
    name = model or draw(st.sampled_from(sorted(MODELS)))
    tokenizer = MODELS[name]()
    strategy = context_overflow or draw(st.sampled_from(["stop", "truncate_oldest", "summarize"]))
    most = draw(st.integers(4, 40))
    room = 10_000 if context_overflow == "stop" else draw(st.integers(20, 400))
    task: list[Item] = [text_message("user", draw(texts) or "Go.")]
    base = len(renderer(name).prompt(task, [ADD]))
    return {
        "name": name,
        "tokenizer": tokenizer,
        "config": RolloutConfig.model_validate(
            {"max_tokens": most, "context": base + room, "context_overflow": strategy}
        ),
        "task": task,
        "turns": draw(st.lists(turns(name), min_size=1, max_size=9)),
        "answers": draw(st.lists(texts, min_size=1, max_size=3)),
    }


def play(episode: dict[str, Any]) -> tuple[TokenPolicy, ScriptedEngine, list[Item], list[Turn]]:
    engine = ScriptedEngine([*episode["turns"] * 3])
    policy = TokenPolicy(engine, renderer(episode["name"]), episode["config"], session="s", seed=7)
    answers = episode["answers"]
    count = len(episode["turns"])
    items, taken = asyncio.run(played(policy, episode["task"], count, lambda turn: answers[turn % len(answers)]))
    return policy, engine, items, taken


common = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@common
@given(episodes())
def test_ids_masks_and_logprobs_of_samples_equal_what_the_engine_saw(episode: dict[str, Any]) -> None:
    policy, engine, _, _ = play(episode)
    assert_samples_are_what_was_seen(policy.samples, engine.requests, episode["config"].context)
    told = [p for s in policy.samples for p, own in zip(s.logprobs, s.mask, strict=True) if own]
    assert told == [-float(n) for n in range(1, engine.sampled + 1)], "every sampled token is in exactly one sample"
    for sample in policy.samples:
        for is_own, logprob, version, turn in zip(
            sample.mask, sample.logprobs, sample.versions, sample.turns, strict=True
        ):
            assert is_own or (logprob, version, turn) == (0.0, -1, -1)
            assert not is_own or turn >= 0
    assert len({request.seed for request in engine.requests}) == len(engine.requests)


@common
@given(episodes(context_overflow="stop"))
def test_every_prompt_is_what_the_template_writes_for_the_conversation_so_far(episode: dict[str, Any]) -> None:
    _, engine, items, turns = play(episode)
    for number, request in enumerate(engine.requests):
        written = _written(episode, items, turns[:number], engine)
        seen = episode["tokenizer"].decode(request.prompt)
        # A turn may end with another token than the template's own, which stays as it was sampled.
        assert _bare(seen).replace("<|eom_id|>", "<|eot_id|>") == _bare(written).replace("<|eom_id|>", "<|eot_id|>")


@common
@given(episodes(context_overflow="stop", model="hermes"))
def test_a_template_that_never_rewrites_a_turn_gives_one_sample(episode: dict[str, Any]) -> None:
    policy, engine, _, _ = play(episode)
    assert len(policy.samples) == 1
    assert policy.samples[0].sampled == engine.sampled


@common
@given(st.sampled_from(sorted(MODELS)), texts, texts)
def test_text_from_outside_holds_no_control_tokens(name: str, text: str, description: str) -> None:
    tokenizer = MODELS[name]()
    tool = ADD.model_copy(update={"description": description})
    plain = renderer(name).prompt([text_message("user", "x"), text_message("system", "y")], [ADD])
    ids = renderer(name).prompt([text_message("user", f"a{text}b"), text_message("system", text)], [tool])
    control = {i for i, t in tokenizer.added_tokens_decoder.items() if not t.content.startswith("<0x")}
    assert [i for i in ids if i in control] == [i for i in plain if i in control]
    if name != "llama2":  # whose decoder strips
        assert f"a{text}b" in tokenizer.decode(ids, clean_up_tokenization_spaces=False)


@common
@given(episodes(context_overflow="stop", model="hermes"), st.integers(30, 200))
def test_when_old_turns_are_dropped_the_others_keep_the_ids_they_were_sampled_with(
    episode: dict[str, Any], room: int
) -> None:
    _, whole, _, _ = play(episode)
    task = whole.requests[0].prompt
    config = episode["config"].model_copy(
        update={"context_overflow": "truncate_oldest", "context": len(task) + 2 * episode["config"].max_tokens + room}
    )
    _, engine, _, _ = play({**episode, "config": config})
    exchanges = [
        after.prompt[len(before.prompt) :] for before, after in zip(whole.requests, whole.requests[1:], strict=False)
    ]
    for number, request in enumerate(engine.requests):
        if request.generation.ids != whole.requests[number].generation.ids:
            return  # one exchange alone left too little room, and the turn was cut
        tails = [sum(exchanges[first:number], []) for first in range(number + 1)]
        assert request.prompt in [task + tail for tail in tails]


@common
@given(episodes(context_overflow="truncate_oldest"))
def test_when_old_turns_are_dropped_the_prompt_is_what_the_template_writes_without_them(
    episode: dict[str, Any],
) -> None:
    _, engine, items, turns = play(episode)
    for number, request in enumerate(engine.requests):
        seen = _bare(episode["tokenizer"].decode(request.prompt)).replace("<|eom_id|>", "<|eot_id|>")
        written = [_written(episode, items, turns[:number], engine, first) for first in range(max(1, number))]
        assert seen in [_bare(text).replace("<|eom_id|>", "<|eot_id|>") for text in written]


def _written(
    episode: dict[str, Any], items: Sequence[Item], turns: Sequence[Turn], engine: ScriptedEngine, first: int = 0
) -> str:
    """What the template writes, asked by hand, of turns in their own words; those before `first` are left out."""
    tokenizer = episode["tokenizer"]
    messages = [{"role": "user", "content": _text(items[0])}]
    at = 1
    for number, (turn, request) in enumerate(zip(turns, engine.requests, strict=False)):
        ids = request.generation.ids
        words = tokenizer.decode(ids[:-1] if request.generation.finish == "stop" else ids)
        at += len(turn.items)
        answers = items[at : at + max(1, len(turn.calls))]
        at += len(answers)
        if number >= first:
            messages.append({"role": "assistant", "content": words})
            roles = ["tool" if isinstance(item, OutputItem) else "user" for item in answers]
            messages += [{"role": role, "content": _text(item)} for role, item in zip(roles, answers, strict=True)]
    function = {"name": ADD.name, "description": ADD.description, "parameters": ADD.input_schema}
    tools = [{"type": "function", "function": function}]
    return str(tokenizer.apply_chat_template(messages, tools=tools, add_generation_prompt=True, tokenize=False))


def _text(item: Item) -> str:
    assert not isinstance(item, CallItem)
    return text_of(item.content)


def _bare(text: str) -> str:
    return "".join(text.split())
