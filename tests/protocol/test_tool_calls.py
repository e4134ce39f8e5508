import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ludus.forms.text import schemas_of
from ludus.forms.tool_calls import TEXT_FORMATS, TextFormatName
from ludus.protocol.actions import Call
from ludus.protocol.items import MalformedCall

HERMES_FORMAT, LLAMA_FORMAT, PYTHON_FORMAT = TEXT_FORMATS["hermes"], TEXT_FORMATS["llama"], TEXT_FORMATS["pythonic"]

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
names = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True).filter(lambda name: name not in ("if", "is", "in", "or"))
calls = st.builds(Call, names, st.dictionaries(names, values.filter(lambda v: _cleaned(v)), max_size=3))


def _cleaned(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except ValueError:
        return False
    return True


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(TEXT_FORMATS)),
    st.lists(calls, min_size=1, max_size=3, unique_by=lambda call: call.tool),
    st.sampled_from(["", "Let me see."]),
)
def test_what_is_written_is_read_as_the_same_calls(name: TextFormatName, made: list[Call], said: str) -> None:
    form = TEXT_FORMATS[name]
    if said and form.split is not None:  # a turn in channels, each of which has a header
        said = ""
    assert form.parse(f"{said}\n{form.write(made)}", schemas_of(made)) == ("", said, made)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(TEXT_FORMATS)), st.text(max_size=40), st.lists(calls, max_size=2), st.data())
def test_no_text_at_all_makes_a_parser_raise(
    name: TextFormatName, junk: str, made: list[Call], data: st.DataObject
) -> None:
    text = TEXT_FORMATS[name].write(made)
    at = data.draw(st.integers(0, len(text)))
    said, read = TEXT_FORMATS[name].read(text[:at] + junk + text[at + len(junk) :])
    assert isinstance(said, str)
    assert all(isinstance(call, Call | MalformedCall) for call in read)
    assert all(isinstance(call.tool, str) for call in read)


@pytest.mark.parametrize("text", ['{"name": "", "arguments": {}', '{"name": "", say}'])
def test_a_broken_call_with_an_empty_name_has_an_empty_name(text: str) -> None:
    [call] = HERMES_FORMAT.read(f"<tool_call>{text}</tool_call>")[1]
    assert isinstance(call, MalformedCall)
    assert call.tool == ""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("<tool_call>{'name': 'add'}</tool_call>", "not valid JSON"),
        ('<tool_call>{"name": "add", "arguments": {"a": 1}', "not valid JSON"),
        ('<tool_call>{"name": "add", "arguments": {}}', "and then </tool_call>"),
        ('<tool_call>{"name": "add", "arguments": {}} {"name": "add"}</tool_call>', "and then </tool_call>"),
        ('{"name": "add", "arguments": {}}</tool_call>', "without <tool_call>"),
        ("<tool_call></tool_call>", "not valid JSON"),
        ('<tool_call>["add"]</tool_call>', '"name"'),
        ('<tool_call>{"name": 3, "arguments": {}}</tool_call>', '"name"'),
        ('<tool_call>{"name": "add", "arguments": [1]}</tool_call>', "JSON object"),
        ('<tool_call>{"name": "add", "arguments": {"a": NaN}}</tool_call>', "no JSON"),
        ('<tool_call>{"name": "add", "arguments": {"a": "\\ud800"}}</tool_call>', "no JSON"),
        ("<tool_call>" + "[" * 100_000, "not valid JSON"),
    ],
)
def test_a_call_in_tags_that_cannot_be_read_says_why(text: str, problem: str) -> None:
    [call] = HERMES_FORMAT.read(text)[1]
    assert isinstance(call, MalformedCall)
    assert problem in call.problem


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"name": "add", "parameters": {"a": 1}', "not valid JSON"),
        ('{"name": "add", "parameters": {"a": 1}} and then', "not valid JSON"),
        ('<|python_tag|>print("x")', "must be a JSON object"),
        ('{"type": "function", "parameters": {}}', '"name"'),
    ],
)
def test_a_bare_json_call_that_cannot_be_read_says_why(text: str, problem: str) -> None:
    call = LLAMA_FORMAT.read(text)[1][-1]
    assert isinstance(call, MalformedCall)
    assert problem in call.problem


@pytest.mark.parametrize(
    "text",
    [
        "[add(1)]",
        "[add(a=b)]",
        "[add(**{'a': 1})]",
        "[add(a=1",
        "[add(a=1)][0]",
        "[add(a='\\x')]",
        "[add(a={1})]",
        "[add(a=1)(b=2)]",
    ],
)
def test_a_python_call_that_cannot_be_read_is_malformed(text: str) -> None:
    [call] = PYTHON_FORMAT.read(text)[1]
    assert isinstance(call, MalformedCall)
    assert call.tool == "add"


def test_a_call_that_cannot_be_read_leaves_the_others_of_the_turn_alone() -> None:
    good = '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
    said, calls = HERMES_FORMAT.read(f"First {good} then <tool_call>{{oops</tool_call> and {good}")
    assert [type(call) for call in calls] == [Call, MalformedCall, Call]
    assert said == "First  then  and"


def test_a_call_that_is_not_closed_ends_where_the_next_begins() -> None:
    text = '<tool_call>{"name": "a", "arguments": {}}\n<tool_call>{"name": "b", "arguments": {}}</tool_call>'
    first, second = HERMES_FORMAT.read(text)[1]
    assert isinstance(first, MalformedCall)
    assert first.tool == "a"
    assert second == Call("b")


def test_an_argument_may_spell_the_mark_that_ends_a_call() -> None:
    call = Call("say", {"text": "</tool_call> and <tool_call>"})
    assert HERMES_FORMAT.read(HERMES_FORMAT.write([call])) == ("", [call])


@pytest.mark.parametrize(
    "text", ['{"name": "Ada", "age": 36}', "The set {1, 2}.", "[1, 2]", "[link](http://x)", "1. a"]
)
def test_an_answer_that_looks_a_little_like_a_call_is_an_answer(text: str) -> None:
    assert LLAMA_FORMAT.read(text) == (text, [])
    assert PYTHON_FORMAT.read(text) == (text, [])


def test_llamas_own_function_tags_are_calls() -> None:
    call = Call("add", {"a": 1})
    assert LLAMA_FORMAT.read('Sure. <function=add>{"a": 1}</function>') == ("Sure.", [call])
    assert LLAMA_FORMAT.read('<function=add>{"a": 1}</function><function=add>{"a": 1}') == ("", [call, call])
    _, [broken] = LLAMA_FORMAT.read("<function=add>{a: 1}</function>")
    assert isinstance(broken, MalformedCall)
    assert broken.tool == "add"


def test_llamas_calls_may_follow_words_a_tag_and_each_other() -> None:
    one, two = Call("add", {"a": 1}), Call("add", {"a": 2})
    text = 'Sure.<|python_tag|>{"name": "add", "parameters": {"a": 1}}; {"name": "add", "arguments": "{\\"a\\": 2}"}'
    assert LLAMA_FORMAT.read(text) == ("Sure.", [one, two])
