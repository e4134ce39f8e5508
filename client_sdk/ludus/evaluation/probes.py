"""Contamination checks: policies that play without tools, or with a cut prompt.

A policy that solves tasks which it could not see has probably seen them before. The environment is unchanged, so a
trajectory of a check records the whole prompt, and only the policy's input is reduced.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ludus.client.policies.base import (
    CallIds,
    Conversation,
    EpisodePolicy,
    Policy,
    PolicyResult,
    Turn,
    as_turn,
    policy_name,
)
from ludus.protocol.content import Message, TextBlock
from ludus.protocol.evaluation import Probe
from ludus.protocol.items import CallItem, Item, text_message


def probed(policy: Policy, probe: Probe, prompt_share: float) -> Policy:
    """Return the policy with a reduced input.

    Args:
        policy: the policy to check.
        probe: what to reduce.
        prompt_share: the share of the characters that a cut prompt keeps of each user message.
    """
    share = prompt_share if "truncated-prompt" in probe else None
    return _Probed(policy, f"{policy_name(policy)} ({probe})", "no-tools" not in probe, share)


@dataclass(frozen=True, slots=True)
class _Probed:
    policy: Policy
    name: str
    tools: bool
    share: float | None

    def begin(self, conversation: Conversation) -> EpisodePolicy:
        inner: Any = self.policy
        begin = getattr(inner, "begin", None)
        prompt = len(conversation.items)
        choose: EpisodePolicy = inner if begin is None else begin(self._reduced(conversation, prompt))
        return _Choice(self, choose, prompt, choose is not inner)

    def _reduced(self, conversation: Conversation, prompt: int) -> Conversation:
        items: Sequence[Item] = conversation.items
        if self.share is not None:
            items = [*(_cut(item, self.share) for item in items[:prompt]), *items[prompt:]]
        return replace(conversation, items=items, tools=conversation.tools if self.tools else ())


@dataclass(frozen=True, slots=True)
class _Choice:
    probed: _Probed
    choose: EpisodePolicy
    prompt: int
    own: bool
    """Whether `choose` belongs to this episode, so that it is closed with it."""

    async def __call__(self, conversation: Conversation) -> PolicyResult:
        result = await self.choose(self.probed._reduced(conversation, self.prompt))
        if self.probed.tools:
            return result
        turn = as_turn(result, CallIds())
        items = tuple(item for item in turn.items if not isinstance(item, CallItem))
        return Turn(items or (text_message("assistant", ""),), turn.usage, turn.stopped, turn.raw)

    async def aclose(self) -> None:
        """Close the policy's own callable of the episode."""
        aclose = getattr(self.choose, "aclose", None)
        if self.own and aclose is not None:
            await aclose()


def _cut(item: Item, share: float) -> Item:
    """Return a user message with the first part of its text and without images; other items as they are."""
    if not isinstance(item, Message) or item.role != "user":
        return item
    texts = [block.text for block in item.content if isinstance(block, TextBlock)]
    text = "\n".join(texts)
    return text_message("user", text[: math.floor(share * len(text))])
