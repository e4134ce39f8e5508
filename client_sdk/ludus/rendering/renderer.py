r"""Conversion of conversations to token ids, with the model's own chat template, and parsing of sampled ids.

A rollout is one growing list of ids. The template is rendered as text each turn, but only the new part is encoded:

    prompt      <|im_start|>user\n…<|im_end|>\n<|im_start|>assistant\n       encoded once
    turn        <tool_call>…</tool_call><|im_end|>                           sampled, kept unchanged
    new part    \n<|im_start|>user\n…<|im_end|>\n<|im_start|>assistant\n     what the template puts after the turn

`Renderer.extend` returns the longer prompt only if the template has not changed any of the earlier text: it must begin
with the earlier prompt, followed by the turn in the policy's own words (white space may differ). If the template
rewrites earlier turns (Qwen3 and DeepSeek-R1 drop thoughts), the next prompt begins a new training sample. Where the
template writes turns from fields (`ludus.rendering.round_trip`), its text must read as the same thought, message and
calls instead.

A turn ends with a special token, across which tokenizers never merge. So the new part, encoded alone, has the same ids
as in the whole text.

Text from outside (prompts, observations, tool descriptions) cannot contain control tokens: if it spells one, such as
`<|im_end|>`, it is encoded as ordinary characters.
"""

from __future__ import annotations

import functools
import json
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, ParamSpec, TypeVar

from ludus.forms.text import NO_SCHEMAS, AnyCall, Schemas, schemas_of
from ludus.forms.tool_calls import THOUGHT_CLOSE, THOUGHT_MARKS, THOUGHT_OPEN, TextFormatName, split_thought
from ludus.protocol.actions import Call
from ludus.protocol.content import Content, ImageBlock, Message, text_of
from ludus.protocol.episodes import ToolSpec
from ludus.protocol.items import CallItem, Item, MalformedCall, OutputItem, text_message
from ludus.rendering.encoding import text_encoder
from ludus.rendering.errors import RenderingError, TemplateExceeded
from ludus.rendering.round_trip import (
    SystemMessages,
    TurnStyle,
    fold_systems,
    message_ends,
    opening_of,
    prove,
    systems_of,
)
from ludus.rendering.template import NO_TOOLS, PROBE, TELLS_TIME, ChatMessage, Rendered, Template

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from ludus.rendering.bounded import TemplateProcess

P = ParamSpec("P")
T = TypeVar("T")

_BREAK: Final = "\ufdd0"
"""A noncharacter inserted into control tokens that occur in text from outside. Text is split there before encoding."""
_CACHED: Final = 1_000
_LONG: Final = 10_000
_CACHED_LONG: Final = 32
_LONGEST: Final = 1_000_000
"""Of long texts few are kept, as arrays of numbers, and of the longest none. Agent programs begin each episode of a
group with the same 70,000 characters."""


class Called(NamedTuple):
    """A call as its result names it."""

    tool: str
    call_id: str
    """The id of the call as the model writes it."""


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
    thought: str = ""
    """The thoughts, without their marks."""
    written_ids: tuple[str, ...] = ()
    """The ids of the calls as the model writes them, which results must name; empty if it writes none."""

    @property
    def calls(self) -> tuple[AnyCall, ...]:
        """The calls, well-formed or not."""
        return tuple(item.call for item in self.items if isinstance(item, CallItem))

    @property
    def message(self) -> str:
        """The text of the turn without calls and thoughts."""
        return _message(self.items)

    @property
    def called(self) -> dict[str, Called]:
        """What the template writes about the calls in their results, by the calls' ids."""
        calls = [item for item in self.items if isinstance(item, CallItem)]
        ids = self.written_ids if len(self.written_ids) == len(calls) else [item.call_id for item in calls]
        return {item.call_id: Called(item.call.tool, own) for item, own in zip(calls, ids, strict=True)}


class Renderer:
    """A tokenizer and its chat template.

    Args:
        tokenizer: the model's tokenizer.
        chat_template: Jinja text to use instead of the tokenizer's own template.
        tool_calls: the format in which the model writes calls; `auto` finds the one that the template's own writing
            proves.
        options: further arguments of the template, such as `enable_thinking`.
        process: renders a template from outside; None to render in this process.
        clock: the time that the template gets whenever it asks, so that a prompt does not change during an episode;
            that of `process`, or now, when None.

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
        clock: datetime | None = None,
    ) -> None:
        template = chat_template or tokenizer.chat_template
        self.tokenizer: Any = tokenizer
        self._name = str(tokenizer.name_or_path or type(tokenizer).__name__)
        if not isinstance(template, str):
            raise RenderingError(f"{self._name} has no chat template, or several: give one as chat_template")
        self.clock: datetime = process.clock if process is not None else clock or datetime.now()
        """The time that the template gets."""
        self.tells_time: bool = TELLS_TIME in template
        """Whether the template asks for the time."""
        apply = process.apply if process is not None else None
        self._template = Template(tokenizer, template, options or {}, self._name, apply, self.clock)
        self._process = process
        added = tokenizer.added_tokens_decoder.values()
        tokens = [token.content for token in added]
        closing, following, tail = message_ends(self._template, tokens)
        end = closing or following
        if end is None:
            raise RenderingError(
                f"the chat template of {self._name} ends an assistant's turn with {tail[:20]!r}, which is not a "
                "single token, so that turns cannot be separated: give another chat_template"
            )
        self._end = end
        self._opening = opening_of(self._template.probe)
        style = prove(self._template, self._name, tokens, None if tool_calls == "auto" else tool_calls, self._opening)
        self.style: TurnStyle = replace(
            style, ends=tuple(dict.fromkeys(filter(None, (*style.ends, end, following)))), roles_end=closing is None
        )
        """How the template writes turns."""
        self._format = style.format
        own = {THOUGHT_OPEN, THOUGHT_CLOSE, *(mark for pair in THOUGHT_MARKS for mark in pair)}
        own |= set(self._format.marks) if self._format else set()
        # Other added tokens are not control tokens: some tokenizers have them for line breaks or HTML.
        used = {
            t.content for t in added if t.special or t.content in own or (t.content in template and t.content.strip())
        }
        self._controls = {False: _any_of(used), True: _any_of(used - (own - set(self.style.ends)))}
        self._ends = _any_of(self.style.ends)
        self._definitions: dict[str, list[ChatMessage]] = {}
        self._words: dict[Any, str | None] = {}
        """Turns as the template writes them, by their messages and calls."""
        self._known: dict[int, tuple[Sequence[ToolSpec], list[ChatMessage]]] = {}
        """Tools with their definitions, by their identity: each episode has tools of its own, which are equal."""
        self._ids_of = text_encoder(tokenizer)
        self._encoded = functools.lru_cache(_CACHED)(self._encode)
        self._encoded_long = functools.lru_cache(_CACHED_LONG)(lambda text: array("I", self._encode(text)))
        others = [token for token in (self._format.ends if self._format else ()) if token in tokens]
        # What ends a message before another one may stand within a turn, such as <|end|> after a thought of gpt-oss.
        ends = [end, *style.ends, *others, *([following] if closing is None else []), tokenizer.eos_token]
        self.stop: tuple[int, ...] = tuple(
            dict.fromkeys(self.tokenizer.convert_tokens_to_ids(token) for token in ends if token)
        )
        """Token ids that end an assistant's turn; the first is the template's own."""
        self.saw_image = False
        """Whether a prompt had an image, which becomes text: the model sees `[image: image/png]` in its place."""
        self._plain = self._writes_plainly()
        self._systems: SystemMessages = systems_of(self._template)

    def require_tools(self, tools: Sequence[ToolSpec] | None = None) -> None:
        """Check that the model can call tools with this template.

        Args:
            tools: the tools; when None, tools in general.

        Raises:
            RenderingError: the template leaves out tools or their results, no form of calls is proved, or the form does
                not allow the name of a tool.
        """
        if tools is None and self.style.problem is not None:
            raise RenderingError(self.style.problem)
        self._defined(tools or ())

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
                last = self.style.ends[0] if words.calls else self._end
                sampled = [
                    *self.encode(self._end + self._escaped(words.text, own=True))[1:],
                    self.tokenizer.convert_tokens_to_ids(last),
                ]
                mask += [False] * (len(prompt) - len(ids)) + [words.error is None] * len(sampled)
                ids = prompt + sampled
                [turn] = self.messages([words])
                messages.append(turn)
                new = 1
            else:
                observed = self.messages(group, start=not messages)
                messages += observed
                new += len(observed)
        return ids, mask

    def parse(self, ids: Sequence[int], tools: Sequence[ToolSpec] = ()) -> ParsedTurn:
        """Parse a sampled turn. Calls within thoughts do not count.

        Args:
            ids: the ids.
            tools: the tools that were offered, whose schemas say which arguments are texts.
        """
        cut = not ids or ids[-1] not in self.stop
        kept = list(ids if cut else ids[:-1])
        return self._parsed(
            self.tokenizer.decode(kept, skip_special_tokens=False, clean_up_tokenization_spaces=False),
            cut,
            {spec.name: spec.input_schema for spec in tools},
        )

    def messages(
        self,
        entries: Sequence[Item | ParsedTurn],
        called: Mapping[str, Called] | None = None,
        *,
        start: bool = True,
    ) -> list[ChatMessage]:
        """Return a conversation as messages for the template. A turn is one message.

        Where the template copies turns, a turn is in the policy's own words: the template would write its calls in its
        own words, and some templates accept only one at once, or none. Otherwise its parts are fields.
        System messages that the template does not write become a part of others.

        Args:
            entries: the conversation, or a part of it.
            called: the calls in earlier parts, by their ids.
            start: whether the entries are the beginning of the conversation.
        """
        messages: list[ChatMessage] = []
        names: dict[str, Called] = dict(called) if called else {}
        for own, group in _turns(entries):
            if own:
                turn = self._turn(group, len(names))
                names |= turn.called
                messages.append(self._turn_message(turn))
                continue
            for item in group:
                if isinstance(item, OutputItem):
                    call = names.get(item.call_id, Called("", item.call_id))
                    fields = {"role": "tool", "content": self._text_of(item.content), "tool_call_id": call.call_id}
                    fields["name"] = call.tool
                    messages.append({key: self._escaped(value) for key, value in fields.items()})
                elif isinstance(item, Message):
                    messages.append({"role": item.role, "content": self._escaped(self._text_of(item.content))})
        return fold_systems(messages, self._systems, start=start)

    def _text_of(self, content: Sequence[Content]) -> str:
        self.saw_image = self.saw_image or any(isinstance(block, ImageBlock) for block in content)
        return text_of(content)

    def _turn_message(self, turn: ParsedTurn) -> ChatMessage:
        """Return a turn as a message for the template."""
        if not self.style.structured or self._format is None:
            return {"role": "assistant", "content": self._escaped(self._opening + turn.text, own=True)}
        message, thought = turn.message, turn.thought
        if thought and self.style.thought_key is None:
            message, thought = self._format.read(self._opening + turn.text)[0], ""
        calls = [
            Call(self._escaped(call.tool) or "unknown", _walk(call.arguments, self._escaped))
            if isinstance(call, Call) else Call(self._escaped(call.tool) or "unknown")
            for call in turn.calls
        ]  # fmt: skip
        ids = [self._escaped(named.call_id) for named in turn.called.values()]
        return self.style.turn(self._escaped(message), self._escaped(thought), calls, ids)

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
        if len(text) < _LONG:
            return list(self._encoded(text))
        return self._encoded_long(text).tolist() if len(text) < _LONGEST else list(self._encode(text))

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
        if not text.startswith(earlier) or (end := self._turn_end(text, len(earlier), turn)) is None:
            return None
        return [*ids, *self._after_turn(text[end:], ids)]

    def _turn_end(self, text: str, start: int, turn: ChatMessage) -> int | None:
        """Return where a turn ends that begins at `start`; None if the template has written it differently."""
        for end in self._ends.finditer(text, start):
            written = text[start : end.start()]
            if self._wrote(written, turn):
                return end.start()
            if not self.style.structured:  # a copied turn cannot contain such a token
                return None
        return None

    def _wrote(self, written: str, turn: ChatMessage) -> bool:
        """Return whether a text of the template is a turn that it was given."""
        if not self.style.structured or self._format is None:
            return _same(self._opening + written, turn["content"])
        functions = [call["function"] for call in turn.get("tool_calls", ())]
        calls = [
            Call(function["name"], json.loads(given) if isinstance(given := function["arguments"], str) else given)
            for function in functions
        ]
        thought, message, read = self._format.parse(
            self.style.with_known_marks(self._opening + written), schemas_of(calls)
        )
        if self.style.thought_key is None:
            thought, message = "", self._format.read(self._opening + written)[0]
        given_thought = turn.get(self.style.thought_key, "") if self.style.thought_key else ""
        return read == calls and _same(thought, given_thought) and _same(message, turn["content"])

    def _after_turn(self, text: str, ids: Sequence[int]) -> list[int]:
        """Return the ids of a text that begins with the token that ends a turn, after the ids of the turn.

        A turn keeps the token of `stop` with which it was sampled. But where the next role's own token ends a turn,
        another one would leave the next message without its role.
        """
        new = self.encode(text)
        if not ids or ids[-1] not in self.stop or (self.style.roles_end and ids[-1] != new[0]):
            return new
        return new[1:]

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
        probe = self._template.probe
        end = self._turn_end(text, len(probe), messages[1]) if text.startswith(probe) else None
        if end is None and (last := self._ends.search(text, len(before))) is not None and not self.style.structured:
            end = last.start()
        if end is None or not text.startswith(before):
            raise RenderingError(f"the chat template of {self._name} rewrites the prompt after a turn: give another")
        return self._after_turn(text[end:], ids)

    def _turn(self, group: Sequence[Item | ParsedTurn], before: int = 0) -> ParsedTurn:
        """Return one turn of the assistant. A recorded turn gets the text that the template writes for it.

        Args:
            group: a parsed turn, or the items of a recorded one.
            before: the number of calls in the conversation before it.
        """
        if isinstance(group[0], ParsedTurn):
            return group[0]
        items = tuple(item for item in group if not isinstance(item, ParsedTurn))
        calls = [item.call for item in items if isinstance(item, CallItem)]
        problems = [call.problem for call in calls if isinstance(call, MalformedCall)]
        ids = self._written_ids(calls, "", before)
        words = None if problems or (self._plain and not calls) else self._template_words(_message(items), calls, ids)
        problem = problems[0] if problems else None
        thought = ""
        if words is None:
            written = self._format.write(calls) if self._format and calls else ""
            thought, spoken = split_thought(_message(items))
            message = spoken if self.style.structured else _message(items)
            words = "\n".join(part for part in (message, written) if part)
            if self._opening:  # the prompt ends within a thought, which a recorded turn has none of
                mark = self._opening.strip()
                words = words.removeprefix(mark) if words.startswith(mark) else f"\n{THOUGHT_CLOSE}\n\n{words}"
        return ParsedTurn(words, items, problem, thought=thought, written_ids=ids)

    def _written_ids(self, calls: Sequence[AnyCall], text: str, before: int = 0) -> tuple[str, ...]:
        """Return the ids of calls as the model writes them: those in a text, or new ones; none if it writes no ids."""
        form = self._format
        if form is None or form.call_id is None:
            return ()
        written = form.ids.findall(text) if form.ids is not None else []
        if len(written) == len(calls):
            return tuple(written)
        return tuple(form.call_id(call.tool, before + number) for number, call in enumerate(calls))

    def _template_words(self, message: str, calls: Sequence[AnyCall], ids: Sequence[str]) -> str | None:
        """Return a recorded turn as the template writes it; None if that text does not parse as the same turn."""
        key = (message, repr(calls), tuple(ids))
        if key not in self._words:
            if len(self._words) >= _CACHED:
                self._words.clear()
            self._words[key] = self._write_turn(message, calls, ids or [f"probe{n:04d}" for n in range(len(calls))])
        return self._words[key]

    def _write_turn(self, message: str, calls: Sequence[AnyCall], ids: Sequence[str]) -> str | None:
        turn = self.style.turn(message, "", calls, ids)
        results = [
            {"role": "tool", "content": "probe", "tool_call_id": call_id, "name": call.tool}
            for call, call_id in zip(calls, ids, strict=True)
        ]
        try:
            text = self._template.render([PROBE, turn, *(results or [PROBE])], NO_TOOLS)
        except TemplateExceeded:
            raise
        except RenderingError:
            return None
        earlier = self._template.probe
        if not text.startswith(earlier):
            return None
        schemas = schemas_of(calls)
        for end in self._ends.finditer(text, len(earlier)):
            words = text[len(earlier) : end.start()]
            read = self._parsed(words, cut=False, schemas=schemas)
            if not read.thought and read.message == message.strip() and list(read.calls) == list(calls):
                return words
        return None

    def _writes_plainly(self) -> bool:
        """Return whether a turn that is a message is nothing but the message."""
        words = self._write_turn("answer", [], [])
        return words is None or words.strip() == "answer"

    def _parsed(self, text: str, cut: bool, schemas: Schemas = NO_SCHEMAS) -> ParsedTurn:
        turn = self.style.with_known_marks(self._opening + text)
        if self._format is None:
            thought, spoken = split_thought(turn)
            message, calls = spoken.strip(), list[AnyCall]()
        else:
            thought, message, calls = self._format.parse(turn, schemas)
        if cut and calls and isinstance(last := calls[-1], MalformedCall):
            calls[-1] = replace(last, problem=f"{last.problem} (the turn was cut off for its length)")
        problems = [call.problem for call in calls if isinstance(call, MalformedCall)]
        items: list[Item] = [text_message("assistant", message)] if message or not calls else []
        items += [CallItem(f"call_{number}", call) for number, call in enumerate(calls, start=1)]
        ids = self._written_ids(calls, text)
        return ParsedTurn(text, tuple(items), problems[0] if problems else None, cut, thought, ids)

    def _defined(self, tools: Sequence[ToolSpec]) -> list[ChatMessage]:
        """Return the tools in the form for the template, checked at first use. Equal tools give the same object."""
        if not tools:
            return NO_TOOLS
        entry = self._known.get(id(tools))
        if entry is not None and entry[0] is tools:
            return entry[1]
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
        self.require_tools()
        assert self._format is not None
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
        return self._controls[own].sub(lambda token: token[0][0] + _BREAK + token[0][1:], text)


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


def _same(written: str, original: str) -> bool:
    """Return whether two texts are equal except for white space, which templates strip and add."""
    return written == original or "".join(written.split()) == "".join(original.split())


def _definition(spec: ToolSpec, escaped: Callable[[str], str]) -> ChatMessage:
    parameters = {"type": "object", "properties": {}, **spec.input_schema}
    function = {"name": spec.name, "description": spec.description, "parameters": parameters}
    return {"type": "function", "function": _walk(function, escaped)}


def _walk(value: Any, escaped: Callable[[str], str]) -> Any:
    """Return a JSON value with all its texts escaped."""
    if isinstance(value, Mapping):
        return {escaped(str(key)): _walk(entry, escaped) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_walk(entry, escaped) for entry in value]
    return escaped(value) if isinstance(value, str) else value


def _any_of(tokens: Iterable[str]) -> re.Pattern[str]:
    longest = sorted(tokens, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest)) or r"(?!)")
