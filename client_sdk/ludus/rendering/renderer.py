r"""Conversion of conversations to token ids, with the model's own chat template, and parsing of sampled ids.

A rollout is one growing list of ids. The template is rendered as text each turn, but only the new part is encoded:

    prompt      <|im_start|>user\n…<|im_end|>\n<|im_start|>assistant\n       encoded once
    turn        <tool_call>…</tool_call><|im_end|>                           sampled, kept unchanged
    new part    \n<|im_start|>user\n…<|im_end|>\n<|im_start|>assistant\n     what the template puts after the turn

`Renderer.extend` returns the longer prompt only if the template has not changed any of the earlier text: it must begin
with the earlier prompt, followed by the turn in the policy's own words (white space may differ). If the template
rewrites earlier turns (Qwen3 and DeepSeek-R1 drop thoughts), the next prompt begins a new training sample.

A turn ends with a special token, across which tokenizers never merge. So the new part, encoded alone, has the same ids
as in the whole text.

Text from outside (prompts, observations, tool descriptions) cannot contain control tokens: if it spells one, such as
`<|im_end|>`, it is encoded as ordinary characters.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, ParamSpec, TypeVar

from ludus.protocol.actions import Call
from ludus.protocol.content import Message, text_of
from ludus.protocol.episodes import ToolSpec
from ludus.protocol.items import CallItem, Item, MalformedCall, OutputItem, text_message
from ludus.protocol.tool_calls import (
    MARKS,
    TEXT_FORMATS,
    THOUGHT_CLOSE,
    THOUGHT_OPEN,
    AnyCall,
    TextFormatName,
    detect_format,
    without_thought,
)
from ludus.rendering.encoding import text_encoder
from ludus.rendering.errors import RenderingError, TemplateExceeded
from ludus.rendering.template import NO_TOOLS, PROBE, ChatMessage, Rendered, Template

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from ludus.rendering.bounded import TemplateProcess

P = ParamSpec("P")
T = TypeVar("T")

_BREAK: Final = "\ufdd0"
"""A noncharacter inserted into control tokens that occur in text from outside. Text is split there before encoding."""
_CACHED: Final = 1_000


@dataclass(frozen=True, slots=True)
class ParsedTurn:
    """One turn of the policy, as text and parsed."""

    text: str
    """The text as it was sampled, with thoughts and calls, without the token that ended the turn."""
    items: tuple[Item, ...]
    """The parsed turn: a message without thoughts, calls, or both. Call ids are unique within the turn."""
    error: str | None = None
    """Why a tool call could not be parsed."""
    cut: bool = False
    """Whether the turn was cut off at its maximum length."""

    @property
    def calls(self) -> tuple[AnyCall, ...]:
        """The calls, well-formed or not."""
        return tuple(item.call for item in self.items if isinstance(item, CallItem))

    @property
    def message(self) -> str:
        """The text of the turn without calls and thoughts."""
        return _message(self.items)


class Renderer:
    """A tokenizer and its chat template.

    Args:
        tokenizer: the model's tokenizer.
        chat_template: Jinja text to use instead of the tokenizer's own template.
        tool_calls: the format in which the model writes calls; `auto` detects it from the template.
        options: further arguments of the template, such as `enable_thinking`.
        process: renders a template from outside; None to render in this process.

    Raises:
        RenderingError: there is no template, or it does not end an assistant's turn with a token.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        chat_template: str | None = None,
        tool_calls: Literal["auto"] | TextFormatName = "auto",
        options: Mapping[str, Any] | None = None,
        process: TemplateProcess | None = None,
    ) -> None:
        template = chat_template or tokenizer.chat_template
        self.tokenizer: Any = tokenizer
        self._name = str(tokenizer.name_or_path or type(tokenizer).__name__)
        if not isinstance(template, str):
            raise RenderingError(f"{self._name} has no chat template, or several: give one as chat_template")
        self._template = Template(
            tokenizer, template, options or {}, self._name, process.apply if process is not None else None
        )
        self._process = process
        name = detect_format(template) if tool_calls == "auto" else tool_calls
        self._format = TEXT_FORMATS[name] if name else None
        added = tokenizer.added_tokens_decoder.values()
        own = {*MARKS, THOUGHT_OPEN, THOUGHT_CLOSE}
        # Other added tokens are not control tokens: some tokenizers have them for line breaks or HTML.
        used = {
            t.content for t in added if t.special or t.content in own or (t.content in template and t.content.strip())
        }
        self._controls = {False: _any_of(used), True: _any_of(used - own)}
        self._definitions: dict[str, list[ChatMessage]] = {}
        self._words: dict[Any, str | None] = {}
        """Turns with calls as the template writes them, by their messages and calls."""
        self._known: dict[int, tuple[Sequence[ToolSpec], list[ChatMessage]]] = {}
        """Tools with their definitions, by their identity: each episode has tools of its own, which are equal."""
        self._ids_of = text_encoder(tokenizer)
        self._encoded = functools.lru_cache(_CACHED)(self._encode)
        self._opening, self._end = self._frame(t.content for t in added)
        ends = [self._end, tokenizer.eos_token, *(t.content for t in added if t.content == "<|eom_id|>")]
        self.stop: tuple[int, ...] = tuple(
            dict.fromkeys(self.tokenizer.convert_tokens_to_ids(token) for token in ends if token)
        )
        """Token ids that end an assistant's turn; the first is the template's own."""

    async def run(self, function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Call a function that renders, without stopping the event loop if the template is one from outside."""
        if self._process is None:
            return function(*args, **options)
        return await self._process.run(function, *args, **options)

    def prompt(self, items: Sequence[Item], tools: Sequence[ToolSpec]) -> list[int]:
        """Return the ids of a conversation up to the beginning of the assistant's next turn.

        Raises:
            RenderingError: see `text`.
        """
        return self.encode(self.text(self.messages(items), tools))

    def conversation(self, items: Sequence[Item], tools: Sequence[ToolSpec]) -> tuple[list[int], list[bool]]:
        """Return the ids of a recorded conversation, as in a rollout, and which of them are the assistant's.

        The ids end with the last turn. Turns with a call that cannot be parsed do not count as the assistant's.

        Raises:
            RenderingError: see `text`; or the template rewrites earlier turns, so that no single sequence of tokens is
                what the model sees turn by turn.
        """
        ids: list[int] = []
        mask: list[bool] = []
        messages: list[ChatMessage] = []
        turn: ChatMessage = {}
        rendered: Rendered | None = None
        new = 0
        """The number of messages at the end that were not rendered yet."""
        for own, group in _turns(items):
            if own:
                earlier = rendered
                if earlier is None:
                    rendered = self.rendered(messages, tools)
                    prompt: list[int] | None = self.encode(rendered.text)
                else:
                    rendered = self.continued(earlier, messages, new, tools)
                    prompt = self.extend(earlier.text, turn, rendered.text, ids)
                if prompt is None:
                    raise RenderingError(
                        f"the chat template of {self._name} writes earlier turns differently later on, so that a "
                        "recorded conversation cannot be learned as one sequence: give another chat_template"
                    )
                words = self._turn(group)
                # After a token, since some tokenizers put a space before the first word of a text.
                sampled = [*self.encode(self._end + self._escaped(words.text, own=True))[1:], self.stop[0]]
                mask += [False] * (len(prompt) - len(ids)) + [words.error is None] * len(sampled)
                ids = prompt + sampled
                [turn] = self.messages([words])
                messages.append(turn)
                new = 1
            else:
                observed = self.messages(group)
                messages += observed
                new += len(observed)
        return ids, mask

    def parse(self, ids: Sequence[int]) -> ParsedTurn:
        """Parse a sampled turn. Calls within thoughts do not count."""
        cut = not ids or ids[-1] not in self.stop
        kept = list(ids if cut else ids[:-1])
        return self._parsed(
            self.tokenizer.decode(kept, skip_special_tokens=False, clean_up_tokenization_spaces=False), cut
        )

    def messages(
        self, entries: Sequence[Item | ParsedTurn], called: Mapping[str, str] | None = None
    ) -> list[ChatMessage]:
        """Return a conversation as messages for the template. A turn is one message, in the policy's own words.

        Tool calls are part of the message's text, not in `tool_calls`: the template would write those in its own words,
        and some templates accept only one at once, or none.

        Args:
            entries: the conversation, or a part of it.
            called: the tools of calls in earlier parts, by the calls' ids.
        """
        messages: list[ChatMessage] = []
        names: dict[str, str] = dict(called) if called else {}
        for own, group in _turns(entries):
            if own:
                turn = self._turn(group)
                names |= {item.call_id: item.call.tool for item in turn.items if isinstance(item, CallItem)}
                messages.append({"role": "assistant", "content": self._escaped(turn.text, own=True)})
                continue
            for item in group:
                if isinstance(item, OutputItem):
                    called = {"tool_call_id": item.call_id, "name": names.get(item.call_id, "")}
                    shown = {"role": "tool", "content": text_of(item.content), **called}
                    messages.append({key: self._escaped(value) for key, value in shown.items()})
                elif isinstance(item, Message):
                    messages.append({"role": item.role, "content": self._escaped(text_of(item.content))})
        return messages

    def text(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> str:
        """Render a conversation with the template, up to the beginning of the assistant's next turn.

        Raises:
            RenderingError: the template refuses the conversation or leaves out a tool, or the model cannot call a tool.
        """
        return self.rendered(messages, tools).text

    def rendered(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> Rendered:
        """Return `text` in the form for `continued`.

        Raises:
            RenderingError: see `text`.
        """
        return self._template.whole(messages, self._defined(tools))

    def continued(
        self, earlier: Rendered, messages: Sequence[ChatMessage], new: int, tools: Sequence[ToolSpec]
    ) -> Rendered:
        """Return `rendered` of a conversation that continues a rendered one. Render only its end if the template writes
        that regardless of what came before; see `ludus.rendering.template`.

        Args:
            earlier: the conversation before its last `new` messages.
            messages: the whole conversation.
            new: the number of messages at its end, of which the first is a turn of the assistant.
            tools: see `text`.

        Raises:
            RenderingError: see `text`.
        """
        return self._template.continued(earlier, messages, new, self._defined(tools))

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text from `text`, or of a part of it that begins with a special token."""
        # Cached, because the episodes of a group share a prompt and many observations are equal.
        return list(self._encoded(text) if len(text) < 10_000 else self._encode(text))

    def extend(self, earlier: str, turn: ChatMessage, text: str, ids: Sequence[int]) -> list[int] | None:
        """Return the ids of a prompt that continues after the policy's last turn.

        Args:
            earlier: the text of the prompt that the turn answered.
            turn: the message of the turn.
            text: the text of the next prompt.
            ids: the ids of `earlier` and the turn as it was sampled, with or without its end token.

        Returns:
            `ids`, the end token of the turn if it is missing, and the ids of the rest of `text`. A turn that ended with
            another token of `stop` keeps that token. None if `text` does not begin with `earlier` and the turn.
        """
        end = text.find(self._end, len(earlier))
        if end < 0 or not text.startswith(earlier) or not _same(text[len(earlier) : end], turn["content"]):
            return None
        new = self.encode(text[end:])
        return [*ids, *(new[1:] if ids[-1] in self.stop else new)]

    def between(self, turn: ParsedTurn, observations: Sequence[Item], ids: Sequence[int]) -> list[int]:
        """Return the ids between a sampled turn and the assistant's next one, whatever came before.

        For trainers that keep a rollout as one list of ids: earlier turns stay as they were sampled, even if the
        template would write them differently later on.

        Args:
            turn: the turn, with its calls under the ids that the observations name.
            observations: what followed it.
            ids: the ids of the turn; if its end token is missing, it is the first of the result.

        Raises:
            RenderingError: see `text`; or the template rewrites the prompt after a turn.
        """
        messages = [PROBE, *self.messages([turn, *observations])]
        text, before = self._template.render(messages, []), self._template.render([PROBE], [], prompt=False)
        end = text.find(self._end, len(before))
        if end < 0 or not text.startswith(before):
            raise RenderingError(f"the chat template of {self._name} rewrites the prompt after a turn: give another")
        new = self.encode(text[end:])
        return new[1:] if ids and ids[-1] in self.stop else new

    def _turn(self, group: Sequence[Item | ParsedTurn]) -> ParsedTurn:
        """Return one turn of the assistant. A recorded turn gets the text that the template writes for it."""
        if isinstance(group[0], ParsedTurn):
            return group[0]
        items = tuple(item for item in group if not isinstance(item, ParsedTurn))
        calls = [item.call for item in items if isinstance(item, CallItem)]
        problems = [call.problem for call in calls if isinstance(call, MalformedCall)]
        written = self._format.write(calls) if self._format and calls else ""
        own = "\n".join(part for part in (_message(items), written) if part)
        words = None if problems or not calls else self._template_words(_message(items), calls)
        return ParsedTurn(words or own, items, problems[0] if problems else None)

    def _template_words(self, message: str, calls: Sequence[AnyCall]) -> str | None:
        """Return a turn with calls as the template writes it; None if that text does not parse as the same turn."""
        key = (message, repr(calls))
        if key not in self._words:
            if len(self._words) >= _CACHED:
                self._words.clear()
            self._words[key] = self._write_calls(message, calls)
        return self._words[key]

    def _write_calls(self, message: str, calls: Sequence[AnyCall]) -> str | None:
        functions = [{"name": call.tool, "arguments": call.arguments} for call in calls if isinstance(call, Call)]
        tool_calls = [{"type": "function", "id": "probe0000", "function": function} for function in functions]
        turn = {"role": "assistant", "content": message, "tool_calls": tool_calls}
        try:
            text = self._template.render([PROBE, turn, PROBE], NO_TOOLS)
        except TemplateExceeded:
            raise
        except RenderingError:
            return None
        earlier = self._template.probe
        words = text[len(earlier) : text.find(self._end, len(earlier))].strip()
        read = self._parsed(words, cut=False)
        same = text.startswith(earlier) and read.message == message.strip() and list(read.calls) == list(calls)
        return words if same else None

    def _parsed(self, text: str, cut: bool) -> ParsedTurn:
        spoken = without_thought(self._opening + text)
        message, calls = self._format.read(spoken) if self._format else (spoken.strip(), [])
        if cut and calls and isinstance(last := calls[-1], MalformedCall):
            calls[-1] = replace(last, problem=f"{last.problem} (the turn was cut off for its length)")
        problems = [call.problem for call in calls if isinstance(call, MalformedCall)]
        items: list[Item] = [text_message("assistant", message)] if message or not calls else []
        items += [CallItem(f"call_{number}", call) for number, call in enumerate(calls, start=1)]
        return ParsedTurn(text, tuple(items), problems[0] if problems else None, cut)

    def _defined(self, tools: Sequence[ToolSpec]) -> list[ChatMessage]:
        """Return the tools in the form for the template, checked at first use. Equal tools give the same object."""
        if not tools:
            return NO_TOOLS
        known = self._known.get(id(tools))
        if known is not None and known[0] is tools:
            return known[1]
        key = repr([(spec.name, spec.description, spec.input_schema) for spec in tools])
        if key not in self._definitions:
            definitions = [_definition(spec, self._escaped) for spec in tools]
            text = self._template.render([PROBE], definitions)
            for spec in tools:
                if self._escaped(spec.name) not in text:
                    raise RenderingError(
                        f"the chat template of {self._name} leaves out the tool {spec.name}: give another chat_template"
                    )
                self._check_callable(spec.name)
            if len(self._definitions) >= _CACHED:
                self._definitions.clear()
                self._known.clear()
                self._template.forget()
            self._definitions[key] = definitions
        if len(self._known) >= _CACHED:
            self._known.clear()
        if isinstance(tools, tuple):  # a list may change
            self._known[id(tools)] = (tools, self._definitions[key])
        return self._definitions[key]

    def _check_callable(self, tool: str) -> None:
        if self._format is None:
            raise RenderingError(f"cannot tell from the chat template how {self._name} calls tools: give tool_calls")
        call = Call(tool, {"probe": 1})
        if self._format.read(self._format.write([call]))[1] != [call]:
            raise RenderingError(
                f"{self._name} cannot call the tool {tool}: its format of tool calls does not allow such names"
            )

    def _encode(self, text: str) -> tuple[int, ...]:
        first, *others = text.split(_BREAK)
        ids = self._ids_of(first)
        for part in others:
            ids += self._ids_of(self._end + part)[1:]  # see `conversation`
        return tuple(ids)

    def _escaped(self, text: str, *, own: bool = False) -> str:
        """Return text with its control tokens broken. In the policy's own text, marks of calls and thoughts stay."""
        return self._controls[own].sub(lambda found: found[0][0] + _BREAK + found[0][1:], text)

    def _frame(self, tokens: Iterable[str]) -> tuple[str, str]:
        """Return `<think>` if every turn begins inside a thought (otherwise ""), and the token that ends a turn."""
        text = self._template.render([PROBE, {"role": "assistant", "content": "answer"}], [], prompt=False)
        tail = text[text.rfind("answer") + len("answer") :].lstrip()
        end = max((token for token in tokens if tail.startswith(token)), key=len, default=None)
        if end is None:
            raise RenderingError(
                f"the chat template of {self._name} ends an assistant's turn with {tail[:20]!r}, which is not a "
                "single token, so that turns cannot be separated: give another chat_template"
            )
        inside = self._template.probe.rstrip().endswith(THOUGHT_OPEN)
        return THOUGHT_OPEN if inside else "", end


def _turns(entries: Sequence[Item | ParsedTurn]) -> Iterator[tuple[bool, list[Item | ParsedTurn]]]:
    """Yield the parts of a conversation: the assistant's turns (True), and the entries between them (False)."""
    group: list[Item | ParsedTurn] = []
    before = False
    for entry in entries:
        own = isinstance(entry, ParsedTurn | CallItem) or (isinstance(entry, Message) and entry.role == "assistant")
        if group and own != before:
            yield before, group
            group = []
        group.append(entry)
        before = own
    if group:
        yield before, group


def _message(items: Iterable[Item]) -> str:
    return "\n".join(text_of(item.content) for item in items if isinstance(item, Message))


def _same(written: str, said: str) -> bool:
    """Return whether two texts are equal except for white space, which templates strip and add."""
    return written == said or "".join(written.split()) == "".join(said.split())


def _definition(spec: ToolSpec, escaped: Callable[[str], str]) -> ChatMessage:
    def walk(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {escaped(str(key)): walk(entry) for key, entry in value.items()}
        if isinstance(value, (list, tuple)):
            return [walk(entry) for entry in value]
        return escaped(value) if isinstance(value, str) else value

    parameters = {"type": "object", "properties": {}, **spec.input_schema}
    function = {"name": spec.name, "description": spec.description, "parameters": parameters}
    return {"type": "function", "function": walk(function)}


def _any_of(tokens: Iterable[str]) -> re.Pattern[str]:
    longest = sorted(tokens, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest)) or r"(?!)")
