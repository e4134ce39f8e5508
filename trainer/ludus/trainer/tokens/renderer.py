"""From conversations to token ids by the model's own chat template, and from sampled ids to what they say.

A rollout is one growing list of ids. The template is rendered as text each turn, but only what is new is encoded:

    prompt     <|im_start|>user\n…<|im_end|>\n<|im_start|>assistant\n        encoded once
    turn       <tool_call>…</tool_call><|im_end|>                            sampled; stays as it is
    extension  \n<|im_start|>user\n…<|im_end|>\n<|im_start|>assistant\n      what the template puts after the turn

`Renderer.extend` gives the extension only if the template still writes everything before it as it did: the earlier
prompt word for word, then the sampled turn, up to white space. Templates that write earlier turns differently later on
(Qwen3 and DeepSeek-R1 drop thoughts) make it None, and the next prompt begins a new training sample.

A turn ends with a token of its own, which the tokenizer never merges with what stands beside it. So the extension has
the ids it would have in the whole text.

Text from outside (prompts, observations, tool descriptions) cannot contain control tokens: where it spells one, such as
`<|im_end|>`, it is encoded as ordinary characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from ludus.client.items import CallItem, Item, MalformedCall, OutputItem, text_message
from ludus.protocol.content import Message, text_of
from ludus.protocol.episodes import ToolSpec
from ludus.trainer.errors import ModelError
from ludus.trainer.tokens.tool_calls import FORMATS, MARKS, FormatName, tell_format

THOUGHT: Final = ("<think>", "</think>")

_BREAK: Final = "\ufdd0"
"""A noncharacter, put into the spelling of a control token in text from outside; the text is encoded in parts there."""
_PROBE: Final = "probe"


@dataclass(frozen=True, slots=True)
class ParsedTurn:
    """What the policy said in one turn. In a conversation it stands for its items, in the policy's own words."""

    text: str
    """The words: thoughts and calls as they were written, without the token that ended the turn."""
    items: tuple[Item, ...]
    """What they mean: a message without thoughts, calls, or both."""
    error: str | None = None
    """Why a tool call could not be read."""
    cut: bool = False
    """Whether the turn has no end: it was as long as it may be."""

    @property
    def calls(self) -> bool:
        """Whether there are calls, readable or not."""
        return any(isinstance(item, CallItem) for item in self.items)

    @property
    def said(self) -> str:
        """The message."""
        return "\n".join(text_of(item.content) for item in self.items if isinstance(item, Message))


Entry = Item | ParsedTurn
"""One entry of a conversation with sampled turns."""


class Renderer:
    """A tokenizer and its chat template.

    Args:
        tokenizer: of the model.
        chat_template: Jinja text in place of the tokenizer's own.
        tool_calls: how the model writes calls; `auto` tells it from the template.

    Raises:
        ModelError: there is no template, or it does not end an assistant's turn with a token.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        chat_template: str | None = None,
        tool_calls: Literal["auto"] | FormatName = "auto",
    ) -> None:
        template = chat_template or tokenizer.chat_template
        if not isinstance(template, str):
            raise ModelError(f"{_name(tokenizer)} has no chat template (or several): set model.chat_template to a file")
        self.tokenizer: Any = tokenizer
        self._template = template
        name = tell_format(template) if tool_calls == "auto" else tool_calls
        self._format = FORMATS[name] if name else None
        self._pythonic = name == "pythonic"
        added = tokenizer.added_tokens_decoder
        control = [t.content for t in added.values() if t.special or (t.content in template and t.content.strip("\n "))]
        self._control = _any_of(control)
        self._control_in_turns = _any_of(set(control) - {*MARKS, *THOUGHT})
        self._checked: tuple[ToolSpec, ...] = ()
        self._end, self._opening = self._probe({t.content: i for i, t in added.items()})
        others = [self.tokenizer.eos_token_id, *(i for i, t in added.items() if t.content == "<|eom_id|>")]
        first = self.tokenizer.convert_tokens_to_ids(self._end)
        self.stop: tuple[int, ...] = tuple(dict.fromkeys([first, *(i for i in others if i is not None)]))
        """Token ids that end an assistant's turn; the first is the template's own."""

    def prompt(self, items: Sequence[Entry], tools: Sequence[ToolSpec]) -> list[int]:
        """The ids of a conversation up to where the assistant's next turn begins.

        Raises:
            ModelError: the template refuses the conversation, ignores the tools, or the model cannot call one of them.
        """
        return self._encode(self._text(items, tools))

    def extend(
        self, before: Sequence[Entry], after: Sequence[Entry], tools: Sequence[ToolSpec], ids: Sequence[int]
    ) -> list[int] | None:
        """What follows `ids` in the prompt of the next turn.

        Args:
            before: a conversation that ends with the turn that was sampled last.
            after: the same, with what came after the turn.
            tools: the tools.
            ids: the prompt of that turn, and the turn as it was sampled, with or without its end.

        Returns:
            The end of the turn if it lacks one, then observations, then what begins the next turn. None when the
            template writes the conversation before that differently now.

        Raises:
            ModelError: see `prompt`.
        """
        messages = self._messages(before)
        earlier = self._render(messages[:-1], tools)
        text = self._text(after, tools)
        end = text.find(self._end, len(earlier))
        if not text.startswith(earlier) or end < 0 or not _same(text[len(earlier) : end], messages[-1]["content"]):
            return None
        follows = self._encode(text[end:])
        return follows[1:] if ids and ids[-1] in self.stop else follows

    def conversation(self, items: Sequence[Entry], tools: Sequence[ToolSpec]) -> tuple[list[int], list[bool]]:
        """A recorded conversation as a rollout would have it, and which of its ids are the assistant's to learn.

        Turns with calls that cannot be read are not to be learned, and nothing follows the last turn.

        Raises:
            ModelError: see `prompt`; or the template writes earlier turns differently later on.
        """
        turns = list(_grouped(items))
        ids: list[int] = []
        mask: list[bool] = []
        past: list[Entry] = []
        for position, (turn, recorded) in enumerate(turns):
            if not turn:
                continue
            before = [entry for _, entries in turns[:position] for entry in entries]
            context = self._following(past, before, tools, ids)
            words = self.turn(recorded)
            sampled = [*self._encode(self._end + self._escaped(words.text, turn=True))[1:], self.stop[0]]
            ids += context + sampled
            mask += [False] * len(context) + [words.error is None] * len(sampled)
            past = [*before, *recorded]
        return ids, mask

    def parse(self, ids: Sequence[int]) -> ParsedTurn:
        """What a sampled turn says. Thoughts are no part of the message, and calls in them are none."""
        cut = not ids or ids[-1] not in self.stop
        kept = list(ids if cut else ids[:-1])
        text: str = self.tokenizer.decode(kept, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return self._parsed(text, cut)

    def turn(self, items: Sequence[Entry]) -> ParsedTurn:
        """A recorded turn of the assistant, in the words that the template has for it."""
        if len(items) == 1 and isinstance(items[0], ParsedTurn):
            return items[0]
        said = "\n".join(text_of(item.content) for item in items if isinstance(item, Message))
        calls = [item.call for item in items if isinstance(item, CallItem)]
        errors = [call.problem for call in calls if isinstance(call, MalformedCall)]
        written = self._format.write(calls) if self._format and calls else ""
        text = "\n".join(part for part in (said, written) if part)
        return ParsedTurn(text, tuple(i for i in items if not isinstance(i, ParsedTurn)), next(iter(errors), None))

    def _following(
        self, past: Sequence[Entry], now: Sequence[Entry], tools: Sequence[ToolSpec], ids: Sequence[int]
    ) -> list[int]:
        if not ids:
            return self.prompt(now, tools)
        follows = self.extend(past, now, tools, ids)
        if follows is None:
            raise ModelError(
                f"the chat template of {_name(self.tokenizer)} writes earlier turns differently later on, so that a "
                "recorded conversation has no one form to learn from: set model.chat_template to one that does not"
            )
        return follows

    def _parsed(self, text: str, cut: bool) -> ParsedTurn:
        _, closed, spoken = (self._opening + text).rpartition(THOUGHT[1])
        if not closed:
            spoken = spoken.partition(THOUGHT[0])[0]
        said, calls = self._format.read(spoken) if self._format else (spoken.strip(), [])
        errors = [call.problem for call in calls if isinstance(call, MalformedCall)]
        if errors and cut and isinstance(calls[-1], MalformedCall):
            calls[-1] = replace(calls[-1], problem=f"{calls[-1].problem} (the turn was cut off: it was too long)")
        items: list[Item] = [text_message("assistant", said)] if said or not calls else []
        items += [CallItem(f"call_{number}", call) for number, call in enumerate(calls, start=1)]
        return ParsedTurn(text, tuple(items), next(iter(errors), None), cut)

    def _text(self, entries: Sequence[Entry], tools: Sequence[ToolSpec]) -> str:
        return self._render(self._messages(entries), tools)

    def _messages(self, entries: Sequence[Entry]) -> list[dict[str, Any]]:
        names = {i.call_id: i.call.tool for i in _items(entries) if isinstance(i, CallItem)}
        messages: list[dict[str, Any]] = []
        for own, group in _grouped(entries):
            if own:
                messages.append({"role": "assistant", "content": self._escaped(self.turn(group).text, turn=True)})
                continue
            for item in group:
                if isinstance(item, Message):
                    messages.append({"role": item.role, "content": self._escaped(text_of(item.content))})
                elif isinstance(item, OutputItem):
                    message = {"role": "tool", "content": self._escaped(text_of(item.content))}
                    name = self._escaped(names.get(item.call_id, ""))
                    messages.append({**message, "tool_call_id": item.call_id, "name": name})
        return messages

    def _render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[ToolSpec], *, prompt: bool = True) -> str:
        definitions = [_definition(spec, self._escaped) for spec in tools]
        try:
            text = self.tokenizer.apply_chat_template(
                list(messages),
                tools=definitions or None,
                chat_template=self._template,
                add_generation_prompt=prompt,
                tokenize=False,
            )
        except (TemplateError, TypeError, ValueError, KeyError) as error:
            raise ModelError(
                f"the chat template of {_name(self.tokenizer)} refuses a conversation of "
                f"{', '.join(str(m['role']) for m in messages[:8])} with {len(tools)} tools: {error}; "
                "set model.chat_template to one that takes it"
            ) from error
        if tools and tuple(tools) != self._checked:
            self._check(tools, text)
        return str(text)

    def _check(self, tools: Sequence[ToolSpec], text: str) -> None:
        name = _name(self.tokenizer)
        missing = [spec.name for spec in tools if spec.name not in text]
        if missing:
            raise ModelError(f"the chat template of {name} leaves out the tool {missing[0]}: set model.chat_template")
        if self._format is None:
            raise ModelError(f"cannot tell from the chat template how {name} writes calls: set rollouts.tool_calls")
        for spec in tools:
            if self._pythonic and not all(part.isidentifier() for part in spec.name.split(".")):
                raise ModelError(f"the tool {spec.name} cannot be called in Python's syntax: set rollouts.tool_calls")
        self._checked = tuple(tools)

    def _encode(self, text: str) -> list[int]:
        parts = text.split(_BREAK)
        return [i for part in parts for i in self.tokenizer.encode(part, add_special_tokens=False)]

    def _escaped(self, text: str, *, turn: bool = False) -> str:
        pattern = self._control_in_turns if turn else self._control
        return pattern.sub(lambda found: found[0][0] + _BREAK + found[0][1:], text)

    def _probe(self, added: Mapping[str, int]) -> tuple[str, str]:
        """What ends a turn; and `<think>` if every turn begins inside of a thought."""
        question = {"role": "user", "content": _PROBE}
        answer = {"role": "assistant", "content": _PROBE}
        text = self._render([question, answer], (), prompt=False)
        tail = text[text.rfind(_PROBE) + len(_PROBE) :].lstrip()
        end = max((token for token in added if tail.startswith(token)), key=len, default="")
        if not end:
            raise ModelError(
                f"the chat template of {_name(self.tokenizer)} does not end an assistant's turn with a token of its "
                f"own, but with {tail[:20]!r}: set model.chat_template"
            )
        opened = self._render([question], ()).rstrip().endswith(THOUGHT[0])
        return end, THOUGHT[0] if opened else ""


def _grouped(entries: Sequence[Entry]) -> Iterable[tuple[bool, list[Entry]]]:
    """The conversation in parts: the assistant's turns (True), and what stands between them."""
    group: list[Entry] = []
    kind = False
    for entry in entries:
        own = isinstance(entry, ParsedTurn | CallItem) or (isinstance(entry, Message) and entry.role == "assistant")
        if group and own != kind:
            yield kind, group
            group = []
        group.append(entry)
        kind = own
    if group:
        yield kind, group


def _items(entries: Iterable[Entry]) -> Iterable[Item]:
    for entry in entries:
        yield from entry.items if isinstance(entry, ParsedTurn) else (entry,)


def _same(written: str, said: str) -> bool:
    """Whether two texts differ in white space only, which templates strip and add around thoughts and messages."""
    return written == said or "".join(written.split()) == "".join(said.split())


def _definition(spec: ToolSpec, escaped: Any) -> dict[str, Any]:
    def walk(value: Any) -> Any:
        if isinstance(value, str):
            return escaped(value)
        if isinstance(value, list):
            return [walk(entry) for entry in value]
        return {escaped(k): walk(v) for k, v in value.items()} if isinstance(value, dict) else value

    parameters = {"type": "object", "properties": {}, **spec.input_schema}
    function = {"name": spec.name, "description": spec.description, "parameters": parameters}
    return {"type": "function", "function": walk(function)}


def _any_of(tokens: Iterable[str]) -> re.Pattern[str]:
    longest = sorted(tokens, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest)) if longest else r"(?!)")


def _name(tokenizer: PreTrainedTokenizerBase) -> str:
    return str(tokenizer.name_or_path or type(tokenizer).__name__)
