"""Decides which requests to the evaluated model are the agent's: those of one role that continue one conversation.

Inspect gives a role without a model of its own to the evaluated model, which is the agent here: a simulated customer,
for example, whose secret instructions are then the prompt. `watch_roles` records which roles were resolved so.
"""

from __future__ import annotations

import copy
import functools
import sys
from typing import Any

from .adapter import need

_ONE_CONVERSATION = "The agent plays one conversation, so name a model for each other one with the option model_roles"


def watch_roles() -> None:
    """Let `get_model` of Inspect note the roles that fall back to the agent, in all modules that have it."""
    original = need("inspect_ai.model._model", "inspect-ai").get_model
    if hasattr(original, "watches_roles"):
        return

    @functools.wraps(original)
    def get_model(model: Any = None, **named: Any) -> Any:
        asked, model = model, original(model, **named)
        conversation = getattr(getattr(model, "api", None), "conversation", None)
        if conversation is None or asked is not None:
            return model
        role = named.get("role")
        conversation.resolved.add(role)
        if role is not None:
            model = copy.copy(model)
            model.api = copy.copy(model.api)
            model.api.role = role
        return model

    get_model.watches_roles = True  # type: ignore[attr-defined]
    for module in list(sys.modules.values()):
        if getattr(module, "get_model", None) is original:
            module.get_model = get_model  # type: ignore[attr-defined]


class Conversation:
    """The agent's conversation in one sample.

    Attributes:
        resolved: the roles that `get_model` gave to the agent; None is the evaluated model itself.
        last_reply: the agent's last message.
    """

    def __init__(self) -> None:
        self.resolved: set[str | None] = set()
        self.last_reply: Any = None
        self._role: str | None = None
        self._has_begun = False
        self._seen: set[Any] = set()

    def admit(self, role: str | None, messages: list[Any]) -> str | None:
        """Note a request to the evaluated model, and return why it is not the agent's; None if it is.

        Args:
            role: the role by which the solver named the model; None for the evaluated model itself.
            messages: the messages of the request.
        """
        if not self._has_begun:
            if role is not None and len(self.resolved) > 1:
                others = sorted(name for name in self.resolved if name is not None)
                return self._asks(others if None not in self.resolved else [role])
            self._has_begun, self._role = True, role
        elif role != self._role:
            return self._asks([role] if role is not None else [self._role or ""])
        elif not self._continues(messages):
            return (
                "the solver asks the evaluated model in a conversation that does not continue the agent's, so it plays "
                f'another role there. {_ONE_CONVERSATION}, as in {{"ROLE":MODEL}}, if the solver names its role'
            )
        self._seen.update(key_of(message) for message in messages)
        return None

    def _asks(self, roles: list[str]) -> str:
        example = ",".join(f'"{role}":MODEL' for role in roles)
        return (
            f"the solver asks for the role {', '.join(map(repr, roles))}, which no model plays, so that Inspect would "
            f"ask the agent. {_ONE_CONVERSATION}={{{example}}}"
        )

    def _continues(self, messages: list[Any]) -> bool:
        if any(_is_same(message, self.last_reply) for message in messages):
            return True
        return all(key_of(message) in self._seen for message in messages)  # the same question, asked once more


def key_of(message: Any) -> Any:
    """Return what identifies a message among those of a sample."""
    return message.id or id(message)


def _is_same(message: Any, reply: Any) -> bool:
    if reply is None or message.role != "assistant":
        return False
    return (message.id is not None and message.id == reply.id) or _words(message) == _words(reply)


def _words(message: Any) -> tuple[str, list[tuple[str, Any]]]:
    return message.text, [(call.function, call.arguments) for call in message.tool_calls or ()]
