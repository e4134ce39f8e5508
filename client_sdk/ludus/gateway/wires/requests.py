"""One model call in the gateway's own form: the request, the reply, and the refusal. Wires translate to and from it.

    wire's JSON  →  ModelRequest  →  EpisodeSession.answer  →  ModelReply  →  wire's JSON or events
                                                            →  Refusal     →  wire's error

Entries are values without ids, so that two requests can be compared: an output refers to its call by position.
"""

from __future__ import annotations

import functools
import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from ludus.protocol.episodes import ToolSpec
from ludus.protocol.items import arguments_text
from ludus.protocol.text import replace_surrogates
from ludus.rendering import AnyCall

RefusalKind = Literal[
    "invalid", "unsupported", "context", "limit", "ended", "key", "path", "too_large", "time", "engine"
]
"""Why the gateway refuses a model call."""

STATUS: Final[Mapping[RefusalKind, int]] = {
    "invalid": 400, "unsupported": 400, "context": 400, "limit": 403, "ended": 403, "key": 401, "path": 404,
    "too_large": 413, "time": 504, "engine": 503,
}  # fmt: skip
"""The HTTP status of each kind."""


class Refusal(Exception):
    """A model call that the gateway does not answer with a reply. It never reaches the harness as a traceback.

    Args:
        kind: why.
        message: what happened, to which input, and what to do.
        param: the field of the request at fault.
        code: the error code of the wire, if there is a customary one.
    """

    def __init__(self, kind: RefusalKind, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.kind: Final[RefusalKind] = kind
        self.message: Final[str] = message
        self.param: Final[str | None] = param
        self.code: Final[str | None] = code

    @property
    def status(self) -> int:
        """The HTTP status."""
        return STATUS[self.kind]


class TextEntry(NamedTuple):
    """A message of the system or the user."""

    role: Literal["system", "user"]
    text: str


class CallText(NamedTuple):
    """A call in a request or a reply."""

    call_id: str
    tool: str
    arguments: str
    """The arguments as JSON text, as the model or the client wrote them."""


class AssistantEntry(NamedTuple):
    """One turn of the assistant."""

    text: str
    calls: tuple[CallText, ...]


class OutputEntry(NamedTuple):
    """The output of a call."""

    call_id: str
    text: str
    error: bool = False


Entry = TextEntry | AssistantEntry | OutputEntry
"""One message of a conversation."""
Key = tuple[Any, ...]
"""An entry without ids and without the freedom that clients have in writing it again."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A model call."""

    entries: tuple[Entry, ...]
    tools: tuple[ToolSpec, ...]
    max_tokens: int | None = None
    """The most tokens that the harness wants; None if it did not say."""
    model: str = ""
    """The model's name as the harness gave it, for the reply. It chooses nothing."""
    stream: bool = False
    stream_usage: bool = False
    """Whether a streamed chat completion ends with its usage."""
    overridden: tuple[str, ...] = ()
    """Fields that ask for another sampling than the session's, and are not followed."""
    malformed: bool = True
    """Whether the wire can carry a call whose arguments are not JSON."""


@dataclass(frozen=True, slots=True)
class ModelReply:
    """The answer to a model call."""

    number: int
    """The number of the call in its episode, counted from 1."""
    text: str
    """The text of the turn without thoughts and calls."""
    calls: tuple[CallText, ...]
    finish: Literal["stop", "length", "calls"]
    input_tokens: int
    output_tokens: int
    version: int
    """The version of the weights that sampled the last token."""


def keys_of(entries: Sequence[Entry]) -> list[Key]:
    """Return the keys of a conversation."""
    keys: list[Key] = []
    places: dict[str, tuple[int, int]] = {}
    for number, entry in enumerate(entries):
        if isinstance(entry, TextEntry):
            keys.append(entry)
        elif isinstance(entry, AssistantEntry):
            for place, call in enumerate(entry.calls):
                places[call.call_id] = (number, place)
            keys.append(assistant_key(entry))
        else:
            keys.append(("output", places.get(entry.call_id, entry.call_id), entry.text))
    return keys


def assistant_key(entry: AssistantEntry) -> Key:
    """Return the key of a turn: white space around its text and the layout of its arguments do not matter."""
    return ("assistant", entry.text.strip(), *((call.tool, canonical(call.arguments)) for call in entry.calls))


@functools.lru_cache(4096)
def canonical(arguments: str) -> str:
    """Return JSON text in one fixed layout; text that is not JSON stays as it is."""
    try:
        return json.dumps(json.loads(arguments or "{}"), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments.strip()


def call_text(call_id: str, call: AnyCall) -> CallText:
    """Return a sampled call in the form of replies."""
    return CallText(call_id, call.tool, arguments_text(call))


class ToolReader:
    """Reads tool definitions. Equal definitions give the same object, and most requests repeat those of another.

    Args:
        read: returns the tools of a list of definitions.
    """

    def __init__(self, read: Callable[[object], tuple[ToolSpec, ...]]) -> None:
        self._read = read
        self._recent: deque[tuple[object, tuple[ToolSpec, ...]]] = deque(maxlen=16)

    def __call__(self, definitions: object) -> tuple[ToolSpec, ...]:
        """Return the tools.

        Raises:
            Refusal: they are not valid.
        """
        if not definitions:
            return ()
        for known, tools in self._recent:
            if known == definitions:
                return tools
        tools = self._read(definitions)
        self._recent.appendleft((definitions, tools))
        return tools


# ── reading JSON of a harness ───────────────────────────────────────────────────────────────────────────────────────


def invalid(param: str, wanted: str, found: object) -> Refusal:
    """Return the refusal of a field of a wrong type."""
    shown = json.dumps(found, default=str)[:80]
    return Refusal("invalid", f"{param} must be {wanted}, not {shown}", param=param)


def mapping(value: object, param: str) -> Mapping[str, Any]:
    """Return a JSON object.

    Raises:
        Refusal: it is something else.
    """
    if not isinstance(value, dict):
        raise invalid(param, "an object", value)
    return value


def text(value: object, param: str) -> str:
    """Return a text that UTF-8 can hold.

    Raises:
        Refusal: it is something else.
    """
    if not isinstance(value, str):
        raise invalid(param, "a text", value)
    return value if value.isascii() else replace_surrogates(value)


def objects(value: object, param: str) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """Yield the place and the value of each object in a list.

    Raises:
        Refusal: it is no list of objects.
    """
    if not isinstance(value, list):
        raise invalid(param, "a list", value)
    for number, entry in enumerate(value):
        place = f"{param}[{number}]"
        yield place, mapping(entry, place)


def count(value: object, param: str) -> int | None:
    """Return a positive number; None for null.

    Raises:
        Refusal: it is something else.
    """
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise invalid(param, "a whole number of at least 1", value)
    return value


def tool_spec(function: Mapping[str, Any], schema: str, param: str) -> ToolSpec:
    """Return a tool definition.

    Args:
        function: the definition.
        schema: the name of its field with the JSON Schema.
        param: its place, for messages.

    Raises:
        Refusal: it is none.
    """
    return ToolSpec(
        name=text(function.get("name"), f"{param}.name"),
        description=text(function.get("description") or "", f"{param}.description"),
        input_schema=dict(mapping(function.get(schema) or {}, f"{param}.{schema}")),
    )
