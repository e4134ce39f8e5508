"""One episode's conversation with a model endpoint, kept in the provider's own form.

Replies hold parts that the next request must repeat unchanged, such as reasoning, thinking blocks and signatures; some
endpoints refuse a request without them. So each request repeats the replies as they came, and what a trajectory keeps
of them is not enough to make it.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from ludus.client.formats import Format, observations
from ludus.client.policies.base import Conversation, Turn
from ludus.protocol.items import CallItem, Item
from ludus.protocol.text import replace_surrogates

Complete = Callable[[Mapping[str, Any], Conversation], Awaitable[Turn]]
"""Makes one request for a completion, from the fields of a request that hold the conversation and the tools."""


class Dialogue:
    """The callable for one episode; see `ludus.client.policies.base.StatefulPolicy`.

    Args:
        form: the provider's form.
        conversation: the conversation at the first turn.
        complete: makes a request.
        outputs: changes the entries that answer a reply's calls, given these entries and the reply.
    """

    def __init__(
        self,
        form: Format,
        conversation: Conversation,
        complete: Complete,
        outputs: Callable[[list[dict[str, Any]], Mapping[str, Any]], list[dict[str, Any]]] | None = None,
    ) -> None:
        self._form = form
        self._complete = complete
        self._outputs = outputs
        self._request: dict[str, Any] = form.messages(conversation.items)
        if conversation.tools:
            self._request["tools"] = form.tools(conversation.tools)
        self._seen = len(conversation.items)
        self._last: Turn | None = None

    async def __call__(self, conversation: Conversation) -> Turn:
        """Request one reply and return it as a turn; see `OpenAIPolicy` for the errors."""
        if self._last is not None:
            self._append(self._last, conversation.items[self._seen :])
        self._seen, self._last = len(conversation.items), None
        self._last = await self._complete(self._request, conversation)
        return self._last

    def branch(self, place: str) -> Dialogue:
        """Return the callable of a branch, with a copy of the conversation so far."""
        branched = copy.copy(self)
        branched._request = copy.deepcopy(self._request)
        return branched

    def _append(self, turn: Turn, recorded: Sequence[Item]) -> None:
        """Add a reply and the outputs of its calls, as the conversation has recorded them since."""
        raw: Any = turn.raw
        reply = raw if isinstance(raw, Mapping) else raw.model_dump(mode="json", exclude_none=True)
        calls = [item for item in turn.items if isinstance(item, CallItem)]
        answered = observations(self._form, calls, recorded)
        conversation: list[dict[str, Any]] = self._request[self._form.CONVERSATION]
        conversation += _as_unicode(self._form.reply(reply))
        conversation += answered if self._outputs is None else self._outputs(answered, reply)


def _as_unicode(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return entries without lone surrogates, which a model may write and no request can hold."""
    try:
        to_json(entries)
    except PydanticSerializationError:
        return replace_surrogates(entries)
    return entries
