"""A template from outside is rendered in a process of its own, with bounds, and reaches nothing by breaking out."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from waiting import is_running, wait_until

from ludus.rendering import Renderer, RenderingError, TemplateExceeded
from ludus.rendering.bounded import SOURCE_CHARACTERS, TemplateBounds, TemplateProcess
from ludus.trainer.core.tiny import make_tokenizer

TOKENIZER = make_tokenizer((), 300)
SOURCE = str(TOKENIZER.chat_template)
ASKED = [{"role": "user", "content": "Gö \ud800 on."}]
LOOPS = "".join("{% for i in range(99999) %}" for _ in range(3)) + "{% endfor %}" * 3


@pytest.fixture
def process() -> Iterator[TemplateProcess]:
    found = bounded(SOURCE)
    yield found
    found.close()


def bounded(source: str, **bounds: float) -> TemplateProcess:
    return TemplateProcess(TOKENIZER, source, TemplateBounds(**bounds), "model.chat_template")  # type: ignore[arg-type]


def applied(process: TemplateProcess) -> str:
    return process.apply(ASKED, tools=None, add_generation_prompt=True)


def test_a_process_writes_what_the_tokenizer_writes(process: TemplateProcess) -> None:
    tool: Any = {
        "type": "function",
        "function": {"name": "add", "description": "Add.", "parameters": {"type": "object"}},
    }
    messages = [{"role": "user", "content": "é\u2028 </think> {{ 1 }}"}, {"role": "assistant", "content": "x"}]
    for tools in (None, [tool]):
        for prompt in (True, False):
            here = TOKENIZER.apply_chat_template(
                messages, tools=tools, chat_template=SOURCE, add_generation_prompt=prompt, tokenize=False
            )
            assert process.apply(messages, tools=tools, add_generation_prompt=prompt) == here
    assert process.started == 1


async def test_a_renderer_over_a_process_gives_the_same_ids_without_stopping_the_event_loop(
    process: TemplateProcess,
) -> None:
    from ludus.protocol.items import text_message

    own = Renderer(TOKENIZER)
    renderer = await process.run(Renderer, TOKENIZER, chat_template=SOURCE, process=process)
    asked = [text_message("user", "Add 1 and 2.")]
    assert await renderer.run(renderer.prompt, asked, ()) == own.prompt(asked, ())
    assert await own.run(threading.get_ident) == threading.get_ident(), "an own template runs where it is called"
    assert await renderer.run(threading.get_ident) != threading.get_ident()


FOUND = ("root:", "uid=", "<class", "<function", "__builtins__", "environ(")
"""What a text has in it if an attack has reached something."""
ATTACKS = {
    "nested loops": LOOPS,
    "a huge string": "{{ 'x' * 10 ** 11 }}",
    "classes of objects": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "globals of jinja": "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "endless recursion": "{% macro again(n) %}{{ again(n) ~ again(n) }}{% endmacro %}{{ again(1) }}",
    "a huge range": "{{ range(10 ** 12) | list }}",
    "a huge power": "{{ 9 ** 9 ** 9 }}",
    "a format": "{{ '%999999999999d' | format(1) }}",
    "a format method": "{{ '{0:>99999999999}'.format(1) }}",
    "a format of an attribute": "{{ '{0.__class__.__init__.__globals__}'.format(messages) }}",
    "a centered text": "{{ 'x' | center(10 ** 11) }}",
    "an indented text": "{{ ('x\\n' * 100000) | indent(10 ** 7) }}",
    "doubling text": "{% set n = namespace(t='x') %}{% for i in range(99) %}{% set n.t = n.t ~ n.t %}{% endfor %}",
    "doubling lists": "{% set ns = namespace(t=[1]) %}{% for i in range(99) %}{% set ns.t = ns.t + ns.t %}{% endfor %}",
    "lorem ipsum": "{{ lipsum(n=10 ** 9) }}",
    "globals of a function": "{{ raise_exception.__globals__ }}",
    "globals by a filter": "{{ (raise_exception | attr('__globals__')) }}",
    "the template's own": "{{ self.__init__.__globals__ }}",
    "an attribute by map": "{{ [messages] | map(attribute='__class__') | list }}",
    "a namespace's class": "{% set ns = namespace() %}{{ ns.__class__.__init__.__globals__ }}",
    "an import": "{% import 'os' as os %}{{ os }}",
    "an include": "{% include '/etc/passwd' %}",
    "a changed message": "{{ messages.append(messages) }}",
    "an object's pieces": "{{ dict.__base__.__subclasses__() }}",
    "a time format": "{{ strftime_now('%Y' * 10 ** 9) }}",
    "nesting": "{{ " + "(" * 5000 + ")" * 5000 + " }}",
    "broken": "{% for %}",
}  # fmt: skip


@pytest.mark.suite("breadth", first=5)
@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_by_a_template_ends_as_its_own_error_and_reaches_nothing(name: str) -> None:
    process = bounded(ATTACKS[name] + "end", seconds=1.0, memory=256 * 2**20, characters=10**6)
    try:
        text = applied(process)
    except (TemplateExceeded, ValueError) as error:
        text = str(error)
    finally:
        process.close()
    assert not any(word in text for word in FOUND), text
    assert len(text) <= 10**6
    assert not TemplateProcess.living


@pytest.mark.parametrize(
    ("source", "bounds", "message"),
    [
        (LOOPS, {"seconds": 0.5}, r"model\.chat_template took longer than 0\.5 s"),
        ("{{ 'x' * 10 ** 9 }}", {"memory": 64 * 2**20}, r"model\.chat_template needs more than 64 MiB"),
        ("{{ 'x' * 2000 }}", {"characters": 1000}, r"model\.chat_template writes a text of more than 1000 characters"),
    ],
)
def test_a_bound_that_is_exceeded_is_named_and_after_two_the_template_gets_no_more_processes(
    source: str, bounds: dict[str, float], message: str
) -> None:
    process = bounded(source, **bounds)
    try:
        for _ in range(2):
            with pytest.raises(TemplateExceeded, match=message):
                applied(process)
        for _ in range(50):
            with pytest.raises(TemplateExceeded, match="is not used again"):
                applied(process)
        assert process.started == 2
    finally:
        process.close()


def test_a_process_that_dies_once_is_replaced(process: TemplateProcess) -> None:
    before = applied(process)
    (pid,) = TemplateProcess.living
    os.kill(pid, 9)
    with pytest.raises(TemplateExceeded, match="has ended the process"):
        applied(process)
    assert applied(process) == before
    assert process.started == 2


async def test_closing_ends_a_rendering_at_once() -> None:
    process = bounded(LOOPS, seconds=3600.0)
    rendering = asyncio.ensure_future(process.run(applied, process))
    await wait_until(lambda: TemplateProcess.living)
    (pid,) = TemplateProcess.living
    process.close()
    with pytest.raises(TemplateExceeded, match="the job has ended"):
        await rendering
    assert not is_running(pid)


def test_a_template_process_has_no_variables_of_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUDUS_TOKEN", "secret-token")
    process = bounded(SOURCE)
    try:
        applied(process)
        (pid,) = TemplateProcess.living
        with open(f"/proc/{pid}/environ", "rb") as file:
            assert b"secret-token" not in file.read()
    finally:
        process.close()


def test_a_template_of_too_many_characters_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(RenderingError, match="of at most"):
        bounded("x" * (SOURCE_CHARACTERS + 1))
