"""Parsing and writing tool calls in the text formats of models.

    hermes     <tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>     Hermes, Qwen2.5, Qwen3
    llama      {"name": "add", "parameters": {"a": 1}}; {"name": …}              Llama 3.1, 3.2, 3.3
    pythonic   [add(a=1), add(a=2)]                                              Llama 3.2 (small), Llama 4

A call that cannot be parsed becomes a `MalformedCall`, and the harness answers it with its problem. It is never
dropped, repaired, or treated as a final message.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ludus.protocol.actions import Call
from ludus.protocol.items import MalformedCall, arguments_text, parse_arguments

__all__ = ["TEXT_FORMATS", "TextFormatName"]


AnyCall = Call | MalformedCall
"""A call in a turn of the model, or text that was meant as one and cannot be parsed."""

TextFormatName = Literal["hermes", "llama", "pythonic"]
"""The text formats of tool calls, by the models that use them."""

THOUGHT_OPEN: Final = "<think>"
THOUGHT_CLOSE: Final = "</think>"
THOUGHT_MARKS: Final = (
    ("[THINK]", "[/THINK]"), ("<thinking>", "</thinking>"), ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"), ("<seed:think>", "</seed:think>"), ("<|think|>", "<|/think|>"),
    ("\u25c1think\u25b7", "\u25c1/think\u25b7"), ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"), ("<unused94>thought", "<unused95>"),
)  # fmt: skip
"""Other marks around thoughts: of Mistral, Nova, Gemma, EXAONE, Seed-OSS, Kimi, Sky-T1, Command A, MedGemma."""

MARKS: Final = ("<tool_call>", "</tool_call>", "<|python_tag|>", "<|python_start|>", "<|python_end|>")
"""Tokens that are part of the assistant's turns, although some tokenizers mark them as special."""

_OPEN, _CLOSE = MARKS[:2]
_HARMONY: Final = "<|channel|>"
_HARMONY_END: Final = re.compile(r"<\|(?:end|return|call|start)\|>")
_TAG: Final = "<|python_tag|>"
_MARK: Final = re.compile("</?tool_call>")
_CLOSING: Final = re.compile(rf"\s*{_CLOSE}")
_LLAMA: Final = re.compile(r'(?:^|<\|python_tag\|>)\s*(?=\{\s*"(?:name|type|parameters|arguments)"\s*:)', re.MULTILINE)
_NEXT: Final = re.compile(r"\s*;?\s*")
_PYTHONIC: Final = re.compile(r"(?:^|<\|python_start\|>)\s*(?=\[\s*[A-Za-z_][\w.]*\s*\()", re.MULTILINE)
_NAME: Final = re.compile(r'"name"\s*:\s*"([^"\\]*)"|([A-Za-z_][\w.]*)\s*\(')
_JSON: Final = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class TextFormat:
    """One format of calls."""

    read: Callable[[str], tuple[str, list[AnyCall]]]
    """The text of a turn without thoughts → the text outside the calls, and the calls."""
    write: Callable[[Sequence[AnyCall]], str]
    """Calls → text that `read` parses as the same calls."""


def detect_format(chat_template: str) -> TextFormatName | None:
    """Return the format that a chat template requires of the model; None if it is none of these."""
    if "<function=" in chat_template:  # Qwen3-Coder writes XML inside of <tool_call>
        return None
    if _OPEN in chat_template:
        return "hermes"
    if "<|python_start|>" in chat_template or "[func_name1(" in chat_template:
        return "pythonic"
    if _TAG in chat_template or '"parameters"' in chat_template:
        return "llama"
    return None


def without_thought(text: str) -> str:
    """Return a sampled text after its thoughts, without a thought that is not closed: no call is in a thought.

    A text may have been sampled from inside of a thought, so everything up to the last `</think>` is one. The marks of
    `THOUGHT_MARKS` count at the beginning of the text only, or where a thought ends that has no beginning; in the
    middle they are text. Of a text in OpenAI's harmony form, the last message to the user remains.
    """
    _, closed, spoken = text.rpartition(THOUGHT_CLOSE)
    text = spoken if closed else text.partition(THOUGHT_OPEN)[0]
    if _HARMONY in text:
        return _harmony_final(text)
    for opening, closing in THOUGHT_MARKS:
        before, closed, after = text.partition(closing)
        if (
            closed
            and opening not in before.lstrip()[len(opening) :]
            and (before.lstrip().startswith(opening) or opening not in before)
        ):
            return without_thought(after)
        if text.lstrip().startswith(opening):
            return ""
    return text


def spoken_text(text: str) -> str:
    """Return what a model said to others: its text as it is, or what follows its thoughts, without white space around.

    Every final message is graded by this rule, whether the model is trained or evaluated.
    """
    spoken = without_thought(text)
    return text if spoken == text else spoken.strip()


def _harmony_final(text: str) -> str:
    _, final, spoken = text.rpartition(_HARMONY + "final<|message|>")
    return _HARMONY_END.split(spoken)[0] if final else ""


def _read_hermes(text: str) -> tuple[str, list[AnyCall]]:
    said: list[str] = []
    calls: list[AnyCall] = []
    at = 0
    while (mark := _MARK.search(text, at)) is not None:
        said.append(text[at : mark.start()])
        if mark[0] == _OPEN:
            call, at = _hermes_call(text, mark.end())
        else:
            call, at = _malformed(text[at : mark.end()], f"{_CLOSE} without {_OPEN}"), mark.end()
        calls.append(call)
    said.append(text[at:])
    return "".join(said).strip(), calls


def _hermes_call(text: str, start: int) -> tuple[AnyCall, int]:
    """Return the call that begins at `start`, after its mark, and the position of its end."""
    problem = f"a call must be one JSON object and then {_CLOSE}"
    end = start
    try:
        # Decode the JSON, not the text up to the next mark, because an argument may contain a mark.
        value, end = _decode(text, start)
        if (closing := _CLOSING.match(text, end)) is not None:
            return _call(value, text[start:end]), closing.end()
    except (ValueError, RecursionError) as error:
        problem = f"the call is not valid JSON: {error}"
    mark = _MARK.search(text, end)
    stop = mark.start() if mark else len(text)
    return _malformed(text[start:stop], problem), mark.end() if mark and mark[0] == _CLOSE else stop


def _write_hermes(calls: Sequence[AnyCall]) -> str:
    return "\n".join(f"{_OPEN}\n{_object(call, 'arguments')}\n{_CLOSE}" for call in calls)


def _read_llama(text: str) -> tuple[str, list[AnyCall]]:
    start = _LLAMA.search(text)
    if start is None:
        said, tag, rest = text.partition(_TAG)
        return said.strip(), [_malformed(rest, f"what follows {_TAG} must be a JSON object")] if tag else []
    calls: list[AnyCall] = []
    at = start.end()
    while at < len(text):
        try:
            value, end = _decode(text, at)
        except (ValueError, RecursionError) as error:
            calls.append(_malformed(text[at:], f"the call is not valid JSON: {error}"))
            break
        if not calls and isinstance(value, dict) and not {"parameters", "arguments"} & value.keys():
            return text.strip(), []  # an answer that happens to be JSON
        calls.append(_call(value, text[at:end]))
        separator = _NEXT.match(text, end)
        at = separator.end() if separator else end
    return text[: start.start()].strip(), calls


def _write_llama(calls: Sequence[AnyCall]) -> str:
    return "; ".join(_object(call, "parameters") for call in calls)


def _read_pythonic(text: str) -> tuple[str, list[AnyCall]]:
    start = _PYTHONIC.search(text)
    if start is None:
        return text.strip(), []
    said, source = text[: start.start()].strip(), text[start.end() :].strip().removesuffix("<|python_end|>")
    try:
        with warnings.catch_warnings(action="ignore"):  # Python warns of invalid escapes in the model's strings
            tree = ast.parse(source, mode="eval").body
        if not isinstance(tree, ast.List):
            raise ValueError("not a list")
        return said, [_python_call(node, source) for node in tree.elts]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return said, [_malformed(source, f"not a list of Python calls with named literals: {error}")]


def _python_call(node: ast.expr, source: str) -> AnyCall:
    if not isinstance(node, ast.Call) or node.args or not isinstance(node.func, ast.Name | ast.Attribute):
        raise ValueError(f"{ast.get_source_segment(source, node)} is not a call with named arguments")
    arguments = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise ValueError("** is not allowed")
        arguments[keyword.arg] = ast.literal_eval(keyword.value)
    return parse_arguments(ast.unparse(node.func), arguments)


def _write_pythonic(calls: Sequence[AnyCall]) -> str:
    return f"[{', '.join(f'{call.tool}({_keywords(call)})' for call in calls)}]"


def _keywords(call: AnyCall) -> str:
    if isinstance(call, MalformedCall):
        return call.text
    return ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())


TEXT_FORMATS: Final[Mapping[TextFormatName, TextFormat]] = {
    "hermes": TextFormat(_read_hermes, _write_hermes),
    "llama": TextFormat(_read_llama, _write_llama),
    "pythonic": TextFormat(_read_pythonic, _write_pythonic),
}
"""The formats by name."""


def _decode(text: str, start: int) -> tuple[object, int]:
    value, end = _JSON.raw_decode(text, len(text) - len(text[start:].lstrip()))
    return value, end


def _call(value: object, text: str) -> AnyCall:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return _malformed(text, 'a call must be a JSON object with "name" and "arguments"')
    return parse_arguments(value["name"], value.get("arguments", value.get("parameters")))


def _malformed(text: str, problem: str) -> MalformedCall:
    name = _NAME.search(text)
    return MalformedCall((name[1] or name[2] or "") if name else "", text, problem)


def _object(call: AnyCall, key: str) -> str:
    return f'{{"name": {json.dumps(call.tool, ensure_ascii=False)}, "{key}": {arguments_text(call)}}}'
