"""How a chat template writes the assistant's turns, found and proved by a round trip before anything is sampled.

The template renders a probe: a question, a turn with a thought and a call, and the result of the call. The form of
calls is the one that reads the turn as what went in. A turn can be given to the template in two ways:

    verbatim      its content is the turn in the model's own words, with calls and thoughts in it
    structured    its message, thought and calls are fields, and the template writes them

Verbatim is used where the template writes the same conversation either way, because then a turn keeps its own words,
well-formed or not. Templates that divide a turn into channels (gpt-oss), or that look for `tool_calls` to show results
(Gemma 4, Mistral), need the fields.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from ludus.forms.text import AnyCall
from ludus.forms.tool_calls import (
    TEXT_FORMATS,
    THOUGHT_CLOSE,
    THOUGHT_MARKS,
    THOUGHT_OPEN,
    TextFormat,
    TextFormatName,
)
from ludus.protocol.actions import Call
from ludus.protocol.items import arguments_text
from ludus.rendering.errors import RenderingError, TemplateExceeded
from ludus.rendering.template import NO_TOOLS, PROBE, ChatMessage, Template

TOOL: Final[ChatMessage] = {
    "type": "function",
    "function": {
        "name": "probe_tool",
        "description": "Probe.",
        "parameters": {
            "type": "object",
            "properties": {
                "label": {"type": "string", "description": "A label."},
                "count": {"type": "integer", "description": "A count."},
            },
            "required": ["label", "count"],
        },
    },
}
"""The tool of the probe."""
CALL: Final = Call("probe_tool", {"count": 7, "label": "probe label 8"})
RESULT: Final = "probe result"
THOUGHT: Final = "probe thought"
THOUGHT_KEYS: Final = ("reasoning_content", "thinking", "reasoning")
"""The fields in which templates look for a turn's thoughts."""
_SCHEMAS: Final[Mapping[str, Mapping[str, Any]]] = {"probe_tool": TOOL["function"]["parameters"]}
_MARK: Final = re.compile(r"<[^<>\s]{1,40}>|\[[^\[\]\s]{1,40}\]")
_DEFAULT_ID: Final = "call00000"

SystemMessages = Literal["any", "first", "none"]
"""Which system messages of a conversation a template writes."""


@dataclass(frozen=True, slots=True)
class TurnStyle:
    """How a template writes turns, and how it wants them."""

    form: TextFormatName | None = None
    """The form of calls; None if it could not be found."""
    structured: bool = False
    """Whether the parts of a turn are given as fields; otherwise the turn is given in its own words."""
    thought_key: str | None = None
    """The field of the turn's thoughts; None if the template writes none."""
    thought_marks: tuple[str, str] | None = None
    """The template's own marks around thoughts, if they are not among those of `ludus.forms.tool_calls`."""
    json_arguments: bool = False
    """Whether the template wants a call's arguments as JSON text and not as an object."""
    ends: tuple[str, ...] = ()
    """The tokens that end a turn in the text, that of a call first."""
    roles_end: bool = False
    """Whether a turn ends where the next role begins, so that the token that ends it belongs to the next message."""
    problem: str | None = None
    """Why the model cannot call tools with this template; None if it can."""

    @property
    def format(self) -> TextFormat | None:
        """The form of calls."""
        return TEXT_FORMATS[self.form] if self.form else None

    def with_known_marks(self, text: str) -> str:
        """Return the text of a turn whose thoughts are in marks that every reader of turns knows."""
        if self.thought_marks is None:
            return text
        opening, closing = self.thought_marks
        return text.replace(opening, THOUGHT_OPEN).replace(closing, THOUGHT_CLOSE)

    def turn(self, message: str, thought: str, calls: Sequence[AnyCall], ids: Sequence[str]) -> ChatMessage:
        """Return a turn whose parts are fields."""
        turn: ChatMessage = {"role": "assistant", "content": message}
        if thought and self.thought_key is not None:
            turn[self.thought_key] = thought
        if calls:
            turn["tool_calls"] = [self._field(call, call_id) for call, call_id in zip(calls, ids, strict=True)]
        return turn

    def _field(self, call: AnyCall, call_id: str) -> ChatMessage:
        # A call that cannot be parsed has no arguments: the template writes it as one without any.
        arguments: Any = dict(call.arguments) if isinstance(call, Call) else {}
        if self.json_arguments:
            arguments = arguments_text(Call(call.tool, arguments))
        return {"type": "function", "id": call_id, "function": {"name": call.tool, "arguments": arguments}}


def prove(
    template: Template, name: str, tokens: Sequence[str], required: TextFormatName | None, opening: str
) -> TurnStyle:
    """Return how a template writes turns with calls; its `problem` says why they cannot be used, if so.

    Args:
        template: the template.
        name: the model's name, for messages.
        tokens: the tokenizer's added tokens.
        required: the form of calls that the user has named; None to find it.
        opening: the text of the prompt after its last mark that begins a thought; "" if it does not end in a thought.

    Raises:
        TemplateExceeded: the template exceeded a bound.
    """
    try:
        prompt = template.render([PROBE], [TOOL])
    except TemplateExceeded:
        raise
    except RenderingError as error:
        return TurnStyle(problem=str(error))
    if TOOL["function"]["name"] not in prompt:
        return TurnStyle(problem=f"the chat template of {name} leaves out the tools: give another chat_template")
    trial = _Trial(template, tokens, prompt, opening)
    names: list[TextFormatName] = [required] if required else list(TEXT_FORMATS)
    style = next((style for form in names if (style := trial.written(form)) is not None), None)
    if style is None and not trial.writes_calls:
        shown: list[TextFormatName] = [required] if required else _shown(prompt)
        style = next((style for form in shown if (style := trial.copied(form)) is not None), None)
    if style is not None:
        return style
    return TurnStyle(problem=trial.problem(name, required))


def _shown(prompt: str) -> list[TextFormatName]:
    """Return the forms that a prompt shows to the model, those with the most signs first."""
    shown: list[TextFormatName] = [
        name for name, form in TEXT_FORMATS.items() if form.shown and all(sign in prompt for sign in form.shown)
    ]
    most = max((len(TEXT_FORMATS[name].shown) for name in shown), default=0)
    best: list[TextFormatName] = [name for name in shown if len(TEXT_FORMATS[name].shown) == most]
    return best if len(best) == 1 else []


@dataclass(slots=True)
class _Trial:
    """Renders the probe for one form after the other."""

    template: Template
    tokens: Sequence[str]
    prompt: str
    opening: str
    writes_calls: bool = False
    """Whether the template writes a turn's `tool_calls` in some form."""
    drops_results: bool = False
    """Whether the template writes a call but not its result."""
    refusal: str = ""
    """The last error of the template."""
    wrote: str = ""
    """The beginning of a turn as the template writes it."""
    _rendered: dict[str, str | None] = field(default_factory=dict[str, "str | None"])

    def written(self, form: TextFormatName) -> TurnStyle | None:
        """Return the style of a template that writes calls from fields in a form; None if it does not."""
        for style in self._styles(form):
            call_id = self._id(form)
            for key in (*THOUGHT_KEYS, None):
                tried = replace(style, thought_key=key)
                thought = THOUGHT if key else ""
                text = self._render([PROBE, tried.turn("", thought, [CALL], [call_id]), self._result(call_id)])
                if text is None or (key and THOUGHT not in text):
                    continue
                self.writes_calls |= CALL.arguments["label"] in text[len(self.prompt) :]
                self.wrote = self.wrote or text[len(self.prompt) :][:80]
                if not text.startswith(self.prompt):
                    continue
                end = self._end(tried, text, thought, len(self.prompt))
                if end is None and key and (marks := self._marks_around(text)) is not None:
                    tried = replace(tried, thought_marks=marks)
                    end = self._end(tried, text, thought, len(self.prompt))
                if end is None:
                    continue
                if RESULT not in text[end[0] :]:
                    self.drops_results = True
                    continue
                return self._verbatim(replace(tried, ends=(end[1],)), text, end[0], call_id)
        return None

    def copied(self, form: TextFormatName) -> TurnStyle | None:
        """Return the style of a template that copies a turn with a call in its own words; None if it does not."""
        style = TurnStyle(form)
        call_id = self._id(form)
        words = TEXT_FORMATS[form].write([CALL])
        text = self._render([PROBE, {"role": "assistant", "content": self.opening + words}, self._result(call_id)])
        # A template may write the prompt before a turn differently later on: then each turn is a sample of its own.
        if text is None or (start := text.find(words, len(self.prompt) // 2)) < 0:
            return None
        end = self._end(style, text, "", start)
        if end is None:
            return None
        if RESULT not in text[end[0] :]:
            self.drops_results = True
            return None
        return replace(style, ends=(end[1],))

    def problem(self, name: str, required: TextFormatName | None) -> str:
        """Return why no form fits."""
        if self.refusal and not self.writes_calls:
            return self.refusal
        if self.drops_results:
            return f"the chat template of {name} leaves out the results of tools: give another chat_template"
        if required is not None and self.writes_calls:
            return (
                f"the chat template of {name} does not write calls in the form {required}, but as {self.wrote!r}: give "
                "another tool_calls"
            )
        seen = f", which it writes as {self.wrote!r}" if self.writes_calls else ""
        return f"cannot tell from the chat template how {name} calls tools{seen}: give tool_calls"

    def _verbatim(self, style: TurnStyle, text: str, end: int, call_id: str) -> TurnStyle:
        """Return a style that gives turns in their own words, if the template then writes the same."""
        words = text[len(self.prompt) : end]
        turn = {"role": "assistant", "content": self.opening + words}
        given = style.turn("", THOUGHT if style.thought_key else "", [CALL], [call_id])
        copied, both = self._render([PROBE, turn, self._result(call_id)]), []
        for exchange in (turn, given):  # twice, because a template may let only turns with `tool_calls` follow a result
            both.append(self._render([PROBE, *[exchange, self._result(call_id)] * 2]))
        if copied is not None and copied.startswith(self.prompt) and None not in both:
            token = style.ends[0]
            at = copied.find(token, len(self.prompt))
            same = at >= 0 and _bare(copied[len(self.prompt) : at]) == _bare(words) and copied[at:] == text[end:]
            if same and _bare(str(both[0])) == _bare(str(both[1])):
                return style
        return replace(style, structured=True)

    def _end(self, style: TurnStyle, text: str, thought: str, start: int) -> tuple[int, str] | None:
        """Return where a turn that begins at `start` ends, and the token that ends it; None if it does not read as it
        should."""
        form = style.format
        assert form is not None
        last = text.find(RESULT, start)
        for at, token in _occurrences(text, self.tokens, start, last if last >= 0 else len(text)):
            if token in form.marks and token not in form.ends:
                continue
            turn = (self.opening if thought else "") + text[start:at]
            read = form.parse(style.with_known_marks(turn), _SCHEMAS)
            if read == (thought, "", [CALL]):
                return at, token
        return None

    def _marks_around(self, text: str) -> tuple[str, str] | None:
        """Return what the template writes before and after the thought of the probe, if these are marks."""
        before, _, after = text[len(self.prompt) :].partition(THOUGHT)
        opening, closing = _MARK.fullmatch(before.strip()), _MARK.match(after.lstrip())
        return (opening[0], closing[0]) if opening and closing else None

    def _styles(self, form: TextFormatName) -> Iterator[TurnStyle]:
        yield TurnStyle(form)
        yield TurnStyle(form, json_arguments=True)

    def _id(self, form: TextFormatName) -> str:
        call_id: Callable[[str, int], str] | None = TEXT_FORMATS[form].call_id
        return call_id(CALL.tool, 0) if call_id else _DEFAULT_ID

    def _result(self, call_id: str) -> ChatMessage:
        return {"role": "tool", "content": RESULT, "tool_call_id": call_id, "name": CALL.tool}

    def _render(self, messages: Sequence[ChatMessage]) -> str | None:
        key = json.dumps(messages)
        if key not in self._rendered:
            try:
                self._rendered[key] = self.template.render(messages, [TOOL])
            except TemplateExceeded:
                raise
            except RenderingError as error:
                self._rendered[key], self.refusal = None, str(error)
        return self._rendered[key]


def systems_of(template: Template) -> SystemMessages:
    """Return which system messages a template writes: `any`, only the `first` of a conversation, or `none`.

    Raises:
        TemplateExceeded: the template exceeded a bound.
    """
    first, second = ({"role": "system", "content": f"probe system {number}"} for number in (1, 2))
    answer = {"role": "assistant", "content": "answer"}

    def writes(messages: Sequence[ChatMessage]) -> bool:
        try:
            text = template.render(messages, NO_TOOLS)
        except TemplateExceeded:
            raise
        except RenderingError:
            return False
        return all(message["content"] in text for message in messages if message["role"] == "system")

    if writes([first, second, PROBE]) and writes([first, PROBE, answer, second, PROBE]):
        return "any"
    return "first" if writes([first, PROBE]) else "none"


def fold_systems(messages: Sequence[ChatMessage], systems: SystemMessages, *, start: bool) -> list[ChatMessage]:
    """Return messages in which those system messages that a template does not write are part of others.

    Several at the start become one. All others become a part of the user's message before or after them.

    Args:
        messages: the messages.
        systems: which ones the template writes.
        start: whether they are the beginning of a conversation.
    """
    if systems == "any":
        return list(messages)
    folded: list[ChatMessage] = []
    waiting: list[str] = []
    for message in messages:
        role, last = message["role"], folded[-1] if folded else None
        if role != "system":
            if waiting and role != "user":
                folded.append({"role": "user", "content": "\n\n".join(waiting)})
            elif waiting:
                message = {**message, "content": "\n\n".join([*waiting, message["content"]])}
            waiting = []
            folded.append(message)
        elif systems == "first" and start and last is None:
            folded.append(message)
        elif last is not None and (last["role"] == "user" or last["role"] == "system"):
            folded[-1] = {**last, "content": f"{last['content']}\n\n{message['content']}"}
        else:
            waiting.append(message["content"])
    return [*folded, {"role": "user", "content": "\n\n".join(waiting)}] if waiting else folded


def opening_of(prompt: str) -> str:
    """Return the end of a prompt from a mark that begins a thought, if nothing follows the mark; otherwise ""."""
    bare = prompt.rstrip()
    for mark in (THOUGHT_OPEN, *(opening for opening, _ in THOUGHT_MARKS)):
        if bare.endswith(mark):
            return prompt[len(bare) - len(mark) :]
    return ""


def message_ends(template: Template, tokens: Sequence[str]) -> tuple[str | None, str | None, str]:
    """Return the token that ends a turn that is a message: at the end of a conversation, and before a user's message;
    None if none does. The last of the three is what follows the turn instead."""
    closing = after(template, [], tokens, prompt=False)
    try:
        following = after(template, [PROBE], tokens, prompt=True)
    except TemplateExceeded:
        raise
    except RenderingError:
        following = closing
    return closing[0], following[0], closing[1] or following[1]


def after(
    template: Template, more: Sequence[ChatMessage], tokens: Sequence[str], *, prompt: bool
) -> tuple[str | None, str]:
    """Return the token after the message of a turn, and the text from there."""
    text = template.render([PROBE, {"role": "assistant", "content": "answer"}, *more], NO_TOOLS, prompt=prompt)
    if "answer" not in text:
        raise RenderingError(
            f"the chat template of {template.name} does not write a message that is a text: give another chat_template"
        )
    tail = text[text.rfind("answer") + len("answer") :].lstrip()
    # What closes a message within a turn, such as <|END_RESPONSE|>, does not end the turn.
    inner = {mark for form in TEXT_FORMATS.values() for mark in form.marks if mark.startswith("<|END_")}
    while (
        token := max((token for token in tokens if tail.startswith(token)), key=len, default=None)
    ) in inner and token:
        tail = tail[len(token) :].lstrip()
    return token, tail


def _occurrences(text: str, tokens: Sequence[str], start: int, stop: int) -> Iterator[tuple[int, str]]:
    """Yield the places of tokens in a part of a text, in order; the longest first where several begin."""
    places = [
        (at, -len(token), token) for token in set(tokens) if token.strip() for at in _places(text, token, start, stop)
    ]
    yield from ((at, token) for at, _, token in sorted(places))


def _places(text: str, token: str, start: int, stop: int) -> Iterator[int]:
    while 0 <= (at := text.find(token, start, stop + len(token))) <= stop:
        yield at
        start = at + 1


def _bare(text: str) -> str:
    return "".join(text.split())
