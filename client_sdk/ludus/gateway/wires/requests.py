"""One model call in the gateway's own form: the request, the reply, and the refusal. Wires translate to and from it.

    wire's JSON  →  ModelRequest  →  EpisodeSession.answer  →  ModelReply  →  wire's JSON or events
                                                            →  Refusal     →  wire's error

Entries are values without ids, so that two requests can be compared: an output refers to its call by position.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from ludus.protocol.episodes import ToolSpec
from ludus.protocol.items import arguments_text
from ludus.protocol.text import replace_surrogates
from ludus.rendering import AnyCall

RefusalKind = Literal[
    "invalid", "unsupported", "content", "context", "limit", "ended", "key", "path", "too_large", "time", "engine"
]
"""Why the gateway refuses a model call."""

STATUS: Final[Mapping[RefusalKind, int]] = {
    "invalid": 400, "unsupported": 400, "content": 400, "context": 400, "limit": 403, "ended": 403, "key": 401,
    "path": 404, "too_large": 413, "time": 504, "engine": 503,
}  # fmt: skip
"""The HTTP status of each kind."""


_UNPRINTABLE: Final = re.compile(r"[^\w.\-]", re.ASCII)
"""What a header cannot hold, or separates its names."""


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


@dataclass(slots=True)
class RequestContext:
    """What a wire needs besides the body to read a request, and what it notes of it."""

    temperature: float
    """The session's temperature."""
    override: Collection[str] = ()
    """Fields that ask for a reply of another form and are ignored instead of refused."""
    responses: StoredResponses = field(default_factory=lambda: StoredResponses())
    """The responses that this episode was given, for requests that refer to them."""
    overridden: list[str] = field(default_factory=list[str])
    """What was not followed: names of fields, and `PLACE.KIND` of entries that were left out."""

    def leave_out(self, place: str, kind: object) -> None:
        """Note an entry of a list that the wire allows and the gateway cannot follow."""
        self.ignore(f"{place}.{kind}")

    def ignore(self, name: str) -> None:
        """Note a field that is not followed."""
        printable = _UNPRINTABLE.sub("_", name)[:60]
        if printable not in self.overridden:
            self.overridden.append(printable)


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response of the responses wire, kept because a later request may refer to it."""

    value: Mapping[str, Any]
    """The response as it was given."""
    items: tuple[Mapping[str, Any], ...]
    """The whole conversation up to its end: all items of its request and of itself."""


@dataclass(slots=True)
class StoredResponses:
    """The stored responses of one episode. The number of an episode's model calls bounds them."""

    by_id: dict[str, StoredResponse] = field(default_factory=dict[str, StoredResponse])
    items: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """The items of these responses by their ids."""

    def add(self, value: Mapping[str, Any], given: Sequence[Mapping[str, Any]]) -> None:
        """Keep a response and the items that it answered."""
        self.by_id[value["id"]] = StoredResponse(value, (*given, *value["output"]))
        self.items |= {item["id"]: item for item in value["output"]}


class ContextFull(Refusal):
    """A prompt that leaves no room for a reply.

    Args:
        tokens: the number of the prompt's tokens.
        maximum: the most tokens of prompt and reply together.
    """

    def __init__(self, tokens: int, maximum: int) -> None:
        super().__init__(
            "context",
            f"This model's maximum context length is {maximum} tokens. However, your messages resulted in {tokens} "
            "tokens. Please reduce the length of the messages.",
            param="messages",
            code="context_length_exceeded",
        )
        self.tokens: Final[int] = tokens
        self.maximum: Final[int] = maximum


class TextEntry(NamedTuple):
    """A message of the system or the user."""

    role: Literal["system", "user"]
    text: str


class ToolForm(NamedTuple):
    """How a wire writes the calls of a tool, where that is not the usual call of a function."""

    name: str
    """The tool's name on the wire."""
    namespace: str | None = None
    """The group of tools that it belongs to."""
    custom: bool = False
    """Whether its input is a text instead of JSON; the policy sees a function with one argument, `input`."""


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
    forms: Mapping[str, ToolForm] = field(default_factory=dict[str, ToolForm])
    """How calls of some tools are written on the wire, by the names that the policy sees."""
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
    items: tuple[Mapping[str, Any], ...] | None = None
    """The items of the whole conversation, where the response to it is to be stored."""


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


def custom_arguments(call: Mapping[str, Any], param: str) -> str:
    """Return the arguments of a call of a custom tool, whose `input` is a text.

    Raises:
        Refusal: it is none.
    """
    return json.dumps({"input": text(call.get("input") or "", f"{param}.input")}, ensure_ascii=False)


def custom_input(call: CallText) -> str:
    """Return the input of a sampled call of a custom tool; what is no such call's arguments is the input itself."""
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        return call.arguments
    given = arguments.get("input") if isinstance(arguments, dict) else None
    return given if isinstance(given, str) else call.arguments


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
    """Return a positive number; None for null, and for -1, by which some clients say "no limit".

    Raises:
        Refusal: it is something else.
    """
    if value is None or value == -1:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise invalid(param, "a whole number of at least 1", value)
    return value
