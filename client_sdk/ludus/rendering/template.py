r"""Rendering of conversations with a chat template, of which only the new end is rendered if the template allows that.

A template is a program that gets the whole conversation each time, so the turns of a long episode would cost more and
more. But most templates write the end of a conversation regardless of what came before. `Template.continued` checks
that once for each *shape* and then renders the end alone, after a short probe. A shape is what a template can decide
by: the tools, and of all messages their roles, names, and the keys of their texts (`ludus.rendering.questions`), which
say what marks such as `</think>` or `<tool_response>` they contain. A conversation is rendered whole where its shape
has not been seen yet, and always where the template fails the check or asks more than the keys say.

The clock stands still for a template: one that writes the date would otherwise write another prompt after midnight.

The end itself is rendered once for all contents that the template copies as they are. For that, its text is taken apart
at stand-ins (`_frame`), and contents are put in their places.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar

from jinja2 import TemplateError

from ludus.rendering.errors import RenderingError, TemplateExceeded
from ludus.rendering.questions import Questions, key_of

T = TypeVar("T")
ApplyTemplate = Callable[..., Any]
"""Renders as the method `apply_chat_template` of tokenizers does."""
ChatMessage = dict[str, Any]
"""A message for chat templates: `role`, `content`, and in a tool's message `tool_call_id` and `name`."""

PROBE: Final[ChatMessage] = {"role": "user", "content": "probe"}
"""A message to try a template with."""
NO_TOOLS: Final[list[ChatMessage]] = []
TELLS_TIME: Final = "strftime_now"
"""The function by which templates ask for the time."""
_DIRECTIVES: Final = tuple(f"%{letter}" for letter in "aAbBcdfGHIjmMpSuUVwWxXyYzZ") + tuple(
    f"%-{letter}" for letter in "dHIjmMSy"
)
_CACHED: Final = 1_000
_SHAPES: Final = 20_000
_STAND_IN: Final = "Stand-in %d: \"a\" 'b' \\c\\ <d> &e;\n\n  \té {}[]%%|~"
"""A content whose characters a template changes if it does more than to copy them."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """A conversation as the template writes it, up to the beginning of the assistant's next turn."""

    text: str
    """The text."""
    shape: int
    """The number of its shape; see `ludus.rendering.template`."""


class Template:
    """A chat template with its tokenizer, which renders it.

    Args:
        tokenizer: a tokenizer of transformers.
        source: the Jinja text.
        options: further arguments of the template.
        name: the model's name, for messages.
        apply: renders in place of the tokenizer; see `ludus.rendering.bounded`.
        clock: the time that the template gets.
    """

    def __init__(
        self,
        tokenizer: Any,
        source: str,
        options: Mapping[str, Any],
        name: str,
        apply: ApplyTemplate | None = None,
        clock: datetime | None = None,
    ) -> None:
        self.source = source
        """The Jinja text."""
        self._tokenizer, self._options, self._apply = tokenizer, dict(options), apply
        self._source = with_stopped_clock(source, clock) if clock is not None else source
        self.name = name
        """The model's name, for messages."""
        self._questions = Questions(source)
        self._frames: dict[Any, tuple[str, ...] | None] = {}
        """The text after a probe around the contents of messages, by their roles and names; None if there is no such
        text."""
        self._prompts: dict[Any, str] = {}
        """The texts of conversations without a turn, by messages and tools."""
        self._ends: dict[Any, str] = {}
        """The texts of the newest messages after a probe, by the messages."""
        self._numbers = itertools.count()
        self._shapes: dict[Any, int] = {}
        """The number of each shape, by the number of the one before and what was added to it."""
        self._local: dict[int, bool] = {}
        """By shape, whether the end can be rendered alone."""

    @functools.cached_property
    def probe(self) -> str:
        """The text of `PROBE` alone, up to the beginning of the assistant's turn."""
        return self.render([PROBE], NO_TOOLS)

    def forget(self) -> None:
        """Clear what was learned, because definitions of tools were thrown away, which are known by identity."""
        for cache in (self._prompts, self._ends, self._shapes, self._local):
            cache.clear()

    def render(
        self, messages: Sequence[ChatMessage], definitions: Sequence[ChatMessage], *, prompt: bool = True
    ) -> str:
        """Return the text of a whole conversation, with the beginning of the assistant's next turn if `prompt` is true.

        Raises:
            RenderingError: the template refuses the conversation.
        """
        apply = self._apply or self._tokenizer.apply_chat_template
        try:
            return str(
                apply(
                    list(messages),
                    **self._options,
                    tools=list(definitions) or None,
                    chat_template=self._source,
                    add_generation_prompt=prompt,
                    tokenize=False,
                )
            )
        except (TemplateError, TypeError, ValueError, LookupError, AttributeError) as error:
            roles = ", ".join(message["role"] for message in messages[-6:])
            raise RenderingError(
                f"the chat template of {self.name} cannot render a conversation that ends with {roles} "
                f"and {len(definitions)} tools: {error or type(error).__name__}; give another chat_template"
            ) from error

    def whole(self, messages: Sequence[ChatMessage], definitions: list[ChatMessage]) -> Rendered:
        """Return a conversation, rendered whole.

        Raises:
            RenderingError: as for `render`.
        """
        shape = self._shape(-1, messages, definitions)
        if any(message["role"] == "assistant" for message in messages):
            return Rendered(self.render(messages, definitions), shape)
        # The episodes of a group begin with the same prompt.
        key = (_key(messages), id(definitions))
        if (text := self._prompts.get(key)) is None:
            text = _keep(self._prompts, key, self.render(messages, definitions))
        return Rendered(text, shape)

    def continued(
        self, earlier: Rendered, messages: Sequence[ChatMessage], new: int, definitions: list[ChatMessage]
    ) -> Rendered:
        """Return `whole` of a conversation that continues a rendered one; see `Renderer.continued`.

        Raises:
            RenderingError: as for `render`.
        """
        added = messages[len(messages) - new :]
        shape = self._shape(earlier.shape, added, definitions)
        if not self._questions.simple:
            return Rendered(self.render(messages, definitions), shape)
        local = self._local.get(shape)
        if local is False:
            return Rendered(self.render(messages, definitions), shape)
        end = self._end(added)
        if end is not None and local:
            return Rendered(earlier.text + end, shape)
        text = self.render(messages, definitions)
        self._local[shape] = end is not None and text == earlier.text + end
        return Rendered(text, shape)

    def _end(self, added: Sequence[ChatMessage]) -> str | None:
        """Return the text of messages after a probe; None if they cannot be rendered there."""
        if (framed := self._framed(added)) is not None:
            return framed
        key = _key(added)
        if (end := self._ends.get(key)) is None:
            if (end := self._after_probe(added)) is None:
                return None
            _keep(self._ends, key, end)
        return end

    def _after_probe(self, added: Sequence[ChatMessage]) -> str | None:
        try:
            text = self.render([PROBE, *added], NO_TOOLS)
        except TemplateExceeded:
            raise
        except RenderingError:
            return None
        return text[len(self.probe) :] if text.startswith(self.probe) else None

    def _framed(self, added: Sequence[ChatMessage]) -> str | None:
        """Return `_after_probe` without rendering; None if the template may not copy all contents as they are."""
        if not all(map(_is_flat, added)):
            return None
        key = tuple([(message["role"], message.get("name")) for message in added])
        if key not in self._frames:
            _keep(self._frames, key, self._frame(added))
        frame = self._frames[key]
        if frame is None:
            return None
        parts = [frame[0]]
        for message, after in zip(added, frame[1:], strict=True):
            if not self._copied(content := message["content"]):
                return None
            parts += (content, after)
        return "".join(parts)

    def _frame(self, added: Sequence[ChatMessage]) -> tuple[str, ...] | None:
        """Return the text around the contents of messages with such roles and names, found with stand-ins for them."""
        contents = [_STAND_IN % number for number in range(len(added))]
        stand_ins = [{**message, "content": content} for message, content in zip(added, contents, strict=True)]
        for number, message in enumerate(stand_ins):
            if "tool_call_id" in message:
                message["tool_call_id"] = f"stand-in-{number}"
        end = self._after_probe(stand_ins) if all(map(self._copied, contents)) else None
        parts: list[str] = []
        for content in contents:
            before, found, end = (end or "").partition(content)
            if not found:
                return None
            parts.append(before)
        parts.append(end or "")
        return None if any("tand-in" in part for part in parts) else tuple(parts)

    def _copied(self, content: str) -> bool:
        """Return whether a template that copies the stand-ins as they are does so with this content: it has no white
        space at its ends, which templates strip, and nothing that the template looks for."""
        return self._questions.key(content) == 0 and not (content[0].isspace() or content[-1].isspace())

    def _shape(self, before: int, added: Sequence[ChatMessage], definitions: list[ChatMessage]) -> int:
        """Return the number of a shape: of one with the number `before` (-1 for none), and messages after it."""
        key = (before, id(definitions), *map(self._message_key, added))
        number = self._shapes.get(key)
        if number is None:
            if len(self._shapes) >= _SHAPES:
                self._shapes.clear()
                self._local.clear()
            number = self._shapes[key] = next(self._numbers)  # never one of before, which a conversation may still have
        return number

    def _message_key(self, message: ChatMessage) -> Any:
        """Return what the template can decide by in a message. It only compares the ids of calls with each other."""
        if _is_flat(message):
            return message["role"], message.get("name"), self._questions.key(message["content"])
        return tuple([(name, key_of(self._questions, value)) for name, value in message.items()])


def with_stopped_clock(source: str, clock: datetime) -> str:
    """Return a template that gets the same time whenever it asks.

    Tokenizers pass no functions to templates, so it is a macro, which replaces the directives of a format.
    """
    if TELLS_TIME not in source:
        return source
    replacing = "".join(f".replace({directive!r}, {clock.strftime(directive)!r})" for directive in _DIRECTIVES)
    # The line break after the block is not part of the text, and keeps a source at the beginning of a line.
    return f"{{%- macro {TELLS_TIME}(form) -%}}{{{{- (form | string){replacing} -}}}}{{%- endmacro %}}\n{source}"


def _key(messages: Sequence[ChatMessage]) -> Any:
    return tuple([tuple(message.items()) if _is_flat(message) else repr(message) for message in messages])


def _is_flat(message: ChatMessage) -> bool:
    """Return whether a message is its content alone: one of the assistant's with more has thoughts or calls."""
    return len(message) <= 2 or message["role"] != "assistant"


def _keep(cache: dict[Any, T], key: Any, value: T) -> T:
    if len(cache) >= _CACHED:
        cache.clear()
    cache[key] = value
    return value
