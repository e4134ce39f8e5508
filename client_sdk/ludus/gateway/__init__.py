"""The policy gateway: a model endpoint behind which harnesses of others play, while a trainer learns from the tokens.

A harness plays an episode at its agent endpoint and calls its model here, over OpenAI's chat completions or responses
or Anthropic's messages. The gateway samples from the policy, and keeps token ids and log-probabilities of each call.

Needs the packages of the `trainer` extra except torch, as `ludus.rendering` does.
"""

from __future__ import annotations

from ludus.gateway.engine import PolicyEngine
from ludus.gateway.episodes import HarnessEpisode
from ludus.gateway.harness import (
    CommandHarness,
    Harness,
    HarnessFailed,
    HarnessLimitReached,
    HarnessNetworkRefused,
    HarnessSandboxLost,
    HarnessTask,
    WorkerHarness,
    make_harness,
)
from ludus.gateway.server import Gateway
from ludus.gateway.session import EpisodeSession, GatewayLimits, ModelCall
from ludus.gateway.wires.requests import Refusal

__all__ = [
    "CommandHarness",
    "EpisodeSession",
    "Gateway",
    "GatewayLimits",
    "Harness",
    "HarnessEpisode",
    "HarnessFailed",
    "HarnessLimitReached",
    "HarnessNetworkRefused",
    "HarnessSandboxLost",
    "HarnessTask",
    "ModelCall",
    "PolicyEngine",
    "Refusal",
    "WorkerHarness",
    "make_harness",
]
