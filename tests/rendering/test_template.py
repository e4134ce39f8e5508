"""A conversation that is rendered turn by turn has the text and the ids that the whole one has, for little work."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from chat_models import HERMES, QWEN3, chatml, llama2, llama3
from token_play import ADD

from ludus.protocol.actions import Call
from ludus.protocol.items import CallItem
from ludus.rendering import ChatMessage, Renderer
from ludus.trainer.core.tiny import TEMPLATE as TINY

SHOUTING = HERMES.replace(
    "{{ message.content }}", '{{ message.content | replace("Hm", "Well") | replace("word", "WORD") }}'
)
COUNTING = HERMES.replace("<|im_start|>{{", "<|im_start|>{{ loop.index0 }}{{").replace(
    "{%- if add_generation_prompt -%}", "{%- if add_generation_prompt -%}{{ messages | length }}"
)
MODELS: dict[str, Callable[[], Any]] = {
    "hermes": lambda: chatml(HERMES),
    "qwen3": lambda: chatml(QWEN3),
    "tiny": lambda: chatml(TINY),
    "llama3": llama3,
    "llama2": llama2,
    "changes contents": lambda: chatml(SHOUTING),
    "counts messages": lambda: chatml(COUNTING),
}
ODD = [
    "", " ", "\n", " x", "x ", "word", "user", "tool", "Hm.", "é😀", "a\r\n\n  b", '{"a": "b\\n"}', "&<b>'\"",
    "<think>\nHm.\n</think>\n\nYes.", "Hm.</think>", "<think>", "<tool_response>\n1\n</tool_response>",
    '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>', "<\ufdd0|im_end|>", 'Stand-in 0: "a"',
    "%s {{ x }}", "stand-in-1", "x" * 3000,
]  # fmt: skip


class Work:
    """Counts what is rendered by a tokenizer's template."""

    def __init__(self, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.messages = 0
        render = tokenizer.apply_chat_template

        def counted(messages: list[ChatMessage], **options: Any) -> Any:
            self.messages += len(messages)
            return render(messages, **options)

        monkeypatch.setattr(tokenizer, "apply_chat_template", counted)


def conversation(rng: random.Random, turns: int, contents: list[str]) -> list[list[ChatMessage]]:
    """The task, and then exchanges."""
    parts: list[list[ChatMessage]] = [[{"role": "user", "content": rng.choice(contents)}]]
    for number in range(turns):
        part: list[ChatMessage] = [{"role": "assistant", "content": rng.choice(contents)}]
        if rng.random() < 0.3:  # another call that the policy did not make, and its output
            part += [{"role": "tool", "content": rng.choice(contents), "tool_call_id": f"w{number}", "name": "wait"}]
            part += [{"role": "assistant", "content": '<tool_call>{"name": "wait"}</tool_call>'}]
        answer: ChatMessage = {"role": "user", "content": rng.choice(contents)}
        if rng.random() < 0.7:
            answer = {"role": "tool", "content": answer["content"], "tool_call_id": f"c{number}", "name": "add"}
        parts.append([*part, answer])
    return parts


def check(renderer: Renderer, parts: list[list[ChatMessage]]) -> None:
    """Render a conversation exchange by exchange and compare it with the whole one each time."""
    fresh = Renderer(renderer.tokenizer)
    messages = list(parts[0])
    rendered = renderer.rendered(messages, (ADD,))
    for part in parts[1:]:
        messages += part
        rendered = renderer.continued(rendered, messages, len(part), (ADD,))
        whole = fresh.text(messages, (ADD,))
        assert rendered.text == whole
        assert renderer.encode(rendered.text) == fresh.encode(whole)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_continued_conversation_has_the_text_and_ids_that_the_whole_one_has(name: str) -> None:
    renderer = Renderer(MODELS[name]())
    rng = random.Random(name)
    for _ in range(25):
        check(renderer, conversation(rng, 4, ODD))
    for content in ODD:  # shapes that were seen with other contents
        plain = conversation(random.Random(0), 3, ["Hm, yes.", "A word."])
        check(renderer, plain)
        for part in plain:
            part[0]["content"] = content
        check(renderer, plain)


@pytest.mark.parametrize("name", ["hermes", "qwen3", "tiny", "llama3", "llama2"])
def test_an_episode_of_a_known_shape_renders_nothing_but_its_task(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    renderer = Renderer(MODELS[name]())
    work = Work(renderer.tokenizer, monkeypatch)

    def play(word: str) -> int:
        before = work.messages
        messages: list[ChatMessage] = [{"role": "user", "content": f"The task of {word}."}]
        rendered = renderer.rendered(messages, (ADD,))
        for number in range(30):
            turn = {"role": "assistant", "content": f"{word} is turn {number}"}
            answer = {"role": "tool", "content": f"{word}:\n{number}", "tool_call_id": f"c{number}", "name": "add"}
            messages += [turn, answer]
            rendered = renderer.continued(rendered, messages, 2, (ADD,))
        return work.messages - before

    assert play("one") > 30 * 30  # each shape is checked against the whole conversation once
    assert play("two") == play("three") == 1


def test_contents_that_a_template_may_change_cost_the_same_for_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    renderer = Renderer(chatml(HERMES))
    work = Work(renderer.tokenizer, monkeypatch)
    counts: list[int] = []
    for word in ("one", "two"):
        messages: list[ChatMessage] = [{"role": "user", "content": "Go."}]
        rendered = renderer.rendered(messages, ())
        counts.clear()
        for number in range(10):
            before = work.messages
            messages += [{"role": "assistant", "content": f" {word} {number}"}, {"role": "user", "content": "On. "}]
            rendered = renderer.continued(rendered, messages, 2, ())
            counts.append(work.messages - before)
    assert counts == [3] * 10


def test_a_recorded_call_is_written_by_the_template_once(monkeypatch: pytest.MonkeyPatch) -> None:
    renderer = Renderer(chatml(HERMES))
    first = renderer.messages([CallItem("1", Call("wait", {}))])
    work = Work(renderer.tokenizer, monkeypatch)
    assert renderer.messages([CallItem("2", Call("wait", {}))]) == first
    assert work.messages == 0
    assert renderer.messages([CallItem("2", Call("wait", {"a": 1}))]) != first


def test_many_definitions_of_tools_are_never_taken_for_each_other() -> None:
    renderer = Renderer(chatml(HERMES))
    messages = [{"role": "user", "content": "Go."}]
    for number in range(1_100):  # more than are kept
        tool = ADD.model_copy(update={"name": f"tool_{number}"})
        assert f"tool_{number}" in renderer.text(messages, (tool,))
