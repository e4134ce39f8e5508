"""Opening the model endpoints of an evaluation."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from ludus.client.policies.base import CallIds, Conversation, Policy, StatefulPolicy, as_turn
from ludus.evaluation.config import DEFAULT_URLS, KEY_VARIABLES, ModelSpec
from ludus.protocol.episodes import TaskRow, ToolSpec
from ludus.protocol.errors import InvalidParams
from ludus.protocol.items import text_message

__all__ = ["open_model", "probe_model"]


PROBE: Final = "This is a test of the connection. Answer with the word ready."
"""The prompt of the first call of a model."""


@asynccontextmanager
async def open_model(spec: ModelSpec, variables: Mapping[str, str] | None = None) -> AsyncIterator[Policy]:
    """Open the policy of a model endpoint; its connections are closed when the block is left.

    Args:
        spec: the model; its `wire` must not be None.
        variables: where to look up the key; the environment variables of this process when None.

    Raises:
        InvalidParams: the address is invalid, or there is no key for a provider that needs one.
        ConnectionFailed: no server listens at the endpoint.
    """
    # Imported here, because aiohttp takes longer to import than all the rest.
    from ludus.client.policies.openai import OpenAIPolicy
    from ludus.client.policies.providers import ProviderPolicy

    wire, url = spec.wire, spec.url
    if wire is None or url is None:
        raise InvalidParams(f"{spec.model!r} is no model endpoint; write WIRE:NAME@URL with a wire of "
                            f"{', '.join(DEFAULT_URLS)}")  # fmt: skip
    settings: dict[str, Any] = {
        "options": spec.options, "timeout": spec.timeout, "attempts": spec.attempts, "patience": spec.patience,
    }  # fmt: skip
    key = _key(spec, os.environ if variables is None else variables)
    policy: OpenAIPolicy | ProviderPolicy
    try:
        if wire == "openai":
            policy = OpenAIPolicy(spec.endpoint_name, url, key, **settings)
        else:
            policy = ProviderPolicy(wire, spec.endpoint_name, url, key, **settings)
    except ValueError as error:
        raise InvalidParams(f"model {spec.label!r}: {error}") from None
    async with policy:
        policy.name = spec.label
        await policy.check()
        yield policy


async def probe_model(policy: Policy, tools: Sequence[ToolSpec] = ()) -> None:
    """Let a model take one short turn, so that an endpoint that fails does so before anything depends on it.

    Args:
        policy: the model.
        tools: the tools that it will be offered.

    Raises:
        InvalidParams: the tools alone fill the model's context.
        LudusError: the call fails, as a call in an episode would.
    """
    task = TaskRow(id="probe", split="probe", index=0, fields={})
    conversation = Conversation(
        environment="probe", task=task, seed=0, sample=0, turn=1, items=(text_message("user", PROBE),),
        tools=tuple(tools), gradable=True,
    )  # fmt: skip
    choose = policy.begin(conversation) if isinstance(policy, StatefulPolicy) else policy
    turn = as_turn(await choose(conversation), CallIds())
    if turn.stopped is not None:
        raise InvalidParams(f"the model cannot take a first turn with {len(tools)} tools: {turn.stopped}")


def _key(spec: ModelSpec, variables: Mapping[str, str]) -> str:
    """Return the key of a model; an empty text for an endpoint of the user's own without one.

    Raises:
        InvalidParams: the named variable is not set, or the provider's own address needs a key.
    """
    assert spec.wire is not None
    usual = KEY_VARIABLES[spec.wire]
    name = spec.api_key_env or usual
    key = variables.get(name, "")
    if not key and (spec.api_key_env is not None or spec.url == DEFAULT_URLS[spec.wire]):
        raise InvalidParams(
            f"model {spec.label!r} needs a key: set the environment variable {name}"
            + ("" if spec.api_key_env else ", or name another one with api_key_env")
        )
    return key
