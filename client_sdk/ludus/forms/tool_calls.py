"""The forms in which models write tool calls and thoughts, as data: `TEXT_FORMATS` is the registry.

    hermes     <tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>     Hermes, Qwen2.5, Qwen3
    llama      {"name": "add", "parameters": {"a": 1}}; {"name": …}              Llama 3.1, 3.2, 3.3
    pythonic   [add(a=1), add(a=2)]                                              Llama 3.2 (small), Llama 4
    xml        <tool_call><function=add><parameter=a>1</parameter>…              Qwen3-Coder, Qwen3.5+, Nemotron 3
    …

A call that cannot be parsed becomes a `MalformedCall`, and the
harness answers it with its problem. It is never dropped, repaired, or treated as a final message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from ludus.forms.markup import (
    gemma_body,
    markup_body,
    named_body,
    pairs_body,
    read_harmony,
    split_harmony,
    split_muse,
    write_gemma,
    write_harmony,
    write_markup,
    write_muse,
    write_pairs,
)
from ludus.forms.text import (
    NO_SCHEMAS,
    AnyCall,
    Read,
    Schemas,
    Write,
    call_of,
    decode,
    json_body,
    json_list,
    malformed,
    object_text,
    python_calls,
    python_list,
    tagged,
)
from ludus.protocol.items import MalformedCall, arguments_text

__all__ = ["TEXT_FORMATS", "TextFormatName"]

TextFormatName = Literal[
    "hermes", "llama", "pythonic", "xml", "glm", "harmony", "deepseek", "deepseek_v31", "kimi", "mistral",
    "mistral_v11", "gemma", "minimax", "command", "lfm2", "phi", "muse",
]  # fmt: skip
"""The text formats of tool calls, by the models that use them."""

THOUGHT_OPEN: Final = "<think>"
THOUGHT_CLOSE: Final = "</think>"
THOUGHT_MARKS: Final = (
    ("[THINK]", "[/THINK]"), ("<thinking>", "</thinking>"), ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"), ("<seed:think>", "</seed:think>"), ("<|think|>", "<|/think|>"),
    ("\u25c1think\u25b7", "\u25c1/think\u25b7"), ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"), ("<unused94>thought", "<unused95>"),
    ("<|channel>thought", "<channel|>"),
)  # fmt: skip
"""Other marks around thoughts: of Mistral, Nova, Gemma, EXAONE, Seed-OSS, Kimi, Sky-T1, Command A, MedGemma and
Gemma 4."""

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_HARMONY: Final = "<|channel|>"
_HARMONY_END: Final = re.compile(r"<\|(?:end|return|call|start)\|>")
_TAG: Final = "<|python_tag|>"
_LLAMA: Final = re.compile(r'(?:^|<\|python_tag\|>)\s*(?=\{\s*"(?:name|type|parameters|arguments)"\s*:)', re.MULTILINE)
_LLAMA_FUNCTION: Final = re.compile(r"<function=([^>\s]+)>")
_NEXT: Final = re.compile(r"\s*;?\s*")
_PYTHONIC: Final = re.compile(r"(?:^|<\|python_start\|>)\s*(?=\[\s*[A-Za-z_][\w.]*\s*\()", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class TextFormat:
    """One format of calls."""

    reader: Read
    """The text of a turn without thoughts → the text outside the calls, and the calls."""
    write: Write
    """Calls → text that `read` parses as the same calls."""
    models: str
    """The models that use it."""
    marks: tuple[str, ...] = ()
    """Tokens that are part of the assistant's turns, although tokenizers may mark them as special."""
    shown: tuple[str, ...] = ()
    """Texts in the prompt by which a template shows this format to the model, all of them."""
    split: Callable[[str], tuple[str, str]] | None = None
    """A turn → its thoughts, and the rest for `read`, where thoughts are not between marks of their own."""
    call_id: Callable[[str, int], str] | None = None
    """The id of a call to a tool, by its number in the conversation, if the model writes ids of its own."""
    ids: re.Pattern[str] | None = None
    """Finds the ids of the calls in a turn."""
    ends: tuple[str, ...] = ()
    """Tokens that end a turn besides those that the template and the tokenizer name."""

    def read(self, text: str, schemas: Schemas = NO_SCHEMAS) -> tuple[str, list[AnyCall]]:
        """Return the text of a turn without thoughts outside its calls, and the calls.

        Args:
            text: the text.
            schemas: the schemas of the tools' arguments, for formats that write values without quotes.
        """
        return self.reader(text, schemas)

    def parse(self, text: str, schemas: Schemas = NO_SCHEMAS) -> tuple[str, str, list[AnyCall]]:
        """Return the thoughts, the message and the calls of a turn. Calls within thoughts do not count."""
        thought, spoken = (self.split or split_thought)(text)
        return thought, *self.read(spoken, schemas)


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


def split_thought(text: str) -> tuple[str, str]:
    """Return the thoughts of a turn, without their marks, and the text after them; see `without_thought`."""
    spoken = without_thought(text)
    thought = text.removesuffix(spoken) if spoken else text
    for opening, closing in ((THOUGHT_OPEN, THOUGHT_CLOSE), *THOUGHT_MARKS):
        thought = thought.strip().removeprefix(opening).removesuffix(closing)
    return thought.strip(), spoken


def _read_llama_function(text: str, start: int) -> tuple[AnyCall, int]:
    """Read a call in Llama 3.1's own form, `<function=add>{"a": 1}</function>`, which it uses unasked."""
    head = _LLAMA_FUNCTION.match(text, start)
    assert head is not None
    try:
        value, end = decode(text, head.end())
        call = call_of({"name": head[1], "arguments": value}, text[head.end() : end])
    except (ValueError, RecursionError) as error:
        end = text.find("</function>", head.end())
        end = len(text) if end < 0 else end
        call = MalformedCall(head[1], text[head.end() : end], f"the arguments are not valid JSON: {error}")
    return call, end + len("</function>") if text.startswith("</function>", end) else end


def _read_llama(text: str, schemas: Schemas) -> tuple[str, list[AnyCall]]:
    start, function = _LLAMA.search(text), _LLAMA_FUNCTION.search(text)
    if function is not None and (start is None or function.start() < start.start()):
        call, end = _read_llama_function(text, function.start())
        before = text[: function.start()].strip().removesuffix(_TAG).strip()
        after, others = _read_llama(text[end:], schemas)
        return "\n".join(filter(None, (before, after))), [call, *others]
    if start is None:
        said, tag, rest = text.partition(_TAG)
        return said.strip(), [malformed(rest, f"what follows {_TAG} must be a JSON object")] if tag else []
    calls: list[AnyCall] = []
    at = start.end()
    while at < len(text):
        try:
            value, end = decode(text, at)
        except (ValueError, RecursionError) as error:
            calls.append(malformed(text[at:], f"the call is not valid JSON: {error}"))
            break
        if not calls and isinstance(value, dict) and not {"parameters", "arguments"} & value.keys():
            return text.strip(), []  # an answer that happens to be JSON
        calls.append(call_of(value, text[at:end]))
        separator = _NEXT.match(text, end)
        at = separator.end() if separator else end
    return text[: start.start()].strip(), calls


def _write_llama(calls: Sequence[AnyCall]) -> str:
    return "; ".join(object_text(call, "parameters") for call in calls)


def _read_pythonic(text: str, schemas: Schemas) -> tuple[str, list[AnyCall]]:
    start = _PYTHONIC.search(text)
    if start is None:
        return text.strip(), []
    return text[: start.start()].strip(), python_calls(text[start.end() :].strip().removesuffix("<|python_end|>"))


_LISTED: Final = ("<|tool_call_start|>", "<|tool_call_end|>")


def _read_lfm2(text: str, schemas: Schemas) -> tuple[str, list[AnyCall]]:
    said, calls = [], list[AnyCall]()
    while True:
        before, opened, rest = text.partition(_LISTED[0])
        said.append(before)
        if not opened:
            return "".join(said).strip(), calls
        source, closed, text = rest.partition(_LISTED[1])
        calls += python_calls(source) if closed else [malformed(source, f"the calls have no {_LISTED[1]}")]


# ── the registry ────────────────────────────────────────────────────────────────────────────────────────────────────


def _between(opening: str, closing: str, write: Callable[[AnyCall], str], joined: str = "\n") -> Write:
    return lambda calls: joined.join(f"{opening}{write(call)}{closing}" for call in calls)


def _around(opening: str, write: Write, closing: str) -> Write:
    return lambda calls: f"{opening}{write(calls)}{closing}"


def _objects(arguments: str, name: str = "name") -> Write:
    return lambda calls: f"[{', '.join(object_text(call, arguments, name) for call in calls)}]"


def _mistral_id(tool: str, number: int) -> str:
    return f"call{number:05d}"  # Mistral's templates take nine letters and digits, and nothing else


def _mistral_objects(calls: Sequence[AnyCall]) -> str:
    objects = (f'{object_text(call, "arguments")[:-1]}, "id": "{_mistral_id("", n)}"}}' for n, call in enumerate(calls))
    return f"[{', '.join(objects)}]"


_DEEPSEEK: Final = (
    "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>",
)  # fmt: skip
_KIMI: Final = (
    "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>", "<|tool_call_end|>",
    "<|tool_call_argument_begin|>",
)  # fmt: skip
_MISTRAL: Final = ("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]")
_COMMAND: Final = (
    "<|START_ACTION|>", "<|END_ACTION|>", "<|START_THINKING|>", "<|END_THINKING|>", "<|START_RESPONSE|>",
    "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>",
)  # fmt: skip
_INVOKE: Final = ("<minimax:tool_call>", "</minimax:tool_call>")
_ATEM: Final = ("<atem:function_calls>", "</atem:function_calls>")
_GEMMA: Final = ("<|tool_call>", "<tool_call|>", '<|"|>', "<|channel>", "<channel|>")
_PHI: Final = ("<|tool_call|>", "<|/tool_call|>")
_CHANNELS: Final = ("<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|constrain|>")


def _read_command(text: str, schemas: Schemas) -> tuple[str, list[AnyCall]]:
    message, calls = _COMMAND_LIST(text, schemas)
    for mark in _COMMAND[4:]:
        message = message.replace(mark, "")
    return message.strip(), calls


_COMMAND_LIST: Final = json_list(*_COMMAND[:2], name="tool_name", arguments="parameters")

TEXT_FORMATS: Final[Mapping[TextFormatName, TextFormat]] = {
    "hermes": TextFormat(
        tagged(json_body, _OPEN, _CLOSE, what=f"a call must be one JSON object and then {_CLOSE}"),
        _between(f"{_OPEN}\n", f"\n{_CLOSE}", partial(object_text, arguments="arguments")),
        "Hermes, Qwen2.5, Qwen3, Qwen3-VL", (_OPEN, _CLOSE), (_OPEN,),
    ),
    "llama": TextFormat(
        _read_llama, _write_llama, "Llama 3.1, 3.2, 3.3", (_TAG,), ('"parameters": dictionary',), ends=("<|eom_id|>",)
    ),
    "pythonic": TextFormat(
        _read_pythonic, python_list, "Llama 4, Llama 3.2 (small)", ("<|python_start|>", "<|python_end|>"),
        ("[func_name1(",),
    ),
    "xml": TextFormat(
        tagged(
            markup_body(
                r"\s*<function=([^>\n]+)>", r"<parameter=([^>\n]+)>", "</parameter>", "</function>", lines=True
            ),
            _OPEN, _CLOSE, what=f"a call must be one <function=…> element and then {_CLOSE}",
        ),
        _between(
            f"{_OPEN}\n", f"\n{_CLOSE}",
            lambda call: write_markup(call, "<function={}>\n", "<parameter={}>\n{}\n</parameter>\n", "</function>"),
        ),
        "Qwen3-Coder, Qwen3.5, 3.6, 3.8, Nemotron 3", (_OPEN, _CLOSE), (_OPEN, "<function="),
    ),
    "glm": TextFormat(
        tagged(pairs_body, _OPEN, _CLOSE, what=f"a call must be a tool's name, its arguments and then {_CLOSE}"),
        _between(_OPEN, _CLOSE, write_pairs), "GLM 4.5, 4.6, 4.7, 5", (_OPEN, _CLOSE), (_OPEN, "<arg_key>"),
    ),
    "harmony": TextFormat(
        read_harmony, write_harmony, "gpt-oss", _CHANNELS, split=split_harmony, ends=("<|return|>", "<|call|>"),
    ),
    "deepseek": TextFormat(
        tagged(
            named_body(r"function<｜tool▁sep｜>([^\n]+)\n```json\n", r"\s*```"), _DEEPSEEK[2], _DEEPSEEK[3],
            around=_DEEPSEEK[:2], what=f"a call must be a tool's name, a block of JSON and then {_DEEPSEEK[3]}",
        ),
        _around(_DEEPSEEK[0], _between(
            f"{_DEEPSEEK[2]}function{_DEEPSEEK[4]}", f"\n```{_DEEPSEEK[3]}",
            lambda call: f"{call.tool}\n```json\n{arguments_text(call)}",
        ), _DEEPSEEK[1]),
        "DeepSeek V3, R1", _DEEPSEEK, (f"function{_DEEPSEEK[4]}",),
    ),
    "deepseek_v31": TextFormat(
        tagged(
            named_body(r"([^<\n]+)<｜tool▁sep｜>"), _DEEPSEEK[2], _DEEPSEEK[3], around=_DEEPSEEK[:2],
            what=f"a call must be a tool's name, its arguments as JSON and then {_DEEPSEEK[3]}",
        ),
        _around(_DEEPSEEK[0], _between(
            _DEEPSEEK[2], _DEEPSEEK[3], lambda call: f"{call.tool}{_DEEPSEEK[4]}{arguments_text(call)}", ""
        ), _DEEPSEEK[1]),
        "DeepSeek V3.1", _DEEPSEEK, (_DEEPSEEK[2], _DEEPSEEK[4]),
    ),
    "kimi": TextFormat(
        tagged(
            named_body(r"\s*(?:functions\.)?([^\s:<]+)(?::\d+)?\s*<\|tool_call_argument_begin\|>"), re.escape(_KIMI[2]),
            _KIMI[3], around=_KIMI[:2], what=f"a call must be its id, its arguments as JSON and then {_KIMI[3]}",
        ),
        lambda calls: _KIMI[0] + "".join(
            f"{_KIMI[2]}functions.{call.tool}:{n}{_KIMI[4]}{arguments_text(call)}{_KIMI[3]}"
            for n, call in enumerate(calls)
        ) + _KIMI[1],
        "Kimi K2, K2.5", _KIMI, (_KIMI[2],), call_id=lambda tool, number: f"functions.{tool}:{number}",
        ids=re.compile(r"<\|tool_call_begin\|>\s*([^\s<]+)"),
    ),
    "mistral": TextFormat(
        json_list(_MISTRAL[0], ""), _around(_MISTRAL[0], _mistral_objects, ""), "Mistral 7B v0.3, Nemo, Small 3",
        _MISTRAL, (_MISTRAL[0], '"arguments"'), call_id=_mistral_id, ids=re.compile(r'"id":\s*"([A-Za-z0-9]{9})"'),
    ),
    "mistral_v11": TextFormat(
        tagged(
            named_body(r"([^\[\s{]+)(?:\[CALL_ID\]\w*)?\[ARGS\]"), re.escape(_MISTRAL[0]), "",
            what="a call must be a tool's name, [ARGS] and its arguments as JSON",
        ),
        lambda calls: "".join(f"{_MISTRAL[0]}{call.tool}[ARGS]{arguments_text(call)}" for call in calls),
        "Mistral Small 3.2, Devstral, Magistral, Ministral 3", _MISTRAL, (_MISTRAL[0], _MISTRAL[1]),
        call_id=_mistral_id, ids=re.compile(r"\[CALL_ID\]([A-Za-z0-9]{9})"),
    ),
    "gemma": TextFormat(
        tagged(gemma_body, re.escape(_GEMMA[0]), _GEMMA[1], what=f"a call must be call:NAME{{…}} and then {_GEMMA[1]}"),
        _between(_GEMMA[0], _GEMMA[1], write_gemma, ""), "Gemma 4, DiffusionGemma", _GEMMA, (_GEMMA[0],),
    ),
    "minimax": TextFormat(
        tagged(
            markup_body(
                r'\s*name="([^"\n]+)">', r'<parameter name="([^"\n]+)">', "</parameter>", "</invoke>", lines=False
            ),
            "<invoke(?=\\s)", "", around=_INVOKE, what="a call must be one <invoke> element",
        ),
        _around(f"{_INVOKE[0]}\n", _between("", "", lambda call: write_markup(
            call, '<invoke name="{}">\n', '<parameter name="{}">{}</parameter>\n', "</invoke>\n"
        ), ""), _INVOKE[1]),
        "MiniMax M2, M2.5", _INVOKE, (_INVOKE[0],),
    ),
    "command": TextFormat(
        _read_command, _around(_COMMAND[0], _objects("parameters", "tool_name"), _COMMAND[1]),
        "Command R7B, Command A, North", _COMMAND, (_COMMAND[0],), call_id=lambda tool, number: str(number),
        ids=re.compile(r'"tool_call_id":\s*"(\d+)"'),
    ),
    "lfm2": TextFormat(
        _read_lfm2, _around(_LISTED[0], python_list, _LISTED[1]), "LFM2, LFM2.5", _LISTED, ("<|tool_list_start|>",)
    ),
    "phi": TextFormat(
        json_list(*_PHI), _around(_PHI[0], _objects("arguments"), _PHI[1]), "Phi-4-mini, Granite 3", _PHI, (_PHI[0],)
    ),
    "muse": TextFormat(
        tagged(
            markup_body(
                r'\s*name="([^"\n]+)">', r'<atem:parameter name="([^"\n]+)">', "</atem:parameter>", "</atem:invoke>",
                lines=False,
            ),
            "<atem:invoke(?=\\s)", "", around=_ATEM, what="a call must be one <atem:invoke> element",
        ),
        write_muse, "Muse Glimmer", (*_ATEM, "<|start|>", "<|message|>", "<|eom|>"), (_ATEM[0],), split=split_muse,
    ),
}  # fmt: skip
"""The formats by name."""

MARKS: Final = frozenset(mark for form in TEXT_FORMATS.values() for mark in form.marks)
"""Tokens that are part of the assistant's turns in some format."""
