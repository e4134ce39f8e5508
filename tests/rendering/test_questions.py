"""Whatever a template asks of texts and of the clock, a continued conversation has the text that the whole one has."""

from __future__ import annotations

import random
from datetime import datetime
from typing import Any

import pytest
from chat_models import HERMES, QWEN3, chatml
from template_styles import STYLES, byte_tokenizer

from ludus.rendering import ChatMessage, Renderer
from ludus.rendering.bounded import TemplateBounds, TemplateProcess
from ludus.rendering.questions import Questions
from ludus.rendering.template import Template
from ludus.trainer.core.tiny import TEMPLATE as TINY

FRAME = """\
{%%- set ns = namespace(seen=0, last='') -%%}
{%%- for message in messages -%%}
{%%- if %(early)s -%%}{%%- set ns.seen = ns.seen + 1 -%%}{%%- endif -%%}
{%%- endfor -%%}
<|im_start|>system
{{ ns.seen if %(head)s else '' }}{{ strftime_now('%%d %%b %%Y') if %(dated)s else '' }}<|im_end|>
{%% for message in messages -%%}
{%%- set content = message.content -%%}
<|im_start|>{{ message.role }}
{{ %(shown)s }}{%%- if %(late)s %%} !{%% endif %%}<|im_end|>
{%% endfor -%%}
{%%- if add_generation_prompt -%%}<|im_start|>assistant
{%% endif -%%}
"""
CONDITIONS = [
    "'MARK' in TEXT", "'MARK' not in TEXT", "TEXT.startswith('MARK')", "TEXT.endswith('MARK')",
    "TEXT.strip().endswith('MARK')", "(TEXT | trim).startswith('MARK')", "TEXT == 'MARK'", "TEXT | trim == 'MARK'",
    "TEXT", "TEXT | trim", "not TEXT", "TEXT | length > 0", "TEXT | length > 6", "TEXT | trim | length > 0",
    "'MARK' in TEXT | lower", "TEXT | upper == 'MARK'", "TEXT.split('MARK')[-1] | trim", "TEXT.split('MARK')[0]",
    "TEXT.split('MARK') | length > 2", "TEXT[0] == 'M'", "TEXT[-1:] == 'k'", "TEXT.count('a') > 1", "TEXT < 'm'",
    "'MARK' in TEXT.split('</think>')[0]", "TEXT.split('</think>')[-1].startswith('MARK')", "TEXT in ['MARK', 'x']",
    "('/no' ~ TEXT).endswith('/no_think')", "TEXT.replace('a', 'MARK').startswith('MARK')", "TEXT.isdigit()",
    "TEXT is string", "loop.last", "loop.index0 > 3", "message.role == 'tool'", "TEXT == messages[0].content",
    "TEXT.split() | length > 1", "TEXT.find('a') > 2", "TEXT | string | first == 'M'", "messages | length > 5",
    "TEXT | select('equalto', 'a') | list", "TEXT | int > 3", "message.name == 'add'",
]  # fmt: skip
SHOWN = [
    "content", "content | trim", "content.split('</think>')[-1]", "content | upper", "content.strip('\\n')",
    "content[:3]", "content | replace('a', 'b')", "'<think>' ~ content", "content | length",
]  # fmt: skip
MARKS = ["/no_think", "</think>", "<think>", "yes", "M", "_think", "12"]
PIECES = ["", " ", "\n", "a", "Mark", "m", "yes", "YES", "12", "x y", "k", "word", *MARKS, "/NO_THINK"]


def generated(rng: random.Random) -> str:
    """A template with random conditions on the texts, some of which change what is written of all messages."""

    def condition() -> str:
        return f"({rng.choice(CONDITIONS).replace('MARK', rng.choice(MARKS)).replace('TEXT', 'message.content')})"

    joined = rng.choice([" and ", " or "])
    parts = {name: joined.join(condition() for _ in range(rng.choice([1, 1, 2]))) for name in ("early", "late")}
    parts |= {name: rng.choice(["true", "false"]) for name in ("head", "dated")}
    return FRAME % {**parts, "shown": rng.choice(SHOWN)}


def check(seed: int) -> bool:
    """Render random conversations with a random template; return whether it asks only what keys say."""
    rng = random.Random(seed)
    source = generated(rng)
    template = Template(chatml(), source, {}, "generated", clock=datetime(2026, 1, 31, 23, 59))
    roles = [(rng.choice(["tool", "user"]), rng.choice(["tool", "user"])) for _ in range(2)]
    for number in range(8):
        messages: list[ChatMessage] = [{"role": "user", "content": text(rng)}]
        rendered = template.whole(messages, [])
        for role in roles[number % 2]:
            answer: ChatMessage = {"role": role, "content": text(rng)}
            fields = {"tool_call_id": "c", "name": "add"} if role == "tool" else {}
            messages += [{"role": "assistant", "content": text(rng)}, {**answer, **fields}]
            rendered = template.continued(rendered, messages, 2, [])
            assert rendered.text == template.render(messages, []), source
    return Questions(source).simple


def text(rng: random.Random) -> str:
    return "".join(rng.choice(PIECES) for _ in range(rng.choice([1, 1, 2, 3])))


def test_a_continued_conversation_is_the_whole_one_for_any_template() -> None:
    simple = [check(seed) for seed in range(60)]
    assert 5 < sum(simple) < 55


@pytest.mark.suite("breadth")
@pytest.mark.timeout(600)
def test_a_continued_conversation_is_the_whole_one_for_many_templates() -> None:
    for seed in range(60, 600):
        check(seed)


@pytest.mark.parametrize("source", [HERMES, QWEN3, TINY, STYLES["qwen3_coder"], STYLES["kimi"], STYLES["minimax"]])
def test_the_questions_of_ordinary_templates_are_known(source: str) -> None:
    assert Questions(source).simple


@pytest.mark.parametrize(
    "condition",
    ["message.content | length > 6", "message.content[0] == 'M'", "message.content < 'm'", "'a' in message.content[2:]",
     "message.content.split() | length > 1", "message.content == messages[0].content", "message.content.isdigit()",
     "message.content | int > 3", "'b' in message.content | replace('a', 'b')",
     "('/no' ~ message.content).endswith('/no_think')"],
)  # fmt: skip
def test_a_template_that_asks_more_than_keys_say_is_rendered_whole(condition: str) -> None:
    source = f"{{% for message in messages %}}{{% if {condition} %}}x{{% endif %}}'/no_think'{{% endfor %}}"
    assert not Questions(source).simple


def test_a_text_that_ends_with_a_mark_is_not_taken_for_one_that_contains_it() -> None:
    source = HERMES.replace(
        "<|im_start|>{{ message.role }}",
        "{%- if message.content.endswith('/no_think') -%}{%- set ns.quiet = true -%}{%- endif -%}"
        "<|im_start|>{{ message.role }}",
    ).replace(
        "{%- for message in messages -%}", "{%- set ns = namespace(quiet=false) -%}{%- for message in messages -%}"
    )
    source = source.replace("<|im_start|>assistant\n{% endif", "<|im_start|>assistant\n{{ '-' if ns.quiet }}{% endif")
    template = Template(chatml(), source, {}, "quiet")
    for first in ("Add. /no_think", "Add. /no_think or so", "Add. /no_think"):
        messages: list[ChatMessage] = [{"role": "user", "content": "Go."}]
        rendered = template.whole(messages, [])
        for text in (first, "On."):
            messages += [{"role": "assistant", "content": "Well."}, {"role": "user", "content": text}]
            rendered = template.continued(rendered, messages, 2, [])
            assert rendered.text == template.render(messages, [])


DATED = HERMES.replace(
    "{%- for message in messages -%}", "{{ strftime_now('%Y-%m-%d') }}{%- for message in messages -%}"
)


def test_a_run_past_midnight_keeps_its_date() -> None:
    clock = datetime(2026, 1, 31, 23, 59)
    renderer = Renderer(chatml(), chat_template=DATED, clock=clock)
    assert renderer.tells_time
    assert renderer.text([{"role": "user", "content": "Go."}], ()).startswith("2026-01-31")
    assert Renderer(chatml(), chat_template=DATED).clock.year >= 2026
    process = TemplateProcess(chatml(), DATED, TemplateBounds(), clock=clock)
    try:
        bounded = Renderer(chatml(), chat_template=DATED, process=process)
        messages: Any = [{"role": "user", "content": "Go."}]
        assert bounded.text(messages, ()) == renderer.text(messages, ())
    finally:
        process.close()


def test_a_macro_gets_the_stopped_time() -> None:
    source = "{%- macro head() -%}{{ strftime_now('%Y') }}{%- endmacro -%}{{ head() }}" + STYLES["phi"]
    renderer = Renderer(byte_tokenizer(source), clock=datetime(1999, 1, 1))
    assert renderer.text([{"role": "user", "content": "Go."}], ()).startswith("1999")
